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

enum { MAX_KNOWN = 65536 }; /* chats, threads, names */

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
    PLATFORM_KEY_API_BASE,
    PLATFORM_KEY_REACTIONS,
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

static bool check(void *settings, char *ret_why)
{
    const struct slack_settings *s = settings;

    if ((s->client_id == NULL) != (s->client_secret == NULL))
        return bh_why(ret_why, "client_id and client_secret go together: the app's page has both "
                               "under Basic Information");
    if (s->bot_token == NULL && s->client_id == NULL)
        return bh_why(ret_why, "\"bot_token\" is missing: the app's page has it under OAuth & "
                               "Permissions (xoxb-...)");
    if (s->bot_token != NULL &&
        (!is_token(s->bot_token) || !str_starts(str_of(s->bot_token), STR("xox"))))
        return bh_why(ret_why, "bot_token does not look like a bot's token (xoxb-...)");
    if (str_starts(str_of(s->bot_token), STR("xoxp-")))
        return bh_why(ret_why, "bot_token is the token of a person (xoxp-...): copy the Bot User "
                               "OAuth Token (xoxb-...)");
    if (str_starts(str_of(s->bot_token), STR("xoxe")))
        return bh_why(ret_why, "bot_token expires after twelve hours, because the app has token "
                               "rotation: use an app without it");
    if (by_socket(s) && s->app_token == NULL)
        return bh_why(ret_why, "mode: socket needs an app_token: the app's page makes one under "
                               "Basic Information (xapp-...)");
    if (s->app_token != NULL &&
        (!is_token(s->app_token) || !str_starts(str_of(s->app_token), STR("xapp-"))))
        return bh_why(ret_why, "app_token does not look like an app-level token (xapp-...)");
    if (!by_socket(s) && s->signing_secret == NULL)
        return bh_why(ret_why, "mode: webhook needs a signing_secret: the app's page has it under "
                               "Basic Information");
    return true;
}

const struct config_section slack_config = {.name = "slack",
                                            .keys = keys,
                                            .size = sizeof(struct slack_settings),
                                            .check = check};

/* ---- people's files: fetched with the bot's token, from Slack's hosts only ---- */

struct slack_lookup {        /* where is a file that its event did not tell? */
    struct slack_team *team; /* borrowed */
    struct media_ask ask;
};

static void tell_where(struct slack_team *t, struct media_ask ask, struct str url)
{
    const char *const headers[] = {t->auth, NULL};
    struct host *host = t->s->base.host;

    if (slack_is_own_url(url, str_of(t->s->cfg->base.api_base)))
        host_media_at(host, ask, &(struct media_at){.url = url, .headers = headers});
    else
        host_media_gone(host, ask, "the file is not kept by Slack");
}

static void on_file(void *ctx, const struct sender_verdict *v)
{
    const struct slack_lookup *x = ctx;
    struct json file = json_get(v->answer, "file");
    struct str url = json_str(file, "url_private_download");

    if (v->end == SENDER_DONE)
        tell_where(x->team, x->ask, url.n > 0 ? url : json_str(file, "url_private"));
    else
        host_media_gone(x->team->s->base.host, x->ask, "Slack did not say where the file is");
}

static void slack_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct str team, id, url = ref;
    BUF_LOCAL body = BUF_INIT;

    struct slack_team *t = str_split(&url, ' ', &team) ? slack_team_find(slack_of(p), team) : NULL;
    if (t == NULL || !str_split(&url, ' ', &id)) {
        host_media_gone(p->host, ask, "the app is not installed in the file's workspace");
        return;
    }
    if (url.n > 0) {
        tell_where(t, ask, url);
        return;
    }
    struct slack_lookup *x = xcalloc(1, sizeof *x); /* a file of another organization */
    *x = (struct slack_lookup){.team = t, .ask = ask};
    form_add(&body, "file", id);
    slack_ask(t, SLACK_FILE_INFO, buf_str(&body),
              &(struct sender_question){.lane = id, .told = on_file, .ctx = x, .owns_ctx = true});
}

/* ---- life ---- */

static void slack_close(struct platform *p)
{
    struct slack *s = slack_of(p);
    void *value;

    timer_stop(s->base.env->clock, &s->again);
    slack_sockets_stop(s);
    slack_installs_cancel(s);
    slack_team_free(s->sockets.app);
    slack_team_free(s->oauth);
    lru_done(&s->names);
    lru_done(&s->chats);
    lru_done(&s->threads);
    slack_streams_stop(s);
    for (size_t i = 0; map_next(&s->teams, &i, &value);)
        slack_team_free(value);
    map_done(&s->teams);
    slack_team_free(s->own);
    arena_done(&s->arena);
    buf_done(&s->scratch);
    form_done(&s->form);
    slack_out_done(&s->out);
}

static void on_again(struct timer *t)
{
    struct slack *s = container_of(t, struct slack, again);

    if (s->own != NULL && (s->own->id[0] == '\0' || s->own->denied))
        slack_team_ask(s->own);
}

static enum bh_err slack_open(struct platform *p, char *ret_why)
{
    struct slack *s = slack_of(p);

