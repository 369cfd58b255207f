/* platform.c - the platforms this build has: one line each. */
#include "platform/platform.h"
#include "platform/discord/discord.h"
#include "platform/telegram/telegram.h"
#include "platform/twilio/twilio.h"
#include "platform/web/web.h"
#include "platform/wecom/wecom.h"

const struct platform_ops *const platforms[] = {
    &discord_ops, &telegram_ops, &twilio_ops, &web_ops, &wecom_ops, NULL,
};

const struct platform_ops *platform_find(struct str name)
{
    for (size_t i = 0; platforms[i] != NULL; i++)
        if (str_eq(str_of(platforms[i]->name), name))
            return platforms[i];
    return NULL;
}
