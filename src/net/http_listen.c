/* http_listen.c - from "127.0.0.1:7077" to a listening socket, or to a sentence that says what to
 * fix. */
#include "net/conn.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WHY_BYTES = 256, BACKLOG = 4096, MAX_UNSENT = 256 * 1024 };

static enum bh_err BH_PRINTF(2, 3) say(char *ret_why, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(ret_why, WHY_BYTES, fmt, args);
    va_end(args);
    return BH_REFUSED;
}

/* True when somebody answers on the socket file. */
static bool is_answered(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) == 0;
    if (fd >= 0)
        close(fd);
    return yes;
}

/* Make room for a socket file: remove a stale one, refuse anything else. */
static enum bh_err clear_path(const struct sockaddr_un *a, char *ret_why)
{
    struct stat st;

    if (lstat(a->sun_path, &st) != 0)
        return BH_OK;
    if (!S_ISSOCK(st.st_mode))
        return say(ret_why, "%s exists and is not a socket: choose another path", a->sun_path);
    if (is_answered(a))
        return say(ret_why, "somebody listens on %s already: is another bellhop running?",
                   a->sun_path);
    if (unlink(a->sun_path) != 0)
        return say(ret_why, "cannot remove the stale socket %s: %s", a->sun_path, strerror(errno));
    return BH_OK;
}

static enum bh_err open_unix(struct str path, int mode, int *ret_fd, char *ret_why)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    enum bh_err err;
    mode_t mask;
    int fd, bound;

    if (path.n == 0 || path.n >= sizeof a.sun_path)
        return say(ret_why, "the path of a Unix socket has 1 to %zu bytes", sizeof a.sun_path - 1);
    memcpy(a.sun_path, path.p, path.n);
    err = clear_path(&a, ret_why);
    if (err != BH_OK)
        return err;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return say(ret_why, "cannot make a socket: %s", strerror(errno));
    mask = umask(0777 & ~(mode_t)mode); /* nobody gets in between bind() and chmod() */
    bound = bind(fd, (struct sockaddr *)&a, sizeof a);
    umask(mask);
    if (bound != 0 || listen(fd, BACKLOG) != 0) {
        say(ret_why, "cannot listen on %s: %s", a.sun_path, strerror(errno));
        close(fd);
        return BH_REFUSED;
    }
    *ret_fd = fd;
    return BH_OK;
}

static enum bh_err split_where(struct str where, char *ret_host, size_t host_cap, char ret_port[6],
                               char *ret_why)
{
    struct str host, port;
    uint64_t number;
    size_t colon = where.n;

    while (colon > 0 && where.p[colon - 1] != ':')
        colon--;
    host = str_make(where.p, colon > 0 ? colon - 1 : 0);
    port = str_make(where.p + colon, where.n - colon);
    if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']')
        host = str_make(host.p + 1, host.n - 2);
    if (colon == 0 || host.n == 0 || host.n >= host_cap || !str_to_u64(port, &number) ||
        number > 65535)
        return say(ret_why,
                   "\"%.*s\" is not an address to listen on: write 127.0.0.1:7077, "
                   "[::1]:7077 or unix:/path",
                   STR_FMT(where));
    memcpy(ret_host, host.p, host.n);
    ret_host[host.n] = '\0';
    snprintf(ret_port, 6, "%u", (unsigned)number);
    return BH_OK;
}

static enum bh_err explain_bind(int err, const char *host, const char *port, char *ret_why)
{
    switch (err) {
    case EADDRINUSE:
        say(ret_why,
            "port %s is in use: stop the program that has it (ss -ltnp shows it) or "
            "choose another port",
            port);
        return BH_BUSY;
    case EACCES:
        return say(ret_why,
                   "port %s needs privileges: choose one above 1023 or grant "
                   "CAP_NET_BIND_SERVICE",
                   port);
    case EADDRNOTAVAIL:
        return say(ret_why, "%s is not an address of this machine (ip addr shows them)", host);
    default:
        return say(ret_why, "cannot listen on %s port %s: %s", host, port, strerror(err));
    }
}

static enum bh_err open_tcp(struct str where, int *ret_fd, char *ret_why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[256], port[6];
    enum bh_err err = split_where(where, host, sizeof host, port, ret_why);
    int fd, gai, on = 1, unsent = MAX_UNSENT;

    if (err != BH_OK)
        return err;
    gai = getaddrinfo(host, port, &hints, &found);
    if (gai != 0)
        return say(ret_why, "cannot find the address %s: %s", host, gai_strerror(gai));
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        err = say(ret_why, "cannot make a socket: %s", strerror(errno));
        goto out;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* accepted sockets inherit these */
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
    if (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        err = explain_bind(errno, host, port, ret_why);
        close(fd);
        goto out;
    }
    *ret_fd = fd;
out:
    freeaddrinfo(found);
    return err;
}

enum bh_err http_listen_open(struct str where, int mode, int *ret_fd, char *ret_why)
{
    if (str_starts(where, STR("unix:")))
        return open_unix(str_skip(where, 5), mode, ret_fd, ret_why);
    return open_tcp(where, ret_fd, ret_why);
}
