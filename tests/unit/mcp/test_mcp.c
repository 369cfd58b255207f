/* Promises of mcp/mcp.h. */
#include "unit.h"
#include "base/clock.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "mcp/mcp.h"

struct rig {
    struct clock *clock;
    struct rand rand;
    struct mcp *mcp;
    struct caller who;
    struct mcp_request asks; /* its headers; who and message are filled by say() */
    struct json_parser *parser;
    struct json doc; /* the last reply */
    enum mcp_reply_kind kind;
    char session[64];
    int told;
    struct mcp_call *held; /* by the tool "hold" */
    int dropped;
    mcp_may_cb *may; /* NULL: everybody may */
    void *may_ctx;
    char args[256], identity[64]; /* what the tool "echo" saw */
};

static void on_reply(void *ctx, const struct mcp_reply *r)
{
    struct rig *t = ctx;
    t->told++;
    t->kind = r->kind;
    snprintf(t->session, sizeof t->session, "%.*s", STR_FMT(r->session));
    t->doc = (struct json){0};
    if (r->json.p != NULL)
        assert_true(json_parse(t->parser, r->json, &t->doc));
}

static void on_drop(void *mine)
{
    struct rig *t = mine;
    t->dropped++;
}

static void tool_echo(void *ctx, const struct mcp_tool *tool, struct mcp_call *c, struct json args)
{
    struct rig *t = ctx;
    struct buf seen = BUF_INIT;
    struct jw w = jw_begin(&seen);
    if (json_type(args) == JSON_OBJECT)
        jw_value(&w, args);
    snprintf(t->args, sizeof t->args, "%.*s", STR_FMT(buf_str(&seen)));
    snprintf(t->identity, sizeof t->identity, "%.*s", STR_FMT(mcp_call_who(c)->identity));
    buf_done(&seen);
    mcp_answer(c, STR("{\"said\":\"\\\"hi\\\"\"}"));
}

static void tool_hold(void *ctx, const struct mcp_tool *tool, struct mcp_call *c, struct json args)
{
    struct rig *t = ctx;
    t->held = c;
    mcp_call_keep(c, t, on_drop);
}

static void tool_fail(void *ctx, const struct mcp_tool *tool, struct mcp_call *c, struct json args)
{
    struct fault f = {0};
    fault_set(&f, FAULT_SKILL_NOT_FOUND, "Skill not found: 'x'");
    fault_field(&f, "skill_name", STR("x"));
    mcp_fail(c, &f);
    fault_done(&f);
}

static void tool_refuse(void *ctx, const struct mcp_tool *tool, struct mcp_call *c,
                        struct json args)
{
    struct fault f = {0};
    fault_set(&f, FAULT_INVALID, "name must be a text");
    mcp_fail(c, &f);
    fault_done(&f);
}

static const struct mcp_tool tools[] = {
    {"echo", "Echo", "says hi", "{\"type\":\"object\"}", .reads_only = true, .call = tool_echo},
    {"hold", NULL, "waits", "{\"type\":\"object\"}", .call = tool_hold},
    {"fail", NULL, "fails", "{\"type\":\"object\"}", .call = tool_fail},
    {"refuse", NULL, "refuses", "{\"type\":\"object\"}", .call = tool_refuse},
    {"speak", NULL, "only for instances", "{\"type\":\"object\"}", .for_instance = true,
     .call = tool_echo},
};

static void list_two(void *ctx, struct mcp_call *c, struct str cursor)
{
    struct fault f = {0};
    if (cursor.p == NULL) {
        mcp_call_next(c, STR("page 2"));
        mcp_answer(c, STR("[{\"uri\":\"x:a\",\"name\":\"a\"}]"));
    } else if (str_eq(cursor, STR("page 2"))) {
        mcp_answer(c, STR("[{\"uri\":\"x:b\",\"name\":\"b\"}]"));
    } else {
        fault_set(&f, FAULT_INVALID, "no such page");
        mcp_fail(c, &f);
    }
    fault_done(&f);
}

