/* Promises of relay/in/commands.h: stopping a turn from either side. */
#include "relay/in/commands.h"
#include "relay/rig.h"
#include "tenancy/grants.h"

#define STOPPED "\"type\":\"interrupt_inbound\""
#define KEY "agent:main:relay:dm:c1" /* the client does not know "web" and files it under relay */

static void interrupt(struct fake *f, const char *key)
{
    char line[160];
    snprintf(line, sizeof line, "{\"type\":\"interrupt\",\"session_key\":\"%s\",\"reason\":null}",
             key);
    say(f, line);
}

static void a_gateways_interrupt_reaches_whoever_last_received_that_key(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    publish("a", "e1");
    publish("b", "e2"); /* the same chat, bob is the last */
    interrupt(f, KEY);
    assert_int_equal(count_with(f, STOPPED), 0);
    assert_int_equal(count_with(g, STOPPED), 1);
    assert_true(str_contains(line_with(g, STOPPED, 0), STR("\"session_key\":\"" KEY "\"")));
    assert_true(str_contains(line_with(g, STOPPED, 0), STR("\"chat_id\":\"c1\"")));
}

static void hear_in(const char *key, const char *id, struct str type, struct str thread)
{
    struct event ev = make_event(key, id);
    ev.chat_type = type;
    ev.thread_id = thread;
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}

static void an_interrupt_may_name_any_key_that_the_gateway_may_use(void **state)
{
    static const char *const keys[] = {
        "agent:main:relay:group:c1:u1",    /* the default */
        "agent:main:relay:group:c1",       /* one session for the group */
        "agent:main:relay:forum:c1:t1",    /* of a topic */
        "agent:main:relay:forum:c1:t1:u1", /* one for each person of a topic */
        "agent:work:relay:group:c1:u1",    /* a profile */
        "agent:work:relay:forum:c1:t1:u1",
    };
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    size_t seen = 0;

    hear_in("b", "e1", STR("group"), STR_NULL);
    hear_in("b", "e2", STR("forum"), STR("t1"));
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        advance(INTERRUPTS_UNREAD_MS);
        interrupt(f, keys[i]);
        char named[128];
        snprintf(named, sizeof named, "\"session_key\":\"%s\",\"chat_id\":\"c1\"", keys[i]);
        assert_int_equal(count_with(f, STOPPED), 0);
        assert_true(count_with(g, named) >= 1);
        assert_true(count_with(g, STOPPED) > seen);
        seen = count_with(g, STOPPED);
    }
    /* Released gateways know their turns without the profile. */
    assert_int_equal(count_with(g, "agent:main:relay:group:c1:u1"), 2);
    assert_int_equal(count_with(g, "agent:main:relay:forum:c1:t1:u1"), 2);
    interrupt(f, "agent:main:telegram:group:c1"); /* no chat of that platform */
    interrupt(f, "agent:main:relay:group:c10");
    assert_int_equal(count_with(g, STOPPED), seen);
}

static void the_reason_of_an_interrupt_travels(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    say(f, "{\"type\":\"interrupt\",\"session_key\":\"" KEY "\",\"reason\":\"a newer task\"}");
    assert_true(str_contains(line_with(f, STOPPED, 0), STR("\"reason\":\"a newer task\"")));
    advance(INTERRUPTS_UNREAD_MS);
    interrupt(f, KEY);
    assert_false(str_contains(line_with(f, STOPPED, 1), STR("reason")));
}

static void an_unknown_key_goes_to_the_only_instance_of_the_tenant(void **state)
{
    struct fake *f = connect_as("gw-a");
    interrupt(f, "agent:main:web:dm:never");
    assert_int_equal(count_with(f, STOPPED), 1);
    assert_true(str_contains(line_with(f, STOPPED, 0), STR("\"chat_id\":\"\"")));
}

static void an_unknown_key_is_dropped_when_there_are_several(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    interrupt(f, "agent:main:web:dm:never");
    assert_int_equal(count_with(f, STOPPED) + count_with(g, STOPPED), 0);
    assert_int_equal(relay_counters(rig.relay)->interrupts_dropped, 1);
}

static void an_interrupt_for_a_sleeper_is_dropped(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    publish("b", "e1");
    say(g, "{\"type\":\"going_idle\"}");
    interrupt(f, KEY);
    assert_int_equal(count_with(g, STOPPED), 0);
    assert_int_equal(relay_counters(rig.relay)->interrupts_dropped, 1);
}

