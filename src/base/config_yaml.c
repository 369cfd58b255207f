/* config_yaml.c - the file, read against the tables.
 *
 * libyaml gives the document as a tree whose nodes know their lines, and one walk over it
 * yields every error with the place it was made.  The walk is as deep as the tables are,
 * not as the file.
 *
 * Included files are read after the file that includes them, as if their keys and entries followed
 * its own.  Only that one file can include, so there are no cycles. */
#include <errno.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <yaml.h>
#include "base/config_priv.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/mem.h"

#define MAX_FILE_BYTES (4l << 20)
#define MAX_PATTERNS 64
#define MAX_FILES 1000 /* that one configuration includes */

struct config_reading { /* one walk */
    yaml_document_t *doc;
    const char *path;        /* of the file, for errors; NULL: config_parse() */
    struct config *cfg;      /* being filled */
    struct buf *why;         /* the first problem */
    struct include *include; /* what this file includes; NULL: it cannot include */
};

struct include { /* the files behind `include:` */
    struct {
        char *path; /* owned, with the folder of the file */
        size_t line;
    } patterns[MAX_PATTERNS];
    size_t n, files;
    struct map seen; /* device and number of each file -> "", owned keys */
};

struct target { /* a table, and the struct that its values go into */
    const struct config_key *keys;
    void *base;
};

struct config_known {             /* the keys that may stand where we are */
    struct target *targets;       /* borrowed */
    size_t n;                     /* of them */
    const struct config_list *in; /* the list whose entry is read; NULL: the file itself */
    const char *kind;             /* of that entry; NULL: none */
};

static bool BH_PRINTF(3, 4)
    fail_at(struct config_reading *r, const yaml_node_t *n, const char *fmt, ...)
{
    va_list ap;
    char text[512];

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (r->path != NULL)
        buf_printf(r->why, "%s:%zu: ", r->path, n->start_mark.line + 1);
    buf_add_z(r->why, text);
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

static const yaml_node_t *node(struct config_reading *r, int index)
{
    return yaml_document_get_node(r->doc, index);
}

static bool expand(struct config_reading *r, const yaml_node_t *n, bool secret, struct buf *out)
{
    struct buf why = BUF_INIT;

    if (r->path == NULL) { /* only the operator's file may read the environment */
        buf_add_str(out, scalar(n));
        return true;
    }
    bool ok = config_expand(scalar(n), out, secret ? &r->cfg->secret_variables : NULL, &why);

    if (!ok)
        fail_at(r, n, "%s", buf_z(&why));
    buf_done(&why);
    return ok;
}

/* ---- one value ---- */

static bool set_scalar(struct config_reading *r, void *base, const struct config_key *k,
                       const yaml_node_t *n)
{
    struct buf text = BUF_INIT, expected = BUF_INIT;
    bool ok = false;

    bool secret = k->type == CFG_SECRET || k->type == CFG_JSON;

    if (!expand(r, n, secret, &text))
        goto out;
    ok = config_set(base, k, buf_str(&text), &expected);
    if (!ok && secret)
        fail_at(r, n, "%s: expected %s", k->path, buf_z(&expected));
    else if (!ok)
        fail_at(r, n, "%s: expected %s, found \"%.60s\"", k->path, buf_z(&expected), buf_z(&text));
out:
    buf_wipe(&text);
    buf_done(&expected);
    return ok;
}

static bool add_texts(struct config_reading *r, void *base, const struct config_key *k,
                      const yaml_node_t *n)
{
    config_clear(base, k);
    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
         i++) {
        const yaml_node_t *item = node(r, *i);
        struct buf text = BUF_INIT;
        if (item->type != YAML_SCALAR_NODE)
            return fail_at(r, item, "%s: expected a list of words", k->path);
        bool ok = expand(r, item, false, &text);
        if (ok)
            config_add_text(base, k, buf_str(&text));
        buf_done(&text);
        if (!ok)
            return false;
    }
    return true;
}

/* ---- a value of any shape ---- */

#define MAX_JSON_DEPTH 16
#define MAX_JSON_BYTES 65536 /* an alias may repeat a node without end */

static bool write_json(struct config_reading *r, const struct config_key *k, const yaml_node_t *n,
                       struct jw *w, unsigned depth);

