void main() {
    uint i = index();
    if (i >= count) return;
    uint by = 1u + b % 31u;
    y[i] = ((y[i] << by) | (y[i] >> (32u - by))) ^ (a + i);
}
