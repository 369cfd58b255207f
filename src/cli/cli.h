/* cli.h - the library of the subcommands: options, verbs, requests to the running server, tables.
 *
 * A subcommand is one struct command, listed in cli.c; a file holds one or several of them.  Most
 * verbs are one line of a table: the options they need, the request they make, and the columns of
 * the answer.
 *
 *      {"list", .request = "GET /admin/routes", .member = "routes", .columns = columns,
 *       .none = "No route yet."},
 *      {"revoke", .args = "id", .request = "POST /admin/gateways/revoke"},
 *
 * A verb with steps of its own has a run(), which calls cli_do() or the parts of it.  Exit status:
 * 0 done, 1 failed, 2 misused.  stdout carries only the result; hints and errors go to stderr.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

struct cli_job;
struct cli_table;
struct config;

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_MISUSED = 2 };

/* ---- tables of a command ---- */

enum cli_kind {
    CLI_TEXT,
    CLI_FLAG,     /* takes no value */
    CLI_DURATION, /* "5m"; requests carry milliseconds */
    CLI_NUMBER,   /* a whole number from 1 */
    CLI_WORDS,    /* "a,b"; requests carry a list */
};
struct cli_option {
    const char *name; /* "--tenant" */
    const char *key;  /* its name in requests; NULL: requests do not carry it */
    enum cli_kind kind;
    const char *one_of; /* the words it may be: "exit|freeze"; NULL: any */
};
struct cli_field { /* a parameter of a query, or a member of a body */
    const char *key;
    struct str text; /* absent: the field is left out, unless @raw is set */
    const char *raw; /* a JSON value, copied as it is */
};
struct cli_column {
    const char *head, *key;
    enum { CLI_AGO_MS = 1, CLI_AGO_S } ago; /* a time, printed as its age before "now" */
    void (*cell)(struct cli_table *t, struct json row); /* writes the cell, instead of @key */
};
struct cli_verb {
    const char *name;  /* "": the command without a verb */
    const char *args;  /* the keys of its arguments in requests: "name [version]" */
    const char *needs; /* required options: "--tenant --key" */
    const char *takes; /* the only options it takes; NULL: all of the command */
    /* The request: the given options, the arguments, and @fixed. */
    const char *request; /* "GET /admin/routes": all pages; "POST /admin/token" */
    const char *op;      /* an operation of /v1; takes those options that are its arguments */
    struct cli_field fixed;
    int64_t timeout_ms; /* of a request over the admin socket; 0: 15 s */
    /* The answer, or its @member: with --json as JSON, else by @columns or @print. */
    const char *member;
    const struct cli_column *columns; /* ends with a NULL head */
    const char *none;                 /* to stderr instead of an empty table */
    void (*print)(struct cli_job *j); /* called for no --json only */
    const char *done;                 /* a sentence for stderr; "%s" is the first argument */
    int (*run)(struct cli_job *j);    /* instead of cli_do() */
};
struct command {
    const char *name, *summary;
    const char *help;                 /* the whole text of --help, ready to print */
    const struct cli_verb *verbs;     /* ends with a NULL name */
    const struct cli_option *options; /* ends with a NULL name; NULL: none of its own */
    bool v1;                          /* takes the options of V1_OPTIONS_HELP, and opens j->door */
    bool program;                     /* the words after "--" are a program */
};
extern const struct command *const cli_commands[]; /* ends with NULL */
extern const struct command cmd_serve, cmd_status, cmd_gateway, cmd_route, cmd_mailbox, cmd_outbox,
    cmd_doctor, cmd_backup, cmd_restore, cmd_key, cmd_store, cmd_agent, cmd_sleeper, cmd_token,
    cmd_link, cmd_scope, cmd_principal, cmd_policy, cmd_dm_default, cmd_why, cmd_skill, cmd_data,
    cmd_dispatch, cmd_mcp, cmd_node, cmd_version, cmd_erase, cmd_help;

/* ---- one run ---- */

