/* Promises of store/migrate.h, kept between a real SQLite file and a real PostgreSQL. */
#include "unit.h"
#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include "base/log.h"
#include "net/loop.h"
#include "store/migrate.h"
#include "store/pg_server.h"
#include "store/postgres/postgres.h"
#include "store/sqlite/sqlite.h"

enum { BOXES = 7, ROWS = 3000, RECORDS = 900 };

static struct loop *loop;
static struct store *st;
static size_t pending;
static char dir[64], db[96], why[256];

static const char *sql(const char *text)
{
    static char word[256];
    PGconn *pg = PQconnectdb(pg_url);
    PGresult *r = PQexec(pg, text);

    word[0] = '\0';
    if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) > 0)
        snprintf(word, sizeof word, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
    PQfinish(pg);
    return word;
}

/* ---- filling a store ---- */

static void on_done(struct store_op *op, enum bh_err err)
{
    assert_int_equal(err, BH_OK);
    if (--pending == 0)
        loop_stop(loop);
}

static void settle(void)
{
    if (pending > 0)
        loop_run(loop);
}

static struct store_append appends[ROWS];
static char frames[ROWS][40];

static void fill_rows(void)
{
    for (size_t i = 0; i < ROWS; i++) {
        snprintf(frames[i], sizeof frames[i], "{\"n\":%zu}\n", i);
        appends[i] = (struct store_append){.op.done = on_done,
                                           .id = st->boot << 40 | (i + 1),
                                           .box = 1 + (uint32_t)(i % BOXES),
                                           .flags = i % 3 == 0 ? STORE_ROW_QUIET : 0,
                                           .at_ms = 1000 + (int64_t)i,
                                           .has_key = true,
                                           .key = {.lo = i, .hi = 77},
                                           .frame = str_of(frames[i])};
        pending++;
        store_append(st, &appends[i], i == ROWS - 1);
    }
    settle();
}

static void settle_and_mark_some(void)
{
    static uint64_t gone[100];
    static struct store_ack ack;
    static struct store_mark mark;

    for (size_t i = 0; i < 100; i++)
        gone[i] = appends[i * 5].id;
    ack = (struct store_ack){.op.done = on_done, .ids = gone, .n = 100};
    mark = (struct store_mark){.op.done = on_done,
                               .id = appends[1].id,
                               .attempts = 5,
                               .parked = STR("it never answered")};
    pending = 2;
    store_ack(st, &ack);
    store_mark(st, &mark);
    settle();
}

static void fill_records(void)
{
    static struct store_tx txs[RECORDS];
    static struct store_kv items[RECORDS];
    static char keys[RECORDS][32];

    for (size_t i = 0; i < RECORDS; i++) {
        snprintf(keys[i], sizeof keys[i], "key %zu \xc3\xa4%c", i, (char)(i % 5));
        items[i] = (struct store_kv){KV_PUT, i % 2 == 0 ? "route" : "link", str_of(keys[i]),
                                     str_make(keys[i], sizeof keys[i])};
        txs[i] = (struct store_tx){.op.done = on_done, .items = &items[i], .n = 1};
        pending++;
        store_tx(st, &txs[i], i == RECORDS - 1);
    }
    settle();
}

static void fill_sqlite(void)
{
    assert_int_equal(store_sqlite_open(loop, db, &st, why), BH_OK);
    fill_rows();
    settle_and_mark_some();
    fill_records();
    store_close(st);
}

