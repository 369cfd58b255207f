/* sanitize.c - design.  (sanitize.h has the contract.)
 *
 * Two passes: the first collects the values of credentials, the second writes everything else.  A
 * string that contains a credential is emptied as a whole: cutting out the value could join the
 * rest to another credential. */
#include "edge/sanitize.h"
#include "base/mem.h"

struct secrets {
    struct str of[SANITIZE_MAX_SECRETS];
    size_t n;
    bool too_many;
};

bool sanitize_names_credential(struct str key)
{
    static const struct str names[] = {STR("token"),         STR("secret"),
                                       STR("password"),      STR("authorization"),
                                       STR("refresh_token"), STR("credential"),
                                       STR("credentials"),   STR("response_url")};
    static const struct str ends[] = {STR("_token"), STR("_secret"), STR("-token"), STR("-secret")};

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq_ci(key, names[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (key.n > ends[i].n && str_eq_ci(str_skip(key, key.n - ends[i].n), ends[i]))
            return true;
    return str_eq(key, STR("accessToken")) || str_eq(key, STR("refreshToken"));
}

static void add_secret(struct secrets *s, struct str value)
{
    if (value.n < SANITIZE_MIN_SECRET)
        return;
    for (size_t i = 0; i < s->n; i++)
        if (str_eq(s->of[i], value))
            return;
    if (s->n == SANITIZE_MAX_SECRETS)
        s->too_many = true;
    else
        s->of[s->n++] = value;
}

/* @under: @v is inside a field named like a credential. */
static void collect(struct json v, bool under, struct secrets *s)
{
    if (json_type(v) == JSON_STRING && under)
        add_secret(s, json_as_str(v));
    if (json_type(v) != JSON_OBJECT && json_type(v) != JSON_ARRAY)
        return;
    bool object = json_is_object(v);
    for (struct json_iter it = {0}; json_next(v, &it);)
        collect(it.value, under || (object && sanitize_names_credential(it.key)), s);
}

static bool holds_secret(const struct secrets *s, struct str text)
{
    for (size_t i = 0; i < s->n; i++)
        if (str_contains(text, s->of[i]))
            return true;
    return false;
}

static void write_value(struct jw *w, struct json v, const struct secrets *s)
{
    struct json_iter it = {0};

    switch (json_type(v)) {
    case JSON_OBJECT:
        jw_obj(w);
        while (json_next(v, &it)) {
            if (sanitize_names_credential(it.key) || holds_secret(s, it.key))
                continue;
            jw_key_str(w, it.key);
            write_value(w, it.value, s);
        }
        jw_end_obj(w);
        break;
    case JSON_ARRAY:
        jw_arr(w);
        while (json_next(v, &it))
            write_value(w, it.value, s);
        jw_end_arr(w);
        break;
    case JSON_STRING:
        jw_str(w, holds_secret(s, json_as_str(v)) ? STR("") : json_as_str(v));
        break;
    default:
        jw_value(w, v);
        break;
    }
}

bool sanitize_json(struct jw *w, struct json v)
{
    struct secrets s = {0};

    collect(v, false, &s);
    if (s.too_many)
        return false;
    write_value(w, v, &s);
    return true;
}
