/* http_codec.c - design.  (http_codec.h has the contract.)
 *
 * A line of the head is read as soon as its line feed has arrived: names and targets sixteen bytes
 * at a time while their bytes are usual ones, and a table of characters judges the others; the
 * value until a byte that does not print.  An incomplete line is read again from its start, but
 * only after its line feed has come, so each byte is looked at three times at most.
 *
 * The few fields that decide how a request is framed are noted while they are read; rules that
 * depend on several fields are checked at the empty line.
 *
 * Chunk framing is read byte by byte: the framing is short, and the data is skipped. */
#include "net/http_codec.h"

#include <stdbool.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/str.h"

/* What a character may be part of; TOKEN is RFC 9110's tchar. */
enum { TOKEN = 1, TARGET = 2, HOST = 4 };
enum { LONGEST_VERB = 32 };

static const uint8_t kinds[256] = {
    ['!'] = TOKEN | TARGET,
    ['"'] = TARGET,
    ['$' ... '\''] = TOKEN | TARGET,
    ['('] = TARGET,
    [')'] = TARGET,
    ['*'] = TOKEN | TARGET,
    ['+'] = TOKEN | TARGET,
    [','] = TARGET,
    ['-'] = TOKEN | TARGET | HOST,
    ['.'] = TOKEN | TARGET | HOST,
    ['/'] = TARGET,
    ['0' ... '9'] = TOKEN | TARGET | HOST,
    [':' ... '@'] = TARGET,
    ['A' ... 'Z'] = TOKEN | TARGET | HOST,
    ['[' ... ']'] = TARGET,
    ['^'] = TOKEN | TARGET,
    ['_'] = TOKEN | TARGET | HOST,
    ['`'] = TOKEN | TARGET,
    ['a' ... 'z'] = TOKEN | TARGET | HOST,
    ['{'] = TARGET,
    ['|'] = TOKEN | TARGET,
    ['}'] = TARGET,
    ['~'] = TOKEN | TARGET,
    ['#'] = TOKEN, /* a fragment never travels */
};

static const struct str verbs[VERB_N] = {
    [VERB_GET] = {"GET", 3},         [VERB_HEAD] = {"HEAD", 4},   [VERB_POST] = {"POST", 4},
    [VERB_PUT] = {"PUT", 3},         [VERB_PATCH] = {"PATCH", 5}, [VERB_DELETE] = {"DELETE", 6},
    [VERB_OPTIONS] = {"OPTIONS", 7},
};

const char *http_verb_word(enum http_verb v)
{
    return verbs[v].p;
}

enum line { LINE_READ, LINE_CUT, LINE_BAD };

static enum line bad(struct http_head *h, int status, const char *code, const char *text)
{
    h->fault = (struct http_fault){status, code, text};
    return LINE_BAD;
}

static enum line malformed(struct http_head *h, const char *text)
{
    return bad(h, 400, "bad_request", text);
}

static bool is(char c, unsigned kind)
{
    return (kinds[(unsigned char)c] & kind) != 0;
}

#ifdef __SSE2__
/* The bits of those of sixteen bytes that are letters, digits, "-", "." or, in a target, "/". */
static inline unsigned usual(const char *p, unsigned kind)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    __m128i letter = _mm_sub_epi8(_mm_or_si128(v, _mm_set1_epi8(0x20)), _mm_set1_epi8('a'));
    __m128i other = _mm_sub_epi8(v, _mm_set1_epi8('-')); /* - . / 0 ... 9 */

    letter = _mm_cmpeq_epi8(_mm_min_epu8(letter, _mm_set1_epi8('z' - 'a')), letter);
    other = _mm_cmpeq_epi8(_mm_min_epu8(other, _mm_set1_epi8('9' - '-')), other);
    if (kind != TARGET)
        other = _mm_andnot_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('/')), other);
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(letter, other));
}
#endif

