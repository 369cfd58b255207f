/* await.h - webhooks whose HTTP answer waits until their event is safe.
 *
 *      await_accept(&t->awaits, &ev, http_req_id(req), &GOOD, 10000);
 *
 * When the event is delivered or on disk the request gets its good answer.  When the event
 * cannot be taken, or not in time, the request gets a 503, so that the platform sends it again. */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "net/http_server.h"
#include "platform/platform.h"

struct awaits {         /* of one bot */
    struct platform *p; /* borrowed */
    struct list all;
    uint64_t late; /* for status */
};

void awaits_init(struct awaits *a, struct platform *p);
/* The bot closes: later answers are dropped.  Harmless after memset 0. */
void awaits_done(struct awaits *a);

/* host_accept() for a webhook.  @good is copied, what it points at lives as long as the bot. */
void await_accept(struct awaits *a, const struct event *ev, struct http_id id,
                  const struct http_answer *good, int64_t deadline_ms);
/* host_passthrough() for one. */
void await_passthrough(struct awaits *a, const struct event *ev, struct str forward_json,
                       struct http_id id, const struct http_answer *good, int64_t deadline_ms);

/* prompts_accept() for a webhook; the body of @good is copied too. */
struct prompt;
struct prompt_option;
void await_press(struct awaits *a, struct prompt *q, const struct prompt_option *o,
                 const struct event *ev, struct http_id id, const struct http_answer *good,
                 int64_t deadline_ms);

/* Answers 503, or 400 for an event that would be refused again. */
void await_refuse(struct awaits *a, struct http_id id, enum bh_err err);
