/* sender.c - design.  (sender.h has the contract, outgoing.h the states, outgoing.c the records,
 * sender_files.c the actions that wait for a file.)
 *
 * Three things decide when a request leaves: its lane (outbox.h), its record, and the adapter's
 * write().  The record is written while the action waits in its lane, so that the disk adds no
 * second wait.
 *
 * After every failure the sender asks whether the platform may have acted.  The platform did not
 * act on a request that never reached it, or that it asked to retry later.  It may have acted when
 * the answer was lost.  Then TRYING_ONCE ends as unknown (or looks for the message, for
 * TWICE_IS_SEEN), and TRYING retries and remembers the lost answer in maybe_ms.
 *
 * Long because every state of an outgoing is here. */
#include "platform/sender.h"
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/caller.h"
#include "media/media.h"
#include "net/http_client.h"
#include "platform/prompts.h"
#include "platform/sender_priv.h"
#include "platform/stream.h"
#include "store/store.h"

#define BLAMED \
    "the platform refused too much of this tenant's within ten minutes; nothing of it is sent " \
    "for a while"

/* ---- timeouts and backoff of each action ---- */

enum {
    MARGIN_MS = 3000, /* the gateway gets its answer this long before its deadline */
    DISK_MS = 100,    /* poll interval for a record that is not on disk yet */
    CALL_MS = 15000,  /* timeout of one request, unless the adapter sets one */
    MAX_REWRITES = 8, /* of one part */
    RETRY_MS = 500,   /* backoff: doubled by every failure of a part, with jitter */
    MAX_RETRY_MS = 8000,
};

/* The answer that the gateway gets when its patience ends. */
enum late_answer {
    LATE_FAILS,  /* a failure: the action is not retried after its gateway stopped waiting */
    LATE_QUEUED, /* "queued"; the action is retried until outbox.max_age */
    LATE_NAMED,  /* as LATE_QUEUED, with the name "queued:<number>" */
};
#define OUTBOX_AGE 0 /* `outbox.max_age` */
static const struct policy {
    bool kept; /* the action has a record and is counted in the stats */
    enum late_answer late;
    int64_t patience_ms; /* of its gateway, unless the action has a deadline */
    int64_t age_ms;      /* maximum age; with LATE_FAILS never longer than the patience */
} policies[] = {
    [ACTION_SEND] = {true, LATE_NAMED, SENDER_PATIENCE_MS, OUTBOX_AGE},
    [ACTION_SEND_MEDIA] = {true, LATE_NAMED, SENDER_PATIENCE_MS, OUTBOX_AGE},
    [ACTION_PROMPT] = {true, LATE_NAMED, SENDER_PATIENCE_MS, OUTBOX_AGE},
    [ACTION_FOLLOW_UP] = {true, LATE_NAMED, SENDER_PATIENCE_MS, OUTBOX_AGE},
    [ACTION_EDIT] = {true, LATE_QUEUED, SENDER_PATIENCE_MS, OUTBOX_AGE},
    [ACTION_THREAD_RENAME] = {true, LATE_QUEUED, SENDER_PATIENCE_MS, OUTBOX_AGE},
    /* A gateway that was told "queued" would never learn the thread's id. */
    [ACTION_THREAD_CREATE] = {true, LATE_FAILS, SENDER_PATIENCE_MS, INT64_MAX},
    [ACTION_REACT] = {false, LATE_FAILS, SENDER_PATIENCE_MS, INT64_MAX},
    [ACTION_GET_CHAT_INFO] = {false, LATE_FAILS, SENDER_PATIENCE_MS, INT64_MAX},
    /* A preview; a final draft is like a send. */
    [ACTION_DRAFT] = {false, LATE_FAILS, 10000, 10000},
    [ACTION_TASK_CARD] = {false, LATE_FAILS, SENDER_PATIENCE_MS, 5000},
    /* A typing indicator is useless when it is late. */
    [ACTION_TYPING] = {false, LATE_FAILS, SENDER_PATIENCE_MS, 5000},
    [ACTION_UNKNOWN] = {false, LATE_FAILS, 0, INT64_MAX}, /* a question: sender_ask() */
};

/* How much longer the gateway waits. */
static int64_t patience_left_ms(const struct outgoing *o)
{
    if (o->stream != NULL && o->op == ACTION_EDIT)
        return streams_patience_ms(o->stream);
    return o->deadline_ms > 0 ? o->deadline_ms - MARGIN_MS - sender_now_ms(o->sender)
                              : policies[o->like].patience_ms;
}

/* How much longer the action is retried. */
static int64_t age_left_ms(const struct outgoing *o)
{
    const struct policy *p = &policies[o->like];
    const struct sender *s = o->sender;
    int64_t most_ms = p->age_ms;

    if (p->late == LATE_FAILS)
        return patience_left_ms(o) < most_ms ? patience_left_ms(o) : most_ms;
    if (most_ms == OUTBOX_AGE)
        most_ms = s->env->outbox_max_age_ms > 0 ? s->env->outbox_max_age_ms : SENDER_MAX_AGE_MS;
    return most_ms - (sender_wall_ms(s) - o->asked_ms);
}

