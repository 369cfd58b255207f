/* obey.c - what a program's line is about, and doing what it says.
 *
 * A line that names a message, a conversation or a chat means that one; a line that names none
 * means the message in hand.  What could mean two is dropped rather than said to the wrong people.
 */
#include "agent/agent_priv.h"
#include "base/log.h"
#include "bellhop/gateway.h"

static struct agent_turn *in_hand_by(struct worker *w, const struct order *o)
{
    struct agent_turn *found = NULL;

    list_each (&w->in_hand, it, next) {
        struct agent_turn *t = list_entry(it, struct agent_turn, link);
        if (o->id.p != NULL && !str_eq(o->id, str_of(t->ev->buffer_id)))
            continue;
        if (o->session_key.p != NULL && !str_eq(o->session_key, str_of(t->ev->session_key)))
            continue;
        if (o->chat_id.p != NULL && !str_eq(o->chat_id, str_of(t->ev->chat_id)))
            continue;
        if (found != NULL && found->conversation != t->conversation)
            return NULL; /* it could be either's */
        if (found == NULL)
            found = t;
    }
    return found;
}

/* The chat an order speaks in, when it is about no message in hand; NULL: nobody can tell. */
static struct conversation *chat_of(struct worker *w, const struct order *o)
{
    struct agent *a = w->agent;

    if (o->session_key.p != NULL)
        return conversation_find(a, o->session_key);
    if (o->chat_id.p != NULL) {
        struct conversation *c = conversation_by_id(a, o->chat_id);
        return c != NULL ? c : conversation_get(a, o->chat_id);
    }
    return w->n_in_hand == 0 ? w->about : NULL;
}

struct agent_turn *worker_obey(struct worker *w, const struct order *o)
{
    struct agent_turn *t = in_hand_by(w, o);
    struct conversation *c = t != NULL ? t->conversation : chat_of(w, o);

    if ((o->plain && str_is_empty(o->text)) || str_eq(o->op, STR("done")))
        return t;
    if (c == NULL) {
        log_warn(NULL, "a line was dropped: it does not say which chat it means "
                       "(\"session_key\" or \"chat_id\")");
        return t;
    }
    if (t != NULL && order_is_answer(o))
        t->answered = true;
    conversation_say(c, o, t, w);
    return t;
}
