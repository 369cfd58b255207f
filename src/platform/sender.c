/* sender.c - design.  (sender.h has the contract, sender_try.c the tries.)
 *
 * Three things decide when something leaves: its lane (outbox.h), its record (outgoing_log.h)
 * and the adapter's write().  The record is begun when the order comes, beside the wait for the
 * lane, so that a lane that has waited costs no second wait for the disk. */
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "platform/sender_priv.h"

enum {
    PATIENCE_MS = 25000,       /* of an action that names no deadline */
    MARGIN_MS = 3000,          /* what can no longer start is told this long before the deadline */
    TYPING_PATIENCE_MS = 5000, /* later than that it tells nobody anything */
};

static timer_cb on_early;

/* ---- lane and record ---- */

static void on_start(void *ctx, struct outbox_item *it)
{
    struct outgoing *o = container_of(it, struct outgoing, item);

    o->started = true;
    if (o->cancelled)
        outgoing_end_with(o, SENDER_FAILED, "");
    else if (o->record.put == NULL)
        outgoing_go(o);
}

static void on_recorded(struct outgoing_record *rec, enum bh_err err)
{
    struct outgoing *o = container_of(rec, struct outgoing, record);

    if (err == BH_OK) {
        if (o->started)
            outgoing_go(o);
        return;
    }
    snprintf(o->why, sizeof o->why, "bellhop's store cannot be written; nothing was sent");
    o->item.deadline_ms = 0; /* it does not leave */
    if (o->started)
        outgoing_end_late(o);
}

static void on_drop(void *ctx, struct outbox_item *it, enum outbox_drop why)
{
    struct outgoing *o = container_of(it, struct outgoing, item);
    bool left = o->call != NULL || o->maybe || o->at > 0;

    o->queued = false;
    if (why == OUTBOX_LATE) {
        outgoing_end_late(o);
        return;
    }
    o->cancelled = o->cancelled || !o->is_action; /* nobody is there to be told */
    if (!left && o->record.log != NULL)
        outgoing_log_change(&o->record,
                            &(struct outgoing_entry){.from = o->from, .op = o->op, .waits = true});
    outgoing_log_leave(&o->record);
    if (left)
        outgoing_end_with(o, SENDER_UNKNOWN, "bellhop was stopped; it may have been delivered");
    else
        outgoing_end_with(o, SENDER_FAILED, "bellhop is stopping");
}

/* ---- orders ---- */

static void start(struct sender *s, struct outgoing *o)
{
    o->sender = s;
    list_init(&o->link);
    list_append(&s->all, &o->link);
    timer_init(&o->early, on_early);
}

/* It fails before it began; its owner learns that later, as of any other end. */
static void fail_early(struct outgoing *o, enum sender_end how, const char *why)
{
    o->early_end = (uint8_t)how;
    snprintf(o->why, sizeof o->why, "%s", why);
    timer_set(o->sender->env->clock, &o->early, 0);
}

static void on_early(struct timer *t)
{
    struct outgoing *o = container_of(t, struct outgoing, early);

    outgoing_end_with(o, (enum sender_end)o->early_end, o->why);
}

static bool queue(struct outgoing *o, struct str tenant, struct str lane, int64_t patience_ms)
{
    char why[96] = "too many messages are waiting already";
    enum bh_err err = outbox_add(o->sender->box, &o->item, tenant, lane, patience_ms);

    o->queued = err == BH_OK;
    if (err == BH_UNAVAILABLE)
        snprintf(why, sizeof why, "%.40s asks to wait too long here", o->sender->label);
    if (err != BH_OK)
        fail_early(o, SENDER_FAILED, why);
    return o->queued;
}

static int64_t patience_of(const struct sender *s, const struct action *a)
{
    int64_t ms =
        a->deadline_ms > 0 ? a->deadline_ms - MARGIN_MS - sender_now_ms(s) : (int64_t)PATIENCE_MS;

    return a->op == ACTION_TYPING && ms > TYPING_PATIENCE_MS ? TYPING_PATIENCE_MS : ms;
}

static struct outgoing_entry entry_of(const struct sender_order *q)
{
    return (struct outgoing_entry){.from = *q->from,
                                   .op = q->action->op,
                                   .chat = q->action->chat_id,
                                   .what = q->what};
}

static struct str copy_to(char **at, struct str s)
{
    char *p = *at;

    memcpy(p, s.n > 0 ? s.p : "", s.n);
    *at += s.n;
    return str_make(p, s.n);
}

static void set_from(struct outgoing *o, const struct action_from *f)
{
    char *at = xmalloc(f->tenant.n + f->instance.n + f->request_id.n + 1);

    free((char *)o->from.tenant.p);
    o->from.tenant = copy_to(&at, f->tenant);
    o->from.instance = copy_to(&at, f->instance);
    o->from.request_id = copy_to(&at, f->request_id);
    o->from.life = f->life;
}

