/* discord_priv.h - the parts of the Discord adapter, for its own files only.
 *
 *      discord.c  open, close, status                     act.c        which file does an action
 *      start.c    how many shards, when each may begin    rest.c       requests and questions
 *      events.c   gateway events -> host_accept()         errors.c     refusals in words
 *      hold.c     messages that wait for something        bookmarks.c  what survives a restart
 *      sight.c    who can see which channel               backfill.c   what a lost session missed
 *      webhook.c  interactions -> vault and mailbox       reply.c      answers through tokens
 *      errand.c   reactions and threads                   answer.c     answers to interactions
 *      press.c    questions with buttons                  commands.c   commands, registered
 *      names.c    names that we gave to threads           context.c    what was said before
 *      auto_thread.c  answers that open threads           reactions.c  people's reactions
 *      aside.c    typing and lookups                      send.c       messages, edits
 *
 * The others (interaction, gateway, limits, cache, normalize, permissions, voice) know nothing of
 * these.
 */
#pragma once
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "platform/await.h"
#include "platform/discord/cache.h"
#include "platform/discord/discord.h"
#include "platform/discord/gateway.h"
#include "platform/discord/normalize.h"
#include "platform/discord/rest.h"
#include "platform/platform.h"

#define DISCORD_INTENTS_DEFAULT 37377 /* guilds, guild messages, direct messages, content */

struct discord;
struct discord_commands;
struct discord_interaction;
struct discord_reply;
struct prompt;
struct prompt_option;
struct prompts;
struct discord_sig;
struct ws_client;

struct discord_shard {
    struct discord *d;                   /* borrowed */
    struct dgateway *gateway;            /* owned */
    struct ws_client *ws;                /* owned; NULL: no socket */
    struct list pendings;                /* struct discord_pending, in order of arrival */
    struct timer replay;                 /* armed: an event was not taken, ask for it again */
    int64_t replay_ms;                   /* how long the last such pause was; 0: none yet */
    int64_t failing_since_ms, failed_ms; /* events cannot be stored; 0: they can */
    uint64_t failed_channels[16];        /* during the pause: their later messages wait too */
    size_t n_failed_channels;
    bool queued;        /* wants to start a session */
    uint64_t saved_seq; /* as written last */
    char saved_id[128];
};

/* One gateway event on its way into the mailboxes.  Events are confirmed to Discord in order, so
 * one that is done waits for those before it. */
struct discord_pending {
    struct list link;
    struct discord *d;           /* borrowed */
    struct discord_shard *shard; /* borrowed */
    uint64_t seq, guild_id, channel_id, message_id;
    struct accept_id accept; /* while taken */
    bool done, taken;        /* taken: host_accept() has it */
};

struct discord {
    struct platform base;
    struct descriptor descriptor; /* of this bot */
    struct log log;
    const struct host_env *env;         /* borrowed */
    const struct discord_settings *cfg; /* borrowed */
    char *api_base;                     /* owned */
    uint64_t intent_bits;
    char bot_user[24];                 /* our user id, "" until Discord told */
    struct sender *sender;             /* owned */
    struct work_pool *threads;         /* owned; voice notes are read there */
    struct dcache *cache;              /* owned */
    struct json_parser *parser;        /* owned; for held messages */
    struct discord_normalize_out norm; /* owned */

    struct {                           /* rest.c */
        struct buf auth, agent;        /* header lines; auth is secret */
        struct discord_limits *limits; /* owned */
        struct json_parser *parser;    /* owned */
        bool token_refused;            /* 401: nothing is sent any more */
        uint64_t limited;
    } rest;

    /* start.c */
    struct discord_shard *shards; /* owned */
    unsigned n_shards;
    char *gateway_url;          /* owned */
    struct outgoing *info_call; /* under way; NULL: none */
    struct timer start_timer;
    int64_t info_ms, reset_ms; /* when asked; when the session budget is full again */
    int64_t remaining;         /* session starts left; -1: not known */
    unsigned concurrency;
    bool reshard;           /* make the shards anew when the answer comes */
    int64_t *last_start_ms; /* owned; per concurrency slot */
    const char *start_problem, *gateway_problem;

