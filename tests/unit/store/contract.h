/* contract.h - the promises of store/store.h, as tests that every store must pass.
 *
 * The including file opens the store in its setup and says how time passes: settle() returns when
 * every op submitted so far had its done(). */
#pragma once
#include "unit.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "store/store.h"

static struct store *st;
static int pending;     /* ops without their done() */
static char order[256]; /* the marks of finished ops, in order */
static void settle(void);
static void settled(void); /* called inside the done() that leaves nothing pending */

struct probe { /* one op and how it ended */
    union {
        struct store_op op;
        struct store_append append;
        struct store_ack ack;
        struct store_mark mark;
        struct store_tx tx;
        struct store_fetch fetch;
        struct store_scan scan;
        struct store_erase erase;
        struct store_lease lease;
    };
    char mark_c;
    int calls;
    enum bh_err err;
};

static void on_done(struct store_op *op, enum bh_err err)
{
    struct probe *p = container_of(op, struct probe, op);
    size_t n = strlen(order);

    p->calls++;
    p->err = err;
    if (--pending == 0)
        settled();
    if (p->mark_c != '\0' && n + 1 < sizeof order)
        order[n] = p->mark_c, order[n + 1] = '\0';
}

static struct probe *expect(struct probe *p)
{
    p->op.done = on_done;
    pending++;
    return p;
}

static uint64_t row(uint64_t n)
{
    return st->boot << 40 | n;
}

static void append_start(struct probe *p, uint64_t n, uint32_t box, const char *frame, bool urgent)
{
    p->append = (struct store_append){.id = row(n),
                                      .box = box,
                                      .at_ms = (int64_t)(1000 + n),
                                      .has_key = true,
                                      .key = {.lo = n, .hi = ~n},
                                      .frame = str_of(frame)};
    store_append(st, &expect(p)->append, urgent);
}

static enum bh_err append_now(uint64_t n, uint32_t box, const char *frame)
{
    struct probe p = {0};
    append_start(&p, n, box, frame, true);
    settle();
    return p.err;
}

static enum bh_err ack_now(const uint64_t *ids, size_t n)
{
    struct probe p = {0};
    p.ack = (struct store_ack){.ids = ids, .n = n};
    store_ack(st, &expect(&p)->ack);
    settle();
    return p.err;
}

static void fetch_now(struct probe *p, const uint64_t *ids, size_t n, size_t max_bytes)
{
    p->fetch = (struct store_fetch){.ids = ids, .n = n, .max_bytes = max_bytes};
    store_fetch(st, &expect(p)->fetch);
    settle();
    assert_int_equal(p->err, BH_OK);
}

static enum bh_err tx_now(const struct store_kv *items, size_t n)
{
    struct probe p = {0};
    p.tx = (struct store_tx){.items = items, .n = n};
    store_tx(st, &expect(&p)->tx, true);
    settle();
    return p.err;
}

static void put_now(const char *ns, const char *key, const char *value)
{
    struct store_kv kv = {KV_PUT, ns, str_of(key), str_of(value)};
    assert_int_equal(tx_now(&kv, 1), BH_OK);
}

static void on_record_text(void *ctx, struct str key, struct str value)
{
    char *out = ctx;
    size_t n = strlen(out);
    snprintf(out + n, 256 - n, "%.*s=%.*s ", STR_FMT(key), STR_FMT(value));
}

/* "a=1 b=2 " */
static const char *records(const char *ns)
{
    static char text[256];
    text[0] = '\0';
    assert_int_equal(st->ops->load_records(st, ns, STR(""), on_record_text, text), BH_OK);
    return text;
}

static const char *load_now(const char *ns, const char *prefix)
{
    static char text[256];
    text[0] = '\0';
    assert_int_equal(st->ops->load_records(st, ns, str_of(prefix), on_record_text, text), BH_OK);
    return text;
}

