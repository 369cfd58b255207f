/* agent.c - bellhop agent: any program as a gateway.  Options only; src/agent/ does the work. */
#include <stdio.h>
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

struct agent_words { /* as given; NULL: not */
    const char *url, *id, *secret, *ca_file, *platform, *max, *idle, *window, *turn, *grace, *log;
    const char *state, *free;
    bool require_address, allow_bots;
};

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

static bool read_count(const struct command *c, const char *name, const char *text, size_t *ret)
{
    uint64_t v;

    if (text == NULL)
        return true;
    if (!str_to_u64(str_of(text), &v) || v == 0 || v > 10000) {
        cli_misused(c, "%s needs a number from 1 to 10000", name);
        return false;
    }
    *ret = (size_t)v;
    return true;
}

static bool read_duration(const struct command *c, const char *name, const char *text, int64_t *ret)
{
    if (text == NULL || str_to_duration_ms(str_of(text), ret))
        return true;
    cli_misused(c, "%s needs a duration such as 30s or 5m", name);
    return false;
}

static const char *or_env(const char *given, const char *name)
{
    return given != NULL ? given : getenv(name);
}

static bool read_words(const struct command *c, const struct agent_words *w,
                       struct agent_options *o)
{
    enum log_level level = LOG_WARN;

    if (w->log != NULL && !log_level_parse(str_of(w->log), &level)) {
        cli_misused(c, "--log is error, warn, info or debug");
        return false;
    }
    log_setup(level, false);
    o->url = or_env(w->url, "GATEWAY_RELAY_URL");
    o->gateway_id = or_env(w->id, "GATEWAY_RELAY_ID");
    o->secret = or_env(w->secret, "GATEWAY_RELAY_SECRET");
    o->ca_file = w->ca_file;
    if (o->url == NULL || o->gateway_id == NULL || o->secret == NULL) {
        cli_misused(c, "GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET must be set; "
                       "`bellhop gateway add` prints them");
        return false;
    }
    return read_count(c, "--max-programs", w->max, &o->max_programs) &&
           read_count(c, "--window", w->window, &o->window) &&
           read_duration(c, "--chat-idle", w->idle, &o->chat_idle_ms) &&
           read_duration(c, "--turn-timeout", w->turn, &o->turn_ms) &&
           read_duration(c, "--grace", w->grace, &o->grace_ms);
}

/* Splits "a,b" in place, for the policy of --require-address, --free and --allow-bots. */
static void read_policy(const struct agent_words *w, char *free_list, const char *scopes[MAX_FREE],
                        struct bhgw_policy *ret)
{
    char *state = NULL;

    *ret = (struct bhgw_policy){.require_address = w->require_address || w->free != NULL,
                                .allow_other_bots = w->allow_bots,
                                .free_scopes = scopes};
    for (char *p = free_list != NULL ? strtok_r(free_list, ",", &state) : NULL;
         p != NULL && ret->n_free_scopes < MAX_FREE; p = strtok_r(NULL, ",", &state))
        scopes[ret->n_free_scopes++] = p;
}

