#include "check.h"
// A histogram of bytes: LDS counters a block, merged in global memory, each thread over a stride of the grid.
__global__ void kernel(const unsigned char* a, unsigned* out, int n) {
    __shared__ unsigned bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[a[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (bins[i]) atomicAdd(&out[i], bins[i]);
}
int main() {
    const int n = 100003;
    std::vector<unsigned char> a(n);
    for (auto& x : a) x = (unsigned char)(random_bits()() >> 13 & random_bits()());
    Device<unsigned char> da(a);
    Device<unsigned> out(std::vector<unsigned>(256, 0));
    kernel<<<12, 192>>>(da.data, out.data, n);
    std::vector<unsigned> want(256, 0);
    for (unsigned char x : a) want[x]++;
    require_same("bins", out.host(), want);
    passed();
}
