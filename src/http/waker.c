/* waker.c - one GET without body or tenant data; whatever answers below 500 counts as rung.
 *
 * The answer says nothing about the agent: what matters is that somebody behind the URL heard the
 * bell.  A 5xx is what a proxy says when nobody is there, so that one counts as a failure and is
 * tried again after the cooldown. */
#include "http/waker.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/list.h"
#include "base/mem.h"
#include "net/http_client.h"

struct ring {
    struct list link;
    struct http_call *call; /* owned */
    poke_done_cb *done;
    void *ctx;
};

static void on_answer(void *ctx, const struct http_result *r)
{
    struct ring *g = ctx;
    char why[160];
    bool ok = r->err == BH_OK && r->status < 500;

    g->call = NULL;
    if (r->err == BH_OK)
        snprintf(why, sizeof why, "the wake URL answered HTTP %d", r->status);
    else
        snprintf(why, sizeof why, "%s", r->why != NULL ? r->why : bh_err_word(r->err));
    list_remove(&g->link);
    g->done(g->ctx, ok, ok ? NULL : why);
    free(g);
}

static void poke(struct waker *base, const char *url, poke_done_cb *done, void *ctx)
{
    struct http_waker *p = container_of(base, struct http_waker, base);
    struct ring *g = xcalloc(1, sizeof *g);

    *g = (struct ring){.done = done, .ctx = ctx};
    list_append(&p->under_way, &g->link);
    g->call = http_fetch(p->http,
                         &(struct http_fetch){.url = url,
                                              .timeout_ms = p->timeout_ms,
                                              .max_body = 64 << 10,
                                              .public_only = !p->allow_private},
                         on_answer, g);
}

void http_waker_init(struct http_waker *p, struct http_client *http, int64_t timeout_ms,
                     bool allow_private)
{
    *p = (struct http_waker){.base = {.poke = poke},
                             .http = http,
                             .timeout_ms = timeout_ms,
                             .allow_private = allow_private};
    list_init(&p->under_way);
}

void http_waker_done(struct http_waker *p)
{
    list_each (&p->under_way, it, nxt) {
        struct ring *g = list_entry(it, struct ring, link);
        http_cancel(&g->call);
        free(g);
    }
    list_init(&p->under_way);
}
