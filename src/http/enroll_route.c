/* enroll_route.c - POST /relay/enroll and POST /relay/provision.
 *
 *      caller (idp.h) -> tenant -> one change (tenancy/enroll.h) -> the secret, shown once
 *
 * When identities are verified by another server, unknown callers pass the rate limits of
 * edge/door.h first.  A released gateway parses every 2xx body as JSON and crashes on anything
 * else; from other statuses it reads `error`.  So the form of these answers is fixed. */
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/event.h"
#include "core/token.h"
#include "edge/door.h"
#include "host/host.h"
#include "http/front_priv.h"
#include "http/v1.h"
#include "http/idp.h"
#include "net/loop.h"
#include "tenancy/audit.h"
#include "tenancy/enroll.h"
#include "tenancy/keys.h"

struct joining {     /* one enrollment in flight */
    struct front *f; /* borrowed */
    struct http_id id;
    struct door_source from;
    bool enroll;
    char *body; /* owned, wiped */
    size_t body_n;
    char *instance;         /* owned; the only one that the caller may join; NULL: any */
    char *tenant, *gateway; /* owned */
    struct provision_result result;
    char peer[64];
};

static void joining_free(struct joining *j)
{
    secret_wipe(j->body, j->body_n);
    free(j->body);
    free(j->tenant);
    free(j->instance);
    free(j->gateway);
    provision_result_done(&j->result);
    free(j);
}

static void refuse(struct joining *j, int status, const char *code, const char *why)
{
    http_answer_error(j->f->server, j->id, status, code, "%s", why);
    joining_free(j);
}

static void answer(struct joining *j)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "secret", buf_str(&j->result.secret));
    jw_kstr(&w, "deliveryKey", buf_str(&j->result.delivery_key));
    jw_kstr(&w, "tenant", str_of(j->tenant));
    jw_kstr(&w, "gatewayId", str_of(j->gateway));
    jw_kraw(&w, "routeKeys", buf_str(&j->result.route_keys));
    jw_end_obj(&w);
    front_json(j->f, j->id, 200, &body);
    buf_wipe(&body);
    joining_free(j);
}

static void on_joined(void *ctx, enum bh_err err, const char *why)
{
    struct joining *j = ctx;

    switch (err) {
    case BH_OK:
        log_info(NULL, "%s: tenant=%s gateway=%s", j->enroll ? "enrolled" : "provisioned",
                 j->tenant, j->gateway);
        answer(j);
        break;
    case BH_CONFLICT:
    case BH_REFUSED:
        refuse(j, 403, err == BH_CONFLICT ? "token_used" : "refused", why);
        break;
    case BH_MALFORMED:
        refuse(j, 400, "malformed", why);
        break;
    default:
        refuse(j, 503, bh_err_word(err), why);
    }
}

static bool read_routes(struct json doc, struct str **ret_keys, size_t *ret_n)
{
    struct json v = json_get(doc, "routeKeys");
    size_t n = 0, count = json_count(v);

    *ret_keys = NULL;
    *ret_n = 0;
    if (json_type(v) == JSON_ABSENT || json_type(v) == JSON_NULL)
        return true;
    if (json_type(v) != JSON_ARRAY || count > PROVISION_ROUTES_MAX)
        return false;
    *ret_keys = xcalloc(count + 1, sizeof **ret_keys);
    for (struct json_iter it = {0}; json_next(v, &it);) {
        if (json_type(it.value) != JSON_STRING)
            return false;
        (*ret_keys)[n++] = json_as_str(it.value);
    }
    *ret_n = n;
    return true;
}

/* NULL: the change is in flight.  Else the reason for a 403. */
static const char *enroll(struct joining *j, struct json doc, struct provision_spec *spec)
{
    struct json_parser *parser = json_parser_new();
    struct local_token t;
    const char *why;

    if (!local_token_read(j->f->facts, json_str(doc, "enrollmentToken"), TOKEN_ENROLL, parser, &t,
                          &why) ||
        !str_eq(t.tenant, str_of(j->tenant))) {
        json_parser_free(parser);
        /* One answer for every reason, so that a caller learns nothing about other tenants. */
        return "The enrollment token is not valid: wrong, expired, or for another tenant.";
    }
    if (t.instance.p != NULL) /* the operator's token overrides the caller's choice */
        spec->instance = t.instance;
    if (t.wake_url.p != NULL)
        spec->wake_url = t.wake_url;
    spec->platform = spec->bot = STR_NULL;
    spec->n_route_keys = 0;
    facts_provision(j->f->facts, spec, &t, &j->result, on_joined, j);
    json_parser_free(parser);
    return NULL;
}

