/* Doubles shared by processes; see tf_cell.h.  As integers: C11 promises lock-free atomics for those, not for doubles. */
#include "tf_cell.h"

#include <stdatomic.h>
#include <string.h>

_Static_assert(sizeof(double) == sizeof(uint64_t), "a double fits a cell");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock would lie in one process and not in the others");

static double number(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

double tf_cell_get(const void *cell)
{
    return number(atomic_load_explicit((const _Atomic uint64_t *)cell, memory_order_relaxed));
}

void tf_cell_set(void *cell, double value)
{
    atomic_store_explicit((_Atomic uint64_t *)cell, bits_of(value), memory_order_relaxed);
}

void tf_cell_add(void *cell, double by)
{
    _Atomic uint64_t *at = cell;
    uint64_t seen = atomic_load_explicit(at, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(at, &seen, bits_of(number(seen) + by), memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}
