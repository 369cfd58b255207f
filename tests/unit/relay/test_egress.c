/* Promises of relay/egress.h, chats.h and persona.h: who may speak where, and one result each. */
#include "relay/rig.h"

static void ask(struct fake *f, const char *id, const char *action, const char *beside)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "{\"type\":\"outbound\",\"requestId\":\"%s\",\"action\":{%s}%s}", id, action,
               beside);
    say(f, buf_z(&b));
    buf_done(&b);
}
#define SEND \
    "\"op\":\"send\",\"chat_id\":\"c1\",\"content\":\"hi\",\"reply_to\":null,\"metadata\":{}"

static void answer_it(const char *message_id)
{
    relay_result(rig.relay, rig.act_id,
                 &(struct action_result){.success = true, .message_id = str_of(message_id)});
    turn();
}
static size_t results(const struct fake *f)
{
    return count_with(f, "outbound_result");
}
static bool result_says(const struct fake *f, size_t n, const char *part)
{
    return str_contains(line_with(f, "outbound_result", n), str_of(part));
}

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

static void an_unknown_op_is_answered_with_its_name(void **state)
{
    struct fake *f = connect_as("gw-a");
    ask(f, "r1", "\"op\":\"dance\",\"chat_id\":\"c1\"", "");
    assert_true(result_says(f, 0, "unsupported op: dance"));
    assert_true(result_says(f, 0, "\"success\":false"));
}

static void an_op_the_platform_lacks_is_refused_but_typing_is_not(void **state)
{
    struct fake *f = connect_as("gw-a");
    say(f, "{\"type\":\"hello\",\"platform\":\"telegram\",\"botId\":\"tg\"}");
    publish("a", "e1");
    ask(f, "r1", "\"op\":\"typing\",\"chat_id\":\"c1\",\"metadata\":{}", "");
    assert_true(result_says(f, 0, "\"success\":true"));
    add_gateway("gw-t", "tim", NULL, "telegram", "tg");
    struct fake *g = dial("gw-t");
    say(g, "{\"type\":\"hello\",\"platform\":\"telegram\",\"botId\":\"tg\"}");
    struct event ev = make_event("tg", "e1");
    ev.platform = STR("telegram");
    ev.bot = STR("tg");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    ask(g, "r2", "\"op\":\"edit\",\"chat_id\":\"c1\",\"message_id\":\"m\",\"content\":\"x\"", "");
    assert_true(result_says(g, 0, "unsupported op: edit"));
    assert_int_equal(rig.acts, 0);
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

static void a_repeated_request_id_in_flight_is_ignored(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    ask(f, "r1", SEND, "");
    assert_int_equal(rig.acts, 1);
    answer_it("m1");
    answer_it("m2"); /* a platform that answers twice does no harm */
    assert_int_equal(results(f), 1);
}

static void a_platform_may_answer_inside_the_call(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    rig.act_at_once = true;
    ask(f, "r1", SEND, "");
    ask(f, "r2", SEND, "");
    assert_int_equal(results(f), 2);
    assert_true(result_says(f, 1, "\"requestId\":\"r2\""));
    assert_true(result_says(f, 1, "\"message_id\":\"m9\"")); /* as it was when it was reported */
}

static void a_result_whose_asker_leaves_in_the_same_turn_is_kept_for_the_next(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    relay_result(rig.relay, rig.act_id, &(struct action_result){.success = true});
    hang_up(f, 1006);
    f = connect_as("gw-a");
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"success\":true"));
}

static void a_result_in_the_turn_of_its_deadline_is_not_overtaken_by_it(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    rig.now_ms += 28000;
    clock_set(rig.clock, rig.now_ms, 1700000000000 + rig.now_ms);
    relay_result(rig.relay, rig.act_id, &(struct action_result){.success = true});
    turn();
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"success\":true"));
    assert_int_equal(relay_counters(rig.relay)->actions_timed_out, 0);
}

static void what_an_earlier_process_was_cut_off_in_is_told_once(void **state)
{
    relay_cut_off(rig.relay, STR("acme"), STR("nobody"), STR("r1"), STR("timed out: x"));
    connect_as("gw-a"); /* now it exists */
    restart();
    relay_cut_off(rig.relay, STR("acme"), STR("ann"), STR("r1"), STR("timed out: cut off"));
    relay_cut_off(rig.relay, STR("acme"), STR("ann"), STR(""), STR("timed out: cut off"));
    struct fake *f = connect_as("gw-a");
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"requestId\":\"r1\""));
    assert_true(result_says(f, 0, "\"error\":\"timed out: cut off\""));
    hang_up(f, 1006);
    f = connect_as("gw-a");
    assert_int_equal(results(f), 0);
    relay_cut_off(rig.relay, STR("acme"), STR("bob"), STR("r2"), STR("timed out: cut off"));
    advance(30000);
    assert_int_equal(results(connect_as("gw-b")), 0); /* nobody waits that long */
}

