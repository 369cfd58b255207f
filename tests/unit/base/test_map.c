/* Promises of base/map.h. */
#include "unit.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/rand.h"

#define N 20000 /* large ones grow little by little */
struct item {
    char key[16];
    bool in;
};
static struct item items[N];

static struct str key_of(const struct item *it)
{
    return str_of(it->key);
}

static int name_items(void **state)
{
    for (int i = 0; i < N; i++)
        snprintf(items[i].key, sizeof items[i].key, "key-%d", i);
    return 0;
}

static void an_empty_map_allocates_nothing_and_answers(void **state)
{
    struct map m = MAP_INIT;
    size_t pos = 0;
    void *v;

    assert_null(map_get(&m, STR("x")));
    assert_null(map_del(&m, STR("x")));
    assert_false(map_next(&m, &pos, &v));
    assert_null(m.slots);
    map_done(&m);
}

static void what_was_put_is_found_and_nothing_else(void **state)
{
    struct map m = MAP_INIT;

    for (int i = 0; i < N; i++)
        assert_null(map_put(&m, key_of(&items[i]), &items[i]));
    assert_int_equal(map_count(&m), N);
    for (int i = 0; i < N; i++)
        assert_ptr_equal(map_get(&m, key_of(&items[i])), &items[i]);
    assert_null(map_get(&m, STR("key-")));
    assert_null(map_get(&m, STR("")));
    assert_true(m.used * 4 <= m.cap * 3);
    map_done(&m);
}

static void what_was_reserved_is_there_and_does_not_grow(void **state)
{
    struct map m = MAP_INIT;

    for (int i = 0; i < 100; i++)
        map_put(&m, key_of(&items[i]), &items[i]);
    map_reserve(&m, N - 100);
    uint32_t cap = m.cap;
    for (int i = 100; i < N; i++)
        assert_null(map_put(&m, key_of(&items[i]), &items[i]));
    assert_int_equal(m.cap, cap);
    map_reserve(&m, 0);
    assert_int_equal(m.cap, cap);
    assert_int_equal(map_count(&m), N);
    for (int i = 0; i < N; i++)
        assert_ptr_equal(map_get(&m, key_of(&items[i])), &items[i]);
    assert_in_range(cap, N * 4 / 3, N * 8 / 5);
    map_done(&m);
}

static void putting_again_replaces_value_and_key(void **state)
{
    struct map m = MAP_INIT;
    char *old_key = strdup("same"), *new_key = strdup("same");
    int a, b;

    assert_null(map_put(&m, str_of(old_key), &a));
    assert_ptr_equal(map_put(&m, str_of(new_key), &b), &a);
    free(old_key); /* the map must not look at it any more */
    assert_ptr_equal(map_get(&m, STR("same")), &b);
    assert_int_equal(map_count(&m), 1);
    map_done(&m);
    free(new_key);
}

static void keys_are_bytes_with_nul_and_empty_allowed(void **state)
{
    struct map m = MAP_INIT;
    int a, b, c;

    map_put(&m, str_make("a\0b", 3), &a);
    map_put(&m, str_make("a\0c", 3), &b);
    map_put(&m, STR(""), &c);
    assert_ptr_equal(map_get(&m, str_make("a\0b", 3)), &a);
    assert_ptr_equal(map_get(&m, str_make("a\0c", 3)), &b);
    assert_ptr_equal(map_get(&m, STR("")), &c);
    assert_null(map_get(&m, STR("a")));
    map_done(&m);
}

