// What a network has beside convolution, between two convolutions (one by Find, one by Find 2.0), on the handle, the tensor
// descriptors and the stream that these use; each against f64, and the second convolution against what the layer really
// left. With a MIOpen behind, the layers are its own, and this says how far it gets (docs/miopen_real.md); alone, they are
// the drop-in's.
//
//     layers NAME [--seed N] [--threads N]        `layers --list` has the names
//
// Each thread has a handle and a stream of its own; the layers' descriptors are made before the handle is used.

#include "torch_norm.h"

#include <pthread.h>

enum { N = 2, C = 6, H = 10, W = 9, LAST = 4 };

struct image {
    struct tensor t;
    miopenTensorDescriptor_t desc;
};

static struct image image_of(int n, int c, int h, int w) {
    struct image i = {.t = tensor_of(miopenFloat, n, c, h, w, false)};
    randomise(&i.t, 0);
    upload(&i.t);
    i.desc = describe(&i.t);
    return i;
}

static double value(const struct image *i, size_t at) { return load(miopenFloat, i->t.host, at); }

static struct image vector_of(int c) { return image_of(1, c, 1, 1); }

// 3x3, one pixel of border; found and run, both on the image's own descriptors, and checked once the stream is done.
struct step {
    struct image *x, *y, w;
};

static void by_find(const struct step *s, miopenConvolutionDescriptor_t conv) {
    const struct image *x = s->x, *y = s->y;
    size_t bytes = 0;
    MIOPEN(miopenConvolutionForwardGetWorkSpaceSize(handle, s->w.desc, x->desc, conv, y->desc, &bytes));
    void *space = take(bytes);
    miopenConvAlgoPerf_t perf;
    int found = 0;
    MIOPEN(miopenFindConvolutionForwardAlgorithm(handle, x->desc, x->t.device, s->w.desc, s->w.t.device, conv, y->desc,
                                                 y->t.device, 1, &found, &perf, space, bytes, false));
    poison(&s->y->t);
    MIOPEN(miopenConvolutionForward(handle, &one, x->desc, x->t.device, s->w.desc, s->w.t.device, conv, perf.fwd_algo,
                                    &zero, y->desc, y->t.device, space, bytes));
    give(space);
}

// Find 2.0.
static void by_problem(const struct step *s, miopenConvolutionDescriptor_t conv) {
    const miopenTensorArgument_t arguments[] = {{miopenTensorConvolutionX, NULL, s->x->t.device},
                                                {miopenTensorConvolutionW, NULL, s->w.t.device},
                                                {miopenTensorConvolutionY, NULL, s->y->t.device}};
    const miopenTensorDescriptor_t descs[] = {s->x->desc, s->w.desc, s->y->desc};
    miopenProblem_t problem;
    miopenSolution_t solution;
    size_t found = 0, bytes = 0;
    MIOPEN(miopenCreateConvProblem(&problem, conv, miopenProblemDirectionForward));
    for (int i = 0; i < 3; i++)
        MIOPEN(miopenSetProblemTensorDescriptor(problem, arguments[i].id, descs[i]));
    MIOPEN(miopenFindSolutions(handle, problem, NULL, &solution, &found, 1));
    MIOPEN(miopenDestroyProblem(problem));
    if (found != 1)
        fail("%zu solutions", found);
    MIOPEN(miopenGetSolutionWorkspaceSize(solution, &bytes));
    void *space = take(bytes);
    poison(&s->y->t);
    MIOPEN(miopenRunSolution(handle, solution, 3, arguments, space, bytes));
    MIOPEN(miopenDestroySolution(solution));
    give(space);
}

static struct step convolution(struct image *x, struct image *y,
                               void (*way)(const struct step *, miopenConvolutionDescriptor_t)) {
    struct step s = {x, y, image_of(y->t.size[1], x->t.size[1], 3, 3)};
    const int one_each[2] = {1, 1};
    miopenConvolutionDescriptor_t conv;
    MIOPEN(miopenCreateConvolutionDescriptor(&conv));
    MIOPEN(miopenInitConvolutionNdDescriptor(conv, 2, one_each, one_each, one_each, miopenConvolution));
    way(&s, conv);
    MIOPEN(miopenDestroyConvolutionDescriptor(conv));
    return s;
}

static void check_step(const char *what, struct step *s) {
    const int *x = s->x->t.size, *y = s->y->t.size;
    struct geometry g = {x[0], x[1], x[2], x[3], y[1], 3, 3, {1, 1}, {1, 1}, {1, 1}, 1, y[2], y[3]};
    download(&s->y->t);
    struct sums sums = convolve(FORWARD, &g, &s->x->t, &s->w.t, &s->y->t);
    compare(what, &s->y->t, &sums);
    free_sums(&sums);
}

