/* sender_try.c - one thing on its way: its tries, and how they end.  (sender.h has the contract.)
 *
 * The question after every failure is whether the platform may have acted.  A request that never
 * got through and one the platform put off have not been acted upon; a lost answer may have
 * been.  What must happen only once ends there as "unknown"; anything else is repeated, and
 * remembers (maybe) that it may be there already.  What the platform can show is looked for before
 * that is said.  A part that was delivered makes every later
 * failure an "unknown" too, because asking for it all again would repeat that part. */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/log.h"
#include "base/rand.h"
#include "net/http_client.h"
#include "platform/sender_priv.h"

enum { CALL_MS = 15000, FIRST_RETRY_MS = 500, MAX_RETRY_MS = 8000, MAX_REWRITES = 8 };

static http_done_cb on_answer;

/* ---- endings ---- */

void outgoing_release(struct outgoing *o)
{
    struct sender *s = o->sender;

    http_cancel(&o->call);
    timer_stop(s->env->clock, &o->early);
    list_remove(&o->link);
    free(o->block);
    free(o->edit);
    s->ops->free(o);
}

static void tell_success(const struct outgoing *o, const struct sender_verdict *v)
{
    host_result(o->sender->p->host, o->id,
                &(struct action_result){.success = true,
                                        .message_id = str_of(o->first_id),
                                        .chat_name = v->chat_name,
                                        .chat_type = v->chat_type,
                                        .auto_thread_name = v->auto_thread_name,
                                        .thread_id = v->thread_id[0] != '\0' ? str_of(v->thread_id)
                                                                             : STR_NULL});
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

    if (v->end == SENDER_REFUSED && o->at == 0 && !o->maybe && sender_is_loaded(v->why))
        host_fail(host, o->id, "%s refused this", o->sender->label);
    else if (o->at > 0)
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

/* Nobody waits for it any more: operators can read how it ended. */
static void log_end(const struct outgoing *o, const struct sender_verdict *v)
{
    if (v->end != SENDER_DONE)
        log_warn(NULL,
                 "platform=%s bot=%s a queued message was not delivered: id=%" PRIu64
                 " op=%s unknown=%d reason=%s",
                 o->sender->p->ops->name, o->sender->p->bot, o->record.number,
                 action_op_name(o->op), outgoing_is_unsure(o, v->end), v->why);
}

static void note_end(const struct outgoing *o, const struct sender_verdict *v)
{
    struct platform *p = o->sender->p;

    host_ended(p->host, &(struct host_end){.p = p,
                                           .from = &o->from,
                                           .op = o->op,
                                           .chat = o->chat,
                                           .number = o->record.number,
                                           .message_id = str_of(o->first_id),
                                           .why = v->end == SENDER_DONE ? "" : v->why,
                                           .how = v->end == SENDER_DONE           ? "done"
                                                  : outgoing_is_unsure(o, v->end) ? "unknown"
                                                  : v->end == SENDER_REFUSED      ? "refused"
                                                                                  : "failed",
                                           .asked_ms = o->asked_ms,
                                           .attempts = o->attempts,
                                           .queued = o->answered});
}

static void tell(struct outgoing *o, const struct sender_verdict *v)
{
    struct sender *s = o->sender;

    if (o->cancelled)
        return;
    if (o->answered) {
        log_end(o, v);
        return;
    }
    if (!o->is_action)
        s->ops->told(s->p, o, v);
    else if (v->end == SENDER_DONE)
        tell_success(o, v);
    else
        tell_failure(o, v);
}

/* What was sent is to have another text by now. */
static void edit_sent(const struct outgoing *o)
{
    struct platform *p = o->sender->p;
    struct action_from from = o->from;
    struct action a = {.op = ACTION_EDIT,
                       .op_name = STR("edit"),
                       .chat_id = o->chat,
                       .message_id = str_of(o->first_id),
                       .content = str_of(o->edit),
                       .content_set = true};

    from.request_id = STR_NULL;
    p->ops->act(p, ACTION_NOBODY, &from, &a);
}

/* Its answer is known, or it never left. */
void outgoing_end(struct outgoing *o, const struct sender_verdict *v)
{
    struct sender *s = o->sender;

    if (outgoing_counts(o)) {
        s->n.done += v->end == SENDER_DONE;
        s->n.refused += v->end == SENDER_REFUSED;
        s->n.unknown += v->end == SENDER_UNKNOWN;
        if (!o->cancelled)
            note_end(o, v);
    }
    tell(o, v);
    if (v->end == SENDER_DONE && o->edit != NULL && o->first_id[0] != '\0' && !o->cancelled)
        edit_sent(o);
    outgoing_settle(o, v);
    if (o->queued)
        outbox_done(s->box, &o->item);
    outgoing_release(o);
}

void outgoing_end_with(struct outgoing *o, enum sender_end how, const char *why)
{
    struct sender_verdict v = {.end = how};

    snprintf(v.why, sizeof v.why, "%s", why);
    outgoing_end(o, &v);
}

void outgoing_end_late(struct outgoing *o)
{
    outgoing_end_with(o, o->maybe ? SENDER_UNKNOWN : SENDER_FAILED,
                      o->why[0] != '\0' ? o->why : "messages before it took too long");
}

/* ---- one try ---- */

void outgoing_put_off(struct outgoing *o, int64_t wait_ms)
{
    int64_t ms = FIRST_RETRY_MS;

    for (unsigned i = 0; i < o->failures && ms < MAX_RETRY_MS; i++)
        ms *= 2;
    o->failures++;
    o->started = false;
    if (wait_ms <= 0)
        wait_ms = ms + (int64_t)rand_below(o->sender->env->rand, (uint64_t)ms / 2);
    if (o->record.log != NULL && o->on_disk == OUTGOING_TRYING && !o->maybe)
        outgoing_note(o, OUTGOING_WAITING, false); /* it has not left: a crash may find it so */
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
    o->failures = o->rewrites = o->looks = 0;
    o->maybe = false;
    o->why[0] = '\0';
    if (o->at + 1 < o->n_parts) {
        o->at++;
        return true;
    }
    outgoing_end(o, v);
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
        outgoing_put_off(o, v->wait_ms);
        return false;
    case SENDER_HOLD:
        hold(o);
        return false;
    case SENDER_REWRITE:
        if (++o->rewrites <= MAX_REWRITES)
            return true;
        outgoing_end_with(o, SENDER_REFUSED, v->why);
        return false;
    case SENDER_UNKNOWN:
        if (!o->once || o->twice == TWICE_IS_SEEN) {
            if (!o->maybe)
                o->maybe_ms = o->try_ms;
            o->maybe = true;
            outgoing_put_off(o, 0);
            return false;
        }
        break;
    default:
        break;
    }
    outgoing_end(o, v);
    return false;
}

