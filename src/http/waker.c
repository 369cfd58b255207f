/* waker.c - sends one GET without body or tenant data; a status below 500 counts as success.
 *
 * The content of the answer does not matter: the request itself wakes the agent.  A proxy answers
 * 5xx when nothing runs behind it, so a 5xx is a failure and is retried after the cooldown. */
#include "http/waker.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/list.h"
#include "base/mem.h"
#include "net/http_client.h"

#define AT(member) offsetof(struct wake_settings, member)

static const struct config_key keys[] = {
    {"wake.timeout", CFG_DURATION, CFG_RELOAD, AT(timeout_ms), "5s", .min = 100, .max = 60000,
     .what = "How long a poke may take."},
    {"wake.allow_private", CFG_BOOL, CFG_RELOAD, AT(allow_private), "false",
     .what = "Let wake URLs reach private, loopback and link-local addresses."},
    {0},
};
const struct config_section wake_config = {.keys = keys, .size = sizeof(struct wake_settings)};

struct waker_ring {
    struct list link;
    struct http_call *call; /* owned */
    poke_done_cb *done;
    void *ctx;
};

static void on_answer(void *ctx, const struct http_result *r)
{
    struct waker_ring *g = ctx;
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
    struct waker_ring *g = xcalloc(1, sizeof *g);

    *g = (struct waker_ring){.done = done, .ctx = ctx};
    list_append(&p->under_way, &g->link);
    g->call = http_fetch(p->http,
                         &(struct http_fetch){.url = url,
                                              .timeout_ms = p->settings->timeout_ms,
                                              .max_body = 64 << 10,
                                              .public_only = !p->settings->allow_private},
                         on_answer, g);
}

void http_waker_init(struct http_waker *p, struct http_client *http,
                     const struct wake_settings *settings)
{
    *p = (struct http_waker){.base = {.poke = poke}, .http = http, .settings = settings};
    list_init(&p->under_way);
}

void http_waker_done(struct http_waker *p)
{
    list_each (&p->under_way, it, nxt) {
        struct waker_ring *g = list_entry(it, struct waker_ring, link);
        http_cancel(&g->call);
        free(g);
    }
    list_init(&p->under_way);
}
