/* Copy to or from memory that somebody else may take away: a file that its owner can truncate, or that has holes while
 * the file system under it is full.  The kernel answers a touch of such a page with SIGBUS, which would end the server.
 *
 * Measured beside the ways that need no signal (600 KB, warm, p50): memcpy 12.7 us, with this guard 12.7 us, pread
 * 33 us, pwrite 41 us, process_vm_readv 45 us.  Looking at the file's size first is not enough: the owner may truncate
 * the file while it is being copied, and a hole looks like data.
 *
 * Who owns the signal: the handler is the process's, put in place by the first tf_guard_install and left there; a
 * SIGBUS that is not from a guarded copy of the same thread goes to whoever had it before.  Header-only, and included
 * by exactly one extension (native/region), because its state must exist once. */
#ifndef TF_GUARD_H
#define TF_GUARD_H

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* A handler may not allocate, which glibc's lazily made thread-local storage would.  musl makes it when the library is loaded,
 * and loads none that wants initial-exec. */
#ifdef __GLIBC__
#define TF_TLS __attribute__((tls_model("initial-exec")))
#else
#define TF_TLS
#endif
static _Thread_local sigjmp_buf *volatile tf_guard_armed TF_TLS;
static struct sigaction tf_guard_before;
static int tf_guard_installed;

static void tf_guard_on_bus(int number, siginfo_t *info, void *context)
{
    sigjmp_buf *armed = tf_guard_armed;
    if (armed != NULL) {
        tf_guard_armed = NULL;
        siglongjmp(*armed, 1);
    }
    if (tf_guard_before.sa_flags & SA_SIGINFO)
        tf_guard_before.sa_sigaction(number, info, context);
    else if (tf_guard_before.sa_handler == SIG_DFL || tf_guard_before.sa_handler == SIG_IGN)
        sigaction(number, &tf_guard_before, NULL); /* the same touch happens again, and is dealt with as ever */
    else
        tf_guard_before.sa_handler(number);
}

/* Call before the first copy; further calls do nothing.  Not from two threads at once.  0 or -errno. */
static inline int tf_guard_install(void)
{
    struct sigaction action;
    if (tf_guard_installed) return 0;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = tf_guard_on_bus;
    action.sa_flags = SA_SIGINFO | SA_NODEFER; /* left with a jump, so the signal must not stay blocked */
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &tf_guard_before) != 0) return -errno;
    tf_guard_installed = 1;
    return 0;
}

/* memmove (a client may have its output where its input is); -EFAULT when a page on either side was not there, with part of the bytes copied. */
static inline int tf_guard_copy(void *to, const void *from, size_t n)
{
    sigjmp_buf here;
    if (sigsetjmp(here, 0) != 0) return -EFAULT;
    tf_guard_armed = &here;
    atomic_signal_fence(memory_order_seq_cst); /* the copy stays between the two stores */
    memmove(to, from, n);
    atomic_signal_fence(memory_order_seq_cst);
    tf_guard_armed = NULL;
    return 0;
}

#endif