static const char *scan_now(const char *ns, const char *prefix, const char *after, size_t limit,
                            bool reverse)
{
    static char text[256];
    struct probe p = {0};

    p.scan = (struct store_scan){.ns = ns,
                                 .prefix = str_of(prefix),
                                 .after = str_of(after),
                                 .limit = limit,
                                 .reverse = reverse};
    store_scan(st, &expect(&p)->scan);
    settle();
    assert_int_equal(p.err, BH_OK);
    text[0] = '\0';
    for (size_t i = 0; i < p.scan.n_records; i++)
        on_record_text(text, p.scan.records[i].key, p.scan.records[i].value);
    store_scan_free(&p.scan);
    return text;
}

static void on_count_row(void *ctx, const struct store_row *row)
{
    assert_null(row->frame.p);
    ++*(size_t *)ctx;
}

static size_t count_rows(void)
{
    size_t n = 0;
    assert_int_equal(st->ops->load_rows(st, on_count_row, &n), BH_OK);
    return n;
}

static void on_count_key(void *ctx, struct hash128 key, int64_t at_ms)
{
    assert_int_equal(key.hi, ~key.lo);
    ++*(size_t *)ctx;
}

static size_t count_keys(int64_t since_ms)
{
    size_t n = 0;
    assert_int_equal(st->ops->load_keys(st, since_ms, on_count_key, &n), BH_OK);
    return n;
}

/* ---- the promises ---- */

static void an_appended_row_comes_back_byte_for_byte(void **state)
{
    static const char frame[] = "{\"a\":\"\0\xff\"}\n";
    struct probe p = {0}, f = {0};

    append_start(&p, 1, 7, "", true);
    settle();
    p.append.id = row(2);
    p.append.row_kind = STORE_ROW_PASSTHROUGH;
    p.append.frame = str_make(frame, sizeof frame);
    store_append(st, &expect(&p)->append, true);
    settle();
    assert_int_equal(p.err, BH_OK);

    uint64_t ids[] = {row(1), row(2)};
    fetch_now(&f, ids, 2, 0);
    assert_int_equal(f.fetch.n_rows, 2);
    assert_int_equal(f.fetch.rows[0].frame.n, 0);
    assert_non_null(f.fetch.rows[0].frame.p);
    const struct store_row *r = &f.fetch.rows[1];
    assert_int_equal(r->id, row(2));
    assert_int_equal(r->box, 7);
    assert_int_equal(r->row_kind, STORE_ROW_PASSTHROUGH);
    assert_int_equal(r->at_ms, 1001);
    assert_int_equal(r->attempts, 0);
    assert_null(r->parked.p);
    assert_int_equal(r->frame_bytes, sizeof frame);
    assert_memory_equal(r->frame.p, frame, sizeof frame);
    store_fetch_free(&f.fetch);
}

static void completions_run_in_order_of_submission_and_never_inside_the_call(void **state)
{
    struct probe p[6] = {0};
    for (uint64_t i = 0; i < 6; i++) {
        p[i].mark_c = (char)('a' + i);
        append_start(&p[i], i + 1, 1, "x\n", i % 2 == 0);
        assert_int_equal(p[i].calls, 0);
    }
    settle();
    assert_string_equal(order, "abcdef");
    for (int i = 0; i < 6; i++)
        assert_int_equal(p[i].calls, 1);
}

static void an_append_tried_again_finds_its_row_and_changes_nothing(void **state)
{
    struct probe p[4] = {0}, f = {0};
    uint64_t ids[] = {row(1), row(2)};

    append_start(&p[0], 1, 1, "first\n", false);
    append_start(&p[1], 1, 1, "again\n", false); /* in the same transaction */
    append_start(&p[2], 2, 1, "next\n", true);
    settle();
    append_start(&p[3], 1, 1, "later\n", true);
    settle();
    for (int i = 0; i < 4; i++)
        assert_int_equal(p[i].err, BH_OK);
    fetch_now(&f, ids, 2, 0);
    assert_int_equal(f.fetch.n_rows, 2);
    assert_true(str_eq(f.fetch.rows[0].frame, STR("first\n")));
    store_fetch_free(&f.fetch);
    assert_int_equal(count_rows(), 2);
}

