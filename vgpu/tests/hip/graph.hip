#include "check.h"
// A captured graph of copies, fills and kernels, launched again and again.
__global__ void step(int* a, const int* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = a[i] * 5 + b[i];
}
int main() {
    const int n = 3000, launches = 6;
    auto b = whole<int>(n);
    Device<int> da(n), db(n);
    std::vector<int> out(n);
    hipStream_t stream;
    HIP(hipStreamCreate(&stream));
    HIP(hipMemset(da.data, 0, n * 4));
    hipGraph_t graph;
    hipGraphExec_t ready;
    HIP(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
    HIP(hipMemcpyAsync(db.data, b.data(), n * 4, hipMemcpyHostToDevice, stream));
    step<<<(n + 127) / 128, 128, 0, stream>>>(da.data, db.data, n);
    step<<<(n + 127) / 128, 128, 0, stream>>>(da.data, db.data, n);
    HIP(hipMemcpyAsync(out.data(), da.data, n * 4, hipMemcpyDeviceToHost, stream));
    HIP(hipStreamEndCapture(stream, &graph));
    HIP(hipGraphInstantiate(&ready, graph, nullptr, nullptr, 0));
    std::vector<int> want(n, 0);
    for (int i = 0; i < launches; i++) {
        HIP(hipGraphLaunch(ready, stream));
        HIP(hipStreamSynchronize(stream));
        for (int round = 0; round < 2; round++)
            for (int k = 0; k < n; k++) want[k] = int(unsigned(want[k]) * 5 + unsigned(b[k]));
        require_same("launch " + std::to_string(i), out, want);
    }
    HIP(hipGraphExecDestroy(ready));
    HIP(hipGraphDestroy(graph));
    HIP(hipStreamDestroy(stream));
    passed();
}
