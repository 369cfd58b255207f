/* Promises of relay/session/pump.h: window, packing, drains, suspects. */
#include <time.h>

#include "relay/in/inside.h"
#include "relay/mailbox/mailbox.h"

#include "relay/rig.h"
#include "relay/session/pump.h"
#include "relay/session/session.h"
#include "relay/sleep/instance.h"

static void publish_many(const char *key, int from, int n)
{
    char id[16];
    for (int i = from; i < from + n; i++) {
        snprintf(id, sizeof id, "m%d", i);
        offer(key, id);
    }
    turn();
}

/* Every inbound on @f is m<from>, m<from+1>, ... */
static void assert_in_order(const struct fake *f, int from)
{
    struct str rest = buf_str(&f->all), line;
    while (rest.n > 0 && str_split(&rest, '\n', &line)) {
        char part[40];
        if (!str_contains(line, STR(INBOUND)))
            continue;
        snprintf(part, sizeof part, "\"message_id\":\"m%d\"", from++);
        assert_true(str_contains(line, str_of(part)));
    }
}

static void ack_all(struct fake *f, size_t from)
{
    struct buf b = BUF_INIT;
    struct str rest = buf_str(&f->all), line;
    size_t n = 0;
    while (rest.n > 0 && str_split(&rest, '\n', &line))
        if (str_contains(line, STR(INBOUND)) && n++ >= from)
            buf_printf(&b, "{\"type\": \"inbound_ack\", \"bufferId\": \"%.*s\"}\n",
                       STR_FMT(buffer_id(line)));
    session_data(f->s, buf_str(&b));
    buf_done(&b);
    turn();
}

static size_t largest_message(const struct fake *f)
{
    size_t max = 0;
    for (size_t i = 0; i < f->n_messages; i++) {
        size_t n = f->ends[i] - (i > 0 ? f->ends[i - 1] : 0);
        max = n > max ? n : max;
    }
    return max;
}

static void at_most_eight_messages_are_unacked(void **state)
{
    struct fake *f = connect_as("gw-a");
    for (int i = 0; i < 20; i++)
        publish_many("a", i, 1);
    assert_int_equal(f->n_messages, 1 + 8); /* the descriptor */
    ack(f, 0);
    assert_int_equal(f->n_messages, 1 + 9);
    assert_int_equal(inbound(f), 20); /* what had to wait is packed into one */
    assert_in_order(f, 0);
}

static struct fake *connect_late(void)
{
    struct fake *f = dial("gw-a");
    say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\",\"late_acks\":true}");
    return f;
}

/* Redrives one after the other, from the last to the first: they go in their old order. */
static void many_redriven_deliveries_cost_no_square(void **state)
{
    enum { N = 30000 };
    struct relay_limits lim = rig.lim;
    uint64_t *ids = xcalloc(N, sizeof *ids);

    publish_many("a", 0, N);
    lim.max_attempts = 1;
    relay_set_limits(rig.relay, &lim);
    while (look("ann").parked < N)
        hang_up(connect_as("gw-a"), 1006);
    struct fake *f = connect_as("gw-a");
    publish_many("a", N, 1);
    const struct mailbox *mb = &f->s->inst->mb;
    for (uint32_t k = 0; k < N; k++)
        ids[k] = mailbox_at(mb, k)->id;
    clock_t began = clock();
    assert_int_equal(relay_parked_change(rig.relay, STR("acme"), STR("ann"), NULL, 0, false), N);
    for (size_t k = N; k > 0; k--)
        pump_again(f->s->inst, ids[k - 1]); /* they are there already */
    turn();
    assert_int_equal(inbound(f), 8); /* each in a message of its own */
    buf_reset(&f->all);
    ack_all(f, 0);
    hang_up(f, 1006);
    assert_true(clock() - began < CLOCKS_PER_SEC / 2);
    assert_int_equal(look("ann").parked, 8);
    free(ids);
}

static void a_gateway_that_acks_late_has_many_unacked(void **state)
{
    struct fake *f = connect_late();
    for (int i = 0; i < PUMP_LATE_MAX + 20; i++)
        publish_many("a", i, 1);
    assert_int_equal(inbound(f), PUMP_LATE_MAX);
    ack(f, 7);
    assert_int_equal(inbound(f), PUMP_LATE_MAX + 1);
    assert_in_order(f, 0);
}

