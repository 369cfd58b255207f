/* manage.c - the management plane: authentication and operations.  (manage.h has the contract.)
 *
 * An operation reads its body, calls one function of tenancy/grants.h and answers when the change
 * is on disk.  A body is an object; a member of the wrong type is refused rather than ignored,
 * because here most members are restrictions. */
#include "http/manage.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/token.h"
#include "host/host.h"
#include "http/admin.h"
#include "http/front_priv.h"
#include "http/idp.h"
#include "net/loop.h"
#include "platform/outcomes.h"
#include "relay/relay.h"

void manage_call_free(struct manage_call *c)
{
    free(c->tenant);
    free(c->instance);
    free(c->gateway);
    free(c->path);
    free(c->body);
    free(c->platform_copy);
    buf_wipe(&c->code);
    free(c);
}

static void refuse(struct manage_call *c, int status, const char *code, const char *why)
{
    http_answer_error(c->f->server, c->id, status, code, "%s", why);
    manage_call_free(c);
}

static void answer_ok(struct manage_call *c)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    if (c->code.n > 0) {
        jw_kstr(&w, "code", buf_str(&c->code));
        if (c->platform_copy != NULL)
            jw_kstr(&w, "platform", str_of(c->platform_copy));
        jw_ki64(&w, "expiresAt", c->expires_ms);
    } else {
        jw_kbool(&w, "ok", true);
    }
    jw_end_obj(&w);
    front_json(c->f, c->id, 200, &body);
    buf_wipe(&body);
    manage_call_free(c);
}

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    struct manage_call *c = ctx;

    switch (err) {
    case BH_OK:
        log_info(NULL, "%s: tenant=%s instance=%s", c->path, c->tenant != NULL ? c->tenant : "-",
                 c->instance != NULL ? c->instance : "-");
        answer_ok(c);
        break;
    case BH_CONFLICT:
        refuse(c, 409, "scope_taken", why);
        break;
    case BH_NOT_FOUND:
        refuse(c, 404, "not_found", why);
        break;
    case BH_MALFORMED:
        refuse(c, 400, "malformed", why);
        break;
    case BH_BUSY:
        refuse(c, 429, "rate_limited", why);
        break;
    default:
        refuse(c, 503, bh_err_word(err), why);
    }
}

/* ---- reading bodies ---- */

static bool is_text_or_absent(struct json doc, const char *key)
{
    enum json_type t = json_type(json_get(doc, key));

    return t == JSON_ABSENT || t == JSON_NULL || t == JSON_STRING;
}

/* False: the member exists and is no boolean. */
static bool read_bool(struct json doc, const char *key, bool *ret_yes)
{
    struct json v = json_get(doc, key);

    if (json_type(v) != JSON_ABSENT && json_type(v) != JSON_BOOL)
        return false;
    *ret_yes = json_as_bool(v, false);
    return true;
}

/* Reads an optional array of texts, which the caller frees.  False: another type, or too many. */
static bool read_ids(struct json doc, const char *key, struct str **ret_ids, size_t *ret_n)
{
    struct json v = json_get(doc, key);
    enum json_type t = json_type(v);
    size_t n = 0, count = json_count(v);

    *ret_ids = NULL;
    *ret_n = 0;
    if (t == JSON_ABSENT || t == JSON_NULL)
        return true;
    if (t != JSON_ARRAY || count > GRANT_LIST_MAX)
        return false;
    struct str *ids = xcalloc(count + 1, sizeof *ids);
    for (struct json_iter it = {0}; json_next(v, &it);) {
        if (json_type(it.value) != JSON_STRING) {
            free(ids);
            return false;
        }
        ids[n++] = json_as_str(it.value);
    }
    *ret_ids = ids;
    *ret_n = n;
    return true;
}

/* ---- the operations: NULL, or what is wrong with the body ---- */

typedef const char *manage_op(struct manage_call *c, struct json doc);

static const char *op_link(struct manage_call *c, struct json doc)
{
    if (!is_text_or_absent(doc, "platform"))
        return "platform must be a text.";
    struct str platform = json_str(doc, "platform");
    c->platform_copy = platform.p != NULL ? str_dup(platform) : NULL;
    link_code_new(c->f->facts, manage_who(c), platform, &c->code, &c->expires_ms, on_done, c);
    return NULL;
}

static struct grant_place place_of(struct json doc)
{
    return (struct grant_place){json_str(doc, "platform"), json_str(doc, "guildId"),
                                json_str(doc, "channelId")};
}

/* Claiming a place needs a person who is linked to the instance and may manage that place. */
static enum grant_word word_of(const struct manage_call *c, struct grant_place at)
{
    const struct gate_instance *me = grant_instance(c->f->facts, manage_who(c));

