// Wrong use of convolution's calls: each has to be answered by a status, at once, with the result and everything else
// untouched, and to leave the library as it was. What a library may either do or refuse (other alphas, three dimensions,
// gaps between elements) has to be right or refused.
//
//     misuse [--behind] [--seed N]
//
// --behind leaves out what a MIOpen behind the drop-in answers itself: tensors are its own, and too many dimensions end it.

#include "torch_conv.h"

static struct layer good = {.kind = "conv", .name = "the right call", .g = {2, 8, 10, 10, 12, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, 0, 0}};
static int refused;

// A call that has to fail; with the same result as before, in memory that is still poisoned.
static void refuse(const char *what, miopenStatus_t status) {
    if (status == miopenStatusSuccess)
        fail("%s: success", what);
    for (int pass = 0; pass < 3; pass++) {
        struct tensor *t = &good.results[pass];
        if (!poisoned(t->device, t->count * size_of(t->type)))
            fail("%s: status %d, and yet something was written", what, status);
    }
    refused++;
}

// As `refuse`, with the status of a wrong argument.
static void bad(const char *what, miopenStatus_t status) {
    if (status != miopenStatusBadParm)
        fail("%s: status %d (%s), not that of a bad parameter", what, status, miopenGetErrorString(status));
    refuse(what, status);
}

// ---- the three passes' calls, with each argument in turn made wrong -----------------------------------------------------

// All that any of a pass's calls takes.
struct arguments {
    miopenHandle_t handle;
    struct operand a, b, ia, ib, result;
    miopenConvolutionDescriptor_t conv;
    const void *alpha, *beta;
    void *workspace;
    size_t workspace_bytes;
    uint64_t solution;
    int requested, *returned;
    miopenConvAlgoPerf_t *perf;
    size_t *size;
    miopenConvSolution_t *solutions;
};

enum family { SIZE, COUNT_OF, LIST, SOLUTION_SIZE, COMPILE, FIND_, RUN_, IMMEDIATE_, FAMILIES };
static const char *const family_names[] = {"GetWorkSpaceSize", "GetSolutionCount", "GetSolution", "GetSolutionWorkspaceSize",
                                           "CompileSolution",  "Find",             "run",         "Immediate"};

static miopenStatus_t call(enum family family, enum pass pass, const struct arguments *a) {
#define CALL(Name)                                                                                                      \
    (family == SIZE       ? miopenConvolution##Name##GetWorkSpaceSize(a->handle, a->ia.desc, a->ib.desc, a->conv,       \
                                                                      a->result.desc, a->size)                         \
     : family == COUNT_OF ? miopenConvolution##Name##GetSolutionCount(a->handle, a->ia.desc, a->ib.desc, a->conv,       \
                                                                      a->result.desc, a->size)                         \
     : family == LIST     ? miopenConvolution##Name##GetSolution(a->handle, a->ia.desc, a->ib.desc, a->conv,            \
                                                                 a->result.desc, 10, a->size, a->solutions)            \
     : family == SOLUTION_SIZE                                                                                          \
         ? miopenConvolution##Name##GetSolutionWorkspaceSize(a->handle, a->ia.desc, a->ib.desc, a->conv,                \
                                                             a->result.desc, a->solution, a->size)                     \
     : family == COMPILE ? miopenConvolution##Name##CompileSolution(a->handle, a->ia.desc, a->ib.desc, a->conv,         \
                                                                    a->result.desc, a->solution)                       \
     : family == FIND_                                                                                                  \
         ? miopenFindConvolution##Name##Algorithm(a->handle, a->a.desc, a->a.data, a->b.desc, a->b.data, a->conv,       \
                                                  a->result.desc, a->result.data, a->requested, a->returned, a->perf,   \
                                                  a->workspace, a->workspace_bytes, false)                              \
     : family == RUN_ ? miopenConvolution##Name(a->handle, a->alpha, a->a.desc, a->a.data, a->b.desc, a->b.data, a->conv, \
                                                a->perf ? a->perf->fwd_algo : 0, a->beta, a->result.desc,               \
                                                a->result.data, a->workspace, a->workspace_bytes)                       \
                      : miopenConvolution##Name##Immediate(a->handle, a->ia.desc, a->ia.data, a->ib.desc, a->ib.data,   \
                                                           a->conv, a->result.desc, a->result.data, a->workspace,       \
                                                           a->workspace_bytes, a->solution))
    return BY_PASS(CALL, pass);
}

