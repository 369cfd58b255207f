/* cli.c - options, verbs, errors, tables, and `bellhop help`.  (cli.h has the contract.) */
#include "cli/cli.h"
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/manual.h"
#include "cli/settings.h"
#include "platform/platform.h"

const struct command *const cli_commands[] = {
    &cmd_setup,   &cmd_serve,  &cmd_status,    &cmd_gateway, &cmd_token,       &cmd_route,
    &cmd_link,    &cmd_scope,  &cmd_principal, &cmd_policy,  &cmd_allowance,   &cmd_dm_default,
    &cmd_pairing, &cmd_why,    &cmd_mailbox,   &cmd_outbox,  &cmd_audit,       &cmd_trace,
    &cmd_top,     &cmd_doctor, &cmd_erase,     &cmd_backup,  &cmd_restore,     &cmd_key,
    &cmd_store,   &cmd_agent,  &cmd_sleeper,   &cmd_skill,   &cmd_data,        &cmd_dispatch,
    &cmd_mcp,     &cmd_node,   &cmd_say,       &cmd_expect,  &cmd_conformance, &cmd_dashboard,
    &cmd_version, &cmd_help,   &cmd_matrix,    NULL,
};

/* Prints to stderr, made harmless by buf_add_plain(): paths, records and answers may contain any
 * bytes. */
static void BH_PRINTF(1, 0) tell(const char *fmt, va_list ap)
{
    struct buf out = BUF_INIT;
    char *said = NULL;
    struct str rest, line;

    rest = vasprintf(&said, fmt, ap) >= 0 ? str_of(said) : STR("out of memory");
    for (bool first = true; str_split(&rest, '\n', &line); first = false) {
        if (!first)
            buf_add_c(&out, '\n');
        buf_add_plain(&out, line);
    }
    fwrite(buf_str(&out).p, 1, out.n, stderr);
    free(said);
    buf_done(&out);
}

struct str cli_shown(struct json obj, const char *key)
{
    static struct buf ring[32]; /* two for each text of one printf(): STR_FMT() asks twice */
    static size_t next;
    struct str text = json_str(obj, key);
    struct buf *out = &ring[next++ % ARRAY_LEN(ring)];

    buf_reset(out);
    buf_add_plain(out, text);
    return text.p != NULL ? str_of(buf_z(out)) : STR_NULL;
}

int cli_misused(const struct cli_job *j, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "bellhop %s: ", j->c->name);
    va_start(ap, fmt);
    tell(fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry: bellhop help %s\n", j->c->name);
    return CLI_MISUSED;
}

