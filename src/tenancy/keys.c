/* keys.c - design.  (keys.h has the contract.)
 *
 * A change is on disk before it is in memory, so a key that was shown to somebody survives a crash
 * and a revoked one stays revoked.  When a key was used last is worth less: it is noted at most
 * once a minute per key and NOTES_MAX at a time, in records of their own, so that a note on its way
 * never brings back a key that is being revoked.
 *
 * A bearer of a known id is compared in constant time; one of an unknown id costs the same work. */
#include "tenancy/keys.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "base/rand.h"
#include "bus/bus.h"
#include "core/caller.h"
#include "store/store.h"
#include "tenancy/enroll.h"
#include "tenancy/keys_priv.h"

enum {
    NOTE_EVERY_MS = 60000,
    NOTES_MAX = 512, /* in one transaction */
    SECRET_BYTES = 32,
};
#define PREFIX "bhk_"

struct doing { /* a change on its way to the disk */
    struct list link;
    struct keys *k;    /* borrowed */
    struct held *adds; /* owned until it is in the table; NULL: none */
    char *revokes;     /* owned; the id; NULL: none */
    enum bh_err err;   /* known before anything was written */
    char why[200];
    keys_done_cb *done;
    void *ctx;
};

static struct doing *doing_new(struct keys *k, keys_done_cb *done, void *ctx)
{
    struct doing *d = xcalloc(1, sizeof *d);

    *d = (struct doing){.k = k, .done = done, .ctx = ctx};
    list_append(&k->under_way, &d->link);
    return d;
}

static void doing_free(struct doing *d)
{
    list_remove(&d->link);
    held_free(d->adds);
    free(d->revokes);
    free(d);
}

static void finish(struct doing *d, enum bh_err err, const char *why)
{
    keys_done_cb *done = d->done;
    void *ctx = d->ctx;
    char said[sizeof d->why];

    snprintf(said, sizeof said, "%s", why);
    doing_free(d);
    if (done != NULL)
        done(ctx, err, err == BH_OK ? NULL : said);
}

/* ---- the table ---- */

void keys_link(struct keys *k, struct held *h)
{
    list_append(&k->all, &h->pub.link);
    map_put(&k->by_id, str_of(h->pub.id), h);
    k->n++;
}

static void free_later(void *held)
{
    held_free(held);
}

static void unlink_key(struct keys *k, struct held *h)
{
    map_del(&k->by_id, str_of(h->pub.id));
    list_remove(&h->pub.link);
    list_remove(&h->dirty);
    k->n--;
    clock_defer(k->env.clock, free_later, h); /* somebody may be looking at it in this turn */
}

static struct held *find(const struct keys *k, struct str id)
{
    return map_get(&k->by_id, id);
}

const struct key *keys_find(const struct keys *k, struct str id)
{
    const struct held *h = find(k, id);

    return h != NULL ? &h->pub : NULL;
}

size_t keys_all(const struct keys *k, const struct list **ret_head)
{
    *ret_head = &k->all;
    return k->n;
}

static void announce(struct keys *k, const char *what, const char *id)
{
    struct buf message = BUF_INIT;

    buf_printf(&message, "%s %s", what, id);
    bus_publish(k->env.bus, STR("keys"), buf_str(&message));
    buf_done(&message);
}

/* ---- when it was used ---- */

static void on_note(struct timer *t)
{
    struct keys *k = container_of(t, struct keys, note);
    struct store_kv items[NOTES_MAX];
    struct buf values = {.limit = NOTES_MAX * 24};
    size_t n = 0, at[NOTES_MAX + 1];

    list_each (&k->dirty, it, nxt) {
        struct held *h = list_entry(it, struct held, dirty);
        if (n == NOTES_MAX)
            break;
        list_remove(&h->dirty);
        h->noted_ms = h->pub.used_ms;
        at[n] = values.n;
        buf_add_i64(&values, h->pub.used_ms);
        items[n++] = (struct store_kv){.verb = KV_PUT, .ns = NS_KEY_USED, .key = str_of(h->pub.id)};
    }
    at[n] = values.n;
    for (size_t i = 0; i < n; i++)
        items[i].value = str_make(values.p + at[i], at[i + 1] - at[i]);
    if (n > 0)
        store_put(k->env.store, items, n, false, NULL, NULL);
    buf_done(&values);
    if (!list_is_empty(&k->dirty))
        timer_set(k->env.clock, &k->note, NOTE_EVERY_MS);
}

