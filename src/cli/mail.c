/* mail.c - bellhop mailbox, outbox, why, erase: messages that wait, and what happened to them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "cli/cli.h"

/* ---- mailbox ---- */

static void print_entries(struct cli_job *j)
{
    for (struct json_iter it = {0}; json_next(json_get(j->doc, "entries"), &it);) {
        struct str parked = json_str(it.value, "parked");
        printf("%" PRId64 "  bytes=%" PRId64 " attempts=%" PRId64 " %s%.*s\n",
               cli_i64(it.value, "id"), cli_i64(it.value, "bytes"), cli_i64(it.value, "attempts"),
               parked.p != NULL             ? "parked: "
               : cli_bool(it.value, "sent") ? "sent, not acknowledged"
                                            : "waiting",
               STR_FMT(parked.p != NULL ? parked : STR("")));
        if (cli_flag(j, "--bodies") && json_type(json_get(it.value, "frame")) != JSON_ABSENT) {
            fputs("    ", stdout);
            cli_print_json(json_get(it.value, "frame"));
        }
    }
}

static void print_changed(struct cli_job *j)
{
    printf("%" PRId64 " %s\n", cli_i64(j->doc, "deliveries"),
           strcmp(j->verb->name, "purge") == 0 ? "deleted" : "put back in line");
}

static int purge(struct cli_job *j)
{
    if (!cli_flag(j, "--yes"))
        return cli_misused(j, "purge deletes messages that were accepted and never delivered. Add "
                              "--yes to confirm");
    return cli_do(j);
}

static const struct cli_column mailbox_columns[] = {{"TENANT", "tenant"},
                                                    {"INSTANCE", "instance"},
                                                    {"STATE", "state"},
                                                    {"WAITING", "entries"},
                                                    {"PARKED", "parked"},
                                                    {"BYTES", "bytes"},
                                                    {"OLDEST", "oldestAt", CLI_AGO_MS},
                                                    {0}};
static const struct cli_column dead_columns[] = {{"DELIVERY", "delivery"},
                                                 {"TENANT", "tenant"},
                                                 {"INSTANCE", "instance"},
                                                 {"ATTEMPTS", "attempts"},
                                                 {"BYTES", "bytes"},
                                                 {"ACCEPTED", "at", CLI_AGO_MS},
                                                 {0}};

/* Of one instance, of the deliveries that are named, or of everybody with --all. */
static int change_dead(struct cli_job *j)
{
    bool drop = strcmp(j->verb->name, "drop") == 0;

    if ((j->args[0] == NULL) != cli_flag(j, "--all"))
        return cli_misused(j, "%s needs either an instance or --all", j->verb->name);
    if (drop && !cli_confirm(j, "drop deletes dead letters for good", "Drop them? [y/N] "))
        return CLI_FAILED;
    if (cli_flag(j, "--all"))
        j->extra[j->n_extra++] = (struct op_given){"all", STR("true")};
    return cli_do(j);
}

static const struct cli_verb mailbox_verbs[] = {
    {"list", .op = "status", .fixed = {"waiting", {"1", 1}}, .member = "instances",
     .columns = mailbox_columns, .none = "No mailbox holds a message."},
    {"show", .args = "instance", .op = "showMailbox", .member = "entries", .print = print_entries,
     .none = "The mailbox is empty."},
    {"purge", .args = "instance", .op = "purgeMailbox", .print = print_changed, .run = purge},
    {"dead", .op = "listDead", .member = "parked", .columns = dead_columns,
     .none = "There is no dead letter."},
    {"redrive", .args = "[instance]", .op = "redriveDead", .print = print_changed,
     .run = change_dead},
    {"drop", .args = "[instance]", .op = "dropDead", .print = print_changed, .run = change_dead},
    {0},
};
static const struct cli_option mailbox_options[] = {
    {"--delivery", "deliveries"},
    {"--all", .kind = CLI_FLAG},
    {"--tenant", "tenant"},
    {"--limit", "limit", CLI_NUMBER},
    {"--bodies", "bodies", CLI_FLAG},
    {"--yes", .kind = CLI_FLAG},
    {0},
};

