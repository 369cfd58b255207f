/* status.c - bellhop status, bellhop node: the running server, and the processes beside it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "base/percent.h"
#include "cli/cli.h"

static void print_server(struct json doc)
{
    int64_t up = (cli_i64(doc, "now") - cli_i64(doc, "startedAt")) / 1000;
    struct str url = json_str(doc, "url"), config = json_str(doc, "config");

    printf("bellhop %.*s, pid %" PRId64 ", up %" PRId64 "s%s\n", STR_FMT(json_str(doc, "version")),
           cli_i64(doc, "pid"), up,
           json_as_bool(json_get(doc, "draining"), false) ? ", going down" : "");
    printf("address %.*s\n", STR_FMT(url));
    printf("state   %.*s\n", STR_FMT(json_str(doc, "stateDir")));
    if (config.p != NULL)
        printf("config  %.*s\n", STR_FMT(config));
    struct json store = json_get(doc, "store");
    struct str problem = json_str(store, "problem");
    printf("store   %.*s, ", STR_FMT(json_str(store, "kind")));
    if (json_as_bool(json_get(store, "healthy"), false))
        printf("healthy, %" PRId64 " KiB on disk, %" PRId64 " waiting\n",
               cli_i64(store, "bytesOnDisk") / 1024, cli_i64(store, "queued"));
    else
        printf("IN TROUBLE: %.*s\n", STR_FMT(problem));
    printf("confined %.*s\n", STR_FMT(json_str(doc, "confined")));
    struct json node = json_get(doc, "node");
    if (json_str(node, "name").p != NULL)
        printf("node    %.*s serves, lease for %" PRId64 " ms more (see: bellhop node list)\n",
               STR_FMT(json_str(node, "name")), cli_i64(node, "leaseLeftMs"));
    for (struct json_iter it = {0}; json_next(json_get(node, "carriers"), &it);)
        printf("node    %.*s carries %" PRId64 " connections\n",
               STR_FMT(json_str(it.value, "node")), cli_i64(it.value, "connections"));
}

static void print_platforms(struct cli_job *j)
{
    static const struct cli_column columns[] = {{"PLATFORM", "platform"},
                                                {"BOT", "bot"},
                                                {"LAST EVENT", "lastEventAt", .ago = true},
                                                {"PROBLEM", "problem"}};
    struct json rows = json_get(j->doc, "platforms");

    putchar('\n');
    if (json_count(rows) == 0)
        puts("No platform is open.");
    else
        cli_print_rows(j, rows, columns, ARRAY_LEN(columns));
}

static void cell_wake(struct cli_table *t, struct json instance)
{
    struct str problem = json_str(instance, "pokeProblem");

    if (problem.p != NULL)
        cli_cell(t, "failing: %.*s", STR_FMT(problem));
    else
        cli_cell(t, "%s", cli_bool(instance, "wakeUrlRegistered") ? "yes" : "-");
}

static void print_instances(struct cli_job *j)
{
    static const struct cli_column columns[] = {
        {"TENANT", "tenant"},       {"INSTANCE", "instance"},
        {"STATE", "state"},         {"SOCKETS", "sessions"},
        {"WAITING", "entries"},     {"UNACKED", "unacked"},
        {"PARKED", "parked"},       {"OLDEST", "oldestAt", .ago = true},
        {"WAKE", .cell = cell_wake}};
    struct json rows = json_get(j->doc, "instances");

    putchar('\n');
    if (json_count(rows) == 0 && cli_i64(j->doc, "gateways") > 0)
        puts("No such instance.");
    else if (json_count(rows) == 0)
        puts("No gateway yet. Add one with: bellhop gateway add --tenant NAME --platform web --bot "
             "lobby");
    else
        cli_print_rows(j, rows, columns, ARRAY_LEN(columns));
}

static void print_status(struct cli_job *j)
{
    print_server(j->doc);
    print_platforms(j);
    print_instances(j);
}

struct status_options {
    const char *tenant, *instance, *state;
    bool waiting;
};

static bool is_state(const char *s)
{
    static const char *const states[] = {"live", "away", "asleep", "never"};

    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (strcmp(s, states[i]) == 0)
            return true;
    return false;
}

static int status(struct cli_job *j)
{
    const struct status_options *o = j->o;

    if (o->state != NULL && !is_state(o->state))
        return cli_misused(j->c, "--state is live, away, asleep or never, not \"%s\"", o->state);
    return cli_show(j,
                    cli_get_pages(j, "/admin/status",
                                  CLI_FIELDS({"tenant", str_of(o->tenant)},
                                             {"instance", str_of(o->instance)},
                                             {"state", str_of(o->state)},
                                             {"waiting", o->waiting ? STR("1") : STR_NULL})),
                    print_status);
}

static int run_status(const struct command *c, int argc, char **argv)
{
    struct status_options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},
        {"--instance", &o.instance, NULL},
        {"--state", &o.state, NULL},
        {"--waiting", NULL, &o.waiting},
    };

    return cli_run_one(c, argc, argv, options, ARRAY_LEN(options), status, &o);
}

const struct command cmd_status = {
    "status",
    "what is connected, asleep and waiting",
    "Usage: bellhop status [--tenant T] [--instance I] [--state S] [--waiting] [--json]\n"
    "                      [-c FILE | --state-dir DIR]\n\n"
    "Shows the running server: its platforms, every instance with its state and mailbox, and the\n"
    "store.  With --tenant, --instance or --state only such instances are shown, with --waiting\n"
    "only those with something in their mailbox.  States of an instance:\n\n"
    "  live    its gateway is connected and reading\n"
    "  away    its gateway was here but does not answer; deliveries wait, it is rung awake\n"
    "  asleep  its gateway went idle in good order; deliveries wait, it is rung awake\n"
    "  never   no gateway has connected yet\n",
    run_status,
};

/* ---- node ---- */

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

static int list_nodes(struct cli_job *j)
{
    int rc = cli_get(j, "/admin/nodes", NULL, 0);

    if (rc == CLI_DONE && j->a.json)
        cli_print_json(json_get(j->doc, "nodes"));
    else if (rc == CLI_DONE && json_count(json_get(j->doc, "nodes")) == 0)
        puts("This server keeps its state in a file of its own: it has no other nodes.");
    else if (rc == CLI_DONE)
        print_nodes(j->doc);
    return rc;
}

/* Without a name: the process on this machine. */
static int drain_node(struct cli_job *j)
{
    struct buf path = BUF_INIT;

    buf_add_z(&path, "/admin/drain");
    if (j->a.n_rest == 2) {
        buf_add_z(&path, "?node=");
        percent_encode(&path, str_of(j->a.rest[1]));
    }
    int rc = cli_post(j, buf_z(&path), NULL, 0);
    buf_done(&path);
    if (rc == CLI_DONE)
        puts("It is going down: its sockets close with 1012 and whoever stands by takes over.");
    return rc;
}

static int run_node(const struct command *c, int argc, char **argv)
{
    static const struct cli_verb verbs[] = {{"list", 0, 0, NULL, list_nodes},
                                            {"drain", 0, 1, NULL, drain_node},
                                            {0}};

    return cli_run(c, argc, argv, NULL, 0, verbs, NULL);
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
    run_node,
};
