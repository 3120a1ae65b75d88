void main() {
    uint i = index();
    if (i >= count) return;
    uint v = x[i], n = 0u;
    while (v > 1u && n < 20u + a % 40u) {
        v = (v & 1u) != 0u ? 3u * v + 1u : v >> 1;
        if (v % 19u == 7u) break;
        n++;
    }
    y[i] = v * 64u + n;
}