/* A plain scalar that is a number, a truth value or null in JSON stays one; others are texts. */
static bool write_json_scalar(struct config_reading *r, const yaml_node_t *n, struct jw *w)
{
    BUF_SECRET text = BUF_INIT;
    struct json_parser *parser = json_parser_new();
    struct json v;
    bool plain = n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    bool bare = plain && json_parse(parser, scalar(n), &v) && json_type(v) != JSON_STRING &&
                json_type(v) != JSON_ARRAY && json_type(v) != JSON_OBJECT;
    bool ok = bare || expand(r, n, true, &text);

    if (bare)
        jw_value(w, v);
    else if (ok)
        jw_str(w, buf_str(&text));
    json_parser_free(parser);
    return ok;
}

static bool write_json_map(struct config_reading *r, const struct config_key *k,
                           const yaml_node_t *n, struct jw *w, unsigned depth)
{
    jw_obj(w);
    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *key = node(r, p->key);
        if (key->type != YAML_SCALAR_NODE)
            return fail_at(r, key, "%s: expected a name before the colon", k->path);
        for (const yaml_node_pair_t *q = n->data.mapping.pairs.start; q < p; q++)
            if (str_eq(scalar(key), scalar(node(r, q->key))))
                return fail_at(r, key, "\"%.*s\" is there twice", STR_FMT(scalar(key)));
        jw_key_str(w, scalar(key));
        if (!write_json(r, k, node(r, p->value), w, depth + 1))
            return false;
    }
    jw_end_obj(w);
    return true;
}

static bool write_json(struct config_reading *r, const struct config_key *k, const yaml_node_t *n,
                       struct jw *w, unsigned depth)
{
    if (depth > MAX_JSON_DEPTH || w->out->n > MAX_JSON_BYTES)
        return fail_at(r, n, "%s: too deep or too large", k->path);
    if (n->type == YAML_SCALAR_NODE)
        return write_json_scalar(r, n, w);
    if (n->type == YAML_MAPPING_NODE)
        return write_json_map(r, k, n, w, depth);
    jw_arr(w);
    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
         i++)
        if (!write_json(r, k, node(r, *i), w, depth + 1))
            return false;
    jw_end_arr(w);
    return true;
}

static bool set_json(struct config_reading *r, void *base, const struct config_key *k,
                     const yaml_node_t *n)
{
    BUF_SECRET text = BUF_INIT;
    BUF_LOCAL expected = BUF_INIT;
    struct jw w = jw_begin(&text);

    if (!write_json(r, k, n, &w, 0))
        return false;
    return config_set(base, k, buf_str(&text), &expected) ||
           fail_at(r, n, "%s: expected %s", k->path, buf_z(&expected));
}

static bool set_value(struct config_reading *r, void *base, const struct config_key *k,
                      const yaml_node_t *n)
{
    if (k->type == CFG_JSON && n->type != YAML_SCALAR_NODE)
        return set_json(r, base, k, n);
    if (k->type == CFG_TEXTS && n->type == YAML_SEQUENCE_NODE)
        return add_texts(r, base, k, n);
    if (n->type != YAML_SCALAR_NODE)
        return fail_at(r, n, "%s: expected a single value, found a %s", k->path,
                       n->type == YAML_SEQUENCE_NODE ? "list" : "section");
    return is_null(n) /* "key:" with nothing behind it: the default holds */
           || set_scalar(r, base, k, n);
}

/* ---- paths ---- */

/* Appends @path, or the folder of the file that is read and @path if @path is relative. */
static void add_path(const struct config_reading *r, struct str path, struct buf *out)
{
    const char *slash = strrchr(r->path, '/');

    if (!str_starts(path, STR("/")) && slash != NULL)
        buf_add(out, r->path, (size_t)(slash - r->path) + 1);
    buf_add_str(out, path);
}

/* `token_file: PATH`, for a secret `token`. */
static bool set_secret_file(struct config_reading *r, void *base, const struct config_key *k,
                            const yaml_node_t *n)
{
    struct buf named = BUF_INIT, path = BUF_INIT, why = BUF_INIT;
    bool ok = false;

    if (n->type != YAML_SCALAR_NODE || is_null(n)) {
        fail_at(r, n, "%s_file: expected the path of a file", k->path);
        goto out;
    }
    if (!expand(r, n, false, &named))
        goto out;
    add_path(r, buf_str(&named), &path);
    ok = config_set_from_file(base, k, config_add_file(r->cfg, buf_z(&path)), &why);
    if (!ok)
        fail_at(r, n, "%s_file: %s", k->path, buf_z(&why));
out:
    buf_done(&named);
    buf_done(&path);
    buf_done(&why);
    return ok;
}

