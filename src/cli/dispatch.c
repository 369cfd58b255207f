/* dispatch.c - bellhop dispatch list | deliver | wake | request | replies | hook: the operations of
 * /v1/agents from the terminal. */
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "cli/v1.h"

enum { ASK_FOR_MS = 10000 }; /* time for all status requests; the remaining agents have none */

struct dispatch_options {
    struct v1_options v1;
    const char *kind, *id, *session, *skill, *event_type, *correlation, *timeout, *when, *after,
        *limit, *agent;
    bool no_signature, revoke;
};

/* ---- list ---- */

static void add_status(const struct cli_job *j, struct json agent, struct jw *w)
{
    struct v1_options o = {0};
    struct v1_door door;
    struct cli_job ask = {.c = j->c, .a = j->a, .door = &door, .parser = json_parser_new()};
    char *tenant = str_dup(json_str(agent, "tenant"));
    int rc;

    o.tenant = tenant;
    o.keyless = true;
    if (v1_door_open(j->c, &o, &door, &rc)) {
        rc = v1_op(&ask, "agentStatus", V1_GIVEN({"id", json_str(agent, "agent_id")}));
        if (rc == CLI_DONE) {
            jw_kstr_opt(w, "status", json_str(ask.doc, "status"));
            jw_kstr_opt(w, "detail", json_str(ask.doc, "detail"));
        }
        v1_door_done(&door);
    }
    free(tenant);
    json_parser_free(ask.parser);
}

int agent_states(struct cli_job *j)
{
    struct clock *clock = clock_new();
    int64_t until_ms = clock_now_ms(clock) + ASK_FOR_MS;
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);
    int rc = cli_get(j, "/admin/agents", NULL, 0);

    jw_arr(&w);
    for (struct json_iter it = {0}; rc == CLI_DONE && json_next(j->doc, &it);) {
        jw_obj(&w);
        for (struct json_iter of = {0}; json_next(it.value, &of);) {
            jw_key_str(&w, of.key);
            jw_value(&w, of.value);
        }
        if (clock_now_ms(clock) < until_ms)
            add_status(j, it.value, &w);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    if (rc == CLI_DONE && !json_parse(j->parser, buf_str(&out), &j->doc))
        rc = cli_failed("the server's list of agents cannot be read");
    buf_done(&out);
    clock_free(clock);
    return rc;
}

struct str agent_problem(struct json agent)
{
    struct str state = json_str(agent, "state"), detail = json_str(agent, "detail");
    struct str substrate = json_str(agent, "substrate");

    if (str_find(state, ' ') >= 0)
        return state; /* a state is one word, a problem a sentence */
    if (str_eq(substrate, STR("relay")) || str_eq(substrate, STR("none")))
        return STR_NULL; /* an agent that waits for input is healthy */
    return str_eq(json_str(agent, "status"), STR("unknown")) ? detail : STR_NULL;
}

static void cell_state(struct cli_table *t, struct json agent)
{
    struct str problem = agent_problem(agent);

    cli_cell_str(t, problem.p != NULL ? problem : json_str(agent, "state"));
}

static void print_agents(struct cli_job *j)
{
    static const struct cli_column columns[] = {
        {"TENANT", "tenant"},       {"AGENT", "agent_id"}, {"NAME", "agent_name"},
        {"SUBSTRATE", "substrate"}, {"TARGET", "target"},  {"STATE", .cell = cell_state},
        {"WAITING", "waiting"},     {"PARKED", "parked"},
    };

    cli_print_rows(j, j->doc, columns, ARRAY_LEN(columns));
}

/* Without a key the operator sees all agents and their status; with a key, the key's agents. */
static int list(struct cli_job *j)
{
    const struct dispatch_options *o = j->o;
    bool keyed = o->v1.key_file != NULL || o->v1.url != NULL || getenv("BELLHOP_KEY") != NULL;

    return cli_show(j, keyed ? v1_op(j, "listAgents", NULL, 0) : agent_states(j), print_agents);
}

/* ---- deliver, request ---- */

