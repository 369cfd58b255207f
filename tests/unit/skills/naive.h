/* naive.h - the header rules of skills, written as literally as the regular expressions that define
 * them: every quantifier is a loop, in the order an engine tries them.  Slow and plain; what the
 * real code is held against. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/str.h"
#include "skills/skills.h"

struct naive_text {
    uint32_t *cp; /* code points */
    size_t *at;   /* their byte offsets, and one for the end */
    size_t n;
    struct str bytes;
};

static inline void naive_decode(struct str s, struct naive_text *t)
{
    t->cp = calloc(s.n + 1, sizeof *t->cp);
    t->at = calloc(s.n + 1, sizeof *t->at);
    t->n = 0;
    t->bytes = s;
    for (size_t i = 0; i < s.n;) {
        unsigned char c = (unsigned char)s.p[i];
        size_t len = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        uint32_t cp = len == 1 ? c : c & (0xffu >> (len + 1));
        for (size_t k = 1; k < len; k++)
            cp = cp << 6 | ((unsigned char)s.p[i + k] & 0x3f);
        t->cp[t->n] = cp;
        t->at[t->n++] = i;
        i += len;
    }
    t->at[t->n] = s.n;
}

static inline void naive_free(struct naive_text *t)
{
    free(t->cp);
    free(t->at);
}

static inline bool naive_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000 || c == 0xfeff;
}

static inline bool naive_eol(uint32_t c)
{
    return c == 10 || c == 13 || c == 0x2028 || c == 0x2029;
}

static inline size_t naive_run(const struct naive_text *t, size_t i)
{
    size_t n = 0;
    while (i + n < t->n && naive_space(t->cp[i + n]))
        n++;
    return n;
}

static inline bool naive_line_start(const struct naive_text *t, size_t i)
{
    return i == 0 || naive_eol(t->cp[i - 1]);
}

static inline bool naive_line_end(const struct naive_text *t, size_t i)
{
    return i == t->n || naive_eol(t->cp[i]);
}

static inline bool naive_word(const struct naive_text *t, size_t i, const char *word)
{
    for (size_t k = 0; word[k] != '\0'; k++)
        if (i + k >= t->n || t->cp[i + k] != (uint32_t)word[k])
            return false;
    return true;
}

struct naive_match { /* indexes of code points */
    size_t start, value, value_end, end;
};

/* :\s*(.+?)\s*$ from behind the colon. */
static inline bool naive_tail(const struct naive_text *t, size_t i, struct naive_match *m)
{
    for (size_t c = naive_run(t, i) + 1; c-- > 0;)
        for (size_t len = 1; i + c + len <= t->n && !naive_eol(t->cp[i + c + len - 1]); len++) {
            size_t q = i + c + len;
            for (size_t d = naive_run(t, q) + 1; d-- > 0;)
                if (naive_line_end(t, q + d)) {
                    m->value = i + c;
                    m->value_end = q;
                    m->end = q + d;
                    return true;
                }
        }
    return false;
}

/* #\s*KEY\s*: at i; the index behind the colon, or 0. */
static inline size_t naive_key(const struct naive_text *t, size_t i, const char *key)
{
    if (i >= t->n || t->cp[i] != '#')
        return 0;
    for (size_t a = naive_run(t, i + 1) + 1; a-- > 0;) {
        size_t k = i + 1 + a;
        if (!naive_word(t, k, key))
            continue;
        k += strlen(key);
        for (size_t b = naive_run(t, k) + 1; b-- > 0;)
            if (k + b < t->n && t->cp[k + b] == ':')
                return k + b + 1;
    }
    return 0;
}

/* /^#\s*KEY\s*:\s*(.+?)\s*$/m, or with ^\s* in front. */
static inline bool naive_find(const struct naive_text *t, const char *key, bool indented,
                              struct naive_match *m)
{
    for (size_t i = 0; i < t->n; i++) {
        if (!naive_line_start(t, i))
            continue;
        for (size_t lead = (indented ? naive_run(t, i) : 0) + 1; lead-- > 0;) {
            size_t colon = naive_key(t, i + lead, key);
            m->start = i + lead;
            if (colon > 0 && naive_tail(t, colon, m))
                return true;
        }
    }
    return false;
}

