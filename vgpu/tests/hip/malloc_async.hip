#include "check.h"
// Memory allocated and freed in a stream's order. HIP 5.2.3 itself crashes on the null stream, and goes round for ever when
// a stream is destroyed that freed memory: neither is done here.
__global__ void fill(int* a, int value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = value + i;
}
int main() {
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (int round = 0; round < 20; round++) {
        const int n = 1000 + round * 977;
        int* a = nullptr;
        HIP(hipMallocAsync(reinterpret_cast<void**>(&a), n * 4, stream));
        fill<<<(n + 255) / 256, 256, 0, stream>>>(a, round, n);
        std::vector<int> back(n, -1), want(n);
        HIP(hipMemcpyAsync(back.data(), a, n * 4, hipMemcpyDeviceToHost, stream));
        HIP(hipFreeAsync(a, stream));
        HIP(hipStreamSynchronize(stream));
        for (int i = 0; i < n; i++) want[i] = round + i;
        require_same("round " + std::to_string(round), back, want);
    }
    passed();
}
