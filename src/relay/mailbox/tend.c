/* tend.c - design.  (tend.h and relay.h have the contract.)
 *
 * A show reads the rows from the store, not from memory: it is asked for what is really there. */
#include "relay/mailbox/tend.h"
#include <stdlib.h>
#include "base/buf.h"
#include "relay/mailbox/acks.h"
#include "relay/out/chats.h"
#include "relay/mailbox/delivery.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "store/store.h"

enum { SHOW_MAX_ROWS = 10000, SHOW_MAX_BYTES = 8 << 20 };

struct show {
    struct store_fetch op;
    struct list link; /* shows->under_way */
    struct instance *inst;
    mailbox_line_cb *each;
    accepted_cb *done;
    void *ctx;
    uint64_t ids[];
};

struct roster { /* the chats of one instance, on their way from the store */
    struct store_scan op;
    struct list link;      /* shows->rosters */
    struct relay *relay;   /* borrowed */
    struct instance *inst; /* borrowed; NULL: there is none */
    struct buf prefix;     /* owned; what @op looks for */
    chat_line_cb *each;
    accepted_cb *done;
    void *ctx;
};

struct shows {
    struct list under_way, rosters, forgettings;
};

struct shows *shows_new(void)
{
    struct shows *t = xcalloc(1, sizeof *t);

    list_init(&t->under_way);
    list_init(&t->rosters);
    list_init(&t->forgettings);
    return t;
}

struct list *shows_forgettings(struct relay *r)
{
    return &r->shows->forgettings;
}

static void roster_free(struct roster *o)
{
    list_remove(&o->link);
    buf_done(&o->prefix);
    free(o);
}

void shows_free(struct shows *t)
{
    if (t == NULL)
        return;
    list_each (&t->under_way, it, nxt)
        free(list_entry(it, struct show, link));
    list_each (&t->rosters, it, nxt)
        roster_free(list_entry(it, struct roster, link));
    forgettings_free(&t->forgettings);
    free(t);
}

static void show_row(struct show *w, const struct store_row *row)
{
    struct instance *i = w->inst;
    const struct slot *slot = mailbox_find(&i->mb, row->id);

    if (slot == NULL)
        return; /* settled while we read */
    struct mailbox_line line = {.id = row->id,
                                .at_ms = row->at_ms,
                                .attempts = slot->attempts,
                                .sent = slot_waits(slot) && i->receiver != NULL &&
                                        session_has_sent(i->receiver, row->id),
                                .frame = row->frame};
    if ((slot->flags & SLOT_PARKED) != 0)
        line.parked = row->parked.p != NULL ? row->parked : STR("parked");
    w->each(w->ctx, &line);
}

static void on_shown(struct store_op *op, enum bh_err err)
{
    struct show *w = container_of(op, struct show, op.op);
    struct store *st = w->inst->relay->env.store;

    for (size_t k = 0; err == BH_OK && k < w->op.n_rows; k++)
        show_row(w, &w->op.rows[k]);
    if (err == BH_OK)
        st->ops->fetch_free(&w->op);
    list_remove(&w->link);
    w->done(w->ctx, err);
    free(w);
}

struct nobody { /* an answer for an instance that is not there */
    accepted_cb *done;
    void *ctx;
};

static void on_nobody(void *ctx)
{
    struct nobody *n = ctx;

    n->done(n->ctx, BH_NOT_FOUND);
    free(n);
}

void relay_mailbox_show(struct relay *r, struct str tenant, struct str instance, size_t limit,
                        mailbox_line_cb *each, accepted_cb *done, void *ctx)
{
    struct instance *i = instance_find(r, tenant, instance);

    if (i == NULL) {
        struct nobody *n = xmalloc(sizeof *n);
        *n = (struct nobody){done, ctx};
        clock_defer(r->env.clock, on_nobody, n);
        return;
    }
    if (limit == 0 || limit > SHOW_MAX_ROWS)
        limit = SHOW_MAX_ROWS;
    if (limit > mailbox_entries(&i->mb))
        limit = mailbox_entries(&i->mb);
    struct show *w = xcalloc(1, sizeof *w + limit * sizeof w->ids[0]);
    size_t n = 0;
    for (uint32_t at = 0; at < i->mb.n && n < limit; at++)
        if ((mailbox_at(&i->mb, at)->flags & SLOT_GONE) == 0)
            w->ids[n++] = mailbox_at(&i->mb, at)->id;
    w->inst = i;
    w->each = each;
    w->done = done;
    w->ctx = ctx;
    w->op = (struct store_fetch){.op = {.done = on_shown},
                                 .ids = w->ids,
                                 .n = n,
                                 .max_bytes = SHOW_MAX_BYTES};
    list_init(&w->link);
    list_append(&r->shows->under_way, &w->link);
    store_fetch(r->env.store, &w->op);
}

