/* Promises of platform/email/imap_codec.h. */
#include "unit.h"
#include "base/mem.h"
#include "platform/email/imap_codec.h"

static struct imap_reader reader;
static struct imap_response r;

static int setup(void **state)
{
    reader = (struct imap_reader){.max_body = 100};
    return 0;
}

static int teardown(void **state)
{
    imap_reader_done(&reader);
    return 0;
}

/* Feeds @text in pieces of @step bytes; the last response is in @r. */
static enum imap_fed feed_by(const char *text, size_t step, size_t *ret_n)
{
    struct str all = str_of(text);
    enum imap_fed fed = IMAP_MORE;

    *ret_n = 0;
    while (all.n > 0) {
        struct str piece = str_make(all.p, all.n < step ? all.n : step);
        all = str_skip(all, piece.n);
        struct imap_response one;
        while ((fed = imap_feed(&reader, &piece, &one)) == IMAP_RESPONSE) {
            r = one;
            ++*ret_n;
            if (piece.n == 0 && all.n == 0)
                return fed;
        }
        if (fed == IMAP_BROKEN)
            return fed;
    }
    return fed;
}

static enum imap_fed feed(const char *text)
{
    size_t n;

    return feed_by(text, 1 << 20, &n);
}

static void test_responses(void **state)
{
    assert_int_equal(feed("* 12 EXISTS\r\n"), IMAP_RESPONSE);
    assert_true(r.kind == IMAP_EXISTS && r.number == 12);
    assert_int_equal(feed("* 3 EXPUNGE\r\n"), IMAP_RESPONSE);
    assert_true(r.kind == IMAP_EXPUNGE && r.number == 3);
    assert_int_equal(feed("* OK [UIDVALIDITY 3857529045] UIDs valid\r\n"), IMAP_RESPONSE);
    assert_true(r.kind == IMAP_STATUS && r.code_value == 3857529045);
    assert_true(str_eq(r.code, STR("UIDVALIDITY")));
    assert_int_equal(feed("b7 NO [TRYCREATE] No such folder\r\n"), IMAP_RESPONSE);
    assert_true(r.kind == IMAP_TAGGED && r.tag == 7 && r.status == IMAP_NO);
    assert_true(str_eq(r.text, STR("No such folder")));
    assert_int_equal(feed("+ idling\r\n"), IMAP_RESPONSE);
    assert_int_equal(r.kind, IMAP_CONTINUE);
    assert_int_equal(feed("* BYE\r\n"), IMAP_RESPONSE);
    assert_true(r.kind == IMAP_STATUS && r.status == IMAP_BYE);
    assert_int_equal(feed("* CAPABILITY IMAP4rev1 IDLE\r\n"), IMAP_RESPONSE);
    assert_true(r.kind == IMAP_CAPABILITY && str_contains(r.text, STR("IDLE")));
    assert_int_equal(feed("* LIST () \"/\" \"x\"\r\n"), IMAP_RESPONSE);
    assert_int_equal(r.kind, IMAP_OTHER);
}

static void test_a_mail_arrives_in_pieces(void **state)
{
    static const char text[] =
        "* 5 FETCH (FLAGS (\\Seen \"a)b\") UID 42 RFC822.SIZE 17 INTERNALDATE \"17-Jul-1996 "
        "02:44:25 -0700\" ENVELOPE {4}\r\na)\r\n BODY[] {17}\r\nA: b\r\n\r\nx } {9}\r\nb8 OK\r\n "
        "X 1)\r\nb8 OK Fetched\r\n";

    for (size_t step = 1; step < sizeof text; step++) {
        size_t n;
        struct imap_reader fresh = {.max_body = 100};
        imap_reader_done(&reader);
        reader = fresh;
        /* the body is "A: b\r\n\r\nx } {9}\r\n" */
        struct str all = str_make(text, sizeof text - 1);
        struct imap_response one = {0};
        bool seen = false;
        n = 0;
        while (all.n > 0) {
            struct str piece = str_make(all.p, all.n < step ? all.n : step);
            all = str_skip(all, piece.n);
            while (imap_feed(&reader, &piece, &one) == IMAP_RESPONSE) {
                if (n++ > 0)
                    continue;
                seen = one.kind == IMAP_FETCH && one.number == 5 && one.uid == 42 &&
                       one.size == 17 && one.date_ms == 837596665000 && one.has_body &&
                       str_eq(buf_str(&reader.body), STR("A: b\r\n\r\nx } {9}\r\n"));
            }
        }
        if (!seen)
            fail_msg("in pieces of %zu: responses=%zu body=%.*s", step, n,
                     STR_FMT(buf_str(&reader.body)));
    }
}

static void test_bodies_that_are_not_literals(void **state)
{
    assert_int_equal(feed("* 1 FETCH (UID 2 BODY[] \"a \\\"b\\\"\")\r\n"), IMAP_RESPONSE);
    assert_true(r.has_body && str_eq(buf_str(&reader.body), STR("a \"b\"")));
    assert_int_equal(feed("* 1 FETCH (UID 2 BODY[] NIL)\r\n"), IMAP_RESPONSE);
    assert_true(!r.has_body && !r.body_too_long);
    assert_int_equal(feed("* 1 FETCH (BODY[] {0}\r\n UID 7)\r\n"), IMAP_RESPONSE);
    assert_true(r.has_body && r.uid == 7 && reader.body.n == 0);
}

static void test_limits(void **state)
{
    char body[256] = "* 1 FETCH (BODY[] {101}\r\n";
    size_t n = strlen(body);

    memset(body + n, 'x', 101);
    memcpy(body + n + 101, " UID 9)\r\n", 10);
    assert_int_equal(feed(body), IMAP_RESPONSE);
    assert_true(r.body_too_long && !r.has_body && r.uid == 9 && reader.body.n == 0);
    char *line = malloc(IMAP_MAX_LINE + 100);
    memset(line, 'y', IMAP_MAX_LINE + 99);
    line[IMAP_MAX_LINE + 99] = '\0';
    assert_int_equal(feed(line), IMAP_BROKEN);
    free(line);
}

static void test_what_is_not_imap(void **state)
{
    static const char *const wrong[] = {"HTTP/1.1 200 OK\r\n", "\r\n",       "b OK\r\n",
                                        "b0 OK\r\n",           "b1 BYE\r\n", "x1 OK\r\n"};

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        setup(NULL);
        if (feed(wrong[i]) != IMAP_BROKEN)
            fail_msg("%s", wrong[i]);
        teardown(NULL);
    }
    setup(NULL);
}

static void test_dates_and_quotes(void **state)
{
    BUF_LOCAL out = BUF_INIT;
    int64_t ms;

    assert_true(imap_date(STR(" 1-Jan-1970 00:00:01 +0000"), &ms) && ms == 1000);
    assert_true(imap_date(STR("16-Nov-2026 23:00:00 +0100"), &ms) && ms == 1794866400000);
    assert_false(imap_date(STR("16-Foo-2026 23:00:00 +0100"), &ms));
    assert_false(imap_date(STR("16-Nov-2026"), &ms));
    assert_true(imap_quote(&out, STR("a \"b\\")));
    assert_true(str_eq(buf_str(&out), STR("\"a \\\"b\\\\\"")));
    assert_false(imap_quote(&out, STR("a\r\nb2 DELETE x")));
}

UNIT(platform_email_test_imap_codec)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_responses), T(test_a_mail_arrives_in_pieces), T(test_bodies_that_are_not_literals),
        T(test_limits),    T(test_what_is_not_imap),         T(test_dates_and_quotes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
