/* spoken.c - design.  (spoken.h has the contract.)
 *
 * Each chat has a ring, and each slot of the ring is a record.  The 257th message overwrites the
 * first, on disk too, so the disk needs no cleanup.  A chat without a sent message for two days is
 * dropped as a whole. */
#include "relay/out/spoken.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/list.h"
#include "relay/out/byline.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"
#include "store/store.h"

enum {
    FIRST_CAP = 4,
    KEY_BYTES = 32 + 8 + 2, /* in hex: the chat, the mailbox, the slot */
    AT_BYTES = offsetof(struct spoken_chat, box) + sizeof(uint32_t), /* without padding */
};

struct said_message {
    uint64_t message; /* keyed hash of its id; 0: none */
    int64_t at_ms;    /* wall */
};

struct speaker { /* one mailbox number */
    uint32_t box;
    size_t n;
    struct list rings; /* by age */
};

struct ring {                       /* one speaker in one chat */
    struct list by_age, of_speaker; /* the chat with the newest message is last */
    struct speaker *by;             /* borrowed */
    struct spoken_chat at;          /* the map key, all of it */
    struct said_message *said;      /* owned */
    uint64_t shared;                /* participants_key() it counts under: byline.h; 0: none */
    uint16_t n, cap, next; /* used slots, allocated slots, the slot to overwrite when full */
};

struct spoken {
    struct map rings;    /* struct spoken_chat -> struct ring; owned */
    struct map speakers; /* box -> struct speaker; owned */
    struct list by_age;
    struct buf scratch;
};

struct spoken *spoken_new(void)
{
    struct spoken *t = xcalloc(1, sizeof *t);

    list_init(&t->by_age);
    return t;
}

void spoken_free(struct spoken *t)
{
    void *v;

    if (t == NULL)
        return;
    list_each (&t->by_age, it, nxt) {
        struct ring *r = list_entry(it, struct ring, by_age);
        free(r->said);
        free(r);
    }
    for (size_t i = 0; map_next(&t->speakers, &i, &v);)
        free(v);
    map_done(&t->rings);
    map_done(&t->speakers);
    buf_done(&t->scratch);
    free(t);
}

struct spoken_chat spoken_chat(const struct instance *i, struct str platform, struct str bot,
                               struct str chat_id)
{
    struct relay *r = i->relay;
    struct buf *b = &r->spoken->scratch;
    struct spoken_chat at;

    buf_reset(b);
    buf_add(b, &i->box, sizeof i->box);
    buf_add_str(b, platform);
    buf_add_c(b, '\x1f');
    buf_add_str(b, bot);
    buf_add_c(b, '\x1f');
    buf_add_str(b, chat_id);
    at.chat = hash128(&r->env.store->dedup_key, buf_str(b));
    at.box = i->box;
    return at;
}

static uint64_t name_of(const struct relay *r, struct str message_id)
{
    uint64_t h = hash64(&r->env.store->dedup_key, message_id);

    return h != 0 ? h : 1;
}

static struct str at_key(const struct spoken_chat *at)
{
    return str_make((const char *)at, AT_BYTES);
}

/* ---- rings ---- */

static struct speaker *speaker_of(struct spoken *t, uint32_t box)
{
    struct speaker *s = map_get(&t->speakers, str_make((const char *)&box, sizeof box));

    if (s != NULL)
        return s;
    s = xcalloc(1, sizeof *s);
    s->box = box;
    list_init(&s->rings);
    map_put(&t->speakers, str_make((const char *)&s->box, sizeof s->box), s);
    return s;
}

static struct ring *ring_of(struct spoken *t, const struct spoken_chat *at)
{
    struct ring *r = map_get(&t->rings, at_key(at));

    if (r != NULL)
        return r;
    r = xcalloc(1, sizeof *r);
    r->at = *at;
    r->by = speaker_of(t, at->box);
    r->by->n++;
    list_init(&r->by_age);
    list_init(&r->of_speaker);
    list_append(&t->by_age, &r->by_age);
    list_append(&r->by->rings, &r->of_speaker);
    map_put(&t->rings, at_key(&r->at), r);
    return r;
}