static void a_backlog_leaves_one_that_acks_late_no_more_unacked(void **state)
{
    publish_many("a", 0, PUMP_LATE_MAX + 300);
    struct fake *f = connect_late();
    assert_int_equal(inbound(f), PUMP_LATE_MAX);
    assert_in_order(f, 0);
}

static void each_ack_makes_room_for_one_that_acks_late(void **state)
{
    publish_many("a", 0, PUMP_LATE_MAX + 300);
    struct fake *f = connect_late();
    ack_all(f, PUMP_LATE_MAX - 20);
    assert_int_equal(inbound(f), PUMP_LATE_MAX + 20);
    assert_in_order(f, 0);
}

static void one_that_is_away_and_then_says_that_it_acks_late_is_sent_more(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish_many("a", 0, 1);
    for (int64_t ms = 0; ms < rig.lim.ack_patience_ms; ms += 1000) {
        advance(1000);
        pong(f);
    }
    assert_string_equal(look("ann").state, "away");
    say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\",\"late_acks\":true}");
    publish_many("a", 1, 1);
    assert_int_equal(inbound(f), 2);
}

static void a_parked_delivery_that_is_dropped_leaves_its_neighbours_in_the_window(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish_many("a", 0, 3);
    assert_int_equal(flight_rows(f->s->flight), 3);
    session_failed(f->s, buffer_id(line_with(f, INBOUND, 1)), STR("no"), true);
    assert_int_equal(flight_rows(f->s->flight), 2);
    assert_int_equal(relay_parked_change(rig.relay, STR("acme"), STR("ann"), NULL, 0, true), 1);
    assert_int_equal(flight_rows(f->s->flight), 2);
}

static void one_that_acks_late_is_sent_two_megabytes_before_its_pong(void **state)
{
    size_t n = 600000;
    char *text = xmalloc(n + 1), id[16];
    memset(text, 'x', n);
    text[n] = '\0';
    struct fake *f = connect_late();
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof id, "m%d", i);
        publish_text("a", id, text);
    }
    assert_int_equal(inbound(f), 4);
    pong(f);
    assert_int_equal(inbound(f), 8);
    pong(f);
    assert_int_equal(inbound(f), 10);
    assert_in_order(f, 0);
    free(text);
}

static void a_suspect_holds_others_back_until_the_pong_of_one_that_acks_late(void **state)
{
    publish_many("a", 0, 1);
    for (int i = 0; i < PUMP_SOLO_ATTEMPTS; i++)
        hang_up(connect_late(), 1006);
    struct fake *f = connect_late();
    publish_many("a", 1, 3);
    assert_int_equal(inbound(f), 1);
    pong(f);
    assert_int_equal(inbound(f), 4);
}

static void one_suspect_after_the_other_waits_for_a_pong_only(void **state)
{
    publish_many("a", 0, 2);
    for (int i = 0; i < PUMP_SOLO_ATTEMPTS; i++)
        hang_up(connect_late(), 1006);
    struct fake *f = connect_late();
    publish_many("a", 2, 1);
    for (size_t n = 1; n <= 3; n++) {
        assert_int_equal(inbound(f), n);
        pong(f);
    }
    assert_in_order(f, 0);
}

static void the_pong_of_a_ping_before_a_suspect_proves_nothing_of_it(void **state)
{
    publish_many("a", 0, 1);
    for (int i = 0; i < PUMP_SOLO_ATTEMPTS; i++)
        hang_up(connect_late(), 1006);
    struct fake *f = dial("gw-a");
    session_ping(f->s);
    say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\",\"late_acks\":true}");
    publish_many("a", 1, 3);
    uint32_t newest = f->s->ping_no;
    session_pong(f->s, newest - 1);
    turn();
    assert_int_equal(inbound(f), 1);
    session_pong(f->s, newest);
    turn();
    assert_int_equal(inbound(f), 4);
}

static void a_backlog_is_packed_into_few_messages_and_drained_in_order(void **state)
{
    publish_many("a", 0, 5000);
    struct fake *f = connect_as("gw-a");
    for (size_t had = 0; inbound(f) < 5000;) {
        size_t now = inbound(f);
        assert_true(now > had);
        ack_all(f, had);
        had = now;
    }
    assert_in_order(f, 0);
    assert_true(largest_message(f) <= 256 << 10);
    assert_true(f->n_messages < 100);
    ack_all(f, 0);
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(rows(), 0);
}

