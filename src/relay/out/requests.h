/* requests.h - what gateways ask for: the requests under way, and one result each.
 *
 * Every request gets exactly one result: from the platform through relay_result(), at once when it
 * is refused, or after action_ms as "timed out".  The result goes to the socket that asked; when
 * that one has gone, to the instance's receiver, or, for as long as the client still waits, to the
 * next one.
 *
 * Whoever acts keeps on disk what must not happen twice (the platforms' sender), and reports what
 * was cut off at the next start through relay_cut_off(): whoever still waits for it is told, once.
 */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "core/frame.h"

struct instance;
struct relay;
struct requests;
struct session;

#define REQUESTS_PER_SESSION 256
#define REQUEST_ID_MAX 128

struct requests *requests_new(struct relay *r);
enum bh_err requests_load(struct relay *r); /* at start, after the instances */
void requests_free(struct requests *q);     /* NULL is fine; nobody is answered */

void requests_start(struct session *s, const struct frame *f);
void requests_answer_all(struct relay *r); /* at the end of a turn: the results that came in it */
void requests_orphan(struct session *s);   /* it leaves */
void requests_forget(
    struct instance *i); /* nobody takes the results of those whose session has gone */
void requests_adopt(struct session *s); /* it receives: results that found nobody go to it */
