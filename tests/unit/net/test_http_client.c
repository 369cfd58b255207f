/* Promises of net/http_client.h. */
#include "net/net_test.h"

#include <pthread.h>

#include "base/addr.h"
#include "net/http_client.h"
#include "net/http_server.h"

struct fixture {
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    int calls, done;
    char url[64];
    enum bh_err err;
    int status;
    struct buf body, header, why; /* owned */
    int64_t retry_after_ms;
    char until[64]; /* a header of an answer */
    struct http_call *call;
    bool cancel_inside, fetch_inside;
};

static void handler(void *ctx, struct http_req *r)
{
    struct fixture *f = ctx;
    struct http_id id = http_req_id(r);
    struct buf out = BUF_INIT;

    f->calls++;
    buf_printf(&out, "%.*s %.*s [%.*s] type=[%.*s] x=[%.*s]", STR_FMT(http_method(r)),
               STR_FMT(http_path(r)), STR_FMT(http_body(r)),
               STR_FMT(http_header(r, "content-type")), STR_FMT(http_header(r, "x-test")));
    struct http_answer a = {.status = 200, .body = buf_str(&out), .headers = "X-Reply: yes\r\n"};
    if (str_eq(http_path(r), STR("/redirect"))) {
        a.status = 302;
        a.headers = "Location: /elsewhere\r\n";
    } else if (str_eq(http_path(r), STR("/busy"))) {
        a.status = 429;
        a.headers = "Retry-After: 1.25\r\n";
    } else if (str_eq(http_path(r), STR("/busy/until"))) {
        strftime(f->until, sizeof f->until, "Retry-After: %a, %d %b %Y %T GMT\r\n",
                 gmtime(&(time_t){time(NULL) + 90}));
        a.status = 503;
        a.headers = f->until;
    } else if (str_eq(http_path(r), STR("/long"))) {
        memset(buf_room(&out, 100000), 'x', 100000);
        out.n += 100000;
        a.body = buf_str(&out);
    }
    if (!str_eq(http_path(r), STR("/never")))
        http_answer(f->server, id, &a);
    buf_done(&out);
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof *f);
    char why[256];

    f->loop = loop_new();
    f->server = http_server_new(f->loop, NULL, handler, f);
    assert_int_equal(http_server_listen(f->server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    f->client = http_client_new(f->loop);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    http_client_free(f->client);
    http_server_free(f->server);
    loop_free(f->loop);
    buf_done(&f->body);
    buf_done(&f->header);
    buf_done(&f->why);
    free(f);
    return 0;
}

static const char *url_of(struct fixture *f, const char *path)
{
    snprintf(f->url, sizeof f->url, "http://127.0.0.1:%d%s", http_server_port(f->server), path);
    return f->url;
}

static void on_done(void *ctx, const struct http_result *r)
{
    struct fixture *f = ctx;

    if (f->cancel_inside)
        http_cancel(&f->call); /* its own: harmless */
    f->call = NULL;
    f->done++;
    f->err = r->err;
    f->status = r->status;
    f->retry_after_ms = r->retry_after_ms;
    buf_reset(&f->body);
    buf_add_str(&f->body, r->body);
    buf_reset(&f->header);
    buf_add_str(&f->header, http_result_header(r, "x-reply"));
    buf_reset(&f->why);
    if (r->why != NULL)
        buf_add_z(&f->why, r->why);
    assert_true((r->why != NULL) == (r->err != BH_OK));
    if (f->fetch_inside) {
        f->fetch_inside = false;
        f->call = http_fetch(f->client, &(struct http_fetch){.url = f->url}, on_done, f);
    }
}

static void fetch(struct fixture *f, const struct http_fetch *what)
{
    f->done = 0;
    f->call = http_fetch(f->client, what, on_done, f);
    assert_int_equal(f->done, 0);
    assert_true(loop_until(f->loop, &f->done));
}

static void an_answer_comes_with_status_body_and_headers(void **state)
{
    struct fixture *f = *state;

    fetch(f, &(struct http_fetch){.url = url_of(f, "/a")});
    assert_int_equal(f->err, BH_OK);
    assert_int_equal(f->status, 200);
    assert_string_equal(buf_z(&f->body), "GET /a [] type=[] x=[]");
    assert_string_equal(buf_z(&f->header), "yes");
    assert_int_equal(f->retry_after_ms, -1);
}

static void methods_bodies_and_headers_arrive(void **state)
{
    static const char *const headers[] = {"X-Test: 1", "Content-Type: application/json", NULL};
    struct fixture *f = *state;
    char *large = xmalloc(300000);

    fetch(f, &(struct http_fetch){
                 .url = url_of(f, "/p"), .method = "POST", .headers = headers, .body = STR("{}")});
    assert_string_equal(buf_z(&f->body), "POST /p [{}] type=[application/json] x=[1]");
    fetch(f, &(struct http_fetch){.url = url_of(f, "/e"), .method = "POST"});
    assert_string_equal(buf_z(&f->body), "POST /e [] type=[] x=[]");
    fetch(f, &(struct http_fetch){.url = url_of(f, "/d"), .method = "DELETE"});
    assert_string_equal(buf_z(&f->body), "DELETE /d [] type=[] x=[]");
    fetch(f, &(struct http_fetch){.url = url_of(f, "/x"), .method = "PATCH", .body = STR("q")});
    assert_string_equal(buf_z(&f->body), "PATCH /x [q] type=[] x=[]");
    fetch(f, &(struct http_fetch){.url = url_of(f, "/h"), .method = "HEAD"});
    assert_int_equal(f->status, 200);
    assert_int_equal(f->body.n, 0);
    memset(large, 'l', 300000);
    fetch(f, &(struct http_fetch){.url = url_of(f, "/l"),
                                  .method = "PUT",
                                  .body = str_make(large, 300000)});
    assert_int_equal(f->body.n, strlen("PUT /l [] type=[] x=[]") + 300000);
    free(large);
}

static void redirects_are_not_followed(void **state)
{
    struct fixture *f = *state;

    fetch(f, &(struct http_fetch){.url = url_of(f, "/redirect")});
    assert_int_equal(f->err, BH_OK);
    assert_int_equal(f->status, 302);
    assert_int_equal(f->calls, 1);
}

static void retry_after_is_read(void **state)
{
    struct fixture *f = *state;

    fetch(f, &(struct http_fetch){.url = url_of(f, "/busy")});
    assert_int_equal(f->status, 429);
    assert_int_equal(f->retry_after_ms, 1250);
    fetch(f, &(struct http_fetch){.url = url_of(f, "/busy/until")});
    assert_in_range(f->retry_after_ms, 88000, 92000);
}

static void an_answer_that_never_comes_is_unknown(void **state)
{
    struct fixture *f = *state;
    int64_t start = test_now_ms();

    fetch(f, &(struct http_fetch){.url = url_of(f, "/never"), .timeout_ms = 200});
    assert_int_equal(f->err, BH_UNKNOWN);
    assert_in_range(test_now_ms() - start, 150, 2000);
    assert_int_equal(f->calls, 1);
}

static void a_closed_port_is_unavailable(void **state)
{
    struct fixture *f = *state;

    url_of(f, "/");
    http_server_drain(f->server);
    fetch(f, &(struct http_fetch){.url = f->url});
    assert_int_equal(f->err, BH_UNAVAILABLE);
    fetch(f, &(struct http_fetch){.url = "http://name.invalid/"});
    assert_int_equal(f->err, BH_UNAVAILABLE);
}

static void only_http_urls_are_fetched(void **state)
{
    struct fixture *f = *state;

    fetch(f, &(struct http_fetch){.url = "file:///etc/passwd"});
    assert_int_equal(f->err, BH_REFUSED);
    fetch(f, &(struct http_fetch){.url = "not a url"});
    assert_int_equal(f->err, BH_REFUSED);
}

static void public_only_refuses_private_addresses_and_names_of_them(void **state)
{
    static const char *const hosts[] = {"127.0.0.1",         "localhost", "[::1]",
                                        "0.0.0.0",           "127.1",     "0x7f000001",
                                        "[::ffff:127.0.0.1]"};
    struct fixture *f = *state;

    fetch(f, &(struct http_fetch){.url = url_of(f, "/warm")}); /* a connection to reuse */
    assert_int_equal(f->calls, 1);
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        char url[96];
        snprintf(url, sizeof url, "http://%s:%d/", hosts[i], http_server_port(f->server));
        fetch(f, &(struct http_fetch){.url = url, .public_only = true});
        assert_int_equal(f->err, BH_REFUSED);
        assert_string_equal(buf_z(&f->why), "the address is not a public one");
    }
    assert_int_equal(f->calls, 1);
}

