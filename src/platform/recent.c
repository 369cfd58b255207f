/* recent.c - design.  (recent.h has the contract.)
 *
 * A chat has a list of messages (struct words), oldest first.  The chats are in a list by last use.
 * A lookup in a chat drops its expired messages; tidy() drops whole chats. */
#include "platform/recent.h"
#include <stdlib.h>
#include "base/arena.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

enum { LATER = 8 }; /* extra messages kept, for a recent_before() that comes some messages late */

struct words {
    struct list link;
    int64_t at_ms;  /* monotonic */
    bool addressed; /* mentions the bot or replies to it */
    size_t bytes;
    struct event_said said; /* points behind this struct */
    char text[];
};

struct recent_chat {
    struct list link;  /* recent->chats */
    struct list words; /* oldest first */
    int64_t at_ms;     /* monotonic; last note or refill */
    size_t n, bytes;   /* of its messages */
    size_t since_gap;  /* messages noted since the last gap, without expired ones */
    bool reaches_back;
    char key[];
};

struct recent {
    struct clock *clock; /* borrowed */
    size_t per_chat, bytes;
    int64_t keep_ms;
    struct list chats; /* least recently used first */
    struct map by_key;
};

struct recent *recent_new(struct clock *clock, size_t per_chat)
{
    struct recent *r = xcalloc(1, sizeof *r);

    r->clock = clock;
    r->per_chat = per_chat < EVENT_MAX_CONTEXT ? per_chat : EVENT_MAX_CONTEXT;
    r->keep_ms = RECENT_MS;
    list_init(&r->chats);
    return r;
}

void recent_retain(struct recent *r, int64_t retention_ms)
{
    r->keep_ms = retention_ms > 0 && retention_ms < RECENT_MS ? retention_ms : RECENT_MS;
}

static void words_drop(struct recent *r, struct recent_chat *c, struct words *w)
{
    list_remove(&w->link);
    c->n--;
    c->bytes -= w->bytes;
    r->bytes -= w->bytes;
    free(w);
}

static void chat_drop(struct recent *r, struct recent_chat *c)
{
    list_each (&c->words, it, nxt)
        words_drop(r, c, list_entry(it, struct words, link));
    map_del(&r->by_key, str_of(c->key));
    list_remove(&c->link);
    r->bytes -= sizeof *c;
    free(c);
}

void recent_free(struct recent *r)
{
    if (r == NULL)
        return;
    list_each (&r->chats, it, nxt)
        chat_drop(r, list_entry(it, struct recent_chat, link));
    map_done(&r->by_key);
    free(r);
}

size_t recent_bytes(const struct recent *r)
{
    return r->bytes;
}

static struct recent_chat *chat_of(struct recent *r, struct str key)
{
    struct recent_chat *c = map_get(&r->by_key, key);

    if (c == NULL) {
        c = xcalloc(1, sizeof *c + key.n + 1);
        memcpy(c->key, key.p, key.n);
        list_init(&c->words);
        map_put(&r->by_key, str_of(c->key), c);
        r->bytes += sizeof *c;
    }
    c->at_ms = clock_now_ms(r->clock);
    list_move(&c->link, &r->chats);
    return c;
}

static struct words *words_new(const struct event_said *said, bool addressed, int64_t at_ms)
{
    size_t n = said->text.n + said->message_id.n + said->user_id.n + said->user_name.n;
    struct words *w = xcalloc(1, sizeof *w + n);
    char *at = w->text;

    w->at_ms = at_ms;
    w->addressed = addressed;
    w->bytes = sizeof *w + n;
    w->said = (struct event_said){.text = str_pack(&at, said->text),
                                  .message_id = str_pack(&at, said->message_id),
                                  .user_id = str_pack(&at, said->user_id),
                                  .user_name = str_pack(&at, said->user_name)};
    return w;
}

static struct words *find(struct recent_chat *c, struct str message_id)
{
    list_each (&c->words, it, nxt) {
        struct words *w = list_entry(it, struct words, link);
        if (str_eq(w->said.message_id, message_id))
            return w;
    }
    return NULL;
}

/* Messages whose ids are not numbers keep the order in which they were noted. */
static bool is_older(struct str id, struct str than)
{
    uint64_t a, b;

    return !str_to_u64(id, &a) || !str_to_u64(than, &b) || a < b;
}

static void add(struct recent *r, struct recent_chat *c, struct words *w, struct list *before)
{
    list_add_before(before, &w->link);
    c->n++;
    c->bytes += w->bytes;
    r->bytes += w->bytes;
}

/* Drops expired chats, and the least recently used ones beyond RECENT_TOTAL_BYTES. */
static void tidy(struct recent *r)
{
    while (!list_is_empty(&r->chats)) {
        struct recent_chat *c = list_first(&r->chats, struct recent_chat, link);
        if (r->bytes <= RECENT_TOTAL_BYTES && clock_now_ms(r->clock) - c->at_ms < r->keep_ms)
            return;
        chat_drop(r, c);
    }
}

/* Replaces @old in its place. */
static void change(struct recent *r, struct recent_chat *c, struct words *old,
                   const struct event_said *said, bool addressed)
{
    struct words *w = words_new(said, addressed, old->at_ms);

    add(r, c, w, &old->link);
    words_drop(r, c, old);
}

