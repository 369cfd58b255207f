/* v1_agents.c - /v1/agents: the AgentConnector contract over HTTP. */
#include "base/mem.h"
#include "dispatch/dispatch.h"
#include "http/v1.h"
#include "tenancy/keys.h"

struct dispatch_who v1_dispatch_who(const struct v1_who *who)
{
    return (struct dispatch_who){.caller = who->caller,
                                 .agent = str_of(who->key != NULL ? who->key->agent : NULL)};
}

void v1_on_dispatched(void *ctx, const struct dispatch_answer *a)
{
    struct v1_call *c = ctx;

    c->dispatch = NULL;
    if (a->fault.cls != FAULT_NONE)
        v1_fault(c->f, c->id, &a->fault);
    else
        v1_answer(c->f, c->id, 200, NULL, a->json);
    v1_call_free(c);
}

void v1_agents_list(struct v1_request *r)
{
    struct dispatch_who who = v1_dispatch_who(&r->who);
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    dispatch_list(r->f->dispatch, &who, &w);
    v1_answer(r->f, http_req_id(r->req), 200, NULL, buf_str(&body));
    buf_done(&body);
}

void v1_agents_deliver(struct v1_request *r)
{
    struct dispatch_who who = v1_dispatch_who(&r->who);
    struct json doc;
    struct json_parser *parser = v1_body(r, &doc);

    if (parser == NULL)
        return;
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    c->dispatch = dispatch_deliver(r->f->dispatch, &who, r->args[0], doc, v1_on_dispatched, c);
    json_parser_free(parser);
}

void v1_agents_wake(struct v1_request *r)
{
    struct dispatch_who who = v1_dispatch_who(&r->who);
    struct json_parser *parser = NULL;
    struct json doc = {0};

    if (!str_is_empty(str_trim(http_body(r->req))) && (parser = v1_body(r, &doc)) == NULL)
        return;
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    c->dispatch = dispatch_wake(r->f->dispatch, &who, r->args[0], doc,
                                http_header(r->req, "Idempotency-Key"), v1_on_dispatched, c);
    json_parser_free(parser);
}

void v1_agents_request(struct v1_request *r)
{
    struct dispatch_who who = v1_dispatch_who(&r->who);
    struct json doc;
    struct json_parser *parser = v1_body(r, &doc);

    if (parser == NULL)
        return;
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
    c->dispatch = dispatch_request(r->f->dispatch, &who, r->args[0], doc,
                                   http_header(r->req, "Idempotency-Key"), v1_on_dispatched, c);
    json_parser_free(parser);
}

void v1_agents_status(struct v1_request *r)
{
    struct dispatch_who who = v1_dispatch_who(&r->who);
    struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));

    c->dispatch = dispatch_status(r->f->dispatch, &who, r->args[0], v1_on_dispatched, c);
}

void v1_agents_replies(struct v1_request *r)
{
    struct dispatch_who who = v1_dispatch_who(&r->who);
    struct buf after = BUF_INIT, limit = BUF_INIT;
    bool behind = http_query(r->req, "after", &after);
    uint64_t n = 0;

    if (http_query(r->req, "limit", &limit) && (!str_to_u64(buf_str(&limit), &n) || n == 0)) {
        v1_bad(r, FAULT_INVALID, "limit must be a number above 0.");
    } else {
        struct v1_call *c = v1_call_new(r->f, http_req_id(r->req));
        c->dispatch =
            dispatch_replies(r->f->dispatch, &who, r->args[0], behind ? buf_str(&after) : STR_NULL,
                             (size_t)n, v1_on_dispatched, c);
    }
    buf_done(&after);
    buf_done(&limit);
}

/* ---- for the operator ---- */

struct showing {
    struct front *f;
    struct jw w;
};

static void show_agent(void *ctx, const struct dispatch_agent_view *v)
{
    struct showing *s = ctx;

    jw_obj(&s->w);
    jw_kstr_opt(&s->w, "tenant", v->tenant);
    jw_kstr(&s->w, "agent_id", v->id);
    jw_kstr_opt(&s->w, "agent_name", v->name);
    jw_kstr(&s->w, "substrate", v->substrate);
    jw_kstr_opt(&s->w, "target", v->target);
    jw_kstr(&s->w, "state", str_of(v->problem != NULL ? v->problem : v->state));
    jw_ki64(&s->w, "waiting", (int64_t)v->waiting);
    jw_ki64(&s->w, "parked", (int64_t)v->parked);
    jw_end_obj(&s->w);
}

void admin_agents(struct front *f, struct http_req *req)
{
    struct buf body = BUF_INIT;
    struct showing s = {.f = f, .w = jw_begin(&body)};

    jw_arr(&s.w);
    dispatch_each(f->dispatch, show_agent, &s);
    jw_end_arr(&s.w);
    front_json(f, http_req_id(req), 200, &body);
    buf_done(&body);
}
