/* config.c - design.  (config.h has the contract, config_keys.c the settings.)
 *
 * libyaml gives the document as a tree whose nodes know their lines, and one walk over it against
 * the table yields every error with the place it was made.  `${NAME}` is replaced inside scalars,
 * after YAML is done with them, so no value of the environment can change the document's shape. */
#include "base/config.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <yaml.h>
#include "base/config_keys.h"
#include "base/mem.h"

#define DEFAULT_PATH "bellhop.yaml"
#define MAX_FILE_BYTES (4l << 20)

struct reading { /* one walk */
    yaml_document_t *doc;
    const char *path;   /* of the file, for errors */
    struct config *cfg; /* being filled */
    struct buf *why;    /* the first problem */
};

static bool fail_at(struct reading *r, const yaml_node_t *n, const char *fmt, ...) BH_PRINTF(3, 4);
static bool fail_at(struct reading *r, const yaml_node_t *n, const char *fmt, ...)
{
    va_list ap;
    char text[512];

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    buf_printf(r->why, "%s:%zu: %s", r->path, n->start_mark.line + 1, text);
    return false;
}

static struct str scalar(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE ? str_make(n->data.scalar.value, n->data.scalar.length)
                                       : STR_NULL;
}

static bool is_null(const yaml_node_t *n)
{
    return n->type == YAML_SCALAR_NODE && n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           config_word_in(scalar(n), "|~|null", '|');
}

/* ---- ${NAME} and ${NAME:-otherwise} ---- */

static bool env_name_ok(struct str name)
{
    for (size_t i = 0; i < name.n; i++)
        if (!isalnum((unsigned char)name.p[i]) && name.p[i] != '_')
            return false;
    return name.n > 0 && !isdigit((unsigned char)name.p[0]);
}

static bool expand_one(struct reading *r, const yaml_node_t *n, struct str inside, struct buf *out)
{
    ptrdiff_t colon = str_find(inside, ':');
    struct str name = colon >= 0 ? str_make(inside.p, (size_t)colon) : inside;
    struct str otherwise = colon >= 0 ? str_skip(inside, (size_t)colon + 1) : STR_NULL;

    if (!env_name_ok(name) || (colon >= 0 && !str_starts(otherwise, STR("-"))))
        return fail_at(r, n, "\"${%.*s}\": expected ${NAME} or ${NAME:-otherwise}",
                       STR_FMT(inside));
    char *z = str_dup(name);
    const char *value = getenv(z);
    free(z);
    if (colon >= 0 && (value == NULL || *value == '\0')) {
        buf_add_str(out, str_skip(otherwise, 1));
        return true;
    }
    if (value == NULL)
        return fail_at(r, n,
                       "the environment variable %.*s is not set (set it, or write ${%.*s:-} to "
                       "go without)",
                       STR_FMT(name), STR_FMT(name));
    buf_add_z(out, value);
    return true;
}

static bool expand(struct reading *r, const yaml_node_t *n, struct buf *out)
{
    struct str s = scalar(n);

    while (s.n > 0) {
        if (!str_starts(s, STR("${"))) {
            buf_add_c(out, *s.p);
            s = str_skip(s, 1);
            continue;
        }
        ptrdiff_t end = str_find(s, '}');
        if (end < 0)
            return fail_at(r, n, "\"${\" without its \"}\"");
        if (!expand_one(r, n, str_make(s.p + 2, (size_t)end - 2), out))
            return false;
        s = str_skip(s, (size_t)end + 1);
    }
    return true;
}

/* ---- the walk ---- */

static const struct config_key *find_key(const struct config_key *keys, struct str path)
{
    for (; keys->path != NULL; keys++)
        if (str_eq(str_of(keys->path), path))
            return keys;
    return NULL;
}

