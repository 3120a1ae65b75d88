#include "check.h"
// LDS sized at launch, up to all 64 KB, split into arrays of several types; blocks whose last wave is partial. Waves write
// halves of the same dwords, which is no race.
// options: --strict
extern __shared__ unsigned char lds[];
__global__ void rotate(const double* a, double* out, int words) {
    double* wide = reinterpret_cast<double*>(lds);
    uint16_t* narrow = reinterpret_cast<uint16_t*>(lds + words * 8);
    for (int i = threadIdx.x; i < words; i += blockDim.x) {
        wide[i] = a[blockIdx.x * words + i];
        narrow[i] = uint16_t(i * 3);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < words; i += blockDim.x)
        out[blockIdx.x * words + i] = wide[(i + 37) % words] + narrow[words - 1 - i];
}
int main() {
    for (int words : {1, 50, 1000, 6553}) {
        for (int threads : {1, 31, 75, 256, 1000}) {
            const int blocks = 3;
            auto a = edgy<double>(blocks * words);
            Device<double> da(a), out(blocks * words);
            rotate<<<blocks, threads, words * 10>>>(da.data, out.data, words);
            HIP(hipGetLastError());
            std::vector<double> want(blocks * words);
            for (int b = 0; b < blocks; b++)
                for (int i = 0; i < words; i++)
                    want[b * words + i] = a[b * words + (i + 37) % words] + uint16_t((words - 1 - i) * 3);
            require_same(std::to_string(words) + " words, " + std::to_string(threads) + " threads", out.host(), want);
        }
    }
    passed();
}