static void was_used(struct keys *k, struct held *h)
{
    h->pub.used_ms = clock_wall_ms(k->env.clock);
    if (h->going || list_is_linked(&h->dirty) || h->pub.used_ms - h->noted_ms < NOTE_EVERY_MS)
        return;
    list_append(&k->dirty, &h->dirty);
    if (!timer_is_set(&k->note))
        timer_set(k->env.clock, &k->note, h->noted_ms == 0 ? 1000 : NOTE_EVERY_MS);
}

/* ---- checking ---- */

/* Of the whole text, id included: a secret is good with its own id only. */
static void fingerprint(const struct keys *k, struct str text, uint8_t ret_mac[SHA256_BYTES])
{
    hmac_sha256(str_make(k->mac_key, sizeof k->mac_key), text, ret_mac);
}

bool held_is_over(const struct keys *k, const struct held *h)
{
    return h->pub.revoked_ms != 0 ||
           (h->pub.until_ms != 0 && h->pub.until_ms <= clock_wall_ms(k->env.clock));
}

const struct key *keys_check(struct keys *k, enum key_kind kind, struct str text)
{
    static const uint8_t nothing[SHA256_BYTES];
    const size_t head_n = sizeof PREFIX - 1 + KEY_ID_CHARS;
    uint8_t mac[SHA256_BYTES];

    if (text.n <= head_n || text.n > KEY_TEXT_MAX || !str_starts(text, STR(PREFIX)))
        return NULL;
    struct held *h = find(k, str_make(text.p + sizeof PREFIX - 1, KEY_ID_CHARS));
    bool known = h != NULL && h->has_mac;
    fingerprint(k, text, mac);
    if (!ct_equal(mac, known ? h->mac : nothing, sizeof mac) || !known)
        return NULL;
    if (h->pub.kind != kind || held_is_over(k, h))
        return NULL;
    was_used(k, h);
    return &h->pub;
}

static struct tenant_acts *acts_of(struct keys *k, const char *tenant)
{
    struct tenant_acts *t = map_get(&k->tenants, str_of(tenant));

    if (t == NULL) {
        size_t n = strlen(tenant);
        t = xcalloc(1, sizeof *t + n + 1);
        memcpy(t->tenant, tenant, n);
        map_put(&k->tenants, str_make(t->tenant, n), t);
    }
    return t;
}

bool keys_may_act(struct keys *k, const struct key *key, uint32_t key_per_s, uint32_t tenant_per_s)
{
    struct held *h = find(k, str_of(key->id));
    int64_t now_ms = clock_now_ms(k->env.clock);

    return h != NULL && bucket_take(&h->acts, now_ms, key_per_s, 2 * key_per_s) &&
           bucket_take(&acts_of(k, key->tenant)->acts, now_ms, tenant_per_s, 2 * tenant_per_s);
}

bool keys_may_join(struct keys *k, const char *tenant, uint32_t per_s)
{
    return bucket_take(&acts_of(k, tenant)->joins, clock_now_ms(k->env.clock), per_s, 20 * per_s);
}

/* ---- making ---- */

static void on_made(void *ctx, enum bh_err err)
{
    struct doing *d = ctx;

    if (err == BH_OK) {
        struct held *h = d->adds;
        d->adds = NULL;
        keys_link(d->k, h);
        announce(d->k, "made", h->pub.id);
    }
    finish(d, err, "the store could not write it");
}

/* The answer comes later, as always. */
static void refuse(struct doing *d, enum bh_err err, const char *what, const char *why)
{
    d->err = err;
    snprintf(d->why, sizeof d->why, "%s%s", what, why);
    timer_set(d->k->env.clock, &d->k->refuse, 0);
}

