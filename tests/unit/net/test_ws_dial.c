/* Promises of net/ws_codec.h about dialling. */
#include "unit.h"
#include "base/mem.h"
#include "core/contract.h"
#include "net/ws_codec.h"

/* The example of RFC 6455, section 1.3. */
#define KEY STR("dGhlIHNhbXBsZSBub25jZQ==")
#define ACCEPT "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
#define UP "Upgrade: websocket\r\nConnection: Upgrade\r\n"

static void a_good_101_is_accepted(void **state)
{
    static const char *const good[] = {
        "HTTP/1.1 101 Switching Protocols\r\n" UP ACCEPT "\r\n",
        "HTTP/1.1 101\r\nupgrade: WebSocket\r\nconnection: keep-alive, upgrade\r\n" ACCEPT "\r\n",
    };
    int status;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(ws_dial_head_bytes(str_of(good[i])), strlen(good[i]));
        assert_true(ws_dial_accepted(str_of(good[i]), KEY, &status));
    }
}

static void anything_but_a_true_101_is_refused(void **state)
{
    static const struct {
        const char *head;
        int status;
    } bad[] = {
        {"HTTP/1.1 401 Unauthorized\r\n\r\n", 401},
        {"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\r\n", 503},
        {"HTTP/1.1 301 Moved\r\nLocation: /relay\r\n\r\n", 301},
        {"HTTP/1.1 101 X\r\n" UP "\r\n", 0},
        {"HTTP/1.1 101 X\r\n" UP "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n", 0},
        {"HTTP/1.1 101 X\r\nConnection: Upgrade\r\n" ACCEPT "\r\n", 0},
        {"HTTP/1.1 101 X\r\nUpgrade: websocket\r\n" ACCEPT "\r\n", 0},
        {"HTTP/1.1 101 X\r\n" UP ACCEPT "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", 0},
        {"HTTP/1.0 101 X\r\n" UP ACCEPT "\r\n", 0},
        {"SSH-2.0-OpenSSH\r\n\r\n", 0},
        {"HTTP/1.1 1010 X\r\n" UP ACCEPT "\r\n", 0},
        {"\r\n\r\n", 0},
        {"HTTP/1.1 \r\n\r\n", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int status = -1;
        assert_false(ws_dial_accepted(str_of(bad[i].head), KEY, &status));
        assert_int_equal(status, bad[i].status);
    }
}

static void a_head_is_whole_only_with_its_empty_line(void **state)
{
    assert_int_equal(ws_dial_head_bytes(STR("")), 0);
    assert_int_equal(ws_dial_head_bytes(STR("HTTP/1.1 101 X\r\nA: b\r\n\r")), 0);
    assert_int_equal(ws_dial_head_bytes(STR("X\r\n\r\n{more")), 5);
}

static void a_request_asks_for_what_its_answer_is_held_against(void **state)
{
    static const char *const headers[] = {"Authorization: Bearer tok", "X-Y: z", NULL};
    const struct ws_dial d = {STR("/x/relay"), STR("c:1"), STR("me/1"), headers},
                         bare = {STR("?v=1"), STR("c"), STR("me/1"), NULL};
    char key[WS_DIAL_KEY_BYTES], other[WS_DIAL_KEY_BYTES], accept[29];
    struct buf out = BUF_INIT, want = BUF_INIT;
    int status;

    ws_dial_request(&out, &d, key);
    buf_printf(&want,
               "GET /x/relay HTTP/1.1\r\nHost: c:1\r\nUpgrade: websocket\r\n"
               "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n"
               "User-Agent: me/1\r\nAuthorization: Bearer tok\r\nX-Y: z\r\n\r\n",
               key);
    assert_string_equal(buf_z(&out), buf_z(&want));
    buf_reset(&out);
    ws_dial_request(&out, &bare, other);
    assert_memory_equal(out.p, "GET /?v=1 HTTP/1.1\r\n", 20);
    assert_null(strstr(buf_z(&out), "Authorization"));
    assert_string_not_equal(key, other);
    ws_accept_key(str_of(key), accept);
    buf_reset(&out);
    buf_printf(&out, "HTTP/1.1 101 X\r\n" UP "Sec-WebSocket-Accept: %s\r\n\r\n", accept);
    assert_true(ws_dial_accepted(buf_str(&out), str_of(key), &status));
    assert_false(ws_dial_accepted(buf_str(&out), str_of(other), &status));
    buf_done(&out);
    buf_done(&want);
}

/* What a server reads of it. */
static struct ws_decoded decode(struct buf *frames)
{
    static struct ws_decoder d;
    char *p = frames->p;
    size_t n = frames->n;

    ws_decoder_init(&d, true, 1000);
    struct ws_decoded it = ws_decode(&d, &p, &n);
    assert_int_equal(n, 0);
    return it;
}

static void frames_are_masked_and_read_back(void **state)
{
    struct buf out = BUF_INIT;

    ws_dial_frame(&out, WS_TEXT, STR("hello"));
    assert_int_equal((uint8_t)out.p[1] & 0x80, 0x80);
    struct ws_decoded it = decode(&out);
    assert_int_equal(it.item, WS_ITEM_DATA);
    assert_true(it.end && it.text && str_eq(it.bytes, STR("hello")));
    buf_reset(&out);
    ws_dial_close(&out, 4401);
    it = decode(&out);
    assert_int_equal(it.item, WS_ITEM_CLOSE);
    assert_int_equal(it.code, 4401);
    buf_reset(&out);
    ws_dial_close(&out, CLOSE_CODE_NONE);
    assert_int_equal(decode(&out).code, CLOSE_CODE_NONE);
    buf_done(&out);
}

UNIT(net_test_ws_dial)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_101_is_accepted),
        cmocka_unit_test(anything_but_a_true_101_is_refused),
        cmocka_unit_test(a_head_is_whole_only_with_its_empty_line),
        cmocka_unit_test(a_request_asks_for_what_its_answer_is_held_against),
        cmocka_unit_test(frames_are_masked_and_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