/* ---- states ---- */

#define B(state) (1u << OUTGOING_##state)
#define REQUEST (B(TRYING) | B(TRYING_ONCE) | B(LOOKING))
static const unsigned may_follow[] = {
    [OUTGOING_NEW] = B(FETCHING) | B(WAITING) | B(ENDING),
    [OUTGOING_WAITING] = B(RECORDING),
    [OUTGOING_RECORDING] = B(WAITING) | B(HELD) | REQUEST,
    [OUTGOING_HELD] = B(RECORDING),
    [OUTGOING_TRYING] = B(WAITING) | B(RECORDING),
    [OUTGOING_TRYING_ONCE] = B(WAITING) | B(RECORDING),
    [OUTGOING_LOOKING] = B(WAITING) | B(RECORDING),
    [OUTGOING_SENT] = 0,
};

/* The only place that writes o->state. */
void outgoing_enter(struct outgoing *o, enum outgoing_state next)
{
    assert(may_follow[o->state] & (1u << next));
    o->state = next;
}

/* ---- how an outgoing ends ---- */

void outgoing_release(struct outgoing *o)
{
    struct sender *s = o->sender;

    http_cancel(&o->call);
    if (o->transmitting)
        s->ops->drop(s->p, o);
    timer_stop(s->env->clock, &o->timer);
    list_remove(&o->link);
    free(o->block);
    free(o->edit);
    if (o->owns_ctx)
        free(o->ctx);
    if (o->state == OUTGOING_FETCHING)
        sender_draft_free(o);
    else
        s->ops->free(o);
}

void sender_say(struct sender_verdict *v, enum sender_end end, const char *fmt, ...)
{
    va_list args;

    v->end = end;
    va_start(args, fmt);
    vsnprintf(v->why, sizeof v->why, fmt, args);
    va_end(args);
}

const char *sender_refusal(const struct sender_refusal *all, int64_t code)
{
    while (all->sentence != NULL && all->code != code)
        all++;
    return all->sentence;
}

bool sender_is_loaded(const char *text)
{
    static const char *const words[] = {"network",     "connect",      "timed out", "timeout",
                                        "broken pipe", "disconnected", "eoferror"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcasestr(text, words[i]) != NULL)
            return true;
    return false;
}

static void tell_failure(const struct outgoing *o, const struct sender_verdict *v)
{
    struct host *host = o->sender->p->host;
    bool refused = v->end == SENDER_REFUSED && o->state != OUTGOING_FETCHING;

    if (refused && o->at == 0 && o->maybe_ms == 0 && sender_is_loaded(v->why))
        host_fail(host, o->id, "%s refused this", o->sender->p->ops->label);
    else if (o->at > 0)
        host_fail(host, o->id, ACTION_ERROR_UNKNOWN "only %zu of %zu parts were delivered: %s",
                  o->at, o->n_parts, v->why);
    else if (o->maybe_ms != 0 && v->end != SENDER_UNKNOWN)
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
    struct platform *p = o->sender->p;

    switch (o->waiter) {
    case WAITER_NOBODY:
        break;
    case WAITER_ADAPTER:
        if (o->told != NULL)
            o->told(o->ctx, v);
        break;
    case WAITER_QUEUED: /* operators can read how it ended */
        if (v->end != SENDER_DONE)
            log_warn(&p->log,
                     "a queued message was not delivered: action=%" PRIu64
                     " op=%s unknown=%d reason=%s%s%.*s",
                     o->record.number, action_op_name(o->op), outgoing_is_unsure(o, v->end), v->why,
                     o->from.trace.n > 0 ? " trace=" : "", STR_FMT(o->from.trace));
        break;
    case WAITER_GATEWAY:
        if (v->end == SENDER_DONE)
            host_result(p->host, o->id,
                        &(struct action_result){.success = true,
                                                .message_id = str_of(o->first_id),
                                                .chat_name = v->chat_name,
                                                .chat_type = v->chat_type,
                                                .auto_thread_name = v->auto_thread_name,
                                                .thread_id = v->thread_id[0] != '\0'
                                                                 ? str_of(v->thread_id)
                                                                 : STR_NULL});
        else
            tell_failure(o, v);
        break;
    }
}

