#include "check.h"
// Addition, multiplication, fused multiply-add, division, square root, rounding to whole numbers: to the bit.
__global__ void kernel(const double* a, const double* b, const double* c, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i], y = b[i], z = c[i];
    out[i] = x + y;
    out[n + i] = x * y;
    out[2 * n + i] = __builtin_fma(x, y, z);
    out[3 * n + i] = x / y;
    out[4 * n + i] = __builtin_sqrt(x);
    out[5 * n + i] = __builtin_floor(x);
    out[6 * n + i] = __builtin_rint(x);
    out[7 * n + i] = x - y;
    out[8 * n + i] = __builtin_trunc(y);
}
int main() {
    const int n = 20000;
    auto a = edgy<double>(n), b = edgy<double>(n), c = edgy<double>(n);
    Device<double> da(a), db(b), dc(c), out(9 * n);
    kernel<<<(n + 255) / 256, 256>>>(da.data, db.data, dc.data, out.data, n);
    HIP(hipDeviceSynchronize());
    std::vector<double> want(9 * n);
    for (int i = 0; i < n; i++) {
        const double rows[] = {a[i] + b[i], a[i] * b[i], std::fma(a[i], b[i], c[i]), a[i] / b[i], std::sqrt(a[i]),
                              std::floor(a[i]), std::rint(a[i]), a[i] - b[i], std::trunc(b[i])};
        for (int row = 0; row < 9; row++) want[row * n + i] = rows[row];
    }
    require_same("result", out.host(), want);
    passed();
}