static int setup(void **state)
{
    log_setup(LOG_ERROR, false);
    sql("DROP SCHEMA IF EXISTS bellhop CASCADE");
    strcpy(dir, "/tmp/bellhop-move-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(db, sizeof db, "%s/bellhop.db", dir);
    loop = loop_new();
    pending = 0;
    why[0] = '\0';
    fill_sqlite();
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    loop_free(loop);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* ---- looking ---- */

struct seen_rows {
    size_t n, parked, quiet;
    uint64_t last[BOXES + 1];
    size_t order[BOXES + 1]; /* the n of the newest frame */
};

static void on_row(void *ctx, const struct store_row *row)
{
    struct seen_rows *s = ctx;

    assert_true(row->id > s->last[row->box]);
    s->last[row->box] = row->id;
    s->n++;
    s->quiet += (row->flags & STORE_ROW_QUIET) != 0;
    if (row->parked.p != NULL) {
        assert_true(str_eq(row->parked, STR("it never answered")));
        assert_int_equal(row->attempts, 5);
        s->parked++;
    }
}

static void on_key(void *ctx, struct hash128 key, int64_t at_ms)
{
    assert_int_equal(key.hi, 77);
    ++*(size_t *)ctx;
}

static void on_record(void *ctx, struct str key, struct str value)
{
    assert_true(str_starts(value, key));
    ++*(size_t *)ctx;
}

/* Every row that was not acked has its frame, and the frames come in order. */
static void frames_are_in_order(void)
{
    uint64_t *ids = xcalloc(ROWS, sizeof *ids);
    struct store_fetch f = {.op.done = on_done, .ids = ids, .n = ROWS};
    long last = -1;

    for (size_t i = 0; i < ROWS; i++)
        ids[i] = appends[i].id;
    pending = 1;
    store_fetch(st, &f);
    settle();
    assert_int_equal(f.n_rows, ROWS - 100);
    for (size_t i = 0; i < f.n_rows; i++) {
        long n = strtol(f.rows[i].frame.p + strlen("{\"n\":"), NULL, 10);
        assert_true(n > last && (uint32_t)(n % BOXES) + 1 == f.rows[i].box);
        last = n;
    }
    store_fetch_free(&f);
    free(ids);
}

static void all_is_there(void)
{
    struct seen_rows rows = {0};
    size_t keys = 0, records = 0;

    assert_int_equal(st->ops->load_rows(st, on_row, &rows), BH_OK);
    assert_int_equal(rows.n, ROWS - 100);
    assert_int_equal(rows.parked, 1);
    assert_true(rows.quiet > 800);
    assert_int_equal(st->ops->load_keys(st, 0, on_key, &keys), BH_OK);
    assert_true(keys >= ROWS);
    assert_int_equal(st->ops->load_records(st, "route", STR(""), on_record, &records), BH_OK);
    assert_int_equal(records, RECORDS / 2);
    frames_are_in_order();
}

/* Rows keep their ids, and new ids are larger. */
static void ids_are_kept(void)
{
    struct store_fetch f = {.op.done = on_done, .ids = &appends[2].id, .n = 1};

    pending = 1;
    store_fetch(st, &f);
    settle();
    assert_int_equal(f.n_rows, 1);
    assert_true(str_eq(f.rows[0].frame, str_of(frames[2])));
    store_fetch_free(&f);
    assert_true(st->boot << 40 > appends[ROWS - 1].id);
}

/* ---- the tests ---- */

static bool each_goes_on(void *ctx, uint64_t done, uint64_t all)
{
    assert_true(done <= all);
    return true;
}

static void what_sqlite_kept_is_in_postgresql_row_by_row(void **state)
{
    struct migrated m;
    struct hash_key key;

    assert_int_equal(store_migrate_in(db, pg_url, each_goes_on, NULL, &m, why), BH_OK);
    assert_int_equal(m.n[MIGRATED_ROWS], ROWS - 100);
    assert_true(m.n[MIGRATED_RECORDS] >= RECORDS);
    assert_int_equal(m.resumed, 0);
    assert_int_equal(store_sqlite_open(loop, db, &st, why), BH_OK);
    key = st->dedup_key;
    store_close(st);
    assert_int_equal(store_postgres_open(loop, pg_url, 3000, &st, why), BH_OK);
    assert_memory_equal(&key, &st->dedup_key, sizeof key);
    all_is_there();
    ids_are_kept();
    store_close(st);
}

static bool each_stops(void *ctx, uint64_t done, uint64_t all)
{
    return done < *(uint64_t *)ctx;
}

static void a_move_that_was_stopped_goes_on_and_no_server_starts_before(void **state)
{
    struct migrated m;
    uint64_t stops[] = {512, 1024, 2560, 4864};

    for (size_t i = 0; i < ARRAY_LEN(stops); i++) {
        assert_int_equal(store_migrate_in(db, pg_url, each_stops, &stops[i], &m, why),
                         BH_CANCELLED);
        assert_int_equal(store_postgres_open(loop, pg_url, 3000, &st, why), BH_UNAVAILABLE);
        assert_non_null(strstr(why, "run bellhop store migrate again"));
    }
    assert_int_equal(store_migrate_in(db, pg_url, NULL, NULL, &m, why), BH_OK);
    assert_true(m.resumed > 2000);
    assert_int_equal(store_postgres_open(loop, pg_url, 3000, &st, why), BH_OK);
    all_is_there();
    store_close(st);
}

static void a_source_that_went_on_meanwhile_is_not_mixed_in(void **state)
{
    struct migrated m;
    uint64_t stop = 2560;

    assert_int_equal(store_migrate_in(db, pg_url, each_stops, &stop, &m, why), BH_CANCELLED);
    assert_int_equal(store_sqlite_open(loop, db, &st, why), BH_OK);
    store_close(st);
    assert_int_equal(store_migrate_in(db, pg_url, NULL, NULL, &m, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "the server ran since"));
}

static void what_is_changed_on_the_way_is_noticed(void **state)
{
    struct migrated m;
    uint64_t stop = 4864; /* records and rows are there */

    assert_int_equal(store_migrate_in(db, pg_url, each_stops, &stop, &m, why), BH_CANCELLED);
    sql("UPDATE bellhop.mail SET frame = 'other' WHERE id = (SELECT max(id) FROM bellhop.mail)");
    assert_int_equal(store_migrate_in(db, pg_url, NULL, NULL, &m, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "and they differ"));
    assert_int_equal(store_postgres_open(loop, pg_url, 3000, &st, why), BH_UNAVAILABLE);
}

static void a_target_in_use_and_a_source_in_use_are_refused(void **state)
{
    struct migrated m;

    assert_int_equal(store_sqlite_open(loop, db, &st, why), BH_OK);
    assert_int_equal(store_migrate_in(db, pg_url, NULL, NULL, &m, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "in use"));
    store_close(st);
    assert_int_equal(store_migrate_in(db, pg_url, NULL, NULL, &m, why), BH_OK);
    assert_int_equal(store_migrate_in(db, pg_url, NULL, NULL, &m, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "in use already"));
    assert_int_equal(store_migrate_in("/tmp/no-such.db", pg_url, NULL, NULL, &m, why),
                     BH_UNAVAILABLE);
    assert_non_null(strstr(why, "there is no database"));
}

static void and_back_into_a_new_file(void **state)
{
    struct migrated m, back;
    char other[96];
    uint64_t stop = 2000;

    snprintf(other, sizeof other, "%s/other.db", dir);
    assert_int_equal(store_migrate_in(db, pg_url, NULL, NULL, &m, why), BH_OK);
    assert_int_equal(store_migrate_out(pg_url, db, NULL, NULL, &back, why), BH_CONFLICT);
    assert_int_equal(store_migrate_out(pg_url, other, each_stops, &stop, &back, why), BH_CANCELLED);
    assert_int_not_equal(access(other, F_OK), 0);
    assert_int_equal(store_migrate_out(pg_url, other, NULL, NULL, &back, why), BH_OK);
    assert_memory_equal(m.n, back.n, sizeof m.n);
    assert_int_equal(store_sqlite_open(loop, other, &st, why), BH_OK);
    all_is_there();
    ids_are_kept();
    store_close(st);
}

UNIT(store_test_migrate)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_sqlite_kept_is_in_postgresql_row_by_row, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_move_that_was_stopped_goes_on_and_no_server_starts_before,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_source_that_went_on_meanwhile_is_not_mixed_in, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_changed_on_the_way_is_noticed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_target_in_use_and_a_source_in_use_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(and_back_into_a_new_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, pg_setup, pg_teardown);
}
