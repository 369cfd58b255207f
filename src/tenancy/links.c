/* links.c - links between people and instances, and the codes that make them.  (See grants.h.)
 *
 *      instance asks -> code, shown once -> the person sends "/link CODE" to a bot -> binding
 *
 * A binding names the bots that it counts on.  Most links count on the same few bots, so the text
 * that names them is stored once and shared (facts.bot_sets), and a link costs one pointer for it.
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

/* ---- the records ---- */

static const struct record_field binding_fields[] = {
    NAME_FIELD(struct binding_record, platform, RECORD_KEY),
    ID_FIELD(struct binding_record, user, RECORD_KEY),
    NAME_FIELD(struct binding_record, tenant, RECORD_KEY),
    NAME_FIELD(struct binding_record, instance, RECORD_KEY),
    RECORD_LIST(struct binding_record, bots, n_bots, "bots", &record_texts, LINK_BOTS_MAX),
    RECORD_FIELD(struct binding_record, created_ms, "created", 0),
};
const struct record_form binding_form =
    RECORD_FORM("binding", struct binding_record, binding_fields);

static const struct record_field dm_default_fields[] = {
    NAME_FIELD(struct binding_record, platform, RECORD_KEY),
    ID_FIELD(struct binding_record, user, RECORD_KEY),
    NAME_FIELD(struct binding_record, tenant, 0),
    NAME_FIELD(struct binding_record, instance, 0),
};
const struct record_form dm_default_form =
    RECORD_FORM("dm_default", struct binding_record, dm_default_fields);

/* ---- the bots that a link counts on ---- */

static size_t bots_split(const char *text, struct str ret[LINK_BOTS_MAX])
{
    struct str rest = str_of(text);
    size_t n = 0;

    while (rest.n > 0 && n < LINK_BOTS_MAX && str_split(&rest, '\x1f', &ret[n]))
        n++;
    return n;
}

static bool bots_have(const struct str *bots, size_t n, struct str bot)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(bots[i], bot))
            return true;
    return false;
}

/* The shared text of these bots without repetitions, or "*".  NULL: more than LINK_BOTS_MAX. */
static const char *bots_text(struct facts *f, const struct str *bots, size_t n)
{
    BUF_LOCAL text = BUF_INIT;
    size_t different = 0;

    if (bots_have(bots, n, STR("*")))
        return "*";
    for (size_t i = 0; i < n; i++)
        if (!bots_have(bots, i, bots[i])) {
            buf_add_z(&text, different++ > 0 ? "\x1f" : "");
            buf_add_str(&text, bots[i]);
        }
    if (different == 0 || different > LINK_BOTS_MAX)
        return different == 0 ? "" : NULL;
    char *known = map_get(&f->bot_sets, buf_str(&text));
    if (known == NULL) {
        known = str_dup(buf_str(&text));
        map_put(&f->bot_sets, str_of(known), known);
    }
    return known;
}

static const char *bots_with(struct facts *f, const char *a, const char *b)
{
    struct str all[2 * LINK_BOTS_MAX];
    size_t n = bots_split(a, all);

    return bots_text(f, all, n + bots_split(b, all + n));
}

/* Checks the bots that a caller named.  NULL: the change has failed. */
static const char *bots_asked(struct facts *f, struct change *c, struct str platform,
                              const struct str *bots, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (change_name_bad(c, "bot", bots[i], true))
            return NULL;
        if (str_is_empty(platform) && !str_eq(bots[i], STR("*"))) {
            change_fail(c, BH_MALFORMED, "a bot is named together with its platform");
            return NULL;
        }
    }
    const char *text = bots_text(f, bots, n);
    if (text == NULL)
        change_fail(c, BH_MALFORMED,
                    "a link names %d bots at most; \"*\" means every bot of the platform",
                    LINK_BOTS_MAX);
    return text;
}

/* Fails the change if one of the bots belongs to a tenant other than @tenant. */
static void refuse_foreign(struct facts *f, struct change *c, struct str tenant,
                           struct str platform, const struct str *bots, size_t n)
{
    for (size_t i = 0; i < n && c->err == BH_OK; i++)
        if (gate_is_barred(&f->gate, platform, bots[i], tenant))
            change_fail(c, BH_REFUSED, "the %.*s bot \"%.*s\" belongs to another tenant",
                        STR_FMT(platform), STR_FMT(bots[i]));
}

