/* agent.c - bellhop agent: any program as a gateway.  Options only; src/agent/ does the work. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "agent/agent.h"
#include "agent/backend.h"
#include "base/agent_state.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "bellhop/gateway.h"
#include "cli/agents.h"
#include "cli/demo.h"
#include "cli/settings.h"
#include "net/program.h"

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

static char *state_file(const char *dir, const char *id, const char *suffix)
{
    struct buf path = BUF_INIT;

    agent_state_path(&path, dir, str_of(id), suffix);
    return buf_take(&path);
}

/* The files of the ids that this gateway acknowledged, and of the agent's sessions.  False: the
 * directory that --state names cannot be used.  Without a usable default directory the gateway
 * keeps no files. */
static bool find_state(struct cli_job *j, const char *named, const char *id, char **ret_seen,
                       char **ret_sessions)
{
    char *dir = named != NULL ? xstrdup(named) : default_state(), why[256] = "HOME is not set";
    bool usable = dir != NULL && state_dir_open(dir, why) == BH_OK;

    if (usable) {
        *ret_seen = state_file(dir, id, AGENT_SEEN);
        *ret_sessions = state_file(dir, id, AGENT_SESSIONS);
    } else if (named != NULL) {
        cli_misused(j, "--state: %s", why);
    } else {
        log_info(NULL, "acknowledged messages are not remembered across restarts: %s", why);
    }
    free(dir);
    return usable || named == NULL;
}

/* The base of the model's interface; NULL: the agent is a program. */
static const char *model_url(struct cli_job *j)
{
    const char *chat = cli_value(j, "--chat");

    return chat != NULL ? chat : cli_value(j, "--responses");
}

/* A sentence about the options of models; NULL: they fit. */
static const char *misplaced_model(struct cli_job *j)
{
    const char *url = model_url(j), *history = cli_value(j, "--history");
    struct str u = str_of(url);
    uint64_t n;
    int64_t ms;

    if (url == NULL)
        return NULL;
    if (cli_flag(j, "--acp") || (cli_value(j, "--chat") != NULL && cli_value(j, "--responses")))
        return "--acp, --responses and --chat exclude each other";
    if (!str_starts(u, STR("http://")) && !str_starts(u, STR("https://")))
        return "the address of a model starts with http:// or https://, and ends before "
               "/responses or /chat/completions";
    if (cli_value(j, "--model") == NULL)
        return "--model names the model";
    if (history != NULL && (!str_to_u64(str_of(history), &n) || n > 1000))
        return "--history is a number up to 1000";
    if (cli_value(j, "--timeout") != NULL &&
        (!str_to_duration_ms(str_of(cli_value(j, "--timeout")), &ms) || ms < 1000))
        return "--timeout is a time of at least 1s, such as 120s";
    return NULL;
}

/* Fills what @o says about the model.  @key takes its key.  False: the key cannot be read. */
static bool read_model(struct cli_job *j, struct agent_options *o, struct buf *key)
{
    const char *given = or_env(j, "--key", "BELLHOP_MODEL_KEY");
    const char *history = cli_value(j, "--history"), *timeout = cli_value(j, "--timeout");
    uint64_t n = 20;
    int64_t ms = 120000;

    o->model_url = model_url(j);
    if (o->model_url == NULL)
        return true;
    o->backend = cli_value(j, "--chat") != NULL ? &chat_backend : &responses_backend;
    o->argv = NULL;
    o->model = cli_value(j, "--model");
    o->model_ca = cli_value(j, "--model-ca-file");
    if (given != NULL && given[0] == '@') {
        if (!file_read(given + 1, 65536, key))
            return false;
        struct str line = str_trim(buf_str(key));
        buf_consume(key, (size_t)(line.p - key->p));
        key->n = line.n;
    } else if (given != NULL) {
        buf_add_z(key, given);
    }
    o->model_key = key->n > 0 ? buf_z(key) : NULL;
    if (history != NULL)
        str_to_u64(str_of(history), &n);
    if (timeout != NULL)
        str_to_duration_ms(str_of(timeout), &ms);
    o->history = (size_t)n;
    o->turn_ms = ms;
    return true;
}