static void events_during_a_drain_go_to_the_tail(void **state)
{
    publish_many("a", 0, 3000);
    struct fake *f = connect_as("gw-a");
    publish_many("a", 3000, 100);
    for (int i = 0; i < 50 && inbound(f) < 3100; i++)
        ack_all(f, 0);
    assert_int_equal(inbound(f), 3100);
    assert_in_order(f, 0);
}

static void a_socket_that_dies_in_a_drain_is_followed_by_exactly_the_unacked_tail(void **state)
{
    publish_many("a", 0, 10);
    struct fake *f = connect_as("gw-a");
    for (size_t i = 0; i < 4; i++)
        ack(f, i);
    hang_up(f, 1006);
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 6);
    assert_in_order(f, 4);
}

static void bodies_of_sleepers_are_not_kept_in_memory(void **state)
{
    publish_many("a", 0, 100);
    size_t before = rig.tap.fetches;
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 100);
    assert_true(rig.tap.fetches > before);
}

static void a_read_the_store_refuses_is_tried_again(void **state)
{
    publish_many("a", 0, 10);
    struct fake *f = dial("gw-a");
    rig.tap.refuse = true;
    hello(f);
    assert_int_equal(inbound(f), 0);
    rig.tap.refuse = false;
    advance(1000);
    assert_int_equal(inbound(f), 10);
}

static void a_frame_over_a_megabyte_is_cut_between_characters(void **state)
{
    size_t n = 3 << 20;
    char *text = xmalloc(n + 1);
    for (size_t i = 0; i < n; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3); /* three bytes each */
    text[n - n % 3] = '\0';
    struct fake *f = connect_as("gw-a");
    publish_text("a", "big", text);
    publish("a", "small");
    assert_true(largest_message(f) <= 1 << 20);
    for (size_t i = 0; i < f->n_messages; i++) {
        size_t start = i > 0 ? f->ends[i - 1] : 0;
        assert_true(utf8_valid(str_make(f->all.p + start, f->ends[i] - start)));
    }
    assert_int_equal(inbound(f), 2);
    ack(f, 0);
    ack(f, 1);
    assert_int_equal(look("ann").entries, 0);
    free(text);
}

static void a_lost_socket_is_one_attempt_for_each_delivery_on_it(void **state)
{
    publish_many("a", 0, 3);
    for (int i = 0; i < 2; i++)
        hang_up(connect_as("gw-a"), 1006);
    assert_int_equal(rig.tap.marks, 6);
}

static void a_suspect_travels_alone(void **state)
{
    publish_many("a", 0, 3);
    for (int i = 0; i < 2; i++)
        hang_up(connect_as("gw-a"), 1006);
    struct fake *f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    ack(f, 0);
    assert_int_equal(inbound(f), 2);
    ack(f, 1);
    ack(f, 2);
    publish_many("a", 3, 5);
    assert_int_equal(inbound(f), 8); /* nobody is suspect any more */
}

static void a_poisonous_delivery_is_parked_and_does_not_drag_others_along(void **state)
{
    publish_many("a", 0, 3);
    for (int i = 0; i < 10; i++)
        hang_up(connect_as("gw-a"), 1006);
    assert_int_equal(look("ann").parked, 1);
    assert_int_equal(relay_counters(rig.relay)->parked, 1);
    struct fake *f = connect_as("gw-a");
    assert_true(is_event(f, 0, "m1"));
    ack(f, 0);
    ack(f, 1);
    assert_int_equal(look("ann").entries, 1);
    restart();
    assert_int_equal(look("ann").parked, 1); /* and it stays parked */
}

static void a_passthrough_is_settled_by_the_pong_behind_it(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("a", "p1");
    relay_take_in(rig.relay, &ev, STR("{\"platform\":\"web\"}"), on_accepted, NULL);
    turn();
    assert_int_equal(count_with(f, "passthrough_forward"), 1);
    assert_int_equal(look("ann").entries, 1);
    pong(f);
    assert_int_equal(look("ann").entries, 0);
}

static void a_passthrough_is_settled_by_its_own_ack_and_by_a_later_one(void **state)
{
    struct fake *f = connect_as("gw-a");
    struct event ev = make_event("a", "p1");
    relay_take_in(rig.relay, &ev, STR("{\"platform\":\"web\"}"), on_accepted, NULL);
    turn();
    ack_line(f, line_with(f, "passthrough_forward", 0));
    assert_int_equal(look("ann").entries, 0);
    ev = make_event("a", "p2");
    relay_take_in(rig.relay, &ev, STR("{\"platform\":\"web\"}"), on_accepted, NULL);
    publish_many("a", 0, 1);
    ack(f, 0);
    assert_int_equal(look("ann").entries, 0);
}

