/* Promises of relay/sleep/instance.h: a name that was given up takes nothing of its old holder
 * along. */
#include "relay/asking.h"
#include "relay/heart.h"
#include "relay/out/chat_records.h"
#include "relay/sleep/instance.h"
#include "relay/upkeep.h"
#include "tenancy/grants.h"

#define ANN ((struct grant_who){STR("acme"), STR("ann")})

static void deprovision(void)
{
    grant_deprovision(rig.facts, ANN, rig_changed_fact, NULL);
    turn();
}
/* Somebody else takes the name, with a gateway of their own. */
static struct fake *next_holder(void)
{
    add_gateway("gw-next", "ann", NULL, NULL, NULL);
    return connect_as("gw-next");
}
static void count_record(void *ctx, struct str key, struct str value)
{
    ++*(size_t *)ctx;
}
static size_t records(const char *ns)
{
    size_t n = 0;
    assert_int_equal(rig.tap.inner->ops->load_records(rig.tap.inner, ns, STR(""), count_record, &n),
                     BH_OK);
    return n;
}

static void what_waited_is_purged_and_the_next_holder_reads_none_of_it(void **state)
{
    publish("a", "e1");
    publish("both", "e2");
    assert_int_equal(rows(), 3);
    deprovision();
    assert_int_equal(rows(), 1); /* bob's */
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(relay_counters(rig.relay)->purged, 2);
    struct fake *f = next_holder();
    publish("a", "e3");
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e3"));
}

static void a_crash_before_the_purge_is_on_disk_leaks_nothing(void **state)
{
    publish("a", "e1");
    rig.tap.hold = true; /* the relay's writes; the facts have their own way to the disk */
    deprovision();
    assert_int_equal(rows(), 1);
    restart();
    assert_int_equal(rows(), 0);
    assert_int_equal(look("ann").entries, 0);
    struct fake *f = next_holder();
    assert_int_equal(inbound(f), 0);
    publish("a", "e2");
    assert_true(is_event(f, 0, "e2"));
}

static void a_crash_between_the_new_mailbox_and_the_deletion_leaks_nothing(void **state)
{
    publish("a", "e1");
    rig.tap.hold = true;
    deprovision();
    rig_release_records(); /* the new number is on disk, the old rows are still there */
    assert_int_equal(rows(), 1);
    assert_int_equal(records("retired"), 1);
    restart();
    assert_int_equal(rows(), 0);
    assert_int_equal(inbound(next_holder()), 0);
    assert_int_equal(records("retired"), 1); /* it had rows: the next start looks again */
    restart();
    assert_int_equal(records("retired"), 0);
}

static void mail_of_the_next_holder_survives_what_purges_the_old(void **state)
{
    publish("a", "e1");
    rig.tap.hold = true;
    deprovision();
    rig_release();
    add_gateway("gw-next", "ann", NULL, NULL, NULL);
    publish("a", "e2");
    restart();
    struct fake *f = connect_as("gw-next");
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e2"));
}

static void a_number_is_never_used_again(void **state)
{
    for (int i = 0; i < 3; i++) {
        publish("a", "e1");
        deprovision();
        add_gateway("gw-a", "ann", NULL, NULL, NULL);
        if (i == 1)
            restart();
    }
    publish("b", "e2");
    restart();
    restart();
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 0);
    assert_int_equal(inbound(connect_as("gw-b")), 1);
}

static void on_taken(void *ctx, enum bh_err err, const char *why)
{
    assert_int_equal(err, BH_OK);
    offer("a", "new"); /* before anybody was told of the end */
}
static void an_event_for_the_next_holder_may_come_before_the_news(void **state)
{
    struct fake *old = connect_as("gw-a");
    struct buf id = BUF_INIT, secret = BUF_INIT;
    struct gateway_spec spec = {.id = STR("gw-next"),
                                .tenant = STR("acme"),
                                .instance = STR("ann")};
    publish("a", "old");
    grant_deprovision(rig.facts, ANN, rig_changed_fact, NULL);
    facts_gateway_add(rig.facts, &spec, &id, &secret, on_taken, NULL);
    turn();
    assert_int_equal(old->close_code, 4401);
    assert_int_equal(inbound(old), 1); /* never the new one */
    struct fake *f = connect_as("gw-next");
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "new"));
    buf_done(&id);
    buf_done(&secret);
}

