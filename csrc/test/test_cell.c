/* Several threads, as workers: no addition is lost, and a reader never sees half a number. */
#include "tf_cell.h"

#include <pthread.h>

#include "check.h"

#define THREADS 4
#define ADDITIONS 100000

static double cells[2];

static void *add(void *unused)
{
    for (int i = 0; i < ADDITIONS; i++) {
        tf_cell_add(&cells[0], 0.5);
        tf_cell_set(&cells[1], i % 2 ? -1.0e300 : 3.0);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, add, NULL) == 0);
    for (int i = 0; i < ADDITIONS; i++) {
        double seen = tf_cell_get(&cells[1]);
        if (seen < 0.0 || seen > 0.0) CHECK(seen < -0.9e300 || (seen > 2.9 && seen < 3.1));
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    double sum = tf_cell_get(&cells[0]);
    CHECK(sum > THREADS * ADDITIONS * 0.5 - 0.1 && sum < THREADS * ADDITIONS * 0.5 + 0.1);
    return RESULT();
}