static void a_passthrough_is_not_settled_by_an_older_pong(void **state)
{
    struct fake *f = connect_as("gw-a");
    advance(10000);
    uint32_t older = f->pings;
    struct event ev = make_event("a", "p1");
    relay_take_in(rig.relay, &ev, STR("{\"platform\":\"web\"}"), on_accepted, NULL);
    turn();
    session_pong(f->s, older);
    assert_int_equal(look("ann").entries, 1);
    session_pong(f->s, f->pings + 100); /* a number we never sent */
    assert_int_equal(look("ann").entries, 1);
}

static int setup_settling(void **state)
{
    struct relay_limits lim = relay_limits_default;

    lim.settle_ms = 3000;
    return setup_with(&lim);
}

static void an_older_gateway_that_has_just_dialled_gets_nothing_until_it_has_settled(void **state)
{
    publish("a", "e1"); /* waits for it */
    struct fake *f = connect_as("gw-a");
    publish("a", "e2");
    advance(2900);
    assert_int_equal(inbound(f), 0);
    advance(200);
    assert_int_equal(inbound(f), 2);
    assert_true(is_event(f, 0, "e1"));
    publish("a", "e3");
    assert_int_equal(inbound(f), 3);
    say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"typing\","
           "\"chat_id\":\"c1\"}}"); /* it turns out to be a newer one */
    hang_up(f, 1006);
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 3);
}

static void an_older_hermes_gateway_is_recognized_and_settles_without_a_setting(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    assert_int_equal(inbound(f), 1); /* nothing is known of it: nothing is held back */
    ack(f, 0);
    say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"send\",\"chat_id\":"
           "\"c1\","
           "\"content\":\"x\",\"reply_to\":null,\"metadata\":{\"notify\":true}}}");
    publish("a", "e2");
    assert_int_equal(inbound(f), 1); /* the socket is young */
    advance(3000);
    assert_int_equal(inbound(f), 2);
    ack(f, 1);
    hang_up(f, 1006);
    publish("a", "e3");
    f = connect_as("gw-a");
    advance(2900);
    assert_int_equal(inbound(f), 0);
    advance(200);
    assert_int_equal(inbound(f), 1);
    ack(f, 0);
    say(f, "{\"type\":\"outbound\",\"requestId\":\"r2\",\"action\":{\"op\":\"typing\","
           "\"chat_id\":\"c1\"}}"); /* its operator has updated it */
    hang_up(f, 1006);
    publish("a", "e4");
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
}

static void a_newer_gateway_that_ends_its_turns_is_not_held_back(void **state)
{
    struct fake *f = connect_as("gw-a");
    say(f, "{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{\"op\":\"send\",\"chat_id\":"
           "\"c1\","
           "\"content\":\"x\",\"metadata\":{\"notify\":true,\"user_id\":\"u1\"}}}");
    hang_up(f, 1006);
    publish("a", "e1");
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
}

static int setup_without_acks(void **state)
{
    struct relay_limits lim = relay_limits_default;
    lim.live_acks = false;
    return setup_with(&lim);
}

static void without_live_acks_frames_carry_no_buffer_id_and_are_settled_when_read(void **state)
{
    struct fake *f = connect_as("gw-a");
    publish_many("a", 0, 1);
    assert_null(buffer_id(line_with(f, INBOUND, 0)).p);
    pong(f);
    assert_int_equal(look("ann").entries, 0);
    assert_int_equal(rows(), 0);
}

/* ---- sockets that outlived the process ---- */

