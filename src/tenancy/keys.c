/* keys.c - design.  (keys.h has the contract.)
 *
 * A change is on disk before it is in memory, so a key that was shown survives a crash, and a
 * revoked key stays revoked.  The time of the last use matters less: it is written at most once a
 * minute per key, NOTES_MAX keys at a time.  These writes go to separate records, so a late write
 * never restores a key that is being revoked.
 *
 * keys_check() compares in constant time and does the same work for an unknown id. */
#include "tenancy/keys.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rand.h"
#include "core/caller.h"
#include "store/store.h"
#include "tenancy/enroll.h"

enum {
    NOTE_EVERY_MS = 60000,
    NOTES_MAX = 512, /* in one transaction */
    SECRET_BYTES = 32,
};
#define PREFIX "bhk_"

struct held {          /* a key in the table */
    struct key pub;    /* first; its texts are owned */
    struct list dirty; /* keys->dirty while its last use is not written */
    int64_t noted_ms;  /* the last use that was written */
    struct bucket_level acts;
    bool has_mac;              /* provision tokens have none: they are signed */
    bool going;                /* being revoked: its uses are not written any more */
    uint8_t mac[SHA256_BYTES]; /* of the secret, under the master key */
};

struct tenant_acts { /* the rate limits of one tenant */
    struct bucket_level acts, joins, looks;
    char tenant[];
};

struct keys {
    struct keys_env env;
    struct list all; /* struct held by age; owned */
    size_t n;
    struct map by_id;
    struct list under_way; /* changes; owned */
    struct list dirty;     /* keys whose last use is not written, in order of use */
    struct timer note;
    struct map tenants;            /* name -> struct tenant_acts; owned */
    uint8_t mac_key[SHA256_BYTES]; /* wiped */
};

/* ---- the record of a key ---- */

static const char *const kind_words[] = {[KEY_PROVISION] = "provision",
                                         [KEY_AGENT] = "agent",
                                         [KEY_HOOK] = "hook",
                                         [KEY_DASHBOARD] = "dashboard",
                                         [KEY_DASHBOARD + 1] = NULL};

const char *key_kind_word(enum key_kind kind)
{
    return kind_words[kind];
}

static const struct record_field key_fields[] = {
    RECORD_FIELD(struct held, pub.id, "id", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct held, pub.kind, "kind", RECORD_NEEDED, .words = kind_words),
    RECORD_FIELD(struct held, pub.tenant, "tenant", RECORD_NEEDED),
    RECORD_FIELD(struct held, pub.identity, "identity", 0),
    RECORD_FIELD(struct held, pub.agent, "agent", 0),
    RECORD_FIELD(struct held, pub.instance, "instance", 0),
    RECORD_FIELD(struct held, pub.ns, "namespace", 0),
    RECORD_FIELD(struct held, pub.attest, "attest", 0),
    RECORD_FIELD(struct held, pub.read_only, "read_only", 0),
    RECORD_FIELD(struct held, pub.made_ms, "made", 0),
    RECORD_FIELD(struct held, pub.until_ms, "until", 0),
    RECORD_FIELD(struct held, pub.revoked_ms, "revoked", 0),
    RECORD_FIELD(struct held, mac, "mac", 0),
    RECORD_FIELD(struct held, pub.secret, "secret", RECORD_SEALED),
};
static const struct record_form key_form = RECORD_FORM("key", struct held, key_fields);

struct key_use { /* separate from the key's record, so that a late write restores no key */
    struct str id;
    int64_t at_ms;
};
static const struct record_field use_fields[] = {
    RECORD_FIELD(struct key_use, id, "id", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct key_use, at_ms, "at", RECORD_NEEDED),
};
static const struct record_form use_form = RECORD_FORM("key_used", struct key_use, use_fields);

const struct record_form *const keys_records[] = {&key_form, &use_form, NULL};

static struct held *held_new(struct held from)
{
    struct held *h = xmalloc(sizeof *h);

    *h = from;
    h->has_mac = from.pub.kind != KEY_PROVISION;
    return h;
}

static void held_free(void *held)
{
    if (held != NULL)
        record_done(&key_form, held);
    free(held);
}

/* ---- changes ---- */

struct doing { /* a change under way */
    struct list link;
    struct keys *k;    /* borrowed */
    struct held *adds; /* owned until it is in the table; NULL: none */
    char *revokes;     /* owned; the id; NULL: none */
    enum bh_err err;   /* an error found before the write */
    char why[200];
    struct timer refused; /* tells @err when the turn ends */
    keys_done_cb *done;
    void *ctx;
};

