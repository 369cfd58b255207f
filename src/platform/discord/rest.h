/* rest.h - requests to Discord's REST API: in lanes, within its limits, repeated where that is
 * safe.
 *
 *      rest_send(rest, &(struct rest_request){.method = "POST", .route = "messages", ...}, on_sent,
 * s);
 *
 * Every request ends with exactly one done(), later, unless it is cancelled or the rest is freed
 * first.  A refusal that only time can mend (429, 5xx, no connection) is waited out and repeated
 * within the request's patience. */
#pragma once
#include "base/json.h"
#include "platform/outbox.h"

struct host_env;
struct rest;
struct rest_call;

struct rest_request { /* strs are copied */
    const char *method;
    const char *route;   /* what is asked, without ids: the name of its rate limit */
    struct str major;    /* the channel or guild in the path: limits are per that */
    struct str path;     /* behind the API's base, with its query */
    struct str lane;     /* see outbox.h; absent: major */
    struct str body;     /* JSON; absent: none */
    int64_t patience_ms; /* 0: OUTBOX_PATIENCE_MS */
    bool repeatable;     /* doing it twice is doing it once: a lost answer may be asked for again */
};

enum rest_end {
    REST_OK,
    REST_REFUSED,   /* Discord said no: status, code, message */
    REST_TRANSIENT, /* it was not done; the same may work in a while */
    REST_UNKNOWN,   /* it may or may not have been done */
};

struct rest_answer { /* borrowed for the callback */
    enum rest_end end;
    int status;   /* 0: no answer came */
    int64_t code; /* Discord's own error code; 0: none */
    struct json body;
    const char *why; /* for anything but REST_OK: words for a person */
};
typedef void rest_done_cb(void *ctx, const struct rest_answer *a);

/* @token and @api_base are borrowed for the life of it. */
struct rest *rest_new(const struct host_env *env, const char *api_base, const char *token);
void rest_free(struct rest *r); /* no done() runs any more; what is in flight is cancelled */

struct rest_call *rest_send(struct rest *r, const struct rest_request *q, rest_done_cb *done,
                            void *ctx);
void rest_cancel(struct rest_call **call); /* NULL inside is fine; sets it to NULL */
/* Inside done() only: keep the place in the lane for one more request, with these. */
void rest_continue(struct rest_call *call, const char *method, const char *route, struct str path,
                   struct str body);

/* What an operator should do about the API, or NULL. */
const char *rest_problem(struct rest *r);
bool rest_token_refused(const struct rest *r); /* 401: nothing is sent any more */
struct rest_stats {
    size_t waiting, running;
    unsigned refused; /* in the last ten minutes */
    uint64_t sent, limited;
};
void rest_stats(struct rest *r, struct rest_stats *ret);
