/* Promises of bellhop/gateway.h that need no socket: options, frames good and bad, acks, requests,
 * backoff.  The handle is put into a phase by hand and its threads are not started; what it would
 * write is read from its buffers. */
#include "unit.h"
#include "../../../sdk/src/client.h"
#include "base/mem.h"
#include "core/token.h"

#define DESCRIPTOR \
    "{\"type\":\"descriptor\",\"descriptor\":{\"contract_version\":1,\"platform\":\"web\"," \
    "\"label\":\"Web\",\"max_message_length\":0,\"supports_draft_streaming\":false," \
    "\"supports_edit\":true,\"supports_threads\":false,\"markdown_dialect\":\"plain\"," \
    "\"len_unit\":\"utf16\",\"supported_ops\":[\"send\",1,\"edit\"],\"novel\":{}}}\n"

static enum bhgw_verdict never_called(void *ctx, struct bhgw *gw, const struct bhgw_event *ev)
{
    fail();
    return BHGW_ACK;
}

static struct bhgw_options options(void)
{
    struct bhgw_options opt = bhgw_options_init();

    opt.url = "http://127.0.0.1:1";
    opt.gateway_id = "gw";
    opt.secret = "secret";
    opt.on_event = never_called;
    return opt;
}

static int with_connected_handle(void **state)
{
    struct bhgw_options opt = options();
    struct bhgw *gw = bhgw_new(&opt, NULL, 0);

    assert_non_null(gw);
    gw->phase = GWC_HELLO;
    gw->want = GWC_WANT_UP;
    gw->socket_number = 1;
    *state = gw;
    return 0;
}

static int free_handle(void **state)
{
    struct bhgw *gw = *state;

    gw->phase = GWC_OFF;
    gw->want = GWC_WANT_NOTHING;
    buf_done(&gw->conn.out);
    gwc_requests_fail(gw);
    bhgw_free(gw);
    return 0;
}

static void feed(struct bhgw *gw, const char *bytes)
{
    gwc_bytes(gw, str_of(bytes));
}

/* ---- options ---- */

static void an_option_that_makes_no_sense_is_refused_by_name(void **state)
{
    struct bhgw_identity nameless = {NULL, "x", NULL};
    struct bhgw_identity scribbled = {"discord", "x", "{\"not\":\"an array\"}"};
    char error[128];
    struct bhgw_options bad[7];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = options();
    bad[0].url = NULL;
    bad[1].url = "gopher://c";
    bad[2].secret = NULL;
    bad[3].request_timeout_ms = -1;
    bad[4].identities = &nameless, bad[4].n_identities = 1;
    bad[5].identities = &scribbled, bad[5].n_identities = 1;
    bad[6].struct_bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        error[0] = '\0';
        assert_null(bhgw_new(&bad[i], error, sizeof error));
        assert_true(strlen(error) > 10);
    }
}

static void an_older_and_shorter_options_struct_is_understood(void **state)
{
    struct bhgw_options opt = options();

    opt.struct_bytes = offsetof(struct bhgw_options, user_agent);
    opt.user_agent = "must not be read";
    struct bhgw *gw = bhgw_new(&opt, NULL, 0);
    assert_non_null(gw);
    assert_memory_equal(gw->opt.user_agent, "bellhop-gateway/", 16);
    bhgw_free(gw);
}

static void a_token_made_by_the_helper_is_one_the_connector_believes(void **state)
{
    char *text = bhgw_token("gw:with:colons", "s3cret", 60);
    struct buf scratch = BUF_INIT;
    struct token t;
    struct str secret = STR("s3cret");

    assert_true(token_read(str_of(text), &scratch, &t));
    assert_int_equal(token_verify(&t, &secret, 1, t.exp, 0), TOKEN_OK);
    assert_int_equal(token_verify(&t, &secret, 1, t.exp + 1, 0), TOKEN_EXPIRED);
    buf_done(&scratch);
    bhgw_string_free(text);
}

/* ---- backoff ---- */

static void backoff_doubles_up_to_its_cap_and_jitters_within_half(void **state)
{
    const int64_t full[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000};

    for (unsigned f = 0; f < ARRAY_LEN(full); f++) {
        for (uint64_t r = 0; r < 40000; r += 997) {
            int64_t ms = gwc_backoff_ms(f, 1000, 30000, r);
            assert_true(ms >= full[f] / 2 && ms <= full[f]);
        }
        assert_int_equal(gwc_backoff_ms(f, 1000, 30000, 0), full[f] / 2);
        assert_int_equal(gwc_backoff_ms(f, 1000, 30000, (uint64_t)full[f] / 2), full[f]);
    }
    assert_true(gwc_backoff_ms(4000000000u, 1000, 30000, 5) <= 30000);
    assert_int_equal(gwc_backoff_ms(0, 1, 1, 77), 1);
}

