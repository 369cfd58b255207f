/* Descriptors and the names of the actions. */
#include "core/vectors.h"
#include "core/descriptor.h"

static struct json written(struct json_parser *p, const struct descriptor *d)
{
    struct buf out = BUF_INIT;
    struct json doc;

    descriptor_write(&out, d);
    assert_true(json_parse(p, buf_str(&out), &doc));
    buf_done(&out);
    return doc;
}

static const struct descriptor telegram = {
    .platform = "telegram",
    .label = "Telegram \"the\" messenger",
    .max_message_length = 4096,
    .supports_edit = true,
    .markdown_dialect = "markdown_v2",
    .len_unit = "utf16",
    .emoji = "\xe2\x9c\x88\xef\xb8\x8f",
    .platform_hint = "short answers",
    .pii_safe = true,
    .ops = 1u << ACTION_SEND | 1u << ACTION_TYPING | 1u << ACTION_GET_CHAT_INFO,
};

static void the_nine_keys_a_gateway_needs_are_always_there(void **state)
{
    static const struct {
        const char *key;
        enum json_type type;
    } nine[] = {
        {"contract_version", JSON_NUMBER},
        {"platform", JSON_STRING},
        {"label", JSON_STRING},
        {"max_message_length", JSON_NUMBER},
        {"supports_edit", JSON_BOOL},
        {"supports_draft_streaming", JSON_BOOL},
        {"supports_threads", JSON_BOOL},
        {"markdown_dialect", JSON_STRING},
        {"len_unit", JSON_STRING},
    };
    const struct descriptor *all[] = {&descriptor_relay, &telegram};
    struct json_parser *p = json_parser_new();

    for (size_t d = 0; d < 2; d++) {
        struct json doc = written(p, all[d]);
        int64_t length = 0, version = 0;
        for (size_t i = 0; i < 9; i++)
            assert_int_equal(json_type(json_get(doc, nine[i].key)), nine[i].type);
        assert_true(json_as_i64(json_get(doc, "max_message_length"), &length) && length > 0);
        assert_true(json_as_i64(json_get(doc, "contract_version"), &version));
        assert_int_equal(version, 1);
    }
    json_parser_free(p);
}

static void threads_are_there_exactly_where_an_op_opens_them(void **state)
{
    struct json_parser *p = json_parser_new();
    struct descriptor with = telegram;

    with.ops |= 1u << ACTION_THREAD_CREATE;
    assert_false(json_as_bool(json_get(written(p, &telegram), "supports_threads"), true));
    assert_true(json_as_bool(json_get(written(p, &with), "supports_threads"), false));
    json_parser_free(p);
}

static void drafts_are_told_to_newer_gateways_only(void **state)
{
    struct buf newer = BUF_INIT, older = BUF_INIT;
    struct descriptor with = telegram;

    with.ops |= 1u << ACTION_DRAFT;
    descriptor_write_frame(&newer, &with, true);
    descriptor_write_frame(&older, &with, false);
    assert_true(str_contains(buf_str(&newer), STR("\"supports_draft_streaming\":true")));
    assert_true(str_contains(buf_str(&newer), STR("\"draft\"")));
    assert_true(str_contains(buf_str(&older), STR("\"supports_draft_streaming\":false")));
    assert_false(str_contains(buf_str(&older), STR("\"draft\"")));
    buf_done(&newer);
    buf_done(&older);
}

static void values_and_escapes_come_through(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json doc = written(p, &telegram);

    assert_same(json_str(doc, "label"), STR("Telegram \"the\" messenger"));
    assert_same(json_str(doc, "emoji"), STR("\xe2\x9c\x88\xef\xb8\x8f"));
    assert_same(json_str(doc, "platform_hint"), STR("short answers"));
    assert_same(json_str(doc, "len_unit"), STR("utf16"));
    assert_true(json_as_bool(json_get(doc, "supports_edit"), false));
    assert_false(json_as_bool(json_get(doc, "supports_draft_streaming"), true));
    assert_true(json_as_bool(json_get(doc, "pii_safe"), false));
    json_parser_free(p);
}

static void supported_ops_lists_what_the_bits_say(void **state)
{
    static const char *const want[] = {"send", "typing", "get_chat_info"};
    struct json_parser *p = json_parser_new();
    struct json ops = json_get(written(p, &telegram), "supported_ops");
    size_t n = 0;

    for (struct json_iter it = {0}; json_next(ops, &it); n++)
        assert_same(json_as_str(it.value), str_of(want[n]));
    assert_int_equal(n, 3);
    json_parser_free(p);
}

static void an_unset_emoji_or_hint_is_left_out(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json doc = written(p, &descriptor_relay);

    assert_int_equal(json_type(json_get(doc, "emoji")), JSON_ABSENT);
    assert_int_equal(json_type(json_get(doc, "platform_hint")), JSON_ABSENT);
    json_parser_free(p);
}

static void the_frame_is_one_line_around_the_object(void **state)
{
    struct buf line = BUF_INIT, object = BUF_INIT;
    struct str head = STR("{\"type\":\"descriptor\",\"descriptor\":");

    descriptor_write(&object, &telegram);
    descriptor_write_frame(&line, &telegram, true);
    assert_true(str_starts(buf_str(&line), head));
    assert_same(str_make(line.p + head.n, object.n), buf_str(&object));
    assert_same(str_skip(buf_str(&line), head.n + object.n), STR("}\n"));
    assert_null(memchr(line.p, '\n', line.n - 1));
    buf_done(&line);
    buf_done(&object);
}

static void op_names_come_back_and_strangers_are_unknown(void **state)
{
    for (enum action_op op = 0; op < ACTION_UNKNOWN; op++)
        assert_int_equal(action_op_parse(str_of(action_op_name(op))), op);
    assert_int_equal(action_op_parse(STR("unknown")), ACTION_UNKNOWN);
    assert_int_equal(action_op_parse(STR("SEND")), ACTION_UNKNOWN);
    assert_int_equal(action_op_parse(STR("send ")), ACTION_UNKNOWN);
    assert_int_equal(action_op_parse(STR("telepathy")), ACTION_UNKNOWN);
    assert_int_equal(action_op_parse(STR_NULL), ACTION_UNKNOWN);
    assert_string_equal(action_op_name(ACTION_UNKNOWN), "unknown");
}

UNIT(core_test_descriptor)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nine_keys_a_gateway_needs_are_always_there),
        cmocka_unit_test(threads_are_there_exactly_where_an_op_opens_them),
        cmocka_unit_test(drafts_are_told_to_newer_gateways_only),
        cmocka_unit_test(values_and_escapes_come_through),
        cmocka_unit_test(supported_ops_lists_what_the_bits_say),
        cmocka_unit_test(an_unset_emoji_or_hint_is_left_out),
        cmocka_unit_test(the_frame_is_one_line_around_the_object),
        cmocka_unit_test(op_names_come_back_and_strangers_are_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
