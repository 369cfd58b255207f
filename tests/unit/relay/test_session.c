/* Promises of relay/session/session.h: handshakes, several sockets, sleep, silence, nonsense. */
#include "relay/rig.h"
#include "relay/sleep/instance.h"
#include "relay/session/session.h"

static void sleep_now(struct fake *f)
{
    say(f, "{\"type\": \"going_idle\"}");
}
#define IDLE_ACK "\"going_idle_ack\""

static void every_hello_is_answered_with_a_descriptor_of_its_platform(void **state)
{
    struct fake *f = dial("gw-a");
    hello(f);
    say(f, "{\"type\":\"hello\",\"platform\":\"telegram\",\"botId\":\"tg\"}");
    say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"another\"}");
    assert_int_equal(count_with(f, "\"type\":\"descriptor\""), 3);
    assert_true(str_contains(line_with(f, "descriptor", 0), STR("\"platform\":\"web\"")));
    assert_true(str_contains(line_with(f, "descriptor", 1), STR("\"platform\":\"telegram\"")));
    assert_true(str_contains(line_with(f, "descriptor", 2), STR("\"platform\":\"web\"")));
}

static void an_unknown_platform_gets_the_descriptor_of_relay(void **state)
{
    struct fake *f = dial("gw-a");
    say(f, "{\"type\":\"hello\",\"platform\":\"pigeon\",\"botId\":\"\"}");
    assert_true(str_contains(line_with(f, "descriptor", 0), STR("\"platform\":\"relay\"")));
    assert_state("ann", "live");
}

static void relay_without_a_bot_means_the_platform_the_gateway_was_added_for(void **state)
{
    add_gateway("gw-t", "tim", NULL, "telegram", "tg");
    struct fake *f = dial("gw-t");
    say(f, "{\"type\":\"hello\",\"platform\":\"relay\",\"botId\":\"\"}");
    assert_true(str_contains(line_with(f, "descriptor", 0), STR("\"platform\":\"telegram\"")));
}

static void nothing_is_delivered_before_the_first_hello(void **state)
{
    publish("a", "e1");
    struct fake *f = dial("gw-a");
    turn();
    assert_int_equal(f->n_messages, 0);
    hello(f);
    assert_true(str_contains(line_with(f, "type", 0), STR("descriptor")));
    assert_true(str_contains(line_with(f, "type", 1), STR("inbound")));
}

static void the_newest_handshake_receives_the_unacked_tail_and_what_is_new(void **state)
{
    struct fake *old = connect_as("gw-a");
    publish("a", "e1");
    publish("a", "e2");
    ack(old, 0);
    struct fake *young = connect_as("gw-a");
    publish("a", "e3");
    assert_int_equal(inbound(old), 2);
    assert_int_equal(inbound(young), 2);
    assert_true(is_event(young, 0, "e2"));
    assert_true(is_event(young, 1, "e3"));
}

static void a_late_ack_on_the_older_socket_counts(void **state)
{
    struct fake *old = connect_as("gw-a");
    publish("a", "e1");
    struct fake *young = connect_as("gw-a");
    ack(old, 0);
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(look("ann").unacked, 0);
    (void)young;
}

static void an_older_socket_takes_over_when_the_newest_closes_and_gets_nothing_twice(void **state)
{
    struct fake *old = connect_as("gw-a");
    publish("a", "e1");
    struct fake *young = connect_as("gw-a");
    publish("a", "e2");
    hang_up(young, 1006);
    assert_state("ann", "live");
    publish("a", "e3");
    assert_int_equal(inbound(old), 3);
    assert_true(is_event(old, 0, "e1"));
    assert_true(is_event(old, 1, "e2"));
    assert_true(is_event(old, 2, "e3"));
}

static void a_socket_that_never_says_hello_is_closed_with_1008_after_a_minute(void **state)
{
    struct fake *f = dial("gw-a");
    for (int i = 0; i < 59; i++) {
        advance(1000);
        pong(f);
    }
    assert_int_equal(f->close_code, 0);
    advance(2000);
    assert_int_equal(f->close_code, 1008);
}

