/* ops_agents.c - the AgentConnector contract: /v1/agents, /v1/hooks, and the tools agent_*.
 *
 * Hooks are capability URLs for clients that send no key.  The URL decides which agent is meant;
 * the agent_id in a hook's body is the client's own name for that agent. */
#include "base/clock.h"
#include "base/jw.h"
#include "data/entry.h"
#include "dispatch/dispatch.h"
#include "http/op.h"
#include "net/loop.h"

static struct dispatch_who who_of(const struct op_call *c)
{
    return (struct dispatch_who){.caller = c->caller, .any_name = c->op->may == MAY_HOOK};
}

static struct str agent_of(const struct op_call *c)
{
    return c->op->may == MAY_HOOK ? c->caller.agent : op_text(c, "id");
}

static void on_answer(void *ctx, const struct dispatch_answer *a)
{
    struct op_call *c = ctx;

    c->dispatch = NULL;
    if (a->fault.cls != FAULT_NONE)
        op_fail(c, &a->fault);
    else
        op_answer(c, a->json);
}

static void list(struct op_call *c)
{
    struct dispatch_who who = who_of(c);
    struct jw w = op_begin(c);

    dispatch_list(c->f->dispatch, &who, &w);
    op_end(c);
}

/* The payload of a tool call.  bellhop adds the meta that a program's runtime would add.  The key
 * alone decides the caller's identity; no argument changes it. */
static void write_payload(struct op_call *c, struct jw *w)
{
    static const char *const texts[] = {"content", "prompt", "session_id"};
    uint8_t uuid[DATA_UUID_BYTES];
    char id[DATA_UUID_TEXT];

    data_uuid_make(uuid);
    data_uuid_text(uuid, id);
    jw_obj(w);
    jw_kstr(w, "kind", op_text(c, "kind"));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        jw_kstr_opt(w, texts[i], op_text(c, texts[i]));
    jw_kobj(w, "meta");
    jw_kstr(w, "dispatch_id", str_of(id));
    jw_ki64(w, "sent_at", clock_wall_ms(loop_clock(c->f->loop)));
    jw_kobj(w, "origin");
    jw_kstr(w, "skill_name", c->caller.identity);
    jw_kstr(w, "trigger_kind", STR("agent"));
    jw_kstr(w, "caller_agent_id", c->caller.identity);
    jw_end_obj(w);
    jw_kstr_opt(w, "event_type", op_text(c, "event_type"));
    jw_kstr_opt(w, "correlation_id", op_text(c, "correlation_id"));
    jw_end_obj(w);
    jw_end_obj(w);
}

static void deliver(struct op_call *c)
{
    struct dispatch_who who = who_of(c);
    struct json_parser *parser = NULL;
    struct json body = op_body(c);
    struct buf stamped = BUF_INIT;
    struct jw w = jw_begin(&stamped);

    if (op_is_tool(c)) {
        write_payload(c, &w);
        parser = json_parser_new();
        json_parse(parser, buf_str(&stamped), &body); /* cannot fail: we wrote it */
    }
    c->dispatch = dispatch_deliver(c->f->dispatch, &who, agent_of(c), body, on_answer, c);
    json_parser_free(parser);
    buf_done(&stamped);
}

static void wake(struct op_call *c)
{
    struct dispatch_who who = who_of(c);
    struct str key = c->op->may == MAY_HOOK ? STR_NULL : op_text(c, "Idempotency-Key");

    c->dispatch = dispatch_wake(c->f->dispatch, &who, agent_of(c), op_body(c), key, on_answer, c);
}

static void request(struct op_call *c)
{
    struct dispatch_who who = who_of(c);

    c->dispatch = dispatch_request(c->f->dispatch, &who, agent_of(c), op_body(c),
                                   op_text(c, "Idempotency-Key"), on_answer, c);
}

static void status(struct op_call *c)
{
    struct dispatch_who who = who_of(c);

    c->dispatch = dispatch_status(c->f->dispatch, &who, agent_of(c), on_answer, c);
}

static void replies(struct op_call *c)
{
    struct dispatch_who who = who_of(c);

    c->dispatch = dispatch_replies(c->f->dispatch, &who, agent_of(c), op_text(c, "after"),
                                   (size_t)op_value(c, "limit")->number, on_answer, c);
}

/* The client of a hook learns only whether the agent exists. */
static void on_hook_status(void *ctx, const struct dispatch_answer *a)
{
    struct op_call *c = ctx;
    bool well = a->fault.cls == FAULT_NONE;

    c->dispatch = NULL;
    op_answer_status(c, well ? 200 : 503, well ? a->json : STR("{\"status\":\"unknown\"}"),
                     STR_NULL);
}

