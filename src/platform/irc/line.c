/* line.c - see line.h. */
#include "platform/irc/line.h"
#include <stdio.h>
#include <time.h>
#include "base/mem.h"

/* ---- bytes to lines ---- */

void irc_reader_add(struct irc_reader *r, struct str bytes)
{
    buf_consume(&r->in, r->at);
    r->at = 0;
    buf_add_str(&r->in, bytes);
}

bool irc_reader_next(struct irc_reader *r, struct str *ret_line)
{
    for (;;) {
        struct str rest = str_skip(buf_str(&r->in), r->at);
        const char *end = rest.n > 0 ? memchr(rest.p, '\n', rest.n) : NULL;
        if (end == NULL) {
            if (rest.n > IRC_LINE_MAX && !r->skips) {
                r->skips = true;
                r->skipped++;
            }
            if (r->skips)
                r->at = r->in.n;
            return false;
        }
        size_t n = (size_t)(end - rest.p);
        bool skipped = r->skips;
        r->at += n + 1;
        r->skips = false;
        if (!skipped && n > IRC_LINE_MAX)
            r->skipped++;
        if (skipped || n > IRC_LINE_MAX)
            continue;
        while (n > 0 && rest.p[n - 1] == '\r')
            n--;
        if (n == 0)
            continue;
        *ret_line = str_make(rest.p, n);
        return true;
    }
}

void irc_reader_done(struct irc_reader *r)
{
    buf_done(&r->in);
    *r = (struct irc_reader){.skipped = r->skipped};
}

static struct str take_word(struct str *rest)
{
    ptrdiff_t at = str_find(*rest, ' ');
    struct str word = str_make(rest->p, at >= 0 ? (size_t)at : rest->n);

    *rest = str_skip(*rest, word.n);
    while (rest->n > 0 && rest->p[0] == ' ')
        *rest = str_skip(*rest, 1);
    return word;
}

bool irc_parse(struct str line, struct irc_line *ret)
{
    struct str rest = line;

    *ret = (struct irc_line){0};
    if (memchr(line.n > 0 ? line.p : "", '\0', line.n) != NULL)
        return false;
    if (rest.n > 0 && rest.p[0] == '@')
        ret->tags = str_skip(take_word(&rest), 1);
    while (rest.n > 0 && rest.p[0] == ' ')
        rest = str_skip(rest, 1);
    if (rest.n > 0 && rest.p[0] == ':') {
        ret->source = str_skip(take_word(&rest), 1);
        ptrdiff_t end = str_find(ret->source, '!');
        if (end < 0)
            end = str_find(ret->source, '@');
        ret->nick = end >= 0 ? str_make(ret->source.p, (size_t)end) : ret->source;
    }
    ret->command = take_word(&rest);
    while (rest.n > 0 && ret->n_params < IRC_MAX_PARAMS) {
        bool last = rest.p[0] == ':' || ret->n_params == IRC_MAX_PARAMS - 1;
        if (last) {
            ret->params[ret->n_params++] = rest.p[0] == ':' ? str_skip(rest, 1) : rest;
            break;
        }
        ret->params[ret->n_params++] = take_word(&rest);
    }
    return ret->command.n > 0 && str_has_only(ret->command, "");
}

void irc_head_add(struct buf *out, const struct irc_line *l, struct str command, struct str target)
{
    if (l->tags.n > 0)
        buf_printf(out, "@%.*s ", STR_FMT(l->tags));
    buf_printf(out, ":%.*s %.*s %.*s :", STR_FMT(l->source), STR_FMT(command), STR_FMT(target));
}

bool irc_is(const struct irc_line *l, const char *command)
{
    return str_eq_ci(l->command, str_of(command));
}

int irc_numeric(const struct irc_line *l)
{
    uint64_t n;

    return l->command.n == 3 && str_to_u64(l->command, &n) ? (int)n : 0;
}

/* ---- tags ---- */

static struct str unescape(struct str raw, struct arena *arena)
{
    char *out = arena_alloc(arena, raw.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < raw.n; i++) {
        char c = raw.p[i];
        if (c == '\\') {
            if (++i == raw.n)
                break; /* a lone backslash at the end is dropped */
            c = raw.p[i];
            c = c == ':' ? ';' : c == 's' ? ' ' : c == 'r' ? '\r' : c == 'n' ? '\n' : c;
        }
        out[n++] = c;
    }
    out[n] = '\0';
    return str_make(out, n);
}

struct str irc_tag(const struct irc_line *l, struct str key, struct arena *arena)
{
    struct str rest = l->tags, tag, found = STR_NULL;

    while (str_split(&rest, ';', &tag)) {
        ptrdiff_t eq = str_find(tag, '=');
        struct str name = eq >= 0 ? str_make(tag.p, (size_t)eq) : tag;
        if (str_eq(name, key))
            found = eq >= 0 ? str_skip(tag, (size_t)eq + 1) : STR("");
    }
    return found.p != NULL ? unescape(found, arena) : STR_NULL;
}