int cli_failed(const char *fmt, ...)
{
    va_list ap;

    fputs("bellhop: ", stderr);
    va_start(ap, fmt);
    tell(fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return CLI_FAILED;
}

/* ---- options ---- */

const struct cli_option cli_common_options[] = {
    {"-c"},
    {"--config"},
    {"--state-dir"},
    {"--json", .kind = CLI_FLAG},
    {"--help", .kind = CLI_FLAG},
    {"-h", .kind = CLI_FLAG},
    {0},
};

const struct cli_option cli_v1_options[] = {
    /* V1_OPTIONS_HELP explains them */
    {"--tenant"}, {"--namespace"}, {"--url"}, {"--key-file"}, {0},
};

static const struct cli_option *find_option(const struct cli_option *options, struct str name)
{
    for (const struct cli_option *o = options; o != NULL && o->name != NULL; o++)
        if (str_eq(str_of(o->name), name))
            return o;
    return NULL;
}

static const struct cli_option *option_of(const struct command *c, struct str name)
{
    const struct cli_option *o = find_option(c->options, name);

    if (o == NULL && c->v1)
        o = find_option(cli_v1_options, name);
    return o != NULL ? o : find_option(cli_common_options, name);
}

const char *cli_value(const struct cli_job *j, const char *option)
{
    const struct cli_option *o = option_of(j->c, str_of(option));

    assert(o != NULL);
    for (size_t i = j->n_given; i-- > 0;)
        if (j->given[i].option == o)
            return j->given[i].value;
    return NULL;
}

bool cli_flag(const struct cli_job *j, const char *option)
{
    return cli_value(j, option) != NULL;
}

int64_t cli_number(const struct cli_job *j, const char *option, int64_t otherwise)
{
    const char *text = cli_value(j, option);
    int64_t v = otherwise;

    if (text != NULL && !str_to_i64(str_of(text), &v))
        str_to_duration_ms(str_of(text), &v);
    return v;
}

static bool is_word_of(const char *words, char separator, struct str word)
{
    struct str rest = str_of(words), one;

    while (words != NULL && str_split(&rest, separator, &one))
        if (str_eq(one, word))
            return true;
    return false;
}

/* CLI_DONE: the value is of the option's kind. */
static int check_value(const struct cli_job *j, const struct cli_option *o, const char *value)
{
    struct str text = str_of(value);
    int64_t n;

    if (o->kind == CLI_DURATION && !str_to_duration_ms(text, &n))
        return cli_misused(j, "%s takes a duration such as 30s, 5m or 1h, not \"%s\"", o->name,
                           value);
    if (o->kind == CLI_NUMBER && (!str_to_i64(text, &n) || n < 1))
        return cli_misused(j, "%s takes a whole number from 1, not \"%s\"", o->name, value);
    if (o->one_of != NULL && !is_word_of(o->one_of, '|', text))
        return cli_misused(j, "%s is one of %s, not \"%s\"", o->name, o->one_of, value);
    return CLI_DONE;
}

/* Takes the option argv[*i], and advances past its value. */
static int take_option(struct cli_job *j, int argc, char **argv, int *i)
{
    const char *equals = strchr(argv[*i], '='), *value = equals != NULL ? equals + 1 : NULL;
    struct str name =
        equals != NULL ? str_make(argv[*i], (size_t)(equals - argv[*i])) : str_of(argv[*i]);
    const struct cli_option *o = option_of(j->c, name);

    if (o == NULL)
        return cli_misused(j, "unknown option \"%s\"", argv[*i]);
    if (o->kind == CLI_FLAG && value != NULL)
        return cli_misused(j, "%s takes no value", o->name);
    if (o->kind != CLI_FLAG && value == NULL && *i + 1 >= argc)
        return cli_misused(j, "%s needs a value", o->name);
    if (j->n_given == CLI_MAX_OPTIONS)
        return cli_misused(j, "too many options");
    if (o->kind == CLI_FLAG)
        value = "";
    else if (value == NULL)
        value = argv[++*i];
    j->given[j->n_given].option = o;
    j->given[j->n_given++].value = value;
    return check_value(j, o, value);
}

/* Reads "--name value", "--name=value", and "--", after which everything is an argument. */
static int parse(struct cli_job *j, int argc, char **argv)
{
    bool only_args = false;
    int rc = CLI_DONE;

    for (int i = 1; i < argc && rc == CLI_DONE; i++) {
        bool ends = strcmp(argv[i], "--") == 0 && !only_args;
        if (ends && j->c->program) {
            j->program = argv + i + 1;
            break;
        }
        if (ends)
            only_args = true;
        else if (!only_args && argv[i][0] == '-' && argv[i][1] != '\0')
            rc = take_option(j, argc, argv, &i);
        else if (j->n_args == CLI_MAX_ARGS)
            rc = cli_misused(j, "too many arguments");
        else
            j->args[j->n_args++] = argv[i];
    }
    const char *config = cli_value(j, "--config");
    j->config = config != NULL ? config : cli_value(j, "-c");
    j->state_dir = cli_value(j, "--state-dir");
    j->json = cli_flag(j, "--json");
    j->help = cli_flag(j, "--help") || cli_flag(j, "-h");
    return rc;
}

/* ---- verbs ---- */

static int unknown_verb(const struct cli_job *j)
{
    struct buf known = BUF_INIT;
    const char *name = j->args[0];

    for (const struct cli_verb *v = j->c->verbs; v->name != NULL; v++)
        if (*v->name != '\0')
            buf_printf(&known, "%s%s", known.n > 0 ? ", " : "", v->name);
    int rc = name == NULL
                 ? cli_misused(j, "what to do? One of: %s", buf_z(&known))
                 : cli_misused(j, "there is no \"%s %s\"%s. There are: %s", j->c->name, name,
                               j->c->program ? "; put -- before a program" : "", buf_z(&known));
    buf_done(&known);
    return rc;
}

/* Finds the verb that the first argument names, and removes that argument. */
static bool find_verb(struct cli_job *j)
{
    const struct cli_verb *verbs = j->c->verbs, *plain = NULL;
    bool only = verbs[1].name == NULL;

    for (const struct cli_verb *v = verbs; v->name != NULL; v++) {
        if (*v->name == '\0')
            plain = v;
        else if (j->n_args > 0 && strcmp(v->name, j->args[0]) == 0)
            j->verb = v;
    }
    if (j->verb != NULL) {
        memmove(j->args, j->args + 1, (CLI_MAX_ARGS - 1) * sizeof j->args[0]);
        j->args[--j->n_args] = NULL;
    } else if (plain != NULL && (j->n_args == 0 || only)) {
        j->verb = plain;
    }
    return j->verb != NULL;
}

static int check_args(const struct cli_job *j)
{
    struct str rest = str_of(j->verb->args), word;
    const char *blank = *j->verb->name != '\0' ? " " : "";
    int n = 0;

    for (; j->verb->args != NULL && str_split(&rest, ' ', &word); n++)
        if (n >= j->n_args && word.p[0] != '[')
            return cli_misused(j, "%s%sneeds an argument: %.*s", j->verb->name, blank,
                               STR_FMT(word));
    if (j->n_args > n)
        return cli_misused(j, "unexpected \"%s\"%s", j->args[n],
                           j->c->program ? "; put -- before the program" : "");
    return CLI_DONE;
}

static int check_options(const struct cli_job *j)
{
    struct str rest = str_of(j->verb->needs), word;
    struct buf missing = BUF_INIT;
    int rc = CLI_DONE;

    while (j->verb->needs != NULL && str_split(&rest, ' ', &word)) {
        char *name = str_dup(word);
        if (cli_value(j, name) == NULL)
            buf_printf(&missing, "%s%s", missing.n > 0 ? ", " : "", name);
        free(name);
    }
    if (missing.n > 0)
        rc = cli_misused(j, "%s%sneeds %s", j->verb->name, *j->verb->name != '\0' ? " " : "",
                         buf_z(&missing));
    for (size_t i = 0; rc == CLI_DONE && j->verb->takes != NULL && i < j->n_given; i++)
        if (find_option(cli_common_options, str_of(j->given[i].option->name)) == NULL &&
            !is_word_of(j->verb->takes, ' ', str_of(j->given[i].option->name)))
            rc = cli_misused(j, "%s does not take %s", j->verb->name, j->given[i].option->name);
    buf_done(&missing);
    return rc;
}

int cli_run(const struct command *c, int argc, char **argv)
{
    struct cli_job j = {.c = c};
    struct cli_door door;
    int rc = parse(&j, argc, argv);

    if (j.help) {
        fputs(c->help, stdout);
        return CLI_DONE;
    }
    if (rc != CLI_DONE)
        return rc;
    if (!find_verb(&j))
        return unknown_verb(&j);
    if ((rc = check_args(&j)) != CLI_DONE || (rc = check_options(&j)) != CLI_DONE)
        return rc;
    if (c->v1 && !cli_door_open(&j, &door, &rc))
        return rc;
    j.door = c->v1 ? &door : NULL;
    j.parser = json_parser_new();
    rc = j.verb->run != NULL ? j.verb->run(&j) : cli_do(&j);
    json_parser_free(j.parser);
    arena_done(&j.arena);
    if (c->v1)
        cli_door_done(&door);
    return rc;
}

/* ---- answers ---- */

int64_t cli_i64(struct json object, const char *key)
{
    int64_t v = 0;

    json_as_i64(json_get(object, key), &v);
    return v;
}

bool cli_bool(struct json object, const char *key)
{
    return json_as_bool(json_get(object, key), false);
}

void cli_print_json(struct json v)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_value(&w, v);
    fwrite(out.p, 1, out.n, stdout);
    fputc('\n', stdout);
    buf_done(&out);
}

