/* template.c - texts with placeholders.  (template.h has the contract.)
 *
 * One walk, next_piece(), serves checking and writing.  A piece is a run of literal bytes or one
 * placeholder. */
#include "platform/hook/template.h"
#include <stdio.h>
#include <string.h>
#include "base/jw.h"
#include "base/percent.h"

#define HEADER_BYTES 128 /* the longest name of a header */

static const char *const names[TEMPLATE_NAMES] = {
    [TEMPLATE_TEXT] = "text",
    [TEMPLATE_CHAT_ID] = "chat_id",
    [TEMPLATE_THREAD_ID] = "thread_id",
    [TEMPLATE_REPLY_TO] = "reply_to",
    [TEMPLATE_KEY] = "key",
    [TEMPLATE_RANDOM] = "random",
    [TEMPLATE_TIMESTAMP] = "timestamp",
    [TEMPLATE_SECRET] = "secret",
    [TEMPLATE_BODY] = "body",
};

struct template_piece {
    struct str literal;                   /* absent: a placeholder */
    enum template_name name;              /* TEMPLATE_HEADER: @header */
    char header[HEADER_BYTES + 1];        /* the name of a header */
    bool as_number, optional, wrong, all; /* @all: there is nothing else in the template */
};

static bool read_name(struct str inside, struct template_piece *ret)
{
    if (str_starts(inside, STR("header:"))) {
        struct str name = str_skip(inside, 7);
        ret->name = TEMPLATE_HEADER;
        snprintf(ret->header, sizeof ret->header, "%.*s", STR_FMT(name));
        return name.n > 0 && name.n <= HEADER_BYTES && str_has_only(name, "-_");
    }
    ret->as_number = str_starts(inside, STR("number:"));
    if (ret->as_number)
        inside = str_skip(inside, 7);
    ret->optional = str_ends(inside, STR("?"));
    if (ret->optional)
        inside.n--;
    for (unsigned i = 0; i < TEMPLATE_NAMES; i++)
        if (str_eq(inside, str_of(names[i]))) {
            ret->name = (enum template_name)i;
            return true;
        }
    return false;
}

/* False: there are no more. */
static bool next_piece(struct str whole, struct str *rest, struct template_piece *ret)
{
    *ret = (struct template_piece){0};
    if (rest->n == 0)
        return false;
    if (rest->p[0] != '{') {
        ptrdiff_t brace = str_find(*rest, '{');
        ret->literal = str_make(rest->p, brace < 0 ? rest->n : (size_t)brace);
        *rest = str_skip(*rest, ret->literal.n);
        return true;
    }
    if (str_starts(*rest, STR("{{"))) {
        ret->literal = str_make(rest->p, 1);
        *rest = str_skip(*rest, 2);
        return true;
    }
    ptrdiff_t end = str_find(*rest, '}');
    ret->wrong = end < 0 || !read_name(str_make(rest->p + 1, (size_t)end - 1), ret);
    ret->all = end >= 0 && (size_t)end + 1 == whole.n;
    *rest = str_skip(*rest, end < 0 ? rest->n : (size_t)end + 1);
    return true;
}

static bool check(struct str text, bool json, unsigned allowed, unsigned *used, char *ret_why)
{
    struct str rest = text;
    struct template_piece x;

    while (next_piece(text, &rest, &x)) {
        if (x.literal.p != NULL)
            continue;
        if (x.wrong || !(allowed & TEMPLATE_BIT(x.name)))
            return bh_why(ret_why,
                          "\"%.*s\" has a placeholder that is not known there; a brace is written "
                          "{{",
                          text.n < 80 ? (int)text.n : 80, text.p);
        if ((x.as_number || x.optional) && (!json || !x.all))
            return bh_why(ret_why,
                          "\"%.*s\": {number:...} and {...?} stand alone in a text of the body",
                          text.n < 80 ? (int)text.n : 80, text.p);
        *used |= TEMPLATE_BIT(x.name);
    }
    return true;
}

bool template_check(struct str text, unsigned allowed, unsigned *ret_used, char *ret_why)
{
    return check(text, false, allowed, ret_used, ret_why);
}

