/* drain.h - going down in good order: relay_drain().
 *
 *      relay_drain() -> WAITING for acks and results under way --all here, or half a second-->
 *      every socket is closed with CLOSE_RESTARTING --all that was accepted is on disk--> told
 *
 * relay->draining is true from the first moment on; only this part writes it. */
#pragma once

struct drain;
struct relay;

struct drain *drain_new(struct relay *r);
void drain_free(struct drain *d); /* NULL is fine */

/* At the end of a turn: take the next step if it may be taken.  Nothing when nobody drains. */
void drain_go_on(struct relay *r);
