/* v1.c - authenticates the callers of /v1, finds the operation of a request, and writes its answer.
 * (v1.h has the contract.) */
#include "http/v1.h"
#include <fcntl.h>
#include "base/arena.h"
#include "base/config.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/spill.h"
#include "core/token.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "edge/form.h"
#include "http/manage.h"
#include "mcp/mcp.h"
#include "skills/skills.h"
#include "store/jobs.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

#define AT(member) offsetof(struct v1_settings, member)
#define CALL_BYTES 1024 /* memory of a call besides its body */
#define NOTE_BYTES 512  /* of the audit log's entry of a change that is no fact, about */

static const struct config_key limit_keys[] = {
    {"limits.key_requests", CFG_NUMBER, CFG_RELOAD, AT(key_requests), "1000", .max = 1000000,
     .what = "Requests per second of one key at `/v1` and `/mcp`, twice that at once; 0 is no "
             "limit."},
    {"limits.tenant_requests", CFG_NUMBER, CFG_RELOAD, AT(tenant_requests), "5000", .max = 1000000,
     .what = "The same for all keys of a tenant together."},
    {"limits.tenant_provisions", CFG_NUMBER, CFG_RELOAD, AT(tenant_provisions), "50", .max = 100000,
     .what = "Requests of a tenant's gateways for their secret at `/relay/provision` or "
             "`/relay/enroll`, per second, twenty times that at once; more get 429. 0: no limit."},
    {0},
};
const struct config_section v1_config = {.keys = limit_keys, .size = sizeof(struct v1_settings)};

/* ---- answers ---- */

static const char *etag_header(struct buf *out, struct str etag)
{
    if (etag.p == NULL)
        return NULL;
    buf_printf(out, "ETag: \"%.*s\"\r\n", STR_FMT(etag));
    return buf_z(out);
}

void v1_answer(struct op_call *c, int status, struct str json, struct str etag)
{
    struct buf headers = BUF_INIT;

    http_answer(c->f->server, c->id,
                &(struct http_answer){.status = status,
                                      .headers = etag_header(&headers, etag),
                                      .body = json});
    buf_done(&headers);
}

void v1_answer_file(struct op_call *c, const struct spill *file, struct str etag)
{
    int fd = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    struct buf headers = BUF_INIT;

    if (fd < 0)
        http_answer_error(c->f->server, c->id, 503, "busy",
                          "No descriptor is left for so long an answer; ask again soon.");
    else
        http_answer_file(c->f->server, c->id,
                         &(struct http_answer){.headers = etag_header(&headers, etag)},
                         &(struct http_file){.fd = fd, .size = file->bytes});
    buf_done(&headers);
}

void v1_fault(struct front *f, struct http_id id, const struct op *op, const struct fault *fault)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int status = fault_http_status(fault->cls);

    if (op->may == MAY_GATEWAY || op->may == MAY_OPERATOR) {
        http_answer_error(f->server, id, 400, "malformed", "%.*s",
                          STR_FMT(buf_str(&fault->message)));
        return;
    }
    fault_json(fault, &w);
    http_answer(f->server, id,
                &(struct http_answer){.status = status,
                                      .headers = status == 429 || status == 503
                                                     ? "Retry-After: 1\r\n"
                                                     : NULL,
                                      .body = buf_str(&body)});
    buf_done(&body);
}

/* A refusal without an error class of the contract. */
static bool refuse(struct front *f, struct http_req *req, int status, const char *headers,
                   const char *code, const char *what)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "error", str_of(what));
    jw_kstr(&w, "code", str_of(code));
    jw_kstr(&w, "class", STR_NULL);
    jw_end_obj(&w);
    http_answer(f->server, http_req_id(req),
                &(struct http_answer){.status = status,
                                      .headers = headers,
                                      .body = buf_str(&body)});
    buf_done(&body);
    return false;
}

/* ---- callers ---- */

/* The only tenant of this server; STR_NULL: there are several, or none. */
static struct str only_tenant(const struct front *f)
{
    const struct list *keys;
    struct str only = STR_NULL;

    if (facts_tenants(f->facts, &only) > 1)
        return STR_NULL;
    keys_all(f->keys, &keys);
    for (const struct list *it = keys->next; it != keys; it = it->next) {
        struct str t = str_of(list_entry(it, const struct key, link)->tenant);
        if (t.n == 0)
            continue; /* the operator's */
        if (only.p != NULL && !str_eq(only, t))
            return STR_NULL;
        only = t;
    }
    return only;
}

