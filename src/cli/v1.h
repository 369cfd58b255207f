/* v1.h - how the command line reaches /v1: as the operator over the admin socket, or with a key.
 *
 *      nothing given             the operator of the server on this machine; --tenant says whose
 *      BELLHOP_KEY, --key-file   whoever the key is, on this machine or at --url
 */
#pragma once
#include "cli/cli.h"

struct v1_options {
    const char *tenant, *ns, *url, *key_file;
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

struct v1_door {            /* where and as whom */
    struct str url;         /* absent: the admin socket */
    struct buf lines[4];    /* owned: headers; the key is in one of them, wiped */
    const char *headers[6]; /* NULL-terminated */
};
/* False: it has been told why not; return @ret_rc. */
bool v1_door_open(const struct command *c, const struct v1_options *o, struct v1_door *ret_d,
                  int *ret_rc);
void v1_door_add(struct v1_door *d, const char *header); /* one more, a literal */
void v1_door_done(struct v1_door *d);
/* One call; as cli_call(). */
int v1_call(const struct cli_args *a, const struct v1_door *d, const char *method, const char *path,
            struct str body, struct json_parser *parser, struct json *ret_doc);
/* The whole of a file ("-" or NULL: standard input), at most 64 MiB.  False: told why not. */
bool v1_read_file(const char *path, struct buf *out);
