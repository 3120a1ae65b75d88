#include "check.h"
// Addition, multiplication, fused multiply-add, division, rounding to whole numbers: to the bit. (Square roots: math_f32.)
__global__ void kernel(const float* a, const float* b, const float* c, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i], z = c[i];
    out[i] = x + y;
    out[n + i] = x * y;
    out[2 * n + i] = __builtin_fmaf(x, y, z);
    out[3 * n + i] = x / y;
    out[4 * n + i] = __builtin_ceilf(x);
    out[5 * n + i] = __builtin_floorf(x);
    out[6 * n + i] = __builtin_rintf(x);
    out[7 * n + i] = x - y;
    out[8 * n + i] = __builtin_truncf(y);
}
int main() {
    const int n = 20000;
    auto a = edgy<float>(n), b = edgy<float>(n), c = edgy<float>(n);
    Device<float> da(a), db(b), dc(c), out(9 * n);
    kernel<<<(n + 255) / 256, 256>>>(da.data, db.data, dc.data, out.data, n);
    HIP(hipDeviceSynchronize());
    std::vector<float> want(9 * n);
    for (int i = 0; i < n; i++) {
        const float rows[] = {a[i] + b[i], a[i] * b[i], std::fma(a[i], b[i], c[i]), a[i] / b[i], std::ceil(a[i]),
                              std::floor(a[i]), std::rint(a[i]), a[i] - b[i], std::trunc(b[i])};
        for (int row = 0; row < 9; row++) want[row * n + i] = rows[row];
    }
    require_same("result", out.host(), want);
    passed();
}
