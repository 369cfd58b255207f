/* Promises of net/resp.h. */
#include "unit.h"
#include "net/resp.h"

static ptrdiff_t read_z(const char *z, struct resp *ret)
{
    /* A copy of its exact size, so that a look behind its end is seen. */
    size_t n = strlen(z);
    static char *room;
    free(room);
    room = malloc(n != 0 ? n : 1);
    memcpy(room, z, n);
    return resp_read(str_make(room, n), ret);
}

static void plain_replies_are_read(void **state)
{
    struct resp r;

    assert_int_equal(read_z("+OK\r\n+more", &r), 5);
    assert_int_equal(r.kind, RESP_WORD);
    assert_true(str_eq(r.text, STR("OK")));
    assert_int_equal(read_z("-ERR no\r\n", &r), 9);
    assert_int_equal(r.kind, RESP_ERROR);
    assert_int_equal(read_z(":-12\r\n", &r), 6);
    assert_int_equal(r.kind, RESP_NUMBER);
    assert_int_equal(read_z("$3\r\na\rb\r\n", &r), 9);
    assert_int_equal(r.kind, RESP_BULK);
    assert_true(str_eq(r.text, STR("a\rb")));
    assert_int_equal(read_z("$-1\r\n", &r), 5);
    assert_null(r.text.p);
    assert_int_equal(read_z("$0\r\n\r\n", &r), 6);
    assert_non_null(r.text.p);
}

static void a_message_is_read_whole_and_every_part_of_it_is_not_enough(void **state)
{
    const char *all = "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nh\r\nlo\r\n";
    struct resp r;

    assert_int_equal(read_z(all, &r), (int)strlen(all));
    assert_int_equal(r.kind, RESP_ARRAY);
    assert_int_equal(r.n_items, 3);
    assert_true(str_eq(r.items[2], STR("h\r\nlo")));
    for (size_t n = 0; n < strlen(all); n++) {
        char *part = strndup(all, n);
        assert_int_equal(read_z(part, &r), 0);
        free(part);
    }
}

static void an_array_inside_another_is_handed_out_as_its_bytes(void **state)
{
    const char *all = "*2\r\n$1\r\na\r\n*2\r\n*1\r\n$3\r\n1-0\r\n*0\r\n", *inner = all + 11;
    struct resp r, in, entry;

    assert_int_equal(read_z("*-1\r\n", &r), 5);
    assert_int_equal(r.kind, RESP_ARRAY);
    assert_int_equal(r.n_items, 0);
    for (size_t n = 0; n < strlen(all); n++)
        assert_int_equal(resp_read(str_make(all, n), &r), 0);
    assert_int_equal(read_z(all, &r), (int)strlen(all));
    assert_int_equal(r.n_items, 2);
    assert_true(str_eq(r.items[1], str_of(inner)));
    assert_int_equal(resp_read(r.items[1], &in), (int)strlen(inner));
    assert_int_equal(resp_read(in.items[0], &entry), (int)in.items[0].n);
    assert_true(str_eq(entry.items[0], STR("1-0")));
}

static void nonsense_is_refused_before_anything_is_kept(void **state)
{
    static const char *const bad[] = {"\r\n",
                                      "hello\r\n",
                                      "$x\r\n",
                                      "$-2\r\n",
                                      "$16777217\r\n",
                                      "$3\r\nabcde",
                                      ":\r\n",
                                      ":1x\r\n",
                                      "*-2\r\n",
                                      "*33\r\n",
                                      "*1\r\n*33\r\n",
                                      "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n",
                                      "*1\r\n*1\r\n$x\r\n",
                                      "*x\r\n",
                                      "*99999999999999999999\r\n",
                                      "$99999999999999999999\r\n",
                                      NULL};
    struct resp r;

    for (size_t i = 0; bad[i] != NULL; i++)
        if (read_z(bad[i], &r) != -1)
            fail_msg("not refused: %s", bad[i]);
}

static void a_line_that_never_ends_is_refused(void **state)
{
    char line[8192];
    struct resp r;

    memset(line, '+', sizeof line);
    assert_int_equal(resp_read(str_make(line, sizeof line), &r), -1);
}

UNIT(net_test_resp)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_replies_are_read),
        cmocka_unit_test(a_message_is_read_whole_and_every_part_of_it_is_not_enough),
        cmocka_unit_test(an_array_inside_another_is_handed_out_as_its_bytes),
        cmocka_unit_test(nonsense_is_refused_before_anything_is_kept),
        cmocka_unit_test(a_line_that_never_ends_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
