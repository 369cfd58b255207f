/* status.c - bellhop status: platforms, instances, store. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/jw.h"
#include "base/mem.h"
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

static void print_platforms(struct json doc)
{
    struct cli_table t = {.columns = 4};
    struct json list = json_get(doc, "platforms");
    int64_t now = cli_i64(doc, "now");

    putchar('\n');
    if (json_count(list) == 0) {
        puts("No platform is open.");
        return;
    }
    cli_cell(&t, "PLATFORM");
    cli_cell(&t, "BOT");
    cli_cell(&t, "LAST EVENT");
    cli_cell(&t, "PROBLEM");
    for (struct json_iter it = {0}; json_next(list, &it);) {
        cli_cell_str(&t, json_str(it.value, "platform"));
        cli_cell_str(&t, json_str(it.value, "bot"));
        cli_cell_ago(&t, now, json_get(it.value, "lastEventAt"));
        cli_cell_str(&t, json_str(it.value, "problem"));
    }
    cli_table_print(&t);
}

static void print_instances(struct json doc)
{
    struct cli_table t = {.columns = 9};
    struct json list = json_get(doc, "instances");
    int64_t now = cli_i64(doc, "now");
    static const char *const heads[] = {"TENANT",  "INSTANCE", "STATE",  "SOCKETS", "WAITING",
                                        "UNACKED", "PARKED",   "OLDEST", "WAKE"};

    putchar('\n');
    if (json_count(list) == 0 && cli_i64(doc, "gateways") > 0) {
        puts("No such instance.");
        return;
    }
    if (json_count(list) == 0) {
        puts("No gateway yet. Add one with: bellhop gateway add --tenant NAME --platform web --bot "
             "lobby");
        return;
    }
    for (size_t i = 0; i < t.columns; i++)
        cli_cell(&t, "%s", heads[i]);
    for (struct json_iter it = {0}; json_next(list, &it);) {
        struct str problem = json_str(it.value, "pokeProblem");
        cli_cell_str(&t, json_str(it.value, "tenant"));
        cli_cell_str(&t, json_str(it.value, "instance"));
        cli_cell_str(&t, json_str(it.value, "state"));
        cli_cell(&t, "%" PRId64, cli_i64(it.value, "sessions"));
        cli_cell(&t, "%" PRId64, cli_i64(it.value, "entries"));
        cli_cell(&t, "%" PRId64, cli_i64(it.value, "unacked"));
        cli_cell(&t, "%" PRId64, cli_i64(it.value, "parked"));
        cli_cell_ago(&t, now, json_get(it.value, "oldestAt"));
        if (problem.p != NULL)
            cli_cell(&t, "failing: %.*s", STR_FMT(problem));
        else
            cli_cell(&t, "%s",
                     json_as_bool(json_get(it.value, "wakeUrlRegistered"), false) ? "yes" : "-");
    }
    cli_table_print(&t);
}

struct status_options {
    const char *tenant, *instance, *state;
    bool waiting;
};

static void path_of(const struct status_options *o, struct buf *path)
{
    const struct {
        const char *name, *value;
    } all[] = {{"tenant", o->tenant},
               {"instance", o->instance},
               {"state", o->state},
               {"waiting", o->waiting ? "1" : NULL}};
    char sep = '?';

    buf_add_z(path, "/admin/status");
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (all[i].value == NULL)
            continue;
        cli_query_add(path, sep, all[i].name, all[i].value);
        sep = '&';
    }
}

static bool is_state(const char *s)
{
    static const char *const states[] = {"live", "away", "asleep", "never"};

    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (strcmp(s, states[i]) == 0)
            return true;
    return false;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct status_options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},
        {"--instance", &o.instance, NULL},
        {"--state", &o.state, NULL},
        {"--waiting", NULL, &o.waiting},
    };
    struct buf path = BUF_INIT;
    struct json doc;

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    if (a.n_rest > 0)
        return cli_misused(c, "unexpected \"%s\"", a.rest[0]);
    if (o.state != NULL && !is_state(o.state))
        return cli_misused(c, "--state is live, away, asleep or never, not \"%s\"", o.state);
    struct json_parser *parser = json_parser_new();
    path_of(&o, &path);
    int rc = cli_call_pages(&a, buf_z(&path), parser, &doc);
    if (rc == CLI_DONE && a.json) {
        cli_print_json(doc);
    } else if (rc == CLI_DONE) {
        print_server(doc);
        print_platforms(doc);
        print_instances(doc);
    }
    json_parser_free(parser);
    buf_done(&path);
    return rc;
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
    run,
};
