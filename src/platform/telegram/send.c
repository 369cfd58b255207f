/* send.c - design.  (telegram_priv.h has the contract.)
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
#include "platform/intent.h"
#include "platform/outbox.h"
#include "platform/telegram/markdown.h"
#include "platform/telegram/telegram_priv.h"

#define CALL_MS 15000
#define MAX_BROKEN 3 /* answers of 5xx before we give up */
#define GENERAL_TOPIC 1

struct tg_req {
    struct outbox_item item;
    struct intent intent;
    struct list link;
    struct telegram *t; /* borrowed */
    struct action_id id;
    enum action_op op;
    char chat[TG_CHAT_CHARS];             /* as asked; tg_chat_now() says where it is */
    int64_t thread, reply_to, message_id; /* 0: none */
    struct md md;
    struct md_part part;  /* the one being sent */
    bool plain;           /* Telegram refused its entities */
    bool queued, waiting; /* in the outbox; not started yet */
    unsigned n_sent, broken, moves;
    int64_t first_id;       /* of the messages sent */
    struct http_call *call; /* owned; NULL: none under way */
    char why[160];          /* what the last try met */
};

static http_done_cb on_answer;

static struct tg_req *req_new(struct telegram *t, struct action_id id, const struct action *a)
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

static void succeed(struct tg_req *q, int64_t message_id)
{
    char text[24];
    struct action_result r = {.success = true};

    if (message_id != 0)
        r.message_id = str_make(text, (size_t)snprintf(text, sizeof text, "%" PRId64, message_id));
    host_result(q->t->base.host, q->id, &r);
    req_end(q);
}

static void fail(struct tg_req *q, const char *prefix, const char *words)
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

static struct str chat_now(const struct tg_req *q)
{
    return tg_chat_now(q->t, str_of(q->chat));
}

static void write_chat(struct jw *w, const struct tg_req *q)
{
    struct str chat = chat_now(q);
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

static void call_now(struct tg_req *q)
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
        fail(q, ACTION_ERROR_TRANSIENT, q->why);
        return;
    }
    q->waiting = true;
    outbox_again(q->t->outbox, &q->item, ms);
}

static void on_limit(struct tg_req *q, const struct tg_answer *a)
{
    struct telegram *t = q->t;

    t->n.limited++;
    tg_chat_limit(t, chat_now(q), a->retry_after_ms);
    int64_t all_ms = tg_limit_of_all(t);
    if (all_ms > 0)
        outbox_pause(t->outbox, all_ms);
    log_warn(&t->log, "limited: retry_after_ms=%" PRId64 " whole_bot=%d", a->retry_after_ms,
             all_ms > 0);
    snprintf(q->why, sizeof q->why, "Telegram asks to wait %" PRId64 " s in this chat",
             a->retry_after_ms / 1000);
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
        succeed(q, q->message_id);
        return;
    }
    if (!q->plain && tg_refuses_entities(a)) {
        q->t->n.plain++;
        log_warn(&q->t->log, "Telegram refused entities, sending plain text: %s", a->why);
        q->plain = true;
        call_now(q);
        return;
    }
    q->t->n.refused++;
    snprintf(text, sizeof text, "Telegram refused: %s", sentence != NULL ? sentence : a->why);
    fail(q, "", text);
}

static void follow_move(struct tg_req *q, int64_t to)
{
    char id[24];

    snprintf(id, sizeof id, "%" PRId64, to);
    tg_chat_moved(q->t, chat_now(q), str_of(id));
    q->moves++;
    q->thread = q->reply_to = 0; /* ids of the old group mean nothing in the new one */
    call_now(q);
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
        succeed(q, q->message_id);
        return;
    case ACTION_TYPING:
        succeed(q, 0);
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
        call_now(q);
    else
        succeed(q, q->first_id);
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
            fail(q, ACTION_ERROR_TRANSIENT, q->why);
        return;
    case TG_UNKNOWN:
        q->t->n.unknown++;
        fail(q, ACTION_ERROR_UNKNOWN, "Telegram did not answer; it may have been delivered");
        return;
    }
}

/* ---- lanes ---- */

static void on_intent(struct intent *it, enum bh_err err)
{
    struct tg_req *q = container_of(it, struct tg_req, intent);

    if (err == BH_OK)
        call_now(q);
    else
        fail(q, ACTION_ERROR_TRANSIENT, "the store cannot be written");
}

/* Chat, thread and words: what makes two sends the same. */
static void describe(struct buf *out, const struct tg_req *q)
{
    buf_printf(out, "%s\x1f%" PRId64 "\x1f", q->chat, q->thread);
    buf_add_str(out, buf_str(&q->md.text));
}

static void on_start(void *ctx, struct outbox_item *item)
{
    struct tg_req *q = container_of(item, struct tg_req, item);
    int64_t wait_ms = tg_chat_wait_ms(q->t, chat_now(q));

    q->waiting = false;
    if (wait_ms > 0) {
        snprintf(q->why, sizeof q->why, "Telegram asks to wait %" PRId64 " s in this chat",
                 (wait_ms + 999) / 1000);
        later(q, wait_ms);
        return;
    }
    if (q->op != ACTION_SEND || q->intent.all != NULL) {
        call_now(q);
        return;
    }
    struct buf what = BUF_INIT;
    describe(&what, q);
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
        req_free(q); /* and its intent stays on disk */
        return;
    }
    if (why == OUTBOX_CLOSED)
        snprintf(q->why, sizeof q->why, "bellhop is stopping");
    else if (q->why[0] == '\0')
        snprintf(q->why, sizeof q->why, "too much is waiting for this chat");
    fail(q, ACTION_ERROR_TRANSIENT, q->why);
}