static void read_one(void *ctx, struct mcp_call *c, struct str uri)
{
    struct fault f = {0};
    if (str_eq(uri, STR("x:a"))) {
        mcp_answer(c, STR("{\"a\":1}"));
    } else if (str_eq(uri, STR("x:busy"))) {
        fault_set(&f, FAULT_REFUSED, "not now");
        mcp_fail(c, &f);
    } else {
        fault_set(&f, FAULT_NOT_FOUND, "no chat");
        mcp_fail(c, &f);
    }
    fault_done(&f);
}

static bool is_a(void *ctx, const struct caller *who, struct str uri)
{
    return str_eq(uri, STR("x:a"));
}

static bool always(void *ctx, struct str tenant, struct str instance)
{
    return true;
}

static bool good(void *ctx, struct str key_id)
{
    return true;
}

static void watch(void *ctx, bool wanted)
{
}

static const struct mcp_resources resources = {
    "[{\"uriTemplate\":\"x:{c}\",\"name\":\"c\"}]", list_two, read_one, is_a, always, good, watch};

static bool may(void *ctx, const struct caller *who)
{
    struct rig *t = ctx;
    return t->may == NULL || t->may(t->may_ctx, who);
}

static int setup(void **state)
{
    struct rig *t = xcalloc(1, sizeof *t);
    t->clock = clock_new();
    t->rand = rand_seeded(3);
    t->parser = json_parser_new();
    t->mcp = mcp_new(&(struct mcp_env){.clock = t->clock,
                                       .rand = &t->rand,
                                       .session_key = {1, 2, 3},
                                       .version = "9.9",
                                       .may = may,
                                       .may_ctx = t,
                                       .resources = &resources,
                                       .resources_ctx = t,
                                       .instructions = "be kind"});
    for (size_t i = 0; i < ARRAY_LEN(tools); i++)
        mcp_add_tool(t->mcp, &tools[i], t);
    t->who = (struct caller){.tenant = STR("acme"), .identity = STR("me"), .key_id = STR("key-1")};
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct rig *t = *state;
    mcp_free(t->mcp);
    json_parser_free(t->parser);
    clock_free(t->clock);
    free(t);
    return 0;
}

static void say(struct rig *t, const char *message)
{
    struct buf copy = BUF_INIT; /* what is handed in may go at once */
    buf_add_z(&copy, message);
    t->told = 0;
    t->asks.who = &t->who;
    t->asks.message = buf_str(&copy);
    mcp_handle(t->mcp, &t->asks, on_reply, t);
    if (copy.n > 0)
        memset(copy.p, 'x', copy.n);
    buf_done(&copy);
    assert_int_equal(t->told, 0); /* never inside */
    clock_turn(t->clock);
}

static struct json result(struct rig *t)
{
    assert_int_equal(t->told, 1);
    assert_int_equal(t->kind, MCP_REPLY);
    assert_str(json_str(t->doc, "jsonrpc"), "2.0");
    assert_int_equal(json_type(json_get(t->doc, "error")), JSON_ABSENT);
    return json_get(t->doc, "result");
}

static int64_t error_code(struct rig *t)
{
    int64_t code = 0;
    assert_int_equal(t->told, 1);
    assert_int_equal(json_type(json_get(t->doc, "result")), JSON_ABSENT);
    assert_true(json_as_i64(json_get(json_get(t->doc, "error"), "code"), &code));
    assert_false(str_is_empty(json_str(json_get(t->doc, "error"), "message")));
    return code;
}

static void initialize_agrees_on_a_version_both_know(void **state)
{
    struct rig *t = *state;
    static const struct {
        const char *asked, *got;
    } cases[] = {
        {"2024-11-05", "2024-11-05"},
        {"2025-03-26", "2025-03-26"},
        {"2025-06-18", "2025-06-18"},
        {"2025-11-25", "2025-11-25"},
        {"2026-07-28", MCP_NEWEST_WITH_SESSIONS},
        {"1999-01-01", MCP_NEWEST_WITH_SESSIONS},
        {"2030-01-01", MCP_NEWEST_WITH_SESSIONS},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char message[256];
        snprintf(message, sizeof message,
                 "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{"
                 "\"protocolVersion\":\"%s\",\"capabilities\":{},\"clientInfo\":{\"name\":\"t\","
                 "\"version\":\"0\"}}}",
                 cases[i].asked);
        say(t, message);
        struct json r = result(t);
        assert_str(json_str(r, "protocolVersion"), cases[i].got);
        assert_true(json_is_object(json_get(json_get(r, "capabilities"), "tools")));
        assert_str(json_str(json_get(r, "serverInfo"), "name"), "bellhop");
        assert_str(json_str(json_get(r, "serverInfo"), "version"), "9.9");
        assert_str(json_str(r, "instructions"), "be kind");
    }
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"initialize\"}");
    assert_str(json_str(result(t), "protocolVersion"), MCP_NEWEST_WITH_SESSIONS);
}

