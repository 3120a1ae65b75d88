// PyTorch-ROCm's calls of MIOpen for a list of layers, forward in order and backward in reverse, twice over, in the order
// and with the arguments of its sources (aten/src/ATen/native/miopen/Conv_miopen.cpp, BatchNorm_miopen.cpp, and
// ATen/miopen/{Handle,Descriptors}): 1.12 of ROCm 5.2, 2.2 (determinism as an attribute), 2.9 (immediate mode by a flag
// of its own, find mode by `benchmark`). Workspaces and tensors come from a caching allocator and are given out again
// before the work on them has run. Each result is held against a loop in f64.
//
//     torch_replay LIST [--torch 1.12|2.2|2.9] [--benchmark] [--deterministic] [--immediate] [--oom] [--dtype f32|f16|bf16]
//                       [--channels-last] [--bias] [--own-stream] [--once] [--divide N] [--seed N]
//
// A line of LIST: `conv|depthwise|transposed|fused N C H W K R S PAD_H PAD_W STRIDE_H STRIDE_W DILATION_H DILATION_W GROUPS`
// (transposed: of the convolution whose gradient it is; fused: with bias and ReLU as a plan), `norm N C H W` or
// `norm1d N C`. --oom takes the way PyTorch takes where there
// is no memory for the workspace. --bias adds it by MIOpen, as PyTorch did before 1.11.
// --once leaves out the second time; --divide has each layer with an Nth of its channels (but 3 stay 3).

#include "torch_conv.h"
#include "torch_norm.h"

static struct layer layers[LAYERS];
static int layer_count;

static bool is_norm(const struct layer *layer) { return !strncmp(layer->kind, "norm", 4); }

static void read_list(const char *path, int divide) {
    FILE *file = fopen(path, "r");
    char line[256];
    if (!file)
        fail("%s cannot be read", path);
    while (fgets(line, sizeof line, file)) {
        struct layer *l = &layers[layer_count];
        struct geometry *g = &l->g;
        *g = (struct geometry){.h = 1, .w = 1};
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (layer_count == LAYERS)
            fail("%s has more than %d layers", path, LAYERS);
        line[strcspn(line, "\n")] = 0;
        int numbers = sscanf(line, "%15s %d %d %d %d %d %d %d %d %d %d %d %d %d %d", l->kind, &g->n, &g->c, &g->h, &g->w,
                             &g->k, &g->r, &g->s, &g->pad[0], &g->pad[1], &g->stride[0], &g->stride[1], &g->dilation[0],
                             &g->dilation[1], &g->groups);
        if (numbers != (!strcmp(l->kind, "norm1d") ? 3 : is_norm(l) ? 5 : 15))
            fail("%s: '%s' is no layer", path, line);
        g->c /= g->c == 3 ? 1 : divide;
        g->k /= divide;
        snprintf(l->name, sizeof l->name, "%d %.50s", layer_count++, line);
    }
    fclose(file);
    if (!layer_count)
        fail("%s has no layers", path);
}

static const char *value_of(int count, char **args, int *i) {
    if (++*i == count) {
        fprintf(stderr, "%s wants a value\n", args[*i - 1]);
        exit(2);
    }
    return args[*i];
}

int main(int count, char **args) {
    const char *list = NULL, *repeat = NULL;
    bool own_stream = false, once = false;
    int divide = 1;
    struct {
        const char *name;
        bool *set;
    } flags[] = {{"--benchmark", &options.benchmark}, {"--deterministic", &options.deterministic},
                 {"--immediate", &options.immediate}, {"--oom", &options.oom},
                 {"--channels-last", &options.channels_last}, {"--bias", &options.bias},
                 {"--own-stream", &own_stream},
                 {"--once", &once}};
    for (int i = 1; i < count; i++) {
        bool known = false;
        for (size_t f = 0; f < sizeof flags / sizeof *flags; f++)
            if (!strcmp(args[i], flags[f].name))
                *flags[f].set = known = true;
        if (known)
            continue;
        if (!strcmp(args[i], "--torch")) {
            const char *version = value_of(count, args, &i);
            options.torch = !strcmp(version, "1.12") ? 112 : !strcmp(version, "2.2") ? 202 : 209;
        } else if (!strcmp(args[i], "--dtype")) {
            const char *type = value_of(count, args, &i);
            options.type = !strcmp(type, "f16") ? miopenHalf : !strcmp(type, "bf16") ? miopenBFloat16 : miopenFloat;
        } else if (!strcmp(args[i], "--divide")) {
            divide = atoi(value_of(count, args, &i));
        } else if (!strcmp(args[i], "--seed")) {
            repeat = value_of(count, args, &i);
        } else if (args[i][0] != '-') {
            list = args[i];
        } else {
            fprintf(stderr, "%s is no option\n", args[i]);
            return 2;
        }
    }
    seed_with(repeat);
    printf("seed %llu\n", (unsigned long long)seed);
    if (!list || divide < 1)
        return 2;
    read_list(list, divide);
    if (own_stream)
        HIP(hipStreamCreate(&stream));
    heap_open((size_t)256 << 20);
    for (int i = 0; i < layer_count; i++)
        (is_norm(&layers[i]) ? norm_make : conv_make)(&layers[i]);
    // Nothing waits between the first and the last call of an iteration but the tests of find, in the first.
    for (int iteration = 0; iteration < (once ? 1 : 2); iteration++) {
        for (int i = 0; i < layer_count; i++)
            (is_norm(&layers[i]) ? norm_forward : conv_forward)(&layers[i]);
        for (int i = layer_count - 1; i >= 0; i--)
            (is_norm(&layers[i]) ? norm_backward : conv_backward)(&layers[i]);
        HIP(hipStreamSynchronize(stream));
        printf("iteration %d\n", iteration);
        for (int i = 0; i < layer_count; i++)
            (is_norm(&layers[i]) ? norm_check : conv_check)(&layers[i]);
        check_guards();
    }
    // PyTorch does not destroy its handles.
    puts("passed");
    return 0;
}
