/* Promises of base/arena.h. */
#include "unit.h"
#include <stdalign.h>
#include "base/arena.h"

static void every_allocation_is_aligned_and_its_own(void **state)
{
    struct arena a = ARENA_INIT;
    unsigned char *p[500];

    for (int i = 0; i < 500; i++) {
        p[i] = arena_alloc(&a, (size_t)i);
        assert_int_equal((uintptr_t)p[i] % alignof(max_align_t), 0);
        memset(p[i], i & 0xff, (size_t)i);
    }
    for (int i = 0; i < 500; i++)
        for (int k = 0; k < i; k++)
            assert_int_equal(p[i][k], i & 0xff);
    arena_done(&a);
}

static void large_ones_mix_with_small_ones(void **state)
{
    struct arena a = ARENA_INIT;
    char *large = arena_alloc(&a, 1 << 20), *small = arena_alloc(&a, 8);
    char *large2 = arena_alloc(&a, 1 << 16), *small2 = arena_alloc(&a, 8);

    memset(large, 1, 1 << 20);
    memset(large2, 2, 1 << 16);
    memset(small, 3, 8);
    memset(small2, 4, 8);
    assert_int_equal(small2 - small, 16); /* the large one did not end the common block */
    assert_int_equal(large[(1 << 20) - 1], 1);
    assert_int_equal(small[7], 3);
    arena_done(&a);
}

static void a_copied_str_is_terminated_behind_its_end(void **state)
{
    struct arena a = ARENA_INIT;
    struct str s = arena_str(&a, str_make("abcdef", 3)), empty = arena_str(&a, STR(""));

    assert_str(s, "abc");
    assert_int_equal(s.p[3], '\0');
    assert_non_null(empty.p);
    assert_int_equal(empty.p[0], '\0');
    assert_null(arena_str(&a, STR_NULL).p);
    arena_done(&a);
}

static void reset_reuses_a_block_and_drops_the_large_ones(void **state)
{
    struct arena a = ARENA_INIT;

    arena_reset(&a);
    void *first = arena_alloc(&a, 64);
    for (int i = 0; i < 100; i++)
        arena_alloc(&a, i % 10 == 0 ? 100000 : 500);
    arena_reset(&a);
    assert_non_null(a.head);
    assert_int_equal(a.used, 0);
    memset(arena_alloc(&a, 64), 0, 64);
    arena_done(&a);
    assert_null(a.head);
    (void)first;
}

static void a_lone_large_block_is_not_kept(void **state)
{
    struct arena a = ARENA_INIT;

    arena_alloc(&a, 1 << 20);
    arena_reset(&a);
    assert_null(a.head);
    memset(arena_alloc(&a, 8), 0, 8);
    arena_done(&a);
}

UNIT(base_test_arena)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_is_aligned_and_its_own),
        cmocka_unit_test(large_ones_mix_with_small_ones),
        cmocka_unit_test(a_copied_str_is_terminated_behind_its_end),
        cmocka_unit_test(reset_reuses_a_block_and_drops_the_large_ones),
        cmocka_unit_test(a_lone_large_block_is_not_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
