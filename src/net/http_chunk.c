/* http_chunk.c - one byte after another: a chunk's framing is short, its data is not looked at. */
#include "net/http_chunk.h"
#include "base/str.h"

#include <stdbool.h>

#include "net/http_head.h"

enum {
    SIZE,
    EXT_NAME,
    EXT_VALUE,
    EXT_QUOTED,
    EXT_END, /* behind the closing quote */
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER,       /* the name of a field, or the empty line */
    TRAILER_VALUE, /* behind its colon */
    TRAILER_LF,
    LAST_LF
};
enum { MAX_EXTENSIONS = 1024 }; /* bytes of them in one body */

static bool prints(char ch)
{
    return ((unsigned char)ch >= ' ' && ch != 0x7f) || ch == '\t';
}

/* What may follow a size or an extension. */
static bool end_byte(struct http_chunks *k, char ch)
{
    k->state = ch == '\r' ? SIZE_LF : EXT_NAME;
    k->line_n = 0;
    return ch == '\r' || ch == ';';
}

/* A byte of ;name, ;name=value or ;name="value".  Quotes have no escapes here: parsers differ. */
static bool extension_byte(struct http_chunks *k, char ch)
{
    if (++k->extra_n > MAX_EXTENSIONS)
        return false;
    if (k->state == EXT_QUOTED) {
        if (ch == '"')
            k->state = EXT_END;
        return prints(ch) && ch != '\\';
    }
    if (k->state != EXT_END && http_is_token(ch)) {
        k->line_n++;
        return true;
    }
    if (k->state == EXT_VALUE && ch == '"' && k->line_n == 0) {
        k->state = EXT_QUOTED;
        return true;
    }
    if (k->line_n == 0 && k->state != EXT_END)
        return false;
    if (k->state == EXT_NAME && ch == '=') {
        k->state = EXT_VALUE;
        k->line_n = 0;
        return true;
    }
    return end_byte(k, ch);
}

static bool size_byte(struct http_chunks *k, char ch)
{
    int hex = hex_value(ch);

    if (hex >= 0) {
        if (k->left >> 59 != 0 || ++k->line_n > 16)
            return false;
        k->left = k->left << 4 | (uint64_t)hex;
        return true;
    }
    return k->line_n > 0 && end_byte(k, ch);
}

/* One byte outside of data and trailers.  False: malformed. */
static bool frame_byte(struct http_chunks *k, char ch)
{
    switch (k->state) {
    case SIZE:
        return size_byte(k, ch);
    case EXT_NAME:
    case EXT_VALUE:
    case EXT_QUOTED:
    case EXT_END:
        return extension_byte(k, ch);
    case SIZE_LF:
        k->state = k->left > 0 ? DATA : TRAILER;
        k->line_n = 0;
        return ch == '\n';
    case DATA_CR:
        k->state = DATA_LF;
        return ch == '\r';
    default: /* DATA_LF */
        k->state = SIZE;
        return ch == '\n';
    }
}

static enum http_chunk_end trailer_byte(struct http_chunks *k, char ch, size_t limit)
{
    bool fine;

    switch (k->state) {
    case TRAILER:
        fine = http_is_token(ch) || (k->line_n == 0 ? ch == '\r' : ch == ':');
        if (ch == '\r' || ch == ':')
            k->state = ch == ':' ? TRAILER_VALUE : LAST_LF;
        k->line_n++;
        break;
    case TRAILER_VALUE:
        fine = prints(ch) || ch == '\r';
        if (ch == '\r')
            k->state = TRAILER_LF;
        break;
    case TRAILER_LF:
        fine = ch == '\n';
        k->state = TRAILER;
        k->line_n = 0;
        break;
    default:
        return ch == '\n' ? CHUNK_DONE : CHUNK_BAD_TRAILER;
    }
    return fine && ++k->extra_n <= limit ? CHUNK_MORE : CHUNK_BAD_TRAILER;
}

enum http_chunk_end http_chunk_next(struct http_chunks *k, const char *p, size_t n, size_t *at,
                                    size_t trailer_limit)
{
    enum http_chunk_end end;

    if (k->state == DATA) {
        if (k->left > 0)
            return *at < n ? CHUNK_DATA : CHUNK_MORE;
        k->state = DATA_CR;
    }
    while (*at < n) {
        char ch = p[(*at)++];
        if (k->state >= TRAILER) {
            end = trailer_byte(k, ch, trailer_limit);
            if (end != CHUNK_MORE)
                return end;
        } else if (!frame_byte(k, ch)) {
            return CHUNK_BAD_SIZE;
        }
        if (k->state == DATA)
            return *at < n ? CHUNK_DATA : CHUNK_MORE;
    }
    return CHUNK_MORE;
}
