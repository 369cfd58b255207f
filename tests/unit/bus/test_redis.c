/* Promises of bus/bus.h and bus/redis/redis.h, on a real server. */
#include "bus/contract.h"
#include "bus/redis_server.h"
#include "base/buf.h"
#include "bus/redis/redis.h"
#include "net/loop.h"

static struct loop *loop;
static char ca_room[128];

static void turn(void)
{
    loop_turn(loop, 10);
}

static struct bus *open_bus(const char *url, const char *prefix, const char *ca)
{
    struct bus_settings s = {.kind = strdup("redis")};
    struct bus *b = NULL;
    char why[256] = "";

    s.url = strdup(url), s.prefix = strdup(prefix);
    if (ca != NULL)
        snprintf(ca_room, sizeof ca_room, "%s", ca);
    s.ca = ca != NULL ? ca_room : NULL; /* borrowed by the bus, as from a configuration */
    if (bus_open(loop, &s, &b, why) != BH_OK)
        fail_msg("%s", why);
    free(s.kind), free(s.url), free(s.prefix);
    return b;
}

static void wait_hearing(struct bus *b, bool hears)
{
    for (int i = 0; i < 3000 && bus_is_deaf(b) == hears; i++)
        turn();
    assert_int_equal(bus_is_deaf(b), !hears);
}

static void wait_both(void)
{
    wait_hearing(bus_of[0], true);
    wait_hearing(bus_of[1], true);
}

static int contract_setup(void **state)
{
    loop = loop_new();
    for (n_buses = 0; n_buses < 2; n_buses++)
        bus_of[n_buses] = open_bus(redis_url, "test", NULL);
    heard[0] = '\0';
    wait_both();
    return 0;
}

static int contract_teardown(void **state)
{
    for (int i = 0; i < 2; i++) {
        if (bus_of[i] != NULL)
            bus_of[i]->ops->close(bus_of[i]);
        bus_of[i] = NULL;
    }
    loop_turn(loop, 0);
    loop_free(loop);
    return 0;
}

/* A subscription is there when what another process says arrives: news get lost before that. */
static void wait_subscribed(struct bus *from, const char *topic, const char *what)
{
    for (int i = 0; i < 3000 && strcmp(heard, what) != 0; i++) {
        if (i % 10 == 0 && heard[0] == '\0')
            bus_publish(from, str_of(topic), STR("m"));
        turn();
    }
    assert_string_equal(heard, what);
    for (int i = 0; i < 5; i++)
        turn();
    heard[0] = '\0';
}

static void another_process_hears_it(void **state)
{
    bus_subscribe(bus_of[0], "a", hear, who[1]);
    wait_subscribed(bus_of[1], "a", "1:a=m ");
    bus_publish(bus_of[1], STR("a"), STR("hello"));
    bus_publish(bus_of[1], STR("a"), str_make("\0\r\n*", 4));
    for (int i = 0; i < 3000 && strlen(heard) < 12; i++)
        turn();
    assert_memory_equal(heard, "1:a=hello 1:a=", 14);
}

static void a_large_message_arrives_whole(void **state)
{
    struct buf big = BUF_INIT;

    for (int i = 0; i < 1 << 20; i++)
        buf_add_c(&big, (char)('a' + i % 26));
    bus_subscribe(bus_of[0], "a", hear, who[1]);
    wait_subscribed(bus_of[1], "a", "1:a=m ");
    bus_publish(bus_of[1], STR("a"), buf_str(&big));
    for (int i = 0; i < 3000 && heard[0] == '\0'; i++)
        turn();
    assert_memory_equal(heard, "1:a=abcdefghijklmnopqrstuvwxyzabc", 33);
    buf_done(&big);
}

static void another_prefix_is_another_world(void **state)
{
    struct bus *other = open_bus(redis_url, "tes", NULL);

    wait_hearing(other, true);
    bus_subscribe(bus_of[0], "a", hear, who[1]);
    bus_subscribe(other, "a", hear, who[2]);
    bus_subscribe(other, "t:a", hear, who[2]);
    wait_subscribed(bus_of[1], "a", "1:a=m ");
    bus_publish(bus_of[1], STR("a"), STR("ours"));
    wait_heard("1:a=ours ");
    other->ops->close(other);
}

