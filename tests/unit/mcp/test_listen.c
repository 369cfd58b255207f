/* Promises of mcp/mcp.h about streams and subscriptions. */
#include "unit.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/rand.h"
#include "mcp/mcp.h"

struct stream { /* what a client sees */
    struct mcp_sink sink;
    struct mcp_listener *listener;
    struct buf got; /* a line per message */
    int n, comments;
    bool ended;
};

struct rig {
    struct clock *clock;
    int64_t now_ms;
    struct rand rand;
    struct ledger *ledger;
    struct mcp *mcp;
    struct caller who;
    enum mcp_reply_kind kind;
    struct buf reply;
    struct mcp_listener *listener;
    char session[64];
    bool unreadable, watching;
    const char *bad_key; /* NULL: all are good */
};

static void stream_send(struct mcp_sink *s, struct str json)
{
    struct stream *st = container_of(s, struct stream, sink);
    assert_false(st->ended);
    if (json.p == NULL) {
        st->comments++;
        return;
    }
    buf_add_str(&st->got, json);
    buf_add_c(&st->got, '\n');
    st->n++;
}

static void stream_end(struct mcp_sink *s)
{
    struct stream *st = container_of(s, struct stream, sink);
    assert_false(st->ended);
    st->ended = true;
}

#define STREAM \
    { \
        .sink = {stream_send, stream_end}, .got = BUF_INIT \
    }

static void no_list(void *ctx, struct mcp_call *c, struct str cursor)
{
    mcp_answer(c, STR("[]"));
}

static void no_read(void *ctx, struct mcp_call *c, struct str uri)
{
    mcp_answer(c, STR("{}"));
}

static bool exists(void *ctx, const struct caller *who, struct str uri)
{
    return str_starts(uri, STR("x:"));
}

static bool readable(void *ctx, struct str tenant, struct str instance)
{
    struct rig *t = ctx;
    assert_str(tenant, "acme");
    return !t->unreadable;
}

static bool key_is_good(void *ctx, struct str key_id)
{
    struct rig *t = ctx;
    return t->bad_key == NULL || !str_eq(key_id, str_of(t->bad_key));
}

static void watch(void *ctx, bool wanted)
{
    struct rig *t = ctx;
    assert_true(t->watching != wanted);
    t->watching = wanted;
}

static const struct mcp_resources resources = {"[]",     no_list,     no_read, exists,
                                               readable, key_is_good, watch};

static int setup(void **state)
{
    struct rig *t = xcalloc(1, sizeof *t);
    t->clock = clock_new();
    t->now_ms = 1000000;
    clock_set(t->clock, t->now_ms, t->now_ms);
    t->rand = rand_seeded(3);
    t->ledger = ledger_new(NULL);
    t->mcp = mcp_new(&(struct mcp_env){.clock = t->clock,
                                       .rand = &t->rand,
                                       .ledger = t->ledger,
                                       .session_key = {1, 2, 3},
                                       .version = "9.9",
                                       .resources = &resources,
                                       .resources_ctx = t});
    t->who = (struct caller){.tenant = STR("acme"),
                             .identity = STR("me"),
                             .key_id = STR("key-1"),
                             .instance = STR("bot")};
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct rig *t = *state;
    mcp_end_streams(t->mcp);
    mcp_free(t->mcp);
    assert_false(t->watching);
    assert_int_equal(ledger_held(t->ledger, NULL, LIMIT_LISTENERS), 0);
    ledger_free(t->ledger);
    buf_done(&t->reply);
    clock_free(t->clock);
    free(t);
    return 0;
}

static void later(struct rig *t, int64_t ms)
{
    t->now_ms += ms;
    clock_set(t->clock, t->now_ms, t->now_ms);
    clock_turn(t->clock);
}

static void on_reply(void *ctx, const struct mcp_reply *r)
{
    struct rig *t = ctx;
    t->kind = r->kind;
    t->listener = r->listener;
    buf_reset(&t->reply);
    buf_add_str(&t->reply, r->json);
    if (r->session.p != NULL)
        snprintf(t->session, sizeof t->session, "%.*s", STR_FMT(r->session));
}

