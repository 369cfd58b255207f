/* Promises of net/batch.h and net/kept.h. */
#include "net/net_test.h"

#include "base/json.h"
#include "core/event.h"
#include "net/kept.h"

/* ---- batches ---- */

static struct str whole_of(struct buf *b, uint64_t no)
{
    batch_end(b, no);
    return buf_str(b);
}

static void messages_arrive_as_they_were_added(void **state)
{
    BUF_LOCAL b = BUF_INIT;
    struct str messages;
    struct msg m;
    uint64_t no = 6;
    bool bad;

    batch_begin(&b);
    assert_true(batch_is_empty(&b));
    batch_add(&b, 5, MSG_DATA, STR("hello"));
    batch_add_u32(&b, 70000, MSG_CREDIT, 123456);
    batch_add(&b, 0, MSG_BEAT, STR_NULL);
    assert_true(batch_open(whole_of(&b, 7), &no, &messages));
    assert_true(batch_next(&messages, &m, &bad));
    assert_int_equal(m.number, 5);
    assert_int_equal(m.what, MSG_DATA);
    assert_true(str_eq(m.payload, STR("hello")));
    assert_true(batch_next(&messages, &m, &bad));
    assert_int_equal(m.number, 70000);
    assert_int_equal(get_u32(m.payload.p), 123456);
    assert_true(batch_next(&messages, &m, &bad));
    assert_int_equal(m.payload.n, 0);
    assert_false(batch_next(&messages, &m, &bad));
    assert_false(bad);
}

static void only_the_next_batch_is_opened(void **state)
{
    static const uint64_t wrong[] = {0, 1, 2, 4, UINT64_MAX};
    BUF_LOCAL b = BUF_INIT;
    struct str messages;
    uint64_t no = 2;

    batch_begin(&b);
    batch_add(&b, 1, MSG_DATA, STR("x"));
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        assert_false(batch_open(whole_of(&b, wrong[i]), &no, &messages));
        assert_int_equal(no, 2);
    }
    assert_true(batch_open(whole_of(&b, 3), &no, &messages));
    assert_false(batch_open(whole_of(&b, 3), &no, &messages)); /* twice */
}

static void nonsense_is_no_message(void **state)
{
    static const struct str bad_ones[] = {
        STR("\1\0\0\0\1"),                           /* half a head */
        STR("\1\0\0\0\1\5\0\0abc"),                  /* shorter than it says */
        STR("\1\0\0\0\0\0\0\0"),                     /* no kind */
        STR("\1\0\0\0\377\0\0\0"),                   /* an unknown kind */
        STR("\1\0\0\0\1\377\377\377ffffffffffffff"), /* too long for any */
    };
    struct msg m;
    bool bad;

    for (size_t i = 0; i < ARRAY_LEN(bad_ones); i++) {
        struct str messages = bad_ones[i];
        assert_false(batch_next(&messages, &m, &bad));
        assert_true(bad);
    }
}