static void an_older_socket_is_closed_with_1012_after_a_minute(void **state)
{
    struct fake *old = connect_as("gw-a");
    struct fake *young = connect_as("gw-a");
    for (int i = 0; i < 59; i++) {
        advance(1000);
        pong(old);
        pong(young);
    }
    assert_int_equal(old->close_code, 0);
    advance(1500);
    assert_int_equal(old->close_code, 1012);
    assert_int_equal(young->close_code, 0);
}

static void a_second_hello_on_an_older_socket_only_gets_its_descriptor(void **state)
{
    struct fake *old = connect_as("gw-a");
    struct fake *young = connect_as("gw-a");
    hello(old);
    publish("a", "e1");
    assert_int_equal(inbound(old), 0);
    assert_int_equal(inbound(young), 1);
}

static void going_idle_is_acked_only_when_the_flip_is_on_disk(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.hold = true;
    sleep_now(f);
    assert_int_equal(count_with(f, IDLE_ACK), 0);
    assert_state("ann", "asleep");
    rig_release();
    assert_int_equal(count_with(f, IDLE_ACK), 1);
}

static void going_idle_is_acked_only_when_all_that_was_sent_is_acked_or_on_disk(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    ack(f, 0);
    rig.tap.refuse = true;
    publish("a", "e1");
    rig.tap.refuse = false;
    sleep_now(f);
    assert_int_equal(inbound(f), 2);
    assert_int_equal(count_with(f, IDLE_ACK), 0); /* the sleep is on disk, e1 is not */
    advance(1000);
    assert_int_equal(count_with(f, IDLE_ACK), 1);
    assert_int_equal(rows(), 1);
}

static void what_lands_between_going_idle_and_its_ack_is_sent_live(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.hold = true;
    sleep_now(f);
    offer("a", "e1");
    turn();
    assert_int_equal(inbound(f), 1);
    assert_int_equal(count_with(f, IDLE_ACK), 0);
    offer("a", "e2");
    ack(f, 0); /* and it goes on: its acks make room for more */
    turn();
    assert_int_equal(inbound(f), 2);
    rig_release();
    assert_int_equal(count_with(f, IDLE_ACK), 1);
    assert_state("ann", "asleep");
    assert_int_equal(rig.pokes, 0);
    publish("a", "e3");
    assert_int_equal(inbound(f), 2);
    assert_int_equal(rig.pokes, 1); /* what comes after the ack is for a sleeper */
}

static void only_what_is_unacked_when_a_sleeper_closes_pokes(void **state)
{
    for (int acked = 1; acked >= 0; acked--) {
        struct fake *f = connect_as("gw-a");
        rig.tap.hold = true;
        sleep_now(f);
        offer("a", acked ? "e1" : "e2");
        turn();
        rig_release();
        assert_int_equal(inbound(f), 1);
        assert_int_equal(count_with(f, IDLE_ACK), 1);
        advance(15000);
        pong(f);
        if (acked)
            ack(f, 0);
        assert_int_equal(rig.pokes, 0);
        hang_up(f, 1000);
        advance(5000);
        assert_int_equal(rig.pokes, !acked);
    }
    assert_true(is_event(connect_as("gw-a"), 0, "e2"));
}

static void an_unwritten_flip_keeps_an_agent_live_that_says_hello_again(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.hold = true;
    sleep_now(f);
    hello(f);
    rig_release();
    assert_int_equal(count_with(f, IDLE_ACK), 0);
    assert_state("ann", "live");
    publish("a", "e1");
    assert_int_equal(inbound(f), 1);
    restart();
    assert_state("ann", "away"); /* the record says so too */
}

static void a_newer_socket_takes_over_from_one_that_waits_for_its_idle_ack(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.hold = true;
    sleep_now(f);
    offer("a", "e1");
    turn();
    struct fake *g = connect_as("gw-a");
    rig_release();
    assert_state("ann", "live");
    assert_int_equal(count_with(f, IDLE_ACK), 1);
    assert_true(is_event(g, 0, "e1"));
    publish("a", "e2");
    assert_int_equal(inbound(f), 1);
    assert_int_equal(inbound(g), 2);
}

