/* What connections hold is counted for the party at their other end: net/http_server.c. */
#include "net/net_test.h"

#include "base/limits.h"
#include "base/addr.h"
#include "net/http_server.h"

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct ledger *ledger;
    int port;
};

static void handler(void *ctx, struct http_req *r)
{
    static char huge[300 * 1024];
    struct fixture *f = ctx;
    struct http_answer a = {.status = 200, .body = STR("fine")};

    if (str_eq(http_path(r), STR("/huge")))
        a.body = str_make(huge, sizeof huge);
    http_answer(f->server, http_req_id(r), &a);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256] = "";

    f->loop = loop_new();
    f->ledger = ledger_new(NULL);
    f->server = http_server_new(f->loop, NULL, handler, f);
    http_server_count(f->server, f->ledger);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    f->port = http_server_port(f->server);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_server_free(f->server);
    assert_int_equal(ledger_parties(f->ledger), 0);
    for (int i = 0; i < LIMIT_N; i++)
        assert_int_equal(ledger_held(f->ledger, NULL, (enum limit)i), 0);
    ledger_free(f->ledger);
    loop_free(f->loop);
    free(f);
    return 0;
}

static void bound(struct fixture *f, enum limit what, uint64_t each, uint64_t all)
{
    struct limit_settings s = limit_defaults;

    s.of[what] = (struct limit_bounds){each, all};
    ledger_set(f->ledger, &s);
}

#define ASK "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

static void ask(struct raw *r, const char *want)
{
    raw_send_z(r, ASK);
    if (!raw_wait(r, want))
        fail_msg("got: %s\nwanted: %s", buf_z(&r->got), want);
}

static void an_address_has_so_many_connections(void **state)
{
    struct fixture *f = *state;
    struct raw r[3];

    bound(f, LIMIT_CONNECTIONS, 2, 0);
    for (int i = 0; i < 2; i++) {
        r[i] = raw_connect(f->loop, f->port);
        ask(&r[i], "fine");
    }
    r[2] = raw_connect(f->loop, f->port);
    assert_true(raw_wait(&r[2], "HTTP/1.1 503"));
    assert_true(raw_wait_eof(&r[2]));
    raw_close(&r[2]);
    raw_close(&r[0]); /* one less: there is room again */
    for (int i = 0; i < 100 && ledger_held(f->ledger, NULL, LIMIT_CONNECTIONS) > 1; i++)
        loop_turn(f->loop, 2);
    r[2] = raw_connect(f->loop, f->port);
    ask(&r[2], "fine");
    raw_close(&r[1]);
    raw_close(&r[2]);
}

static void a_trusted_proxy_has_no_limit_of_its_own(void **state)
{
    struct fixture *f = *state;
    struct addr_net net;
    struct raw r[3];

    assert_true(addr_net_parse(STR("127.0.0.0/8"), &net));
    http_server_trust(f->server, &net, 1);
    bound(f, LIMIT_CONNECTIONS, 1, 0);
    for (int i = 0; i < 3; i++) {
        r[i] = raw_connect(f->loop, f->port);
        ask(&r[i], "fine");
    }
    for (int i = 0; i < 3; i++)
        raw_close(&r[i]);
}

