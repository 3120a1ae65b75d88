shared uint s[LOCAL];
void main() {
    uint i = index(), l = lane();
    s[l] = i < count ? x[i] : i * b;
    barrier();
    if (i < count) y[i] = s[LOCAL - 1u - l] ^ s[(l * 7u + a) % LOCAL];
}
