/* LD_PRELOAD shim: a TCP socket that asks for the wildcard address gets the loopback address instead,
 * and accepts only connections of this account.
 *
 * TensorFlow's gRPC server always binds the wildcard address, whatever its cluster says, and has no
 * authentication. The guard replaces 0.0.0.0, :: and ::ffff:0.0.0.0 in bind() by 127.0.0.1 (by ::1
 * for a socket that is v6 only), and binds a socket without an address likewise before listen().
 * Other addresses, socket types and families are not changed. accept() on a listener that was moved
 * to loopback returns only connections that are known to belong to this account or root, and closes
 * other connections unread.
 *
 * A guarded socket is marked by its mode 0700 (others have 0777). The mode is in the kernel's inode,
 * so the mark is valid for every descriptor of the socket, in a forked child, and in a process that
 * received the socket.
 *
 * The supervisor keeps the port of each task bound (with SO_REUSEPORT, never listening), so that nobody
 * else gets the port. The task itself can bind the port: if bind() finds TFCLUSTER_PORT in use, and
 * no socket listens there, the guard binds again with SO_REUSEPORT. A second server of the task on
 * this port gets EADDRINUSE, as on any other port.
 *
 * A process that is already running (a notebook kernel) loads this library itself and calls
 * tfcluster_guard_loaded_libraries(). This function redirects bind(), listen() and accept() of the
 * TensorFlow and gRPC libraries loaded so far, and of no other libraries.
 */
#define _GNU_SOURCE
#include "loopback_peer.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#define CALL_SLOT R_X86_64_JUMP_SLOT
#define DATA_SLOT R_X86_64_GLOB_DAT
#define POINTER R_X86_64_64
#elif defined(__aarch64__)
#define CALL_SLOT R_AARCH64_JUMP_SLOT
#define DATA_SLOT R_AARCH64_GLOB_DAT
#define POINTER R_AARCH64_ABS64
#else
#error "the loopback guard knows x86_64 and aarch64"
#endif

typedef int bind_function(int, const struct sockaddr *, socklen_t);
typedef int listen_function(int, int);
typedef int accept4_function(int, struct sockaddr *, socklen_t *, int);

/* Return the C library's own function of this name, not the guard's. */
static void *next_of(const char *name, void **known)
{
    void *next = __atomic_load_n(known, __ATOMIC_ACQUIRE);
    if (!next) {
        next = dlsym(RTLD_NEXT, name);
        if (!next) /* this library was loaded after libc by dlopen(), so libc's comes first */
            next = dlsym(RTLD_DEFAULT, name);
        __atomic_store_n(known, next, __ATOMIC_RELEASE);
    }
    return next;
}

static int libc_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    static void *known;
    return ((bind_function *)next_of("bind", &known))(fd, address, length);
}

static int libc_listen(int fd, int backlog)
{
    static void *known;
    return ((listen_function *)next_of("listen", &known))(fd, backlog);
}

static int libc_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    static void *known;
    return ((accept4_function *)next_of("accept4", &known))(fd, address, length, flags);
}

static int option(int fd, int level, int name)
{
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

/* Return the family of a TCP socket (or a similar one, such as MPTCP); 0 for others. */
static int tcp_family(int fd)
{
    int family = option(fd, SOL_SOCKET, SO_DOMAIN);
    int is_tcp = (family == AF_INET || family == AF_INET6)
                 && option(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM;
    return is_tcp ? family : 0;
}

/* Replace the wildcard address by loopback; return whether it was the wildcard. */
static int to_loopback(int fd, int family, struct sockaddr_storage *address)
{
    static const unsigned char any[4];
    const uint32_t loopback = htonl(INADDR_LOOPBACK);
    if (family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)address;
        if (v4->sin_addr.s_addr != htonl(INADDR_ANY))
            return 0;
        v4->sin_family = AF_INET;
        v4->sin_addr.s_addr = loopback;
        return 1;
    }
    struct in6_addr *v6 = &((struct sockaddr_in6 *)address)->sin6_addr;
    if (!IN6_IS_ADDR_UNSPECIFIED(v6)
        && (memcmp(v6, v4_in_v6, 12) || memcmp(v6->s6_addr + 12, any, 4)))
        return 0;
    if (option(fd, IPPROTO_IPV6, IPV6_V6ONLY) == 1) {
        *v6 = in6addr_loopback;
    } else {
        memcpy(v6, v4_in_v6, 12);
        memcpy(v6->s6_addr + 12, &loopback, 4);
    }
    return 1;
}

/* The port of this task (TFCLUSTER_PORT) in network byte order; 0 if it has none. */
static in_port_t own_port;

__attribute__((constructor)) static void read_own_port(void)
{
    const char *said = getenv("TFCLUSTER_PORT");
    long port = said ? strtol(said, NULL, 10) : 0;
    if (port > 0 && port <= UINT16_MAX)
        own_port = htons((uint16_t)port);
}

/* Read the address of a bind() as the kernel does: with the family of the socket. */
static int end_of_bind(int family, const struct sockaddr_storage *address, struct end *end)
{
    struct sockaddr_storage said = *address;
    said.ss_family = (sa_family_t)family;
    return end_of(&said, end);
}

/* Bind a socket; this also works for the task's own port, which the supervisor keeps bound. */
static int bind_in_task(int fd, int family, const struct sockaddr_storage *address, socklen_t length)
{
    static const int on = 1, off = 0;
    struct end wanted;
    int result = libc_bind(fd, (const struct sockaddr *)address, length);
    if (result == 0 || errno != EADDRINUSE || !own_port
        || !end_of_bind(family, address, &wanted) || wanted.port != own_port || option(fd, SOL_SOCKET, SO_REUSEPORT) != 0)
        return result;
    if (has_listener(&wanted) || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on) != 0) {
        errno = EADDRINUSE;
        return -1;
    }
    result = libc_bind(fd, (const struct sockaddr *)address, length);
    if (result != 0) {
        int error = errno;
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &off, sizeof off);
        errno = error;
    }
    return result;
}

