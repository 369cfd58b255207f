/* The lines of the relay wire, read and written. */
#include "core/vectors.h"
#include "base/rand.h"
#include "core/event.h"
#include "core/frame.h"

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

static struct frame read_line(struct str line)
{
    struct frame f;
    frame_read(parser, line, &f);
    return f;
}

/* ---- what is not a frame ---- */

static void nonsense_is_malformed_and_says_why(void **state)
{
    static const struct str bad[] = {
        STR("nonsense"),
        STR("{"),
        STR("}"),
        STR("{]"),
        STR("[]"),
        STR("null"),
        STR("true"),
        STR("1"),
        STR("\"x\""),
        STR("[{\"type\":\"hello\"}]"),
        STR("{\"type\":\"hello\"}}"),
        STR("{\"type\":\"hello\"} {\"type\":\"hello\"}"),
        STR("{\"type\":\"hello\",}"),
        STR("{'type':'hello'}"),
        STR("{\"type\":\"hel\nlo\"}"),
        STR("{\"type\":\"\xff\"}"),
        STR("{\"type\":\"inbound_ack\",\"bufferId\":\"b1\""),
        STR("{\"type\":\"inbound_ack\",\"bufferId\":\"b1\"}x"),
        STR("{\"type\":\"inbound_ack\",\"bufferId\":\"b1\\\"}"),
        STR("{\"type\":\"hello\",\"n\":NaN}"),
        STR("{\"type\":\"hello\",\"n\":01}"),
        STR("{\"type\":\"he\0llo\"}"),
        STR("\xef\xbb\xbf[]"),
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct frame f = read_line(bad[i]);
        if (f.type != FRAME_MALFORMED || f.why == NULL)
            fail_msg("%d for %.*s", f.type, STR_FMT(bad[i]));
    }
}

static void nesting_beyond_the_limit_is_malformed(void **state)
{
    struct buf line = BUF_INIT;

    buf_add_z(&line, "{\"type\":\"hello\",\"x\":");
    for (int i = 0; i < 100000; i++)
        buf_add_c(&line, '[');
    assert_int_equal(read_line(buf_str(&line)).type, FRAME_MALFORMED);
    for (int i = 0; i < 100000; i++)
        buf_add_c(&line, ']');
    buf_add_c(&line, '}');
    assert_int_equal(read_line(buf_str(&line)).type, FRAME_MALFORMED);
    buf_done(&line);
}

static void strange_objects_are_unknown_and_forgiven(void **state)
{
    static const char *const strange[] = {
        "{}",
        "",
        "  \r\n",
        "{\"type\":null}",
        "{\"type\":7}",
        "{\"type\":[\"hello\"]}",
        "{\"type\":\"\"}",
        "{\"type\":\"HELLO\"}",
        "{\"type\":\"hello \"}",
        "{\"type\":\"descriptor\",\"descriptor\":{}}", /* ours, not theirs */
        "{\"type\":\"inbound\",\"event\":{}}",
        "{\"kind\":\"hello\"}",
        "{\"type\":\"outbound\"}",
        "{\"type\":\"outbound\",\"requestId\":17,\"action\":{\"op\":\"send\"}}",
        "{\"type\":\"outbound\",\"requestId\":null,\"action\":{\"op\":\"send\"}}",
        "{\"type\":\"interrupt\"}",
        "{\"type\":\"interrupt\",\"session_key\":\"\"}",
        "{\"type\":\"interrupt\",\"session_key\":5}",
        "{\"type\":\"inbound_ack\"}",
        "{\"type\":\"inbound_ack\",\"bufferId\":\"\"}",
        "{\"type\": \"inbound_ack\", \"bufferId\": \"\"}",
        "{\"type\":\"inbound_ack\",\"bufferId\":5}", /* a number is not an id of ours */
        "{\"type\":\"inbound_ack\",\"bufferId\":null}",
        "{\"type\":\"inbound_ack\",\"bufferId\":[\"b1\"]}",
    };

    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        struct frame f = read_line(str_of(strange[i]));
        if (f.type != FRAME_UNKNOWN)
            fail_msg("%d for %s", f.type, strange[i]);
    }
    assert_int_equal(read_line(STR_NULL).type, FRAME_UNKNOWN);
}

