/* The promises of agent/line.h. */
#include "unit.h"
#include "agent/line.h"
#include "bellhop/gateway.h"

static struct json_parser *parser;

static int setup(void **state)
{
    (void)state;
    parser = json_parser_new();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_parser_free(parser);
    return 0;
}

static struct order read_order(const char *line)
{
    struct order o;

    order_read(parser, str_of(line), &o);
    return o;
}

static void expect_action(const char *line, const struct bhgw_event *ev, const char *reply_to,
                          const char *want)
{
    struct buf out = BUF_INIT;
    struct order o = read_order(line);

    order_action(&out, &o, ev, str_of(reply_to));
    assert_string_equal(buf_z(&out), want);
    buf_done(&out);
}

static void a_webhook_is_a_line_with_its_chat_and_its_body(void **state)
{
    static const char *const names[] = {"content-type"}, *const values[] = {"text/plain"};
    struct bhgw_passthrough fwd = {.platform = "discord",
                                   .bot_id = "app",
                                   .method = "POST",
                                   .path = "/p",
                                   .header_names = names,
                                   .header_values = values,
                                   .n_headers = 1,
                                   .body = "{\"a\":1}",
                                   .body_bytes = 7,
                                   .buffer_id = "b1"};
    const struct bhgw_event chat = {.session_key = "k", .chat_id = "c", .user_id = "u"};
    struct buf out = BUF_INIT;

    line_forward(&out, &fwd, &chat);
    assert_string_equal(
        buf_z(&out),
        "{\"type\":\"passthrough\",\"id\":\"b1\",\"session_key\":\"k\",\"chat_id\":\"c\","
        "\"user_id\":\"u\",\"user_name\":null,\"platform\":\"discord\",\"bot_id\":\"app\","
        "\"method\":\"POST\",\"path\":\"/p\",\"headers\":[[\"content-type\",\"text/plain\"]],"
        "\"body\":\"{\\\"a\\\":1}\",\"body_b64\":null}\n");
    buf_reset(&out);
    fwd.body = "\xff\n";
    fwd.body_bytes = 2;
    line_forward(&out, &fwd, &chat);
    assert_non_null(strstr(buf_z(&out), "\"body\":null,\"body_b64\":\"/wo=\"}\n"));
    buf_done(&out);
}

static void an_order_with_half_a_surrogate_pair_is_an_order(void **state)
{
    struct order o = read_order("{\"op\":\"send\",\"content\":\"cut \\ud83d\"}");

    assert_true(str_eq(o.op, STR("send")));
    assert_true(str_eq(json_str(o.doc, "content"), STR("cut \xef\xbf\xbd")));
}

static void text_is_a_send(void **state)
{
    (void)state;
    struct order o = read_order("hello\r");
    assert_true(o.plain && order_is_answer(&o));
    assert_true(str_eq(o.op, STR("send")) && str_eq(o.text, STR("hello")));
}

static void what_only_looks_like_an_order_is_text(void **state)
{
    static const char *const lines[] = {"{",
                                        "{}",
                                        "{\"op\":1}",
                                        "[\"op\"]",
                                        "{\"op\":\"\"}",
                                        " {\"op\":\"done\"}",
                                        "{\"op\":\"done\"} x",
                                        "\"op\""};

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct order o = read_order(lines[i]);
        assert_true(o.plain);
        assert_true(str_eq(o.text, str_of(lines[i])));
    }
}

static void an_empty_line_says_nothing(void **state)
{
    (void)state;
    struct order o = read_order("");
    assert_true(o.plain && !order_is_answer(&o));
}

static void typing_and_done_are_no_answers(void **state)
{
    (void)state;
    struct order typing = read_order("{\"op\":\"typing\"}");
    assert_false(order_is_answer(&typing) || typing.done);
    struct order done =
        read_order("{\"op\":\"done\"}"); /* the first is gone with its parser's bytes */
    assert_true(done.done && !order_is_answer(&done));
    struct order both = read_order("{\"op\":\"edit\",\"content\":\"x\",\"done\":true}");
    assert_true(both.done && order_is_answer(&both));
}

