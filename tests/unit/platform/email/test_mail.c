/* Promises of platform/email/mime.h, text.h and compose.h. */
#include "unit.h"
#include <sys/resource.h>
#include "base/mem.h"
#include "platform/email/compose.h"
#include "platform/email/mime.h"
#include "platform/email/text.h"

#define PROOF "Authentication-Results: mx.our.test; dkim=pass header.d=people.test\r\n"
#define HEAD PROOF "Message-ID: <1@people.test>\r\nSubject: Hi\r\n"
#define FROM "From: Alice <alice@people.test>\r\n"

static struct mail m;
static struct auth_list *list;

static int setup(void **state)
{
    list = auth_list_load(); /* loads GMime, too */
    return list != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    mail_done(&m);
    auth_list_free(list);
    return 0;
}

static const char *read_with(const char *text, bool allow_lists)
{
    static const struct str own[] = {STR("login@our.test")};
    struct mail_rules rules = {.bot = STR("desk@our.test"),
                               .own = own,
                               .n_own = 1,
                               .authserv_id = STR("mx.our.test"),
                               .suffixes = list,
                               .allow_lists = allow_lists};

    mail_done(&m);
    mail_read(&m, str_of(text), &rules);
    return m.refused;
}

static const char *read_text(const char *text)
{
    assert_null(read_with(text, false));
    return m.text;
}

static const struct {
    const char *text, *why; /* NULL: taken */
} corpus[] = {
    {HEAD FROM "\r\nhello", NULL},
    {HEAD "From: alice@people.test\r\nAuto-Submitted: no\r\n\r\nhello", NULL},
    /* who wrote it */
    {FROM "\r\nhello", "no Authentication-Results"},
    {"Authentication-Results: evil.test; dkim=pass header.d=people.test\r\n" FROM "\r\nx",
     "no Authentication-Results"},
    {"Authentication-Results: mx.our.test; dkim=none\r\n" HEAD FROM "\r\nx", "prove no sender"},
    {"Authentication-Results: mx.our.test;\r\n\tdkim=none\r\n" HEAD FROM "\r\nx",
     "prove no sender"},
    {HEAD "From: alice@people.test\r\nFrom: bob@people.test\r\n\r\nx", "one author"},
    {HEAD "From: alice@people.test, bob@people.test\r\n\r\nx", "one author"},
    {HEAD "From: \r\n\r\nx", "one author"},
    {HEAD "From: people: alice@people.test;\r\n\r\nx", "one author"},
    {HEAD "From: \"alice@people.test\" <eve@evil.test>\r\n\r\nx", "prove no sender"},
    {HEAD "From: alice@people.test <eve@evil.test>\r\n\r\nx", ""},
    {HEAD "From: <alice@people.test>, <eve@evil.test>\r\n\r\nx", "one author"},
    {HEAD "From: =?utf-8?q?alice=40people.test?= <eve@evil.test>\r\n\r\nx", "prove no sender"},
    {HEAD "From: eve@evil.test\r\n\t(alice@people.test)\r\n\r\nx", "prove no sender"},
    {HEAD "Sender: alice@people.test\r\nFrom: eve@evil.test\r\n\r\nx", "prove no sender"},
    {HEAD "From: alice@people.test.evil.test\r\n\r\nx", "prove no sender"},
    {HEAD "From: \"alice@people.test \"@evil.test\r\n\r\nx", "one author"},
    {HEAD "From: alice\r\n\r\nx", "one author"},
    {"Subject: x\r\n\r\n" PROOF FROM "\r\nx", "one author"},
    /* loops */
    {HEAD "From: desk@our.test\r\n\r\nx", "own address"},
    {HEAD "From: Login@Our.Test\r\n\r\nx", "own address"},
    {HEAD FROM "Auto-Submitted: auto-replied (vacation)\r\n\r\nx", "Auto-Submitted"},
    {HEAD FROM "auto-submitted:\r\n auto-generated\r\n\r\nx", "Auto-Submitted"},
    {HEAD FROM "Precedence: bulk\r\n\r\nx", "bulk"},
    {HEAD FROM "Precedence: list\r\n\r\nx", "bulk"},
    {HEAD FROM "Precedence: junk\r\n\r\nx", "bulk"},
    {HEAD FROM "Precedence: auto_reply\r\n\r\nx", "bulk"},
    {HEAD FROM "X-Autoreply: yes\r\n\r\nx", "wrote it"},
    {HEAD FROM "X-Autorespond: out\r\n\r\nx", "wrote it"},
    {HEAD FROM "X-Auto-Response-Suppress: All\r\n\r\nx", "wrote it"},
    {HEAD FROM "X-Auto-Response-Suppress: None\r\n\r\nx", NULL},
    {HEAD FROM "List-Id: <l.people.test>\r\n\r\nx", "mailing list"},
    {"Return-Path: <>\r\n" HEAD FROM "\r\nx", "empty return path"},
    {HEAD "From: MAILER-DAEMON@people.test\r\n\r\nx", "mail server"},
    {HEAD FROM "Content-Type: multipart/report; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b--\r\n",
     "report"},
    /* nothing to say */
    {PROOF FROM "\r\n \r\n", "empty"},
};