static void a_persons_stop_is_an_interrupt_first_and_then_a_message(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish_text("a", "e1", "  /STOP\n");
    advance(INTERRUPT_HOLD_MS);
    ack(f, 0);
    publish_text("a", "e2", "/stop@Lobby");
    publish_text("a", "e2", "/stop@Lobby"); /* the platform repeats itself */
    assert_int_equal(count_with(f, STOPPED), 2);
    advance(INTERRUPT_HOLD_MS);
    assert_int_equal(inbound(f), 2);
    assert_true(line_with(f, STOPPED, 0).p < line_with(f, INBOUND, 0).p);
    assert_int_equal(accepted_ok(), 3);
    assert_int_equal(relay_counters(rig.relay)->stopped, 3);
    assert_true(str_contains(line_with(f, STOPPED, 0), STR("\"session_key\":\"" KEY "\"")));
}

static void say_in(const char *id, const char *text, struct str thread)
{
    struct event ev = make_event("a", id);

    ev.platform = STR("web");
    ev.chat_type = STR("group");
    ev.thread_id = thread;
    ev.message_id = str_of(id);
    ev.text = str_of(text);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    advance(INTERRUPT_HOLD_MS);
}

static void a_stop_outside_of_threads_stops_the_persons_newest_thread(void **state)
{
    struct fake *f = connect_as("gw-a");

    say_in("m1", "do this", STR("t1"));
    say_in("m2", "do that", STR("t2"));
    say_in("m3", "/stop", STR_NULL);
    assert_true(count_with(f, "relay:group:c1:t2\"") > 0);
    assert_int_equal(count_with(f, "relay:group:c1:t1\""), 0);
    say_in("m4", "/stop", STR("m4")); /* a mail that begins a thread of its own */
    assert_true(count_with(f, "relay:group:c1:m4\"") > 0);
    assert_int_equal(count_with(f, "relay:group:c1:t2\""), 2);
    say_in("m5", "/stop", STR("t1")); /* in a thread it means that thread */
    assert_int_equal(count_with(f, "relay:group:c1:t1\""), 1);
    assert_int_equal(count_with(f, "relay:group:c1:t2\""), 2);
    say_in("m6", "in no thread", STR_NULL);
    say_in("m7", "/stop", STR_NULL);
    assert_int_equal(count_with(f, "relay:group:c1:t2\""), 2);
}

static void a_stop_on_slack_costs_a_newer_gateway_one_interrupt(void **state)
{
    add_gateway("gw-s", "sue", NULL, "slack", "sl");
    struct fake *f = connect_as("gw-s");
    struct event ev = make_event("sl", "e1");

    say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"typing\","
           "\"chat_id\":\"c1\"}}"); /* a newer one */
    ev.platform = STR("slack");
    ev.bot = STR("sl");
    ev.scope_id = STR("T1");
    ev.message_id = STR("100.1");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    ev.event_id = STR("e2");
    ev.message_id = STR("100.2");
    ev.text = STR("/stop");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(count_with(f, STOPPED), 1);
    assert_int_equal(count_with(f, "\"agent:main:slack:dm:T1:c1:100.1\""), 1);
}

static void a_stop_for_another_bot_is_nobodys(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish_text("a", "e1", "/stop@other");
    assert_int_equal(count_with(f, STOPPED) + inbound(f), 0);
    assert_int_equal(accepted_ok(), 1);
}

static void more_than_the_bare_command_is_a_message(void **state)
{
    static const char *const texts[] = {"/stop now", "stop",         "/stopp",
                                        "/stop@",    "please /stop", "/sto"};
    struct fake *f = connect_as("gw-a");
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        publish_text("a", texts[i], texts[i]);
    assert_int_equal(count_with(f, STOPPED), 0);
    assert_int_equal(inbound(f), ARRAY_LEN(texts));
}

static void a_stop_said_by_a_bot_is_a_message(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("a", "e1");
    const struct grant_policy bots_too = {.platform = STR("web"), .allow_other_bots = true};
    grant_policy(rig.facts, (struct grant_who){STR("acme"), STR("ann")}, &bots_too,
                 rig_changed_fact, NULL);
    turn();
    ev.text = STR("/stop");
    ev.author_is_bot = true;
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(inbound(f), 1);
}

static void a_stop_reaches_every_instance_the_message_would_have(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    publish_text("both", "e1", "/stop");
    assert_int_equal(count_with(f, STOPPED), 1);
    assert_int_equal(count_with(g, STOPPED), 1);
}

