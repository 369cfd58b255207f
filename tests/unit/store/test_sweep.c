/* What sweep.h promises: every record is looked at once in a pass, and whoever stops it is left
 * alone. */
#include "unit.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/memory/memory.h"
#include "store/store.h"
#include "store/sweep.h"

enum { RECORDS = 3000, VALUE_BYTES = 200 }; /* several steps */

static struct {
    struct clock *clock;
    struct store *store;
    struct sweep *sweep;
    int begun, ended, seen, kept;
} w;

static void on_begin(void *ctx)
{
    w.begun++;
    w.seen = w.kept = 0;
}
static bool goes(void *ctx, struct str key, struct str value)
{
    assert_int_equal(value.n, VALUE_BYTES);
    bool odd = (key.p[key.n - 1] - '0') % 2 != 0;
    w.seen++;
    w.kept += !odd;
    return odd;
}
static void on_end(void *ctx, bool ok)
{
    assert_true(ok);
    w.ended++;
}
static const struct sweep_ops ops = {on_begin, goes, on_end};

static int setup(void **state)
{
    char key[16], value[VALUE_BYTES];

    memset(&w, 0, sizeof w);
    memset(value, 'v', sizeof value);
    w.clock = clock_new();
    clock_set(w.clock, 1000, 1700000000000);
    w.store = store_memory_new(w.clock);
    for (int i = 0; i < RECORDS; i++) {
        snprintf(key, sizeof key, "k%06d", i);
        struct store_kv item = {KV_PUT, "things", str_of(key), str_make(value, sizeof value)};
        store_put(w.store, &item, 1, false, NULL, NULL);
    }
    return 0;
}
static int teardown(void **state)
{
    sweep_stop(&w.sweep);
    store_close(w.store);
    clock_free(w.clock);
    return 0;
}

static void pass_time(int64_t ms)
{
    for (int64_t t = 0; t < ms; t += 10) {
        clock_set(w.clock, clock_now_ms(w.clock) + 10, clock_wall_ms(w.clock) + 10);
        for (int i = 0; i < 4; i++)
            clock_turn(w.clock);
    }
}

static void a_pass_sees_each_once_and_what_goes_is_gone_in_the_next(void **state)
{
    w.sweep = sweep_start(w.store, w.clock, "things", 60000, &ops, &w);
    pass_time(2000);
    assert_int_equal(w.ended, 1);
    assert_int_equal(w.seen, RECORDS);
    assert_int_equal(w.kept, RECORDS / 2);
    pass_time(60000);
    assert_int_equal(w.begun, 2);
    pass_time(2000);
    assert_int_equal(w.ended, 2);
    assert_int_equal(w.seen, RECORDS / 2);
}

static void one_pass_may_be_enough(void **state)
{
    w.sweep = sweep_start(w.store, w.clock, "things", 0, &ops, &w);
    pass_time(10000);
    assert_int_equal(w.begun, 1);
    assert_int_equal(w.ended, 1);
}

static void without_a_clock_it_is_one_pass_at_once(void **state)
{
    w.sweep = sweep_start(w.store, NULL, "things", 0, &ops, &w);
    for (int i = 0; i < 400 && w.ended == 0; i++)
        clock_turn(w.clock); /* the memory store answers; time stands still */
    assert_int_equal(w.ended, 1);
    assert_int_equal(w.seen, RECORDS);
}

static void stopped_anywhere_it_calls_nobody(void **state)
{
    for (int after = 0; after < 40; after++) {
        w.sweep = sweep_start(w.store, w.clock, "things", 60000, &ops, &w);
        clock_set(w.clock, clock_now_ms(w.clock) + 10, clock_wall_ms(w.clock) + 10);
        for (int i = 0; i < after; i++)
            clock_turn(w.clock);
        sweep_stop(&w.sweep);
        int seen = w.seen;
        pass_time(200);
        assert_int_equal(w.seen, seen);
        assert_null(w.sweep);
    }
}

static void the_store_may_be_closed_first(void **state)
{
    w.sweep = sweep_start(w.store, w.clock, "things", 60000, &ops, &w);
    clock_set(w.clock, clock_now_ms(w.clock) + 10, clock_wall_ms(w.clock) + 10);
    clock_turn(w.clock); /* a read is under way */
    store_close(w.store);
    sweep_stop(&w.sweep);
    w.store = store_memory_new(w.clock);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(store_test_sweep)
{
    const struct CMUnitTest tests[] = {
        T(a_pass_sees_each_once_and_what_goes_is_gone_in_the_next),
        T(one_pass_may_be_enough),
        T(without_a_clock_it_is_one_pass_at_once),
        T(stopped_anywhere_it_calls_nobody),
        T(the_store_may_be_closed_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
