#include "check.h"
// Blocks that wait for one another, both for earlier and for later ones: all resident, they must get their turns.
__global__ void chain(int* flags, int* out, int blocks, int step) {
    const int me = blockIdx.x, before = me + step;
    if (threadIdx.x == 0) {
        int value = 0;
        if (before >= 0 && before < blocks) {
            while (__hip_atomic_load(&flags[before], __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) == 0) {}
            value = out[before];
        }
        out[me] = value + me + 1;
        __hip_atomic_store(&flags[me], 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    }
}
__global__ void barrier(unsigned* arrived, unsigned* seen, int blocks, int rounds) {
    for (int round = 1; round <= rounds; round++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            atomicAdd(arrived, 1u);
            while (__hip_atomic_load(arrived, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) < unsigned(round * blocks)) {}
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) seen[blockIdx.x] = *arrived;
}
int main() {
    const int blocks = 40;
    for (int step : {-1, 1}) {
        Device<int> flags(std::vector<int>(blocks, 0)), out(blocks);
        chain<<<blocks, 64>>>(flags.data, out.data, blocks, step);
        std::vector<int> want(blocks);
        for (int k = 0, sum = 0; k < blocks; k++) {
            int me = step < 0 ? k : blocks - 1 - k;
            want[me] = sum += me + 1;
        }
        require_same(step < 0 ? "after the one before" : "after the one behind", out.host(), want);
    }
    Device<unsigned> arrived(std::vector<unsigned>(1, 0)), seen(blocks);
    barrier<<<blocks, 96>>>(arrived.data, seen.data, blocks, 5);
    require_same("barriers of the grid", seen.host(), std::vector<unsigned>(blocks, blocks * 5));
    passed();
}