/* ---- frames ---- */

static void lines_and_messages_need_not_coincide(void **state)
{
    struct bhgw *gw = *state;
    const char *whole =
        "\r\n\n" DESCRIPTOR "{\"type\":\"inbound\",\"bufferId\":\"a\",\"event\":{}}\r\n"
        "{\"type\":\"inbound\",\"bufferId\":\"b\",\"event\":{}}\n";

    for (const char *p = whole; *p != '\0'; p++)
        gwc_bytes(gw, str_make(p, 1));
    assert_int_equal(gw->phase, GWC_READY);
    assert_int_equal(gw->n_deliveries, 2);
    feed(gw, "{\"type\":\"inbound\",\"bufferId\":\"c\",\"event\":{}}"); /* no newline: not yet */
    assert_int_equal(gw->n_deliveries, 2);
    feed(gw, "\n{\"type\":\"inbound\",\"bufferId\":\"d\",\"event\":{}}\n");
    assert_int_equal(gw->n_deliveries, 4);
    assert_int_equal(gw->stats.bad_frames, 0);
}

static void frames_of_the_wrong_shape_are_skipped_and_the_next_one_counts(void **state)
{
    static const char *const bad[] = {
        "[]",
        "null",
        "\"x\"",
        "1",
        "{",
        "not json",
        "\xff\xfe",
        "{\"type\":\"inbound\",\"event\":null}",
        "{\"type\":\"inbound\",\"bufferId\":\"x\",\"event\":[]}",
        "{\"type\":\"passthrough_forward\",\"forward\":null}",
        "{\"type\":\"passthrough_forward\"}",
        "{\"type\":\"interrupt_inbound\"}",
        "{\"type\":\"interrupt_inbound\",\"session_key\":7}",
    };
    static const char *const harmless[] = {
        "{}",
        "{\"type\":null}",
        "{\"type\":7}",
        "{\"type\":\"novel\",\"x\":[1,2]}",
        "{\"type\":\"outbound_result\",\"result\":null}",
        "{\"type\":\"outbound_result\",\"requestId\":{},\"result\":{}}",
        "{\"type\":\"going_idle_ack\"}",
    };
    struct bhgw *gw = *state;

    feed(gw, DESCRIPTOR);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        feed(gw, bad[i]);
        feed(gw, "\n");
        assert_int_equal(gw->stats.bad_frames, i + 1);
    }
    for (size_t i = 0; i < ARRAY_LEN(harmless); i++) {
        feed(gw, harmless[i]);
        feed(gw, "\n");
    }
    assert_int_equal(gw->stats.bad_frames, ARRAY_LEN(bad));
    assert_int_equal(gw->n_deliveries, 0);
    feed(gw, "{\"type\":\"inbound\",\"event\":{}}\n");
    assert_int_equal(gw->n_deliveries, 1);
    assert_int_equal(gw->phase, GWC_READY);
}

static void random_bytes_never_harm(void **state)
{
    struct bhgw *gw = *state;
    static const char *const words[] = {"{",
                                        "}",
                                        "\"type\":",
                                        "\"inbound\"",
                                        ",",
                                        "\"event\":",
                                        "\"bufferId\":",
                                        "0",
                                        "\n",
                                        "[",
                                        "]",
                                        "null",
                                        "\"a\"",
                                        ":",
                                        "\"descriptor\"",
                                        "\"outbound_result\"",
                                        "\"result\":"};
    uint32_t seed = 7;

    feed(gw, DESCRIPTOR);
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525u + 1013904223u;
        feed(gw, words[(seed >> 16) % ARRAY_LEN(words)]);
    }
    assert_int_equal(gw->phase, GWC_READY);
}

static void a_frame_over_the_limit_ends_the_connection(void **state)
{
    struct bhgw *gw = *state;

    gw->opt.max_message_bytes = 1000;
    for (int i = 0; i < 20; i++)
        feed(gw, "01234567890123456789012345678901234567890123456789");
    assert_int_equal(gw->phase, GWC_HELLO);
    feed(gw, "x");
    assert_int_equal(gw->phase, GWC_BACKOFF);
    assert_int_equal(gw->line.n, 0);
}