static void hook_status(struct op_call *c)
{
    struct dispatch_who who = who_of(c);

    c->dispatch = dispatch_status(c->f->dispatch, &who, agent_of(c), on_hook_status, c);
}

/* ---- for the operator: GET /admin/agents ---- */

static void show_agent(void *ctx, const struct dispatch_agent_view *v)
{
    struct jw *w = ctx;

    jw_obj(w);
    jw_kstr_opt(w, "tenant", v->tenant);
    jw_kstr(w, "agent_id", v->id);
    jw_kstr_opt(w, "agent_name", v->name);
    jw_kstr(w, "substrate", v->substrate);
    jw_kstr_opt(w, "target", v->target);
    jw_kstr(w, "state", str_of(v->problem != NULL ? v->problem : v->state));
    jw_ki64(w, "waiting", (int64_t)v->waiting);
    jw_ki64(w, "parked", (int64_t)v->parked);
    jw_end_obj(w);
}

static void show_agents(struct op_call *c)
{
    struct jw w = op_begin(c);

    jw_arr(&w);
    dispatch_each(c->f->dispatch, show_agent, &w);
    jw_end_arr(&w);
    op_end(c);
}

/* ---- the table ---- */

#define AGENT \
    { \
        "id", IN_PATH, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED, .tool = "agent_id", \
                                .what = "An agent, or agent@session." \
    }
#define CAPABILITY \
    { \
        "capability", IN_PATH, OP_TEXT, .flags = OP_REQUIRED, \
                                        .what = "Of a URL that `bellhop dispatch hook` printed." \
    }
#define IDEMPOTENCY_KEY(bytes) \
    { \
        "Idempotency-Key", IN_HEADER, OP_TEXT, \
            .max = (bytes), .what = "A call with the same key within a day is done once." \
    }
#define PAYLOAD \
    {"kind", \
     IN_BODY, \
     OP_TEXT, \
     .flags = OP_REQUIRED | OP_UNCHECKED, \
     .one_of = "augment|template", \
     .what = "augment: context to know. template: a task to carry out."}, \
        {"content", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED, .what = "Of an augment."}, \
        {"prompt", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED, .what = "Of a template."}, \
        {"session_id", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED, .what = "The agent's session."}, \
    { \
        "meta", IN_BODY, OP_OBJECT, \
            .flags = OP_REQUIRED | OP_UNCHECKED, .schema = "Meta", .tool = "", \
            .what = "Where it comes from; a dispatch_id is delivered once." \
    }
#define WAKE_OPTIONS \
    {"context", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED, .what = "What the agent should see."}, \
        {"when", \
         IN_BODY, \
         OP_OTHER, \
         .flags = OP_UNCHECKED, \
         .schema = "immediate|number", \
         .what = "immediate, or a time in unix milliseconds."}, \
    { \
        "session_id", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED, .what = "The agent's session." \
    }
#define DELIVERY_FAULTS \
    (OP_FAULT(DELIVERY_INVALID) | OP_FAULT(DELIVERY_UNKNOWN) | OP_FAULT(TOO_LARGE))
#define REACH_FAULTS (OP_FAULT(DELIVERY_FAILED) | OP_FAULT(DELIVERY_TIMEOUT))