/* ---- bindings ---- */

static struct binding *binding_new(struct str platform, struct str user, const char *bots,
                                   int64_t created_ms)
{
    struct binding *b = xcalloc(1, sizeof *b + platform.n + user.n + 2);

    b->created_ms = created_ms;
    b->gate.bots = bots;
    char *at = b->bytes;
    b->gate.platform = str_pack(&at, platform);
    *at++ = '\x1f';
    b->gate.user = str_pack(&at, user);
    return b;
}

struct str binding_key(const struct binding *b)
{
    return str_make(b->bytes, b->gate.platform.n + 1 + b->gate.user.n);
}

struct binding *binding_of(const struct list *of_instance)
{
    return list_entry(of_instance, struct binding, gate.of_instance);
}

/* Walks the person's links and the instance's people in parallel and stops at the end of the
 * shorter list, because either list may be long. */
static struct binding *binding_find(const struct facts *f, const struct gate_instance *to,
                                    struct str platform, struct str user)
{
    char room[GATE_KEY_MAX];
    struct str key = gate_key(room, platform, user, STR_NULL);
    struct gate_link *l = key.p != NULL ? map_get(&f->gate.authors, key) : NULL;

    for (struct list *it = to->people.next; l != NULL && it != &to->people;
         l = l->next, it = it->next) {
        if (l->to == to)
            return container_of(l, struct binding, gate);
        if (str_eq(binding_key(binding_of(it)), key))
            return binding_of(it);
    }
    return NULL;
}

static void binding_attach(struct facts *f, struct instance_facts *in, struct binding *b)
{
    struct gate_link *l = &b->gate, *first = map_get(&f->gate.authors, binding_key(b));

    l->to = &in->gate;
    if (first == NULL) {
        l->prev = l;
        map_put(&f->gate.authors, binding_key(b), l);
    } else { /* oldest first: bindings are attached in order of age */
        l->prev = first->prev;
        first->prev->next = l;
        first->prev = l;
    }
    list_append(&in->gate.people, &l->of_instance);
}

static void leave_author(struct facts *f, struct binding *b)
{
    struct gate_link *l = &b->gate, *first = map_get(&f->gate.authors, binding_key(b));

    if (first != l) {
        l->prev->next = l->next;
        (l->next != NULL ? l->next : first)->prev = l->prev;
    } else if (l->next == NULL) {
        map_del(&f->gate.authors, binding_key(b));
    } else {
        l->next->prev = l->prev;
        map_put(&f->gate.authors, binding_key(container_of(l->next, struct binding, gate)),
                l->next);
    }
}

void binding_drop(struct facts *f, struct binding *b)
{
    if (map_get(&f->gate.dm_defaults, binding_key(b)) == b->gate.to)
        map_del(&f->gate.dm_defaults, binding_key(b));
    leave_author(f, b);
    list_remove(&b->gate.of_instance);
    free(b);
}

/* Writes the record of @b as a link that counts on @bots. */
static void put_binding(struct change *c, enum store_kv_verb verb, const struct record_form *form,
                        const struct binding *b, const char *bots)
{
    struct binding_record r = {.platform = b->gate.platform,
                               .user = b->gate.user,
                               .tenant = c->to->gate.tenant,
                               .instance = c->to->gate.instance,
                               .created_ms = b->created_ms};

    r.n_bots = bots_split(bots, r.bots);
    change_put(c, verb, form, &r);
}

void binding_forget(struct facts *f, struct change *c, const struct binding *b)
{
    put_binding(c, KV_DELETE, &binding_form, b, "");
    if (map_get(&f->gate.dm_defaults, binding_key(b)) == &c->to->gate)
        put_binding(c, KV_DELETE, &dm_default_form, b, "");
}

/* ---- linking and unlinking ---- */

/* The change's own binding says who is meant, and on which bots. */
static struct binding *binding_meant(struct facts *f, const struct change *c)
{
    const struct binding *like = c->thing;

    return binding_find(f, &c->to->gate, like->gate.platform, like->gate.user);
}