static void write_meta(struct buf *out, const struct dispatch_options *o, const char *correlation)
{
    struct rand system = RAND_SYSTEM;
    struct clock *clock = clock_new();
    struct jw w = jw_begin(out);
    char id[40];

    snprintf(id, sizeof id, "cli-%016llx%016llx", (unsigned long long)rand_u64(&system),
             (unsigned long long)rand_u64(&system));
    jw_obj(&w);
    jw_kstr(&w, "dispatch_id", str_of(o->id != NULL ? o->id : id));
    jw_ki64(&w, "sent_at", clock_wall_ms(clock));
    jw_key(&w, "origin");
    jw_obj(&w);
    jw_kstr(&w, "skill_name", str_of(o->skill != NULL ? o->skill : "cli"));
    jw_kstr(&w, "trigger_kind", STR("cli"));
    jw_end_obj(&w);
    jw_kstr_opt(&w, "event_type", str_of(o->event_type));
    jw_kstr_opt(&w, "correlation_id", str_of(correlation));
    jw_end_obj(&w);
    clock_free(clock);
}

/* The text is the last argument, or standard input.  False: the error has been printed. */
static bool read_text(const struct cli_args *a, struct buf *out)
{
    if (a->n_rest > 2)
        buf_add_z(out, a->rest[2]);
    else if (!v1_read_file(NULL, out))
        return false;
    if (utf8_valid(buf_str(out)))
        return true;
    cli_failed("the text is not UTF-8");
    return false;
}

static int send_payload(struct cli_job *j, const char *op, const char *correlation,
                        struct str timeout_ms)
{
    const struct dispatch_options *o = j->o;
    bool template = o->kind != NULL && strcmp(o->kind, "template") == 0;
    struct buf text = BUF_INIT, meta = BUF_INIT;
    int rc = CLI_FAILED;

    if (read_text(&j->a, &text)) {
        write_meta(&meta, o, correlation);
        rc = v1_op(j, op,
                   V1_GIVEN({"id", str_of(j->a.rest[1])},
                            {"kind", str_of(o->kind != NULL ? o->kind : "augment")},
                            {template ? "prompt" : "content", buf_str(&text)},
                            {"session_id", str_of(o->session)}, {"timeout_ms", timeout_ms},
                            {"meta", buf_str(&meta)}));
    }
    buf_done(&text);
    buf_done(&meta);
    return rc;
}

static void print_warnings(struct json doc)
{
    for (struct json_iter it = {0}; json_next(json_get(doc, "warnings"), &it);)
        fprintf(stderr, "bellhop: %.*s\n", STR_FMT(json_as_str(it.value)));
}

static void print_receipt(struct cli_job *j)
{
    print_warnings(j->doc);
    printf("%s %.*s\n", cli_bool(j->doc, "delivery_skipped") ? "waits" : "delivered",
           STR_FMT(json_str(j->doc, "delivery_id")));
}

static int deliver(struct cli_job *j)
{
    const struct dispatch_options *o = j->o;

    return cli_show(j, send_payload(j, "deliver", o->correlation, STR_NULL), print_receipt);
}

static void print_response(struct cli_job *j)
{
    printf("%.*s\n", STR_FMT(json_str(j->doc, "content")));
}

static int request(struct cli_job *j)
{
    const struct dispatch_options *o = j->o;
    char timeout[24] = "";
    int64_t ms;

    if (o->timeout != NULL && str_to_duration_ms(str_of(o->timeout), &ms))
        snprintf(timeout, sizeof timeout, "%lld", (long long)ms);
    return cli_show(j,
                    send_payload(j, "request", o->correlation != NULL ? o->correlation : "cli",
                                 timeout[0] != '\0' ? str_of(timeout) : STR_NULL),
                    print_response);
}

/* ---- wake, replies ---- */

static void print_woken(struct cli_job *j)
{
    print_warnings(j->doc);
    printf("%s\n", cli_bool(j->doc, "woken") ? "woken" : "not woken");
}