bool template_check_json(struct json v, unsigned allowed, unsigned *ret_used, char *ret_why)
{
    if (json_type(v) == JSON_STRING)
        return check(json_as_str(v), true, allowed, ret_used, ret_why);
    for (struct json_iter it = {0}; json_next(v, &it);)
        if (!template_check_json(it.value, allowed, ret_used, ret_why))
            return false;
    return true;
}

bool template_names_header(struct str text, struct str name)
{
    struct str rest = text;
    struct template_piece x;

    while (next_piece(text, &rest, &x))
        if (x.literal.p == NULL && !x.wrong && x.name == TEMPLATE_HEADER &&
            str_eq_ci(str_of(x.header), name))
            return true;
    return false;
}

/* ---- writing ---- */

static struct str value_of(const struct template_piece *x, const struct template_values *v)
{
    if (x->literal.p != NULL)
        return x->literal;
    if (x->name == TEMPLATE_HEADER)
        return v->header != NULL ? v->header(v->ctx, x->header) : STR_NULL;
    return v->of[x->name].p != NULL ? v->of[x->name] : STR("");
}

bool template_plain(struct str text, const struct template_values *v, struct buf *out)
{
    struct str rest = text;
    struct template_piece x;

    while (next_piece(text, &rest, &x)) {
        struct str value = value_of(&x, v);
        if (value.p == NULL)
            return false;
        buf_add_str(out, value);
    }
    return true;
}

bool template_header(struct str text, const struct template_values *v, struct buf *out)
{
    size_t from = out->n;

    return template_plain(text, v, out) &&
           str_until_control(str_skip(buf_str(out), from)) == out->n - from;
}

/* Does the path of @url have a step that servers leave out, "." or ".."? */
static bool climbs(struct str url)
{
    struct str rest = url, path, step;

    str_split(&rest, '?', &path);
    while (str_split(&path, '/', &step))
        if (str_eq(step, STR(".")) || str_eq(step, STR("..")))
            return true;
    return false;
}

bool template_url(struct str text, const struct template_values *v, struct buf *out)
{
    size_t from = out->n;
    struct str rest = text;
    struct template_piece x;

    while (next_piece(text, &rest, &x)) {
        struct str value = value_of(&x, v);
        if (x.literal.p != NULL)
            buf_add_str(out, value);
        else if (value.n == 0 && x.name == TEMPLATE_CHAT_ID)
            return false;
        else
            percent_encode(out, value);
    }
    return !climbs(str_skip(buf_str(out), from));
}

/* Is @text one placeholder, marked as optional, without a value? */
static bool is_left_out(struct json text, const struct template_values *v)
{
    struct str whole = json_as_str(text), rest = whole;
    struct template_piece x;

    return next_piece(whole, &rest, &x) && x.literal.p == NULL && x.all && x.optional &&
           value_of(&x, v).n == 0;
}

static bool write_text(struct str text, const struct template_values *v, struct jw *w)
{
    BUF_LOCAL out = BUF_INIT;
    struct str rest = text;
    struct template_piece x;
    int64_t number;

    if (next_piece(text, &rest, &x) && x.literal.p == NULL && x.all && x.as_number) {
        if (!str_to_i64(value_of(&x, v), &number))
            return false;
        jw_i64(w, number);
        return true;
    }
    if (!template_plain(text, v, &out))
        return false;
    jw_str(w, buf_str(&out));
    return true;
}

/* The depth is that of the configuration, which the reader bounds. */
static bool write_json(struct json t, const struct template_values *v, struct jw *w)
{
    enum json_type type = json_type(t);

    if (type == JSON_STRING)
        return write_text(json_as_str(t), v, w);
    if (type != JSON_OBJECT && type != JSON_ARRAY) {
        jw_value(w, t);
        return true;
    }
    if (type == JSON_OBJECT)
        jw_obj(w);
    else
        jw_arr(w);
    for (struct json_iter it = {0}; json_next(t, &it);) {
        if (json_type(it.value) == JSON_STRING && is_left_out(it.value, v))
            continue;
        if (type == JSON_OBJECT)
            jw_key_str(w, it.key);
        if (!write_json(it.value, v, w))
            return false;
    }
    if (type == JSON_OBJECT)
        jw_end_obj(w);
    else
        jw_end_arr(w);
    return true;
}

bool template_json(struct json body, const struct template_values *v, struct buf *out)
{
    struct jw w = jw_begin(out);

    return write_json(body, v, &w);
}