static const char *say(struct rig *t, const struct mcp_request *asks)
{
    mcp_handle(t->mcp, asks, on_reply, t);
    clock_turn(t->clock);
    return buf_z(&t->reply);
}

#define META "io.modelcontextprotocol/"

/* Listens with @filter, members of an object.  False: refused. */
static bool listen(struct rig *t, struct stream *st, int id, const char *filter)
{
    struct buf message = BUF_INIT;
    buf_printf(&message,
               "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"subscriptions/listen\",\"params\":{"
               "\"_meta\":{\"" META "protocolVersion\":\"2026-07-28\",\"" META
               "clientCapabilities\":{}},\"notifications\":{%s}}}",
               id, filter);
    say(t, &(struct mcp_request){.who = &t->who,
                                 .message = buf_str(&message),
                                 .version = STR(MCP_STATELESS),
                                 .method = STR("subscriptions/listen"),
                                 .takes_stream = true});
    buf_done(&message);
    if (t->kind != MCP_LISTENING)
        return false;
    st->listener = t->listener;
    mcp_listener_attach(t->listener, &st->sink);
    return true;
}

static const char *in_session(struct rig *t, const char *method, const char *uri)
{
    struct buf message = BUF_INIT;
    buf_printf(&message,
               "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{\"uri\":\"%s\"}}",
               method, uri);
    const char *said =
        say(t, &(struct mcp_request){.who = &t->who,
                                     .message = buf_str(&message),
                                     .version = STR("2025-06-18"),
                                     .session =
                                         t->session[0] != '\0' ? str_of(t->session) : STR_NULL});
    buf_done(&message);
    return said;
}

static void changed(struct rig *t, const char *uri)
{
    mcp_changed(t->mcp, STR("acme"), STR("bot"), str_of(uri));
}

static void the_acknowledgement_has_what_will_be_told(void **state)
{
    struct rig *t = *state;
    struct stream st = STREAM;
    assert_true(listen(t, &st, 7,
                       "\"toolsListChanged\":true,\"resourcesListChanged\":true,"
                       "\"resourceSubscriptions\":[\"x:a\",\"y:b\",5,\"x:a\",\"x:c\"]"));
    assert_string_equal(
        buf_z(&t->reply),
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{"
        "\"_meta\":{\"" META "subscriptionId\":7},\"notifications\":{\"resourcesListChanged\":true,"
        "\"resourceSubscriptions\":[\"x:a\",\"x:c\"]}}}");
    mcp_listener_gone(st.listener, &st.sink);
    t->who.instance = STR_NULL;
    assert_true(
        listen(t, &st, 8, "\"resourcesListChanged\":true,\"resourceSubscriptions\":[\"x:a\"]"));
    assert_true(str_contains(buf_str(&t->reply), STR("\"notifications\":{}")));
    assert_false(t->watching);
    mcp_end_streams(t->mcp);
    buf_done(&st.got);
}

static void changes_are_told_to_those_who_asked_and_once(void **state)
{
    struct rig *t = *state;
    struct stream a = STREAM, b = STREAM;
    listen(t, &a, 1, "\"resourceSubscriptions\":[\"x:a\",\"x:b\"]");
    listen(t, &b, 2, "\"resourceSubscriptions\":[\"x:b\"],\"resourcesListChanged\":true");
    for (int i = 0; i < 50; i++)
        changed(t, "x:a");
    assert_int_equal(a.n, 0); /* never inside */
    later(t, 0);
    assert_string_equal(buf_z(&a.got),
                        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\","
                        "\"params\":{\"uri\":\"x:a\",\"_meta\":{\"" META "subscriptionId\":1}}}\n");
    assert_int_equal(b.n, 0);
    changed(t, "x:b");
    mcp_list_changed(t->mcp, STR("acme"), STR("bot"));
    mcp_changed(t->mcp, STR("acme"), STR("other"), STR("x:b"));
    mcp_changed(t->mcp, STR("zorg"), STR("bot"), STR("x:b"));
    later(t, MCP_NOTIFY_MS - 1);
    assert_int_equal(a.n, 1); /* not so soon */
    later(t, 1);
    assert_int_equal(a.n, 2);
    assert_int_equal(b.n, 2);
    mcp_changed(t->mcp, STR("acme"), STR("bot"), STR_NULL); /* anything */
    later(t, MCP_NOTIFY_MS);
    assert_int_equal(a.n, 4);
    assert_int_equal(b.n, 3);
    for (int i = 0; i < 40; i++) { /* more than are remembered by name */
        char uri[16];
        snprintf(uri, sizeof uri, "x:%d", i);
        changed(t, uri);
    }
    later(t, MCP_NOTIFY_MS);
    assert_int_equal(a.n, 6);
    mcp_end_streams(t->mcp);
    buf_done(&a.got);
    buf_done(&b.got);
}

static void many_listeners_are_told_a_few_at_a_time(void **state)
{
    struct rig *t = *state;
    struct stream many[100];
    char key[16];
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = (struct stream)STREAM;
        snprintf(key, sizeof key, "key-%zu", i / 25);
        t->who.key_id = str_of(key);
        assert_true(listen(t, &many[i], (int)i, "\"resourceSubscriptions\":[\"x:a\",\"x:b\"]"));
    }
    changed(t, "x:a");
    size_t told = 0;
    later(t, 0);
    while (told < ARRAY_LEN(many) && many[told].n == 1)
        told++;
    assert_true(told > 0 && told < ARRAY_LEN(many));
    mcp_listener_gone(many[told].listener, &many[told].sink); /* whose turn it is */
    mcp_listener_gone(many[99].listener, &many[99].sink);
    changed(t, "x:b"); /* waits until everybody was told of the other */
    for (int i = 0; i < 4; i++)
        later(t, 0);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        assert_int_equal(many[i].n, i == told || i == 99 ? 0 : 1);
    later(t, MCP_NOTIFY_MS);
    for (int i = 0; i < 4; i++)
        later(t, 0);
    assert_int_equal(many[0].n, 2);
    assert_int_equal(many[98].n, 2);
    changed(t, "x:a");
    later(t, MCP_NOTIFY_MS);
    mcp_end_streams(t->mcp); /* in the middle */
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        buf_done(&many[i].got);
}

