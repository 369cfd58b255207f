/* instance.h - one agent of one tenant: its state in memory and its record in the store.
 *
 * The record (namespace "instance", key tenant \x1f instance) holds the mailbox number, the sleep
 * state, whether the instance ever said hello, the life of its name, the last poke, and whether
 * chats were forgotten.  The record is written one version at a time:
 *
 *      record_want     the version in memory
 *      record_writing  the version being written; 0: none
 *      record_done     the version on disk; 0: none yet
 *
 * All of src/relay uses struct instance.  The fields belong to the modules named beside them.
 */
#pragma once
#include "base/bucket.h"
#include "base/list.h"
#include "relay/mailbox/mailbox.h"
#include "relay/out/chats.h"
#include "relay/relay.h"
#include "relay/session/pump.h"
#include "relay/sleep/sleep.h"

struct instance {             /* one agent of one tenant; lives as long as the relay */
    struct relay *relay;      /* borrowed */
    struct list link;         /* instances->by_age */
    struct list sessions;     /* its sockets; the newest handshake is last */
    struct session *receiver; /* borrowed; the session that gets deliveries; NULL: none */
    struct mailbox mb;
    struct sent_ids sent; /* deliveries on its sockets, by bufferId: pump.h */
    struct wake *wake;    /* owned; NULL: nothing is known of pokes, and none is planned: sleep.h */
    int64_t wake_not_before_ms; /* monotonic; earliest poke after a lost socket or a start */
    struct sleep sleep;
    struct bucket_level actions; /* rate limit of its actions: requests.c */
    struct list orphans;         /* requests whose session has closed: requests.h */
    struct list hungry_link;     /* pump->hungry */
    struct list revisions;       /* changed bytes that the store does not have yet: mailbox.h */
    struct unread *unread;       /* owned; interrupts its receiver may not have read: commands.h */
    struct fetch *fetch[2];      /* owned; [0] is being consumed, [1] is the read-ahead: pump.h */
    struct chat_list chats;      /* its chats, the one with the newest event last */
    struct list spoken;          /* the chats it spoke in, newest last: spoken.c */
    int64_t last_inbound_ms, last_outbound_ms; /* wall; 0: never */
    uint32_t box;                              /* its mailbox number */
    uint32_t retiring_box; /* the previous number, until "retired" is on disk; 0: none */
    uint32_t life;         /* of its name: see lives below */
    uint32_t record_want, record_writing, record_done; /* versions of its record: see above */
    uint32_t box_version;                              /* the first version that has @box */
    uint32_t n_chats, n_spoken;                        /* lengths of @chats and @spoken */
    uint32_t park_mark; /* newest session number when a delivery was last parked */
    uint32_t met_no;    /* when a session last said hello, counted over all; 0: none did yet */
    uint16_t tenant_n, name_n;
    uint16_t chat_era;   /* below CHAT_ERAS: chats.h */
    uint8_t shown_state; /* enum relay_state last reported to outside->changed() */
    bool has_parcels;    /* mail of inside.h was, or may be, in its mailbox */
    bool wants_pump;     /* in pump->wanting */
    bool is_troubled;    /* in relay->troubled */
    bool is_touched;     /* in instances->changed */
    bool has_news;       /* in instances->news */
    bool seen;           /* it has said hello at least once */
    bool forgot_chats;   /* some of its chats were forgotten: chats.h */
    bool closing_older;  /* close_older() is running: session.c */
    char name[];         /* tenant \x1f instance, as in the store */
};

static inline struct str instance_key(const struct instance *i)
{
    return str_make(i->name, i->name_n);
}
static inline struct str instance_tenant(const struct instance *i)
{
    return str_make(i->name, i->tenant_n);
}
static inline struct str instance_id(const struct instance *i)
{
    return str_make(i->name + i->tenant_n + 1, (size_t)i->name_n - i->tenant_n - 1);
}

/* True when a record with the current mailbox number is on disk.  Until then no delivery is
 * written. */
static inline bool instance_is_recorded(const struct instance *i)
{
    return i->record_done >= i->box_version;
}

struct instances *instances_new(struct relay *r);
enum bh_err instances_load(struct relay *r); /* at start: loads the records, then the rows */
void instances_free(struct instances *t);    /* NULL is fine */
struct list *instances_by_age(struct relay *r);
size_t instances_count(const struct relay *r);
/* The instance with the mailbox number @box, or with the next larger one; NULL: none.  Numbers
 * begin at 1. */
struct instance *instance_at(const struct relay *r, uint32_t box);
struct instance *instance_after(const struct relay *r, uint32_t box);

/* Finds or creates an instance.  NULL: a name is invalid, or no mailbox number is left. */
struct instance *instance_get(struct relay *r, struct str tenant, struct str name);
struct instance *instance_find(struct relay *r, struct str tenant,
                               struct str name); /* NULL: none */

void instance_seen(struct instance *i);         /* the instance said hello */
void instance_record(struct instance *i);       /* a field of the record changed: writes it */
void instance_record_retry(struct instance *i); /* writes a version that is not on disk yet */

enum relay_state instance_state(const struct instance *i);
bool instance_is_live(const struct instance *i);
/* The state may have changed: instance_tell_changes() reports it when the turn ends. */
void instance_touch(struct instance *i);
void instance_tell_changes(struct relay *r);

/* ---- lives: successive holders of one instance name ----
 *
 * The life of a name is an epoch number.  Deprovisioning an instance increments it
 * (tenancy/grants.h), in the transaction that frees the name.  The relay then ends all state of the
 * earlier life: it closes sockets, purges mail, and drops chats and pending results.
 *
 *      the facts have a newer life: found at start, by "ended", by an event or by a socket
 *           |
 *           v
 *      the instance gets a mailbox of another number
 *           |  one transaction: its record with the new number and life, and "retired" for the old
 *           v
 *      rows of the old number are deleted, now, or by the start that finds them
 *
 * So even after a crash a new holder never gets the mailbox of an earlier holder.  Mailbox numbers
 * are never reused.  The first start that finds no row of a "retired" number (the key, in decimal)
 * deletes its record.
 */
void lives_listen(struct relay *r); /* subscribes to "ended": observers.h */

/* The current life of the name, from the facts; 0: the name has had no earlier holder. */
uint32_t life_now(const struct relay *r, struct str tenant, struct str name);
/* Ends the life of @i if @life, from the facts, is newer. */
void life_follow(struct instance *i, uint32_t life);
void lives_follow(struct relay *r); /* at start, after loading: life_follow() for all instances */

/* ---- activity: the times of the last delivery and the last action of an instance ----
 *
 * Both times survive a restart.  They are written at most ACTIVITY_MS later, many instances per
 * write (namespace "active", key as in the instance's record, value {"in":...,"out":...,
 * "box":...}, wall times).  A failed write is not retried. */
#define ACTIVITY_MS 150

enum bh_err activity_load(struct relay *r); /* at start, after the instances */

/* A delivery was sent to the instance, or it requested an action: @at_ms is its last_inbound_ms or
 * last_outbound_ms, and becomes now. */
void activity_note(struct instance *i, int64_t *at_ms);

void activity_write(struct relay *r); /* writes at once, for a drain */
