/* skill.c - bellhop skill list | show | write | status | versions | diff | delete | approve. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
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
struct job { /* one command under way */
    const struct command *c;
    const struct cli_args *a;
    const struct skill_options *o;
    const struct v1_door *door;
    struct json_parser *parser;
    struct json doc; /* the last answer; borrowed from the parser */
};

static int ask(struct job *j, const char *method, const char *path, struct str body)
{
    return v1_call(j->a, j->door, method, path, body, j->parser, &j->doc);
}

static void skill_path(struct buf *path, const char *name, const char *below)
{
    buf_add_z(path, "/v1/skills/");
    cli_path_add(path, name);
    buf_add_z(path, below);
}

/* GET something below a skill. */
static int get(struct job *j, const char *name, const char *below)
{
    struct buf path = BUF_INIT;

    skill_path(&path, name, below);
    int rc = ask(j, "GET", buf_z(&path), STR_NULL);
    buf_done(&path);
    return rc;
}

/* The text of a skill; @version NULL: the current one. */
static int load(struct job *j, const char *name, const char *version, struct buf *ret_source)
{
    struct buf below = BUF_INIT;

    if (version != NULL)
        cli_query_add(&below, '?', "version", version);
    int rc = get(j, name, buf_z(&below));
    if (rc == CLI_DONE)
        buf_add_str(ret_source, json_str(j->doc, "source"));
    buf_done(&below);
    return rc;
}

/* ---- looking ---- */

static void add_words(struct buf *path, const char *name, const char *words)
{
    struct str rest = str_of(words), word;

    while (str_split(&rest, ',', &word)) {
        char *z = str_dup(str_trim(word));
        cli_query_add(path, path->n > 0 && strchr(buf_z(path), '?') != NULL ? '&' : '?', name, z);
        free(z);
    }
}

static void print_list(struct json doc)
{
    static const char *const heads[] = {"NAME",   "STATUS",  "VERSION",
                                        "AUTHOR", "CHANGED", "DESCRIPTION"};
    struct cli_table t = {.columns = ARRAY_LEN(heads)};
    struct clock *clock = clock_new();
    int64_t now_s = clock_wall_ms(clock) / 1000;

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        cli_cell(&t, "%s", heads[i]);
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        int64_t ago_s = now_s - cli_i64(it.value, "updated_at");
        cli_cell_str(&t, json_str(it.value, "name"));
        cli_cell_str(&t, json_str(it.value, "status"));
        cli_cell_str(&t, json_str(it.value, "version"));
        cli_cell_str(&t, json_str(it.value, "author"));
        cli_cell(&t, "%" PRId64 "%s ago",
                 ago_s < 120      ? ago_s
                 : ago_s < 7200   ? ago_s / 60
                 : ago_s < 172800 ? ago_s / 3600
                                  : ago_s / 86400,
                 ago_s < 120      ? "s"
                 : ago_s < 7200   ? "m"
                 : ago_s < 172800 ? "h"
                                  : "d");
        cli_cell_str(&t, json_str(it.value, "description"));
    }
    cli_table_print(&t);
    clock_free(clock);
}

static int list(struct job *j)
{
    const struct skill_options *o = j->o;
    struct buf path = BUF_INIT;

    buf_add_z(&path, "/v1/skills");
    add_words(&path, "status", o->status);
    add_words(&path, "type", o->type);
    add_words(&path, "tag", o->tag);
    add_words(&path, "author", o->author);
    if (o->pattern != NULL)
        cli_query_add(&path, strchr(buf_z(&path), '?') != NULL ? '&' : '?', "name_pattern",
                      o->pattern);
    int rc = ask(j, "GET", buf_z(&path), STR_NULL);
    if (rc == CLI_DONE && j->a->json)
        cli_print_json(j->doc);
    else if (rc == CLI_DONE)
        print_list(j->doc);
    buf_done(&path);
    return rc;
}

