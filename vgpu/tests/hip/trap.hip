// dies: HSA_STATUS_ERROR_EXCEPTION
// also: _Z3badPi, `
#include "check.h"
// A trap ends the queue with the runtime's own message.
__global__ void bad(int* a) {
    if (a[0] != 1) __builtin_trap();
}
int main() {
    Device<int> d(64);
    bad<<<1, 1>>>(d.data);
    (void)hipDeviceSynchronize();
    printf("went on\n");
}
