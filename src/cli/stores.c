/* stores.c - bellhop skill, bellhop data: the stores of /v1 from the terminal.
 *
 * Each verb is one operation of http/op.h, or a few. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "cli/diff.h"
#include "cli/v1.h"
#include "skills/approval.h"

struct skill_options {
    struct v1_options v1;
    const char *status, *type, *tag, *author, *pattern; /* list; write: status, author */
    const char *version, *key;
    bool only_new, yes;
};

/* One operation on the skill that the first argument names. */
static int on_skill(struct cli_job *j, const char *op)
{
    return v1_op(j, op, V1_GIVEN({"name", str_of(j->a.rest[1])}));
}

/* The text of a skill; @version NULL: the current one. */
static int load(struct cli_job *j, const char *version, struct buf *ret_source)
{
    int rc = v1_op(j, "loadSkill",
                   V1_GIVEN({"name", str_of(j->a.rest[1])}, {"version", str_of(version)}));

    if (rc == CLI_DONE)
        buf_add_str(ret_source, json_str(j->doc, "source"));
    return rc;
}

/* ---- reading ---- */

static void cell_changed(struct cli_table *t, struct json skill)
{
    struct clock *clock = clock_new();
    int64_t s = clock_wall_ms(clock) / 1000 - cli_i64(skill, "updated_at");

    clock_free(clock);
    if (s < 120)
        cli_cell(t, "%" PRId64 "s ago", s);
    else if (s < 7200)
        cli_cell(t, "%" PRId64 "m ago", s / 60);
    else if (s < 172800)
        cli_cell(t, "%" PRId64 "h ago", s / 3600);
    else
        cli_cell(t, "%" PRId64 "d ago", s / 86400);
}

static void print_list(struct cli_job *j)
{
    static const struct cli_column columns[] = {{"NAME", "name"},
                                                {"STATUS", "status"},
                                                {"VERSION", "version"},
                                                {"AUTHOR", "author"},
                                                {"CHANGED", .cell = cell_changed},
                                                {"DESCRIPTION", "description"}};

    cli_print_rows(j, j->doc, columns, ARRAY_LEN(columns));
}

static int list(struct cli_job *j)
{
    const struct skill_options *o = j->o;

    return cli_show(j,
                    v1_op(j, "querySkills",
                          V1_GIVEN({"status", str_of(o->status)}, {"type", str_of(o->type)},
                                   {"tag", str_of(o->tag)}, {"author", str_of(o->author)},
                                   {"name_pattern", str_of(o->pattern)})),
                    print_list);
}

static void print_source(struct cli_job *j)
{
    struct str source = json_str(j->doc, "source");

    fwrite(source.p, 1, source.n, stdout);
}

