/* platform.c - the list of platforms in this build, and what all of them share: settings, the log,
 * the problem that operators read. */
#include "platform/platform.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/url.h"
#include "net/http_client.h"
#include "platform/discord/discord.h"
#include "platform/email/email.h"
#include "platform/hook/hook.h"
#include "platform/irc/irc.h"
#include "platform/line/line.h"
#include "platform/manifest.h"
#include "platform/matrix/matrix.h"
#include "platform/outgoing.h"
#include "platform/prompts.h"
#include "platform/sender.h"
#include "platform/signal/signal.h"
#include "platform/slack/slack.h"
#include "platform/teams/teams.h"
#include "platform/telegram/telegram.h"
#include "platform/twilio/twilio.h"
#include "platform/web/web.h"
#include "platform/wecom/wecom.h"
#include "platform/whatsapp/whatsapp.h"

enum { ASK_MS = 10000 };

const struct platform_ops *const platforms[] = {
    &web_ops,    &telegram_ops, &discord_ops,  &slack_ops,  &twilio_ops,
    &wecom_ops,  &email_ops,    &whatsapp_ops, &signal_ops, &irc_ops,
    &matrix_ops, &hook_ops,     &teams_ops,    &line_ops,   NULL,
};

const struct record_form *const platform_records[] = {&outgoing_form, &prompt_form, &manifest_form,
                                                      NULL};

#define AT(member) offsetof(struct platform_settings, member)

static const struct config_key entry_keys[] = {
    {"platform", CFG_TEXT, CFG_RESTART, AT(platform), .required = true,
     .what = "The platform; required."},
    {"bot", CFG_TEXT, CFG_RESTART, AT(bot), .required = true,
     .what = "A name for this bot; required."},
    {"tenant", CFG_TEXT, CFG_RESTART, AT(tenant),
     .what = "Makes the bot this tenant's own: no instance of another tenant is reached or speaks "
             "through it, whatever links, scopes, routes and provisioning say."},
    {"host", CFG_TEXT, CFG_RESTART, AT(host),
     .what = "The host name by which webhooks of this bot come, such as `acme.hooks.example.org`; "
             "by another name they are refused like those of an unknown bot. A second entry with "
             "the same `bot` and another `host` is called `bot@host`."},
    {"debounce", CFG_DURATION, CFG_RESTART, AT(debounce_ms), "0", .max = 30000,
     .what =
         "Joins what one person writes in a burst: the agent gets the messages as one, once the "
         "person has paused for this long, such as `2s`. `0` is off."},
    {0},
};

static void to_lower(char *z)
{
    for (; *z != '\0'; z++)
        if (*z >= 'A' && *z <= 'Z')
            *z = (char)(*z + 32);
}

/* The name of a host is kept in lower case, also in a bot that is called bot@host. */
static bool check_entry(void *settings, char *ret_why)
{
    struct platform_settings *s = settings;
    const struct platform_ops *ops = platform_find(str_of(s->platform));
    struct str host = str_of(s->host), api = str_of(s->api_base);

    if (api.p != NULL && !str_starts(api, STR("https://")) && !str_starts(api, STR("http://")))
        return bh_why(ret_why, "`api_base` is an address that starts with https://");
    if (s->host == NULL)
        return true;
    if (ops == NULL || ops->http == NULL || ops->page_visitor != NULL)
        return bh_why(ret_why, "host is for webhooks, and this platform has none");
    if (host.n == 0 || host.n > 253 || host.p[0] == '.' || host.p[host.n - 1] == '.' ||
        !str_has_only(host, "-."))
        return bh_why(ret_why,
                      "host: expected a name such as acme.hooks.example.org, without scheme, port "
                      "or wildcard, found \"%.100s\"",
                      s->host);
    to_lower(s->host);
    struct str bot = str_of(s->bot);
    if (bot.n > host.n && bot.p[bot.n - host.n - 1] == '@' &&
        str_eq_ci(str_skip(bot, bot.n - host.n), host))
        to_lower(s->bot + bot.n - host.n);
    return true;
}

static const struct config_section entry = {.keys = entry_keys,
                                            .size = sizeof(struct platform_settings),
                                            .check = check_entry};