static bool moves_data(enum family family) { return family == RUN_ || family == IMMEDIATE_; }

static const char *labelled(enum pass pass, enum family family, const char *what) {
    static char text[160];
    snprintf(text, sizeof text, "pass %d, %s, %s", pass, family_names[family], what);
    return text;
}

// The pointers that every call has, null and foreign, and the data of those that move any.
static void wrong_pointers(enum pass pass, enum family family, const struct arguments *right) {
    static char junk[4096];
    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = (char)random_bits();
    for (int which = 0; which < 5; which++)
        for (int foreign = 0; foreign < 2; foreign++) {
            struct arguments a = *right;
            void *value = foreign ? junk + 512 : NULL;
            const char *names[] = {"handle", "first tensor", "second tensor", "result's tensor", "convolution"};
            if (which == 0)
                a.handle = value;
            if (which == 1)
                a.a.desc = a.ia.desc = value;
            if (which == 2)
                a.b.desc = a.ib.desc = value;
            if (which == 3)
                a.result.desc = value;
            if (which == 4)
                a.conv = value;
            char what[64];
            snprintf(what, sizeof what, "%s %s", foreign ? "foreign" : "null", names[which]);
            bad(labelled(pass, family, what), call(family, pass, &a));
        }
    for (int which = 0; which < 3 && moves_data(family); which++)
        for (int host = 0; host < 2; host++) {
            struct arguments a = *right;
            void *value = host ? junk : NULL;
            if (which == 0)
                a.a.data = a.ia.data = value;
            if (which == 1)
                a.b.data = a.ib.data = value;
            if (which == 2)
                a.result.data = value;
            bad(labelled(pass, family, host ? "the host's data" : "null data"), call(family, pass, &a));
        }
    struct arguments a = *right;
    a.size = NULL, a.solutions = NULL, a.perf = NULL, a.returned = NULL, a.alpha = NULL, a.beta = NULL;
    if (family != COMPILE && family != IMMEDIATE_)
        bad(labelled(pass, family, "null where an answer or a factor belongs"), call(family, pass, &a));
    a = *right;
    a.requested = 0;
    if (family == FIND_)
        bad(labelled(pass, family, "none requested"), call(family, pass, &a));
    a = *right;
    a.solution = 0x7fffffffffffull;
    if (family == SOLUTION_SIZE || family == COMPILE || family == IMMEDIATE_)
        bad(labelled(pass, family, "an unknown solution"), call(family, pass, &a));
}

// A workspace that is too small, and none, where the call names a solution: others take a plan that fits.
static void small_workspace(enum pass pass, const struct arguments *right) {
    struct arguments a = *right;
    if (!right->workspace_bytes)
        return;
    a.workspace_bytes = right->workspace_bytes - 1;
    bad(labelled(pass, IMMEDIATE_, "too small a workspace"), call(IMMEDIATE_, pass, &a));
    printf("a workspace of %zu bytes was too small, %zu are wanted\n", a.workspace_bytes, right->workspace_bytes);
    a = *right;
    a.workspace = NULL;
    bad(labelled(pass, IMMEDIATE_, "no workspace"), call(IMMEDIATE_, pass, &a));
}

