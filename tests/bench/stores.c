/* stores.c - the skill and data stores over the wire, as fast as they go.
 *
 *      stores WHAT API PORT KEY SECONDS CONNECTIONS SKILLS
 *      stores fts-bare FILE SECONDS            FTS5 of SQLite alone, on the same database file
 *
 *      WHAT   seed-skills, write, load, poll, query, seed-data, fts
 *      API    v1 (bellhop) or rpc (JSON-RPC tools, as the Skillscript runtime serves them)
 *
 * Each connection sends one request, waits for its answer, sends the next.  The seeds end when
 * everything is there; the others when the time is over.  Prints one JSON object. */
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "load.h"

struct bench {
    const char *what, *key;
    bool rpc;
    uint64_t skills, next;
    struct rand rand;
    char token[64]; /* of the catalog, for poll */
    double *sent_s;
    float *took_us;
    size_t answered, room;
    uint64_t bytes;
    int epoll;
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- what is written and asked ---- */

/* Words as they are used: the n-th is about n times rarer than the first. */
static uint64_t word(struct rand *r)
{
    return (uint64_t)exp((double)rand_below(r, 100000) / 100000.0 * 9.9);
}

static void add_text(struct rand *r, size_t words, struct buf *out)
{
    for (size_t i = 0; i < words; i++)
        buf_printf(out, "%sw%llu", i > 0 ? " " : "", (unsigned long long)word(r));
}

static void skill_body(struct rand *r, uint64_t n, struct buf *out)
{
    buf_printf(out, "# Skill: skill-%06llu\n# Status: %s\n# Description: ", (unsigned long long)n,
               n % 3 == 0 ? "Approved" : "Draft");
    add_text(r, 8, out);
    buf_add_z(out, "\n# Vars: ROOM, USER=bob\n\nrun:\n");
    for (int i = 0; i < 12; i++) {
        buf_add_z(out, "    emit(text=\"");
        add_text(r, 8, out);
        buf_add_z(out, "\")\n");
    }
}

static void two_words(struct bench *b, struct buf *out) /* neither everywhere nor nowhere */
{
    buf_printf(out, "w%llu w%llu", 20 + (unsigned long long)rand_below(&b->rand, 200),
               20 + (unsigned long long)rand_below(&b->rand, 200));
}

static void arguments(struct bench *b, struct jw *w)
{
    struct buf text = BUF_INIT;
    char name[32];
    bool seed = strcmp(b->what, "seed-skills") == 0;
    uint64_t n = seed ? b->next : rand_below(&b->rand, b->skills);

    snprintf(name, sizeof name, "skill-%06llu", (unsigned long long)n);
    jw_obj(w);
    if (seed || strcmp(b->what, "write") == 0) {
        skill_body(&b->rand, n, &text);
        jw_kstr(w, "name", str_of(name));
        jw_kstr(w, "source", buf_str(&text));
        jw_kbool(w, "overwrite", true);
    } else if (strcmp(b->what, "load") == 0) {
        jw_kstr(w, "name", str_of(name));
    } else if (strcmp(b->what, "poll") == 0) {
        jw_kstr(w, "if_none_match", str_of(b->token));
    } else if (strcmp(b->what, "query") == 0) {
        jw_kstr(w, "name_pattern", STR("7[0-4]5$"));
        jw_kstr(w, "status", STR("Approved"));
        jw_ki64(w, "limit", 50);
    } else if (strcmp(b->what, "seed-data") == 0) {
        add_text(&b->rand, 30, &text);
        jw_kstr(w, "content", buf_str(&text));
    } else {
        two_words(b, &text);
        jw_kstr(w, "query", buf_str(&text));
        jw_ki64(w, "limit", 10);
        jw_kstr(w, "mode", STR("fts"));
    }
    jw_end_obj(w);
    buf_done(&text);
}

static const char *tool_of(const char *what)
{
    static const char *const tools[][2] = {
        {"seed-skills", "skill_write"}, {"write", "skill_write"}, {"load", "skill_read"},
        {"poll", "skill_list"},         {"query", "skill_query"}, {"seed-data", "data_write"},
        {"fts", "data_query"}};

    for (size_t i = 0; i < ARRAY_LEN(tools); i++)
        if (strcmp(what, tools[i][0]) == 0)
            return tools[i][1];
    die("no such load: %s", what);
}

static void head(struct bench *b, const char *method, const char *path, size_t body,
                 struct buf *out)
{
    buf_printf(out, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n", method,
               path, b->key);
    if (strcmp(b->what, "poll") == 0 && !b->rpc)
        buf_printf(out, "If-None-Match: \"%s\"\r\n", b->token);
    if (body > 0)
        buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", body);
    buf_add_z(out, "\r\n");
}

static void make_rpc(struct bench *b, struct buf *out)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "jsonrpc", STR("2.0"));
    jw_ki64(&w, "id", 1);
    jw_kstr(&w, "method", STR("tools/call"));
    jw_key(&w, "params");
    jw_obj(&w);
    jw_kstr(&w, "name", str_of(tool_of(b->what)));
    jw_key(&w, "arguments");
    arguments(b, &w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    head(b, "POST", "/rpc", body.n, out);
    buf_add_str(out, buf_str(&body));
    buf_done(&body);
}

