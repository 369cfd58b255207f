/* Promises of base/addr.h, and of net/http_server.h about proxies and names. */
#include "net/net_test.h"

#include <sys/un.h>

#include "base/addr.h"
#include "net/http_server.h"

struct fixture {
    struct loop *loop;
    struct http_server *server;
    int port;
    char path[64]; /* of a Unix socket */
};

static void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;
    struct buf out = BUF_INIT;

    buf_printf(&out, "peer=%.*s.", STR_FMT(http_peer(r)));
    http_answer(f->server, http_req_id(r),
                &(struct http_answer){.status = 200, .body = buf_str(&out)});
    buf_done(&out);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256];

    f->loop = loop_new();
    f->server = http_server_new(f->loop, NULL, handler, f);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    f->port = http_server_port(f->server);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_server_free(f->server);
    loop_free(f->loop);
    if (f->path[0] != '\0')
        unlink(f->path);
    free(f);
    return 0;
}

static void trust(struct fixture *f, const char *nets)
{
    struct addr_net list[8];
    struct str rest = str_of(nets), one;
    size_t n = 0;

    while (nets[0] != '\0' && str_split(&rest, ' ', &one))
        assert_true(addr_net_parse(one, &list[n++]));
    http_server_trust(f->server, list, n);
}

/* Ask with these header lines; the answer must hold @want. */
static void check(struct fixture *f, const char *lines, const char *want)
{
    struct raw r = raw_connect(f->loop, f->port);
    struct buf req = BUF_INIT;

    buf_printf(&req, "GET / HTTP/1.1\r\n%s\r\n", lines);
    raw_send(&r, buf_str(&req));
    if (!raw_wait(&r, want))
        fail_msg("%s: got %s, wanted %s", lines, buf_z(&r.got), want);
    raw_close(&r);
    buf_done(&req);
}

/* ---- addresses ---- */

static void the_names_of_this_machine_are_known_whole(void **state)
{
    static const char *const local[] = {"localhost", "LocalHost", "127.0.0.1",       "127.9.9.9",
                                        "::1",       "[::1]",     "::ffff:127.0.0.1"};
    static const char *const others[] = {"",
                                         "localhost.evil.example",
                                         "127.0.0.1.evil.example",
                                         "127.evil",
                                         "1270.0.0.1",
                                         "10.0.0.1",
                                         "localhost1",
                                         "::2"};

    for (size_t i = 0; i < ARRAY_LEN(local); i++)
        if (!addr_host_is_local(str_of(local[i])))
            fail_msg("%s", local[i]);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (addr_host_is_local(str_of(others[i])))
            fail_msg("%s", others[i]);
}

