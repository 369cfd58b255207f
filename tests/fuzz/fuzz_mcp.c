/* What a stranger with a key may send to /mcp: any bytes at all.  Every exchange is told once, and
 * what it is told is JSON; tools see objects or nothing.  The first line of an input that begins
 * with '#' has the headers: version, method, name, separated by spaces. */
#include <stdint.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rand.h"
#include "mcp/mcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct json_parser *reader;
static int told, open_sinks;
static struct buf session; /* its id */

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void sink_send(struct mcp_sink *s, struct str json)
{
    struct json doc;

    must(json.p == NULL || json_parse(reader, json, &doc));
}

static void sink_end(struct mcp_sink *s)
{
    open_sinks--;
}

static struct mcp_sink sink = {sink_send, sink_end};

static void on_reply(void *ctx, const struct mcp_reply *r)
{
    struct json doc;

    told++;
    must((r->kind == MCP_ACCEPTED || r->kind == MCP_REVOKED) == (r->json.p == NULL));
    must(r->json.p == NULL || json_parse(reader, r->json, &doc));
    must((r->kind == MCP_LISTENING) == (r->listener != NULL));
    if (r->session.p != NULL && session.n == 0)
        buf_add_str(&session, r->session);
    if (r->listener != NULL) {
        open_sinks++;
        mcp_listener_attach(r->listener, &sink);
    }
}

static void tool_say(void *ctx, const struct mcp_tool *tool, struct mcp_call *c, struct json args)
{
    must(json_type(args) == JSON_OBJECT || json_type(args) == JSON_ABSENT ||
         json_type(args) == JSON_NULL);
    struct fault fault = {0};
    fault_set(&fault, FAULT_INVALID, "\"no\"");
    if (json_count(args) % 2 == 0)
        mcp_answer(c, STR("{\"x\":[1,null]}"));
    else
        mcp_fail(c, &fault);
    fault_done(&fault);
}

static const struct mcp_tool say = {
    "say", "Say", "says", "{\"type\":\"object\"}", .reads_only = true, .call = tool_say};

static void list(void *ctx, struct mcp_call *c, struct str cursor)
{
    if (cursor.p != NULL)
        mcp_call_next(c, cursor);
    mcp_answer(c, STR("[]"));
}

static void read_one(void *ctx, struct mcp_call *c, struct str uri)
{
    struct fault none = {.cls = FAULT_NOT_FOUND};

    if (uri.n % 2 == 0)
        mcp_answer(c, STR("{}"));
    else
        mcp_fail(c, &none);
}

static bool exists(void *ctx, const struct caller *who, struct str uri)
{
    return uri.n % 2 == 0;
}

static bool readable(void *ctx, struct str tenant, struct str instance)
{
    return true;
}

static bool key_is_good(void *ctx, struct str key_id)
{
    return true;
}

static void watch(void *ctx, bool wanted)
{
}

static const struct mcp_resources resources = {"[]",     list,        read_one, exists,
                                               readable, key_is_good, watch};

static struct mcp_request read_headers(struct str *input)
{
    struct mcp_request r = {.takes_stream = true};
    struct str line;

    if (input->n == 0 || *input->p != '#' || !str_split(input, '\n', &line))
        return r;
    line = str_skip(line, 1);
    str_split(&line, ' ', &r.version);
    str_split(&line, ' ', &r.method);
    str_split(&line, ' ', &r.name);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct clock *clock;
    static struct mcp *m;
    static struct rand rand;
    const struct caller who = {.tenant = STR("t"),
                               .identity = STR("i"),
                               .key_id = STR("k"),
                               .instance = STR("bot")};
    struct str input = str_make(data, n);
    struct mcp_request r = read_headers(&input);

    if (m == NULL) {
        clock = clock_new();
        rand = rand_seeded(1);
        reader = json_parser_new();
        m = mcp_new(&(struct mcp_env){
            .clock = clock, .rand = &rand, .version = "0", .resources = &resources});
        mcp_add_tool(m, &say, NULL);
        mcp_handle(m,
                   &(struct mcp_request){
                       .who = &who,
                       .message = STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}")},
                   on_reply, NULL);
        clock_turn(clock);
    }
    told = 0;
    r.who = &who;
    r.message = input.p != NULL ? input : STR("");
    r.session = buf_str(&session);
    mcp_handle(m, &r, on_reply, NULL);
    must(told == 0);
    clock_turn(clock);
    must(told == 1);
    mcp_changed(m, STR("t"), STR("bot"), STR_NULL);
    mcp_list_changed(m, STR("t"), STR("bot"));
    clock_turn(clock);
    mcp_session_ok(m, &who, str_make(data, n));
    mcp_end_streams(m);
    must(open_sinks == 0);
    return 0;
}