static void a_request_is_read_in_place(void **state)
{
    static const char text[] = "POST /webhooks/telegram/1?x=2 HTTP/1.1\r\nHost: a.example\r\n"
                               "Content-Length: 4\r\nX-Secret: s\r\n\r\n";
    struct http_head *h = xcalloc(1, sizeof *h), *got = xcalloc(1, sizeof *got);
    BUF_LOCAL b = BUF_INIT;
    struct msg m;
    bool bad;

    assert_int_equal(http_head_read(h, text, sizeof text - 1, 4096), HEAD_DONE);
    batch_begin(&b);
    batch_add_request(&b, 9, MSG_REQUEST,
                      &(struct msg_request){.head = h,
                                            .head_bytes = str_make(text, h->bytes),
                                            .body = STR("body"),
                                            .signer = 3,
                                            .checked = 7});
    struct str messages = str_skip(buf_str(&b), BATCH_HEAD_BYTES);
    assert_true(batch_next(&messages, &m, &bad));
    struct msg_request r = {.head = got};
    assert_true(batch_read_request(m.payload, &r));
    assert_int_equal(r.signer, 3);
    assert_int_equal(r.checked, 7);
    assert_true(str_eq(r.body, STR("body")));
    assert_true(
        str_eq(str_make(r.head_bytes.p + got->path, got->path_n), STR("/webhooks/telegram/1")));
    assert_true(str_eq(str_make(r.head_bytes.p + got->query, got->query_n), STR("x=2")));
    assert_true(str_eq(str_make(r.head_bytes.p + got->host, got->host_n), STR("a.example")));
    assert_int_equal(got->n_fields, 3);
    assert_true(
        str_eq(str_make(r.head_bytes.p + got->fields[2].value, got->fields[2].value_n), STR("s")));
    assert_true(got->keep_alive && got->has_length && !got->chunked);
    assert_int_equal(got->length, 4);
    for (size_t n = 0; n < m.payload.n - 4; n++) /* cut anywhere before the body */
        assert_false(batch_read_request(str_make(m.payload.p, n), &r));
    free(h);
    free(got);
}

static void an_offset_outside_the_head_is_refused(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    struct http_head *h = xcalloc(1, sizeof *h);
    struct msg_request r = {.head = h, .head_bytes = str_make(text, sizeof text - 1)};
    BUF_LOCAL b = BUF_INIT;

    assert_int_equal(http_head_read(h, text, sizeof text - 1, 4096), HEAD_DONE);
    h->fields[0].value_n = 60000;
    batch_begin(&b);
    batch_add_request(&b, 1, MSG_REQUEST, &r);
    assert_false(batch_read_request(str_skip(buf_str(&b), BATCH_HEAD_BYTES + MSG_HEAD_BYTES), &r));
    free(h);
}

/* ---- what an edge remembers ---- */

struct edge {
    struct kept_socket k;
    struct buf up, down; /* to the heart, to the gateway */
    uint64_t acks;
    struct json_parser *json;
    uint32_t frames; /* of the heart */
};

static int setup(void **state)
{
    struct edge *e = xcalloc(1, sizeof *e);

    e->json = json_parser_new();
    e->k.remote = true;
    batch_begin(&e->up);
    *state = e;
    return 0;
}

static int teardown(void **state)
{
    struct edge *e = *state;

    kept_done(&e->k);
    buf_done(&e->up);
    buf_done(&e->down);
    json_parser_free(e->json);
    free(e);
    return 0;
}

static struct kept_out out_of(struct edge *e)
{
    return (struct kept_out){&e->up, 3, &e->acks, e->json};
}

static void say(struct edge *e, const char *text)
{
    struct kept_out out = out_of(e);

    kept_up(&e->k, str_of(text), &out);
}

/* What the heart hears: "T:text A:n ...", then the batch is empty again. */
static void heard(struct edge *e, struct buf *ret)
{
    static const char *const names[MSG_N] = {
        [MSG_TEXT] = "T", [MSG_ACKS] = "A",  [MSG_PRESENT] = "P",
        [MSG_ROWS] = "R", [MSG_ASKED] = "Q", [MSG_SHOWN] = "S"};
    struct str messages = str_skip(buf_str(&e->up), BATCH_HEAD_BYTES);
    struct msg m;
    bool bad;

    buf_reset(ret);
    while (batch_next(&messages, &m, &bad)) {
        buf_printf(ret, "%s", names[m.what]);
        if (m.what == MSG_TEXT)
            buf_add_str(ret, str_skip(m.payload, 1));
        else if (m.what == MSG_ACKS || m.what == MSG_ROWS)
            buf_printf(ret, "%zu",
                       m.payload.n / (m.what == MSG_ACKS ? MSG_ID_BYTES : MSG_ROW_BYTES));
        else if (m.what == MSG_ASKED)
            buf_add_str(ret, m.payload);
        buf_add_c(ret, ' ');
    }
    assert_false(bad);
    buf_reset(&e->up);
    batch_begin(&e->up);
}

