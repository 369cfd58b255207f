/* Promises of net/http_codec.h about heads and chunks. */
#include "net/net_test.h"

#include <ctype.h>
#include <inttypes.h>

#include "base/rand.h"
#include "net/http_codec.h"
#include "net/http_oracle.h"

enum { LIMIT = 4096 };

static enum http_head_end read_all(struct http_head *h, struct str s)
{
    memset(h, 0, offsetof(struct http_head, fields));
    return http_head_read(h, s.p, s.n, LIMIT);
}

static struct str part(const char *p, uint32_t at, uint32_t n)
{
    return str_make(p + at, n);
}

static void a_head_is_taken_apart(void **state)
{
    static const char text[] = "POST /a/b%20?c=d&e HTTP/1.1\r\nHost: Example.org:8080\r\n"
                               "X-Empty:\r\nX-Wide: \t a  b\t \r\nContent-Length: 0042\r\n"
                               "X-Latin: caf\xe9\r\n\r\nbody";
    struct http_head h;

    assert_int_equal(read_all(&h, str_make(text, sizeof text - 1)), HEAD_DONE);
    assert_int_equal(h.bytes, sizeof text - 1 - 4);
    assert_int_equal(h.verb, VERB_POST);
    assert_int_equal(h.minor, 1);
    assert_str(part(text, h.path, h.path_n), "/a/b%20");
    assert_str(part(text, h.query, h.query_n), "c=d&e");
    assert_str(part(text, h.host, h.host_n), "Example.org:8080");
    assert_int_equal(h.n_fields, 5);
    assert_str(part(text, h.fields[1].value, h.fields[1].value_n), "");
    assert_str(part(text, h.fields[2].name, h.fields[2].name_n), "X-Wide");
    assert_str(part(text, h.fields[2].value, h.fields[2].value_n), "a  b");
    assert_true(h.has_length && !h.chunked && h.keep_alive && !h.upgrade);
    assert_int_equal(h.length, 42);
}

static void what_the_peer_wants_is_noted(void **state)
{
    struct http_head h;

    assert_int_equal(
        read_all(&h, STR("GET /relay HTTP/1.1\r\nHost: [::1]:7077\r\nUPGRADE: WebSocket\r\n"
                         "Connection: keep-alive, Upgrade\r\n\r\n")),
        HEAD_DONE);
    assert_true(h.upgrade && h.keep_alive);
    assert_int_equal(read_all(&h, STR("GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n")),
                     HEAD_DONE);
    assert_false(h.upgrade);
    assert_int_equal(read_all(&h, STR("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n")),
                     HEAD_DONE);
    assert_false(h.keep_alive);
    assert_int_equal(read_all(&h, STR("GET / HTTP/1.0\r\n\r\n")), HEAD_DONE);
    assert_true(!h.keep_alive && h.minor == 0 && h.host == 0);
    assert_int_equal(read_all(&h, STR("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")),
                     HEAD_DONE);
    assert_true(h.keep_alive);
    assert_int_equal(read_all(&h, STR("PUT /a HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\n"
                                      "Transfer-Encoding: Chunked\r\n\r\n")),
                     HEAD_DONE);
    assert_true(h.expects_continue && h.chunked);
}

static void targets_have_three_forms(void **state)
{
    static const struct {
        const char *request, *path, *query;
    } table[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "/", NULL},
        {"GET /? HTTP/1.1\r\nHost: x\r\n\r\n", "/", ""},
        {"GET //a?b?c HTTP/1.1\r\nHost: x\r\n\r\n", "//a", "b?c"},
        {"GET http://x/p?q HTTP/1.1\r\nHost: X\r\n\r\n", "/p", "q"},
        {"GET HTTPS://x:1/p HTTP/1.1\r\nHost: x:1\r\n\r\n", "/p", NULL},
        {"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n", "/", NULL},
        {"GET http://x/ HTTP/1.0\r\n\r\n", "/", NULL},
        {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "*", NULL},
        {"\r\nGET /after-an-empty-line HTTP/1.1\r\nHost: x\r\n\r\n", "/after-an-empty-line", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const char *p = table[i].request;
        struct http_head h;
        assert_int_equal(read_all(&h, str_of(p)), HEAD_DONE);
        assert_str(part(p, h.path, h.path_n), table[i].path);
        assert_int_equal(h.query != 0, table[i].query != NULL);
        if (table[i].query != NULL)
            assert_str(part(p, h.query, h.query_n), table[i].query);
        assert_null(oracle_differs(&h, p, strlen(p)));
    }
}

