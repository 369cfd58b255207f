/* setup_agent.c - the second step of `bellhop setup`: who answers.  (setup.h is the map.)
 *
 * An agent that bellhop runs itself is an entry of `agents:`.  A Hermes gateway runs elsewhere, and
 * gets its credential once a server runs: setup_try.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/setup.h"
#include "dispatch/agent.h"
#include "dispatch/dispatch.h"
#include "net/http_client.h"

/* The line program behind `--agent demo`. */
#define DEMO \
    "while read -r line; do case $line in *'\"type\":\"message\"'*) echo \"Hello! This is the " \
    "demo agent of bellhop. Your message has arrived, and this is the answer.\";; esac; done"

enum { CHECK_MS = 5000 };

static const struct {
    const char *name, *what;
} kinds[] = {
    {"demo", "a built-in answer, to see that everything works"},
    {"program", "any command of yours: it reads a line, it prints a line"},
    {"acp", "an agent that speaks ACP: Claude Code, Codex, Gemini, Goose, ..."},
    {"model", "a model behind an OpenAI-style server: Ollama, llama.cpp, vLLM, ..."},
    {"hermes", "a Hermes gateway"},
    {"none", "nobody, or who answers already"},
};

/* The agent of this bot that is configured so far; NULL: none.  *@ret_ours: setup wrote it. */
static const struct agent_settings *find_agent(const struct setup *s, const char *own,
                                               bool *ret_ours, const char **ret_file)
{
    for (size_t i = 0; i < config_count(s->cfg, &agents_config); i++) {
        const struct agent_settings *a = config_entry(s->cfg, &agents_config, i);
        if (!str_eq(str_of(a->platform), str_of(s->ops->name)) ||
            !str_eq(str_of(a->bot), str_of(s->bot)))
            continue;
        *ret_file = config_entry_file(s->cfg, &agents_config, i);
        *ret_ours = strcmp(*ret_file, own) == 0;
        return a;
    }
    return NULL;
}

static bool choose_agent(struct setup *s, const struct agent_settings *old, char **ret)
{
    BUF_LOCAL words = BUF_INIT, menu = BUF_INIT;
    const char *otherwise = old != NULL ? "none" : s->t.asks ? "demo" : "none";

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        buf_printf(&menu, "\n  %zu  %-9s %s", i + 1, kinds[i].name, kinds[i].what);
        buf_printf(&words, "%s%s", i > 0 ? " " : "", kinds[i].name);
    }
    if (s->t.asks && cli_value(s->j, "--agent") == NULL)
        terminal_say("\nWho answers%s?%s",
                     old != NULL ? " (there is an agent already; \"none\" keeps it)" : "",
                     buf_z(&menu));
    return setup_choose(s, "--agent", "Number or name", buf_z(&words), otherwise, ret);
}

/* Platform and bot as one word that an instance can be called by. */
static char *make_id(const struct setup *s)
{
    struct buf out = BUF_INIT;

    buf_printf(&out, "%s-%.64s", s->ops->name, s->bot);
    for (size_t i = 0; i < out.n; i++)
        if (!str_has_only(str_make(out.p + i, 1), "-_."))
            out.p[i] = '-';
    return buf_take(&out);
}

static bool ask_who(struct setup *s)
{
    char *who = NULL;

    if (s->ops->open_by_nature) {
        s->open = true;
        return true;
    }
    if (s->t.asks && cli_value(s->j, "--who") == NULL)
        terminal_say(
            "\nWho may write to the agent?\n"
            "  1  linked     only people that you link, by a code that they send to the bot\n"
            "  2  everybody  everybody who can write to the bot");
    if (!setup_choose(s, "--who", "Number or name", "linked everybody", "linked", &who))
        return false;
    s->open = strcmp(who, "everybody") == 0;
    free(who);
    return true;
}

/* ---- the kinds ---- */

static bool ask_command(struct setup *s, bool acp, struct buf *entry)
{
    char *command = NULL;

    if (s->t.asks && cli_value(s->j, "--command") == NULL)
        terminal_say(
            acp ? "The command that starts the agent. Log in to it once in a terminal before."
                : "The command that bellhop runs. It gets a JSON line for each message, and "
                  "prints its answers: docs/agents.md.");
    if (!setup_ask(s, "--command", "command",
                   acp ? "npx @agentclientprotocol/claude-agent-acp" : NULL, &command))
        return false;
    if (command == NULL)
        return setup_stop(s,
                          "an agent of this kind needs a command (--command). Nothing was changed");
    buf_printf(entry, "    substrate: %s\n    command: ", acp ? "acp" : "program");
    setup_scalar(entry, str_of(command));
    buf_add_c(entry, '\n');
    free(command);
    return true;
}

