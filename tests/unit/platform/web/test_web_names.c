/* Promises of the web platform (platform/web/web.h): how visitors call themselves. */
#include "platform/web/web_rig.h"

#define DAY INT64_C(86400000)

static void call(const char *who, const char *name)
{
    char body[128];

    snprintf(body, sizeof body, "{\"name\":\"%s\"}", name);
    uint32_t r = ask((struct http_req){.method = "POST",
                                       .path = "/chat/lobby/api/name",
                                       .body = body,
                                       .headers = {JSON, {"X-Bellhop-Visitor", who}}});
    turn();
    assert_int_equal(status_of(r), 200);
}

static bool is_called(const char *who, const char *name)
{
    return strstr(body_of(get(who, "history", NULL)), name) != NULL;
}

static void count_record(void *ctx, struct str key, struct str value)
{
    ++*(int *)ctx;
}

static int n_records(void)
{
    int n = 0;

    store->ops->load_records(store, "web_name", STR(""), count_record, &n);
    return n;
}

static void days(int n)
{
    later(n * DAY);
    later(20000); /* a heartbeat */
}

static void open_again(void)
{
    close_bot();
    store->boot++;
    open_bot(10);
}

static void of_too_many_names_the_oldest_is_forgotten(void **state)
{
    char chat[VISITOR_CHAT_CHARS + 1];
    open_bot(0);
    struct web *w = container_of(web, struct web, base);
    for (int i = 0; i <= WEB_MAX_NAMES; i++) {
        snprintf(chat, sizeof chat, "%032d", i);
        web_name_set(w, str_of(chat), STR("Ada"));
    }
    assert_true(str_eq(web_name_given(w, str_of(chat)), STR("Ada")));
    assert_null(web_name_given(w, STR("00000000000000000000000000000000")).p);
    assert_non_null(web_name_given(w, STR("00000000000000000000000000000001")).p);
    web_name_set(w, str_of(chat), STR(""));
    assert_null(web_name_given(w, str_of(chat)).p);
}

static void a_name_survives_a_restart_and_can_be_taken_back(void **state)
{
    open_bot(10);
    call(ADA, "Ada");
    call(ADA, "Ada L.");
    open_again();
    assert_true(is_called(ADA, "Ada L."));
    assert_int_equal(n_records(), 1);
    call(ADA, "");
    assert_false(is_called(ADA, "Ada"));
    assert_int_equal(n_records(), 0);
}

static void a_name_nobody_used_for_as_long_as_the_retention_goes(void **state)
{
    fake.env.retention_ms = 5 * DAY;
    open_bot(10);
    call(ADA, "Ada");
    call(BOB, "Bob");
    days(4);
    say(BOB, "{\"text\":\"still here\"}");
    assert_true(is_called(ADA, "Ada"));
    days(2);
    assert_false(is_called(ADA, "Ada"));
    assert_true(is_called(BOB, "Bob"));
    assert_int_equal(n_records(), 1);
    open_again();
    assert_true(is_called(BOB, "Bob"));
    days(6);
    assert_int_equal(n_records(), 0);
}

static void the_day_is_known_after_a_restart(void **state)
{
    fake.env.retention_ms = 5 * DAY;
    open_bot(10);
    call(ADA, "Ada");
    days(3);
    call(BOB, "Bob");
    open_again();
    days(3);
    assert_false(is_called(ADA, "Ada"));
    assert_true(is_called(BOB, "Bob"));
}

static void a_bot_nobody_is_routed_to_keeps_no_name(void **state)
{
    open_bot(10);
    fake.state = "none";
    call(ADA, "Ada");
    assert_true(is_called(ADA, "Ada"));
    assert_int_equal(n_records(), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
UNIT(platform_web_test_web_names)
{
    const struct CMUnitTest tests[] = {
        T(of_too_many_names_the_oldest_is_forgotten),
        T(a_name_survives_a_restart_and_can_be_taken_back),
        T(a_name_nobody_used_for_as_long_as_the_retention_goes),
        T(the_day_is_known_after_a_restart),
        T(a_bot_nobody_is_routed_to_keeps_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
