/* A MIOpen to stand behind ours: its objects know their kind, and its calls say that they were made. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { HANDLE = 0x48414e44, TENSOR = 0x54454e53, CONVOLUTION = 0x434f4e56 };
typedef struct { int kind; void *stream; } Handle;
typedef struct { int kind, type, rank, sizes[8], strides[8], vector; } Tensor;

static void is(const void *object, int kind, const char *call) {
    printf("vendor: %s\n", call);
    if (!object || *(const int *)object != kind) {
        printf("vendor: %s was given a foreign object\n", call);
        fflush(stdout);
        abort();
    }
}
static int make(void **out, int kind, size_t bytes) {
    int *object = calloc(1, bytes);
    *object = kind;
    *out = object;
    return 0;
}
static int end(void *object, int kind, const char *call) {
    is(object, kind, call);
    *(int *)object = 0;
    free(object);
    return 0;
}
int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) { return *major = 2, *minor = 20, *patch = 7, 0; }
int miopenCreate(void **handle) { return make(handle, HANDLE, sizeof(Handle)); }
int miopenCreateWithStream(void **handle, void *stream) {
    make(handle, HANDLE, sizeof(Handle));
    ((Handle *)*handle)->stream = stream;
    return 0;
}
int miopenSetStream(void *handle, void *stream) {
    is(handle, HANDLE, "miopenSetStream");
    ((Handle *)handle)->stream = stream;
    return 0;
}
int miopenEnableProfiling(void *handle, _Bool on) { return is(handle, HANDLE, "miopenEnableProfiling"), on ? 0 : 0; }
int miopenDestroy(void *handle) { return end(handle, HANDLE, "miopenDestroy"); }
int miopenCreateTensorDescriptor(void **t) { return make(t, TENSOR, sizeof(Tensor)); }
int miopenDestroyTensorDescriptor(void *t) { return end(t, TENSOR, "miopenDestroyTensorDescriptor"); }
int miopenCreateConvolutionDescriptor(void **c) { return make(c, CONVOLUTION, 64); }
int miopenDestroyConvolutionDescriptor(void *c) { return end(c, CONVOLUTION, "miopenDestroyConvolutionDescriptor"); }
int miopenSet4dTensorDescriptor(void *t, int type, int n, int c, int h, int w) {
    is(t, TENSOR, "miopenSet4dTensorDescriptor");
    *(Tensor *)t = (Tensor){TENSOR, type, 4, {n, c, h, w}, {c * h * w, h * w, w, 1}, 0};
    return 0;
}
int miopenGetTensorDescriptorSize(void *t, int *size) { return *size = ((Tensor *)t)->rank, 0; }
int miopenGetTensorDescriptor(void *t, int *type, int *sizes, int *strides) {
    Tensor *tensor = t;
    if (type) *type = tensor->type;
    for (int i = 0; i < tensor->rank; i++) {
        if (sizes) sizes[i] = tensor->sizes[i];
        if (strides) strides[i] = tensor->strides[i];
    }
    return 0;
}
int miopenGetTensorNumBytes(void *t, size_t *bytes) {
    Tensor *tensor = t;
    size_t last = 0;
    for (int i = 0; i < tensor->rank; i++) last += (size_t)(tensor->sizes[i] - 1) * tensor->strides[i];
    return *bytes = (last + 1) * (tensor->vector ? tensor->vector : 1) * (tensor->type == 1 ? 4 : 2), 0;
}
/* As a vectorised layout has it: sizes and strides in packs. */
int miopenFutureVector(void *t) { return ((Tensor *)t)->vector = 4, 0; }
int miopenBatchNormalizationForwardInference(void *handle, int mode, void *alpha, void *beta, void *xt, void *x, void *yt,
                                             void *y, void *bt, void *scale, void *bias, void *mean, void *variance,
                                             double epsilon) {
    is(handle, HANDLE, "miopenBatchNormalizationForwardInference");
    is(xt, TENSOR, "x"), is(yt, TENSOR, "y"), is(bt, TENSOR, "bn");
    intptr_t sum = (intptr_t)alpha + 2 * (intptr_t)beta + 3 * (intptr_t)x + 4 * (intptr_t)y + 5 * (intptr_t)scale;
    sum += 6 * (intptr_t)bias + 7 * (intptr_t)mean + 8 * (intptr_t)variance;
    printf("vendor: normalized, mode %d, arguments %ld, epsilon %g\n", mode, (long)sum, epsilon);
    return 0;
}
/* What does not compile for RDNA1. */
int miopenBatchNormalizationForwardTraining(void *handle) { return printf("vendor: TRAINING %p\n", handle), 7; }
/* Of a release that nobody knows yet: its callers reach it past ours, with objects that came through ours. */
int miopenFutureShrink(void *handle, void *t, void *convolution) {
    is(handle, HANDLE, "miopenFutureShrink"), is(t, TENSOR, "t"), is(convolution, CONVOLUTION, "c");
    ((Tensor *)t)->sizes[2] = 6;
    return 0;
}
/* What would search, compile and hang. */
int miopenConvolutionForwardGetWorkSpaceSize(void *h, void *w, void *x, void *c, void *y, size_t *size) {
    printf("vendor: CONVOLUTION %p %p %p %p %p\n", h, w, x, c, y);
    return *size = 777, 0;
}
int miopenGetConvolutionForwardOutputDim(void *c, void *x, void *w, int *n, int *k, int *h, int *v) {
    printf("vendor: CONVOLUTION %p %p %p\n", c, x, w);
    return *n = *k = *h = *v = 777, 0;
}
int miopenInitConvolutionNdDescriptor(void *c, int rank, int *pads, int *strides, int *dilations, int mode) {
    is(c, CONVOLUTION, "miopenInitConvolutionNdDescriptor");
    int *at = (int *)c + 1;
    for (int i = 0; i < rank; i++) *at++ = pads[i], *at++ = strides[i], *at++ = dilations[i];
    return mode;
}
int miopenSetConvolutionGroupCount(void *c, int groups) { return ((int *)c)[15] = groups, 0; }
/* A solver by number: what was proven may run. */
int miopenConvolutionForwardImmediate(void *h, void *wt, void *w, void *xt, void *x, void *c, void *yt, void *y, void *space,
                                      size_t bytes, unsigned long solution) {
    is(h, HANDLE, "miopenConvolutionForwardImmediate");
    is(wt, TENSOR, "w"), is(xt, TENSOR, "x"), is(yt, TENSOR, "y"), is(c, CONVOLUTION, "c");
    const int *of = (const int *)c + 1;
    printf("vendor: solution %lu on %p %p %p, pads %d %d, groups %d, workspace %p %zu, filters %d\n", solution, w, x, y,
           of[0], of[3], of[14], space, bytes, ((Tensor *)wt)->sizes[0]);
    return 0;
}
int miopenInitConvolutionDescriptor(void *c, int mode, int p, int q, int u, int v, int l, int j) {
    is(c, CONVOLUTION, "miopenInitConvolutionDescriptor");
    return mode + p + q + u + v + l + j < 0;
}
