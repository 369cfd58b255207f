/* What a child process may print where JSON-RPC is expected: any lines at all.  Each line we write
 * is one JSON object, every request is answered at most once, and every call ends at most once. */
#include <stdint.h>
#include <stdlib.h>
#include "base/json.h"
#include "net/jsonrpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct rig {
    struct jsonrpc *rpc;
    struct json_parser *reader;
    unsigned ends[8];
    uint64_t held; /* a ticket to answer later */
};

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void on_write(void *ctx, struct str line)
{
    struct rig *r = ctx;
    struct json doc;

    must(str_find(line, '\n') == (ptrdiff_t)line.n - 1);
    must(json_parse(r->reader, line, &doc) && json_is_object(doc));
    must(str_eq(json_str(doc, "jsonrpc"), STR("2.0")));
}

static void on_request(void *ctx, uint64_t ticket, struct str method, struct json params)
{
    struct rig *r = ctx;

    must(ticket != 0);
    jsonrpc_ticket(r->rpc, json_get(params, "requestId"));
    if (method.n % 3 == 0)
        jsonrpc_answer(r->rpc, ticket, STR("{}"));
    else if (method.n % 3 == 1)
        jsonrpc_refuse(r->rpc, ticket, JSONRPC_NO_METHOD, "no");
    else
        r->held = ticket;
}

static void on_notified(void *ctx, struct str method, struct json params)
{
    struct rig *r = ctx;

    jsonrpc_answer(r->rpc, r->held, STR("null"));
    jsonrpc_notify(r->rpc, "note", STR_NULL);
}

static void on_noise(void *ctx, struct str line, const char *why)
{
    must(why != NULL && line.n > 0);
}

static void on_done(void *ctx, const struct jsonrpc_result *end)
{
    must(++*(unsigned *)ctx == 1);
    must(end->ok || end->message.n > 0);
}

static const struct jsonrpc_ops ops = {on_write, on_request, on_notified, on_noise};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct rig r = {.reader = json_parser_new()};
    struct str rest = str_make(data, n), line;

    r.rpc = jsonrpc_new(&ops, &r);
    for (size_t i = 0; i < 8; i++)
        must(jsonrpc_call(r.rpc, "m", STR("{}"), on_done, &r.ends[i]) == i + 1);
    while (str_split(&rest, '\n', &line))
        jsonrpc_line(r.rpc, line);
    jsonrpc_free(r.rpc);
    json_parser_free(r.reader);
    return 0;
}
