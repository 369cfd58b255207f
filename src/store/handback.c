/* handback.c - see handback.h. */
#include "store/handback.h"
#include <stdlib.h>
#include "base/mem.h"
#include "net/loop.h"
#include "store/result.h"

struct op_handback *handback_new(struct loop *loop)
{
    struct op_handback *h = xcalloc(1, sizeof *h);

    *h = (struct op_handback){.loop = loop, .refs = 1};
    h->end = &h->first;
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->room, NULL);
    return h;
}

static void unref_locked(struct op_handback *h)
{
    bool last = --h->refs == 0;

    pthread_mutex_unlock(&h->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->room);
    free(h);
}

void handback_ref(struct op_handback *h)
{
    pthread_mutex_lock(&h->lock);
    h->refs++;
    pthread_mutex_unlock(&h->lock);
}

void handback_unref(struct op_handback *h)
{
    pthread_mutex_lock(&h->lock);
    unref_locked(h);
}

/* On the loop thread.  A done() may free its op, submit others or close the store. */
static void on_finished(void *ctx)
{
    struct op_handback *h = ctx;

    pthread_mutex_lock(&h->lock);
    size_t bytes = h->bytes;
    h->rest = h->first;
    h->first = NULL;
    h->end = &h->first;
    h->posted = false; /* what finishes from now on posts its own call */
    pthread_mutex_unlock(&h->lock);

    while (h->rest != NULL && !h->closed) { /* both are written by this thread only */
        struct store_op *op = h->rest;
        h->rest = op->next;
        if (op->done != NULL)
            op->done(op, (enum bh_err)op->err);
    }
    pthread_mutex_lock(&h->lock);
    h->bytes -= bytes;
    pthread_cond_signal(&h->room);
    unref_locked(h);
}

void handback_add(struct op_handback *h, struct store_op *first, struct store_op *last,
                  size_t bytes)
{
    pthread_mutex_lock(&h->lock);
    *h->end = first;
    h->end = &last->next;
    h->bytes += bytes;
    bool post = !h->posted;
    h->posted = true;
    h->refs += post;
    pthread_mutex_unlock(&h->lock);
    if (post)
        loop_post(h->loop, on_finished, h);
}

void handback_wait(struct op_handback *h, size_t bytes)
{
    pthread_mutex_lock(&h->lock);
    while (h->bytes >= bytes && !h->closed)
        pthread_cond_wait(&h->room, &h->lock);
    pthread_mutex_unlock(&h->lock);
}

void handback_close(struct op_handback *h)
{
    pthread_mutex_lock(&h->lock);
    h->closed = true;
    h->owner = NULL;
    pthread_cond_broadcast(&h->room);
    pthread_mutex_unlock(&h->lock);
}

static void free_answers(struct store_op *op)
{
    for (; op != NULL; op = op->next)
        result_free(op);
}

void handback_done(struct op_handback *h)
{
    pthread_mutex_lock(&h->lock);
    free_answers(h->first);
    free_answers(h->rest);
    h->first = h->rest = NULL;
    h->end = &h->first;
    unref_locked(h);
}
