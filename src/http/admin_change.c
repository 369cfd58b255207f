/* admin_change.c - the changes of the command line over the admin socket: gateways, routes,
 * mailboxes, tokens, the outbox.
 *
 * A change answers when it is on disk.  Until then a struct pending holds the request's id and the
 * content of the answer.  A new token is shown in that one answer and kept nowhere. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "host/host.h"
#include "http/admin.h"
#include "http/front_priv.h"
#include "net/loop.h"
#include "platform/sender.h"
#include "relay/relay.h"
#include "tenancy/enroll.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

#define ROTATION_KEEP_MS 3600000

struct pending {
    struct front *f; /* borrowed */
    struct http_id id;
    struct buf gateway, secret; /* for the answer; empty: left out */
    bool open, linkable;        /* of a gateway: open to anybody; people may link themselves */
    bool unconfigured;          /* the route's bot is not configured here */
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

/* Parses the request's body as an object.  NULL: the refusal has been sent.  Else the caller frees
 * the parser. */
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

/* ---- tokens ---- */

#define ENROLL_TTL_MS 3600000
#define PROVISION_TTL_MS (365ll * 24 * 3600 * 1000)

struct minting {     /* a new token, shown once it is on disk */
    struct front *f; /* borrowed */
    struct http_id id;
    struct key_made made; /* .text: the token, whatever its kind */
    int64_t until_ms;     /* 0: never expires */
    const char *what;     /* for the log */
    bool hook;            /* the answer shows it as a capability URL */
};

static void minting_free(struct minting *m)
{
    key_made_done(&m->made);
    free(m);
}

static void tell(struct minting *m)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    if (m->made.id.n > 0)
        jw_kstr(&w, "id", buf_str(&m->made.id));
    jw_kstr(&w, "token", buf_str(&m->made.text));
    if (m->made.secret.n > 0)
        jw_kstr(&w, "secret", buf_str(&m->made.secret));
    if (m->hook)
        jw_kstr_opt(&w, "url", str_of(m->f->base_url));
    if (m->until_ms != 0)
        jw_ki64(&w, "expiresAt", m->until_ms);
    jw_end_obj(&w);
    front_json(m->f, m->id, 200, &body);
    buf_wipe(&body);
}

static void on_minted(void *ctx, enum bh_err err, const char *why)
{
    struct minting *m = ctx;

    if (err == BH_OK) {
        log_info(NULL, "%s token made: id=%.*s", m->what, STR_FMT(buf_str(&m->made.id)));
        tell(m);
    } else {
        http_answer_error(m->f->server, m->id, err == BH_MALFORMED ? 400 : 503, bh_err_word(err),
                          "%s", why);
    }
    minting_free(m);
}

/* Signed tokens.  The store records an enrollment token when it is used, a provision token when it
 * is made. */
static void mint_local(struct minting *m, struct json doc, bool enroll, int64_t ttl_ms)
{
    struct json_parser *parser = json_parser_new();
    struct local_token t = {.kind = enroll ? TOKEN_ENROLL : TOKEN_PROVISION,
                            .tenant = json_str(doc, "tenant"),
                            .instance = json_str(doc, "instance"),
                            .wake_url = json_str(doc, "wakeUrl")};
    const char *why;

    if (ttl_ms == 0)
        ttl_ms = enroll ? ENROLL_TTL_MS : PROVISION_TTL_MS;
    t.exp_ms = m->until_ms = clock_wall_ms(loop_clock(m->f->loop)) + ttl_ms;
    local_token_mint(m->f->facts, &t, &m->made.text);
    if (enroll) {
        log_info(NULL, "enrollment token minted: tenant=%.*s", STR_FMT(t.tenant));
        tell(m);
        minting_free(m);
    } else if (local_token_read(m->f->facts, buf_str(&m->made.text), t.kind, parser, &t, &why)) {
        buf_add(&m->made.id, t.nonce.p, KEY_ID_CHARS);
        keys_note_minted(m->f->keys, &t, on_minted, m);
    } else { /* a tenant's name that does not survive the way there and back */
        on_minted(m, BH_MALFORMED, why);
    }
    json_parser_free(parser);
}

