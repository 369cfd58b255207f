/* Promises of sdk/src/options.h. */
#include "unit.h"
#include "../../../sdk/src/options.h"
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

UNIT(sdk_test_url)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_configured_url_gives_both_urls),
        cmocka_unit_test(what_cannot_be_dialled_is_refused_with_a_reason),
        cmocka_unit_test(the_public_helpers_answer_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
