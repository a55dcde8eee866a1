/* Lets the n-th call of one kind fail. Preloaded, so that calls of Rust and C libraries are counted as ours are. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, WRITE, SHORT, SYNC, RENAME, MAP, TRUNCATE, OPEN, READ, ALLOCATE };

#define RANGES 16

static atomic_int armed = NOTHING;
static atomic_long seen, nth;
static atomic_int stays;
static uintptr_t begins[RANGES], ends[RANGES];
static int ranges;

/* Called by the tests: from now on the n-th call of a kind fails, and all that follow if it stays so. */
void fault_arm(int kind, long n, int stay)
{
    atomic_store(&seen, 0);
    atomic_store(&nth, n);
    atomic_store(&stays, stay);
    atomic_store(&armed, kind);
}

/* How many calls of the kind there were. */
long fault_disarm(void)
{
    atomic_store(&armed, NOTHING);
    return atomic_load(&seen);
}

/* Where the code lies whose allocations count. Rust's do not: it ends the process when one fails. */
void fault_allocator(uintptr_t begin, uintptr_t end)
{
    if (ranges < RANGES) {
        begins[ranges] = begin;
        ends[ranges++] = end;
    }
}

static int fails(int kind)
{
    if (atomic_load_explicit(&armed, memory_order_relaxed) != kind)
        return 0;
    long at = atomic_fetch_add(&seen, 1) + 1, n = atomic_load(&nth);
    return at == n || (at > n && atomic_load(&stays));
}

