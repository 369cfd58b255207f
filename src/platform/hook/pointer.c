/* pointer.c - JSON pointers.  (pointer.h has the contract.)
 *
 * A pointer is walked each time; it is short, and a webhook needs about ten of them. */
#include "platform/hook/pointer.h"

const char *pointer_wrong(struct str pointer)
{
    size_t steps = 0;

    if (pointer.n == 0 || pointer.p[0] != '/')
        return "a JSON pointer begins with a slash, such as /message/text";
    if (pointer.n > POINTER_MAX_BYTES || str_until_control(pointer) < pointer.n)
        return "a JSON pointer is short, and has no control characters";
    for (size_t i = 0; i < pointer.n; i++) {
        steps += pointer.p[i] == '/';
        if (pointer.p[i] == '~' &&
            (i + 1 == pointer.n || (pointer.p[i + 1] != '0' && pointer.p[i + 1] != '1')))
            return "in a JSON pointer a ~ is written ~0, and a slash in a name ~1";
    }
    return steps <= POINTER_MAX_STEPS ? NULL : "the JSON pointer has too many steps";
}

/* Appends a step with its escapes resolved. */
static void add_step(struct buf *out, struct str step)
{
    for (size_t i = 0; i < step.n; i++) {
        bool escape = step.p[i] == '~' && i + 1 < step.n;
        buf_add_c(out, !escape ? step.p[i] : step.p[i + 1] == '1' ? '/' : '~');
        i += escape;
    }
}

static struct json member(struct json object, struct str name)
{
    for (struct json_iter it = {0}; json_next(object, &it);)
        if (str_eq(it.key, name))
            return it.value;
    return (struct json){0};
}

static struct json item(struct json array, struct str step)
{
    uint64_t at;
    bool number = str_to_u64(step, &at) && (step.n == 1 || step.p[0] != '0');

    for (struct json_iter it = {0}; number && json_next(array, &it); at--)
        if (at == 0)
            return it.value;
    return (struct json){0};
}

struct json pointer_get(const struct pointer_in *in, struct str pointer)
{
    BUF_LOCAL name = BUF_INIT;
    struct json v = in->doc, inside;
    struct str rest = str_skip(pointer, 1), step;
    bool went_in = false;

    while (str_split(&rest, '/', &step)) {
        if (json_type(v) == JSON_STRING) {
            if (went_in || !json_parse(in->inner, json_as_str(v), &inside))
                return (struct json){0};
            went_in = true;
            v = inside;
        }
        buf_reset(&name);
        add_step(&name, step);
        v = json_type(v) == JSON_ARRAY ? item(v, buf_str(&name)) : member(v, buf_str(&name));
        if (json_type(v) == JSON_ABSENT)
            break;
    }
    return v;
}

static bool add_scalar(struct json v, struct buf *out)
{
    int64_t i;
    uint64_t u;

    if (json_type(v) == JSON_STRING)
        buf_add_str(out, json_as_str(v));
    else if (json_as_i64(v, &i))
        buf_add_i64(out, i);
    else if (json_as_u64(v, &u))
        buf_add_u64(out, u);
    else
        return false;
    return true;
}

bool pointer_text(const struct pointer_in *in, struct str pointer, struct buf *out)
{
    return add_scalar(pointer_get(in, pointer), out);
}

/* ---- conditions ---- */

struct condition {
    struct str pointer, value;
    bool compares, negated;
};

static struct condition condition_of(struct str text)
{
    ptrdiff_t at = str_find(text, '=');
    struct condition c = {.pointer = text, .compares = at >= 0};

    if (at < 0)
        return c;
    c.negated = at > 0 && text.p[at - 1] == '!';
    c.pointer = str_make(text.p, (size_t)at - c.negated);
    c.value = str_skip(text, (size_t)at + 1);
    return c;
}

const char *condition_wrong(struct str condition)
{
    return pointer_wrong(condition_of(condition).pointer);
}

static bool is_true(struct json v)
{
    double f;

    switch (json_type(v)) {
    case JSON_ABSENT:
    case JSON_NULL:
        return false;
    case JSON_BOOL:
        return json_as_bool(v, false);
    case JSON_STRING:
        return json_as_str(v).n > 0;
    case JSON_NUMBER:
        return !json_as_f64(v, &f) || f != 0;
    default:
        return true;
    }
}

bool condition_holds(const struct pointer_in *in, struct str condition)
{
    struct condition c = condition_of(condition);
    struct json v = pointer_get(in, c.pointer);
    BUF_LOCAL text = BUF_INIT;

    if (!c.compares)
        return is_true(v);
    if (json_type(v) == JSON_BOOL)
        buf_add_z(&text, json_as_bool(v, false) ? "true" : "false");
    else if (json_type(v) == JSON_NULL)
        buf_add_z(&text, "null");
    else if (!add_scalar(v, &text))
        return c.negated;
    return str_eq(buf_str(&text), c.value) != c.negated;
}
