/* byline.c - design.  (byline.h has the contract.)
 *
 * Participants: one word for each chat, 56 bits of the chat's keyed hash and 8 bits of count.  Two
 * chats that share 56 bits share their count; the worst effect is an unneeded name in front of a
 * message.  A thousand small tables replace one large table: each grows by itself and by a quarter,
 * so no call takes long and a chat costs 10 to 13 bytes.  The tables use open addressing, and
 * removal closes the gap, so there are no tombstones.
 *
 * The name is bold in the platform's own Markdown; Markdown inside the name is escaped. */
#include "relay/out/byline.h"
#include <stdlib.h>
#include "base/buf.h"
#include "base/mem.h"
#include "relay/heart.h"
#include "relay/out/chats.h"
#include "relay/out/guard.h"
#include "relay/out/spoken.h"
#include "relay/sleep/instance.h"
#include "store/store.h"
#include "tenancy/facts.h"

enum { PART_BITS = 10, PARTS = 1 << PART_BITS, COUNT_BITS = 8, FIRST_CAP = 8 };
#define COUNT_MASK ((uint64_t)PARTICIPANTS_MAX)

struct part {
    uint64_t *at; /* owned; 0: free */
    uint32_t cap, n;
};

struct participants {
    struct part parts[PARTS];
    struct buf scratch;
};

struct participants *participants_new(void)
{
    return xcalloc(1, sizeof(struct participants));
}

void participants_free(struct participants *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < PARTS; i++)
        free(t->parts[i].at);
    buf_done(&t->scratch);
    free(t);
}

uint64_t participants_key(const struct relay *r, struct str platform, struct str bot,
                          struct str chat_id)
{
    struct buf *b = &r->participants->scratch;

    buf_reset(b);
    buf_add_str(b, platform);
    buf_add_c(b, '\x1f');
    buf_add_str(b, bot);
    buf_add_c(b, '\x1f');
    buf_add_str(b, chat_id);
    uint64_t key = hash64(&r->env.store->dedup_key, buf_str(b)) & ~COUNT_MASK;
    return key != 0 ? key : COUNT_MASK + 1;
}

/* ---- one table ---- */

static struct part *part_of(struct participants *t, uint64_t key)
{
    return &t->parts[key >> (64 - PART_BITS)];
}

static uint32_t home(const struct part *p, uint64_t word)
{
    return (uint32_t)((word >> COUNT_BITS & UINT32_MAX) * p->cap >> 32);
}

static uint32_t after(const struct part *p, uint32_t i)
{
    return i + 1 < p->cap ? i + 1 : 0;
}

/* How far behind @from, round the end. */
static uint32_t way(const struct part *p, uint32_t from, uint32_t to)
{
    return to >= from ? to - from : to + p->cap - from;
}

/* Where @key is, or the free slot where it belongs. */
static uint32_t probe(const struct part *p, uint64_t key)
{
    uint32_t i = home(p, key);

    while (p->at[i] != 0 && (p->at[i] & ~COUNT_MASK) != key)
        i = after(p, i);
    return i;
}

static void grow(struct part *p)
{
    struct part old = *p;

    p->cap = old.cap != 0 ? old.cap + old.cap / 4 : FIRST_CAP;
    p->at = xcalloc(p->cap, sizeof p->at[0]);
    for (uint32_t i = 0; i < old.cap; i++)
        if (old.at[i] != 0)
            p->at[probe(p, old.at[i] & ~COUNT_MASK)] = old.at[i];
    free(old.at);
}

static void close_gap(struct part *p, uint32_t gap)
{
    for (uint32_t i = after(p, gap); p->at[i] != 0; i = after(p, i)) {
        if (way(p, home(p, p->at[i]), i) < way(p, gap, i))
            continue; /* it would leave its own run */
        p->at[gap] = p->at[i];
        gap = i;
    }
    p->at[gap] = 0;
}

/* ---- counting ---- */

void participants_prefetch(const struct relay *r, uint64_t key)
{
    const struct part *p = part_of(r->participants, key);

    if (p->cap != 0)
        __builtin_prefetch(&p->at[home(p, key)], 1);
}

void participants_join(struct relay *r, uint64_t key)
{
    struct part *p = part_of(r->participants, key);

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
    struct part *p = part_of(r->participants, key);
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
    const struct part *p = part_of(r->participants, key);

    return p->cap != 0 ? (unsigned)(p->at[probe(p, key)] & COUNT_MASK) : 0;
}

/* ---- the name ---- */

static bool says_something(const struct action *a)
{
    return a->content.n > 0 && (a->op == ACTION_SEND || a->op == ACTION_EDIT ||
                                a->op == ACTION_SEND_MEDIA || a->op == ACTION_PROMPT);
}

/* Counts @i as a participant of the chat.  True when the chat has other participants. */
static bool is_shared(const struct instance *i, const struct destination *to,
                      const struct action *a)
{
    struct relay *r = i->relay;
    struct str bot = str_of(to->outlet->bot);
    const struct known_chat *chat = chats_find_on(i, to->platform, a->chat_id);
    uint64_t key = participants_key(r, to->platform, bot, a->chat_id);

    if (chat == NULL || !str_eq(chat_bot(chat), bot))
        spoken_enter(r, spoken_chat(i, to->platform, bot, a->chat_id), key);
    return participants_count(r, key) > 1;
}

static void add_escaped(struct buf *out, struct str name)
{
    for (size_t n = 0; n < name.n; n++) {
        if (memchr("\\`*_~[](){}#+-.!>|", name.p[n], 18) != NULL)
            buf_add_c(out, '\\');
        buf_add_c(out, name.p[n]);
    }
}

static bool fits(struct str text, const struct descriptor *d)
{
    size_t n = str_eq(str_of(d->len_unit), STR("utf16")) ? utf16_units(text) : utf8_chars(text);

    return n <= (size_t)d->max_message_length;
}

struct str byline_add(const struct instance *i, const struct destination *to,
                      const struct action *a, struct buf *room)
{
    const struct descriptor *d = to->outlet->descriptor;
    const struct gateway *g;

    if (!says_something(a) || to->outlet->answers || !is_shared(i, to, a))
        return a->content;
    g = facts_newest_gateway(i->relay->env.facts, instance_tenant(i), instance_id(i));
    if (g == NULL || g->display_name == NULL)
        return a->content;
    if (str_eq(str_of(d->markdown_dialect), STR("plain"))) {
        buf_printf(room, "%s: ", g->display_name);
    } else {
        buf_add_z(room, "**");
        add_escaped(room, str_of(g->display_name));
        buf_add_z(room, ":** ");
    }
    buf_add_str(room, a->content);
    return a->op == ACTION_EDIT && !fits(buf_str(room), d) ? a->content : buf_str(room);
}
