void main() {
    uint i = index();
    if (i >= count) return;
    uint at = (x[i] ^ a) % uint(y.length());
    uint v = x[i] * b;
    switch (op) {
    case 0u: atomicAdd(y[at], v); break;
    case 1u: atomicMax(y[at], v); break;
    case 2u: atomicMin(y[at], v); break;
    case 3u: atomicXor(y[at], v); break;
    case 4u: atomicOr(y[at], v & 0x11111111u); break;
    default: atomicAnd(y[at], v | 0xeeeeeeeeu); break;
    }
}
