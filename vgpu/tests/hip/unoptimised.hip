// flags: -O0
#include "check.h"
// Without optimisation everything goes through scratch, flat addresses and calls.
struct Pair {
    int first;
    double second;
};
__host__ __device__ Pair mix(Pair p, int x) {
    Pair out = p;
    for (int i = 0; i < x % 7; i++) out.first += i * p.first, out.second = out.second * 0.5 + p.first;
    return out;
}
__global__ void kernel(const int* a, Pair* out, int n) {
    __shared__ int part[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? a[i] & 0xff : 0;
    __syncthreads();
    if (i < n) {
        Pair p = {part[63 - threadIdx.x], 0.25 * i};
        out[i] = mix(p, a[i] & 0xff);
    }
}
int main() {
    const int n = 64 * 5 + 9;
    auto a = whole<int>(n);
    Device<int> da(a);
    Device<Pair> out(n);
    kernel<<<6, 64>>>(da.data, out.data, n);
    auto got = out.host();
    for (int i = 0; i < n; i++) {
        int other = i / 64 * 64 + 63 - i % 64;
        Pair want = mix({other < n ? a[other] & 0xff : 0, 0.25 * i}, a[i] & 0xff);
        require(got[i].first == want.first && same(got[i].second, want.second), "row " + std::to_string(i));
    }
    passed();
}
