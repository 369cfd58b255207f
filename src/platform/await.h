/* await.h - answers a webhook, or calls back, once its event is delivered or on disk.
 *
 *      await_accept(p, &delivery, http_req_id(req), &GOOD, 10000);        answers a webhook
 *      await_event(p, &delivery, &envelope, sizeof envelope, on_safe);    calls on_safe()
 *
 * Adapters call it.  Once the event is accepted, the webhook gets its good answer.  On a timeout or
 * a temporary failure the webhook gets a 503, so that the platform sends it again.  An event that
 * would be refused again gets a 400.  platform_close() cancels whatever still waits. */
#pragma once
#include "base/list.h"
#include "core/accept.h"
#include "net/http_server.h"

struct event;
struct platform;
struct prompt;
struct prompt_option;

struct awaits { /* of one bot */
    struct list all;
    uint64_t late; /* for status */
};
void awaits_done(struct platform *p); /* cancels all of them; their webhooks get no answer */

enum webhook_verdict { /* on what a webhook says */
                       WEBHOOK_EVENT,
                       WEBHOOK_IGNORED, /* not for an agent: a delivery status, an empty message */
                       WEBHOOK_MALFORMED, /* not a message */
};

/* What an adapter gives to the host; borrowed for the call. */
struct webhook_delivery {
    const struct event *ev;
    struct str forward;                 /* not absent: host_passthrough() of this object */
    struct prompt *prompt;              /* not NULL: prompts_accept() of a press ... */
    const struct prompt_option *option; /* ... on this option */
};
struct accept_id webhook_delivery_accept(struct platform *p, const struct webhook_delivery *x,
                                         accepted_cb *done, void *ctx);
/* webhook_delivery_accept() for a webhook.  @good and its body are copied. */
void await_accept(struct platform *p, const struct webhook_delivery *x, struct http_id id,
                  const struct http_answer *good, int64_t deadline_ms);
/* webhook_delivery_accept() for an event that came otherwise.  @done gets a copy of the @n bytes at
 * @with, which is wiped afterwards.  It runs once, later, unless the bot is closed. */
typedef void awaited_cb(struct platform *p, void *with, enum bh_err err);
void await_event(struct platform *p, const struct webhook_delivery *x, const void *with, size_t n,
                 awaited_cb *done);

/* Is @timestamp, in seconds, at most @window_ms from the clock? */
bool webhook_is_now(struct str timestamp, int64_t wall_ms, int64_t window_ms);
/* Does @shown equal @secret?  Compares in constant time. */
bool webhook_shows(struct str shown, const char *secret);
/* The one answer to every webhook without a valid proof. */
void webhook_is_unsigned(struct http_server *server, struct http_id id);
/* Answers 503, or 400 for an event that would be refused again. */
void await_refuse(struct platform *p, struct http_id id, enum bh_err err);
