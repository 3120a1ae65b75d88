#include "check.h"
#include <thread>
// Threads of the host that allocate, copy, launch and wait at once, each in its own stream.
__global__ void kernel(int* a, int by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = a[i] * by + i;
}
static void work(unsigned number) {
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (int round = 0; round < 8; round++) {
        const int n = 500 + 137 * int(number) + round;
        std::vector<int> a(n, int(number)), back(n, -1), want(n);
        int* d = nullptr;
        HIP(hipMalloc(reinterpret_cast<void**>(&d), n * 4));
        HIP(hipMemcpyAsync(d, a.data(), n * 4, hipMemcpyHostToDevice, stream));
        for (int k = 0; k < 4; k++) kernel<<<(n + 99) / 100, 100, 0, stream>>>(d, k + 2, n);
        HIP(hipMemcpyAsync(back.data(), d, n * 4, hipMemcpyDeviceToHost, stream));
        HIP(hipStreamSynchronize(stream));
        for (int i = 0; i < n; i++) {
            want[i] = int(number);
            for (int k = 0; k < 4; k++) want[i] = want[i] * (k + 2) + i;
        }
        require_same("thread " + std::to_string(number), back, want);
        HIP(hipFree(d));
    }
    HIP(hipStreamDestroy(stream));
}
int main() {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 6; i++) threads.emplace_back(work, i);
    for (auto& thread : threads) thread.join();
    passed();
}
