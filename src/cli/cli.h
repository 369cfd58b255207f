/* cli.h - the library of the subcommands: options, verbs, requests to the running server, tables.
 *
 * A subcommand is one struct command, listed in cli.c; a file holds one or several of them.  Most
 * verbs are one line of a table: the options they need, the request they make, and the columns of
 * the answer.
 *
 *      {"list", .op = "listRoutes", .member = "routes", .columns = columns,
 *       .none = "No route yet."},
 *      {"revoke", .args = "id", .op = "revokeGateway"},
 *
 * A verb with steps of its own has a run(), which calls cli_do() or the parts of it.  Exit status:
 * 0 done, 1 failed, 2 misused.  stdout carries only the result; hints and errors go to stderr.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "http/op.h"

struct cli_job;
struct cli_table;

enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_MISUSED = 2 };

/* ---- tables of a command ---- */

enum cli_kind {
    CLI_TEXT,
    CLI_FLAG,     /* takes no value */
    CLI_DURATION, /* "5m"; requests carry milliseconds */
    CLI_NUMBER,   /* a whole number from 1 */
    CLI_WORDS,    /* "a,b"; requests carry a JSON list */
    CLI_REPEATED, /* may be given several times; requests carry all values */
};
struct cli_option {
    const char *name; /* "--tenant" */
    const char *key;  /* its name in requests; NULL: requests do not carry it */
    enum cli_kind kind;
    const char *one_of; /* the words it may be: "exit|freeze"; NULL: any */
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
    /* Its operation.  The arguments are those of the verb, @fixed, and the options that are
     * arguments of the operation. */
    const char *op;
    struct op_given fixed;
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
/* What every command takes, and every command with .v1; both end with a NULL name. */
extern const struct cli_option cli_common_options[], cli_v1_options[];
extern const struct command cmd_serve, cmd_status, cmd_gateway, cmd_route, cmd_mailbox, cmd_outbox,
    cmd_doctor, cmd_backup, cmd_restore, cmd_key, cmd_store, cmd_agent, cmd_audit, cmd_trace,
    cmd_top, cmd_sleeper, cmd_token, cmd_link, cmd_scope, cmd_principal, cmd_policy, cmd_allowance,
    cmd_dm_default, cmd_pairing, cmd_why, cmd_skill, cmd_data, cmd_dispatch, cmd_mcp, cmd_node,
    cmd_version, cmd_erase, cmd_say, cmd_expect, cmd_conformance, cmd_help, cmd_setup,
    cmd_dashboard, cmd_matrix;

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
    struct op_given extra[CLI_MAX_EXTRA]; /* arguments that run() adds to the request */
    size_t n_extra;
    struct cli_door *door; /* of a command with @v1; else NULL */
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

/* A text of @obj for people, made harmless by buf_add_plain(); absent if it is.  Borrowed until 30
 * more of them. */
struct str cli_shown(struct json obj, const char *key);
int cli_misused(const struct cli_job *j, const char *fmt, ...) BH_PRINTF(2, 3);
int cli_failed(const char *fmt, ...) BH_PRINTF(1, 2);

/* ---- the running server: client.c ----
 *
 * Operations of the operator go to the admin socket.  Those of /v1 go through the door: to the
 * admin socket as the operator of a tenant, or with a key (BELLHOP_KEY, --key-file) to this machine
 * or to --url.  Calls return CLI_DONE with the answer in j->doc, or print the error and return
 * another status. */

int cli_do(struct cli_job *j);           /* cli_request(), then cli_show() */
int cli_request(struct cli_job *j);      /* the operation of the verb */
int cli_show(struct cli_job *j, int rc); /* after a request that ended with @rc */
/* Calls one operation.  Values are texts, which op_request() converts to the declared types.  Reads
 * all pages of an operator's list and merges them: the members of the first page, its lists with
 * the elements of all pages. */
int cli_op(struct cli_job *j, const char *op, const struct op_given *given, size_t n);
#define CLI_GIVEN(...) \
    (const struct op_given[]){__VA_ARGS__}, \
        sizeof((const struct op_given[]){__VA_ARGS__}) / sizeof(struct op_given)

#define CLI_HEADERS 4
struct cli_door {                         /* the server, and the headers that authenticate us */
    struct str url;                       /* absent: the admin socket */
    struct buf lines[CLI_HEADERS];        /* owned: the headers, one with the key; wiped */
    const char *headers[CLI_HEADERS + 1]; /* NULL-terminated */
};
#define V1_OPTIONS_HELP \
    "Without a key the command talks to the server of this machine as its operator; --tenant T\n" \
    "chooses the store when there are several tenants.  With a key (BELLHOP_KEY or --key-file " \
    "F)\n" \
    "it acts as the owner of that key, on this machine or at --url URL.  --namespace N selects " \
    "a\n" \
    "separate store inside the tenant.\n"
/* By the options of @j.  False: the error has been printed; return @ret_rc. */
bool cli_door_open(const struct cli_job *j, struct cli_door *ret_d, int *ret_rc);
/* As the operator, for one tenant. */
void cli_door_open_tenant(struct str tenant, struct cli_door *ret_d);
void cli_door_done(struct cli_door *d);

/* Reads a whole file ("-" or NULL: standard input), 64 MiB at most.  False: the error has been
 * printed. */
bool cli_read_file(const char *path, struct buf *out);
bool cli_read_text(const char *path, struct buf *out); /* refuses bytes that are not UTF-8 */
/* The state directory, from the arguments or the configuration; the caller frees it.  NULL: the
 * error has been printed. */
char *cli_state_dir(const struct cli_job *j);
/* The configuration, with --state-dir applied; the caller frees it.  NULL: the error has been
 * printed. */
struct config *cli_settings(const struct cli_job *j);

/* True: a server answers on the admin socket of the state directory @dir. */
bool cli_server_answers(const char *dir);

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

/* Prints how the people of this platform send "/link CODE", where that differs from a message. */
void cli_link_how(struct str platform);

/* ---- dispatch.c, for `dispatch list` and `doctor` ---- */
/* j->doc: [{tenant, agent_id, substrate, target, state, waiting, parked, ..., status?, detail?}].
 * status and detail come from the operation agentStatus, called for one agent after the other.
 * Agents that were not reached within ten seconds have neither. */
int agent_states(struct cli_job *j);
/* The problem of an agent of that list, for people; absent: no known problem. */
struct str agent_problem(struct json agent);