static void a_session_is_for_its_key_and_outlives_the_server(void **state)
{
    struct rig *t = *state;
    char first[64];
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}");
    strcpy(first, t->session);
    assert_true(mcp_session_ok(t->mcp, &t->who, str_of(first)));
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{}}");
    assert_string_not_equal(first, t->session);
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
    assert_string_equal(t->session, "");

    struct caller other = t->who;
    other.key_id = STR("key-2");
    assert_false(mcp_session_ok(t->mcp, &other, str_of(first)));
    for (size_t i = 0; first[i] != '\0'; i++) {
        char bent[64];
        strcpy(bent, first);
        bent[i] = bent[i] == 'A' ? 'B' : 'A';
        assert_false(mcp_session_ok(t->mcp, &t->who, str_of(bent)));
    }
    assert_false(mcp_session_ok(t->mcp, &t->who, STR("")));
    assert_false(mcp_session_ok(t->mcp, &t->who, STR_NULL));

    struct mcp *again = mcp_new(&(struct mcp_env){.clock = t->clock,
                                                  .rand = &t->rand,
                                                  .session_key = {1, 2, 3},
                                                  .version = "9.9",
                                                  .resources = &resources});
    assert_true(mcp_session_ok(again, &t->who, str_of(first)));
    mcp_free(again);

    mcp_session_end(t->mcp, str_of(first));
    mcp_session_end(t->mcp, str_of(first));
    assert_false(mcp_session_ok(t->mcp, &t->who, str_of(first)));
}

static void ended_sessions_are_remembered_within_bounds(void **state)
{
    struct rig *t = *state;
    char last[64];
    for (int i = 0; i < 10000; i++) {
        say(t, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}");
        strcpy(last, t->session);
        mcp_session_end(t->mcp, str_of(last));
    }
    assert_false(mcp_session_ok(t->mcp, &t->who, str_of(last)));
}

static void tools_are_listed_with_their_schemas_to_whom_they_are_for(void **state)
{
    struct rig *t = *state;
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}");
    struct json list = json_get(result(t), "tools");
    assert_int_equal(json_count(list), 4);
    struct json_iter it = {0};
    assert_true(json_next(list, &it));
    assert_str(json_str(it.value, "name"), "echo");
    assert_str(json_str(it.value, "title"), "Echo");
    assert_str(json_str(json_get(it.value, "inputSchema"), "type"), "object");
    assert_true(json_as_bool(json_get(json_get(it.value, "annotations"), "readOnlyHint"), false));
    say(t,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"speak\"}}");
    assert_int_equal(error_code(t), -32601);
    t->who.instance = STR("bot");
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{}}");
    assert_int_equal(json_count(json_get(result(t), "tools")), 5);
    say(t,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"speak\"}}");
    result(t);
}

static void a_result_is_json_inside_text(void **state)
{
    struct rig *t = *state;
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":\"i\\\"d\",\"method\":\"tools/call\",\"params\":{\"name\":"
           "\"echo\",\"arguments\":{\"a\":[1,\"x\"],\"identity\":\"somebody else\"}}}");
    struct json content = json_get(result(t), "content");
    assert_str(json_str(t->doc, "id"), "i\"d");
    struct json_iter it = {0};
    assert_true(json_next(content, &it));
    assert_str(json_str(it.value, "type"), "text");
    assert_str(json_str(it.value, "text"), "{\"said\":\"\\\"hi\\\"\"}");
    assert_string_equal(t->args, "{\"a\":[1,\"x\"],\"identity\":\"somebody else\"}");
    assert_string_equal(t->identity, "me");
}

