/* A libMIOpen.so.1, and with -DCALL=... a libamdhip64.so.6, for the tests of `wave32 run --hang-timeout`. What a call does
   is said by its argument. As the real ones do, it keeps a thread that waits for ever. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef CALL
#define CALL miopenConvolutionForward
#endif

static volatile unsigned long spun;

static void *wait_for_events(void *nothing) {
    for (;;) pause();
    return nothing;
}

__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    pthread_create(&thread, 0, wait_for_events, 0);
}

__attribute__((noinline)) static int find_solution(const char *how) {
    if (!strcmp(how, "spin"))
        for (;;) spun++;
    if (!strcmp(how, "sleep"))
        for (;;) pause();
    struct timespec while_ = {0, 20000000};
    if (!strcmp(how, "compile")) while_.tv_sec = 6;
    nanosleep(&while_, 0);
    return !strcmp(how, "compile");
}

int CALL(const char *how) {
    if (getenv("MIOPEN_ENABLE_LOGGING_CMD"))
        fprintf(stderr, "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n 1 -c 16 -H 48 -W 48 -k 32 "
                        "-y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n");
    /* HIP's waits come after MIOpen returned. */
    int found = !strcmp(how, "after") ? 0 : find_solution(how);
    return found + (int)(spun & 1);
}
