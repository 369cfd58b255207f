/* imap_codec.c - see imap_codec.h. */
#include "platform/email/imap_codec.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void imap_reader_done(struct imap_reader *r)
{
    buf_done(&r->line);
    buf_done(&r->body);
}

/* ---- dates and strings ---- */

static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

static bool two(const char *p, int *ret)
{
    if (p[0] == ' ')
        *ret = p[1] - '0';
    else
        *ret = (p[0] - '0') * 10 + (p[1] - '0');
    return p[1] >= '0' && p[1] <= '9' && ((p[0] >= '0' && p[0] <= '9') || p[0] == ' ');
}

bool imap_date(struct str s, int64_t *ret_ms)
{
    struct tm t = {0};
    char date[27];
    int high, low, zone_h, zone_m;
    const char *month;

    if (s.n == 25 && s.p[1] == '-') { /* a day of one digit, without its space */
        date[0] = ' ';
        memcpy(date + 1, s.p, 25);
    } else if (s.n == 26) {
        memcpy(date, s.p, 26);
    } else {
        return false;
    }
    date[26] = '\0';
    char name[4] = {date[3], date[4], date[5], '\0'};
    month = strcasestr(months, name);
    if (month == NULL || (month - months) % 3 != 0 || !two(date, &t.tm_mday) ||
        !two(date + 7, &high) || !two(date + 9, &low) || !two(date + 12, &t.tm_hour) ||
        !two(date + 15, &t.tm_min) || !two(date + 18, &t.tm_sec) || !two(date + 22, &zone_h) ||
        !two(date + 24, &zone_m) || (date[21] != '+' && date[21] != '-'))
        return false;
    t.tm_mon = (int)(month - months) / 3;
    t.tm_year = high * 100 + low - 1900;
    int64_t zone_s = (zone_h * 60 + zone_m) * 60;
    *ret_ms = ((int64_t)timegm(&t) - (date[21] == '-' ? -zone_s : zone_s)) * 1000;
    return *ret_ms > 0;
}

bool imap_quote(struct buf *out, struct str s)
{
    buf_add_c(out, '"');
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x20 || c >= 0x7f)
            return false;
        if (c == '"' || c == '\\')
            buf_add_c(out, '\\');
        buf_add_c(out, (char)c);
    }
    buf_add_c(out, '"');
    return true;
}

/* ---- a whole response ---- */

static struct str word(struct str *rest)
{
    struct str w = STR("");

    str_split(rest, ' ', &w);
    return w;
}

static uint32_t number_of(struct str s)
{
    uint64_t n = 0;

    return str_to_u64(s, &n) && n <= UINT32_MAX ? (uint32_t)n : 0;
}

/* "[UIDNEXT 7] text": the code, its number, the text. */
static void read_status(struct str rest, struct imap_response *ret)
{
    ptrdiff_t end = rest.n > 0 && rest.p[0] == '[' ? str_find(rest, ']') : -1;

    ret->text = rest;
    if (end < 0)
        return;
    struct str inner = str_make(rest.p + 1, (size_t)end - 1);
    ret->code = word(&inner);
    ret->code_value = number_of(word(&inner));
    ret->text = str_trim(str_skip(rest, (size_t)end + 1));
}

/* Takes the next item off a FETCH list: an atom, a quoted string or a parenthesized list. */
static struct str item(struct str *rest)
{
    size_t i = 0, depth = 0;
    bool quoted = false;

    *rest = str_trim(*rest);
    for (; i < rest->n; i++) {
        char c = rest->p[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '(' || c == '['))
            depth++;
        else if (!quoted && (c == ')' || c == ']') && depth > 0)
            depth--;
        else if (!quoted && depth == 0 && (c == ' ' || c == ')'))
            break;
    }
    struct str got = str_make(rest->p, i < rest->n ? i : rest->n);
    *rest = str_skip(*rest, i < rest->n ? i : rest->n);
    return got;
}

static struct str unquoted(struct str s)
{
    return s.n >= 2 && s.p[0] == '"' ? str_make(s.p + 1, s.n - 2) : s;
}

/* A body that came as a quoted string. */
static void take_quoted_body(struct imap_reader *r, struct str s)
{
    s = unquoted(s);
    buf_reset(&r->body);
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\\' && i + 1 < s.n)
            i++;
        buf_add_c(&r->body, s.p[i]);
    }
}

static void read_fetch(struct imap_reader *r, struct str rest, struct imap_response *ret)
{
    ret->kind = IMAP_FETCH;
    if (rest.n > 0 && rest.p[0] == '(')
        rest = str_skip(rest, 1);
    while (rest.n > 0 && rest.p[0] != ')') {
        size_t before = rest.n;
        struct str name = item(&rest), value = item(&rest);
        if (str_eq_ci(name, STR("UID")))
            ret->uid = number_of(value);
        else if (str_eq_ci(name, STR("RFC822.SIZE")))
            str_to_u64(value, &ret->size);
        else if (str_eq_ci(name, STR("INTERNALDATE")))
            imap_date(unquoted(value), &ret->date_ms);
        else if (str_eq_ci(name, STR("BODY[]")) && value.n > 0 && value.p[0] == '"') {
            take_quoted_body(r, value);
            r->has_body = true;
        }
        if (rest.n == before)
            break;
    }
    ret->has_body = r->has_body;
    ret->body_too_long = r->body_too_long;
}

