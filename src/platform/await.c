/* await.c - design.  (await.h has the contract.)
 *
 * host_accept() cannot be called off, so what waits for it is an object of its own; when the bot
 * closes first it is orphaned, and the answer finds nobody. */
#include "platform/await.h"
#include <stdlib.h>
#include "base/mem.h"

struct await {
    struct list link;
    struct awaits *all; /* borrowed; NULL: the bot was closed meanwhile */
    struct http_id http;
    struct http_answer good;
    struct timer late;
    bool told;
};

/* Reachable from here, so that a shutdown in the middle is not called a leak. */
static struct list orphans = {&orphans, &orphans};

void awaits_init(struct awaits *a, const struct host_env *env)
{
    *a = (struct awaits){.clock = env->clock, .server = env->server};
    list_init(&a->all);
}

void awaits_done(struct awaits *a)
{
    if (a->clock == NULL)
        return;
    list_each (&a->all, it, nxt) {
        struct await *w = list_entry(it, struct await, link);
        timer_stop(a->clock, &w->late);
        w->all = NULL;
        list_move(it, &orphans);
    }
}

void await_refuse(struct awaits *a, struct http_id id, enum bh_err err)
{
    if (err == BH_REFUSED || err == BH_MALFORMED)
        http_answer_error(a->server, id, 400, bh_err_word(err), "This cannot be taken.");
    else
        http_answer_error(a->server, id, 503, bh_err_word(err), "Not now: send it again later.");
}

static void on_late(struct timer *t)
{
    struct await *w = container_of(t, struct await, late);

    w->told = true;
    w->all->late++;
    await_refuse(w->all, w->http, BH_UNAVAILABLE);
}

void await_accepted(void *ctx, enum bh_err err)
{
    struct await *w = ctx;

    list_remove(&w->link);
    if (w->all != NULL) {
        timer_stop(w->all->clock, &w->late);
        if (!w->told && err == BH_OK)
            http_answer(w->all->server, w->http, &w->good);
        else if (!w->told)
            await_refuse(w->all, w->http, err);
    }
    free(w);
}

struct await *await_new(struct awaits *a, struct http_id id, const struct http_answer *good,
                        int64_t deadline_ms)
{
    struct await *w = xcalloc(1, sizeof *w);

    *w = (struct await){.all = a, .http = id, .good = *good};
    list_init(&w->link);
    list_append(&a->all, &w->link);
    timer_init(&w->late, on_late);
    timer_set(a->clock, &w->late, deadline_ms);
    return w;
}