static inline size_t run_of(const char *p, size_t at, size_t end, unsigned kind)
{
#ifdef __SSE2__
    for (; end - at >= 16; at++) {
        unsigned rest = ~usual(p + at, kind) & 0xffff;
        at += rest != 0 ? (size_t)__builtin_ctz(rest) : 15;
        if (!is(p[at], kind))
            return at;
    }
#endif
    while (at < end && is(p[at], kind))
        at++;
    return at;
}

/* ---- the request line ---- */

static enum line read_verb(struct http_head *h, struct str word)
{
    for (int i = 0; i < VERB_N; i++) {
        if (str_eq(word, verbs[i])) {
            h->verb = (uint8_t)i;
            return LINE_READ;
        }
    }
    return bad(h, 501, "bad_method", "this method is not implemented");
}

/* "http://host/path" -> authority, and where the path starts.  False: not a form we take. */
static bool skip_authority(struct http_head *h, const char *p, size_t *at, size_t end)
{
    static const struct str schemes[] = {{"http://", 7}, {"https://", 8}};
    size_t start = 0;

    for (size_t i = 0; i < 2; i++) {
        if (end - *at > schemes[i].n && str_eq_ci(str_make(p + *at, schemes[i].n), schemes[i]))
            start = *at + schemes[i].n;
    }
    if (start == 0)
        return false;
    h->is_absolute = true;
    h->authority = (uint32_t)start;
    while (start < end && p[start] != '/' && p[start] != '?')
        start++;
    h->authority_n = (uint32_t)start - h->authority;
    *at = start;
    return start == end || p[start] == '/'; /* "http://x?/y" is read in two ways: in none here */
}

/* "/a?b", "http://host/a?b" or, for OPTIONS, "*". */
static enum line read_target(struct http_head *h, const char *p, size_t at, size_t end)
{
    const char *mark;

    if (at == end)
        return malformed(h, "the request line has no target");
    if (end - at == 1 && p[at] == '*' && h->verb == VERB_OPTIONS) {
        h->path = (uint32_t)at;
        h->path_n = 1;
        return LINE_READ;
    }
    if (p[at] != '/' && !skip_authority(h, p, &at, end))
        return malformed(h, "the target is neither a path nor an http URL");
    if (at == end) { /* "http://host": the path is the slash before the host */
        h->path = h->authority - 1;
        h->path_n = 1;
        return LINE_READ;
    }
    mark = memchr(p + at, '?', end - at);
    h->path = (uint32_t)at;
    h->path_n = (uint32_t)(mark != NULL ? (size_t)(mark - p) - at : end - at);
    if (mark != NULL) {
        h->query = (uint32_t)(mark - p) + 1;
        h->query_n = (uint32_t)end - h->query;
    }
    return LINE_READ;
}

/* "HTTP/1.1" CR LF at @at. */
static enum line read_version(struct http_head *h, const char *p, size_t at, size_t end)
{
    static const char want[] = "HTTP/1.?\r\n";
    size_t n = end - at < 10 ? end - at : 10;

    for (size_t i = 0; i < n; i++) {
        char c = p[at + i];
        if (i == 7 ? c == '0' || c == '1' : c == want[i])
            continue;
        if (i == 5 && c >= '0' && c <= '9')
            return bad(h, 505, "bad_version", "only HTTP/1.0 and HTTP/1.1 are spoken here");
        return malformed(h, "the request line does not end in HTTP/1.0 or HTTP/1.1");
    }
    if (n < 10)
        return LINE_CUT;
    h->minor = (uint8_t)(p[at + 7] - '0');
    h->at = (uint32_t)at + 10;
    return LINE_READ;
}

static enum line read_request_line(struct http_head *h, const char *p, size_t end)
{
    size_t verb = h->at, at = verb, target;
    enum line line;

    while (at < end && p[at] >= 'A' && p[at] <= 'Z')
        at++;
    if (at == end && at - verb <= LONGEST_VERB)
        return LINE_CUT;
    if (at == verb || at == end || p[at] != ' ')
        return malformed(h, "the request does not start with a method and a space");
    line = read_verb(h, str_make(p + verb, at - verb));
    if (line != LINE_READ)
        return line;
    target = at + 1;
    at = run_of(p, target, end, TARGET);
    if (at == end)
        return LINE_CUT;
    if (p[at] != ' ')
        return malformed(h, "the target holds a byte that may not stand there");
    line = read_target(h, p, target, at);
    return line == LINE_READ ? read_version(h, p, at + 1, end) : line;
}

