/* knock.c - the wake listener.  (knock.h has the contract.)
 *
 * Any other request is a wake poke: the contract says "a payload-free GET", proxies may change it,
 * and a needless wake costs little.  Only a complete head counts, so a port scan wakes nothing.  A
 * client that is silent for two seconds is dropped, so it cannot block the listener for long. */
#include "agent/sleeper/knock.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "agent/sleeper/tell.h"

#define KNOCK_MS 2000

void knock_init(struct knock *k, int listener)
{
    k->listener = listener;
    for (size_t i = 0; i < KNOCKERS; i++)
        k->who[i].fd = -1;
}

size_t knock_poll(const struct knock *k, struct pollfd *fds)
{
    size_t n = 0;

    fds[n++] = (struct pollfd){.fd = k->listener, .events = POLLIN};
    for (size_t i = 0; i < KNOCKERS; i++)
        if (k->who[i].fd >= 0)
            fds[n++] = (struct pollfd){.fd = k->who[i].fd, .events = POLLIN};
    return n;
}

int64_t knock_due_ms(const struct knock *k)
{
    int64_t due = INT64_MAX;

    for (size_t i = 0; i < KNOCKERS; i++)
        if (k->who[i].fd >= 0 && k->who[i].until_ms < due)
            due = k->who[i].until_ms;
    return due;
}

static void drop(struct knocker *w)
{
    close(w->fd);
    w->fd = -1;
}

/* A free slot, or the slot of the oldest client. */
static struct knocker *place(struct knock *k)
{
    struct knocker *oldest = &k->who[0];

    for (size_t i = 0; i < KNOCKERS; i++) {
        if (k->who[i].fd < 0)
            return &k->who[i];
        if (k->who[i].until_ms < oldest->until_ms)
            oldest = &k->who[i];
    }
    drop(oldest);
    return oldest;
}

static bool let_in(struct knock *k)
{
    int fd = accept4(k->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return false;
    struct knocker *w = place(k);
    w->fd = fd;
    w->until_ms = now_ms() + KNOCK_MS;
    w->n = 0;
    return true;
}

static bool is_probe(const char *head, const char *nonce)
{
    const char *at = strcasestr(head, "\r\nX-Bellhop-Probe: ");

    return at != NULL && *nonce != '\0' && strncmp(at + 19, nonce, strlen(nonce)) == 0;
}

enum knock_kind knock_read(const char *head, const char *nonce)
{
    const char *path = strchr(head, ' ');

    if (path == NULL)
        return KNOCK_NOTHING;
    if (is_probe(head, nonce))
        return KNOCK_PROBE;
    path++;
    if (strncmp(path, "/healthz", 8) == 0 && strchr(" ?", path[8]) != NULL)
        return KNOCK_HEALTH;
    if (strncmp(path, "/favicon.ico ", 13) == 0)
        return KNOCK_NOTHING;
    return KNOCK_WAKE;
}

static void answer(struct knocker *w, enum knock_kind kind, const char *health)
{
    char out[512];
    const char *body = kind == KNOCK_HEALTH ? health : "{\"ok\":true}\n";
    int n = snprintf(out, sizeof out,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "Connection: close\r\n\r\n%s",
                     kind == KNOCK_NOTHING ? "404 Not Found" : "200 OK", strlen(body), body);

    if (n > 0 &&
        send(w->fd, out, (size_t)n < sizeof out ? (size_t)n : sizeof out - 1, MSG_NOSIGNAL) < 0)
        warn("a poke could not be answered: %s", strerror(errno));
    shutdown(w->fd, SHUT_WR);
    drop(w);
}

/* True: the request is complete, and its kind is in @ret. */
static bool listen_to(struct knocker *w, const char *nonce, const char *health,
                      enum knock_kind *ret)
{
    ssize_t n = recv(w->fd, w->head + w->n, KNOCK_HEAD - 1 - w->n, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (now_ms() >= w->until_ms)
            drop(w);
        return false;
    }
    if (n <= 0) {
        drop(w);
        return false;
    }
    w->n += (size_t)n;
    w->head[w->n] = '\0';
    if (strstr(w->head, "\r\n\r\n") == NULL && w->n < KNOCK_HEAD - 1)
        return false;
    *ret = knock_read(w->head, nonce);
    answer(w, *ret, health);
    return true;
}

enum knock_kind knock_turn(struct knock *k, const char *nonce, const char *health)
{
    enum knock_kind kind;

    while (let_in(k))
        ;
    for (size_t i = 0; i < KNOCKERS; i++)
        if (k->who[i].fd >= 0 && listen_to(&k->who[i], nonce, health, &kind) &&
            kind != KNOCK_NOTHING)
            return kind;
    return KNOCK_NOTHING;
}
