/* matrix.c - settings, open, close, check and status of one Matrix user; finds people's files; the
 * registration file.  (matrix_priv.h is the map of the other files.) */
#include "platform/matrix/matrix.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "platform/matrix/matrix_priv.h"

#define MAX_TRANSACTION ((size_t)16 << 20) /* a hundred events of 64 KiB, and what surrounds them */

/* ---- settings ---- */

#define AT(member) offsetof(struct matrix_settings, member)

static const struct config_key keys[] = {
    {"homeserver", CFG_TEXT, CFG_RESTART, AT(base.api_base), .ask = "",
     .what = "The address of the homeserver: `https://matrix.example.org`."},
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .ask = "",
     .what = "The access token of the bot's user. bellhop then asks for events (`/sync`)."},
    {"appservice.as_token", CFG_SECRET, CFG_RESTART, AT(service.as_token),
     .what = "Instead of `token`: the secret that bellhop, as an application service, shows to the "
             "homeserver."},
    {"appservice.hs_token", CFG_SECRET, CFG_RESTART, AT(service.hs_token),
     .what = "The secret that the homeserver shows to bellhop."},
    {"appservice.namespace", CFG_TEXT, CFG_RESTART, AT(service.namespace),
     .what = "The users that belong to bellhop, as an extended regular expression of user ids: "
             "`@desk_.*:example\\.org`. With it each instance has a user of its own."},
    {"rate", CFG_NUMBER, CFG_RESTART, AT(rate), "12", .max = 60000,
     .what = "How many messages a minute the homeserver allows to the user, after ten at once. `0` "
             "is no limit. An application service has none."},
    PLATFORM_KEY_REACTIONS,
    {0},
};

static bool is_secret(const char *z)
{
    return z[0] != '\0' && strlen(z) <= 4096 && str_has_only(str_of(z), "-._~+/=");
}

static bool check_service(const struct matrix_settings *s, char *ret_why)
{
    regex_t re;

    if (s->service.as_token == NULL || s->service.hs_token == NULL)
        return bh_why(ret_why, "set `token`, or both `appservice.as_token` and "
                               "`appservice.hs_token` (openssl rand -hex 32 makes one)");
    if (!is_secret(s->service.as_token) || !is_secret(s->service.hs_token))
        return bh_why(ret_why, "a token of `appservice` may have letters, digits and -._~+/=");
    if (strcmp(s->service.as_token, s->service.hs_token) == 0)
        return bh_why(ret_why, "`appservice.as_token` and `appservice.hs_token` must differ");
    if (s->service.namespace == NULL)
        return true;
    if (regcomp(&re, s->service.namespace, REG_EXTENDED) != 0)
        return bh_why(ret_why, "`appservice.namespace` is not a regular expression such as "
                               "@desk_.*:example\\.org");
    regfree(&re);
    return true;
}

static bool check(void *settings, char *ret_why)
{
    const struct matrix_settings *s = settings;
    struct str base = str_of(s->base.api_base), bot = str_of(s->base.bot);

    if (!mx_is_user(bot))
        return bh_why(ret_why, "`bot` must be the user id, such as \"@desk:example.org\"");
    if (base.p == NULL)
        return bh_why(ret_why, "\"homeserver\" is missing: the address that apps use, such as "
                               "https://matrix.example.org");
    if (!str_starts(base, STR("https://")) && !str_starts(base, STR("http://")))
        return bh_why(ret_why, "`homeserver` is an address that starts with https://");
    bool service =
        s->service.as_token != NULL || s->service.hs_token != NULL || s->service.namespace != NULL;
    if (s->token != NULL && service)
        return bh_why(ret_why, "set either `token` or `appservice`, not both");
    if (s->token != NULL && !is_secret(s->token))
        return bh_why(ret_why, "`token` does not look like an access token");
    return s->token != NULL || check_service(s, ret_why);
}

const struct config_section matrix_config = {.name = "matrix",
                                             .keys = keys,
                                             .size = sizeof(struct matrix_settings),
                                             .check = check};

/* ---- the registration file ---- */

static void add_line(struct buf *out, const char *key, struct str value)
{
    struct jw w = jw_begin(out);

    buf_add_z(out, key);
    jw_str(&w, value); /* JSON is YAML */
    buf_add_c(out, '\n');
}

static bool registration(const struct platform_settings *settings, struct str url, struct buf *out)
{
    const struct matrix_settings *cfg = container_of(settings, const struct matrix_settings, base);
    struct str local = mx_local_of(str_of(cfg->base.bot));
    BUF_LOCAL id = BUF_INIT;

    if (cfg->token != NULL)
        return false;
    buf_printf(&id, MX_SERVICE_ID "%.*s", STR_FMT(local));
    add_line(out, "id: ", buf_str(&id));
    add_line(out, "url: ", url);
    add_line(out, "as_token: ", str_of(cfg->service.as_token));
    add_line(out, "hs_token: ", str_of(cfg->service.hs_token));
    add_line(out, "sender_localpart: ", local);
    buf_add_z(out, "rate_limited: false\nnamespaces:\n");
    if (cfg->service.namespace != NULL) {
        buf_add_z(out, "  users:\n    - exclusive: true\n");
        add_line(out, "      regex: ", str_of(cfg->service.namespace));
    } else {
        buf_add_z(out, "  users: []\n");
    }
    buf_add_z(out, "  aliases: []\n  rooms: []\n");
    return true;
}