static void test_who_may_write(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(corpus); i++) {
        const char *why = read_with(corpus[i].text, false);
        if ((why == NULL) != (corpus[i].why == NULL) ||
            (why != NULL && strstr(why, corpus[i].why) == NULL))
            fail_msg("%s\nis %s, not %s", corpus[i].text, why != NULL ? why : "taken",
                     corpus[i].why != NULL ? corpus[i].why : "taken");
    }
    assert_null(read_with(HEAD FROM "List-Id: <l.people.test>\r\nPrecedence: bulk\r\n\r\nx", true));
    assert_non_null(read_with(HEAD FROM "Precedence: bulk\r\n\r\nx", true));
    assert_non_null(
        read_with(HEAD FROM "List-Id: <l>\r\nAuto-Submitted: auto-replied\r\n\r\nx", true));
}

/* The server's own header on top decides, even one that cannot be read. */
static void test_no_header_below_the_first_one_counts(void **state)
{
    BUF_LOCAL text = BUF_INIT;

    assert_non_null(
        strstr(read_with("Authentication-Results: mx.our.test (\r\n" HEAD FROM "\r\nx", false),
               "cannot be read"));
    buf_add_z(&text, "Authentication-Results: mx.our.test");
    while (text.n < AUTH_MAX_HEADER + 100)
        buf_add_z(&text, ";\r\n dkim=fail header.d=evil.test");
    buf_add_z(&text, "\r\n" HEAD FROM "\r\nx");
    assert_non_null(strstr(read_with(buf_z(&text), false), "cannot be read"));
}

static void test_names_threads_and_texts(void **state)
{
    assert_string_equal(read_text(HEAD "From: =?utf-8?q?J=C3=B6rg=0D=0AX?= <Alice@People.Test>\r\n"
                                       "Date: Mon, 16 Nov 2026 22:00:00 +0000\r\n\r\nhello\r\n"),
                        "[Subject: Hi]\n\nhello");
    assert_string_equal(m.from, "alice@people.test");
    assert_string_equal(m.name, "J\u00f6rg X");
    assert_string_equal(m.root, "<1@people.test>");
    assert_true(m.is_first && m.date_ms == 1794866400000);
    assert_string_equal(
        read_text(HEAD
                  "From: \"bank@bank.test\" <alice@people.test>\r\nIn-Reply-To: <c@our.test>\r\n"
                  "References: <a@x.test>\r\n\t<b@x.test>\r\n <c@our.test>\r\n\r\n1\r\n"),
        "1");
    assert_string_equal(m.name, "alice@people.test");
    assert_string_equal(m.root, "<a@x.test>");
    assert_string_equal(m.in_reply_to, "<c@our.test>");
    assert_false(m.is_first);
    assert_string_equal(read_text(HEAD FROM "\r\n/link ABC\r\n"), "/link ABC");
    assert_string_equal(read_text(PROOF FROM "Subject: /stop\r\n\r\n"), "/stop");
    assert_null(m.message_id);
    assert_null(m.root);
}

