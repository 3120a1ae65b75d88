shared uint s[LOCAL];
void main() {
    uint i = index(), l = lane();
    s[l] = i < count ? x[i] * a : b;
    barrier();
    for (uint left = LOCAL; left > 1u;) {
        uint half_of_it = (left + 1u) / 2u;
        if (l + half_of_it < left) s[l] += s[l + half_of_it];
        barrier();
        left = half_of_it;
    }
    if (l == 0u && group() < uint(y.length())) y[group()] = s[0];
}
