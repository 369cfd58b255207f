/* gateway.c - bellhop gateway add | list | rotate | revoke | set. */
#include <inttypes.h>
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

struct gateway_options {
    const char *tenant, *id, *instance, *wake_url, *platform, *bot, *keep;
    bool open;
};

static void print_credentials(struct json doc)
{
    printf("GATEWAY_RELAY_URL=%.*s\n", STR_FMT(json_str(doc, "url")));
    printf("GATEWAY_RELAY_ID=%.*s\n", STR_FMT(json_str(doc, "id")));
    printf("GATEWAY_RELAY_SECRET=%.*s\n", STR_FMT(json_str(doc, "secret")));
}

/* How the first person reaches an agent that is not open: they send the bot a code. */
static void print_link(const struct cli_args *a, const struct gateway_options *o, struct str id)
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;

    jw_obj(&w);
    jw_kstr(&w, "tenant", str_of(o->tenant));
    jw_kstr(&w, "instance", o->instance != NULL ? str_of(o->instance) : id);
    jw_kstr(&w, "platform", str_of(o->platform));
    jw_end_obj(&w);
    if (cli_call(a, "POST", "/admin/manage/link", buf_str(&body), parser, &doc) == CLI_DONE)
        fprintf(stderr,
                "To be heard by it, send the bot this message within ten minutes: /link %.*s\n",
                STR_FMT(json_str(doc, "code")));
    json_parser_free(parser);
    buf_done(&body);
}

static void print_who_is_heard(const struct cli_args *a, const struct gateway_options *o,
                               struct json doc)
{
    bool linkable = json_as_bool(json_get(doc, "linkable"), false);

    if (o->platform == NULL)
        fprintf(stderr, "Nobody reaches it yet: bellhop link --tenant %s --instance %.*s\n",
                o->tenant,
                STR_FMT(o->instance != NULL ? str_of(o->instance) : json_str(doc, "id")));
    else if (!json_as_bool(json_get(doc, "configured"), true))
        fprintf(stderr,
                "The server has no such bot yet, so nobody reaches it: under platforms: in its "
                "configuration, {platform: %s, bot: %s}\n",
                o->platform, o->bot);
    else if (json_as_bool(json_get(doc, "open"), false))
        fprintf(stderr, "It is open: everybody who %s reaches it.\n",
                linkable ? "writes to the bot" : "can open the page");
    if (linkable)
        print_link(a, o, json_str(doc, "id"));
}

static int call_with(const struct cli_args *a, const char *path, const struct buf *body,
                     bool credentials, struct json_parser *parser, struct json *ret_doc)
{
    int rc = cli_call(a, "POST", path, buf_str(body), parser, ret_doc);

    if (rc == CLI_DONE && a->json)
        cli_print_json(*ret_doc);
    else if (rc == CLI_DONE && credentials)
        print_credentials(*ret_doc);
    return rc;
}

static int change(const struct cli_args *a, const char *path, const struct buf *body,
                  bool credentials)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = call_with(a, path, body, credentials, parser, &doc);

    json_parser_free(parser);
    return rc;
}

static int add(const struct command *c, const struct cli_args *a, const struct gateway_options *o)
{
    struct json_parser *parser;
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;

    if (o->tenant == NULL)
        return cli_misused(c, "add needs --tenant: whose agent is it?");
    if ((o->platform == NULL) != (o->bot == NULL))
        return cli_misused(c, "--platform and --bot go together");
    if (o->open && o->platform == NULL)
        return cli_misused(c, "--open needs --platform and --bot: which bot is open to everybody?");
    jw_obj(&w);
    jw_kstr(&w, "tenant", str_of(o->tenant));
    jw_kstr_opt(&w, "id", str_of(o->id));
    jw_kstr_opt(&w, "instance", str_of(o->instance));
    jw_kstr_opt(&w, "wakeUrl", str_of(o->wake_url));
    jw_kstr_opt(&w, "platform", str_of(o->platform));
    jw_kstr_opt(&w, "bot", str_of(o->bot));
    jw_kbool(&w, "open", o->open);
    jw_end_obj(&w);
    parser = json_parser_new();
    int rc = call_with(a, "/admin/gateways/add", &body, true, parser, &doc);
    if (rc == CLI_DONE) {
        fputs("The secret is shown this once. Put the three lines into the gateway's "
              "environment.\n",
              stderr);
        print_who_is_heard(a, o, doc);
    }
    json_parser_free(parser);
    buf_done(&body);
    return rc;
}