static const struct {
    const char *word;
    enum imap_status status;
} statuses[] = {
    {"OK", IMAP_OK}, {"PREAUTH", IMAP_OK}, {"NO", IMAP_NO}, {"BAD", IMAP_BAD}, {"BYE", IMAP_BYE}};

static bool status_of(struct str w, enum imap_status *ret)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (str_eq_ci(w, str_of(statuses[i].word))) {
            *ret = statuses[i].status;
            return true;
        }
    return false;
}

static bool read_untagged(struct imap_reader *r, struct str rest, struct imap_response *ret)
{
    struct str first = word(&rest);
    uint64_t n;

    if (status_of(first, &ret->status)) {
        ret->kind = IMAP_STATUS;
        read_status(rest, ret);
    } else if (str_eq_ci(first, STR("CAPABILITY"))) {
        ret->kind = IMAP_CAPABILITY;
        ret->text = rest;
    } else if (str_to_u64(first, &n) && n <= UINT32_MAX) {
        struct str what = word(&rest);
        ret->number = (uint32_t)n;
        if (str_eq_ci(what, STR("EXISTS")))
            ret->kind = IMAP_EXISTS;
        else if (str_eq_ci(what, STR("EXPUNGE")))
            ret->kind = IMAP_EXPUNGE;
        else if (str_eq_ci(what, STR("FETCH")))
            read_fetch(r, rest, ret);
    }
    return first.n > 0;
}

static bool read_response(struct imap_reader *r, struct imap_response *ret)
{
    struct str rest = buf_str(&r->line), first;

    *ret = (struct imap_response){0};
    first = word(&rest);
    if (str_eq(first, STR("*")))
        return read_untagged(r, rest, ret);
    if (first.n > 0 && first.p[0] == '+') {
        ret->kind = IMAP_CONTINUE;
        return true;
    }
    if (first.n < 2 || first.p[0] != 'b' || number_of(str_skip(first, 1)) == 0 ||
        !status_of(word(&rest), &ret->status) || ret->status == IMAP_BYE)
        return false;
    ret->kind = IMAP_TAGGED;
    ret->tag = number_of(str_skip(first, 1));
    read_status(rest, ret);
    return true;
}

/* ---- bytes ---- */

/* The line so far ends a response, or announces a literal: "... {12}". */
static bool announces(struct str line, uint64_t *ret_n)
{
    size_t i = line.n;

    if (line.n < 3 || line.p[line.n - 1] != '}')
        return false;
    while (i > 0 && line.p[i - 1] != '{')
        i--;
    return i > 0 && str_to_u64(str_make(line.p + i, line.n - 1 - i), ret_n);
}

static void begin_literal(struct imap_reader *r, uint64_t n)
{
    struct str line = buf_str(&r->line);
    ptrdiff_t brace = (ptrdiff_t)line.n - 1;

    while (line.p[brace] != '{')
        brace--;
    struct str name = str_trim(str_make(line.p, (size_t)brace));
    r->left = n;
    r->in = IMAP_IN_OTHER;
    if (name.n >= 6 && str_eq_ci(str_skip(name, name.n - 6), STR("BODY[]"))) {
        r->in = n <= r->max_body ? IMAP_IN_BODY : IMAP_IN_OTHER;
        r->body_too_long |= n > r->max_body;
        r->has_body |= n <= r->max_body;
        buf_reset(&r->body);
    }
}

static void eat_literal(struct imap_reader *r, struct str *bytes)
{
    size_t n = r->left < bytes->n ? (size_t)r->left : bytes->n;

    if (r->in == IMAP_IN_BODY)
        buf_add(&r->body, bytes->p, n);
    *bytes = str_skip(*bytes, n);
    r->left -= n;
    if (r->left == 0)
        r->in = IMAP_IN_LINE;
}

enum imap_fed imap_feed(struct imap_reader *r, struct str *bytes, struct imap_response *ret)
{
    uint64_t n;

    if (r->done) { /* the last call returned a response */
        buf_reset(&r->line);
        buf_reset(&r->body);
        r->has_body = r->body_too_long = r->done = false;
    }
    while (bytes->n > 0) {
        if (r->in != IMAP_IN_LINE) {
            eat_literal(r, bytes);
            continue;
        }
        ptrdiff_t end = str_find(*bytes, '\n');
        size_t take = end >= 0 ? (size_t)end : bytes->n;
        if (r->line.n + take > IMAP_MAX_LINE)
            return IMAP_BROKEN;
        buf_add(&r->line, bytes->p, take);
        *bytes = str_skip(*bytes, end >= 0 ? take + 1 : take);
        if (end < 0)
            break;
        if (r->line.n > 0 && r->line.p[r->line.n - 1] == '\r')
            r->line.n--;
        if (announces(buf_str(&r->line), &n)) {
            begin_literal(r, n);
            continue;
        }
        r->done = true;
        return read_response(r, ret) ? IMAP_RESPONSE : IMAP_BROKEN;
    }
    return IMAP_MORE;
}