// ---- layers: from x, which a convolution is still writing, to y; dy and dx for the way back -------------------------------

struct work {
    struct image x, y, dy, dx;
    struct image scale, bias, mean, variance, d_scale, d_bias;
};

static size_t pixel(const struct image *i, int n, int c, int h, int w) { return at(&i->t, n, c, h, w); }

#define EACH(image)                                                                                                     \
    for (int n = 0; n < (image).t.size[0]; n++)                                                                         \
        for (int c = 0; c < (image).t.size[1]; c++)                                                                     \
            for (int h = 0; h < (image).t.size[2]; h++)                                                                 \
                for (int w = 0; w < (image).t.size[3]; w++)

static void expect(const char *what, const struct image *i, size_t at, double want) {
    near(what, miopenFloat, value(i, at), want, 2e-5);
}

static miopenActivationDescriptor_t logistic(void) {
    miopenActivationDescriptor_t a;
    MIOPEN(miopenCreateActivationDescriptor(&a));
    MIOPEN(miopenSetActivationDescriptor(a, miopenActivationLOGISTIC, 1, 1, 1));
    return a;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void activation(struct work *k) {
    miopenActivationDescriptor_t a = logistic();
    MIOPEN(miopenActivationForward(handle, a, &one, k->x.desc, k->x.t.device, &zero, k->y.desc, k->y.t.device));
    MIOPEN(miopenDestroyActivationDescriptor(a));
}

static void activation_check(struct work *k) {
    for (size_t i = 0; i < k->x.t.count; i++)
        expect("logistic", &k->y, i, sigmoid(value(&k->x, i)));
}

static void activation_back(struct work *k) {
    activation(k);
    miopenActivationDescriptor_t a = logistic();
    MIOPEN(miopenActivationBackward(handle, a, &one, k->y.desc, k->y.t.device, k->dy.desc, k->dy.t.device, k->x.desc,
                                    k->x.t.device, &zero, k->dx.desc, k->dx.t.device));
    MIOPEN(miopenDestroyActivationDescriptor(a));
}

static void activation_back_check(struct work *k) {
    for (size_t i = 0; i < k->x.t.count; i++) {
        double y = sigmoid(value(&k->x, i));
        expect("logistic's gradient", &k->dx, i, value(&k->dy, i) * y * (1 - y));
    }
}

// Windows of 2x2 that do not overlap; W is odd, so the last column is in none.
static void pool(struct work *k, bool back, miopenPoolingMode_t mode) {
    miopenPoolingDescriptor_t p;
    size_t bytes = 0;
    int size[4];
    MIOPEN(miopenCreatePoolingDescriptor(&p));
    MIOPEN(miopenSet2dPoolingDescriptor(p, mode, 2, 2, 0, 0, 2, 2));
    MIOPEN(miopenGetPoolingForwardOutputDim(p, k->x.desc, &size[0], &size[1], &size[2], &size[3]));
    if (memcmp(size, k->y.t.size, sizeof size))
        fail("pooling says %d %d %d %d", size[0], size[1], size[2], size[3]);
    MIOPEN(miopenPoolingGetWorkSpaceSizeV2(p, k->y.desc, &bytes));
    void *space = take(bytes);
    MIOPEN(miopenPoolingForward(handle, p, &one, k->x.desc, k->x.t.device, &zero, k->y.desc, k->y.t.device, back, space,
                                bytes));
    if (back)
        MIOPEN(miopenPoolingBackward(handle, p, &one, k->y.desc, k->y.t.device, k->dy.desc, k->dy.t.device, k->x.desc,
                                     k->x.t.device, &zero, k->dx.desc, k->dx.t.device, space));
    give(space);
    MIOPEN(miopenDestroyPoolingDescriptor(p));
}

static void pool_most(struct work *k) { pool(k, false, miopenPoolingMax); }
static void pool_most_back(struct work *k) { pool(k, true, miopenPoolingMax); }
static void pool_mean(struct work *k) { pool(k, false, miopenPoolingAverage); }
static void pool_mean_back(struct work *k) { pool(k, true, miopenPoolingAverage); }

static double window(struct work *k, int n, int c, int h, int w, bool most) {
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < 4; i++) {
        double v = value(&k->x, pixel(&k->x, n, c, 2 * h + i / 2, 2 * w + i % 2));
        largest = fmax(largest, v);
        sum += v;
    }
    return most ? largest : sum / 4;
}

