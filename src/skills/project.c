/* project.c - what a body's header lines say about the skill, for SkillMeta.
 *
 * These are read as the language's own front-end reads them, which differs from how stores read
 * a status: keys in any case, only the same line, later lines override earlier ones and tags add
 * up. A body may be Markdown around a fenced block of code, and then only the block counts;
 * lines inside a triple-quoted text are not headers. */
#include <locale.h>
#include <pthread.h>
#include <wctype.h>
#include "base/arena.h"
#include "base/space.h"
#include "skills/text.h"

struct headers { /* values, absent when there is no such line */
    struct str vars, returns, type;
};

static bool is_fence(struct str line, bool opening)
{
    struct str tail = str_skip(line, 3);

    if (!str_starts(line, STR("```")))
        return false;
    tail = space_trim_end(tail);
    return opening ? str_eq(tail, STR("skillscript")) || str_eq(tail, STR("skill")) : tail.n == 0;
}

/* The first block fenced as ```skillscript or ```skill; without one, the body itself. */
static struct str code_of(struct str body)
{
    struct str rest = body, line, code = STR_NULL;

    while (str_split(&rest, '\n', &line)) {
        if (code.p == NULL && is_fence(line, true) && rest.p != NULL)
            code = rest;
        else if (code.p != NULL && is_fence(line, false))
            return str_make(code.p, (size_t)(line.p - code.p));
    }
    return body;
}

static bool is_quoted(struct str line, bool quoted) /* after this line */
{
    static const struct str quotes = {"\"\"\"", 3};

    if (str_find(line, '"') < 0)
        return quoted; /* as nearly all */
    for (const char *at; line.n > 0 && (at = memmem(line.p, line.n, quotes.p, quotes.n)) != NULL;) {
        line = str_skip(line, (size_t)(at - line.p) + quotes.n);
        quoted = !quoted;
    }
    return quoted;
}

/* Header lines one by one: key and value, both trimmed. */
static bool next_header(struct str *rest, bool *quoted, struct str *ret_key, struct str *ret_value)
{
    struct str line;

    while (str_split(rest, '\n', &line)) {
        bool inside = *quoted;
        *quoted = is_quoted(line, *quoted);
        ptrdiff_t colon = str_find(line, ':');
        if (inside || !str_starts(line, STR("#")) || colon < 0)
            continue;
        *ret_key = space_trim(str_make(line.p + 1, (size_t)colon - 1));
        *ret_value = space_trim(str_skip(line, (size_t)colon + 1));
        return true;
    }
    return false;
}

static bool says_none(struct str value)
{
    return value.n == 0 || str_eq_ci(value, STR("(none)"));
}

static locale_t utf8;

static void make_locale(void)
{
    utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

/* As far as one code point maps to one, which is all that tags need. */
static struct str lower(struct arena *arena, struct str s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct buf out = BUF_INIT;

    pthread_once(&once, make_locale);
    for (size_t i = 0; i < s.n;) {
        size_t step = utf8_seq_bytes(str_skip(s, i));
        unsigned char c = (unsigned char)s.p[i];
        if (step == 2 && utf8 != (locale_t)0) { /* Latin, Greek, Cyrillic, Armenian */
            unsigned cp = (c & 0x1fu) << 6 | ((unsigned char)s.p[i + 1] & 0x3fu);
            wint_t low = towlower_l(cp, utf8);
            cp = low < 0x800 && low >= 0x80 ? low : cp;
            buf_add_c(&out, (char)(0xc0 | cp >> 6));
            buf_add_c(&out, (char)(0x80 | (cp & 0x3f)));
        } else if (step <= 1) {
            buf_add_c(&out, c >= 'A' && c <= 'Z' ? (char)(c + 32) : (char)c);
        } else {
            buf_add(&out, s.p + i, step);
        }
        i += step > 0 ? step : 1;
    }
    struct str copy = arena_str(arena, buf_str(&out));
    buf_done(&out);
    return copy;
}

#define MAX_TAGS 64

struct tags {
    struct str list[MAX_TAGS];
    size_t n;
};

static void add_tags(struct tags *t, struct arena *arena, struct str value)
{
    struct str rest = value, part;

    if (says_none(value))
        return;
    while (str_split(&rest, ',', &part) && t->n < MAX_TAGS) {
        part = lower(arena, space_trim(part));
        bool known = part.n == 0;
        for (size_t i = 0; i < t->n && !known; i++)
            known = str_eq(t->list[i], part);
        if (!known)
            t->list[t->n++] = part;
    }
}

static bool is_word(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '-'));
}