static void a_failure_is_an_error_with_class_and_fields(void **state)
{
    struct rig *t = *state;
    say(t,
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"fail\"}}");
    assert_int_equal(error_code(t), -32603);
    struct json e = json_get(t->doc, "error");
    assert_str(json_str(e, "message"), "Skill not found: 'x'");
    assert_str(json_str(json_get(e, "data"), "class"), "SkillNotFoundError");
    assert_str(json_str(json_get(e, "data"), "skill_name"), "x");
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/"
           "call\",\"params\":{\"name\":\"refuse\"}}");
    assert_int_equal(error_code(t), -32602);
    assert_str(json_str(json_get(t->doc, "error"), "message"), "name must be a text");
}

static void notifications_and_responses_get_no_reply(void **state)
{
    struct rig *t = *state;
    static const char *const messages[] = {
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}",
        "{\"jsonrpc\":\"2.0\",\"id\":4,\"error\":{\"code\":1,\"message\":\"m\"}}",
        "[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"},{\"jsonrpc\":\"2.0\","
        "\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}]",
    };
    for (size_t i = 0; i < ARRAY_LEN(messages); i++) {
        say(t, messages[i]);
        assert_int_equal(t->told, 1);
        assert_int_equal(t->kind, MCP_ACCEPTED);
    }
    assert_string_equal(t->args, ""); /* a notification calls nothing */
}

static void nonsense_is_told_with_the_right_code(void **state)
{
    struct rig *t = *state;
    static const struct {
        const char *message;
        int code;
        enum mcp_reply_kind kind;
    } cases[] = {
        {"", -32700, MCP_BAD},
        {"{", -32700, MCP_BAD},
        {"nonsense", -32700, MCP_BAD},
        {"\"text\"", -32600, MCP_BAD},
        {"7", -32600, MCP_BAD},
        {"null", -32600, MCP_BAD},
        {"[]", -32600, MCP_BAD},
        {"{}", -32600, MCP_BAD},
        {"{\"id\":1,\"method\":\"ping\"}", -32600, MCP_BAD},
        {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600, MCP_BAD},
        {"{\"jsonrpc\":\"2.0\",\"id\":1}", -32600, MCP_BAD},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", -32600, MCP_BAD},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600, MCP_BAD},
        {"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", -32600, MCP_BAD},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", -32600, MCP_BAD},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[1]}", -32600, MCP_BAD},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/list\"}", -32601, MCP_REPLY},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\"}", -32602, MCP_BAD},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\"}", -32602, MCP_REPLY},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":7}}", -32602,
         MCP_REPLY},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"nope\"}}",
         -32601, MCP_REPLY},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\","
         "\"arguments\":[]}}",
         -32602, MCP_REPLY},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        say(t, cases[i].message);
        if (error_code(t) != cases[i].code || t->kind != cases[i].kind)
            fail_msg("%s: %d", cases[i].message, (int)error_code(t));
    }
}

static void a_batch_is_answered_when_its_last_call_is(void **state)
{
    struct rig *t = *state;
    say(t,
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"hold\"}},"
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"},"
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"},5,"
        "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\"}}]");
    assert_int_equal(t->told, 0);
    mcp_answer(t->held, STR("1"));
    assert_int_equal(t->told, 0);
    clock_turn(t->clock);
    assert_int_equal(t->told, 1);
    assert_int_equal(json_type(t->doc), JSON_ARRAY);
    assert_int_equal(json_count(t->doc), 4);
    struct buf many = BUF_INIT;
    buf_add_c(&many, '[');
    for (int i = 0; i <= MCP_BATCH_MAX; i++)
        buf_printf(&many, "%s{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", i ? "," : "");
    buf_add_c(&many, ']');
    say(t, buf_z(&many));
    assert_int_equal(error_code(t), -32600);
    buf_done(&many);
}

static bool three_more(void *ctx, const struct caller *who)
{
    int *left = ctx;
    assert_str(who->identity, "me");
    return (*left)-- > 0;
}