/* ---- the handshake ---- */

static void a_descriptor_makes_it_ready_and_odd_lengths_become_4096(void **state)
{
    struct bhgw *gw = *state;

    feed(gw, DESCRIPTOR);
    assert_int_equal(bhgw_state(gw), BHGW_READY);
    assert_true(gw->had_hello);
    struct bhgw_descriptor *d = bhgw_descriptor_get(gw, NULL);
    assert_string_equal(d->platform, "web");
    assert_int_equal(d->max_message_length, 4096);
    assert_true(d->counts_utf16);
    assert_int_equal(d->n_supported_ops, 2);
    assert_string_equal(d->supported_ops[1], "edit");
    bhgw_descriptor_free(d);
    assert_null(bhgw_descriptor_get(gw, "discord"));
}

static void an_incomplete_descriptor_is_a_failed_handshake(void **state)
{
    struct bhgw *gw = *state;

    feed(gw, "{\"type\":\"descriptor\",\"descriptor\":{\"platform\":\"web\"}}\n");
    assert_int_equal(gw->phase, GWC_BACKOFF);
    assert_false(gw->had_hello);
}

static void close_4401_is_terminal_only_after_a_handshake(void **state)
{
    struct bhgw *gw = *state;

    gwc_drop(gw, 4401, "x");
    assert_int_equal(gw->phase, GWC_BACKOFF);
    assert_int_equal(bhgw_state(gw), BHGW_WAITING);
    gw->phase = GWC_HELLO;
    feed(gw, DESCRIPTOR);
    gwc_drop(gw, 1006, "x");
    assert_int_equal(gw->phase, GWC_BACKOFF);
    gw->phase = GWC_HELLO; /* the next socket sees no descriptor, and yet */
    gwc_drop(gw, 4401, "x");
    assert_int_equal(bhgw_state(gw), BHGW_DISABLED);
    assert_int_equal(bhgw_open(gw), BHGW_STOPPED);
    assert_int_equal(bhgw_wait_ready(gw, 1000), BHGW_STOPPED);
}

static void opening_while_ready_does_not_skip_a_later_backoff(void **state)
{
    struct bhgw *gw = *state;

    feed(gw, DESCRIPTOR);
    gw->dial_now = true; /* what bhgw_open() leaves behind */
    gwc_drop(gw, 1006, "lost");
    assert_int_equal(gw->phase, GWC_BACKOFF);
    assert_false(gw->dial_now);
}

/* ---- deliveries and acks ---- */

static void take_all(struct bhgw *gw, enum bhgw_verdict verdict)
{
    list_each (&gw->deliveries, it, next) {
        struct gwc_delivery *d = list_entry(it, struct gwc_delivery, link);
        list_remove(&d->link);
        gw->n_deliveries--;
        gw->delivery_bytes -= d->bytes;
        gwc_settle_locked(gw, d->number, verdict);
        free(d);
    }
}

static void acks_collect_into_one_message_in_order(void **state)
{
    struct bhgw *gw = *state;

    feed(gw, DESCRIPTOR "{\"type\":\"inbound\",\"bufferId\":\"b1\",\"event\":{}}\n"
                        "{\"type\":\"passthrough_forward\",\"bufferId\":\"b2\",\"forward\":{}}\n"
                        "{\"type\":\"inbound\",\"bufferId\":3,\"event\":{}}\n"
                        "{\"type\":\"inbound\",\"bufferId\":0,\"event\":{}}\n"
                        "{\"type\":\"inbound\",\"bufferId\":\"\",\"event\":{}}\n");
    assert_int_equal(gw->n_deliveries, 5);
    assert_int_equal(gw->n_acks, 0);
    take_all(gw, BHGW_ACK);
    assert_string_equal(buf_z(&gw->acks), "{\"type\":\"inbound_ack\",\"bufferId\":\"b1\"}\n"
                                          "{\"type\":\"inbound_ack\",\"bufferId\":\"b2\"}\n"
                                          "{\"type\":\"inbound_ack\",\"bufferId\":\"3\"}\n");
    assert_int_equal(gw->n_acks, 3);
}