struct str v1_operator_tenant(const struct front *f, struct str agent)
{
    struct str of_agent = agent.p != NULL ? dispatch_tenant_of(f->dispatch, agent) : STR_NULL;

    return str_is_empty(of_agent) ? only_tenant(f) : of_agent;
}

/* The file mode of the admin socket has let the operator in already. */
static bool admit_operator(struct front *f, struct http_req *req, struct str agent,
                           struct caller *ret)
{
    struct str tenant = http_header(req, "X-Bellhop-Tenant");

    if (str_is_empty(tenant))
        tenant = v1_operator_tenant(f, agent);
    if (!facts_name_ok(tenant) && agent.n > 0 && !dispatch_has_entry(f->dispatch, agent))
        return refuse(f, req, 404, NULL, "not_found",
                      "There is no agent of this name with an entry (bellhop agents list). For an "
                      "agent without one name the tenant with --tenant.");
    if (!facts_name_ok(tenant))
        return refuse(f, req, 400, NULL, "invalid", "Which tenant? Name it with --tenant.");
    *ret = (struct caller){.tenant = tenant, .identity = STR("operator"), .attest = true};
    return true;
}

static struct caller caller_of(const struct key *k)
{
    return (struct caller){.tenant = str_of(k->tenant),
                           .ns = str_of(k->ns),
                           .identity = str_of(k->identity),
                           .key_id = str_of(k->id),
                           .agent = str_of(k->agent),
                           .instance = str_of(k->instance),
                           .attest = k->attest};
}

static bool admit_key(struct front *f, struct http_req *req, struct caller *ret)
{
    const struct key *k =
        keys_check(f->keys, KEY_AGENT, token_of_header(http_header(req, "Authorization")));
    unsigned long long untold;

    if (k == NULL) {
        if (front_may_log(f, &untold))
            log_warn(NULL,
                     "%.*s refused: the key is missing, unknown, expired or revoked: from=%.*s "
                     "more=%llu",
                     STR_FMT(http_path(req)), STR_FMT(http_peer(req)), untold);
        return refuse(
            f, req, 401, "WWW-Authenticate: Bearer\r\n", "unauthorized",
            "Send a key: Authorization: Bearer KEY. `bellhop token agent --tenant T` makes one.");
    }
    if (!keys_may_act(f->keys, k, f->v1->key_requests, f->v1->tenant_requests))
        return refuse(f, req, 429, "Retry-After: 1\r\n", "rate_limited",
                      "Too many requests of this key or its tenant; try again in a second.");
    *ret = caller_of(k);
    return true;
}

bool v1_may_again(void *front, const struct caller *who)
{
    struct front *f = front;
    const struct key *k = who->key_id.p != NULL ? keys_find(f->keys, who->key_id) : NULL;

    return k == NULL || keys_may_act(f->keys, k, f->v1->key_requests, f->v1->tenant_requests);
}

static bool take_work(struct front *f, struct http_req *req, struct str tenant)
{
    struct party *p = ledger_party(f->ledger, PER_TENANT, tenant);
    uint64_t bytes = http_body(req).n + CALL_BYTES;

    if (ledger_take(f->ledger, p, LIMIT_WORK_BYTES, bytes) == LIMIT_TAKEN) {
        f->v1_work = (struct v1_work){p, bytes};
        return true;
    }
    party_drop(p);
    return refuse(f, req, 429, "Retry-After: 1\r\n", "busy",
                  "Too much of this tenant's is under way; try again when some of it is answered.");
}

void v1_give_work(struct front *f, struct v1_work *w)
{
    if (w->party != NULL)
        ledger_give(f->ledger, w->party, LIMIT_WORK_BYTES, w->bytes);
    party_drop(w->party);
    *w = (struct v1_work){0};
}

static bool admit_namespace(struct front *f, struct http_req *req, struct caller *who)
{
    struct str ns = http_header(req, "X-Bellhop-Namespace");

    if (str_is_empty(ns))
        return true;
    if (!caller_ns_valid(ns))
        return refuse(
            f, req, 400, NULL, "invalid",
            "X-Bellhop-Namespace must be 1 to 64 letters, digits, dots, dashes or underscores.");
    if (who->ns.p != NULL && !str_eq(who->ns, ns))
        return refuse(f, req, 403, NULL, "refused", "This key is for another namespace.");
    who->ns = ns;
    return true;
}