/* ---- people's files ---- */

static void mx_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    struct matrix *m = matrix_of(p);
    const char *const headers[] = {m->auth, NULL}, *const none[] = {NULL};
    struct str server, id;
    BUF_LOCAL url = BUF_INIT;

    if (!mx_media_split(ref, &server, &id)) {
        host_media_gone(p->host, ask, "the file has no address of a homeserver");
        return;
    }
    buf_printf(&url, "%s%s/", p->api_base,
               m->old_media ? "/_matrix/media/v3/download" : "/_matrix/client/v1/media/download");
    percent_encode(&url, server);
    buf_add_c(&url, '/');
    percent_encode(&url, id);
    host_media_at(p->host, ask,
                  &(struct media_at){.url = buf_str(&url),
                                     .headers = m->old_media ? none : headers,
                                     .redirects = true});
}

/* ---- life ---- */

static enum bh_err mx_open(struct platform *p, char *ret_why)
{
    struct matrix *m = matrix_of(p);
    struct buf auth = BUF_INIT;

    m->cfg = container_of(p->settings, const struct matrix_settings, base);
    m->server = mx_server_of(str_of(p->bot));
    buf_printf(&auth, "Authorization: Bearer %s",
               m->cfg->token != NULL ? m->cfg->token : m->cfg->service.as_token);
    m->auth = buf_take(&auth);
    if (mx_is_service(m) && m->cfg->service.namespace != NULL)
        m->has_namespace = regcomp(&m->namespace, m->cfg->service.namespace, REG_EXTENDED) == 0;
    m->thread = work_pool_new(p->env->loop, 1);
    mx_in_open(m);
    return mx_rooms_load(m, ret_why);
}

static void mx_start(struct platform *p)
{
    struct matrix *m = matrix_of(p);

    mx_in_start(m);
    log_info(&p->log, "open: mode=%s", mx_is_service(m) ? "appservice" : "sync");
}

static void mx_close(struct platform *p)
{
    struct matrix *m = matrix_of(p);

    mx_in_close(m);
    work_pool_free(m->thread);
    mx_rooms_done(m);
    if (m->has_namespace)
        regfree(&m->namespace);
    if (m->auth != NULL)
        secret_wipe(m->auth, strlen(m->auth));
    free(m->auth);
}

/* ---- check ---- */

static enum bh_err ask(const struct matrix_settings *cfg, const char *method, struct str path,
                       struct str body, struct json_parser *parser, int *ret_status,
                       struct json *ret_doc, char *ret_why)
{
    BUF_SECRET auth = BUF_INIT;

    buf_printf(&auth, "Authorization: Bearer %s",
               cfg->token != NULL ? cfg->token : cfg->service.as_token);
    const char *const headers[] = {buf_z(&auth), "Content-Type: application/json", NULL};
    return platform_ask_api(&matrix_ops, &cfg->base, path,
                            (struct http_fetch){.method = method, .headers = headers, .body = body},
                            parser, ret_status, ret_doc, ret_why);
}

/* The homeserver is asked to call bellhop, which has to be running. */
static void check_ping(const struct matrix_settings *cfg, struct json_parser *parser,
                       struct platform_report *ret)
{
    struct str local = mx_local_of(str_of(cfg->base.bot));
    BUF_LOCAL path = BUF_INIT, id = BUF_INIT;
    struct json doc = {0};
    char why[256] = "";
    int status = 0;

    buf_printf(&id, MX_SERVICE_ID "%.*s", STR_FMT(local));
    buf_add_z(&path, "_matrix/client/v1/appservice/");
    percent_encode(&path, buf_str(&id));
    buf_add_z(&path, "/ping");
    enum bh_err err = ask(cfg, "POST", buf_str(&path), STR("{\"transaction_id\":\"doctor\"}"),
                          parser, &status, &doc, why);
    if (err == BH_OK && status == 200)
        return;
    if (status == 404)
        snprintf(ret->notes, sizeof ret->notes,
                 "the homeserver is too old to say whether it reaches bellhop");
    else
        platform_warn(ret,
                      "the homeserver does not reach bellhop (HTTP %d): start bellhop, and check "
                      "`url` in the registration file and the proxy",
                      status);
}

