/* Promises of platform/sender.h and platform/outgoing_log.h: a platform of our own that says
 * "notes", over a real HTTP server and a real SQLite.  The server answers as the test says, by
 * what is asked. */
#include "unit.h"
#include "net/net_test.h"

#include <sys/stat.h>

#include "base/rand.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "platform/sender.h"
#include "store/memory/memory.h"
#include "store/sqlite/sqlite.h"

#define MAX 64

struct note { /* what this platform can say: parts with a text each */
    struct outgoing out;
    char lane[16];
    const char *parts[4];
    bool once;
    int64_t timeout_ms;
};

struct rule { /* the server's answer to a text, @times times */
    const char *text;
    int status; /* 0: never */
    int times;
};

static struct {
    struct platform base;
    struct loop *loop;
    struct clock *clock;
    struct store *store;
    struct rand rand;
    struct http_server *server;
    struct host_env env;
    struct sender *sender;
    char dir[64], url[64];
    struct buf heard; /* "text text ", as they arrived */
    struct rule rules[8];
    struct http_id held[MAX];
    size_t n_held;
    int n_heard;
    struct {
        int n;
        bool success;
        struct buf id, error;
    } results[MAX];
    int n_results, n_told, n_freed;
    enum sender_end told;
    char told_why[256];
    struct buf cut_off; /* "tenant/instance/request error\n" */
    bool token;         /* without one, write() holds */
    int records_when_heard;
} w;

/* ---- the host ---- */

const struct host_env *host_env(struct host *h)
{
    return &w.env;
}
void host_result(struct host *h, struct action_id id, const struct action_result *r)
{
    w.n_results++;
    w.results[id.index].n++;
    w.results[id.index].success = r->success;
    buf_reset(&w.results[id.index].id);
    buf_reset(&w.results[id.index].error);
    buf_add_str(&w.results[id.index].id, r->message_id);
    buf_add_str(&w.results[id.index].error, r->error);
}
void host_fail(struct host *h, struct action_id id, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    host_result(h, id, &(struct action_result){.error = str_of(text)});
}
void host_cut_off(struct host *h, const struct action_from *from, const char *error)
{
    buf_printf(&w.cut_off, "%.*s/%.*s/%.*s %s\n", STR_FMT(from->tenant), STR_FMT(from->instance),
               STR_FMT(from->request_id), error);
}

/* ---- the platform's server ---- */

static void count_record(void *ctx, struct str key, struct str value)
{
    assert_false(str_contains(value, STR("one"))); /* what is said is not kept */
    ++*(int *)ctx;
}

static int n_records(const char *ns)
{
    int n = 0;

    assert_int_equal(w.store->ops->load_records(w.store, ns, count_record, &n), BH_OK);
    return n;
}

static void serve(void *ctx, struct http_req *r)
{
    struct str text = http_body(r);
    struct http_answer a = {.status = 200, .body = text};

    w.n_heard++;
    buf_printf(&w.heard, "%.*s ", STR_FMT(text));
    if (w.n_heard == 1)
        w.records_when_heard = n_records("outgoing");
    for (size_t i = 0; i < ARRAY_LEN(w.rules); i++) {
        struct rule *rule = &w.rules[i];
        if (rule->text == NULL || !str_eq(text, str_of(rule->text)) || rule->times == 0)
            continue;
        rule->times--;
        a.status = rule->status;
    }
    if (a.status == 0)
        w.held[w.n_held++] = http_req_id(r);
    else
        http_answer(w.server, http_req_id(r), &a);
}

/* ---- the adapter ---- */

static void note_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                       struct sender_verdict *v)
{
    struct note *n = container_of(o, struct note, out);

    if (!w.token) {
        v->end = SENDER_HOLD;
        return;
    }
    buf_add_z(&q->url, w.url);
    buf_add_z(&q->body, n->parts[o->at]);
    q->headers[0] = "Content-Type: text/plain";
    q->once = n->once;
    q->timeout_ms = n->timeout_ms;
    v->end = SENDER_GO;
}

