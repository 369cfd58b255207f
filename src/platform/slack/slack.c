/* slack.c - settings, open, close, check and status of one Slack app; finds people's files.
 * (slack_priv.h is the map of the other files.) */
#include "platform/slack/slack.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/slack/slack_priv.h"

#define API_BASE "https://slack.com/api"

enum { CHECK_MS = 10000 };

/* ---- settings ---- */

#define AT(member) offsetof(struct slack_settings, member)

static const struct config_key keys[] = {
    {"mode", CFG_CHOICE, CFG_RESTART, AT(mode), NULL, "socket|webhook",
     .what = "`socket`: bellhop connects to Slack (Socket Mode); `webhook`: Slack sends events to "
             "`/webhooks/slack/<bot>`. Without it: `socket` if there is an `app_token`."},
    {"bot_token", CFG_SECRET, CFG_RESTART, AT(bot_token), .ask = "",
     .what = "The bot's token in its workspace: `xoxb-...`."},
    {"app_token", CFG_SECRET, CFG_RESTART, AT(app_token), .ask = "",
     .what = "The app-level token for Socket Mode: `xapp-...`, with `connections:write`."},
    {"signing_secret", CFG_SECRET, CFG_RESTART, AT(signing_secret), .ask = "mode=webhook",
     .what = "The app's signing secret, which proves that a webhook is Slack's."},
    {"client_id", CFG_TEXT, CFG_RESTART, AT(client_id),
     .what = "The app's client id, to install it in more workspaces at `/slack/install/<bot>`."},
    {"client_secret", CFG_SECRET, CFG_RESTART, AT(client_secret),
     .what = "The app's client secret, for the same."},
    {"api_base", CFG_TEXT, CFG_RESTART, AT(api_base),
     .what = "The URL of another API server than the platform's own."},
    {"reactions", CFG_BOOL, CFG_RESTART, AT(reactions), "false",
     .what = "Deliver people's reactions to the bot's messages to the agent."},
    {0},
};

static bool is_token(const char *token)
{
    return str_has_only(str_of(token), "-_.");
}

static bool by_socket(const struct slack_settings *s)
{
    return s->mode != NULL ? strcmp(s->mode, "socket") == 0 : s->app_token != NULL;
}

static const char *socket_mistake(const struct slack_settings *s)
{
    struct str base = str_of(s->api_base);

    if (by_socket(s) && s->app_token == NULL)
        return "mode: socket needs an app_token: the app's page makes one under Basic Information "
               "(xapp-...)";
    if (s->app_token != NULL &&
        (!is_token(s->app_token) || !str_starts(str_of(s->app_token), STR("xapp-"))))
        return "app_token does not look like an app-level token (xapp-...)";
    if (!by_socket(s) && s->signing_secret == NULL)
        return "mode: webhook needs a signing_secret: the app's page has it under Basic "
               "Information";
    if (base.p != NULL && !str_starts(base, STR("https://")) && !str_starts(base, STR("http://")))
        return "api_base is an address that starts with https://";
    return NULL;
}

static const char *find_mistake(const struct slack_settings *s)
{
    if ((s->client_id == NULL) != (s->client_secret == NULL))
        return "client_id and client_secret go together: the app's page has both under Basic "
               "Information";
    if (s->bot_token == NULL && s->client_id == NULL)
        return "\"bot_token\" is missing: the app's page has it under OAuth & Permissions "
               "(xoxb-...)";
    if (s->bot_token == NULL)
        return socket_mistake(s);
    if (!is_token(s->bot_token) || !str_starts(str_of(s->bot_token), STR("xox")))
        return "bot_token does not look like a bot's token (xoxb-...)";
    if (str_starts(str_of(s->bot_token), STR("xoxp-")))
        return "bot_token is the token of a person (xoxp-...): copy the Bot User OAuth Token "
               "(xoxb-...)";
    return socket_mistake(s);
}

static bool check(void *settings, char *ret_why)
{
    const char *mistake = find_mistake(settings);

    if (mistake != NULL)
        snprintf(ret_why, 256, "%s", mistake);
    return mistake == NULL;
}

const struct config_section slack_config = {.name = "slack",
                                            .keys = keys,
                                            .size = sizeof(struct slack_settings),
                                            .check = check};

/* ---- people's files: fetched with the bot's token, from Slack's hosts only ---- */

struct slack_lookup { /* where is a file that its event did not tell? */
    struct list link;
    struct slack *s; /* borrowed */
    struct slack_team *team;
    struct media_ask ask;
    bool answered;
};

