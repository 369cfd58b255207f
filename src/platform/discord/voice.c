/* voice.c - design.  (voice.h has the contract.)
 *
 * An Ogg page says how many samples have ended with it, and how long its packets are.  The sample
 * count of the last page is the length.  The waveform is an estimate: Opus spends more bytes on
 * louder sound, so the bytes of a stretch stand for its loudness. */
#include "platform/discord/voice.h"
#include <stdlib.h>
#include <string.h>
#include "base/crypto.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "net/work.h"

enum { HEADER = 27, RATE = 48000, MAX_SECONDS = 24 * 3600 };

struct ogg_page {
    uint64_t samples; /* up to the end of this page; all ones: no packet ends here */
    struct str segments, body;
};

static uint64_t little_endian(const char *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = n; i > 0; i--)
        v = v << 8 | (unsigned char)p[i - 1];
    return v;
}

/* Takes one page off the front; false: no page is left. */
static bool next_page(struct str *rest, struct ogg_page *ret)
{
    if (rest->n < HEADER || memcmp(rest->p, "OggS", 5) != 0) /* version 0 behind it */
        return false;
    size_t n_segments = (unsigned char)rest->p[26], n = 0;
    if (rest->n < HEADER + n_segments)
        return false;
    *ret = (struct ogg_page){.samples = little_endian(rest->p + 6, 8),
                             .segments = str_make(rest->p + HEADER, n_segments)};
    for (size_t i = 0; i < n_segments; i++)
        n += (unsigned char)ret->segments.p[i];
    struct str body = str_skip(*rest, HEADER + n_segments);
    if (body.n < n)
        return false;
    ret->body = str_make(body.p, n);
    *rest = str_skip(body, n);
    return true;
}

static void draw(struct str pages, uint64_t end, struct voice *ret)
{
    uint64_t bars[VOICE_WAVE] = {0}, most = 1;
    struct ogg_page p;
    size_t last = 0;

    while (next_page(&pages, &p))
        if (p.samples != 0 && p.samples <= end) { /* skips headers, pages where no packet ends */
            /* The bytes of a page count for the bar of its position in time. */
            size_t bar = end > 0 ? (size_t)(p.samples * VOICE_WAVE / end) : 0;
            bars[bar < VOICE_WAVE ? bar : VOICE_WAVE - 1] += p.body.n;
        }
    for (size_t i = 0; i < VOICE_WAVE; i++) { /* a page may cover several bars */
        if (bars[i] == 0)
            continue;
        for (size_t k = last; k < i; k++)
            bars[k] = bars[i] / (i - last + 1);
        bars[i] /= i - last + 1;
        last = i + 1;
    }
    for (size_t i = 0; i < VOICE_WAVE; i++)
        most = bars[i] > most ? bars[i] : most;
    for (size_t i = 0; i < VOICE_WAVE; i++)
        ret->wave[i] = (uint8_t)(bars[i] * 255 / most);
}

bool voice_read(struct str ogg, struct voice *ret)
{
    struct str rest = ogg;
    struct ogg_page p;
    uint64_t end = 0;

    *ret = (struct voice){0};
    if (!next_page(&rest, &p) || !str_starts(p.body, STR("OpusHead")) || p.body.n < 19)
        return false;
    uint64_t skipped = little_endian(p.body.p + 10, 2);
    struct str sound = rest;
    while (next_page(&rest, &p))
        if (p.samples != UINT64_MAX && p.samples > end)
            end = p.samples;
    if (rest.n > 0 || end <= skipped || end - skipped > (uint64_t)RATE * MAX_SECONDS)
        return false;
    ret->seconds = (double)(end - skipped) / RATE;
    draw(sound, end, ret);
    return true;
}

/* ---- reading a file on a thread ---- */

struct voice_load {
    struct work work;
    struct voice voice;
    bool good;
    voice_loaded_cb *done; /* NULL: cancelled */
    void *ctx;
    char path[];
};

static void load_run(struct work *w)
{
    struct voice_load *l = container_of(w, struct voice_load, work);
    BUF_LOCAL bytes = BUF_INIT;

    l->good = file_read(l->path, VOICE_MAX_BYTES, &bytes) && voice_read(buf_str(&bytes), &l->voice);
}

static void load_done(struct work *w)
{
    struct voice_load *l = container_of(w, struct voice_load, work);

    if (l->done != NULL)
        l->done(l->ctx, l->good ? &l->voice : NULL);
    free(l);
}

struct voice_load *voice_load(struct work_pool *threads, const char *path, voice_loaded_cb *done,
                              void *ctx)
{
    size_t n = strlen(path) + 1;
    struct voice_load *l = xcalloc(1, sizeof *l + n);

    l->work = (struct work){.run = load_run, .done = load_done};
    l->done = done;
    l->ctx = ctx;
    memcpy(l->path, path, n);
    if (work_start(threads, &l->work) == BH_OK)
        return l;
    free(l);
    return NULL;
}

void voice_load_cancel(struct voice_load **l)
{
    if (*l != NULL)
        (*l)->done = NULL;
    *l = NULL;
}

void voice_write(struct jw *w, const struct voice *v)
{
    BUF_LOCAL wave = BUF_INIT;

    base64_add(&wave, v->wave, sizeof v->wave);
    jw_key(w, "duration_secs");
    jw_f64(w, v->seconds);
    jw_kstr(w, "waveform", buf_str(&wave));
}
