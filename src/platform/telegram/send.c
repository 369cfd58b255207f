/* send.c - what a request to Telegram looks like, and what its answers mean.  (sender.h does the
 * rest.)
 *
 * Telegram offers no key that makes twice once, so a message whose answer was lost is unknown.  An
 * edit, a sign and a question may be repeated.  Entities it refuses are left out, once for each
 * part; a group that became a supergroup is followed. */
#include <inttypes.h>
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/telegram/outgoing.h"

#define MAX_BROKEN 3 /* answers of 5xx before we give up on signs and questions */
#define MAX_MOVES 2

/* ---- what is asked of Telegram ---- */

static void write_chat(struct jw *w, const struct tg_outgoing *x)
{
    struct str chat = tg_outgoing_chat(x);
    int64_t number;

    jw_key(w, "chat_id");
    if (str_to_i64(chat, &number))
        jw_i64(w, number);
    else
        jw_str(w, chat); /* "@channel" */
    if (x->thread != 0 && x->op != ACTION_GET_CHAT_INFO)
        jw_ki64(w, "message_thread_id", x->thread);
}

static void write_reply(struct jw *w, const struct tg_outgoing *x)
{
    if (x->reply_to == 0 || x->out.at > 0)
        return;
    jw_key(w, "reply_parameters");
    jw_obj(w);
    jw_ki64(w, "message_id", x->reply_to);
    jw_kbool(w, "allow_sending_without_reply", true);
    jw_end_obj(w);
}

static void write_reaction(struct jw *w, const struct tg_outgoing *x)
{
    jw_ki64(w, "message_id", x->message_id);
    jw_key(w, "reaction");
    jw_arr(w);
    if (x->word != NULL) { /* else: none any more */
        jw_obj(w);
        jw_kstr(w, "type", STR("emoji"));
        jw_kstr(w, "emoji", str_of(x->word));
        jw_end_obj(w);
    }
    jw_end_arr(w);
}

static const char *write_body(struct buf *body, const struct tg_outgoing *x)
{
    struct jw w = jw_begin(body);
    const char *method = "sendMessage";

    jw_obj(&w);
    write_chat(&w, x);
    switch (x->op) {
    case ACTION_EDIT:
        method = x->captioned ? "editMessageCaption" : "editMessageText";
        jw_ki64(&w, "message_id", x->message_id);
        break;
    case ACTION_TYPING:
        method = "sendChatAction";
        jw_kstr(&w, "action", STR("typing"));
        break;
    case ACTION_GET_CHAT_INFO:
        method = "getChat";
        break;
    case ACTION_REACT:
        method = "setMessageReaction";
        write_reaction(&w, x);
        break;
    case ACTION_THREAD_CREATE:
        method = "createForumTopic";
        jw_kstr(&w, "name", str_of(x->word));
        break;
    case ACTION_THREAD_RENAME:
        method = "editForumTopic";
        jw_ki64(&w, "message_thread_id", x->message_id);
        jw_kstr(&w, "name", str_of(x->word));
        break;
    default:
        write_reply(&w, x);
        break;
    }
    if (x->op == ACTION_EDIT && x->captioned)
        md_write_caption(&w, &x->md, &x->part, !x->plain);
    else if (x->op == ACTION_SEND || x->op == ACTION_EDIT || x->op == ACTION_SEND_MEDIA ||
             x->op == ACTION_PROMPT)
        md_write(&w, &x->md, &x->part, !x->plain);
    if (x->markup.n > 0 && x->out.at + 1 == x->out.n_parts) {
        jw_key(&w, "reply_markup");
        jw_raw(&w, buf_str(&x->markup));
    }
    jw_end_obj(&w);
    return method;
}

static void wait_for(struct sender_verdict *v, int64_t ms)
{
    v->end = SENDER_AGAIN;
    v->wait_ms = ms;
    snprintf(v->why, sizeof v->why, "Telegram asks to wait %" PRId64 " s in this chat",
             (ms + 999) / 1000);
}

static void tg_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                     struct sender_verdict *v)
{
    struct tg_outgoing *x = tg_outgoing_of(o);
    int64_t wait_ms = tg_chat_wait_ms(x->t, tg_outgoing_chat(x));

    if (wait_ms > 0) {
        wait_for(v, wait_ms);
        return;
    }
    for (; x->part_at < o->at; x->part_at++) {
        md_next(&x->md, TG_LIMIT, &x->part);
        x->plain = false;
    }
    if (x->op == ACTION_SEND_MEDIA && o->at == 0) {
        tg_write_media(x, q);
        v->end = SENDER_GO;
        return;
    }
    if (x->op == ACTION_EDIT)
        tg_keep_buttons(x);
    const char *method = write_body(&q->body, x);
    buf_printf(&q->url, "%s%s", x->t->url, method);
    q->headers[0] = "Content-Type: application/json";
    q->once = x->op == ACTION_THREAD_CREATE || x->op == ACTION_SEND || x->op == ACTION_SEND_MEDIA ||
              x->op == ACTION_PROMPT;
    v->end = SENDER_GO;
}

/* ---- what Telegram answers ---- */

static void on_limit(struct tg_outgoing *x, const struct tg_answer *a, struct sender_verdict *v)
{
    struct telegram *t = x->t;

    t->n.limited++;
    tg_chat_limit(t, tg_outgoing_chat(x), a->retry_after_ms);
    int64_t all_ms = tg_limit_of_all(t);
    if (all_ms > 0)
        sender_pause(t->sender, all_ms);
    log_warn(&t->log, "limited: retry_after_ms=%" PRId64 " whole_bot=%d", a->retry_after_ms,
             all_ms > 0);
    wait_for(v, a->retry_after_ms);
    if (x->op == ACTION_TYPING)
        v->end = SENDER_FAILED; /* nothing waits for a sign */
}

