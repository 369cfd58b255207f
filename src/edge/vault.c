/* vault.c - design.  (vault.h has the contract.)
 *
 * An entry has up to three names: its session keys and its place, each with tenant and kind before
 * it.  All entries of one name are a chain, oldest first, found through one map.
 *
 * The seal is bound to tenant, kind and id: a record that is copied under another tenant's name
 * does not open.  Wall clock, because a life goes on while we are not running. */
#include "edge/vault.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "bus/bus.h"
#include "store/store.h"
#include "tenancy/facts.h"

#define NS "vault"
#define SWEEP_MS 5000
#define MAX_ENTRIES 100000 /* past it the oldest goes */
#define MAX_INSTANCES 32

struct chain { /* all entries with one name, oldest first */
    struct list handles;
    size_t n;
    char name[];
};
struct handle {          /* one name of an entry */
    struct list link;    /* chain->handles */
    struct chain *chain; /* borrowed; NULL: not in one */
    struct entry *entry; /* borrowed */
};

struct entry {
    struct list link; /* vault->entries, by age */
    uint64_t number;
    struct handle names[VAULT_KEYS + 1];
    char *record;           /* owned: tenant, kind and id; the key in the store */
    char *tenant, *kind;    /* owned */
    char *keys[VAULT_KEYS]; /* owned; NULL: none */
    char *place, *user;     /* owned; user may be NULL */
    char *instances;        /* owned: names with 0x1f after each */
    char *sealed;           /* owned */
    int64_t until_ms;       /* wall */
    bool used, taken;
};

struct vault {
    struct vault_env env;
    struct list entries;
    struct map by_name;   /* struct chain, owned */
    struct map by_record; /* struct entry */
    struct map by_number; /* struct entry */
    struct timer sweep;
    uint64_t next;
};

/* ---- names ---- */

enum name_of { OF_KEY = 'k', OF_PLACE = 'p' };

static void write_name(struct buf *out, enum name_of what, struct str tenant, struct str kind,
                       struct str name)
{
    buf_add_c(out, (char)what);
    buf_add_str(out, tenant);
    buf_add_c(out, '\x1f');
    buf_add_str(out, kind);
    buf_add_c(out, '\x1f');
    buf_add_str(out, name);
}

static struct chain *find_chain(const struct vault *v, enum name_of what, struct str tenant,
                                struct str kind, struct str name)
{
    struct buf b = BUF_INIT;

    write_name(&b, what, tenant, kind, name);
    struct chain *c = map_get(&v->by_name, buf_str(&b));
    buf_done(&b);
    return c;
}

static void add_name(struct vault *v, struct entry *e, struct handle *h, enum name_of what,
                     const char *name)
{
    struct buf b = BUF_INIT;

    if (name == NULL)
        return;
    write_name(&b, what, str_of(e->tenant), str_of(e->kind), str_of(name));
    struct chain *c = map_get(&v->by_name, buf_str(&b));
    if (c == NULL) {
        c = xcalloc(1, sizeof *c + b.n);
        list_init(&c->handles);
        memcpy(c->name, b.p, b.n);
        c->n = b.n;
        map_put(&v->by_name, str_make(c->name, c->n), c);
    }
    *h = (struct handle){.chain = c, .entry = e};
    list_init(&h->link);
    list_append(&c->handles, &h->link);
    buf_done(&b);
}