static void after_its_ack_deliveries_are_only_kept(void **state)
{
    struct fake *f = connect_as("gw-a");
    sleep_now(f);
    publish("a", "e1");
    assert_int_equal(inbound(f), 0);
    assert_int_equal(rows(), 1);
    assert_int_equal(accepted_ok(), 1);
}

static void a_stream_of_events_does_not_hold_the_idle_ack_back(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    session_data(f->s, STR("{\"type\":\"going_idle\"}\n"));
    rig.tap.hold = true;
    for (int i = 0; i < 5; i++)
        offer("a", (const char[][3]){"f0", "f1", "f2", "f3", "f4"}[i]);
    turn(); /* the sleep was written before the tap closed; these are not on disk */
    assert_int_equal(count_with(f, IDLE_ACK), 1);
    rig_release();
}

static void going_idle_twice_is_acked_twice_and_flips_once(void **state)
{
    struct fake *f = connect_as("gw-a");
    sleep_now(f);
    sleep_now(f);
    assert_int_equal(count_with(f, IDLE_ACK), 2);
    assert_int_equal(relay_counters(rig.relay)->sleeps, 1);
}

static void going_idle_before_hello_is_legal(void **state)
{
    struct fake *f = dial("gw-a");
    sleep_now(f);
    assert_int_equal(count_with(f, IDLE_ACK), 1);
    assert_state("ann", "asleep");
}

static void a_hello_after_going_idle_on_the_same_socket_resumes(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    sleep_now(f);
    publish("a", "e2");
    hello(f);
    assert_state("ann", "live");
    assert_int_equal(inbound(f), 2); /* e1 is not sent a second time on it */
    assert_true(is_event(f, 1, "e2"));
}

static void the_flip_survives_a_restart_and_the_next_handshake_ends_it(void **state)
{
    struct fake *f = connect_as("gw-a");
    sleep_now(f);
    hang_up(f, 1000);
    publish("a", "e1");
    restart();
    assert_state("ann", "asleep");
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    restart();
    assert_state("ann", "away");
}

static void a_sleeping_instance_is_not_taken_over_by_an_older_socket(void **state)
{
    struct fake *old = connect_as("gw-a");
    struct fake *young = connect_as("gw-a");
    sleep_now(young);
    hang_up(young, 1000);
    publish("a", "e1");
    assert_int_equal(inbound(old), 0);
    assert_int_equal(old->close_code, 1012);
    assert_state("ann", "asleep");
}

static void going_idle_on_an_older_socket_does_not_put_the_newer_one_to_sleep(void **state)
{
    struct fake *old = connect_as("gw-a");
    struct fake *young = connect_as("gw-a");
    sleep_now(old);
    assert_int_equal(count_with(old, IDLE_ACK), 1);
    publish("a", "e1");
    assert_int_equal(inbound(young), 1);
    assert_state("ann", "live");
}

static void closing_after_an_acked_going_idle_is_no_attempt(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    sleep_now(f);
    hang_up(f, 1000);
    assert_int_equal(rig.tap.marks, 0);
}

static void no_pong_for_20_seconds_means_away_and_a_pong_resumes(void **state)
{
    struct fake *f = connect_as("gw-a");
    advance(10000); /* the first ping */
    assert_int_equal(f->pings, 1);
    advance(20000);
    assert_state("ann", "away");
    publish("a", "e1");
    assert_int_equal(inbound(f), 0);
    pong(f);
    assert_state("ann", "live");
    assert_int_equal(inbound(f), 1);
}

static void live_for(struct fake *f, int64_t ms)
{
    for (; ms > 0; ms -= 5000) {
        advance(5000);
        pong(f);
    }
}

static void no_ack_for_90_seconds_means_away_until_it_acks(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    live_for(f, 85000);
    assert_state("ann", "live");
    live_for(f, 10000);
    assert_state("ann", "away");
    publish("a", "e2");
    pong(f);
    assert_int_equal(inbound(f), 1); /* a pong is not enough */
    ack(f, 0);
    assert_state("ann", "live");
    assert_int_equal(inbound(f), 2);
}

