/* setup.c - bellhop setup: the command, the files it writes, and what its steps share.
 * (setup.h is the map.) */
#include "cli/setup.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "cli/settings.h"
#include "dispatch/agent.h"
#include "dispatch/dispatch.h"

#define INCLUDE "conf.d/*.yaml"
#define COMMENT_COLUMNS 96

/* ---- what the steps share ---- */

bool setup_stop(struct setup *s, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    s->rc = CLI_FAILED;
    if (*text != '\0')
        terminal_say("bellhop: %s", text);
    return false;
}

const char *setup_given(const struct setup *s, const char *option, const char *key)
{
    size_t n = strlen(key);

    for (size_t i = s->j->n_given; i-- > 0;) {
        const char *value = s->j->given[i].value;
        if (strcmp(s->j->given[i].option->name, option) == 0 && strncmp(value, key, n) == 0 &&
            value[n] == '=')
            return value + n + 1;
    }
    return NULL;
}

bool setup_ask(struct setup *s, const char *option, const char *question, const char *otherwise,
               char **ret)
{
    const char *given = cli_value(s->j, option);
    BUF_LOCAL text = BUF_INIT;

    if (given == NULL && !terminal_ask(&s->t, question, otherwise, &text))
        return false;
    free(*ret);
    *ret = given != NULL ? xstrdup(given) : str_dup_opt(buf_str(&text));
    return true;
}

/* The word that @answer names, by its number from 1 or by itself; absent: none. */
static struct str choice(const char *words, struct str answer)
{
    struct str rest = str_of(words), word;
    uint64_t number = 0;

    str_to_u64(answer, &number);
    for (uint64_t i = 1; str_split(&rest, ' ', &word); i++)
        if (i == number || str_eq(word, answer))
            return word;
    return STR_NULL;
}

bool setup_choose(struct setup *s, const char *option, const char *question, const char *words,
                  const char *otherwise, char **ret)
{
    for (;;) {
        if (!setup_ask(s, option, question, otherwise, ret))
            return false;
        struct str found = choice(words, str_of(*ret));
        if (found.p != NULL) {
            char *word = str_dup(found);
            free(*ret);
            *ret = word;
            return true;
        }
        if (!s->t.asks || cli_value(s->j, option) != NULL) {
            s->rc = cli_misused(s->j, "%s is one of: %s", option, words);
            free(*ret);
            *ret = NULL;
            return false;
        }
        terminal_say("Please answer with a number, or with one of: %s", words);
    }
}

const char *setup_tenant(const struct setup *s)
{
    const char *given = cli_value(s->j, "--tenant");

    return given != NULL ? given : "home";
}

char *setup_path(const struct setup *s, const char *folder, const char *platform, const char *bot,
                 const char *more, const char *suffix)
{
    struct buf out = BUF_INIT;

    buf_printf(&out, "%s/%s/%s%s-", s->dir, folder, more, platform);
    file_name_add(&out, str_of(bot));
    buf_add_z(&out, suffix);
    return buf_take(&out);
}

void setup_scalar(struct buf *out, struct str value)
{
    struct jw w = jw_begin(out);
    bool plain = value.n > 0 && str_has_only(value, "-_./") && value.p[0] != '-';

    if (plain && !str_eq_ci(value, STR("null")))
        buf_add_str(out, value);
    else
        jw_str(&w, value);
}

void setup_comment(struct buf *out, int indent, const char *text)
{
    struct str rest = str_of(text), word;
    size_t column = 0;

    while (str_split(&rest, ' ', &word)) {
        if (column == 0 || column + word.n > COMMENT_COLUMNS) {
            buf_printf(out, "%s%*s#", column > 0 ? "\n" : "", indent, "");
            column = (size_t)indent + 1;
        }
        buf_printf(out, " %.*s", STR_FMT(word));
        column += word.n + 1;
    }
    buf_add_c(out, '\n');
}

/* ---- the configuration file itself ---- */

