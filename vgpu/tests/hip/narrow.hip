#include "check.h"
// Loads and stores of 8 and 16 bits, signed and not, and fields that are not aligned.
struct __attribute__((packed)) Odd {
    int8_t a;
    int32_t b;
    uint16_t c;
    double d;
};
__global__ void kernel(const int8_t* s8, const uint8_t* u8, const int16_t* s16, const uint16_t* u16, int* out, uint8_t* o8,
                       int16_t* o16, Odd* odd, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = s8[i] * 3 + u8[i] * 5 - s16[i] * 7 + u16[i];
    o8[i] = uint8_t(s8[i] + u8[i]);
    o16[i] = int16_t(s16[i] - u16[i]);
    odd[i].a = int8_t(odd[i].a + 1);
    odd[i].b ^= s16[i];
    odd[i].c = uint16_t(odd[i].c * 3);
    odd[i].d += u8[i];
}
int main() {
    const int n = 3001;
    auto s8 = whole<int8_t>(n);
    auto u8 = whole<uint8_t>(n);
    auto s16 = whole<int16_t>(n);
    auto u16 = whole<uint16_t>(n);
    std::vector<Odd> odd(n);
    for (auto& o : odd) o = {int8_t(random_bits()()), int32_t(random_bits()()), uint16_t(random_bits()()), edgy<double>(1)[0]};
    Device<int8_t> d8(s8);
    Device<uint8_t> e8(u8), o8(n);
    Device<int16_t> d16(s16), o16(n);
    Device<uint16_t> e16(u16);
    Device<int> out(n);
    Device<Odd> dodd(odd);
    kernel<<<(n + 255) / 256, 256>>>(d8.data, e8.data, d16.data, e16.data, out.data, o8.data, o16.data, dodd.data, n);
    std::vector<int> want(n);
    std::vector<uint8_t> want8(n);
    std::vector<int16_t> want16(n);
    auto got = dodd.host();
    for (int i = 0; i < n; i++) {
        want[i] = s8[i] * 3 + u8[i] * 5 - s16[i] * 7 + u16[i];
        want8[i] = uint8_t(s8[i] + u8[i]);
        want16[i] = int16_t(s16[i] - u16[i]);
        const double d = odd[i].d + u8[i], have = got[i].d;
        require(got[i].a == int8_t(odd[i].a + 1) && got[i].b == (odd[i].b ^ s16[i]) &&
                    got[i].c == uint16_t(odd[i].c * 3) && same(have, d),
                "packed structure " + std::to_string(i));
    }
    require_same("words", out.host(), want);
    require_same("bytes", o8.host(), want8);
    require_same("halves", o16.host(), want16);
    passed();
}