static enum bh_err mx_check(const struct platform_settings *settings, struct platform_report *ret,
                            char *ret_why)
{
    const struct matrix_settings *cfg = container_of(settings, const struct matrix_settings, base);
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    int status = 0;
    bool service = cfg->token == NULL;
    enum bh_err err = ask(cfg, "GET", STR("_matrix/client/v3/account/whoami"), STR_NULL, parser,
                          &status, &doc, ret_why);
    struct str user = json_str(doc, "user_id");

    if (err == BH_OK && (status == 401 || status == 403))
        err =
            bh_err_why(BH_REFUSED, ret_why,
                       service ? "the homeserver does not know `appservice.as_token`: give it the "
                                 "file that `bellhop matrix registration` prints, and restart it"
                               : "the homeserver refuses `token`: log in again and copy the new "
                                 "access token");
    else if (err == BH_OK && (status != 200 || !mx_is_user(user)))
        err = bh_err_why(BH_UNAVAILABLE, ret_why,
                         "%.100s does not answer like a homeserver (HTTP %d)", cfg->base.api_base,
                         status);
    else if (err == BH_OK && !service && !str_eq(user, str_of(cfg->base.bot)))
        err = bh_err_why(BH_REFUSED, ret_why,
                         "the token belongs to %.*s, so `bot` must be that user id, or `token` one "
                         "of %.100s",
                         user.n < 100 ? (int)user.n : 100, user.p, cfg->base.bot);
    if (err == BH_OK) {
        platform_tell(ret->bot, sizeof ret->bot, user);
        platform_tell(ret->name, sizeof ret->name, user);
        snprintf(ret->reach, sizeof ret->reach,
                 "invite %.*s to a room without encryption; it comes if you are linked",
                 user.n < 128 ? (int)user.n : 128, user.p);
        ret->webhook = service;
    }
    if (err == BH_OK && service)
        check_ping(cfg, parser, ret);
    json_parser_free(parser);
    return err;
}

/* ---- status ---- */

static void mx_status(struct platform *p, struct jw *w)
{
    struct matrix *m = matrix_of(p);

    jw_kstr(w, "mode", mx_is_service(m) ? STR("appservice") : STR("sync"));
    jw_ki64(w, "rooms", (int64_t)map_count(&m->rooms.map));
    jw_ki64(w, "encryptedRooms", (int64_t)m->n_encrypted);
    jw_ki64(w, "invitationsWaiting", (int64_t)m->n_invited);
    if (m->n_encrypted > 0) {
        snprintf(m->note, sizeof m->note,
                 "%zu room%s encrypted, where bellhop reads and writes nothing", m->n_encrypted,
                 m->n_encrypted == 1 ? " is" : "s are");
        jw_kstr(w, "note", str_of(m->note));
    }
    if (mx_is_service(m)) {
        jw_ki64(w, "transactions", (int64_t)m->n.transactions);
        jw_ki64(w, "transactionsRepeated", (int64_t)m->n.repeated);
    } else {
        jw_ki64(w, "syncs", (int64_t)m->n.syncs);
        jw_ki64(w, "gapsFilled", (int64_t)m->n.gaps);
    }
    jw_ki64(w, "joins", (int64_t)m->n.joins);
    jw_ki64(w, "invitationsRefused", (int64_t)m->n.refused_invites);
    jw_ki64(w, "limited", (int64_t)m->n.limited);
    jw_ki64(w, "plainRetries", (int64_t)m->n.plain);
}

/* A homeserver tells a batch again until all of it is taken, which one full mailbox can hold up. */
#define REPEATS_MS ((int64_t)30 * 24 * 3600 * 1000)

static const struct descriptor descriptor = {
    .platform = "matrix",
    .label = "Matrix",
    .max_message_length = MX_MAX_CHARS,
    .supports_edit = true,
    .markdown_dialect = "markdown",
    .len_unit = "chars",
    .emoji = "\U0001F4AC",
    .platform_hint = "You are talking on Matrix. Ordinary Markdown is shown: bold, italic, strike, "
                     "headings, lists, quotes, links, code with fences, tables. A full user id "
                     "(@ann:example.org) mentions that person.",
    .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT | 1u << ACTION_TYPING |
           1u << ACTION_GET_CHAT_INFO | 1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT |
           1u << ACTION_REACT,
};

static const struct record_form *const records[] = {&mx_cursor_form, &mx_room_form, NULL};

const struct platform_ops matrix_ops = {
    .name = "matrix",
    .config = &matrix_config,
    .descriptor = &descriptor,
    .records = records,
    .repeats_ms = REPEATS_MS,
    .eraser = &mx_eraser,
    .forget = mx_forget,
    .max_webhook = MAX_TRANSACTION,
    .fixed_path = "/_matrix/app",
    .size = sizeof(struct matrix),
    .label = "the homeserver",
    .api_base = "https://matrix.org",
    .sender = &mx_sender,
    .open = mx_open,
    .start = mx_start,
    .close = mx_close,
    .check = mx_check,
    .registration = registration,
    .steps = "Register a user for the bot on your homeserver, and log in as that user.\n"
             "Copy its access token: in Element, All settings, Help & About, Advanced.\n"
             "Do not log out of that session: the token ends with it.\n"
             "docs/platforms/matrix.md shows how to run bellhop as an application service instead.",
    .link_how =
        "Send it with the invitation, in a room without encryption: /invite BOT /link CODE. "
        "Where the bot is already, write !link CODE.",
    .bot_is = "The user id of the bot: @desk:example.org",
    .act = mx_act,
    .http = mx_http,
    .media_where = mx_media_where,
    .state = mx_in_state_name,
    .status = mx_status,
};