/* Inside a loader nothing is executed, however long it takes: the race has one winner. */
static void on_record_append_and_shrink(void *ctx, struct str key, struct str value)
{
    struct probe *p = ctx;
    append_start(p, 1, 1, "gone\n", true);
    assert_true(store_append_shrink(st, &p->append));
    assert_true(store_append_shrink(st, &p->append)); /* asking twice is harmless */
}

static void a_shrunk_append_leaves_its_key_but_no_row(void **state)
{
    struct probe p = {0};
    struct store_stats s;

    put_now("one", "record", "");
    assert_int_equal(st->ops->load_records(st, "one", STR(""), on_record_append_and_shrink, &p),
                     BH_OK);
    assert_int_equal(p.calls, 0);
    settle();
    assert_int_equal(p.calls, 1);
    assert_int_equal(p.err, BH_OK);
    assert_int_equal(count_rows(), 0);
    assert_int_equal(count_keys(0), 1);
    st->ops->stats(st, &s);
    assert_int_equal(s.shrunk, 1);
    assert_int_equal(s.rows_written, 0);
}

static void shrinking_a_written_row_is_too_late(void **state)
{
    struct probe p = {0};
    append_start(&p, 1, 1, "kept\n", true);
    settle();
    assert_false(store_append_shrink(st, &p.append));
    assert_int_equal(count_rows(), 1);
}

static void acked_rows_are_gone_and_unknown_ids_are_fine(void **state)
{
    for (uint64_t i = 1; i <= 9; i++)
        assert_int_equal(append_now(i, 1, "x\n"), BH_OK);
    uint64_t ids[] = {row(2), row(3), row(4), row(8), row(5), row(9) + 700};
    assert_int_equal(ack_now(ids, ARRAY_LEN(ids)), BH_OK);
    assert_int_equal(ack_now(ids, ARRAY_LEN(ids)), BH_OK);
    assert_int_equal(ack_now(NULL, 0), BH_OK);

    struct probe f = {0};
    uint64_t all[10];
    for (uint64_t i = 1; i <= 9; i++)
        all[i - 1] = row(i);
    all[9] = row(9) + 1;
    fetch_now(&f, all, ARRAY_LEN(all), 0);
    assert_int_equal(f.fetch.n_rows, 4);
    assert_int_equal(f.fetch.rows[0].id, row(1));
    assert_int_equal(f.fetch.rows[1].id, row(6));
    assert_int_equal(f.fetch.rows[2].id, row(7));
    assert_int_equal(f.fetch.rows[3].id, row(9));
    store_fetch_free(&f.fetch);
}

static void a_mark_sets_attempts_and_parks(void **state)
{
    struct probe m = {0}, f = {0};

    append_now(1, 1, "x\n");
    uint64_t id = row(1);
    m.mark = (struct store_mark){.id = id, .attempts = 3, .parked = STR("no answer")};
    store_mark(st, &expect(&m)->mark);
    fetch_now(&f, &id, 1, 0);
    assert_int_equal(m.err, BH_OK);
    assert_int_equal(f.fetch.rows[0].attempts, 3);
    assert_true(str_eq(f.fetch.rows[0].parked, STR("no answer")));
    store_fetch_free(&f.fetch);

    m.mark = (struct store_mark){.id = id, .attempts = 4};
    store_mark(st, &expect(&m)->mark);
    fetch_now(&f, &id, 1, 0);
    assert_int_equal(f.fetch.rows[0].attempts, 4);
    assert_null(f.fetch.rows[0].parked.p);
    store_fetch_free(&f.fetch);
}

static void marking_a_row_that_is_gone_is_fine(void **state)
{
    struct probe m = {0};
    m.mark = (struct store_mark){.id = 99, .attempts = 3};
    store_mark(st, &expect(&m)->mark);
    settle();
    assert_int_equal(m.err, BH_OK);
}

