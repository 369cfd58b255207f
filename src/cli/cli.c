/* cli.c - options, errors and tables. */
#include "cli/cli.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"

const struct command *const cli_commands[] = {
    &cmd_serve,  &cmd_status,    &cmd_gateway, &cmd_token,      &cmd_route,   &cmd_link,
    &cmd_scope,  &cmd_principal, &cmd_policy,  &cmd_dm_default, &cmd_why,     &cmd_mailbox,
    &cmd_outbox, &cmd_doctor,    &cmd_erase,   &cmd_backup,     &cmd_restore, &cmd_key,
    &cmd_store,  &cmd_agent,     &cmd_sleeper, &cmd_skill,      &cmd_data,    &cmd_dispatch,
    &cmd_mcp,    &cmd_node,      &cmd_version, &cmd_help,       NULL,
};

/* Lines are ours; what stands in them may be anybody's: a path, a record, a peer's answer. */
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

int64_t cli_i64(struct json object, const char *key)
{
    int64_t v = 0;

    json_as_i64(json_get(object, key), &v);
    return v;
}
