/* contract_owner.h - the part of contract.h about what many nodes need: numbers, keys that come
 * once, fences, leases.  Included by contract.h only. */
#pragma once

/* ---- numbers and keys ---- */

static void an_append_answers_with_the_number_of_its_row(void **state)
{
    struct probe p = {0};

    for (uint64_t i = 1; i <= 4; i++) {
        append_start(&p, i, i == 3 ? 9 : 5, "x\n", true);
        p.append.sequence = 77;
        p.append.exists = true;
        settle();
        assert_false(p.append.exists);
        if (!st->shared)
            assert_int_equal(p.append.sequence, p.append.id);
        else
            assert_int_equal(STORE_SEQUENCE(p.append.sequence), i == 3 ? 1 : i - (i > 3));
    }
}

static void append_once(struct probe *p, uint64_t n, uint64_t key, const char *frame)
{
    p->append = (struct store_append){.id = st->boot << 40 | n,
                                      .box = 3,
                                      .at_ms = (int64_t)(1000 + n),
                                      .has_key = true,
                                      .once = true,
                                      .key = {.lo = key, .hi = ~key},
                                      .frame = str_of(frame)};
    p->n = n;
    store_append(st, &expect(p)->append, true);
}

static void a_key_that_may_come_once_has_one_row(void **state)
{
    struct probe a = {0}, b = {0}, c = {0}, d = {0};

    append_once(&a, 1, 42, "first\n");
    append_once(&b, 2, 42, "again\n");
    append_once(&c, 3, 43, "other\n");
    settle();
    assert_int_equal(a.err, BH_OK);
    assert_int_equal(b.err, BH_OK);
    assert_false(a.append.exists);
    assert_true(b.append.exists);
    assert_int_equal(b.append.sequence, a.append.sequence);
    assert_false(c.append.exists);
    if (st->shared) /* what was not written left no gap */
        assert_int_equal(c.append.sequence, a.append.sequence + 1);
    append_once(&d, 4, 42, "later\n");
    settle();
    assert_true(d.append.exists);
    assert_int_equal(d.append.sequence, a.append.sequence);
    assert_int_equal(count_rows(), 2);
    assert_int_equal(count_keys(0), 2);
}

static void a_key_outlives_its_row(void **state)
{
    struct probe a = {0}, b = {0};

    append_once(&a, 1, 42, "first\n");
    settle();
    assert_int_equal(ack_now(&a.append.sequence, 1), BH_OK);
    append_once(&b, 2, 42, "again\n");
    settle();
    assert_true(b.append.exists);
    assert_int_equal(b.append.sequence, 0);
    assert_int_equal(count_rows(), 0);
    st->ops->forget_keys(st, 1002);
    append_now(3, 1, "x\n");
    append_now(4, 1, "x\n"); /* forgetting follows what was submitted before it */
    append_once(&b, 5, 42, "forgotten\n");
    settle();
    assert_false(b.append.exists);
    assert_int_equal(count_rows(), 3);
}

/* Whoever starts needs no second read for what waits. */
static void on_staged_row(void *ctx, const struct store_row *r)
{
    if ((r->flags & STORE_ROW_STAGED) != 0)
        assert_true(str_eq(r->frame, STR("staged\n")));
    else
        assert_null(r->frame.p);
    ++*(int *)ctx;
}

static void a_row_brings_its_flags_and_takes_the_place_of_another(void **state)
{
    int loaded = 0;
    struct probe p = {0}, f = {0};

    append_start(&p, 1, 4, "staged\n", false);
    p.append.flags = STORE_ROW_STAGED | STORE_ROW_HAS_MEDIA;
    settle();
    uint64_t ids[2] = {row(1)};
    p.append = (struct store_append){.id = st->boot << 40 | 2,
                                     .box = 4,
                                     .flags = STORE_ROW_QUIET | STORE_ROW_HAS_MEDIA,
                                     .replaces = ids[0],
                                     .frame = STR("accepted\n")};
    p.n = 2;
    fetch_now(&f, ids, 1, 0);
    assert_int_equal(f.fetch.rows[0].flags, STORE_ROW_STAGED | STORE_ROW_HAS_MEDIA);
    store_fetch_free(st, &f.fetch);
    assert_int_equal(st->ops->load_rows(st, on_staged_row, &loaded), BH_OK);
    assert_int_equal(loaded, 1);
    store_append(st, &expect(&p)->append, true);
    settle();
    assert_int_equal(st->ops->load_rows(st, on_staged_row, &loaded), BH_OK);
    assert_int_equal(loaded, 2);
    ids[1] = row(2);
    fetch_now(&f, ids, 2, 0);
    assert_int_equal(f.fetch.n_rows, 1);
    assert_int_equal(f.fetch.rows[0].id, ids[1]);
    assert_int_equal(f.fetch.rows[0].row_kind, STORE_ROW_INBOUND);
    assert_int_equal(f.fetch.rows[0].flags, STORE_ROW_QUIET | STORE_ROW_HAS_MEDIA);
    store_fetch_free(st, &f.fetch);
    assert_int_equal(count_rows(), 1);
}