int cli_show(struct cli_job *j, int rc)
{
    const struct cli_verb *v = j->verb;
    struct json doc = j->doc;

    if (rc != CLI_DONE)
        return rc;
    if (v->member != NULL)
        doc = json_get(doc, v->member);
    if (j->json)
        cli_print_json(doc);
    else if (v->none != NULL && json_count(doc) == 0)
        fprintf(stderr, "%s\n", v->none);
    else if (v->columns != NULL)
        cli_print_rows(j, doc, v->columns);
    else if (v->print != NULL)
        v->print(j);
    for (struct json_iter it = {0}; !j->json && json_next(json_get(j->doc, "warnings"), &it);) {
        struct str bot = json_str(it.value, "bot"); /* `status` has {platform?, bot?, words} */
        fprintf(stderr, "Warning: %.*s%s%.*s%s%.*s\n", STR_FMT(json_str(it.value, "platform")),
                bot.p != NULL ? " " : "", STR_FMT(bot), bot.p != NULL ? ": " : "",
                STR_FMT(json_is_object(it.value) ? json_str(it.value, "words")
                                                 : json_as_str(it.value)));
    }
    if (v->member != NULL && cli_i64(j->doc, "more") > 0)
        fprintf(stderr, "... and %" PRId64 " more\n", cli_i64(j->doc, "more"));
    if (v->done != NULL && !j->json) {
        struct str rest = str_of(v->done), head;
        str_split(&rest, '%', &head);
        fprintf(stderr, "%.*s%s%s\n", STR_FMT(head), rest.n > 0 ? j->args[0] : "",
                rest.n > 0 ? rest.p + 1 : "");
    }
    return rc;
}

