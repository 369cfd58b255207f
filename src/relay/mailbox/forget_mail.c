/* forget_mail.c - what a person wrote and no agent has taken yet is settled.  (relay.h has the
 * contract.)
 *
 *      the next instance with mail --> a page of its rows is read --> those that name them: settled
 *             ^------------------- the last page -------------'  ^--- the next page ---'
 *
 * Nothing is indexed by person, and this happens a few times a year: every waiting row is read, a
 * page at a time, and so many instances are passed over in a turn.  A row whose context quotes them
 * is somebody else's message: it is counted, and stays as it was accepted.  The work belongs to the
 * store while it reads, and goes with the relay. */
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"
#include "relay/mailbox/delivery.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "relay/mailbox/tend.h"
#include "store/store.h"

enum { PAGE_ROWS = 256, PAGE_BYTES = 512 << 10, TURN_INSTANCES = 4096 };

struct forgetting {
    struct store_fetch op;
    struct list link;      /* shows->forgettings */
    struct timer turn;     /* goes on, or tells the end: later, as always */
    struct relay *relay;   /* borrowed */
    struct instance *inst; /* borrowed: instances stay; NULL: all were looked at */
    uint64_t after;        /* rows of @inst up to this one were looked at */
    struct relay_forgot got;
    bool only_count;
    relay_forgot_cb *done;
    void *ctx;
    struct json_parser *parser; /* owned */
    struct buf platform, user;
    uint64_t ids[PAGE_ROWS];
};

static void forgetting_free(struct forgetting *w)
{
    timer_stop(w->relay->env.clock, &w->turn);
    list_remove(&w->link);
    json_parser_free(w->parser);
    buf_done(&w->platform);
    buf_done(&w->user);
    free(w);
}

void forgettings_free(struct list *all)
{
    list_each (all, it, nxt)
        forgetting_free(list_entry(it, struct forgetting, link));
}

static bool quotes(const struct forgetting *w, struct json event)
{
    for (struct json_iter it = {0}; json_next(json_get(event, "context"), &it);)
        if (str_eq(json_str(json_get(it.value, "source"), "user_id"), buf_str(&w->user)))
            return true;
    return false;
}

/* Written by them, or in the chat that is called like them. */
static bool names(struct forgetting *w, struct str frame)
{
    struct str user = buf_str(&w->user);
    struct json doc;

    if (!json_parse(w->parser, frame, &doc))
        return false;
    struct json event = json_get(doc, "event"), source = json_get(event, "source");
    if (!str_eq(json_str(source, "platform"), buf_str(&w->platform)))
        return false;
    if (str_eq(json_str(source, "user_id"), user) || str_eq(json_str(source, "chat_id"), user))
        return true;
    w->got.quoted += quotes(w, event);
    return false;
}

static void read_on(struct forgetting *w);

static void on_turn(struct timer *t)
{
    struct forgetting *w = container_of(t, struct forgetting, turn);

    if (w->inst != NULL) {
        read_on(w);
        return;
    }
    w->done(w->ctx, BH_OK, &w->got);
    forgetting_free(w);
}

static void on_page(struct store_op *op, enum bh_err err)
{
    struct forgetting *w = container_of(op, struct forgetting, op.op);

    for (size_t k = 0; err == BH_OK && k < w->op.n_rows; k++) {
        struct slot *slot = mailbox_find(&w->inst->mb, w->op.rows[k].id);
        if (slot == NULL || !names(w, w->op.rows[k].frame))
            continue;
        w->got.n++;
        if (!w->only_count)
            delivery_settle(w->inst, slot);
    }
    if (err != BH_OK) {
        w->done(w->ctx, err, &w->got);
        forgetting_free(w);
        return;
    }
    w->after = w->op.n_used != 0 ? w->ids[w->op.n_used - 1] : UINT64_MAX;
    mailbox_tidy(&w->inst->mb);
    store_fetch_free(w->relay->env.store, &w->op);
    read_on(w);
}

/* False: there are no more rows of this instance. */
static bool read_page(struct forgetting *w)
{
    struct mailbox *mb = &w->inst->mb;
    bool on_disk = true;
    size_t n = 0;

    for (uint32_t at = mailbox_seek(mb, w->after); at < mb->n && n < PAGE_ROWS; at++) {
        const struct slot *slot = mailbox_at(mb, at);
        if ((slot->flags & SLOT_GONE) != 0)
            continue;
        w->ids[n++] = slot->id;
        on_disk = on_disk && (slot->flags & SLOT_DURABLE) != 0;
    }
    if (n == 0)
        return false;
    w->op = (struct store_fetch){.op = {.done = on_page},
                                 .ids = w->ids,
                                 .n = n,
                                 .max_bytes = PAGE_BYTES,
                                 .loose = on_disk}; /* else it waits for all that is written */
    store_fetch(w->relay->env.store, &w->op);
    return true;
}

static void read_on(struct forgetting *w)
{
    for (int k = 0; w->inst != NULL && k < TURN_INSTANCES; k++) {
        if (w->after != UINT64_MAX && read_page(w))
            return;
        struct list *next = w->inst->link.next;
        w->inst =
            next != instances_by_age(w->relay) ? list_entry(next, struct instance, link) : NULL;
        w->after = 0;
    }
    timer_set(w->relay->env.clock, &w->turn, 0);
}

void relay_forget_mail(struct relay *r, struct str platform, struct str user, bool only_count,
                       relay_forgot_cb *done, void *ctx)
{
    struct forgetting *w = xcalloc(1, sizeof *w);
    struct list *all = instances_by_age(r);

    w->relay = r;
    w->only_count = only_count;
    w->done = done;
    w->ctx = ctx;
    w->parser = json_parser_new();
    timer_init(&w->turn, on_turn);
    buf_add_str(&w->platform, platform);
    buf_add_str(&w->user, user);
    w->inst = list_is_empty(all) ? NULL : list_first(all, struct instance, link);
    list_init(&w->link);
    list_append(shows_forgettings(r), &w->link);
    read_on(w);
}
