/* Promises of relay/out/guard.h, chats.h and session.h: who may speak where. */
#include "relay/asking.h"

static void a_chat_that_was_delivered_from_may_be_answered(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    assert_int_equal(rig.acts, 1);
    assert_string_equal(rig.act_chat, "c1");
    assert_string_equal(rig.act_bot, "lobby");
    answer_it("m1");
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"requestId\":\"r1\""));
    assert_true(result_says(f, 0, "\"message_id\":\"m1\""));
}

static void a_chat_of_somebody_else_is_refused(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    publish("b", "e1"); /* c1 is bob's */
    ask(f, "r1", SEND, "");
    assert_int_equal(rig.acts, 0);
    assert_true(result_says(f, 0, ACTION_ERROR_NOT_ROUTED));
    ask(g, "r1", SEND, "");
    assert_int_equal(rig.acts, 1);
}

static void scope_and_user_in_the_metadata_grant_nothing(void **state)
{
    struct fake *f = connect_as("gw-a");
    ask(f, "r1",
        "\"op\":\"send\",\"chat_id\":\"c9\",\"content\":\"x\",\"metadata\":{\"scope_id\":\"a\","
        "\"guild_id\":\"a\",\"user_id\":\"u1\"}",
        "");
    assert_int_equal(rig.acts, 0);
    assert_true(result_says(f, 0, ACTION_ERROR_NOT_ROUTED));
}

static void a_chat_whose_id_is_routed_to_the_instance_is_its_own(void **state)
{
    struct fake *f = connect_as("gw-a");
    ask(f, "r1", "\"op\":\"send\",\"chat_id\":\"a\",\"content\":\"x\",\"metadata\":{}", "");
    assert_int_equal(rig.acts, 1);
    ask(f, "r2", "\"op\":\"send\",\"chat_id\":\"b\",\"content\":\"x\",\"metadata\":{}", "");
    assert_int_equal(rig.acts, 1);
}

static void hear_from(const char *key, int n)
{
    char chat[16], id[16];
    snprintf(chat, sizeof chat, "s%02d", n);
    snprintf(id, sizeof id, "e%d", n);
    struct event ev = make_event(key, id);
    ev.chat_id = str_of(chat);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}

#define SEND_TO(chat) "\"op\":\"send\",\"chat_id\":\"" chat "\",\"content\":\"hi\",\"metadata\":{}"

static void chats_past_the_limit_are_forgotten_where_only_the_told_can_name_them(void **state)
{
    rig.web.secret_chats = true;
    rig.lim.max_chats = 4;
    for (int n = 0; n < 40; n++)
        hear_from("a", n);
    restart();
    advance(600000);
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    ask(f, "r0", SEND_TO("s00"), "");
    assert_int_equal(rig.acts, 0);
    assert_true(result_says(f, 0, ACTION_ERROR_NOT_ROUTED));
    ask(f, "r1", SEND_TO("s39"), "");
    assert_int_equal(rig.acts, 1);
    add_route("lobby", "ann");
    ask(f, "r2", SEND_TO("s00"), ""); /* the bot is its own, and somebody told it of s00 */
    assert_int_equal(rig.acts, 2);
    ask(g, "r3", SEND_TO("s00"), "");
    assert_int_equal(rig.acts, 2);
    hear_from("a", 0);
    ask(f, "r4", SEND_TO("s00"), "");
    assert_int_equal(rig.acts, 3);
}

static void chats_anybody_could_name_are_never_forgotten(void **state)
{
    rig.lim.max_chats = 4;
    for (int n = 0; n < 40; n++)
        hear_from("a", n);
    restart();
    advance(600000);
    struct fake *f = connect_as("gw-a");
    ask(f, "r0", SEND_TO("s00"), "");
    assert_int_equal(rig.acts, 1);
}

static void chats_are_remembered_over_a_restart(void **state)
{
    publish("a", "e1");
    restart();
    struct fake *f = connect_as("gw-a");
    ask(f, "r1", SEND, "");
    assert_int_equal(rig.acts, 1);
}

static void an_identity_that_was_not_announced_is_refused(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, ",\"platform\":\"telegram\",\"botId\":\"tg\"");
    ask(f, "r2", SEND, ",\"platform\":\"web\",\"botId\":\"other\"");
    assert_int_equal(rig.acts, 0);
    assert_true(result_says(f, 0, "\"success\":false"));
    assert_true(result_says(f, 1, "\"success\":false"));
    ask(f, "r3", SEND, ",\"platform\":\"web\",\"botId\":\"lobby\"");
    assert_int_equal(rig.acts, 1);
}

static void without_a_platform_the_record_of_the_chat_decides(void **state)
{
    add_gateway("gw-t", "tim", NULL, "telegram", "tg");
    struct fake *f = dial("gw-t");
    hello(f); /* web first: the default */
    struct event ev = make_event("tg", "e1");
    ev.platform = STR("telegram");
    ev.bot = STR("tg");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    ask(f, "r1", SEND, "");
    assert_string_equal(rig.act_platform, "telegram");
}

static void follow_ups_without_a_vault_all_read_the_same(void **state)
{
    struct fake *f = connect_as("gw-a");
    ask(f, "r1",
        "\"op\":\"follow_up\",\"session_key\":\"k\",\"kind\":\"web.token\",\"content\":\"x\"", "");
    ask(f, "r2",
        "\"op\":\"follow_up\",\"session_key\":\"k\",\"kind\":\"telegram.x\",\"content\":\"x\"", "");
    ask(f, "r3", "\"op\":\"follow_up\",\"session_key\":\"k\",\"kind\":\"\",\"content\":\"x\"", "");
    for (size_t i = 0; i < 3; i++)
        assert_true(result_says(f, i, "\"error\":\"capability not available\""));
    say(f, "{\"type\":\"hello\",\"platform\":\"telegram\",\"botId\":\"tg\"}");
    ask(f, "r4",
        "\"op\":\"follow_up\",\"session_key\":\"k\",\"kind\":\"telegram.x\",\"content\":\"x\"", "");
    assert_int_equal(rig.acts, 1); /* a platform that has one is asked */
}

UNIT(relay_test_guard)
{
    const struct CMUnitTest tests[] = {
        PROMISE(a_chat_that_was_delivered_from_may_be_answered),
        PROMISE(a_chat_of_somebody_else_is_refused),
        PROMISE(scope_and_user_in_the_metadata_grant_nothing),
        PROMISE(a_chat_whose_id_is_routed_to_the_instance_is_its_own),
        PROMISE(chats_past_the_limit_are_forgotten_where_only_the_told_can_name_them),
        PROMISE(chats_anybody_could_name_are_never_forgotten),
        PROMISE(chats_are_remembered_over_a_restart),
        PROMISE(an_identity_that_was_not_announced_is_refused),
        PROMISE(without_a_platform_the_record_of_the_chat_decides),
        PROMISE(follow_ups_without_a_vault_all_read_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