/* A new file: the settings of the top, each with its meaning, and the include. */
static void write_new_file(const struct setup *s, struct buf *out)
{
    const char *state = cli_value(s->j, "--state-dir");

    buf_add_z(out, "# The configuration of bellhop, begun by `bellhop setup`.\n"
                   "# Every key: docs/configuration.md, or `bellhop help config`.  Check it with "
                   "`bellhop doctor`.\n");
    for (const struct config_key *k = settings_config.keys; k->path != NULL; k++) {
        bool is_state = strcmp(k->path, "state_dir") == 0;
        buf_add_c(out, '\n');
        setup_comment(out, 0, k->what);
        buf_printf(out, "%s%s: ", is_state ? "" : "# ", k->path);
        if (is_state) {
            BUF_LOCAL dir = BUF_INIT;
            if (state != NULL)
                buf_add_z(&dir, state);
            else
                buf_printf(&dir, "%s/bellhop-data", s->dir);
            setup_scalar(out, buf_str(&dir));
        } else if (k->value != NULL) {
            buf_add_z(out, k->value);
        }
        buf_add_c(out, '\n');
    }
    buf_add_z(out, "\n# The bots and agents, a file each.\ninclude: " INCLUDE "\n");
}

static bool has_include(struct str text)
{
    struct str line;

    while (str_split(&text, '\n', &line))
        if (str_starts(line, STR("include:")))
            return true;
    return false;
}

/* Makes sure that the file includes conf.d; everything else in it stays. */
static bool draft_main(struct setup *s)
{
    BUF_LOCAL text = BUF_INIT, pattern = BUF_INIT;

    if (s->fresh) {
        write_new_file(s, &text);
        fileset_add(&s->files, s->path, buf_str(&text), 0644);
        return true;
    }
    buf_printf(&pattern, "%s/" INCLUDE, s->dir);
    for (size_t i = 0; config_file(s->cfg, i) != NULL; i++)
        if (strcmp(config_file(s->cfg, i), buf_z(&pattern)) == 0)
            return true;
    if (!file_read(s->path, (size_t)4 << 20, &text))
        return setup_stop(s, "%s: %s", s->path, strerror(errno));
    if (has_include(buf_str(&text)))
        return setup_stop(s,
                          "%s has an `include` of its own. Add \"" INCLUDE
                          "\" to its list, and run this command again",
                          s->path);
    buf_printf(&text,
               "%s\n# The bots and agents that `bellhop setup` added, a file each.\n"
               "include: " INCLUDE "\n",
               text.n > 0 && text.p[text.n - 1] != '\n' ? "\n" : "");
    fileset_add(&s->files, s->path, buf_str(&text), 0644);
    return true;
}

/* A list that the file does not have holds defaults, which any new entry would replace: the chat
 * page.  They get files of their own. */
static void draft_defaults(struct setup *s)
{
    for (size_t i = 0; i < config_count(s->cfg, &platforms_config); i++) {
        const struct platform_settings *p = config_entry(s->cfg, &platforms_config, i);
        BUF_LOCAL text = BUF_INIT;
        if (config_entry_line(s->cfg, &platforms_config, i) != 0 || s->ops == NULL ||
            (strcmp(p->platform, s->ops->name) == 0 && strcmp(p->bot, s->bot) == 0))
            continue;
        buf_printf(&text,
                   "# The bot that bellhop has without any configuration.\nplatforms:\n  - "
                   "platform: %s\n    bot: %s\n",
                   p->platform, p->bot);
        char *path = setup_path(s, "conf.d", p->platform, p->bot, "", ".yaml");
        fileset_add(&s->files, path, buf_str(&text), 0644);
        free(path);
    }
}

/* ---- writing ---- */

static bool has_bot(const struct config *cfg, const struct platform_settings *bot)
{
    for (size_t i = 0; i < config_count(cfg, &platforms_config); i++) {
        const struct platform_settings *p = config_entry(cfg, &platforms_config, i);
        if (str_eq(str_of(p->platform), str_of(bot->platform)) &&
            str_eq(str_of(p->bot), str_of(bot->bot)) &&
            str_eq(str_of(p->tenant), str_of(bot->tenant)) &&
            str_eq(str_of(p->host), str_of(bot->host)))
            return true;
    }
    return false;
}