void recent_note(struct recent *r, struct str chat, const struct event *ev)
{
    if (r->per_chat == 0 || ev->text.n == 0 || ev->text.n > EVENT_CONTEXT_BYTES)
        return;
    struct recent_chat *c = chat_of(r, chat);
    struct words *old = find(c, ev->message_id);
    const struct event_said said = {ev->text, ev->message_id, ev->user_id, ev->user_name};
    bool addressed = ev->mentions_bot || ev->replies_to_bot;
    if (old != NULL)
        change(r, c, old, &said, addressed);
    else {
        /* Inserts it in order and drops the oldest messages beyond the bounds. */
        struct words *w = words_new(&said, addressed, clock_now_ms(r->clock));
        struct list *before = &c->words;
        while (before->prev != &c->words &&
               !is_older(list_entry(before->prev, struct words, link)->said.message_id,
                         w->said.message_id))
            before = before->prev;
        add(r, c, w, before);
        /* recent_before() gives no more than per_chat. */
        c->reaches_back |= ++c->since_gap >= r->per_chat;
        while (c->n > r->per_chat + LATER ||
               (c->n > 1 && c->bytes > 2 * EVENT_CONTEXT_BYTES + c->n * sizeof *w))
            words_drop(r, c, list_first(&c->words, struct words, link));
    }
    tidy(r);
}

void recent_edit(struct recent *r, struct str chat, struct str message_id, struct str text)
{
    struct recent_chat *c = map_get(&r->by_key, chat);
    struct words *w = c != NULL ? find(c, message_id) : NULL;

    if (w == NULL)
        return;
    struct event_said said = w->said;
    said.text = text;
    if (text.n == 0 || text.n > EVENT_CONTEXT_BYTES)
        words_drop(r, c, w);
    else
        change(r, c, w, &said, w->addressed);
}

struct str recent_author(struct recent *r, struct str chat, struct str message_id)
{
    struct recent_chat *c = map_get(&r->by_key, chat);
    const struct words *w = c != NULL ? find(c, message_id) : NULL;

    return w != NULL ? w->said.user_id : STR_NULL;
}

/* Drops expired messages; the chat reaches back if those that are left are enough. */
static void drop_old(struct recent *r, struct recent_chat *c)
{
    int64_t now_ms = clock_now_ms(r->clock);

    while (c->n > 0 && now_ms - list_first(&c->words, struct words, link)->at_ms >= r->keep_ms) {
        words_drop(r, c, list_first(&c->words, struct words, link));
        if (c->since_gap > c->n)
            c->since_gap = c->n;
        c->reaches_back = c->since_gap >= r->per_chat;
    }
}

bool recent_reaches_back(struct recent *r, struct str chat)
{
    struct recent_chat *c = map_get(&r->by_key, chat);

    if (c != NULL)
        drop_old(r, c);
    return c != NULL && c->reaches_back;
}

void recent_refill(struct recent *r, struct str chat, struct str message_id)
{
    struct recent_chat *c = chat_of(r, chat);

    list_each (&c->words, it, nxt) {
        struct words *w = list_entry(it, struct words, link);
        if (str_eq(w->said.message_id, message_id) || !is_older(w->said.message_id, message_id))
            break;
        words_drop(r, c, w);
    }
    c->reaches_back = true;
    tidy(r);
}

void recent_gap(struct recent *r, recent_in_fn *in, void *ctx)
{
    list_each (&r->chats, it, nxt) {
        struct recent_chat *c = list_entry(it, struct recent_chat, link);
        if (in(ctx, str_of(c->key))) {
            c->reaches_back = false;
            c->since_gap = 0;
        }
    }
}

size_t recent_before(struct recent *r, struct str chat, const struct event *ev,
                     struct event_said *out)
{
    struct recent_chat *c = map_get(&r->by_key, chat);
    size_t n = 0, looked = 0, bytes = 0;

    if (c == NULL)
        return 0;
    drop_old(r, c);
    struct list *end = c->words.next; /* the first message that is not before @ev */
    while (end != &c->words) {
        struct str id = list_entry(end, struct words, link)->said.message_id;
        if (str_eq(id, ev->message_id) || !is_older(id, ev->message_id))
            break;
        end = end->next;
    }
    struct list *first = end;
    for (; first->prev != &c->words && looked < r->per_chat; first = first->prev, looked++) {
        const struct words *w = list_entry(first->prev, struct words, link);
        bytes += w->said.text.n;
        if (bytes > EVENT_CONTEXT_BYTES)
            break;
    }
    for (; first != end; first = first->next) {
        const struct words *w = list_entry(first, struct words, link);
        if (!w->addressed || !str_eq(w->said.user_id, ev->user_id))
            out[n++] = w->said;
    }
    return n;
}

void recent_join(struct recent *r, struct str chat, struct event *ev, const struct event *noted,
                 struct arena *arena)
{
    struct event_said *said = arena_alloc(arena, EVENT_MAX_CONTEXT * sizeof *said);

    ev->n_context = recent_before(r, chat, ev, said);
    ev->context = said;
    for (size_t i = 0; i < ev->n_context; i++) { /* recent_note() may drop them */
        said[i].text = arena_str(arena, said[i].text);
        said[i].message_id = arena_str(arena, said[i].message_id);
        said[i].user_id = arena_str(arena, said[i].user_id);
        said[i].user_name = arena_str(arena, said[i].user_name);
    }
    recent_note(r, chat, noted != NULL ? noted : ev);
}

void recent_forget(struct recent *r, struct str user)
{
    list_each (&r->chats, it, nxt) {
        struct recent_chat *c = list_entry(it, struct recent_chat, link);
        list_each (&c->words, at, then) {
            struct words *w = list_entry(at, struct words, link);
            if (str_eq(w->said.user_id, user))
                words_drop(r, c, w);
        }
    }
}
