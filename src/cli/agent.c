/* agent.c - bellhop agent: any program as a gateway.  Options only; src/agent/ does the work. */
#include <stdlib.h>
#include "agent/agent.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "cli/cli.h"
#include "cli/settings.h"

#define MAX_IDENTITIES 8

#define MAX_FREE 256

/* "web=lobby,telegram": split in place. */
static size_t read_identities(char *list, struct bhgw_identity ids[MAX_IDENTITIES])
{
    size_t n = 0;
    char *state = NULL;

    for (char *p = list != NULL ? strtok_r(list, ",", &state) : NULL;
         p != NULL && n < MAX_IDENTITIES; p = strtok_r(NULL, ",", &state)) {
        char *equals = strchr(p, '=');
        if (equals != NULL)
            *equals++ = '\0';
        ids[n++] = (struct bhgw_identity){.platform = p, .bot_id = equals != NULL ? equals : ""};
    }
    return n;
}

static const char *or_env(struct cli_job *j, const char *option, const char *name)
{
    const char *given = cli_value(j, option);

    return given != NULL ? given : getenv(name);
}

/* Splits "a,b" in place, for the policy of --require-address, --free and --allow-bots. */
static void read_policy(struct cli_job *j, char *free_list, const char *scopes[MAX_FREE],
                        struct bhgw_policy *ret)
{
    char *state = NULL;

    *ret = (struct bhgw_policy){.require_address =
                                    cli_flag(j, "--require-address") || free_list != NULL,
                                .allow_other_bots = cli_flag(j, "--allow-bots"),
                                .free_scopes = scopes};
    for (char *p = free_list != NULL ? strtok_r(free_list, ",", &state) : NULL;
         p != NULL && ret->n_free_scopes < MAX_FREE; p = strtok_r(NULL, ",", &state))
        scopes[ret->n_free_scopes++] = p;
}

/* The default directory for acknowledged ids: systemd's state directory, else the desktop's (XDG).
 * NULL: neither is set. */
static char *default_state(void)
{
    const char *dir = getenv("STATE_DIRECTORY"), *home = getenv("HOME");

    if (dir != NULL && dir[0] == '/')
        return str_dup(str_make(dir, strcspn(dir, ":")));
    dir = getenv("XDG_STATE_HOME");
    if (dir != NULL && dir[0] == '/')
        return state_dir_path(dir, "bellhop");
    return home != NULL && home[0] == '/' ? state_dir_path(home, ".local/state/bellhop") : NULL;
}

/* The file of the ids that this gateway acknowledged.  False: the directory that --state names
 * cannot be used.  Without a usable default directory the gateway keeps no file. */
static bool find_seen_file(struct cli_job *j, const char *id, char **ret_path)
{
    const char *named = cli_value(j, "--state");
    char *dir = named != NULL ? xstrdup(named) : default_state(), why[256] = "HOME is not set";
    struct buf name = BUF_INIT;
    bool usable = dir != NULL && state_dir_open(dir, why) == BH_OK;

    if (usable) {
        buf_add_z(&name, "agent-");
        file_name_add(&name, str_of(id));
        buf_add_z(&name, ".seen");
        *ret_path = state_dir_path(dir, buf_z(&name));
    } else if (named != NULL) {
        cli_misused(j, "--state: %s", why);
    } else {
        log_info(NULL, "acknowledged messages are not remembered across restarts: %s", why);
    }
    buf_done(&name);
    free(dir);
    return usable || named == NULL;
}

static int run(struct cli_job *j)
{
    bool has_policy = cli_flag(j, "--require-address") || cli_flag(j, "--allow-bots") ||
                      cli_value(j, "--free") != NULL;
    struct agent_options o = {.url = or_env(j, "--url", "GATEWAY_RELAY_URL"),
                              .gateway_id = or_env(j, "--id", "GATEWAY_RELAY_ID"),
                              .secret = or_env(j, "--secret", "GATEWAY_RELAY_SECRET"),
                              .ca_file = cli_value(j, "--ca-file"),
                              .argv = j->program,
                              .per_chat = cli_flag(j, "--per-chat"),
                              .max_programs = (size_t)cli_number(j, "--max-programs", 16),
                              .chat_idle_ms = cli_number(j, "--chat-idle", 600000),
                              .window = (size_t)cli_number(j, "--window", 1),
                              .until_done = cli_flag(j, "--until-done"),
                              .ack_on_reply = cli_flag(j, "--ack-on-reply"),
                              .turn_ms = cli_number(j, "--turn-timeout", 600000),
                              .grace_ms = cli_number(j, "--grace", 30000),
                              .no_typing = cli_flag(j, "--no-typing"),
                              .quiet = cli_flag(j, "--quiet")};
    const char *log = cli_value(j, "--log"), *scopes[MAX_FREE];
    struct bhgw_identity ids[MAX_IDENTITIES];
    struct bhgw_policy policy;
    enum log_level level = LOG_WARN;
    char *seen_file = NULL;

    if (j->program == NULL || j->program[0] == NULL)
        return cli_misused(j, "name the program to run: bellhop agent -- ./my-agent");
    if (log != NULL)
        log_level_parse(str_of(log), &level);
    log_setup(level, false);
    if (o.url == NULL || o.gateway_id == NULL || o.secret == NULL)
        return cli_misused(j, "GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET must "
                              "be set; `bellhop gateway add` prints them");
    if (has_policy && cli_value(j, "--platform") == NULL)
        return cli_misused(j, "--require-address, --free and --allow-bots need --platform");
    if (!find_seen_file(j, o.gateway_id, &seen_file))
        return CLI_MISUSED;
    char *platforms = xstrdup(cli_value(j, "--platform")),
         *places = xstrdup(cli_value(j, "--free"));
    read_policy(j, places, scopes, &policy);
    o.policy = has_policy ? &policy : NULL;
    o.seen_file = seen_file;
    o.identities = ids;
    o.n_identities = read_identities(platforms, ids);
    int rc = agent_run(&o);
    free(platforms);
    free(places);
    free(seen_file);
    return rc;
}

