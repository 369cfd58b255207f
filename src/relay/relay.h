/* relay.h - the heart: events go in, gateways get them in order, actions come back.
 *
 * It is handed a clock, a store, observers, a rand, the facts, a way to poke and a way to act, and
 * touches nothing else: no socket, no file, no thread.  tests/simulate hands it simulated ones.
 *
 *      relay_accept(event) -> gate -> mailbox -> pump -> wire
 *      session_data(bytes) -> frames  -> ack | outbound | going_idle | interrupt | hello
 *
 * The rooms: in/ (from an event to its deliveries), mailbox/ (order, durability, acks), session/
 * (one WebSocket: frames, pump, liveness), out/ (which chats an instance may speak in; requests in
 * flight), sleep/ (the instance: its record, falling asleep, being woken).
 */
#pragma once
#include "base/clock.h"
#include "base/rand.h"
#include "core/accept.h"
#include "relay/outside.h"
#include "relay/waker.h"
#include "relay/wire.h"

struct observers;
struct config_section;
struct facts;
struct gate_verdict;
struct gateway;
struct relay;
struct session;
struct store;

struct relay_limits {            /* from the config; see docs/configuration.md */
    uint32_t window;             /* unacked WebSocket messages per socket; 8 */
    size_t pack_bytes;           /* frames packed into one message; 256 KiB */
    size_t max_frame;            /* longest line accepted from a gateway; 1 MiB */
    uint64_t max_mailbox_bytes;  /* per instance; 1 GiB */
    bool live_acks;              /* bufferId on every delivery; true */
    int64_t ping_ms;             /* 10 s */
    int64_t pong_patience_ms;    /* 20 s: then away */
    int64_t ack_patience_ms;     /* 90 s: then away */
    uint32_t max_attempts;       /* 10 */
    int64_t wake_cooldown_ms;    /* 30 s */
    int64_t old_socket_ms;       /* 60 s: an older socket of an instance is closed */
    int64_t action_ms;           /* 28 s: then "timed out" */
    int64_t dedup_ms;            /* 24 h */
    size_t dedup_max;            /* 1,000,000 keys */
    size_t max_chats;            /* that strangers can make (secret_chats), in all; 65536 */
    uint32_t max_instance_chats; /* of one instance; 1,000,000 */
    uint32_t instance_actions;   /* per second, a burst of five times that; 0: no limit; 200 */
    uint32_t tenant_actions;     /* the same for all instances of a tenant together; 1000 */
};
extern const struct relay_limits relay_limits_default;
extern const struct config_section relay_config, relay_rate_config; /* both fill a relay_limits */

struct relay_env { /* borrowed for the life of the relay */
    struct clock *clock;
    struct store *store;
    struct observers *observers;
    struct rand *rand;
    struct facts *facts;
    struct waker *waker;
    struct outside *outside; /* where actions go */
};

/* In two steps, so that the facts may be read at the same time.  The first blocks: it loads
 * instances, mailboxes, chats and keys from the store, and needs nobody else of @env but the clock.
 * After the second it lives; @env has the same store and all the others. */
enum bh_err relay_load(const struct relay_env *env, const struct relay_limits *limits,
                       struct relay **ret_r, char *ret_why) BH_MUST_USE;
void relay_begin(struct relay *r, const struct relay_env *env);
/* Both. */
enum bh_err relay_open(const struct relay_env *env, const struct relay_limits *limits,
                       struct relay **ret_r, char *ret_why) BH_MUST_USE;
/* Runs no callback and calls no wire.  Before it, the store is closed (operations under way are
 * freed here), and observers and waker have been told to keep quiet; the clock outlives the relay.
 * NULL is fine. */
void relay_free(struct relay *r);
/* Stop taking events and sockets (both are refused as busy) and sending deliveries; wait up to
 * half a second for acks and results that are under way, then close every socket with 1012;
 * deliveries in flight stay in their mailboxes and the lost sockets do not count as attempts.
 * @done runs when all that was accepted is on disk. */
void relay_drain(struct relay *r, defer_cb *done, void *ctx);
/* Stop all that at once: every socket is closed with 1012, and nothing is waited for. */
void relay_stop(struct relay *r);
void relay_set_limits(struct relay *r, const struct relay_limits *limits); /* reload */

/* Take an event in: core/accept.h.  The relay chooses its route; an event that has to wait for its
 * files or its context is kept and waits: in/staged.h. */
struct accept_id relay_accept(struct relay *r, const struct event *ev, accepted_cb *done,
                              void *ctx);
