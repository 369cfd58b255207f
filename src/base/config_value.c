/* config_value.c - one setting: what its type takes, how it is kept, compared and freed. */
#include "base/config_priv.h"
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"

bool config_word_in(struct str word, const char *words, char sep)
{
    struct str rest = str_of(words), one;

    while (str_split(&rest, sep, &one))
        if (str_eq(one, word))
            return true;
    return false;
}

const struct config_key *config_find(const struct config_key *keys, struct str path)
{
    for (; keys->path != NULL; keys++)
        if (str_eq(str_of(keys->path), path))
            return keys;
    return NULL;
}

static bool is_text(const struct config_key *k)
{
    return k->type == CFG_TEXT || k->type == CFG_SECRET || k->type == CFG_CHOICE;
}

static void *at(const void *base, const struct config_key *k)
{
    return (char *)(uintptr_t)base + k->offset;
}

static size_t width(const struct config_key *k)
{
    switch (k->type) {
    case CFG_TEXT:
    case CFG_SECRET:
    case CFG_CHOICE:
        return sizeof(char *);
    case CFG_TEXTS:
        return sizeof(char **);
    case CFG_ENUM:
        return sizeof(int);
    case CFG_BOOL:
        return sizeof(bool);
    case CFG_NUMBER:
        return sizeof(uint32_t);
    case CFG_DURATION:
        return sizeof(int64_t);
    case CFG_BYTES:
    case CFG_COUNT:
        return sizeof(uint64_t);
    }
    abort();
}

/* ---- parsing ---- */

static bool read_number(const struct config_key *k, struct str text, uint64_t *ret,
                        struct buf *expected)
{
    bool endless = k->type == CFG_COUNT && k->max == 0;

    if (str_to_u64(text, ret) && *ret >= k->min && (endless || *ret <= k->max))
        return true;
    if (endless)
        buf_printf(expected, "a whole number of at least %llu", (unsigned long long)k->min);
    else
        buf_printf(expected, "a whole number from %llu to %llu", (unsigned long long)k->min,
                   (unsigned long long)k->max);
    return false;
}

static bool set_number(void *ret, const struct config_key *k, struct str text, struct buf *expected)
{
    uint64_t v;

    if (!read_number(k, text, &v, expected))
        return false;
    if (k->type == CFG_COUNT)
        *(uint64_t *)ret = v;
    else
        *(uint32_t *)ret = (uint32_t)v;
    return true;
}

static bool set_duration(void *ret, const struct config_key *k, struct str text,
                         struct buf *expected)
{
    int64_t ms;

    if (!str_to_duration_ms(text, &ms) || ms < 0) {
        buf_add_z(expected, "a duration such as 30s, 5m or 250ms");
        return false;
    }
    if ((uint64_t)ms < k->min || (uint64_t)ms > k->max) {
        buf_printf(expected, "a duration of %s %llu ms",
                   (uint64_t)ms < k->min ? "at least" : "at most",
                   (unsigned long long)((uint64_t)ms < k->min ? k->min : k->max));
        return false;
    }
    *(int64_t *)ret = ms;
    return true;
}

static bool set_bytes(void *ret, const struct config_key *k, struct str text, struct buf *expected)
{
    uint64_t n;

    if (!str_to_bytes(text, &n) || n < k->min) {
        buf_printf(expected, "a size such as 1GiB or 64MiB, at least %llu bytes",
                   (unsigned long long)k->min);
        return false;
    }
    *(uint64_t *)ret = n;
    return true;
}

static bool set_bool(void *ret, struct str text, struct buf *expected)
{
    bool yes = config_word_in(text, "true|yes|on", '|');

    if (!yes && !config_word_in(text, "false|no|off", '|')) {
        buf_add_z(expected, "true or false");
        return false;
    }
    *(bool *)ret = yes;
    return true;
}

static bool find_word(const struct config_key *k, struct str text, int *ret_place,
                      struct buf *expected)
{
    struct str rest = str_of(k->choices), one;