static struct str id_of(unsigned n)
{
    static char id[MSG_ID_BYTES + 1];

    snprintf(id, sizeof id, "b%026u", n);
    return str_make(id, MSG_ID_BYTES);
}

static void ack(struct edge *e, unsigned n)
{
    char line[96];

    snprintf(line, sizeof line, "{\"type\":\"inbound_ack\",\"bufferId\":\"%.*s\"}\n",
             STR_FMT(id_of(n)));
    say(e, line);
}

/* The heart sends the delivery @n: its frame, and before it the note.  @bytes of the frame come. */
static void deliver(struct edge *e, unsigned n, size_t bytes)
{
    BUF_LOCAL note = BUF_INIT;
    char frame[] = "\x81\x04"
                   "abc\n",
         number[4];

    put_u32(number, ++e->frames);
    buf_add(&note, number, sizeof number);
    batch_put_row(&note, &(struct msg_row){100 + n, id_of(n)});
    assert_true(kept_sent(&e->k, buf_str(&note)));
    kept_down(&e->k, str_make(frame, bytes), &e->down);
}

static void keep(struct edge *e)
{
    BUF_LOCAL texts = BUF_INIT;

    batch_put_texts(&texts,
                    (const struct str[]){STR("gw"), STR("acme"), STR("ann"), STR("1"), STR("7")},
                    5);
    assert_true(kept_keep(&e->k, buf_str(&texts)));
    say(e, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\"}\n");
}

static void lines_and_acks_stay_in_order(void **state)
{
    struct edge *e = *state;
    BUF_LOCAL got = BUF_INIT;

    say(e, "one\n");
    ack(e, 1);
    heard(e, &got);
    assert_string_equal(buf_z(&got), "Tone\n A1 ");
    struct kept_out out = out_of(e);
    BUF_LOCAL all = BUF_INIT;
    for (int i = 0; i < 3; i++)
        buf_printf(&all, "{\"type\":\"inbound_ack\",\"bufferId\":\"%.*s\"}\n",
                   STR_FMT(id_of((unsigned)i)));
    buf_add_z(&all, "two\nthree\n");
    buf_printf(&all, "{\"type\": \"inbound_ack\", \"bufferId\": \"%.*s\"}\nhalf",
               STR_FMT(id_of(9)));
    kept_up(&e->k, buf_str(&all), &out);
    heard(e, &got);
    assert_string_equal(buf_z(&got), "A3 Ttwo\nthree\n A1 ");
    say(e, " a line\n");
    heard(e, &got);
    assert_string_equal(buf_z(&got), "Thalf a line\n ");
    assert_int_equal(e->acks, 5);
}

static void a_long_line_passes_in_pieces(void **state)
{
    struct edge *e = *state;
    BUF_LOCAL line = BUF_INIT, got = BUF_INIT;
    struct kept_out out = out_of(e);

    for (int i = 0; i < 40000; i++)
        buf_add_c(&line, 'x');
    kept_up(&e->k, buf_str(&line), &out);
    assert_true(e->k.passing);
    ack(e, 1); /* the rest of the line */
    heard(e, &got);
    assert_null(strchr(buf_z(&got), 'A'));
    ack(e, 1);
    heard(e, &got);
    assert_string_equal(buf_z(&got), "A1 ");
}

static void a_heart_that_commits_nothing_takes_bounded_memory(void **state)
{
    struct edge *e = *state;

    keep(e);
    for (unsigned i = 0; i < KEPT_MAX_ROWS + 5000; i++) {
        ack(e, i);
        buf_reset(&e->up);
        batch_begin(&e->up);
    }
    assert_true(e->k.acked.n <= (KEPT_MAX_ROWS + 1) * sizeof(uint64_t) * 5);
    assert_int_equal(e->acks, KEPT_MAX_ROWS + 5000); /* the heart has them all */
    assert_false(kept_lost(&e->k));
}

