/* links.c - link codes, by which a person proves that an account is theirs.  (See grants.h.)
 *
 *      instance asks -> code, shown once -> the person sends "/link CODE" to the bot -> binding
 *
 * The store has only an HMAC of a code under the master key, because a plain hash of eight
 * characters could be reversed.  The transaction that writes the binding deletes the code, so of
 * two people who send it at once, one is linked.  A rate limit stops guessing: LINK_TRIES wrong
 * codes per person and hour.  The table of tries is bounded and drops the oldest first. */
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "base/rand.h"
#include "tenancy/grants_priv.h"

#define TRIES_MAX 20000 /* people in the table of tries */

static const char letters[] = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"; /* no look-alikes */

struct code {
    struct list link; /* instance->codes, oldest first */
    struct instance_facts *to;
    int64_t until_ms; /* wall clock */
    char hash[2 * SHA256_BYTES + 1];
    char platform[]; /* "": any */
};

struct tries {        /* wrong codes of one person */
    struct list link; /* facts->tries_by_age */
    int64_t since_ms;
    unsigned n;
    size_t key_n;
    char key[];
};

struct code_record { /* texts are borrowed */
    struct str hash, tenant, instance, platform;
    int64_t until_ms;
};
static const struct record_field code_fields[] = {
    RECORD_FIELD(struct code_record, hash, "hash", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct code_record, tenant, "tenant", RECORD_NEEDED, .max = NAME_BYTES),
    RECORD_FIELD(struct code_record, instance, "instance", RECORD_NEEDED, .max = NAME_BYTES),
    RECORD_FIELD(struct code_record, platform, "platform", 0, .max = NAME_BYTES),
    RECORD_FIELD(struct code_record, until_ms, "until", RECORD_NEEDED),
};
const struct record_form link_code_form = RECORD_FORM("link_code", struct code_record, code_fields);

static void hash_code(const struct facts *f, struct str code, char ret_hash[2 * SHA256_BYTES + 1])
{
    uint8_t mac[SHA256_BYTES];
    struct buf hex = BUF_INIT;

    seal_mac(f->env.seal, STR("link code"), code, mac);
    hex_add(&hex, mac, sizeof mac);
    snprintf(ret_hash, 2 * SHA256_BYTES + 1, "%s", buf_z(&hex));
    buf_done(&hex);
}

static struct code *code_new(struct instance_facts *to, struct str platform, int64_t until_ms)
{
    struct code *k = xcalloc(1, sizeof *k + platform.n + 1);

    list_init(&k->link);
    k->to = to;
    k->until_ms = until_ms;
    if (platform.n > 0)
        memcpy(k->platform, platform.p, platform.n);
    return k;
}

static void code_attach(struct facts *f, struct code *k)
{
    list_append(&k->to->codes, &k->link);
    map_put(&f->codes, str_of(k->hash), k);
}

static void code_drop(struct facts *f, struct code *k)
{
    map_del(&f->codes, str_of(k->hash));
    list_remove(&k->link);
    free(k);
}

/* Deletes the instance's expired codes from memory and from the store. */
static void drop_expired(struct facts *f, struct instance_facts *in)
{
    int64_t now_ms = clock_wall_ms(f->env.clock);

    list_each (&in->codes, it, nxt) {
        struct code *k = list_entry(it, struct code, link);
        if (k->until_ms > now_ms)
            continue;
        record_delete(f->env.store, &link_code_form, str_of(k->hash));
        code_drop(f, k);
    }
}

static size_t codes_out(const struct instance_facts *in)
{
    size_t n = 0;

    for (const struct list *it = in->codes.next; it != &in->codes; it = it->next)
        n++;
    return n;
}

static bool prepare_code(struct facts *f, struct change *c)
{
    const struct code *k = c->thing;

    drop_expired(f, c->to);
    if (codes_out(c->to) >= LINK_CODES_MAX)
        return change_fail(c, BH_BUSY,
                           "%d link codes of this instance are out already; use one, or wait "
                           "until they expire",
                           LINK_CODES_MAX);
    struct code_record r = {str_of(k->hash), c->to->gate.tenant, c->to->gate.instance,
                            str_of(k->platform), k->until_ms};
    change_put(c, KV_INSERT, &link_code_form, &r);
    return true;
}

static void apply_code(struct facts *f, struct change *c)
{
    code_attach(f, c->thing);
    c->thing = NULL;
}

void link_code_new(struct facts *f, struct grant_who who, struct str platform, struct buf *ret_code,
                   int64_t *ret_expires_ms, facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_code, apply_code, done, ctx);
    char code[LINK_CODE_LEN];

    *ret_expires_ms = clock_wall_ms(f->env.clock) + LINK_CODE_MS;
    if (!change_name_bad(c, "platform", platform, false) && grant_target(f, c, who) != NULL) {
        struct code *k = c->thing = code_new(c->to, platform, *ret_expires_ms);
        c->thing_free = free;
        for (size_t i = 0; i < LINK_CODE_LEN; i++)
            code[i] = letters[rand_below(f->env.rand, sizeof letters - 1)];
        hash_code(f, str_make(code, sizeof code), k->hash);
        buf_add(ret_code, code, sizeof code);
        secret_wipe(code, sizeof code);
    }
    grant_submit(c, c->to);
}

/* ---- redeeming ---- */

static void tries_forget(struct facts *f, struct tries *t)
{
    map_del(&f->tries, str_make(t->key, t->key_n));
    list_remove(&t->link);
    free(t);
}

