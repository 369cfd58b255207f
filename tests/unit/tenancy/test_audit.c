/* Promises of tenancy/audit.h about the chain; tests/e2e/test_audit.py shows the rest. */
#include "unit.h"
#include "base/clock.h"
#include "base/mem.h"
#include "store/memory/memory.h"
#include "tenancy/audit.h"

#define DAY INT64_C(86400000)

static struct {
    struct clock *clock;
    struct store *store;
    struct audit *audit;
    struct audit_settings settings;
    struct buf said;
    bool done;
} w;

static void run(int64_t ms)
{
    clock_set(w.clock, clock_now_ms(w.clock) + ms, clock_wall_ms(w.clock) + ms);
    for (int i = 0; i < 100; i++) {
        clock_set(w.clock, clock_now_ms(w.clock) + 1, clock_wall_ms(w.clock) + 1);
        clock_turn(w.clock);
    }
}

static void open_log(void)
{
    char why[256];

    assert_int_equal(audit_open(w.clock, w.store, &w.settings, &w.audit, why), BH_OK);
}

static int setup(void **state)
{
    memset(&w, 0, sizeof w);
    w.clock = clock_new();
    clock_set(w.clock, 1000, 1700000000000);
    w.store = store_memory_new(w.clock);
    open_log();
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

static const char *verify_with(struct str expect)
{
    w.done = false;
    buf_reset(&w.said);
    audit_verify(w.audit, expect, &w.said, on_verified, NULL);
    run(0);
    assert_true(w.done);
    return buf_z(&w.said);
}

static const char *verify(void)
{
    return verify_with(STR_NULL);
}

static struct audit_ticket *add(const char *text, bool written)
{
    struct store_kv items[AUDIT_ITEMS];
    struct audit_ticket *t = audit_add(w.audit, str_of(text), items);

    if (written)
        store_put(w.store, items, AUDIT_ITEMS, true, NULL, NULL);
    return t;
}

/* @n entries of now. */
static void note(int n)
{
    static const struct audit_who who = {.kind = AUDIT_ADMIN, .what = "test"};

    for (int i = 0; i < n; i++)
        audit_note(w.audit, &who, STR("\"n\":1"));
    run(0);
}

static void assert_says(const char *said, const char *part)
{
    if (strstr(said, part) == NULL)
        fail_msg("%s lacks %s", said, part);
}

/* The member "head" or "cut" of the last answer. */
static struct str line_of(const char *member, char room[128])
{
    const char *at = strstr(buf_z(&w.said), member);

    assert_non_null(at);
    at += strlen(member) + 3;
    snprintf(room, 128, "%.*s", (int)strcspn(at, "\""), at);
    return str_of(room);
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
    assert_says(verify(), "\"ok\":true,\"entries\":2");
    assert_says(verify(), "\"ok\":true,\"entries\":3"); /* and one that says so */
}

static void all_that_failed_together_leave_no_gap(void **state)
{
    struct audit_ticket *first = add("{\"what\":\"a\"}", false);
    struct audit_ticket *second = add("{\"what\":\"b\"}", false);

    audit_end(w.audit, first, BH_UNAVAILABLE); /* the store answers in order */
    audit_end(w.audit, second, BH_UNAVAILABLE);
    audit_end(w.audit, add("{\"what\":\"c\"}", true), BH_OK);
    assert_non_null(strstr(verify(), "\"ok\":true,\"entries\":1"));
}

static void an_entry_of_unknown_fate_is_written_again_and_said(void **state)
{
    struct audit_ticket *first = add("{\"what\":\"perhaps\"}", false);
    struct audit_ticket *second = add("{\"what\":\"stands on it\"}", true);

    audit_end(w.audit, first, BH_UNKNOWN);
    audit_end(w.audit, second, BH_OK);
    run(1000);
    assert_says(verify(), "\"ok\":true,\"entries\":3");
}

static void old_entries_are_cut_and_the_rest_stands_on_the_anchor(void **state)
{
    char before[128], cut[128];

    w.settings.keep_ms = 10 * DAY;
    note(300);
    verify();
    line_of("head", before);
    run(6 * DAY);
    note(5);
    run(6 * DAY); /* the first are 12 days old, the others 6 */
    assert_says(verify(), "\"ok\":true");
    assert_says(buf_z(&w.said), "\"first\":301");
    assert_string_equal(line_of("cut", cut).p, before);
    assert_says(verify_with(str_of(before)), "\"ok\":true");
    cut[0] = '1'; /* 100:... */
    assert_says(verify_with(str_of(cut)), "older than the log, which begins behind entry 300");

    audit_free(w.audit);
    open_log();
    assert_says(verify_with(str_of(before)), "\"ok\":true");
}

static void an_oldest_entry_that_somebody_deleted_is_missed_after_a_cut_too(void **state)
{
    struct store_kv gone = {KV_DELETE, "audit", STR("000000000000000b"), STR_NULL};

    w.settings.keep_ms = 10 * DAY;
    note(10);
    run(6 * DAY);
    note(5);
    run(6 * DAY);
    assert_says(verify(), "\"first\":11");
    store_put(w.store, &gone, 1, true, NULL, NULL);
    assert_says(verify(), "entry 11 is missing");
}

static void the_log_stays_within_its_bytes(void **state)
{
    w.settings.max_bytes = 100 << 10;
    for (int i = 0; i < 50; i++)
        note(20); /* about 600 bytes each */
    assert_says(verify(), "\"ok\":true");
    uint64_t entries = strtoull(strstr(buf_z(&w.said), "entries\":") + 9, NULL, 10);
    assert_in_range(entries, 100, 180);
}

static void what_was_wrong_in_a_part_that_is_cut_is_in_the_entry_about_it(void **state)
{
    static const struct audit_filter newest = {.limit = 10};
    struct store_kv gone = {KV_DELETE, "audit", STR("0000000000000003"), STR_NULL};

    w.settings.keep_ms = 10 * DAY;
    note(10);
    store_put(w.store, &gone, 1, true, NULL, NULL);
    run(12 * DAY);
    w.done = false;
    buf_reset(&w.said);
    audit_list(w.audit, &newest, &w.said, on_verified, NULL);
    run(0);
    assert_says(buf_z(&w.said), "cutLog");
    assert_says(buf_z(&w.said), "entry 3 is missing");
}

static void one_tenant_fills_a_quarter_of_the_log_in_a_day_at_most(void **state)
{
    w.settings.max_bytes = 8 << 10;
    assert_true(audit_has_room(w.audit, STR("acme"), 1000));
    assert_false(audit_has_room(w.audit, STR("acme"), 100));
    assert_true(audit_has_room(w.audit, STR("globex"), 1000));
    assert_true(audit_has_room(w.audit, STR_NULL, 100000));
    run(DAY);
    assert_true(audit_has_room(w.audit, STR("acme"), 1000));
}

UNIT(tenancy_test_audit)
{
#define P(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        P(the_number_of_a_failed_entry_is_given_to_the_next),
        P(an_entry_that_fails_in_the_middle_leaves_the_chain_whole),
        P(all_that_failed_together_leave_no_gap),
        P(an_entry_of_unknown_fate_is_written_again_and_said),
        P(old_entries_are_cut_and_the_rest_stands_on_the_anchor),
        P(an_oldest_entry_that_somebody_deleted_is_missed_after_a_cut_too),
        P(the_log_stays_within_its_bytes),
        P(what_was_wrong_in_a_part_that_is_cut_is_in_the_entry_about_it),
        P(one_tenant_fills_a_quarter_of_the_log_in_a_day_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
