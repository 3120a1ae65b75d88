void main() {
    uint i = index();
    if (i < count) y[i] = x[(z[i] ^ a) % uint(x.length())] + b;
}
