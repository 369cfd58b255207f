/* Promises of fate.c in store/postgres/impl.h, kept on a real server that crashes. */
#include "unit.h"
#include "store/pg_server.h"
#include "store/postgres/impl.h"
#include "store/postgres/pq_late.h"

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

UNIT(store_test_fate)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_crashed_server_forgot_did_not_happen_whoever_has_its_number),
        cmocka_unit_test(a_commit_is_told_from_what_was_given_up),
    };
    return cmocka_run_group_tests(tests, setup, pg_teardown);
}
