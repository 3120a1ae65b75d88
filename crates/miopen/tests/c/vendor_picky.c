/* A MIOpen to stand behind ours on the virtual card. It computes, in f64 on the processor, and its solvers are picky: of their
   numbers' bits, 1 takes no channels by a power of two, 2 one image at a time, 4 no image above 32x32; others abort. It says
   what it was asked for. */
#include "abi.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct { int type, rank, sizes[8], strides[8]; } Tensor;
typedef struct { int pad[3], stride[3], dilation[3], groups; } Convolution;
static hipStream_t stream;

int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) { return *major = 2, *minor = 20, *patch = 7, 0; }
static int make(void *out, size_t bytes) { return *(void **)out = calloc(1, bytes), 0; }
int miopenCreateWithStream(miopenHandle_t *handle, hipStream_t at) { return stream = at, make(handle, 8); }
int miopenCreate(miopenHandle_t *handle) { return make(handle, 8); }
int miopenSetStream(miopenHandle_t handle, hipStream_t at) { return (void)handle, stream = at, 0; }
int miopenEnableProfiling(miopenHandle_t handle, bool on) { return (void)handle, (void)on, 0; }
int miopenDestroy(miopenHandle_t handle) { return free(handle), 0; }
int miopenCreateTensorDescriptor(miopenTensorDescriptor_t *t) { return make(t, sizeof(Tensor)); }
int miopenDestroyTensorDescriptor(miopenTensorDescriptor_t t) { return free(t), 0; }
int miopenCreateConvolutionDescriptor(miopenConvolutionDescriptor_t *c) { return make(c, sizeof(Convolution)); }
int miopenDestroyConvolutionDescriptor(miopenConvolutionDescriptor_t c) { return free(c), 0; }
int miopenSetTensorDescriptor(miopenTensorDescriptor_t to, miopenDataType_t type, int rank, const int *sizes, const int *strides) {
    Tensor *t = (Tensor *)to;
    t->type = type, t->rank = rank;
    for (int i = 0; i < rank; i++) t->sizes[i] = sizes[i], t->strides[i] = strides[i];
    return 0;
}
int miopenSet4dTensorDescriptor(miopenTensorDescriptor_t t, miopenDataType_t type, int n, int c, int h, int w) {
    return miopenSetTensorDescriptor(t, type, 4, (int[]){n, c, h, w}, (int[]){c * h * w, h * w, w, 1});
}
int miopenGetTensorDescriptorSize(miopenTensorDescriptor_t t, int *size) { return *size = ((Tensor *)t)->rank, 0; }
int miopenGetTensorDescriptor(miopenTensorDescriptor_t from, miopenDataType_t *type, int *sizes, int *strides) {
    Tensor *t = (Tensor *)from;
    if (type) *type = t->type;
    for (int i = 0; i < t->rank; i++) {
        if (sizes) sizes[i] = t->sizes[i];
        if (strides) strides[i] = t->strides[i];
    }
    return 0;
}
static size_t elements(const Tensor *t) {
    size_t last = 0;
    for (int i = 0; i < t->rank; i++) last += (size_t)(t->sizes[i] - 1) * (size_t)t->strides[i];
    return last + 1;
}
int miopenGetTensorNumBytes(miopenTensorDescriptor_t t, size_t *bytes) { return *bytes = elements((Tensor *)t) * 4, 0; }
int miopenInitConvolutionNdDescriptor(miopenConvolutionDescriptor_t to, int rank, const int *pads, const int *strides,
                                      const int *dilations, miopenConvolutionMode_t mode) {
    Convolution *c = (Convolution *)to;
    for (int i = 0; i < rank; i++) c->pad[i] = pads[i], c->stride[i] = strides[i], c->dilation[i] = dilations[i];
    return (int)mode;
}
int miopenSetConvolutionGroupCount(miopenConvolutionDescriptor_t c, int groups) { return ((Convolution *)c)->groups = groups, 0; }

static bool power_of_two(int n) { return n > 1 && !(n & (n - 1)); }

static float *fetched(const Tensor *t, const void *device) {
    float *host = malloc(elements(t) * 4);
    if (hipMemcpy(host, device, elements(t) * 4, hipMemcpyDeviceToHost)) abort();
    return host;
}

