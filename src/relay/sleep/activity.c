/* activity.c - design.  (activity.h has the contract.)
 *
 * A list of instances with news, and one timer that is armed by the first of them.  What the store
 * refuses is not tried again: the next message is soon enough. */
#include "relay/sleep/activity.h"
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/turn.h"
#include "store/store.h"

#define NS "active"
enum { AT_ONCE = 256 }; /* records in one write */

struct activity {
    struct relay *relay; /* borrowed */
    struct timer timer;  /* armed while somebody has news */
    struct list news;    /* instances, by active_link */
    uint32_t writing;    /* writes under way */
};

static void on_written(void *ctx, enum bh_err err)
{
    struct activity *t = ctx;

    (void)err;
    t->writing--;
    if (t->relay->draining)
        turn_want(t->relay);
}

static void write_value(const struct instance *i, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_ki64(&w, "in", i->last_inbound_ms);
    jw_ki64(&w, "out", i->last_outbound_ms);
    jw_ki64(&w, "box", i->box);
    jw_end_obj(&w);
}

/* The first of those with news. */
static void write_some(struct activity *t)
{
    struct store_kv items[AT_ONCE];
    struct buf values[AT_ONCE];
    size_t n = 0;

    for (; n < AT_ONCE && !list_is_empty(&t->news); n++) {
        struct instance *i = list_first(&t->news, struct instance, active_link);
        list_remove(&i->active_link);
        values[n] = BUF_INIT;
        write_value(i, &values[n]);
        items[n] = (struct store_kv){KV_PUT, NS, instance_key(i), buf_str(&values[n])};
    }
    t->writing++;
    store_put(t->relay->env.store, items, n, false, on_written, t);
    for (size_t k = 0; k < n; k++)
        buf_done(&values[k]);
}

void activity_write(struct relay *r)
{
    struct activity *t = r->activity;

    timer_stop(r->env.clock, &t->timer);
    while (!list_is_empty(&t->news))
        write_some(t);
}

static void on_due(struct timer *timer)
{
    activity_write(container_of(timer, struct activity, timer)->relay);
}

static void has_news(struct instance *i)
{
    struct activity *t = i->relay->activity;

    if (list_is_linked(&i->active_link))
        return;
    list_append(&t->news, &i->active_link);
    if (!timer_is_set(&t->timer))
        timer_set(i->relay->env.clock, &t->timer, ACTIVITY_MS);
}

void activity_inbound(struct instance *i)
{
    i->last_inbound_ms = clock_wall_ms(i->relay->env.clock);
    has_news(i);
}

void activity_outbound(struct instance *i)
{
    i->last_outbound_ms = clock_wall_ms(i->relay->env.clock);
    has_news(i);
}

void activity_end(struct instance *i)
{
    const struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = instance_key(i)};

    if (i->last_inbound_ms == 0 && i->last_outbound_ms == 0)
        return;
    i->last_inbound_ms = i->last_outbound_ms = 0;
    list_remove(&i->active_link);
    store_put(i->relay->env.store, &item, 1, false, NULL, NULL);
}

bool activity_any_writing(const struct relay *r)
{
    return r->activity->writing != 0;
}

/* ---- building and loading ---- */

struct activity *activity_new(struct relay *r)
{
    struct activity *t = xcalloc(1, sizeof *t);

    t->relay = r;
    timer_init(&t->timer, on_due);
    list_init(&t->news);
    return t;
}

void activity_free(struct activity *t)
{
    if (t == NULL)
        return;
    timer_stop(t->relay->env.clock, &t->timer);
    free(t);
}

static void on_record(void *ctx, struct str key, struct str value)
{
    struct relay *r = ctx;
    struct str tenant, name = key;
    struct json doc;
    int64_t box;

    if (!str_split(&name, '\x1f', &tenant) || !json_parse(r->json, value, &doc))
        return;
    struct instance *i = instance_find(r, tenant, name);
    if (i == NULL)
        return;
    if (!json_as_i64(json_get(doc, "box"), &box) || box != i->box) { /* of the holder before */
        const struct store_kv item = {.verb = KV_DELETE, .ns = NS, .key = key};
        store_put(r->env.store, &item, 1, false, NULL, NULL);
        return;
    }
    json_as_i64(json_get(doc, "in"), &i->last_inbound_ms);
    json_as_i64(json_get(doc, "out"), &i->last_outbound_ms);
}

enum bh_err activity_load(struct relay *r)
{
    return r->env.store->ops->load_records(r->env.store, NS, on_record, r);
}
