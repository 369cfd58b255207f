/* Promises of platform/discord/interactions.h about signatures; another program made this one. */
#include "unit.h"
#include "platform/discord/interactions.h"

#define KEY "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
#define SIGNATURE \
    "14ff115a1bdb65be81ed41ef72ea76ed1ef23656eacd8705e83af2419edd82f2" \
    "3d058856a672bca5a8294dec1d25d7ff1d942327d83c4025dcc2577776dcf306"
#define TIME STR("1800000000")
#define NOW_MS 1800000000000
#define BODY STR("{\"type\":1}")

static bool ok(struct str time, struct str signature, struct str body, int64_t wall_ms)
{
    struct discord_sig *s = discord_sig_new(STR(KEY));

    assert_non_null(s);
    bool yes = discord_sig_ok(s, time, signature, body, wall_ms);
    discord_sig_free(s);
    return yes;
}

static void a_signed_request_is_believed(void **state)
{
    assert_true(ok(TIME, STR(SIGNATURE), BODY, NOW_MS));
}

static void one_key_serves_many_requests(void **state)
{
    struct discord_sig *s = discord_sig_new(STR(KEY));

    for (int i = 0; i < 3; i++) {
        assert_true(discord_sig_ok(s, TIME, STR(SIGNATURE), BODY, NOW_MS));
        assert_false(discord_sig_ok(s, TIME, STR(SIGNATURE), STR("{\"type\":2}"), NOW_MS));
    }
    discord_sig_free(s);
}

static void every_flipped_bit_is_noticed(void **state)
{
    struct discord_sig *s = discord_sig_new(STR(KEY));
    char sig[] = SIGNATURE, body[] = "{\"type\":1}", time[] = "1800000000";

    for (size_t i = 0; i < sizeof sig - 1; i++) {
        char was = sig[i];
        sig[i] = was == '0' ? '1' : '0';
        assert_false(discord_sig_ok(s, TIME, str_of(sig), BODY, NOW_MS));
        sig[i] = was;
    }
    for (size_t i = 0; i < (sizeof body - 1) * 8; i++) {
        body[i / 8] ^= (char)(1 << i % 8);
        assert_false(discord_sig_ok(s, TIME, STR(SIGNATURE), str_make(body, 10), NOW_MS));
        body[i / 8] ^= (char)(1 << i % 8);
    }
    time[9] = '1';
    assert_false(discord_sig_ok(s, str_of(time), STR(SIGNATURE), BODY, NOW_MS));
    discord_sig_free(s);
}

static void the_window_is_closed_on_both_sides(void **state)
{
    assert_true(ok(TIME, STR(SIGNATURE), BODY, NOW_MS + DISCORD_SIG_WINDOW_MS));
    assert_false(ok(TIME, STR(SIGNATURE), BODY, NOW_MS + DISCORD_SIG_WINDOW_MS + 1));
    assert_true(ok(TIME, STR(SIGNATURE), BODY, NOW_MS - DISCORD_SIG_WINDOW_MS));
    assert_false(ok(TIME, STR(SIGNATURE), BODY, NOW_MS - DISCORD_SIG_WINDOW_MS - 1));
}

static void headers_that_are_none_are_refused(void **state)
{
    static const char *const times[] = {
        "",      "0",           "-1800000000",         "+1800000000", "1800000000 ", " 1800000000",
        "1.8e9", "01800000000", "99999999999999999999"};

    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        assert_false(ok(str_of(times[i]), STR(SIGNATURE), BODY, NOW_MS));
    assert_false(ok(STR_NULL, STR(SIGNATURE), BODY, NOW_MS));
    assert_false(ok(TIME, STR_NULL, BODY, NOW_MS));
    assert_false(ok(TIME, STR(""), BODY, NOW_MS));
    assert_false(ok(TIME, str_make(SIGNATURE, 126), BODY, NOW_MS));
    assert_false(ok(TIME, STR(SIGNATURE "00"), BODY, NOW_MS));
    assert_false(ok(TIME, STR(SIGNATURE), STR_NULL, NOW_MS));
}

static void what_is_no_key_is_told_at_start(void **state)
{
    assert_null(discord_sig_new(STR("")));
    assert_null(discord_sig_new(STR("03a107")));
    assert_null(discord_sig_new(STR("zz" KEY)));
    struct discord_sig *s = discord_sig_new(STR(" " KEY "\n"));
    assert_non_null(s);
    discord_sig_free(s);
}

UNIT(platform_discord_test_signature)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signed_request_is_believed),
        cmocka_unit_test(one_key_serves_many_requests),
        cmocka_unit_test(every_flipped_bit_is_noticed),
        cmocka_unit_test(the_window_is_closed_on_both_sides),
        cmocka_unit_test(headers_that_are_none_are_refused),
        cmocka_unit_test(what_is_no_key_is_told_at_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
