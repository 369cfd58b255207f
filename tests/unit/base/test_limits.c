/* Promises of base/limits.h. */
#include <pthread.h>

#include "unit.h"
#include "base/limits.h"

static struct limit_settings small(void)
{
    struct limit_settings s = limit_defaults;

    s.of[LIMIT_CONNECTIONS] = (struct limit_bounds){.each = 2, .all = 3};
    s.of[LIMIT_STREAMS] = (struct limit_bounds){0};
    return s;
}

static void one_party_and_all_together_are_bounded(void **state)
{
    struct limit_settings s = small();
    struct ledger *l = ledger_new(&s);
    struct party *a = ledger_party(l, PER_ADDRESS, STR("a"));
    struct party *b = ledger_party(l, PER_ADDRESS, STR("b"));

    assert_int_equal(ledger_take(l, a, LIMIT_CONNECTIONS, 1), LIMIT_TAKEN);
    assert_int_equal(ledger_take(l, a, LIMIT_CONNECTIONS, 2), LIMIT_EACH_FULL);
    assert_int_equal(ledger_take(l, a, LIMIT_CONNECTIONS, 1), LIMIT_TAKEN);
    assert_int_equal(ledger_take(l, a, LIMIT_CONNECTIONS, 1), LIMIT_EACH_FULL);
    assert_int_equal(ledger_take(l, b, LIMIT_CONNECTIONS, 1), LIMIT_TAKEN);
    assert_int_equal(ledger_take(l, b, LIMIT_CONNECTIONS, 1), LIMIT_ALL_FULL);
    assert_int_equal(ledger_take(l, NULL, LIMIT_CONNECTIONS, 1), LIMIT_ALL_FULL);
    assert_int_equal(ledger_held(l, a, LIMIT_CONNECTIONS), 2);
    assert_int_equal(ledger_held(l, NULL, LIMIT_CONNECTIONS), 3);
    assert_int_equal(ledger_refused(l, LIMIT_CONNECTIONS), 4);

    ledger_give(l, a, LIMIT_CONNECTIONS, 2);
    assert_int_equal(ledger_take(l, b, LIMIT_CONNECTIONS, 1), LIMIT_TAKEN);
    ledger_give(l, b, LIMIT_CONNECTIONS, 2);
    party_drop(a);
    party_drop(b);
    ledger_free(l);
}

static void amounts_that_would_overflow_do_not_fit(void **state)
{
    struct ledger *l = ledger_new(NULL);
    struct party *a = ledger_party(l, PER_ADDRESS, STR("a"));

    assert_int_equal(ledger_take(l, a, LIMIT_REQUEST_BYTES, 1), LIMIT_TAKEN);
    assert_int_equal(ledger_take(l, a, LIMIT_REQUEST_BYTES, UINT64_MAX), LIMIT_EACH_FULL);
    assert_int_equal(ledger_take(l, NULL, LIMIT_REQUEST_BYTES, UINT64_MAX), LIMIT_ALL_FULL);
    ledger_give(l, a, LIMIT_REQUEST_BYTES, 1);
    party_drop(a);
    ledger_free(l);
}

static void zero_is_no_limit(void **state)
{
    struct limit_settings s = small();
    struct ledger *l = ledger_new(&s);
    struct party *a = ledger_party(l, PER_ADDRESS, STR("a"));

    assert_int_equal(ledger_take(l, a, LIMIT_STREAMS, 1000000), LIMIT_TAKEN);
    ledger_give(l, a, LIMIT_STREAMS, 1000000);
    party_drop(a);
    ledger_free(l);
}

static void a_party_is_one_by_name_and_scope_and_goes_with_its_last_hold(void **state)
{
    struct ledger *l = ledger_new(NULL);
    struct party *a = ledger_party(l, PER_ADDRESS, STR("x"));
    struct party *again = ledger_party(l, PER_ADDRESS, STR("x"));
    struct party *tenant = ledger_party(l, PER_TENANT, STR("x"));

    assert_ptr_equal(a, again);
    assert_ptr_not_equal(a, tenant);
    assert_int_equal(ledger_parties(l), 2);
    party_drop(a);
    assert_int_equal(ledger_parties(l), 2);
    party_drop(again);
    party_drop(tenant);
    party_drop(NULL);
    assert_int_equal(ledger_parties(l), 0);
    ledger_free(l);
}

