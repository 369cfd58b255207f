/* Promises of relay/out/requests.h: one result each, whatever happens. */
#include "relay/asking.h"

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

static void cut_off(const char *instance, uint32_t life, const char *request, const char *error)
{
    const struct action_from from = {STR("acme"), str_of(instance), str_of(request), life};

    relay_cut_off(rig.relay, &from, str_of(error));
}

static void what_an_earlier_process_was_cut_off_in_is_told_once(void **state)
{
    cut_off("nobody", 0, "r1", "timed out: x");
    connect_as("gw-a"); /* now it exists */
    restart();
    cut_off("ann", 0, "r1", "timed out: cut off");
    cut_off("ann", 0, "", "timed out: cut off");
    cut_off("ann", 1, "r9", "timed out: of another life of the name");
    struct fake *f = connect_as("gw-a");
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"requestId\":\"r1\""));
    assert_true(result_says(f, 0, "\"error\":\"timed out: cut off\""));
    hang_up(f, 1006);
    f = connect_as("gw-a");
    assert_int_equal(results(f), 0);
    cut_off("bob", 0, "r2", "timed out: cut off");
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

static void what_is_said_again_after_a_lost_socket_is_the_same_message(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    struct action_id first = rig.act_id;
    ask(f, "r2", SEND, ""); /* twice on one socket is meant */
    assert_int_equal(rig.acts, 2);
    answer_it("m2");
    hang_up(f, 1006);
    f = connect_as("gw-a");
    ask(f, "r3", SEND, "");
    assert_int_equal(rig.acts, 2); /* r1 is unanswered: this is it */
    ask(f, "r4", SEND, "");
    assert_int_equal(rig.acts, 3); /* that one is taken up already */
    relay_result(rig.relay, first,
                 &(struct action_result){.success = true, .message_id = STR("m1")});
    turn();
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"requestId\":\"r3\""));
    assert_true(result_says(f, 0, "\"message_id\":\"m1\""));
}

static void what_a_crash_cut_off_is_told_again_once_when_it_is_said_again(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    struct action_from from = {STR("acme"), STR("ann"), STR("r1"), .said = rig.act_said};
    assert_true(action_is_said(&from));
    restart();
    relay_cut_off(rig.relay, &from, STR("timed out: cut off"));
    f = connect_as("gw-a");
    assert_int_equal(results(f), 1); /* of r1 */
    ask(f, "r2", SEND, "");
    assert_int_equal(rig.acts, 1);
    assert_int_equal(results(f), 2);
    assert_true(result_says(f, 1, ACTION_ERROR_UNKNOWN "bellhop was restarted"));
    ask(f, "r3", SEND, ""); /* that is meant */
    assert_int_equal(rig.acts, 2);
    relay_cut_off(rig.relay, &from, STR("timed out: cut off"));
    advance(61000);
    f = connect_as("gw-a");
    ask(f, "r4", SEND, ""); /* a minute later it is meant, too */
    assert_int_equal(rig.acts, 3);
}

static void what_goes_on_after_a_restart_is_not_done_twice_when_it_is_said_again(void **state)
{
    struct action_id old;
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    struct action_from from = {STR("acme"), STR("ann"), STR("r1"), .said = rig.act_said};
    restart();
    assert_true(
        relay_revive(rig.relay, &from, STR("discord"), STR("app"), ACTION_SEND, STR("c1"), &old));
    f = connect_as("gw-a");
    ask(f, "r2", SEND, "");
    assert_int_equal(rig.acts, 1);
    relay_result(rig.relay, old, &(struct action_result){.success = true, .message_id = STR("m1")});
    turn();
    assert_int_equal(results(f), 1);
    assert_true(result_says(f, 0, "\"requestId\":\"r2\""));
    ask(f, "r3", SEND, ""); /* that is meant */
    assert_int_equal(rig.acts, 2);
}

static void the_same_words_in_another_thread_or_question_are_another_message(void **state)
{
    static const char *const others[] = {
        "\"op\":\"send\",\"chat_id\":\"c1\",\"content\":\"hi\",\"metadata\":{\"thread_id\":\"t2\"}",
        "\"op\":\"send\",\"chat_id\":\"c1\",\"content\":\"hi\",\"reply_to\":\"m7\"",
        "\"op\":\"send\",\"chat_id\":\"c1\",\"content\":\"hi!\"",
    };
    struct fake *f = connect_as("gw-a");
    char id[8];
    publish("a", "e1");
    ask(f, "r1",
        "\"op\":\"send\",\"chat_id\":\"c1\",\"content\":\"hi\",\"metadata\":{\"thread_id\":\"t1\"}",
        "");
    hang_up(f, 1006);
    f = connect_as("gw-a");
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        snprintf(id, sizeof id, "o%zu", i);
        ask(f, id, others[i], "");
        assert_int_equal(rig.acts, i + 2);
    }
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

static void count_record(void *ctx, struct str key, struct str value)
{
    ++*(size_t *)ctx;
}

static size_t records(void)
{
    size_t n = 0;
    assert_int_equal(rig.tap.inner->ops->load_records(rig.tap.inner, "outgoing", STR(""),
                                                      count_record, &n),
                     BH_OK);
    return n;
}

