/* mail.c - bellhop mailbox, outbox, why, erase: messages that wait, and what happened to them. */
#include <inttypes.h>
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

/* ---- mailbox ---- */

struct mailbox_options {
    const char *tenant, *limit;
    bool bodies, yes;
};

/* Writes the instances of j->doc whose mailbox is not empty, as an array. */
static void write_waiting(struct cli_job *j, struct buf *out)
{
    struct jw w = jw_begin(out);

    jw_arr(&w);
    for (struct json_iter it = {0}; json_next(json_get(j->doc, "instances"), &it);)
        if (cli_i64(it.value, "entries") + cli_i64(it.value, "parked") > 0)
            jw_value(&w, it.value);
    jw_end_arr(&w);
}

static int list_mailboxes(struct cli_job *j)
{
    static const struct cli_column columns[] = {{"TENANT", "tenant"},
                                                {"INSTANCE", "instance"},
                                                {"STATE", "state"},
                                                {"WAITING", "entries"},
                                                {"PARKED", "parked"},
                                                {"BYTES", "bytes"},
                                                {"OLDEST", "oldestAt", .ago = true}};
    struct json_parser *parser = json_parser_new();
    struct buf waiting = BUF_INIT;
    struct json rows = {0};
    int rc = cli_get_pages(j, "/admin/status", CLI_FIELDS({"waiting", STR("1")}));

    if (rc == CLI_DONE)
        write_waiting(j, &waiting);
    if (rc == CLI_DONE && !json_parse(parser, buf_str(&waiting), &rows))
        rc = cli_failed("the server's list cannot be read");
    if (rc == CLI_DONE && j->a.json)
        cli_print_json(rows);
    else if (rc == CLI_DONE && json_count(rows) == 0)
        fputs("Nothing is waiting for anybody.\n", stderr);
    else if (rc == CLI_DONE)
        cli_print_rows(j, rows, columns, ARRAY_LEN(columns));
    json_parser_free(parser);
    buf_done(&waiting);
    return rc;
}

static void print_entries(struct json doc, bool bodies)
{
    int64_t n = 0;

    for (struct json_iter it = {0}; json_next(json_get(doc, "entries"), &it); n++) {
        struct str parked = json_str(it.value, "parked");
        printf("%" PRId64 "  bytes=%" PRId64 " attempts=%" PRId64 " %s%.*s\n",
               cli_i64(it.value, "id"), cli_i64(it.value, "bytes"), cli_i64(it.value, "attempts"),
               parked.p != NULL                                  ? "parked: "
               : json_as_bool(json_get(it.value, "sent"), false) ? "sent, not acknowledged"
                                                                 : "waiting",
               STR_FMT(parked.p != NULL ? parked : STR("")));
        if (bodies && json_type(json_get(it.value, "frame")) != JSON_ABSENT) {
            fputs("    ", stdout);
            cli_print_json(json_get(it.value, "frame"));
        }
    }
    if (n == 0)
        fputs("Nothing is waiting.\n", stderr);
}

static int show_mailbox(struct cli_job *j)
{
    const struct mailbox_options *o = j->o;
    uint64_t limit;

    if (o->limit != NULL && (!str_to_u64(str_of(o->limit), &limit) || limit == 0))
        return cli_misused(j->c, "--limit takes a number, not \"%s\"", o->limit);
    int rc = cli_get(j, "/admin/mailbox",
                     CLI_FIELDS({"instance", str_of(j->a.rest[1])}, {"tenant", str_of(o->tenant)},
                                {"limit", str_of(o->limit)},
                                {"bodies", o->bodies ? STR("1") : STR_NULL}));
    if (rc == CLI_DONE && j->a.json)
        cli_print_json(json_get(j->doc, "entries"));
    else if (rc == CLI_DONE)
        print_entries(j->doc, o->bodies);
    if (rc == CLI_DONE && cli_i64(j->doc, "more") > 0)
        fprintf(stderr, "... and %" PRId64 " more\n", cli_i64(j->doc, "more"));
    return rc;
}

static int change_mailbox(struct cli_job *j, const char *path, const char *done)
{
    const struct mailbox_options *o = j->o;
    int rc = cli_show(j,
                      cli_post(j, path,
                               CLI_FIELDS({"instance", str_of(j->a.rest[1])},
                                          {"tenant", str_of(o->tenant)})),
                      NULL);

    if (rc == CLI_DONE && !j->a.json)
        printf("%" PRId64 " %s\n", cli_i64(j->doc, "deliveries"), done);
    return rc;
}

