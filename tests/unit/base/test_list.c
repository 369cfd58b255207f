/* Promises of base/list.h. */
#include "unit.h"
#include "base/list.h"

struct item {
    int id;
    struct list link;
};

static void expect(const struct list *head, const char *want)
{
    char got[32] = "";

    list_each ((struct list *)(uintptr_t)head, it, nxt) {
        size_t n = strlen(got);
        snprintf(got + n, sizeof got - n, "%d", list_entry(it, struct item, link)->id);
    }
    assert_string_equal(got, want);
}

static void links_keep_the_order_of_appending(void **state)
{
    struct list head;
    struct item a = {.id = 1}, b = {.id = 2}, c = {.id = 3};

    list_init(&head);
    assert_true(list_is_empty(&head));
    list_append(&head, &a.link);
    list_append(&head, &b.link);
    list_add_before(&b.link, &c.link);
    expect(&head, "132");
    assert_int_equal(list_first(&head, struct item, link)->id, 1);
}

static void removing_twice_is_harmless(void **state)
{
    struct list head;
    struct item a = {.id = 1}, b = {.id = 2};

    list_init(&head);
    list_append(&head, &a.link);
    list_append(&head, &b.link);
    list_remove(&a.link);
    list_remove(&a.link);
    assert_false(list_is_linked(&a.link));
    assert_true(list_is_linked(&b.link));
    expect(&head, "2");
}

static void an_item_may_leave_while_the_list_is_walked(void **state)
{
    struct list head, other;
    struct item items[4] = {{1}, {2}, {3}, {4}};

    list_init(&head);
    list_init(&other);
    for (int i = 0; i < 4; i++)
        list_append(&head, &items[i].link);
    list_each (&head, it, nxt)
        if (list_entry(it, struct item, link)->id % 2 == 0)
            list_move(it, &other);
    expect(&head, "13");
    expect(&other, "24");
}

UNIT(base_test_list)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_keep_the_order_of_appending),
        cmocka_unit_test(removing_twice_is_harmless),
        cmocka_unit_test(an_item_may_leave_while_the_list_is_walked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