const struct command cmd_mailbox = {
    .name = "mailbox",
    .summary = "show messages that wait for an agent",
    .help =
        "Usage: bellhop mailbox list [--tenant T] [--json]\n"
        "       bellhop mailbox show INSTANCE [--tenant T] [--limit N] [--bodies] [--json]\n"
        "       bellhop mailbox purge INSTANCE [--tenant T] --yes\n"
        "       bellhop mailbox dead [--tenant T] [--json]\n"
        "       bellhop mailbox redrive|drop INSTANCE [--tenant T] [--delivery N1,N2] [--yes]\n"
        "       bellhop mailbox redrive|drop --all [--tenant T] [--yes]\n\n"
        "list     the instances that have messages in their mailbox\n"
        "show     the waiting messages of one instance, oldest first; --bodies shows their text\n"
        "purge    deletes them\n"
        "dead     dead letters: messages that were parked, because they were sent too often\n"
        "         without an acknowledgement; `bellhop why --delivery N` says why\n"
        "redrive  queues dead letters again: all of an instance, some of them, or --all\n"
        "drop     deletes dead letters\n",
    .verbs = mailbox_verbs,
    .options = mailbox_options,
};

/* ---- outbox ---- */

static void cell_where(struct cli_table *t, struct json e)
{
    cli_cell(t, "%.*s/%.*s", STR_FMT(cli_shown(e, "platform")), STR_FMT(cli_shown(e, "chat_id")));
}

static void print_outgoing(struct json e, int64_t now)
{
    struct str error = json_str(e, "last_error");
    int64_t next = cli_i64(e, "next_try");

    printf("%.*s  %.*s, requested %" PRId64 " s ago by %.*s/%.*s\n", STR_FMT(cli_shown(e, "id")),
           STR_FMT(cli_shown(e, "state")), (now - cli_i64(e, "since")) / 1000,
           STR_FMT(cli_shown(e, "tenant")), STR_FMT(cli_shown(e, "instance")));
    printf("  %.*s to %.*s %.*s through %.*s: part %" PRId64 " of %" PRId64 ", tried %" PRId64
           " times\n",
           STR_FMT(cli_shown(e, "op")), STR_FMT(cli_shown(e, "platform")),
           STR_FMT(cli_shown(e, "chat_id")), STR_FMT(cli_shown(e, "bot")), cli_i64(e, "part") + 1,
           cli_i64(e, "parts"), cli_i64(e, "attempts"));
    if (next > now)
        printf("  next try in %" PRId64 " s\n", (next - now + 999) / 1000);
    if (error.n > 0)
        printf("  %.*s\n", STR_FMT(error));
    fputs("  ", stdout);
    cli_print_json(json_get(e, "action"));
}

static int show_outgoing(struct cli_job *j)
{
    int rc = cli_request(j);

    for (struct json_iter it = {0};
         rc == CLI_DONE && json_next(json_get(j->doc, "entries"), &it);) {
        if (j->json)
            cli_print_json(it.value);
        else
            print_outgoing(it.value, cli_i64(j->doc, "now"));
    }
    return rc;
}

static const struct cli_column outbox_columns[] = {{"ID", "id"},
                                                   {"TENANT", "tenant"},
                                                   {"INSTANCE", "instance"},
                                                   {"WHERE", .cell = cell_where},
                                                   {"OP", "op"},
                                                   {"STATE", "state"},
                                                   {"TRIES", "attempts"},
                                                   {"ASKED", "since", CLI_AGO_MS},
                                                   {"LAST ERROR", "last_error"},
                                                   {0}};
static const struct cli_verb outbox_verbs[] = {
    {"list", .op = "showOutbox", .member = "entries", .columns = outbox_columns,
     .none = "No message waits to be sent."},
    {"show", .args = "id", .op = "showOutbox", .run = show_outgoing},
    {"retry", .args = "id", .op = "retryOutgoing", .done = "%s is tried again."},
    {"drop", .args = "id", .op = "dropOutgoing", .done = "%s is dropped."},
    {0},
};

const struct command cmd_outbox = {
    .name = "outbox",
    .summary = "show messages of agents that are not sent yet",
    .help = "Usage: bellhop outbox list [--json]\n"
            "       bellhop outbox show ID [--json]\n"
            "       bellhop outbox retry ID\n"
            "       bellhop outbox drop ID\n\n"
            "list   the messages that wait, those being sent, and those with an unknown outcome\n"
            "show   one message with its content\n"
            "retry  tries it now; a message with an unknown outcome may then appear twice\n"
            "drop   removes it unsent\n",
    .verbs = outbox_verbs,
};

