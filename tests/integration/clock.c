/* Lets the wall clock of one process jump: the file that CLOCK_OFFSET_FILE names holds seconds to add. Loaded with
 * LD_PRELOAD by the tests; other clocks stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long offset(void) {
    const char *name = getenv("CLOCK_OFFSET_FILE");
    FILE *file = name ? fopen(name, "r") : NULL;
    long seconds = 0;
    if (file) {
        if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
        fclose(file);
    }
    return seconds;
}

int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(id, now);
    if (!failed && id == CLOCK_REALTIME) now->tv_sec += offset();
    return failed;
}
