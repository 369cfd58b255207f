/* route.c - the table of the HTTP routes that are no operations (op.h), and the webhooks and pages
 * of platforms. */
#include "base/clock.h"
#include "base/config.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "base/percent.h"
#include "core/caller.h"
#include "core/token.h"
#include "edge/door.h"
#include "host/host.h"
#include "http/front_priv.h"
#include "http/media_route.h"
#include "net/loop.h"

/* ---- paths of platforms; unknown callers pass the limits of edge/door.h first ---- */

/* ops->http(): the events of the request have its trace.  False: the request does not prove that it
 * is meant for @p. */
static bool ask_platform(struct platform *p, struct http_req *req)
{
    struct str trace = http_header(req, "traceparent");

    p->trace = caller_trace_valid(trace) ? trace : STR_NULL;
    bool took = p->ops->http(p, req);
    p->trace = STR_NULL;
    return took;
}

static bool hand_over(struct front *f, struct http_req *req, struct platform *p)
{
    if (front_is_draining(f, req)) /* a sender would take the 404 of a closed platform as final */
        return true;
    if (p != NULL && p->ops->http != NULL)
        return ask_platform(p, req);
    http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is nothing here.");
    return true;
}

void site_chat(struct front *f, struct http_req *req)
{
    if (!page_download(f, req))
        hand_over(f, req, host_platform(f->host, STR("web"), STR_NULL));
}

static int64_t now_ms(struct front *f)
{
    return clock_now_ms(loop_clock(f->loop));
}

/* Always the same answer, so that a stranger does not learn which bots exist. */
static void refuse(struct front *f, struct http_req *req, struct door_source from)
{
    door_refused(f->door, from, now_ms(f));
    webhook_is_unsigned(f->server, http_req_id(req));
}

static void knock(struct front *f, struct http_req *req, const struct platform_ops *ops,
                  struct str bot)
{
    struct door_source from = door_source(f->door, http_peer(req));
    struct platform *p = NULL;
    bool looks_right =
        ops->plausible == NULL || ops->plausible(req, clock_wall_ms(loop_clock(f->loop)));

    if (front_is_draining(f, req)) /* its platform may be closed, and it would believe a 401 */
        return;
    if (ops->plausible != NULL && looks_right && !door_admit(f->door, from, now_ms(f))) {
        http_answer(f->server, http_req_id(req), /* also when there is no such bot */
                    &(struct http_answer){
                        .status = 429,
                        .headers = "Retry-After: 1\r\n",
                        .body = STR("{\"error\":\"Too many requests: come back in a moment.\","
                                    "\"code\":\"too_many_requests\"}")});
        return;
    }
    if (bot.n > 0 && looks_right)
        p = host_webhook(f->host, str_of(ops->name), bot, http_host(req));
    if (p == NULL || !hand_over(f, req, p)) {
        refuse(f, req, from);
        return;
    }
    if (!p->unproven)
        door_proved(f->door, from, now_ms(f));
    p->unproven = false;
}

const struct platform_ops *site_fixed_at(struct str path)
{
    for (size_t i = 0; platforms[i] != NULL; i++) {
        struct str own = str_of(platforms[i]->fixed_path);
        if (own.n > 0 && str_starts(path, own) && path.n > own.n && path.p[own.n] == '/')
            return platforms[i];
    }
    return NULL;
}

/* Below platform_ops.fixed_path: the request itself tells which bot it is for. */
void site_fixed(struct front *f, struct http_req *req)
{
    const struct platform_ops *ops = site_fixed_at(http_path(req));
    struct door_source from = door_source(f->door, http_peer(req));

    if (front_is_draining(f, req))
        return;
    for (size_t i = 0; ops != NULL && i < host_n_platforms(f->host); i++) {
        struct platform *p = host_nth_platform(f->host, i);
        bool named = p->hook_host == NULL || str_eq_ci(str_of(p->hook_host), http_host(req));
        if (p->ops == ops && named && ask_platform(p, req)) {
            door_proved(f->door, from, now_ms(f));
            return;
        }
    }
    refuse(f, req, from);
}