    if (c->is_operator)
        return GRANT_OPERATOR;
    for (const struct gate_owner *o = me != NULL ? me->owners : NULL; o != NULL; o = o->next)
        if (str_eq(o->platform, at.platform) &&
            host_manages(c->f->host, at.platform, at.guild, at.channel, o->user))
            return GRANT_MANAGED;
    return GRANT_CLAIMED;
}

static const char *op_scope(struct manage_call *c, struct json doc)
{
    struct grant_place at = place_of(doc);

    grant_scope_claim(c->f->facts, manage_who(c), at, word_of(c, at), on_done, c);
    return NULL;
}

static const char *op_scope_release(struct manage_call *c, struct json doc)
{
    grant_scope_release(c->f->facts, manage_who(c), place_of(doc), on_done, c);
    return NULL;
}

static const char *op_principal(struct manage_call *c, struct json doc)
{
    enum gate_principal mode;
    struct str *allow;
    size_t n;

    if (!is_text_or_absent(doc, "platform"))
        return "platform must be a text.";
    if (!grant_principal_parse(json_str(doc, "mode"), &mode))
        return "mode must be owner-only, allow-list or any.";
    if (!read_ids(doc, "allow", &allow, &n))
        return "allow must be an array of user ids, as texts.";
    grant_principal(c->f->facts, manage_who(c), json_str(doc, "platform"), mode, allow, n, on_done,
                    c);
    free(allow);
    return NULL;
}

static const char *op_policy(struct manage_call *c, struct json doc)
{
    struct grant_policy p = {.platform = json_str(doc, "platform")};
    struct str *places;

    if (!read_bool(doc, "requireAddress", &p.require_address) ||
        !read_bool(doc, "allowOtherBots", &p.allow_other_bots))
        return "requireAddress and allowOtherBots must be true or false.";
    if (!read_ids(doc, "freeResponseScopes", &places, &p.n_free_places))
        return "freeResponseScopes must be an array of channel ids, as texts.";
    p.free_places = places;
    grant_policy(c->f->facts, manage_who(c), &p, on_done, c);
    free(places);
    return NULL;
}

static const char *op_dm_default(struct manage_call *c, struct json doc)
{
    grant_dm_default(c->f->facts, manage_who(c), json_str(doc, "platform"), json_str(doc, "userId"),
                     on_done, c);
    return NULL;
}

static const char *op_deprovision(struct manage_call *c, struct json doc)
{
    (void)doc;
    grant_deprovision(c->f->facts, manage_who(c), on_done, c);
    return NULL;
}

/* The operator needs no further proof. */
static const char *op_person(struct manage_call *c, struct json doc)
{
    bool remove;

    if (!read_bool(doc, "remove", &remove))
        return "remove must be true or false.";
    (remove ? grant_unlink : grant_link)(c->f->facts, manage_who(c), json_str(doc, "platform"),
                                         json_str(doc, "userId"), on_done, c);
    return NULL;
}

static const char *op_tenant(struct manage_call *c, struct json doc)
{
    bool require_address;

    if (!read_bool(doc, "requireAddress", &require_address))
        return "requireAddress must be true or false.";
    grant_tenant_default(c->f->facts, str_of(c->tenant), require_address, on_done, c);
    return NULL;
}

static void jw_time(struct jw *w, const char *key, int64_t ms)
{
    jw_key(w, key);
    if (ms != 0)
        jw_i64(w, ms);
    else
        jw_null(w);
}

/* The state of an instance, for a supervisor that decides when to put its agent to sleep. */
static const char *op_instance(struct manage_call *c, struct json doc)
{
    struct grant_who who = manage_who(c);
    struct instance_view v = {.state = "never"};
    const struct gateway *g = facts_newest_gateway(c->f->facts, who.tenant, who.instance);
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    (void)doc;
    relay_instance(c->f->relay, who.tenant, who.instance, &v);
    jw_obj(&w);
    jw_kstr(&w, "tenant", who.tenant);
    jw_kstr(&w, "instanceId", who.instance);
    jw_kstr(&w, "gatewayId", str_of(c->gateway != NULL ? c->gateway : g != NULL ? g->id : NULL));
    jw_kstr(&w, "state", str_of(v.state));
    jw_time(&w, "lastInboundAt", v.last_inbound_ms);
    jw_time(&w, "lastOutboundAt", v.last_outbound_ms);
    jw_ki64(&w, "unacked", (int64_t)v.unacked);
    jw_key(&w, "mailbox");
    jw_obj(&w);
    jw_ki64(&w, "entries", (int64_t)v.entries);
    jw_ki64(&w, "bytes", (int64_t)v.bytes);
    jw_time(&w, "oldestAt", v.oldest_ms);
    jw_end_obj(&w);
    const char *wake_url = facts_wake_url(c->f->facts, who.tenant, who.instance);
    jw_kbool(&w, "wakeUrlRegistered", wake_url != NULL);
    jw_kstr(&w, "wakeUrl", str_of(wake_url)); /* so that the instance can test its own URL */
    jw_time(&w, "flippedAt", v.asleep_since_ms);
    jw_time(&w, "now", clock_wall_ms(loop_clock(c->f->loop))); /* clocks may differ */
    jw_end_obj(&w);
    front_json(c->f, c->id, 200, &body);
    buf_done(&body);
    manage_call_free(c);
    return NULL;
}