    for (int i = 0; str_split(&rest, '|', &one); i++)
        if (str_eq(one, text)) {
            *ret_place = i;
            return true;
        }
    if (k->planned != NULL && config_word_in(text, k->planned, '|'))
        buf_printf(expected, "%s (this build of bellhop does not have \"%.*s\" yet)", k->choices,
                   STR_FMT(text));
    else
        buf_printf(expected, "one of %s", k->choices);
    return false;
}

static void set_text(void *base, const struct config_key *k, struct str text)
{
    config_clear(base, k);
    *(char **)at(base, k) = str_is_empty(text) ? NULL : str_dup(text);
}

/* The next word of a command: blanks end it, quotes and backslashes keep them.  False: no more, or
 * *@ret_open, a quote that does not end. */
static bool next_word(struct str *rest, struct buf *word, bool *ret_open)
{
    char quote = 0;

    *ret_open = false;
    buf_reset(word);
    *rest = str_trim(*rest);
    if (str_is_empty(*rest))
        return false;
    for (; rest->n > 0; *rest = str_skip(*rest, 1)) {
        char c = rest->p[0];
        if (quote == 0 && (c == ' ' || c == '\t' || c == '\n'))
            break;
        if (c == '\\' && quote != '\'' && rest->n > 1) {
            *rest = str_skip(*rest, 1);
            buf_add_c(word, rest->p[0]);
        } else if (c == quote) {
            quote = 0;
        } else if (quote == 0 && (c == '"' || c == '\'')) {
            quote = c;
        } else {
            buf_add_c(word, c);
        }
    }
    *ret_open = quote != 0;
    return quote == 0;
}

static bool set_words(void *base, const struct config_key *k, struct str text, struct buf *expected)
{
    struct buf word = BUF_INIT;
    bool open;

    config_clear(base, k);
    while (next_word(&text, &word, &open))
        config_add_text(base, k, buf_str(&word));
    buf_done(&word);
    if (open)
        buf_add_z(expected, "a command whose quotes end");
    return !open;
}

static void set_texts(void *base, const struct config_key *k, struct str text)
{
    struct str one;

    config_clear(base, k);
    while (str_split(&text, ',', &one))
        if (!str_is_empty(str_trim(one)))
            config_add_text(base, k, str_trim(one));
}

bool config_set(void *base, const struct config_key *k, struct str text, struct buf *ret_expected)
{
    int place;

    switch (k->type) {
    case CFG_NUMBER:
    case CFG_COUNT:
        return set_number(at(base, k), k, text, ret_expected);
    case CFG_DURATION:
        return set_duration(at(base, k), k, text, ret_expected);
    case CFG_BYTES:
        return set_bytes(at(base, k), k, text, ret_expected);
    case CFG_BOOL:
        return set_bool(at(base, k), text, ret_expected);
    case CFG_ENUM:
        return find_word(k, text, at(base, k), ret_expected);
    case CFG_CHOICE:
        if (!find_word(k, text, &place, ret_expected))
            return false;
        set_text(base, k, text);
        return true;
    case CFG_TEXT:
    case CFG_SECRET:
        set_text(base, k, text);
        return true;
    case CFG_TEXTS:
        if (k->words)
            return set_words(base, k, text, ret_expected);
        set_texts(base, k, text);
        return true;
    }
    abort();
}

static size_t count_texts(char *const *texts)
{
    size_t n = 0;

    while (texts != NULL && texts[n] != NULL)
        n++;
    return n;
}

void config_add_text(void *base, const struct config_key *k, struct str text)
{
    char ***texts = at(base, k);
    size_t n = count_texts(*texts);

    *texts = xrealloc(*texts, (n + 2) * sizeof **texts);
    (*texts)[n] = str_dup(text);
    (*texts)[n + 1] = NULL;
}

/* ---- keeping ---- */