#define GET "GET / HTTP/1.1\r\nHost: x\r\n"
#define POST "POST / HTTP/1.1\r\nHost: x\r\n"

static const struct {
    int status;
    const char *request;
} refused[] = {
    /* the request line */
    {400, "\x16\x03\x01"},
    {400, "\n"},
    {400, "\r\n\r\n"},
    {400, " GET / HTTP/1.1\r\n"},
    {400, "get / HTTP/1.1\r\n"},
    {400, "GET\t/ HTTP/1.1\r\n"},
    {400, "GET  / HTTP/1.1\r\n"},
    {400, "GET /  HTTP/1.1\r\n"},
    {400, "GET /\r\n"},
    {400, "GET / \r\n"},
    {400, "GET / HTTP/1.1 \r\n"},
    {400, "GET / HTTP/1.1\n"},
    {400, "GET / HTTP/1.1\r\r\n"},
    {400, "GET / HTTP/1.2\r\n"},
    {400, "GET / HTTP/1.9\r\n"},
    {400, "GET / HTTP/1.10\r\n"},
    {400, "GET / http/1.1\r\n"},
    {400, "GET / HTTPS/1.1\r\n"},
    {400, "GET / HTTP/1,1\r\n"},
    {505, "GET / HTTP/0.9\r\n"},
    {505, "GET / HTTP/2.0\r\n"},
    {505, "PUT / HTTP/3.7\r\n"},
    {501, "BREW /pot HTTP/1.1\r\n"},
    {501, "TRACE / HTTP/1.1\r\n"},
    {501, "CONNECT a:1 HTTP/1.1\r\n"},
    {501, "PRI * HTTP/2.0\r\n"},
    {400, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
    /* the target */
    {400, "GET a HTTP/1.1\r\n"},
    {400, "GET * HTTP/1.1\r\n"},
    {400, "GET ?a HTTP/1.1\r\n"},
    {400, "GET /a#b HTTP/1.1\r\n"},
    {400, "GET /a\tb HTTP/1.1\r\n"},
    {400, "GET /a\x7f HTTP/1.1\r\n"},
    {400, "GET /caf\xc3\xa9 HTTP/1.1\r\n"},
    {400, "GET ftp://x/ HTTP/1.1\r\n"},
    {400, "GET http:/x HTTP/1.1\r\n"},
    {400, "GET http://x?/path HTTP/1.1\r\nHost: x\r\n\r\n"},
    {400, "GET http:// HTTP/1.1\r\nHost: x\r\n\r\n"},
    {400, "GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n"},
    {400, "GET http://y/a HTTP/1.1\r\nHost: x\r\n\r\n"},
    {400, "GET http://x:81/a HTTP/1.1\r\nHost: x\r\n\r\n"},
    {400, "GET http://u@x/a HTTP/1.1\r\nHost: x\r\n\r\n"},
    {400, "GET http://u@x/a HTTP/1.0\r\n\r\n"},
    /* Host */
    {400, "GET / HTTP/1.1\r\n\r\n"},
    {400, "GET / HTTP/1.1\r\nHost:\r\n\r\n"},
    {400, GET "Host: x\r\n\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: a b\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: a,b\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: a/b\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: u@a\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: a:\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: a:x\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: a:65536\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: a:1:2\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: :80\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: []\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: [::1\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: [::1]x\r\n"},
    {400, "GET / HTTP/1.1\r\nHost: ::1\r\n"},
    /* fields */
    {400, GET ": v\r\n"},
    {400, GET "X\r\n"},
    {400, GET "X : v\r\n"},
    {400, GET " X: v\r\n"},
    {400, GET "X: a\r\n b\r\n"},
    {400, GET "X: a\r\n\tb\r\n"},
    {400, GET "X@Y: v\r\n"},
    {400, GET "X\xc3\xa9: v\r\n"},
    {400, GET "X: a\nY: b\r\n"},
    {400, GET "X: a\rY: b\r\n"},
    {400, GET "X: a\r\rY: b\r\n"},
    {400, GET "X: a\x01\r\n"},
    {400, GET "X: a\x7f\r\n"},
    {400, GET "X: 0123456789abcdef\x0b\r\n"},
    {400, GET "\n"},
    {400, GET "\r\r\n"},
    /* the body's length */
    {400, POST "Content-Length:\r\n"},
    {400, POST "Content-Length: -1\r\n"},
    {400, POST "Content-Length: +1\r\n"},
    {400, POST "Content-Length: 0x1\r\n"},
    {400, POST "Content-Length: 1 1\r\n"},
    {400, POST "Content-Length: 1, 1\r\n"},
    {400, POST "Content-Length: 18446744073709551616\r\n"},
    {400, POST "Content-Length: 00018446744073709551615\r\n"},
    {400, POST "Content-Length: 9223372036854775808\r\n"},
    {400, POST "Content-Length: 1\r\nContent-Length: 1\r\n"},
    {400, POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
    {400, POST "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"},
    {400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"},
    {400, POST "Transfer-Encoding: chunked\t\r\n"},
    {400, POST "Content-Length:\t1\r\n"},
    {501, POST "Transfer-Encoding: gzip, chunked\r\n"},
    {501, POST "Transfer-Encoding: chunked, identity\r\n"},
    {501, POST "Transfer-Encoding: \"chunked\"\r\n"},
    {501, POST "Transfer-Encoding:\r\n"},
    {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
    {400, POST "Expect: a-tip\r\n"},
    {400, GET "Upgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 1\r\n\r\n"},
    {400, GET "Connection: keep-alive,\x92live, Upgrade\r\n\r\n"},
    {400, GET "Connection: keep-alive,, Upgrade\r\n\r\n"},
    {400, GET "Connection: close upgrade\r\n\r\n"},
};

static void heads_that_can_be_read_two_ways_are_refused(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct http_head h;
        if (read_all(&h, str_of(refused[i].request)) != HEAD_BAD)
            fail_msg("taken: %s", refused[i].request);
        if (h.fault.status != refused[i].status)
            fail_msg("%d: %s", h.fault.status, refused[i].request);
        assert_true(strlen(h.fault.text) > 10 && strlen(h.fault.code) > 3);
    }
}

static void a_nul_stands_nowhere(void **state)
{
    static const char good[] = "GET /abc HTTP/1.1\r\nHost: x\r\nX-Some-Name: a value\r\n\r\n";
    struct http_head h;
    char copy[sizeof good];

    for (size_t i = 0; i + 1 < sizeof good; i++) {
        memcpy(copy, good, sizeof good);
        copy[i] = '\0';
        assert_int_equal(read_all(&h, str_make(copy, sizeof good - 1)), HEAD_BAD);
    }
}

static void a_byte_is_judged_the_same_wherever_it_stands(void **state)
{
    static const char good[] =
        "GET /aaaaaaaaaaaaaaaaaaaaaaaa HTTP/1.1\r\n"
        "Aaaaaaaaaaaaaaaaaaaaaaaa: x\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n";
    const size_t starts[] = {5, 40, 75};
    struct http_head h;
    char copy[sizeof good];

    for (size_t k = 0; k < ARRAY_LEN(starts); k++)
        for (size_t at = 1; at < 23; at++)
            for (int c = 0; c < 256; c++) {
                bool letter = c < 128 && (isalnum(c) || c == '-' || c == '.' || c == '_');
                bool token = letter || (c != 0 && strchr("!#$%&'*+^`|~:", c) != NULL);
                bool want = k == 0   ? c > ' ' && c < 0x7f && c != '#'
                            : k == 1 ? token /* a colon ends the name */
                                     : letter;
                memcpy(copy, good, sizeof good);
                copy[starts[k] + at] = (char)c;
                enum http_head_end end = read_all(&h, str_make(copy, sizeof good - 1));
                if ((end == HEAD_DONE) != want)
                    fail_msg("byte %d at %zu of part %zu", c, at, k);
            }
}

/* Fed piece by piece from a buffer that moves, with nothing behind the piece to read by mistake. */
static enum http_head_end read_in_pieces(struct http_head *h, struct str s, const size_t *cuts,
                                         size_t n_cuts)
{
    enum http_head_end end = HEAD_MORE;

    memset(h, 0, offsetof(struct http_head, fields));
    for (size_t i = 0; i <= n_cuts && end == HEAD_MORE; i++) {
        size_t n = i < n_cuts ? cuts[i] : s.n;
        char *copy = xmalloc(n != 0 ? n : 1);
        memcpy(copy, s.p, n);
        end = http_head_read(h, copy, n, LIMIT);
        free(copy);
    }
    return end;
}

static void a_head_cut_anywhere_is_the_same_head(void **state)
{
    static const char text[] =
        "POST http://h:1/a?b HTTP/1.1\r\nHost: h:1\r\nX-Some-Name: a value\r\n"
        "Content-Length: 5\r\nConnection: close\r\n\r\n";
    struct http_head whole, h;

    assert_int_equal(read_all(&whole, str_of(text)), HEAD_DONE);
    for (size_t a = 0; a + 1 < sizeof text; a++) {
        for (size_t b = a; b + 1 < sizeof text; b += 7) {
            assert_int_equal(read_in_pieces(&h, str_of(text), (size_t[]){a, b}, 2), HEAD_DONE);
            h.seen = whole.seen;
            assert_memory_equal(&h, &whole, offsetof(struct http_head, fields));
            assert_memory_equal(h.fields, whole.fields, whole.n_fields * sizeof *h.fields);
        }
    }
}

static void a_bad_head_is_bad_however_it_is_cut(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct buf b = BUF_INIT;
        buf_printf(&b, "%s\r\n", refused[i].request); /* a line cut in two is judged at its end */
        for (size_t cut = 0; cut < b.n; cut++) {
            struct http_head h;
            assert_int_equal(read_in_pieces(&h, buf_str(&b), &cut, 1), HEAD_BAD);
            assert_int_equal(h.fault.status, refused[i].status);
        }
        buf_done(&b);
    }
}

static void long_heads_are_refused_before_they_end(void **state)
{
    struct buf b = BUF_INIT;
    struct http_head h;

    buf_add_z(&b, GET "X: ");
    while (b.n < LIMIT - 4)
        buf_add_c(&b, 'v');
    buf_add_z(&b, "\r\n\r\n"); /* exactly the limit */
    assert_int_equal(read_all(&h, buf_str(&b)), HEAD_DONE);
    assert_int_equal(h.bytes, LIMIT);
    b.n -= 1;
    assert_int_equal(read_all(&h, buf_str(&b)), HEAD_MORE);
    b.n -= 4;
    buf_add_z(&b, "vv");
    while (b.n < LIMIT)
        buf_add_c(&b, 'v');
    assert_int_equal(read_all(&h, buf_str(&b)), HEAD_BAD);
    assert_int_equal(h.fault.status, 431);
    buf_done(&b);
}

static void a_hundred_fields_and_no_more(void **state)
{
    struct buf b = BUF_INIT;
    struct http_head h;

    buf_add_z(&b, "GET / HTTP/1.1\r\nHost: x\r\n");
    for (int i = 1; i < HTTP_MAX_FIELDS; i++)
        buf_add_z(&b, "X:\r\n");
    buf_add_z(&b, "\r\n");
    assert_int_equal(read_all(&h, buf_str(&b)), HEAD_DONE);
    assert_int_equal(h.n_fields, HTTP_MAX_FIELDS);
    b.n -= 2;
    buf_add_z(&b, "X:\r\n");
    assert_int_equal(read_all(&h, buf_str(&b)), HEAD_BAD);
    assert_int_equal(h.fault.status, 431);
    buf_done(&b);
}

/* ---- beside http-parser ---- */

static const char *const pieces[] = {
    "GET ",
    "POST ",
    "OPTIONS ",
    "/",
    "/a/b?c=d",
    "*",
    "http://x/y",
    "http://x",
    "http://x?/y",
    " HTTP/1.1",
    " HTTP/1.0",
    " HTTP/1.9",
    "\r\n",
    "\r\n",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    " ",
    "\t",
    "Host: x",
    "host:x",
    "Content-Length: 3",
    "Content-Length: 4",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip",
    "Connection: close",
    "Connection: keep-alive, upgrade",
    "Upgrade: websocket",
    "Expect: 100-continue",
    "X-A: b",
    "X-B :c",
    ":",
    ";",
    "#",
    "?",
    "\x7f",
    "%41",
    "abc",
    "\xc3\xa9",
};

static void make_head(struct rand *r, struct buf *b)
{
    static const char *const start[] = {"GET / HTTP/1.1\r\nHost: x\r\n",
                                        "POST /a?b HTTP/1.1\r\nHost: x\r\n",
                                        "GET http://x/y HTTP/1.1\r\nHost: x\r\n",
                                        "GET / HTTP/1.0\r\n", ""};

    buf_reset(b);
    buf_add_z(b, start[rand_below(r, ARRAY_LEN(start))]);
    for (uint64_t n = rand_below(r, 12); n > 0; n--) {
        buf_add_z(b, pieces[rand_below(r, ARRAY_LEN(pieces))]);
        if (rand_below(r, 3) > 0)
            buf_add_z(b, "\r\n");
    }
    buf_add_z(b, "\r\n");
    if (rand_below(r, 4) == 0)
        b->p[rand_below(r, b->n)] = (char)rand_below(r, 256);
}

static void what_we_accept_http_parser_reads_the_same_way(void **state)
{
    struct rand r = rand_seeded(11);
    struct buf b = BUF_INIT;
    int accepted = 0;

    for (int i = 0; i < 200000; i++) {
        struct http_head h;
        const char *differs;
        make_head(&r, &b);
        if (read_all(&h, buf_str(&b)) != HEAD_DONE)
            continue;
        accepted++;
        differs = oracle_differs(&h, b.p, b.n);
        if (differs != NULL)
            fail_msg("%s:\n%s", differs, buf_z(&b));
    }
    assert_true(accepted > 3000);
    buf_done(&b);
}

/* ---- chunks ---- */

static const struct {
    const char *bytes, *want; /* the data; NULL: refused */
} chunked[] = {
    {"0\r\n\r\n", ""},
    {"3\r\nabc\r\n0\r\n\r\n", "abc"},
    {"3;a=b;c=\"d e\"\r\nabc\r\n00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", "abc0123456789"},
    {"1;a;b=c\r\nx\r\n0;d=\"\"\r\n\r\n", "x"},
    {"0;\r\n\r\n", NULL},
    {"0;a=\r\n\r\n", NULL},
    {"0;=a\r\n\r\n", NULL},
    {"0;a=b=c\r\n\r\n", NULL},
    {"0;a=\"b\r\n\r\n", NULL},
    {"0;a=\"b\"c\r\n\r\n", NULL},
    {"0;a=\"\\\"\"\r\n\r\n", NULL},
    {"0; a\r\n\r\n", NULL},
    {"c 5\r\nabc\r\n0\r\n\r\n", NULL},
    {"3 \r\nabc\r\n0\r\n\r\n", NULL},
    {"3\t;a\r\nabc\r\n0\r\n\r\n", NULL},
    {"3;a\x01\r\nabc\r\n0\r\n\r\n", NULL},
    {"3;a\x7f\r\nabc\r\n0\r\n\r\n", NULL},
    {"3;a\nb\r\nabc\r\n0\r\n\r\n", NULL},
    {"3\nabc\r\n0\r\n\r\n", NULL},
    {"3\r\nabcd\r\n0\r\n\r\n", NULL},
    {"3\r\nabc\n0\r\n\r\n", NULL},
    {"-3\r\nabc\r\n0\r\n\r\n", NULL},
    {"0x3\r\nabc\r\n0\r\n\r\n", NULL},
    {"\r\nabc\r\n0\r\n\r\n", NULL},
    {";a\r\nabc\r\n0\r\n\r\n", NULL},
    {"11111111111111111\r\n", NULL},
    {"00000000000000003\r\nabc", NULL},
    {"0\r\nTrailer: \x02\r\n\r\n", NULL},
    {"0\r\nTrailer\n\r\n", NULL},
    {"0\r\n: v\r\n\r\n", NULL},
    {"0\r\nT v\r\n\r\n", NULL},
    {"0\r\nT: v\r\n w\r\n\r\n", NULL},
    {"0\r\nT\r\n\r\n", NULL},
    {"0\r\nT:\r\nU: v\r\n\r\n", ""},
    {"0\r\n\rx", NULL},
};

/* The data, or NULL.  @step: how many bytes come at a time. */
static bool unchunk(struct str s, size_t step, struct buf *out)
{
    struct http_chunks k = {0};
    size_t at = 0;

    for (size_t n = step; at < s.n; n += step) {
        size_t end = n < s.n ? n : s.n;
        enum http_chunk_end got;
        while ((got = http_chunk_next(&k, s.p, end, &at, 1000)) == CHUNK_DATA) {
            size_t take = end - at < k.left ? end - at : (size_t)k.left;
            buf_add(out, s.p + at, take);
            at += take;
            k.left -= take;
        }
        if (got != CHUNK_MORE)
            return got == CHUNK_DONE && at == s.n;
    }
    return false;
}

static void chunks_have_one_spelling(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(chunked); i++) {
        struct str s = str_of(chunked[i].bytes);
        for (size_t step = 1; step <= s.n; step++) {
            struct buf out = BUF_INIT;
            bool whole = unchunk(s, step, &out);
            if (whole != (chunked[i].want != NULL))
                fail_msg("%s: %s", whole ? "taken" : "refused", chunked[i].bytes);
            if (whole)
                assert_str(buf_str(&out), chunked[i].want);
            buf_done(&out);
        }
    }
}

/* ---- dates ---- */

static void a_date_has_three_forms_and_that_of_mails(void **state)
{
    static const char *const right[] = {"Thu, 24 Aug 2023 05:01:45 GMT",
                                        "Thu, 24 Aug 2023 05:01:45 +0000",
                                        "Thursday, 24-Aug-23 05:01:45 GMT",
                                        "Thu Aug 24 05:01:45 2023"};
    static const char *const wrong[] = {"",
                                        "today",
                                        "1692853305",
                                        "Thu, 24 Aug 2023 05:01:45",
                                        "Thu, 24 Aug 2023 05:01:45 +0200",
                                        "Thu, 32 Aug 2023 05:01:45 GMT",
                                        "Thu, 24 Aug 2023 25:01:45 GMT",
                                        "Thu, 24 Aug 20233 05:01:45 GMT",
                                        "Thu, 24 Aug 2023 05:01:45 +0000 and much more",
                                        "Thu, 24 Aug 2023 05:01:45 GMT, Thu, 24 Aug 2023 05:01"};

    for (size_t i = 0; i < ARRAY_LEN(right); i++) {
        int64_t s = 0;
        assert_true(http_date_read(str_of(right[i]), &s));
        assert_int_equal(s, 1692853305);
    }
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        int64_t s = 0;
        if (http_date_read(str_of(wrong[i]), &s))
            fail_msg("a date: %s", wrong[i]);
    }
    assert_false(http_date_read(STR_NULL, &(int64_t){0}));
    assert_false(http_date_read(STR("Thu, 24 Aug 2023 05:01:45 GMT\0"), &(int64_t){0}));
}

