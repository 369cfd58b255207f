/* contract_lease.h - the promises of store/store.h about leases and the guard, for shared
 * stores. */
#pragma once
#include "store/contract.h"

/* ---- leases ---- */

enum { LONG_MS = 600000 };

static enum bh_err lease_now(struct probe *p, enum store_lease_verb verb, const char *name,
                             const char *owner, int64_t ttl_ms)
{
    p->lease = (struct store_lease){.verb = verb,
                                    .name = str_of(name),
                                    .owner = str_of(owner),
                                    .ttl_ms = ttl_ms,
                                    .epoch = p->lease.epoch};
    store_lease(st, &expect(p)->lease);
    settle();
    return p->err;
}

static void a_lease_is_taken_once_and_says_who_has_it(void **state)
{
    struct probe a = {0}, b = {0};

    assert_int_equal(lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS), BH_OK);
    assert_true(a.lease.epoch > 0);
    assert_int_equal(lease_now(&b, LEASE_TAKE, "box/1", "south", LONG_MS), BH_CONFLICT);
    assert_string_equal(b.lease.holder, "north");
    assert_in_range(b.lease.left_ms, LONG_MS / 2, LONG_MS);
    assert_int_equal(lease_now(&b, LEASE_TAKE, "box/2", "south", LONG_MS), BH_OK);
}

static void a_lease_whose_time_is_up_is_free_and_its_epoch_grows(void **state)
{
    struct probe a = {0}, b = {0};

    assert_int_equal(lease_now(&a, LEASE_TAKE, "poll", "north", 0), BH_OK);
    assert_int_equal(lease_now(&b, LEASE_TAKE, "poll", "south", LONG_MS), BH_OK);
    assert_true(b.lease.epoch > a.lease.epoch);
    assert_int_equal(lease_now(&a, LEASE_RENEW, "poll", "north", LONG_MS), BH_FENCED);
    assert_int_equal(lease_now(&a, LEASE_RELEASE, "poll", "north", LONG_MS), BH_OK);
    assert_int_equal(lease_now(&b, LEASE_RENEW, "poll", "south", LONG_MS), BH_OK);
}

static void a_lease_that_ran_out_is_not_renewed(void **state)
{
    struct probe a = {0};

    assert_int_equal(lease_now(&a, LEASE_TAKE, "poll", "north", 0), BH_OK);
    assert_int_equal(lease_now(&a, LEASE_RENEW, "poll", "north", LONG_MS), BH_FENCED);
}

static void a_released_lease_is_free_at_once(void **state)
{
    struct probe a = {0}, b = {0};

    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    assert_int_equal(lease_now(&a, LEASE_RELEASE, "box/1", "north", 0), BH_OK);
    assert_int_equal(lease_now(&a, LEASE_RENEW, "box/1", "north", LONG_MS), BH_FENCED);
    assert_int_equal(lease_now(&b, LEASE_TAKE, "box/1", "south", LONG_MS), BH_OK);
    assert_int_equal(b.lease.epoch, a.lease.epoch + 1);
}

/* ---- the guard ---- */

/* Each kind of write under @epoch of "box/1", on row 1 and record "k"; all end alike. */
static void assert_guarded_writes(uint64_t epoch, enum bh_err want)
{
    struct probe p = {0}, m = {0}, t = {0}, e = {0}, a = {0}, f = {0};
    struct store_kv kv = {KV_PUT, "t", STR("k"), STR("holder")};
    uint64_t id = row(1);

    store_guard(st, STR("box/1"), epoch);
    append_start(&p, 2, 1, "y\n", false);
    m.mark = (struct store_mark){.id = id, .attempts = 5};
    store_mark(st, &expect(&m)->mark);
    t.tx = (struct store_tx){.items = &kv, .n = 1};
    store_tx(st, &expect(&t)->tx, false);
    e.erase = (struct store_erase){.ns = "old", .prefix = STR("")};
    store_erase(st, &expect(&e)->erase);
    settle();
    fetch_now(&f, &id, 1, 0);
    assert_int_equal(f.fetch.rows[0].attempts, want == BH_OK ? 5 : 0);
    store_fetch_free(&f.fetch);
    a.ack = (struct store_ack){.ids = &id, .n = 1};
    store_ack(st, &expect(&a)->ack);
    settle();
    assert_int_equal(p.err, want);
    assert_int_equal(m.err, want);
    assert_int_equal(t.err, want);
    assert_int_equal(e.err, want);
    assert_int_equal(a.err, want);
    assert_int_equal(count_rows(), 1);
    fetch_now(&f, &id, 1, 0);
    assert_int_equal(f.fetch.n_rows, want == BH_OK ? 0 : 1);
    store_fetch_free(&f.fetch);
    assert_string_equal(records("t"), want == BH_OK ? "k=holder " : "k=first ");
    assert_string_equal(records("old"), want == BH_OK ? "" : "a=1 ");
}

static void prepare_owned(void)
{
    append_now(1, 1, "x\n");
    put_now("t", "k", "first");
    put_now("old", "a", "1");
}

static void the_holder_of_the_lease_writes(void **state)
{
    struct probe a = {0};

    prepare_owned();
    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    assert_guarded_writes(a.lease.epoch, BH_OK);
}

static void whoever_lost_its_lease_writes_nothing(void **state)
{
    struct probe a = {0}, b = {0};

    prepare_owned();
    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    lease_now(&a, LEASE_RELEASE, "box/1", "north", LONG_MS);
    lease_now(&b, LEASE_TAKE, "box/1", "south", LONG_MS);
    assert_guarded_writes(a.lease.epoch, BH_FENCED);
}

static void whoever_let_its_lease_run_out_writes_nothing(void **state)
{
    struct probe a = {0};

    prepare_owned();
    lease_now(&a, LEASE_TAKE, "box/1", "north", 0);
    assert_guarded_writes(a.lease.epoch, BH_FENCED);
}

static void whoever_released_its_lease_writes_nothing(void **state)
{
    struct probe a = {0};

    prepare_owned();
    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    lease_now(&a, LEASE_RELEASE, "box/1", "north", LONG_MS);
    assert_guarded_writes(a.lease.epoch, BH_FENCED);
}

static void a_lease_that_never_was_fences_everybody(void **state)
{
    prepare_owned();
    assert_guarded_writes(1, BH_FENCED);
}

#define CONTRACT_LEASE(setup, teardown) \
    T(a_lease_is_taken_once_and_says_who_has_it, setup, teardown), \
        T(a_lease_whose_time_is_up_is_free_and_its_epoch_grows, setup, teardown), \
        T(a_lease_that_ran_out_is_not_renewed, setup, teardown), \
        T(a_released_lease_is_free_at_once, setup, teardown), \
        T(the_holder_of_the_lease_writes, setup, teardown), \
        T(whoever_lost_its_lease_writes_nothing, setup, teardown), \
        T(whoever_let_its_lease_run_out_writes_nothing, setup, teardown), \
        T(whoever_released_its_lease_writes_nothing, setup, teardown), \
        T(a_lease_that_never_was_fences_everybody, setup, teardown)