static void a_fetch_finds_scattered_ids_among_many_rows(void **state)
{
    enum { N = 400 };
    const uint64_t NEVER = UINT64_C(1) << 39; /* no row of ours has such a number */
    static struct probe p[N];
    uint64_t ids[N];
    size_t n = 0;

    memset(p, 0, sizeof p);
    for (uint64_t i = 0; i < N; i++)
        append_start(&p[i], i * 2 + 1, (uint32_t)(i % 3 + 1), "some frame\n", false);
    settle();
    for (uint64_t i = 0; i < N; i += 1 + i % 13) /* gaps of every size */
        ids[n++] = row(i * 2 + 1) + (i % 5 == 0 ? NEVER : 0);
    struct probe f = {0};
    fetch_now(&f, ids, n, 0);
    size_t at = 0;
    for (size_t i = 0; i < n; i++)
        if ((ids[i] & NEVER) == 0)
            assert_int_equal(f.fetch.rows[at++].id, ids[i]);
    assert_int_equal(at, f.fetch.n_rows);
    assert_int_equal(f.fetch.n_used, n);
    store_fetch_free(&f.fetch);
}

static void a_fetch_stops_at_its_byte_bound_but_gives_one_row(void **state)
{
    struct probe f = {0};

    for (uint64_t i = 1; i <= 3; i++)
        append_now(i, 1, "0123456789");
    uint64_t ids[] = {row(1), row(2), row(3)};
    fetch_now(&f, ids, 3, 20);
    assert_int_equal(f.fetch.n_rows, 2);
    assert_int_equal(f.fetch.n_used, 2);
    store_fetch_free(&f.fetch);
    fetch_now(&f, ids, 3, 5);
    assert_int_equal(f.fetch.n_rows, 1);
    store_fetch_free(&f.fetch);
    store_fetch_free(&f.fetch);
    fetch_now(&f, ids, 0, 5);
    assert_int_equal(f.fetch.n_rows, 0);
    store_fetch_free(&f.fetch);
}

/* As many agents wake up: their rows lie one beside the other, and one of them has gone again. */
static void fetches_that_wait_together_get_their_own_rows(void **state)
{
    enum { BOXES = 5, EACH = 60, N = BOXES * EACH };
    static struct probe p[N];
    struct probe f[BOXES + 1] = {0};
    uint64_t ids[BOXES][EACH], acked;

    memset(p, 0, sizeof p);
    for (uint64_t i = 0; i < N; i++)
        append_start(&p[i], i + 1, (uint32_t)(i % BOXES + 1), "0123456789", false);
    settle();
    for (size_t i = 0; i < N; i++)
        ids[i % BOXES][i / BOXES] = row(i + 1);
    acked = ids[3][7];
    assert_int_equal(ack_now(&acked, 1), BH_OK);
    for (size_t b = 0; b <= BOXES; b++) { /* the last wants what the first one wants */
        f[b].fetch = (struct store_fetch){.ids = ids[b % BOXES], .n = EACH, .expected_bytes = 600};
        f[b].fetch.max_bytes = b == 1 ? 100 : 0;
        store_fetch(st, &expect(&f[b])->fetch);
    }
    store_cancel(st, &f[2].op);
    settle();
    for (size_t b = 0; b <= BOXES; b++) {
        size_t n = b == 1 ? 10 : b == 2 ? 0 : b == 3 ? EACH - 1 : EACH;
        assert_int_equal(f[b].err, b == 2 ? BH_CANCELLED : BH_OK);
        assert_int_equal(f[b].fetch.n_rows, n);
        assert_int_equal(f[b].fetch.n_used, b == 1 ? 10 : b == 2 ? 0 : EACH);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(f[b].fetch.rows[i].id, ids[b % BOXES][b == 3 && i >= 7 ? i + 1 : i]);
        store_fetch_free(&f[b].fetch);
    }
}

static void reads_see_every_write_submitted_before_them(void **state)
{
    struct probe p = {0}, f = {0}, t = {0};
    uint64_t ids[] = {row(1), row(2), row(3)};
    struct store_kv kv = {KV_PUT, "t", STR("k"), STR("v")};

    append_start(&p, 1, 1, "just now\n", false); /* not settled */
    t.tx = (struct store_tx){.items = &kv, .n = 1};
    store_tx(st, &expect(&t)->tx, false);
    assert_string_equal(scan_now("t", "", NULL, 0, false), "k=v ");
    append_start(&p, 2, 1, "just now\n", false);
    fetch_now(&f, ids, 3, 0);
    assert_int_equal(f.fetch.n_rows, 2);
    store_fetch_free(&f.fetch);
    append_start(&p, 3, 1, "just now\n", false);
    fetch_now(&f, ids, 3, 0);
    assert_int_equal(f.fetch.n_rows, 3);
    store_fetch_free(&f.fetch);
}