static void a_platform_that_never_answers_is_timed_out_once(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    for (int i = 0; i < 27; i++) {
        advance(1000);
        pong(f);
    }
    assert_int_equal(results(f), 0);
    advance(1500);
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "timed out"));
    answer_it("late");
    assert_int_equal(results(f), 1);
    assert_int_equal(relay_counters(rig.relay)->actions_timed_out, 1);
}

static void too_many_requests_in_flight_are_refused_as_passing_trouble(void **state)
{
    struct fake *f = connect_as("gw-a");
    char id[16];
    publish("a", "e1");
    for (int i = 0; i < 257; i++) {
        snprintf(id, sizeof id, "r%d", i);
        ask(f, id, SEND, "");
    }
    assert_int_equal(rig.acts, 256);
    assert_true(result_says(f, 0, "network trouble"));
}

static void a_result_finds_the_next_socket_when_the_first_has_gone(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    hang_up(f, 1006);
    answer_it("m1"); /* nobody is there */
    f = connect_as("gw-a");
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"requestId\":\"r1\""));
}

static void a_result_goes_to_the_receiver_when_the_asker_has_gone(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    hang_up(f, 1006);
    f = connect_as("gw-a");
    answer_it("m1");
    assert_int_equal(results(f), 1);
}

static void a_sleeping_socket_still_gets_its_results(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    say(f, "{\"type\":\"going_idle\"}");
    answer_it("m1");
    assert_int_equal(results(f), 1);
}

/* ---- what is under way when bellhop dies ---- */

static void count_record(void *ctx, struct str key, struct str value)
{
    assert_false(str_contains(value, STR("hi"))); /* what is said is not kept */
    ++*(size_t *)ctx;
}
static size_t records(void)
{
    size_t n = 0;
    assert_int_equal(rig.tap.inner->ops->load_records(rig.tap.inner, "outbound", count_record, &n),
                     BH_OK);
    return n;
}
static struct fake *tim_asks(const char *id)
{
    add_gateway("gw-t", "tim", NULL, "telegram", "tg");
    struct fake *f = connect_as("gw-t");
    struct event ev = make_event("tg", "e1");
    ev.platform = STR("telegram");
    ev.bot = STR("tg");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    ask(f, id, SEND, "");
    assert_string_equal(rig.act_platform, "telegram");
    return f;
}

static void a_request_that_leaves_this_machine_is_on_disk_until_its_result_is_known(void **state)
{
    struct fake *f = tim_asks("r1");
    assert_int_equal(records(), 1);
    answer_it("m1");
    turn();
    assert_int_equal(results(f), 1);
    assert_int_equal(records(), 0);
}

static void requests_that_stay_here_or_change_nothing_are_not(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    assert_int_equal(records(), 0);
    f = tim_asks("r2");
    ask(f, "r3", "\"op\":\"typing\",\"chat_id\":\"c1\",\"metadata\":{}", "");
    assert_int_equal(records(), 1);
}

static void a_request_cut_off_by_a_crash_is_reported_once_to_the_next_socket(void **state)
{
    tim_asks("r1");
    restart();
    assert_int_equal(records(), 1);
    struct fake *f = connect_as("gw-t");
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"requestId\":\"r1\""));
    assert_true(result_says(f, 0, "\"success\":false"));
    assert_true(result_says(f, 0, ACTION_ERROR_UNKNOWN "bellhop restarted"));
    assert_int_equal(records(), 0);
    hang_up(f, 1006);
    f = connect_as("gw-t");
    assert_int_equal(results(f), 0);
}

static void a_cut_off_request_nobody_asks_for_is_forgotten(void **state)
{
    tim_asks("r1");
    restart();
    advance(30000);
    assert_int_equal(records(), 0);
    struct fake *f = connect_as("gw-t");
    assert_int_equal(results(f), 0);
}

int main(void)
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
        PROMISE(an_unknown_op_is_answered_with_its_name),
        PROMISE(an_op_the_platform_lacks_is_refused_but_typing_is_not),
        PROMISE(follow_ups_without_a_vault_all_read_the_same),
        PROMISE(a_repeated_request_id_in_flight_is_ignored),
        PROMISE(a_platform_may_answer_inside_the_call),
        PROMISE(a_result_whose_asker_leaves_in_the_same_turn_is_kept_for_the_next),
        PROMISE(a_result_in_the_turn_of_its_deadline_is_not_overtaken_by_it),
        PROMISE(what_an_earlier_process_was_cut_off_in_is_told_once),
        PROMISE(a_platform_that_never_answers_is_timed_out_once),
        PROMISE(too_many_requests_in_flight_are_refused_as_passing_trouble),
        PROMISE(a_result_finds_the_next_socket_when_the_first_has_gone),
        PROMISE(a_result_goes_to_the_receiver_when_the_asker_has_gone),
        PROMISE(a_sleeping_socket_still_gets_its_results),
        PROMISE(a_request_that_leaves_this_machine_is_on_disk_until_its_result_is_known),
        PROMISE(requests_that_stay_here_or_change_nothing_are_not),
        PROMISE(a_request_cut_off_by_a_crash_is_reported_once_to_the_next_socket),
        PROMISE(a_cut_off_request_nobody_asks_for_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
