/* Memory files and process facts; see tf_shm.h. */
#define _GNU_SOURCE
#include "tf_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int tf_shm_create(const char *label, uint64_t nbytes)
{
    if (nbytes == 0 || nbytes > INT64_MAX) return -EINVAL;
    int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -errno;
    /* Sealed size: nobody can shrink the file under the other side's mapping (that would be SIGBUS). */
    if (ftruncate(fd, (off_t)nbytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        int err = errno;
        close(fd);
        return -err;
    }
    return fd;
}

void *tf_shm_map(int fd, uint64_t nbytes, int *err)
{
    void *base = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    *err = base == MAP_FAILED ? -errno : 0;
    return base == MAP_FAILED ? NULL : base;
}

int tf_shm_unmap(void *base, uint64_t nbytes)
{
    return munmap(base, nbytes) < 0 ? -errno : 0;
}

int64_t tf_shm_size(int fd)
{
    struct stat st;
    return fstat(fd, &st) < 0 ? -errno : (int64_t)st.st_size;
}

int tf_shm_discard(int fd, uint64_t offset, uint64_t nbytes)
{
    int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    return fallocate(fd, mode, (off_t)offset, (off_t)nbytes) < 0 ? -errno : 0;
}

int64_t tf_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int tf_die_with_parent(int sig, int parent_pid)
{
    if (prctl(PR_SET_PDEATHSIG, (unsigned long)sig, 0, 0, 0) < 0) return -errno;
    return getppid() == parent_pid ? 0 : -ESRCH; /* it died before the call: nobody would ever signal us */
}

static pid_t ignoring; /* getpid() of the process that called tf_ignore_signal */

static void end_unless_ignoring(int sig)
{
    if (getpid() == ignoring) return;
    signal(sig, SIG_DFL);
    kill(getpid(), sig); /* comes when this returns */
}

int tf_ignore_signal(int sig)
{
    struct sigaction action = {.sa_handler = end_unless_ignoring, .sa_flags = SA_RESTART};
    ignoring = getpid();
    return sigaction(sig, &action, NULL) < 0 ? -errno : 0;
}

int tf_pidfd_open(int pid)
{
    long fd = syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 ? -errno : (int)fd;
}
