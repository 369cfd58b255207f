/* Reads of the embedded store beside its writes: what they see, what they cost, and that nobody can
 * make them pile up. */
#include "unit.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "net/loop.h"
#include "store/sqlite/sqlite.h"

enum { VALUE_BYTES = 1 << 20, VALUES = 10 };

static struct loop *loop;
static struct store *st;
static char dir[64], path[128], why[256];
static int pending;
static char order[256];

struct reading {
    struct store_scan scan;
    enum bh_err err;
};

static void note(char mark)
{
    size_t n = strlen(order);

    if (n + 1 < sizeof order)
        order[n] = mark, order[n + 1] = '\0';
    if (--pending == 0)
        loop_stop(loop);
}

static void settle(void)
{
    if (pending > 0)
        loop_run(loop);
}

static int setup(void **state)
{
    log_setup(LOG_ERROR, false);
    strcpy(dir, "/tmp/bellhop-reads-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/bellhop.db", dir);
    loop = loop_new();
    pending = 0;
    order[0] = '\0';
    assert_int_equal(store_sqlite_open(loop, path, &st, why), BH_OK);
    return 0;
}

static int teardown(void **state)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    char name[160];

    store_close(st);
    loop_free(loop);
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        unlink(name);
    }
    return rmdir(dir);
}

static void on_put(void *ctx, enum bh_err err)
{
    assert_int_equal(err, BH_OK);
    note('p');
}

static void put_large_values(void)
{
    char *value = xcalloc(1, VALUE_BYTES), key[8];

    for (int i = 0; i < VALUES; i++) {
        snprintf(key, sizeof key, "%02d", i);
        struct store_kv kv = {KV_PUT, "big", str_of(key), str_make(value, VALUE_BYTES)};
        pending++;
        store_put(st, &kv, 1, true, on_put, NULL);
    }
    settle();
    order[0] = '\0';
    free(value);
}

static void on_scanned(struct store_op *op, enum bh_err err)
{
    struct reading *r = container_of(op, struct reading, scan.op);

    r->err = err;
    store_scan_free(&r->scan);
    note('r');
}

static void scan_start(struct reading *r)
{
    r->scan = (struct store_scan){.op.done = on_scanned, .ns = "big"};
    pending++;
    store_scan(st, &r->scan);
}

static struct store_stats stats_now(void)
{
    struct store_stats s;

    st->ops->stats(st, &s);
    return s;
}

static void a_write_does_not_wait_behind_reads(void **state)
{
    enum { N = 20 };
    static struct reading r[N];

    put_large_values();
    for (int i = 0; i < N; i++)
        scan_start(&r[i]);
    struct store_kv kv = {KV_PUT, "small", STR("k"), STR("v")};
    pending++;
    store_put(st, &kv, 1, true, on_put, NULL);
    settle();
    const char *at = strchr(order, 'p');
    assert_non_null(at);
    assert_in_range(at - order, 0, N / 2);
    for (int i = 0; i < N; i++)
        assert_int_equal(r[i].err, BH_OK);
}

static void answers_that_nobody_takes_do_not_pile_up(void **state)
{
    enum { N = 12 };
    static struct reading r[N];
    struct store_stats before, now = {0};

    put_large_values();
    for (int i = 0; i < N; i++)
        scan_start(&r[i]);
    loop_turn(loop, 0); /* submits, and then the loop is busy elsewhere */
    do {
        before = now;
        usleep(200000);
        now = stats_now();
    } while (now.reads != before.reads || now.reads == 0 || now.reads + now.reads_queued != N);
    assert_in_range(now.reads, 1, 4); /* of 8 MiB each */
    settle();
    assert_int_equal(stats_now().reads, N);
}

static void reads_that_were_called_off_cost_nothing(void **state)
{
    enum { N = 5000 };
    struct reading *r = xcalloc(N, sizeof *r);

    put_large_values();
    for (int i = 0; i < N; i++) {
        scan_start(&r[i]);
        if (i < N - 1)
            store_cancel(st, &r[i].scan.op);
    }
    settle();
    for (int i = 0; i < N - 1; i++)
        assert_int_equal(r[i].err, BH_CANCELLED);
    assert_int_equal(r[N - 1].err, BH_OK);
    assert_int_equal(stats_now().reads, 1);
    free(r);
}

