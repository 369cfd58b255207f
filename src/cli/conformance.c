/* conformance.c - bellhop conformance: runs the obligations of the relay contract and prints the
 * report.  (conform.h has the parts.) */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/jw.h"
#include "base/mem.h"
#include "cli/conform.h"
#include "sdk/src/options.h"

#define TIMEOUT_MS 5000
#define QUIET_MS 300

/* ---- the credential ---- */

static struct str unquoted(struct str s)
{
    s = str_trim(s);
    if (s.n >= 2 && (s.p[0] == '"' || s.p[0] == '\'') && s.p[s.n - 1] == s.p[0])
        return str_make(s.p + 1, s.n - 2);
    return s;
}

/* The lines that `bellhop gateway add` prints, or a line ID:SECRET. */
static void read_lines(struct conform *c, struct str text)
{
    struct str rest = text, line, name;

    while (str_split(&rest, '\n', &line)) {
        line = str_trim(line);
        if (str_starts(line, STR("export ")))
            line = str_trim(str_skip(line, 7));
        struct str value = line;
        if (str_find(line, '=') < 0 || !str_split(&value, '=', &name))
            continue;
        if (str_eq(name, STR("GATEWAY_RELAY_ID")))
            buf_add_str(&c->id, unquoted(value));
        else if (str_eq(name, STR("GATEWAY_RELAY_SECRET")))
            buf_add_str(&c->secret, unquoted(value));
    }
    ptrdiff_t colon = -1;
    for (size_t i = 0; i < text.n; i++)
        colon = text.p[i] == ':' ? (ptrdiff_t)i : colon; /* ids may have colons */
    if (c->id.n == 0 && c->secret.n == 0 && str_find(text, '\n') < 0 && str_find(text, '=') < 0 &&
        colon > 0) {
        buf_add_str(&c->id, str_make(text.p, (size_t)colon));
        buf_add_str(&c->secret, str_skip(text, (size_t)colon + 1));
    }
}

/* The line of `bellhop serve --ephemeral`. */
static void read_object(struct conform *c, struct json doc)
{
    struct str control = json_str(doc, "control");

    buf_add_str(&c->id, json_str(doc, "gateway_id"));
    buf_add_str(&c->secret, json_str(doc, "secret"));
    if (c->control == NULL && control.n > 0 && c->program == NULL)
        c->control = arena_str(&c->j->arena, control).p;
}

static int read_key_file(struct conform *c, const char *path)
{
    struct buf text = BUF_INIT;
    struct json doc;
    char why[256];
    bool ok = cli_read_text(path, &text);
    struct str word = str_trim(buf_str(&text));

    if (ok && json_parse(c->j->parser, word, &doc) && json_is_object(doc))
        read_object(c, doc);
    else if (ok)
        read_lines(c, word);
    if (ok && c->id.n == 0 && c->secret.n == 0 && word.n > 0 && str_find(word, '\n') < 0 &&
        str_find(word, ' ') < 0) {
        buf_add_str(&c->bearer, word);
        ok = conform_provision(c, why);
        if (!ok)
            cli_failed("%s holds one word, a bearer for POST /relay/provision: %s.\n"
                       "It may also hold the lines of `bellhop gateway add`, ID:SECRET, or the "
                       "line of `bellhop serve --ephemeral`.",
                       path, why);
    } else if (ok && (c->id.n == 0 || c->secret.n == 0)) {
        ok = false;
        cli_failed("%s names no gateway and secret. It may hold the lines of `bellhop gateway "
                   "add`, ID:SECRET, the line of `bellhop serve --ephemeral`, or a bearer for "
                   "POST /relay/provision",
                   path);
    }
    buf_wipe(&text);
    return ok ? CLI_DONE : CLI_MISUSED;
}

/* ---- the run ---- */

static const char *missing(const struct conform *c, const struct obligation *o)
{
    bool person = c->control != NULL || c->program != NULL;

    if ((o->needs & NEEDS_PERSON) != 0 && !person)
        return "needs a person: --control C, or -- PROGRAM, which gets the text as its last "
               "argument";
    if ((o->needs & NEEDS_EVENTS) != 0 && c->control == NULL)
        return "needs a person who can send any event: --control C";
    return NULL;
}

