/* twilio.c - settings, open, close, check and status of one Twilio bot.  (twilio_priv.h lists the
 * other files.) */
#include "platform/twilio/twilio.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "net/http_client.h"
#include "platform/twilio/twilio_priv.h"

/* ---- settings ---- */

#define AT(member) offsetof(struct twilio_settings, member)

static const struct config_key keys[] = {
    {"account_sid", CFG_TEXT, CFG_RESTART, AT(account_sid), .ask = "", .what = "Account SID."},
    {"auth_token", CFG_SECRET, CFG_RESTART, AT(auth_token), .ask = "", .what = "Auth token."},
    {"plane", CFG_CHOICE, CFG_RESTART, AT(plane), NULL, "inbound|passthrough",
     .what = "`inbound` or `passthrough`."},
    PLATFORM_KEY_API_BASE,
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct twilio_settings *s = settings;

    if (s->account_sid == NULL || s->auth_token == NULL)
        return bh_why(ret_why, "a twilio platform needs `account_sid` and `auth_token`");
    bool ok = str_has_only(str_of(s->account_sid), "");
    if (!ok)
        snprintf(ret_why, 256, "`account_sid` is not a SID: it has letters and digits only");
    return ok;
}

const struct config_section twilio_config = {.name = "twilio",
                                             .keys = keys,
                                             .size = sizeof(struct twilio_settings),
                                             .check = check};

/* ---- life ---- */

static const struct text_ops texts = {
    .limits = {.max = 1600, .unit = SPLIT_UTF16}, /* Twilio says "characters": the stricter unit */
    .is_chat = twilio_address_ok,
    .no_file = twilio_no_file,
    .no_chat = "chat_id is not a number Twilio could write to",
};

static void write_auth(const struct twilio_settings *cfg, struct buf *out)
{
    BUF_SECRET pair = BUF_INIT;

    buf_printf(&pair, "%s:%s", cfg->account_sid, cfg->auth_token);
    buf_add_z(out, "Authorization: Basic ");
    base64_add(out, pair.p, pair.n);
}

/* Only Twilio's own host gets the credential; the storage it redirects to does not. */
static void twilio_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct twilio *t = twilio_of(p);
    const char *headers[] = {buf_z(&t->auth), NULL};
    bool own = platform_owns_url(NULL, ref, str_of(p->api_base));

    host_media_at(p->host, ask,
                  &(struct media_at){.url = ref,
                                     .headers = own ? headers : NULL,
                                     .foreign = !own,
                                     .redirects = true});
}

static void twilio_close(struct platform *p)
{
    struct twilio *t = twilio_of(p);

    form_done(&t->form);
    twilio_out_done(&t->out);
    buf_wipe(&t->auth);
}

static enum bh_err twilio_open(struct platform *p, char *ret_why)
{
    struct twilio *t = twilio_of(p);

    t->cfg = container_of(p->settings, const struct twilio_settings, base);
    write_auth(t->cfg, &t->auth);
    t->passthrough = t->cfg->plane != NULL && strcmp(t->cfg->plane, "passthrough") == 0;
    if (p->env->public_url == NULL)
        log_warn(&p->log, "`public_url` is not set, so the signed address is taken from the Host "
                          "header: set `public_url` if a proxy stands before bellhop");
    return BH_OK;
}

/* ---- check ---- */

static enum bh_err ask(const struct twilio_settings *cfg, const char *what, struct str number,
                       struct json_parser *parser, int *ret_status, struct json *ret_doc,
                       char *ret_why)
{
    BUF_LOCAL path = BUF_INIT;
    BUF_SECRET auth = BUF_INIT;

    write_auth(cfg, &auth);
    buf_printf(&path, "2010-04-01/Accounts/%s%s", cfg->account_sid, what);
    percent_encode(&path, number);
    const char *const headers[] = {buf_z(&auth), NULL};
    return platform_ask_api(&twilio_ops, &cfg->base, buf_str(&path),
                            (struct http_fetch){.headers = headers}, parser, ret_status, ret_doc,
                            ret_why);
}

