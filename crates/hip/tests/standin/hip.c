/* A HIP runtime of host memory for tests without a card: the fixture kernels are C, and a clock says when they would be
 * done. `standin_set(NAME, VALUE)` or the variable STANDIN_NAME make a function of that name fail with that status, or
 * set: COUNT (devices), HANG (nothing is ever done), WAVE (lanes), ABORT (looking for devices crashes), ARCH (text,
 * variable only), MANNER (`after`: waiting for a stream never ends). `standin_calls(NAME)` counts calls. As the real one
 * does, it keeps a thread that waits for ever. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
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

static struct { char name[40]; long value, calls; int set; } table[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int slot(const char *name) {
    int i = 0;
    while (i < 63 && table[i].name[0] && strcmp(table[i].name, name)) i++;
    if (!table[i].name[0]) strncpy(table[i].name, name, 39);
    return i;
}
void standin_set(const char *name, long value) {
    pthread_mutex_lock(&lock);
    int i = slot(name);
    table[i].value = value, table[i].set = 1;
    pthread_mutex_unlock(&lock);
}
long standin_calls(const char *name) {
    pthread_mutex_lock(&lock);
    long calls = table[slot(name)].calls;
    pthread_mutex_unlock(&lock);
    return calls;
}
static long setting(const char *name, long otherwise) {
    pthread_mutex_lock(&lock);
    int i = slot(name);
    long value = table[i].set ? table[i].value : otherwise;
    pthread_mutex_unlock(&lock);
    if (value == otherwise) {
        char variable[64];
        snprintf(variable, sizeof variable, "STANDIN_%s", name);
        if (getenv(variable)) value = atol(getenv(variable));
    }
    return value;
}
/* Counts the call and fails if it is to. */
static int called(const char *name) {
    pthread_mutex_lock(&lock);
    table[slot(name)].calls++;
    pthread_mutex_unlock(&lock);
    return (int)setting(name, 0);
}
#define CALLED do { int failed = called(__func__); if (failed) return failed; } while (0)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static _Thread_local int current;
static double busy_until;
static void takes(double seconds) {
    double start = now();
    busy_until = (busy_until > start ? busy_until : start) + seconds;
}

