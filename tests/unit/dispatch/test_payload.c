/* Promises of dispatch/payload.h: what is taken, what is refused, how it is written. */
#include "unit.h"
#include "dispatch/payload.h"
#include "dispatch/agent.h"

static struct json_parser *parser;

static bool read_it(const char *text, struct payload *p, struct fault *f)
{
    struct json doc;
    assert_true(json_parse(parser, str_of(text), &doc));
    return payload_read(doc, STR("a"), p, f);
}

static void the_body_is_what_a_webhook_gets_byte_for_byte(void **state)
{
    const char *sent =
        "{\"kind\":\"template\",\"prompt\":\"do it\",\"meta\":{\"dispatch_id\":\"d\","
        "\"sent_at\":1700000000000,\"origin\":{\"skill_name\":\"s\",\"trigger_kind\":"
        "\"cron\",\"entry_skill_name\":\"root\"},\"event_type\":\"t\","
        "\"correlation_id\":\"c1\"}}";
    struct payload p;
    struct fault f = {0};
    struct buf out = BUF_INIT;

    assert_true(read_it(sent, &p, &f));
    assert_true(p.template);
    assert_str(p.correlation_id, "c1");
    payload_write_body(&out, &p, STR("a"));
    assert_memory_equal(out.p, "{\"agent_id\":\"a\",", 16);
    assert_str(str_skip(buf_str(&out), 16), sent + 1);
    buf_done(&out);
}

static void what_is_wrong_is_a_delivery_failed_error(void **state)
{
    static const char *const wrong[] = {
        "{}",
        "{\"kind\":\"binary\",\"content\":\"x\",\"meta\":{\"dispatch_id\":\"1\"}}",
        "{\"kind\":\"augment\",\"meta\":{\"dispatch_id\":\"1\"}}",
        "{\"kind\":\"augment\",\"content\":7,\"meta\":{\"dispatch_id\":\"1\"}}",
        "{\"kind\":\"template\",\"content\":\"x\",\"meta\":{\"dispatch_id\":\"1\"}}",
        "{\"kind\":\"augment\",\"content\":\"x\"}",
        "{\"kind\":\"augment\",\"content\":\"x\",\"meta\":[]}",
        "{\"kind\":\"augment\",\"content\":\"x\",\"meta\":{}}",
        "{\"kind\":\"augment\",\"content\":\"x\",\"meta\":{\"dispatch_id\":\"\"}}",
        "{\"kind\":\"augment\",\"content\":\"x\",\"meta\":{\"dispatch_id\":1}}",
        "{\"kind\":\"augment\",\"content\":\"x\",\"session_id\":\"s\\u0000\",\"meta\":"
        "{\"dispatch_id\":\"a\"}}",
    };
    struct payload p;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct fault f = {0};
        assert_false(read_it(wrong[i], &p, &f));
        assert_string_equal(fault_class_name(f.cls), "DeliveryFailedError");
        assert_true(str_contains(buf_str(&f.fields), STR("client_validation")));
        fault_done(&f);
    }
}

static void a_chat_names_agent_and_session_whatever_is_in_them(void **state)
{
    static const char *const names[] = {"perry", "ann@work", "gr\xc3\xb6\xc3\x9f/1", "a:b c%41"};
    static const char *const sessions[] = {"", "kitchen", "a@b/c", "\xe2\x82\xac"};

    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            struct buf chat = BUF_INIT, agent = BUF_INIT, session = BUF_INIT;
            struct payload p = {.skill = STR("a/b@c")};
            if (*sessions[k] != '\0')
                p.session = str_of(sessions[k]);
            payload_chat_id(&chat, &p, str_of(names[i]));
            assert_true(payload_chat_read(buf_str(&chat), &agent, &session));
            assert_string_equal(buf_z(&agent), names[i]);
            assert_string_equal(session.n > 0 ? buf_z(&session) : "", sessions[k]);
            buf_done(&chat);
            buf_done(&agent);
            buf_done(&session);
        }
}

static void other_chats_are_not_ours(void **state)
{
    static const char *const others[] = {"", "dispatch:", "dispatch:/x", "12345", "dispatch"};
    struct buf agent = BUF_INIT, session = BUF_INIT;

    for (size_t i = 0; i < 5; i++)
        assert_false(payload_chat_read(str_of(others[i]), &agent, &session));
    buf_done(&agent);
    buf_done(&session);
}

static void a_long_skill_name_does_not_make_a_long_chat(void **state)
{
    char name[5000] = "";
    struct buf a = BUF_INIT, b = BUF_INIT;
    struct payload p = {.skill = str_make(name, sizeof name)};

    memset(name, 'x', sizeof name);
    payload_chat_id(&a, &p, STR("a"));
    name[4999] = 'y';
    payload_chat_id(&b, &p, STR("a"));
    assert_true(a.n < 200);
    assert_false(str_eq(buf_str(&a), buf_str(&b)));
    buf_done(&a);
    buf_done(&b);
}

