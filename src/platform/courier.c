/* courier.c - design.  (courier.h has the contract.)
 *
 * A letter is one action.  It holds its place in its lane from the first part to the last; a part
 * that was delivered makes every later failure an "unknown", because sending it all again would
 * repeat that part. */
#include "platform/courier.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "platform/intent.h"
#include "platform/outbox.h"

enum { CALL_MS = 15000, FIRST_RETRY_MS = 500, MAX_RETRY_MS = 8000 };

struct letter {
    struct outbox_item item;
    struct list link;
    struct courier *c; /* borrowed */
    struct action_id id;
    struct intent intent;
    struct http_call *call; /* owned; NULL: none under way */
    struct split parts;     /* owned */
    size_t at;              /* the part under way */
    unsigned failures;
    bool queued, stuck; /* in the outbox; waits for courier_resume() */
    char first_id[128]; /* of the first part, once it is there */
    char why[256];      /* what the last try met */
    char chat[];
};

struct courier {
    struct host *host;          /* borrowed */
    const struct host_env *env; /* borrowed */
    const struct courier_ops *ops;
    void *ctx;               /* borrowed */
    struct outbox *box;      /* owned */
    struct intents *intents; /* owned */
    struct list letters;
    bool closing;
    uint64_t sent, refused, unknown;
};

static http_done_cb on_answer;

/* ---- endings ---- */

static void letter_free(struct letter *l)
{
    http_cancel(&l->call);
    list_remove(&l->link);
    split_done(&l->parts);
    free(l);
}

static void letter_end(struct letter *l)
{
    intent_end(&l->intent);
    if (l->queued)
        outbox_done(l->c->box, &l->item);
    letter_free(l);
}

static void succeed(struct letter *l)
{
    l->c->sent++;
    host_result(l->c->host, l->id,
                &(struct action_result){.success = true, .message_id = str_of(l->first_id)});
    letter_end(l);
}

/* What is told; the letter itself stays. */
static void tell_failure(struct letter *l, const char *prefix, const char *why)
{
    if (l->at > 0)
        host_fail(l->c->host, l->id,
                  ACTION_ERROR_UNKNOWN "only %zu of %zu parts were delivered: %s", l->at,
                  l->parts.n, why);
    else
        host_fail(l->c->host, l->id, "%s%s", prefix, why);
}

static void fail(struct letter *l, const char *prefix, const char *why)
{
    tell_failure(l, prefix, why);
    letter_end(l);
}

/* ---- sending ---- */

static void send_part(struct letter *l)
{
    struct courier *c = l->c;
    struct courier_request q = {0};
    struct str part = split_part(&l->parts, l->at);
    int64_t left_ms = l->item.deadline_ms - clock_now_ms(c->env->clock);

    l->stuck = !c->ops->write(c->ctx, str_of(l->chat), part, &q);
    if (!l->stuck) {
        const char *headers[3] = {q.content_type, q.header.n > 0 ? buf_z(&q.header) : NULL, NULL};
        struct http_fetch f = {.method = "POST",
                               .url = buf_z(&q.url),
                               .headers = headers,
                               .body = buf_str(&q.body),
                               .timeout_ms = left_ms < CALL_MS ? left_ms + 1000 : CALL_MS,
                               .once = true};
        l->call = http_fetch(c->env->http, &f, on_answer, l);
    }
    buf_wipe(&q.url);
    buf_wipe(&q.body);
    buf_wipe(&q.header);
}

static void again(struct letter *l, int64_t wait_ms)
{
    int64_t ms = FIRST_RETRY_MS;

    for (unsigned i = 0; i < l->failures && ms < MAX_RETRY_MS; i++)
        ms *= 2;
    l->failures++;
    outbox_again(l->c->box, &l->item, wait_ms > 0 ? wait_ms : ms);
}

static void on_no_answer(struct letter *l, const struct http_result *res)
{
    snprintf(l->why, sizeof l->why, "the server of %s cannot be reached", l->c->ops->platform);
    if (res->err == BH_UNAVAILABLE) {
        again(l, 0);
        return;
    }
    l->c->unknown++;
    fail(l, ACTION_ERROR_UNKNOWN, "no answer came; it may have been delivered");
}

static void on_ok(struct letter *l, const char *message_id)
{
    if (l->first_id[0] == '\0')
        snprintf(l->first_id, sizeof l->first_id, "%s", message_id);
    l->failures = 0;
    if (++l->at < l->parts.n)
        send_part(l);
    else
        succeed(l);
}

static void on_answer(void *ctx, const struct http_result *res)
{
    struct letter *l = ctx;
    struct courier_answer a = {.end = COURIER_UNKNOWN};

    l->call = NULL;
    if (res->err != BH_OK) {
        on_no_answer(l, res);
        return;
    }
    l->c->ops->read(l->c->ctx, res, &a);
    switch (a.end) {
    case COURIER_OK:
        on_ok(l, a.message_id);
        break;
    case COURIER_AGAIN:
        snprintf(l->why, sizeof l->why, "%s", a.why);
        again(l, a.wait_ms);
        break;
    case COURIER_REFUSED:
        l->c->refused++;
        fail(l, "", a.why);
        break;
    default:
        l->c->unknown++;
        fail(l, ACTION_ERROR_UNKNOWN, a.why);
        break;
    }
}

