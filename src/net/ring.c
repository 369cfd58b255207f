/* ring.c - see ring.h. */
#include "net/ring.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "net/loop.h"

struct batches {
    struct buf *v; /* owned */
    size_t n, cap;
};

struct ring {
    struct loop *to; /* borrowed */
    ring_cb *cb;
    void *ctx;
    pthread_mutex_t mutex;  /* guards @pushed */
    struct batches pushed;  /* not empty: take() is in the loop's mail */
    struct batches reading; /* of the consumer */
    atomic_size_t bytes;
    bool dead; /* freed by take() */
};

struct ring *ring_new(struct loop *to, ring_cb *cb, void *ctx)
{
    struct ring *r = xcalloc(1, sizeof *r);

    r->to = to;
    r->cb = cb;
    r->ctx = ctx;
    pthread_mutex_init(&r->mutex, NULL);
    return r;
}

static void destroy(struct ring *r)
{
    free(r->pushed.v);
    free(r->reading.v);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

static void take(void *ring)
{
    struct ring *r = ring;
    struct batches empty = r->reading;

    pthread_mutex_lock(&r->mutex);
    r->reading = r->pushed;
    r->pushed = empty;
    pthread_mutex_unlock(&r->mutex);
    for (size_t i = 0; i < r->reading.n; i++) {
        struct buf *b = &r->reading.v[i];
        atomic_fetch_sub(&r->bytes, b->n);
        if (!r->dead)
            r->cb(r->ctx, buf_str(b));
        buf_done(b);
    }
    r->reading.n = 0;
    if (r->dead)
        destroy(r);
}

void ring_push(struct ring *r, struct buf *batch)
{
    struct batches *p = &r->pushed;
    bool first;

    atomic_fetch_add(&r->bytes, batch->n);
    pthread_mutex_lock(&r->mutex);
    if (p->n == p->cap) {
        p->cap = p->cap != 0 ? p->cap * 2 : 16;
        p->v = xrealloc(p->v, p->cap * sizeof *p->v);
    }
    first = p->n == 0;
    p->v[p->n++] = *batch;
    pthread_mutex_unlock(&r->mutex);
    *batch = BUF_INIT;
    if (first)
        loop_post(r->to, take, r);
}

size_t ring_bytes(const struct ring *r)
{
    return atomic_load(&r->bytes);
}

void ring_free(struct ring *r)
{
    if (r == NULL)
        return;
    r->dead = true;
    if (r->pushed.n == 0)
        destroy(r);
}