static bool has_policy(const struct agent_words *w)
{
    return w->require_address || w->allow_bots || w->free != NULL;
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

/* The file of the ids that this gateway acknowledged.  False: the directory that an option names
 * cannot be used.  Without a usable default directory the gateway keeps no file. */
static bool find_seen_file(const struct command *c, const struct agent_words *w, char **ret_path)
{
    char *dir = w->state != NULL ? xstrdup(w->state) : default_state(), why[256] = "no HOME is set";
    const char *id = or_env(w->id, "GATEWAY_RELAY_ID");
    struct buf name = BUF_INIT;
    bool usable = dir != NULL && state_dir_open(dir, why) == BH_OK;

    if (usable) {
        buf_add_z(&name, "agent-");
        file_name_add(&name, str_of(id));
        buf_add_z(&name, ".seen");
        *ret_path = state_dir_path(dir, buf_z(&name));
    } else if (w->state != NULL) {
        cli_misused(c, "--state: %s", why);
    } else {
        log_info(NULL, "what was acknowledged is not remembered across restarts: %s", why);
    }
    buf_done(&name);
    free(dir);
    return usable || w->state == NULL;
}

/* Everything after "--" belongs to the program, even if it looks like one of our options. */
static int own_words(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return i;
    return argc;
}

static int start(const struct command *c, const struct agent_words *w, struct agent_options *o)
{
    struct bhgw_identity ids[MAX_IDENTITIES];
    const char *scopes[MAX_FREE];
    struct bhgw_policy policy;
    char *seen_file = NULL;

    if (has_policy(w) && w->platform == NULL)
        return cli_misused(c, "--require-address, --free and --allow-bots are about a platform: "
                              "name it with --platform");
    if (!find_seen_file(c, w, &seen_file))
        return CLI_MISUSED;
    char *platforms = xstrdup(w->platform), *free_list = xstrdup(w->free);
    read_policy(w, free_list, scopes, &policy);
    o->policy = has_policy(w) ? &policy : NULL;
    o->seen_file = seen_file;
    o->identities = ids;
    o->n_identities = read_identities(platforms, ids);
    int rc = agent_run(o);
    o->policy = NULL;
    o->identities = NULL;
    o->seen_file = NULL;
    free(platforms);
    free(free_list);
    free(seen_file);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct agent_words w = {0};
    struct agent_options o = {.max_programs = 16,
                              .chat_idle_ms = 600000,
                              .window = 1,
                              .turn_ms = 600000,
                              .grace_ms = 30000};
    const struct cli_option options[] = {{"--url", &w.url, NULL},
                                         {"--id", &w.id, NULL},
                                         {"--secret", &w.secret, NULL},
                                         {"--ca-file", &w.ca_file, NULL},
                                         {"--platform", &w.platform, NULL},
                                         {"--per-chat", NULL, &o.per_chat},
                                         {"--max-programs", &w.max, NULL},
                                         {"--chat-idle", &w.idle, NULL},
                                         {"--window", &w.window, NULL},
                                         {"--until-done", NULL, &o.until_done},
                                         {"--ack-on-reply", NULL, &o.ack_on_reply},
                                         {"--turn-timeout", &w.turn, NULL},
                                         {"--grace", &w.grace, NULL},
                                         {"--state", &w.state, NULL},
                                         {"--require-address", NULL, &w.require_address},
                                         {"--free", &w.free, NULL},
                                         {"--allow-bots", NULL, &w.allow_bots},
                                         {"--log", &w.log, NULL},
                                         {"--no-typing", NULL, &o.no_typing},
                                         {"--quiet", NULL, &o.quiet}};
    struct cli_args a;
    int mine = own_words(argc, argv);

    if (!cli_parse(c, mine, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    if (a.n_rest > 0)
        return cli_misused(c, "put -- before the program: bellhop agent -- %s", a.rest[0]);
    if (mine + 1 >= argc)
        return cli_misused(c, "name the program to run: bellhop agent -- ./my-agent");
    o.argv = argv + mine + 1;
    return read_words(c, &w, &o) ? start(c, &w, &o) : CLI_MISUSED;
}

const struct command cmd_agent = {
    "agent",
    "run any program as an agent",
    "Usage: bellhop agent [OPTIONS] -- PROGRAM [ARGUMENTS]\n\n"
    "Connects to a connector and runs PROGRAM: each message is one JSON line on its standard "
    "input,\n"
    "each line it prints is an answer.  Its standard error is left alone; the credential is taken\n"
    "out of its environment.\n\n"
    "  --url, --id, --secret   the connector and the credential; else from the environment:\n"
    "                          GATEWAY_RELAY_URL, GATEWAY_RELAY_ID, GATEWAY_RELAY_SECRET\n"
    "  --platform NAME[=BOT],…  the identities to say hello as (relay)\n"
    "  --per-chat              one program per conversation\n"
    "  --max-programs N        with --per-chat: running at once (16)\n"
    "  --chat-idle D           with --per-chat: end a program that heard nothing for D (10m)\n"
    "  --window N              messages a program may have in hand at once (1)\n"
    "  --until-done            only {\"op\":\"done\"} ends a turn, a line of text does not\n"
    "  --ack-on-reply          acknowledge a message when it was answered, not when it was read\n"
    "  --turn-timeout D        give up a message without an answer and restart the program (10m; "
    "0:\n"
    "                          never)\n"
    "  --no-typing             do not show a turn that takes long as typing\n"
    "  --grace D               how long a turn under way may take after SIGTERM (30s)\n"
    "  --require-address       in shared chats, hear people other than the owner only when they\n"
    "                          mention the agent or answer it\n"
    "  --free CHAT,…           except in these chats\n"
    "  --allow-bots            hear other bots too\n"
    "  --state DIR             remember here what was acknowledged, so that it acts once "
    "(default:\n"
    "                          $STATE_DIRECTORY, $XDG_STATE_HOME/bellhop, "
    "~/.local/state/bellhop)\n"
    "  --ca-file FILE          trust these certificates instead of the system's\n"
    "  --log LEVEL             error, warn (the default), info or debug, on standard error\n"
    "  --quiet                 nothing on standard output\n\n"
    "Lines in:   "
    "{\"type\":\"message\",\"id\",\"session_key\",\"text\",\"message_id\",\"platform\",\"chat_id\","
    "\n"
    "             "
    "\"chat_type\",\"thread_id\",\"user_id\",\"user_name\",\"reply_to\",\"media\",\"attempt\",…}\n"
    "            {\"type\":\"interrupt\",\"session_key\",\"chat_id\"}, together with SIGINT\n"
    "            "
    "{\"type\":\"passthrough\",\"id\",\"session_key\",\"platform\",\"path\",\"body\",…}, a "
    "webhook\n"
    "Lines out:  text, or {\"op\":\"send|edit|typing|follow_up|done\",\"content\",…}\n\n"
    "SIGTERM: turns under way are finished, the connector is told to keep what arrives, exit 0.\n"
    "Exit status: 0 left in good order, 1 failed, 2 misused, 3 the connector revoked the "
    "gateway.\n",
    run,
};