/* Tells whether the server of models answers, and whether it has the model. */
static void look_at_model(const char *url, const char *model, struct str key)
{
    struct json_parser *parser = json_parser_new();
    BUF_LOCAL at = BUF_INIT, names = BUF_INIT;
    BUF_SECRET auth = BUF_INIT;
    struct json doc = {0};
    char why[256] = "";
    bool found = false;
    int status = 0;

    buf_printf(&at, "%s/models", url);
    buf_printf(&auth, "Authorization: Bearer %.*s", STR_FMT(key));
    const char *const headers[] = {buf_z(&auth), NULL};
    const struct http_fetch f = {.url = buf_z(&at),
                                 .headers = key.n > 0 ? headers : NULL,
                                 .timeout_ms = CHECK_MS};
    enum bh_err err = platform_ask(&f, parser, &status, &doc, why);
    for (struct json_iter it = {0}; json_next(json_get(doc, "data"), &it);) {
        struct str id = json_str(it.value, "id");
        found |= str_eq(id, str_of(model));
        if (names.n < 400)
            buf_printf(&names, "%s%.*s", names.n > 0 ? ", " : "", STR_FMT(id));
    }
    if (err != BH_OK)
        terminal_say("  Not right yet: %s does not answer (%s). Start the server of the model.",
                     url, why);
    else if (status == 401 || status == 403)
        terminal_say("  Not right yet: the server refuses the key (%d).", status);
    else if (!found && names.n > 0)
        terminal_say("  Not right yet: the server has no model \"%s\". It has: %s", model,
                     buf_z(&names));
    else if (found)
        terminal_say("  The server answers, and has the model.");
    json_parser_free(parser);
}

static bool ask_model(struct setup *s, struct buf *entry)
{
    char *url = NULL, *model = NULL, *path = NULL;
    const char *file = cli_value(s->j, "--key-file");
    BUF_SECRET key = BUF_INIT;
    bool ok = false;

    if (s->t.asks && cli_value(s->j, "--url") == NULL)
        terminal_say("The address of the server, and the model's name there.");
    if (!setup_ask(s, "--url", "url", "http://127.0.0.1:11434/v1", &url) ||
        !setup_ask(s, "--model", "model", NULL, &model))
        goto out;
    if (model == NULL) {
        setup_stop(s, "which model? (--model) Nothing was changed");
        goto out;
    }
    if (file != NULL && !file_read(file, 8192, &key)) {
        setup_stop(s, "cannot read %s. Nothing was changed", file);
        goto out;
    }
    if (file == NULL && !terminal_ask_secret(&s->t, "key, if the server wants one", false, &key))
        goto out;
    look_at_model(url, model, str_trim(buf_str(&key)));
    buf_add_z(entry, "    substrate: chat\n    url: ");
    setup_scalar(entry, str_of(url));
    buf_add_z(entry, "\n    model: ");
    setup_scalar(entry, str_of(model));
    buf_add_c(entry, '\n');
    if (key.n > 0) {
        path = setup_path(s, "secrets", s->ops->name, s->bot, "agent-", ".key");
        fileset_add(&s->files, path, str_trim(buf_str(&key)), 0600);
        buf_printf(entry, "    key_file: ../secrets/%s\n", strrchr(path, '/') + 1);
    }
    ok = true;
out:
    free(url);
    free(model);
    free(path);
    return ok;
}

/* The .env of a Hermes gateway on this machine; NULL: there is none.  The caller frees. */
static char *find_env(void)
{
    const char *own = getenv("HERMES_HOME"), *home = getenv("HOME");
    struct buf path = BUF_INIT;

    if (own != NULL && *own != '\0')
        buf_printf(&path, "%s/.env", own);
    else
        buf_printf(&path, "%s/.hermes/.env", home != NULL ? home : "");
    if (access(buf_z(&path), F_OK) == 0)
        return buf_take(&path);
    buf_done(&path);
    return NULL;
}

