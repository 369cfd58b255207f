/* life.c - design.  (life.h has the contract and the picture.)
 *
 * The facts are asked, never remembered: an ending that was announced to nobody, or twice, or in
 * another order than the first event of the next holder, comes to the same. */
#include "relay/sleep/life.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "bus/bus.h"
#include "relay/mailbox/acks.h"
#include "relay/sleep/activity.h"
#include "relay/out/chats.h"
#include "relay/mailbox/delivery.h"
#include "relay/mailbox/gap.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/out/requests.h"
#include "relay/session/session.h"
#include "store/store.h"
#include "tenancy/grants.h"

struct retired { /* a mailbox number, while starting */
    uint32_t box;
    uint64_t rows;
};

struct lives {
    struct retired
        *retired; /* owned; ascending by box once all are there; freed when all is loaded */
    size_t n, cap;
};

struct lives *lives_new(void)
{
    return xcalloc(1, sizeof(struct lives));
}

void lives_free(struct lives *t)
{
    if (t == NULL)
        return;
    free(t->retired);
    free(t);
}

uint32_t life_now(const struct relay *r, struct str tenant, struct str name)
{
    const struct gate_instance *in = grant_instance(r->env.facts, (struct grant_who){tenant, name});

    return in != NULL ? in->life : 0;
}

/* ---- the end of one ---- */

static void close_sockets(struct instance *i)
{
    list_each (&i->sessions, it, nxt)
        session_close(list_entry(it, struct session, by_inst), CLOSE_REVOKED);
}

void life_follow(struct instance *i, uint32_t life)
{
    struct relay *r = i->relay;

    if (life <= i->life)
        return;
    log_info(NULL, "deprovisioned: tenant=%.*s instance=%.*s", STR_FMT(instance_tenant(i)),
             STR_FMT(instance_id(i)));
    close_sockets(i);
    requests_forget(i);
    if (r->env.outside->gone != NULL)
        r->env.outside->gone(r->env.outside, instance_tenant(i), instance_id(i));
    relay_mailbox_purge(r, instance_tenant(i), instance_id(i));
    delivery_end(i);
    gap_erase(i);
    chats_end(i);
    activity_end(i);
    instance_begin_life(i, life);
}

static void on_ended(void *ctx, struct str topic, struct str message)
{
    struct relay *r = ctx;
    struct str tenant, name = message;

    (void)topic;
    if (!str_split(&name, '\x1f', &tenant))
        return;
    struct instance *i = instance_find(r, tenant, name);
    if (i != NULL)
        life_follow(i, life_now(r, tenant, name));
}

void lives_listen(struct relay *r)
{
    bus_subscribe(r->env.bus, "ended", on_ended, r);
}

/* ---- while starting ---- */

static int by_box(const void *a, const void *b)
{
    const struct retired *x = a, *y = b;

    return x->box < y->box ? -1 : x->box > y->box;
}

static struct retired *find(const struct lives *t, uint32_t box)
{
    const struct retired wanted = {.box = box};

    return t->n != 0 ? bsearch(&wanted, t->retired, t->n, sizeof wanted, by_box) : NULL;
}

static void add(struct lives *t, uint32_t box)
{
    if (t->n == t->cap) {
        t->cap = t->cap != 0 ? t->cap * 2 : 16;
        t->retired = xrealloc(t->retired, t->cap * sizeof t->retired[0]);
    }
    t->retired[t->n++] = (struct retired){.box = box};
}

static void on_retired(void *ctx, struct str key, struct str value)
{
    struct relay *r = ctx;
    char hex[9] = "";
    char *end;

    (void)value;
    if (key.n != 8)
        return;
    memcpy(hex, key.p, key.n);
    unsigned long box = strtoul(hex, &end, 16);
    if (*end == '\0' && box != 0) {
        add(r->lives, (uint32_t)box);
        instance_reserve_box(r, (uint32_t)box);
    }
}

enum bh_err life_load(struct relay *r)
{
    enum bh_err err = r->env.store->ops->load_records(r->env.store, LIFE_RETIRED, on_retired, r);

    if (r->lives->n != 0)
        qsort(r->lives->retired, r->lives->n, sizeof(struct retired), by_box);
    return err;
}

bool life_take_row(struct relay *r, uint32_t box, uint64_t id)
{
    struct retired *old = find(r->lives, box);

    if (old == NULL)
        return false;
    old->rows++;
    acks_add(r, id);
    return true;
}

void life_loaded(struct relay *r)
{
    struct lives *t = r->lives;
    uint64_t rows = 0;

    for (size_t i = 0; i < t->n; i++) {
        char key[9];
        rows += t->retired[i].rows;
        if (t->retired[i].rows != 0)
            continue;
        snprintf(key, sizeof key, "%08" PRIx32, t->retired[i].box);
        struct store_kv item = {.verb = KV_DELETE, .ns = LIFE_RETIRED, .key = str_of(key)};
        store_put(r->env.store, &item, 1, false, NULL, NULL);
    }
    if (rows != 0)
        log_info(NULL, "rows of deprovisioned instances are deleted: rows=%" PRIu64, rows);
    r->n.purged += rows;
    free(t->retired);
    *t = (struct lives){0};
}

void lives_follow(struct relay *r)
{
    list_each (instances_by_age(r), it, nxt) {
        struct instance *i = list_entry(it, struct instance, link);
        life_follow(i, life_now(r, instance_tenant(i), instance_id(i)));
    }
}