static void a_loose_read_sees_what_was_done_before_it(void **state)
{
    for (uint64_t i = 1; i <= 20; i++) {
        struct probe f = {0}, s = {0};
        char key[8];

        append_now(i, 1, "x\n");
        snprintf(key, sizeof key, "%02d", (int)i);
        put_now("t", key, "v");
        uint64_t id = row(i);
        f.fetch = (struct store_fetch){.ids = &id, .n = 1, .loose = true};
        store_fetch(st, &expect(&f)->fetch);
        s.scan = (struct store_scan){.ns = "t", .prefix = str_of(key), .loose = true};
        store_scan(st, &expect(&s)->scan);
        settle();
        assert_int_equal(f.fetch.n_rows, 1);
        assert_int_equal(s.scan.n_records, 1);
        store_fetch_free(&f.fetch);
        store_scan_free(&s.scan);
    }
}

static void records_are_put_replaced_and_deleted(void **state)
{
    put_now("gw", "a", "1");
    put_now("gw", "b", "2");
    put_now("other", "a", "9");
    put_now("gw", "a", "3");
    assert_string_equal(records("gw"), "a=3 b=2 ");
    struct store_kv gone[] = {{KV_DELETE, "gw", STR("b")}, {KV_DELETE, "gw", STR("never")}};
    assert_int_equal(tx_now(gone, 2), BH_OK);
    assert_string_equal(records("gw"), "a=3 ");
    assert_string_equal(records("other"), "a=9 ");
    assert_string_equal(records("none"), "");
}

static void a_conflict_undoes_its_own_transaction_only(void **state)
{
    struct probe before = {0}, bad = {0}, after = {0};
    put_now("t", "taken", "old");
    struct store_kv first = {KV_PUT, "t", STR("x"), STR("1")};
    struct store_kv items[] = {{KV_PUT, "t", STR("x"), STR("2")},
                               {KV_DELETE, "t", STR("taken")},
                               {KV_INSERT, "t", STR("x"), STR("3")},
                               {KV_PUT, "t", STR("never"), STR("4")}};
    struct store_kv last = {KV_PUT, "t", STR("z"), STR("5")};

    before.tx = (struct store_tx){.items = &first, .n = 1};
    bad.tx = (struct store_tx){.items = items, .n = 4};
    after.tx = (struct store_tx){.items = &last, .n = 1};
    store_tx(st, &expect(&before)->tx, false);
    store_tx(st, &expect(&bad)->tx, false);
    store_tx(st, &expect(&after)->tx, true);
    settle();
    assert_int_equal(before.err, BH_OK);
    assert_int_equal(bad.err, BH_CONFLICT);
    assert_int_equal(after.err, BH_OK);
    assert_string_equal(records("t"), "taken=old x=1 z=5 ");
}

static void an_insert_wins_once(void **state)
{
    struct store_kv kv = {KV_INSERT, "t", STR("name"), STR("1")};
    assert_int_equal(tx_now(&kv, 1), BH_OK);
    kv.value = STR("2");
    assert_int_equal(tx_now(&kv, 1), BH_CONFLICT);
    assert_string_equal(records("t"), "name=1 ");
}

static void a_single_use_record_is_consumed_once(void **state)
{
    put_now("token", "abc", "1");
    struct store_kv items[] = {{KV_PUT, "gw", STR("new"), STR("1")},
                               {KV_CONSUME, "token", STR("abc")}};
    assert_int_equal(tx_now(items, 2), BH_OK);
    items[0].value = STR("2");
    assert_int_equal(tx_now(items, 2), BH_CONFLICT);
    assert_int_equal(tx_now(&items[1], 1), BH_CONFLICT);
    assert_string_equal(records("gw"), "new=1 ");
}

