/* observers.h - tells other modules of a change when the turn ends, never inside the change.
 *
 *      observers_add(o, "revoked", on_revoked, relay);      // while starting
 *      observers_tell(o, "revoked", gateway_id);            // when it happened; copied
 *
 * The facts tell "facts" (a fact changed), "revoked" (a gateway's id) and "ended" (tenant \x1f
 * instance); the relay and the vault listen.  All of them are in one process: what must survive the
 * process is in the store. */
#pragma once
#include "base/str.h"

struct clock;
struct observers;
typedef void observer_cb(void *ctx, struct str about);

struct observers *observers_new(struct clock *clock); /* @clock is borrowed */
/* No callback runs after this, also when it is called from one.  NULL is fine. */
void observers_free(struct observers *o);

/* @topic is a literal or outlives @o.  Listeners of a topic are called in the order they came. */
void observers_add(struct observers *o, const char *topic, observer_cb *cb, void *ctx);
/* What a callback tells is heard in the next turn. */
void observers_tell(struct observers *o, const char *topic, struct str about);
