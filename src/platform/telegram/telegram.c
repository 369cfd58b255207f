/* telegram.c - settings, open, close and status of one Telegram bot; finds people's files.
 * (telegram_priv.h is the map of the other files.) */
#include "platform/telegram/telegram.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "platform/prompts.h"
#include "platform/recent.h"
#include "platform/sender.h"
#include "platform/telegram/telegram_priv.h"

#define RICH_HINT \
    "You are talking on Telegram. Markdown is shown as it is meant: headings, tables, task " \
    "lists, " \
    "quotes, code with fences, formulas ($x^2$), links, bold, italic, strike, spoilers."

enum { LOOKUP_MS = 10000, MAX_TOPICS = 4096 };

/* ---- settings ---- */

#define AT(member) offsetof(struct telegram_settings, member)

static const struct config_key keys[] = {
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .ask = "", .what = "The bot's token."},
    {"mode", CFG_CHOICE, CFG_RESTART, AT(mode), NULL, "polling|webhook",
     .what = "`polling` or `webhook`."},
    {"webhook_secret", CFG_SECRET, CFG_RESTART, AT(webhook_secret), .ask = "mode=webhook",
     .what = "The secret that Telegram sends with every webhook."},
    PLATFORM_KEY_API_BASE,
    {"context", CFG_NUMBER, CFG_RESTART, AT(context), "0", .max = EVENT_MAX_CONTEXT,
     .what = "How many earlier messages of a group are remembered and delivered as context."},
    {"drafts", CFG_BOOL, CFG_RESTART, AT(drafts), "true",
     .what = "Show answers in private chats while they are written, as previews."},
    PLATFORM_KEY_REACTIONS,
    {"rich", CFG_BOOL, CFG_RESTART, AT(rich), "false",
     .what = "Send Markdown as rich messages: with headings, tables and formulas."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct telegram_settings *s = settings;
    bool webhook = str_eq(str_of(s->mode), STR("webhook"));

    if (s->token == NULL)
        return bh_why(ret_why, "\"token\" is missing: @BotFather gives it to you");
    if (!str_has_only(str_of(s->token), ":-_"))
        return bh_why(ret_why,
                      "the token does not look like one from @BotFather (123456:ABC-def...)");
    if (webhook && s->webhook_secret == NULL)
        return bh_why(ret_why, "mode: webhook needs a webhook_secret: up to 256 letters, digits, - "
                               "and _");
    if (webhook &&
        (!str_has_only(str_of(s->webhook_secret), "-_") || strlen(s->webhook_secret) > 256))
        return bh_why(ret_why, "webhook_secret may have up to 256 letters, digits, - and _ "
                               "(Telegram's rule)");
    return true;
}

const struct config_section telegram_config = {.name = "telegram",
                                               .keys = keys,
                                               .size = sizeof(struct telegram_settings),
                                               .check = check};

static void free_secret(char *s)
{
    if (s != NULL)
        secret_wipe(s, strlen(s));
    free(s);
}

/* ---- addresses of people's files: from getFile; they contain the token ---- */

struct file_lookup {
    struct list link;
    struct telegram *t; /* borrowed */
    struct media_ask ask;
    struct http_call *call; /* owned; NULL: ended */
};

static void lookup_free(struct file_lookup *x)
{
    list_remove(&x->link);
    http_cancel(&x->call);
    free(x);
}

static bool is_path(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] > '~' || strchr("?#%\\", s.p[i]) != NULL)
            return false;
    return s.n > 0 && s.n < 512 && s.p[0] != '/' && !str_contains(s, STR(".."));
}

static void on_file(void *ctx, const struct http_result *r)
{
    struct file_lookup *x = ctx;
    struct telegram *t = x->t;
    struct tg_answer a;
    struct media_ask ask = x->ask;

    x->call = NULL;
    tg_answer_read(t, t->base.answers, r, &a);
    lookup_free(x);
    struct str path = a.outcome == TG_OK ? json_str(a.result, "file_path") : STR_NULL;
    if (is_path(path)) {
        BUF_SECRET url = BUF_INIT;
        buf_printf(&url, "%s/file/bot%s/%.*s", t->base.api_base, t->token, STR_FMT(path));
        host_media_at(t->base.host, ask, &(struct media_at){.url = buf_str(&url)});
    } else if (strstr(a.why, "too big") != NULL)
        host_media_gone(t->base.host, ask,
                        "the file is larger than Telegram gives to bots (20 MB)");
    else
        host_media_gone(t->base.host, ask, "Telegram did not say where the file is");
}

