/* A libMIOpen.so.1 for the tests of `wave32 run --hang-timeout`: what it does is said by STAND_IN. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long spun;

__attribute__((noinline)) static int find_solution(const char *how) {
    if (!strcmp(how, "spin"))
        for (;;) spun++;
    if (!strcmp(how, "sleep"))
        for (;;) pause();
    struct timespec short_while = {0, 20000000};
    nanosleep(&short_while, 0);
    return 0;
}

int miopenConvolutionForward(const char *how) {
    if (getenv("MIOPEN_ENABLE_LOGGING_CMD"))
        fprintf(stderr, "MIOpen(HIP): Command [LogCmdFindConvolution] ./bin/MIOpenDriver conv -n 1 -c 16 -H 48 -W 48 -k 32 "
                        "-y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1\n");
    int found = find_solution(how);
    return found + (int)(spun & 1);
}