/* ---- fields ---- */

/* The first byte of @p[@at..@end) that does not print, tabs and spaces apart; @end: none. */
static size_t find_control(const char *p, size_t at, size_t end)
{
    while ((at += str_until_control(str_make(p + at, end - at))) < end && p[at] == '\t')
        at++;
    return at;
}

/* Tabs around the value of the field just read.  Legal, but not every parser takes them off, and
 * what frames the body must be the same for all. */
static bool has_tab(const struct http_head *h, const char *p, const struct http_field *f)
{
    uint32_t start = f->name + f->name_n + 1;
    return memchr(p + start, '\t', h->at - 2 - start) != NULL;
}

static enum line note_length(struct http_head *h, struct str v)
{
    if (h->has_length)
        return malformed(h, "more than one length for the body");
    h->has_length = true;
    if (!str_to_u64(v, &h->length) || h->length > INT64_MAX) /* other parsers overflow there */
        return malformed(h, "Content-Length is not a number");
    return LINE_READ;
}

static enum line note_encoding(struct http_head *h, struct str v)
{
    if (h->chunked)
        return malformed(h, "more than one length for the body");
    h->chunked = true;
    if (!str_eq_ci(v, STR("chunked")))
        return bad(h, 501, "bad_transfer_encoding", "only chunked is implemented");
    return LINE_READ;
}

static enum line note_connection(struct http_head *h, struct str v)
{
    struct str word;

    while (v.n > 0 && str_split(&v, ',', &word)) {
        word = str_trim(word);
        if (word.n == 0 ||
            run_of(word.p, 0, word.n, TOKEN) < word.n) /* others stop reading there */
            return malformed(h, "Connection is a list of words");
        h->asks_close |= str_eq_ci(word, STR("close"));
        h->asks_keep |= str_eq_ci(word, STR("keep-alive"));
        h->asks_upgrade |= str_eq_ci(word, STR("upgrade"));
    }
    return LINE_READ;
}

static bool port_is_fine(struct str s)
{
    uint64_t port;
    return s.n == 0 ||
           (s.p[0] == ':' && s.n <= 6 && str_to_u64(str_skip(s, 1), &port) && port <= 65535);
}

/* "name", "name:80", "192.0.2.1", "[2001:db8::1]:80". */
static bool host_is_fine(struct str v)
{
    size_t n;

    if (v.n > 1 && v.p[0] == '[') {
        ptrdiff_t end = str_find(v, ']');
        for (n = 1; end > 1 && n < (size_t)end; n++) {
            if (!is(v.p[n], HOST) && v.p[n] != ':')
                return false;
        }
        return end > 1 && port_is_fine(str_skip(v, (size_t)end + 1));
    }
    n = run_of(v.p, 0, v.n, HOST);
    return n > 0 && port_is_fine(str_skip(v, n));
}

static enum line note_host(struct http_head *h, struct str v, uint32_t at)
{
    if (h->host != 0)
        return malformed(h, "more than one Host");
    if (!host_is_fine(v))
        return malformed(h, "Host is not a name or an address with an optional port");
    h->host = at;
    h->host_n = (uint32_t)v.n;
    return LINE_READ;
}

/* The fields that decide what the request is. */
static enum line note_field(struct http_head *h, const char *p, const struct http_field *f)
{
    struct str name = str_make(p + f->name, f->name_n);
    struct str value = str_make(p + f->value, f->value_n);

