/* discord_priv.h - the state of a Discord bot, and the functions that the adapter's files share.
 *
 *      in   socket.c -> inbound.c -> normalize.c        out  outbound.c -> rest.c -> the sender
 *             ^            |  ^                                 ^
 *          discord.c   cache.c history.c                    threads.c
 *          (sessions)  (permissions) (over REST)
 *      webhook -> interactions.c     commands.c registers commands     discord.c opens and closes
 *
 * The socket, the normalizer, the rate limits of rest.h, voice, the cache, and the signatures and
 * parsing of interactions have headers of their own and do not use struct discord. */
#pragma once
#include <inttypes.h>
#include "base/list.h"
#include "base/map.h"
#include "platform/await.h"
#include "platform/discord/cache.h"
#include "platform/discord/discord.h"
#include "platform/discord/socket.h"
#include "platform/discord/normalize.h"
#include "platform/discord/rest.h"
#include "platform/lru.h"
#include "platform/platform.h"

#define DISCORD_MAX_CONTENT 2000      /* code points of one message */
#define DISCORD_INTENTS_DEFAULT 37377 /* guilds, guild messages, direct messages, content */

struct discord_shard {
    struct discord *d;                   /* borrowed */
    struct dsocket *socket;              /* owned */
    struct ws_client *ws;                /* owned; NULL: no socket */
    struct list pendings;                /* struct discord_pending, in order of arrival */
    struct timer replay;                 /* armed: an event was not stored; reconnect for it */
    int64_t replay_ms;                   /* the last backoff; 0: none yet */
    int64_t failing_since_ms, failed_ms; /* first and last failure to store; 0: none */
    uint64_t failed_channels[16];        /* later messages of these wait for the replay */
    size_t n_failed_channels;
    bool queued;        /* waits for permission to start a session */
    uint64_t saved_seq; /* as stored last */
    char saved_id[128];
};

/* An event from the socket until it is confirmed.  Events are confirmed in order, so an event that
 * is done waits for the events before it. */
struct discord_pending {
    struct list link;
    struct discord *d;           /* borrowed */
    struct discord_shard *shard; /* borrowed */
    uint64_t seq, guild_id, channel_id, message_id;
    struct accept_id accept; /* while taken */
    bool done, taken;        /* taken: the host is storing it */
};

struct discord {
    struct platform base;
    struct descriptor descriptor;       /* of this bot */
    const struct discord_settings *cfg; /* borrowed */
    uint64_t intent_bits;
    char bot_user[24];                 /* the bot's user id; "": Discord has not said yet */
    struct work_pool *threads;         /* owned; reads voice notes */
    struct dcache *cache;              /* owned */
    struct json_parser *parser;        /* owned; for texts that bellhop stored or wrote */
    struct discord_normalize_out norm; /* owned */

    struct {                           /* rest.c */
        struct buf auth, agent;        /* header lines; auth is secret */
        struct discord_limits *limits; /* owned */
        bool token_refused;            /* a 401: stop sending */
        uint64_t limited;
    } rest;

    struct discord_shard *shards; /* owned */
    unsigned n_shards;
    char *gateway_url;          /* owned */
    struct outgoing *info_call; /* in flight; NULL: none */
    struct timer start_timer;
    int64_t info_ms, reset_ms; /* last answer about sessions; when the session budget resets */
    int64_t remaining;         /* session starts left; -1: not known */
    unsigned concurrency;
    bool reshard;           /* the next answer about sessions replaces the shards */
    int64_t *last_start_ms; /* owned; per concurrency slot */
    const char *start_problem, *gateway_problem;

    struct map stored; /* sessions of an earlier process, owned */

    /* inbound.c */
    struct map deferred;    /* channel id -> struct deferred_channel, owned */
    struct map guild_loads; /* guild id -> struct guild_load, owned */
    size_t deferred_bytes;
    uint64_t reacted[256]; /* a ring: the bot's messages that got a reaction */
    size_t n_reacted;

    /* history.c */
    struct map cursors; /* channel id -> struct discord_cursor, owned */
    struct list cursors_lru;
    struct timer tick, backfill_timer;
    struct list filling; /* struct backfill, owned */
    unsigned backfills;

    /* cache.c */
    struct lru watched; /* place and user -> struct watched_member */

    /* threads.c */
    struct {
        uint64_t channel_id;
        int64_t until_ms;
    } typing[64]; /* a ring: channels that still show the indicator */
    unsigned typing_at;

