/* setup_bot.c - the first step of `bellhop setup`: a platform, its keys, and what the platform says
 * to them.  (setup.h is the map.)
 *
 * The questions come from the platform's table of keys, so a new platform needs nothing here. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "cli/settings.h"
#include "cli/setup.h"

#define NO_NAME "new" /* the bot's name while only the platform knows it */
#define MAX_SECRET_BYTES 65536
#define LINE_LEVELS 4 /* of keys in the file of a bot */

/* ---- which platform, which bot ---- */

static bool choose_platform(struct setup *s)
{
    BUF_LOCAL words = BUF_INIT, menu = BUF_INIT;
    bool given = cli_value(s->j, "--platform") != NULL || !s->t.asks;
    char *chosen = NULL;
    size_t n = 0;

    for (; platforms[n] != NULL; n++) {
        buf_printf(&menu, "  %2zu  %-9s %s\n", n + 1, platforms[n]->name,
                   platforms[n]->descriptor->label);
        buf_printf(&words, "%s ", platforms[n]->name);
    }
    if (!given)
        terminal_say("Which platform shall people write on?\n%s  %2zu  none      add no bot",
                     buf_z(&menu), n + 1);
    buf_add_z(&words, "none");
    if (!setup_choose(s, "--platform", "Number or name", buf_z(&words),
                      s->fresh && s->t.asks ? "web" : "none", &chosen))
        return false;
    s->ops = platform_find(str_of(chosen));
    free(chosen);
    return true;
}

/* The number of the bot in the configuration; the count: it is not there. */
static size_t find_entry(const struct setup *s, const char *bot)
{
    size_t n = config_count(s->cfg, &platforms_config), i = 0;

    for (; i < n; i++) {
        const struct platform_settings *p = config_entry(s->cfg, &platforms_config, i);
        if (strcmp(p->platform, s->ops->name) == 0 && strcmp(p->bot, bot) == 0)
            break;
    }
    return i;
}

/* True: the bot stands in the file that setup wrote for it. */
static bool is_ours(const struct setup *s, size_t entry)
{
    const struct platform_settings *p = config_entry(s->cfg, &platforms_config, entry);
    char *own = setup_path(s, "conf.d", p->platform, p->bot, "", ".yaml");
    bool ours = config_entry_line(s->cfg, &platforms_config, entry) > 0 &&
                strcmp(config_entry_file(s->cfg, &platforms_config, entry), own) == 0;

    free(own);
    return ours;
}

/* Asks whether one of the bots of this platform is to be changed.  Sets s->bot if so. */
static bool choose_bot(struct setup *s)
{
    BUF_LOCAL words = BUF_INIT, first = BUF_INIT;
    const char *given = cli_value(s->j, "--bot");
    char *chosen = NULL;

    for (size_t i = 0; i < config_count(s->cfg, &platforms_config); i++) {
        const struct platform_settings *p = config_entry(s->cfg, &platforms_config, i);
        if (strcmp(p->platform, s->ops->name) != 0 || !is_ours(s, i))
            continue;
        buf_printf(&words, "%s ", p->bot);
        if (first.n == 0)
            buf_add_z(&first, p->bot);
    }
    if (given != NULL || words.n == 0) {
        s->bot = given != NULL ? xstrdup(given) : NULL;
        return true;
    }
    buf_add_z(&words, "new");
    terminal_say("You have: %s", buf_z(&words));
    if (!setup_choose(s, "--bot", "Change which one? \"new\" adds another", buf_z(&words),
                      buf_z(&first), &chosen))
        return false;
    if (strcmp(chosen, "new") == 0) {
        free(chosen);
        chosen = NULL;
    }
    s->bot = chosen;
    return true;
}

/* Takes the values of a bot that is there as the defaults of the questions. */
static bool take_old_values(struct setup *s)
{
    size_t at = s->bot != NULL ? find_entry(s, s->bot) : SIZE_MAX;
    const struct config_key *keys = s->ops->config->keys;

    if (at >= config_count(s->cfg, &platforms_config))
        return true;
    if (config_entry_line(s->cfg, &platforms_config, at) > 0 && !is_ours(s, at))
        return setup_stop(s,
                          "%s %s is configured in %s, line %d. Change it there; nothing was "
                          "changed",
                          s->ops->name, s->bot, config_entry_file(s->cfg, &platforms_config, at),
                          config_entry_line(s->cfg, &platforms_config, at));
    for (size_t i = 0; keys[i].path != NULL; i++) {
        BUF_SECRET text = BUF_INIT;
        if (config_show(config_entry(s->cfg, &platforms_config, at), &keys[i], &text))
            s->values[i] = str_dup(buf_str(&text));
    }
    return true;
}

