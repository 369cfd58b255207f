/* spoken.c - design.  (spoken.h has the contract.)
 *
 * Messages: each chat has a ring, and each slot of the ring is a record.  The 257th message
 * overwrites the first, on disk too, so the disk needs no cleanup.  A chat without a sent message
 * for two days is dropped as a whole.
 *
 * Participants: one word for each chat, 56 bits of the chat's keyed hash and 8 bits of count.  Two
 * chats that share 56 bits share their count; the worst effect is an unneeded name in front of a
 * message.  A thousand small tables replace one large table: each grows by itself and by a quarter,
 * so no call takes long and a chat costs 10 to 13 bytes.  The tables use open addressing, and
 * removal closes the gap, so there are no tombstones. */
#include "relay/out/spoken.h"
#include <stdlib.h>
#include "base/crypto.h"
#include "relay/heart.h"
#include "relay/out/chats.h"
#include "relay/out/guard.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "tenancy/facts.h"

enum {
    FIRST_SLOTS = 4,
    KEY_BYTES = 32 + 8 + 2, /* in hex: the chat, the mailbox, the slot */
    PART_BITS = 10,
    PARTS = 1 << PART_BITS,
    COUNT_BITS = 8,
    FIRST_CAP = 8,
};
#define COUNT_MASK ((uint64_t)PARTICIPANTS_MAX)

struct said_message {
    uint64_t message; /* keyed hash of its id; 0: none */
    int64_t at_ms;    /* wall */
};

struct said_ring {                   /* the messages of one instance in one chat */
    struct list by_age, of_instance; /* the chat with the newest message is last */
    struct instance *inst;           /* borrowed */
    struct spoken_chat at;           /* the map key */
    struct said_message *said;       /* owned */
    uint64_t shared;                 /* participants_key() it counts under; 0: none */
    uint16_t n, cap, next; /* used slots, allocated slots, the slot to overwrite when full */
};

struct participants { /* one of the small tables */
    uint64_t *at;     /* owned; 0: free */
    uint32_t cap, n;
};

struct spoken {
    struct map rings; /* struct spoken_chat -> struct said_ring; owned */
    struct list by_age;
    struct buf scratch;
    struct participants parts[PARTS];
};

struct spoken *spoken_new(void)
{
    struct spoken *t = xcalloc(1, sizeof *t);

    list_init(&t->by_age);
    return t;
}

void spoken_free(struct spoken *t)
{
    if (t == NULL)
        return;
    list_each (&t->by_age, it, nxt) {
        struct said_ring *r = list_entry(it, struct said_ring, by_age);
        free(r->said);
        free(r);
    }
    for (size_t i = 0; i < PARTS; i++)
        free(t->parts[i].at);
    map_done(&t->rings);
    buf_done(&t->scratch);
    free(t);
}

/* The parts of a chat's name, joined in the scratch buffer behind @head. */
static struct str chat_name(struct spoken *t, struct str head, struct str platform, struct str bot,
                            struct str chat_id)
{
    buf_reset(&t->scratch);
    buf_add_str(&t->scratch, head);
    buf_add_str(&t->scratch, platform);
    buf_add_c(&t->scratch, '\x1f');
    buf_add_str(&t->scratch, bot);
    buf_add_c(&t->scratch, '\x1f');
    buf_add_str(&t->scratch, chat_id);
    return buf_str(&t->scratch);
}

/* ---- participants ---- */

uint64_t participants_key(const struct relay *r, struct str platform, struct str bot,
                          struct str chat_id)
{
    struct str name = chat_name(r->spoken, STR(""), platform, bot, chat_id);
    uint64_t key = hash64(&r->env.store->dedup_key, name) & ~COUNT_MASK;

    return key != 0 ? key : COUNT_MASK + 1;
}

static struct participants *part_of(const struct relay *r, uint64_t key)
{
    return &r->spoken->parts[key >> (64 - PART_BITS)];
}

