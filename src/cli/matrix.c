/* matrix.c - `bellhop matrix`: the registration file of an application service. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"
#include "cli/settings.h"
#include "platform/platform.h"

/* Writes the file of the only bot that needs one, or of the one called @bot.  NULL: written; else
 * why not. */
static const char *write_file(const struct config *cfg, const char *bot, const char *url,
                              struct buf *out)
{
    const struct platform_ops *ops = platform_find(STR("matrix"));
    const char *public_url = settings_of(cfg)->public_url;
    size_t n = 0;

    for (size_t i = 0; i < config_count(cfg, &platforms_config); i++) {
        const struct platform_settings *p = config_entry(cfg, &platforms_config, i);
        BUF_LOCAL at = BUF_INIT;
        if (strcmp(p->platform, ops->name) != 0 || (bot != NULL && strcmp(p->bot, bot) != 0))
            continue;
        if (url != NULL || p->host == NULL)
            buf_add_z(&at, url != NULL ? url : public_url != NULL ? public_url : "");
        else
            buf_printf(&at, "https://%s", p->host);
        n += ops->registration(p, buf_str(&at), out);
        if (n > 0 && at.n == 0)
            return "the homeserver has to reach bellhop: set public_url, or give the address with "
                   "--url";
    }
    if (n == 1)
        return NULL;
    return n > 1 ? "there are several bots with an appservice: name one with --bot"
                 : "the configuration has no such matrix bot with an appservice: "
                   "docs/platforms/matrix.md shows an entry";
}

static int print_registration(struct cli_job *j)
{
    struct config *cfg = NULL;
    BUF_SECRET file = BUF_INIT;
    BUF_LOCAL why = BUF_INIT;

    if (settings_load(j->config, &cfg, &why) != BH_OK)
        return cli_failed("%s", buf_z(&why));
    const char *wrong = write_file(cfg, cli_value(j, "--bot"), cli_value(j, "--url"), &file);
    config_free(cfg);
    if (wrong != NULL)
        return cli_failed("%s", wrong);
    fwrite(file.p, 1, file.n, stdout);
    return CLI_DONE;
}

static const struct cli_verb verbs[] = {
    {"registration", .run = print_registration},
    {0},
};
static const struct cli_option options[] = {
    {"--bot", NULL, CLI_TEXT},
    {"--url", NULL, CLI_TEXT},
    {0},
};
const struct command cmd_matrix = {
    .name = "matrix",
    .summary = "print the file that registers bellhop with a Matrix homeserver",
    .help =
        "Usage: bellhop matrix registration [--bot B] [--url URL] [-c FILE]\n\n"
        "Prints the registration file of an application service, made from the entry\n"
        "{platform: matrix, bot: B, appservice: {...}} of the configuration.  Give the file to\n"
        "the homeserver (Synapse: app_service_config_files) and restart the homeserver.  The\n"
        "file holds both secrets.\n\n"
        "--bot  the bot, where several have an appservice.\n"
        "--url  where the homeserver reaches bellhop; default: the bot's host, or public_url.\n",
    .verbs = verbs,
    .options = options,
};