static int purge(struct cli_job *j)
{
    const struct mailbox_options *o = j->o;

    if (!o->yes)
        return cli_misused(j->c, "purge deletes messages that were accepted and never delivered; "
                                 "add --yes if that is meant");
    return change_mailbox(j, "/admin/mailbox/purge", "deleted");
}

static int redrive(struct cli_job *j)
{
    return change_mailbox(j, "/admin/mailbox/redrive", "put back in line");
}

static int run_mailbox(const struct command *c, int argc, char **argv)
{
    static const struct cli_verb verbs[] = {
        {"list", 0, 0, NULL, list_mailboxes},
        {"show", 1, 1, "whose? Give an instance", show_mailbox},
        {"purge", 1, 1, "whose? Give an instance", purge},
        {"redrive", 1, 1, "whose? Give an instance", redrive},
        {0},
    };
    struct mailbox_options o = {0};
    const struct cli_option options[] = {
        {"--tenant", &o.tenant, NULL},
        {"--limit", &o.limit, NULL},
        {"--bodies", NULL, &o.bodies},
        {"--yes", NULL, &o.yes},
    };

    return cli_run(c, argc, argv, options, ARRAY_LEN(options), verbs, &o);
}

const struct command cmd_mailbox = {
    "mailbox",
    "what is waiting for whom",
    "Usage: bellhop mailbox list [--json]\n"
    "       bellhop mailbox show INSTANCE [--tenant T] [--limit N] [--bodies] [--json]\n"
    "       bellhop mailbox purge INSTANCE [--tenant T] --yes\n"
    "       bellhop mailbox redrive INSTANCE [--tenant T]\n\n"
    "list     instances for which something waits\n"
    "show     the waiting deliveries of one, oldest first; their text is hidden unless --bodies\n"
    "purge    deletes them\n"
    "redrive  puts parked deliveries (sent too often without an answer) back in line\n",
    run_mailbox,
};

/* ---- outbox ---- */

static void cell_where(struct cli_table *t, struct json e)
{
    cli_cell(t, "%.*s/%.*s", STR_FMT(json_str(e, "platform")), STR_FMT(json_str(e, "chat_id")));
}

static int list_outbox(struct cli_job *j)
{
    static const struct cli_column columns[] = {{"ID", "id"},
                                                {"TENANT", "tenant"},
                                                {"INSTANCE", "instance"},
                                                {"WHERE", .cell = cell_where},
                                                {"OP", "op"},
                                                {"STATE", "state"},
                                                {"TRIES", "attempts"},
                                                {"ASKED", "since", .ago = true},
                                                {"LAST ERROR", "last_error"}};
    int rc = cli_show_rows(j, cli_get(j, "/admin/outbox", NULL, 0), "entries", columns,
                           ARRAY_LEN(columns), "Nothing is waiting to be sent.");

    if (rc == CLI_DONE && !j->a.json && cli_i64(j->doc, "more") > 0)
        fprintf(stderr, "... and %" PRId64 " more\n", cli_i64(j->doc, "more"));
    return rc;
}

static void print_outgoing(struct json e, int64_t now)
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

static int show_outgoing(struct cli_job *j)
{
    int rc = cli_get(j, "/admin/outbox", CLI_FIELDS({"id", str_of(j->a.rest[1])}));

    for (struct json_iter it = {0};
         rc == CLI_DONE && json_next(json_get(j->doc, "entries"), &it);) {
        if (j->a.json)
            cli_print_json(it.value);
        else
            print_outgoing(it.value, cli_i64(j->doc, "now"));
    }
    return rc;
}

static int change_outgoing(struct cli_job *j, const char *path, const char *done)
{
    int rc = cli_show(j, cli_post(j, path, CLI_FIELDS({"id", str_of(j->a.rest[1])})), NULL);

    if (rc == CLI_DONE && !j->a.json)
        puts(done);
    return rc;
}

static int retry(struct cli_job *j)
{
    return change_outgoing(j, "/admin/outbox/retry", "tried again");
}

static int drop(struct cli_job *j)
{
    return change_outgoing(j, "/admin/outbox/drop", "dropped");
}