/* Whether some setting lies below "name.". */
static bool is_section(struct str name)
{
    for (const struct config_key *k = config_keys; k->path != NULL; k++)
        if (str_starts(str_of(k->path), name) && k->path[name.n] == '.')
            return true;
    return false;
}

static bool set_value(struct reading *r, void *base, const struct config_key *k,
                      const yaml_node_t *n)
{
    struct buf text = BUF_INIT, expected = BUF_INIT;
    bool ok = false;

    assert(k != NULL);
    if (n->type != YAML_SCALAR_NODE) {
        fail_at(r, n, "%s: expected a single value, found a %s", k->path,
                n->type == YAML_SEQUENCE_NODE ? "list" : "section");
        goto out;
    }
    if (is_null(n)) {
        ok = true; /* "key:" with nothing behind it: the default holds */
        goto out;
    }
    if (!expand(r, n, &text))
        goto out;
    ok = config_set(base, k, buf_str(&text), &expected);
    if (!ok && k->type == CFG_SECRET)
        fail_at(r, n, "%s: expected %s", k->path, buf_z(&expected));
    else if (!ok)
        fail_at(r, n, "%s: expected %s, found \"%.60s\"", k->path, buf_z(&expected), buf_z(&text));
out:
    buf_wipe(&text);
    buf_done(&expected);
    return ok;
}

static bool known_keys_hint(struct reading *r, const yaml_node_t *n, struct str path)
{
    struct buf hint = BUF_INIT;
    ptrdiff_t dot = str_find(path, '.');
    struct str section = dot >= 0 ? str_make(path.p, (size_t)dot + 1) : STR("");

    for (const struct config_key *k = config_keys; k->path != NULL; k++) {
        struct str p = str_of(k->path), tail = str_skip(p, section.n);
        ptrdiff_t end = str_find(tail, '.');
        struct str word = end >= 0 ? str_make(tail.p, (size_t)end) : tail;
        if (str_starts(p, section) && !config_word_in(word, buf_z(&hint), ' '))
            buf_printf(&hint, "%s%.*s", hint.n > 0 ? " " : "", STR_FMT(word));
    }
    if (dot < 0)
        buf_add_z(&hint, " platforms");
    fail_at(r, n, "unknown key \"%.*s\"; expected one of: %s", STR_FMT(path), buf_z(&hint));
    buf_done(&hint);
    return false;
}

static bool read_section(struct reading *r, struct str name, const yaml_node_t *n)
{
    if (is_null(n))
        return true;
    if (n->type != YAML_MAPPING_NODE)
        return fail_at(r, n, "%.*s: expected a section {key: value, ...}", STR_FMT(name));
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *kn = yaml_document_get_node(r->doc, p->key);
        struct buf path = BUF_INIT;
        buf_add_str(&path, name);
        buf_add_c(&path, '.');
        buf_add_str(&path, scalar(kn));
        const struct config_key *k = find_key(config_keys, buf_str(&path));
        bool ok = k != NULL ? set_value(r, r->cfg, k, yaml_document_get_node(r->doc, p->value))
                            : known_keys_hint(r, kn, buf_str(&path));
        buf_done(&path);
        if (!ok)
            return false;
    }
    return true;
}

static bool check_platform_key(struct reading *r, const struct config_platform *pl,
                               const struct config_key *k, struct str name, const yaml_node_t *n)
{
    if (k == NULL)
        return fail_at(r, n, "platforms: unknown key \"%.*s\"", STR_FMT(name));
    if (k->choices != NULL && !config_word_in(str_of(pl->platform), k->choices, ' '))
        return fail_at(r, n, "platforms: \"%s\" does not take \"%s\"", pl->platform, k->path);
    return true;
}

static bool read_platform_keys(struct reading *r, struct config_platform *pl, const yaml_node_t *n,
                               bool naming)
{
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *kn = yaml_document_get_node(r->doc, p->key);
        const struct config_key *k = find_key(config_platform_keys, scalar(kn));
        bool names_it = k != NULL && str_eq(str_of(k->path), STR("platform"));
        if (names_it != naming)
            continue;
        if (!check_platform_key(r, pl, k, scalar(kn), kn) ||
            !set_value(r, pl, k, yaml_document_get_node(r->doc, p->value)))
            return false;
    }
    return true;
}

