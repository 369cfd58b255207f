/* settings.c - what an operator writes about a Discord bot. */
#include <stdio.h>
#include "base/config.h"
#include "base/mem.h"
#include "platform/discord/signature.h"
#include "platform/discord/discord_priv.h"

#define AT(member) offsetof(struct discord_settings, member)

static const struct config_key keys[] = {
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .what = "The bot's token."},
    {"api_base", CFG_TEXT, CFG_RESTART, AT(api_base),
     .what = "Another API server than the platform's own."},
    {"gateway_url", CFG_TEXT, CFG_RESTART, AT(gateway_url),
     .what = "Another gateway than the one Discord names."},
    {"intents", CFG_TEXT, CFG_RESTART, AT(intents),
     .what = "Gateway intents: a number, or names with commas between them."},
    {"public_key", CFG_TEXT, CFG_RESTART, AT(public_key),
     .what = "The application's public key, for interactions."},
    {"interactions", CFG_CHOICE, CFG_RESTART, AT(interactions), NULL, "passthrough|inbound",
     .what = "`passthrough` or `inbound`."},
    {"context", CFG_NUMBER, CFG_RESTART, AT(context), "20", .max = EVENT_MAX_CONTEXT,
     .what = "How many of the messages before one in a shared channel are told with it."},
    {"auto_thread", CFG_BOOL, CFG_RESTART, AT(auto_thread), "false",
     .what = "Answers to messages of a channel open threads."},
    {"reactions", CFG_BOOL, CFG_RESTART, AT(reactions), "false",
     .what = "People's reactions to what the bot said reach the agent."},
    {0},
};

static const struct {
    const char *name;
    int bit;
} intent_names[] = {
    {"guilds", 0},
    {"guild_members", 1},
    {"guild_moderation", 2},
    {"guild_expressions", 3},
    {"guild_integrations", 4},
    {"guild_webhooks", 5},
    {"guild_invites", 6},
    {"guild_voice_states", 7},
    {"guild_presences", 8},
    {"guild_messages", 9},
    {"guild_message_reactions", 10},
    {"guild_message_typing", 11},
    {"direct_messages", 12},
    {"direct_message_reactions", 13},
    {"direct_message_typing", 14},
    {"message_content", 15},
    {"guild_scheduled_events", 16},
    {"auto_moderation_configuration", 20},
    {"auto_moderation_execution", 21},
    {"guild_message_polls", 24},
    {"direct_message_polls", 25},
};

static bool add_intent(struct str name, uint64_t *intents)
{
    for (size_t i = 0; i < ARRAY_LEN(intent_names); i++)
        if (str_eq_ci(name, str_of(intent_names[i].name))) {
            *intents |= UINT64_C(1) << intent_names[i].bit;
            return true;
        }
    return false;
}

static uint64_t reaction_intents(const struct discord_settings *s)
{
    return s->reactions ? UINT64_C(1) << 10 | UINT64_C(1) << 13 : 0;
}

bool discord_intents(const struct discord_settings *s, uint64_t *ret_intents, char *ret_why)
{
    const char *text = s->intents;
    struct str rest = str_of(text), part;
    uint64_t intents = 0;

    if (text == NULL || str_to_u64(rest, &intents)) {
        *ret_intents = (text == NULL ? DISCORD_INTENTS_DEFAULT : intents) | reaction_intents(s);
        return true;
    }
    while (str_split(&rest, ',', &part)) {
        part = str_trim(part);
        if (part.n > 0 && !add_intent(part, &intents)) {
            snprintf(ret_why, 256,
                     "`intents` names \"%.*s\", which is none: use names such as guilds, "
                     "guild_messages, direct_messages, message_content, with commas between them",
                     (int)(part.n < 60 ? part.n : 60), part.p);
            return false;
        }
    }
    *ret_intents = intents | reaction_intents(s);
    return true;
}

static bool check(void *settings, char *ret_why)
{
    const struct discord_settings *s = settings;
    uint64_t unused;

    if (s->token == NULL) {
        snprintf(ret_why, 256, "a discord platform needs `bot` (the application id) and `token`");
        return false;
    }
    if (!discord_intents(s, &unused, ret_why))
        return false;
    struct discord_sig *sig = s->public_key != NULL ? discord_sig_new(str_of(s->public_key)) : NULL;
    bool ok = s->public_key == NULL || sig != NULL;
    discord_sig_free(sig);
    if (!ok)
        snprintf(ret_why, 256,
                 "`public_key` is no key: copy the 64 hex digits from the Developer Portal "
                 "(General Information)");
    return ok;
}

const struct config_section discord_config = {.name = "discord",
                                              .keys = keys,
                                              .size = sizeof(struct discord_settings),
                                              .check = check};
