// Random convolutions through every way to ask for one: tensors with strides of all kinds and at odd addresses, lines,
// images and volumes of one layer, transposed, grouped, with factors; each algorithm that Find names in the workspace that
// it names and in none; each solution of Immediate mode; captured into a graph. All against f64 loops.
//
//     convolutions [--seed N] [--count N]

#include "reference.h"

#ifndef REAL_HEADER
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphExec *hipGraphExec_t;
int hipStreamBeginCapture(hipStream_t, int mode);
int hipStreamEndCapture(hipStream_t, hipGraph_t *);
int hipGraphInstantiate(hipGraphExec_t *, hipGraph_t, void *node, char *log, size_t);
int hipGraphLaunch(hipGraphExec_t, hipStream_t);
int hipGraphExecDestroy(hipGraphExec_t);
int hipGraphDestroy(hipGraph_t);
int hipRuntimeGetVersion(int *);
#endif

static int below(int n) { return (int)(random_bits() % (uint64_t)n); }

// A tensor with strides of some kind; `count` is all elements from the first to the last, gaps too.
static struct tensor strided(miopenDataType_t type, int n, int c, int h, int w, int kind) {
    struct tensor t = {.size = {n, c, h, w}, .dims = 4, .type = type};
    static const int orders[4][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {0, 1, 2, 3}, {1, 0, 3, 2}};
    int stride = 1;
    for (int i = 3; i >= 0; i--) {
        int d = orders[kind][i];
        t.stride[d] = stride;
        stride *= t.size[d] + (kind >= 2 && i > 0 ? below(2) : 0);
    }
    t.count = 1;
    for (int d = 0; d < 4; d++)
        t.count += (size_t)(t.size[d] - 1) * t.stride[d];
    t.host = malloc(t.count * size_of(type));
    // Now and then not where an allocation begins.
    size_t shift = below(4) ? 0 : (size_t)(1 + below(5)) * size_of(type);
    t.device = (char *)take(t.count * size_of(type) + shift) + shift;
    return t;
}

static void release(struct tensor *t) {
    for (int i = 0; i < range_count; i++) {
        char *start = heap + ranges[i].at;
        if ((char *)t->device >= start && (char *)t->device < start + ranges[i].bytes) {
            give(start);
            break;
        }
    }
    free(t->host);
}

// Elements random, gaps poison; or all of it poison.
static void fill(struct tensor *t, bool random) {
    memset(t->host, POISON, t->count * size_of(t->type));
    for (int n = 0; random && n < t->size[0]; n++)
        for (int c = 0; c < t->size[1]; c++)
            for (int h = 0; h < t->size[2]; h++)
                for (int w = 0; w < t->size[3]; w++)
                    store(t->type, t->host, at(t, n, c, h, w), random_number());
    upload(t);
}

static miopenTensorDescriptor_t describe(const struct tensor *t, int dims) {
    static const int axes[3][5] = {{0, 1, 3}, {0, 1, 2, 3}, {0, 1, -1, 2, 3}};
    int size[5], stride[5];
    for (int i = 0; i < dims; i++) {
        int axis = axes[dims - 3][i];
        size[i] = axis < 0 ? 1 : t->size[axis], stride[i] = axis < 0 ? 1 : t->stride[axis];
    }
    miopenTensorDescriptor_t desc;
    MIOPEN(miopenCreateTensorDescriptor(&desc));
    MIOPEN(miopenSetTensorDescriptor(desc, t->type, dims, size, stride));
    return desc;
}

// What was asked for: factors, the result before, and the sums.
struct wanted {
    float alpha, beta;
    const void *before;
    struct sums sums;
};