/* A sentence about an option that does not fit the others; NULL: all fit. */
static const char *misplaced(struct cli_job *j)
{
    static const char *const turns_only[] = {"--shared-groups", "--merge", "--progress", NULL};
    static const char *const lines_only[] = {"--per-chat", "--until-done", "--ack-on-reply", NULL};
    bool acp = cli_flag(j, "--acp"), model = model_url(j) != NULL;

    for (const char *const *o = acp || model ? lines_only : turns_only; *o != NULL; o++)
        if (cli_flag(j, *o))
            return acp || model
                       ? "--per-chat, --until-done, --ack-on-reply and --window are for programs "
                         "that read lines; with --acp see --sessions"
                       : "--shared-groups, --merge, --progress, --sessions and "
                         "--permission-timeout need --acp";
    if ((acp || model) && cli_value(j, "--window") != NULL)
        return "--window is for programs that read lines";
    if (!acp &&
        (cli_value(j, "--sessions") != NULL || cli_value(j, "--permission-timeout") != NULL))
        return "--sessions and --permission-timeout need --acp";
    if (model && cli_value(j, "--dir") != NULL)
        return "--dir is where a program runs; --responses and --chat run none";
    if (cli_number(j, "--sessions", 16) < 1 || cli_number(j, "--max-programs", 16) < 1)
        return "--sessions and --max-programs must be at least 1";
    if (cli_value(j, "--platform") == NULL && !cli_flag(j, "--demo") &&
        (cli_flag(j, "--require-address") || cli_flag(j, "--allow-bots") ||
         cli_value(j, "--free") != NULL))
        return "--require-address, --free and --allow-bots need --platform";
    if (cli_number(j, "--permission-timeout", 300000) < 1000)
        return "--permission-timeout must be at least 1s";
    return NULL;
}

/* The path as it is from every directory; the caller frees it.  NULL stays NULL. */
static char *absolute(const char *path)
{
    char here[PATH_MAX];
    BUF_LOCAL b = BUF_INIT;

    if (path == NULL || path[0] == '/' || getcwd(here, sizeof here) == NULL)
        return path != NULL ? xstrdup(path) : NULL;
    buf_printf(&b, "%s/%s", here, path);
    return str_dup(buf_str(&b));
}

/* Goes to the directory that the agent works in; the files of @o stay where they are, and
 * @ret_files are to be freed.  False: it is none. */
static bool go_to(struct cli_job *j, struct agent_options *o, char *ret_files[3])
{
    const char *dir = cli_value(j, "--dir");
    const char **files[] = {&o->seen_file, &o->sessions_file, &o->ca_file};

    if (dir == NULL)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        *files[i] = ret_files[i] = absolute(*files[i]);
    if (o->argv != NULL && o->argv[0] != NULL && strchr(o->argv[0], '/') != NULL)
        o->argv[0] = absolute(o->argv[0]); /* stays until the process ends */
    return chdir(dir) == 0;
}

/* Runs the agent; @demo NULL: the credential comes from the options or the environment. */
static int run_with(struct cli_job *j, const struct demo *demo)
{
    bool has_policy = cli_flag(j, "--require-address") || cli_flag(j, "--allow-bots") ||
                      cli_value(j, "--free") != NULL;
    struct agent_options o = {.url = or_env(j, "--url", "GATEWAY_RELAY_URL"),
                              .gateway_id = or_env(j, "--id", "GATEWAY_RELAY_ID"),
                              .secret = or_env(j, "--secret", "GATEWAY_RELAY_SECRET"),
                              .ca_file = cli_value(j, "--ca-file"),
                              .backend = cli_flag(j, "--acp") ? &acp_backend : &lines_backend,
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
                              .quiet = cli_flag(j, "--quiet"),
                              .sessions = (size_t)cli_number(j, "--sessions", 16),
                              .login = cli_value(j, "--login"),
                              .shared_groups = cli_flag(j, "--shared-groups"),
                              .merge = cli_flag(j, "--merge"),
                              .progress = cli_flag(j, "--progress"),
                              .permission_ms = cli_number(j, "--permission-timeout", 300000)};
    const char *scopes[MAX_FREE], *state = cli_value(j, "--state"),
                                  *platform = cli_value(j, "--platform");
    BUF_SECRET key = BUF_INIT;
    struct bhgw_identity ids[MAX_IDENTITIES];
    struct bhgw_policy policy;
    char *seen_file = NULL, *sessions_file = NULL;

    if (demo != NULL) {
        o.url = demo->url;
        o.gateway_id = demo->id;
        o.secret = demo->secret;
        state = state != NULL ? state : demo->dir;
        platform = platform != NULL ? platform : "web=lobby";
    }
    if (o.url == NULL || o.gateway_id == NULL || o.secret == NULL)
        return cli_misused(j, "GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET must "
                              "be set; `bellhop gateway add` prints them.  --demo needs none of "
                              "them");
    if (!find_state(j, state, o.gateway_id, &seen_file, &sessions_file))
        return CLI_MISUSED;
    if (!read_model(j, &o, &key)) {
        free(seen_file);
        free(sessions_file);
        return cli_misused(j, "--key: the file cannot be read");
    }
    char *platforms = xstrdup(platform), *places = xstrdup(cli_value(j, "--free"));
    read_policy(j, places, scopes, &policy);
    o.policy = has_policy ? &policy : NULL;
    o.seen_file = seen_file;
    o.sessions_file = sessions_file;
    o.identities = ids;
    o.n_identities = read_identities(platforms, ids);
    char *files[3] = {NULL};
    int rc = go_to(j, &o, files)
                 ? agent_run(&o)
                 : cli_failed("--dir: %s: %s", cli_value(j, "--dir"), strerror(errno));
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        free(files[i]);
    free(platforms);
    free(places);
    free(seen_file);
    free(sessions_file);
    return rc;
}