static int list(const struct cli_args *a)
{
    struct json_parser *parser = json_parser_new();
    struct cli_table t = {.columns = 7};
    static const char *const heads[] = {"ID",       "TENANT",  "INSTANCE", "FOR",
                                        "WAKE URL", "SECRETS", "STATE"};
    struct json doc;
    int rc = cli_call_pages(a, "/admin/gateways", parser, &doc);

    if (rc != CLI_DONE)
        goto out;
    if (a->json) {
        cli_print_json(json_get(doc, "gateways"));
        goto out;
    }
    if (json_count(json_get(doc, "gateways")) == 0) {
        fputs("No gateway yet. Add one with: bellhop gateway add --tenant NAME\n", stderr);
        goto out;
    }
    for (size_t i = 0; i < t.columns; i++)
        cli_cell(&t, "%s", heads[i]);
    for (struct json_iter it = {0}; json_next(json_get(doc, "gateways"), &it);) {
        struct str platform = json_str(it.value, "platform"), bot = json_str(it.value, "bot");
        bool revoked = json_type(json_get(it.value, "revokedAt")) == JSON_NUMBER;
        cli_cell_str(&t, json_str(it.value, "id"));
        cli_cell_str(&t, json_str(it.value, "tenant"));
        cli_cell_str(&t, json_str(it.value, "instance"));
        if (platform.p != NULL)
            cli_cell(&t, "%.*s/%.*s", STR_FMT(platform), STR_FMT(bot));
        else
            cli_cell(&t, "-");
        cli_cell_str(&t, json_str(it.value, "wakeUrl"));
        cli_cell(&t, "%" PRId64, cli_i64(it.value, "secrets"));
        cli_cell(&t, "%s",
                 revoked                                          ? "revoked"
                 : json_as_bool(json_get(it.value, "acks"), true) ? "ok"
                                                                  : "ok, never acks");
    }
    cli_table_print(&t);
out:
    json_parser_free(parser);
    return rc;
}

static int rotate(const struct command *c, const struct cli_args *a,
                  const struct gateway_options *o)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int64_t keep_ms = 0;

    if (o->keep != NULL && !str_to_duration_ms(str_of(o->keep), &keep_ms))
        return cli_misused(c, "--keep takes a duration such as 1h or 0s, not \"%s\"", o->keep);
    jw_obj(&w);
    jw_kstr(&w, "id", str_of(a->rest[1]));
    if (o->keep != NULL)
        jw_ki64(&w, "keepMs", keep_ms);
    jw_end_obj(&w);
    int rc = change(a, "/admin/gateways/rotate", &body, true);
    buf_done(&body);
    if (rc == CLI_DONE)
        fprintf(stderr, "The secret is shown this once. The old one stays valid for %s.\n",
                o->keep != NULL ? o->keep : "1h");
    return rc;
}

static int revoke(const struct cli_args *a)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "id", str_of(a->rest[1]));
    jw_end_obj(&w);
    int rc = change(a, "/admin/gateways/revoke", &body, false);
    buf_done(&body);
    if (rc == CLI_DONE)
        fprintf(stderr, "%s is revoked; its sockets are closed.\n", a->rest[1]);
    return rc;
}

static int set(const struct command *c, const struct cli_args *a, const struct gateway_options *o)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (o->wake_url == NULL)
        return cli_misused(c, "set needs --wake-url URL (an empty one removes it)");
    jw_obj(&w);
    jw_kstr(&w, "id", str_of(a->rest[1]));
    jw_kstr(&w, "wakeUrl", str_of(o->wake_url));
    jw_end_obj(&w);
    int rc = change(a, "/admin/gateways/set", &body, false);
    buf_done(&body);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct gateway_options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},     {"--id", &o.id, NULL},
        {"--instance", &o.instance, NULL}, {"--wake-url", &o.wake_url, NULL},
        {"--platform", &o.platform, NULL}, {"--bot", &o.bot, NULL},
        {"--keep", &o.keep, NULL},         {"--open", NULL, &o.open},
    };

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    const char *verb = a.n_rest > 0 ? a.rest[0] : "";
    bool wants_id =
        strcmp(verb, "rotate") == 0 || strcmp(verb, "revoke") == 0 || strcmp(verb, "set") == 0;
    if (a.n_rest > (wants_id ? 2 : 1))
        return cli_misused(c, "unexpected \"%s\"", a.rest[wants_id ? 2 : 1]);
    if (wants_id && a.n_rest != 2)
        return cli_misused(c, "%s which gateway? Give its id", verb);
    if (strcmp(verb, "add") == 0)
        return add(c, &a, &o);
    if (strcmp(verb, "list") == 0)
        return list(&a);
    if (strcmp(verb, "rotate") == 0)
        return rotate(c, &a, &o);
    if (strcmp(verb, "revoke") == 0)
        return revoke(&a);
    if (strcmp(verb, "set") == 0)
        return set(c, &a, &o);
    return cli_misused(c,
                       *verb == '\0' ? "add, list, rotate, revoke or set?%s"
                                     : "there is no \"gateway %s\"",
                       verb);
}

const struct command cmd_gateway = {
    "gateway",
    "add, list, rotate, revoke the agents that may dial in",
    "Usage: bellhop gateway add --tenant T [--id G] [--instance I] [--wake-url U]\n"
    "                           [--platform P --bot B [--open]] [--json]\n"
    "       bellhop gateway list [--json]\n"
    "       bellhop gateway rotate ID [--keep 1h]\n"
    "       bellhop gateway revoke ID\n"
    "       bellhop gateway set ID --wake-url U\n\n"
    "A gateway is the agent's side: it dials /relay with an id and a secret.\n\n"
    "add     prints GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET, one per line, "
    "ready\n"
    "        for a .env file.  The secret is shown once.  --platform and --bot say which bot it "
    "speaks\n"
    "        through; a link code to send to the bot is printed beside the lines.  With --open "
    "everybody\n"
    "        who writes to the bot reaches it; a web chat page is always open.  Without --instance "
    "the\n"
    "        gateway's id is its instance.\n"
    "rotate  prints a new secret; older ones stay valid for --keep (default 1h).\n"
    "revoke  ends it: its sockets are closed at once and it may not come back.\n"
    "set     changes where a sleeping gateway is rung; an empty URL removes it.\n\n"
    "Every form takes -c FILE or --state-dir DIR to say which server is meant.\n",
    run,
};
