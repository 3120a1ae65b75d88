#include "check.h"
// 32- and 64-bit integers: products, high halves, quotients, remainders, shifts, bit counts.
template <class S, class U> __host__ __device__ void all(S x, S y, S* out, size_t step) {
    U ux = U(x), uy = U(y);
    const unsigned shift = unsigned(uy % (8 * sizeof(U)));
    *out = x * y, out += step;
    // The one quotient that does not fit is left out, and division by zero.
    const bool fits = y != 0 && !(y == -1 && x == std::numeric_limits<S>::min());
    *out = fits ? x / y : 0, out += step;
    *out = fits ? x % y : 0, out += step;
    *out = y ? S(ux / uy) : 0, out += step;
    *out = y ? S(ux % uy) : 0, out += step;
    *out = x >> shift, out += step;
    *out = S(ux >> shift), out += step;
    *out = S(ux << shift), out += step;
    *out = S(__builtin_popcountll(ux)), out += step;
    *out = S(x ? __builtin_ctzll(ux) : 64), out += step;
    *out = S(x ? __builtin_clzll(ux) : 64), out += step;
    *out = x < y ? x : y, out += step;
    *out = S(ux < uy), out += step;
    *out = x - y;
}
constexpr int rows = 14;
__global__ void kernel32(const int32_t* a, const int32_t* b, int32_t* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) all<int32_t, uint32_t>(a[i], b[i], out + i, n);
}
__global__ void kernel64(const int64_t* a, const int64_t* b, int64_t* out, uint64_t* high, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    all<int64_t, uint64_t>(a[i], b[i], out + i, n);
    high[i] = __umul64hi(a[i], b[i]);
}
int main() {
    const int n = 5000;
    auto a = whole<int32_t>(n), b = whole<int32_t>(n);
    Device<int32_t> da(a), db(b), out(rows * n);
    kernel32<<<(n + 127) / 128, 128>>>(da.data, db.data, out.data, n);
    std::vector<int32_t> want(rows * n);
    for (int i = 0; i < n; i++) all<int32_t, uint32_t>(a[i], b[i], &want[i], n);
    require_same("32 bits", out.host(), want);

    auto c = whole<int64_t>(n), d = whole<int64_t>(n);
    Device<int64_t> dc(c), dd(d), out64(rows * n);
    Device<uint64_t> high(n);
    kernel64<<<(n + 127) / 128, 128>>>(dc.data, dd.data, out64.data, high.data, n);
    std::vector<int64_t> want64(rows * n);
    std::vector<uint64_t> want_high(n);
    for (int i = 0; i < n; i++) {
        all<int64_t, uint64_t>(c[i], d[i], &want64[i], n);
        want_high[i] = uint64_t((unsigned __int128)(uint64_t(c[i])) * uint64_t(d[i]) >> 64);
    }
    require_same("64 bits", out64.host(), want64);
    require_same("high halves", high.host(), want_high);
    passed();
}
