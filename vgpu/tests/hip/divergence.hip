#include "check.h"
// Lanes that go different ways: loops of different lengths, switches, early returns, nested breaks.
__host__ __device__ int steps(unsigned n) {
    int count = 0;
    while (n > 1 && count < 200) n = n & 1 ? 3 * n + 1 : n / 2, count++;
    return count;
}
__host__ __device__ int ways(int x) {
    if (x % 17 == 3) return -1;
    int sum = 0;
    for (int i = 0; i < (x & 15); i++) {
        switch ((x + i) % 5) {
            case 0: sum += i; break;
            case 1: continue;
            case 2: sum -= 2 * i; [[fallthrough]];
            case 3: sum ^= x; break;
            default:
                for (int k = 0;; k++) {
                    if (k > (x & 3)) break;
                    if (sum > 100000) return sum;
                    sum += k;
                }
        }
    }
    return sum;
}
__global__ void kernel(const int* a, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = steps(unsigned(a[i]) & 0xffff);
    out[n + i] = ways(a[i] & 0xfffff);
}
int main() {
    const int n = 5000;
    auto a = whole<int>(n);
    Device<int> da(a), out(2 * n);
    kernel<<<(n + 159) / 160, 160>>>(da.data, out.data, n);
    std::vector<int> want(2 * n);
    for (int i = 0; i < n; i++) want[i] = steps(unsigned(a[i]) & 0xffff), want[n + i] = ways(a[i] & 0xfffff);
    require_same("ways", out.host(), want);
    passed();
}
