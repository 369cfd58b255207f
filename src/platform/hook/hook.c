/* hook.c - settings, open, close and check of one bot.  (hook_priv.h lists the other files.)
 *
 * The configuration is checked whole before a bot opens: pointers, templates, names of headers.  A
 * request is then made without surprises. */
#include "platform/hook/hook.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/addr.h"
#include "base/config.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/url.h"
#include "net/http_client.h"
#include "platform/hook/hook_priv.h"
#include "platform/hook/pointer.h"
#include "platform/hook/sign.h"
#include "platform/pace.h"
#include "platform/sender.h"

/* ---- settings ---- */

#define AT(member) offsetof(struct hook_settings, member)
#define MAX_LENGTH 4000
#define CHECK_MS 10000

static const struct config_key keys[] = {
    {"verify.hmac", CFG_ENUM, CFG_RESTART, AT(verify.hmac), "sha256", "sha256|sha1|token|none",
     .what = "How a webhook proves where it comes from: a signature (`sha256`, `sha1`), the secret "
             "itself in the header (`token`), or not at all (`none`: whoever knows the address may "
             "write)."},
    {"verify.header", CFG_TEXT, CFG_RESTART, AT(verify.header), .ask = "",
     .what = "The header with the signature."},
    {"verify.secret", CFG_SECRET, CFG_RESTART, AT(verify.secret), .ask = "",
     .what = "The secret that the service signs with."},
    {"verify.signed", CFG_TEXT, CFG_RESTART, AT(verify.covers), "{body}",
     .what = "What is signed, such as `{header:X-Timestamp}.{body}`."},
    {"verify.prefix", CFG_TEXT, CFG_RESTART, AT(verify.prefix),
     .what = "What stands before the signature in its header, such as `sha256=`."},
    {"verify.encoding", CFG_ENUM, CFG_RESTART, AT(verify.encoding), "hex", "hex|base64",
     .what = "How the signature is written."},
    {"verify.secret_encoding", CFG_ENUM, CFG_RESTART, AT(verify.secret_encoding), "text",
     "hex|base64|text", .what = "How the secret is written."},
    {"verify.timestamp_header", CFG_TEXT, CFG_RESTART, AT(verify.timestamp_header),
     .what = "A header with the time in seconds, which `signed` must name: an older webhook than "
             "five minutes is refused."},
    {"map.text", CFG_TEXT, CFG_RESTART, AT(map.text), .ask = "",
     .what = "A JSON pointer to the text of a message, such as `/message/text`."},
    {"map.chat_id", CFG_TEXT, CFG_RESTART, AT(map.chat_id), .ask = "",
     .what = "A JSON pointer to the id of the chat."},
    {"map.user_id", CFG_TEXT, CFG_RESTART, AT(map.user_id), .ask = "",
     .what = "A JSON pointer to the id of the author."},
    {"map.user_name", CFG_TEXT, CFG_RESTART, AT(map.user_name), .ask = "",
     .what = "A JSON pointer to the name of the author."},
    {"map.chat_name", CFG_TEXT, CFG_RESTART, AT(map.chat_name),
     .what = "A JSON pointer to the name of the chat."},
    {"map.event_id", CFG_TEXT, CFG_RESTART, AT(map.event_id), .ask = "",
     .what = "A JSON pointer to the id of the message, by which a repeated webhook is recognized. "
             "Without it two equal bodies are one message."},
    {"map.message_id", CFG_TEXT, CFG_RESTART, AT(map.message_id),
     .what = "A JSON pointer to the id that a reply names, where it is not that of `event_id`."},
    {"map.thread_id", CFG_TEXT, CFG_RESTART, AT(map.thread_id),
     .what = "A JSON pointer to the id of the thread."},
    {"map.reply_to", CFG_TEXT, CFG_RESTART, AT(map.reply_to),
     .what = "A JSON pointer to the id of the message that this one answers."},
    {"map.names", CFG_TEXT, CFG_RESTART, AT(map.names),
     .what = "A JSON pointer to an object: `{key}` in the text becomes the `name` of its member "
             "`key`."},
    {"map.skip_if", CFG_TEXTS, CFG_RESTART, AT(map.skip_if),
     .what = "Webhooks to ignore: a list of conditions, such as `/bot`, `/type=edit` or "
             "`/type!=message`."},
    {"chat_type", CFG_ENUM, CFG_RESTART, AT(chat_type), "group", "group|dm",
     .what = "Are chats groups of people, or one person each?"},
    {"send.url", CFG_TEXT, CFG_RESTART, AT(send.url), .ask = "",
     .what = "Where answers are posted: a template."},
    {"send.headers", CFG_JSON, CFG_RESTART, AT(send.headers),
     .what = "Headers of that request: names, and templates, such as `{Authorization: \"Bearer "
             "{secret}\"}`."},
    {"send.body", CFG_JSON, CFG_RESTART, AT(send.body), "{\"text\": \"{text}\"}",
     .what = "Its body: JSON whose texts are templates."},
    {"send.secret", CFG_SECRET, CFG_RESTART, AT(send.secret),
     .what = "The secret that `{secret}` stands for in `url` and `headers`."},
    {"send.message_id", CFG_TEXT, CFG_RESTART, AT(send.message_id),
     .what = "A JSON pointer into the answer, to the id of the sent message."},
    {"send.max_length", CFG_NUMBER, CFG_RESTART, AT(send.max_length), "4000", .min = 64,
     .max = 100000, .what = "A longer text is split; in UTF-16 units."},
    {"send.per_second", CFG_NUMBER, CFG_RESTART, AT(send.per_second), "0", .max = 1000,
     .what = "The most requests in a second. 0: no limit."},
    {"send.allow_private", CFG_BOOL, CFG_RESTART, AT(send.allow_private), "false",
     .what = "`url` may be a private or loopback address, and `http://`."},
    {"send.sign.hmac", CFG_ENUM, CFG_RESTART, AT(send.sign.hmac), "sha256", "sha256|sha1",
     .what = "Sign the request: as `verify.hmac`."},
    {"send.sign.header", CFG_TEXT, CFG_RESTART, AT(send.sign.header),
     .what = "The header for the signature. Without it the request is not signed."},
    {"send.sign.secret", CFG_SECRET, CFG_RESTART, AT(send.sign.secret),
     .what = "The secret to sign with. Without it that of `verify`."},
    {"send.sign.signed", CFG_TEXT, CFG_RESTART, AT(send.sign.covers), "{body}",
     .what = "What is signed: a template, which may also name headers of the request."},
    {"send.sign.prefix", CFG_TEXT, CFG_RESTART, AT(send.sign.prefix),
     .what = "As `verify.prefix`."},
    {"send.sign.encoding", CFG_ENUM, CFG_RESTART, AT(send.sign.encoding), "hex", "hex|base64",
     .what = "As `verify.encoding`."},
    {"send.sign.secret_encoding", CFG_ENUM, CFG_RESTART, AT(send.sign.secret_encoding), "text",
     "hex|base64|text", .what = "As `verify.secret_encoding`."},
    {"send.sign.timestamp_header", CFG_TEXT, CFG_RESTART, AT(send.sign.timestamp_header),
     .what = "A header that gets the time in seconds."},
    {0},
};