static void a_request_keeps_nothing_on_disk(void **state)
{
    add_gateway("gw-t", "tim", NULL, "telegram", "tg");
    struct fake *f = connect_as("gw-t");
    struct event ev = make_event("tg", "e1");
    ev.platform = STR("telegram");
    ev.bot = STR("tg");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    ask(f, "r1", SEND, "");
    assert_string_equal(rig.act_platform, "telegram");
    assert_int_equal(records(), 0);
}

static void chat_info_always_has_a_name_and_a_type(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", "\"op\":\"get_chat_info\",\"chat_id\":\"c1\"", "");
    assert_int_equal(rig.acts, 1);
    relay_result(rig.relay, rig.act_id, &(struct action_result){.success = true});
    turn();
    assert_true(result_says(f, 0, "\"chat_info\":{\"name\":\"c1\",\"type\":\"dm\"}"));
    ask(f, "r2", "\"op\":\"get_chat_info\",\"chat_id\":\"c1\"", "");
    relay_result(rig.relay, rig.act_id,
                 &(struct action_result){.success = true,
                                         .chat_name = STR("Den"),
                                         .chat_type = STR("group")});
    turn();
    assert_true(result_says(f, 1, "\"chat_info\":{\"name\":\"Den\",\"type\":\"group\"}"));
}

/* @op with a text of @chars characters; the web takes 4000 in a message. */
static void say_at_length(struct fake *f, const char *op, size_t chars)
{
    static int asked;
    struct buf action = BUF_INIT;
    char id[16];

    snprintf(id, sizeof id, "l%d", ++asked);
    buf_printf(&action, "\"op\":\"%s\",\"chat_id\":\"c1\",\"content\":\"", op);
    for (size_t n = 0; n < chars; n++)
        buf_add_c(&action, 'x');
    buf_add_c(&action, '"');
    ask(f, id, buf_z(&action), "");
    buf_done(&action);
}

static void each_part_of_a_long_text_counts_against_the_rate(void **state)
{
    static const char *const ops[] = {"send", "send_media"};
    rig.lim.instance_actions = 1; /* five at once */
    relay_set_limits(rig.relay, &rig.lim);
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    for (size_t k = 0; k < ARRAY_LEN(ops); k++) {
        size_t acts = rig.acts;
        advance(5000);
        pong(f);
        say_at_length(f, ops[k], 6 * 4000); /* six of them are too many */
        assert_int_equal(rig.acts, acts);
        assert_true(result_says(f, results(f) - 1, "too many messages per second"));
        advance(5000);
        pong(f);
        say_at_length(f, ops[k], 4 * 4000);
        assert_int_equal(rig.acts, acts + 1);
        say_at_length(f, ops[k], 1); /* the fifth */
        assert_int_equal(rig.acts, acts + 2);
        say_at_length(f, ops[k], 1);
        assert_int_equal(rig.acts, acts + 2);
    }
}

static void an_older_gateway_sends_no_beginning_of_an_answer(void **state)
{
    const char *begins = "\"op\":\"send\",\"chat_id\":\"c1\",\"content\":\"word0 \xe2\x96\x89\","
                         "\"metadata\":{\"expect_edits\":true}";
    struct fake *f = connect_as("gw-a");

    publish("a", "e1");
    ask(f, "r1", begins, "");
    assert_true(result_says(f, 0, "once it is complete"));
    assert_int_equal(rig.acts, 0);
    ask(f, "r2", "\"op\":\"typing\",\"chat_id\":\"c1\",\"metadata\":{}", ""); /* a newer one */
    int acts = rig.acts;
    ask(f, "r3", begins, "");
    assert_int_equal(rig.acts, acts + 1);
}

UNIT(relay_test_requests)
{
    const struct CMUnitTest tests[] = {
        PROMISE(chat_info_always_has_a_name_and_a_type),
        PROMISE(each_part_of_a_long_text_counts_against_the_rate),
        PROMISE(an_older_gateway_sends_no_beginning_of_an_answer),
        PROMISE(an_unknown_op_is_answered_with_its_name),
        PROMISE(an_op_the_platform_lacks_is_refused_but_typing_is_not),
        PROMISE(a_repeated_request_id_in_flight_is_ignored),
        PROMISE(a_platform_may_answer_inside_the_call),
        PROMISE(a_result_whose_asker_leaves_in_the_same_turn_is_kept_for_the_next),
        PROMISE(a_result_in_the_turn_of_its_deadline_is_not_overtaken_by_it),
        PROMISE(what_an_earlier_process_was_cut_off_in_is_told_once),
        PROMISE(a_platform_that_never_answers_is_timed_out_once),
        PROMISE(too_many_requests_in_flight_are_refused_as_passing_trouble),
        PROMISE(a_result_finds_the_next_socket_when_the_first_has_gone),
        PROMISE(a_result_goes_to_the_receiver_when_the_asker_has_gone),
        PROMISE(what_is_said_again_after_a_lost_socket_is_the_same_message),
        PROMISE(what_a_crash_cut_off_is_told_again_once_when_it_is_said_again),
        PROMISE(what_goes_on_after_a_restart_is_not_done_twice_when_it_is_said_again),
        PROMISE(the_same_words_in_another_thread_or_question_are_another_message),
        PROMISE(a_sleeping_socket_still_gets_its_results),
        PROMISE(a_request_keeps_nothing_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