static void every_request_of_a_batch_counts(void **state)
{
    struct rig *t = *state;
    struct buf many = BUF_INIT;
    int left = 3, errors = 0;

    t->may = three_more;
    t->may_ctx = &left;
    buf_add_c(&many, '[');
    for (int i = 0; i < 8; i++)
        buf_printf(&many, "%s{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", i ? "," : "");
    buf_add_c(&many, ']');
    say(t, buf_z(&many));
    for (struct json_iter it = {0}; json_next(t->doc, &it);)
        errors += json_type(json_get(it.value, "error")) == JSON_OBJECT;
    assert_int_equal(errors, 4); /* the first, and three more */
    buf_done(&many);
}

static void nobody_is_told_once_the_server_is_gone(void **state)
{
    struct rig *t = *state;
    say(t,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"hold\"}}");
    t->asks.message = STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}");
    mcp_handle(t->mcp, &t->asks, on_reply, t);
    mcp_free(t->mcp);
    t->mcp = NULL; /* teardown */
    assert_int_equal(t->dropped, 1);
    clock_turn(t->clock);
    assert_int_equal(t->told, 0);
}

/* ---- requests of the newer era ---- */

#define META "io.modelcontextprotocol/"
#define GOOD_META \
    "\"_meta\":{\"" META "protocolVersion\":\"2026-07-28\",\"" META "clientCapabilities\":{}}"

/* @params are members of an object, with the comma behind them. */
static void ask(struct rig *t, const char *method, const char *params, const char *name)
{
    struct buf message = BUF_INIT;
    t->asks.version = STR(MCP_STATELESS);
    t->asks.method = str_of(method);
    t->asks.name = str_of(name);
    buf_printf(&message, "{\"jsonrpc\":\"2.0\",\"id\":\"n\",\"method\":\"%s\",\"params\":{%s%s}}",
               method, params, GOOD_META);
    say(t, buf_z(&message));
    buf_done(&message);
}

static void a_newer_request_needs_no_session(void **state)
{
    struct rig *t = *state;
    int64_t ttl = -1;
    t->who.instance = STR("bot");
    ask(t, "server/discover", "", NULL);
    struct json r = result(t);
    assert_string_equal(t->session, "");
    assert_str(json_str(r, "resultType"), "complete");
    struct json_iter it = {0};
    assert_true(json_next(json_get(r, "supportedVersions"), &it));
    assert_str(json_as_str(it.value), MCP_STATELESS);
    assert_str(json_str(json_get(json_get(r, "_meta"), META "serverInfo"), "name"), "bellhop");
    assert_str(json_str(r, "instructions"), "be kind");
    static const struct {
        const char *method, *params, *name, *member;
    } lists[] = {
        {"server/discover", "", NULL, "supportedVersions"},
        {"tools/list", "", NULL, "tools"},
        {"resources/list", "", NULL, "resources"},
        {"resources/templates/list", "", NULL, "resourceTemplates"},
        {"resources/read", "\"uri\":\"x:a\",", "x:a", "contents"},
    };
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        ask(t, lists[i].method, lists[i].params, lists[i].name);
        assert_int_equal(json_type(json_get(result(t), lists[i].member)), JSON_ARRAY);
        assert_true(json_as_i64(json_get(result(t), "ttlMs"), &ttl) && ttl >= 0);
        assert_str(json_str(result(t), "cacheScope"), "private");
        assert_str(json_str(result(t), "resultType"), "complete");
    }
    ask(t, "tools/call", "\"name\":\"echo\",", "echo");
    assert_str(json_str(result(t), "resultType"), "complete");
    ask(t, "tools/call", "\"name\":\"echo\",", "=?base64?ZWNobw==?=");
    assert_str(json_str(result(t), "resultType"), "complete");
}

