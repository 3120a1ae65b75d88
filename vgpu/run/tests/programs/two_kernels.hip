// Launches a copy of 8 MiB three times and a chain of FMAs twice; with an argument it prints the copies' ms, by events.
#include <hip/hip_runtime.h>
#include <cstdio>

__global__ void copy_8_mib(const float4* from, float4* to) {
    unsigned i = blockIdx.x * 256 + threadIdx.x;
    to[i] = from[i];
}

__global__ void fma_chain(float* out, float a, float b) {
    float x = threadIdx.x;
    for (int i = 0; i < 64; ++i) {
#pragma unroll
        for (int j = 0; j < 16; ++j) x = fmaf(x, a, b);
    }
    out[blockIdx.x * 256 + threadIdx.x] = x;
}

int main(int count, char**) {
    const size_t bytes = 8 << 20;
    void *from, *to;
    if (hipMalloc(&from, bytes) || hipMalloc(&to, bytes) || hipMemset(from, 1, bytes)) return 1;
    hipEvent_t start, end;
    if (hipEventCreate(&start) || hipEventCreate(&end) || hipEventRecord(start)) return 1;
    for (int i = 0; i < 3; ++i) copy_8_mib<<<bytes / 16 / 256, 256>>>((float4*)from, (float4*)to);
    if (hipEventRecord(end)) return 1;
    for (int i = 0; i < 2; ++i) fma_chain<<<18, 256>>>((float*)to, 0.5f, 1.0f);
    if (hipDeviceSynchronize() || hipFree(from) || hipFree(to)) return 1;
    float ms = 0;
    if (hipEventElapsedTime(&ms, start, end)) return 1;
    if (count > 1) fprintf(stderr, "copies %f ms\n", ms);
    puts("passed");
}
