/* admin_change.c - what the command line changes, over the admin socket.
 *
 * A change answers when it is on disk.  What survives until then is one struct pending: the
 * number of the request and what the answer will say. */
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/admin.h"
#include "http/front_priv.h"
#include "host/host.h"
#include "relay/relay.h"
#include "tenancy/facts.h"

#define ROTATION_KEEP_MS 3600000

struct pending {
    struct front *f; /* borrowed */
    struct http_id id;
    struct buf gateway, secret; /* what to tell; empty: nothing */
    bool open, linkable;        /* of a gateway: who reaches it */
    bool unconfigured;          /* no such bot runs here */
    const char *what;           /* for the log */
};

static struct pending *pending_new(struct front *f, struct http_req *req, const char *what)
{
    struct pending *p = xcalloc(1, sizeof *p);

    *p = (struct pending){.f = f, .id = http_req_id(req), .what = what};
    return p;
}

static int status_of(enum bh_err err)
{
    switch (err) {
    case BH_CONFLICT:
        return 409;
    case BH_NOT_FOUND:
        return 404;
    case BH_MALFORMED:
        return 400;
    case BH_REFUSED:
        return 403;
    default:
        return 503;
    }
}

static void answer_done(struct pending *p)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kbool(&w, "ok", true);
    if (p->gateway.n > 0)
        jw_kstr(&w, "id", buf_str(&p->gateway));
    if (p->secret.n > 0) {
        jw_kstr(&w, "secret", buf_str(&p->secret));
        jw_kstr(&w, "url", str_of(p->f->base_url));
        jw_kbool(&w, "open", p->open);
        jw_kbool(&w, "linkable", p->linkable);
        jw_kbool(&w, "configured", !p->unconfigured);
    }
    jw_end_obj(&w);
    front_json(p->f, p->id, 200, &body);
    buf_wipe(&body);
}

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct pending *p = ctx;

    if (err == BH_OK) {
        log_info(NULL, "%s: gateway=%.*s", p->what, STR_FMT(buf_str(&p->gateway)));
        answer_done(p);
    } else {
        http_answer_error(p->f->server, p->id, status_of(err), bh_err_word(err), "%s", why);
    }
    buf_done(&p->gateway);
    buf_wipe(&p->secret);
    free(p);
}

/* The request's body as an object.  NULL: the refusal has been sent; else free the parser. */
static struct json_parser *read_body(struct front *f, struct http_req *req, struct json *ret_doc)
{
    struct json_parser *parser = json_parser_new();

    if (json_parse(parser, http_body(req), ret_doc) && json_is_object(*ret_doc))
        return parser;
    http_answer_error(f->server, http_req_id(req), 400, "malformed", "Expected a JSON object.");
    json_parser_free(parser);
    return NULL;
}

static bool is_open_by_nature(struct str platform)
{
    const struct platform_ops *ops = platform_find(platform);

    return ops != NULL && ops->open_by_nature;
}

static bool is_asked_open(struct json doc)
{
    return json_as_bool(json_get(doc, "open"), false) ||
           is_open_by_nature(json_str(doc, "platform"));
}

void admin_gateway_add(struct front *f, struct http_req *req)
{
    struct json doc;
    struct json_parser *parser = read_body(f, req, &doc);

    if (parser == NULL)
        return;
    struct pending *p = pending_new(f, req, "gateway added");
    struct str platform = json_str(doc, "platform");
    p->unconfigured =
        platform.p != NULL && host_platform(f->host, platform, json_str(doc, "bot")) == NULL;
    p->open = platform.p != NULL && is_asked_open(doc);
    p->linkable = platform_find(platform) != NULL && !is_open_by_nature(platform);
    facts_gateway_add(f->facts,
                      &(struct gateway_spec){.id = json_str(doc, "id"),
                                             .tenant = json_str(doc, "tenant"),
                                             .instance = json_str(doc, "instance"),
                                             .wake_url = json_str(doc, "wakeUrl"),
                                             .platform = platform,
                                             .bot = json_str(doc, "bot"),
                                             .open = p->open},
                      &p->gateway, &p->secret, on_done, p);
    json_parser_free(parser);
}

void admin_gateway_rotate(struct front *f, struct http_req *req)
{
    struct json doc;
    struct json_parser *parser = read_body(f, req, &doc);
    int64_t keep_ms = ROTATION_KEEP_MS;

    if (parser == NULL)
        return;
    struct pending *p = pending_new(f, req, "gateway secret rotated");
    buf_add_str(&p->gateway, json_str(doc, "id"));
    json_as_i64(json_get(doc, "keepMs"), &keep_ms);
    facts_gateway_rotate(f->facts, json_str(doc, "id"), keep_ms > 0 ? keep_ms : 0, &p->secret,
                         on_done, p);
    json_parser_free(parser);
}

