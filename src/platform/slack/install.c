/* install.c - installs the app in more workspaces, by OAuth v2.  (slack_priv.h has the calls.)
 *
 *      GET /slack/install/<bot> --> a state, signed, in a cookie --> Slack's page: "Allow"
 *      GET /slack/install/<bot>/callback --> the state is that of the cookie, ours and fresh
 *          --> oauth.v2.access --> the token, sealed, on disk --> "Installed"
 *
 * Anybody may install the app in a workspace of theirs.  That gives them nothing: events of a
 * workspace reach an agent by a link or a route, as all others.  The state keeps a stranger from
 * making somebody else's browser install a workspace.
 *
 * A workspace that removes the app, or revokes its token, is forgotten.  Slack may repeat the news
 * hours later, when the app is installed again; so the time of the event counts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "platform/slack/slack_priv.h"
#include "store/record.h"
#include "store/store.h"

enum {
    STATE_MS = 600000,
    NONCE_BYTES = 16,
    MAX_INSTALLS = 32, /* callbacks under way */
    MAX_TEAMS = 10000,
    CODE_MAX = 512,
};

#define COOKIE "bellhop_slack_install"

/* ---- records ---- */

struct team_record {
    struct str bot, team;
    struct str token, bot_user, name;
    int64_t since_ms;
};
static const struct record_field team_fields[] = {
    RECORD_FIELD(struct team_record, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct team_record, team, "team", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct team_record, token, "token", RECORD_NEEDED | RECORD_SEALED),
    RECORD_FIELD(struct team_record, bot_user, "botUser", 0),
    RECORD_FIELD(struct team_record, name, "name", 0),
    RECORD_FIELD(struct team_record, since_ms, "since", 0),
};
const struct record_form slack_team_form =
    RECORD_FORM("slack_team", struct team_record, team_fields, .lossy = true);

static struct slack_team *add_team(struct slack *s, const struct team_record *r)
{
    struct slack_team *t = slack_team_new(s, r->team, r->token);
    struct slack_team *old = map_get(&s->teams, r->team);

    if (slack_is_id(r->bot_user))
        memcpy(t->bot_user, r->bot_user.p, r->bot_user.n);
    t->name = str_dup_opt(r->name);
    t->since_ms = r->since_ms;
    if (old != NULL) { /* requests under way have it: it takes the new token, and stays */
        char *auth = old->auth;
        old->auth = t->auth;
        t->auth = auth;
        memcpy(old->bot_user, t->bot_user, sizeof old->bot_user);
        old->since_ms = t->since_ms;
        slack_team_free(t);
        return old;
    }
    map_put(&s->teams, str_of(t->id), t);
    return t;
}

static bool on_team(void *ctx, struct str key, void *thing)
{
    struct slack *s = ctx;
    const struct team_record *r = thing;

    if (!slack_is_id(r->team) || map_count(&s->teams) >= MAX_TEAMS)
        return false;
    add_team(s, r);
    return true;
}

enum bh_err slack_teams_load(struct slack *s, char *ret_why)
{
    struct team_record own = {.bot = str_of(s->base.bot)};
    struct record_reader *reader = record_reader_new(s->base.env->seal);
    BUF_LOCAL prefix = BUF_INIT;

    record_write_prefix(&slack_team_form, &own, 1, &prefix);
    enum bh_err err = record_load(s->base.env->store, &slack_team_form, reader, buf_str(&prefix),
                                  on_team, s, ret_why);
    record_reader_free(reader);
    return err;
}

void slack_team_removed(struct slack *s, struct str team, int64_t at_s)
{
    struct slack_team *t = map_get(&s->teams, team);
    struct team_record r = {.bot = str_of(s->base.bot), .team = team};

    if (t == NULL || (at_s > 0 && at_s < t->since_ms / 1000))
        return;
    log_info(&s->base.log, "the app was removed from workspace %s", t->id);
    record_delete_like(s->base.env->store, &slack_team_form, &r);
    map_del(&s->teams, team);
    secret_wipe(t->auth, strlen(t->auth));
    t->auth[0] = '\0'; /* requests under way may still have it */
    list_append(&s->gone, &t->gone);
}

/* ---- the state ---- */

