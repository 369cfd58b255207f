/* Promises of platform/irc/line.h, normalize.h and sasl.h. */
#include "unit.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/irc/normalize.h"
#include "platform/irc/sasl.h"

static struct arena arena;

static int teardown(void **state)
{
    arena_done(&arena);
    return 0;
}

static struct irc_line parsed(const char *text)
{
    struct irc_line l;

    assert_true(irc_parse(str_of(text), &l));
    return l;
}

/* ---- lines ---- */

static void lines_are_found_however_the_bytes_come(void **state)
{
    static const char bytes[] = "PING :a\r\n\r\n:s 001 me :hi\nlast\r\n";
    struct irc_reader r = {0};
    struct str line;
    BUF_LOCAL got = BUF_INIT;

    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
        irc_reader_add(&r, str_make(bytes + i, 1));
        while (irc_reader_next(&r, &line))
            buf_printf(&got, "[%.*s]", STR_FMT(line));
    }
    assert_string_equal(buf_z(&got), "[PING :a][:s 001 me :hi][last]");
    irc_reader_done(&r);
}

static void a_line_that_is_too_long_is_skipped_and_the_next_is_read(void **state)
{
    struct irc_reader r = {0};
    struct str line;
    BUF_LOCAL bytes = BUF_INIT;

    for (size_t i = 0; i < 3 * IRC_LINE_MAX; i++)
        buf_add_c(&bytes, 'x');
    irc_reader_add(&r, buf_str(&bytes));
    assert_false(irc_reader_next(&r, &line));
    irc_reader_add(&r, STR("rest\r\nPING\r\n"));
    assert_true(irc_reader_next(&r, &line));
    assert_str(line, "PING");
    assert_int_equal(r.skipped, 1);
    buf_add_z(&bytes, "\r\nPONG\r\n");
    irc_reader_add(&r, buf_str(&bytes));
    assert_true(irc_reader_next(&r, &line));
    assert_str(line, "PONG");
    assert_int_equal(r.skipped, 2);
    irc_reader_done(&r);
}

static void a_line_is_taken_apart(void **state)
{
    struct irc_line l =
        parsed("@a=1;+b/c=x\\s\\:\\\\\\n;a=2;d :nick!user@host PRIVMSG  #x :hello there");

    assert_str(l.nick, "nick");
    assert_str(l.source, "nick!user@host");
    assert_true(irc_is(&l, "privmsg"));
    assert_int_equal(l.n_params, 2);
    assert_str(irc_param(&l, 0), "#x");
    assert_str(irc_param(&l, 1), "hello there");
    assert_null(irc_param(&l, 2).p);
    assert_str(irc_tag(&l, STR("a"), &arena), "2"); /* the last one counts */
    assert_str(irc_tag(&l, STR("+b/c"), &arena), "x ;\\\n");
    assert_non_null(irc_tag(&l, STR("d"), &arena).p);
    assert_null(irc_tag(&l, STR("b/c"), &arena).p);
    l = parsed(":irc.test 401 me gone :No such nick");
    assert_int_equal(irc_numeric(&l), 401);
    assert_str(l.nick, "irc.test");
    l = parsed("X 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16");
    assert_int_equal(l.n_params, IRC_MAX_PARAMS);
    assert_str(irc_param(&l, 14), "15 16");
    assert_false(irc_parse(STR(""), &l));
    assert_false(irc_parse(STR("@a"), &l));
    assert_false(irc_parse(STR(":x"), &l));
    assert_false(irc_parse(STR("PRIV-MSG x"), &l));
    assert_false(irc_parse(str_make("PING\0x", 6), &l));
}

static void tags_survive_writing_and_reading(void **state)
{
    BUF_LOCAL line = BUF_INIT;
    struct irc_line l;

    buf_add_z(&line, "@k=");
    irc_tag_add(&line, STR("a; b\\s\r\n\\"));
    buf_add_z(&line, " X");
    assert_true(irc_parse(buf_str(&line), &l));
    assert_str(irc_tag(&l, STR("k"), &arena), "a; b\\s\r\n\\");
}

