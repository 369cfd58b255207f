/* tools_data.c - data_*: the data store as tools. */
#include "base/mem.h"
#include "data/data.h"
#include "http/front.h"
#include "http/tools.h"

static void on_json(void *ctx, const struct data_answer *a)
{
    struct mcp_call *c = tool_call_end(ctx);

    if (a->fault.cls != FAULT_NONE)
        mcp_fail(c, &a->fault);
    else
        mcp_answer(c, a->json); /* "null" when there is no such entry */
}

static void data_read_tool(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct str id;

    if (!tool_text(c, args, "id", &id))
        return;
    struct tool_call *t = tool_call_new(c);
    t->data = data_get(f->data, &mcp_call_who(c)->caller, id, on_json, t);
}

static void on_found(void *ctx, const struct data_answer *a)
{
    struct mcp_call *c = tool_call_end(ctx);
    struct buf out = BUF_INIT;

    if (a->fault.cls != FAULT_NONE) {
        mcp_fail(c, &a->fault);
        return;
    }
    buf_add_z(&out, "{\"items\":");
    buf_add_str(&out, a->json);
    buf_add_c(&out, '}');
    mcp_answer(c, buf_str(&out));
    buf_done(&out);
}

static void data_query_tool(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct tool_call *t = tool_call_new(c);

    t->data = data_query(f->data, &mcp_call_who(c)->caller, args, on_found, t);
}

static void on_written(void *ctx, const struct data_answer *a)
{
    struct mcp_call *c = tool_call_end(ctx);
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    if (a->fault.cls != FAULT_NONE) {
        mcp_fail(c, &a->fault);
        return;
    }
    jw_obj(&w);
    jw_kstr(&w, "id", a->id);
    jw_ki64(&w, "created_at", a->created_at);
    jw_end_obj(&w);
    mcp_answer(c, buf_str(&out));
    buf_done(&out);
}

static void data_write_tool(void *ctx, struct mcp_call *c, struct json args)
{
    struct front *f = ctx;
    struct tool_call *t = tool_call_new(c);

    t->data = data_write(f->data, &mcp_call_who(c)->caller, args, on_written, t);
}

#define TEXTS "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}"

const struct mcp_tool tools_data[] = {
    {.name = "data_read",
     .title = "Read an entry",
     .description = "One entry of the data store by its id; null when there is none.",
     .input_schema = "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"string\"}},"
                     "\"required\":[\"id\"]}",
     .reads_only = true,
     .call = data_read_tool},
    {.name = "data_query",
     .title = "Search entries",
     .description =
         "Entries that contain all the words, the best match first; without words the newest "
         "first. domain_tags keeps those with this tag, or any of these. A query that begins with "
         "raw: is SQLite FTS5 syntax.",
     .input_schema = "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\"},"
                     "\"limit\":{\"type\":\"integer\",\"minimum\":1,\"default\":10},"
                     "\"mode\":{\"enum\":[\"fts\"]},"
                     "\"domain_tags\":{\"anyOf\":[{\"type\":\"string\"}," TEXTS "]},"
                     "\"permissive_filters\":{\"type\":\"boolean\"}},\"required\":[\"query\"]}",
     .reads_only = true,
     .call = data_query_tool},
    {.name = "data_write",
     .title = "Write an entry",
     .description = "Keep a text: its first line is its summary. It stays until expires_at (unix "
                    "seconds); without one, or with null, for ever.",
     .input_schema = "{\"type\":\"object\",\"properties\":{\"content\":{\"type\":\"string\"},"
                     "\"tags\":" TEXTS ",\"recipients\":" TEXTS ","
                     "\"expires_at\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"null\"}]},"
                     "\"metadata\":{\"type\":\"object\"}},\"required\":[\"content\"]}",
     .call = data_write_tool},
};
const size_t n_tools_data = ARRAY_LEN(tools_data);
