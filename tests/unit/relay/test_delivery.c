/* Promises of relay/in/accept.h and relay/mailbox/mailbox.h: taking events in and keeping them. */
#include "relay/rig.h"

static void an_event_for_a_live_gateway_goes_out_at_once_with_a_buffer_id(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.hold = true;
    publish("a", "e1");
    assert_int_equal(inbound(f), 1);
    assert_non_null(buffer_id(line_with(f, INBOUND, 0)).p);
    assert_int_equal(accepted_ok(), 0); /* neither acked nor on disk yet */
    rig_release();
    assert_int_equal(accepted_ok(), 1);
}

static void an_ack_before_the_write_shrinks_it_to_its_key(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    ack(f, 0);
    rig.tap.hold = true;
    publish("a", "e1");
    ack(f, 1);
    assert_int_equal(accepted_ok(), 2); /* acked is as good as stored */
    assert_int_equal(rig.tap.shrunk, 1);
    rig_release();
    assert_int_equal(rows(), 0);
    publish("a", "e1"); /* the key was written */
    assert_int_equal(inbound(f), 2);
}

/* Otherwise a crash could leave an agent with a message that it may not answer. */
static void the_first_message_of_a_chat_is_answered_when_the_chats_record_is_on_disk(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.hold = true;
    publish("a", "e1");
    ack(f, 0);
    assert_int_equal(accepted_ok(), 0); /* acked, and the chat is not on disk */
    rig_release();
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(rows(), 0);
    rig.tap.hold = true;
    publish("a", "e2");
    ack(f, 1);
    assert_int_equal(accepted_ok(), 2); /* the chat is known */
    rig_release();
}

static void an_ack_after_the_write_deletes_the_row(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    assert_int_equal(rows(), 1);
    ack(f, 0);
    assert_int_equal(rows(), 0);
    assert_int_equal(look("ann").entries, 0);
}

static void acks_of_one_turn_are_one_write(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct buf b = BUF_INIT;
    for (int i = 0; i < 8; i++)
        offer("a", (const char[][3]){"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"}[i]);
    turn();
    for (size_t i = 0; i < 8; i++)
        buf_printf(&b, "{\"type\":\"inbound_ack\",\"bufferId\":\"%.*s\"}\n",
                   STR_FMT(buffer_id(line_with(f, INBOUND, i))));
    size_t before = rig.tap.acks;
    session_data(f->s, buf_str(&b));
    turn();
    assert_int_equal(rig.tap.acks, before + 1);
    assert_int_equal(rig.tap.acked_ids, 8);
    buf_done(&b);
}

static void an_event_for_nobody_present_is_urgent_and_answered_when_on_disk(void **state)
{
    publish("a", "e1");
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(rig.tap.urgent, 1);
    assert_int_equal(rows(), 1);
    assert_state("ann", "never");
}

static void an_event_for_two_is_answered_when_both_copies_are_safe(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("both", "e0");
    rig.tap.hold = true;
    publish("both", "e1");
    ack(f, 1);
    assert_int_equal(accepted_ok(), 1); /* bob's copy is not on disk */
    rig_release();
    assert_int_equal(accepted_ok(), 2);
}

static void an_event_nobody_is_routed_for_is_counted_and_confirmed(void **state)
{
    publish("nowhere", "e1");
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(relay_counters(rig.relay)->unrouted, 1);
}

static void an_event_for_an_instance_that_is_being_added_comes_again(void **state)
{
    relay_expect(rig.relay, 1);
    publish("nowhere", "e1");
    assert_int_equal(accepted_ok(), 0);
    assert_int_equal(rig.answers[BH_BUSY], 1);
    assert_int_equal(relay_counters(rig.relay)->unrouted, 0);
    publish("both", "e2"); /* of others it is safe */
    assert_int_equal(rig.answers[BH_BUSY], 1);
    relay_expect(rig.relay, -1);
    publish("nowhere", "e1");
    assert_int_equal(relay_counters(rig.relay)->unrouted, 1);
}

