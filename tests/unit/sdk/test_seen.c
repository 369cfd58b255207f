/* Promises of sdk/src/seen.h. */
#include "unit.h"
#include "../../../sdk/src/seen.h"

static struct str name(char *room, int i)
{
    return str_make(room, (size_t)sprintf(room, "b%d", i));
}

static void an_id_is_new_once_then_pending_then_settled(void **state)
{
    struct seen l;
    struct seen_entry *e, *again;

    seen_init(&l, 4);
    assert_null(seen_find(&l, STR("a")));
    e = seen_add(&l, STR("a"), 2);
    again = seen_find(&l, STR("a"));
    assert_ptr_equal(e, again);
    assert_int_equal(e->state, SEEN_PENDING);
    assert_int_equal(e->socket, 2);
    assert_int_equal(seen_n_pending(&l), 1);
    seen_settle(&l, e);
    assert_int_equal(seen_n_pending(&l), 0);
    assert_null(seen_pending(&l, e->number));
    assert_ptr_equal(seen_find(&l, STR("a")), e);
    assert_int_equal(e->state, SEEN_SETTLED);
    seen_done(&l);
}

static void a_forgotten_id_is_new_again_with_another_number(void **state)
{
    struct seen l;
    struct seen_entry *e;

    seen_init(&l, 4);
    e = seen_add(&l, STR("a"), 1);
    uint64_t number = e->number;
    assert_ptr_equal(seen_pending(&l, number), e);
    seen_forget(&l, e);
    assert_null(seen_pending(&l, number));
    assert_null(seen_find(&l, STR("a")));
    assert_true(seen_add(&l, STR("a"), 1)->number > number);
    seen_done(&l);
}

static void the_last_settled_ids_are_remembered_and_no_more(void **state)
{
    struct seen l;
    char room[16];

    seen_init(&l, 100);
    for (int i = 0; i < 1000; i++) {
        seen_settle(&l, seen_add(&l, name(room, i), 1));
        assert_true(map_count(&l.by_id) <= 100);
    }
    for (int i = 900; i < 1000; i++)
        assert_non_null(seen_find(&l, name(room, i)));
    assert_null(seen_find(&l, name(room, 899)));
    seen_done(&l);
}

static void a_pending_id_is_never_evicted(void **state)
{
    struct seen l;
    char room[16];

    seen_init(&l, 1);
    struct seen_entry *held = seen_add(&l, STR("held"), 1);
    for (int i = 0; i < 1000; i++)
        seen_settle(&l, seen_add(&l, name(room, i), 1));
    assert_ptr_equal(seen_find(&l, STR("held")), held);
    assert_ptr_equal(seen_pending(&l, held->number), held);
    seen_done(&l);
}

UNIT(sdk_test_seen)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_new_once_then_pending_then_settled),
        cmocka_unit_test(a_forgotten_id_is_new_again_with_another_number),
        cmocka_unit_test(the_last_settled_ids_are_remembered_and_no_more),
        cmocka_unit_test(a_pending_id_is_never_evicted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