static void test_parts(void **state)
{
    assert_string_equal(
        read_text(HEAD FROM
                  "In-Reply-To: <x@y>\r\nContent-Type: multipart/mixed; boundary=o\r\n\r\n"
                  "--o\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n"
                  "--i\r\nContent-Type: text/plain; charset=iso-8859-1\r\n"
                  "Content-Transfer-Encoding: quoted-printable\r\n\r\ngr=FC=DFe\r\n"
                  "--i\r\nContent-Type: text/html\r\n\r\n<p>no</p>\r\n--i--\r\n"
                  "--o\r\nContent-Type: application/pdf; name=\"=?utf-8?q?a/b=2Epdf?=\"\r\n"
                  "Content-Transfer-Encoding: base64\r\nContent-Disposition: attachment\r\n\r\n"
                  "JVBERg==\r\n--o\r\nContent-Type: message/rfc822\r\n\r\nSubject: in\r\n\r\nx\r\n"
                  "--o--\r\n"),
        "gr\u00fc\u00dfe");
    assert_int_equal(m.n_files, 2);
    assert_string_equal(m.files[0].type, "application/pdf");
    assert_string_equal(m.files[0].name, "b.pdf");
    assert_true(str_eq(buf_str(&m.files[0].bytes), STR("%PDF")));
    assert_string_equal(m.files[1].type, "message/rfc822");
    assert_string_equal(read_text(HEAD FROM "In-Reply-To: <x@y>\r\nContent-Type: text/html\r\n\r\n"
                                            "<style>p{}</style><p>Hi &amp; <b>you</b><br>there"
                                            "</p><ul><li>a<li>b</ul>"),
                        "Hi & you\nthere\n\n- a\n- b");
}

static void test_all_words_are_shown_once(void **state)
{
#define PART(type, words) "Content-Type: " type "\r\n\r\n" words "\r\n"
#define BOTH(b) \
    "Content-Type: multipart/alternative; boundary=" b "\r\n\r\n--" b \
    "\r\n" PART("text/plain", "words") "--" b "\r\n" PART("text/html", "<p>words</p>") "--" b \
                                                                                       "--\r\n"
#define MIX "Content-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\n"
#define ANSWER HEAD FROM "In-Reply-To: <x@y>\r\n"
    /* a server has added a line to a mail in HTML */
    assert_string_equal(read_text(ANSWER MIX PART("text/html", "<p>words</p>") "--o\r\n" PART(
                            "text/plain", "Confidential.") "--o--\r\n"),
                        "words\nConfidential.");
    assert_string_equal(read_text(ANSWER BOTH("i")), "words");
    assert_string_equal(read_text(ANSWER PART("text/plain; charset=x-nobody-knows", "words")),
                        "words");
    assert_string_equal(read_text(ANSWER MIX BOTH("i") "--o\r\n" BOTH("k") "--o--\r\n"),
                        "words\nwords");
    assert_string_equal(
        read_text(ANSWER "Content-Type: multipart/alternative; boundary=a\r\n\r\n--a\r\n" PART(
            "text/plain",
            " ") "--a\r\n" MIX PART("text/html", "one") "--o\r\n" PART("text/html",
                                                                       "two") "--o--\r\n--a--\r\n"),
        "one\ntwo");
}

