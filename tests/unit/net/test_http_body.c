/* Promises of net/http_server.h about uploads and answers from files. */
#include "net/net_test.h"

#include "net/http_codec.h"
#include "net/http_server.h"

struct fixture {
    struct loop *loop;
    struct http_server *server;
    int port;
    int heads, calls, pieces, ended, gone;              /* how often each was told */
    struct buf got;                                     /* owned; what the sink was given */
    size_t largest;                                     /* of the pieces */
    struct http_id id;                                  /* of the upload */
    bool pause_first, pause_each, answer_early, inside; /* inside: a call into the server */
    uint64_t max_bytes;
    char path[64]; /* of the file that is served */
    uint64_t size;
};

/* ---- the sink ---- */

static void on_data(void *ctx, struct http_id id, struct str bytes)
{
    struct fixture *f = ctx;

    assert_false(f->inside);
    assert_int_equal(id.generation, f->id.generation);
    assert_int_equal(f->ended + f->gone, 0);
    assert_true(bytes.n > 0);
    f->pieces++;
    f->largest = bytes.n > f->largest ? bytes.n : f->largest;
    buf_add_str(&f->got, bytes);
    if (f->pause_each)
        http_body_pause(f->server, id);
    if (f->answer_early)
        http_answer_error(f->server, id, 507, "full", "no room");
}

static void on_end(void *ctx, struct http_id id)
{
    struct fixture *f = ctx;
    char text[64];

    assert_false(f->inside);
    f->ended++;
    snprintf(text, sizeof text, "took %zu", f->got.n);
    http_answer(f->server, id, &(struct http_answer){.status = 201, .body = str_of(text)});
}

static void on_gone(void *ctx, struct http_id id)
{
    struct fixture *f = ctx;

    assert_false(f->inside);
    f->gone++;
    http_answer(f->server, id, &(struct http_answer){.status = 200}); /* finds nobody */
}

static void on_head(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;
    struct http_sink sink = {.max_bytes = f->max_bytes,
                             .on_data = on_data,
                             .on_end = on_end,
                             .on_gone = on_gone};

    f->heads++;
    assert_int_equal(http_body(r).n, 0);
    if (str_eq(http_path(r), STR("/upload"))) {
        f->id = http_req_id(r);
        http_take_body(r, &sink, f);
        if (f->pause_first)
            http_body_pause(f->server, f->id);
    } else if (str_eq(http_path(r), STR("/no"))) {
        http_answer_error(f->server, http_req_id(r), 403, "no", "not you");
    }
}

static void serve_file(struct fixture *f, struct http_req *r)
{
    struct http_answer head = {.content_type = "image/png", .headers = "X-More: yes\r\n"};

    http_answer_file(f->server, http_req_id(r), &head,
                     &(struct http_file){.fd = open(f->path, O_RDONLY | O_CLOEXEC),
                                         .size = f->size,
                                         .range = http_header(r, "range"),
                                         .if_range = http_header(r, "if-range"),
                                         .etag = "\"e1\""});
}

static void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;
    char text[64];

    f->calls++;
    if (str_eq(http_path(r), STR("/file"))) {
        serve_file(f, r);
        return;
    }
    snprintf(text, sizeof text, "handled %zu", http_body(r).n);
    http_answer(f->server, http_req_id(r),
                &(struct http_answer){.status = 200, .body = str_of(text)});
}

/* ---- the fixture ---- */

static struct fixture *open_server(const struct http_limits *limits)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256];

    f->max_bytes = 1000000;
    f->loop = loop_new();
    f->server = http_server_new(f->loop, limits, handler, f);
    http_server_on_head(f->server, on_head);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    f->port = http_server_port(f->server);
    return f;
}

static int setup(void **state)
{
    *state = open_server(NULL);
    return 0;
}

static int setup_hasty(void **state)
{
    *state = open_server(&(struct http_limits){.body_ms = 300});
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_server_free(f->server);
    loop_free(f->loop);
    buf_done(&f->got);
    if (f->path[0] != '\0')
        unlink(f->path);
    free(f);
    return 0;
}