static void end(struct outgoing *o, const struct sender_verdict *v)
{
    struct sender *s = o->sender;
    bool wanted = o->waiter != WAITER_NOBODY;

    if (policies[o->like].kept) {
        s->n.done += v->end == SENDER_DONE;
        s->n.refused += v->end == SENDER_REFUSED;
        s->n.unknown += v->end == SENDER_UNKNOWN;
        if (wanted)
            outgoing_note_end(o, v->end, v->why);
    }
    if (o->op == ACTION_PROMPT && s->p->prompts != NULL && v->end == SENDER_DONE)
        prompts_shown(s->p->prompts, &o->from, o->lane, o->prompt, str_of(v->message_id));
    else if (o->op == ACTION_PROMPT && s->p->prompts != NULL && v->end == SENDER_REFUSED)
        prompts_drop(s->p->prompts, &o->from, o->lane, o->prompt);
    tell(o, v);
    if (o->stream != NULL)
        streams_ended(o->stream, o, v);
    else if (o->seals && v->end == SENDER_DONE && action_is_said(&o->from))
        streams_found_sealed(s->streams, o->from.said, str_of(o->first_id)); /* after a restart */
    if (v->end == SENDER_DONE && o->edit != NULL && o->first_id[0] != '\0' && wanted) {
        /* Sends the edit that sender_edit_later() noted for a message that is delivered now. */
        struct action_from from = o->from;
        struct action a = {.op = ACTION_EDIT,
                           .op_name = STR("edit"),
                           .chat_id = o->chat,
                           .message_id = str_of(o->first_id),
                           .content = str_of(o->edit),
                           .content_set = true};
        from.request_id = STR_NULL;
        from.said = (struct hash128){0};
        /* Its stream must know the text: it would put the first one back. */
        if (s->ops->write == NULL || !streams_take(s->streams, ACTION_NOBODY, &from, &a))
            s->p->ops->act(s->p, ACTION_NOBODY, &from, &a);
    }
    outgoing_settle(o, v->end, v->why);
    if (o->item.lane != NULL)
        outbox_done(s->box, &o->item);
    outgoing_release(o);
}

void outgoing_end_with(struct outgoing *o, enum sender_end how, const char *why)
{
    struct sender_verdict v = {0};

    sender_say(&v, how, "%s", why);
    end(o, &v);
}

/* Ends @o at its deadline. */
static void end_late(struct outgoing *o)
{
    outgoing_end_with(o, o->maybe_ms != 0 ? SENDER_UNKNOWN : SENDER_FAILED,
                      o->why[0] != '\0' ? o->why : "messages before it took too long");
}

void outgoing_take_out(struct outgoing *o, const char *why)
{
    if (o->item.lane != NULL)
        outbox_remove(o->sender->box, &o->item);
    o->maybe_ms = 0;
    outgoing_end_with(o, SENDER_REFUSED, why);
}

static void tell_queued(struct outgoing *o)
{
    char name[32];

    snprintf(name, sizeof name, SENDER_QUEUED_PREFIX "%" PRIu64, o->record.number);
    host_result(o->sender->p->host, o->id,
                &(struct action_result){.success = true,
                                        .queued = true,
                                        .message_id = policies[o->like].late == LATE_NAMED
                                                          ? str_of(name)
                                                          : STR_NULL});
    o->waiter = WAITER_QUEUED;
    o->sender->n.queued++;
}

static bool is_in_flight(const struct outgoing *o)
{
    return o->call != NULL || o->transmitting;
}

/* Called when bellhop stops: leaves the record on disk and tells a waiting gateway. */
static void stop(struct outgoing *o)
{
    bool left = is_in_flight(o) || o->maybe_ms != 0;
    struct host *host = o->sender->p->host;

    if (!o->record.durable) {
        if (o->waiter == WAITER_GATEWAY)
            host_fail(host, o->id, ACTION_ERROR_TRANSIENT "bellhop is stopping");
        outgoing_delete(o->sender, o->record.number);
    } else if (left && (o->twice == TWICE_IS_TWO || o->twice == TWICE_IS_SEEN)) {
        /* The record says TRYING, so the next start tells a gateway that misses this. */
        if (o->waiter == WAITER_GATEWAY)
            host_fail(host, o->id,
                      ACTION_ERROR_UNKNOWN "bellhop was stopped; it may have been delivered");
    } else {
        if (o->waiter == WAITER_GATEWAY)
            tell_queued(o);
        if (!left)
            outgoing_note(o, OUTGOING_WAITING, false);
    }
    outgoing_leave_record(o);
    outgoing_release(o);
}

/* ---- one try ---- */

static http_done_cb on_answer;

static void put_off(struct outgoing *o, int64_t wait_ms)
{
    int64_t ms = RETRY_MS;

    for (unsigned i = 0; i < o->failures && ms < MAX_RETRY_MS; i++)
        ms *= 2;
    o->failures++;
    o->waited = true;
    outgoing_enter(o, OUTGOING_WAITING);
    if (wait_ms <= 0)
        wait_ms = ms + (int64_t)rand_below(o->sender->env->rand, (uint64_t)ms / 2);
    if (outgoing_has_record(o) && o->record.state == OUTGOING_TRYING && o->maybe_ms == 0)
        outgoing_note(o, OUTGOING_WAITING, false); /* the platform did not act on it */
    outbox_again(o->sender->box, &o->item, wait_ms);
}

