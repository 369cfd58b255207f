/* The promises of agent/sleeper/knock.h and ask.h: who wakes it, and what it makes of an answer. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "agent/sleeper/ask.h"
#include "agent/sleeper/knock.h"
#include "agent/sleeper/tell.h"

static int64_t clock_ms = 1000; /* time passes when a test says so */

int64_t now_ms(void)
{
    return clock_ms;
}

void say(const char *fmt, ...)
{
    (void)fmt;
}

void warn(const char *fmt, ...)
{
    (void)fmt;
}

#define NONCE "0123456789abcdef0123456789abcdef"

/* ---- what a request means ---- */

static void any_request_is_a_poke(void **state)
{
    static const char *const heads[] = {"GET / HTTP/1.1\r\n\r\n",
                                        "GET /wake?x=1 HTTP/1.1\r\nHost: a\r\n\r\n",
                                        "POST /healthzz HTTP/1.1\r\n\r\n",
                                        "HEAD /wake HTTP/1.0\r\n\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        assert_int_equal(knock_read(heads[i], NONCE), KNOCK_WAKE);
}

static void a_question_about_health_wakes_nobody(void **state)
{
    (void)state;
    assert_int_equal(knock_read("GET /healthz HTTP/1.1\r\n\r\n", NONCE), KNOCK_HEALTH);
    assert_int_equal(knock_read("GET /healthz?v HTTP/1.1\r\n\r\n", NONCE), KNOCK_HEALTH);
    assert_int_equal(knock_read("GET /favicon.ico HTTP/1.1\r\n\r\n", NONCE), KNOCK_NOTHING);
    assert_int_equal(knock_read("nonsense", NONCE), KNOCK_NOTHING);
    assert_int_equal(knock_read("", NONCE), KNOCK_NOTHING);
}

static void only_our_own_probe_is_a_probe(void **state)
{
    static const char ours[] = "GET /wake HTTP/1.1\r\nx-bellhop-probe: " NONCE "\r\n\r\n";

    (void)state;
    assert_int_equal(knock_read(ours, NONCE), KNOCK_PROBE);
    assert_int_equal(knock_read(ours, "ffffffffffffffffffffffffffffffff"), KNOCK_WAKE);
    assert_int_equal(knock_read("GET / HTTP/1.1\r\nX-Bellhop-Probe: \r\n\r\n", ""), KNOCK_WAKE);
}

/* ---- the listener ---- */

struct rig {
    struct knock knock;
    struct sockaddr_in at;
};

static void open_rig(struct rig *r)
{
    socklen_t n = sizeof r->at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

    r->at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    assert_int_equal(bind(fd, (struct sockaddr *)&r->at, n), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&r->at, &n), 0);
    knock_init(&r->knock, fd);
}

static int visitor(const struct rig *r, const char *words)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(connect(fd, (const struct sockaddr *)&r->at, sizeof r->at), 0);
    assert_int_equal(send(fd, words, strlen(words), 0), (ssize_t)strlen(words));
    return fd;
}

static void a_whole_request_is_answered_and_half_of_one_is_not_a_poke(void **state)
{
    struct rig r;
    char answer[512] = "";

    (void)state;
    open_rig(&r);
    int half = visitor(&r, "GET /wake HTTP/1.1\r\nHost:");
    assert_int_equal(knock_turn(&r.knock, NONCE, "{}"), KNOCK_NOTHING);
    assert_int_not_equal(knock_due_ms(&r.knock), INT64_MAX);
    int whole = visitor(&r, "GET /healthz HTTP/1.1\r\n\r\n");
    assert_int_equal(knock_turn(&r.knock, NONCE, "{\"state\":\"asleep\"}"), KNOCK_HEALTH);
    assert_true(recv(whole, answer, sizeof answer - 1, 0) > 0);
    assert_non_null(strstr(answer, "200 OK"));
    assert_non_null(strstr(answer, "{\"state\":\"asleep\"}"));
    clock_ms += 5000; /* too long for half a request */
    assert_int_equal(knock_turn(&r.knock, NONCE, "{}"), KNOCK_NOTHING);
    assert_int_equal(knock_due_ms(&r.knock), INT64_MAX);
    close(half);
    close(whole);
    close(r.knock.listener);
}

static void silent_visitors_cannot_keep_a_poke_out(void **state)
{
    struct rig r;
    int silent[KNOCKERS + 2];

    (void)state;
    open_rig(&r);
    for (size_t i = 0; i < KNOCKERS + 2; i++) {
        silent[i] = visitor(&r, "GET ");
        assert_int_equal(knock_turn(&r.knock, NONCE, "{}"), KNOCK_NOTHING);
        clock_ms++;
    }
    int poke = visitor(&r, "GET /wake HTTP/1.1\r\n\r\n");
    assert_int_equal(knock_turn(&r.knock, NONCE, "{}"), KNOCK_WAKE);
    for (size_t i = 0; i < KNOCKERS + 2; i++)
        close(silent[i]);
    close(poke);
    clock_ms += 5000;
    knock_turn(&r.knock, NONCE, "{}");
    close(r.knock.listener);
}

/* ---- what the connector said ---- */

static void an_answer_is_read(void **state)
{
    struct answer a;

    (void)state;
    answer_read("state asleep\nidle_ms 1234\nunacked 2\nentries 3\nwake_url http://a/b c\n", &a);
    assert_true(a.ok);
    assert_string_equal(a.state, "asleep");
    assert_int_equal(a.idle_ms, 1234);
    assert_int_equal(a.unacked, 2);
    assert_int_equal(a.entries, 3);
    assert_string_equal(a.wake_url, "http://a/b c");
}

static void no_answer_is_a_problem_and_never_permission_to_sleep(void **state)
{
    static const char *const bad[] = {"", "\n\n", "problem it broke\n", "garbage", "state"};
    struct answer a;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        answer_read(bad[i], &a);
        assert_false(a.ok);
        assert_int_not_equal(a.problem[0], '\0');
    }
    char huge[ASK_BYTES];
    memset(huge, 'x', sizeof huge - 1);
    memcpy(huge, "wake_url ", 9);
    huge[sizeof huge - 1] = '\0';
    answer_read(huge, &a);
    assert_true(strlen(a.wake_url) < sizeof a.wake_url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_request_is_a_poke),
        cmocka_unit_test(a_question_about_health_wakes_nobody),
        cmocka_unit_test(only_our_own_probe_is_a_probe),
        cmocka_unit_test(a_whole_request_is_answered_and_half_of_one_is_not_a_poke),
        cmocka_unit_test(silent_visitors_cannot_keep_a_poke_out),
        cmocka_unit_test(an_answer_is_read),
        cmocka_unit_test(no_answer_is_a_problem_and_never_permission_to_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
