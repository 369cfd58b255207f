/* parse.h - the fields of Discord's objects that normalizing needs; for normalize.c.
 *
 * A message has some thirty keys of which we need half: one walk over them, instead of a search of
 * the object for each. */
#pragma once
#include "base/json.h"

struct discord_person {
    struct str id, name, handle;
    bool bot;
};

struct discord_parsed { /* a message; views of the parser's */
    struct str id, channel_id, guild_id, content, webhook_id;
    struct json author, member, mentions, mention_roles, attachments, stickers, embeds, poll;
    struct json reference, referenced, snapshots;
    int64_t type, flags, channel_type; /* -1: absent */
};

void discord_parse(struct json message, struct discord_parsed *ret);
/* The name people see is the account's display name, else its handle. */
struct discord_person discord_parse_person(struct json user);

/* Is the key of this step of a walk @lit, of which the length is known already? */
#define DISCORD_KEY(it, lit) \
    ((it).key.p[0] == (lit)[0] && memcmp((it).key.p, lit, sizeof(lit) - 1) == 0)
