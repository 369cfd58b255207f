/* Promises of base/rand.h. */
#include "unit.h"
#include "base/rand.h"

static void one_seed_gives_one_sequence(void **state)
{
    struct rand a = rand_seeded(42), b = rand_seeded(42), c = rand_seeded(43);
    int same = 0;

    for (int i = 0; i < 1000; i++) {
        uint64_t v = rand_u64(&a);
        assert_true(v == rand_u64(&b));
        same += v == rand_u64(&c);
    }
    assert_int_equal(same, 0);
}

static void no_seed_turns_into_the_system_generator(void **state)
{
    for (uint64_t seed = 0; seed < 1000; seed++)
        assert_true(rand_seeded(seed).state != 0);
    struct rand edge = {.state = 0 - 0x9e3779b97f4a7c15ULL}; /* the next step lands on zero */
    rand_u64(&edge);
    assert_true(edge.state != 0);
}

static void the_system_generator_does_not_repeat_itself(void **state)
{
    struct rand r = RAND_SYSTEM;
    uint8_t a[300] = {0}, b[300] = {0};

    rand_bytes(&r, a, sizeof a);
    rand_bytes(&r, b, sizeof b);
    rand_bytes(&r, b, 0);
    assert_memory_not_equal(a, b, sizeof a);
    assert_true(r.state == 0);
}

static void bytes_fill_exactly_what_was_asked(void **state)
{
    struct rand r = rand_seeded(1);
    uint8_t p[32];

    for (size_t n = 0; n < 24; n++) {
        memset(p, 0xa5, sizeof p);
        rand_bytes(&r, p, n);
        for (size_t i = n; i < sizeof p; i++)
            assert_int_equal(p[i], 0xa5);
    }
}

static void below_stays_below_and_reaches_everything(void **state)
{
    struct rand r = rand_seeded(7);
    int seen[10] = {0};

    for (int i = 0; i < 10000; i++)
        seen[rand_below(&r, 10)]++;
    for (int i = 0; i < 10; i++)
        assert_in_range(seen[i], 800, 1200);
    assert_true(rand_below(&r, 1) == 0);
    rand_below(&r, UINT64_MAX);
}

UNIT(base_test_rand)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_seed_gives_one_sequence),
        cmocka_unit_test(no_seed_turns_into_the_system_generator),
        cmocka_unit_test(the_system_generator_does_not_repeat_itself),
        cmocka_unit_test(bytes_fill_exactly_what_was_asked),
        cmocka_unit_test(below_stays_below_and_reaches_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
