// How long the drop-in's calls take on the processor: a figure to look at, not a test. Kernels' time is not in it.
//
//     timing [--seed N]
//
// `make miopen-timing` runs it with module_load.c around HIP, so that HIP's own time for modules is told apart.

#define _GNU_SOURCE
#include "torch_conv.h"

#include <dlfcn.h>

enum { SHAPES = 200 };

static int by_size(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

static void say(const char *what, double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, by_size);
    printf("  %-46s median %7.1f us, worst of %d %9.1f us\n", what, times[count / 2], count, times[count - 1]);
}

int main(int count, char **args) {
    seed_with(count > 2 && !strcmp(args[1], "--seed") ? args[2] : NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    heap_open((size_t)64 << 20);
    HIP(hipStreamSynchronize(stream));
    get_handle();
    printf("  miopenCreate and miopenSetStream    %9.1f us\n", in_miopen);

    static struct layer layer;
    layer = (struct layer){.kind = "conv", .name = "first", .g = {1, 16, 44, 44, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, 0, 0}};
    conv_make(&layer);
    for (int pass = 0; pass < 3; pass++)
        poison(&layer.results[pass]);
    HIP(hipStreamSynchronize(stream));
    const double *load = dlsym(RTLD_DEFAULT, "wave32_module_load");
    const char *const names[] = {"forward", "backward data", "backward weights"};
    for (int round = 0; round < 2; round++)
        for (int pass = 0; pass < 3; pass++) {
            double loaded = load ? *load : 0;
            in_miopen = 0;
            pass_of(pass, &layer);
            HIP(hipStreamSynchronize(stream));
            loaded = load ? *load - loaded : 0;
            printf("  %-18s %-17s %9.1f us", round ? "second" : "first (with find)", names[pass], in_miopen);
            if (load) printf(": HIP's module load %9.1f us, the rest %7.1f us", loaded, in_miopen - loaded);
            printf("\n");
        }

    // Find alone, on shapes that were never seen, and then again.
    static double first[3][SHAPES], again[3][SHAPES];
    for (int i = 0; i < SHAPES; i++) {
        int c = 1 + (int)(random_bits() % 512), k = 1 + (int)(random_bits() % 512), r = 1 + 2 * (int)(random_bits() % 3);
        int side = r + (int)(random_bits() % 200), step = 1 + (int)(random_bits() % 2);
        struct geometry g = {8, c, side, side, k, r, r, {r / 2, r / 2}, {step, step}, {1, 1}, 1, 0, 0};
        g.p = (side + 2 * (r / 2) - r) / step + 1, g.q = g.p;
        struct tensor x = tensor_of(miopenFloat, 8, c, side, side, false), w = tensor_of(miopenFloat, k, c, r, r, false),
                      y = tensor_of(miopenFloat, 8, k, g.p, g.q, false);
        free(x.host), free(w.host), free(y.host);
        miopenTensorDescriptor_t xd = describe(&x), wd = describe(&w), yd = describe(&y);
        miopenConvolutionDescriptor_t conv;
        MIOPEN(miopenCreateConvolutionDescriptor(&conv));
        MIOPEN(miopenInitConvolutionNdDescriptor(conv, 2, g.pad, g.stride, g.dilation, miopenConvolution));
        // Find never touches data: any address of the card will do.
        void *any = layer.x.device;
        for (int pass = 0; pass < 3; pass++)
            for (int time = 0; time < 2; time++) {
                miopenTensorDescriptor_t a = pass == FORWARD ? xd : yd, b = pass == BACKWARD_WEIGHTS ? xd : wd;
                miopenTensorDescriptor_t result = pass == FORWARD ? yd : pass == BACKWARD_DATA ? xd : wd;
                miopenConvAlgoPerf_t perf;
                int found;
#define FIND_ONLY(Name)                                                                                                 \
    miopenFindConvolution##Name##Algorithm(handle, a, any, b, any, conv, result, any, 1, &found, &perf, NULL, 0, false)
                in_miopen = 0;
                MIOPEN(BY_PASS(FIND_ONLY, pass));
                (time ? again : first)[pass][i] = in_miopen;
            }
        MIOPEN(miopenDestroyConvolutionDescriptor(conv));
        MIOPEN(miopenDestroyTensorDescriptor(xd));
        MIOPEN(miopenDestroyTensorDescriptor(wd));
        MIOPEN(miopenDestroyTensorDescriptor(yd));
    }
    for (int pass = 0; pass < 3; pass++) {
        char what[64];
        snprintf(what, sizeof what, "find, %s, a new shape", names[pass]);
        say(what, first[pass], SHAPES);
        snprintf(what, sizeof what, "find, %s, the same again", names[pass]);
        say(what, again[pass], SHAPES);
    }
    return 0;
}
