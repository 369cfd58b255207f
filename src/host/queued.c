/* queued.c - actions on messages that were queued.  (queued.h has the contract.) */
#include "host/queued.h"
#include "host/carry.h"
#include "platform/sender.h"

static bool is_queued_name(struct str id)
{
    return str_starts(id, STR("queued:"));
}

/* A gateway that was told "queued" calls the message so: what is it called by now?  False: there is
 * nothing to be done now, and that has been answered. */
static bool find_queued(struct platform *p, struct action_id id, struct action *a, char room[128])
{
    enum sender_named named =
        p->sender != NULL ? sender_named(p->sender, a->message_id, room) : SENDER_NAMED_NONE;

    if (named == SENDER_NAMED_SENT)
        a->message_id = str_of(room);
    else if (named == SENDER_NAMED_WAITS && a->op == ACTION_EDIT)
        sender_edit_later(p->sender, id, a);
    else if (named == SENDER_NAMED_WAITS)
        host_fail(p->host, id, "the message is still waiting in bellhop's outbox");
    else
        host_fail(p->host, id, "there is no such message: what was queued under this name failed");
    return named == SENDER_NAMED_SENT;
}

void queued_act(struct carries *c, struct platform *p, struct action_id id,
                const struct action_from *from, const struct action *a)
{
    char message[128], reply[128];
    struct action with = *a;

    if (is_queued_name(a->message_id) && !find_queued(p, id, &with, message))
        return;
    if (is_queued_name(a->reply_to)) /* an answer to something that is not there stands alone */
        with.reply_to =
            p->sender != NULL && sender_named(p->sender, a->reply_to, reply) == SENDER_NAMED_SENT
                ? str_of(reply)
                : STR_NULL;
    if (a->op == ACTION_SEND_MEDIA)
        carry_act(c, p, id, from, &with);
    else if (!carry_waits(c, p, id, from, &with))
        p->ops->act(p, id, from, &with);
}