static void on_refuse(struct timer *t)
{
    struct keys *k = container_of(t, struct keys, refuse);

    list_each (&k->under_way, it, nxt) {
        struct doing *d = list_entry(it, struct doing, link);
        if (d->err != BH_OK)
            finish(d, d->err, d->why);
    }
}

static void write_key(struct doing *d)
{
    struct buf value = BUF_INIT;

    held_write(d->k, d->adds, &value);
    struct store_kv item = {.verb = KV_INSERT,
                            .ns = NS_KEY,
                            .key = str_of(d->adds->pub.id),
                            .value = buf_str(&value)};
    store_put(d->k->env.store, &item, 1, true, on_made, d);
    buf_wipe(&value);
}

/* NULL: all of them can be used; else which cannot, as the beginning of a sentence. */
static const char *bad_name(const struct key_spec *s, const char **ret_rule)
{
    const struct {
        const char *what;
        struct str name;
    } names[] = {{"tenant", s->tenant},
                 {"identity", s->identity},
                 {"agent", s->agent},
                 {"instance", s->instance}};

    *ret_rule = " must be 1 to 128 printable characters without blanks";
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if ((i == 0 || names[i].name.p != NULL) && !facts_name_ok(names[i].name))
            return names[i].what;
    *ret_rule = " must be 1 to 64 letters, digits, dots, dashes or underscores";
    return s->ns.p != NULL && !caller_ns_valid(s->ns) ? "namespace" : NULL;
}

static void make_texts(struct keys *k, const struct key_spec *s, struct key_made *m)
{
    uint8_t raw[SECRET_BYTES];

    rand_bytes(k->env.rand, raw, KEY_ID_CHARS / 2);
    hex_add(&m->id, raw, KEY_ID_CHARS / 2);
    rand_bytes(k->env.rand, raw, sizeof raw);
    buf_printf(&m->text, PREFIX "%.*s_", STR_FMT(buf_str(&m->id)));
    base64url_add(&m->text, raw, sizeof raw);
    if (s->with_secret) {
        rand_bytes(k->env.rand, raw, sizeof raw);
        hex_add(&m->secret, raw, sizeof raw);
    }
    secret_wipe(raw, sizeof raw);
}

void key_made_done(struct key_made *m)
{
    buf_done(&m->id);
    buf_wipe(&m->text);
    buf_wipe(&m->secret);
}

static struct str first_of(struct str a, struct str b, struct str c, struct str d)
{
    return a.p != NULL ? a : b.p != NULL ? b : c.p != NULL ? c : d;
}

void keys_make(struct keys *k, const struct key_spec *spec, struct key_made *ret_made,
               keys_done_cb *done, void *ctx)
{
    struct doing *d = doing_new(k, done, ctx);
    const char *rule, *bad = bad_name(spec, &rule);
    int64_t now_ms = clock_wall_ms(k->env.clock);

    if (bad != NULL) {
        refuse(d, BH_MALFORMED, bad, rule);
        return;
    }
    make_texts(k, spec, ret_made);
    struct key_parts p = {.kind = spec->kind,
                          .attest = spec->attest,
                          .has_mac = true,
                          .id = buf_str(&ret_made->id),
                          .tenant = spec->tenant,
                          .identity =
                              first_of(spec->identity, spec->agent, spec->instance, spec->tenant),
                          .agent = spec->agent,
                          .instance = spec->instance,
                          .ns = spec->ns,
                          .secret = spec->with_secret ? buf_str(&ret_made->secret) : STR_NULL,
                          .made_ms = now_ms,
                          .until_ms = spec->ttl_ms > 0 ? now_ms + spec->ttl_ms : 0};
    fingerprint(k, buf_str(&ret_made->text), p.mac);
    d->adds = held_new(&p);
    write_key(d);
}

/* ---- revoking ---- */

static void on_revoked(void *ctx, enum bh_err err)
{
    struct doing *d = ctx;
    struct held *h = find(d->k, str_of(d->revokes));

    if (h != NULL && err == BH_OK) {
        announce(d->k, "revoked", h->pub.id);
        if (h->pub.kind == KEY_PROVISION)
            h->pub.revoked_ms = clock_wall_ms(d->k->env.clock);
        else
            unlink_key(d->k, h);
    } else if (h != NULL) {
        h->going = false;
    }
    finish(d, err, "the store could not write it");
}

