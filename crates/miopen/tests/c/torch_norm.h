// PyTorch's batch normalisation: BatchNorm_miopen.cpp.
#pragma once

#include "torch.h"

enum norm_result { Y, DX, D_SCALE, D_BIAS, RUNNING_MEAN, RUNNING_VARIANCE, SAVED_MEAN, SAVED_DEVIATION };

// Mean and variance of one channel of [n, c, h, w].
struct moments {
    double mean, variance;
};

static struct moments moments_of(const struct tensor *x, int c) {
    double sum = 0, squares = 0, count = (double)x->size[0] * x->size[2] * x->size[3];
    for (int pass = 0; pass < 2; pass++)
        for (int n = 0; n < x->size[0]; n++)
            for (int h = 0; h < x->size[2]; h++)
                for (int w = 0; w < x->size[3]; w++) {
                    double value = load(x->type, x->host, at(x, n, c, h, w));
                    if (pass == 0)
                        sum += value;
                    else
                        squares += (value - sum / count) * (value - sum / count);
                }
    return (struct moments){sum / count, squares / count};
}

// `error` is what may be lost beside the result's own rounding, of the larger of 1 and the value.
static void near(const char *what, miopenDataType_t type, double got, double want, double error) {
    double allowed = 1.01 * half_ulp(type) * fabs(want) + error * fmax(1, fabs(want));
    if (!(fabs(got - want) <= allowed))
        fail("%s: %.9g, not %.9g (%.2g allowed)", what, got, want, allowed);
}

static const double EPSILON = 1e-5, MOMENTUM = 0.1;

static miopenBatchNormMode_t mode_of(const struct layer *layer) {
    return strcmp(layer->kind, "norm1d") ? miopenBNSpatial : miopenBNPerActivation;
}

// Scale, bias and statistics are f32 whatever the data are.
static void norm_make(struct layer *layer) {
    const struct geometry *g = &layer->g;
    bool last = options.channels_last && options.torch >= 209 && mode_of(layer) == miopenBNSpatial;
    layer->x = tensor_of(options.type, g->n, g->c, g->h, g->w, last);
    layer->dy = tensor_of(options.type, g->n, g->c, g->h, g->w, last);
    layer->results[Y] = tensor_of(options.type, g->n, g->c, g->h, g->w, last);
    layer->results[DX] = tensor_of(options.type, g->n, g->c, g->h, g->w, last);
    layer->w = channels_of(miopenFloat, g->c);
    layer->b = channels_of(miopenFloat, g->c);
    for (int i = D_SCALE; i < RESULTS; i++)
        layer->results[i] = channels_of(miopenFloat, g->c);
    struct tensor *operands[] = {&layer->x, &layer->w, &layer->b, &layer->dy};
    for (int i = 0; i < 4; i++) {
        randomise(operands[i], i == 0 ? 0.5 : 0);
        upload(operands[i]);
    }
}

static void norm_forward(struct layer *layer) {
    struct tensor *r = layer->results;
    for (int i = 0; i < RESULTS; i++)
        poison(&r[i]);
    // Running statistics start as PyTorch's modules have them.
    for (size_t c = 0; c < r[RUNNING_MEAN].count; c++) {
        store(miopenFloat, r[RUNNING_MEAN].host, c, 0);
        store(miopenFloat, r[RUNNING_VARIANCE].host, c, 1);
    }
    upload(&r[RUNNING_MEAN]);
    upload(&r[RUNNING_VARIANCE]);
    float alpha = 1, beta = 0;
    miopenTensorDescriptor_t x = describe(&layer->x), w = describe(&layer->w);
    MIOPEN(miopenBatchNormalizationForwardTraining(get_handle(), mode_of(layer), &alpha, &beta, x, layer->x.device, x,
                                                   r[Y].device, w, layer->w.device, layer->b.device, MOMENTUM,
                                                   r[RUNNING_MEAN].device, r[RUNNING_VARIANCE].device, EPSILON,
                                                   r[SAVED_MEAN].device, r[SAVED_DEVIATION].device));
    MIOPEN(miopenDestroyTensorDescriptor(x));
    MIOPEN(miopenDestroyTensorDescriptor(w));
}

static void norm_backward(struct layer *layer) {
    struct tensor *r = layer->results;
    miopenTensorDescriptor_t x = describe(&layer->x), w = describe(&layer->w);
    MIOPEN(miopenBatchNormalizationBackward(get_handle(), mode_of(layer), &one, &zero, &one, &zero, x, layer->x.device, x,
                                            layer->dy.device, x, r[DX].device, w, layer->w.device, r[D_SCALE].device,
                                            r[D_BIAS].device, EPSILON, r[SAVED_MEAN].device, r[SAVED_DEVIATION].device));
    MIOPEN(miopenDestroyTensorDescriptor(x));
    MIOPEN(miopenDestroyTensorDescriptor(w));
}