/* ---- the keys ---- */

static void set_value(struct setup *s, size_t key, struct str value)
{
    if (s->values[key] != NULL)
        secret_wipe(s->values[key], strlen(s->values[key]));
    free(s->values[key]);
    s->values[key] = str_dup_opt(value);
}

static const char *value_of(const struct setup *s, struct str path)
{
    const struct config_key *keys = s->ops->config->keys;

    for (size_t i = 0; keys[i].path != NULL; i++)
        if (str_eq(str_of(keys[i].path), path))
            return s->values[i] != NULL ? s->values[i] : keys[i].value;
    return NULL;
}

/* True: the condition of .ask holds. */
static bool is_asked(const struct setup *s, const struct config_key *k)
{
    struct str value = str_of(k->ask), key;

    if (k->ask == NULL) { /* a table without any .ask: everything that has no default */
        for (const struct config_key *o = s->ops->config->keys; o->path != NULL; o++)
            if (o->ask != NULL)
                return false;
        return k->value == NULL && !str_eq(str_of(k->path), STR("api_base"));
    }
    if (value.n == 0)
        return true;
    str_split(&value, '=', &key);
    bool differs = str_ends(key, STR("!"));
    key.n -= differs;
    return str_eq(str_of(value_of(s, key)), value) != differs;
}

/* Reads the secret of `--secret KEY=FILE`. */
static bool read_secret(struct setup *s, const char *file, struct buf *out)
{
    bool is_input = strcmp(file, "-") == 0;

    if (!file_read(is_input ? "/dev/stdin" : file, MAX_SECRET_BYTES, out))
        return setup_stop(s, "cannot read %s", file);
    if (str_is_empty(str_trim(buf_str(out))))
        return setup_stop(s, "%s is empty", is_input ? "standard input" : file);
    return true;
}

static bool ask_key(struct setup *s, size_t i)
{
    const struct config_key *k = &s->ops->config->keys[i];
    bool secret = k->type == CFG_SECRET, asked = is_asked(s, k);
    const char *set = setup_given(s, "--set", k->path), *file = setup_given(s, "--secret", k->path);
    BUF_SECRET text = BUF_INIT;

    if (set != NULL && secret) {
        s->rc = cli_misused(s->j,
                            "%s is a secret, and other users see command lines. Write it into "
                            "a file: --secret %s=FILE",
                            k->path, k->path);
        return false;
    }
    if (file != NULL && !read_secret(s, file, &text))
        return false;
    if (set != NULL || file != NULL) {
        set_value(s, i, file != NULL ? str_trim(buf_str(&text)) : str_of(set));
        return true;
    }
    if (!asked)
        return true;
    if (s->t.asks)
        terminal_say("%s", k->what);
    if (secret && !terminal_ask_secret(&s->t, k->path, s->values[i] != NULL, &text))
        return false;
    if (!secret &&
        !terminal_ask(&s->t, k->path, s->values[i] != NULL ? s->values[i] : k->value, &text))
        return false;
    if (text.n > 0)
        set_value(s, i, buf_str(&text));
    return true;
}

/* Do --set and --secret name keys of this platform? */
static bool check_given(struct setup *s)
{
    for (size_t i = 0; i < s->j->n_given; i++) {
        const char *option = s->j->given[i].option->name, *value = s->j->given[i].value;
        struct str rest = str_of(value), key;
        bool known = false;
        if (strcmp(option, "--set") != 0 && strcmp(option, "--secret") != 0)
            continue;
        str_split(&rest, '=', &key);
        for (const struct config_key *k = s->ops->config->keys; k->path != NULL; k++)
            known |= str_eq(str_of(k->path), key) &&
                     (k->type == CFG_SECRET || strcmp(option, "--set") == 0);
        if (!known) {
            s->rc = cli_misused(s->j, "%s has no %skey \"%.*s\". See: bellhop help config",
                                s->ops->name, strcmp(option, "--set") == 0 ? "" : "secret ",
                                STR_FMT(key));
            return false;
        }
    }
    return true;
}

