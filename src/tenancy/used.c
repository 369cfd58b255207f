/* used.c - the records of used tokens, and their end.  (used.h has the contract.) */
#include "tenancy/used.h"
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"

#define NS_USED "enrolled"
#define SWEEP_ITEMS 256 /* deleted at once */
/* Records from before they said until when: no token was good for longer. */
#define UNTOLD_MS (366ll * 24 * 3600 * 1000)

struct used {
    struct list link; /* in f->used */
    int64_t until_ms; /* wall clock */
    char nonce[];
};

void used_put(struct change *c, struct str nonce, int64_t now_ms, int64_t until_ms)
{
    struct change_item *item = change_put(c, KV_INSERT, NS_USED);

    buf_add_str(&item->key, nonce);
    buf_printf(&item->value, "{\"at\":%lld,\"until\":%lld}", (long long)now_ms,
               (long long)until_ms);
    c->conflict = "the enrollment token was used before";
}

void used_add(struct facts *f, struct str nonce, int64_t until_ms)
{
    struct used *u = xcalloc(1, sizeof *u + nonce.n + 1);

    memcpy(u->nonce, nonce.p, nonce.n);
    u->until_ms = until_ms;
    list_init(&u->link);
    list_append(&f->used, &u->link);
    if (!timer_is_set(&f->sweep))
        timer_set(f->env.clock, &f->sweep, USED_SWEEP_MS);
}

/* ---- the end ---- */

static void sweep(struct facts *f)
{
    struct store_kv items[SWEEP_ITEMS];
    struct used *gone[SWEEP_ITEMS];
    int64_t now_ms = clock_wall_ms(f->env.clock);
    size_t n = 0;

    list_each (&f->used, it, next) {
        struct used *u = list_entry(it, struct used, link);
        if (u->until_ms > now_ms || n == SWEEP_ITEMS)
            continue;
        items[n] = (struct store_kv){.verb = KV_DELETE, .ns = NS_USED, .key = str_of(u->nonce)};
        gone[n++] = u;
    }
    if (n > 0)
        store_put(f->env.store, items, n, false, NULL, NULL);
    for (size_t i = 0; i < n; i++) {
        list_remove(&gone[i]->link);
        free(gone[i]);
    }
    if (!list_is_empty(&f->used))
        timer_set(f->env.clock, &f->sweep, n == SWEEP_ITEMS ? 1000 : USED_SWEEP_MS);
}

static void on_sweep(struct timer *t)
{
    sweep(container_of(t, struct facts, sweep));
}

/* ---- the beginning ---- */

struct loading {
    struct facts *f;
    struct json_parser *parser;
};

static void on_record(void *ctx, struct str nonce, struct str value)
{
    struct loading *l = ctx;
    struct json doc = {0};
    int64_t at_ms = 0, until_ms = 0;

    if (!json_parse(l->parser, value, &doc))
        doc = (struct json){0};
    json_as_i64(json_get(doc, "at"), &at_ms);
    if (!json_as_i64(json_get(doc, "until"), &until_ms))
        until_ms = at_ms + UNTOLD_MS;
    used_add(l->f, nonce, until_ms);
}

enum bh_err used_load(struct facts *f)
{
    struct loading l = {.f = f, .parser = json_parser_new()};

    timer_init(&f->sweep, on_sweep);
    list_init(&f->used);
    enum bh_err err = f->env.store->ops->load_records(f->env.store, NS_USED, on_record, &l);
    if (err == BH_OK && !list_is_empty(&f->used))
        timer_set(f->env.clock, &f->sweep, 0);
    json_parser_free(l.parser);
    return err;
}

void used_free(struct facts *f)
{
    if (f->used.next == NULL)
        return; /* it was never loaded */
    timer_stop(f->env.clock, &f->sweep);
    list_each (&f->used, it, next)
        free(list_entry(it, struct used, link));
}