static int run_outbox(const struct command *c, int argc, char **argv)
{
    static const struct cli_verb verbs[] = {
        {"list", 0, 0, NULL, list_outbox},
        {"show", 1, 1, "what? Give an id", show_outgoing},
        {"retry", 1, 1, "what? Give an id", retry},
        {"drop", 1, 1, "what? Give an id", drop},
        {0},
    };

    return cli_run(c, argc, argv, NULL, 0, verbs, NULL);
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
    run_outbox,
};

/* ---- why ---- */

struct why_options {
    const char *platform, *message, *action;
};

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

static int why_action(struct cli_job *j, const char *id)
{
    int rc = cli_get(j, "/admin/why", CLI_FIELDS({"action", str_of(id)}));
    struct json actions = rc == CLI_DONE ? json_get(j->doc, "actions") : (struct json){0};

    if (rc == CLI_DONE && j->a.json)
        cli_print_json(actions);
    else if (rc == CLI_DONE && json_count(actions) == 0)
        return cli_failed("no action of that name has ended: the newest 4096 are known, and of "
                          "those from before the last start what is unknown; see also: bellhop "
                          "outbox list");
    else if (rc == CLI_DONE)
        for (struct json_iter it = {0}; json_next(actions, &it);)
            print_action(it.value, cli_i64(j->doc, "now"));
    return rc;
}

static int why(struct cli_job *j)
{
    const struct why_options *o = j->o;

    if (o->action != NULL && (o->message != NULL || o->platform != NULL))
        return cli_misused(j->c, "--action stands alone");
    if (o->action != NULL)
        return why_action(j, o->action);
    if (o->message != NULL && o->platform == NULL)
        return cli_misused(j->c, "--message needs --platform: ids repeat between platforms");
    int rc =
        cli_get(j, "/admin/why",
                CLI_FIELDS({"platform", str_of(o->platform)}, {"message", str_of(o->message)}));
    struct json decisions = rc == CLI_DONE ? json_get(j->doc, "decisions") : (struct json){0};
    if (rc == CLI_DONE && j->a.json)
        cli_print_json(decisions);
    else if (rc == CLI_DONE && json_count(decisions) == 0)
        return cli_failed("nothing is known of it: the newest 4096 messages are kept, for a day, "
                          "and none from before the last start");
    else if (rc == CLI_DONE)
        for (struct json_iter it = {0}; json_next(decisions, &it);)
            print_decision(it.value, cli_i64(j->doc, "now"));
    return rc;
}

static int run_why(const struct command *c, int argc, char **argv)
{
    struct why_options o = {0};
    const struct cli_option options[] = {
        {"--platform", &o.platform, NULL},
        {"--message", &o.message, NULL},
        {"--action", &o.action, NULL},
    };

    return cli_run_one(c, argc, argv, options, ARRAY_LEN(options), why, &o);
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
    run_why,
};

/* ---- erase ---- */

/* The timeout of an erasure: the server reads every record, and there may be millions. */
enum { PATIENCE_MS = 3600 * 1000 };

struct erase_options {
    const char *person, *tenant;
    bool dry, yes;
    struct str platform, user; /* of @person */
};

static int ask_to_erase(struct cli_job *j, bool dry)
{
    const char *const headers[] = {"Content-Type: application/json", NULL};
    const struct erase_options *o = j->o;
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr_opt(&w, "tenant", str_of(o->tenant));
    jw_kstr_opt(&w, "platform", o->platform);
    jw_kstr_opt(&w, "user", o->user);
    jw_kbool(&w, "dryRun", dry);
    jw_end_obj(&w);
    const struct cli_request rq = {.method = "POST",
                                   .path = "/admin/erase",
                                   .body = buf_str(&body),
                                   .headers = headers,
                                   .timeout_ms = PATIENCE_MS};
    int rc = cli_ask(&j->a, &rq, j->parser, &j->doc);
    buf_done(&body);
    return rc;
}

