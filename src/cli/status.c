/* status.c - bellhop status, bellhop node: the running server, and the processes beside it. */
#include <inttypes.h>
#include <stdio.h>
#include "cli/cli.h"

static void print_server(struct json doc)
{
    int64_t up = (cli_i64(doc, "now") - cli_i64(doc, "startedAt")) / 1000;
    struct str url = json_str(doc, "url"), config = json_str(doc, "config");

    printf("bellhop %.*s, pid %" PRId64 ", up %" PRId64 "s%s\n", STR_FMT(cli_shown(doc, "version")),
           cli_i64(doc, "pid"), up, cli_bool(doc, "draining") ? ", shutting down" : "");
    printf("address %.*s\n", STR_FMT(url));
    printf("state   %.*s\n", STR_FMT(cli_shown(doc, "stateDir")));
    if (config.p != NULL)
        printf("config  %.*s\n", STR_FMT(config));
    struct json store = json_get(doc, "store");
    struct str problem = json_str(store, "problem");
    printf("store   %.*s, ", STR_FMT(cli_shown(store, "kind")));
    if (cli_bool(store, "healthy"))
        printf("healthy, %" PRId64 " KiB on disk, %" PRId64 " writes queued\n",
               cli_i64(store, "bytesOnDisk") / 1024, cli_i64(store, "queued"));
    else
        printf("IN TROUBLE: %.*s\n", STR_FMT(problem));
    printf("confined %.*s\n", STR_FMT(cli_shown(doc, "confined")));
    struct json node = json_get(doc, "node");
    if (json_str(node, "name").p != NULL)
        printf("node    %.*s serves; its lease ends in %" PRId64 " ms (see: bellhop node list)\n",
               STR_FMT(cli_shown(node, "name")), cli_i64(node, "leaseLeftMs"));
    for (struct json_iter it = {0}; json_next(json_get(node, "carriers"), &it);)
        printf("node    %.*s forwards %" PRId64 " connections\n",
               STR_FMT(cli_shown(it.value, "node")), cli_i64(it.value, "connections"));
    struct json redis = json_get(node, "redis");
    if (json_str(redis, "problem").p != NULL)
        printf("trunks  cannot run over Redis at %.*s: %.*s\n", STR_FMT(cli_shown(redis, "at")),
               STR_FMT(cli_shown(redis, "problem")));
    else if (json_str(redis, "at").p != NULL)
        printf("trunks  run over Redis at %.*s, which was last heard %" PRId64 " ms ago\n",
               STR_FMT(cli_shown(redis, "at")), cli_i64(redis, "heardMsAgo"));
}

static void cell_wake(struct cli_table *t, struct json instance)
{
    struct str problem = json_str(instance, "pokeProblem");

    if (problem.p != NULL)
        cli_cell(t, "failing: %.*s", STR_FMT(problem));
    else
        cli_cell(t, "%s", cli_bool(instance, "wakeUrlRegistered") ? "yes" : "-");
}

static void cell_problem(struct cli_table *t, struct json platform)
{
    struct str problem = json_str(platform, "problem");

    if (problem.p == NULL)
        problem = json_str(platform, "deaf");
    if (problem.p == NULL)
        problem = json_str(platform, "note");
    if (problem.p != NULL)
        cli_cell(t, "%.*s", STR_FMT(problem));
    else
        cli_cell(t, "-");
}

