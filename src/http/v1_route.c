/* v1_route.c - the table of /v1, who may enter, and how errors look.  (v1.h has the contract.) */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/config.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/spill.h"
#include "core/token.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "http/openapi.h"
#include "http/v1.h"
#include "net/loop.h"
#include "skills/skills.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

#define AT(member) offsetof(struct v1_settings, member)
#define CALL_BYTES 1024 /* what a call costs besides its body */

static const struct config_key limit_keys[] = {
    {"limits.key_requests", CFG_NUMBER, CFG_RELOAD, AT(key_requests), "1000", .max = 1000000,
     .what = "Requests per second of one key at `/v1` and `/mcp`, twice that at once; 0 is no "
             "limit."},
    {"limits.tenant_requests", CFG_NUMBER, CFG_RELOAD, AT(tenant_requests), "5000", .max = 1000000,
     .what = "The same for all keys of a tenant together."},
    {"limits.tenant_provisions", CFG_NUMBER, CFG_RELOAD, AT(tenant_provisions), "50", .max = 100000,
     .what = "Gateways of a tenant that ask for their secret at `/relay/provision` or "
             "`/relay/enroll`, per second, twenty times that at once; past it 429. 0 is no limit."},
    {0},
};
const struct config_section v1_config = {.keys = limit_keys, .size = sizeof(struct v1_settings)};

const struct v1_route v1_routes[] = {
    {"GET", "/v1/health", v1_health, true},
    {"GET", "/v1/openapi.json", v1_openapi, true},

    {"GET", "/v1/skills", v1_skills_query, false},
    {"GET", "/v1/skills:manifest", v1_skills_manifest, false},
    {"GET", "/v1/skills:version", v1_skills_version, false},
    {"GET", "/v1/skills/{name}", v1_skills_load, false},
    {"PUT", "/v1/skills/{name}", v1_skills_store, false},
    {"PATCH", "/v1/skills/{name}", v1_skills_status, false},
    {"DELETE", "/v1/skills/{name}", v1_skills_delete, false},
    {"GET", "/v1/skills/{name}/metadata", v1_skills_metadata, false},
    {"GET", "/v1/skills/{name}/versions", v1_skills_versions, false},
    {"GET", "/v1/skills/{name}/dependents", v1_skills_dependents, false},

    {"GET", "/v1/agents", v1_agents_list, false},
    {"POST", "/v1/agents/{id}/deliver", v1_agents_deliver, false},
    {"POST", "/v1/agents/{id}/wake", v1_agents_wake, false},
    {"POST", "/v1/agents/{id}/request", v1_agents_request, false},
    {"GET", "/v1/agents/{id}/status", v1_agents_status, false},
    {"GET", "/v1/agents/{id}/replies", v1_agents_replies, false},

    {"POST", "/v1/hooks/{capability}/deliver", v1_hook_deliver, true},
    {"POST", "/v1/hooks/{capability}/wake", v1_hook_wake, true},
    {"GET", "/v1/hooks/{capability}/status", v1_hook_status, true},

    {"POST", "/v1/data", v1_data_write, false},
    {"POST", "/v1/data/query", v1_data_query, false},
    {"GET", "/v1/data:manifest", v1_data_manifest, false},
    {"GET", "/v1/data/{id}", v1_data_get, false},
    {NULL, NULL, NULL, false},
};

/* ---- answers ---- */

void v1_answer(struct front *f, struct http_id id, int status, const char *headers, struct str json)
{
    http_answer(f->server, id,
                &(struct http_answer){.status = status, .headers = headers, .body = json});
}

void v1_answer_long(struct front *f, struct http_id id, const char *headers, struct str json,
                    const struct spill *file)
{
    int fd = file != NULL ? fcntl(file->fd, F_DUPFD_CLOEXEC, 0) : -1;

    if (file == NULL)
        v1_answer(f, id, 200, headers, json);
    else if (fd < 0)
        http_answer_error(f->server, id, 503, "busy",
                          "No descriptor is left for so long an "
                          "answer; ask again soon.");
    else
        http_answer_file(f->server, id, &(struct http_answer){.headers = headers},
                         &(struct http_file){.fd = fd, .size = file->bytes});
}

void v1_fault(struct front *f, struct http_id id, const struct fault *fault)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int status = fault_http_status(fault->cls);

    fault_json(fault, &w);
    v1_answer(f, id, status, status == 429 || status == 503 ? "Retry-After: 1\r\n" : NULL,
              buf_str(&body));
    buf_done(&body);
}

void v1_bad(struct v1_request *r, enum fault_class cls, const char *fmt, ...)
{
    struct fault fault = {0};
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    fault_set(&fault, cls, "%s", text);
    v1_fault(r->f, http_req_id(r->req), &fault);
    fault_done(&fault);
}