static bool is_wanted(const struct conform *c, const struct obligation *o)
{
    for (size_t i = 0; i < c->j->n_given; i++)
        if (strcmp(c->j->given[i].option->name, "--only") == 0 &&
            strcmp(c->j->given[i].value, o->name) == 0)
            return true;
    return cli_value(c->j, "--only") == NULL;
}

static bool is_known(const struct obligation *const *tables, const char *name)
{
    for (size_t t = 0; tables[t] != NULL; t++)
        for (const struct obligation *o = tables[t]; o->name != NULL; o++)
            if (strcmp(o->name, name) == 0)
                return true;
    return false;
}

static void judge_lint(struct conform *c, const struct obligation *o)
{
    const struct linted *l = &c->lint[o->lint];

    if (l->came[0] != '\0')
        came(c, false, "%s", l->came);
    else if (l->seen == 0)
        skip(c, "nothing came that it applies to");
    else
        came(c, true, "%llu checked", (unsigned long long)l->seen);
}

static void run_one(struct conform *c, const struct obligation *o)
{
    const char *lacks = missing(c, o);

    c->end = CONFORM_OPEN;
    buf_reset(&c->came);
    c->number++;
    if (isatty(STDERR_FILENO)) /* a run takes a while, and the table comes at its end */
        fprintf(stderr, "\r%-32s\r", o->name);
    if (o->lint != LINT_NONE)
        judge_lint(c, o);
    else if (lacks != NULL)
        skip(c, "%s", lacks);
    else
        o->run(c);
    peers_close(c);
    arena_reset(&c->arena);
    if (c->end == CONFORM_OPEN)
        came(c, true, "as expected");
}

static const char *const words[] = {
    [CONFORM_MET] = "met", [CONFORM_BROKEN] = "broken", [CONFORM_SKIPPED] = "skipped"};

static void report(struct conform *c, const struct obligation *o, struct jw *w, unsigned *counts)
{
    counts[c->end]++;
    jw_obj(w);
    jw_kstr(w, "name", str_of(o->name));
    jw_kstr(w, "section", str_of(o->section));
    jw_kstr(w, "result", str_of(words[c->end]));
    jw_kstr(w, "expected", str_of(o->expected));
    jw_kstr(w, "came", buf_str(&c->came));
    jw_end_obj(w);
}

/* The frames of all obligations are checked before the obligations about their form are judged. */
static void run_tables(struct conform *c, const struct obligation *const *tables, struct jw *w,
                       unsigned *counts)
{
    bool some_run = false;

    for (size_t t = 0; tables[t] != NULL; t++)
        for (const struct obligation *o = tables[t]; o->name != NULL; o++)
            some_run |= o->lint == LINT_NONE && is_wanted(c, o);
    for (int linted = 0; linted <= 1; linted++)
        for (size_t t = 0; tables[t] != NULL; t++)
            for (const struct obligation *o = tables[t]; o->name != NULL; o++) {
                /* Frames come from the obligations that run, so one of them must. */
                if ((o->lint != LINT_NONE) != (linted == 1) || (some_run && !is_wanted(c, o)))
                    continue;
                run_one(c, o);
                if (is_wanted(c, o))
                    report(c, o, w, counts);
            }
}

static void cell_result(struct cli_table *t, struct json row)
{
    struct str result = json_str(row, "result");

    cli_cell_str(t, str_eq(result, STR("met"))      ? STR("ok")
                    : str_eq(result, STR("broken")) ? STR("FAULT")
                                                    : STR("skipped"));
}

static const struct cli_column columns[] = {
    {"RESULT", .cell = cell_result}, {"OBLIGATION", "name"}, {"SECTION", "section"},
    {"EXPECTED", "expected"},        {"CAME", "came"},       {0}};

static int show(struct conform *c, struct buf *out, const unsigned *counts)
{
    if (!json_parse(c->j->parser, buf_str(out), &c->j->doc))
        return cli_failed("the report is no JSON: %s", json_error(c->j->parser));
    if (c->j->json)
        cli_print_json(c->j->doc);
    else
        cli_print_rows(c->j, json_get(c->j->doc, "obligations"), columns);
    fprintf(stderr, "%u met, %u broken, %u skipped\n", counts[CONFORM_MET], counts[CONFORM_BROKEN],
            counts[CONFORM_SKIPPED]);
    return counts[CONFORM_BROKEN] > 0 ? CLI_FAILED : CLI_DONE;
}

