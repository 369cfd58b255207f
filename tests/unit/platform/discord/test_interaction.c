/* Promises of platform/discord/interactions.h, held against what the real gateways make of it. */
#include "../../core/vectors.h"
#include "platform/discord/interactions.h"

static void check_case(struct json c)
{
    struct str want_key = json_str(json_get(c, "august"), "session_key");
    struct str want_text = json_str(json_get(c, "august"), "text");
    struct json source = json_get(json_get(c, "august"), "source");
    struct buf key = BUF_INIT, text = BUF_INIT;
    struct discord_interaction x;
    struct event ev;

    assert_true(discord_interaction_read(json_get(c, "body"), &x));
    discord_interaction_as_forward(&x, STR("app1"), &ev);
    session_key_of_event(&key, &ev);
    assert_same(buf_str(&key), want_key);
    assert_same(ev.chat_id.p != NULL ? ev.chat_id : STR(""), json_str(source, "chat_id"));
    assert_same(ev.chat_type, json_str(source, "chat_type"));
    discord_interaction_text(&x, &text);
    if (!str_starts(buf_str(&text), STR("hp1:"))) /* a prompt's button is the gateway's to read */
        assert_same(buf_str(&text), want_text);
    buf_done(&key);
    buf_done(&text);
}

static void forwards_have_the_key_and_words_the_gateway_gives_them(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json cases = load_vectors(p, VECTORS "/discord_interaction.json");
    size_t n = 0;

    for (struct json_iter it = {0}; json_next(cases, &it);)
        if (json_is_object(json_get(it.value, "august")) &&
            json_is_object(json_get(it.value, "body"))) {
            check_case(it.value);
            n++;
        }
    assert_true(n >= 18);
    json_parser_free(p);
}

static void read(struct json_parser *p, const char *text, struct discord_interaction *ret)
{
    struct json doc;

    assert_true(json_parse(p, str_of(text), &doc));
    assert_true(discord_interaction_read(doc, ret));
}

static void as_a_message_it_has_the_key_of_one(void **state)
{
    struct json_parser *p = json_parser_new();
    struct buf key = BUF_INIT;
    struct discord_interaction x;
    struct event ev;

    read(
        p,
        "{\"type\":2,\"id\":\"1\",\"channel_id\":\"500\",\"guild_id\":\"77\",\"channel\":{\"type\":"
        "11,\"parent_id\":\"100\"},\"data\":{\"name\":\"x\"},\"member\":{\"user\":{\"id\":\"42\"}}"
        "}",
        &x);
    discord_interaction_as_message(&x, STR("app1"), STR("/x"), &ev);
    session_key_of_event(&key, &ev);
    assert_same(buf_str(&key), STR("agent:main:discord:thread:500:500"));
    assert_same(ev.parent_chat_id, STR("100"));
    assert_same(ev.route_key, STR("77"));
    buf_reset(&key);
    read(p, "{\"type\":2,\"id\":\"1\",\"channel_id\":\"900\",\"user\":{\"id\":\"42\"}}", &x);
    discord_interaction_as_message(&x, STR("app1"), STR("/x"), &ev);
    session_key_of_event(&key, &ev);
    assert_same(buf_str(&key), STR("agent:main:discord:dm:900"));
    assert_same(ev.route_key, STR("dm:42"));
    buf_done(&key);
    json_parser_free(p);
}

static void a_form_gives_its_fields_line_by_line(void **state)
{
    struct json_parser *p = json_parser_new();
    struct buf text = BUF_INIT;
    struct discord_interaction x;

    read(p,
         "{\"type\":5,\"data\":{\"components\":[{\"components\":[{\"value\":\"one\"}]},{"
         "\"component\":"
         "{\"value\":\" two \"}},{\"components\":[{\"value\":\"\"}]}]}}",
         &x);
    discord_interaction_text(&x, &text);
    assert_same(buf_str(&text), STR("one\ntwo"));
    buf_done(&text);
    json_parser_free(p);
}

static void what_is_no_interaction_is_not_read(void **state)
{
    static const char *const bad[] = {"[]", "{}", "7", "{\"type\":\"2\"}", "{\"type\":null}"};
    struct json_parser *p = json_parser_new();
    struct discord_interaction x;
    struct json doc;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_true(json_parse(p, str_of(bad[i]), &doc));
        assert_false(discord_interaction_read(doc, &x));
    }
    json_parser_free(p);
}

UNIT(platform_discord_test_interaction)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forwards_have_the_key_and_words_the_gateway_gives_them),
        cmocka_unit_test(as_a_message_it_has_the_key_of_one),
        cmocka_unit_test(a_form_gives_its_fields_line_by_line),
        cmocka_unit_test(what_is_no_interaction_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
