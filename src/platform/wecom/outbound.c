/* outbound.c - fetches WeCom's access token, sends messages and files, and reads the answers.
 * (platform/sender.h describes lanes and retries.)
 *
 *      token:  NONE --needed--> FETCHING --ok--> GOOD --nearly expired--> GOOD, and FETCHING
 *                ^------ failed: waiting sends fail ---'  '--refused--> NONE
 *
 * One request at a time fetches the token; sends wait for it (SENDER_HOLD).  A file is uploaded
 * first and then named in a message.  An upload without a message has no effect, so an upload is
 * idempotent; a message is not.  WeCom takes few types of pictures, voice notes and videos, up to a
 * size; everything else is sent as a plain file. */
#include <inttypes.h>
#include <stdio.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "edge/form.h"
#include "net/http_client.h"
#include "platform/wecom/wecom_priv.h"

enum { FETCH_MS = 10000, AHEAD_MS = 300000, UPLOAD_MS = 60000 };

/* ---- the access token ---- */

/* False: the answer has no token.  Always fills @ret_why with what to check then. */
static bool is_token(struct json doc, char ret_why[160])
{
    struct str text = json_str(doc, "access_token");
    int64_t code = json_i64(doc, "errcode", 0);

    snprintf(ret_why, 160, "WeCom gives no access token (errcode %lld): check %s", (long long)code,
             code == 60020 ? "the trusted addresses of the agent" : "`corp_id` and `secret`");
    return code == 0 && text.n > 0 && text.n <= 4096;
}

static bool read_token(struct wecom *c, const struct http_result *res, char ret_why[160])
{
    struct json doc;

    if (res->err != BH_OK || !json_parse(c->base.answers, res->body, &doc)) {
        snprintf(ret_why, 160, "WeCom gives no access token: it cannot be reached");
        return false;
    }
    struct str text = json_str(doc, "access_token");
    int64_t seconds = json_i64(doc, "expires_in", 7200);
    if (!is_token(doc, ret_why) || seconds <= 0) {
        platform_set_problem(&c->base, ret_why);
        return false;
    }
    int64_t now = clock_now_ms(c->base.env->clock), life = seconds * 1000;
    buf_wipe(&c->token.text);
    buf_add_str(&c->token.text, text);
    c->token.until_ms = now + life;
    c->token.refresh_ms = now + (life > 4 * AHEAD_MS ? life - AHEAD_MS : life * 3 / 4);
    c->token.fetched++;
    return true;
}

static bool is_good(const struct wecom *c)
{
    return c->token.text.n > 0 && clock_now_ms(c->base.env->clock) < c->token.until_ms;
}

static void on_fetched(void *ctx, const struct http_result *res)
{
    struct wecom *c = ctx;
    char why[160] = "";

    c->token.call = NULL;
    if (read_token(c, res, why))
        platform_set_problem(&c->base, NULL);
    sender_resume(c->base.sender, is_good(c) ? NULL : why);
}

static void write_token_path(const struct wecom_settings *cfg, struct buf *out)
{
    BUF_SECRET query = BUF_INIT;

    form_add(&query, "corpid", str_of(cfg->corp_id));
    form_add(&query, "corpsecret", str_of(cfg->secret));
    buf_add_z(out, "cgi-bin/gettoken?");
    buf_add_str(out, buf_str(&query));
}

/* WeCom returns the current token while it is valid, so the check does not invalidate it. */
enum bh_err wecom_token_check(const struct wecom_settings *cfg, char *ret_why)
{
    struct json_parser *parser = json_parser_new();
    BUF_SECRET path = BUF_INIT;
    struct json doc;
    int status;

    write_token_path(cfg, &path);
    enum bh_err err = platform_ask_api(&wecom_ops, &cfg->base, buf_str(&path),
                                       (struct http_fetch){0}, parser, &status, &doc, ret_why);
    if (err == BH_OK && status != 200)
        err = bh_err_why(BH_UNAVAILABLE, ret_why, "WeCom answered with HTTP %d", status);
    else if (err == BH_OK)
        err = is_token(doc, ret_why) ? BH_OK : BH_REFUSED;
    json_parser_free(parser);
    return err;
}

