/* Promises of net/http_server.h: time, streams, draining, listening. */
#include "net/server_rig.h"

static void slow_requests_are_cut_off(void **state)
{
    struct fixture *f = *state;
    struct raw silent = raw_connect(f->loop, f->port);
    struct raw head = raw_connect(f->loop, f->port);
    struct raw body = raw_connect(f->loop, f->port);

    raw_send_z(&head, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ");
    raw_send_z(&body, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    for (int i = 0; i < 80 && !head.eof; i++) { /* drops do not help */
        raw_send_z(&head, "x");
        raw_send_z(&body, i < 5 ? "x" : "");
        loop_turn(f->loop, 10);
        raw_poll(&head);
        raw_poll(&body);
    }
    assert_true(raw_wait(&head, "HTTP/1.1 408 "));
    assert_true(raw_wait(&body, "HTTP/1.1 408 "));
    assert_true(raw_wait_eof(&silent));
    assert_int_equal(silent.got.n, 0);
    assert_int_equal(f->calls, 0);
    raw_close(&silent);
    raw_close(&head);
    raw_close(&body);
}

static void an_idle_connection_is_closed_silently(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "GET / "));
    raw_forget(&r);
    assert_true(raw_wait_eof(&r));
    assert_int_equal(r.got.n, 0);
    raw_close(&r);
}

static void connections_past_the_limit_get_503(void **state)
{
    struct fixture *f = *state;
    struct raw r[4];

    for (int i = 0; i < 4; i++)
        r[i] = raw_connect(f->loop, f->port);
    assert_true(raw_wait(&r[3], "HTTP/1.1 503 "));
    assert_true(raw_has(&r[3], "Content-Length: 52\r\n"));
    assert_true(raw_wait_eof(&r[3]));
    for (int i = 0; i < 4; i++)
        raw_close(&r[i]);
}

static void an_answer_after_the_client_has_gone_is_harmless(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    struct raw next;

    raw_send_z(&r, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    assert_int_equal(f->n_ids, 1);
    raw_close(&r);
    loop_turns(f->loop, 5);
    answer_text(f, f->ids[0], STR("too late"));
    loop_turns(f->loop, 5);
    assert_int_equal(http_server_connections(f->server), 0);

    next = raw_connect(f->loop, f->port); /* takes the same slot */
    raw_send_z(&next, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    answer_text(f, f->ids[0], STR("for the other one"));
    answer_text(f, f->ids[1], STR("for this one"));
    answer_text(f, f->ids[1], STR("again"));
    assert_true(raw_wait(&next, "for this one"));
    loop_turns(f->loop, 3);
    raw_poll(&next);
    assert_false(raw_has(&next, "other"));
    assert_false(raw_has(&next, "again"));
    raw_close(&next);
}

static void a_client_that_closes_its_half_still_gets_the_answer(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    shutdown(r.fd, SHUT_WR);
    loop_turns(f->loop, 5);
    answer_text(f, f->ids[0], STR("here you are"));
    assert_true(raw_wait(&r, "here you are"));
    assert_true(raw_wait_eof(&r));
    raw_close(&r);
}

static void a_stream_goes_on_until_it_is_ended(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "Transfer-Encoding: chunked\r\n\r\n"));
    assert_true(http_stream_write(f->server, f->stream, STR("data: one\n\n")));
    assert_true(http_stream_write(f->server, f->stream, STR("data: seventeen..\n\n")));
    assert_true(raw_wait(&r, "\r\n\r\nb\r\ndata: one\n\n\r\n13\r\ndata: seventeen..\n\n\r\n"));
    http_stream_end(f->server, f->stream);
    assert_false(http_stream_write(f->server, f->stream, STR("x")));
    assert_true(raw_wait(&r, "\r\n0\r\n\r\n"));
    raw_send_z(&r, "GET /again HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "GET /again"));
    assert_int_equal(f->stream_closed, 0);
    raw_close(&r);
}

static void a_stream_tells_when_its_client_has_gone(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET /stream HTTP/1.0\r\n\r\n");
    assert_true(raw_wait(&r, "Connection: close\r\n\r\n"));
    http_stream_write(f->server, f->stream, STR("plain"));
    assert_true(raw_wait(&r, "\r\n\r\nplain"));
    raw_close(&r);
    assert_true(loop_until(f->loop, &f->stream_closed));
    assert_false(http_stream_write(f->server, f->stream, STR("x")));
    loop_turns(f->loop, 3);
    assert_int_equal(f->stream_closed, 1);
}

static void a_stream_nobody_reads_is_cut(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    char *block = xcalloc(1, 65536);
    int writes = 0;

    raw_send_z(&r, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "\r\n\r\n"));
    while (writes < 1000 && http_stream_write(f->server, f->stream, str_make(block, 65536)))
        writes++;
    assert_true(writes > 2 && writes < 1000);
    assert_int_equal(f->stream_closed, 0); /* not inside the call */
    assert_true(loop_until(f->loop, &f->stream_closed));
    raw_close(&r);
    free(block);
}

static void a_stream_ended_after_it_was_cut_is_told_nothing(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);
    char *block = xcalloc(1, 65536);

    raw_send_z(&r, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "\r\n\r\n"));
    while (http_stream_write(f->server, f->stream, str_make(block, 65536)))
        ;
    http_stream_end(f->server, f->stream); /* its owner may free itself now */
    loop_turns(f->loop, 5);
    assert_int_equal(f->stream_closed, 0);
    raw_close(&r);
    free(block);
}