static void tell_where(struct slack *s, struct slack_team *t, struct media_ask ask, struct str url)
{
    char *address = str_dup(url);
    const char *const headers[] = {t->auth, NULL};

    if (slack_is_own_url(url, str_of(s->cfg->api_base)))
        host_media_at(s->base.host, ask, &(struct media_at){.url = address, .headers = headers});
    else
        host_media_gone(s->base.host, ask, "the file is not kept by Slack");
    free(address);
}

static void on_file(void *ctx, struct json answer)
{
    struct slack_lookup *x = ctx;
    struct str url = json_str(json_get(answer, "file"), "url_private_download");

    if (url.n == 0)
        url = json_str(json_get(answer, "file"), "url_private");
    x->answered = true;
    tell_where(x->s, x->team, x->ask, url);
}

static void on_file_told(void *ctx, enum sender_end end)
{
    struct slack_lookup *x = ctx;

    if (!x->answered)
        host_media_gone(x->s->base.host, x->ask, "Slack did not say where the file is");
    list_remove(&x->link);
    free(x);
}

static void slack_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct slack *s = slack_of(p);
    struct str team, id, url = ref;
    BUF_LOCAL body = BUF_INIT;

    struct slack_team *t = str_split(&url, ' ', &team) ? slack_team_find(s, team) : NULL;
    if (t == NULL || !str_split(&url, ' ', &id)) {
        host_media_gone(p->host, ask, "the app is not installed in the file's workspace");
        return;
    }
    if (url.n > 0) {
        tell_where(s, t, ask, url);
        return;
    }
    struct slack_lookup *x = xcalloc(1, sizeof *x); /* a file of another organization */
    *x = (struct slack_lookup){.s = s, .team = t, .ask = ask};
    list_append(&s->lookups, &x->link);
    form_add(&body, "file", id);
    slack_ask(s,
              &(struct slack_question){
                  .team = t, .method = SLACK_FILE_INFO, .body = buf_str(&body), .lane = id},
              on_file, on_file_told, x);
}

/* ---- life ---- */

static void slack_close(struct platform *p)
{
    struct slack *s = slack_of(p);
    void *value;

    timer_stop(s->env->clock, &s->again);
    slack_sockets_stop(s);
    awaits_done(&s->awaits);
    prompts_close(s->prompts);
    sender_free(s->sender);
    slack_installs_cancel(s);
    slack_team_free(s->sockets.app);
    slack_team_free(s->oauth);
    slack_prompts_cancel(s);
    list_each (&s->lookups, it, nxt)
        free(list_entry(it, struct slack_lookup, link));
    slack_names_free(s);
    map_done_all(&s->chats);
    map_done_all(&s->threads);
    slack_streams_stop(s);
    for (size_t i = 0; map_next(&s->teams, &i, &value);)
        slack_team_free(value);
    map_done(&s->teams);
    slack_team_free(s->own);
    json_parser_free(s->parser);
    json_parser_free(s->answers);
    arena_done(&s->arena);
    buf_done(&s->scratch);
    form_done(&s->form);
    slack_out_done(&s->out);
    free(s->api_base);
    free(s);
}

static void on_again(struct timer *t)
{
    struct slack *s = container_of(t, struct slack, again);

    if (s->own != NULL && s->own->id[0] == '\0')
        slack_team_ask(s->own);
}

static enum bh_err slack_open(const struct platform_settings *settings, struct host *host,
                              struct platform **ret_p, char *ret_why)
{
    struct slack *s = xcalloc(1, sizeof *s);

