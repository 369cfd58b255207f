/* cli.h - what the subcommands share: options, errors, tables, and talking to the running server.
 *
 * A subcommand is one file with one struct command, listed in cli.c.  Exit status: 0 done, 1
 * failed, 2 misused.  What was asked for goes to stdout and nothing else does; what a person should
 * know besides goes to stderr.
 */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_MISUSED = 2 };

struct command {
    const char *name, *summary;
    const char *help; /* usage and everything else, ready to print */
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
    const char **value; /* takes one; set when given */
    bool *flag;         /* takes none */
};
#define CLI_MAX_ARGS 8
struct cli_args {
    const char *config, *state_dir; /* -c, --state-dir: every command takes them */
    bool json, help;
    const char *rest[CLI_MAX_ARGS]; /* what is not an option */
    int n_rest;
};
/* Understands "--name value", "--name=value", and "--" before what only looks like an option.
 * False: the mistake has been told (or --help printed); return cli_exit(). */
bool cli_parse(const struct command *c, int argc, char **argv, const struct cli_option *options,
               size_t n_options, struct cli_args *ret_args);
int cli_exit(const struct cli_args *a); /* after a failed cli_parse() */
int cli_misused(const struct command *c, const char *fmt, ...) BH_PRINTF(2, 3);
int cli_failed(const char *fmt, ...) BH_PRINTF(1, 2);

/* ---- the running server ---- */
/* One call over the admin socket.  Returns CLI_DONE and the parsed answer (borrowed from @parser),
 * or CLI_FAILED after having told why. */
int cli_call(const struct cli_args *a, const char *method, const char *path, struct str body,
             struct json_parser *parser, struct json *ret_doc);
/* GET all pages of @path (which has its query, if any) as one answer: what the first page has, its
 * lists with the elements of all. */
int cli_call_pages(const struct cli_args *a, const char *path, struct json_parser *parser,
                   struct json *ret_doc);
/* One call with headers, or to a server elsewhere. */
struct cli_request {
    const char *method, *path;
    struct str body;            /* absent: none */
    const char *const *headers; /* NULL-terminated; NULL: none */
    struct str url;             /* http(s)://host, nothing behind it; absent: the admin socket */
    int64_t timeout_ms;         /* 0: 15 s */
};
int cli_ask(const struct cli_args *a, const struct cli_request *rq, struct json_parser *parser,
            struct json *ret_doc);
/* The state directory the arguments and the configuration name; NULL: told why.  Caller frees. */
char *cli_state_dir(const struct cli_args *a);
void cli_print_json(struct json v);
void cli_query_add(struct buf *path, char sep, const char *name, const char *value); /* escaped */
void cli_path_add(struct buf *path, const char *value);                              /* escaped */

/* ---- for people ---- */
#define CLI_COLUMNS 10
struct cli_table { /* rows of owned text, printed with aligned columns */
    size_t columns;
    char **cells;
    size_t n;
};
void cli_cell(struct cli_table *t, const char *fmt, ...) BH_PRINTF(2, 3);
void cli_cell_str(struct cli_table *t, struct str s); /* absent or empty: "-" */
void cli_table_print(struct cli_table *t);            /* and frees it */
/* "12s", "3m", "5h", "2d" before @now; "-" when @then is absent. */
void cli_cell_ago(struct cli_table *t, int64_t now, struct json then);
int64_t cli_i64(struct json object, const char *key); /* 0 when absent */