static void note_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                      struct sender_verdict *v)
{
    struct note *n = container_of(o, struct note, out);

    snprintf(v->why, sizeof v->why, "it answers %d", res->status);
    switch (res->status) {
    case 200:
        v->end = SENDER_DONE;
        snprintf(v->message_id, sizeof v->message_id, "id of %s", n->parts[o->at]);
        break;
    case 429:
        v->end = SENDER_AGAIN;
        v->wait_ms = 50;
        break;
    case 430:
        v->end = SENDER_AGAIN;
        v->wait_ms = 60000;
        break;
    case 300:
        v->end = SENDER_REWRITE;
        n->parts[o->at] = "elsewhere";
        break;
    case 400:
        v->end = SENDER_REFUSED;
        break;
    case 420:
        v->end = SENDER_FAILED;
        break;
    case 499:
        v->end = SENDER_REFUSED; /* in words that would make the client send it again */
        snprintf(v->why, sizeof v->why, "no Network today");
        break;
    default:
        break;
    }
}

static void note_told(struct platform *p, struct outgoing *o, const struct sender_verdict *v)
{
    w.n_told++;
    w.told = v->end;
    snprintf(w.told_why, sizeof w.told_why, "%s", v->why);
}

static void note_free(struct outgoing *o)
{
    w.n_freed++;
    free(container_of(o, struct note, out));
}

static const struct sender_ops note_ops = {note_write, note_read, note_told, note_free};
static const struct platform_ops platform_ops = {.name = "notes"};

/* ---- what a test says ---- */

static void open_sender(void)
{
    char why[256];

    w.base = (struct platform){.ops = &platform_ops, .bot = "me"};
    assert_int_equal(sender_new(&w.base, "Notes", &note_ops, &w.sender, why), BH_OK);
}

static void open_store(const char *name)
{
    char path[128], why[256];

    snprintf(path, sizeof path, "%s/%s", w.dir, name);
    assert_int_equal(store_sqlite_open(w.loop, path, &w.store, why), BH_OK);
    w.env.store = w.store;
}

static void close_all(void)
{
    sender_free(w.sender);
    w.sender = NULL;
    store_close(w.store);
    w.store = NULL;
}

static void reopen(void)
{
    close_all();
    open_store("db");
    open_sender();
}