static bool is_header_name(struct str name)
{
    return name.n > 0 && name.n <= 100 && str_has_only(name, "!#$%&'*+-.^_`|~");
}

/* Headers that HTTP itself needs. */
static bool is_reserved(struct str name)
{
    static const char *const all[] = {"Host",       "Content-Length", "Transfer-Encoding",
                                      "Connection", "Expect",         "Upgrade"};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (str_eq_ci(name, str_of(all[i])))
            return true;
    return false;
}

static bool check_bot_name(struct str bot, char *ret_why)
{
    if (bot.n <= 64 && bot.n > 0 && str_has_only(platform_id_in(bot), "-_."))
        return true;
    return bh_why(ret_why, "`bot` of a hook is a name of yours: letters, digits, - _ and ., at "
                           "most 64");
}

static bool check_sign(const struct hook_sign *s, const char *where, unsigned allowed,
                       char *ret_why)
{
    BUF_SECRET key = BUF_INIT;
    unsigned used = 0;
    char why[256];

    if (!is_header_name(str_of(s->header)) ||
        (s->timestamp_header != NULL && !is_header_name(str_of(s->timestamp_header))))
        return bh_why(ret_why, "`%s`: the name of a header has letters, digits and dashes", where);
    if (str_until_control(str_of(s->prefix)) < str_of(s->prefix).n)
        return bh_why(ret_why, "`%s.prefix` has a control character", where);
    if (!template_check(str_of(s->covers), allowed, &used, why))
        return bh_why(ret_why, "`%s.signed`: %.200s", where, why);
    if (s->hmac != HOOK_TOKEN && !hook_key(s, &key))
        return bh_why(ret_why, "`%s.secret` is not written as `secret_encoding` says", where);
    return true;
}