static void tg_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct telegram *t = telegram_of(p);
    struct file_lookup *x = xcalloc(1, sizeof *x);
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    *x = (struct file_lookup){.t = t, .ask = ask};
    list_append(&t->lookups, &x->link);
    jw_obj(&w);
    jw_kstr(&w, "file_id", ref);
    jw_end_obj(&w);
    x->call = tg_call(t, "getFile", buf_str(&body), LOOKUP_MS, on_file, x);
}

/* ---- life ---- */

static void tg_close(struct platform *p)
{
    struct telegram *t = telegram_of(p);

    tg_inbound_stop(t);
    list_each (&t->lookups, it, nxt)
        lookup_free(list_entry(it, struct file_lookup, link));
    tg_prompts_cancel(t);
    tg_commands_free(t);
    tg_chats_free(t);
    recent_free(t->recent);
    buf_done(&t->scratch);
    arena_done(&t->arena);
    free_secret(t->url);
    free_secret(t->token);
    free_secret(t->secret);
    free(t->token_id);
}

static enum bh_err tg_open(struct platform *p, char *ret_why)
{
    struct telegram *t = telegram_of(p);
    const struct telegram_settings *cfg =
        container_of(p->settings, const struct telegram_settings, base);
    struct buf url = BUF_INIT;

    t->descriptor = *p->ops->descriptor;
    t->descriptor.supports_context = cfg->context > 0;
    p->descriptor = &t->descriptor;
    t->drafts = cfg->drafts;
    t->rich = cfg->rich;
    if (t->rich)
        t->descriptor.platform_hint = RICH_HINT;
    if (t->drafts)
        t->descriptor.ops |= 1u << ACTION_DRAFT;
    t->token = xstrdup(cfg->token);
    t->token_id = xstrndup(cfg->token, strcspn(cfg->token, ":"));
    if (cfg->token[strlen(t->token_id)] == '\0')
        t->token_id[0] = '\0'; /* a token without a public part is all secret */
    buf_printf(&url, "%s/bot%s/", p->api_base, cfg->token);
    t->url = buf_take(&url);
    if (str_eq(str_of(cfg->mode), STR("webhook")))
        t->secret = xstrdup(cfg->webhook_secret);
    t->recent = cfg->context > 0 ? recent_new(p->env->clock, cfg->context) : NULL;
    list_init(&t->lookups);
    list_init(&t->answering);
    t->topics.max = MAX_TOPICS;
    t->topics.free = tg_topic_free;
    return BH_OK;
}

static void tg_start(struct platform *p)
{
    tg_inbound_start(telegram_of(p));
    log_info(&p->log, "open: mode=%s", telegram_of(p)->secret != NULL ? "webhook" : "polling");
}

/* ---- check ---- */

static enum bh_err ask(const struct telegram_settings *cfg, const char *method,
                       struct json_parser *parser, struct json *ret_result, char *ret_why)
{
    BUF_SECRET path = BUF_INIT;
    struct json doc = {0};
    char unused[256];
    int status;

    buf_printf(&path, "bot%s/%s", cfg->token, method);
    enum bh_err err = platform_ask_api(&telegram_ops, &cfg->base, buf_str(&path),
                                       (struct http_fetch){0}, parser, &status, &doc, unused);
    if (err != BH_OK)
        return bh_err_why(err, ret_why, "Telegram does not answer");
    *ret_result = json_get(doc, "result");
    if (json_as_bool(json_get(doc, "ok"), false) && json_is_object(*ret_result))
        return BH_OK;
    return bh_err_why(
        BH_REFUSED, ret_why,
        "Telegram refuses the token (%d): copy it again from @BotFather (/mybots, the "
        "bot, API Token)",
        status);
}

static void report_webhook(const struct telegram_settings *cfg, struct json info,
                           struct platform_report *ret)
{
    struct str url = json_str(info, "url"), error = json_str(info, "last_error_message");

    if (!ret->webhook && url.n > 0)
        platform_warn(ret,
                      "Telegram still sends this bot's messages to %.*s; the start of bellhop ends "
                      "that, so stop the program there",
                      (int)(url.n < 120 ? url.n : 120), url.p);
    if (ret->webhook && error.n > 0)
        platform_warn(ret, "Telegram cannot reach the webhook: %.*s",
                      (int)(error.n < 120 ? error.n : 120), error.p);
}