static int is_file(int fd)
{
    struct stat about;
    return fd > 2 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define FAIL_IF(condition, number) \
    if (condition) { \
        errno = number; \
        return -1; \
    }

static int is_armed(int kind)
{
    return atomic_load_explicit(&armed, memory_order_relaxed) == kind;
}

#define WRITES(fd) FAIL_IF(is_armed(WRITE) && is_file(fd) && fails(WRITE), ENOSPC)
#define READS(fd) FAIL_IF(is_armed(READ) && is_file(fd) && fails(READ), EIO)
#define CUTS(fd, size) ((size) > 1 && is_armed(SHORT) && is_file(fd) && fails(SHORT))

ssize_t write(int fd, const void *from, size_t size)
{
    REAL(write);
    WRITES(fd);
    return real(fd, from, CUTS(fd, size) ? size / 2 : size);
}

ssize_t pwrite(int fd, const void *from, size_t size, off_t at)
{
    REAL(pwrite);
    WRITES(fd);
    return real(fd, from, CUTS(fd, size) ? size / 2 : size, at);
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at)
{
    REAL(pwrite64);
    WRITES(fd);
    return real(fd, from, CUTS(fd, size) ? size / 2 : size, at);
}

static ssize_t cut_vector(int fd, const struct iovec *parts, int count, off64_t at, int placed)
{
    struct iovec half = {parts[0].iov_base, parts[0].iov_len > 1 ? parts[0].iov_len / 2 : parts[0].iov_len};
    (void)count;
    return placed ? pwritev64(fd, &half, 1, at) : writev(fd, &half, 1);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    REAL(writev);
    WRITES(fd);
    if (count > 0 && CUTS(fd, parts[0].iov_len))
        return cut_vector(fd, parts, count, 0, 0);
    return real(fd, parts, count);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    REAL(pwritev);
    WRITES(fd);
    if (count > 0 && CUTS(fd, parts[0].iov_len))
        return cut_vector(fd, parts, count, at, 1);
    return real(fd, parts, count, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
{
    REAL(pwritev64);
    WRITES(fd);
    if (count > 0 && CUTS(fd, parts[0].iov_len))
        return cut_vector(fd, parts, count, at, 1);
    return real(fd, parts, count, at);
}

ssize_t copy_file_range(int source, off64_t *from, int fd, off64_t *to, size_t size, unsigned int flags)
{
    REAL(copy_file_range);
    WRITES(fd);
    return real(source, from, fd, to, CUTS(fd, size) ? size / 2 : size, flags);
}

ssize_t read(int fd, void *to, size_t size)
{
    REAL(read);
    READS(fd);
    return real(fd, to, size);
}

ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    REAL(pread);
    READS(fd);
    return real(fd, to, size, at);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
    REAL(pread64);
    READS(fd);
    return real(fd, to, size, at);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t at)
{
    REAL(preadv);
    READS(fd);
    return real(fd, parts, count, at);
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t at)
{
    REAL(preadv64);
    READS(fd);
    return real(fd, parts, count, at);
}

int fsync(int fd)
{
    REAL(fsync);
    FAIL_IF(fails(SYNC), EIO);
    return real(fd);
}

int fdatasync(int fd)
{
    REAL(fdatasync);
    FAIL_IF(fails(SYNC), EIO);
    return real(fd);
}

int rename(const char *from, const char *to)
{
    REAL(rename);
    FAIL_IF(fails(RENAME), EIO);
    return real(from, to);
}

int renameat(int at, const char *from, int there, const char *to)
{
    REAL(renameat);
    FAIL_IF(fails(RENAME), EIO);
    return real(at, from, there, to);
}

int ftruncate(int fd, off_t size)
{
    REAL(ftruncate);
    FAIL_IF(fails(TRUNCATE), ENOSPC);
    return real(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    REAL(ftruncate64);
    FAIL_IF(fails(TRUNCATE), ENOSPC);
    return real(fd, size);
}

int truncate(const char *path, off_t size)
{
    REAL(truncate);
    FAIL_IF(fails(TRUNCATE), ENOSPC);
    return real(path, size);
}

/* Maps of files alone: the others are the allocations of the interpreter and of threads. */
void *mmap(void *place, size_t size, int access, int flags, int fd, off_t at)
{
    REAL(mmap);
    if (fd >= 0 && fails(MAP)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return real(place, size, access, flags, fd, at);
}

void *mmap64(void *place, size_t size, int access, int flags, int fd, off64_t at)
{
    REAL(mmap64);
    if (fd >= 0 && fails(MAP)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return real(place, size, access, flags, fd, at);
}

#define MODE(last) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, last); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

int open(const char *path, int flags, ...)
{
    REAL(open);
    MODE(flags);
    FAIL_IF(fails(OPEN), EMFILE);
    return real(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    REAL(open64);
    MODE(flags);
    FAIL_IF(fails(OPEN), EMFILE);
    return real(path, flags, mode);
}

int openat(int at, const char *path, int flags, ...)
{
    REAL(openat);
    MODE(flags);
    FAIL_IF(fails(OPEN), EMFILE);
    return real(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...)
{
    REAL(openat64);
    MODE(flags);
    FAIL_IF(fails(OPEN), EMFILE);
    return real(at, path, flags, mode);
}

int memfd_create(const char *name, unsigned int flags)
{
    REAL(memfd_create);
    FAIL_IF(fails(OPEN), EMFILE);
    return real(name, flags);
}

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static int is_counted(const void *caller)
{
    uintptr_t place = (uintptr_t)caller;
    if (is_armed(ALLOCATE))
        for (int range = 0; range < ranges; range++)
            if (place >= begins[range] && place < ends[range])
                return 1;
    return 0;
}

/* NumPy's own way to memory for the numbers of arrays, as its C API lays it out. What else NumPy allocates, a few bytes
   at a time, does not count: where those fail, it crashes by itself. */
struct data_memory {
    char name[127];
    uint8_t version;
    void *context;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *, size_t);
};

static struct data_memory usual;

static void *data_malloc(void *context, size_t size)
{
    return fails(ALLOCATE) ? NULL : usual.malloc(context, size);
}

static void *data_calloc(void *context, size_t count, size_t size)
{
    return fails(ALLOCATE) ? NULL : usual.calloc(context, count, size);
}

static void *data_realloc(void *context, void *old, size_t size)
{
    return fails(ALLOCATE) ? NULL : usual.realloc(context, old, size);
}

void fault_data_memory(struct data_memory *used)
{
    usual = *used;
    used->malloc = data_malloc;
    used->calloc = data_calloc;
    used->realloc = data_realloc;
}

#define ALLOCATES(call) \
    do { \
        if (is_counted(__builtin_return_address(0)) && fails(ALLOCATE)) { \
            errno = ENOMEM; \
            return NULL; \
        } \
        return call; \
    } while (0)

void *malloc(size_t size)
{
    ALLOCATES(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    ALLOCATES(__libc_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
    ALLOCATES(__libc_realloc(old, size));
}
