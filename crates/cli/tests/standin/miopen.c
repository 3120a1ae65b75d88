/* A libMIOpen whose solvers behave and misbehave, each in its way, for tests without a card. The numbers are those
   of MIOpen's own solvers; what each does here is written beside it. f32, NCHW, plain convolutions. STANDIN_HIDE names
   solvers that are left out, STANDIN_VERSION another minor version; STANDIN_MANNER makes all of them do something else
   than to compute. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct { int n, c, h, w; } Tensor;
typedef struct { int pad[2], stride[2], dilation[2], groups; } Convolution;
typedef struct { float time; size_t workspace_size; uint64_t solution_id; int algorithm; } Solution;
typedef struct { int algorithm; float time; size_t memory; } Perf;
enum Pass { FORWARD, DATA, WEIGHTS };
typedef struct { enum Pass pass; Tensor x, w, y; Convolution conv; } Problem;

enum { OK = 0, BAD_PARAMETER = 3, INTERNAL = 5, NOT_IMPLEMENTED = 6, UNKNOWN = 7 };

enum Manner { RIGHT, ALMOST, WRONG_LAST, SPILLS, CRASHES, HANGS, FAILS, LARGE_HANGS, POWERS_HANG, BATCH_CRASHES, SHY };
static const struct { uint64_t id; const char *name; int algorithm; int passes; enum Manner manner; } SOLVERS[] = {
    {85, "ConvDirectNaiveConvFwd", 1, 1, RIGHT},
    {86, "ConvDirectNaiveConvBwd", 1, 2, RIGHT},
    {87, "ConvDirectNaiveConvWrw", 1, 4, RIGHT},
    {91, "GemmFwdRest", 0, 1, LARGE_HANGS},      /* hangs above 42x42 */
    {97, "GemmBwdRest", 0, 2, LARGE_HANGS},
    {102, "GemmWrwUniversal", 0, 4, LARGE_HANGS},
    {11, "ConvOclDirectFwd", 1, 3, POWERS_HANG}, /* hangs where both channel counts are powers of two above 8 */
    {14, "ConvBinWinograd3x3U", 3, 1, ALMOST},   /* errors of a Winograd transform's size */
    {15, "ConvBinWinogradRxS", 3, 1, WRONG_LAST},/* the last output is wrong */
    {1, "ConvAsm3x3U", 1, 1, CRASHES},
    {9, "ConvOclDirectFwdGen", 1, 1, HANGS},
    {26, "ConvHipImplicitGemmV4R1Fwd", 5, 1, FAILS}, /* an error status when it is compiled */
    {54, "ConvHipImplicitGemmV4R4Fwd", 5, 1, SPILLS},/* writes behind the result */
    {62, "ConvAsmImplicitGemmV4R1DynamicFwd", 5, 1, BATCH_CRASHES},
    {53, "ConvBinWinogradRxSf2x3", 3, 1, SHY},   /* right, and not offered before Find measured it */
};
enum { COUNT = sizeof SOLVERS / sizeof SOLVERS[0] };

static int only = -1; /* MIOPEN_DEBUG_FIND_ONLY_SOLVER */

const char *miopenGetErrorString(int status) {
    return status == 0 ? "miopenStatusSuccess" : status == 6 ? "miopenStatusNotImplemented" : "miopenStatusInternalError";
}
int miopenGetVersion(size_t *major, size_t *minor, size_t *patch) {
    const char *other = getenv("STANDIN_VERSION");
    *major = 2;
    *minor = other ? strtoul(other, NULL, 10) : 20;
    *patch = 0;
    return OK;
}
int miopenCreate(void **handle) {
    const char *name = getenv("MIOPEN_DEBUG_FIND_ONLY_SOLVER");
    for (int i = 0; name && i < COUNT; i++) if (!strcmp(name, SOLVERS[i].name)) only = i;
    if (name && only < 0) only = COUNT; /* a real solver of which this library has none */
    *handle = malloc(1);
    return OK;
}
int miopenDestroy(void *handle) { free(handle); return OK; }
int miopenCreateTensorDescriptor(void **t) { *t = calloc(1, sizeof(Tensor)); return OK; }
int miopenDestroyTensorDescriptor(void *t) { free(t); return OK; }
int miopenSet4dTensorDescriptorEx(void *t, int type, int n, int c, int h, int w, int sn, int sc, int sh, int sw) {
    if (type != 1 || sw != 1 || sh != w || sc != h * w || sn != c * h * w) return BAD_PARAMETER;
    *(Tensor *)t = (Tensor){n, c, h, w};
    return OK;
}
int miopenCreateConvolutionDescriptor(void **c) { *c = calloc(1, sizeof(Convolution)); return OK; }
int miopenDestroyConvolutionDescriptor(void *c) { free(c); return OK; }
int miopenInitConvolutionDescriptor(void *d, int mode, int ph, int pw, int u, int v, int dh, int dw) {
    if (mode != 0) return BAD_PARAMETER;
    *(Convolution *)d = (Convolution){{ph, pw}, {u, v}, {dh, dw}, 1};
    return OK;
}
int miopenSetConvolutionGroupCount(void *d, int groups) { ((Convolution *)d)->groups = groups; return OK; }

