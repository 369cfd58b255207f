/* edits.c - design.  (edits.h has the contract.)
 *
 * Mailboxes have no index by name: it would double the memory of every backlog, and edits are rare.
 * The deduplication key has the time of the delivery, and slots are in order of time, so a search
 * reads only a few rows. */
#include "relay/in/edits.h"
#include <stdlib.h>
#include "base/json.h"
#include "relay/heart.h"
#include "relay/in/accept.h"
#include "relay/in/burst.h"
#include "relay/in/judge.h"
#include "relay/in/staged_priv.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"
#include "store/store.h"

enum {
    MOST_ROWS = 512,
    OLDER_S = 5, /* keys loaded at start have the time of their transaction, which is later */
};

struct edit_look { /* a pending read of rows that may be the delivery */
    struct store_fetch op;
    struct pending pending;
    struct instance *inst; /* borrowed */
    struct accept *accept; /* held */
    struct arena arena;
    struct event ev; /* in the arena */
    char name[DELIVERY_ID_CHARS];
    uint64_t ids[];
};

static void look_free(struct pending *p)
{
    struct edit_look *l = container_of(p, struct edit_look, pending);

    arena_done(&l->arena);
    free(l);
}

/* The message that @ev changes, with only the fields of its name set; borrowed from @ev and
 * @room. */
static struct event edit_original(struct relay *r, const struct event *ev, struct buf *room)
{
    const struct outlet *at = r->env.outside->find(r->env.outside, ev->platform, ev->bot);

    return (struct event){.platform = ev->platform,
                          .bot = ev->bot,
                          .chat_id = ev->chat_id,
                          .event_id = delivery_event_id(room, at != NULL && at->ids_per_chat,
                                                        ev->chat_id, ev->message_id)};
}

/* True when no gateway can have read the delivery. */
static bool is_unsent(const struct instance *i, const struct slot *slot)
{
    return slot_waits(slot) && (slot->flags & SLOT_SENT) == 0 && slot->attempts == 0 &&
           !session_anyone_has(i, slot->id);
}

static bool apply(struct instance *i, struct slot *slot, struct str frame, const struct event *ev,
                  struct accept *a)
{
    struct relay *r = i->relay;
    struct buf changed = BUF_INIT;
    enum event_part_change part = event_change_part(&changed, r->json, frame, ev);

    bool ok = part == EVENT_PART_CHANGED && changed.n <= SLOT_MAX_BYTES;
    if (ok) {
        delivery_revise(i, slot, buf_str(&changed), a);
        fetch_drop(i);
        pump_want(i);
    } else if (ev->edit.deletes && part == EVENT_PART_LAST) {
        delivery_settle(i, slot);
        mailbox_tidy(&i->mb);
        ok = true;
    }
    r->n.retracted += ok && ev->edit.deletes;
    r->n.revised += ok && !ev->edit.deletes;
    buf_done(&changed);
    return ok;
}

/* ---- rows of the store ---- */

static void on_rows(struct store_op *op, enum bh_err err)
{
    struct edit_look *l = container_of(op, struct edit_look, op.op);
    struct instance *i = l->inst;
    struct relay *r = i->relay;
    bool done = false;

    for (size_t k = 0; err == BH_OK && k < l->op.n_rows && !done; k++) {
        struct slot *slot = mailbox_find(&i->mb, l->op.rows[k].id);
        struct str revised = delivery_revised(i, l->op.rows[k].id);
        if (slot != NULL && is_unsent(i, slot) &&
            (str_eq(delivery_id_in(l->op.rows[k].frame), str_make(l->name, sizeof l->name)) ||
             event_frame_is_burst(l->op.rows[k].frame)))
            done = apply(i, slot, revised.p != NULL ? revised : l->op.rows[k].frame, &l->ev,
                         l->accept);
    }
    if (err == BH_OK)
        store_fetch_free(&l->op);
    if (err != BH_OK) {
        accept_release(r, l->accept, BH_UNAVAILABLE);
    } else if (done || l->ev.edit.silent) {
        accept_release(r, l->accept, BH_OK);
    } else {
        struct event routed = judge_route(r, &l->ev);
        routed.edit.set = false;
        accept_resume(r, &routed, NULL, 0, l->accept);
    }
    pending_end(&l->pending);
}