static void nobody_is_told_what_cannot_be_read_now(void **state)
{
    struct rig *t = *state;
    struct stream st = STREAM;
    listen(t, &st, 1, "\"resourceSubscriptions\":[\"x:a\"]");
    t->unreadable = true;
    changed(t, "x:a");
    later(t, MCP_NOTIFY_MS);
    assert_int_equal(st.n, 0);
    t->unreadable = false;
    later(t, MCP_NOTIFY_MS);
    assert_int_equal(st.n, 0);
    changed(t, "x:a");
    later(t, MCP_NOTIFY_MS);
    assert_int_equal(st.n, 1);
    mcp_end_streams(t->mcp);
    buf_done(&st.got);
}

static void a_stream_that_ends_here_ends_with_a_result(void **state)
{
    struct rig *t = *state;
    struct stream st = STREAM;
    listen(t, &st, 3, "");
    mcp_end_streams(t->mcp);
    assert_true(st.ended && st.n == 1);
    assert_true(
        str_contains(buf_str(&st.got),
                     STR("\"id\":3,\"result\":{\"resultType\":\"complete\",\"_meta\":{\"" META
                         "subscriptionId\":3")));
    assert_int_equal(mcp_listeners(t->mcp), 0);
    mcp_end_streams(NULL);
    buf_done(&st.got);
}