int hipGetDeviceCount(int *count) {
    CALLED;
    if (setting("ABORT", 0)) abort();
    *count = (int)setting("COUNT", 1);
    return *count ? 0 : 100;
}
int hipGetDevice(int *device) { CALLED; *device = current; return 0; }
int hipSetDevice(int device) { CALLED; if (device >= setting("COUNT", 1)) return 101; current = device; return 0; }
int hipDeviceGetName(char *name, int len, int device) {
    CALLED;
    return snprintf(name, (size_t)len, device ? "Stand-in RX 5600 XT %d" : "Stand-in RX 5600 XT", device) < 0;
}
int hipDeviceTotalMem(size_t *bytes, int device) { CALLED; *bytes = (size_t)(2 + device) << 30; return 0; }
int hipDeviceGetAttribute(int *value, int attribute, int device) {
    CALLED;
    (void)device;
    switch (attribute) {
    case 5: *value = 1560000; break;
    case 29: *value = 2147483647; break;
    case 30: case 31: *value = 65535; break;
    case 56: *value = 1024; break;
    case 63: *value = 18; break;
    case 74: *value = 65536; break;
    case 87: *value = (int)setting("WAVE", 32); break;
    default: return 1;
    }
    return 0;
}
int hipDeviceGetPCIBusId(char *id, int len, int device) {
    CALLED;
    return snprintf(id, (size_t)len, "FFFF:FF:1F.%d", device) < 0;
}
static int properties(char *at, int device) {
    const char *arch = getenv("STANDIN_ARCH");
    (void)device;
    strcpy(at, "Stand-in, no gfx900 at all");
    strcpy(at + 1160, arch ? arch : "gfx1010:xnack-");
    return 0;
}
int hipGetDevicePropertiesR0600(void *at, int device) { CALLED; return properties(at, device); }
int hipGetDeviceProperties(void *at, int device) { (void)at, (void)device; return 1; }
/* VERSION: of the runtime. */
int hipRuntimeGetVersion(int *version) { CALLED; *version = (int)setting("VERSION", 50221153); return 0; }
int hipMalloc(void **at, size_t bytes) {
    CALLED;
    *at = bytes > ((size_t)1 << 31) ? NULL : aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *at ? 0 : 2;
}
int hipFree(void *at) { CALLED; free(at); return 0; }
int hipHostMalloc(void **at, size_t bytes, unsigned flags) { CALLED; (void)flags; *at = malloc(bytes); return *at ? 0 : 2; }
int hipHostFree(void *at) { CALLED; free(at); return 0; }
int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    CALLED;
    (void)kind, (void)stream;
    memcpy(to, from, bytes);
    takes((double)bytes * 1e-10);
    return 0;
}
int hipMemcpy(void *to, const void *from, size_t bytes, int kind) { CALLED; (void)kind; memcpy(to, from, bytes); return 0; }
int hipDeviceSynchronize(void) { CALLED; return 0; }
/* A kernel that hangs shows here, behind a MIOpen that returned. */
int hipStreamSynchronize(void *stream) {
    (void)stream;
    const char *manner = getenv("STANDIN_MANNER");
    while (manner && !strcmp(manner, "after")) pause();
    return 0;
}
int hipEventSynchronize(void *event) { CALLED; (void)event; return 0; }
int hipMemsetD32Async(void *to, int value, size_t count, void *stream) {
    CALLED;
    (void)stream;
    for (size_t i = 0; i < count; i++) ((int *)to)[i] = value;
    return 0;
}
int hipStreamCreateWithFlags(void **stream, unsigned flags) { CALLED; *stream = malloc(8); return flags != 1; }
int hipStreamDestroy(void *stream) { CALLED; free(stream); return 0; }
int hipEventCreate(void **event) { CALLED; *event = calloc(1, sizeof(double)); return 0; }
int hipEventDestroy(void *event) { CALLED; free(event); return 0; }
int hipEventRecord(void *event, void *stream) { CALLED; (void)stream; takes(0); *(double *)event = busy_until; return 0; }
int hipEventQuery(void *event) { CALLED; return setting("HANG", 0) || now() < *(double *)event ? 600 : 0; }
int hipEventElapsedTime(float *ms, void *start, void *end) {
    CALLED;
    *ms = (float)((*(double *)end - *(double *)start) * 1e3);
    return 0;
}
int hipModuleLoadData(void **module, const void *image) { CALLED; (void)image; *module = malloc(8); return 0; }
int hipModuleUnload(void *module) { CALLED; free(module); return 0; }
int hipModuleGetFunction(void **function, void *module, const char *name) {
    CALLED;
    (void)module;
    *function = (void *)(intptr_t)(!strcmp(name, "step") ? 1 : !strcmp(name, "spin") ? 2 : 0);
    return *function ? 0 : 500;
}
/* The fixtures of the conformance suite. */
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *stream, void **args, void **extra) {
    CALLED;
    (void)gy, (void)gz, (void)shared, (void)stream;
    if (bx != 64 || by != 1 || bz != 1 || extra) return 1;
    if ((intptr_t)function == 1) {
        const uint32_t *src = *(uint32_t **)args[0], *p = args[2];
        uint32_t *dst = *(uint32_t **)args[1];
        for (uint64_t i = 64ull * p[0]; i < 64ull * (p[0] + gx) && i < p[1]; i++) dst[i] = src[i] * p[2] + p[3];
        takes(2e-6 + 1e-10 * gx);
    } else {
        const uint32_t *p = args[1];
        uint32_t *dst = *(uint32_t **)args[0];
        for (uint64_t i = 64ull * p[0]; i < 64ull * (p[0] + gx) && i < p[1]; i++) dst[i] = (uint32_t)i * 2654435761u + p[2];
        takes(1e-6 + 1e-8 * p[2]);
    }
    return 0;
}
const char *hipGetErrorName(int status) { return status == 2 ? "hipErrorOutOfMemory" : "hipErrorOther"; }
const char *hipGetErrorString(int status) { return status == 2 ? "out of memory" : "something else"; }
int hipGetLastError(void) { CALLED; return 0; }
int hipStreamWaitEvent(void *stream, void *event, unsigned flags) { CALLED; (void)stream, (void)event, (void)flags; return 0; }
/* CAPTURING: every stream is being captured into a graph. */
int hipStreamIsCapturing(void *stream, int *is) { CALLED; (void)stream; *is = (int)setting("CAPTURING", 0); return 0; }
int hipThreadExchangeStreamCaptureMode(int *mode) { CALLED; *mode = 0; return 0; }
/* KIND: hipMemoryType of every address (1 is the device's, here as in ROCm 5). EXTENT: bytes of its allocation. LIMIT: the
 * first address that is no memory. */
int hipPointerGetAttributes(int *attributes, const void *pointer) {
    CALLED;
    long limit = setting("LIMIT", 0);
    if (limit && (long)(intptr_t)pointer >= limit) return 1;
    memset(attributes, 0, 32);
    attributes[0] = (int)setting("KIND", 1);
    return 0;
}
int hipMemGetAddressRange(void **start, size_t *bytes, void *pointer) {
    CALLED;
    *start = pointer, *bytes = (size_t)setting("EXTENT", 1 << 20);
    return 0;
}
