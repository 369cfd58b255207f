/* sqlite.c - how fast SQLite alone takes the rows that a mailbox append is made of.
 *
 *      sqlite DIR SECONDS BATCH FRAME_BYTES [clustered]
 *
 * The table, the settings and the size of a transaction are those of src/store/sqlite under the
 * accept load: rows in order of arrival for 100 mailboxes, one row of deduplication keys per
 * transaction, a commit that is on disk before the next begins.  "clustered" lays the same rows out
 * by mailbox, to show what that would cost. */
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define MAILBOXES 100

static sqlite3 *db;

static void check(int rc, const char *what)
{
    if (rc == SQLITE_OK || rc == SQLITE_DONE || rc == SQLITE_ROW)
        return;
    fprintf(stderr, "sqlite: %s: %s\n", what, db != NULL ? sqlite3_errmsg(db) : "no database");
    exit(1);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static sqlite3_stmt *prepare(const char *sql)
{
    sqlite3_stmt *q;
    check(sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &q, NULL), sql);
    return q;
}

static void step(sqlite3_stmt *q)
{
    check(sqlite3_step(q), sqlite3_sql(q));
    sqlite3_reset(q);
}

static void open_database(const char *dir, int clustered)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/bench.db", dir);
    check(sqlite3_open_v2(path, &db,
                          SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL),
          path);
    check(sqlite3_exec(db,
                       "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                       "PRAGMA wal_autocheckpoint=4000; PRAGMA journal_size_limit=33554432;"
                       "PRAGMA cache_size=-2000; PRAGMA locking_mode=EXCLUSIVE;"
                       "CREATE TABLE seen(id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL,"
                       " keys BLOB NOT NULL);",
                       NULL, NULL, NULL),
          "settings");
    check(sqlite3_exec(db,
                       clustered ? "CREATE TABLE mailbox(id INTEGER, box INTEGER, kind INTEGER,"
                                   " at_ms INTEGER, attempts INTEGER DEFAULT 0, parked TEXT,"
                                   " frame BLOB, PRIMARY KEY(box, id)) WITHOUT ROWID"
                                 : "CREATE TABLE mailbox(id INTEGER PRIMARY KEY, box INTEGER,"
                                   " kind INTEGER, at_ms INTEGER, attempts INTEGER DEFAULT 0,"
                                   " parked TEXT, frame BLOB)",
                       NULL, NULL, NULL),
          "mailbox");
}

static void one_batch(sqlite3_stmt *q[4], int64_t first_id, int batch, const char *frame,
                      int frame_n)
{
    char keys[16 * 4096] = {0};

    step(q[0]);
    for (int i = 0; i < batch; i++) {
        sqlite3_bind_int64(q[1], 1, first_id + i);
        sqlite3_bind_int64(q[1], 2, (first_id + i) % MAILBOXES);
        sqlite3_bind_int64(q[1], 4, 1700000000000 + first_id);
        sqlite3_bind_blob(q[1], 5, frame, frame_n, SQLITE_STATIC);
        step(q[1]);
    }
    sqlite3_bind_blob(q[2], 2, keys, 16 * batch, SQLITE_STATIC);
    step(q[2]);
    step(q[3]);
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fputs("usage: sqlite DIR SECONDS BATCH FRAME_BYTES [clustered]\n", stderr);
        return 2;
    }
    double seconds = atof(argv[2]);
    int batch = atoi(argv[3]), frame_n = atoi(argv[4]), clustered = argc > 5;
    if (batch < 1 || batch > 4096 || frame_n < 1 || frame_n > 65536)
        return 2;
    char *frame = malloc((size_t)frame_n);
    if (frame == NULL)
        return 1;
    memset(frame, 'x', (size_t)frame_n);

    open_database(argv[1], clustered);
    sqlite3_stmt *q[4] = {prepare("BEGIN IMMEDIATE"),
                          prepare("INSERT INTO mailbox(id, box, kind, at_ms, frame)"
                                  " VALUES(?1, ?2, 0, ?4, ?5)"),
                          prepare("INSERT INTO seen(at_ms, keys) VALUES(1, ?2)"),
                          prepare("COMMIT")};
    double start = now_s(), cpu = cpu_s();
    int64_t rows = 0;
    while (now_s() - start < seconds) {
        one_batch(q, rows + 1, batch, frame, frame_n);
        rows += batch;
    }
    seconds = now_s() - start;
    printf("{\"load\": \"accept\", \"events\": %lld, \"seconds\": %.4f, \"rate\": %.1f, "
           "\"server_cpu_s\": %.3f, \"batch\": %d}\n",
           (long long)rows, seconds, (double)rows / seconds, cpu_s() - cpu, batch);
    for (int i = 0; i < 4; i++)
        sqlite3_finalize(q[i]);
    sqlite3_close(db);
    free(frame);
    return 0;
}
