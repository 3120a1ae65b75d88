// expect: lane 0 of block 1: 2.500000, -7, word
// expect: lane 2 of block 0: 1.500000, -3, word
#include "check.h"
// printf in a kernel: a hidden argument, a message to the host, and the host's answer.
__global__ void kernel() {
    if (threadIdx.x % 2 == 0)
        printf("lane %d of block %d: %f, %d, %s\n", int(threadIdx.x), int(blockIdx.x), 1.5 + blockIdx.x,
               -3 - 4 * int(blockIdx.x), "word");
}
int main() {
    kernel<<<2, 4>>>();
    HIP(hipDeviceSynchronize());
    passed();
}