static void a_socket_that_never_acks_is_closed_after_three_patiences(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    live_for(f, 265000);
    assert_int_equal(f->close_code, 0);
    live_for(f, 10000);
    assert_int_equal(f->close_code, 1012);
}

static void nothing_is_sent_twice_on_a_socket_that_was_away(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    advance(31000);
    assert_state("ann", "away");
    pong(f);
    publish("a", "e2");
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 1, "e2"));
}

static void a_gateway_that_talks_but_never_acks_is_recognised(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    rig.act_at_once = true;
    say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"send\",\"chat_id\":"
           "\"c1\","
           "\"content\":\"hi\",\"reply_to\":null,\"metadata\":{}}}");
    live_for(f, 95000);
    assert_state("ann", "live");
    pong(f);
    assert_int_equal(look("ann").entries, 0);
    assert_true(facts_gateway(rig.facts, STR("gw-a"))->ackless);
    publish("a", "e2");
    pong(f); /* behind e2 went a ping: its pong says it was read */
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(rows(), 0);
}

static void answer_to(struct fake *f, const char *request, const char *message)
{
    char line[256];
    snprintf(line, sizeof line,
             "{\"type\":\"outbound\",\"requestId\":\"%s\",\"action\":{\"op\":\"send\",\"chat_id\":"
             "\"c1\","
             "\"content\":\"hi\",\"reply_to\":\"%s\",\"metadata\":{}}}",
             request, message);
    say(f, line);
}

static void answering_two_deliveries_without_an_ack_proves_it_sooner(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.act_at_once = true;
    publish("a", "e1");
    publish("a", "e2");
    advance(6000);
    answer_to(f, "r1", "e1");
    answer_to(f, "r2", "e1");
    assert_false(facts_gateway(rig.facts, STR("gw-a"))->ackless);
    answer_to(f, "r3", "e2");
    assert_true(facts_gateway(rig.facts, STR("gw-a"))->ackless);
    pong(f);
    assert_int_equal(look("ann").entries, 0);
}

static void one_that_never_acks_and_answers_after_it_was_given_up_is_recognised_too(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.act_at_once = true;
    publish("a", "e1");
    live_for(f, 95000);
    assert_state("ann", "away");
    answer_to(f, "r1", "e1");
    assert_state("ann", "live");
    assert_true(facts_gateway(rig.facts, STR("gw-a"))->ackless);
    pong(f);
    assert_int_equal(look("ann").entries, 0);
    publish("a", "e2");
    assert_int_equal(inbound(f), 2);
}

static void one_that_has_acked_before_is_not_settled_by_a_late_answer(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.act_at_once = true;
    publish("a", "e1");
    ack(f, 0);
    publish("a", "e2");
    live_for(f, 95000);
    assert_state("ann", "away");
    answer_to(f, "r1", "e2");
    pong(f);
    assert_int_equal(look("ann").entries, 1);
    assert_false(facts_gateway(rig.facts, STR("gw-a"))->ackless);
}

static void one_that_acks_late_is_neither_away_nor_taken_for_one_that_never_acks(void **state)
{
    struct fake *f = dial("gw-a");
    rig.act_at_once = true;
    say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\",\"late_acks\":true}");
    publish("a", "e1");
    publish("a", "e2");
    live_for(f, 600000);
    assert_state("ann", "live");
    answer_to(f, "r1", "e1");
    answer_to(f, "r2", "e2");
    live_for(f, 10000);
    answer_to(f, "r3", "e1");
    pong(f);
    assert_int_equal(look("ann").entries, 2);
    assert_false(facts_gateway(rig.facts, STR("gw-a"))->ackless);
    ack(f, 0);
    ack(f, 1);
    assert_int_equal(look("ann").entries, 0);
    publish("a", "e3");
    advance(10000); /* its pongs count as everybody's */
    advance(20000);
    assert_state("ann", "away");
}

static void the_first_ack_clears_the_mark(void **state)
{
    facts_gateway_set_ackless(rig.facts, STR("gw-a"), true);
    turn();
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ack(f, 0);
    assert_false(facts_gateway(rig.facts, STR("gw-a"))->ackless);
    publish("a", "e2");
    pong(f);
    assert_int_equal(look("ann").entries, 1); /* it waits for its ack again */
}

