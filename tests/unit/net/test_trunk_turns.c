/* Promises of net/trunk.h about a trunk that is slow: either end of one, over a ring that is
 * emptied when the test says so. */
#include "net/net_test.h"

#include "base/limits.h"
#include "net/ring.h"
#include "net/trunk_priv.h"

enum { MANY = 600, LITTLE = MANY + 1, BIG = TRUNK_WINDOW + 1 };

struct fixture {
    struct loop *loop, *far; /* of the heart, and of the edge */
    struct http_server *heart;
    struct ledger *ledger;
    struct ring *down;
    struct trunk *trunk; /* at the heart */
    uint64_t said, heard;
    size_t before; /* bytes that came for the others before the little answer did */
    bool answered;
    char body[BIG];
};

static void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;
    bool little = str_eq(http_path(r), STR("/little"));
    struct str body = str_make(f->body, little ? 5 : sizeof f->body);

    http_answer(f->heart, http_req_id(r), &(struct http_answer){.status = 200, .body = body});
}

static void on_batch(void *ctx, struct str batch)
{
    struct fixture *f = ctx;
    struct str messages;
    struct msg m;
    bool bad;

    assert_true(batch_open(batch, &f->heard, &messages));
    while (batch_next(&messages, &m, &bad)) {
        f->answered |= m.what == MSG_DATA && m.number == LITTLE;
        f->before += m.what == MSG_DATA && !f->answered ? m.payload.n : 0;
    }
    assert_false(bad);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    struct limit_settings limits = limit_defaults;

    limits.of[LIMIT_ANSWER_BYTES] = (struct limit_bounds){0, 0};
    f->loop = loop_new();
    f->far = loop_new();
    f->heart = http_server_new(f->loop, NULL, handler, f);
    f->ledger = ledger_new(&limits);
    http_server_count(f->heart, f->ledger);
    f->down = ring_new(f->far, on_batch, f);
    f->trunk = heart_open_ring(f->heart, f->down);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    heart_cut_all(f->trunk);
    trunk_done(f->trunk);
    free(f->trunk);
    http_server_free(f->heart);
    ring_free(f->down);
    loop_free(f->far);
    loop_free(f->loop);
    assert_int_equal(ledger_parties(f->ledger), 0);
    ledger_free(f->ledger);
    free(f);
    return 0;
}

static void say(struct fixture *f, struct buf *b)
{
    batch_end(b, ++f->said);
    trunk_take_batch(f->trunk, buf_str(b));
    buf_done(b);
}

/* A client of 10.0.0.@last comes to the edge and asks. */
static void ask(struct fixture *f, uint32_t number, char last, const char *path)
{
    const char connect[] = {0, 10, 0, 0, last};
    struct http_head *head = xcalloc(1, sizeof *head);
    struct buf b = BUF_INIT, text = BUF_INIT;

    buf_printf(&text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    assert_int_equal(http_head_read(head, text.p, text.n, text.n), HEAD_DONE);
    batch_begin(&b);
    batch_add(&b, number, MSG_CONNECT, str_make(connect, sizeof connect));
    batch_add_request(&b, number, MSG_REQUEST,
                      &(struct msg_request){.head = head, .head_bytes = buf_str(&text)});
    say(f, &b);
    buf_done(&text);
    free(head);
}

static void who_has_many_connections_takes_turns_with_who_has_one(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 1; i <= MANY; i++)
        ask(f, i, 1, "/big");
    loop_turn(f->loop, 0); /* the trunk is full of these */
    ask(f, LITTLE, 2, "/little");
    loop_turn(f->loop, 0);
    for (int i = 0; i < 1000 && !f->answered; i++) {
        loop_turn(f->far, 0);
        loop_turn(f->loop, 2);
    }
    assert_true(f->answered);
    assert_in_range(f->before, 1, TRUNK_HIGH_BYTES + 4 * TRUNK_WINDOW);
}

