/* Windows: what a worker sees of a tensor in somebody else's memory file.
 *
 * A window is a private mapping of whole pages: models may write into their inputs, and nobody else may see it.  Only
 * the worker uses this file; it is not in the server.
 *
 * Measured (600 KB, one core of a virtual machine): a new window costs 33 us, half of it page faults, a page that is
 * written 1.6 us, and a look whether any was 4.6 us; copying the tensor costs 18 us.  So windows that nobody wrote to are
 * kept for the next request with the same place, and others are dropped.
 *
 * A client's file may be truncated at any time, and the next touch of a page that is gone is a SIGBUS.  Windows on such
 * files are guarded: the handler puts zeros there, counts, and lets the model go on; whoever asked learns it from
 * tf_guard_lost.  The handler is the process's; a SIGBUS elsewhere goes to whoever had it before.
 *
 * Thread contract: the functions on guards are called by one thread at a time; the handler runs in any. */
#ifndef TF_WINDOW_H
#define TF_WINDOW_H

#include "tf_shm.h"

#define TF_GUARDS_MAX 1024 /* guarded windows of one worker at one time */

/* Map [offset, offset + nbytes) of a file, whole pages, writable for this process alone.  NULL with -errno in *err. */
TF_EXPORT void *tf_window_map(int fd, uint64_t offset, uint64_t nbytes, int *err);
TF_EXPORT int tf_window_unmap(void *base, uint64_t nbytes);
/* Whether a page of it is not the file's any more: 1, 0, or -errno.  pagemap: descriptor of /proc/self/pagemap. */
TF_EXPORT int tf_window_written(int pagemap, const void *base, uint64_t nbytes);

/* Page faults of this process so far, of all its threads.  While the number stays the same nobody here has written to a
 * page that was the file's: the first write to one is a fault, also when the kernel writes for us.  It costs 0.3 us, and
 * looking at a window's pages 4.6 us. */
TF_EXPORT uint64_t tf_faults(void);
/* Whether this kernel counts them (sandboxes that stand in for one may not). */
TF_EXPORT int tf_faults_counted(void);

/* Guard a window; its number, or -ENOSPC, or -errno when the signal cannot be had. */
TF_EXPORT int tf_guard_add(void *base, uint64_t nbytes);
/* Take SIGBUS (back) if somebody else has it: a model may have installed a handler of its own.  0 or -errno. */
TF_EXPORT int tf_guard_arm(void);
/* How often memory of this window was gone. */
TF_EXPORT uint32_t tf_guard_lost(int guard);
TF_EXPORT void tf_guard_remove(int guard);

#endif