void irc_tag_add(struct buf *out, struct str value)
{
    for (size_t i = 0; i < value.n; i++) {
        char c = value.p[i];
        const char *as = c == ';'    ? "\\:"
                         : c == ' '  ? "\\s"
                         : c == '\\' ? "\\\\"
                         : c == '\r' ? "\\r"
                         : c == '\n' ? "\\n"
                                     : NULL;
        if (as != NULL)
            buf_add_z(out, as);
        else if (c != '\0')
            buf_add_c(out, c);
    }
}

struct str irc_token(struct str list, char separator, struct str key)
{
    struct str part;

    while (str_split(&list, separator, &part)) {
        ptrdiff_t eq = str_find(part, '=');
        struct str name = eq >= 0 ? str_make(part.p, (size_t)eq) : part;
        if (str_eq_ci(name, key))
            return eq >= 0 ? str_skip(part, (size_t)eq + 1) : STR("");
    }
    return STR_NULL;
}

/* ---- times ---- */

int64_t irc_time_ms(struct str text)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:dd";
    int field[6] = {0};
    size_t n_fields = 0, at = 0;
    int64_t ms = 0;

    if (text.n < sizeof shape || text.n > sizeof shape + 8)
        return 0;
    for (; at < sizeof shape - 1; at++) {
        bool digit = text.p[at] >= '0' && text.p[at] <= '9';
        if (shape[at] == 'd' ? !digit : text.p[at] != shape[at])
            return 0;
        if (digit)
            field[n_fields] = field[n_fields] * 10 + (text.p[at] - '0');
        else
            n_fields++;
    }
    if (text.p[at] == '.') {
        int64_t unit = 100;
        for (at++; at < text.n && text.p[at] >= '0' && text.p[at] <= '9'; at++, unit /= 10)
            ms += (text.p[at] - '0') * unit;
    }
    if (at + 1 != text.n || text.p[at] != 'Z' || field[1] < 1 || field[1] > 12 || field[2] < 1 ||
        field[2] > 31 || field[3] > 23 || field[4] > 59 || field[5] > 60)
        return 0;
    struct tm tm = {.tm_year = field[0] - 1900,
                    .tm_mon = field[1] - 1,
                    .tm_mday = field[2],
                    .tm_hour = field[3],
                    .tm_min = field[4],
                    .tm_sec = field[5]};
    int64_t s = (int64_t)timegm(&tm);
    return s > 0 ? s * 1000 + ms : 0;
}

void irc_time_add(struct buf *out, int64_t wall_ms)
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;

    gmtime_r(&s, &tm);
    buf_printf(out, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900, tm.tm_mon + 1,
               tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)(wall_ms % 1000));
}

/* ---- names ---- */

enum irc_case irc_case_of(struct str casemapping)
{
    if (casemapping.p == NULL || str_eq_ci(casemapping, STR("rfc1459")))
        return IRC_RFC1459;
    return str_eq_ci(casemapping, STR("rfc1459-strict")) ? IRC_RFC1459_STRICT : IRC_ASCII;
}

static char fold(enum irc_case c, char x)
{
    if (x >= 'A' && x <= 'Z')
        return (char)(x + 32);
    if (c == IRC_ASCII)
        return x;
    if (x >= '[' && x <= ']')
        return (char)(x + 32);
    return c == IRC_RFC1459 && x == '~' ? '^' : x;
}

bool irc_eq(enum irc_case c, struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (fold(c, a.p[i]) != fold(c, b.p[i]))
            return false;
    return true;
}

void irc_fold_add(struct buf *out, enum irc_case c, struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        buf_add_c(out, fold(c, name.p[i]));
}

static bool has_any(struct str s, const char *of)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] <= ' ' || s.p[i] == 0x7f || strchr(of, s.p[i]) != NULL)
            return true;
    return false;
}

bool irc_is_nick(struct str s)
{
    return s.n > 0 && s.n <= IRC_NAME_MAX && strchr("#&+!~%$:-0123456789", s.p[0]) == NULL &&
           !has_any(s, ",*?!@.:$#") && utf8_valid(s);
}

bool irc_is_channel(struct str s, struct str chantypes)
{
    return s.n > 1 && s.n <= IRC_NAME_MAX && memchr(chantypes.p, s.p[0], chantypes.n) != NULL &&
           !has_any(s, ",") && utf8_valid(s);
}

bool irc_target_of(struct str chat_id, struct str network, struct str *ret_target)
{
    size_t tail = network.n + 1;

    if (chat_id.n <= tail || chat_id.p[chat_id.n - tail] != '@' ||
        !str_eq_ci(str_skip(chat_id, chat_id.n - network.n), network))
        return false;
    *ret_target = str_make(chat_id.p, chat_id.n - tail);
    return irc_is_nick(*ret_target) || irc_is_channel(*ret_target, STR("#&+!"));
}

/* ---- what people wrote ---- */