static void unfinished_requests_have_so_many_bytes(void **state)
{
    struct fixture *f = *state;
    struct raw r[2];
    struct buf body = BUF_INIT;

    bound(f, LIMIT_REQUEST_BYTES, 200 * 1024, 0);
    buf_add_z(&body, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 120000\r\n\r\n");
    size_t head_n = body.n;
    while (body.n < 100000)
        buf_add_z(&body, "0123456789");
    for (int i = 0; i < 2; i++) {
        r[i] = raw_connect(f->loop, f->port);
        raw_send(&r[i], buf_str(&body));
    }
    assert_true(raw_wait(&r[1], "HTTP/1.1 503"));
    assert_true(ledger_held(f->ledger, NULL, LIMIT_REQUEST_BYTES) <= 200 * 1024);
    size_t left = 120000 - (body.n - head_n); /* the first one may still end well */
    while (left > 0) {
        size_t n = left < 4096 ? left : 4096;
        raw_send(&r[0], str_make(body.p + head_n, n));
        left -= n;
    }
    assert_true(raw_wait(&r[0], "fine"));
    ask(&r[0], "fine");
    assert_int_equal(ledger_held(f->ledger, NULL, LIMIT_REQUEST_BYTES), 0);
    raw_close(&r[0]);
    raw_close(&r[1]);
    buf_done(&body);
}

static void answers_that_nobody_reads_have_so_many_bytes(void **state)
{
    struct fixture *f = *state;
    struct raw r[8];

    bound(f, LIMIT_ANSWER_BYTES, 0, 1 << 20);
    for (int i = 0; i < 8; i++) {
        r[i] = raw_connect(f->loop, f->port);
        for (int k = 0; k < 40; k++)
            raw_send_z(&r[i], "GET /huge HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for (int64_t end = test_now_ms() + 5000;
         test_now_ms() < end && ledger_refused(f->ledger, LIMIT_ANSWER_BYTES) == 0;)
        loop_turn(f->loop, 2);
    assert_true(ledger_refused(f->ledger, LIMIT_ANSWER_BYTES) > 0);
    assert_true(ledger_held(f->ledger, NULL, LIMIT_ANSWER_BYTES) <= 1 << 20);
    for (int i = 0; i < 8; i++)
        raw_close(&r[i]);
}

/* ---- turns ---- */

enum { UPLOADS = 24 };

struct files {
    struct fixture *f;
    size_t taken[UPLOADS]; /* bytes */
    struct http_id ids[UPLOADS];
    int n;
};

static void on_data(void *ctx, struct http_id id, struct str bytes)
{
    struct files *all = ctx;

    for (int i = 0; i < all->n; i++)
        if (all->ids[i].index == id.index)
            all->taken[i] += bytes.n;
}
static void on_body_end(void *ctx, struct http_id id)
{
    fail();
}
static void on_body_gone(void *ctx, struct http_id id)
{
}

static struct files files;

static void on_head(void *ctx, struct http_req *r)
{
    const struct http_sink sink = {.max_bytes = 1 << 30,
                                   .on_data = on_data,
                                   .on_end = on_body_end,
                                   .on_gone = on_body_gone};

    if (!str_eq(http_method(r), STR("POST")))
        return;
    files.ids[files.n++] = http_req_id(r);
    http_take_body(r, &sink, &files);
}

/* Whatever the kernel takes, of each; then one turn. */
static void push_all(struct fixture *f, struct raw r[UPLOADS])
{
    static char piece[65536];

    for (int i = 0; i < UPLOADS; i++)
        while (send(r[i].fd, piece, sizeof piece, MSG_NOSIGNAL) > 0)
            ;
    loop_turn(f->loop, 1);
}

static void files_of_one_address_come_in_turns_and_keep_nobody_waiting(void **state)
{
    struct fixture *f = *state;
    struct raw r[UPLOADS], other;

    files = (struct files){.f = f};
    http_server_on_head(f->server, on_head);
    for (int i = 0; i < UPLOADS; i++) {
        r[i] = raw_connect(f->loop, f->port);
        raw_send_z(&r[i], "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000000\r\n\r\n");
    }
    while (files.n < UPLOADS)
        loop_turn(f->loop, 1);
    for (int k = 0; k < 10; k++)
        push_all(f, r);
    other = raw_connect(f->loop, f->port);
    assert_int_equal(send(other.fd, ASK, sizeof ASK - 1, MSG_NOSIGNAL), sizeof ASK - 1);
    for (int k = 0; k < 4; k++)
        push_all(f, r);
    raw_poll(&other);
    assert_true(raw_has(&other, "fine"));
    for (int k = 0; k < 3 * UPLOADS; k++)
        push_all(f, r);
    for (int i = 0; i < UPLOADS; i++) /* three pieces in a turn */
        assert_in_range(files.taken[i], 4 * 65536, 24 * 65536);
    for (int i = 0; i < UPLOADS; i++)
        raw_close(&r[i]);
    raw_close(&other);
}

UNIT(net_test_http_count)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(an_address_has_so_many_connections),
        T(a_trusted_proxy_has_no_limit_of_its_own),
        T(unfinished_requests_have_so_many_bytes),
        T(answers_that_nobody_reads_have_so_many_bytes),
        T(files_of_one_address_come_in_turns_and_keep_nobody_waiting),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