    /* hold.c */
    struct map holds; /* channel id -> struct hold, owned */
    struct map loads; /* guild id -> struct load, owned */
    size_t held_bytes;

    /* bookmarks.c, backfill.c */
    struct map seen;   /* channel id -> struct discord_bookmark, owned */
    struct map stored; /* sessions of an earlier process, owned */
    struct list seen_lru;
    struct timer tick, backfill_timer;
    struct list filling; /* struct backfill, owned */
    unsigned backfills;

    /* sight.c */
    struct map sights; /* guild and user -> struct sight, owned */
    struct list sights_lru;

    /* aside.c */
    struct {
        uint64_t channel_id;
        int64_t until_ms;
    } typing[64]; /* a ring: where the indicator still shows */
    unsigned typing_at;

    /* webhook.c */
    struct discord_sig *sig;            /* owned; NULL: no interactions */
    struct json_parser *webhook_parser; /* owned */
    struct awaits awaits;
    struct list asked; /* answer.c: struct discord_await, owned */
    bool inbound_interactions;

    struct prompts *prompts; /* owned */

    /* names.c */
    struct map thread_names; /* thread id -> struct thread_name, owned */
    struct list thread_names_by_age;

    struct discord_commands *commands; /* owned; NULL: nobody has announced any */

    /* context.c */
    struct recent *recent; /* owned; NULL: nobody is told what was said before */
    struct list looking;   /* struct look_back, owned */
    struct event_said said[EVENT_MAX_CONTEXT]; /* scratch */

    /* auto_thread.c */
    struct map marks;         /* message id -> struct mark, owned */
    struct list marks_by_age; /* struct mark */
    struct map current;       /* channel id -> struct current, owned */

    uint64_t reacted[256]; /* reactions.c: a ring of messages of ours that have reactions */
    size_t n_reacted;

    struct {
        uint64_t events, ignored, empty, malformed, lost, interactions, forged;
    } count;
};

/* ---- start.c ---- */
void discord_start_init(struct discord *d);
void discord_start_reshard(struct discord *d); /* Discord wants another number of shards */
void discord_start_wants(struct discord *d, struct discord_shard *s);
void discord_start_shards_free(struct discord *d);
void discord_start_done(struct discord *d);

/* ---- events.c ---- */
extern const struct dgateway_handlers discord_gateway_handlers;
void discord_events_shard_init(struct discord_shard *s);
void discord_events_shard_tick(struct discord_shard *s);
void discord_events_shard_done(struct discord_shard *s);
/* Normalize with what is known and, when that gives an event, hand it over: done() then runs later,
 * unless the accept is called off. */
struct discord_taker {
    accepted_cb *done;
    void *ctx;
    struct accept_id accept; /* set for DISCORD_EVENT */
};
enum discord_verdict discord_events_try(struct discord *d, struct json message, struct str guild_id,
                                        struct discord_taker *taker);
/* The same for a gateway event: its pending is settled by the answer. */
enum discord_verdict discord_pending_try(struct discord_pending *p, struct json message,
                                         bool lenient);
/* Hand over what d->norm holds. */
void discord_pending_accept(struct discord_pending *p);
void discord_pending_done(struct discord_pending *p);   /* safe */
void discord_pending_failed(struct discord_pending *p); /* ask Discord for it again */

/* ---- hold.c ---- */
bool discord_hold_has(const struct discord *d, uint64_t channel_id);
/* Keep @message until what it needs is there. */
void discord_hold_push(struct discord *d, struct json message, struct discord_pending *p);
void discord_hold_need(struct discord *d, uint64_t channel_id, uint64_t guild_id,
                       enum discord_verdict what);
void discord_hold_for_backfill(struct discord *d, uint64_t channel_id);
void discord_hold_release(struct discord *d, uint64_t channel_id);
void discord_hold_guild_known(struct discord *d, uint64_t guild_id); /* GUILD_CREATE came */
void discord_hold_forget_shard(struct discord *d,
                               const struct discord_shard *s); /* its events come again */
