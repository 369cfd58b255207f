/* text.c - design.  (text.h has the contract.)
 *
 * The contract defines a status line by three JavaScript regular expressions, such as
 * /^#\s*Status\s*:\s*.+?\s*$/m.  This file matches them by hand.  \s crosses lines, so an empty
 * header takes its value from the next line that is not blank.  The lazy value with its greedy tail
 * ends where text.h draws it.  White space never contains a '#', so rescanned runs are short and
 * matching stays linear.
 *
 * skill_project() follows the front-end of the language instead, which differs.  Keys match in any
 * case, a value is on the same line, later lines override earlier ones, and tags accumulate.  If
 * the body is Markdown with a fenced block of code, only the block counts.  Lines inside a
 * triple-quoted text are not headers. */
#include "skills/text.h"
#include <locale.h>
#include <pthread.h>
#include <wctype.h>
#include "base/arena.h"
#include "base/space.h"

/* ---- status lines ---- */

static const struct str status_key = {"Status", 6}, skill_key = {"Skill", 5};

static size_t line_end(struct str body, size_t at)
{
    while (at < body.n && eol_bytes(str_skip(body, at)) == 0)
        at++;
    return at;
}

/* The offset after `# Key :`; 0: no match. */
static size_t after_colon(struct str body, size_t hash, struct str key)
{
    size_t at = hash + 1;

    at += space_run(str_skip(body, at));
    if (!str_starts(str_skip(body, at), key))
        return 0;
    at += key.n;
    at += space_run(str_skip(body, at));
    return at < body.n && body.p[at] == ':' ? at + 1 : 0;
}

/* Only white space follows @at: the value is the last white space that is not a line break. */
static bool blank_value(struct str body, size_t at, struct skill_header *h)
{
    bool found = false;

    for (size_t step; at < body.n; at += step) {
        step = space_bytes(str_skip(body, at));
        if (eol_bytes(str_skip(body, at)) > 0)
            continue;
        found = true;
        h->value = at;
        h->value_end = at + step;
    }
    h->end = body.n;
    return found;
}

static bool match(struct str body, size_t hash, struct str key, struct skill_header *h)
{
    size_t at = after_colon(body, hash, key);

    if (at == 0)
        return false;
    h->hash = hash;
    h->value = at + space_run(str_skip(body, at));
    if (h->value == body.n)
        return blank_value(body, at, h);
    size_t eol = line_end(body, h->value);
    h->value_end = h->value + space_trim_end(str_make(body.p + h->value, eol - h->value)).n;
    size_t run_end = h->value_end + space_run(str_skip(body, h->value_end));
    h->end = run_end;
    if (run_end == body.n)
        return true;
    for (at = h->value_end; at < run_end; at += space_bytes(str_skip(body, at)))
        if (eol_bytes(str_skip(body, at)) > 0)
            h->end = at;
    return true;
}

bool skill_header_find(struct str body, struct str key, bool indented, struct skill_header *ret_h)
{
    for (size_t at = 0; at < body.n;) {
        if (indented)
            at += space_run(str_skip(body, at)); /* skips blank lines too */
        if (at < body.n && body.p[at] == '#' && match(body, at, key, ret_h))
            return true;
        at = line_end(body, at);
        at += eol_bytes(str_skip(body, at));
    }
    return false;
}

static bool next_word(struct str *rest, struct str *ret_word)
{
    struct str s = space_trim(*rest);
    size_t n = 0;

    while (n < s.n && space_bytes(str_skip(s, n)) == 0)
        n++;
    *ret_word = str_make(s.p, n);
    *rest = space_trim(str_skip(s, n));
    return n > 0;
}

bool skill_status_read(struct str body, enum skill_status *ret_s, struct str *ret_token)
{
    struct skill_header h;
    struct str word, rest;

    if (!skill_header_find(body, status_key, true, &h))
        return false;
    rest = str_make(body.p + h.value, h.value_end - h.value);
    if (!next_word(&rest, &word))
        return false;
    for (int s = 0; s < N_SKILL_STATUSES; s++) {
        if (!str_eq_ci(word, str_of(skill_status_name((enum skill_status)s))))
            continue;
        *ret_s = (enum skill_status)s;
        if (ret_token != NULL)
            *ret_token = rest.n > 0 ? rest : STR_NULL;
        return true;
    }
    return false;
}

enum skill_status skill_status_of(struct str body)
{
    enum skill_status s = SKILL_DRAFT;

    skill_status_read(body, &s, NULL);
    return s;
}

