/* Promises of relay/out/spoken.h, and of guard.h about messages: an instance changes its
 * own words. */
#include "relay/asking.h"
#include "relay/out/spoken.h"
#include "tenancy/grants.h"

/* @f asks to edit @message in the shared chat: does it reach the platform? */
static bool may_edit(struct fake *f, const char *message)
{
    static int asked;
    struct buf action = BUF_INIT;
    char id[16];
    int before = (int)rig.acts;

    snprintf(id, sizeof id, "e%d", ++asked);
    buf_printf(&action,
               "\"op\":\"edit\",\"chat_id\":\"c1\",\"message_id\":\"%s\",\"content\":\"x\"",
               message);
    ask(f, id, buf_z(&action), "");
    buf_done(&action);
    if ((int)rig.acts == before)
        return false;
    answer_it(message);
    return true;
}

/* The same for a sign on it (@op "react") or a thread under it. */
static bool may_point_at(struct fake *f, const char *op, const char *message)
{
    static int asked;
    struct buf action = BUF_INIT;
    char id[16];
    int before = (int)rig.acts;

    snprintf(id, sizeof id, "p%d", ++asked);
    buf_printf(&action, "\"op\":\"%s\",\"chat_id\":\"c1\",\"message_id\":\"%s\",", op, message);
    buf_printf(&action, "\"emoji\":\"+\",\"thread_name\":\"x\"");
    ask(f, id, buf_z(&action), "");
    buf_done(&action);
    if ((int)rig.acts == before)
        return false;
    answer_it("");
    return true;
}

static void send_as(struct fake *f, const char *message)
{
    static int asked;
    char id[16];
    int before = (int)rig.acts;

    snprintf(id, sizeof id, "s%d", ++asked);
    ask(f, id, SEND, "");
    assert_int_equal(rig.acts, before + 1);
    answer_it(message);
}

static void an_edit_is_for_what_this_instance_sent_and_for_nothing_else(void **state)
{
    struct fake *ann = connect_as("gw-a"), *bob = connect_as("gw-b");
    publish("both", "e1"); /* c1 is shared */
    send_as(bob, "m-bob");
    send_as(ann, "m-ann");
    assert_false(may_edit(ann, "m-bob"));
    assert_true(result_says(ann, results(ann) - 1, "not sent by this agent"));
    assert_false(may_edit(ann, "m-of-a-person"));
    assert_false(may_edit(ann, ""));
    assert_true(may_edit(ann, "m-ann"));
    assert_true(may_edit(ann, "m-ann")); /* as often as it likes */
    assert_true(may_edit(bob, "m-bob"));
    assert_false(may_edit(bob, "m-ann"));
}

static void what_was_sent_is_known_after_a_restart(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("both", "e1");
    send_as(f, "m1");
    restart();
    struct fake *ann = connect_as("gw-a"), *bob = connect_as("gw-b");
    assert_true(may_edit(ann, "m1"));
    assert_false(may_edit(bob, "m1"));
}

static void a_message_that_failed_or_has_no_id_gives_no_right(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    ask(f, "r1", SEND, "");
    relay_result(rig.relay, rig.act_id,
                 &(struct action_result){.message_id = STR("m1"), .error = STR("no")});
    turn();
    assert_false(may_edit(f, "m1"));
    ask(f, "r2", SEND, "");
    relay_result(rig.relay, rig.act_id, &(struct action_result){.success = true});
    turn();
    assert_false(may_edit(f, ""));
}

static void the_newest_256_of_a_chat_count_also_after_a_restart(void **state)
{
    char id[16];
    rig.lim.instance_actions = rig.lim.tenant_actions = 0;
    relay_set_limits(rig.relay, &rig.lim);
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    for (int i = 0; i < SPOKEN_PER_CHAT + 3; i++) {
        snprintf(id, sizeof id, "m%d", i);
        send_as(f, id);
        advance(1);
    }
    for (int restarted = 0; restarted < 2; restarted++) {
        assert_false(may_edit(f, "m2"));
        assert_true(may_edit(f, "m3"));
        assert_true(may_edit(f, "m258"));
        restart();
        f = connect_as("gw-a");
    }
    send_as(f, "m259"); /* takes the place of the oldest */
    assert_false(may_edit(f, "m3"));
    assert_true(may_edit(f, "m4"));
}

