/* Promises of net/redis_client.h, on a real server. */
#include "unit.h"
#include <signal.h>
#include <stdio.h>
#include "base/buf.h"
#include "net/loop.h"
#include "net/redis_client.h"
#include "net/redis_server.h"

static struct loop *loop;
static struct redis_client *client;
static struct buf heard; /* every reply's text, with a blank behind it */
static int ups, downs;
static bool close_in_reply;

static void on_up(void *ctx)
{
    ups++;
}

static void on_down(void *ctx)
{
    downs++;
}

static void on_reply(void *ctx, const struct resp *r)
{
    for (size_t i = 0; i < r->n_items; i++)
        buf_printf(&heard, "%.*s/", STR_FMT(r->items[i]));
    buf_printf(&heard, "%s%.*s ", r->kind == RESP_ERROR ? "error:" : "", STR_FMT(r->text));
    if (close_in_reply) {
        redis_client_close(client);
        client = NULL;
    }
}

static struct redis_client *open_client(const char *url, const char *ca)
{
    static const struct redis_client_handlers handlers = {on_up, on_down, on_reply};
    struct redis_client_options o = {.url = url, .ca = ca, .name = "test"};
    char why[256] = "";
    struct redis_client *c = redis_client_open(loop, &o, &handlers, NULL, why);

    if (c == NULL)
        fail_msg("%s", why);
    return c;
}

static void turns(int n)
{
    for (int i = 0; i < n; i++)
        loop_turn(loop, 10);
}

static void wait_up(struct redis_client *c, bool up)
{
    for (int i = 0; i < 3000 && redis_client_is_up(c) != up; i++)
        loop_turn(loop, 10);
    assert_int_equal(redis_client_is_up(c), up);
}

static void wait_heard(const char *what)
{
    for (int i = 0; i < 3000 && strcmp(buf_z(&heard), what) != 0; i++)
        loop_turn(loop, 10);
    assert_string_equal(buf_z(&heard), what);
}

static void say(const char *a, const char *b, const char *c)
{
    const struct str words[] = {str_of(a), str_of(b), str_of(c)};

    redis_client_send(client, words, c != NULL ? 3 : b != NULL ? 2 : 1);
}

static int setup(void **state)
{
    loop = loop_new();
    buf_reset(&heard);
    ups = downs = 0;
    close_in_reply = false;
    client = open_client(redis_url, NULL);
    wait_up(client, true);
    return 0;
}

static int teardown(void **state)
{
    redis_client_close(client);
    loop_turn(loop, 0);
    loop_free(loop);
    buf_done(&heard);
    return 0;
}

static void replies_come_in_the_order_of_the_commands(void **state)
{
    say("SET", "a", "1");
    say("INCR", "a", NULL);
    say("GET", "a", NULL);
    say("NOSUCH", NULL, NULL);
    say("ECHO", "x", NULL);
    for (int i = 0; i < 3000 && !str_ends(buf_str(&heard), STR("x ")); i++)
        loop_turn(loop, 10);
    assert_memory_equal(buf_z(&heard), "OK 2 2 error:", 13);
    assert_int_equal(ups, 1);
}

static void a_large_value_arrives_whole(void **state)
{
    struct buf big = BUF_INIT;

    for (int i = 0; i < 1 << 20; i++)
        buf_add_c(&big, (char)('a' + i % 26));
    redis_client_send(client, (const struct str[]){STR("ECHO"), buf_str(&big)}, 2);
    for (int i = 0; i < 3000 && heard.n == 0; i++)
        loop_turn(loop, 10);
    assert_int_equal(heard.n, big.n + 1);
    assert_memory_equal(heard.p, big.p, big.n);
    buf_done(&big);
}

static void it_may_be_closed_inside_a_handler(void **state)
{
    close_in_reply = true;
    say("ECHO", "x", NULL);
    say("ECHO", "y", NULL);
    wait_heard("x ");
    turns(5);
    assert_null(client);
    assert_string_equal(buf_z(&heard), "x ");
}

