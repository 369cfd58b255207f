/* media_name.c - sanitizes file names and types that people and agents choose.
 *
 * A name is only shown, and gives a downloaded copy its extension; files in media.dir are named by
 * id.  media_write.c checks the type against the file's first bytes (media_sniff). */
#include <string.h>
#include "base/mem.h"
#include "base/percent.h"
#include "media/media.h"

enum { MAX_TYPE = 100, MAX_NAME = 255 };

static bool is_type(struct str t)
{
    ptrdiff_t slash = str_find(t, '/');

    if (slash <= 0 || t.n > MAX_TYPE || (size_t)slash + 1 == t.n)
        return false;
    for (size_t i = 0; i < t.n; i++)
        if (i != (size_t)slash && !(t.p[i] >= 'a' && t.p[i] <= 'z') &&
            !(t.p[i] >= '0' && t.p[i] <= '9') &&
            (t.p[i] == '\0' || strchr("!#$&^_.+-", t.p[i]) == NULL))
            return false;
    return true;
}

void media_type_add(struct buf *out, struct str type)
{
    ptrdiff_t end = str_find(type, ';');
    char low[MAX_TYPE];
    struct str t = str_trim(end >= 0 ? str_make(type.p, (size_t)end) : type);

    if (t.n > sizeof low)
        t = STR_NULL;
    for (size_t i = 0; i < t.n; i++)
        low[i] = t.p[i] >= 'A' && t.p[i] <= 'Z' ? (char)(t.p[i] + 32) : t.p[i];
    t = str_make(low, t.n);
    buf_add_str(out, is_type(t) ? t : STR("application/octet-stream"));
}

/* True for control characters, line separators, and marks that change the reading direction
 * ("cat<right to left>gnp.exe").  @c is one character of @n bytes. */
static bool is_hidden(const unsigned char *c, size_t n)
{
    if (n == 1)
        return c[0] < ' ' || c[0] == 0x7f;
    if (n == 2)
        return (c[0] == 0xc2 && c[1] < 0xa0) || (c[0] == 0xd8 && c[1] == 0x9c);
    if (n != 3 || c[0] != 0xe2)
        return false;
    return (c[1] == 0x80 && ((c[2] >= 0x8e && c[2] <= 0x8f) || (c[2] >= 0xa8 && c[2] <= 0xae))) ||
           (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9);
}

/* Reads bytes that are not UTF-8 as Latin-1, which HTTP headers carry. */
static void add_char(struct buf *out, struct str s, size_t *at)
{
    const unsigned char *c = (const unsigned char *)s.p + *at;
    unsigned char wide[2] = {(unsigned char)(0xc0u | *c >> 6u),
                             (unsigned char)(0x80u | (*c & 0x3fu))};
    size_t n = utf8_seq_bytes(str_skip(s, *at));

    *at += n > 0 ? n : 1;
    if (n == 0) {
        c = wide;
        n = sizeof wide;
    }
    if (!is_hidden(c, n))
        buf_add(out, c, n);
}

void media_name_add(struct buf *out, struct str name)
{
    size_t start = out->n;

    for (size_t i = name.n; i > 0; i--)
        if (name.p[i - 1] == '/' || name.p[i - 1] == '\\') {
            name = str_skip(name, i);
            break;
        }
    for (size_t at = 0; at < name.n;) {
        size_t before = out->n;
        add_char(out, name, &at);
        if (before == start && out->n == start + 1 && strchr(" .", out->p[start]) != NULL)
            out->n = start; /* drops leading spaces and dots, also after hidden characters */
        if (out->n - start > MAX_NAME) {
            out->n = before;
            break;
        }
    }
    while (out->n > start && out->p[out->n - 1] == ' ')
        out->n--;
}

static const struct {
    struct str head;
    size_t at;
    struct str type;
} magics[] = {
    {STR("\x89PNG\r\n\x1a\n"), 0, STR("image/png")},
    {STR("\xff\xd8\xff"), 0, STR("image/jpeg")},
    {STR("GIF8"), 0, STR("image/gif")},
    {STR("WEBP"), 8, STR("image/webp")},
    {STR("BM"), 0, STR("image/bmp")},
    {STR("OggS"), 0, STR("audio/ogg")},
    {STR("ID3"), 0, STR("audio/mpeg")},
    {STR("fLaC"), 0, STR("audio/flac")},
    {STR("WAVE"), 8, STR("audio/wav")},
    {STR("#!AMR"), 0, STR("audio/amr")},
    {STR("ftyp"), 4, STR("video/mp4")},
    {STR("\x1a\x45\xdf\xa3"), 0, STR("video/webm")},
    {STR("%PDF-"), 0, STR("application/pdf")},
    {STR("PK\x03\x04"), 0, STR("application/zip")},
    {STR("\x1f\x8b"), 0, STR("application/gzip")},
};

bool media_sniffs(struct str type)
{
    for (size_t i = 0; i < ARRAY_LEN(magics); i++)
        if (str_eq(magics[i].type, type))
            return true;
    return false;
}

struct str media_sniff(struct str head)
{
    static const char *const pages[] = {"<!doctype", "<html", "<head", "<script", "<?xml", "<svg"};

    for (size_t i = 0; i < ARRAY_LEN(magics); i++) {
        struct str want = magics[i].head;
        if (head.n >= magics[i].at + want.n && memcmp(head.p + magics[i].at, want.p, want.n) == 0)
            return magics[i].type;
    }
    head = str_trim(head);
    for (size_t i = 0; i < ARRAY_LEN(pages); i++) {
        struct str want = str_of(pages[i]);
        if (head.n >= want.n && str_eq_ci(str_make(head.p, want.n), want))
            return STR("text/html");
    }
    return STR_NULL;
}

const char *media_kind_of_type(struct str type)
{
    if (str_starts(type, STR("image/")) && !str_eq(type, STR("image/svg+xml")))
        return "image";
    if (str_starts(type, STR("audio/")))
        return "audio";
    return str_starts(type, STR("video/")) ? "video" : "document";
}

void media_disposition_add(struct buf *out, bool inline_, struct str name)
{
    buf_add_z(out, inline_ ? "inline" : "attachment");
    if (name.n == 0)
        return;
    buf_add_z(out, "; filename*=UTF-8''");
    percent_encode(out, name);
    /* The plain name is last: the released gateway reads up to the end of the line. */
    buf_add_z(out, "; filename=\"");
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];
        buf_add_c(out, c < ' ' || c > '~' || c == '"' || c == '\\' || c == '%' ? '_' : (char)c);
    }
    buf_add_c(out, '"');
}