// Shapes and types that do not fit together.
static void wrong_shapes(enum pass pass, enum family family, const struct arguments *right, struct layer *l) {
    const struct {
        const char *what;
        int tensor, axis, by, type;
    } cases[] = {{"x has a channel too many", 0, 1, 1, -1}, {"w has a channel too few", 1, 1, -1, -1},
                 {"w has other outputs than y", 1, 0, 3, -1}, {"y is too high", 2, 2, 1, -1},
                 {"y has another batch", 2, 0, 1, -1},       {"x of f16 and w of f32", 0, 0, 0, miopenHalf},
                 {"y of f16 and x of f32", 2, 0, 0, miopenHalf}};
    struct tensor *tensors[] = {&l->x, &l->w, &l->dy};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensor t = *tensors[cases[i].tensor];
        t.size[cases[i].axis] += cases[i].by;
        if (cases[i].type >= 0)
            t.type = cases[i].type;
        miopenTensorDescriptor_t desc = describe(&t);
        struct arguments a = *right;
        // Which argument of the pass it is.
        miopenTensorDescriptor_t old = cases[i].tensor == 0   ? (pass == BACKWARD_DATA ? right->result.desc : pass == FORWARD ? right->a.desc : right->b.desc)
                                       : cases[i].tensor == 1 ? (pass == BACKWARD_WEIGHTS ? right->result.desc : right->b.desc)
                                                              : (pass == FORWARD ? right->result.desc : right->a.desc);
        struct operand *all[] = {&a.a, &a.b, &a.ia, &a.ib, &a.result};
        for (int k = 0; k < 5; k++)
            if (all[k]->desc == old)
                all[k]->desc = desc;
        refuse(labelled(pass, family, cases[i].what), call(family, pass, &a));
        MIOPEN(miopenDestroyTensorDescriptor(desc));
    }
    miopenTensorDescriptor_t empty;
    MIOPEN(miopenCreateTensorDescriptor(&empty));
    struct arguments a = *right;
    a.result.desc = empty;
    refuse(labelled(pass, family, "a tensor that was never set"), call(family, pass, &a));
    MIOPEN(miopenDestroyTensorDescriptor(empty));
}

static void destroyed(enum pass pass, enum family family, const struct arguments *right) {
    struct arguments a = *right;
    MIOPEN(miopenCreate(&a.handle));
    MIOPEN(miopenDestroy(a.handle));
    bad(labelled(pass, family, "a destroyed handle"), call(family, pass, &a));
    a = *right;
    MIOPEN(miopenCreateTensorDescriptor(&a.result.desc));
    MIOPEN(miopenDestroyTensorDescriptor(a.result.desc));
    bad(labelled(pass, family, "a destroyed tensor"), call(family, pass, &a));
    a = *right;
    MIOPEN(miopenCreateConvolutionDescriptor(&a.conv));
    MIOPEN(miopenDestroyConvolutionDescriptor(a.conv));
    bad(labelled(pass, family, "a destroyed convolution"), call(family, pass, &a));
    a = *right;
    a.conv = (miopenConvolutionDescriptor_t)(void *)right->result.desc;
    bad(labelled(pass, family, "a tensor for a convolution"), call(family, pass, &a));
}

static void wrong_calls(void) {
    // Workspaces first: the library tells no more than its first 256 messages.
    for (int round = 0; round < 6; round++) {
        int pass = round % 3;
        struct layer *l = &good;
        struct operand x = {describe(&l->x), l->x.device}, w = {describe(&l->w), l->w.device},
                       y = {describe(&l->dy), l->dy.device};
        struct arguments right = {.handle = get_handle(), .alpha = &one, .beta = &zero, .requested = 1};
        right.a = pass == FORWARD ? x : y, right.b = pass == BACKWARD_WEIGHTS ? x : w;
        right.ia = pass == FORWARD ? w : y, right.ib = pass == BACKWARD_DATA ? w : x;
        right.result = (struct operand){pass == FORWARD ? y.desc : pass == BACKWARD_DATA ? x.desc : w.desc,
                                        l->results[pass].device};
        MIOPEN(miopenCreateConvolutionDescriptor(&right.conv));
        MIOPEN(miopenInitConvolutionNdDescriptor(right.conv, 2, l->g.pad, l->g.stride, l->g.dilation, miopenConvolution));
        size_t size = 0;
        int returned;
        miopenConvAlgoPerf_t perf = {.time = 0};
        miopenConvSolution_t solutions[10] = {{.time = 0}};
        right.size = &size, right.returned = &returned, right.perf = &perf, right.solutions = solutions;
        MIOPEN(call(SIZE, pass, &right));
        void *most = right.workspace = take(right.workspace_bytes = size);
        MIOPEN(call(FIND_, pass, &right));
        MIOPEN(call(LIST, pass, &right));
        right.solution = solutions[0].solution_id;
        for (int family = 0; family < FAMILIES; family++) {
            right.workspace_bytes = family == RUN_        ? perf.memory
                                    : family == IMMEDIATE_ ? solutions[0].workspace_size
                                                           : size;
            right.workspace = right.workspace_bytes ? most : NULL;
            if (round < 3) {
                if (family == IMMEDIATE_)
                    small_workspace(pass, &right);
                continue;
            }
            wrong_pointers(pass, family, &right);
            wrong_shapes(pass, family, &right, l);
            destroyed(pass, family, &right);
        }
        give(most);
        MIOPEN(miopenDestroyConvolutionDescriptor(right.conv));
        miopenTensorDescriptor_t all[] = {x.desc, w.desc, y.desc};
        for (int i = 0; i < 3; i++)
            MIOPEN(miopenDestroyTensorDescriptor(all[i]));
    }
}

