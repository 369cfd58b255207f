/* Promises of base/url.h. */
#include "unit.h"
#include "base/buf.h"
#include "base/url.h"

static void add(struct buf *out, struct str part)
{
    if (part.p == NULL)
        buf_add_z(out, " -");
    else
        buf_printf(out, " [%.*s]", STR_FMT(part));
}

static void a_url_is_taken_apart(void **state)
{
    static const char *const table[][2] = {
        {"https://host", " [https] - - [host] [host] 0 []"},
        {"wss://u:p@h:8443/a?b#c", " [wss] [u] [p] [h:8443] [h] 8443 [/a?b]"},
        {"redis://:p%40x@[::1]:99/1", " [redis] [] [p%40x] [[::1]:99] [::1] 99 [/1]"},
        {"http://u@h?q", " [http] [u] - [h] [h] 0 [?q]"},
        {"http://a@b@h:/", " [http] [a@b] - [h:] [h] 0 [/]"},
    };
    struct buf out = BUF_INIT;
    struct url u;

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        buf_reset(&out);
        assert_null(url_split(str_of(table[i][0]), &u));
        add(&out, u.scheme);
        add(&out, u.user);
        add(&out, u.password);
        add(&out, u.authority);
        add(&out, u.host);
        buf_printf(&out, " %d", u.port);
        add(&out, u.target);
        assert_string_equal(buf_z(&out), table[i][1]);
    }
    buf_done(&out);
}

static void what_is_no_url_is_refused_with_a_reason(void **state)
{
    static const char *const bad[] = {"",         "host",         "host:1",
                                      "http:/h",  "http://",      "http://:1",
                                      "http:///", "http://[",     "http://[::1]1",
                                      "h://h:0",  "h://h:65536",  "h://h:p",
                                      "h://a b",  "h://h\n",      "h://h\x7f",
                                      "h://u:p@", "h://[]:1/path"};
    struct url u;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (url_split(str_of(bad[i]), &u) == NULL)
            fail_msg("taken: %s", bad[i]);
}

UNIT(base_test_url)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_is_taken_apart),
        cmocka_unit_test(what_is_no_url_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
