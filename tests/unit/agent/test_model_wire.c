/* The promises of agent/model_wire.h. */
#include "unit.h"
#include "agent/model_wire.h"

static struct json_parser *parser;

static int setup(void **state)
{
    parser = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    json_parser_free(parser);
    return 0;
}

static void note(void *ctx, enum model_said what, struct str text)
{
    static const char *const words[] = {"alive", "id",  "text",  "paragraph",
                                        "done",  "cut", "failed"};

    buf_printf(ctx, "%s%s%.*s;", words[what], text.n > 0 ? " " : "", STR_FMT(text));
}

static void expect(enum model_api api, const char *bytes, const char *want)
{
    struct model_reader r;
    struct buf got = BUF_INIT;

    model_reader_init(&r, api, parser, note, &got);
    assert_true(model_read(&r, str_of(bytes)));
    model_read_end(&r);
    assert_string_equal(buf_z(&got), want);
    model_reader_done(&r);
    buf_done(&got);
}

static void test_chat(void **state)
{
    expect(MODEL_CHAT,
           "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\r\n\r\n"
           "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
           "data: {\"choices\":[{\"delta\":{\"content\":\"late\"}}]}\n\n",
           "text Hi;alive;done;");
    expect(MODEL_CHAT, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n", "text Hi;");
    expect(MODEL_CHAT,
           "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}",
           "text Hi;done;");
    expect(MODEL_CHAT,
           "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"length\"}]}\n\n"
           "data: [DONE]\n\n",
           "text Hi;cut length;");
    expect(MODEL_CHAT, "data: {\"error\":{\"message\":\"too long\"}}\n\n", "failed too long;");
    expect(MODEL_CHAT, "data: {\"choices\":[{\"finish_reason\":\"tool_calls\"}]}\n\n",
           "alive;failed the model called a tool, and it was offered none;");
    expect(MODEL_CHAT,
           "{\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}",
           "text Hi;done;");
    expect(MODEL_CHAT,
           "data: {\"choices\":[{\"delta\":{\"content\":null,\"refusal\":\"I will not\"}}]}\n\n"
           "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
           "text I will not;alive;done;");
    expect(MODEL_CHAT, "data: {\"choices\":[{\"delta\":{\"content\":\"Hi \\ud83d\"}}]}\n\n",
           "text Hi \xef\xbf\xbd;");
    expect(MODEL_CHAT, ": wait\n\nretry: 5\n\n", "alive;");
}

static void test_responses(void **state)
{
    expect(MODEL_RESPONSES,
           "event: response.created\n"
           "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r1\"}}\n\n"
           "data: {\"type\":\"response.output_text.delta\",\"delta\":\"One\"}\n\n"
           "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"message\"}}\n\n"
           "data: {\"type\":\"response.output_text.delta\",\"delta\":\"Two\"}\n\n"
           "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r1\",\"output\":[]}}\n\n",
           "id r1;text One;paragraph;text Two;id r1;done;");
    expect(MODEL_RESPONSES,
           "data: {\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\","
           "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}}}\n\n",
           "cut max_output_tokens;");
    expect(MODEL_RESPONSES,
           "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\","
           "\"error\":{\"message\":\"no\"}}}\n\n",
           "failed no;");
    expect(MODEL_RESPONSES, "data: {\"type\":\"error\",\"message\":\"no\"}\n\n", "failed no;");
    expect(MODEL_RESPONSES,
           "{\"object\":\"response\",\"id\":\"r\",\"status\":\"completed\",\"output\":[{\"type\":"
           "\"reasoning\"},{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":"
           "\"Hi\"}]}]}",
           "id r;text Hi;done;");
}

static void test_an_endless_event_is_refused(void **state)
{
    struct buf long_one = BUF_INIT, got = BUF_INIT;
    struct model_reader r;
    bool taken = true;

    for (size_t i = 0; i < 65536; i++)
        buf_add_c(&long_one, 'x');
    model_reader_init(&r, MODEL_CHAT, parser, note, &got);
    assert_true(model_read(&r, STR("data: ")));
    for (size_t i = 0; taken && i < 1000; i++)
        taken = model_read(&r, buf_str(&long_one));
    assert_false(taken);
    model_reader_done(&r);
    buf_done(&long_one);
    buf_done(&got);
}

UNIT(agent_test_model_wire)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_an_endless_event_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