/* The file was there when it was asked for; looking it up again is a matter of the cache. */
static bool open_file(const struct sender_request *q, struct http_file_body *ret)
{
    *ret = (struct http_file_body){.fd = open(q->file_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW),
                                   .size = q->file_bytes,
                                   .before = buf_str(&q->body),
                                   .after = buf_str(&q->after)};
    return ret->fd >= 0;
}

/* False: there is nothing to send any more. */
static bool fetch(struct outgoing *o, struct sender_request *q)
{
    struct sender *s = o->sender;
    int64_t left_ms = o->item.deadline_ms - sender_now_ms(s);
    int64_t call_ms = q->timeout_ms > 0 ? q->timeout_ms : CALL_MS;
    const char *headers[ARRAY_LEN(q->headers) + 1] = {0};
    struct http_file_body file = {.fd = -1};
    size_t n = 0;

    if (q->file_path != NULL && !open_file(q, &file))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(q->headers); i++)
        if (q->headers[i] != NULL)
            headers[n++] = q->headers[i];
    struct http_fetch f = {.method = q->method != NULL ? q->method : "POST",
                           .url = buf_z(&q->url),
                           .headers = headers,
                           .body = q->no_body ? STR_NULL : buf_str(&q->body),
                           .timeout_ms = left_ms + 1000 < call_ms ? left_ms + 1000 : call_ms,
                           .once = q->once,
                           .file = q->file_path != NULL ? &file : NULL};
    s->n.requests++;
    o->attempts++;
    o->try_ms = sender_now_ms(s);
    o->once = q->once;
    o->call = http_fetch(s->env->http, &f, on_answer, o);
    if (file.fd >= 0)
        close(file.fd);
    return true;
}

