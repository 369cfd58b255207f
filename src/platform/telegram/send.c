/* send.c - design.  (req.h has the contract.)
 *
 * Sends and edits of one chat go through one lane of the outbox, one after the other, also while
 * the chat is limited; other chats go on.  A long text is several messages of one request: the lane
 * is held until the last of them is out, so nothing comes between them.
 *
 *      act -> lane -> intent on disk -> request -> answer
 *                          ^   (429, 5xx, not reached: back to the lane, start() again later)
 *                          '-- next part, plain text after a refusal, new id after a move: at once
 *
 * Only sends have an intent: an edit or a typing sign may happen twice.  Typing and getChat need no
 * order and stay out of the lanes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/telegram/req.h"

#define CALL_MS 15000
#define MAX_BROKEN 3 /* answers of 5xx before we give up */

static http_done_cb on_answer;

struct tg_req *tg_req_new(struct telegram *t, struct action_id id, const struct action *a)
{
    struct tg_req *q = xcalloc(1, sizeof *q);

    q->t = t;
    q->id = id;
    q->op = a->op;
    memcpy(q->chat, a->chat_id.p, a->chat_id.n);
    list_init(&q->link);
    list_append(&t->reqs, &q->link);
    return q;
}

static void req_free(struct tg_req *q)
{
    http_cancel(&q->call);
    list_remove(&q->link);
    md_done(&q->md);
    free(q);
}

/* The answer is known, or it was never sent. */
static void req_end(struct tg_req *q)
{
    intent_end(&q->intent);
    if (q->queued)
        outbox_done(q->t->outbox, &q->item);
    req_free(q);
}

void tg_req_succeed(struct tg_req *q, int64_t message_id)
{
    char text[24];
    struct action_result r = {.success = true};

    if (message_id != 0)
        r.message_id = str_make(text, (size_t)snprintf(text, sizeof text, "%" PRId64, message_id));
    host_result(q->t->base.host, q->id, &r);
    req_end(q);
}

void tg_req_fail(struct tg_req *q, const char *prefix, const char *words)
{
    if (q->n_sent > 0)
        host_fail(q->t->base.host, q->id,
                  ACTION_ERROR_UNKNOWN "only the first %u parts were delivered: %s", q->n_sent,
                  words);
    else
        host_fail(q->t->base.host, q->id, "%s%s", prefix, words);
    req_end(q);
}

/* ---- what is asked of Telegram ---- */

struct str tg_req_chat(const struct tg_req *q)
{
    return tg_chat_now(q->t, str_of(q->chat));
}

static void write_chat(struct jw *w, const struct tg_req *q)
{
    struct str chat = tg_req_chat(q);
    int64_t number;

    jw_key(w, "chat_id");
    if (str_to_i64(chat, &number))
        jw_i64(w, number);
    else
        jw_str(w, chat); /* "@channel" */
    if (q->thread != 0)
        jw_ki64(w, "message_thread_id", q->thread);
}

static void write_reply(struct jw *w, const struct tg_req *q)
{
    if (q->reply_to == 0 || q->n_sent > 0)
        return;
    jw_key(w, "reply_parameters");
    jw_obj(w);
    jw_ki64(w, "message_id", q->reply_to);
    jw_kbool(w, "allow_sending_without_reply", true);
    jw_end_obj(w);
}

static const char *write_body(struct buf *body, const struct tg_req *q)
{
    struct jw w = jw_begin(body);
    const char *method = "sendMessage";

    jw_obj(&w);
    write_chat(&w, q);
    switch (q->op) {
    case ACTION_EDIT:
        method = "editMessageText";
        jw_ki64(&w, "message_id", q->message_id);
        break;
    case ACTION_TYPING:
        method = "sendChatAction";
        jw_kstr(&w, "action", STR("typing"));
        break;
    case ACTION_GET_CHAT_INFO:
        method = "getChat";
        break;
    default:
        write_reply(&w, q);
        break;
    }
    if (q->op == ACTION_SEND || q->op == ACTION_EDIT)
        md_write(&w, &q->md, &q->part, !q->plain);
    jw_end_obj(&w);
    return method;
}

void tg_req_call(struct tg_req *q)
{
    struct buf body = BUF_INIT;
    const char *method = write_body(&body, q);

    q->call = tg_call(q->t, method, buf_str(&body), CALL_MS, q->op == ACTION_SEND, on_answer, q);
    buf_done(&body);
}

/* ---- what Telegram answers ---- */

