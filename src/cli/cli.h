/* cli.h - the library of the subcommands: options, errors, tables, requests to the running server.
 *
 * A subcommand is one struct command, listed in cli.c; a file holds one or several of them.  Exit
 * status: 0 done, 1 failed, 2 misused.  stdout carries only the result; hints and errors go to
 * stderr.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_MISUSED = 2 };

struct command {
    const char *name, *summary;
    const char *help; /* the whole text of --help, ready to print */
    int (*run)(const struct command *c, int argc, char **argv); /* argv[0] is the command */
};
extern const struct command *const cli_commands[]; /* ends with NULL */
extern const struct command cmd_serve, cmd_status, cmd_gateway, cmd_route, cmd_mailbox, cmd_outbox,
    cmd_doctor, cmd_backup, cmd_restore, cmd_key, cmd_store, cmd_agent, cmd_sleeper, cmd_token,
    cmd_link, cmd_scope, cmd_principal, cmd_policy, cmd_dm_default, cmd_why, cmd_skill, cmd_data,
    cmd_dispatch, cmd_mcp, cmd_node, cmd_version, cmd_erase, cmd_help;

/* ---- options ---- */
struct cli_option {
    const char *name;   /* "--tenant", "-c" */
    const char **value; /* for an option with a value: set when given */
    bool *flag;         /* for an option without one: set to true when given */
};
#define CLI_MAX_ARGS 8
struct cli_args {
    const char *config, *state_dir; /* -c, --state-dir: every command takes them */
    bool json, help;
    const char *rest[CLI_MAX_ARGS]; /* the positional arguments */
    int n_rest;
};
/* Parses "--name value", "--name=value", and "--", after which everything is positional.  False:
 * the error (or --help) has been printed; return cli_exit(). */
bool cli_parse(const struct command *c, int argc, char **argv, const struct cli_option *options,
               size_t n_options, struct cli_args *ret_args);
int cli_exit(const struct cli_args *a); /* after a failed cli_parse() */
int cli_misused(const struct command *c, const char *fmt, ...) BH_PRINTF(2, 3);
int cli_failed(const char *fmt, ...) BH_PRINTF(1, 2);

/* ---- running a subcommand ---- */
struct cli_job {
    const struct command *c;
    struct cli_args a;
    void *o;                    /* the command's own options */
    const struct v1_door *door; /* server and credential for /v1: v1.h; NULL: not used */
    struct json_parser *parser; /* owned by cli_run() */
    struct json doc;            /* the last answer, borrowed from the parser */
};
struct cli_verb {
    const char *name;
    int least, most;  /* number of arguments after the verb */
    const char *whom; /* the error when one is missing: "which gateway? Give its id" */
    int (*run)(struct cli_job *j);
};
/* Parses the options and runs the verb that the first argument names.  @verbs ends with a NULL
 * name.  @o becomes j->o. */
int cli_run(const struct command *c, int argc, char **argv, const struct cli_option *options,
            size_t n_options, const struct cli_verb *verbs, void *o);
int cli_run_verb(struct cli_job *j,
                 const struct cli_verb *verbs); /* after the options are parsed */
/* For a command without verbs, which takes no positional arguments. */
int cli_run_one(const struct command *c, int argc, char **argv, const struct cli_option *options,
                size_t n_options, int (*run)(struct cli_job *j), void *o);

/* ---- the running server: client.c ----
 *
 * Calls return CLI_DONE with the answer in j->doc, or print the error and return CLI_FAILED. */
struct cli_field { /* a parameter of a query, or a member of a body */
    const char *key;
    struct str text; /* absent: the field is left out, unless @raw is set */
    const char *raw; /* bodies: a JSON value, copied as it is */
};
#define CLI_FIELDS(...) \
    (const struct cli_field[]){__VA_ARGS__}, \
        sizeof((const struct cli_field[]){__VA_ARGS__}) / sizeof(struct cli_field)
int cli_get(struct cli_job *j, const char *path, const struct cli_field *query, size_t n);
/* Reads all pages and merges them: the members of the first page, its lists with the elements of
 * all pages. */
int cli_get_pages(struct cli_job *j, const char *path, const struct cli_field *query, size_t n);
int cli_post(struct cli_job *j, const char *path, const struct cli_field *body, size_t n);

/* One request with headers, a timeout, or to a server on another machine. */
struct cli_request {
    const char *method, *path;
    struct str body;            /* absent: none */
    const char *const *headers; /* NULL-terminated; NULL: none */
    struct str url;             /* http(s)://host without a path; absent: the admin socket */
    int64_t timeout_ms;         /* 0: 15 s */
};
int cli_ask(const struct cli_args *a, const struct cli_request *rq, struct json_parser *parser,
            struct json *ret_doc);
/* The state directory, from the arguments or the configuration; the caller frees it.  NULL: the
 * error has been printed. */
char *cli_state_dir(const struct cli_args *a);

/* ---- for people ---- */
#define CLI_COLUMNS 10
struct cli_table { /* rows of owned text, printed with aligned columns */
    size_t columns;
    char **cells;
    size_t n;
};
void cli_cell(struct cli_table *t, const char *fmt, ...) BH_PRINTF(2, 3);
void cli_cell_str(struct cli_table *t, struct str s); /* absent or empty: "-" */
void cli_table_print(struct cli_table *t);            /* frees the table too */
/* "12s", "3m", "5h", "2d" before @now; "-" when @then is absent. */
void cli_cell_ago(struct cli_table *t, int64_t now, struct json then);
int64_t cli_i64(struct json object, const char *key); /* 0 when absent */
bool cli_bool(struct json object, const char *key);   /* false when absent */
void cli_print_json(struct json v);
/* After a request that ended with @rc: prints j->doc, as JSON or by @print (NULL: nothing). */
int cli_show(struct cli_job *j, int rc, void (*print)(struct cli_job *j));

/* Rows of objects as a table.  A value is printed by its type: text, number, yes or no, list. */
struct cli_column {
    const char *head, *key;
    bool ago; /* a time in ms, printed as its age before j->doc's "now" */
    void (*cell)(struct cli_table *t, struct json row); /* writes the cell, instead of @key */
};
void cli_print_rows(struct cli_job *j, struct json rows, const struct cli_column *columns,
                    size_t n);
/* Prints the list @member of the answer, as JSON or as a table.  Empty: prints @none to stderr. */
int cli_show_rows(struct cli_job *j, int rc, const char *member, const struct cli_column *columns,
                  size_t n, const char *none);
/* Asks for confirmation on the terminal, unless @yes.  False: the person declined, or there is no
 * terminal; then the error names @what. */
bool cli_confirm(bool yes, const char *what, const char *fmt, ...) BH_PRINTF(3, 4);