static void times_are_read_and_written(void **state)
{
    BUF_LOCAL text = BUF_INIT;

    assert_int_equal(irc_time_ms(STR("1970-01-02T00:00:01.250Z")), 86401250);
    assert_int_equal(irc_time_ms(STR("1970-01-02T00:00:01Z")), 86401000);
    irc_time_add(&text, 86401250);
    assert_string_equal(buf_z(&text), "1970-01-02T00:00:01.250Z");
    static const char *const bad[] = {"",
                                      "1970-01-02",
                                      "1970-13-02T00:00:01Z",
                                      "1970-01-02T00:00:01.250",
                                      "1970-01-02 00:00:01.250Z",
                                      "1970-01-02T25:00:01Z",
                                      "xxxx-01-02T00:00:01Z"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(irc_time_ms(str_of(bad[i])), 0);
}

/* ---- names ---- */

static void names_are_compared_as_the_server_does(void **state)
{
    assert_true(irc_eq(IRC_RFC1459, STR("Ann[]\\~"), STR("aNN{}|^")));
    assert_false(irc_eq(IRC_RFC1459_STRICT, STR("~"), STR("^")));
    assert_true(irc_eq(IRC_RFC1459_STRICT, STR("[]"), STR("{}")));
    assert_false(irc_eq(IRC_ASCII, STR("["), STR("{")));
    assert_int_equal(irc_case_of(STR("ascii")), IRC_ASCII);
    assert_int_equal(irc_case_of(STR("precis")), IRC_ASCII);
    assert_int_equal(irc_case_of(STR_NULL), IRC_RFC1459);
}

static void a_target_is_one_nick_or_one_channel_of_this_network(void **state)
{
    static const char *const bad[] = {"#lobby",    "@net",   "#lobby@other", "a,b@net", "a b@net",
                                      "$*@net",    "*@net",  "a.b@net",      "#@net",   "a!b@net",
                                      "#a\nb@net", "1a@net", "-a@net",       ":a@net",  "#a,b@net"};
    struct str t;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (irc_target_of(str_of(bad[i]), STR("net"), &t))
            fail_msg("%s", bad[i]);
    assert_true(irc_target_of(STR("#lobby@net"), STR("net"), &t));
    assert_str(t, "#lobby");
    assert_true(irc_target_of(STR("#a@b@NET"), STR("net"), &t));
    assert_str(t, "#a@b");
    assert_true(irc_target_of(STR("jürgen[m]@net"), STR("net"), &t));
}

/* ---- texts ---- */

static void texts_are_plain(void **state)
{
    static const char *const texts[][2] = {
        {"plain", "plain"},
        {"\x02"
         "bold\x02 \x03"
         "04,05red\x03 \x0f",
         "bold red "},
        {"\x03"
         "3",
         ""},
        {"\x03"
         "12,x",
         ",x"},
        {"\x04"
         "ff00aaX\x1d\x1f",
         "X"},
        {"Gr\xfc\xdf"
         "e",
         "Grüße"},
        {"Grüße", "Grüße"},
        {"a\tb\x7f", "a\tb"},
    };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        BUF_LOCAL out = BUF_INIT;
        irc_plain_add(&out, str_of(texts[i][0]));
        assert_string_equal(buf_z(&out), texts[i][1]);
    }
}