/* ---- why ---- */

static void print_trace(struct json x)
{
    struct str trace = json_str(x, "traceparent");

    if (trace.n > 0)
        printf("  trace %.*s\n", STR_FMT(trace));
}

static void print_decision(struct json d, int64_t now)
{
    struct str consumed = cli_shown(d, "consumed"), refused = cli_shown(d, "refused");
    struct json verdicts = json_get(d, "verdicts");
    int64_t more = cli_i64(d, "candidates") - (int64_t)json_count(verdicts);

    printf("%.*s message %.*s in %.*s %.*s from %.*s, %" PRId64 " s ago\n",
           STR_FMT(cli_shown(d, "platform")), STR_FMT(cli_shown(d, "messageId")),
           STR_FMT(cli_shown(d, "chatType")), STR_FMT(cli_shown(d, "chatId")),
           STR_FMT(cli_shown(d, "userId")), (now - cli_i64(d, "at")) / 1000);
    print_trace(d);
    if (consumed.p != NULL)
        printf("  It was %.*s, a command to bellhop itself, so no agent received it.\n",
               STR_FMT(consumed));
    else if (refused.p != NULL)
        printf("  bellhop refused it: %.*s.\n", STR_FMT(refused));
    else if (json_count(verdicts) == 0)
        puts("  The author is linked to no agent, and the chat belongs to none. Link the author "
             "with: bellhop link. Or open the chat with: bellhop route add --open");
    for (struct json_iter it = {0}; json_next(verdicts, &it);)
        printf("  %-12s %.*s/%.*s: %.*s (%.*s)\n",
               cli_bool(it.value, "received") ? "received" : "not received",
               STR_FMT(cli_shown(it.value, "tenant")), STR_FMT(cli_shown(it.value, "instance")),
               STR_FMT(cli_shown(it.value, "words")), STR_FMT(cli_shown(it.value, "reason")));
    if (more > 0)
        printf("  and %" PRId64 " more\n", more);
    for (struct json_iter it = {0}; json_next(json_get(d, "steps"), &it);)
        printf("  after %" PRId64 " ms: %.*s (delivery %.*s)\n",
               cli_i64(it.value, "at") - cli_i64(d, "at"), STR_FMT(cli_shown(it.value, "words")),
               STR_FMT(cli_shown(it.value, "delivery")));
}

static void print_action(struct json e, int64_t now)
{
    struct str reason = cli_shown(e, "reason"), message = cli_shown(e, "message_id");

    printf("%.*s (%.*s) of %.*s/%.*s to %.*s %.*s, %" PRId64 " s ago: %.*s%s%.*s\n",
           STR_FMT(cli_shown(e, "op")), STR_FMT(cli_shown(e, "request")),
           STR_FMT(cli_shown(e, "tenant")), STR_FMT(cli_shown(e, "instance")),
           STR_FMT(cli_shown(e, "platform")), STR_FMT(cli_shown(e, "chat_id")),
           (now - cli_i64(e, "at")) / 1000, STR_FMT(cli_shown(e, "ended")),
           reason.n > 0 ? ", " : "", STR_FMT(reason));
    printf("  requests made: %" PRId64 ", took %" PRId64 " ms%s", cli_i64(e, "attempts"),
           cli_i64(e, "at") - cli_i64(e, "asked"),
           cli_bool(e, "queued") ? ", its gateway was told that it is queued" : "");
    printf(message.n > 0 ? ", message %.*s\n" : "%.*s\n", STR_FMT(message));
    print_trace(e);
}

static void print_why(struct cli_job *j)
{
    static const char *const lists[] = {"decisions", "actions"};
    int64_t now = cli_i64(j->doc, "now");

    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        for (struct json_iter it = {0}; json_next(json_get(j->doc, lists[i]), &it);)
            (i == 0 ? print_decision : print_action)(it.value, now);
}