static void an_answer_never_comes_inside_the_call(void **state)
{
    offer("nowhere", "e1");
    assert_int_equal(accepted_ok(), 0);
    turn();
    assert_int_equal(accepted_ok(), 1);
}

static void a_duplicate_is_confirmed_and_not_delivered(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    publish("a", "e1");
    ack(f, 0);
    publish("a", "e1");
    assert_int_equal(inbound(f), 1);
    assert_int_equal(accepted_ok(), 3);
    assert_int_equal(relay_counters(rig.relay)->duplicates, 2);
}

static void a_duplicate_of_one_still_pending_is_answered_with_it(void **state)
{
    publish("a", "e0");
    rig.tap.hold = true;
    publish("a", "e1");
    publish("a", "e1");
    assert_int_equal(accepted_ok(), 1);
    rig_release();
    assert_int_equal(accepted_ok(), 3);
    assert_int_equal(rows(), 2);
}

static void a_duplicate_is_recognised_after_a_restart(void **state)
{
    publish("a", "e1");
    restart();
    publish("a", "e1");
    assert_int_equal(rows(), 1);
    assert_int_equal(accepted_ok(), 2);
}

static void an_event_without_an_id_is_never_a_duplicate(void **state)
{
    struct event ev = make_event("a", "x");
    ev.event_id = STR_NULL;
    for (int i = 0; i < 2; i++)
        relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(rows(), 2);
}

static void what_the_store_refuses_is_reported_and_taken_as_new_when_it_comes_again(void **state)
{
    publish("a", "e0");
    rig.tap.refuse = true;
    publish("a", "e1");
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 1);
    assert_int_equal(look("ann").entries, 1);
    rig.tap.refuse = false;
    publish("a", "e1");
    assert_int_equal(accepted_ok(), 2);
    assert_int_equal(rows(), 2);
}

static void what_the_store_refuses_while_it_is_on_a_socket_waits_for_its_ack(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    ack(f, 0);
    rig.tap.refuse = true;
    publish("a", "e1");
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 0);
    ack(f, 1);
    assert_int_equal(accepted_ok(), 2);
    assert_int_equal(look("ann").entries, 0);
}

static void what_the_store_refuses_is_tried_again_every_second(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    ack(f, 0);
    rig.tap.refuse = true;
    publish("a", "e1");
    rig.tap.refuse = false;
    assert_int_equal(rows(), 0);
    advance(1000);
    assert_int_equal(rows(), 1);
    assert_int_equal(accepted_ok(), 2);
}

static void what_the_store_refuses_dies_with_its_socket(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    ack(f, 0);
    rig.tap.refuse = true;
    publish("a", "e1");
    hang_up(f, 1006);
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 1);
    assert_int_equal(look("ann").entries, 0);
    rig.tap.refuse = false;
    publish("a", "e1");
    assert_int_equal(rows(), 1);
}

static void a_refused_copy_does_not_eat_the_ack_of_the_one_that_waits(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    ack(f, 0);
    rig.tap.refuse = true;
    publish("a", "e1");
    assert_int_equal(inbound(f), 2);
    struct fake *g = dial("gw-a"); /* so that what was sent is not forgotten with the socket */
    hang_up(f, 1006);
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 1);
    rig.tap.refuse = false;
    publish("a", "e1");
    hello(g);
    ack(g, 0);
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(rows(), 0);
}

static void no_delivery_is_written_before_its_instance_has_a_record(void **state)
{
    rig.tap.hold = true;
    publish("a", "e1"); /* the first thing ever heard of ann */
    assert_int_equal(rig.tap.appends, 0);
    rig_release();
    assert_int_equal(rig.tap.appends, 1);
    assert_int_equal(accepted_ok(), 1);
}

static void an_instance_whose_record_is_refused_reports_unavailable(void **state)
{
    rig.tap.refuse = true;
    publish("a", "e1");
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 1);
    rig.tap.refuse = false;
    advance(1000);
    publish("a", "e1");
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(rows(), 1);
}