static bool ask_keys(struct setup *s)
{
    const struct config_key *keys = s->ops->config->keys;

    for (size_t i = 0; keys[i].path != NULL; i++)
        if (i >= SETUP_KEYS || !ask_key(s, i))
            return false;
    return true;
}

/* ---- one entry, as JSON for config_parse() and as YAML for the file ---- */

/* The part of "send.sign.header" before its last dot; absent: it has none. */
static struct str section_of(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL ? str_make(path, (size_t)(dot - path)) : STR_NULL;
}

static size_t levels_of(struct str section)
{
    struct str word;
    size_t n = 0;

    while (str_split(&section, '.', &word))
        n++;
    return n;
}

static struct str level_of(struct str section, size_t level)
{
    struct str word = STR_NULL;

    for (size_t i = 0; i <= level; i++)
        str_split(&section, '.', &word);
    return word;
}

/* How many levels of @a are those of @b. */
static size_t shared_levels(struct str a, struct str b)
{
    struct str x, y;
    size_t n = 0;

    while (str_split(&a, '.', &x) && str_split(&b, '.', &y) && str_eq(x, y))
        n++;
    return n;
}

static void write_json(const struct setup *s, const char *bot, struct buf *out)
{
    const struct config_key *keys = s->ops->config->keys;
    struct jw w = jw_begin(out);
    struct str open = STR_NULL;

    jw_obj(&w);
    jw_karr(&w, "platforms");
    jw_obj(&w);
    jw_kstr(&w, "platform", str_of(s->ops->name));
    jw_kstr(&w, "bot", str_of(bot));
    for (size_t i = 0; keys[i].path != NULL; i++) {
        struct str section = section_of(keys[i].path);
        if (s->values[i] == NULL)
            continue;
        size_t same = shared_levels(open, section);
        for (size_t k = levels_of(open); k > same; k--)
            jw_end_obj(&w);
        for (size_t k = same; k < levels_of(section); k++) {
            jw_key_str(&w, level_of(section, k));
            jw_obj(&w);
        }
        open = section;
        jw_kstr(&w, keys[i].path + (section.n > 0 ? section.n + 1 : 0), str_of(s->values[i]));
    }
    for (size_t k = levels_of(open); k > 0; k--)
        jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_arr(&w);
    jw_end_obj(&w);
}

static void add_key(struct buf *out, const struct config_key *k, int indent, size_t skip,
                    const char *value, const char *file)
{
    setup_comment(out, indent, k->what);
    buf_printf(out, "%*s%s%s%s: ", indent, "", value == NULL ? "# " : "", k->path + skip,
               file != NULL ? "_file" : "");
    if (file != NULL || value != NULL)
        setup_scalar(out, str_of(file != NULL ? file : value));
    else if (k->value != NULL)
        buf_add_z(out, k->value);
    buf_add_c(out, '\n');
}

/* The address for webhooks belongs to all bots, so it has a file of its own. */
static void public_url_path(const struct setup *s, struct buf *out)
{
    buf_printf(out, "%s/conf.d/public-url.yaml", s->dir);
}

static void draft_public_url(struct setup *s)
{
    BUF_LOCAL path = BUF_INIT, text = BUF_INIT;

    if (s->public_url == NULL)
        return;
    public_url_path(s, &path);
    buf_add_z(&text,
              "# Written by `bellhop setup`: the address under which platforms reach bellhop.\n"
              "public_url: ");
    setup_scalar(&text, str_of(s->public_url));
    buf_add_c(&text, '\n');
    fileset_add(&s->files, buf_z(&path), buf_str(&text), 0644);
}

/* The secret goes into a file of its own; its name, from conf.d, goes to @ret. */
static void draft_secret(struct setup *s, size_t key, struct buf *ret)
{
    char *start = setup_path(s, "secrets", s->ops->name, s->bot, "", ".");
    BUF_LOCAL path = BUF_INIT;

    buf_printf(&path, "%s%s", start, s->ops->config->keys[key].path);
    fileset_add(&s->files, buf_z(&path), str_of(s->values[key]), 0600);
    buf_printf(ret, "../secrets/%s", strrchr(buf_z(&path), '/') + 1);
    free(start);
}

