/* What a network does, as far as libraries see it: one convolution again and again, and a wait for each. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int miopenCreate(void **);
int miopenCreateTensorDescriptor(void **);
int miopenSet4dTensorDescriptorEx(void *, int, int, int, int, int, int, int, int, int);
int miopenCreateConvolutionDescriptor(void **);
int miopenInitConvolutionDescriptor(void *, int, int, int, int, int, int, int);
int miopenConvolutionForwardImmediate(void *, void *, const void *, void *, const void *, void *, void *, void *, void *,
                                      size_t, uint64_t);
int hipStreamSynchronize(void *);

static float x[16 * 48 * 48], w[32 * 16 * 9], y[32 * 48 * 48], space[16];

int main(void) {
    void *handle, *xs, *ws, *ys, *conv;
    miopenCreate(&handle);
    miopenCreateTensorDescriptor(&xs), miopenCreateTensorDescriptor(&ws), miopenCreateTensorDescriptor(&ys);
    miopenCreateConvolutionDescriptor(&conv);
    if (miopenSet4dTensorDescriptorEx(xs, 1, 1, 16, 48, 48, 16 * 48 * 48, 48 * 48, 48, 1) ||
        miopenSet4dTensorDescriptorEx(ws, 1, 32, 16, 3, 3, 16 * 9, 9, 3, 1) ||
        miopenSet4dTensorDescriptorEx(ys, 1, 1, 32, 48, 48, 32 * 48 * 48, 48 * 48, 48, 1) ||
        miopenInitConvolutionDescriptor(conv, 0, 1, 1, 1, 1, 1, 1))
        return 5;
    fprintf(stderr, "epoch 1\n");
    for (int i = 0; i < 100; i++) {
        if (miopenConvolutionForwardImmediate(handle, ws, w, xs, x, conv, ys, y, space, sizeof space, 85)) return 4;
        hipStreamSynchronize(NULL);
    }
    return 3;
}
