/* Promises of platform/web/visitor.h. */
#include "unit.h"
#include "base/rand.h"
#include "platform/web/visitor.h"

static const struct hash_key key = {1, 2}, other_key = {1, 3};
#define TOKEN STR("0123456789abcdef0123456789abcdef")

static void a_minted_token_is_acceptable_and_never_the_same(void **state)
{
    struct rand r = RAND_SYSTEM;
    char a[VISITOR_TOKEN_CHARS + 1], b[VISITOR_TOKEN_CHARS + 1];

    visitor_mint(&r, a);
    visitor_mint(&r, b);
    assert_int_equal(strlen(a), VISITOR_TOKEN_CHARS);
    assert_true(visitor_token_is_ok(str_of(a)));
    assert_string_not_equal(a, b);
}

static void odd_tokens_are_refused(void **state)
{
    assert_false(visitor_token_is_ok(STR_NULL));
    assert_false(visitor_token_is_ok(STR("fifteen-letters")));
    assert_false(visitor_token_is_ok(STR("sixteen letters!")));
    assert_false(visitor_token_is_ok(STR("0123456789abcdef\xc3\xa4")));
    assert_false(visitor_token_is_ok(
        STR("01234567890123456789012345678901234567890123456789012345678901234")));
    assert_true(visitor_token_is_ok(STR("bench_visitor-01")));
}

static void a_visitor_keeps_its_chat_and_others_get_another(void **state)
{
    char a[VISITOR_CHAT_CHARS + 1], b[VISITOR_CHAT_CHARS + 1], c[VISITOR_CHAT_CHARS + 1];

    visitor_chat_id(&key, TOKEN, a);
    visitor_chat_id(&key, TOKEN, b);
    visitor_chat_id(&key, STR("0123456789abcdef0123456789abcdee"), c);
    assert_string_equal(a, b);
    assert_string_not_equal(a, c);
}

static void two_bots_cannot_compare_their_visitors(void **state)
{
    char a[VISITOR_CHAT_CHARS + 1], b[VISITOR_CHAT_CHARS + 1];

    visitor_chat_id(&key, TOKEN, a);
    visitor_chat_id(&other_key, TOKEN, b);
    assert_string_not_equal(a, b);
    assert_false(visitor_chat_is_ours(&other_key, str_of(a)));
}

static void a_made_up_chat_is_not_ours(void **state)
{
    char id[VISITOR_CHAT_CHARS + 1];

    visitor_chat_id(&key, TOKEN, id);
    assert_true(visitor_chat_is_ours(&key, str_of(id)));
    for (size_t i = 0; i < VISITOR_CHAT_CHARS; i++) {
        char was = id[i];
        id[i] = was == '0' ? '1' : '0';
        assert_false(visitor_chat_is_ours(&key, str_of(id)));
        id[i] = was;
    }
    assert_false(visitor_chat_is_ours(&key, STR("")));
    assert_false(visitor_chat_is_ours(&key, STR_NULL));
}

UNIT(platform_web_test_visitor)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minted_token_is_acceptable_and_never_the_same),
        cmocka_unit_test(odd_tokens_are_refused),
        cmocka_unit_test(a_visitor_keeps_its_chat_and_others_get_another),
        cmocka_unit_test(two_bots_cannot_compare_their_visitors),
        cmocka_unit_test(a_made_up_chat_is_not_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