static void malformed_frames_are_counted_and_ten_in_a_minute_close_with_1008(void **state)
{
    struct fake *f = connect_as("gw-a");
    for (int i = 0; i < 9; i++)
        say(f, i % 2 == 0 ? "not json" : "[1,2]");
    assert_int_equal(f->close_code, 0);
    advance(61000);
    pong(f);
    for (int i = 0; i < 9; i++)
        say(f, "\xff\xfe");
    assert_int_equal(f->close_code, 0); /* the earlier ones are forgiven */
    say(f, "{");
    assert_int_equal(f->close_code, 1008);
    assert_int_equal(relay_counters(rig.relay)->frames_malformed, 19);
}

static void a_gateway_that_only_falls_asleep_and_wakes_is_closed_with_1008(void **state)
{
    struct fake *f = connect_as("gw-a");
    for (int i = 0; i < 60; i++) {
        say(f, "{\"type\":\"going_idle\"}");
        hello(f);
    }
    advance(20000);
    pong(f);
    for (int i = 0; i < 100; i++) {
        say(f, "{\"type\":\"going_idle\"}");
        hello(f);
    }
    assert_int_equal(f->close_code, 0);
    say(f, "{\"type\":\"going_idle\"}");
    assert_int_equal(f->close_code, 1008);
}

static struct buf nowhere;
static size_t n_closed, n_sleep_acks;
static void mute_send(struct wire *l, struct str message)
{
}
static struct buf *mute_begin(struct wire *l)
{
    buf_reset(&nowhere);
    return &nowhere;
}
static void mute_end(struct wire *l)
{
    n_sleep_acks += str_contains(buf_str(&nowhere), STR("going_idle_ack"));
}
static void mute_ping(struct wire *l, uint32_t number)
{
}
static void mute_close(struct wire *l, enum close_reason why)
{
    n_closed += contract_closes[why].code == 1012;
}

static const struct wire_ops mute_ops = {mute_send, mute_begin, mute_end, mute_ping, mute_close};

static void two_hundred_and_fifty_six_sockets_may_wait_for_their_going_idle_ack(void **state)
{
    static struct wire wires[256];
    static struct session *sessions[ARRAY_LEN(wires)];
    size_t n = ARRAY_LEN(wires);

    log_setup(LOG_WARN, false);
    connect_as("gw-a"); /* its record is there */
    rig.tap.hold = true;
    n_sleep_acks = 0;
    for (size_t i = 0; i < n; i++) {
        wires[i].ops = &mute_ops;
        sessions[i] = session_open(rig.relay, facts_gateway(rig.facts, STR("gw-a")), &wires[i]);
        session_data(sessions[i], STR("{\"type\":\"hello\",\"platform\":\"web\"}\n"));
        session_data(sessions[i], STR("{\"type\":\"going_idle\"}\n"));
        if (i % 100 == 99)
            advance(20000); /* it may not fall asleep more often than that */
    }
    assert_int_equal(n_sleep_acks, 0);
    rig_release();
    assert_int_equal(n_sleep_acks, n);
    for (size_t i = 0; i < n; i++)
        session_closed(sessions[i], 1000);
    log_setup(LOG_INFO, false);
    buf_done(&nowhere);
}

static void any_number_of_older_sockets_closes_with_the_sleeper(void **state)
{
    static struct wire wires[60000];
    static struct session *sessions[ARRAY_LEN(wires)];
    size_t n = ARRAY_LEN(wires);

    log_setup(LOG_WARN, false);
    n_closed = 0;
    for (size_t i = 0; i < n; i++) {
        wires[i].ops = &mute_ops;
        sessions[i] = session_open(rig.relay, facts_gateway(rig.facts, STR("gw-a")), &wires[i]);
        session_data(sessions[i], STR("{\"type\":\"hello\",\"platform\":\"web\"}\n"));
    }
    session_data(sessions[n - 1], STR("{\"type\":\"going_idle\"}\n"));
    turn();
    assert_int_equal(n_closed, 0);
    session_closed(sessions[n - 1], 1000);
    assert_int_equal(n_closed, n - 1);
    for (size_t i = 0; i + 1 < n; i++)
        session_closed(sessions[i], 1012);
    turn();
    assert_state("ann", "asleep");
    log_setup(LOG_INFO, false);
    buf_done(&nowhere);
}