static void a_request_id_longer_than_the_limit_is_not_answered(void **state)
{
    char line[400];

    for (int n = FRAME_REQUEST_ID_MAX - 1; n <= FRAME_REQUEST_ID_MAX + 1; n++) {
        int len =
            snprintf(line, sizeof line, "{\"type\":\"outbound\",\"requestId\":\"%0*d\"}", n, 7);
        assert_int_equal(read_line(str_make(line, (size_t)len)).type,
                         n <= FRAME_REQUEST_ID_MAX ? FRAME_OUTBOUND : FRAME_UNKNOWN);
    }
}

/* ---- acks ---- */

static void acks_are_read_in_every_spelling(void **state)
{
    static const struct {
        const char *line, *id;
    } table[] = {
        {"{\"type\":\"inbound_ack\",\"bufferId\":\"b1\"}", "b1"},
        {"{\"type\": \"inbound_ack\", \"bufferId\": \"b1\"}", "b1"},
        {"{\"type\": \"inbound_ack\", \"bufferId\": \"bfzzzzzzzzzzzz\"}\r", "bfzzzzzzzzzzzz"},
        {" {\"type\":\"inbound_ack\",\"bufferId\":\"b1\"}\n", "b1"},
        {"{\"bufferId\":\"b1\",\"type\":\"inbound_ack\"}", "b1"},
        {"{ \"type\" : \"inbound_ack\" , \"bufferId\" : \"b1\" , \"more\" : 1 }", "b1"},
        {"{\"type\":\"inbound_ack\",\"bufferId\":\"\\u0062\\u0031\"}", "b1"},
        {"{\"type\":\"inbound_ack\",\"bufferId\":\"a\\\"b\"}", "a\"b"},
        {"{\"type\":\"inbound_ack\",\"bufferId\":\"x\",\"bufferId2\":\"y\"}", "x"},
        {"{\"type\":\"inbound_ack\",\"bufferId\":\"Not-Ours_1\"}", "Not-Ours_1"},
        {"{\"type\":\"inbound_ack\",\"bufferId\":\"zo\xc3\xab\"}", "zo\xc3\xab"},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct frame f = read_line(str_of(table[i].line));
        if (f.type != FRAME_INBOUND_ACK)
            fail_msg("%d for %s", f.type, table[i].line);
        assert_same(f.buffer_id, str_of(table[i].id));
    }
}

/* What the parser alone makes of a line: the id of an ack, or an empty one. */
static void ack_by_parser(struct str line, struct buf *ret_id)
{
    struct json doc;

    buf_reset(ret_id);
    if (json_parse(parser, line, &doc) && str_eq(json_str(doc, "type"), STR("inbound_ack")))
        buf_add_str(ret_id, json_str(doc, "bufferId"));
}

/* One changed byte, anywhere: the short cut must see neither an ack where the parser sees none nor
 * another id. */
static void the_short_cut_for_acks_agrees_with_the_parser(void **state)
{
    static const char *const lines[] = {"{\"type\":\"inbound_ack\",\"bufferId\":\"b1f\"}",
                                        "{\"type\": \"inbound_ack\", \"bufferId\": \"b1f\"}"};
    struct buf id = BUF_INIT;

    for (int i = 0; i < 2 * 64 * 256; i++) {
        const char *origin = lines[i / (64 * 256)];
        size_t n = strlen(origin), at = (size_t)(i / 256 % 64);
        char line[64];
        if (at >= n)
            continue;
        memcpy(line, origin, n);
        line[at] = (char)(i % 256);
        ack_by_parser(str_make(line, n), &id);
        struct frame f = read_line(str_make(line, n));
        assert_int_equal(f.type == FRAME_INBOUND_ACK, id.n > 0);
        if (id.n > 0)
            assert_same(f.buffer_id, buf_str(&id));
    }
    buf_done(&id);
}

/* ---- the other frames ---- */

static void hello_names_an_identity(void **state)
{
    struct frame f = read_line(STR("{\"type\": \"hello\", \"platform\": \"discord\", "
                                   "\"botId\": \"app1\"}"));
    assert_int_equal(f.type, FRAME_HELLO);
    assert_same(f.platform, STR("discord"));
    assert_same(f.bot, STR("app1"));
    assert_null(f.manifest.doc);
    assert_false(f.late_acks);

    f = read_line(STR("{\"type\":\"hello\",\"platform\":\"discord\",\"botId\":\"\","
                      "\"command_manifest\":[{\"name\":\"new\"}],\"late_acks\":true}"));
    assert_non_null(f.manifest.doc);
    assert_true(f.late_acks);
    assert_true(f.bot.p != NULL && f.bot.n == 0);
}

