/* config.c - design.  (config.h has the contract.)
 *
 * A configuration is one struct per section and one array per list, made from the tables; nothing
 * here knows what any of them means.  config_yaml.c reads the file into them, the environment is
 * laid over it, and each section's own check has the last word. */
#include "base/config.h"
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/config_priv.h"
#include "base/mem.h"

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

const char *config_path(const struct config *c)
{
    return c->path;
}

/* ---- life ---- */

static bool is_declared_before(const struct config_schema *schema, size_t section,
                               const struct config_key *k)
{
    for (size_t i = 0; i < section; i++)
        if (config_find(schema->sections[i]->keys, str_of(k->path)) != NULL)
            return true;
    return false;
}

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
            assert(!is_declared_before(schema, i, k));
        if (s->into == NULL)
            c->settings[i] = config_make(s);
    }
    for (size_t i = 0; i < c->n_settings; i++)
        if (schema->sections[i]->into != NULL)
            config_apply_defaults(config_settings(c, i), schema->sections[i]->keys);
    return c;
}

static void clear_all(void *base, const struct config_key *keys)
{
    for (const struct config_key *k = keys; k->path != NULL; k++)
        config_clear(base, k);
}

static void entries_done(struct config_entries *e, const struct config_list *l)
{
    for (size_t i = 0; i < e->n; i++) {
        clear_all(e->v[i], l->entry->keys);
        if (e->kinds[i] != NULL)
            clear_all(e->v[i], e->kinds[i]->keys);
        free(e->v[i]);
    }
    void *name;
    for (size_t i = 0; map_next(&e->names, &i, &name);)
        free(name);
    map_done(&e->names);
    free(e->v);
    free(e->kinds);
    free(e->lines);
}

void config_free(struct config *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_lists; i++)
        entries_done(&c->lists[i], c->schema->lists[i]);
    for (size_t i = 0; i < c->n_settings; i++)
        clear_all(config_settings(c, i), c->schema->sections[i]->keys);
    for (size_t i = 0; i < c->n_settings; i++)
        free(c->settings[i]);
    free(c->settings);
    free(c->lists);
    buf_done(&c->secret_variables);
    free(c->path);
    free(c);
}

struct str config_secret_variables(const struct config *c)
{
    return buf_str(&c->secret_variables);
}

/* ---- loading ---- */

/* BELLHOP_LISTEN, BELLHOP_LOG_LEVEL, ...: the path in capitals, dots as underscores. */
static bool read_variable(void *base, const struct config_key *k, struct buf *why)
{
    struct buf name = BUF_INIT, expected = BUF_INIT;

    buf_add_z(&name, "BELLHOP_");
    for (const char *p = k->path; *p != '\0'; p++)
        buf_add_c(&name, *p == '.' ? '_' : (char)toupper((unsigned char)*p));
    const char *value = getenv(buf_z(&name));
    bool ok = value == NULL || *value == '\0' || config_set(base, k, str_of(value), &expected);
    if (!ok)
        buf_printf(why, "the environment variable %s: expected %s", buf_z(&name), buf_z(&expected));
    buf_done(&name);
    buf_done(&expected);
    return ok;
}

static bool read_environment(struct config *c, struct buf *why)
{
    for (size_t i = 0; i < c->n_settings; i++)
        for (const struct config_key *k = c->schema->sections[i]->keys; k->path != NULL; k++)
            if (!read_variable(config_settings(c, i), k, why))
                return false;
    return true;
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
    if ((path != NULL && !config_read_file(c, path, ret_why)) || !read_environment(c, ret_why) ||
        !check_sections(c, ret_why)) {
        config_free(c);
        return BH_MALFORMED;
    }
    for (size_t i = 0; i < c->n_lists; i++)
        if (!c->lists[i].given)
            config_read_otherwise(c, i);
    *ret_cfg = c;
    return BH_OK;
}

/* ---- reloading ---- */

