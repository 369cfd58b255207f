/* Promises of net/hop_entry.h. */
#include "unit.h"
#include "net/hop_entry.h"
#include "net/trunk.h"

static uint8_t key[SEAL_KEY_BYTES], salt[HOP_SALT_BYTES];
static const struct str line = STR("0123456789abcdef");

static struct hop_bound bound(void)
{
    return (struct hop_bound){.key = key, .salt = salt, .line = line, .to = STR("north/1")};
}

static struct buf sealed(const char *plain)
{
    struct buf out = BUF_INIT;
    struct hop_bound b = bound();

    hop_entry_add(&out, &b, HOP_DATA, 7, str_of(plain));
    return out;
}

static bool opens(const struct buf *bytes, const struct hop_bound *b, struct buf *plain)
{
    struct hop_entry e;

    return hop_entry_read(buf_str(bytes), &e) && hop_entry_open(&e, b, plain);
}

static void an_entry_opens_with_what_it_is_bound_to(void **state)
{
    struct buf bytes = sealed("a secret"), plain = BUF_INIT;
    struct hop_bound b = bound();
    struct hop_entry e;

    assert_null(memmem(bytes.p, bytes.n, "secret", 6));
    assert_true(hop_entry_read(buf_str(&bytes), &e));
    assert_int_equal(e.kind, HOP_DATA);
    assert_int_equal(e.number, 7);
    assert_true(str_eq(e.line, line));
    assert_true(hop_entry_open(&e, &b, &plain));
    assert_true(str_eq(buf_str(&plain), STR("a secret")));
    buf_done(&bytes);
    buf_done(&plain);
}

static void every_changed_bit_and_every_cut_is_refused(void **state)
{
    struct buf bytes = sealed("a secret"), plain = BUF_INIT;
    struct hop_bound b = bound();

    for (size_t i = 0; i < bytes.n; i++) {
        bytes.p[i] ^= 1;
        assert_false(opens(&bytes, &b, &plain));
        bytes.p[i] ^= 1;
    }
    for (size_t n = bytes.n; n-- > 0;) {
        struct buf part = bytes;
        part.n = n;
        assert_false(opens(&part, &b, &plain));
    }
    assert_true(opens(&bytes, &b, &plain));
    buf_done(&bytes);
    buf_done(&plain);
}

static void an_entry_of_another_line_time_reader_or_key_does_not_open(void **state)
{
    struct buf bytes = sealed("a secret"), plain = BUF_INIT;
    uint8_t other[SEAL_KEY_BYTES] = {1};
    struct hop_bound b[4];

    for (size_t i = 0; i < 4; i++)
        b[i] = bound();
    b[0].line = STR("0123456789abcdeF");
    b[1].salt = other;
    b[2].to = STR("north/2");
    b[3].key = other;
    for (size_t i = 0; i < 4; i++)
        assert_false(opens(&bytes, &b[i], &plain));
    buf_done(&bytes);
    buf_done(&plain);
}

static void names_of_streams_differ_by_node_and_cluster_and_tell_neither(void **state)
{
    uint8_t trunk[TRUNK_KEY_BYTES] = {3}, other[SEAL_KEY_BYTES];
    char a[HOP_INBOX_BYTES], b[HOP_INBOX_BYTES], c[HOP_INBOX_BYTES];

    hop_key(trunk, other);
    hop_inbox(key, STR("north/1"), a);
    hop_inbox(key, STR("north/2"), b);
    hop_inbox(other, STR("north/1"), c);
    assert_string_not_equal(a, b);
    assert_string_not_equal(a, c);
    assert_null(strstr(a, "north"));
    assert_int_equal(strlen(a), HOP_INBOX_BYTES - 1);
}

UNIT(net_test_hop_entry)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_opens_with_what_it_is_bound_to),
        cmocka_unit_test(every_changed_bit_and_every_cut_is_refused),
        cmocka_unit_test(an_entry_of_another_line_time_reader_or_key_does_not_open),
        cmocka_unit_test(names_of_streams_differ_by_node_and_cluster_and_tell_neither),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
