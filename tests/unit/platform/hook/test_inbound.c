/* Promises of platform/hook/inbound.h. */
#include "unit.h"
#include "base/json.h"
#include "platform/hook/inbound.h"

static void a_name_that_a_text_repeats_does_not_multiply_the_webhook(void **state)
{
    static const struct hook_settings cfg = {.map = {.text = (char *)"/text",
                                                     .names = (char *)"/names",
                                                     .chat_id = (char *)"/chat",
                                                     .user_id = (char *)"/chat"}};
    struct json_parser *parser = json_parser_new(), *inner = json_parser_new();
    struct hook_out out = {0};
    BUF_LOCAL body = BUF_INIT;
    struct json doc;

    buf_add_z(&body, "{\"chat\":\"c\",\"text\":\"");
    for (size_t i = 0; i < 100; i++)
        buf_add_z(&body, "{a}");
    buf_add_z(&body, "\",\"names\":{\"a\":{\"name\":\"");
    for (size_t i = 0; i < 100000; i++)
        buf_add_z(&body, "\u00e9");
    buf_add_z(&body, "\"}}}");
    assert_true(json_parse(parser, buf_str(&body), &doc));
    assert_int_equal(hook_normalize(&cfg, STR("desk"), doc, buf_str(&body), inner, &out),
                     WEBHOOK_EVENT);
    assert_true(out.ev.text.n <= 100 * HOOK_MAX_NAME && utf8_valid(out.ev.text));
    hook_out_done(&out);
    json_parser_free(parser);
    json_parser_free(inner);
}

UNIT(platform_hook_test_inbound)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_a_text_repeats_does_not_multiply_the_webhook),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
