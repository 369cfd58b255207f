/* agents.h - the verbs of `bellhop agent` that change agents in the store, for cli/agent.c. */
#pragma once
#include "cli/cli.h"

int agent_add(struct cli_job *j);
int agent_set(struct cli_job *j);
void agent_print(struct cli_job *j); /* of show */
extern const struct cli_column agent_list_columns[];

/* Options of `agent add` and `agent set` beyond those of `agent`.  An option of `agent` means the
 * setting of the same name here. */
#define AGENT_STORE_OPTIONS \
    {"--tenant", "tenant"}, {"--substrate"}, {"--name"}, {"--instance"}, {"--wake-url"}, \
        {"--status-url"}, {"--authorization"}, {"--target"}, {"--socket"}, {"--dir"}, {"--path"}, \
        {"--bot"}, {"--key"}, {"--model"}, {"--history"}, {"--timeout"}, \
        {"--session", .kind = CLI_REPEATED}, {"--capability", .kind = CLI_REPEATED}, \
        {"--open", .kind = CLI_FLAG}, {"--wake-on-deliver", .kind = CLI_FLAG}, \
    { \
        "--unset", .kind = CLI_REPEATED \
    }
#define AGENT_STORE_VERBS \
    {"add", .args = "[id]", .needs = "--tenant --substrate", .run = agent_add, \
     .print = agent_print}, \
        {"list", .op = "showAgents", .columns = agent_list_columns, .none = "No agent yet."}, \
        {"show", .args = "id", .op = "showAgent", .print = agent_print}, \
        {"set", .args = "id", .run = agent_set, .print = agent_print}, \
    { \
        "remove", .args = "id", .op = "removeAgent", .done = "The agent %s is removed." \
    }
#define AGENT_STORE_HELP \
    "       bellhop agent add ID --tenant T --substrate S [KEYS] [-- COMMAND]\n" \
    "       bellhop agent list | show ID | set ID [KEYS] [-- COMMAND] | remove ID  [--tenant T]\n"
#define AGENT_STORE_HELP_KEYS \
    "add, list, show, set and remove keep agents of /v1 in the store of the running server; an\n" \
    "agent works at once, and after a restart.  Entries of the configuration file are shown, " \
    "and\n" \
    "changed only there.  KEYS are those of agents: in the file:\n\n" \
    "  --substrate S           relay, webhook, file, pipe, exec, tmux, none, program, acp, " \
    "responses\n" \
    "                          or chat\n" \
    "  --name, --instance, --url, --wake-url, --status-url, --dir, --path, --target, --socket,\n" \
    "  --timeout, --platform, --bot, --model, --history, --permission-timeout, --login\n" \
    "  --authorization, --secret, --key   a secret; @FILE reads it from a file\n" \
    "  --session NAME[=TARGET]...  --capability C...  --open  --wake-on-deliver\n" \
    "  --progress  --merge  --shared-groups  --sessions N   with --substrate acp\n" \
    "  --unset KEY             with set: the key's default holds again\n\n"