static void who_has_gone_while_it_waited_holds_up_nobody(void **state)
{
    struct fixture *f = *state;
    struct buf b = BUF_INIT;

    for (uint32_t i = 1; i <= MANY; i++)
        ask(f, i, 1, "/big");
    loop_turn(f->loop, 0);
    batch_begin(&b);
    for (uint32_t i = 1; i <= MANY; i++)
        batch_add(&b, i, MSG_CLOSE, STR_NULL);
    say(f, &b);
    ask(f, LITTLE, 2, "/little");
    for (int i = 0; i < 1000 && !f->answered; i++) {
        loop_turn(f->loop, 2);
        loop_turn(f->far, 0);
    }
    assert_true(f->answered);
}

/* ---- an edge ---- */

enum { CLIENTS = 12, LONG = 60000 };

struct at_edge {
    struct loop *loop, *far; /* of the edge, and of the heart */
    struct http_server *edge;
    struct ring *up;
    struct trunk *trunk;
    uint64_t heard;
    int requests, here;      /* that the heart got, and that the edge handled itself */
    size_t body;             /* bytes of bodies that came in pieces */
    char order[CLIENTS + 1]; /* the requests that the heart got: 'a' is that of the first client */
    struct http_head head;   /* of the last */
    struct raw clients[CLIENTS];
};

static void edge_handler(void *ctx, struct http_req *r)
{
    struct at_edge *f = ctx;

    f->here++;
    http_answer(f->edge, http_req_id(r), &(struct http_answer){.status = 503});
}

static void on_request(void *ctx, struct str batch)
{
    struct at_edge *f = ctx;
    struct str messages;
    struct msg m;
    bool bad;

    assert_true(batch_open(batch, &f->heard, &messages));
    while (batch_next(&messages, &m, &bad)) {
        f->body += m.what == MSG_BODY ? m.payload.n : 0;
        if (m.what != MSG_REQUEST)
            continue;
        struct msg_request r = {.head = &f->head};
        assert_true(batch_read_request(m.payload, &r));
        f->order[f->requests++] = r.head_bytes.p[sizeof "POST /" - 1];
    }
}