static void the_bot_is_addressed_by_its_nick(void **state)
{
    static const struct {
        const char *text;
        bool is;
        const char *rest;
    } all[] = {
        {"desk: hi", true, "hi"},
        {"DESK, hi", true, "hi"},
        {"@desk hi", true, "hi"},
        {"@desk: hi", true, "hi"},
        {"desk hi", false, "desk hi"},
        {"desks: hi", false, "desks: hi"},
        {"ask @desk", true, "ask @desk"},
        {"me@desk.org", false, "me@desk.org"},
        {"@desktop", false, "@desktop"},
        {"desk:", true, ""},
        {"the desk: is", false, "the desk: is"},
        {"", false, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct str rest;
        assert_int_equal(irc_addresses(IRC_ASCII, str_of(all[i].text), STR("desk"), &rest),
                         all[i].is);
        assert_true(str_eq(rest, str_of(all[i].rest)));
    }
}

static void lines_are_cut_at_blanks_and_in_whole_characters(void **state)
{
    struct str rest = STR("one two three\n\nfüüüüüüü\r\nend"), line;
    bool goes_on;
    BUF_LOCAL got = BUF_INIT;

    while (irc_next_line(&rest, 8, &line, &goes_on)) {
        assert_true(line.n <= 8 && utf8_valid(line));
        buf_printf(&got, "[%.*s]%s", STR_FMT(line), goes_on ? "+" : "");
    }
    assert_string_equal(buf_z(&got), "[one two ]+[three][][füüü]+[üüüü][end]");
}

static void a_text_is_cut_into_parts_that_lose_nothing(void **state)
{
    struct str parts[IRC_MAX_PARTS];
    BUF_LOCAL text = BUF_INIT, again = BUF_INIT;

    assert_int_equal(irc_split(STR("  \n "), parts), 0);
    assert_int_equal(irc_split(STR("one"), parts), 1);
    for (int i = 0; i < 20; i++)
        buf_printf(&text, "line %d\n\n", i);
    assert_int_equal(irc_split(buf_str(&text), parts), 3);
    for (size_t i = 0; i < 3; i++)
        buf_printf(&again, "%.*s\n", STR_FMT(parts[i]));
    assert_non_null(strstr(buf_z(&again), "line 7\n\nline 8"));
    buf_reset(&text);
    for (int i = 0; i < 6000; i++)
        buf_add_c(&text, 'x');
    size_t n = irc_split(buf_str(&text), parts), bytes = 0;
    for (size_t i = 0; i < n; i++) {
        assert_true(parts[i].n <= IRC_PART_LINES * IRC_PART_LINE);
        bytes += parts[i].n;
    }
    assert_int_equal(bytes, 6000);
    buf_reset(&text);
    for (int i = 0; i < 5000; i++)
        buf_add_z(&text, "x\n");
    assert_int_equal(irc_split(buf_str(&text), parts), IRC_MAX_PARTS); /* too many: refused */
}

static void a_body_cannot_begin_another_line(void **state)
{
    BUF_LOCAL out = BUF_INIT;

    irc_body_add(&out, STR("a\r\nQUIT\x01\tb"));
    assert_string_equal(buf_z(&out), "aQUIT b");
}

/* ---- events ---- */

static const struct irc_in in = {.bot = STR("Desk@net"),
                                 .network = STR("net"),
                                 .nick = STR("Desk"),
                                 .chantypes = STR("#"),
                                 .fold = IRC_ASCII,
                                 .has_accounts = true,
                                 .has_tags = true,
                                 .reactions = true};
static struct irc_out out;

static enum irc_verdict read_with(const struct irc_in *with, const char *text)
{
    struct irc_line l = parsed(text);

    arena_reset(&arena);
    return irc_normalize(&l, with, STR("n1"), &arena, &out);
}

static enum irc_verdict read(const char *text)
{
    return read_with(&in, text);
}

static void a_message_becomes_an_event(void **state)
{
    assert_int_equal(read("@account=Ann;msgid=m1;+draft/reply=m0 :ann2!u@h PRIVMSG #Lobby "
                          ":desk: \x02hi\x02"),
                     IRC_EVENT);
    assert_str(out.ev.platform, "irc");
    assert_str(out.ev.bot, "Desk@net");
    assert_str(out.ev.chat_id, "#lobby@net");
    assert_str(out.ev.chat_type, "group");
    assert_str(out.ev.user_id, "ann@net");
    assert_str(out.ev.user_name, "ann2");
    assert_str(out.ev.text, "hi");
    assert_str(out.ev.message_id, "m1");
    assert_str(out.ev.reply_to_message_id, "m0");
    assert_true(out.ev.mentions_bot && out.proven && !out.ev.author_is_bot);
    assert_int_equal(read("@msgid=m2;bot :Ann!u@h PRIVMSG desk :hi"), IRC_EVENT);
    assert_str(out.ev.chat_id, "ann@net");
    assert_str(out.ev.chat_type, "dm");
    assert_true(out.ev.author_is_bot);
}

static void only_the_servers_word_makes_an_account(void **state)
{
    static const char *const unproven[] = {
        ":ann!u@h PRIVMSG desk :/link X",
        "@+account=ann :ann!u@h PRIVMSG desk :/link X", /* a client's tag */
        "@account= :ann!u@h PRIVMSG desk :/link X",
        "@account=* :ann!u@h PRIVMSG desk :/link X",
        "@account=?ann :ann!u@h PRIVMSG desk :/link X",
        "@account=a\\sb :ann!u@h PRIVMSG desk :/link X",
    };
    struct irc_in without = in;

    for (size_t i = 0; i < ARRAY_LEN(unproven); i++) {
        assert_int_equal(read(unproven[i]), IRC_EVENT);
        assert_str(out.ev.user_id, "?ann@net");
        assert_true(!out.proven && out.wants_link);
    }
    without.has_accounts = without.has_tags = false; /* not agreed upon: anybody may have sent it */
    assert_int_equal(read_with(&without, "@account=root;msgid=m1 :ann!u@h PRIVMSG desk :x"),
                     IRC_EVENT);
    assert_str(out.ev.user_id, "?ann@net");
    assert_str(out.ev.event_id, "n1");
}

static void what_is_not_for_an_agent_is_left_out(void **state)
{
    static const char *const ignored[] = {
        ":irc.test PRIVMSG desk :from a server",
        ":ann!u@h NOTICE desk :never answered",
        ":ann!u@h PRIVMSG @#lobby :for operators",
        ":ann!u@h PRIVMSG other :hm",
        ":ann!u@h PRIVMSG desk :\x01VERSION\x01",
        ":ann!u@h PRIVMSG desk :\x02 \x02",
        ":ann!u@h TAGMSG desk",
        ":ann!u@h PRIVMSG desk",
    };

    for (size_t i = 0; i < ARRAY_LEN(ignored); i++)
        if (read(ignored[i]) != IRC_IGNORED)
            fail_msg("%s", ignored[i]);
    assert_int_equal(read("@msgid=o1 :DESK!u@h PRIVMSG ann :mine"), IRC_OWN);
    assert_str(out.msgid, "o1");
    assert_str(out.target, "ann");
}

static void actions_reactions_and_redactions_are_understood(void **state)
{
    assert_int_equal(read(":ann!u@h PRIVMSG #lobby :\x01"
                          "ACTION waves at @desk\x01"),
                     IRC_EVENT);
    assert_str(out.ev.text, "* ann waves at @desk");
    assert_true(out.ev.mentions_bot);
    assert_int_equal(read("@+draft/react=:);+reply=m1 :ann!u@h TAGMSG #lobby"), IRC_EVENT);
    assert_str(out.ev.text, "reaction:added::)");
    assert_str(out.reacted, "m1");
    assert_int_equal(read("@+draft/react=:) :ann!u@h TAGMSG #lobby"), IRC_IGNORED);
    assert_int_equal(read(":ann!u@h REDACT #lobby m1 :oops"), IRC_EVENT);
    assert_str(out.ev.message_id, "m1");
    assert_true(out.ev.edit.set && out.ev.edit.deletes && out.ev.edit.silent);
}

/* ---- login ---- */

static void scram_agrees_with_the_rfc(void **state)
{
    /* RFC 7677, section 3. */
    struct sasl s = {0};
    uint8_t nonce[SASL_NONCE_BYTES];
    BUF_LOCAL raw = BUF_INIT, answer = BUF_INIT;
    const char *why;

    assert_true(base64_decode(STR("rOprNGfwEbeRWgbNEkqO"), &raw));
    memset(nonce, 0, sizeof nonce);
    sasl_start(&s, SASL_SCRAM, "user", "pencil", nonce);
    snprintf(s.nonce, sizeof s.nonce, "rOprNGfwEbeRWgbNEkqO");
    assert_int_equal(sasl_answer(&s, STR(""), &answer, &why), SASL_ANSWERED);
    assert_string_equal(buf_z(&answer), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    buf_reset(&answer);
    assert_int_equal(sasl_answer(&s,
                                 STR("r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                                     "s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
                                 &answer, &why),
                     SASL_HASHES);
    sasl_hash(&s.hash);
    sasl_hashed(&s, &answer);
    assert_string_equal(buf_z(&answer),
                        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
                        ",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    assert_false(sasl_is_proven(&s));
    buf_reset(&answer);
    assert_int_equal(sasl_answer(&s, STR("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), &answer,
                                 &why),
                     SASL_ANSWERED);
    assert_true(sasl_is_proven(&s));
    sasl_done(&s);
}

static void a_server_that_makes_no_sense_gets_no_proof(void **state)
{
    static const char *const bad[] = {
        "",
        "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",    /* not our nonce */
        "r=%s,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",       /* nothing of its own */
        "r=%sX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",      /* too few rounds */
        "r=%sX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999", /* too many */
        "r=%sX,s=,i=4096",                              /* no salt */
        "m=x,r=%sX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",  /* an extension that must be known */
    };
    static const uint8_t nonce[SASL_NONCE_BYTES] = {1, 2, 3};
    const char *why;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct sasl s = {0};
        BUF_LOCAL answer = BUF_INIT;
        char text[256];
        sasl_start(&s, SASL_SCRAM, "user", "pencil", nonce);
        assert_int_equal(sasl_answer(&s, STR(""), &answer, &why), SASL_ANSWERED);
        const char *hole = strstr(bad[i], "%s");
        snprintf(text, sizeof text, "%.*s%s%s", hole != NULL ? (int)(hole - bad[i]) : 200, bad[i],
                 hole != NULL ? s.nonce : "", hole != NULL ? hole + 2 : "");
        assert_int_equal(sasl_answer(&s, str_of(text), &answer, &why), SASL_WRONG);
        sasl_done(&s);
    }
}

static void plain_and_external_answer_once(void **state)
{
    static const uint8_t nonce[SASL_NONCE_BYTES] = {0};
    struct sasl s = {0};
    BUF_LOCAL answer = BUF_INIT;
    const char *why;

    sasl_start(&s, SASL_PLAIN, "u", "p", nonce);
    assert_int_equal(sasl_answer(&s, STR(""), &answer, &why), SASL_ANSWERED);
    assert_true(str_eq(buf_str(&answer), str_make("\0u\0p", 4)));
    assert_int_equal(sasl_answer(&s, STR(""), &answer, &why), SASL_WRONG);
    buf_reset(&answer);
    sasl_start(&s, SASL_EXTERNAL, NULL, NULL, nonce);
    assert_int_equal(sasl_answer(&s, STR(""), &answer, &why), SASL_ANSWERED);
    assert_int_equal(answer.n, 0);
    sasl_done(&s);
}

UNIT(platform_irc_test_line)
{
#define T(name) cmocka_unit_test_teardown(name, teardown)
    const struct CMUnitTest tests[] = {
        T(lines_are_found_however_the_bytes_come),
        T(a_line_that_is_too_long_is_skipped_and_the_next_is_read),
        T(a_line_is_taken_apart),
        T(tags_survive_writing_and_reading),
        T(times_are_read_and_written),
        T(names_are_compared_as_the_server_does),
        T(a_target_is_one_nick_or_one_channel_of_this_network),
        T(texts_are_plain),
        T(the_bot_is_addressed_by_its_nick),
        T(lines_are_cut_at_blanks_and_in_whole_characters),
        T(a_text_is_cut_into_parts_that_lose_nothing),
        T(a_body_cannot_begin_another_line),
        T(a_message_becomes_an_event),
        T(only_the_servers_word_makes_an_account),
        T(what_is_not_for_an_agent_is_left_out),
        T(actions_reactions_and_redactions_are_understood),
        T(scram_agrees_with_the_rfc),
        T(a_server_that_makes_no_sense_gets_no_proof),
        T(plain_and_external_answer_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
