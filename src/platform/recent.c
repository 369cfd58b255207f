/* recent.c - design.  (recent.h has the contract.)
 *
 * A chat is a list of words, oldest first; the chats are a list too, the one that spoke last at the
 * end.  What is too old is dropped when its chat is looked at, and goes with its chat at last. */
#include "platform/recent.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

struct words {
    struct list link;
    int64_t at_ms;  /* monotonic */
    bool addressed; /* to the bot */
    size_t bytes;
    struct event_said said; /* points behind this struct */
    char text[];
};

struct recent_chat {
    struct list link;  /* recent->chats */
    struct list words; /* oldest first */
    size_t n, bytes;
    char key[];
};

struct recent {
    struct clock *clock; /* borrowed */
    size_t per_chat, bytes;
    int64_t keep_ms;
    struct list chats; /* the one that spoke last at the end */
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
        list_init(&c->link);
        list_init(&c->words);
        map_put(&r->by_key, str_of(c->key), c);
    }
    list_move(&c->link, &r->chats);
    return c;
}

static struct str keep(char **at, struct str s)
{
    char *p = *at;

    if (s.p == NULL)
        return STR_NULL;
    memcpy(p, s.p, s.n);
    *at += s.n;
    return str_make(p, s.n);
}

static struct words *words_new(const struct event *ev, int64_t now_ms)
{
    size_t n = ev->text.n + ev->message_id.n + ev->user_id.n + ev->user_name.n;
    struct words *w = xcalloc(1, sizeof *w + n);
    char *at = w->text;

    w->at_ms = now_ms;
    w->addressed = ev->mentions_bot || ev->replies_to_bot;
    w->bytes = sizeof *w + n;
    w->said = (struct event_said){.text = keep(&at, ev->text),
                                  .message_id = keep(&at, ev->message_id),
                                  .user_id = keep(&at, ev->user_id),
                                  .user_name = keep(&at, ev->user_name)};
    list_init(&w->link);
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

static void add(struct recent *r, struct recent_chat *c, struct words *w, struct list *before)
{
    list_add_before(before, &w->link);
    c->n++;
    c->bytes += w->bytes;
    r->bytes += w->bytes;
}

static bool is_old(const struct recent *r, const struct words *w)
{
    return clock_now_ms(r->clock) - w->at_ms >= r->keep_ms;
}

/* Chats whose last words are too old, or that there is no room for. */
static void tidy(struct recent *r)
{
    while (!list_is_empty(&r->chats)) {
        struct recent_chat *c = list_first(&r->chats, struct recent_chat, link);
        if (c->n > 0 && r->bytes <= RECENT_TOTAL_BYTES &&
            !is_old(r, list_entry(c->words.prev, struct words, link)))
            return;
        chat_drop(r, c);
    }
}

void recent_note(struct recent *r, struct str chat, const struct event *ev)
{
    if (r->per_chat == 0 || ev->text.n == 0 || ev->text.n > EVENT_CONTEXT_BYTES)
        return;
    struct recent_chat *c = chat_of(r, chat);
    struct words *old = find(c, ev->message_id), *w = words_new(ev, clock_now_ms(r->clock));
    w->at_ms = old != NULL ? old->at_ms : w->at_ms;
    add(r, c, w, old != NULL ? &old->link : &c->words);
    if (old != NULL)
        words_drop(r, c, old);
    while (c->n > r->per_chat || (c->n > 1 && c->bytes > EVENT_CONTEXT_BYTES + c->n * sizeof *w))
        words_drop(r, c, list_first(&c->words, struct words, link));
    tidy(r);
}

static void drop_old(struct recent *r, struct recent_chat *c)
{
    while (c->n > 0 && is_old(r, list_first(&c->words, struct words, link)))
        words_drop(r, c, list_first(&c->words, struct words, link));
}

size_t recent_before(struct recent *r, struct str chat, const struct event *ev,
                     struct event_said *out)
{
    struct recent_chat *c = map_get(&r->by_key, chat);
    size_t n = 0;

    if (c == NULL)
        return 0;
    drop_old(r, c);
    list_each (&c->words, it, nxt) {
        const struct words *w = list_entry(it, struct words, link);
        bool told = w->addressed && str_eq(w->said.user_id, ev->user_id);
        if (str_eq(w->said.message_id, ev->message_id))
            break; /* it came again: what follows is later */
        if (!told)
            out[n++] = w->said;
    }
    return n;
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
        if (c->n == 0)
            chat_drop(r, c);
    }
}