static void interrupt_routing_survives_a_restart(void **state)
{
    publish("b", "e1");
    restart();
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    interrupt(f, KEY);
    assert_int_equal(count_with(f, STOPPED), 0);
    assert_int_equal(count_with(g, STOPPED), 1);
    assert_true(str_contains(line_with(g, STOPPED, 0), STR("\"chat_id\":\"c1\"")));
}

static void after_a_restart_a_session_is_run_by_whoever_received_it_last(void **state)
{
    static const char *const turns[] = {"a", "b", "a", "b", "b", "a"};
    for (size_t n = 0; n < ARRAY_LEN(turns); n++) {
        char id[8];
        snprintf(id, sizeof id, "e%zu", n);
        publish(turns[n], id);
        restart();
        struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
        interrupt(f, KEY);
        assert_int_equal(count_with(*turns[n] == 'a' ? f : g, STOPPED), 1);
        assert_int_equal(count_with(*turns[n] == 'a' ? g : f, STOPPED), 0);
    }
}

/* The sessions of one chat, by person. */
static void hear_in_group(const char *key, int person)
{
    char id[16], user[16];
    snprintf(id, sizeof id, "p%d", person);
    snprintf(user, sizeof user, "u%d", person);
    struct event ev = make_event(key, id);
    ev.chat_type = STR("group");
    ev.user_id = str_of(user);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}
#define GROUP_KEY "agent:main:relay:group:c1:u"

static void the_newest_sessions_of_a_chat_are_known_after_a_restart(void **state)
{
    for (int n = 0; n < 20; n++)
        hear_in_group("a", n);
    restart();
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    interrupt(g, GROUP_KEY "19");
    interrupt(g, GROUP_KEY "4");
    assert_int_equal(count_with(f, STOPPED), 2);
    interrupt(g, GROUP_KEY "3"); /* sixteen are remembered; an older one is found by its chat */
    assert_int_equal(count_with(f, STOPPED), 3);
}

static void a_known_session_is_not_written_again(void **state)
{
    publish("a", "e1");
    rig.tap.transactions = 0;
    publish("a", "e2");
    publish("both", "e3"); /* the first of bob's, and ann's chat is routed by another key now */
    publish("both", "e4");
    publish("both", "e5");
    assert_int_equal(rig.tap.transactions, 3); /* his chat and his own record; her chat */
}

static void a_chat_that_is_forgotten_takes_its_sessions_along(void **state)
{
    rig.web.secret_chats = true;
    rig.lim.max_chats = 1;
    restart();
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    publish("b", "e1");
    struct event ev = make_event("b", "e2");
    ev.chat_id = STR("c2");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    ev = make_event("b", "e3");
    ev.chat_id = STR("c2");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    interrupt(f, KEY);
    assert_int_equal(count_with(g, STOPPED), 0);
    assert_int_equal(relay_counters(rig.relay)->interrupts_dropped, 1);
}

static void the_text_follows_when_the_turn_had_time_to_end(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish_text("a", "e1", "/stop");
    publish("a", "e2");
    assert_int_equal(count_with(f, STOPPED), 1);
    advance(INTERRUPT_HOLD_MS - 100);
    assert_int_equal(inbound(f), 0);
    advance(100);
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "e1") && is_event(f, 1, "e2"));
}

static void a_stop_holds_back_no_other_chat(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("a", "e2");
    publish_text("a", "e1", "/stop");
    publish_text("a", "e1", "/stop"); /* the platform repeats itself */
    ev.chat_id = STR("c2");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e2"));
    assert_int_equal(count_with(f, STOPPED), 1);
    publish("a", "e3"); /* the chat of the /stop */
    advance(INTERRUPT_HOLD_MS - 100);
    assert_int_equal(inbound(f), 1);
    advance(100);
    assert_int_equal(inbound(f), 3);
    assert_true(is_event(f, 1, "e1") && is_event(f, 2, "e3"));
    assert_int_equal(accepted_ok(), 4);
}

static void stops_in_a_row_hold_their_chat_back_once(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish_text("a", "e1", "/stop");
    advance(INTERRUPT_HOLD_MS / 2);
    publish_text("a", "e2", "/stop");
    publish("a", "e3");
    advance(INTERRUPT_HOLD_MS / 2);
    assert_int_equal(inbound(f), 1);
    advance(INTERRUPT_HOLD_MS / 2);
    assert_int_equal(inbound(f), 3);
    assert_true(is_event(f, 0, "e1") && is_event(f, 1, "e2") && is_event(f, 2, "e3"));
}

