// PyTorch's convolutions: Conv_miopen.cpp.
#pragma once

#include "torch.h"

// An operand: its descriptor and its address.
struct operand {
    miopenTensorDescriptor_t desc;
    void *data;
};

// Forward, the calls that find and that run an algorithm take x before w, and those of immediate mode and of the
// workspace's size w before x. Backward, all take dy first.
struct call {
    miopenHandle_t handle;
    struct operand a, b;   // as found and run
    struct operand ia, ib; // as asked for and run in immediate mode
    struct operand result;
    size_t result_bytes;
    miopenConvolutionDescriptor_t conv;
};

// The pass's function of a family; the three have the same shape.
#define BY_PASS(family, pass)                                                                                           \
    ((pass) == FORWARD         ? family(Forward)                                                                        \
     : (pass) == BACKWARD_DATA ? family(BackwardData)                                                                   \
                               : family(BackwardWeights))

static size_t workspace_size(enum pass pass, const struct call *c) {
    size_t bytes = 0;
#define GET(Name) miopenConvolution##Name##GetWorkSpaceSize(c->handle, c->ia.desc, c->ib.desc, c->conv, c->result.desc, &bytes)
    MIOPEN(BY_PASS(GET, pass));
    return bytes;
}

// `findAlgorithm`: the fastest, asked for with all the workspace that any may want.
static void find(enum pass pass, const struct call *c, struct layer *layer) {
    if (layer->found[pass])
        return;
    miopenConvAlgoPerf_t perf = {.time = -1};
    int count = -1;
    size_t most = workspace_size(pass, c);
    void *workspace = take(most);
#define FIND(Name)                                                                                                      \
    miopenFindConvolution##Name##Algorithm(c->handle, c->a.desc, c->a.data, c->b.desc, c->b.data, c->conv,              \
                                           c->result.desc, c->result.data, 1, &count, &perf, workspace, most,           \
                                           options.torch >= 209 && options.benchmark)
    MIOPEN(BY_PASS(FIND, pass));
    if (count != 1 || perf.memory > most || !(perf.time >= 0) || !isfinite(perf.time))
        fail("%s: find returned %d algorithms, %zu of %zu bytes of workspace, %g ms", layer->name, count, perf.memory, most,
             perf.time);
    if (!poisoned(c->result.data, c->result_bytes) ||
        (workspace && !poisoned(workspace, most)))
        fail("%s: find wrote to the result or the workspace", layer->name);
    give(workspace);
    layer->found[pass] = true;
    layer->algorithm[pass] = perf.fwd_algo;
    layer->workspace[pass] = perf.memory;
}

// `getSolution`: the first of the list, or what PyTorch takes when that one's workspace cannot be had.
static miopenConvSolution_t solution(enum pass pass, const struct call *c, bool force_default) {
    size_t most = 0, count = 0;
    miopenConvSolution_t list[MAX_SOLUTIONS];
#define COUNT(Name) miopenConvolution##Name##GetSolutionCount(c->handle, c->ia.desc, c->ib.desc, c->conv, c->result.desc, &most)
    MIOPEN(BY_PASS(COUNT, pass));
    if (most < 1 || most > MAX_SOLUTIONS)
        fail("%zu solutions; PyTorch takes 1 to %d", most, MAX_SOLUTIONS);
#define SOLUTIONS(Name)                                                                                                 \
    miopenConvolution##Name##GetSolution(c->handle, c->ia.desc, c->ib.desc, c->conv, c->result.desc, most, &count, list)
    MIOPEN(BY_PASS(SOLUTIONS, pass));
    if (count < 1 || count > most)
        fail("%zu solutions, and %zu were announced", count, most);
    for (size_t i = 0; force_default && i < count; i++)
        if (list[i].algorithm == miopenConvolutionAlgoGEMM)
            return list[i];
    for (size_t i = 0; force_default && i < count; i++)
        if (list[i].workspace_size == 0)
            return list[i];
    return list[0];
}

static void run(enum pass pass, const struct call *c, struct layer *layer) {
    bool immediate = options.torch >= 209 ? options.immediate : options.deterministic && !options.benchmark;
    if (immediate) {
        miopenConvSolution_t s = solution(pass, c, options.oom);
        void *workspace = take(s.workspace_size);
#define IMMEDIATE(Name)                                                                                                 \
    miopenConvolution##Name##Immediate(c->handle, c->ia.desc, c->ia.data, c->ib.desc, c->ib.data, c->conv,              \
                                       c->result.desc, c->result.data, workspace, s.workspace_size, s.solution_id)
        MIOPEN(BY_PASS(IMMEDIATE, pass));
        give(workspace);
        return;
    }
    if (options.oom) {
        layer->algorithm[pass] = 0; // GEMM in all three enumerations, whatever find would have said
        layer->workspace[pass] = workspace_size(pass, c);
    } else {
        find(pass, c, layer);
    }
    void *workspace = take(layer->workspace[pass]);