static struct tries *tries_of(struct facts *f, struct str platform, struct str user)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, user, STR_NULL);
    struct tries *t = key.p != NULL ? map_get(&f->tries, key) : NULL;

    if (t != NULL && clock_wall_ms(f->env.clock) - t->since_ms >= LINK_TRIES_MS) {
        tries_forget(f, t);
        t = NULL;
    }
    return t;
}

static void count_try(struct facts *f, struct str platform, struct str user)
{
    struct tries *t = tries_of(f, platform, user);
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, user, STR_NULL);

    if (t == NULL && key.p != NULL) {
        if (map_count(&f->tries) >= TRIES_MAX)
            tries_forget(f, list_first(&f->tries_by_age, struct tries, link));
        t = xcalloc(1, sizeof *t + key.n);
        list_init(&t->link);
        t->since_ms = clock_wall_ms(f->env.clock);
        t->key_n = key.n;
        memcpy(t->key, key.p, key.n);
        map_put(&f->tries, str_make(t->key, t->key_n), t);
        list_append(&f->tries_by_age, &t->link);
    }
    if (t != NULL)
        t->n++;
}

/* Normalizes a typed code: any case, with or without dashes.  False: not a code. */
static bool tidy(struct str typed, char ret_code[LINK_CODE_LEN])
{
    size_t n = 0;

    for (size_t i = 0; i < typed.n; i++) {
        char ch = typed.p[i];
        if (ch == '-')
            continue;
        if (ch >= 'a' && ch <= 'z')
            ch = (char)(ch - 'a' + 'A');
        if (n == LINK_CODE_LEN || ch == '\0' || strchr(letters, ch) == NULL)
            return false;
        ret_code[n++] = ch;
    }
    return n == LINK_CODE_LEN;
}

static struct code *find_code(struct facts *f, struct str platform, struct str typed)
{
    char code[LINK_CODE_LEN], hash[2 * SHA256_BYTES + 1];

    if (!tidy(typed, code))
        return NULL;
    hash_code(f, str_make(code, sizeof code), hash);
    struct code *k = map_get(&f->codes, str_of(hash));
    if (k == NULL || k->until_ms <= clock_wall_ms(f->env.clock) || !grant_is_alive(k->to) ||
        (k->platform[0] != '\0' && !str_eq(str_of(k->platform), platform)))
        return NULL;
    return k;
}

#define NO_SUCH_CODE "there is no such code; it may have been used or have expired"

static bool prepare_redeem(struct facts *f, struct change *c)
{
    const struct binding *b = c->thing;

    if (map_get(&f->codes, str_of(c->id)) == NULL)
        return change_fail(c, BH_NOT_FOUND, NO_SUCH_CODE);
    c->conflict = NO_SUCH_CODE;
    change_put(c, KV_CONSUME, &link_code_form, &(struct code_record){.hash = str_of(c->id)});
    if (binding_find(f, c->to, b->owner.platform, b->owner.user) == NULL)
        binding_put(c, c->to, b);
    return true;
}

static void apply_redeem(struct facts *f, struct change *c)
{
    struct binding *b = c->thing;
    struct code *k = map_get(&f->codes, str_of(c->id));

    if (k != NULL)
        code_drop(f, k);
    if (binding_find(f, c->to, b->owner.platform, b->owner.user) == NULL) {
        binding_attach(f, c->to, b);
        c->thing = NULL;
    }
    change_announce(f, "grant", NULL);
}

void link_code_redeem(struct facts *f, struct str platform, struct str user, struct str typed,
                      facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_redeem, apply_redeem, done, ctx);
    const struct tries *t = tries_of(f, platform, user);
    struct code *k = NULL;

    if (change_name_bad(c, "platform", platform, true) || grant_id_bad(c, "the user", user)) {
        /* it has failed */
    } else if (str_is_empty(typed)) {
        change_fail(c, BH_MALFORMED, "a code is missing");
    } else if (t != NULL && t->n >= LINK_TRIES) {
        change_fail(c, BH_BUSY, "too many wrong codes; try again in an hour");
    } else if ((k = find_code(f, platform, typed)) == NULL) {
        count_try(f, platform, user);
        change_fail(c, BH_NOT_FOUND, NO_SUCH_CODE);
    } else {
        c->to = k->to;
        c->id = xstrdup(k->hash);
        c->thing = binding_new(platform, user, clock_wall_ms(f->env.clock));
        c->thing_free = free;
    }
    grant_submit(c, c->to);
}

/* ---- start and end ---- */

static bool on_code(void *ctx, struct str key, void *thing)
{
    const struct code_record *r = thing;

    (void)key;
    if (r->hash.n != 2 * SHA256_BYTES || !facts_name_ok(r->tenant) || !facts_name_ok(r->instance))
        return false;
    struct code *k =
        code_new(facts_make_instance(ctx, r->tenant, r->instance), r->platform, r->until_ms);
    memcpy(k->hash, r->hash.p, r->hash.n);
    code_attach(ctx, k);
    return true;
}

enum bh_err links_load(struct facts *f, struct record_reader *reader, char *ret_why)
{
    return record_load(f->env.store, &link_code_form, reader, STR_NULL, on_code, f, ret_why);
}

void links_free(struct facts *f)
{
    void *v;

    for (size_t i = 0; map_next(&f->codes, &i, &v);)
        free(v);
    for (size_t i = 0; map_next(&f->tries, &i, &v);)
        free(v);
    map_done(&f->codes);
    map_done(&f->tries);
}