static void pool_check(struct work *k, bool most) {
    EACH(k->y) expect("pooling", &k->y, pixel(&k->y, n, c, h, w), window(k, n, c, h, w, most));
}

static void pool_back_check(struct work *k, bool most) {
    pool_check(k, most);
    EACH(k->x) {
        size_t i = pixel(&k->x, n, c, h, w);
        double want = 0;
        if (h / 2 < k->y.t.size[2] && w / 2 < k->y.t.size[3]) {
            double dy = value(&k->dy, pixel(&k->dy, n, c, h / 2, w / 2));
            want = !most ? dy / 4 : value(&k->x, i) == window(k, n, c, h / 2, w / 2, true) ? dy : 0;
        }
        expect("pooling's gradient", &k->dx, i, want);
    }
}

static void pool_most_check(struct work *k) { pool_check(k, true); }
static void pool_most_back_check(struct work *k) { pool_back_check(k, true); }
static void pool_mean_check(struct work *k) { pool_check(k, false); }
static void pool_mean_back_check(struct work *k) { pool_back_check(k, false); }

// Over channels.
static void softmax(struct work *k) {
    MIOPEN(miopenSoftmaxForward_V2(handle, &one, k->x.desc, k->x.t.device, &zero, k->y.desc, k->y.t.device,
                                   MIOPEN_SOFTMAX_ACCURATE, MIOPEN_SOFTMAX_MODE_CHANNEL));
}

static void softmax_back(struct work *k) {
    softmax(k);
    MIOPEN(miopenSoftmaxBackward_V2(handle, &one, k->y.desc, k->y.t.device, k->dy.desc, k->dy.t.device, &zero, k->dx.desc,
                                    k->dx.t.device, MIOPEN_SOFTMAX_ACCURATE, MIOPEN_SOFTMAX_MODE_CHANNEL));
}

static double share(struct work *k, int n, int c, int h, int w) {
    double sum = 0;
    for (int i = 0; i < C; i++)
        sum += exp(value(&k->x, pixel(&k->x, n, i, h, w)));
    return exp(value(&k->x, pixel(&k->x, n, c, h, w))) / sum;
}

static void softmax_check(struct work *k) {
    EACH(k->y) expect("softmax", &k->y, pixel(&k->y, n, c, h, w), share(k, n, c, h, w));
}

static void softmax_back_check(struct work *k) {
    softmax_check(k);
    EACH(k->dx) {
        double dot = 0;
        for (int i = 0; i < C; i++)
            dot += value(&k->dy, pixel(&k->dy, n, i, h, w)) * share(k, n, i, h, w);
        size_t i = pixel(&k->dx, n, c, h, w);
        expect("softmax's gradient", &k->dx, i, share(k, n, c, h, w) * (value(&k->dy, i) - dot));
    }
}

// Over three channels.
static const double LRN_ALPHA = 0.3, LRN_BETA = 0.75, LRN_K = 1.5;

static void lrn(struct work *k) {
    miopenLRNDescriptor_t l;
    MIOPEN(miopenCreateLRNDescriptor(&l));
    MIOPEN(miopenSetLRNDescriptor(l, miopenLRNCrossChannel, 3, LRN_ALPHA, LRN_BETA, LRN_K));
    MIOPEN(miopenLRNForward(handle, l, &one, k->x.desc, k->x.t.device, &zero, k->y.desc, k->y.t.device, false, NULL));
    MIOPEN(miopenDestroyLRNDescriptor(l));
}

static void lrn_check(struct work *k) {
    EACH(k->y) {
        double squares = 0;
        for (int i = c > 0 ? c - 1 : 0; i <= c + 1 && i < C; i++)
            squares += pow(value(&k->x, pixel(&k->x, n, i, h, w)), 2);
        size_t i = pixel(&k->y, n, c, h, w);
        expect("LRN", &k->y, i, value(&k->x, i) * pow(LRN_K + LRN_ALPHA / 3 * squares, -LRN_BETA));
    }
}

static void add(struct work *k) {
    MIOPEN(miopenOpTensor(handle, miopenTensorOpAdd, &one, k->x.desc, k->x.t.device, &one, k->bias.desc, k->bias.t.device,
                          &zero, k->y.desc, k->y.t.device));
}

static void add_check(struct work *k) {
    EACH(k->y) {
        size_t i = pixel(&k->y, n, c, h, w);
        expect("sum with a bias", &k->y, i, value(&k->x, i) + value(&k->bias, (size_t)c));
    }
}

static const float FILL = 0.75f, FACTOR = -2.5f;

