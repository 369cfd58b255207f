/* await.h - webhooks whose answer waits until their event is safe.
 *
 *      host_accept(host, p, &ev, await_accepted, await_new(&t->awaits, http_req_id(req), &GOOD,
 * 10000));
 *
 * When the event is delivered or on disk the request gets its good answer; when it cannot be taken,
 * or not in time, a 503, so that the platform sends it again. */
#pragma once
#include "base/clock.h"
#include "base/list.h"
#include "net/http_server.h"
#include "platform/platform.h"

struct await;

struct awaits {                 /* of one bot */
    struct clock *clock;        /* borrowed */
    struct http_server *server; /* borrowed */
    struct list all;
    uint64_t late; /* for status */
};

void awaits_init(struct awaits *a, const struct host_env *env);
/* The bot closes: answers that come later find nobody.  Harmless after memset 0. */
void awaits_done(struct awaits *a);

/* @good is copied, what it points at lives as long as the bot. */
struct await *await_new(struct awaits *a, struct http_id id, const struct http_answer *good,
                        int64_t deadline_ms);
accepted_cb await_accepted; /* ctx: what await_new() returned */

/* 503 (or 400 for what would be refused again). */
void await_refuse(struct awaits *a, struct http_id id, enum bh_err err);
