/* route.c - bellhop route add | list | remove. */
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

struct route_options {
    const char *platform, *key, *tenant, *instance;
    bool open;
};

static int change(const struct command *c, const struct cli_args *a, const struct route_options *o,
                  const char *verb)
{
    struct json_parser *parser;
    struct buf body = BUF_INIT, path = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;

    if (o->platform == NULL || o->key == NULL || o->tenant == NULL)
        return cli_misused(c, "%s needs --platform, --key and --tenant", verb);
    jw_obj(&w);
    jw_kstr(&w, "platform", str_of(o->platform));
    jw_kstr(&w, "key", str_of(o->key));
    jw_kstr(&w, "tenant", str_of(o->tenant));
    jw_kstr_opt(&w, "instance", str_of(o->instance));
    jw_kbool(&w, "open", o->open);
    jw_end_obj(&w);
    buf_printf(&path, "/admin/routes/%s", verb);
    parser = json_parser_new();
    int rc = cli_call(a, "POST", buf_z(&path), buf_str(&body), parser, &doc);
    if (rc == CLI_DONE && a->json)
        cli_print_json(doc);
    json_parser_free(parser);
    buf_done(&body);
    buf_done(&path);
    return rc;
}

static const char *heard(struct json route)
{
    if (json_as_bool(json_get(route, "open"), false))
        return "everybody (open)";
    return str_eq(json_str(route, "origin"), STR("operator")) ? "linked people"
                                                              : "linked people (claimed)";
}

static int list(const struct cli_args *a)
{
    struct json_parser *parser = json_parser_new();
    struct cli_table t = {.columns = 5};
    static const char *const heads[] = {"PLATFORM", "KEY", "TENANT", "INSTANCE", "WHO IS HEARD"};
    struct json doc;
    int rc = cli_call_pages(a, "/admin/routes", parser, &doc);

    if (rc == CLI_DONE && a->json) {
        cli_print_json(json_get(doc, "routes"));
    } else if (rc == CLI_DONE && json_count(json_get(doc, "routes")) == 0) {
        fputs("No route yet: only linked people are heard. See: bellhop help route\n", stderr);
    } else if (rc == CLI_DONE) {
        for (size_t i = 0; i < t.columns; i++)
            cli_cell(&t, "%s", heads[i]);
        for (struct json_iter it = {0}; json_next(json_get(doc, "routes"), &it);) {
            struct str instance = json_str(it.value, "instance");
            cli_cell_str(&t, json_str(it.value, "platform"));
            cli_cell_str(&t, json_str(it.value, "key"));
            cli_cell_str(&t, json_str(it.value, "tenant"));
            cli_cell_str(&t, instance.p != NULL ? instance : STR("(all of the tenant)"));
            cli_cell(&t, "%s", heard(it.value));
        }
        cli_table_print(&t);
    }
    json_parser_free(parser);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct route_options o = {0};
    const struct cli_option options[] = {
        {"--platform", &o.platform, NULL}, {"--key", &o.key, NULL},   {"--tenant", &o.tenant, NULL},
        {"--instance", &o.instance, NULL}, {"--open", NULL, &o.open},
    };

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    const char *verb = a.n_rest > 0 ? a.rest[0] : "";
    if (a.n_rest > 1)
        return cli_misused(c, "unexpected \"%s\"", a.rest[1]);
    if (strcmp(verb, "list") == 0)
        return list(&a);
    if (strcmp(verb, "add") == 0 || strcmp(verb, "remove") == 0)
        return change(c, &a, &o, verb);
    return cli_misused(c, *verb == '\0' ? "add, list or remove?%s" : "there is no \"route %s\"",
                       verb);
}

const struct command cmd_route = {
    "route",
    "say whose place it is, and open it to everybody",
    "Usage: bellhop route add --platform P --key K --tenant T [--instance I] [--open]\n"
    "       bellhop route list [--json]\n"
    "       bellhop route remove --platform P --key K --tenant T [--instance I]\n\n"
    "A route says which tenant a place belongs to, so its agents may speak there.  People who are\n"
    "linked to an agent (bellhop link) reach it from everywhere; nobody else does, until the place "
    "is\n"
    "opened: with --open everybody who writes there reaches the instance.  It has to be named when "
    "the\n"
    "tenant has several.  Web chat pages have no accounts to link: a route to one is always "
    "open.\n\n"
    "The key is what the platform tells its places apart by: for discord the server, for telegram "
    "the\n"
    "chat, for web the bot's name.  The bot's name elsewhere, and \"*\", mean everything that has "
    "no\n"
    "route of its own, and need --open.\n",
    run,
};