static bool has_agent(const struct config *cfg, const struct agent_settings *agent)
{
    for (size_t i = 0; i < config_count(cfg, &agents_config); i++) {
        const struct agent_settings *a = config_entry(cfg, &agents_config, i);
        if (str_eq(str_of(a->id), str_of(agent->id)) &&
            str_eq(str_of(a->tenant), str_of(agent->tenant)))
            return true;
    }
    return false;
}

/* Is everything that was configured still there?  A file that setup wrote may have been edited. */
static bool nothing_lost(struct setup *s, const struct config *now, char *ret_why)
{
    BUF_LOCAL reload = BUF_INIT, restart = BUF_INIT;
    struct str rest, key;

    for (size_t i = 0; i < config_count(s->cfg, &platforms_config); i++)
        if (!has_bot(now, config_entry(s->cfg, &platforms_config, i)))
            return bh_why(ret_why, "another bot would be lost");
    for (size_t i = 0; i < config_count(s->cfg, &agents_config); i++) {
        const struct agent_settings *a = config_entry(s->cfg, &agents_config, i);
        bool replaced = s->ops != NULL && str_eq(str_of(a->platform), str_of(s->ops->name)) &&
                        str_eq(str_of(a->bot), str_of(s->bot));
        if (!replaced && !has_agent(now, a))
            return bh_why(ret_why, "the agent %.100s would be lost", a->id);
    }
    if (s->fresh)
        return true;
    config_diff(s->cfg, now, &reload, &restart);
    buf_add_str(&reload, buf_str(&restart));
    for (rest = buf_str(&reload); rest.n > 0 && str_split(&rest, '\n', &key);)
        if (key.n > 0 && !str_eq(key, STR("platforms")) && !str_eq(key, STR("agents")) &&
            (s->public_url == NULL || !str_eq(key, STR("public_url"))))
            return bh_why(ret_why, "the setting \"%.*s\" would be lost", STR_FMT(key));
    return true;
}

/* Is the configuration what it was when the questions began?  Else the files were drafted from what
 * is not true any more. */
static bool is_unchanged(const struct setup *s)
{
    BUF_LOCAL why = BUF_INIT, differs = BUF_INIT;
    struct config *now = NULL;

    if (access(s->path, F_OK) != 0)
        return s->fresh;
    if (s->fresh || settings_load(s->path, &now, &why) != BH_OK)
        return false;
    config_diff(s->cfg, now, &differs, &differs);
    config_free(now);
    return differs.n == 0;
}

/* Writes the files, and keeps them if the configuration that results can be loaded. */
static bool write_checked(struct setup *s)
{
    BUF_LOCAL why = BUF_INIT;
    struct config *now = NULL;
    char said[256] = "";

    if (!is_unchanged(s))
        return setup_stop(s, "the configuration was changed meanwhile. Nothing was changed by this "
                             "command: run it again");
    if (!fileset_write(&s->files, said))
        return setup_stop(s, "%s. Nothing was changed", said);
    if (settings_load(s->path, &now, &why) != BH_OK || !nothing_lost(s, now, said)) {
        fileset_undo(&s->files);
        config_free(now);
        return setup_stop(s, "%s. Nothing was changed; edit the files by hand",
                          why.n > 0 ? buf_z(&why) : said);
    }
    fileset_keep(&s->files);
    config_free(s->cfg);
    s->cfg = now;
    return true;
}

/* One setup at a time writes into the folder, where its file system has locks. */
static bool write_files(struct setup *s)
{
    int dir = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (dir >= 0)
        (void)flock(dir, LOCK_EX);
    bool ok = write_checked(s);
    if (dir >= 0)
        close(dir);
    return ok;
}

