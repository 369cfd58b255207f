/* contract_bounds.h - the part of contract.h about reads that end in time, and deleting many.
 * Included by contract.h only. */
#pragma once

static void scan_bounded(struct probe *p, bool reverse, struct str after, size_t max_bytes)
{
    p->scan = (struct store_scan){.ns = "s", .prefix = STR("k"), .after = after};
    p->scan.reverse = reverse;
    p->scan.max_bytes = max_bytes;
    store_scan(st, &expect(p)->scan);
    settle();
    assert_int_equal(p->err, BH_OK);
}

/* Keys of 2 bytes, values of 8: ten a record. */
static void a_scan_stops_at_its_byte_bound_and_goes_on(void **state)
{
    struct probe s = {0};

    for (int i = 0; i < 5; i++) {
        char key[3] = {'k', (char)('0' + i)};
        put_now("s", key, "valuable");
    }
    put_now("s", "l", "behind the prefix");
    for (int reverse = 0; reverse <= 1; reverse++) {
        char after[3] = "", seen[16] = "";
        bool more = true;
        for (int turns = 0; more; turns++) {
            assert_in_range(turns, 0, 3);
            scan_bounded(&s, reverse != 0, after[0] != '\0' ? str_of(after) : STR_NULL, 25);
            for (size_t i = 0; i < s.scan.n_records; i++) {
                memcpy(after, s.scan.records[i].key.p, 2);
                strcat(seen, after + 1);
            }
            more = s.scan.more;
            assert_in_range(s.scan.n_records, 1, 2);
            store_scan_free(&s.scan);
        }
        assert_string_equal(seen, reverse ? "43210" : "01234");
    }
    scan_bounded(&s, false, STR_NULL, 3); /* one is given even if it does not fit */
    assert_int_equal(s.scan.n_records, 1);
    store_scan_free(&s.scan);
}

static void a_scan_of_keys_leaves_the_values_where_they_are(void **state)
{
    struct probe s = {0};

    put_now("s", "k0", "valuable");
    put_now("s", "k1", "valuable");
    s.scan = (struct store_scan){.ns = "s", .prefix = STR("k"), .keys_only = true, .max_bytes = 4};
    store_scan(st, &expect(&s)->scan);
    settle();
    assert_int_equal(s.scan.n_records, 2);
    assert_false(s.scan.more);
    assert_true(str_eq(s.scan.records[1].key, STR("k1")));
    assert_null(s.scan.records[1].value.p);
    store_scan_free(&s.scan);
}

static void a_read_that_is_called_off_in_time_brings_nothing(void **state)
{
    struct probe f = {0}, s = {0}, l = {0}, kept = {0};
    struct store_stats stats;

    append_now(1, 1, "x\n");
    put_now("s", "k", "v");
    uint64_t id = row(1);
    f.fetch = (struct store_fetch){.ids = &id, .n = 1};
    store_fetch(st, &expect(&f)->fetch);
    s.scan = (struct store_scan){.ns = "s"};
    store_scan(st, &expect(&s)->scan);
    l.fetch = (struct store_fetch){.ids = &id, .n = 1};
    store_fetch(st, &expect(&l)->fetch);
    kept.scan = (struct store_scan){.ns = "s"};
    store_scan(st, &expect(&kept)->scan);
    store_cancel(st, &f.op);
    store_cancel(st, &s.op);
    store_cancel(st, &l.op);
    store_cancel(st, &l.op); /* twice is harmless */
    assert_int_equal(f.calls + s.calls + l.calls, 0);
    settle();
    assert_int_equal(f.err, BH_CANCELLED);
    assert_int_equal(s.err, BH_CANCELLED);
    assert_int_equal(l.err, BH_CANCELLED);
    assert_null(s.scan.records);
    assert_int_equal(kept.err, BH_OK);
    assert_int_equal(kept.scan.n_records, 1);
    store_cancel(st, &kept.op); /* too late is harmless too */
    store_scan_free(&kept.scan);
    store_scan_free(&s.scan);
    st->ops->stats(st, &stats);
    assert_int_equal(stats.cancelled, 3);
    assert_int_equal(stats.reads, 1);
}

/* ---- deleting many ---- */

static size_t erase_all(struct store_erase want, size_t *ret_turns)
{
    struct probe p = {0};
    size_t n = 0;

    p.erase = want;
    *ret_turns = 0;
    do {
        store_erase(st, &expect(&p)->erase);
        settle();
        assert_int_equal(p.err, BH_OK);
        assert_in_range(p.erase.n, 0, STORE_ERASE_ITEMS);
        n += p.erase.n;
        ++*ret_turns;
    } while (p.erase.more);
    return n;
}

