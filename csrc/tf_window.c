/* Private windows on other memory files; see tf_window.h. */
#define _GNU_SOURCE
#include "tf_window.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define ENTRIES 512u /* of the page map that are read in one go */
#define PRESENT_OR_SWAPPED (3ull << 62)
#define OF_A_FILE (1ull << 61)

struct guard {
    _Atomic uintptr_t base; /* 0: free */
    uintptr_t nbytes;
    _Atomic uint32_t lost;
};

static uintptr_t page_bytes; /* of this kernel: 4, 16 or 64 KB */
static struct guard guards[TF_GUARDS_MAX];
static _Atomic int guards_top; /* none at or beyond is in use */
static struct sigaction before;

/* When the library is loaded: a signal handler reads it. */
__attribute__((constructor)) static void ask_page_bytes(void) { page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE); }

void *tf_window_map(int fd, uint64_t offset, uint64_t nbytes, int *err)
{
    void *base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, (off_t)offset);
    *err = base == MAP_FAILED ? -errno : 0;
    return base == MAP_FAILED ? NULL : base;
}

int tf_window_unmap(void *base, uint64_t nbytes)
{
    return munmap(base, nbytes) < 0 ? -errno : 0;
}

int tf_window_written(int pagemap, const void *base, uint64_t nbytes)
{
    uint64_t entries[ENTRIES], pages = (nbytes + page_bytes - 1) / page_bytes;
    off_t at = (off_t)((uintptr_t)base / page_bytes * sizeof entries[0]);
    while (pages != 0) {
        size_t n = pages < ENTRIES ? pages : ENTRIES;
        ssize_t got = pread(pagemap, entries, n * sizeof entries[0], at);
        if (got != (ssize_t)(n * sizeof entries[0])) return got < 0 ? -errno : -EIO;
        for (size_t i = 0; i < n; i++)
            if ((entries[i] & PRESENT_OR_SWAPPED) && !(entries[i] & OF_A_FILE)) return 1;
        pages -= n;
        at += got;
    }
    return 0;
}

uint64_t tf_faults(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used); /* cannot fail */
    return (uint64_t)used.ru_minflt + (uint64_t)used.ru_majflt;
}

int tf_faults_counted(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS, counted;
    volatile char *page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (page == MAP_FAILED) return 0;
    uint64_t before_it = tf_faults();
    page[0] = 1;
    counted = tf_faults() > before_it;
    munmap((void *)page, page_bytes);
    return counted;
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)
        sigaction(number, &before, NULL); /* the same touch happens again, and is dealt with as ever */
    else
        before.sa_handler(number);
}

/* From the page on, the whole rest of the window: a truncated file has lost all of it, and the execution fails anyway. */
static void on_bus(int number, siginfo_t *info, void *context)
{
    int saved = errno, top = atomic_load(&guards_top);
    uintptr_t page = (uintptr_t)info->si_addr & ~(page_bytes - 1);
    for (int i = 0; i < top; i++) {
        uintptr_t base = atomic_load(&guards[i].base);
        if (base == 0 || page < base || page - base >= guards[i].nbytes) continue;
        size_t rest = guards[i].nbytes - (page - base);
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
        if (mmap((void *)page, rest, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) break;
        atomic_fetch_add(&guards[i].lost, 1);
        errno = saved;
        return;
    }
    errno = saved;
    pass_on(number, info, context);
}

int tf_guard_arm(void)
{
    struct sigaction now, ours;
    if (sigaction(SIGBUS, NULL, &now) != 0) return -errno;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus) return 0;
    before = now;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGBUS, &ours, NULL) != 0 ? -errno : 0;
}

int tf_guard_add(void *base, uint64_t nbytes)
{
    int err = tf_guard_arm();
    if (err) return err;
    for (int i = 0; i < TF_GUARDS_MAX; i++) {
        if (atomic_load(&guards[i].base) != 0) continue;
        guards[i].nbytes = (nbytes + page_bytes - 1) & ~(page_bytes - 1);
        atomic_store(&guards[i].lost, 0);
        atomic_store(&guards[i].base, (uintptr_t)base);
        if (i >= atomic_load(&guards_top)) atomic_store(&guards_top, i + 1);
        return i;
    }
    return -ENOSPC;
}

uint32_t tf_guard_lost(int guard)
{
    return atomic_load(&guards[guard].lost);
}

void tf_guard_remove(int guard)
{
    atomic_store(&guards[guard].base, 0);
}