static int setup_edge(void **state)
{
    struct at_edge *f = xcalloc(1, sizeof *f);
    char why[256];

    f->loop = loop_new();
    f->far = loop_new();
    f->edge = http_server_new(f->loop, NULL, edge_handler, f);
    assert_int_equal(http_server_listen(f->edge, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    f->up = ring_new(f->far, on_request, f);
    f->trunk = edge_open_ring(f->edge, f->up, 1);
    f->edge->in_process = false; /* as if it was another node's */
    f->trunk->high = 2 * LONG;
    trunk_hold(f->edge, 5000);
    *state = f;
    return 0;
}

static int teardown_edge(void **state)
{
    struct at_edge *f = *state;

    for (int i = 0; i < CLIENTS; i++)
        if (f->clients[i].fd > 0)
            raw_close(&f->clients[i]);
    f->edge->in_process = true;
    http_server_free(f->edge);
    ring_free(f->up);
    loop_free(f->far);
    loop_free(f->loop);
    free(f);
    return 0;
}

/* The clients from @first up to @end come, one after the other. */
static void come(struct at_edge *f, int first, int end)
{
    char body[LONG], head[96];

    memset(body, 'x', sizeof body);
    for (int i = first; i < end; i++) {
        f->clients[i] = raw_connect(f->loop, http_server_port(f->edge));
        snprintf(head, sizeof head, "POST /%c HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
                 'a' + i, LONG);
        raw_send_z(&f->clients[i], head);
        raw_send(&f->clients[i], str_make(body, sizeof body));
        loop_turns(f->loop, 10);
    }
}

static void requests_wait_at_the_edge_while_the_trunk_is_full(void **state)
{
    struct at_edge *f = *state;

    come(f, 0, CLIENTS);
    loop_turns(f->loop, 50);
    assert_in_range(ring_bytes(f->up), 2 * LONG, 4 * LONG);
    for (int i = 0; i < 2000 && f->requests < CLIENTS; i++) {
        loop_turn(f->far, 0);
        loop_turn(f->loop, 2);
    }
    assert_int_equal(f->requests, CLIENTS);
    assert_int_equal(f->here, 0);
}

/* Empties the trunk until more requests went on than now; the number of those that wait still. */
static size_t go_on(struct at_edge *f)
{
    const struct list *held = &f->edge->by_state[CONN_HELD];
    size_t n = 0;
    int before = f->requests;

    for (int i = 0; i < 500 && f->requests == before; i++) {
        loop_turn(f->far, 0);
        loop_turn(f->loop, 2);
    }
    assert_true(f->requests > before);
    list_each (held, it, next)
        n++;
    return n;
}

static void a_request_that_waits_for_room_is_looked_at_once(void **state)
{
    struct at_edge *f = *state;
    const struct list *held = &f->edge->by_state[CONN_HELD];
    uint32_t due[CLIENTS];
    size_t n = 1, looked = 0, steps = 0;

    come(f, 0, CLIENTS);
    list_each (held, it, next) {
        struct conn *c = list_entry(it, struct conn, link);
        due[c->in->p[sizeof "POST /" - 1] - 'a'] = c->due_ms;
    }
    for (; n > 0; steps++) {
        n = go_on(f);
        list_each (held, it, next) {
            struct conn *c = list_entry(it, struct conn, link);
            uint32_t *was = &due[c->in->p[sizeof "POST /" - 1] - 'a'];
            looked += *was != c->due_ms; /* it began to wait anew */
            *was = c->due_ms;
        }
    }
    assert_in_range(steps, 3, CLIENTS);
    assert_int_equal(looked, 0);
}

static void requests_that_waited_go_on_in_the_order_in_which_they_came(void **state)
{
    struct at_edge *f = *state;

    come(f, 0, CLIENTS);
    for (int i = 0; i < 50 && f->requests < CLIENTS; i++)
        go_on(f);
    assert_string_equal(f->order, "abcdefghijkl");
}

static void a_body_goes_on_beside_requests_that_wait(void **state)
{
    struct at_edge *f = *state;
    struct raw *sender = &f->clients[CLIENTS - 1];
    char piece[LONG];

    memset(piece, 'x', sizeof piece);
    *sender = raw_connect(f->loop, http_server_port(f->edge));
    raw_send_z(sender, "POST /long HTTP/1.1\r\nHost: x\r\nContent-Length: 90000000\r\n\r\n");
    raw_send(sender, str_make(piece, 1000));
    come(f, 0, CLIENTS - 1);
    raw_send(sender, str_make(piece, sizeof piece));
    loop_turns(f->loop, 10);
    size_t waits = go_on(f);
    for (int i = 0; i < CLIENTS && waits > 0 && f->body <= 1000; i++)
        waits = go_on(f);
    assert_in_range(f->body, 1001, 1000 + LONG);
    assert_in_range(waits, 1, CLIENTS); /* requests still wait */
}

static void a_new_request_does_not_pass_those_that_wait(void **state)
{
    struct at_edge *f = *state;

    come(f, 0, CLIENTS - 1);
    f->trunk->high = ring_bytes(f->up) * 3 / 2; /* not full, but too full for those that wait */
    come(f, CLIENTS - 1, CLIENTS);
    for (int i = 0; i < 50 && f->requests < CLIENTS; i++)
        go_on(f);
    assert_string_equal(f->order, "abcdefghijkl");
}

UNIT(net_test_trunk_turns)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_has_many_connections_takes_turns_with_who_has_one,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(requests_wait_at_the_edge_while_the_trunk_is_full,
                                        setup_edge, teardown_edge),
        cmocka_unit_test_setup_teardown(a_request_that_waits_for_room_is_looked_at_once, setup_edge,
                                        teardown_edge),
        cmocka_unit_test_setup_teardown(requests_that_waited_go_on_in_the_order_in_which_they_came,
                                        setup_edge, teardown_edge),
        cmocka_unit_test_setup_teardown(a_body_goes_on_beside_requests_that_wait, setup_edge,
                                        teardown_edge),
        cmocka_unit_test_setup_teardown(a_new_request_does_not_pass_those_that_wait, setup_edge,
                                        teardown_edge),
        cmocka_unit_test_setup_teardown(who_has_gone_while_it_waited_holds_up_nobody, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
