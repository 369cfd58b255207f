/* discord_priv.h - the parts of the Discord adapter, for its own files only.
 *
 *      discord.c  open, close, status                        send.c      actions -> REST
 *      start.c    how many shards, and when each may begin   errors.c    refusals in words
 *      events.c   gateway events -> host_accept()            memory.c    what survives a restart
 *      hold.c     messages that wait for something           backfill.c  what a lost session missed
 *      sight.c    who can see which channel                  hook.c      answers through tokens
 *      webhook.c  interactions -> vault and mailbox
 *      interaction.c, gateway.c, rest.c, limits.c, cache.c, normalize.c, permissions.c know nothing
 * of these. */
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
struct discord_sig;
struct hook;
struct intents;
struct seen;
struct ws_client;

struct shard {
    struct discord *d;                   /* borrowed */
    struct dgateway *gateway;            /* owned */
    struct ws_client *ws;                /* owned; NULL: no socket */
    struct list pendings;                /* struct pending, in order of arrival */
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
struct pending {
    struct list link;
    struct discord *d;   /* borrowed */
    struct shard *shard; /* borrowed; NULL: nobody counts on it any more */
    uint64_t seq, guild_id, channel_id, message_id;
    bool done, taken; /* taken: host_accept() has it */
};

struct discord {
    struct platform base;
    struct log log;
    const struct host_env *env;         /* borrowed */
    const struct discord_settings *cfg; /* borrowed */
    char *api_base;                     /* owned */
    uint64_t intent_bits;
    char bot_user[24];          /* our user id, "" until Discord told */
    struct rest *rest;          /* owned */
    struct dcache *cache;       /* owned */
    struct json_parser *parser; /* owned; for held messages */
    struct normalize_out norm;  /* owned */
    bool closing;

    /* start.c */
    struct shard *shards; /* owned */
    unsigned n_shards;
    char *gateway_url; /* owned */
    struct rest_call *info_call;
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

    /* memory.c, backfill.c */
    struct map seen;   /* channel id -> struct seen, owned */
    struct map stored; /* sessions of an earlier process, owned */
    struct list seen_lru;
    struct timer tick, backfill_timer;
    struct list filling; /* struct backfill, owned */
    unsigned backfills;

    /* sight.c */
    struct map sights; /* guild and user -> struct sight, owned */
    struct list sights_lru;

    /* send.c */
    struct list sendings;    /* struct sending, owned */
    struct intents *intents; /* owned; what is being sent, on disk */
    struct {
        uint64_t channel_id;
        int64_t until_ms;
    } typing[64]; /* a ring: where the indicator still shows */
    unsigned typing_at;

    /* webhook.c */
    struct discord_sig *sig;         /* owned; NULL: no interactions */
    struct json_parser *hook_parser; /* owned */
    struct awaits awaits;
    bool inbound_interactions;

    struct {
        uint64_t events, ignored, empty, malformed, lost, interactions, forged;
    } count;
};

/* ---- start.c ---- */
void start_init(struct discord *d);
void start_reshard(struct discord *d); /* Discord wants another number of shards */
void start_wants(struct discord *d, struct shard *s);
void start_shards_free(struct discord *d);
void start_done(struct discord *d);

/* ---- events.c ---- */
extern const struct dgateway_handlers discord_gateway_handlers;
void events_shard_init(struct shard *s);
void events_shard_tick(struct shard *s);
void events_shard_done(struct shard *s);
/* Normalize and, when that gives an event, hand it over: @done then runs later. */
enum normalize_verdict events_try(struct discord *d, struct json message, struct str guild_id,
                                  bool lenient, accepted_cb *done, void *ctx);
void pending_done(struct pending *p);   /* safe */
void pending_failed(struct pending *p); /* ask Discord for it again */
accepted_cb events_accepted;            /* ctx: struct pending */

/* ---- hold.c ---- */
bool hold_has(const struct discord *d, uint64_t channel_id);
/* Keep @message until what it needs is there. */
void hold_push(struct discord *d, struct json message, struct pending *p);
void hold_need(struct discord *d, uint64_t channel_id, uint64_t guild_id,
               enum normalize_verdict what);
void hold_for_backfill(struct discord *d, uint64_t channel_id);
void hold_release(struct discord *d, uint64_t channel_id);
void hold_guild_known(struct discord *d, uint64_t guild_id);      /* GUILD_CREATE came */
void hold_forget_shard(struct discord *d, const struct shard *s); /* its events come again */
void hold_done(struct discord *d);

/* ---- memory.c ---- */
struct seen { /* the newest message of a channel that is safe */
    uint64_t channel_id, guild_id, last;
    uint64_t gap;               /* messages after this one may have been missed; 0: none */
    bool dirty, filling, again; /* again: another session was lost while it is filled */
    struct list lru;
};
enum bh_err memory_load(struct discord *d);
void memory_save(struct discord *d);
void memory_done(struct discord *d);
void memory_note(struct discord *d, uint64_t guild_id, uint64_t channel_id, uint64_t message_id);
void memory_forget(struct discord *d, struct seen *s);
bool memory_session(struct discord *d, unsigned shard, unsigned n_shards, struct dgateway *g);

/* ---- backfill.c ---- */
void backfill_init(struct discord *d);
void backfill_mark(struct discord *d, const struct shard *s); /* its session is lost */
void backfill_soon(struct discord *d, int64_t after_ms);
void backfill_guild_known(struct discord *d, uint64_t guild_id);
void backfill_channel(struct discord *d, struct seen *s); /* now: somebody waits for it */
void backfill_done(struct discord *d);
bool shard_has(const struct shard *s, uint64_t guild_id);

/* ---- sight.c ---- */
enum gate_sight sight_sees(struct platform *p, const struct event *ev, struct str user);
void sight_done(struct discord *d);

/* ---- webhook.c, hook.c ---- */
#define DISCORD_TOKEN_KIND "discord.interaction_token"
void webhook_init(struct discord *d);
void webhook_done(struct discord *d);
void webhook_http(struct platform *p, struct http_req *req);

/* How the vault calls a channel. */
void discord_hook_place(const struct discord *d, uint64_t channel_id, struct buf *out);
/* A token this send should resolve; NULL: none. */
struct hook *hook_for_send(struct discord *d, const struct action_from *from, uint64_t channel_id,
                           struct str user);
/* The token a follow-up names; NULL: not available. */
struct hook *hook_for_follow_up(struct discord *d, const struct action_from *from,
                                const struct action *a, uint64_t *ret_channel);
bool hook_edits(const struct hook *h, size_t part);                 /* else: a new message */
bool hook_path(const struct hook *h, size_t part, struct buf *out); /* secret; false: gone */
void hook_used(struct hook *h);                                     /* the original is resolved */
void hook_free(struct hook *h);                                     /* NULL is fine */

/* ---- send.c, errors.c ---- */
void send_init(struct discord *d);
void send_done(struct discord *d);
void send_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a);
/* Append what the gateway's side should be told about a request that failed. */
void errors_write(struct buf *out, const struct rest_answer *a);
/* The sentence of the table for this code, or NULL. */
const char *errors_sentence(int64_t code);

static inline struct discord *discord_of(struct platform *p)
{
    return container_of(p, struct discord, base);
}
static inline struct str id_key(const uint64_t *id)
{
    return str_make(id, sizeof *id);
}