bool link_prepare(struct facts *f, struct change *c)
{
    const struct binding *asked = c->thing, *known = binding_meant(f, c);
    const char *bots =
        known != NULL ? bots_with(f, known->gate.bots, asked->gate.bots) : asked->gate.bots;

    if (bots == NULL)
        return change_fail(c, BH_MALFORMED,
                           "a link counts on %d bots at most; \"*\" means every bot of the "
                           "platform",
                           LINK_BOTS_MAX);
    if (known == NULL || bots != known->gate.bots)
        put_binding(c, KV_PUT, &binding_form, known != NULL ? known : asked, bots);
    return true;
}

void link_apply(struct facts *f, struct change *c)
{
    struct binding *asked = c->thing, *known = binding_meant(f, c);

    if (known != NULL) {
        known->gate.bots = bots_with(f, known->gate.bots, asked->gate.bots);
    } else {
        binding_attach(f, c->to, asked);
        c->thing = NULL;
    }
    change_announce(f, "grant", NULL);
}

/* Fills in a change of the link between a person and an instance. */
static void person_change(struct change *c, struct grant_who who, const struct grant_person *p)
{
    struct facts *f = c->facts;
    const char *bots;

    if (!change_name_bad(c, "platform", p->platform, true) &&
        !grant_id_bad(c, "the user", p->user) && grant_target(f, c, who) != NULL &&
        (bots = bots_asked(f, c, p->platform, p->bots, p->n_bots)) != NULL) {
        c->thing = binding_new(p->platform, p->user, bots, clock_wall_ms(f->env.clock));
        c->thing_free = free;
    }
    grant_submit(c, c->to);
}

void link_change(struct change *c, struct grant_who who, const struct grant_person *p)
{
    refuse_foreign(c->facts, c, who.tenant, p->platform, p->bots, p->n_bots);
    person_change(c, who, p);
}

void grant_link(struct facts *f, struct grant_who who, const struct grant_person *p,
                facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, link_prepare, link_apply, done, ctx);

    if (p->n_bots == 0)
        change_fail(c, BH_MALFORMED, "which bot is the person linked on? \"*\" means every bot");
    link_change(c, who, p);
}

/* The bots that remain when the change's bots are taken off @b; "": none. */
static const char *bots_left(struct facts *f, const struct change *c, const struct binding *b)
{
    const struct binding *asked = c->thing;
    struct str from[LINK_BOTS_MAX], gone[LINK_BOTS_MAX];
    size_t n_from = bots_split(b->gate.bots, from), n_gone = bots_split(asked->gate.bots, gone);
    size_t n = 0;

    if (n_gone == 0 || bots_have(gone, n_gone, STR("*")))
        return "";
    for (size_t i = 0; i < n_from; i++)
        if (!bots_have(gone, n_gone, from[i]))
            from[n++] = from[i];
    return bots_text(f, from, n);
}

static bool prepare_unlink(struct facts *f, struct change *c)
{
    const struct binding *b = binding_meant(f, c);

    if (b == NULL)
        return change_fail(c, BH_NOT_FOUND, "this person is not linked to the instance");
    const char *left = bots_left(f, c, b);
    if (*left == '\0')
        binding_forget(f, c, b);
    else if (strcmp(left, "*") == 0)
        return change_fail(c, BH_MALFORMED,
                           "the link counts on every bot: remove it, and add it for the others");
    else if (left == b->gate.bots)
        return change_fail(c, BH_NOT_FOUND, "the person is not linked on this bot");
    else
        put_binding(c, KV_PUT, &binding_form, b, left);
    return true;
}

static void apply_unlink(struct facts *f, struct change *c)
{
    struct binding *b = binding_meant(f, c);
    const char *left = bots_left(f, c, b);

    if (*left == '\0')
        binding_drop(f, b);
    else
        b->gate.bots = left;
    change_announce(f, "grant", NULL);
}

void grant_unlink(struct facts *f, struct grant_who who, const struct grant_person *p,
                  facts_done_cb *done, void *ctx)
{
    person_change(change_new(f, prepare_unlink, apply_unlink, done, ctx), who, p);
}

const struct gate_link *grant_link_of(const struct facts *f, const struct gate_instance *to,
                                      struct str platform, struct str user)
{
    const struct binding *b = binding_find(f, to, platform, user);

