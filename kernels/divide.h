// Division of indices without the hardware's slow one.

// i / d for i below 2^31, with wave32_ops' numbers for d.
FN uint quotient(uint i, uint magic, uint shift) { return uint((LONG(i) * LONG(magic)) >> int(shift)); }
// a / b for 0 <= a below 2^20: half of the smallest step away from a whole number, f32 errors do not reach the next.
FN int small_quotient(int a, int b) { return int((float(a) + 0.5f) / float(b)); }