static void only_whole_frames_go_down(void **state)
{
    struct edge *e = *state;

    kept_down(&e->k,
              str_make("\x81\x03"
                       "ab",
                       4),
              &e->down);
    assert_int_equal(e->down.n, 0);
    kept_down(&e->k, str_make("c\x81\x01x\x81", 5), &e->down);
    assert_int_equal(e->down.n, 5 + 3);
    kept_down(&e->k, str_make("\x7e\x00\x7e", 3), &e->down);
    for (int i = 0; i < 125; i++)
        kept_down(&e->k, STR("y"), &e->down);
    assert_int_equal(e->down.n, 5 + 3);
    kept_down(&e->k, STR("z"), &e->down);
    assert_int_equal(e->down.n, 5 + 3 + 4 + 126);
    assert_int_equal(e->k.frames, 3);
}

static void a_delivery_is_sent_when_its_frame_went_down(void **state)
{
    struct edge *e = *state;
    BUF_LOCAL got = BUF_INIT;

    keep(e);
    deliver(e, 1, 6);
    deliver(e, 2, 5); /* its last byte does not come */
    heard(e, &got);
    assert_true(kept_lost(&e->k));
    struct kept_out out = out_of(e);
    kept_present(&e->k, &out);
    heard(e, &got);
    assert_string_equal(buf_z(&got), "P R1 S ");
}

static void a_gateway_that_acks_late_is_presented_as_one(void **state)
{
    struct edge *e = *state;
    struct msg_present said;
    struct msg m;
    bool bad;

    keep(e);
    say(e, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"attic\",\"late_acks\":true}\n");
    assert_true(kept_lost(&e->k));
    buf_reset(&e->up);
    batch_begin(&e->up);
    struct kept_out out = out_of(e);
    kept_present(&e->k, &out);
    struct str messages = str_skip(buf_str(&e->up), BATCH_HEAD_BYTES);
    assert_true(batch_next(&messages, &m, &bad));
    assert_int_equal(m.what, MSG_PRESENT);
    assert_true(
        batch_read_texts(m.payload, (struct str *)(void *)&said, sizeof said / sizeof(struct str)));
    assert_true(str_eq(said.acked, STR("late")));
}

static void acks_are_held_until_they_are_on_disk(void **state)
{
    struct edge *e = *state;
    BUF_LOCAL got = BUF_INIT;

    keep(e);
    for (unsigned i = 0; i < 40; i++)
        deliver(e, i, 6);
    for (unsigned i = 40; i > 10; i--)
        ack(e, i - 1); /* in any order */
    kept_committed(&e->k, 20);
    heard(e, &got);
    assert_true(kept_lost(&e->k));
    struct kept_out out = out_of(e);
    e->acks = 0; /* a new trunk */
    kept_present(&e->k, &out);
    heard(e, &got);
    assert_string_equal(buf_z(&got), "P R20 S A10 ");
    kept_committed(&e->k, 10);
    assert_true(kept_lost(&e->k));
    kept_present(&e->k, &out);
    heard(e, &got);
    assert_string_equal(buf_z(&got), "P R10 S ");
}

static void a_gateway_that_never_acks_keeps_its_socket_and_takes_bounded_memory(void **state)
{
    struct edge *e = *state;
    BUF_LOCAL got = BUF_INIT;

    keep(e);
    heard(e, &got);
    for (unsigned i = 0; i < 2 * KEPT_MAX_ROWS; i++) {
        deliver(e, i, 6);
        buf_reset(&e->down);
    }
    assert_true(e->k.sent.n <= KEPT_MAX_UNACKED * sizeof(uint64_t) * 6);
    assert_true(kept_lost(&e->k));
    struct kept_out out = out_of(e);
    kept_present(&e->k, &out);
    assert_true(str_contains(buf_str(&e->up), id_of(2 * KEPT_MAX_ROWS - 1)));
}

