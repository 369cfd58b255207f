/* stores.c - bellhop skill, bellhop data: the stores of /v1 from the terminal.
 *
 * Each verb is one operation of http/op.h, or a few. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/launch.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "skills/approval.h"

/* One operation on the skill that the first argument names. */
static int on_skill(struct cli_job *j, const char *op)
{
    return cli_op(j, op, CLI_GIVEN({"name", str_of(j->args[0])}));
}

/* The text of a skill; @version NULL: the current one. */
static int load(struct cli_job *j, const char *version, struct buf *ret_source)
{
    int rc = cli_op(j, "loadSkill",
                    CLI_GIVEN({"name", str_of(j->args[0])}, {"version", str_of(version)}));

    if (rc == CLI_DONE)
        buf_add_str(ret_source, json_str(j->doc, "source"));
    return rc;
}

/* ---- reading ---- */

static const struct cli_column skill_columns[] = {{"NAME", "name"},
                                                  {"STATUS", "status"},
                                                  {"VERSION", "version"},
                                                  {"AUTHOR", "author"},
                                                  {"CHANGED", "updated_at", CLI_AGO_S},
                                                  {"DESCRIPTION", "description"},
                                                  {0}};

static void print_source(struct cli_job *j)
{
    struct str source = json_str(j->doc, "source");

    fwrite(source.p, 1, source.n, stdout);
}

static void print_versions(struct cli_job *j)
{
    for (struct json_iter it = {0}; json_next(j->doc, &it);) {
        struct str was = json_str(it.value, "previous_status"),
                   by = json_str(it.value, "changed_by");
        time_t at = (time_t)cli_i64(it.value, "changed_at");
        char when[32];
        struct tm tm;
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&at, &tm));
        printf("%.*s  %s  %.*s%s%.*s  by %.*s\n", STR_FMT(json_str(it.value, "version")), when,
               STR_FMT(was.p != NULL ? was : STR("")), was.p != NULL ? " -> " : "",
               STR_FMT(json_str(it.value, "status")), STR_FMT(by.p != NULL ? by : STR("-")));
    }
}

/* The version before the current one; NULL: there is none. */
static char *version_before(struct json history)
{
    struct str last = STR_NULL, before = STR_NULL;

    for (struct json_iter it = {0}; json_next(history, &it);) {
        struct str v = json_str(it.value, "version");
        if (last.p != NULL && !str_eq(v, last))
            before = last;
        last = v;
    }
    return before.p != NULL ? str_dup(before) : NULL;
}