static void an_empty_transaction_is_fine(void **state)
{
    assert_int_equal(tx_now(NULL, 0), BH_OK);
}

static void a_scan_walks_a_prefix_both_ways(void **state)
{
    static const char *const keys[] = {"a", "ab", "ab/1", "ab/2", "ab/3", "ac", "\xff", "\xff\xff"};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        put_now("s", keys[i], "v");
    put_now("r", "ab/0", "foreign");
    put_now("t", "ab/9", "foreign");

    assert_string_equal(scan_now("s", "ab/", NULL, 0, false), "ab/1=v ab/2=v ab/3=v ");
    assert_string_equal(scan_now("s", "ab/", NULL, 0, true), "ab/3=v ab/2=v ab/1=v ");
    assert_string_equal(load_now("s", "ab/"), "ab/1=v ab/2=v ab/3=v ");
    assert_string_equal(load_now("s", "ab/4"), "");
    assert_string_equal(scan_now("s", "ab/", "ab/1", 1, false), "ab/2=v ");
    assert_string_equal(scan_now("s", "ab/", "ab/3", 1, true), "ab/2=v ");
    assert_string_equal(scan_now("s", "ab", NULL, 2, false), "ab=v ab/1=v ");
    assert_string_equal(scan_now("s", "ab/", "a", 0, false), "ab/1=v ab/2=v ab/3=v ");
    assert_string_equal(scan_now("s", "ab/", "zz", 0, true), "ab/3=v ab/2=v ab/1=v ");
    assert_string_equal(scan_now("s", "ab/", "zz", 0, false), "");
    assert_string_equal(scan_now("s", "", NULL, 1, true), "\xff\xff=v ");
    assert_string_equal(scan_now("s", "\xff", NULL, 0, true), "\xff\xff=v \xff=v ");
    assert_string_equal(scan_now("s", "", "ab", 2, true), "a=v ");
    assert_string_equal(scan_now("s", "nothing", NULL, 0, false), "");
}

static void old_keys_are_forgotten_and_young_ones_kept(void **state)
{
    for (uint64_t i = 1; i <= 6; i++)
        append_now(i, 1, "x\n"); /* at 1001 ... 1006 */
    assert_int_equal(count_keys(0), 6);
    assert_int_equal(count_keys(1005), 2);
    st->ops->forget_keys(st, 1004);
    append_now(7, 1, "x\n");
    append_now(8, 1, "x\n"); /* forgetting follows what was submitted before it */
    assert_int_equal(count_keys(0), 5);
    assert_int_equal(count_rows(), 8);
}

static void on_put_done(void *ctx, enum bh_err err)
{
    *(enum bh_err *)ctx = err;
    if (--pending == 0)
        settled();
}

static void store_put_copies_its_items(void **state)
{
    char key[] = "key", value[] = "value", ns[] = "ns";
    struct store_kv items[] = {{KV_PUT, ns, str_of(key), str_of(value)},
                               {KV_PUT, ns, STR("empty"), STR_NULL}};
    enum bh_err err = BH_UNKNOWN;

    pending++;
    store_put(st, items, 2, true, on_put_done, &err);
    memset(key, 'x', 3), memset(value, 'x', 5), memset(ns, 'x', 2);
    assert_int_equal(err, BH_UNKNOWN);
    settle();
    assert_int_equal(err, BH_OK);
    assert_string_equal(records("ns"), "empty= key=value ");
    store_put(st, items, 1, false, NULL, NULL); /* under way when the test closes the store */
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
    struct probe p = {0}, f = {0};
    int loaded = 0;

    append_start(&p, 1, 4, "staged\n", false);
    p.append.flags = STORE_ROW_STAGED | STORE_ROW_HAS_MEDIA;
    settle();
    uint64_t ids[2] = {row(1)};
    p.append = (struct store_append){.id = row(2),
                                     .box = 4,
                                     .flags = STORE_ROW_QUIET | STORE_ROW_HAS_MEDIA,
                                     .replaces = ids[0],
                                     .frame = STR("accepted\n")};
    fetch_now(&f, ids, 1, 0);
    assert_int_equal(f.fetch.rows[0].flags, STORE_ROW_STAGED | STORE_ROW_HAS_MEDIA);
    store_fetch_free(&f.fetch);
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
    store_fetch_free(&f.fetch);
    assert_int_equal(count_rows(), 1);
}