static void test_bounces(void **state)
{
    assert_null(read_with(
        "From: MAILER-DAEMON@mx.our.test\r\nReturn-Path: <>\r\nContent-Type: multipart/report; "
        "report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nSorry\r\n--b\r\n"
        "Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx\r\n\r\n"
        "Final-Recipient: rfc822; gone@people.test\r\nAction: failed\r\nStatus: 5.1.1\r\n"
        "Diagnostic-Code: x-unix; no such person\r\n\r\n--b\r\nContent-Type: message/rfc822\r\n\r\n"
        "Message-ID: <0000.1111@our.test>\r\n\r\nx\r\n--b--\r\n",
        false));
    assert_true(m.is_bounce);
    assert_string_equal(m.bounced_id, "<0000.1111@our.test>");
    assert_non_null(strstr(m.bounced_why, "5.1.1"));
    assert_non_null(strstr(m.bounced_why, "no such person"));
    assert_non_null(read_with(
        "From: MAILER-DAEMON@mx.our.test\r\nContent-Type: multipart/report; "
        "boundary=b\r\n\r\n--b\r\n"
        "Content-Type: message/delivery-status\r\n\r\n\r\nAction: delayed\r\n\r\n--b\r\n"
        "Content-Type: text/rfc822-headers\r\n\r\nMessage-ID: <0000.1111@our.test>\r\n--b--\r\n",
        false));
    assert_false(m.is_bounce);
}

/* A mail of a stranger must not exhaust the stack or take for ever. */
static void test_depth_is_bounded(void **state)
{
    BUF_LOCAL text = BUF_INIT;

    buf_add_z(&text, HEAD FROM);
    for (int i = 0; i < 20000; i++)
        buf_printf(&text, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i);
    buf_add_z(&text, "\r\nend\r\n");
    read_with(buf_z(&text), false);
    buf_reset(&text);
    buf_add_z(&text, HEAD FROM);
    for (int i = 0; i < 20000; i++)
        buf_printf(&text, "Content-Type: message/rfc822\r\n\r\n");
    read_with(buf_z(&text), false);
}

/* Reads a mail of 4 MiB: @head, then @line again and again, then @tail.  Returns how many bytes of
 * memory the process took more than ever before. */
static size_t cost_of(const char *head, const char *line, const char *tail)
{
    BUF_LOCAL text = BUF_INIT;
    struct rusage before, after;

    buf_add_z(&text, head);
    while (text.n < (size_t)4 << 20)
        buf_add_z(&text, line);
    buf_add_z(&text, tail);
    getrusage(RUSAGE_SELF, &before);
    read_with(buf_z(&text), false);
    getrusage(RUSAGE_SELF, &after);
    return (size_t)(after.ru_maxrss - before.ru_maxrss) * 1024;
}

static void test_a_mail_of_many_small_things_takes_little_memory(void **state)
{
#define MIXED "Content-Type: multipart/mixed; boundary=b\n\n"
    const size_t most = (size_t)320
                        << 20; /* a build with checks takes ten times as much as others */

    assert_true(cost_of(FROM MIXED, "--b\n\n", "") < most);
    assert_string_equal(m.refused, auth_missing);
    assert_true(cost_of(HEAD FROM MIXED "--b\n\nwords\n", "--b\n\n", "") < most);
    assert_null(m.refused);
    assert_non_null(strstr(m.text, "words"));
    assert_true(cost_of("Content-Type: multipart/report; boundary=b\n\n", "--b\n\n", "") < most);
    assert_true(cost_of(HEAD FROM, "a:b\n", "\nx") < most);
    assert_non_null(strstr(m.refused, "headers are longer"));
    assert_true(cost_of(HEAD FROM MIXED "--b\n", "a:b\n", "\nx") < most);
    assert_true(cost_of(HEAD FROM MIXED "--b\nContent-Type: message/rfc822\n\nFrom: ", "a@b,\n ",
                        "\n\nx") < most);
    assert_true(cost_of(HEAD FROM "\r\n", "words, words; -- and: more\n", "") < most);
    assert_null(m.refused);
    assert_int_equal(m.n_dropped, 0);
}

static void check_answer(const char *text, const char *want)
{
    BUF_LOCAL out = BUF_INIT;

    text_answer(&out, str_of(text), false);
    assert_string_equal(buf_z(&out), want);
}