static void sockets_are_closed_even_if_nobody_heard_of_their_revocation(void **state)
{
    struct fake *old = connect_as("gw-a");
    publish("a", "e1");
    life_follow(instance_find(rig.relay, STR("acme"), STR("ann")), 1);
    assert_int_equal(old->close_code, 4401);
    assert_state("ann", "never");
    life_follow(instance_find(rig.relay, STR("acme"), STR("ann")), 1); /* twice is once */
    assert_int_equal(look("ann").entries, 0);
    hang_up(old, 4401);
}

static void old_sockets_acks_and_results_touch_nothing_of_the_next(void **state)
{
    struct fake *old = connect_as("gw-a");
    publish("a", "e1");
    ask(old, "r1", SEND, "");
    struct action_id asked = rig.act_id;
    struct str line = line_with(old, INBOUND, 0);
    deprovision();
    assert_int_equal(old->close_code, 4401);
    struct fake *f = next_holder();
    publish("a", "e2");
    ack_line(old, line); /* heard while closing */
    relay_result(rig.relay, asked, &(struct action_result){.success = true});
    turn();
    assert_int_equal(results(f), 0);
    assert_int_equal(results(old), 0);
    assert_int_equal(look("ann").entries, 1);
    hang_up(old, 4401);
    ack(f, 0);
    assert_int_equal(look("ann").entries, 0);
}

static void count_chat(void *ctx, const struct chat_line *line)
{
    ++*(size_t *)ctx;
}
static void on_listed(void *ctx, enum bh_err err)
{
    assert_int_equal(err, BH_OK);
}
static size_t listed_chats(void)
{
    size_t n = 0;
    relay_chats_show(rig.relay, STR("acme"), STR("ann"), STR_NULL, 100, count_chat, on_listed, &n);
    turn();
    return n;
}

static void chats_of_the_old_holder_are_not_the_next_ones(void **state)
{
    publish("a", "e1"); /* from c1 */
    assert_int_equal(listed_chats(), 1);
    deprovision();
    assert_int_equal(listed_chats(), 0);
    assert_int_equal(records("chat"), 0);
    struct fake *f = next_holder();
    ask(f, "r1", SEND, "");
    assert_int_equal(rig.acts, 0);
    restart();
    f = connect_as("gw-next");
    ask(f, "r2", SEND, "");
    assert_int_equal(rig.acts, 0);
    assert_int_equal(records("chat"), 0);
    publish("a", "e2");
    ask(f, "r3", SEND, "");
    assert_int_equal(rig.acts, 1);
    restart();
    f = connect_as("gw-next");
    ask(f, "r4", SEND, "");
    assert_int_equal(rig.acts, 2);
}

static void hear_from_many(int n)
{
    for (int k = 0; k < n; k++) {
        char chat[16];
        snprintf(chat, sizeof chat, "many%d", k);
        struct event ev = make_event("a", chat);
        ev.chat_id = str_of(chat);
        relay_accept(rig.relay, &ev, on_accepted, NULL);
        turn();
    }
}

static void thousands_of_chats_go_with_the_name(void **state)
{
    hear_from_many(1000);
    assert_int_equal(records("chat"), 1000);
    deprovision();
    assert_int_equal(records("chat"), 0);
}

static void however_many_chats_end_a_turn_takes_a_few(void **state)
{
    hear_from_many(3000);
    life_follow(instance_find(rig.relay, STR("acme"), STR("ann")), 1);
    assert_int_equal(rig.relay->chats->n_ending, 3000);
    struct fake *f = connect_as("gw-a"); /* none of them is known from now on */
    ask(f, "r1", "\"op\":\"send\",\"chat_id\":\"many2999\",\"content\":\"x\"", "");
    assert_int_equal(rig.acts, 0);
    for (size_t before = rig.relay->chats->n_ending, turns = 0; before != 0; turns++) {
        clock_turn(rig.clock);
        size_t now = rig.relay->chats->n_ending;
        assert_true(before - now <= 512 && turns < 100);
        before = now;
    }
    turn();
    assert_int_equal(records("chat"), 0);
}

static void a_chat_the_next_holder_hears_from_stays_while_the_old_ones_go(void **state)
{
    hear_from_many(2000);
    life_follow(instance_find(rig.relay, STR("acme"), STR("ann")), 1);
    struct event ev = make_event("a", "again");
    ev.chat_id = STR("many1999"); /* the last to go */
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    assert_int_equal(rig.relay->chats->n_ending, 2000);
    turn();
    struct fake *f = connect_as("gw-a");
    assert_int_equal(rig.relay->chats->n_ending, 0);
    assert_int_equal(records("chat"), 1);
    ask(f, "r1", "\"op\":\"send\",\"chat_id\":\"many1999\",\"content\":\"x\"", "");
    assert_int_equal(rig.acts, 1);
    ask(f, "r2", "\"op\":\"send\",\"chat_id\":\"many0\",\"content\":\"x\"", "");
    assert_int_equal(rig.acts, 1);
}