/* /webhooks/<platform>/<bot>[/...] */
void site_webhook(struct front *f, struct http_req *req)
{
    struct str rest = http_path(req), part[4] = {{0}};
    const struct platform_ops *ops;
    struct buf bot = BUF_INIT;

    for (size_t i = 0; i < 4 && str_split(&rest, '/', &part[i]); i++)
        ;
    percent_decode(&bot, part[3]);
    ops = platform_find(part[2]);
    if (ops == NULL || ops->http == NULL || str_eq(part[2], STR("web")))
        hand_over(f, req, NULL);
    else
        knock(f, req, ops, buf_str(&bot));
    buf_done(&bot);
}

/* /<platform>/install/<bot>[/callback] */
void site_install(struct front *f, struct http_req *req)
{
    struct str rest = http_path(req), part[4] = {{0}};
    struct platform *p = NULL;
    BUF_LOCAL bot = BUF_INIT;

    for (size_t i = 0; i < 4 && str_split(&rest, '/', &part[i]); i++)
        ;
    percent_decode(&bot, part[3]);
    if (front_is_draining(f, req))
        return;
    if (bot.n > 0)
        p = host_platform(f->host, part[1], buf_str(&bot));
    if (p == NULL || p->ops->install == NULL || !p->ops->install(p, req))
        http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is nothing here.");
}

void site_root(struct front *f, struct http_req *req)
{
    bool chats = host_platform(f->host, STR("web"), STR_NULL) != NULL;

    http_answer(f->server, http_req_id(req),
                &(struct http_answer){.status = 302,
                                      .headers = chats ? "Location: /chat\r\n"
                                                       : "Location: /dashboard\r\n"});
}

/* ---- the table ---- */

static const struct config_key keys[] = {
    {"admin.token", CFG_SECRET, CFG_RELOAD, offsetof(struct front_settings, admin_token),
     .what = "Signs in at `/dashboard`; bearer token for `/metrics` from other machines, which are "
             "refused without it."},
    {0},
};
const struct config_section front_config = {.keys = keys, .size = sizeof(struct front_settings)};

char front_admin_tag[] = "admin";

enum { PUBLIC, ADMIN };
enum { LINES_PER_S = 2, LINES_AT_ONCE = 50 }; /* rate limit of front_may_log() */

static const struct {
    struct str method; /* absent: any, the handler checks it */
    struct str path;
    bool below; /* the route includes the paths below it */
    int listener;
    front_handler *handler;
} routes[] = {
    {STR("GET"), STR("/relay"), false, PUBLIC, gateway_upgrade},
    {STR("GET"), STR("/healthz"), false, PUBLIC, health_live},
    {STR("GET"), STR("/readyz"), false, PUBLIC, health_ready},
    {STR("GET"), STR("/metrics"), false, PUBLIC, metrics_show},
    {STR("POST"), STR("/relay/enroll"), false, PUBLIC, enroll_by_code},
    {STR("POST"), STR("/relay/provision"), false, PUBLIC, enroll_by_caller},
    {STR("POST"), STR("/relay/media"), false, PUBLIC, media_upload},
    {STR("GET"), STR("/relay/media"), true, PUBLIC, media_download},
    {STR("GET"), STR("/cluster/trunk"), false, PUBLIC, cluster_trunk},
    {STR_NULL, STR("/chat"), true, PUBLIC, site_chat},
    {STR_NULL, STR("/webhooks"), true, PUBLIC, site_webhook},
    {STR_NULL, STR("/_matrix/app"), true, PUBLIC, site_fixed},
    {STR("GET"), STR("/slack/install"), true, PUBLIC, site_install},
    {STR_NULL, STR("/mcp"), false, PUBLIC, front_mcp},
    {STR_NULL, STR("/dashboard"), true, PUBLIC, site_dashboard},
    {STR("GET"), STR("/"), false, PUBLIC, site_root},

    {STR("GET"), STR("/metrics"), false, ADMIN, metrics_show},
    {STR_NULL, STR("/mcp"), false, ADMIN, front_mcp},
};

