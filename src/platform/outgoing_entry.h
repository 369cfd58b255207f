/* outgoing_entry.h - what is on its way out, as its record says it.
 *
 *      WAITING --leaves--> TRYING --answered--> no record; SENT when its gateway was told "queued"
 *         ^--put off for sure--'    '--nobody knows--> UNKNOWN
 *
 * Namespace "outgoing", key platform US bot US number (16 hex digits, growing over restarts, so
 * that the order of keys is the order of asking), value an object:
 *
 *      {"tenant", "instance", "life", "request", "op", "chat", "lane", "at", "tried", "state",
 *       "twice", "attempts", "part", "parts", "first", "why", "edit", "told", "hash",
 *       "action": {as the frame had it}, "file": {"path", "type", "name", "url", "size"}}
 */
#pragma once
#include "base/buf.h"
#include "core/action.h"

struct jw;

enum outgoing_state {
    OUTGOING_WAITING, /* nothing of part @part has left */
    OUTGOING_TRYING,  /* part @part may have left */
    OUTGOING_UNKNOWN, /* it ended, and may have been delivered: kept for operators */
    OUTGOING_SENT,    /* it is there; its gateway knows it as "queued:<number>" */
};
const char *outgoing_state_name(enum outgoing_state s);

/* What the same request does that comes a second time. */
enum outgoing_twice {
    TWICE_IS_TWO,   /* a second message: never repeated once it may have been acted upon */
    TWICE_IS_KEYED, /* nothing, while the platform remembers the key (sender_ops.key_ms) */
    TWICE_IS_ONE,   /* nothing: an edit, a name */
    TWICE_IS_SEEN,  /* a second message; but whether the first is there can be asked (ops->look) */
};

struct outgoing_entry { /* strs borrowed */
    uint64_t number;
    struct action_from from;
    enum action_op op;
    enum outgoing_state state;
    enum outgoing_twice twice;
    int64_t asked_ms, tried_ms; /* wall clock; 0: never */
    uint32_t attempts, part, n_parts;
    bool told; /* whoever asked knows how it ended */
    struct str chat, lane;
    struct str first_id;     /* of its first part, once that is there */
    struct str why;          /* what the last try met */
    struct str edit;         /* the text it is to have when it is there; absent: as it is */
    struct str hash;         /* of what makes two the same; absent: it may well be done twice */
    struct str action, file; /* JSON; empty where they stand in @doc */
    struct json doc;         /* what it was read from; absent: nothing */
};

/* Its action and file as JSON values, for @action and @file; the latter stays empty without one. */
void outgoing_entry_action(const struct action *a, struct buf *ret_action, struct buf *ret_file);

void outgoing_entry_write(struct buf *out, const struct outgoing_entry *e);
/* False: it is none.  Strs are borrowed from @doc; @action and @file are absent. */
bool outgoing_entry_read(struct json doc, uint64_t number, struct outgoing_entry *ret);
/* The action of an entry that was read; its path is kept in @path. */
void outgoing_entry_revive(const struct outgoing_entry *e, struct action *ret,
                           struct action_file *file, struct buf *path);
