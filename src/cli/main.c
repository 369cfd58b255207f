/* main.c - find the command, run it. */
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"
#include "dispatch/dispatch.h"

static const char *canonical(const char *word)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return "help";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        return "version";
    return word;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? canonical(argv[1]) : "help";

    if (strcmp(name, "drop") == 0)
        return dispatch_drop(argc - 2, argv + 2); /* for the server's helper, not for people */
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) {
            int rc = cli_run(cli_commands[i], argc - 1, argv + 1);
            if (fflush(stdout) != 0)
                return cli_failed("stdout cannot be written");
            return argc > 1 ? rc : CLI_MISUSED;
        }
    fprintf(stderr, "bellhop: there is no command \"%s\"\nTry: bellhop help\n", name);
    return CLI_MISUSED;
}