static int why(struct cli_job *j)
{
    bool action = cli_value(j, "--action") != NULL, message = cli_value(j, "--message") != NULL,
         platform = cli_value(j, "--platform") != NULL;

    if (action && (message || platform))
        return cli_misused(j, "--action goes without --message and --platform");
    if (message && !platform)
        return cli_misused(j, "--message needs --platform: ids repeat between platforms");
    int rc = cli_request(j);
    if (rc != CLI_DONE)
        return rc;
    struct json decisions = json_get(j->doc, "decisions"), actions = json_get(j->doc, "actions");
    if (j->json)
        cli_print_json(cli_flag(j, "--all") ? j->doc : action ? actions : decisions);
    else if (json_count(decisions) + json_count(actions) > 0)
        print_why(j);
    else if (action)
        return cli_failed("no finished action has this id, or it ended longer ago than why.keep. "
                          "See also: bellhop outbox list");
    else if (message)
        return cli_failed("no message with this id is known. The server keeps its decisions for "
                          "why.keep, 7 days at first, within why.max_bytes");
    else
        fputs(
            "No message fits. The server has had none yet, or forgot it after why.keep, 7 days at "
            "first.\n",
            stderr);
    return rc;
}

static const struct cli_verb why_verbs[] = {{"", .op = "why", .run = why}, {0}};
static const struct cli_option why_options[] = {
    {"--platform", "platform"},       {"--message", "message"},    {"--action", "action"},
    {"--person", "person"},           {"--chat", "chat"},          {"--tenant", "tenant"},
    {"--instance", "instance"},       {"--delivery", "delivery"},  {"--trace", "traceparent"},
    {"--limit", "limit", CLI_NUMBER}, {"--all", .kind = CLI_FLAG}, {0},
};

const struct command cmd_why = {
    .name = "why",
    .summary = "explain what became of a message, who received it, and why",
    .help =
        "Usage: bellhop why --platform P --message ID [--json]\n"
        "       bellhop why [--platform P] [--person U] [--chat C] [--tenant T] [--instance I]\n"
        "                   [--delivery N] [--trace T] [--limit N] [--json [--all]]\n"
        "       bellhop why --action ID [--json]\n\n"
        "Explains the newest 20 messages that match, with the life of each delivery, and the\n"
        "actions of agents that match.  --person and --chat are the ids of the platform, and\n"
        "--delivery the number in `bellhop mailbox show`.  --action explains how a request of\n"
        "an agent ended; the ID is the one that its gateway gave the request, or the one in the\n"
        "outbox.  --trace finds what belongs to a W3C trace: a traceparent, or the 32 digits of\n"
        "its id.  --json prints the messages; with --all an object that has the actions too.\n\n"
        "The server keeps ids, verdicts and times in files of its own for why.keep, within\n"
        "why.max_bytes, and never the texts of messages.\n",
    .verbs = why_verbs,
    .options = why_options,
};

/* ---- erase ---- */

/* The timeout of an erasure: the server reads every record, and there may be millions. */
enum { PATIENCE_MS = 3600 * 1000 };

struct erased {
    const char *key, *what;
};
static const struct erased of_person[] = {
    {"messages", "messages of the chat page"},
    {"names", "names given on the chat page"},
    {"media", "files of these messages"},
    {"chats", "records that a chat is known to an instance"},
    {"people", "records that platforms keep of this person"},
    {"mails", "records of mails"},
    {"outgoing", "records of messages that are being sent"},
    {"questions", "unanswered questions"},
    {"links", "links to instances"},
    {"waiting", "messages that wait for an agent"},
    {"quoted", "waiting messages of others that quote this person (not changed: bellhop mailbox)"},
    {"pairing", "entries of `bellhop pairing`"},
    {"why", "records of `bellhop why`"},
    {"audit", "entries of the audit log that name this person (their text goes, the chain stays)"},
    {"allowLists", "allow lists that name this person (not changed: bellhop principal set)"},
    {0},
};
static const struct erased of_tenant[] = {
    {"instances", "instances, with their gateways, links, scopes and policies"},
    {"keys", "keys and hooks"},
    {"waiting", "messages that wait for an agent"},
    {"chats", "records that a chat is known to an instance"},
    {"messages", "messages of the chat page"},
    {"people", "records that platforms keep of people"},
    {"mails", "records of mails"},
    {"outgoing", "records of messages that are being sent"},
    {"questions", "unanswered questions"},
    {"replies", "replies of agents"},
    {"wakes", "scheduled wake-ups"},
    {"media", "files"},
    {"skills", "skills, with their history"},
    {"data", "databases of the data store"},
    {"why", "records of `bellhop why`"},
    {"routes", "routes (not changed: bellhop route remove)"},
    {0},
};

