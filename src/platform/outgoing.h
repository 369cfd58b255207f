/* outgoing.h - one action on its way to a platform: its state, and its record on disk.
 *
 *      NEW --> FETCHING --file fetched, first in its queue--> ops->act() starts a new outgoing
 *       |
 *       '----> WAITING --its turn--> RECORDING --on disk--> TRYING, TRYING_ONCE or LOOKING
 *                 ^                    |   ^                     |        |
 *                 '------ retry -------+---|------- retry -------'        |
 *                                          '------- next part, rewrite ---'
 *      RECORDING --SENDER_HOLD--> HELD --sender_resume()--> RECORDING
 *      NEW --fails at once--> ENDING, until the turn ends        any state --end--> freed
 *
 * A record has one of four states.  SENT and UNKNOWN are records without a struct outgoing.
 *
 *      WAITING --leaves--> TRYING --answered--> no record; SENT if the gateway was told "queued"
 *         ^--not acted upon----'    '--no answer--> UNKNOWN
 *
 * sender.c moves an outgoing through its states; outgoing.c reads and writes the records
 * (outgoing_form), and writes how an action ended to the journal, for `bellhop why --action`.
 */
#pragma once
#include "base/buf.h"
#include "core/action.h"
#include "platform/outbox.h"
#include "store/record.h"

enum outgoing_state {
    OUTGOING_NEW,
    OUTGOING_FETCHING,    /* waits for its file, or behind a message that waits for a file */
    OUTGOING_WAITING,     /* in its lane; on disk: nothing of this part has left */
    OUTGOING_RECORDING,   /* its turn has come; its record is being written */
    OUTGOING_HELD,        /* the adapter cannot write the request before sender_resume() */
    OUTGOING_TRYING,      /* its request is in flight; on disk: this part may have left */
    OUTGOING_TRYING_ONCE, /* as TRYING, but the request is not idempotent: no blind retry */
    OUTGOING_LOOKING,     /* the request in flight asks whether this part arrived */
    OUTGOING_ENDING,      /* failed before it began; its owner is told when the turn ends */
    OUTGOING_UNKNOWN,     /* on disk only: ended, and may have been delivered */
    OUTGOING_SENT,        /* on disk only: delivered, and known as "queued:<number>" */
};
/* The name that operators read: fetching, waiting, trying, unknown or sent. */
const char *outgoing_state_name(enum outgoing_state s);

/* What a second request for the same part does. */
enum outgoing_twice {
    TWICE_IS_TWO,   /* posts a second message: no retry once the first may have arrived */
    TWICE_IS_KEYED, /* nothing, while the platform remembers the key (sender_ops.key_ms) */
    TWICE_IS_ONE,   /* nothing: an edit, a name */
    TWICE_IS_SEEN,  /* posts a second message; ops->look asks the platform for the first */
};

enum outgoing_waiter {
    WAITER_GATEWAY, /* gets the result */
    WAITER_QUEUED,  /* the gateway was told "queued", and waits no longer */
    WAITER_ADAPTER, /* gets the result through told() */
    WAITER_NOBODY,  /* cancelled: a request that has not left never leaves */
};

struct sender_verdict;
typedef void sender_told_cb(void *ctx, const struct sender_verdict *v);

struct outgoing_record {       /* the row in the store */
    struct store_put *put;     /* the pending write; NULL: none */
    uint64_t number;           /* 0: the outgoing has no record */
    enum outgoing_state state; /* of the last write */
    uint32_t part;             /* of the last write */
    bool durable;              /* at least one write is on disk */
};

struct outgoing {          /* first member of the adapter's own struct; zeroed before it starts */
    size_t n_parts;        /* set by the adapter: how many requests it takes */
    size_t at;             /* the part to be written, or just answered; from 0 */
    unsigned failures;     /* retries of this part so far; the backoff grows with them */
    struct sender *sender; /* private from here on; borrowed */
    enum outgoing_state state;
    enum outgoing_waiter waiter;
    enum outgoing_twice twice;
    enum action_op op; /* ACTION_UNKNOWN: a question of the adapter's own */
    struct outbox_item item;
    struct outgoing_record record;
    struct list link;
    struct timer timer;     /* ENDING: the end of the turn; else: the gateway's patience */
    struct http_call *call; /* owned; NULL: none in flight */
    bool transmitting;      /* a request of sender_ops.transmit() is in flight */
    struct action_id id;
    char *block;                         /* owned; the next five lines point into it */
    struct action_from from;             /* the instance, and its request */
    struct str chat, lane, action, file; /* see struct outgoing_entry */
    struct str scope;                    /* action.scope_id */
    struct str prompt;                   /* the id of a question; absent: it asks none */
    struct str blame;                    /* the key that refusals count under: outbox_blame() */
    struct text_stream *stream;          /* borrowed; whose text it shows: stream.h; NULL: none */
    bool seals;                          /* it delivers a final draft */
    enum action_op like;        /* whose policy it has: @op, but a final draft is like a send */
    char *edit;                 /* owned; a text to edit it to once sent; NULL: none */
    int64_t asked_ms, tried_ms; /* wall clock */
    int64_t deadline_ms;        /* of its gateway; 0: not known */
    int64_t try_ms;             /* start of the request in flight */
    int64_t maybe_ms;           /* first try of this part that may have arrived; 0: there is none */
    unsigned rewrites;          /* of this part */
    unsigned looks;             /* lookups that did not show this part */
    uint32_t attempts;          /* requests in all */
    bool waited;                /* its right must be asked for again before it leaves */
    uint8_t end;                /* ENDING: enum sender_end */
    bool owns_ctx;
    sender_told_cb *told; /* of a question; NULL: nobody waits for its end */
    void *ctx;            /* of @told */
    char first_id[128];   /* message id of the first part, once delivered */
    char why[256];        /* reason of the last failure */
};

struct outgoing_entry {       /* a record in memory; strs borrowed */
    struct str platform, bot; /* with @name the key of the record */
    /* 16 hex digits that grow across restarts, so keys sort in the order of the requests. */
    char name[17];
    uint64_t number; /* as @name */
    struct action_from from;
    struct str op_name;
    enum action_op op; /* as @op_name */
    enum outgoing_state state;
    enum outgoing_twice twice;
    int64_t asked_ms, tried_ms; /* wall clock; 0: never */
    uint32_t attempts, part, n_parts;
    bool told;                 /* the gateway knows how it ended */
    struct str chat, lane;     /* lane empty: the adapter has not seen the action yet */
    struct str first_id;       /* message id of the first part, once delivered */
    struct str why;            /* reason of the last failure */
    struct str edit;           /* a text to edit the message to once sent; absent: none */
    struct record_json action; /* as the frame had it */
    struct record_json file;   /* struct action_file, as an object */
};
extern const struct record_form outgoing_form;

struct outgoing_left {       /* a record without a struct outgoing: to be resumed, or ended */
    struct list link;        /* all but @e is private */
    struct outgoing_entry e; /* valid while the platform's act() runs with it */
    uint64_t number;
    int64_t since_ms;    /* wall clock of its end */
    int64_t deadline_ms; /* of its gateway; 0: not known */
    bool taken, durable;
    size_t n;
    char value[]; /* the record */
};