static void a_server_that_dies_is_found_again_and_both_are_told(void **state)
{
    redis_stop(SIGKILL);
    wait_up(client, false);
    assert_int_equal(downs, 1);
    say("ECHO", "lost", NULL);
    assert_true(redis_try());
    wait_up(client, true);
    assert_int_equal(ups, 2);
    say("ECHO", "kept", NULL);
    wait_heard("kept ");
}

static void a_server_that_went_deaf_is_noticed(void **state)
{
    kill(redis_pid, SIGSTOP);
    wait_up(client, false);
    kill(redis_pid, SIGCONT);
    wait_up(client, true);
    assert_int_equal(heard.n, 0); /* signs of life are not the owner's */
}

static void a_wrong_password_is_no_connection(void **state)
{
    char url[128];

    snprintf(url, sizeof url, "redis://:wrong@127.0.0.1:%d", redis_port);
    struct redis_client *c = open_client(url, NULL);
    turns(30);
    assert_false(redis_client_is_up(c));
    redis_client_close(c);
}

static void tls_needs_an_authority_that_vouches(void **state)
{
    char url[128], ca[128];

    snprintf(url, sizeof url, "rediss://:s3cret%%3a%%2F%%40@localhost:%d", redis_tls_port);
    snprintf(ca, sizeof ca, "%s/cert.pem", redis_dir);
    struct redis_client *trusting = open_client(url, ca), *doubting = open_client(url, NULL);
    wait_up(trusting, true);
    turns(30);
    assert_false(redis_client_is_up(doubting));
    redis_client_close(trusting);
    redis_client_close(doubting);
}

static void a_unix_socket_works_too(void **state)
{
    char url[128], why[256];

    snprintf(url, sizeof url, "unix:%s/redis.sock", redis_dir);
    assert_true(redis_url_ok(url, why));
    struct redis_client *c = open_client(url, NULL); /* it has no password: refused, but reached */
    turns(30);
    assert_false(redis_client_is_up(c));
    redis_client_close(c);
}

static void addresses_that_are_none_are_refused_with_a_sentence(void **state)
{
    static const char *const bad[] = {"",
                                      "localhost:6379",
                                      "http://localhost",
                                      "redis://",
                                      "redis://host:0",
                                      "redis://host:65536",
                                      "redis://host:port",
                                      "redis://host/name",
                                      "redis://user@host",
                                      "redis://u:%zz@host",
                                      "redis://u:%00@host",
                                      "redis://[::1",
                                      "redis://[::1]6379",
                                      "redis://ho st",
                                      NULL};
    static const char *const good[] = {"redis://host",         "redis://host:1/15",
                                       "redis://[::1]:99",     "redis://:p@host",
                                       "rediss://u:p@host",    "redis://u:p%40@h/0",
                                       "unix:/run/redis.sock", NULL};
    char why[256];

    for (size_t i = 0; bad[i] != NULL; i++) {
        why[0] = '\0';
        if (redis_url_ok(bad[i], why))
            fail_msg("taken: %s", bad[i]);
        assert_non_null(strstr(why, "expected redis://"));
    }
    for (size_t i = 0; good[i] != NULL; i++)
        if (!redis_url_ok(good[i], why))
            fail_msg("%s: %s", good[i], why);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(net_test_redis_client)
{
    const struct CMUnitTest tests[] = {
        T(replies_come_in_the_order_of_the_commands),
        T(a_large_value_arrives_whole),
        T(it_may_be_closed_inside_a_handler),
        T(a_server_that_dies_is_found_again_and_both_are_told),
        T(a_server_that_went_deaf_is_noticed),
        T(a_wrong_password_is_no_connection),
        T(tls_needs_an_authority_that_vouches),
        T(a_unix_socket_works_too),
        T(addresses_that_are_none_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, redis_setup, redis_teardown);
}