static void join(struct joining *j, struct json doc)
{
    struct str *keys = NULL;
    size_t n = 0;
    struct provision_spec spec = {.tenant = str_of(j->tenant),
                                  .gateway = json_str(doc, "gatewayId"),
                                  .instance = json_str(doc, "instanceId"),
                                  .wake_url = json_str(doc, "wakeUrl"),
                                  .platform = event_platform_meant(json_str(doc, "platform")),
                                  .bot = json_str(doc, "botId"),
                                  .display_name = json_str(doc, "displayName")};
    const char *wrong;
    struct front *f = j->f; /* @j may be gone after a refusal */

    if (j->instance != NULL)
        spec.instance = str_of(j->instance);
    j->gateway = str_dup(spec.gateway);
    if (!read_routes(doc, &keys, &n)) {
        free(keys);
        refuse(j, 400, "malformed", "routeKeys must be an array of texts.");
        return;
    }
    spec.route_keys = keys;
    for (size_t i = 0; i < n; i++) /* a caller may not claim all chats of a bot */
        if (host_platform(j->f->host, spec.platform, keys[i]) == NULL)
            keys[spec.n_route_keys++] = keys[i];
    struct audit_who who = audit_who_of(AUDIT_ENROLL, j->enroll ? "enroll" : "provision",
                                        str_of(j->tenant), str_of(j->peer));
    audit_as(j->f->audit, &who);
    if (!j->enroll)
        facts_provision(j->f->facts, &spec, NULL, &j->result, on_joined, j);
    else if ((wrong = enroll(j, doc, &spec)) != NULL)
        refuse(j, 403, "refused", wrong);
    audit_as(f->audit, NULL);
    free(keys);
}

static int64_t now_ms(const struct front *f)
{
    return clock_now_ms(loop_clock(f->loop));
}

static void on_identified(void *ctx, enum bh_err err, const struct idp_claims *claims,
                          const char *why)
{
    struct joining *j = ctx;
    struct json_parser *parser = json_parser_new();
    struct json doc;
    unsigned long long untold;

    if (err == BH_REFUSED)
        door_refused(j->f->door, j->from, now_ms(j->f));
    if (err != BH_OK) {
        if (front_may_log(j->f, &untold))
            log_warn(NULL, "%s refused: %s more=%llu", j->enroll ? "enrollment" : "provisioning",
                     why, untold);
        if (err == BH_UNAVAILABLE)
            refuse(j, 503, "identity_unavailable", why);
        else
            refuse(j, 401, "unauthorized",
                   "The caller's identity could not be verified. Send Authorization: Bearer with a "
                   "token "
                   "of the identity provider, or of `bellhop token provision`.");
    } else {
        door_proved(j->f->door, j->from, now_ms(j->f));
        j->tenant = str_dup(claims->tenant);
        j->instance = str_dup_opt(claims->instance);
        if (!keys_may_join(j->f->keys, str_of(j->tenant), j->f->v1->tenant_provisions))
            refuse(j, 429, "rate_limited",
                   "Too many gateways of this tenant at once; try again in a moment.");
        else if (json_parse(parser, str_make(j->body, j->body_n), &doc) && json_is_object(doc))
            join(j, doc);
        else
            refuse(j, 400, "malformed", "Expected a JSON object.");
    }
    json_parser_free(parser);
}

static void enter(struct front *f, struct http_req *req, bool enroll_it)
{
    struct joining *j;
    struct str body = http_body(req);
    struct door_source from = door_source(f->door, http_peer(req));

    if (idp_asks_others(f->idp) && !door_admit(f->door, from, now_ms(f))) {
        http_answer_error(f->server, http_req_id(req), 429, "rate_limited",
                          "Too many callers that nobody knows; try again in a moment.");
        return;
    }
    if (front_is_draining(f, req))
        return;
    j = xcalloc(1, sizeof *j);
    *j = (struct joining){.f = f, .id = http_req_id(req), .from = from, .enroll = enroll_it};
    snprintf(j->peer, sizeof j->peer, "%.*s", STR_FMT(http_peer(req)));
    j->body = xstrndup(body.p != NULL ? body.p : "", body.n);
    j->body_n = body.n;
    idp_ask(f->idp, IDP_CALLER, token_of_header(http_header(req, "Authorization")), on_identified,
            j);
}

void enroll_by_code(struct front *f, struct http_req *req)
{
    enter(f, req, true);
}

void enroll_by_caller(struct front *f, struct http_req *req)
{
    enter(f, req, false);
}