const struct op ops_agents[] = {
    {"listAgents", "GET", "/v1/agents", MAY_KEY, list, "The agents this key can deliver to.",
     .answer = "[AgentDescriptor]", .answer_what = "In the order of the configuration.",
     .tool = "agent_list", .title = "List agents",
     .tool_what = "The agents that can be delivered to, and what each of them can take.",
     .reads_only = true},
    {"deliver", "POST", "/v1/agents/{id}/deliver", MAY_KEY, deliver,
     "Put a payload in the agent's inbox, once per dispatch_id and kind.",
     .args = (const struct op_arg[]){AGENT,
                                     PAYLOAD,
                                     {"event_type", IN_TOOL, OP_TEXT,
                                      .what = "What kind of event this is about."},
                                     {"correlation_id", IN_TOOL, OP_TEXT,
                                      .what = "Comes back with the agent's reply."},
                                     {0}},
     .answer = "DeliveryReceipt", .answer_what = "The payload is on disk.",
     .faults = DELIVERY_FAULTS, .tool = "agent_deliver", .title = "Deliver to an agent",
     .tool_what = "Put something into another agent's inbox: an augment is context to know "
                  "(content), a template a task to carry out (prompt). It is kept until the "
                  "agent takes it; nobody is woken."},
    {"wake", "POST", "/v1/agents/{id}/wake", MAY_KEY, wake,
     "Ring the agent; where that cannot be done, leave it the context.", .body_may_be_empty = true,
     .args =
         (const struct op_arg[]){AGENT, WAKE_OPTIONS, IDEMPOTENCY_KEY(DISPATCH_WAKE_KEY_MAX), {0}},
     .answer = "WakeReceipt", .answer_what = "woken says whether somebody was rung.",
     .faults = DELIVERY_FAULTS | REACH_FAULTS, .tool = "agent_wake", .title = "Wake an agent",
     .tool_what = "Ring an agent, with a context it should see first. woken says whether "
                  "somebody was really rung; else the context waits for it."},
    {"request", "POST", "/v1/agents/{id}/request", MAY_KEY, request,
     "Deliver a payload with meta.correlation_id and wait for the answer to it.",
     .args = (const struct op_arg[]){AGENT,
                                     PAYLOAD,
                                     {"timeout_ms", IN_BODY, OP_WHOLE, .flags = OP_UNCHECKED,
                                      .min = 1, .what = "How long to wait."},
                                     {"opts", IN_BODY, OP_OBJECT, .flags = OP_UNCHECKED,
                                      .what = "The same as an object: {timeout_ms}."},
                                     IDEMPOTENCY_KEY(DISPATCH_ID_MAX),
                                     {0}},
     .answer = "Response", .answer_what = "The answer.",
     .faults = DELIVERY_FAULTS | REACH_FAULTS | OP_FAULT(TIMEOUT) | OP_FAULT(NOT_IMPLEMENTED)},
    {"agentStatus", "GET", "/v1/agents/{id}/status", MAY_KEY, status,
     "How the agent is, as far as its substrate can tell.",
     .args = (const struct op_arg[]){AGENT, {0}},
     .answer = "{status: active|idle|asleep|unknown, detail?: text}",
     .answer_what = "One word, and why the agent is not idle.",
     .faults = OP_FAULT(DELIVERY_UNKNOWN), .tool = "agent_status", .title = "How an agent is",
     .tool_what = "active, idle, asleep or unknown.", .reads_only = true},
    {"agentReplies", "GET", "/v1/agents/{id}/replies", MAY_KEY, replies,
     "What the agent answered, oldest first.",
     .args = (const struct op_arg[]){AGENT,
                                     {"after", IN_QUERY, OP_TEXT, .what = "Behind this cursor."},
                                     {"limit", IN_QUERY, OP_WHOLE, .min = 1,
                                      .what = "At most so many."},
                                     {0}},
     .answer = "{replies: [Reply], next: text}", .answer_what = "next is the cursor to go on from.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(DELIVERY_UNKNOWN)},
    {"hookDeliver", "POST", "/v1/hooks/{capability}/deliver", MAY_HOOK, deliver,
     "What a webhook client sends: the payload, flat. X-Signature where the hook has a "
     "secret: sha256=<hex HMAC-SHA256 of the body>.",
     .signature = SIGN_MUST, .args = (const struct op_arg[]){CAPABILITY, PAYLOAD, {0}},
     .answer = "DeliveryReceipt", .answer_what = "The payload is on disk.",
     .faults = DELIVERY_FAULTS},
    {"hookWake", "POST", "/v1/hooks/{capability}/wake", MAY_HOOK, wake,
     "Ring the agent of this hook. Without the signature, the context is left out.",
     .signature = SIGN_OR_BARE, .body_may_be_empty = true,
     .args = (const struct op_arg[]){CAPABILITY, WAKE_OPTIONS, {0}}, .answer = "WakeReceipt",
     .answer_what = "woken says whether somebody was rung.",
     .faults = DELIVERY_FAULTS | REACH_FAULTS},
    {"hookStatus", "GET", "/v1/hooks/{capability}/status", MAY_HOOK, hook_status,
     "Is the agent of this hook there?", .args = (const struct op_arg[]){CAPABILITY, {0}},
     .answer = "{status: active|idle|asleep|unknown, detail?: text}",
     .answer_what = "503 when there is no such agent.", .faults = OP_FAULT(UNAVAILABLE)},
    {"showAgents", "GET", "/admin/agents", MAY_OPERATOR, show_agents,
     "The agents of all tenants, and the mail that waits for each.", .answer = "[object]",
     .answer_what = "An agent without a tenant once per tenant that used it."},
    {0},
};