struct past {
    struct session_row rows[2];
    char ids[2][32];
    size_t n;
};
static void add_past(void *ctx, const struct store_row *row)
{
    struct past *p = ctx;
    assert_true(p->n < ARRAY_LEN(p->rows));
    p->rows[p->n++].row = row->id;
}
/* e1 and e2 went down a socket, and the process ended before an ack was on disk. */
static struct past past_of_two(void)
{
    struct past p = {0};
    struct fake *f = connect_as("gw-a");
    publish("a", "e1");
    publish("a", "e2");
    for (size_t i = 0; i < 2; i++)
        snprintf(p.ids[i], sizeof p.ids[i], "%.*s", STR_FMT(buffer_id(line_with(f, INBOUND, i))));
    rig.tap.inner->ops->load_rows(rig.tap.inner, add_past, &p);
    assert_int_equal(p.n, 2);
    restart();
    return p;
}
static struct fake *resume(struct past *p, size_t from)
{
    struct fake *f = &rig.fakes[rig.n_fakes++];
    *f = (struct fake){.wire = {&fake_ops}};
    for (size_t i = 0; i < 2; i++)
        p->rows[i].id = str_of(p->ids[i]);
    f->s = session_resume(rig.relay, facts_gateway(rig.facts, STR("gw-a")), &f->wire,
                          &(struct session_past){.personas = STR("web\x1flobby\x1e"),
                                                 .rows = p->rows + from,
                                                 .n_rows = 2 - from,
                                                 .acked = true});
    turn();
    return f;
}

static void a_socket_that_outlived_the_process_acks_late_as_before(void **state)
{
    struct past p = past_of_two();
    struct fake *f = &rig.fakes[rig.n_fakes++];
    *f = (struct fake){.wire = {&fake_ops}};
    f->s = session_resume(rig.relay, facts_gateway(rig.facts, STR("gw-a")), &f->wire,
                          &(struct session_past){.personas = STR("web\x1flobby\x1e"),
                                                 .late_acks = true});
    turn();
    for (int i = 0; i < 20; i++)
        publish_many("a", i, 1);
    assert_int_equal(inbound(f), 2 + 20);
    assert_int_equal(p.n, 2);
}

static void a_socket_that_outlived_the_process_gets_nothing_twice(void **state)
{
    struct past p = past_of_two();
    struct fake *f = resume(&p, 0);
    publish("a", "e3");
    assert_int_equal(f->close_code, 0);
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e3"));
    session_acked(f->s, str_of(p.ids[0]));
    session_acked(f->s, str_of(p.ids[1]));
    ack(f, 0);
    assert_int_equal(look("ann").entries, 0);
}

/* e1 was on so many lost sockets, and then went down one that outlived the process. */
static struct past past_of_a_suspect(int lost)
{
    struct past p = {0};
    publish("a", "e1");
    for (int n = 0; n < lost; n++)
        hang_up(connect_as("gw-a"), 1006);
    struct fake *f = connect_as("gw-a");
    snprintf(p.ids[0], sizeof p.ids[0], "%.*s", STR_FMT(buffer_id(line_with(f, INBOUND, 0))));
    rig.tap.inner->ops->load_rows(rig.tap.inner, add_past, &p);
    restart();
    return p;
}
static struct fake *resume_suspect(struct past *p, bool late)
{
    struct fake *f = &rig.fakes[rig.n_fakes++];
    *f = (struct fake){.wire = {&fake_ops}};
    p->rows[0].id = str_of(p->ids[0]);
    f->s = session_resume(rig.relay, facts_gateway(rig.facts, STR("gw-a")), &f->wire,
                          &(struct session_past){.personas = STR("web\x1flobby\x1e"),
                                                 .rows = p->rows,
                                                 .n_rows = 1,
                                                 .acked = !late,
                                                 .late_acks = late});
    turn();
    return f;
}

static void a_suspect_is_alone_on_a_socket_that_outlived_the_process(void **state)
{
    struct past p = past_of_a_suspect(PUMP_SOLO_ATTEMPTS);
    struct fake *f = resume_suspect(&p, false);
    publish_many("a", 1, 2);
    assert_int_equal(inbound(f), 0);
    session_acked(f->s, str_of(p.ids[0]));
    turn();
    assert_int_equal(inbound(f), 2);
}

static void a_suspect_is_alone_there_until_the_pong_of_one_that_acks_late(void **state)
{
    struct past p = past_of_a_suspect(PUMP_SOLO_ATTEMPTS);
    struct fake *f = resume_suspect(&p, true);
    publish_many("a", 1, 2);
    assert_int_equal(inbound(f), 0);
    pong(f);
    assert_int_equal(inbound(f), 2);
}

