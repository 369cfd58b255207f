/* Promises of net/redis_hop.h, on a real server.  The test knows the key, and plays the other
 * end of a line by hand: it writes each entry itself. */
#include "unit.h"
#include "base/mem.h"
#include "net/batch.h"
#include "net/hop_entry.h"
#include "net/loop.h"
#include "net/redis_client.h"
#include "net/redis_hop.h"
#include "net/redis_server.h"
#include "net/trunk.h"

static struct loop *loop;
static uint8_t trunk_key[TRUNK_KEY_BYTES] = {5}, key[SEAL_KEY_BYTES];
static struct redis_hop *north, *south;
static struct redis_client *hand;
static struct resp reply; /* of the hand's last command */
static struct buf reply_bytes;
static int replies;

struct end {
    struct hop_line *line;
    struct buf got;
    int opened, closed;
    char why[256];
};
static struct end at_north, at_south;
static bool refuses;

static void on_open(void *ctx)
{
    ((struct end *)ctx)->opened++;
}

static void on_data(void *ctx, struct str bytes)
{
    buf_add_str(&((struct end *)ctx)->got, bytes);
}

static void on_closed(void *ctx, const char *why)
{
    struct end *e = ctx;

    e->closed++;
    e->line = NULL;
    snprintf(e->why, sizeof e->why, "%s", why);
}

static const struct tcp_client_handlers handlers = {on_open, on_data, on_closed};

static bool on_accept(void *ctx, struct hop_line *line)
{
    if (refuses)
        return false;
    at_north.line = line;
    at_north.opened++;
    hop_line_take(line, &handlers, &at_north);
    return true;
}

static void wait_for(const int *what)
{
    for (int i = 0; i < 3000 && *what == 0; i++)
        loop_turn(loop, 10);
    assert_true(*what > 0);
}

/* ---- by hand ---- */

static void on_hand_up(void *ctx)
{
}
static void on_hand_down(void *ctx)
{
}

static void on_hand_reply(void *ctx, const struct resp *r)
{
    replies++;
    buf_reset(&reply_bytes);
    buf_add_str(&reply_bytes, r->kind == RESP_ARRAY && r->n_items > 0 ? r->items[0] : r->text);
    reply = *r;
}

static void say(const struct str *words, size_t n)
{
    replies = 0;
    redis_client_send(hand, words, n);
    wait_for(&replies);
    assert_int_not_equal(reply.kind, RESP_ERROR);
}
#define SAY(...) \
    say((const struct str[]){__VA_ARGS__}, \
        sizeof((const struct str[]){__VA_ARGS__}) / sizeof(struct str))

static void wait_up(const struct redis_client *c)
{
    for (int i = 0; i < 3000 && !redis_client_is_up(c); i++)
        loop_turn(loop, 10);
    assert_true(redis_client_is_up(c));
}

/* ---- life ---- */

static struct redis_hop *open_hop(const char *url, const char *name)
{
    char why[256] = "";
    struct redis_hop *h = redis_hop_open(loop,
                                         &(struct redis_hop_options){.url = url,
                                                                     .key = trunk_key,
                                                                     .name = name,
                                                                     .protocol = "words-1"},
                                         why);
    if (h == NULL)
        fail_msg("%s", why);
    return h;
}

static bool has_inbox(const char *name)
{
    char inbox[HOP_INBOX_BYTES];

    hop_inbox(key, str_of(name), inbox);
    SAY(STR("EXISTS"), str_of(inbox));
    return str_eq(buf_str(&reply_bytes), STR("1"));
}

static void wait_inbox(const char *name)
{
    for (int i = 0; i < 3000 && !has_inbox(name); i++)
        loop_turn(loop, 10);
    assert_true(has_inbox(name));
}

static int setup(void **state)
{
    static const struct redis_client_handlers by_hand = {on_hand_up, on_hand_down, on_hand_reply};
    char why[256];

    loop = loop_new();
    hop_key(trunk_key, key);
    refuses = false;
    hand = redis_client_open(loop, &(struct redis_client_options){.url = redis_url, .name = "hand"},
                             &by_hand, NULL, why);
    wait_up(hand);
    north = open_hop(redis_url, "north/1");
    south = open_hop(redis_url, "south/2");
    redis_hop_listen(north, on_accept, NULL);
    wait_inbox("north/1");
    wait_inbox("south/2");
    return 0;
}