    /* interactions.c */
    struct discord_sig *sig;    /* owned; NULL: no interactions */
    struct http_signer *signer; /* owned; the same key, for the server's edges */
    bool inbound_interactions;

    /* threads.c */
    struct map thread_names; /* thread id -> struct thread_name, owned */
    struct list thread_names_by_age;
    struct lru marks;   /* message id -> struct thread_mark */
    struct map current; /* channel id -> struct current, owned */

    struct discord_commands *commands; /* owned; NULL: no gateway has announced any */

    struct recent *recent;                     /* owned; NULL: `context` is 0 */
    struct list looking;                       /* struct look_back, owned */
    struct event_said said[EVENT_MAX_CONTEXT]; /* scratch */

    struct {
        uint64_t empty, lost, interactions;
    } count;
};

/* ---- discord.c ---- */
void discord_shards_reshard(struct discord *d); /* Discord wants another number of shards */
void discord_shards_want_session(struct discord_shard *s);

/* ---- inbound.c ---- */
extern const struct dsocket_handlers discord_socket_handlers;
void discord_inbound_shard_init(struct discord_shard *s);
void discord_inbound_shard_tick(struct discord_shard *s);
void discord_inbound_shard_done(struct discord_shard *s);
/* Normalizes a message of a REST answer, leniently.  For DISCORD_EVENT the host stores the event,
 * and done() runs later unless the accept is cancelled. */
struct discord_taker {
    accepted_cb *done;
    void *ctx;
    struct accept_id accept; /* set for DISCORD_EVENT */
};
enum discord_verdict discord_accept_message(struct discord *d, struct json message,
                                            struct str guild_id, struct discord_taker *taker);
/* discord_normalize() into d->norm, for this bot. */
enum discord_verdict discord_normalize_for(struct discord *d, struct json message,
                                           struct str guild_id, bool lenient);
/* New messages of the channel wait until discord_undefer_channel(). */
void discord_defer_channel(struct discord *d, uint64_t channel_id);
void discord_undefer_channel(struct discord *d, uint64_t channel_id);
void discord_inbound_done(struct discord *d);

/* ---- history.c: missed messages ---- */
struct discord_cursor { /* the newest stored message of a channel */
    struct str bot;     /* of the key of its record; borrowed */
    uint64_t channel_id, guild_id, last;
    uint64_t user_id;           /* of a direct chat: the person; 0: not known */
    uint64_t gap;               /* messages after this id may have been missed; 0: none */
    bool dirty, filling, again; /* again: another session was lost during the backfill */
    struct list lru;
};
enum bh_err discord_history_open(struct discord *d, char *ret_why);
void discord_history_close(struct discord *d);
void discord_cursors_save(struct discord *d);
void discord_cursor_advance(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                            uint64_t message_id);
/* The direct chat @channel_id is with this person. */
void discord_cursor_person(struct discord *d, uint64_t channel_id, uint64_t user_id);
void discord_forget_chat(struct platform *p, struct str chat);
extern const struct eraser discord_eraser;
void discord_backfill_mark(struct discord *d,
                           const struct discord_shard *s); /* the session of @s is lost */
void discord_backfill_soon(struct discord *d, int64_t after_ms);
void discord_backfill_guild_known(struct discord *d, uint64_t guild_id);
void discord_backfill_channel(struct discord *d, struct discord_cursor *s); /* now */

void discord_load_guild(struct discord *d, uint64_t guild_id); /* reads it over REST; inbound.c */

/* ---- cache.c: permissions of people ---- */
enum gate_sight discord_sees(struct platform *p, const struct event *ev, struct str user);
bool discord_manages(struct platform *p, struct str guild, struct str channel, struct str user);
struct str discord_home(struct platform *p, struct str chat, char room[32]);
void discord_watched_init(struct discord *d);

/* Does the instance of @from have a right in this thread of @chat?  GATE_SEEN unless the thread is
 * known to be private; outbound.c. */
enum gate_sight discord_thread_sight(struct discord *d, const struct action_from *from,
                                     struct str chat, uint64_t thread_id);