static void what_is_older_than_the_retention_goes(void **state)
{
    const int64_t day_ms = 86400000;
    hear_from_many(700); /* more than goes in a turn, and nobody takes any of it */
    relay_retain(rig.relay, 3 * day_ms);
    advance(1000); /* the first look: all have their day from now on */
    assert_int_equal(look("ann").entries, 700);
    rig.now_ms += 2 * day_ms;
    clock_set(rig.clock, rig.now_ms, 1700000000000 + rig.now_ms);
    turn();
    assert_int_equal(look("ann").entries, 700);
    struct event ev = make_event("a", "fresh");
    ev.chat_id = STR("many5");
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
    rig.now_ms += 2 * day_ms;
    clock_set(rig.clock, rig.now_ms, 1700000000000 + rig.now_ms);
    advance(600000);
    assert_int_equal(look("ann").entries, 1);
    assert_int_equal(records("chat"), 1);
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    ask(f, "r1", "\"op\":\"send\",\"chat_id\":\"many5\",\"content\":\"x\"", "");
    assert_int_equal(rig.acts, 1);
    ask(f, "r2", "\"op\":\"send\",\"chat_id\":\"many6\",\"content\":\"x\"", "");
    assert_int_equal(rig.acts, 1);
}

static void an_instance_has_no_more_chats_than_the_limit(void **state)
{
    struct relay_limits lim = relay_limits_default;
    lim.max_instance_chats = 10;
    relay_set_limits(rig.relay, &lim);
    hear_from_many(30);
    assert_int_equal(records("chat"), 10);
    struct fake *f = connect_as("gw-a");
    ask(f, "r1", "\"op\":\"send\",\"chat_id\":\"many29\",\"content\":\"x\"", "");
    assert_int_equal(rig.acts, 1);
    ask(f, "r2", "\"op\":\"send\",\"chat_id\":\"many19\",\"content\":\"x\"", "");
    assert_int_equal(rig.acts, 1);
}

static void nothing_is_known_of_the_next_holder(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    say(f, "{\"type\":\"going_idle\"}");
    assert_state("ann", "asleep");
    deprovision();
    assert_state("ann", "never");
    assert_int_equal(look("ann").asleep_since_ms, 0);
    assert_int_equal(look("ann").last_inbound_ms, 0);
    restart();
    assert_state("ann", "never");
    assert_int_equal(look("ann").last_inbound_ms, 0);
}

static void a_store_that_refuses_for_a_while_changes_nothing(void **state)
{
    publish("a", "e1");
    rig.tap.refuse = true;
    deprovision();
    add_gateway("gw-next", "ann", NULL, NULL, NULL);
    struct fake *f = connect_as("gw-next");
    publish("a", "e2"); /* on the socket, so it is kept */
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e2"));
    assert_int_equal(rows(), 1); /* still the old one */
    rig.tap.refuse = false;
    advance(3000);
    assert_int_equal(rows(), 1);
    hang_up(f, 1006);
    restart();
    f = connect_as("gw-next");
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e2"));
}

UNIT(relay_test_life)
{
    const struct CMUnitTest tests[] = {
        PROMISE(what_waited_is_purged_and_the_next_holder_reads_none_of_it),
        PROMISE(a_crash_before_the_purge_is_on_disk_leaks_nothing),
        PROMISE(a_crash_between_the_new_mailbox_and_the_deletion_leaks_nothing),
        PROMISE(mail_of_the_next_holder_survives_what_purges_the_old),
        PROMISE(a_number_is_never_used_again),
        PROMISE(an_event_for_the_next_holder_may_come_before_the_news),
        PROMISE(sockets_are_closed_even_if_nobody_heard_of_their_revocation),
        PROMISE(old_sockets_acks_and_results_touch_nothing_of_the_next),
        PROMISE(chats_of_the_old_holder_are_not_the_next_ones),
        PROMISE(thousands_of_chats_go_with_the_name),
        PROMISE(however_many_chats_end_a_turn_takes_a_few),
        PROMISE(a_chat_the_next_holder_hears_from_stays_while_the_old_ones_go),
        PROMISE(an_instance_has_no_more_chats_than_the_limit),
        PROMISE(what_is_older_than_the_retention_goes),
        PROMISE(nothing_is_known_of_the_next_holder),
        PROMISE(a_store_that_refuses_for_a_while_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
