/* platform.c - the list of platforms in this build, and what all of them share: settings, the log,
 * the problem that operators read. */
#include "platform/platform.h"
#include <stdio.h>
#include "base/config.h"
#include "base/mem.h"
#include "platform/discord/discord.h"
#include "platform/manifest.h"
#include "platform/outgoing.h"
#include "platform/prompts.h"
#include "platform/telegram/telegram.h"
#include "platform/twilio/twilio.h"
#include "platform/web/web.h"
#include "platform/wecom/wecom.h"

const struct platform_ops *const platforms[] = {
    &web_ops, &telegram_ops, &discord_ops, &twilio_ops, &wecom_ops, NULL,
};

const struct record_form *const platform_records[] = {&outgoing_form, &prompt_form, &manifest_form,
                                                      NULL};

#define AT(member) offsetof(struct platform_settings, member)

static const struct config_key entry_keys[] = {
    {"platform", CFG_TEXT, CFG_RESTART, AT(platform), .required = true,
     .what = "The platform; required."},
    {"bot", CFG_TEXT, CFG_RESTART, AT(bot), .required = true,
     .what = "A name for this bot; required."},
    {"tenant", CFG_TEXT, CFG_RESTART, AT(tenant),
     .what = "Makes the bot this tenant's own: no instance of another tenant is reached or speaks "
             "through it, whatever links, scopes, routes and provisioning say."},
    {0},
};
static const struct config_section entry = {.keys = entry_keys,
                                            .size = sizeof(struct platform_settings)};

static const struct config_section *kind(size_t i)
{
    return platforms[i] != NULL ? platforms[i]->config : NULL;
}

const struct config_list platforms_config = {.name = "platforms",
                                             .entry = &entry,
                                             .example = "{platform: web, bot: lobby}",
                                             .otherwise = "[{platform: web, bot: lobby}]",
                                             .unique = "bot",
                                             .kind_key = "platform",
                                             .kind = kind};

static const struct config_key outbox_keys[] = {
    {"outbox.max_age", CFG_DURATION, CFG_RELOAD, offsetof(struct outbox_settings, max_age_ms),
     "10m", .min = 30000, .max = 86400000,
     .what = "How long a message of an agent is retried while its platform cannot be reached or "
             "asks to wait. After that it is dropped."},
    {0},
};
const struct config_section outbox_config = {.keys = outbox_keys,
                                             .size = sizeof(struct outbox_settings)};

const struct platform_ops *platform_find(struct str name)
{
    for (size_t i = 0; platforms[i] != NULL; i++)
        if (str_eq(str_of(platforms[i]->name), name))
            return platforms[i];
    return NULL;
}

static void log_prefix(const struct log *log, struct buf *out)
{
    const struct platform *p = container_of(log, struct platform, log);

    buf_printf(out, "platform=%s bot=%s ", p->ops->name, p->bot);
}

void platform_init(struct platform *p, const struct platform_ops *ops, struct host *host,
                   const struct platform_settings *settings)
{
    p->ops = ops;
    p->host = host;
    p->bot = settings->bot;
    p->log.prefix = log_prefix;
}

void platform_set_problem(struct platform *p, const char *sentence)
{
    if (sentence == NULL) {
        if (p->problem != NULL)
            log_info(&p->log, "working again");
        p->problem = NULL;
        return;
    }
    if (p->problem != NULL && strcmp(p->problem_text, sentence) == 0)
        return;
    snprintf(p->problem_text, sizeof p->problem_text, "%s", sentence);
    p->problem = p->problem_text;
    log_error(&p->log, "%s", sentence);
}

char *platform_api_base(const char *configured, const char *otherwise)
{
    struct str base = str_of(configured != NULL ? configured : otherwise);

    while (str_ends(base, STR("/")))
        base.n--;
    return str_dup(base);
}

struct str platform_message_type(struct str mime, bool voice)
{
    if (str_starts(mime, STR("image/")))
        return STR("photo");
    if (str_starts(mime, STR("video/")))
        return STR("video");
    if (str_starts(mime, STR("audio/")))
        return voice ? STR("voice") : STR("audio");
    return STR("document");
}