/* The first row of that second or later: rows lie in the order of their arrival. */
static uint32_t first_since(const struct mailbox *mb, int64_t at_s)
{
    uint32_t low = 0, high = mb->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (mailbox_at(mb, middle)->at_s < at_s)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool look_for(struct instance *i, struct hash128 key, int64_t at_ms, const struct event *ev,
                     struct accept *a)
{
    uint64_t ids[MOST_ROWS];
    size_t n = 0;
    int64_t first_s = at_ms / 1000 - OLDER_S, last_s = at_ms / 1000 + 1;

    for (uint32_t at = first_since(&i->mb, first_s); at < i->mb.n && n < MOST_ROWS; at++) {
        const struct slot *slot = mailbox_at(&i->mb, at);
        if (slot->at_s > last_s)
            break;
        if (slot->d == NULL && (slot->flags & SLOT_GONE) == 0 && is_unsent(i, slot))
            ids[n++] = slot->id;
    }
    if (n == 0)
        return false;
    struct edit_look *l = xcalloc(1, sizeof *l + n * sizeof ids[0]);
    l->inst = i;
    l->accept = a;
    memcpy(l->ids, ids, n * sizeof ids[0]);
    delivery_id_format(key, l->name);
    /* The event is delivered to this instance only, if the search finds nothing. */
    struct event own = *ev;
    own.route_key = ev->own_key.p != NULL ? ev->own_key : ev->route_key;
    own.own_key = STR_NULL;
    own.only_tenant = instance_tenant(i);
    own.only_instance = instance_id(i);
    event_copy(&own, &l->arena, &l->ev);
    pending_add(i->relay, &l->pending, look_free);
    accept_hold(a);
    l->op = (struct store_fetch){.op = {.done = on_rows}, .ids = l->ids, .n = n, .loose = true};
    store_fetch(i->relay->env.store, &l->op);
    return true;
}

/* ---- one instance ---- */

bool edit_take(struct relay *r, const struct gate_instance *to, const struct event *ev,
               struct accept *a)
{
    struct instance *i = instance_find(r, to->tenant, to->instance);
    struct hash128 key;

    if (i == NULL || i->life != to->life || mailbox_waiting(&i->mb) == 0)
        return false;
    struct buf room = BUF_INIT;
    struct event original = edit_original(r, ev, &room);
    bool known =
        delivery_id_of(&original, &r->env.store->dedup_key, to->tenant, to->instance, &key) &&
        dedup_has(&r->dedup, key);
    buf_done(&room);
    if (!known)
        return false;
    list_each (&i->mb.held, it, nxt) {
        const struct delivery *d = list_entry(it, struct delivery, link);
        if (!delivery_has_key(d, key))
            continue;
        struct slot *slot = mailbox_find(&i->mb, d->append.id);
        struct str revised = delivery_revised(i, d->append.id);
        return slot != NULL && is_unsent(i, slot) &&
               apply(i, slot, revised.p != NULL ? revised : d->append.frame, ev, a);
    }
    return look_for(i, key, dedup_at(&r->dedup, key), ev, a);
}

/* ---- a staged event ---- */

bool edit_staged(struct relay *r, const struct event *ev, struct gate_verdict *verdicts, size_t *n,
                 struct accept *a)
{
    struct buf room = BUF_INIT;
    struct event original = edit_original(r, ev, &room);
    struct staged_chat *c = staged_chat_of(r->stage, &original);
    bool found = false;

    for (struct list *it = c != NULL ? c->events.next : NULL; c != NULL && it != &c->events;
         it = it->next) {
        struct staged *e = list_entry(it, struct staged, in_chat);
        size_t kept = 0;
        int part = burst_find(&e->ev, original.event_id);
        if (part < 0 || e->state == STAGED_ENTERING || e->dropped ||
            !event_may_change(ev, e->ev.user_id))
            continue;
        found = true;
        for (size_t i = 0; i < *n; i++)
            if (!staged_has(e->to, e->n_to, verdicts[i].to))
                verdicts[kept++] = verdicts[i];
        *n = kept;
        r->n.retracted += ev->edit.deletes;
        r->n.revised += !ev->edit.deletes;
        if (!burst_edit(&e->ev, &e->arena, part, ev)) { /* all its messages are deleted */
            staged_drop(e);
            continue;
        }
        for (size_t i = 0; i < e->ev.n_media; i++)
            if (e->ev.media[i].ref.n == 0 && e->ev.media[i].url.n == 0)
                e->files[i].state = WANT_NOTHING;
        burst_changed(e, a);
    }
    buf_done(&room);
    return found;
}