static void an_undelivered_answer_is_freed_with_the_store(void **state)
{
    static struct reading r[3];

    put_large_values();
    for (int i = 0; i < 3; i++)
        scan_start(&r[i]);
    loop_turn(loop, 0);
    while (stats_now().reads == 0)
        usleep(1000);
    pending = 0; /* the sanitizer counts */
}

/* ---- what a read sees ---- */

struct step { /* a row that takes the place of the one before it, and a look at what there is */
    struct store_append append;
    struct store_fetch fetch;
};

static void on_replaced(struct store_op *op, enum bh_err err)
{
    assert_int_equal(err, BH_OK);
    note('a');
}

static void on_fetched_one(struct store_op *op, enum bh_err err)
{
    struct store_fetch *f = container_of(op, struct store_fetch, op);

    assert_int_equal(err, BH_OK);
    assert_int_equal(f->n_rows, 1); /* the old one or the new one, never both, never neither */
    store_fetch_free(f);
    note('f');
}

static void a_read_sees_a_row_replaced_whole(void **state)
{
    enum { ROUNDS = 60, N = 20 };
    static struct step s[N];
    static uint64_t ids[N + 1]; /* of this round, and the one before it */
    uint64_t last = 0;

    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i <= N; i++)
            ids[i] = st->boot << 40 | (last + i);
        for (int i = 0; i < N; i++, last++) {
            s[i].append = (struct store_append){.op.done = on_replaced,
                                                .id = st->boot << 40 | (last + 1),
                                                .box = 1,
                                                .replaces = last > 0 ? st->boot << 40 | last : 0,
                                                .frame = STR("row\n")};
            pending++;
            store_append(st, &s[i].append, true);
            if (round == 0)
                continue; /* there may be none yet */
            s[i].fetch = (struct store_fetch){.op.done = on_fetched_one,
                                              .ids = ids,
                                              .n = N + 1,
                                              .loose = true};
            pending++;
            store_fetch(st, &s[i].fetch);
            if (i % 4 == 0)
                loop_turn(loop, 0);
        }
        settle();
    }
}

enum { ROWS = 6000 };

static void append_rows(void)
{
    struct store_append *a = xcalloc(ROWS, sizeof *a);

    for (uint64_t i = 0; i < ROWS; i++) {
        a[i] = (struct store_append){.op.done = on_replaced,
                                     .id = st->boot << 40 | (i + 1),
                                     .box = 1,
                                     .frame = STR("row\n")};
        pending++;
        store_append(st, &a[i], true);
    }
    settle();
    free(a);
}

static void on_fetched_half(struct store_op *op, enum bh_err err)
{
    struct store_fetch *f = container_of(op, struct store_fetch, op);

    assert_int_equal(err, BH_OK);
    assert_int_equal(f->n_rows, ROWS / 2);
    store_fetch_free(f);
    note('f');
}

/* The rows are deleted while we look, slice by slice; none of them ever shows itself. */
static void a_settled_row_stays_hidden_while_it_is_deleted(void **state)
{
    static uint64_t ids[ROWS / 2], all[ROWS];
    struct store_ack ack = {.op.done = on_replaced, .ids = ids, .n = ROWS / 2};
    struct store_fetch f = {.op.done = on_fetched_half, .ids = all, .n = ROWS, .loose = true};
    int64_t size = -1;

    append_rows();
    for (uint64_t i = 0; i < ROWS / 2; i++)
        ids[i] = st->boot << 40 | (i * 2 + 1);
    for (uint64_t i = 0; i < ROWS; i++)
        all[i] = st->boot << 40 | (i + 1);
    pending++;
    store_ack(st, &ack);
    settle();
    for (int i = 0; i < 400; i++) {
        pending++;
        store_fetch(st, &f);
        settle();
        size = stats_now().bytes_on_disk;
        if (i > 50)
            usleep(1000); /* quiet enough for the deleting to begin */
    }
    assert_true(size > 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

UNIT(store_test_reads)
{
    const struct CMUnitTest tests[] = {
        T(a_write_does_not_wait_behind_reads),
        T(answers_that_nobody_takes_do_not_pile_up),
        T(reads_that_were_called_off_cost_nothing),
        T(an_undelivered_answer_is_freed_with_the_store),
        T(a_read_sees_a_row_replaced_whole),
        T(a_settled_row_stays_hidden_while_it_is_deleted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