static int teardown(void **state)
{
    hop_line_free(at_north.line);
    hop_line_free(at_south.line);
    redis_hop_close(north);
    redis_hop_close(south);
    redis_client_close(hand);
    loop_turn(loop, 0);
    loop_free(loop);
    buf_done(&at_north.got);
    buf_done(&at_south.got);
    buf_done(&reply_bytes);
    at_north = at_south = (struct end){0};
    return 0;
}

static void connect_both(void)
{
    at_south.line = hop_line_open(south, "north/1", &handlers, &at_south);
    wait_for(&at_south.opened);
    wait_for(&at_north.opened);
}

/* As a trunk does: a HELLO that was swept away with the inbox is said again. */
static void redial(void)
{
    at_south.opened = 0;
    for (int i = 0; i < 3000 && at_south.opened == 0; i++) {
        if (i % 100 == 99) {
            hop_line_free(at_south.line);
            at_south.line = NULL;
        }
        if (at_south.line == NULL)
            at_south.line = hop_line_open(south, "north/1", &handlers, &at_south);
        loop_turn(loop, 10);
        usleep(1000);
    }
    assert_int_equal(at_south.opened, 1);
    at_south.closed = 0;
}

static void wait_got(struct end *e, const char *what)
{
    for (int i = 0; i < 3000 && !str_eq(buf_str(&e->got), str_of(what)) && e->closed == 0; i++)
        loop_turn(loop, 10);
    assert_string_equal(buf_z(&e->got), what);
}

/* ---- two ends ---- */

static void bytes_pass_in_order_in_both_directions(void **state)
{
    connect_both();
    hop_line_send(at_north.line, STR("one "));
    hop_line_send(at_north.line, STR("two "));
    hop_line_send(at_south.line, STR("three"));
    wait_got(&at_south, "one two ");
    wait_got(&at_north, "three");
}

static void what_was_taken_is_gone_from_redis_and_the_writer_knows(void **state)
{
    struct buf big = BUF_INIT;
    char inbox[HOP_INBOX_BYTES];

    connect_both();
    for (int i = 0; i < 1 << 20; i++)
        buf_add_c(&big, (char)('a' + i % 26));
    for (int i = 0; i < 4; i++)
        hop_line_send(at_south.line, buf_str(&big));
    assert_int_equal(hop_line_unsent(at_south.line), 4 << 20);
    for (int i = 0; i < 3000 && hop_line_unsent(at_south.line) > 0; i++)
        loop_turn(loop, 10);
    assert_int_equal(hop_line_unsent(at_south.line), 0);
    assert_int_equal(at_north.got.n, 4 << 20);
    hop_inbox(key, STR("north/1"), inbox);
    do
        SAY(STR("XLEN"), str_of(inbox));
    while (!str_eq(buf_str(&reply_bytes), STR("0")));
    SAY(STR("TTL"), str_of(inbox));
    assert_true(reply_bytes.n > 0 && *reply_bytes.p != '-'); /* it goes when nobody reads it */
    buf_done(&big);
}

static void an_end_that_goes_tells_the_other(void **state)
{
    connect_both();
    hop_line_send(at_south.line, STR("bye"));
    hop_line_free(at_south.line);
    at_south.line = NULL;
    wait_for(&at_north.closed);
    assert_string_equal(buf_z(&at_north.got), "bye");
    assert_non_null(strstr(at_north.why, "closed"));
}

static void who_is_refused_hears_why(void **state)
{
    refuses = true;
    at_south.line = hop_line_open(south, "north/1", &handlers, &at_south);
    wait_for(&at_south.closed);
    assert_non_null(strstr(at_south.why, "takes no trunks"));
    assert_int_equal(at_south.opened, 0);
}

static void a_node_that_reads_nothing_is_named(void **state)
{
    at_south.line = hop_line_open(south, "west/9", &handlers, &at_south);
    wait_for(&at_south.closed);
    assert_non_null(strstr(at_south.why, "redis.url"));
    assert_false(has_inbox("west/9"));
}

static void a_lost_connection_cuts_both_ends_and_the_next_line_works(void **state)
{
    connect_both();
    hop_line_send(at_south.line, STR("before"));
    wait_got(&at_north, "before");
    SAY(STR("CLIENT"), STR("KILL"), STR("TYPE"), STR("normal"), STR("SKIPME"), STR("yes"));
    wait_for(&at_south.closed);
    wait_for(&at_north.closed);
    redial();
    at_north.closed = 0;
    hop_line_send(at_south.line, STR(" after"));
    wait_got(&at_north, "before after");
}

