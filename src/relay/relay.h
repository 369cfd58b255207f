/* relay.h - the heart: events go in, gateways get them in order, actions come back.
 *
 * The relay works only through struct relay_env: a clock, a store, observers, a random source, the
 * facts, a waker and the outside.  It opens no socket, no file and no thread, so tests/simulate can
 * run it on simulated ones.
 *
 *      relay_accept(event) -> gate -> mailbox -> pump -> wire
 *      session_data(bytes) -> frames  -> ack | outbound | going_idle | interrupt | hello
 *
 * The rooms: in/ (from an event to its deliveries), mailbox/ (order, durability, acks), session/
 * (one WebSocket: frames, pump, liveness), out/ (which chats an instance may speak in; requests in
 * flight), sleep/ (the instance: its record, falling asleep, being woken).
 *
 * Callers: the host brings events and results, the WebSocket route brings sockets, the HTTP API and
 * the commands read status.  Completion callbacks (@done) run later, from the loop, never inside
 * the call that started the work.
 */
#pragma once
#include "base/clock.h"
#include "base/rand.h"
#include "core/accept.h"
#include "relay/outside.h"
#include "relay/waker.h"
#include "relay/wire.h"

struct gateway;
struct journal;
struct pairing;
struct relay;

struct relay_limits {            /* from the config; see docs/configuration.md */
    uint32_t window;             /* unacked WebSocket messages per socket; 8 */
    size_t pack_bytes;           /* frames packed into one message; 256 KiB */
    size_t max_frame;            /* longest line accepted from a gateway; 1 MiB */
    uint64_t max_mailbox_bytes;  /* per instance; 1 GiB */
    int64_t settle_ms;           /* nothing is sent on a younger socket of an older gateway; 0 */
    bool live_acks;              /* bufferId on every delivery; true */
    int64_t ping_ms;             /* 10 s */
    int64_t pong_patience_ms;    /* no pong for this long: the socket is away; 20 s */
    int64_t ack_patience_ms;     /* no ack for this long: the socket is away; 90 s */
    uint32_t max_attempts;       /* a delivery is parked after so many lost sockets; 10 */
    int64_t wake_cooldown_ms;    /* between two pokes of one instance; 30 s */
    int64_t old_socket_ms;       /* a replaced socket, or one without a hello, is closed; 60 s */
    int64_t action_ms;           /* timeout of an action; 28 s */
    int64_t dedup_ms;            /* how long deduplication keys are kept; 24 h */
    size_t dedup_max;            /* deduplication keys in all; 1,000,000 */
    size_t max_chats;            /* in all, on outlets with secret_chats; 65536 */
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
    struct journal *journal; /* core/journal.h; NULL: the relay has one of its own, in memory */
    struct pairing *pairing; /* tenancy/pairing.h; NULL: strangers are not listed */
};

/* A relay starts in two steps, so that the facts can be loaded at the same time.  relay_load()
 * blocks while it reads instances, mailboxes, chats and keys; it uses only the store, the clock and
 * the rand of @env.  relay_begin() starts the work; its @env is complete and has the same store. */
enum bh_err relay_load(const struct relay_env *env, const struct relay_limits *limits,
                       struct relay **ret_r, char *ret_why) BH_MUST_USE;
void relay_begin(struct relay *r, const struct relay_env *env);
/* Runs no callback and calls no wire.  The caller first closes the store, whose pending operations
 * are freed here, and silences observers and waker.  The clock outlives the relay.  NULL is fine.
 */
void relay_free(struct relay *r);
/* Shuts down gracefully.  From now on events and sockets are refused as busy and no delivery is
 * sent.  The relay waits up to half a second for pending acks and results, then closes every socket
 * with 1012.  Deliveries in flight stay in their mailboxes; the closed sockets do not count as
 * attempts.  @done runs when every accepted event is on disk. */
void relay_drain(struct relay *r, defer_cb *done, void *ctx);
/* Shuts down at once: closes every socket with 1012 and waits for nothing. */
void relay_stop(struct relay *r);
void relay_set_limits(struct relay *r, const struct relay_limits *limits); /* reload */

/* Accepts an event (contract: core/accept.h).  The relay chooses the route.  An event whose files
 * or context must be fetched first is stored and waits: in/staged.h.  With @forward, the forward
 * object of a sanitized webhook, the instances behind the route get that object instead of a
 * message; @ev then names platform, bot, route_key, event_id and the chat. */
struct accept_id relay_take_in(struct relay *r, const struct event *ev, struct str forward,
                               accepted_cb *done, void *ctx);