static void print_erased(struct cli_job *j)
{
    for (const struct erased *e = cli_flag(j, "--tenant") ? of_tenant : of_person; e->key != NULL;
         e++)
        printf("%8" PRId64 "  %s\n", cli_i64(j->doc, e->key), e->what);
}

static int ask_to_erase(struct cli_job *j, const char *dry)
{
    j->extra[0] = (struct op_given){"dryRun", str_of(dry)};
    if (j->n_extra == 0)
        j->n_extra = 1;
    return cli_request(j);
}

/* Without --yes: counts, asks, erases.  With --dry-run: counts. */
static int erase(struct cli_job *j)
{
    const char *tenant = cli_value(j, "--tenant"), *person = cli_value(j, "--person");
    static const char what[] = "erase deletes all of this for good";
    struct str user = str_of(person), platform = STR_NULL;
    int rc = CLI_DONE;

    if (person != NULL) {
        str_split(&user, ':', &platform);
        j->extra[1] = (struct op_given){"platform", platform};
        j->extra[2] = (struct op_given){"user", user};
        j->n_extra = 3;
    }
    if ((tenant == NULL) == (person == NULL) || (person != NULL && user.n == 0))
        return cli_misused(j, "erase whom? Give --person PLATFORM:ID or --tenant NAME");
    if (cli_flag(j, "--dry-run"))
        return cli_show(j, ask_to_erase(j, "true"));
    if (!cli_flag(j, "--yes")) {
        rc = ask_to_erase(j, "true");
        if (rc == CLI_DONE && !j->json)
            print_erased(j);
    }
    if (rc != CLI_DONE)
        return rc;
    if (tenant != NULL ? !cli_confirm(j, what, "Erase the tenant %s? [y/N] ", tenant)
                       : !cli_confirm(j, what, "Erase the data of %.*s on %.*s? [y/N] ",
                                      STR_FMT(user), STR_FMT(platform)))
        return CLI_FAILED;
    rc = ask_to_erase(j, "false");
    if (rc == CLI_DONE && j->json)
        cli_print_json(j->doc);
    else if (rc == CLI_DONE && cli_flag(j, "--yes"))
        print_erased(j);
    if (rc == CLI_DONE && !j->json)
        fputs("Erased.\n", stderr);
    return rc;
}

static const struct cli_verb erase_verbs[] = {
    {"", .op = "erase", .timeout_ms = PATIENCE_MS, .print = print_erased, .run = erase},
    {0},
};
static const struct cli_option erase_options[] = {
    {"--person"},
    {"--tenant", "tenant"},
    {"--dry-run", .kind = CLI_FLAG},
    {"--yes", .kind = CLI_FLAG},
    {0},
};

const struct command cmd_erase = {
    .name = "erase",
    .summary = "delete the data of a person or a tenant",
    .help =
        "Usage: bellhop erase --person PLATFORM:ID [--dry-run] [--yes] [--json]\n"
        "       bellhop erase --tenant NAME [--dry-run] [--yes] [--json]\n\n"
        "--person deletes a person's messages, files and name on the chat page, the record that\n"
        "their chat is known, messages that wait for an agent, messages that are being sent,\n"
        "questions, and links to instances.  ID is the user's id on that platform; on the chat\n"
        "page it is the chat's id.  --dry-run only counts.  Without --yes the command counts\n"
        "and asks.\n\n"
        "--tenant deprovisions the tenant's instances, revokes its keys, and deletes its mail,\n"
        "chats, messages of the chat page (in chats that no other tenant knows), questions,\n"
        "replies, scheduled wake-ups, files, skills and data.  Its routes stay (they are\n"
        "counted), and so do the ids of its gateways, as revoked.\n\n"
        "Not erased for a person: webhooks that wait for an agent (bellhop mailbox), group\n"
        "chats, allow lists (they are counted), and replies, skills and data, which belong to\n"
        "programs. Not erased for either: backups, what platforms and agents keep themselves,\n"
        "and receipts, which expire within a day.\n",
    .verbs = erase_verbs,
    .options = erase_options,
};