static void another_installation_with_the_same_prefix_is_not_heard(void **state)
{
    struct bus *other = open_bus(redis_url, "test", NULL);

    bus_belong(other, 7);
    wait_hearing(other, true);
    bus_subscribe(bus_of[0], "a", hear, who[1]);
    bus_subscribe(other, "a", hear, who[2]);
    wait_subscribed(bus_of[1], "a", "1:a=m ");
    bus_publish(other, STR("a"), STR("theirs"));
    wait_heard("2:a=theirs "); /* itself, and nobody else */
    for (int i = 0; i < 20; i++)
        turn();
    bus_publish(bus_of[1], STR("a"), STR("ours"));
    wait_heard("2:a=theirs 1:a=ours ");
    other->ops->close(other);
}

static int losses;
static void count_loss(void *ctx)
{
    losses++;
}

static void a_server_that_dies_is_found_again_and_the_loss_is_told(void **state)
{
    losses = 0;
    bus_subscribe(bus_of[0], "a", hear, who[1]);
    bus_on_lost(bus_of[0], count_loss, NULL);
    wait_subscribed(bus_of[1], "a", "1:a=m ");
    redis_stop(SIGKILL);
    wait_hearing(bus_of[0], false);
    bus_publish(bus_of[0], STR("a"), STR("alone"));
    wait_heard("1:a=alone "); /* to itself it speaks all the same */
    heard[0] = '\0';
    assert_int_equal(losses, 0);
    redis_start();
    wait_both();
    assert_int_equal(losses, 1);
    wait_subscribed(bus_of[1], "a", "1:a=m ");
}

static void a_server_that_went_deaf_is_noticed(void **state)
{
    kill(redis_pid, SIGSTOP);
    wait_hearing(bus_of[0], false);
    kill(redis_pid, SIGCONT);
    wait_hearing(bus_of[0], true);
}

static void a_wrong_password_is_no_line(void **state)
{
    char url[128];

    snprintf(url, sizeof url, "redis://:wrong@127.0.0.1:%d", redis_port);
    struct bus *b = open_bus(url, "test", NULL);
    for (int i = 0; i < 30; i++)
        turn();
    assert_true(bus_is_deaf(b));
    b->ops->close(b);
}

static void tls_needs_an_authority_that_vouches(void **state)
{
    char url[128], ca[128];

    snprintf(url, sizeof url, "rediss://:s3cret%%3a%%2F%%40@localhost:%d", redis_tls_port);
    snprintf(ca, sizeof ca, "%s/cert.pem", redis_dir);
    struct bus *trusting = open_bus(url, "test", ca), *doubting = open_bus(url, "test", NULL);
    wait_hearing(trusting, true);
    for (int i = 0; i < 30; i++)
        turn();
    assert_true(bus_is_deaf(doubting));
    bus_subscribe(bus_of[0], "a", hear, who[1]);
    wait_subscribed(trusting, "a", "1:a=m ");
    trusting->ops->close(trusting);
    doubting->ops->close(doubting);
}

static void a_unix_socket_works_too(void **state)
{
    char url[128], why[256];

    snprintf(url, sizeof url, "unix:%s/redis.sock", redis_dir);
    assert_true(bus_redis_url_ok(url, why));
    struct bus *b = open_bus(url, "test", NULL); /* it has no password: refused, but reached */
    for (int i = 0; i < 30; i++)
        turn();
    assert_true(bus_is_deaf(b));
    b->ops->close(b);
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
        if (bus_redis_url_ok(bad[i], why))
            fail_msg("taken: %s", bad[i]);
        assert_memory_equal(why, "bus.url: ", 9);
    }
    for (size_t i = 0; good[i] != NULL; i++)
        if (!bus_redis_url_ok(good[i], why))
            fail_msg("%s: %s", good[i], why);
}

UNIT(bus_test_redis)
{
    const struct CMUnitTest tests[] = {
        BUS_CONTRACT,
        T(another_process_hears_it),
        T(a_large_message_arrives_whole),
        T(another_prefix_is_another_world),
        T(another_installation_with_the_same_prefix_is_not_heard),
        T(a_server_that_dies_is_found_again_and_the_loss_is_told),
        T(a_server_that_went_deaf_is_noticed),
        T(a_wrong_password_is_no_line),
        T(tls_needs_an_authority_that_vouches),
        T(a_unix_socket_works_too),
        T(addresses_that_are_none_are_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, redis_setup, redis_teardown);
}