static const struct config_section *kind(size_t i)
{
    return platforms[i] != NULL ? platforms[i]->config : NULL;
}

bool platforms_fit(const struct config *cfg, char *ret_why)
{
    size_t n = config_count(cfg, &platforms_config);

    for (size_t i = 0; i < n; i++) {
        const struct platform_settings *a = config_entry(cfg, &platforms_config, i);
        const struct platform_ops *ops = platform_find(str_of(a->platform));
        for (size_t j = i + 1; ops != NULL && ops->fits != NULL && j < n; j++) {
            const struct platform_settings *b = config_entry(cfg, &platforms_config, j);
            bool apart =
                a->tenant != NULL && b->tenant != NULL && strcmp(a->tenant, b->tenant) != 0;
            if (!apart && strcmp(a->platform, b->platform) == 0 && !ops->fits(a, b, ret_why))
                return false;
        }
    }
    return true;
}

const struct config_list platforms_config = {.name = "platforms",
                                             .entry = &entry,
                                             .example = "{platform: web, bot: lobby}",
                                             .otherwise = "[{platform: web, bot: lobby}]",
                                             .unique = "bot",
                                             .apart = "host",
                                             .kind_key = "platform",
                                             .kind = kind};

static const struct config_key outbox_keys[] = {
    {"outbox.max_age", CFG_DURATION, CFG_RELOAD, offsetof(struct outbox_settings, max_age_ms),
     "10m", .min = 30000, .max = 86400000,
     .what = "How long a message of an agent is retried while its platform cannot be reached or "
             "asks to wait. After that it is dropped."},
    {0},
};
const struct config_section outbox_config = {.keys = outbox_keys,
                                             .size = sizeof(struct outbox_settings)};

const struct platform_ops *platform_find(struct str name)
{
    for (size_t i = 0; platforms[i] != NULL; i++)
        if (str_eq(str_of(platforms[i]->name), name))
            return platforms[i];
    return NULL;
}

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct platform *p = container_of(log, struct platform, log);

    buf_printf(out, "platform=%s bot=%s ", p->ops->name, p->bot);
}

/* Caller frees. */
static char *api_base_of(const struct platform_ops *ops, const struct platform_settings *cfg)
{
    struct str base = str_of(cfg->api_base != NULL ? cfg->api_base : ops->api_base);

    while (str_ends(base, STR("/")))
        base.n--;
    return str_dup(base);
}

enum bh_err platform_open(const struct platform_ops *ops, const struct platform_settings *settings,
                          struct host *host, struct platform **ret_p, char *ret_why)
{
    struct platform *p = xcalloc(1, ops->size);
    enum bh_err err = BH_OK;

    p->ops = ops;
    p->host = host;
    p->env = host_env(host);
    p->settings = settings;
    p->bot = settings->bot;
    p->hook_host = settings->host;
    p->debounce_ms = settings->debounce_ms;
    p->log.prefix = log_prefix;
    if (ops->api_base != NULL)
        p->api_base = api_base_of(ops, settings);
    p->parser = json_parser_new();
    p->answers = json_parser_new();
    list_init(&p->awaits.all);
    if (ops->open != NULL)
        err = ops->open(p, ret_why);
    if (err == BH_OK && (ops->descriptor->ops & 1u << ACTION_PROMPT) != 0)
        err = prompts_open(p, ret_why);
    if (err == BH_OK)
        err = sender_new(p, ret_why);
    if (err != BH_OK) {
        platform_close(p);
        return err;
    }
    *ret_p = p;
    if (ops->start != NULL)
        ops->start(p);
    return BH_OK;
}

void platform_close(struct platform *p)
{
    if (p->ops->close != NULL)
        p->ops->close(p);
    awaits_done(p);
    prompts_close(p->prompts);
    sender_free(p->sender);
    json_parser_free(p->parser);
    json_parser_free(p->answers);
    free(p->api_base);
    free(p);
}

