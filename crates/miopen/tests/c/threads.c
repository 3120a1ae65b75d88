// Eight threads, each with a handle, a stream and a heap of its own, run convolutions both ways, destroy the handle
// while its work is in flight, and hold the results against f64. Afterwards nothing may be left: no thread, no open
// file, no child process (a folder that the test's driver watches has the files).
//
//     threads [--seed N]

#include "torch_conv.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { THREADS = 8, EACH = 3 };

static void *work(void *number) {
    state = seed * 0x9e3779b97f4a7c15ull + (uint64_t)(uintptr_t)number + 1;
    HIP(hipStreamCreate(&stream));
    heap_open((size_t)4 << 20);
    struct layer mine[EACH];
    for (int i = 0; i < EACH; i++) {
        int c = 1 + (int)(random_bits() % 12), k = 1 + (int)(random_bits() % 20), r = 1 + 2 * (int)(random_bits() % 2);
        int side = 5 + (int)(random_bits() % 8), step = 1 + (int)(random_bits() % 2);
        mine[i] = (struct layer){.kind = "conv",
                                 .g = {1, c, side, side, k, r, r, {r / 2, r / 2}, {step, step}, {1, 1}, 1, 0, 0}};
        snprintf(mine[i].name, sizeof mine[i].name, "%d: %dx%dx%d to %d, %dx%d by %d", (int)(uintptr_t)number, c, side, side,
                 k, r, r, step);
        conv_make(&mine[i]);
    }
    for (int iteration = 0; iteration < 2; iteration++) {
        for (int i = 0; i < EACH; i++) {
            conv_forward(&mine[i]);
            conv_backward(&mine[i]);
        }
        MIOPEN(miopenDestroy(handle)); // in flight
        handle = NULL;
        for (int i = 0; i < EACH; i++)
            conv_check(&mine[i]);
        check_guards();
    }
    HIP(hipFree(heap));
    HIP(hipStreamDestroy(stream));
    return NULL;
}

static int entries(const char *folder) {
    int count = 0;
    DIR *open = opendir(folder);
    while (open && readdir(open))
        count++;
    closedir(open);
    return count;
}

// The virtual card has a thread for each of the runtime's queues; those are not counted.
static int threads_now(void) {
    int count = 0;
    struct dirent *entry;
    DIR *open = opendir("/proc/self/task");
    while (open && (entry = readdir(open))) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file)
            continue;
        count += fgets(name, sizeof name, file) && strncmp(name, "vgpu-", 5);
        fclose(file);
    }
    closedir(open);
    return count;
}

static void all(void) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i))
            fail("no thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int count, char **args) {
    seed_with(count > 2 && !strcmp(args[1], "--seed") ? args[2] : NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    // What the runtime itself starts, it starts now: a stream for each thread, and work.
    hipStream_t warm[THREADS];
    void *memory;
    HIP(hipMalloc(&memory, 4096));
    for (int i = 0; i < THREADS; i++) {
        HIP(hipStreamCreate(&warm[i]));
        HIP(hipMemsetAsync(memory, 0, 4096, warm[i]));
    }
    HIP(hipDeviceSynchronize());
    for (int i = 0; i < THREADS; i++)
        HIP(hipStreamDestroy(warm[i]));
    HIP(hipFree(memory));
    int threads = threads_now(), files = entries("/proc/self/fd");
    all();
    HIP(hipDeviceSynchronize());
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD || children.ru_maxrss != 0)
        fail("a process was started");
    // A thread that ends may be seen a moment longer.
    for (int tries = 0; tries < 1000 && threads_now() > threads; tries++)
        HIP(hipDeviceSynchronize());
    if (threads_now() > threads)
        fail("%d threads were left behind", threads_now() - threads);
    if (entries("/proc/self/fd") > files)
        fail("%d files were left open", entries("/proc/self/fd") - files);
    puts("passed");
    return 0;
}