static bool confirm_files(struct setup *s)
{
    bool yes = true;

    terminal_say("\nThese files are written:");
    for (size_t i = 0; i < s->files.n; i++)
        terminal_say("  %s%s%s", s->files.files[i].path,
                     s->files.files[i].mode == 0600 ? "  (only its owner can read it)" : "",
                     access(s->files.files[i].path, F_OK) == 0 ? "  (changed)" : "");
    if (!terminal_confirm(&s->t, "Write them?", true, &yes))
        return false;
    return yes || setup_stop(s, "not written. Nothing was changed");
}

/* ---- the command ---- */

static bool find_config(struct setup *s)
{
    const char *found = settings_default_path(), *path = s->j->config != NULL ? s->j->config
                                                         : found != NULL      ? found
                                                                              : "bellhop.yaml";
    char *copy = xstrdup(path), *real = realpath(dirname(copy), NULL);
    struct buf whole = BUF_INIT, why = BUF_INIT;

    free(copy);
    if (real == NULL)
        return setup_stop(s, "the folder of %s: %s", path, strerror(errno));
    s->dir = real;
    copy = xstrdup(path);
    buf_printf(&whole, "%s/%s", strcmp(real, "/") == 0 ? "" : real, basename(copy));
    free(copy);
    s->path = buf_take(&whole);
    s->fresh = access(s->path, F_OK) != 0;
    if (access(s->dir, W_OK) != 0)
        return setup_stop(
            s,
            "this user cannot write to %s. Run the command as root, or name a file of "
            "your own: -c FILE",
            s->dir);
    if (s->j->state_dir != NULL)
        setenv("BELLHOP_STATE_DIR", s->j->state_dir, 1);
    bool ok = s->fresh ? config_load("/dev/null", &settings_schema, &s->cfg, &why) == BH_OK
                       : settings_load(s->path, &s->cfg, &why) == BH_OK;
    if (!ok)
        setup_stop(s, "%s. Mend this first; nothing was changed", buf_z(&why));
    s->j->config = s->path;
    buf_done(&why);
    return ok;
}

static bool check_options(struct setup *s)
{
    for (size_t i = 0; i < s->j->n_given; i++) {
        const char *name = s->j->given[i].option->name, *value = s->j->given[i].value;
        if ((strcmp(name, "--set") == 0 || strcmp(name, "--secret") == 0) &&
            strchr(value, '=') == NULL) {
            s->rc = cli_misused(s->j, "%s takes KEY=%s", name,
                                strcmp(name, "--set") == 0 ? "VALUE" : "FILE");
            return false;
        }
    }
    if (s->t.asks || cli_flag(s->j, "--yes"))
        return true;
    s->rc =
        cli_misused(s->j, "there is no terminal to ask questions on. Give the answers as options, "
                          "and --yes");
    return false;
}

static bool greet(struct setup *s)
{
    BUF_LOCAL bots = BUF_INIT;

    for (size_t i = 0; i < config_count(s->cfg, &platforms_config); i++) {
        const struct platform_settings *p = config_entry(s->cfg, &platforms_config, i);
        if (config_entry_line(s->cfg, &platforms_config, i) != 0)
            buf_printf(&bots, "%s%s %s", bots.n > 0 ? ", " : "", p->platform, p->bot);
    }
    terminal_say("bellhop setup: %s%s", s->path, s->fresh ? " (new)" : "");
    if (bots.n > 0)
        terminal_say("Bots so far: %s. What you do not change stays as it is.", buf_z(&bots));
    if (s->t.asks)
        terminal_say("Ctrl-C stops; nothing is written before the last question.\n");
    return true;
}

static bool steps(struct setup *s)
{
    if (!check_options(s) || !find_config(s) || !greet(s) || !setup_bot(s) || !setup_agent(s))
        return false;
    if (s->files.n > 0) {
        draft_defaults(s);
        if (!draft_main(s) || !confirm_files(s) || !write_files(s))
            return false;
        terminal_say("Written.");
    } else {
        terminal_say("The configuration stays as it is.");
    }
    return setup_try(s);
}

