/* Promises of bus/bus.h, kept by the in-process bus. */
#include "unit.h"
#include <stdio.h>
#include "base/clock.h"
#include "bus/bus.h"

static struct clock *c;
static struct bus *b;
static char heard[256];
static char who[][2] = {"x", "1", "2", "3"};

static void hear(void *ctx, struct str topic, struct str message)
{
    size_t n = strlen(heard);
    snprintf(heard + n, sizeof heard - n, "%s:%.*s=%.*s ", (const char *)ctx, STR_FMT(topic),
             STR_FMT(message));
}

static void answer(void *ctx, struct str topic, struct str message)
{
    hear(ctx, topic, message);
    bus_publish(b, topic, STR("again"));
}

static void hang_up(void *ctx, struct str topic, struct str message)
{
    hear(ctx, topic, message);
    b->ops->close(b);
    b = NULL;
}

static int setup(void **state)
{
    c = clock_new();
    b = bus_local_new(c);
    heard[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    if (b != NULL)
        b->ops->close(b);
    clock_free(c);
    return 0;
}

static void a_message_is_copied_and_heard_when_the_turn_ends(void **state)
{
    char topic[] = "revoked", text[] = "gw-1";
    bus_subscribe(b, "revoked", hear, who[0]);
    bus_publish(b, str_of(topic), str_of(text));
    memset(topic, '?', 7), memset(text, '?', 4);
    assert_string_equal(heard, "");
    assert_int_equal(clock_next_ms(c), 0);
    clock_turn(c);
    assert_string_equal(heard, "x:revoked=gw-1 ");
    clock_turn(c);
    assert_string_equal(heard, "x:revoked=gw-1 ");
}

static void every_subscriber_of_exactly_that_topic_hears_it_in_order(void **state)
{
    bus_subscribe(b, "a", hear, who[1]);
    bus_subscribe(b, "ab", hear, who[2]);
    bus_subscribe(b, "a", hear, who[3]);
    bus_publish(b, STR("a"), STR("m"));
    bus_publish(b, STR("ab"), STR(""));
    bus_publish(b, STR("abc"), STR("nobody"));
    clock_turn(c);
    assert_string_equal(heard, "1:a=m 3:a=m 2:ab= ");
}

static void an_answer_waits_for_the_next_turn(void **state)
{
    bus_subscribe(b, "a", answer, who[1]);
    bus_publish(b, STR("a"), STR("m"));
    clock_turn(c);
    assert_string_equal(heard, "1:a=m ");
    clock_turn(c);
    assert_string_equal(heard, "1:a=m 1:a=again ");
}

static void no_callback_runs_after_close(void **state)
{
    bus_subscribe(b, "a", hang_up, who[1]);
    bus_subscribe(b, "a", hear, who[2]);
    bus_publish(b, STR("a"), STR("m"));
    bus_publish(b, STR("a"), STR("n"));
    clock_turn(c);
    clock_turn(c);
    assert_string_equal(heard, "1:a=m ");
}

static void closing_with_undelivered_messages_is_fine(void **state)
{
    bus_subscribe(b, "a", hear, who[1]);
    bus_publish(b, STR("a"), STR("m"));
    b->ops->close(b);
    b = NULL;
    clock_turn(c);
    assert_string_equal(heard, "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_message_is_copied_and_heard_when_the_turn_ends),
        T(every_subscriber_of_exactly_that_topic_hears_it_in_order),
        T(an_answer_waits_for_the_next_turn),
        T(no_callback_runs_after_close),
        T(closing_with_undelivered_messages_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
