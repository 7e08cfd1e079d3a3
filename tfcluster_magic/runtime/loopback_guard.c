/* LD_PRELOAD shim: a TCP socket that asks for the wildcard address gets loopback instead, and only
 * this account's connections.
 *
 * TensorFlow's gRPC server always binds the wildcard address, whatever its cluster says, and has no
 * authentication. The guard answers bind() for 0.0.0.0, :: and ::ffff:0.0.0.0 with 127.0.0.1 (::1
 * for a socket that is v6 only); other addresses, socket types and families pass unchanged. From a
 * socket that was answered so, accept() gives no connection of another account of the machine: it
 * is closed unread.
 *
 * A process that runs already (a notebook kernel) loads the library itself and calls
 * tfcluster_guard_loaded_libraries(), which redirects these calls of the TensorFlow and gRPC
 * libraries loaded so far, and of no others.
 */
#define _GNU_SOURCE
#include "loopback_peer.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#define CALL_SLOT R_X86_64_JUMP_SLOT
#define DATA_SLOT R_X86_64_GLOB_DAT
#elif defined(__aarch64__)
#define CALL_SLOT R_AARCH64_JUMP_SLOT
#define DATA_SLOT R_AARCH64_GLOB_DAT
#else
#error "the loopback guard knows x86_64 and aarch64"
#endif

typedef int bind_function(int, const struct sockaddr *, socklen_t);
typedef int accept4_function(int, struct sockaddr *, socklen_t *, int);

/* Which descriptors were given loopback instead of the wildcard; higher ones than these are not
 * told apart, and count as such. */
#define DESCRIPTORS 65536
static unsigned char guarded[DESCRIPTORS];

static int answered(int fd, int result, unsigned char is_guarded)
{
    if (result == 0 && fd >= 0 && fd < DESCRIPTORS)
        __atomic_store_n(&guarded[fd], is_guarded, __ATOMIC_RELEASE);
    return result;
}

static int is_guarded(int fd)
{
    return fd >= DESCRIPTORS || (fd >= 0 && __atomic_load_n(&guarded[fd], __ATOMIC_ACQUIRE));
}

/* What the C library has under a name, past the guard. */
static void *next_of(const char *name)
{
    /* RTLD_NEXT finds nothing when the guard was loaded with dlopen() after libc. */
    void *next = dlsym(RTLD_NEXT, name);
    if (!next) {
        void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        next = libc ? dlsym(libc, name) : NULL;
    }
    return next;
}

static int libc_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    static bind_function *next;
    if (!next)
        next = (bind_function *)next_of("bind");
    return next(fd, address, length);
}

static int is_tcp(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

static int guarded_bind(int fd, const struct sockaddr *address, socklen_t length)
{
    if (address && address->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        if (v4.sin_addr.s_addr == htonl(INADDR_ANY) && is_tcp(fd)) {
            v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            return answered(fd, libc_bind(fd, (struct sockaddr *)&v4, sizeof v4), 1);
        }
    } else if (address && address->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof v6);
        static const unsigned char any[4];
        int mapped_any = !memcmp(&v6.sin6_addr, v4_in_v6, 12)
                         && !memcmp(v6.sin6_addr.s6_addr + 12, any, 4);
        if ((IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) || mapped_any) && is_tcp(fd)) {
            const uint32_t loopback = htonl(INADDR_LOOPBACK);
            int only_v6 = 0;
            socklen_t size = sizeof only_v6;
            getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, &size);
            if (only_v6) {
                v6.sin6_addr = in6addr_loopback;
            } else {
                memcpy(&v6.sin6_addr, v4_in_v6, 12);
                memcpy(v6.sin6_addr.s6_addr + 12, &loopback, 4);
            }
            return answered(fd, libc_bind(fd, (struct sockaddr *)&v6, sizeof v6), 1);
        }
    }
    return answered(fd, libc_bind(fd, address, length), 0);
}

static int guarded_accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    static accept4_function *next;
    if (!next)
        next = (accept4_function *)next_of("accept4");
    const socklen_t room = length ? *length : 0;
    for (;;) {
        int connection = next(fd, address, length, flags);
        if (connection < 0 || !is_guarded(fd) || peer_of(connection) != PEER_OTHER)
            return connection;
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
             {"accept4", (void *)guarded_accept4},
             {"accept", (void *)guarded_accept}};

/* One loaded library's tables, as the dynamic section gives them. */
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
        if (type != CALL_SLOT && type != DATA_SLOT)
            continue;
        const ElfW(Sym) *symbol = &all->symbols[ELF64_R_SYM(relocation->r_info)];
        void **slot = (void **)(library->dlpi_addr + relocation->r_offset);
        for (size_t call = 0; call < sizeof calls / sizeof *calls; call++)
            if (strcmp(all->names + symbol->st_name, calls[call].name) == 0)
                redirected += redirect(library, slot, calls[call].guard);
    }
    return redirected;
}

/* Whether a library is TensorFlow's or gRPC's. Only what follows the last "-packages/" counts, or
 * the file's name: a folder may be called tensorflow without everything in it being so. */
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

/* Guard the TensorFlow and gRPC libraries loaded now; how many slots point to the guard. */
__attribute__((visibility("default"))) int tfcluster_guard_loaded_libraries(void)
{
    int total = 0;
    dl_iterate_phdr(visit, &total);
    return total;
}