static inline struct accept_id relay_accept(struct relay *r, const struct event *ev,
                                            accepted_cb *done, void *ctx)
{
    return relay_take_in(r, ev, STR_NULL, done, ctx);
}
/* Cancels the callback of an accept.  The event itself is still delivered. */
void relay_accept_cancel(struct relay *r, struct accept_id id);
/* @n more instances are about to be added, or -@n were.  Until then an event that nobody could
 * receive is refused as busy, so that its platform sends it again. */
void relay_expect(struct relay *r, int n);
/* An operator linked a person to the instance, who wrote to the bot of @at in the direct chat of
 * @at: from now on the instance may write there, as after a /link.  Of @at, platform, bot, chat_id
 * and user_id are read.  With @text, the person is told. */
void relay_person_linked(struct relay *r, struct str tenant, struct str instance,
                         const struct event *at, struct str text);
/* Records for `bellhop why` that an adapter refused @ev; @why is a literal. */
void relay_refused(struct relay *r, const struct event *ev, const char *why);
/* Calls @cb once for each instance that @ev would be delivered to.  Records nothing. */
void relay_each_target(struct relay *r, const struct event *ev, target_cb *cb, void *ctx);
/* Answers to outside->fetch() and outside->context().  A late or repeated answer does nothing. */
struct relay_file {      /* a fetched file; borrowed for the call */
    struct str id, type; /* media/media.h */
    uint64_t size;
};
/* The file as the event describes it; @ret_tenant is the tenant whose quota it counts against, and
 * @ret_stranger the author, if the author is not linked to the recipient that pays (else absent;
 * borrowed until the next call).  NULL: no event waits for this file any more. */
const struct event_media *relay_wanted_file(struct relay *r, struct handle id, size_t file,
                                            struct str *ret_tenant, struct str *ret_stranger);
void relay_file_here(struct relay *r, struct handle id, size_t file, const struct relay_file *f);
void relay_file_lost(struct relay *r, struct handle id, size_t file, const char *why);
/* The platform learnt which chats of @guild people can see, or failed to: the relay judges the
 * events that wait for the answer again. */
void relay_sight(struct relay *r, struct str platform, struct str bot, struct str guild);
/* @said, oldest first, is copied.  @failed: the platform could not provide the context. */
void relay_context(struct relay *r, struct handle id, const struct event_said *said, size_t n,
                   bool failed);
/* A bot was opened: waiting events of that bot request their files and context.  A bot was closed:
 * its unanswered requests are repeated when it opens again. */
void relay_bot_opened(struct relay *r, struct str platform, struct str bot);
void relay_bot_closed(struct relay *r, struct str platform, struct str bot);
size_t relay_waiting(const struct relay *r); /* number of staged events: in/staged.h */

/* Reports how an action ended.  @result is copied and sent to the gateway when the turn ends.  A
 * second result, or a result for a finished request, does nothing. */
void relay_result(struct relay *r, struct action_id id, const struct action_result *result);
/* Called at start, before sockets open: the previous process stopped in the middle of the action of
 * @from.  The gateway's next socket gets @error (ACTION_ERROR_UNKNOWN and why) if it opens within
 * action_ms.  A gateway that repeats the action within a minute is refused with such an error too.
 * A later holder of the instance's name gets nothing. */
void relay_cut_off(struct relay *r, const struct action_from *from, struct str error);
/* Called at start: the sender resumes the action of @from and reports its result under @ret_id.
 * The timeout starts again.  False: the instance is gone and the action must be dropped.  Before a
 * request leaves the sender asks relay_may_act(), as for everything that waited. */
bool relay_revive(struct relay *r, const struct action_from *from, struct str platform,
                  struct str bot, enum action_op op, struct str chat_id, struct action_id *ret_id);
/* Asked again for a delayed action and for a token: may the instance of @from act in @place now, by
 * the rules for a fresh action (out/guard.h)?  GATE_SEEN: yes, and always if @from is empty,
 * because bellhop itself acts.  GATE_UNSEEN: no.  Otherwise: a scope grants the place, and the
 * platform has not told yet who sees it. */
enum gate_sight relay_may_act(struct relay *r, const struct action_from *from, struct str platform,
                              struct str bot, const struct action_place *place);

/* Deletes this chat of the instance from memory and from disk. */
void relay_forget_chat(struct relay *r, struct str tenant, struct str instance, struct str platform,
                       struct str chat_id);

/* ---- sessions: called by the WebSocket route ---- */
/* Opens a session for an authenticated socket.  @wire is borrowed until session_closed() returns.
 * NULL: the relay drains or cannot create the instance; close the socket with CLOSE_TRY_LATER. */