/* Acts on a verdict.  True: the caller calls write() again now.  False: @o may be freed. */
static bool decide(struct outgoing *o, const struct sender_verdict *v)
{
    memcpy(o->why, v->why, sizeof o->why);
    switch (v->end) {
    case SENDER_DONE:
        if (o->first_id[0] == '\0')
            memcpy(o->first_id, v->message_id, sizeof o->first_id);
        o->failures = o->rewrites = o->looks = 0;
        o->maybe_ms = 0;
        o->why[0] = '\0';
        if (o->at + 1 < o->n_parts) {
            o->at++;
            return true;
        }
        break;
    case SENDER_AGAIN:
        put_off(o, v->wait_ms);
        return false;
    case SENDER_HOLD:
        outgoing_enter(o, OUTGOING_HELD);
        o->waited = true;
        list_move(&o->link, &o->sender->held);
        return false;
    case SENDER_REWRITE:
        if (++o->rewrites <= MAX_REWRITES)
            return true;
        outgoing_end_with(o, SENDER_REFUSED, v->why);
        return false;
    case SENDER_UNKNOWN:
        if (o->state == OUTGOING_TRYING_ONCE && o->twice != TWICE_IS_SEEN)
            break;
        if (o->maybe_ms == 0)
            o->maybe_ms = o->try_ms != 0 ? o->try_ms : 1;
        put_off(o, 0);
        return false;
    default:
        break;
    }
    end(o, v);
    return false;
}

