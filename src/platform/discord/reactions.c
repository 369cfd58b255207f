/* reactions.c - people's reactions to what the bot said: "reaction:added:<emoji>", said by them.
 *
 * The words are those that gateways use for reactions of other platforms.  Reactions to what others
 * said are nobody's business here.  Discord says whose message it is when one is added, not when it
 * is taken back: for that the last few are remembered. */
#include <inttypes.h>
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

static bool is_ours(struct discord *d, struct json reaction, uint64_t message_id, bool added)
{
    if (added && str_eq(json_str(reaction, "message_author_id"), str_of(d->bot_user))) {
        d->reacted[d->n_reacted++ % ARRAY_LEN(d->reacted)] = message_id;
        return true;
    }
    for (size_t i = 0; !added && i < ARRAY_LEN(d->reacted); i++)
        if (d->reacted[i] == message_id)
            return true;
    return false;
}

/* As if the person had written it, so that place and name are found as for any message. */
static void write_message(struct buf *out, struct json reaction, bool added)
{
    struct json emoji = json_get(reaction, "emoji"), member = json_get(reaction, "member");
    struct str name = json_str(emoji, "name");
    const char *around = str_is_empty(json_str(emoji, "id")) ? "" : ":";
    struct buf text = BUF_INIT;
    struct jw w = jw_begin(out);

    buf_printf(&text, "reaction:%s:%s%.*s%s", added ? "added" : "removed", around, STR_FMT(name),
               around);
    jw_obj(&w);
    jw_kstr(&w, "id", json_str(reaction, "message_id"));
    jw_kstr(&w, "channel_id", json_str(reaction, "channel_id"));
    jw_kstr_opt(&w, "guild_id", json_str(reaction, "guild_id"));
    jw_ki64(&w, "type", 0);
    jw_kstr(&w, "content", buf_str(&text));
    if (json_is_object(member)) {
        jw_key(&w, "member");
        jw_value(&w, member);
    }
    jw_key(&w, "author");
    if (json_is_object(json_get(member, "user"))) {
        jw_value(&w, json_get(member, "user"));
    } else {
        jw_obj(&w);
        jw_kstr(&w, "id", json_str(reaction, "user_id"));
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
    buf_done(&text);
}

static bool normalize(struct discord *d, struct buf *message)
{
    struct json doc;

    return json_parse(d->parser, buf_str(message), &doc) &&
           discord_normalize(&(struct discord_normalize_in){.message = doc,
                                                            .cache = d->cache,
                                                            .bot = str_of(d->base.bot),
                                                            .bot_user = str_of(d->bot_user),
                                                            .in_parent = d->cfg->auto_thread},
                             &d->norm) == DISCORD_EVENT;
}

void discord_reaction(struct discord *d, struct json reaction, bool added,
                      struct discord_pending *p)
{
    uint64_t message_id = json_snowflake(reaction, "message_id");
    bool own = str_eq(json_str(reaction, "user_id"), str_of(d->bot_user));
    struct buf message = BUF_INIT;
    char id[96];

    if (!own && message_id != 0 && is_ours(d, reaction, message_id, added)) {
        write_message(&message, reaction, added);
        if (normalize(d, &message)) {
            struct event *ev = &d->norm.ev;
            snprintf(id, sizeof id, "%" PRIu64 ":r%" PRIu64 ":%.*s", message_id, p->seq,
                     (int)(ev->user_id.n < 24 ? ev->user_id.n : 24), ev->user_id.p);
            ev->event_id = str_of(id);
            ev->reply_to_message_id = ev->message_id;
            ev->reply_to.set = ev->reply_to.is_own = ev->replies_to_bot = true;
            p->channel_id = d->norm.channel_id;
            discord_pending_accept(p);
            buf_done(&message);
            return;
        }
    }
    buf_done(&message);
    discord_pending_done(p);
}