static inline struct str naive_part(const struct naive_text *t, size_t from, size_t to)
{
    return str_make(t->bytes.p + t->at[from], t->at[to] - t->at[from]);
}

static inline const char *naive_name(enum skill_status s)
{
    return s == SKILL_DRAFT ? "Draft" : s == SKILL_APPROVED ? "Approved" : "Disabled";
}

static inline bool naive_status(struct str body, enum skill_status *ret)
{
    struct naive_text t;
    struct naive_match m;
    bool found = false;

    naive_decode(body, &t);
    if (naive_find(&t, "Status", true, &m)) {
        size_t from = m.value, to;
        while (from < m.value_end && naive_space(t.cp[from]))
            from++;
        for (to = from; to < m.value_end && !naive_space(t.cp[to]); to++)
            ;
        struct str word = naive_part(&t, from, to);
        for (int s = 0; s < N_SKILL_STATUSES && !found; s++)
            if (str_eq_ci(word, str_of(naive_name((enum skill_status)s)))) {
                *ret = (enum skill_status)s;
                found = true;
            }
    }
    naive_free(&t);
    return found;
}

static inline enum skill_status naive_status_of(struct str body)
{
    enum skill_status s = SKILL_DRAFT;
    naive_status(body, &s);
    return s;
}

static inline void naive_prepend(struct str body, enum skill_status s, struct buf *out)
{
    buf_printf(out, "# Status: %s\n", naive_name(s));
    buf_add_str(out, body);
}

/* What somebody's indented status line would undo is put on top. */
static inline void naive_settle(struct buf *out, enum skill_status s)
{
    struct buf again = BUF_INIT;

    if (naive_status_of(buf_str(out)) == s)
        return;
    naive_prepend(buf_str(out), s, &again);
    buf_reset(out);
    buf_add_str(out, buf_str(&again));
    buf_done(&again);
}

static inline void naive_rewrite(struct str body, enum skill_status s, struct buf *out)
{
    struct naive_text t;
    struct naive_match m;

    naive_decode(body, &t);
    if (naive_find(&t, "Status", false, &m)) {
        buf_add_str(out, naive_part(&t, 0, m.start));
        buf_printf(out, "# Status: %s", naive_name(s));
        buf_add_str(out, naive_part(&t, m.end, t.n));
    } else if (naive_find(&t, "Skill", false, &m)) {
        buf_add_str(out, naive_part(&t, 0, m.value_end));
        buf_printf(out, "\n# Status: %s", naive_name(s));
        buf_add_str(out, naive_part(&t, m.end, t.n));
    } else {
        naive_prepend(body, s, out);
    }
    naive_free(&t);
    naive_settle(out, s);
}

/* /^#\s*KEY\s*:.*$/m */
static inline bool naive_line(const struct naive_text *t, const char *key, size_t *start,
                              size_t *end)
{
    for (size_t i = 0; i < t->n; i++) {
        size_t colon = naive_line_start(t, i) ? naive_key(t, i, key) : 0;
        if (colon == 0)
            continue;
        *start = i;
        for (*end = colon; !naive_line_end(t, *end);)
            ++*end;
        return true;
    }
    return false;
}

static inline void naive_force_draft(struct str body, struct buf *out)
{
    struct naive_text t;
    size_t start, end;

    naive_decode(body, &t);
    if (naive_line(&t, "Status", &start, &end)) {
        buf_add_str(out, naive_part(&t, 0, start));
        buf_add_z(out, "# Status: Draft");
        buf_add_str(out, naive_part(&t, end, t.n));
    } else if (naive_line(&t, "Skill", &start, &end)) {
        buf_add_str(out, naive_part(&t, 0, end));
        buf_add_z(out, "\n# Status: Draft");
        buf_add_str(out, naive_part(&t, end, t.n));
    } else {
        naive_prepend(body, SKILL_DRAFT, out);
    }
    naive_free(&t);
    naive_settle(out, SKILL_DRAFT);
}