/* Sends the request.  False: its file is not on disk any more. */
static bool request(struct outgoing *o, struct sender_request *q)
{
    struct sender *s = o->sender;
    int64_t left_ms = o->item.deadline_ms - sender_now_ms(s);
    int64_t call_ms = q->timeout_ms > 0 ? q->timeout_ms : CALL_MS;
    const char *headers[ARRAY_LEN(q->headers) + 2] = {0};
    char trace[CALLER_TRACE_MAX + 16];
    struct http_file_body file = {.fd = -1,
                                  .size = q->file_bytes,
                                  .before = buf_str(&q->body),
                                  .after = buf_str(&q->after)};
    size_t n = 0;

    if (q->file_path != NULL && s->ops->transmit == NULL) {
        file.fd = open(q->file_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (file.fd < 0)
            return false;
    }
    s->n.requests++;
    o->attempts++;
    o->try_ms = sender_now_ms(s);
    if (s->ops->transmit != NULL) {
        o->transmitting = true;
        s->ops->transmit(s->p, o, q);
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(q->headers); i++)
        if (q->headers[i] != NULL)
            headers[n++] = q->headers[i];
    if (o->from.trace.n > 0 && q->mail == NULL) {
        snprintf(trace, sizeof trace, "traceparent: %.*s", STR_FMT(o->from.trace));
        headers[n++] = trace;
    }
    struct http_fetch f = {.method = q->method != NULL ? q->method : "POST",
                           .url = buf_z(&q->url),
                           .headers = headers,
                           .body = q->no_body ? STR_NULL : buf_str(&q->body),
                           .timeout_ms = left_ms + 1000 < call_ms ? left_ms + 1000 : call_ms,
                           .once = q->once,
                           .public_only = q->public_only,
                           .max_body = q->max_body,
                           .mail = q->mail,
                           .file = q->file_path != NULL ? &file : NULL};
    o->call = http_fetch(s->env->http, &f, on_answer, o);
    if (file.fd >= 0)
        close(file.fd);
    return true;
}

/* The relay asked for the right of an action when it came, and is asked again for what waited or
 * has sent a part.  A follow-up has no chat: its token is asked for.  False: @o waits, or is freed.
 */
static bool may_leave(struct outgoing *o)
{
    struct platform *p = o->sender->p;
    const struct action_place at = {.chat_id = o->chat, .scope_id = o->scope};
    bool own = o->from.tenant.n == 0; /* bellhop's answer to /link */
    bool asks = o->op != ACTION_UNKNOWN && o->op != ACTION_FOLLOW_UP && !own;
    enum gate_sight right = asks ? host_may_act(p->host, p, &o->from, &at) : GATE_SEEN;

    /* Soon after a start the platform may not have said yet who is where. */
    bool young = sender_now_ms(o->sender) - o->sender->opened_ms < SENDER_YOUNG_MS;
    bool waits = right == GATE_SIGHT_ASKED     ? o->failures < SENDER_RIGHT_TRIES
                 : right == GATE_SIGHT_UNKNOWN ? young
                                               : false;

    if (right == GATE_SEEN)
        return true;
    if (waits) /* its lane waits, too: not for long */
        put_off(o, SENDER_RIGHT_MS);
    else
        outgoing_end_with(o, SENDER_REFUSED, HOST_NO_RIGHT);
    return false;
}

/* The platform does not show the part.  Its list may lag, so the lookup is retried.  A list without
 * the message does not prove that the message was lost, so the message is not sent again.  True:
 * the last lookup; @v says unknown. */
static bool is_missing(struct outgoing *o, struct sender_verdict *v)
{
    bool last = ++o->looks >= SENDER_LOOKS;
    char where[256];

    memcpy(where, v->why, sizeof where);
    if (where[0] == '\0')
        snprintf(where, sizeof where, "the list of messages of %s does not show it",
                 o->sender->p->ops->label);
    sender_say(v, last ? SENDER_UNKNOWN : SENDER_AGAIN,
               "no answer came, and %.150s; it may have been delivered", where);
    return last;
}

/* Writes the record of @o if needed, then sends the request of the current part.  Called when the
 * turn of @o has come.  May free @o. */
static void go(struct outgoing *o)
{
    struct sender *s = o->sender;
    bool more = true;

    while (more) {
        struct sender_request q = {0};
        struct sender_verdict v = {0};
        int64_t now_ms = sender_now_ms(s), pause_ms = outbox_paused_ms(s->box);
        bool looks = o->maybe_ms != 0 && o->twice == TWICE_IS_SEEN;
        /* The platform has forgotten the key of a try that may have arrived: no retry. */
        bool key_is_old = o->maybe_ms != 0 && o->twice == TWICE_IS_KEYED &&
                          outgoing_has_record(o) && now_ms - o->maybe_ms >= s->ops->key_ms;

        if (o->item.deadline_ms <= now_ms || key_is_old) {
            end_late(o);
            return;
        }
        if (o->state != OUTGOING_RECORDING)
            outgoing_enter(o, OUTGOING_RECORDING);
        if (pause_ms > 0) {
            put_off(o, pause_ms);
            return;
        }
        if (outbox_is_blamed(s->box, o->blame)) { /* a retry would block the lane for others */
            outgoing_end_with(o, SENDER_FAILED, BLAMED);
            return;
        }
        int64_t wait_ms = s->ops->wait != NULL && !looks ? s->ops->wait(s->p, o) : 0;
        if (wait_ms > 0) {
            put_off(o, wait_ms);
            return;
        }
        if ((o->waited || o->at > 0) && !may_leave(o))
            return;
        if (outgoing_needs_note(o)) {
            outgoing_note(o, OUTGOING_TRYING, true);
            return; /* outgoing_recorded() calls go() again */
        }
        (looks ? s->ops->look : s->ops->write)(s->p, o, &q, &v);
        if (looks && v.end == SENDER_REWRITE)
            o->maybe_ms = 0;
        bool missing = looks && v.end == SENDER_REFUSED && is_missing(o, &v);
        if (missing) {
            end(o, &v);
            more = false;
        } else if (v.end == SENDER_GO && request(o, &q)) {
            outgoing_enter(o, looks    ? OUTGOING_LOOKING
                              : q.once ? OUTGOING_TRYING_ONCE
                                       : OUTGOING_TRYING);
            more = false;
        } else {
            if (v.end == SENDER_GO)
                sender_say(&v, SENDER_REFUSED, "the file is not there any more");
            more = decide(o, &v);
        }
        buf_wipe(&q.url);
        buf_wipe(&q.body);
        buf_wipe(&q.after);
    }
}

void sender_answer(struct outgoing *o, const struct http_result *res)
{
    assert(o->transmitting);
    on_answer(o, res);
}

static void on_answer(void *ctx, const struct http_result *res)
{
    struct outgoing *o = ctx;
    struct sender *s = o->sender;
    struct sender_verdict v = {0};
    bool missing = false;

    o->call = NULL;
    o->transmitting = false;
    v.status = res->err == BH_OK ? res->status : 0;
    if (res->err == BH_REFUSED) { /* by bellhop: a private address, or none at all */
        sender_say(&v, SENDER_REFUSED, "bellhop may not call the address of %s: it is private",
                   s->p->ops->label);
        log_warn(&s->p->log, "%s", res->why != NULL ? res->why : v.why);
    } else if (res->err != BH_OK) { /* no answer means the same on every platform */
        bool reached = res->err != BH_UNAVAILABLE;
        sender_say(&v, reached ? SENDER_UNKNOWN : SENDER_AGAIN, "%s %s", s->p->ops->label,
                   reached ? "did not answer; it may have been delivered" : "cannot be reached");
        log_debug(&s->p->log, "%s: %s", v.why, res->why != NULL ? res->why : "");
    } else if (o->state == OUTGOING_LOOKING) {
        s->ops->looked(s->p, o, res, &v);
        missing = v.end == SENDER_REFUSED && is_missing(o, &v);
    } else {
        s->ops->read(s->p, o, res, &v);
    }
    assert(v.end != SENDER_GO && v.end != SENDER_HOLD);
    if (v.end == SENDER_AGAIN && v.wait_ms <= 0 && res->err == BH_OK)
        v.wait_ms = res->retry_after_ms;
    if (missing)
        end(o, &v);
    else if (decide(o, &v))
        go(o);
}

/* ---- lane and record ---- */

static void on_start(void *ctx, struct outbox_item *it)
{
    struct outgoing *o = container_of(it, struct outgoing, item);

    outgoing_enter(o, OUTGOING_RECORDING);
    if (o->waiter == WAITER_NOBODY)
        outgoing_end_with(o, SENDER_FAILED, "");
    else if (o->record.put == NULL)
        go(o);
}

static void on_drop(void *ctx, struct outbox_item *it, enum outbox_drop why)
{
    struct outgoing *o = container_of(it, struct outgoing, item);

    if (why == OUTBOX_LATE) {
        o->sender->n.expired += outgoing_has_record(o);
        end_late(o);
    } else if (outgoing_has_record(o)) {
        stop(o);
    } else {
        if (o->waiter == WAITER_ADAPTER)
            o->waiter = WAITER_NOBODY;
        outgoing_end_with(o, is_in_flight(o) ? SENDER_UNKNOWN : SENDER_FAILED,
                          "bellhop is stopping");
    }
}

void outgoing_recorded(void *ctx, enum bh_err err)
{
    struct outgoing *o = ctx;

    o->record.put = NULL;
    if (err == BH_OK) {
        o->record.durable = true;
        if (o->state == OUTGOING_RECORDING)
            go(o);
        return;
    }
    o->record.state = OUTGOING_WAITING; /* nothing of this part has left */
    snprintf(o->why, sizeof o->why, "bellhop's store cannot be written; nothing was sent");
    if (!o->record.durable) {
        if (o->item.lane != NULL && !outbox_is_running(&o->item))
            outbox_remove(o->sender->box, &o->item);
        end_late(o);
    } else if (o->state == OUTGOING_RECORDING) {
        put_off(o, 0);
    }
}

static void on_patience(struct timer *t)
{
    struct outgoing *o = container_of(t, struct outgoing, timer);

    if (!o->record.durable) /* "queued" is a promise: wait until the record is on disk */
        timer_set(o->sender->env->clock, &o->timer, DISK_MS);
    else if (o->waiter == WAITER_GATEWAY)
        tell_queued(o);
}

/* ---- orders ---- */

static void on_ending(struct timer *t)
{
    struct outgoing *o = container_of(t, struct outgoing, timer);

    outgoing_end_with(o, (enum sender_end)o->end, o->why);
}

/* Fails @o before it is queued.  A timer tells its owner, because no callback may run inside the
 * call that started @o. */
static void fail_early(struct outgoing *o, enum sender_end how, const char *why)
{
    outgoing_enter(o, OUTGOING_ENDING);
    o->end = (uint8_t)how;
    snprintf(o->why, sizeof o->why, "%s", why);
    timer_set(o->sender->env->clock, &o->timer, 0);
}

void outgoing_start(struct sender *s, struct outgoing *o, const struct sender_order *q)
{
    const struct action_from *f = q->from;
    const struct action *a = q->action;
    BUF_LOCAL action = BUF_INIT, file = BUF_INIT, apart = BUF_INIT;
    struct str lane = q->lane.p != NULL ? q->lane : a->chat_id;

    if (q->apart) {
        buf_printf(&apart, "%s %.*s", action_op_name(a->op), STR_FMT(lane));
        lane = buf_str(&apart);
    }

    o->sender = s;
    o->state = OUTGOING_NEW;
    list_append(&s->all, &o->link);
    timer_init(&o->timer, on_ending);
    o->id = q->id;
    o->op = a->op;
    o->like = a->op == ACTION_DRAFT && a->final ? ACTION_SEND : a->op;
    o->seals = a->draft_id != 0 && a->final;
    o->stream = a->stream;
    if (o->stream != NULL)
        streams_began(o->stream, o);
    o->waiter = WAITER_GATEWAY;
    o->deadline_ms = a->deadline_ms;
    o->asked_ms = sender_wall_ms(o->sender);
    if (policies[o->like].kept)
        outgoing_write_action(a, &action, &file);
    size_t n = f->tenant.n + f->instance.n + f->request_id.n + a->chat_id.n + a->scope_id.n +
               lane.n + action.n + file.n + a->prompt_id.n + f->trace.n;
    char *at = xmalloc(n + 1);
    free(o->block);
    o->block = at;
    o->from = *f;
    o->from.tenant = str_pack(&at, f->tenant);
    o->from.instance = str_pack(&at, f->instance);
    o->from.request_id = str_pack(&at, f->request_id);
    o->from.trace = str_pack(&at, f->trace);
    o->chat = str_pack(&at, a->chat_id);
    o->scope = str_pack(&at, a->scope_id);
    o->lane = str_pack(&at, lane);
    o->action = str_pack(&at, buf_str(&action));
    o->file = str_pack(&at, buf_str(&file));
    o->prompt = str_pack(&at, a->prompt_id);
    o->blame = o->from.tenant;
    o->twice = q->twice;
    o->item.bytes = n + 3 * a->content.n; /* an estimate that includes the adapter's copies */
}

static bool join_lane(struct outgoing *o, struct str lane, int64_t patience)
{
    char why[96] = "too many messages are waiting already";
    enum bh_err err = outbox_add(o->sender->box, &o->item, o->from.tenant, lane, patience);

    if (err == BH_UNAVAILABLE)
        snprintf(why, sizeof why, "%.40s asks to wait too long here", o->sender->p->ops->label);
    if (err != BH_OK)
        fail_early(o, SENDER_FAILED, why);
    else
        outgoing_enter(o, OUTGOING_WAITING);
    return err == BH_OK;
}

/* Why the order cannot be queued; NULL: it can. */
static const char *wrong(const struct outgoing *o, const struct action *a, enum sender_end *ret_how)
{
    const struct outgoing_left *left = a->left;

    *ret_how = SENDER_REFUSED;
    if (o->n_parts == 0)
        return "there is nothing to send: the text is empty";
    if (o->n_parts > SENDER_MAX_PARTS)
        return "the text is too long: it would be more than 16 messages";
    *ret_how = SENDER_UNKNOWN;
    if (left != NULL && (o->at >= o->n_parts || (o->at > 0 && left->e.n_parts != o->n_parts)))
        return "it was cut differently before bellhop was restarted";
    *ret_how = SENDER_FAILED;
    if (left == NULL && outbox_is_blamed(o->sender->box, o->blame))
        return BLAMED;
    if (policies[o->like].kept && age_left_ms(o) <= 0)
        return "it waited too long while bellhop was away";
    return NULL;
}

void sender_act(struct sender *s, struct outgoing *o, const struct sender_order *q)
{
    const struct action *a = q->action;
    const struct action_file *file = a->file;
    enum sender_end how;

    if (q->wrong != NULL) {
        host_fail(s->p->host, q->id, "%s", q->wrong);
        s->ops->free(o);
        return;
    }
    if (a->left == NULL && !list_is_empty(&s->left))
        records_revive(s); /* older actions go first */
    outgoing_start(s, o, q);
    if (a->left != NULL)
        outgoing_take_over(o, a->left);
    const char *why = wrong(o, a, &how);
    if (why != NULL) {
        fail_early(o, how, why);
        return;
    }
    if (!join_lane(o, o->lane, age_left_ms(o)))
        return;
    bool first = outbox_starts_at_once(s->box, &o->item);
    o->waited = a->left != NULL || a->stream != NULL || !first; /* a stream holds its texts back */
    if (!policies[o->like].kept)
        return;
    if (a->left == NULL) {
        bool at_once = o->twice != TWICE_IS_ONE && first &&
                       (s->ops->wait == NULL || s->ops->wait(s->p, o) == 0);
        o->record.number = host_number(s->p->host);
        map_put(&s->by_number, sender_number_key(&o->record.number), o);
        outgoing_note(o, at_once ? OUTGOING_TRYING : OUTGOING_WAITING, true);
    }
    const struct media_file *f =
        file != NULL && s->env->media != NULL ? media_find(s->env->media, file->id) : NULL;
    if (f != NULL)
        media_hold(s->env->media, f, o->from.tenant, o->from.instance,
                   SENDER_FILE_ROW | o->record.number);
    if (policies[o->like].late != LATE_FAILS && q->id.index != ACTION_NOBODY.index) {
        timer_init(&o->timer, on_patience);
        timer_set(s->env->clock, &o->timer, patience_left_ms(o));
    }
}

void sender_ask(struct sender *s, struct outgoing *o, const struct sender_question *q)
{
    char *at = xmalloc(q->tenant.n + q->lane.n + 2);

    o->sender = s;
    list_append(&s->all, &o->link);
    timer_init(&o->timer, on_ending);
    o->op = o->like = ACTION_UNKNOWN;
    o->n_parts = 1;
    o->waiter = WAITER_ADAPTER;
    o->told = q->told;
    o->ctx = q->ctx;
    o->owns_ctx = q->owns_ctx;
    o->block = at;
    o->from.tenant = str_pack(&at, q->tenant.p != NULL ? q->tenant : STR(""));
    o->blame = o->from.tenant;
    if (str_is_empty(q->tenant)) { /* "?" and the lane: no tenant has such a name */
        o->blame = str_make(at, q->lane.n + 1);
        *at++ = '?';
        str_pack(&at, q->lane);
    }
    join_lane(o, q->lane, q->patience_ms > 0 ? q->patience_ms : SENDER_PATIENCE_MS);
}

void sender_cancel(struct outgoing **o)
{
    if (*o != NULL)
        (*o)->waiter = WAITER_NOBODY;
    *o = NULL;
}

uint64_t sender_number(const struct outgoing *o)
{
    return o->record.number;
}

uint64_t sender_key(const struct outgoing *o)
{
    return hash128(&o->sender->env->store->dedup_key, sender_number_key(&o->record.number)).lo;
}

void sender_blame(const struct outgoing *o)
{
    if (!str_is_empty(o->blame))
        outbox_blame(o->sender->box, o->blame);
}

struct pace *sender_budget(struct sender *s)
{
    return streams_pace(s->streams);
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
        list_move(s->held.next, &held); /* go() may put some back into s->held */
    while (!list_is_empty(&held)) {
        struct outgoing *o = list_first(&held, struct outgoing, link);
        list_move(&o->link, &s->all);
        if (why != NULL)
            outgoing_end_with(o, SENDER_FAILED, why);
        else
            go(o);
    }
}

/* ---- actions from the host ---- */

void sender_pass_on(struct sender *s, struct action_id id, const struct action_from *from,
                    const struct action *a)
{
    bool needs_file = a->op == ACTION_SEND_MEDIA && a->file == NULL;

    if (a->stream != NULL && map_count(&s->file_queues) > 0) {
        struct action plain = *a;
        plain.stream = NULL; /* it may wait for a file as a record only */
        if (!sender_files_take(s, id, from, &plain))
            s->p->ops->act(s->p, id, from, a);
    } else if ((!needs_file && map_count(&s->file_queues) == 0) ||
               !sender_files_take(s, id, from, a))
        s->p->ops->act(s->p, id, from, a);
}

void sender_submit(struct sender *s, struct action_id id, const struct action_from *from,
                   const struct action *a)
{
    struct str queued = STR(SENDER_QUEUED_PREFIX);
    char message[128], reply[128];
    struct action with = *a;

    if (!list_is_empty(&s->left))
        records_revive(s); /* older actions go first */
    if (str_starts(a->message_id, queued)) {
        enum sender_named named = sender_named(s, a->message_id, message);
        if (named == SENDER_NAMED_WAITS && a->op == ACTION_EDIT && sender_edit_later(s, a))
            host_result(s->p->host, id, &(struct action_result){.success = true, .queued = true});
        else if (named == SENDER_NAMED_WAITS)
            host_fail(s->p->host, id,
                      a->op == ACTION_EDIT ? "there is no such message to edit"
                                           : "the message is still waiting in bellhop's outbox");
        else if (named == SENDER_NAMED_NONE)
            host_fail(s->p->host, id,
                      "there is no such message: what was queued under this name failed");
        if (named != SENDER_NAMED_SENT)
            return;
        with.message_id = str_of(message);
    }
    if (str_starts(a->reply_to, queued)) /* a reply to an undelivered message quotes nothing */
        with.reply_to =
            sender_named(s, a->reply_to, reply) == SENDER_NAMED_SENT ? str_of(reply) : STR_NULL;
    /* A send belongs to a stream if it ends a draft, or if its text ends with a cursor. */
    size_t n = a->content.n;
    bool cursor = n >= 3 && (unsigned char)a->content.p[n - 3] == 0xe2 &&
                  (unsigned char)a->content.p[n - 2] == 0x96;
    bool streams = s->ops->write != NULL && /* else the platform streams by itself: web/live.c */
                   (a->op == ACTION_EDIT || a->op == ACTION_DRAFT ||
                    (a->op == ACTION_SEND && (cursor || s->n_drafts > 0)));
    if (!streams || !streams_take(s->streams, id, from, &with))
        sender_pass_on(s, id, from, &with);
}

/* ---- life ---- */

enum bh_err sender_new(struct platform *p, char *ret_why)
{
    static const struct outbox_handlers handlers = {.start = on_start, .drop = on_drop};
    static const struct sender_ops no_requests = {0};
    const struct sender_ops *ops = p->ops->sender != NULL ? p->ops->sender : &no_requests;
    struct sender *s = xcalloc(1, sizeof *s);

    *s = (struct sender){.p = p, .env = p->env, .ops = ops};
    s->opened_ms = sender_now_ms(s);
    list_init(&s->all);
    list_init(&s->held);
    const struct outbox_limits limits = {.max_running = ops->max_running};
    s->box = outbox_new(s->env->clock, &limits, &handlers, s);
    s->streams = streams_new(s, ops->stream);
    enum bh_err err = records_open(s, ret_why);
    if (err == BH_OK && (!list_is_empty(&s->left) || s->n.cut_off > 0))
        pace_spent(sender_budget(s));
    if (err != BH_OK)
        sender_free(s);
    else
        p->sender = s;
    return err;
}

void sender_free(struct sender *s)
{
    if (s == NULL)
        return;
    streams_free(s->streams);
    outbox_free(s->box);
    list_each (&s->all, it, nxt) {
        struct outgoing *o = list_entry(it, struct outgoing, link);
        if (o->state == OUTGOING_FETCHING) {
            stop(o);
            continue;
        }
        if (o->waiter == WAITER_ADAPTER)
            o->waiter = WAITER_NOBODY;
        on_ending(&o->timer);
    }
    map_done(&s->file_queues);
    records_close(s);
    s->p->sender = NULL;
    free(s);
}

bool sender_requests(const struct sender *s)
{
    return s->ops->write != NULL;
}

void sender_stats(const struct sender *s, struct sender_stats *ret)
{
    *ret = s->n;
    ret->waiting = outbox_waiting(s->box) + s->n_fetching;
    ret->running = outbox_running(s->box);
    struct streams_stats streams;
    streams_stats(s->streams, &streams);
    ret->merged = streams.merged;
    ret->streaming = streams.open;
    for (const struct list *it = s->all.next; it != &s->all; it = it->next) {
        const struct outgoing *o = list_entry(it, const struct outgoing, link);
        if (!outgoing_has_record(o))
            continue;
        ret->oldest_ms = sender_wall_ms(s) - o->asked_ms; /* about the first that came */
        break;
    }
}
