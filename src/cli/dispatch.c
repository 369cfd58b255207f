/* dispatch.c - bellhop dispatch list | deliver | wake | request | replies | hook: what a program
 * does at /v1/agents, by hand. */
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/rand.h"
#include "cli/agent_states.h"
#include "cli/v1.h"

struct dispatch_options {
    struct v1_options v1;
    const char *kind, *id, *session, *skill, *event_type, *correlation, *timeout, *when, *after,
        *limit, *agent;
    bool no_signature, revoke;
};

/* ---- helpers ---- */

static void agent_path(struct buf *out, const char *agent, const char *what)
{
    buf_add_z(out, "/v1/agents/");
    cli_path_add(out, agent);
    buf_printf(out, "/%s", what);
}

static int64_t now_ms(void)
{
    struct clock *clock = clock_new();
    int64_t ms = clock_wall_ms(clock);

    clock_free(clock);
    return ms;
}

static void random_id(struct buf *out)
{
    struct rand system = RAND_SYSTEM;

    buf_printf(out, "cli-%016llx%016llx", (unsigned long long)rand_u64(&system),
               (unsigned long long)rand_u64(&system));
}

static int ask(const struct cli_args *a, const struct v1_door *d, const char *method,
               const struct buf *path, struct str body, void (*print)(struct json doc))
{
    struct json_parser *parser = json_parser_new();
    struct buf copy = BUF_INIT;
    struct json doc;

    buf_add_str(&copy, buf_str(path));
    int rc = v1_call(a, d, method, buf_z(&copy), body, parser, &doc);
    if (rc == CLI_DONE && (a->json || print == NULL))
        cli_print_json(doc);
    else if (rc == CLI_DONE)
        print(doc);
    buf_done(&copy);
    json_parser_free(parser);
    return rc;
}

static void print_warnings(struct json doc)
{
    for (struct json_iter it = {0}; json_next(json_get(doc, "warnings"), &it);)
        fprintf(stderr, "bellhop: %.*s\n", STR_FMT(json_as_str(it.value)));
}

/* ---- list ---- */

static void print_agents(struct json doc)
{
    static const char *const heads[] = {"TENANT", "AGENT", "NAME",    "SUBSTRATE",
                                        "TARGET", "STATE", "WAITING", "PARKED"};
    struct cli_table t = {.columns = ARRAY_LEN(heads)};

    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        cli_cell(&t, "%s", heads[i]);
    for (struct json_iter it = {0}; json_next(doc, &it);) {
        cli_cell_str(&t, json_str(it.value, "tenant"));
        cli_cell_str(&t, json_str(it.value, "agent_id"));
        cli_cell_str(&t, json_str(it.value, "agent_name"));
        cli_cell_str(&t, json_str(it.value, "substrate"));
        cli_cell_str(&t, json_str(it.value, "target"));
        struct str problem = agent_problem(it.value);
        cli_cell_str(&t, problem.p != NULL ? problem : json_str(it.value, "state"));
        cli_cell(&t, "%lld", (long long)cli_i64(it.value, "waiting"));
        cli_cell(&t, "%lld", (long long)cli_i64(it.value, "parked"));
    }
    cli_table_print(&t);
}

/* Without a key the operator sees all agents and how they are; with one, what the key sees. */
static int list(const struct cli_args *a, const struct v1_door *d, bool keyed)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = keyed ? v1_call(a, d, "GET", "/v1/agents", STR_NULL, parser, &doc)
                   : agent_states(a, parser, &doc);

    if (rc == CLI_DONE && a->json)
        cli_print_json(doc);
    else if (rc == CLI_DONE)
        print_agents(doc);
    json_parser_free(parser);
    return rc;
}

/* ---- deliver, request ---- */

static void write_meta(struct jw *w, const struct dispatch_options *o)
{
    struct buf id = BUF_INIT;

    if (o->id != NULL)
        buf_add_z(&id, o->id);
    else
        random_id(&id);
    jw_key(w, "meta");
    jw_obj(w);
    jw_kstr(w, "dispatch_id", buf_str(&id));
    jw_ki64(w, "sent_at", now_ms());
    jw_key(w, "origin");
    jw_obj(w);
    jw_kstr(w, "skill_name", str_of(o->skill != NULL ? o->skill : "cli"));
    jw_kstr(w, "trigger_kind", STR("cli"));
    jw_end_obj(w);
    jw_kstr_opt(w, "event_type", str_of(o->event_type));
    if (o->correlation != NULL)
        jw_kstr(w, "correlation_id", str_of(o->correlation));
    jw_end_obj(w);
    buf_done(&id);
}