static void later(struct tg_req *q, int64_t ms)
{
    if (!q->queued) { /* nothing waits for a typing sign */
        tg_req_fail(q, ACTION_ERROR_TRANSIENT, q->why);
        return;
    }
    q->waiting = true;
    outbox_again(q->t->outbox, &q->item, ms);
}

static void say_wait(struct tg_req *q, int64_t ms)
{
    snprintf(q->why, sizeof q->why, "Telegram asks to wait %" PRId64 " s in this chat",
             (ms + 999) / 1000);
}

static void on_limit(struct tg_req *q, const struct tg_answer *a)
{
    struct telegram *t = q->t;

    t->n.limited++;
    tg_chat_limit(t, tg_req_chat(q), a->retry_after_ms);
    int64_t all_ms = tg_limit_of_all(t);
    if (all_ms > 0)
        outbox_pause(t->outbox, all_ms);
    log_warn(&t->log, "limited: retry_after_ms=%" PRId64 " whole_bot=%d", a->retry_after_ms,
             all_ms > 0);
    say_wait(q, a->retry_after_ms);
    later(q, a->retry_after_ms);
}

static int64_t pause_ms(unsigned tries)
{
    return (int64_t)500 << (tries < 4 ? tries : 4);
}

static void on_refusal(struct tg_req *q, const struct tg_answer *a)
{
    const char *sentence = tg_refusal(a->code, a->why);
    char text[300];

    if (q->op == ACTION_EDIT && strstr(a->why, "message is not modified") != NULL) {
        tg_req_succeed(q, q->message_id);
        return;
    }
    if (!q->plain && tg_refuses_entities(a)) {
        q->t->n.plain++;
        log_warn(&q->t->log, "Telegram refused entities, sending plain text: %s", a->why);
        q->plain = true;
        tg_req_call(q);
        return;
    }
    q->t->n.refused++;
    snprintf(text, sizeof text, "Telegram refused: %s", sentence != NULL ? sentence : a->why);
    tg_req_fail(q, "", text);
}

static void follow_move(struct tg_req *q, int64_t to)
{
    char id[24];

    snprintf(id, sizeof id, "%" PRId64, to);
    tg_chat_moved(q->t, tg_req_chat(q), str_of(id));
    q->moves++;
    q->thread = q->reply_to = 0; /* ids of the old group mean nothing in the new one */
    tg_req_call(q);
}

static void on_info(struct tg_req *q, struct json chat)
{
    struct str type = json_str(chat, "type"), name = json_str(chat, "title");
    struct buf person = BUF_INIT;
    struct action_result r = {.success = true, .chat_type = STR("group"), .chat_name = name};

    if (str_eq(type, STR("private"))) {
        struct str last = json_str(chat, "last_name");
        buf_add_str(&person, json_str(chat, "first_name"));
        buf_printf(&person, "%s%.*s", last.n > 0 ? " " : "", STR_FMT(last));
        r.chat_name = buf_str(&person);
        r.chat_type = STR("dm");
    } else if (str_eq(type, STR("channel"))) {
        r.chat_type = STR("channel");
    } else if (json_as_bool(json_get(chat, "is_forum"), false)) {
        r.chat_type = STR("forum");
    }
    if (r.chat_name.n == 0)
        r.chat_name = str_of(q->chat);
    host_result(q->t->base.host, q->id, &r);
    buf_done(&person);
    req_end(q);
}

static void on_ok(struct tg_req *q, struct json result)
{
    int64_t id = 0;

    switch (q->op) {
    case ACTION_GET_CHAT_INFO:
        on_info(q, result);
        return;
    case ACTION_EDIT:
        q->t->n.edits++;
        tg_req_succeed(q, q->message_id);
        return;
    case ACTION_TYPING:
        tg_req_succeed(q, 0);
        return;
    default:
        break;
    }
    json_as_i64(json_get(result, "message_id"), &id);
    q->t->n.sent++;
    if (q->n_sent++ == 0)
        q->first_id = id;
    q->plain = false;
    if (md_next(&q->md, TG_LIMIT, &q->part))
        tg_req_call(q);
    else
        tg_req_succeed(q, q->first_id);
}

