/* curl_loop.c - watches the sockets and the timeout that libcurl asks for, and reports them to
 * libcurl.  Names are resolved in threads of libcurl, so nothing here blocks. */
#include "net/curl_loop.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

struct curl_sock {
    struct curl_loop *cl; /* borrowed */
    curl_socket_t fd;
    struct loop_fd *watch; /* owned */
};

bool curl_loop_global_init(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool done;
    bool ok;

    pthread_mutex_lock(&mutex);
    if (!done)
        done = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    ok = done;
    pthread_mutex_unlock(&mutex);
    return ok;
}

static void deliver(struct curl_loop *cl)
{
    CURLMsg *msg;
    int left;

    cl->delivering = true;
    while ((msg = curl_multi_info_read(cl->multi, &left)) != NULL) {
        if (msg->msg == CURLMSG_DONE)
            cl->done(cl->ctx, msg->easy_handle, msg->data.result);
    }
    cl->delivering = false;
}

static void on_sock(void *ctx, int events)
{
    struct curl_sock *s = ctx;
    struct curl_loop *cl = s->cl; /* libcurl may take @s away in the call below */
    int running, mask = 0;

    mask |= events & LOOP_READ ? CURL_CSELECT_IN : 0;
    mask |= events & LOOP_WRITE ? CURL_CSELECT_OUT : 0;
    curl_multi_socket_action(cl->multi, s->fd, mask, &running);
    deliver(cl);
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *sock)
{
    struct curl_loop *cl = ctx;
    struct curl_sock *s = sock;
    int events = (what & CURL_POLL_IN ? LOOP_READ : 0) | (what & CURL_POLL_OUT ? LOOP_WRITE : 0);

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (s != NULL) {
            loop_fd_free(s->watch);
            free(s);
        }
        curl_multi_assign(cl->multi, fd, NULL);
        return 0;
    }
    if (s != NULL) {
        loop_fd_set(s->watch, events);
        return 0;
    }
    s = xcalloc(1, sizeof *s);
    s->cl = cl;
    s->fd = fd;
    s->watch = loop_fd_add(cl->loop, fd, events, on_sock, s);
    curl_multi_assign(cl->multi, fd, s);
    return 0;
}

static void on_timer(struct timer *t)
{
    struct curl_loop *cl = container_of(t, struct curl_loop, timer);
    int running;

    curl_multi_socket_action(cl->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    deliver(cl);
}

static int want_timer(CURLM *multi, long ms, void *ctx)
{
    struct curl_loop *cl = ctx;

    (void)multi;
    if (ms < 0)
        timer_stop(loop_clock(cl->loop), &cl->timer);
    else
        timer_set(loop_clock(cl->loop), &cl->timer, ms);
    return 0;
}

bool curl_loop_init(struct curl_loop *cl, struct loop *loop, curl_loop_done_cb *done, void *ctx)
{
    *cl = (struct curl_loop){.loop = loop, .done = done, .ctx = ctx};
    timer_init(&cl->timer, on_timer);
    if (!curl_loop_global_init() || (cl->multi = curl_multi_init()) == NULL)
        return false;
    curl_multi_setopt(cl->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(cl->multi, CURLMOPT_SOCKETDATA, cl);
    curl_multi_setopt(cl->multi, CURLMOPT_TIMERFUNCTION, want_timer);
    curl_multi_setopt(cl->multi, CURLMOPT_TIMERDATA, cl);
    curl_multi_setopt(cl->multi, CURLMOPT_MAXCONNECTS, 64L);
    return true;
}

void curl_loop_done(struct curl_loop *cl)
{
    assert(!cl->delivering);
    if (cl->multi == NULL)
        return;
    curl_multi_cleanup(cl->multi);
    cl->multi = NULL;
    timer_stop(loop_clock(cl->loop), &cl->timer);
}