/* ---- chats ---- */

static void show_chat(struct roster *o, const struct store_record *record)
{
    struct str rest = str_skip(record->key, o->prefix.n);
    struct chat_line line;
    struct json doc;

    if (!str_split(&rest, '\x1f', &line.platform) || rest.p == NULL ||
        !json_parse(o->relay->json, record->value, &doc) || o->inst == NULL ||
        !chats_record_counts(o->inst, doc))
        return;
    line.chat_id = rest;
    line.bot = json_str(doc, "bot");
    line.scope = json_str(doc, "scope");
    o->each(o->ctx, &line);
}

static void on_roster(struct store_op *op, enum bh_err err)
{
    struct roster *o = container_of(op, struct roster, op.op);

    for (size_t k = 0; err == BH_OK && k < o->op.n_records; k++)
        show_chat(o, &o->op.records[k]);
    store_scan_free(o->relay->env.store, &o->op);
    o->done(o->ctx, err);
    roster_free(o);
}

void relay_chats_show(struct relay *r, struct str tenant, struct str instance, size_t limit,
                      chat_line_cb *each, accepted_cb *done, void *ctx)
{
    struct roster *o = xcalloc(1, sizeof *o);

    *o = (struct roster){.relay = r, .each = each, .done = done, .ctx = ctx};
    o->inst = instance_find(r, tenant, instance);
    buf_printf(&o->prefix, "%.*s\x1f%.*s\x1f", STR_FMT(tenant), STR_FMT(instance));
    list_init(&o->link);
    list_append(&r->shows->rosters, &o->link);
    o->op = (struct store_scan){.op = {.done = on_roster},
                                .ns = CHATS_NS,
                                .prefix = buf_str(&o->prefix),
                                .limit = limit};
    store_scan(r->env.store, &o->op);
}

/* ---- purge, take and redrive ---- */

/* What waits up to @up_to, parked or not, is settled; how many that were. */
static uint64_t settle(struct instance *i, uint64_t up_to)
{
    uint64_t n = 0;

    for (uint32_t at = 0; at < i->mb.n && mailbox_at(&i->mb, at)->id <= up_to; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if ((slot->flags & SLOT_GONE) != 0)
            continue;
        delivery_settle(i, slot);
        n++;
    }
    mailbox_tidy(&i->mb);
    return n;
}

/* However much waits: what is in memory or on a socket one by one, the rest as a whole. */
static uint64_t settle_all(struct instance *i)
{
    uint32_t before = mailbox_entries(&i->mb);
    unsigned known = list_is_empty(&i->sessions) ? 0 : SLOT_SENT;

    for (uint32_t at = 0; at < i->mb.n; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if ((slot->flags & SLOT_GONE) == 0 && (slot->d != NULL || (slot->flags & known) != 0))
            delivery_settle(i, slot);
    }
    i->relay->n.settled += mailbox_entries(&i->mb);
    if (mailbox_entries(&i->mb) != 0)
        acks_add_ring(i->relay, mailbox_detach(&i->mb));
    mailbox_tidy(&i->mb);
    return before;
}

uint64_t relay_mailbox_purge(struct relay *r, struct str tenant, struct str instance)
{
    struct instance *i = instance_find(r, tenant, instance);
    uint64_t n = i != NULL ? settle_all(i) : 0;

    r->n.purged += n;
    if (i != NULL)
        log_info(NULL, "mailbox purged: tenant=%.*s instance=%.*s entries=%llu",
                 STR_FMT(instance_tenant(i)), STR_FMT(instance_id(i)), (unsigned long long)n);
    return n;
}

uint64_t relay_mailbox_take(struct relay *r, struct str tenant, struct str instance, uint64_t up_to)
{
    struct instance *i = instance_find(r, tenant, instance);
    uint64_t n = i != NULL ? settle(i, up_to) : 0;

    r->n.acked += n;
    return n;
}

bool relay_waits(struct relay *r, struct str tenant, struct str instance, uint64_t id)
{
    struct instance *i = instance_find(r, tenant, instance);

    return i != NULL && mailbox_find(&i->mb, id) != NULL;
}

uint64_t relay_mailbox_redrive(struct relay *r, struct str tenant, struct str instance)
{
    struct instance *i = instance_find(r, tenant, instance);
    uint64_t n = 0;

    if (i == NULL)
        return 0;
    for (uint32_t at = 0; at < i->mb.n; at++) {
        struct slot *slot = mailbox_at(&i->mb, at);
        if ((slot->flags & SLOT_PARKED) == 0)
            continue;
        mailbox_park(&i->mb, slot, false);
        slot->attempts = 0;
        delivery_mark(i, slot, STR_NULL);
        pump_again(i, slot->id);
        n++;
    }
    pump_want(i);
    wake_want(i);
    return n;
}
