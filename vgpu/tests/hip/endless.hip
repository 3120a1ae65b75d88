// dies: HSA_STATUS_ERROR_EXCEPTION
// also: deadline
// options: --deadline 1
#include "check.h"
// A kernel that never ends is stopped at its deadline.
__global__ void bad(volatile int* a) {
    while (a[0] != 1) {}
}
int main() {
    Device<int> d(64);
    bad<<<1, 1>>>(d.data);
    (void)hipDeviceSynchronize();
    printf("went on\n");
}
