/* contract.h - the promises of bus/bus.h, for every bus.  A bus test says how two processes get
 * theirs (bus_of: 0 or 1; the local bus has only one) and how time passes (turn). */
#pragma once
#include "unit.h"
#include <stdio.h>
#include "bus/bus.h"

static struct bus *bus_of[2];
static int n_buses;
static char heard[512];
static char who[][2] = {"x", "1", "2", "3"};
static void turn(void); /* once: short */
static int contract_setup(void **state);
static int contract_teardown(void **state);

static void hear(void *ctx, struct str topic, struct str message)
{
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s:%.*s=%.*s ", (const char *)ctx, STR_FMT(topic),
             STR_FMT(message));
}

/* Until @what was heard, or for very long. */
static void wait_heard(const char *what)
{
    for (int i = 0; i < 3000 && strcmp(heard, what) != 0; i++)
        turn();
    assert_string_equal(heard, what);
}

static void a_message_is_copied_and_never_heard_inside_publish(void **state)
{
    char topic[] = "revoked", text[] = "gw-1";
    bus_subscribe(bus_of[0], "revoked", hear, who[0]);
    bus_publish(bus_of[0], str_of(topic), str_of(text));
    memset(topic, '?', 7), memset(text, '?', 4);
    assert_string_equal(heard, "");
    wait_heard("x:revoked=gw-1 ");
    for (int i = 0; i < 5; i++)
        turn();
    assert_string_equal(heard, "x:revoked=gw-1 "); /* once, however it comes back */
}

static void every_subscriber_of_exactly_that_topic_hears_it_in_order(void **state)
{
    bus_subscribe(bus_of[0], "a", hear, who[1]);
    bus_subscribe(bus_of[0], "ab", hear, who[2]);
    bus_subscribe(bus_of[0], "a", hear, who[3]);
    bus_publish(bus_of[0], STR("a"), STR("m"));
    bus_publish(bus_of[0], STR("ab"), STR(""));
    bus_publish(bus_of[0], STR("abc"), STR("nobody"));
    wait_heard("1:a=m 3:a=m 2:ab= ");
}

static void answer(void *ctx, struct str topic, struct str message)
{
    bool first = heard[0] == '\0';
    hear(ctx, topic, message);
    if (first)
        bus_publish(bus_of[0], topic, STR("again"));
}

static void an_answer_is_heard_too(void **state)
{
    bus_subscribe(bus_of[0], "a", answer, who[1]);
    bus_publish(bus_of[0], STR("a"), STR("m"));
    wait_heard("1:a=m 1:a=again ");
}

static void hang_up(void *ctx, struct str topic, struct str message)
{
    hear(ctx, topic, message);
    bus_of[0]->ops->close(bus_of[0]);
    bus_of[0] = NULL;
}

static void no_callback_runs_after_close(void **state)
{
    bus_subscribe(bus_of[0], "a", hang_up, who[1]);
    bus_subscribe(bus_of[0], "a", hear, who[2]);
    bus_publish(bus_of[0], STR("a"), STR("m"));
    bus_publish(bus_of[0], STR("a"), STR("n"));
    wait_heard("1:a=m ");
    for (int i = 0; i < 5; i++)
        turn();
    assert_string_equal(heard, "1:a=m ");
}

static void closing_with_undelivered_messages_is_fine(void **state)
{
    bus_subscribe(bus_of[0], "a", hear, who[1]);
    bus_publish(bus_of[0], STR("a"), STR("m"));
    bus_of[0]->ops->close(bus_of[0]);
    bus_of[0] = NULL;
    turn();
    assert_string_equal(heard, "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, contract_setup, contract_teardown)
#define BUS_CONTRACT \
    T(a_message_is_copied_and_never_heard_inside_publish), \
        T(every_subscriber_of_exactly_that_topic_hears_it_in_order), T(an_answer_is_heard_too), \
        T(no_callback_runs_after_close), T(closing_with_undelivered_messages_is_fine)