static void on_wanted_key(void *ctx, struct hash128 key, int64_t at_ms)
{
    struct hash128 *wanted = ctx;

    if (key.lo == wanted->lo && key.hi == wanted->hi)
        wanted->lo = 0;
}

static bool has_key(struct hash128 key)
{
    assert_int_equal(st->ops->load_keys(st, 0, on_wanted_key, &key), BH_OK);
    return key.lo == 0;
}

static void an_append_brings_its_other_keys_and_records(void **state)
{
    const struct hash128 keys[] = {{.lo = 71, .hi = ~71ull}, {.lo = 72, .hi = ~72ull}};
    const struct store_kv count = {KV_PUT, "counts", STR("k"), STR("2")};
    const struct store_extra extra = {keys, 2, &count, 1};
    struct probe p = {0};

    put_now("counts", "k", "1");
    append_start(&p, 1, 4, "accepted\n", false);
    p.append.extra = &extra;
    settle();
    assert_int_equal(p.err, BH_OK);
    assert_int_equal(count_rows(), 1);
    assert_int_equal(count_keys(0), 3);
    assert_true(has_key(keys[0]) && has_key(keys[1]));
    assert_string_equal(records("counts"), "k=2 ");
}

static void a_store_of_one_process_has_no_leases(void **state)
{
    struct probe p = {0};

    if (st->shared)
        skip();
    p.lease = (struct store_lease){.verb = LEASE_TAKE, .name = STR("serve"), .owner = STR("me")};
    store_lease(st, &expect(&p)->lease);
    settle();
    assert_int_equal(p.err, BH_REFUSED);
}

#include "store/contract_bounds.h"

#define CONTRACT(setup, teardown) \
    T(an_appended_row_comes_back_byte_for_byte, setup, teardown), \
        T(completions_run_in_order_of_submission_and_never_inside_the_call, setup, teardown), \
        T(an_append_tried_again_finds_its_row_and_changes_nothing, setup, teardown), \
        T(a_shrunk_append_leaves_its_key_but_no_row, setup, teardown), \
        T(shrinking_a_written_row_is_too_late, setup, teardown), \
        T(acked_rows_are_gone_and_unknown_ids_are_fine, setup, teardown), \
        T(a_mark_sets_attempts_and_parks, setup, teardown), \
        T(marking_a_row_that_is_gone_is_fine, setup, teardown), \
        T(a_fetch_finds_scattered_ids_among_many_rows, setup, teardown), \
        T(a_fetch_stops_at_its_byte_bound_but_gives_one_row, setup, teardown), \
        T(fetches_that_wait_together_get_their_own_rows, setup, teardown), \
        T(reads_see_every_write_submitted_before_them, setup, teardown), \
        T(a_loose_read_sees_what_was_done_before_it, setup, teardown), \
        T(records_are_put_replaced_and_deleted, setup, teardown), \
        T(a_conflict_undoes_its_own_transaction_only, setup, teardown), \
        T(an_insert_wins_once, setup, teardown), \
        T(a_single_use_record_is_consumed_once, setup, teardown), \
        T(an_empty_transaction_is_fine, setup, teardown), \
        T(a_scan_walks_a_prefix_both_ways, setup, teardown), \
        T(old_keys_are_forgotten_and_young_ones_kept, setup, teardown), \
        T(store_put_copies_its_items, setup, teardown), \
        T(a_row_brings_its_flags_and_takes_the_place_of_another, setup, teardown), \
        T(an_append_brings_its_other_keys_and_records, setup, teardown), \
        T(a_store_of_one_process_has_no_leases, setup, teardown), CONTRACT_BOUNDS(setup, teardown)
#define T(f, setup, teardown) cmocka_unit_test_setup_teardown(f, setup, teardown)