static void set_id(struct sender_verdict *v, int64_t id)
{
    v->end = SENDER_DONE;
    snprintf(v->message_id, sizeof v->message_id, "%" PRId64, id);
}

static void on_refusal(struct tg_outgoing *x, const struct tg_answer *a, struct sender_verdict *v)
{
    const char *sentence = tg_refusal(a->code, a->why);

    if (x->op == ACTION_EDIT && strstr(a->why, "message is not modified") != NULL) {
        set_id(v, x->message_id);
        return;
    }
    v->end = SENDER_REFUSED;
    snprintf(v->why, sizeof v->why, "Telegram refused: %.230s",
             sentence != NULL ? sentence : a->why);
    if (x->op == ACTION_EDIT && !x->captioned && strstr(a->why, "no text in the message") != NULL) {
        x->captioned = true; /* it is a file: what can be edited is what stands below it */
        v->end = SENDER_REWRITE;
    } else if (tg_media_again(x, a)) {
        v->end = SENDER_REWRITE;
    } else if (!x->plain && tg_refuses_entities(a)) {
        x->t->n.plain++;
        log_warn(&x->t->log, "Telegram refused entities, sending plain text: %s", a->why);
        x->plain = true;
        v->end = SENDER_REWRITE;
    }
}

static void follow_move(struct tg_outgoing *x, int64_t to, struct sender_verdict *v)
{
    char id[24];

    snprintf(id, sizeof id, "%" PRId64, to);
    tg_chat_moved(x->t, tg_outgoing_chat(x), str_of(id));
    x->moves++;
    x->thread = x->reply_to = 0; /* ids of the old group mean nothing in the new one */
    v->end = SENDER_REWRITE;
    snprintf(v->why, sizeof v->why, "this group became another one");
}

static void read_info(struct tg_outgoing *x, struct json chat, struct sender_verdict *v)
{
    struct str type = json_str(chat, "type"), last = json_str(chat, "last_name");
    struct buf *person = &x->t->scratch;

    v->chat_name = json_str(chat, "title");
    v->chat_type = STR("group");
    if (str_eq(type, STR("private"))) {
        buf_reset(person);
        buf_add_str(person, json_str(chat, "first_name"));
        buf_printf(person, "%s%.*s", last.n > 0 ? " " : "", STR_FMT(last));
        v->chat_name = buf_str(person);
        v->chat_type = STR("dm");
    } else if (str_eq(type, STR("channel"))) {
        v->chat_type = STR("channel");
    } else if (json_as_bool(json_get(chat, "is_forum"), false)) {
        v->chat_type = STR("forum");
    }
    if (v->chat_name.n == 0)
        v->chat_name = str_of(x->chat);
}

static void on_ok(struct tg_outgoing *x, struct json result, struct sender_verdict *v)
{
    int64_t id = 0;

    v->end = SENDER_DONE;
    if (x->op == ACTION_GET_CHAT_INFO) {
        read_info(x, result, v);
    } else if (x->op == ACTION_THREAD_CREATE) {
        json_as_i64(json_get(result, "message_thread_id"), &id);
        snprintf(v->thread_id, sizeof v->thread_id, "%" PRId64, id);
    } else if (x->op == ACTION_EDIT) {
        x->t->n.edits++;
        set_id(v, x->message_id);
    } else if (x->op == ACTION_SEND || x->op == ACTION_SEND_MEDIA || x->op == ACTION_PROMPT) {
        json_as_i64(json_get(result, "message_id"), &id);
        x->t->n.sent++;
        tg_reactions_sent(x->t, tg_outgoing_chat(x), id, x->thread);
        set_id(v, id);
    }
}

/* What people read is tried until it is too old. */
static bool says(const struct tg_outgoing *x)
{
    return x->op != ACTION_TYPING && x->op != ACTION_GET_CHAT_INFO && x->op != ACTION_REACT;
}

static void read_answer(struct tg_outgoing *x, const struct http_result *r,
                        struct sender_verdict *v)
{
    struct tg_answer a;

    tg_answer_read(x->t, x->t->answers, r, &a);
    snprintf(v->why, sizeof v->why, "%.150s", a.why);
    switch (a.outcome) {
    case TG_OK:
        on_ok(x, a.result, v);
        return;
    case TG_LATER:
        on_limit(x, &a, v);
        return;
    case TG_REFUSED:
        if (a.migrate_to != 0 && x->moves < MAX_MOVES)
            follow_move(x, a.migrate_to, v);
        else
            on_refusal(x, &a, v);
        return;
    case TG_BROKEN:
        v->end = ++x->broken < MAX_BROKEN || says(x) ? SENDER_AGAIN : SENDER_FAILED;
        return;
    case TG_DOWN: /* the sender knows that itself */
    case TG_UNKNOWN:
        snprintf(v->why, sizeof v->why, "Telegram did not answer; it may have been delivered");
        return;
    }
}

static void tg_read(struct platform *p, struct outgoing *o, const struct http_result *r,
                    struct sender_verdict *v)
{
    struct tg_outgoing *x = tg_outgoing_of(o);

    read_answer(x, r, v);
    if (x->prompt != NULL)
        tg_prompt_ended(x, v);
}

const struct sender_ops tg_sender = {
    .write = tg_write,
    .read = tg_read,
    .free = tg_outgoing_free,
};
