/* bearer.h - fetches a bot's access token when a request needs it, and renews it before it expires.
 *
 *      NONE --bearer_get()--> FETCHING --ok--> GOOD --nearly expired--> GOOD, and FETCHING
 *        ^                       '--failed--> FAILED --after a while--> NONE
 *        '------------------ bearer_refused(): the platform does not take it any more
 *
 * Adapters call it from write().  One request at a time fetches the token, and the sends that need
 * it wait (SENDER_HOLD).  The token is never logged, and wiped. */
#pragma once
#include "base/buf.h"
#include "base/err.h"

struct http_call;
struct http_result;
struct platform;
struct sender_verdict;

struct bearer_ask { /* filled by ask(), wiped afterwards */
    struct buf url, body;
    const char *type; /* the Content-Type line of @body, a literal; NULL: a GET without a body */
};
struct bearer_ops {
    /* Writes the request for a token.  False: there can be none, and @ret_why (160) says why. */
    bool (*ask)(struct platform *p, struct bearer_ask *q, char *ret_why);
    /* Reads the answer; @body is borrowed.  BH_REFUSED: the credentials are wrong; other errors: a
     * retry may work.  @ret_why has 160 bytes. */
    enum bh_err (*read)(struct platform *p, int status, struct str body, struct str *ret_token,
                        int64_t *ret_life_ms, char *ret_why);
};

struct bearer {
    const struct bearer_ops *ops;
    struct platform *p;           /* borrowed */
    struct http_call *call;       /* private from here on; owned; NULL: no fetch in flight */
    struct buf text;              /* secret; empty: none */
    int64_t until_ms, refresh_ms; /* monotonic */
    int64_t again_ms;             /* monotonic: no fetch before, after a failure */
    unsigned failures;            /* in a row */
    bool refused;                 /* the last failure: the credentials are wrong */
    uint64_t fetched;
    char why[160]; /* the last failure */
};

/* The token; absent: it is being fetched, or cannot be had now, and bearer_wait() says which. */
struct str bearer_get(struct bearer *b);
/* The verdict on a request without a token. */
void bearer_wait(struct bearer *b, struct sender_verdict *v);
void bearer_refused(struct bearer *b);
void bearer_done(struct bearer *b); /* cancels the fetch and wipes the token */