// ---- descriptors and handles -------------------------------------------------------------------------------------------

static void wrong_tensors(miopenTensorDescriptor_t tensor) {
    const int size[] = {2, 3, 4, 5}, stride[] = {60, 20, 5, 1}, negative[] = {2, -3, 4, 5};
    refuse("a negative length", miopenSetTensorDescriptor(tensor, miopenFloat, 4, negative, stride));
    refuse("null lengths", miopenSetTensorDescriptor(tensor, miopenFloat, 4, NULL, stride));
    refuse("far too many dimensions", miopenSetTensorDescriptor(tensor, miopenFloat, 1 << 20, size, stride));
    refuse("a type that is none", miopenSetTensorDescriptor(tensor, 77, 4, size, stride));
}

static void wrong_descriptors(bool behind) {
    miopenConvolutionDescriptor_t conv;
    MIOPEN(miopenCreateConvolutionDescriptor(&conv));
    const int ok[] = {1, 1}, none[] = {0, 1}, less[] = {1, -1};
    refuse("a negative pad", miopenInitConvolutionNdDescriptor(conv, 2, less, ok, ok, miopenConvolution));
    refuse("a stride of none", miopenInitConvolutionNdDescriptor(conv, 2, ok, none, ok, miopenConvolution));
    refuse("a dilation of none", miopenInitConvolutionNdDescriptor(conv, 2, ok, ok, none, miopenConvolution));
    refuse("dimensions below none", miopenInitConvolutionNdDescriptor(conv, -1, ok, ok, ok, miopenConvolution));
    refuse("null pads", miopenInitConvolutionNdDescriptor(conv, 2, NULL, ok, ok, miopenConvolution));
    refuse("a mode that is none", miopenInitConvolutionNdDescriptor(conv, 2, ok, ok, ok, 77));
    MIOPEN(miopenDestroyConvolutionDescriptor(conv));
    refuse("a convolution destroyed twice", miopenDestroyConvolutionDescriptor(conv));
    miopenTensorDescriptor_t tensor;
    MIOPEN(miopenCreateTensorDescriptor(&tensor));
    if (!behind)
        wrong_tensors(tensor);
    MIOPEN(miopenDestroyTensorDescriptor(tensor));
    refuse("a tensor destroyed twice", miopenDestroyTensorDescriptor(tensor));
    miopenHandle_t spare;
    MIOPEN(miopenCreate(&spare));
    MIOPEN(miopenDestroy(spare));
    refuse("a handle destroyed twice", miopenDestroy(spare));
    refuse("a destroyed handle's stream", miopenSetStream(spare, stream));
}

