/* Promises of store/store.h and store/postgres/postgres.h, kept on a real server.  One file,
 * because all of it needs that server, which takes long to make. */
#include "store/contract_lease.h"
#include <arpa/inet.h>
#include <libpq-fe.h>
#include <sys/socket.h>
#include "base/log.h"
#include "net/loop.h"
#include "store/pg_server.h"
#include "store/postgres/postgres.h"
#include "store/worker.h"

static struct loop *loop;
static char why[256];

static void settled(void)
{
    loop_stop(loop);
}

static void settle(void)
{
    if (pending > 0)
        loop_run(loop);
}

static struct store *open_store(void)
{
    struct store *s = NULL;

    if (store_postgres_open(loop, pg_url, 1500, &s, why) != BH_OK)
        fail_msg("%s", why);
    return s;
}

/* One answer of the server, as text. */
static const char *sql(const char *text)
{
    static char word[128];
    PGconn *pg = PQconnectdb(pg_url);
    PGresult *r = PQexec(pg, text);

    word[0] = '\0';
    if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) > 0)
        snprintf(word, sizeof word, "%s", PQgetvalue(r, 0, 0));
    else if (PQresultStatus(r) != PGRES_COMMAND_OK)
        snprintf(word, sizeof word, "%s", PQresultErrorMessage(r));
    PQclear(r);
    PQfinish(pg);
    return word;
}

static int setup(void **state)
{
    log_setup(LOG_ERROR, false);
    sql("DROP SCHEMA IF EXISTS bellhop CASCADE");
    loop = loop_new();
    pending = 0;
    order[0] = '\0';
    why[0] = '\0';
    st = open_store();
    return 0;
}

static int teardown(void **state)
{
    store_close(st);
    loop_free(loop);
    return 0;
}

/* ---- opening ---- */

static void what_was_written_is_there_after_reopening(void **state)
{
    struct hash_key key = st->dedup_key;
    uint64_t boot = st->boot;

    append_now(1, 9, "hello\n");
    put_now("gw", "a", "1");
    store_close(st);
    st = open_store();
    assert_true(st->boot > boot);
    assert_memory_equal(&st->dedup_key, &key, sizeof key);
    assert_int_equal(count_rows(), 1);
    assert_int_equal(count_keys(0), 1);
    assert_string_equal(records("gw"), "a=1 ");
}

static void tables_of_a_newer_bellhop_are_refused(void **state)
{
    struct store *other = NULL;

    sql("UPDATE bellhop.meta SET value = '99' WHERE name = 'oldest'");
    assert_int_equal(store_postgres_open(loop, pg_url, 1500, &other, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "newer bellhop"));
    /* A newer schema that says this version may use it is fine: a rolling upgrade. */
    sql("UPDATE bellhop.meta SET value = '1' WHERE name = 'oldest'");
    sql("UPDATE bellhop.meta SET value = '99' WHERE name = 'schema'");
    assert_int_equal(store_postgres_open(loop, pg_url, 1500, &other, why), BH_OK);
    store_close(other);
}

static void a_server_that_is_not_there_is_a_sentence(void **state)
{
    struct store *other = NULL;

    assert_int_equal(store_postgres_open(loop, "host=/nowhere user=x dbname=y", 0, &other, why),
                     BH_UNAVAILABLE);
    assert_non_null(strstr(why, "PostgreSQL cannot be reached"));
    assert_non_null(strstr(why, "/nowhere"));
    assert_int_equal(store_postgres_open(loop, "host=127.0.0.1 nonsense", 0, &other, why),
                     BH_UNAVAILABLE);
}

static int64_t open_takes_ms(const char *url)
{
    struct store *other = NULL;
    int64_t begun = thread_now_us();

    assert_int_equal(store_postgres_open(loop, url, 0, &other, why), BH_UNAVAILABLE);
    return (thread_now_us() - begun) / 1000;
}

/* It takes the connection and says nothing. */
static void a_server_that_is_silent_at_the_start_is_given_up(void **state)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char url[96];

    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    snprintf(url, sizeof url, "host=127.0.0.1 port=%d user=x dbname=y", ntohs(at.sin_port));
    assert_in_range(open_takes_ms(url), 2900, 20000);
    assert_non_null(strstr(why, "does not answer"));
    close(fd);
}

/* Somebody makes tables, and stopped on the way: in another program than ours, which would be ended
 * by the server. */