static void request_wipe(struct sender_request *q)
{
    buf_wipe(&q->url);
    buf_wipe(&q->body);
    buf_wipe(&q->after);
}

/* It may be there already, and the platform no longer knows its key: again would be twice. */
static bool key_is_old(const struct outgoing *o)
{
    return o->maybe && o->twice == TWICE_IS_KEYED && o->record.log != NULL &&
           sender_now_ms(o->sender) - o->maybe_ms >= o->sender->ops->key_ms;
}

void outgoing_go(struct outgoing *o)
{
    struct sender *s = o->sender;
    bool more = true;

    while (more) {
        struct sender_request q = {0};
        struct sender_verdict v = {0};
        int64_t pause_ms = outbox_paused_ms(s->box);

        if (o->item.deadline_ms <= sender_now_ms(s) || key_is_old(o)) {
            outgoing_end_late(o);
            return;
        }
        if (pause_ms > 0) {
            outgoing_put_off(o, pause_ms);
            return;
        }
        if (outgoing_is_blamed(o)) { /* not put off: others speak in this chat too */
            outgoing_end_with(o, SENDER_FAILED, SENDER_BLAMED);
            return;
        }
        if (outgoing_needs_note(o)) {
            outgoing_note(o, OUTGOING_TRYING, true);
            return; /* outgoing_on_recorded() goes on */
        }
        o->looking = o->maybe && o->twice == TWICE_IS_SEEN;
        (o->looking ? s->ops->look : s->ops->write)(s->p, o, &q, &v);
        more = v.end != SENDER_GO && decide(o, &v);
        if (v.end == SENDER_GO && !fetch(o, &q)) {
            v = (struct sender_verdict){.end = SENDER_REFUSED};
            snprintf(v.why, sizeof v.why, "the file is not there any more");
            more = decide(o, &v);
        }
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

/* The platform was asked whether it has this part.  Its list may be behind, so it is asked again;
 * that it shows nothing is no proof, and nothing is repeated because of it. */
static void read_look(struct outgoing *o, const struct http_result *res, struct sender_verdict *v)
{
    struct sender *s = o->sender;

    s->ops->looked(s->p, o, res, v);
    if (v->end != SENDER_REFUSED)
        return;
    v->end = ++o->looks < SENDER_LOOKS ? SENDER_AGAIN : SENDER_UNKNOWN;
    snprintf(v->why, sizeof v->why,
             "no answer came, and the list of messages of %s does not show it; it may have been "
             "delivered",
             s->label);
}

static void read_answer(struct outgoing *o, const struct http_result *res, struct sender_verdict *v)
{
    o->sender->ops->read(o->sender->p, o, res, v);
}

static void on_answer(void *ctx, const struct http_result *res)
{
    struct outgoing *o = ctx;
    struct sender_verdict v = {0};

    o->call = NULL;
    if (res->err != BH_OK)
        read_silence(o, res, &v);
    else
        (o->looking ? read_look : read_answer)(o, res, &v);
    assert(v.end != SENDER_GO && v.end != SENDER_HOLD);
    if (v.end == SENDER_AGAIN && v.wait_ms <= 0 && res->err == BH_OK)
        v.wait_ms = res->retry_after_ms;
    if (o->looks >= SENDER_LOOKS)
        outgoing_end(o, &v);
    else if (decide(o, &v))
        outgoing_go(o);
}
