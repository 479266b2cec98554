/* Windows: private, known when written to, and guarded against a file that is truncated under them. */
#define _GNU_SOURCE
#include "tf_window.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#define PAGE ((size_t)sysconf(_SC_PAGESIZE)) /* of this kernel */
#define PAGES 700u /* more than are looked at in one go */
#define NBYTES ((uint64_t)PAGES * PAGE)

static int file, pagemap;

static char *window(int fd, uint64_t offset, uint64_t nbytes)
{
    int err = 1;
    char *base = tf_window_map(fd, offset, nbytes, &err);
    CHECK(base != NULL && err == 0);
    return base;
}

static void new_file(void)
{
    char page[PAGE];
    file = memfd_create("test", MFD_CLOEXEC);
    for (unsigned i = 0; i < PAGES; i++) {
        memset(page, (int)('a' + i % 26), sizeof page);
        CHECK(write(file, page, sizeof page) == (ssize_t)sizeof page);
    }
}

static void test_private(void)
{
    new_file();
    char *w = window(file, 0, NBYTES), byte;
    CHECK(w[0] == 'a' && w[PAGE] == 'b' && tf_window_written(pagemap, w, NBYTES) == 0);
    w[NBYTES - 1] = '!';
    CHECK(tf_window_written(pagemap, w, NBYTES) == 1 && tf_window_written(pagemap, w, NBYTES - PAGE) == 0);
    CHECK(pread(file, &byte, 1, (off_t)NBYTES - 1) == 1 && byte != '!');
    char *other = window(file, PAGE, NBYTES - PAGE);
    CHECK(other[0] == 'b' && other[NBYTES - PAGE - 1] == byte);
    CHECK(tf_window_unmap(w, NBYTES) == 0 && tf_window_unmap(other, NBYTES - PAGE) == 0);
    close(file);
}

static void *write_there(void *page)
{
    *(volatile char *)page = 'x';
    return NULL;
}

static void test_faults(void)
{
    pthread_t thread;
    uint64_t before;
    new_file();
    char *w = window(file, 0, NBYTES);
    volatile char *seen = w;
    CHECK(tf_faults_counted());
    CHECK(pthread_create(&thread, NULL, write_there, w + PAGE) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(seen[PAGE] == 'x' && seen[0] == 'a' && seen[2 * PAGE] == 'c');
    before = tf_faults();
    seen[PAGE] = 'y'; /* its own by now */
    CHECK(seen[0] == 'a' && tf_faults() == before);
    seen[0] = 'z'; /* read before, and mapped: the first write is a fault all the same */
    CHECK(tf_faults() > before);
    before = tf_faults();
    CHECK(pread(file, w + 2 * PAGE, 1, 0) == 1 && tf_faults() > before); /* the kernel's writes, too */
    before = tf_faults();
    CHECK(pthread_create(&thread, NULL, write_there, w + 3 * PAGE) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(tf_faults() > before); /* of a thread that has ended */
    CHECK(tf_window_unmap(w, NBYTES) == 0);
    close(file);
}

static void test_refusals(void)
{
    int err = 0;
    CHECK(tf_window_map(-1, 0, PAGE, &err) == NULL && err == -EBADF);
    CHECK(tf_window_map(pagemap, 1, PAGE, &err) == NULL && err == -EINVAL);
    CHECK(tf_window_written(-1, &err, PAGE) == -EBADF);
}

static void test_truncated(void)
{
    new_file();
    char *w = window(file, 0, NBYTES), *other = window(file, 0, NBYTES);
    int guard = tf_guard_add(w, NBYTES), second = tf_guard_add(other, NBYTES);
    CHECK(guard >= 0 && second >= 0 && guard != second && w[2 * PAGE] == 'c');
    CHECK(ftruncate(file, (off_t)PAGE) == 0);
    volatile char *seen = w;
    CHECK(seen[0] == 'a' && tf_guard_lost(guard) == 0);
    CHECK(seen[2 * PAGE] == 0 && seen[NBYTES - 1] == 0 && tf_guard_lost(guard) == 1 && tf_guard_lost(second) == 0);
    seen[5 * PAGE] = 3; /* a model that writes goes on, too */
    CHECK(seen[5 * PAGE] == 3 && tf_window_written(pagemap, w, NBYTES) == 1);
    tf_guard_remove(guard);
    CHECK(tf_guard_add(w, NBYTES) == guard && tf_guard_lost(guard) == 0); /* its number is free again */
    tf_guard_remove(guard);
    tf_guard_remove(second);
    CHECK(tf_window_unmap(w, NBYTES) == 0 && tf_window_unmap(other, NBYTES) == 0);
    close(file);
}

static void *read_all(void *at)
{
    volatile char *w = at;
    unsigned zeros = 0;
    for (unsigned i = 0; i < PAGES; i++) zeros += w[i * PAGE] == 0;
    return (void *)(uintptr_t)zeros;
}

static void test_threads(void)
{
    new_file();
    char *w = window(file, 0, NBYTES);
    int guard = tf_guard_add(w, NBYTES);
    CHECK(ftruncate(file, 0) == 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, read_all, w);
    for (int i = 0; i < 4; i++) {
        void *zeros;
        pthread_join(threads[i], &zeros);
        CHECK((uintptr_t)zeros == PAGES);
    }
    CHECK(tf_guard_lost(guard) >= 1);
    tf_guard_remove(guard);
    tf_window_unmap(w, NBYTES);
    close(file);
}

static sigjmp_buf back;
static int foreign_signals;

static void on_foreign(int number)
{
    (void)number;
    foreign_signals++;
    siglongjmp(back, 1);
}

/* What is not ours goes to whoever had the signal before, also when that one came after us. */
static void test_others_signals(void)
{
    struct sigaction theirs;
    memset(&theirs, 0, sizeof theirs);
    theirs.sa_handler = on_foreign;
    theirs.sa_flags = SA_NODEFER;
    CHECK(sigaction(SIGBUS, &theirs, NULL) == 0);
    new_file();
    char *w = window(file, 0, NBYTES);
    int guard = tf_guard_add(w, PAGE); /* the first page alone; arms */
    CHECK(guard >= 0 && tf_guard_arm() == 0 && ftruncate(file, 0) == 0);
    volatile char *seen = w;
    CHECK(seen[1] == 0 && tf_guard_lost(guard) == 1 && foreign_signals == 0);
    if (sigsetjmp(back, 1) == 0) CHECK(seen[PAGE] != seen[PAGE]); /* never returns */
    CHECK(foreign_signals == 1);
    tf_guard_remove(guard);
    tf_window_unmap(w, NBYTES);
    close(file);
}

static void test_full(void)
{
    static char memory[1];
    static int taken[TF_GUARDS_MAX];
    for (int i = 0; i < (int)TF_GUARDS_MAX; i++) CHECK((taken[i] = tf_guard_add(memory, sizeof memory)) == i);
    CHECK(tf_guard_add(memory, sizeof memory) == -ENOSPC);
    for (int i = 0; i < (int)TF_GUARDS_MAX; i++) tf_guard_remove(taken[i]);
}

int main(void)
{
    pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    CHECK(pagemap >= 0);
    test_private();
    test_faults();
    test_refusals();
    test_truncated();
    test_threads();
    test_others_signals();
    test_full();
    return RESULT();
}
