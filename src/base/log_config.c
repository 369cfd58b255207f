/* log_config.c - the settings of log.h. */
#include "base/config.h"
#include "base/log.h"

#define AT(member) offsetof(struct log_settings, member)

static const struct config_key keys[] = {
    {"log.level", CFG_ENUM, CFG_RELOAD, AT(level), "info", "error|warn|info|debug",
     .what = "The least important line that is written."},
    {"log.format", CFG_ENUM, CFG_RELOAD, AT(format), "text", "text|json",
     .what = "`json` writes one object per line."},
    {0},
};

void log_apply(const struct log_settings *s)
{
    log_setup((enum log_level)s->level, s->format == LOG_JSON);
}

const struct config_section log_config = {.keys = keys, .size = sizeof(struct log_settings)};
