/* answer.c - how an interaction is answered: as the answer to the webhook that brought it, or, when
 * the gateway did, with a request of its own.  (discord_priv.h has the calls.)
 *
 * Either way Discord gives three seconds, and the answer comes once what was asked is safe. */
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/discord_priv.h"
#include "platform/discord/interaction.h"
#include "platform/prompts.h"

enum { DEADLINE_MS = 2500, CALLBACK_MS = 3000 };
#define NOT_NOW \
    STR("{\"type\":4,\"data\":{\"content\":\"Not now: try again in a moment.\",\"flags\":64}}")

struct discord_await { /* what the gateway brought, until it is safe */
    struct list link;
    struct discord *d; /* borrowed */
    struct accept_id accept;
    struct buf path, good; /* the path is secret */
};

static void on_told(void *ctx, const struct discord_told *t)
{
    struct discord *d = ctx;

    if (t->end != SENDER_DONE)
        log_warn(&d->log, "an interaction could not be answered: %s", t->why);
}

static void call_back(struct discord *d, struct str path, struct str body)
{
    discord_ask(d,
                &(struct discord_question){.method = "POST",
                                           .route = "callback",
                                           .path = path,
                                           .body = body,
                                           .by_token = true,
                                           .lane = path,
                                           .patience_ms = CALLBACK_MS},
                on_told, d);
}

static void write_path(const struct discord_asker *to, struct buf *out)
{
    buf_printf(out, "/interactions/%.*s/%.*s/callback", STR_FMT(to->id), STR_FMT(to->token));
}

void discord_answer(struct discord *d, const struct discord_asker *to, struct str body)
{
    struct buf path = BUF_INIT;

    if (!to->by_gateway) {
        http_answer(d->env->server, to->http, &(struct http_answer){.status = 200, .body = body});
        return;
    }
    write_path(to, &path);
    call_back(d, buf_str(&path), body);
    buf_wipe(&path);
}

void discord_refuse(struct discord *d, const struct discord_asker *to)
{
    if (!to->by_gateway)
        await_refuse(&d->awaits, to->http, BH_MALFORMED);
}

/* ---- once it is safe ---- */

static void await_free(struct discord_await *w)
{
    list_remove(&w->link);
    buf_wipe(&w->path);
    buf_done(&w->good);
    free(w);
}

void discord_answers_done(struct discord *d)
{
    if (d->asked.next == NULL)
        return;
    list_each (&d->asked, it, nxt) {
        struct discord_await *w = list_entry(it, struct discord_await, link);
        host_accept_cancel(d->base.host, w->accept);
        await_free(w);
    }
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct discord_await *w = ctx;

    call_back(w->d, buf_str(&w->path), err == BH_OK ? buf_str(&w->good) : NOT_NOW);
    await_free(w);
}

static struct discord_await *await_new(struct discord *d, const struct discord_asker *to,
                                       struct str good)
{
    struct discord_await *w = xcalloc(1, sizeof *w);

    w->d = d;
    write_path(to, &w->path);
    buf_add_str(&w->good, good);
    list_init(&w->link);
    list_append(&d->asked, &w->link);
    return w;
}

void discord_answer_accept(struct discord *d, const struct discord_asker *to,
                           const struct event *ev, struct str good)
{
    const struct http_answer answer = {.status = 200, .body = good};

    if (!to->by_gateway) {
        await_accept(&d->awaits, ev, to->http, &answer, DEADLINE_MS);
        return;
    }
    struct discord_await *w = await_new(d, to, good);
    w->accept = host_accept(d->base.host, &d->base, ev, on_accepted, w);
}

void discord_answer_passthrough(struct discord *d, const struct discord_asker *to,
                                const struct event *ev, struct str forward_json, struct str good)
{
    const struct http_answer answer = {.status = 200, .body = good};

    if (!to->by_gateway) {
        await_passthrough(&d->awaits, ev, forward_json, to->http, &answer, DEADLINE_MS);
        return;
    }
    struct discord_await *w = await_new(d, to, good);
    w->accept = host_passthrough(d->base.host, &d->base, ev, forward_json, on_accepted, w);
}

void discord_answer_press(struct discord *d, const struct discord_asker *to, const struct event *ev,
                          const struct discord_pressed *x)
{
    const struct http_answer answer = {.status = 200, .body = x->good};

    if (!to->by_gateway) {
        await_press(&d->awaits, x->prompt, x->option, ev, to->http, &answer, DEADLINE_MS);
        return;
    }
    struct discord_await *w = await_new(d, to, x->good);
    w->accept = prompts_accept(x->prompt, x->option, ev, on_accepted, w);
}
