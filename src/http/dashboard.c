/* dashboard.c - serves the page, signs people in, and runs their calls.  (dashboard.h has the
 * contract.)
 *
 * Against forged requests: the cookie is SameSite=Strict, so a browser never sends it for another
 * site.  Besides, every POST must be JSON, come from this origin, and, once a session exists, carry
 * the session's token in X-Bellhop-Csrf.  A sign-in always makes a new session and a new cookie,
 * and ends the session that the browser had, so nobody can prepare a session for somebody else.
 *
 * The page's Content-Security-Policy allows its own scripts only, forbids frames, and makes the
 * browser refuse code that is built from text (trusted types). */
#include "http/dashboard.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/asset.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/admin.h"
#include "http/dashboard_priv.h"
#include "http/v1.h"
#include "net/loop.h"
#include "tenancy/facts.h"

extern const struct asset dashboard_assets[]; /* ends with a NULL name; made by web/embed.py */

#define COOKIE "bellhop_dashboard"
#define SECURE_COOKIE "__Host-bellhop_dashboard" /* no other host or path can set it */
#define SECURITY_HEADERS \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; " \
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " \
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'\r\n" \
    "X-Frame-Options: DENY\r\n" \
    "X-Content-Type-Options: nosniff\r\n" \
    "Referrer-Policy: no-referrer\r\n" \
    "Cross-Origin-Opener-Policy: same-origin\r\n" \
    "Cross-Origin-Resource-Policy: same-origin\r\n"
#define LINK_MS 300000 /* how long a one-time link is good */
#define LINK_MAX_MS 3600000

struct dashboard {
    struct front *f; /* borrowed */
    struct dash_sessions sessions;
    struct dash_live live;
    uint8_t cursor_key[SEAL_KEY_BYTES]; /* of this process */
};

struct dashboard *dashboard_new(struct front *f, struct rand *rand)
{
    struct dashboard *d = xcalloc(1, sizeof *d);

    d->f = f;
    rand_bytes(rand, d->cursor_key, sizeof d->cursor_key);
    dash_sessions_init(&d->sessions, f, rand);
    dash_live_init(&d->live, f, &d->sessions);
    return d;
}

void dashboard_seal(const struct dashboard *d, struct str tenant, struct str cursor,
                    struct buf *out)
{
    BUF_LOCAL sealed = BUF_INIT;

    seal_add(d->cursor_key, tenant, cursor, &sealed);
    base64url_add(out, sealed.p, sealed.n);
}

bool dashboard_open(const struct dashboard *d, struct str tenant, struct str sealed,
                    struct buf *out)
{
    BUF_LOCAL bytes = BUF_INIT;

    return base64url_decode(sealed, &bytes) &&
           seal_open(d->cursor_key, tenant, buf_str(&bytes), out);
}

static void end_streams_of(struct dash_session *s)
{
    list_each (&s->streams, it, nxt)
        dash_stream_end(list_entry(it, struct dash_stream, link));
}

void dashboard_end_streams(struct dashboard *d)
{
    if (d != NULL)
        list_each (&d->sessions.all, it, nxt)
            end_streams_of(list_entry(it, struct dash_session, link));
}

void dashboard_free(struct dashboard *d)
{
    if (d == NULL)
        return;
    dashboard_end_streams(d);
    dash_live_done(&d->live);
    dash_sessions_done(&d->sessions);
    free(d);
}

static void end_session(struct dashboard *d, struct dash_session *s)
{
    end_streams_of(s);
    dash_session_free(&d->sessions, s);
}

void dashboard_forget(struct dashboard *d, struct str tenant)
{
    dash_links_forget(&d->sessions, tenant);
    list_each (&d->sessions.all, it, nxt) {
        struct dash_session *s = list_entry(it, struct dash_session, link);
        if (s->role.tenant != NULL && str_eq(str_of(s->role.tenant), tenant))
            end_session(d, s);
    }
}

/* ---- page and assets ---- */

