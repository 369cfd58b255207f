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

#define API_BASE "https://api.telegram.org"

#define RICH_HINT \
    "You are talking on Telegram. Markdown is shown as it is meant: headings, tables, task " \
    "lists, " \
    "quotes, code with fences, formulas ($x^2$), links, bold, italic, strike, spoilers."

enum { LOOKUP_MS = 10000, CHECK_MS = 10000 };

/* ---- settings ---- */

#define AT(member) offsetof(struct telegram_settings, member)

static const struct config_key keys[] = {
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .ask = "", .what = "The bot's token."},
    {"mode", CFG_CHOICE, CFG_RESTART, AT(mode), NULL, "polling|webhook",
     .what = "`polling` or `webhook`."},
    {"webhook_secret", CFG_SECRET, CFG_RESTART, AT(webhook_secret), .ask = "mode=webhook",
     .what = "The secret that Telegram sends with every webhook."},
    {"api_base", CFG_TEXT, CFG_RESTART, AT(api_base),
     .what = "The URL of another API server than the platform's own."},
    {"context", CFG_NUMBER, CFG_RESTART, AT(context), "0", .max = EVENT_MAX_CONTEXT,
     .what = "How many earlier messages of a group are remembered and delivered as context."},
    {"drafts", CFG_BOOL, CFG_RESTART, AT(drafts), "true",
     .what = "Show answers in private chats while they are written, as previews."},
    {"reactions", CFG_BOOL, CFG_RESTART, AT(reactions), "false",
     .what = "Deliver people's reactions to the bot's messages to the agent."},
    {"rich", CFG_BOOL, CFG_RESTART, AT(rich), "false",
     .what = "Send Markdown as rich messages: with headings, tables and formulas."},
    {0},
};

static const char *find_mistake(const struct telegram_settings *s)
{
    struct str base = str_of(s->api_base);
    bool webhook = str_eq(str_of(s->mode), STR("webhook"));

    if (s->token == NULL)
        return "\"token\" is missing: @BotFather gives it to you";
    if (!str_has_only(str_of(s->token), ":-_"))
        return "the token does not look like one from @BotFather "
               "(123456:ABC-def...)";
    if (base.p != NULL && !str_starts(base, STR("https://")) && !str_starts(base, STR("http://")))
        return "api_base is an address that starts with https://";
    if (webhook && s->webhook_secret == NULL)
        return "mode: webhook needs a webhook_secret: up to 256 letters, digits, - "
               "and _";
    if (webhook &&
        (!str_has_only(str_of(s->webhook_secret), "-_") || strlen(s->webhook_secret) > 256))
        return "webhook_secret may have up to 256 letters, digits, - and _ "
               "(Telegram's rule)";
    return NULL;
}

static bool check(void *settings, char *ret_why)
{
    const char *mistake = find_mistake(settings);

    if (mistake != NULL)
        snprintf(ret_why, 256, "%s", mistake);
    return mistake == NULL;
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
    tg_answer_read(t, t->answers, r, &a);
    lookup_free(x);
    struct str path = a.outcome == TG_OK ? json_str(a.result, "file_path") : STR_NULL;
    if (is_path(path)) {
        struct str base = str_of(t->url), token = str_of(t->token);
        BUF_SECRET url = BUF_INIT;
        base.n -= token.n + 5; /* .../bot<token>/ */
        buf_printf(&url, "%.*s/file/bot%s/%.*s", (int)base.n, base.p, t->token, STR_FMT(path));
        host_media_at(t->base.host, ask, &(struct media_at){.url = buf_z(&url)});
    } else if (strstr(a.why, "too big") != NULL)
        host_media_gone(t->base.host, ask,
                        "the file is larger than Telegram gives to bots (20 MB)");
    else
        host_media_gone(t->base.host, ask, "Telegram did not say where the file is");
}

static void tg_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct telegram *t = container_of(p, struct telegram, base);
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
    struct telegram *t = container_of(p, struct telegram, base);

    tg_inbound_stop(t);
    list_each (&t->lookups, it, nxt)
        lookup_free(list_entry(it, struct file_lookup, link));
    tg_prompts_cancel(t);
    tg_commands_free(t);
    prompts_close(t->prompts);
    sender_free(t->sender);
    tg_chats_free(t);
    recent_free(t->recent);
    buf_done(&t->scratch);
    json_parser_free(t->answers);
    arena_done(&t->arena);
    free_secret(t->url);
    free_secret(t->token);
    free_secret(t->secret);
    free(t->token_id);
    free(t);
}

static enum bh_err tg_open(const struct platform_settings *settings, struct host *host,
                           struct platform **ret_p, char *ret_why)
{
    const struct telegram_settings *cfg =
        container_of(settings, const struct telegram_settings, base);
    struct telegram *t = xcalloc(1, sizeof *t);

