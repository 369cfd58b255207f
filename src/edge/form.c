/* form.c - parses and writes forms.  (form.h has the contract.) */
#include "edge/form.h"
#include <stdlib.h>
#include "base/percent.h"

/* Decoding never makes text longer, so form_parse() reserves enough space once and pointers into
 * @out stay valid. */
static bool decode(struct buf *out, struct str s, struct str *ret)
{
    size_t from = out->n;

    if (!percent_decode_form(out, s))
        return false;
    *ret = str_make(out->p + from, out->n - from);
    return utf8_valid(*ret) && str_find(*ret, '\0') < 0;
}

bool form_parse(struct form *f, struct str text)
{
    struct str part;

    f->n = 0;
    buf_reset(&f->bytes);
    if (text.n == 0)
        return true;
    if (buf_room(&f->bytes, text.n + 1) == NULL)
        return false;
    while (str_split(&text, '&', &part)) {
        struct form_pair *p = &f->pairs[f->n];
        ptrdiff_t eq = str_find(part, '=');
        size_t name_n = eq < 0 ? part.n : (size_t)eq;
        if (part.n == 0)
            continue;
        if (f->n == FORM_MAX || !decode(&f->bytes, str_make(part.p, name_n), &p->name) ||
            !decode(&f->bytes, eq < 0 ? STR("") : str_skip(part, name_n + 1), &p->value))
            return false;
        f->n++;
    }
    return true;
}

void form_done(struct form *f)
{
    buf_done(&f->bytes);
    f->n = 0;
}

struct str form_get(const struct form *f, const char *name)
{
    struct str want = str_of(name);

    for (size_t i = 0; i < f->n; i++)
        if (str_eq(f->pairs[i].name, want))
            return f->pairs[i].value;
    return STR_NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct form_pair *x = a, *y = b;
    int c = str_cmp(x->name, y->name);

    return c != 0 ? c : str_cmp(x->value, y->value);
}

void form_sort(struct form *f)
{
    if (f->n > 1)
        qsort(f->pairs, f->n, sizeof f->pairs[0], by_name);
}

bool form_has_twins(const struct form *f)
{
    for (size_t i = 1; i < f->n; i++)
        if (by_name(&f->pairs[i - 1], &f->pairs[i]) == 0)
            return true;
    return false;
}

void form_add_str(struct buf *out, struct str name, struct str value)
{
    if (out->n > 0)
        buf_add_c(out, '&');
    percent_encode(out, name);
    buf_add_c(out, '=');
    percent_encode(out, value);
}

void form_add(struct buf *out, const char *name, struct str value)
{
    form_add_str(out, str_of(name), value);
}