static void a_long_answer_is_cut_off(void **state)
{
    struct fixture *f = *state;

    fetch(f, &(struct http_fetch){.url = url_of(f, "/long"), .max_body = 50000});
    assert_int_equal(f->err, BH_MALFORMED);
    fetch(f, &(struct http_fetch){.url = url_of(f, "/long"), .max_body = 200000});
    assert_int_equal(f->err, BH_OK);
}

static void a_cancelled_call_never_calls_back(void **state)
{
    struct fixture *f = *state;
    struct http_call *call =
        http_fetch(f->client, &(struct http_fetch){.url = url_of(f, "/a")}, on_done, f);

    http_cancel(&call);
    assert_null(call);
    http_cancel(&call);
    call = http_fetch(f->client, &(struct http_fetch){.url = url_of(f, "/never")}, on_done, f);
    assert_true(loop_until(f->loop, &f->calls));
    http_cancel(&call);
    loop_turns(f->loop, 10);
    assert_int_equal(f->done, 0);
}

static void a_callback_may_cancel_itself_and_start_another(void **state)
{
    struct fixture *f = *state;

    f->cancel_inside = f->fetch_inside = true;
    fetch(f, &(struct http_fetch){.url = url_of(f, "/a")});
    while (f->done < 2)
        loop_turn(f->loop, 10);
    assert_int_equal(f->calls, 2);
}