static void a_start_waits_for_the_tables_of_another_but_not_for_ever(void **state)
{
    PGconn *pg = PQconnectdb(pg_url);

    PQclear(PQexec(pg, "SELECT pg_advisory_lock(7094702830)"));
    assert_in_range(open_takes_ms(pg_url), 4900, 30000);
    assert_non_null(strstr(why, "lock timeout"));
    PQfinish(pg);
}

static void many_nodes_may_start_at_once(void **state)
{
    pid_t pids[6];

    store_close(st);
    st = NULL;
    sql("DROP SCHEMA bellhop CASCADE");
    for (int i = 0; i < 6; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct loop *own = loop_new();
            struct store *s = NULL;
            enum bh_err err = store_postgres_open(own, pg_url, 0, &s, why);
            _exit(err == BH_OK ? 0 : 1);
        }
    }
    for (int i = 0; i < 6; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        assert_int_equal(status, 0);
    }
    st = open_store();
    assert_int_equal(st->boot, 7);
}

static uint64_t appended;

static void append_on(struct store *node, struct probe *p, uint32_t box, uint64_t key)
{
    p->append = (struct store_append){.id = node->boot << 40 | ++appended,
                                      .box = box,
                                      .at_ms = 1000,
                                      .has_key = true,
                                      .key = {.lo = key, .hi = ~key},
                                      .frame = STR("x\n")};
    store_append(node, &expect(p)->append, true);
}

/* ---- a server that goes ---- */

static enum bh_err append_err(uint64_t n)
{
    struct probe p = {0};

    append_on(st, &p, 1, n);
    settle();
    return p.err;
}

static void while_the_server_is_away_writes_fail_and_then_work_again(void **state)
{
    struct store_stats s;

    assert_int_equal(append_err(1), BH_OK);
    log_setup(LOG_ERROR + 1, false);
    pg_stop(SIGQUIT);
    assert_int_equal(append_err(2), BH_UNAVAILABLE);
    assert_int_equal(append_err(3), BH_UNAVAILABLE);
    st->ops->stats(st, &s);
    assert_false(s.healthy);
    pg_start();
    for (int i = 0; i < 500; i++) {
        st->ops->stats(st, &s);
        if (s.healthy)
            break;
        usleep(20000);
    }
    assert_true(s.healthy); /* it noticed by itself */
    assert_int_equal(append_err(4), BH_OK);
    assert_int_equal(count_rows(), 2);
}

static void a_session_that_was_ended_is_no_news(void **state)
{
    assert_int_equal(append_err(1), BH_OK);
    sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> "
        "pg_backend_pid() AND usename = 'bellhop'");
    assert_int_equal(append_err(2), BH_OK);
    assert_int_equal(count_rows(), 2);
}

/* A server that stops answering: no write waits for ever. */
static void a_deaf_server_is_given_up(void **state)
{
    struct probe p = {0};

    assert_int_equal(append_err(1), BH_OK);
    log_setup(LOG_ERROR + 1, false);
    sql("SELECT pg_sleep(0)");
    pid_t backend = (pid_t)atoi(
        sql("SELECT pid FROM pg_stat_activity WHERE query = 'COMMIT' ORDER BY pid LIMIT 1"));
    assert_true(backend > 0);
    kill(backend, SIGSTOP);
    append_on(st, &p, 1, 2);
    settle(); /* a new line is taken when the old one is given up */
    kill(backend, SIGCONT);
    assert_int_equal(p.err, BH_OK);
    assert_int_equal(count_rows(), 2);
}

/* One row is refused, so each is tried on its own; and the server is slow. */
static void a_slow_server_behind_a_refused_row_does_not_hold_up_the_rest(void **state)
{
    enum { N = 30 };
    static struct probe p[N];

    assert_int_equal(append_err(1), BH_OK);
    log_setup(LOG_ERROR + 1, false);
    sql("CREATE FUNCTION bellhop.hang() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN IF NEW.kind "
        "= "
        "1 THEN RAISE EXCEPTION 'not this one'; END IF; PERFORM pg_sleep(3); RETURN NEW; END $f$");
    sql("CREATE TRIGGER hang BEFORE INSERT ON bellhop.mail FOR EACH ROW EXECUTE FUNCTION "
        "bellhop.hang()");
    memset(p, 0, sizeof p);
    int64_t begun = thread_now_us();
    for (uint64_t i = 0; i < N; i++) {
        append_on(st, &p[i], 1, 10 + i);
        p[i].append.row_kind = i == 0 ? STORE_ROW_PASSTHROUGH : STORE_ROW_INBOUND;
    }
    settle();
    assert_in_range((thread_now_us() - begun) / 1000, 0, 30000); /* not N times what one takes */
    assert_int_equal(p[0].err, BH_REFUSED);
    assert_int_equal(p[N - 1].err, BH_UNAVAILABLE);
    sql("DROP TRIGGER hang ON bellhop.mail");
    assert_int_equal(append_err(2), BH_OK);
}

