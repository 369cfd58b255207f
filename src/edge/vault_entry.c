/* vault_entry.c - the entries of the vault: how they are found, and their form on disk.
 *
 * An entry has up to four names: its session keys and its place, each with tenant and kind before
 * it, and its tenant.  All entries of one name are a chain, oldest first, found through one map. */
#include <stdio.h>
#include <stdlib.h>
#include "base/json.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "edge/vault_priv.h"
#include "store/store.h"

/* ---- names ---- */

static void write_name(struct buf *out, enum vault_name what, struct str tenant, struct str kind,
                       struct str name)
{
    buf_add_c(out, (char)what);
    buf_add_str(out, tenant);
    buf_add_c(out, '\x1f');
    buf_add_str(out, kind);
    buf_add_c(out, '\x1f');
    buf_add_str(out, name);
}

struct vault_chain *vault_find_chain(const struct vault *v, enum vault_name what, struct str tenant,
                                     struct str kind, struct str name)
{
    struct buf b = BUF_INIT;

    write_name(&b, what, tenant, kind, name);
    struct vault_chain *c = map_get(&v->by_name, buf_str(&b));
    buf_done(&b);
    return c;
}

static void add_name(struct vault *v, struct vault_entry *e, struct vault_handle *h,
                     enum vault_name what, const char *name)
{
    struct buf b = BUF_INIT;

    if (name == NULL)
        return;
    if (what == VAULT_BY_TENANT)
        write_name(&b, what, str_of(e->tenant), STR_NULL, STR_NULL);
    else
        write_name(&b, what, str_of(e->tenant), str_of(e->kind), str_of(name));
    struct vault_chain *c = map_get(&v->by_name, buf_str(&b));
    if (c == NULL) {
        c = xcalloc(1, sizeof *c + b.n);
        list_init(&c->handles);
        memcpy(c->name, b.p, b.n);
        c->n = b.n;
        map_put(&v->by_name, str_make(c->name, c->n), c);
    }
    *h = (struct vault_handle){.chain = c, .entry = e};
    list_init(&h->link);
    list_append(&c->handles, &h->link);
    buf_done(&b);
}

static void remove_name(struct vault *v, struct vault_handle *h)
{
    struct vault_chain *c = h->chain;

    if (c == NULL)
        return;
    list_remove(&h->link);
    h->chain = NULL;
    if (list_is_empty(&c->handles)) {
        map_del(&v->by_name, str_make(c->name, c->n));
        free(c);
    }
}

/* ---- entries ---- */

void vault_entry_free(struct vault *v, struct vault_entry *e)
{
    for (size_t i = 0; i < ARRAY_LEN(e->names); i++)
        remove_name(v, &e->names[i]);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        free(e->keys[i]);
    map_del(&v->by_record, str_of(e->record));
    map_del(&v->by_number, vault_number_key(&e->number));
    list_remove(&e->link);
    free(e->record);
    free(e->tenant);
    free(e->kind);
    free(e->place);
    free(e->user);
    free(e->instances);
    free(e->sealed);
    free(e);
}

void vault_entry_add(struct vault *v, struct vault_entry *e)
{
    e->number = ++v->next;
    list_init(&e->link);
    list_append(&v->entries, &e->link);
    map_put(&v->by_record, str_of(e->record), e);
    map_put(&v->by_number, vault_number_key(&e->number), e);
    add_name(v, e, &e->names[VAULT_KEYS], VAULT_BY_PLACE, e->place);
    add_name(v, e, &e->names[VAULT_KEYS + 1], VAULT_BY_TENANT, e->tenant);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        if (i == 0 || e->keys[0] == NULL || e->keys[i] == NULL ||
            strcmp(e->keys[i], e->keys[0]) != 0)
            add_name(v, e, &e->names[i], VAULT_BY_KEY, e->keys[i]);
    if (!timer_is_set(&v->sweep))
        timer_set(v->env.clock, &v->sweep, VAULT_SWEEP_MS);
}

static void write_entry(const struct vault_entry *e, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "tenant", str_of(e->tenant));
    jw_kstr(&w, "kind", str_of(e->kind));
    jw_key(&w, "keys");
    jw_arr(&w);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        if (e->keys[i] != NULL)
            jw_str(&w, str_of(e->keys[i]));
    jw_end_arr(&w);
    jw_kstr(&w, "place", str_of(e->place));
    jw_kstr_opt(&w, "user", str_of(e->user));
    jw_kstr(&w, "instances", str_of(e->instances));
    jw_ki64(&w, "until", e->until_ms);
    jw_kbool(&w, "used", e->used);
    jw_kstr(&w, "sealed", str_of(e->sealed));
    jw_end_obj(&w);
}

void vault_entry_save(struct vault *v, const struct vault_entry *e)
{
    struct buf value = BUF_INIT;

    write_entry(e, &value);
    store_put(v->env.store,
              &(struct store_kv){.verb = KV_PUT,
                                 .ns = NS_VAULT,
                                 .key = str_of(e->record),
                                 .value = buf_str(&value)},
              1, true, NULL, NULL);
    buf_done(&value);
}

void vault_entry_drop(struct vault *v, struct vault_entry *e)
{
    store_put(v->env.store,
              &(struct store_kv){.verb = KV_DELETE, .ns = NS_VAULT, .key = str_of(e->record)}, 1,
              true, NULL, NULL);
    vault_entry_free(v, e);
}

bool vault_entry_is_over(const struct vault *v, const struct vault_entry *e)
{
    return clock_wall_ms(v->env.clock) >= e->until_ms;
}

/* ---- loading ---- */

char *vault_dup(struct str s)
{
    return s.p != NULL ? str_dup(s) : NULL;
}

struct loading {
    struct vault *v;
    struct json_parser *parser;
    bool malformed;
};

static void on_record(void *ctx, struct str key, struct str value)
{
    struct loading *l = ctx;
    struct json doc;
    size_t n = 0;

    if (!json_parse(l->parser, value, &doc) || json_str(doc, "sealed").p == NULL ||
        json_str(doc, "tenant").p == NULL || json_str(doc, "kind").p == NULL) {
        l->malformed = true;
        return;
    }
    struct vault_entry *e = xcalloc(1, sizeof *e);
    e->record = str_dup(key);
    e->tenant = str_dup(json_str(doc, "tenant"));
    e->kind = str_dup(json_str(doc, "kind"));
    for (struct json_iter it = {0}; n < VAULT_KEYS && json_next(json_get(doc, "keys"), &it);)
        e->keys[n++] = vault_dup(json_as_str(it.value));
    e->place = vault_dup(json_str(doc, "place"));
    e->user = vault_dup(json_str(doc, "user"));
    e->instances = str_dup(json_str(doc, "instances"));
    e->sealed = str_dup(json_str(doc, "sealed"));
    e->used = json_as_bool(json_get(doc, "used"), true);
    json_as_i64(json_get(doc, "until"), &e->until_ms);
    vault_entry_add(l->v, e);
}

enum bh_err vault_load(struct vault *v, char *ret_why)
{
    struct loading l = {.v = v, .parser = json_parser_new()};
    enum bh_err err = v->env.store->ops->load_records(v->env.store, NS_VAULT, on_record, &l);

    json_parser_free(l.parser);
    if (err != BH_OK)
        snprintf(ret_why, 256, "the vault cannot be read from the database");
    if (l.malformed)
        log_warn(NULL, "some records of the vault cannot be read and are left out");
    return err;
}
