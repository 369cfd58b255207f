/* Promises of relay/mailbox/mailbox.h on a shared store. */
#include "relay/rig.h"

static int setup_shared(void **state)
{
    rig_shared = true;
    return setup(state);
}
#define SHARED(fn) cmocka_unit_test_setup_teardown(fn, setup_shared, teardown)

static void nothing_is_delivered_before_it_is_written(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.hold = true;
    publish("a", "e1");
    assert_int_equal(inbound(f), 0);
    assert_int_equal(accepted_ok(), 0);
    rig_release();
    assert_int_equal(inbound(f), 1);
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(rig.tap.fetches, 0); /* its bytes were still at hand */
}

static void somebody_waits_so_every_append_is_urgent(void **state)
{
    connect_as("gw-a");
    publish("a", "e1");
    assert_int_equal(rig.tap.urgent, 1);
}

static void an_ack_deletes_the_row(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    publish("a", "e2");
    assert_int_equal(rows(), 2);
    ack(f, 0);
    ack(f, 1);
    assert_int_equal(rows(), 0);
    assert_int_equal(look("ann").entries, 0);
}

static void what_the_store_refuses_is_unavailable_and_may_come_again(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.refuse = true;
    publish("a", "e1");
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 1);
    assert_int_equal(inbound(f), 0);
    rig.tap.refuse = false;
    publish("a", "e1");
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(inbound(f), 1);
}

static void a_lost_answer_is_asked_for_again_and_stays_one_delivery(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    rig.tap.lose_answers = true;
    publish("a", "e1");
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(inbound(f), 1);
    publish("a", "e1"); /* the platform is impatient: the same one waits twice */
    assert_int_equal(accepted_ok(), 1);
    rig.tap.lose_answers = false;
    advance(2000);
    assert_int_equal(accepted_ok(), 3);
    assert_int_equal(inbound(f), 2);
    assert_int_equal(rows(), 2);
}

static void what_comes_behind_a_lost_answer_does_not_overtake_it(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0");
    rig.tap.lose_answers = true;
    publish("a", "e1");
    rig.tap.lose_answers = false;
    publish("a", "e2"); /* it is written, and waits for the one before it */
    assert_int_equal(inbound(f), 1);
    assert_int_equal(accepted_ok(), 2);
    advance(2000);
    assert_int_equal(inbound(f), 3);
    assert_true(is_event(f, 1, "e1"));
    assert_true(is_event(f, 2, "e2"));
    assert_int_equal(accepted_ok(), 3);
    ack(f, 0), ack(f, 1), ack(f, 2);
    assert_int_equal(rows(), 0);
}

static void a_retry_that_is_refused_leaves_the_doubt(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.lose_answers = true;
    publish("a", "e1");
    rig.tap.lose_answers = false;
    rig.tap.refuse = true;
    advance(5000);
    assert_int_equal(inbound(f), 0);
    assert_int_equal(rig.answers[BH_UNAVAILABLE], 0);
    rig.tap.refuse = false;
    advance(2000);
    assert_int_equal(accepted_ok(), 1);
    assert_int_equal(inbound(f), 1);
    assert_int_equal(rows(), 1);
}

static void what_is_purged_while_in_doubt_leaves_no_row(void **state)
{
    struct fake *f = connect_as("gw-a");
    rig.tap.lose_answers = true;
    publish("a", "e1");
    assert_int_equal(rows(), 1);
    rig.tap.lose_answers = false;
    assert_int_equal(relay_mailbox_purge(rig.relay, STR("acme"), STR("ann")), 1);
    turn();
    advance(3000);
    assert_int_equal(rows(), 0);
    assert_int_equal(inbound(f), 0);
}

static void after_a_restart_it_goes_on_behind_what_was_settled(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    publish("a", "e2");
    ack(f, 0), ack(f, 1);
    publish("a", "e3");
    restart();
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    publish("a", "e4");
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "e3"));
    assert_true(is_event(f, 1, "e4"));
}

static void a_mailbox_that_was_emptied_before_the_restart_takes_the_next_one(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ack(f, 0);
    restart();
    f = connect_as("gw-a");
    publish("a", "e2");
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e2"));
}

static void a_sleeper_is_woken_when_its_mail_is_written(void **state)
{
    struct fake *f = connect_as("gw-a");
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    rig.tap.hold = true;
    publish("a", "e1");
    assert_int_equal(rig.pokes, 0);
    rig_release();
    assert_int_equal(rig.pokes, 1);
}

static void a_flood_arrives_whole_and_in_order(void **state)
{
    struct fake *f = connect_as("gw-a");
    char name[16];
    for (int n = 0; n < 300; n++) {
        snprintf(name, sizeof name, "e%d", n);
        rig.tap.lose_answers = n % 7 == 3;
        offer("a", name);
        if (n % 5 == 0)
            turn();
    }
    rig.tap.lose_answers = false;
    for (size_t n = 0; n < 300; n++) {
        for (int i = 0; i < 20 && inbound(f) <= n; i++)
            advance(500);
        snprintf(name, sizeof name, "e%zu", n);
        assert_true(is_event(f, n, name));
        ack(f, n);
    }
    advance(3000); /* the lost answers were asked for again */
    assert_int_equal(accepted_ok(), 300);
    assert_int_equal(inbound(f), 300);
    assert_int_equal(rows(), 0);
}

UNIT(relay_test_shared)
{
    const struct CMUnitTest tests[] = {
        SHARED(nothing_is_delivered_before_it_is_written),
        SHARED(somebody_waits_so_every_append_is_urgent),
        SHARED(an_ack_deletes_the_row),
        SHARED(what_the_store_refuses_is_unavailable_and_may_come_again),
        SHARED(a_lost_answer_is_asked_for_again_and_stays_one_delivery),
        SHARED(what_comes_behind_a_lost_answer_does_not_overtake_it),
        SHARED(a_retry_that_is_refused_leaves_the_doubt),
        SHARED(what_is_purged_while_in_doubt_leaves_no_row),
        SHARED(after_a_restart_it_goes_on_behind_what_was_settled),
        SHARED(a_mailbox_that_was_emptied_before_the_restart_takes_the_next_one),
        SHARED(a_sleeper_is_woken_when_its_mail_is_written),
        SHARED(a_flood_arrives_whole_and_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