static void remove_name(struct vault *v, struct handle *h)
{
    struct chain *c = h->chain;

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

static struct str number_key(const uint64_t *number)
{
    return str_make(number, sizeof *number);
}

static void entry_free(struct vault *v, struct entry *e)
{
    for (size_t i = 0; i < ARRAY_LEN(e->names); i++)
        remove_name(v, &e->names[i]);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        free(e->keys[i]);
    map_del(&v->by_record, str_of(e->record));
    map_del(&v->by_number, number_key(&e->number));
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

/* @e is filled in. */
static void entry_add(struct vault *v, struct entry *e)
{
    e->number = ++v->next;
    list_init(&e->link);
    list_append(&v->entries, &e->link);
    map_put(&v->by_record, str_of(e->record), e);
    map_put(&v->by_number, number_key(&e->number), e);
    add_name(v, e, &e->names[VAULT_KEYS], OF_PLACE, e->place);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        if (i == 0 || e->keys[0] == NULL || e->keys[i] == NULL ||
            strcmp(e->keys[i], e->keys[0]) != 0)
            add_name(v, e, &e->names[i], OF_KEY, e->keys[i]);
    if (!timer_is_set(&v->sweep))
        timer_set(v->env.clock, &v->sweep, SWEEP_MS);
}

static void write_entry(const struct entry *e, struct buf *out)
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

static void save(struct vault *v, const struct entry *e)
{
    struct buf value = BUF_INIT;

    write_entry(e, &value);
    store_put(v->env.store,
              &(struct store_kv){
                  .verb = KV_PUT, .ns = NS, .key = str_of(e->record), .value = buf_str(&value)},
              1, true, NULL, NULL);
    buf_done(&value);
}

static void drop(struct vault *v, struct entry *e)
{
    store_put(v->env.store,
              &(struct store_kv){.verb = KV_DELETE, .ns = NS, .key = str_of(e->record)}, 1, true,
              NULL, NULL);
    entry_free(v, e);
}

static bool is_over(const struct vault *v, const struct entry *e)
{
    return clock_wall_ms(v->env.clock) >= e->until_ms;
}

static void on_sweep(struct timer *t)
{
    struct vault *v = container_of(t, struct vault, sweep);

    list_each (&v->entries, it, nxt) {
        struct entry *e = list_entry(it, struct entry, link);
        if (is_over(v, e))
            drop(v, e);
    }
    if (!list_is_empty(&v->entries))
        timer_set(v->env.clock, &v->sweep, SWEEP_MS);
}

/* ---- start ---- */

static char *dup_or_null(struct str s)
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
    struct entry *e = xcalloc(1, sizeof *e);
    e->record = str_dup(key);
    e->tenant = str_dup(json_str(doc, "tenant"));
    e->kind = str_dup(json_str(doc, "kind"));
    for (struct json_iter it = {0}; n < VAULT_KEYS && json_next(json_get(doc, "keys"), &it);)
        e->keys[n++] = dup_or_null(json_as_str(it.value));
    e->place = dup_or_null(json_str(doc, "place"));
    e->user = dup_or_null(json_str(doc, "user"));
    e->instances = str_dup(json_str(doc, "instances"));
    e->sealed = str_dup(json_str(doc, "sealed"));
    e->used = json_as_bool(json_get(doc, "used"), true);
    json_as_i64(json_get(doc, "until"), &e->until_ms);
    entry_add(l->v, e);
}

/* A revocation may have come while nobody listened. */
static bool has_gateway(const struct vault *v, const char *tenant)
{
    struct list *gateways;

    if (v->env.facts == NULL)
        return true;
    facts_gateways(v->env.facts, &gateways);
    list_each (gateways, it, nxt) {
        const struct gateway *g = list_entry(it, struct gateway, link);
        if (g->revoked_ms == 0 && strcmp(g->tenant, tenant) == 0)
            return true;
    }
    return false;
}

static void on_revoked(void *ctx, struct str topic, struct str id)
{
    struct vault *v = ctx;
    const struct gateway *g = facts_gateway(v->env.facts, id);
    size_t n = g != NULL ? vault_wipe(v, str_of(g->tenant)) : 0;

    (void)topic;
    if (n > 0)
        log_info(NULL, "capabilities wiped: tenant=%s entries=%zu", g->tenant, n);
}

enum bh_err vault_open(const struct vault_env *env, struct vault **ret_v, char *ret_why)
{
    struct vault *v = xcalloc(1, sizeof *v);
    struct loading l = {.v = v, .parser = json_parser_new()};

    v->env = *env;
    list_init(&v->entries);
    timer_init(&v->sweep, on_sweep);
    enum bh_err err = env->store->ops->load_records(env->store, NS, on_record, &l);
    json_parser_free(l.parser);
    if (err != BH_OK) {
        snprintf(ret_why, 256, "the vault cannot be read from the database");
        vault_free(v);
        return err;
    }
    if (l.malformed)
        log_warn(NULL, "some records of the vault cannot be read and are left out");
    list_each (&v->entries, it, nxt) {
        struct entry *e = list_entry(it, struct entry, link);
        if (is_over(v, e) || !has_gateway(v, e->tenant))
            drop(v, e);
    }
    if (env->bus != NULL && env->facts != NULL)
        bus_subscribe(env->bus, "revoked", on_revoked, v);
    *ret_v = v;
    return BH_OK;
}

void vault_free(struct vault *v)
{
    if (v == NULL)
        return;
    timer_stop(v->env.clock, &v->sweep);
    list_each (&v->entries, it, nxt)
        entry_free(v, list_entry(it, struct entry, link));
    map_done(&v->by_name);
    map_done(&v->by_record);
    map_done(&v->by_number);
    free(v);
}

/* ---- binding ---- */

static bool may_use(const struct entry *e, struct str instance)
{
    struct str rest = str_of(e->instances), one;

    while (str_split(&rest, '\x1f', &one))
        if (one.n > 0 && str_eq(one, instance))
            return true;
    return false;
}

static bool add_instance(struct entry *e, struct str instance)
{
    struct buf b = BUF_INIT;
    size_t n = 0;

    for (const char *p = e->instances; p != NULL && *p != '\0'; p++)
        n += *p == '\x1f';
    if (n >= MAX_INSTANCES || (e->instances != NULL && may_use(e, instance)))
        return false;
    buf_add_str(&b, str_of(e->instances));
    buf_add_str(&b, instance);
    buf_add_c(&b, '\x1f');
    free(e->instances);
    e->instances = buf_take(&b);
    return true;
}

static struct entry *entry_new(struct vault *v, const struct vault_spec *s, char *record)
{
    struct entry *e = xcalloc(1, sizeof *e);
    struct buf sealed = BUF_INIT;
    size_t n = 0;

    e->record = record;
    e->tenant = str_dup(s->tenant);
    e->kind = str_dup(s->kind);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        if (s->session_keys[i].p != NULL)
            e->keys[n++] = str_dup(s->session_keys[i]);
    e->place = dup_or_null(s->place);
    e->user = dup_or_null(s->user);
    seal_secret(v->env.seal, str_of(record), s->value, &sealed);
    e->sealed = buf_take(&sealed);
    e->until_ms = clock_wall_ms(v->env.clock) + s->life_ms;
    e->used = s->used;
    return e;
}

void vault_bind(struct vault *v, const struct vault_spec *s)
{
    struct buf record = BUF_INIT;

    buf_printf(&record, "%.*s\x1f%.*s\x1f%.*s", STR_FMT(s->tenant), STR_FMT(s->kind),
               STR_FMT(s->id));
    struct entry *e = map_get(&v->by_record, buf_str(&record));
    if (e != NULL) { /* a request that was repeated, or another instance of the tenant */
        buf_done(&record);
        if (add_instance(e, s->instance))
            save(v, e);
        return;
    }
    if (map_count(&v->by_record) >= MAX_ENTRIES)
        drop(v, list_first(&v->entries, struct entry, link));
    e = entry_new(v, s, buf_take(&record));
    add_instance(e, s->instance);
    entry_add(v, e);
    save(v, e);
}

/* ---- using ---- */

static bool is_fresh(const struct vault *v, const struct entry *e)
{
    return !e->used && !e->taken && !is_over(v, e);
}

bool vault_take(struct vault *v, struct str tenant, struct str session_key, struct str kind,
                struct vault_ref *ret_ref, bool *ret_first)
{
    struct chain *c = find_chain(v, OF_KEY, tenant, kind, session_key);
    struct entry *found = NULL;

    if (c == NULL)
        return false;
    list_each (&c->handles, it, nxt) {
        struct entry *e = list_entry(it, struct handle, link)->entry;
        if (is_fresh(v, e)) {
            e->taken = true;
            *ret_ref = (struct vault_ref){e->number};
            *ret_first = true;
            return true;
        }
        if (!is_over(v, e))
            found = e;
    }
    if (found == NULL)
        return false;
    *ret_ref = (struct vault_ref){found->number};
    *ret_first = false;
    return true;
}

bool vault_take_place(struct vault *v, struct str tenant, struct str instance, struct str kind,
                      struct str place, struct str user, struct vault_ref *ret_ref)
{
    struct chain *c = find_chain(v, OF_PLACE, tenant, kind, place);
    struct entry *found = NULL;

    if (c == NULL)
        return false;
    list_each (&c->handles, it, nxt) {
        struct entry *e = list_entry(it, struct handle, link)->entry;
        bool theirs = user.n > 0 && e->user != NULL && str_eq(str_of(e->user), user);
        if (!is_fresh(v, e) || !may_use(e, instance))
            continue;
        if (found == NULL || theirs)
            found = e;
        if (theirs)
            break;
    }
    if (found == NULL)
        return false;
    found->taken = true;
    *ret_ref = (struct vault_ref){found->number};
    return true;
}

static struct entry *entry_of(const struct vault *v, struct vault_ref ref)
{
    return map_get(&v->by_number, number_key(&ref.number));
}

bool vault_open_value(struct vault *v, struct vault_ref ref, struct buf *ret_plain)
{
    const struct entry *e = entry_of(v, ref);

    return e != NULL && !is_over(v, e) &&
           unseal_secret(v->env.seal, str_of(e->record), str_of(e->sealed), ret_plain);
}

void vault_used(struct vault *v, struct vault_ref ref)
{
    struct entry *e = entry_of(v, ref);

    if (e == NULL)
        return;
    e->taken = false;
    if (e->used)
        return;
    e->used = true;
    save(v, e);
}

void vault_give_back(struct vault *v, struct vault_ref ref)
{
    struct entry *e = entry_of(v, ref);

    if (e != NULL)
        e->taken = false;
}

size_t vault_wipe(struct vault *v, struct str tenant)
{
    size_t n = 0;

    list_each (&v->entries, it, nxt) {
        struct entry *e = list_entry(it, struct entry, link);
        if (!str_eq(str_of(e->tenant), tenant))
            continue;
        drop(v, e);
        n++;
    }
    return n;
}

size_t vault_count(const struct vault *v)
{
    return map_count(&v->by_record);
}