static void a_stream_begun_too_late_is_told_so(void **state)
{
    struct fixture *f = *state;
    struct raw r = raw_connect(f->loop, f->port);

    raw_send_z(&r, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    f->stream = f->ids[0];
    answer_text(f, f->ids[0], STR("done"));
    http_stream_begin(f->server, f->ids[0], &(struct http_answer){.status = 200}, 100,
                      on_stream_closed, f);
    assert_int_equal(f->stream_closed, 0);
    assert_true(loop_until(f->loop, &f->stream_closed));
    raw_close(&r);
}

static void drain_finishes_what_is_being_answered(void **state)
{
    struct fixture *f = *state;
    struct raw idle = raw_connect(f->loop, f->port), busy = raw_connect(f->loop, f->port);

    raw_send_z(&busy, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    loop_turns(f->loop, 5);
    assert_int_equal(http_server_connections(f->server), 2);
    http_server_drain(f->server);
    assert_true(raw_wait_eof(&idle));
    answer_text(f, f->ids[0], STR("last words"));
    assert_true(raw_wait(&busy, "Connection: close\r\n\r\nlast words"));
    assert_true(raw_wait_eof(&busy));
    loop_turns(f->loop, 3);
    assert_int_equal(http_server_connections(f->server), 0);
    raw_close(&idle);
    raw_close(&busy);
}

static void a_taken_port_is_explained(void **state)
{
    struct fixture *f = *state;
    char where[64], why[256] = "", want[64];

    snprintf(where, sizeof where, "127.0.0.1:%d", f->port);
    snprintf(want, sizeof want, "port %d is in use: ", f->port);
    assert_int_equal(http_server_listen(f->server, str_of(where), NULL, 0, why), BH_BUSY);
    assert_memory_equal(why, want, strlen(want));
    static const char *const bad[] = {
        "",      "7077",        ":7077",      "127.0.0.1:", "127.0.0.1:99999",
        "unix:", "127.0.0.1:x", "192.0.2.1:1"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        why[0] = '\0';
        assert_int_equal(http_server_listen(f->server, str_of(bad[i]), NULL, 0, why), BH_REFUSED);
        assert_true(strlen(why) > 10);
    }
}

static struct raw unix_connect(struct fixture *f, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct raw r = {.loop = f->loop, .fd = socket(AF_UNIX, SOCK_STREAM, 0)};

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(connect(r.fd, (struct sockaddr *)&a, sizeof a), 0);
    fcntl(r.fd, F_SETFL, O_NONBLOCK);
    return r;
}

static void a_unix_socket_replaces_a_stale_file_only(void **state)
{
    struct fixture *f = *state, *other = open_server(NULL);
    char dir[] = "/tmp/bellhop-net-XXXXXX", path[64], where[80], why[256] = "";
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    struct raw r;
    int stale = socket(AF_UNIX, SOCK_STREAM, 0), plain;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/sock", dir);
    snprintf(where, sizeof where, "unix:%s", path);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    assert_int_equal(bind(stale, (struct sockaddr *)&a, sizeof a), 0);
    close(stale);
    assert_int_equal(http_server_listen(f->server, str_of(where), NULL, 0600, why), BH_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    r = unix_connect(f, path);
    raw_send_z(&r, "GET /u HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait(&r, "GET /u peer=unix"));
    raw_close(&r);
    assert_int_equal(http_server_listen(other->server, str_of(where), NULL, 0600, why), BH_REFUSED);
    http_server_drain(f->server);
    assert_int_not_equal(stat(path, &st), 0);
    plain = open(path, O_CREAT | O_WRONLY, 0600);
    close(plain);
    assert_int_equal(http_server_listen(other->server, str_of(where), NULL, 0600, why), BH_REFUSED);
    assert_int_equal(stat(path, &st), 0);
    unlink(path);
    rmdir(dir);
    close_server(other);
}

static void many_that_are_late_at_once_are_closed_over_several_turns(void **state)
{
    enum { MANY = 300, AT_ONCE = 128 };
    struct fixture *f = *state;
    struct raw all[MANY];
    size_t open_now;

    for (int i = 0; i < MANY; i++)
        all[i] = raw_connect(f->loop, f->port);
    while (http_server_connections(f->server) < MANY)
        loop_turn(f->loop, 10);
    usleep(700000); /* nobody turns the loop: all of them are late when it goes on */
    while ((open_now = http_server_connections(f->server)) > 0) {
        loop_turn(f->loop, 100);
        assert_true(open_now - http_server_connections(f->server) <= AT_ONCE);
    }
    for (int i = 0; i < MANY; i++)
        raw_close(&all[i]);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define T_STRICT(name) cmocka_unit_test_setup_teardown(name, setup_strict, teardown)
#define T_HASTY(name) cmocka_unit_test_setup_teardown(name, setup_hasty, teardown)

UNIT(net_test_http_server_life)
{
    const struct CMUnitTest tests[] = {
        T_HASTY(many_that_are_late_at_once_are_closed_over_several_turns),
        T_HASTY(slow_requests_are_cut_off),
        T_HASTY(an_idle_connection_is_closed_silently),
        T_STRICT(connections_past_the_limit_get_503),
        T(an_answer_after_the_client_has_gone_is_harmless),
        T(a_client_that_closes_its_half_still_gets_the_answer),
        T(a_stream_goes_on_until_it_is_ended),
        T(a_stream_tells_when_its_client_has_gone),
        T(a_stream_nobody_reads_is_cut),
        T(a_stream_ended_after_it_was_cut_is_told_nothing),
        T(a_stream_begun_too_late_is_told_so),
        T(drain_finishes_what_is_being_answered),
        T(a_taken_port_is_explained),
        T(a_unix_socket_replaces_a_stale_file_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