    switch (name.n) {
    case 4:
        return str_eq_ci(name, STR("host")) ? note_host(h, value, f->value) : LINE_READ;
    case 6:
        if (!str_eq_ci(name, STR("expect")))
            return LINE_READ;
        h->expects_continue = str_eq_ci(value, STR("100-continue"));
        return h->expects_continue ? LINE_READ : malformed(h, "only Expect: 100-continue is known");
    case 7:
        if (str_eq_ci(name, STR("upgrade")))
            h->upgrade = str_eq_ci(value, STR("websocket"));
        return LINE_READ;
    case 10:
        return str_eq_ci(name, STR("connection")) ? note_connection(h, value) : LINE_READ;
    case 14:
        if (!str_eq_ci(name, STR("content-length")))
            return LINE_READ;
        return has_tab(h, p, f) ? malformed(h, "a tab beside the length") : note_length(h, value);
    case 17:
        if (!str_eq_ci(name, STR("transfer-encoding")))
            return LINE_READ;
        return has_tab(h, p, f) ? malformed(h, "a tab beside the encoding")
                                : note_encoding(h, value);
    default:
        return LINE_READ;
    }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static enum line read_field(struct http_head *h, const char *p, size_t end)
{
    size_t name = h->at, colon = run_of(p, name, end, TOKEN), value, stop, last;
    struct http_field *f;

    if (colon == end)
        return LINE_CUT;
    if (colon == name || p[colon] != ':')
        return malformed(h, "a header line does not start with a name and a colon");
    for (value = colon + 1; value < end && is_blank(p[value]); value++)
        ;
    stop = find_control(p, value, end);
    if (stop + 1 >= end)
        return stop == end || p[stop] == '\r' ? LINE_CUT
                                              : malformed(h, "a header holds a control character");
    if (p[stop] != '\r' || p[stop + 1] != '\n')
        return malformed(h, "a header holds a control character or ends without CR LF");
    if (h->n_fields == HTTP_MAX_FIELDS)
        return bad(h, 431, "head_too_large", "too many header fields");
    for (last = stop; last > value && is_blank(p[last - 1]); last--)
        ;
    f = &h->fields[h->n_fields++];
    *f = (struct http_field){(uint32_t)name, (uint32_t)(colon - name), (uint32_t)value,
                             (uint32_t)(last - value)};
    h->at = (uint32_t)stop + 2;
    return note_field(h, p, f);
}

/* ---- the whole ---- */

static enum line check(struct http_head *h, const char *p)
{
    struct str host = str_make(p + h->host, h->host_n);

    if (h->host == 0 && h->minor == 1)
        return malformed(h, "HTTP/1.1 needs a Host");
    if (h->is_absolute && h->host != 0 &&
        !str_eq_ci(str_make(p + h->authority, h->authority_n), host))
        return malformed(h, "the target names another host than Host");
    if (h->is_absolute && h->host == 0 && !host_is_fine(str_make(p + h->authority, h->authority_n)))
        return malformed(h, "the target does not name a host");
    if (h->has_length && h->chunked)
        return malformed(h, "more than one length for the body");
    if (h->chunked && h->minor == 0)
        return malformed(h, "HTTP/1.0 knows no transfer encodings");
    h->upgrade = h->upgrade && h->asks_upgrade && h->verb == VERB_GET;
    if (h->upgrade && (h->chunked || h->length > 0))
        return malformed(h, "an upgrade has no body");
    h->keep_alive = !h->asks_close && (h->minor == 1 || h->asks_keep);
    h->bytes = h->at;
    return LINE_READ;
}

/* The line at h->at; *@ret_last when it was the empty one. */
static enum line read_line(struct http_head *h, const char *p, size_t end, bool *ret_last)
{
    size_t at = h->at;
    enum line line;

    if (at == end)
        return LINE_CUT;
    if (p[at] != '\r') {
        if (h->in_fields)
            return read_field(h, p, end);
        line = read_request_line(h, p, end);
        h->in_fields = line == LINE_READ;
        return line;
    }
    if (at + 1 == end)
        return LINE_CUT;
    if (p[at + 1] != '\n' || (!h->in_fields && at > 0))
        return malformed(h, "a line is not ended by CR LF");
    h->at += 2; /* one empty line before a request is let pass: some clients end their body so */
    *ret_last = h->in_fields;
    return h->in_fields ? check(h, p) : LINE_READ;
}

enum http_head_end http_head_read(struct http_head *h, const char *p, size_t n, size_t limit)
{
    size_t end = n < limit ? n : limit;
    bool last = false;
    enum line line = LINE_READ;

