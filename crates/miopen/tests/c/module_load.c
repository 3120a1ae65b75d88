// How long HIP itself takes to load modules: put before it by WAVE32_HIP_LIBRARY and LD_PRELOAD, see timing.c.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

double wave32_module_load; // Microseconds so far.

int hipModuleLoadData(void **module, const void *image) {
    int (*theirs)(void **, const void *) = (int (*)(void **, const void *))dlsym(RTLD_NEXT, "hipModuleLoadData");
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    int result = theirs(module, image);
    clock_gettime(CLOCK_MONOTONIC, &b);
    wave32_module_load += (b.tv_sec - a.tv_sec) * 1e6 + (b.tv_nsec - a.tv_nsec) * 1e-3;
    return result;
}