#define RUN(Name)                                                                                                       \
    miopenConvolution##Name(c->handle, &one, c->a.desc, c->a.data, c->b.desc, c->b.data, c->conv,                       \
                            layer->algorithm[pass], &zero, c->result.desc, c->result.data, workspace,                   \
                            layer->workspace[pass])
    MIOPEN(BY_PASS(RUN, pass));
    give(workspace);
}

// One pass of a layer with descriptors of its own, as each of PyTorch's functions makes them.
static void pass_of(enum pass pass, struct layer *layer) {
    const struct geometry *g = &layer->g;
    struct tensor *result = &layer->results[pass];
    struct operand x = {describe(&layer->x), layer->x.device}, w = {describe(&layer->w), layer->w.device},
                   y = {describe(&layer->dy), layer->dy.device};
    struct call c = {.handle = get_handle(), .result_bytes = result->count * size_of(result->type)};
    c.a = pass == FORWARD ? x : y;
    c.b = pass == BACKWARD_WEIGHTS ? x : w;
    c.ia = pass == FORWARD ? w : y;
    c.ib = pass == BACKWARD_DATA ? w : x;
    c.result.desc = pass == FORWARD ? y.desc : pass == BACKWARD_DATA ? x.desc : w.desc;
    c.result.data = result->device;
    MIOPEN(miopenCreateConvolutionDescriptor(&c.conv));
    MIOPEN(miopenInitConvolutionNdDescriptor(c.conv, 2, g->pad, g->stride, g->dilation,
                                             strcmp(layer->kind, "depthwise") ? miopenConvolution : miopenDepthwise));
    MIOPEN(miopenSetConvolutionGroupCount(c.conv, g->groups));
    if (options.torch >= 209 || (options.torch >= 202 && options.deterministic))
        MIOPEN(miopenSetConvolutionAttribute(c.conv, MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC, options.deterministic));
    if (options.torch >= 209 && options.benchmark)
        MIOPEN(miopenSetConvolutionFindMode(c.conv, miopenConvolutionFindModeNormal));
    run(pass, &c, layer);
    MIOPEN(miopenDestroyConvolutionDescriptor(c.conv));
    MIOPEN(miopenDestroyTensorDescriptor(x.desc));
    MIOPEN(miopenDestroyTensorDescriptor(w.desc));
    MIOPEN(miopenDestroyTensorDescriptor(y.desc));
}

static void bias_forward(struct layer *layer) {
    struct tensor *y = &layer->results[FORWARD];
    miopenTensorDescriptor_t b = describe(&layer->b), to = describe(y);
    MIOPEN(miopenConvolutionForwardBias(get_handle(), &one, b, layer->b.device, &zero, to, y->device));
    MIOPEN(miopenDestroyTensorDescriptor(b));
    MIOPEN(miopenDestroyTensorDescriptor(to));
}

static void bias_backward(struct layer *layer) {
    struct tensor *db = &layer->results[3];
    miopenTensorDescriptor_t to = describe(db), dy = describe(&layer->dy);
    MIOPEN(miopenConvolutionBackwardBias(get_handle(), &one, dy, layer->dy.device, &zero, to, db->device));
    MIOPEN(miopenDestroyTensorDescriptor(to));
    MIOPEN(miopenDestroyTensorDescriptor(dy));
}

// `miopen_convolution_relu`: convolution, bias and activation as a plan; PyTorch does this in f32 and NCHW only.
static void fused(struct layer *layer) {
    const struct geometry *g = &layer->g;
    struct tensor *y = &layer->results[FORWARD];
    miopenTensorDescriptor_t x = describe(&layer->x), w = describe(&layer->w), b = describe(&layer->b), to = describe(y);
    miopenConvolutionDescriptor_t conv;
    MIOPEN(miopenCreateConvolutionDescriptor(&conv));
    MIOPEN(miopenInitConvolutionNdDescriptor(conv, 2, g->pad, g->stride, g->dilation, miopenConvolution));
    MIOPEN(miopenSetConvolutionGroupCount(conv, g->groups));
    miopenFusionPlanDescriptor_t plan;
    miopenFusionOpDescriptor_t conv_op, bias_op, relu_op;
    MIOPEN(miopenCreateFusionPlan(&plan, miopenVerticalFusion, x));
    MIOPEN(miopenCreateOpConvForward(plan, &conv_op, conv, w));
    MIOPEN(miopenCreateOpBiasForward(plan, &bias_op, b));
    MIOPEN(miopenCreateOpActivationForward(plan, &relu_op, miopenActivationRELU));
    MIOPEN(miopenCompileFusionPlan(get_handle(), plan));
    miopenOperatorArgs_t args;
    MIOPEN(miopenCreateOperatorArgs(&args));
    MIOPEN(miopenSetOpArgsConvForward(args, conv_op, &one, &zero, layer->w.device));
    MIOPEN(miopenSetOpArgsBiasForward(args, bias_op, &one, &zero, layer->b.device));
    MIOPEN(miopenSetOpArgsActivForward(args, relu_op, &one, &zero, 0, 0, 0));
    MIOPEN(miopenExecuteFusionPlan(handle, plan, x, layer->x.device, to, y->device, args));
    MIOPEN(miopenDestroyFusionPlan(plan));
    // PyTorch leaves `args` alone.
    MIOPEN(miopenDestroyConvolutionDescriptor(conv));
    miopenTensorDescriptor_t all[] = {x, w, b, to};
    for (int i = 0; i < 4; i++)
        MIOPEN(miopenDestroyTensorDescriptor(all[i]));
}

