#include "check.h"
// Managed memory, pinned memory and registered memory of the host: seen by both sides.
__global__ void add(int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += b[i];
}
__global__ void answer(volatile int* question, volatile int* reply) {
    while (*question == 0) {}
    *reply = *question + 1;
}
int main() {
    const int n = 10000, blocks = (n + 255) / 256;
    auto a = whole<int>(n), b = whole<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; i++) want[i] = int(unsigned(a[i]) + unsigned(b[i]));

    int *managed = nullptr, *other = nullptr;
    HIP(hipMallocManaged(reinterpret_cast<void**>(&managed), n * 4));
    HIP(hipMallocManaged(reinterpret_cast<void**>(&other), n * 4));
    std::copy(a.begin(), a.end(), managed);
    std::copy(b.begin(), b.end(), other);
    add<<<blocks, 256>>>(managed, other, n);
    HIP(hipDeviceSynchronize());
    require_same("managed", std::vector<int>(managed, managed + n), want);
    HIP(hipFree(managed));
    HIP(hipFree(other));

    int* pinned = nullptr;
    HIP(hipHostMalloc(reinterpret_cast<void**>(&pinned), n * 4, hipHostMallocMapped));
    std::copy(a.begin(), a.end(), pinned);
    int* seen = nullptr;
    HIP(hipHostGetDevicePointer(reinterpret_cast<void**>(&seen), pinned, 0));
    Device<int> db(b);
    add<<<blocks, 256>>>(seen, db.data, n);
    HIP(hipDeviceSynchronize());
    require_same("pinned", std::vector<int>(pinned, pinned + n), want);
    HIP(hipHostFree(pinned));

    // Not at the start of a page, so the card has it at another address.
    std::vector<int> own(n + 3);
    std::copy(a.begin(), a.end(), own.begin() + 3);
    HIP(hipHostRegister(own.data() + 3, n * 4, hipHostRegisterMapped));
    HIP(hipHostGetDevicePointer(reinterpret_cast<void**>(&seen), own.data() + 3, 0));
    add<<<blocks, 256>>>(seen, db.data, n);
    HIP(hipDeviceSynchronize());
    require_same("registered", std::vector<int>(own.begin() + 3, own.end()), want);
    HIP(hipHostUnregister(own.data() + 3));

    volatile int* flags = nullptr;
    HIP(hipHostMalloc(reinterpret_cast<void**>(const_cast<int**>(&flags)), 8, hipHostMallocCoherent));
    flags[0] = flags[1] = 0;
    answer<<<1, 1>>>(flags, flags + 1);
    flags[0] = 41;  // a kernel that runs sees what the host writes
    HIP(hipDeviceSynchronize());
    require(flags[1] == 42, "a kernel that asks the host got " + std::to_string(flags[1]));
    HIP(hipHostFree(const_cast<int*>(flags)));
    passed();
}