static void random_puts_and_dels_agree_with_a_plain_table(void **state)
{
    struct map m = MAP_INIT;
    struct rand r = rand_seeded(11);
    size_t live = 0;

    for (int i = 0; i < 100000; i++) {
        struct item *it = &items[rand_below(&r, N)];
        if (rand_below(&r, 2) == 0) {
            assert_ptr_equal(map_put(&m, key_of(it), it), it->in ? it : NULL);
            live += !it->in;
            it->in = true;
        } else {
            assert_ptr_equal(map_del(&m, key_of(it)), it->in ? it : NULL);
            live -= it->in;
            it->in = false;
        }
        assert_int_equal(map_count(&m), live);
    }
    for (int i = 0; i < N; i++)
        assert_ptr_equal(map_get(&m, key_of(&items[i])), items[i].in ? &items[i] : NULL);
    map_done(&m);
}

static void churn_at_a_constant_size_does_not_grow_the_table(void **state)
{
    struct map m = MAP_INIT;

    for (int i = 0; i < 50000; i++) {
        map_put(&m, key_of(&items[i % N]), &items[i % N]);
        if (i >= 10)
            map_del(&m, key_of(&items[(i - 10) % N]));
    }
    assert_true(m.cap <= 64);
    map_done(&m);
}

static void an_entry_of_a_large_one_takes_40_bytes_at_most(void **state)
{
    struct map m = MAP_INIT;

    for (int i = 0; i < N; i++) {
        map_put(&m, key_of(&items[i]), &items[i]);
        if (i > 2000)
            assert_true(m.cap * sizeof m.slots[0] <= map_count(&m) * 40);
    }
    map_done(&m);
}

static void a_walk_visits_everything_once_and_may_delete(void **state)
{
    struct map m = MAP_INIT;
    int visited = 0;
    void *v;

    for (int i = 0; i < N; i++)
        map_put(&m, key_of(&items[i]), &items[i]);
    for (size_t pos = 0; map_next(&m, &pos, &v); visited++)
        assert_ptr_equal(map_del(&m, key_of(v)), v);
    assert_int_equal(visited, N);
    assert_int_equal(map_count(&m), 0);
    map_done(&m);
}

static void while_it_grows_everything_is_found_walked_and_deleted(void **state)
{
    struct map m = MAP_INIT;
    uint32_t cap = 0;
    int n = 0, visited = 0;
    void *v;

    for (; n < N && (m.cap < 16384 || m.cap == cap); n++) {
        cap = m.cap;
        map_put(&m, key_of(&items[n]), &items[n]);
    }
    assert_true(n < N); /* it has begun to grow with the last put, and is far from done */
    for (int i = 0; i < n; i++)
        assert_ptr_equal(map_get(&m, key_of(&items[i])), &items[i]);
    for (int i = 0; i < n; i += 2)
        assert_ptr_equal(map_del(&m, key_of(&items[i])), &items[i]);
    assert_null(map_get(&m, key_of(&items[0])));
    for (size_t pos = 0; map_next(&m, &pos, &v); visited++)
        assert_int_equal(((struct item *)v - items) % 2, 1);
    assert_int_equal(visited, n / 2);
    for (int i = 0; i < n; i++)
        assert_ptr_equal(map_put(&m, key_of(&items[i]), &items[i]), i % 2 ? &items[i] : NULL);
    assert_int_equal(map_count(&m), n);
    map_done(&m);
}

UNIT(base_test_map)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_allocates_nothing_and_answers),
        cmocka_unit_test(what_was_put_is_found_and_nothing_else),
        cmocka_unit_test(what_was_reserved_is_there_and_does_not_grow),
        cmocka_unit_test(putting_again_replaces_value_and_key),
        cmocka_unit_test(keys_are_bytes_with_nul_and_empty_allowed),
        cmocka_unit_test(random_puts_and_dels_agree_with_a_plain_table),
        cmocka_unit_test(churn_at_a_constant_size_does_not_grow_the_table),
        cmocka_unit_test(an_entry_of_a_large_one_takes_40_bytes_at_most),
        cmocka_unit_test(a_walk_visits_everything_once_and_may_delete),
        cmocka_unit_test(while_it_grows_everything_is_found_walked_and_deleted),
    };

    return cmocka_run_group_tests(tests, name_items, NULL);
}
