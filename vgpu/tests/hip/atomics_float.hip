#include "check.h"
// Floating-point atomic additions of whole numbers: exact in any order. RDNA1 has none for memory: loops of compare and swap.
__global__ void kernel(const float* a, float* f, double* d, int n) {
    __shared__ float part;
    if (threadIdx.x == 0) part = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&f[i % 3], a[i]);
        atomicAdd(&d[i % 2], double(a[i]) * 0.25);
        atomicAdd(&part, a[i]);
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&f[3], part);
}
int main() {
    const int n = 3001;
    std::vector<float> a(n);
    for (auto& x : a) x = float(int(random_bits()() % 201) - 100);
    Device<float> da(a), f(std::vector<float>(4, 0));
    Device<double> d(std::vector<double>(2, 0));
    kernel<<<(n + 63) / 64, 64>>>(da.data, f.data, d.data, n);
    std::vector<float> want(4, 0);
    std::vector<double> want_d(2, 0);
    for (int i = 0; i < n; i++) want[i % 3] += a[i], want[3] += a[i], want_d[i % 2] += a[i] * 0.25;
    require_same("float", f.host(), want);
    require_same("double", d.host(), want_d);
    passed();
}
