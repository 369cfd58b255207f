/* manual.c - see manual.h.
 *
 * Summaries and names of the table are literals of this program; the shells get them in single
 * quotes, with quotes inside of them escaped. */
#include "cli/manual.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- man pages ---- */

/* One line of text for roff. */
static void add_roff(struct buf *out, struct str line)
{
    if (line.n > 0 && (line.p[0] == '.' || line.p[0] == '\''))
        buf_add_z(out, "\\&");
    for (size_t i = 0; i < line.n; i++)
        if (line.p[i] == '\\')
            buf_add_z(out, "\\e");
        else if (line.p[i] == '-')
            buf_add_z(out, "\\-");
        else
            buf_add_c(out, line.p[i]);
    buf_add_c(out, '\n');
}

static void add_block(struct buf *out, const char *head, struct str text)
{
    struct str line;

    buf_printf(out, ".SH %s\n.nf\n", head);
    while (text.n > 0 && str_split(&text, '\n', &line))
        add_roff(out, line);
    buf_add_z(out, ".fi\n");
}

void manual_page(const struct command *c, struct buf *out)
{
    const char *gap = strstr(c->help, "\n\n");
    struct str help = str_of(c->help), usage = help;
    BUF_LOCAL forms = BUF_INIT;
    struct str line;

    if (gap != NULL)
        usage.n = (size_t)(gap - c->help);
    while (usage.n > 0 && str_split(&usage, '\n', &line))
        buf_printf(&forms, "%.*s\n", STR_FMT(str_skip(line, strlen("Usage: "))));
    buf_add_z(out, ".TH BELLHOP\\-");
    for (const char *p = c->name; *p != '\0'; p++)
        buf_add_c(out, (char)toupper((unsigned char)*p));
    buf_printf(out, " 1 \"\" \"bellhop %s\" \"User Commands\"\n.SH NAME\nbellhop\\-%s \\- ",
               BELLHOP_VERSION, c->name);
    add_roff(out, str_of(c->summary));
    add_block(out, "SYNOPSIS", buf_str(&forms));
    if (gap != NULL)
        add_block(out, "DESCRIPTION", str_skip(help, (size_t)(gap - c->help) + 2));
    buf_add_z(out,
              ".SH OPTIONS OF EVERY COMMAND\n"
              ".TP\n.BR \\-c \", \" \\-\\-config \" \" \\fIfile\\fR\nThe configuration of the "
              "server that is meant.\n"
              ".TP\n.BR \\-\\-state\\-dir \" \" \\fIdirectory\\fR\nIts state directory, instead "
              "of the one in the configuration.\n"
              ".TP\n.B \\-\\-json\nPrint JSON.\n"
              ".TP\n.B \\-\\-help\nPrint this text.\n"
              ".SH EXIT STATUS\n0: done; 1: failed; 2: misused.\n"
              ".SH SEE ALSO\n.BR bellhop (1)\n");
}

/* ---- completions ---- */

static void add_words(struct buf *out, const char *before, const char *word)
{
    buf_printf(out, "%s%s", out->n > 0 ? before : "", word);
}

/* The options of a command: its own, those of /v1 and those of every command. */
static void each_option(const struct command *c, void *ctx,
                        void (*tell)(void *ctx, const struct cli_option *o))
{
    const struct cli_option *const tables[] = {c->options, c->v1 ? cli_v1_options : NULL,
                                               cli_common_options};

    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        for (const struct cli_option *o = tables[i]; o != NULL && o->name != NULL; o++)
            tell(ctx, o);
}

static bool takes_path(const struct cli_option *o)
{
    struct str name = str_of(o->name);

    return str_ends(name, STR("-file")) || str_ends(name, STR("-dir")) ||
           str_ends(name, STR("config")) || str_eq(name, STR("-c")) || str_eq(name, STR("--file"));
}

static void add_name(void *ctx, const struct cli_option *o)
{
    add_words(ctx, " ", o->name);
}

static void add_verbs(const struct command *c, struct buf *out)
{
    for (const struct cli_verb *v = c->verbs; v->name != NULL; v++)
        if (*v->name != '\0')
            add_words(out, " ", v->name);
}

/* "word:a|b" for each option with fixed values, for `case` of a shell. */
static void add_case(void *ctx, const struct cli_option *o)
{
    struct str rest = str_of(o->one_of), word;
    BUF_LOCAL words = BUF_INIT;

    if (o->one_of == NULL)
        return;
    while (str_split(&rest, '|', &word))
        buf_printf(&words, "%s%.*s", words.n > 0 ? " " : "", STR_FMT(word));
    buf_printf(ctx, "        %s) words='%s' ;;\n", o->name, buf_z(&words));
}