int cli_do(struct cli_job *j)
{
    return cli_show(j, cli_request(j));
}

/* ---- tables ---- */

static void add_cell(struct cli_table *t, struct str text)
{
    struct buf shown = BUF_INIT;

    buf_add_plain(&shown, text);
    t->cells = xrealloc(t->cells, (t->n + 1) * sizeof(char *));
    t->cells[t->n++] = buf_take(&shown);
}

void cli_cell(struct cli_table *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    add_cell(t, str_of(text));
}

void cli_cell_str(struct cli_table *t, struct str s)
{
    add_cell(t, str_is_empty(s) ? STR("-") : s);
}

/* "12s", "3m", "5h", "2d"; "-" when the row has no such time. */
static void cell_ago(struct cli_table *t, int64_t now_s, struct json then, int64_t unit)
{
    int64_t at, s;

    if (!json_as_i64(then, &at)) {
        cli_cell(t, "-");
        return;
    }
    s = now_s - at / unit;
    if (s < 0)
        s = 0;
    if (s < 120)
        cli_cell(t, "%" PRId64 "s", s);
    else if (s < 7200)
        cli_cell(t, "%" PRId64 "m", s / 60);
    else if (s < 172800)
        cli_cell(t, "%" PRId64 "h", s / 3600);
    else
        cli_cell(t, "%" PRId64 "d", s / 86400);
}

static void cell_of(struct cli_table *t, struct json v)
{
    struct buf text = BUF_INIT;
    int64_t number;

    switch (json_type(v)) {
    case JSON_BOOL:
        cli_cell(t, "%s", json_as_bool(v, false) ? "yes" : "no");
        break;
    case JSON_NUMBER:
        cli_cell(t, "%" PRId64, json_as_i64(v, &number) ? number : 0);
        break;
    case JSON_ARRAY:
        for (struct json_iter it = {0}; json_next(v, &it);)
            buf_printf(&text, "%s%.*s", text.n > 0 ? "," : "", STR_FMT(json_as_str(it.value)));
        cli_cell_str(t, buf_str(&text));
        break;
    default:
        cli_cell_str(t, json_as_str(v));
    }
    buf_done(&text);
}

/* Prints the cells with aligned columns, and frees them. */
static void print_table(struct cli_table *t)
{
    size_t width[CLI_COLUMNS] = {0};

    for (size_t i = 0; i < t->n; i++) {
        size_t n = utf8_chars(str_of(t->cells[i]));
        if (n > width[i % t->columns])
            width[i % t->columns] = n;
    }
    for (size_t i = 0; i < t->n; i++) {
        size_t column = i % t->columns, n = utf8_chars(str_of(t->cells[i]));
        fputs(t->cells[i], stdout);
        if (column + 1 == t->columns)
            fputc('\n', stdout);
        else
            printf("%*s", (int)(width[column] - n + 2), "");
        free(t->cells[i]);
    }
    free(t->cells);
}