// Right, or refused with the result as it was: y = 2 conv(x) + y / 2.
static void other_factors(void) {
    struct layer *l = &good;
    float alpha = 2, beta = 0.5f;
    struct tensor *y = &l->results[FORWARD];
    randomise(y, 0);
    void *before = memcpy(malloc(y->count * 4), y->host, y->count * 4);
    upload(y);
    miopenTensorDescriptor_t x = describe(&l->x), w = describe(&l->w), to = describe(y);
    miopenConvolutionDescriptor_t conv;
    MIOPEN(miopenCreateConvolutionDescriptor(&conv));
    MIOPEN(miopenInitConvolutionNdDescriptor(conv, 2, l->g.pad, l->g.stride, l->g.dilation, miopenConvolution));
    size_t most = 0;
    MIOPEN(miopenConvolutionForwardGetWorkSpaceSize(get_handle(), w, x, conv, to, &most));
    void *workspace = take(most);
    miopenStatus_t status = miopenConvolutionForward(handle, &alpha, x, l->x.device, w, l->w.device, conv, 0, &beta, to,
                                                     y->device, workspace, most);
    download(y);
    struct sums sums = convolve(FORWARD, &l->g, &l->x, &l->w, &l->dy);
    for (size_t i = 0; i < y->count; i++) {
        sums.sum[i] = 2 * sums.sum[i] + 0.5 * load(miopenFloat, before, i);
        sums.magnitude[i] = 2 * sums.magnitude[i] + 1;
    }
    if (status == miopenStatusSuccess)
        compare("factors of 2 and 1/2", y, &sums);
    else if (memcmp(before, y->host, y->count * 4))
        fail("factors of 2 and 1/2 were refused, and yet something was written");
    printf("factors of 2 and 1/2: %s\n", status ? "refused" : "right");
    free_sums(&sums);
    give(workspace);
    poison(y);
    MIOPEN(miopenDestroyConvolutionDescriptor(conv));
}

// Three dimensions: a box filter of 2x2x2 over ones is 8 everywhere, or refused.
static void three_dimensions(void) {
    const int xs[] = {1, 1, 3, 4, 5}, ws[] = {1, 1, 2, 2, 2}, ys[] = {1, 1, 2, 3, 4}, ones[] = {1, 1, 1}, none[] = {0, 0, 0};
    const int xt[] = {60, 60, 20, 5, 1}, wt[] = {8, 8, 4, 2, 1}, yt[] = {24, 24, 12, 4, 1};
    miopenTensorDescriptor_t x, w, y;
    miopenConvolutionDescriptor_t conv;
    MIOPEN(miopenCreateTensorDescriptor(&x));
    MIOPEN(miopenCreateTensorDescriptor(&w));
    MIOPEN(miopenCreateTensorDescriptor(&y));
    MIOPEN(miopenCreateConvolutionDescriptor(&conv));
    miopenStatus_t status = miopenSetTensorDescriptor(x, miopenFloat, 5, xs, xt);
    if (!status)
        status = miopenSetTensorDescriptor(w, miopenFloat, 5, ws, wt);
    if (!status)
        status = miopenSetTensorDescriptor(y, miopenFloat, 5, ys, yt);
    if (!status)
        status = miopenInitConvolutionNdDescriptor(conv, 3, none, ones, ones, miopenConvolution);
    struct tensor data = tensor_of(miopenFloat, 1, 1, 6, 10, false), result = tensor_of(miopenFloat, 1, 1, 6, 4, false);
    for (size_t i = 0; i < data.count; i++)
        store(miopenFloat, data.host, i, 1);
    upload(&data);
    poison(&result);
    size_t most = 0;
    if (!status)
        status = miopenConvolutionForwardGetWorkSpaceSize(get_handle(), w, x, conv, y, &most);
    void *workspace = take(most);
    if (!status)
        status = miopenConvolutionForward(handle, &one, x, data.device, w, data.device, conv, 0, &zero, y, result.device,
                                          workspace, most);
    if (status && !poisoned(result.device, result.count * 4))
        fail("three dimensions were refused, and yet something was written");
    download(&result);
    for (size_t i = 0; !status && i < result.count; i++)
        if (load(miopenFloat, result.host, i) != 8)
            fail("three dimensions: %g, not 8", load(miopenFloat, result.host, i));
    printf("three dimensions: %s\n", status ? "refused" : "right");
    give(workspace);
}

int main(int count, char **args) {
    bool behind = count > 1 && !strcmp(args[1], "--behind");
    args += behind, count -= behind;
    seed_with(count > 2 && !strcmp(args[1], "--seed") ? args[2] : NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    heap_open((size_t)16 << 20);
    conv_make(&good);
    for (int pass = 0; pass < 3; pass++)
        poison(&good.results[pass]);
    wrong_descriptors(behind);
    wrong_calls();
    other_factors();
    three_dimensions();
    check_guards();
    printf("%d wrong calls were refused\n", refused);
    // And the right ones still are.
    conv_forward(&good);
    conv_backward(&good);
    conv_check(&good);
    puts("passed");
    return 0;
}
