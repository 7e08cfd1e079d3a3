/* Whose connection it is that came in over loopback, from the kernel's own list.
 *
 * Loopback is open to every account of the machine. /proc/net/tcp names the owner of each socket, so
 * the other end of a connection can be asked for there; it needs no privilege, and works in any
 * container. proc_pid_net(5), tcp(7).
 */
#ifndef LOOPBACK_PEER_H
#define LOOPBACK_PEER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned char v4_in_v6[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

enum peer { PEER_UNKNOWN, PEER_OWN, PEER_OTHER };

/* An end of a connection: 127.0.0.1 as four bytes, ::1 as sixteen, and its port. */
struct end {
    int size;
    unsigned char address[16];
    unsigned port;
};

static int read_end(const struct sockaddr_storage *name, struct end *end)
{
    if (name->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)name;
        end->size = 4;
        memcpy(end->address, &v4->sin_addr, 4);
        end->port = ntohs(v4->sin_port);
        return 1;
    }
    if (name->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)name;
        const unsigned char *bytes = v6->sin6_addr.s6_addr;
        end->size = memcmp(bytes, v4_in_v6, 12) ? 16 : 4;
        memcpy(end->address, bytes + 16 - end->size, (size_t)end->size);
        end->port = ntohs(v6->sin6_port);
        return 1;
    }
    return 0;
}

/* One "0100007F:1F90": words of the address in the machine's byte order, then the port. */
static int parse_end(const char *text, struct end *end)
{
    unsigned char bytes[16];
    int size = (int)strcspn(text, ":") / 2;
    if ((size != 4 && size != 16) || sscanf(text + 2 * size, ":%x", &end->port) != 1)
        return 0;
    for (int word = 0; word < size / 4; word++) {
        unsigned value;
        if (sscanf(text + 8 * word, "%8x", &value) != 1)
            return 0;
        memcpy(bytes + 4 * word, &value, 4);
    }
    struct sockaddr_storage name = {0};
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&name;
    unsigned port = end->port;
    if (size == 4) {
        end->size = 4;
        memcpy(end->address, bytes, 4);
        return 1;
    }
    v6->sin6_family = AF_INET6; /* a v6 socket may talk to a v4 one: both are told in the same way */
    memcpy(v6->sin6_addr.s6_addr, bytes, 16);
    read_end(&name, end);
    end->port = port;
    return 1;
}

static int same_end(const struct end *one, const struct end *other)
{
    return one->size == other->size && one->port == other->port
           && !memcmp(one->address, other->address, (size_t)one->size);
}

/* The owner of the socket `from` that is connected with `to`; -1 when the list has none, -2 when there
 * is no list. */
static long owner_of(const struct end *from, const struct end *to)
{
    static const char *const lists[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    long owner = -2;
    for (int i = 0; i < 2; i++) {
        FILE *list = fopen(lists[i], "re");
        if (!list)
            continue;
        if (owner == -2)
            owner = -1;
        char line[512], local[64], remote[64];
        while (owner < 0 && fgets(line, sizeof line, list)) {
            unsigned state, uid;
            struct end here, there;
            if (sscanf(line, " %*d: %63s %63s %x %*s %*s %*s %u", local, remote, &state, &uid) != 4
                || state != TCP_ESTABLISHED) /* of one that is gone the list may say uid 0 */
                continue;
            if (parse_end(local, &here) && parse_end(remote, &there) && same_end(&here, from)
                && same_end(&there, to))
                owner = (long)uid;
        }
        fclose(list);
    }
    return owner;
}

/* Whether a connection was made by this account or by root, who may do everything anyway.
 *
 * The list is no snapshot, so a row may be missed once; who is not in it three times is gone. */
static enum peer peer_of(int fd)
{
    struct sockaddr_storage local, remote;
    socklen_t size = sizeof local, remote_size = sizeof remote;
    struct end here, there;
    if (getsockname(fd, (struct sockaddr *)&local, &size) != 0
        || getpeername(fd, (struct sockaddr *)&remote, &remote_size) != 0
        || !read_end(&local, &here) || !read_end(&remote, &there))
        return PEER_UNKNOWN;
    for (int attempt = 0; attempt < 3; attempt++) {
        long owner = owner_of(&there, &here);
        if (owner >= 0)
            return owner == 0 || owner == (long)geteuid() ? PEER_OWN : PEER_OTHER;
        if (owner == -2)
            return PEER_UNKNOWN;
    }
    return PEER_OTHER;
}

#endif
