/* outbox.c - bellhop outbox list | show | retry | drop. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

static void print_list(struct json doc)
{
    struct cli_table t = {.columns = 9};
    static const char *const heads[] = {"ID",    "TENANT", "INSTANCE", "WHERE",     "OP",
                                        "STATE", "TRIES",  "ASKED",    "LAST ERROR"};

    for (size_t i = 0; i < t.columns; i++)
        cli_cell(&t, "%s", heads[i]);
    for (struct json_iter it = {0}; json_next(json_get(doc, "entries"), &it);) {
        struct json e = it.value;
        cli_cell_str(&t, json_str(e, "id"));
        cli_cell_str(&t, json_str(e, "tenant"));
        cli_cell_str(&t, json_str(e, "instance"));
        cli_cell(&t, "%.*s/%.*s", STR_FMT(json_str(e, "platform")),
                 STR_FMT(json_str(e, "chat_id")));
        cli_cell_str(&t, json_str(e, "op"));
        cli_cell_str(&t, json_str(e, "state"));
        cli_cell(&t, "%" PRId64, cli_i64(e, "attempts"));
        cli_cell_ago(&t, cli_i64(doc, "now"), json_get(e, "since"));
        cli_cell_str(&t, json_str(e, "last_error"));
    }
    cli_table_print(&t);
    if (cli_i64(doc, "more") > 0)
        fprintf(stderr, "... and %" PRId64 " more\n", cli_i64(doc, "more"));
}

static int list(const struct cli_args *a)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = cli_call(a, "GET", "/admin/outbox", STR_NULL, parser, &doc);

    if (rc == CLI_DONE && a->json)
        cli_print_json(json_get(doc, "entries"));
    else if (rc == CLI_DONE && json_count(json_get(doc, "entries")) == 0)
        fputs("Nothing is waiting to be sent.\n", stderr);
    else if (rc == CLI_DONE)
        print_list(doc);
    json_parser_free(parser);
    return rc;
}

static void print_entry(struct json e, int64_t now)
{
    struct str error = json_str(e, "last_error");
    int64_t next = cli_i64(e, "next_try");

    printf("%.*s  %.*s, asked for %" PRId64 " s ago by %.*s/%.*s\n", STR_FMT(json_str(e, "id")),
           STR_FMT(json_str(e, "state")), (now - cli_i64(e, "since")) / 1000,
           STR_FMT(json_str(e, "tenant")), STR_FMT(json_str(e, "instance")));
    printf("  %.*s to %.*s %.*s through %.*s: part %" PRId64 " of %" PRId64 ", requests made: "
           "%" PRId64 "\n",
           STR_FMT(json_str(e, "op")), STR_FMT(json_str(e, "platform")),
           STR_FMT(json_str(e, "chat_id")), STR_FMT(json_str(e, "bot")), cli_i64(e, "part") + 1,
           cli_i64(e, "parts"), cli_i64(e, "attempts"));
    if (next > now)
        printf("  tried again in %" PRId64 " s\n", (next - now + 999) / 1000);
    if (error.n > 0)
        printf("  %.*s\n", STR_FMT(error));
    fputs("  ", stdout);
    cli_print_json(json_get(e, "action"));
}

static int show(const struct cli_args *a)
{
    struct json_parser *parser = json_parser_new();
    struct buf path = BUF_INIT;
    struct json doc;

    buf_add_z(&path, "/admin/outbox");
    cli_query_add(&path, '?', "id", a->rest[1]);
    int rc = cli_call(a, "GET", buf_z(&path), STR_NULL, parser, &doc);
    for (struct json_iter it = {0}; rc == CLI_DONE && json_next(json_get(doc, "entries"), &it);) {
        if (a->json)
            cli_print_json(it.value);
        else
            print_entry(it.value, cli_i64(doc, "now"));
    }
    json_parser_free(parser);
    buf_done(&path);
    return rc;
}

static int change(const struct cli_args *a, const char *verb)
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT, path = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;

    jw_obj(&w);
    jw_kstr(&w, "id", str_of(a->rest[1]));
    jw_end_obj(&w);
    buf_printf(&path, "/admin/outbox/%s", verb);
    int rc = cli_call(a, "POST", buf_z(&path), buf_str(&body), parser, &doc);
    if (rc == CLI_DONE && a->json)
        cli_print_json(doc);
    else if (rc == CLI_DONE)
        puts(strcmp(verb, "drop") == 0 ? "dropped" : "tried again");
    json_parser_free(parser);
    buf_done(&body);
    buf_done(&path);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;

    if (!cli_parse(c, argc, argv, NULL, 0, &a))
        return cli_exit(&a);
    const char *verb = a.n_rest > 0 ? a.rest[0] : "";
    bool is_list = strcmp(verb, "list") == 0, is_show = strcmp(verb, "show") == 0;
    if (!is_list && !is_show && strcmp(verb, "retry") != 0 && strcmp(verb, "drop") != 0)
        return cli_misused(c,
                           *verb == '\0' ? "list, show, retry or drop?%s"
                                         : "there is no \"outbox %s\"",
                           verb);
    if (a.n_rest != (is_list ? 1 : 2))
        return is_list || a.n_rest > 2 ? cli_misused(c, "too many arguments")
                                       : cli_misused(c, "%s what? Give an id", verb);
    return is_list ? list(&a) : is_show ? show(&a) : change(&a, verb);
}

const struct command cmd_outbox = {
    "outbox",
    "what agents said that is not delivered yet",
    "Usage: bellhop outbox list [--json]\n"
    "       bellhop outbox show ID [--json]\n"
    "       bellhop outbox retry ID\n"
    "       bellhop outbox drop ID\n\n"
    "list   what waits, what is being tried, and what may or may not have been delivered "
    "(unknown)\n"
    "show   one of them, with what is to be said\n"
    "retry  tries it now; what is unknown is done again, and may then be there twice\n"
    "drop   takes it out\n",
    run,
};
