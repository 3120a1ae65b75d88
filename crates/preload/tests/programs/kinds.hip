// flags: -Wno-deprecated-declarations
#include "check.h"
#include <functional>
#include <map>
// One kind of memory that host and card share, by its name: a kernel adds to it, and HIP says what it was asked for.
__global__ void add(int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += b[i];
}
int main(int argc, char** argv) {
    require(argc == 2, "a kind is meant");
    const int n = 1000 + random_bits()() % 5000;
    const size_t bytes = n * 4;
    std::vector<int> own(n + 3);
    auto by = [&](unsigned flags, void** at) {
        HIP(hipHostMalloc(at, bytes, flags));
        unsigned told = 77;
        HIP(hipHostGetFlags(&told, *at));
        // HIP 5.2.3 keeps 16 bits of them.
        require((told & 7) == (flags & 7) && (told >> 16 == 0 || told == flags), "told flags " + std::to_string(told));
    };
    const std::map<std::string, std::function<void(void**)>> kinds = {
        {"default", [&](void** at) { by(hipHostMallocDefault, at); }},
        {"mapped", [&](void** at) { by(hipHostMallocMapped, at); }},
        {"portable", [&](void** at) { by(hipHostMallocPortable, at); }},
        {"combined", [&](void** at) { by(hipHostMallocWriteCombined | hipHostMallocMapped, at); }},
        {"numa", [&](void** at) { by(hipHostMallocNumaUser, at); }},
        {"noncoherent", [&](void** at) { by(hipHostMallocNonCoherent, at); }},
        {"malloc-host", [&](void** at) { HIP(hipMallocHost(at, bytes)); }},
        {"mem-alloc-host", [&](void** at) { HIP(hipMemAllocHost(at, bytes)); }},
        {"managed", [&](void** at) { HIP(hipMallocManaged(at, bytes)); }},
        {"registered", [&](void** at) {
             HIP(hipHostRegister(own.data() + 3, bytes, hipHostRegisterDefault));
             *at = own.data() + 3;
         }},
    };
    const auto kind = kinds.find(argv[1]);
    require(kind != kinds.end(), "no such kind");
    void* at = nullptr;
    kind->second(&at);
    int* a = static_cast<int*>(at);

    auto first = whole<int>(n), second = whole<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; i++) want[i] = int(unsigned(first[i]) + unsigned(second[i]));
    std::copy(first.begin(), first.end(), a);
    void* seen = nullptr;
    HIP(hipHostGetDevicePointer(&seen, a, 0));
    Device<int> b(second);
    add<<<(n + 255) / 256, 256>>>(static_cast<int*>(seen), b.data, n);
    HIP(hipDeviceSynchronize());
    require_same(argv[1], std::vector<int>(a, a + n), want);
    passed();
}
