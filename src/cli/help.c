/* help.c - bellhop help [COMMAND | config | limits | api], bellhop version. */
#include <stdio.h>
#include "base/limits.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/settings.h"
#include "http/op.h"

static void overview(void)
{
    puts("bellhop - a connector between chat platforms and AI agents\n\nUsage: bellhop COMMAND "
         "...\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        printf("  %-9s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    puts("\nMore: bellhop help COMMAND, bellhop help config (every setting), bellhop help limits,\n"
         "bellhop help api (/v1 and the tools of /mcp)\n"
         "First steps: bellhop serve, then in another terminal\n"
         "  bellhop gateway add --tenant me --platform web --bot lobby");
}

static int run_help(const struct command *c, int argc, char **argv)
{
    struct cli_args a;

    if (!cli_parse(c, argc, argv, NULL, 0, &a))
        return cli_exit(&a);
    if (a.n_rest == 0) {
        overview();
        return CLI_DONE;
    }
    struct buf out = BUF_INIT;
    if (strcmp(a.rest[0], "config") == 0)
        config_describe(&settings_schema, &out);
    else if (strcmp(a.rest[0], "limits") == 0)
        limits_describe(&out);
    else if (strcmp(a.rest[0], "api") == 0)
        op_reference(&out);
    if (out.n > 0) {
        fputs(buf_z(&out), stdout);
        buf_done(&out);
        return CLI_DONE;
    }
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(cli_commands[i]->name, a.rest[0]) == 0) {
            fputs(cli_commands[i]->help, stdout);
            return CLI_DONE;
        }
    return cli_misused(c, "there is no command \"%s\"", a.rest[0]);
}

static int run_version(const struct command *c, int argc, char **argv)
{
    struct cli_args a;

    if (!cli_parse(c, argc, argv, NULL, 0, &a))
        return cli_exit(&a);
    if (a.json)
        printf("{\"version\":\"%s\"}\n", BELLHOP_VERSION);
    else
        printf("bellhop %s\n", BELLHOP_VERSION);
    return CLI_DONE;
}

const struct command cmd_help = {
    "help",
    "this, or one command in full",
    "Usage: bellhop help [COMMAND | config | limits | api]\n",
    run_help,
};

const struct command cmd_version = {
    "version",
    "which bellhop this is",
    "Usage: bellhop version [--json]\n",
    run_version,
};
