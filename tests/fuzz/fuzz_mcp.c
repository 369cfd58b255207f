/* What a stranger with a key may send to /mcp: any bytes at all.  Every exchange is told once, and
 * what it is told is JSON; tools see objects or nothing. */
#include <stdint.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rand.h"
#include "mcp/mcp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct json_parser *reader;
static int told;

static void must(bool fact)
{
    if (!fact)
        abort();
}

static void on_reply(void *ctx, const struct mcp_reply *r)
{
    struct json doc;

    told++;
    must((r->kind == MCP_ACCEPTED) == (r->json.p == NULL));
    must(r->json.p == NULL || json_parse(reader, r->json, &doc));
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct clock *clock;
    static struct mcp *m;
    static struct rand rand;
    const struct caller who = {.tenant = STR("t"), .identity = STR("i"), .key_id = STR("k")};

    if (m == NULL) {
        clock = clock_new();
        rand = rand_seeded(1);
        reader = json_parser_new();
        m = mcp_new(&(struct mcp_env){.clock = clock, .rand = &rand, .version = "0"});
        mcp_add_tool(m, &say, NULL);
    }
    told = 0;
    mcp_handle(m, &(struct mcp_request){.who = &who, .message = str_make(data, n)}, on_reply, NULL);
    must(told == 0);
    clock_turn(clock);
    must(told == 1);
    mcp_session_ok(m, &who, str_make(data, n));
    return 0;
}
