/* Find out who owns a connection over loopback, by asking the kernel for the peer's socket.
 *
 * Loopback is open to every account of the machine. The kernel knows the owner of each socket, even
 * of the socket at the other end. sock_diag(7) reports a single socket, at a fixed cost. Without
 * sock_diag (seccomp, gVisor) we read the kernel's list, /proc/net/tcp (proc_pid_net(5)). Neither
 * way needs a privilege. If the owner is unknown, the connection is refused.
 *
 * An owner counts only if the socket has an inode, which shows that a process has it open. For a
 * socket that was closed, or that waits in the queue of a listener, the kernel may report the owner
 * 0, which does not mean root.
 */
#ifndef LOOPBACK_PEER_H
#define LOOPBACK_PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char v4_in_v6[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* An end of a connection: its address (127.0.0.1 has four bytes, ::1 sixteen), and its port in
 * network byte order. ::ffff:127.0.0.1 is stored as 127.0.0.1, because a v6 socket may be connected
 * with a v4 socket. */
struct end {
    unsigned size;
    unsigned char address[16];
    uint16_t port;
};

/* One socket of a connection, as the kernel describes it. */
struct owned {
    unsigned uid;
    unsigned long inode;
};

enum answer { UNAVAILABLE, NO_SUCH_SOCKET, FOUND };

static int make_end(int family, const void *address, uint16_t port, struct end *end)
{
    const unsigned char *bytes = address;
    if (family != AF_INET && family != AF_INET6)
        return 0;
    if (family == AF_INET6 && !memcmp(bytes, v4_in_v6, 12)) {
        bytes += 12;
        family = AF_INET;
    }
    end->size = family == AF_INET ? 4 : 16;
    memcpy(end->address, bytes, end->size);
    end->port = port;
    return 1;
}

static int end_of(const struct sockaddr_storage *name, struct end *end)
{
    if (name->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)name;
        return make_end(AF_INET6, &v6->sin6_addr, v6->sin6_port, end);
    }
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)name;
    return make_end(name->ss_family, &v4->sin_addr, v4->sin_port, end);
}

static int same_end(const struct end *one, const struct end *other)
{
    return one->size == other->size && one->port == other->port
           && !memcmp(one->address, other->address, one->size);
}

/* Return whether a socket in this state is one end of a connection. A listener, which the kernel
 * may return instead, is no end, nor is a socket that is still connecting. */
static int is_connected(unsigned state)
{
    return state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2
           || state == TCP_CLOSE_WAIT;
}

/* Ask the kernel for the socket at `from` that is connected with `to`.
 *
 * A new netlink socket is used for each question. So the socket is not shared with a forked child,
 * and if a program closes descriptors that it did not open, no other file is mistaken for it. */
