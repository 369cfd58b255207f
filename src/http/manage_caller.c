/* manage_caller.c - who asks: an instance or the operator.  (manage.h says by what.) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/mem.h"
#include "http/admin.h"
#include "core/token.h"
#include "host/host.h"
#include "platform/outcomes.h"
#include "http/front_priv.h"
#include "http/vouch.h"
#include "http/manage.h"
#include "net/loop.h"
#include "relay/relay.h"

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

/* A signed token may leave out its tenant: then it is the only one with such an instance. */
const struct gateway *agent_of_claims(struct front *f, const struct vouch_claims *claims)
{
    struct str tenant = claims->tenant;

    if (str_is_empty(tenant) && facts_tenants_with(f->facts, claims->instance, false, &tenant) != 1)
        return NULL;
    return facts_newest_gateway(f->facts, tenant, claims->instance);
}

static void on_agent(void *ctx, enum bh_err err, const struct vouch_claims *claims, const char *why)
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
        vouch_ask(f->voucher, VOUCH_AGENT, bearer, on_agent, call_new(f, req, path));
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

/* What stands below /manage/ on the public side. */
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