static size_t digits(struct str s, size_t at, size_t most, bool hex)
{
    size_t n = 0;

    while (n < most && at + n < s.n &&
           (hex ? hex_value(s.p[at + n]) >= 0 : s.p[at + n] >= '0' && s.p[at + n] <= '9'))
        n++;
    return n;
}

/* How many bytes of a code for looks begin at @at; 0: none. */
static size_t code_bytes(struct str s, size_t at)
{
    size_t n = 1, most = s.p[at] == 0x04 ? 6 : 2;

    if (s.p[at] == 0x03 || s.p[at] == 0x04) { /* colours: "3", "3,12"; "4" and six hex digits */
        size_t fore = digits(s, at + n, most, most == 6);
        n += fore;
        if (fore > 0 && at + n + 1 < s.n && s.p[at + n] == ',') {
            size_t back = digits(s, at + n + 1, most, most == 6);
            n += back > 0 ? back + 1 : 0;
        }
        return n;
    }
    return s.p[at] == '\n' || s.p[at] == '\t' || (unsigned char)s.p[at] >= ' ' ? 0 : 1;
}

void irc_plain_add(struct buf *out, struct str text)
{
    bool utf8 = utf8_valid(text);

    for (size_t i = 0; i < text.n;) {
        size_t code = code_bytes(text, i);
        unsigned char c = (unsigned char)text.p[i];
        if (code > 0) {
            i += code;
            continue;
        }
        if (!utf8 && c >= 0x80) {
            buf_add_c(out, (char)(0xc0 | c >> 6));
            buf_add_c(out, (char)(0x80 | (c & 0x3f)));
        } else if (c != 0x7f) {
            buf_add_c(out, (char)c);
        }
        i++;
    }
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-_[]{}\\|^`", c) != NULL) || (unsigned char)c >= 0x80;
}

bool irc_addresses(enum irc_case c, struct str text, struct str nick, struct str *ret_text)
{
    struct str head = text.n > 0 && text.p[0] == '@' ? str_skip(text, 1) : text;
    bool at_sign = head.n != text.n;

    *ret_text = text;
    if (nick.n == 0)
        return false;
    if (head.n >= nick.n && irc_eq(c, str_make(head.p, nick.n), nick)) {
        struct str rest = str_skip(head, nick.n);
        bool mark = rest.n > 0 && (rest.p[0] == ':' || rest.p[0] == ',');
        if (mark || (at_sign && (rest.n == 0 || !is_name_byte(rest.p[0])))) {
            *ret_text = str_trim(mark ? str_skip(rest, 1) : rest);
            return true;
        }
    }
    for (size_t i = 0; i + nick.n < text.n; i++)
        if (text.p[i] == '@' && (i == 0 || !is_name_byte(text.p[i - 1])) &&
            irc_eq(c, str_make(text.p + i + 1, nick.n), nick) &&
            (i + 1 + nick.n == text.n || !is_name_byte(text.p[i + 1 + nick.n])))
            return true;
    return false;
}

/* ---- what agents write ---- */

bool irc_next_line(struct str *rest, size_t most, struct str *ret_line, bool *ret_goes_on)
{
    *ret_goes_on = false;
    if (rest->n == 0)
        return false;
    const char *end = memchr(rest->p, '\n', rest->n);
    size_t all = end != NULL ? (size_t)(end - rest->p) : rest->n, n = all;
    if (n > 0 && rest->p[n - 1] == '\r')
        n--;
    if (n <= most) {
        *ret_line = str_make(rest->p, n);
        *rest = str_skip(*rest, all + (end != NULL));
        return true;
    }
    struct str head = utf8_head(str_make(rest->p, n), most);
    if (head.n == 0) /* not UTF-8: one byte at least */
        head = str_make(rest->p, most > 0 ? most : 1);
    size_t cut = head.n;
    while (cut > 0 && head.p[cut - 1] != ' ')
        cut--; /* the blank stays at the end of the line */
    if (cut > 0)
        head.n = cut;
    *ret_line = head;
    *rest = str_skip(*rest, head.n);
    *ret_goes_on = true;
    return true;
}

size_t irc_split(struct str text, struct str ret_parts[IRC_MAX_PARTS])
{
    struct str rest = str_trim(text), line;
    size_t n = 0, lines = 0;
    const char *begin = rest.p;
    bool goes_on;

    while (rest.n > 0 && n < IRC_MAX_PARTS) {
        irc_next_line(&rest, IRC_PART_LINE, &line, &goes_on);
        lines += str_trim(line).n > 0;
        if (lines == IRC_PART_LINES || rest.n == 0) {
            const char *end = line.p + line.n;
            ret_parts[n++] = str_make(begin, (size_t)(end - begin));
            begin = rest.p;
            lines = 0;
        }
    }
    return n;
}

void irc_body_add(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c == '\t')
            buf_add_c(out, ' ');
        else if (c >= ' ' && c != 0x7f)
            buf_add_c(out, (char)c);
    }
}
