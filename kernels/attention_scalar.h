// What the kernels of attention without local memory share: D / 4 vectors of a row in registers, others' rows as scalars.
#define PARTS (D / 4)
// Rows side by side: sums that do not wait for each other. More would need more scalar registers than there are.
#define BESIDE 2
// Vectors of four of what is read as scalars at most: so that no offset overflows, and compilers can put parts of it into loads.
#define MAX_VECTORS 0x7ffffffu
