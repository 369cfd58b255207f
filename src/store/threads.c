/* threads.c - see threads.h. */
#include "store/threads.h"
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include "base/mem.h"
#include "net/loop.h"

int64_t thread_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

bool thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg, const char *name)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = pthread_create(ret, NULL, main, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (ok)
        pthread_setname_np(*ret, name);
    return ok;
}

/* ---- the way back ---- */

struct handback {
    struct loop *loop; /* borrowed */
    const struct handback_ops *ops;
    void *owner; /* of the loop thread; borrowed; NULL once closed */
    pthread_mutex_t lock;
    pthread_cond_t room; /* signalled when @bytes went down */
    void *first, *last;  /* finished, in order */
    void *rest;          /* of the loop thread: those that are still to be finished */
    size_t bytes;        /* answers with items that are not finished */
    bool posted;         /* a call is on its way, or running: it holds one reference */
    bool closed;
    unsigned refs;
};

struct handback *handback_new(struct loop *loop, const struct handback_ops *ops, void *owner)
{
    struct handback *h = xcalloc(1, sizeof *h);

    *h = (struct handback){.loop = loop, .ops = ops, .owner = owner, .refs = 1};
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->room, NULL);
    return h;
}

void *handback_owner(const struct handback *h)
{
    return h->owner;
}

static void unref_locked(struct handback *h)
{
    bool last = --h->refs == 0;

    pthread_mutex_unlock(&h->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->room);
    free(h);
}

void handback_ref(struct handback *h)
{
    pthread_mutex_lock(&h->lock);
    h->refs++;
    pthread_mutex_unlock(&h->lock);
}

void handback_unref(struct handback *h)
{
    pthread_mutex_lock(&h->lock);
    unref_locked(h);
}

static void on_finished(void *ctx)
{
    struct handback *h = ctx;

    pthread_mutex_lock(&h->lock);
    size_t bytes = h->bytes;
    h->rest = h->first;
    h->first = h->last = NULL;
    h->posted = false; /* what finishes from now on posts its own call */
    pthread_mutex_unlock(&h->lock);

    while (h->rest != NULL && !h->closed) { /* both are written by this thread only */
        void *item = h->rest;
        h->rest = h->ops->next(item);
        h->ops->finish(h->owner, item);
    }
    pthread_mutex_lock(&h->lock);
    h->bytes -= bytes;
    pthread_cond_signal(&h->room);
    unref_locked(h);
}

void handback_add(struct handback *h, void *first, void *last, size_t bytes)
{
    pthread_mutex_lock(&h->lock);
    if (h->last != NULL)
        h->ops->link(h->last, first);
    else
        h->first = first;
    h->last = last;
    h->bytes += bytes;
    bool post = !h->posted;
    h->posted = true;
    h->refs += post;
    pthread_mutex_unlock(&h->lock);
    if (post)
        loop_post(h->loop, on_finished, h);
}

void handback_wait(struct handback *h, size_t bytes)
{
    pthread_mutex_lock(&h->lock);
    while (h->bytes >= bytes && !h->closed)
        pthread_cond_wait(&h->room, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

void handback_close(struct handback *h)
{
    pthread_mutex_lock(&h->lock);
    h->closed = true;
    h->owner = NULL;
    pthread_cond_broadcast(&h->room);
    pthread_mutex_unlock(&h->lock);
}

static void drop_list(struct handback *h, void *item)
{
    for (void *next; item != NULL; item = next) {
        next = h->ops->next(item);
        h->ops->drop(item);
    }
}

void handback_done(struct handback *h)
{
    pthread_mutex_lock(&h->lock);
    void *first = h->first, *rest = h->rest;
    h->first = h->last = h->rest = NULL;
    pthread_mutex_unlock(&h->lock);
    drop_list(h, rest);
    drop_list(h, first);
    handback_unref(h);
}