static void a_hello_without_a_name_is_still_a_hello(void **state)
{
    struct frame f = read_line(STR("{\"type\":\"hello\",\"platform\":5}"));
    assert_int_equal(f.type, FRAME_HELLO);
    assert_null(f.platform.p);
    assert_null(f.bot.p);
}

static void a_send_is_read_with_its_claims(void **state)
{
    struct frame f = read_line(STR(
        "{\"type\": \"outbound\", \"requestId\": \"3bf1ac2e566b4b8a98ffd55fcbba7b36\", "
        "\"action\": {\"op\": \"send\", \"chat_id\": \"c1\", \"content\": \"hi \\ud83d\\ude00 "
        "\\u00eb\", \"reply_to\": \"m1\", \"metadata\": {\"notify\": true, \"scope_id\": \"g1\", "
        "\"guild_id\": \"g2\", \"user_id\": \"u1\", \"thread_id\": \"t1\"}}, "
        "\"platform\": \"discord\", \"botId\": \"app1\"}"));

    assert_int_equal(f.type, FRAME_OUTBOUND);
    assert_same(f.request_id, STR("3bf1ac2e566b4b8a98ffd55fcbba7b36"));
    assert_int_equal(f.action.op, ACTION_SEND);
    assert_same(f.action.chat_id, STR("c1"));
    assert_same(f.action.content, STR("hi \xf0\x9f\x98\x80 \xc3\xab"));
    assert_true(f.action.content_set);
    assert_same(f.action.reply_to, STR("m1"));
    assert_same(f.action.scope_id, STR("g1"));
    assert_same(f.action.user_id, STR("u1"));
    assert_same(f.action.thread_id, STR("t1"));
    assert_same(f.action.platform, STR("discord"));
    assert_same(f.action.bot, STR("app1"));
    assert_true(json_as_bool(json_get(f.action.metadata, "notify"), false));
}

static void half_a_surrogate_pair_costs_only_itself(void **state)
{
    static const struct str cases[][2] = {
        {STR("a\\ud83d"), STR("a\xef\xbf\xbd")},
        {STR("\\uDE00\\uD83D!"), STR("\xef\xbf\xbd\xef\xbf\xbd!")},
        {STR("\\ud83d\\ud83d\\ude00"), STR("\xef\xbf\xbd\xf0\x9f\x98\x80")},
        {STR("\\ud83d\\n\\\\ud83d"), STR("\xef\xbf\xbd\n\\ud83d")},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf line = BUF_INIT;
        buf_printf(&line,
                   "{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":\"send\","
                   "\"content\":\"%.*s\"}}",
                   STR_FMT(cases[i][0]));
        struct frame f = read_line(buf_str(&line));
        assert_int_equal(f.type, FRAME_OUTBOUND);
        assert_same(f.request_id, STR("r"));
        assert_same(f.action.content, cases[i][1]);
        buf_done(&line);
    }
    assert_int_equal(read_line(STR("{\"type\":\"\\ud83d\"")).type, FRAME_MALFORMED);
}

static void the_older_scope_name_is_read_when_the_newer_is_missing(void **state)
{
    struct frame f = read_line(STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{"
                                   "\"op\":\"send\",\"metadata\":{\"guild_id\":\"g1\"}}}"));
    assert_same(f.action.scope_id, STR("g1"));
    f = read_line(STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":\"send\","
                      "\"metadata\":{\"scope_id\":\"\",\"guild_id\":\"g1\"}}}"));
    assert_same(f.action.scope_id, STR("g1"));
}

static void an_absent_content_differs_from_an_empty_one(void **state)
{
    struct frame f = read_line(STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{"
                                   "\"op\":\"typing\",\"chat_id\":\"c\"}}"));
    assert_int_equal(f.action.op, ACTION_TYPING);
    assert_false(f.action.content_set);
    f = read_line(STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":\"typing\","
                      "\"content\":\"\"}}"));
    assert_true(f.action.content_set);
    f = read_line(STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":\"typing\","
                      "\"content\":null}}"));
    assert_false(f.action.content_set);
}

