/* token.c - bellhop token enroll | provision | agent | list | revoke: credentials for programs. */
#include <stdio.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

struct token_options {
    const char *tenant, *ttl, *instance, *wake_url; /* enroll, provision, agent */
    const char *agent, *identity, *ns;              /* agent */
    bool attest;
};

static int post(const struct cli_args *a, const char *path, struct str body, bool print_token)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = cli_call(a, "POST", path, body, parser, &doc);

    if (rc == CLI_DONE && a->json)
        cli_print_json(doc);
    else if (rc == CLI_DONE && print_token)
        printf("%.*s\n", STR_FMT(json_str(doc, "token")));
    json_parser_free(parser);
    return rc;
}

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

static int mint(const struct command *c, const struct cli_args *a, const struct token_options *o)
{
    const char *kind = a->rest[0], *wrong = misplaced(kind, o);
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int64_t ttl_ms = 0;

    if (o->tenant == NULL)
        return cli_misused(c, "which --tenant?");
    if (wrong != NULL)
        return cli_misused(c, "%s", wrong);
    if (o->ttl != NULL && (!str_to_duration_ms(str_of(o->ttl), &ttl_ms) || ttl_ms <= 0))
        return cli_misused(c, "--ttl takes a duration such as 1h or 30d, not \"%s\"", o->ttl);
    jw_obj(&w);
    jw_kstr(&w, "kind", str_of(kind));
    jw_kstr(&w, "tenant", str_of(o->tenant));
    jw_kstr_opt(&w, "instance", str_of(o->instance));
    jw_kstr_opt(&w, "wakeUrl", str_of(o->wake_url));
    jw_kstr_opt(&w, "agent", str_of(o->agent));
    jw_kstr_opt(&w, "identity", str_of(o->identity));
    jw_kstr_opt(&w, "namespace", str_of(o->ns));
    if (o->attest)
        jw_kbool(&w, "attest", true);
    if (ttl_ms > 0)
        jw_ki64(&w, "ttlMs", ttl_ms);
    jw_end_obj(&w);
    int rc = post(a, "/admin/token", buf_str(&body), true);
    buf_done(&body);
    return rc;
}

static void print_list(struct json doc, int64_t now_ms)
{
    static const char *const heads[] = {"ID",       "KIND", "TENANT", "IDENTITY",
                                        "BOUND TO", "MADE", "USED",   "STATE"};
    struct cli_table t = {.columns = ARRAY_LEN(heads)};

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        cli_cell(&t, "%s", heads[i]);
    for (struct json_iter it = {0}; json_next(doc, &it);) {
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
}

static int list(const struct cli_args *a)
{
    struct json_parser *parser = json_parser_new();
    struct clock *clock = clock_new();
    struct json doc;
    int rc = cli_call(a, "GET", "/admin/tokens", STR_NULL, parser, &doc);

    if (rc == CLI_DONE && a->json)
        cli_print_json(doc);
    else if (rc == CLI_DONE)
        print_list(doc, clock_wall_ms(clock));
    clock_free(clock);
    json_parser_free(parser);
    return rc;
}

static int revoke(const struct cli_args *a)
{
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "id", str_of(a->rest[1]));
    jw_end_obj(&w);
    int rc = post(a, "/admin/tokens/revoke", buf_str(&body), false);
    buf_done(&body);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    struct token_options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},     {"--ttl", &o.ttl, NULL},
        {"--instance", &o.instance, NULL}, {"--wake-url", &o.wake_url, NULL},
        {"--agent", &o.agent, NULL},       {"--identity", &o.identity, NULL},
        {"--namespace", &o.ns, NULL},      {"--attest", NULL, &o.attest},
    };

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    const char *verb = a.n_rest > 0 ? a.rest[0] : "";
    bool mints =
        strcmp(verb, "enroll") == 0 || strcmp(verb, "provision") == 0 || strcmp(verb, "agent") == 0;
    bool revokes = strcmp(verb, "revoke") == 0;
    if (!mints && !revokes && strcmp(verb, "list") != 0)
        return cli_misused(c, "enroll, provision, agent, list or revoke?");
    if (revokes && a.n_rest == 1)
        return cli_misused(c, "revoke which? bellhop token list shows their ids");
    if (a.n_rest > (revokes ? 2 : 1))
        return cli_misused(c, "too many arguments");
    return mints ? mint(c, &a, &o) : revokes ? revoke(&a) : list(&a);
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
    run,
};
