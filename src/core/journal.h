/* journal.h - the record of what became of each event and each action, for `bellhop why`.
 *
 *      relay:  journal_event(), journal_step()  --.
 *      sender: journal_action()  -----------------+--> block 7 | block 8 | block 9 (open)
 *                                                       '-- copied to disk: store/journal_disk.h
 *
 * A record holds ids, verdicts and times, never a text or a name of a person.  Writing one is a few
 * copies into the open block.  A full block stays in memory until JOURNAL_BLOCKS newer ones exist,
 * so the newest records can be read at once: journal_each().
 *
 * Every byte written has a position that grows for ever: block number times JOURNAL_BLOCK plus the
 * offset in the block.  A position is the cursor of pages and of the live trace.
 *
 * Events that no instance receives are limited to JOURNAL_STRANGERS per second, so that a flood
 * from strangers cannot push the records of everybody else out.
 *
 * The relay and the senders write, on the loop; the heart owns no journal file.  journal_read() is
 * a pure function and reads what may be damaged: blocks come back from disk.
 */
#pragma once
#include "base/bucket.h"
#include "base/hash.h"
#include "base/list.h"
#include "core/action.h"
#include "core/gate.h"

struct event;
struct journal;

#define JOURNAL_BLOCK 65536u /* bytes of a block, its head included */
#define JOURNAL_HEAD 2112u   /* of them reserved for the head that the disk needs */
#define JOURNAL_BLOCKS 16u   /* kept in memory */
#define JOURNAL_VERDICTS 16u /* kept per event; others are only counted */
#define JOURNAL_TEXT 255u    /* longer ids are cut */
#define JOURNAL_STRANGERS 5u /* events without a recipient, per second */
#define JOURNAL_STRANGERS_ONCE 1000u

/* ---- records: the numbers are on disk and never change ---- */

enum journal_kind { JOURNAL_GONE = 0, JOURNAL_EVENT = 1, JOURNAL_STEP = 2, JOURNAL_ACTION = 3 };
enum journal_note { JOURNAL_JUDGED = 0, JOURNAL_CONSUMED = 1, JOURNAL_REFUSED = 2 };
enum journal_fate { /* of a copy whose verdict is yes */
                    JOURNAL_NONE = 0,
                    JOURNAL_ACCEPTED = 1,
                    JOURNAL_DUPLICATE = 2,
                    JOURNAL_BUSY = 3,
                    JOURNAL_EDITED = 4, /* it changed a delivery that still waited */
};
enum journal_what { /* a step of a delivery */
                    JOURNAL_SENT = 1,
                    JOURNAL_RESENT = 2,
                    JOURNAL_ACKED = 3,
                    JOURNAL_SETTLED = 4,
                    JOURNAL_PARKED = 5,
                    JOURNAL_REDRIVEN = 6,
                    JOURNAL_PURGED = 7,
                    JOURNAL_LOST =
                        8, /* the store refused it: the platform was told to send it again */
};
const char *journal_what_word(enum journal_what w);     /* "sent": stable */
const char *journal_what_sentence(enum journal_what w); /* for people */
const char *journal_fate_word(enum journal_fate f);

struct journal_verdict {
    struct str tenant, instance;
    struct str reason; /* gate_reason_word() */
    enum journal_fate fate;
    uint64_t delivery; /* its row; 0: none */
};
struct journal_record { /* as read; texts are borrowed from the bytes */
    enum journal_kind kind;
    int64_t at_ms; /* wall clock; of an action: its end */
    struct str platform, bot, chat_id, message_id;
    struct str trace; /* W3C `traceparent`; empty: none.  Steps have none */
    /* an event */
    enum journal_note note;
    struct str chat_type, user_id, words; /* @words: the command, or why it was refused */
    uint32_t n_candidates;
    size_t n_verdicts; /* recipients come first */
    struct journal_verdict verdicts[JOURNAL_VERDICTS];
    /* a step; @words: the reason */
    enum journal_what what;
    uint64_t delivery;
    uint32_t attempts; /* of an action too */
    /* an action; @words: why it failed */
    struct str tenant, instance, request, op, how;
    uint64_t number;
    int64_t asked_ms;
    bool queued;
};

/* ---- writing ---- */

struct journal *journal_new(void);    /* allocates no block before the first record */
void journal_free(struct journal *j); /* NULL is fine */

