/* instance.h - one agent of one tenant: its record in the store, its state in one word.
 *
 * The record (namespace "instance", key tenant \x1f instance) holds the mailbox's number, whether
 * it sleeps, whether it was ever here, and which life of the name that is.  It is written
 * one version at a time:
 *
 *      record_want     the version memory has
 *      record_writing  the version under way; 0: none
 *      record_done     the version on disk; 0: none yet
 */
#pragma once
#include "base/bucket.h"
#include "base/list.h"
#include "relay/mailbox/mailbox.h"
#include "relay/out/chat_table.h"
#include "relay/relay.h"
#include "relay/session/pump.h"
#include "relay/sleep/sleep.h"

struct activity;
struct fetch;
struct instances;
struct lives;
struct store_row;
struct unread;

struct instance {             /* one agent of one tenant; lives as long as the relay */
    struct relay *relay;      /* borrowed */
    struct list link;         /* instances->by_age */
    struct list sessions;     /* its sockets; the newest handshake is last */
    struct session *receiver; /* borrowed; the one that gets deliveries; NULL: none */
    struct mailbox mb;
    struct sent_ids sent; /* what went down its sockets, by bufferId */
    struct wake wake;
    struct sleep sleep;
    struct bucket_level actions; /* how many it may still ask for: requests.c */
    struct list orphans;         /* requests whose session has gone: requests.h */
    struct list pump_link;       /* pump->wanting */
    struct list hungry_link;     /* fetches->hungry */
    struct list retry_link;      /* retry->troubled */
    struct list change_link;     /* instances->changed */
    struct list active_link;     /* activity->news */
    struct list revisions;       /* of what waits, that the store does not have yet: delivery.h */
    struct unread *unread;       /* owned; interrupts its receiver may not have read: interrupt.h */
    struct fetch *fetch[2];      /* owned; [0] is being used up, [1] is the read-ahead */
    struct chat_row chats;       /* its chats; the last one was heard from last */
    int64_t hold_until_ms;       /* nothing is sent to it before: interrupt.h */
    int64_t last_inbound_ms, last_outbound_ms; /* wall; 0: never */
    uint32_t box;                              /* its mailbox's number */
    uint32_t retiring_box; /* the one before, until "retired" has it on disk; 0: none */
    uint32_t life;         /* of the name */
    uint32_t record_want, record_writing, record_done; /* versions of its record: instance.h */
    uint32_t box_version;                              /* the first version that has @box */
    uint32_t n_chats;                                  /* of @chats */
    uint32_t park_mark; /* newest session number when a delivery was last parked */
    uint16_t tenant_n, name_n;
    uint16_t chat_era;   /* below CHAT_ERAS: chat_table.h */
    uint8_t shown_state; /* enum relay_state; what outside->changed() was told last */
    bool seen;           /* it has shaken hands at least once */
    bool forgot_chats;   /* some of its chats are known no more: chats.h */
    bool closing_older;  /* close_older() is on the stack */
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

/* True when its record, with its mailbox's number, is on disk: else no delivery is written
 * either. */
static inline bool instance_is_recorded(const struct instance *i)
{
    return i->record_done >= i->box_version;
}

struct instances *instances_new(void);
enum bh_err instances_load(struct relay *r); /* at start: the records, then the rows */
void instances_free(struct instances *t);    /* NULL is fine */
struct list *instances_by_age(struct relay *r);
/* The one with the next larger mailbox number than @box; NULL: none. */
struct instance *instance_after(const struct relay *r, uint32_t box);

/* Found or made.  NULL: the names are impossible. */
struct instance *instance_get(struct relay *r, struct str tenant, struct str name);
struct instance *instance_find(struct relay *r, struct str tenant,
                               struct str name); /* NULL: none */

void instance_seen(struct instance *i); /* a handshake */
/* At the tail of its mailbox, or in its place while loading; the bytes are in the store. */
struct slot *instance_push_row(struct instance *i, const struct store_row *row);
void instance_record(struct instance *i); /* what its record holds has changed: write it */
void instance_record_retry(struct instance *i);
bool instance_any_writing(const struct relay *r); /* some record is on its way to the disk */

enum relay_state instance_state(const struct instance *i);
bool instance_is_live(const struct instance *i);
/* The state may have changed: the platforms are told when the turn ends. */
void instance_touch(struct instance *i);
void instance_tell_changes(struct relay *r);

/* ---- lives: the holders of one name, one after the other ----
 *
 * When an instance is deprovisioned the life of its name grows (tenancy/grants.h), in the very
 * transaction that frees the name.  Everything the relay kept for the life before ends then:
 * sockets are closed, mail is purged, chats are forgotten, results find nobody.
 *
 *      the facts' life is newer: seen at start, told ("ended"), at the first event or socket
 *           |
 *           v
 *      the instance gets a mailbox of another number
 *           |  one transaction: its record with the new number and life, and "retired" for the old
 *           v
 *      rows of the old number are deleted, now, or by the start that finds them
 *
 * So whatever a crash interrupts, the next holder of a name never has the mailbox of the one
 * before, and a number is never used again.  A record in "retired" (key: the number in hex) goes
 * with the first start that finds no row of it.
 */
struct lives *lives_new(void);
void lives_listen(struct relay *r); /* for names that ended: observers.h */
void lives_free(struct lives *t);   /* NULL is fine */

/* What the facts say; 0: nobody has held the name before. */
uint32_t life_now(const struct relay *r, struct str tenant, struct str name);
/* The facts say @life.  If that is newer than the one @i belongs to, the old one ends here. */
void life_follow(struct instance *i, uint32_t life);
void lives_follow(struct relay *r); /* at start, when all is loaded: lives that are over end */

/* ---- activity: when an instance was last sent something, and last asked for something ----
 *
 * Both times survive a crash.  They are written ACTIVITY_MS later at the latest, all instances
 * together (namespace "active", key as in the instance's record, value {"in":...,"out":...,
 * "box":...}, wall times). */
#define ACTIVITY_MS 150

struct activity *activity_new(struct relay *r);
enum bh_err activity_load(struct relay *r); /* at start, after the instances */
void activity_free(struct activity *t);     /* NULL is fine */

void activity_inbound(struct instance *i);  /* it was sent something */
void activity_outbound(struct instance *i); /* it asks for something */

void activity_write(struct relay *r); /* now: before the end */
bool activity_any_writing(const struct relay *r);