/* ---- much at once ---- */

static void many_ops_share_few_transactions(void **state)
{
    enum { N = 2000 };
    static struct probe p[N];
    struct store_stats s;

    memset(p, 0, sizeof p);
    for (uint64_t i = 0; i < N; i++)
        append_on(st, &p[i], (uint32_t)(i % 50), i);
    settle();
    for (int i = 0; i < N; i++)
        assert_int_equal(p[i].err, BH_OK);
    st->ops->stats(st, &s);
    assert_int_equal(s.rows_written, N);
    assert_true(s.commits < 50);
    for (int w = 0; w < STORE_WAITS; w++) {
        uint64_t rows = 0;
        for (int i = 0; i <= STORE_WAIT_BOUNDS; i++)
            rows += s.waits[w].rows[i];
        assert_int_equal(rows, N); /* each with what it waited for */
    }
}

static void large_frames_come_back_whole(void **state)
{
    enum { SIZE = 3 << 20 };
    char *frame = xmalloc(SIZE);
    struct probe p = {0}, f = {0};

    for (size_t i = 0; i < SIZE; i++)
        frame[i] = (char)(i * 7 >> 3);
    append_start(&p, 1, 1, "", true);
    p.append.frame = str_make(frame, SIZE);
    settle();
    assert_int_equal(p.err, BH_OK);
    uint64_t id = row(1);
    fetch_now(&f, &id, 1, 0);
    assert_int_equal(f.fetch.rows[0].frame.n, SIZE);
    assert_memory_equal(f.fetch.rows[0].frame.p, frame, SIZE);
    store_fetch_free(&f.fetch);
    free(frame);
}

static void guard(struct probe *p, const char *owner)
{
    assert_int_equal(lease_now(p, LEASE_TAKE, "serve", owner, LONG_MS), BH_OK);
    store_guard(st, STR("serve"), p->lease.epoch);
}

static void a_guarded_store_writes_nothing_once_its_lease_is_another_s(void **state)
{
    struct store *other = open_store(), *first = st;
    struct probe a = {0}, b = {0}, p[3] = {0};

    guard(&a, "north");
    append_now(1, 9, "mine\n");
    put_now("gw", "a", "1");
    assert_int_equal(count_rows(), 1);
    st = other;
    assert_int_equal(lease_now(&b, LEASE_TAKE, "serve", "south", LONG_MS), BH_CONFLICT);
    assert_string_equal(b.lease.holder, "north");
    sql("UPDATE bellhop.lease SET until = clock_timestamp()"); /* its time is up */
    assert_int_equal(lease_now(&b, LEASE_TAKE, "serve", "south", LONG_MS), BH_OK);
    st = first;
    append_start(&p[0], 2, 9, "late\n", true);
    append_start(&p[1], 3, 9, "later\n", true);
    settle();
    assert_int_equal(p[0].err, BH_FENCED);
    assert_int_equal(p[1].err, BH_FENCED);
    assert_int_equal(count_rows(), 1);
    store_guard(st, STR("serve"), b.lease.epoch); /* as the new holder it may */
    append_now(4, 9, "new\n");
    assert_int_equal(count_rows(), 2);
    store_close(other);
}

/* The holder of the guard knows the keys it had: they are kept for the next one. */
static void rows_and_keys_are_there_for_the_next_holder(void **state)
{
    enum { N = 40 };
    static struct probe p[N];
    struct probe lease = {0};

    guard(&lease, "north");
    memset(p, 0, sizeof p);
    for (uint64_t i = 0; i < N; i++)
        append_on(st, &p[i], (uint32_t)(i % 7), i);
    settle();
    for (int i = 0; i < N; i++)
        assert_int_equal(p[i].err, BH_OK);
    uint64_t newest = p[N - 1].append.id;
    store_close(st);
    st = open_store();
    assert_int_equal(count_keys(0), N);
    assert_int_equal(count_rows(), N);
    assert_true(row(1) > newest);
    assert_string_equal(sql("SELECT count(*) FROM bellhop.mail WHERE box = 6"), "5");
}