static double channel(const struct tensor *t, int c) { return load(t->type, t->host, (size_t)c); }

// One channel's results of training, from the definitions.
static void norm_check_channel(struct layer *layer, int c) {
    const struct tensor *r = layer->results, *x = &layer->x, *dy = &layer->dy;
    struct moments m = moments_of(x, c);
    double count = (double)x->size[0] * x->size[2] * x->size[3], deviation = 1 / sqrt(m.variance + EPSILON);
    // Of few values that are nearly equal, what f32 loses of their mean is a large part of what is between them.
    double blur = 4e-7 * deviation;
    double scale = channel(&layer->w, c), bias = channel(&layer->b, c), sum = 0, product = 0;
    for (int step = 0; step < 2; step++)
        for (int n = 0; n < x->size[0]; n++)
            for (int h = 0; h < x->size[2]; h++)
                for (int w = 0; w < x->size[3]; w++) {
                    size_t i = at(x, n, c, h, w);
                    double normal = (load(x->type, x->host, i) - m.mean) * deviation, grad = load(dy->type, dy->host, i);
                    if (step == 0) {
                        sum += grad;
                        product += grad * normal;
                        near("norm's output", x->type, load(x->type, r[Y].host, i), normal * scale + bias, 2e-5 + blur);
                    } else {
                        double want = scale * deviation * (grad - sum / count - normal * product / count);
                        near("norm's gradient", x->type, load(x->type, r[DX].host, i), want, (2e-5 + 4 * blur) * fmax(1, deviation));
                    }
                }
    near("norm's saved mean", miopenFloat, channel(&r[SAVED_MEAN], c), m.mean, 2e-6);
    near("norm's saved inverse deviation", miopenFloat, channel(&r[SAVED_DEVIATION], c), deviation, 1e-5);
    near("running mean", miopenFloat, channel(&r[RUNNING_MEAN], c), MOMENTUM * m.mean, 2e-6);
    near("running variance", miopenFloat, channel(&r[RUNNING_VARIANCE], c),
         1 - MOMENTUM + MOMENTUM * m.variance * count / (count - 1), 4e-6);
    near("gradient of the scale", miopenFloat, channel(&r[D_SCALE], c), product, (1e-5 + blur) * sqrt(count));
    near("gradient of the bias", miopenFloat, channel(&r[D_BIAS], c), sum, 1e-5 * sqrt(count));
}

// Inference on statistics of its own.
static void norm_infer(struct layer *layer) {
    struct tensor *r = layer->results;
    for (size_t c = 0; c < layer->w.count; c++) {
        store(miopenFloat, r[RUNNING_MEAN].host, c, random_number());
        store(miopenFloat, r[RUNNING_VARIANCE].host, c, random_number() + 1.1);
    }
    upload(&r[RUNNING_MEAN]);
    upload(&r[RUNNING_VARIANCE]);
    poison(&r[Y]);
    float alpha = 1, beta = 0;
    miopenTensorDescriptor_t x = describe(&layer->x), w = describe(&layer->w);
    MIOPEN(miopenBatchNormalizationForwardInference(get_handle(), mode_of(layer), &alpha, &beta, x, layer->x.device, x,
                                                    r[Y].device, w, layer->w.device, layer->b.device,
                                                    r[RUNNING_MEAN].device, r[RUNNING_VARIANCE].device, EPSILON));
    MIOPEN(miopenDestroyTensorDescriptor(x));
    MIOPEN(miopenDestroyTensorDescriptor(w));
    download(&r[Y]);
    for (int n = 0; n < layer->g.n; n++)
        for (int c = 0; c < layer->g.c; c++)
            for (int h = 0; h < layer->g.h; h++)
                for (int v = 0; v < layer->g.w; v++) {
                    size_t i = at(&layer->x, n, c, h, v);
                    double normal = (load(layer->x.type, layer->x.host, i) - channel(&r[RUNNING_MEAN], c)) /
                                    sqrt(channel(&r[RUNNING_VARIANCE], c) + EPSILON);
                    near("norm's output at inference", layer->x.type, load(layer->x.type, r[Y].host, i),
                         normal * channel(&layer->w, c) + channel(&layer->b, c), 2e-5);
                }
}

static void norm_check(struct layer *layer) {
    bool first = false;
    for (int i = 0; i < RESULTS; i++)
        first |= fetch(layer, i);
    if (!first)
        return;
    for (int c = 0; c < layer->g.c; c++)
        norm_check_channel(layer, c);
    norm_infer(layer);
    printf("  %-34s %8zu elements, both ways and at inference\n", layer->name, layer->x.count);
}
