#include "check.h"
#include <algorithm>
// Integer atomics on global memory and LDS, 32 and 64 bits: results that do not depend on the order, old values that are
// all different where they must be.
constexpr int n = 4096;
__global__ void kernel(const unsigned* a, unsigned* r, unsigned long long* q, unsigned* old, int* s) {
    __shared__ unsigned lds[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x < 4) lds[threadIdx.x] = 0;
    __syncthreads();
    unsigned x = a[i];
    old[i] = atomicAdd(&r[0], 1u);
    atomicAdd(&r[1], x);
    atomicSub(&r[2], x);
    atomicMin(&r[3], x);
    atomicMax(&r[4], x);
    atomicAnd(&r[5], x | 0xf);
    atomicOr(&r[6], x & 0xff);
    atomicXor(&r[7], x);
    atomicInc(&r[8], 99);
    atomicDec(&r[9], 99);
    atomicMin(&s[0], int(x));
    atomicMax(&s[1], int(x));
    atomicAdd(&q[0], (unsigned long long)x << 20);
    atomicMax(&q[1], (unsigned long long)x * x);
    for (;;) {  // a sum by compare and swap
        unsigned long long seen = q[2];
        if (atomicCAS(&q[2], seen, seen + x) == seen) break;
    }
    atomicExch(&r[10], x);
    atomicAdd(&lds[0], x);
    atomicMax(&lds[1], x);
    atomicXor(&lds[2], x);
    unsigned position = atomicAdd(&lds[3], 1u);
    __syncthreads();
    if (position == 0) {
        atomicAdd(&r[11], lds[0]);
        atomicMax(&r[12], lds[1]);
        atomicXor(&r[13], lds[2]);
        atomicAdd(&r[14], lds[3]);
    }
}
int main() {
    auto a = whole<unsigned>(n);
    Device<unsigned> da(a), r(std::vector<unsigned>(15, 0)), old(n);
    Device<unsigned long long> q(std::vector<unsigned long long>(3, 0));
    Device<int> s(std::vector<int>(2, 0));
    unsigned ones = ~0u;
    for (int at : {3, 5}) HIP(hipMemcpy(r.data + at, &ones, 4, hipMemcpyHostToDevice));
    kernel<<<n / 128, 128>>>(da.data, r.data, q.data, old.data, s.data);
    std::vector<unsigned> want(15, 0);
    std::vector<unsigned long long> want_q(3, 0);
    std::vector<int> want_s(2, 0);
    want[3] = want[5] = ~0u;
    for (unsigned x : a) {
        want[0]++, want[1] += x, want[2] -= x;
        want[3] = std::min(want[3], x), want[4] = std::max(want[4], x);
        want[5] &= x | 0xf, want[6] |= x & 0xff, want[7] ^= x;
        want[8] = want[8] >= 99 ? 0 : want[8] + 1;
        want[9] = want[9] == 0 || want[9] > 99 ? 99 : want[9] - 1;
        want_s[0] = std::min(want_s[0], int(x)), want_s[1] = std::max(want_s[1], int(x));
        want_q[0] += (unsigned long long)x << 20;
        want_q[1] = std::max(want_q[1], (unsigned long long)(x) * x);
        want_q[2] += x;
    }
    want[11] = want[1], want[12] = want[4], want[13] = want[7], want[14] = n;
    auto got = r.host();
    require(std::find(a.begin(), a.end(), got[10]) != a.end(), "an exchanged value that nobody wrote");
    want[10] = got[10];
    require_same("32 bits", got, want);
    require_same("64 bits", q.host(), want_q);
    require_same("signed", s.host(), want_s);
    auto tickets = old.host();
    std::sort(tickets.begin(), tickets.end());
    for (int i = 0; i < n; i++) require(tickets[i] == unsigned(i), "old values of an addition repeat");
    passed();
}