static void platform_defaults(struct config_platform *pl)
{
    struct buf expected = BUF_INIT;

    for (const struct config_key *k = config_platform_keys; k->path != NULL; k++)
        if (k->value != NULL)
            config_set(pl, k, str_of(k->value), &expected);
    buf_done(&expected);
}

static struct config_platform *add_platform(struct config *c)
{
    c->platforms = xrealloc(c->platforms, (c->n_platforms + 1) * sizeof *c->platforms);
    struct config_platform *pl = &c->platforms[c->n_platforms++];
    *pl = (struct config_platform){0};
    platform_defaults(pl);
    return pl;
}

static bool is_twice(const struct config *c, const struct config_platform *pl)
{
    for (size_t i = 0; i < c->n_platforms; i++) {
        const struct config_platform *o = &c->platforms[i];
        if (o != pl && str_eq(str_of(o->platform), str_of(pl->platform)) &&
            str_eq(str_of(o->bot), str_of(pl->bot)))
            return true;
    }
    return false;
}

static bool read_platform(struct reading *r, const yaml_node_t *n)
{
    if (n->type != YAML_MAPPING_NODE)
        return fail_at(r, n, "platforms: expected {platform: ..., bot: ...}");
    struct config_platform *pl = add_platform(r->cfg);
    pl->line = (int)n->start_mark.line + 1;
    if (!read_platform_keys(r, pl, n, true))
        return false;
    if (pl->platform == NULL)
        return fail_at(r, n, "platforms: \"platform\" is missing; expected one of: %s",
                       config_platform_names);
    if (!config_word_in(str_of(pl->platform), config_platform_names, ' '))
        return fail_at(r, n, "platforms: unknown platform \"%s\"; expected one of: %s",
                       pl->platform, config_platform_names);
    if (!read_platform_keys(r, pl, n, false))
        return false;
    if (pl->bot == NULL)
        return fail_at(r, n, "platforms: %s: \"bot\" is missing", pl->platform);
    if (is_twice(r->cfg, pl))
        return fail_at(r, n, "platforms: %s bot \"%s\" is there twice", pl->platform, pl->bot);
    return true;
}

static bool read_platforms(struct reading *r, const yaml_node_t *n)
{
    if (n->type != YAML_SEQUENCE_NODE)
        return fail_at(r, n, "platforms: expected a list, \"- {platform: web, bot: lobby}\"");
    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
         i++)
        if (!read_platform(r, yaml_document_get_node(r->doc, *i)))
            return false;
    return true;
}

static bool read_top(struct reading *r, const yaml_node_t *key, const yaml_node_t *value)
{
    struct str name = scalar(key);
    const struct config_key *k = find_key(config_keys, name);

    if (str_eq(name, STR("platforms")))
        return read_platforms(r, value);
    if (k != NULL && str_find(name, '.') < 0)
        return set_value(r, r->cfg, k, value);
    if (is_section(name))
        return read_section(r, name, value);
    return known_keys_hint(r, key, name);
}

static bool read_document(struct reading *r, bool *ret_platforms)
{
    const yaml_node_t *root = yaml_document_get_root_node(r->doc);

    if (root == NULL || is_null(root))
        return true; /* an empty file: every default holds */
    if (root->type != YAML_MAPPING_NODE)
        return fail_at(r, root, "expected \"key: value\" lines");
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start;
         p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(r->doc, p->key);
        for (const yaml_node_pair_t *q = root->data.mapping.pairs.start; q < p; q++)
            if (str_eq(scalar(key), scalar(yaml_document_get_node(r->doc, q->key))))
                return fail_at(r, key, "\"%.*s\" is there twice", STR_FMT(scalar(key)));
        if (!read_top(r, key, yaml_document_get_node(r->doc, p->value)))
            return false;
        *ret_platforms |= str_eq(scalar(key), STR("platforms"));
    }
    return true;
}

