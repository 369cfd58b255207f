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

static void print_action(struct json e, int64_t now)
{
    struct str reason = json_str(e, "reason"), message = json_str(e, "message_id");

    printf("%.*s (%.*s) of %.*s/%.*s to %.*s %.*s, %" PRId64 " s ago: %.*s%s%.*s\n",
           STR_FMT(json_str(e, "op")), STR_FMT(json_str(e, "request")),
           STR_FMT(json_str(e, "tenant")), STR_FMT(json_str(e, "instance")),
           STR_FMT(json_str(e, "platform")), STR_FMT(json_str(e, "chat_id")),
           (now - cli_i64(e, "at")) / 1000, STR_FMT(json_str(e, "ended")), reason.n > 0 ? ", " : "",
           STR_FMT(reason));
    printf("  requests made: %" PRId64 ", took %" PRId64 " ms%s", cli_i64(e, "attempts"),
           cli_i64(e, "at") - cli_i64(e, "asked"),
           json_as_bool(json_get(e, "queued"), false) ? ", its gateway was told that it is queued"
                                                      : "");
    printf(message.n > 0 ? ", message %.*s\n" : "%.*s\n", STR_FMT(message));
}

static int why_action(const struct cli_args *a, const char *id)
{
    struct json_parser *parser = json_parser_new();
    struct buf path = BUF_INIT;
    struct json doc;

    buf_add_z(&path, "/admin/why");
    cli_query_add(&path, '?', "action", id);
    int rc = cli_call(a, "GET", buf_z(&path), STR_NULL, parser, &doc);
    struct json actions = rc == CLI_DONE ? json_get(doc, "actions") : (struct json){0};
    if (rc == CLI_DONE && a->json)
        cli_print_json(actions);
    else if (rc == CLI_DONE && json_count(actions) == 0)
        rc =
            cli_failed("no action of that name has ended: the newest 4096 are known, and of those "
                       "from before the last start what is unknown; see also: bellhop outbox list");
    else if (rc == CLI_DONE)
        for (struct json_iter it = {0}; json_next(actions, &it);)
            print_action(it.value, cli_i64(doc, "now"));
    json_parser_free(parser);
    buf_done(&path);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
    const char *platform = NULL, *message = NULL, *action = NULL;
    const struct cli_option options[] = {
        {"--platform", &platform, NULL},
        {"--message", &message, NULL},
        {"--action", &action, NULL},
    };
    struct buf path = BUF_INIT;
    struct json doc;

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    if (a.n_rest > 0)
        return cli_misused(c, "unexpected \"%s\"", a.rest[0]);
    if (action != NULL && (message != NULL || platform != NULL))
        return cli_misused(c, "--action stands alone");
    if (action != NULL)
        return why_action(&a, action);
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
    "       bellhop why [--platform P] [--json]\n"
    "       bellhop why --action ID [--json]\n\n"
    "--action tells how something that an agent asked for ended; the ID is the request's, as its\n"
    "gateway made it, or the one in the outbox.\n"
    "Without --message the newest 20 are told.  Decisions are kept in memory for a day, without "
    "what\n"
    "was said.\n",
    run,
};
