/* Promises of base/pool.h. */
#include "unit.h"
#include "base/pool.h"

#define N 5000 /* several blocks */
struct record {
    uint64_t name, more[7];
};
static struct record *taken[N];

static void a_record_is_zeroed_never_moves_and_has_a_number_of_its_own(void **state)
{
    struct pool p = POOL_INIT(sizeof(struct record));

    assert_null(pool_at(&p, 0));
    assert_int_equal(pool_number(&p, NULL), 0);
    for (int i = 0; i < N; i++) {
        taken[i] = pool_take(&p);
        for (int k = 0; k < 7; k++)
            assert_int_equal(taken[i]->more[k], 0);
        memset(taken[i], 0xff, sizeof *taken[i]);
        taken[i]->name = (uint64_t)i;
    }
    assert_int_equal(p.live, N);
    for (int i = 0; i < N; i++) {
        uint32_t number = pool_number(&p, taken[i]);
        assert_int_not_equal(number, 0);
        assert_ptr_equal(pool_at(&p, number), taken[i]);
        assert_int_equal(taken[i]->name, i); /* nobody wrote over it */
    }
    pool_done(&p);
}

static void what_is_given_back_is_used_again_before_more_is_taken(void **state)
{
    struct pool p = POOL_INIT(sizeof(struct record));

    for (int i = 0; i < N; i++)
        taken[i] = pool_take(&p);
    uint32_t blocks = p.n_blocks;
    for (int round = 0; round < 3; round++) {
        for (int i = round; i < N; i += 2)
            pool_give(&p, taken[i]);
        for (int i = round; i < N; i += 2) {
            taken[i] = pool_take(&p);
            assert_int_equal(taken[i]->name, 0);
            taken[i]->name = 1 + (uint64_t)i;
        }
    }
    assert_int_equal(p.n_blocks, blocks);
    assert_int_equal(p.live, N);
    pool_done(&p);
}

static void records_of_other_sizes_fill_a_block_too(void **state)
{
    const uint32_t sizes[] = {16, 24, 40, 1000, 9000};

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct pool p = POOL_INIT(sizes[s]);
        for (int i = 0; i < 100; i++) {
            char *r = pool_take(&p);
            memset(r, i, sizes[s]);
            taken[i] = (struct record *)(void *)r;
        }
        for (int i = 0; i < 100; i++) {
            const char *r = pool_at(&p, pool_number(&p, taken[i]));
            assert_int_equal(r[0], i);
            assert_int_equal(r[sizes[s] - 1], i);
        }
        pool_done(&p);
    }
}

UNIT(base_test_pool)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_is_zeroed_never_moves_and_has_a_number_of_its_own),
        cmocka_unit_test(what_is_given_back_is_used_again_before_more_is_taken),
        cmocka_unit_test(records_of_other_sizes_fill_a_block_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