static void mint_key(struct minting *m, struct json doc, int64_t ttl_ms)
{
    struct key_spec spec = {.kind = m->hook ? KEY_HOOK : KEY_AGENT,
                            .with_secret =
                                m->hook && json_as_bool(json_get(doc, "signature"), true),
                            .tenant = json_str(doc, "tenant"),
                            .identity = json_str(doc, "identity"),
                            .agent = json_str(doc, "agent"),
                            .instance = json_str(doc, "instance"),
                            .ns = json_str(doc, "namespace"),
                            .attest = json_as_bool(json_get(doc, "attest"), false),
                            .ttl_ms = ttl_ms};

    m->until_ms = ttl_ms > 0 ? clock_wall_ms(loop_clock(m->f->loop)) + ttl_ms : 0;
    keys_make(m->f->keys, &spec, &m->made, on_minted, m);
}

void admin_token(struct front *f, struct http_req *req)
{
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    int64_t ttl_ms = 0;

    if (!json_parse(parser, http_body(req), &doc) || !facts_name_ok(json_str(doc, "tenant"))) {
        http_answer_error(f->server, http_req_id(req), 400, "malformed",
                          "tenant must be 1 to 128 printable characters without blanks");
        json_parser_free(parser);
        return;
    }
    if (!json_as_i64(json_get(doc, "ttlMs"), &ttl_ms) || ttl_ms < 0)
        ttl_ms = 0;
    struct str kind = json_str(doc, "kind");
    struct minting *m = xcalloc(1, sizeof *m);
    *m = (struct minting){.f = f, .id = http_req_id(req), .what = "provision"};
    m->hook = str_eq(kind, STR("hook"));
    if (m->hook || str_eq(kind, STR("agent"))) {
        m->what = m->hook ? "hook" : "agent";
        mint_key(m, doc, ttl_ms);
    } else {
        mint_local(m, doc, str_eq(kind, STR("enroll")), ttl_ms);
    }
    json_parser_free(parser);
}

static void write_key(struct jw *w, const struct key *k)
{
    jw_obj(w);
    jw_kstr(w, "id", str_of(k->id));
    jw_kstr(w, "kind", str_of(key_kind_word(k->kind)));
    jw_kstr(w, "tenant", str_of(k->tenant));
    jw_kstr(w, "identity", str_of(k->identity));
    jw_kstr(w, "agent", str_of(k->agent));
    jw_kstr(w, "instance", str_of(k->instance));
    jw_kstr(w, "namespace", str_of(k->ns));
    jw_kbool(w, "attest", k->attest);
    admin_time(w, "madeAt", k->made_ms);
    admin_time(w, "usedAt", k->used_ms);
    admin_time(w, "expiresAt", k->until_ms);
    admin_time(w, "revokedAt", k->revoked_ms);
    jw_end_obj(w);
}

void admin_tokens(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    const struct list *head;

    keys_all(f->keys, &head);
    jw_arr(&w);
    for (const struct list *it = head->next; it != head; it = it->next)
        write_key(&w, list_entry(it, struct key, link));
    jw_end_arr(&w);
    front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
}

struct revoking {
    struct front *f; /* borrowed */
    struct http_id id;
};

static void on_revoked(void *ctx, enum bh_err err, const char *why)
{
    struct revoking *r = ctx;
    struct buf body = BUF_INIT;

    buf_add_z(&body, "{\"ok\":true}");
    if (err == BH_OK)
        front_json(r->f, r->id, 200, &body);
    else
        http_answer_error(r->f->server, r->id, err == BH_NOT_FOUND ? 404 : 503, bh_err_word(err),
                          "%s", why);
    buf_done(&body);
    free(r);
}

void admin_token_revoke(struct front *f, struct http_req *req)
{
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    struct revoking *r = xcalloc(1, sizeof *r);

    *r = (struct revoking){f, http_req_id(req)};
    json_parse(parser, http_body(req), &doc);
    struct str id = json_str(doc, "id");
    log_info(NULL, "revoking token: id=%.*s", STR_FMT(id));
    keys_revoke(f->keys, id, on_revoked, r);
    json_parser_free(parser);
}

/* ---- outbox: GET /admin/outbox[?id=N], POST /admin/outbox/retry|drop ---- */

enum { MOST = 1000 }; /* entries in one answer */

struct listing {
    struct jw *w;
    const struct platform *p;
    size_t n;
    bool whole;
};

static void write_action(struct jw *w, const struct outgoing_entry *e)
{
    jw_key(w, "action");
    if (e->action.n > 0)
        jw_raw(w, e->action);
    else
        jw_value(w, json_get(e->doc, "action"));
}