/* The text is the last argument, or standard input.  False: told why not. */
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

static void print_receipt(struct json doc)
{
    print_warnings(doc);
    printf("%s %.*s\n",
           json_as_bool(json_get(doc, "delivery_skipped"), false) ? "waits" : "delivered",
           STR_FMT(json_str(doc, "delivery_id")));
}

static void print_response(struct json doc)
{
    printf("%.*s\n", STR_FMT(json_str(doc, "content")));
}

static int send_payload(const struct cli_args *a, const struct v1_door *d,
                        const struct dispatch_options *o, bool request)
{
    bool template = o->kind != NULL && strcmp(o->kind, "template") == 0;
    struct buf path = BUF_INIT, text = BUF_INIT, body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int64_t timeout_ms = 0;
    int rc = CLI_FAILED;

    if (!read_text(a, &text))
        goto out;
    jw_obj(&w);
    jw_kstr(&w, "kind", str_of(o->kind != NULL ? o->kind : "augment"));
    jw_kstr(&w, template ? "prompt" : "content", buf_str(&text));
    jw_kstr_opt(&w, "session_id", str_of(o->session));
    if (o->timeout != NULL && str_to_duration_ms(str_of(o->timeout), &timeout_ms))
        jw_ki64(&w, "timeout_ms", timeout_ms);
    write_meta(&w, o);
    jw_end_obj(&w);
    agent_path(&path, a->rest[1], request ? "request" : "deliver");
    rc = ask(a, d, "POST", &path, buf_str(&body), request ? print_response : print_receipt);
out:
    buf_done(&path);
    buf_done(&text);
    buf_done(&body);
    return rc;
}

/* ---- wake, replies ---- */

static void print_woken(struct json doc)
{
    print_warnings(doc);
    printf("%s\n", json_as_bool(json_get(doc, "woken"), false) ? "woken" : "not woken");
}

static int wake(const struct command *c, const struct cli_args *a, const struct v1_door *d,
                const struct dispatch_options *o)
{
    struct buf path = BUF_INIT, body = BUF_INIT;
    struct jw w = jw_begin(&body);
    int64_t when = 0;

    if (o->when != NULL && !str_to_i64(str_of(o->when), &when))
        return cli_misused(c, "--when takes a time in unix milliseconds, not \"%s\"", o->when);
    jw_obj(&w);
    jw_kstr_opt(&w, "context", str_of(a->n_rest > 2 ? a->rest[2] : NULL));
    jw_kstr_opt(&w, "session_id", str_of(o->session));
    if (o->when != NULL)
        jw_ki64(&w, "when", when);
    jw_end_obj(&w);
    agent_path(&path, a->rest[1], "wake");
    int rc = ask(a, d, "POST", &path, buf_str(&body), print_woken);
    buf_done(&path);
    buf_done(&body);
    return rc;
}

static void print_replies(struct json doc)
{
    for (struct json_iter it = {0}; json_next(json_get(doc, "replies"), &it);)
        printf("%.*s  %.*s\n", STR_FMT(json_str(it.value, "cursor")),
               STR_FMT(json_str(it.value, "content")));
}

static int replies(const struct cli_args *a, const struct v1_door *d,
                   const struct dispatch_options *o)
{
    struct buf path = BUF_INIT;
    char sep = '?';

    agent_path(&path, a->rest[1], "replies");
    if (o->after != NULL) {
        cli_query_add(&path, sep, "after", o->after);
        sep = '&';
    }
    if (o->limit != NULL)
        cli_query_add(&path, sep, "limit", o->limit);
    int rc = ask(a, d, "GET", &path, STR_NULL, print_replies);
    buf_done(&path);
    return rc;
}

/* ---- hook ---- */

static void print_hook(const struct cli_args *a, struct json doc)
{
    static const struct {
        const char *key, *env, *end;
    } urls[] = {{"url", "URL", "deliver"},
                {"wake_url", "WAKE_URL", "wake"},
                {"status_url", "STATUS_URL", "status"}};
    struct str base = json_str(doc, "url"), token = json_str(doc, "token");
    struct buf out = BUF_INIT, url = BUF_INIT;
    struct jw w = jw_begin(&out);

    jw_obj(&w);
    jw_kstr(&w, "id", json_str(doc, "id"));
    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        buf_reset(&url);
        buf_printf(&url, "%.*s/v1/hooks/%.*s/%s", STR_FMT(base.p != NULL ? base : STR("")),
                   STR_FMT(token), urls[i].end);
        jw_kstr(&w, urls[i].key, buf_str(&url));
        if (!a->json)
            printf("%s=%s\n", urls[i].env, buf_z(&url));
    }
    jw_kstr_opt(&w, "secret", json_str(doc, "secret"));
    jw_end_obj(&w);
    if (a->json)
        printf("%s\n", buf_z(&out));
    else if (json_str(doc, "secret").p != NULL)
        printf("SECRET=%.*s\n", STR_FMT(json_str(doc, "secret")));
    buf_wipe(&out);
    buf_wipe(&url);
}