static uint32_t home(const struct participants *p, uint64_t word)
{
    return (uint32_t)((word >> COUNT_BITS & UINT32_MAX) * p->cap >> 32);
}

static uint32_t after(const struct participants *p, uint32_t i)
{
    return i + 1 < p->cap ? i + 1 : 0;
}

/* How far behind @from, round the end. */
static uint32_t way(const struct participants *p, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + p->cap - from;
}

/* Where @key is, or the free slot where it belongs. */
static uint32_t probe(const struct participants *p, uint64_t key)
{
    uint32_t i = home(p, key);

    while (p->at[i] != 0 && (p->at[i] & ~COUNT_MASK) != key)
        i = after(p, i);
    return i;
}

static void grow(struct participants *p)
{
    struct participants old = *p;

    p->cap = old.cap != 0 ? old.cap + old.cap / 4 : FIRST_CAP;
    p->at = xcalloc(p->cap, sizeof p->at[0]);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.at[i] != 0)
            p->at[probe(p, old.at[i] & ~COUNT_MASK)] = old.at[i];
    free(old.at);
}

static void close_gap(struct participants *p, uint32_t gap)
{
    for (uint32_t i = after(p, gap); p->at[i] != 0; i = after(p, i)) {
        if (way(p, home(p, p->at[i]), i) < way(p, gap, i))
            continue; /* it would leave its own run */
        p->at[gap] = p->at[i];
        gap = i;
    }
    p->at[gap] = 0;
}

void participants_prefetch(const struct relay *r, uint64_t key)
{
    const struct participants *p = part_of(r, key);

    if (p->cap != 0)
        __builtin_prefetch(&p->at[home(p, key)], 1);
}

void participants_join(struct relay *r, uint64_t key)
{
    struct participants *p = part_of(r, key);

    if ((p->n + 1) * 5 > p->cap * 4)
        grow(p);
    uint64_t *word = &p->at[probe(p, key)];
    if (*word == 0) {
        *word = key;
        p->n++;
    }
    if ((*word & COUNT_MASK) < PARTICIPANTS_MAX)
        ++*word;
}

void participants_leave(struct relay *r, uint64_t key)
{
    struct participants *p = part_of(r, key);
    unsigned n = participants_count(r, key);

    if (n == 0 || n == PARTICIPANTS_MAX)
        return;
    uint32_t i = probe(p, key);
    p->at[i]--;
    if (n > 1)
        return;
    close_gap(p, i);
    p->n--;
}

unsigned participants_count(const struct relay *r, uint64_t key)
{
    const struct participants *p = part_of(r, key);

    return p->cap != 0 ? (unsigned)(p->at[probe(p, key)] & COUNT_MASK) : 0;
}

/* ---- messages ---- */

struct spoken_chat spoken_chat(const struct instance *i, struct str platform, struct str bot,
                               struct str chat_id)
{
    struct relay *r = i->relay;
    struct str name =
        chat_name(r->spoken, str_make(&i->box, sizeof i->box), platform, bot, chat_id);

    return (struct spoken_chat){hash128(&r->env.store->dedup_key, name), i->box};
}

static struct said_ring *ring_of(struct instance *i, const struct spoken_chat *at)
{
    struct spoken *t = i->relay->spoken;
    struct said_ring *r = map_get(&t->rings, str_make(at, sizeof *at));

    if (r != NULL)
        return r;
    r = xcalloc(1, sizeof *r);
    r->at = *at;
    r->inst = i;
    i->n_spoken++;
    list_init(&r->by_age);
    list_init(&r->of_instance);
    list_append(&t->by_age, &r->by_age);
    list_append(&i->spoken, &r->of_instance);
    map_put(&t->rings, str_make(&r->at, sizeof r->at), r);
    return r;
}