static void enqueue(struct tg_req *q)
{
    q->queued = q->waiting = true;
    if (outbox_add(q->t->outbox, &q->item, chat_now(q), OUTBOX_PATIENCE_MS) == BH_OK)
        return;
    q->queued = false;
    fail(q, ACTION_ERROR_TRANSIENT, "too much is waiting for Telegram");
}

/* ---- actions ---- */

static bool read_content(struct tg_req *q, const struct action *a, size_t max_parts)
{
    size_t parts = 0;

    md_parse(&q->md, a->content);
    for (struct md_part p = {0}; parts <= max_parts && md_next(&q->md, TG_LIMIT, &p);)
        parts++;
    if (parts == 0) {
        fail(q, "", "the message is empty");
        return false;
    }
    if (parts > max_parts) {
        fail(q, "",
             max_parts == 1 ? "the edited text is longer than one Telegram message holds (4096)"
                            : "the message is longer than sixteen Telegram messages");
        return false;
    }
    return md_next(&q->md, TG_LIMIT, &q->part);
}

static void act_send(struct tg_req *q, const struct action *a)
{
    struct buf what = BUF_INIT;

    if (!str_to_i64(a->reply_to, &q->reply_to) || q->reply_to < 0)
        q->reply_to = 0;
    if (!read_content(q, a, TG_MAX_PARTS))
        return;
    describe(&what, q);
    bool cut_off = intents_was_cut_off(q->t->intents, buf_str(&what));
    buf_done(&what);
    if (cut_off) {
        q->t->n.unknown++;
        fail(q, ACTION_ERROR_UNKNOWN,
             "the same message was being sent when bellhop stopped; it may have been delivered");
        return;
    }
    enqueue(q);
}

/* While an edit waits, a newer one of the same message takes its place: nobody would see the first.
 */
static bool replace_edit(struct tg_req *q)
{
    list_each(&q->t->reqs, it, nxt)
    {
        struct tg_req *old = list_entry(it, struct tg_req, link);
        if (old == q || old->op != ACTION_EDIT || !old->waiting ||
            old->message_id != q->message_id || strcmp(old->chat, q->chat) != 0)
            continue;
        struct action_id id = old->id;
        struct md md = old->md;
        old->id = q->id;
        old->md = q->md;
        old->part = q->part;
        old->plain = false;
        q->id = id;
        q->md = md;
        succeed(q, q->message_id);
        return true;
    }
    return false;
}

static void act_edit(struct tg_req *q, const struct action *a)
{
    q->thread = 0; /* a message knows its topic */
    if (!str_to_i64(a->message_id, &q->message_id) || q->message_id <= 0) {
        fail(q, "", "there is no such message to edit");
        return;
    }
    if (read_content(q, a, 1) && !replace_edit(q))
        enqueue(q);
}

static void act_typing(struct tg_req *q, const struct action *a)
{
    struct str chat = chat_now(q);
    bool clear = a->content_set && str_is_empty(a->content);

    if (clear || tg_chat_wait_ms(q->t, chat) > 0 || tg_chat_typed(q->t, chat))
        succeed(q, 0);
    else
        call_now(q);
}

static bool is_chat_id(struct str id)
{
    int64_t number;

    if (id.n == 0 || id.n >= TG_CHAT_CHARS || memchr(id.p, '\0', id.n) != NULL)
        return false;
    return str_to_i64(id, &number) || (id.p[0] == '@' && id.n > 1);
}

void tg_act(struct platform *p, struct action_id id, const struct action_from *from,
            const struct action *a)
{
    struct telegram *t = container_of(p, struct telegram, base);

    if (!is_chat_id(a->chat_id)) {
        host_fail(p->host, id, "\"%.*s\" is no Telegram chat",
                  (int)(a->chat_id.n < 64 ? a->chat_id.n : 64),
                  a->chat_id.p != NULL ? a->chat_id.p : "");
        return;
    }
    struct tg_req *q = req_new(t, id, a);
    if (!str_to_i64(a->thread_id, &q->thread) || q->thread <= GENERAL_TOPIC)
        q->thread = 0; /* the General topic has no thread: Telegram refuses its number */
    switch (a->op) {
    case ACTION_SEND:
        act_send(q, a);
        return;
    case ACTION_EDIT:
        act_edit(q, a);
        return;
    case ACTION_TYPING:
        act_typing(q, a);
        return;
    case ACTION_GET_CHAT_INFO:
        q->thread = 0;
        call_now(q);
        return;
    case ACTION_FOLLOW_UP:
    case ACTION_UNKNOWN:
        break;
    }
    fail(q, "unsupported op: ", action_op_name(a->op));
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
    list_each(&t->reqs, it, nxt) req_free(list_entry(it, struct tg_req, link));
    intents_free(t->intents);
}