/* The secret that @path, "token_file", reads from a file; NULL: @path is something else. */
static const struct config_key *find_file_key(const struct config_reading *r,
                                              const struct config_key *keys, struct str path)
{
    const struct config_key *k = NULL;

    if (r->path != NULL && str_ends(path, STR("_file")))
        k = config_find(keys, str_make(path.p, path.n - strlen("_file")));
    return k != NULL && k->type == CFG_SECRET ? k : NULL;
}

/* False: an earlier file has set this key. */
static bool remember_key(struct config_reading *r, const struct config_key *k, const yaml_node_t *n)
{
    const char *where = map_get(&r->cfg->set, str_of(k->path));
    struct buf here = BUF_INIT;

    if (where != NULL)
        return fail_at(r, n, "\"%s\" is there twice; %s has it too", k->path, where);
    buf_printf(&here, "%s:%zu", r->path, n->start_mark.line + 1);
    map_put(&r->cfg->set, str_of(k->path), buf_take(&here));
    return true;
}

static bool set_key(struct config_reading *r, const struct config_known *s, void *base,
                    const struct config_key *k, bool from_file, const yaml_node_t *key,
                    const yaml_node_t *value)
{
    struct str other = s->in == NULL ? str_of(map_get(&r->cfg->set, str_of(k->path))) : STR_NULL;

    if (k->type == CFG_SECRET && config_is_given(base, k) &&
        (other.n == 0 || str_starts(other, str_of(r->path))))
        return fail_at(r, key, "\"%s\" and \"%s_file\" are both there; keep one", k->path, k->path);
    if (s->in == NULL && !remember_key(r, k, key))
        return false;
    return from_file ? set_secret_file(r, base, k, value) : set_value(r, base, k, value);
}

static bool add_pattern(struct config_reading *r, const yaml_node_t *n)
{
    struct include *in = r->include;
    struct buf named = BUF_INIT, path = BUF_INIT;

    if (n->type != YAML_SCALAR_NODE || is_null(n))
        return fail_at(r, n, "include: expected a path, such as conf.d/*.yaml");
    if (in->n == MAX_PATTERNS)
        return fail_at(r, n, "include: at most %d patterns", MAX_PATTERNS);
    bool ok = expand(r, n, false, &named);
    if (ok) {
        add_path(r, buf_str(&named), &path);
        in->patterns[in->n].line = n->start_mark.line + 1;
        in->patterns[in->n++].path = buf_take(&path);
    }
    buf_done(&named);
    buf_done(&path);
    return ok;
}

static bool read_include(struct config_reading *r, const yaml_node_t *key, const yaml_node_t *n)
{
    if (r->include == NULL)
        return fail_at(r, key, "include: an included file cannot include others; name them in %s",
                       r->cfg->path);
    if (n->type != YAML_SEQUENCE_NODE)
        return add_pattern(r, n);
    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
         i++)
        if (!add_pattern(r, node(r, *i)))
            return false;
    return true;
}

/* ---- the walk ---- */

static bool is_section(const struct config_known *s, struct str path)
{
    for (size_t i = 0; i < s->n; i++)
        for (const struct config_key *k = s->targets[i].keys; k->path != NULL; k++)
            if (str_starts(str_of(k->path), path) && k->path[path.n] == '.')
                return true;
    return false;
}

/* The words that could stand below @prefix ("" or "wake."), each once. */
static void known_words(const struct config_known *s, struct str prefix, struct buf *out)
{
    for (size_t i = 0; i < s->n; i++)
        for (const struct config_key *k = s->targets[i].keys; k->path != NULL; k++) {
            struct str tail = str_skip(str_of(k->path), prefix.n);
            ptrdiff_t end = str_find(tail, '.');
            struct str word = end >= 0 ? str_make(tail.p, (size_t)end) : tail;
            if (str_starts(str_of(k->path), prefix) && !config_word_in(word, buf_z(out), ' '))
                buf_printf(out, "%s%.*s", out->n > 0 ? " " : "", STR_FMT(word));
        }
}

static bool fail_unknown(struct config_reading *r, const struct config_known *s, struct str prefix,
                         struct str path, const yaml_node_t *n)
{
    struct buf hint = BUF_INIT;