static bool check_verify(const struct hook_settings *s, char *ret_why)
{
    const struct hook_sign *v = &s->verify;
    unsigned body = TEMPLATE_BIT(TEMPLATE_BODY), used = 0;

    if (v->hmac == HOOK_NONE) {
        if (v->header != NULL || v->secret != NULL)
            return bh_why(ret_why, "`verify.hmac: none` verifies nothing: remove it, or `header` "
                                   "and `secret`");
        return true;
    }
    if (v->header == NULL || v->secret == NULL)
        return bh_why(ret_why,
                      "a hook needs `verify.header` and `verify.secret` (or `secret_file`), or "
                      "`verify: {hmac: none}` if whoever knows its address may write");
    if (!check_sign(v, "verify", body | TEMPLATE_BIT(TEMPLATE_HEADER), ret_why))
        return false;
    if (v->hmac == HOOK_TOKEN)
        return true;
    if (!template_check(str_of(v->covers), ~0u, &used, ret_why) || !(used & body))
        return bh_why(ret_why, "`verify.signed` must have {body}: else anybody could change it");
    if (v->timestamp_header != NULL &&
        !template_names_header(str_of(v->covers), str_of(v->timestamp_header)))
        return bh_why(ret_why,
                      "`verify.signed` must have {header:%.60s}: a time that is not signed proves "
                      "nothing",
                      v->timestamp_header);
    return true;
}

static bool check_map(const struct hook_settings *s, char *ret_why)
{
    const struct {
        const char *name, *pointer;
        bool needed;
    } all[] = {
        {"map.text", s->map.text, true},
        {"map.chat_id", s->map.chat_id, true},
        {"map.user_id", s->map.user_id, true},
        {"map.user_name", s->map.user_name, false},
        {"map.chat_name", s->map.chat_name, false},
        {"map.event_id", s->map.event_id, false},
        {"map.message_id", s->map.message_id, false},
        {"map.thread_id", s->map.thread_id, false},
        {"map.reply_to", s->map.reply_to, false},
        {"map.names", s->map.names, false},
        {"send.message_id", s->send.message_id, false},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        const char *wrong = all[i].pointer != NULL ? pointer_wrong(str_of(all[i].pointer)) : NULL;
        if (all[i].needed && all[i].pointer == NULL)
            return bh_why(ret_why, "a hook needs `map.text`, `map.chat_id` and `map.user_id`");
        if (wrong != NULL)
            return bh_why(ret_why, "`%s`: %s", all[i].name, wrong);
    }
    for (char **c = s->map.skip_if; c != NULL && *c != NULL; c++)
        if (condition_wrong(str_of(*c)) != NULL)
            return bh_why(ret_why, "`map.skip_if` \"%.60s\": %s", *c, condition_wrong(str_of(*c)));
    return true;
}

/* A value in the name of the host could send the secret elsewhere, so templates come after it. */
static bool check_url(const struct hook_settings *s, unsigned *used, char *ret_why)
{
    struct str url = str_of(s->send.url);
    bool plain = str_starts(url, STR("http://"));
    size_t from = plain ? 7 : 8, end = from;
    struct url parts;
    char why[256];

    if (url.n == 0 || (!plain && !str_starts(url, STR("https://"))))
        return bh_why(ret_why, "a hook needs `send.url`, which begins with https://");
    if (plain && !s->send.allow_private)
        return bh_why(ret_why, "`send.url` begins with https://, or with http:// if "
                               "`send.allow_private` is true");
    while (end < url.n && url.p[end] != '/' && url.p[end] != '?')
        end++;
    const char *wrong = url_split(str_make(url.p, end), &parts);
    if (wrong != NULL || parts.user.p != NULL || str_find(str_make(url.p, end), '{') >= 0)
        return bh_why(ret_why, "`send.url`: its host has no placeholder and no user%s%s",
                      wrong != NULL ? "; " : "", wrong != NULL ? wrong : "");
    if (str_until_control(url) < url.n || str_find(url, ' ') >= 0 || str_find(url, '#') >= 0)
        return bh_why(ret_why, "`send.url` has a blank or a #");
    if (!template_check(url, TEMPLATE_REQUEST | TEMPLATE_BIT(TEMPLATE_SECRET), used, why))
        return bh_why(ret_why, "`send.url`: %.200s", why);
    return true;
}