static void a_key_that_is_not_good_any_more_hears_nothing(void **state)
{
    struct rig *t = *state;
    struct stream a = STREAM, b = STREAM, c = STREAM;
    listen(t, &a, 1, "\"resourceSubscriptions\":[\"x:a\"]");
    t->who.key_id = STR("key-2");
    listen(t, &b, 1, "\"resourceSubscriptions\":[\"x:a\"]");
    t->bad_key = "key-1";
    changed(t, "x:a");
    later(t, MCP_NOTIFY_MS);
    assert_true(a.ended && a.n == 1 && !b.ended);
    assert_false(str_contains(buf_str(&a.got), STR("updated")));
    t->bad_key = "key-2";
    mcp_check_keys(t->mcp);
    assert_true(b.ended);
    t->who.key_id = STR("key-3");
    listen(t, &c, 1, "");
    t->bad_key = "key-3";
    later(t, MCP_KEEP_ALIVE_MS);
    assert_true(c.ended);
    buf_done(&a.got);
    buf_done(&b.got);
    buf_done(&c.got);
}

static void a_key_that_ends_before_its_answer_gets_none(void **state)
{
    struct rig *t = *state;
    const struct mcp_request listens = {
        .who = &t->who,
        .message =
            STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"subscriptions/listen\",\"params\":{"
                "\"_meta\":{\"" META "protocolVersion\":\"2026-07-28\",\"" META
                "clientCapabilities\":{}},\"notifications\":{}}}"),
        .version = STR(MCP_STATELESS),
        .method = STR("subscriptions/listen"),
        .takes_stream = true};

    mcp_handle(t->mcp, &listens, on_reply, t);
    t->bad_key = "key-1";
    mcp_check_keys(t->mcp); /* the listener is gone before its stream begins */
    clock_turn(t->clock);
    assert_int_equal(t->kind, MCP_REVOKED);
    assert_null(t->listener);
    assert_int_equal(t->reply.n, 0);
    in_session(t, "tools/list", "");
    assert_int_equal(t->kind, MCP_REVOKED);
    t->bad_key = NULL;
    assert_true(str_contains(str_of(say(t, &listens)), STR("acknowledged")));
    mcp_listener_gone(t->listener, NULL);
}

static void a_quiet_stream_is_kept_alive(void **state)
{
    struct rig *t = *state;
    struct stream st = STREAM;
    listen(t, &st, 1, "");
    later(t, MCP_KEEP_ALIVE_MS);
    later(t, MCP_KEEP_ALIVE_MS);
    assert_int_equal(st.comments, 2);
    mcp_end_streams(t->mcp);
    buf_done(&st.got);
}

static void streams_and_subscriptions_are_bounded(void **state)
{
    struct rig *t = *state;
    struct stream many[40];
    struct buf filter = BUF_INIT;
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = (struct stream)STREAM;
        n += listen(t, &many[i], (int)i, "");
    }
    assert_int_equal(n, 32);
    assert_int_equal(t->kind, MCP_REPLY);
    assert_true(str_contains(buf_str(&t->reply), STR("too many streams")));
    t->who.key_id = STR("key-2"); /* of another key */
    buf_add_z(&filter, "\"resourceSubscriptions\":[\"x:0\"");
    for (int i = 1; i < 10000; i++)
        buf_printf(&filter, ",\"x:%d\"", i);
    buf_add_c(&filter, ']');
    assert_true(listen(t, &many[39], 1, buf_z(&filter)));
    n = 0;
    for (size_t i = 0; i < t->reply.n; i++)
        n += t->reply.p[i] == ':' && i > 0 && t->reply.p[i - 1] == 'x';
    assert_int_equal(n, MCP_URIS_MAX);
    mcp_end_streams(t->mcp);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        buf_done(&many[i].got);
    buf_done(&filter);
}

/* ---- sessions ---- */

static void open_session(struct rig *t)
{
    t->session[0] = '\0';
    in_session(t, "initialize", "");
    assert_true(mcp_session_ok(t->mcp, &t->who, str_of(t->session)));
}