static void freeing_the_client_cancels_what_is_under_way(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 5; i++)
        f->call =
            http_fetch(f->client, &(struct http_fetch){.url = url_of(f, "/never")}, on_done, f);
    loop_turns(f->loop, 10);
    http_client_free(f->client);
    f->client = NULL;
    loop_turns(f->loop, 10);
    assert_int_equal(f->done, 0);
}

static void what_is_not_http_is_malformed(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), peer = -1;
    char url[64];

    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 4), 0);
    getsockname(listener, (struct sockaddr *)&a, &n);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(a.sin_port));
    f->call =
        http_fetch(f->client, &(struct http_fetch){.url = url, .timeout_ms = 3000}, on_done, f);
    for (int i = 0; i < 500 && peer < 0; i++) {
        loop_turn(f->loop, 5);
        peer = accept(listener, NULL, NULL);
    }
    assert_true(peer >= 0);
    loop_turns(f->loop, 5);
    assert_int_equal(write(peer, "SSH-2.0-OpenSSH\r\n\r\n", 19), 19);
    assert_true(loop_until(f->loop, &f->done));
    assert_int_equal(f->err, BH_MALFORMED);
    close(peer);
    close(listener);
}

static int raw_listener(char ret_url[64])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    getsockname(fd, (struct sockaddr *)&a, &n);
    snprintf(ret_url, 64, "http://127.0.0.1:%d/", ntohs(a.sin_port));
    return fd;
}

/* Turn the loop until a request's body has arrived at @peer. */
static void take_request(struct fixture *f, int peer, const char *body)
{
    char got[4096] = "";
    size_t n = 0;

    for (int i = 0; i < 500 && strstr(got, body) == NULL; i++) {
        loop_turn(f->loop, 5);
        ssize_t r = recv(peer, got + n, sizeof got - n - 1, MSG_DONTWAIT);
        n += r > 0 ? (size_t)r : 0;
        got[n] = '\0';
    }
    assert_non_null(strstr(got, body));
}