static int show(struct cli_job *j)
{
    const struct skill_options *o = j->o;
    struct buf source = BUF_INIT;
    int rc = load(j, o->version, &source);

    buf_done(&source);
    return cli_show(j, rc, print_source);
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

static int versions(struct cli_job *j)
{
    return cli_show(j, on_skill(j, "skillVersions"), print_versions);
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

static int diff(struct cli_job *j)
{
    const char *name = j->a.rest[1];
    struct buf was = BUF_INIT, is = BUF_INIT;
    char *from = j->a.n_rest > 2 ? xstrdup(j->a.rest[2]) : NULL;
    const char *to = j->a.n_rest > 3 ? j->a.rest[3] : NULL;
    int rc = CLI_DONE;

    if (from == NULL && (rc = on_skill(j, "skillVersions")) == CLI_DONE) {
        from = version_before(j->doc);
        if (from == NULL)
            rc = cli_failed("%s has one version only; there is nothing to compare", name);
    }
    if (rc == CLI_DONE)
        rc = load(j, from, &was);
    if (rc == CLI_DONE)
        rc = load(j, to, &is);
    if (rc == CLI_DONE)
        diff_print(stdout, from, buf_str(&was), to != NULL ? to : "now", buf_str(&is));
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
static int store(struct cli_job *j, const char *name, struct str source, const char *author,
                 const char *status)
{
    const struct skill_options *o = j->o;
    struct buf metadata = BUF_INIT;
    struct jw w = jw_begin(&metadata);

    if (!utf8_valid(source))
        return cli_failed("the text is not UTF-8; a skill is");
    jw_obj(&w);
    jw_kstr_opt(&w, "author", str_of(author));
    jw_kstr_opt(&w, "status", str_of(status));
    jw_end_obj(&w);
    int rc =
        v1_op(j, "storeSkill",
              V1_GIVEN({"name", str_of(name)}, {"source", source}, {"metadata", buf_str(&metadata)},
                       {"If-None-Match", o->only_new ? STR("*") : STR_NULL}));
    buf_done(&metadata);
    return cli_show(j, rc, print_version);
}

static int write_skill(struct cli_job *j)
{
    const struct skill_options *o = j->o;
    struct buf source = BUF_INIT;
    int rc = CLI_FAILED;

    if (v1_read_file(j->a.n_rest > 2 ? j->a.rest[2] : NULL, &source))
        rc = store(j, j->a.rest[1], buf_str(&source), o->author, o->status);
    buf_done(&source);
    return rc;
}

static int status(struct cli_job *j)
{
    return cli_show(j,
                    v1_op(j, "setSkillStatus",
                          V1_GIVEN({"name", str_of(j->a.rest[1])},
                                   {"status", str_of(j->a.rest[2])})),
                    print_version);
}

static int delete_skill(struct cli_job *j)
{
    const struct skill_options *o = j->o;
    const char *name = j->a.rest[1];
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
    snprintf(what, sizeof what, "delete erases %s and its history", name);
    return cli_confirm(o->yes, what, "Delete %s and its history? [y/N] ", name)
               ? on_skill(j, "deleteSkill")
               : CLI_FAILED;
}

/* Signs locally: the private key stays in this process, only the signed text is sent. */
static int approve(struct cli_job *j)
{
    const struct skill_options *o = j->o;
    const char *name = j->a.rest[1];
    struct buf pem = BUF_INIT, source = BUF_INIT, is = BUF_INIT;
    struct ed25519_key *key = NULL;
    char why[256] = "";
    int rc = CLI_FAILED;

    if (o->key == NULL)
        return cli_misused(j->c, "approve signs with --key FILE, the operator's private key");
    if (!v1_read_file(o->key, &pem))
        goto out;
    key = ed25519_private(buf_str(&pem));
    if (key == NULL)
        rc = cli_failed("%s holds no Ed25519 private key (openssl genpkey -algorithm ed25519)",
                        o->key);
    else if ((rc = load(j, o->version, &source)) != CLI_DONE)
        ;
    else if (!skill_sign(buf_str(&source), key, &is, why))
        rc = cli_failed("%s cannot be signed: %s", name, why);
    else
        rc = store(j, name, buf_str(&is), NULL, "Approved");
out:
    ed25519_free(key);
    buf_wipe(&pem);
    buf_done(&source);
    buf_done(&is);
    return rc;
}

static const struct cli_verb skill_verbs[] = {
    {"list", 0, 0, NULL, list},
    {"show", 1, 1, "which skill?", show},
    {"write", 1, 2, "which skill?", write_skill},
    {"status", 2, 2, "which skill, and which status?", status},
    {"diff", 1, 3, "which skill?", diff},
    {"versions", 1, 1, "which skill?", versions},
    {"delete", 1, 1, "which skill?", delete_skill},
    {"approve", 1, 1, "which skill?", approve},
    {0},
};

static int run_skill(const struct command *c, int argc, char **argv)
{
    struct skill_options o = {0};
    const struct cli_option options[] = {
        V1_OPTIONS(o.v1),
        {"--status", &o.status, NULL},
        {"--type", &o.type, NULL},
        {"--tag", &o.tag, NULL},
        {"--author", &o.author, NULL},
        {"--pattern", &o.pattern, NULL},
        {"--version", &o.version, NULL},
        {"--key", &o.key, NULL},
        {"--new", NULL, &o.only_new},
        {"--yes", NULL, &o.yes},
    };

    return v1_run(c, argc, argv, options, ARRAY_LEN(options), skill_verbs, &o.v1, &o);
}

const struct command cmd_skill = {
    "skill",
    "the skill store",
    "Usage: bellhop skill list [--status S,...] [--type T] [--tag T,...] [--author A] [--pattern "
    "RE]\n"
    "       bellhop skill show NAME [--version V]\n"
    "       bellhop skill write NAME [FILE] [--author A] [--status S] [--new]\n"
    "       bellhop skill status NAME Draft|Approved|Disabled\n"
    "       bellhop skill versions NAME\n"
    "       bellhop skill diff NAME [FROM [TO]]\n"
    "       bellhop skill delete NAME [--yes]\n"
    "       bellhop skill approve NAME --key FILE\n\n"
    "write    reads FILE or standard input; --new refuses to replace a skill\n"
    "diff     from the version before to the current one, unless versions are named\n"
    "delete   shows who mentions it and asks first\n"
    "approve  signs the text with the operator's Ed25519 key, here: the key never reaches the "
    "server\n\n" V1_OPTIONS_HELP,
    run_skill,
};

/* ---- data ---- */

struct data_options {
    struct v1_options v1;
    const char *tags, *recipients, *expires, *limit;
};

static void print_id(struct cli_job *j)
{
    printf("%.*s\n", STR_FMT(json_str(j->doc, "id")));
}

/* "a, b" as ["a","b"]; absent stays absent. */
static struct str list_of(const char *words, struct buf *out)
{
    struct str rest = str_of(words), word;
    struct jw w = jw_begin(out);

    if (words == NULL)
        return STR_NULL;
    jw_arr(&w);
    while (str_split(&rest, ',', &word))
        jw_str(&w, str_trim(word));
    jw_end_arr(&w);
    return buf_str(out);
}

static int write_entry(struct cli_job *j)
{
    const struct data_options *o = j->o;
    struct buf content = BUF_INIT, tags = BUF_INIT, recipients = BUF_INIT;
    int64_t expires_at;
    int rc = CLI_FAILED;

    if (o->expires != NULL && !str_to_i64(str_of(o->expires), &expires_at))
        return cli_misused(j->c, "--expires-at takes unix seconds, not \"%s\"", o->expires);
    if (v1_read_file(j->a.n_rest > 1 ? j->a.rest[1] : NULL, &content)) {
        if (!utf8_valid(buf_str(&content)))
            rc = cli_failed("the text is not UTF-8");
        else
            rc = cli_show(j,
                          v1_op(j, "writeData",
                                V1_GIVEN({"content", buf_str(&content)},
                                         {"tags", list_of(o->tags, &tags)},
                                         {"recipients", list_of(o->recipients, &recipients)},
                                         {"expires_at", str_of(o->expires)})),
                          print_id);
    }
    buf_done(&content);
    buf_done(&tags);
    buf_done(&recipients);
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
    const struct data_options *o = j->o;
    const char *words = j->a.n_rest > 1 ? j->a.rest[1] : "";
    int64_t limit;

    if (o->limit != NULL && (!str_to_i64(str_of(o->limit), &limit) || limit <= 0))
        return cli_misused(j->c, "--limit takes a number, not \"%s\"", o->limit);
    return cli_show(j,
                    v1_op(j, "queryData",
                          V1_GIVEN({"mode", STR("fts")}, {"query", str_of(words)},
                                   {"limit", str_of(o->limit != NULL ? o->limit : "10")},
                                   {"domain_tags", str_of(o->tags)})),
                    print_found);
}

static void print_entry(struct cli_job *j)
{
    struct str detail = json_str(j->doc, "detail");

    detail = detail.p != NULL ? detail : json_str(j->doc, "summary");
    fwrite(detail.p, 1, detail.n, stdout);
}

static int get(struct cli_job *j)
{
    return cli_show(j, v1_op(j, "getData", V1_GIVEN({"id", str_of(j->a.rest[1])})), print_entry);
}

static const struct cli_verb data_verbs[] = {
    {"write", 0, 1, NULL, write_entry},
    {"query", 0, 1, NULL, query},
    {"get", 1, 1, "which? Give an id", get},
    {0},
};

static int run_data(const struct command *c, int argc, char **argv)
{
    struct data_options o = {0};
    const struct cli_option options[] = {
        V1_OPTIONS(o.v1),
        {"--tags", &o.tags, NULL},
        {"--recipients", &o.recipients, NULL},
        {"--expires-at", &o.expires, NULL},
        {"--limit", &o.limit, NULL},
    };

    return v1_run(c, argc, argv, options, ARRAY_LEN(options), data_verbs, &o.v1, &o);
}

const struct command cmd_data = {
    "data",
    "the data store",
    "Usage: bellhop data write [FILE] [--tags A,B] [--recipients A,B] [--expires-at SECONDS]\n"
    "       bellhop data query [WORDS] [--tags A,B] [--limit N]\n"
    "       bellhop data get ID\n\n"
    "write  keeps FILE or standard input; its first line is its summary; prints its id\n"
    "query  entries with all the words, the best first; without words the newest first; --tags:\n"
    "       any of these.  Words that begin with raw: are SQLite FTS5 syntax\n"
    "get    the whole text of one\n\n" V1_OPTIONS_HELP,
    run_data,
};
