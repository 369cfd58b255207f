/* Promises of relay/sleep/sleep.h: one poke, then patience. */
#include "relay/rig.h"
#include "relay/sleep/sleep.h"

static void put_to_sleep(void)
{
    struct fake *f = connect_as("gw-a");
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    advance(3000);
}

static void the_first_delivery_for_a_sleeper_pokes_its_url_once(void **state)
{
    put_to_sleep();
    assert_int_equal(rig.pokes, 0);
    publish("a", "e1");
    publish("a", "e2");
    assert_int_equal(rig.pokes, 1);
    assert_string_equal(rig.poked_url, "http://wake.example/ann");
}

static void a_sleeper_is_poked_at_once_even_right_after_it_closed(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e0"); /* left unacked: alone it would get two seconds */
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    assert_int_equal(rig.pokes, 0);
    publish("a", "e1");
    assert_int_equal(rig.pokes, 1);
}

static void a_poke_is_repeated_after_the_cooldown_while_something_waits(void **state)
{
    put_to_sleep();
    publish("a", "e1");
    poke_answer(true);
    advance(29000);
    assert_int_equal(rig.pokes, 1);
    advance(2000);
    assert_int_equal(rig.pokes, 2);
    struct fake *f = connect_as("gw-a");
    poke_answer(false);
    assert_string_equal(look("ann").last_poke_problem, "connection refused");
    ack(f, 0);
    for (int i = 0; i < 60; i++) {
        advance(1000);
        pong(f);
    }
    assert_int_equal(rig.pokes, 2);
}

static int64_t seconds_until_the_next_poke(void)
{
    size_t so_far = rig.pokes;
    int64_t s = 0;
    for (; rig.pokes == so_far && s < 3600; s++)
        advance(1000);
    return s;
}

static void pokes_that_bring_nobody_back_are_repeated_with_growing_pauses(void **state)
{
    static const int pauses_s[] = {30, 60, 120, 240, 480, 900, 900};
    put_to_sleep();
    publish("a", "e1");
    for (size_t i = 0; i < ARRAY_LEN(pauses_s); i++) {
        poke_answer(true);
        assert_int_equal(seconds_until_the_next_poke(), pauses_s[i]);
    }
    poke_answer(true);
    struct fake *f = connect_as("gw-a"); /* it is here: the next time begins anew */
    ack(f, 0);
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    size_t so_far = rig.pokes;
    advance(31000);
    publish("a", "e2");
    assert_int_equal(rig.pokes, so_far + 1);
    poke_answer(true);
    advance(31000);
    assert_int_equal(rig.pokes, so_far + 2);
}

static void a_sleeper_with_mail_is_poked_after_a_restart(void **state)
{
    put_to_sleep();
    publish("a", "e1");
    assert_int_equal(rig.pokes, 1); /* nobody answers: the process dies with it */
    advance(31000);
    assert_int_equal(rig.pokes, 1);
    restart();
    advance(10000);
    assert_int_equal(rig.pokes, 2);
}

static void sleeper_with_mail(int n)
{
    char gateway[24], instance[24], key[24];
    snprintf(gateway, sizeof gateway, "gw-%d", n);
    snprintf(instance, sizeof instance, "agent-%d", n);
    snprintf(key, sizeof key, "key-%d", n);
    add_gateway(gateway, instance, "http://wake.example/", NULL, NULL);
    add_route(key, instance);
    struct fake *f = connect_as(gateway);
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    forget_sockets();
    publish(key, key);
}

static void after_a_restart_two_hundred_sleepers_are_poked_a_second(void **state)
{
    enum { SLEEPERS = 100 };
    for (int n = 0; n < SLEEPERS; n++)
        sleeper_with_mail(n);
    assert_int_equal(rig.pokes, SLEEPERS);
    advance(31000); /* nobody answers any of them: the process dies with it */
    restart();
    for (unsigned tenths = 1; tenths <= 5; tenths++) {
        advance(100);
        assert_in_range(rig.pokes, SLEEPERS + tenths * 20 - 1, SLEEPERS + tenths * 20 + 1);
    }
    advance(9500);
    assert_int_equal(rig.pokes, 2 * SLEEPERS);
}

static void of_one_tenant_so_many_are_poked_at_once_and_the_others_follow(void **state)
{
    for (int n = 0; n < WAKE_AT_ONCE + 3; n++)
        sleeper_with_mail(n);
    assert_int_equal(rig.pokes, WAKE_AT_ONCE); /* nobody answers */
    advance(31000);
    assert_int_equal(rig.pokes, WAKE_AT_ONCE);
    hang_up(connect_as("gw-256"), 1000); /* the first in line comes by itself, and gets its mail */
    poke_answer(false);
    assert_int_equal(rig.pokes, WAKE_AT_ONCE + 1);
    poke_answer(true);
    assert_int_equal(rig.pokes, WAKE_AT_ONCE + 2);
    poke_answer(true); /* the one that failed: its pause is over, and it stood behind them */
    assert_int_equal(rig.pokes, WAKE_AT_ONCE + 3);
    poke_answer(true);
    assert_int_equal(rig.pokes, WAKE_AT_ONCE + 3);
}

static void a_restart_does_not_shorten_the_pause(void **state)
{
    put_to_sleep();
    publish("a", "e1");
    poke_answer(true);
    advance(5000);
    restart();
    advance(20000);
    assert_int_equal(rig.pokes, 1);
    advance(10000);
    assert_int_equal(rig.pokes, 2);
}

