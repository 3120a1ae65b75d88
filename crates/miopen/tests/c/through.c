/* A client of MIOpen's, as a library (so that a program may load it for itself alone, as Python does): convolutions, and
   calls that are none. What it prints is compared. Where a call may be missing at link time it is weak. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int miopenGetVersion(size_t *, size_t *, size_t *);
int miopenCreateWithStream(void **, void *);
int miopenSetStream(void *, void *);
int miopenDestroy(void *);
int miopenCreateTensorDescriptor(void **);
int miopenSet4dTensorDescriptor(void *, int, int, int, int, int);
int miopenDestroyTensorDescriptor(void *);
int miopenCreateConvolutionDescriptor(void **);
int miopenInitConvolutionDescriptor(void *, int, int, int, int, int, int, int);
int miopenDestroyConvolutionDescriptor(void *);
int miopenGetConvolutionForwardOutputDim(void *, void *, void *, int *, int *, int *, int *);
typedef struct { int algorithm; float time; size_t memory; } Perf;
int miopenFindConvolutionForwardAlgorithm(void *, void *, void *, void *, void *, void *, void *, void *, int, int *, Perf *,
                                          void *, size_t, _Bool);
int miopenConvolutionForward(void *, float *, void *, void *, void *, void *, void *, int, float *, void *, void *, void *,
                             size_t);
int miopenConvolutionForwardGetWorkSpaceSize(void *, void *, void *, void *, void *, size_t *);
int miopenCreateConvProblem(void **, void *, int);
int miopenSetProblemTensorDescriptor(void *, unsigned, void *);
int miopenFindSolutions(void *, void *, void *, void **, size_t *, size_t);
int miopenGetSolutionSolverId(void *, uint64_t *);
int miopenDestroySolution(void *);
int miopenDestroyProblem(void *);
__attribute__((weak)) int miopenFutureShrink(void *, void *, void *);
__attribute__((weak)) int miopenFutureVector(void *);
__attribute__((weak)) int miopenBatchNormalizationForwardInference(void *, int, void *, void *, void *, void *, void *, void *,
                                                                   void *, void *, void *, void *, void *, double);
__attribute__((weak)) int miopenBatchNormalizationForwardTraining(void *, int, void *, void *, void *, void *, void *, void *,
                                                                  void *, void *, void *, double, void *, void *, double,
                                                                  void *, void *);

static void told(const char *what, int status) {
    if (status) printf("%s: status %d\n", what, status);
}

int client(void) {
    setvbuf(stdout, NULL, _IONBF, 0);
    void *handle = 0, *x = 0, *w = 0, *y = 0, *c = 0, *foreign = (void *)0x1230;
    size_t major = 0, minor = 0, patch = 0, bytes = 0;
    told("version", miopenGetVersion(&major, &minor, &patch));
    printf("version %zu.%zu.%zu\n", major, minor, patch);
    told("create", miopenCreateWithStream(&handle, NULL));
    told("stream", miopenSetStream(handle, NULL));
    told("x", miopenCreateTensorDescriptor(&x));
    told("w", miopenCreateTensorDescriptor(&w));
    told("y", miopenCreateTensorDescriptor(&y));
    told("c", miopenCreateConvolutionDescriptor(&c));
    told("set x", miopenSet4dTensorDescriptor(x, 1, 2, 16, 48, 48));
    told("set w", miopenSet4dTensorDescriptor(w, 1, 32, 16, 3, 3));
    told("set y", miopenSet4dTensorDescriptor(y, 1, 2, 32, 48, 48));
    told("init", miopenInitConvolutionDescriptor(c, 0, 1, 1, 1, 1, 1, 1));
    int n = 0, k = 0, h = 0, v = 0;
    told("dim", miopenGetConvolutionForwardOutputDim(c, x, w, &n, &k, &h, &v));
    printf("output %d %d %d %d\n", n, k, h, v);
    told("size", miopenConvolutionForwardGetWorkSpaceSize(handle, w, x, c, y, &bytes));
    printf("workspace of %s\n", bytes == 777 ? "the vendor" : "wave32");
    Perf perfs[8];
    int found = 0;
    float one = 1, zero = 0;
    void *space = bytes ? (void *)0x9000 : NULL, *at[3] = {(void *)0x1000, (void *)0x2000, (void *)0x3000};
    if (bytes == 64) {
        told("find", miopenFindConvolutionForwardAlgorithm(handle, x, at[0], w, at[1], c, y, at[2], 8, &found, perfs, space,
                                                           bytes, 0));
        printf("found algorithm %d, %zu bytes\n", perfs[0].algorithm, perfs[0].memory);
        told("forward", miopenConvolutionForward(handle, &one, x, at[0], w, at[1], c, perfs[0].algorithm, &zero, y, at[2],
                                                 space, bytes));
        // Find 2.0 cannot run the vendor's solvers.
        void *problem = 0, *solutions[8];
        size_t count = 0, ours = 0;
        told("problem", miopenCreateConvProblem(&problem, c, 0));
        void *tensors[3] = {x, w, y};
        for (unsigned i = 0; i < 3; i++) told("tensor", miopenSetProblemTensorDescriptor(problem, i + 1, tensors[i]));
        told("solutions", miopenFindSolutions(handle, problem, NULL, solutions, &count, 8));
        for (size_t i = 0; i < count; i++) {
            uint64_t solver = 0;
            told("solver", miopenGetSolutionSolverId(solutions[i], &solver));
            ours += solver > 3200000;
            told("end of solution", miopenDestroySolution(solutions[i]));
        }
        printf("Find 2.0: %s\n", count && ours == count ? "wave32's alone" : "others too");
        told("end of problem", miopenDestroyProblem(problem));
    }
    if (miopenBatchNormalizationForwardInference) {
        void *a[8];
        for (intptr_t i = 0; i < 8; i++) a[i] = (void *)(i + 1);
        told("bn", miopenBatchNormalizationForwardInference(handle, 1, a[0], a[1], x, a[2], y, a[3], w, a[4], a[5], a[6],
                                                            a[7], 1e-5));
    }
    if (miopenBatchNormalizationForwardTraining)
        told("training", miopenBatchNormalizationForwardTraining(handle, 1, NULL, NULL, x, at[0], x, at[2], w, at[1], at[1], 1,
                                                                 NULL, NULL, 1e-5, NULL, NULL));
    if (miopenFutureShrink) {
        told("future", miopenFutureShrink(handle, x, c));
        told("dim", miopenGetConvolutionForwardOutputDim(c, x, w, &n, &k, &h, &v));
        printf("output %d %d %d %d\n", n, k, h, v);
        miopenFutureVector(x);
        told("vectorised", miopenGetConvolutionForwardOutputDim(c, x, w, &n, &k, &h, &v));
    }
    told("foreign handle", miopenDestroy(foreign));
    told("foreign tensor", miopenGetConvolutionForwardOutputDim(c, foreign, w, &n, &k, &h, &v));
    told("end of x", miopenDestroyTensorDescriptor(x));
    told("destroyed tensor", miopenGetConvolutionForwardOutputDim(c, x, w, &n, &k, &h, &v));
    told("end of w", miopenDestroyTensorDescriptor(w));
    told("end of y", miopenDestroyTensorDescriptor(y));
    told("end of c", miopenDestroyConvolutionDescriptor(c));
    told("end", miopenDestroy(handle));
    told("end again", miopenDestroy(handle));
    printf("passed\n");
    return 0;
}
