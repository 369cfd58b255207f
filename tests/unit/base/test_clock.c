/* Promises of base/clock.h, on a clock turned by hand. */
#include "unit.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/str.h"

struct item {
    struct timer timer;
    int id;
};
static struct clock *c;
static char seen[256];
static struct item a, b, d;

static void note(int id)
{
    size_t n = strlen(seen);

    snprintf(seen + n, sizeof seen - n, "%d ", id);
}

static void on_timer(struct timer *t)
{
    note(container_of(t, struct item, timer)->id);
}

static int setup(void **state)
{
    c = clock_new();
    clock_set(c, 1000, 5000);
    seen[0] = '\0';
    a = (struct item){.id = 1};
    b = (struct item){.id = 2};
    d = (struct item){.id = 3};
    timer_init(&a.timer, on_timer);
    timer_init(&b.timer, on_timer);
    timer_init(&d.timer, on_timer);
    return 0;
}

static int teardown(void **state)
{
    clock_free(c);
    return 0;
}

static void turn_at(int64_t now_ms)
{
    clock_set(c, now_ms, now_ms + 4000);
    clock_turn(c);
}

static void time_is_what_was_set_and_stands_still(void **state)
{
    assert_int_equal(clock_now_ms(c), 1000);
    assert_int_equal(clock_wall_ms(c), 5000);
    clock_turn(c);
    assert_int_equal(clock_now_ms(c), 1000);
}

static void a_new_clock_starts_at_the_time_of_the_system(void **state)
{
    struct clock *fresh = clock_new();

    assert_true(clock_wall_ms(fresh) > INT64_C(1500000000000));
    clock_free(fresh);
    clock_free(NULL);
}

static void timers_fire_in_order_of_their_due_time(void **state)
{
    timer_set(c, &a.timer, 30);
    timer_set(c, &b.timer, 10);
    timer_set(c, &d.timer, 20);
    turn_at(1009);
    assert_string_equal(seen, "");
    turn_at(1020);
    assert_string_equal(seen, "2 3 ");
    turn_at(5000);
    assert_string_equal(seen, "2 3 1 ");
    turn_at(9000);
    assert_string_equal(seen, "2 3 1 ");
}

static void equal_due_times_fire_in_order_of_arming(void **state)
{
    struct item many[100];

    for (int i = 0; i < 100; i++) {
        many[i] = (struct item){.id = i % 10};
        timer_init(&many[i].timer, on_timer);
    }
    for (int i = 0; i < 100; i++)
        timer_set(c, &many[(i * 7) % 100].timer, 5);
    turn_at(1005);
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[2 * i] - '0', (i * 7) % 10);
}

static void a_stopped_timer_stays_silent_and_stopping_twice_is_harmless(void **state)
{
    timer_stop(c, &a.timer);
    timer_set(c, &a.timer, 5);
    assert_true(timer_is_set(&a.timer));
    timer_stop(c, &a.timer);
    timer_stop(c, &a.timer);
    assert_false(timer_is_set(&a.timer));
    turn_at(2000);
    assert_string_equal(seen, "");
}

static void setting_again_moves_a_timer(void **state)
{
    timer_set(c, &a.timer, 5);
    timer_set(c, &b.timer, 10);
    timer_set(c, &a.timer, 500);
    turn_at(1100);
    assert_string_equal(seen, "2 ");
    timer_set(c, &a.timer, 1);
    turn_at(1101);
    assert_string_equal(seen, "2 1 ");
}

static void on_rearm(struct timer *t)
{
    on_timer(t);
    timer_set(c, t, -5);
}

static void armed_during_a_turn_for_now_means_the_next_turn(void **state)
{
    timer_init(&a.timer, on_rearm);
    timer_set(c, &a.timer, 0);
    timer_set(c, &b.timer, 0);
    turn_at(1000);
    assert_string_equal(seen, "1 2 ");
    assert_int_equal(clock_next_ms(c), 0);
    turn_at(1000);
    assert_string_equal(seen, "1 2 1 ");
}

static void on_stop_b(struct timer *t)
{
    on_timer(t);
    timer_stop(c, &b.timer);
}

static void a_timer_may_stop_another_that_is_due_in_the_same_turn(void **state)
{
    timer_init(&a.timer, on_stop_b);
    timer_set(c, &a.timer, 1);
    timer_set(c, &b.timer, 1);
    timer_set(c, &d.timer, 1);
    turn_at(1001);
    assert_string_equal(seen, "1 3 ");
}

static void on_free(struct timer *t)
{
    note(9);
    free(container_of(t, struct item, timer));
}

static void a_timer_may_free_its_owner(void **state)
{
    struct item *heap = calloc(1, sizeof *heap);

    timer_init(&heap->timer, on_free);
    timer_set(c, &heap->timer, 1);
    turn_at(1001);
    assert_string_equal(seen, "9 ");
}

