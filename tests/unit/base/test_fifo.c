/* Promises of base/fifo.h. */
#include "unit.h"
#include "base/fifo.h"

static int things[5000];

static void what_went_in_first_comes_out_first(void **state)
{
    struct fifo q = {0};
    size_t in = 0, out = 0;

    for (size_t round = 0; round < 40; round++) { /* the ring wraps, and grows while it does */
        for (size_t i = 0; i < 100; i++)
            fifo_push(&q, &things[in++]);
        for (size_t i = 0; i < 60; i++)
            assert_ptr_equal(fifo_pop(&q), &things[out++]);
    }
    while (!fifo_is_empty(&q))
        assert_ptr_equal(fifo_pop(&q), &things[out++]);
    assert_int_equal(out, in);
    assert_null(fifo_pop(&q));
    fifo_done(&q);
}

static void an_empty_queue_gives_nothing_and_takes_again(void **state)
{
    struct fifo q = {0};

    assert_true(fifo_is_empty(&q));
    assert_null(fifo_pop(&q));
    for (size_t i = 0; i < 5000; i++)
        fifo_push(&q, &things[i]);
    for (size_t i = 0; i < 5000; i++)
        assert_ptr_equal(fifo_pop(&q), &things[i]);
    assert_null(fifo_pop(&q));
    assert_int_equal(q.cap, 0); /* a large ring does not stay */
    fifo_push(&q, &things[7]);
    assert_ptr_equal(fifo_pop(&q), &things[7]);
    fifo_done(&q);
}

UNIT(base_test_fifo)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_went_in_first_comes_out_first),
        cmocka_unit_test(an_empty_queue_gives_nothing_and_takes_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