void discord_hold_done(struct discord *d);

/* ---- bookmarks.c ---- */
struct discord_bookmark { /* the newest message of a channel that is safe */
    uint64_t channel_id, guild_id, last;
    uint64_t gap;               /* messages after this one may have been missed; 0: none */
    bool dirty, filling, again; /* again: another session was lost while it is filled */
    struct list lru;
};
enum bh_err discord_bookmarks_load(struct discord *d);
void discord_bookmarks_save(struct discord *d);
void discord_bookmarks_done(struct discord *d);
void discord_bookmark_note(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                           uint64_t message_id);
void discord_bookmark_forget(struct discord *d, struct discord_bookmark *s);
bool discord_bookmark_session(struct discord *d, unsigned shard, unsigned n_shards,
                              struct dgateway *g);

/* ---- backfill.c ---- */
void discord_backfill_init(struct discord *d);
void discord_backfill_mark(struct discord *d,
                           const struct discord_shard *s); /* its session is lost */
void discord_backfill_soon(struct discord *d, int64_t after_ms);
void discord_backfill_guild_known(struct discord *d, uint64_t guild_id);
void discord_backfill_channel(struct discord *d,
                              struct discord_bookmark *s); /* now: somebody waits for it */
void discord_backfill_done(struct discord *d);
bool discord_shard_has(const struct discord_shard *s, uint64_t guild_id);

/* ---- sight.c ---- */
enum gate_sight discord_sees(struct platform *p, const struct event *ev, struct str user);
bool discord_manages(struct platform *p, struct str guild, struct str channel, struct str user);
void discord_sight_done(struct discord *d);

/* ---- names.c ---- */
enum bh_err discord_names_load(struct discord *d);
void discord_names_done(struct discord *d);
void discord_name_given(struct discord *d, uint64_t thread_id, const char *name);
/* The same for a thread that was opened for an answer: that stays its name, as far as we know. */
void discord_name_opened(struct discord *d, uint64_t thread_id, const char *name);
/* The newest thread of @channel_id that an answer opened and that has a smaller id; 0: none. */
uint64_t discord_opened_before(const struct discord *d, uint64_t channel_id, uint64_t id);
struct str discord_name_opened_as(const struct discord *d,
                                  uint64_t thread_id); /* absent: it was not */
/* Is @name, which it has now, the one we gave it? */
bool discord_name_is_ours(const struct discord *d, uint64_t thread_id, const char *name);

/* ---- auto_thread.c ---- */
void discord_auto_init(struct discord *d);
void discord_auto_done(struct discord *d);
void discord_auto_note(struct discord *d, struct event *ev); /* it is about to be handed over */
/* A message of ours lies in this thread. */
void discord_auto_sent(struct discord *d, uint64_t message_id, uint64_t thread_id);
/* The thread, there or to be opened, that @a belongs to without saying so; 0: its chat. */
uint64_t discord_auto_target(struct discord *d, const struct action *a);
struct str discord_home(struct platform *p, struct str chat, char room[32]);
/* Is it known what the thread under this message is to be called?  Else: it says @text. */
bool discord_auto_knows(const struct discord *d, uint64_t message_id);
void discord_auto_learn(struct discord *d, uint64_t message_id, struct str text);
const char *discord_auto_name(const struct discord *d, uint64_t message_id); /* of its thread */

/* ---- reactions.c ---- */
/* @p is done, or waits for its acceptance. */
void discord_reaction(struct discord *d, struct json reaction, bool added,
                      struct discord_pending *p);

/* ---- context.c ---- */
/* Sets the context of d->norm, which is about to be handed over, or that it has to be asked for. */
void discord_context_add(struct discord *d);
void discord_context_note(struct discord *d,
                          const struct discord_normalize_out *n); /* it was said */
void discord_context_edited(struct discord *d);                   /* d->norm is its new version */
void discord_context_deleted(struct discord *d, uint64_t guild_id, uint64_t channel_id,
                             struct str message_id);
void discord_context_gap(struct discord *d, struct discord_shard *s); /* its session is lost */
void discord_context(struct platform *p, struct context_ask ask, const struct event *ev);
void discord_context_done(struct discord *d);

