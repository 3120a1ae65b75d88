void main() {
    uint i = index();
    if (i >= count) return;
    uint64_t v = (uint64_t(x[i]) << 32 | uint64_t(a)) * uint64_t(b | 1u) + uint64_t(i);
    v ^= v >> 29;
    v += v / uint64_t(x[i] | 1u);
    int64_t n = int64_t(v) >> 7;
    v ^= uint64_t(n) + uint64_t(n < int64_t(0) ? 3 : 5);
    y[i] = uint(v >> 32) ^ uint(v);
}