static void what_must_happen_once_is_not_repeated_on_a_dead_connection(void **state)
{
    struct fixture *f = *state;
    char url[64];
    int listener = raw_listener(url), peer = -1;
    struct http_fetch post = {.method = "POST", .url = url, .body = STR("first"), .once = true};

    f->call = http_fetch(f->client, &post, on_done, f);
    for (int i = 0; i < 500 && peer < 0; i++) {
        loop_turn(f->loop, 5);
        peer = accept(listener, NULL, NULL);
    }
    take_request(f, peer, "first");
    assert_int_equal(write(peer, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38), 38);
    assert_true(loop_until(f->loop, &f->done));
    assert_int_equal(f->err, BH_OK);
    f->done = 0;
    post.body = STR("second");
    f->call = http_fetch(f->client, &post, on_done, f);
    take_request(f, peer, "second"); /* on the kept connection, which dies now */
    close(peer);
    assert_true(loop_until(f->loop, &f->done));
    assert_int_equal(f->err, BH_UNKNOWN);
    loop_turns(f->loop, 5);
    peer = accept(listener, NULL,
                  NULL); /* a new connection may be there, but nothing was sent on it */
    if (peer >= 0) {
        char byte;
        assert_true(recv(peer, &byte, 1, MSG_DONTWAIT) <= 0);
        close(peer);
    }
    close(listener);
}

static void a_unix_socket_is_reached(void **state)
{
    struct fixture *f = *state;
    char dir[] = "/tmp/bellhop-net-XXXXXX", path[64], where[80], why[256];

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/s", dir);
    snprintf(where, sizeof where, "unix:%s", path);
    assert_int_equal(http_server_listen(f->server, str_of(where), NULL, 0600, why), BH_OK);
    fetch(f, &(struct http_fetch){.url = "http://bellhop/u", .unix_socket = path});
    assert_int_equal(f->err, BH_OK);
    assert_string_equal(buf_z(&f->body), "GET /u [] type=[] x=[]");
    http_server_drain(f->server);
    rmdir(dir);
}

static void *run_loop(void *ctx)
{
    loop_run(ctx);
    return NULL;
}

static void stop_loop(void *ctx)
{
    loop_stop(ctx);
}

static void the_blocking_form_does_the_same(void **state)
{
    struct fixture *f = *state;
    struct buf body = BUF_INIT;
    char why[256] = "";
    pthread_t thread;
    int status = 0;

    url_of(f, "/now");
    pthread_create(&thread, NULL, run_loop, f->loop);
    assert_int_equal(http_fetch_now(&(struct http_fetch){.url = f->url}, &status, &body, why),
                     BH_OK);
    assert_int_equal(status, 200);
    assert_string_equal(buf_z(&body), "GET /now [] type=[] x=[]");
    loop_post(f->loop, stop_loop, f->loop);
    pthread_join(thread, NULL);
    assert_int_equal(http_fetch_now(&(struct http_fetch){.url = "http://127.0.0.1:1/"}, &status,
                                    &body, why),
                     BH_UNAVAILABLE);
    assert_true(strlen(why) > 0);
    buf_done(&body);
}

static void private_addresses_are_known(void **state)
{
    static const struct {
        const char *addr;
        bool is_private;
    } table[] = {
        {"127.0.0.1", true},
        {"10.1.2.3", true},
        {"172.16.0.1", true},
        {"172.32.0.1", false},
        {"192.168.1.1", true},
        {"169.254.169.254", true},
        {"100.64.0.1", true},
        {"100.128.0.1", false},
        {"0.0.0.0", true},
        {"224.0.0.1", true},
        {"255.255.255.255", true},
        {"8.8.8.8", false},
        {"1.1.1.1", false},
        {"198.18.0.1", true},
        {"223.255.255.255", false},
        {"::1", true},
        {"::", true},
        {"fe80::1", true},
        {"fd00::1", true},
        {"fec0::1", true},
        {"ff02::1", true},
        {"::ffff:10.0.0.1", true},
        {"::ffff:8.8.8.8", false},
        {"64:ff9b::a00:1", true},
        {"64:ff9b::808:808", false},
        {"2002:7f00:1::", true},
        {"2001:db8::1", true},
        {"2001::1", true},
        {"2606:4700::1111", false},
        {"fd00:ec2::254", true},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct sockaddr_in a4 = {.sin_family = AF_INET};
        struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
        bool v4 = inet_pton(AF_INET, table[i].addr, &a4.sin_addr) == 1;
        if (!v4)
            assert_int_equal(inet_pton(AF_INET6, table[i].addr, &a6.sin6_addr), 1);
        print_message("  %s\n", table[i].addr);
        struct addr a = addr_of(v4 ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6);
        assert_int_equal(addr_is_private(&a), table[i].is_private);
    }
}

