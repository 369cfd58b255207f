/* requests.h - the actions that gateways asked for and that are under way, and one result each.
 *
 *      outbound frame -> rate limit -> guard.h -> byline.h -> said before? -> outside->act()
 *      relay_result() -> the socket that asked, else the instance's receiver, else its next socket
 *
 * Every request gets exactly one result: through relay_result(), at once when it is refused, or
 * after action_ms as "timed out".
 *
 * The platforms' sender records on disk what must not happen twice.  At the next start it reports
 * what was cut off (relay_cut_off()) and what goes on (relay_revive()): the gateway that still
 * waits gets that result, and a gateway that says the same again is answered with it.
 */
#pragma once
#include "base/list.h"
#include "core/frame.h"

struct instance;
struct relay;
struct requests;
struct session;

#define REQUESTS_PER_SESSION 256
#define REQUEST_ID_MAX 128

struct requests *requests_new(struct relay *r);
void requests_free(struct requests *q); /* NULL is fine; nobody is answered */

void requests_start(struct session *s, const struct frame *f);
void requests_answer_all(struct relay *r); /* at the end of a turn: the results that came in it */
void requests_orphan(struct session *s);   /* the session ends; its requests go on */
void requests_forget(struct instance *i);  /* drops the requests of sessions that ended */
void requests_adopt(struct session *s);    /* sends it the results that no socket could take */
