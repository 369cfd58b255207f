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
        {"2024-11-05", "2024-11-05"}, {"2025-03-26", "2025-03-26"}, {"2025-06-18", "2025-06-18"},
        {"1999-01-01", MCP_NEWEST_WITH_SESSIONS},   {"2030-01-01", MCP_NEWEST_WITH_SESSIONS},
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

    struct mcp *again = mcp_new(&(struct mcp_env){
        .clock = t->clock, .rand = &t->rand, .session_key = {1, 2, 3}, .version = "9.9"});
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
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/list\"}", -32601, MCP_REPLY},
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