/* What an agent has not seen yet is no quote to be left out. */
static void test_what_is_forwarded_or_new_stays(void **state)
{
    BUF_LOCAL out = BUF_INIT;

#define OUTLOOK \
    "pay this\n\n________________________________\nFrom: Shop\nSubject: Invoice\n\n7 EUR"
#define APPLE "pay this\n\nBegin forwarded message:\n\n> From: Shop\n> \n> 7 EUR"
#define GMAIL "pay this\n-- \nBob\n\n---------- Forwarded message ---------\nFrom: Shop\n\n7 EUR"
#define THREAD FROM PROOF "Message-ID: <2@people.test>\r\nReferences: <1@shop.test>\r\n"
    assert_string_equal(read_text(THREAD "Subject: FW: Invoice\r\n\r\n" OUTLOOK), OUTLOOK);
    assert_string_equal(read_text(THREAD "Subject: Fwd: Invoice\r\n\r\n" APPLE), APPLE);
    assert_string_equal(read_text(THREAD "Subject: fwd: Invoice\r\n\r\n" GMAIL), GMAIL);
    assert_string_equal(read_text(THREAD "Subject: WG: Rechnung\r\n\r\n" OUTLOOK), OUTLOOK);
    assert_string_equal(read_text(THREAD "Subject: Re: Fwd: Invoice\r\n\r\n" OUTLOOK), "pay this");
    assert_string_equal(read_text(THREAD "Subject: Fwds\r\n\r\n" APPLE),
                        "pay this\n\nBegin forwarded message:");
    text_answer(&out, STR("what is this?\n> E_AGAIN\n-- \nBob"), true);
    assert_string_equal(buf_z(&out), "what is this?\n> E_AGAIN");
}

static void test_quotes_and_signatures_go(void **state)
{
    check_answer("yes\n\nOn Mon, Bob <b@x.test> wrote:\n> really?\n> \n> Bob\n", "yes");
    check_answer(
        "yes\n\nOn Mon, 16 Nov 2026 at 10:00, Some Body With A Name\n<b@x.test> wrote:\n> q\n",
        "yes");
    check_answer("Am 16.11.26 um 10:00 schrieb Bob:\n> q\n\nja\n", "ja");
    check_answer("> one\nfirst\n> two\nsecond\n", "first\n> two\nsecond");
    check_answer("a\n> b\nc\n", "a\n> b\nc");
    check_answer("text\n-- \nBob\nStreet", "text");
    check_answer("text\n-----Original Message-----\nFrom: x", "text");
    check_answer("> only a quote\n", "> only a quote");
    check_answer("The list:\n- a\n", "The list:\n- a");
    check_answer("", "");
}

static void test_text_is_made_harmless(void **state)
{
    BUF_LOCAL out = BUF_INIT;

    text_clean(&out, STR("a\r\nb\x01\x1b[0m\xff\xe2\x80\xaez\tq\xc2\x85"), false);
    assert_string_equal(buf_z(&out), "a\nb[0m\xef\xbf\xbdz\tq");
    buf_reset(&out);
    text_clean(&out, STR("a\r\nBcc: x\ny"), true);
    assert_string_equal(buf_z(&out), "a Bcc: x y");
    buf_reset(&out);
    text_unflow(&out, STR("one \ntwo\n\n> q \nthree\n"), false);
    assert_string_equal(buf_z(&out), "one two\n\n> q \nthree\n");
}

