// Logarithms of base 2 and natural ones.
#define LOG2_E 1.44269504089f
#define LN_2 0.69314718056f