static const struct {
    const char *path;
    manage_op *op;
} ops[] = {
    {"link", op_link},
    {"scope", op_scope},
    {"scope/release", op_scope_release},
    {"principal", op_principal},
    {"policy", op_policy},
    {"dm-default", op_dm_default},
    {"deprovision", op_deprovision},
    {"instance", op_instance},
    {"person", op_person},
    {"tenant", op_tenant},
};

void manage_perform(struct manage_call *c)
{
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};
    const char *wrong = NULL;

    if (c->body_n > 0 &&
        (!json_parse(parser, str_make(c->body, c->body_n), &doc) || !json_is_object(doc))) {
        refuse(c, 400, "malformed", "Expected a JSON object.");
        goto out;
    }
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (strcmp(ops[i].path, c->path) == 0) {
            wrong = ops[i].op(c, doc);
            if (wrong != NULL)
                refuse(c, 400, "malformed", wrong);
            goto out;
        }
    refuse(c, 404, "not_found", "There is nothing here.");
out:
    json_parser_free(parser);
}

/* ---- authentication: an instance by its own credential, or the operator ---- */

static struct manage_call *call_new(struct front *f, struct http_req *req, const char *path)
{
    struct manage_call *c = xcalloc(1, sizeof *c);
    struct str body = http_body(req);

    *c = (struct manage_call){.f = f, .id = http_req_id(req), .path = xstrdup(path)};
    c->body = xstrndup(body.p != NULL ? body.p : "", body.n);
    c->body_n = body.n;
    return c;
}

/* ---- instances, by their own credential ---- */

static void refuse_stranger(struct front *f, struct http_id id)
{
    http_answer_error(f->server, id, 401, "unauthorized",
                      "Show the gateway's own bearer, or a token signed for its instance.");
}

/* A signed token may leave out its tenant, if only one tenant has such an instance. */
const struct gateway *agent_of_claims(struct front *f, const struct idp_claims *claims)
{
    struct str tenant = claims->tenant;

    if (str_is_empty(tenant) && facts_tenants_with(f->facts, claims->instance, false, &tenant) != 1)
        return NULL;
    return facts_newest_gateway(f->facts, tenant, claims->instance);
}

static void on_agent(void *ctx, enum bh_err err, const struct idp_claims *claims, const char *why)
{
    struct manage_call *c = ctx;
    const struct gateway *gw = err == BH_OK ? agent_of_claims(c->f, claims) : NULL;

    if (err == BH_UNAVAILABLE) {
        http_answer_error(c->f->server, c->id, 503, "identity_unavailable", "%s", why);
    } else if (gw == NULL) {
        refuse_stranger(c->f, c->id);
    } else {
        c->tenant = xstrdup(gw->tenant);
        c->instance = xstrdup(gw->instance);
        manage_perform(c);
        return;
    }
    manage_call_free(c);
}

bool bearer_looks_signed(struct str bearer)
{
    struct str part;
    size_t n = 0;

    while (str_split(&bearer, '.', &part))
        n++;
    return n == 3;
}

static void enter(struct front *f, struct http_req *req, const char *path)
{
    struct str header = http_header(req, "Authorization"), bearer = token_of_header(header);
    const struct gateway *gw = NULL;
    const char *why;

    if (f->draining) {
        front_retry(f, req, "draining", "This server is going down; come back in a moment.");
    } else if (bearer_looks_signed(bearer)) {
        idp_ask(f->idp, IDP_AGENT, bearer, on_agent, call_new(f, req, path));
    } else if (facts_authenticate(f->facts, header, &gw, &why) != AUTH_OK) {
        refuse_stranger(f, http_req_id(req));
    } else {
        struct manage_call *c = call_new(f, req, path);
        c->tenant = xstrdup(gw->tenant);
        c->instance = xstrdup(gw->instance);
        c->gateway = xstrdup(gw->id);
        manage_perform(c);
    }
}

/* The operations below /manage/ on the public side. */
static const char *const public_posts[] = {"link",      "scope",      "scope/release",
                                           "principal", "dm-default", "deprovision"};

void manage_post(struct front *f, struct http_req *req)
{
    struct str path = http_path(req);

    path = str_skip(path, sizeof "/manage/" - 1);
    for (size_t i = 0; i < ARRAY_LEN(public_posts); i++)
        if (str_eq(path, str_of(public_posts[i]))) {
            enter(f, req, public_posts[i]);
            return;
        }
    http_answer_error(f->server, http_req_id(req), 404, "not_found", "There is nothing here.");
}