static void fill(struct buf *b, size_t n)
{
    char *to = buf_room(b, n);

    for (size_t i = 0; i < n; i++)
        to[i] = (char)('a' + (i * 7 + i / 251) % 26);
    b->n += n;
}

/* ---- uploads ---- */

static void a_body_goes_to_its_sink_piece_by_piece(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct buf body = BUF_INIT;

    fill(&body, 700000);
    raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 700000\r\n\r\n");
    raw_send(&r, buf_str(&body));
    raw_send_z(&r, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "took 700000"));
    assert_true(raw_wait(&r, "handled 0"));
    assert_int_equal(f->ended, 1);
    assert_int_equal(f->gone, 0);
    assert_true(f->pieces > 5 && f->largest <= 65536);
    assert_int_equal(f->got.n, body.n);
    assert_memory_equal(f->got.p, body.p, body.n);
    raw_close(&r);
    buf_done(&body);
}

static void chunks_are_taken_apart_on_the_way(void **state)
{
    static const char text[] =
        "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\n0a;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n"
        "GET /next HTTP/1.1\r\nHost: x\r\n\r\n";
    struct fixture *f = *state;

    for (size_t cut = 1; cut + 1 < sizeof text; cut++) {
        struct raw r = raw_connect(f->loop, f->port);
        f->ended = 0;
        buf_reset(&f->got);
        raw_send(&r, str_make(text, cut));
        loop_turns(f->loop, 1);
        raw_send(&r, str_make(text + cut, sizeof text - 1 - cut));
        assert_true(raw_wait(&r, "took 13"));
        assert_true(raw_wait(&r, "handled 0"));
        assert_string_equal(buf_z(&f->got), "abc0123456789");
        raw_close(&r);
    }
    assert_int_equal(f->gone, 0);
}

static void a_paused_upload_waits_in_the_kernel(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct buf body = BUF_INIT;
    size_t sent = 0, before;

    f->max_bytes = 50000000;
    f->pause_first = true;
    fill(&body, 30000000);
    raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n\r\n");
    for (int quiet = 0; quiet < 20;) {
        ssize_t n = send(r.fd, body.p + sent, body.n - sent, MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        quiet = n > 0 ? 0 : quiet + 1;
        loop_turn(f->loop, 1);
    }
    assert_int_equal(f->pieces, 0);
    assert_true(sent < body.n); /* nobody takes it */
    f->pause_first = false;
    f->pause_each = true;
    f->inside = true;
    http_body_resume(f->server, f->id);
    http_body_resume(f->server, f->id);
    f->inside = false;
    loop_turns(f->loop, 5);
    assert_int_equal(f->pieces, 1); /* and no more until it is asked for */
    f->pause_each = false;
    before = f->got.n;
    http_body_resume(f->server, f->id);
    raw_send(&r, str_make(body.p + sent, body.n - sent));
    assert_true(raw_wait(&r, "took 30000000"));
    assert_true(before <= 65536);
    assert_memory_equal(f->got.p, body.p, body.n);
    raw_close(&r);
    buf_done(&body);
}

static void an_upload_paused_at_its_last_byte_still_ends(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    f->pause_each = true;
    raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    loop_turns(f->loop, 5);
    assert_int_equal(f->pieces, 1);
    assert_int_equal(f->ended, 0);
    http_body_resume(f->server, f->id);
    assert_int_equal(f->ended, 0); /* not inside the call */
    assert_true(raw_wait(&r, "took 3"));
    raw_close(&r);
}

static void a_client_that_leaves_is_told_once(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 2; i++) { /* while reading, and while paused */
        struct raw r = raw_connect(f->loop, f->port);
        f->pause_each = i == 1;
        f->gone = f->pieces = 0;
        raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
        loop_turns(f->loop, 5);
        assert_int_equal(f->pieces, 1);
        raw_close(&r);
        loop_turns(f->loop, 5);
        http_body_resume(f->server, f->id);
        assert_true(loop_until(f->loop, &f->gone));
        http_body_pause(f->server, f->id);
        http_body_resume(f->server, f->id);
        loop_turns(f->loop, 5);
        assert_int_equal(f->gone, 1);
        assert_int_equal(f->ended, 0);
    }
}