/* ---- the lane ---- */

static void on_intent(struct intent *it, enum bh_err err)
{
    struct letter *l = container_of(it, struct letter, intent);

    if (err != BH_OK)
        fail(l, ACTION_ERROR_TRANSIENT, "bellhop's store cannot be written; nothing was sent");
    else
        send_part(l);
}

static void on_start(void *ctx, struct outbox_item *it)
{
    struct letter *l = container_of(it, struct letter, item);
    struct buf what = BUF_INIT;

    if (l->intent.all != NULL) { /* it is on disk already */
        send_part(l);
        return;
    }
    buf_printf(&what, "%s ", l->chat);
    for (size_t i = 0; i < l->parts.n; i++)
        buf_add_str(&what, split_part(&l->parts, i));
    if (intents_was_cut_off(l->c->intents, buf_str(&what)))
        fail(l, ACTION_ERROR_UNKNOWN,
             "bellhop was restarted while this was being sent; it may have been delivered");
    else
        intent_begin(l->c->intents, &l->intent, buf_str(&what), on_intent);
    buf_done(&what);
}

static void on_drop(void *ctx, struct outbox_item *it, enum outbox_drop why)
{
    struct letter *l = container_of(it, struct letter, item);

    l->queued = false;
    if (why == OUTBOX_LATE && !l->c->closing) {
        tell_failure(l, ACTION_ERROR_TRANSIENT,
                     l->why[0] != '\0' ? l->why : "messages before it took too long");
        intent_end(&l->intent);
    } else {
        intent_leave(&l->intent);
    }
    letter_free(l);
}

/* ---- life ---- */

enum bh_err courier_new(struct host *host, const char *bot, const struct courier_ops *ops,
                        void *ctx, struct courier **ret_c, char *ret_why)
{
    static const struct outbox_handlers handlers = {.start = on_start, .drop = on_drop};
    struct courier *c = xcalloc(1, sizeof *c);

    *c = (struct courier){.host = host, .env = host_env(host), .ops = ops, .ctx = ctx};
    list_init(&c->letters);
    c->box = outbox_new(c->env->clock, NULL, &handlers, c);
    enum bh_err err =
        intents_open(c->env->store, c->env->clock, ops->platform, bot, &c->intents, ret_why);
    if (err != BH_OK) {
        courier_free(c);
        return err;
    }
    *ret_c = c;
    return BH_OK;
}

void courier_free(struct courier *c)
{
    if (c == NULL)
        return;
    c->closing = true;
    outbox_free(c->box);
    intents_free(c->intents);
    free(c);
}

/* Parts that are neither too long nor, where it counts bytes, too fat. */
static void cut(const struct courier_ops *ops, struct str text, struct split *ret)
{
    for (size_t limit = ops->max_part; limit >= SPLIT_MIN_LIMIT; limit = limit * 3 / 4) {
        bool fits = true;
        split_done(ret);
        split_text(ret, text, limit, ops->unit);
        for (size_t i = 0; i < ret->n && ops->max_bytes > 0; i++)
            fits = fits && split_part(ret, i).n <= ops->max_bytes;
        if (fits)
            return;
    }
}

void courier_send(struct courier *c, struct action_id id, struct str chat, struct str text)
{
    struct letter *l = xcalloc(1, sizeof *l + chat.n + 1);

    l->c = c;
    l->id = id;
    memcpy(l->chat, chat.p, chat.n);
    list_init(&l->link);
    list_append(&c->letters, &l->link);
    cut(c->ops, text, &l->parts);
    if (l->parts.n == 0) {
        fail(l, "", "there is nothing to send: the text is empty");
        return;
    }
    l->queued = outbox_add(c->box, &l->item, chat, OUTBOX_PATIENCE_MS) == BH_OK;
    if (!l->queued)
        fail(l, ACTION_ERROR_TRANSIENT, "too many messages are waiting already");
}

void courier_resume(struct courier *c, const char *why)
{
    list_each (&c->letters, it, nxt) {
        struct letter *l = list_entry(it, struct letter, link);
        if (!l->stuck)
            continue;
        l->stuck = false;
        if (why != NULL)
            fail(l, ACTION_ERROR_TRANSIENT, why);
        else
            send_part(l);
    }
}

void courier_stats(const struct courier *c, struct courier_stats *ret)
{
    *ret = (struct courier_stats){.sent = c->sent,
                                  .refused = c->refused,
                                  .unknown = c->unknown,
                                  .waiting = outbox_waiting(c->box),
                                  .running = outbox_running(c->box),
                                  .cut_off = intents_found(c->intents)};
}
