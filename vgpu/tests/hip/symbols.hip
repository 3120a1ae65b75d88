#include "check.h"
// Constant and device variables: written and read by name, by address, and by kernels.
__constant__ float weights[64];
__device__ int counter = 41;
__device__ int table[64] = {7, 8, 9};
__global__ void kernel(float* out) {
    out[threadIdx.x] = weights[threadIdx.x] * 2 + table[threadIdx.x];
    if (threadIdx.x == 0) counter++;
}
int main() {
    std::vector<float> w = edgy<float>(64);
    HIP(hipMemcpyToSymbol(HIP_SYMBOL(weights), w.data(), sizeof(float) * 64));
    int one = 1000;
    HIP(hipMemcpyToSymbol(HIP_SYMBOL(table), &one, 4, 4 * 5));
    void* address = nullptr;
    size_t bytes = 0;
    HIP(hipGetSymbolAddress(&address, HIP_SYMBOL(table)));
    HIP(hipGetSymbolSize(&bytes, HIP_SYMBOL(table)));
    require(bytes == 256, "size of a variable");
    int two = 2000;
    HIP(hipMemcpy(static_cast<int*>(address) + 6, &two, 4, hipMemcpyHostToDevice));
    Device<float> out(64);
    kernel<<<1, 64>>>(out.data);
    int table_want[64] = {7, 8, 9, 0, 0, 1000, 2000}, count = 0;
    std::vector<float> want(64);
    for (int i = 0; i < 64; i++) want[i] = w[i] * 2 + table_want[i];
    require_same("values", out.host(), want);
    HIP(hipMemcpyFromSymbol(&count, HIP_SYMBOL(counter), 4));
    require(count == 42, "the counter is " + std::to_string(count));
    passed();
}