/* ---- loading ---- */

static bool parse_yaml(const char *path, FILE *f, struct config *c, bool *ret_platforms,
                       struct buf *why)
{
    yaml_parser_t parser;
    yaml_document_t doc;
    bool ok = false;

    if (!yaml_parser_initialize(&parser))
        abort();
    yaml_parser_set_input_file(&parser, f);
    if (yaml_parser_load(&parser, &doc)) {
        struct reading r = {.doc = &doc, .path = path, .cfg = c, .why = why};
        ok = read_document(&r, ret_platforms);
        yaml_document_delete(&doc);
    } else {
        buf_printf(why, "%s:%zu: not YAML: %s", path, parser.problem_mark.line + 1,
                   parser.problem != NULL ? parser.problem : "cannot be read");
    }
    yaml_parser_delete(&parser);
    return ok;
}

static bool read_file(const char *path, struct config *c, bool *ret_platforms, struct buf *why)
{
    FILE *f = fopen(path, "re");
    bool ok = false;

    if (f == NULL) {
        buf_printf(why, "%s: cannot be read: %s", path, strerror(errno));
        return false;
    }
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) > MAX_FILE_BYTES)
        buf_printf(why, "%s: larger than 4 MiB, which is no configuration", path);
    else {
        rewind(f);
        ok = parse_yaml(path, f, c, ret_platforms, why);
    }
    fclose(f);
    return ok;
}

/* BELLHOP_LISTEN, BELLHOP_LOG_LEVEL, ...: the path in capitals, dots as underscores. */
static bool read_environment(struct config *c, struct buf *why)
{
    for (const struct config_key *k = config_keys; k->path != NULL; k++) {
        char name[64] = "BELLHOP_";
        size_t n = strlen(name);
        for (const char *p = k->path; *p != '\0'; p++)
            name[n++] = *p == '.' ? '_' : (char)toupper((unsigned char)*p);
        name[n] = '\0';
        const char *value = getenv(name);
        struct buf expected = BUF_INIT;
        bool ok = value == NULL || *value == '\0' || config_set(c, k, str_of(value), &expected);
        if (!ok)
            buf_printf(why, "the environment variable %s: expected %s", name, buf_z(&expected));
        buf_done(&expected);
        if (!ok)
            return false;
    }
    return true;
}

static bool check_together(const struct config *c, struct buf *why)
{
    const char *path = c->path != NULL ? c->path : "the environment";

    if ((c->tls_cert == NULL) != (c->tls_key == NULL)) {
        buf_printf(why, "%s: tls: cert and key are needed together", path);
        return false;
    }
    if (c->public_url != NULL && !str_starts(str_of(c->public_url), STR("http://")) &&
        !str_starts(str_of(c->public_url), STR("https://"))) {
        buf_printf(why, "%s: public_url: expected http://... or https://..., found \"%s\"", path,
                   c->public_url);
        return false;
    }
    return true;
}

static struct config *config_defaults(void)
{
    struct config *c = xcalloc(1, sizeof *c);
    struct buf expected = BUF_INIT;

    for (const struct config_key *k = config_keys; k->path != NULL; k++)
        if (k->value != NULL && !config_set(c, k, str_of(k->value), &expected))
            abort(); /* a default of ours that its own rule refuses */
    buf_done(&expected);
    return c;
}

static void finish(struct config *c, bool platforms)
{
    if (!platforms) {
        struct config_platform *pl = add_platform(c);
        pl->platform = xstrdup("web");
        pl->bot = xstrdup("lobby");
    }
    for (size_t n;
         c->public_url != NULL && (n = strlen(c->public_url)) > 0 && c->public_url[n - 1] == '/';)
        c->public_url[n - 1] = '\0';
}

