// e^x by a driver's own exp2: it has more digits than 16-bit types hold.
FN float short_exp(float x) { return EXP2(x * 1.44269504f); }