/* A delivery to one of the agents a0, a1, ...: @skills is how many there are; while seeding, how
 * many deliveries there are. */
enum { AGENTS = 10000 };

static void make_delivery(struct bench *b, struct buf *out)
{
    bool seed = strcmp(b->what, "seed-agents") == 0;
    uint64_t agent = seed ? b->next % AGENTS : rand_below(&b->rand, b->skills);
    struct buf body = BUF_INIT;
    char path[96];

    snprintf(path, sizeof path, "/v1/agents/a%llu/deliver", (unsigned long long)agent);
    buf_add_z(&body, "{\"kind\":\"augment\",\"content\":\"");
    add_text(&b->rand, seed ? 4 : 30, &body);
    buf_printf(&body,
               "\",\"meta\":{\"dispatch_id\":\"%d-%llu\",\"sent_at\":1700000000000,\"origin\":"
               "{\"skill_name\":\"bench\",\"trigger_kind\":\"cron\"}}}",
               (int)getpid(), (unsigned long long)b->next);
    head(b, "POST", path, body.n, out);
    buf_add_str(out, buf_str(&body));
    buf_done(&body);
}

static void make_v1(struct bench *b, struct buf *out)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    char path[96];
    bool seed = strcmp(b->what, "seed-skills") == 0;
    uint64_t n = seed ? b->next : rand_below(&b->rand, b->skills);

    if (strcmp(b->what, "deliver") == 0 || strcmp(b->what, "seed-agents") == 0) {
        make_delivery(b, out);
        return;
    }
    snprintf(path, sizeof path, "/v1/skills/skill-%06llu", (unsigned long long)n);
    if (seed || strcmp(b->what, "write") == 0) {
        struct buf text = BUF_INIT;
        skill_body(&b->rand, n, &text);
        jw_obj(&w);
        jw_kstr(&w, "source", buf_str(&text));
        jw_end_obj(&w);
        buf_done(&text);
        head(b, "PUT", path, body.n, out);
    } else if (strcmp(b->what, "load") == 0) {
        head(b, "GET", path, 0, out);
    } else if (strcmp(b->what, "poll") == 0) {
        head(b, "GET", "/v1/skills", 0, out);
    } else if (strcmp(b->what, "query") == 0) {
        head(b, "GET", "/v1/skills?name_pattern=7%5B0-4%5D5%24&status=Approved&limit=50", 0, out);
    } else {
        arguments(b, &w);
        head(b, "POST", strcmp(b->what, "fts") == 0 ? "/v1/data/query" : "/v1/data", body.n, out);
    }
    buf_add_str(out, buf_str(&body));
    buf_done(&body);
}

/* ---- the load ---- */

static void send_next(struct bench *b, struct conn *c)
{
    struct buf request = BUF_INIT;

    (b->rpc ? make_rpc : make_v1)(b, &request);
    b->next++;
    b->sent_s[c->index] = now_s();
    bench_conn_send(c, b->epoll, request.p, request.n);
    buf_done(&request);
}

/* One whole answer at the front of what came; returns its bytes, 0: not yet. */
static size_t answer_bytes(const struct bytes *in)
{
    const char *end = in->n > 0 ? memmem(in->p, in->n, "\r\n\r\n", 4) : NULL;

    if (end == NULL)
        return 0;
    size_t total = (size_t)(end + 4 - (const char *)in->p);
    const char *length = memmem(in->p, total, "ontent-Length: ", 15);
    bool ok = memcmp(in->p, "HTTP/1.1 2", 10) == 0 || memcmp(in->p, "HTTP/1.1 304", 12) == 0;
    if (length != NULL)
        total += strtoul(length + 15, NULL, 10);
    if (in->n < total)
        return 0;
    if (!ok || memmem(in->p, total, "\"error\":{", 9) != NULL)
        die("answered: %.*s", (int)(in->n < 600 ? in->n : 600), (const char *)in->p);
    return total;
}

static void note(struct bench *b, struct conn *c)
{
    if (b->answered == b->room) {
        b->room = b->room * 2 + 1024;
        b->took_us = xrealloc(b->took_us, b->room * sizeof *b->took_us);
    }
    b->took_us[b->answered++] = (float)((now_s() - b->sent_s[c->index]) * 1e6);
}