static void what_redis_refuses_is_a_problem_that_an_operator_is_told(void **state)
{
    connect_both();
    SAY(STR("CONFIG"), STR("SET"), STR("maxmemory"), STR("1"));
    hop_line_send(at_south.line, STR("x"));
    wait_for(&at_south.closed);
    assert_non_null(strstr(at_south.why, "OOM"));
    assert_non_null(strstr(redis_hop_state(south).problem, "raise maxmemory"));
    SAY(STR("CONFIG"), STR("SET"), STR("maxmemory"), STR("0"));
    assert_non_null(strchr(redis_hop_state(south).at, ':'));
    assert_null(strstr(redis_hop_state(south).at, "s3cret"));
}

static void a_wrong_password_is_named_and_not_shown(void **state)
{
    char url[128];

    snprintf(url, sizeof url, "redis://:guess@127.0.0.1:%d", redis_port);
    struct redis_hop *h = open_hop(url, "east/1");
    for (int i = 0; i < 3000 && strstr(redis_hop_state(h).problem, "WRONGPASS") == NULL; i++)
        loop_turn(loop, 10);
    assert_non_null(strstr(redis_hop_state(h).problem, "password in redis.url is wrong"));
    assert_null(strstr(redis_hop_state(h).problem, "guess"));
    redis_hop_close(h);
}

/* ---- one end by hand ---- */

static const struct str line = STR("0123456789abcdef");
static uint8_t salt[HOP_SALT_BYTES];

static void add(struct str entry)
{
    char inbox[HOP_INBOX_BYTES];

    hop_inbox(key, STR("north/1"), inbox);
    SAY(STR("XADD"), str_of(inbox), STR("*"), STR("e"), entry);
}

static struct buf make(const uint8_t *with, const uint8_t *at, enum hop_kind kind, uint64_t number,
                       const char *bytes)
{
    struct hop_bound b = {.key = with, .salt = at, .line = line, .to = STR("north/1")};
    struct buf plain = BUF_INIT, out = BUF_INIT;
    char taken[8];

    put_u64(taken, 0);
    if (kind == HOP_DATA)
        buf_add(&plain, taken, sizeof taken);
    buf_add_z(&plain, bytes);
    hop_entry_add(&out, &b, kind, number, buf_str(&plain));
    buf_done(&plain);
    return out;
}

static void give(const uint8_t *with, const uint8_t *at, enum hop_kind kind, uint64_t number,
                 const char *bytes)
{
    struct buf out = make(with, at, kind, number, bytes);

    add(buf_str(&out));
    buf_done(&out);
}

/* HELLO as "hand/3", and the salt of the answer. */
static void greet_by_hand(void)
{
    static const uint8_t none[HOP_SALT_BYTES];
    char inbox[HOP_INBOX_BYTES];
    struct buf plain = BUF_INIT;
    struct hop_bound b = {.key = key, .salt = none, .line = line, .to = STR("hand/3")};
    struct resp stream, entries, entry, fields;
    struct hop_entry e;

    hop_inbox(key, STR("hand/3"), inbox);
    SAY(STR("DEL"), str_of(inbox));
    SAY(STR("XGROUP"), STR("CREATE"), str_of(inbox), STR("r"), STR("$"), STR("MKSTREAM"));
    give(key, none, HOP_HELLO, 0, "words-1 hand/3");
    wait_for(&at_north.opened);
    do
        SAY(STR("XREAD"), STR("STREAMS"), str_of(inbox), STR("0"));
    while (reply.n_items == 0);
    assert_true(resp_read(buf_str(&reply_bytes), &stream) > 0);
    assert_true(resp_read(stream.items[1], &entries) > 0);
    assert_true(resp_read(entries.items[0], &entry) > 0);
    assert_true(resp_read(entry.items[1], &fields) > 0);
    assert_true(hop_entry_read(fields.items[1], &e));
    assert_int_equal(e.kind, HOP_ACCEPT);
    assert_true(hop_entry_open(&e, &b, &plain));
    assert_int_equal(plain.n, sizeof salt);
    memcpy(salt, plain.p, sizeof salt);
    buf_done(&plain);
    give(key, salt, HOP_DATA, 1, "first ");
    give(key, salt, HOP_DATA, 2, "second");
    wait_got(&at_north, "first second");
}

static void expect_cut(const char *why)
{
    wait_for(&at_north.closed);
    assert_string_equal(buf_z(&at_north.got), "first second");
    if (strstr(at_north.why, why) == NULL)
        fail_msg("%s", at_north.why);
}