static void ids_given_as_numbers_are_not_accepted(void **state)
{
    struct frame f =
        read_line(STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{"
                      "\"op\":\"send\",\"chat_id\":100,\"reply_to\":1,\"message_id\":2,"
                      "\"content\":3,\"metadata\":{\"thread_id\":17,\"user_id\":5,"
                      "\"scope_id\":1,\"guild_id\":2}},\"botId\":9}"));
    assert_int_equal(f.type, FRAME_OUTBOUND);
    assert_null(f.action.chat_id.p);
    assert_null(f.action.reply_to.p);
    assert_null(f.action.message_id.p);
    assert_null(f.action.content.p);
    assert_null(f.action.thread_id.p);
    assert_null(f.action.user_id.p);
    assert_null(f.action.scope_id.p);
    assert_null(f.action.bot.p);
}

static void an_action_we_do_not_know_still_has_an_asker(void **state)
{
    static const char *const lines[] = {
        "{\"type\":\"outbound\",\"requestId\":\"r\"}",
        "{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":null}",
        "{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":[]}",
        "{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":7}}",
        "{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":\"juggle\",\"metadata\":[]}"
        "}",
    };

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct frame f = read_line(str_of(lines[i]));
        assert_int_equal(f.type, FRAME_OUTBOUND);
        assert_same(f.request_id, STR("r"));
        assert_int_equal(f.action.op, ACTION_UNKNOWN);
        assert_int_equal(json_type(f.action.metadata), JSON_ABSENT);
    }
    assert_same(read_line(str_of(lines[4])).action.op_name, STR("juggle"));
}

static void follow_up_interrupt_and_idle_are_read(void **state)
{
    struct frame f = read_line(STR("{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{"
                                   "\"op\":\"follow_up\",\"session_key\":\"agent:main:relay:dm:1\","
                                   "\"kind\":\"discord.interaction_token\",\"content\":\"x\"}}"));
    assert_int_equal(f.action.op, ACTION_FOLLOW_UP);
    assert_same(f.action.session_key, STR("agent:main:relay:dm:1"));
    assert_same(f.action.kind, STR("discord.interaction_token"));

    f = read_line(STR("{\"type\": \"interrupt\", \"session_key\": \"k\", \"reason\": null}"));
    assert_int_equal(f.type, FRAME_INTERRUPT);
    assert_same(f.session_key, STR("k"));
    assert_int_equal(read_line(STR("{\"type\": \"going_idle\"}")).type, FRAME_GOING_IDLE);
}

static void mutated_frames_never_crash_the_reader(void **state)
{
    static const char seed[] =
        "{\"type\":\"outbound\",\"requestId\":\"r\",\"action\":{\"op\":\"send\",\"chat_id\":\"c\","
        "\"content\":\"\\ud83d\\ude00\",\"metadata\":{\"scope_id\":\"g\",\"x\":[1,2.5,{}]}}}";
    struct rand r = rand_seeded(23);
    char line[sizeof seed];

    for (int i = 0; i < 50000; i++) {
        memcpy(line, seed, sizeof seed);
        for (uint64_t k = 0; k <= rand_below(&r, 3); k++)
            line[rand_below(&r, sizeof seed - 1)] = (char)rand_u64(&r);
        struct frame f = read_line(str_make(line, rand_below(&r, sizeof seed)));
        assert_true(f.type <= FRAME_MALFORMED);
        assert_true(utf8_valid(f.action.content));
    }
}

/* ---- writing ---- */

static void results_say_what_the_client_reads(void **state)
{
    struct buf out = BUF_INIT;

    frame_write_result(&out, STR("r1"),
                       &(struct action_result){.success = true, .message_id = STR("m2")});
    frame_write_result(&out, STR("r\"2"),
                       &(struct action_result){.error = STR(ACTION_ERROR_NOT_ROUTED)});
    frame_write_result(&out, STR("r3"), &(struct action_result){0});
    frame_write_result(&out, STR("r4"),
                       &(struct action_result){.success = true,
                                               .message_id = STR(""),
                                               .error = STR("left over"),
                                               .chat_name = STR("general"),
                                               .chat_type = STR("group")});
    frame_write_result(&out, STR("r5"),
                       &(struct action_result){.success = true, .chat_type = STR("dm")});
    assert_same(
        buf_str(&out),
        STR("{\"type\":\"outbound_result\",\"requestId\":\"r1\",\"result\":{\"success\":true,"
            "\"message_id\":\"m2\"}}\n"
            "{\"type\":\"outbound_result\",\"requestId\":\"r\\\"2\",\"result\":{\"success\":false,"
            "\"error\":\"target not routed to an onboarded tenant\"}}\n"
            "{\"type\":\"outbound_result\",\"requestId\":\"r3\",\"result\":{\"success\":false,"
            "\"error\":\"failed\"}}\n"
            "{\"type\":\"outbound_result\",\"requestId\":\"r4\",\"result\":{\"success\":true,"
            "\"chat_info\":{\"name\":\"general\",\"type\":\"group\"}}}\n"
            "{\"type\":\"outbound_result\",\"requestId\":\"r5\",\"result\":{\"success\":true,"
            "\"chat_info\":{\"type\":\"dm\"}}}\n"));
    buf_done(&out);
}