static void test_a_written_mail_reads_back(void **state)
{
    BUF_LOCAL before = BUF_INIT, after = BUF_INIT, all = BUF_INIT;
    struct letter l = {.from = STR("desk@our.test"),
                       .to = STR("alice@people.test"),
                       .name = STR("Desk\r\nBcc: eve@evil.test"),
                       .subject = STR("Gr\u00fc\u00dfe\r\nBcc: eve@evil.test"),
                       .message_id = STR("<0000000000000001.0000000000000002@our.test>"),
                       .in_reply_to = STR("<b@x.test>"),
                       .root = STR("<a@x.test>"),
                       .text = STR("**hi**\n.\n\nFrom here\n<script>x</script> [l](javascript:x)"),
                       .file_name = STR("a\"b\r\n\u00e4.txt"),
                       .file_type = STR("text/plain"),
                       .date_ms = 1794866400000};

    compose(&l, &before, &after);
    assert_null(strstr(buf_z(&before), "\nBcc:"));
    const char *html = strstr(buf_z(&before), "text/html");
    assert_non_null(strstr(html, "<strong>hi</strong>"));
    assert_null(strstr(html, "<script"));
    assert_null(strstr(html, "javascript"));
    for (size_t i = 0; i < before.n; i++)
        assert_true((unsigned char)before.p[i] < 0x80 &&
                    (before.p[i] != '\n' || before.p[i - 1] == '\r'));
    buf_add_z(&all, "Authentication-Results: mx.our.test; dmarc=pass\r\n");
    buf_printf(&all, "%saGVsbG8=\r\n%s", buf_z(&before), buf_z(&after));
    /* read as by another bot: its author is not this one */
    struct mail_rules rules = {.bot = STR("x@y.test"), .authserv_id = STR("mx.our.test")};
    mail_done(&m);
    mail_read(&m, buf_str(&all), &rules);
    assert_non_null(strstr(m.refused, "Auto-Submitted"));
    assert_string_equal(m.from, "desk@our.test");
    assert_string_equal(m.root, "<a@x.test>");
    assert_string_equal(m.message_id, "<0000000000000001.0000000000000002@our.test>");
    char *at = strstr(all.p, "Auto-Submitted: auto-replied");
    memcpy(at, "X-to", 4);
    memcpy(strstr(all.p, "X-Auto-Response-Suppress"), "Y", 1);
    mail_done(&m);
    mail_read(&m, buf_str(&all), &rules);
    assert_null(m.refused);
    assert_int_equal(m.n_files, 1);
    assert_true(str_eq(buf_str(&m.files[0].bytes), STR("hello")));
    assert_non_null(strstr(m.text, "**hi**\n.\n\nFrom here"));
}

static void test_subjects(void **state)
{
    BUF_LOCAL out = BUF_INIT;

    compose_subject(&out, STR("\n## **The plan**\n\nmore"));
    assert_string_equal(buf_z(&out), "The plan");
    buf_reset(&out);
    compose_subject(&out, STR(" \n\n"));
    assert_string_equal(buf_z(&out), "A message");
    buf_reset(&out);
    compose_reply_subject(&out, STR("RE: x\r\ny"));
    assert_string_equal(buf_z(&out), "RE: x y");
    buf_reset(&out);
    compose_reply_subject(&out, STR("x"));
    assert_string_equal(buf_z(&out), "Re: x");
}

static void test_addresses_and_ids(void **state)
{
    static const char *const good[] = {"a@b.test", "a.b+c@x-y.test", "o'hara@b.test"};
    static const char *const bad[] = {"",        "a",       "a@",          "@b",
                                      "a b@c",   "a@b c",   "a@b\r\nc",    "<a@b>",
                                      "a@b,c@d", "a@@b",    "a@.b",        "a@b.",
                                      "-a@b",    "\"a\"@b", "a@[1.2.3.4]", "\u00e4@b"};

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(mail_is_address(str_of(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (mail_is_address(str_of(bad[i])))
            fail_msg("%s", bad[i]);
    assert_true(mail_is_id(STR("<a@b>")));
    assert_false(mail_is_id(STR("a@b")));
    assert_false(mail_is_id(STR("<a@b>\r\nX: <c@d>")));
    assert_false(mail_is_id(STR("<a b>")));
}

UNIT(platform_email_test_mail)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_who_may_write),
        T(test_no_header_below_the_first_one_counts),
        T(test_names_threads_and_texts),
        T(test_parts),
        T(test_all_words_are_shown_once),
        T(test_bounces),
        T(test_depth_is_bounded),
        T(test_a_mail_of_many_small_things_takes_little_memory),
        T(test_quotes_and_signatures_go),
        T(test_what_is_forwarded_or_new_stays),
        T(test_text_is_made_harmless),
        T(test_a_written_mail_reads_back),
        T(test_subjects),
        T(test_addresses_and_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
