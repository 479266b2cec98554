/* The whole test framework: CHECK prints and counts, main returns the count. */
#ifndef CHECK_H
#define CHECK_H
#include <stdio.h>

static int checks_failed, checks_done;

#define CHECK(condition)                                                            \
    do {                                                                            \
        checks_done++;                                                              \
        if (!(condition)) {                                                         \
            checks_failed++;                                                        \
            fprintf(stderr, "%s:%d: CHECK(%s)\n", __FILE__, __LINE__, #condition);  \
        }                                                                           \
    } while (0)

#define RESULT() (printf("%s: %d checks, %d failed\n", __FILE__, checks_done, checks_failed), checks_failed != 0)

#endif