static bool check_headers(struct json headers, unsigned *used, char *ret_why)
{
    unsigned allowed = TEMPLATE_REQUEST | TEMPLATE_BIT(TEMPLATE_SECRET);
    char why[256];

    if (json_type(headers) != JSON_ABSENT && !json_is_object(headers))
        return bh_why(ret_why, "`send.headers` is a section of names and values");
    /* A timestamp, a signature and a content type may follow. */
    if (json_count(headers) > SENDER_MAX_HEADERS - 3)
        return bh_why(ret_why, "`send.headers` has more than %d headers", SENDER_MAX_HEADERS - 3);
    for (struct json_iter it = {0}; json_next(headers, &it);) {
        if (!is_header_name(it.key) || is_reserved(it.key))
            return bh_why(ret_why, "`send.headers`: \"%.*s\" is not a header that can be set",
                          it.key.n < 60 ? (int)it.key.n : 60, it.key.p);
        if (json_type(it.value) != JSON_STRING ||
            str_until_control(json_as_str(it.value)) < json_as_str(it.value).n)
            return bh_why(ret_why,
                          "`send.headers`: the value of \"%.*s\" is not a text of one line",
                          STR_FMT(it.key));
        if (!template_check(json_as_str(it.value), allowed, used, why))
            return bh_why(ret_why, "`send.headers`: %.200s", why);
    }
    return true;
}

/* `send.sign` may leave out the secret of `verify`. */
static struct hook_sign sign_of(const struct hook_settings *s)
{
    struct hook_sign sign = s->send.sign;

    if (sign.secret == NULL) {
        sign.secret = s->verify.secret;
        sign.secret_encoding = s->verify.secret_encoding;
    }
    return sign;
}

static bool check_send(const struct hook_settings *s, struct json headers, struct json body,
                       char *ret_why)
{
    unsigned used = 0;
    char why[256];
    struct hook_sign sign = sign_of(s);

    if (!check_url(s, &used, ret_why) || !check_headers(headers, &used, ret_why))
        return false;
    if (!template_check_json(body, TEMPLATE_REQUEST, &used, why))
        return bh_why(ret_why, "`send.body`: %.200s", why);
    if (!(used & TEMPLATE_BIT(TEMPLATE_TEXT)))
        return bh_why(ret_why, "`send` has no {text}: nothing of an answer would be sent");
    if ((used & TEMPLATE_BIT(TEMPLATE_SECRET)) && s->send.secret == NULL)
        return bh_why(ret_why, "`send` has {secret}, and there is no `send.secret`");
    if (s->send.secret != NULL &&
        str_until_control(str_of(s->send.secret)) < strlen(s->send.secret))
        return bh_why(ret_why, "`send.secret` has a control character");
    if (sign.header == NULL)
        return true;
    if (sign.secret == NULL)
        return bh_why(ret_why, "`send.sign` needs `secret`");
    return check_sign(&sign, "send.sign",
                      TEMPLATE_REQUEST | TEMPLATE_BIT(TEMPLATE_BODY) |
                          TEMPLATE_BIT(TEMPLATE_HEADER),
                      ret_why);
}

static bool check(void *settings, char *ret_why)
{
    const struct hook_settings *s = settings;
    struct json_parser *a = json_parser_new(), *b = json_parser_new();
    struct json headers = {0}, body = {0};
    bool ok = check_bot_name(str_of(s->base.bot), ret_why) && check_verify(s, ret_why) &&
              check_map(s, ret_why);

    if (ok && s->send.headers != NULL)
        ok = json_parse(a, str_of(s->send.headers), &headers);
    if (ok)
        ok = json_parse(b, str_of(s->send.body), &body) && check_send(s, headers, body, ret_why);
    json_parser_free(a);
    json_parser_free(b);
    return ok;
}

const struct config_section hook_config = {.name = "hook",
                                           .keys = keys,
                                           .size = sizeof(struct hook_settings),
                                           .check = check};

/* ---- life ---- */

static const struct descriptor descriptor = {
    .platform = "webhook",
    .label = "Webhook",
    .max_message_length = MAX_LENGTH,
    .markdown_dialect = "plain",
    .len_unit = "utf16",
    .ops = 1u << ACTION_SEND | 1u << ACTION_GET_CHAT_INFO | 1u << ACTION_PROMPT,
};

static void hook_close(struct platform *p)
{
    struct hook *h = hook_of(p);

    json_parser_free(h->inner);
    json_parser_free(h->templates);
    json_parser_free(h->header_tree);
    buf_wipe(&h->verify_key);
    buf_wipe(&h->sign_key);
    buf_wipe(&h->lines);
    pace_free(h->pace);
    hook_out_done(&h->out);
}