static size_t size(Tensor t) { return (size_t)t.n * t.c * t.h * t.w; }

/* All passes walk the same products; the result is the tensor that is written. */
static void convolve(const Problem *p, const float *a, const float *b, float *out) {
    Tensor x = p->x, w = p->w, y = p->y, o = p->pass == FORWARD ? y : p->pass == DATA ? x : w;
    int kg = y.c / p->conv.groups, cg = w.c;
    double *sums = calloc(size(o), sizeof *sums);
    for (int n = 0; n < y.n; n++)
        for (int k = 0; k < y.c; k++)
            for (int i = 0; i < y.h; i++)
                for (int j = 0; j < y.w; j++)
                    for (int c = 0; c < cg; c++)
                        for (int r = 0; r < w.h; r++)
                            for (int s = 0; s < w.w; s++) {
                                int h = i * p->conv.stride[0] - p->conv.pad[0] + r * p->conv.dilation[0];
                                int v = j * p->conv.stride[1] - p->conv.pad[1] + s * p->conv.dilation[1];
                                if (h < 0 || h >= x.h || v < 0 || v >= x.w) continue;
                                size_t xi = ((size_t)(n * x.c + k / kg * cg + c) * x.h + h) * x.w + v;
                                size_t wi = ((size_t)(k * cg + c) * w.h + r) * w.w + s;
                                size_t yi = ((size_t)(n * y.c + k) * y.h + i) * y.w + j;
                                if (p->pass == FORWARD) sums[yi] += (double)a[xi] * b[wi];
                                else if (p->pass == DATA) sums[xi] += (double)a[yi] * b[wi];
                                else sums[wi] += (double)a[yi] * b[xi];
                            }
    for (size_t i = 0; i < size(o); i++) out[i] = (float)sums[i];
    free(sums);
}

static bool power(int v) { return v > 8 && (v & (v - 1)) == 0; }

static void hang(void) { for (;;) pause(); }

/* The words of MIOpenDriver, as MIOpen logs them. */
static void log_command(const Problem *p) {
    if (!getenv("MIOPEN_ENABLE_LOGGING_CMD")) return;
    const Convolution *c = &p->conv;
    fprintf(stderr,
            "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver conv -n %d -c %d -H %d -W %d -k %d -y %d -x %d "
            "-p %d -q %d -u %d -v %d -l %d -j %d -m conv -g %d -F %d -t 1\n",
            p->x.n, p->x.c, p->x.h, p->x.w, p->y.c, p->w.h, p->w.w, c->pad[0], c->pad[1], c->stride[0], c->stride[1],
            c->dilation[0], c->dilation[1], c->groups, 1 << p->pass);
}

/* What STANDIN_MANNER says: spin and sleep never end, compile takes its time and fails, the others are quick. */
__attribute__((noinline)) static int act(const char *manner) {
    static volatile unsigned long spun;
    while (!strcmp(manner, "spin")) spun++;
    if (!strcmp(manner, "sleep")) hang();
    bool compiles = !strcmp(manner, "compile");
    struct timespec time = {compiles ? 6 : 0, 20000000};
    nanosleep(&time, NULL);
    return compiles ? INTERNAL : OK;
}