static bool ask_hermes(struct setup *s, struct buf *entry)
{
    char *found = find_env();
    bool ok;

    if (s->t.asks && cli_value(s->j, "--env-file") == NULL)
        terminal_say(found != NULL
                         ? "The gateway's .env gets three lines; the rest of it stays."
                         : "There is no ~/.hermes/.env here. Name the gateway's .env, or press "
                           "Enter: then the three lines for it are printed.");
    ok = setup_ask(s, "--env-file", ".env", found, &s->env_file);
    free(found);
    if (ok && s->env_file != NULL && access(s->env_file, R_OK | W_OK) != 0)
        return setup_stop(s, "%s cannot be read and written. Nothing was changed", s->env_file);
    s->who = SETUP_HERMES;
    buf_reset(entry); /* bellhop itself runs no agent for this bot */
    return ok;
}

static void draft_agent(struct setup *s, const char *path, struct buf *entry, bool hosted)
{
    BUF_LOCAL text = BUF_INIT;

    buf_add_z(&text, "# Written by `bellhop setup`, which changes this file if you ask it to.\n");
    if (!hosted) {
        buf_add_z(&text, "# A gateway outside of bellhop answers for this bot.\n");
    } else {
        buf_printf(&text,
                   "# docs/agents.md has the keys of an agent.\nagents:\n  - id: %s\n    tenant: ",
                   s->instance);
        setup_scalar(&text, str_of(setup_tenant(s)));
        buf_printf(&text, "\n%s    platform: %s\n    bot: ", buf_z(entry), s->ops->name);
        setup_scalar(&text, str_of(s->bot));
        buf_printf(&text, "\n    open: %s\n", s->open ? "true" : "false");
    }
    fileset_add(&s->files, path, buf_str(&text), 0644);
}

/* `--who` for the agent that is there: only the line `open: ...` of its file changes. */
static bool change_who(struct setup *s, const char *path)
{
    BUF_LOCAL text = BUF_INIT, out = BUF_INIT;
    struct str rest, line;
    bool found = false;

    if (!ask_who(s))
        return false;
    if (!file_read(path, (size_t)4 << 20, &text))
        return setup_stop(s, "%s: %s. Nothing was changed", path, strerror(errno));
    for (rest = buf_str(&text); rest.n > 0 && str_split(&rest, '\n', &line);) {
        bool ours = !found && str_starts(line, STR("    open:"));
        if (ours)
            buf_printf(&out, "    open: %s\n", s->open ? "true" : "false");
        else
            buf_printf(&out, "%.*s\n", STR_FMT(line));
        found |= ours;
    }
    if (!found)
        return setup_stop(s,
                          "%s has no line `open: ...` to change. Change it there; nothing was "
                          "changed",
                          path);
    fileset_add(&s->files, path, buf_str(&out), 0644);
    return true;
}

static bool ask_kind(struct setup *s, const char *kind, struct buf *entry)
{
    s->who = SETUP_HOSTED;
    if (strcmp(kind, "acp") == 0 || strcmp(kind, "program") == 0)
        return ask_command(s, strcmp(kind, "acp") == 0, entry);
    if (strcmp(kind, "model") == 0)
        return ask_model(s, entry);
    if (strcmp(kind, "hermes") == 0)
        return ask_hermes(s, entry);
    buf_add_z(entry, "    substrate: program\n    command: [sh, -c, ");
    setup_scalar(entry, STR(DEMO));
    buf_add_z(entry, "]\n");
    return true;
}

bool setup_agent(struct setup *s)
{
    BUF_LOCAL entry = BUF_INIT;
    const struct agent_settings *old;
    const char *file = NULL;
    char *path, *kind = NULL;
    bool ours = false, ok;

    if (s->ops == NULL)
        return true;
    path = setup_path(s, "conf.d", s->ops->name, s->bot, "agent-", ".yaml");
    old = find_agent(s, path, &ours, &file);
    s->instance =
        old != NULL ? xstrdup(old->instance != NULL ? old->instance : old->id) : make_id(s);
    s->open = old != NULL && old->open;
    ok = choose_agent(s, old, &kind);
    if (ok && strcmp(kind, "none") == 0) {
        s->who = old != NULL ? SETUP_HOSTED : SETUP_NOBODY;
        if (ours && cli_value(s->j, "--who") != NULL)
            ok = change_who(s, path);
    } else if (ok && old != NULL && !ours) {
        ok = setup_stop(s,
                        "the agent %s answers for this bot; it is configured in %s. Change it "
                        "there; nothing was changed",
                        old->id, file);
    } else if (ok) {
        ok = ask_kind(s, kind, &entry) && ask_who(s);
        if (ok && (s->who == SETUP_HOSTED || ours))
            draft_agent(s, path, &entry, s->who == SETUP_HOSTED);
    }
    free(path);
    free(kind);
    return ok;
}
