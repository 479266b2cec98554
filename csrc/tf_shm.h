/* Shared memory between the server and one worker: anonymous memory files, mapped once by each side.
 *
 * Who creates: the server, always.  Who unlinks: nobody; a memfd has no name and goes with its last mapping, so a
 * server or worker killed at any instant leaves nothing behind.  If the worker dies, the server still owns valid
 * mappings, reads what the rings say, and drops them; a new worker gets new files.  If the server dies, the kernel
 * kills the worker (parent-death signal).
 *
 * This library is plain C without Python.h: the server's Cython modules compile it in, and workers of any CPython load
 * it with ctypes.  No function here logs, allocates from the heap on the request path, or calls back. */
#ifndef TF_SHM_H
#define TF_SHM_H

#include <stddef.h>
#include <stdint.h>

#define TF_EXPORT __attribute__((visibility("default")))
#define TF_CACHE_LINE 64
#define TF_ABI_VERSION 6u /* raised whenever a layout in csrc or workers/WIRE.md changes */

/* A new sealed-size memfd of nbytes (sparse: pages cost memory when first touched).  Returns the descriptor
 * (close-on-exec) or -errno. */
TF_EXPORT int tf_shm_create(const char *label, uint64_t nbytes);
/* Map the whole file read-write and shared.  Returns the address, or NULL with -errno in *err. */
TF_EXPORT void *tf_shm_map(int fd, uint64_t nbytes, int *err);
TF_EXPORT int tf_shm_unmap(void *base, uint64_t nbytes);
/* Size of the file behind fd in bytes, or -errno. */
TF_EXPORT int64_t tf_shm_size(int fd);
/* Give the pages of [offset, offset+nbytes) back to the system; they read as zeros afterwards.  0 or -errno. */
TF_EXPORT int tf_shm_discard(int fd, uint64_t offset, uint64_t nbytes);
/* CLOCK_MONOTONIC in nanoseconds: one clock for server and workers. */
TF_EXPORT int64_t tf_now_ns(void);
/* Kill this process with `sig` when its parent thread ends; fails with -ESRCH if the parent is already not
 * `parent_pid`.  0 or -errno. */
TF_EXPORT int tf_die_with_parent(int sig, int parent_pid);
/* Ignore `sig` in this process alone: one that it forks is ended by it, and so is what it executes.  For one signal.
 * 0 or -errno. */
TF_EXPORT int tf_ignore_signal(int sig);
/* pidfd_open(2), which CPython 3.8 lacks.  Descriptor or -errno. */
TF_EXPORT int tf_pidfd_open(int pid);

#endif
