/* Promises of fate.c in store/postgres/impl.h and of those who commit by it, kept on a real server
 * that crashes or whose answer is lost. */
#include "unit.h"
#include "store/pg_proxy.h"
#include "store/postgres/impl.h"
#include "store/postgres/pq_late.h"
#include "store/postgres/sqldb.h"

/* One answer of the server, as text. */
static const char *sql(const char *text)
{
    static char word[128];
    PGconn *pg = PQconnectdb(pg_url);
    PGresult *r = PQexec(pg, text);

    word[0] = '\0';
    if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) > 0)
        snprintf(word, sizeof word, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
    PQfinish(pg);
    return word;
}

static int setup(void **state)
{
    char why[256];

    assert_int_equal(pg_setup(state), 0);
    assert_true(pq_late_load(why));
    sql("CREATE SCHEMA bellhop; SET search_path = bellhop; " PG_FATE_TABLE);
    return 0;
}

/* Begins a transaction that would be told by @m, and says what the server calls it. */
static PGconn *begin_marked(struct pg_mark *m)
{
    char text[320];
    PGconn *pg = PQconnectdb(pg_url);

    pg_mark_next(m);
    snprintf(text, sizeof text, PG_FATE_MARK("%lld", "%lld"), (long long)m->writer,
             (long long)m->n);
    PQclear(PQexec(pg, "SET search_path = bellhop"));
    PQclear(PQexec(pg, "BEGIN"));
    PGresult *r = PQexec(pg, text);
    assert_int_equal(PQntuples(r), 1);
    pg_mark_read(m, r);
    PQclear(r);
    return pg;
}

/* After a crash other transactions get numbers up to that of @m: what became of "it"? */
static bool is_said_to_have_happened(const struct pg_mark *m)
{
    char text[96];

    for (int i = 0; i < 100 && atoll(sql("SELECT pg_current_xact_id()")) <= atoll(m->xact); i++)
        ;
    snprintf(text, sizeof text, "SELECT pg_xact_status('%s'::xid8)", m->xact);
    return strcmp(sql(text), "committed") == 0;
}

static void what_a_crashed_server_forgot_did_not_happen_whoever_has_its_number(void **state)
{
    struct pg_mark m = {0};
    bool trapped = false;

    for (int i = 0; i < 5 && !trapped; i++) {
        PGconn *pg = begin_marked(&m);
        pg_stop(SIGQUIT);
        pg_start();
        PQfinish(pg);
        trapped = is_said_to_have_happened(&m);
        assert_int_equal(pg_find_fate(pg_url, &m, COMMIT_LOOKUP_MS), FATE_UNDONE);
    }
    assert_true(trapped);
}

static void a_commit_is_told_from_what_was_given_up(void **state)
{
    struct pg_mark m = {0};

    PGconn *pg = begin_marked(&m);
    PQclear(PQexec(pg, "COMMIT"));
    PQfinish(pg);
    assert_int_equal(pg_find_fate(pg_url, &m, COMMIT_LOOKUP_MS), FATE_DONE);
    pg = begin_marked(&m);
    PQfinish(pg);
    assert_int_equal(pg_find_fate(pg_url, &m, COMMIT_LOOKUP_MS), FATE_UNDONE);
}

/* ---- a connection of store/sqldb.h whose COMMIT is cut off ---- */

/* How a write of one row ends, and in @ret_rows how many rows there are then. */
static enum sqldb_end commit_cut(enum pg_cut cut, bool shut, int64_t *ret_rows)
{
    static const char *const migrations[] = {"CREATE TABLE told (n bigint)"};
    static const char *const statements[] = {"INSERT INTO told VALUES ($1)"};
    static const struct pg_sqldb_schema schema = {.name = "told",
                                                  .migrations = migrations,
                                                  .n_migrations = 1,
                                                  .statements = statements,
                                                  .n_statements = 1,
                                                  .lock = 77};
    struct pg_proxy p = {.cut = cut, .shut = shut};
    char why[256];

    assert_true(pg_sqldb_prepare(pg_url, &schema, why));
    sql("TRUNCATE bellhop.told");
    pg_proxy_start(&p);
    struct sqldb *s = pg_sqldb_new(p.url, &schema);
    assert_true(sqldb_begin(s, true));
    sqldb_int(s, 1);
    assert_true(sqldb_ask(s, 0));
    enum sqldb_end end = s->ops->commit(s);
    sqldb_close(s);
    pg_proxy_end(&p);
    *ret_rows = atoll(sql("SELECT count(*) FROM bellhop.told"));
    return end;
}

static void a_write_whose_commit_got_no_answer_is_done_if_it_happened(void **state)
{
    int64_t rows;

    assert_int_equal(commit_cut(PG_CUT_NEVER, false, &rows), SQLDB_DONE);
    assert_int_equal(rows, 1);
    assert_int_equal(commit_cut(PG_CUT_ANSWER, false, &rows), SQLDB_DONE);
    assert_int_equal(rows, 1);
}

static void a_write_whose_commit_never_came_is_undone(void **state)
{
    int64_t rows;

    assert_int_equal(commit_cut(PG_CUT_REQUEST, false, &rows), SQLDB_UNDONE);
    assert_int_equal(rows, 0);
}

/* It is never taken for one that did not happen. */
static void a_write_that_cannot_be_looked_up_is_unknown(void **state)
{
    int64_t rows;

    assert_int_equal(commit_cut(PG_CUT_ANSWER, true, &rows), SQLDB_UNKNOWN);
    assert_int_equal(rows, 1);
    assert_int_equal(commit_cut(PG_CUT_REQUEST, true, &rows), SQLDB_UNKNOWN);
    assert_int_equal(rows, 0);
}

UNIT(store_test_fate)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_crashed_server_forgot_did_not_happen_whoever_has_its_number),
        cmocka_unit_test(a_commit_is_told_from_what_was_given_up),
        cmocka_unit_test(a_write_whose_commit_got_no_answer_is_done_if_it_happened),
        cmocka_unit_test(a_write_whose_commit_never_came_is_undone),
        cmocka_unit_test(a_write_that_cannot_be_looked_up_is_unknown),
    };
    return cmocka_run_group_tests(tests, setup, pg_teardown);
}
