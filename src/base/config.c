/* config.c - design.  (config.h has the contract.)
 *
 * A configuration is one struct per section and one array per list, built from the tables.
 * config_yaml.c reads the file into them, then `BELLHOP_` variables override values, and the check
 * of each section runs last.
 *
 * ${NAME} and ${NAME:-otherwise} are expanded after YAML has parsed a scalar, so no value of the
 * environment can change the shape of the document. */
#include "base/config.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config_priv.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

/* ---- one value and its type ---- */

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
    return k->type == CFG_TEXT || k->type == CFG_SECRET || k->type == CFG_CHOICE ||
           k->type == CFG_JSON;
}

static void *at(const void *base, const struct config_key *k)
{
    return (char *)(uintptr_t)base + k->offset;
}

static const size_t widths[] = {
    [CFG_TEXT] = sizeof(char *),     [CFG_SECRET] = sizeof(char *),
    [CFG_CHOICE] = sizeof(char *),   [CFG_TEXTS] = sizeof(char **),
    [CFG_ENUM] = sizeof(int),        [CFG_BOOL] = sizeof(bool),
    [CFG_NUMBER] = sizeof(uint32_t), [CFG_DURATION] = sizeof(int64_t),
    [CFG_BYTES] = sizeof(uint64_t),  [CFG_COUNT] = sizeof(uint64_t),
    [CFG_JSON] = sizeof(char *),
};

/* ---- parsing ---- */

static bool set_number(void *ret, const struct config_key *k, struct str text, struct buf *expected)
{
    bool endless = k->type == CFG_COUNT && k->max == 0;
    uint64_t v;

    if (!str_to_u64(text, &v) || v < k->min || (!endless && v > k->max)) {
        if (endless)
            buf_printf(expected, "a whole number of at least %llu", (unsigned long long)k->min);
        else
            buf_printf(expected, "a whole number from %llu to %llu", (unsigned long long)k->min,
                       (unsigned long long)k->max);
        return false;
    }
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

static bool set_json(void *base, const struct config_key *k, struct str text, struct buf *expected)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    bool ok = json_parse(parser, text, &doc);

    if (ok)
        set_text(base, k, text);
    else
        buf_add_z(expected, "a section, or JSON");
    json_parser_free(parser);
    return ok;
}

