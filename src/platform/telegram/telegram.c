/* telegram.c - a bot's life and its status.  (telegram_priv.h is the map.) */
#include "platform/telegram/telegram.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/prompts.h"
#include "platform/recent.h"
#include "platform/sender.h"
#include "platform/telegram/telegram_priv.h"

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct telegram *t = container_of(log, struct telegram, log);

    buf_printf(out, "platform=telegram bot=%s ", t->base.bot);
}

void tg_set_problem(struct telegram *t, const char *sentence)
{
    if (sentence == NULL) {
        if (t->base.problem != NULL)
            log_info(&t->log, "works again");
        t->base.problem = NULL;
        return;
    }
    if (t->base.problem != NULL && strcmp(t->problem, sentence) == 0)
        return;
    snprintf(t->problem, sizeof t->problem, "%s", sentence);
    t->base.problem = t->problem;
    log_error(&t->log, "%s", t->problem);
}

static void free_secret(char *s)
{
    if (s != NULL)
        secret_wipe(s, strlen(s));
    free(s);
}

static char *make_url(const struct telegram_settings *cfg)
{
    struct str base = str_of(cfg->api_base != NULL ? cfg->api_base : "https://api.telegram.org");
    struct buf url = BUF_INIT;

    while (str_ends(base, STR("/")))
        base.n--;
    buf_printf(&url, "%.*s/bot%s/", STR_FMT(base), cfg->token);
    return buf_take(&url);
}

/* ---- life ---- */

static void tg_close(struct platform *p)
{
    struct telegram *t = container_of(p, struct telegram, base);

    tg_poll_stop(t);
    tg_accepts_cancel(t);
    tg_files_cancel(t);
    tg_presses_cancel(t);
    tg_commands_free(t);
    prompts_close(t->prompts);
    sender_free(t->sender);
    map_done(&t->edits);
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

    t->base = (struct platform){.ops = &telegram_ops, .host = host, .bot = settings->bot};
    t->descriptor = *telegram_ops.descriptor;
    t->descriptor.supports_context = cfg->context > 0;
    t->base.descriptor = &t->descriptor;
    t->reactions = cfg->reactions;
    t->log.prefix = log_prefix;
    t->env = host_env(host);
    t->token = xstrdup(cfg->token);
    t->token_id = xstrndup(cfg->token, strcspn(cfg->token, ":"));
    if (cfg->token[strlen(t->token_id)] == '\0')
        t->token_id[0] = '\0'; /* no such part: all of it is secret */
    t->url = make_url(cfg);
    if (str_eq(str_of(cfg->mode), STR("webhook")))
        t->secret = xstrdup(cfg->webhook_secret);
    t->recent = cfg->context > 0 ? recent_new(t->env->clock, cfg->context) : NULL;
    t->answers = json_parser_new();
    list_init(&t->accepts);
    list_init(&t->wheres);
    list_init(&t->pressing);
    list_init(&t->answering);
    enum bh_err err = prompts_open(&t->base, tg_prompt_over, &t->prompts, ret_why);
    if (err == BH_OK)
        err = sender_new(&t->base, "Telegram", &tg_sender, &t->sender, ret_why);
    if (err != BH_OK) {
        tg_close(&t->base);
        return err;
    }
    tg_poll_start(t);
    log_info(&t->log, "open: mode=%s", t->secret != NULL ? "webhook" : "polling");
    *ret_p = &t->base;
    return BH_OK;
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
    .platform_hint =
        "You are talking on Telegram. Ordinary Markdown is shown: bold, italic, strike, "
        "spoilers, code with fences, links, quotes, lists; tables are monospaced.",
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING |
           1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT |
           1u << ACTION_REACT | 1u << ACTION_THREAD_CREATE | 1u << ACTION_THREAD_RENAME,
};

const struct platform_ops telegram_ops = {
    .name = "telegram",
    .config = &telegram_config,
    .ids_per_chat = true,
    .descriptor = &tg_descriptor,
    .open = tg_open,
    .act = tg_act,
    .http = tg_webhook,
    .media_where = tg_media_where,
    .forget = tg_forget,
    .set_commands = tg_set_commands,
    .status = tg_status,
    .close = tg_close,
};
