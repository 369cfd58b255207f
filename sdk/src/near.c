/* near.c - a plain socket, non-blocking.  (near.h has the contract.) */
#include "near.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The variables libcurl looks at for an http URL. */
static bool has_proxy(void)
{
    static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && *value != '\0')
            return true;
    }
    return false;
}

/* "http://127.0.0.1:7077/relay": an address in numbers, and a loopback one. */
static bool read_address(const char *url, struct sockaddr_in *ret_at)
{
    struct str rest = str_of(url), host, port = STR("80");
    char text[INET_ADDRSTRLEN];
    uint64_t number;

    if (!str_starts(rest, STR("http://")))
        return false;
    rest = str_skip(rest, 7);
    str_split(&rest, '/', &host);
    ptrdiff_t colon = str_find(host, ':');
    if (colon >= 0) {
        port = str_skip(host, (size_t)colon + 1);
        host.n = (size_t)colon;
    }
    if (host.n >= sizeof text || !str_to_u64(port, &number) || number == 0 || number > 65535)
        return false;
    memcpy(text, host.p, host.n);
    text[host.n] = '\0';
    *ret_at = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)number)};
    return inet_pton(AF_INET, text, &ret_at->sin_addr) == 1 &&
           ntohl(ret_at->sin_addr.s_addr) >> 24 == 127;
}

int gwc_near_dial(const char *url)
{
    struct sockaddr_in at;
    int fd, yes = 1;

    if (!read_address(url, &at) || has_proxy())
        return -1;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0 || errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

enum gwc_io gwc_near_dial_step(int fd, char error[CURL_ERROR_SIZE])
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t n = sizeof(int);
    int problem = 0;

    if (poll(&p, 1, 0) <= 0)
        return GWC_IO_AGAIN;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &n) < 0)
        problem = errno;
    if (problem == 0)
        return GWC_IO_DONE;
    snprintf(error, CURL_ERROR_SIZE, "%s", strerror(problem));
    return GWC_IO_FAILED;
}

void gwc_near_dial_wait(int fd, int wake_fd, int timeout_ms)
{
    struct pollfd p[2] = {{.fd = fd, .events = POLLOUT}, {.fd = wake_fd, .events = POLLIN}};

    poll(p, 2, timeout_ms);
}

static enum gwc_io outcome(ssize_t n, size_t *ret_n)
{
    *ret_n = n > 0 ? (size_t)n : 0;
    if (n > 0)
        return GWC_IO_DONE;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? GWC_IO_AGAIN : GWC_IO_FAILED;
}

enum gwc_io gwc_near_write(int fd, struct str bytes, size_t *ret_n)
{
    return outcome(send(fd, bytes.p, bytes.n, MSG_NOSIGNAL), ret_n);
}

enum gwc_io gwc_near_read(int fd, char *p, size_t n, size_t *ret_n)
{
    return outcome(recv(fd, p, n, 0), ret_n);
}