static void what_a_newer_request_lacks_is_told(void **state)
{
    struct rig *t = *state;
#define DISCOVER "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{"
#define CALL "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{"
    static const struct {
        const char *message, *version, *method, *name;
        int code;
    } cases[] = {
        {DISCOVER "}}", "2026-07-28", "server/discover", NULL, -32602},
        {DISCOVER "}}", NULL, NULL, NULL, -32602},
        {DISCOVER "\"_meta\":{\"" META "protocolVersion\":\"2026-07-28\"}}}", "2026-07-28",
         "server/discover", NULL, -32602},
        {DISCOVER "\"_meta\":{\"" META "clientCapabilities\":{}}}}", "2026-07-28",
         "server/discover", NULL, -32602},
        {DISCOVER "\"_meta\":5}}", "2026-07-28", "server/discover", NULL, -32602},
        {DISCOVER GOOD_META "}}", NULL, "server/discover", NULL, -32020},
        {DISCOVER GOOD_META "}}", "2025-11-25", "server/discover", NULL, -32020},
        {DISCOVER GOOD_META "}}", "2026-07-28", NULL, NULL, -32020},
        {DISCOVER GOOD_META "}}", "2026-07-28", "Server/discover", NULL, -32020},
        {CALL "\"name\":\"echo\"," GOOD_META "}}", "2026-07-28", "tools/call", NULL, -32020},
        {CALL "\"name\":\"echo\"," GOOD_META "}}", "2026-07-28", "tools/call", "Echo", -32020},
        {CALL "\"name\":\"echo\"," GOOD_META "}}", "2026-07-28", "tools/call",
         "=?base64?ZWNob?=", -32020},
        {CALL "\"name\":\"echo\"," GOOD_META "}}", "2026-07-28", "tools/call",
         "=?base64?=", -32020},
        {DISCOVER "\"_meta\":{\"" META "protocolVersion\":\"2031-01-01\",\"" META
                  "clientCapabilities\":{}}}}",
         "2031-01-01", "server/discover", NULL, -32022},
        {DISCOVER "\"_meta\":{\"" META "protocolVersion\":\"2025-11-25\",\"" META
                  "clientCapabilities\":{}}}}",
         "2025-11-25", "server/discover", NULL, -32022},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", "2031-01-01", NULL, NULL, -32022},
        {"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", "2026-07-28", NULL, NULL, -32600},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        t->asks.version = str_of(cases[i].version);
        t->asks.method = str_of(cases[i].method);
        t->asks.name = str_of(cases[i].name);
        say(t, cases[i].message);
        if (error_code(t) != cases[i].code || t->kind != MCP_BAD)
            fail_msg("case %zu: %d", i, (int)error_code(t));
    }
    t->asks.version = STR("2031-01-01");
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/list\"}");
    struct json data = json_get(json_get(t->doc, "error"), "data");
    assert_str(json_str(data, "requested"), "2031-01-01");
    assert_int_equal(json_count(json_get(data, "supported")), 5);
}

static void methods_of_the_other_era_do_not_exist(void **state)
{
    struct rig *t = *state;
    static const char *const gone[] = {"initialize",          "ping",
                                       "resources/subscribe", "resources/unsubscribe",
                                       "logging/setLevel",    "nonsense"};
    for (size_t i = 0; i < ARRAY_LEN(gone); i++) {
        ask(t, gone[i], "", NULL);
        assert_int_equal(error_code(t), -32601);
        assert_int_equal(t->kind, MCP_NO_METHOD);
        assert_str(json_str(t->doc, "id"), "n");
    }
    t->asks = (struct mcp_request){.version = STR("2025-11-25")};
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscriptions/listen\"}");
    assert_int_equal(error_code(t), -32601);
    assert_int_equal(t->kind, MCP_REPLY);
}

static void since_2025_11_25_a_failed_tool_has_a_result(void **state)
{
    struct rig *t = *state;
    static const char *const tool[] = {"fail", "refuse"};
    for (size_t i = 0; i < 4; i++) {
        char message[256];
        snprintf(message, sizeof message, "\"name\":\"%s\",", tool[i % 2]);
        if (i < 2) {
            ask(t, "tools/call", message, tool[i % 2]);
        } else {
            t->asks = (struct mcp_request){.version = STR("2025-11-25")};
            snprintf(message, sizeof message,
                     "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{"
                     "\"name\":\"%s\"}}",
                     tool[i % 2]);
            say(t, message);
        }
        struct json r = result(t);
        assert_true(json_as_bool(json_get(r, "isError"), false));
        struct json_iter it = {0};
        assert_true(json_next(json_get(r, "content"), &it));
        struct str text = json_str(it.value, "text");
        assert_true(str_contains(text, i % 2 == 0 ? STR("SkillNotFoundError")
                                                  : STR("name must be a text")));
    }
    ask(t, "tools/call", "\"name\":\"nope\",", "nope");
    assert_int_equal(error_code(t), -32602);
    ask(t, "tools/call", "\"name\":\"speak\",", "speak");
    assert_int_equal(error_code(t), -32602);
}

