/* mailbox.c - bellhop mailbox list | show | purge | redrive. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

struct mailbox_options {
    const char *tenant, *limit;
    bool bodies, yes;
};

static bool has_something(struct json instance)
{
    return cli_i64(instance, "entries") + cli_i64(instance, "parked") > 0;
}

static void print_list(struct json doc)
{
    struct cli_table t = {.columns = 7};
    static const char *const heads[] = {"TENANT", "INSTANCE", "STATE", "WAITING",
                                        "PARKED", "BYTES",    "OLDEST"};
    bool any = false;

    for (size_t i = 0; i < t.columns; i++)
        cli_cell(&t, "%s", heads[i]);
    for (struct json_iter it = {0}; json_next(json_get(doc, "instances"), &it);) {
        if (!has_something(it.value))
            continue;
        any = true;
        cli_cell_str(&t, json_str(it.value, "tenant"));
        cli_cell_str(&t, json_str(it.value, "instance"));
        cli_cell_str(&t, json_str(it.value, "state"));
        cli_cell(&t, "%" PRId64, cli_i64(it.value, "entries"));
        cli_cell(&t, "%" PRId64, cli_i64(it.value, "parked"));
        cli_cell(&t, "%" PRId64, cli_i64(it.value, "bytes"));
        cli_cell_ago(&t, cli_i64(doc, "now"), json_get(it.value, "oldestAt"));
    }
    if (!any)
        fputs("Nothing is waiting for anybody.\n", stderr);
    else
        cli_table_print(&t);
    for (size_t i = 0; i < t.n; i++)
        free(t.cells[i]);
    free(t.cells);
}

static void print_list_json(struct json doc)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_arr(&w);
    for (struct json_iter it = {0}; json_next(json_get(doc, "instances"), &it);)
        if (has_something(it.value))
            jw_value(&w, it.value);
    jw_end_arr(&w);
    puts(buf_z(&out));
    buf_done(&out);
}

static int list(const struct cli_args *a)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = cli_call_pages(a, "/admin/status?waiting=1", parser, &doc);

    if (rc == CLI_DONE && a->json)
        print_list_json(doc);
    else if (rc == CLI_DONE)
        print_list(doc);
    json_parser_free(parser);
    return rc;
}

static void print_entries(struct json doc, bool bodies)
{
    int64_t n = 0;

    for (struct json_iter it = {0}; json_next(json_get(doc, "entries"), &it); n++) {
        struct str parked = json_str(it.value, "parked");
        printf("%" PRId64 "  bytes=%" PRId64 " attempts=%" PRId64 " %s%.*s\n",
               cli_i64(it.value, "id"), cli_i64(it.value, "bytes"), cli_i64(it.value, "attempts"),
               parked.p != NULL                                  ? "parked: "
               : json_as_bool(json_get(it.value, "sent"), false) ? "sent, not acknowledged"
                                                                 : "waiting",
               STR_FMT(parked.p != NULL ? parked : STR("")));
        if (bodies && json_type(json_get(it.value, "frame")) != JSON_ABSENT) {
            fputs("    ", stdout);
            cli_print_json(json_get(it.value, "frame"));
        }
    }
    if (n == 0)
        fputs("Nothing is waiting.\n", stderr);
}

static int show(const struct command *c, const struct cli_args *a, const struct mailbox_options *o)
{
    struct json_parser *parser;
    struct buf path = BUF_INIT;
    struct json doc;
    uint64_t limit;

    if (o->limit != NULL && (!str_to_u64(str_of(o->limit), &limit) || limit == 0))
        return cli_misused(c, "--limit takes a number, not \"%s\"", o->limit);
    buf_add_z(&path, "/admin/mailbox");
    cli_query_add(&path, '?', "instance", a->rest[1]);
    if (o->tenant != NULL)
        cli_query_add(&path, '&', "tenant", o->tenant);
    if (o->limit != NULL)
        cli_query_add(&path, '&', "limit", o->limit);
    if (o->bodies)
        cli_query_add(&path, '&', "bodies", "1");
    parser = json_parser_new();
    int rc = cli_call(a, "GET", buf_z(&path), STR_NULL, parser, &doc);
    if (rc == CLI_DONE && a->json)
        cli_print_json(json_get(doc, "entries"));
    else if (rc == CLI_DONE)
        print_entries(doc, o->bodies);
    if (rc == CLI_DONE && cli_i64(doc, "more") > 0)
        fprintf(stderr, "... and %" PRId64 " more\n", cli_i64(doc, "more"));
    json_parser_free(parser);
    buf_done(&path);
    return rc;
}

static int change(const struct cli_args *a, const struct mailbox_options *o, const char *verb)
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT, path = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;

    jw_obj(&w);
    jw_kstr(&w, "instance", str_of(a->rest[1]));
    jw_kstr_opt(&w, "tenant", str_of(o->tenant));
    jw_end_obj(&w);
    buf_printf(&path, "/admin/mailbox/%s", verb);
    int rc = cli_call(a, "POST", buf_z(&path), buf_str(&body), parser, &doc);
    if (rc == CLI_DONE && a->json)
        cli_print_json(doc);
    else if (rc == CLI_DONE)
        printf("%" PRId64 " %s\n", cli_i64(doc, "deliveries"),
               strcmp(verb, "purge") == 0 ? "deleted" : "put back in line");
    json_parser_free(parser);
    buf_done(&body);
    buf_done(&path);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct mailbox_options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},
        {"--limit", &o.limit, NULL},
        {"--bodies", NULL, &o.bodies},
        {"--yes", NULL, &o.yes},
    };

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    const char *verb = a.n_rest > 0 ? a.rest[0] : "";
    bool is_list = strcmp(verb, "list") == 0;
    bool known = is_list || strcmp(verb, "show") == 0 || strcmp(verb, "purge") == 0 ||
                 strcmp(verb, "redrive") == 0;
    if (!known)
        return cli_misused(c,
                           *verb == '\0' ? "list, show, purge or redrive?%s"
                                         : "there is no \"mailbox %s\"",
                           verb);
    if (a.n_rest != (is_list ? 1 : 2))
        return is_list || a.n_rest > 2 ? cli_misused(c, "too many arguments")
                                       : cli_misused(c, "%s whose? Give an instance", verb);
    if (is_list)
        return list(&a);
    if (strcmp(verb, "show") == 0)
        return show(c, &a, &o);
    if (strcmp(verb, "purge") == 0 && !o.yes)
        return cli_misused(
            c, "purge deletes messages that were accepted and never delivered; add --yes "
               "if that is meant");
    return change(&a, &o, verb);
}

const struct command cmd_mailbox = {
    "mailbox",
    "what is waiting for whom",
    "Usage: bellhop mailbox list [--json]\n"
    "       bellhop mailbox show INSTANCE [--tenant T] [--limit N] [--bodies] [--json]\n"
    "       bellhop mailbox purge INSTANCE [--tenant T] --yes\n"
    "       bellhop mailbox redrive INSTANCE [--tenant T]\n\n"
    "list     instances for which something waits\n"
    "show     the waiting deliveries of one, oldest first; their text is hidden unless --bodies\n"
    "purge    deletes them\n"
    "redrive  puts parked deliveries (sent too often without an answer) back in line\n",
    run,
};
