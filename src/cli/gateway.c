/* gateway.c - bellhop gateway, token, route: credentials of gateways, tokens, and the chats that
 * belong to an instance. */
#include <inttypes.h>
#include <stdio.h>
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"

static const char *truth(bool b)
{
    return b ? "true" : "false";
}

/* ---- gateway ---- */

struct gateway_options {
    const char *tenant, *id, *instance, *wake_url, *platform, *bot, *keep;
    bool open;
};

static void print_credentials(struct cli_job *j)
{
    printf("GATEWAY_RELAY_URL=%.*s\n", STR_FMT(json_str(j->doc, "url")));
    printf("GATEWAY_RELAY_ID=%.*s\n", STR_FMT(json_str(j->doc, "id")));
    printf("GATEWAY_RELAY_SECRET=%.*s\n", STR_FMT(json_str(j->doc, "secret")));
}

/* Prints who can reach the new gateway, and the code that the first person sends to the bot. */
static void print_who_is_heard(struct cli_job *j, const struct gateway_options *o)
{
    bool linkable = cli_bool(j->doc, "linkable");
    char instance[256];

    snprintf(instance, sizeof instance, "%.*s",
             STR_FMT(o->instance != NULL ? str_of(o->instance) : json_str(j->doc, "id")));
    if (o->platform == NULL)
        fprintf(stderr, "Nobody reaches it yet: bellhop link --tenant %s --instance %s\n",
                o->tenant, instance);
    else if (!json_as_bool(json_get(j->doc, "configured"), true))
        fprintf(stderr,
                "The server has no such bot yet, so nobody reaches it: under platforms: in its "
                "configuration, {platform: %s, bot: %s}\n",
                o->platform, o->bot);
    else if (cli_bool(j->doc, "open"))
        fprintf(stderr, "It is open: everybody who %s reaches it.\n",
                linkable ? "writes to the bot" : "can open the page");
    if (linkable &&
        cli_post(j, "/admin/manage/link",
                 CLI_FIELDS({"tenant", str_of(o->tenant)}, {"instance", str_of(instance)},
                            {"platform", str_of(o->platform)})) == CLI_DONE)
        fprintf(stderr,
                "To be heard by it, send the bot this message within ten minutes: /link %.*s\n",
                STR_FMT(json_str(j->doc, "code")));
}

static int add_gateway(struct cli_job *j)
{
    const struct gateway_options *o = j->o;

    if (o->tenant == NULL)
        return cli_misused(j->c, "add needs --tenant: whose agent is it?");
    if ((o->platform == NULL) != (o->bot == NULL))
        return cli_misused(j->c, "--platform and --bot go together");
    if (o->open && o->platform == NULL)
        return cli_misused(j->c,
                           "--open needs --platform and --bot: which bot is open to everybody?");
    int rc =
        cli_show(j,
                 cli_post(j, "/admin/gateways/add",
                          CLI_FIELDS({"tenant", str_of(o->tenant)}, {"id", str_of(o->id)},
                                     {"instance", str_of(o->instance)},
                                     {"wakeUrl", str_of(o->wake_url)},
                                     {"platform", str_of(o->platform)}, {"bot", str_of(o->bot)},
                                     {"open", .raw = truth(o->open)})),
                 print_credentials);
    if (rc == CLI_DONE) {
        fputs("The secret is shown this once. Put the three lines into the gateway's "
              "environment.\n",
              stderr);
        print_who_is_heard(j, o);
    }
    return rc;
}

static void cell_bot(struct cli_table *t, struct json gateway)
{
    struct str platform = json_str(gateway, "platform");

    if (platform.p != NULL)
        cli_cell(t, "%.*s/%.*s", STR_FMT(platform), STR_FMT(json_str(gateway, "bot")));
    else
        cli_cell(t, "-");
}

static void cell_gateway_state(struct cli_table *t, struct json gateway)
{
    bool revoked = json_type(json_get(gateway, "revokedAt")) == JSON_NUMBER;

    cli_cell(t, "%s",
             revoked                                         ? "revoked"
             : json_as_bool(json_get(gateway, "acks"), true) ? "ok"
                                                             : "ok, never acks");
}

