void main() {
    uint i = index();
    if (i >= count) return;
    uint v = x[i] * a + b;
    v ^= v << 13;
    v ^= v >> 17;
    v ^= v << 5;
    y[i] = v + gl_NumWorkGroups.x + c * gl_NumWorkGroups.z;
}