static void refused_acks_are_written_later(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    rig.tap.refuse = true;
    ack(f, 0);
    assert_int_equal(rows(), 1);
    rig.tap.refuse = false;
    advance(1000);
    assert_int_equal(rows(), 0);
}

static int setup_small(void **state)
{
    struct relay_limits lim = relay_limits_default;
    lim.max_mailbox_bytes = 1000;
    return setup_with(&lim);
}

static void a_full_mailbox_says_busy(void **state)
{
    publish("a", "e1");
    publish("a", "e2");
    publish("a", "e3");
    publish("a", "e4");
    assert_true(rig.answers[BH_BUSY] > 0);
    assert_int_equal(relay_counters(rig.relay)->refused_busy, rig.answers[BH_BUSY]);
    assert_int_equal(rows(), accepted_ok());
    publish("b", "e1"); /* another one's is not */
    assert_int_equal(look("bob").entries, 1);
}

static void a_restart_keeps_mailbox_order_and_attempts(void **state)
{
    publish("a", "e1");
    publish("a", "e2");
    publish("a", "e3");
    struct fake *f = connect_as("gw-a");
    ack(f, 0);
    hang_up(f, 1006);
    restart();
    assert_int_equal(look("ann").entries, 2);
    assert_state("ann", "away");
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "e2"));
    assert_true(is_event(f, 1, "e3"));
}

static void ids_are_never_used_again_after_a_restart(void **state)
{
    publish("a", "e1");
    struct fake *f = connect_as("gw-a");
    char first[32];
    struct str id = buffer_id(line_with(f, INBOUND, 0));
    snprintf(first, sizeof first, "%.*s", STR_FMT(id));
    ack(f, 0);
    restart();
    f = connect_as("gw-a");
    publish("a", "e2");
    assert_false(str_eq(buffer_id(line_with(f, INBOUND, 0)), str_of(first)));
}

static void the_same_event_has_the_same_buffer_id_after_a_restart(void **state)
{
    struct fake *f = connect_as("gw-a"), *g;
    char first[32];
    rig.tap.hold = true; /* nothing of it reaches the disk */
    publish("a", "e1");
    struct str id = buffer_id(line_with(f, INBOUND, 0));
    snprintf(first, sizeof first, "%.*s", STR_FMT(id));
    restart();
    rig.tap.hold = false;
    publish("a", "e0"); /* another order than before */
    publish("a", "e1"); /* its platform sends it again */
    g = connect_as("gw-a");
    assert_true(is_event(g, 1, "e1"));
    assert_true(str_eq(buffer_id(line_with(g, INBOUND, 1)), str_of(first)));
    ack(g, 1);
    assert_int_equal(look("ann").entries, 1);
}

static void an_event_without_an_id_gets_a_name_of_its_own(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("a", "e1");
    ev.event_id = STR_NULL;
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_int_equal(inbound(f), 2);
    assert_false(str_eq(buffer_id(line_with(f, INBOUND, 0)), buffer_id(line_with(f, INBOUND, 1))));
    ack(f, 1);
    ack(f, 0);
    assert_int_equal(look("ann").entries, 0);
}

static void a_drain_refuses_the_new_closes_with_1012_and_ends_when_all_is_on_disk(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    rig.tap.hold = true;
    publish("a", "e1");
    relay_drain(rig.relay, on_drained, NULL);
    advance(600); /* nobody acks */
    assert_int_equal(f->close_code, 1012);
    assert_false(rig.drained);
    publish("a", "e2");
    assert_int_equal(rig.answers[BH_BUSY], 1);
    assert_null(session_open(rig.relay, facts_gateway(rig.facts, STR("gw-b")), &f->wire));
    hang_up(f, 1012);
    rig_release();
    assert_true(rig.drained);
    restart();
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 2);
    assert_int_equal(rig.tap.marks, 0); /* a planned loss is no attempt */
}