    platform_init(&t->base, &telegram_ops, host, settings);
    t->descriptor = *telegram_ops.descriptor;
    t->descriptor.supports_context = cfg->context > 0;
    t->base.descriptor = &t->descriptor;
    t->reactions = cfg->reactions;
    t->drafts = cfg->drafts;
    t->rich = cfg->rich;
    if (t->rich)
        t->descriptor.platform_hint = RICH_HINT;
    if (t->drafts)
        t->descriptor.ops |= 1u << ACTION_DRAFT;
    t->env = host_env(host);
    t->token = xstrdup(cfg->token);
    t->token_id = xstrndup(cfg->token, strcspn(cfg->token, ":"));
    if (cfg->token[strlen(t->token_id)] == '\0')
        t->token_id[0] = '\0'; /* a token without a public part is all secret */
    struct buf url = BUF_INIT;
    char *base = platform_api_base(cfg->api_base, API_BASE);
    buf_printf(&url, "%s/bot%s/", base, cfg->token);
    t->url = buf_take(&url);
    free(base);
    if (str_eq(str_of(cfg->mode), STR("webhook")))
        t->secret = xstrdup(cfg->webhook_secret);
    t->recent = cfg->context > 0 ? recent_new(t->env->clock, cfg->context) : NULL;
    t->answers = json_parser_new();
    list_init(&t->accepts);
    list_init(&t->lookups);
    list_init(&t->answering);
    list_init(&t->topics_by_age);
    enum bh_err err = prompts_open(&t->base, tg_prompt_over, &t->prompts, ret_why);
    if (err == BH_OK)
        err = sender_new(&t->base, "Telegram", &tg_sender, &t->sender, ret_why);
    if (err != BH_OK) {
        tg_close(&t->base);
        return err;
    }
    tg_inbound_start(t);
    log_info(&t->base.log, "open: mode=%s", t->secret != NULL ? "webhook" : "polling");
    *ret_p = &t->base;
    return BH_OK;
}

/* ---- check ---- */

/* Calls a method without parameters.  The token is in the URL, so no text of a failed request is
 * passed on. */
static enum bh_err ask(const struct telegram_settings *cfg, const char *method,
                       struct json_parser *parser, struct json *ret_result, char *ret_why)
{
    char *base = platform_api_base(cfg->api_base, API_BASE), unused[256];
    BUF_SECRET url = BUF_INIT;
    struct json doc = {0};
    int status;

    buf_printf(&url, "%s/bot%s/%s", base, cfg->token, method);
    free(base);
    enum bh_err err = platform_ask(&(struct http_fetch){.url = buf_z(&url), .timeout_ms = CHECK_MS},
                                   parser, &status, &doc, unused);
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
    struct json me, info;
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
    struct telegram *t = container_of(p, struct telegram, base);
    struct sender_stats s;

    sender_stats(t->sender, &s);
    jw_kstr(w, "state", str_of(tg_state_name(t)));
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
    jw_ki64(w, "events", (int64_t)t->n.events);
    jw_ki64(w, "ignored", (int64_t)t->n.ignored);
    jw_ki64(w, "again", (int64_t)t->n.again);
    jw_ki64(w, "sent", (int64_t)t->n.sent);
    jw_ki64(w, "edits", (int64_t)t->n.edits);
    jw_ki64(w, "plainRetries", (int64_t)t->n.plain);
    jw_ki64(w, "limited", (int64_t)t->n.limited);
    jw_ki64(w, "refused", (int64_t)s.refused);
    jw_ki64(w, "unknown", (int64_t)s.unknown);
    jw_ki64(w, "cutOffAtStart", (int64_t)s.cut_off);
    jw_ki64(w, "waiting", (int64_t)s.waiting);
    jw_ki64(w, "streaming", (int64_t)s.streaming);
    jw_ki64(w, "textsMerged", (int64_t)s.merged);
    jw_ki64(w, "openQuestions", (int64_t)prompts_count(t->prompts));
}

static void tg_forget(struct platform *p, struct str person)
{
    struct telegram *t = container_of(p, struct telegram, base);

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
    .open = tg_open,
    .check = tg_check,
    .steps = "Open https://t.me/BotFather in Telegram and send /newbot.\n"
             "Choose a name, then a username that ends in \"bot\".\n"
             "BotFather answers with the token, like 123456789:AAE...",
    .act = tg_act,
    .http = tg_webhook,
    .media_where = tg_media_where,
    .forget = tg_forget,
    .set_commands = tg_set_commands,
    .status = tg_status,
    .close = tg_close,
};