/* The socket was an older one when the delivery on it was parked, and took over again. */
static void what_was_parked_does_not_return_on_a_socket_that_outlived_the_process(void **state)
{
    struct past p = past_of_a_suspect((int)rig.lim.max_attempts - 1);
    (void)resume_suspect(&p, false);
    (void)connect_as("gw-a");
    assert_int_equal(look("ann").parked, 1);
    restart();
    struct fake *f = resume_suspect(&p, false);
    assert_int_equal(relay_parked_change(rig.relay, STR("acme"), STR("ann"), NULL, 0, false), 1);
    turn();
    assert_int_equal(inbound(f), 0);
    publish("a", "e2");
    assert_int_equal(inbound(f), 1);
    hang_up(f, 1006);
    f = connect_as("gw-a");
    assert_true(is_event(f, 0, "e1"));
}

/* The ack of e1 came on another socket and is lost: here e1 could only follow e2. */
static void a_socket_that_could_not_be_served_in_order_is_closed(void **state)
{
    struct past p = past_of_two();
    struct fake *f = NULL;
    for (uint32_t n = 0; n <= rig.lim.max_attempts;
         n++) { /* no attempt: nothing is parked for it */
        if (f != NULL)
            hang_up(f, 1013);
        f = resume(&p, 1);
        assert_int_equal(f->close_code, 1013);
        assert_int_equal(inbound(f), 0);
    }
    assert_int_equal(look("ann").parked, 0);
    session_acked(f->s, str_of(p.ids[1])); /* held by its edge: it counts all the same */
    assert_int_equal(look("ann").entries, 1);
    hang_up(f, 1013);
    f = connect_as("gw-a");
    assert_int_equal(inbound(f), 1);
    assert_true(is_event(f, 0, "e1"));
}

UNIT(relay_test_pump)
{
    const struct CMUnitTest tests[] = {
        PROMISE(at_most_eight_messages_are_unacked),
        PROMISE(many_redriven_deliveries_cost_no_square),
        PROMISE(a_gateway_that_acks_late_has_many_unacked),
        PROMISE(a_backlog_leaves_one_that_acks_late_no_more_unacked),
        PROMISE(each_ack_makes_room_for_one_that_acks_late),
        PROMISE(one_that_is_away_and_then_says_that_it_acks_late_is_sent_more),
        PROMISE(a_parked_delivery_that_is_dropped_leaves_its_neighbours_in_the_window),
        PROMISE(one_that_acks_late_is_sent_two_megabytes_before_its_pong),
        PROMISE(a_suspect_holds_others_back_until_the_pong_of_one_that_acks_late),
        PROMISE(one_suspect_after_the_other_waits_for_a_pong_only),
        PROMISE(the_pong_of_a_ping_before_a_suspect_proves_nothing_of_it),
        PROMISE(a_backlog_is_packed_into_few_messages_and_drained_in_order),
        PROMISE(events_during_a_drain_go_to_the_tail),
        PROMISE(a_socket_that_dies_in_a_drain_is_followed_by_exactly_the_unacked_tail),
        PROMISE(bodies_of_sleepers_are_not_kept_in_memory),
        PROMISE(a_read_the_store_refuses_is_tried_again),
        PROMISE(a_frame_over_a_megabyte_is_cut_between_characters),
        PROMISE(a_lost_socket_is_one_attempt_for_each_delivery_on_it),
        PROMISE(a_suspect_travels_alone),
        PROMISE(a_poisonous_delivery_is_parked_and_does_not_drag_others_along),
        PROMISE(a_passthrough_is_settled_by_the_pong_behind_it),
        PROMISE(a_passthrough_is_settled_by_its_own_ack_and_by_a_later_one),
        PROMISE(a_passthrough_is_not_settled_by_an_older_pong),
        PROMISE(an_older_hermes_gateway_is_recognized_and_settles_without_a_setting),
        PROMISE(a_newer_gateway_that_ends_its_turns_is_not_held_back),
        PROMISE(a_socket_that_outlived_the_process_gets_nothing_twice),
        PROMISE(a_socket_that_outlived_the_process_acks_late_as_before),
        PROMISE(a_suspect_is_alone_on_a_socket_that_outlived_the_process),
        PROMISE(a_suspect_is_alone_there_until_the_pong_of_one_that_acks_late),
        PROMISE(what_was_parked_does_not_return_on_a_socket_that_outlived_the_process),
        PROMISE(a_socket_that_could_not_be_served_in_order_is_closed),
        cmocka_unit_test_setup_teardown(
            without_live_acks_frames_carry_no_buffer_id_and_are_settled_when_read,
            setup_without_acks, teardown),
        cmocka_unit_test_setup_teardown(
            an_older_gateway_that_has_just_dialled_gets_nothing_until_it_has_settled,
            setup_settling, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