static enum bh_err tg_check(const struct platform_settings *settings, struct platform_report *ret,
                            char *ret_why)
{
    const struct telegram_settings *cfg =
        container_of(settings, const struct telegram_settings, base);
    struct json_parser *parser = json_parser_new();
    struct json me = {0}, info = {0};
    enum bh_err err = ask(cfg, "getMe", parser, &me, ret_why);

    ret->webhook = str_eq(str_of(cfg->mode), STR("webhook"));
    if (err == BH_OK) {
        struct str username = json_str(me, "username");
        platform_tell(ret->bot, sizeof ret->bot, username);
        snprintf(ret->name, sizeof ret->name, "@%.100s", ret->bot);
        snprintf(ret->reach, sizeof ret->reach, "https://t.me/%.100s", ret->bot);
        if (!json_as_bool(json_get(me, "can_read_all_group_messages"), false))
            snprintf(ret->notes, sizeof ret->notes,
                     "In groups Telegram shows the bot only commands, mentions and replies. To "
                     "change that: @BotFather, /setprivacy, Disable; then add the bot to the group "
                     "again.");
        err = ask(cfg, "getWebhookInfo", parser, &info, ret_why);
    }
    if (err == BH_OK)
        report_webhook(cfg, info, ret);
    json_parser_free(parser);
    return err;
}

static void tg_status(struct platform *p, struct jw *w)
{
    struct telegram *t = telegram_of(p);

    jw_kstr(w, "mode", t->secret != NULL ? STR("webhook") : STR("polling"));
    jw_kstr(w, "username", str_of(t->me.username));
    jw_kbool(w, "readsAllGroupMessages", t->reads_all);
    jw_kbool(w, "rich", t->rich);
    jw_key(w, "lastUpdateAt");
    if (t->poll.heard_ms > 0)
        jw_i64(w, t->poll.heard_ms);
    else
        jw_null(w);
    jw_ki64(w, "updates", (int64_t)t->n.updates);
    jw_ki64(w, "again", (int64_t)t->n.again);
    jw_ki64(w, "edits", (int64_t)t->n.edits);
    jw_ki64(w, "plainRetries", (int64_t)t->n.plain);
    jw_ki64(w, "limited", (int64_t)t->n.limited);
}

static void tg_forget(struct platform *p, struct str person)
{
    struct telegram *t = telegram_of(p);

    if (t->recent != NULL)
        recent_forget(t->recent, person);
}

static const struct descriptor tg_descriptor = {
    .platform = "telegram",
    .label = "Telegram",
    .max_message_length = TG_LIMIT,
    .supports_edit = true,
    .markdown_dialect = "markdown_v2",
    .len_unit = "utf16",
    .emoji = "\xe2\x9c\x88\xef\xb8\x8f",
    .platform_hint = "You are talking on Telegram. Ordinary Markdown is shown: "
                     "bold, italic, strike, "
                     "spoilers, code with fences, links, quotes, lists; tables "
                     "are monospaced.",
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING |
           1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT |
           1u << ACTION_REACT | 1u << ACTION_THREAD_CREATE | 1u << ACTION_THREAD_RENAME,
};

static const struct record_form *const telegram_records[] = {&tg_moved_form, &tg_offset_form,
                                                             &tg_commands_form, NULL};

const struct platform_ops telegram_ops = {
    .name = "telegram",
    .config = &telegram_config,
    .records = telegram_records,
    .ids_per_chat = true,
    .descriptor = &tg_descriptor,
    .size = sizeof(struct telegram),
    .label = "Telegram",
    .api_base = "https://api.telegram.org",
    .sender = &tg_sender,
    .prompt_over = tg_prompt_over,
    .open = tg_open,
    .start = tg_start,
    .close = tg_close,
    .check = tg_check,
    .steps = "Open https://t.me/BotFather in Telegram and send /newbot.\n"
             "Choose a name, then a username that ends in \"bot\".\n"
             "BotFather answers with the token, like 123456789:AAE...",
    .act = tg_act,
    .http = tg_webhook,
    .media_where = tg_media_where,
    .forget = tg_forget,
    .set_commands = tg_set_commands,
    .state = tg_state_name,
    .status = tg_status,
};