/* @lasting: the address names the version of the page, so a browser need not ask again. */
static void answer_asset(struct front *f, struct http_req *req, const struct asset *a, bool lasting)
{
    struct str known = http_header(req, "If-None-Match");
    char headers[1024];
    struct http_answer answer = {.status = 200, .headers = headers, .content_type = a->type};

    snprintf(headers, sizeof headers, SECURITY_HEADERS "ETag: %s\r\nCache-Control: %s\r\n", a->etag,
             lasting ? "public, max-age=31536000, immutable" : "no-cache");
    if (known.p != NULL && str_contains(known, str_of(a->etag)))
        answer.status = 304;
    else
        answer.body = a->bytes;
    http_answer(f->server, http_req_id(req), &answer);
}

/* *@ret_lasting: @version is the one of this page. */
static const struct asset *asset_find(struct str version, struct str name, bool *ret_lasting)
{
    const struct asset *found = NULL, *a = dashboard_assets;

    for (; a->name != NULL; a++)
        if (str_eq(str_of(a->name), name))
            found = a;
    *ret_lasting = str_eq(str_of(a->etag), version);
    return found;
}

/* ---- sessions ---- */

/* Over plain HTTP on this machine a browser would drop a secure cookie. */
static bool is_secure(const struct front *f, const struct http_req *req)
{
    return http_is_tls(req) ||
           (str_starts(str_of(f->public_url), STR("https://")) && !front_is_local(f, req));
}

static struct dash_session *find_session(struct dashboard *d, const struct http_req *req)
{
    struct dash_session *s = NULL;
    struct str cookie;

    if (http_cookie(req, is_secure(d->f, req) ? SECURE_COOKIE : COOKIE, &cookie))
        s = dash_session_find(&d->sessions, cookie);
    if (s != NULL && dash_session_is_over(&d->sessions, s)) {
        end_session(d, s);
        s = NULL;
    }
    return s;
}

/* Why the session may not call @op; NULL: it may. */
static const char *refusal_of(const struct dash_session *s, const struct op *op)
{
    bool managed = op->may == MAY_GATEWAY && op->operator_path != NULL;

    if (op->may != MAY_OPERATOR && op->may != MAY_ADMIN && !managed)
        return "This operation is not for the dashboard.";
    if (s->role.tenant != NULL && !managed && !op->tenant_view)
        return "Only the operator may do this.";
    if (s->role.read_only && strcmp(op->method, "GET") != 0)
        return "This sign-in may look at everything here and change nothing.";
    return NULL;
}

static void write_session(struct dashboard *d, const struct dash_session *s, struct buf *out)
{
    struct jw w = jw_begin(out);
    int64_t wall_ms = clock_wall_ms(loop_clock(d->f->loop));

    jw_obj(&w);
    jw_kbool(&w, "signedIn", s != NULL);
    jw_kbool(&w, "tokens", !str_is_empty(str_of(d->f->settings->admin_token)));
    if (s != NULL) {
        jw_kstr(&w, "csrf", str_of(s->csrf));
        jw_kstr(&w, "tenant", str_of(s->role.tenant));
        jw_kbool(&w, "readOnly", s->role.read_only);
        jw_ki64(&w, "until", wall_ms + dash_session_left_ms(&d->sessions, s));
        jw_kstr(&w, "version", s->role.tenant == NULL ? STR(BELLHOP_VERSION) : STR_NULL);
        jw_karr(&w, "ops");
        for (const struct op_family *family = op_families; family->name != NULL; family++)
            for (const struct op *op = family->ops; op->name != NULL; op++)
                if (refusal_of(s, op) == NULL)
                    jw_str(&w, str_of(op->name));
        jw_end_arr(&w);
    }
    jw_end_obj(&w);
}