    platform_init(&s->base, &slack_ops, host, settings);
    s->cfg = container_of(settings, const struct slack_settings, base);
    s->env = host_env(host);
    s->api_base = platform_api_base(s->cfg->api_base, API_BASE);
    s->first_post_ms = clock_now_ms(s->env->clock) + SLACK_POST_MS;
    s->parser = json_parser_new();
    s->answers = json_parser_new();
    list_init(&s->chats_by_age);
    list_init(&s->threads_by_age);
    slack_streams_start(s);
    list_init(&s->names_by_age);
    list_init(&s->tidying);
    list_init(&s->lookups);
    list_init(&s->installs);
    list_init(&s->gone);
    list_init(&s->sockets.conns);
    list_init(&s->sockets.waiting);
    timer_init(&s->again, on_again);
    awaits_init(&s->awaits, &s->base);
    if (s->cfg->bot_token != NULL)
        s->own = slack_team_new(s, STR_NULL, str_of(s->cfg->bot_token));
    if (s->cfg->client_id != NULL)
        s->oauth = slack_team_new(s, STR_NULL, STR_NULL);
    enum bh_err err = slack_teams_load(s, ret_why);
    if (err == BH_OK)
        err = prompts_open(&s->base, slack_prompt_over, &s->prompts, ret_why);
    if (err == BH_OK)
        err = sender_new(&s->base, "Slack", &slack_sender, &s->sender, ret_why);
    if (err != BH_OK) {
        slack_close(&s->base);
        return err;
    }
    if (s->own != NULL)
        slack_team_ask(s->own);
    if (by_socket(s->cfg)) {
        s->sockets.app = slack_team_new(s, STR_NULL, str_of(s->cfg->app_token));
        slack_sockets_start(s);
    }
    log_info(&s->base.log, "open: mode=%s", by_socket(s->cfg) ? "socket" : "webhook");
    *ret_p = &s->base;
    return BH_OK;
}

/* ---- check ---- */

/* Calls @method with one of the app's tokens, whose key in the configuration is @key. */
static enum bh_err ask(const struct slack_settings *cfg, const char *method, const char *token,
                       const char *key, struct json_parser *parser, struct buf *granted,
                       struct json *ret_doc, char *ret_why)
{
    char *api = platform_api_base(cfg->api_base, API_BASE);
    BUF_LOCAL url = BUF_INIT;
    BUF_SECRET auth = BUF_INIT;
    int status = 0;

    buf_printf(&url, "%s/%s", api, method);
    buf_printf(&auth, "Authorization: Bearer %s", token);
    free(api);
    const char *const headers[] = {buf_z(&auth), "Content-Type: application/x-www-form-urlencoded",
                                   NULL};
    const struct http_fetch f = {.method = "POST",
                                 .url = buf_z(&url),
                                 .headers = headers,
                                 .body = STR(""),
                                 .timeout_ms = CHECK_MS,
                                 .keep_header = "x-oauth-scopes",
                                 .kept = granted};
    enum bh_err err = platform_ask(&f, parser, &status, ret_doc, ret_why);
    struct str error = json_str(*ret_doc, "error");
    if (err != BH_OK || json_as_bool(json_get(*ret_doc, "ok"), false))
        return err;
    return bh_err_why(BH_REFUSED, ret_why,
                      "Slack refuses `%s` (%.*s): copy the current one from the app's page, %s",
                      key, error.n < 60 ? (int)error.n : 60, error.p != NULL ? error.p : "",
                      token == cfg->app_token ? "Basic Information, App-Level Tokens"
                                              : "OAuth & Permissions");
}

static enum bh_err slack_check(const struct platform_settings *settings,
                               struct platform_report *ret, char *ret_why)
{
    const struct slack_settings *cfg = container_of(settings, const struct slack_settings, base);
    struct json_parser *parser = json_parser_new();
    BUF_LOCAL granted = BUF_INIT, missing = BUF_INIT, unused = BUF_INIT;
    struct json doc = {0};
    enum bh_err err = BH_OK;

    ret->webhook = !by_socket(cfg);
    if (cfg->bot_token != NULL) /* the tokens of other workspaces are known to the server only */
        err = ask(cfg, "auth.test", cfg->bot_token, "bot_token", parser, &granted, &doc, ret_why);
    if (err == BH_OK && cfg->bot_token != NULL) {
        struct str user = json_str(doc, "user"), team = json_str(doc, "team");
        snprintf(ret->name, sizeof ret->name, "@%.*s in %.*s", STR_FMT(user), STR_FMT(team));
        snprintf(ret->reach, sizeof ret->reach,
                 "in Slack, write to @%.*s, or /invite @%.*s into a channel and mention it there",
                 STR_FMT(user), STR_FMT(user));
    }
    if (granted.n > 0)
        slack_scopes_missing(buf_str(&granted), &missing);
    if (err == BH_OK && missing.n > 0)
        err = bh_err_why(BH_REFUSED, ret_why,
                         "the app lacks scopes: add %.120s under OAuth & Permissions, and install "
                         "it again",
                         buf_z(&missing));
    if (err == BH_OK && by_socket(cfg))
        err = ask(cfg, "apps.connections.open", cfg->app_token, "app_token", parser, &unused, &doc,
                  ret_why);
    json_parser_free(parser);
    return err;
}

/* ---- status ---- */