static void a_repeated_delivery_is_acked_again_but_not_handed_over(void **state)
{
    struct bhgw *gw = *state;
    const char *frame = "{\"type\":\"inbound\",\"bufferId\":\"b1\",\"event\":{}}\n";

    feed(gw, frame);
    feed(gw, frame); /* still pending: neither queued twice nor acked early */
    assert_int_equal(gw->n_deliveries, 1);
    assert_int_equal(gw->n_acks, 0);
    take_all(gw, BHGW_ACK);
    assert_int_equal(gw->n_acks, 1);
    gw->socket_number = 2;
    feed(gw, frame);
    assert_int_equal(gw->n_deliveries, 0);
    assert_int_equal(gw->n_acks, 2);
    assert_int_equal(gw->stats.duplicates, 2);
}

static void an_ack_waits_for_the_repetition_when_its_socket_is_gone(void **state)
{
    struct bhgw *gw = *state;
    const char *frame = "{\"type\":\"inbound\",\"bufferId\":\"b1\",\"event\":{}}\n";

    feed(gw, frame);
    gwc_drop(gw, 1006, "lost");
    gw->phase = GWC_HELLO;
    gw->socket_number = 2;
    take_all(gw, BHGW_ACK);
    assert_int_equal(gw->n_acks, 0); /* the new socket did not bring it */
    feed(gw, frame);
    assert_int_equal(gw->n_acks, 1);
    assert_int_equal(gw->n_deliveries, 0);
}

static void a_later_ack_counts_once_and_a_release_lets_it_come_again(void **state)
{
    struct bhgw *gw = *state;
    const char *frame = "{\"type\":\"inbound\",\"bufferId\":\"b1\",\"event\":{}}\n";

    feed(gw, frame);
    uint64_t number = list_first(&gw->deliveries, struct gwc_delivery, link)->number;
    take_all(gw, BHGW_LATER);
    assert_int_equal(gw->n_acks, 0);
    assert_int_equal(bhgw_pending(gw), 1);
    bhgw_release(gw, number);
    assert_int_equal(bhgw_pending(gw), 0);
    bhgw_ack(gw, number); /* too late: it is not ours any more */
    assert_int_equal(gw->n_acks, 0);
    feed(gw, frame);
    assert_int_equal(gw->n_deliveries, 1);
    number = list_first(&gw->deliveries, struct gwc_delivery, link)->number;
    take_all(gw, BHGW_LATER);
    bhgw_ack(gw, number);
    bhgw_ack(gw, number);
    bhgw_ack(gw, 0);
    bhgw_ack(gw, 12345);
    assert_int_equal(gw->n_acks, 1);
}

static void too_many_pending_deliveries_are_left_with_the_connector_in_order(void **state)
{
    struct bhgw *gw = *state;
    char frame[128];

    gw->opt.max_pending = 10;
    for (int i = 0; i < 13; i++) {
        snprintf(frame, sizeof frame, "{\"type\":\"inbound\",\"bufferId\":\"b%d\",\"event\":{}}\n",
                 i);
        feed(gw, frame);
    }
    assert_true(gw->choked);
    assert_int_equal(gw->n_deliveries, 10);
    take_all(gw, BHGW_ACK);
    assert_int_equal(gw->n_acks, 10); /* the socket still carries acks */
    feed(gw, "{\"type\":\"inbound\",\"bufferId\":\"b13\",\"event\":{}}\n");
    assert_int_equal(gw->n_deliveries,
                     0); /* b10 must come first, and only a new socket brings it */
    feed(gw, "{\"type\":\"inbound\",\"bufferId\":\"b1\",\"event\":{}}\n");
    assert_int_equal(gw->n_acks, 11);
}

static void a_copied_event_outlives_what_it_was_read_from(void **state)
{
    const char *frame =
        "{\"type\":\"inbound\",\"bufferId\":\"b1\",\"event\":{\"text\":\"a\\u0000b\","
        "\"message_id\":17,\"media_urls\":[\"u1\",null,\"u2\"],\"source\":{\"platform\":"
        "\"telegram\",\"chat_id\":-100,\"chat_type\":\"dm\",\"guild_id\":\"g\"}}}";
    struct json_parser *p = json_parser_new();
    struct arena arena = ARENA_INIT;
    struct bhgw_event ev;
    struct json doc;

    assert_true(json_parse(p, str_of(frame), &doc));
    assert_true(gwc_event_read(doc, &arena, &ev));
    ev.delivery = 9;
    ev.json = frame;
    ev.json_bytes = strlen(frame);
    struct bhgw_event *copy = bhgw_event_copy(&ev);
    arena_done(&arena);
    json_parser_free(p);
    assert_int_equal(copy->text_bytes, 3);
    assert_memory_equal(copy->text, "a\0b", 4);
    assert_string_equal(copy->message_id, "17"); /* a number is understood */
    assert_string_equal(copy->chat_id, "-100");
    assert_int_equal(copy->n_media_urls, 2);
    assert_string_equal(copy->session_key, "agent:main:telegram:dm:-100");
    assert_string_equal(copy->scope_id, "g");
    assert_int_equal(copy->delivery, 9);
    assert_null(copy->user_name);
    bhgw_event_free(copy);
    bhgw_event_free(NULL);
}

