#include "check.h"
// Fine-grained device memory, and memory of a stream's order: kernels use both.
__global__ void square(unsigned* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] *= a[i];
}
static void use(const char* name, unsigned* at, int n, hipStream_t stream) {
    auto a = whole<unsigned>(n);
    std::vector<unsigned> want(n), back(n, 77);
    for (int i = 0; i < n; i++) want[i] = a[i] * a[i];
    HIP(hipMemcpyAsync(at, a.data(), n * 4, hipMemcpyHostToDevice, stream));
    square<<<(n + 63) / 64, 64, 0, stream>>>(at, n);
    HIP(hipMemcpyAsync(back.data(), at, n * 4, hipMemcpyDeviceToHost, stream));
    HIP(hipStreamSynchronize(stream));
    require_same(name, back, want);
}
int main() {
    const int n = 700 + random_bits()() % 3000;
    unsigned* at = nullptr;
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&at), n * 4, hipDeviceMallocFinegrained));
    use("fine-grained", at, n, stream);
    HIP(hipFree(at));
    for (int round = 0; round < 5; round++) {
        HIP(hipMallocAsync(reinterpret_cast<void**>(&at), n * 4, stream));
        use("of the stream", at, n, stream);
        HIP(hipFreeAsync(at, stream));
    }
    hipMemPool_t pool;
    HIP(hipDeviceGetDefaultMemPool(&pool, 0));
    HIP(hipMallocFromPoolAsync(reinterpret_cast<void**>(&at), n * 4, pool, stream));
    use("of a pool", at, n, stream);
    HIP(hipFreeAsync(at, stream));
    HIP(hipStreamSynchronize(stream));
    passed();
}