static void a_session_hears_what_it_subscribed_to(void **state)
{
    struct rig *t = *state;
    struct stream st = STREAM, next = STREAM;
    assert_non_null(strstr(in_session(t, "resources/subscribe", "x:a"), "Mcp-Session-Id"));
    open_session(t);
    assert_non_null(strstr(in_session(t, "resources/subscribe", "y:a"), "-32002"));
    assert_int_equal(mcp_listeners(t->mcp), 0);
    assert_non_null(strstr(in_session(t, "resources/subscribe", "x:a"), "\"result\":{}"));
    changed(t, "x:a"); /* before there is a stream */
    later(t, MCP_NOTIFY_MS);
    st.listener = mcp_session_listener(t->mcp, &t->who, str_of(t->session));
    mcp_listener_attach(st.listener, &st.sink);
    assert_string_equal(buf_z(&st.got),
                        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\","
                        "\"params\":{\"uri\":\"x:a\"}}\n");
    mcp_list_changed(t->mcp, STR("acme"), STR("bot"));
    later(t, MCP_NOTIFY_MS);
    assert_true(str_ends(buf_str(&st.got), STR("list_changed\"}\n")));
    next.listener = mcp_session_listener(t->mcp, &t->who, str_of(t->session));
    mcp_listener_attach(next.listener, &next.sink);
    assert_true(st.ended && next.listener == st.listener);
    assert_int_equal(next.n, 2); /* it may have missed something */
    assert_non_null(strstr(buf_z(&next.got), "list_changed"));
    assert_non_null(strstr(in_session(t, "resources/unsubscribe", "x:a"), "\"result\":{}"));
    assert_non_null(strstr(in_session(t, "resources/unsubscribe", "x:never"), "\"result\":{}"));
    changed(t, "x:a");
    later(t, MCP_NOTIFY_MS);
    assert_int_equal(next.n, 2);
    mcp_session_end(t->mcp, str_of(t->session));
    assert_true(next.ended && next.n == 2); /* no response belongs to it */
    buf_done(&st.got);
    buf_done(&next.got);
}

static void subscriptions_wait_a_while_for_their_stream(void **state)
{
    struct rig *t = *state;
    struct stream st = STREAM;
    open_session(t);
    in_session(t, "resources/subscribe", "x:a");
    st.listener = mcp_session_listener(t->mcp, &t->who, str_of(t->session));
    mcp_listener_attach(st.listener, &st.sink);
    mcp_listener_gone(st.listener, &st.sink);
    assert_int_equal(mcp_listeners(t->mcp), 1);
    for (int64_t ms = 0; ms < MCP_SESSION_IDLE_MS; ms += MCP_KEEP_ALIVE_MS)
        later(t, MCP_KEEP_ALIVE_MS);
    assert_int_equal(mcp_listeners(t->mcp), 0);
    assert_false(t->watching);
    buf_done(&st.got);
}

static void the_oldest_session_without_a_stream_makes_room(void **state)
{
    struct rig *t = *state;
    struct stream st = STREAM;
    open_session(t);
    in_session(t, "resources/subscribe", "x:first");
    st.listener = mcp_session_listener(t->mcp, &t->who, str_of(t->session));
    mcp_listener_attach(st.listener, &st.sink);
    for (int i = 0; i < 5000; i++) {
        open_session(t);
        assert_non_null(strstr(in_session(t, "resources/subscribe", "x:a"), "\"result\":{}"));
    }
    assert_int_equal(mcp_listeners(t->mcp), 32);
    changed(t, "x:first");
    later(t, MCP_NOTIFY_MS);
    assert_int_equal(st.n, 1); /* one with a stream stays */
    mcp_end_streams(t->mcp);
    buf_done(&st.got);
}

#define PROMISE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(mcp_test_listen)
{
    const struct CMUnitTest tests[] = {
        PROMISE(the_acknowledgement_has_what_will_be_told),
        PROMISE(changes_are_told_to_those_who_asked_and_once),
        PROMISE(many_listeners_are_told_a_few_at_a_time),
        PROMISE(nobody_is_told_what_cannot_be_read_now),
        PROMISE(a_stream_that_ends_here_ends_with_a_result),
        PROMISE(a_key_that_is_not_good_any_more_hears_nothing),
        PROMISE(a_key_that_ends_before_its_answer_gets_none),
        PROMISE(a_quiet_stream_is_kept_alive),
        PROMISE(streams_and_subscriptions_are_bounded),
        PROMISE(a_session_hears_what_it_subscribed_to),
        PROMISE(subscriptions_wait_a_while_for_their_stream),
        PROMISE(the_oldest_session_without_a_stream_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
