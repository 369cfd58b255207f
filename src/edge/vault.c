/* vault.c - design.  (vault.h has the contract.)
 *
 * An entry has up to five names: session keys and a place, each prefixed with tenant and kind.
 * The entries of one name form a chain, oldest first.  One map finds all chains.
 *
 * The encryption is bound to tenant, kind and id, so a record copied to another tenant's key cannot
 * be decrypted.  Entries expire by the wall clock, because tokens also age while bellhop is not
 * running. */
#include "edge/vault.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/observers.h"
#include "base/rand.h"
#include "store/store.h"

#define VAULT_SWEEP_MS 5000

static const struct record_form vault_form;

enum vault_name { VAULT_BY_KEY = 'k', VAULT_BY_PLACE = 'p' };

struct vault_chain { /* all entries with one name, oldest first */
    struct list handles;
    size_t n;
    char name[];
};
struct vault_handle {          /* one name of an entry */
    struct list link;          /* chain->handles */
    struct vault_chain *chain; /* borrowed; NULL: not in one */
    struct vault_entry *entry; /* borrowed */
};

struct vault_entry {
    struct list link; /* vault->entries, by age */
    struct handle id;
    struct vault_handle names[VAULT_KEYS + 1]; /* its keys, its place */
    char *record;           /* owned: tenant, kind and id; the key in the store */
    char *tenant, *kind;    /* owned */
    char *keys[VAULT_KEYS]; /* owned; NULL: none */
    char *bot, *chat;       /* owned */
    char *scope;            /* owned; may be NULL */
    char *place, *user;     /* owned; may be NULL */
    char *instances;        /* owned: names with 0x1f after each */
    char *sealed;           /* owned */
    int64_t until_ms;       /* wall */
    bool used, taken;
};

struct vault {
    struct vault_env env;
    struct list entries;
    struct map by_name;   /* struct vault_chain, owned */
    struct map by_record; /* struct vault_entry */
    struct handles ids;   /* struct vault_entry */
    struct timer sweep;
};

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

/* NULL: no entry has that name. */
static struct vault_chain *find_chain(const struct vault *v, enum vault_name what,
                                      struct str tenant, struct str kind, struct str name)
{
    BUF_LOCAL b = BUF_INIT;

    if (map_count(&v->by_name) == 0)
        return NULL;
    write_name(&b, what, tenant, kind, name);
    return map_get(&v->by_name, buf_str(&b));
}

static void add_name(struct vault *v, struct vault_entry *e, struct vault_handle *h,
                     enum vault_name what, const char *name)
{
    BUF_LOCAL b = BUF_INIT;

    if (name == NULL)
        return;
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
    list_append(&c->handles, &h->link);
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

static void entry_free(struct vault *v, struct vault_entry *e)
{
    for (size_t i = 0; i < ARRAY_LEN(e->names); i++)
        remove_name(v, &e->names[i]);
    map_del(&v->by_record, str_of(e->record));
    handles_remove(&v->ids, e->id);
    list_remove(&e->link);
    record_done(&vault_form, e);
    free(e);
}

static void entry_add(struct vault *v, struct vault_entry *e)
{
    e->id = handles_add(&v->ids, e);
    list_append(&v->entries, &e->link);
    map_put(&v->by_record, str_of(e->record), e);
    add_name(v, e, &e->names[VAULT_KEYS], VAULT_BY_PLACE, e->place);
    for (size_t i = 0; i < VAULT_KEYS; i++)
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
    RECORD_FIELD(struct vault_entry, keys[2], "thirdKey", 0),
    RECORD_FIELD(struct vault_entry, keys[3], "fourthKey", 0),
    RECORD_FIELD(struct vault_entry, bot, "bot", RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, chat, "chat", RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, scope, "scope", 0),
    RECORD_FIELD(struct vault_entry, place, "place", 0),
    RECORD_FIELD(struct vault_entry, user, "user", 0),
    RECORD_FIELD(struct vault_entry, instances, "instances", RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, until_ms, "until", RECORD_NEEDED),
    RECORD_FIELD(struct vault_entry, used, "used", 0),
    RECORD_FIELD(struct vault_entry, sealed, "sealed", RECORD_NEEDED | RECORD_SEALED),
};
_Static_assert(VAULT_KEYS == 4, "each key is a field");
static const struct record_form vault_form =
    RECORD_FORM("vault", struct vault_entry, fields, .lossy = true);
const struct record_form *const vault_records[] = {&vault_form, NULL};

static void entry_drop(struct vault *v, struct vault_entry *e)
{
    struct store_kv item = {.verb = KV_DELETE, .ns = vault_form.ns, .key = str_of(e->record)};

    store_put(v->env.store, &item, 1, true, NULL, NULL);
    entry_free(v, e);
}

static bool entry_is_over(const struct vault *v, const struct vault_entry *e)
{
    return clock_wall_ms(v->env.clock) >= e->until_ms;
}

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct vault_entry *e = xmalloc(sizeof *e);