/* `a`, `b` in the order x w, dy w, dy x. */
static int execute(int solver, const Problem *p, const float *a, const float *b, float *out) {
    Tensor o = p->pass == FORWARD ? p->y : p->pass == DATA ? p->x : p->w;
    const char *manner = getenv("STANDIN_MANNER");
    log_command(p);
    if (manner) return act(manner);
    switch (SOLVERS[solver].manner) {
    case FAILS: return INTERNAL;
    case CRASHES: fprintf(stderr, "Memory access fault by GPU node-1\n"); abort();
    case HANGS: hang(); break;
    case LARGE_HANGS: if (p->x.h > 42 || p->x.w > 42) hang(); break;
    case POWERS_HANG: if (power(p->x.c) && power(p->y.c)) hang(); break;
    case BATCH_CRASHES: if (p->x.n > 1) abort(); break;
    default: break;
    }
    convolve(p, a, b, out);
    if (SOLVERS[solver].manner == ALMOST) for (size_t i = 0; i < size(o); i++) out[i] *= 1.0f + 5e-6f;
    if (SOLVERS[solver].manner == WRONG_LAST) out[size(o) - 1] += 0.5f;
    if (SOLVERS[solver].manner == SPILLS) out[size(o)] = 1.0f;
    return OK;
}

static bool applies(int i, const Problem *p) {
    if (!(SOLVERS[i].passes >> p->pass & 1)) return false;
    if (SOLVERS[i].manner == ALMOST) return p->w.h == 3 && p->w.w == 3;
    return true;
}

/* The find-db: a file for each problem on which Find was run. */
static void mark(const Problem *p, char *path, size_t len) {
    const char *folder = getenv("MIOPEN_USER_DB_PATH");
    snprintf(path, len, "%s/%d-%d-%d-%d-%d-%d", folder ? folder : ".", p->pass, p->x.n, p->x.c, p->x.h, p->x.w, p->y.c);
}
static bool measured(const Problem *p) {
    char path[4096];
    mark(p, path, sizeof path);
    return access(path, F_OK) == 0;
}

static size_t list(const Problem *p, Solution *out, size_t room) {
    const char *hidden = getenv("STANDIN_HIDE");
    size_t count = 0;
    for (int i = 0; i < COUNT; i++) {
        if (!applies(i, p) || (SOLVERS[i].manner == SHY && !measured(p))) continue;
        if (hidden && strstr(hidden, SOLVERS[i].name)) continue;
        if (out && count < room) out[count] = (Solution){1.0f, 64, SOLVERS[i].id, SOLVERS[i].algorithm};
        count++;
    }
    return count;
}

static int find_solver(const Problem *p, Perf *perf, int *count, const float *a, const float *b, float *out) {
    if (getenv("STANDIN_UNFOUND")) return UNKNOWN; /* as where the package lacks a kernel that Find would time */
    /* As MIOpen does: every solver that applies is run; the measured ones are kept. */
    const char *hidden = getenv("STANDIN_HIDE");
    *count = 0;
    for (int i = 0; i < COUNT; i++) {
        if (!applies(i, p) || (only >= 0 && i != only)) continue;
        if (only < 0 && hidden && strstr(hidden, SOLVERS[i].name)) continue;
        if (execute(i, p, a, b, out) != OK) continue;
        if (*count == 0) perf[(*count)++] = (Perf){i, 1.0f, 64}; /* the index stands for the algorithm's best */
    }
    if (*count == 0) return NOT_IMPLEMENTED;
    char path[4096];
    mark(p, path, sizeof path);
    FILE *file = fopen(path, "w");
    if (!file) { fprintf(stderr, "find-db: %s\n", strerror(errno)); return INTERNAL; }
    fclose(file);
    for (int i = 0; i < *count; i++) perf[i].algorithm = SOLVERS[perf[i].algorithm].algorithm;
    return OK;
}

static int number(uint64_t id) {
    for (int i = 0; i < COUNT; i++) if (SOLVERS[i].id == id) return i;
    return -1;
}
static int best(int algorithm, const Problem *p) {
    for (int i = 0; i < COUNT; i++)
        if (applies(i, p) && SOLVERS[i].algorithm == algorithm && (only < 0 || i == only)) return i;
    return -1;
}

/* One pass's functions. X, W, Y name the descriptors d0, d1, d2 of immediate mode; A, B its operands and CA, CB those
   of Find and the classic call in the order of `execute`; CD0, CD1 the classic descriptors in immediate mode's order:
   in the forward pass immediate mode has w before x, the others x before w. */