/* A comma starts a new entry only when a name and then = , : or the end follow it; behind an entry
 * that has a default already, only = or : (and not the :// of an address) do. */
static bool starts_entry(struct str rest, bool has_default)
{
    size_t i = space_run(rest), start = i;

    while (i < rest.n && is_word(rest.p[i], i == start))
        i++;
    if (i == start)
        return false;
    i += space_run(str_skip(rest, i));
    char c = i < rest.n ? rest.p[i] : '\0';
    if (i < rest.n && c != '=' && c != ',' && c != ':')
        return false;
    if (has_default && c != '=' && c != ':')
        return false;
    return c != ':' || !str_starts(str_skip(rest, i + 1), STR("//"));
}

/* Cut the next entry of a `# Vars:` line off *@rest. */
static struct str next_var(struct str *rest)
{
    struct str all = *rest;
    char quote = '\0';
    int depth = 0;

    for (size_t i = 0; i < all.n; i++) {
        char c = all.p[i];
        if (quote != '\0') {
            quote = c == quote ? '\0' : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '[' || c == '{') {
            depth++;
        } else if (c == ']' || c == '}') {
            depth -= depth > 0;
        } else if (c == ',' && depth == 0 &&
                   starts_entry(str_skip(all, i + 1), str_find(str_make(all.p, i), '=') >= 0)) {
            *rest = str_skip(all, i + 1);
            return str_make(all.p, i);
        }
    }
    *rest = STR_NULL;
    return all;
}

static void write_vars(struct jw *w, struct str value)
{
    if (value.p == NULL || says_none(value))
        return;
    jw_key(w, "vars");
    jw_arr(w);
    while (value.p != NULL) {
        struct str entry = space_trim(next_var(&value));
        ptrdiff_t eq = str_find(entry, '=');
        jw_str(w, eq < 0 ? entry : space_trim(str_make(entry.p, (size_t)eq)));
    }
    jw_end_arr(w);
}

static void write_returns(struct jw *w, struct str value)
{
    struct str part;
    bool any = false;

    if (value.p == NULL || says_none(value))
        return;
    while (str_split(&value, ',', &part)) {
        part = space_trim(part);
        if (part.n == 0 || str_find(part, '=') >= 0)
            continue;
        if (!any) {
            jw_key(w, "returns");
            jw_arr(w);
        }
        any = true;
        jw_str(w, part);
    }
    if (any)
        jw_end_arr(w);
}

static void read_headers(struct str body, struct headers *h, struct tags *tags, struct arena *arena)
{
    struct str rest = code_of(body), key, value;
    bool quoted = false;

    while (next_header(&rest, &quoted, &key, &value)) {
        if (str_eq_ci(key, STR("vars")))
            h->vars = value;
        else if (str_eq_ci(key, STR("returns")))
            h->returns = value;
        else if (str_eq_ci(key, STR("type")) &&
                 (str_eq_ci(value, STR("data")) || str_eq_ci(value, STR("procedural"))))
            h->type = value;
        else if (str_eq_ci(key, STR("tags")))
            add_tags(tags, arena, value);
    }
}

static struct str type_word(struct str value)
{
    return str_eq_ci(value, STR("data")) ? STR("data") : STR("procedural");
}

struct str skill_project(struct str body, struct jw *w)
{
    struct headers h = {0};
    struct tags tags = {.n = 0};
    struct arena arena = ARENA_INIT;

    read_headers(body, &h, &tags, &arena);
    if (tags.n > 0) {
        jw_key(w, "tags");
        jw_arr(w);
        for (size_t i = 0; i < tags.n; i++)
            jw_str(w, tags.list[i]);
        jw_end_arr(w);
    }
    write_vars(w, h.vars);
    write_returns(w, h.returns);
    arena_done(&arena);
    return type_word(h.type);
}
