/* await.h - delays the HTTP answer to a webhook until its event is delivered or on disk.
 *
 *      await_accept(&t->awaits, &ev, http_req_id(req), &GOOD, 10000);
 *
 * Adapters with webhooks call it.  Once the event is accepted, the webhook gets its good answer.
 * On a timeout or a temporary failure the webhook gets a 503, so that the platform sends it again.
 * An event that would be refused again gets a 400. */
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
/* Cancels all of them; their webhooks get no answer from here.  Harmless for a zeroed @a. */
void awaits_done(struct awaits *a);

/* host_accept() for a webhook.  @good is copied; its pointers must live as long as the bot. */
void await_accept(struct awaits *a, const struct event *ev, struct http_id id,
                  const struct http_answer *good, int64_t deadline_ms);
/* host_passthrough() for a webhook. */
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