static void add_status_line(struct buf *out, enum skill_status s)
{
    buf_add_z(out, "# Status: ");
    buf_add_z(out, skill_status_name(s));
}

/* An indented status line may come first, and a runtime trusts the first one. */
static void ensure_status(struct buf *out, size_t from, enum skill_status s)
{
    struct buf body = BUF_INIT;

    if (skill_status_of(str_skip(buf_str(out), from)) == s)
        return;
    buf_add_str(&body, str_skip(buf_str(out), from));
    out->n = from;
    add_status_line(out, s);
    buf_add_c(out, '\n');
    buf_add_str(out, buf_str(&body));
    buf_done(&body);
}

void skill_status_rewrite(struct str body, enum skill_status s, struct buf *out)
{
    struct skill_header h;
    size_t from = out->n;

    if (skill_header_find(body, status_key, false, &h)) {
        buf_add(out, body.p, h.hash);
        add_status_line(out, s);
        buf_add_str(out, str_skip(body, h.end));
    } else if (skill_header_find(body, skill_key, false, &h)) {
        buf_add(out, body.p, h.value_end);
        buf_add_c(out, '\n');
        add_status_line(out, s);
        buf_add_str(out, str_skip(body, h.end));
    } else {
        add_status_line(out, s);
        buf_add_c(out, '\n');
        buf_add_str(out, body);
    }
    ensure_status(out, from, s);
}

bool skill_header_line(struct str body, struct str key, size_t *ret_hash, size_t *ret_end)
{
    for (size_t line = 0; line < body.n;) {
        size_t colon = body.p[line] == '#' ? after_colon(body, line, key) : 0;
        if (colon > 0) {
            *ret_hash = line;
            *ret_end = line_end(body, colon);
            return true;
        }
        line = line_end(body, line);
        line += eol_bytes(str_skip(body, line));
    }
    return false;
}

void skill_force_draft(struct str body, struct buf *out)
{
    size_t hash, end, from = out->n;

    if (skill_header_line(body, status_key, &hash, &end)) {
        buf_add(out, body.p, hash);
        add_status_line(out, SKILL_DRAFT);
        buf_add_str(out, str_skip(body, end));
    } else if (skill_header_line(body, skill_key, &hash, &end)) {
        buf_add(out, body.p, end);
        buf_add_c(out, '\n');
        add_status_line(out, SKILL_DRAFT);
        buf_add_str(out, str_skip(body, end));
    } else {
        add_status_line(out, SKILL_DRAFT);
        buf_add_c(out, '\n');
        buf_add_str(out, body);
    }
    ensure_status(out, from, SKILL_DRAFT);
}

static const char *const status_names[N_SKILL_STATUSES] = {
    [SKILL_DRAFT] = "Draft",
    [SKILL_APPROVED] = "Approved",
    [SKILL_DISABLED] = "Disabled",
};

const char *skill_status_name(enum skill_status s)
{
    return status_names[s];
}

bool skill_status_parse(struct str word, enum skill_status *ret_s)
{
    for (int s = 0; s < N_SKILL_STATUSES; s++)
        if (str_eq(word, str_of(status_names[s]))) {
            *ret_s = (enum skill_status)s;
            return true;
        }
    return false;
}

/* ---- the header lines of the skill, for SkillMeta ---- */

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
        return quoted; /* the common case */
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

/* Lower case for mappings of one code point to one, which is all that tags need. */
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

struct text_tags {
    struct str list[MAX_TAGS];
    size_t n;
};

static void add_tags(struct text_tags *t, struct arena *arena, struct str value)
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

/* A comma starts a new entry only if a name follows, and after the name one of = , : or the end.
 * After an entry with a default only = or : count, and not the :// of a URL. */
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
    jw_karr(w, "vars");
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
            jw_karr(w, "returns");
        }
        any = true;
        jw_str(w, part);
    }
    if (any)
        jw_end_arr(w);
}

static void read_headers(struct str body, struct headers *h, struct text_tags *tags,
                         struct arena *arena)
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

struct str skill_project(struct str body, struct jw *w)
{
    struct headers h = {0};
    struct text_tags tags = {.n = 0};
    struct arena arena = ARENA_INIT;

    read_headers(body, &h, &tags, &arena);
    if (tags.n > 0) {
        jw_karr(w, "tags");
        for (size_t i = 0; i < tags.n; i++)
            jw_str(w, tags.list[i]);
        jw_end_arr(w);
    }
    write_vars(w, h.vars);
    write_returns(w, h.returns);
    arena_done(&arena);
    return str_eq_ci(h.type, STR("data")) ? STR("data") : STR("procedural");
}