/* x, w, y and which of them is the result: 2, 0, 1 for forward, backward-data, backward-weights. */
static int compute(const char *pass, int result, const Tensor *t[3], const void *data[3], const Convolution *c, void *space,
                   size_t bytes, uint64_t solution) {
    const Tensor *x = t[0], *w = t[1], *y = t[2];
    bool narrow = power_of_two(x->sizes[1] / c->groups) || power_of_two(y->sizes[1] / c->groups);
    printf("vendor: %s by %d: %d images of %dx%d, %d to %d channels\n", pass, (int)solution, x->sizes[0], x->sizes[2], x->sizes[3],
           x->sizes[1], y->sizes[1]);
    bool large = x->sizes[2] > 32 || x->sizes[3] > 32;
    if (solution < 1 || solution > 7 || (solution & 1 && narrow) || (solution & 2 && x->sizes[0] > 1) || (solution & 4 && large) ||
        x->type != miopenFloat)
        abort();
    /* Its own part of the workspace, and no more. */
    if (bytes != 1000 || hipMemset(space, 0xee, bytes)) abort();
    if (hipStreamSynchronize(stream)) abort();
    float *host[3];
    for (int i = 0; i < 3; i++) host[i] = fetched(t[i], data[i]);
    double *sums = calloc(elements(t[result]), sizeof *sums);
    int per_group = w->sizes[1], filters = w->sizes[0] / c->groups;
    for (int n = 0; n < y->sizes[0]; n++)
        for (int k = 0; k < y->sizes[1]; k++)
            for (int p = 0; p < y->sizes[2]; p++)
                for (int q = 0; q < y->sizes[3]; q++)
                    for (int i = 0; i < per_group; i++)
                        for (int r = 0; r < w->sizes[2]; r++)
                            for (int s = 0; s < w->sizes[3]; s++) {
                                int h = p * c->stride[0] - c->pad[0] + r * c->dilation[0];
                                int v = q * c->stride[1] - c->pad[1] + s * c->dilation[1];
                                if (h < 0 || h >= x->sizes[2] || v < 0 || v >= x->sizes[3]) continue;
                                int at[3] = {
                                    n * x->strides[0] + (k / filters * per_group + i) * x->strides[1] + h * x->strides[2] +
                                        v * x->strides[3],
                                    k * w->strides[0] + i * w->strides[1] + r * w->strides[2] + s * w->strides[3],
                                    n * y->strides[0] + k * y->strides[1] + p * y->strides[2] + q * y->strides[3]};
                                int a = (result + 1) % 3, b = (result + 2) % 3;
                                sums[at[result]] += (double)host[a][at[a]] * host[b][at[b]];
                            }
    for (size_t i = 0; i < elements(t[result]); i++) host[result][i] = (float)sums[i];
    if (hipMemcpy((void *)data[result], host[result], elements(t[result]) * 4, hipMemcpyHostToDevice)) abort();
    for (int i = 0; i < 3; i++) free(host[i]);
    free(sums);
    return 0;
}

#define IMMEDIATE(Name, result, X, W, Y)                                                                                   \
    int miopenConvolution##Name##Immediate(miopenHandle_t handle, miopenTensorDescriptor_t const t0, const void *d0,       \
                                           miopenTensorDescriptor_t const t1, const void *d1,                              \
                                           miopenConvolutionDescriptor_t const c, miopenTensorDescriptor_t const t2,       \
                                           void *d2, void *space, size_t bytes, const uint64_t solution) {                 \
        (void)handle;                                                                                                      \
        const Tensor *t[3] = {(Tensor *)t##X, (Tensor *)t##W, (Tensor *)t##Y};                                             \
        const void *data[3] = {d##X, d##W, d##Y};                                                                          \
        return compute(#Name, result, t, data, (Convolution *)c, space, bytes, solution);                                  \
    }
IMMEDIATE(Forward, 2, 1, 0, 2)
IMMEDIATE(BackwardData, 0, 2, 1, 0)
IMMEDIATE(BackwardWeights, 1, 1, 2, 0)