/* Checks Twilio's description of the account. */
static enum bh_err read_account(int status, struct json doc, char *ret_why)
{
    struct str state = json_str(doc, "status");

    if (status == 401 || status == 403 || status == 404)
        return bh_err_why(BH_REFUSED, ret_why,
                          "Twilio refuses the credentials: put the current `account_sid` and "
                          "`auth_token` into bellhop's config");
    if (status != 200)
        return bh_err_why(BH_UNAVAILABLE, ret_why, "Twilio answered with HTTP %d", status);
    if (state.n > 0 && !str_eq(state, STR("active")))
        return bh_err_why(BH_REFUSED, ret_why, "the Twilio account is %.*s: see its console",
                          state.n < 40 ? (int)state.n : 40, state.p);
    return BH_OK;
}

/* Checks the address that Twilio calls for the number of the bot.  Numbers of other kinds, such as
 * WhatsApp senders, are not in this list of Twilio's. */
static void report_number(const struct twilio_settings *cfg, struct json list,
                          struct platform_report *ret)
{
    struct json numbers = json_get(list, "incoming_phone_numbers");
    struct json_iter it = {0};
    BUF_LOCAL path = BUF_INIT;

    if (json_type(numbers) != JSON_ARRAY)
        return;
    if (!json_next(numbers, &it)) {
        platform_warn(ret, "the account has no number %s", cfg->base.bot);
        return;
    }
    struct str url = json_str(it.value, "sms_url");
    buf_add_z(&path, "/webhooks/twilio/");
    percent_encode(&path, str_of(cfg->base.bot));
    if (!str_ends(url, buf_str(&path)) && !str_ends(url, str_of(cfg->base.bot)))
        platform_warn(
            ret,
            "Twilio does not send this number's messages to bellhop: in the console, Phone "
            "Numbers, %s, Messaging, set the webhook to your public_url and %s",
            cfg->base.bot, buf_z(&path));
}

static enum bh_err twilio_check(const struct platform_settings *settings,
                                struct platform_report *ret, char *ret_why)
{
    const struct twilio_settings *cfg = container_of(settings, const struct twilio_settings, base);
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    int status = 0;
    enum bh_err err = ask(cfg, ".json", STR_NULL, parser, &status, &doc, ret_why);

    ret->webhook = true;
    if (err == BH_OK)
        err = read_account(status, doc, ret_why);
    if (err == BH_OK) {
        platform_tell(ret->name, sizeof ret->name, json_str(doc, "friendly_name"));
        snprintf(ret->reach, sizeof ret->reach, "send a message to %.60s", cfg->base.bot);
        char unused[256];
        if (cfg->base.bot[0] == '+' &&
            ask(cfg, "/IncomingPhoneNumbers.json?PhoneNumber=", str_of(cfg->base.bot), parser,
                &status, &doc, unused) == BH_OK)
            report_number(cfg, doc, ret);
    }
    json_parser_free(parser);
    return err;
}

static void twilio_status(struct platform *p, struct jw *w)
{
    jw_kstr(w, "plane", str_of(twilio_of(p)->passthrough ? "passthrough" : "inbound"));
}

static const struct descriptor descriptor = {
    .platform = "twilio",
    .label = "SMS and WhatsApp",
    .max_message_length = 1600,
    .markdown_dialect = "plain",
    .len_unit = "chars",
    .pii_safe = true,
    .ops = 1u << ACTION_SEND | 1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA |
           1u << ACTION_PROMPT,
};

const struct platform_ops twilio_ops = {
    .name = "twilio",
    .config = &twilio_config,
    .descriptor = &descriptor,
    .size = sizeof(struct twilio),
    .label = "Twilio",
    .api_base = "https://api.twilio.com",
    .sender = &twilio_sender,
    .texts = &texts,
    .open = twilio_open,
    .close = twilio_close,
    .check = twilio_check,
    .steps = "Open https://console.twilio.com and buy a number that can send messages.\n"
             "Copy the Account SID and the Auth Token from the console's first page.",
    .bot_is = "The number that people write to, with its +, or a messaging service (MG...)",
    .act = text_act,
    .http = twilio_http,
    .media_where = twilio_media_where,
    .status = twilio_status,
};
