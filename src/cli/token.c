/* token.c - bellhop token enroll | provision: credentials for gateways to get their own with. */
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    const char *tenant = NULL, *ttl = NULL, *instance = NULL, *wake_url = NULL;
    const struct cli_option options[] = {
        {"--tenant", &tenant, NULL},
        {"--ttl", &ttl, NULL},
        {"--instance", &instance, NULL},
        {"--wake-url", &wake_url, NULL},
    };
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;
    int64_t ttl_ms = 0;

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    const char *kind = a.n_rest == 1 ? a.rest[0] : "";
    bool enroll = strcmp(kind, "enroll") == 0;
    if (!enroll && strcmp(kind, "provision") != 0)
        return cli_misused(c, "enroll or provision?");
    if (tenant == NULL)
        return cli_misused(c, "which --tenant?");
    if (!enroll && (instance != NULL || wake_url != NULL))
        return cli_misused(c, "--instance and --wake-url go with enroll; who provisions says them");
    if (ttl != NULL && (!str_to_duration_ms(str_of(ttl), &ttl_ms) || ttl_ms <= 0))
        return cli_misused(c, "--ttl takes a duration such as 1h or 30d, not \"%s\"", ttl);
    jw_obj(&w);
    jw_kstr(&w, "kind", str_of(kind));
    jw_kstr(&w, "tenant", str_of(tenant));
    jw_kstr_opt(&w, "instance", str_of(instance));
    jw_kstr_opt(&w, "wakeUrl", str_of(wake_url));
    if (ttl_ms > 0)
        jw_ki64(&w, "ttlMs", ttl_ms);
    jw_end_obj(&w);
    struct json_parser *parser = json_parser_new();
    int rc = cli_call(&a, "POST", "/admin/token", buf_str(&body), parser, &doc);
    if (rc == CLI_DONE && a.json)
        cli_print_json(doc);
    else if (rc == CLI_DONE)
        printf("%.*s\n", STR_FMT(json_str(doc, "token")));
    json_parser_free(parser);
    buf_done(&body);
    return rc;
}

const struct command cmd_token = {
    "token",
    "mint tokens that gateways get their credentials with",
    "Usage: bellhop token enroll --tenant T [--ttl 1h] [--instance I] [--wake-url U]\n"
    "       bellhop token provision --tenant T [--ttl 365d]\n\n"
    "enroll     good once, for POST /relay/enroll: a gateway that is set up by hand.\n"
    "provision  the caller's identity, where no identity provider is configured: a bearer for\n"
    "           POST /relay/provision, and for /relay/enroll beside the enrollment token.\n"
    "Both are signed with the master key and stop being good when their time is over.\n",
    run,
};