static const struct cli_option options[] = {
    {"--url"},
    {"--id"},
    {"--secret"},
    {"--ca-file"},
    {"--platform"},
    {"--per-chat", .kind = CLI_FLAG},
    {"--max-programs", .kind = CLI_NUMBER},
    {"--chat-idle", .kind = CLI_DURATION},
    {"--window", .kind = CLI_NUMBER},
    {"--until-done", .kind = CLI_FLAG},
    {"--ack-on-reply", .kind = CLI_FLAG},
    {"--turn-timeout", .kind = CLI_DURATION},
    {"--grace", .kind = CLI_DURATION},
    {"--state"},
    {"--require-address", .kind = CLI_FLAG},
    {"--free"},
    {"--allow-bots", .kind = CLI_FLAG},
    {"--log", .one_of = "error|warn|info|debug"},
    {"--no-typing", .kind = CLI_FLAG},
    {"--quiet", .kind = CLI_FLAG},
    {0},
};

const struct command cmd_agent = {
    .name = "agent",
    .summary = "run any program as an agent",
    .help =
        "Usage: bellhop agent [OPTIONS] -- PROGRAM [ARGUMENTS]\n\n"
        "Connects to a connector and runs PROGRAM: each message is one JSON line on its\n"
        "standard input, each line it prints is an answer.  Its standard error stays as it is;\n"
        "the credential is removed from its environment.\n\n"
        "  --url, --id, --secret   the connector and the credential; by default\n"
        "                          GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET\n"
        "                          of the environment\n"
        "  --platform NAME[=BOT],...  the identities to connect as (relay)\n"
        "  --per-chat              one program per conversation\n"
        "  --max-programs N        with --per-chat: programs running at once (16)\n"
        "  --chat-idle D           with --per-chat: end a program that got no message for D\n"
        "                          (10m)\n"
        "  --window N              messages that a program may work on at once (1)\n"
        "  --until-done            only {\"op\":\"done\"} ends a turn, a line of text does not\n"
        "  --ack-on-reply          acknowledge a message when it is answered, not when it is\n"
        "                          read\n"
        "  --turn-timeout D        after D without an answer, drop the message and restart the\n"
        "                          program (10m; 0: never)\n"
        "  --no-typing             show no typing indicator during long turns\n"
        "  --grace D               time for unfinished turns after SIGTERM (30s)\n"
        "  --require-address       in shared chats, hear people other than the owner only when\n"
        "                          they mention the agent or reply to it\n"
        "  --free CHAT,...         chats where --require-address does not apply\n"
        "  --allow-bots            also hear other bots\n"
        "  --state DIR             remember acknowledged messages here, so that none is handled\n"
        "                          twice (default: $STATE_DIRECTORY, $XDG_STATE_HOME/bellhop,\n"
        "                          ~/.local/state/bellhop)\n"
        "  --ca-file FILE          trust these certificates instead of the system's\n"
        "  --log LEVEL             error, warn (the default), info or debug, on standard error\n"
        "  --quiet                 print nothing on standard output\n\n"
        "Lines in:   {\"type\":\"message\",\"id\",\"session_key\",\"text\",\"message_id\",\n"
        "             \"platform\",\"chat_id\",\"chat_type\",\"thread_id\",\"user_id\",\n"
        "             \"user_name\",\"reply_to\",\"media\",\"attempt\",...}\n"
        "            {\"type\":\"interrupt\",\"session_key\",\"chat_id\"}, together with SIGINT\n"
        "            {\"type\":\"passthrough\",\"id\",\"session_key\",\"platform\",\"path\",\n"
        "             \"body\",...}, a webhook\n"
        "Lines out:  text, or {\"op\":\"send|edit|typing|follow_up|done\",\"content\",...}\n\n"
        "SIGTERM: the agent finishes its turns, tells the connector to keep new messages, and\n"
        "exits with 0.  Exit status: 0 clean exit, 1 failed, 2 misused, 3 the connector revoked\n"
        "the gateway.\n",
    .verbs = (const struct cli_verb[]){{"", .run = run}, {0}},
    .options = options,
    .program = true,
};