static void next_says_how_long_to_sleep(void **state)
{
    assert_int_equal(clock_next_ms(c), -1);
    timer_set(c, &a.timer, 250);
    assert_int_equal(clock_next_ms(c), 250);
    clock_set(c, 1300, 0);
    assert_int_equal(clock_next_ms(c), 0);
}

static void a_wait_beyond_all_time_does_not_wrap(void **state)
{
    timer_set(c, &a.timer, INT64_MAX);
    turn_at(INT64_MAX - 1);
    assert_string_equal(seen, "");
    timer_set(c, &b.timer, INT64_MIN);
    assert_int_equal(clock_next_ms(c), 0);
}

static void on_deferred(void *ctx)
{
    note((int)(intptr_t)ctx);
}

static void on_deferred_more(void *ctx)
{
    note(4);
    clock_defer(c, on_deferred, (void *)5);
}

static void on_timer_defer(struct timer *t)
{
    clock_defer(c, on_deferred, (void *)7);
    on_timer(t);
}

static void deferred_calls_run_in_order_when_the_turn_ends(void **state)
{
    timer_init(&a.timer, on_timer_defer);
    timer_set(c, &a.timer, 0);
    timer_set(c, &b.timer, 0);
    clock_defer(c, on_deferred, (void *)6);
    assert_string_equal(seen, "");
    assert_int_equal(clock_next_ms(c), 0);
    clock_turn(c);
    assert_string_equal(seen, "1 2 6 7 ");
    assert_int_equal(clock_next_ms(c), -1);
}

static void a_deferred_call_may_defer_another_into_the_same_turn(void **state)
{
    for (int i = 0; i < 20; i++)
        clock_defer(c, i == 3 ? on_deferred_more : on_deferred, (void *)1);
    clock_turn(c);
    assert_string_equal(seen, "1 1 1 4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 5 ");
}

static void freeing_the_clock_forgets_timers_and_runs_deferred_calls(void **state)
{
    timer_set(c, &a.timer, 0);
    clock_defer(c, on_deferred_more, NULL);
    clock_free(c);
    c = NULL;
    assert_string_equal(seen, "4 5 ");
    assert_false(timer_is_set(&a.timer));
    setup(state);
}

static struct item many[300];
static int64_t last_due, due_ms_of[ARRAY_LEN(many)];

static void on_check_order(struct timer *t)
{
    const struct item *i = container_of(t, struct item, timer);

    assert_true(due_ms_of[i - many] >= last_due);
    last_due = due_ms_of[i - many];
}

static void random_arming_and_stopping_never_breaks_the_order(void **state)
{
    struct rand r = rand_seeded(3);
    size_t armed = 0, left = 0;

    for (int i = 0; i < 300; i++)
        timer_init(&many[i].timer, on_check_order);
    for (int i = 0; i < 20000; i++) {
        struct timer *t = &many[rand_below(&r, 300)].timer;
        if (rand_below(&r, 3) == 0)
            timer_stop(c, t);
        else
            timer_set(c, t, (int64_t)rand_below(&r, 1000));
    }
    for (int i = 0; i < 300; i++) {
        armed += timer_is_set(&many[i].timer);
        due_ms_of[i] = timer_due_ms(c, &many[i].timer);
        assert_true((due_ms_of[i] != 0) == timer_is_set(&many[i].timer));
    }
    assert_true(armed > 100);
    last_due = 0;
    turn_at(2000);
    for (int i = 0; i < 300; i++)
        left += timer_is_set(&many[i].timer);
    assert_int_equal(left, 0);
}

static void a_backoff_doubles_up_to_its_bound(void **state)
{
    const int64_t ms[] = {100, 100, 200, 400, 750, 750};

    for (unsigned n = 0; n < ARRAY_LEN(ms); n++)
        assert_int_equal(clock_backoff_ms(n, 100, 750), ms[n]);
    assert_int_equal(clock_backoff_ms(4000000000u, 100, 750), 750);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(base_test_clock)
{
    const struct CMUnitTest tests[] = {
        TEST(time_is_what_was_set_and_stands_still),
        TEST(a_new_clock_starts_at_the_time_of_the_system),
        TEST(timers_fire_in_order_of_their_due_time),
        TEST(equal_due_times_fire_in_order_of_arming),
        TEST(a_stopped_timer_stays_silent_and_stopping_twice_is_harmless),
        TEST(setting_again_moves_a_timer),
        TEST(armed_during_a_turn_for_now_means_the_next_turn),
        TEST(a_timer_may_stop_another_that_is_due_in_the_same_turn),
        TEST(a_timer_may_free_its_owner),
        TEST(next_says_how_long_to_sleep),
        TEST(a_wait_beyond_all_time_does_not_wrap),
        TEST(deferred_calls_run_in_order_when_the_turn_ends),
        TEST(a_deferred_call_may_defer_another_into_the_same_turn),
        TEST(freeing_the_clock_forgets_timers_and_runs_deferred_calls),
        TEST(random_arming_and_stopping_never_breaks_the_order),
        TEST(a_backoff_doubles_up_to_its_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
