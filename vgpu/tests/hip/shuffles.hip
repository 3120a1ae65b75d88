#include "check.h"
// Shuffles of all kinds and widths, ballots and votes over waves of 32, partly turned off.
constexpr int rows = 9;
__global__ void kernel(const int* a, int* out, unsigned long long* masks, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = a[i];
    out[i] = __shfl(x, (i * 7) & 31);
    out[n + i] = __shfl_up(x, 3);
    out[2 * n + i] = __shfl_down(x, 5);
    out[3 * n + i] = __shfl_xor(x, 9);
    out[4 * n + i] = __shfl(x, 2, 8);
    out[5 * n + i] = __shfl_up(x, 1, 4);
    out[6 * n + i] = __any(x > 1000) * 2 + __all(x > -3);
    masks[i] = __ballot(x & 1);
    int sum = x;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor(sum, step);
    out[7 * n + i] = sum;
    if (x & 1) out[8 * n + i] = __popcll(__ballot(1));
    else out[8 * n + i] = -1;
}
int main() {
    const int n = 32 * 24;
    auto a = whole<int>(n);
    Device<int> da(a), out(rows * n);
    Device<unsigned long long> masks(n);
    kernel<<<n / 96, 96>>>(da.data, out.data, masks.data, n);
    std::vector<int> want(rows * n);
    std::vector<unsigned long long> want_masks(n);
    for (int i = 0; i < n; i++) {
        const int lane = i % 32, base = i - lane;
        unsigned odd = 0, sum = 0;
        bool any = false, all = true;
        for (int k = 0; k < 32; k++) {
            odd |= unsigned(a[base + k] & 1) << k;
            sum += unsigned(a[base + k]);
            any |= a[base + k] > 1000;
            all &= a[base + k] > -3;
        }
        want[i] = a[base + (i * 7 & 31)];
        want[n + i] = lane >= 3 ? a[i - 3] : a[i];
        want[2 * n + i] = lane + 5 < 32 ? a[i + 5] : a[i];
        want[3 * n + i] = a[base + (lane ^ 9)];
        want[4 * n + i] = a[base + lane / 8 * 8 + 2];
        want[5 * n + i] = lane % 4 >= 1 ? a[i - 1] : a[i];
        want[6 * n + i] = any * 2 + all;
        want[7 * n + i] = int(sum);
        want[8 * n + i] = a[i] & 1 ? __builtin_popcount(odd) : -1;
        want_masks[i] = odd;
    }
    require_same("shuffles", out.host(), want);
    require_same("ballots", masks.host(), want_masks);
    passed();
}
