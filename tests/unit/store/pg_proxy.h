/* pg_proxy.h - stands between a client and the server of pg_server.h, one connection at a time, and
 * cuts one of them when its client says COMMIT. */
#pragma once
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "store/pg_server.h"

enum pg_cut {
    PG_CUT_NEVER,
    PG_CUT_REQUEST, /* before the server gets the COMMIT */
    PG_CUT_ANSWER,  /* when the server has answered the COMMIT, before the client gets the answer */
};

struct pg_proxy {
    pthread_t thread;
    int listener;
    char url[160];   /* through the proxy */
    enum pg_cut cut; /* atomic; done once */
    bool shut;       /* atomic; refuses every connection after the cut */
};

static inline int pg_proxy_dial(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s/.s.PGSQL.5432", pg_dir);
    if (connect(fd, (struct sockaddr *)&at, sizeof at) != 0)
        abort();
    return fd;
}

/* What one side said goes to the other.  False: the connection ends. */
static inline bool pg_proxy_pass(struct pg_proxy *p, int from, int to, bool is_client)
{
    static char bytes[65536];
    enum pg_cut cut = __atomic_load_n(&p->cut, __ATOMIC_ACQUIRE);
    ssize_t n = recv(from, bytes, sizeof bytes, 0);

    if (n <= 0)
        return false;
    bool cuts = is_client && cut != PG_CUT_NEVER &&
                memmem(bytes, (size_t)n, "COMMIT", sizeof "COMMIT") != NULL; /* not COMMITTED */
    if (cuts)
        __atomic_store_n(&p->cut, PG_CUT_NEVER, __ATOMIC_RELEASE);
    if (cuts && cut == PG_CUT_REQUEST)
        return false;
    if (send(to, bytes, (size_t)n, MSG_NOSIGNAL) != n)
        return false;
    if (cuts)
        recv(to, bytes, sizeof bytes, 0);
    return !cuts;
}

static inline void *pg_proxy_run(void *ctx)
{
    struct pg_proxy *p = ctx;
    int client;

    while ((client = accept(p->listener, NULL, NULL)) >= 0) {
        bool cuts = __atomic_load_n(&p->cut, __ATOMIC_ACQUIRE) != PG_CUT_NEVER;
        int server = pg_proxy_dial();
        struct pollfd both[] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
        bool goes_on = cuts || !__atomic_load_n(&p->shut, __ATOMIC_ACQUIRE);
        while (goes_on && poll(both, 2, -1) > 0) {
            if (both[1].revents != 0)
                goes_on = pg_proxy_pass(p, server, client, false);
            if (goes_on && both[0].revents != 0)
                goes_on = pg_proxy_pass(p, client, server, true);
        }
        close(client);
        close(server);
    }
    return NULL;
}

static inline void pg_proxy_start(struct pg_proxy *p)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;

    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(p->listener, 8), 0);
    assert_int_equal(getsockname(p->listener, (struct sockaddr *)&at, &n), 0);
    snprintf(p->url, sizeof p->url,
             "host=127.0.0.1 port=%d user=bellhop dbname=postgres sslmode=disable "
             "gssencmode=disable",
             ntohs(at.sin_port));
    assert_int_equal(pthread_create(&p->thread, NULL, pg_proxy_run, p), 0);
}

/* After the clients have closed their connections. */
static inline void pg_proxy_end(struct pg_proxy *p)
{
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->listener);
}
