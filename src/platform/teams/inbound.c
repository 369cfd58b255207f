/* inbound.c - takes the activities that Teams sends, once their token is verified.
 * (teams_priv.h has the calls.)
 *
 *      message, edit, reaction --> host_accept() --safe--> 200
 *      a press --> cards.c     a file is wanted --> files.c     any other invoke --> 501
 *      the bot was added or removed --> chats.c
 *
 * Teams sends an activity again, with the same id, when it gets no good answer in time; the host
 * drops the duplicate.  Where the bot may write is on disk before the event is: the store keeps the
 * order of writes, so an answer that comes after a restart finds the place. */
#include "base/mem.h"
#include "net/http_server.h"
#include "platform/teams/teams_priv.h"

void teams_answer(struct teams *t, struct http_id http, struct str body)
{
    http_answer(t->base.env->server, http,
                &(struct http_answer){.status = 200, .body = body.p != NULL ? body : STR("{}")});
}

static void take_event(struct teams *t, struct http_id http)
{
    struct event *ev = &t->out.ev;

    if (ev->thread_id.n > 0 && teams_thread_is_joined(t, ev->chat_id, ev->thread_id))
        ev->replies_to_bot = true;
    else if (ev->thread_id.n > 0 && ev->mentions_bot && !ev->author_is_bot)
        teams_thread_join(t, ev->chat_id, ev->thread_id);
    await_accept(&t->base, &(struct webhook_delivery){.ev = ev}, http,
                 &(struct http_answer){.status = 200, .body = STR("{}")}, TEAMS_DEADLINE_MS);
}

void teams_take(struct teams *t, struct http_id http, struct json activity)
{
    const struct teams_in in = {.bot = str_of(t->base.bot),
                                .tenant = str_of(t->cfg->entra_tenant),
                                .reactions = t->cfg->base.reactions};

    arena_reset(&t->arena);
    enum teams_verdict v = teams_normalize(activity, &in, &t->arena, &t->out);
    if (t->out.at.chat.n > 0 && v != TEAMS_MALFORMED && v != TEAMS_OTHER_TENANT &&
        v != TEAMS_REMOVED)
        teams_chat_heard(t, &t->out.at, t->out.ev.user_id);
    switch (v) {
    case TEAMS_EVENT:
        take_event(t, http);
        return;
    case TEAMS_PRESS:
        teams_take_press(t, http);
        return;
    case TEAMS_CONSENT:
        teams_take_consent(t, http);
        return;
    case TEAMS_INVOKE:
        t->n.invokes++;
        http_answer(t->base.env->server, http,
                    &(struct http_answer){.status = 501, .body = STR("{}")});
        return;
    case TEAMS_MALFORMED:
        t->base.n.malformed++;
        await_refuse(&t->base, http, BH_MALFORMED);
        return;
    case TEAMS_OTHER_TENANT:
        t->n.other_tenants++;
        if (t->out.ev.user_id.n > 0)
            host_refused(t->base.host, &t->out.ev, "another organisation than `entra_tenant`");
        break;
    case TEAMS_REMOVED:
        teams_chat_removed(t, t->out.at.chat);
        break;
    case TEAMS_INSTALLED:
        log_info(&t->base.log, "installed: kind=%s", teams_kinds[t->out.at.kind]);
        break;
    case TEAMS_IGNORED:
        t->base.n.ignored++;
        log_debug(&t->base.log, "activity ignored: %s", t->out.why);
        break;
    }
    teams_answer(t, http, STR_NULL);
}
