/* vault.c - design.  (vault.h has the contract, vault_entry.c the entries.)
 *
 * The seal is bound to tenant, kind and id: a record that is copied under another tenant's name
 * does not open.  Wall clock, because a life goes on while we are not running. */
#include "edge/vault.h"
#include <stdlib.h>
#include "base/log.h"
#include "base/mem.h"
#include "bus/bus.h"
#include "edge/vault_priv.h"
#include "store/store.h"

#define MAX_ENTRIES 100000 /* past it the oldest goes */
#define MAX_INSTANCES 32

static void on_sweep(struct timer *t)
{
    struct vault *v = container_of(t, struct vault, sweep);

    list_each (&v->entries, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_entry, link);
        if (vault_entry_is_over(v, e))
            vault_entry_drop(v, e);
    }
    if (!list_is_empty(&v->entries))
        timer_set(v->env.clock, &v->sweep, VAULT_SWEEP_MS);
}

static void on_revoked(void *ctx, struct str topic, struct str id)
{
    struct vault *v = ctx;
    struct str tenant = v->env.tenants->of_gateway(v->env.tenants->ctx, id);
    size_t n = tenant.p != NULL ? vault_wipe(v, tenant) : 0;

    (void)topic;
    if (n > 0)
        log_info(NULL, "capabilities wiped: tenant=%.*s entries=%zu", STR_FMT(tenant), n);
}

/* A revocation may have come while nobody listened. */
static bool is_orphan(const struct vault *v, const struct vault_entry *e)
{
    const struct vault_tenants *t = v->env.tenants;

    return t != NULL && !t->has_gateway(t->ctx, str_of(e->tenant));
}

enum bh_err vault_open(const struct vault_env *env, struct vault **ret_v, char *ret_why)
{
    struct vault *v = xcalloc(1, sizeof *v);

    v->env = *env;
    list_init(&v->entries);
    timer_init(&v->sweep, on_sweep);
    enum bh_err err = vault_load(v, ret_why);
    if (err != BH_OK) {
        vault_free(v);
        return err;
    }
    list_each (&v->entries, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_entry, link);
        if (vault_entry_is_over(v, e) || is_orphan(v, e))
            vault_entry_drop(v, e);
    }
    if (env->bus != NULL && env->tenants != NULL)
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
        vault_entry_free(v, list_entry(it, struct vault_entry, link));
    map_done(&v->by_name);
    map_done(&v->by_record);
    map_done(&v->by_number);
    free(v);
}

/* ---- binding ---- */

static bool may_use(const struct vault_entry *e, struct str instance)
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
    if (n >= MAX_INSTANCES || (e->instances != NULL && may_use(e, instance)))
        return false;
    buf_add_str(&b, str_of(e->instances));
    buf_add_str(&b, instance);
    buf_add_c(&b, '\x1f');
    free(e->instances);
    e->instances = buf_take(&b);
    return true;
}

/* The value stays sealed in memory, and is opened when somebody uses it. */
static void sealed_name(const struct vault_entry *e, struct buf *out)
{
    record_seal_name(&vault_form, str_of(e->record), "sealed", out);
}

static char *dup_opt(struct str s)
{
    return s.p != NULL ? str_dup(s) : NULL;
}

static struct vault_entry *entry_new(struct vault *v, const struct vault_spec *s, char *record)
{
    struct vault_entry *e = xcalloc(1, sizeof *e);
    struct buf name = BUF_INIT, sealed = BUF_INIT;
    size_t n = 0;

    e->record = record;
    e->tenant = str_dup(s->tenant);
    e->kind = str_dup(s->kind);
    for (size_t i = 0; i < VAULT_KEYS; i++)
        if (s->session_keys[i].p != NULL)
            e->keys[n++] = str_dup(s->session_keys[i]);
    e->place = dup_opt(s->place);
    e->user = dup_opt(s->user);
    sealed_name(e, &name);
    seal_secret(v->env.seal, buf_str(&name), s->value, &sealed);
    e->sealed = buf_take(&sealed);
    buf_done(&name);
    e->until_ms = clock_wall_ms(v->env.clock) + s->life_ms;
    e->used = s->used;
    return e;
}

void vault_bind(struct vault *v, const struct vault_spec *s)
{
    struct buf record = BUF_INIT;

    buf_printf(&record, "%.*s\x1f%.*s\x1f%.*s", STR_FMT(s->tenant), STR_FMT(s->kind),
               STR_FMT(s->id));
    struct vault_entry *e = map_get(&v->by_record, buf_str(&record));
    if (e != NULL) { /* a request that was repeated, or another instance of the tenant */
        buf_done(&record);
        if (add_instance(e, s->instance))
            vault_entry_save(v, e);
        return;
    }
    if (map_count(&v->by_record) >= MAX_ENTRIES)
        vault_entry_drop(v, list_first(&v->entries, struct vault_entry, link));
    e = entry_new(v, s, buf_take(&record));
    add_instance(e, s->instance);
    vault_entry_add(v, e);
    vault_entry_save(v, e);
}

/* ---- using ---- */

static bool is_fresh(const struct vault *v, const struct vault_entry *e)
{
    return !e->used && !e->taken && !vault_entry_is_over(v, e);
}

bool vault_take(struct vault *v, struct str tenant, struct str session_key, struct str kind,
                struct vault_ref *ret_ref, bool *ret_first)
{
    struct vault_chain *c = vault_find_chain(v, VAULT_BY_KEY, tenant, kind, session_key);
    struct vault_entry *found = NULL;

    if (c == NULL)
        return false;
    list_each (&c->handles, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_handle, link)->entry;
        if (is_fresh(v, e)) {
            e->taken = true;
            *ret_ref = (struct vault_ref){e->number};
            *ret_first = true;
            return true;
        }
        if (!vault_entry_is_over(v, e))
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
    struct vault_chain *c = vault_find_chain(v, VAULT_BY_PLACE, tenant, kind, place);
    struct vault_entry *found = NULL;

    if (c == NULL)
        return false;
    list_each (&c->handles, it, nxt) {
        struct vault_entry *e = list_entry(it, struct vault_handle, link)->entry;
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

static struct vault_entry *entry_of(const struct vault *v, struct vault_ref ref)
{
    return map_get(&v->by_number, vault_number_key(&ref.number));
}

bool vault_open_value(struct vault *v, struct vault_ref ref, struct buf *ret_plain)
{
    const struct vault_entry *e = entry_of(v, ref);
    struct buf name = BUF_INIT;

    if (e == NULL || vault_entry_is_over(v, e))
        return false;
    sealed_name(e, &name);
    bool ok = unseal_secret(v->env.seal, buf_str(&name), str_of(e->sealed), ret_plain);
    buf_done(&name);
    return ok;
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
    vault_entry_save(v, e);
}

void vault_give_back(struct vault *v, struct vault_ref ref)
{
    struct vault_entry *e = entry_of(v, ref);

    if (e != NULL)
        e->taken = false;
}

size_t vault_wipe(struct vault *v, struct str tenant)
{
    struct vault_chain *c;
    size_t n = 0;

    for (; (c = vault_find_chain(v, VAULT_BY_TENANT, tenant, STR_NULL, STR_NULL)) != NULL; n++)
        vault_entry_drop(v, list_first(&c->handles, struct vault_handle, link)->entry);
    return n;
}

size_t vault_count(const struct vault *v)
{
    return map_count(&v->by_record);
}