    *e = *(struct vault_entry *)thing;
    entry_add(ctx, e);
    return true;
}

/* ---- the vault ---- */

#define MAX_ENTRIES 100000 /* above this, binding deletes the oldest */
#define MAX_INSTANCES 32

static void on_sweep(struct timer *t)
{
    struct vault *v = container_of(t, struct vault, sweep);

    list_each (&v->entries, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_entry, link);
        if (entry_is_over(v, e))
            entry_drop(v, e);
    }
    if (!list_is_empty(&v->entries))
        timer_set(v->env.clock, &v->sweep, VAULT_SWEEP_MS);
}

static void on_revoked(void *ctx, struct str id)
{
    struct vault *v = ctx;
    struct str tenant = v->env.tenants->of_gateway(v->env.tenants->ctx, id);
    size_t n = 0;

    list_each (&v->entries, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_entry, link);
        if (tenant.p == NULL || !str_eq(str_of(e->tenant), tenant))
            continue;
        entry_drop(v, e);
        n++;
    }
    if (n > 0)
        log_info(NULL, "capabilities wiped: tenant=%.*s entries=%zu", STR_FMT(tenant), n);
}

enum bh_err vault_open(const struct vault_env *env, struct vault **ret_v, char *ret_why)
{
    struct vault *v = xcalloc(1, sizeof *v);
    const struct vault_tenants *tenants = env->tenants;
    struct record_reader *reader = record_reader_new(NULL);
    struct rand r = RAND_SYSTEM;

    v->env = *env;
    handles_init(&v->ids, &r);
    list_init(&v->entries);
    timer_init(&v->sweep, on_sweep);
    enum bh_err err = record_load(env->store, &vault_form, reader, STR_NULL, on_record, v, ret_why);
    record_reader_free(reader);
    if (err != BH_OK) {
        vault_free(v);
        return err;
    }
    list_each (&v->entries, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_entry, link);
        bool orphan = tenants != NULL && !tenants->has_gateway(tenants->ctx, str_of(e->tenant));
        if (entry_is_over(v, e) || orphan) /* its tenant may have lost its gateways meanwhile */
            entry_drop(v, e);
    }
    if (env->observers != NULL && tenants != NULL)
        observers_add(env->observers, "revoked", on_revoked, v);
    *ret_v = v;
    return BH_OK;
}

void vault_free(struct vault *v)
{
    if (v == NULL)
        return;
    timer_stop(v->env.clock, &v->sweep);
    list_each (&v->entries, it, nxt)
        entry_free(v, list_entry(it, struct vault_entry, link));
    map_done(&v->by_name);
    map_done(&v->by_record);
    handles_done(&v->ids);
    free(v);
}

/* ---- binding ---- */

static bool has_instance(const struct vault_entry *e, struct str instance)
{
    struct str rest = str_of(e->instances), one;

    while (str_split(&rest, '\x1f', &one))
        if (one.n > 0 && str_eq(one, instance))
            return true;
    return false;
}

static bool add_instance(struct vault_entry *e, struct str instance)
{
    struct buf b = BUF_INIT;
    size_t n = 0;

    for (const char *p = e->instances; p != NULL && *p != '\0'; p++)
        n += *p == '\x1f';
    if (n >= MAX_INSTANCES || (e->instances != NULL && has_instance(e, instance)))
        return false;
    buf_add_str(&b, str_of(e->instances));
    buf_add_str(&b, instance);
    buf_add_c(&b, '\x1f');
    free(e->instances);
    e->instances = buf_take(&b);
    return true;
}

static struct vault_entry *entry_new(struct vault *v, const struct vault_spec *s, char *record)
{
    struct vault_entry *e = xcalloc(1, sizeof *e);
    BUF_LOCAL name = BUF_INIT;
    struct buf sealed = BUF_INIT;
    size_t n = 0;

    e->record = record;
    e->tenant = str_dup(s->tenant);
    e->kind = str_dup(s->kind);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        if (s->session_keys[i].p != NULL)
            e->keys[n++] = str_dup(s->session_keys[i]);
    e->bot = str_dup(s->bot);
    e->chat = str_dup(s->chat);
    e->scope = str_dup_opt(s->scope);
    e->place = str_dup_opt(s->place);
    e->user = str_dup_opt(s->user);
    record_seal_name(&vault_form, str_of(e->record), "sealed", &name);
    seal_secret(v->env.seal, buf_str(&name), s->value, &sealed);
    e->sealed = buf_take(&sealed);
    e->until_ms = clock_wall_ms(v->env.clock) + s->ttl_ms;
    e->used = s->used;
    return e;
}