static timer_cb on_refused;

static struct doing *doing_new(struct keys *k, keys_done_cb *done, void *ctx)
{
    struct doing *d = xcalloc(1, sizeof *d);

    *d = (struct doing){.k = k, .done = done, .ctx = ctx};
    timer_init(&d->refused, on_refused);
    list_append(&k->under_way, &d->link);
    return d;
}

static void doing_free(struct doing *d)
{
    timer_stop(d->k->env.clock, &d->refused);
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

static void keys_link(struct keys *k, struct held *h)
{
    list_append(&k->all, &h->pub.link);
    map_put(&k->by_id, str_of(h->pub.id), h);
    k->n++;
}

const struct key *keys_find(const struct keys *k, struct str id)
{
    const struct held *h = map_get(&k->by_id, id);

    return h != NULL ? &h->pub : NULL;
}

size_t keys_all(const struct keys *k, const struct list **ret_head)
{
    *ret_head = &k->all;
    return k->n;
}

/* ---- last use ---- */

static void on_note(struct timer *t)
{
    struct keys *k = container_of(t, struct keys, note);
    struct store_kv items[NOTES_MAX];
    struct buf values[NOTES_MAX] = {0};
    size_t n = 0;

    list_each (&k->dirty, it, nxt) {
        struct held *h = list_entry(it, struct held, dirty);
        if (n == NOTES_MAX)
            break;
        list_remove(&h->dirty);
        h->noted_ms = h->pub.used_ms;
        struct key_use use = {str_of(h->pub.id), h->pub.used_ms};
        record_write(&use_form, NULL, &use, NULL, &values[n]);
        items[n] = (struct store_kv){KV_PUT, use_form.ns, use.id, buf_str(&values[n])};
        n++;
    }
    if (n > 0)
        store_put(k->env.store, items, n, false, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        buf_done(&values[i]);
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

static bool held_is_over(const struct keys *k, const struct held *h)
{
    return h->pub.revoked_ms != 0 ||
           (h->pub.until_ms != 0 && h->pub.until_ms <= clock_wall_ms(k->env.clock));
}

bool keys_is_good(const struct keys *k, struct str id)
{
    const struct held *h = map_get(&k->by_id, id);

    return h != NULL && !held_is_over(k, h);
}

const struct key *keys_check(struct keys *k, enum key_kind kind, struct str text)
{
    static const uint8_t nothing[SHA256_BYTES];
    const size_t head_n = sizeof PREFIX - 1 + KEY_ID_CHARS;
    uint8_t mac[SHA256_BYTES];

    if (text.n <= head_n || text.n > KEY_TEXT_MAX || !str_starts(text, STR(PREFIX)))
        return NULL;
    struct held *h = map_get(&k->by_id, str_make(text.p + sizeof PREFIX - 1, KEY_ID_CHARS));
    bool known = h != NULL && h->has_mac;
    /* Of the whole key with its id, so that a secret is valid only with its own id. */
    hmac_sha256(str_make(k->mac_key, sizeof k->mac_key), text, mac);
    if (!ct_equal(mac, known ? h->mac : nothing, sizeof mac) || !known)
        return NULL;
    if (h->pub.kind != kind || held_is_over(k, h))
        return NULL;
    was_used(k, h);
    return &h->pub;
}

static struct tenant_acts *acts_of(struct keys *k, struct str tenant)
{
    struct tenant_acts *t = map_get(&k->tenants, tenant);

    if (t == NULL) {
        t = xcalloc(1, sizeof *t + tenant.n + 1);
        memcpy(t->tenant, tenant.p, tenant.n);
        map_put(&k->tenants, str_make(t->tenant, tenant.n), t);
    }
    return t;
}

bool keys_may_act(struct keys *k, const struct key *key, uint32_t key_per_s, uint32_t tenant_per_s)
{
    struct held *h = map_get(&k->by_id, str_of(key->id));
    int64_t now_ms = clock_now_ms(k->env.clock);

    return h != NULL && bucket_take(&h->acts, now_ms, key_per_s, 2 * key_per_s) &&
           bucket_take(&acts_of(k, str_of(key->tenant))->acts, now_ms, tenant_per_s,
                       2 * tenant_per_s);
}

bool keys_tenant_may_act(struct keys *k, struct str tenant, uint32_t per_s)
{
    return bucket_take(&acts_of(k, tenant)->acts, clock_now_ms(k->env.clock), per_s, 2 * per_s);
}

bool keys_may_join(struct keys *k, struct str tenant, uint32_t per_s)
{
    return bucket_take(&acts_of(k, tenant)->joins, clock_now_ms(k->env.clock), per_s, 20 * per_s);
}

bool keys_may_look(struct keys *k, struct str tenant)
{
    return bucket_take(&acts_of(k, tenant)->looks, clock_now_ms(k->env.clock), KEYS_LOOKS_S,
                       KEYS_LOOKS_ONCE);
}

/* ---- making ---- */

static void on_made(void *ctx, enum bh_err err)
{
    struct doing *d = ctx;

    if (err == BH_OK) {
        struct held *h = d->adds;
        d->adds = NULL;
        keys_link(d->k, h);
    }
    finish(d, err, "the store could not write it");
}

/* Ends the change with an error; done() runs when the turn ends. */
static void refuse(struct doing *d, enum bh_err err, const char *what, const char *why)
{
    d->err = err;
    snprintf(d->why, sizeof d->why, "%s%s", what, why);
    timer_set(d->k->env.clock, &d->refused, 0);
}

static void on_refused(struct timer *t)
{
    struct doing *d = container_of(t, struct doing, refused);

    finish(d, d->err, d->why);
}

static void write_key(struct doing *d)
{
    BUF_SECRET value = BUF_INIT;

    record_write(&key_form, d->k->env.seal, d->adds, NULL, &value);
    struct store_kv item = {KV_INSERT, key_form.ns, str_of(d->adds->pub.id), buf_str(&value)};
    store_put(d->k->env.store, &item, 1, true, on_made, d);
}

/* Returns the first invalid member as the start of a sentence; NULL: all are valid. */
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
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        bool needed = i == 0 && s->kind != KEY_DASHBOARD;
        if ((needed || names[i].name.p != NULL) && !facts_name_ok(names[i].name))
            return names[i].what;
    }
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
    struct str identity = spec->identity.p != NULL   ? spec->identity
                          : spec->agent.p != NULL    ? spec->agent
                          : spec->instance.p != NULL ? spec->instance
                                                     : spec->tenant;
    struct held h = {
        .pub = {.kind = spec->kind,
                .attest = spec->attest,
                .read_only = spec->read_only,
                .id = str_dup(buf_str(&ret_made->id)),
                .tenant = str_dup(spec->tenant.p != NULL ? spec->tenant : STR("")),
                .identity = str_dup_opt(identity),
                .agent = str_dup_opt(spec->agent),
                .instance = str_dup_opt(spec->instance),
                .ns = str_dup_opt(spec->ns),
                .secret = spec->with_secret ? str_dup(buf_str(&ret_made->secret)) : NULL,
                .made_ms = now_ms,
                .until_ms = spec->ttl_ms > 0 ? now_ms + spec->ttl_ms : 0}};
    hmac_sha256(str_make(k->mac_key, sizeof k->mac_key), buf_str(&ret_made->text), h.mac);
    d->adds = held_new(h);
    write_key(d);
}

/* ---- revoking ---- */

static void on_revoked(void *ctx, enum bh_err err)
{
    struct doing *d = ctx;
    struct keys *k = d->k;
    struct held *h = map_get(&k->by_id, str_of(d->revokes));

    if (h != NULL && err != BH_OK) {
        h->going = false;
    } else if (h != NULL && h->pub.kind == KEY_PROVISION) {
        h->pub.revoked_ms = clock_wall_ms(k->env.clock);
    } else if (h != NULL) {
        map_del(&k->by_id, str_of(h->pub.id));
        list_remove(&h->pub.link);
        list_remove(&h->dirty);
        k->n--;
        clock_defer(k->env.clock, held_free, h); /* keys_check() may have returned it just now */
    }
    finish(d, err, "the store could not write it");
}

void keys_revoke(struct keys *k, struct str id, keys_done_cb *done, void *ctx)
{
    struct doing *d = doing_new(k, done, ctx);
    struct held *h = map_get(&k->by_id, id);
    BUF_LOCAL value = BUF_INIT;

    if (h == NULL || h->going || h->pub.revoked_ms != 0) {
        refuse(d, BH_NOT_FOUND, "", "there is no such key; bellhop token list shows them");
        return;
    }
    h->going = true;
    list_remove(&h->dirty);
    d->revokes = xstrdup(h->pub.id);
    struct store_kv items[] = {
        {.verb = KV_DELETE, .ns = use_form.ns, .key = str_of(d->revokes)},
        {.verb = KV_DELETE, .ns = key_form.ns, .key = str_of(d->revokes)},
    };
    if (h->pub.kind == KEY_PROVISION) { /* its signature stays valid, so keep a tombstone */
        struct held gone = *h;
        gone.pub.revoked_ms = clock_wall_ms(k->env.clock);
        record_write(&key_form, k->env.seal, &gone, NULL, &value);
        items[1].verb = KV_PUT;
        items[1].value = buf_str(&value);
    }
    store_put(k->env.store, items, ARRAY_LEN(items), true, on_revoked, d);
}

/* ---- provision tokens ---- */

static struct str token_id(const struct local_token *t)
{
    return str_make(t->nonce.p, t->nonce.n < KEY_ID_CHARS ? t->nonce.n : KEY_ID_CHARS);
}

static struct held *provision_new(const struct local_token *t, int64_t made_ms)
{
    return held_new((struct held){.pub = {.kind = KEY_PROVISION,
                                          .id = str_dup(token_id(t)),
                                          .tenant = str_dup(t->tenant),
                                          .made_ms = made_ms,
                                          .until_ms = t->exp_ms}});
}

void keys_note_minted(struct keys *k, const struct local_token *t, keys_done_cb *done, void *ctx)
{
    struct doing *d = doing_new(k, done, ctx);

    d->adds = provision_new(t, clock_wall_ms(k->env.clock));
    write_key(d);
}

bool keys_admit(struct keys *k, const struct local_token *t)
{
    struct held *h = map_get(&k->by_id, token_id(t));

    if (h == NULL) { /* restored from a backup older than the token */
        h = provision_new(t, 0);
        keys_link(k, h);
        record_put(k->env.store, &key_form, k->env.seal, h, false, NULL, NULL);
    }
    if (held_is_over(k, h))
        return false;
    was_used(k, h);
    return true;
}

/* ---- start and end ---- */

struct key_loading {
    struct keys *k;
    struct held **found; /* owned array */
    size_t n, cap;
};

static bool on_key(void *ctx, struct str id, void *thing)
{
    struct key_loading *l = ctx;
    struct held *h = thing;
    static const uint8_t nothing[SHA256_BYTES];
    bool provision = h->pub.kind == KEY_PROVISION;

    if ((memcmp(h->mac, nothing, sizeof h->mac) == 0) != provision) {
        record_done(&key_form, h);
        return false;
    }
    if (provision && h->pub.until_ms <= clock_wall_ms(l->k->env.clock)) {
        record_delete(l->k->env.store, &key_form, id);
        record_done(&key_form, h);
        return true;
    }
    l->found = xgrow(l->found, l->n, &l->cap, sizeof(struct held *));
    l->found[l->n++] = held_new(*h);
    return true;
}

static bool on_use(void *ctx, struct str id, void *thing)
{
    const struct key_loading *l = ctx;
    struct held *h = map_get(&l->k->by_id, id);

    if (h != NULL)
        h->pub.used_ms = h->noted_ms = ((const struct key_use *)thing)->at_ms;
    return true;
}

static int by_age(const void *a, const void *b)
{
    const struct key *x = &(*(struct held *const *)a)->pub, *y = &(*(struct held *const *)b)->pub;

    if (x->made_ms != y->made_ms)
        return x->made_ms < y->made_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

static enum bh_err keys_load(struct keys *k, char *ret_why)
{
    struct key_loading l = {.k = k};
    struct record_reader *reader = record_reader_new(k->env.seal);
    struct store *st = k->env.store;
    enum bh_err err = record_load(st, &key_form, reader, STR_NULL, on_key, &l, ret_why);

    if (l.n > 0)
        qsort(l.found, l.n, sizeof(struct held *), by_age);
    for (size_t i = 0; i < l.n; i++)
        keys_link(k, l.found[i]);
    free(l.found);
    if (err == BH_OK)
        err = record_load(st, &use_form, reader, STR_NULL, on_use, &l, ret_why);
    record_reader_free(reader);
    return err;
}

enum bh_err keys_open(const struct keys_env *env, struct keys **ret_k, char *ret_why)
{
    struct keys *k = xcalloc(1, sizeof *k);

    k->env = *env;
    list_init(&k->all);
    list_init(&k->under_way);
    list_init(&k->dirty);
    timer_init(&k->note, on_note);
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
    if (k == NULL)
        return;
    timer_stop(k->env.clock, &k->note);
    list_each (&k->under_way, it, nxt)
        doing_free(list_entry(it, struct doing, link));
    list_each (&k->all, it, nxt)
        held_free(list_entry(it, struct held, pub.link));
    map_done_all(&k->tenants);
    map_done(&k->by_id);
    secret_wipe(k->mac_key, sizeof k->mac_key);
    free(k);
}
