/* erase.c - bellhop erase --person PLATFORM:ID, bellhop erase --tenant NAME. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/cli.h"

/* All that is kept is looked through, a little at a time: with millions of records that takes. */
enum { PATIENCE_MS = 3600 * 1000 };

struct wish {
    const struct cli_args *a;
    struct str platform, user;
    struct str tenant; /* absent: the person */
};

static int ask(const struct wish *w, bool dry, struct json_parser *parser, struct json *ret_doc)
{
    const char *const headers[] = {"Content-Type: application/json", NULL};
    struct buf body = BUF_INIT;
    struct jw jw = jw_begin(&body);

    jw_obj(&jw);
    jw_kstr_opt(&jw, "tenant", w->tenant);
    jw_kstr_opt(&jw, "platform", w->platform);
    jw_kstr_opt(&jw, "user", w->user);
    jw_kbool(&jw, "dryRun", dry);
    jw_end_obj(&jw);
    const struct cli_request rq = {.method = "POST",
                                   .path = "/admin/erase",
                                   .body = buf_str(&body),
                                   .headers = headers,
                                   .timeout_ms = PATIENCE_MS};
    int rc = cli_ask(w->a, &rq, parser, ret_doc);
    buf_done(&body);
    return rc;
}

struct line {
    const char *key, *what;
};
static const struct line of_person[] = {
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
static const struct line of_tenant[] = {
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

static void print(const struct wish *w, struct json doc)
{
    for (const struct line *l = w->tenant.p != NULL ? of_tenant : of_person; l->key != NULL; l++)
        printf("%8" PRId64 "  %s\n", cli_i64(doc, l->key), l->what);
}

/* True: go on. */
static bool confirm(const struct wish *w)
{
    char line[16] = "";

    if (!isatty(STDIN_FILENO)) {
        cli_failed("erase deletes all of this for good; add --yes if that is meant");
        return false;
    }
    if (w->tenant.p != NULL)
        fprintf(stderr, "Erase the tenant %.*s? [y/N] ", STR_FMT(w->tenant));
    else
        fprintf(stderr, "Erase what is kept of %.*s on %.*s? [y/N] ", STR_FMT(w->user),
                STR_FMT(w->platform));
    return fgets(line, sizeof line, stdin) != NULL && (line[0] | 32) == 'y';
}

static int erase(const struct wish *w, bool dry, bool yes)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = CLI_DONE;

    if (dry || !yes) {
        rc = ask(w, true, parser, &doc);
        if (rc == CLI_DONE && !(w->a->json && !dry))
            w->a->json ? cli_print_json(doc) : print(w, doc);
    }
    if (rc == CLI_DONE && !dry && !yes && !confirm(w))
        rc = CLI_FAILED;
    if (rc == CLI_DONE && !dry) {
        rc = ask(w, false, parser, &doc);
        if (rc == CLI_DONE && w->a->json)
            cli_print_json(doc);
        else if (rc == CLI_DONE && yes)
            print(w, doc);
        if (rc == CLI_DONE && !w->a->json)
            fputs("Erased.\n", stderr);
    }
    json_parser_free(parser);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    const char *person = NULL, *tenant = NULL;
    bool dry = false, yes = false;
    struct cli_args a;
    const struct cli_option options[] = {{"--person", &person, NULL},
                                         {"--tenant", &tenant, NULL},
                                         {"--dry-run", NULL, &dry},
                                         {"--yes", NULL, &yes}};

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    struct str rest = str_of(person), platform = STR_NULL;
    if (tenant != NULL && person == NULL && a.n_rest == 0)
        return erase(&(struct wish){.a = &a, .tenant = str_of(tenant)}, dry, yes);
    if (person == NULL || tenant != NULL || a.n_rest > 0 || !str_split(&rest, ':', &platform) ||
        rest.n == 0)
        return cli_misused(c, "erase whom? Give --person PLATFORM:ID or --tenant NAME");
    return erase(&(struct wish){.a = &a, .platform = platform, .user = rest}, dry, yes);
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
    run,
};
