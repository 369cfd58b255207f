/* sender.c - design.  (sender.h has the contract, sender_try.c the tries, sender_keep.c what is
 * kept of them.)
 *
 * Three things decide when something leaves: its lane (outbox.h), its record (outgoing_log.h)
 * and the adapter's write().  The record is begun when the order comes, beside the wait for the
 * lane, so that a lane that has waited costs no second wait for the disk. */
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "platform/sender_priv.h"
#include "store/store.h"

enum {
    MARGIN_MS = 3000,          /* whoever waits is told this long before the deadline */
    TYPING_PATIENCE_MS = 5000, /* later than that it tells nobody anything */
    DISK_MS = 100,             /* a slow disk is asked again after this */
};

static timer_cb on_early, on_patience;

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

void outgoing_on_recorded(struct outgoing_record *rec, enum bh_err err)
{
    struct outgoing *o = container_of(rec, struct outgoing, record);

    if (err == BH_OK) {
        o->recorded = true;
        if (o->started)
            outgoing_go(o);
        return;
    }
    o->on_disk = OUTGOING_WAITING; /* whatever it says: it has not left */
    snprintf(o->why, sizeof o->why, "bellhop's store cannot be written; nothing was sent");
    if (o->recorded) {
        outgoing_put_off(o, 0); /* asked for before it leaves, so it runs */
        return;
    }
    if (o->queued && !outbox_is_running(&o->item)) {
        outbox_remove(o->sender->box, &o->item);
        o->queued = false;
    }
    outgoing_end_late(o);
}