static int run_all(struct conform *c, const struct obligation *const *tables, const char *target)
{
    unsigned counts[CONFORM_SKIPPED + 1] = {0};
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    for (size_t i = 0; i < c->j->n_given; i++)
        if (strcmp(c->j->given[i].option->name, "--only") == 0 &&
            !is_known(tables, c->j->given[i].value))
            return cli_misused(c->j, "there is no obligation \"%s\": see --list",
                               c->j->given[i].value);
    jw_obj(&w);
    jw_kstr(&w, "target", str_of(target));
    jw_karr(&w, "obligations");
    run_tables(c, tables, &w, counts);
    jw_end_arr(&w);
    jw_ki64(&w, "met", counts[CONFORM_MET]);
    jw_ki64(&w, "broken", counts[CONFORM_BROKEN]);
    jw_ki64(&w, "skipped", counts[CONFORM_SKIPPED]);
    jw_end_obj(&w);
    int rc = show(c, &out, counts);
    buf_done(&out);
    return rc;
}

/* ---- the command ---- */

static const struct obligation *const of_connectors[] = {connector_obligations,
                                                         delivery_obligations, NULL};

static const struct obligation *const of_gateways[] = {gateway_obligations, NULL};

static int list(struct conform *c, const struct obligation *const *tables)
{
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_arr(&w);
    for (size_t t = 0; tables[t] != NULL; t++)
        for (const struct obligation *o = tables[t]; o->name != NULL; o++) {
            jw_obj(&w);
            jw_kstr(&w, "name", str_of(o->name));
            jw_kstr(&w, "section", str_of(o->section));
            jw_kstr(&w, "expected", str_of(o->expected));
            jw_end_obj(&w);
        }
    jw_end_arr(&w);
    if (json_parse(c->j->parser, buf_str(&out), &c->j->doc)) {
        if (c->j->json)
            cli_print_json(c->j->doc);
        else
            cli_print_rows(c->j, c->j->doc, &columns[1]);
    }
    buf_done(&out);
    return CLI_DONE;
}

/* True when the connector can be reached at all; else every obligation would be broken. */
static bool is_there(struct conform *c)
{
    bool there = peer_dial(c, &(struct peer_dial){.token = "", .no_hello = true}) != NULL;

    peers_close(c);
    if (!there)
        cli_failed("%s cannot be reached: %s", c->url->ws, buf_z(&c->came));
    return there;
}

static int dial(struct conform *c)
{
    const char *key_file = cli_value(c->j, "--key-file"), *why = NULL;
    struct gwc_url *url = arena_alloc(&c->j->arena, sizeof *url);
    int rc;

    if (c->j->n_args == 0)
        return cli_misused(c->j, "needs the URL of a connector, or --listen ADDRESS");
    if (key_file == NULL)
        return cli_misused(c->j, "needs --key-file FILE with the credential of a gateway");
    *url = (struct gwc_url){0};
    if (!gwc_url_read(url, c->j->args[0], &why))
        return cli_misused(c->j, "%s: %s", c->j->args[0], why);
    c->url = url;
    rc = read_key_file(c, key_file);
    if (rc == CLI_DONE && !is_there(c))
        rc = CLI_MISUSED;
    if (rc == CLI_DONE && c->control != NULL) {
        struct str dir = str_of(c->control);
        if (str_ends(dir, STR("/admin.sock")))
            dir.n -= sizeof "/admin.sock" - 1;
        c->j->state_dir = arena_str(&c->j->arena, dir).p;
    }
    if (rc == CLI_DONE)
        rc = run_all(c, of_connectors, url->ws);
    gwc_url_done(url);
    return rc;
}