void manage_instance(struct front *f, struct http_req *req)
{
    enter(f, req, "instance");
}

void manage_policy(struct front *f, struct http_req *req)
{
    enter(f, req, "policy");
}

/* ---- the operator, who names the instance ---- */

static bool name_instance(struct front *f, struct http_req *req, struct manage_call *c)
{
    struct json_parser *parser = json_parser_new();
    struct buf tenant = BUF_INIT;
    struct json doc;
    bool ok = false;

    if (!json_parse(parser, str_make(c->body, c->body_n), &doc) || !json_is_object(doc)) {
        http_answer_error(f->server, http_req_id(req), 400, "malformed", "Expected a JSON object.");
    } else {
        struct str instance = json_str(doc, "instance");
        buf_add_str(&tenant, json_str(doc, "tenant"));
        ok = strcmp(c->path, "tenant") == 0 ||
             admin_find_instance(f, http_req_id(req), instance, &tenant);
        c->tenant = str_dup(buf_str(&tenant));
        c->instance = instance.p != NULL ? str_dup(instance) : NULL;
    }
    buf_done(&tenant);
    json_parser_free(parser);
    return ok;
}

void admin_manage(struct front *f, struct http_req *req)
{
    char *path = str_dup(str_skip(http_path(req), sizeof "/admin/manage/" - 1));
    struct manage_call *c = call_new(f, req, path);

    c->is_operator = true;
    free(path);
    if (name_instance(f, req, c)) {
        manage_perform(c);
        return;
    }
    manage_call_free(c);
}

void admin_grants(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT, tenant = BUF_INIT, instance = BUF_INIT, after = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct grants_page at = {0};
    char next[48];

    http_query(req, "tenant", &tenant);
    http_query(req, "instance", &instance);
    if (http_query(req, "after", &after))
        sscanf(buf_z(&after), "%" SCNu64 ".%" SCNu64, &at.instance, &at.binding);
    jw_obj(&w);
    if (grants_write(f->facts, (struct grant_who){buf_str(&tenant), buf_str(&instance)}, &at, &w)) {
        snprintf(next, sizeof next, "%" PRIu64 ".%" PRIu64, at.instance, at.binding);
        jw_kstr(&w, "next", str_of(next));
    }
    jw_end_obj(&w);
    front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
    buf_done(&tenant);
    buf_done(&instance);
    buf_done(&after);
}

/* ---- why ---- */

static void on_decision(void *ctx, const struct decision_view *d)
{
    struct jw *w = ctx;

    jw_obj(w);
    jw_ki64(w, "at", d->at_ms);
    jw_kstr(w, "platform", str_of(d->platform));
    jw_kstr(w, "messageId", str_of(d->message_id));
    jw_kstr(w, "chatId", str_of(d->chat_id));
    jw_kstr(w, "chatType", str_of(d->chat_type));
    jw_kstr(w, "userId", str_of(d->user_id));
    jw_kstr(w, "consumed", str_of(d->consumed));
    jw_ki64(w, "candidates", (int64_t)d->n_candidates);
    jw_key(w, "verdicts");
    jw_arr(w);
    for (size_t i = 0; i < d->n_verdicts; i++) {
        const struct gate_verdict *v = &d->verdicts[i];
        jw_obj(w);
        jw_kstr(w, "tenant", v->to->tenant);
        jw_kstr(w, "instance", v->to->instance);
        jw_kbool(w, "received", gate_is_yes(v->reason));
        jw_kstr(w, "reason", str_of(gate_reason_word(v->reason)));
        jw_kstr(w, "words", str_of(gate_reason_sentence(v->reason)));
        jw_end_obj(w);
    }
    jw_end_arr(w);
    jw_end_obj(w);
}

void admin_why(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT, platform = BUF_INIT, message = BUF_INIT, action = BUF_INIT;
    struct jw w = jw_begin(&body);
    bool of_actions = http_query(req, "action", &action);

    http_query(req, "platform", &platform);
    http_query(req, "message", &message);
    jw_obj(&w);
    jw_ki64(&w, "now", clock_wall_ms(loop_clock(f->loop)));
    jw_key(&w, "decisions");
    jw_arr(&w);
    if (!of_actions)
        relay_why(f->relay, buf_str(&platform), buf_str(&message), 20, on_decision, &w);
    jw_end_arr(&w);
    jw_key(&w, "actions");
    jw_arr(&w);
    if (of_actions)
        outcomes_write(host_env(f->host)->outcomes, buf_str(&action), 20, &w);
    jw_end_arr(&w);
    jw_end_obj(&w);
    front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
    buf_done(&platform);
    buf_done(&message);
    buf_done(&action);
}