static void a_drain_waits_a_moment_for_acks_under_way_and_sends_nothing_more(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    relay_drain(rig.relay, on_drained, NULL);
    turn();
    assert_int_equal(f->close_code, 0);
    ack(f, 0);
    turn();
    assert_int_equal(f->close_code, 1012);
    hang_up(f, 1012);
    turn();
    assert_true(rig.drained);
    restart();
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 0); /* acked in time: not sent again */
}

static void an_ack_that_comes_before_the_instances_first_record_keeps_the_key(void **state)
{
    rig.tap.hold = true; /* the record of the instance is not on disk yet */
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ack(f, 0);
    rig_release();
    turn();
    restart();
    f = connect_as("gw-a");
    publish("a", "e1"); /* its platform sends it again */
    assert_int_equal(inbound(f), 0);
    assert_int_equal(relay_counters(rig.relay)->duplicates, 1);
}

static void a_drain_does_not_wait_for_who_has_owed_its_ack_for_long(void **state)
{
    struct fake *frozen = connect_as("gw-a");
    publish("a", "e0");
    turn();
    assert_int_equal(inbound(frozen), 1);
    advance(1000);
    relay_drain(rig.relay, on_drained, NULL);
    turn();
    assert_int_equal(frozen->close_code, 1012);
    assert_true(rig.drained);
}

UNIT(relay_test_delivery)
{
    const struct CMUnitTest tests[] = {
        PROMISE(a_drain_waits_a_moment_for_acks_under_way_and_sends_nothing_more),
        PROMISE(an_ack_that_comes_before_the_instances_first_record_keeps_the_key),
        PROMISE(a_drain_does_not_wait_for_who_has_owed_its_ack_for_long),
        PROMISE(an_event_for_a_live_gateway_goes_out_at_once_with_a_buffer_id),
        PROMISE(an_ack_before_the_write_shrinks_it_to_its_key),
        PROMISE(the_first_message_of_a_chat_is_answered_when_the_chats_record_is_on_disk),
        PROMISE(an_ack_after_the_write_deletes_the_row),
        PROMISE(acks_of_one_turn_are_one_write),
        PROMISE(an_event_for_nobody_present_is_urgent_and_answered_when_on_disk),
        PROMISE(an_event_for_two_is_answered_when_both_copies_are_safe),
        PROMISE(an_event_nobody_is_routed_for_is_counted_and_confirmed),
        PROMISE(an_event_for_an_instance_that_is_being_added_comes_again),
        PROMISE(an_answer_never_comes_inside_the_call),
        PROMISE(a_duplicate_is_confirmed_and_not_delivered),
        PROMISE(a_duplicate_of_one_still_pending_is_answered_with_it),
        PROMISE(a_duplicate_is_recognised_after_a_restart),
        PROMISE(an_event_without_an_id_is_never_a_duplicate),
        PROMISE(what_the_store_refuses_is_reported_and_taken_as_new_when_it_comes_again),
        PROMISE(what_the_store_refuses_while_it_is_on_a_socket_waits_for_its_ack),
        PROMISE(what_the_store_refuses_is_tried_again_every_second),
        PROMISE(what_the_store_refuses_dies_with_its_socket),
        PROMISE(a_refused_copy_does_not_eat_the_ack_of_the_one_that_waits),
        PROMISE(no_delivery_is_written_before_its_instance_has_a_record),
        PROMISE(an_instance_whose_record_is_refused_reports_unavailable),
        PROMISE(refused_acks_are_written_later),
        cmocka_unit_test_setup_teardown(a_full_mailbox_says_busy, setup_small, teardown),
        PROMISE(a_restart_keeps_mailbox_order_and_attempts),
        PROMISE(ids_are_never_used_again_after_a_restart),
        PROMISE(the_same_event_has_the_same_buffer_id_after_a_restart),
        PROMISE(an_event_without_an_id_gets_a_name_of_its_own),
        PROMISE(a_drain_refuses_the_new_closes_with_1012_and_ends_when_all_is_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