static void on_readable(struct bench *b, struct conn *c, bool go_on)
{
    static uint8_t room[1 << 16];
    ssize_t got = recv(c->fd, room, sizeof room, MSG_DONTWAIT);

    if (got == 0)
        die("the server closed a connection");
    if (got < 0)
        return;
    bytes_add(&c->in, room, (size_t)got);
    for (size_t n; (n = answer_bytes(&c->in)) > 0;) {
        b->bytes += n;
        bytes_drop(&c->in, n);
        note(b, c);
        if (go_on)
            send_next(b, c);
        else
            c->busy = false;
    }
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_result(struct bench *b, double took)
{
    qsort(b->took_us, b->answered, sizeof b->took_us[0], by_size);
    printf("{\"events\":%zu,\"seconds\":%.3f,\"rate\":%.1f,\"p50_us\":%.0f,\"p99_us\":%.0f,"
           "\"bytes\":%.0f}\n",
           b->answered, took, (double)b->answered / took, (double)b->took_us[b->answered / 2],
           (double)b->took_us[b->answered * 99 / 100], (double)b->bytes / (double)b->answered);
}

/* The token of the catalog as it is now: the first answer of a poll that knows none. */
static void read_token(struct bench *b, int port)
{
    struct conn c = {0};
    struct buf text = BUF_INIT;

    bench_conn_connect(&c, b->epoll, port);
    b->sent_s = xcalloc(1, sizeof *b->sent_s);
    snprintf(b->token, sizeof b->token, "none");
    send_next(b, &c);
    while (answer_bytes(&c.in) == 0) {
        uint8_t room[65536];
        ssize_t got = recv(c.fd, room, sizeof room, 0);
        if (got <= 0)
            die("the server closed the connection in the middle of the catalog");
        bytes_add(&c.in, room, (size_t)got);
    }
    buf_add(&text, c.in.p, c.in.n);
    const char *at = strcasestr(buf_z(&text), b->rpc ? "catalog_version\\\":\\\"" : "etag: \"");
    if (at == NULL)
        die("no token in the catalog's answer: %.300s", buf_z(&text));
    at += b->rpc ? strlen("catalog_version\\\":\\\"") : strlen("etag: \"");
    snprintf(b->token, sizeof b->token, "%.*s", (int)strcspn(at, "\\\""), at);
    bench_conn_close(&c);
    free(b->sent_s);
    buf_done(&text);
}

static int load(struct bench *b, int port, double seconds, uint32_t conns)
{
    struct conn *all = xcalloc(conns, sizeof *all);
    bool seeds = strncmp(b->what, "seed-", 5) == 0;
    uint64_t want = seeds ? b->skills : UINT64_MAX;

    b->epoll = epoll_create1(EPOLL_CLOEXEC);
    b->rand = rand_seeded(seeds ? 7 : (uint64_t)getpid() + 1);
    if (strcmp(b->what, "poll") == 0)
        read_token(b, port);
    b->next = 0;
    b->sent_s = xcalloc(conns, sizeof *b->sent_s);
    double began = now_s(), took = 0;
    for (uint32_t i = 0; i < conns && b->next < want; i++) {
        all[i].index = i;
        bench_conn_connect(&all[i], b->epoll, port);
        send_next(b, &all[i]);
    }
    while (b->answered < b->next) {
        struct epoll_event events[256];
        int n = epoll_wait(b->epoll, events, 256, 60000);
        if (n == 0)
            die("no answer for a minute");
        took = now_s() - began;
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                bench_conn_flush(c, b->epoll);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                on_readable(b, c, seeds ? b->next < want : took < seconds);
        }
    }
    print_result(b, now_s() - began);
    return 0;
}

/* ---- SQLite alone ---- */

static int fts_bare(const char *path, double seconds)
{
    struct bench b = {.what = "fts", .rand = rand_seeded((uint64_t)getpid() + 1)};
    sqlite3 *db;
    sqlite3_stmt *find, *get;
    struct buf text = BUF_INIT;

    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db,
                           "SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?"
                           " ORDER BY score LIMIT 10",
                           -1, &find, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "SELECT uuid, created_at, extra, content FROM entries WHERE id = ?",
                           -1, &get, NULL) != SQLITE_OK)
        die("%s: %s", path, sqlite3_errmsg(db));
    b.sent_s = xcalloc(1, sizeof *b.sent_s);
    struct conn c = {0};
    double began = now_s(), took = 0;
    while ((took = now_s() - began) < seconds) {
        buf_reset(&text);
        two_words(&b, &text);
        b.sent_s[0] = now_s();
        sqlite3_bind_text(find, 1, text.p, (int)text.n, SQLITE_STATIC);
        while (sqlite3_step(find) == SQLITE_ROW) {
            sqlite3_bind_int64(get, 1, sqlite3_column_int64(find, 0));
            if (sqlite3_step(get) == SQLITE_ROW)
                b.bytes += (uint64_t)sqlite3_column_bytes(get, 3);
            sqlite3_reset(get);
        }
        sqlite3_reset(find);
        note(&b, &c);
    }
    print_result(&b, took);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "fts-bare") == 0)
        return fts_bare(argv[2], atof(argv[3]));
    if (argc != 8)
        die("usage: stores WHAT v1|rpc PORT KEY SECONDS CONNECTIONS SKILLS | "
            "stores fts-bare FILE SECONDS");
    struct bench b = {.what = argv[1],
                      .key = argv[4],
                      .rpc = strcmp(argv[2], "rpc") == 0,
                      .skills = strtoull(argv[7], NULL, 10)};
    return load(&b, atoi(argv[3]), atof(argv[5]), (uint32_t)atoi(argv[6]));
}