/* Where no file names the gateway, it is any gateway that is told these. */
static int await(struct conform *c)
{
    const char *where = cli_value(c->j, "--listen"), *key_file = cli_value(c->j, "--key-file");
    char why[256];
    int rc = CLI_DONE;

    if (c->j->n_args > 0)
        return cli_misused(c->j, "--listen waits for a gateway, so it takes no URL");
    if (key_file != NULL)
        rc = read_key_file(c, key_file);
    if (rc == CLI_DONE && c->id.n == 0) {
        buf_add_z(&c->id, "conformance");
        buf_add_z(&c->secret, "conformance-secret");
    }
    if (rc == CLI_DONE && !listen_open(c, where, why))
        rc = cli_misused(c->j, "%s: %s", where, why);
    if (rc == CLI_DONE) {
        if (c->program == NULL)
            fprintf(stderr,
                    "Waiting for a gateway with\nGATEWAY_RELAY_URL=%s\nGATEWAY_RELAY_ID=%s\n%s",
                    listen_url(c), buf_z(&c->id),
                    key_file == NULL ? "GATEWAY_RELAY_SECRET=conformance-secret\n" : "");
        rc = run_all(c, of_gateways, listen_url(c));
    }
    listen_close(c);
    return rc;
}

static int conformance(struct cli_job *j)
{
    const char *platform = cli_value(j, "--platform"), *bot = cli_value(j, "--bot");
    struct conform c = {.j = j,
                        .timeout_ms = cli_number(j, "--timeout", TIMEOUT_MS),
                        .quiet_ms = QUIET_MS,
                        .control = cli_value(j, "--control"),
                        .ca_file = cli_value(j, "--ca-file"),
                        .program = j->program,
                        .platform = str_of(platform != NULL ? platform : "relay"),
                        .bot = str_of(bot != NULL ? bot : "")};
    int rc;

    signal(SIGPIPE, SIG_IGN);
    list_init(&c.peers);
    if (cli_flag(j, "--list"))
        rc = list(&c, cli_value(j, "--listen") != NULL ? of_gateways : of_connectors);
    else
        rc = cli_value(j, "--listen") != NULL ? await(&c) : dial(&c);
    buf_done(&c.came);
    buf_done(&c.id);
    buf_wipe(&c.secret);
    buf_wipe(&c.bearer);
    arena_done(&c.arena);
    return rc;
}

const struct command cmd_conformance = {
    .name = "conformance",
    .summary = "check a connector or a gateway against the relay contract",
    .help =
        "Usage: bellhop conformance URL --key-file F [--control C | -- PROGRAM...] [--json]\n"
        "       bellhop conformance --listen ADDRESS [--key-file F] [-- PROGRAM...] [--json]\n"
        "       bellhop conformance --list [--listen ADDRESS] [--json]\n\n"
        "Checks the obligations of docs/contract.md one by one, and prints for each its section,\n"
        "what was expected and what came.  Exit status: 0 none is broken, 1 some are, 2 the\n"
        "check could not be made.\n\n"
        "With a URL it is a gateway and checks the connector there; use a gateway that nobody\n"
        "else uses.  F holds its credential: the lines of `bellhop gateway add`, ID:SECRET, the\n"
        "line of `bellhop serve --ephemeral`, or a bearer for POST /relay/provision.  Many\n"
        "obligations need a person who writes to the gateway; without one they are skipped.  The\n"
        "person is --control C of `bellhop serve --ephemeral` (the line in F has it), or PROGRAM:\n"
        "it gets a text as its last argument and lets somebody write it.\n\n"
        "With --listen it is a connector and checks the gateway that dials it, which should\n"
        "answer every message.  PROGRAM is started as that gateway, with GATEWAY_RELAY_URL,\n"
        "GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET in its environment, and stopped at the end.\n"
        "At the end it is also told that it is revoked.\n\n"
        "--ca-file F        trusts the authorities in this PEM file, for https\n"
        "--only NAME        this obligation only; may be repeated\n"
        "--timeout 5s       how long to wait for what must come\n"
        "--platform, --bot  the identity of the hello (default: relay, without a bot)\n"
        "--list             prints the obligations of connectors; with --listen, of gateways\n",
    .verbs = (const struct cli_verb[]){{"", .args = "[url]", .run = conformance}, {0}},
    .options = (const struct cli_option[]){{"--key-file"},
                                           {"--control"},
                                           {"--ca-file"},
                                           {"--listen"},
                                           {"--platform"},
                                           {"--bot"},
                                           {"--only", .kind = CLI_REPEATED},
                                           {"--timeout", .kind = CLI_DURATION},
                                           {"--list", .kind = CLI_FLAG},
                                           {0}},
    .program = true,
};