    return b != NULL ? &b->gate : NULL;
}

/* ---- dm defaults ---- */

static bool prepare_dm_default(struct facts *f, struct change *c)
{
    if (binding_meant(f, c) == NULL)
        return change_fail(c, BH_NOT_FOUND, "this person is not linked to the instance");
    put_binding(c, KV_PUT, &dm_default_form, c->thing, "");
    return true;
}

static void apply_dm_default(struct facts *f, struct change *c)
{
    struct binding *b = binding_meant(f, c);

    if (b != NULL) /* the table borrows the binding's own key */
        map_put(&f->gate.dm_defaults, binding_key(b), &c->to->gate);
    change_announce(f, "grant", NULL);
}

void grant_dm_default(struct facts *f, struct grant_who who, struct str platform, struct str user,
                      facts_done_cb *done, void *ctx)
{
    person_change(change_new(f, prepare_dm_default, apply_dm_default, done, ctx), who,
                  &(struct grant_person){.platform = platform, .user = user});
}

/* ---- codes ---- */

#define TRIES_MAX 20000 /* people in the table of tries */

static const char letters[] = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"; /* no look-alikes */

struct code {
    struct list link; /* instance->codes, oldest first */
    struct instance_facts *to;
    int64_t until_ms; /* wall clock */
    const char *bots; /* shared text; "": the bot that the code is sent to */
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
    struct str bots[LINK_BOTS_MAX];
    size_t n_bots;
    int64_t until_ms;
};
static const struct record_field code_fields[] = {
    RECORD_FIELD(struct code_record, hash, "hash", RECORD_KEY | RECORD_NEEDED),
    NAME_FIELD(struct code_record, tenant, 0),
    NAME_FIELD(struct code_record, instance, 0),
    RECORD_FIELD(struct code_record, platform, "platform", 0, .max = NAME_BYTES),
    RECORD_LIST(struct code_record, bots, n_bots, "bots", &record_texts, LINK_BOTS_MAX),
    RECORD_FIELD(struct code_record, until_ms, "until", RECORD_NEEDED),
};
const struct record_form link_code_form = RECORD_FORM("link_code", struct code_record, code_fields);

static void hash_code(const struct facts *f, struct str code, char ret_hash[2 * SHA256_BYTES + 1])
{
    uint8_t mac[SHA256_BYTES];
    BUF_LOCAL hex = BUF_INIT;

    seal_mac(f->env.seal, STR("link code"), code, mac);
    hex_add(&hex, mac, sizeof mac);
    snprintf(ret_hash, 2 * SHA256_BYTES + 1, "%s", buf_z(&hex));
}