struct json_parser *v1_body(struct v1_request *r, struct json *ret_doc)
{
    struct json_parser *parser = json_parser_new();

    if (json_parse(parser, http_body(r->req), ret_doc) && json_is_object(*ret_doc))
        return parser;
    v1_bad(r, FAULT_INVALID, "Expected a JSON object as the body.");
    json_parser_free(parser);
    return NULL;
}

/* ---- calls on their way ---- */

struct v1_call *v1_call_new(struct front *f, struct http_id id)
{
    struct v1_call *c = xcalloc(1, sizeof *c);

    *c = (struct v1_call){.f = f, .id = id, .work = f->v1_work};
    f->v1_work = (struct v1_work){0};
    list_append(&f->v1_calls, &c->link);
    return c;
}

void v1_call_free(struct v1_call *c)
{
    list_remove(&c->link);
    v1_give_work(c->f, &c->work);
    free(c);
}

void v1_drop_calls(struct front *f)
{
    if (f->v1_calls.next == NULL)
        return; /* it never opened */
    list_each (&f->v1_calls, it, nxt)
        v1_call_free(list_entry(it, struct v1_call, link));
}

/* ---- who ---- */

void v1_refuse(struct front *f, struct http_req *req, int status, const char *headers,
               const char *code, const char *what)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "error", str_of(what));
    jw_kstr(&w, "code", str_of(code));
    jw_kstr(&w, "class", STR_NULL);
    jw_end_obj(&w);
    v1_answer(f, http_req_id(req), status, headers, buf_str(&body));
    buf_done(&body);
}

void v1_refuse_stranger(struct front *f, struct http_req *req)
{
    unsigned long long untold;

    if (front_may_log(f, &untold))
        log_warn(NULL, "%.*s refused: no key, or one that is not good: from=%.*s more=%llu",
                 STR_FMT(http_path(req)), STR_FMT(http_peer(req)), untold);
    v1_refuse(f, req, 401, "WWW-Authenticate: Bearer\r\n", "unauthorized",
              "Show a key: Authorization: Bearer <what bellhop token agent printed>.");
}

/* The tenant of everybody known here; STR_NULL: there are several, or none. */
static struct str only_tenant(const struct front *f)
{
    const struct list *keys;
    struct str only = STR_NULL;

    if (facts_tenants(f->facts, &only) > 1)
        return STR_NULL;
    keys_all(f->keys, &keys);
    for (const struct list *it = keys->next; it != keys; it = it->next) {
        struct str t = str_of(list_entry(it, const struct key, link)->tenant);
        if (only.p != NULL && !str_eq(only, t))
            return STR_NULL;
        only = t;
    }
    return only;
}

/* On the admin socket the file's mode has let the operator in already. */
static bool admit_operator(struct front *f, struct http_req *req, struct str agent,
                           struct v1_who *ret)
{
    struct str tenant = http_header(req, "X-Bellhop-Tenant");

    if (str_is_empty(tenant))
        tenant = only_tenant(f);
    if (str_is_empty(tenant) && agent.p != NULL)
        tenant = dispatch_tenant_of(f->dispatch, agent);
    if (!facts_name_ok(tenant)) {
        v1_refuse(f, req, 400, NULL, "invalid", "Which tenant? Name it with --tenant.");
        return false;
    }
    ret->caller = (struct caller){.tenant = tenant, .identity = STR("operator"), .attest = true};
    return true;
}

static bool admit_key(struct front *f, struct http_req *req, struct v1_who *ret)
{
    const struct key *k =
        keys_check(f->keys, KEY_AGENT, token_of_header(http_header(req, "Authorization")));

    if (k == NULL) {
        v1_refuse_stranger(f, req);
        return false;
    }
    if (!keys_may_act(f->keys, k, f->v1->key_requests, f->v1->tenant_requests)) {
        v1_refuse(f, req, 429, "Retry-After: 1\r\n", "rate_limited",
                  "Too many requests of this key or its tenant; try again in a second.");
        return false;
    }
    ret->key = k;
    ret->caller = (struct caller){.tenant = str_of(k->tenant),
                                  .ns = str_of(k->ns),
                                  .identity = str_of(k->identity),
                                  .attest = k->attest};
    return true;
}

bool v1_take_work(struct front *f, struct http_req *req, struct str tenant)
{
    struct party *p = ledger_party(f->ledger, PER_TENANT, tenant);
    uint64_t bytes = http_body(req).n + CALL_BYTES;

    if (ledger_take(f->ledger, p, LIMIT_WORK_BYTES, bytes) == LIMIT_TAKEN) {
        f->v1_work = (struct v1_work){p, bytes};
        return true;
    }
    party_drop(p);
    v1_refuse(f, req, 429, "Retry-After: 1\r\n", "busy",
              "Too much of this tenant's is under way; try again when some of it is answered.");
    return false;
}

