/* sender.c - design.  (sender.h has the contract.)
 *
 * Three things decide when something leaves: its lane (outbox.h), its record (outgoing_log.h) and
 * the adapter's write().  The record is begun when the order comes, beside the wait for the lane,
 * so that a lane that has waited costs no second wait for the disk.
 *
 * The question after every failure is whether the platform may have acted.  A request that never
 * got through and one the platform put off have not been acted upon; a lost answer may have
 * been.  What must happen only once ends there as "unknown"; anything else is repeated, and
 * remembers (maybe) that it may be there already.  A part that was delivered makes every later
 * failure an "unknown" too, because asking for it all again would repeat that part. */
#include "platform/sender.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/log.h"
#include "base/rand.h"
#include "net/http_client.h"

enum {
    CALL_MS = 15000,
    FIRST_RETRY_MS = 500,
    MAX_RETRY_MS = 8000,
    MAX_REWRITES = 8,
    PATIENCE_MS = 25000,       /* of an action that names no deadline */
    MARGIN_MS = 3000,          /* what can no longer start is told this long before the deadline */
    TYPING_PATIENCE_MS = 5000, /* later than that it tells nobody anything */
};

struct sender {
    struct platform *p;         /* borrowed */
    const struct host_env *env; /* borrowed */
    const char *label;          /* borrowed */
    const struct sender_ops *ops;
    struct outbox *box;       /* owned */
    struct outgoing_log *log; /* owned */
    struct list all;          /* struct outgoing, owned; but for those in @held */
    struct list held;         /* they wait for sender_resume() */
    struct sender_stats n;
};

static http_done_cb on_answer;
static timer_cb on_early;

static int64_t now_ms(const struct sender *s)
{
    return clock_now_ms(s->env->clock);
}

static bool counts(const struct outgoing *o)
{
    return o->is_action && o->op != ACTION_TYPING && o->op != ACTION_GET_CHAT_INFO;
}

/* ---- endings ---- */

static void release(struct outgoing *o)
{
    struct sender *s = o->sender;

    http_cancel(&o->call);
    timer_stop(s->env->clock, &o->early);
    list_remove(&o->link);
    free((char *)o->from.tenant.p);
    s->ops->free(o);
}

static void tell_success(const struct outgoing *o, const struct sender_verdict *v)
{
    host_result(o->sender->p->host, o->id,
                &(struct action_result){.success = true,
                                        .message_id = str_of(o->first_id),
                                        .chat_name = v->chat_name,
                                        .chat_type = v->chat_type});
}

static void tell_failure(const struct outgoing *o, const struct sender_verdict *v)
{
    struct host *host = o->sender->p->host;

    if (o->at > 0)
        host_fail(host, o->id, ACTION_ERROR_UNKNOWN "only %zu of %zu parts were delivered: %s",
                  o->at, o->n_parts, v->why);
    else if (o->maybe && v->end != SENDER_UNKNOWN)
        host_fail(host, o->id, ACTION_ERROR_UNKNOWN "%s; an earlier try may have been delivered",
                  v->why);
    else
        host_fail(host, o->id, "%s%s",
                  v->end == SENDER_UNKNOWN  ? ACTION_ERROR_UNKNOWN
                  : v->end == SENDER_FAILED ? ACTION_ERROR_TRANSIENT
                                            : "",
                  v->why);
}

static void tell(struct outgoing *o, const struct sender_verdict *v)
{
    struct sender *s = o->sender;

    if (o->cancelled)
        return;
    if (!o->is_action)
        s->ops->told(s->p, o, v);
    else if (v->end == SENDER_DONE)
        tell_success(o, v);
    else
        tell_failure(o, v);
}

/* Its answer is known, or it never left. */
static void end(struct outgoing *o, const struct sender_verdict *v)
{
    struct sender *s = o->sender;

    if (counts(o)) {
        s->n.done += v->end == SENDER_DONE;
        s->n.refused += v->end == SENDER_REFUSED;
        s->n.unknown += v->end == SENDER_UNKNOWN;
    }
    tell(o, v);
    outgoing_log_end(&o->record);
    if (o->queued)
        outbox_done(s->box, &o->item);
    release(o);
}

