/* The promises of agent/kept_sessions.h. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "unit.h"
#include "agent/kept_sessions.h"
#include "base/buf.h"
#include "base/file.h"

static char path[64];
static const struct agent_person nobody;

static int make_path(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/bellhop-test-sessions-%d", (int)getpid());
    unlink(path);
    return 0;
}

static int remove_path(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

static void sessions_survive_a_restart(void **state)
{
    struct kept_sessions *k = kept_sessions_open(path);

    (void)state;
    kept_sessions_put(k, STR("a"), STR("one"), nobody);
    kept_sessions_put(k, STR("b \"quoted\"\n"), STR("two"), nobody);
    kept_sessions_put(k, STR("a"), STR("three"), nobody);
    kept_sessions_put(k, STR("c"), STR("four"), nobody);
    kept_sessions_forget(k, STR("c"));
    kept_sessions_close(k);
    k = kept_sessions_open(path);
    assert_string_equal(kept_sessions_get(k, STR("a")), "three");
    assert_string_equal(kept_sessions_get(k, STR("b \"quoted\"\n")), "two");
    assert_null(kept_sessions_get(k, STR("c")));
    kept_sessions_close(k);
}

static void a_line_that_was_cut_is_no_harm(void **state)
{
    struct kept_sessions *k;

    (void)state;
    assert_true(
        file_put(path, O_TRUNC,
                 STR("{\"key\":\"a\",\"session\":\"one\"}\nnonsense\n{\"key\":\"b\",\"ses")));
    k = kept_sessions_open(path);
    assert_string_equal(kept_sessions_get(k, STR("a")), "one");
    assert_null(kept_sessions_get(k, STR("b")));
    kept_sessions_put(k, STR("c"), STR("two"), nobody);
    kept_sessions_close(k);
    k = kept_sessions_open(path);
    assert_string_equal(kept_sessions_get(k, STR("a")), "one");
    assert_string_equal(kept_sessions_get(k, STR("c")), "two");
    kept_sessions_close(k);
}

static void the_newest_are_kept_and_the_file_stays_small(void **state)
{
    struct kept_sessions *k = kept_sessions_open(path);
    struct buf text = BUF_INIT;
    char key[32];

    (void)state;
    for (int i = 0; i < 3 * KEPT_SESSIONS_MAX; i++) {
        snprintf(key, sizeof key, "k%d", i);
        kept_sessions_put(k, str_of(key), STR("s"), nobody);
    }
    kept_sessions_close(k);
    assert_true(file_read(path, (size_t)64 << 20, &text));
    size_t lines = 0;
    for (size_t i = 0; i < text.n; i++)
        lines += text.p[i] == '\n';
    assert_true(lines <= 2 * KEPT_SESSIONS_MAX);
    buf_done(&text);
    k = kept_sessions_open(path);
    assert_null(kept_sessions_get(k, STR("k0")));
    snprintf(key, sizeof key, "k%d", 3 * KEPT_SESSIONS_MAX - 1);
    assert_non_null(kept_sessions_get(k, str_of(key)));
    kept_sessions_close(k);
}

static void without_a_file_they_are_in_memory(void **state)
{
    struct kept_sessions *k = kept_sessions_open(NULL);

    (void)state;
    kept_sessions_put(k, STR("a"), STR("one"), nobody);
    assert_string_equal(kept_sessions_get(k, STR("a")), "one");
    kept_sessions_close(k);
}

static void another_file_in_the_place_is_read_again(void **state)
{
    struct kept_sessions *k = kept_sessions_open(path);
    BUF_LOCAL fresh = BUF_INIT, text = BUF_INIT;

    (void)state;
    kept_sessions_put(k, STR("a"), STR("one"), (struct agent_person){STR("telegram"), STR("7003")});
    kept_sessions_put(k, STR("b"), STR("two"), nobody);
    assert_true(file_read(path, 1000, &text));
    assert_string_equal(
        buf_z(&text),
        "{\"key\":\"a\",\"session\":\"one\",\"platform\":\"telegram\",\"user\":\"7003\"}\n"
        "{\"key\":\"b\",\"session\":\"two\"}\n");
    buf_printf(&fresh, "%s.new", path);
    assert_true(file_put(buf_z(&fresh), O_TRUNC, STR("{\"key\":\"b\",\"session\":\"two\"}\n")));
    assert_int_equal(rename(buf_z(&fresh), path), 0);
    assert_null(kept_sessions_get(k, STR("a")));
    assert_string_equal(kept_sessions_get(k, STR("b")), "two");
    assert_int_equal(unlink(path), 0);
    kept_sessions_put(k, STR("c"), STR("three"), nobody);
    assert_null(kept_sessions_get(k, STR("b")));
    kept_sessions_close(k);
    k = kept_sessions_open(path);
    assert_string_equal(kept_sessions_get(k, STR("c")), "three");
    kept_sessions_close(k);
}

UNIT(agent_test_kept_sessions)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sessions_survive_a_restart, make_path, remove_path),
        cmocka_unit_test_setup_teardown(a_line_that_was_cut_is_no_harm, make_path, remove_path),
        cmocka_unit_test_setup_teardown(the_newest_are_kept_and_the_file_stays_small, make_path,
                                        remove_path),
        cmocka_unit_test_setup_teardown(another_file_in_the_place_is_read_again, make_path,
                                        remove_path),
        cmocka_unit_test_setup_teardown(without_a_file_they_are_in_memory, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