void sender_act(struct sender *s, struct outgoing *o, const struct sender_order *q)
{
    struct outgoing_entry e = entry_of(q);

    start(s, o);
    o->is_action = true;
    o->id = q->id;
    set_from(o, q->from);
    o->op = q->action->op;
    if (o->n_parts == 0)
        fail_early(o, SENDER_REFUSED, "there is nothing to send: the text is empty");
    else if (o->n_parts > SENDER_MAX_PARTS)
        fail_early(o, SENDER_REFUSED, "the text is too long: it would be more than 16 messages");
    else if (blame_is_full(&s->blame, q->from->tenant, sender_now_ms(s)))
        fail_early(o, SENDER_FAILED,
                   "the platform refused too much of this tenant's within ten minutes; nothing of "
                   "it is sent for a while");
    else if (q->what.p != NULL && outgoing_log_was_cut_off(s->log, q->what))
        fail_early(o, SENDER_UNKNOWN,
                   "bellhop was restarted while this was being sent; it may have been delivered");
    else if (queue(o, q->from->tenant, q->lane.p != NULL ? q->lane : e.chat,
                   patience_of(s, q->action)) &&
             outgoing_counts(o))
        outgoing_log_begin(s->log, &o->record, &e, on_recorded);
}

void sender_ask(struct sender *s, struct outgoing *o, struct str lane, int64_t patience_ms)
{
    start(s, o);
    queue(o, STR(""), lane, patience_ms);
}

void sender_cancel(struct outgoing **o)
{
    if (*o != NULL)
        (*o)->cancelled = true;
    *o = NULL;
}

bool outgoing_waits(const struct outgoing *o)
{
    return o->queued && !o->started && !o->maybe && o->at == 0;
}

void sender_supersede(struct outgoing *o, const struct sender_order *q)
{
    struct outgoing_entry e = entry_of(q);

    host_result(o->sender->p->host, o->id,
                &(struct action_result){.success = true, .message_id = q->action->message_id});
    o->id = q->id;
    set_from(o, q->from);
    if (o->record.log != NULL)
        outgoing_log_change(&o->record, &e);
}

void sender_blame(const struct outgoing *o)
{
    if (o->is_action && !str_is_empty(o->from.tenant))
        blame_note(&o->sender->blame, o->from.tenant, sender_now_ms(o->sender));
}

void sender_pause(struct sender *s, int64_t for_ms)
{
    outbox_pause(s->box, for_ms);
}

void sender_resume(struct sender *s, const char *why)
{
    struct list held;

    list_init(&held);
    while (!list_is_empty(&s->held))
        list_move(s->held.next, &held); /* what is held again waits for the next time */
    while (!list_is_empty(&held)) {
        struct outgoing *o = list_first(&held, struct outgoing, link);
        list_move(&o->link, &s->all);
        if (why != NULL)
            outgoing_end_with(o, SENDER_FAILED, why);
        else
            outgoing_go(o);
    }
}

/* ---- life ---- */

static void on_found(void *ctx, const struct outgoing_entry *e)
{
    struct sender *s = ctx;

    host_cut_off(s->p->host, &e->from,
                 e->waits ? ACTION_ERROR_TRANSIENT "bellhop was restarted before this was sent"
                          : ACTION_ERROR_UNKNOWN
                     "bellhop restarted while this was being sent; it may have been delivered");
}

enum bh_err sender_new(struct platform *p, const char *label, const struct sender_ops *ops,
                       struct sender **ret_s, char *ret_why)
{
    static const struct outbox_handlers handlers = {.start = on_start, .drop = on_drop};
    struct sender *s = xcalloc(1, sizeof *s);

    *s = (struct sender){.p = p, .env = host_env(p->host), .label = label, .ops = ops};
    list_init(&s->all);
    list_init(&s->held);
    blame_init(&s->blame);
    s->box = outbox_new(s->env->clock, NULL, &handlers, s);
    enum bh_err err = outgoing_log_open(s->env->store, s->env->clock, p->ops->name, p->bot,
                                        on_found, s, &s->log, ret_why);
    if (err != BH_OK) {
        sender_free(s);
        return err;
    }
    size_t n = outgoing_log_found(s->log);
    if (n > 0)
        log_warn(NULL, "platform=%s bot=%s this was being sent when bellhop stopped: unknown=%zu",
                 p->ops->name, p->bot, n);
    *ret_s = s;
    return BH_OK;
}

void sender_free(struct sender *s)
{
    if (s == NULL)
        return;
    outbox_free(s->box);
    list_each (&s->all, it, nxt) { /* those that were about to fail */
        struct outgoing *o = list_entry(it, struct outgoing, link);
        o->cancelled = o->cancelled || !o->is_action;
        on_early(&o->early);
    }
    outgoing_log_close(s->log);
    blame_done(&s->blame);
    free(s);
}

void sender_stats(const struct sender *s, struct sender_stats *ret)
{
    *ret = s->n;
    ret->waiting = outbox_waiting(s->box);
    ret->running = outbox_running(s->box);
    ret->cut_off = outgoing_log_found(s->log);
}