static void grow_ring(struct said_ring *r, size_t slots)
{
    size_t cap = r->cap != 0 ? r->cap : FIRST_SLOTS;

    while (cap < slots)
        cap *= 2;
    if (cap == r->cap)
        return;
    r->said = xrealloc(r->said, cap * sizeof *r->said);
    memset(r->said + r->cap, 0, (cap - r->cap) * sizeof *r->said);
    r->cap = (uint16_t)cap;
}

static void record_key(const struct said_ring *r, size_t slot, char key[KEY_BYTES + 1])
{
    char tail[HEX_U64_CHARS]; /* eight digits of the box, two of the slot */

    hex_u64(r->at.chat.hi, key);
    hex_u64(r->at.chat.lo, key + HEX_U64_CHARS);
    hex_u64((uint64_t)(uint32_t)r->at.box << 32 | (uint64_t)(slot & 0xff) << 24, tail);
    memcpy(key + 2 * HEX_U64_CHARS, tail, KEY_BYTES - 2 * HEX_U64_CHARS);
    key[KEY_BYTES] = '\0';
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

static void forget(struct said_ring *r)
{
    struct relay *relay = r->inst->relay;
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
    map_del(&relay->spoken->rings, str_make(&r->at, sizeof r->at));
    list_remove(&r->by_age);
    list_remove(&r->of_instance);
    r->inst->n_spoken--;
    free(r->said);
    free(r);
}

/* @r becomes the newest; its instance loses the oldest if it has too many. */
static void touch(struct said_ring *r)
{
    struct instance *i = r->inst;

    list_move(&r->by_age, &i->relay->spoken->by_age);
    list_move(&r->of_instance, &i->spoken);
    if (i->n_spoken > SPOKEN_CHATS)
        forget(list_first(&i->spoken, struct said_ring, of_instance));
}

void spoken_heard(struct relay *relay, struct spoken_chat at)
{
    struct said_ring *r = map_get(&relay->spoken->rings, str_make(&at, sizeof at));

    if (r == NULL || r->shared == 0)
        return;
    participants_leave(relay, r->shared);
    r->shared = 0;
}

void spoken_note(struct instance *i, struct spoken_chat at, struct str message_id)
{
    struct relay *relay = i->relay;
    struct said_ring *r = ring_of(i, &at);
    unsigned slot = r->n < SPOKEN_PER_CHAT ? r->n++ : r->next;
    char key[KEY_BYTES + 1];

    r->next = r->n < SPOKEN_PER_CHAT ? 0 : (uint16_t)((slot + 1) % SPOKEN_PER_CHAT);
    if (r->n > r->cap)
        grow_ring(r, r->n);
    uint64_t name = hash64(&relay->env.store->dedup_key, message_id);
    r->said[slot] = (struct said_message){name != 0 ? name : 1, clock_wall_ms(relay->env.clock)};
    record_key(r, slot, key);
    struct said_record rec = {str_of(key), r->said[slot].message, r->said[slot].at_ms};
    record_put(relay->env.store, &said_form, NULL, &rec, false, NULL, NULL);
    touch(r);
}

bool spoken_has(struct relay *relay, struct spoken_chat at, struct str message_id)
{
    const struct said_ring *r = map_get(&relay->spoken->rings, str_make(&at, sizeof at));
    uint64_t name = hash64(&relay->env.store->dedup_key, message_id);
    int64_t oldest_ms = clock_wall_ms(relay->env.clock) - SPOKEN_MS;

    for (unsigned i = 0; r != NULL && i < r->n; i++)
        if (r->said[i].message == (name != 0 ? name : 1) && r->said[i].at_ms >= oldest_ms)
            return true;
    return false;
}

static int64_t newest_ms(const struct said_ring *r)
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
        struct said_ring *r = list_first(&t->by_age, struct said_ring, by_age);
        if (newest_ms(r) >= oldest_ms)
            return;
        forget(r);
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
    ret_at->box = words[2];
    *ret_slot = raw[20];
    return true;
}

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct relay *relay = ctx;
    const struct said_record *rec = thing;
    struct spoken_chat at;
    struct instance *i = NULL;
    unsigned slot;

    if (read_key(key, &at, &slot) && rec->at_ms >= clock_wall_ms(relay->env.clock) - SPOKEN_MS)
        i = instance_at(relay, (uint32_t)at.box);
    if (i == NULL) { /* too old, or of an earlier holder of the name */
        record_delete(relay->env.store, &said_form, key);
        return true;
    }
    struct said_ring *r = ring_of(i, &at);
    grow_ring(r, slot + 1);
    r->said[slot] = (struct said_message){rec->message, rec->at_ms};
    if (slot >= r->n)
        r->n = (uint16_t)(slot + 1);
    return true;
}