static void long_names_and_many_parties_are_fine(void **state)
{
    struct ledger *l = ledger_new(NULL);
    struct party *p[500];
    char name[200] = {0};

    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "%d", i);
        p[i] = ledger_party(l, PER_TENANT, str_make(name, 100 + (size_t)i % 100));
    }
    assert_int_equal(ledger_parties(l), 500);
    for (int i = 0; i < 500; i++)
        party_drop(p[i]);
    assert_int_equal(ledger_parties(l), 0);
    ledger_free(l);
}

static void new_bounds_hold_from_the_next_take_on(void **state)
{
    struct limit_settings s = small();
    struct ledger *l = ledger_new(&s);
    struct party *a = ledger_party(l, PER_ADDRESS, STR("a"));

    assert_int_equal(ledger_take(l, a, LIMIT_CONNECTIONS, 2), LIMIT_TAKEN);
    s.of[LIMIT_CONNECTIONS] = (struct limit_bounds){.each = 1, .all = 1};
    ledger_set(l, &s);
    assert_int_equal(ledger_bounds(l, LIMIT_CONNECTIONS).each, 1);
    assert_int_equal(ledger_take(l, a, LIMIT_CONNECTIONS, 1), LIMIT_EACH_FULL);
    ledger_give(l, a, LIMIT_CONNECTIONS, 2);
    assert_int_equal(ledger_take(l, a, LIMIT_CONNECTIONS, 1), LIMIT_TAKEN);
    ledger_give(l, a, LIMIT_CONNECTIONS, 1);
    party_drop(a);
    ledger_free(l);
}

static void what_lies_on_disk_is_noted_and_goes_with_the_ledger(void **state)
{
    struct limit_settings set = limit_defaults;
    set.of[LIMIT_DATA_BYTES] = (struct limit_bounds){0, 100};
    struct ledger *l = ledger_new(&set);

    ledger_note(l, LIMIT_DATA_BYTES, STR("acme"), 60);
    ledger_note(l, LIMIT_SKILL_BYTES, STR("acme"), 7);
    ledger_note(l, LIMIT_DATA_BYTES, STR("other"), 30);
    assert_int_equal(ledger_held(l, NULL, LIMIT_DATA_BYTES), 90);
    assert_true(ledger_has_room(l, LIMIT_DATA_BYTES));
    ledger_note(l, LIMIT_DATA_BYTES, STR("acme"), 70);
    assert_int_equal(ledger_held(l, NULL, LIMIT_DATA_BYTES), 100);
    assert_false(ledger_has_room(l, LIMIT_DATA_BYTES));
    assert_int_equal(ledger_refused(l, LIMIT_DATA_BYTES), 1);
    struct party *p = ledger_party(l, PER_TENANT, STR("acme"));
    assert_int_equal(ledger_held(l, p, LIMIT_DATA_BYTES), 70);
    assert_int_equal(ledger_take(l, p, LIMIT_WORK_BYTES, 5), LIMIT_TAKEN);
    ledger_note(l, LIMIT_DATA_BYTES, STR("acme"), 0);
    ledger_note(l, LIMIT_SKILL_BYTES, STR("acme"), 0);
    assert_int_equal(ledger_held(l, p, LIMIT_WORK_BYTES), 5); /* that is not on disk */
    ledger_give(l, p, LIMIT_WORK_BYTES, 5);
    party_drop(p);
    assert_int_equal(ledger_parties(l), 1);
    ledger_note(NULL, LIMIT_DATA_BYTES, STR("acme"), 1);
    assert_true(ledger_has_room(NULL, LIMIT_DATA_BYTES));
    ledger_free(l); /* the other one's data stays where it is */
}

