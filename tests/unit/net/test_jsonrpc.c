/* The promises of net/jsonrpc.h. */
#include "unit.h"
#include "base/buf.h"
#include "net/jsonrpc.h"

struct rig {
    struct jsonrpc *rpc;
    struct buf out, seen; /* lines written; what the handlers saw, each ends in '|' */
    uint64_t ticket;
};

static void on_write(void *ctx, struct str line)
{
    struct rig *r = ctx;

    assert_true(str_ends(line, STR("\n")));
    assert_int_equal(str_find(line, '\n'), line.n - 1);
    buf_add_str(&r->out, line);
}

static void on_request(void *ctx, uint64_t ticket, struct str method, struct json params)
{
    struct rig *r = ctx;

    r->ticket = ticket;
    buf_printf(&r->seen, "ask %.*s %zu|", STR_FMT(method), json_count(params));
}

static void on_notified(void *ctx, struct str method, struct json params)
{
    struct rig *r = ctx;

    buf_printf(&r->seen, "note %.*s %zu|", STR_FMT(method), json_count(params));
}

static void on_noise(void *ctx, struct str line, const char *why)
{
    struct rig *r = ctx;

    buf_printf(&r->seen, "noise %s|", why);
}

static void on_done(void *ctx, const struct jsonrpc_result *end)
{
    struct rig *r = ctx;

    if (end->ok)
        buf_printf(&r->seen, "ok %.*s|", STR_FMT(json_str(end->value, "x")));
    else
        buf_printf(&r->seen, "no %d %.*s|", (int)end->code, STR_FMT(end->message));
}

static const struct jsonrpc_ops ops = {on_write, on_request, on_notified, on_noise, NULL};

static void on_stray(void *ctx, uint64_t number, const struct jsonrpc_result *end)
{
    struct rig *r = ctx;

    buf_printf(&r->seen, "stray %u %s|", (unsigned)number, end->ok ? "ok" : "no");
}

static void open_rig(struct rig *r)
{
    *r = (struct rig){.rpc = jsonrpc_new(&ops, r)};
}

static void close_rig(struct rig *r)
{
    jsonrpc_free(r->rpc);
    buf_done(&r->out);
    buf_done(&r->seen);
}

static void hear(struct rig *r, const char *line)
{
    jsonrpc_line(r->rpc, str_of(line));
}

static void answers_find_their_calls_once(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r);
    assert_int_equal(jsonrpc_call(r.rpc, "a", STR("{\"k\":1}"), on_done, &r), 1);
    assert_int_equal(jsonrpc_call(r.rpc, "b", STR_NULL, on_done, &r), 2);
    uint64_t third = jsonrpc_call(r.rpc, "c", STR("[]"), on_done, &r);
    assert_string_equal(buf_z(&r.out),
                        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\"k\":1}}\n"
                        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"b\"}\n"
                        "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"c\",\"params\":[]}\n");
    jsonrpc_forget(r.rpc, &third);
    assert_int_equal(third, 0);
    hear(&r, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"x\":\"two\"}}\r");
    hear(&r, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"x\":\"twice\"}}");
    hear(&r, "{\"id\":1,\"error\":{\"code\":-32000,\"message\":\"log in\"}}");
    hear(&r, "{\"id\":3,\"result\":null}");
    hear(&r, "{\"id\":\"1\",\"result\":null}");
    assert_string_equal(buf_z(&r.seen), "ok two|noise an answer to no open request|"
                                        "no -32000 log in|noise an answer to no open request|"
                                        "noise an answer to no open request|");
    close_rig(&r);
}

static void an_answer_without_result_is_an_error(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r);
    for (int i = 0; i < 3; i++)
        assert_true(jsonrpc_call(r.rpc, "a", STR_NULL, on_done, &r) > 0);
    hear(&r, "{\"id\":1}");
    hear(&r, "{\"id\":2,\"error\":null}");
    hear(&r, "{\"id\":3,\"result\":null}"); /* session/load answers null */
    assert_string_equal(buf_z(&r.seen), "no -32603 no reason given|no -32603 no reason given|ok |");
    close_rig(&r);
}

static void requests_are_answered_with_their_own_id(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r);
    hear(&r, "{\"id\":\"p-1\",\"method\":\"ask\",\"params\":{\"a\":1,\"b\":2}}");
    jsonrpc_answer(r.rpc, r.ticket, STR("{\"y\":1}"));
    jsonrpc_answer(r.rpc, r.ticket, STR("{\"y\":2}")); /* a second answer does nothing */
    hear(&r, "{\"id\":0,\"method\":\"ask\",\"params\":null}");
    jsonrpc_refuse(r.rpc, r.ticket, JSONRPC_NO_METHOD, "no such \"method\"");
    hear(&r, "{\"method\":\"tell\"}");
    assert_string_equal(buf_z(&r.seen), "ask ask 2|ask ask 0|note tell 0|");
    assert_string_equal(buf_z(&r.out), "{\"jsonrpc\":\"2.0\",\"id\":\"p-1\",\"result\":{\"y\":1}}\n"
                                       "{\"jsonrpc\":\"2.0\",\"id\":0,\"error\":{\"code\":-32601,"
                                       "\"message\":\"no such \\\"method\\\"\"}}\n");
    close_rig(&r);
}

