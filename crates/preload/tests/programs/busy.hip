#include "check.h"
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
// Three processes, two of them forked before any use of the card, with four threads each that allocate, use, register and free.
__global__ void add(unsigned* a, unsigned value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += value;
}
static void work(unsigned id) {
    std::mt19937 random(seed() + id);
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    for (int round = 0; round < 12; round++) {
        const int n = 1 + random() % 3000;
        std::vector<unsigned> own(n);
        unsigned* a = own.data();
        const unsigned kind = random() % 3, value = random();
        if (kind == 0) HIP(hipHostMalloc(reinterpret_cast<void**>(&a), n * 4, random() % 2 ? 0 : hipHostMallocMapped));
        if (kind == 1) HIP(hipMallocManaged(reinterpret_cast<void**>(&a), n * 4));
        if (kind == 2) HIP(hipHostRegister(a, n * 4, 0));
        for (int i = 0; i < n; i++) a[i] = i * 7;
        void* seen = nullptr;
        HIP(hipHostGetDevicePointer(&seen, a, 0));
        add<<<(n + 63) / 64, 64, 0, stream>>>(static_cast<unsigned*>(seen), value, n);
        HIP(hipStreamSynchronize(stream));
        for (int i = 0; i < n; i++) require(a[i] == i * 7 + value, "element " + std::to_string(i));
        if (kind == 0) HIP(hipHostFree(a));
        if (kind == 1) HIP(hipFree(a));
        if (kind == 2) HIP(hipHostUnregister(a));
    }
    HIP(hipStreamDestroy(stream));
}
static void process(unsigned id) {
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; thread++) threads.emplace_back(work, id * 100 + thread);
    for (auto& thread : threads) thread.join();
}
int main() {
    seed();
    pid_t children[2];
    for (unsigned id = 0; id < 2; id++) {
        children[id] = fork();
        require(children[id] >= 0, "fork");
        if (children[id] == 0) {
            alarm(100);
            process(id + 1);
            _Exit(0);
        }
    }
    process(0);
    for (pid_t child : children) {
        int status = -1;
        require(waitpid(child, &status, 0) == child && status == 0, "a child ended with " + std::to_string(status));
    }
    passed();
}
