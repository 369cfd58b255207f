/* auth.c - see auth.h.
 *
 * The reader follows the grammar of RFC 8601: comments nest, values may be quoted, and folded lines
 * are white space.  A header that ends inside a comment or a quoted string proves nothing. */
#include "platform/email/auth.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"
#include "platform/email/mail_late.h"

enum { MAX_DOMAIN = 253, MAX_COMMENTS = 64 };

const char auth_missing[] =
    "it has no Authentication-Results header of authserv_id, so nothing proves who wrote it: the "
    "mail server that receives it must add one";
static const char unreadable[] = "its Authentication-Results header cannot be read";
static const char failed[] = "dmarc=fail: the domain in From did not send it";
static const char unproven[] =
    "its Authentication-Results prove no sender: neither dmarc=pass, nor dkim=pass or spf=pass for "
    "the domain in From";

/* ---- the public suffix list ---- */

struct auth_list {
    psl_ctx_t *psl; /* owned */
};

struct auth_list *auth_list_load(void)
{
    char why[256];
    psl_ctx_t *psl = mail_late_load(why) ? psl_latest(NULL) : NULL;

    if (psl == NULL)
        return NULL;
    struct auth_list *l = xcalloc(1, sizeof *l);
    l->psl = psl;
    return l;
}

void auth_list_free(struct auth_list *l)
{
    if (l != NULL)
        psl_free(l->psl);
    free(l);
}

/* Copies @s in lower case, without a dot at its end.  False: it is no domain. */
static bool lower(struct str s, char ret[MAX_DOMAIN + 1])
{
    if (s.n > 0 && s.p[s.n - 1] == '.')
        s.n--;
    if (s.n == 0 || s.n > MAX_DOMAIN || !str_has_only(s, ".-_"))
        return false;
    for (size_t i = 0; i < s.n; i++)
        ret[i] = (char)(s.p[i] >= 'A' && s.p[i] <= 'Z' ? s.p[i] + 32 : s.p[i]);
    ret[s.n] = '\0';
    return true;
}

bool auth_aligned(const struct auth_list *l, struct str domain, struct str from)
{
    char a[MAX_DOMAIN + 1], b[MAX_DOMAIN + 1];

    if (!lower(domain, a) || !lower(from, b))
        return false;
    if (strcmp(a, b) == 0)
        return true;
    const char *org_a = l != NULL ? psl_registrable_domain(l->psl, a) : NULL;
    const char *org_b = l != NULL ? psl_registrable_domain(l->psl, b) : NULL;
    return org_a != NULL && org_b != NULL && strcmp(org_a, org_b) == 0;
}

/* ---- reading a header ---- */

struct auth_reader {
    struct str rest;
    bool broken;
};

static bool is_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Skips white space and comments. */
static void skip(struct auth_reader *r)
{
    unsigned depth = 0;

    while (r->rest.n > 0) {
        char c = r->rest.p[0];
        if (c == '\\' && depth > 0 && r->rest.n > 1)
            r->rest = str_skip(r->rest, 1);
        else if (c == '(' && ++depth > MAX_COMMENTS)
            break;
        else if (c == ')' && depth > 0)
            depth--;
        else if (depth == 0 && c != '(' && !is_white(c))
            break;
        r->rest = str_skip(r->rest, 1);
    }
    r->broken |= depth > 0;
}

static bool next_is(struct auth_reader *r, char c)
{
    skip(r);
    if (r->rest.n == 0 || r->rest.p[0] != c)
        return false;
    r->rest = str_skip(r->rest, 1);
    return true;
}

/* Reads a quoted string without its quotes. */
static void read_quoted(struct auth_reader *r, struct buf *out)
{
    size_t i = 1;

    for (; i < r->rest.n && r->rest.p[i] != '"'; i++) {
        if (r->rest.p[i] == '\\' && i + 1 < r->rest.n)
            i++;
        buf_add_c(out, r->rest.p[i]);
    }
    r->broken |= i >= r->rest.n;
    r->rest = str_skip(r->rest, i < r->rest.n ? i + 1 : r->rest.n);
}

/* Reads a word: until white space, a comment, or one of @ends. */
static void read_word(struct auth_reader *r, const char *ends, struct buf *out)
{
    skip(r);
    buf_reset(out);
    while (r->rest.n > 0 && !r->broken) {
        char c = r->rest.p[0];
        if (is_white(c) || c == '(' || c == ';' || c == '\0' || strchr(ends, c) != NULL)
            break;
        if (c == '"') {
            read_quoted(r, out);
        } else {
            buf_add_c(out, c);
            r->rest = str_skip(r->rest, 1);
        }
    }
    skip(r);
}