static void resources_are_for_those_who_act_for_an_instance(void **state)
{
    struct rig *t = *state;
    static const char *const lists[] = {"resources", "resourceTemplates"};
    for (size_t i = 0; i < 2; i++) {
        ask(t, i == 0 ? "resources/list" : "resources/templates/list", "", NULL);
        assert_int_equal(json_count(json_get(result(t), lists[i])), 0);
    }
    ask(t, "resources/read", "\"uri\":\"x:a\",", "x:a");
    assert_int_equal(error_code(t), -32602);
    t->who.instance = STR("bot");
    ask(t, "resources/list", "", NULL);
    assert_int_equal(json_count(json_get(result(t), "resources")), 1);
    assert_str(json_str(result(t), "nextCursor"), "page 2");
    ask(t, "resources/list", "\"cursor\":\"page 2\",", NULL);
    assert_int_equal(json_type(json_get(result(t), "nextCursor")), JSON_ABSENT);
    ask(t, "resources/list", "\"cursor\":\"page 3\",", NULL);
    assert_int_equal(error_code(t), -32602);
    ask(t, "resources/read", "\"uri\":\"x:a\",", "x:a");
    struct json_iter it = {0};
    assert_true(json_next(json_get(result(t), "contents"), &it));
    assert_str(json_str(it.value, "uri"), "x:a");
    assert_str(json_str(it.value, "text"), "{\"a\":1}");
}

static void a_resource_that_is_not_there_has_the_code_of_its_version(void **state)
{
    struct rig *t = *state;
    t->who.instance = STR("bot");
    ask(t, "resources/read", "\"uri\":\"x:c\",", "x:c");
    assert_int_equal(error_code(t), -32602);
    assert_str(json_str(json_get(json_get(t->doc, "error"), "data"), "uri"), "x:c");
    ask(t, "resources/read", "\"uri\":\"x:busy\",", "x:busy");
    assert_int_equal(error_code(t), -32603);
    ask(t, "resources/read", "", NULL);
    assert_int_equal(error_code(t), -32602);
    t->asks = (struct mcp_request){.version = STR("2025-06-18")};
    say(t, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{\"uri\":"
           "\"x:c\"}}");
    assert_int_equal(error_code(t), -32002);
    assert_str(json_str(json_get(json_get(t->doc, "error"), "data"), "uri"), "x:c");
}

#define PROMISE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(mcp_test_mcp)
{
    const struct CMUnitTest tests[] = {
        PROMISE(initialize_agrees_on_a_version_both_know),
        PROMISE(a_session_is_for_its_key_and_outlives_the_server),
        PROMISE(ended_sessions_are_remembered_within_bounds),
        PROMISE(tools_are_listed_with_their_schemas_to_whom_they_are_for),
        PROMISE(a_result_is_json_inside_text),
        PROMISE(a_failure_is_an_error_with_class_and_fields),
        PROMISE(notifications_and_responses_get_no_reply),
        PROMISE(nonsense_is_told_with_the_right_code),
        PROMISE(a_batch_is_answered_when_its_last_call_is),
        PROMISE(every_request_of_a_batch_counts),
        PROMISE(nobody_is_told_once_the_server_is_gone),
        PROMISE(a_newer_request_needs_no_session),
        PROMISE(what_a_newer_request_lacks_is_told),
        PROMISE(methods_of_the_other_era_do_not_exist),
        PROMISE(since_2025_11_25_a_failed_tool_has_a_result),
        PROMISE(resources_are_for_those_who_act_for_an_instance),
        PROMISE(a_resource_that_is_not_there_has_the_code_of_its_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
