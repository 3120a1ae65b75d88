// An array that is too large for registers.
void main() {
    uint i = index();
    if (i >= count) return;
    uint t[96];
    for (uint k = 0u; k < 96u; ++k) t[k] = x[i] + k * a;
    for (uint k = 0u; k < 48u; ++k) {
        uint at = (t[k] >> (k & 7u)) % 96u;
        uint v = t[at];
        t[at] = t[k] ^ b;
        t[k] = v;
    }
    uint sum = 0u;
    for (uint k = 0u; k < 96u; ++k) sum = sum * 3u + t[k];
    y[i] = sum;
}
