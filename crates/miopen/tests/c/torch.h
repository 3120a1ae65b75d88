// PyTorch's frame around its calls: the handle, descriptors, and what is kept of a layer.
#pragma once

#include "reference.h"

enum { LAYERS = 128, MAX_SOLUTIONS = 10 /* PyTorch refuses more */ };

static struct {
    bool benchmark, deterministic, immediate, oom, channels_last, bias;
    int torch; // 112, 202, 209
    miopenDataType_t type;
} options = {.torch = 209, .type = miopenFloat};

static _Thread_local miopenHandle_t handle;
static const float one = 1, zero = 0;

static miopenHandle_t get_handle(void) {
    if (!handle)
        MIOPEN(miopenCreate(&handle));
    MIOPEN(miopenSetStream(handle, stream));
    return handle;
}

static miopenTensorDescriptor_t describe(const struct tensor *t) {
    miopenTensorDescriptor_t desc;
    MIOPEN(miopenCreateTensorDescriptor(&desc));
    MIOPEN(miopenSetTensorDescriptor(desc, t->type, t->dims, t->size, t->stride));
    return desc;
}

// A vector of channels as [1, c, 1, 1].
static struct tensor channels_of(miopenDataType_t type, int c) { return tensor_of(type, 1, c, 1, 1, false); }

enum { RESULTS = 8 };

struct layer {
    char kind[16], name[64];
    struct geometry g;
    struct tensor x, w, b, dy;       // operands; of a norm, w is the scale
    struct tensor results[RESULTS];  // y, dx, dw, db; of a norm further ones
    void *first[RESULTS];            // what the first run left: the second has to repeat its bits
    bool found[3];                   // PyTorch's cache of algorithms and workspace sizes
    int algorithm[3];
    size_t workspace[3];
};

// Fetches a result; true where it is the first one and has to be held against the definition, while a second one has to
// have the same bits.
static bool fetch(struct layer *layer, int i) {
    struct tensor *t = &layer->results[i];
    size_t bytes = t->count * size_of(t->type);
    download(t);
    if (!layer->first[i]) {
        layer->first[i] = memcpy(malloc(bytes), t->host, bytes);
        return true;
    }
    if (memcmp(layer->first[i], t->host, bytes))
        fail("%s: result %d of the second run has other bits", layer->name, i);
    return false;
}
