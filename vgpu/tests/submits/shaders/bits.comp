void main() {
    uint i = index();
    if (i >= count) return;
    uint v = x[i];
    uint r = bitfieldExtract(v, int(a % 16u), int(1u + b % 16u));
    r += uint(bitfieldExtract(int(v), int(b % 16u), int(1u + a % 16u)));
    r += bitfieldInsert(v, b, int(a % 16u), int(b % 17u));
    r ^= uint(bitCount(v)) << 3;
    r += uint(findLSB(v)) + uint(findMSB(int(v))) * 3u + uint(findMSB(v)) * 5u;
    uint high, low, carry, borrow;
    umulExtended(v, a, high, low);
    r ^= high + low;
    int shigh, slow;
    imulExtended(int(v), int(a), shigh, slow);
    r += uint(shigh);
    r += uaddCarry(v, b, carry) ^ carry;
    r += usubBorrow(v, b, borrow) ^ borrow;
    r ^= uint(int(v) / int((a & 0x7fffu) | 1u));
    r += v % (b | 1u) + bitfieldReverse(v) + uint(abs(int(v >> 1)) >> (a % 31u)) + uint(min(int(v), int(a)));
    y[i] = r;
}
