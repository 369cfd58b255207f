/* White space and line ends as JavaScript has them. */
#include "unit.h"
#include "base/mem.h"
#include "base/space.h"

static void every_character_is_known(void **state)
{
    /* All code points, encoded; the table is written down a second time here. */
    for (uint32_t c = 0; c < 0x11000; c++) {
        char s[4];
        size_t n = 0;
        if (c >= 0xd800 && c < 0xe000)
            continue;
        if (c < 0x80) {
            s[n++] = (char)c;
        } else if (c < 0x800) {
            s[n++] = (char)(0xc0 | c >> 6);
        } else if (c < 0x10000) {
            s[n++] = (char)(0xe0 | c >> 12);
            s[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        } else {
            s[n++] = (char)(0xf0 | c >> 18);
            s[n++] = (char)(0x80 | (c >> 12 & 0x3f));
            s[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        }
        if (c >= 0x80)
            s[n++] = (char)(0x80 | (c & 0x3f));
        bool eol = c == 10 || c == 13 || c == 0x2028 || c == 0x2029;
        bool space = eol || c == 9 || c == 11 || c == 12 || c == 32 || c == 0xa0 || c == 0x1680 ||
                     (c >= 0x2000 && c <= 0x200a) || c == 0x202f || c == 0x205f || c == 0x3000 ||
                     c == 0xfeff;
        assert_int_equal(space_bytes(str_make(s, n)), space ? n : 0);
        assert_int_equal(eol_bytes(str_make(s, n)), eol ? n : 0);
        for (size_t cut = 1; cut < n; cut++) /* a character that is cut off is none */
            assert_int_equal(space_bytes(str_make(s, cut)), 0);
    }
}

static void both_ends_are_trimmed(void **state)
{
    assert_str(space_trim(STR(" \t\xc2\xa0x y\xe3\x80\x80\n")), "x y");
    assert_str(space_trim_end(STR(" x\xe2\x80\xa8")), " x");
    assert_int_equal(space_trim(STR(" \xef\xbb\xbf ")).n, 0);
    assert_int_equal(space_trim(STR("")).n, 0);
    assert_int_equal(space_run(STR("\r\n\xe2\x80\xa9x ")), 5);
    assert_str(space_trim(STR("\xa0x\x80")), "\xa0x\x80"); /* halves of characters stay */
}

UNIT(base_test_space)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_is_known),
        cmocka_unit_test(both_ends_are_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