static void an_augment_says_that_it_is_context_and_a_template_is_the_prompt_as_it_is(void **state)
{
    struct recipient *r = calloc(1, sizeof *r + 1);
    struct payload p = {.text = STR("T"),
                        .skill = STR("watch\nci"),
                        .event_type = STR("red"),
                        .dispatch_id = STR("d")};
    struct payload_event e = {0};

    r->id = "a";
    payload_event(&p, r, &e);
    assert_true(str_starts(e.ev.text, STR("[context from the skill watch ci, event red]\n")));
    assert_true(str_ends(e.ev.text, STR("\n\nT")));
    assert_str(e.ev.user_id, "skill:watch ci");
    payload_event_done(&e);
    p.template = true;
    e = (struct payload_event){0};
    payload_event(&p, r, &e);
    assert_str(e.ev.text, "T");
    payload_event_done(&e);
    free(r);
}

static void a_request_is_worded_as_one(void **state)
{
    struct recipient *r = calloc(1, sizeof *r + 1);
    struct payload p = {.text = STR("T"),
                        .skill = STR("watch"),
                        .dispatch_id = STR("d"),
                        .asks = true};
    struct payload_event e = {0};

    r->id = "a";
    payload_event(&p, r, &e);
    assert_str(e.ev.text,
               "[question from the skill watch]\nThe skill waits for your answer to this.\n\nT");
    payload_event_done(&e);
    free(r);
}

#define META \
    "\"dispatch_id\":\"d\",\"sent_at\":1700000000000,\"event_type\":\"t\",\"correlation_id\":" \
    "\"c1\""
#define ORIGIN "\"skill_name\":\"s\",\"entry_skill_name\":\"root\",\"trigger_kind\":\"cron\""

static void the_whole_meta_reaches_gateways_and_panes(void **state)
{
    struct recipient *r = calloc(1, sizeof *r + 1);
    struct payload_event e = {0};
    struct payload p;
    struct fault f = {0};
    struct buf header = BUF_INIT, body = BUF_INIT;

    r->id = "a";
    assert_true(read_it("{\"kind\":\"augment\",\"content\":\"x\",\"meta\":{" META
                        ",\"kind\":1,\"origin\":{" ORIGIN "}}}",
                        &p, &f));
    payload_write_header(&header, &p, true);
    assert_string_equal(buf_z(&header),
                        "[context from the skill s, event t, trigger cron, entry skill root, sent "
                        "2023-11-14T22:13:20.000Z, correlation c1, dispatch d]");
    payload_event(&p, r, &e);
    assert_str(e.ev.dispatch,
               "{\"kind\":\"augment\",\"skill_name\":\"s\",\"trigger_kind\":\"cron\"," META
               ",\"origin\":{" ORIGIN "}}");
    payload_event_done(&e);
    p.caller = STR("ann"); /* an authenticated caller replaces the one that meta names */
    payload_write_body(&body, &p, STR("a"));
    assert_true(
        str_contains(buf_str(&body), STR(",\"origin\":{" ORIGIN ",\"caller_agent_id\":\"ann\"}}")));
    buf_done(&header);
    buf_done(&body);
    free(r);
}

static void only_a_reply_url_of_our_form_is_shown_in_a_pane(void **state)
{
    static const char *const urls[] = {"http://us/v1/replies/00ff", "http://us/v1/replies/0]\\nrun",
                                       "http://them/v1/replies/00ff"};
    struct buf text = BUF_INIT;
    struct payload p;
    struct fault f = {0};

    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        buf_reset(&text);
        buf_printf(&text,
                   "{\"kind\":\"augment\",\"content\":\"x\",\"meta\":{\"dispatch_id\":\"d\","
                   "\"reply_url\":\"%s\"}}",
                   urls[i]);
        assert_true(read_it(buf_z(&text), &p, &f));
        payload_recall_asks(&p, STR("http://us/v1/replies/"));
        assert_int_equal(p.asks, i == 0);
        buf_reset(&text);
        payload_write_header(&text, &p, true);
        assert_int_equal(strstr(buf_z(&text), "/v1/replies/") != NULL, i == 0);
        assert_null(strchr(buf_z(&text), '\n'));
    }
    buf_done(&text);
}

UNIT(dispatch_test_payload)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_body_is_what_a_webhook_gets_byte_for_byte),
        cmocka_unit_test(what_is_wrong_is_a_delivery_failed_error),
        cmocka_unit_test(a_chat_names_agent_and_session_whatever_is_in_them),
        cmocka_unit_test(other_chats_are_not_ours),
        cmocka_unit_test(a_long_skill_name_does_not_make_a_long_chat),
        cmocka_unit_test(an_augment_says_that_it_is_context_and_a_template_is_the_prompt_as_it_is),
        cmocka_unit_test(a_request_is_worded_as_one),
        cmocka_unit_test(the_whole_meta_reaches_gateways_and_panes),
        cmocka_unit_test(only_a_reply_url_of_our_form_is_shown_in_a_pane),
    };
    parser = json_parser_new();
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    json_parser_free(parser);
    return rc;
}