void cli_print_rows(struct cli_job *j, struct json rows, const struct cli_column *columns)
{
    struct cli_table t = {0};
    int64_t now_s = cli_i64(j->doc, "now") / 1000;

    if (now_s == 0)
        now_s = (int64_t)time(NULL);
    for (const struct cli_column *c = columns; c->head != NULL; c++, t.columns++)
        cli_cell(&t, "%s", c->head);
    for (struct json_iter it = {0}; json_next(rows, &it);)
        for (const struct cli_column *c = columns; c->head != NULL; c++) {
            if (c->cell != NULL)
                c->cell(&t, it.value);
            else if (c->ago != 0)
                cell_ago(&t, now_s, json_get(it.value, c->key), c->ago == CLI_AGO_S ? 1 : 1000);
            else
                cell_of(&t, json_get(it.value, c->key));
        }
    print_table(&t);
}

bool cli_confirm(const struct cli_job *j, const char *what, const char *fmt, ...)
{
    char line[16] = "";
    va_list ap;

    if (cli_flag(j, "--yes"))
        return true;
    if (!isatty(STDIN_FILENO)) {
        cli_failed("%s. Add --yes to confirm", what);
        return false;
    }
    va_start(ap, fmt);
    tell(fmt, ap);
    va_end(ap);
    return fgets(line, sizeof line, stdin) != NULL && (line[0] | 32) == 'y';
}

void cli_link_how(struct str platform)
{
    const struct platform_ops *ops = platform_find(platform);

    if (ops != NULL && ops->link_how != NULL)
        fprintf(stderr, "%s\n", ops->link_how);
}

/* ---- help, version ---- */

static int overview(void)
{
    puts("bellhop - a connector between chat platforms and AI agents\n\nUsage: bellhop COMMAND "
         "...\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        printf("  %-12s%s\n", cli_commands[i]->name, cli_commands[i]->summary);
    puts("\nMore: bellhop help COMMAND, bellhop help config (every setting), bellhop help limits,\n"
         "bellhop help api (/v1 and the tools of /mcp)\n"
         "First steps: bellhop setup");
    return CLI_DONE;
}

static int help(struct cli_job *j)
{
    const char *topic = j->args[0];
    struct buf out = BUF_INIT;

    if (topic == NULL)
        return overview();
    if (strcmp(topic, "completion") == 0 && !manual_completion(j->args[1], &out))
        return cli_misused(j, "completions are for bash, zsh and fish");
    if (strcmp(topic, "config") == 0)
        config_describe(&settings_schema, &out);
    else if (strcmp(topic, "limits") == 0)
        limits_describe(&out);
    else if (strcmp(topic, "api") == 0)
        op_reference(&out);
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(cli_commands[i]->name, topic) == 0)
            buf_add_z(&out, cli_commands[i]->help);
        else if (strcmp(topic, "man") == 0 && j->args[1] != NULL &&
                 strcmp(cli_commands[i]->name, j->args[1]) == 0)
            manual_page(cli_commands[i], &out);
        else if (strcmp(topic, "man") == 0 && j->args[1] == NULL)
            buf_printf(&out, "%s\n", cli_commands[i]->name);
    if (out.n == 0)
        return cli_misused(j, "there is no command \"%s\"", topic);
    fputs(buf_z(&out), stdout);
    buf_done(&out);
    return CLI_DONE;
}

static int version(struct cli_job *j)
{
    printf(j->json ? "{\"version\":\"%s\"}\n" : "bellhop %s\n", BELLHOP_VERSION);
    return CLI_DONE;
}

const struct command cmd_help = {
    .name = "help",
    .summary = "list the commands, or explain one of them",
    .help = "Usage: bellhop help [COMMAND | config | limits | api]\n"
            "       bellhop help man [COMMAND]\n"
            "       bellhop help completion bash|zsh|fish\n\n"
            "man         prints the man page of a command; without one, the names of all commands\n"
            "completion  prints the completions for a shell, for example:\n"
            "            source <(bellhop help completion bash)\n",
    .verbs = (const struct cli_verb[]){{"", .args = "[topic] [more]", .run = help}, {0}},
};

const struct command cmd_version = {
    .name = "version",
    .summary = "print the version of this program",
    .help = "Usage: bellhop version [--json]\n",
    .verbs = (const struct cli_verb[]){{"", .run = version}, {0}},
};
