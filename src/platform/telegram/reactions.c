/* reactions.c - people's reactions to what we said.
 *
 * Telegram does not say whose message was reacted to, so the last few that we sent are remembered;
 * reactions to anything else are nobody's business here. */
#include "base/mem.h"
#include "platform/telegram/telegram_priv.h"

void tg_reactions_sent(struct telegram *t, struct str chat, int64_t message, int64_t thread)
{
    int64_t id;

    if (!t->reactions || !str_to_i64(chat, &id))
        return;
    size_t at = t->n_sent++ % ARRAY_LEN(t->sent);
    t->sent[at].chat = id;
    t->sent[at].message = message;
    t->sent[at].thread = thread;
}

static bool find(const struct telegram *t, struct json reaction, int64_t *ret_thread)
{
    int64_t chat, message;

    if (!json_as_i64(json_get(json_get(reaction, "chat"), "id"), &chat) ||
        !json_as_i64(json_get(reaction, "message_id"), &message))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(t->sent); i++)
        if (t->sent[i].message == message && t->sent[i].chat == chat && message != 0) {
            *ret_thread = t->sent[i].thread;
            return true;
        }
    return false;
}

bool tg_take_reaction(struct telegram *t, struct json update, tg_taken_fn *done, uint64_t tag)
{
    struct event ev;
    int64_t thread = 0;

    if (!t->reactions || !find(t, json_get(update, "message_reaction"), &thread) ||
        !tg_normalize_reaction(update, str_of(t->base.bot), thread, &t->arena, &ev)) {
        t->n.ignored++;
        return false;
    }
    ev.former_key = tg_chat_before(t, ev.chat_id);
    tg_take_event(t, &ev, done, tag);
    return true;
}
