// What the tests share: random numbers, the three number formats, and a card's memory as PyTorch's allocator gives it
// out: sub-ranges of one big block, each between guard bands, poisoned, and given out again as soon as they are freed.
#pragma once

#include "abi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static uint64_t seed;
static _Thread_local uint64_t state;

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#include <stdarg.h>
static void fail(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fprintf(stderr, "FAILED (seed %llu): ", (unsigned long long)seed);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

static double microseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

// Microseconds of this thread within calls of MIOpen's.
static _Thread_local double in_miopen;

#define MIOPEN(call)                                                                                                    \
    do {                                                                                                                \
        double before_ = microseconds();                                                                                \
        miopenStatus_t status_ = (call);                                                                                \
        in_miopen += microseconds() - before_;                                                                          \
        if (status_ != miopenStatusSuccess)                                                                             \
            fail("%s:%d: %s: status %d, %s", __FILE__, __LINE__, #call, status_, miopenGetErrorString(status_));         \
    } while (0)
#define HIP(call)                                                                                                       \
    do {                                                                                                                \
        int status_ = (call);                                                                                           \
        if (status_ != 0)                                                                                               \
            fail("%s:%d: %s: HIP error %d", __FILE__, __LINE__, #call, status_);                                         \
    } while (0)

// A fresh seed, or the one that is to be repeated. Printed by every failure.
static void seed_with(const char *text) {
    if (text)
        seed = strtoull(text, NULL, 10);
    else if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        exit(2);
    state = seed | 1;
}

static uint64_t random_bits(void) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * 0x2545f4914f6cdd1dull;
}

// In -1 .. 1.
static double random_number(void) { return (double)(int64_t)random_bits() * 0x1p-63; }

static size_t size_of(miopenDataType_t type) { return type == miopenFloat ? 4 : 2; }

// Half of the distance between neighbours, relative.
static double half_ulp(miopenDataType_t type) {
    return type == miopenFloat ? 0x1p-24 : type == miopenHalf ? 0x1p-11 : 0x1p-8;
}

static void store(miopenDataType_t type, void *to, size_t i, double value) {
    if (type == miopenFloat) {
        ((float *)to)[i] = (float)value;
    } else if (type == miopenHalf) {
        ((_Float16 *)to)[i] = (_Float16)value;
    } else {
        float f = (float)value;
        uint32_t bits;
        memcpy(&bits, &f, 4);
        ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static double load(miopenDataType_t type, const void *from, size_t i) {
    if (type == miopenFloat)
        return ((const float *)from)[i];
    if (type == miopenHalf)
        return (double)((const _Float16 *)from)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

// ---- memory -----------------------------------------------------------------------------------------------------------

enum { GRAIN = 512, RANGES = 4096, POISON = 0xff /* NaN in every type */, GUARD = 0xa5 };
static _Thread_local struct range {
    size_t at, bytes;
} ranges[RANGES];
static _Thread_local int range_count;
static _Thread_local char *heap;
static _Thread_local size_t heap_bytes;
static _Thread_local hipStream_t stream;

static void heap_open(size_t bytes) {
    heap_bytes = bytes;
    HIP(hipMalloc((void **)&heap, bytes));
    HIP(hipMemsetAsync(heap, GUARD, bytes, stream));
}

// A poisoned range of at least a byte; NULL for none, as PyTorch's allocator has it.
static void *take(size_t bytes) {
    if (bytes == 0)
        return NULL;
    size_t at = GRAIN;
    int i = 0;
    for (; i < range_count; i++) {
        if (ranges[i].at >= at + bytes + GRAIN)
            break;
        at = (ranges[i].at + ranges[i].bytes + 2 * GRAIN - 1) / GRAIN * GRAIN;
    }
    if (range_count == RANGES || at + bytes + GRAIN > heap_bytes)
        fail("the test's heap of %zu bytes is full", heap_bytes);
    memmove(&ranges[i + 1], &ranges[i], (size_t)(range_count++ - i) * sizeof *ranges);
    ranges[i] = (struct range){at, bytes};
    HIP(hipMemsetAsync(heap + at, POISON, bytes, stream));
    return heap + at;
}

// Returns at once, whatever work on it is still to run: the next owner's work comes later on the same stream.
static void give(void *address) {
    for (int i = 0; address && i < range_count; i++)
        if (heap + ranges[i].at == address) {
            HIP(hipMemsetAsync(address, GUARD, ranges[i].bytes, stream));
            memmove(&ranges[i], &ranges[i + 1], (size_t)(--range_count - i) * sizeof *ranges);
            return;
        }
    if (address)
        fail("the test frees %p, which it does not own", address);
}

// Fails where a byte outside of the ranges in use was written.
static void check_guards(void) {
    char *host = malloc(heap_bytes);
    HIP(hipStreamSynchronize(stream));
    HIP(hipMemcpy(host, heap, heap_bytes, hipMemcpyDeviceToHost));
    int next = 0;
    for (size_t i = 0; i < heap_bytes; i++) {
        if (next < range_count && i == ranges[next].at) {
            i += ranges[next++].bytes - 1;
        } else if ((unsigned char)host[i] != GUARD) {
            size_t before = next ? ranges[next - 1].at + ranges[next - 1].bytes : 0;
            fail("byte %zu beyond the end of a buffer was written", i - before);
        }
    }
    free(host);
}

// ---- tensors ----------------------------------------------------------------------------------------------------------

struct tensor {
    int size[5], stride[5], dims;
    size_t count; // elements
    miopenDataType_t type;
    void *device, *host;
};

// A tensor of its layout's own strides, as PyTorch's `contiguous(memory_format)` gives them.
static struct tensor tensor_of(miopenDataType_t type, int n, int c, int h, int w, bool channels_last) {
    struct tensor t = {.size = {n, c, h, w}, .dims = 4, .type = type, .count = (size_t)n * c * h * w};
    if (channels_last)
        t.stride[0] = h * w * c, t.stride[1] = 1, t.stride[2] = w * c, t.stride[3] = c;
    else
        t.stride[0] = c * h * w, t.stride[1] = h * w, t.stride[2] = w, t.stride[3] = 1;
    t.host = malloc(t.count * size_of(type));
    return t;
}

static size_t at(const struct tensor *t, int n, int c, int h, int w) {
    return (size_t)n * t->stride[0] + (size_t)c * t->stride[1] + (size_t)h * t->stride[2] + (size_t)w * t->stride[3];
}

static void randomise(struct tensor *t, double offset) {
    for (size_t i = 0; i < t->count; i++)
        store(t->type, t->host, i, random_number() + offset);
}

static void upload(struct tensor *t) {
    if (!t->device)
        t->device = take(t->count * size_of(t->type));
    HIP(hipMemcpyAsync(t->device, t->host, t->count * size_of(t->type), hipMemcpyHostToDevice, stream));
    HIP(hipStreamSynchronize(stream));
}

static void download(struct tensor *t) {
    HIP(hipMemcpyAsync(t->host, t->device, t->count * size_of(t->type), hipMemcpyDeviceToHost, stream));
    HIP(hipStreamSynchronize(stream));
}

static void poison(struct tensor *t) {
    if (!t->device)
        t->device = take(t->count * size_of(t->type));
    HIP(hipMemsetAsync(t->device, POISON, t->count * size_of(t->type), stream));
}

// Whether every byte of a range is still poison.
static bool poisoned(const void *device, size_t bytes) {
    unsigned char *host = malloc(bytes);
    HIP(hipStreamSynchronize(stream));
    HIP(hipMemcpy(host, device, bytes, hipMemcpyDeviceToHost));
    size_t i = 0;
    while (i < bytes && host[i] == POISON)
        i++;
    free(host);
    return i == bytes;
}
