#include "check.h"
// Blocks and grids of sizes that fill no wave, in one to three dimensions; who is not there writes nothing.
__global__ void kernel(unsigned* out, unsigned width, unsigned height) {
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z;
    out[(z * height + y) * width + x] = x | y << 10 | z << 20;
}
int main() {
    const dim3 blocks[] = {{1, 1, 1}, {7, 1, 1}, {33, 1, 1}, {100, 1, 1}, {1000, 1, 1}, {5, 3, 1}, {3, 5, 7}, {1, 33, 2}};
    const dim3 grids[] = {{1, 1, 1}, {3, 1, 1}, {2, 3, 1}, {2, 1, 3}};
    for (dim3 block : blocks)
        for (dim3 grid : grids) {
            unsigned w = block.x * grid.x, h = block.y * grid.y, d = block.z * grid.z;
            Device<unsigned> out(w * h * d);
            kernel<<<grid, block>>>(out.data, w, h);
            HIP(hipGetLastError());
            std::vector<unsigned> want(w * h * d);
            for (unsigned z = 0; z < d; z++)
                for (unsigned y = 0; y < h; y++)
                    for (unsigned x = 0; x < w; x++) want[(z * h + y) * w + x] = x | y << 10 | z << 20;
            require_same(std::to_string(w) + "x" + std::to_string(h) + "x" + std::to_string(d), out.host(), want);
        }
    passed();
}