static void one_that_came_back_is_poked_without_growing_pauses_after_a_restart(void **state)
{
    put_to_sleep();
    publish("a", "e1");
    for (int n = 0; n < 4; n++) { /* in vain */
        poke_answer(true);
        advance(240000);
    }
    size_t before = rig.pokes;
    poke_answer(true);
    struct fake *f = connect_as("gw-a");
    ack(f, 0);
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    restart();
    advance(60000);
    publish("a", "e2");
    assert_int_equal(rig.pokes, before + 1);
    poke_answer(true);
    advance(31000);
    assert_int_equal(rig.pokes, before + 2);
}

static void set_wake_url(const char *gateway, const char *url)
{
    facts_gateway_set(rig.facts, str_of(gateway), str_of(url), rig_changed_fact, NULL);
    advance(1);
}

static void a_sleeper_with_mail_is_poked_when_it_gets_a_url(void **state)
{
    add_gateway("gw-x", "xen", NULL, NULL, NULL);
    add_route("x", "xen");
    struct fake *f = connect_as("gw-x");
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    publish("x", "e1");
    advance(60000);
    assert_int_equal(rig.pokes, 0);
    set_wake_url("gw-x", "http://wake.example/xen");
    assert_int_equal(rig.pokes, 1);
    assert_string_equal(rig.poked_url, "http://wake.example/xen");
    set_wake_url("gw-x", "http://wake.example/other"); /* under way, and then the cooldown */
    poke_answer(true);
    assert_int_equal(rig.pokes, 1);
    advance(31000);
    assert_int_equal(rig.pokes, 2);
    assert_string_equal(rig.poked_url, "http://wake.example/other");
}

static void a_poke_under_way_is_not_repeated(void **state)
{
    put_to_sleep();
    publish("a", "e1");
    advance(120000);
    publish("a", "e2");
    assert_int_equal(rig.pokes, 1);
    poke_answer(false);
    assert_int_equal(rig.pokes, 2); /* the cooldown has long passed */
    assert_int_equal(relay_counters(rig.relay)->pokes_failed, 1);
}

static void a_lost_socket_gets_two_seconds_to_come_back_by_itself(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    hang_up(f, 1006);
    advance(1500);
    publish("a", "e2");
    assert_int_equal(rig.pokes, 0);
    advance(1000);
    assert_int_equal(rig.pokes, 1);
}

static void one_that_comes_back_is_not_poked(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    hang_up(f, 1006);
    advance(1000);
    connect_as("gw-a");
    advance(5000);
    assert_int_equal(rig.pokes, 0);
}

static void one_that_answers_no_ping_is_poked_at_once(void **state)
{
    connect_as("gw-a");
    publish("a", "e1");
    advance(30000);
    assert_state("ann", "away");
    assert_int_equal(rig.pokes, 1);
}

static void one_without_a_url_or_never_seen_is_not_poked(void **state)
{
    publish("a", "e1"); /* never shook hands */
    struct fake *f = connect_as("gw-b");
    say(f, "{\"type\":\"going_idle\"}");
    hang_up(f, 1000);
    publish("b", "e1"); /* has no URL */
    advance(60000);
    assert_int_equal(rig.pokes, 0);
}

static void nothing_is_poked_for_what_is_parked(void **state)
{
    struct relay_limits lim = rig.lim;
    lim.max_attempts = 1;
    relay_set_limits(rig.relay, &lim);
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    hang_up(f, 1006);
    assert_int_equal(look("ann").parked, 1);
    advance(60000);
    assert_int_equal(rig.pokes, 0);
}

static void a_delivery_after_a_restart_waits_for_the_cooldown_of_the_poke_before(void **state)
{
    put_to_sleep();
    publish("a", "e1");
    poke_answer(true);
    restart();
    publish("a", "e2"); /* within the cooldown of the poke before the restart */
    assert_int_equal(rig.pokes, 1);
    advance(31000);
    assert_int_equal(rig.pokes, 2);
}

static void after_a_restart_one_that_was_connected_gets_two_seconds_too(void **state)
{
    connect_as("gw-a"); /* no mail waits */
    restart();
    publish("a", "e1");
    advance(1500);
    assert_int_equal(rig.pokes, 0);
    advance(1000);
    assert_int_equal(rig.pokes, 1);
}

UNIT(relay_test_wake)
{
    const struct CMUnitTest tests[] = {
        PROMISE(the_first_delivery_for_a_sleeper_pokes_its_url_once),
        PROMISE(a_sleeper_is_poked_at_once_even_right_after_it_closed),
        PROMISE(a_poke_is_repeated_after_the_cooldown_while_something_waits),
        PROMISE(one_that_came_back_is_poked_without_growing_pauses_after_a_restart),
        PROMISE(a_sleeper_with_mail_is_poked_when_it_gets_a_url),
        PROMISE(a_poke_under_way_is_not_repeated),
        PROMISE(pokes_that_bring_nobody_back_are_repeated_with_growing_pauses),
        PROMISE(a_sleeper_with_mail_is_poked_after_a_restart),
        PROMISE(after_a_restart_two_hundred_sleepers_are_poked_a_second),
        PROMISE(of_one_tenant_so_many_are_poked_at_once_and_the_others_follow),
        PROMISE(a_restart_does_not_shorten_the_pause),
        PROMISE(a_lost_socket_gets_two_seconds_to_come_back_by_itself),
        PROMISE(one_that_comes_back_is_not_poked),
        PROMISE(one_that_answers_no_ping_is_poked_at_once),
        PROMISE(one_without_a_url_or_never_seen_is_not_poked),
        PROMISE(nothing_is_poked_for_what_is_parked),
        PROMISE(a_delivery_after_a_restart_waits_for_the_cooldown_of_the_poke_before),
        PROMISE(after_a_restart_one_that_was_connected_gets_two_seconds_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
