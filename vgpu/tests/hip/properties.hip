#include "check.h"
// What the runtime says of the card, and how many blocks it thinks will fit; one card, no peers.
__global__ void kernel(float* a) {
    __shared__ float lds[1024];
    lds[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = lds[blockDim.x - 1 - threadIdx.x];
}
int main() {
    int count = 0;
    HIP(hipGetDeviceCount(&count));
    require(count == 1, "one card is there");
    hipDeviceProp_t p;
    HIP(hipGetDeviceProperties(&p, 0));
    require(std::string(p.name) == "AMD Radeon RX 5600 XT", p.name);
    require(std::string(p.gcnArchName).rfind("gfx1010", 0) == 0, p.gcnArchName);
    require(p.warpSize == 32 && p.maxThreadsPerBlock == 1024 && p.sharedMemPerBlock == 65536, "limits");
    // HIP counts workgroup processors: two compute units each.
    require(p.multiProcessorCount == 18, std::to_string(p.multiProcessorCount));
    require(p.totalGlobalMem == (6ull << 30) - (16 << 20), std::to_string(p.totalGlobalMem));
    require(p.clockRate == 1560000 && p.memoryBusWidth == 192, "clock and bus");
    require(p.l2CacheSize == 4 << 20, "L2: " + std::to_string(p.l2CacheSize));
    require(p.pciBusID == 3 && p.isLargeBar == 0 && p.cooperativeLaunch == 0, "bus, BAR, cooperative launch");
    int value = 0;
    HIP(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
    require(value == 32, "attribute");
    int peer = 1;
    require(hipDeviceCanAccessPeer(&peer, 0, 0) != hipSuccess || peer == 0, "a card that is its own peer");
    size_t left = 0, total = 0, left_then = 0;
    HIP(hipMemGetInfo(&left, &total));
    require(total == p.totalGlobalMem && left <= total && left > total / 2, "memory left");
    void* big = nullptr;
    HIP(hipMalloc(&big, 1 << 30));
    HIP(hipMemGetInfo(&left_then, &total));
    require(left - left_then >= 1 << 30, "memory left after an allocation");
    HIP(hipFree(big));
    require(hipMalloc(&big, 7ull << 30) == hipErrorOutOfMemory, "more memory than there is");
    (void)hipGetLastError();
    int blocks = 0, grid = 0, block = 0;
    HIP(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0));
    require(blocks >= 1 && blocks <= 64, "occupancy " + std::to_string(blocks));
    HIP(hipOccupancyMaxPotentialBlockSize(&grid, &block, kernel, 0, 0));
    require(block >= 64 && block <= 1024 && grid >= 1, "block size " + std::to_string(block));
    hipFuncAttributes attributes;
    HIP(hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)));
    require(attributes.sharedSizeBytes == 4096, "LDS of a kernel");
    passed();
}
