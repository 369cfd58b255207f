/* hosted.c - the substrates of agents that bellhop runs itself (dispatch/hosted.h): a program
 * that reads lines, an agent of the Agent Client Protocol, and models behind an HTTP interface.
 * The relay brings their mail. */
#include <string.h>
#include "base/str.h"
#include "dispatch/agent.h"
#include "dispatch/substrate.h"

#define AT(member) offsetof(struct agent_settings, member)

#define REACHED \
    {"instance", CFG_TEXT, CFG_RELOAD, AT(instance), \
     .what = "The instance that the agent is; the default is its id."}, \
        {"platform", CFG_TEXT, CFG_RELOAD, AT(platform), \
         .what = "With `bot`: people reach the agent through this bot, as they would a gateway " \
                 "that was added for it. Without it, only `/v1` reaches it."}, \
        {"bot", CFG_TEXT, CFG_RELOAD, AT(bot), .what = "The bot of `platform`."}, \
    { \
        "open", CFG_BOOL, CFG_RELOAD, AT(open), "false", \
            .what = "Everybody who writes to the bot reaches the agent; else people link " \
                    "themselves with a code of `bellhop link`." \
    }
#define MODEL \
    {"url", \
     CFG_TEXT, \
     CFG_RELOAD, \
     AT(url), \
     .required = true, \
     .what = "The base of the interface, such as `http://127.0.0.1:8080/v1`."}, \
        {"model",   CFG_TEXT,         CFG_RELOAD, \
         AT(model), .required = true, .what = "The model's name there."}, \
        {"key", CFG_SECRET, CFG_RELOAD, AT(key), .what = "The bearer key of the interface."}, \
    { \
        "timeout", CFG_DURATION, CFG_RELOAD, AT(timeout_ms), "120s", \
            .min = 1000, .max = 3600000, .what = "How long the model may say nothing." \
    }
#define RUNS \
    {"command", \
     CFG_TEXTS, \
     CFG_RELOAD, \
     AT(command), \
     .required = true, \
     .words = true, \
     .what = "The program and its arguments, `[program, argument]`, or one text that is " \
             "split like a shell command; no shell runs."}, \
        {"dir", CFG_TEXT, CFG_RELOAD, AT(dir), \
         .what = "The directory that the program runs in; the default is that of the server."}, \
    { \
        "timeout", CFG_DURATION, CFG_RELOAD, AT(timeout_ms), "10m", \
            .min = 1000, .max = 86400000, .what = "How long the agent may take for one message." \
    }

static bool check(void *settings, char *ret_why)
{
    const struct agent_settings *s = settings;

    if ((s->platform == NULL) != (s->bot == NULL))
        return bh_why(ret_why, "platform and bot go together");
    if (s->open && s->bot == NULL)
        return bh_why(ret_why, "open: needs platform and bot");
    if (s->url != NULL && !str_starts(str_of(s->url), STR("http://")) &&
        !str_starts(str_of(s->url), STR("https://")))
        return bh_why(ret_why, "url starts with http:// or https://");
    return true;
}

#define HOSTED_SUBSTRATE(called, table) \
    { \
        .name = called, \
        .config = &(const struct config_section){.keys = (table), \
                                                 .size = sizeof(struct agent_settings), \
                                                 .check = check, \
                                                 .name = called}, \
        .can = SUBSTRATE_RINGS | SUBSTRATE_ANSWERS | SUBSTRATE_RELAYED | SUBSTRATE_HOSTED \
    }

static const struct config_key program_keys[] = {RUNS, REACHED, {0}};
static const struct config_key acp_keys[] = {
    RUNS,
    {"progress", CFG_BOOL, CFG_RELOAD, AT(progress), "false",
     .what = "Show tool calls and plans in a short line below the text."},
    {"merge", CFG_BOOL, CFG_RELOAD, AT(merge), "false",
     .what = "Messages that came during a turn are one prompt."},
    {"shared_groups", CFG_BOOL, CFG_RELOAD, AT(shared_groups), "false",
     .what = "One session for all people of a group; else each person has one."},
    {"process_sessions", CFG_NUMBER, CFG_RELOAD, AT(process_sessions), "16", .min = 1, .max = 1000,
     .what = "How many sessions one process of the agent holds; with 1, each has its own."},
    {"permission_timeout", CFG_DURATION, CFG_RELOAD, AT(permission_ms), "5m", .min = 1000,
     .max = 86400000, .what = "How long owners may decide what the agent asks; then it is no."},
    {"login", CFG_TEXT, CFG_RELOAD, AT(login),
     .what = "Log in the way of this id, of those that the agent offers."},
    REACHED,
    {0},
};
static const struct config_key model_keys[] = {MODEL, REACHED, {0}};
static const struct config_key chat_keys[] = {
    MODEL,
    {"history", CFG_NUMBER, CFG_RELOAD, AT(history), "20", .max = 1000,
     .what = "How many messages of the conversation the model gets."},
    REACHED,
    {0},
};

const struct substrate_ops substrate_lines = HOSTED_SUBSTRATE("program", program_keys);
const struct substrate_ops substrate_acp = HOSTED_SUBSTRATE("acp", acp_keys);
const struct substrate_ops substrate_responses = HOSTED_SUBSTRATE("responses", model_keys);
const struct substrate_ops substrate_chat = HOSTED_SUBSTRATE("chat", chat_keys);
