/* wecom.c - settings, open, close, check and status of one WeCom agent.  (wecom_priv.h lists the
 * other files.) */
#include "platform/wecom/wecom.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/wecom/wecom_priv.h"

/* ---- settings ---- */

#define AT(member) offsetof(struct wecom_settings, member)

static const struct config_key keys[] = {
    {"corp_id", CFG_TEXT, CFG_RESTART, AT(corp_id), .ask = "", .what = "Corp id."},
    {"secret", CFG_SECRET, CFG_RESTART, AT(secret), .ask = "", .what = "The agent's secret."},
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .ask = "", .what = "The callback's token."},
    {"encoding_aes_key", CFG_SECRET, CFG_RESTART, AT(encoding_aes_key), .ask = "",
     .what = "The callback's EncodingAESKey."},
    {"scoped_ids", CFG_BOOL, CFG_RESTART, AT(scoped_ids), "false",
     .what = "Ids of people are corp_id:user. For a second corporation, where people may have the "
             "same ids as in the first."},
    PLATFORM_KEY_API_BASE,
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct wecom_settings *s = settings;
    uint8_t key[WECOM_KEY_BYTES];

    if (s->corp_id == NULL || s->secret == NULL || s->token == NULL || s->encoding_aes_key == NULL)
        return bh_why(ret_why,
                      "a wecom platform needs `corp_id`, `secret`, `token` and `encoding_aes_key`");
    bool ok = wecom_key_parse(str_of(s->encoding_aes_key), key);
    secret_wipe(key, sizeof key);
    if (!ok)
        snprintf(ret_why, 256,
                 "`encoding_aes_key` is not an EncodingAESKey: copy the 43 characters from the "
                 "callback's settings");
    return ok;
}

/* An agent knows people by their ids, which are unique in a corporation only. */
static bool fits(const struct platform_settings *a, const struct platform_settings *b,
                 char *ret_why)
{
    const struct wecom_settings *x = container_of(a, const struct wecom_settings, base);
    const struct wecom_settings *y = container_of(b, const struct wecom_settings, base);

    return strcmp(x->corp_id, y->corp_id) == 0 || x->scoped_ids || y->scoped_ids ||
           bh_why(ret_why,
                  "the wecom bots %.60s and %.60s are of two corporations, where different people "
                  "may have one id: give one `scoped_ids: true`, or each a `tenant` of its own",
                  a->bot, b->bot);
}

const struct config_section wecom_config = {.name = "wecom",
                                            .keys = keys,
                                            .size = sizeof(struct wecom_settings),
                                            .check = check};

/* ---- life ---- */

/* WeCom reads "a|b" as several people and "@all" as everybody: both are refused. */
bool wecom_is_person(struct str chat_id)
{
    return chat_id.n > 0 && chat_id.n <= 128 && str_find(chat_id, '|') < 0 && chat_id.p[0] != '@';
}

static const struct text_ops texts = {
    .limits = {.max = 2048, .unit = SPLIT_CHARS, .max_bytes = 2048},
    .is_chat = wecom_is_person,
    .no_file = wecom_no_file,
    .file_alone = true,
    .no_chat = "chat_id is not the id of a person in WeCom",
};

static void wecom_close(struct platform *p)
{
    struct wecom *c = wecom_of(p);

    wecom_token_done(c);
    wecom_xml_free(c->xml);
    wecom_xml_free(c->inner);
    wecom_out_done(&c->out);
    buf_done(&c->person);
    secret_wipe(c->key, sizeof c->key);
}

static enum bh_err wecom_open(struct platform *p, char *ret_why)
{
    struct wecom *c = wecom_of(p);

    c->cfg = container_of(p->settings, const struct wecom_settings, base);
    if (!wecom_key_parse(str_of(c->cfg->encoding_aes_key), c->key))
        abort(); /* check() accepted the settings */
    c->xml = wecom_xml_new();
    c->inner = wecom_xml_new();
    return BH_OK;
}

static enum bh_err wecom_check(const struct platform_settings *settings,
                               struct platform_report *ret, char *ret_why)
{
    ret->webhook = true;
    snprintf(ret->reach, sizeof ret->reach, "open the app in WeCom and write to it");
    return wecom_token_check(container_of(settings, const struct wecom_settings, base), ret_why);
}

static void wecom_status(struct platform *p, struct jw *w)
{
    jw_ki64(w, "tokensFetched", (int64_t)wecom_of(p)->token.fetched);
}

static const struct descriptor descriptor = {
    .platform = "wecom",
    .label = "WeCom",
    .max_message_length = 2048,
    .markdown_dialect = "plain",
    .len_unit = "chars",
    .ops = 1u << ACTION_SEND | 1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA |
           1u << ACTION_PROMPT,
};

const struct platform_ops wecom_ops = {
    .name = "wecom",
    .config = &wecom_config,
    .descriptor = &descriptor,
    .size = sizeof(struct wecom),
    .label = "WeCom",
    .api_base = "https://qyapi.weixin.qq.com",
    .sender = &wecom_sender,
    .texts = &texts,
    .open = wecom_open,
    .close = wecom_close,
    .check = wecom_check,
    .fits = fits,
    .steps =
        "Open https://work.weixin.qq.com, App Management, and create an app.\n"
        "Copy its AgentId and Secret, and the Company ID from My Company.\n"
        "Receive Messages, Set API reception: copy Token and EncodingAESKey; save it there only\n"
        "after bellhop runs.\n"
        "Add the address that bellhop sends from to the app's trusted IPs.",
    .bot_is = "The AgentId of the app: 1000002",
    .act = text_act,
    .http = wecom_http,
    .media_where = wecom_media_where,
    .status = wecom_status,
};