static void unknown_frames_are_ignored_and_counted(void **state)
{
    struct fake *f = connect_as("gw-a");
    for (int i = 0; i < 50; i++)
        say(f, "{\"type\":\"newfangled\",\"x\":1}");
    assert_int_equal(f->close_code, 0);
    assert_int_equal(relay_counters(rig.relay)->frames_unknown, 50);
}

static void a_frame_over_the_limit_is_closed_with_1009_and_costs_no_memory(void **state)
{
    struct fake *f = connect_as("gw-a");
    char piece[4096];
    memset(piece, 'x', sizeof piece);
    for (int i = 0; i < 256; i++)
        session_data(f->s, str_make(piece, sizeof piece));
    assert_int_equal(f->close_code, 0);
    session_data(f->s, str_make(piece, 1));
    assert_int_equal(f->close_code, 1009);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(session_data(f->s, str_make(piece, sizeof piece)), 0);
}

static void behind_a_frame_over_the_limit_acks_still_count(void **state)
{
    struct fake *f = connect_as("gw-a");
    char piece[4096];

    publish("a", "e1");
    memset(piece, 'x', sizeof piece);
    for (int i = 0; i < 300; i++)
        session_data(f->s, str_make(piece, sizeof piece));
    assert_int_equal(f->close_code, 1009);
    ack(f, 0); /* ends the long line */
    assert_int_equal(look("ann").entries, 1);
    ack(f, 0);
    assert_int_equal(look("ann").entries, 0);
}

static void frames_may_come_in_any_pieces(void **state)
{
    static const char text[] = "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\"}\r\n\n"
                               "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\"}\n";
    for (size_t cut = 1; cut < sizeof text; cut += 13) {
        struct fake *f = dial("gw-a");
        size_t kept = 0;
        for (size_t at = 0; at < sizeof text - 1; at += cut) {
            size_t left = sizeof text - 1 - at;
            kept = session_data(f->s, str_make(text + at, left < cut ? left : cut));
        }
        assert_int_equal(kept, 0);
        assert_int_equal(count_with(f, "descriptor"), 2);
    }
}

static void an_ack_of_something_never_sent_is_ignored(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    publish("b", "e1");
    ack_line(f, line_with(g, INBOUND, 0)); /* another instance's */
    assert_int_equal(look("bob").entries, 1);
    say(f, "{\"type\":\"inbound_ack\",\"bufferId\":\"\"}");
    say(f, "{\"type\":\"inbound_ack\",\"bufferId\":\"b0\"}");
    say(f, "{\"type\":\"inbound_ack\",\"bufferId\":\"zzzzzzzzzzzzzzzzzzzzzzzz\"}");
    assert_int_equal(f->close_code, 0);
}

static void revoking_a_gateway_closes_its_sockets_with_4401_at_once(void **state)
{
    struct fake *f = connect_as("gw-a"), *g = connect_as("gw-b");
    facts_gateway_revoke(rig.facts, STR("gw-a"), rig_changed_fact, NULL);
    turn();
    assert_int_equal(f->close_code, 4401);
    assert_int_equal(g->close_code, 0);
}

static void platforms_are_told_of_every_change_of_state(void **state)
{
    struct fake *f = connect_as("gw-a");
    sleep_now(f);
    hang_up(f, 1000);
    f = connect_as("gw-a");
    hang_up(f, 1006);
    assert_string_equal(rig.changed, "ann=live ann=asleep ann=live ann=away ");
}

static void an_idle_session_is_small(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ack(f, 0);
    live_for(f, 30000);
    assert_true(sizeof(struct session) <= 224);
    assert_null(f->s->flight);
    assert_null(f->s->line);
    assert_null(f->s->inst->mb.ring);
    publish("a", "e2"); /* and works again after it slimmed down */
    assert_int_equal(inbound(f), 2);
}

