/* change.c - the line that changes wait in.  (change.h has the picture.) */
#include "tenancy/change.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "bus/bus.h"

static void start_later(struct facts *f);

struct change *change_new(struct facts *f, prepare_f *prepare, apply_f *apply, facts_done_cb *done,
                          void *ctx)
{
    struct change *c = xcalloc(1, sizeof *c);

    *c = (struct change){.facts = f, .prepare = prepare, .apply = apply, .done = done, .ctx = ctx};
    list_init(&c->link);
    return c;
}

static void change_free(struct change *c)
{
    if (c->secret != NULL)
        secret_wipe(c->secret, strlen(c->secret));
    free(c->secret);
    free(c->id);
    free(c->subject);
    free(c->wake_url);
    gateway_free(c->gateway);
    route_free(c->route);
    if (c->thing != NULL)
        c->thing_free(c->thing);
    for (size_t i = 0; i < c->n; i++) {
        buf_done(&c->items[i].key);
        buf_done(&c->items[i].value);
    }
    free(c->items);
    for (size_t i = 0; i < c->n_held; i++)
        free(c->held[i]);
    free(c->held);
    free(c);
}

void facts_drop_changes(struct facts *f)
{
    timer_stop(f->env.clock, &f->start);
    list_each (&f->changes, it, nxt)
        change_free(list_entry(it, struct change, link));
    list_init(&f->changes);
    map_done(&f->busy);
}

bool change_fail(struct change *c, enum bh_err err, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->why, sizeof c->why, fmt, ap);
    va_end(ap);
    c->err = err;
    return false;
}

static void finish(struct change *c)
{
    struct facts *f = c->facts;

    list_remove(&c->link);
    if (c->subject != NULL)
        map_del(&f->busy, str_of(c->subject));
    for (size_t i = 0; i < c->n_held; i++)
        map_del(&f->busy, str_of(c->held[i]));
    if (!list_is_empty(&f->changes))
        start_later(f);
    if (c->done != NULL)
        c->done(c->ctx, c->err, c->err == BH_OK ? NULL : c->why);
    change_free(c);
}

static void on_stored(void *ctx, enum bh_err err)
{
    struct change *c = ctx;

    if (err == BH_OK)
        c->apply(c->facts, c);
    else if (err == BH_CONFLICT)
        change_fail(c, BH_CONFLICT, "%s", c->conflict != NULL ? c->conflict : "it exists already");
    else
        change_fail(c, err, "the store could not write it");
    finish(c);
}

static void write_items(struct facts *f, struct change *c)
{
    struct store_kv *items = xcalloc(c->n, sizeof *items);

    for (size_t i = 0; i < c->n; i++)
        items[i] = (struct store_kv){.verb = c->items[i].verb,
                                     .ns = c->items[i].ns,
                                     .key = buf_str(&c->items[i].key),
                                     .value = buf_str(&c->items[i].value)};
    store_put(f->env.store, items, c->n, true, on_stored, c);
    free(items);
}

static void start(struct facts *f, struct change *c)
{
    c->started = true;
    if (c->subject != NULL)
        map_put(&f->busy, str_of(c->subject), c);
    if (c->err != BH_OK || !c->prepare(f, c) || c->n == 0)
        finish(c);
    else
        write_items(f, c);
}

static bool may_start(const struct facts *f, const struct change *c)
{
    return (c->subject == NULL || map_get(&f->busy, str_of(c->subject)) == NULL) &&
           (c->may_start == NULL || c->may_start(f, c));
}

void facts_start_changes(struct timer *t)
{
    struct facts *f = container_of(t, struct facts, start);

    list_each (&f->changes, it, nxt) {
        struct change *c = list_entry(it, struct change, link);
        if (!c->started && may_start(f, c))
            start(f, c);
    }
}

static void start_later(struct facts *f)
{
    timer_set(f->env.clock, &f->start, 0);
}

void change_hold(struct change *c, const char *subject)
{
    char *mine = xstrdup(subject);

    c->held = xrealloc(c->held, (c->n_held + 1) * sizeof *c->held);
    c->held[c->n_held++] = mine;
    map_put(&c->facts->busy, str_of(mine), c);
}

void change_submit(struct change *c, const char *subject)
{
    c->subject = xstrdup(subject);
    list_append(&c->facts->changes, &c->link);
    start_later(c->facts);
}

void change_announce(struct facts *f, const char *what, const char *id)
{
    struct buf message = BUF_INIT;

    buf_printf(&message, "%s%s%s", what, id != NULL ? " " : "", id != NULL ? id : "");
    bus_publish(f->env.bus, STR("facts"), buf_str(&message));
    buf_done(&message);
}

struct change_item *change_put(struct change *c, enum store_kv_verb verb, const char *ns)
{
    c->items = xrealloc(c->items, (c->n + 1) * sizeof *c->items);
    c->items[c->n] = (struct change_item){.verb = verb, .ns = ns};
    return &c->items[c->n++];
}

bool change_name_bad(struct change *c, const char *what, struct str name, bool required)
{
    if ((!required && str_is_empty(name)) || facts_name_ok(name))
        return false;
    change_fail(c, BH_MALFORMED, "%s must be 1 to 128 printable characters without blanks", what);
    return true;
}