static void count(void *ctx, struct str key, struct str value)
{
    ++*(size_t *)ctx;
}
static size_t n_said(void)
{
    size_t n = 0;
    rig.tap.inner->ops->load_records(rig.tap.inner, "said", STR(""), count, &n);
    return n;
}

static void after_two_days_it_is_forgotten_here_and_on_disk(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    send_as(f, "m1");
    turn();
    assert_int_equal(n_said(), 1);
    advance(SPOKEN_MS - 60000);
    f = connect_as("gw-a");
    assert_true(may_edit(f, "m1"));
    advance(60001);
    f = connect_as("gw-a");
    assert_false(may_edit(f, "m1"));
    advance(1200000);
    assert_int_equal(n_said(), 0);
}

static void the_next_holder_of_a_name_has_said_nothing(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    send_as(f, "m1");
    grant_deprovision(rig.facts, (struct grant_who){STR("acme"), STR("ann")}, rig_changed_fact,
                      NULL);
    turn();
    add_gateway("gw-next", "ann", NULL, NULL, NULL);
    f = connect_as("gw-next");
    publish("a", "e2");
    assert_false(may_edit(f, "m1"));
}

static void signs_and_threads_are_for_what_was_delivered_or_sent(void **state)
{
    static const char *const ops[] = {"react", "thread_create"};
    struct fake *ann = connect_as("gw-a"), *bob = connect_as("gw-b");
    publish("both", "e1");
    publish("b", "e2"); /* in the same chat, and only bob hears it */
    send_as(bob, "m-bob");
    for (size_t k = 0; k < ARRAY_LEN(ops); k++) {
        assert_true(may_point_at(ann, ops[k], "e1"));
        assert_false(may_point_at(ann, ops[k], "e2"));
        assert_true(result_says(ann, results(ann) - 1, "not delivered to this agent"));
        assert_false(may_point_at(ann, ops[k], "m-bob"));
        assert_true(may_point_at(bob, ops[k], "e2"));
        assert_true(may_point_at(bob, ops[k], "m-bob"));
    }
    assert_false(may_point_at(ann, "react", ""));
    assert_true(may_point_at(ann, "thread_create", "")); /* under no message at all */
    assert_false(may_edit(ann, "e1"));
}

static void what_was_delivered_is_known_after_a_restart_and_for_its_time(void **state)
{
    publish("a", "e1");
    restart();
    struct fake *ann = connect_as("gw-a"), *bob = connect_as("gw-b");
    publish("b", "e2");
    assert_true(may_point_at(ann, "react", "e1"));
    assert_false(may_point_at(bob, "react", "e1"));
    advance(rig.lim.dedup_ms + 600000);
    restart();
    assert_false(may_point_at(connect_as("gw-a"), "react", "e1"));
}

static void where_ids_are_counted_per_chat_the_chat_is_part_of_the_name(void **state)
{
    rig.web.ids_per_chat = true;
    struct fake *ann = connect_as("gw-a");
    struct event ev = make_event("a", "c1:7");
    ev.message_id = STR("7");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    ev.event_id = STR("c2:8");
    ev.message_id = STR("8");
    ev.chat_id = STR("c2");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    assert_true(may_point_at(ann, "react", "7"));
    assert_false(may_point_at(ann, "react", "8"));
}

UNIT(relay_test_spoken)
{
    const struct CMUnitTest tests[] = {
        PROMISE(an_edit_is_for_what_this_instance_sent_and_for_nothing_else),
        PROMISE(what_was_sent_is_known_after_a_restart),
        PROMISE(a_message_that_failed_or_has_no_id_gives_no_right),
        PROMISE(the_newest_256_of_a_chat_count_also_after_a_restart),
        PROMISE(after_two_days_it_is_forgotten_here_and_on_disk),
        PROMISE(the_next_holder_of_a_name_has_said_nothing),
        PROMISE(signs_and_threads_are_for_what_was_delivered_or_sent),
        PROMISE(what_was_delivered_is_known_after_a_restart_and_for_its_time),
        PROMISE(where_ids_are_counted_per_chat_the_chat_is_part_of_the_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