static struct code *code_new(struct instance_facts *to, struct str platform, const char *bots,
                             int64_t until_ms)
{
    struct code *k = xcalloc(1, sizeof *k + platform.n + 1);

    k->to = to;
    k->bots = bots;
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

void codes_forget(struct change *c)
{
    list_each (&c->to->codes, it, nxt)
        change_put(c, KV_DELETE, &link_code_form,
                   &(struct code_record){.hash = str_of(list_entry(it, struct code, link)->hash)});
}

void codes_drop(struct facts *f, struct instance_facts *in)
{
    list_each (&in->codes, it, nxt)
        code_drop(f, list_entry(it, struct code, link));
}

/* Deletes the expired codes from memory and from the store; returns how many are left. */
static size_t drop_expired(struct facts *f, struct instance_facts *in)
{
    int64_t now_ms = clock_wall_ms(f->env.clock);
    size_t left = 0;

    list_each (&in->codes, it, nxt) {
        struct code *k = list_entry(it, struct code, link);
        if (k->until_ms > now_ms) {
            left++;
            continue;
        }
        record_delete(f->env.store, &link_code_form, str_of(k->hash));
        code_drop(f, k);
    }
    return left;
}

static bool prepare_code(struct facts *f, struct change *c)
{
    const struct code *k = c->thing;

    if (drop_expired(f, c->to) >= LINK_CODES_MAX)
        return change_fail(c, BH_BUSY,
                           "%d link codes of this instance are out already; use one, or wait "
                           "until they expire",
                           LINK_CODES_MAX);
    struct code_record r = {.hash = str_of(k->hash),
                            .tenant = c->to->gate.tenant,
                            .instance = c->to->gate.instance,
                            .platform = str_of(k->platform),
                            .until_ms = k->until_ms};
    r.n_bots = bots_split(k->bots, r.bots);
    change_put(c, KV_INSERT, &link_code_form, &r);
    return true;
}

static void apply_code(struct facts *f, struct change *c)
{
    code_attach(f, c->thing);
    c->thing = NULL;
}

void link_code_new(struct facts *f, struct grant_who who, const struct link_for *on,
                   struct buf *ret_code, int64_t *ret_expires_ms, facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_code, apply_code, done, ctx);
    char code[LINK_CODE_LEN];
    const char *bots;

    *ret_expires_ms = clock_wall_ms(f->env.clock) + LINK_CODE_MS;
    refuse_foreign(f, c, who.tenant, on->platform, on->bots, on->n_bots);
    if (!change_name_bad(c, "platform", on->platform, false) && grant_target(f, c, who) != NULL &&
        (bots = bots_asked(f, c, on->platform, on->bots, on->n_bots)) != NULL) {
        struct code *k = c->thing = code_new(c->to, on->platform, bots, *ret_expires_ms);
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

/* The valid code that @typed is; NULL: none that this bot takes. */
static struct code *find_code(struct facts *f, const struct link_sent *at)
{
    char code[LINK_CODE_LEN], hash[2 * SHA256_BYTES + 1];

    if (!tidy(at->code, code))
        return NULL;
    hash_code(f, str_make(code, sizeof code), hash);
    struct code *k = map_get(&f->codes, str_of(hash));
    if (k == NULL || k->until_ms <= clock_wall_ms(f->env.clock) || !grant_is_alive(k->to) ||
        (k->platform[0] != '\0' && !str_eq(str_of(k->platform), at->platform)) ||
        (k->bots[0] != '\0' && !gate_counts_on(&(struct gate_link){.bots = k->bots}, at->bot)) ||
        gate_is_barred(&f->gate, at->platform, at->bot, k->to->gate.tenant))
        return NULL;
    return k;
}

#define NO_SUCH_CODE "there is no such code; it may have been used or have expired"

static bool prepare_redeem(struct facts *f, struct change *c)
{
    if (map_get(&f->codes, str_of(c->id)) == NULL)
        return change_fail(c, BH_NOT_FOUND, NO_SUCH_CODE);
    c->conflict = NO_SUCH_CODE;
    change_put(c, KV_CONSUME, &link_code_form, &(struct code_record){.hash = str_of(c->id)});
    return link_prepare(f, c);
}

static void apply_redeem(struct facts *f, struct change *c)
{
    struct code *k = map_get(&f->codes, str_of(c->id));

    if (k != NULL)
        code_drop(f, k);
    link_apply(f, c);
}

const struct gate_instance *link_code_redeem(struct facts *f, const struct link_sent *at,
                                             facts_done_cb *done, void *ctx)
{
    struct change *c = change_new(f, prepare_redeem, apply_redeem, done, ctx);
    const struct tries *t = tries_of(f, at->platform, at->user);
    struct code *k = NULL;

    if (change_name_bad(c, "platform", at->platform, true) ||
        change_name_bad(c, "bot", at->bot, true) || grant_id_bad(c, "the user", at->user)) {
        /* it has failed */
    } else if (str_is_empty(at->code)) {
        change_fail(c, BH_MALFORMED, "a code is missing");
    } else if (t != NULL && t->n >= LINK_TRIES) {
        change_fail(c, BH_BUSY, "too many wrong codes; try again in an hour");
    } else if ((k = find_code(f, at)) == NULL) {
        count_try(f, at->platform, at->user);
        change_fail(c, BH_NOT_FOUND, NO_SUCH_CODE);
    } else {
        const char *bots = k->bots[0] != '\0' ? k->bots : bots_text(f, &at->bot, 1);
        c->to = k->to;
        c->id = xstrdup(k->hash);
        c->thing = binding_new(at->platform, at->user, bots, clock_wall_ms(f->env.clock));
        c->thing_free = free;
    }
    const struct gate_instance *to = k != NULL ? &k->to->gate : NULL;
    grant_submit(c, c->to);
    return to;
}

/* ---- start and end ---- */

static bool bots_ok(const struct str *bots, size_t n)
{
    while (n > 0 && facts_name_ok(bots[n - 1]))
        n--;
    return n == 0;
}

enum { LOOK_AHEAD = 8 };

struct found { /* bindings are attached in order of age */
    struct facts *f;
    struct found_binding {
        int64_t created_ms;
        struct binding *b;
        struct instance_facts *in;
    } * all;
    size_t n, cap;
    size_t n_authors; /* records are sorted by author */
};

static bool on_binding(void *ctx, struct str key, void *thing)
{
    struct found *found = ctx;
    const struct binding_record *r = thing;

    if (!facts_name_ok(r->platform) || !grant_id_ok(r->user) || !bots_ok(r->bots, r->n_bots))
        return false;
    found->all = xgrow(found->all, found->n, &found->cap, sizeof *found->all);
    struct binding *b =
        binding_new(r->platform, r->user, bots_text(found->f, r->bots, r->n_bots), r->created_ms);
    found->n_authors +=
        found->n == 0 || !str_eq(binding_key(found->all[found->n - 1].b), binding_key(b));
    found->all[found->n++] =
        (struct found_binding){b->created_ms, b,
                               facts_make_instance(found->f, r->tenant, r->instance)};
    return true;
}

static int by_age(const void *a, const void *b)
{
    const struct found_binding *x = a, *y = b;

    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return str_cmp(x->in->key, y->in->key);
}

static enum bh_err load_bindings(struct facts *f, struct record_reader *reader, char *ret_why)
{
    struct found found = {.f = f};
    enum bh_err err =
        record_load(f->env.store, &binding_form, reader, STR_NULL, on_binding, &found, ret_why);

    if (found.n > 0)
        qsort(found.all, found.n, sizeof *found.all, by_age);
    map_reserve(&f->gate.authors, found.n_authors);
    for (size_t i = 0; i < found.n; i++) {
        if (i + LOOK_AHEAD < found.n)
            map_prefetch(&f->gate.authors, map_hash(binding_key(found.all[i + LOOK_AHEAD].b)));
        binding_attach(f, found.all[i].in, found.all[i].b);
    }
    free(found.all);
    return err;
}

static bool on_dm_default(void *ctx, struct str key, void *thing)
{
    struct facts *f = ctx;
    const struct binding_record *r = thing;
    struct instance_facts *in = facts_make_instance(f, r->tenant, r->instance);
    struct binding *b = binding_find(f, &in->gate, r->platform, r->user);

    if (b != NULL)
        map_put(&f->gate.dm_defaults, binding_key(b), &in->gate);
    return true;
}

static bool on_code(void *ctx, struct str key, void *thing)
{
    const struct code_record *r = thing;

    if (r->hash.n != 2 * SHA256_BYTES || !facts_name_ok(r->tenant) || !facts_name_ok(r->instance) ||
        !bots_ok(r->bots, r->n_bots))
        return false;
    struct code *k = code_new(facts_make_instance(ctx, r->tenant, r->instance), r->platform,
                              bots_text(ctx, r->bots, r->n_bots), r->until_ms);
    memcpy(k->hash, r->hash.p, r->hash.n);
    code_attach(ctx, k);
    return true;
}

enum bh_err links_load(struct facts *f, struct record_reader *reader, char *ret_why)
{
    struct store *st = f->env.store;
    enum bh_err err = load_bindings(f, reader, ret_why);

    if (err == BH_OK)
        err = record_load(st, &dm_default_form, reader, STR_NULL, on_dm_default, f, ret_why);
    if (err == BH_OK)
        err = record_load(st, &link_code_form, reader, STR_NULL, on_code, f, ret_why);
    return err;
}

void links_free(struct facts *f)
{
    void *v;

    for (size_t i = 0; map_next(&f->instances, &i, &v);)
        list_each (&((struct instance_facts *)v)->gate.people, it, nxt)
            free(binding_of(it));
    map_done(&f->gate.authors);
    map_done(&f->gate.dm_defaults);
    map_done_all(&f->codes);
    map_done_all(&f->tries);
    map_done_all(&f->bot_sets);
}