static void end_with(struct outgoing *o, enum sender_end how, const char *why)
{
    struct sender_verdict v = {.end = how};

    snprintf(v.why, sizeof v.why, "%s", why);
    end(o, &v);
}

static void end_late(struct outgoing *o)
{
    end_with(o, o->maybe ? SENDER_UNKNOWN : SENDER_FAILED,
             o->why[0] != '\0' ? o->why : "messages before it took too long");
}

/* ---- one try ---- */

static void put_off(struct outgoing *o, int64_t wait_ms)
{
    int64_t ms = FIRST_RETRY_MS;

    for (unsigned i = 0; i < o->failures && ms < MAX_RETRY_MS; i++)
        ms *= 2;
    o->failures++;
    o->started = false;
    if (wait_ms <= 0)
        wait_ms = ms + (int64_t)rand_below(o->sender->env->rand, (uint64_t)ms / 2);
    outbox_again(o->sender->box, &o->item, wait_ms);
}

static void hold(struct outgoing *o)
{
    list_move(&o->link, &o->sender->held);
}

/* True: there is another part to be written. */
static bool part_done(struct outgoing *o, const struct sender_verdict *v)
{
    if (o->first_id[0] == '\0')
        memcpy(o->first_id, v->message_id, sizeof o->first_id);
    o->failures = o->rewrites = 0;
    o->maybe = false;
    o->why[0] = '\0';
    if (o->at + 1 < o->n_parts) {
        o->at++;
        return true;
    }
    end(o, v);
    return false;
}

/* What follows from a verdict.  True: write() again, now; else @o may be gone. */
static bool decide(struct outgoing *o, const struct sender_verdict *v)
{
    memcpy(o->why, v->why, sizeof o->why);
    switch (v->end) {
    case SENDER_DONE:
        return part_done(o, v);
    case SENDER_AGAIN:
        put_off(o, v->wait_ms);
        return false;
    case SENDER_HOLD:
        hold(o);
        return false;
    case SENDER_REWRITE:
        if (++o->rewrites <= MAX_REWRITES)
            return true;
        end_with(o, SENDER_REFUSED, v->why);
        return false;
    case SENDER_UNKNOWN:
        if (!o->once) {
            o->maybe = true;
            put_off(o, 0);
            return false;
        }
        break;
    default:
        break;
    }
    end(o, v);
    return false;
}

static void fetch(struct outgoing *o, struct sender_request *q)
{
    struct sender *s = o->sender;
    int64_t left_ms = o->item.deadline_ms - now_ms(s);
    int64_t call_ms = q->timeout_ms > 0 ? q->timeout_ms : CALL_MS;
    const char *headers[ARRAY_LEN(q->headers) + 1] = {0};
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(q->headers); i++)
        if (q->headers[i] != NULL)
            headers[n++] = q->headers[i];
    struct http_fetch f = {.method = q->method != NULL ? q->method : "POST",
                           .url = buf_z(&q->url),
                           .headers = headers,
                           .body = q->no_body ? STR_NULL : buf_str(&q->body),
                           .timeout_ms = left_ms + 1000 < call_ms ? left_ms + 1000 : call_ms,
                           .once = q->once};
    s->n.requests++;
    o->once = q->once;
    o->call = http_fetch(s->env->http, &f, on_answer, o);
}

static void request_wipe(struct sender_request *q)
{
    buf_wipe(&q->url);
    buf_wipe(&q->body);
}

static void go(struct outgoing *o)
{
    struct sender *s = o->sender;
    bool more = true;

    while (more) {
        struct sender_request q = {0};
        struct sender_verdict v = {0};
        int64_t pause_ms = outbox_paused_ms(s->box);

        if (o->item.deadline_ms <= now_ms(s)) {
            end_late(o);
            return;
        }
        if (pause_ms > 0) {
            put_off(o, pause_ms);
            return;
        }
        s->ops->write(s->p, o, &q, &v);
        more = v.end != SENDER_GO && decide(o, &v);
        if (v.end == SENDER_GO)
            fetch(o, &q);
        request_wipe(&q);
    }
}

/* No answer came.  What that means does not depend on the platform. */
static void read_silence(const struct outgoing *o, const struct http_result *res,
                         struct sender_verdict *v)
{
    bool reached = res->err != BH_UNAVAILABLE && res->err != BH_REFUSED;

