/* Handles find the thing they were made for, or nothing. */
#include "unit.h"
#include "base/handles.h"
#include "base/rand.h"

static struct handles h;
static int a, b;

static int setup(void **state)
{
    struct rand rand = rand_seeded(7);

    handles_init(&h, &rand);
    return 0;
}

static int teardown(void **state)
{
    handles_done(&h);
    return 0;
}

static void a_handle_finds_its_thing_until_it_is_removed(void **state)
{
    struct handle id = handles_add(&h, &a);

    assert_ptr_equal(handles_find(&h, id), &a);
    assert_ptr_equal(handles_remove(&h, id), &a);
    assert_null(handles_find(&h, id));
    assert_null(handles_remove(&h, id));
    assert_int_equal(h.live, 0);
}

static void a_reused_slot_is_not_found_by_the_handle_before(void **state)
{
    struct handle old = handles_add(&h, &a), id;

    handles_remove(&h, old);
    id = handles_add(&h, &b);
    assert_int_equal(id.index, old.index);
    assert_null(handles_find(&h, old));
    assert_ptr_equal(handles_find(&h, id), &b);
}

static void a_renewed_handle_is_the_only_one(void **state)
{
    struct handle old = handles_add(&h, &a), id = handles_renew(&h, old);

    assert_null(handles_find(&h, old));
    assert_ptr_equal(handles_find(&h, id), &a);
    assert_int_equal(handles_renew(&h, old).generation, 0);
}

static void a_zeroed_or_foreign_handle_finds_nothing(void **state)
{
    handles_add(&h, &a);
    assert_null(handles_find(&h, (struct handle){0}));
    assert_null(handles_find(&h, (struct handle){99, h.start}));
}

static void generations_start_at_random_and_are_never_zero(void **state)
{
    struct handles other;
    struct rand rand = rand_seeded(8);

    handles_init(&other, &rand);
    assert_int_not_equal(h.start, other.start);
    h.start = UINT32_MAX;
    struct handle id = handles_add(&h, &a);
    handles_remove(&h, id);
    assert_int_equal(handles_add(&h, &a).generation, 1);
    handles_done(&other);
}

static void many_come_and_go_and_are_walked(void **state)
{
    static int things[1000];
    struct handle id[1000];
    size_t n = 0;

    for (int i = 0; i < 1000; i++)
        id[i] = handles_add(&h, &things[i]);
    for (int i = 0; i < 1000; i += 3)
        assert_ptr_equal(handles_remove(&h, id[i]), &things[i]);
    for (int i = 0; i < 1000; i++)
        assert_ptr_equal(handles_find(&h, id[i]), i % 3 == 0 ? NULL : &things[i]);
    for (uint32_t at = 0; handles_next(&h, &at) != NULL;)
        n++;
    assert_int_equal(n, h.live);
    assert_int_equal(n, 1000 - 334);
}

UNIT(base_test_handles)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_handle_finds_its_thing_until_it_is_removed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_reused_slot_is_not_found_by_the_handle_before, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_renewed_handle_is_the_only_one, setup, teardown),
        cmocka_unit_test_setup_teardown(a_zeroed_or_foreign_handle_finds_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(generations_start_at_random_and_are_never_zero, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(many_come_and_go_and_are_walked, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
