/* await.h - delays the HTTP answer to a webhook until its event is delivered or on disk.
 *
 *      await_accept(&t->awaits, &delivery, http_req_id(req), &GOOD, 10000);
 *
 * Adapters with webhooks call it.  Once the event is accepted, the webhook gets its good answer.
 * On a timeout or a temporary failure the webhook gets a 503, so that the platform sends it again.
 * An event that would be refused again gets a 400. */
#pragma once
#include "base/list.h"
#include "net/http_server.h"
#include "platform/platform.h"

struct awaits {         /* of one bot */
    struct platform *p; /* borrowed */
    struct list all;
    uint64_t late; /* for status */
};

void awaits_init(struct awaits *a, struct platform *p);
/* Cancels all of them; their webhooks get no answer from here.  Harmless for a zeroed @a. */
void awaits_done(struct awaits *a);

enum webhook_verdict { /* on what a webhook says */
                       WEBHOOK_EVENT,
                       WEBHOOK_IGNORED, /* not for an agent: a delivery status, an empty message */
                       WEBHOOK_MALFORMED, /* not a message */
};

/* What a webhook or an interaction gives to the host; borrowed for the call. */
struct webhook_delivery {
    const struct event *ev;
    struct str forward;                 /* not absent: host_passthrough() of this object */
    struct prompt *prompt;              /* not NULL: prompts_accept() of a press ... */
    const struct prompt_option *option; /* ... on this option */
};
struct accept_id webhook_delivery_accept(struct platform *p, const struct webhook_delivery *x,
                                         accepted_cb *done, void *ctx);
/* webhook_delivery_accept() for a webhook.  @good and its body are copied. */
void await_accept(struct awaits *a, const struct webhook_delivery *x, struct http_id id,
                  const struct http_answer *good, int64_t deadline_ms);

/* Is @timestamp, in seconds, at most @window_ms from the clock? */
bool webhook_is_now(struct str timestamp, int64_t wall_ms, int64_t window_ms);
/* Answers 503, or 400 for an event that would be refused again. */
void await_refuse(struct awaits *a, struct http_id id, enum bh_err err);
