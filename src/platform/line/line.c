/* line.c - settings, open, close and check of one bot; finds people's files.  (line_priv.h lists
 * the other files.) */
#include "platform/line/line.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/percent.h"
#include "net/http_client.h"
#include "platform/line/line_priv.h"

/* ---- settings ---- */

#define AT(member) offsetof(struct line_settings, member)
#define DATA_BASE "https://api-data.line.me"
#define MAX_TEXT 5000

enum { MAX_QUOTES = 8192, MAX_CHATS = 4096 };

static const struct config_key keys[] = {
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .ask = "",
     .what = "The channel access token, long-lived."},
    {"channel_secret", CFG_SECRET, CFG_RESTART, AT(channel_secret), .ask = "",
     .what = "The channel secret, which proves that a webhook is LINE's."},
    PLATFORM_KEY_API_BASE,
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct line_settings *s = settings;

    if (s->token == NULL || s->channel_secret == NULL)
        return bh_why(ret_why, "a line platform needs `token` and `channel_secret`");
    if (!str_has_only(str_of(s->token), "+/=-_."))
        return bh_why(ret_why, "`token` does not look like a channel access token");
    return true;
}

const struct config_section line_config = {.name = "line",
                                           .keys = keys,
                                           .size = sizeof(struct line_settings),
                                           .check = check};

/* ---- life ---- */

static const struct text_ops texts = {
    .limits = {.max = MAX_TEXT, .unit = SPLIT_UTF16},
    .is_chat = line_is_id,
    .no_file = line_no_file,
    .file_alone = true,
    .no_chat = "chat_id is not an id of LINE",
};

static void quote_free(struct lru *l, void *entry)
{
    free(((struct line_quote *)entry)->token);
}

static enum bh_err line_open(struct platform *p, char *ret_why)
{
    struct line *l = line_of(p);

    l->cfg = container_of(p->settings, const struct line_settings, base);
    buf_printf(&l->auth, "Authorization: Bearer %s", l->cfg->token);
    list_init(&l->batches);
    l->quotes = (struct lru){.max = MAX_QUOTES, .free = quote_free};
    l->chats.max = MAX_CHATS;
    return BH_OK;
}

static void line_close(struct platform *p)
{
    struct line *l = line_of(p);

    line_batches_cancel(l);
    line_out_done(&l->out);
    lru_done(&l->quotes);
    lru_done(&l->chats);
    buf_wipe(&l->auth);
    buf_done(&l->retry_key);
}

static void line_forget(struct platform *p, struct str person)
{
    struct line *l = line_of(p);
    struct line_chat *c = lru_find(&l->chats, person);

    if (c != NULL)
        lru_drop(&l->chats, c);
}

/* LINE keeps files at a host of their own; `api_base` stands for both. */
static void line_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct line *l = line_of(p);
    const char *const headers[] = {buf_z(&l->auth), NULL};
    BUF_LOCAL url = BUF_INIT;

    buf_printf(&url, "%s/v2/bot/message/", l->cfg->base.api_base != NULL ? p->api_base : DATA_BASE);
    percent_encode(&url, ref);
    buf_add_z(&url, "/content");
    host_media_at(p->host, ask, &(struct media_at){.url = buf_str(&url), .headers = headers});
}

/* ---- check ---- */

static enum bh_err line_check(const struct platform_settings *settings, struct platform_report *ret,
                              char *ret_why)
{
    const struct line_settings *cfg = container_of(settings, const struct line_settings, base);
    struct json_parser *parser = json_parser_new();
    BUF_SECRET auth = BUF_INIT;
    struct json doc = {0};
    int status = 0;

    buf_printf(&auth, "Authorization: Bearer %s", cfg->token);
    const char *const headers[] = {buf_z(&auth), NULL};
    enum bh_err err =
        platform_ask_api(&line_ops, settings, STR("v2/bot/info"),
                         (struct http_fetch){.headers = headers}, parser, &status, &doc, ret_why);
    ret->webhook = true;
    if (err == BH_OK && status == 200) {
        platform_tell(ret->bot, sizeof ret->bot, json_str(doc, "userId"));
        platform_tell(ret->name, sizeof ret->name, json_str(doc, "displayName"));
        struct str basic = json_str(doc, "basicId");
        if (basic.n > 0 && basic.n < 100)
            snprintf(ret->reach, sizeof ret->reach, "https://line.me/R/ti/p/%.*s", STR_FMT(basic));
    } else if (err == BH_OK) {
        err = bh_err_why(BH_REFUSED, ret_why,
                         "LINE refuses the channel access token (HTTP %d): copy it again from the "
                         "LINE Developers Console, Messaging API",
                         status);
    }
    json_parser_free(parser);
    return err;
}

/* LINE sends a webhook again until all of it is taken, and does not tell for how long. */
#define REPEATS_MS ((int64_t)8 * 24 * 3600 * 1000)

static const struct descriptor descriptor = {
    .platform = "line",
    .label = "LINE",
    .max_message_length = MAX_TEXT,
    .markdown_dialect = "plain",
    .len_unit = "utf16",
    .ops = 1u << ACTION_SEND | 1u << ACTION_TYPING | 1u << ACTION_GET_CHAT_INFO |
           1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT,
};

const struct platform_ops line_ops = {
    .name = "line",
    .config = &line_config,
    .descriptor = &descriptor,
    .repeats_ms = REPEATS_MS,
    .size = sizeof(struct line),
    .label = "LINE",
    .api_base = "https://api.line.me",
    .sender = &line_sender,
    .texts = &texts,
    .open = line_open,
    .close = line_close,
    .check = line_check,
    .steps = "Open https://developers.line.biz/console and create a Messaging API channel.\n"
             "Copy the channel secret (Basic settings) and issue a long-lived channel access token "
             "(Messaging API).",
    .act = line_act,
    .http = line_http,
    .forget = line_forget,
    .media_where = line_media_where,
};
