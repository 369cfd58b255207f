/* pairing_priv.h - the queue in memory, shared by pairing.c and pairing_decide.c; nobody else
 * includes it. */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "tenancy/grants_priv.h"
#include "tenancy/pairing.h"

enum { CHAT_TYPE_MAX = 16 };

struct stranger {
    struct list link;  /* queue->people or queue->blocked */
    struct list dirty; /* pairing->dirty or ->writing; unlinked: the record is as in memory */
    struct queue *of;  /* borrowed */
    uint64_t id;
    enum pairing_state state;
    uint32_t messages;
    int64_t first_ms, last_ms, told_ms, decided_ms;
    int64_t written_ms; /* wall clock: the last write that was submitted; 0: no record */
    bool held;          /* a decision about it is under way */
    bool counted;       /* messages came since the last write */
    char *chat;         /* owned; the direct chat; NULL: none */
    char type[CHAT_TYPE_MAX + 1];
    char name[PAIRING_NAME_MAX + 1];
    char user[];
};

struct queue {          /* the people of one bot */
    struct list link;   /* pairing->queues, in order of creation */
    struct list people; /* those who wait or were denied, by their last message */
    struct list blocked;
    size_t n_people, n_blocked, n_waiting;
    int64_t receipts_from_ms; /* monotonic: the hour that @receipts counts */
    unsigned receipts;
    struct str platform, bot, key; /* in bytes; key is platform \x1f bot */
    char bytes[];
};

struct stranger_gone { /* a record to be deleted, unless its person is listed again by then */
    struct list link;
    uint64_t id;
    size_t n;
    char key[];
};

struct deciding { /* a decision under way */
    struct list link;
    struct pairing *p; /* borrowed */
    uint64_t id;       /* 0: none is held */
    enum decision { APPROVE, SET, FORGET } what;
    enum pairing_state state;
    struct pairing_link *ret; /* borrowed; of an approval */
    facts_done_cb *done;
    void *ctx;
};

struct pairing {
    struct pairing_env env;
    struct map by_id;               /* 8 bytes of the id -> struct stranger, owned */
    struct map queues;              /* platform \x1f bot -> struct queue, owned */
    struct list by_age;             /* struct queue */
    struct list dirty, writing;     /* person.dirty */
    struct list gone, deleting;     /* struct stranger_gone, owned */
    struct list deciding, receipts; /* owned; under way */
    size_t n_people;                /* of all queues */
    uint64_t in_state[PAIRING_BLOCKED + 1];
    struct timer write, sweep;
    bool is_writing;
    pairing_tell_cb *tell;
    void *tell_ctx;
    struct pairing_stats n; /* the counters; the gauges are computed */
};

struct pairing_record {
    struct str platform, bot, user, name, chat, type;
    enum pairing_state state;
    uint32_t messages;
    int64_t first_ms, last_ms, told_ms, decided_ms;
};
struct pairing_record stranger_record(const struct stranger *e);

int64_t pairing_now(const struct pairing *p); /* wall clock */
/* The id of a person on a bot; 0: such a person cannot be listed. */
uint64_t stranger_id(const struct pairing *p, struct str platform, struct str bot, struct str user);
struct stranger *stranger_find(const struct pairing *p, uint64_t id); /* NULL: not in the queue */
/* Sets the state and puts the entry to the end of its list. */
void stranger_enter(struct pairing *p, struct stranger *e, enum pairing_state state);
/* Makes room for one more person of @q.  False: decisions hold every entry. */
bool strangers_make_room(struct pairing *p, struct queue *q);
void stranger_drop(struct pairing *p, struct stranger *e); /* from memory alone */
/* Drops the entry; its record, if it has one, is deleted later. */
void stranger_push_out(struct pairing *p, struct stranger *e);
/* A link of the person counts on the bot: it was made without the queue. */
bool stranger_has_link(const struct pairing *p, const struct stranger *e);