void v1_give_work(struct front *f, struct v1_work *w)
{
    if (w->party != NULL)
        ledger_give(f->ledger, w->party, LIMIT_WORK_BYTES, w->bytes);
    party_drop(w->party);
    *w = (struct v1_work){0};
}

static bool admit_namespace(struct front *f, struct http_req *req, struct v1_who *who)
{
    struct str ns = http_header(req, "X-Bellhop-Namespace");

    if (str_is_empty(ns))
        return true;
    if (!caller_ns_valid(ns)) {
        v1_refuse(
            f, req, 400, NULL, "invalid",
            "X-Bellhop-Namespace must be 1 to 64 letters, digits, dots, dashes or underscores.");
        return false;
    }
    if (who->caller.ns.p != NULL && !str_eq(who->caller.ns, ns)) {
        v1_refuse(f, req, 403, NULL, "refused", "This key is for another namespace.");
        return false;
    }
    who->caller.ns = ns;
    return true;
}

/* @agent: whom the path names; absent: nobody. */
static bool admit(struct front *f, struct http_req *req, struct str agent, struct v1_who *ret_who)
{
    bool operator=
            http_listener_tag(req) == front_admin_tag &&http_header(req, "Authorization").p == NULL;

    *ret_who = (struct v1_who){0};
    if (f->draining) {
        front_retry(f, req, "draining", "This server is going down; come back in a moment.");
        return false;
    }
    return (operator? admit_operator(f, req, agent, ret_who) : admit_key(f, req, ret_who)) &&
           admit_namespace(f, req, ret_who) && v1_take_work(f, req, ret_who->caller.tenant);
}

bool v1_admit(struct front *f, struct http_req *req, struct v1_who *ret_who)
{
    return admit(f, req, STR_NULL, ret_who);
}

/* ---- which ---- */

static const struct v1_route *find(struct v1_request *r, struct str path, struct buf *allowed)
{
    struct str method = http_method(r->req);

    if (str_eq(method, STR("HEAD")))
        method = STR("GET");
    for (const struct v1_route *route = v1_routes; route->method != NULL; route++) {
        if (!v1_match(route->pattern, path, r->arena, r->args))
            continue;
        if (str_eq(method, str_of(route->method)))
            return route;
        buf_printf(allowed, "%s%s", allowed->n > 0 ? ", " : "Allow: ", route->method);
    }
    return NULL;
}

static bool names_agent(const struct v1_route *route)
{
    return str_starts(str_of(route->pattern), STR("/v1/agents/{"));
}

static void handle(struct v1_request *r)
{
    struct buf allowed = BUF_INIT;
    const struct v1_route *route = find(r, http_path(r->req), &allowed);
    struct str agent = route != NULL && names_agent(route) ? r->args[0] : STR_NULL;

    if (route != NULL && (route->open || admit(r->f, r->req, agent, &r->who))) {
        r->who.caller.takes_files = true;
        route->handler(r);
    } else if (route == NULL && allowed.n > 0) {
        buf_add_z(&allowed, "\r\n");
        v1_refuse(r->f, r->req, 405, buf_z(&allowed), "method_not_allowed",
                  "This path does not answer to that method.");
    } else if (route == NULL) {
        v1_refuse(r->f, r->req, 404, NULL, "not_found", "There is nothing here.");
    }
    buf_done(&allowed);
}

void front_v1(struct front *f, struct http_req *req)
{
    struct arena arena = ARENA_INIT;
    struct v1_request r = {.f = f, .req = req, .arena = &arena};

    handle(&r);
    v1_give_work(f, &f->v1_work);
    arena_done(&arena);
}

/* ---- what needs no store ---- */

/* A stranger learns that a server is here; who shows a key learns whether it is good. */
void v1_health(struct v1_request *r)
{
    struct store_stats st;
    struct skills_stats ss;
    struct data_stats ds;

    if (http_header(r->req, "Authorization").p != NULL && !v1_admit(r->f, r->req, &r->who))
        return;
    r->f->store->ops->stats(r->f->store, &st);
    skills_stats(r->f->skills, &ss);
    data_stats(r->f->data, &ds);
    bool well = !r->f->draining && st.healthy && ss.healthy && ds.healthy;
    v1_answer(r->f, http_req_id(r->req), well ? 200 : 503, NULL,
              well ? STR("{\"status\":\"ok\"}") : STR("{\"status\":\"unavailable\"}"));
}

void v1_openapi(struct v1_request *r)
{
    v1_answer(r->f, http_req_id(r->req), 200, NULL, http_assets[0].bytes);
}
