/* Promises of store/store.h and store/memory/memory.h, kept by the in-memory store. */
#include "store/contract_lease.h"
#include "base/clock.h"
#include "store/memory/memory.h"

static struct clock *c;

static void settle(void)
{
    while (pending > 0)
        clock_turn(c);
}

static void settled(void)
{
}

static int setup_with(struct store *(*new_store)(struct clock *clock))
{
    c = clock_new();
    st = new_store(c);
    pending = 0;
    order[0] = '\0';
    return 0;
}

static int setup(void **state)
{
    return setup_with(store_memory_new);
}

static int setup_shared(void **state)
{
    return setup_with(store_memory_new_shared);
}

static int teardown(void **state)
{
    store_close(st);
    clock_free(c);
    return 0;
}

static void everything_submitted_takes_one_turn(void **state)
{
    struct probe a = {0}, b = {0};
    append_start(&a, 1, 1, "x\n", true);
    append_start(&b, 2, 1, "x\n", false);
    assert_int_equal(count_rows(), 0);
    clock_turn(c);
    assert_int_equal(a.calls + b.calls, 2);
    assert_int_equal(count_rows(), 2);
}

static void on_done_close(struct store_op *op, enum bh_err err)
{
    store_close(st);
    st = NULL;
}

static void a_store_closed_inside_a_callback_runs_no_further_one(void **state)
{
    struct probe a = {0}, b = {0};
    append_start(&a, 1, 1, "x\n", true);
    a.op.done = on_done_close;
    append_start(&b, 2, 1, "x\n", true);
    clock_turn(c);
    assert_null(st);
    assert_int_equal(b.calls, 0);
}

UNIT(store_test_memory)
{
    const struct CMUnitTest tests[] = {
        CONTRACT(setup, teardown),
        CONTRACT(setup_shared, teardown),
        CONTRACT_LEASE(setup_shared, teardown),
        T(everything_submitted_takes_one_turn, setup, teardown),
        T(a_store_closed_inside_a_callback_runs_no_further_one, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
