// Convolution as a loop in f64, written from its definition, and how far from it a result
// may be: half an ulp of its type (one in all for the rounding at the end) and what f32 sums of that many terms lose.
#pragma once

#include "card.h"

struct geometry {
    int n, c, h, w, k, r, s, pad[2], stride[2], dilation[2], groups, p, q;
};

// Sums and sums of magnitudes of all products, at the positions of the result's elements.
struct sums {
    double *sum, *magnitude;
    size_t count;
};

static struct sums sums_of(size_t count) {
    return (struct sums){calloc(count, sizeof(double)), calloc(count, sizeof(double)), count};
}

static void free_sums(struct sums *sums) {
    free(sums->sum);
    free(sums->magnitude);
}

enum pass { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHTS };

// Every product of an input element, a weight and an output element that meet, into the result of the pass.
static struct sums convolve(enum pass pass, const struct geometry *g, const struct tensor *x, const struct tensor *w,
                            const struct tensor *y) {
    const struct tensor *result = pass == FORWARD ? y : pass == BACKWARD_DATA ? x : w;
    struct sums sums = sums_of(result->count);
    int per_group = g->c / g->groups, outputs = g->k / g->groups;
    for (int n = 0; n < g->n; n++)
        for (int k = 0; k < g->k; k++)
            for (int p = 0; p < g->p; p++)
                for (int q = 0; q < g->q; q++)
                    for (int c = 0; c < per_group; c++)
                        for (int r = 0; r < g->r; r++)
                            for (int s = 0; s < g->s; s++) {
                                int h = p * g->stride[0] - g->pad[0] + r * g->dilation[0];
                                int v = q * g->stride[1] - g->pad[1] + s * g->dilation[1];
                                if (h < 0 || h >= g->h || v < 0 || v >= g->w)
                                    continue;
                                size_t xi = at(x, n, k / outputs * per_group + c, h, v);
                                size_t wi = at(w, k, c, r, s), yi = at(y, n, k, p, q);
                                double a = pass == BACKWARD_DATA ? load(w->type, w->host, wi) : load(x->type, x->host, xi);
                                double b = pass == FORWARD ? load(w->type, w->host, wi) : load(y->type, y->host, yi);
                                size_t to = pass == FORWARD ? yi : pass == BACKWARD_DATA ? xi : wi;
                                sums.sum[to] += a * b;
                                sums.magnitude[to] += fabs(a * b);
                            }
    return sums;
}

// Holds a result (in its host memory) against the sums.
static void compare(const char *what, const struct tensor *got, const struct sums *want) {
    double worst = 0, ulp = half_ulp(got->type);
    for (size_t i = 0; i < got->count; i++) {
        double value = load(got->type, got->host, i);
        double allowed = 1.01 * ulp * fabs(want->sum[i]) + 16 * 0x1p-24 * want->magnitude[i];
        if (got->type == miopenHalf)
            allowed += 0x1p-24; // subnormal results
        double error = fabs(value - want->sum[i]);
        if (!(error <= allowed))
            fail("%s: element %zu of %zu is %.9g, not %.9g (%.2g allowed)", what, i, got->count, value, want->sum[i],
                 allowed);
        if (allowed > 0)
            worst = fmax(worst, error / allowed);
    }
    printf("  %-34s %8zu elements, worst error %.2f of what is allowed\n", what, got->count, worst);
}
