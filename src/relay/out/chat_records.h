/* chat_records.h - the records of chats in the store: writing, loading, retention, removal.
 *
 * Retention: the record of a chat has the day of its last event, and memory has a copy of the day
 * in two bytes.  A chat in use costs one write a day; without a retention it costs none.
 *
 * Another holder of an instance's name starts without chats.  The chats of the earlier holder wait
 * in a queue until they are removed:
 *
 *      chats_end() --> ENDING --a step: 512 from memory--> their records deleted --> the next step
 *
 * chats.c keeps the chats in memory and calls this module. */
#pragma once
#include "base/clock.h"
#include "base/err.h"
#include "base/map.h"
#include "relay/out/chats.h"
#include "store/store.h"

struct chats {           /* of chats.c and chat_records.c only */
    struct relay *relay; /* borrowed */
    struct chat_table table;
    struct chat_list old; /* chats that may be forgotten, oldest last event first */
    size_t n_old;
    struct map puts; /* number of the chat -> struct chat_put, owned: pending writes */
    struct buf basis;
    struct record_reader *records; /* owned */
    struct chat_list ending;       /* chats that are over and wait for their removal */
    size_t n_ending;
    struct timer end_some;
    struct store_put *ended; /* borrowed; the pending delete of a step; NULL: none */
    int64_t retention_ms;    /* 0: no retention, and no day is written */
    uint16_t *days;          /* owned; by number: the day on disk; 0: not known; NULL: none yet */
    size_t n_days;
};

enum bh_err chats_load(struct relay *r); /* at start, after the instances */
void chat_records_init(struct chats *t);
void chat_records_done(struct chats *t);

struct chat_record { /* texts are borrowed until the next record is read */
    struct str tenant, instance, platform, id;
    struct str bot, scope;
    uint32_t box; /* mailbox number; differs from the instance's: an earlier life (instance.h) */
    struct str keys;
    struct record_json basis;
    int64_t day; /* of the last event; 0: written while no retention was set */
};
extern const struct record_form chat_form;
/* False: the record is damaged. */
bool chats_read(struct relay *r, struct str key, struct str value, struct chat_record *ret);
/* Writes the record of @c; a write of it that is still pending is superseded. */
void chat_store(struct known_chat *c);
/* True when the record of @c must be written again, because it names an earlier day. */
bool chat_is_aged(const struct known_chat *c);
/* Removes @c from memory and from disk. */
void chat_forget(struct known_chat *c);

/* Ends all chats of @i, whose name has a new holder.  They are deleted from memory and disk a few
 * per turn. */
void chats_end(struct instance *i);

/* Sets the retention: chats without events for so long are dropped, by whole days; 0: no limit. */
void chats_retain(struct relay *r, int64_t retention_ms);
extern const struct sweep_ops chats_age_ops; /* a sweep of the records; ctx: the relay */