    if (h->seen > h->at && memchr(p + h->seen, '\n', end - h->seen) == NULL)
        line = LINE_CUT; /* still no end of it: not worth another try */
    while (line == LINE_READ && !last)
        line = read_line(h, p, end, &last);
    if (line == LINE_READ)
        return HEAD_DONE;
    if (line == LINE_CUT) {
        h->seen = (uint32_t)end;
        if (n < limit)
            return HEAD_MORE;
        (void)bad(h, 431, "head_too_large", "the head is larger than this server takes");
    }
    return HEAD_BAD;
}

/* ---- chunked bodies ---- */

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
    if (k->state != EXT_END && is(ch, TOKEN)) {
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
        fine = is(ch, TOKEN) || (k->line_n == 0 ? ch == '\r' : ch == ':');
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

/* ---- the Range header ---- */

enum http_range_end http_range_read(struct str range, uint64_t size, uint64_t *ret_start,
                                    uint64_t *ret_n)
{
    struct str first, last;
    uint64_t a, b;
    ptrdiff_t dash;

    if (!str_starts(range, STR("bytes=")))
        return RANGE_WHOLE;
    range = str_trim(str_skip(range, 6));
    dash = str_find(range, '-');
    if (dash < 0)
        return RANGE_WHOLE;
    first = str_make(range.p, (size_t)dash);
    last = str_skip(range, (size_t)dash + 1);
    if (first.n == 0) { /* the last so many */
        if (!str_to_u64(last, &b))
            return RANGE_WHOLE;
        if (b == 0 || size == 0)
            return RANGE_OUTSIDE;
        *ret_n = b < size ? b : size;
        *ret_start = size - *ret_n;
        return RANGE_PART;
    }
    if (!str_to_u64(first, &a) || (last.n > 0 && (!str_to_u64(last, &b) || b < a)))
        return RANGE_WHOLE;
    if (a >= size)
        return RANGE_OUTSIDE;
    *ret_start = a;
    *ret_n = last.n > 0 && b < size - 1 ? b - a + 1 : size - a;
    return RANGE_PART;
}

/* ---- dates ---- */

bool http_date_read(struct str text, int64_t *ret_s)
{
    static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT", "%a, %d %b %Y %H:%M:%S +0000",
                                        "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"};
    char z[48];

    if (text.n == 0 || text.n >= sizeof z)
        return false;
    memcpy(z, text.p, text.n);
    z[text.n] = '\0';
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct tm tm = {0};
        if (strptime(z, forms[i], &tm) != z + text.n)
            continue;
        *ret_s = (int64_t)timegm(&tm);
        return true;
    }
    return false;
}

/* "120" or "0.35"; -1: no number. */
static int64_t number_ms(struct str text, int64_t max_s)
{
    ptrdiff_t dot = str_find(text, '.');
    struct str fraction = dot >= 0 ? str_skip(text, (size_t)dot + 1) : STR("");
    uint64_t s;
    int64_t ms = 0, scale = 100;

    if (!str_to_u64(dot >= 0 ? str_make(text.p, (size_t)dot) : text, &s) || s > (uint64_t)max_s)
        return -1;
    for (size_t i = 0; i < fraction.n; i++, scale /= 10) {
        if (fraction.p[i] < '0' || fraction.p[i] > '9')
            return -1;
        ms += scale * (fraction.p[i] - '0');
    }
    return (int64_t)s * 1000 + ms;
}

int64_t http_retry_after_ms(struct str value, struct str date, int64_t wall_ms)
{
    enum { MAX_S = 366 * 86400 };
    int64_t until_s, now_s;

    if (!http_date_read(value, &until_s))
        return number_ms(value, MAX_S);
    int64_t now_ms = http_date_read(date, &now_s) ? now_s * 1000 : wall_ms;
    int64_t left_ms = until_s * 1000 - now_ms;
    return left_ms > (int64_t)MAX_S * 1000 ? -1 : left_ms > 0 ? left_ms : 0;
}
