/* gateway.c - bellhop gateway, token, dashboard, route: credentials of gateways, tokens, sign-in
 * links, and the chats that belong to an instance. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/jw.h"
#include "cli/cli.h"

/* ---- gateway ---- */

static void print_credentials(struct cli_job *j)
{
    printf("GATEWAY_RELAY_URL=%.*s\n", STR_FMT(json_str(j->doc, "url")));
    printf("GATEWAY_RELAY_ID=%.*s\n", STR_FMT(json_str(j->doc, "id")));
    printf("GATEWAY_RELAY_SECRET=%.*s\n", STR_FMT(json_str(j->doc, "secret")));
}

/* Prints who can reach the new gateway through one of its bots, and the code that the first person
 * sends to this bot.  @several: the gateway has other bots too. */
static void print_bot(struct cli_job *j, const char *instance, struct json b, bool several)
{
    struct str platform = json_str(b, "platform"), bot = json_str(b, "bot");
    bool linkable = cli_bool(b, "linkable"), open = cli_bool(b, "open");

    if (!cli_bool(b, "configured"))
        fprintf(stderr,
                "The server has no such bot yet, so nobody can write to it. Add the bot under "
                "platforms: in the configuration: {platform: %.*s, bot: %.*s}\n",
                STR_FMT(platform), STR_FMT(bot));
    else if (open)
        fprintf(stderr, "It is open: everybody who %s can write to it.\n",
                linkable ? "writes to the bot" : "can open the page");
    if (linkable && !open &&
        cli_op(j, "link",
               CLI_GIVEN({"tenant", str_of(cli_value(j, "--tenant"))},
                         {"instance", str_of(instance)}, {"platform", platform}, {"bots", bot})) ==
            CLI_DONE) {
        fprintf(stderr,
                "To link yourself, send the bot%s%.*s this message within ten minutes: /link "
                "%.*s\n",
                several ? " " : "", STR_FMT(several ? bot : STR("")),
                STR_FMT(json_str(j->doc, "code")));
        cli_link_how(platform);
    }
}

static void print_who_is_heard(struct cli_job *j)
{
    struct json_parser *parser = j->parser; /* holds the bots; print_bot() makes requests */
    struct json bots = json_get(j->doc, "bots");
    const char *given = cli_value(j, "--instance");
    char instance[256];

    snprintf(instance, sizeof instance, "%.*s",
             STR_FMT(given != NULL ? str_of(given) : json_str(j->doc, "id")));
    if (json_count(bots) == 0)
        fprintf(stderr,
                "Nobody can write to it yet. Link a person: bellhop link --tenant %s "
                "--instance %s\n",
                cli_value(j, "--tenant"), instance);
    j->parser = json_parser_new();
    for (struct json_iter it = {0}; json_next(bots, &it);)
        print_bot(j, instance, it.value, json_count(bots) > 1);
    json_parser_free(j->parser);
    j->parser = parser;
}

/* Writes --platform P --bot B --bot C ... as a JSON array of pairs: each bot belongs to the
 * platform before it.  False: a bot has no platform, or a platform has no bot. */