/* The file of a new bot. */
static void write_bot(struct setup *s, struct buf *text)
{
    const struct config_key *keys = s->ops->config->keys;
    struct str open = STR_NULL;

    buf_printf(text, "# Written by `bellhop setup`, which changes this file if you ask it to.\n");
    buf_printf(text, "platforms:\n  - platform: %s\n    bot: ", s->ops->name);
    setup_scalar(text, str_of(s->bot));
    buf_add_c(text, '\n');
    for (size_t i = 0; keys[i].path != NULL; i++) {
        struct str section = section_of(keys[i].path);
        size_t skip = section.n > 0 ? section.n + 1 : 0, levels = levels_of(section);
        BUF_LOCAL file = BUF_INIT;
        for (size_t k = shared_levels(open, section); k < levels; k++)
            buf_printf(text, "%*s%.*s:\n", 4 + 2 * (int)k, "", STR_FMT(level_of(section, k)));
        open = section;
        if (keys[i].type == CFG_SECRET && s->values[i] != NULL)
            draft_secret(s, i, &file);
        add_key(text, &keys[i], 4 + 2 * (int)levels, skip, s->values[i],
                file.n > 0 ? buf_z(&file) : NULL);
    }
}

/* ---- the file of a bot that is changed ----
 *
 * Only the lines of the keys that get another value are written anew, so that comments, references
 * to secrets and everything else that somebody wrote there stay.  The form is that of write_bot();
 * if somebody gave the file another one, the result cannot be loaded, and nothing is changed. */

struct bot_line {
    struct str names[LINE_LEVELS]; /* of the sections and the key; the last one ends the path */
    size_t level;
    bool commented;
};

/* Reads a line of the entry, inside the sections that @l has from the lines before.  False: it has
 * no key. */
static bool read_line(struct str line, struct bot_line *l)
{
    struct str rest = line, name;

    while (str_starts(rest, STR(" ")))
        rest = str_skip(rest, 1);
    size_t indent = line.n - rest.n;
    l->commented = str_starts(rest, STR("# "));
    if (l->commented)
        rest = str_skip(rest, 2);
    if (indent < 4 || indent % 2 != 0 || (l->level = indent / 2 - 2) >= LINE_LEVELS ||
        memchr(rest.p, ':', rest.n) == NULL || !str_split(&rest, ':', &name) || name.n == 0 ||
        !str_has_only(name, "_"))
        return false;
    l->names[l->level] = name;
    return true;
}

/* True: the line has the key, or the file of this secret. */
static bool is_line_of(const struct bot_line *l, const struct config_key *k)
{
    BUF_LOCAL path = BUF_INIT;

    for (size_t i = 0; i <= l->level; i++)
        buf_printf(&path, "%s%.*s", i > 0 ? "." : "", STR_FMT(l->names[i]));
    struct str p = buf_str(&path);
    if (k->type == CFG_SECRET && str_ends(p, STR("_file")))
        p.n -= strlen("_file");
    return str_eq(p, str_of(k->path));
}

/* The line of the entry that has the key; else the one where it stands as a comment; 0: neither. */
static size_t find_line(struct str text, size_t first, const struct config_key *k)
{
    struct bot_line l = {.level = 0};
    size_t found = 0;
    struct str line;

    for (size_t n = 1; text.n > 0 && str_split(&text, '\n', &line); n++) {
        if (n > first && str_starts(line, STR("  - ")))
            break;
        if (n <= first || !read_line(line, &l) || !is_line_of(&l, k))
            continue;
        if (!l.commented)
            return n;
        found = found == 0 ? n : found;
    }
    return found;
}

/* Writes the key to its line, or to a new one below the first line of the entry.  Deeper lines
 * below its line are the rest of the older value. */