static bool is_fused(const struct layer *layer) { return !strcmp(layer->kind, "fused"); }

static void conv_make(struct layer *layer) {
    struct geometry *g = &layer->g;
    bool last = options.channels_last && !is_fused(layer);
    miopenDataType_t type = is_fused(layer) ? miopenFloat : options.type;
    g->p = (g->h + 2 * g->pad[0] - g->dilation[0] * (g->r - 1) - 1) / g->stride[0] + 1;
    g->q = (g->w + 2 * g->pad[1] - g->dilation[1] * (g->s - 1) - 1) / g->stride[1] + 1;
    layer->x = tensor_of(type, g->n, g->c, g->h, g->w, last);
    layer->w = tensor_of(type, g->k, g->c / g->groups, g->r, g->s, last);
    layer->dy = tensor_of(type, g->n, g->k, g->p, g->q, last);
    layer->b = channels_of(type, g->k);
    layer->results[FORWARD] = tensor_of(type, g->n, g->k, g->p, g->q, last);
    layer->results[BACKWARD_DATA] = tensor_of(type, g->n, g->c, g->h, g->w, last);
    layer->results[BACKWARD_WEIGHTS] = tensor_of(type, g->k, g->c / g->groups, g->r, g->s, last);
    layer->results[3] = channels_of(type, g->k);
    struct tensor *operands[] = {&layer->x, &layer->w, &layer->dy, &layer->b};
    for (int i = 0; i < 4; i++) {
        randomise(operands[i], 0);
        upload(operands[i]);
    }
}

// Forward of a transposed convolution is the gradient by the input, and the other way round.
static void conv_forward(struct layer *layer) {
    bool transposed = !strcmp(layer->kind, "transposed");
    poison(&layer->results[transposed ? BACKWARD_DATA : FORWARD]);
    if (is_fused(layer)) {
        fused(layer);
        return;
    }
    pass_of(transposed ? BACKWARD_DATA : FORWARD, layer);
    if (options.bias && !transposed)
        bias_forward(layer);
}

static void conv_backward(struct layer *layer) {
    if (is_fused(layer))
        return;
    enum pass first = !strcmp(layer->kind, "transposed") ? FORWARD : BACKWARD_DATA;
    poison(&layer->results[first]);
    pass_of(first, layer);
    poison(&layer->results[BACKWARD_WEIGHTS]);
    pass_of(BACKWARD_WEIGHTS, layer);
    if (options.bias) {
        poison(&layer->results[3]);
        bias_backward(layer);
    }
}

// Adds what comes after the products; of a bias's own rounding in the result's type there may be one more.
static void finish(const struct layer *layer, struct sums *sums) {
    const struct tensor *y = &layer->results[FORWARD];
    double ulp = half_ulp(y->type);
    for (int n = 0; n < y->size[0]; n++)
        for (int k = 0; k < y->size[1]; k++)
            for (int p = 0; p < y->size[2]; p++)
                for (int q = 0; q < y->size[3]; q++) {
                    size_t i = at(y, n, k, p, q);
                    sums->magnitude[i] += fabs(sums->sum[i]) * ulp / (16 * 0x1p-24);
                    sums->sum[i] += load(layer->b.type, layer->b.host, (size_t)k);
                    sums->magnitude[i] += 1;
                    if (is_fused(layer))
                        sums->sum[i] = fmax(0, sums->sum[i]);
                }
}

static void conv_check(struct layer *layer) {
    static const char *const names[] = {"forward", "backward data", "backward weights"};
    char what[128];
    for (int pass = 0; pass < (is_fused(layer) ? 1 : 3); pass++) {
        if (!fetch(layer, pass))
            continue;
        struct sums sums = convolve((enum pass)pass, &layer->g, &layer->x, &layer->w, &layer->dy);
        if (pass == FORWARD && (is_fused(layer) || (options.bias && strcmp(layer->kind, "transposed"))))
            finish(layer, &sums);
        snprintf(what, sizeof what, "%s %s", layer->name, names[pass]);
        compare(what, &layer->results[pass], &sums);
        free_sums(&sums);
    }
    if (options.bias && !is_fused(layer) && fetch(layer, 3)) {
        struct sums sums = sums_of((size_t)layer->g.k);
        const struct tensor *dy = &layer->dy;
        for (int n = 0; n < dy->size[0]; n++)
            for (int k = 0; k < dy->size[1]; k++)
                for (int p = 0; p < dy->size[2]; p++)
                    for (int q = 0; q < dy->size[3]; q++) {
                        double value = load(dy->type, dy->host, at(dy, n, k, p, q));
                        sums.sum[k] += value;
                        sums.magnitude[k] += fabs(value);
                    }
        snprintf(what, sizeof what, "%s backward bias", layer->name);
        compare(what, &layer->results[3], &sums);
        free_sums(&sums);
    }
}