/* It commits, slowly: nobody hears of it, and nobody can tell yet how it ended. */
static void an_append_whose_commit_was_in_doubt_stays_one_row(void **state)
{
    struct probe p = {0}, again = {0}, next = {0}, lease = {0};

    guard(&lease, "north");
    assert_int_equal(append_err(1), BH_OK);
    log_setup(LOG_ERROR + 1, false);
    sql("CREATE FUNCTION bellhop.slow() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN PERFORM "
        "pg_sleep(8); RETURN NULL; END $f$");
    sql("CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON bellhop.mail DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION bellhop.slow()");
    append_on(st, &p, 1, 2);
    settle();
    assert_int_equal(p.err, BH_UNKNOWN);
    append_on(st, &next, 1, 3); /* no transaction begins while that one is in doubt */
    settle();
    assert_int_equal(next.err, BH_UNAVAILABLE);
    sql("DROP TRIGGER slow ON bellhop.mail"); /* waits until it has committed */
    again.append = p.append;
    again.append.frame = STR("tried again\n");
    store_append(st, &expect(&again)->append, true);
    settle();
    assert_int_equal(again.err, BH_OK);
    assert_int_equal(count_rows(), 2);
    assert_string_equal(sql("SELECT count(*) FROM bellhop.mail WHERE frame = 'x\\012'"), "2");
}

static void nothing_is_committed_that_could_not_be_looked_up(void **state)
{
    assert_int_equal(append_err(1), BH_OK);
    log_setup(LOG_ERROR + 1, false);
    sql("CREATE FUNCTION bellhop.no() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN RAISE "
        "EXCEPTION 'not now'; END $f$");
    sql("CREATE TRIGGER no BEFORE INSERT OR UPDATE ON bellhop.fate FOR EACH ROW EXECUTE FUNCTION "
        "bellhop.no()");
    assert_int_equal(append_err(2), BH_REFUSED);
    assert_int_equal(count_rows(), 1);
    sql("DROP TRIGGER no ON bellhop.fate");
    assert_int_equal(append_err(2), BH_OK);
    assert_int_equal(count_rows(), 2);
}

static void tables_from_before_version_1_are_refused(void **state)
{
    struct store *other = NULL;

    sql("CREATE TABLE bellhop.once (key bytea PRIMARY KEY)");
    assert_int_equal(store_postgres_open(loop, pg_url, 1500, &other, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "from before version 1"));
}

static void closing_commits_what_is_queued_and_calls_nobody(void **state)
{
    struct probe p[50] = {0};

    for (uint64_t i = 0; i < 50; i++)
        append_start(&p[i], i + 1, 1, "x\n", false);
    store_close(st);
    st = open_store();
    for (int i = 0; i < 50; i++)
        assert_int_equal(p[i].calls, 0);
    assert_int_equal(count_rows(), 50);
    pending = 0;
}

UNIT(store_test_postgres)
{
    const struct CMUnitTest tests[] = {
        CONTRACT(setup, teardown),
        CONTRACT_LEASE(setup, teardown),
        T(what_was_written_is_there_after_reopening, setup, teardown),
        T(tables_of_a_newer_bellhop_are_refused, setup, teardown),
        T(a_server_that_is_not_there_is_a_sentence, setup, teardown),
        T(a_server_that_is_silent_at_the_start_is_given_up, setup, teardown),
        T(a_start_waits_for_the_tables_of_another_but_not_for_ever, setup, teardown),
        T(many_nodes_may_start_at_once, setup, teardown),
        T(a_guarded_store_writes_nothing_once_its_lease_is_another_s, setup, teardown),
        T(rows_and_keys_are_there_for_the_next_holder, setup, teardown),
        T(an_append_whose_commit_was_in_doubt_stays_one_row, setup, teardown),
        T(nothing_is_committed_that_could_not_be_looked_up, setup, teardown),
        T(tables_from_before_version_1_are_refused, setup, teardown),
        T(while_the_server_is_away_writes_fail_and_then_work_again, setup, teardown),
        T(a_session_that_was_ended_is_no_news, setup, teardown),
        T(a_deaf_server_is_given_up, setup, teardown),
        T(a_slow_server_behind_a_refused_row_does_not_hold_up_the_rest, setup, teardown),
        T(many_ops_share_few_transactions, setup, teardown),
        T(large_frames_come_back_whole, setup, teardown),
        T(closing_commits_what_is_queued_and_calls_nobody, setup, teardown),
    };
    return cmocka_run_group_tests(tests, pg_setup, pg_teardown);
}
