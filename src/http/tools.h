/* tools.h - what MCP clients can do here: tables of tools, and what their calls share.
 *
 * A tool reads its arguments, calls one module and passes its JSON on.  Who acts comes from the
 * key; an argument that says otherwise is not read.  A new family of tools is a file with a table
 * and a line in server.c.
 */
#pragma once
#include "mcp/mcp.h"

struct data_call;
struct dispatch_call;
struct front;
struct skills_call;

extern const struct mcp_tool tools_skills[], tools_data[], tools_chat[], tools_agents[];
extern const size_t n_tools_skills, n_tools_data, n_tools_chat,
    n_tools_agents; /* their ctx is the front */

struct tool_call { /* one call of a store on behalf of a tool; goes with it */
    struct mcp_call *c;
    struct skills_call *skills; /* one of them, until its callback */
    struct data_call *data;
    struct dispatch_call *dispatch;
};
/* Kept with @c: dropped when nobody waits any more. */
struct tool_call *tool_call_new(struct mcp_call *c);
/* Before the answer: the store has called back. */
struct mcp_call *tool_call_end(struct tool_call *t);
/* A text argument that must be there.  False: the refusal has been sent. */
bool tool_text(struct mcp_call *c, struct json args, const char *name, struct str *ret);