static int wake(struct cli_job *j)
{
    const struct dispatch_options *o = j->o;
    int64_t when;

    if (o->when != NULL && !str_to_i64(str_of(o->when), &when))
        return cli_misused(j->c, "--when takes a time in unix milliseconds, not \"%s\"", o->when);
    return cli_show(j,
                    v1_op(j, "wake",
                          V1_GIVEN({"id", str_of(j->a.rest[1])},
                                   {"context", str_of(j->a.n_rest > 2 ? j->a.rest[2] : NULL)},
                                   {"session_id", str_of(o->session)}, {"when", str_of(o->when)})),
                    print_woken);
}

static void print_replies(struct cli_job *j)
{
    for (struct json_iter it = {0}; json_next(json_get(j->doc, "replies"), &it);)
        printf("%.*s  %.*s\n", STR_FMT(json_str(it.value, "cursor")),
               STR_FMT(json_str(it.value, "content")));
}

static int replies(struct cli_job *j)
{
    const struct dispatch_options *o = j->o;

    return cli_show(j,
                    v1_op(j, "agentReplies",
                          V1_GIVEN({"id", str_of(j->a.rest[1])}, {"after", str_of(o->after)},
                                   {"limit", str_of(o->limit)})),
                    print_replies);
}

/* ---- hook ---- */

static void print_hook(struct cli_job *j)
{
    static const struct {
        const char *key, *env, *end;
    } urls[] = {{"url", "URL", "deliver"},
                {"wake_url", "WAKE_URL", "wake"},
                {"status_url", "STATUS_URL", "status"}};
    struct str base = json_str(j->doc, "url"), token = json_str(j->doc, "token");
    struct buf out = BUF_INIT, url = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_obj(&w);
    jw_kstr(&w, "id", json_str(j->doc, "id"));
    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        buf_reset(&url);
        buf_printf(&url, "%.*s/v1/hooks/%.*s/%s", STR_FMT(base.p != NULL ? base : STR("")),
                   STR_FMT(token), urls[i].end);
        jw_kstr(&w, urls[i].key, buf_str(&url));
        if (!j->a.json)
            printf("%s=%s\n", urls[i].env, buf_z(&url));
    }
    jw_kstr_opt(&w, "secret", json_str(j->doc, "secret"));
    jw_end_obj(&w);
    if (j->a.json)
        printf("%s\n", buf_z(&out));
    else if (json_str(j->doc, "secret").p != NULL)
        printf("SECRET=%.*s\n", STR_FMT(json_str(j->doc, "secret")));
    buf_wipe(&out);
    buf_wipe(&url);
}

static int make_hook(struct cli_job *j, const struct dispatch_options *o)
{
    int rc = cli_post(j, "/admin/token",
                      CLI_FIELDS({"kind", STR("hook")}, {"tenant", str_of(o->v1.tenant)},
                                 {"agent", str_of(o->agent)},
                                 {"signature", .raw = o->no_signature ? "false" : "true"}));

    if (rc == CLI_DONE)
        print_hook(j);
    return rc;
}

static bool is_hook_of(struct json key, const struct dispatch_options *o)
{
    return str_eq(json_str(key, "kind"), STR("hook")) &&
           str_eq(json_str(key, "agent"), str_of(o->agent)) &&
           json_type(json_get(key, "revokedAt")) != JSON_NUMBER &&
           (o->v1.tenant == NULL || str_eq(json_str(key, "tenant"), str_of(o->v1.tenant)));
}

static bool are_of_several_tenants(struct json keys, const struct dispatch_options *o)
{
    struct str tenant = STR_NULL;

    for (struct json_iter it = {0}; json_next(keys, &it);) {
        if (!is_hook_of(it.value, o))
            continue;
        if (tenant.p != NULL && !str_eq(tenant, json_str(it.value, "tenant")))
            return true;
        tenant = json_str(it.value, "tenant");
    }
    return false;
}