    for (const struct config_gone *g = r->cfg->schema->gone; g != NULL && g->path != NULL; g++)
        if (s->in == NULL && str_eq(path, str_of(g->path)))
            return fail_at(r, n, "%s", g->what);
    for (size_t i = 0; s->in != NULL && s->kind != NULL && s->in->kind(i) != NULL; i++)
        if (config_find(s->in->kind(i)->keys, path) != NULL)
            return fail_at(r, n, "%s: \"%s\" does not take \"%.*s\"", s->in->name, s->kind,
                           STR_FMT(path));
    known_words(s, prefix, &hint);
    for (size_t i = 0; s->in == NULL && prefix.n == 0 && i < r->cfg->n_lists; i++)
        buf_printf(&hint, " %s", r->cfg->schema->lists[i]->name);
    if (s->in == NULL && prefix.n == 0 && r->include != NULL)
        buf_add_z(&hint, " include");
    fail_at(r, n, "%s%sunknown key \"%.*s\"; expected one of: %s", s->in != NULL ? s->in->name : "",
            s->in != NULL ? ": " : "", STR_FMT(path), buf_z(&hint));
    buf_done(&hint);
    return false;
}

static bool read_list(struct config_reading *r, size_t list, const yaml_node_t *n);
static bool read_map(struct config_reading *r, const struct config_known *s, struct str prefix,
                     const yaml_node_t *map);

static bool read_section(struct config_reading *r, const struct config_known *s, struct str path,
                         const yaml_node_t *n)
{
    struct buf prefix = BUF_INIT;

    if (is_null(n))
        return true;
    if (n->type != YAML_MAPPING_NODE)
        return fail_at(r, n, "%.*s: expected a section {key: value, ...}", STR_FMT(path));
    buf_add_str(&prefix, path);
    buf_add_c(&prefix, '.');
    bool ok = read_map(r, s, buf_str(&prefix), n);
    buf_done(&prefix);
    return ok;
}

static bool read_key(struct config_reading *r, const struct config_known *s, struct str prefix,
                     const yaml_node_t *key, struct str path, const yaml_node_t *value)
{
    bool dotted = str_find(scalar(key), '.') >= 0;

    for (size_t i = 0; !dotted && i < s->n; i++) {
        const struct config_key *k = config_find(s->targets[i].keys, path);
        const struct config_key *file = find_file_key(r, s->targets[i].keys, path);
        if (k != NULL || file != NULL)
            return set_key(r, s, s->targets[i].base, k != NULL ? k : file, k == NULL, key, value);
    }
    if (s->in == NULL && r->path != NULL && str_eq(path, STR("include")))
        return read_include(r, key, value);
    for (size_t i = 0; s->in == NULL && i < r->cfg->n_lists; i++)
        if (str_eq(str_of(r->cfg->schema->lists[i]->name), path))
            return read_list(r, i, value);
    if (!dotted && path.n > prefix.n && is_section(s, path))
        return read_section(r, s, path, value);
    return fail_unknown(r, s, prefix, path, key);
}

static bool read_map(struct config_reading *r, const struct config_known *s, struct str prefix,
                     const yaml_node_t *map)
{
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
         p++) {
        const yaml_node_t *key = node(r, p->key);
        struct buf path = BUF_INIT;
        for (const yaml_node_pair_t *q = map->data.mapping.pairs.start; q < p; q++)
            if (str_eq(scalar(key), scalar(node(r, q->key))))
                return fail_at(r, key, "\"%.*s\" is there twice", STR_FMT(scalar(key)));
        buf_add_str(&path, prefix);
        buf_add_str(&path, scalar(key));
        bool ok = read_key(r, s, prefix, key, buf_str(&path), node(r, p->value));
        buf_done(&path);
        if (!ok)
            return false;
    }
    return true;
}

/* ---- lists ---- */

/* Which kind an entry is must be known before its other keys mean anything. */
static bool read_kind(struct config_reading *r, const struct config_list *l, const yaml_node_t *n,
                      const struct config_section **ret_kind)
{
    struct buf word = BUF_INIT, kinds = BUF_INIT;
    bool ok = true;

    for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top;
         p++)
        if (str_eq(scalar(node(r, p->key)), str_of(l->kind_key)) && word.n == 0)
            ok = expand(r, node(r, p->value), false, &word);
    *ret_kind = NULL;
    for (size_t i = 0; l->kind(i) != NULL; i++) {
        buf_printf(&kinds, "%s%s", i > 0 ? " " : "", l->kind(i)->name);
        if (ok && str_eq(str_of(l->kind(i)->name), buf_str(&word)))
            *ret_kind = l->kind(i);
    }
    if (ok && word.n == 0)
        fail_at(r, n, "%s: \"%s\" is missing; expected one of: %s", l->name, l->kind_key,
                buf_z(&kinds));
    else if (ok && *ret_kind == NULL)
        fail_at(r, n, "%s: unknown %s \"%.60s\"; expected one of: %s", l->name, l->kind_key,
                buf_z(&word), buf_z(&kinds));
    buf_done(&word);
    buf_done(&kinds);
    return *ret_kind != NULL;
}

