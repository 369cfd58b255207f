/* v1.h - how the command line reaches /v1: as the operator over the admin socket, or with a key.
 *
 *      nothing given             the operator of the server on this machine; --tenant says whose
 *      BELLHOP_KEY, --key-file   whoever the key is, on this machine or at --url
 */
#pragma once
#include "cli/cli.h"
#include "http/op.h"

struct v1_options {
    const char *tenant, *ns, *url, *key_file;
    bool keyless; /* as the operator, whatever BELLHOP_KEY says */
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
struct v1_door {                         /* where and as whom */
    struct str url;                      /* absent: the admin socket */
    struct buf lines[V1_HEADERS];        /* owned: headers; the key is in one of them, wiped */
    const char *headers[V1_HEADERS + 1]; /* NULL-terminated */
};
/* False: it has been told why not; return @ret_rc. */
bool v1_door_open(const struct command *c, const struct v1_options *o, struct v1_door *ret_d,
                  int *ret_rc);
void v1_door_done(struct v1_door *d);
/* As cli_run(), with j->door open. */
int v1_run(const struct command *c, int argc, char **argv, const struct cli_option *options,
           size_t n_options, const struct cli_verb *verbs, const struct v1_options *v1, void *o);
/* Calls an operation by its name, as http/op.h declares it; values are texts, typed by it.  As
 * cli_get(). */
int v1_op(struct cli_job *j, const char *op, const struct op_given *given, size_t n);
#define V1_GIVEN(...) \
    (const struct op_given[]){__VA_ARGS__}, \
        sizeof((const struct op_given[]){__VA_ARGS__}) / sizeof(struct op_given)
/* The whole of a file ("-" or NULL: standard input), at most 64 MiB.  False: told why not. */
bool v1_read_file(const char *path, struct buf *out);

/* ---- dispatch.c, for `dispatch list` and `doctor` ---- */
/* j->doc: [{tenant, agent_id, substrate, target, state, waiting, parked, ..., status?, detail?}].
 * status and detail come from agentStatus, asked one agent after the other; agents that are not
 * asked within ten seconds have none. */
int agent_states(struct cli_job *j);
/* What is wrong with one of them; absent: nothing that is known. */
struct str agent_problem(struct json agent);
