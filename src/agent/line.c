/* line.c - formats and parses the lines.  (line.h has the contract.)
 *
 * order_action() copies the program's JSON and adds missing fields, so ops that this version does
 * not know still reach the connector. */
#include "agent/line.h"
#include <stdlib.h>
#include "bellhop/gateway.h"
#include "base/crypto.h"
#include "base/json_mend.h"
#include "base/jw.h"

static void add_quoted(struct jw *w, const struct bhgw_event *ev)
{
    jw_key(w, "reply_to");
    if (ev->reply_to_message_id == NULL && ev->quoted_text == NULL) {
        jw_null(w);
        return;
    }
    jw_obj(w);
    jw_kstr(w, "message_id", str_of(ev->reply_to_message_id));
    jw_kstr(w, "text", str_of(ev->quoted_text));
    jw_kstr(w, "author", str_of(ev->quoted_author));
    jw_kbool(w, "is_own", ev->quoted_is_own);
    jw_end_obj(w);
}

void line_message(struct buf *out, const struct bhgw_event *ev, unsigned attempt)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("message"));
    jw_kstr(&w, "id", str_of(ev->buffer_id));
    jw_kstr(&w, "session_key", str_of(ev->session_key));
    jw_kstr(&w, "text", str_make(ev->text, ev->text_bytes));
    jw_kstr(&w, "message_id", str_of(ev->message_id));
    jw_kstr(&w, "message_type", str_of(ev->message_type));
    jw_kstr(&w, "platform", str_of(ev->platform));
    jw_kstr(&w, "bot_id", str_of(ev->bot_id));
    jw_kstr(&w, "chat_id", str_of(ev->chat_id));
    jw_kstr(&w, "chat_type", str_of(ev->chat_type));
    jw_kstr(&w, "chat_name", str_of(ev->chat_name));
    jw_kstr(&w, "thread_id", str_of(ev->thread_id));
    jw_kstr(&w, "user_id", str_of(ev->user_id));
    jw_kstr(&w, "user_name", str_of(ev->user_name));
    add_quoted(&w, ev);
    jw_karr(&w, "media");
    for (size_t i = 0; i < ev->n_media_urls; i++)
        jw_str(&w, str_of(ev->media_urls[i]));
    jw_end_arr(&w);
    jw_ki64(&w, "attempt", attempt);
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

static void add_headers(struct jw *w, const struct bhgw_passthrough *fwd)
{
    jw_karr(w, "headers");
    for (size_t i = 0; i < fwd->n_headers; i++) {
        jw_arr(w);
        jw_str(w, str_of(fwd->header_names[i]));
        jw_str(w, str_of(fwd->header_values[i]));
        jw_end_arr(w);
    }
    jw_end_arr(w);
}

/* A text body as text, any other body as base64. */
static void add_body(struct jw *w, struct str body)
{
    bool text = utf8_valid(body);
    struct buf b64 = BUF_INIT;

    if (!text)
        base64_add(&b64, body.p, body.n);
    jw_kstr(w, "body", text ? body : STR_NULL);
    jw_kstr(w, "body_b64", text ? STR_NULL : buf_str(&b64));
    buf_done(&b64);
}

void line_forward(struct buf *out, const struct bhgw_passthrough *fwd,
                  const struct bhgw_event *chat)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("passthrough"));
    jw_kstr(&w, "id", str_of(fwd->buffer_id));
    jw_kstr(&w, "session_key", str_of(chat->session_key));
    jw_kstr(&w, "chat_id", str_of(chat->chat_id));
    jw_kstr(&w, "user_id", str_of(chat->user_id));
    jw_kstr(&w, "user_name", str_of(chat->user_name));
    jw_kstr(&w, "platform", str_of(fwd->platform));
    jw_kstr(&w, "bot_id", str_of(fwd->bot_id));
    jw_kstr(&w, "method", str_of(fwd->method));
    jw_kstr(&w, "path", str_of(fwd->path));
    add_headers(&w, fwd);
    add_body(&w, str_make(fwd->body, fwd->body_bytes));
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

void line_interrupt(struct buf *out, const char *session_key, const char *chat_id)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("interrupt"));
    jw_kstr(&w, "session_key", str_of(session_key));
    jw_kstr(&w, "chat_id", str_of(chat_id));
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