static void fill(struct work *k) {
    MIOPEN(miopenSetTensor(handle, k->y.desc, k->y.t.device, &FILL));
    MIOPEN(miopenScaleTensor(handle, k->y.desc, k->y.t.device, &FACTOR));
}

static void fill_check(struct work *k) {
    for (size_t i = 0; i < k->y.t.count; i++)
        expect("fill and scale", &k->y, i, (double)FILL * FACTOR);
}

static void reduce(struct work *k) {
    miopenReduceTensorDescriptor_t r;
    size_t bytes = 0;
    MIOPEN(miopenCreateReduceTensorDescriptor(&r));
    MIOPEN(miopenSetReduceTensorDescriptor(r, MIOPEN_REDUCE_TENSOR_AVG, miopenFloat, MIOPEN_NOT_PROPAGATE_NAN,
                                           MIOPEN_REDUCE_TENSOR_NO_INDICES, MIOPEN_32BIT_INDICES));
    MIOPEN(miopenGetReductionWorkspaceSize(handle, r, k->x.desc, k->mean.desc, &bytes));
    void *space = take(bytes);
    MIOPEN(miopenReduceTensor(handle, r, NULL, 0, space, bytes, &one, k->x.desc, k->x.t.device, &zero, k->mean.desc,
                              k->mean.t.device));
    give(space);
    MIOPEN(miopenDestroyReduceTensorDescriptor(r));
    add(k);
}

static void reduce_check(struct work *k) {
    add_check(k);
    download(&k->mean.t);
    for (int c = 0; c < C; c++)
        expect("mean", &k->mean, (size_t)c, moments_of(&k->x.t, c).mean);
}

static void norm(struct work *k, bool back, bool infer) {
    if (infer) {
        MIOPEN(miopenBatchNormalizationForwardInference(
            handle, miopenBNSpatial, (void *)&one, (void *)&zero, k->x.desc, k->x.t.device, k->y.desc, k->y.t.device,
            k->scale.desc, k->scale.t.device, k->bias.t.device, k->mean.t.device, k->variance.t.device, EPSILON));
        return;
    }
    MIOPEN(miopenBatchNormalizationForwardTraining(handle, miopenBNSpatial, (void *)&one, (void *)&zero, k->x.desc,
                                                   k->x.t.device, k->y.desc, k->y.t.device, k->scale.desc,
                                                   k->scale.t.device, k->bias.t.device, 1, k->mean.t.device,
                                                   k->variance.t.device, EPSILON, NULL, NULL));
    if (back)
        MIOPEN(miopenBatchNormalizationBackward(handle, miopenBNSpatial, &one, &zero, &one, &zero, k->x.desc,
                                                k->x.t.device, k->dy.desc, k->dy.t.device, k->dx.desc, k->dx.t.device,
                                                k->scale.desc, k->scale.t.device, k->d_scale.t.device, k->d_bias.t.device,
                                                EPSILON, NULL, NULL));
}

static void norm_train(struct work *k) { norm(k, false, false); }
static void norm_back(struct work *k) { norm(k, true, false); }
static void norm_inference(struct work *k) { norm(k, false, true); }

static void norm_train_check(struct work *k) {
    EACH(k->y) {
        struct moments m = moments_of(&k->x.t, c);
        size_t i = pixel(&k->y, n, c, h, w);
        double normal = (value(&k->x, i) - m.mean) / sqrt(m.variance + EPSILON);
        expect("norm's output", &k->y, i, normal * value(&k->scale, (size_t)c) + value(&k->bias, (size_t)c));
    }
}

static void norm_back_check(struct work *k) {
    norm_train_check(k);
    struct image *const results[] = {&k->d_scale, &k->d_bias};
    for (int i = 0; i < 2; i++)
        download(&results[i]->t);
    double count = N * H * W;
    for (int channel_at = 0; channel_at < C; channel_at++) {
        struct moments m = moments_of(&k->x.t, channel_at);
        double deviation = 1 / sqrt(m.variance + EPSILON), sum = 0, product = 0;
        EACH(k->x) if (c == channel_at) {
            size_t i = pixel(&k->x, n, c, h, w);
            sum += value(&k->dy, i);
            product += value(&k->dy, i) * (value(&k->x, i) - m.mean) * deviation;
        }
        EACH(k->x) if (c == channel_at) {
            size_t i = pixel(&k->x, n, c, h, w);
            double normal = (value(&k->x, i) - m.mean) * deviation;
            expect("norm's gradient", &k->dx, i,
                   value(&k->scale, (size_t)c) * deviation * (value(&k->dy, i) - sum / count - normal * product / count));
        }
        near("gradient of the scale", miopenFloat, value(&k->d_scale, (size_t)channel_at), product, 1e-4);
        near("gradient of the bias", miopenFloat, value(&k->d_bias, (size_t)channel_at), sum, 1e-4);
    }
}

