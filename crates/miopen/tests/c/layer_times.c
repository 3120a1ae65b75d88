// How long each convolution takes by the card's clock, with whatever MIOpen this is linked to: Find first, then the
// algorithm that it put first, twice; the second call counts.
//
//     layer_times [--dtype f16] < suites/nets/resnet50.txt
//
// Reads MIOpenDriver lines. Prints `MS PASS LINE` for each pass, or `-` where this MIOpen cannot; to stdout. On the virtual card
// with `--time --sample` the clock is the modelled one. `make model-miopen` runs it.

#include "card.h"

enum { LINE = 512, FAILED = -1 };
static const char *const passes[] = {"fwd", "bwd", "wrw"};

// The number after `-name`, or what holds without it.
static int option(const char *line, const char *name, int otherwise) {
    const char *at = strstr(line, name);
    return at ? atoi(at + strlen(name)) : otherwise;
}

static miopenTensorDescriptor_t tensor(miopenDataType_t type, int n, int c, int h, int w) {
    miopenTensorDescriptor_t made;
    MIOPEN(miopenCreateTensorDescriptor(&made));
    MIOPEN(miopenSet4dTensorDescriptor(made, type, n, c, h, w));
    return made;
}

static void *memory(size_t bytes) {
    void *made = NULL;
    HIP(hipMalloc(&made, bytes ? bytes : 4));
    return made;
}

// The second call's time, by events around it.
#define TIME(Name, ad, a, bd, b, rd, r)                                                                                 \
    do {                                                                                                                \
        size_t bytes = 0;                                                                                               \
        int found = 0;                                                                                                  \
        miopenConvAlgoPerf_t perf = {0};                                                                                \
        float one = 1, zero = 0;                                                                                        \
        if (miopenConvolution##Name##GetWorkSpaceSize(handle, WORKSPACE_##Name, &bytes)) break;                         \
        void *workspace = memory(bytes);                                                                                \
        if (!miopenFindConvolution##Name##Algorithm(handle, ad, a, bd, b, conv, rd, r, 1, &found, &perf, workspace,      \
                                                    bytes, false) &&                                                    \
            found) {                                                                                                    \
            int failed = 0;                                                                                             \
            for (int i = 0; i < 2; i++) {                                                                               \
                HIP(hipEventRecord(start, NULL));                                                                       \
                failed |= miopenConvolution##Name(handle, &one, ad, a, bd, b, conv, ALGORITHM_##Name, &zero, rd, r,      \
                                                  workspace, bytes);                                                    \
                HIP(hipEventRecord(end, NULL));                                                                         \
                HIP(hipDeviceSynchronize());                                                                            \
            }                                                                                                           \
            if (!failed) HIP(hipEventElapsedTime(&ms, start, end));                                                     \
        }                                                                                                               \
        HIP(hipFree(workspace));                                                                                        \
    } while (0)
#define WORKSPACE_Forward wd, xd, conv, yd
#define WORKSPACE_BackwardData yd, wd, conv, xd
#define WORKSPACE_BackwardWeights yd, xd, conv, wd
#define ALGORITHM_Forward perf.fwd_algo
#define ALGORITHM_BackwardData perf.bwd_data_algo
#define ALGORITHM_BackwardWeights perf.bwd_weights_algo

int main(int count, char **args) {
    miopenDataType_t type = count > 2 && !strcmp(args[2], "f16") ? miopenHalf : miopenFloat;
    miopenHandle_t handle;
    hipEvent_t start, end;
    MIOPEN(miopenCreate(&handle));
    HIP(hipEventCreate(&start));
    HIP(hipEventCreate(&end));
    char line[LINE];
    while (fgets(line, sizeof line, stdin)) {
        if (line[0] == '#' || !strstr(line, "conv ")) continue;
        line[strcspn(line, "\n")] = 0;
        int n = option(line, " -n ", 1), c = option(line, " -c ", 1), h = option(line, " -H ", 1), w = option(line, " -W ", 1);
        int k = option(line, " -k ", 1), r = option(line, " -y ", 1), s = option(line, " -x ", 1), groups = option(line, " -g ", 1);
        int pad[] = {option(line, " -p ", 0), option(line, " -q ", 0)}, step[] = {option(line, " -u ", 1), option(line, " -v ", 1)};
        int dilation[] = {option(line, " -l ", 1), option(line, " -j ", 1)};
        int p = (h + 2 * pad[0] - dilation[0] * (r - 1) - 1) / step[0] + 1;
        int q = (w + 2 * pad[1] - dilation[1] * (s - 1) - 1) / step[1] + 1;
        miopenTensorDescriptor_t xd = tensor(type, n, c, h, w), wd = tensor(type, k, c / groups, r, s), yd = tensor(type, n, k, p, q);
        miopenConvolutionDescriptor_t conv;
        MIOPEN(miopenCreateConvolutionDescriptor(&conv));
        MIOPEN(miopenInitConvolutionNdDescriptor(conv, 2, pad, step, dilation, miopenConvolution));
        MIOPEN(miopenSetConvolutionGroupCount(conv, groups));
        size_t each = size_of(type);
        void *x = memory(each * n * c * h * w), *f = memory(each * k * (c / groups) * r * s), *y = memory(each * n * k * p * q);
        for (int pass = 0; pass < 3; pass++) {
            float ms = FAILED;
            if (pass == 0) TIME(Forward, xd, x, wd, f, yd, y);
            if (pass == 1) TIME(BackwardData, yd, y, wd, f, xd, x);
            if (pass == 2) TIME(BackwardWeights, yd, y, xd, x, wd, f);
            if (ms < 0)
                printf("- %s %s\n", passes[pass], line);
            else
                printf("%.6f %s %s\n", ms, passes[pass], line);
            fflush(stdout);
        }
        HIP(hipFree(x));
        HIP(hipFree(f));
        HIP(hipFree(y));
        MIOPEN(miopenDestroyConvolutionDescriptor(conv));
        MIOPEN(miopenDestroyTensorDescriptor(xd));
        MIOPEN(miopenDestroyTensorDescriptor(wd));
        MIOPEN(miopenDestroyTensorDescriptor(yd));
    }
    return 0;
}