static void too_much_is_413_and_gone(void **state)
{
    static const char *const requests[] = {
        "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n",
        "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "6\r\nabcdef\r\n5\r\nabcde\r\n0\r\n\r\n",
        "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\na",
    };
    struct fixture *f = *state;

    f->max_bytes = 10;
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct raw r = raw_connect(f->loop, f->port);
        f->gone = 0;
        raw_send_z(&r, requests[i]);
        assert_true(raw_wait(&r, "HTTP/1.1 413 "));
        assert_true(loop_until(f->loop, &f->gone));
        assert_int_equal(f->ended, 0);
        raw_close(&r);
    }
}

static void a_malformed_body_is_400_and_gone(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r,
               "POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX");
    assert_true(raw_wait(&r, "HTTP/1.1 400 "));
    assert_true(loop_until(f->loop, &f->gone));
    raw_close(&r);
}

static void an_upload_that_stalls_is_408_and_one_that_is_paused_is_not(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port), paused;
    int64_t start = test_now_ms();

    raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
    for (int64_t next = 0; f->gone == 0 && test_now_ms() < start + 5000;) {
        if (test_now_ms() >= next) { /* drops do not help */
            (void)!send(r.fd, "x", 1, MSG_NOSIGNAL);
            next = test_now_ms() + 20;
        }
        loop_turn(f->loop, 10);
        raw_poll(&r);
    }
    assert_int_equal(f->gone, 1);
    assert_true(raw_wait(&r, "HTTP/1.1 408 "));
    raw_close(&r);

    f->gone = 0;
    f->pause_each = true;
    paused = raw_connect(f->loop, f->port);
    raw_send_z(&paused, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nabc");
    start = test_now_ms();
    while (test_now_ms() < start + 800)
        loop_turn(f->loop, 20);
    assert_int_equal(f->gone, 0);
    http_body_resume(f->server, f->id);
    raw_send_z(&paused, "d");
    loop_turns(f->loop, 5);
    http_body_resume(f->server, f->id);
    assert_true(raw_wait(&paused, "took "));
    raw_close(&paused);
}

/* Sends @n bytes every 20 ms to a sink that pauses after every piece, as one that writes to a disk
 * does.  Returns how long it took until the upload was cut, or 1500. */
static int64_t upload_at(struct fixture *f, size_t n)
{
    struct raw r = raw_connect(f->loop, f->port);
    struct buf piece = BUF_INIT;
    int64_t start = test_now_ms();

    f->pause_each = true;
    f->gone = 0;
    fill(&piece, n);
    raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n");
    for (int64_t next = 0; f->gone == 0 && test_now_ms() < start + 1500;) {
        if (test_now_ms() >= next) {
            (void)!send(r.fd, piece.p, piece.n, MSG_NOSIGNAL);
            next = test_now_ms() + 20;
        }
        loop_turn(f->loop, 10);
        http_body_resume(f->server, f->id);
        raw_poll(&r);
    }
    int64_t took = test_now_ms() - start;
    if (f->gone != 0)
        assert_true(raw_wait(&r, "HTTP/1.1 408 "));
    raw_close(&r);
    loop_turns(f->loop, 20);
    buf_done(&piece);
    return took;
}

static void a_slow_upload_is_cut_by_its_rate_over_the_whole(void **state)
{
    struct fixture *f = *state;

    assert_in_range(upload_at(f, 1), 250, 1000); /* 50 bytes a second */
    assert_in_range(upload_at(f, 4096), 1500, 5000);
}

