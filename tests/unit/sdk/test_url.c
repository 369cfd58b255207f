/* Promises of sdk/src/url.h: URL rules, the upgrade as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "../../../sdk/src/url.h"
#include "base/mem.h"
#include "bellhop/gateway.h"

static void one_configured_url_gives_both_urls(void **state)
{
    static const struct {
        const char *configured, *ws, *http, *host, *path;
    } cases[] = {
        {"https://c.example", "wss://c.example/relay", "https://c.example", "c.example", "/relay"},
        {"wss://c.example/relay/", "wss://c.example/relay", "https://c.example", "c.example",
         "/relay"},
        {"http://c:8080/x", "ws://c:8080/x/relay", "http://c:8080/x", "c:8080", "/x/relay"},
        {"ws://c///", "ws://c/relay", "http://c", "c", "/relay"},
        {"http://c/x/relay", "ws://c/x/relay", "http://c/x", "c", "/x/relay"},
        {"http://c/relay/relay", "ws://c/relay/relay", "http://c/relay", "c", "/relay/relay"},
        {"http://c/myrelay", "ws://c/myrelay/relay", "http://c/myrelay", "c", "/myrelay/relay"},
        {"http://relay", "ws://relay/relay", "http://relay", "relay", "/relay"},
        {"  https://[::1]:7077 \n", "wss://[::1]:7077/relay", "https://[::1]:7077", "[::1]:7077",
         "/relay"},
        {"HTTPS://C.example", "wss://C.example/relay", "https://C.example", "C.example", "/relay"},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct gwc_url url;
        const char *why;
        assert_true(gwc_url_read(&url, cases[i].configured, &why));
        assert_string_equal(url.ws, cases[i].ws);
        assert_string_equal(url.http, cases[i].http);
        assert_string_equal(url.host, cases[i].host);
        assert_string_equal(url.path, cases[i].path);
        assert_memory_equal(url.dial, "http", 4);
        gwc_url_done(&url);
    }
}

static void what_cannot_be_dialled_is_refused_with_a_reason(void **state)
{
    static const char *const bad[] = {
        "",
        "c.example",
        "ftp://c",
        "https://",
        "https:///relay",
        "http://",
        "http://u:p@c/",
        "http://c?x",
        "http://c/#frag",
        "http://c/a b",
        "http://c\r\nX: y",
        "http://c/\xc3\xa9",
        "://c",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct gwc_url url;
        const char *why = NULL;
        assert_false(gwc_url_read(&url, bad[i], &why));
        assert_non_null(why);
        assert_null(bhgw_ws_url(bad[i]));
    }
}

static void the_public_helpers_answer_the_same(void **state)
{
    char *ws = bhgw_ws_url("https://c.example/"), *http = bhgw_http_url("wss://c.example/relay");

    assert_string_equal(ws, "wss://c.example/relay");
    assert_string_equal(http, "https://c.example");
    bhgw_string_free(ws);
    bhgw_string_free(http);
}

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
        assert_int_equal(gwc_upgrade_head_bytes(str_of(good[i])), strlen(good[i]));
        assert_true(gwc_upgrade_accepted(str_of(good[i]), KEY, &status));
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
        {"\r\n\r\n", 0},
        {"HTTP/1.1 \r\n\r\n", 0},
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int status = -1;
        assert_false(gwc_upgrade_accepted(str_of(bad[i].head), KEY, &status));
        assert_int_equal(status, bad[i].status);
    }
}

static void a_head_is_whole_only_with_its_empty_line(void **state)
{
    assert_int_equal(gwc_upgrade_head_bytes(STR("")), 0);
    assert_int_equal(gwc_upgrade_head_bytes(STR("HTTP/1.1 101 X\r\nA: b\r\n\r")), 0);
    assert_int_equal(gwc_upgrade_head_bytes(STR("X\r\n\r\n{more")), 5);
}

static void the_request_carries_a_credential_only_when_there_is_one(void **state)
{
    struct gwc_url url;
    const char *why;
    struct buf out = BUF_INIT;

    assert_true(gwc_url_read(&url, "http://c:1/x", &why));
    gwc_upgrade_request(&out, &url, KEY, STR("tok"), STR("me/1"));
    assert_string_equal(buf_z(&out), "GET /x/relay HTTP/1.1\r\nHost: c:1\r\nUpgrade: websocket\r\n"
                                     "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                                     "Authorization: Bearer tok\r\nUser-Agent: me/1\r\n\r\n");
    buf_reset(&out);
    gwc_upgrade_request(&out, &url, KEY, STR_NULL, STR("me/1"));
    assert_null(strstr(buf_z(&out), "Authorization"));
    buf_done(&out);
    gwc_url_done(&url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_configured_url_gives_both_urls),
        cmocka_unit_test(what_cannot_be_dialled_is_refused_with_a_reason),
        cmocka_unit_test(the_public_helpers_answer_the_same),
        cmocka_unit_test(a_good_101_is_accepted),
        cmocka_unit_test(anything_but_a_true_101_is_refused),
        cmocka_unit_test(a_head_is_whole_only_with_its_empty_line),
        cmocka_unit_test(the_request_carries_a_credential_only_when_there_is_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
