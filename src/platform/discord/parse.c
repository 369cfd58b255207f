/* parse.c - one walk over a message's keys.  (parse.h has the contract.) */
#include "platform/discord/parse.h"

static void take_short(const struct json_iter *it, struct discord_parsed *m)
{
    switch (it->key.n) {
    case 2:
        if (DISCORD_KEY(*it, "id"))
            m->id = json_as_str(it->value);
        break;
    case 4:
        if (DISCORD_KEY(*it, "type"))
            json_as_i64(it->value, &m->type);
        else if (DISCORD_KEY(*it, "poll"))
            m->poll = it->value;
        break;
    case 5:
        if (DISCORD_KEY(*it, "flags"))
            json_as_i64(it->value, &m->flags);
        break;
    case 6:
        if (DISCORD_KEY(*it, "author"))
            m->author = it->value;
        else if (DISCORD_KEY(*it, "member"))
            m->member = it->value;
        else if (DISCORD_KEY(*it, "embeds"))
            m->embeds = it->value;
        break;
    case 7:
        if (DISCORD_KEY(*it, "content"))
            m->content = json_as_str(it->value);
        break;
    case 8:
        if (DISCORD_KEY(*it, "guild_id"))
            m->guild_id = json_as_str(it->value);
        else if (DISCORD_KEY(*it, "mentions"))
            m->mentions = it->value;
        break;
    default:
        break;
    }
}

static void take_long(const struct json_iter *it, struct discord_parsed *m)
{
    switch (it->key.n) {
    case 10:
        if (DISCORD_KEY(*it, "channel_id"))
            m->channel_id = json_as_str(it->value);
        else if (DISCORD_KEY(*it, "webhook_id"))
            m->webhook_id = json_as_str(it->value);
        break;
    case 11:
        if (DISCORD_KEY(*it, "attachments"))
            m->attachments = it->value;
        break;
    case 12:
        if (DISCORD_KEY(*it, "channel_type"))
            json_as_i64(it->value, &m->channel_type);
        break;
    case 13:
        if (DISCORD_KEY(*it, "mention_roles"))
            m->mention_roles = it->value;
        else if (DISCORD_KEY(*it, "sticker_items"))
            m->stickers = it->value;
        break;
    case 17:
        if (DISCORD_KEY(*it, "message_reference"))
            m->reference = it->value;
        else if (DISCORD_KEY(*it, "message_snapshots"))
            m->snapshots = it->value;
        break;
    case 18:
        if (DISCORD_KEY(*it, "referenced_message"))
            m->referenced = it->value;
        break;
    default:
        break;
    }
}

void discord_parse(struct json message, struct discord_parsed *ret)
{
    *ret = (struct discord_parsed){.type = -1, .channel_type = -1};
    for (struct json_iter it = {0}; json_next(message, &it);) {
        if (it.key.n <= 8)
            take_short(&it, ret);
        else
            take_long(&it, ret);
    }
}

struct discord_person discord_parse_person(struct json user)
{
    struct discord_person p = {0};
    struct str global = STR_NULL;

    for (struct json_iter it = {0}; json_next(user, &it);) {
        if (it.key.n == 2 && DISCORD_KEY(it, "id"))
            p.id = json_as_str(it.value);
        else if (it.key.n == 8 && DISCORD_KEY(it, "username"))
            p.handle = json_as_str(it.value);
        else if (it.key.n == 11 && DISCORD_KEY(it, "global_name"))
            global = json_as_str(it.value);
        else if ((it.key.n == 3 && DISCORD_KEY(it, "bot")) ||
                 (it.key.n == 6 && DISCORD_KEY(it, "system")))
            p.bot |= json_as_bool(it.value, false);
    }
    p.name = str_is_empty(global) ? p.handle : global;
    return p;
}