static void an_answer_before_the_end_ends_the_upload(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct buf body = BUF_INIT;

    f->answer_early = true;
    fill(&body, 900000);
    raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n");
    raw_send(&r, buf_str(&body));
    assert_true(raw_wait(&r, "HTTP/1.1 507 "));
    assert_true(raw_has(&r, "Connection: close\r\n"));
    assert_true(raw_wait_eof(&r));
    loop_turns(f->loop, 5);
    assert_int_equal(f->pieces, 1);
    assert_int_equal(f->ended + f->gone, 0);
    raw_close(&r);
    buf_done(&body);
}

static void a_request_may_be_refused_by_its_head(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "POST /no HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n"
                   "Expect: 100-continue\r\n\r\n");
    assert_true(raw_wait(&r, "HTTP/1.1 403 "));
    assert_false(raw_has(&r, " 100 "));
    assert_true(raw_wait_eof(&r));
    assert_int_equal(f->calls, 0);
    raw_close(&r);
}

static void a_taken_body_is_asked_for_with_100_continue(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "PUT /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                   "Expect: 100-continue\r\n\r\n");
    assert_true(raw_wait(&r, "HTTP/1.1 100 Continue\r\n\r\n"));
    raw_send_z(&r, "abcd");
    assert_true(raw_wait(&r, "took 4"));
    raw_close(&r);
}

static void a_body_that_no_sink_takes_has_the_servers_limit(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n");
    assert_true(raw_wait(&r, "HTTP/1.1 413 "));
    raw_close(&r);
    assert_int_equal(f->heads, 1);
    r = raw_connect(f->loop, f->port);
    raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert_true(raw_wait(&r, "handled 0")); /* no body: nobody is asked */
    assert_int_equal(f->heads, 1);
    raw_close(&r);
}

static void uploads_under_way_are_told_when_the_server_goes(void **state)
{
    struct fixture *f = open_server(NULL);
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc");
    loop_turns(f->loop, 5);
    http_server_free(f->server);
    f->server = http_server_new(f->loop, NULL, handler, f); /* for teardown */
    assert_int_equal(f->gone, 1);
    raw_close(&r);
    teardown((void **)&f);
}

/* ---- files ---- */

static void make_file(struct fixture *f, const char *dir, struct buf *ret_bytes, size_t n)
{
    int fd;

    snprintf(f->path, sizeof f->path, "%s/bellhop-file-XXXXXX", dir);
    fd = mkstemp(f->path);
    assert_true(fd >= 0);
    fill(ret_bytes, n);
    for (size_t at = 0; at < n;) {
        ssize_t k = write(fd, ret_bytes->p + at, n - at);
        assert_true(k > 0);
        at += (size_t)k;
    }
    close(fd);
    f->size = n;
}