bool v1_admit(struct front *f, struct http_req *req, struct str agent, struct caller *ret_caller)
{
    bool keyless =
        http_listener_tag(req) == front_admin_tag && http_header(req, "Authorization").p == NULL;
    const char *names_caller = dispatch_caller_header(f->dispatch);

    if (front_is_draining(f, req) ||
        !(keyless ? admit_operator(f, req, agent, ret_caller) : admit_key(f, req, ret_caller)) ||
        !admit_namespace(f, req, ret_caller) || !take_work(f, req, ret_caller->tenant))
        return false;
    struct str named = names_caller != NULL ? http_header(req, names_caller) : STR_NULL;
    if (ret_caller->attest && named.n > 0 && named.n <= DISPATCH_ID_MAX && utf8_valid(named))
        ret_caller->for_agent = named;
    return true;
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

/* Admits anybody who has the hook's URL, until it is revoked.  *@ret_bare: ignore the body. */
static bool admit_hook(struct front *f, struct http_req *req, const struct op *op,
                       struct str capability, struct caller *ret, bool *ret_bare)
{
    const struct key *k = keys_check(f->keys, KEY_HOOK, capability);

    if (front_is_draining(f, req))
        return false;
    if (k == NULL || k->agent == NULL)
        return refuse(f, req, 404, NULL, "not_found", "There is nothing here.");
    if (!keys_may_act(f->keys, k, f->v1->key_requests, f->v1->tenant_requests))
        return refuse(f, req, 429, "Retry-After: 1\r\n", "rate_limited",
                      "Too many requests of this hook or its tenant; try again in a second.");
    if (!take_work(f, req, str_of(k->tenant)))
        return false;
    *ret = caller_of(k);
    ret->ns = STR_NULL;
    ret->attest = false;
    *ret_bare = op->signature == SIGN_OR_BARE && !signature_ok(k, req);
    if (op->signature == SIGN_MUST && !signature_ok(k, req))
        return refuse(f, req, 401, NULL, "unauthorized",
                      "X-Signature must be sha256=<hex HMAC-SHA256 of the body>.");
    return true;
}

/* Admits the agent that was given the reply URL of a request, while the request waits. */
static bool admit_reply(struct front *f, struct http_req *req, struct str capability,
                        struct caller *ret)
{
    if (front_is_draining(f, req))
        return false;
    if (!dispatch_reply_who(f->dispatch, capability, ret))
        return refuse(f, req, 404, NULL, "not_found",
                      "This request does not wait any more: it has its answer, or its time is "
                      "over.");
    if (!keys_tenant_may_act(f->keys, ret->tenant, f->v1->tenant_requests))
        return refuse(f, req, 429, "Retry-After: 1\r\n", "rate_limited",
                      "Too many requests of this tenant; try again in a second.");
    return take_work(f, req, ret->tenant);
}

/* Admits the operator: over the admin socket, or with `admin.token` from anywhere.  An operator's
 * tenant may be absent: the operation says whose agent is meant. */
static bool admit_admin(struct front *f, struct http_req *req, struct caller *ret)
{
    struct str shown = token_of_header(http_header(req, "Authorization"));
    struct str token = str_of(f->settings->admin_token);
    uint8_t a[SHA256_BYTES], b[SHA256_BYTES];
    unsigned long long untold;

    if (front_is_draining(f, req))
        return false;
    sha256(shown, a); /* hash first: the time of the comparison must not reveal the length */
    sha256(token, b);
    bool good = http_listener_tag(req) == front_admin_tag ||
                (!str_is_empty(token) && ct_equal(a, b, sizeof a));
    if (!good) {
        if (front_may_log(f, &untold))
            log_warn(NULL, "%.*s refused: no admin token: from=%.*s more=%llu",
                     STR_FMT(http_path(req)), STR_FMT(http_peer(req)), untold);
        return refuse(f, req, 401, "WWW-Authenticate: Bearer\r\n", "unauthorized",
                      str_is_empty(token)
                          ? "Only the operator may, on this machine: bellhop agent. Elsewhere "
                            "admin.token must be configured."
                          : "Send the admin token: Authorization: Bearer <admin.token>.");
    }
    *ret = (struct caller){.tenant = http_header(req, "X-Bellhop-Tenant"),
                           .identity = STR("operator"),
                           .attest = true};
    return true;
}

/* ---- arguments ---- */

struct reading {          /* the arguments of one request */
    struct http_req *req; /* NULL: only the body is left of it */
    struct str body;
    const struct op *op;
    struct op_args args;
    struct str in_path[OP_PATH_MAX];
    struct form form;
    struct json_parser *parser;
    struct fault fault;
    bool bare;         /* ignore the body */
    bool all_in_body;  /* every argument is a member of the body */
    struct str tenant; /* the value of the argument `tenant`, whatever is given; absent: as given */
};

static void reading_done(struct reading *r)
{
    form_done(&r->form);
    json_parser_free(r->parser);
    fault_done(&r->fault);
}

static bool has_args_in(const struct op *op, enum op_in in)
{
    for (const struct op_arg *a = op->args; a != NULL && a->name != NULL; a++)
        if (a->in == in)
            return true;
    return false;
}

static bool misread(struct reading *r, const char *what)
{
    fault_set(&r->fault, r->op->misuse != FAULT_NONE ? r->op->misuse : FAULT_INVALID, "%s", what);
    return false;
}

static bool read_body(struct reading *r)
{
    bool lenient = r->op->signature == SIGN_OR_BARE;

    if ((!r->all_in_body && !has_args_in(r->op, IN_BODY)) || r->bare ||
        (r->op->body_may_be_empty && str_is_empty(str_trim(r->body))))
        return true;
    r->parser = json_parser_new();
    if (json_parse(r->parser, r->body, &r->args.body) && json_is_object(r->args.body))
        return true;
    r->args.body = (struct json){0};
    return lenient || misread(r, "Expected a JSON object as the body.");
}

static bool read_args(struct reading *r)
{
    struct str query = r->req != NULL ? http_raw_query(r->req) : STR_NULL, header;
    size_t n_path = 0;

    if (has_args_in(r->op, IN_QUERY) && query.p != NULL && !form_parse(&r->form, query))
        return misread(r, "The query string cannot be read.");
    for (size_t i = 0; r->op->filters != NULL && i < r->form.n; i++)
        if (!op_knows(r->op, r->form.pairs[i].name, &r->args, &r->fault))
            return false;
    if (!read_body(r))
        return false;
    for (size_t i = 0; r->op->args != NULL && r->op->args[i].name != NULL; i++) {
        const struct op_arg *a = &r->op->args[i];
        enum op_in in = r->all_in_body ? IN_BODY : a->in;
        bool ok = true;
        if (r->tenant.p != NULL && strcmp(a->name, "tenant") == 0)
            ok = op_read_text(r->op, i, r->tenant, &r->args, &r->fault);
        else if (in == IN_PATH)
            ok = op_read_text(r->op, i, r->in_path[n_path++], &r->args, &r->fault);
        else if (in == IN_HEADER && (header = http_header(r->req, a->name)).p != NULL)
            ok = op_read_text(r->op, i, header, &r->args, &r->fault);
        else if (in == IN_BODY)
            ok = op_read_json(r->op, i, json_get(r->args.body, a->name), &r->args, &r->fault);
        for (size_t k = 0; in == IN_QUERY && ok && k < r->form.n; k++)
            if (str_eq(r->form.pairs[k].name, str_of(a->name)))
                ok = op_read_text(r->op, i, r->form.pairs[k].value, &r->args, &r->fault);
        if (!ok)
            return false;
    }
    return op_args_complete(r->op, &r->args, &r->fault);
}

/* Reads the arguments and runs the handler of @c, or answers what is wrong with them. */
static void run(struct op_call *c, struct reading *r)
{
    struct front *f = c->f;

    c->args = &r->args;
    if (!read_args(r)) {
        op_fail(c, &r->fault);
        return;
    }
    if (strcmp(c->op->method, "GET") != 0 &&
        (c->op->may == MAY_OPERATOR || c->op->may == MAY_ADMIN || c->op->may == MAY_GATEWAY)) {
        bool gateway = c->op->may == MAY_GATEWAY && !c->by_operator;
        /* Changes of facts count their own entries: tenancy/change.c. */
        if (c->for_tenant && !gateway && f->audit != NULL &&
            !audit_has_room(f->audit, c->caller.tenant, NOTE_BYTES)) {
            op_error(c, 429, "rate_limited",
                     "The tenant's own changes of today fill its part of the audit log "
                     "(audit.max_size); try again tomorrow.");
            return;
        }
        enum audit_kind kind = gateway         ? AUDIT_GATEWAY
                               : c->for_tenant ? AUDIT_KEY /* its part of the log is bounded */
                               : f->peer.n > 0 ? AUDIT_ADMIN
                                               : AUDIT_OPERATOR;
        BUF_LOCAL instance = BUF_INIT;
        if (gateway)
            buf_printf(&instance, "%s/%s", c->tenant, c->instance);
        c->who = audit_who_of(kind, c->op->name, gateway ? buf_str(&instance) : c->caller.identity,
                              f->peer.n > 0 ? f->peer : STR("admin.sock"));
        audit_as(f->audit, &c->who);
        c->who = f->audit != NULL ? *audit_current(f->audit) : (struct audit_who){0};
    }
    c->op->run(c); /* frees @c, now or later */
    audit_as(f->audit, NULL);
}

void v1_run_body(struct op_call *c, struct str body)
{
    struct arena arena = ARENA_INIT;
    struct reading r = {.body = body, .op = c->op, .args.arena = &arena};

    run(c, &r);
    reading_done(&r);
    arena_done(&arena);
}

/* Without this key the call gets no answer: v1_check_keys(), op_answer_status(). */
static void note_key(struct op_call *c, struct str key_id)
{
    if (key_id.n == KEY_ID_CHARS)
        memcpy(c->key_id, key_id.p, KEY_ID_CHARS);
}

void v1_run_page(struct front *f, struct http_req *req, const struct op *op, struct str identity,
                 struct str key_id, struct str tenant)
{
    struct arena arena = ARENA_INIT;
    struct reading r = {.body = http_body(req),
                        .op = op,
                        .args.arena = &arena,
                        .all_in_body = true,
                        .tenant = tenant};
    struct op_call *c = op_call_new(f, op);

    c->id = http_req_id(req);
    c->caller = (struct caller){.tenant = tenant,
                                .identity = identity,
                                .attest = tenant.p == NULL,
                                .takes_files = true};
    c->for_tenant = tenant.p != NULL;
    note_key(c, key_id);
    f->peer = http_peer(req);
    if (op->may == MAY_GATEWAY)
        manage_name(c, r.body, tenant);
    else
        run(c, &r);
    f->peer = STR_NULL;
    reading_done(&r);
    arena_done(&arena);
}

/* ---- finding the operation ---- */

/* The path and the method of @op on one listener; a NULL path: it is not there. */
static const char *path_of(const struct op *op, bool admin, const char **ret_method)
{
    *ret_method = op->method;
    if (op->may == MAY_OPERATOR && !admin)
        return NULL;
    if (op->may != MAY_GATEWAY || !admin)
        return op->path;
    *ret_method = "POST";
    return op->operator_path;
}

static const struct op *find(struct reading *r, struct buf *allowed)
{
    bool admin = http_listener_tag(r->req) == front_admin_tag;
    struct str method = http_method(r->req);
    const char *takes;

    if (str_eq(method, STR("HEAD")))
        method = STR("GET");
    for (const struct op_family *family = op_families; family->name != NULL; family++)
        for (const struct op *op = family->ops; op->name != NULL; op++) {
            const char *path = path_of(op, admin, &takes);
            if (path == NULL || !op_match(path, http_path(r->req), r->args.arena, r->in_path))
                continue;
            if (str_eq(method, str_of(takes)))
                return op;
            buf_printf(allowed, "%s%s", allowed->n > 0 ? ", " : "", takes);
        }
    return NULL;
}

static void refuse_path(struct front *f, struct http_req *req, const char *allowed)
{
    struct buf header = BUF_INIT;
    bool v1 = str_starts(http_path(req), STR("/v1"));

    buf_printf(&header, "Allow: %s\r\n", allowed);
    if (*allowed == '\0' && v1)
        refuse(f, req, 404, NULL, "not_found",
               "There is no such operation. GET /v1/openapi.json lists them.");
    else if (*allowed == '\0')
        http_answer_error(f->server, http_req_id(req), 404, "not_found",
                          "There is nothing at this path. People open /chat, gateways dial /relay, "
                          "programs use /v1 and /mcp.");
    else if (v1)
        refuse(f, req, 405, buf_z(&header), "method_not_allowed",
               "This path does not answer to that method.");
    else
        http_answer_error(f->server, http_req_id(req), 405, "method_not_allowed",
                          "This path answers to %s only.", allowed);
    buf_done(&header);
}

/* A hook or a key may bring a trace that its dispatch goes on with. */
static void read_trace(const struct http_req *req, struct caller *who)
{
    struct str trace = http_header(req, "traceparent");

    if (caller_trace_valid(trace))
        who->trace = trace;
}

static bool admit(struct front *f, struct reading *r, struct caller *ret)
{
    bool names_agent = str_starts(str_of(r->op->path), STR("/v1/agents/{"));

    switch (r->op->may) {
    case MAY_ANYBODY:
    case MAY_OPERATOR:
        return true;
    case MAY_HOOK:
        if (!admit_hook(f, r->req, r->op, r->in_path[0], ret, &r->bare))
            return false;
        read_trace(r->req, ret);
        return true;
    case MAY_ADMIN:
        return admit_admin(f, r->req, ret);
    case MAY_REPLY:
        return admit_reply(f, r->req, r->in_path[0], ret);
    case MAY_ANYBODY_WITH_KEY:
        if (http_header(r->req, "Authorization").p == NULL)
            return true;
        break;
    default:
        break;
    }
    if (!v1_admit(f, r->req, names_agent ? r->in_path[0] : STR_NULL, ret))
        return false;
    read_trace(r->req, ret);
    return r->op->may != MAY_INSTANCE || ret->instance.p != NULL ||
           refuse(f, r->req, 403, NULL, "refused",
                  "This key acts for no instance: make one with bellhop token agent --instance.");
}

static void handle(struct front *f, struct reading *r)
{
    struct buf allowed = BUF_INIT;
    struct caller caller = {0};

    r->op = find(r, &allowed);
    if (r->op == NULL) {
        refuse_path(f, r->req, buf_z(&allowed));
    } else if (r->op->may == MAY_GATEWAY) {
        manage_enter(f, r->req, r->op);
    } else if (admit(f, r, &caller)) {
        struct op_call *c = op_call_new(f, r->op);
        c->caller = caller;
        c->caller.takes_files = true;
        note_key(c, caller.key_id);
        c->id = http_req_id(r->req);
        c->work = f->v1_work;
        f->v1_work = (struct v1_work){0};
        run(c, r);
    }
    buf_done(&allowed);
}

void v1_check_keys(struct front *f)
{
    mcp_check_keys(f->mcp);
    mailbox_check_keys(f);
    list_each (&f->op_calls, it, nxt) {
        struct op_call *c = list_entry(it, struct op_call, link);
        if (c->key_id[0] == '\0' || keys_is_good(f->keys, str_of(c->key_id)))
            continue;
        if (c->skills == NULL && c->data == NULL && c->dispatch == NULL && !c->may_end)
            continue; /* a change or a search has it: op_answer_status() looks again */
        skills_cancel(&c->skills);
        data_cancel(&c->data);
        dispatch_cancel(&c->dispatch);
        op_refuse(c, FAULT_REFUSED, "the key of this call was revoked");
    }
}

void front_ops(struct front *f, struct http_req *req)
{
    struct arena arena = ARENA_INIT;
    struct reading r = {.req = req, .body = http_body(req), .args.arena = &arena};

    f->peer = http_listener_tag(req) == front_admin_tag ? STR_NULL : http_peer(req);
    handle(f, &r);
    f->peer = STR_NULL;
    v1_give_work(f, &f->v1_work);
    reading_done(&r);
    arena_done(&arena);
}

/* ---- the server itself ---- */

static void health(struct op_call *c)
{
    struct store_stats st;
    struct db_jobs_stats ss, ds;

    c->f->store->ops->stats(c->f->store, &st);
    skills_stats(c->f->skills, &ss);
    data_stats(c->f->data, &ds);
    bool well = !c->f->draining && st.healthy && ss.healthy && ds.healthy;
    op_answer_status(c, well ? 200 : 503,
                     well ? STR("{\"status\":\"ok\"}") : STR("{\"status\":\"unavailable\"}"),
                     STR_NULL);
}

static void openapi(struct op_call *c)
{
    op_openapi(&c->out);
    op_end(c);
}

const struct op ops_server[] = {
    {"health", "GET", "/v1/health", MAY_ANYBODY_WITH_KEY, health,
     "Is the server well? With a key: is the key good?", .answer = "{status: ok|unavailable}",
     .answer_what = "503 when the server cannot write.", .faults = OP_FAULT(UNAVAILABLE)},
    {"openapi", "GET", "/v1/openapi.json", MAY_ANYBODY, openapi,
     "The OpenAPI document of these operations.", .answer = "object",
     .answer_what = "The document."},
    {0},
};