static bool write_bots(const struct cli_job *j, struct buf *out)
{
    struct jw w = jw_begin(out);
    const char *platform = NULL;
    bool used = true;

    jw_arr(&w);
    for (size_t i = 0; i < j->n_given; i++) {
        bool is_platform = strcmp(j->given[i].option->name, "--platform") == 0;
        if (!is_platform && strcmp(j->given[i].option->name, "--bot") != 0)
            continue;
        if (is_platform ? !used : platform == NULL)
            return false;
        used = !is_platform;
        if (is_platform) {
            platform = j->given[i].value;
            continue;
        }
        jw_obj(&w);
        jw_kstr(&w, "platform", str_of(platform));
        jw_kstr(&w, "bot", str_of(j->given[i].value));
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    return used;
}

static int add_gateway(struct cli_job *j)
{
    struct buf bots = BUF_INIT;
    int rc;

    if (!write_bots(j, &bots)) {
        rc = cli_misused(j, "--platform and --bot go together, the platform first");
    } else if (cli_flag(j, "--open") && cli_value(j, "--bot") == NULL) {
        rc = cli_misused(j, "--open needs --platform and --bot: which bot is open to everybody?");
    } else {
        j->extra[j->n_extra++] = (struct op_given){"bots", buf_str(&bots)};
        rc = cli_do(j);
        if (rc == CLI_DONE) {
            fputs("The secret is shown only once. Put the three lines into the gateway's "
                  "environment.\n",
                  stderr);
            print_who_is_heard(j);
        }
    }
    buf_done(&bots);
    return rc;
}

static int rotate(struct cli_job *j)
{
    const char *keep = cli_value(j, "--keep");
    int rc = cli_do(j);

    if (rc == CLI_DONE)
        fprintf(stderr, "The secret is shown only once. The old secret stays valid for %s.\n",
                keep != NULL ? keep : "1h");
    return rc;
}

static void cell_bot(struct cli_table *t, struct json gateway)
{
    struct json bots = json_get(gateway, "bots");
    struct buf text = BUF_INIT;

    if (json_count(bots) == 0) /* the bots that it named by itself */
        bots = json_get(gateway, "identities");
    for (struct json_iter it = {0}; json_next(bots, &it);)
        buf_printf(&text, "%s%.*s/%.*s", text.n > 0 ? ", " : "",
                   STR_FMT(json_str(it.value, "platform")), STR_FMT(json_str(it.value, "bot")));
    cli_cell_str(t, buf_str(&text));
    buf_done(&text);
}

static void cell_gateway_state(struct cli_table *t, struct json gateway)
{
    bool acks = json_as_bool(json_get(gateway, "acks"), true);

    cli_cell(t, "%s", cli_i64(gateway, "revokedAt") != 0 ? "revoked" : acks ? "ok" : "ok, no acks");
}

static const struct cli_column gateway_columns[] = {
    {"ID", "id"},
    {"TENANT", "tenant"},
    {"INSTANCE", "instance"},
    {"FOR", .cell = cell_bot},
    {"WAKE URL", "wakeUrl"},
    {"SECRETS", "secrets"},
    {"STATE", .cell = cell_gateway_state},
    {0},
};
static const struct cli_verb gateway_verbs[] = {
    {"add", .needs = "--tenant", .op = "addGateway", .print = print_credentials,
     .run = add_gateway},
    {"list", .op = "listGateways", .member = "gateways", .columns = gateway_columns,
     .none = "No gateway yet. Add one with: bellhop gateway add --tenant NAME"},
    {"rotate", .args = "id", .op = "rotateGateway", .print = print_credentials, .run = rotate},
    {"revoke", .args = "id", .op = "revokeGateway",
     .done = "%s is revoked; its sockets are closed."},
    {"set", .args = "id", .needs = "--wake-url", .op = "setGateway",
     .done = "The wake URL of %s is changed."},
    {0},
};
static const struct cli_option gateway_options[] = {
    {"--tenant", "tenant"},
    {"--id", "id"},
    {"--instance", "instance"},
    {"--wake-url", "wakeUrl"},
    {"--platform", .kind = CLI_REPEATED},
    {"--bot", .kind = CLI_REPEATED},
    {"--keep", "keepMs", CLI_DURATION},
    {"--open", "open", CLI_FLAG},
    {0},
};

const struct command cmd_gateway = {
    .name = "gateway",
    .summary = "add, list, rotate and revoke the gateways of agents",
    .help = "Usage: bellhop gateway add --tenant T [--id G] [--instance I] [--wake-url U]\n"
            "                           [--platform P --bot B]... [--open] [--json]\n"
            "       bellhop gateway list [--tenant T] [--instance I] [--json]\n"
            "       bellhop gateway rotate ID [--keep 1h]\n"
            "       bellhop gateway revoke ID\n"
            "       bellhop gateway set ID --wake-url U\n\n"
            "A gateway is the agent's end of the connection: it dials /relay with an id and a\n"
            "secret.\n\n"
            "add     creates a gateway and prints GATEWAY_RELAY_URL, GATEWAY_RELAY_ID and\n"
            "        GATEWAY_RELAY_SECRET, one per line, ready for a .env file.  The secret is\n"
            "        shown only once.  --platform and --bot name the bots that the agent speaks\n"
            "        through and whose menus show its commands; both may be repeated.  Then add\n"
            "        also prints a link code to send to each bot.  --open lets everybody who\n"
            "        writes to the bots reach the agent; a web chat page is always open.  The\n"
            "        instance is the gateway's id, unless --instance names another.\n"
            "rotate  prints a new secret.  Older secrets stay valid for --keep (default 1h).\n"
            "revoke  closes the gateway's sockets at once and refuses it from then on.\n"
            "set     changes the URL that wakes a sleeping gateway; an empty URL removes it.\n\n"
            "Every form takes -c FILE or --state-dir DIR to choose the server.\n",
    .verbs = gateway_verbs,
    .options = gateway_options,
};

/* ---- token ---- */

static void print_token(struct cli_job *j)
{
    printf("%.*s\n", STR_FMT(json_str(j->doc, "token")));
}

static void cell_bound_to(struct cli_table *t, struct json key)
{
    struct str agent = json_str(key, "agent"), instance = json_str(key, "instance");

    if (agent.p != NULL && instance.p != NULL)
        cli_cell(t, "%.*s, %.*s", STR_FMT(agent), STR_FMT(instance));
    else
        cli_cell_str(t, agent.p != NULL ? agent : instance);
}

static void cell_token_state(struct cli_table *t, struct json key)
{
    int64_t until_ms = cli_i64(key, "expiresAt");
    bool expired = until_ms != 0 && until_ms / 1000 <= (int64_t)time(NULL);

    cli_cell(t, "%s%s",
             cli_i64(key, "revokedAt") != 0 ? "revoked"
             : expired                      ? "expired"
                                            : "good",
             cli_bool(key, "attest")     ? ", attests"
             : cli_bool(key, "readOnly") ? ", read-only"
                                         : "");
}

static const struct cli_column token_columns[] = {
    {"ID", "id"},
    {"KIND", "kind"},
    {"TENANT", "tenant"},
    {"IDENTITY", "identity"},
    {"BOUND TO", .cell = cell_bound_to},
    {"MADE", "madeAt", CLI_AGO_MS},
    {"USED", "usedAt", CLI_AGO_MS},
    {"STATE", .cell = cell_token_state},
    {0},
};
#define MAKES(kind_) \
    .needs = "--tenant", .op = "makeToken", .print = print_token, \
    .fixed = {"kind", {kind_, sizeof kind_ - 1}}
static const struct cli_verb token_verbs[] = {
    {"enroll", .takes = "--tenant --ttl --instance --wake-url", MAKES("enroll")},
    {"provision", .takes = "--tenant --ttl", MAKES("provision")},
    {"agent", .takes = "--tenant --ttl --instance --agent --identity --namespace --attest",
     MAKES("agent")},
    {"dashboard", .takes = "--tenant --ttl --read-only", .op = "makeToken", .print = print_token,
     .fixed = {"kind", {"dashboard", 9}}},
    {"list", .op = "listTokens", .columns = token_columns, .none = "No token yet."},
    {"revoke", .args = "id", .op = "revokeToken", .done = "The token %s is revoked."},
    {0},
};
static const struct cli_option token_options[] = {
    {"--tenant", "tenant"},
    {"--ttl", "ttlMs", CLI_DURATION},
    {"--instance", "instance"},
    {"--wake-url", "wakeUrl"},
    {"--agent", "agent"},
    {"--identity", "identity"},
    {"--namespace", "namespace"},
    {"--attest", "attest", CLI_FLAG},
    {"--read-only", "readOnly", CLI_FLAG},
    {0},
};

const struct command cmd_token = {
    .name = "token",
    .summary = "make, list and revoke tokens for gateways and programs",
    .help =
        "Usage: bellhop token enroll --tenant T [--ttl 1h] [--instance I] [--wake-url U]\n"
        "       bellhop token provision --tenant T [--ttl 365d]\n"
        "       bellhop token agent --tenant T [--identity NAME] [--agent A] [--instance I]\n"
        "                           [--namespace N] [--attest] [--ttl 90d]\n"
        "       bellhop token dashboard [--tenant T] [--read-only] [--ttl 90d]\n"
        "       bellhop token list [--json]\n"
        "       bellhop token revoke ID\n\n"
        "enroll     for one POST /relay/enroll: a gateway that is set up by hand.\n"
        "provision  identifies the caller where no identity provider is configured: a bearer\n"
        "           for POST /relay/provision, and for /relay/enroll beside the enrollment\n"
        "           token.\n"
        "agent      a key for a program at /v1 and /mcp.  --identity is the author of what the\n"
        "           program writes (default: its agent, its instance or its tenant); --attest\n"
        "           lets it name other authors.  --agent binds the key to one agent,\n"
        "           --namespace to one part of the stores.  --instance lets it read and answer\n"
        "           that instance's chats over MCP.\n"
        "dashboard  signs a person in at /dashboard.  With --tenant the page shows only that\n"
        "           tenant; with --read-only it changes nothing.\n"
        "list       provision tokens and keys, with the time of their last use, without\n"
        "           secrets.\n"
        "revoke     refuses the token from now on.\n"
        "A token is shown only once, when it is made.\n",
    .verbs = token_verbs,
    .options = token_options,
};

/* ---- dashboard ---- */

static void print_link(struct cli_job *j)
{
    printf("%.*s\n", STR_FMT(json_str(j->doc, "url")));
}

static int open_dashboard(struct cli_job *j)
{
    int rc = cli_do(j);

    if (rc == CLI_DONE && !j->json)
        fputs("Open it in a browser on this machine. It works once.\n", stderr);
    return rc;
}

const struct command cmd_dashboard = {
    .name = "dashboard",
    .summary = "print a link that signs in at the dashboard",
    .help = "Usage: bellhop dashboard [--tenant T] [--read-only] [--ttl 5m] [--json]\n\n"
            "Prints a link to the dashboard of the running server.  The link works once, within\n"
            "five minutes, in a browser on this machine (also through `ssh -L`).  --tenant shows\n"
            "only that tenant.  --read-only changes nothing.\n\n"
            "From other machines, sign in with admin.token, or with a token of `bellhop token\n"
            "dashboard`, which may be for one tenant or read-only.\n",
    .verbs = (const struct cli_verb[]){{"", .op = "openDashboard", .print = print_link,
                                        .run = open_dashboard},
                                       {0}},
    .options = (const struct cli_option[]){{"--tenant", "tenant"},
                                           {"--read-only", "readOnly", CLI_FLAG},
                                           {"--ttl", "ttlMs", CLI_DURATION},
                                           {0}},
};

/* ---- route ---- */

static void cell_heard(struct cli_table *t, struct json route)
{
    bool by_operator = str_eq(json_str(route, "origin"), STR("operator"));

    cli_cell(t, "%s",
             cli_bool(route, "open") ? "everybody (open)"
             : by_operator           ? "linked people"
                                     : "linked people (claimed)");
}

static void cell_instance(struct cli_table *t, struct json route)
{
    struct str instance = json_str(route, "instance");

    cli_cell_str(t, instance.p != NULL ? instance : STR("(all of the tenant)"));
}

static const struct cli_column route_columns[] = {{"PLATFORM", "platform"},
                                                  {"KEY", "key"},
                                                  {"TENANT", "tenant"},
                                                  {"INSTANCE", .cell = cell_instance},
                                                  {"WHO IS HEARD", .cell = cell_heard},
                                                  {0}};
static const struct cli_verb route_verbs[] = {
    {"add", .needs = "--platform --key --tenant", .op = "addRoute"},
    {"list", .op = "listRoutes", .member = "routes", .columns = route_columns,
     .none = "No route yet: only linked people are heard. See: bellhop help route"},
    {"remove", .needs = "--platform --key --tenant", .op = "removeRoute"},
    {0},
};
static const struct cli_option route_options[] = {
    {"--platform", "platform"},   {"--key", "key"},
    {"--tenant", "tenant"},       {"--instance", "instance"},
    {"--open", "open", CLI_FLAG}, {0},
};

const struct command cmd_route = {
    .name = "route",
    .summary = "assign chats to a tenant, and open them to everybody",
    .help =
        "Usage: bellhop route add --platform P --key K --tenant T [--instance I] [--open]\n"
        "       bellhop route list [--json]\n"
        "       bellhop route remove --platform P --key K --tenant T [--instance I]\n\n"
        "A route assigns a place (a server, a group, a chat) to a tenant, so that the tenant's\n"
        "agents may speak there.  A person who is linked to an agent (bellhop link) reaches\n"
        "that agent from every place.  Other people reach it only in places with an open route:\n"
        "with --open everybody who writes there reaches the instance.  Name the instance when\n"
        "the tenant has several.  A web chat page has no accounts to link, so a route to one is\n"
        "always open.\n\n"
        "The key identifies the place: on discord the server, on telegram the chat, on web the\n"
        "name of the bot.  On other platforms the name of the bot, and \"*\" everywhere, stand\n"
        "for every place without a route of its own; such a route needs --open.\n",
    .verbs = route_verbs,
    .options = route_options,
};