static int list_gateways(struct cli_job *j)
{
    static const struct cli_column columns[] = {{"ID", "id"},
                                                {"TENANT", "tenant"},
                                                {"INSTANCE", "instance"},
                                                {"FOR", .cell = cell_bot},
                                                {"WAKE URL", "wakeUrl"},
                                                {"SECRETS", "secrets"},
                                                {"STATE", .cell = cell_gateway_state}};

    return cli_show_rows(j, cli_get_pages(j, "/admin/gateways", NULL, 0), "gateways", columns,
                         ARRAY_LEN(columns),
                         "No gateway yet. Add one with: bellhop gateway add --tenant NAME");
}

static int rotate(struct cli_job *j)
{
    const struct gateway_options *o = j->o;
    char keep[24] = "";
    int64_t keep_ms;

    if (o->keep != NULL && !str_to_duration_ms(str_of(o->keep), &keep_ms))
        return cli_misused(j->c, "--keep takes a duration such as 1h or 0s, not \"%s\"", o->keep);
    if (o->keep != NULL)
        snprintf(keep, sizeof keep, "%" PRId64, keep_ms);
    int rc = cli_show(j,
                      cli_post(j, "/admin/gateways/rotate",
                               CLI_FIELDS({"id", str_of(j->a.rest[1])},
                                          {"keepMs", .raw = keep[0] != '\0' ? keep : NULL})),
                      print_credentials);
    if (rc == CLI_DONE)
        fprintf(stderr, "The secret is shown this once. The old one stays valid for %s.\n",
                o->keep != NULL ? o->keep : "1h");
    return rc;
}

static int revoke_gateway(struct cli_job *j)
{
    int rc =
        cli_show(j, cli_post(j, "/admin/gateways/revoke", CLI_FIELDS({"id", str_of(j->a.rest[1])})),
                 NULL);

    if (rc == CLI_DONE)
        fprintf(stderr, "%s is revoked; its sockets are closed.\n", j->a.rest[1]);
    return rc;
}

static int set_gateway(struct cli_job *j)
{
    const struct gateway_options *o = j->o;

    if (o->wake_url == NULL)
        return cli_misused(j->c, "set needs --wake-url URL (an empty one removes it)");
    return cli_show(j,
                    cli_post(j, "/admin/gateways/set",
                             CLI_FIELDS({"id", str_of(j->a.rest[1])},
                                        {"wakeUrl", str_of(o->wake_url)})),
                    NULL);
}

static int run_gateway(const struct command *c, int argc, char **argv)
{
    static const struct cli_verb verbs[] = {
        {"add", 0, 0, NULL, add_gateway},
        {"list", 0, 0, NULL, list_gateways},
        {"rotate", 1, 1, "which gateway? Give its id", rotate},
        {"revoke", 1, 1, "which gateway? Give its id", revoke_gateway},
        {"set", 1, 1, "which gateway? Give its id", set_gateway},
        {0},
    };
    struct gateway_options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},     {"--id", &o.id, NULL},
        {"--instance", &o.instance, NULL}, {"--wake-url", &o.wake_url, NULL},
        {"--platform", &o.platform, NULL}, {"--bot", &o.bot, NULL},
        {"--keep", &o.keep, NULL},         {"--open", NULL, &o.open},
    };

    return cli_run(c, argc, argv, options, ARRAY_LEN(options), verbs, &o);
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
    run_gateway,
};

/* ---- token ---- */

struct token_options {
    const char *tenant, *ttl, *instance, *wake_url; /* enroll, provision, agent */
    const char *agent, *identity, *ns;              /* agent */
    bool attest;
};

static const char *misplaced(const char *kind, const struct token_options *o)
{
    bool enroll = strcmp(kind, "enroll") == 0, agent = strcmp(kind, "agent") == 0;

    if (!enroll && o->wake_url != NULL)
        return "--wake-url goes with enroll; who provisions says it";
    if (!enroll && !agent && o->instance != NULL)
        return "--instance goes with enroll and agent; who provisions says it";
    if (!agent && (o->agent != NULL || o->identity != NULL || o->ns != NULL || o->attest))
        return "--agent, --identity, --namespace and --attest go with agent";
    return NULL;
}