/* ---- leases ---- */

enum { LONG_MS = 600000 };

static enum bh_err lease_now(struct probe *p, enum store_lease_verb verb, const char *name,
                             const char *owner, int64_t ttl_ms)
{
    p->lease = (struct store_lease){.verb = verb,
                                    .name = str_of(name),
                                    .owner = str_of(owner),
                                    .ttl_ms = ttl_ms,
                                    .epoch = p->lease.epoch,
                                    .under = p->lease.under};
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

static void a_lease_is_stolen_at_once(void **state)
{
    struct probe a = {0}, b = {0};

    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    assert_int_equal(lease_now(&b, LEASE_STEAL, "box/1", "south", LONG_MS), BH_OK);
    assert_int_equal(b.lease.epoch, a.lease.epoch + 1);
    assert_int_equal(lease_now(&a, LEASE_RENEW, "box/1", "north", LONG_MS), BH_FENCED);
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

static void a_lease_under_another_ends_with_it(void **state)
{
    struct probe node = {0}, box = {0}, other = {0};

    lease_now(&node, LEASE_TAKE, "node/north", "north", LONG_MS);
    box.lease.under = (struct store_fence){STR("node/north"), node.lease.epoch};
    assert_int_equal(lease_now(&box, LEASE_TAKE, "box/1", "north", 0), BH_OK);
    assert_int_equal(lease_now(&other, LEASE_TAKE, "box/1", "south", LONG_MS), BH_CONFLICT);
    assert_int_equal(other.lease.left_ms, -1);
    lease_now(&node, LEASE_RELEASE, "node/north", "north", 0);
    assert_int_equal(lease_now(&box, LEASE_RENEW, "box/1", "north", LONG_MS), BH_FENCED);
    assert_int_equal(lease_now(&box, LEASE_TAKE, "box/1", "north", LONG_MS), BH_FENCED);
    assert_int_equal(lease_now(&other, LEASE_TAKE, "box/1", "south", LONG_MS), BH_OK);
}

/* ---- fences ---- */

/* Each of the owner's writes under @epoch of "box/1", on row 1 and record "k"; all end alike. */
static void assert_owner_writes(struct store_fence fence, enum bh_err want)
{
    struct probe m = {0}, t = {0}, e = {0}, a = {0};
    struct store_kv kv = {KV_PUT, "t", STR("k"), STR("owner")};
    uint64_t id = row(1);

    m.mark = (struct store_mark){.id = id, .attempts = 5, .fence = fence};
    store_mark(st, &expect(&m)->mark);
    t.tx = (struct store_tx){.items = &kv, .n = 1, .fence = fence};
    store_tx(st, &expect(&t)->tx, false);
    e.erase = (struct store_erase){.ns = "old", .prefix = STR(""), .fence = fence};
    store_erase(st, &expect(&e)->erase);
    settle();
    struct probe f = {0};
    fetch_now(&f, &id, 1, 0);
    assert_int_equal(f.fetch.rows[0].attempts, want == BH_OK ? 5 : 0);
    store_fetch_free(st, &f.fetch);
    a.ack = (struct store_ack){.ids = &id, .n = 1, .fence = fence};
    store_ack(st, &expect(&a)->ack);
    settle();
    assert_int_equal(m.err, want);
    assert_int_equal(t.err, want);
    assert_int_equal(e.err, want);
    assert_int_equal(a.err, want);
    assert_int_equal(count_rows(), want == BH_OK ? 0 : 1);
    assert_string_equal(records("t"), want == BH_OK ? "k=owner " : "k=first ");
    assert_string_equal(records("old"), want == BH_OK ? "" : "a=1 ");
}

static void prepare_owned(void)
{
    append_now(1, 1, "x\n");
    put_now("t", "k", "first");
    put_now("old", "a", "1");
}

static void the_owner_writes(void **state)
{
    struct probe a = {0};

    prepare_owned();
    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    assert_owner_writes((struct store_fence){STR("box/1"), a.lease.epoch}, BH_OK);
}

static void whoever_lost_its_lease_writes_nothing(void **state)
{
    struct probe a = {0}, b = {0};

    prepare_owned();
    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    lease_now(&b, LEASE_STEAL, "box/1", "south", LONG_MS);
    assert_owner_writes((struct store_fence){STR("box/1"), a.lease.epoch}, BH_FENCED);
}

static void whoever_let_its_lease_run_out_writes_nothing(void **state)
{
    struct probe a = {0};

    prepare_owned();
    lease_now(&a, LEASE_TAKE, "box/1", "north", 0);
    assert_owner_writes((struct store_fence){STR("box/1"), a.lease.epoch}, BH_FENCED);
}

static void whoever_released_its_lease_writes_nothing(void **state)
{
    struct probe a = {0};

    prepare_owned();
    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    lease_now(&a, LEASE_RELEASE, "box/1", "north", LONG_MS);
    assert_owner_writes((struct store_fence){STR("box/1"), a.lease.epoch}, BH_FENCED);
}

static void a_lease_that_never_was_fences_everybody(void **state)
{
    prepare_owned();
    assert_owner_writes((struct store_fence){STR("box/1"), 1}, BH_FENCED);
}

static void a_fence_under_a_node_falls_with_the_node(void **state)
{
    struct probe node = {0}, box = {0};

    prepare_owned();
    lease_now(&node, LEASE_TAKE, "node/north", "north", LONG_MS);
    box.lease.under = (struct store_fence){STR("node/north"), node.lease.epoch};
    lease_now(&box, LEASE_TAKE, "box/1", "north", 0);
    lease_now(&node, LEASE_TAKE, "node/north", "north", LONG_MS); /* it was started again */
    assert_owner_writes((struct store_fence){STR("box/1"), box.lease.epoch}, BH_FENCED);
}

static void a_fenced_write_leaves_its_neighbours_alone(void **state)
{
    struct probe a = {0}, t[3] = {0};
    struct store_kv kv[3] = {{KV_PUT, "t", STR("a"), STR("1")},
                             {KV_PUT, "t", STR("b"), STR("2")},
                             {KV_PUT, "t", STR("c"), STR("3")}};

    lease_now(&a, LEASE_TAKE, "box/1", "north", LONG_MS);
    for (int i = 0; i < 3; i++) {
        t[i].tx = (struct store_tx){.items = &kv[i], .n = 1};
        t[i].tx.fence = (struct store_fence){STR("box/1"), a.lease.epoch + (i == 1)};
        store_tx(st, &expect(&t[i])->tx, false);
    }
    settle();
    assert_int_equal(t[0].err, BH_OK);
    assert_int_equal(t[1].err, BH_FENCED);
    assert_int_equal(t[2].err, BH_OK);
    assert_string_equal(records("t"), "a=1 c=3 ");
}

#define CONTRACT_OWNER(setup, teardown) \
    T(an_append_answers_with_the_number_of_its_row, setup, teardown), \
        T(a_key_that_may_come_once_has_one_row, setup, teardown), \
        T(a_key_outlives_its_row, setup, teardown), \
        T(a_row_brings_its_flags_and_takes_the_place_of_another, setup, teardown), \
        T(a_lease_is_taken_once_and_says_who_has_it, setup, teardown), \
        T(a_lease_whose_time_is_up_is_free_and_its_epoch_grows, setup, teardown), \
        T(a_lease_that_ran_out_is_not_renewed, setup, teardown), \
        T(a_lease_is_stolen_at_once, setup, teardown), \
        T(a_released_lease_is_free_at_once, setup, teardown), \
        T(a_lease_under_another_ends_with_it, setup, teardown), \
        T(the_owner_writes, setup, teardown), \
        T(whoever_lost_its_lease_writes_nothing, setup, teardown), \
        T(whoever_let_its_lease_run_out_writes_nothing, setup, teardown), \
        T(whoever_released_its_lease_writes_nothing, setup, teardown), \
        T(a_lease_that_never_was_fences_everybody, setup, teardown), \
        T(a_fence_under_a_node_falls_with_the_node, setup, teardown), \
        T(a_fenced_write_leaves_its_neighbours_alone, setup, teardown)