/* ---- threads.c ---- */
enum {
    DISCORD_ARCHIVE_MINUTES = 1440, /* a thread without messages for this long is archived */
    DISCORD_HAS_THREAD = 160004,    /* Discord's error code: the message has a thread already */
};
enum bh_err discord_threads_open(struct discord *d, char *ret_why);
void discord_threads_close(struct discord *d);
/* @opened: by an answer; a later rename keeps this name. */
void discord_name_given(struct discord *d, uint64_t thread_id, const char *name, bool opened);
/* The newest thread in @channel_id that an answer opened and whose id is below @id; 0: none. */
uint64_t discord_opened_before(const struct discord *d, uint64_t channel_id, uint64_t id);
/* The name that the thread was opened with; absent: no answer opened this thread. */
struct str discord_name_opened_as(const struct discord *d, uint64_t thread_id);

/* The functions below are for `auto_thread: true` only. */
/* Notes the message of @ev, and sets its thread fields.  Called before the host gets @ev. */
void discord_auto_note(struct discord *d, struct event *ev);
/* Notes where the bot's message is, or where a person gave a command: no thread opens under it. */
void discord_auto_at(struct discord *d, uint64_t message_id, uint64_t channel_id);
bool discord_auto_is_at(const struct discord *d, uint64_t message_id, uint64_t channel_id);
/* The thread, existing or to be opened, for an action that names none; 0: the chat itself. */
uint64_t discord_auto_target(struct discord *d, const struct action_from *from,
                             const struct action *a);
/* Is there a name for the thread under this message?  discord_auto_learn() makes one of @text. */
bool discord_auto_knows(const struct discord *d, uint64_t message_id);
void discord_auto_learn(struct discord *d, uint64_t message_id, struct str text);
/* The name for the thread under this message. */
const char *discord_auto_name(const struct discord *d, uint64_t message_id);

/* The actions react, thread_create, thread_rename, typing and get_chat_info.  @channel_id: of the
 * thread to rename, else of the chat or its thread. */
void discord_start_channel_action(struct discord *d, uint64_t channel_id,
                                  const struct sender_order *q);

/* ---- history.c: context ---- */
/* Sets the context of d->norm, or its wants_context.  Called before the host gets the event. */
void discord_context_add(struct discord *d);
void discord_context_note(struct discord *d,
                          const struct discord_normalize_out *n); /* a new message */
void discord_context_edited(struct discord *d);                   /* d->norm is the edited one */
/* Forgets a message; returns its author, written into @ret_user; absent: unknown. */
struct str discord_context_deleted(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                                   struct str message_id, char ret_user[24]);
void discord_context_gap(struct discord *d, struct discord_shard *s); /* the session is lost */
void discord_context(struct platform *p, struct context_ask ask, const struct event *ev);

/* ---- commands.c ---- */
void discord_set_commands(struct platform *p, struct str commands);
void discord_commands_free(struct discord *d);

/* ---- interactions.c ---- */
/* The vault keeps an interaction's token for its channel, as application US channel US token. */
#define DISCORD_TOKEN_KIND "discord.interaction_token"
void discord_interactions_init(struct discord *d);
void discord_interactions_done(struct discord *d);
void discord_interaction_dispatch(struct discord *d, struct json interaction); /* from the socket */
bool discord_interaction_http(struct platform *p, struct http_req *req);
bool discord_interaction_plausible(const struct http_req *req, int64_t wall_ms);
struct discord_asker { /* where the answer to an interaction goes; strs borrowed */
    bool by_socket;
    struct http_id http;  /* of the webhook; unused if by_socket */
    struct str id, token; /* of the interaction; for by_socket */
    struct str path;      /* the path that a gateway sees when the interaction is forwarded */
};
/* Handles a press of a question's button.  False: @x is something else. */
struct discord_interaction;
bool discord_press(struct discord *d, struct discord_interaction *x,
                   const struct discord_asker *to);
/* @chosen not NULL: the buttons are disabled, and the chosen one stands out. */
void discord_write_buttons(struct buf *out, const struct prompt *q,
                           const struct prompt_option *chosen);
void discord_prompt_over(struct platform *p, struct prompt *q);

/* ---- outbound.c ---- */
void discord_act(struct platform *p, struct action_id id, const struct action_from *from,
                 const struct action *a);

static inline struct discord *discord_of(struct platform *p)
{
    return container_of(p, struct discord, base);
}
static inline void discord_token_place(const struct discord *d, uint64_t channel_id,
                                       struct buf *out)
{
    buf_printf(out, "%s\x1f%" PRIu64, d->base.bot, channel_id);
}
static inline struct str id_key(const uint64_t *id)
{
    return str_make(id, sizeof *id);
}

extern const struct record_form discord_session_form, discord_cursor_form, discord_thread_form,
    discord_commands_form;
