/* requests.h - the pending actions of gateways, with exactly one result each.
 *
 *      outbound frame -> rate limit -> guard.h -> spoken.h -> said before? -> outside->act()
 *      relay_result() -> the socket that asked, else the instance's receiver, else its next socket
 *
 * The result comes through relay_result(), at once when the action is refused, or after action_ms
 * as an error.  A result that no socket takes within action_ms is dropped.
 *
 * The platforms' sender records on disk the actions that must not happen twice.  At the next start
 * it reports interrupted actions (relay_cut_off()) and resumed ones (relay_revive()).  A gateway
 * that still waits gets the result.  A gateway that repeats the action before it has read the
 * result gets the result too, and the action is not performed again.
 */
#pragma once
#include "core/frame.h"

struct instance;
struct relay;
struct session;

#define REQUESTS_PER_SESSION 256

struct requests *requests_new(struct relay *r);
void requests_free(struct requests *q); /* NULL is fine; sends no results */

void requests_start(struct session *s, const struct frame *f);
void requests_answer_all(struct relay *r); /* at the end of a turn: sends the results of the turn */
void requests_orphan(struct session *s);   /* the session closes; its requests continue */
void requests_forget(struct instance *i);  /* drops the requests of closed sessions */
void requests_adopt(struct session *s);    /* sends @s the results that no socket could take */
void requests_read(struct session *s); /* @s has answered a ping: it has read what came before */
/* @s requested these actions before this process had its socket.  Actions that this process does
 * not continue end with an error, because they may or may not have happened. */
void requests_tell_lost(struct session *s, const struct str *ids, size_t n);