static void write_bash(struct buf *out)
{
    BUF_LOCAL names = BUF_INIT;

    for (size_t i = 0; cli_commands[i] != NULL; i++)
        add_words(&names, " ", cli_commands[i]->name);
    buf_printf(out,
               "# Completions of bellhop for bash.\n"
               "_bellhop() {\n"
               "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} words= "
               "verbs=\n"
               "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
               "        mapfile -t COMPREPLY < <(compgen -W '%s' -- \"$cur\")\n"
               "        return\n    fi\n"
               "    case $prev in\n"
               "    -c | --config | *-file | *-dir | --file)\n"
               "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
               "        return ;;\n    esac\n"
               "    case ${COMP_WORDS[1]} in\n",
               buf_z(&names));
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        BUF_LOCAL verbs = BUF_INIT, options = BUF_INIT, cases = BUF_INIT;
        add_verbs(cli_commands[i], &verbs);
        each_option(cli_commands[i], &options, add_name);
        each_option(cli_commands[i], &cases, add_case);
        buf_printf(out,
                   "    %s)\n        verbs='%s'\n        case $prev in\n%s        *) words='%s' "
                   ";;\n        esac ;;\n",
                   cli_commands[i]->name, buf_z(&verbs), buf_z(&cases), buf_z(&options));
    }
    buf_add_z(out, "    esac\n"
                   "    [ \"$COMP_CWORD\" = 2 ] && words=\"$verbs $words\"\n"
                   "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                   "}\n"
                   "complete -o default -F _bellhop bellhop\n");
}

/* A text for single quotes of a shell. */
static void add_quoted(struct buf *out, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '\'')
            buf_add_z(out, "'\\''");
        else
            buf_add_c(out, *text);
}

static void write_zsh(struct buf *out)
{
    buf_add_z(out, "#compdef bellhop\n# Completions of bellhop for zsh.\n_bellhop() {\n"
                   "    local -a commands words_of verbs\n    commands=(\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        buf_printf(out, "        '%s:", cli_commands[i]->name);
        add_quoted(out, cli_commands[i]->summary);
        buf_add_z(out, "'\n");
    }
    buf_add_z(out, "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n"
                   "        return\n    fi\n"
                   "    case $words[CURRENT-1] in\n"
                   "    -c|--config|*-file|*-dir|--file) _files; return ;;\n    esac\n"
                   "    case $words[2] in\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        BUF_LOCAL verbs = BUF_INIT, options = BUF_INIT;
        add_verbs(cli_commands[i], &verbs);
        each_option(cli_commands[i], &options, add_name);
        buf_printf(out, "    %s) verbs=(%s); words_of=(%s) ;;\n", cli_commands[i]->name,
                   buf_z(&verbs), buf_z(&options));
    }
    buf_add_z(out,
              "    esac\n"
              "    (( CURRENT == 3 )) && compadd -- $verbs\n"
              "    compadd -- $words_of\n"
              "    [[ $PREFIX == -* ]] || _files\n"
              "}\n"
              "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _bellhop \"$@\"\nelse\n"
              "    compdef _bellhop bellhop\nfi\n");
}

struct fish {
    struct buf *out;
    const char *command;
};

static void add_fish_option(void *ctx, const struct cli_option *o)
{
    struct fish *f = ctx;
    bool brief = o->name[1] != '-';
    struct str rest = str_of(o->one_of), word;

    buf_printf(f->out, "complete -c bellhop -n '__fish_seen_subcommand_from %s' %s %s", f->command,
               brief ? "-s" : "-l", o->name + (brief ? 1 : 2));
    if (o->kind != CLI_FLAG)
        buf_add_z(f->out, takes_path(o) ? " -rF" : " -x");
    if (o->one_of != NULL) {
        buf_add_z(f->out, " -a '");
        for (bool first = true; str_split(&rest, '|', &word); first = false)
            buf_printf(f->out, "%s%.*s", first ? "" : " ", STR_FMT(word));
        buf_add_c(f->out, '\'');
    }
    buf_add_c(f->out, '\n');
}

static void write_fish(struct buf *out)
{
    buf_add_z(out, "# Completions of bellhop for fish.\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const struct command *c = cli_commands[i];
        BUF_LOCAL verbs = BUF_INIT;
        buf_printf(out, "complete -c bellhop -f -n __fish_use_subcommand -a %s -d '", c->name);
        for (const char *p = c->summary; *p != '\0'; p++)
            buf_printf(out, *p == '\'' ? "\\%c" : "%c", *p);
        buf_add_z(out, "'\n");
        add_verbs(c, &verbs);
        if (verbs.n > 0)
            buf_printf(out,
                       "complete -c bellhop -f -n '__fish_seen_subcommand_from %s; and not "
                       "__fish_seen_subcommand_from %s' -a '%s'\n",
                       c->name, buf_z(&verbs), buf_z(&verbs));
        struct fish f = {.out = out, .command = c->name};
        each_option(c, &f, add_fish_option);
    }
}

bool manual_completion(const char *shell, struct buf *out)
{
    static const struct {
        const char *name;
        void (*write)(struct buf *out);
    } shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};

    for (size_t i = 0; shell != NULL && i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].write(out);
            return true;
        }
    return false;
}