static void put_key(struct setup *s, struct buf *text, size_t first, size_t key)
{
    const struct config_key *k = &s->ops->config->keys[key];
    struct str rest = buf_str(text), line, section = section_of(k->path);
    size_t at = find_line(rest, first, k), skip = section.n > 0 ? section.n + 1 : 0;
    BUF_LOCAL file = BUF_INIT;
    BUF_SECRET out = BUF_INIT;
    static const char blanks[] = "                ";
    int indent = 4 + 2 * (int)levels_of(section);
    bool older = false;

    if (k->type == CFG_SECRET)
        draft_secret(s, key, &file);
    for (size_t n = 1; rest.n > 0 && str_split(&rest, '\n', &line); n++) {
        older = older &&
                (str_trim(line).n == 0 || str_starts(line, str_make(blanks, (size_t)indent + 1)));
        if (n != at && !older)
            buf_printf(&out, "%.*s\n", STR_FMT(line));
        if (n != (at != 0 ? at : first))
            continue;
        older = n == at;
        buf_printf(&out, "%*s%s%s: ", indent, "", k->path + (at != 0 ? skip : 0),
                   file.n > 0 ? "_file" : "");
        setup_scalar(&out, file.n > 0 ? buf_str(&file) : str_of(s->values[key]));
        buf_add_c(&out, '\n');
    }
    buf_reset(text);
    buf_add_str(text, buf_str(&out));
}

static void change_bot(struct setup *s, size_t entry, struct buf *text)
{
    const struct config_key *keys = s->ops->config->keys;
    size_t first = (size_t)config_entry_line(s->cfg, &platforms_config, entry);

    for (size_t i = 0; keys[i].path != NULL; i++) {
        BUF_SECRET was = BUF_INIT;
        if (!config_show(config_entry(s->cfg, &platforms_config, entry), &keys[i], &was))
            buf_add_str(&was, str_of(keys[i].value));
        if (s->values[i] != NULL && !str_eq(str_of(s->values[i]), buf_str(&was)))
            put_key(s, text, first, i);
    }
}

static bool draft_bot(struct setup *s)
{
    char *path = setup_path(s, "conf.d", s->ops->name, s->bot, "", ".yaml");
    size_t at = find_entry(s, s->bot);
    bool there = at < config_count(s->cfg, &platforms_config) && is_ours(s, at), ok = true;
    BUF_SECRET text = BUF_INIT; /* somebody may have written a secret into it */

    if (!there)
        write_bot(s, &text);
    else if (file_read(path, (size_t)4 << 20, &text))
        change_bot(s, at, &text);
    else
        ok = setup_stop(s, "%s: %s. Nothing was changed", path, strerror(errno));
    if (ok)
        fileset_add(&s->files, path, buf_str(&text), 0644);
    free(path);
    return ok;
}

/* ---- what the platform says ---- */

static void show_report(const struct setup *s)
{
    struct str rest = str_of(s->report.warnings), line;

    if (s->report.name[0] != '\0')
        terminal_say("  This is %s.", s->report.name);
    if (s->report.notes[0] != '\0')
        terminal_say("  %s", s->report.notes);
    while (rest.n > 0 && str_split(&rest, '\n', &line))
        terminal_say("  Not right yet: %.*s.", STR_FMT(line));
}

/* Checks the answers against the table, then asks the platform.  BH_OK: good. */
static enum bh_err check_bot(struct setup *s, char *ret_why)
{
    static const struct config_section *const none[] = {NULL};
    static const struct config_list *const lists[] = {&platforms_config, NULL};
    static const struct config_schema schema = {.sections = none, .lists = lists};
    BUF_SECRET json = BUF_INIT;
    BUF_LOCAL why = BUF_INIT;
    struct config *cfg = NULL;

    for (size_t i = 0; i < SETUP_KEYS; i++)
        if (s->values[i] != NULL && strstr(s->values[i], "${") != NULL)
            return bh_err_why(BH_REFUSED, ret_why, "a value must not contain ${");
    write_json(s, s->bot != NULL ? s->bot : NO_NAME, &json);
    if (config_parse(buf_str(&json), &schema, &cfg, &why) != BH_OK)
        return bh_err_why(BH_REFUSED, ret_why, "%.250s", buf_z(&why));
    const struct platform_settings *settings = config_entry(cfg, &platforms_config, 0);
    enum bh_err err = BH_OK;
    s->report =
        (struct platform_report){.webhook = s->ops->http != NULL && s->ops->page_visitor == NULL};
    if (s->ops->check != NULL) {
        s->report.webhook = false;
        terminal_say("Asking %s ...", s->ops->descriptor->label);
        err = s->ops->check(settings, &s->report, ret_why);
    }
    config_free(cfg);
    return err;
}