    v->end = reached ? SENDER_UNKNOWN : SENDER_AGAIN;
    snprintf(v->why, sizeof v->why,
             reached ? "%s did not answer; it may have been delivered" : "%s cannot be reached",
             o->sender->label);
    log_debug(NULL, "platform=%s bot=%s %s: %s", o->sender->p->ops->name, o->sender->p->bot, v->why,
              res->why != NULL ? res->why : "");
}

static void on_answer(void *ctx, const struct http_result *res)
{
    struct outgoing *o = ctx;
    struct sender *s = o->sender;
    struct sender_verdict v = {0};

    o->call = NULL;
    if (res->err != BH_OK)
        read_silence(o, res, &v);
    else
        s->ops->read(s->p, o, res, &v);
    assert(v.end != SENDER_GO && v.end != SENDER_HOLD);
    if (decide(o, &v))
        go(o);
}

/* ---- lane and record ---- */

static void on_start(void *ctx, struct outbox_item *it)
{
    struct outgoing *o = container_of(it, struct outgoing, item);

    o->started = true;
    if (o->cancelled)
        end_with(o, SENDER_FAILED, "");
    else if (o->record.put == NULL)
        go(o);
}

static void on_recorded(struct outgoing_record *rec, enum bh_err err)
{
    struct outgoing *o = container_of(rec, struct outgoing, record);

    if (err == BH_OK) {
        if (o->started)
            go(o);
        return;
    }
    snprintf(o->why, sizeof o->why, "bellhop's store cannot be written; nothing was sent");
    o->item.deadline_ms = 0; /* it does not leave */
    if (o->started)
        end_late(o);
}

static void on_drop(void *ctx, struct outbox_item *it, enum outbox_drop why)
{
    struct outgoing *o = container_of(it, struct outgoing, item);
    bool left = o->call != NULL || o->maybe || o->at > 0;

    o->queued = false;
    if (why == OUTBOX_LATE) {
        end_late(o);
        return;
    }
    o->cancelled = o->cancelled || !o->is_action; /* nobody is there to be told */
    if (!left && o->record.log != NULL)
        outgoing_log_change(&o->record,
                            &(struct outgoing_entry){.from = o->from, .op = o->op, .waits = true});
    outgoing_log_leave(&o->record);
    if (left)
        end_with(o, SENDER_UNKNOWN, "bellhop was stopped; it may have been delivered");
    else
        end_with(o, SENDER_FAILED, "bellhop is stopping");
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

    end_with(o, (enum sender_end)o->early_end, o->why);
}

static bool queue(struct outgoing *o, struct str lane, int64_t patience_ms)
{
    char why[96] = "too many messages are waiting already";
    enum bh_err err = outbox_add(o->sender->box, &o->item, lane, patience_ms);

    o->queued = err == BH_OK;
    if (err == BH_UNAVAILABLE)
        snprintf(why, sizeof why, "%.40s asks to wait too long here", o->sender->label);
    if (err != BH_OK)
        fail_early(o, SENDER_FAILED, why);
    return o->queued;
}

static int64_t patience_of(const struct sender *s, const struct action *a)
{
    int64_t ms = a->deadline_ms > 0 ? a->deadline_ms - MARGIN_MS - now_ms(s) : (int64_t)PATIENCE_MS;

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
    else if (q->what.p != NULL && outgoing_log_was_cut_off(s->log, q->what))
        fail_early(o, SENDER_UNKNOWN,
                   "bellhop was restarted while this was being sent; it may have been delivered");
    else if (queue(o, q->lane.p != NULL ? q->lane : e.chat, patience_of(s, q->action)) && counts(o))
        outgoing_log_begin(s->log, &o->record, &e, on_recorded);
}

void sender_ask(struct sender *s, struct outgoing *o, struct str lane, int64_t patience_ms)
{
    start(s, o);
    queue(o, lane, patience_ms);
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
            end_with(o, SENDER_FAILED, why);
        else
            go(o);
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
    free(s);
}

void sender_stats(const struct sender *s, struct sender_stats *ret)
{
    *ret = s->n;
    ret->waiting = outbox_waiting(s->box);
    ret->running = outbox_running(s->box);
    ret->cut_off = outgoing_log_found(s->log);
}
