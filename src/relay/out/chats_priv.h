/* chats_priv.h - the chats themselves; for chats.c and chats_end.c. */
#pragma once
#include "base/clock.h"
#include "base/map.h"
#include "relay/out/chat_table.h"
#include "relay/heart.h"
#include "relay/sleep/instance.h"

struct store_put;

struct chats {
    struct chat_table table;
    struct chat_row old; /* those that may be forgotten, least recently heard from first */
    size_t n_old;
    struct map puts; /* number of the chat -> struct chat_put, owned: records on their way */
    struct buf ground;
    struct chat_row ending; /* those that are over */
    size_t n_ending;
    struct timer end_some;
    struct store_put *ended; /* borrowed; the records of a step are being deleted; NULL: none */
    struct relay *relay;     /* borrowed; NULL: nothing ever ended */
    int64_t retention_ms;    /* 0: chats are kept for ever, and no day is written */
    uint16_t *days;          /* owned; by number: the day on disk; 0: not known; NULL: none yet */
    size_t n_days;
};

struct chat_put {
    uint32_t number;
    struct known_chat *chat; /* borrowed */
    struct store_put *put;   /* borrowed */
};

static inline struct chats *chats_of(const struct instance *i)
{
    return i->relay->chats;
}

/* Into, or out of, the queue of those that may be forgotten. */
void chat_enter_old(struct known_chat *c);
void chat_leave_old(struct known_chat *c);         /* harmless when it is not there */
uint64_t chat_company(const struct known_chat *c); /* its place there: company.h */
void chat_record_key(const struct known_chat *c, struct buf *out);
struct chat_put *chat_put_of(const struct known_chat *c); /* NULL: nothing is on its way */
void chat_put_over(struct chat_put *p);                   /* freed */
void chat_forget_one(struct known_chat *c);               /* one that is too many */
timer_cb chats_on_end_some;

/* ---- chats_age.c: the day a chat was last heard from, where there is a retention ---- */
uint16_t chats_today(const struct relay *r);
uint16_t chat_day(const struct known_chat *c); /* as it is on disk; 0: not known */
void chat_set_day(const struct known_chat *c, uint16_t day);
void chat_store(struct known_chat *c); /* write its record */