/* ---- requests ---- */

static int results;
static char last_error[128];
static void on_done(void *ctx, struct bhgw *gw, const struct bhgw_result *r)
{
    results++;
    snprintf(last_error, sizeof last_error, "%s", r->error != NULL ? r->error : "");
}

/* The text of the one frame in conn.out, unmasked. */
static char *sent(struct bhgw *gw)
{
    unsigned char *p = (unsigned char *)gw->conn.out.p;
    size_t head = (p[1] & 0x7f) < 126 ? 2 : 4;
    size_t n = head == 2 ? p[1] & 0x7f : (size_t)p[2] << 8 | p[3];
    uint8_t mask[4];

    assert_int_equal(gw->conn.out.n, head + 4 + n);
    memcpy(mask, p + head, 4);
    ws_mask((char *)p + head + 4, n, mask, 0);
    char *text = xstrndup((char *)p + head + 4, n);
    buf_reset(&gw->conn.out);
    return text;
}

static void actions_carry_exactly_the_fields_of_their_op(void **state)
{
    struct bhgw *gw = *state;
    static const struct {
        const char *op, *expect;
    } cases[] = {
        {"send",
         "\"action\":{\"op\":\"send\",\"chat_id\":\"c\",\"content\":\"hi\\n\",\"reply_to\":null,"
         "\"metadata\":{}}"},
        {"edit",
         "\"action\":{\"op\":\"edit\",\"chat_id\":\"c\",\"content\":\"hi\\n\",\"metadata\":{}}"},
        {"novel", "\"action\":{\"op\":\"novel\",\"chat_id\":\"c\",\"content\":\"hi\\n\"}"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bhgw_action a = bhgw_action_init(cases[i].op);
        a.chat_id = "c";
        a.content = "hi\n";
        bhgw_request(gw, &a, NULL, NULL);
        char *text = sent(gw);
        assert_non_null(strstr(text, cases[i].expect));
        assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
        free(text);
    }
    struct bhgw_action a = bhgw_action_init("react");
    a.metadata = "{\"a\":\n[1]}", a.extra = "{\"emoji\":\"x\"}", a.platform = "web", a.bot_id = "b";
    bhgw_request(gw, &a, NULL, NULL);
    char *text = sent(gw);
    assert_non_null(strstr(text, "{\"op\":\"react\",\"metadata\":{\"a\":[1]},\"emoji\":\"x\"},"
                                 "\"platform\":\"web\",\"botId\":\"b\"}\n"));
    free(text);
}

static void a_raw_action_goes_out_as_one_line_or_not_at_all(void **state)
{
    struct bhgw *gw = *state;

    bhgw_request_json(gw, "{\"op\":\n\"x\",\n\"chat_id\":\"c\"}", NULL, NULL, NULL, NULL);
    char *text = sent(gw);
    assert_non_null(strstr(text, "\"action\":{\"op\":\"x\",\"chat_id\":\"c\"}"));
    free(text);
    struct bhgw_result *r = bhgw_request_json_wait(gw, "[1]", NULL, NULL);
    assert_false(r->success);
    assert_string_equal(r->error, "the action is not a JSON object");
    bhgw_result_free(r);
    assert_int_equal(gw->conn.out.n, 0);
}

static void without_a_connection_a_request_fails_with_the_contract_s_words(void **state)
{
    struct bhgw *gw = *state;

    gw->phase = GWC_OFF;
    struct bhgw_result *r = bhgw_send_wait(gw, "c", "hi", NULL, NULL);
    assert_false(r->success);
    assert_string_equal(r->error, "relay transport not connected");
    bhgw_result_free(r);
    assert_int_equal(bhgw_interrupt(gw, "key", NULL), BHGW_NOT_CONNECTED);
}

static void a_request_without_a_result_times_out_with_the_contract_s_words(void **state)
{
    struct bhgw *gw = *state;

    bhgw_send(gw, "c", "hi", NULL, NULL, on_done, NULL);
    gwc_requests_expire(gw, gwc_now_ms() + 29000);
    assert_true(list_is_empty(&gw->notices));
    gwc_requests_expire(gw, gwc_now_ms() + 31000);
    struct gwc_notice *n = list_first(&gw->notices, struct gwc_notice, link);
    assert_string_equal(n->request->result->error, "relay outbound timed out");
    assert_int_equal(gw->stats.timeouts, 1);
}

static void a_result_may_come_on_the_next_connection(void **state)
{
    struct bhgw *gw = *state;
    char frame[256];

    bhgw_edit(gw, "c", "m7", "x", NULL, on_done, NULL);
    char *id = xstrdup(list_first(&gw->requests, struct gwc_request, link)->id);
    assert_int_equal(strlen(id), 32);
    gwc_drop(gw, 1006, "lost");
    assert_false(list_is_empty(&gw->requests));
    gw->phase = GWC_HELLO;
    snprintf(frame, sizeof frame,
             "{\"type\":\"outbound_result\",\"requestId\":\"%s\",\"result\":{\"success\":1}}\n",
             id);
    feed(gw, frame);
    struct gwc_notice *n = list_first(&gw->notices, struct gwc_notice, link);
    assert_true(n->request->result->success);
    assert_string_equal(n->request->result->message_id, "m7"); /* an edit keeps its id */
    feed(gw, frame);                                           /* late: nobody waits, no harm */
    free(id);
}

static void done_runs_exactly_once_even_when_the_handle_is_freed(void **state)
{
    struct bhgw_options opt = options();
    struct bhgw *gw = bhgw_new(&opt, NULL, 0);

    results = 0;
    for (int i = 0; i < 10; i++)
        bhgw_send(gw, "c", "hi", NULL, NULL, on_done, NULL);
    assert_int_equal(results, 0); /* never inside the call */
    bhgw_free(gw);
    assert_int_equal(results, 10);
    assert_string_equal(last_error, BHGW_ERROR_NOT_CONNECTED);
}

static void closing_a_handle_that_was_never_opened_is_fine(void **state)
{
    struct bhgw_options opt = options();
    struct bhgw *gw = bhgw_new(&opt, NULL, 0);

    assert_int_equal(bhgw_state(gw), BHGW_OFF);
    bhgw_close(gw);
    bhgw_close(gw);
    assert_int_equal(bhgw_state(gw), BHGW_CLOSED);
    assert_int_equal(bhgw_open(gw), BHGW_STOPPED);
    assert_int_equal(bhgw_go_idle_wait(gw), BHGW_STOPPED);
    bhgw_free(gw);
    bhgw_free(NULL);
}

static void a_descriptor_has_the_defaults_of_the_contract(void **state)
{
    struct bhgw *gw = *state;

    gwc_bytes(gw, STR(DESCRIPTOR));
    struct bhgw_descriptor *d = bhgw_descriptor_get(gw, NULL);
    assert_string_equal(d->emoji, "\xf0\x9f\x94\x8c");
    assert_string_equal(d->platform_hint, "");
    assert_false(d->pii_safe);
    bhgw_descriptor_free(d);
    gwc_bytes(
        gw,
        STR("{\"type\":\"descriptor\",\"descriptor\":{\"contract_version\":1,\"platform\":\"sms\","
            "\"label\":\"S\",\"max_message_length\":9,\"supports_draft_streaming\":false,"
            "\"supports_edit\":false,\"supports_threads\":false,\"markdown_dialect\":\"plain\","
            "\"len_unit\":\"chars\",\"emoji\":\"S\",\"pii_safe\":true}}\n"));
    d = bhgw_descriptor_get(gw, "sms");
    assert_string_equal(d->emoji, "S");
    assert_true(d->pii_safe);
    bhgw_descriptor_free(d);
}

static struct bhgw_event *event_of(const char *platform, const char *body)
{
    const struct bhgw_passthrough fwd = {.platform = platform,
                                         .bot_id = "app",
                                         .body = body,
                                         .body_bytes = strlen(body),
                                         .buffer_id = "b1",
                                         .delivery = 7};

    return bhgw_passthrough_event(&fwd);
}

static void a_webhook_s_event_has_the_key_a_follow_up_takes(void **state)
{
    struct bhgw_event *ev =
        event_of("discord",
                 "{\"id\":\"i\",\"channel_id\":\"c\",\"guild_id\":\"g\",\"member\":"
                 "{\"user\":{\"id\":\"u\",\"username\":\"ann\"}},\"user\":{\"id\":\"x\"}}");
    assert_string_equal(ev->session_key, "agent:main:relay:channel:c:u");
    assert_string_equal(ev->chat_id, "c");
    assert_string_equal(ev->scope_id, "g");
    assert_string_equal(ev->user_name, "ann");
    assert_string_equal(ev->buffer_id, "b1");
    assert_string_equal(ev->bot_id, "app");
    assert_int_equal(ev->delivery, 7);
    bhgw_event_free(ev);
    ev = event_of("discord", "{\"channel_id\":\"d\",\"user\":{\"id\":\"u\"}}");
    assert_string_equal(ev->session_key, "agent:main:relay:dm:d");
    bhgw_event_free(ev);
    static const char *const odd[] = {"", "[]", "7", "{\"channel_id\":7,\"member\":[],\"user\":1}"};
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        ev = event_of(i % 2 == 0 ? "discord" : "twilio", odd[i]);
        assert_string_equal(ev->chat_id, "");
        assert_string_equal(ev->text, "");
        bhgw_event_free(ev);
    }
}