/* Does a part of the request name `{key}`? */
static bool has_key(const struct hook *h)
{
    unsigned used = 0;
    char why[256];

    return template_check(str_of(h->cfg->send.url), ~0u, &used, why) &&
           template_check_json(h->headers, ~0u, &used, why) &&
           template_check_json(h->body, ~0u, &used, why) && (used & TEMPLATE_BIT(TEMPLATE_KEY));
}

static enum bh_err hook_open(struct platform *p, char *ret_why)
{
    struct hook *h = hook_of(p);
    const struct hook_settings *s = container_of(p->settings, const struct hook_settings, base);
    struct hook_sign sign = sign_of(s);

    h->cfg = s;
    h->inner = json_parser_new();
    h->templates = json_parser_new();
    h->header_tree = json_parser_new();
    if (!json_parse(h->templates, str_of(s->send.body), &h->body) ||
        (s->send.headers != NULL &&
         !json_parse(h->header_tree, str_of(s->send.headers), &h->headers)))
        return bh_err_why(BH_MALFORMED, ret_why, "`send` is not JSON");
    if (s->verify.secret != NULL)
        hook_key(&s->verify, &h->verify_key);
    if (sign.secret != NULL)
        hook_key(&sign, &h->sign_key);
    h->keyed = has_key(h);
    if (s->send.per_second > 0) {
        h->pace_rules = (struct pace_rules){.per_second = s->send.per_second, .burst = 1};
        h->pace = pace_new(p->env->clock, &h->pace_rules);
    }
    h->descriptor = descriptor;
    h->descriptor.max_message_length = (int)s->send.max_length;
    p->descriptor = &h->descriptor;
    if (s->verify.hmac == HOOK_NONE)
        log_warn(&p->log, "webhooks are not verified: whoever knows the address may write");
    return BH_OK;
}

/* ---- check ---- */

/* Asks the host of `send.url` for any answer; what the service thinks of a message shows only when
 * one is sent. */
static enum bh_err hook_check(const struct platform_settings *settings, struct platform_report *ret,
                              char *ret_why)
{
    const struct hook_settings *s = container_of(settings, const struct hook_settings, base);
    BUF_LOCAL url = BUF_INIT, body = BUF_INIT;
    struct url parts;
    struct str rest = str_of(s->send.url);
    size_t end = str_starts(rest, STR("http://")) ? 7 : 8;
    int status = 0;

    ret->webhook = true;
    while (end < rest.n && rest.p[end] != '/' && rest.p[end] != '?')
        end++;
    buf_add(&url, rest.p, end);
    if (url_split(buf_str(&url), &parts) != NULL)
        return bh_err_why(BH_REFUSED, ret_why, "`send.url` is not an address");
    platform_tell(ret->name, sizeof ret->name, parts.authority);
    buf_add_c(&url, '/');
    enum bh_err err = http_fetch_now(&(struct http_fetch){.url = buf_z(&url),
                                                          .timeout_ms = CHECK_MS,
                                                          .public_only = !s->send.allow_private},
                                     &status, &body, ret_why);
    if (err == BH_REFUSED)
        return bh_err_why(BH_REFUSED, ret_why,
                          "the address of `send.url` is private: set `send.allow_private: true` if "
                          "that is meant");
    if (s->verify.hmac == HOOK_NONE)
        platform_warn(ret, "webhooks are not verified (`verify.hmac: none`): whoever knows the "
                           "address may write");
    return err == BH_OK || err == BH_MALFORMED ? BH_OK : BH_UNAVAILABLE;
}

static void hook_status(struct platform *p, struct jw *w)
{
    static const char *const words[] = {"sha256", "sha1", "token", "none"};

    jw_kstr(w, "verify", str_of(words[hook_of(p)->cfg->verify.hmac]));
}

const struct platform_ops hook_ops = {
    .name = "hook",
    .config = &hook_config,
    .descriptor = &descriptor,
    .size = sizeof(struct hook),
    .label = "the service",
    .sender = &hook_sender,
    .open = hook_open,
    .close = hook_close,
    .check = hook_check,
    .steps = "Read in the service's documentation how its webhooks are signed and what they look "
             "like;\ndocs/platforms/hook.md explains the keys, and examples/hook has ready "
             "formats.",
    .bot_is = "A name of yours for the service; its webhook address ends with it",
    .act = hook_act,
    .http = hook_http,
    .status = hook_status,
};