void platform_status(struct platform *p, struct jw *w)
{
    struct sender_stats s;

    sender_stats(p->sender, &s);
    jw_kstr(w, "state",
            str_of(p->ops->state != NULL ? p->ops->state(p)
                   : p->problem != NULL  ? "degraded"
                                         : "live"));
    jw_ki64(w, "events", (int64_t)p->n.events);
    jw_ki64(w, "ignored", (int64_t)p->n.ignored);
    jw_ki64(w, "malformed", (int64_t)p->n.malformed);
    if (p->ops->http != NULL) {
        jw_ki64(w, "webhooksRefused", (int64_t)p->n.refused);
        jw_ki64(w, "webhooksLate", (int64_t)p->awaits.late);
    }
    if (sender_requests(p->sender)) {
        jw_ki64(w, "requests", (int64_t)s.requests);
        jw_ki64(w, "requestsWaiting", (int64_t)s.waiting);
        jw_ki64(w, "sent", (int64_t)s.done);
        jw_ki64(w, "sendsRefused", (int64_t)s.refused);
        jw_ki64(w, "sendsUnknown", (int64_t)s.unknown);
        jw_ki64(w, "cutOffAtStart", (int64_t)s.cut_off);
        jw_ki64(w, "streaming", (int64_t)s.streaming);
        jw_ki64(w, "textsMerged", (int64_t)s.merged);
    }
    if (p->prompts != NULL)
        jw_ki64(w, "openQuestions", (int64_t)prompts_count(p->prompts));
    if (p->ops->status != NULL)
        p->ops->status(p, w);
}

struct str platform_id(const struct platform *p)
{
    struct str bot = str_of(p->bot), host = str_of(p->hook_host);

    return host.n > 0 && bot.n > host.n + 1 && bot.p[bot.n - host.n - 1] == '@' &&
                   str_eq(str_skip(bot, bot.n - host.n), host)
               ? str_make(bot.p, bot.n - host.n - 1)
               : bot;
}

struct str platform_id_in(struct str bot)
{
    ptrdiff_t at = str_find(bot, '@');

    return at > 0 ? str_make(bot.p, (size_t)at) : bot;
}

bool platform_base_url(const struct platform *p, struct buf *out)
{
    const char *base = host_env(p->host)->public_url;
    struct str url = str_of(base),
               scheme = str_starts(url, STR("http://")) ? STR("http://") : STR("https://");

    if (p->hook_host == NULL || base == NULL) {
        if (p->hook_host != NULL)
            buf_printf(out, "https://%s", p->hook_host);
        else
            buf_add_str(out, url);
        return p->hook_host != NULL || base != NULL;
    }
    struct str rest = str_skip(url, scheme.n); /* its port and path stay */
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != ':')
        n++;
    buf_printf(out, "%.*s%s%.*s", STR_FMT(scheme), p->hook_host, STR_FMT(str_skip(rest, n)));
    return true;
}

bool platform_webhook_url(const struct platform *p, struct buf *out)
{
    if (!platform_base_url(p, out))
        return false;
    buf_printf(out, "/webhooks/%s/", p->ops->name);
    percent_encode(out, platform_id(p));
    return true;
}

void platform_set_problem(struct platform *p, const char *sentence)
{
    if (sentence == NULL) {
        if (p->problem != NULL)
            log_info(&p->log, "working again");
        p->problem = NULL;
        return;
    }
    if (p->problem != NULL && strcmp(p->problem_text, sentence) == 0)
        return;
    snprintf(p->problem_text, sizeof p->problem_text, "%s", sentence);
    p->problem = p->problem_text;
    log_error(&p->log, "%s", sentence);
}

int64_t platform_usual_gap_ms(const struct platform *p)
{
    int64_t over_ms = p->rhythm.last_ms - p->rhythm.since_ms;

    if (p->rhythm.events < PLATFORM_DEAF_EVENTS || over_ms <= 0)
        return 0;
    if (over_ms > PLATFORM_RHYTHM_MS)
        over_ms = PLATFORM_RHYTHM_MS;
    int64_t gap_ms = (int64_t)((double)over_ms / p->rhythm.events);
    return gap_ms > 0 ? gap_ms : 1;
}