void admin_gateway_revoke(struct front *f, struct http_req *req)
{
    struct json doc;
    struct json_parser *parser = read_body(f, req, &doc);

    if (parser == NULL)
        return;
    struct pending *p = pending_new(f, req, "gateway revoked");
    buf_add_str(&p->gateway, json_str(doc, "id"));
    facts_gateway_revoke(f->facts, json_str(doc, "id"), on_done, p);
    json_parser_free(parser);
}

void admin_gateway_set(struct front *f, struct http_req *req)
{
    struct json doc;
    struct json_parser *parser = read_body(f, req, &doc);

    if (parser == NULL)
        return;
    struct pending *p = pending_new(f, req, "gateway wake URL set");
    buf_add_str(&p->gateway, json_str(doc, "id"));
    facts_gateway_set(f->facts, json_str(doc, "id"), json_str(doc, "wakeUrl"), on_done, p);
    json_parser_free(parser);
}

typedef void route_change_f(struct facts *f, const struct route_spec *spec, facts_done_cb *done,
                            void *ctx);

static void change_route(struct front *f, struct http_req *req, const char *what,
                         route_change_f *change)
{
    struct json doc;
    struct json_parser *parser = read_body(f, req, &doc);

    if (parser == NULL)
        return;
    const struct route_spec spec = {.platform = json_str(doc, "platform"),
                                    .key = json_str(doc, "key"),
                                    .tenant = json_str(doc, "tenant"),
                                    .instance = json_str(doc, "instance"),
                                    .open = is_asked_open(doc)};
    if (change == facts_route_add && !spec.open &&
        host_platform(f->host, spec.platform, spec.key) != NULL)
        http_answer_error(f->server, http_req_id(req), 400, "malformed",
                          "\"%.*s\" is a bot: whose its chats are is not for the bot to say. Open "
                          "it to everybody with --open, or route its places one by one",
                          STR_FMT(spec.key));
    else
        change(f->facts, &spec, on_done, pending_new(f, req, what));
    json_parser_free(parser);
}

void admin_route_add(struct front *f, struct http_req *req)
{
    change_route(f, req, "route added", facts_route_add);
}

void admin_route_remove(struct front *f, struct http_req *req)
{
    change_route(f, req, "route removed", facts_route_remove);
}

/* ---- mailboxes ---- */

static void change_mailbox(struct front *f, struct http_req *req, const char *what,
                           uint64_t (*change)(struct relay *, struct str, struct str))
{
    struct json doc;
    struct json_parser *parser = read_body(f, req, &doc);
    struct buf tenant = BUF_INIT, body = BUF_INIT;

    if (parser == NULL)
        return;
    struct str instance = json_str(doc, "instance");
    buf_add_str(&tenant, json_str(doc, "tenant"));
    if (admin_find_instance(f, http_req_id(req), instance, &tenant)) {
        uint64_t n = change(f->relay, buf_str(&tenant), instance);
        log_info(NULL, "mailbox %s: tenant=%.*s instance=%.*s deliveries=%llu", what,
                 STR_FMT(buf_str(&tenant)), STR_FMT(instance), (unsigned long long)n);
        buf_printf(&body, "{\"ok\":true,\"deliveries\":%llu}", (unsigned long long)n);
        front_json(f, http_req_id(req), 200, &body);
    }
    buf_done(&tenant);
    buf_done(&body);
    json_parser_free(parser);
}

void admin_mailbox_purge(struct front *f, struct http_req *req)
{
    change_mailbox(f, req, "purged", relay_mailbox_purge);
}

void admin_mailbox_redrive(struct front *f, struct http_req *req)
{
    change_mailbox(f, req, "redriven", relay_mailbox_redrive);
}

void admin_reload(struct front *f, struct http_req *req)
{
    struct buf said = BUF_INIT, body = BUF_INIT;
    enum bh_err err = f->reload(f->reload_ctx, &said);

    if (err == BH_OK) {
        struct jw w = jw_begin(&body);
        jw_obj(&w);
        jw_kbool(&w, "ok", true);
        jw_kstr(&w, "said", buf_str(&said));
        jw_end_obj(&w);
        front_json(f, http_req_id(req), 200, &body);
    } else {
        http_answer_error(f->server, http_req_id(req), 400, "malformed", "%s", buf_z(&said));
    }
    buf_done(&said);
    buf_done(&body);
}