static void on_answer(void *ctx, const struct http_result *r)
{
    struct tg_req *q = ctx;
    struct tg_answer a;

    q->call = NULL;
    tg_answer_read(q->t, q->t->answers, r, &a);
    snprintf(q->why, sizeof q->why, "%.150s", a.why);
    switch (a.outcome) {
    case TG_OK:
        on_ok(q, a.result);
        return;
    case TG_LATER:
        on_limit(q, &a);
        return;
    case TG_REFUSED:
        if (a.migrate_to != 0 && q->moves < 2)
            follow_move(q, a.migrate_to);
        else
            on_refusal(q, &a);
        return;
    case TG_DOWN:
        later(q, pause_ms(q->item.starts));
        return;
    case TG_BROKEN:
        if (++q->broken < MAX_BROKEN)
            later(q, pause_ms(q->broken));
        else
            tg_req_fail(q, ACTION_ERROR_TRANSIENT, q->why);
        return;
    case TG_UNKNOWN:
        q->t->n.unknown++;
        tg_req_fail(q, ACTION_ERROR_UNKNOWN, "Telegram did not answer; it may have been delivered");
        return;
    }
}

/* ---- lanes ---- */

static void on_intent(struct intent *it, enum bh_err err)
{
    struct tg_req *q = container_of(it, struct tg_req, intent);

    if (err == BH_OK)
        tg_req_call(q);
    else
        tg_req_fail(q, ACTION_ERROR_TRANSIENT, "the store cannot be written");
}

void tg_req_describe(struct buf *out, const struct tg_req *q)
{
    buf_printf(out, "%s\x1f%" PRId64 "\x1f", q->chat, q->thread);
    buf_add_str(out, buf_str(&q->md.text));
}

static void on_start(void *ctx, struct outbox_item *item)
{
    struct tg_req *q = container_of(item, struct tg_req, item);
    int64_t wait_ms = tg_chat_wait_ms(q->t, tg_req_chat(q));

    q->waiting = false;
    if (wait_ms > 0) {
        say_wait(q, wait_ms);
        later(q, wait_ms);
        return;
    }
    if (q->op != ACTION_SEND || q->intent.all != NULL) {
        tg_req_call(q);
        return;
    }
    struct buf what = BUF_INIT;
    tg_req_describe(&what, q);
    intent_begin(q->t->intents, &q->intent, buf_str(&what), on_intent);
    buf_done(&what);
}

static void on_drop(void *ctx, struct outbox_item *item, enum outbox_drop why)
{
    struct tg_req *q = container_of(item, struct tg_req, item);
    bool cut_off = q->call != NULL;

    q->queued = false;
    if (why == OUTBOX_CLOSED && cut_off && q->op == ACTION_SEND) {
        host_fail(q->t->base.host, q->id, ACTION_ERROR_UNKNOWN "bellhop was stopped");
        intent_leave(&q->intent);
        req_free(q);
        return;
    }
    if (why == OUTBOX_CLOSED)
        snprintf(q->why, sizeof q->why, "bellhop is stopping");
    else if (q->why[0] == '\0')
        snprintf(q->why, sizeof q->why, "too much is waiting for this chat");
    tg_req_fail(q, ACTION_ERROR_TRANSIENT, q->why);
}

void tg_req_queue(struct tg_req *q)
{
    int64_t wait_ms = tg_chat_wait_ms(q->t, tg_req_chat(q));

    if (wait_ms > OUTBOX_PATIENCE_MS) { /* it would only grow old */
        say_wait(q, wait_ms);
        tg_req_fail(q, ACTION_ERROR_TRANSIENT, q->why);
        return;
    }
    q->queued = q->waiting = true;
    if (outbox_add(q->t->outbox, &q->item, tg_req_chat(q), OUTBOX_PATIENCE_MS) == BH_OK)
        return;
    q->queued = false;
    tg_req_fail(q, ACTION_ERROR_TRANSIENT, "too much is waiting for Telegram");
}

/* ---- life ---- */

bool tg_send_open(struct telegram *t, char *ret_why)
{
    static const struct outbox_handlers handlers = {.start = on_start, .drop = on_drop};

    list_init(&t->reqs);
    t->outbox = outbox_new(t->env->clock, NULL, &handlers, t);
    if (intents_open(t->env->store, t->env->clock, "telegram", t->base.bot, &t->intents, ret_why) !=
        BH_OK)
        return false;
    if (intents_found(t->intents) > 0)
        log_warn(&t->log, "messages were being sent when bellhop stopped: unknown=%zu",
                 intents_found(t->intents));
    return true;
}

void tg_send_close(struct telegram *t)
{
    outbox_free(t->outbox);
    list_each (&t->reqs, it, nxt)
        req_free(list_entry(it, struct tg_req, link));
    intents_free(t->intents);
}