static void write_state(struct slack *s, struct str nonce, int64_t until_ms, struct buf *out)
{
    BUF_LOCAL text = BUF_INIT;
    uint8_t mac[32];

    buf_printf(&text, "%s %.*s %" PRId64, s->base.bot, STR_FMT(nonce), until_ms);
    seal_mac(s->base.env->seal, STR("slack install"), buf_str(&text), mac);
    buf_printf(out, "%.*s.%" PRId64 ".", STR_FMT(nonce), until_ms);
    hex_add(out, mac, sizeof mac);
}

static bool state_ok(struct slack *s, struct str state, struct str cookie)
{
    struct str rest = state, nonce, until;
    BUF_LOCAL ours = BUF_INIT;
    int64_t until_ms;

    if (state.n == 0 || state.n > 256 || state.n != cookie.n ||
        !ct_equal(state.p, cookie.p, state.n) || !str_split(&rest, '.', &nonce) ||
        !str_split(&rest, '.', &until) || !str_to_i64(until, &until_ms) ||
        until_ms < clock_wall_ms(s->base.env->clock))
        return false;
    write_state(s, nonce, until_ms, &ours);
    return ours.n == state.n && ct_equal(ours.p, state.p, state.n);
}

/* ---- pages ---- */

static void show(struct slack *s, struct http_id id, int status, const char *words)
{
    BUF_LOCAL page = BUF_INIT;

    buf_printf(&page,
               "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>bellhop</title>"
               "<body><h1>bellhop</h1><p>%s</p></body></html>",
               words);
    http_answer(s->base.env->server, id,
                &(struct http_answer){.status = status,
                                      .content_type = "text/html; charset=utf-8",
                                      .headers = "Cache-Control: no-store\r\n"
                                                 "Content-Security-Policy: default-src 'none'\r\n",
                                      .body = buf_str(&page)});
}

static void add_callback(const struct slack *s, struct buf *out)
{
    buf_printf(out, "%s/slack/install/%s/callback", s->base.env->public_url, s->base.bot);
}

static void begin(struct slack *s, struct http_req *req)
{
    uint8_t bytes[NONCE_BYTES];
    BUF_LOCAL nonce = BUF_INIT, state = BUF_INIT, query = BUF_INIT, headers = BUF_INIT,
              back = BUF_INIT;
    struct str base = str_of(s->base.api_base);

    rand_bytes(s->base.env->rand, bytes, sizeof bytes);
    hex_add(&nonce, bytes, sizeof bytes);
    write_state(s, buf_str(&nonce), clock_wall_ms(s->base.env->clock) + STATE_MS, &state);
    add_callback(s, &back);
    form_add(&query, "client_id", str_of(s->cfg->client_id));
    form_add(&query, "scope", slack_scopes());
    form_add(&query, "state", buf_str(&state));
    form_add(&query, "redirect_uri", buf_str(&back));
    if (str_ends(base, STR("/api")))
        base.n -= 4;
    buf_printf(&headers, "Location: %.*s/oauth/v2/authorize?%.*s\r\n", STR_FMT(base),
               STR_FMT(buf_str(&query)));
    buf_printf(&headers,
               "Set-Cookie: " COOKIE "=%.*s; Path=/slack/install/; Max-Age=%d; HttpOnly; "
               "SameSite=Lax%s\r\nCache-Control: no-store\r\n",
               STR_FMT(buf_str(&state)), STATE_MS / 1000,
               str_starts(str_of(s->base.env->public_url), STR("https://")) ? "; Secure" : "");
    http_answer(s->base.env->server, http_req_id(req),
                &(struct http_answer){.status = 302, .headers = buf_z(&headers)});
}

/* ---- the callback ---- */

struct slack_install {
    struct list link;
    struct slack *s; /* borrowed */
    struct http_id http;
    struct store_put *put;
};

static void install_free(struct slack_install *x)
{
    list_remove(&x->link);
    x->s->n_installs--;
    free(x);
}

void slack_installs_cancel(struct slack *s)
{
    list_each (&s->installs, it, nxt) {
        struct slack_install *x = list_entry(it, struct slack_install, link);
        store_put_cancel(&x->put);
        install_free(x);
    }
    list_each (&s->gone, it, nxt)
        slack_team_free(list_entry(it, struct slack_team, gone));
}