    s->cfg = container_of(p->settings, const struct slack_settings, base);
    s->first_post_ms = clock_now_ms(p->env->clock) + SLACK_POST_MS;
    s->chats.max = s->threads.max = s->names.max = MAX_KNOWN;
    s->names.free = slack_name_free;
    slack_streams_start(s);
    list_init(&s->installs);
    list_init(&s->gone);
    list_init(&s->sockets.conns);
    timer_init(&s->again, on_again);
    if (s->cfg->bot_token != NULL)
        s->own = slack_team_new(s, STR_NULL, str_of(s->cfg->bot_token));
    if (s->cfg->client_id != NULL)
        s->oauth = slack_team_new(s, STR_NULL, STR_NULL);
    return slack_teams_load(s, ret_why);
}

static void slack_start(struct platform *p)
{
    struct slack *s = slack_of(p);

    if (s->own != NULL)
        slack_team_ask(s->own);
    if (by_socket(s->cfg)) {
        s->sockets.app = slack_team_new(s, STR_NULL, str_of(s->cfg->app_token));
        slack_sockets_start(s);
    }
    log_info(&p->log, "open: mode=%s", by_socket(s->cfg) ? "socket" : "webhook");
}

/* ---- check ---- */

/* Calls @method with one of the app's tokens, whose key in the configuration is @key. */
static enum bh_err ask(const struct slack_settings *cfg, const char *method, const char *token,
                       const char *key, struct json_parser *parser, struct buf *granted,
                       struct json *ret_doc, char *ret_why)
{
    BUF_SECRET auth = BUF_INIT;
    int status = 0;

    buf_printf(&auth, "Authorization: Bearer %s", token);
    const char *const headers[] = {buf_z(&auth), "Content-Type: application/x-www-form-urlencoded",
                                   NULL};
    const struct http_fetch f = {.method = "POST",
                                 .headers = headers,
                                 .body = STR(""),
                                 .keep_header = "x-oauth-scopes",
                                 .kept = granted};
    enum bh_err err = platform_ask_api(&slack_ops, &cfg->base, str_of(method), f, parser, &status,
                                       ret_doc, ret_why);
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

static const char *slack_state(struct platform *p)
{
    struct slack *s = slack_of(p);

    if (p->problem != NULL)
        return "degraded";
    return s->sockets.app != NULL && slack_sockets_live(s) == 0 ? "connecting" : "live";
}

static void slack_status(struct platform *p, struct jw *w)
{
    struct slack *s = slack_of(p);
    bool socket = s->sockets.app != NULL;

    jw_kstr(w, "mode", socket ? STR("socket") : STR("webhook"));
    if (socket) {
        jw_ki64(w, "sockets", (int64_t)slack_sockets_live(s));
        jw_ki64(w, "socketsOpened", (int64_t)s->sockets.opened);
        jw_ki64(w, "socketsRefreshed", (int64_t)s->sockets.refreshed);
        jw_ki64(w, "socketsLost", (int64_t)s->sockets.lost);
        jw_ki64(w, "socketsDeaf", (int64_t)s->sockets.deaf);
        jw_ki64(w, "envelopesWaiting", (int64_t)s->sockets.n_waiting);
    }
    jw_kstr(w, "workspace", s->own != NULL ? str_of(s->own->id) : STR_NULL);
    jw_kstr(w, "missingScopes", s->own != NULL ? str_of(s->own->missing) : STR_NULL);
    jw_ki64(w, "installations", (int64_t)map_count(&s->teams));
    jw_ki64(w, "commands", (int64_t)s->n.commands);
    jw_ki64(w, "presses", (int64_t)s->n.presses);
    jw_ki64(w, "forwarded", (int64_t)s->n.forwarded);
    jw_ki64(w, "edits", (int64_t)s->n.edits);
    jw_ki64(w, "streams", (int64_t)s->n.streams);
    jw_ki64(w, "appends", (int64_t)s->n.appends);
    jw_ki64(w, "taskCards", (int64_t)s->n.cards);
    jw_ki64(w, "plainRetries", (int64_t)s->n.plain);
    jw_ki64(w, "limited", (int64_t)s->n.limited);
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
    .size = sizeof(struct slack),
    .label = "Slack",
    .api_base = "https://slack.com/api",
    .sender = &slack_sender,
    .prompt_over = slack_prompt_over,
    .open = slack_open,
    .start = slack_start,
    .close = slack_close,
    .check = slack_check,
    .steps =
        "Open https://api.slack.com/apps, Create New App, From a manifest; the manifest is in\n"
        "docs/platforms/slack.md.\n"
        "Basic Information: note the App ID (A...).\n"
        "Socket Mode: Enable Socket Mode, and copy the app-level token (xapp-...).\n"
        "Install App: install it, and copy the Bot User OAuth Token (xoxb-...).",
    .link_how = "Slack keeps lines that begin with / to itself: put a blank before the /.",
    .bot_is = "The App ID of the app, from Basic Information: A0123456789",
    .act = slack_act,
    .http = slack_http,
    .install = slack_install,
    .media_where = slack_media_where,
    .state = slack_state,
    .status = slack_status,
};