static void print_token(struct cli_job *j)
{
    printf("%.*s\n", STR_FMT(json_str(j->doc, "token")));
}

static int mint(struct cli_job *j)
{
    const struct token_options *o = j->o;
    const char *kind = j->a.rest[0], *wrong = misplaced(kind, o);
    char ttl[24] = "";
    int64_t ttl_ms;

    if (o->tenant == NULL)
        return cli_misused(j->c, "which --tenant?");
    if (wrong != NULL)
        return cli_misused(j->c, "%s", wrong);
    if (o->ttl != NULL && (!str_to_duration_ms(str_of(o->ttl), &ttl_ms) || ttl_ms <= 0))
        return cli_misused(j->c, "--ttl takes a duration such as 1h or 30d, not \"%s\"", o->ttl);
    if (o->ttl != NULL)
        snprintf(ttl, sizeof ttl, "%" PRId64, ttl_ms);
    return cli_show(
        j,
        cli_post(j, "/admin/token",
                 CLI_FIELDS({"kind", str_of(kind)}, {"tenant", str_of(o->tenant)},
                            {"instance", str_of(o->instance)}, {"wakeUrl", str_of(o->wake_url)},
                            {"agent", str_of(o->agent)}, {"identity", str_of(o->identity)},
                            {"namespace", str_of(o->ns)},
                            {"attest", .raw = o->attest ? "true" : NULL},
                            {"ttlMs", .raw = ttl[0] != '\0' ? ttl : NULL})),
        print_token);
}

static void print_tokens(struct cli_job *j)
{
    static const char *const heads[] = {"ID",       "KIND", "TENANT", "IDENTITY",
                                        "BOUND TO", "MADE", "USED",   "STATE"};
    struct cli_table t = {.columns = ARRAY_LEN(heads)};
    struct clock *clock = clock_new();
    int64_t now_ms = clock_wall_ms(clock);

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        cli_cell(&t, "%s", heads[i]);
    for (struct json_iter it = {0}; json_next(j->doc, &it);) {
        struct json k = it.value;
        struct str agent = json_str(k, "agent"), instance = json_str(k, "instance");
        int64_t until_ms = cli_i64(k, "expiresAt");
        cli_cell_str(&t, json_str(k, "id"));
        cli_cell_str(&t, json_str(k, "kind"));
        cli_cell_str(&t, json_str(k, "tenant"));
        cli_cell_str(&t, json_str(k, "identity"));
        if (agent.p != NULL && instance.p != NULL)
            cli_cell(&t, "%.*s, %.*s", STR_FMT(agent), STR_FMT(instance));
        else
            cli_cell_str(&t, agent.p != NULL ? agent : instance);
        cli_cell_ago(&t, now_ms, json_get(k, "madeAt"));
        cli_cell_ago(&t, now_ms, json_get(k, "usedAt"));
        cli_cell(&t, "%s%s",
                 cli_i64(k, "revokedAt") != 0          ? "revoked"
                 : until_ms != 0 && until_ms <= now_ms ? "expired"
                                                       : "good",
                 json_as_bool(json_get(k, "attest"), false) ? ", attests" : "");
    }
    cli_table_print(&t);
    clock_free(clock);
}

static int list_tokens(struct cli_job *j)
{
    return cli_show(j, cli_get(j, "/admin/tokens", NULL, 0), print_tokens);
}

static int revoke_token(struct cli_job *j)
{
    return cli_show(j,
                    cli_post(j, "/admin/tokens/revoke", CLI_FIELDS({"id", str_of(j->a.rest[1])})),
                    NULL);
}

static int run_token(const struct command *c, int argc, char **argv)
{
    static const struct cli_verb verbs[] = {
        {"enroll", 0, 0, NULL, mint},
        {"provision", 0, 0, NULL, mint},
        {"agent", 0, 0, NULL, mint},
        {"list", 0, 0, NULL, list_tokens},
        {"revoke", 1, 1, "which? bellhop token list shows their ids", revoke_token},
        {0},
    };
    struct token_options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},     {"--ttl", &o.ttl, NULL},
        {"--instance", &o.instance, NULL}, {"--wake-url", &o.wake_url, NULL},
        {"--agent", &o.agent, NULL},       {"--identity", &o.identity, NULL},
        {"--namespace", &o.ns, NULL},      {"--attest", NULL, &o.attest},
    };

    return cli_run(c, argc, argv, options, ARRAY_LEN(options), verbs, &o);
}