static void check(const char *what, struct tensor *got, const struct wanted *want) {
    download(got);
    bool *element = calloc(got->count, 1);
    double ulp = half_ulp(got->type);
    for (int n = 0; n < got->size[0]; n++)
        for (int c = 0; c < got->size[1]; c++)
            for (int h = 0; h < got->size[2]; h++)
                for (int w = 0; w < got->size[3]; w++) {
                    size_t i = at(got, n, c, h, w);
                    element[i] = true;
                    double made = want->alpha * want->sums.sum[i], kept = 0;
                    if (want->beta != 0)
                        kept = want->beta * load(got->type, want->before, i);
                    double value = load(got->type, got->host, i);
                    double allowed = 1.01 * ulp * (fabs(made + kept) + (want->alpha == 1 && want->beta == 0 ? 0 : fabs(made))) +
                                     16 * 0x1p-24 * (fabs(want->alpha) * want->sums.magnitude[i] + fabs(kept));
                    if (got->type == miopenHalf)
                        allowed += 0x1p-23; // subnormals
                    if (!(fabs(value - made - kept) <= allowed))
                        fail("%s: [%d %d %d %d] is %.9g, not %.9g (%.2g allowed)", what, n, c, h, w, value, made + kept, allowed);
                }
    for (size_t i = 0; i < got->count * size_of(got->type); i++)
        if (!element[i / size_of(got->type)] && ((unsigned char *)got->host)[i] != POISON)
            fail("%s: the gap at byte %zu was written", what, i);
    free(element);
}

#define BY_PASS(family, pass)                                                                                           \
    ((pass) == FORWARD         ? family(Forward)                                                                        \
     : (pass) == BACKWARD_DATA ? family(BackwardData)                                                                   \
                               : family(BackwardWeights))

static int ran[6];

