/* Names, types and first bytes that others chose: media/media.h. */
#include "unit.h"
#include "base/mem.h"
#include "media/media.h"

static void types_are_told_plainly(void **state)
{
    static const struct {
        const char *said, *told;
    } table[] = {
        {"image/png", "image/png"},
        {"Image/PNG; charset=x", "image/png"},
        {"audio/ogg;codecs=opus", "audio/ogg"},
        {"", "application/octet-stream"},
        {"png", "application/octet-stream"},
        {"/png", "application/octet-stream"},
        {"image/", "application/octet-stream"},
        {"image/p ng", "application/octet-stream"},
        {"image/png\r\nX-Evil: 1", "application/octet-stream"},
        {"text/html,<script>", "application/octet-stream"},
        {"a/b/c", "application/octet-stream"},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct buf out = BUF_INIT;
        media_type_add(&out, str_of(table[i].said));
        assert_string_equal(buf_z(&out), table[i].told);
        buf_done(&out);
    }
}

static void names_have_no_path_and_nothing_hidden(void **state)
{
    static const struct {
        const char *said, *told;
    } table[] = {
        {"cat.png", "cat.png"},
        {"../../etc/passwd", "passwd"},
        {"C:\\Users\\me\\cat.png", "cat.png"},
        {"/etc/", ""},
        {"..", ""},
        {".bashrc", "bashrc"},
        {"a\r\nSet-Cookie: x", "aSet-Cookie: x"},
        {"na\xc3\xafve.txt", "na\xc3\xafve.txt"},
        {"na\xefve.txt", "na\xc3\xafve.txt"},       /* Latin-1 */
        {"x\xc2\x85y\xe2\x80\xa8z.png", "xyz.png"}, /* next line, line separator */
        {"cat\xe2\x80\xaegnp.exe", "catgnp.exe"},   /* written from right to left */
        {"\xe2\x80\xae.profile", "profile"},        /* a dot behind what is hidden */
        {"\x01 . a.txt \x02", "a.txt"},
        {"\xe2\x81\xa6"
         "cat\xe2\x81\xa9.png",
         "cat.png"},
        {"\x85x.png", "x.png"}, /* the same in Latin-1 */
        {"", ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct buf out = BUF_INIT;
        media_name_add(&out, str_of(table[i].said));
        assert_string_equal(buf_z(&out), table[i].told);
        buf_done(&out);
    }
}

static void a_long_name_is_cut_between_characters(void **state)
{
    struct buf name = BUF_INIT, out = BUF_INIT;

    for (int i = 0; i < 300; i++)
        buf_add_z(&name, "\xe2\x82\xac");
    media_name_add(&out, buf_str(&name));
    assert_int_equal(out.n, 255);
    assert_true(utf8_valid(buf_str(&out)));
    buf_done(&name);
    buf_done(&out);
}

static void a_disposition_cannot_be_broken_out_of(void **state)
{
    struct buf out = BUF_INIT;

    media_disposition_add(&out, false, STR("a\"; b=\\\xe2\x82\xac.png"));
    assert_string_equal(buf_z(&out), "attachment; filename*=UTF-8''a%22%3B%20b%3D%5C%E2%82%AC.png; "
                                     "filename=\"a_; b=____.png\"");
    buf_reset(&out);
    media_disposition_add(&out, true, STR(""));
    assert_string_equal(buf_z(&out), "inline");
    buf_done(&out);
}

static void first_bytes_tell_what_it_is(void **state)
{
    assert_str(media_sniff(STR("\x89PNG\r\n\x1a\n....")), "image/png");
    assert_str(media_sniff(STR("RIFF....WEBPVP8 ")), "image/webp");
    assert_str(media_sniff(STR("OggS\0\0\0")), "audio/ogg");
    assert_str(media_sniff(STR("  \n<!DOCTYPE html>")), "text/html");
    assert_str(media_sniff(STR("<svg onload=alert(1)>")), "text/html");
    assert_str(media_sniff(STR("\x1f\x8b\x08")), "application/gzip");
    assert_null(media_sniff(STR("hello")).p);
    assert_true(media_sniffs(STR("image/jpeg")));
    assert_false(media_sniffs(STR("image/heic")));
    assert_null(media_sniff(STR("")).p);
}

static void an_id_is_found_at_the_end_of_a_url_only(void **state)
{
#define ID "0123456789abcdef0123456789abcdef"
    assert_str(media_id_in(STR("https://x.example/relay/media/" ID)), ID);
    assert_str(media_id_in(STR("/relay/media/" ID "?exp=1&sig=a")), ID);
    assert_null(media_id_in(STR("/relay/media/" ID "/x")).p);
    assert_null(media_id_in(STR("/relay/media/0123456789ABCDEF0123456789abcdef")).p);
    assert_null(media_id_in(STR("/relay/media/../" ID)).p);
    assert_null(media_id_in(STR("/relay/media/")).p);
    assert_null(media_id_in(STR("")).p);
}

UNIT(media_test_name)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_told_plainly),
        cmocka_unit_test(names_have_no_path_and_nothing_hidden),
        cmocka_unit_test(a_long_name_is_cut_between_characters),
        cmocka_unit_test(a_disposition_cannot_be_broken_out_of),
        cmocka_unit_test(first_bytes_tell_what_it_is),
        cmocka_unit_test(an_id_is_found_at_the_end_of_a_url_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