static void *add_entry(struct config_entries *e, const struct config_list *l,
                       const struct config_section *kind, int line, const char *file)
{
    e->files = xrealloc(e->files, (e->n + 1) * sizeof *e->files);
    e->v = xrealloc(e->v, (e->n + 1) * sizeof *e->v);
    e->kinds = xrealloc(e->kinds, (e->n + 1) * sizeof *e->kinds);
    e->lines = xrealloc(e->lines, (e->n + 1) * sizeof *e->lines);
    e->v[e->n] = config_make(kind != NULL ? kind : l->entry);
    if (kind != NULL)
        config_apply_defaults(e->v[e->n], l->entry->keys);
    e->kinds[e->n] = kind;
    e->lines[e->n] = line;
    e->files[e->n] = xstrdup(file);
    return e->v[e->n++];
}

static const struct config_key *find_missing(const void *entry, const struct config_key *keys)
{
    for (const struct config_key *k = keys; k->path != NULL; k++)
        if (k->required && !config_is_given(entry, k))
            return k;
    return NULL;
}

/* Calls the newest entry <name>@<value of @apart>. */
static void name_apart(struct config_entries *e, const struct config_key *unique,
                       const struct config_key *apart)
{
    void *entry = e->v[e->n - 1];
    char **member = (void *)((char *)entry + unique->offset);
    struct buf name = BUF_INIT;

    buf_printf(&name, "%s@%s", *member, config_text(entry, apart));
    free(*member);
    *member = buf_take(&name);
}

/* False: the newest entry of @e bears a name that an older one of its kind has. */
static bool remember_name(struct config_entries *e, const struct config_key *unique,
                          const struct config_key *apart)
{
    const struct config_section *kind = e->kinds[e->n - 1];
    void *entry = e->v[e->n - 1];
    struct buf name = BUF_INIT;
    bool taken = true;

    for (int k = 0; k < 2 && taken; k++) {
        if (k > 0 && (apart == NULL || config_text(entry, apart) == NULL))
            break;
        if (k > 0)
            name_apart(e, unique, apart);
        buf_reset(&name);
        buf_printf(&name, "%s/%s", kind != NULL ? kind->name : "", config_text(entry, unique));
        taken = map_get(&e->names, buf_str(&name)) != NULL;
    }
    if (taken) {
        buf_done(&name);
        return false;
    }
    size_t n = name.n;
    char *z = buf_take(&name);
    map_put(&e->names, str_make(z, n), z);
    return true;
}

static bool check_entry(struct config_reading *r, const struct config_list *l,
                        struct config_entries *e, const yaml_node_t *n)
{
    const struct config_section *kind = e->kinds[e->n - 1];
    void *entry = e->v[e->n - 1];
    const struct config_key *k = find_missing(entry, l->entry->keys);
    char said[256] = "";

    if (k == NULL && kind != NULL)
        k = find_missing(entry, kind->keys);
    if (k != NULL)
        return fail_at(r, n, "%s: %s%s\"%s\" is missing", l->name, kind != NULL ? kind->name : "",
                       kind != NULL ? ": " : "", k->path);
    k = l->unique != NULL ? config_find(l->entry->keys, str_of(l->unique)) : NULL;
    if (k != NULL &&
        !remember_name(e, k,
                       l->apart != NULL ? config_find(l->entry->keys, str_of(l->apart)) : NULL))
        return fail_at(r, n, "%s: %s%s%s \"%.100s\" is there twice", l->name,
                       kind != NULL ? kind->name : "", kind != NULL ? " " : "", k->path,
                       config_text(entry, k));
    bool ok = (l->entry->check == NULL || l->entry->check(entry, said)) &&
              (kind == NULL || kind->check == NULL || kind->check(entry, said));
    const char *name = k != NULL ? config_text(entry, k) : NULL;
    return ok || fail_at(r, n, "%s%s%.100s: %s", kind != NULL ? kind->name : l->name,
                         name != NULL ? " " : "", name != NULL ? name : "", said);
}