bool config_set(void *base, const struct config_key *k, struct str text, struct buf *ret_expected)
{
    struct str one;
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
    case CFG_JSON:
        return set_json(base, k, text, ret_expected);
    case CFG_TEXTS:
        if (k->words)
            return set_words(base, k, text, ret_expected);
        config_clear(base, k);
        while (str_split(&text, ',', &one))
            if (!str_is_empty(str_trim(one)))
                config_add_text(base, k, str_trim(one));
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
    if (k->type == CFG_SECRET || k->type == CFG_JSON)
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

static bool same_value(const void *a, const void *b, const struct config_key *k)
{
    if (k->type == CFG_TEXTS)
        return same_texts(*(char ***)at(a, k), *(char ***)at(b, k));
    if (!is_text(k))
        return memcmp(at(a, k), at(b, k), widths[k->type]) == 0;
    const char *x = config_text(a, k), *y = config_text(b, k);
    return (x == NULL) == (y == NULL) && str_eq(str_of(x), str_of(y));
}

bool config_same(const void *a, const void *b, const struct config_key *keys)
{
    for (const struct config_key *k = keys; k->path != NULL; k++)
        if (!same_value(a, b, k))
            return false;
    return true;
}

void config_keep(void *to, const struct config_key *keys)
{
    for (const struct config_key *k = keys; k->path != NULL; k++) {
        char **text = at(to, k), ***texts = at(to, k);
        char *const *from = k->type == CFG_TEXTS ? *texts : NULL;
        if (is_text(k))
            *text = xstrdup(*text);
        if (k->type == CFG_TEXTS)
            *texts = from != NULL ? xcalloc(count_texts(from) + 1, sizeof *from) : NULL;
        for (size_t i = 0; from != NULL && from[i] != NULL; i++)
            (*texts)[i] = xstrdup(from[i]);
    }
}

void config_drop(void *base, const struct config_key *keys)
{
    for (const struct config_key *k = keys; k->path != NULL; k++)
        config_clear(base, k);
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

/* Where defaults are numbers in a struct, the keys are sizes and counts. */
static void show(const void *base, const struct config_key *k, struct buf *out)
{
    if (k->type == CFG_COUNT)
        buf_printf(out, "%llu", (unsigned long long)*(uint64_t *)at(base, k));
    else if (k->type == CFG_BYTES)
        show_bytes(*(uint64_t *)at(base, k), out);
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

/* ---- ${NAME} inside a value ---- */

static bool expand_one(struct str inside, struct buf *out, struct buf *ret_names, struct buf *why)
{
    ptrdiff_t colon = str_find(inside, ':');
    struct str name = colon >= 0 ? str_make(inside.p, (size_t)colon) : inside;
    struct str otherwise = colon >= 0 ? str_skip(inside, (size_t)colon + 1) : STR_NULL;

    if (name.n == 0 || !str_has_only(name, "_") || isdigit((unsigned char)name.p[0]) ||
        (colon >= 0 && !str_starts(otherwise, STR("-")))) {
        buf_printf(why, "\"${%.*s}\": expected ${NAME} or ${NAME:-otherwise}", STR_FMT(inside));
        return false;
    }
    char *z = str_dup(name);
    const char *value = getenv(z);
    if (ret_names != NULL)
        buf_add(ret_names, z, name.n + 1);
    free(z);
    if (colon >= 0 && (value == NULL || *value == '\0')) {
        buf_add_str(out, str_skip(otherwise, 1));
        return true;
    }
    if (value == NULL) {
        buf_printf(why,
                   "the environment variable %.*s is not set (set it, or write ${%.*s:-} to go "
                   "without)",
                   STR_FMT(name), STR_FMT(name));
        return false;
    }
    buf_add_z(out, value);
    return true;
}

bool config_expand(struct str s, struct buf *out, struct buf *ret_names, struct buf *why)
{
    while (s.n > 0) {
        if (!str_starts(s, STR("${"))) {
            buf_add_c(out, *s.p);
            s = str_skip(s, 1);
            continue;
        }
        ptrdiff_t end = str_find(s, '}');
        if (end < 0) {
            buf_add_z(why, "\"${\" without its \"}\"");
            return false;
        }
        if (!expand_one(str_make(s.p + 2, (size_t)end - 2), out, ret_names, why))
            return false;
        s = str_skip(s, (size_t)end + 1);
    }
    return true;
}

/* ---- a configuration ---- */

#define DEFAULT_PATH "bellhop.yaml"

static size_t section_number(const struct config *c, const struct config_section *s)
{
    for (size_t i = 0; i < c->n_settings; i++)
        if (c->schema->sections[i] == s)
            return i;
    assert(!"a section that is not in the schema");
    abort();
}

void *config_settings(const struct config *c, size_t section)
{
    const struct config_section *s = c->schema->sections[section];

    return c->settings[s->into != NULL ? section_number(c, s->into) : section];
}

const void *config_get(const struct config *c, const struct config_section *s)
{
    return config_settings(c, section_number(c, s));
}

static const struct config_entries *entries_of(const struct config *c, const struct config_list *l)
{
    for (size_t i = 0; i < c->n_lists; i++)
        if (c->schema->lists[i] == l)
            return &c->lists[i];
    assert(!"a list that is not in the schema");
    abort();
}

size_t config_count(const struct config *c, const struct config_list *l)
{
    return entries_of(c, l)->n;
}

const void *config_entry(const struct config *c, const struct config_list *l, size_t i)
{
    const struct config_entries *e = entries_of(c, l);

    assert(i < e->n);
    return e->v[i];
}

int config_entry_line(const struct config *c, const struct config_list *l, size_t i)
{
    const struct config_entries *e = entries_of(c, l);

    assert(i < e->n);
    return e->lines[i];
}

const struct config_section *config_entry_kind(const struct config *c, const struct config_list *l,
                                               size_t i)
{
    const struct config_entries *e = entries_of(c, l);

    assert(i < e->n);
    return e->kinds[i];
}

const char *config_entry_file(const struct config *c, const struct config_list *l, size_t i)
{
    const struct config_entries *e = entries_of(c, l);

    assert(i < e->n);
    return e->files[i];
}

const char *config_path(const struct config *c)
{
    return c->path;
}

/* ---- the files ---- */

#define MAX_SECRET_BYTES 65536

const char *config_file(const struct config *c, size_t i)
{
    return i < c->n_files ? c->files[i] : NULL;
}

const char *config_add_file(struct config *c, const char *path)
{
    c->files = xrealloc(c->files, (c->n_files + 1) * sizeof *c->files);
    c->files[c->n_files] = xstrdup(path);
    return c->files[c->n_files++];
}

/* A pipe or a device would block the loop of a server that reads its configuration again. */
bool config_set_from_file(void *base, const struct config_key *k, const char *path, struct buf *why)
{
    BUF_SECRET text = BUF_INIT;
    struct stat st;

    if (stat(path, &st) != 0)
        buf_printf(why, "%.300s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        buf_printf(why, "%.300s is not a file", path);
    else if (!file_read(path, MAX_SECRET_BYTES, &text))
        buf_printf(why, "%.300s: %s", path,
                   errno == EFBIG ? "longer than 64 KiB, which is no secret" : strerror(errno));
    else if (str_is_empty(str_trim(buf_str(&text))))
        buf_printf(why, "%.300s is empty", path);
    else if (memchr(text.p, '\0', text.n) != NULL)
        buf_printf(why, "%.300s is not a text", path);
    else
        set_text(base, k, str_trim(buf_str(&text)));
    return why->n == 0;
}

/* ---- life ---- */

static struct config *config_new(const struct config_schema *schema)
{
    struct config *c = xcalloc(1, sizeof *c);

    c->schema = schema;
    while (schema->sections[c->n_settings] != NULL)
        c->n_settings++;
    while (schema->lists[c->n_lists] != NULL)
        c->n_lists++;
    c->settings = xcalloc(c->n_settings + 1, sizeof *c->settings);
    c->lists = xcalloc(c->n_lists + 1, sizeof *c->lists);
    for (size_t i = 0; i < c->n_settings; i++) {
        const struct config_section *s = schema->sections[i];
        for (const struct config_key *k = s->keys; k->path != NULL; k++)
            for (size_t before = 0; before < i; before++) /* no key is declared twice */
                assert(config_find(schema->sections[before]->keys, str_of(k->path)) == NULL);
        if (s->into == NULL)
            c->settings[i] = config_make(s);
    }
    for (size_t i = 0; i < c->n_settings; i++)
        if (schema->sections[i]->into != NULL)
            config_apply_defaults(config_settings(c, i), schema->sections[i]->keys);
    return c;
}

static void entries_done(struct config_entries *e, const struct config_list *l)
{
    for (size_t i = 0; i < e->n; i++) {
        config_drop(e->v[i], l->entry->keys);
        if (e->kinds[i] != NULL)
            config_drop(e->v[i], e->kinds[i]->keys);
        free(e->v[i]);
        free(e->files[i]);
    }
    map_done_all(&e->names);
    free(e->v);
    free(e->kinds);
    free(e->files);
    free(e->lines);
}

void config_free(struct config *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_lists; i++)
        entries_done(&c->lists[i], c->schema->lists[i]);
    for (size_t i = 0; i < c->n_settings; i++)
        config_drop(config_settings(c, i), c->schema->sections[i]->keys);
    for (size_t i = 0; i < c->n_settings; i++)
        free(c->settings[i]);
    free(c->settings);
    free(c->lists);
    map_done_all(&c->set);
    for (size_t i = 0; i < c->n_files; i++)
        free(c->files[i]);
    free(c->files);
    buf_done(&c->secret_variables);
    free(c->path);
    free(c);
}

struct str config_secret_variables(const struct config *c)
{
    return buf_str(&c->secret_variables);
}

/* ---- loading ---- */

/* BELLHOP_LISTEN, BELLHOP_LOG_LEVEL, ...: the path in capitals, dots as underscores.  A secret may
 * also stand in the file that BELLHOP_..._FILE names. */
static bool read_variable(struct config *c, void *base, const struct config_key *k, struct buf *why)
{
    struct buf name = BUF_INIT, expected = BUF_INIT;

    buf_add_z(&name, "BELLHOP_");
    for (const char *p = k->path; *p != '\0'; p++)
        buf_add_c(&name, *p == '.' ? '_' : (char)toupper((unsigned char)*p));
    const char *value = getenv(buf_z(&name));
    bool ok = value == NULL || *value == '\0' || config_set(base, k, str_of(value), &expected);
    if (!ok)
        buf_printf(why, "the environment variable %s: expected %s", buf_z(&name), buf_z(&expected));
    buf_add_z(&name, "_FILE");
    const char *file = ok && k->type == CFG_SECRET ? getenv(buf_z(&name)) : NULL;
    if (file != NULL && *file != '\0') {
        ok = config_set_from_file(base, k, config_add_file(c, file), &expected);
        if (!ok)
            buf_printf(why, "the environment variable %s: %s", buf_z(&name), buf_z(&expected));
    }
    buf_done(&name);
    buf_done(&expected);
    return ok;
}

static bool check_sections(struct config *c, struct buf *why)
{
    char said[256] = "";

    for (size_t i = 0; i < c->n_settings; i++) {
        const struct config_section *s = c->schema->sections[i];
        if (s->check == NULL || s->check(config_settings(c, i), said))
            continue;
        buf_printf(why, "%s: %s", c->path != NULL ? c->path : "the environment", said);
        return false;
    }
    return true;
}

enum bh_err config_load(const char *path, const struct config_schema *schema,
                        struct config **ret_cfg, struct buf *ret_why)
{
    struct config *c = config_new(schema);

    if (path == NULL && access(DEFAULT_PATH, F_OK) == 0)
        path = DEFAULT_PATH;
    c->path = xstrdup(path);
    bool ok = path == NULL || config_read_file(c, path, ret_why);
    for (size_t i = 0; ok && i < c->n_settings; i++)
        for (const struct config_key *k = schema->sections[i]->keys; ok && k->path != NULL; k++)
            ok = read_variable(c, config_settings(c, i), k, ret_why);
    if (!ok || !check_sections(c, ret_why)) {
        config_free(c);
        return BH_MALFORMED;
    }
    for (size_t i = 0; i < c->n_lists; i++)
        if (!c->lists[i].given)
            config_read_otherwise(c, i);
    *ret_cfg = c;
    return BH_OK;
}

enum bh_err config_parse(struct str text, const struct config_schema *schema,
                         struct config **ret_cfg, struct buf *ret_why)
{
    struct config *c = config_new(schema);

    assert(c->n_settings == 0);
    if (!config_read_text(c, text, ret_why)) {
        config_free(c);
        return BH_MALFORMED;
    }
    *ret_cfg = c;
    return BH_OK;
}

/* ---- reloading ---- */

static bool same_entries(const struct config_entries *a, const struct config_entries *b,
                         const struct config_list *l)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->kinds[i] != b->kinds[i] || !config_same(a->v[i], b->v[i], l->entry->keys) ||
            (a->kinds[i] != NULL && !config_same(a->v[i], b->v[i], a->kinds[i]->keys)))
            return false;
    return true;
}

void config_diff(const struct config *was, const struct config *now, struct buf *ret_reload,
                 struct buf *ret_restart)
{
    assert(was->schema == now->schema);
    for (size_t i = 0; i < was->n_settings; i++)
        for (const struct config_key *k = was->schema->sections[i]->keys; k->path != NULL; k++)
            if (!same_value(config_settings(was, i), config_settings(now, i), k))
                buf_printf(k->when == CFG_RELOAD ? ret_reload : ret_restart, "%s\n", k->path);
    for (size_t i = 0; i < was->n_lists; i++) {
        const struct config_list *l = was->schema->lists[i];
        if (!same_entries(&was->lists[i], &now->lists[i], l))
            buf_printf(l->when == CFG_RELOAD ? ret_reload : ret_restart, "%s\n", l->name);
    }
}

void config_take_reloadable(struct config *was, struct config *now)
{
    char tmp[sizeof(uint64_t)];

    assert(was->schema == now->schema);
    for (size_t i = 0; i < was->n_settings; i++)
        for (const struct config_key *k = was->schema->sections[i]->keys; k->path != NULL; k++) {
            void *a = at(config_settings(was, i), k), *b = at(config_settings(now, i), k);
            if (k->when != CFG_RELOAD)
                continue;
            memcpy(tmp, a, widths[k->type]);
            memcpy(a, b, widths[k->type]);
            memcpy(b, tmp, widths[k->type]);
        }
    for (size_t i = 0; i < was->n_lists; i++) {
        if (was->schema->lists[i]->when != CFG_RELOAD)
            continue;
        struct config_entries list = was->lists[i];
        was->lists[i] = now->lists[i];
        now->lists[i] = list;
    }
}

/* ---- showing ---- */

bool config_show(const void *base, const struct config_key *k, struct buf *out)
{
    struct str rest = str_of(k->choices), word;
    int64_t ms;

    switch (k->type) {
    case CFG_TEXT:
    case CFG_SECRET:
    case CFG_CHOICE:
    case CFG_JSON:
        buf_add_str(out, str_of(config_text(base, k)));
        break;
    case CFG_ENUM:
        for (int i = 0; str_split(&rest, '|', &word); i++)
            if (i == *(int *)at(base, k))
                buf_add_str(out, word);
        break;
    case CFG_BOOL:
        buf_add_z(out, *(bool *)at(base, k) ? "true" : "false");
        break;
    case CFG_NUMBER:
        buf_printf(out, "%u", *(uint32_t *)at(base, k));
        break;
    case CFG_COUNT:
    case CFG_BYTES:
        show(base, k, out);
        break;
    case CFG_DURATION:
        ms = *(int64_t *)at(base, k);
        buf_printf(out, "%lld%s", (long long)(ms % 1000 == 0 ? ms / 1000 : ms),
                   ms % 1000 == 0 ? "s" : "ms");
        if (str_to_duration_ms(str_of(k->value), &ms) && ms == *(int64_t *)at(base, k))
            return false;
        break;
    case CFG_TEXTS:
        for (char **text = *(char ***)at(base, k); text != NULL && *text != NULL; text++)
            buf_printf(out, "%s%s", out->n > 0 ? ", " : "", *text);
        break;
    }
    return out->n > 0 && !str_eq(buf_str(out), str_of(k->value));
}

/* ---- the reference ---- */

static void describe_key(struct buf *out, const struct config_key *k, const void *defaults)
{
    struct buf value = BUF_INIT;

    if (k->value != NULL)
        buf_add_z(&value, k->value);
    else if (defaults != NULL)
        show(defaults, k, &value);
    buf_printf(out, "| `%s` | ", k->path);
    if (value.n > 0)
        buf_printf(out, "`%s`", buf_z(&value));
    buf_done(&value);
    buf_printf(out, " | %s | %s |\n", k->when == CFG_RELOAD ? "reload" : "restart", k->what);
}

static void describe_entry_key(struct buf *out, const struct config_key *k, const char *kinds)
{
    buf_printf(out, "| `%s` | %s | ", k->path, k->value != NULL ? k->value : "");
    if (kinds != NULL)
        buf_printf(out, "%s | ", kinds);
    buf_printf(out, "%s |\n", k->what);
}

static void describe_kind_key(struct buf *out, const struct config_list *l, size_t kind,
                              const struct config_key *k)
{
    struct buf kinds = BUF_INIT;
    bool told = false;

    for (size_t i = 0; l->kind(i) != NULL; i++) {
        const struct config_key *o = config_find(l->kind(i)->keys, str_of(k->path));
        if (o == NULL || !str_eq(str_of(o->what), str_of(k->what)) ||
            !str_eq(str_of(o->value), str_of(k->value)))
            continue; /* not the same setting in the same words */
        told |= i < kind;
        buf_printf(&kinds, "%s%s", kinds.n > 0 ? " " : "", l->kind(i)->name);
    }
    if (!told)
        describe_entry_key(out, k, buf_z(&kinds));
    buf_done(&kinds);
}

static void describe_list(const struct config_list *l, struct buf *out)
{
    bool kinds = l->kind_key != NULL;

    buf_printf(out, "\nEach entry of `%s:` takes:\n\n", l->name);
    buf_add_z(out, kinds ? "| key | default | for | what it is |\n|---|---|---|---|\n"
                         : "| key | default | what it is |\n|---|---|---|\n");
    for (const struct config_key *k = l->entry->keys; k->path != NULL; k++)
        describe_entry_key(out, k, kinds ? "all" : NULL);
    for (size_t i = 0; kinds && l->kind(i) != NULL; i++)
        for (const struct config_key *k = l->kind(i)->keys; k->path != NULL; k++)
            describe_kind_key(out, l, i, k);
}

void config_describe(const struct config_schema *schema, struct buf *out)
{
    buf_add_z(out, "| key | default | a change needs | what it is |\n|---|---|---|---|\n");
    for (size_t i = 0; schema->sections[i] != NULL; i++) {
        const struct config_section *s = schema->sections[i];
        for (const struct config_key *k = s->keys; k->path != NULL; k++)
            describe_key(out, k, s->into != NULL ? s->into->defaults : s->defaults);
    }
    for (size_t i = 0; schema->lists[i] != NULL; i++)
        describe_list(schema->lists[i], out);
}