/* A text as a file without a name, which a child process inherits.  -1: errno says why. */
static int file_of(struct str text)
{
    int fd = memfd_create("skill", 0);

    if (fd >= 0 && write(fd, text.p, text.n) != (ssize_t)text.n) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Prints two texts as a unified diff, by the program diff. */
static int print_diff(const char *from, struct str was, const char *to, struct str is)
{
    int old = file_of(was), new = file_of(is), status = -1;
    char old_path[32], new_path[32];
    pid_t pid = -1;

    snprintf(old_path, sizeof old_path, "/dev/fd/%d", old);
    snprintf(new_path, sizeof new_path, "/dev/fd/%d", new);
    const char *argv[] = {"diff", "-u", "--label", from, "--label", to, old_path, new_path, NULL};
    int rc = old < 0 || new < 0
                 ? errno
                 : launch((char *const *)(uintptr_t)argv, environ, (int[]){-1, -1, -1}, &pid);
    if (rc == 0)
        waitpid(pid, &status, 0);
    close(old);
    close(new);
    if (rc != 0)
        return cli_failed("the program diff cannot be run: %s", strerror(rc));
    return WIFEXITED(status) && WEXITSTATUS(status) < 2 ? CLI_DONE : CLI_FAILED;
}

static int diff(struct cli_job *j)
{
    const char *name = j->args[0], *to = j->args[2];
    struct buf was = BUF_INIT, is = BUF_INIT;
    char *from = xstrdup(j->args[1]);
    int rc = CLI_DONE;

    if (from == NULL && (rc = on_skill(j, "skillVersions")) == CLI_DONE) {
        from = version_before(j->doc);
        if (from == NULL)
            rc = cli_failed("%s has only one version, so there is nothing to compare", name);
    }
    if (rc == CLI_DONE)
        rc = load(j, from, &was);
    if (rc == CLI_DONE)
        rc = load(j, to, &is);
    if (rc == CLI_DONE)
        rc = print_diff(from, buf_str(&was), to != NULL ? to : "now", buf_str(&is));
    free(from);
    buf_done(&was);
    buf_done(&is);
    return rc;
}

/* ---- changing ---- */

static void print_version(struct cli_job *j)
{
    printf("%.*s %.*s %.*s\n", STR_FMT(json_str(j->doc, "name")),
           STR_FMT(json_str(j->doc, "version")), STR_FMT(json_str(j->doc, "status")));
}

/* Author and status may be NULL. */
static int store(struct cli_job *j, struct str source, const char *author, const char *status)
{
    struct buf metadata = BUF_INIT;
    struct jw w = jw_begin(&metadata);

    jw_obj(&w);
    jw_kstr_opt(&w, "author", str_of(author));
    jw_kstr_opt(&w, "status", str_of(status));
    jw_end_obj(&w);
    int rc = cli_op(j, "storeSkill",
                    CLI_GIVEN({"name", str_of(j->args[0])}, {"source", source},
                              {"metadata", buf_str(&metadata)},
                              {"If-None-Match", cli_flag(j, "--new") ? STR("*") : STR_NULL}));
    buf_done(&metadata);
    return cli_show(j, rc);
}

static int write_skill(struct cli_job *j)
{
    struct buf source = BUF_INIT;
    int rc = CLI_FAILED;

    bool is_read = cli_read_text(j->args[1], &source);
    if (is_read && str_is_empty(str_trim(buf_str(&source))))
        cli_failed("the text of %s is empty, so nothing was stored: give it in a file (bellhop "
                   "skill write %s FILE) or on standard input",
                   j->args[0], j->args[0]);
    else if (is_read)
        rc = store(j, buf_str(&source), cli_value(j, "--author"), cli_value(j, "--status"));
    buf_done(&source);
    return rc;
}

static int delete_skill(struct cli_job *j)
{
    const char *name = j->args[0];
    char what[256];
    int rc = on_skill(j, "skillMetadata");

    if (rc == CLI_DONE)
        rc = on_skill(j, "skillDependents");
    if (rc != CLI_DONE)
        return rc;
    size_t n = json_count(j->doc);
    if (n > 0)
        fprintf(stderr, "%zu other skill%s by name:\n", n,
                n == 1 ? " mentions it" : "s mention it");
    for (struct json_iter it = {0}; json_next(j->doc, &it);)
        fprintf(stderr, "    %.*s\n", STR_FMT(json_as_str(it.value)));
    snprintf(what, sizeof what, "delete removes %s and its history for good", name);
    return cli_confirm(j, what, "Delete %s and its history? [y/N] ", name)
               ? cli_op(j, "deleteSkill",
                        CLI_GIVEN({"name", str_of(name)}, {"confirm", str_of(name)},
                                  {"force", STR("true")}))
               : CLI_FAILED;
}

/* Signs locally: the private key stays in this process, only the signed text is sent. */
static int approve(struct cli_job *j)
{
    const char *file = cli_value(j, "--key");
    struct buf pem = BUF_INIT, source = BUF_INIT, is = BUF_INIT;
    char why[256] = "";
    int rc = CLI_FAILED;

    if (cli_read_file(file, &pem)) {
        struct ed25519_key *key = ed25519_private(buf_str(&pem));
        if (key == NULL)
            rc = cli_failed("%s holds no Ed25519 private key. Make one with: openssl genpkey "
                            "-algorithm ed25519",
                            file);
        else
            rc = load(j, cli_value(j, "--version"), &source);
        if (rc == CLI_DONE && !skill_sign(buf_str(&source), key, &is, why))
            rc = cli_failed("%s cannot be signed: %s", j->args[0], why);
        else if (rc == CLI_DONE)
            rc = store(j, buf_str(&is), NULL, "Approved");
        ed25519_free(key);
    }
    buf_wipe(&pem);
    buf_done(&source);
    buf_done(&is);
    return rc;
}

static const struct cli_verb skill_verbs[] = {
    {"list", .op = "querySkills", .columns = skill_columns},
    {"show", .args = "name", .op = "loadSkill", .print = print_source},
    {"write", .args = "name [file]", .print = print_version, .run = write_skill},
    {"status", .args = "name status", .op = "setSkillStatus", .print = print_version},
    {"versions", .args = "name", .op = "skillVersions", .print = print_versions},
    {"diff", .args = "name [from] [to]", .run = diff},
    {"delete", .args = "name", .run = delete_skill},
    {"approve", .args = "name", .needs = "--key", .print = print_version, .run = approve},
    {0},
};
static const struct cli_option skill_options[] = {
    {"--status", "status"},
    {"--type", "type"},
    {"--tag", "tag"},
    {"--author", "author"},
    {"--pattern", "name_pattern"},
    {"--version", "version"},
    {"--key"},
    {"--new", .kind = CLI_FLAG},
    {"--yes", .kind = CLI_FLAG},
    {0},
};

const struct command cmd_skill = {
    .name = "skill",
    .summary = "read and change the skill store",
    .help = "Usage: bellhop skill list [--status S,...] [--type T] [--tag T,...] [--author A]\n"
            "                          [--pattern RE]\n"
            "       bellhop skill show NAME [--version V]\n"
            "       bellhop skill write NAME [FILE] [--author A] [--status S] [--new]\n"
            "       bellhop skill status NAME Draft|Approved|Disabled\n"
            "       bellhop skill versions NAME\n"
            "       bellhop skill diff NAME [FROM [TO]]\n"
            "       bellhop skill delete NAME [--yes]\n"
            "       bellhop skill approve NAME --key FILE\n\n"
            "write    reads FILE or standard input; --new refuses to replace an existing skill\n"
            "diff     compares two versions; by default the current one with the one before\n"
            "delete   lists the skills that mention this one, and asks first\n"
            "approve  signs the text with the operator's Ed25519 key.  The key stays on this\n"
            "         machine.\n\n" V1_OPTIONS_HELP,
    .verbs = skill_verbs,
    .options = skill_options,
    .v1 = true,
};

/* ---- data ---- */

static void print_id(struct cli_job *j)
{
    printf("%.*s\n", STR_FMT(json_str(j->doc, "id")));
}

static int write_entry(struct cli_job *j)
{
    struct buf content = BUF_INIT;
    int rc = CLI_FAILED;

    if (cli_read_text(j->args[0], &content)) {
        j->extra[j->n_extra++] = (struct op_given){"content", buf_str(&content)};
        rc = cli_do(j);
    }
    buf_done(&content);
    return rc;
}

static void print_found(struct cli_job *j)
{
    for (struct json_iter it = {0}; json_next(j->doc, &it);)
        printf("%.*s  %.*s\n", STR_FMT(json_str(it.value, "id")),
               STR_FMT(json_str(it.value, "summary")));
}

static int query(struct cli_job *j)
{
    if (j->n_args == 0)
        j->args[j->n_args++] = "";
    if (cli_value(j, "--limit") == NULL)
        j->extra[j->n_extra++] = (struct op_given){"limit", STR("10")};
    return cli_do(j);
}

static void print_entry(struct cli_job *j)
{
    struct str detail = json_str(j->doc, "detail");

    detail = detail.p != NULL ? detail : json_str(j->doc, "summary");
    fwrite(detail.p, 1, detail.n, stdout);
}

static const struct cli_verb data_verbs[] = {
    {"write", .args = "[file]", .op = "writeData", .print = print_id, .run = write_entry},
    {"query", .args = "[query]", .op = "queryData", .fixed = {"mode", {"fts", 3}},
     .print = print_found, .run = query},
    {"get", .args = "id", .op = "getData", .print = print_entry},
    {0},
};
static const struct cli_option data_options[] = {
    {"--tags", "tags", CLI_WORDS}, /* of writeData */
    {"--tags", "domain_tags"},     /* the same, of queryData */
    {"--recipients", "recipients", CLI_WORDS},
    {"--expires-at", "expires_at", CLI_NUMBER},
    {"--limit", "limit", CLI_NUMBER},
    {0},
};

const struct command cmd_data = {
    .name = "data",
    .summary = "read and write the data store",
    .help =
        "Usage: bellhop data write [FILE] [--tags A,B] [--recipients A,B] [--expires-at SECONDS]\n"
        "       bellhop data query [WORDS] [--tags A,B] [--limit N]\n"
        "       bellhop data get ID\n\n"
        "write  stores FILE or standard input and prints the new id; the first line is the\n"
        "       summary\n"
        "query  finds entries that have all the words, best first; without words, newest first.\n"
        "       --tags: entries with any of these tags.  \"raw:...\" is SQLite FTS5 syntax\n"
        "get    prints the whole text of one entry\n\n" V1_OPTIONS_HELP,
    .verbs = data_verbs,
    .options = data_options,
    .v1 = true,
};