static void answer_session(struct dashboard *d, struct http_req *req, const struct dash_session *s,
                           const char *cookie)
{
    BUF_SECRET body = BUF_INIT, headers = BUF_INIT;
    bool secure = is_secure(d->f, req);

    buf_add_z(&headers, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n");
    if (cookie != NULL)
        buf_printf(&headers,
                   "Set-Cookie: %s=%s; Path=%s; Max-Age=%d; HttpOnly; SameSite=Strict%s\r\n",
                   secure ? SECURE_COOKIE : COOKIE, cookie, secure ? "/" : "/dashboard",
                   s != NULL ? (int)(dash_session_left_ms(&d->sessions, s) / 1000) : 0,
                   secure ? "; Secure" : "");
    write_session(d, s, &body);
    http_answer(d->f->server, http_req_id(req),
                &(struct http_answer){.status = 200,
                                      .headers = buf_z(&headers),
                                      .body = buf_str(&body)});
}

/* ---- sign-in ---- */

static bool use_link(struct dashboard *d, const struct http_req *req, struct str link,
                     struct dash_role *ret, const char **ret_why)
{
    *ret_why = "This link was used already or is too old. Get a new one: bellhop dashboard";
    if (front_is_local(d->f, req))
        return dash_link_use(&d->sessions, link, ret);
    *ret_why = "A one-time link works only on this machine. From elsewhere, sign in with a token.";
    return false;
}

static void begin_session(struct dashboard *d, struct http_req *req, struct dash_role *role)
{
    struct dash_session *s = find_session(d, req), *oldest;
    char cookie[DASH_SECRET_CHARS + 1];

    if (s != NULL)
        end_session(d, s);
    if ((oldest = dash_session_oldest(&d->sessions)) != NULL)
        end_session(d, oldest);
    s = dash_session_begin(&d->sessions, role, cookie);
    log_info(NULL, "dashboard: signed in: %s%s%s from=%.*s",
             s->role.tenant != NULL ? "tenant=" : "operator",
             s->role.tenant != NULL ? s->role.tenant : "", s->role.read_only ? " read-only" : "",
             STR_FMT(http_peer(req)));
    answer_session(d, req, s, cookie);
    secret_wipe(cookie, sizeof cookie);
}

static void serve_signin(struct dashboard *d, struct http_req *req, struct json body)
{
    struct str link = json_str(body, "link"), token = json_str(body, "token");
    struct dash_role role = {0};
    unsigned long long untold;
    const char *why = "This is neither the admin token nor a token of `bellhop token dashboard`.";

    /* Nobody guesses a link or a key, so these work whatever others try. */
    if (link.p != NULL ? use_link(d, req, link, &role, &why)
                       : dash_key_check(&d->sessions, token, &role)) {
        begin_session(d, req, &role);
    } else if (link.p == NULL && !dash_may_try(&d->sessions, http_peer(req))) {
        http_answer(d->f->server, http_req_id(req),
                    &(struct http_answer){
                        .status = 429,
                        .headers = "Retry-After: 12\r\n",
                        .body =
                            STR("{\"error\":\"Too many wrong tokens. Wait a moment, or sign in "
                                "with a link: bellhop dashboard\",\"code\":\"rate_limited\"}")});
    } else if (link.p == NULL && dash_token_check(&d->sessions, token, &role)) {
        begin_session(d, req, &role);
    } else {
        dash_tried_wrong(&d->sessions, http_peer(req));
        if (front_may_log(d->f, &untold))
            log_warn(NULL, "dashboard: sign-in refused: from=%.*s more=%llu",
                     STR_FMT(http_peer(req)), untold);
        http_answer_error(d->f->server, http_req_id(req), 403, "refused", "%s", why);
    }
}

static void serve_signout(struct dashboard *d, struct http_req *req, struct dash_session *s)
{
    end_session(d, s);
    answer_session(d, req, NULL, "");
}

/* ---- calls ---- */

static void serve_look(struct dashboard *d, struct http_req *req, struct dash_session *s,
                       struct json body)
{
    static const char *const sorts[] = {[DASH_BY_ATTENTION] = "attention",
                                        [DASH_BY_NAME] = "name",
                                        [DASH_BY_WAITING] = "waiting",
                                        [DASH_BY_AGE] = "oldest",
                                        [DASH_BY_HEARD] = "heard"};
    struct str filter = json_str(body, "filter"), state = json_str(body, "state");
    int64_t offset = json_i64(body, "offset", 0), n = json_i64(body, "count", 0);
    struct dash_look look = {.waiting = json_as_bool(json_get(body, "waiting"), false)};

    snprintf(look.filter, sizeof look.filter, "%.*s", STR_FMT(filter));
    for (char *c = look.filter; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c + ('a' - 'A'));
    snprintf(look.state, sizeof look.state, "%.*s", STR_FMT(state));
    for (size_t i = 0; i < ARRAY_LEN(sorts); i++)
        if (str_eq(str_of(sorts[i]), json_str(body, "sort")))
            look.sort = (enum dash_sort)i;
    look.offset = offset < 0 ? 0 : offset > UINT32_MAX ? UINT32_MAX : (uint32_t)offset;
    look.count = n < 0 ? 0 : n > DASH_WINDOW ? DASH_WINDOW : (uint32_t)n;
    list_each (&s->streams, it, nxt) {
        struct dash_stream *st = list_entry(it, struct dash_stream, link);
        if (str_eq(str_of(st->id), json_str(body, "stream"))) {
            dash_stream_look(st, &look);
            http_answer(d->f->server, http_req_id(req),
                        &(struct http_answer){.status = 200, .body = STR("{\"ok\":true}")});
            return;
        }
    }
    http_answer_error(d->f->server, http_req_id(req), 404, "not_found",
                      "This page has no open stream of that name; it opens a new one.");
}

static void serve_operation(struct dashboard *d, struct http_req *req, struct dash_session *s,
                            struct str name)
{
    char text[64], identity[KEY_ID_CHARS + 24] = "dashboard";
    const struct op *op;
    const char *why;

    snprintf(text, sizeof text, "%.*s", STR_FMT(name));
    op = op_find(text);
    why = op != NULL ? refusal_of(s, op) : NULL;
    if (op == NULL || why != NULL) {
        http_answer_error(d->f->server, http_req_id(req), op == NULL ? 404 : 403,
                          op == NULL ? "not_found" : "refused", "%s",
                          op == NULL ? "There is no operation of this name." : why);
        return;
    }
    if (s->role.by == DASH_BY_KEY)
        snprintf(identity, sizeof identity, "dashboard key %s", s->role.key_id);
    v1_run_page(d->f, req, op, str_of(identity), str_of(s->role.key_id), str_of(s->role.tenant));
}

/* A tenant's pages get so many calls, the operator's any number.  False: it was refused. */
static bool may_look(struct dashboard *d, const struct http_req *req, const struct dash_session *s)
{
    if (s->role.tenant == NULL || keys_may_look(d->f->keys, str_of(s->role.tenant)))
        return true;
    http_answer(d->f->server, http_req_id(req),
                &(struct http_answer){
                    .status = 429,
                    .headers = "Retry-After: 1\r\n",
                    .body = STR("{\"error\":\"Too many calls of this tenant's dashboards; try "
                                "again in a second.\",\"code\":\"rate_limited\"}")});
    return false;
}

static void serve_post(struct dashboard *d, struct http_req *req, struct str name, struct json body)
{
    struct str csrf = http_header(req, "X-Bellhop-Csrf");
    struct dash_session *s;

    if (str_eq(name, STR("signin"))) {
        serve_signin(d, req, body);
    } else if ((s = find_session(d, req)) == NULL) {
        http_answer_error(d->f->server, http_req_id(req), 401, "signed_out",
                          "Sign in first: open /dashboard.");
    } else if (csrf.n != DASH_SECRET_CHARS || !ct_equal(csrf.p, s->csrf, csrf.n)) {
        http_answer_error(d->f->server, http_req_id(req), 403, "forged",
                          "The header X-Bellhop-Csrf is not this session's. Reload the page.");
    } else if (str_eq(name, STR("signout"))) {
        serve_signout(d, req, s);
    } else if (!may_look(d, req, s)) {
        return;
    } else if (str_eq(name, STR("look"))) {
        serve_look(d, req, s, body);
    } else {
        serve_operation(d, req, s, name);
    }
}

static void serve_get(struct dashboard *d, struct http_req *req, struct str name)
{
    struct dash_session *s = find_session(d, req);

    if (str_eq(name, STR("session")))
        answer_session(d, req, s, NULL);
    else if (!str_eq(name, STR("events")))
        http_answer_error(d->f->server, http_req_id(req), 405, "method_not_allowed",
                          "Calls are POST, with their arguments as a JSON object.");
    else if (s == NULL)
        http_answer_error(d->f->server, http_req_id(req), 401, "signed_out",
                          "Sign in first: open /dashboard.");
    else if (may_look(d, req, s))
        dash_stream_open(&d->live, req, s);
}

static void serve_api(struct dashboard *d, struct http_req *req, struct str name)
{
    bool is_post = str_eq(http_method(req), STR("POST"));
    struct json_parser *parser;
    struct json body;

    if (!http_same_origin(req, d->f->public_url)) {
        http_answer_error(d->f->server, http_req_id(req), 403, "foreign_origin",
                          "The dashboard takes no requests from other sites.");
    } else if (!is_post && !str_eq(http_method(req), STR("GET"))) {
        http_answer_error(d->f->server, http_req_id(req), 405, "method_not_allowed",
                          "Use GET or POST here.");
    } else if (!is_post) {
        serve_get(d, req, name);
    } else if (!http_is_json(req)) {
        http_answer_error(d->f->server, http_req_id(req), 415, "json_only",
                          "Send it with Content-Type: application/json.");
    } else {
        parser = json_parser_new();
        if (json_parse(parser, http_body(req), &body) && json_is_object(body))
            serve_post(d, req, name, body);
        else
            http_answer_error(d->f->server, http_req_id(req), 400, "malformed",
                              "Expected a JSON object as the body.");
        json_parser_free(parser);
    }
}

/* /dashboard, /dashboard/, /dashboard/assets/<version>/<name>, /dashboard/api/<name> */
void site_dashboard(struct front *f, struct http_req *req)
{
    struct str rest = str_skip(http_path(req), strlen("/dashboard")), part = STR_NULL, version;
    bool lasting = false;
    bool is_get = str_eq(http_method(req), STR("GET")) || str_eq(http_method(req), STR("HEAD"));
    const struct asset *a = NULL;

    if (front_is_draining(f, req))
        return;
    rest = str_skip(rest, rest.n > 0 ? 1 : 0);
    if (str_is_empty(rest)) {
        a = asset_find(STR_NULL, STR("index.html"), &lasting);
    } else {
        str_split(&rest, '/', &part);
        if (str_eq(part, STR("api"))) {
            serve_api(f->dashboard, req, rest);
            return;
        }
        if (str_eq(part, STR("assets")) && str_split(&rest, '/', &version) &&
            !str_eq(rest, STR("index.html")))
            a = asset_find(version, rest, &lasting);
    }
    if (a != NULL && is_get)
        answer_asset(f, req, a, lasting);
    else if (a != NULL)
        http_answer_error(f->server, http_req_id(req), 405, "method_not_allowed", "Use GET here.");
    else
        http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is no such page.");
}

/* ---- bellhop dashboard ---- */

static void open_dashboard(struct op_call *c)
{
    struct str tenant = op_text(c, "tenant");
    int64_t ttl_ms = op_number(c, "ttlMs", LINK_MS);
    char secret[DASH_SECRET_CHARS + 1];
    BUF_SECRET url = BUF_INIT;

    if (c->f->loopback_url == NULL) {
        op_error(c, 409, "no_address",
                 "The server listens on a Unix socket only, so no browser on this machine reaches "
                 "it. Sign in through its proxy with a token: bellhop token dashboard");
        return;
    }
    if (tenant.n > 0 && !facts_name_ok(tenant)) {
        op_error(c, 400, "malformed",
                 "tenant must be 1 to 128 printable characters without blanks");
        return;
    }
    dash_link_make(&c->f->dashboard->sessions, tenant, op_flag(c, "readOnly"),
                   ttl_ms > 0 && ttl_ms < LINK_MAX_MS ? ttl_ms : LINK_MS, secret);
    buf_printf(&url, "%s/dashboard#link=%s", c->f->loopback_url, secret);
    struct jw w = op_begin(c);
    jw_obj(&w);
    jw_kstr(&w, "url", buf_str(&url));
    jw_ki64(&w, "expiresAt", clock_wall_ms(loop_clock(c->f->loop)) + ttl_ms);
    jw_end_obj(&w);
    secret_wipe(secret, sizeof secret);
    op_end(c);
}

const struct op ops_dashboard[] = {
    {"openDashboard", "POST", "/admin/dashboard", MAY_OPERATOR, open_dashboard,
     "Make a link that signs in at the dashboard once, on this machine.", .body_may_be_empty = true,
     .args = (const struct op_arg[]){{"tenant", IN_BODY, OP_TEXT, .what = "Show only this tenant."},
                                     {"readOnly", IN_BODY, OP_BOOL, .what = "Change nothing."},
                                     {"ttlMs", IN_BODY, OP_WHOLE, .initial = "300000",
                                      .max = LINK_MAX_MS, .what = "How long the link is good."},
                                     {0}},
     .answer = "{url: text, expiresAt: whole}", .answer_what = "The link is shown only once.",
     .errors = "malformed (400), no_address (409)"},
    {0},
};
