/* dispatch.c - bellhop dispatch list | deliver | wake | request | replies | hook: the operations of
 * /v1/agents from the terminal. */
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "cli/cli.h"

enum {
    ASK_FOR_MS = 10000,       /* time for all status requests; the remaining agents have none */
    REQUEST_MS = 3600 * 1000, /* the server ends a request sooner, at its own timeout */
};

/* ---- list ---- */

static void add_status(const struct cli_job *j, struct json agent, struct jw *w)
{
    struct cli_door door;
    struct cli_job ask = *j;

    ask.door = &door;
    ask.parser = json_parser_new();
    cli_door_open_tenant(json_str(agent, "tenant"), &door);
    if (cli_op(&ask, "agentStatus", CLI_GIVEN({"id", json_str(agent, "agent_id")})) == CLI_DONE) {
        jw_kstr_opt(w, "status", json_str(ask.doc, "status"));
        jw_kstr_opt(w, "detail", json_str(ask.doc, "detail"));
    }
    cli_door_done(&door);
    json_parser_free(ask.parser);
}

int agent_states(struct cli_job *j)
{
    struct clock *clock = clock_new();
    int64_t until_ms = clock_now_ms(clock) + ASK_FOR_MS;
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);
    int rc = cli_op(j, "showAgents", NULL, 0);

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

static const struct cli_column agent_columns[] = {
    {"TENANT", "tenant"},       {"AGENT", "agent_id"}, {"NAME", "agent_name"},
    {"SUBSTRATE", "substrate"}, {"TARGET", "target"},  {"STATE", .cell = cell_state},
    {"WAITING", "waiting"},     {"PARKED", "parked"},  {0},
};

/* Without a key the operator sees all agents and their status; with a key, the key's agents. */
static int list(struct cli_job *j)
{
    bool keyed = cli_value(j, "--key-file") != NULL || cli_value(j, "--url") != NULL ||
                 getenv("BELLHOP_KEY") != NULL;

    return cli_show(j, keyed ? cli_request(j) : agent_states(j));
}

/* ---- deliver, request ---- */

static void write_meta(struct cli_job *j, struct buf *out)
{
    const char *id = cli_value(j, "--id"), *skill = cli_value(j, "--skill"),
               *correlation = cli_value(j, "--correlation");
    bool asks = strcmp(j->verb->name, "request") == 0;
    struct rand system = RAND_SYSTEM;
    struct clock *clock = clock_new();
    struct jw w = jw_begin(out);
    char made[40];

    snprintf(made, sizeof made, "cli-%016llx%016llx", (unsigned long long)rand_u64(&system),
             (unsigned long long)rand_u64(&system));
    jw_obj(&w);
    jw_kstr(&w, "dispatch_id", str_of(id != NULL ? id : made));
    jw_ki64(&w, "sent_at", clock_wall_ms(clock));
    jw_kobj(&w, "origin");
    jw_kstr(&w, "skill_name", str_of(skill != NULL ? skill : "cli"));
    jw_kstr(&w, "trigger_kind", STR("cli"));
    jw_end_obj(&w);
    jw_kstr_opt(&w, "event_type", str_of(cli_value(j, "--event-type")));
    jw_kstr_opt(&w, "correlation_id",
                str_of(correlation != NULL ? correlation
                       : asks              ? "cli"
                                           : NULL));
    jw_end_obj(&w);
    clock_free(clock);
}

/* deliver and request.  The text is the last argument, or standard input. */
static int send_payload(struct cli_job *j)
{
    const char *kind = cli_value(j, "--kind");
    bool template = kind != NULL && strcmp(kind, "template") == 0;
    struct buf text = BUF_INIT, meta = BUF_INIT;
    int rc = CLI_FAILED;

    if (j->args[1] != NULL)
        buf_add_z(&text, j->args[1]);
    if (j->args[1] != NULL || cli_read_text(NULL, &text)) {
        write_meta(j, &meta);
        j->extra[j->n_extra++] = (struct op_given){template ? "prompt" : "content", buf_str(&text)};
        j->extra[j->n_extra++] = (struct op_given){"meta", buf_str(&meta)};
        if (kind == NULL)
            j->extra[j->n_extra++] = (struct op_given){"kind", STR("augment")};
        rc = cli_do(j);
    }
    buf_done(&text);
    buf_done(&meta);
    return rc;
}