static void problem(int number, miopenHandle_t handle) {
    static const miopenDataType_t types[] = {miopenFloat, miopenHalf, miopenBFloat16};
    miopenDataType_t type = types[below(3)];
    enum pass pass = (enum pass)below(3);
    bool transposed = below(4) == 0;
    int dims = 3 + below(3);
    struct geometry g = {.n = 1 + below(3), .groups = below(3) ? 1 : 1 + below(3)};
    g.c = g.groups * (1 + below(6)), g.k = g.groups * (1 + below(6));
    for (int i = 0; i < 2; i++)
        g.stride[i] = 1 + below(3), g.dilation[i] = 1 + below(2), g.pad[i] = below(3);
    g.r = 1 + below(3), g.s = 1 + below(3), g.h = 4 + below(8), g.w = 4 + below(8);
    if (dims == 3)
        g.r = g.h = 1, g.pad[0] = 0, g.stride[0] = 1;
    int room[2] = {g.h + 2 * g.pad[0] - (g.r - 1) * g.dilation[0] - 1, g.w + 2 * g.pad[1] - (g.s - 1) * g.dilation[1] - 1};
    if (room[0] < 0 || room[1] < 0)
        return;
    g.p = room[0] / g.stride[0] + 1, g.q = room[1] / g.stride[1] + 1;

    // Large and small images of the plain convolution; the transposed one has them the other way round.
    int kind = below(3) == 0 ? -1 : below(2);
#define KIND (kind < 0 ? below(4) : kind)
    struct tensor large = strided(type, g.n, g.c, g.h, g.w, KIND), small = strided(type, g.n, g.k, g.p, g.q, KIND),
                  weights = strided(type, g.k, g.c / g.groups, g.r, g.s, KIND);
    enum pass plain = !transposed || pass == BACKWARD_WEIGHTS ? pass : pass == FORWARD ? BACKWARD_DATA : FORWARD;
    struct tensor *x = transposed ? &small : &large, *y = transposed ? &large : &small;
    struct tensor *a = pass == FORWARD ? x : y, *b = pass == BACKWARD_WEIGHTS ? x : &weights;
    struct tensor *result = pass == FORWARD ? y : pass == BACKWARD_DATA ? x : &weights;
    struct tensor *ia = pass == FORWARD ? b : a, *ib = pass == FORWARD ? a : b;
    struct wanted want = {.alpha = 1};
    if (below(4) == 0)
        want.alpha = 0.5f + (float)below(4), want.beta = (float)(below(3) - 1) * 0.75f;
    fill(a, true);
    fill(b, true);
    want.sums = convolve(plain, &g, &large, &weights, &small);
    fill(result, want.beta != 0);
    size_t bytes = result->count * size_of(type);
    want.before = memcpy(malloc(bytes), result->host, bytes);

    miopenConvolutionDescriptor_t conv;
    MIOPEN(miopenCreateConvolutionDescriptor(&conv));
    int pad[3] = {0, g.pad[0], g.pad[1]}, stride[3] = {1 + below(3), g.stride[0], g.stride[1]};
    int dilation[3] = {1 + below(3), g.dilation[0], g.dilation[1]}, skip = 5 - dims;
    MIOPEN(miopenInitConvolutionNdDescriptor(conv, dims - 2, pad + skip, stride + skip, dilation + skip,
                                             transposed ? miopenTranspose : miopenConvolution));
    MIOPEN(miopenSetConvolutionGroupCount(conv, g.groups));
    miopenTensorDescriptor_t ad = describe(a, dims), bd = describe(b, dims), rd = describe(result, dims);
    miopenTensorDescriptor_t iad = pass == FORWARD ? bd : ad, ibd = pass == FORWARD ? ad : bd;
    MIOPEN(miopenSetStream(handle, stream));

    static const char *const passes[] = {"forward", "backward data", "backward weights"};
    char what[320];
    snprintf(what, sizeof what, "%d: %s%s of type %d, n %d c %d %dx%d to k %d, %dx%d by %d %d, pad %d %d, dilation %d %d, %d groups, "
             "%d dims, strides %d, factors %g %g", number, transposed ? "transposed " : "", passes[pass], type, g.n, g.c, g.h, g.w,
             g.k, g.r, g.s, g.stride[0], g.stride[1], g.pad[0], g.pad[1], g.dilation[0], g.dilation[1], g.groups, dims, kind,
             want.alpha, want.beta);
    size_t most = 0;
#define SIZE(Name) miopenConvolution##Name##GetWorkSpaceSize(handle, iad, ibd, conv, rd, &most)
    MIOPEN(BY_PASS(SIZE, pass));
    void *workspace = take(most);
    miopenConvAlgoPerf_t perfs[8];
    int found = 0;
#define FIND(Name)                                                                                                      \
    miopenFindConvolution##Name##Algorithm(handle, ad, a->device, bd, b->device, conv, rd, result->device, 8, &found,   \
                                           perfs, workspace, most, false)
    MIOPEN(BY_PASS(FIND, pass));
    if (found < 1)
        fail("%s: Find has no answer", what);

    // One way or another.
    static const char *const ways[] = {"by Find", "without workspace", "as a graph", "by number", "compiled", "in little workspace"};
    int way = below(6);
    snprintf(what + strlen(what), sizeof what - strlen(what), ", %s", ways[way]);
    miopenConvAlgoPerf_t perf = perfs[below(found)];
    void *space = way == 1 ? NULL : workspace;
    size_t size = way == 1 ? 0 : perf.memory;