static void addresses_are_read_in_every_spelling(void **state)
{
    static const struct {
        const char *text, *want; /* NULL: none */
    } table[] = {
        {"192.0.2.1", "192.0.2.1"},
        {"192.0.2.1:80", "192.0.2.1"},
        {"2001:DB8::1", "2001:db8::1"},
        {"[2001:db8::1]", "2001:db8::1"},
        {"[2001:db8::1]:443", "2001:db8::1"},
        {"::ffff:192.0.2.1", "192.0.2.1"},
        {"", NULL},
        {"unknown", NULL},
        {"192.0.2", NULL},
        {"192.0.2.256", NULL},
        {"192.0.2.1:x", NULL},
        {"192.0.2.1 ", NULL},
        {"1.evil.example", NULL},
        {"_hidden", NULL},
        {"[::1", NULL},
        {"0123456789012345678901234567890123456789012345678901234567890123456789", NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct addr a;
        char text[ADDR_TEXT_BYTES];
        bool ok = addr_parse(str_of(table[i].text), &a);
        if (ok != (table[i].want != NULL))
            fail_msg("%s", table[i].text);
        if (!ok)
            continue;
        addr_text(&a, text);
        assert_string_equal(text, table[i].want);
    }
}

static void networks_hold_what_agrees_in_their_bits(void **state)
{
    static const struct {
        const char *net, *in, *out;
    } table[] = {
        {"10.0.0.0/8", "10.255.0.1", "11.0.0.1"},
        {"192.0.2.0/25", "192.0.2.127", "192.0.2.128"},
        {"192.0.2.7", "192.0.2.7", "192.0.2.6"},
        {"0.0.0.0/0", "203.0.113.9", "2001:db8::1"},
        {"2001:db8::/33", "2001:db8:7fff::1", "2001:db8:8000::1"},
        {"::1", "::1", "::2"},
        {"::/0", "2001:db8::1", "192.0.2.1"},
        {"::ffff:10.0.0.0/8", "10.1.1.1", "11.1.1.1"},
    };
    static const char *const bad[] = {"",          "x",           "10.0.0.0/33",  "::/129",
                                      "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8", "/8"};
    struct addr_net net;
    struct addr a;

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        assert_true(addr_net_parse(str_of(table[i].net), &net));
        assert_true(addr_parse(str_of(table[i].in), &a) && addr_is_in(&a, &net, 1));
        assert_true(addr_parse(str_of(table[i].out), &a) && !addr_is_in(&a, &net, 1));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(addr_net_parse(str_of(bad[i]), &net));
    assert_true(addr_net_parse(STR("unix"), &net) && addr_is_in(&(struct addr){0}, &net, 1));
    assert_false(addr_is_in(&a, &net, 1));
}

static void an_ipv6_peer_counts_as_its_network(void **state)
{
    struct addr a, b, c, d;

    assert_true(addr_parse(STR("2001:db8:1:2::1"), &a) && addr_parse(STR("2001:db8:1:2:3::"), &b));
    assert_true(addr_parse(STR("2001:db8:1:3::1"), &c) && addr_parse(STR("192.0.2.1"), &d));
    assert_true(str_eq(addr_party(&a), addr_party(&b)));
    assert_false(str_eq(addr_party(&a), addr_party(&c)));
    assert_int_equal(addr_party(&d).n, 4);
}

/* ---- X-Forwarded-For ---- */

#define H "Host: x\r\n"

static void a_stranger_is_not_believed(void **state)
{
    check(*state, H "X-Forwarded-For: 203.0.113.7\r\n", "peer=127.0.0.1.");
    trust(*state, "10.0.0.0/8");
    check(*state, H "X-Forwarded-For: 203.0.113.7\r\n", "peer=127.0.0.1.");
}

static void of_a_trusted_proxy_the_rightmost_stranger_counts(void **state)
{
    static const struct {
        const char *lines, *want;
    } table[] = {
        {H, "peer=127.0.0.1."},
        {H "X-Forwarded-For: 203.0.113.7\r\n", "peer=203.0.113.7."},
        {H "X-Forwarded-For: 198.51.100.1, 203.0.113.7\r\n", "peer=203.0.113.7."},
        {H "X-Forwarded-For: 203.0.113.7, 10.1.2.3\r\n", "peer=203.0.113.7."},
        {H "X-Forwarded-For: 203.0.113.7,10.1.2.3 ,\t10.9.9.9\r\n", "peer=203.0.113.7."},
        {H "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-For: 10.1.2.3\r\n", "peer=203.0.113.7."},
        {H "X-Forwarded-For: 1.1.1.1\r\nx-forwarded-for: 203.0.113.7\r\n", "peer=203.0.113.7."},
        {H "X-Forwarded-For: 10.1.2.3, 10.4.5.6\r\n", "peer=10.1.2.3."},
        {H "X-Forwarded-For: [2001:db8::7]:4711\r\n", "peer=2001:db8::7."},
        {H "X-Forwarded-For: 203.0.113.7:4711\r\n", "peer=203.0.113.7."},
        {H "X-Forwarded-For: nonsense\r\n", "peer=127.0.0.1."},
        {H "X-Forwarded-For: 203.0.113.7, nonsense, 10.1.2.3\r\n", "peer=10.1.2.3."},
        {H "X-Forwarded-For:\r\n", "peer=127.0.0.1."},
    };
    struct fixture *f = *state;

    trust(f, "127.0.0.1 10.0.0.0/8");
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        check(f, table[i].lines, table[i].want);
}

static void a_proxy_on_a_unix_socket_may_be_trusted(void **state)
{
    struct fixture *f = *state;
    char where[80], why[256];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct raw r = {.loop = f->loop, .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};

    snprintf(f->path, sizeof f->path, "/tmp/bellhop-peer-%d", (int)getpid());
    snprintf(where, sizeof where, "unix:%s", f->path);
    assert_int_equal(http_server_listen(f->server, str_of(where), NULL, 0600, why), BH_OK);
    trust(f, "unix");
    snprintf(a.sun_path, sizeof a.sun_path, "%s", f->path);
    assert_int_equal(connect(r.fd, (struct sockaddr *)&a, sizeof a), 0);
    fcntl(r.fd, F_SETFL, O_NONBLOCK);
    raw_send_z(&r, "GET / HTTP/1.1\r\n" H "X-Forwarded-For: 203.0.113.7\r\n\r\n");
    assert_true(raw_wait(&r, "peer=203.0.113.7."));
    raw_close(&r);
}

/* ---- the PROXY protocol ---- */

static const char v4[] = "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\x7f\0\0\1\x12\x34\0\x50";
enum { V4_BYTES = sizeof v4 - 1 };

static void listen_for_proxies(struct fixture *f, const char *trusted)
{
    trust(f, trusted);
    http_server_set_last(f->server, &(struct http_listener){.proxy_protocol = true});
}

static void a_proxy_says_first_for_whom(void **state)
{
    struct fixture *f = *state;

    listen_for_proxies(f, "127.0.0.1");
    for (size_t cut = 0; cut <= V4_BYTES; cut++) {
        struct raw r = raw_connect(f->loop, f->port);
        raw_send(&r, str_make(v4, cut));
        loop_turns(f->loop, 1);
        raw_send(&r, str_make(v4 + cut, V4_BYTES - cut));
        raw_send_z(&r, "GET / HTTP/1.1\r\n" H "\r\n");
        assert_true(raw_wait(&r, "peer=203.0.113.7."));
        raw_forget(&r);
        raw_send_z(&r, "GET / HTTP/1.1\r\n" H "X-Forwarded-For: 1.1.1.1\r\n\r\n");
        assert_true(raw_wait(&r, "peer=203.0.113.7.")); /* who is no proxy is not believed */
        raw_close(&r);
    }
}

static void nobody_else_may_connect_there(void **state)
{
    struct fixture *f = *state;
    struct raw r;

    listen_for_proxies(f, "10.0.0.0/8");
    r = raw_connect(f->loop, f->port);
    raw_send(&r, str_make(v4, V4_BYTES));
    assert_true(raw_wait_eof(&r));
    assert_int_equal(r.got.n, 0);
    raw_close(&r);
}

static void a_proxy_that_says_nothing_is_cut_off(void **state)
{
    struct fixture *f = *state;
    struct raw r;

    listen_for_proxies(f, "127.0.0.1");
    r = raw_connect(f->loop, f->port);
    raw_send_z(&r, "GET / HTTP/1.1\r\n" H "\r\n");
    assert_true(raw_wait_eof(&r));
    assert_int_equal(r.got.n, 0);
    raw_close(&r);
}

static void headers_are_read_strictly(void **state)
{
    char b[PROXY_MAX_BYTES + 10] = {0};
    struct addr peer = {.n = 4, .bytes = {9, 9, 9, 9}};
    size_t need;

    memcpy(b, v4, V4_BYTES);
    b[12] = 0x20; /* LOCAL: the proxy itself */
    assert_int_equal(proxy_read(b, V4_BYTES, &peer, &need), PROXY_DONE);
    assert_int_equal(peer.bytes[0], 9);
    b[12] = 0x11; /* version 1 */
    assert_int_equal(proxy_read(b, V4_BYTES, &peer, &need), PROXY_BAD);
    b[12] = 0x22; /* no such command */
    assert_int_equal(proxy_read(b, V4_BYTES, &peer, &need), PROXY_BAD);
    b[12] = 0x21;
    b[13] = 0x31; /* a Unix socket: no address */
    assert_int_equal(proxy_read(b, V4_BYTES, &peer, &need), PROXY_DONE);
    assert_int_equal(peer.bytes[0], 9);
    b[13] = 0x21; /* IPv6, but too short */
    assert_int_equal(proxy_read(b, V4_BYTES, &peer, &need), PROXY_BAD);
    b[15] = 36 + 7; /* with something more behind it */
    b[16 + 10] = b[16 + 11] = (char)0xff;
    assert_int_equal(proxy_read(b, 16, &peer, &need), PROXY_MORE);
    assert_int_equal(need, 16 + 36 + 7);
    assert_int_equal(proxy_read(b, need, &peer, &need), PROXY_DONE);
    assert_int_equal(peer.n, 16);
    b[14] = 0x7f; /* longer than anybody needs */
    assert_int_equal(proxy_read(b, 16, &peer, &need), PROXY_BAD);
}

/* ---- names ---- */

static void only_names_of_ours_are_answered(void **state)
{
    static const char *const names[] = {"Bellhop.example.org", "*.inside.example", NULL};
    static const char *const good[] = {
        "bellhop.example.org", "BELLHOP.EXAMPLE.ORG:443", "bellhop.example.org.",
        "a.inside.example",    "a.b.inside.example:8080", "localhost",
        "localhost:7077",      "chat.localhost",          "127.0.0.1",
        "127.0.0.1:7077",      "192.168.1.5:7077",        "[::1]:7077",
        "[2001:db8::1]",
    };
    static const char *const bad[] = {
        "evil.example",   "evil.example:7077",      "bellhop.example.org.evil.example",
        "example.org",    "inside.example",         "xinside.example",
        "notlocalhost",   "localhost.evil.example", "127.0.0.1.evil.example",
        "1.evil.example",
    };
    struct fixture *f = *state;
    char line[128];

    http_server_answer_to(f->server, names);
    for (int round = 0; round < 2; round++) { /* the second time from memory */
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
            snprintf(line, sizeof line, "Host: %s\r\n", good[i]);
            check(f, line, "HTTP/1.1 200 ");
        }
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            snprintf(line, sizeof line, "Host: %s\r\n", bad[i]);
            check(f, line, "HTTP/1.1 421 ");
            check(f, line, "is not called ");
        }
    }
}