#define GUARDED_MODE 0700

static int guarded_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_storage asked = {0};
    /* Like the kernel, accept a v6 address without its last field, and 0.0.0.0 without a family. */
    const size_t enough = offsetof(struct sockaddr_in6, sin6_scope_id);
    int family = address ? tcp_family(fd) : 0;
    int is_read = (family == AF_INET && length >= sizeof(struct sockaddr_in)
                   && (address->sa_family == AF_INET || address->sa_family == AF_UNSPEC))
                  || (family == AF_INET6 && length >= enough && address->sa_family == AF_INET6);
    if (!is_read || length > sizeof asked)
        return libc_bind(fd, address, length);
    memcpy(&asked, address, length);
    if (!to_loopback(fd, family, &asked))
        return bind_in_task(fd, family, &asked, length);
    struct stat before;
    if (fstat(fd, &before) != 0 || fchmod(fd, GUARDED_MODE) != 0)
        return -1;
    int result = bind_in_task(fd, family, &asked, length);
    if (result != 0) { /* unmark it: the program may bind it to another address next */
        int error = errno;
        fchmod(fd, before.st_mode & 07777);
        errno = error;
    }
    return result;
}

/* Return the size of a TCP socket's address if it is the wildcard; 0 if it is not. */
static socklen_t wildcard_of(int fd, struct sockaddr_storage *address)
{
    struct sockaddr_storage copy;
    socklen_t size = sizeof *address;
    int family = tcp_family(fd);
    if (!family || getsockname(fd, (struct sockaddr *)address, &size) != 0)
        return 0;
    copy = *address;
    return to_loopback(fd, family, &copy) ? size : 0;
}

static int guarded_listen(int fd, int backlog)
{
    struct sockaddr_storage address;
    socklen_t size = wildcard_of(fd, &address);
    /* The kernel would bind a socket without an address to the wildcard and a free port. */
    if (size && ((struct sockaddr_in *)&address)->sin_port == 0
        && guarded_bind(fd, (struct sockaddr *)&address, size) != 0)
        return -1;
    return libc_listen(fd, backlog);
}

/* Return whether a socket is marked, or has the wildcard address because the guard was bypassed. */
static int is_guarded(int fd)
{
    struct sockaddr_storage address;
    struct stat file;
    if (fstat(fd, &file) != 0 || !S_ISSOCK(file.st_mode))
        return 0;
    return ((file.st_mode & 0777) == GUARDED_MODE && tcp_family(fd)) || wildcard_of(fd, &address);
}

static int guarded_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    if (!is_guarded(fd))
        return libc_accept4(fd, address, length, flags);
    const socklen_t room = length ? *length : 0;
    for (;;) {
        /* Reserve a descriptor for asking the kernel. If none is free, accept() fails as usual: the
         * connection stays in the queue and is served once a descriptor is free. */
        struct stat kept, now;
        int spare = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (spare < 0 || fstat(spare, &kept) != 0)
            return -1;
        int connection = libc_accept4(fd, address, length, flags);
        int error = errno;
        /* While accept() waited, the program may have closed our descriptor and reused the number. */
        if (fstat(spare, &now) == 0 && now.st_dev == kept.st_dev && now.st_ino == kept.st_ino)
            close(spare);
        if (connection < 0 || is_from_us(connection)) {
            errno = error;
            return connection;
        }
        close(connection);
        if (length)
            *length = room;
    }
}

static int guarded_accept(int fd, struct sockaddr *address, socklen_t *length)
{
    return guarded_accept4(fd, address, length, 0);
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    return guarded_bind(fd, address, length);
}