/* Reads the authserv-id and its version.  False: the header begins with a result. */
static bool read_id(struct auth_reader *r, struct buf *out)
{
    struct auth_reader start = *r;
    BUF_LOCAL version = BUF_INIT;

    read_word(r, "=", out);
    if (r->rest.n > 0 && r->rest.p[0] == '=') {
        *r = start;
        return false;
    }
    read_word(r, "=", &version);
    return true;
}

bool auth_is_of(struct str value, struct str authserv_id)
{
    struct auth_reader r = {value, false};
    BUF_LOCAL id = BUF_INIT;

    r.rest.n = value.n < AUTH_MAX_HEADER ? value.n : AUTH_MAX_HEADER;
    if (!read_id(&r, &id))
        return str_eq(authserv_id, AUTH_NO_ID);
    return id.n > 0 && str_eq_ci(buf_str(&id), authserv_id);
}

/* ---- results ---- */

struct auth_result { /* one resinfo */
    struct buf method, value;
    struct buf domain;      /* that the method vouches for; empty: none is told */
    struct buf header_from; /* of dmarc */
};

static void take_property(struct auth_result *x, struct str name, struct str value)
{
    struct str method = buf_str(&x->method);
    bool dkim = str_eq_ci(method, STR("dkim"));
    bool from_i = dkim && str_eq_ci(name, STR("header.i"));
    struct buf *to = NULL;

    if ((dkim && str_eq_ci(name, STR("header.d"))) || (from_i && x->domain.n == 0) ||
        (str_eq_ci(method, STR("spf")) && str_eq_ci(name, STR("smtp.mailfrom"))))
        to = &x->domain;
    else if (str_eq_ci(method, STR("dmarc")) && str_eq_ci(name, STR("header.from")))
        to = &x->header_from;
    if (to == NULL)
        return;
    for (size_t i = value.n; i > 0; i--)
        if (value.p[i - 1] == '@') {
            value = str_skip(value, i);
            break;
        }
    buf_reset(to);
    buf_add_str(to, value);
}

/* Reads one resinfo after its semicolon. */
static void read_result(struct auth_reader *r, struct auth_result *x)
{
    BUF_LOCAL name = BUF_INIT, value = BUF_INIT;

    buf_reset(&x->domain);
    buf_reset(&x->header_from);
    buf_reset(&x->value);
    read_word(r, "=/", &x->method);
    if (next_is(r, '/'))
        read_word(r, "=", &name); /* the method's version */
    if (next_is(r, '='))
        read_word(r, "", &x->value);
    while (!r->broken && r->rest.n > 0 && r->rest.p[0] != ';') {
        struct auth_reader before = *r;
        read_word(r, "=", &name);
        if (next_is(r, '=')) {
            read_word(r, "", &value);
            take_property(x, buf_str(&name), buf_str(&value));
        }
        if (r->rest.n == before.rest.n) { /* a NUL byte */
            r->broken = true;
            return;
        }
    }
}

static bool passes(const struct auth_result *x, const char *method)
{
    return str_eq_ci(buf_str(&x->method), str_of(method)) &&
           str_eq_ci(buf_str(&x->value), STR("pass"));
}

const char *auth_judge(struct str value, struct str from_domain, const struct auth_list *l)
{
    struct auth_reader r = {value, false};
    struct auth_result x = {0};
    BUF_LOCAL id = BUF_INIT;

    if (value.n > AUTH_MAX_HEADER)
        return unreadable;
    bool proven = false, denied = false, first = !read_id(&r, &id);
    while (!r.broken && r.rest.n > 0) {
        if (!first && !next_is(&r, ';')) {
            r.broken = true;
            break;
        }
        first = false;
        read_result(&r, &x);
        struct str header_from = buf_str(&x.header_from);
        bool same = header_from.n == 0 || str_eq_ci(header_from, from_domain);
        if (str_eq_ci(buf_str(&x.method), STR("dmarc"))) {
            proven |= same && passes(&x, "dmarc");
            denied |= !same || str_eq_ci(buf_str(&x.value), STR("fail"));
        } else if (passes(&x, "dkim") || passes(&x, "spf")) {
            proven |= auth_aligned(l, buf_str(&x.domain), from_domain);
        }
    }
    buf_done(&x.method);
    buf_done(&x.value);
    buf_done(&x.domain);
    buf_done(&x.header_from);
    if (r.broken)
        return unreadable;
    return denied ? failed : proven ? NULL : unproven;
}