void line_result(struct buf *out, const char *ref, const struct said *r)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("result"));
    jw_kstr(&w, "ref", str_of(ref));
    jw_kbool(&w, "success", r->success);
    jw_kstr(&w, "message_id", str_of(r->message_id));
    jw_kstr(&w, "error", str_of(r->error));
    jw_end_obj(&w);
    buf_add_c(out, '\n');
}

/* ---- orders ---- */

void order_read(struct json_parser *p, struct str line, struct order *o)
{
    struct json doc;

    *o = (struct order){0};
    while (line.n > 0 && line.p[line.n - 1] == '\r')
        line.n--;
    if (line.n > 0 && line.p[0] == '{' && json_parse_mended(p, line, &doc) &&
        !str_is_empty(json_str(doc, "op"))) {
        o->doc = doc;
        o->op = json_str(doc, "op");
        o->done = str_eq(o->op, STR("done")) || json_as_bool(json_get(doc, "done"), false);
        o->id = json_str(doc, "id");
        o->session_key = json_str(doc, "session_key");
        o->chat_id = json_str(doc, "chat_id");
        o->ref = json_str(doc, "ref");
        return;
    }
    o->plain = true;
    o->op = STR("send");
    o->text = line;
}

bool order_is_answer(const struct order *o)
{
    if (o->plain)
        return !str_is_empty(o->text);
    return !str_eq(o->op, STR("typing")) && !str_eq(o->op, STR("done")) &&
           !str_eq(o->op, STR("get_chat_info"));
}

/* Fields that this file writes itself, or that are not for the connector. */
static bool is_ours(struct str key, bool follow_up)
{
    return str_eq(key, STR("op")) || str_eq(key, STR("id")) || str_eq(key, STR("ref")) ||
           str_eq(key, STR("done")) || str_eq(key, STR("metadata")) ||
           (str_eq(key, STR("session_key")) && !follow_up);
}

/* The metadata that the chat requires, merged with the program's; the program's take precedence.
 * `notify` marks the last message of a turn. */
static void add_metadata(struct jw *w, struct json given, const struct bhgw_event *ev, bool last)
{
    struct json_parser *p = json_parser_new();
    struct json theirs;

    jw_kobj(w, "metadata");
    for (struct json_iter it = {0}; json_is_object(given) && json_next(given, &it);) {
        jw_key_str(w, it.key);
        jw_value(w, it.value);
    }
    if (ev != NULL && ev->answer_metadata != NULL &&
        json_parse(p, str_of(ev->answer_metadata), &theirs)) {
        for (struct json_iter it = {0}; json_next(theirs, &it);) {
            char *key = str_dup(it.key);
            bool fits = last || !str_eq(it.key, STR("notify"));
            if (fits && json_type(json_get(given, key)) == JSON_ABSENT) {
                jw_key_str(w, it.key);
                jw_value(w, it.value);
            }
            free(key);
        }
    }
    jw_end_obj(w);
    json_parser_free(p);
}

static bool says(const struct order *o, const char *key)
{
    return json_type(json_get(o->doc, key)) != JSON_ABSENT;
}

void order_action(struct buf *out, const struct order *o, const struct bhgw_event *ev,
                  struct str reply_to)
{
    struct jw w = jw_begin(out);
    bool send = str_eq(o->op, STR("send")), follow_up = str_eq(o->op, STR("follow_up"));

    jw_obj(&w);
    jw_kstr(&w, "op", o->op);
    if (o->plain)
        jw_kstr(&w, "content", o->text);
    for (struct json_iter it = {0}; !o->plain && json_next(o->doc, &it);) {
        if (is_ours(it.key, follow_up))
            continue;
        jw_key_str(&w, it.key);
        jw_value(&w, it.value);
    }
    if (!follow_up && !says(o, "chat_id") && ev != NULL)
        jw_kstr(&w, "chat_id", str_of(ev->chat_id));
    if (follow_up && !says(o, "session_key") && ev != NULL)
        jw_kstr(&w, "session_key", str_of(ev->session_key));
    if (send && !says(o, "reply_to"))
        jw_kstr(&w, "reply_to", reply_to);
    add_metadata(&w, json_get(o->doc, "metadata"), ev, o->done);
    jw_end_obj(&w);
}