static void retry_after_is_a_number_or_a_date(void **state)
{
    static const char now[] = "Thu, 24 Aug 2023 05:01:45 GMT";
    static const struct {
        const char *value, *date; /* NULL: no such header */
        int64_t ms;
    } all[] = {
        {"120", now, 120000},
        {"0.35", now, 350},
        {"0", now, 0},
        {"31622400", now, 31622400000},
        {"Thu, 24 Aug 2023 05:03:15 GMT", now, 90000},
        {"Thursday, 24-Aug-23 05:03:15 GMT", now, 90000},
        {"Thu, 24 Aug 2023 05:01:45 GMT", now, 0},
        {"Mon, 01 Jan 1900 00:00:00 GMT", now, 0},
        {"Sat, 24 Aug 2024 05:01:45 GMT", now, 366 * INT64_C(86400000)},
        /* Our clock is 10 s ahead of the peer's. */
        {"Thu, 24 Aug 2023 05:03:15 GMT", NULL, 80000},
        {"Thu, 24 Aug 2023 05:03:15 GMT", "today", 80000},
        {"Thu, 24 Aug 2023 05:01:50 GMT", NULL, 0},
        /* What cannot be meant. */
        {NULL, now, -1},
        {"", now, -1},
        {"soon", now, -1},
        {"-5", now, -1},
        {"1e9", now, -1},
        {"1.5.5", now, -1},
        {"31622401", now, -1},
        {"99999999999999999999", now, -1},
        {"Sun, 25 Aug 2024 05:01:46 GMT", now, -1},
        {"Fri, 31 Dec 9999 23:59:59 GMT", now, -1},
        {"Thu, 24 Aug 2023 05:03:15 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", -1},
        {"Thu, 24 Aug 2023 05:03:15", now, -1},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        int64_t ms = http_retry_after_ms(str_of(all[i].value), str_of(all[i].date), 1692853315000);
        if (ms != all[i].ms)
            fail_msg("%s: %" PRId64, all[i].value, ms);
    }
}

UNIT(net_test_http_head)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_taken_apart),
        cmocka_unit_test(what_the_peer_wants_is_noted),
        cmocka_unit_test(targets_have_three_forms),
        cmocka_unit_test(heads_that_can_be_read_two_ways_are_refused),
        cmocka_unit_test(a_nul_stands_nowhere),
        cmocka_unit_test(a_byte_is_judged_the_same_wherever_it_stands),
        cmocka_unit_test(a_head_cut_anywhere_is_the_same_head),
        cmocka_unit_test(a_bad_head_is_bad_however_it_is_cut),
        cmocka_unit_test(long_heads_are_refused_before_they_end),
        cmocka_unit_test(a_hundred_fields_and_no_more),
        cmocka_unit_test(what_we_accept_http_parser_reads_the_same_way),
        cmocka_unit_test(chunks_have_one_spelling),
        cmocka_unit_test(a_date_has_three_forms_and_that_of_mails),
        cmocka_unit_test(retry_after_is_a_number_or_a_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