static int setup(void **state)
{
    char why[256];

    memset(&w, 0, sizeof w);
    snprintf(w.dir, sizeof w.dir, "/tmp/bellhop-sender-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    w.loop = loop_new();
    w.clock = loop_clock(w.loop);
    w.rand = rand_seeded(7);
    w.server = http_server_new(w.loop, NULL, serve, NULL);
    assert_int_equal(http_server_listen(w.server, STR("127.0.0.1:0"), NULL, 0, why), BH_OK);
    snprintf(w.url, sizeof w.url, "http://127.0.0.1:%d/", http_server_port(w.server));
    w.env = (struct host_env){.loop = w.loop,
                              .clock = w.clock,
                              .rand = &w.rand,
                              .http = http_client_new(w.loop)};
    w.token = true;
    open_store("db");
    open_sender();
    return 0;
}

static int teardown(void **state)
{
    char command[96];

    close_all();
    http_client_free(w.env.http);
    http_server_free(w.server);
    loop_free(w.loop);
    buf_done(&w.heard);
    buf_done(&w.cut_off);
    for (size_t i = 0; i < MAX; i++) {
        buf_done(&w.results[i].id);
        buf_done(&w.results[i].error);
    }
    snprintf(command, sizeof command, "rm -r %s", w.dir);
    return system(command);
}

#define PATIENCE_MS 20000
#define wait_for(what) \
    do { \
        for (int64_t end_ = test_now_ms() + PATIENCE_MS; !(what) && test_now_ms() < end_;) \
            loop_turn(w.loop, 20); \
        assert_true(what); \
    } while (0)

static void pass(int64_t ms)
{
    for (int64_t end = test_now_ms() + ms; test_now_ms() < end;)
        loop_turn(w.loop, 5);
}

static struct note *note_new(const char *lane, const char *text)
{
    struct note *n = xcalloc(1, sizeof *n);

    snprintf(n->lane, sizeof n->lane, "%s", lane);
    n->parts[0] = text;
    n->out.n_parts = 1;
    n->once = true;
    return n;
}

static void act(uint32_t index, struct note *n, int64_t deadline_ms)
{
    char request[16];
    struct action_from from = {STR("acme"), STR("bot1"), STR_NULL};
    struct action a = {.op = ACTION_SEND,
                       .chat_id = str_of(n->lane),
                       .message_id = STR("m"),
                       .deadline_ms = deadline_ms};

    snprintf(request, sizeof request, "r%u", index);
    from.request_id = str_of(request);
    sender_act(w.sender, &n->out,
               &(struct sender_order){.id = {.index = index},
                                      .from = &from,
                                      .action = &a,
                                      .what = str_of(n->parts[0])});
}

static void say(uint32_t index, const char *lane, const char *text)
{
    act(index, note_new(lane, text), 0);
}

static void when(size_t i, const char *text, int status, int times)
{
    w.rules[i] = (struct rule){text, status, times};
}

static bool error_is(uint32_t index, const char *start)
{
    return !w.results[index].success && str_starts(buf_str(&w.results[index].error), str_of(start));
}

static void answer_held(size_t i, int status)
{
    http_answer(w.server, w.held[i], &(struct http_answer){.status = status});
}

/* ---- lanes ---- */

static void what_is_said_in_one_chat_leaves_one_after_the_other(void **state)
{
    when(0, "one", 0, 1);
    say(0, "a", "one");
    say(1, "a", "two");
    assert_int_equal(w.n_heard, 0); /* never inside the call */
    wait_for(w.n_held == 1);
    say(2, "b", "other");
    wait_for(w.results[2].success);
    assert_string_equal(buf_z(&w.heard), "one other ");
    answer_held(0, 200);
    wait_for(w.results[1].success);
    assert_string_equal(buf_z(&w.heard), "one other two ");
    assert_str(buf_str(&w.results[0].id), "id of one");
    assert_int_equal(w.results[0].n + w.results[1].n + w.results[2].n, 3);
}

static void what_is_put_off_keeps_its_place(void **state)
{
    when(0, "one", 429, 2);
    say(0, "a", "one");
    say(1, "a", "two");
    wait_for(w.results[1].success);
    assert_true(w.results[0].success);
    assert_string_equal(buf_z(&w.heard), "one one one two ");
}

static void a_wait_longer_than_patience_ends_it_and_those_behind_it_at_once(void **state)
{
    int64_t began = test_now_ms();

    when(0, "one", 430, 1);
    say(0, "a", "one");
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "network trouble: it answers 430"));
    say(1, "a", "two");
    wait_for(w.n_results == 2);
    assert_true(error_is(1, "network trouble: Notes asks to wait too long here"));
    assert_string_equal(buf_z(&w.heard), "one ");
    assert_true(test_now_ms() - began < 15000);
}

static void a_full_lane_says_so_later(void **state)
{
    when(0, "x", 0, 100);
    say(0, "a", "x");
    wait_for(w.n_held == 1);
    for (int i = 0; i < 64; i++) /* tenants have room of their own */
        sender_ask(w.sender, &note_new("a", "q")->out, STR("a"), 5000);
    sender_ask(w.sender, &note_new("a", "q")->out, STR("a"), 5000);
    assert_int_equal(w.n_told, 0);
    wait_for(w.n_told == 1);
    assert_int_equal(w.told, SENDER_FAILED);
    assert_string_equal(w.told_why, "too many messages are waiting already");
}

static void a_pause_holds_everything(void **state)
{
    int64_t began = clock_now_ms(w.clock);

    sender_pause(w.sender, 300);
    say(0, "a", "one");
    wait_for(w.results[0].success);
    assert_true(clock_now_ms(w.clock) - began >= 300);
}

/* ---- parts ---- */

static struct note *three_parts(const char *lane)
{
    struct note *n = note_new(lane, "p1");

    n->parts[1] = "p2";
    n->parts[2] = "p3";
    n->out.n_parts = 3;
    return n;
}

static void parts_leave_in_order_and_the_first_names_them(void **state)
{
    when(0, "p2", 429, 1);
    act(0, three_parts("a"), 0);
    say(1, "a", "behind");
    wait_for(w.results[1].success);
    assert_string_equal(buf_z(&w.heard), "p1 p2 p2 p3 behind ");
    assert_str(buf_str(&w.results[0].id), "id of p1");
}