static void a_file_is_served_whole(void **state)
{
    static const char *const dirs[] = {"/tmp",
                                       "/dev/shm"}; /* the second cannot say what is cached */
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        struct raw r = raw_connect(f->loop, f->port);
        struct buf bytes = BUF_INIT;
        size_t head_n;
        make_file(f, dirs[i], &bytes, 3000000);
        raw_send_z(&r, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(raw_wait(&r, "\r\n\r\n"));
        assert_true(raw_has(&r, "HTTP/1.1 200 OK\r\n"));
        assert_true(raw_has(&r, "Content-Type: image/png\r\nContent-Length: 3000000\r\n"));
        assert_true(raw_has(&r, "ETag: \"e1\"\r\nAccept-Ranges: bytes\r\nX-More: yes\r\n"));
        head_n = (size_t)(strstr(buf_z(&r.got), "\r\n\r\n") - r.got.p) + 4;
        assert_true(raw_wait_bytes(&r, head_n + bytes.n));
        assert_memory_equal(r.got.p + head_n, bytes.p, bytes.n);
        raw_forget(&r);
        raw_send_z(&r, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_true(raw_wait(&r, "handled 0")); /* the connection goes on */
        raw_close(&r);
        unlink(f->path);
        buf_done(&bytes);
    }
}

static void parts_of_a_file_are_served(void **state)
{
    static const struct {
        const char *lines;
        int status;
        size_t at, n;
    } table[] = {
        {"Range: bytes=0-0\r\n", 206, 0, 1},
        {"Range: bytes=10-19\r\n", 206, 10, 10},
        {"Range: bytes=99990-\r\n", 206, 99990, 10},
        {"Range: bytes=-5\r\n", 206, 99995, 5},
        {"Range: bytes=99999-999999\r\n", 206, 99999, 1},
        {"Range: bytes=5-9\r\nIf-Range: \"e1\"\r\n", 206, 5, 5},
        {"Range: bytes=5-9\r\nIf-Range: \"other\"\r\n", 200, 0, 100000},
        {"Range: bytes=0-1,5-6\r\n", 200, 0, 100000},
        {"Range: lines=0-1\r\n", 200, 0, 100000},
        {"Range: bytes=100000-\r\n", 416, 0, 0},
        {"", 200, 0, 100000},
    };
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct buf bytes = BUF_INIT;

    make_file(f, "/tmp", &bytes, 100000);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char text[256], want[128];
        size_t head_n;
        raw_forget(&r);
        snprintf(text, sizeof text, "GET /file HTTP/1.1\r\nHost: x\r\n%s\r\n", table[i].lines);
        raw_send_z(&r, text);
        assert_true(raw_wait(&r, "\r\n\r\n"));
        snprintf(want, sizeof want, "HTTP/1.1 %d ", table[i].status);
        assert_true(raw_has(&r, want));
        snprintf(want, sizeof want, "Content-Length: %zu\r\n", table[i].n);
        assert_true(raw_has(&r, want));
        if (table[i].status == 206) {
            snprintf(want, sizeof want, "Content-Range: bytes %zu-%zu/100000\r\n", table[i].at,
                     table[i].at + table[i].n - 1);
            assert_true(raw_has(&r, want));
        }
        if (table[i].status == 416)
            assert_true(raw_has(&r, "Content-Range: bytes */100000\r\n"));
        head_n = (size_t)(strstr(buf_z(&r.got), "\r\n\r\n") - r.got.p) + 4;
        assert_true(raw_wait_bytes(&r, head_n + table[i].n));
        assert_memory_equal(r.got.p + head_n, bytes.p + table[i].at, table[i].n);
    }
    raw_close(&r);
    buf_done(&bytes);
}

static void ranges_are_read_or_ignored(void **state)
{
    static const char *const ignored[] = {"",          "bytes",
                                          "bytes=",    "bytes=-",
                                          "bytes=a-b", "bytes=2",
                                          "bytes=2-1", "bytes=1-x",
                                          "bytes=--1", "bytes=18446744073709551616-",
                                          "Bytes=0-1"};
    uint64_t at, n;

    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        assert_int_equal(http_range_read(str_of(ignored[i]), 10, &at, &n), RANGE_WHOLE);
    assert_int_equal(http_range_read(STR("bytes=0-18446744073709551615"), 10, &at, &n), RANGE_PART);
    assert_true(at == 0 && n == 10);
    assert_int_equal(http_range_read(STR("bytes=-18446744073709551615"), 10, &at, &n), RANGE_PART);
    assert_true(at == 0 && n == 10);
    assert_int_equal(http_range_read(STR("bytes=-0"), 10, &at, &n), RANGE_OUTSIDE);
    assert_int_equal(http_range_read(STR("bytes=0-"), 0, &at, &n), RANGE_OUTSIDE);
    assert_int_equal(http_range_read(STR("bytes=-1"), 0, &at, &n), RANGE_OUTSIDE);
}