/* ---- commands.c ---- */
void discord_set_commands(struct platform *p, struct str commands);
void discord_commands_free(struct discord *d);

/* ---- answer.c ---- */
struct discord_asker { /* who waits for the answer to an interaction; strs borrowed */
    bool by_gateway;
    struct http_id http;  /* else: this request does */
    struct str id, token; /* of the interaction */
    struct str path;      /* as it is told to a gateway that it is forwarded to */
};
struct discord_pressed { /* borrowed for the call */
    struct prompt *prompt;
    const struct prompt_option *option;
    struct str good; /* the answer once it is safe */
};
void discord_answer(struct discord *d, const struct discord_asker *to, struct str body);
void discord_refuse(struct discord *d, const struct discord_asker *to); /* it makes no sense */
/* host_accept(), host_passthrough() and prompts_accept(); @good once it is safe. */
void discord_answer_accept(struct discord *d, const struct discord_asker *to,
                           const struct event *ev, struct str good);
void discord_answer_passthrough(struct discord *d, const struct discord_asker *to,
                                const struct event *ev, struct str forward_json, struct str good);
void discord_answer_press(struct discord *d, const struct discord_asker *to, const struct event *ev,
                          const struct discord_pressed *x);
void discord_answers_done(struct discord *d);

/* ---- press.c ---- */
/* @chosen NULL: they can be pressed. */
void discord_write_buttons(struct buf *out, const struct prompt *q,
                           const struct prompt_option *chosen);
void discord_prompt_over(struct platform *p, struct prompt *q); /* a prompt_over_cb */
/* True: it was a press of one of ours, and is dealt with. */
bool discord_press(struct discord *d, struct discord_interaction *x,
                   const struct discord_asker *to);

/* ---- webhook.c, reply.c ---- */
void discord_webhook_dispatch(struct discord *d, struct json interaction); /* INTERACTION_CREATE */
#define DISCORD_TOKEN_KIND "discord.interaction_token"
void discord_webhook_init(struct discord *d);
void discord_webhook_done(struct discord *d);
bool discord_webhook_http(struct platform *p, struct http_req *req);
bool discord_webhook_plausible(const struct http_req *req, int64_t wall_ms);

/* How the vault calls a channel. */
void discord_reply_place(const struct discord *d, uint64_t channel_id, struct buf *out);
/* A token this send should resolve; NULL: none. */
struct discord_reply *discord_reply_for_send(struct discord *d, const struct action_from *from,
                                             uint64_t channel_id, struct str user);
/* The token a follow-up names; NULL: not available. */
struct discord_reply *discord_reply_for_follow_up(struct discord *d, const struct action_from *from,
                                                  const struct action *a, uint64_t *ret_channel);
bool discord_reply_edits(const struct discord_reply *h, size_t part); /* else: a new message */
bool discord_reply_path(const struct discord_reply *h, size_t part,
                        struct buf *out);         /* secret; false: gone */
void discord_reply_used(struct discord_reply *h); /* the original is resolved */
void discord_reply_free(struct discord_reply *h); /* NULL is fine */

/* ---- errand.c ---- */
/* react, thread_create, thread_rename. */
void discord_errand(struct discord *d, uint64_t channel_id, const struct sender_order *q);

/* ---- aside.c ---- */
void discord_typing(struct discord *d, uint64_t channel_id, const struct sender_order *q);
void discord_chat_info(struct discord *d, uint64_t channel_id, const struct sender_order *q);

/* ---- send.c ---- */
/* A message, an edit or a follow-up; takes @reply, through which it goes out; NULL: as the bot. */
void discord_message(struct discord *d, uint64_t channel_id, struct discord_reply *reply,
                     const struct sender_order *q);

/* ---- act.c ---- */
void discord_act(struct platform *p, struct action_id id, const struct action_from *from,
                 const struct action *a);

static inline struct discord *discord_of(struct platform *p)
{
    return container_of(p, struct discord, base);
}
static inline struct str id_key(const uint64_t *id)
{
    return str_make(id, sizeof *id);
}
