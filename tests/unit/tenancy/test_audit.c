/* Promises of tenancy/audit.h about the chain; tests/e2e/test_audit.py shows the rest. */
#include "unit.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/memory/memory.h"
#include "tenancy/audit.h"

static struct {
    struct clock *clock;
    struct store *store;
    struct audit *audit;
    struct buf said;
    bool done;
} w;

static int setup(void **state)
{
    char why[256];

    memset(&w, 0, sizeof w);
    w.clock = clock_new();
    clock_set(w.clock, 1000, 1700000000000);
    w.store = store_memory_new(w.clock);
    assert_int_equal(audit_open(w.clock, w.store, &w.audit, why), BH_OK);
    return 0;
}

static int teardown(void **state)
{
    store_close(w.store);
    audit_free(w.audit);
    buf_done(&w.said);
    clock_free(w.clock);
    return 0;
}

static void on_verified(void *ctx, enum bh_err err)
{
    assert_int_equal(err, BH_OK);
    w.done = true;
}

static const char *verify(void)
{
    w.done = false;
    buf_reset(&w.said);
    audit_verify(w.audit, STR_NULL, &w.said, on_verified, NULL);
    for (int i = 0; i < 100 && !w.done; i++) {
        clock_set(w.clock, clock_now_ms(w.clock) + 10, 1700000000000 + i);
        clock_turn(w.clock);
    }
    assert_true(w.done);
    return buf_z(&w.said);
}

static struct audit_ticket *add(const char *text, bool written)
{
    struct store_kv items[AUDIT_ITEMS];
    struct audit_ticket *t = audit_add(w.audit, str_of(text), items);

    if (written)
        store_put(w.store, items, AUDIT_ITEMS, true, NULL, NULL);
    return t;
}

static void the_number_of_a_failed_entry_is_given_to_the_next(void **state)
{
    audit_end(w.audit, add("{\"what\":\"one\"}", true), BH_OK);
    audit_end(w.audit, add("{\"what\":\"refused\"}", false), BH_CONFLICT);
    audit_end(w.audit, add("{\"what\":\"two\"}", true), BH_OK);
    assert_non_null(strstr(verify(), "\"ok\":true,\"entries\":2"));
}

static void an_entry_that_fails_in_the_middle_leaves_the_chain_whole(void **state)
{
    struct audit_ticket *first = add("{\"what\":\"fails\"}", false);
    struct audit_ticket *second = add("{\"what\":\"stands on it\"}", true);

    audit_end(w.audit, first, BH_CONFLICT);
    audit_end(w.audit, second, BH_OK);
    assert_non_null(strstr(verify(), "\"ok\":true,\"entries\":3")); /* and one that says so */
}

static void all_that_failed_together_leave_no_gap(void **state)
{
    struct audit_ticket *first = add("{\"what\":\"a\"}", false);
    struct audit_ticket *second = add("{\"what\":\"b\"}", false);

    audit_end(w.audit, second, BH_UNAVAILABLE);
    audit_end(w.audit, first, BH_UNAVAILABLE);
    audit_end(w.audit, add("{\"what\":\"c\"}", true), BH_OK);
    assert_non_null(strstr(verify(), "\"ok\":true,\"entries\":1"));
}

UNIT(tenancy_test_audit)
{
#define P(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        P(the_number_of_a_failed_entry_is_given_to_the_next),
        P(an_entry_that_fails_in_the_middle_leaves_the_chain_whole),
        P(all_that_failed_together_leave_no_gap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
