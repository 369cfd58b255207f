/* send.c - what a request to WeCom looks like, and what its answers mean.  (sender.h does the
 * rest.) */
#include <inttypes.h>
#include <stdio.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "edge/form.h"
#include "platform/wecom/wecom_priv.h"

static const struct {
    int64_t code;
    const char *sentence;
} table[] = {
    {40056, "WeCom does not know the agent: check `bot` in bellhop's config"},
    {44004, "there is nothing to send: the text is empty"},
    {40004, "WeCom does not take this kind of file"},
    {40005, "WeCom does not take this kind of file"},
    {40006, "WeCom does not take a file this large"},
    {45001, "WeCom does not take a file this large"},
    {45002, "WeCom does not take a text this long"},
    {60011, "the WeCom agent may not write to this person"},
    {60020, "WeCom does not take requests from this address: add it to the agent's trusted ones"},
    {60111, "WeCom does not know this person"},
    {81013, "WeCom knows none of these people, or the agent may not see them"},
    {82001, "WeCom knows none of these people, or the agent may not see them"},
};

static void write_text(struct jw *w, struct outgoing *o)
{
    const struct text_outgoing *t = text_outgoing_of(o);

    jw_kstr(w, "msgtype", STR("text"));
    jw_key(w, "text");
    jw_obj(w);
    jw_kstr(w, "content", split_part(&t->parts, t->file.path != NULL ? o->at - 1 : o->at));
    jw_end_obj(w);
}

static void wecom_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                        struct sender_verdict *v)
{
    struct wecom *c = wecom_of(p);
    struct str token = wecom_token(c), bot = str_of(p->bot);
    struct jw w = jw_begin(&q->body);
    struct buf query = BUF_INIT;
    uint64_t agent;

    if (token.p == NULL) {
        v->end = SENDER_HOLD;
        return;
    }
    if (wecom_uploads(o)) {
        wecom_write_upload(c, o, token, q);
        v->end = SENDER_GO;
        return;
    }
    form_add(&query, "access_token", token);
    buf_printf(&q->url, "%s/cgi-bin/message/send?", c->bot.api_base);
    buf_add_str(&q->url, buf_str(&query));
    buf_wipe(&query);
    q->headers[0] = "Content-Type: application/json";
    q->once = true;
    jw_obj(&w);
    jw_kstr(&w, "touser", str_of(text_outgoing_of(o)->chat));
    jw_key(&w, "agentid");
    if (str_to_u64(bot, &agent))
        jw_u64(&w, agent);
    else
        jw_str(&w, bot);
    if (text_outgoing_of(o)->file.path != NULL && o->at == 0)
        wecom_write_file(&w, o);
    else
        write_text(&w, o);
    jw_end_obj(&w);
    v->end = SENDER_GO;
}

static void read_code(struct wecom *c, int64_t code, struct sender_verdict *v)
{
    v->end = SENDER_REFUSED;
    snprintf(v->why, sizeof v->why, "WeCom refused this (errcode %" PRId64 ")", code);
    switch (code) {
    case 40001:
    case 40014:
    case 42001: /* the token: fetch another one */
        wecom_token_drop(c);
        v->end = SENDER_AGAIN;
        snprintf(v->why, sizeof v->why, "WeCom does not take its access tokens");
        return;
    case -1:
    case 45009: /* busy; too many */
    case 45033:
        v->end = SENDER_AGAIN;
        v->wait_ms = code == -1 ? 0 : 5000;
        snprintf(v->why, sizeof v->why, "WeCom asks to wait");
        return;
    default:
        break;
    }
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].code == code)
            snprintf(v->why, sizeof v->why, "%s", table[i].sentence);
    if (code == 60020 || code == 40056)
        webhook_bot_set_problem(&c->bot, v->why);
}

static void read_answer(struct wecom *c, struct outgoing *o, const struct http_result *res,
                        struct sender_verdict *v)
{
    struct json doc;
    int64_t code = 0;

    if (res->status == 429 || res->status == 503) {
        v->end = SENDER_AGAIN;
        v->wait_ms = res->retry_after_ms;
        snprintf(v->why, sizeof v->why, "WeCom asks to wait");
        return;
    }
    if (res->status != 200 || !json_parse(c->bot.parser, res->body, &doc) ||
        !json_as_i64(json_get(doc, "errcode"), &code)) {
        snprintf(v->why, sizeof v->why, "WeCom answered with HTTP %d; it may have been sent",
                 res->status);
        if (wecom_uploads(o))
            v->end = SENDER_AGAIN; /* an upload that nobody names is nothing */
        return;
    }
    if (code != 0) {
        read_code(c, code, v);
        return;
    }
    if (wecom_uploads(o)) {
        struct str handle = json_str(doc, "media_id");
        v->end = handle.n > 0 && handle.n < 512 ? SENDER_REWRITE : SENDER_FAILED;
        if (v->end == SENDER_REWRITE)
            text_outgoing_of(o)->handle = str_dup(handle);
        snprintf(v->why, sizeof v->why, "WeCom did not name the uploaded file");
        return;
    }
    if (json_str(doc, "invaliduser").n > 0) { /* the only one it was for */
        read_code(c, 60111, v);
        return;
    }
    v->end = SENDER_DONE;
    snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(json_str(doc, "msgid")));
    webhook_bot_set_problem(&c->bot, NULL);
}

static void wecom_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                       struct sender_verdict *v)
{
    struct wecom *c = wecom_of(p);

    read_answer(c, o, res, v);
    text_outgoing_read(&c->bot, o, v);
}

const struct sender_ops wecom_sender = {
    .write = wecom_write,
    .read = wecom_read,
    .free = text_outgoing_free,
};