static void grow(struct ring *r, size_t slots)
{
    size_t cap = r->cap != 0 ? r->cap : FIRST_CAP;

    while (cap < slots)
        cap *= 2;
    if (cap == r->cap)
        return;
    r->said = xrealloc(r->said, cap * sizeof *r->said);
    memset(r->said + r->cap, 0, (cap - r->cap) * sizeof *r->said);
    r->cap = (uint16_t)cap;
}

static void record_key(const struct ring *r, size_t slot, char key[KEY_BYTES + 1])
{
    snprintf(key, KEY_BYTES + 1, "%016" PRIx64 "%016" PRIx64 "%08" PRIx32 "%02x", r->at.chat.hi,
             r->at.chat.lo, r->at.box, (unsigned)slot & 0xff);
}

struct said_record {
    struct str key; /* record_key() */
    uint64_t message;
    int64_t at_ms;
};
static const struct record_field said_fields[] = {
    RECORD_FIELD(struct said_record, key, "key", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct said_record, message, "message", 0),
    RECORD_FIELD(struct said_record, at_ms, "at", RECORD_NEEDED),
};
const struct record_form said_form =
    RECORD_FORM("said", struct said_record, said_fields, .lossy = true);

static void put_record(struct relay *relay, const struct ring *r, unsigned slot)
{
    char key[KEY_BYTES + 1];

    record_key(r, slot, key);
    struct said_record rec = {str_of(key), r->said[slot].message, r->said[slot].at_ms};
    record_put(relay->env.store, &said_form, NULL, &rec, false, NULL, NULL);
}

static void forget(struct relay *relay, struct ring *r)
{
    struct store_kv items[SPOKEN_PER_CHAT];
    char keys[SPOKEN_PER_CHAT][KEY_BYTES + 1];

    for (unsigned i = 0; i < r->n; i++) {
        record_key(r, i, keys[i]);
        items[i] = (struct store_kv){.verb = KV_DELETE, .ns = said_form.ns, .key = str_of(keys[i])};
    }
    if (r->n > 0)
        store_put(relay->env.store, items, r->n, false, NULL, NULL);
    if (r->shared != 0)
        participants_leave(relay, r->shared);
    map_del(&relay->spoken->rings, at_key(&r->at));
    list_remove(&r->by_age);
    list_remove(&r->of_speaker);
    if (--r->by->n == 0) {
        map_del(&relay->spoken->speakers, str_make((const char *)&r->by->box, sizeof r->by->box));
        free(r->by);
    }
    free(r->said);
    free(r);
}

/* The newest, and one less when its speaker has too many. */
static void touch(struct relay *relay, struct ring *r)
{
    list_move(&r->by_age, &relay->spoken->by_age);
    list_move(&r->of_speaker, &r->by->rings);
    if (r->by->n > SPOKEN_CHATS)
        forget(relay, list_first(&r->by->rings, struct ring, of_speaker));
}

void spoken_enter(struct relay *relay, struct spoken_chat at, uint64_t shared)
{
    struct ring *r = ring_of(relay->spoken, &at);

    if (r->shared == 0) {
        r->shared = shared;
        participants_join(relay, shared);
    }
    touch(relay, r);
}

void spoken_heard(struct relay *relay, struct spoken_chat at)
{
    struct ring *r = map_get(&relay->spoken->rings, at_key(&at));

    if (r == NULL || r->shared == 0)
        return;
    participants_leave(relay, r->shared);
    r->shared = 0;
}

void spoken_note(struct relay *relay, struct spoken_chat at, struct str message_id)
{
    struct ring *r = ring_of(relay->spoken, &at);
    unsigned slot = r->n < SPOKEN_PER_CHAT ? r->n++ : r->next;

    r->next = r->n < SPOKEN_PER_CHAT ? 0 : (uint16_t)((slot + 1) % SPOKEN_PER_CHAT);
    grow(r, r->n);
    r->said[slot] =
        (struct said_message){name_of(relay, message_id), clock_wall_ms(relay->env.clock)};
    put_record(relay, r, slot);
    touch(relay, r);
}