/* All hooks of the agent. */
static int revoke_hooks(struct cli_job *j, const struct dispatch_options *o)
{
    struct buf ids = BUF_INIT;
    int rc = cli_get(j, "/admin/tokens", NULL, 0), n = 0;

    if (rc == CLI_DONE && are_of_several_tenants(j->doc, o)) {
        fprintf(stderr, "bellhop: several tenants have hooks of \"%s\"; say whose with --tenant\n",
                o->agent);
        rc = CLI_FAILED;
    }
    for (struct json_iter it = {0}; rc == CLI_DONE && json_next(j->doc, &it);)
        if (is_hook_of(it.value, o))
            buf_printf(&ids, "%.*s ", STR_FMT(json_str(it.value, "id")));
    struct str rest = str_trim(buf_str(&ids)), id;
    while (rc == CLI_DONE && rest.n > 0 && str_split(&rest, ' ', &id)) {
        rc = cli_post(j, "/admin/tokens/revoke", CLI_FIELDS({"id", id}));
        n += rc == CLI_DONE;
    }
    if (rc == CLI_DONE && n == 0)
        fputs("There was no hook to revoke.\n", stderr);
    else if (n > 0)
        fprintf(stderr, "%d %s void now.\n", n, n == 1 ? "hook is" : "hooks are");
    buf_done(&ids);
    return rc;
}

static int hook(struct cli_job *j)
{
    const struct dispatch_options *o = j->o;

    if (o->agent == NULL)
        return cli_misused(j->c, "a hook for which --agent?");
    if (o->v1.tenant == NULL && !o->revoke)
        return cli_misused(j->c, "which --tenant?");
    return o->revoke ? revoke_hooks(j, o) : make_hook(j, o);
}

/* ---- the command ---- */

static const struct cli_verb verbs[] = {
    {"list", 0, 7, NULL, list},
    {"deliver", 1, 7, "whom? Give an agent", deliver},
    {"wake", 1, 7, "whom? Give an agent", wake},
    {"request", 1, 7, "whom? Give an agent", request},
    {"replies", 1, 7, "whom? Give an agent", replies},
    {"hook", 0, 7, NULL, hook},
    {0},
};

static int run(const struct command *c, int argc, char **argv)
{
    struct dispatch_options o = {0};
    const struct cli_option options[] = {
        V1_OPTIONS(o.v1),
        {"--kind", &o.kind, NULL},
        {"--id", &o.id, NULL},
        {"--session", &o.session, NULL},
        {"--skill", &o.skill, NULL},
        {"--event-type", &o.event_type, NULL},
        {"--correlation", &o.correlation, NULL},
        {"--timeout", &o.timeout, NULL},
        {"--when", &o.when, NULL},
        {"--after", &o.after, NULL},
        {"--limit", &o.limit, NULL},
        {"--agent", &o.agent, NULL},
        {"--no-signature", NULL, &o.no_signature},
        {"--revoke", NULL, &o.revoke},
    };

    return v1_run(c, argc, argv, options, ARRAY_LEN(options), verbs, &o.v1, &o);
}

const struct command cmd_dispatch = {
    "dispatch",
    "deliver to agents and ring them",
    "Usage: bellhop dispatch list\n"
    "       bellhop dispatch deliver AGENT [TEXT] [--kind augment|template] [--session S] [--id "
    "ID]\n"
    "       bellhop dispatch wake AGENT [TEXT] [--when MS] [--session S]\n"
    "       bellhop dispatch request AGENT [TEXT] [--timeout 30s]\n"
    "       bellhop dispatch replies AGENT [--after CURSOR] [--limit N]\n"
    "       bellhop dispatch hook --agent A --tenant T [--no-signature]\n"
    "       bellhop dispatch hook --agent A [--tenant T] --revoke\n\n"
    "list     the agents of the configuration, how they are and what waits for them\n"
    "deliver  puts TEXT (or standard input) into the agent's inbox; the same --id is done once;\n"
    "         --skill, --event-type and --correlation go along\n"
    "wake     rings the agent, with a context it should see\n"
    "request  delivers and prints the answer\n"
    "replies  what the agent said, oldest first\n"
    "hook     URLs for clients that send no key, and a secret that signs what they send;\n"
    "         --revoke: all of the agent's hooks are void\n\n"
    "AGENT is an id, or agent@session.\n\n" V1_OPTIONS_HELP,
    run,
};