/* The client looks for these words anywhere in the text, in any case. */
static void error_words_mean_one_thing_each(void **state)
{
    assert_true(str_contains(STR(ACTION_ERROR_TRANSIENT), STR("network")));
    assert_true(str_contains(STR(ACTION_ERROR_UNKNOWN), STR("timed out")));
    assert_false(str_contains(STR(ACTION_ERROR_UNKNOWN), STR("network")));
    assert_false(str_contains(STR(ACTION_ERROR_NOT_ROUTED), STR("network")));
    assert_false(str_contains(STR(ACTION_ERROR_NOT_ROUTED), STR("timed out")));
}

static void interrupts_and_idle_acks_are_single_lines(void **state)
{
    struct buf out = BUF_INIT;

    frame_write_interrupt(&out, STR("agent:main:discord:dm:1"), STR("1"), STR_NULL);
    frame_write_interrupt(&out, STR("k\n"), STR_NULL, STR_NULL);
    frame_write_going_idle_ack(&out);
    assert_same(buf_str(&out),
                STR("{\"type\":\"interrupt_inbound\",\"session_key\":\"agent:main:discord:dm:1\","
                    "\"chat_id\":\"1\"}\n"
                    "{\"type\":\"interrupt_inbound\",\"session_key\":\"k\\n\",\"chat_id\":\"\"}\n"
                    "{\"type\":\"going_idle_ack\"}\n"));
    buf_done(&out);
}

static void a_passthrough_carries_its_forward_untouched(void **state)
{
    struct buf out = BUF_INIT;

    frame_write_passthrough(&out, STR("{\"platform\":\"discord\"}"), NULL);
    frame_write_passthrough(&out, STR("{\"platform\":\"discord\"}"), &(struct hash128){.lo = 32});
    assert_same(
        buf_str(&out),
        STR("{\"type\":\"passthrough_forward\",\"forward\":{\"platform\":\"discord\"}}\n"
            "{\"type\":\"passthrough_forward\",\"bufferId\":\"b00000000000000000000000010\","
            "\"forward\":"
            "{\"platform\":\"discord\"}}\n"));
    buf_done(&out);
}

UNIT(core_test_frame)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonsense_is_malformed_and_says_why),
        cmocka_unit_test(nesting_beyond_the_limit_is_malformed),
        cmocka_unit_test(strange_objects_are_unknown_and_forgiven),
        cmocka_unit_test(a_request_id_longer_than_the_limit_is_not_answered),
        cmocka_unit_test(acks_are_read_in_every_spelling),
        cmocka_unit_test(the_short_cut_for_acks_agrees_with_the_parser),
        cmocka_unit_test(hello_names_an_identity),
        cmocka_unit_test(a_hello_without_a_name_is_still_a_hello),
        cmocka_unit_test(a_send_is_read_with_its_claims),
        cmocka_unit_test(half_a_surrogate_pair_costs_only_itself),
        cmocka_unit_test(the_older_scope_name_is_read_when_the_newer_is_missing),
        cmocka_unit_test(an_absent_content_differs_from_an_empty_one),
        cmocka_unit_test(ids_given_as_numbers_are_not_accepted),
        cmocka_unit_test(an_action_we_do_not_know_still_has_an_asker),
        cmocka_unit_test(follow_up_interrupt_and_idle_are_read),
        cmocka_unit_test(mutated_frames_never_crash_the_reader),
        cmocka_unit_test(results_say_what_the_client_reads),
        cmocka_unit_test(error_words_mean_one_thing_each),
        cmocka_unit_test(interrupts_and_idle_acks_are_single_lines),
        cmocka_unit_test(a_passthrough_carries_its_forward_untouched),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
