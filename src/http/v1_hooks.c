/* v1_hooks.c - /v1/hooks: capability URLs, for clients that send no credential.
 *
 *      POST /v1/hooks/<capability>/deliver   the flat body of a webhook; signed when the hook has a
 *                                            secret, which is checked on the raw bytes first
 *      POST /v1/hooks/<capability>/wake      {"agent_id": ...}, or nothing
 *      GET  /v1/hooks/<capability>/status    200 or 503
 *
 * Whoever has the URL may use it, until it is revoked.  It says which agent is meant: what a body
 * calls it is the caller's own name for it. */
#include "base/crypto.h"
#include "base/mem.h"
#include "dispatch/dispatch.h"
#include "http/v1.h"
#include "tenancy/keys.h"

/* NULL: the refusal has been sent. */
static const struct key *admit(struct v1_request *r)
{
    const struct key *k = keys_check(r->f->keys, KEY_HOOK, r->args[0]);

    if (r->f->draining) {
        front_retry(r->f, r->req, "draining", "This server is going down; come back in a moment.");
        return NULL;
    }
    if (k == NULL || k->agent == NULL) {
        v1_refuse(r->f, r->req, 404, NULL, "not_found", "There is nothing here.");
        return NULL;
    }
    if (!keys_may_act(r->f->keys, k, r->f->v1->key_requests, r->f->v1->tenant_requests)) {
        v1_refuse(r->f, r->req, 429, "Retry-After: 1\r\n", "rate_limited",
                  "Too many requests of this hook or its tenant; try again in a second.");
        return NULL;
    }
    if (!v1_take_work(r->f, r->req, str_of(k->tenant)))
        return NULL;
    r->who.key = k;
    r->who.caller = (struct caller){.tenant = str_of(k->tenant), .identity = str_of(k->identity)};
    return k;
}

static bool signature_ok(const struct key *k, struct http_req *req)
{
    struct str given = http_header(req, "X-Signature");
    uint8_t want[SHA256_BYTES], got[SHA256_BYTES];

    if (k->secret == NULL)
        return true;
    if (!str_starts(given, STR("sha256=")) || !hex_decode(str_skip(given, 7), got, sizeof got))
        return false;
    hmac_sha256(str_of(k->secret), http_body(req), want);
    return ct_equal(want, got, sizeof want);
}

static struct dispatch_who hook_who(const struct v1_request *r)
{
    struct dispatch_who who = v1_dispatch_who(&r->who);

    who.any_name = true;
    return who;
}

void v1_hook_deliver(struct v1_request *r)
{
    const struct key *k = admit(r);
    struct json doc;

    if (k == NULL)
        return;
    if (!signature_ok(k, r->req)) {
        v1_refuse(r->f, r->req, 401, NULL, "unauthorized",
                  "X-Signature must be sha256=<hex HMAC-SHA256 of the body>.");
        return;
    }
    struct json_parser *parser = v1_body(r, &doc);
    if (parser == NULL)
        return;
    struct dispatch_who who = hook_who(r);
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    c->dispatch =
        dispatch_deliver(r->f->dispatch, &who, str_of(k->agent), doc, v1_on_dispatched, c);
    json_parser_free(parser);
}

void v1_hook_wake(struct v1_request *r)
{
    const struct key *k = admit(r);
    struct json_parser *parser = json_parser_new();
    struct json doc = {0};

    if (k != NULL) {
        struct dispatch_who who = hook_who(r);
        struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
        if (!signature_ok(k, r->req) || !json_parse(parser, http_body(r->req), &doc) ||
            !json_is_object(doc))
            doc = (struct json){0}; /* a bare ring: words must be signed as those of a delivery */
        c->dispatch = dispatch_wake(r->f->dispatch, &who, str_of(k->agent), doc, STR_NULL,
                                    v1_on_dispatched, c);
    }
    json_parser_free(parser);
}

/* Well: the server is, and the agent is there. */
static void on_status(void *ctx, const struct dispatch_answer *a)
{
    struct v1_call *c = ctx;
    bool well = a->fault.cls == FAULT_NONE;

    c->dispatch = NULL;
    v1_answer(c->f, c->id, well ? 200 : 503, NULL,
              well ? a->json : STR("{\"status\":\"unknown\"}"));
    v1_call_free(c);
}

void v1_hook_status(struct v1_request *r)
{
    const struct key *k = admit(r);

    if (k == NULL)
        return;
    struct dispatch_who who = hook_who(r);
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    c->dispatch = dispatch_status(r->f->dispatch, &who, str_of(k->agent), on_status, c);
}