static void a_gap_cuts_the_line(void **state)
{
    greet_by_hand();
    give(key, salt, HOP_DATA, 4, "fourth");
    expect_cut("lost");
}

static void an_entry_that_comes_again_cuts_the_line(void **state)
{
    greet_by_hand();
    give(key, salt, HOP_DATA, 2, "second");
    expect_cut("twice");
}

static void a_forged_entry_cuts_the_line(void **state)
{
    static const uint8_t other[SEAL_KEY_BYTES] = {9};

    greet_by_hand();
    give(other, salt, HOP_DATA, 3, "third");
    expect_cut("forged");
}

static void an_entry_of_an_earlier_line_of_that_name_cuts_the_line(void **state)
{
    struct buf old;

    greet_by_hand();
    old = make(key, salt, HOP_DATA, 3, "third");
    give(key, salt, HOP_END, 3, "");
    expect_cut("closed");
    buf_reset(&at_north.got);
    at_north.closed = at_north.opened = 0;
    greet_by_hand(); /* the same line, as a stranger would repeat it, has another salt */
    add(buf_str(&old));
    expect_cut("forged");
    buf_done(&old);
}

static void what_a_stranger_writes_is_ignored(void **state)
{
    static const uint8_t other[SEAL_KEY_BYTES] = {9}, none[HOP_SALT_BYTES];
    char inbox[HOP_INBOX_BYTES];

    greet_by_hand();
    hop_inbox(key, STR("north/1"), inbox);
    SAY(STR("XADD"), str_of(inbox), STR("*"), STR("x"), STR("y"), STR("z"), STR("z"));
    add(STR("short"));
    add(STR("x23456789012345678901234567890"));
    give(other, none, HOP_HELLO, 0, "words-1 evil/1");
    give(key, none, HOP_HELLO, 0, "words-1 hand/3"); /* of a line that is open */
    give(key, salt, HOP_DATA, 3, "!");
    wait_got(&at_north, "first second!");
    assert_int_equal(at_north.opened, 1);
}

static void another_protocol_is_refused(void **state)
{
    static const uint8_t none[HOP_SALT_BYTES];
    char inbox[HOP_INBOX_BYTES];

    hop_inbox(key, STR("hand/3"), inbox);
    SAY(STR("DEL"), str_of(inbox));
    SAY(STR("XGROUP"), STR("CREATE"), str_of(inbox), STR("r"), STR("$"), STR("MKSTREAM"));
    give(key, none, HOP_HELLO, 0, "words-2 hand/3");
    do
        SAY(STR("XLEN"), str_of(inbox));
    while (!str_eq(buf_str(&reply_bytes), STR("1")));
    assert_int_equal(at_north.opened, 0);
}

static void nonsense_in_the_inbox_is_swept_away(void **state)
{
    char inbox[HOP_INBOX_BYTES];
    struct str words[4 + 2 * 40] = {STR("XADD"), STR_NULL, STR("*")};

    connect_both();
    hop_inbox(key, STR("north/1"), inbox);
    words[1] = str_of(inbox);
    for (size_t i = 3; i < 3 + 2 * 40; i++)
        words[i] = STR("f");
    say(words, 3 + 2 * 40); /* more than the reader takes */
    wait_for(&at_north.closed);
    wait_for(&at_south.closed);
    redial();
    at_north.closed = 0;
    hop_line_send(at_south.line, STR("on"));
    wait_got(&at_north, "on");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
UNIT(net_test_redis_hop)
{
    const struct CMUnitTest tests[] = {
        T(bytes_pass_in_order_in_both_directions),
        T(what_was_taken_is_gone_from_redis_and_the_writer_knows),
        T(an_end_that_goes_tells_the_other),
        T(who_is_refused_hears_why),
        T(a_node_that_reads_nothing_is_named),
        T(a_lost_connection_cuts_both_ends_and_the_next_line_works),
        T(what_redis_refuses_is_a_problem_that_an_operator_is_told),
        T(a_wrong_password_is_named_and_not_shown),
        T(a_gap_cuts_the_line),
        T(an_entry_that_comes_again_cuts_the_line),
        T(a_forged_entry_cuts_the_line),
        T(an_entry_of_an_earlier_line_of_that_name_cuts_the_line),
        T(what_a_stranger_writes_is_ignored),
        T(another_protocol_is_refused),
        T(nonsense_in_the_inbox_is_swept_away),
    };
    return cmocka_run_group_tests(tests, redis_setup, redis_teardown);
}
