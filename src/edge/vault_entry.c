/* vault_entry.c - the entries of the vault: how they are found, and their form on disk.
 *
 * An entry has up to four names: its session keys and its place, each with tenant and kind before
 * it, and its tenant.  All entries of one name are a chain, oldest first, found through one map. */
#include <stdlib.h>
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
    map_del(&v->by_record, str_of(e->record));
    map_del(&v->by_number, vault_number_key(&e->number));
    list_remove(&e->link);
    record_done(&vault_form, e);
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

static const struct record_field fields[] = {
    RECORD_FIELD(struct vault_entry, record, "record", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, tenant, "tenant", RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, kind, "kind", RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, keys[0], "key", 0),
    RECORD_FIELD(struct vault_entry, keys[1], "otherKey", 0),
    RECORD_FIELD(struct vault_entry, place, "place", 0),
    RECORD_FIELD(struct vault_entry, user, "user", 0),
    RECORD_FIELD(struct vault_entry, instances, "instances", RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, until_ms, "until", RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, used, "used", 0),
    RECORD_FIELD(struct vault_entry, sealed, "sealed", RECORD_NEEDED | RECORD_SEALED),
};
_Static_assert(VAULT_KEYS == 2, "each key is a field");
const struct record_form vault_form =
    RECORD_FORM("vault", struct vault_entry, fields, .lossy = true);
const struct record_form *const vault_records[] = {&vault_form, NULL};

void vault_entry_save(struct vault *v, const struct vault_entry *e)
{
    record_put(v->env.store, &vault_form, NULL, e, true, NULL, NULL);
}

void vault_entry_drop(struct vault *v, struct vault_entry *e)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = vault_form.ns, .key = str_of(e->record)};

    store_put(v->env.store, &item, 1, true, NULL, NULL);
    vault_entry_free(v, e);
}

bool vault_entry_is_over(const struct vault *v, const struct vault_entry *e)
{
    return clock_wall_ms(v->env.clock) >= e->until_ms;
}

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct vault_entry *e = xmalloc(sizeof *e);

    (void)key;
    *e = *(struct vault_entry *)thing;
    vault_entry_add(ctx, e);
    return true;
}

enum bh_err vault_load(struct vault *v, char *ret_why)
{
    struct record_reader *reader = record_reader_new(NULL);
    enum bh_err err =
        record_load(v->env.store, &vault_form, reader, STR_NULL, on_record, v, ret_why);

    record_reader_free(reader);
    return err;
}