static void stray_text_is_noise_and_is_not_answered(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r);
    hear(&r, "");
    hear(&r, "  \r");
    hear(&r, "Loading model...");
    hear(&r, "\"text\"");
    hear(&r, "{\"method\":7}");
    assert_string_equal(buf_z(&r.seen), "noise not JSON|noise not an object|"
                                        "noise not a JSON-RPC message|");
    assert_int_equal(r.out.n, 0);
    hear(&r, "[{\"id\":1,\"method\":\"a\"}]");
    assert_true(str_contains(buf_str(&r.out), STR("batches are not supported")));
    close_rig(&r);
}

static void a_request_with_half_a_surrogate_pair_is_answered(void **state)
{
    struct rig r;

    open_rig(&r);
    hear(&r, "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ask\",\"params\":{\"x\":\"\\ud83d\"}}");
    assert_string_equal(buf_z(&r.seen), "ask ask 1|");
    close_rig(&r);
}

static void open_requests_are_bounded_both_ways(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r);
    for (int i = 0; i < JSONRPC_MAX_CALLS; i++)
        assert_int_equal(jsonrpc_call(r.rpc, "a", STR_NULL, on_done, &r), i + 1);
    assert_int_equal(jsonrpc_call(r.rpc, "a", STR_NULL, on_done, &r), 0);
    buf_reset(&r.out);
    for (int i = 0; i < JSONRPC_MAX_ASKED + 1; i++) {
        char line[64];
        snprintf(line, sizeof line, "{\"id\":%d,\"method\":\"ask\"}", i);
        hear(&r, line);
    }
    assert_true(str_contains(buf_str(&r.out), STR("\"id\":256,\"error\":{\"code\":-32000")));
    buf_reset(&r.out);
    hear(&r, "{\"id\":3,\"method\":\"ask\"}");
    assert_true(str_contains(buf_str(&r.out), STR("too many open requests")));
    jsonrpc_answer(r.rpc, r.ticket, STR("1"));
    buf_reset(&r.out);
    hear(&r, "{\"id\":3,\"method\":\"ask\"}");
    assert_true(str_contains(buf_str(&r.out), STR("a request with this id is open")));
    close_rig(&r);
}

static void an_open_request_is_found_by_its_id(void **state)
{
    struct json_parser *p = json_parser_new();
    struct json doc;
    struct rig r;

    (void)state;
    open_rig(&r);
    hear(&r, "{\"id\":\"x\",\"method\":\"ask\"}");
    assert_true(json_parse(p, STR("{\"a\":\"x\",\"b\":\"y\",\"c\":[1]}"), &doc));
    assert_int_equal(jsonrpc_ticket(r.rpc, json_get(doc, "a")), r.ticket);
    assert_int_equal(jsonrpc_ticket(r.rpc, json_get(doc, "b")), 0);
    assert_int_equal(jsonrpc_ticket(r.rpc, json_get(doc, "c")), 0);
    assert_int_equal(jsonrpc_ticket(r.rpc, json_get(doc, "d")), 0);
    json_parser_free(p);
    close_rig(&r);
}

static void a_call_has_the_number_that_its_caller_chose(void **state)
{
    static const struct jsonrpc_ops with_stray = {on_write, on_request, on_notified, on_noise,
                                                  on_stray};
    struct rig r = {0};

    r.rpc = jsonrpc_new(&with_stray, &r);
    assert_true(jsonrpc_call_as(r.rpc, 700, "a", STR_NULL, on_done, &r));
    assert_false(jsonrpc_call_as(r.rpc, 700, "a", STR_NULL, on_done, &r)); /* it is open */
    assert_int_equal(jsonrpc_call(r.rpc, "b", STR_NULL, on_done, &r), 1);
    assert_non_null(strstr(buf_z(&r.out), "\"id\":700"));
    hear(&r, "{\"jsonrpc\":\"2.0\",\"id\":700,\"result\":{\"x\":\"y\"}}");
    hear(&r, "{\"jsonrpc\":\"2.0\",\"id\":700,\"result\":{}}");
    hear(&r, "{\"jsonrpc\":\"2.0\",\"id\":9,\"error\":{\"code\":-1}}");
    hear(&r, "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{}}");
    assert_string_equal(buf_z(&r.seen),
                        "ok y|stray 700 ok|stray 9 no|noise an answer to no open request|");
    close_rig(&r);
}

UNIT(net_test_jsonrpc)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_find_their_calls_once),
        cmocka_unit_test(a_call_has_the_number_that_its_caller_chose),
        cmocka_unit_test(an_answer_without_result_is_an_error),
        cmocka_unit_test(requests_are_answered_with_their_own_id),
        cmocka_unit_test(stray_text_is_noise_and_is_not_answered),
        cmocka_unit_test(a_request_with_half_a_surrogate_pair_is_answered),
        cmocka_unit_test(open_requests_are_bounded_both_ways),
        cmocka_unit_test(an_open_request_is_found_by_its_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
