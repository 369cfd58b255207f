/* tools_agents.c - agent_*: delivering to agents as tools.
 *
 * What the runtime of a program puts into `meta` is stamped here: the caller is the key's identity,
 * and nothing in the arguments says otherwise. */
#include <stdio.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "dispatch/dispatch.h"
#include "http/front.h"
#include "http/tools.h"
#include "net/loop.h"

static struct dispatch_who who_of(struct mcp_call *c)
{
    const struct mcp_who *who = mcp_call_who(c);

    return (struct dispatch_who){.caller = who->caller, .agent = who->agent};
}

static void on_answer(void *ctx, const struct dispatch_answer *a)
{
    struct mcp_call *c = tool_call_end(ctx);

    if (a->fault.cls != FAULT_NONE)
        mcp_fail(c, &a->fault);
    else
        mcp_answer(c, a->json);
}

static void list_tool(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct dispatch_who who = who_of(c);
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    (void)args;
    dispatch_list(f->dispatch, &who, &w);
    mcp_answer(c, buf_str(&out));
    buf_done(&out);
}

static void write_uuid(struct buf *out)
{
    struct rand system = RAND_SYSTEM;
    uint8_t b[16];

    rand_bytes(&system, b, sizeof b);
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    for (size_t i = 0; i < sizeof b; i++)
        buf_printf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", b[i]);
}

static void write_meta(struct jw *w, struct front *f, struct mcp_call *c, struct json args)
{
    struct buf id = BUF_INIT;

    write_uuid(&id);
    jw_key(w, "meta");
    jw_obj(w);
    jw_kstr(w, "dispatch_id", buf_str(&id));
    jw_ki64(w, "sent_at", clock_wall_ms(loop_clock(f->loop)));
    jw_key(w, "origin");
    jw_obj(w);
    jw_kstr(w, "skill_name", mcp_call_who(c)->caller.identity);
    jw_kstr(w, "trigger_kind", STR("agent"));
    jw_kstr(w, "caller_agent_id", mcp_call_who(c)->caller.identity);
    jw_end_obj(w);
    jw_kstr_opt(w, "event_type", json_str(args, "event_type"));
    jw_kstr_opt(w, "correlation_id", json_str(args, "correlation_id"));
    jw_end_obj(w);
    buf_done(&id);
}

static void deliver_tool(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct dispatch_who who = who_of(c);
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;
    struct str agent;

    if (tool_text(c, args, "agent_id", &agent)) {
        jw_obj(&w);
        jw_kstr(&w, "kind", json_str(args, "kind"));
        jw_kstr_opt(&w, "content", json_str(args, "content"));
        jw_kstr_opt(&w, "prompt", json_str(args, "prompt"));
        jw_kstr_opt(&w, "session_id", json_str(args, "session_id"));
        write_meta(&w, f, c, args);
        jw_end_obj(&w);
        if (json_parse(parser, buf_str(&body), &doc)) { /* we wrote it */
            struct tool_call *t = tool_call_new(c);
            t->dispatch = dispatch_deliver(f->dispatch, &who, agent, doc, on_answer, t);
        }
    }
    buf_done(&body);
    json_parser_free(parser);
}

static void wake_tool(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct dispatch_who who = who_of(c);
    struct str agent;

    if (!tool_text(c, args, "agent_id", &agent))
        return;
    struct tool_call *t = tool_call_new(c);
    t->dispatch = dispatch_wake(f->dispatch, &who, agent, args, STR_NULL, on_answer, t);
}

static void status_tool(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct dispatch_who who = who_of(c);
    struct str agent;

    if (!tool_text(c, args, "agent_id", &agent))
        return;
    struct tool_call *t = tool_call_new(c);
    t->dispatch = dispatch_status(f->dispatch, &who, agent, on_answer, t);
}

#define AGENT "\"agent_id\":{\"type\":\"string\",\"description\":\"An agent, or agent@session.\"}"

const struct mcp_tool tools_agents[] = {
    {.name = "agent_list",
     .title = "List agents",
     .description = "The agents that can be delivered to, and what each of them can take.",
     .input_schema = "{\"type\":\"object\",\"properties\":{}}",
     .reads_only = true,
     .call = list_tool},
    {.name = "agent_deliver",
     .title = "Deliver to an agent",
     .description = "Put something into another agent's inbox: an augment is context to know "
                    "(content), a template a task to carry out (prompt). It is kept until the "
                    "agent takes it; nobody is woken.",
     .input_schema = "{\"type\":\"object\",\"properties\":{" AGENT
                     ",\"kind\":{\"enum\":[\"augment\",\"template\"]},"
                     "\"content\":{\"type\":\"string\"},\"prompt\":{\"type\":\"string\"},"
                     "\"session_id\":{\"type\":\"string\"},\"event_type\":{\"type\":\"string\"},"
                     "\"correlation_id\":{\"type\":\"string\"}},"
                     "\"required\":[\"agent_id\",\"kind\"]}",
     .call = deliver_tool},
    {.name = "agent_wake",
     .title = "Wake an agent",
     .description = "Ring an agent, with a context it should see first. woken says whether "
                    "somebody was really rung; else the context waits for it.",
     .input_schema =
         "{\"type\":\"object\",\"properties\":{" AGENT ",\"context\":{\"type\":\"string\"},"
         "\"when\":{\"anyOf\":[{\"const\":\"immediate\"},{\"type\":\"number\"}]},"
         "\"session_id\":{\"type\":\"string\"}},\"required\":[\"agent_id\"]}",
     .call = wake_tool},
    {.name = "agent_status",
     .title = "How an agent is",
     .description = "active, idle, asleep or unknown.",
     .input_schema = "{\"type\":\"object\",\"properties\":{" AGENT "},\"required\":[\"agent_id\"]}",
     .reads_only = true,
     .call = status_tool},
};
const size_t n_tools_agents = ARRAY_LEN(tools_agents);
