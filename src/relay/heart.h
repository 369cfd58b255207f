/* heart.h - what the parts of the relay share: the relay itself and its instances.
 *
 * Only files of this folder include it.  Everything runs on the loop thread and nothing calls back
 * into a caller: whatever a call causes (writing to sockets, telling the store of acks, answering
 * accepts) happens together when the turn ends, in heart_turn().  That is what makes batches large
 * and calls safe from anywhere.
 *
 * Whatever is walked is a list in order of age, never a map, so that a run can be replayed.
 */
#pragma once
#include "base/bucket.h"
#include "base/log.h"
#include "base/map.h"
#include "relay/dedup.h"
#include "relay/mailbox.h"
#include "relay/relay.h"
#include "relay/wake.h"

struct accept;
struct ack_batch;
struct fetch;
struct interrupts;
struct judge;
struct json_parser;
struct rates;
struct requests;

#define RETRY_MS 1000 /* what the store refused is tried again after this */
#define MAX_VOLATILE_BYTES \
    (256ull << 20) /* bodies waiting for the disk, all instances together \
                    */

struct instance {             /* one agent of one tenant; lives as long as the relay */
    struct relay *relay;      /* borrowed */
    struct list link;         /* relay->instances, by age */
    struct list sessions;     /* its sockets; the newest handshake is last */
    struct session *receiver; /* borrowed; the one that gets deliveries; NULL: none */
    struct mailbox mb;
    struct wake wake;
    struct bucket_level actions; /* how many it may still ask for */
    struct bucket_level naps;    /* how often it may still fall asleep */
    struct list orphans;         /* requests whose session has gone: requests.h */
    struct list pump_link;       /* relay->to_pump */
    struct list hungry_link;     /* relay->hungry */
    struct list trouble_link;    /* relay->troubled */
    struct list change_link;     /* relay->changed */
    struct fetch *fetch[2];      /* owned; [0] is being used up, [1] is the read-ahead */
    const char *shown_state;     /* what outside->changed() was told last */
    int64_t last_inbound_ms, last_outbound_ms, flipped_ms; /* wall; 0: never */
    uint64_t idle_mark;                                    /* the newest id when it fell asleep */
    uint32_t box;
    uint32_t record_want, record_writing, record_done; /* versions of its record: instance.h */
    uint32_t park_mark; /* newest session number when a delivery was last parked */
    uint16_t tenant_n, name_n;
    uint8_t idle_owed;  /* sockets that wait for a going_idle_ack */
    bool flipped;       /* asleep: deliveries are only kept */
    bool seen;          /* it has shaken hands at least once */
    bool forgot_chats;  /* some of its chats are no longer in memory: chats.h */
    bool closing_older; /* close_older() is on the stack */
    char name[];        /* tenant \x1f instance, as in the store */
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

struct rate { /* a log line that must not flood */
    int64_t next_ms;
    uint64_t skipped;
};

struct relay {
    struct relay_env env;
    const struct store_ops *store_ops; /* static: good even when the store has been closed */
    struct relay_limits lim;
    struct relay_counters n;
    struct timer turn;        /* armed while something waits for the end of this turn */
    struct timer retry;       /* armed while troubled is not empty */
    struct timer forget;      /* drops old deduplication keys */
    struct timer farewell;    /* armed while a drain waits for the last acks and results */
    bool farewell_said;       /* the drain has closed the sockets */
    struct list instances;    /* by age */
    struct map by_name;       /* instance_key() -> instance */
    struct instance **by_box; /* owned array; NULL where no instance has the number */
    size_t n_boxes;
    uint32_t next_box;                              /* from 1 */
    struct list sessions;                           /* all, by age */
    struct list to_pump, hungry, troubled, changed; /* instances */
    struct list accepts;          /* accepts nobody knows the end of yet: accept.h */
    struct list answers;          /* accepts to be answered at the end of the turn */
    struct list settling;         /* settled deliveries the store still holds: delivery.h */
    struct list spare;            /* accepts to be used again */
    struct accept **accept_slots; /* owned, and what they point at: all of them */
    size_t n_accept_slots, cap_accept_slots;
    struct map chats;      /* chats.h */
    struct list old_chats; /* those that may be forgotten, least recently heard from first */
    size_t n_old_chats;
    struct map ackers; /* gateway ids that have acked: session.h; keys and values owned */
    struct dedup dedup;
    struct interrupts *interrupts; /* owned */
    struct judge *judge;           /* owned */
    struct list linking;           /* /link messages under way: linking.h */
    struct rates *rates;           /* owned */
    struct requests *requests;     /* owned */
    struct json_parser *json;      /* owned; one frame at a time */
    struct ack_batch *acks;        /* owned; filled during this turn */
    struct list ack_batches;       /* submitted or waiting for a retry */
    struct list fetches;           /* all, so that they can be freed */
    struct list marks;             /* store_mark ops under way */
    struct list shows;             /* mailboxes being read for somebody: look.c */
    struct buf frame, key;         /* scratch */
    uint64_t next_id;              /* of the next delivery */
    uint64_t volatile_bytes;       /* bodies not on disk yet */
    uint64_t kept_bytes;           /* bodies on disk that a pump will want soon */
    uint64_t fetch_bytes;          /* bodies read back for pumps */
    uint32_t next_session;
    uint32_t records_writing; /* instances whose record is under way */
    bool draining;
    defer_cb *drained; /* told when all is on disk */
    void *drained_ctx;
    struct rate log_unrouted, log_busy, log_store, log_malformed, log_parked;
};

/* Run heart_turn() soon.  Cheap; call it whenever something was left for the end of the turn. */
void heart_wake(struct relay *r);
/* Something of @i failed for want of the store: try again after RETRY_MS. */
void heart_trouble(struct instance *i);
/* True when a line may be logged now: at most one per 10 s.  @ret_skipped is how many were not. */
bool heart_may_log(struct relay *r, struct rate *rate, uint64_t *ret_skipped);
