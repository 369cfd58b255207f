/* Promises of store/store.h and store/sqlite/sqlite.h, kept by the embedded store on a real file.
 */
#include "store/contract.h"
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/log.h"
#include "net/loop.h"
#include "store/sqlite/sqlite.h"

static struct loop *loop;
static char dir[64], path[128], why[256];

static void settled(void)
{
    loop_stop(loop);
}

static void settle(void)
{
    if (pending > 0)
        loop_run(loop);
}

static void reopen(void)
{
    store_close(st);
    st = NULL;
    assert_int_equal(store_sqlite_open(loop, path, &st, why), BH_OK);
}

static int setup(void **state)
{
    log_setup(LOG_ERROR, false);
    strcpy(dir, "/tmp/bellhop-store-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/bellhop.db", dir);
    loop = loop_new();
    st = NULL;
    pending = 0;
    order[0] = '\0';
    why[0] = '\0';
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
    assert_int_equal(rmdir(dir), 0); /* nothing else was left behind */
    return 0;
}

static void raw_sql(const char *sql)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static void assert_refused(const char *needle)
{
    assert_int_equal(store_sqlite_open(loop, path, &st, why), BH_UNAVAILABLE);
    assert_null(st);
    assert_non_null(strstr(why, needle));
}

/* ---- opening ---- */

static void what_was_written_is_there_after_reopening(void **state)
{
    struct hash_key key = st->dedup_key;
    uint64_t boot = st->boot, id = boot << 40 | 1;
    struct probe m = {0}, f = {0};

    append_now(1, 9, "hello\n");
    put_now("gw", "a", "1");
    m.mark = (struct store_mark){.id = id, .attempts = 2, .parked = STR("why")};
    store_mark(st, &expect(&m)->mark);
    settle();
    reopen();
    assert_true(st->boot > boot);
    assert_memory_equal(&st->dedup_key, &key, sizeof key);
    assert_int_equal(count_rows(), 1);
    assert_int_equal(count_keys(0), 1);
    assert_string_equal(records("gw"), "a=1 ");
    fetch_now(&f, &id, 1, 0);
    assert_true(str_eq(f.fetch.rows[0].frame, STR("hello\n")));
    assert_true(str_eq(f.fetch.rows[0].parked, STR("why")));
    assert_int_equal(f.fetch.rows[0].attempts, 2);
    store_fetch_free(&f.fetch);
}