static void slack_status(struct platform *p, struct jw *w)
{
    struct slack *s = slack_of(p);
    struct sender_stats n;

    sender_stats(s->sender, &n);
    bool socket = s->sockets.app != NULL;
    size_t live = slack_sockets_live(s);
    jw_kstr(w, "state",
            str_of(p->problem != NULL    ? "degraded"
                   : socket && live == 0 ? "connecting"
                                         : "live"));
    jw_kstr(w, "mode", socket ? STR("socket") : STR("webhook"));
    if (socket) {
        jw_ki64(w, "sockets", (int64_t)live);
        jw_ki64(w, "socketsOpened", (int64_t)s->sockets.opened);
        jw_ki64(w, "socketsRefreshed", (int64_t)s->sockets.refreshed);
        jw_ki64(w, "socketsLost", (int64_t)s->sockets.lost);
        jw_ki64(w, "socketsDeaf", (int64_t)s->sockets.deaf);
        jw_ki64(w, "envelopesWaiting", (int64_t)s->sockets.n_waiting);
    }
    jw_kstr(w, "workspace", s->own != NULL ? str_of(s->own->id) : STR_NULL);
    jw_kstr(w, "missingScopes", s->own != NULL ? str_of(s->own->missing) : STR_NULL);
    jw_ki64(w, "installations", (int64_t)map_count(&s->teams));
    jw_ki64(w, "events", (int64_t)s->n.events);
    jw_ki64(w, "ignored", (int64_t)s->n.ignored);
    jw_ki64(w, "malformed", (int64_t)s->n.malformed);
    jw_ki64(w, "webhooksRefused", (int64_t)s->n.forged);
    jw_ki64(w, "webhooksLate", (int64_t)s->awaits.late);
    jw_ki64(w, "commands", (int64_t)s->n.commands);
    jw_ki64(w, "presses", (int64_t)s->n.presses);
    jw_ki64(w, "forwarded", (int64_t)s->n.forwarded);
    jw_ki64(w, "sent", (int64_t)s->n.sent);
    jw_ki64(w, "edits", (int64_t)s->n.edits);
    jw_ki64(w, "streams", (int64_t)s->n.streams);
    jw_ki64(w, "appends", (int64_t)s->n.appends);
    jw_ki64(w, "taskCards", (int64_t)s->n.cards);
    jw_ki64(w, "streaming", (int64_t)n.streaming);
    jw_ki64(w, "textsMerged", (int64_t)n.merged);
    jw_ki64(w, "plainRetries", (int64_t)s->n.plain);
    jw_ki64(w, "limited", (int64_t)s->n.limited);
    jw_ki64(w, "refused", (int64_t)n.refused);
    jw_ki64(w, "unknown", (int64_t)n.unknown);
    jw_ki64(w, "waiting", (int64_t)n.waiting);
    jw_ki64(w, "cutOffAtStart", (int64_t)n.cut_off);
    jw_ki64(w, "openQuestions", (int64_t)prompts_count(s->prompts));
}

static const struct descriptor descriptor = {
    .platform = "slack",
    .label = "Slack",
    .max_message_length = SLACK_MAX_CHARS,
    .supports_edit = true,
    .markdown_dialect = "markdown",
    .len_unit = "utf16",
    .emoji = "\xf0\x9f\x92\xac",
    .platform_hint = "You are talking on Slack. Ordinary Markdown is shown: bold, italic, strike, "
                     "headings, lists, quotes, links, code with fences, tables. Mentions that you "
                     "write ping nobody.",
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING |
           1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT |
           1u << ACTION_REACT | 1u << ACTION_DRAFT | 1u << ACTION_TASK_CARD,
};

static const struct record_form *const slack_records[] = {&slack_team_form, NULL};

const struct platform_ops slack_ops = {
    .name = "slack",
    .config = &slack_config,
    .descriptor = &descriptor,
    .records = slack_records,
    .ids_per_chat = true,
    .open = slack_open,
    .check = slack_check,
    .steps =
        "Open https://api.slack.com/apps, Create New App, From a manifest; the manifest is in\n"
        "docs/platforms/slack.md.\n"
        "Basic Information: note the App ID (A...).\n"
        "Socket Mode: Enable Socket Mode, and copy the app-level token (xapp-...).\n"
        "Install App: install it, and copy the Bot User OAuth Token (xoxb-...).",
    .bot_is = "The App ID of the app, from Basic Information: A0123456789",
    .act = slack_act,
    .http = slack_http,
    .install = slack_install,
    .media_where = slack_media_where,
    .status = slack_status,
    .close = slack_close,
};
