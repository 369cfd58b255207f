/* Promises of sdk/src/ledger.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include "../../../sdk/src/ledger.h"

static struct str name(char *room, int i)
{
    return str_make(room, (size_t)sprintf(room, "b%d", i));
}

static void an_id_is_new_once_then_pending_then_settled(void **state)
{
    struct ledger l;
    struct ledger_entry *e, *again;

    ledger_init(&l, 4);
    assert_int_equal(ledger_see(&l, STR("a"), 1, &e), LEDGER_NEW);
    assert_int_equal(ledger_see(&l, STR("a"), 2, &again), LEDGER_PENDING);
    assert_ptr_equal(e, again);
    assert_int_equal(e->socket, 2);
    assert_int_equal(ledger_n_pending(&l), 1);
    ledger_settle(&l, e);
    assert_int_equal(ledger_n_pending(&l), 0);
    assert_null(ledger_pending(&l, e->number));
    assert_int_equal(ledger_see(&l, STR("a"), 3, &again), LEDGER_SETTLED);
    assert_ptr_equal(e, again);
    ledger_done(&l);
}

static void a_forgotten_id_is_new_again_with_another_number(void **state)
{
    struct ledger l;
    struct ledger_entry *e;

    ledger_init(&l, 4);
    ledger_see(&l, STR("a"), 1, &e);
    uint64_t number = e->number;
    assert_ptr_equal(ledger_pending(&l, number), e);
    ledger_forget(&l, e);
    assert_null(ledger_pending(&l, number));
    assert_int_equal(ledger_see(&l, STR("a"), 1, &e), LEDGER_NEW);
    assert_true(e->number > number);
    ledger_done(&l);
}

static void the_last_settled_ids_are_remembered_and_no_more(void **state)
{
    struct ledger l;
    struct ledger_entry *e;
    char room[16];

    ledger_init(&l, 100);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(ledger_see(&l, name(room, i), 1, &e), LEDGER_NEW);
        ledger_settle(&l, e);
        assert_true(map_count(&l.by_id) <= 100);
    }
    for (int i = 900; i < 1000; i++)
        assert_int_equal(ledger_see(&l, name(room, i), 1, &e), LEDGER_SETTLED);
    assert_int_equal(ledger_see(&l, name(room, 899), 1, &e), LEDGER_NEW);
    ledger_done(&l);
}

static void a_pending_id_is_never_evicted(void **state)
{
    struct ledger l;
    struct ledger_entry *held, *e;
    char room[16];

    ledger_init(&l, 1);
    ledger_see(&l, STR("held"), 1, &held);
    for (int i = 0; i < 1000; i++) {
        ledger_see(&l, name(room, i), 1, &e);
        ledger_settle(&l, e);
    }
    assert_int_equal(ledger_see(&l, STR("held"), 1, &e), LEDGER_PENDING);
    assert_ptr_equal(ledger_pending(&l, held->number), held);
    ledger_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_new_once_then_pending_then_settled),
        cmocka_unit_test(a_forgotten_id_is_new_again_with_another_number),
        cmocka_unit_test(the_last_settled_ids_are_remembered_and_no_more),
        cmocka_unit_test(a_pending_id_is_never_evicted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
