#include "check.h"
#include <atomic>
// Streams that run beside each other, events between them, times, and functions of the host in a stream's order.
__global__ void add(int* a, int by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = a[i] * 3 + by;
}
int main() {
    const int n = 4000, links = 12;
    auto a = whole<int>(n);
    Device<int> d(a);
    hipStream_t streams[3];
    for (auto& stream : streams) HIP(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    hipEvent_t first, last;
    HIP(hipEventCreate(&first));
    HIP(hipEventCreate(&last));
    static std::atomic<int> called{0};
    HIP(hipEventRecord(first, streams[0]));
    hipEvent_t before = first;
    std::vector<hipEvent_t> events;
    for (int i = 0; i < links; i++) {  // each link waits for the one before, in another stream
        hipStream_t stream = streams[i % 3];
        HIP(hipStreamWaitEvent(stream, before, 0));
        add<<<(n + 255) / 256, 256, 0, stream>>>(d.data, i, n);
        hipEvent_t event;
        HIP(hipEventCreateWithFlags(&event, hipEventDisableTiming));
        HIP(hipEventRecord(event, stream));
        events.push_back(before = event);
    }
    HIP(hipStreamWaitEvent(streams[0], before, 0));
    HIP(hipStreamAddCallback(streams[0], [](hipStream_t, hipError_t, void* data) { called += *static_cast<int*>(data); },
                             const_cast<int*>(&links), 0));
    HIP(hipEventRecord(last, streams[0]));
    HIP(hipEventSynchronize(last));
    HIP(hipStreamSynchronize(streams[0]));
    require(called == links, "the host's function was not called once, in order");
    float milliseconds = -1;
    HIP(hipEventElapsedTime(&milliseconds, first, last));
    require(milliseconds > 0 && milliseconds < 60000, "an elapsed time of " + std::to_string(milliseconds) + " ms");
    HIP(hipEventQuery(last));
    std::vector<int> want = a;
    for (int i = 0; i < links; i++)
        for (auto& x : want) x = int(unsigned(x) * 3 + unsigned(i));
    require_same("chain", d.host(), want);
    for (auto event : events) HIP(hipEventDestroy(event));
    HIP(hipEventDestroy(first));
    HIP(hipEventDestroy(last));
    for (auto stream : streams) HIP(hipStreamDestroy(stream));
    passed();
}