static bool read_entry(struct config_reading *r, size_t list, const yaml_node_t *n)
{
    const struct config_list *l = r->cfg->schema->lists[list];
    struct config_entries *e = &r->cfg->lists[list];
    const struct config_section *kind = NULL;

    if (n->type != YAML_MAPPING_NODE)
        return fail_at(r, n, "%s: expected an entry such as %s", l->name, l->example);
    if (l->kind_key != NULL && !read_kind(r, l, n, &kind))
        return false;
    void *entry = add_entry(e, l, kind, (int)n->start_mark.line + 1, r->path);
    struct target targets[] = {{l->entry->keys, entry},
                               {kind != NULL ? kind->keys : l->entry->keys, entry}};
    struct config_known s = {.targets = targets,
                             .n = kind != NULL ? 2 : 1,
                             .in = l,
                             .kind = kind != NULL ? kind->name : NULL};
    return read_map(r, &s, STR(""), n) && check_entry(r, l, e, n);
}

static bool read_list(struct config_reading *r, size_t list, const yaml_node_t *n)
{
    const struct config_list *l = r->cfg->schema->lists[list];

    if (n->type != YAML_SEQUENCE_NODE)
        return fail_at(r, n, "%s: expected a list, \"- %s\"", l->name, l->example);
    r->cfg->lists[list].given = true;
    for (const yaml_node_item_t *i = n->data.sequence.items.start; i < n->data.sequence.items.top;
         i++)
        if (!read_entry(r, list, node(r, *i)))
            return false;
    return true;
}

/* ---- the document ---- */

static bool read_document(struct config_reading *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(r->doc);
    struct config_known s = {.n = r->cfg->n_settings};

    if (root == NULL || is_null(root))
        return true; /* an empty file: every default holds */
    if (root->type != YAML_MAPPING_NODE)
        return fail_at(r, root, "expected \"key: value\" lines");
    s.targets = xcalloc(s.n + 1, sizeof *s.targets);
    for (size_t i = 0; i < s.n; i++)
        s.targets[i] =
            (struct target){r->cfg->schema->sections[i]->keys, config_settings(r->cfg, i)};
    bool ok = read_map(r, &s, STR(""), root);
    free(s.targets);
    return ok;
}

static bool not_yaml(const struct config_reading *r, const yaml_parser_t *parser)
{
    buf_printf(r->why, "%s:%zu: not YAML: %s", r->path != NULL ? r->path : "the entry",
               parser->problem_mark.line + 1,
               parser->problem != NULL ? parser->problem : "cannot be read");
    return false;
}

/* What stands behind the end of the document would be left out without a word. */
static bool is_last(struct config_reading *r, yaml_parser_t *parser)
{
    yaml_document_t doc;

    if (!yaml_parser_load(parser, &doc))
        return not_yaml(r, parser);
    const yaml_node_t *root = yaml_document_get_root_node(&doc);
    bool last = root == NULL || is_null(root);
    if (!last)
        fail_at(r, root, "a second document begins here; a file holds one");
    yaml_document_delete(&doc);
    return last;
}

static bool parse(struct config_reading r, yaml_parser_t *parser,
                  bool (*read)(struct config_reading *, size_t), size_t list)
{
    yaml_document_t doc;
    bool ok;

    if (yaml_parser_load(parser, &doc)) {
        r.doc = &doc;
        ok = read != NULL ? read(&r, list) : read_document(&r);
        yaml_document_delete(&doc);
        ok = ok && is_last(&r, parser);
    } else {
        ok = not_yaml(&r, parser);
    }
    yaml_parser_delete(parser);
    return ok;
}

/* @include NULL: the file is an included one. */
static bool read_one(struct config *c, const char *path, struct include *include, struct buf *why)
{
    struct config_reading r = {.path = config_add_file(c, path),
                               .cfg = c,
                               .why = why,
                               .include = include};
    FILE *f = fopen(path, "re");
    yaml_parser_t parser;
    bool ok = false;

    if (f == NULL) {
        buf_printf(why, "%s: cannot be read: %s", path, strerror(errno));
        return false;
    }
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) > MAX_FILE_BYTES) {
        buf_printf(why, "%s: larger than 4 MiB, which is no configuration", path);
    } else {
        rewind(f);
        if (!yaml_parser_initialize(&parser))
            abort();
        yaml_parser_set_input_file(&parser, f);
        ok = parse(r, &parser, NULL, 0);
    }
    fclose(f);
    return ok;
}