/* A sanitized webhook for the instances behind @ev's route; @forward_json is the forward object,
 * @ev names platform, bot, route_key, event_id and the chat.  Same contract. */
struct accept_id relay_passthrough(struct relay *r, const struct event *ev, struct str forward_json,
                                   accepted_cb *done, void *ctx);
/* @done of that accept does not run any more; the event goes on. */
void relay_accept_cancel(struct relay *r, struct accept_id id);
/* Everybody @ev would go to, each once; nothing is remembered. */
void relay_each_target(struct relay *r, const struct event *ev, target_cb *cb, void *ctx);
/* What events wait for; outside.h has the questions.  An answer that comes late, or twice, does
 * nothing. */
struct relay_file {      /* a file that is here now; borrowed for the call */
    struct str id, type; /* media/media.h */
    uint64_t size;
};
/* The file as the event names it, and who pays for it; NULL: nobody waits for it any more. */
const struct event_media *relay_wanted_file(struct relay *r, struct wait_id id, size_t file,
                                            struct str *ret_tenant);
void relay_file_here(struct relay *r, struct wait_id id, size_t file, const struct relay_file *f);
void relay_file_lost(struct relay *r, struct wait_id id, size_t file, const char *why);
/* @said is copied, oldest first; @failed: nobody can tell what was said. */
void relay_context(struct relay *r, struct wait_id id, const struct event_said *said, size_t n,
                   bool failed);
/* An outlet came: events that wait for it ask.  It goes: what it was asked for is asked again. */
void relay_bot_opened(struct relay *r, struct str platform, struct str bot);
void relay_bot_closed(struct relay *r, struct str platform, struct str bot);
size_t relay_waiting(const struct relay *r); /* events that wait */

/* How an action ended; copied, and handed to the gateway when the turn ends, never in here.  A
 * second result, or one for a request that is over, does nothing. */
void relay_result(struct relay *r, struct action_id id, const struct action_result *result);
/* While starting, before sockets: an earlier process was cut off in the action of @from.
 * The gateway is told @error (ACTION_ERROR_UNKNOWN and why) on its next socket, within
 * action_ms, and once more when it says the same again within a minute.  Another holder of
 * the name is told nothing. */
void relay_cut_off(struct relay *r, const struct action_from *from, struct str error);
/* The action of @from goes on: its result is taken under @ret_id, as if it were asked for now.
 * False: the instance is gone, and the action should not go on. */
bool relay_revive(struct relay *r, const struct action_from *from, struct str platform,
                  struct str bot, enum action_op op, struct str chat_id, struct action_id *ret_id);

/* Forget that the instance was ever spoken to in this chat, in memory and on disk. */
void relay_forget_chat(struct relay *r, struct str tenant, struct str instance, struct str platform,
                       struct str chat_id);

/* ---- sessions: called by the WebSocket route ---- */
/* An authenticated socket.  @wire is borrowed until session_closed() returned.  NULL: draining or
 * overloaded, close it with CLOSE_TRY_LATER. */
struct session *session_open(struct relay *r, const struct gateway *gw, struct wire *wire);
void session_data(struct session *s, struct str bytes); /* any piece of the stream */
void session_pong(struct session *s, uint32_t number);
size_t session_unfinished(const struct session *s); /* bytes of a line that has not ended */
void session_closed(struct session *s, int code);   /* @s is dead afterwards */

/* ---- looking: status, metrics, the mailbox command ---- */
struct relay_counters {
    uint64_t routings, judgements, revised, retracted;
    uint64_t accepted, duplicates, unrouted, gated, refused_busy, refused_store, stopped, linked;
    uint64_t delivered, redelivered, acked, settled, parked, purged;
    uint64_t sessions_opened, sessions_away, frames_malformed, frames_unknown;
    uint64_t actions, actions_refused, actions_limited, actions_timed_out;
    uint64_t interrupts_in, interrupts_out, interrupts_dropped;
    uint64_t pokes, pokes_failed, sleeps;
};
const struct relay_counters *relay_counters(const struct relay *r);

/* How an instance is, worst first.  Nobody is routed: NONE; routed and never here: NEVER. */
enum relay_state { RELAY_NONE, RELAY_NEVER, RELAY_ASLEEP, RELAY_AWAY, RELAY_LIVE };
const char *relay_state_name(enum relay_state s); /* "none", "never", "asleep", "away", "live" */
enum relay_state relay_state(struct relay *r, struct str tenant, struct str instance);

