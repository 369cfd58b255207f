/* audit.c - `bellhop audit`: the log of changes, and the check of its chain. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include "cli/cli.h"

static void print_records(struct json records)
{
    for (struct json_iter it = {0}; json_next(records, &it);) {
        static const char *const sides[] = {"before", "after"};
        printf("    %.*s %.*s\n", STR_FMT(cli_shown(it.value, "record")),
               STR_FMT(cli_shown(it.value, "key")));
        for (int i = 0; i < 2; i++)
            if (json_is_object(json_get(it.value, sides[i]))) {
                printf("      %-6s ", sides[i]);
                cli_print_json(json_get(it.value, sides[i]));
            }
    }
}

static void print_entry(struct json e)
{
    time_t at = (time_t)(cli_i64(e, "at") / 1000);
    struct str who = json_str(e, "who"), from = json_str(e, "from"), note = json_str(e, "note");
    char when[32] = "-";
    struct tm tm;

    if (cli_bool(e, "redacted")) {
        printf("%" PRId64 "  removed with the data of a person\n", cli_i64(e, "seq"));
        return;
    }
    if (localtime_r(&at, &tm) != NULL)
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    printf("%" PRId64 "  %s  %.*s by %.*s%s%.*s%s%.*s%s\n", cli_i64(e, "seq"), when,
           STR_FMT(cli_shown(e, "what")), STR_FMT(cli_shown(e, "by")), who.n > 0 ? " " : "",
           STR_FMT(who), from.n > 0 ? " from " : "", STR_FMT(from),
           cli_bool(e, "failed") ? " (failed: nothing changed)" : "");
    if (note.n > 0)
        printf("    %.*s\n", STR_FMT(note));
    if (json_str(e, "upTo").n > 0)
        printf("    %" PRId64 " old entries deleted, up to %.*s\n", cli_i64(e, "entries"),
               STR_FMT(cli_shown(e, "upTo")));
    if (json_str(e, "problem").n > 0)
        printf("    the chain was broken there: %.*s\n", STR_FMT(cli_shown(e, "problem")));
    print_records(json_get(e, "records"));
}

static int verify(struct cli_job *j)
{
    const char *expect = cli_value(j, "--expect");
    int rc = cli_op(j, "verifyAudit", CLI_GIVEN({"expect", str_of(expect)}));

    if (rc != CLI_DONE)
        return rc;
    if (j->json)
        cli_print_json(j->doc);
    if (!cli_bool(j->doc, "ok"))
        return cli_failed("the audit log was tampered with or is damaged: %.*s",
                          STR_FMT(cli_shown(j->doc, "problem")));
    struct str cut = json_str(j->doc, "cut");
    if (!j->json && cut.n > 0)
        printf("Older entries were deleted after audit.keep or audit.max_size, up to "
               "%.*s\n",
               STR_FMT(cut));
    if (!j->json)
        printf("%" PRId64 " entries, the chain is whole. Keep this line elsewhere and give it to "
               "--expect later:\n%.*s\n",
               cli_i64(j->doc, "entries"), STR_FMT(cli_shown(j->doc, "head")));
    return rc;
}

static int audit(struct cli_job *j)
{
    const char *since = cli_value(j, "--since"), *tenant = cli_value(j, "--tenant");
    char from[24] = "", limit[24];

    if (cli_flag(j, "--verify") || cli_flag(j, "--expect"))
        return verify(j);
    if (since != NULL)
        snprintf(from, sizeof from, "%" PRId64,
                 (int64_t)time(NULL) * 1000 - cli_number(j, "--since", 0));
    snprintf(limit, sizeof limit, "%" PRId64, cli_number(j, "--limit", 100));
    int rc = cli_op(j, "audit",
                    CLI_GIVEN({"since", since != NULL ? str_of(from) : STR_NULL},
                              {"tenant", str_of(tenant)}, {"limit", str_of(limit)}));
    struct json entries = json_get(j->doc, "entries");
    if (rc != CLI_DONE)
        return rc;
    if (j->json)
        cli_print_json(entries);
    else if (json_count(entries) == 0)
        fputs("No change is logged.\n", stderr);
    for (struct json_iter it = {0}; !j->json && json_next(entries, &it);)
        print_entry(it.value);
    return rc;
}

static const struct cli_verb verbs[] = {{"", .op = "audit", .run = audit}, {0}};
static const struct cli_option options[] = {
    {"--since", .kind = CLI_DURATION}, {"--tenant", "tenant"}, {"--limit", .kind = CLI_NUMBER},
    {"--verify", .kind = CLI_FLAG},    {"--expect"},           {0},
};

const struct command cmd_audit = {
    .name = "audit",
    .summary = "show who changed what, and check that the log is whole",
    .help =
        "Usage: bellhop audit [--since 7d] [--tenant T] [--limit N] [--json]\n"
        "       bellhop audit --verify [--expect NUMBER:HASH] [--json]\n\n"
        "Shows the changes of gateways, routes, links, scopes, principals, policies, keys and\n"
        "agents, and what operators did to mailboxes and the outbox; the newest first.  Each\n"
        "has who made it, from where, and the records before and after without their secrets.\n\n"
        "--verify reads the whole log.  Each entry has a hash that covers the entry before\n"
        "it, so a changed, removed or inserted entry is found.  It prints the newest number\n"
        "and hash; --expect checks that an earlier one is still in the log.\n\n"
        "Entries older than audit.keep, and the oldest beyond audit.max_size, are deleted.  The\n"
        "log keeps the hash of the newest deleted entry, and the oldest one left must fit it.\n",
    .verbs = verbs,
    .options = options,
};