static void print_receipt(struct cli_job *j)
{
    printf("%s %.*s\n", cli_bool(j->doc, "delivery_skipped") ? "waits" : "delivered",
           STR_FMT(json_str(j->doc, "delivery_id")));
}

static void print_response(struct cli_job *j)
{
    printf("%.*s\n", STR_FMT(json_str(j->doc, "content")));
}

/* ---- wake, replies ---- */

static void print_woken(struct cli_job *j)
{
    printf("%s\n", cli_bool(j->doc, "woken") ? "woken" : "not woken");
}

static void print_replies(struct cli_job *j)
{
    for (struct json_iter it = {0}; json_next(json_get(j->doc, "replies"), &it);)
        printf("%.*s  %.*s\n", STR_FMT(json_str(it.value, "cursor")),
               STR_FMT(json_str(it.value, "content")));
}

static void print_delivery(struct cli_job *j)
{
    struct str reason = json_str(j->doc, "reason");

    printf("%.*s%s%.*s\n", STR_FMT(json_str(j->doc, "state")), reason.n > 0 ? ": " : "",
           STR_FMT(reason));
}

static const struct cli_column session_columns[] = {
    {"SESSION", "session_id"},
    {"SOURCE", "source"},
    {"TARGET", "target"},
    {"SEEN", "last_seen_at", CLI_AGO_MS},
    {0},
};

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
        if (!j->json)
            printf("%s=%s\n", urls[i].env, buf_z(&url));
    }
    jw_kstr_opt(&w, "secret", json_str(j->doc, "secret"));
    jw_end_obj(&w);
    if (j->json)
        printf("%s\n", buf_z(&out));
    else if (json_str(j->doc, "secret").p != NULL)
        printf("SECRET=%.*s\n", STR_FMT(json_str(j->doc, "secret")));
    buf_wipe(&out);
    buf_wipe(&url);
}

static bool is_hook_of(struct json key, const char *agent, const char *tenant)
{
    return str_eq(json_str(key, "kind"), STR("hook")) &&
           str_eq(json_str(key, "agent"), str_of(agent)) && cli_i64(key, "revokedAt") == 0 &&
           (tenant == NULL || str_eq(json_str(key, "tenant"), str_of(tenant)));
}

/* Appends the ids of the agent's hooks, each followed by a blank.  False: they belong to several
 * tenants. */
static bool find_hooks(struct cli_job *j, const char *agent, const char *tenant, struct buf *ids)
{
    struct str first = STR_NULL;

    for (struct json_iter it = {0}; json_next(j->doc, &it);) {
        struct str whose = json_str(it.value, "tenant");
        if (!is_hook_of(it.value, agent, tenant))
            continue;
        if (first.p != NULL && !str_eq(first, whose))
            return false;
        first = whose;
        buf_printf(ids, "%.*s ", STR_FMT(json_str(it.value, "id")));
    }
    return true;
}

static int revoke_hooks(struct cli_job *j, const char *agent, const char *tenant)
{
    struct buf ids = BUF_INIT;
    int rc = cli_op(j, "listTokens", NULL, 0), n = 0;

    if (rc == CLI_DONE && !find_hooks(j, agent, tenant, &ids))
        rc = cli_failed("several tenants have hooks of \"%s\". Choose one with --tenant", agent);
    struct str rest = str_trim(buf_str(&ids)), id;
    while (rc == CLI_DONE && rest.n > 0 && str_split(&rest, ' ', &id)) {
        rc = cli_op(j, "revokeToken", CLI_GIVEN({"id", id}));
        n += rc == CLI_DONE;
    }
    if (rc == CLI_DONE && n == 0)
        fputs("There is no hook to revoke.\n", stderr);
    else if (n > 0)
        fprintf(stderr, "%d %s revoked.\n", n, n == 1 ? "hook is" : "hooks are");
    buf_done(&ids);
    return rc;
}

