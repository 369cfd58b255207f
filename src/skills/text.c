/* text.c - design.  (text.h has the contract.)
 *
 * The contract is three regular expressions of JavaScript, e.g. /^#\s*Status\s*:\s*.+?\s*$/m.  They
 * are matched by hand here: \s crosses lines, so an empty header takes its value from the next line
 * that is not blank, and the lazy value with its greedy tail ends where text.h draws it.  White
 * space never contains a '#', so runs that are looked at twice are not long: it stays linear. */
#include "skills/text.h"
#include "base/space.h"

static const struct str status_key = {"Status", 6}, skill_key = {"Skill", 5};

static size_t line_end(struct str body, size_t at)
{
    while (at < body.n && eol_bytes(str_skip(body, at)) == 0)
        at++;
    return at;
}

/* Offset behind `# Key :`; 0: it is not that. */
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

/* Nothing but white space is left from @at on: the value is the last blank that ends no line. */
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
            at += space_run(str_skip(body, at)); /* blank lines too: nothing is lost with them */
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

/* Somebody's indented status line may still come first, and whoever runs the skill believes it. */
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
