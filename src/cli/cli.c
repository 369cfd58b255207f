/* cli.c - options, verbs, errors, tables, and `bellhop help`.  (cli.h has the contract.) */
#include "cli/cli.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cli/settings.h"
#include "http/op.h"

const struct command *const cli_commands[] = {
    &cmd_serve,  &cmd_status,    &cmd_gateway, &cmd_token,      &cmd_route,   &cmd_link,
    &cmd_scope,  &cmd_principal, &cmd_policy,  &cmd_dm_default, &cmd_why,     &cmd_mailbox,
    &cmd_outbox, &cmd_doctor,    &cmd_erase,   &cmd_backup,     &cmd_restore, &cmd_key,
    &cmd_store,  &cmd_agent,     &cmd_sleeper, &cmd_skill,      &cmd_data,    &cmd_dispatch,
    &cmd_mcp,    &cmd_node,      &cmd_version, &cmd_help,       NULL,
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

int cli_misused(const struct command *c, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "bellhop %s: ", c->name);
    va_start(ap, fmt);
    tell(fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nTry: bellhop help %s\n", c->name);
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

static const struct cli_option *find_option(const struct cli_option *options, size_t n,
                                            struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq(str_of(options[i].name), name))
            return &options[i];
    return NULL;
}

/* Apply argv[*i]; advances past its value. */
static bool take_option(const struct command *c, int argc, char **argv, int *i,
                        const struct cli_option *o, const char *inline_value)
{
    if (o->flag != NULL) {
        if (inline_value != NULL) {
            cli_misused(c, "%s takes no value", o->name);
            return false;
        }
        *o->flag = true;
        return true;
    }
    if (inline_value == NULL && *i + 1 >= argc) {
        cli_misused(c, "%s needs a value", o->name);
        return false;
    }
    *o->value = inline_value != NULL ? inline_value : argv[++*i];
    return true;
}

bool cli_parse(const struct command *c, int argc, char **argv, const struct cli_option *options,
               size_t n_options, struct cli_args *a)
{
    const struct cli_option common[] = {{"-c", &a->config, NULL},
                                        {"--config", &a->config, NULL},
                                        {"--state-dir", &a->state_dir, NULL},
                                        {"--json", NULL, &a->json},
                                        {"--help", NULL, &a->help},
                                        {"-h", NULL, &a->help}};
    bool only_rest = false;

    *a = (struct cli_args){0};
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        struct str name =
            equals != NULL ? str_make(argv[i], (size_t)(equals - argv[i])) : str_of(argv[i]);
        if (only_rest || argv[i][0] != '-' || argv[i][1] == '\0') {
            if (a->n_rest == CLI_MAX_ARGS) {
                cli_misused(c, "too many arguments");
                return false;
            }
            a->rest[a->n_rest++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            only_rest = true;
            continue;
        }
        const struct cli_option *o = find_option(options, n_options, name);
        if (o == NULL)
            o = find_option(common, ARRAY_LEN(common), name);
        if (o == NULL) {
            cli_misused(c, "unknown option \"%s\"", argv[i]);
            return false;
        }
        if (!take_option(c, argc, argv, &i, o, equals != NULL ? equals + 1 : NULL))
            return false;
    }
    if (a->help)
        fputs(c->help, stdout);
    return !a->help;
}

int cli_exit(const struct cli_args *a)
{
    return a->help ? CLI_DONE : CLI_MISUSED;
}

/* ---- verbs ---- */

static int unknown_verb(const struct command *c, const struct cli_verb *verbs, const char *name)
{
    struct buf known = BUF_INIT;

    for (const struct cli_verb *v = verbs; v->name != NULL; v++)
        if (*v->name != '\0')
            buf_printf(&known, "%s%s", known.n > 0 ? ", " : "", v->name);
    int rc = *name == '\0' ? cli_misused(c, "which of %s?", buf_z(&known))
                           : cli_misused(c, "there is no \"%s %s\"; which of %s?", c->name, name,
                                         buf_z(&known));
    buf_done(&known);
    return rc;
}

int cli_run_verb(struct cli_job *j, const struct cli_verb *verbs)
{
    const char *name = j->a.n_rest > 0 ? j->a.rest[0] : "";
    const struct cli_verb *v = verbs;
    int n = j->a.n_rest > 0 ? j->a.n_rest - 1 : 0;

    while (v->name != NULL && strcmp(v->name, name) != 0)
        v++;
    if (v->name == NULL)
        return unknown_verb(j->c, verbs, name);
    if (n < v->least)
        return cli_misused(j->c, "%s %s", name, v->whom);
    if (n > v->most)
        return cli_misused(j->c, "unexpected \"%s\"", j->a.rest[v->most + 1]);
    return v->run(j);
}

int cli_run(const struct command *c, int argc, char **argv, const struct cli_option *options,
            size_t n_options, const struct cli_verb *verbs, void *o)
{
    struct cli_job j = {.c = c, .o = o};

    if (!cli_parse(c, argc, argv, options, n_options, &j.a))
        return cli_exit(&j.a);
    j.parser = json_parser_new();
    int rc = cli_run_verb(&j, verbs);
    json_parser_free(j.parser);
    return rc;
}

int cli_run_one(const struct command *c, int argc, char **argv, const struct cli_option *options,
                size_t n_options, int (*run)(struct cli_job *j), void *o)
{
    struct cli_job j = {.c = c, .o = o};

    if (!cli_parse(c, argc, argv, options, n_options, &j.a))
        return cli_exit(&j.a);
    if (j.a.n_rest > 0)
        return cli_misused(c, "unexpected \"%s\"", j.a.rest[0]);
    j.parser = json_parser_new();
    int rc = run(&j);
    json_parser_free(j.parser);
    return rc;
}

/* ---- tables ---- */

static void add_cell(struct cli_table *t, char *text)
{
    t->cells = xrealloc(t->cells, (t->n + 1) * sizeof(char *));
    t->cells[t->n++] = text;
}

void cli_cell(struct cli_table *t, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    add_cell(t, xstrdup(text));
}

void cli_cell_str(struct cli_table *t, struct str s)
{
    add_cell(t, str_is_empty(s) ? xstrdup("-") : str_dup(s));
}

void cli_cell_ago(struct cli_table *t, int64_t now, struct json then)
{
    int64_t at, s;

    if (!json_as_i64(then, &at)) {
        cli_cell(t, "-");
        return;
    }
    s = (now - at) / 1000;
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

void cli_table_print(struct cli_table *t)
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
    }
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct cli_table){0};
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