static void records_are_erased_by_prefix_and_end(void **state)
{
    size_t turns;

    put_now("s", "a/0", "1");
    put_now("s", "a/1", "1");
    put_now("s", "a/2", "1");
    put_now("s", "b", "1");
    put_now("r", "a/1", "1");
    struct store_erase e = {.ns = "s", .prefix = STR("a/"), .end = STR("a/2")};
    assert_int_equal(erase_all(e, &turns), 2);
    assert_string_equal(records("s"), "a/2=1 b=1 ");
    assert_int_equal(erase_all((struct store_erase){.ns = "s", .prefix = STR("a/")}, &turns), 1);
    assert_int_equal(erase_all((struct store_erase){.ns = "s", .prefix = STR("c")}, &turns), 0);
    assert_string_equal(records("s"), "b=1 ");
    assert_int_equal(erase_all((struct store_erase){.ns = "s", .prefix = STR("")}, &turns), 1);
    assert_string_equal(records("s"), "");
    assert_string_equal(records("r"), "a/1=1 ");
}

static void many_records_are_erased_in_steps(void **state)
{
    enum { N = STORE_ERASE_ITEMS * 2 + 5 };
    static char keys[N][8];
    static struct store_kv items[N];
    size_t turns;

    for (int i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "%05d", i);
        items[i] = (struct store_kv){KV_PUT, "s", str_of(keys[i]), STR("v")};
    }
    assert_int_equal(tx_now(items, N), BH_OK);
    assert_int_equal(erase_all((struct store_erase){.ns = "s", .prefix = STR("")}, &turns), N);
    assert_int_equal(turns, 3);
    assert_string_equal(records("s"), "");
}

static void start_put(struct probe *p, const struct store_kv *item)
{
    p->tx = (struct store_tx){.items = item, .n = 1};
    store_tx(st, &expect(p)->tx, false);
}

/* Rows and records by turns, as they come in; a store may ask for them in another order. */
static void ops_that_are_mixed_end_as_if_one_came_after_the_other(void **state)
{
    const struct store_kv puts[] = {{KV_PUT, "m", STR("a"), STR("1")},
                                    {KV_PUT, "m", STR("b"), STR("1")},
                                    {KV_PUT, "m", STR("a"), STR("2")},
                                    {KV_DELETE, "m", STR("b"), STR_NULL},
                                    {KV_INSERT, "m", STR("b"), STR("3")},
                                    {KV_PUT, "m", STR("c"), STR("4")},
                                    {KV_DELETE, "m", STR("a"), STR_NULL}};
    struct probe p[16] = {0};
    uint64_t gone[] = {row(1), row(2)};

    append_now(1, 8, "old\n");
    append_start(&p[0], 2, 8, "gone\n", false);
    start_put(&p[1], &puts[0]);
    append_start(&p[2], 3, 6, "stays\n", false);
    start_put(&p[3], &puts[1]);
    p[4].erase = (struct store_erase){.ns = "m", .prefix = STR("")};
    store_erase(st, &expect(&p[4])->erase);
    p[12].ack = (struct store_ack){.ids = gone, .n = 2};
    store_ack(st, &expect(&p[12])->ack);
    start_put(&p[5], &puts[2]);
    append_start(&p[6], 4, 8, "stays\n", false);
    start_put(&p[7], &puts[3]);
    start_put(&p[8], &puts[4]);
    append_start(&p[9], 5, 8, "stays\n", false);
    start_put(&p[10], &puts[5]);
    start_put(&p[11], &puts[6]);
    settle();
    for (size_t i = 0; i <= 12; i++)
        assert_int_equal(p[i].err, BH_OK);
    assert_int_equal(p[4].erase.n, 2);
    assert_int_equal(count_rows(), 3);
    assert_string_equal(records("m"), "b=3 c=4 ");
}

#define CONTRACT_BOUNDS(setup, teardown) \
    T(ops_that_are_mixed_end_as_if_one_came_after_the_other, setup, teardown), \
        T(a_scan_stops_at_its_byte_bound_and_goes_on, setup, teardown), \
        T(a_scan_of_keys_leaves_the_values_where_they_are, setup, teardown), \
        T(a_read_that_is_called_off_in_time_brings_nothing, setup, teardown), \
        T(records_are_erased_by_prefix_and_end, setup, teardown), \
        T(many_records_are_erased_in_steps, setup, teardown)
