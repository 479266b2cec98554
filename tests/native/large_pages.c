/* Preloaded: mmap and sysconf as on a kernel with pages of 64 KB, which are common on aarch64.  What such a kernel
 * refuses is refused here: offsets and fixed addresses that are no multiple of a page.  The page map of /proc still
 * counts in pages of 4 KB, so what reads it is not shown. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((uintptr_t)65536)

static void *map(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset)
{
    return (void *)syscall(SYS_mmap, at, nbytes, protection, flags, fd, offset);
}

void *mmap(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset)
{
    if ((uintptr_t)offset % PAGE || ((flags & MAP_FIXED) && (uintptr_t)at % PAGE)) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    if ((flags & MAP_FIXED) || at != NULL) return map(at, nbytes, protection, flags, fd, offset);
    /* Addresses are multiples of a page, too. */
    char *room = map(NULL, nbytes + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return MAP_FAILED;
    char *start = (char *)(((uintptr_t)room + PAGE - 1) & ~(PAGE - 1));
    char *end = start + ((nbytes + 4095) & ~(size_t)4095);
    void *found = map(start, nbytes, protection, flags | MAP_FIXED, fd, offset);
    int saved = errno;
    if (found == MAP_FAILED) {
        munmap(room, nbytes + PAGE);
    } else {
        if (start > room) munmap(room, (size_t)(start - room));
        if (room + nbytes + PAGE > end) munmap(end, (size_t)(room + nbytes + PAGE - end));
    }
    errno = saved;
    return found;
}

void *mmap64(void *at, size_t nbytes, int protection, int flags, int fd, off_t offset)
{
    return mmap(at, nbytes, protection, flags, fd, offset);
}

long sysconf(int name)
{
    static long (*next)(int);
    if (name == _SC_PAGESIZE) return (long)PAGE;
    if (next == NULL) next = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return next(name);
}

int getpagesize(void) { return (int)PAGE; }