static int run(struct cli_job *j)
{
    const char *log = cli_value(j, "--log"), *wrong = misplaced(j);
    enum log_level level = LOG_WARN;
    struct demo demo;
    char why[256];
    int rc = CLI_FAILED;

    const char *program = j->program != NULL ? j->program[0] : NULL;
    if (model_url(j) == NULL && program == NULL)
        return cli_misused(j, "name the program to run: bellhop agent -- ./my-agent");
    if (model_url(j) != NULL && program != NULL)
        return cli_misused(j, "--responses and --chat run no program");
    if (wrong == NULL)
        wrong = misplaced_model(j);
    if (wrong != NULL)
        return cli_misused(j, "%s", wrong);
    if (log != NULL)
        log_level_parse(str_of(log), &level);
    log_setup(level, false);
    if (program != NULL && !program_exists(program))
        return cli_failed("there is no program \"%s\": install it, or give its path%s", program,
                          strcmp(program, "npx") == 0 ? " (npx comes with Node)" : "");
    if (!cli_flag(j, "--demo"))
        return run_with(j, NULL);
    if (demo_begin(&demo, why)) {
        printf("Open %s/chat and write to your agent.\n"
               "Send /link %s there to decide what the agent may do.\n",
               demo.url, demo.link);
        fflush(stdout);
        rc = run_with(j, &demo);
    } else {
        cli_failed("%s", why);
    }
    demo_end(&demo);
    return rc;
}

static const struct cli_option options[] = {
    {"--url"},
    {"--id"},
    {"--secret"},
    {"--ca-file"},
    {"--platform"},
    {"--demo", .kind = CLI_FLAG},
    {"--acp", .kind = CLI_FLAG},
    {"--responses"},
    {"--chat"},
    {"--model-ca-file"},
    {"--sessions", .kind = CLI_NUMBER},
    {"--login"},
    {"--shared-groups", .kind = CLI_FLAG},
    {"--merge", .kind = CLI_FLAG},
    {"--progress", .kind = CLI_FLAG},
    {"--permission-timeout", .kind = CLI_DURATION},
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
    AGENT_STORE_OPTIONS,
    {"--no-typing", .kind = CLI_FLAG},
    {"--quiet", .kind = CLI_FLAG},
    {0},
};

const struct command cmd_agent = {
    .name = "agent",
    .summary = "run any program as an agent; add, list, change and remove agents",
    .help =
        "Usage: bellhop agent [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
        "       bellhop agent --acp [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
        "       bellhop agent --responses URL | --chat URL --model NAME "
        "[OPTIONS]\n" AGENT_STORE_HELP "\n"
        "Connects to a connector and runs PROGRAM: each message is one JSON line on its\n"
        "standard input, each line it prints is an answer.  Its standard error stays as it is;\n"
        "the credential is removed from its environment.\n\n"
        "  --url, --id, --secret   the connector and the credential; by default\n"
        "                          GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET\n"
        "                          of the environment\n"
        "  --platform NAME[=BOT],...  the identities to connect as (relay)\n"
        "  --dir DIR               where PROGRAM runs and, with --acp, its sessions work; by\n"
        "                          default the directory of bellhop agent\n"
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
        "  --acp                   PROGRAM speaks the Agent Client Protocol (Claude Code, Codex,\n"
        "                          Gemini, ...): a conversation is a session, a message a prompt\n"
        "  --sessions N            with --acp: sessions of one program (16; 1: a program each)\n"
        "  --login METHOD          with --acp: log in the way of this id, of those that the agent\n"
        "                          names in the log (a key in the environment, say)\n"
        "  --shared-groups         with --acp: one session for all people of a group\n"
        "  --merge                 with --acp: messages that came during a turn are one prompt\n"
        "  --progress              with --acp: show tool calls and plans in a short line\n"
        "  --permission-timeout D  with --acp: how long owners may decide; then it is no (5m)\n"
        "  --responses URL         no program, but a model: URL/responses (OpenAI, OpenClaw, "
        "...),\n"
        "                          which keeps the conversation itself\n"
        "  --chat URL              the same with URL/chat/completions (llama.cpp, Ollama, vLLM,\n"
        "                          ...): bellhop keeps the conversation\n"
        "  --model NAME            the model's name there\n"
        "  --key KEY, --key @FILE  its bearer key (default: BELLHOP_MODEL_KEY)\n"
        "  --history N             with --chat: earlier messages that the model gets (20)\n"
        "  --timeout D             how long a model may say nothing (120s)\n"
        "  --model-ca-file FILE    trust these certificates of the model's server\n"
        "  --demo                  also run a connector with a chat page, for as long as the "
        "agent\n"
        "                          runs: nothing else is needed, nothing is kept\n"
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
        "  --quiet                 print nothing on standard output\n\n" AGENT_STORE_HELP_KEYS
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
    .verbs = (const struct cli_verb[]){{"", .run = run}, AGENT_STORE_VERBS, {0}},
    .options = options,
    .program = true,
};
