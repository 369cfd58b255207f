/* net_test.h - raw loopback sockets driven by the real loop, for the tests of src/net/.
 *
 * The test owns both ends: it writes bytes into a plain socket and turns the loop until the bytes
 * it waits for are there.  Nothing sleeps longer than it must. */
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "unit.h"
#include "base/buf.h"
#include "base/mem.h"
#include "net/loop.h"

struct raw {           /* the client's end of a connection */
    struct loop *loop; /* borrowed */
    int fd;
    struct buf got; /* owned; what has arrived and was not taken yet */
    bool eof;
};

static inline int64_t test_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static inline struct raw raw_connect(struct loop *loop, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct raw r = {.loop = loop, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(r.fd, (struct sockaddr *)&a, sizeof a), 0);
    fcntl(r.fd, F_SETFL, O_NONBLOCK);
    return r;
}

static inline void raw_close(struct raw *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    buf_done(&r->got);
}

/* Read what is there. */
static inline void raw_poll(struct raw *r)
{
    char bytes[65536];
    ssize_t n;

    while ((n = recv(r->fd, bytes, sizeof bytes, 0)) > 0)
        buf_add(&r->got, bytes, (size_t)n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        r->eof = true;
}

static inline void raw_send(struct raw *r, struct str s)
{
    while (s.n > 0) {
        ssize_t n = send(r->fd, s.p, s.n, MSG_NOSIGNAL);
        if (n > 0)
            s = str_skip(s, (size_t)n);
        else if (errno != EAGAIN)
            return; /* the server hung up; the test sees it when reading */
        else
            raw_poll(r);
        loop_turn(r->loop, 1);
    }
}

static inline void raw_send_z(struct raw *r, const char *z)
{
    raw_send(r, str_of(z));
}

static inline bool raw_has(const struct raw *r, const char *text)
{
    return str_contains(buf_str(&r->got), str_of(text));
}

/* Turn the loop until @text has arrived.  False on end of file or after five seconds. */
static inline bool raw_wait(struct raw *r, const char *text)
{
    int64_t until = test_now_ms() + 5000;

    for (;;) {
        raw_poll(r);
        if (raw_has(r, text))
            return true;
        if (r->eof || test_now_ms() > until)
            return false;
        loop_turn(r->loop, 2);
    }
}

static inline bool raw_wait_bytes(struct raw *r, size_t n)
{
    int64_t until = test_now_ms() + 5000;

    for (;;) {
        raw_poll(r);
        if (r->got.n >= n)
            return true;
        if (r->eof || test_now_ms() > until)
            return false;
        loop_turn(r->loop, 2);
    }
}

static inline bool raw_wait_eof(struct raw *r)
{
    int64_t until = test_now_ms() + 8000;

    while (!r->eof && test_now_ms() < until) {
        loop_turn(r->loop, 2);
        raw_poll(r);
    }
    return r->eof;
}

static inline void raw_forget(struct raw *r)
{
    buf_reset(&r->got);
}

static inline void loop_turns(struct loop *l, int n)
{
    for (int i = 0; i < n; i++)
        loop_turn(l, 1);
}

/* Turn until *@flag is not 0; false after five seconds. */
static inline bool loop_until(struct loop *l, const int *flag)
{
    int64_t until = test_now_ms() + 5000;

    while (*flag == 0 && test_now_ms() < until)
        loop_turn(l, 2);
    return *flag != 0;
}

/* No descriptor more than are open now; setrlimit(RLIMIT_NOFILE, ret_was) gives them back. */
static inline void test_no_descriptors(struct rlimit *ret_was)
{
    int next = dup(0);
    struct rlimit none;

    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, ret_was), 0);
    none = (struct rlimit){(rlim_t)next, ret_was->rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}