#define CONNECTED(f) cmocka_unit_test_setup_teardown(f, with_connected_handle, free_handle)

static void a_connection_lost_inside_a_ping_leaves_nothing_behind(void **state)
{
    struct gwc_conn c = {.fd = CURL_SOCKET_BAD};
    char part[] = "\x89\x05he", *p = part;
    size_t n = sizeof part - 1;

    ws_decoder_init(&c.decoder, false, 1000);
    while (ws_decode(&c.decoder, &p, &n).item != WS_ITEM_MORE)
        ;
    assert_non_null(c.decoder.control);
    gwc_conn_close(&c);
    assert_null(c.decoder.control);
}

UNIT(sdk_test_client)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_option_that_makes_no_sense_is_refused_by_name),
        cmocka_unit_test(an_older_and_shorter_options_struct_is_understood),
        cmocka_unit_test(a_token_made_by_the_helper_is_one_the_connector_believes),
        cmocka_unit_test(a_connection_lost_inside_a_ping_leaves_nothing_behind),
        cmocka_unit_test(backoff_doubles_up_to_its_cap_and_jitters_within_half),
        CONNECTED(lines_and_messages_need_not_coincide),
        CONNECTED(frames_of_the_wrong_shape_are_skipped_and_the_next_one_counts),
        CONNECTED(random_bytes_never_harm),
        CONNECTED(a_frame_over_the_limit_ends_the_connection),
        CONNECTED(a_descriptor_makes_it_ready_and_odd_lengths_become_4096),
        CONNECTED(an_incomplete_descriptor_is_a_failed_handshake),
        CONNECTED(a_descriptor_has_the_defaults_of_the_contract),
        cmocka_unit_test(a_webhook_s_event_has_the_key_a_follow_up_takes),
        CONNECTED(close_4401_is_terminal_only_after_a_handshake),
        CONNECTED(opening_while_ready_does_not_skip_a_later_backoff),
        CONNECTED(acks_collect_into_one_message_in_order),
        CONNECTED(a_repeated_delivery_is_acked_again_but_not_handed_over),
        CONNECTED(an_ack_waits_for_the_repetition_when_its_socket_is_gone),
        CONNECTED(a_later_ack_counts_once_and_a_release_lets_it_come_again),
        CONNECTED(too_many_pending_deliveries_are_left_with_the_connector_in_order),
        cmocka_unit_test(a_copied_event_outlives_what_it_was_read_from),
        CONNECTED(actions_carry_exactly_the_fields_of_their_op),
        CONNECTED(a_raw_action_goes_out_as_one_line_or_not_at_all),
        CONNECTED(without_a_connection_a_request_fails_with_the_contract_s_words),
        CONNECTED(a_request_without_a_result_times_out_with_the_contract_s_words),
        CONNECTED(a_result_may_come_on_the_next_connection),
        cmocka_unit_test(done_runs_exactly_once_even_when_the_handle_is_freed),
        cmocka_unit_test(closing_a_handle_that_was_never_opened_is_fine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