/* Repeats the questions until the platform accepts the answers.  *@ret_again: ask once more. */
static bool judge(struct setup *s, bool *ret_again)
{
    char why[256] = "";
    enum bh_err err = check_bot(s, why);
    bool yes = true;

    *ret_again = false;
    if (err == BH_OK) {
        show_report(s);
        return true;
    }
    if (err != BH_REFUSED) {
        terminal_say("  %s cannot be reached from here, so the keys are not checked%s%s.",
                     s->ops->descriptor->label, why[0] != '\0' ? ": " : "", why);
        if (cli_flag(s->j, "--unchecked"))
            return true;
        if (!s->t.asks)
            return setup_stop(s, "not checked, and --unchecked is not given. Nothing was changed");
        if (!terminal_confirm(&s->t, "Try again? \"n\" keeps them unchecked", true, ret_again))
            return false;
        return true;
    }
    terminal_say("  This does not work: %s.", why);
    if (!s->t.asks)
        return setup_stop(s, "the bot was not added. Nothing was changed");
    if (!terminal_confirm(&s->t, "Try again?", true, &yes))
        return false;
    *ret_again = yes;
    return yes || setup_stop(s, "the bot was not added. Nothing was changed");
}

/* Asks for the bot's name.  The name that was given before is the default. */
static bool ask_name(struct setup *s)
{
    const char *otherwise = s->bot;

    if (s->t.asks)
        terminal_say("%s.", s->ops->bot_is != NULL ? s->ops->bot_is : "A name for this bot");
    if (otherwise == NULL && s->ops->bot_is == NULL)
        otherwise = s->ops->page_visitor != NULL ? "lobby" : s->ops->name;
    if (!setup_ask(s, "--bot", "bot", otherwise, &s->bot))
        return false;
    return s->bot != NULL || setup_stop(s, "the bot needs a name (--bot). Nothing was changed");
}

/* Webhooks need an address from outside. */
static bool ask_public_url(struct setup *s)
{
    const struct settings *settings = settings_of(s->cfg);
    struct str given = str_of(cli_value(s->j, "--public-url"));
    BUF_LOCAL own = BUF_INIT;

    if (!s->report.webhook)
        return true;
    public_url_path(s, &own);
    while (str_ends(given, STR("/")))
        given.n--; /* as in the settings */
    bool known = settings->public_url != NULL;
    bool other = known && given.p != NULL && !str_eq(given, str_of(settings->public_url));
    if (other && access(buf_z(&own), F_OK) != 0)
        return setup_stop(s,
                          "public_url is %s in the configuration. Change it there; nothing was "
                          "changed",
                          settings->public_url);
    if (!known && s->t.asks)
        terminal_say("%s sends messages to an address of yours. Under which https:// address is "
                     "bellhop reached?",
                     s->ops->descriptor->label);
    for (bool good = known && !other; !good;) {
        if (!setup_ask(s, "--public-url", "public_url", NULL, &s->public_url))
            return false;
        struct str url = str_of(s->public_url);
        good = str_starts(url, STR("https://")) || str_starts(url, STR("http://"));
        if (!good && (!s->t.asks || cli_value(s->j, "--public-url") != NULL))
            return setup_stop(s, "public_url must begin with https://. Nothing was changed");
        if (!good)
            terminal_say("The address must begin with https://.");
    }
    terminal_say("Its webhook is %s/webhooks/%s/%s",
                 s->public_url != NULL ? s->public_url : settings->public_url, s->ops->name,
                 s->bot);
    return true;
}

bool setup_bot(struct setup *s)
{
    bool again = true;

    if (!choose_platform(s))
        return false;
    if (s->ops == NULL)
        return true;
    if (!check_given(s) || !choose_bot(s) || !take_old_values(s))
        return false;
    if (s->ops->steps != NULL && s->t.asks)
        terminal_say("\n%s\n", s->ops->steps);
    bool name_first = s->bot == NULL && s->ops->bot_is != NULL;
    while (again)
        if ((name_first && !ask_name(s)) || !ask_keys(s) || !judge(s, &again))
            return false;
    if (s->bot == NULL)
        s->bot = str_dup_opt(str_of(s->report.bot));
    if ((s->bot == NULL && !ask_name(s)) || !ask_public_url(s))
        return false;
    size_t at = find_entry(s, s->bot);
    if (at < config_count(s->cfg, &platforms_config) &&
        config_entry_line(s->cfg, &platforms_config, at) > 0 && !is_ours(s, at))
        return take_old_values(s); /* says where it stands */
    draft_public_url(s);
    return draft_bot(s);
}
