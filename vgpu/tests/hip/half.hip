#include "check.h"
#include <hip/hip_fp16.h>
// Packed halves and single ones: arithmetic rounded once, conversions both ways, to the bit.
constexpr int rows = 7;
__global__ void kernel(const __half2* a, const __half2* b, const __half2* c, __half2* out, float* wide, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = __hadd2(a[i], b[i]);
    out[n + i] = __hsub2(a[i], b[i]);
    out[2 * n + i] = __hmul2(a[i], b[i]);
    out[3 * n + i] = __hfma2(a[i], b[i], c[i]);
    out[4 * n + i] = __hneg2(a[i]);
    out[5 * n + i] = __floats2half2_rn(__low2float(a[i]) * 1.5f, __high2float(b[i]) + 0.125f);
    out[6 * n + i] = __halves2half2(__hadd(__low2half(a[i]), __high2half(b[i])), __low2half(c[i]));
    wide[i] = __low2float(a[i]) + __high2float(a[i]);
}
using Half = _Float16;
static Half as_half(uint16_t bits) {
    Half value;
    memcpy(&value, &bits, 2);
    return value;
}
static uint16_t bits_of(Half value) {
    uint16_t bits;
    memcpy(&bits, &value, 2);
    return value != value ? 0x7e00 : bits;
}
// In double the exact value has room, so this rounds once but for results between halves by less than 2^-53.
static Half round_to_half(double value) {
    Half nearest = Half(float(value));
    float single = float(value);
    // The float was rounded itself: put right where that made it halfway between two halves.
    if (double(single) != value) {
        float nudged = std::nextafter(single, value > single ? INFINITY : -INFINITY);
        Half other = Half(nudged);
        if (std::fabs(double(other) - value) < std::fabs(double(nearest) - value)) nearest = other;
    }
    return nearest;
}
int main() {
    const int n = 10000;
    auto bits = [&] {
        std::vector<uint32_t> out(n);
        for (auto& x : out) x = uint32_t(random_bits()());
        return out;
    };
    auto a = bits(), b = bits(), c = bits();
    Device<uint32_t> da(a), db(b), dc(c), out(rows * n);
    Device<float> wide(n);
    auto halves = [](Device<uint32_t>& d) { return reinterpret_cast<__half2*>(d.data); };
    kernel<<<(n + 127) / 128, 128>>>(halves(da), halves(db), halves(dc), halves(out), wide.data, n);
    auto got = out.host();
    auto got_wide = wide.host();
    for (int i = 0; i < n; i++) {
        auto part = [&](const std::vector<uint32_t>& v, int side) { return as_half(uint16_t(v[i] >> 16 * side)); };
        for (int side = 0; side < 2; side++) {
            Half x = part(a, side), y = part(b, side), z = part(c, side);
            Half mixed = side ? Half(float(part(b, 1)) + 0.125f) : Half(float(part(a, 0)) * 1.5f);
            Half crossed = side ? part(c, 0) : round_to_half(double(part(a, 0)) + double(part(b, 1)));
            Half want[rows] = {round_to_half(double(x) + double(y)), round_to_half(double(x) - double(y)),
                               round_to_half(double(x) * double(y)), round_to_half(std::fma(double(x), double(y), double(z))),
                               -x, mixed, crossed};
            for (int row = 0; row < rows; row++) {
                uint16_t have = bits_of(as_half(uint16_t(got[row * n + i] >> 16 * side)));
                require(have == bits_of(want[row]), "row " + std::to_string(row) + " of " + std::to_string(a[i]) + ", " +
                                                        std::to_string(b[i]) + ", " + std::to_string(c[i]));
            }
        }
        require(same(got_wide[i], float(part(a, 0)) + float(part(a, 1))), "widened sum");
    }
    passed();
}
