/* node.c - bellhop node: the processes that share a PostgreSQL. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/percent.h"
#include "cli/cli.h"

static void print_nodes(struct json doc)
{
    int64_t now = cli_i64(doc, "now");

    printf("%-24s %-9s %10s %10s  %s\n", "NODE", "STATE", "SINCE", "LAST SEEN", "VERSION");
    for (struct json_iter it = {0}; json_next(json_get(doc, "nodes"), &it);)
        printf("%-24.*s %-9.*s %8" PRId64 " s %8" PRId64 " s  %.*s\n",
               STR_FMT(json_str(it.value, "node")), STR_FMT(json_str(it.value, "state")),
               (now - cli_i64(it.value, "since")) / 1000,
               (now - cli_i64(it.value, "lastSeenAt")) / 1000,
               STR_FMT(json_str(it.value, "version")));
}

static int list(const struct cli_args *a)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = cli_call(a, "GET", "/admin/nodes", STR_NULL, parser, &doc);

    if (rc == CLI_DONE && a->json)
        cli_print_json(json_get(doc, "nodes"));
    else if (rc == CLI_DONE && json_count(json_get(doc, "nodes")) == 0)
        puts("This server keeps its state in a file of its own: it has no other nodes.");
    else if (rc == CLI_DONE)
        print_nodes(doc);
    json_parser_free(parser);
    return rc;
}

/* @node NULL: the process on this machine. */
static int drain(const struct cli_args *a, const char *node)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    struct buf path = BUF_INIT;

    buf_add_z(&path, "/admin/drain");
    if (node != NULL) {
        buf_add_z(&path, "?node=");
        percent_encode(&path, str_of(node));
    }
    int rc = cli_call(a, "POST", buf_z(&path), STR_NULL, parser, &doc);
    buf_done(&path);

    if (rc == CLI_DONE)
        puts("It is going down: its sockets close with 1012 and whoever stands by takes over.");
    json_parser_free(parser);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;

    if (!cli_parse(c, argc, argv, NULL, 0, &a))
        return cli_exit(&a);
    if (a.n_rest == 1 && strcmp(a.rest[0], "list") == 0)
        return list(&a);
    if ((a.n_rest == 1 || a.n_rest == 2) && strcmp(a.rest[0], "drain") == 0)
        return drain(&a, a.n_rest == 2 ? a.rest[1] : NULL);
    return cli_misused(c, "list or drain?");
}

const struct command cmd_node = {
    "node",
    "the processes that share a PostgreSQL: list, drain",
    "Usage: bellhop node list [--json]\n"
    "       bellhop node drain [NODE]\n\n"
    "list tells which process serves, which stand by, and when each was last heard of; one that "
    "is\n"
    "silent has ended or does not reach the database.\n\n"
    "drain takes a node down in good order, as SIGTERM does: what it accepted is on disk, its "
    "sockets\n"
    "close with 1012, and another one serves within a second.  Without a name it is this "
    "machine's.\n",
    run,
};
