/* outgoing.h - one action on its way to a platform: its state, and its record on disk.
 *
 *      NEW --> FETCHING --the file is here--> ops->act() of the platform, which makes a new one
 *       |         '-- or nothing before it in its chat is being fetched --'
 *       '----> WAITING --turn--> RECORDING --on disk--> TRYING, TRYING_ONCE --> the next part
 *                ^  ^                |  |                    |         |
 *                |  |              HELD |                    |         '--lost answer--> LOOKING
 *                |  '---- put off ------+------ put off -----'              |
 *                '-------------------- put off, asked again ---------------'
 *
 *      NEW --fails at once--> ENDING, until the turn ends        any state --end--> freed
 *
 * A record has one of four states.  SENT and UNKNOWN are records without a struct outgoing.
 *
 *      WAITING --leaves--> TRYING --answered--> no record; SENT if the gateway was told "queued"
 *         ^--put off for sure--'    '--no answer--> UNKNOWN
 *
 * Namespace "outgoing", key platform US bot US number (16 hex digits that grow over restarts, so
 * the order of keys is the order of asking), value an object:
 *
 *      {"tenant", "instance", "life", "request", "said", "op", "chat", "lane", "at", "tried",
 *       "state", "twice", "attempts", "part", "parts", "first", "why", "edit", "told",
 *       "action": {as the frame had it}, "file": {"path", "type", "name", "url", "size"}}
 *
 * sender.c moves an outgoing through its states; outgoing.c reads and writes the records.
 */
#pragma once
#include "base/buf.h"
#include "core/action.h"
#include "platform/outbox.h"

struct http_call;
struct sender;
struct store_put;

enum outgoing_state {
    OUTGOING_NEW,
    OUTGOING_FETCHING,    /* its file is being fetched, or it stands behind such a message */
    OUTGOING_WAITING,     /* in its lane; on disk: nothing of this part has left */
    OUTGOING_RECORDING,   /* its turn has come; its record is being written */
    OUTGOING_HELD,        /* the adapter cannot write its request before sender_resume() */
    OUTGOING_TRYING,      /* its request is under way; on disk: this part may have left */
    OUTGOING_TRYING_ONCE, /* the same; the request must not be repeated once it may have arrived */
    OUTGOING_LOOKING,     /* the request under way asks whether this part arrived */
    OUTGOING_ENDING,      /* it failed before it began; its owner is told when the turn ends */
    OUTGOING_UNKNOWN,     /* on disk only: it ended, and may have been delivered */
    OUTGOING_SENT,        /* on disk only: it is there, and known as "queued:<number>" */
};
/* How operators read it: fetching, waiting, trying, unknown or sent. */
const char *outgoing_state_name(enum outgoing_state s);

/* What a second request for the same part does. */
enum outgoing_twice {
    TWICE_IS_TWO,   /* a second message: never repeated once it may have arrived */
    TWICE_IS_KEYED, /* nothing, while the platform remembers the key (sender_ops.key_ms) */
    TWICE_IS_ONE,   /* nothing: an edit, a name */
    TWICE_IS_SEEN,  /* a second message; but the platform can be asked for the first (ops->look) */
};

enum outgoing_waiter {
    WAITER_GATEWAY, /* is told the result */
    WAITER_QUEUED,  /* the gateway was told "queued", and waits no longer */
    WAITER_ADAPTER, /* is told through ops->told() */
    WAITER_NOBODY,  /* it was cancelled: what has not left never leaves */
};

struct outgoing_record {       /* its row in the store */
    struct store_put *put;     /* the write that is waited for; NULL: none */
    uint64_t number;           /* 0: it has no record */
    enum outgoing_state state; /* as the last write says */
    uint32_t part;             /* the same */
    bool durable;              /* one write is on disk */
};

struct outgoing {          /* first member of the adapter's own struct; zeroed before it starts */
    size_t n_parts;        /* set by the adapter: requests it takes, one after the other */
    size_t at;             /* the part to be written, or just answered; from 0 */
    unsigned failures;     /* times this part has been put off so far */
    struct sender *sender; /* private from here on; borrowed */
    enum outgoing_state state;
    enum outgoing_waiter waiter;
    enum outgoing_twice twice;
    enum action_op op; /* ACTION_UNKNOWN: a question of the adapter's own */
    struct outbox_item item;
    struct outgoing_record record;
    struct list link;
    struct timer timer;     /* ENDING: the turn's end; else: its gateway waits no longer */
    struct http_call *call; /* owned; NULL: none under way */
    struct action_id id;
    char *block;                         /* owned; the next three lines point into it */
    struct action_from from;             /* who asked */
    struct str chat, lane, action, file; /* see struct outgoing_entry */
    struct str blame;                    /* whom its refusals count against */
    char *edit;                          /* owned; the text it is to have later; NULL: as it is */
    int64_t asked_ms, tried_ms;          /* wall clock */
    int64_t deadline_ms;                 /* of its gateway; 0: not known */
    int64_t try_ms;                      /* of the request under way */
    int64_t maybe_ms;   /* of the first try of this part that may have arrived; 0: there is none */
    unsigned rewrites;  /* of this part */
    unsigned looks;     /* of this part: times the platform did not show it */
    uint32_t attempts;  /* requests in all */
    uint8_t end;        /* ENDING: how, enum sender_end */
    char first_id[128]; /* of its first part, once that is there */
    char why[256];      /* what the last try met */
};

struct outgoing_entry { /* a record in memory; strs borrowed */
    uint64_t number;
    struct action_from from;
    enum action_op op;
    enum outgoing_state state;
    enum outgoing_twice twice;
    int64_t asked_ms, tried_ms; /* wall clock; 0: never */
    uint32_t attempts, part, n_parts;
    bool told;               /* whoever asked knows how it ended */
    struct str chat, lane;   /* lane empty: the adapter has not seen it yet */
    struct str first_id;     /* of its first part, once that is there */
    struct str why;          /* what the last try met */
    struct str edit;         /* the text it is to have when it is there; absent: as it is */
    struct str action, file; /* JSON; empty where they stand in @doc */
    struct json doc;         /* what it was read from; absent: nothing */
};

struct outgoing_left {       /* a record without a struct outgoing: to be gone on with, or ended */
    struct list link;        /* private, but for @e */
    struct outgoing_entry e; /* while the platform's act() is called with it */
    uint64_t number;
    int64_t since_ms;    /* wall clock: when it ended */
    int64_t deadline_ms; /* of its gateway; 0: not known */
    bool taken, durable;
    size_t n;
    char value[]; /* the record */
};