void front_handle(void *ctx, struct http_req *req)
{
    struct front *f = ctx;
    int listener = http_listener_tag(req) == front_admin_tag ? ADMIN : PUBLIC;
    struct str path = http_path(req), method = http_method(req);
    struct str allowed = STR_NULL;

    if (f->standing_by) {
        health_standby(f, req);
        return;
    }
    if (http_is_upgrade(req) && (listener == ADMIN || !str_eq(path, STR("/relay")))) {
        http_answer_error(f->server, http_req_id(req), 400, "no_websocket_here",
                          "The relay's WebSocket is at /relay; there is none at this path.");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        struct str want = routes[i].path, takes = routes[i].method;
        bool below = routes[i].below && str_starts(path, want) && path.p[want.n] == '/';
        if (routes[i].listener != listener || (!str_eq(path, want) && !below))
            continue;
        if (takes.p == NULL || str_eq(method, takes) ||
            (str_eq(method, STR("HEAD")) && str_eq(takes, STR("GET")))) {
            routes[i].handler(f, req);
            return;
        }
        allowed = routes[i].method;
    }
    if (allowed.p != NULL)
        http_answer_error(f->server, http_req_id(req), 405, "method_not_allowed",
                          "This path answers to %.*s only.", STR_FMT(allowed));
    else
        front_ops(f, req);
}

void front_json(struct front *f, struct http_id id, int status, const struct buf *body)
{
    http_answer(f->server, id, &(struct http_answer){.status = status, .body = buf_str(body)});
}

void front_retry(struct front *f, struct http_req *req, const char *code, const char *what)
{
    front_retry_id(f, http_req_id(req), code, what);
}

bool front_is_draining(struct front *f, struct http_req *req)
{
    if (f->draining)
        front_retry(f, req, "draining", "This server is going down; come back in a moment.");
    return f->draining;
}

void front_retry_id(struct front *f, struct http_id id, const char *code, const char *what)
{
    struct buf body = BUF_INIT;

    buf_printf(&body, "{\"error\":\"%s\",\"code\":\"%s\"}", what, code);
    http_answer(f->server, id,
                &(struct http_answer){.status = 503,
                                      .headers = "Retry-After: 1\r\n",
                                      .body = buf_str(&body),
                                      .close = true});
    buf_done(&body);
}

/* Anybody can cause a refusal, so the log lines about refusals are limited. */
bool front_may_log(struct front *f, unsigned long long *ret_untold)
{
    if (!bucket_take(&f->refusals, clock_now_ms(loop_clock(f->loop)), LINES_PER_S, LINES_AT_ONCE)) {
        f->refusals_untold++;
        return false;
    }
    *ret_untold = f->refusals_untold;
    f->refusals_untold = 0;
    return true;
}

bool front_is_local(const struct front *f, const struct http_req *req)
{
    struct str peer = http_peer(req), own = str_of(f->loopback_url);
    ptrdiff_t scheme = str_find(own, '/'), end;

    /* With such a header, a local proxy forwards a request from elsewhere. */
    if (http_header(req, "X-Forwarded-For").p != NULL || http_header(req, "Forwarded").p != NULL)
        return false;
    if (str_eq(peer, STR("unix")) || str_eq(peer, STR("::1")) ||
        str_eq(peer, STR("::ffff:127.0.0.1")) || str_starts(peer, STR("127.")))
        return true;
    own = str_skip(own, scheme >= 0 ? (size_t)scheme + 2 : own.n); /* listen: 10.0.0.5:7077 */
    end = str_find(own, ':');
    return end > 0 && str_eq(peer, str_make(own.p, (size_t)end));
}

bool front_is_operator(struct front *f, struct http_req *req)
{
    struct str shown = token_of_header(http_header(req, "Authorization"));
    struct str token = str_of(f->settings->admin_token);
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];

    if (front_is_local(f, req))
        return true;
    sha256(shown, a); /* hash first: the time of the comparison must not reveal the length */
    sha256(token, b);
    if (!str_is_empty(token) && ct_equal(a, b, sizeof a))
        return true;
    http_answer_error(
        f->server, http_req_id(req), str_is_empty(token) ? 403 : 401, "unauthorized",
        str_is_empty(token)
            ? "This page answers only on this machine, unless admin.token is configured."
            : "Send the admin token: Authorization: Bearer <admin.token>.");
    return false;
}