void config_clear(void *base, const struct config_key *k)
{
    if (k->type == CFG_TEXTS) {
        char ***texts = at(base, k);
        for (size_t i = 0; i < count_texts(*texts); i++)
            free((*texts)[i]);
        free(*texts);
        *texts = NULL;
    }
    char **text = at(base, k);
    if (!is_text(k) || *text == NULL)
        return;
    if (k->type == CFG_SECRET)
        secret_wipe(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

char *config_text(const void *base, const struct config_key *k)
{
    return is_text(k) ? *(char **)at(base, k) : NULL;
}

bool config_is_given(const void *base, const struct config_key *k)
{
    if (k->type == CFG_TEXTS)
        return *(char ***)at(base, k) != NULL;
    return !is_text(k) || config_text(base, k) != NULL;
}

static bool same_texts(char *const *a, char *const *b)
{
    size_t n = count_texts(a);

    if (n != count_texts(b))
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(a[i], b[i]) != 0)
            return false;
    return true;
}

bool config_same(const void *a, const void *b, const struct config_key *k)
{
    if (k->type == CFG_TEXTS)
        return same_texts(*(char ***)at(a, k), *(char ***)at(b, k));
    if (!is_text(k))
        return memcmp(at(a, k), at(b, k), width(k)) == 0;
    const char *x = config_text(a, k), *y = config_text(b, k);
    return (x == NULL) == (y == NULL) && str_eq(str_of(x), str_of(y));
}

void config_exchange(void *a, void *b, const struct config_key *k)
{
    char tmp[sizeof(uint64_t)];
    size_t n = width(k);

    memcpy(tmp, at(a, k), n);
    memcpy(at(a, k), at(b, k), n);
    memcpy(at(b, k), tmp, n);
}

static void show_bytes(uint64_t n, struct buf *out)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    size_t u = 0;

    while (n > 0 && n % 1024 == 0 && u + 1 < ARRAY_LEN(units)) {
        n /= 1024;
        u++;
    }
    buf_printf(out, "%llu%s", (unsigned long long)n, units[u]);
}

static void show_duration(int64_t ms, struct buf *out)
{
    if (ms % 3600000 == 0 && ms > 0)
        buf_printf(out, "%lldh", (long long)(ms / 3600000));
    else if (ms % 1000 == 0)
        buf_printf(out, "%llds", (long long)(ms / 1000));
    else
        buf_printf(out, "%lldms", (long long)ms);
}

void config_show(const void *base, const struct config_key *k, struct buf *out)
{
    switch (k->type) {
    case CFG_NUMBER:
        buf_printf(out, "%u", *(uint32_t *)at(base, k));
        break;
    case CFG_COUNT:
        buf_printf(out, "%llu", (unsigned long long)*(uint64_t *)at(base, k));
        break;
    case CFG_BYTES:
        show_bytes(*(uint64_t *)at(base, k), out);
        break;
    case CFG_DURATION:
        show_duration(*(int64_t *)at(base, k), out);
        break;
    case CFG_BOOL:
        buf_add_z(out, *(bool *)at(base, k) ? "true" : "false");
        break;
    case CFG_ENUM:
    case CFG_TEXT:
    case CFG_SECRET:
    case CFG_CHOICE:
    case CFG_TEXTS:
        break; /* a default of these is written in the table */
    }
}

void config_apply_defaults(void *base, const struct config_key *keys)
{
    struct buf expected = BUF_INIT;

    for (const struct config_key *k = keys; k->path != NULL; k++)
        if (k->value != NULL && !config_set(base, k, str_of(k->value), &expected))
            abort(); /* a default of ours that its own rule refuses */
    buf_done(&expected);
}

void *config_make(const struct config_section *s)
{
    void *base = xcalloc(1, s->size);

    if (s->defaults != NULL)
        memcpy(base, s->defaults, s->size);
    config_apply_defaults(base, s->keys);
    return base;
}
