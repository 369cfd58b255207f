/* ops_agents.c - the AgentConnector contract: /v1/agents, /v1/hooks, and the tools agent_*.
 *
 * Hooks are capability URLs for clients that send no key.  The URL decides which agent is meant;
 * the agent_id in a hook's body is the client's own name for that agent. */
#include "base/clock.h"
#include "base/jw.h"
#include "data/entry.h"
#include "dispatch/dispatch.h"
#include "http/op.h"
#include "http/v1.h"
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
    bool asks = strcmp(c->op->name, "request") == 0;
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
    if (asks && str_is_empty(op_text(c, "correlation_id")))
        jw_kstr(w, "correlation_id", str_of(id)); /* nobody waits for two answers under it */
    else
        jw_kstr_opt(w, "correlation_id", op_text(c, "correlation_id"));
    jw_end_obj(w);
    if (asks && op_value(c, "timeout_ms")->given) {
        jw_key(w, "timeout_ms");
        jw_value(w, op_value(c, "timeout_ms")->json);
    }
    jw_end_obj(w);
}

struct payload_doc { /* the payload of a tool call, as a document */
    struct json_parser *parser;
    struct buf text;
};

static struct json payload_of(struct op_call *c, struct payload_doc *doc)
{
    struct json body = op_body(c);
    struct jw w = jw_begin(&doc->text);

    if (!op_is_tool(c))
        return body;
    write_payload(c, &w);
    doc->parser = json_parser_new();
    json_parse(doc->parser, buf_str(&doc->text), &body); /* cannot fail: we wrote it */
    return body;
}

static void payload_doc_done(struct payload_doc *doc)
{
    json_parser_free(doc->parser);
    buf_done(&doc->text);
}

static void deliver(struct op_call *c)
{
    struct dispatch_who who = who_of(c);
    struct payload_doc doc = {0};

    c->dispatch =
        dispatch_deliver(c->f->dispatch, &who, agent_of(c), payload_of(c, &doc), on_answer, c);
    payload_doc_done(&doc);
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
    struct payload_doc doc = {0};

    c->dispatch = dispatch_request(c->f->dispatch, &who, agent_of(c), payload_of(c, &doc),
                                   op_text(c, "Idempotency-Key"), on_answer, c);
    payload_doc_done(&doc);
}