static void norm_inference_check(struct work *k) {
    EACH(k->y) {
        size_t i = pixel(&k->y, n, c, h, w), at = (size_t)c;
        double normal = (value(&k->x, i) - value(&k->mean, at)) / sqrt(value(&k->variance, at) + EPSILON);
        expect("norm's output at inference", &k->y, i, normal * value(&k->scale, at) + value(&k->bias, at));
    }
}

static const struct kind {
    const char *name;
    void (*run)(struct work *), (*check)(struct work *);
    bool halves;
} kinds[] = {
    {"activation", activation, activation_check, false},
    {"activation-backward", activation_back, activation_back_check, false},
    {"max-pooling", pool_most, pool_most_check, true},
    {"max-pooling-backward", pool_most_back, pool_most_back_check, true},
    {"average-pooling", pool_mean, pool_mean_check, true},
    {"average-pooling-backward", pool_mean_back, pool_mean_back_check, true},
    {"softmax", softmax, softmax_check, false},
    {"softmax-backward", softmax_back, softmax_back_check, false},
    {"lrn", lrn, lrn_check, false},
    {"add", add, add_check, false},
    {"fill-and-scale", fill, fill_check, false},
    {"reduce", reduce, reduce_check, false},
    {"norm-training", norm_train, norm_train_check, false},
    {"norm-backward", norm_back, norm_back_check, false},
    {"norm-inference", norm_inference, norm_inference_check, false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct kind *asked;

static void *work(void *number) {
    state = seed * 0x9e3779b97f4a7c15ull + (uint64_t)(uintptr_t)number + 1;
    HIP(hipStreamCreate(&stream));
    heap_open((size_t)1 << 20);
    struct work k;
    int h = asked->halves ? H / 2 : H, w = asked->halves ? W / 2 : W;
    struct image first = image_of(N, 3, H, W), last = image_of(N, LAST, h, w);
    k.x = image_of(N, C, H, W), k.dx = image_of(N, C, H, W);
    k.y = image_of(N, C, h, w), k.dy = image_of(N, C, h, w);
    struct image *const vectors[] = {&k.scale, &k.bias, &k.mean, &k.variance, &k.d_scale, &k.d_bias};
    for (int i = 0; i < 6; i++)
        *vectors[i] = vector_of(C);
    for (size_t c = 0; c < C; c++)
        store(miopenFloat, k.variance.t.host, c, value(&k.variance, c) + 1.5);
    upload(&k.variance.t);
    struct image *const results[] = {&k.y, &k.dx, &k.d_scale, &k.d_bias};
    for (int i = 0; i < 4; i++)
        poison(&results[i]->t);
    get_handle();
    struct step before = convolution(&first, &k.x, by_find);
    asked->run(&k);
    struct step after = convolution(&k.y, &last, by_problem);
    struct image *const here[] = {&k.x, &k.y, &k.dx};
    for (int i = 0; i < 3; i++)
        download(&here[i]->t);
    check_step("the convolution before", &before);
    asked->check(&k);
    check_step("the convolution after", &after);
    check_guards();
    MIOPEN(miopenDestroy(handle));
    handle = NULL;
    HIP(hipStreamDestroy(stream));
    HIP(hipFree(heap));
    return NULL;
}

int main(int count, char **args) {
    long threads = 1;
    const char *repeat = NULL;
    for (int i = 2; i + 1 < count; i += 2) {
        if (!strcmp(args[i], "--seed"))
            repeat = args[i + 1];
        else
            threads = atol(args[i + 1]);
    }
    for (int i = 0; i < KINDS; i++) {
        if (count > 1 && !strcmp(args[1], "--list"))
            puts(kinds[i].name);
        else if (count > 1 && !strcmp(args[1], kinds[i].name))
            asked = &kinds[i];
    }
    if (!asked || threads < 1 || threads > 16)
        return count == 2 && !strcmp(args[1], "--list") ? 0 : 2;
    seed_with(repeat);
    printf("seed %llu\n", (unsigned long long)seed);
    pthread_t started[16];
    for (uintptr_t i = 0; i < (uintptr_t)threads; i++)
        if (pthread_create(&started[i], NULL, work, (void *)i))
            fail("no thread");
    for (long i = 0; i < threads; i++)
        pthread_join(started[i], NULL);
    puts("passed");
    return 0;
}