static void head_and_empty_files_have_no_bytes(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct buf bytes = BUF_INIT;

    make_file(f, "/tmp", &bytes, 100000);
    raw_send_z(&r, "HEAD /file HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "handled 0"));
    assert_true(raw_has(&r, "Content-Length: 100000\r\n"));
    assert_true(r.got.n < 1000);
    assert_int_equal(truncate(f->path, 0), 0);
    f->size = 0;
    raw_forget(&r);
    raw_send_z(&r, "GET /file HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "handled 0"));
    assert_true(raw_has(&r, "Content-Length: 0\r\n"));
    raw_close(&r);
    buf_done(&bytes);
}

static void a_file_that_shrank_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct buf bytes = BUF_INIT;

    make_file(f, "/tmp", &bytes, 1000);
    f->size = 2000;
    raw_send_z(&r, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait_eof(&r));
    assert_true(raw_has(&r, "Content-Length: 2000\r\n"));
    raw_close(&r);
    buf_done(&bytes);
}

static int descriptors(void)
{
    int fd = dup(0);
    close(fd);
    return fd;
}

static void a_reader_that_leaves_midway_leaks_nothing(void **state)
{
    static const char *const dirs[] = {"/tmp", "/dev/shm"};
    struct fixture *f = *state;
    int before = descriptors();

    for (int i = 0; i < 20; i++) {
        struct raw r = raw_connect(f->loop, f->port);
        struct buf bytes = BUF_INIT;
        make_file(f, dirs[i % 2], &bytes, 3000000);
        raw_send_z(&r, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n");
        loop_turns(f->loop, i / 2);
        raw_close(&r);
        loop_turns(f->loop, 5);
        unlink(f->path);
        buf_done(&bytes);
    }
    for (int i = 0; i < 200 && (http_server_connections(f->server) > 0 || descriptors() != before);
         i++)
        loop_turn(f->loop, 5);
    assert_int_equal(http_server_connections(f->server), 0);
    assert_int_equal(descriptors(), before);
}

static void a_slow_reader_of_a_file_costs_one_block(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port), other = raw_connect(f->loop, f->port);
    struct buf bytes = BUF_INIT;

    make_file(f, "/tmp", &bytes, 8000000);
    raw_send_z(&r, "GET /file HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 400); /* the kernel takes what it takes */
    raw_send_z(&other, "GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&other, "handled 0"));
    assert_true(raw_wait_bytes(&r, bytes.n)); /* and when it reads, it gets the rest */
    raw_close(&r);
    raw_close(&other);
    buf_done(&bytes);
}

static void a_file_for_a_client_that_has_gone_is_closed(void **state)
{
    struct fixture *f = *state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    http_answer_file(f->server, (struct http_id){7, 7}, &(struct http_answer){0},
                     &(struct http_file){.fd = fd});
    assert_int_equal(close(fd), -1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define T_HASTY(name) cmocka_unit_test_setup_teardown(name, setup_hasty, teardown)

UNIT(net_test_http_body)
{
    const struct CMUnitTest tests[] = {
        T(a_body_goes_to_its_sink_piece_by_piece),
        T(chunks_are_taken_apart_on_the_way),
        T(a_paused_upload_waits_in_the_kernel),
        T(an_upload_paused_at_its_last_byte_still_ends),
        T(a_client_that_leaves_is_told_once),
        T(too_much_is_413_and_gone),
        T(a_malformed_body_is_400_and_gone),
        T_HASTY(an_upload_that_stalls_is_408_and_one_that_is_paused_is_not),
        T_HASTY(a_slow_upload_is_cut_by_its_rate_over_the_whole),
        T(an_answer_before_the_end_ends_the_upload),
        T(a_request_may_be_refused_by_its_head),
        T(a_taken_body_is_asked_for_with_100_continue),
        T(a_body_that_no_sink_takes_has_the_servers_limit),
        cmocka_unit_test(uploads_under_way_are_told_when_the_server_goes),
        T(a_file_is_served_whole),
        T(parts_of_a_file_are_served),
        cmocka_unit_test(ranges_are_read_or_ignored),
        T(head_and_empty_files_have_no_bytes),
        T(a_file_that_shrank_ends_the_connection),
        T(a_reader_that_leaves_midway_leaks_nothing),
        T(a_slow_reader_of_a_file_costs_one_block),
        T(a_file_for_a_client_that_has_gone_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