struct mail_line {
    const char *key, *what;
};
static const struct mail_line of_person[] = {
    {"messages", "messages of the chat page"},
    {"names", "names given on the chat page"},
    {"media", "files of these messages"},
    {"chats", "records that a chat is known to an instance"},
    {"outgoing", "records of messages on their way out"},
    {"questions", "questions that were not answered"},
    {"links", "links to instances"},
    {"waiting", "messages that wait for an agent"},
    {"quoted", "waiting messages of others that quote this person (not changed: bellhop mailbox)"},
    {"allowLists", "allow lists that name this person (not changed: bellhop principal set)"},
    {0},
};
static const struct mail_line of_tenant[] = {
    {"instances", "instances, with their gateways, links, scopes and policies"},
    {"keys", "keys and hooks"},
    {"waiting", "messages that wait for an agent"},
    {"chats", "records that a chat is known to an instance"},
    {"messages", "messages of the chat page"},
    {"outgoing", "records of messages on their way out"},
    {"questions", "questions that were not answered"},
    {"replies", "replies of agents"},
    {"wakes", "wakes for later"},
    {"media", "files"},
    {"skills", "skills, with their history"},
    {"data", "databases of data"},
    {"routes", "routes (not changed: bellhop route remove)"},
    {0},
};

static void print_erased(struct cli_job *j)
{
    const struct erase_options *o = j->o;

    for (const struct mail_line *l = o->tenant != NULL ? of_tenant : of_person; l->key != NULL; l++)
        printf("%8" PRId64 "  %s\n", cli_i64(j->doc, l->key), l->what);
}

static bool confirm_erase(const struct erase_options *o)
{
    static const char what[] = "erase deletes all of this for good";

    if (o->tenant != NULL)
        return cli_confirm(o->yes, what, "Erase the tenant %s? [y/N] ", o->tenant);
    return cli_confirm(o->yes, what, "Erase what is kept of %.*s on %.*s? [y/N] ", STR_FMT(o->user),
                       STR_FMT(o->platform));
}

/* Without --yes: counts, asks, erases.  With --dry-run: counts. */
static int erase(struct cli_job *j)
{
    struct erase_options *o = j->o;
    int rc = CLI_DONE;

    if (o->person != NULL) {
        struct str rest = str_of(o->person);
        str_split(&rest, ':', &o->platform);
        o->user = rest;
    }
    if ((o->tenant == NULL) == (o->person == NULL) || (o->person != NULL && o->user.n == 0))
        return cli_misused(j->c, "erase whom? Give --person PLATFORM:ID or --tenant NAME");
    if (o->dry)
        return cli_show(j, ask_to_erase(j, true), print_erased);
    if (!o->yes) {
        rc = ask_to_erase(j, true);
        if (rc == CLI_DONE && !j->a.json)
            print_erased(j);
    }
    if (rc != CLI_DONE || !confirm_erase(o))
        return CLI_FAILED;
    rc = cli_show(j, ask_to_erase(j, false), o->yes ? print_erased : NULL);
    if (rc == CLI_DONE && !j->a.json)
        fputs("Erased.\n", stderr);
    return rc;
}

static int run_erase(const struct command *c, int argc, char **argv)
{
    struct erase_options o = {0};
    const struct cli_option options[] = {{"--person", &o.person, NULL},
                                         {"--tenant", &o.tenant, NULL},
                                         {"--dry-run", NULL, &o.dry},
                                         {"--yes", NULL, &o.yes}};

    return cli_run_one(c, argc, argv, options, ARRAY_LEN(options), erase, &o);
}

const struct command cmd_erase = {
    "erase",
    "delete what is kept of a person or a tenant",
    "Usage: bellhop erase --person PLATFORM:ID [--dry-run] [--yes] [--json]\n"
    "       bellhop erase --tenant NAME [--dry-run] [--yes] [--json]\n\n"
    "Deletes what the server keeps of one person: messages, files and name on the chat page, the\n"
    "record that their chat is known, messages that wait for an agent, messages on their way out,\n"
    "questions, links to instances.  ID is the user's on that platform (on the chat page, the\n"
    "chat's).  --dry-run counts and deletes nothing; without --yes it counts and asks.\n\n"
    "With --tenant all of a tenant goes: its instances are deprovisioned, its keys revoked, its "
    "mail,\n"
    "chats, messages of the chat page (of chats no other tenant knows), questions, replies, "
    "wakes,\n"
    "files, skills and data deleted.  Routes stay (counted), and so do the ids of its gateways, "
    "as\n"
    "revoked.\n\n"
    "Not covered, of a person: webhooks that wait to be passed through (bellhop mailbox), group\n"
    "chats, allow lists (counted), replies, skills and data (they belong to programs).  Of both:\n"
    "backups, what platforms and agents keep themselves, and receipts, which go within a day.\n",
    run_erase,
};