struct instance_view { /* strs and strings borrowed until the next call into the relay */
    struct str tenant, instance;
    const char *state; /* live, away, asleep, never */
    size_t sessions;
    uint64_t entries, bytes, unacked, parked;
    int64_t oldest_ms, last_inbound_ms, last_outbound_ms; /* wall; 0: never */
    int64_t asleep_since_ms, last_poke_ms;                /* wall; 0: awake, never */
    bool wake_url;
    const char *last_poke_problem; /* NULL: fine or never */
    const char *display_name;      /* NULL: none */
};
/* Walk them in order of mailbox number: start with *@pos = 0, go on with what it became, whatever
 * happened in between.  False: no more. */
bool relay_next_instance(struct relay *r, uint32_t *pos, struct instance_view *ret);
struct relay_tally { /* of all instances */
    uint64_t in_state[RELAY_LIVE + 1];
    uint64_t sessions, entries, bytes, unacked, parked;
    int64_t oldest_ms; /* wall; 0: nothing waits */
};
void relay_tally(struct relay *r, struct relay_tally *ret); /* looks at each */
bool relay_instance(struct relay *r, struct str tenant, struct str instance,
                    struct instance_view *ret);

/* What the gate said about a recent event; everything borrowed for the call. */
struct decision_view {
    int64_t at_ms;                                                     /* wall */
    const char *platform, *message_id, *chat_id, *chat_type, *user_id; /* long ids are cut */
    const char *consumed; /* "/stop", "/link": it was for us; NULL: it went through the gate */
    const struct gate_verdict *verdicts; /* those who received it first */
    size_t n_verdicts, n_candidates;     /* more candidates than verdicts: the rest was not kept */
};
typedef void decision_cb(void *ctx, const struct decision_view *d);
/* The newest first; empty names mean any.  Returns how many there were, up to @limit. */
size_t relay_why(struct relay *r, struct str platform, struct str message_id, size_t limit,
                 decision_cb *cb, void *ctx);

struct mailbox_line { /* one waiting delivery */
    uint64_t id;
    int64_t at_ms;
    uint32_t attempts;
    bool sent;
    struct str parked; /* reason; absent: not parked */
    struct str frame;  /* the bytes as they go on the wire */
};
/* Reads bodies from the store; @each runs per line, then @done. */
typedef void mailbox_line_cb(void *ctx, const struct mailbox_line *line);
void relay_mailbox_show(struct relay *r, struct str tenant, struct str instance, size_t limit,
                        mailbox_line_cb *each, accepted_cb *done, void *ctx);
/* Delete what waits (parked ones included); returns how many. */
uint64_t relay_mailbox_purge(struct relay *r, struct str tenant, struct str instance);
/* What waits anywhere and was written by @user, or in the chat of two that is called so, is settled
 * (forwards of webhooks excepted: nobody knows what they say); @done with how many there were.
 * @only_count: nothing is. */
struct relay_forgot {
    uint64_t n;
    uint64_t quoted; /* what others wrote and has their words as its context: it stays */
};
typedef void relay_forgot_cb(void *ctx, enum bh_err err, const struct relay_forgot *got);
void relay_forget_mail(struct relay *r, struct str platform, struct str user, bool only_count,
                       relay_forgot_cb *done, void *ctx);
/* Mail and chats of a tenant or a person, as store/erasure.h runs them; ctx is the relay.  The
 * second follows once the tenant's instances have ended. */
extern const struct eraser relay_eraser, relay_chats_eraser;
/* Somebody has read it without a socket: what waits up to @up_to (parked ones included) is settled,
 * as acks would; returns how many. */
uint64_t relay_mailbox_take(struct relay *r, struct str tenant, struct str instance,
                            uint64_t up_to);
/* Is this delivery still to be settled? */
bool relay_waits(struct relay *r, struct str tenant, struct str instance, uint64_t id);
/* Unpark: parked deliveries take their old place in the order again, with no attempts counted (but
 * never go twice down one socket); returns how many. */
uint64_t relay_mailbox_redrive(struct relay *r, struct str tenant, struct str instance);

struct chat_line {                            /* a chat the instance was delivered something from */
    struct str platform, chat_id, bot, scope; /* bot and scope may be empty */
};
/* Reads them from the store, at most @limit, in byte order of platform and id; @each runs per line,
 * then @done. */
typedef void chat_line_cb(void *ctx, const struct chat_line *line);
void relay_chats_show(struct relay *r, struct str tenant, struct str instance, size_t limit,
                      chat_line_cb *each, accepted_cb *done, void *ctx);

struct record_form;
extern const struct record_form *const relay_records[]; /* ends with NULL */
