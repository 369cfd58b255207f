/* lru.h: entries by key, in the order of their use. */
#include "unit.h"
#include <stdlib.h>
#include "base/mem.h"
#include "platform/lru.h"

struct word {
    struct lru_entry lru;
    int number;
    char *text; /* owned */
};

static int n_freed;

static void word_free(struct lru *l, void *entry)
{
    n_freed++;
    free(((struct word *)entry)->text);
}

static struct word *use(struct lru *l, const char *key)
{
    return lru_use(l, str_of(key), sizeof(struct word));
}

static void a_new_entry_is_zeroed_and_found_by_its_key(void **state)
{
    struct lru l = {.max = 3};
    char key[] = "one";

    assert_null(lru_find(&l, STR("one")));
    assert_null(lru_oldest(&l));
    struct word *w = use(&l, key);
    key[0] = 'x'; /* the table has a copy of the key */
    assert_int_equal(w->number, 0);
    w->number = 7;
    assert_ptr_equal(lru_find(&l, STR("one")), w);
    assert_int_equal(use(&l, "one")->number, 7);
    assert_string_equal(w->lru.key.p, "one");
    lru_done(&l);
}

static void a_full_table_drops_the_entry_that_was_not_used_for_longest(void **state)
{
    struct lru l = {.max = 3, .free = word_free};

    n_freed = 0;
    use(&l, "a")->text = xstrdup("A");
    use(&l, "b")->text = xstrdup("B");
    use(&l, "c");
    assert_true(lru_is_full(&l));
    use(&l, "a");
    lru_find(&l, STR("b")); /* looking is no use */
    use(&l, "d");
    assert_null(lru_find(&l, STR("b")));
    assert_string_equal(((struct word *)lru_find(&l, STR("a")))->text, "A");
    assert_int_equal(n_freed, 1);
    assert_ptr_equal(lru_oldest(&l), lru_find(&l, STR("c")));
    lru_drop(&l, lru_find(&l, STR("c")));
    assert_false(lru_is_full(&l));
    lru_done(&l);
    assert_int_equal(n_freed, 4);
}

static int by_number(const void *a, const void *b)
{
    return (*(struct word *const *)a)->number - (*(struct word *const *)b)->number;
}

static void a_sorted_table_drops_its_first_entry_first(void **state)
{
    struct lru l = {.max = 3};

    use(&l, "a")->number = 3;
    use(&l, "b")->number = 1;
    use(&l, "c")->number = 2;
    lru_sort(&l, by_number);
    use(&l, "d");
    assert_null(lru_find(&l, STR("b")));
    use(&l, "e");
    assert_null(lru_find(&l, STR("c")));
    lru_done(&l);
}

static void a_table_that_was_never_used_is_done_without_harm(void **state)
{
    struct lru l = {0};

    lru_sort(&l, by_number);
    lru_done(&l);
}

UNIT(platform_test_lru)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_entry_is_zeroed_and_found_by_its_key),
        cmocka_unit_test(a_full_table_drops_the_entry_that_was_not_used_for_longest),
        cmocka_unit_test(a_sorted_table_drops_its_first_entry_first),
        cmocka_unit_test(a_table_that_was_never_used_is_done_without_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