static void delivery(struct op_call *c)
{
    struct dispatch_who who = who_of(c);

    c->dispatch = dispatch_delivery(c->f->dispatch, &who, op_text(c, "id"), op_text(c, "agent_id"),
                                    op_text(c, "kind"), on_answer, c);
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

static void reply(struct op_call *c)
{
    struct dispatch_who who = who_of(c);
    struct dispatch_said said = {.correlation_id = op_text(c, "correlation_id"),
                                 .content = op_text(c, "content"),
                                 .final = op_flag(c, "final")};

    if (c->op->may == MAY_REPLY) {
        said.capability = op_text(c, "capability");
    } else {
        said.agent_id = op_text(c, "agent_id");
        said.dispatch_id = op_text(c, "delivery_id");
    }
    c->dispatch =
        dispatch_reply(c->f->dispatch, &who, &said, op_text(c, "Idempotency-Key"), on_answer, c);
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

/* ---- sessions ---- */

static void sessions(struct op_call *c)
{
    struct dispatch_who who = who_of(c);

    c->dispatch = dispatch_sessions(c->f->dispatch, &who, op_text(c, "id"), on_answer, c);
}

static void session_set(struct op_call *c)
{
    struct dispatch_who who = who_of(c);
    bool live = strcmp(c->op->method, "PUT") == 0;

    c->dispatch = dispatch_session_set(c->f->dispatch, &who, op_text(c, "id"),
                                       op_text(c, "session"), live, on_answer, c);
}

/* ---- agents that the operator adds ---- */

/* The tenant that the operator means; absent: the error has been sent. */
static struct str tenant_meant(struct op_call *c, struct str id)
{
    struct str tenant = op_text(c, "tenant");

    if (str_is_empty(tenant))
        tenant = c->caller.tenant;
    if (str_is_empty(tenant))
        tenant = v1_operator_tenant(c->f, id);
    if (str_is_empty(tenant) && id.p != NULL && !dispatch_has_entry(c->f->dispatch, id))
        op_refuse(c, FAULT_NOT_FOUND, "There is no agent '%.*s' with an entry.", STR_FMT(id));
    else if (str_is_empty(tenant))
        op_refuse(c, FAULT_INVALID, "Which tenant? Name it with tenant, or --tenant.");
    return tenant;
}

static struct json entry_of(const struct op_call *c)
{
    struct json entry = op_value(c, "entry")->json;

    return json_is_object(entry) ? entry : op_body(c);
}

/* Notes the entry before the change, for the audit log. */
static void begin_change(struct op_call *c, struct str tenant, struct str id)
{
    struct json_parser *parser = json_parser_new();
    BUF_LOCAL shown = BUF_INIT, entry = BUF_INIT;
    struct jw all = jw_begin(&shown), w = jw_begin(&entry);
    struct json doc;

    if (dispatch_agent_show(c->f->dispatch, tenant, id, &all) &&
        json_parse(parser, buf_str(&shown), &doc))
        jw_value(&w, json_get(doc, "entry"));
    c->tenant = str_dup(tenant);
    op_changes(c, "agent", id, buf_str(&entry));
    json_parser_free(parser);
}

static void on_agent_changed(void *ctx, const struct dispatch_answer *a)
{
    struct op_call *c = ctx;

    c->dispatch = NULL;
    if (a->fault.cls != FAULT_NONE) {
        op_fail(c, &a->fault);
        return;
    }
    op_changed(c, strcmp(c->op->name, "removeAgent") == 0 ? STR_NULL : a->json);
    buf_add_str(&c->out, a->json);
    op_done(c, BH_OK, NULL);
}

static void add_agent(struct op_call *c)
{
    struct json entry = entry_of(c);
    struct str tenant = json_str(entry, "tenant");

    if (str_is_empty(tenant))
        tenant = tenant_meant(c, STR_NULL);
    if (str_is_empty(tenant))
        return;
    begin_change(c, tenant, json_str(entry, "id"));
    c->dispatch = dispatch_agent_add(c->f->dispatch, tenant, entry, on_agent_changed, c);
}

static void set_agent(struct op_call *c)
{
    struct str id = op_text(c, "id"), tenant = tenant_meant(c, id);

    if (str_is_empty(tenant))
        return;
    begin_change(c, tenant, id);
    c->dispatch = dispatch_agent_set(c->f->dispatch, tenant, id, entry_of(c), on_agent_changed, c);
}

static void remove_agent(struct op_call *c)
{
    struct str id = op_text(c, "id"), tenant = tenant_meant(c, id);

    if (str_is_empty(tenant))
        return;
    begin_change(c, tenant, id);
    c->dispatch = dispatch_agent_remove(c->f->dispatch, tenant, id, on_agent_changed, c);
}

static void show_agent_entry(struct op_call *c)
{
    struct str id = op_text(c, "id"), tenant = tenant_meant(c, id);
    struct jw w = op_begin(c);

    if (str_is_empty(tenant))
        return;
    if (dispatch_agent_show(c->f->dispatch, tenant, id, &w))
        op_end(c);
    else
        op_refuse(c, FAULT_NOT_FOUND, "There is no agent '%.*s' with an entry.", STR_FMT(id));
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
    jw_kstr(w, "source", str_of(v->source));
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
#define TOOL_META \
    {"event_type", IN_TOOL, OP_TEXT, .what = "What kind of event this is about."}, \
    { \
        "correlation_id", IN_TOOL, OP_TEXT, .what = "Comes back with the agent's reply." \
    }
#define SAID \
    {"content", \
     IN_BODY, \
     OP_TEXT, \
     .flags = OP_REQUIRED, \
     .max = DISPATCH_CONTENT_MAX, \
     .what = "What the agent says. Several replies to one request are joined, each on a line."}, \
    { \
        "final", IN_BODY, OP_BOOL, \
            .what = "The answer is complete. Without it the answer ends after 3 s of silence." \
    }
#define SESSION \
    { \
        "session", IN_PATH, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED, .max = DISPATCH_ID_MAX, \
                                     .what = "The session's name." \
    }
#define ENTRY_ID \
    { \
        "id", IN_PATH, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED, .what = "The agent's id." \
    }
#define ENTRY_TENANT(in) \
    { \
        "tenant", in, OP_TEXT, .what = "Whose agent; needed where several tenants may be meant." \
    }
#define ENTRY \
    { \
        "entry", IN_BODY, OP_OBJECT, \
            .flags = OP_UNCHECKED, \
            .what = "The keys of an entry, as in `agents:`; they may also be the body itself." \
    }
#define DELIVERY_FAULTS \
    (OP_FAULT(DELIVERY_INVALID) | OP_FAULT(DELIVERY_UNKNOWN) | OP_FAULT(TOO_LARGE))
#define REACH_FAULTS (OP_FAULT(DELIVERY_FAILED) | OP_FAULT(DELIVERY_TIMEOUT))

const struct op ops_agents[] = {
    {"listAgents", "GET", "/v1/agents", MAY_KEY, list, "The agents this key can deliver to.",
     .answer = "[AgentDescriptor]",
     .answer_what = "In the order of the configuration, then those that were added, then the "
                    "tenant's gateways that no entry names.",
     .tool = "agent_list", .title = "List agents",
     .tool_what = "The agents that can be delivered to, and what each of them can take.",
     .reads_only = true},
    {"addAgent", "POST", "/v1/agents", MAY_ADMIN, add_agent,
     "Add an agent: an entry as in `agents:` of the configuration, for every substrate.",
     .args = (const struct op_arg[]){{"id", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED,
                                      .what = "Unique in its tenant."},
                                     {"substrate", IN_BODY, OP_TEXT, .flags = OP_UNCHECKED,
                                      .what = "How the agent is reached."},
                                     ENTRY_TENANT(IN_BODY),
                                     ENTRY,
                                     {0}},
     .answer = "object",
     .answer_what = "The entry. It is on disk and works; secrets are only named.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(CONFIGURED) | OP_FAULT(EXISTS) | OP_FAULT(REFUSED) |
               OP_FAULT(TOO_LARGE)},
    {"showAgent", "GET", "/v1/agents/{id}", MAY_ADMIN, show_agent_entry,
     "The entry of an agent, and whether it was added or is in the configuration file.",
     .args = (const struct op_arg[]){ENTRY_ID, ENTRY_TENANT(IN_QUERY), {0}},
     .answer = "{source: added|configured, entry: object}",
     .answer_what = "Secrets are only named.", .faults = OP_FAULT(NOT_FOUND)},
    {"setAgent", "PATCH", "/v1/agents/{id}", MAY_ADMIN, set_agent,
     "Change an added agent: the keys that are given; null removes one.",
     .args = (const struct op_arg[]){ENTRY_ID, ENTRY_TENANT(IN_QUERY), ENTRY, {0}},
     .answer = "object", .answer_what = "The entry as it is now.",
     .faults = OP_FAULT(INVALID) | OP_FAULT(CONFIGURED) | OP_FAULT(DELIVERY_UNKNOWN) |
               OP_FAULT(REFUSED) | OP_FAULT(TOO_LARGE)},
    {"removeAgent", "DELETE", "/v1/agents/{id}", MAY_ADMIN, remove_agent,
     "Remove an added agent. Mail that waits for it stays in its mailbox.",
     .args = (const struct op_arg[]){ENTRY_ID, ENTRY_TENANT(IN_QUERY), {0}}, .answer = "{ok: bool}",
     .answer_what = "It is gone.", .faults = OP_FAULT(CONFIGURED) | OP_FAULT(DELIVERY_UNKNOWN)},
    {"deliver", "POST", "/v1/agents/{id}/deliver", MAY_KEY, deliver,
     "Put a payload in the agent's inbox, once per dispatch_id and kind.",
     .args = (const struct op_arg[]){AGENT, PAYLOAD, TOOL_META, {0}}, .answer = "DeliveryReceipt",
     .answer_what = "The payload is on disk.", .faults = DELIVERY_FAULTS, .tool = "agent_deliver",
     .title = "Deliver to an agent",
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
                                      .min = 1, .what = "How long to wait; 30000 by default."},
                                     {"opts", IN_BODY, OP_OBJECT, .flags = OP_UNCHECKED, .tool = "",
                                      .what = "The same as an object: {timeout_ms}."},
                                     TOOL_META,
                                     IDEMPOTENCY_KEY(DISPATCH_ID_MAX),
                                     {0}},
     .answer = "Response", .answer_what = "The answer.",
     .faults = DELIVERY_FAULTS | REACH_FAULTS | OP_FAULT(TIMEOUT) | OP_FAULT(NOT_IMPLEMENTED),
     .tool = "agent_request", .title = "Ask an agent",
     .tool_what =
         "Ask another agent and wait for its answer. An agent that answers too late leaves "
         "a reply: agent_replies."},
    {"agentStatus", "GET", "/v1/agents/{id}/status", MAY_KEY, status,
     "The state of the agent, as far as its substrate knows it.",
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
     .faults = OP_FAULT(INVALID) | OP_FAULT(DELIVERY_UNKNOWN), .tool = "agent_replies",
     .title = "What an agent answered",
     .tool_what = "What an agent answered, oldest first; next is the cursor to go on from.",
     .reads_only = true},
    {"listSessions", "GET", "/v1/agents/{id}/sessions", MAY_KEY, sessions,
     "The sessions of an agent: those of its entry, those that it registered, and those it was "
     "seen "
     "in.",
     .args = (const struct op_arg[]){AGENT, {0}},
     .answer = "[{session_id: text, source: configured|registered|seen, target?: text, "
               "last_seen_at?: whole}]",
     .answer_what = "The one that was seen last comes first, behind those of the entry.",
     .faults = OP_FAULT(DELIVERY_UNKNOWN)},
    {"registerSession", "PUT", "/v1/agents/{id}/sessions/{session}", MAY_KEY, session_set,
     "Say that a session is live, with the agent's own key; again whenever it should count as "
     "seen.",
     .args = (const struct op_arg[]){AGENT, SESSION, {0}},
     .answer = "{session_id: text, source: configured|registered, last_seen_at: whole}",
     .answer_what = "It is on disk. A session that is not seen for a week is forgotten.",
     .faults = OP_FAULT(DELIVERY_UNKNOWN)},
    {"endSession", "DELETE", "/v1/agents/{id}/sessions/{session}", MAY_KEY, session_set,
     "Say that a session has ended, with the agent's own key.",
     .args = (const struct op_arg[]){AGENT, SESSION, {0}}, .answer = "{ok: bool}",
     .answer_what = "It is not listed any more, unless the entry names it.",
     .faults = OP_FAULT(NOT_FOUND) | OP_FAULT(DELIVERY_UNKNOWN)},
    {"deliveryStatus", "GET", "/v1/deliveries/{id}", MAY_KEY, delivery,
     "Where a delivery of the last day is, for the key that sent it.",
     .args = (const struct op_arg[]){{"id", IN_PATH, OP_TEXT, .flags = OP_REQUIRED | OP_FILLED,
                                      .max = DISPATCH_ID_MAX, .tool = "delivery_id",
                                      .what = "delivery_id of the receipt."},
                                     {"agent_id", IN_QUERY, OP_TEXT,
                                      .what = "Of which agent; without it, the newest delivery "
                                              "with this id."},
                                     {"kind", IN_QUERY, OP_TEXT, .one_of = "augment|template",
                                      .what = "Of which kind."},
                                     {0}},
     .answer = "Delivery", .answer_what = "Times are there as far as they are known.",
     .faults = OP_FAULT(NOT_FOUND), .tool = "delivery_status", .title = "Where a delivery is",
     .tool_what = "Whether an agent got what was delivered to it: queued, delivered, acknowledged, "
                  "answered, or refused with the reason.",
     .reads_only = true},
    {"reply", "POST", "/v1/replies", MAY_KEY, reply,
     "Answer a request, with the agent's own key; what answers no request is kept as a reply.",
     .args = (const struct op_arg[]){{"correlation_id", IN_BODY, OP_TEXT,
                                      .flags = OP_REQUIRED | OP_FILLED, .max = DISPATCH_ID_MAX,
                                      .what = "Of the request, its meta.correlation_id."},
                                     SAID,
                                     {"agent_id", IN_BODY, OP_TEXT, .flags = OP_FILLED,
                                      .what = "Which agent says it; the default is the key's, or "
                                              "the one that was asked."},
                                     {"delivery_id", IN_BODY, OP_TEXT, .max = DISPATCH_ID_MAX,
                                      .what = "Of the delivery that it answers; a request needs "
                                              "none."},
                                     IDEMPOTENCY_KEY(DISPATCH_ID_MAX),
                                     {0}},
     .answer = "{cursor: text, taken: bool}",
     .answer_what = "It is on disk. taken says whether somebody still waits for it.",
     .faults = OP_FAULT(NOT_FOUND) | OP_FAULT(DELIVERY_UNKNOWN) | OP_FAULT(TOO_LARGE),
     .tool = "agent_reply", .title = "Answer a request",
     .tool_what = "Answer a request that names a correlation_id. Say final: true with the last "
                  "part."},
    {"replyHere", "POST", "/v1/replies/{capability}", MAY_REPLY, reply,
     "Answer the request whose meta.reply_url this is. Good until a final reply, or until the "
     "request is forgotten, ten minutes after its time is over.",
     .args = (const struct op_arg[]){{"capability", IN_PATH, OP_TEXT, .flags = OP_REQUIRED,
                                      .what = "Of the URL."},
                                     {"correlation_id", IN_BODY, OP_TEXT, .max = DISPATCH_ID_MAX,
                                      .what = "If given, it must be the request's."},
                                     SAID,
                                     IDEMPOTENCY_KEY(DISPATCH_ID_MAX),
                                     {0}},
     .answer = "{cursor: text, taken: bool}",
     .answer_what = "It is on disk. taken says whether somebody still waits for it.",
     .faults = OP_FAULT(NOT_FOUND) | OP_FAULT(TOO_LARGE)},
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
