/* await.c - delayed answers to webhooks.  (await.h has the contract.) */
#include "platform/await.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"
#include "platform/prompts.h"

enum { TIMESTAMP_CHARS = 12 };

struct await {
    struct list link;
    struct awaits *all; /* borrowed */
    struct accept_id accept;
    struct http_id http;
    struct http_answer good;
    struct buf body; /* owned; the body of @good */
    struct timer late;
    bool answered;
};

void awaits_init(struct awaits *a, struct platform *p)
{
    *a = (struct awaits){.p = p};
    list_init(&a->all);
}

static const struct host_env *env_of(const struct awaits *a)
{
    return host_env(a->p->host);
}

static void await_free(struct await *w)
{
    timer_stop(env_of(w->all)->clock, &w->late);
    list_remove(&w->link);
    buf_done(&w->body);
    free(w);
}

void awaits_done(struct awaits *a)
{
    if (a->p == NULL)
        return;
    list_each (&a->all, it, nxt) {
        struct await *w = list_entry(it, struct await, link);
        host_accept_cancel(a->p->host, w->accept);
        await_free(w);
    }
}

bool webhook_is_now(struct str timestamp, int64_t wall_ms, int64_t window_ms)
{
    uint64_t seconds;

    if (timestamp.n > TIMESTAMP_CHARS || !str_to_u64(timestamp, &seconds))
        return false;
    int64_t off_ms = (int64_t)seconds * 1000 - wall_ms;
    return off_ms <= window_ms && off_ms >= -window_ms;
}

void await_refuse(struct awaits *a, struct http_id id, enum bh_err err)
{
    struct http_server *server = env_of(a)->server;

    if (err == BH_REFUSED || err == BH_MALFORMED)
        http_answer_error(server, id, 400, bh_err_word(err), "This cannot be taken.");
    else
        http_answer_error(server, id, 503, bh_err_word(err), "Not now: send it again later.");
}

static void on_late(struct timer *t)
{
    struct await *w = container_of(t, struct await, late);

    w->answered = true;
    w->all->late++;
    await_refuse(w->all, w->http, BH_UNAVAILABLE);
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct await *w = ctx;

    if (!w->answered && err == BH_OK)
        http_answer(env_of(w->all)->server, w->http, &w->good);
    else if (!w->answered)
        await_refuse(w->all, w->http, err);
    await_free(w);
}

struct accept_id webhook_delivery_accept(struct platform *p, const struct webhook_delivery *x,
                                         accepted_cb *done, void *ctx)
{
    if (x->prompt != NULL)
        return prompts_accept(x->prompt, x->option, x->ev, done, ctx);
    if (x->forward.p != NULL)
        return host_passthrough(p->host, p, x->ev, x->forward, done, ctx);
    return host_accept(p->host, p, x->ev, done, ctx);
}

void await_accept(struct awaits *a, const struct webhook_delivery *x, struct http_id id,
                  const struct http_answer *good, int64_t deadline_ms)
{
    struct await *w = xcalloc(1, sizeof *w);

    *w = (struct await){.all = a, .http = id, .good = *good};
    buf_add_str(&w->body, good->body);
    w->good.body = buf_str(&w->body);
    list_append(&a->all, &w->link);
    timer_init(&w->late, on_late);
    timer_set(env_of(a)->clock, &w->late, deadline_ms);
    w->accept = webhook_delivery_accept(a->p, x, on_accepted, w);
}