static int by_newest(const void *a, const void *b)
{
    int64_t x = newest_ms(*(struct said_ring *const *)a),
            y = newest_ms(*(struct said_ring *const *)b);

    return (x > y) - (x < y);
}

/* Records are loaded in order of their keys, so both lists are sorted by age afterwards. */
static void sort(struct spoken *t)
{
    size_t n = map_count(&t->rings), k = 0;
    struct said_ring **all = xcalloc(n + 1, sizeof(struct said_ring *));

    list_each (&t->by_age, it, nxt)
        all[k++] = list_entry(it, struct said_ring, by_age);
    if (n > 0)
        qsort(all, n, sizeof(struct said_ring *), by_newest);
    for (size_t i = 0; i < n; i++) {
        struct said_ring *r = all[i];
        list_move(&r->by_age, &t->by_age);
        list_move(&r->of_instance, &r->inst->spoken);
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

/* ---- the name ----
 *
 * The name is bold in the platform's own Markdown; Markdown inside the name is escaped. */

struct str byline_add(struct instance *i, const struct destination *to, const struct action *a,
                      struct buf *room)
{
    const struct descriptor *d = to->outlet->descriptor;
    const struct gateway *g;
    bool says = a->op == ACTION_SEND || a->op == ACTION_EDIT || a->op == ACTION_SEND_MEDIA ||
                a->op == ACTION_PROMPT || a->op == ACTION_DRAFT;

    if (!says || a->content.n == 0 || to->outlet->answers)
        return a->content;
    struct str bot = str_of(to->outlet->bot);
    const struct known_chat *chat = chats_find(i, to->platform, a->chat_id);
    uint64_t key = participants_key(i->relay, to->platform, bot, a->chat_id);
    if (chat == NULL || !str_eq(chat_bot(chat), bot)) { /* else chats.h counts it */
        struct spoken_chat at = spoken_chat(i, to->platform, bot, a->chat_id);
        struct said_ring *ring = ring_of(i, &at);
        if (ring->shared == 0) {
            ring->shared = key;
            participants_join(i->relay, key);
        }
        touch(ring);
    }
    if (participants_count(i->relay, key) < 2)
        return a->content;
    g = facts_newest_gateway(i->relay->env.facts, instance_tenant(i), instance_id(i));
    if (g == NULL || g->display_name == NULL)
        return a->content;
    if (str_eq(str_of(d->markdown_dialect), STR("plain"))) {
        buf_printf(room, "%s: ", g->display_name);
    } else {
        buf_add_z(room, "**");
        for (const char *c = g->display_name; *c != '\0'; c++) {
            if (memchr("\\`*_~[](){}#+-.!>|", *c, 18) != NULL)
                buf_add_c(room, '\\');
            buf_add_c(room, *c);
        }
        buf_add_z(room, ":** ");
    }
    buf_add_str(room, a->content);
    struct str named = buf_str(room);
    size_t n = str_eq(str_of(d->len_unit), STR("utf16")) ? utf16_units(named) : utf8_chars(named);
    bool fits = n <= (size_t)d->max_message_length;
    return a->op == ACTION_EDIT && !fits ? a->content : named;
}