static int hook(struct cli_job *j)
{
    const char *agent = cli_value(j, "--agent"), *tenant = cli_value(j, "--tenant");

    if (cli_flag(j, "--revoke"))
        return revoke_hooks(j, agent, tenant);
    int rc = cli_op(
        j, "makeToken",
        CLI_GIVEN({"kind", STR("hook")}, {"tenant", str_of(tenant)}, {"agent", str_of(agent)},
                  {"signature", cli_flag(j, "--no-signature") ? STR("false") : STR("true")}));
    if (rc == CLI_DONE)
        print_hook(j);
    return rc;
}

/* ---- the command ---- */

static const struct cli_verb verbs[] = {
    {"list", .op = "listAgents", .columns = agent_columns, .run = list},
    {"deliver", .args = "id [text]", .op = "deliver", .print = print_receipt, .run = send_payload},
    {"wake", .args = "id [context]", .op = "wake", .print = print_woken},
    {"request", .args = "id [text]", .op = "request", .timeout_ms = REQUEST_MS,
     .print = print_response, .run = send_payload},
    {"replies", .args = "id", .op = "agentReplies", .print = print_replies},
    {"sessions", .args = "id", .op = "listSessions", .columns = session_columns,
     .none = "No session is known."},
    {"delivery", .args = "id", .op = "deliveryStatus", .print = print_delivery},
    {"hook", .needs = "--agent", .run = hook},
    {0},
};
static const struct cli_option options[] = {
    {"--kind", "kind", .one_of = "augment|template"},
    {"--id"},
    {"--session", "session_id"},
    {"--skill"},
    {"--event-type"},
    {"--correlation"},
    {"--timeout", "timeout_ms", CLI_DURATION},
    {"--when", "when", CLI_NUMBER},
    {"--after", "after"},
    {"--limit", "limit", CLI_NUMBER},
    {"--agent", "agent_id"},
    {"--no-signature", .kind = CLI_FLAG},
    {"--revoke", .kind = CLI_FLAG},
    {0},
};

const struct command cmd_dispatch = {
    .name = "dispatch",
    .summary = "deliver to agents and wake them",
    .help =
        "Usage: bellhop dispatch list\n"
        "       bellhop dispatch deliver AGENT [TEXT] [--kind augment|template] [--session S]\n"
        "                                [--id ID] [--skill NAME] [--event-type T]\n"
        "                                [--correlation ID]\n"
        "       bellhop dispatch wake AGENT [TEXT] [--when MS] [--session S]\n"
        "       bellhop dispatch request AGENT [TEXT] [--timeout 30s]\n"
        "       bellhop dispatch replies AGENT [--after CURSOR] [--limit N]\n"
        "       bellhop dispatch sessions AGENT\n"
        "       bellhop dispatch delivery ID [--agent A] [--kind K]\n"
        "       bellhop dispatch hook --agent A [--tenant T] [--no-signature]\n"
        "       bellhop dispatch hook --agent A [--tenant T] --revoke\n\n"
        "list     the agents of the configuration, their state, and their waiting messages\n"
        "deliver  puts TEXT (or standard input) into the agent's inbox.  A second delivery with\n"
        "         the same --id does nothing\n"
        "wake     wakes the agent, now or at --when (unix time in ms), with TEXT as its context\n"
        "request  delivers TEXT and prints the agent's answer\n"
        "replies  what the agent said, oldest first\n"
        "sessions the agent's sessions, and when each was last seen\n"
        "delivery where the delivery with this --id is: queued, delivered, acknowledged, "
        "answered,\n"
        "         or refused and why\n"
        "hook     prints URLs for clients that send no key, and a secret that signs their\n"
        "         requests; --revoke revokes all hooks of the agent\n\n"
        "AGENT is an id, or agent@session.\n\n" V1_OPTIONS_HELP,
    .verbs = verbs,
    .options = options,
    .v1 = true,
};