static void a_failure_behind_a_delivered_part_is_unknown(void **state)
{
    when(0, "p2", 400, 9);
    act(0, three_parts("a"), 0);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "timed out: only 1 of 3 parts were delivered: it answers 400"));
    when(0, "p2", 430, 9);
    act(1, three_parts("b"), 0);
    wait_for(w.n_results == 2);
    assert_true(error_is(1, "timed out: only 1 of 3 parts were delivered: it answers 430"));
}

static void nothing_to_say_is_refused(void **state)
{
    struct note *n = note_new("a", "");

    n->out.n_parts = 0;
    act(0, n, 0);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "there is nothing to send"));
    assert_int_equal(w.n_freed, 1);
}

static void more_than_sixteen_parts_are_refused_whole(void **state)
{
    struct note *n = note_new("a", "the first of many");

    n->out.n_parts = SENDER_MAX_PARTS + 1;
    act(0, n, 0);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "the text is too long: it would be more than 16 messages"));
    pass(50);
    assert_int_equal(w.n_heard, 0);
    assert_int_equal(w.n_freed, 1);
}

/* ---- what answers mean ---- */

static void endings_have_the_words_the_gateway_acts_on(void **state)
{
    when(0, "no", 400, 1);
    when(1, "later", 420, 1);
    when(2, "broken", 500, 1);
    say(0, "a", "no");
    say(1, "b", "later");
    say(2, "c", "broken");
    wait_for(w.n_results == 3);
    assert_str(buf_str(&w.results[0].error), "it answers 400");
    assert_str(buf_str(&w.results[1].error), "network trouble: it answers 420");
    assert_str(buf_str(&w.results[2].error), "timed out: it answers 500");
    when(3, "strange", 499, 1);
    say(3, "d", "strange");
    wait_for(w.n_results == 4);
    assert_str(buf_str(&w.results[3].error), "Notes refused this");
}

static void a_lost_answer_is_unknown_where_twice_is_not_once(void **state)
{
    struct note *n = note_new("a", "one");

    when(0, "one", 0, 1);
    n->timeout_ms = 200;
    act(0, n, 0);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "timed out: Notes did not answer"));
    pass(100);
    assert_string_equal(buf_z(&w.heard), "one ");
}

static void a_lost_answer_is_asked_for_again_where_twice_is_once(void **state)
{
    struct note *n = note_new("a", "one");

    when(0, "one", 0, 1);
    n->timeout_ms = 200;
    n->once = false;
    act(0, n, 0);
    wait_for(w.results[0].success);
    assert_string_equal(buf_z(&w.heard), "one one ");
}

static void a_refusal_after_a_lost_answer_is_unknown(void **state)
{
    struct note *n = note_new("a", "one");

    when(0, "one", 500, 1);
    when(1, "one", 400, 2); /* the later rule wins */
    w.rules[1].times = 0;
    n->once = false;
    act(0, n, 0);
    wait_for(w.n_heard == 1);
    when(1, "one", 400, 9);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "timed out: it answers 400; an earlier try may have been delivered"));
}

static void another_way_is_taken_at_once(void **state)
{
    when(0, "one", 300, 1);
    say(0, "a", "one");
    say(1, "a", "two");
    wait_for(w.results[1].success);
    assert_string_equal(buf_z(&w.heard), "one elsewhere two ");
    when(0, "round", 300, 1);
    when(1, "elsewhere", 300, 99);
    say(2, "a", "round"); /* ways that lead nowhere end */
    wait_for(w.n_results == 3);
    assert_false(w.results[2].success);
}

static void what_cannot_be_written_yet_waits_for_resume(void **state)
{
    w.token = false;
    say(0, "a", "one");
    say(1, "b", "two");
    pass(100);
    assert_int_equal(w.n_heard, 0);
    sender_resume(w.sender, "no token comes");
    assert_true(error_is(0, "network trouble: no token comes"));
    assert_true(error_is(1, "network trouble: no token comes"));
    say(2, "a", "three");
    pass(100);
    sender_resume(w.sender, NULL); /* still none: it is held again */
    w.token = true;
    sender_resume(w.sender, NULL);
    wait_for(w.results[2].success);
    assert_string_equal(buf_z(&w.heard), "three ");
}

/* ---- deadlines ---- */