static int show(struct job *j)
{
    struct buf source = BUF_INIT;
    int rc = load(j, j->a->rest[1], j->o->version, &source);

    if (rc == CLI_DONE && j->a->json)
        cli_print_json(j->doc);
    else if (rc == CLI_DONE)
        fwrite(source.p, 1, source.n, stdout);
    buf_done(&source);
    return rc;
}

static void print_versions(struct json doc)
{
    for (struct json_iter it = {0}; json_next(doc, &it);) {
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

static int versions(struct job *j)
{
    int rc = get(j, j->a->rest[1], "/versions");

    if (rc == CLI_DONE && j->a->json)
        cli_print_json(j->doc);
    else if (rc == CLI_DONE)
        print_versions(j->doc);
    return rc;
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

static int diff(struct job *j)
{
    const char *name = j->a->rest[1];
    struct buf was = BUF_INIT, is = BUF_INIT;
    char *from = j->a->n_rest > 2 ? xstrdup(j->a->rest[2]) : NULL;
    const char *to = j->a->n_rest > 3 ? j->a->rest[3] : NULL;
    int rc = CLI_DONE;

    if (from == NULL && (rc = get(j, name, "/versions")) == CLI_DONE) {
        from = version_before(j->doc);
        if (from == NULL)
            rc = cli_failed("%s has one version only; there is nothing to compare", name);
    }
    if (rc == CLI_DONE)
        rc = load(j, name, from, &was);
    if (rc == CLI_DONE)
        rc = load(j, name, to, &is);
    if (rc == CLI_DONE)
        diff_print(stdout, from, buf_str(&was), to != NULL ? to : "now", buf_str(&is));
    free(from);
    buf_done(&was);
    buf_done(&is);
    return rc;
}

/* ---- changing ---- */

static int told(struct job *j, int rc)
{
    if (rc == CLI_DONE && j->a->json)
        cli_print_json(j->doc);
    else if (rc == CLI_DONE)
        printf("%.*s %.*s %.*s\n", STR_FMT(json_str(j->doc, "name")),
               STR_FMT(json_str(j->doc, "version")), STR_FMT(json_str(j->doc, "status")));
    return rc;
}

/* PUT @source; author and status may be NULL. */
static int put(struct job *j, const char *name, struct str source, const char *author,
               const char *status)
{
    struct buf path = BUF_INIT, body = BUF_INIT;
    struct jw w = jw_begin(&body);

    if (!utf8_valid(source))
        return cli_failed("the text is not UTF-8; a skill is");
    jw_obj(&w);
    jw_kstr(&w, "source", source);
    jw_key(&w, "metadata");
    jw_obj(&w);
    jw_kstr_opt(&w, "author", str_of(author));
    jw_kstr_opt(&w, "status", str_of(status));
    jw_end_obj(&w);
    jw_end_obj(&w);
    skill_path(&path, name, "");
    int rc = ask(j, "PUT", buf_z(&path), buf_str(&body));
    buf_done(&path);
    buf_done(&body);
    return rc;
}

static int write_skill(struct job *j)
{
    const char *name = j->a->rest[1];
    struct buf source = BUF_INIT;
    int rc = CLI_FAILED;

    if (v1_read_file(j->a->n_rest > 2 ? j->a->rest[2] : NULL, &source))
        rc = told(j, put(j, name, buf_str(&source), j->o->author, j->o->status));
    buf_done(&source);
    return rc;
}

static int status(struct job *j)
{
    struct buf path = BUF_INIT, body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "status", str_of(j->a->rest[2]));
    jw_end_obj(&w);
    skill_path(&path, j->a->rest[1], "");
    int rc = told(j, ask(j, "PATCH", buf_z(&path), buf_str(&body)));
    buf_done(&path);
    buf_done(&body);
    return rc;
}

static bool confirmed(struct job *j, const char *name)
{
    char line[16] = "";
    size_t n = json_count(j->doc);

    if (n > 0) {
        fprintf(stderr, "%zu other skill%s by name:\n", n,
                n == 1 ? " mentions it" : "s mention it");
        for (struct json_iter it = {0}; json_next(j->doc, &it);)
            fprintf(stderr, "    %.*s\n", STR_FMT(json_as_str(it.value)));
    }
    if (j->o->yes)
        return true;
    if (!isatty(STDIN_FILENO)) {
        cli_failed("delete erases %s and its history; add --yes if that is meant", name);
        return false;
    }
    fprintf(stderr, "Delete %s and its history? [y/N] ", name);
    return fgets(line, sizeof line, stdin) != NULL && (line[0] | 32) == 'y';
}

static int delete_skill(struct job *j)
{
    const char *name = j->a->rest[1];
    struct buf path = BUF_INIT;
    int rc = get(j, name, "/metadata");

    if (rc == CLI_DONE)
        rc = get(j, name, "/dependents");
    if (rc == CLI_DONE && !confirmed(j, name))
        rc = CLI_FAILED;
    skill_path(&path, name, "");
    if (rc == CLI_DONE)
        rc = ask(j, "DELETE", buf_z(&path), STR_NULL);
    buf_done(&path);
    return rc;
}

/* The private key is read here and goes nowhere: what leaves is the signed text. */
static int approve(struct job *j)
{
    const char *name = j->a->rest[1];
    struct buf pem = BUF_INIT, source = BUF_INIT, is = BUF_INIT;
    struct ed25519_key *key = NULL;
    char why[256] = "";
    int rc = CLI_FAILED;

    if (!v1_read_file(j->o->key, &pem))
        goto out;
    key = ed25519_private(buf_str(&pem));
    if (key == NULL)
        rc = cli_failed("%s holds no Ed25519 private key (openssl genpkey -algorithm ed25519)",
                        j->o->key);
    else if ((rc = load(j, name, j->o->version, &source)) != CLI_DONE)
        ;
    else if (!skill_sign(buf_str(&source), key, &is, why))
        rc = cli_failed("%s cannot be signed: %s", name, why);
    else
        rc = told(j, put(j, name, buf_str(&is), NULL, "Approved"));
out:
    ed25519_free(key);
    buf_wipe(&pem);
    buf_done(&source);
    buf_done(&is);
    return rc;
}

/* ---- which ---- */

static const struct {
    const char *name;
    int least, most; /* words, the verb's included */
    int (*run)(struct job *j);
} verbs[] = {
    {"list", 1, 1, list},           {"show", 2, 2, show},       {"write", 2, 3, write_skill},
    {"status", 3, 3, status},       {"diff", 2, 4, diff},       {"versions", 2, 2, versions},
    {"delete", 2, 2, delete_skill}, {"approve", 2, 2, approve},
};

static int run_verb(struct job *j)
{
    const char *verb = j->a->n_rest > 0 ? j->a->rest[0] : "";

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(verbs[i].name, verb) != 0)
            continue;
        if (j->a->n_rest < verbs[i].least)
            return cli_misused(j->c, j->a->n_rest == 1 ? "%s which skill?" : "%s: and then?", verb);
        if (j->a->n_rest > verbs[i].most)
            return cli_misused(j->c, "too many arguments");
        if (verbs[i].run == approve && j->o->key == NULL)
            return cli_misused(j->c, "approve signs with --key FILE, the operator's private key");
        return verbs[i].run(j);
    }
    return cli_misused(j->c, "list, show, write, status, versions, diff, delete or approve?");
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
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
    struct v1_door door;
    int rc;

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    if (!v1_door_open(c, &o.v1, &door, &rc))
        return rc;
    if (o.only_new)
        v1_door_add(&door, "If-None-Match: *");
    struct job j = {.c = c, .a = &a, .o = &o, .door = &door, .parser = json_parser_new()};
    rc = run_verb(&j);
    json_parser_free(j.parser);
    v1_door_done(&door);
    return rc;
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
    run,
};
