// dies: Memory access fault by GPU
// also: where no memory is allocated for it
// also: _Z3badPi, `
#include "check.h"
// A store where there is no memory ends the process with the runtime's own message.
__global__ void bad(int* a) { a[1ull << 30] = 1; }
int main() {
    Device<int> d(64);
    bad<<<1, 1>>>(d.data);
    (void)hipDeviceSynchronize();
    printf("went on\n");
}
