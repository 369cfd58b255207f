/* observers.h - notifies other modules of a change, from a timer and never inside the change.
 *
 *      observers_add(o, "revoked", on_revoked, relay);      // while starting
 *      observers_tell(o, "revoked", gateway_id);            // when it happened; copied
 *
 * Topics: "facts" (a fact changed), "revoked" (a gateway's id) and "ended" (tenant \x1f instance).
 * src/tenancy/ publishes them; the relay and the vault listen.  Notifications stay inside the
 * process and are lost when it exits; durable state is in the store. */
#pragma once
#include "base/str.h"

struct clock;
typedef void observer_cb(void *ctx, struct str about);

struct observers *observers_new(struct clock *clock); /* @clock is borrowed */
/* No callback runs after this, even when a callback calls it.  NULL is fine. */
void observers_free(struct observers *o);

/* @topic must outlive @o.  Listeners of a topic run in the order in which they were added. */
void observers_add(struct observers *o, const char *topic, observer_cb *cb, void *ctx);
/* A notification sent by a callback is delivered in the next turn. */
void observers_tell(struct observers *o, const char *topic, struct str about);
