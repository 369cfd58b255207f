/* http_chunk.h - the framing of a chunked body, read strictly.  Private to src/net/.
 *
 *      SIZE [;NAME[=VALUE]]... CR LF --> DATA --all--> CR LF --> SIZE
 *        '--size 0--> TRAILER lines until an empty one --> DONE
 *
 * A pure function of bytes.  One spelling is accepted: hexadecimal digits, extensions without white
 * space around their parts, CR LF.  Extensions and trailers are skipped. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct http_chunks {  /* zeroed before the first call */
    uint64_t left;    /* in CHUNK_DATA: bytes of the chunk still to come */
    uint32_t line_n;  /* of the size, part of an extension or trailer line so far */
    uint32_t extra_n; /* of extensions and trailers so far */
    uint8_t state;
};

enum http_chunk_end { CHUNK_MORE, CHUNK_DATA, CHUNK_DONE, CHUNK_BAD_SIZE, CHUNK_BAD_TRAILER };

/* Skip the framing at *@at, which is advanced.  CHUNK_DATA: @k->left bytes of data start there;
 * the caller takes as many as it likes, and subtracts. */
enum http_chunk_end http_chunk_next(struct http_chunks *k, const char *p, size_t n, size_t *at,
                                    size_t trailer_limit);