void keys_revoke(struct keys *k, struct str id, keys_done_cb *done, void *ctx)
{
    struct doing *d = doing_new(k, done, ctx);
    struct held *h = find(k, id);
    struct buf value = BUF_INIT;
    size_t n = 0;

    if (h == NULL || h->going || h->pub.revoked_ms != 0) {
        refuse(d, BH_NOT_FOUND, "", "there is no such key; bellhop token list shows them");
        return;
    }
    h->going = true;
    list_remove(&h->dirty);
    d->revokes = xstrdup(h->pub.id);
    struct store_kv items[2] = {
        {.verb = KV_DELETE, .ns = NS_KEY_USED, .key = str_of(d->revokes)},
        {.verb = KV_DELETE, .ns = NS_KEY, .key = str_of(d->revokes)},
    };
    n = ARRAY_LEN(items);
    if (h->pub.kind == KEY_PROVISION) { /* its signature stays good: remember that it is not */
        h->pub.revoked_ms = clock_wall_ms(k->env.clock);
        held_write(k, h, &value);
        h->pub.revoked_ms = 0;
        items[1].verb = KV_PUT;
        items[1].value = buf_str(&value);
    }
    store_put(k->env.store, items, n, true, on_revoked, d);
    buf_done(&value);
}

/* ---- provision tokens ---- */

static struct str token_id(const struct local_token *t)
{
    return str_make(t->nonce.p, t->nonce.n < KEY_ID_CHARS ? t->nonce.n : KEY_ID_CHARS);
}

static struct held *provision_new(const struct local_token *t, int64_t made_ms)
{
    return held_new(&(struct key_parts){.kind = KEY_PROVISION,
                                        .id = token_id(t),
                                        .tenant = t->tenant,
                                        .made_ms = made_ms,
                                        .until_ms = t->exp_ms});
}

void keys_note_minted(struct keys *k, const struct local_token *t, keys_done_cb *done, void *ctx)
{
    struct doing *d = doing_new(k, done, ctx);

    d->adds = provision_new(t, clock_wall_ms(k->env.clock));
    write_key(d);
}

bool keys_admit(struct keys *k, const struct local_token *t)
{
    struct held *h = find(k, token_id(t));

    if (h == NULL) {
        h = provision_new(t, 0);
        keys_link(k, h);
        struct buf value = BUF_INIT;
        held_write(k, h, &value);
        struct store_kv item = {.verb = KV_PUT,
                                .ns = NS_KEY,
                                .key = str_of(h->pub.id),
                                .value = buf_str(&value)};
        store_put(k->env.store, &item, 1, false, NULL, NULL);
        buf_done(&value);
    }
    if (held_is_over(k, h))
        return false;
    was_used(k, h);
    return true;
}

/* ---- start and end ---- */

enum bh_err keys_open(const struct keys_env *env, struct keys **ret_k, char *ret_why)
{
    struct keys *k = xcalloc(1, sizeof *k);

    k->env = *env;
    list_init(&k->all);
    list_init(&k->under_way);
    list_init(&k->dirty);
    timer_init(&k->note, on_note);
    timer_init(&k->refuse, on_refuse);
    seal_mac(env->seal, STR("keys of programs"), STR(""), k->mac_key);
    enum bh_err err = keys_load(k, ret_why);
    if (err == BH_OK)
        *ret_k = k;
    else
        keys_free(k);
    return err;
}

void keys_free(struct keys *k)
{
    void *v;

    if (k == NULL)
        return;
    timer_stop(k->env.clock, &k->note);
    timer_stop(k->env.clock, &k->refuse);
    list_each (&k->under_way, it, nxt)
        doing_free(list_entry(it, struct doing, link));
    list_each (&k->all, it, nxt)
        held_free(list_entry(it, struct held, pub.link));
    for (size_t i = 0; map_next(&k->tenants, &i, &v);)
        free(v);
    map_done(&k->tenants);
    map_done(&k->by_id);
    secret_wipe(k->mac_key, sizeof k->mac_key);
    free(k);
}