static void what_cannot_leave_in_time_is_told_before_the_deadline(void **state)
{
    int64_t now = clock_now_ms(w.clock);

    when(0, "one", 0, 1);
    say(0, "a", "one");
    act(1, note_new("a", "two"), now + 3000 + 300);
    wait_for(w.results[1].n == 1);
    assert_true(error_is(1, "network trouble: messages before it took too long"));
    assert_true(clock_now_ms(w.clock) < now + 3000);
    answer_held(0, 200);
    wait_for(w.results[0].success);
    pass(50);
    assert_string_equal(buf_z(&w.heard), "one ");
}

static void a_platform_that_is_away_is_tried_until_the_deadline(void **state)
{
    snprintf(w.url, sizeof w.url, "http://127.0.0.1:1/");
    act(0, note_new("a", "one"), clock_now_ms(w.clock) + 3000 + 1200);
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "network trouble: Notes cannot be reached"));
    struct sender_stats n;
    sender_stats(w.sender, &n);
    assert_true(n.requests >= 2);
}

/* ---- questions, and calling off ---- */

static void questions_are_told_without_a_record(void **state)
{
    sender_ask(w.sender, &note_new("a", "q")->out, STR("a"), 5000);
    wait_for(w.n_told == 1);
    assert_int_equal(w.told, SENDER_DONE);
    assert_int_equal(w.records_when_heard, 0);
    assert_int_equal(w.n_results, 0);
    when(0, "no", 400, 1);
    sender_ask(w.sender, &note_new("a", "no")->out, STR("a"), 5000);
    wait_for(w.n_told == 2);
    assert_int_equal(w.told, SENDER_REFUSED);
}

static void what_was_called_off_never_leaves_and_tells_nobody(void **state)
{
    struct note *waits = note_new("a", "waits"), *runs = note_new("a", "runs");
    struct outgoing *a = &runs->out, *b = &waits->out;

    when(0, "runs", 0, 1);
    sender_ask(w.sender, a, STR("a"), 5000);
    sender_ask(w.sender, b, STR("a"), 5000);
    wait_for(w.n_held == 1);
    sender_cancel(&a);
    sender_cancel(&b);
    assert_true(a == NULL && b == NULL);
    sender_cancel(&a);
    answer_held(0, 200);
    wait_for(w.n_freed == 2);
    assert_string_equal(buf_z(&w.heard), "runs ");
    assert_int_equal(w.n_told, 0);
}

static void the_newer_takes_the_place_of_what_waits(void **state)
{
    struct note *old = note_new("a", "old");
    struct action_from from = {STR("acme"), STR("bot1"), STR("r9")};
    struct action a = {.op = ACTION_EDIT, .chat_id = STR("a"), .message_id = STR("m7")};

    when(0, "one", 0, 1);
    say(0, "a", "one");
    act(1, old, 0);
    wait_for(w.n_held == 1);
    assert_true(outgoing_waits(&old->out));
    old->parts[0] = "new";
    sender_supersede(&old->out,
                     &(struct sender_order){.id = {.index = 2}, .from = &from, .action = &a});
    assert_true(w.results[1].success);
    assert_str(buf_str(&w.results[1].id), "m7");
    answer_held(0, 200);
    wait_for(w.results[2].success);
    assert_string_equal(buf_z(&w.heard), "one new ");
}

/* ---- the record ---- */

static void the_record_is_on_disk_before_anything_leaves_and_goes_with_the_answer(void **state)
{
    say(0, "a", "one");
    wait_for(w.results[0].success);
    assert_int_equal(w.records_when_heard, 1);
    wait_for(n_records("outgoing") == 0);
}

static void typing_and_lookups_leave_no_record(void **state)
{
    struct action_from from = {STR("acme"), STR("bot1"), STR("r")};
    const enum action_op ops[] = {ACTION_TYPING, ACTION_GET_CHAT_INFO};

    for (uint32_t i = 0; i < ARRAY_LEN(ops); i++) {
        struct action a = {.op = ops[i], .chat_id = STR("a")};
        w.n_heard = 0;
        sender_act(w.sender, &note_new("a", "one")->out,
                   &(struct sender_order){.id = {.index = i}, .from = &from, .action = &a});
        wait_for(w.results[i].success);
        assert_int_equal(w.records_when_heard, 0);
    }
}

