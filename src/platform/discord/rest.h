/* rest.h - Discord's REST API under the sender: its limits, its headers, its refusals; and the
 * adapter's own questions.
 *
 * Everything that goes to Discord is a struct discord_outgoing of some kind.  The kind writes and
 * reads its own requests; what all of them share - the bot's token, the rate limits, answers that
 * are Discord's trouble and not the request's - is done around that, in rest.c.
 *
 *      b->call = discord_ask(d, &(struct discord_question){.route = "read", ...}, on_page, b);
 */
#pragma once
#include "base/json.h"
#include "platform/sender.h"

struct discord;
struct discord_limits;
struct discord_outgoing;

struct discord_request { /* filled by a kind's write() */
    const char *method;  /* a literal */
    const char *route;   /* what is asked, without ids: the name of its rate limit; a literal */
    uint64_t major;      /* the channel or guild in the path: limits are per that; 0: none */
    struct buf path;     /* behind the API's base, with its query; wiped */
    struct buf body;     /* JSON; empty: none */
    const struct attachment *file; /* goes with the body, as Discord wants it; NULL: none */
    bool by_token; /* the path carries a credential of its own: a refusal speaks of that */
    bool once;     /* see sender.h */
};

struct discord_answer { /* of Discord; borrowed for the call */
    int status;         /* 0: none came */
    int64_t code;       /* Discord's own error code; 0: none */
    struct json body;
    struct str message; /* of a refusal */
};

struct discord_kind {
    /* Write the request for part out.at.  False: @v says why there is none. */
    bool (*write)(struct discord_outgoing *x, struct discord_request *r, struct sender_verdict *v);
    /* The answer is a success (@v is DONE) or a refusal (@v is REFUSED, and says why). */
    void (*read)(struct discord_outgoing *x, const struct discord_answer *a,
                 struct sender_verdict *v);
    void (*told)(struct discord_outgoing *x, const struct sender_verdict *v); /* questions only */
    void (*free)(struct discord_outgoing *x);
};

struct discord_outgoing { /* first member of what a kind needs */
    struct outgoing out;  /* first */
    struct discord *d;    /* borrowed */
    const struct discord_kind *kind;
    const char *route; /* private from here on: of the request under way */
    char major[24];
    bool by_token;
};
static inline struct discord_outgoing *discord_outgoing_of(struct outgoing *o)
{
    return container_of(o, struct discord_outgoing, out);
}

enum bh_err discord_rest_open(struct discord *d, char *ret_why) BH_MUST_USE;
void discord_rest_close(struct discord *d); /* harmless when it was not opened */

/* What an operator should do about the API, or NULL. */
const char *discord_rest_problem(struct discord *d);
unsigned discord_rest_refused(struct discord *d); /* in the last ten minutes */

struct discord_question { /* strs are copied */
    const char *method;   /* a literal; NULL: GET */
    const char *route;    /* a literal */
    uint64_t major;
    struct str path;
    struct str body;   /* JSON; absent: none */
    struct str tenant; /* for whom, see sender_ask(); absent: for nobody */
    struct str lane;
    bool by_token;       /* as in a request */
    int64_t patience_ms; /* 0: 25 s */
};
struct discord_told {    /* borrowed for the callback */
    enum sender_end end; /* DONE, REFUSED, FAILED or UNKNOWN */
    struct discord_answer answer;
    const char *why; /* for anything but DONE */
};
typedef void discord_told_cb(void *ctx, const struct discord_told *t);
/* @told runs later, once, unless sender_cancel() comes first. */
struct outgoing *discord_ask(struct discord *d, const struct discord_question *q,
                             discord_told_cb *told, void *ctx);

/* errors.c: a refusal in words a person can act on. */
void discord_refusal(const struct discord_answer *a, char ret_why[256]);