struct session *session_open(struct relay *r, const struct gateway *gw, struct wire *wire);
/* @bytes is any piece of the stream.  Returns how many bytes are kept of an unfinished line. */
size_t session_data(struct session *s, struct str bytes);
void session_pong(struct session *s, uint32_t number);
void session_closed(struct session *s, int code); /* frees @s */
/* An ack among the lines of the gateway, recognised by an edge: net/kept.h. */
void session_acked(struct session *s, struct str buffer_id);

/* Continues a session on a socket that an edge kept when the previous process ended, as if this
 * process had sent past->rows.  No delivery goes down the socket twice.  The session is closed if
 * the gateway has connected again since, or if an earlier delivery still waits, which could only
 * follow the rows out of order.  NULL: as for session_open(). */
struct session_row {
    uint64_t row;  /* the store's id of the delivery */
    struct str id; /* its bufferId */
};
struct session_past {               /* borrowed for the call */
    struct str personas;            /* of its hellos: platform, US, bot, RS each */
    const struct session_row *rows; /* went down it, by row; some may be acked since */
    size_t n_rows;
    const struct str *asked; /* requestIds of actions whose results did not go down it */
    size_t n_asked;
    uint64_t rank;  /* that keep() of its wire was told */
    bool acked;     /* the gateway has acked on it */
    bool late_acks; /* its hello said so */
};
struct session *session_resume(struct relay *r, const struct gateway *gw, struct wire *wire,
                               const struct session_past *past);
/* The edge that has the socket cannot be reached, and will present the socket again: ends the
 * session without counting a lost socket.  session_closed() follows. */
void session_parted(struct session *s);

/* Acks received until now are on disk once relay_acks_safe() has reached this mark. */
uint64_t relay_acks_mark(const struct relay *r);
uint64_t relay_acks_safe(const struct relay *r);

/* ---- status, metrics, the mailbox command ---- */
struct relay_counters {
    uint64_t routings, judgements, revised, retracted;
    uint64_t joined;         /* messages that became part of a burst: in/burst.h */
    uint64_t over_allowance; /* copies that an allowance refused: in/allowance.h */
    uint64_t accepted, duplicates, unrouted, gated, refused_busy, refused_store, stopped, linked;
    uint64_t delivered, redelivered, acked, settled, parked, purged;
    uint64_t sessions_opened, sessions_away, frames_malformed, frames_unknown;
    uint64_t actions, actions_refused, actions_limited, actions_timed_out;
    uint64_t interrupts_in, interrupts_out, interrupts_dropped;
    uint64_t pokes, pokes_failed, sleeps;
    uint64_t verdicts[GATE_REASONS]; /* of the gate, by enum gate_reason */
};
const struct relay_counters *relay_counters(const struct relay *r);

/* How long deliveries took until they were sent, or acked: relay/latency.h. */
struct latency_waits;
const struct latency_waits *relay_waits_of(const struct relay *r, bool acked);
/* The slowest acks of this hour and the hour before, slowest first in each. */
typedef void slowest_cb(void *ctx, struct str tenant, struct str instance, uint64_t delivery,
                        int64_t at_ms, int64_t took_ms);
void relay_each_slowest(const struct relay *r, slowest_cb *cb, void *ctx);

/* The state of an instance, worst first.  NONE: a route has no instance.  NEVER: the instance has
 * never said hello. */
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
    bool gone;                              /* it had gateways, and all of them are revoked */
    const char *last_poke_problem;          /* NULL: fine or never */
    const char *display_name;               /* NULL: none */
    const struct gate_allowance *allowance; /* NULL: none */
};
/* Iterates over instances by mailbox number.  *@pos is the cursor: start with 0 and pass it back;
 * it stays valid when instances come or go between calls.  False: the end. */
bool relay_next_instance(struct relay *r, uint32_t *pos, struct instance_view *ret);
struct relay_tally { /* of all instances */
    uint64_t in_state[RELAY_LIVE + 1];
    uint64_t live; /* those with a gateway that is not revoked */
    uint64_t sessions, entries, bytes, unacked, parked;
    int64_t oldest_ms; /* wall; 0: nothing waits */
};
/* Visits every instance.  With more than RELAY_TALLY_AT_ONCE of them the numbers are those of the
 * last round: a round visits so many per turn, and the next one begins RELAY_TALLY_MS later. */
#define RELAY_TALLY_AT_ONCE 4096
#define RELAY_TALLY_MS 2000
void relay_tally(struct relay *r, struct relay_tally *ret);
bool relay_instance(struct relay *r, struct str tenant, struct str instance,
                    struct instance_view *ret);

