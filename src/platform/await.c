/* await.c - events that wait.  (await.h has the contract.) */
#include "platform/await.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/platform.h"
#include "platform/prompts.h"

enum { TIMESTAMP_CHARS = 12 };

struct await {
    struct list link;
    struct platform *p; /* borrowed */
    struct accept_id accept;
    struct timer late; /* of a webhook */
    awaited_cb *done;
    size_t n;
    _Alignas(max_align_t) char with[];
};

struct waiting_webhook { /* what the await of a webhook comes with */
    struct http_id http;
    struct http_answer good;
    bool answered;
    char body[]; /* of @good */
};

static void await_free(struct await *w)
{
    timer_stop(w->p->env->clock, &w->late);
    list_remove(&w->link);
    secret_wipe(w->with, w->n);
    free(w);
}

void awaits_done(struct platform *p)
{
    list_each (&p->awaits.all, it, nxt) {
        struct await *w = list_entry(it, struct await, link);
        host_accept_cancel(p->host, w->accept);
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

bool webhook_shows(struct str shown, const char *secret)
{
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];

    sha256(shown, a); /* comparing hashes does not reveal the secret's length */
    sha256(str_of(secret), b);
    return ct_equal(a, b, sizeof a);
}

void webhook_is_unsigned(struct http_server *server, struct http_id id)
{
    http_answer_error(server, id, 401, "unauthorized",
                      "This request is not signed for a bot here.");
}

void await_refuse(struct platform *p, struct http_id id, enum bh_err err)
{
    struct http_server *server = p->env->server;

    if (err == BH_REFUSED || err == BH_MALFORMED)
        http_answer_error(server, id, 400, bh_err_word(err), "This cannot be taken.");
    else
        http_answer_error(server, id, 503, bh_err_word(err), "Not now: send it again later.");
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

static void on_accepted(void *ctx, enum bh_err err)
{
    struct await *w = ctx;

    w->done(w->p, w->with, err);
    await_free(w);
}

static struct await *await_new(struct platform *p, size_t n, awaited_cb *done)
{
    struct await *w = xcalloc(1, sizeof *w + n);

    w->p = p;
    w->n = n;
    w->done = done;
    list_append(&p->awaits.all, &w->link);
    return w;
}

void await_event(struct platform *p, const struct webhook_delivery *x, const void *with, size_t n,
                 awaited_cb *done)
{
    struct await *w = await_new(p, n, done);

    memcpy(w->with, with, n);
    w->accept = webhook_delivery_accept(p, x, on_accepted, w);
}

/* ---- webhooks ---- */

static void on_late(struct timer *t)
{
    struct await *w = container_of(t, struct await, late);
    struct waiting_webhook *h = (void *)w->with;

    h->answered = true;
    w->p->awaits.late++;
    await_refuse(w->p, h->http, BH_UNAVAILABLE);
}

static void on_safe(struct platform *p, void *with, enum bh_err err)
{
    struct waiting_webhook *h = with;

    h->good.body.p = h->body;
    if (!h->answered && err == BH_OK)
        http_answer(p->env->server, h->http, &h->good);
    else if (!h->answered)
        await_refuse(p, h->http, err);
}

void await_accept(struct platform *p, const struct webhook_delivery *x, struct http_id id,
                  const struct http_answer *good, int64_t deadline_ms)
{
    struct await *w = await_new(p, sizeof(struct waiting_webhook) + good->body.n, on_safe);
    struct waiting_webhook *h = (void *)w->with;

    *h = (struct waiting_webhook){.http = id, .good = *good};
    memcpy(h->body, good->body.p != NULL ? good->body.p : "", good->body.n);
    timer_init(&w->late, on_late);
    timer_set(p->env->clock, &w->late, deadline_ms);
    w->accept = webhook_delivery_accept(p, x, on_accepted, w);
}
