#include "check.h"
// A tree sum in static LDS, block after block, and a transpose through padded LDS.
__global__ void sum(const int* a, int* out, int n) {
    __shared__ int part[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? a[i] : 0;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (int(threadIdx.x) < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
__global__ void transpose(const float* a, float* out, int width, int height) {
    __shared__ float tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = a[y * width + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x, y = blockIdx.x * 16 + threadIdx.y;
    if (x < height && y < width) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}
int main() {
    const int n = 10007, blocks = (n + 255) / 256;
    auto a = whole<int>(n);
    Device<int> da(a), out(blocks);
    sum<<<blocks, 256>>>(da.data, out.data, n);
    std::vector<int> want(blocks, 0);
    for (int i = 0; i < n; i++) want[i / 256] = int(unsigned(want[i / 256]) + unsigned(a[i]));
    require_same("sums", out.host(), want);

    const int width = 61, height = 45;
    auto b = edgy<float>(width * height);
    Device<float> db(b), turned(width * height);
    transpose<<<dim3((width + 15) / 16, (height + 15) / 16), dim3(16, 16)>>>(db.data, turned.data, width, height);
    std::vector<float> want_turned(width * height);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) want_turned[x * height + y] = b[y * width + x];
    require_same("transpose", turned.host(), want_turned);
    passed();
}