#define RUN(Name)                                                                                                       \
    miopenConvolution##Name(handle, &want.alpha, ad, a->device, bd, b->device, conv, perf.fwd_algo, &want.beta, rd,     \
                            result->device, space, size)
    if (way == 0 || way == 1) {
        MIOPEN(BY_PASS(RUN, pass));
    } else if (way == 2) {
        // What waits or allocates would spoil the capture.
        MIOPEN(BY_PASS(RUN, pass)); // loads the kernels
        HIP(hipStreamSynchronize(stream));
        HIP(hipMemcpyAsync(result->device, want.before, bytes, hipMemcpyHostToDevice, stream));
        HIP(hipStreamSynchronize(stream));
        hipGraph_t graph;
        hipGraphExec_t ready;
        HIP(hipStreamBeginCapture(stream, 0));
        miopenStatus_t status = BY_PASS(RUN, pass);
        HIP(hipStreamEndCapture(stream, &graph));
        int version;
        HIP(hipRuntimeGetVersion(&version));
        // Older runtimes run such launches at once instead of capturing them.
        if (status != (version < 50600000 ? miopenStatusNotImplemented : miopenStatusSuccess))
            fail("%s: status %d of a captured call under HIP %d", what, status, version);
        if (status) {
            MIOPEN(BY_PASS(RUN, pass));
            goto done;
        }
        HIP(hipGraphInstantiate(&ready, graph, NULL, NULL, 0));
        for (int launch = 0; launch < (want.beta == 0 ? 2 : 1); launch++)
            HIP(hipGraphLaunch(ready, stream));
        HIP(hipStreamSynchronize(stream));
        HIP(hipGraphExecDestroy(ready));
        HIP(hipGraphDestroy(graph));
    } else {
        want.alpha = 1, want.beta = 0;
        miopenConvSolution_t list[10];
        size_t count = 0;
#define LIST(Name) miopenConvolution##Name##GetSolution(handle, iad, ibd, conv, rd, 10, &count, list)
        MIOPEN(BY_PASS(LIST, pass));
        if (count < 1)
            fail("%s: no solution", what);
        miopenConvSolution_t one = list[below((int)count)];
        size = way == 5 && one.workspace_size ? one.workspace_size - 1 : one.workspace_size;
        space = take(size);
        if (way == 4) {
#define COMPILE(Name) miopenConvolution##Name##CompileSolution(handle, iad, ibd, conv, rd, one.solution_id)
            MIOPEN(BY_PASS(COMPILE, pass));
        }
        fill(result, false);
#define IMMEDIATE(Name)                                                                                                 \
    miopenConvolution##Name##Immediate(handle, iad, ia->device, ibd, ib->device, conv, rd, result->device, space, size, \
                                       one.solution_id)
        miopenStatus_t status = BY_PASS(IMMEDIATE, pass);
        if (status == miopenStatusBadParm && size < one.workspace_size) {
            if (!poisoned(result->device, bytes))
                fail("%s: refused, and the result was written", what);
            space = take(size = one.workspace_size);
            status = BY_PASS(IMMEDIATE, pass);
        }
        MIOPEN(status);
    }
done:
    HIP(hipStreamSynchronize(stream));
    ran[way]++;
    check(what, result, &want);
    check_guards();
    MIOPEN(miopenDestroyConvolutionDescriptor(conv));
    MIOPEN(miopenDestroyTensorDescriptor(ad));
    MIOPEN(miopenDestroyTensorDescriptor(bd));
    MIOPEN(miopenDestroyTensorDescriptor(rd));
    free((void *)want.before);
    free_sums(&want.sums);
    release(&large), release(&small), release(&weights);
    while (range_count)
        give(heap + ranges[0].at);
}

int main(int count, char **args) {
    const char *repeat = NULL;
    int problems = 60;
    for (int i = 1; i + 1 < count; i += 2) {
        if (!strcmp(args[i], "--seed"))
            repeat = args[i + 1];
        else
            problems = atoi(args[i + 1]);
    }
    seed_with(repeat);
    printf("seed %llu\n", (unsigned long long)seed);
    hipStream_t streams[2];
    HIP(hipStreamCreate(&streams[0]));
    HIP(hipStreamCreate(&streams[1]));
    stream = streams[0];
    heap_open((size_t)8 << 20);
    miopenHandle_t handle;
    MIOPEN(miopenCreate(&handle));
    for (int i = 0; i < problems; i++) {
        HIP(hipStreamSynchronize(stream));
        stream = streams[below(2)];
        problem(i, handle);
    }
    HIP(hipStreamSynchronize(stream));
    MIOPEN(miopenDestroy(handle));
    printf("by Find %d, without workspace %d, as a graph %d, by Immediate mode %d\n", ran[0], ran[1], ran[2],
           ran[3] + ran[4] + ran[5]);
    puts("passed");
    return 0;
}