static void an_action_knows_its_chat_and_what_it_answers(void **state)
{
    struct bhgw_event ev = {.chat_id = "c1",
                            .session_key = "k1",
                            .answer_metadata = "{\"thread_id\":\"t\",\"user_id\":\"u\"}"};

    (void)state;
    expect_action("hi", &ev, "m1",
                  "{\"op\":\"send\",\"content\":\"hi\",\"chat_id\":\"c1\",\"reply_to\":\"m1\","
                  "\"metadata\":{\"thread_id\":\"t\",\"user_id\":\"u\"}}");
    expect_action("{\"op\":\"send\",\"content\":\"x\",\"reply_to\":null,\"ref\":\"r\",\"id\":\"i\","
                  "\"session_key\":\"k\",\"metadata\":{\"thread_id\":\"z\"}}",
                  &ev, "m1",
                  "{\"op\":\"send\",\"content\":\"x\",\"reply_to\":null,\"chat_id\":\"c1\","
                  "\"metadata\":{\"thread_id\":\"z\",\"user_id\":\"u\"}}");
    expect_action("{\"op\":\"follow_up\",\"kind\":\"d\",\"content\":\"x\"}", &ev, "m1",
                  "{\"op\":\"follow_up\",\"kind\":\"d\",\"content\":\"x\",\"session_key\":\"k1\","
                  "\"metadata\":{\"thread_id\":\"t\",\"user_id\":\"u\"}}");
}

static void only_the_last_message_of_a_turn_is_marked(void **state)
{
    struct bhgw_event ev = {.chat_id = "c", .answer_metadata = "{\"notify\":true}"};

    (void)state;
    expect_action("{\"op\":\"edit\",\"content\":\"x\"}", &ev, NULL,
                  "{\"op\":\"edit\",\"content\":\"x\",\"chat_id\":\"c\",\"metadata\":{}}");
    expect_action(
        "{\"op\":\"edit\",\"content\":\"x\",\"done\":true}", &ev, NULL,
        "{\"op\":\"edit\",\"content\":\"x\",\"chat_id\":\"c\",\"metadata\":{\"notify\":true}}");
}

static void an_op_we_do_not_know_travels_as_it_is(void **state)
{
    (void)state;
    expect_action("{\"op\":\"react\",\"emoji\":\"+1\",\"chat_id\":\"c\"}", NULL, NULL,
                  "{\"op\":\"react\",\"emoji\":\"+1\",\"chat_id\":\"c\",\"metadata\":{}}");
}

static void a_message_is_one_line(void **state)
{
    struct bhgw_event ev = {.text = "a\nb\"\0c",
                            .text_bytes = 6,
                            .session_key = "k",
                            .chat_id = "c",
                            .platform = "web",
                            .chat_type = "dm",
                            .message_type = "text"};
    struct buf out = BUF_INIT;
    struct json doc;

    (void)state;
    line_message(&out, &ev, 2);
    assert_int_equal(str_find(buf_str(&out), '\n'), (ptrdiff_t)out.n - 1);
    assert_true(json_parse(parser, str_make(out.p, out.n - 1), &doc));
    assert_true(str_eq(json_str(doc, "text"), str_make("a\nb\"\0c", 6)));
    assert_int_equal(json_type(json_get(doc, "user_name")), JSON_NULL);
    buf_done(&out);
}

UNIT(agent_test_line)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_webhook_is_a_line_with_its_chat_and_its_body),
        cmocka_unit_test(an_order_with_half_a_surrogate_pair_is_an_order),
        cmocka_unit_test(text_is_a_send),
        cmocka_unit_test(what_only_looks_like_an_order_is_text),
        cmocka_unit_test(an_empty_line_says_nothing),
        cmocka_unit_test(typing_and_done_are_no_answers),
        cmocka_unit_test(an_action_knows_its_chat_and_what_it_answers),
        cmocka_unit_test(only_the_last_message_of_a_turn_is_marked),
        cmocka_unit_test(an_op_we_do_not_know_travels_as_it_is),
        cmocka_unit_test(a_message_is_one_line),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