static void setup_done(struct setup *s)
{
    fileset_done(&s->files);
    config_free(s->cfg);
    for (size_t i = 0; i < SETUP_KEYS; i++) {
        if (s->values[i] != NULL)
            secret_wipe(s->values[i], strlen(s->values[i]));
        free(s->values[i]);
    }
    free(s->path);
    free(s->dir);
    free(s->bot);
    free(s->public_url);
    free(s->instance);
    free(s->env_file);
}

static int setup(struct cli_job *j)
{
    struct setup s = {.j = j, .rc = CLI_DONE};

    terminal_open(&s.t);
    s.t.asks = s.t.asks && !cli_flag(j, "--yes");
    bool ok = steps(&s);
    if (!ok && s.rc == CLI_DONE) {
        terminal_say("Stopped. Nothing was changed.");
        s.rc = CLI_FAILED;
    }
    terminal_close(&s.t);
    int rc = s.rc;
    setup_done(&s);
    return rc;
}

static const struct cli_verb setup_verbs[] = {{"", .run = setup}, {0}};
static const struct cli_option setup_options[] = {
    {"--platform"},
    {"--bot"},
    {"--set", .kind = CLI_REPEATED},
    {"--secret", .kind = CLI_REPEATED},
    {"--unchecked", .kind = CLI_FLAG},
    {"--public-url"},
    {"--agent"},
    {"--command"},
    {"--url"},
    {"--model"},
    {"--key-file"},
    {"--env-file"},
    {"--tenant"},
    {"--who", .one_of = "linked|everybody"},
    {"--wait", .kind = CLI_DURATION},
    {"--service", .kind = CLI_FLAG},
    {"--yes", .kind = CLI_FLAG},
    {0},
};

const struct command cmd_setup = {
    .name = "setup",
    .summary = "a guide from nothing to the first answer: a bot, an agent, a test",
    .help =
        "Usage: bellhop setup [-c FILE]\n"
        "       bellhop setup --yes [-c FILE] --platform P [--bot B] [--set KEY=VALUE]...\n"
        "                     [--secret KEY=FILE]... [--unchecked] [--public-url URL]\n"
        "                     [--agent demo|program|acp|model|hermes|none] [--command TEXT]\n"
        "                     [--url URL --model NAME [--key-file FILE]] [--env-file FILE]\n"
        "                     [--tenant T] [--who linked|everybody] [--wait 0s] [--service]\n\n"
        "Asks which platform to add or change, says where to click for its keys, and shows them\n"
        "to the platform.  Then asks who answers, writes the files, starts a server if none runs,\n"
        "waits for the first message, and ends with the checks of `bellhop doctor`.\n\n"
        "The bot goes into conf.d/PLATFORM-BOT.yaml beside the configuration file, its agent into\n"
        "conf.d/agent-PLATFORM-BOT.yaml, secrets into files in secrets/ that only their owner can\n"
        "read.  Another run changes what you ask it to change and keeps the rest.  Ctrl-C at any\n"
        "question leaves everything as it was.\n\n"
        "An option answers its question; --yes takes the defaults for all others.\n"
        "--set      a key of the bot, as in `platforms:` of the configuration\n"
        "--secret   a secret key of the bot, read from a file; - is standard input\n"
        "--unchecked  keeps keys that could not be checked because the platform did not answer\n"
        "--agent    demo: a built-in answer; program: any command that reads and prints lines;\n"
        "           acp: a command that speaks ACP; model: an OpenAI-style server; hermes: a "
        "Hermes\n"
        "           gateway, whose .env gets its three lines; none: what is there stays\n"
        "--who      who may write to the agent: people that you link, or everybody\n"
        "--wait     how long to wait for the first message (default 5m, with --yes 0s)\n"
        "--service  starts the service bellhop with systemd and at every boot; without root, as\n"
        "           a unit of this user, at every login\n",
    .verbs = setup_verbs,
    .options = setup_options,
};
