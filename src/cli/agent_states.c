/* agent_states.c - (agent_states.h has the contract.) */
#include "cli/agent_states.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/jw.h"

enum { ASK_FOR_MS = 10000 };

static void add_status(const struct cli_args *a, struct json agent, struct jw *w)
{
    struct json_parser *parser = json_parser_new();
    struct buf path = BUF_INIT, tenant = BUF_INIT;
    struct json doc;

    buf_add_z(&path, "/v1/agents/");
    char *id = str_dup(json_str(agent, "agent_id"));
    cli_path_add(&path, id);
    free(id);
    buf_add_z(&path, "/status");
    buf_printf(&tenant, "X-Bellhop-Tenant: %.*s", STR_FMT(json_str(agent, "tenant")));
    const char *headers[] = {buf_z(&tenant), NULL};
    const struct cli_request rq = {.method = "GET", .path = buf_z(&path), .headers = headers};
    if (cli_ask(a, &rq, parser, &doc) == CLI_DONE) {
        jw_kstr_opt(w, "status", json_str(doc, "status"));
        jw_kstr_opt(w, "detail", json_str(doc, "detail"));
    }
    buf_done(&path);
    buf_done(&tenant);
    json_parser_free(parser);
}

int agent_states(const struct cli_args *a, struct json_parser *parser, struct json *ret_doc)
{
    struct json_parser *listed = json_parser_new();
    struct clock *clock = clock_new();
    int64_t until_ms = clock_now_ms(clock) + ASK_FOR_MS;
    struct buf out = BUF_INIT;
    struct jw w = jw_begin(&out);
    struct json doc;
    int rc = cli_call(a, "GET", "/admin/agents", STR_NULL, listed, &doc);

    jw_arr(&w);
    for (struct json_iter it = {0}; rc == CLI_DONE && json_next(doc, &it);) {
        jw_obj(&w);
        for (struct json_iter of = {0}; json_next(it.value, &of);) {
            jw_key_str(&w, of.key);
            jw_value(&w, of.value);
        }
        if (clock_now_ms(clock) < until_ms)
            add_status(a, it.value, &w);
        jw_end_obj(&w);
    }
    jw_end_arr(&w);
    if (rc == CLI_DONE && !json_parse(parser, buf_str(&out), ret_doc))
        rc = cli_failed("the server's list of agents cannot be read");
    buf_done(&out);
    clock_free(clock);
    json_parser_free(listed);
    return rc;
}

struct str agent_problem(struct json agent)
{
    struct str state = json_str(agent, "state"), detail = json_str(agent, "detail");
    struct str substrate = json_str(agent, "substrate");

    if (str_find(state, ' ') >= 0)
        return state; /* how it is is one word; a sentence is trouble */
    if (str_eq(substrate, STR("relay")) || str_eq(substrate, STR("none")))
        return STR_NULL; /* one that waits there is not ill */
    return str_eq(json_str(agent, "status"), STR("unknown")) ? detail : STR_NULL;
}
