/* send.c - what a request to WeCom looks like, and what its answers mean.  (courier.h does the
 * rest.) */
#include <inttypes.h>
#include <stdio.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "edge/form.h"
#include "platform/wecom/wecom_priv.h"

enum { MAX_BYTES = 2048 };

static const struct {
    int64_t code;
    const char *sentence;
} table[] = {
    {40056, "WeCom does not know the agent: check `bot` in bellhop's config"},
    {44004, "there is nothing to send: the text is empty"},
    {45002, "WeCom does not take a text this long"},
    {60011, "the WeCom agent may not write to this person"},
    {60020, "WeCom does not take requests from this address: add it to the agent's trusted ones"},
    {60111, "WeCom does not know this person"},
    {81013, "WeCom knows none of these people, or the agent may not see them"},
    {82001, "WeCom knows none of these people, or the agent may not see them"},
};

static bool wecom_write(void *ctx, struct str chat, struct str part, struct courier_request *ret)
{
    struct wecom *c = ctx;
    struct str token = wecom_token(c), bot = str_of(c->base.bot);
    struct jw w = jw_begin(&ret->body);
    struct buf query = BUF_INIT;
    uint64_t agent;

    if (token.p == NULL)
        return false;
    form_add(&query, "access_token", token);
    buf_printf(&ret->url, "%s/cgi-bin/message/send?", c->api_base);
    buf_add_str(&ret->url, buf_str(&query));
    buf_wipe(&query);
    ret->content_type = "Content-Type: application/json";
    jw_obj(&w);
    jw_kstr(&w, "touser", chat);
    jw_kstr(&w, "msgtype", STR("text"));
    jw_key(&w, "agentid");
    if (str_to_u64(bot, &agent))
        jw_u64(&w, agent);
    else
        jw_str(&w, bot);
    jw_key(&w, "text");
    jw_obj(&w);
    jw_kstr(&w, "content", part);
    jw_end_obj(&w);
    jw_end_obj(&w);
    return true;
}

static void read_code(struct wecom *c, int64_t code, struct courier_answer *ret)
{
    ret->end = COURIER_REFUSED;
    snprintf(ret->why, sizeof ret->why, "WeCom refused this (errcode %" PRId64 ")", code);
    switch (code) {
    case 40001:
    case 40014:
    case 42001: /* the token: fetch another one */
        wecom_token_drop(c);
        ret->end = COURIER_AGAIN;
        snprintf(ret->why, sizeof ret->why, "WeCom does not take its access tokens");
        return;
    case -1:
    case 45009: /* busy; too many */
    case 45033:
        ret->end = COURIER_AGAIN;
        ret->wait_ms = code == -1 ? 0 : 5000;
        snprintf(ret->why, sizeof ret->why, "WeCom asks to wait");
        return;
    default:
        break;
    }
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (table[i].code == code)
            snprintf(ret->why, sizeof ret->why, "%s", table[i].sentence);
    if (code == 60020 || code == 40056)
        wecom_set_problem(c, ret->why);
}

static void wecom_read(void *ctx, const struct http_result *res, struct courier_answer *ret)
{
    struct wecom *c = ctx;
    struct json doc;
    int64_t code = 0;

    if (res->status == 429 || res->status == 503) {
        ret->end = COURIER_AGAIN;
        ret->wait_ms = res->retry_after_ms > 0 ? res->retry_after_ms : 0;
        snprintf(ret->why, sizeof ret->why, "WeCom asks to wait");
        return;
    }
    if (res->status != 200 || !json_parse(c->parser, res->body, &doc) ||
        !json_as_i64(json_get(doc, "errcode"), &code)) {
        snprintf(ret->why, sizeof ret->why, "WeCom answered with HTTP %d; it may have been sent",
                 res->status);
        return;
    }
    if (code != 0) {
        read_code(c, code, ret);
        return;
    }
    if (json_str(doc, "invaliduser").n > 0) { /* the only one it was for */
        read_code(c, 60111, ret);
        return;
    }
    ret->end = COURIER_OK;
    snprintf(ret->message_id, sizeof ret->message_id, "%.*s", STR_FMT(json_str(doc, "msgid")));
    wecom_set_problem(c, NULL);
}

const struct courier_ops wecom_courier = {
    .platform = "wecom",
    .max_part = MAX_BYTES,
    .max_bytes = MAX_BYTES,
    .unit = SPLIT_CHARS,
    .write = wecom_write,
    .read = wecom_read,
};
