/* limits.c - design.  (limits.h has the contract.)
 *
 * A party has one counter per row of its scope, and none for rows of other scopes.  The index of a
 * row's counter is computed once per ledger.
 *
 * Threads.  A branch has parties of its own, so that finding one and counting its share of a turn
 * need no lock.  A branch's party has no counters: it holds the party of the same name in the
 * trunk's ledger, where every take and give of a branch happens, under that ledger's mutex.  A
 * ledger without branches locks nothing. */
#include "base/limits.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/map.h"
#include "base/mem.h"

#define WORD_PER_ADDRESS "address"
#define WORD_PER_VISITOR "visitor"
#define WORD_PER_CREDENTIAL "credential"
#define WORD_PER_INSTANCE "instance"
#define WORD_PER_TENANT "tenant"

const struct limit_row limit_rows[LIMIT_N] = {
#define ROW(NAME, name, scope, unit, each, all, what, then, threat) \
    {name, WORD_##scope, scope, unit, what, then, threat},
    LIMITS(ROW)
#undef ROW
};

const struct limit_settings limit_defaults = {{
#define BOUNDS(NAME, name, scope, unit, each, all, what, then, threat) {each, all},
    LIMITS(BOUNDS)
#undef BOUNDS
}};

struct party {             /* one for every gateway that is connected: it is small */
    struct ledger *ledger; /* borrowed */
    uint32_t turn, used;   /* party_used() */
    uint32_t holds;
    uint32_t scope : 4;
    uint32_t noted : 9;  /* counters of what lies on disk, as bits; not 0: a hold is for them */
    uint32_t key_n : 19; /* the key stands behind the counters: the scope, then the name */
    uint64_t held[];     /* one per row of the scope; of a branch: the address of the party that
                          * counts, in held[0] */
};
#define KEY_MAX ((1u << 19) - 1)

struct ledger {
    struct ledger *of; /* borrowed; a branch: the ledger that counts; NULL: this one counts */
    size_t branches;
    pthread_mutex_t mutex; /* while there are branches: all that follows, and the parties */
    struct limit_settings settings;
    uint64_t held[LIMIT_N], refused[LIMIT_N];
    uint8_t at[LIMIT_N]; /* where a party keeps its counter */
    uint8_t rows[PER_N]; /* how many counters a party of this scope has */
    struct map parties;  /* of struct party *, owned by their holders together */
};

struct ledger *ledger_new(const struct limit_settings *s)
{
    struct ledger *l = xcalloc(1, sizeof *l);

    for (int i = 0; i < LIMIT_N; i++)
        l->at[i] = l->rows[limit_rows[i].scope]++;
    for (int i = 0; i < PER_N; i++)
        assert(l->rows[i] > 0 && l->rows[i] <= 9); /* party.noted */
    pthread_mutex_init(&l->mutex, NULL);
    ledger_set(l, s != NULL ? s : &limit_defaults);
    return l;
}

struct ledger *ledger_branch(struct ledger *of)
{
    struct ledger *l;

    if (of == NULL)
        return NULL;
    l = ledger_new(NULL);
    l->of = of;
    of->branches++;
    return l;
}

static void lock(struct ledger *l)
{
    if (l->branches > 0)
        pthread_mutex_lock(&l->mutex);
}

static void unlock(struct ledger *l)
{
    if (l->branches > 0)
        pthread_mutex_unlock(&l->mutex);
}

static void drop(struct party *p);

/* Drops the party from the counts of ledger_note().  Its data on disk stays. */
static void forget_noted(struct party *p)
{
    if (p->noted == 0)
        return;
    for (int i = 0; i < p->ledger->rows[p->scope]; i++)
        if (p->noted & 1u << i)
            p->held[i] = 0;
    p->noted = 0;
    drop(p);
}

void ledger_free(struct ledger *l)
{
    void *p;

    if (l == NULL)
        return;
    for (size_t pos = 0; map_next(&l->parties, &pos, &p);)
        forget_noted(p);
    assert(map_count(&l->parties) == 0 && l->branches == 0);
    if (l->of != NULL)
        l->of->branches--;
    map_done(&l->parties);
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

void ledger_set(struct ledger *l, const struct limit_settings *s)
{
    lock(l);
    l->settings = *s;
    unlock(l);
}

struct limit_bounds ledger_bounds(const struct ledger *l, enum limit what)
{
    return l->settings.of[what];
}

/* ---- parties ---- */

static struct str key_of(const struct party *p)
{
    return str_make((const char *)(p->held + p->ledger->rows[p->scope]), p->key_n);
}

static struct party *party_new(struct ledger *l, enum limit_scope scope, struct str key)
{
    size_t counters = l->rows[scope] * sizeof(uint64_t);
    struct party *p = xcalloc(1, sizeof *p + counters + key.n);

    assert(key.n <= KEY_MAX);
    p->ledger = l;
    p->scope = (uint32_t)scope & 15;
    p->key_n = (uint32_t)key.n & KEY_MAX;
    memcpy((char *)(p->held + l->rows[scope]), key.p, key.n);
    map_put(&l->parties, key_of(p), p);
    return p;
}

/* The party that counts for a branch's party @p. */
static struct party *counter_of(const struct party *p)
{
    return p == NULL ? NULL : (struct party *)(uintptr_t)p->held[0];
}

static struct party *find(struct ledger *l, enum limit_scope scope, struct str who)
{
    char small[64];
    char *key;
    struct party *p;

    key = who.n < sizeof small ? small : xmalloc(who.n + 1);
    key[0] = (char)scope;
    if (who.n > 0)
        memcpy(key + 1, who.p, who.n);
    p = map_get(&l->parties, str_make(key, who.n + 1));
    if (p == NULL)
        p = party_new(l, scope, str_make(key, who.n + 1));
    if (key != small)
        free(key);
    p->holds++;
    return p;
}

struct party *ledger_party(struct ledger *l, enum limit_scope scope, struct str who)
{
    struct party *p;

    if (l == NULL)
        return NULL;
    lock(l);
    p = find(l, scope, who);
    unlock(l);
    if (l->of != NULL && p->held[0] == 0) { /* it is new */
        lock(l->of);
        p->held[0] = (uintptr_t)find(l->of, scope, who);
        unlock(l->of);
    }
    return p;
}

struct str party_name(const struct party *p)
{
    return str_skip(key_of(p), 1);
}

struct party *party_hold(struct party *p)
{
    if (p == NULL)
        return NULL;
    lock(p->ledger);
    p->holds++;
    unlock(p->ledger);
    return p;
}

static void drop(struct party *p)
{
    struct ledger *l = p->ledger;

    if (--p->holds > 0)
        return;
    for (int i = 0; l->of == NULL && i < l->rows[p->scope]; i++)
        assert(p->held[i] == 0); /* whoever takes holds the party until it has given back */
    map_del(&l->parties, key_of(p));
    free(p);
}

void party_drop(struct party *p)
{
    struct ledger *l = p != NULL ? p->ledger : NULL;

    if (l == NULL)
        return;
    struct party *counter = l->of != NULL && p->holds == 1 ? counter_of(p) : NULL;
    lock(l);
    drop(p);
    unlock(l);
    if (counter != NULL) {
        lock(l->of);
        drop(counter);
        unlock(l->of);
    }
}

/* ---- counting ---- */

static bool fits(uint64_t held, uint64_t n, uint64_t bound)
{
    return bound == 0 || (n <= bound && held <= bound - n);
}

static enum limit_answer take(struct ledger *l, struct party *p, enum limit what, uint64_t n)
{
    const struct limit_bounds *b = &l->settings.of[what];
    uint64_t *own = p != NULL ? &p->held[l->at[what]] : NULL;
    enum limit_answer answer = LIMIT_TAKEN;

    if (own != NULL && !fits(*own, n, b->each))
        answer = LIMIT_EACH_FULL;
    else if (!fits(l->held[what], n, b->all))
        answer = LIMIT_ALL_FULL;
    if (answer != LIMIT_TAKEN) {
        l->refused[what]++;
        return answer;
    }
    l->held[what] += n;
    if (own != NULL)
        *own += n;
    return LIMIT_TAKEN;
}

enum limit_answer ledger_take(struct ledger *l, struct party *p, enum limit what, uint64_t n)
{
    enum limit_answer answer;

    if (l == NULL)
        return LIMIT_TAKEN;
    assert(p == NULL || (p->ledger == l && p->scope == limit_rows[what].scope));
    if (l->of != NULL) {
        p = counter_of(p);
        l = l->of;
    }
    lock(l);
    answer = take(l, p, what, n);
    unlock(l);
    return answer;
}

void ledger_give(struct ledger *l, struct party *p, enum limit what, uint64_t n)
{
    if (l == NULL)
        return;
    if (l->of != NULL) {
        p = counter_of(p);
        l = l->of;
    }
    lock(l);
    assert(n <= l->held[what]);
    l->held[what] -= n;
    if (p != NULL) {
        assert(p->scope == limit_rows[what].scope && n <= p->held[l->at[what]]);
        p->held[l->at[what]] -= n;
    }
    unlock(l);
}

enum limit_answer ledger_change(struct ledger *l, struct party *p, enum limit what, size_t *held,
                                size_t now)
{
    enum limit_answer answer = LIMIT_TAKEN;

    if (now > *held)
        answer = ledger_take(l, p, what, now - *held);
    else if (now < *held)
        ledger_give(l, p, what, *held - now);
    if (answer == LIMIT_TAKEN)
        *held = now;
    return answer;
}

uint64_t party_used(struct party *p, uint64_t turn, uint64_t more)
{
    if (p == NULL)
        return more;
    if (p->turn != (uint32_t)turn)
        p->used = 0;
    p->turn = (uint32_t)turn;
    p->used = more < UINT32_MAX - p->used ? p->used + (uint32_t)more : UINT32_MAX;
    return p->used;
}

void ledger_correct(struct ledger *l, enum limit what, size_t *held, size_t now)
{
    if (l == NULL)
        return;
    lock(l);
    l->held[what] = l->held[what] - *held + now;
    unlock(l);
    *held = now;
}

void ledger_note(struct ledger *l, enum limit what, struct str who, uint64_t now)
{
    if (l == NULL)
        return;
    lock(l);
    struct party *p = find(l, limit_rows[what].scope, who);
    uint32_t bit = 1u << l->at[what], before = p->noted;
    l->held[what] = l->held[what] - p->held[l->at[what]] + now;
    p->held[l->at[what]] = now;
    p->noted = (now != 0 ? p->noted | bit : p->noted & ~bit) & 511;
    if (before == 0 && p->noted != 0)
        p->holds++;
    else if (before != 0 && p->noted == 0)
        p->holds--;
    drop(p);
    unlock(l);
}

bool ledger_has_room(struct ledger *l, enum limit what)
{
    bool room;

    if (l == NULL)
        return true;
    lock(l);
    room = fits(l->held[what], 1, l->settings.of[what].all);
    l->refused[what] += !room;
    unlock(l);
    return room;
}

void ledger_refuse(struct ledger *l, enum limit what)
{
    if (l == NULL)
        return;
    lock(l);
    l->refused[what]++;
    unlock(l);
}

uint64_t ledger_held(struct ledger *l, const struct party *p, enum limit what)
{
    uint64_t n;

    lock(l);
    n = p != NULL ? p->held[l->at[what]] : l->held[what];
    unlock(l);
    return n;
}

uint64_t ledger_refused(struct ledger *l, enum limit what)
{
    uint64_t n;

    lock(l);
    n = l->refused[what];
    unlock(l);
    return n;
}

size_t ledger_parties(struct ledger *l)
{
    size_t n;

    lock(l);
    n = map_count(&l->parties);
    unlock(l);
    return n;
}

/* ---- settings, and a table for people ---- */

#define AT(NAME, member) offsetof(struct limit_settings, of[LIMIT_##NAME].member)
#define TYPE(unit) ((unit) == LIMIT_BYTES ? CFG_BYTES : CFG_COUNT)

static const struct config_key keys[] = {
#define KEYS(NAME, name, scope, unit, most_each, most_all, words, then, threat) \
    {"limits." name "_per_" WORD_##scope, TYPE(unit), CFG_RELOAD, AT(NAME, each), \
     .what = words " At the limit: " then ". 0: no limit."}, \
        {"limits." name, TYPE(unit), CFG_RELOAD, AT(NAME, all), \
         .what = "The same for all together; 0: no limit."},
    LIMITS(KEYS)
#undef KEYS
        {0},
};

const struct config_section limits_config = {.keys = keys,
                                             .size = sizeof(struct limit_settings),
                                             .defaults = &limit_defaults};

static void describe_bound(struct buf *out, enum limit_unit unit, uint64_t n)
{
    if (n == 0)
        buf_add_z(out, "none");
    else if (unit == LIMIT_BYTES && n % (1 << 20) == 0)
        buf_printf(out, "%llu MiB", (unsigned long long)n >> 20);
    else if (unit == LIMIT_BYTES && n % 1024 == 0)
        buf_printf(out, "%llu KiB", (unsigned long long)n >> 10);
    else
        buf_printf(out, "%llu", (unsigned long long)n);
}

void limits_describe(struct buf *out)
{
    buf_add_z(out, "| `limits.` | each | all | what is counted | at the limit | against |\n"
                   "|---|---|---|---|---|---|\n");
    for (int i = 0; i < LIMIT_N; i++) {
        const struct limit_row *r = &limit_rows[i];
        buf_printf(out, "| `%s` | ", r->name);
        describe_bound(out, r->unit, limit_defaults.of[i].each);
        buf_printf(out, " per %s | ", r->per);
        describe_bound(out, r->unit, limit_defaults.of[i].all);
        buf_printf(out, " | %s | %s | %s |\n", r->what, r->then, r->threat);
    }
}