static struct str token_of(struct wecom *c)
{
    bool good = is_good(c);

    if (c->token.call == NULL &&
        (!good || clock_now_ms(c->base.env->clock) >= c->token.refresh_ms)) {
        BUF_SECRET url = BUF_INIT;
        buf_printf(&url, "%s/", c->base.api_base);
        write_token_path(c->cfg, &url);
        c->token.call = http_fetch(c->base.env->http,
                                   &(struct http_fetch){.url = buf_z(&url), .timeout_ms = FETCH_MS},
                                   on_fetched, c);
    }
    return good ? buf_str(&c->token.text) : STR_NULL;
}

void wecom_token_done(struct wecom *c)
{
    http_cancel(&c->token.call);
    buf_wipe(&c->token.text);
}

/* ---- files ---- */

static const struct {
    const char *kind, *type, *as;
    uint64_t max_bytes;
} carriers[] = {
    {"image", "image/png", "image", 10 << 20},
    {"image", "image/jpeg", "image", 10 << 20},
    {"voice", "audio/amr", "voice", 2 << 20},
    {"video", "video/mp4", "video", 10 << 20},
};

static const char *carrier_of(const struct attachment *a)
{
    for (size_t i = 0; i < ARRAY_LEN(carriers); i++)
        if (strcmp(carriers[i].kind, a->kind) == 0 && strcmp(carriers[i].type, a->type) == 0 &&
            a->size <= carriers[i].max_bytes)
            return carriers[i].as;
    return "file";
}

const char *wecom_no_file(struct platform *p, const struct attachment *a)
{
    if (a->size < 5)
        return "WeCom takes no file of less than five bytes";
    return a->size > (uint64_t)20 << 20 ? "WeCom takes no file of more than 20 MB" : NULL;
}

static bool uploads(struct outgoing *o)
{
    const struct text_outgoing *t = text_outgoing_of(o);

    return t->file.path != NULL && o->at == 0 && t->handle == NULL;
}

void wecom_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct wecom *c = wecom_of(p);
    struct str token = token_of(c);
    BUF_SECRET url = BUF_INIT, query = BUF_INIT;

    if (token.p == NULL) {
        host_media_gone(p->host, ask, "WeCom gives no access token now");
        return;
    }
    form_add(&query, "access_token", token);
    form_add(&query, "media_id", ref);
    buf_printf(&url, "%s/cgi-bin/media/get?", c->base.api_base);
    buf_add_str(&url, buf_str(&query));
    host_media_at(p->host, ask, &(struct media_at){.url = buf_str(&url)});
}

/* ---- messages ---- */

static const struct sender_refusal refusals[] = {
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
    {0},
};

/* WeCom's own id of the chat; absent: it is nobody of this corporation. */
static struct str person_of(const struct wecom *c, struct str chat)
{
    struct str corp = STR_NULL, rest = chat;

    if (!c->cfg->scoped_ids)
        return chat;
    str_split(&rest, ':', &corp);
    return str_eq(corp, str_of(c->cfg->corp_id)) && wecom_is_person(rest) ? rest : STR_NULL;
}

