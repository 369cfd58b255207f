/* settings.c - what an operator writes about a Telegram bot. */
#include <stdio.h>
#include "base/config.h"
#include "platform/telegram/telegram.h"

#define AT(member) offsetof(struct telegram_settings, member)

static const struct config_key keys[] = {
    {"token", CFG_SECRET, CFG_RESTART, AT(token), .what = "The bot's token."},
    {"mode", CFG_CHOICE, CFG_RESTART, AT(mode), NULL, "polling|webhook",
     .what = "`polling` or `webhook`."},
    {"webhook_secret", CFG_SECRET, CFG_RESTART, AT(webhook_secret),
     .what = "What Telegram shows on every webhook."},
    {"api_base", CFG_TEXT, CFG_RESTART, AT(api_base),
     .what = "Another API server than the platform's own."},
    {"context", CFG_NUMBER, CFG_RESTART, AT(context), "0", .max = EVENT_MAX_CONTEXT,
     .what = "How many of the messages before one in a group are remembered, and told with it."},
    {"reactions", CFG_BOOL, CFG_RESTART, AT(reactions), "false",
     .what = "People's reactions to what the bot said reach the agent."},
    {0},
};

static bool has_only(const char *s, const char *extra)
{
    for (; *s != '\0'; s++) {
        bool word = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                    (*s >= '0' && *s <= '9') || strchr(extra, *s) != NULL;
        if (!word)
            return false;
    }
    return true;
}

static const char *find_mistake(const struct telegram_settings *s)
{
    struct str base = str_of(s->api_base);
    bool webhook = str_eq(str_of(s->mode), STR("webhook"));

    if (s->token == NULL)
        return "\"token\" is missing: it is what @BotFather gave you";
    if (!has_only(s->token, ":-_"))
        return "the token does not look like one from @BotFather (123456:ABC-def...)";
    if (base.p != NULL && !str_starts(base, STR("https://")) && !str_starts(base, STR("http://")))
        return "api_base is an address that starts with https://";
    if (webhook && s->webhook_secret == NULL)
        return "mode: webhook needs a webhook_secret: up to 256 letters, digits, - and _";
    if (webhook && (!has_only(s->webhook_secret, "-_") || strlen(s->webhook_secret) > 256))
        return "webhook_secret may have up to 256 letters, digits, - and _ (Telegram's rule)";
    return NULL;
}

static bool check(void *settings, char *ret_why)
{
    const char *mistake = find_mistake(settings);

    if (mistake != NULL)
        snprintf(ret_why, 256, "%s", mistake);
    return mistake == NULL;
}

const struct config_section telegram_config = {.name = "telegram",
                                               .keys = keys,
                                               .size = sizeof(struct telegram_settings),
                                               .check = check};