void cli_print_rows(struct cli_job *j, struct json rows, const struct cli_column *columns, size_t n)
{
    struct cli_table t = {.columns = n};

    for (size_t i = 0; i < n; i++)
        cli_cell(&t, "%s", columns[i].head);
    for (struct json_iter it = {0}; json_next(rows, &it);)
        for (size_t i = 0; i < n; i++) {
            if (columns[i].cell != NULL)
                columns[i].cell(&t, it.value);
            else if (columns[i].ago)
                cli_cell_ago(&t, cli_i64(j->doc, "now"), json_get(it.value, columns[i].key));
            else
                cell_of(&t, json_get(it.value, columns[i].key));
        }
    cli_table_print(&t);
}

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

int cli_show(struct cli_job *j, int rc, void (*print)(struct cli_job *j))
{
    if (rc == CLI_DONE && j->a.json)
        cli_print_json(j->doc);
    else if (rc == CLI_DONE && print != NULL)
        print(j);
    return rc;
}

int cli_show_rows(struct cli_job *j, int rc, const char *member, const struct cli_column *columns,
                  size_t n, const char *none)
{
    struct json rows = rc == CLI_DONE ? json_get(j->doc, member) : (struct json){0};

    if (rc == CLI_DONE && j->a.json)
        cli_print_json(rows);
    else if (rc == CLI_DONE && json_count(rows) == 0)
        fprintf(stderr, "%s\n", none);
    else if (rc == CLI_DONE)
        cli_print_rows(j, rows, columns, n);
    return rc;
}

bool cli_confirm(bool yes, const char *what, const char *fmt, ...)
{
    char line[16] = "";
    va_list ap;

    if (yes)
        return true;
    if (!isatty(STDIN_FILENO)) {
        cli_failed("%s; add --yes if that is meant", what);
        return false;
    }
    va_start(ap, fmt);
    tell(fmt, ap);
    va_end(ap);
    return fgets(line, sizeof line, stdin) != NULL && (line[0] | 32) == 'y';
}

/* ---- help, version ---- */

static void overview(void)
{
    puts("bellhop - a connector between chat platforms and AI agents\n\nUsage: bellhop COMMAND "
         "...\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        printf("  %-9s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    puts("\nMore: bellhop help COMMAND, bellhop help config (every setting), bellhop help limits,\n"
         "bellhop help api (/v1 and the tools of /mcp)\n"
         "First steps: bellhop serve, then in another terminal\n"
         "  bellhop gateway add --tenant me --platform web --bot lobby");
}

static int run_help(const struct command *c, int argc, char **argv)
{
    struct cli_args a;

    if (!cli_parse(c, argc, argv, NULL, 0, &a))
        return cli_exit(&a);
    if (a.n_rest == 0) {
        overview();
        return CLI_DONE;
    }
    struct buf out = BUF_INIT;
    if (strcmp(a.rest[0], "config") == 0)
        config_describe(&settings_schema, &out);
    else if (strcmp(a.rest[0], "limits") == 0)
        limits_describe(&out);
    else if (strcmp(a.rest[0], "api") == 0)
        op_reference(&out);
    if (out.n > 0) {
        fputs(buf_z(&out), stdout);
        buf_done(&out);
        return CLI_DONE;
    }
    for (size_t i = 0; cli_commands[i] != NULL; i++)
        if (strcmp(cli_commands[i]->name, a.rest[0]) == 0) {
            fputs(cli_commands[i]->help, stdout);
            return CLI_DONE;
        }
    return cli_misused(c, "there is no command \"%s\"", a.rest[0]);
}

static int run_version(const struct command *c, int argc, char **argv)
{
    struct cli_args a;

    if (!cli_parse(c, argc, argv, NULL, 0, &a))
        return cli_exit(&a);
    if (a.json)
        printf("{\"version\":\"%s\"}\n", BELLHOP_VERSION);
    else
        printf("bellhop %s\n", BELLHOP_VERSION);
    return CLI_DONE;
}

const struct command cmd_help = {
    "help",
    "this, or one command in full",
    "Usage: bellhop help [COMMAND | config | limits | api]\n",
    run_help,
};

const struct command cmd_version = {
    "version",
    "which bellhop this is",
    "Usage: bellhop version [--json]\n",
    run_version,
};