static bool same_all(const void *a, const void *b, const struct config_key *keys)
{
    for (const struct config_key *k = keys; k->path != NULL; k++)
        if (!config_same(a, b, k))
            return false;
    return true;
}

static bool same_entries(const struct config_entries *a, const struct config_entries *b,
                         const struct config_list *l)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->kinds[i] != b->kinds[i] || !same_all(a->v[i], b->v[i], l->entry->keys) ||
            (a->kinds[i] != NULL && !same_all(a->v[i], b->v[i], a->kinds[i]->keys)))
            return false;
    return true;
}

void config_diff(const struct config *was, const struct config *now, struct buf *ret_reload,
                 struct buf *ret_restart)
{
    assert(was->schema == now->schema);
    for (size_t i = 0; i < was->n_settings; i++)
        for (const struct config_key *k = was->schema->sections[i]->keys; k->path != NULL; k++)
            if (!config_same(config_settings(was, i), config_settings(now, i), k))
                buf_printf(k->when == CFG_RELOAD ? ret_reload : ret_restart, "%s\n", k->path);
    for (size_t i = 0; i < was->n_lists; i++) {
        const struct config_list *l = was->schema->lists[i];
        if (!same_entries(&was->lists[i], &now->lists[i], l))
            buf_printf(l->when == CFG_RELOAD ? ret_reload : ret_restart, "%s\n", l->name);
    }
}

void config_take_reloadable(struct config *was, struct config *now)
{
    assert(was->schema == now->schema);
    for (size_t i = 0; i < was->n_settings; i++)
        for (const struct config_key *k = was->schema->sections[i]->keys; k->path != NULL; k++)
            if (k->when == CFG_RELOAD)
                config_exchange(config_settings(was, i), config_settings(now, i), k);
    for (size_t i = 0; i < was->n_lists; i++) {
        if (was->schema->lists[i]->when != CFG_RELOAD)
            continue;
        struct config_entries tmp = was->lists[i];
        was->lists[i] = now->lists[i];
        now->lists[i] = tmp;
    }
}

/* ---- the reference ---- */

static void describe_key(struct buf *out, const struct config_key *k, const void *defaults)
{
    struct buf value = BUF_INIT;

    if (k->value != NULL)
        buf_add_z(&value, k->value);
    else if (defaults != NULL)
        config_show(defaults, k, &value);
    buf_printf(out, "| `%s` | ", k->path);
    if (value.n > 0)
        buf_printf(out, "`%s`", buf_z(&value));
    buf_done(&value);
    buf_printf(out, " | %s | %s", k->when == CFG_RELOAD ? "reload" : "restart", k->what);
    if (k->planned != NULL)
        buf_printf(out, " (Not in this build yet: %s.)", k->planned);
    buf_add_z(out, " |\n");
}

static void describe_entry_key(struct buf *out, const struct config_key *k, const char *kinds)
{
    buf_printf(out, "| `%s` | %s | ", k->path, k->value != NULL ? k->value : "");
    if (kinds != NULL)
        buf_printf(out, "%s | ", kinds);
    buf_printf(out, "%s |\n", k->what);
}

/* The same setting, in the same words, of another kind. */
static bool takes_it_too(const struct config_section *kind, const struct config_key *k)
{
    const struct config_key *o = config_find(kind->keys, str_of(k->path));

    return o != NULL && str_eq(str_of(o->what), str_of(k->what)) &&
           str_eq(str_of(o->value), str_of(k->value));
}

static void describe_kind_key(struct buf *out, const struct config_list *l, size_t kind,
                              const struct config_key *k)
{
    struct buf kinds = BUF_INIT;
    const struct config_section *o;
    bool told = false;

    for (size_t i = 0; (o = l->kind(i)) != NULL; i++)
        if (takes_it_too(o, k)) {
            told |= i < kind;
            buf_printf(&kinds, "%s%s", kinds.n > 0 ? " " : "", o->name);
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