static void metadata_addresses_are_known_in_every_spelling(void **state)
{
    static const char *const asked_never[] = {
        "169.254.169.254",        "169.254.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::",       "fe80::1",     "fd00:ec2::254",          "100.100.100.200",
        "::ffff:100.100.100.200", "192.0.0.192",
    };
    static const char *const others[] = {"127.0.0.1", "10.0.0.1", "100.100.100.100",
                                         "192.0.0.1", "fd00::1",  "64:ff9b::808:808"};
    struct addr a;

    for (size_t i = 0; i < ARRAY_LEN(asked_never); i++) {
        assert_true(addr_parse(str_of(asked_never[i]), &a));
        assert_true(addr_is_local_link(&a));
    }
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_true(addr_parse(str_of(others[i]), &a));
        assert_false(addr_is_local_link(&a));
    }
}

static void a_call_without_a_descriptor_fails_and_a_later_one_works(void **state)
{
    struct fixture *f = *state;
    struct rlimit was;

    test_no_descriptors(&was);
    fetch(f, &(struct http_fetch){.url = url_of(f, "/a")});
    assert_int_equal(f->err, BH_UNAVAILABLE);
    f->call = http_fetch(f->client, &(struct http_fetch){.url = f->url}, on_done, f);
    http_cancel(&f->call);
    f->call = http_fetch(f->client, &(struct http_fetch){.url = f->url}, on_done, f);
    f->cancel_inside = true;
    f->done = 0;
    assert_true(loop_until(f->loop, &f->done));
    assert_int_equal(f->err, BH_UNAVAILABLE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    fetch(f, &(struct http_fetch){.url = url_of(f, "/a")});
    assert_int_equal(f->err, BH_OK);
}

static void freeing_the_client_forgets_what_could_not_begin(void **state)
{
    struct fixture *f = *state;
    struct rlimit was;

    test_no_descriptors(&was);
    f->call = http_fetch(f->client, &(struct http_fetch){.url = "http://127.0.0.1:1"}, on_done, f);
    http_client_free(f->client);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    f->client = http_client_new(f->loop);
    loop_turns(f->loop, 3);
    assert_int_equal(f->done, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT(net_test_http_client)
{
    const struct CMUnitTest tests[] = {
        T(an_answer_comes_with_status_body_and_headers),
        T(methods_bodies_and_headers_arrive),
        T(redirects_are_not_followed),
        T(retry_after_is_read),
        T(an_answer_that_never_comes_is_unknown),
        T(a_closed_port_is_unavailable),
        T(only_http_urls_are_fetched),
        T(public_only_refuses_private_addresses_and_names_of_them),
        T(a_long_answer_is_cut_off),
        T(a_cancelled_call_never_calls_back),
        T(a_callback_may_cancel_itself_and_start_another),
        T(freeing_the_client_cancels_what_is_under_way),
        T(what_is_not_http_is_malformed),
        T(what_must_happen_once_is_not_repeated_on_a_dead_connection),
        T(a_unix_socket_is_reached),
        T(the_blocking_form_does_the_same),
        T(a_call_without_a_descriptor_fails_and_a_later_one_works),
        T(freeing_the_client_forgets_what_could_not_begin),
        cmocka_unit_test(private_addresses_are_known),
        cmocka_unit_test(metadata_addresses_are_known_in_every_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
