// Calls every function of a libMIOpen with null, or with foreign, arguments, in children: each has to return a status
// that is not success, and none may crash or hang. Names come on standard input.
//
//     fuzz LIBRARY null|foreign|odd < names
//
// null: all arguments zero. foreign: all point to writable memory of random bytes. odd: the first is 1, the others as
// with foreign; functions whose first argument is a result are left out.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1024, BUFFER = 1 << 16, SECONDS = 60 };
static char names[MOST][96];
static struct {
    int next;
    bool answered[MOST];
    int status[MOST];
} *shared;

typedef int (*function)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                        void *, void *, void *, void *, void *, void *, void *);

static bool is(const char *name, const char *start) { return !strncmp(name, start, strlen(start)); }

// Those that write a new object, or what they tell, to their first argument and take nothing foreign before it.
static bool result_first(const char *name) {
    return (is(name, "miopenCreate") && !is(name, "miopenCreateOp")) || is(name, "miopenGetVersion") ||
           is(name, "miopenCreateOperatorArgs");
}

// Success is right there: no status at all, null means «not wanted», or nothing to destroy.
static bool may_succeed(const char *name, const char *mode) {
    if (is(name, "miopenGetErrorString") || is(name, "miopenGetVersion"))
        return true;
    return strcmp(mode, "null") ? result_first(name) : is(name, "miopenDestroy");
}

static void child(const char *library, const char *mode, int first, int count) {
    void *open = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!open) {
        fprintf(stderr, "%s\n", dlerror());
        _exit(3);
    }
    char *buffer = malloc(BUFFER);
    for (int i = first; i < count; i++) {
        shared->next = i;
        function call = (function)dlsym(open, names[i]);
        if (!call) {
            fprintf(stderr, "%s is not there\n", names[i]);
            _exit(3);
        }
        // A length, a count or a number of dimensions out of random bits is as likely to be negative as huge.
        for (int k = 0; k < BUFFER; k += 256)
            if (getrandom(buffer + k, 256, 0) != 256)
                _exit(3);
        bool odd = !strcmp(mode, "odd");
        if (odd && result_first(names[i])) {
            shared->status[i] = 1, shared->answered[i] = true;
            continue;
        }
        alarm(SECONDS);
        void *p = strcmp(mode, "null") ? buffer + BUFFER / 2 : NULL;
        shared->status[i] = call(odd ? (void *)1 : p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p, p);
        shared->answered[i] = true;
    }
    shared->next = count;
    _exit(0);
}

int main(int arguments, char **args) {
    if (arguments != 3)
        return 2;
    int count = 0, failed = 0;
    while (count < MOST && scanf("%95s", names[count]) == 1)
        count++;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int first = 0; first < count; first = shared->next + 1) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            child(args[1], args[2], first, count);
        int status;
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
            break;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
            return 3;
        printf("%s: ended by signal %d\n", names[shared->next], WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        failed++;
    }
    for (int i = 0; i < count; i++)
        if (shared->answered[i] && shared->status[i] == 0 && !may_succeed(names[i], args[2])) {
            printf("%s: success\n", names[i]);
            failed++;
        }
    printf("%d functions, %d failed\n", count, failed);
    return failed > 0 || count == 0;
}