bool spoken_has(struct relay *relay, struct spoken_chat at, struct str message_id)
{
    const struct ring *r = map_get(&relay->spoken->rings, at_key(&at));
    uint64_t name = name_of(relay, message_id);
    int64_t oldest_ms = clock_wall_ms(relay->env.clock) - SPOKEN_MS;

    for (unsigned i = 0; r != NULL && i < r->n; i++)
        if (r->said[i].message == name && r->said[i].at_ms >= oldest_ms)
            return true;
    return false;
}

static int64_t newest_ms(const struct ring *r)
{
    int64_t at_ms = 0;

    for (unsigned i = 0; i < r->n; i++)
        if (r->said[i].at_ms > at_ms)
            at_ms = r->said[i].at_ms;
    return at_ms;
}

void spoken_expire(struct relay *relay, size_t steps)
{
    struct spoken *t = relay->spoken;
    int64_t oldest_ms = clock_wall_ms(relay->env.clock) - SPOKEN_MS;

    while (steps-- > 0 && !list_is_empty(&t->by_age)) {
        struct ring *r = list_first(&t->by_age, struct ring, by_age);
        if (newest_ms(r) >= oldest_ms)
            return;
        forget(relay, r);
    }
}

/* ---- loading ---- */

static bool read_key(struct str key, struct spoken_chat *ret_at, unsigned *ret_slot)
{
    uint8_t raw[KEY_BYTES / 2];
    uint64_t words[3] = {0};

    if (key.n != KEY_BYTES || !hex_decode(key, raw, sizeof raw))
        return false;
    for (size_t i = 0; i < 20; i++)
        words[i / 8] = words[i / 8] << 8 | raw[i];
    ret_at->chat = (struct hash128){.hi = words[0], .lo = words[1]};
    ret_at->box = (uint32_t)words[2];
    *ret_slot = raw[20];
    return true;
}

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct relay *relay = ctx;
    const struct said_record *rec = thing;
    struct spoken_chat at;
    unsigned slot;

    if (!read_key(key, &at, &slot) || rec->at_ms < clock_wall_ms(relay->env.clock) - SPOKEN_MS) {
        record_delete(relay->env.store, &said_form, key);
        return true;
    }
    struct ring *r = ring_of(relay->spoken, &at);
    grow(r, slot + 1);
    r->said[slot].message = rec->message;
    r->said[slot].at_ms = rec->at_ms;
    if (slot >= r->n)
        r->n = (uint16_t)(slot + 1);
    return true;
}

static int by_newest(const void *a, const void *b)
{
    int64_t x = newest_ms(*(struct ring *const *)a), y = newest_ms(*(struct ring *const *)b);

    return (x > y) - (x < y);
}

/* Records are loaded in order of their keys, so both lists are sorted by age afterwards. */
static void sort(struct spoken *t)
{
    size_t n = map_count(&t->rings), k = 0;
    struct ring **all = xcalloc(n + 1, sizeof(struct ring *));

    list_each (&t->by_age, it, nxt)
        all[k++] = list_entry(it, struct ring, by_age);
    if (n > 0)
        qsort(all, n, sizeof(struct ring *), by_newest);
    for (size_t i = 0; i < n; i++) {
        struct ring *r = all[i];
        list_move(&r->by_age, &t->by_age);
        list_move(&r->of_speaker, &r->by->rings);
        for (unsigned s = 1; s < r->n; s++)
            if (r->said[s].at_ms < r->said[r->next].at_ms)
                r->next = (uint16_t)s;
    }
    free(all);
}

enum bh_err spoken_load(struct relay *r)
{
    char why[256];
    enum bh_err err = record_load(r->env.store, &said_form, NULL, STR_NULL, on_record, r, why);

    sort(r->spoken);
    return err;
}