static void branches_count_together(void **state)
{
    struct limit_settings s = small();
    struct ledger *l = ledger_new(&s), *one = ledger_branch(l), *two = ledger_branch(l);
    struct party *a = ledger_party(one, PER_ADDRESS, STR("a"));
    struct party *b = ledger_party(two, PER_ADDRESS, STR("a"));
    struct party *same = ledger_party(l, PER_ADDRESS, STR("a"));

    assert_int_equal(ledger_take(one, a, LIMIT_CONNECTIONS, 1), LIMIT_TAKEN);
    assert_int_equal(ledger_take(two, b, LIMIT_CONNECTIONS, 1), LIMIT_TAKEN);
    assert_int_equal(ledger_take(two, b, LIMIT_CONNECTIONS, 1), LIMIT_EACH_FULL);
    assert_int_equal(ledger_take(one, NULL, LIMIT_CONNECTIONS, 1), LIMIT_TAKEN);
    assert_int_equal(ledger_take(l, NULL, LIMIT_CONNECTIONS, 1), LIMIT_ALL_FULL);
    assert_int_equal(ledger_held(l, same, LIMIT_CONNECTIONS), 2);
    assert_int_equal(ledger_refused(l, LIMIT_CONNECTIONS), 2);
    ledger_give(two, NULL, LIMIT_CONNECTIONS, 1); /* whichever branch took it */
    assert_int_equal(party_used(a, 1, 5), 5);
    assert_int_equal(party_used(b, 7, 3), 3); /* each thread has turns of its own */
    assert_int_equal(party_used(a, 1, 5), 10);
    ledger_give(one, a, LIMIT_CONNECTIONS, 1);
    ledger_give(two, b, LIMIT_CONNECTIONS, 1);
    party_drop(same);
    party_drop(a);
    assert_int_equal(ledger_parties(l), 1); /* the other branch holds it */
    party_drop(b);
    assert_int_equal(ledger_parties(l), 0);
    ledger_free(one);
    ledger_free(two);
    ledger_free(l);
}

enum { TAKES = 20000 };

static void *take_and_give(void *ledger)
{
    uint64_t taken = 0;

    for (int i = 0; i < TAKES; i++) {
        struct party *p = ledger_party(ledger, PER_ADDRESS, str_make("abc", 1 + (size_t)i % 3));
        if (ledger_take(ledger, p, LIMIT_CONNECTIONS, 1) == LIMIT_TAKEN) {
            taken++;
            ledger_give(ledger, p, LIMIT_CONNECTIONS, 1);
        }
        party_drop(p);
    }
    return (void *)(uintptr_t)taken;
}

static void threads_of_a_ledger_lose_no_count(void **state)
{
    struct limit_settings s = small();
    struct ledger *l = ledger_new(&s), *branch[3];
    pthread_t thread[3];
    uint64_t taken;

    for (int i = 0; i < 3; i++)
        branch[i] = ledger_branch(l);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_and_give, branch[i]), 0);
    taken = (uintptr_t)take_and_give(l);
    for (int i = 0; i < 3; i++) {
        void *more;
        pthread_join(thread[i], &more);
        taken += (uintptr_t)more;
    }
    assert_int_equal(taken + ledger_refused(l, LIMIT_CONNECTIONS), 4 * TAKES);
    assert_int_equal(ledger_held(l, NULL, LIMIT_CONNECTIONS), 0);
    assert_int_equal(ledger_parties(l), 0);
    for (int i = 0; i < 3; i++)
        ledger_free(branch[i]);
    ledger_free(l);
}

static void every_row_has_a_name_of_its_own_and_words(void **state)
{
    for (int i = 0; i < LIMIT_N; i++) {
        assert_true(strlen(limit_rows[i].what) > 10);
        assert_true(strlen(limit_rows[i].per) > 2);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(limit_rows[i].name, limit_rows[k].name);
    }
}

UNIT(base_test_limits)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_party_and_all_together_are_bounded),
        cmocka_unit_test(amounts_that_would_overflow_do_not_fit),
        cmocka_unit_test(zero_is_no_limit),
        cmocka_unit_test(a_party_is_one_by_name_and_scope_and_goes_with_its_last_hold),
        cmocka_unit_test(long_names_and_many_parties_are_fine),
        cmocka_unit_test(new_bounds_hold_from_the_next_take_on),
        cmocka_unit_test(what_lies_on_disk_is_noted_and_goes_with_the_ledger),
        cmocka_unit_test(branches_count_together),
        cmocka_unit_test(threads_of_a_ledger_lose_no_count),
        cmocka_unit_test(every_row_has_a_name_of_its_own_and_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