/* How one copy ended, parallel to the verdicts of journal_event(). */
struct journal_copy {
    uint64_t delivery;
    enum journal_fate fate;
};
/* @verdicts and @copies have @n entries each; @words may be NULL. */
void journal_event(struct journal *j, int64_t at_ms, const struct event *ev, enum journal_note note,
                   const char *words, const struct gate_verdict *verdicts,
                   const struct journal_copy *copies, size_t n);
void journal_step(struct journal *j, int64_t at_ms, enum journal_what what, uint64_t delivery,
                  uint32_t attempts, struct str words);

struct journal_outcome { /* how an action ended; borrowed for the call */
    struct str platform;
    const char *how; /* @how: "done", "refused", "failed" or "unknown" */
    struct str bot, tenant, instance, request, chat, message_id, why;
    enum action_op op;
    uint64_t number;            /* of its record in the outbox; 0: none */
    int64_t asked_ms, ended_ms; /* wall clock */
    uint32_t attempts;
    bool queued; /* the gateway was told "queued" */
    struct str trace;
};
void journal_action(struct journal *j, const struct journal_outcome *x); /* NULL: does nothing */

/* Records that were left out: events of strangers beyond the limit. */
uint64_t journal_thinned(const struct journal *j);

/* ---- reading ---- */

/* Takes the first record off *@bytes.  False: there is none, or the bytes are damaged. */
bool journal_read(struct str *bytes, struct journal_record *ret);

/* What a reader looks for; empty members match anything.  A step matches by its delivery only. */
struct journal_query {
    struct str platform, message, person, chat, tenant, instance;
    struct str action; /* a request id, or the number of an action: "7" or "queued:7" */
    struct str trace;  /* a `traceparent`, or the trace id in it */
    uint64_t delivery;
    bool by_tenant; /* @tenant itself asks: it gets a share of the watches and searches */
};
bool journal_matches(const struct journal_record *rec, const struct journal_query *q);
/* The id of a trace: 32 digits of a `traceparent`, or all of a shorter text.  Spans of one trace
 * have the same id. */
static inline struct str journal_trace_id(struct str trace)
{
    return trace.n > 35 ? str_make(trace.p + 3, 32) : trace;
}

/* The records in memory, newest first, until @cb answers false. */
typedef bool journal_cb(void *ctx, uint64_t pos, const struct journal_record *rec);
void journal_each(const struct journal *j, journal_cb *cb, void *ctx);

uint64_t journal_end(const struct journal *j); /* the position of the next record */

/* Blanks records in place: of a tenant (its verdicts and actions), or of a person (events by, and
 * actions to, this id).  Returns how many.  @bytes is the payload of one block. */
struct journal_subject {
    struct str tenant;         /* absent: a person */
    struct str platform, user; /* of the person */
};
size_t journal_blank(char *bytes, size_t n, const struct journal_subject *s, bool only_count);
size_t journal_forget(struct journal *j, const struct journal_subject *s, bool only_count);

/* ---- the way to disk ---- */

/* Called once, before the first record: numbers continue with @block. */
void journal_begin_at(struct journal *j, uint64_t block);
/* Takes the bytes that were not taken yet, one block's part at a time: the number of their block,
 * their offset in it, and a borrowed view.  False: nothing new. */
bool journal_take(struct journal *j, uint64_t *ret_block, size_t *ret_offset,
                  struct str *ret_bytes);
/* @cb runs when there is something to take for the first time since journal_take() said there is
 * nothing, and with @urgent whenever a block is full.  NULL: none. */
void journal_on_fresh(struct journal *j, void (*cb)(void *ctx, bool urgent), void *ctx);
uint64_t journal_dropped(const struct journal *j); /* blocks that fell out before they were taken */

/* ---- watching: records as they are written ---- */

#define JOURNAL_WATCHES 16u
#define JOURNAL_SHARE 4u      /* 1 / so many of the watches, or searches, one tenant may have */
#define JOURNAL_WATCHED 4096u /* deliveries whose steps one watch follows */

struct journal_watch { /* embedded; zeroed; @cb runs inside the call that wrote the record */
    struct list link;  /* private, and so is all but @query, @cb and @ctx */
    struct journal_query query; /* borrowed until journal_unwatch() */
    void (*cb)(void *ctx, const struct journal_record *rec);
    void *ctx;
    struct journal *journal; /* NULL: it does not watch */
    uint64_t *deliveries;    /* owned; a ring */
    uint32_t n;
};
/* False: there are JOURNAL_WATCHES already, or a tenant that asks has its share of them. */
bool journal_watch(struct journal *j, struct journal_watch *w);
void journal_unwatch(struct journal_watch *w); /* idempotent */
