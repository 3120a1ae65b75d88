/* A HIP runtime of host memory: what the probe asks of libamdhip64, for tests without a card. As the real one does, it
   keeps a thread that waits for ever. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void *wait_for_events(void *nothing) {
    for (;;) pause();
    return nothing;
}
__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_events, NULL);
}

int hipGetDeviceCount(int *count) {
    *count = getenv("STANDIN_NO_DEVICE") ? 0 : 1;
    return *count ? 0 : 100;
}
int hipSetDevice(int device) { return device == 0 ? 0 : 101; }
int hipDeviceGetName(char *name, int len, int device) {
    (void)device;
    strncpy(name, "Stand-in RX 5600 XT", (size_t)len);
    return 0;
}
int hipDeviceGetPCIBusId(char *name, int len, int device) {
    (void)device;
    strncpy(name, "0000:03:00.0", (size_t)len);
    return 0;
}
/* Only the name is filled in, at the offset of ROCm 6's struct. */
int hipGetDevicePropertiesR0600(void *properties, int device) {
    (void)device;
    strcpy((char *)properties + 1160, "gfx1010:xnack-");
    return 0;
}
int hipRuntimeGetVersion(int *version) { *version = 50731921; return 0; }
int hipMalloc(void **at, size_t bytes) {
    *at = bytes > ((size_t)1 << 31) ? NULL : aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *at ? 0 : 2;
}
int hipFree(void *at) { free(at); return 0; }
int hipMemcpy(void *to, const void *from, size_t bytes, int kind) { (void)kind; memcpy(to, from, bytes); return 0; }
int hipDeviceSynchronize(void) { return 0; }
/* A kernel that hangs shows here, behind a MIOpen that returned. */
int hipStreamSynchronize(void *stream) {
    (void)stream;
    const char *manner = getenv("STANDIN_MANNER");
    while (manner && !strcmp(manner, "after")) pause();
    return 0;
}
int hipEventCreate(void **event) { *event = calloc(1, sizeof(struct timespec)); return *event ? 0 : 2; }
int hipEventDestroy(void *event) { free(event); return 0; }
int hipEventRecord(void *event, void *stream) { (void)stream; clock_gettime(CLOCK_MONOTONIC, event); return 0; }
int hipEventSynchronize(void *event) { (void)event; return 0; }
int hipEventElapsedTime(float *ms, void *start, void *stop) {
    const struct timespec *a = start, *b = stop;
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return 0;
}
const char *hipGetErrorString(int error) {
    return error == 2 ? "hipErrorOutOfMemory" : error == 100 ? "hipErrorNoDevice" : "hipError";
}