/* ---- included files ---- */

/* True: the file was read before, under whichever name. */
static bool is_seen(struct include *in, const struct stat *st)
{
    struct buf id = BUF_INIT;

    buf_printf(&id, "%llx/%llx", (unsigned long long)st->st_dev, (unsigned long long)st->st_ino);
    bool seen = map_get(&in->seen, buf_str(&id)) != NULL;
    if (!seen) {
        size_t n = id.n;
        char *key = buf_take(&id);
        map_put(&in->seen, str_make(key, n), key);
    }
    buf_done(&id);
    return seen;
}

static bool read_included(struct config *c, struct include *in, size_t pattern, const char *path,
                          struct buf *why)
{
    struct stat st, own;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        buf_printf(why, "include: %s is not a file", path);
    else if (stat(c->path, &own) == 0 && own.st_dev == st.st_dev && own.st_ino == st.st_ino)
        buf_printf(why, "include: \"%s\" matches this file itself; put the others into a folder",
                   in->patterns[pattern].path);
    else if (is_seen(in, &st))
        return true;
    else if (++in->files > MAX_FILES)
        buf_printf(why, "include: more than %d files", MAX_FILES);
    else
        return read_one(c, path, NULL, why);
    return false;
}

/* A folder that is not there holds no files; one that cannot be read is an error. */
static int on_folder_error(const char *path, int err)
{
    return err != ENOENT && err != ENOTDIR;
}

/* The files of one pattern in the order of their names.  A pattern with a wildcard may
 * match none. */
static bool read_pattern(struct config *c, struct include *in, size_t pattern, struct buf *why)
{
    const char *path = in->patterns[pattern].path;
    glob_t found = {0};
    int rc = glob(path, 0, on_folder_error, &found);
    bool ok = rc == 0 || (rc == GLOB_NOMATCH && strpbrk(path, "*?[") != NULL);

    config_add_file(c, path); /* its folder may have more files at the next reload */
    if (!ok)
        buf_printf(why, "include: %s: %s", path,
                   rc == GLOB_NOMATCH ? "there is no such file" : "cannot be read");
    for (size_t i = 0; ok && i < found.gl_pathc; i++)
        ok = read_included(c, in, pattern, found.gl_pathv[i], why);
    globfree(&found);
    if (!ok && str_starts(buf_str(why), STR("include: "))) { /* said of the file that includes */
        struct buf said = *why;
        *why = (struct buf){0};
        buf_printf(why, "%s:%zu: %s", c->path, in->patterns[pattern].line, buf_z(&said));
        buf_done(&said);
    }
    return ok;
}

bool config_read_file(struct config *c, const char *path, struct buf *why)
{
    struct include in = {.n = 0};
    bool ok = read_one(c, path, &in, why);

    for (size_t i = 0; ok && i < in.n; i++)
        ok = read_pattern(c, &in, i, why);
    for (size_t i = 0; i < in.n; i++)
        free(in.patterns[i].path);
    map_done_all(&in.seen);
    return ok;
}

bool config_read_text(struct config *c, struct str text, struct buf *why)
{
    struct config_reading r = {.cfg = c, .why = why};
    yaml_parser_t parser;

    if (!yaml_parser_initialize(&parser))
        abort();
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.p, text.n);
    return parse(r, &parser, NULL, 0);
}

static bool read_root_as_list(struct config_reading *r, size_t list)
{
    return read_list(r, list, yaml_document_get_root_node(r->doc));
}

void config_read_otherwise(struct config *c, size_t list)
{
    const char *yaml = c->schema->lists[list]->otherwise;
    struct buf why = BUF_INIT;
    struct config_reading r = {.path = "the default", .cfg = c, .why = &why};
    yaml_parser_t parser;

    if (yaml == NULL)
        return;
    if (!yaml_parser_initialize(&parser))
        abort();
    yaml_parser_set_input_string(&parser, (const unsigned char *)yaml, strlen(yaml));
    if (!parse(r, &parser, read_root_as_list, list))
        abort(); /* a default of ours that its own rule refuses */
    for (size_t i = 0; i < c->lists[list].n; i++)
        c->lists[list].lines[i] = 0;
    buf_done(&why);
}