enum bh_err config_load(const char *path, struct config **ret_cfg, struct buf *ret_why)
{
    struct config *c = config_defaults();
    bool platforms = false;

    if (path == NULL && access(DEFAULT_PATH, F_OK) == 0)
        path = DEFAULT_PATH;
    c->path = xstrdup(path);
    if ((path != NULL && !read_file(path, c, &platforms, ret_why)) ||
        !read_environment(c, ret_why) || !check_together(c, ret_why)) {
        config_free(c);
        return BH_MALFORMED;
    }
    finish(c, platforms);
    *ret_cfg = c;
    return BH_OK;
}

void config_free(struct config *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_platforms; i++)
        for (const struct config_key *k = config_platform_keys; k->path != NULL; k++)
            config_clear(&c->platforms[i], k);
    for (const struct config_key *k = config_keys; k->path != NULL; k++)
        config_clear(c, k);
    free(c->platforms);
    free(c->path);
    free(c);
}

static bool same_platforms(const struct config *a, const struct config *b)
{
    if (a->n_platforms != b->n_platforms)
        return false;
    for (size_t i = 0; i < a->n_platforms; i++)
        for (const struct config_key *k = config_platform_keys; k->path != NULL; k++)
            if (!config_same(&a->platforms[i], &b->platforms[i], k))
                return false;
    return true;
}

void config_diff(const struct config *was, const struct config *now, struct buf *ret_reload,
                 struct buf *ret_restart)
{
    for (const struct config_key *k = config_keys; k->path != NULL; k++)
        if (!config_same(was, now, k))
            buf_printf(k->when == CFG_RELOAD ? ret_reload : ret_restart, "%s\n", k->path);
    if (!same_platforms(was, now))
        buf_add_z(ret_restart, "platforms\n");
}

void config_take_reloadable(struct config *was, struct config *now)
{
    for (const struct config_key *k = config_keys; k->path != NULL; k++) {
        if (k->when != CFG_RELOAD || config_same(was, now, k))
            continue;
        char tmp[sizeof(uint64_t)];
        size_t n = k->type == CFG_BOOL || k->type == CFG_FORMAT ? sizeof(bool)
                   : k->type == CFG_NUMBER                      ? sizeof(uint32_t)
                   : k->type == CFG_LEVEL                       ? sizeof(enum log_level)
                                                                : sizeof(uint64_t);
        memcpy(tmp, (char *)was + k->offset, n);
        memcpy((char *)was + k->offset, (char *)now + k->offset, n);
        memcpy((char *)now + k->offset, tmp, n);
    }
}

/* ---- the reference ---- */

static void describe_key(struct buf *out, const struct config_key *k, const char *prefix)
{
    buf_printf(out, "| `%s%s` | ", prefix, k->path);
    if (k->value != NULL)
        buf_printf(out, "`%s`", k->value);
    buf_printf(out, " | %s | %s", k->when == CFG_RELOAD ? "reload" : "restart", k->what);
    if (k->planned != NULL)
        buf_printf(out, " (Not in this build yet: %s.)", k->planned);
    buf_add_z(out, " |\n");
}

void config_describe(struct buf *out)
{
    buf_add_z(out, "| key | default | a change needs | what it is |\n|---|---|---|---|\n");
    for (const struct config_key *k = config_keys; k->path != NULL; k++)
        describe_key(out, k, "");
    buf_add_z(out, "\nEach entry of `platforms:` takes:\n\n"
                   "| key | default | for | what it is |\n|---|---|---|---|\n");
    for (const struct config_key *k = config_platform_keys; k->path != NULL; k++)
        buf_printf(out, "| `%s` | %s | %s | %s |\n", k->path, k->value != NULL ? k->value : "",
                   k->choices != NULL ? k->choices : "all", k->what);
}