/* The record of decisions and deliveries, for `bellhop why`. */
struct journal *relay_journal(const struct relay *r);

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
/* Deletes all deliveries of the mailbox, parked ones included; returns how many. */
uint64_t relay_mailbox_purge(struct relay *r, struct str tenant, struct str instance);
/* Parked deliveries of all instances, by mailbox number and id.  *@box and *@id are the cursor:
 * start with 0, 0.  False: the end, or @looks instances were visited (then *@box is not 0). */
struct parked_view { /* borrowed until the next call into the relay */
    struct str tenant, instance;
    uint64_t id, bytes;
    int64_t at_ms;
    uint32_t attempts;
};
bool relay_next_parked(struct relay *r, uint32_t *box, uint64_t *id, size_t *looks,
                       struct parked_view *ret);
/* Redrives (or with @drop deletes) parked deliveries of all instances, or of those of a tenant, in
 * steps: a hundred thousand instances are too many for one turn.  True: the caller goes on in
 * another turn. */
#define PARKED_STEP 8192u /* looks of one step, at an instance or a delivery */
#define PARKED_COST 7u    /* a delivery that is changed costs so many more */
struct parked_walk {      /* zeroed at first but for @tenant and @drop; the rest is private */
    struct str tenant;    /* borrowed; absent: all */
    bool drop;
    uint32_t box; /* of the last instance; it is not done yet if @id is not 0 */
    uint64_t id;
    uint64_t done; /* how many deliveries it changed */
};
bool relay_parked_step(struct relay *r, struct parked_walk *w);
/* Redrives (or with @drop deletes) parked deliveries of an instance: those in @ids, all if @n is 0.
 * A redriven delivery returns to its old place in the order, with zero attempts.  No delivery goes
 * down one socket twice.  Returns how many. */
uint64_t relay_parked_change(struct relay *r, struct str tenant, struct str instance,
                             const uint64_t *ids, size_t n, bool drop);
/* Settles every waiting delivery that @user wrote, or that comes from the direct chat whose id is
 * @user.  Forwarded webhooks are left alone: their author is not known.  @only_count settles
 * nothing and only counts. */
struct relay_forgot {
    uint64_t n;
    uint64_t quoted; /* deliveries of other authors that quote @user as context; they stay */
};
typedef void relay_forgot_cb(void *ctx, enum bh_err err, const struct relay_forgot *got);
void relay_forget_mail(struct relay *r, struct str platform, struct str user, bool only_count,
                       relay_forgot_cb *done, void *ctx);
/* Erase the mail and chats of a tenant or a person; store/erasure.h runs them, ctx is the relay.
 * relay_chats_eraser runs after the tenant's instances have ended, relay_private_eraser after the
 * erasers of the adapters. */
extern const struct eraser relay_eraser, relay_chats_eraser, relay_private_eraser;
/* Settles deliveries up to id @up_to, parked ones included, as acks would: the caller has read them
 * without a socket.  Returns how many. */
uint64_t relay_mailbox_take(struct relay *r, struct str tenant, struct str instance,
                            uint64_t up_to);
/* True while the delivery or parcel @id is not settled: it was not acked, or is parked. */
bool relay_waits(struct relay *r, struct str tenant, struct str instance, uint64_t id);

struct chat_line {                            /* a chat the instance was delivered something from */
    struct str platform, chat_id, bot, scope; /* bot and scope may be empty */
};
/* Reads at most @limit chats from the store, in byte order of platform and id: those behind @after,
 * platform \x1f id (absent: from the first).  @each runs per chat, then @done. */
typedef void chat_line_cb(void *ctx, const struct chat_line *line);
void relay_chats_show(struct relay *r, struct str tenant, struct str instance, struct str after,
                      size_t limit, chat_line_cb *each, accepted_cb *done, void *ctx);

/* True when the instance was delivered something from the chat. */
bool relay_has_chat(struct relay *r, struct str tenant, struct str instance, struct str platform,
                    struct str chat_id);

struct mail_news { /* what relay_mailbox_show() would show changed; borrowed for the call */
    struct str tenant, instance;
    struct str platform, chat_id; /* a message of this chat came; absent: any mail may have gone */
    bool new_chat;                /* relay_chats_show() has one more */
};
/* Tells @cb of the mail of every instance from now on, also when a gateway of the instance goes,
 * so that others may read it.  The callee must not call the relay.  NULL: ends it. */
typedef void mail_news_cb(void *ctx, const struct mail_news *news);
void relay_watch_mail(struct relay *r, mail_news_cb *cb, void *ctx);

/* Finds the direct chat in which a person linked to the instance wrote last, among its recent
 * chats.  False: there is none. */
bool relay_owner_chat(struct relay *r, struct str tenant, struct str instance,
                      struct buf *ret_platform, struct buf *ret_chat);

extern const struct record_form *const relay_records[]; /* ends with NULL */
