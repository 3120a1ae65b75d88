#include "check.h"
// What needs coherence by name. `refused`: each says so; `allowed`: none does, and a kernel uses the memory.
__global__ void increment(int* a) { a[threadIdx.x] += 1; }
int main(int argc, char** argv) {
    require(argc == 2, "refused or allowed is meant");
    const bool refused = !strcmp(argv[1], "refused");
    const hipError_t want = refused ? hipErrorNotSupported : hipSuccess;
    auto same = [](const char* what, hipError_t got, hipError_t want) {
        require(got == want, std::string(what) + ": " + hipGetErrorString(got));
    };
    int* coherent = nullptr;
    for (int twice = 0; twice < 2; twice++) {
        same("coherent", hipHostMalloc(reinterpret_cast<void**>(&coherent), 64 * 4, hipHostMallocCoherent), want);
    }
    void* none = nullptr;
    same("both", hipHostMalloc(&none, 256, hipHostMallocCoherent | hipHostMallocNonCoherent),
         hipErrorInvalidValue);
    int* usual = nullptr;
    HIP(hipHostMalloc(reinterpret_cast<void**>(&usual), 64 * 4, hipHostMallocMapped));
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    // A wait that would end at once, and would not where nobody sees the host's writes.
    *usual = 5;
    same("wait of 32 bits", hipStreamWaitValue32(stream, usual, 5, hipStreamWaitValueEq, ~0u), hipErrorNotSupported);
    same("wait of 64 bits", hipStreamWaitValue64(stream, usual, 5, hipStreamWaitValueGte, ~0ull), hipErrorNotSupported);
    hipError_t advised = hipMemAdvise(usual, 64 * 4, hipMemAdviseUnsetCoarseGrain, 0);
    require((advised == hipErrorNotSupported) == refused, std::string("advice: ") + hipGetErrorString(advised));

    // Signals are HSA's own memory: waits on them stay.
    uint64_t* signal = nullptr;
    HIP(hipExtMallocWithFlags(reinterpret_cast<void**>(&signal), 8, hipMallocSignalMemory));
    HIP(hipStreamWriteValue64(stream, signal, 3, 0));
    HIP(hipStreamWaitValue64(stream, signal, 3, hipStreamWaitValueGte, ~0ull));
    HIP(hipStreamSynchronize(stream));
    HIP(hipFree(signal));

    int* use = refused ? usual : coherent;
    std::vector<int> values = whole<int>(64), want_values(64);
    std::copy(values.begin(), values.end(), use);
    for (int i = 0; i < 64; i++) want_values[i] = int(unsigned(values[i]) + 1);
    increment<<<1, 64>>>(use);
    HIP(hipDeviceSynchronize());
    require_same("memory", std::vector<int>(use, use + 64), want_values);
    passed();
}