int listen(int fd, int backlog)
{
    return guarded_listen(fd, backlog);
}

int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    return guarded_accept4(fd, address, length, flags);
}

int accept(int fd, struct sockaddr *address, socklen_t *length)
{
    return guarded_accept(fd, address, length);
}

static const struct {
    const char *name;
    void *guard;
} calls[] = {{"bind", (void *)guarded_bind},
             {"listen", (void *)guarded_listen},
             {"accept4", (void *)guarded_accept4},
             {"accept", (void *)guarded_accept}};

/* The tables that the dynamic section of a loaded library names. */
struct tables {
    const ElfW(Sym) *symbols;
    const char *names;
    const ElfW(Rela) *calls, *data;
    size_t calls_size, data_size;
};

static struct tables read_tables(const struct dl_phdr_info *library, const ElfW(Dyn) *entry)
{
    struct tables found = {0};
    for (; entry->d_tag != DT_NULL; entry++) {
        /* glibc has relocated these pointers already; musl has not. */
        ElfW(Addr) value = entry->d_un.d_ptr;
        ElfW(Addr) pointer = value < library->dlpi_addr ? value + library->dlpi_addr : value;
        switch (entry->d_tag) {
        case DT_SYMTAB: found.symbols = (const ElfW(Sym) *)pointer; break;
        case DT_STRTAB: found.names = (const char *)pointer; break;
        case DT_JMPREL: found.calls = (const ElfW(Rela) *)pointer; break;
        case DT_PLTRELSZ: found.calls_size = value; break;
        case DT_RELA: found.data = (const ElfW(Rela) *)pointer; break;
        case DT_RELASZ: found.data_size = value; break;
        }
    }
    return found;
}

/* Write a guard into one slot, which may lie in pages made read-only after relocation (RELRO). */
static int redirect(const struct dl_phdr_info *library, void **slot, void *guard)
{
    if (*slot == guard)
        return 1;
    uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)((uintptr_t)slot & ~(page_size - 1));
    int protection = PROT_READ | PROT_WRITE;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[i];
        uintptr_t start = library->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_GNU_RELRO && (uintptr_t)slot >= start
            && (uintptr_t)slot < start + segment->p_memsz)
            protection = PROT_READ;
    }
    if (mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0)
        return 0;
    __atomic_store_n(slot, guard, __ATOMIC_RELEASE);
    mprotect(page, page_size, protection);
    return 1;
}

static int redirect_all(const struct dl_phdr_info *library, const struct tables *all,
                        const ElfW(Rela) *relocation, size_t size)
{
    int redirected = 0;
    if (!relocation || !all->symbols || !all->names)
        return 0;
    for (size_t i = 0; i < size / sizeof *relocation; i++, relocation++) {
        unsigned long type = ELF64_R_TYPE(relocation->r_info);
        if (type != CALL_SLOT && type != DATA_SLOT
            && (type != POINTER || relocation->r_addend != 0))
            continue;
        const ElfW(Sym) *symbol = &all->symbols[ELF64_R_SYM(relocation->r_info)];
        void **slot = (void **)(library->dlpi_addr + relocation->r_offset);
        for (size_t call = 0; call < sizeof calls / sizeof *calls; call++)
            if (strcmp(all->names + symbol->st_name, calls[call].name) == 0)
                redirected += redirect(library, slot, calls[call].guard);
    }
    return redirected;
}

/* Return whether a library is TensorFlow's or gRPC's. Only the part of the path after the last
 * "-packages/" counts, else the file's name: a folder above may be called tensorflow, too. */
static int is_tensorflow(const char *path)
{
    const char *part = NULL, *next = path;
    while ((next = strstr(next, "-packages/")) != NULL)
        part = next += strlen("-packages/");
    if (!part) {
        part = strrchr(path, '/');
        part = part ? part + 1 : path;
    }
    return strstr(part, "tensorflow") || strstr(part, "grpc");
}

static int visit(struct dl_phdr_info *library, size_t size, void *total)
{
    (void)size;
    if (!library->dlpi_name || !is_tensorflow(library->dlpi_name))
        return 0;
    for (int i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &library->dlpi_phdr[i];
        if (segment->p_type == PT_DYNAMIC) {
            uintptr_t entries = library->dlpi_addr + segment->p_vaddr;
            struct tables all = read_tables(library, (const ElfW(Dyn) *)entries);
            *(int *)total += redirect_all(library, &all, all.calls, all.calls_size);
            *(int *)total += redirect_all(library, &all, all.data, all.data_size);
        }
    }
    return 0;
}

/* Guard the loaded libraries of TensorFlow and gRPC; return the number of redirected slots. */
__attribute__((visibility("default"))) int tfcluster_guard_loaded_libraries(void)
{
    int total = 0;
    dl_iterate_phdr(visit, &total);
    return total;
}