static void wecom_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                        struct sender_verdict *v)
{
    struct wecom *c = wecom_of(p);
    const struct text_outgoing *x = text_outgoing_of(o);
    struct str person = person_of(c, str_of(x->chat)), bot = platform_id(p), token;
    bool file = x->file.path != NULL;
    struct jw w = jw_begin(&q->body);
    BUF_SECRET query = BUF_INIT;
    uint64_t agent;

    if (person.p == NULL) {
        sender_say(v, SENDER_REFUSED, "chat_id is not the id of a person of this corporation");
        return;
    }
    token = token_of(c);
    if (token.p == NULL) {
        v->end = SENDER_HOLD;
        return;
    }
    if (uploads(o)) {
        const struct attachment *a = &text_outgoing_of(o)->file;
        BUF_SECRET upload = BUF_INIT;
        struct multipart m;
        form_add(&upload, "access_token", token);
        form_add(&upload, "type", str_of(carrier_of(a)));
        buf_printf(&q->url, "%s/cgi-bin/media/upload?", c->base.api_base);
        buf_add_str(&q->url, buf_str(&upload));
        multipart_begin(&m, c->base.env->rand);
        multipart_file(&m, "media", a);
        multipart_end(&m, a, q);
        q->timeout_ms = UPLOAD_MS;
        v->end = SENDER_GO;
        return;
    }
    form_add(&query, "access_token", token);
    buf_printf(&q->url, "%s/cgi-bin/message/send?", c->base.api_base);
    buf_add_str(&q->url, buf_str(&query));
    q->headers[0] = "Content-Type: application/json";
    q->once = true;
    jw_obj(&w);
    jw_kstr(&w, "touser", person);
    jw_key(&w, "agentid");
    if (str_to_u64(bot, &agent))
        jw_u64(&w, agent);
    else
        jw_str(&w, bot);
    const char *type = file && o->at == 0 ? carrier_of(&x->file) : "text";
    jw_kstr(&w, "msgtype", str_of(type));
    jw_kobj(&w, type);
    if (file && o->at == 0)
        jw_kstr(&w, "media_id", str_of(x->handle));
    else
        jw_kstr(&w, "content", split_part(&x->parts, file ? o->at - 1 : o->at));
    jw_end_obj(&w);
    jw_end_obj(&w);
    v->end = SENDER_GO;
}

static void read_code(struct wecom *c, int64_t code, struct sender_verdict *v)
{
    sender_say(v, SENDER_REFUSED, "WeCom refused this (errcode %" PRId64 ")", code);
    switch (code) {
    case 40001:
    case 40014:
    case 42001: /* the token is invalid or expired: fetch another one */
        buf_wipe(&c->token.text);
        sender_say(v, SENDER_AGAIN, "WeCom does not take its access tokens");
        return;
    case -1:
    case 45009: /* busy, or rate limited */
    case 45033:
        v->wait_ms = code == -1 ? 0 : 5000;
        sender_say(v, SENDER_AGAIN, "WeCom asks to wait");
        return;
    default:
        break;
    }
    const char *sentence = sender_refusal(refusals, code);
    if (sentence != NULL)
        sender_say(v, SENDER_REFUSED, "%s", sentence);
    if (code == 60020 || code == 40056)
        platform_set_problem(&c->base, v->why);
}

static void wecom_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                       struct sender_verdict *v)
{
    struct wecom *c = wecom_of(p);
    struct json doc;
    int64_t code = 0;

    if (res->status == 429 || res->status == 503) {
        v->wait_ms = res->retry_after_ms;
        sender_say(v, SENDER_AGAIN, "WeCom asks to wait");
        return;
    }
    if (res->status != 200 || !json_parse(c->base.answers, res->body, &doc) ||
        !json_as_i64(json_get(doc, "errcode"), &code)) {
        snprintf(v->why, sizeof v->why, "WeCom answered with HTTP %d; it may have been sent",
                 res->status);
        if (uploads(o))
            v->end = SENDER_AGAIN; /* an upload is idempotent */
        return;
    }
    if (code != 0) {
        read_code(c, code, v);
        return;
    }
    if (uploads(o)) {
        struct str handle = json_str(doc, "media_id");
        v->end = handle.n > 0 && handle.n < 512 ? SENDER_REWRITE : SENDER_FAILED;
        if (v->end == SENDER_REWRITE)
            text_outgoing_of(o)->handle = str_dup(handle);
        snprintf(v->why, sizeof v->why, "WeCom did not name the uploaded file");
        return;
    }
    if (json_str(doc, "invaliduser").n > 0) { /* lists the only recipient */
        read_code(c, 60111, v);
        return;
    }
    v->end = SENDER_DONE;
    snprintf(v->message_id, sizeof v->message_id, "%.*s", STR_FMT(json_str(doc, "msgid")));
    platform_set_problem(&c->base, NULL);
}

const struct sender_ops wecom_sender = {
    .write = wecom_write,
    .read = wecom_read,
    .free = text_outgoing_free,
};
