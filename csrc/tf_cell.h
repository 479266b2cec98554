/* Numbers that several processes change at one time: custom metrics (workers/WIRE.md).  A cell is a double in memory that
 * all of them map, eight bytes and aligned.  An addition that another one overtook is done again, so none is lost; no
 * function here waits, and a process that is killed at any instant leaves a cell as it was before or as it is after. */
#ifndef TF_CELL_H
#define TF_CELL_H

#include "tf_shm.h"

TF_EXPORT double tf_cell_get(const void *cell);
TF_EXPORT void tf_cell_set(void *cell, double value);
TF_EXPORT void tf_cell_add(void *cell, double by);

#endif