bool platform_is_deaf(const struct platform *p, int64_t wall_ms, char ret_why[160])
{
    int64_t usual_ms = platform_usual_gap_ms(p), silent_ms = wall_ms - p->last_event_ms;
    int64_t most_ms = 10 * usual_ms > PLATFORM_DEAF_MS ? 10 * usual_ms : PLATFORM_DEAF_MS;

    if (p->rhythm.beat_due_ms != 0) {
        int64_t late_ms = wall_ms - p->rhythm.beat_due_ms;
        if (late_ms <= 0)
            return false;
        snprintf(ret_why, 160, "connected but deaf: the heartbeat is late by %" PRId64 " s",
                 (late_ms + 999) / 1000);
        return true;
    }
    /* A page of bellhop's own is silent when nobody writes. */
    if (usual_ms == 0 || silent_ms <= most_ms || p->ops->page_visitor != NULL)
        return false;
    snprintf(ret_why, 160,
             "perhaps deaf: no event for %" PRId64 " min, and usually one every %" PRId64 " s",
             silent_ms / 60000, (usual_ms + 999) / 1000);
    return true;
}

enum bh_err platform_ask(const struct http_fetch *f, struct json_parser *parser, int *ret_status,
                         struct json *ret_doc, char *ret_why)
{
    BUF_SECRET body = BUF_INIT;
    int status = 0;
    enum bh_err err = http_fetch_now(f, &status, &body, ret_why);

    *ret_status = status;
    if (err != BH_OK)
        return BH_UNAVAILABLE;
    if (!json_parse(parser, buf_str(&body), ret_doc))
        *ret_doc = (struct json){0};
    if (status == 429 || status >= 500 || (status < 400 && !json_is_object(*ret_doc)))
        return bh_err_why(BH_UNAVAILABLE, ret_why, "it answered with HTTP status %d", status);
    return BH_OK;
}

enum bh_err platform_ask_api(const struct platform_ops *ops, const struct platform_settings *cfg,
                             struct str path, struct http_fetch f, struct json_parser *parser,
                             int *ret_status, struct json *ret_doc, char *ret_why)
{
    BUF_SECRET url = BUF_INIT;
    char *base = api_base_of(ops, cfg);

    buf_printf(&url, "%s/%.*s", base, STR_FMT(path));
    free(base);
    f.url = buf_z(&url);
    f.timeout_ms = ASK_MS;
    return platform_ask(&f, parser, ret_status, ret_doc, ret_why);
}

void platform_warn(struct platform_report *r, const char *fmt, ...)
{
    size_t n = strlen(r->warnings);
    va_list ap;

    if (n > 0 && n + 1 < sizeof r->warnings)
        r->warnings[n++] = '\n';
    va_start(ap, fmt);
    vsnprintf(r->warnings + n, sizeof r->warnings - n, fmt, ap);
    va_end(ap);
}

void platform_tell(char *ret, size_t size, struct str s)
{
    snprintf(ret, size, "%.*s", STR_FMT(s));
}

bool platform_owns_url(const char *const *hosts, struct str url, struct str api_base)
{
    struct url u, own;

    if (url.n == 0 || url.n > 4096 || url_split(url, &u) != NULL || u.user.p != NULL)
        return false;
    if (api_base.p != NULL && url_split(api_base, &own) == NULL && str_eq(u.scheme, own.scheme) &&
        str_eq(u.authority, own.authority))
        return true;
    for (; hosts != NULL && *hosts != NULL; hosts++) {
        struct str host = str_of(*hosts);
        bool below =
            str_ends(u.host, host) && u.host.n > host.n && u.host.p[u.host.n - host.n - 1] == '.';
        if (str_eq(u.scheme, STR("https")) && (below || str_eq(u.host, host)) &&
            (u.port == 0 || u.port == 443))
            return true;
    }
    return false;
}

struct str platform_message_type(struct str mime, bool voice)
{
    if (str_starts(mime, STR("image/")))
        return STR("photo");
    if (str_starts(mime, STR("video/")))
        return STR("video");
    if (str_starts(mime, STR("audio/")))
        return voice ? STR("voice") : STR("audio");
    return STR("document");
}