static void print_status(struct cli_job *j)
{
    static const struct cli_column of_platforms[] = {{"PLATFORM", "platform"},
                                                     {"BOT", "bot"},
                                                     {"LAST EVENT", "lastEventAt", CLI_AGO_MS},
                                                     {"PROBLEM", .cell = cell_problem},
                                                     {0}},
                                   of_instances[] = {{"TENANT", "tenant"},
                                                     {"INSTANCE", "instance"},
                                                     {"STATE", "state"},
                                                     {"SOCKETS", "sessions"},
                                                     {"WAITING", "entries"},
                                                     {"UNACKED", "unacked"},
                                                     {"PARKED", "parked"},
                                                     {"OLDEST", "oldestAt", CLI_AGO_MS},
                                                     {"WAKE", .cell = cell_wake},
                                                     {0}};
    struct json platforms = json_get(j->doc, "platforms"), rows = json_get(j->doc, "instances");

    print_server(j->doc);
    putchar('\n');
    if (json_count(platforms) == 0)
        puts("No platform is open.");
    else
        cli_print_rows(j, platforms, of_platforms);
    for (struct json_iter it = {0}; json_next(platforms, &it);)
        if (json_str(it.value, "host").n > 0)
            printf("%.*s %.*s takes webhooks at %.*s\n", STR_FMT(cli_shown(it.value, "platform")),
                   STR_FMT(cli_shown(it.value, "bot")), STR_FMT(cli_shown(it.value, "webhook")));
    putchar('\n');
    if (json_count(rows) > 0)
        cli_print_rows(j, rows, of_instances);
    else if (cli_i64(j->doc, "gateways") > 0)
        puts("No instance matches.");
    else
        puts("No gateway yet. Add one with: bellhop gateway add --tenant NAME --platform web --bot "
             "lobby");
}

static const struct cli_verb status_verbs[] = {
    {"", .op = "status", .print = print_status},
    {0},
};
static const struct cli_option status_options[] = {
    {"--tenant", "tenant"},
    {"--instance", "instance"},
    {"--state", "state", .one_of = "live|away|asleep|never"},
    {"--waiting", "waiting", CLI_FLAG},
    {0},
};

const struct command cmd_status = {
    .name = "status",
    .summary = "show what is connected, asleep and waiting",
    .help =
        "Usage: bellhop status [--tenant T] [--instance I] [--state S] [--waiting] [--json]\n"
        "                      [-c FILE | --state-dir DIR]\n\n"
        "Shows the running server: its store, its platforms, and every instance with its state\n"
        "and mailbox.  --tenant, --instance and --state select instances; --waiting selects\n"
        "those with messages in their mailbox.  States of an instance:\n\n"
        "  live    its gateway is connected and reads\n"
        "  away    its gateway was connected but does not answer; messages wait, it is woken\n"
        "  asleep  its gateway went idle cleanly; messages wait, it is woken\n"
        "  never   no gateway has connected yet\n",
    .verbs = status_verbs,
    .options = status_options,
};

/* ---- node ---- */

static const struct cli_column node_columns[] = {{"NODE", "node"},
                                                 {"STATE", "state"},
                                                 {"SINCE", "since", CLI_AGO_MS},
                                                 {"LAST SEEN", "lastSeenAt", CLI_AGO_MS},
                                                 {"VERSION", "version"},
                                                 {0}};

static const struct cli_verb node_verbs[] = {
    {"list", .op = "listNodes", .member = "nodes", .columns = node_columns,
     .none = "This server keeps its state in a file of its own: it has no other nodes."},
    {"drain", .args = "[node]", .op = "drain",
     .done =
         "The process shuts down and closes its own sockets with 1012.  Another node on the same\n"
         "PostgreSQL takes over; a server with a database file of its own has no other node.  The\n"
         "process stays down until you start it again: systemctl start bellhop.  Compose and\n"
         "Kubernetes would start it at once: stop it there (docker compose stop, kubectl scale)."},
    {0},
};

const struct command cmd_node = {
    .name = "node",
    .summary = "list and drain the processes that share a PostgreSQL",
    .help =
        "Usage: bellhop node list [--json]\n"
        "       bellhop node drain [NODE]\n\n"
        "list shows which process serves, which ones stand by, and when each was last seen.  A\n"
        "process that was not seen for long has ended or cannot reach the database.\n\n"
        "drain shuts a node down cleanly, as SIGTERM does: everything it accepted is on disk,\n"
        "its sockets close with 1012, and another node serves within a second, if there is one:\n"
        "with SQLite there is none.  Without a name it is the node on this machine.  A drained\n"
        "process ends with status 76, and the unit in packaging/ leaves it down until: systemctl\n"
        "start bellhop.\n",
    .verbs = node_verbs,
};
