/* voice.h - computes length and waveform of a voice message, which Discord requires with the file.
 *
 * outbound.c calls it.  It reads Opus in an Ogg container, the only format of a voice message that
 * Discord takes, without decoding it. */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct jw;
struct voice_load; /* cancel handle of a file that is being read */
struct work_pool;

#define VOICE_WAVE 64              /* bytes of a waveform; Discord takes up to 256 */
#define VOICE_MAX_BYTES (4u << 20) /* a larger one is sent as an ordinary file */

struct voice {
    double seconds;
    uint8_t wave[VOICE_WAVE];
};

/* False: not Opus in Ogg, or broken. */
bool voice_read(struct str ogg, struct voice *ret);
/* Reads a file on a thread.  @done runs later, once, unless cancelled; it gets NULL for a file
 * that is not a voice message.  Returns NULL if no thread is free. */
typedef void voice_loaded_cb(void *ctx, const struct voice *v);
struct voice_load *voice_load(struct work_pool *threads, const char *path, voice_loaded_cb *done,
                              void *ctx) BH_MUST_USE;
void voice_load_cancel(struct voice_load **l);         /* NULL inside is fine; sets it to NULL */
void voice_write(struct jw *w, const struct voice *v); /* its keys in an attachment */
