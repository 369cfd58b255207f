/* rest.h - Discord's REST API below the sender: rate limits, headers and refusals of every request,
 * and the adapter's own questions.
 *
 *      b->call = discord_ask(d, &(struct discord_question){.route = "read", ...}, on_page, b);
 *
 * Every request to Discord is a struct discord_outgoing with a discord_kind.  The kind writes the
 * request and reads the answer.  rest.c adds the bot's token, keeps the rate limits, and handles
 * 429 and 5xx answers itself.
 */
#pragma once
#include "base/json.h"
#include "platform/sender.h"

struct discord_outgoing;

struct discord_request { /* filled by a kind's write() */
    const char *method;  /* a literal */
    const char *route;   /* the key of its rate limit: the request without ids; a literal */
    uint64_t major;      /* the channel or guild that Discord counts it for; 0: none */
    struct buf path;     /* after the API's base, with the query; wiped */
    struct buf body;     /* JSON; empty: none */
    const struct attachment *file; /* sent as multipart with the body; NULL: none */
    bool by_token; /* the path has its own credential: a 401 does not concern the bot's token */
    bool once;     /* see struct sender_request */
};

struct discord_kind {
    /* Writes the request for part out.at.  False: no request is sent, and @v says why. */
    bool (*write)(struct discord_outgoing *x, struct discord_request *r, struct sender_verdict *v);
    /* Reads a success (@v is DONE) or a refusal (@v is REFUSED and says why): v->answer, v->code.
     * NULL: a question. */
    void (*read)(struct discord_outgoing *x, struct sender_verdict *v);
    void (*free)(struct discord_outgoing *x);
};

struct discord_outgoing { /* first member of each kind's own struct */
    struct outgoing out;  /* first */
    struct discord *d;    /* borrowed */
    const struct discord_kind *kind;
    const char *route; /* private from here on: of the request in flight */
    char major[24];
    bool by_token;
};
static inline struct discord_outgoing *discord_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct discord_outgoing, out);
}

void discord_rest_open(struct discord *d);
extern const struct sender_ops discord_sender;
void discord_rest_close(struct discord *d); /* harmless when it was not opened */

/* A sentence that tells an operator what to do about the API, or NULL. */
const char *discord_rest_problem(struct discord *d);

struct discord_question { /* strs are copied */
    const char *method;   /* a literal; NULL: GET */
    const char *route;    /* a literal */
    uint64_t major;
    struct str path;
    struct str body;   /* JSON; absent: none */
    struct str tenant; /* see struct sender_question */
    struct str lane;
    bool by_token;       /* as in struct discord_request */
    int64_t patience_ms; /* 0: 25 s */
};
/* @told runs later, once, unless sender_cancel() comes first. */
struct outgoing *discord_ask(struct discord *d, const struct discord_question *q,
                             sender_told_cb *told, void *ctx);

/* ---- rate limits: when the next request may leave, learned from the headers of the answers ----
 *
 * Discord counts requests per bucket.  Its answers name the bucket of a route; a bucket holds
 * for one channel, guild or webhook (the "major" part of the path), and several routes may share
 * one.  A second limit counts all requests of the bot.  Pure: the caller passes the time. */

struct discord_limits_headers { /* absent, -1: not in the answer */
    struct str bucket;
    int64_t remaining, reset_after_ms;
};

struct discord_limits *discord_limits_new(void);
void discord_limits_free(struct discord_limits *l);

/* Takes one request from the budget.  0: the request may leave now; else how long to wait. */
int64_t discord_limits_take(struct discord_limits *l, struct str route, struct str major,
                            int64_t now_ms);
/* Learns from the headers of an answer. */
void discord_limits_note(struct discord_limits *l, struct str route, struct str major,
                         int64_t now_ms, const struct discord_limits_headers *h);
/* A 429: no request of this route, or (@global) none at all, for @wait_ms. */
void discord_limits_hit(struct discord_limits *l, struct str route, struct str major,
                        int64_t now_ms, int64_t wait_ms, bool global);

/* Discord bans an address after 10,000 refused requests (401, 403, 429) in ten minutes.  Bellhop
 * stops sending long before. */
#define DISCORD_MAX_REFUSED 1000
void discord_limits_refused(struct discord_limits *l, int64_t now_ms);
unsigned discord_limits_refused_count(const struct discord_limits *l,
                                      int64_t now_ms); /* in the last ten minutes */
