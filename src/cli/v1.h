/* v1.h - the command line as a client of /v1: as the operator over the admin socket, or with a key.
 *
 *      no key                    the operator of the server on this machine; --tenant names one
 *      BELLHOP_KEY, --key-file   the caller that the key stands for, on this machine or at --url
 *
 * client.c implements this; cli.c opens the door of commands with @v1; stores.c, dispatch.c, mcp.c
 * and doctor.c call operations.
 */
#pragma once
#include "cli/cli.h"
#include "http/op.h"

extern const struct cli_option v1_options[]; /* --tenant, --namespace, --url, --key-file */
#define V1_OPTIONS_HELP \
    "Without a key the command talks to the server of this machine as its operator; --tenant T\n" \
    "chooses the store when there are several tenants.  With a key (BELLHOP_KEY or --key-file " \
    "F)\n" \
    "it acts as the owner of that key, on this machine or at --url URL.  --namespace N selects " \
    "a\n" \
    "separate store inside the tenant.\n"

#define V1_HEADERS 4
struct v1_door {                         /* the server, and the headers that authenticate us */
    struct str url;                      /* absent: the admin socket */
    struct buf lines[V1_HEADERS];        /* owned: the headers, one with the key; wiped */
    const char *headers[V1_HEADERS + 1]; /* NULL-terminated */
};
/* By the options of @j.  False: the error has been printed; return @ret_rc. */
bool v1_door_open(const struct cli_job *j, struct v1_door *ret_d, int *ret_rc);
/* As the operator, for one tenant. */
void v1_door_open_tenant(struct str tenant, struct v1_door *ret_d);
void v1_door_done(struct v1_door *d);
/* Calls the operation named @op.  Values are texts, which op_request() converts to the declared
 * types.  Returns as cli_get() does. */
int v1_op(struct cli_job *j, const char *op, const struct op_given *given, size_t n);
#define V1_GIVEN(...) \
    (const struct op_given[]){__VA_ARGS__}, \
        sizeof((const struct op_given[]){__VA_ARGS__}) / sizeof(struct op_given)
/* Reads a whole file ("-" or NULL: standard input), 64 MiB at most.  False: the error has been
 * printed. */
bool v1_read_file(const char *path, struct buf *out);
bool v1_read_text(const char *path,
                  struct buf *out); /* the same; refuses bytes that are no UTF-8 */

/* ---- dispatch.c, for `dispatch list` and `doctor` ---- */
/* j->doc: [{tenant, agent_id, substrate, target, state, waiting, parked, ..., status?, detail?}].
 * status and detail come from the operation agentStatus, called for one agent after the other.
 * Agents that were not reached within ten seconds have neither. */
int agent_states(struct cli_job *j);
/* The problem of an agent of that list, for people; absent: no known problem. */
struct str agent_problem(struct json agent);