UNIT(relay_test_session)
{
    const struct CMUnitTest tests[] = {
        PROMISE(every_hello_is_answered_with_a_descriptor_of_its_platform),
        PROMISE(an_unknown_platform_gets_the_descriptor_of_relay),
        PROMISE(relay_without_a_bot_means_the_platform_the_gateway_was_added_for),
        PROMISE(nothing_is_delivered_before_the_first_hello),
        PROMISE(the_newest_handshake_receives_the_unacked_tail_and_what_is_new),
        PROMISE(a_late_ack_on_the_older_socket_counts),
        PROMISE(an_older_socket_takes_over_when_the_newest_closes_and_gets_nothing_twice),
        PROMISE(a_socket_that_never_says_hello_is_closed_with_1008_after_a_minute),
        PROMISE(an_older_socket_is_closed_with_1012_after_a_minute),
        PROMISE(a_second_hello_on_an_older_socket_only_gets_its_descriptor),
        PROMISE(going_idle_is_acked_only_when_the_flip_is_on_disk),
        PROMISE(going_idle_is_acked_only_when_all_that_was_sent_is_acked_or_on_disk),
        PROMISE(what_lands_between_going_idle_and_its_ack_is_sent_live),
        PROMISE(only_what_is_unacked_when_a_sleeper_closes_pokes),
        PROMISE(an_unwritten_flip_keeps_an_agent_live_that_says_hello_again),
        PROMISE(a_newer_socket_takes_over_from_one_that_waits_for_its_idle_ack),
        PROMISE(after_its_ack_deliveries_are_only_kept),
        PROMISE(a_stream_of_events_does_not_hold_the_idle_ack_back),
        PROMISE(going_idle_twice_is_acked_twice_and_flips_once),
        PROMISE(going_idle_before_hello_is_legal),
        PROMISE(a_hello_after_going_idle_on_the_same_socket_resumes),
        PROMISE(the_flip_survives_a_restart_and_the_next_handshake_ends_it),
        PROMISE(a_sleeping_instance_is_not_taken_over_by_an_older_socket),
        PROMISE(going_idle_on_an_older_socket_does_not_put_the_newer_one_to_sleep),
        PROMISE(closing_after_an_acked_going_idle_is_no_attempt),
        PROMISE(no_pong_for_20_seconds_means_away_and_a_pong_resumes),
        PROMISE(no_ack_for_90_seconds_means_away_until_it_acks),
        PROMISE(a_socket_that_never_acks_is_closed_after_three_patiences),
        PROMISE(nothing_is_sent_twice_on_a_socket_that_was_away),
        PROMISE(a_gateway_that_talks_but_never_acks_is_recognised),
        PROMISE(answering_two_deliveries_without_an_ack_proves_it_sooner),
        PROMISE(one_that_never_acks_and_answers_after_it_was_given_up_is_recognised_too),
        PROMISE(one_that_has_acked_before_is_not_settled_by_a_late_answer),
        PROMISE(one_that_acks_late_is_neither_away_nor_taken_for_one_that_never_acks),
        PROMISE(the_first_ack_clears_the_mark),
        PROMISE(malformed_frames_are_counted_and_ten_in_a_minute_close_with_1008),
        PROMISE(a_gateway_that_only_falls_asleep_and_wakes_is_closed_with_1008),
        PROMISE(two_hundred_and_fifty_six_sockets_may_wait_for_their_going_idle_ack),
        PROMISE(any_number_of_older_sockets_closes_with_the_sleeper),
        PROMISE(unknown_frames_are_ignored_and_counted),
        PROMISE(a_frame_over_the_limit_is_closed_with_1009_and_costs_no_memory),
        PROMISE(behind_a_frame_over_the_limit_acks_still_count),
        PROMISE(frames_may_come_in_any_pieces),
        PROMISE(an_ack_of_something_never_sent_is_ignored),
        PROMISE(revoking_a_gateway_closes_its_sockets_with_4401_at_once),
        PROMISE(platforms_are_told_of_every_change_of_state),
        PROMISE(an_idle_session_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
