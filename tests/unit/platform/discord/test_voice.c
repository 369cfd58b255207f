/* Promises of platform/discord/voice.h. */
#include "unit.h"
#include "base/buf.h"
#include "base/mem.h"
#include "platform/discord/voice.h"

static void add_page(struct buf *out, uint64_t samples, struct str body)
{
    char head[27] = "OggS";

    for (int i = 0; i < 8; i++)
        head[6 + i] = (char)(samples >> (8 * i));
    head[26] = (char)(body.n / 255 + 1);
    buf_add(out, head, sizeof head);
    for (size_t i = 0; i < body.n / 255; i++)
        buf_add_c(out, (char)255);
    buf_add_c(out, (char)(body.n % 255));
    buf_add_str(out, body);
}

static void add_head(struct buf *out)
{
    add_page(out, 0, STR("OpusHead\x01\x01\x38\x01\x80\xbb\x00\x00\x00\x00\x00"));
    add_page(out, 0, STR("OpusTags"));
}

static void add_sound(struct buf *out, uint64_t samples, size_t n)
{
    char *bytes = xcalloc(1, n);

    add_page(out, samples, str_make(bytes, n));
    free(bytes);
}

static void its_length_is_what_the_last_page_says_without_what_is_skipped(void **state)
{
    struct buf ogg = BUF_INIT;
    struct voice v;

    add_head(&ogg);
    add_sound(&ogg, 312 + 48000, 100);
    add_sound(&ogg, UINT64_MAX, 700); /* no packet ends here */
    add_sound(&ogg, 312 + 72000, 10);
    assert_true(voice_read(buf_str(&ogg), &v));
    assert_true(v.seconds > 1.4999 && v.seconds < 1.5001);
    buf_done(&ogg);
}

static void it_looks_high_where_there_are_many_bytes(void **state)
{
    struct buf ogg = BUF_INIT;
    struct voice v;

    add_head(&ogg);
    add_sound(&ogg, 24000, 50);
    add_sound(&ogg, 48000, 1000);
    assert_true(voice_read(buf_str(&ogg), &v));
    assert_int_equal(v.wave[VOICE_WAVE - 1], 255);
    assert_true(v.wave[0] < 32 && v.wave[10] == v.wave[0]);
    buf_done(&ogg);
}

static void what_is_no_opus_or_cut_is_no_voice(void **state)
{
    struct buf ogg = BUF_INIT;
    struct voice v;

    assert_false(voice_read(STR(""), &v));
    assert_false(voice_read(STR("ID3 and an mp3 behind it, longer than a page's head"), &v));
    add_page(&ogg, 0, STR("\x01vorbis and so on and on"));
    assert_false(voice_read(buf_str(&ogg), &v));
    buf_reset(&ogg);
    add_head(&ogg);
    assert_false(voice_read(buf_str(&ogg), &v)); /* no sound */
    add_sound(&ogg, UINT64_MAX - 1, 9);
    assert_false(voice_read(buf_str(&ogg), &v)); /* a million years */
    buf_reset(&ogg);
    add_head(&ogg);
    add_sound(&ogg, 48000, 600);
    for (size_t n = 0; n < ogg.n; n++) { /* cut anywhere, copied so that a step too far is seen */
        char *cut = xmalloc(n + 1);
        memcpy(cut, buf_z(&ogg), n);
        assert_false(voice_read(str_make(cut, n), &v));
        free(cut);
    }
    assert_true(voice_read(buf_str(&ogg), &v));
    buf_done(&ogg);
}

UNIT(platform_discord_test_voice)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_length_is_what_the_last_page_says_without_what_is_skipped),
        cmocka_unit_test(it_looks_high_where_there_are_many_bytes),
        cmocka_unit_test(what_is_no_opus_or_cut_is_no_voice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