static int make_hook(const struct cli_args *a, const struct dispatch_options *o)
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;

    jw_obj(&w);
    jw_kstr(&w, "kind", STR("hook"));
    jw_kstr(&w, "tenant", str_of(o->v1.tenant));
    jw_kstr(&w, "agent", str_of(o->agent));
    jw_kbool(&w, "signature", !o->no_signature);
    jw_end_obj(&w);
    int rc = cli_call(a, "POST", "/admin/token", buf_str(&body), parser, &doc);
    if (rc == CLI_DONE)
        print_hook(a, doc);
    buf_done(&body);
    json_parser_free(parser);
    return rc;
}

static int revoke_one(const struct cli_args *a, struct str id)
{
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct jw w = jw_begin(&body);
    struct json doc;

    jw_obj(&w);
    jw_kstr(&w, "id", id);
    jw_end_obj(&w);
    int rc = cli_call(a, "POST", "/admin/tokens/revoke", buf_str(&body), parser, &doc);
    buf_done(&body);
    json_parser_free(parser);
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
static int revoke_hooks(const struct cli_args *a, const struct dispatch_options *o)
{
    struct json_parser *parser = json_parser_new();
    struct json doc;
    int rc = cli_call(a, "GET", "/admin/tokens", STR_NULL, parser, &doc), n = 0;

    if (rc == CLI_DONE && are_of_several_tenants(doc, o)) {
        fprintf(stderr, "bellhop: several tenants have hooks of \"%s\"; say whose with --tenant\n",
                o->agent);
        rc = CLI_FAILED;
    }
    for (struct json_iter it = {0}; rc == CLI_DONE && json_next(doc, &it);)
        if (is_hook_of(it.value, o)) {
            rc = revoke_one(a, json_str(it.value, "id"));
            n += rc == CLI_DONE;
        }
    if (rc == CLI_DONE && n == 0)
        fputs("There was no hook to revoke.\n", stderr);
    else if (n > 0)
        fprintf(stderr, "%d %s void now.\n", n, n == 1 ? "hook is" : "hooks are");
    json_parser_free(parser);
    return rc;
}

static int hook(const struct command *c, const struct cli_args *a, const struct dispatch_options *o)
{
    if (o->agent == NULL)
        return cli_misused(c, "a hook for which --agent?");
    if (o->v1.tenant == NULL && !o->revoke)
        return cli_misused(c, "which --tenant?");
    return o->revoke ? revoke_hooks(a, o) : make_hook(a, o);
}

/* ---- the command ---- */

static int with_door(const struct command *c, const struct cli_args *a,
                     const struct dispatch_options *o, const char *verb)
{
    struct v1_door door;
    bool keyed = o->v1.key_file != NULL || o->v1.url != NULL || getenv("BELLHOP_KEY") != NULL;
    int rc;

    if (!v1_door_open(c, &o->v1, &door, &rc))
        return rc;
    if (strcmp(verb, "list") == 0)
        rc = list(a, &door, keyed);
    else if (strcmp(verb, "wake") == 0)
        rc = wake(c, a, &door, o);
    else if (strcmp(verb, "replies") == 0)
        rc = replies(a, &door, o);
    else
        rc = send_payload(a, &door, o, strcmp(verb, "request") == 0);
    v1_door_done(&door);
    return rc;
}

static int run(const struct command *c, int argc, char **argv)
{
    struct cli_args a;
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

    if (!cli_parse(c, argc, argv, options, ARRAY_LEN(options), &a))
        return cli_exit(&a);
    const char *verb = a.n_rest > 0 ? a.rest[0] : "";
    if (strcmp(verb, "hook") == 0)
        return hook(c, &a, &o);
    bool lists = strcmp(verb, "list") == 0, asks = strcmp(verb, "request") == 0;
    if (!lists && !asks && strcmp(verb, "deliver") != 0 && strcmp(verb, "wake") != 0 &&
        strcmp(verb, "replies") != 0)
        return cli_misused(c, "list, deliver, wake, request, replies or hook?");
    if (!lists && a.n_rest < 2)
        return cli_misused(c, "%s whom? Give an agent", verb);
    if (asks && o.correlation == NULL)
        o.correlation = "cli";
    return with_door(c, &a, &o, verb);
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