static void a_send_costs_two_store_operations(void **state)
{
    struct store_stats before, after;

    w.store->ops->stats(w.store, &before);
    act(0, three_parts("a"), 0);
    wait_for(w.results[0].success);
    pass(50);
    w.store->ops->stats(w.store, &after);
    assert_int_equal(after.ops - before.ops, 2);
    assert_int_equal(w.n_heard, 3);
}

static void copy_file(const char *from, const char *to)
{
    char command[256];

    snprintf(command, sizeof command, "cd %s && cp %s %s", w.dir, from, to);
    assert_int_equal(system(command), 0);
}

/* The disk as a crash would leave it: a copy taken while the request is under way. */
static void what_a_crash_cut_off_is_reported_and_not_done_blindly(void **state)
{
    when(0, "maybe", 0, 1);
    say(3, "a", "maybe");
    wait_for(w.n_held == 1);
    copy_file("db", "crashed");
    copy_file("db-wal", "crashed-wal");
    answer_held(0, 200);
    wait_for(w.results[3].success);
    close_all();
    open_store("crashed");
    open_sender();
    assert_string_equal(
        buf_z(&w.cut_off),
        "acme/bot1/r3 timed out: bellhop restarted while this was being sent; it may have "
        "been delivered\n");
    struct sender_stats n;
    sender_stats(w.sender, &n);
    assert_int_equal(n.cut_off, 1);
    say(4, "a", "maybe");
    say(5, "a", "another");
    wait_for(w.results[4].n == 1 && w.results[5].n == 1);
    assert_true(error_is(4, "timed out: "));
    assert_true(w.results[5].success);
    say(6, "a", "maybe");
    wait_for(w.results[6].success);
    assert_string_equal(buf_z(&w.heard), "maybe another maybe ");
    wait_for(n_records("outgoing") == 0);
}

static void what_was_found_is_found_again_until_it_is_forgotten(void **state)
{
    when(0, "maybe", 0, 1);
    say(0, "a", "maybe");
    wait_for(w.n_held == 1);
    reopen();
    buf_reset(&w.cut_off);
    reopen(); /* nobody asked for it again in between */
    assert_true(str_starts(buf_str(&w.cut_off), STR("acme/bot1/r0 timed out: ")));
    say(1, "a", "maybe");
    wait_for(w.results[1].n == 1);
    assert_true(error_is(1, "timed out: "));
}

static void stopping_tells_what_left_from_what_did_not(void **state)
{
    when(0, "left", 0, 1);
    say(0, "a", "left");
    say(1, "a", "waits");
    wait_for(w.n_held == 1);
    reopen();
    assert_true(error_is(0, "timed out: bellhop was stopped"));
    assert_true(error_is(1, "network trouble: bellhop is stopping"));
    assert_true(
        str_contains(buf_str(&w.cut_off),
                     STR("acme/bot1/r1 network trouble: bellhop was restarted before this")));
    say(2, "a", "waits"); /* it never left, so it may */
    wait_for(w.results[2].success);
    assert_string_equal(buf_z(&w.heard), "left waits ");
}

static void records_of_older_databases_count_once(void **state)
{
    struct hash128 h = hash128(&w.store->dedup_key, STR("maybe"));
    char key[96];

    snprintf(key, sizeof key, "notes\x1fme\x1f%016llx%016llx-1-1", (unsigned long long)h.hi,
             (unsigned long long)h.lo);
    store_put(
        w.store,
        &(struct store_kv){.verb = KV_PUT, .ns = "intent", .key = str_of(key), .value = STR("1")},
        1, true, NULL, NULL);
    reopen();
    say(0, "a", "maybe");
    wait_for(w.results[0].n == 1);
    assert_true(error_is(0, "timed out: "));
    wait_for(n_records("intent") == 0);
    say(1, "a", "maybe");
    wait_for(w.results[1].success);
}

static void records_of_another_bot_are_left_alone(void **state)
{
    store_put(w.store,
              &(struct store_kv){.verb = KV_PUT,
                                 .ns = "outgoing",
                                 .key = STR("notes\x1fother\x1f"
                                            "0000010000000001"),
                                 .value = STR("{\"tenant\":\"t\",\"instance\":\"i\"}")},
              1, true, NULL, NULL);
    reopen();
    assert_int_equal(w.cut_off.n, 0);
    assert_int_equal(n_records("outgoing"), 1);
}