static void acks_that_cannot_go_yet_cost_nothing(void **state)
{
    enum { MANY = 60000 };
    struct edge *e = *state;

    keep(e);
    for (unsigned i = 0; i < MANY / 2 - 1; i++)
        ack(e, i);
    for (unsigned i = 0; i < MANY; i++)
        deliver(e, i, 6);
    clock_t began = clock();
    for (unsigned i = 0; i < MANY; i++)
        kept_committed(&e->k, MANY);
    assert_true(clock() - began < CLOCKS_PER_SEC / 4);
    assert_int_equal(e->k.acked.n / (MANY / 2 - 1), 40); /* all are still there */
}

static void actions_without_a_result_are_named(void **state)
{
    struct edge *e = *state;
    BUF_LOCAL got = BUF_INIT;

    keep(e);
    say(e, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"send\"}}\n");
    say(e, "{\"type\":\"outbound\",\"requestId\":\"r2\",\"action\":{\"op\":\"send\"}}\n");
    assert_true(kept_result(&e->k, STR("\1\0\0\0r1")));
    kept_down(&e->k, STR("\x81\x01\n"), &e->down);
    heard(e, &got);
    assert_true(kept_lost(&e->k));
    struct kept_out out = out_of(e);
    kept_present(&e->k, &out);
    heard(e, &got);
    assert_string_equal(buf_z(&got), "P Qr2 S ");
}

static void a_long_action_without_a_result_is_named_too(void **state)
{
    static const char *const starts[] = {
        "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"send\",\"content\":\"",
        "{\"requestId\": \"r2\", \"type\": \"outbound\", \"action\": {\"content\": \""};
    struct edge *e = *state;
    BUF_LOCAL got = BUF_INIT;
    char text[512];

    keep(e);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < 2; i++) {
        say(e, starts[i]);
        for (int k = 0; k < 80; k++)
            say(e, text);
        say(e, "\"}}\n");
    }
    heard(e, &got);
    assert_true(kept_lost(&e->k));
    struct kept_out out = out_of(e);
    kept_present(&e->k, &out);
    heard(e, &got);
    assert_string_equal(buf_z(&got), "P Qr1 Qr2 S ");
    say(e, "{\"type\":\"outbound\",\"action\":{\"op\":\"send\",\"content\":\"");
    for (int k = 0; k < 80; k++)
        say(e, text);
    say(e, "\"},\"requestId\":\"r3\"}\n");
    assert_false(kept_lost(&e->k)); /* it would not be told what became of r3 */
}

static void some_sockets_end_with_their_heart(void **state)
{
    struct edge *e = *state;

    assert_false(kept_lost(&e->k)); /* the heart never said that it is to be kept */
    keep(e);
    assert_true(kept_lost(&e->k));
    say(e, "{\"type\":\"going_idle\"}\n");
    assert_false(kept_lost(&e->k)); /* it is about to close */
    say(e, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\"}\n");
    assert_true(kept_lost(&e->k));
    kept_down(&e->k,
              STR("\x81\x04"
                  "half"),
              &e->down);
    assert_false(kept_lost(&e->k)); /* the rest of a line died with the heart */
}

UNIT(net_test_batch)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_as_they_were_added),
        cmocka_unit_test(only_the_next_batch_is_opened),
        cmocka_unit_test(nonsense_is_no_message),
        cmocka_unit_test(a_request_is_read_in_place),
        cmocka_unit_test(an_offset_outside_the_head_is_refused),
        cmocka_unit_test_setup_teardown(lines_and_acks_stay_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_line_passes_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(only_whole_frames_go_down, setup, teardown),
        cmocka_unit_test_setup_teardown(a_delivery_is_sent_when_its_frame_went_down, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_gateway_that_acks_late_is_presented_as_one, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(acks_are_held_until_they_are_on_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_heart_that_commits_nothing_takes_bounded_memory, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            a_gateway_that_never_acks_keeps_its_socket_and_takes_bounded_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(acks_that_cannot_go_yet_cost_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(actions_without_a_result_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_action_without_a_result_is_named_too, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(some_sockets_end_with_their_heart, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
