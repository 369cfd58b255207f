/* api.c - design.  (telegram_priv.h has the contract.)
 *
 * Telegram answers {"ok": true, "result": ...} or {"ok": false, "error_code", "description",
 * "parameters"}.  Proxies in between answer with HTML; what counts then is the status.  A status of
 * 504 and an answer that is no JSON say nothing about what happened behind them.
 *
 * The token is part of every address.  Foreign words (curl's, a proxy's) may quote an address, so
 * the token is cut out of everything that is kept. */
#include <stdio.h>
#include "base/mem.h"
#include "platform/telegram/telegram_priv.h"

#define MAX_ANSWER ((size_t)16 << 20) /* 100 updates with all their entities */

struct http_call *tg_call(struct telegram *t, const char *method, struct str body,
                          int64_t timeout_ms, http_done_cb *done, void *ctx)
{
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct buf url = BUF_INIT;

    buf_printf(&url, "%s%s", t->url, method);
    struct http_call *call = http_fetch(t->env->http,
                                        &(struct http_fetch){.method = "POST",
                                                             .url = buf_z(&url),
                                                             .headers = headers,
                                                             .body = body,
                                                             .timeout_ms = timeout_ms,
                                                             .max_body = MAX_ANSWER},
                                        done, ctx);
    buf_wipe(&url);
    return call;
}

/* Copy @s, one line, without the token. */
static void keep_words(const struct telegram *t, struct str s, char ret[256])
{
    struct str token = str_of(t->token);
    size_t n = 0;

    for (size_t i = 0; i < s.n && n + 8 < 256;) {
        if (str_starts(str_skip(s, i), token)) {
            memcpy(ret + n, "<token>", 7);
            n += 7;
            i += token.n;
            continue;
        }
        size_t one = utf8_seq_bytes(str_skip(s, i));
        memcpy(ret + n, s.p + i, one);
        if (one == 1 && (unsigned char)ret[n] < ' ')
            ret[n] = ' ';
        n += one;
        i += one > 0 ? one : 1;
    }
    ret[n] = '\0';
}

static void read_parameters(struct json doc, const struct http_result *r, struct tg_answer *ret)
{
    struct json p = json_get(doc, "parameters");
    int64_t seconds;

    json_as_i64(json_get(p, "migrate_to_chat_id"), &ret->migrate_to);
    ret->retry_after_ms = r->retry_after_ms > 0 ? r->retry_after_ms : 1000;
    if (json_as_i64(json_get(p, "retry_after"), &seconds) && seconds >= 0 && seconds < 1000000)
        ret->retry_after_ms = seconds > 0 ? seconds * 1000 : 1000;
}

static enum tg_outcome outcome_of(int code)
{
    if (code == 429)
        return TG_LATER;
    if (code >= 400 && code < 500)
        return TG_REFUSED;
    return code >= 500 && code != 504 ? TG_BROKEN : TG_UNKNOWN;
}

void tg_answer_read(struct telegram *t, struct json_parser *parser, const struct http_result *r,
                    struct tg_answer *ret)
{
    struct json doc = {0};
    int64_t code = r->status;

    *ret = (struct tg_answer){.code = r->status};
    if (r->err != BH_OK) {
        ret->outcome = r->err == BH_UNAVAILABLE || r->err == BH_REFUSED ? TG_DOWN : TG_UNKNOWN;
        keep_words(t, str_of(r->why), ret->why);
        return;
    }
    bool is_json = json_parse(parser, r->body, &doc) && json_is_object(doc);
    if (is_json && json_as_bool(json_get(doc, "ok"), false) && r->status < 400) {
        ret->outcome = TG_OK;
        ret->result = json_get(doc, "result");
        return;
    }
    if (is_json)
        json_as_i64(json_get(doc, "error_code"), &code);
    ret->code = code > 0 && code < 1000 ? (int)code : r->status;
    ret->outcome = outcome_of(ret->code);
    read_parameters(doc, r, ret);
    keep_words(t, json_str(doc, "description"), ret->why);
    if (ret->why[0] == '\0')
        snprintf(ret->why, sizeof ret->why, "HTTP status %d", r->status);
}