static enum answer ask_kernel(const struct end *from, const struct end *to, struct owned *found)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } question = {
        .head = {.nlmsg_len = sizeof question,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST},
        .body = {.sdiag_family = from->size == 4 ? AF_INET : AF_INET6,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = ~0U,
                 .id = {.idiag_sport = from->port,
                        .idiag_dport = to->port,
                        .idiag_if = 1, /* `lo`: else sockets bound to this device are not found */
                        .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
    memcpy(question.body.id.idiag_src, from->address, from->size);
    memcpy(question.body.id.idiag_dst, to->address, to->size);

    int asked = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (asked < 0)
        return UNAVAILABLE;
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct sockaddr_nl sender = {0};
    socklen_t sender_size = sizeof sender;
    union {
        struct nlmsghdr head;
        unsigned char bytes[1024];
    } reply;
    ssize_t size = -1; /* MSG_DONTWAIT is enough: sendto() returns after the answer was queued */
    if (sendto(asked, &question, sizeof question, 0, (const struct sockaddr *)&kernel,
               sizeof kernel) == sizeof question)
        size = recvfrom(asked, &reply, sizeof reply, MSG_DONTWAIT, (struct sockaddr *)&sender,
                        &sender_size);
    close(asked);
    if (size < (ssize_t)NLMSG_LENGTH(sizeof(int)) || sender.nl_pid != 0)
        return UNAVAILABLE;
    if (reply.head.nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *error = NLMSG_DATA(&reply.head);
        return error->error == -ENOENT ? NO_SUCH_SOCKET : UNAVAILABLE;
    }
    if (reply.head.nlmsg_type != SOCK_DIAG_BY_FAMILY
        || size < (ssize_t)NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
        return UNAVAILABLE;
    const struct inet_diag_msg *told = NLMSG_DATA(&reply.head);
    struct end here, there;
    if (!is_connected(told->idiag_state) || told->idiag_inode == 0
        || !make_end(told->idiag_family, told->id.idiag_src, told->id.idiag_sport, &here)
        || !make_end(told->idiag_family, told->id.idiag_dst, told->id.idiag_dport, &there)
        || !same_end(&here, from) || !same_end(&there, to))
        return NO_SUCH_SOCKET;
    found->uid = told->idiag_uid;
    found->inode = told->idiag_inode;
    return FOUND;
}

/* Parse an end in the list, such as "0100007F:1F90": the words of the address in the machine's byte
 * order, then the port. */
static int parse_end(const char *text, struct end *end)
{
    unsigned char bytes[16];
    unsigned port;
    size_t words = strcspn(text, ":") / 8;
    if ((words != 1 && words != 4) || sscanf(text + 8 * words, ":%x", &port) != 1)
        return 0;
    for (size_t word = 0; word < words; word++) {
        unsigned value;
        if (sscanf(text + 8 * word, "%8x", &value) != 1)
            return 0;
        memcpy(bytes + 4 * word, &value, 4);
    }
    return make_end(words == 1 ? AF_INET : AF_INET6, bytes, htons((uint16_t)port), end);
}

/* Search the kernel's list for the socket at `from` that is connected with `to`. */
static enum answer ask_list(const struct end *from, const struct end *to, struct owned *found)
{
    static const char *const lists[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    enum answer answer = UNAVAILABLE;
    for (int i = 0; i < 2 && answer != FOUND; i++) {
        FILE *list = fopen(lists[i], "re");
        if (!list)
            continue;
        answer = NO_SUCH_SOCKET;
        char line[512], local[64], remote[64];
        while (answer != FOUND && fgets(line, sizeof line, list)) {
            unsigned state;
            struct owned row;
            struct end here, there;
            if (sscanf(line, " %*d: %63s %63s %x %*s %*s %*s %u %*s %lu", local, remote, &state,
                       &row.uid, &row.inode) != 5
                || !is_connected(state) || row.inode == 0 || !parse_end(local, &here)
                || !parse_end(remote, &there) || !same_end(&here, from) || !same_end(&there, to))
                continue;
            *found = row;
            answer = FOUND;
        }
        fclose(list);
    }
    return answer;
}

/* Return whether a listener accepts connections to `other`. */
static int covers(const struct end *listener, const struct end *other)
{
    static const unsigned char any[16];
    return listener->port == other->port
           && (same_end(listener, other) || !memcmp(listener->address, any, listener->size));
}

/* Ask the kernel for a listener at `at`. Return UNAVAILABLE if the kernel does not report the
 * listeners of this family. */
static enum answer ask_kernel_for_listener(int family, const struct end *at)
{
    const struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 body;
    } question = {.head = {.nlmsg_len = sizeof question,
                           .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                           .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                  .body = {.sdiag_family = (uint8_t)family,
                           .sdiag_protocol = IPPROTO_TCP,
                           .idiag_states = 1U << TCP_LISTEN,
                           .id = {.idiag_sport = at->port}}};
    int asked = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (asked < 0)
        return UNAVAILABLE;
    const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    enum answer answer = UNAVAILABLE;
    union {
        struct nlmsghdr head;
        unsigned char bytes[8192];
    } reply;
    if (sendto(asked, &question, sizeof question, 0, (const struct sockaddr *)&kernel,
               sizeof kernel) != sizeof question) {
        close(asked);
        return UNAVAILABLE;
    }
    for (int more = 1; more;) {
        ssize_t size = recv(asked, &reply, sizeof reply, MSG_DONTWAIT);
        more = size > 0;
        for (struct nlmsghdr *head = &reply.head; more && NLMSG_OK(head, size);
             head = NLMSG_NEXT(head, size)) {
            if (head->nlmsg_type == NLMSG_DONE && answer == UNAVAILABLE)
                answer = NO_SUCH_SOCKET;
            more = head->nlmsg_type == SOCK_DIAG_BY_FAMILY;
            const struct inet_diag_msg *told = NLMSG_DATA(head);
            struct end listener;
            if (more && head->nlmsg_len >= NLMSG_LENGTH(sizeof *told)
                && make_end(told->idiag_family, told->id.idiag_src, told->id.idiag_sport, &listener)
                && covers(&listener, at))
                answer = FOUND;
        }
    }
    close(asked);
    return answer;
}

/* Return whether a socket listens at `at`; 0 if the system does not report listeners. */
static int has_listener(const struct end *at)
{
    enum answer v4 = ask_kernel_for_listener(AF_INET, at);
    enum answer v6 = ask_kernel_for_listener(AF_INET6, at);
    if (v4 != UNAVAILABLE)
        return v4 == FOUND || v6 == FOUND;
    static const char *const lists[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    int found = 0;
    for (int i = 0; i < 2 && !found; i++) {
        FILE *list = fopen(lists[i], "re");
        char line[512], local[64];
        while (list && !found && fgets(line, sizeof line, list)) {
            unsigned state;
            struct end listener;
            found = sscanf(line, " %*d: %63s %*s %x", local, &state) == 2 && state == TCP_LISTEN
                    && parse_end(local, &listener) && covers(&listener, at);
        }
        if (list)
            fclose(list);
    }
    return found;
}

/* Return whether our user namespace maps all accounts. If it does, OVERFLOW_UID is a real account;
 * else the kernel reports this number for every account that the namespace does not map. */
#define OVERFLOW_UID 65534
static int knows_all_accounts(void)
{
    unsigned inside = 1, outside = 1, count = 0;
    FILE *map = fopen("/proc/self/uid_map", "re");
    if (!map)
        return 0;
    int known = fscanf(map, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0
                && outside == 0 && count == UINT32_MAX;
    fclose(map);
    return known;
}

/* Return whether connections of `uid` are accepted: the connections of this account, and of root,
 * because root may do everything anyway. */
static int may_enter(unsigned uid)
{
    if (uid != 0 && uid != geteuid())
        return 0;
    return uid != OVERFLOW_UID || knows_all_accounts();
}

/* Return whether a connection is known to have been made by this account or by root.
 *
 * Each way must also find our own end, with its inode. This shows that the answer is about our
 * network namespace and a live connection, so no other socket can have taken the peer's address. We
 * ask for the peer before and after our own end, because rows of the list are read at different
 * times. */
static int is_from_us(int fd)
{
    static enum answer (*const ways[])(const struct end *, const struct end *, struct owned *)
        = {ask_kernel, ask_list, ask_list, ask_list}; /* one reading of the list may miss a row */
    struct sockaddr_storage local, remote;
    socklen_t local_size = sizeof local, remote_size = sizeof remote;
    struct stat file;
    struct end here, there;
    if (fstat(fd, &file) != 0 || getsockname(fd, (struct sockaddr *)&local, &local_size) != 0
        || !end_of(&local, &here))
        return 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct owned peer, own, again;
        if (getpeername(fd, (struct sockaddr *)&remote, &remote_size) != 0
            || !end_of(&remote, &there))
            return 0; /* reset: the kernel still delivers what was sent, but reports no owner */
        enum answer first = ways[i](&there, &here, &peer);
        if (ways[i](&here, &there, &own) != FOUND || own.inode != file.st_ino)
            continue; /* this way does not find our own end */
        if (first == FOUND && ways[i](&there, &here, &again) == FOUND && peer.uid == again.uid
            && peer.inode == again.inode)
            return may_enter(peer.uid)
                   && getpeername(fd, (struct sockaddr *)&remote, &remote_size) == 0;
        if (ways[i] == ask_kernel)
            return 0;
    }
    return 0;
}

#endif
