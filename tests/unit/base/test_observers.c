/* Promises of base/observers.h. */
#include "unit.h"
#include <stdio.h>
#include "base/clock.h"
#include "base/observers.h"

static struct clock *c;
static struct observers *o;
static char heard[256];
static char who[][2] = {"x", "1", "2", "3"};

static int setup(void **state)
{
    c = clock_new();
    o = observers_new(c);
    heard[0] = '\0';
    return 0;
}

static int teardown(void **state)
{
    observers_free(o);
    clock_free(c);
    return 0;
}

static void hear(void *ctx, struct str about)
{
    size_t n = strlen(heard);

    snprintf(heard + n, sizeof heard - n, "%s=%.*s ", (const char *)ctx, STR_FMT(about));
}

static void news_are_copied_and_heard_when_the_turn_ends(void **state)
{
    char text[] = "gw-1";

    observers_add(o, "revoked", hear, who[0]);
    observers_tell(o, "revoked", str_of(text));
    memset(text, '?', 4);
    assert_string_equal(heard, "");
    assert_int_equal(clock_next_ms(c), 0);
    clock_turn(c);
    assert_string_equal(heard, "x=gw-1 ");
    clock_turn(c);
    assert_string_equal(heard, "x=gw-1 ");
}

static void every_listener_of_exactly_that_topic_hears_it_in_order(void **state)
{
    observers_add(o, "a", hear, who[1]);
    observers_add(o, "ab", hear, who[2]);
    observers_add(o, "a", hear, who[3]);
    observers_tell(o, "a", STR("m"));
    observers_tell(o, "ab", STR(""));
    observers_tell(o, "abc", STR("nobody"));
    clock_turn(c);
    assert_string_equal(heard, "1=m 3=m 2= ");
}

static void answer(void *ctx, struct str about)
{
    bool first = heard[0] == '\0';

    hear(ctx, about);
    if (first)
        observers_tell(o, "a", STR("again"));
}

static void what_a_callback_tells_waits_for_the_next_turn(void **state)
{
    observers_add(o, "a", answer, who[1]);
    observers_tell(o, "a", STR("m"));
    clock_turn(c);
    assert_string_equal(heard, "1=m ");
    clock_turn(c);
    assert_string_equal(heard, "1=m 1=again ");
}

static void hang_up(void *ctx, struct str about)
{
    hear(ctx, about);
    observers_free(o);
    o = NULL;
}

static void no_callback_runs_after_it_is_freed(void **state)
{
    observers_add(o, "a", hang_up, who[1]);
    observers_add(o, "a", hear, who[2]);
    observers_tell(o, "a", STR("m"));
    observers_tell(o, "a", STR("n"));
    clock_turn(c);
    clock_turn(c);
    assert_string_equal(heard, "1=m ");
}

static void freeing_it_with_news_untold_is_fine(void **state)
{
    observers_add(o, "a", hear, who[1]);
    observers_tell(o, "a", STR("m"));
    observers_free(o);
    o = NULL;
    clock_turn(c);
    assert_string_equal(heard, "");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(base_test_observers)
{
    const struct CMUnitTest tests[] = {
        T(news_are_copied_and_heard_when_the_turn_ends),
        T(every_listener_of_exactly_that_topic_hears_it_in_order),
        T(what_a_callback_tells_waits_for_the_next_turn),
        T(no_callback_runs_after_it_is_freed),
        T(freeing_it_with_news_untold_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