static void ignore_found(void *ctx, const struct outgoing_entry *e)
{
}

static void what_was_found_is_forgotten_after_a_minute(void **state)
{
    struct clock *clock = clock_new();
    struct store *store = store_memory_new(clock);
    struct outgoing_record left = {0}, *rec = &left;
    struct outgoing_log *log;
    char why[256];
    int n = 0;

    clock_set(clock, 1000, 1000);
    assert_int_equal(outgoing_log_open(store, clock, "p", "b", ignore_found, NULL, &log, why),
                     BH_OK);
    outgoing_log_begin(log, rec, &(struct outgoing_entry){.what = STR("x")}, NULL);
    outgoing_log_leave(rec);
    outgoing_log_close(log);
    clock_turn(clock);
    assert_int_equal(outgoing_log_open(store, clock, "p", "b", ignore_found, NULL, &log, why),
                     BH_OK);
    assert_int_equal(outgoing_log_found(log), 1);
    clock_set(clock, 61001, 61001);
    clock_turn(clock);
    clock_turn(clock);
    assert_false(outgoing_log_was_cut_off(log, STR("x")));
    assert_int_equal(store->ops->load_records(store, "outgoing", count_record, &n), BH_OK);
    assert_int_equal(n, 0);
    outgoing_log_close(log);
    store_close(store);
    clock_free(clock);
}

static void broken_submit(struct store *st, struct store_op *op, bool urgent);
static struct store_op *failing;

static void fail_op(void *ctx)
{
    struct store_op *op = failing;

    failing = NULL;
    op->done(op, BH_UNAVAILABLE);
}

static void broken_submit(struct store *st, struct store_op *op, bool urgent)
{
    assert_null(failing);
    failing = op;
    clock_defer(w.clock, fail_op, NULL);
}

static void nothing_leaves_that_cannot_be_recorded(void **state)
{
    const struct store_ops *whole = w.store->ops;
    struct store_ops broken = *whole;

    broken.submit = broken_submit;
    w.store->ops = &broken;
    say(0, "a", "one");
    pass(0);
    loop_turn(w.loop, 5);
    w.store->ops = whole;
    wait_for(w.n_results == 1);
    assert_true(error_is(0, "network trouble: bellhop's store cannot be written"));
    assert_int_equal(w.n_heard, 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(what_is_said_in_one_chat_leaves_one_after_the_other),
        T(what_is_put_off_keeps_its_place),
        T(a_wait_longer_than_patience_ends_it_and_those_behind_it_at_once),
        T(a_full_lane_says_so_later),
        T(a_pause_holds_everything),
        T(parts_leave_in_order_and_the_first_names_them),
        T(a_failure_behind_a_delivered_part_is_unknown),
        T(nothing_to_say_is_refused),
        T(more_than_sixteen_parts_are_refused_whole),
        T(endings_have_the_words_the_gateway_acts_on),
        T(a_lost_answer_is_unknown_where_twice_is_not_once),
        T(a_lost_answer_is_asked_for_again_where_twice_is_once),
        T(a_refusal_after_a_lost_answer_is_unknown),
        T(another_way_is_taken_at_once),
        T(what_cannot_be_written_yet_waits_for_resume),
        T(what_cannot_leave_in_time_is_told_before_the_deadline),
        T(a_platform_that_is_away_is_tried_until_the_deadline),
        T(questions_are_told_without_a_record),
        T(what_was_called_off_never_leaves_and_tells_nobody),
        T(the_newer_takes_the_place_of_what_waits),
        T(the_record_is_on_disk_before_anything_leaves_and_goes_with_the_answer),
        T(typing_and_lookups_leave_no_record),
        T(a_send_costs_two_store_operations),
        T(what_a_crash_cut_off_is_reported_and_not_done_blindly),
        T(what_was_found_is_found_again_until_it_is_forgotten),
        T(stopping_tells_what_left_from_what_did_not),
        T(records_of_older_databases_count_once),
        cmocka_unit_test(what_was_found_is_forgotten_after_a_minute),
        T(records_of_another_bot_are_left_alone),
        T(nothing_leaves_that_cannot_be_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
