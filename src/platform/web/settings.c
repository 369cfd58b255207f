/* settings.c - what an operator writes about a web bot. */
#include <stdio.h>
#include "base/config.h"
#include "platform/web/web.h"

#define AT(member) offsetof(struct web_settings, member)

static const struct config_key keys[] = {
    {"title", CFG_TEXT, CFG_RESTART, AT(title), .what = "What the chat page is called."},
    {"history", CFG_NUMBER, CFG_RESTART, AT(history), "200", .max = 100000,
     .what = "Messages kept per chat; 0 keeps none."},
    {0},
};

static bool check(void *settings, char *ret_why)
{
    const struct web_settings *s = settings;
    struct str bot = str_of(s->base.bot);
    bool ok = bot.n > 0 && bot.n <= 64;

    for (size_t i = 0; ok && i < bot.n; i++) {
        char c = bot.p[i];
        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             (c != '\0' && strchr("-_.", c) != NULL);
    }
    if (ok && !str_eq(bot, STR("assets")) && !str_eq(bot, STR("api")))
        return true;
    snprintf(ret_why, 256,
             "the bot of a web platform is part of its address: use letters, digits, '-', '_' "
             "and '.', not '%.*s'",
             (int)(bot.n < 80 ? bot.n : 80), bot.p != NULL ? bot.p : "");
    return false;
}

const struct config_section web_config = {.name = "web",
                                          .keys = keys,
                                          .size = sizeof(struct web_settings),
                                          .check = check};