static void on_view(void *ctx, const struct outgoing_view *v)
{
    struct listing *l = ctx;
    const struct outgoing_entry *e = &v->e;
    struct jw *w = l->w;
    char id[24];

    if (l->n++ >= MOST)
        return;
    snprintf(id, sizeof id, "%" PRIu64, e->number);
    jw_obj(w);
    jw_kstr(w, "id", str_of(id));
    jw_kstr(w, "tenant", e->from.tenant);
    jw_kstr(w, "instance", e->from.instance);
    jw_kstr(w, "platform", str_of(l->p->ops->name));
    jw_kstr(w, "bot", str_of(l->p->bot));
    jw_kstr(w, "chat_id", e->chat);
    jw_kstr(w, "op", str_of(action_op_name(e->op)));
    jw_kstr(w, "state", str_of(outgoing_state_name(e->state)));
    jw_ki64(w, "attempts", e->attempts);
    jw_ki64(w, "since", e->asked_ms);
    admin_time(w, "next_try", v->next_ms);
    jw_kstr(w, "last_error", e->why.n > 0 ? e->why : STR_NULL);
    if (l->whole) {
        jw_ki64(w, "part", e->part);
        jw_ki64(w, "parts", e->n_parts);
        write_action(w, e);
    }
    jw_end_obj(w);
}

static void list_outgoing(struct front *f, uint64_t number, struct listing *l)
{
    for (size_t i = 0; i < host_n_platforms(f->host); i++) {
        l->p = host_nth_platform(f->host, i);
        if (l->p->sender != NULL)
            sender_each(l->p->sender, number, on_view, l);
    }
}

static bool read_id(struct str text, uint64_t *ret)
{
    struct str head = STR("queued:");

    return str_to_u64(str_starts(text, head) ? str_skip(text, head.n) : text, ret) && *ret != 0;
}

void admin_outbox(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT, id = BUF_INIT;
    struct jw w = jw_begin(&body);
    uint64_t number = 0;
    bool whole = http_query(req, "id", &id);
    struct listing l = {.w = &w, .whole = whole};

    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(f->loop)));
    jw_key(&w, "entries");
    jw_arr(&w);
    if (!whole || read_id(buf_str(&id), &number))
        list_outgoing(f, number, &l);
    jw_end_arr(&w);
    jw_ki64(&w, "more", l.n > MOST ? (int64_t)(l.n - MOST) : 0);
    jw_end_obj(&w);
    if (whole && l.n == 0)
        http_answer_error(f->server, http_req_id(req), 404, "not_found",
                          "There is nothing with this id in the outbox.");
    else
        front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
    buf_done(&id);
}

static enum bh_err change_outgoing(struct front *f, uint64_t number,
                                   enum bh_err (*what)(struct sender *s, uint64_t number))
{
    enum bh_err err = BH_REFUSED;

    for (size_t i = 0; err == BH_REFUSED && i < host_n_platforms(f->host); i++) {
        const struct platform *p = host_nth_platform(f->host, i);
        if (p->sender != NULL)
            err = what(p->sender, number);
    }
    return err;
}

static void answer_outgoing(struct front *f, struct http_req *req, const char *verb,
                            enum bh_err (*what)(struct sender *s, uint64_t number))
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct json doc = {0};
    uint64_t number = 0;
    enum bh_err err = BH_REFUSED;

    if (json_parse(parser, http_body(req), &doc) && read_id(json_str(doc, "id"), &number))
        err = change_outgoing(f, number, what);
    if (err == BH_OK) {
        log_info(NULL, "outbox: %s id=%" PRIu64, verb, number);
        buf_add_z(&body, "{\"ok\":true}");
        front_json(f, http_req_id(req), 200, &body);
    } else if (err == BH_BUSY) {
        http_answer_error(f->server, http_req_id(req), 409, "busy",
                          "Its request is under way and cannot be called back; look again in a "
                          "moment.");
    } else {
        http_answer_error(f->server, http_req_id(req), 404, "not_found",
                          "There is nothing with this id in the outbox.");
    }
    json_parser_free(parser);
    buf_done(&body);
}

void admin_outbox_retry(struct front *f, struct http_req *req)
{
    answer_outgoing(f, req, "retried", sender_retry);
}

void admin_outbox_drop(struct front *f, struct http_req *req)
{
    answer_outgoing(f, req, "dropped", sender_drop);
}
