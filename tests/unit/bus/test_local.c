/* Promises of bus/bus.h, kept by the in-process bus. */
#include "bus/contract.h"
#include "base/clock.h"

static struct clock *c;

static void turn(void)
{
    clock_turn(c);
}

static int contract_setup(void **state)
{
    c = clock_new();
    bus_of[0] = bus_local_new(c);
    n_buses = 1;
    heard[0] = '\0';
    return 0;
}

static int contract_teardown(void **state)
{
    if (bus_of[0] != NULL)
        bus_of[0]->ops->close(bus_of[0]);
    clock_free(c);
    return 0;
}

static void a_message_is_heard_when_the_turn_ends(void **state)
{
    bus_subscribe(bus_of[0], "revoked", hear, who[0]);
    bus_publish(bus_of[0], STR("revoked"), STR("gw-1"));
    assert_int_equal(clock_next_ms(c), 0);
    clock_turn(c);
    assert_string_equal(heard, "x:revoked=gw-1 ");
}

static void an_answer_waits_for_the_next_turn(void **state)
{
    bus_subscribe(bus_of[0], "a", answer, who[1]);
    bus_publish(bus_of[0], STR("a"), STR("m"));
    clock_turn(c);
    assert_string_equal(heard, "1:a=m ");
    clock_turn(c);
    assert_string_equal(heard, "1:a=m 1:a=again ");
}

static void it_is_never_deaf(void **state)
{
    assert_false(bus_is_deaf(bus_of[0]));
}

UNIT(bus_test_local)
{
    const struct CMUnitTest tests[] = {
        BUS_CONTRACT,
        T(a_message_is_heard_when_the_turn_ends),
        T(an_answer_waits_for_the_next_turn),
        T(it_is_never_deaf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
