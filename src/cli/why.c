/* why.c - bellhop why: who received a message, who did not, and the reason. */
#include <inttypes.h>
#include <stdio.h>
#include "base/mem.h"
#include "cli/cli.h"

static void print_verdict(struct json v)
{
    printf("  %-12s %.*s/%.*s: %.*s (%.*s)\n",
           json_as_bool(json_get(v, "received"), false) ? "received" : "not received",
           STR_FMT(json_str(v, "tenant")), STR_FMT(json_str(v, "instance")),
           STR_FMT(json_str(v, "words")), STR_FMT(json_str(v, "reason")));
}

static void print_decision(struct json d, int64_t now)
{
    struct str consumed = json_str(d, "consumed");
    struct json verdicts = json_get(d, "verdicts");
    int64_t more = cli_i64(d, "candidates") - (int64_t)json_count(verdicts);

    printf("%.*s message %.*s in %.*s %.*s from %.*s, %" PRId64 " s ago\n",
           STR_FMT(json_str(d, "platform")), STR_FMT(json_str(d, "messageId")),
           STR_FMT(json_str(d, "chatType")), STR_FMT(json_str(d, "chatId")),
           STR_FMT(json_str(d, "userId")), (now - cli_i64(d, "at")) / 1000);
    if (consumed.p != NULL)
        printf("  It was %.*s: for bellhop itself, and delivered to nobody.\n", STR_FMT(consumed));
    else if (json_count(verdicts) == 0)
        puts("  The author is linked to nobody, and nobody was granted the place or routed there. "
             "See: bellhop help link, bellhop help route");
    for (struct json_iter it = {0}; json_next(verdicts, &it);)
        print_verdict(it.value);
    if (more > 0)
        printf("  and %" PRId64 " more\n", more);
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    const char *platform = NULL, *message = NULL;
    const struct cli_option options[] = {
        {"--platform", &platform, NULL},
        {"--message", &message, NULL},
    };
    struct buf path = BUF_INIT;
    struct json doc;

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    if (a.n_rest > 0)
        return cli_misused(c, "unexpected \"%s\"", a.rest[0]);
    if (message != NULL && platform == NULL)
        return cli_misused(c, "--message needs --platform: ids repeat between platforms");
    buf_add_z(&path, "/admin/why");
    cli_query_add(&path, '?', "platform", platform != NULL ? platform : "");
    cli_query_add(&path, '&', "message", message != NULL ? message : "");
    struct json_parser *parser = json_parser_new();
    int rc = cli_call(&a, "GET", buf_z(&path), STR_NULL, parser, &doc);
    struct json decisions = rc == CLI_DONE ? json_get(doc, "decisions") : (struct json){0};
    if (rc == CLI_DONE && a.json)
        cli_print_json(decisions);
    else if (rc == CLI_DONE && json_count(decisions) == 0)
        rc = cli_failed("nothing is known of it: the newest 4096 messages are kept, for a day, and "
                        "none from before the last start");
    else if (rc == CLI_DONE)
        for (struct json_iter it = {0}; json_next(decisions, &it);)
            print_decision(it.value, cli_i64(doc, "now"));
    json_parser_free(parser);
    buf_done(&path);
    return rc;
}

const struct command cmd_why = {
    "why",
    "tell who received a message, who did not, and why",
    "Usage: bellhop why --platform P --message ID [--json]\n"
    "       bellhop why [--platform P] [--json]\n\n"
    "Without --message the newest 20 are told.  Decisions are kept in memory for a day, without "
    "what\n"
    "was said.\n",
    run,
};