static void on_kept(void *ctx, enum bh_err err)
{
    struct slack_install *x = ctx;

    x->put = NULL;
    if (err == BH_OK)
        show(x->s, x->http, 200,
             "Installed. Invite the bot to a channel, or write to it directly; an operator decides "
             "which agent answers.");
    else
        show(x->s, x->http, 503, "The installation could not be kept. Try again in a moment.");
    install_free(x);
}

static void on_access(void *ctx, const struct sender_verdict *v)
{
    struct slack_install *x = ctx;
    struct slack *s = x->s;
    struct json a = v->answer, team = json_get(a, "team");
    struct str app = json_str(a, "app_id"), token = json_str(a, "access_token");
    struct team_record r = {.bot = str_of(s->base.bot),
                            .team = json_str(team, "id"),
                            .token = token,
                            .bot_user = json_str(a, "bot_user_id"),
                            .name = json_str(team, "name"),
                            .since_ms = clock_wall_ms(s->base.env->clock)};

    if (v->end != SENDER_DONE) {
        show(s, x->http, v->end == SENDER_REFUSED ? 403 : 503,
             "Slack did not confirm the installation. Start again.");
        install_free(x);
        return;
    }
    if (!slack_is_id(r.team) || !str_eq(json_str(a, "token_type"), STR("bot")) || token.n == 0 ||
        token.n > 512 || !str_has_only(token, "-_.") ||
        (slack_is_id(str_of(s->base.bot)) && app.n > 0 && !str_eq(app, str_of(s->base.bot))) ||
        r.name.n > 200) {
        show(s, x->http, 502, "Slack's answer does not belong to this app.");
        install_free(x);
        return;
    }
    if (json_str(a, "refresh_token").n > 0) {
        show(s, x->http, 502,
             "The tokens of this app expire after twelve hours (token rotation), and bellhop does "
             "not renew them. The operator needs an app without token rotation.");
        install_free(x);
        return;
    }
    if (map_get(&s->teams, r.team) == NULL && map_count(&s->teams) >= MAX_TEAMS) {
        show(s, x->http, 503, "This app is installed in too many workspaces.");
        install_free(x);
        return;
    }
    add_team(s, &r);
    log_info(&s->base.log, "the app was installed in workspace %.*s", STR_FMT(r.team));
    x->put =
        record_put(s->base.env->store, &slack_team_form, s->base.env->seal, &r, true, on_kept, x);
}

static void finish(struct slack *s, struct http_req *req)
{
    BUF_LOCAL state = BUF_INIT, back = BUF_INIT;
    BUF_SECRET code = BUF_INIT, body = BUF_INIT;
    struct str cookie = STR_NULL;

    http_query(req, "state", &state);
    http_cookie(req, COOKIE, &cookie);
    if (!state_ok(s, buf_str(&state), cookie)) {
        show(s, http_req_id(req), 403,
             "This installation was not begun here, or more than ten minutes ago. Start again.");
        return;
    }
    if (!http_query(req, "code", &code) || code.n == 0 || code.n > CODE_MAX) {
        show(s, http_req_id(req), 200, "Nothing was installed.");
        return;
    }
    if (s->n_installs >= MAX_INSTALLS) {
        show(s, http_req_id(req), 503, "Not now: try again in a moment.");
        return;
    }
    struct slack_install *x = xcalloc(1, sizeof *x);
    *x = (struct slack_install){.s = s, .http = http_req_id(req)};
    list_append(&s->installs, &x->link);
    s->n_installs++;
    add_callback(s, &back);
    form_add(&body, "code", buf_str(&code));
    form_add(&body, "client_id", str_of(s->cfg->client_id));
    form_add(&body, "client_secret", str_of(s->cfg->client_secret));
    form_add(&body, "redirect_uri", buf_str(&back));
    slack_ask(s->oauth, SLACK_OAUTH, buf_str(&body),
              &(struct sender_question){
                  .lane = STR("install"), .patience_ms = 10000, .told = on_access, .ctx = x});
}

bool slack_install(struct platform *p, struct http_req *req)
{
    struct slack *s = slack_of(p);

    if (s->oauth == NULL)
        return false;
    if (s->base.env->public_url == NULL)
        show(s, http_req_id(req), 503, "The operator has to set public_url first.");
    else if (str_ends(http_path(req), STR("/callback")))
        finish(s, req);
    else
        begin(s, req);
    return true;
}