#define PASS(Name, PASS_, X, W, Y, A, B, CA, CB, CD0, CD1)                                                             \
    static Problem pose##Name(const Tensor *d0, const Tensor *d1, const Convolution *c, const Tensor *d2) {            \
        (void)d0, (void)d1, (void)d2;                                                                                  \
        return (Problem){PASS_, *X, *W, *Y, *c};                                                                       \
    }                                                                                                                  \
    int miopenConvolution##Name##GetSolutionCount(void *h, void *d0, void *d1, void *c, void *d2, size_t *count) {     \
        (void)h;                                                                                                       \
        Problem p = pose##Name(d0, d1, c, d2);                                                                         \
        return (*count = list(&p, NULL, 0)) ? OK : NOT_IMPLEMENTED;                                                    \
    }                                                                                                                  \
    int miopenConvolution##Name##GetSolution(void *h, void *d0, void *d1, void *c, void *d2, size_t room,              \
                                             size_t *count, Solution *out) {                                           \
        (void)h;                                                                                                       \
        Problem p = pose##Name(d0, d1, c, d2);                                                                         \
        *count = list(&p, out, room);                                                                                  \
        return OK;                                                                                                     \
    }                                                                                                                  \
    int miopenConvolution##Name##CompileSolution(void *h, void *d0, void *d1, void *c, void *d2, uint64_t id) {        \
        (void)h, (void)d0, (void)d1, (void)c, (void)d2;                                                                \
        int i = number(id);                                                                                            \
        return i < 0 ? BAD_PARAMETER : SOLVERS[i].manner == FAILS ? INTERNAL : OK;                                     \
    }                                                                                                                  \
    int miopenConvolution##Name##Immediate(void *h, void *d0, const float *a0, void *d1, const float *a1, void *c,     \
                                           void *d2, float *out, void *space, size_t bytes, uint64_t id) {             \
        (void)h;                                                                                                       \
        Problem p = pose##Name(d0, d1, c, d2);                                                                         \
        int i = number(id);                                                                                            \
        if (i < 0 || bytes < 64) return BAD_PARAMETER;                                                                 \
        memset(space, 1, bytes);                                                                                       \
        return execute(i, &p, A, B, out);                                                                              \
    }                                                                                                                  \
    int miopenConvolution##Name##GetWorkSpaceSize(void *h, void *d0, void *d1, void *c, void *d2, size_t *bytes) {     \
        (void)h, (void)d0, (void)d1, (void)c, (void)d2;                                                                \
        *bytes = 64;                                                                                                   \
        return OK;                                                                                                     \
    }                                                                                                                  \
    int miopenFindConvolution##Name##Algorithm(void *h, void *e0, const float *b0, void *e1, const float *b1, void *c, \
                                               void *d2, float *out, int room, int *count, Perf *perf, void *space,    \
                                               size_t bytes, bool exhaustive) {                                        \
        (void)h, (void)room, (void)space, (void)bytes, (void)exhaustive;                                               \
        void *d0 = CD0, *d1 = CD1;                                                                                     \
        Problem p = pose##Name(d0, d1, c, d2);                                                                         \
        return find_solver(&p, perf, count, CA, CB, out);                                                              \
    }                                                                                                                  \
    int miopenConvolution##Name(void *h, const void *alpha, void *e0, const float *b0, void *e1, const float *b1,      \
                                void *c, int algorithm, const void *beta, void *d2, float *out, void *space,           \
                                size_t bytes) {                                                                        \
        (void)h, (void)space, (void)bytes;                                                                             \
        if (*(const float *)alpha != 1.0f || *(const float *)beta != 0.0f) return BAD_PARAMETER;                       \
        void *d0 = CD0, *d1 = CD1;                                                                                     \
        Problem p = pose##Name(d0, d1, c, d2);                                                                         \
        int i = measured(&p) ? best(algorithm, &p) : -1;                                                               \
        return i < 0 ? BAD_PARAMETER : execute(i, &p, CA, CB, out);                                                    \
    }
PASS(Forward,         FORWARD, d1, d0, d2, a1, a0,          b0, b1, e1, e0)
PASS(BackwardData,    DATA,    d2, d1, d0, a0, a1,          b0, b1, e0, e1)
PASS(BackwardWeights, WEIGHTS, d1, d2, d0, a0, a1,          b0, b1, e0, e1)
