/* voice.h - what Discord wants to know of a voice message: how long it is, and how it looks.
 *
 * Reads Opus in an Ogg container, the one form Discord takes as a voice message, without
 * decoding it. */
#pragma once
#include "base/str.h"

struct jw;

#define VOICE_WAVE 64              /* bytes of a waveform; Discord takes up to 256 */
#define VOICE_MAX_BYTES (4u << 20) /* a longer one is sent as an ordinary file */

struct voice {
    double seconds;
    uint8_t wave[VOICE_WAVE];
};

/* False: it is no Opus in Ogg, or broken. */
bool voice_read(struct str ogg, struct voice *ret);
bool voice_load(const char *path, struct voice *ret);  /* the same of a file */
void voice_write(struct jw *w, const struct voice *v); /* its keys in an attachment */