static void a_star_is_any_name_and_a_listener_may_not_care(void **state)
{
    struct fixture *f = *state;

    http_server_answer_to(f->server, (const char *const[]){"*", NULL});
    check(f, "Host: evil.example\r\n", "HTTP/1.1 200 ");
    http_server_answer_to(f->server, (const char *const[]){NULL});
    check(f, "Host: evil.example\r\n", "HTTP/1.1 421 ");
    http_server_set_last(f->server, &(struct http_listener){.any_host = true});
    check(f, "Host: evil.example\r\n", "HTTP/1.1 200 ");
}

static void an_old_request_without_a_name_is_answered(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    http_server_answer_to(f->server, (const char *const[]){NULL});
    raw_send_z(&r, "GET / HTTP/1.0\r\n\r\n");
    assert_true(raw_wait(&r, "HTTP/1.1 200 "));
    raw_close(&r);
    r = raw_connect(f->loop, f->port);
    raw_send_z(&r, "GET http://evil.example/ HTTP/1.0\r\n\r\n");
    assert_true(raw_wait(&r, "HTTP/1.1 421 "));
    raw_close(&r);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(net_test_http_peer)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_names_of_this_machine_are_known_whole),
        cmocka_unit_test(addresses_are_read_in_every_spelling),
        cmocka_unit_test(networks_hold_what_agrees_in_their_bits),
        cmocka_unit_test(an_ipv6_peer_counts_as_its_network),
        T(a_stranger_is_not_believed),
        T(of_a_trusted_proxy_the_rightmost_stranger_counts),
        T(a_proxy_on_a_unix_socket_may_be_trusted),
        T(a_proxy_says_first_for_whom),
        T(nobody_else_may_connect_there),
        T(a_proxy_that_says_nothing_is_cut_off),
        cmocka_unit_test(headers_are_read_strictly),
        T(only_names_of_ours_are_answered),
        T(a_star_is_any_name_and_a_listener_may_not_care),
        T(an_old_request_without_a_name_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
