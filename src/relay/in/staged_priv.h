/* staged_priv.h - the row of a staged event, for staged.c, wants.c, burst.c and edits.c only.
 *
 * staged.c moves a row through its states.  burst.c changes the event and rewrites the row while
 * more messages of the author may join, and when a message in the row is edited or deleted. */
#pragma once
#include "base/arena.h"
#include "base/fifo.h"
#include "base/handles.h"
#include "core/event.h"
#include "relay/in/staged.h"
#include "relay/mailbox/mailbox.h"

enum stage_state { STAGED_WRITING, STAGED_WAITING, STAGED_READY, STAGED_ENTERING };
enum { OUTLET_MS = 60000 }; /* how long an event waits for its platform to open */
enum want_state { WANT_NOTHING, WANT_ASK, WANT_ASKED, WANT_HERE, WANT_LOST };

struct want_file {
    uint8_t state;          /* enum want_state */
    struct relay_file here; /* in the arena of its event */
    char why[96];
};

struct staged_chat {
    char *key;            /* owned; platform US bot US chat id */
    struct list deferred; /* struct deferred_event, owned, in order */
    struct list events;   /* struct staged, by in_chat; never empty */
    size_t n;
};

struct staged {
    struct relay *relay; /* borrowed */
    struct list link;    /* stage->all */
    struct list in_chat;
    struct staged_chat *chat; /* shared */
    char *tenant;             /* owned; its quota pays for the files; NULL: no recipient */
    bool stranger;            /* the author is not linked to the recipient that pays */
    uint8_t state;            /* enum stage_state */
    uint8_t context;          /* enum want_state */
    uint8_t sight;            /* enum want_state: the platform's answer about who sees the chat */
    bool stops;               /* a /stop: it waits for time to pass, and goes before the others */
    bool noted;               /* another part of the event is told to `why` and counted */
    bool judged;              /* staged_begin() has decided which files and context it waits for */
    bool dropped;             /* deleted by its author or an erasure: it never enters */
    bool in_doubt;            /* a write ended with BH_UNKNOWN: the row may have it */
    struct handle handle;
    struct arena arena;
    struct event ev;      /* in the arena; not routed */
    struct staged_to *to; /* in the arena; who passed the gate when it came */
    size_t n_to;
    struct want_file files[EVENT_MAX_MEDIA];
    struct timer timer; /* timeout of the wait, or retry of entering or writing */

    struct store_append append; /* of its row; with the store while STAGED_WRITING */
    struct buf body;            /* owned; what the write under way writes */
    struct fifo waiting;        /* struct accept, held until the row has their message */
    size_t n_covered;           /* so many of them wait for the write under way */

    /* Written by burst.c.  While a rewrite is under way the row neither enters nor leaves. */
    bool joins;       /* a burst: more messages may join */
    bool rewriting;   /* @rewrite is with the store, or waits in @again */
    size_t n_safe;    /* parts on disk; an event without parts is one */
    size_t n_written; /* parts in @rewrite */
    int64_t last_ms;  /* when the burst ends at the latest */
    struct store_mark rewrite;
    struct timer again; /* retry of a rewrite in doubt */

    struct delivery_group group; /* its deliveries, while STAGED_ENTERING */
    bool entered;                /* every copy is on disk, acked or refused */
    enum bh_err err;             /* valid once @entered: the result */
};

struct stage {
    struct list all;        /* struct staged, by age */
    struct map chats;       /* struct staged_chat */
    struct handles handles; /* struct staged */
    size_t n, n_deferred;
    struct buf scratch;
    struct record_reader *rows; /* owned */
};

/* ---- staged.c ---- */
/* The chat of @ev while it has rows; NULL: it has none. */
struct staged_chat *staged_chat_of(struct stage *t, const struct event *ev);
/* Lets the rows of the chat enter that are READY and behind none. */
void staged_advance(struct staged_chat *c);
void staged_drop(struct staged *e); /* it goes when the turn ends, or when its row is on disk */
void staged_save(
    struct staged *e); /* writes the body of the row, as the event is now, to e->body */
/* Tells the first @n accepts in e->waiting. */
void staged_tell(struct staged *e, size_t n, enum bh_err err);
/* Moves the recipient @to into a row of its own, so that the others do not wait for its sight.
 * Called after a start, when the sight of a recipient is no longer known. */
void staged_split_off(struct staged *e, const struct gate_instance *to);

struct wants {
    bool files, context, sleeps;
    bool sight;        /* a recipient depends on what the platform was asked */
    struct str tenant; /* of the first recipient; absent: no recipient */
    bool stranger;     /* to whom the author is not linked */
};
/* What an event must wait for. */
struct wants wants_of(struct relay *r, const struct event *ev, const struct gate_verdict *verdicts,
                      size_t n);

/* ---- wants.c ---- */
bool staged_has_outlet(const struct staged *e); /* its bot is open */
/* Decides which files and context the event waits for, and requests them.  A burst ends here. While
 * the platform is being asked who sees the chat, nothing is decided: relay_sight() or the timer
 * calls staged_begin() again. */
void staged_begin(struct staged *e);
void wants_drop(struct staged *e);    /* cancels its requests */
void wants_give_up(struct staged *e); /* the timeout: it enters without what is not here */