static void a_held_stop_is_there_after_a_restart(void **state)
{
    connect_as("gw-a");
    publish_text("a", "e1", "/stop");
    assert_int_equal(accepted_ok(), 1);
    restart();
    struct fake *f = connect_as("gw-a");
    advance(INTERRUPT_HOLD_MS);
    assert_int_equal(inbound(f), 1);
}

static void a_text_that_is_held_reaches_the_next_socket_too(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish_text("a", "e1", "/stop");
    hang_up(f, 1006);
    struct fake *g = connect_as("gw-a");
    advance(INTERRUPT_HOLD_MS);
    assert_int_equal(inbound(g), 1);
}

static void a_stop_in_a_group_names_both_sessions_it_may_mean(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("a", "e1");
    ev.text = STR("/stop");
    ev.chat_type = STR("group");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(count_with(f, STOPPED), 2);
    assert_int_equal(count_with(f, "\"session_key\":\"agent:main:relay:group:c1:u1\""), 1);
    assert_int_equal(count_with(f, "\"session_key\":\"agent:main:relay:group:c1\""), 1);
}

static void a_flood_of_stops_is_one_interrupt_until_it_was_read(void **state)
{
    struct fake *f = connect_as("gw-a");
    for (int n = 0; n < 50; n++) {
        char id[8];
        snprintf(id, sizeof id, "e%d", n);
        publish_text("a", id, "/stop");
    }
    assert_int_equal(count_with(f, STOPPED), 1);
    interrupt(f, KEY); /* one by a gateway is another matter */
    assert_int_equal(count_with(f, STOPPED), 2);
    advance(INTERRUPT_HOLD_MS);
    ack(f, 0);
    publish_text("a", "later", "/stop");
    assert_int_equal(count_with(f, STOPPED), 3);
    publish_text("a", "at once", "/stop");
    assert_int_equal(count_with(f, STOPPED), 3);
    advance(2000);
    publish_text("a", "latest", "/stop");
    assert_int_equal(count_with(f, STOPPED), 4);
}

static void interrupts_nobody_reads_are_bounded_in_all(void **state)
{
    struct fake *f = connect_as("gw-a");
    for (int n = 0; n < 100; n++) {
        char key[64];
        snprintf(key, sizeof key, "agent:main:web:dm:%d", n);
        interrupt(f, key);
    }
    assert_int_equal(count_with(f, STOPPED), 32);
    assert_int_equal(relay_counters(rig.relay)->interrupts_dropped, 68);
}

UNIT(relay_test_interrupt)
{
    const struct CMUnitTest tests[] = {
        PROMISE(a_gateways_interrupt_reaches_whoever_last_received_that_key),
        PROMISE(an_interrupt_may_name_any_key_that_the_gateway_may_use),
        PROMISE(the_reason_of_an_interrupt_travels),
        PROMISE(an_unknown_key_goes_to_the_only_instance_of_the_tenant),
        PROMISE(an_unknown_key_is_dropped_when_there_are_several),
        PROMISE(an_interrupt_for_a_sleeper_is_dropped),
        PROMISE(a_persons_stop_is_an_interrupt_first_and_then_a_message),
        PROMISE(a_stop_outside_of_threads_stops_the_persons_newest_thread),
        PROMISE(a_stop_on_slack_costs_a_newer_gateway_one_interrupt),
        PROMISE(a_stop_for_another_bot_is_nobodys),
        PROMISE(more_than_the_bare_command_is_a_message),
        PROMISE(a_stop_said_by_a_bot_is_a_message),
        PROMISE(a_stop_reaches_every_instance_the_message_would_have),
        PROMISE(interrupt_routing_survives_a_restart),
        PROMISE(after_a_restart_a_session_is_run_by_whoever_received_it_last),
        PROMISE(the_newest_sessions_of_a_chat_are_known_after_a_restart),
        PROMISE(a_known_session_is_not_written_again),
        PROMISE(a_chat_that_is_forgotten_takes_its_sessions_along),
        PROMISE(the_text_follows_when_the_turn_had_time_to_end),
        PROMISE(a_stop_holds_back_no_other_chat),
        PROMISE(stops_in_a_row_hold_their_chat_back_once),
        PROMISE(a_held_stop_is_there_after_a_restart),
        PROMISE(a_text_that_is_held_reaches_the_next_socket_too),
        PROMISE(a_stop_in_a_group_names_both_sessions_it_may_mean),
        PROMISE(a_flood_of_stops_is_one_interrupt_until_it_was_read),
        PROMISE(interrupts_nobody_reads_are_bounded_in_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
