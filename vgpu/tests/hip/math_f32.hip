#include "check.h"
// Library functions, beside the host's in double: within the errors that HIP's documentation gives for each.
constexpr int rows = 13;
__global__ void kernel(const float* a, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], p = fabsf(x) + 1e-3f;
    const float values[rows] = {sinf(x), cosf(x), tanf(x), expf(x), logf(p), powf(p, 1.7f), tanhf(x), atan2f(x, p),
                                cbrtf(x), erff(x), exp2f(x), rsqrtf(p), sqrtf(p)};
    for (int row = 0; row < rows; row++) out[row * n + i] = values[row];
}
int main() {
    const int n = 20000;
    std::vector<float> a(n);
    std::uniform_real_distribution<float> spread(-30, 30);
    for (auto& x : a) x = spread(random_bits());
    Device<float> da(a), out(rows * n);
    kernel<<<(n + 255) / 256, 256>>>(da.data, out.data, n);
    auto got = out.host();
    for (int i = 0; i < n; i++) {
        double x = a[i], p = double(std::fabs(a[i]) + 1e-3f);
        const double values[rows] = {sin(x), cos(x), tan(x), exp(x), log(p), pow(p, double(1.7f)), tanh(x), atan2(x, p),
                                     cbrt(x), erf(x), exp2(x), 1 / sqrt(p), sqrt(p)};
        for (int row = 0; row < rows; row++) {
            const float want = float(values[row]);
            const float unit = std::fmax(std::nextafter(std::fabs(want), INFINITY) - std::fabs(want), 1e-37f);
            const double error = std::fabs(double(got[row * n + i]) - values[row]) / unit;
            require(error <= 4, "function " + std::to_string(row) + " of " + std::to_string(x) + " is " +
                                    std::to_string(got[row * n + i]) + ", wanted " + std::to_string(want));
        }
    }
    passed();
}