void vault_bind(struct vault *v, const struct vault_spec *s)
{
    BUF_LOCAL record = BUF_INIT;

    buf_printf(&record, "%.*s\x1f%.*s\x1f%.*s", STR_FMT(s->tenant), STR_FMT(s->kind),
               STR_FMT(s->id));
    struct vault_entry *e = map_get(&v->by_record, buf_str(&record));
    if (e != NULL) { /* a repeated webhook, or another instance of the tenant */
        if (add_instance(e, s->instance))
            record_put(v->env.store, &vault_form, NULL, e, true, NULL, NULL);
        return;
    }
    if (map_count(&v->by_record) >= MAX_ENTRIES)
        entry_drop(v, list_first(&v->entries, struct vault_entry, link));
    e = entry_new(v, s, buf_take(&record));
    add_instance(e, s->instance);
    entry_add(v, e);
    record_put(v->env.store, &vault_form, NULL, e, true, NULL, NULL);
}

/* ---- using ---- */

static bool may_use(const struct vault_entry *e, const struct vault_user *who)
{
    return str_eq(str_of(e->bot), who->bot) && has_instance(e, who->instance);
}

static bool is_fresh(const struct vault *v, const struct vault_entry *e)
{
    return !e->used && !e->taken && !entry_is_over(v, e);
}

bool vault_take(struct vault *v, const struct vault_user *who, struct str session_key,
                struct vault_ref *ret_ref, bool *ret_first)
{
    struct vault_chain *c = find_chain(v, VAULT_BY_KEY, who->tenant, who->kind, session_key);
    struct vault_entry *found = NULL;
    bool fresh = false;

    if (c == NULL)
        return false;
    list_each (&c->handles, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_handle, link)->entry;
        if (!may_use(e, who))
            continue;
        if (!entry_is_over(v, e))
            found = e;
        if ((fresh = is_fresh(v, e)))
            break;
    }
    if (found == NULL)
        return false;
    found->taken |= fresh;
    *ret_ref = (struct vault_ref){found->id};
    *ret_first = fresh;
    return true;
}

bool vault_take_place(struct vault *v, const struct vault_user *who, struct str place,
                      struct str user, struct vault_ref *ret_ref)
{
    struct vault_chain *c = find_chain(v, VAULT_BY_PLACE, who->tenant, who->kind, place);
    struct vault_entry *found = NULL;

    if (c == NULL)
        return false;
    list_each (&c->handles, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_handle, link)->entry;
        bool theirs = user.n > 0 && e->user != NULL && str_eq(str_of(e->user), user);
        if (!is_fresh(v, e) || !may_use(e, who))
            continue;
        if (found == NULL || theirs)
            found = e;
        if (theirs)
            break;
    }
    if (found == NULL)
        return false;
    found->taken = true;
    *ret_ref = (struct vault_ref){found->id};
    return true;
}

static struct vault_entry *entry_of(const struct vault *v, struct vault_ref ref)
{
    return handles_find(&v->ids, ref.id);
}

bool vault_chat_of(struct vault *v, struct vault_ref ref, struct str *ret_chat,
                   struct str *ret_scope)
{
    const struct vault_entry *e = entry_of(v, ref);

    if (e == NULL)
        return false;
    *ret_chat = str_of(e->chat);
    *ret_scope = e->scope != NULL ? str_of(e->scope) : STR_NULL;
    return true;
}

bool vault_open_value(struct vault *v, struct vault_ref ref, struct buf *ret_plain)
{
    const struct vault_entry *e = entry_of(v, ref);
    BUF_LOCAL name = BUF_INIT;

    if (e == NULL || entry_is_over(v, e))
        return false;
    record_seal_name(&vault_form, str_of(e->record), "sealed", &name);
    return unseal_secret(v->env.seal, buf_str(&name), str_of(e->sealed), ret_plain);
}

void vault_used(struct vault *v, struct vault_ref ref)
{
    struct vault_entry *e = entry_of(v, ref);

    if (e == NULL)
        return;
    e->taken = false;
    if (e->used)
        return;
    e->used = true;
    record_put(v->env.store, &vault_form, NULL, e, true, NULL, NULL);
}

void vault_give_back(struct vault *v, struct vault_ref ref)
{
    struct vault_entry *e = entry_of(v, ref);

    if (e != NULL)
        e->taken = false;
}

size_t vault_count(const struct vault *v)
{
    return map_count(&v->by_record);
}
