#include "check.h"
#include <chrono>
#include <sys/resource.h>
#include <thread>
// A card that has nothing to do costs nothing; and it wakes when it is called, again and again.
__global__ void kernel(int* a) { a[threadIdx.x] += 1; }
static double processor_seconds() {
    rusage used;
    getrusage(RUSAGE_SELF, &used);
    auto seconds = [](timeval t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}
int main() {
    Device<int> d(std::vector<int>(32, 0));
    auto launch = [&] {
        kernel<<<1, 32>>>(d.data);
        HIP(hipDeviceSynchronize());
    };
    launch();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    const double used = processor_seconds() - before;
    require(used < 0.01, "two idle seconds took " + std::to_string(used) + " s of a processor");
    for (int i = 0; i < 40; i++) {  // pauses around those after which the card goes to sleep
        std::this_thread::sleep_for(std::chrono::microseconds(100 * i));
        launch();
    }
    require_same("launches", d.host(), std::vector<int>(32, 41));
    printf("idle: %.6f s of a processor in 2 s\n", used);
    passed();
}