static void on_drop(void *ctx, struct outbox_item *it, enum outbox_drop why)
{
    struct outgoing *o = container_of(it, struct outgoing, item);

    o->queued = false;
    if (why == OUTBOX_LATE) {
        o->sender->n.expired += o->record.log != NULL;
        outgoing_end_late(o);
        return;
    }
    if (o->record.log != NULL) {
        outgoing_stop(o);
        return;
    }
    o->cancelled = o->cancelled || !o->is_action; /* nobody is there to be told */
    outgoing_end_with(o, o->call != NULL ? SENDER_UNKNOWN : SENDER_FAILED, "bellhop is stopping");
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

/* How long whoever asked waits for the answer. */
static int64_t patience_of(const struct sender *s, const struct action *a)
{
    int64_t ms = a->deadline_ms > 0 ? a->deadline_ms - MARGIN_MS - sender_now_ms(s)
                                    : (int64_t)SENDER_PATIENCE_MS;

    return a->op == ACTION_TYPING && ms > TYPING_PATIENCE_MS ? TYPING_PATIENCE_MS : ms;
}

/* How long it is tried.  A thread that nobody can name any more is of no use. */
static int64_t age_left(const struct outgoing *o, const struct action *a)
{
    const struct sender *s = o->sender;
    int64_t most = s->env->outbox_max_age_ms > 0 ? s->env->outbox_max_age_ms : SENDER_MAX_AGE_MS;

    if (!outgoing_counts(o) || o->op == ACTION_THREAD_CREATE)
        return patience_of(s, a);
    return most - (sender_wall_ms(s) - o->asked_ms);
}

static struct str copy_to(char **at, struct str s)
{
    char *p = *at;

    if (s.p == NULL)
        return s;
    memcpy(p, s.p, s.n);
    *at += s.n;
    return str_make(p, s.n);
}

/* Who asked, for what, and what makes it the same as another. */
static void set_order(struct outgoing *o, const struct sender_order *q)
{
    const struct action_from *f = q->from;
    struct buf action = BUF_INIT, file = BUF_INIT;
    char hash[OUTGOING_HASH_CHARS + 1] = "";
    struct str lane = q->lane.p != NULL ? q->lane : q->action->chat_id;

    if (outgoing_counts(o))
        outgoing_entry_action(q->action, &action, &file);
    if (q->what.p != NULL)
        outgoing_log_hash(o->sender->log, q->what, hash);
    size_t n = f->tenant.n + f->instance.n + f->request_id.n + q->action->chat_id.n + lane.n +
               sizeof hash + action.n + file.n;
    char *at = xmalloc(n + 1);
    free(o->block);
    o->block = at;
    o->from = (struct action_from){.tenant = copy_to(&at, f->tenant),
                                   .instance = copy_to(&at, f->instance),
                                   .request_id = copy_to(&at, f->request_id),
                                   .life = f->life};
    o->chat = copy_to(&at, q->action->chat_id);
    o->lane = copy_to(&at, lane);
    o->hash = copy_to(&at, q->what.p != NULL ? str_of(hash) : STR_NULL);
    o->action = copy_to(&at, buf_str(&action));
    o->file = copy_to(&at, buf_str(&file));
    o->blame = o->from.tenant;
    o->twice = (uint8_t)q->twice;
    o->item.bytes = n + 3 * q->action->content.n; /* with what the adapter keeps */
    buf_done(&action);
    buf_done(&file);
}

/* Why it cannot even begin: true when it cannot. */
static bool fails_early(struct outgoing *o, const struct sender_order *q)
{
    struct sender *s = o->sender;
    bool fresh = q->action->left == NULL;

    if (o->n_parts == 0)
        fail_early(o, SENDER_REFUSED, "there is nothing to send: the text is empty");
    else if (o->n_parts > SENDER_MAX_PARTS)
        fail_early(o, SENDER_REFUSED, "the text is too long: it would be more than 16 messages");
    else if (!fresh &&
             (o->at >= o->n_parts || (o->at > 0 && q->action->left->e.n_parts != o->n_parts)))
        fail_early(o, SENDER_UNKNOWN, "it was cut differently before bellhop was restarted");
    else if (fresh && outgoing_is_blamed(o))
        fail_early(o, SENDER_FAILED, SENDER_BLAMED);
    else if (fresh && q->what.p != NULL && sender_was_cut_off(s, q->what))
        fail_early(o, SENDER_UNKNOWN,
                   "bellhop was restarted while this was being sent; it may have been delivered");
    else if (age_left(o, q->action) <= 0 && outgoing_counts(o))
        fail_early(o, SENDER_FAILED, "it waited too long while bellhop was away");
    else
        return false;
    return true;
}

/* It is in its lane: on disk, and its gateway waits. */
static void begin_record(struct outgoing *o, const struct sender_order *q)
{
    struct sender *s = o->sender;

    if (q->action->left == NULL) {
        bool at_once = o->twice != TWICE_IS_ONE && outbox_starts_at_once(s->box, &o->item);
        o->record.number = host_number(s->p->host);
        outgoing_note(o, at_once ? OUTGOING_TRYING : OUTGOING_WAITING, true);
    }
    map_put(&s->by_number, sender_number_key(&o->record.number), o);
    if (o->op == ACTION_THREAD_CREATE)
        return;
    timer_init(&o->early, on_patience);
    timer_set(s->env->clock, &o->early, patience_of(s, q->action));
}

/* It goes on since the last start, and its gateway, which lost its socket meanwhile, says it again:
 * it is the same message, and its answer goes to whoever asks now. */
static bool is_revived(struct outgoing *o)
{
    struct sender *s = o->sender;
    struct outgoing *old = o->hash.n > 0 ? map_get(&s->revived, o->hash) : NULL;

    if (old == NULL || old->answered || !str_eq(old->from.tenant, o->from.tenant) ||
        !str_eq(old->from.instance, o->from.instance))
        return false;
    map_del(&s->revived, o->hash); /* once: a third time is meant */
    old->id = o->id;
    o->cancelled = true;
    fail_early(o, SENDER_FAILED, "");
    return true;
}

void sender_act(struct sender *s, struct outgoing *o, const struct sender_order *q)
{
    if (q->action->left == NULL && !list_is_empty(&s->left))
        sender_revive(s); /* what was asked for earlier comes first */
    start(s, o);
    o->is_action = true;
    o->id = q->id;
    o->op = q->action->op;
    o->asked_ms = sender_wall_ms(s);
    set_order(o, q);
    if (q->action->left != NULL)
        outgoing_take_over(o, q->action->left);
    if (q->action->left == NULL && is_revived(o))
        return;
    if (!fails_early(o, q) && queue(o, q->from->tenant, o->lane, age_left(o, q->action)) &&
        outgoing_counts(o))
        begin_record(o, q);
}

static void on_patience(struct timer *t)
{
    struct outgoing *o = container_of(t, struct outgoing, early);

    if (!o->recorded) /* nothing is promised before it is on disk */
        timer_set(o->sender->env->clock, &o->early, DISK_MS);
    else if (!o->answered && !o->cancelled)
        outgoing_tell_queued(o);
}

uint64_t sender_key(const struct outgoing *o)
{
    return hash128(&o->sender->env->store->dedup_key, sender_number_key(&o->record.number)).lo;
}

void sender_ask(struct sender *s, struct outgoing *o, struct str tenant, struct str lane,
                int64_t patience_ms)
{
    char *at = xmalloc(tenant.n + lane.n + 2);

    start(s, o);
    o->block = at;
    o->from.tenant = copy_to(&at, tenant.p != NULL ? tenant : STR(""));
    o->blame = o->from.tenant;
    if (str_is_empty(tenant)) { /* no tenant is called like that */
        o->blame = str_make(at, lane.n + 1);
        *at++ = '?';
        copy_to(&at, lane);
    }
    queue(o, o->from.tenant, lane, patience_ms);
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
    if (!o->answered)
        host_result(o->sender->p->host, o->id,
                    &(struct action_result){.success = true, .message_id = q->action->message_id});
    o->id = q->id;
    o->answered = false;
    set_order(o, q);
    if (o->record.log == NULL)
        return;
    o->asked_ms = sender_wall_ms(o->sender);
    outgoing_note(o, (enum outgoing_state)o->on_disk, true);
    timer_set(o->sender->env->clock, &o->early, patience_of(o->sender, q->action));
}

void sender_blame(const struct outgoing *o)
{
    if (!str_is_empty(o->blame))
        blame_note(&o->sender->blame, o->blame, sender_now_ms(o->sender));
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

enum bh_err sender_new(struct platform *p, const char *label, const struct sender_ops *ops,
                       struct sender **ret_s, char *ret_why)
{
    static const struct outbox_handlers handlers = {.start = on_start, .drop = on_drop};
    struct sender *s = xcalloc(1, sizeof *s);

    *s = (struct sender){.p = p, .env = host_env(p->host), .label = label, .ops = ops};
    list_init(&s->all);
    list_init(&s->held);
    blame_init(&s->blame);
    sender_keep_init(s);
    s->box = outbox_new(s->env->clock, NULL, &handlers, s);
    enum bh_err err = outgoing_log_open(s->env->store, s->env->clock, p->ops->name, p->bot,
                                        sender_on_found, s, &s->log, ret_why);
    if (err != BH_OK) {
        sender_free(s);
        return err;
    }
    if (s->n.cut_off > 0)
        log_warn(NULL, "platform=%s bot=%s this was being sent when bellhop stopped: unknown=%zu",
                 p->ops->name, p->bot, s->n.cut_off);
    p->sender = s;
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
    sender_keep_done(s);
    outgoing_log_close(s->log);
    blame_done(&s->blame);
    s->p->sender = NULL;
    free(s);
}

void sender_stats(const struct sender *s, struct sender_stats *ret)
{
    *ret = s->n;
    ret->waiting = outbox_waiting(s->box);
    ret->running = outbox_running(s->box);
    for (const struct list *it = s->all.next; it != &s->all; it = it->next) {
        const struct outgoing *o = list_entry(it, const struct outgoing, link);
        if (o->record.log == NULL)
            continue;
        ret->oldest_ms = sender_wall_ms(s) - o->asked_ms; /* in order of asking: the first */
        break;
    }
}
