/* url_probe.c - a name, an address, a connection.  (url_probe.h has the contract.) */
#include "cli/url_probe.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/str.h"
#include "net/http_client.h"

static bool split_url(const char *url, char host[256], char port[8])
{
    struct str rest = str_of(url);
    bool tls = str_starts(rest, STR("https://"));
    struct str hostport;

    rest = str_skip(rest, tls ? 8 : 7);
    str_split(&rest, '/', &hostport);
    size_t colon = hostport.n;
    while (colon > 0 && hostport.p[colon - 1] != ':' && hostport.p[colon - 1] != ']')
        colon--;
    bool has_port = colon > 0 && hostport.p[colon - 1] == ':';
    struct str h = has_port ? str_make(hostport.p, colon - 1) : hostport;
    if (h.n > 1 && *h.p == '[')
        h = str_make(h.p + 1, h.n - 2);
    snprintf(host, 256, "%.*s", STR_FMT(h));
    if (has_port)
        snprintf(port, 8, "%.*s", STR_FMT(str_skip(hostport, colon)));
    else
        snprintf(port, 8, "%s", tls ? "443" : "80");
    return *host != '\0';
}

static bool connects(const struct addrinfo *ai, int64_t timeout_ms)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), e = 0;
    socklen_t n = sizeof e;

    if (fd < 0)
        return false;
    bool ok = connect(fd, ai->ai_addr, ai->ai_addrlen) == 0;
    if (!ok && errno == EINPROGRESS) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ok = poll(&p, 1, (int)timeout_ms) == 1 &&
             getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) == 0 && e == 0;
    }
    close(fd);
    return ok;
}

enum url_answer url_probe(const char *url, bool public_only, int64_t timeout_ms, char *ret_place,
                          char *ret_why)
{
    char host[256], port[8];
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM};
    enum url_answer answer = URL_SILENT;

    if (!split_url(url, host, port))
        return URL_MALFORMED;
    snprintf(ret_place, 272, "%s", host);
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0) {
        snprintf(ret_why, 128, "%s", gai_strerror(rc));
        return URL_UNKNOWN_NAME;
    }
    if (public_only && http_addr_is_private(list->ai_addr)) {
        answer = URL_PRIVATE;
    } else {
        snprintf(ret_place, 272, "%s:%s", host, port);
        answer = connects(list, timeout_ms) ? URL_REACHED : URL_SILENT;
    }
    freeaddrinfo(list);
    return answer;
}