#define CLI_MAX_ARGS 8
#define CLI_MAX_OPTIONS 64 /* on one command line */
#define CLI_MAX_EXTRA 4
struct cli_job {
    const struct command *c;
    const struct cli_verb *verb;
    const char *config, *state_dir; /* -c, --state-dir: every command takes them */
    bool json, help;
    const char *args[CLI_MAX_ARGS]; /* after the verb; NULL: not given */
    int n_args;
    char **program; /* of a command with @program; ends with NULL */
    struct {
        const struct cli_option *option;
        const char *value; /* "": a flag */
    } given[CLI_MAX_OPTIONS];
    size_t n_given;
    struct cli_field extra[CLI_MAX_EXTRA]; /* fields that run() adds to the request */
    size_t n_extra;
    struct v1_door *door; /* server and credential for /v1: v1.h; NULL: not used */
    struct arena arena;
    struct json_parser *parser;
    struct json doc; /* the last answer, borrowed from the parser */
};
/* Runs @c; argv[0] is its name.  Returns the exit status. */
int cli_run(const struct command *c, int argc, char **argv);

/* The last value of an option; NULL: not given.  The option must be in the command's table. */
const char *cli_value(const struct cli_job *j, const char *option);
bool cli_flag(const struct cli_job *j, const char *option);
/* The value of a CLI_DURATION in ms, or of a CLI_NUMBER. */
int64_t cli_number(const struct cli_job *j, const char *option, int64_t otherwise);

int cli_misused(const struct cli_job *j, const char *fmt, ...) BH_PRINTF(2, 3);
int cli_failed(const char *fmt, ...) BH_PRINTF(1, 2);

/* ---- the running server: client.c ----
 *
 * Requests return CLI_DONE with the answer in j->doc, or print the error and return CLI_FAILED. */

int cli_do(struct cli_job *j);           /* cli_request(), then cli_show() */
int cli_request(struct cli_job *j);      /* the request of the verb */
int cli_show(struct cli_job *j, int rc); /* after a request that ended with @rc */
#define CLI_FIELDS(...) \
    (const struct cli_field[]){__VA_ARGS__}, \
        sizeof((const struct cli_field[]){__VA_ARGS__}) / sizeof(struct cli_field)
/* Reads all pages and merges them: the members of the first page, its lists with the elements of
 * all pages. */
int cli_get(struct cli_job *j, const char *path, const struct cli_field *query, size_t n);
int cli_post(struct cli_job *j, const char *path, const struct cli_field *body, size_t n);
/* One request with headers, a timeout, or to a server on another machine. */
struct cli_http {
    const char *method, *path;
    struct str body;            /* absent: none */
    const char *const *headers; /* NULL-terminated; NULL: none */
    struct str url;             /* http(s)://host without a path; absent: the admin socket */
};
int cli_ask(struct cli_job *j, const struct cli_http *rq);
/* The state directory, from the arguments or the configuration; the caller frees it.  NULL: the
 * error has been printed. */
char *cli_state_dir(const struct cli_job *j);
/* The configuration, with --state-dir applied; the caller frees it.  NULL: the error has been
 * printed. */
struct config *cli_settings(const struct cli_job *j);

/* ---- for people ---- */

#define CLI_COLUMNS 10
struct cli_table { /* rows of owned text, printed with aligned columns */
    size_t columns;
    char **cells;
    size_t n;
};
void cli_cell(struct cli_table *t, const char *fmt, ...) BH_PRINTF(2, 3);
void cli_cell_str(struct cli_table *t, struct str s); /* absent or empty: "-" */
int64_t cli_i64(struct json object, const char *key); /* 0 when absent */
bool cli_bool(struct json object, const char *key);   /* false when absent */
void cli_print_json(struct json v);
/* Rows of objects as a table.  A value is printed by its type: text, number, yes or no, list. */
void cli_print_rows(struct cli_job *j, struct json rows, const struct cli_column *columns);
/* Asks for confirmation on the terminal, unless --yes is given.  False: the person declined, or
 * there is no terminal; then the error names @what. */
bool cli_confirm(const struct cli_job *j, const char *what, const char *fmt, ...) BH_PRINTF(3, 4);
