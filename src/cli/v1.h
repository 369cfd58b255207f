/* v1.h - the command line as a client of /v1: as the operator over the admin socket, or with a key.
 *
 *      no key                    the operator of the server on this machine; --tenant names one
 *      BELLHOP_KEY, --key-file   the caller that the key stands for, on this machine or at --url
 *
 * client.c implements this; stores.c, dispatch.c, mcp.c and doctor.c call it.
 */
#pragma once
#include "cli/cli.h"
#include "http/op.h"

struct v1_options {
    const char *tenant, *ns, *url, *key_file;
    bool keyless; /* as the operator, even if BELLHOP_KEY is set */
};
#define V1_OPTIONS(o) \
    {"--tenant", &(o).tenant, NULL}, {"--namespace", &(o).ns, NULL}, {"--url", &(o).url, NULL}, \
    { \
        "--key-file", &(o).key_file, NULL \
    }
#define V1_OPTIONS_HELP \
    "Without a key this talks to the server of this machine as its operator; --tenant says " \
    "whose\n" \
    "store, where there are several.  With a key (BELLHOP_KEY, or --key-file F) it acts as that\n" \
    "key, here or at --url URL.  --namespace N: a store of its own inside the tenant.\n"

#define V1_HEADERS 4
struct v1_door {                         /* the server, and the headers that authenticate us */
    struct str url;                      /* absent: the admin socket */
    struct buf lines[V1_HEADERS];        /* owned: the headers, one with the key; wiped */
    const char *headers[V1_HEADERS + 1]; /* NULL-terminated */
};
/* False: the error has been printed; return @ret_rc. */
bool v1_door_open(const struct command *c, const struct v1_options *o, struct v1_door *ret_d,
                  int *ret_rc);
void v1_door_done(struct v1_door *d);
/* As cli_run(), with j->door open. */
int v1_run(const struct command *c, int argc, char **argv, const struct cli_option *options,
           size_t n_options, const struct cli_verb *verbs, const struct v1_options *v1, void *o);
/* Calls the operation named @op.  Values are texts, which op_request() converts to the declared
 * types.  Returns as cli_get() does. */
int v1_op(struct cli_job *j, const char *op, const struct op_given *given, size_t n);
#define V1_GIVEN(...) \
    (const struct op_given[]){__VA_ARGS__}, \
        sizeof((const struct op_given[]){__VA_ARGS__}) / sizeof(struct op_given)
/* Reads a whole file ("-" or NULL: standard input), 64 MiB at most.  False: the error has been
 * printed. */
bool v1_read_file(const char *path, struct buf *out);

/* ---- dispatch.c, for `dispatch list` and `doctor` ---- */
/* j->doc: [{tenant, agent_id, substrate, target, state, waiting, parked, ..., status?, detail?}].
 * status and detail come from the operation agentStatus, called for one agent after the other.
 * Agents that were not reached within ten seconds have neither. */
int agent_states(struct cli_job *j);
/* The problem of an agent of that list, for people; absent: no known problem. */
struct str agent_problem(struct json agent);
