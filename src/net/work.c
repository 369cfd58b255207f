/* work.c - one queue under one lock.  Each finished job is posted to the loop on its own: a job is
 * a disk access, so the cost of a lock and a wake-up does not matter. */
#include "net/work.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"

enum { MAX_WAITING = 1000 };

struct work_pool {
    struct loop *loop;     /* borrowed */
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t more;
    struct list queue;    /* of struct work: not begun */
    struct list finished; /* done() is owed */
    size_t n_waiting, n_running;
    bool stop;
    bool posted; /* on_finished is on its way */
    bool freed;  /* and frees the pool when it arrives */
    unsigned n_threads, max_threads;
    pthread_t threads[]; /* the first n_threads run */
};

struct work_pool *work_pool_new(struct loop *loop, unsigned threads)
{
    struct work_pool *p = xcalloc(1, sizeof *p + threads * sizeof p->threads[0]);

    assert(threads > 0);
    p->loop = loop;
    p->max_threads = threads;
    list_init(&p->queue);
    list_init(&p->finished);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->more, NULL);
    return p;
}

/* ---- the loop's side ---- */

static void tell(struct work_pool *p)
{
    struct list mine;

    list_init(&mine);
    pthread_mutex_lock(&p->mutex);
    while (!list_is_empty(&p->finished))
        list_move(p->finished.next, &mine);
    pthread_mutex_unlock(&p->mutex);
    while (!list_is_empty(&mine)) {
        struct work *w = list_first(&mine, struct work, link);
        list_remove(&w->link);
        w->done(w); /* may free it, and start others */
    }
}

static void destroy(struct work_pool *p)
{
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->more);
    free(p);
}

static void on_finished(void *ctx)
{
    struct work_pool *p = ctx;

    if (p->freed) {
        destroy(p);
        return;
    }
    pthread_mutex_lock(&p->mutex);
    p->posted = false;
    pthread_mutex_unlock(&p->mutex);
    tell(p);
}

/* ---- the threads' side ---- */

/* The next job, or NULL: stop. */
static struct work *take(struct work_pool *p)
{
    struct work *w = NULL;

    pthread_mutex_lock(&p->mutex);
    while (list_is_empty(&p->queue) && !p->stop)
        pthread_cond_wait(&p->more, &p->mutex);
    if (!p->stop) {
        w = list_first(&p->queue, struct work, link);
        list_remove(&w->link);
        p->n_waiting--;
        p->n_running++;
    }
    pthread_mutex_unlock(&p->mutex);
    return w;
}

static void give_back(struct work_pool *p, struct work *w)
{
    bool post;

    pthread_mutex_lock(&p->mutex);
    p->n_running--;
    list_append(&p->finished, &w->link);
    post = !p->posted && !p->stop;
    p->posted = p->posted || post;
    pthread_mutex_unlock(&p->mutex);
    if (post)
        loop_post(p->loop, on_finished, p);
}

static void *thread_main(void *ctx)
{
    struct work_pool *p = ctx;
    struct work *w;

    while ((w = take(p)) != NULL) {
        if (w->run != NULL)
            w->run(w);
        give_back(p, w);
    }
    return NULL;
}

/* One thread more.  Called on the loop thread only, so @n_threads needs no lock. */
static bool add_thread(struct work_pool *p)
{
    sigset_t all, before;
    bool ok;

    sigfillset(&all); /* signals belong to the loop thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ok = pthread_create(&p->threads[p->n_threads], NULL, thread_main, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!ok) {
        log_warn(NULL, "cannot start another thread for file work (%u are running)", p->n_threads);
        return false;
    }
    pthread_setname_np(p->threads[p->n_threads++], "bellhop-work");
    return true;
}

enum bh_err work_start(struct work_pool *p, struct work *w)
{
    size_t waiting, busy;

    pthread_mutex_lock(&p->mutex);
    waiting = p->n_waiting;
    busy = waiting + p->n_running;
    pthread_mutex_unlock(&p->mutex);
    if (p->n_threads < p->max_threads && busy >= p->n_threads && !add_thread(p) &&
        p->n_threads == 0)
        return BH_BUSY;
    if (waiting >= MAX_WAITING)
        return BH_BUSY;
    w->dropped = false;
    w->pool = p;
    list_init(&w->link);
    pthread_mutex_lock(&p->mutex);
    list_append(&p->queue, &w->link);
    p->n_waiting++;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->mutex);
    return BH_OK;
}

void work_pool_free(struct work_pool *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->mutex);
    p->stop = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->mutex);
    for (unsigned i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    while (!list_is_empty(&p->queue)) {
        struct work *w = list_first(&p->queue, struct work, link);
        w->dropped = true;
        list_move(&w->link, &p->finished);
    }
    tell(p);
    if (p->posted)
        p->freed = true;
    else
        destroy(p);
}