const struct command cmd_token = {
    "token",
    "tokens for gateways and programs: make, list, revoke",
    "Usage: bellhop token enroll --tenant T [--ttl 1h] [--instance I] [--wake-url U]\n"
    "       bellhop token provision --tenant T [--ttl 365d]\n"
    "       bellhop token agent --tenant T [--identity NAME] [--agent A] [--instance I]\n"
    "                           [--namespace N] [--attest] [--ttl 90d]\n"
    "       bellhop token list [--json]\n"
    "       bellhop token revoke ID\n\n"
    "enroll     good once, for POST /relay/enroll: a gateway that is set up by hand.\n"
    "provision  the caller's identity, where no identity provider is configured: a bearer for\n"
    "           POST /relay/provision, and for /relay/enroll beside the enrollment token.\n"
    "agent      a key for a program at /v1 and /mcp.  --identity is the author of what it writes\n"
    "           (else its agent, its instance or its tenant); --attest lets it name other "
    "authors.\n"
    "           --agent binds it to one agent, --namespace to one part of the stores, --instance\n"
    "           says whose chats it reads and answers over MCP.\n"
    "list       provision tokens and keys: never the secret, always when it was used last.\n"
    "revoke     from now on it opens nothing.\n"
    "A token is shown once, when it is made.\n",
    run_token,
};

/* ---- route ---- */

struct route_options {
    const char *platform, *key, *tenant, *instance;
    bool open;
};

static int change_route(struct cli_job *j)
{
    const struct route_options *o = j->o;
    char path[64];

    if (o->platform == NULL || o->key == NULL || o->tenant == NULL)
        return cli_misused(j->c, "%s needs --platform, --key and --tenant", j->a.rest[0]);
    snprintf(path, sizeof path, "/admin/routes/%s", j->a.rest[0]);
    return cli_show(j,
                    cli_post(j, path,
                             CLI_FIELDS({"platform", str_of(o->platform)}, {"key", str_of(o->key)},
                                        {"tenant", str_of(o->tenant)},
                                        {"instance", str_of(o->instance)},
                                        {"open", .raw = truth(o->open)})),
                    NULL);
}

static void cell_heard(struct cli_table *t, struct json route)
{
    cli_cell(t, "%s",
             cli_bool(route, "open")                              ? "everybody (open)"
             : str_eq(json_str(route, "origin"), STR("operator")) ? "linked people"
                                                                  : "linked people (claimed)");
}

static void cell_instance(struct cli_table *t, struct json route)
{
    struct str instance = json_str(route, "instance");

    cli_cell_str(t, instance.p != NULL ? instance : STR("(all of the tenant)"));
}

static int list_routes(struct cli_job *j)
{
    static const struct cli_column columns[] = {{"PLATFORM", "platform"},
                                                {"KEY", "key"},
                                                {"TENANT", "tenant"},
                                                {"INSTANCE", .cell = cell_instance},
                                                {"WHO IS HEARD", .cell = cell_heard}};

    return cli_show_rows(j, cli_get_pages(j, "/admin/routes", NULL, 0), "routes", columns,
                         ARRAY_LEN(columns),
                         "No route yet: only linked people are heard. See: bellhop help route");
}

static int run_route(const struct command *c, int argc, char **argv)
{
    static const struct cli_verb verbs[] = {
        {"add", 0, 0, NULL, change_route},
        {"list", 0, 0, NULL, list_routes},
        {"remove", 0, 0, NULL, change_route},
        {0},
    };
    struct route_options o = {0};
    const struct cli_option options[] = {
        {"--platform", &o.platform, NULL}, {"--key", &o.key, NULL},   {"--tenant", &o.tenant, NULL},
        {"--instance", &o.instance, NULL}, {"--open", NULL, &o.open},
    };

    return cli_run(c, argc, argv, options, ARRAY_LEN(options), verbs, &o);
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
    run_route,
};