static void the_database_is_private_to_its_owner(void **state)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    char name[160];
    struct stat info;

    append_now(1, 1, "x\n");
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        assert_int_equal(stat(name, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
}

static void a_second_process_is_refused_and_told_who_holds_it(void **state)
{
    pid_t child = fork();
    if (child == 0) {
        struct store *other;
        char want[64];
        snprintf(want, sizeof want, "in use by process %ld", (long)getppid());
        bool ok = store_sqlite_open(loop, path, &other, why) == BH_UNAVAILABLE &&
                  strstr(why, want) != NULL;
        _exit(ok ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_database_from_before_version_1_is_refused(void **state)
{
    store_close(st);
    st = NULL;
    raw_sql("PRAGMA application_id=0x62656c6c; PRAGMA user_version=3");
    assert_refused("from before version 1");
}

static void a_database_of_a_newer_bellhop_is_refused(void **state)
{
    store_close(st);
    st = NULL;
    raw_sql("PRAGMA user_version=999");
    assert_refused("newer bellhop");
}

static void a_foreign_database_is_refused_and_left_alone(void **state)
{
    store_close(st);
    st = NULL;
    unlink(path);
    raw_sql("CREATE TABLE precious(x)");
    assert_refused("not a database of bellhop");
    raw_sql("INSERT INTO precious VALUES(1)");
}

static void a_file_that_is_no_database_is_refused(void **state)
{
    store_close(st);
    st = NULL;
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("garbage ", f);
    fclose(f);
    assert_refused("not a database");
}

static void a_folder_that_does_not_exist_is_refused(void **state)
{
    struct store *other = NULL;
    assert_int_equal(store_sqlite_open(loop, "/nonexistent/x.db", &other, why), BH_UNAVAILABLE);
    assert_non_null(strstr(why, "/nonexistent/x.db"));
}

/* ---- batches and time ---- */

static void an_op_without_company_is_written_after_its_linger(void **state)
{
    struct probe p = {0};
    append_start(&p, 1, 1, "x\n", false);
    settle(); /* returns only because the thread wakes by itself */
    assert_int_equal(p.err, BH_OK);
}

/* They are asked for with every socket that is opened. */
static void assert_stats_look_at_no_file(int64_t bytes)
{
    struct store_stats s;
    char away[160];
    usleep(50000); /* the threads have nothing to do any more */
    snprintf(away, sizeof away, "%s.away", path);
    assert_int_equal(rename(path, away), 0);
    st->ops->stats(st, &s);
    assert_int_equal(rename(away, path), 0);
    assert_int_equal(s.bytes_on_disk, bytes);
}

static void many_ops_share_few_transactions(void **state)
{
    enum { N = 10000 };
    struct probe *p = xcalloc(N, sizeof *p);
    struct store_stats s;

    for (uint64_t i = 0; i < N; i++)
        append_start(&p[i], i + 1, 1, "x\n", false);
    settle();
    for (int i = 0; i < N; i++)
        assert_int_equal(p[i].calls, 1);
    st->ops->stats(st, &s);
    assert_int_equal(s.rows_written, N);
    assert_int_equal(s.keys_written, N);
    assert_int_equal(s.ops, N);
    assert_int_equal(s.queued, 0);
    assert_in_range(s.commits, N / 4096, 100);
    assert_true(s.bytes_on_disk > N * 20);
    assert_true(s.healthy);
    assert_stats_look_at_no_file(s.bytes_on_disk);
    assert_int_equal(count_rows(), N);
    assert_int_equal(count_keys(0), N);
    free(p);
}

/* ---- the log ---- */

/* So many rows of about a page each, in groups. */
static void append_pages(uint64_t from, uint64_t n, uint64_t group)
{
    static char frame[3600];
    struct probe *p = xcalloc(group, sizeof *p);

    memset(frame, 'f', sizeof frame - 1);
    for (uint64_t i = 0; i < n; i += group) {
        memset(p, 0, group * sizeof *p);
        for (uint64_t k = 0; k < group; k++)
            append_start(&p[k], from + i + k, 1, frame, k + 1 == group);
        settle();
        for (uint64_t k = 0; k < group; k++)
            assert_int_equal(p[k].err, BH_OK);
    }
    free(p);
}

static off_t log_bytes(void)
{
    char name[160];
    struct stat s;

    snprintf(name, sizeof name, "%s-wal", path);
    return stat(name, &s) == 0 ? s.st_size : 0;
}

static void the_log_stays_bounded_while_writes_go_on(void **state)
{
    enum { N = 12800, GROUP = 400, MOST = 9000 * 4120 }; /* the hard limit, and a few groups */

    for (uint64_t i = 0; i < N; i += N / 8) {
        append_pages(i + 1, N / 8, GROUP);
        assert_in_range(log_bytes(), 1, MOST);
    }
    assert_int_equal(count_rows(), N); /* 52 MB went through a log that is smaller */
}

static void a_long_read_lets_the_log_grow_and_nothing_is_lost(void **state)
{
    enum { N = 5600, GROUP = 400 };
    sqlite3 *db;

    append_pages(1, GROUP, GROUP);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM mailbox", NULL, NULL, NULL),
                     SQLITE_OK);
    append_pages(GROUP + 1, N - GROUP, GROUP);
    assert_true(log_bytes() > (off_t)(N - GROUP) * 4096);
    sqlite3_close(db);
    uint64_t rows = N;
    for (off_t before = 0; log_bytes() > before; rows += GROUP) {
        before = log_bytes(); /* grows, until the log is written back and begins anew */
        append_pages(rows + 1, GROUP, GROUP);
        assert_in_range(rows, N, 3 * N);
    }
    assert_int_equal(count_rows(), rows);
}

static uint64_t write_calls(void)
{
    FILE *f = fopen("/proc/self/io", "r");
    unsigned long long n = 0;
    char line[80];

    assert_non_null(f);
    while (fgets(line, sizeof line, f) != NULL && sscanf(line, "syscw: %llu", &n) != 1)
        ;
    fclose(f);
    return n;
}

static void a_group_is_written_to_the_log_in_large_pieces(void **state)
{
    uint64_t before;

    append_pages(1, 10, 10);
    before = write_calls();
    append_pages(11, 500, 500); /* 1000 calls of SQLite, 2 MB */
    assert_in_range(write_calls() - before, 10, 150);
    assert_int_equal(count_rows(), 510);
}

static void every_row_is_counted_with_what_it_waited_for(void **state)
{
    struct store_stats s;

    append_pages(1, 600, 200);
    st->ops->stats(st, &s);
    for (int w = 0; w < STORE_WAITS; w++) {
        uint64_t rows = 0;
        for (int i = 0; i <= STORE_WAIT_BOUNDS; i++)
            rows += s.waits[w].rows[i];
        assert_int_equal(rows, 600);
    }
    assert_true(s.waits[STORE_WAIT_COMMIT].total_us > 0);
}

static void large_frames_come_back_whole(void **state)
{
    enum { BIG = 3 << 20 };
    char *frame = xmalloc(BIG);
    uint64_t ids[8];
    struct probe p[8] = {0}, f = {0};

    memset(frame, 'b', BIG);
    frame[BIG - 1] = '\0';
    for (uint64_t i = 0; i < 8; i++) { /* more than one transaction may carry */
        append_start(&p[i], i + 1, 1, frame, i == 7);
        ids[i] = p[i].append.id;
    }
    settle();
    fetch_now(&f, ids, 8, 100 * BIG); /* there is a bound whatever one asks for */
    assert_int_equal(f.fetch.n_rows, STORE_READ_BYTES / BIG);
    assert_int_equal(f.fetch.rows[1].frame.n, BIG - 1);
    assert_memory_equal(f.fetch.rows[1].frame.p, frame, BIG);
    store_fetch_free(&f.fetch);
    free(frame);
}

static void many_old_keys_are_forgotten_in_steps(void **state)
{
    for (uint64_t i = 1; i <= 700; i++) { /* one record per transaction */
        struct probe p = {0};
        append_start(&p, i, 1, "x\n", true);
        settle();
    }
    st->ops->forget_keys(st, 1000 + 691);
    for (uint64_t i = 701; i < 720 && count_keys(0) > 10 + i - 700; i++)
        append_now(i, 1, "x\n");
    assert_int_equal(count_keys(0), count_keys(1000 + 691));
}

/* ---- failing and recovering ---- */

/* ---- settled rows ---- */

static int64_t raw_count(const char *table)
{
    char sql[64];
    sqlite3 *db;
    sqlite3_stmt *q;

    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", table);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    sqlite3_close(db);
    return n;
}

enum { MANY = 3000 };

/* Ack every third of MANY rows, the way one of three agents would. */
static void append_many_and_ack_a_third(void)
{
    static struct probe p[MANY];
    static uint64_t ids[MANY / 3];

    memset(p, 0, sizeof p);
    for (uint64_t i = 0; i < MANY; i++)
        append_start(&p[i], i + 1, (uint32_t)(i % 3), "x\n", true);
    settle();
    for (uint64_t i = 0; i < MANY / 3; i++)
        ids[i] = st->boot << 40 | (i * 3 + 1);
    assert_int_equal(ack_now(ids, MANY / 3), BH_OK);
}

static void settled_rows_are_hidden_at_once_and_deleted_when_it_is_quiet(void **state)
{
    append_many_and_ack_a_third();
    assert_int_equal(count_rows(), MANY - MANY / 3);
    for (int i = 0; i < 100 && raw_count("acked") > 0; i++)
        usleep(20000);
    assert_int_equal(raw_count("acked"), 0);
    assert_int_equal(raw_count("mailbox"), MANY - MANY / 3);
    assert_int_equal(count_rows(), MANY - MANY / 3);
}

static void settled_rows_stay_gone_after_a_crash_before_they_were_deleted(void **state)
{
    int status;

    store_close(st);
    st = NULL;
    pid_t child = fork();
    if (child == 0) {
        if (store_sqlite_open(loop, path, &st, why) != BH_OK)
            _exit(1);
        append_many_and_ack_a_third();
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(store_sqlite_open(loop, path, &st, why), BH_OK);
    assert_int_equal(count_rows(), MANY - MANY / 3);
    assert_int_equal(raw_count("mailbox"), MANY - MANY / 3);
    assert_int_equal(raw_count("acked"), 0);
}

struct other { /* what another thread loads while we do */
    char records[256];
    size_t rows;
    int times;
};

static void count_row(void *ctx, const struct store_row *row)
{
    ++*(size_t *)ctx;
}
static void *load_on_thread(void *arg)
{
    struct other *o = arg;

    if (st->ops->load_records(st, "b", STR(""), on_record_text, o->records) != BH_OK ||
        st->ops->load_rows(st, count_row, &o->rows) != BH_OK)
        o->rows = 0;
    return NULL;
}
static void on_record_of_ours(void *ctx, struct str key, struct str value)
{
    struct other *o = ctx;
    pthread_t thread;

    o->times++;
    o->rows = 0;
    o->records[0] = '\0';
    assert_int_equal(pthread_create(&thread, NULL, load_on_thread, o), 0);
    assert_int_equal(pthread_join(thread, NULL), 0); /* ours is not over yet */
}
static void on_row_of_ours(void *ctx, const struct store_row *row)
{
    struct other *o = ctx;

    if (o->times == 0)
        on_record_of_ours(ctx, STR(""), STR(""));
}

static void two_may_load_at_the_same_time(void **state)
{
    struct other o = {.times = 0};

    append_many_and_ack_a_third();
    put_now("a", "1", "x");
    put_now("b", "2", "y");
    assert_int_equal(st->ops->load_records(st, "a", STR(""), on_record_of_ours, &o), BH_OK);
    assert_int_equal(o.times, 1);
    assert_string_equal(o.records, "2=y ");
    assert_int_equal(o.rows, MANY - MANY / 3);
    o.times = 0;
    assert_int_equal(st->ops->load_rows(st, on_row_of_ours, &o), BH_OK);
    assert_string_equal(o.records, "2=y ");
    assert_int_equal(o.rows, MANY - MANY / 3);
    assert_int_equal(count_rows(), MANY - MANY / 3);
}

static void an_orderly_end_deletes_what_is_settled(void **state)
{
    append_many_and_ack_a_third();
    store_close(st);
    st = NULL;
    assert_int_equal(raw_count("acked"), 0);
    assert_int_equal(raw_count("mailbox"), MANY - MANY / 3);
}

static void set_file_limit(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN); /* writing past the limit then fails like a full disk */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_fails_the_writes_leaves_nothing_and_heals(void **state)
{
    struct store_stats s;
    struct probe p[3] = {0}, t = {0}, f = {0};
    struct store_kv kv = {KV_PUT, "t", STR("k"), STR("v")};
    uint64_t b = st->boot << 40, ids[] = {b | 1, b | 2};

    append_now(1, 1, "before\n");
    log_setup(LOG_ERROR, false);
    st->ops->stats(st, &s);
    set_file_limit(16384);
    append_start(&p[0], 2, 1, "lost\n", false);
    t.tx = (struct store_tx){.items = &kv, .n = 1};
    store_tx(st, &expect(&t)->tx, false);
    f.fetch = (struct store_fetch){.ids = ids, .n = 2};
    store_fetch(st, &expect(&f)->fetch);
    settle();
    assert_int_equal(p[0].err, BH_UNAVAILABLE);
    assert_int_equal(t.err, BH_UNAVAILABLE);
    assert_int_equal(f.err, BH_OK); /* reading still works, and does not show what was undone */
    assert_int_equal(f.fetch.n_rows, 1);
    store_fetch_free(&f.fetch);
    st->ops->stats(st, &s);
    assert_false(s.healthy);
    assert_true(s.problem[0] != '\0');
    assert_int_equal(s.failed_ops, 2);

    set_file_limit(RLIM_INFINITY);
    append_start(&p[1], 3, 1, "after\n", true);
    settle();
    assert_int_equal(p[1].err, BH_OK);
    st->ops->stats(st, &s);
    assert_true(s.healthy);
    assert_int_equal(s.rows_written, 2);
    reopen();
    assert_int_equal(count_rows(), 2);
    assert_int_equal(count_keys(0), 2);
    assert_string_equal(records("t"), "");
}

static bool is_healthy(void)
{
    struct store_stats s;

    st->ops->stats(st, &s);
    return s.healthy;
}

static void a_store_that_fell_ill_notices_by_itself_that_it_can_write_again(void **state)
{
    struct probe p = {0}, f = {0};
    uint64_t id = st->boot << 40 | 1;

    append_now(1, 1, "before\n");
    log_setup(LOG_ERROR, false);
    set_file_limit(16384);
    append_start(&p, 2, 1, "lost\n", true);
    settle();
    assert_int_equal(p.err, BH_UNAVAILABLE);
    f.fetch = (struct store_fetch){.ids = &id, .n = 1};
    store_fetch(st, &expect(&f)->fetch);
    settle();
    assert_int_equal(f.err, BH_OK);
    store_fetch_free(&f.fetch);
    assert_false(is_healthy()); /* that it can read proves nothing */
    set_file_limit(RLIM_INFINITY);
    for (int i = 0; i < 1000 && !is_healthy(); i++)
        usleep(10000);
    assert_true(is_healthy());
}

/* ---- closing ---- */

static void closing_commits_what_is_queued_and_calls_nobody(void **state)
{
    struct probe p[50] = {0};
    for (uint64_t i = 0; i < 50; i++)
        append_start(&p[i], i + 1, 1, "x\n", false);
    reopen();
    for (int i = 0; i < 50; i++)
        assert_int_equal(p[i].calls, 0);
    assert_int_equal(count_rows(), 50);
    pending = 0;
    append_now(51, 1, "x\n"); /* the loop has forgotten about the closed store */
    for (int i = 0; i < 50; i++)
        assert_int_equal(p[i].calls, 0);
}

static void on_done_close(struct store_op *op, enum bh_err err)
{
    store_close(st);
    st = NULL;
    loop_stop(loop);
}

static void a_store_closed_inside_a_callback_runs_no_further_one(void **state)
{
    struct probe a = {0}, b = {0};
    append_start(&a, 1, 1, "x\n", false);
    a.op.done = on_done_close;
    append_start(&b, 2, 1, "x\n", true);
    loop_run(loop);
    assert_null(st);
    assert_int_equal(b.calls, 0);
}

static void an_orderly_end_leaves_no_log_behind(void **state)
{
    char name[160];
    snprintf(name, sizeof name, "%s-wal", path);
    append_now(1, 1, "x\n");
    store_close(st);
    st = NULL;
    assert_int_not_equal(access(name, F_OK), 0);
}

UNIT(store_test_sqlite)
{
    const struct CMUnitTest tests[] = {
        CONTRACT(setup, teardown),
        T(what_was_written_is_there_after_reopening, setup, teardown),
        T(the_database_is_private_to_its_owner, setup, teardown),
        T(a_second_process_is_refused_and_told_who_holds_it, setup, teardown),
        T(a_database_from_before_version_1_is_refused, setup, teardown),
        T(a_database_of_a_newer_bellhop_is_refused, setup, teardown),
        T(a_foreign_database_is_refused_and_left_alone, setup, teardown),
        T(a_file_that_is_no_database_is_refused, setup, teardown),
        T(a_folder_that_does_not_exist_is_refused, setup, teardown),
        T(an_op_without_company_is_written_after_its_linger, setup, teardown),
        T(many_ops_share_few_transactions, setup, teardown),
        T(the_log_stays_bounded_while_writes_go_on, setup, teardown),
        T(a_long_read_lets_the_log_grow_and_nothing_is_lost, setup, teardown),
        T(a_group_is_written_to_the_log_in_large_pieces, setup, teardown),
        T(every_row_is_counted_with_what_it_waited_for, setup, teardown),
        T(large_frames_come_back_whole, setup, teardown),
        T(many_old_keys_are_forgotten_in_steps, setup, teardown),
        T(settled_rows_are_hidden_at_once_and_deleted_when_it_is_quiet, setup, teardown),
        T(settled_rows_stay_gone_after_a_crash_before_they_were_deleted, setup, teardown),
        T(two_may_load_at_the_same_time, setup, teardown),
        T(an_orderly_end_deletes_what_is_settled, setup, teardown),
        T(a_full_disk_fails_the_writes_leaves_nothing_and_heals, setup, teardown),
        T(a_store_that_fell_ill_notices_by_itself_that_it_can_write_again, setup, teardown),
        T(closing_commits_what_is_queued_and_calls_nobody, setup, teardown),
        T(a_store_closed_inside_a_callback_runs_no_further_one, setup, teardown),
        T(an_orderly_end_leaves_no_log_behind, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
