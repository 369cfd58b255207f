/* forget_mail.c - what a person wrote and no agent has taken yet is settled.  (relay.h has the
 * contract.)
 *
 *      the next instance with mail --> a page of its rows is read --> those that name them: settled
 *             ^------------------- the last page -------------'  ^--- the next page ---'
 *
 * Nothing is indexed by person, and this happens a few times a year: every waiting row is read, a
 * page at a time.  The work belongs to the store while it reads, and goes with the relay. */
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"
#include "relay/delivery.h"
#include "relay/heart.h"
#include "relay/instance.h"
#include "relay/tend.h"
#include "store/store.h"

enum { PAGE_ROWS = 256, PAGE_BYTES = 512 << 10 };

struct forgetting {
    struct store_fetch op;
    struct list link;    /* shows->forgettings */
    struct timer end;    /* the answer comes later, as always */
    struct relay *relay; /* borrowed */
    struct instance *inst;
    uint64_t after; /* rows of @inst up to this one were looked at */
    uint64_t n;
    bool only_count;
    relay_forgot_cb *done;
    void *ctx;
    struct json_parser *parser; /* owned */
    struct buf platform, user;
    uint64_t ids[PAGE_ROWS];
};

static void forgetting_free(struct forgetting *w)
{
    timer_stop(w->relay->env.clock, &w->end);
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

static void on_end(struct timer *t)
{
    struct forgetting *w = container_of(t, struct forgetting, end);

    w->done(w->ctx, BH_OK, w->n);
    forgetting_free(w);
}

/* Written by them, or in the chat that is called like them. */
static bool names(struct forgetting *w, struct str frame)
{
    struct str user = buf_str(&w->user);
    struct json doc;

    if (!json_parse(w->parser, frame, &doc))
        return false;
    struct json source = json_get(json_get(doc, "event"), "source");
    return str_eq(json_str(source, "platform"), buf_str(&w->platform)) &&
           (str_eq(json_str(source, "user_id"), user) || str_eq(json_str(source, "chat_id"), user));
}

static void read_on(struct forgetting *w);

static void on_page(struct store_op *op, enum bh_err err)
{
    struct forgetting *w = container_of(op, struct forgetting, op.op);

    for (size_t k = 0; err == BH_OK && k < w->op.n_rows; k++) {
        struct slot *slot = mailbox_find(&w->inst->mb, w->op.rows[k].id);
        if (slot == NULL || !names(w, w->op.rows[k].frame))
            continue;
        w->n++;
        if (!w->only_count)
            delivery_settle(w->inst, slot);
    }
    if (err != BH_OK) {
        w->done(w->ctx, err, w->n);
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
    size_t n = 0;

    for (uint32_t at = mailbox_seek(mb, w->after); at < mb->n && n < PAGE_ROWS; at++)
        if ((mailbox_at(mb, at)->flags & SLOT_GONE) == 0)
            w->ids[n++] = mailbox_at(mb, at)->id;
    if (n == 0)
        return false;
    w->op = (struct store_fetch){.op = {.done = on_page},
                                 .ids = w->ids,
                                 .n = n,
                                 .max_bytes = PAGE_BYTES};
    store_fetch(w->relay->env.store, &w->op);
    return true;
}

static void read_on(struct forgetting *w)
{
    while (w->inst != NULL) {
        if (w->after != UINT64_MAX && read_page(w))
            return;
        struct list *next = w->inst->link.next;
        w->inst =
            next != instances_by_age(w->relay) ? list_entry(next, struct instance, link) : NULL;
        w->after = 0;
    }
    timer_set(w->relay->env.clock, &w->end, 0);
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
    timer_init(&w->end, on_end);
    buf_add_str(&w->platform, platform);
    buf_add_str(&w->user, user);
    w->inst = list_is_empty(all) ? NULL : list_first(all, struct instance, link);
    list_init(&w->link);
    list_append(shows_forgettings(r), &w->link);
    read_on(w);
}
