/* act.c - the platform's entrance: which file does an action, and in which channel.
 * (discord_priv.h has the calls.) */
#include "edge/vault.h"
#include "platform/discord/discord_priv.h"
#include "platform/prompts.h"

/* metadata.thread_id is a claim: it is followed only into a thread of the very chat that the relay
 * has checked. */
static uint64_t target_of(struct discord *d, const struct action *a)
{
    uint64_t chat = snowflake(a->chat_id), thread = snowflake(a->thread_id);
    const struct dcache_channel *ch = thread != 0 ? dcache_channel(d->cache, thread) : NULL;

    if (a->left != NULL && snowflake(a->left->e.lane) != 0)
        return snowflake(a->left->e.lane); /* checked before the restart; little is known yet */
    if (ch != NULL && discord_channel_is_thread(ch->type) && ch->parent_id == chat)
        return thread;
    uint64_t opened = discord_auto_target(d, a);
    return opened != 0 ? opened : chat;
}

static void start_follow_up(struct discord *d, const struct sender_order *q)
{
    uint64_t channel_id = 0;
    struct discord_reply *reply = discord_reply_for_follow_up(d, q->from, q->action, &channel_id);

    if (reply != NULL)
        discord_message(d, channel_id, reply, q);
    else
        host_fail(d->base.host, q->id, "%s", VAULT_REFUSED);
}

/* What went out under a key before a restart goes on so: through a token it would be another. */
static struct discord_reply *reply_for(struct discord *d, uint64_t channel_id,
                                       const struct sender_order *q)
{
    const struct action *a = q->action;

    if (a->left != NULL && a->left->e.twice == TWICE_IS_KEYED)
        return NULL;
    return discord_reply_for_send(d, q->from, channel_id, a->user_id);
}

/* An interaction is answered where it was made: in the chat, or the thread that is named. */
static void start_send(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    uint64_t chat = snowflake(q->action->chat_id), thread = snowflake(q->action->thread_id);
    uint64_t made = d->cfg->auto_thread && thread == channel_id ? thread : chat;
    struct discord_reply *reply = reply_for(d, made, q);

    discord_message(d, reply != NULL && d->cfg->auto_thread ? made : channel_id, reply, q);
}

static void start(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    const struct action *a = q->action;

    switch (a->op) {
    case ACTION_SEND:
    case ACTION_SEND_MEDIA:
        start_send(d, channel_id, q);
        break;
    case ACTION_PROMPT:
        if (prompt_wrong(a) != NULL)
            host_fail(d->base.host, q->id, "%s", prompt_wrong(a));
        else
            start_send(d, channel_id, q);
        break;
    case ACTION_EDIT:
        if (snowflake(a->message_id) == 0)
            host_fail(d->base.host, q->id, "message_id is not the id of a Discord message");
        else
            discord_message(d, channel_id, NULL, q);
        break;
    case ACTION_REACT:
    case ACTION_THREAD_CREATE:
    case ACTION_THREAD_RENAME:
        discord_errand(d, channel_id, q);
        break;
    case ACTION_TYPING:
        discord_typing(d, channel_id, q);
        break;
    case ACTION_GET_CHAT_INFO:
        discord_chat_info(d, channel_id, q);
        break;
    default:
        host_fail(d->base.host, q->id, "unsupported op: %.*s", STR_FMT(a->op_name));
        break;
    }
}

void discord_act(struct platform *p, struct action_id id, const struct action_from *from,
                 const struct action *a)
{
    struct discord *d = discord_of(p);
    struct sender_order q = {.id = id, .from = from, .action = a};
    uint64_t channel_id = target_of(d, a);

    if (a->op == ACTION_FOLLOW_UP)
        start_follow_up(d, &q);
    else if (channel_id == 0)
        host_fail(p->host, id, "chat_id is not the id of a Discord channel");
    else
        start(d, channel_id, &q);
}
