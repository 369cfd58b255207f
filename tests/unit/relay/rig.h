/* rig.h - a relay on a bench: real facts and observers, the in-memory store behind a tap that can
 * refuse or hold, wires that write down what they are sent, a clock turned by hand.
 *
 * Tenant "acme" has the instances "ann" (gateway gw-a, route key "a", wake URL) and "bob" (gw-b,
 * "b"). Key "both" leads to both. */
#pragma once
#include "unit.h"
#include "base/clock.h"
#include "base/observers.h"
#include "relay/relay.h"
#include "store/memory/memory.h"
#include "store/store.h"
#include "tenancy/grants.h"

#define RIG_UNUSED __attribute__((unused))
#define RIG_SOCKETS 12
#define RIG_MESSAGES 4096
#define RIG_KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct tap { /* in front of the memory store */
    struct store base;
    struct store *inner;
    struct clock *clock;
    bool refuse;                   /* appends, acks and records fail */
    bool hold;                     /* nothing reaches the store until rig_release() */
    bool lose_answers;             /* appends happen, and nobody is told that they did */
    struct store_op *first, **end; /* held */
    struct store_op *refused, **refused_end;
    struct timer timer;
    int ripening;
    size_t appends, urgent, shrunk, acks, acked_ids, fetches, marks, transactions;
};

struct fake { /* one socket */
    struct wire wire;
    struct session *s;
    struct buf sending, all;
    size_t ends[RIG_MESSAGES]; /* where each message ends in all */
    size_t n_messages;
    uint32_t pings; /* the number of the newest */
    int close_code;
    char *why;
};

struct rig {
    struct clock *clock;
    int64_t now_ms;
    struct tap tap;
    struct observers *observers;
    struct seal *seal;
    struct facts *facts;
    struct rand rand;
    struct relay *relay;
    struct relay_limits lim;
    struct waker waker;
    struct outside outside;
    enum gate_sight (*sees)(const struct event *ev, struct str user);
    struct fake fakes[RIG_SOCKETS];
    size_t n_fakes;
    size_t pokes;
    poke_done_cb *poke_done;
    void *poke_ctx;
    char poked_url[128];
    struct outlet web, telegram;
    struct outlet attic; /* a second web bot, where @has_attic */
    bool has_attic;
    size_t acts;
    bool act_at_once;
    struct action_id act_id;
    struct hash128 act_said;
    enum action_op act_op;
    char act_chat[64], act_bot[32], act_platform[32], act_content[128]; /* cut */
    char changed[256];  /* every state told: "ann=live " */
    size_t answers[16]; /* accepts, by result */
    bool drained;
    unsigned events;
};
static struct rig rig;

/* ---- the tap ---- */

static void tap_on_timer(struct timer *t)
{
    struct tap *tap = container_of(t, struct tap, timer);
    struct store_op *op = tap->refused;
    if (tap->ripening++ == 0) { /* a store never answers in the turn that asked */
        timer_set(tap->clock, t, 0);
        return;
    }
    tap->ripening = 0;
    tap->refused = NULL;
    tap->refused_end = &tap->refused;
    while (op != NULL) {
        struct store_op *next = op->next;
        if (op->done != NULL)
            op->done(op, BH_UNAVAILABLE);
        op = next;
    }
}

struct unheard { /* an append whose answer gets lost */
    struct store_append copy;
    struct store_op *op;
};

static void tap_on_unheard(struct store_op *op, enum bh_err err)
{
    struct unheard *u = container_of(op, struct unheard, copy.op);
    struct store_op *asked = u->op;
    free(u);
    asked->done(asked, BH_UNKNOWN);
}

static void tap_lose_answer(struct tap *tap, struct store_op *op)
{
    struct unheard *u = malloc(sizeof *u);
    u->copy = *(struct store_append *)(void *)op;
    u->copy.op = (struct store_op){.done = tap_on_unheard, .kind = STORE_APPEND};
    u->op = op;
    tap->inner->ops->submit(tap->inner, &u->copy.op, true);
}

static void tap_submit(struct store *st, struct store_op *op, bool urgent)
{
    struct tap *tap = container_of(st, struct tap, base);
    tap->appends += op->kind == STORE_APPEND;
    tap->urgent += op->kind == STORE_APPEND && urgent;
    tap->acks += op->kind == STORE_ACK;
    tap->marks += op->kind == STORE_MARK;
    tap->transactions += op->kind == STORE_TX;
    tap->fetches += op->kind == STORE_FETCH;
    if (op->kind == STORE_ACK)
        tap->acked_ids += ((struct store_ack *)(void *)op)->n;
    op->next = NULL;
    if (tap->refuse) {
        *tap->refused_end = op;
        tap->refused_end = &op->next;
        if (!timer_is_set(&tap->timer))
            timer_set(tap->clock, &tap->timer, 0);
    } else if (tap->lose_answers && op->kind == STORE_APPEND) {
        tap_lose_answer(tap, op);
    } else if (tap->hold) {
        *tap->end = op;
        tap->end = &op->next;
    } else {
        tap->inner->ops->submit(tap->inner, op, urgent);
    }
}

static bool tap_shrink(struct store *st, struct store_append *a)
{
    struct tap *tap = container_of(st, struct tap, base);
    if (tap->hold) { /* as if it were not begun */
        a->shrunk = true;
        tap->shrunk++;
        return true;
    }
    bool ok = tap->inner->ops->shrink(tap->inner, a);
    tap->shrunk += ok;
    return ok;
}

static void tap_forget_keys(struct store *st, int64_t before_ms)
{
    rig.tap.inner->ops->forget_keys(rig.tap.inner, before_ms);
}
static enum bh_err tap_load_rows(struct store *st, store_row_cb *cb, void *ctx)
{
    return rig.tap.inner->ops->load_rows(rig.tap.inner, cb, ctx);
}
static enum bh_err tap_load_records(struct store *st, const char *ns, struct str prefix,
                                    store_record_cb *cb, void *ctx)
{
    return rig.tap.inner->ops->load_records(rig.tap.inner, ns, prefix, cb, ctx);
}
static enum bh_err tap_load_keys(struct store *st, int64_t since_ms, store_key_cb *cb, void *ctx)
{
    return rig.tap.inner->ops->load_keys(rig.tap.inner, since_ms, cb, ctx);
}
static void tap_close(struct store *st)
{
    rig.tap.inner->ops->close(rig.tap.inner);
}
static const struct store_ops tap_ops = {.name = "tap",
                                         .submit = tap_submit,
                                         .shrink = tap_shrink,
                                         .forget_keys = tap_forget_keys,
                                         .load_rows = tap_load_rows,
                                         .load_records = tap_load_records,
                                         .load_keys = tap_load_keys,
                                         .close = tap_close};

/* ---- time ---- */

RIG_UNUSED static void turn(void) /* until everything that follows from now has happened */
{
    for (int i = 0; i < 30; i++)
        clock_turn(rig.clock);
}

RIG_UNUSED static void advance(int64_t ms)
{
    for (int64_t left = ms, step; left > 0; left -= step) {
        step = left < 500 ? left : 500;
        rig.now_ms += step;
        clock_set(rig.clock, rig.now_ms, 1700000000000 + rig.now_ms);
        turn();
    }
}

/* Of what is held, the records reach the disk; nobody is told, and the rest stays where it is. */
RIG_UNUSED static void rig_release_records(void)
{
    struct store_op **at = &rig.tap.first;
    while (*at != NULL) {
        struct store_op *op = *at;
        if (op->kind != STORE_TX) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        rig.tap.inner->ops->submit(rig.tap.inner, op, true);
    }
    rig.tap.end = at;
    turn();
}
RIG_UNUSED static void rig_release(void)
{
    struct store_op *op = rig.tap.first;
    rig.tap.first = NULL;
    rig.tap.end = &rig.tap.first;
    rig.tap.hold = false;
    while (op != NULL) {
        struct store_op *next = op->next;
        struct store_append *a = op->kind == STORE_APPEND ? (void *)op : NULL;
        bool shrunk = a != NULL && a->shrunk;
        rig.tap.inner->ops->submit(rig.tap.inner, op, true);
        if (shrunk)
            rig.tap.inner->ops->shrink(rig.tap.inner, a);
        op = next;
    }
    turn();
}

/* ---- sockets ---- */

static void fake_message(struct fake *f)
{
    assert_true(f->n_messages < RIG_MESSAGES);
    f->ends[f->n_messages++] = f->all.n;
}
static void fake_send(struct wire *l, struct str message)
{
    struct fake *f = container_of(l, struct fake, wire);
    buf_add_str(&f->all, message);
    fake_message(f);
}
static struct buf *fake_begin(struct wire *l)
{
    return &container_of(l, struct fake, wire)->sending;
}
static void fake_end(struct wire *l)
{
    struct fake *f = container_of(l, struct fake, wire);
    buf_add_str(&f->all, buf_str(&f->sending));
    buf_reset(&f->sending);
    fake_message(f);
}
static void fake_ping(struct wire *l, uint32_t number)
{
    container_of(l, struct fake, wire)->pings = number;
}
static void fake_close(struct wire *l, enum close_reason why)
{
    struct fake *f = container_of(l, struct fake, wire);
    f->close_code = contract_closes[why].code;
    free(f->why);
    f->why = xstrdup(contract_closes[why].text);
}
static const struct wire_ops fake_ops = {fake_send, fake_begin, fake_end, fake_ping, fake_close};

RIG_UNUSED static struct fake *dial(const char *gateway)
{
    struct fake *f = &rig.fakes[rig.n_fakes++];
    assert_true(rig.n_fakes <= RIG_SOCKETS);
    *f = (struct fake){.wire = {&fake_ops}};
    f->s = session_open(rig.relay, facts_gateway(rig.facts, str_of(gateway)), &f->wire);
    return f;
}
RIG_UNUSED static void say(struct fake *f, const char *line)
{
    struct buf b = BUF_INIT;
    buf_add_z(&b, line);
    buf_add_c(&b, '\n');
    session_data(f->s, buf_str(&b));
    buf_done(&b);
    turn();
}
RIG_UNUSED static void hang_up(struct fake *f, int code)
{
    session_closed(f->s, code);
    f->s = NULL;
    turn();
}
RIG_UNUSED static void hello(struct fake *f)
{
    say(f, "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\"}");
}
RIG_UNUSED static struct fake *connect_as(const char *gateway)
{
    struct fake *f = dial(gateway);
    hello(f);
    return f;
}
RIG_UNUSED static void pong(struct fake *f)
{
    session_pong(f->s, f->pings);
    turn();
}

/* The @n-th line (from 0) on @f that has @part in it; STR_NULL: there are not so many. */
RIG_UNUSED static struct str line_with(const struct fake *f, const char *part, size_t n)
{
    struct str rest = buf_str(&f->all), line;
    while (rest.n > 0 && str_split(&rest, '\n', &line))
        if (str_contains(line, str_of(part)) && n-- == 0)
            return line;
    return STR_NULL;
}
RIG_UNUSED static size_t count_with(const struct fake *f, const char *part)
{
    size_t n = 0;
    while (line_with(f, part, n).p != NULL)
        n++;
    return n;
}
#define INBOUND "\"type\":\"inbound\""
RIG_UNUSED static size_t inbound(const struct fake *f)
{
    return count_with(f, INBOUND);
}
RIG_UNUSED static struct str buffer_id(struct str line)
{
    static const char mark[] = "\"bufferId\":\"";
    for (size_t i = 0; i + sizeof mark < line.n; i++)
        if (memcmp(line.p + i, mark, sizeof mark - 1) == 0) {
            struct str rest = str_skip(line, i + sizeof mark - 1), id;
            str_split(&rest, '"', &id);
            return id;
        }
    return STR_NULL;
}
RIG_UNUSED static void ack_line(struct fake *f, struct str line)
{
    struct buf b = BUF_INIT;
    struct str id = buffer_id(line);
    assert_non_null(id.p);
    buf_printf(&b, "{\"type\": \"inbound_ack\", \"bufferId\": \"%.*s\"}", STR_FMT(id));
    say(f, buf_z(&b));
    buf_done(&b);
}
RIG_UNUSED static void ack(struct fake *f, size_t n) /* the n-th inbound on this socket */
{
    ack_line(f, line_with(f, INBOUND, n));
}
/* True when the n-th inbound on @f is event @name. */
RIG_UNUSED static bool is_event(const struct fake *f, size_t n, const char *name)
{
    char part[64];
    snprintf(part, sizeof part, "\"message_id\":\"%s\"", name);
    return str_contains(line_with(f, INBOUND, n), str_of(part));
}

/* ---- events ---- */

static void on_accepted(void *ctx, enum bh_err err)
{
    rig.answers[err]++;
    if (ctx != NULL)
        *(int *)ctx = (int)err;
}
RIG_UNUSED static struct event make_event(const char *key, const char *id)
{
    return (struct event){.platform = STR("web"),
                          .bot = STR("lobby"),
                          .route_key = str_of(key),
                          .event_id = str_of(id),
                          .message_id = str_of(id),
                          .text = STR("hello"),
                          .chat_id = STR("c1"),
                          .chat_type = STR("dm"),
                          .user_id = STR("u1")};
}
RIG_UNUSED static void offer(const char *key, const char *id) /* without a turn */
{
    struct event ev = make_event(key, id);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
}
RIG_UNUSED static void publish(const char *key, const char *id)
{
    offer(key, id);
    turn();
}
RIG_UNUSED static void publish_text(const char *key, const char *id, const char *text)
{
    struct event ev = make_event(key, id);
    ev.text = str_of(text);
    relay_accept(rig.relay, &ev, on_accepted, NULL);
    turn();
}
RIG_UNUSED static size_t accepted_ok(void)
{
    return rig.answers[BH_OK];
}

static void count_row(void *ctx, const struct store_row *row)
{
    ++*(size_t *)ctx;
}
RIG_UNUSED static size_t rows(void)
{
    size_t n = 0;
    assert_int_equal(rig.tap.inner->ops->load_rows(rig.tap.inner, count_row, &n), BH_OK);
    return n;
}
RIG_UNUSED static struct instance_view look(const char *instance)
{
    struct instance_view v = {.state = "none"};
    relay_instance(rig.relay, STR("acme"), str_of(instance), &v);
    return v;
}
#define assert_state(instance, want) assert_string_equal(look(instance).state, want)

/* ---- waker and outside ---- */

static void rig_poke(struct waker *p, const char *url, poke_done_cb *done, void *ctx)
{
    rig.pokes++;
    rig.poke_done = done;
    rig.poke_ctx = ctx;
    snprintf(rig.poked_url, sizeof rig.poked_url, "%s", url);
}
RIG_UNUSED static void poke_answer(bool ok)
{
    poke_done_cb *done = rig.poke_done;
    rig.poke_done = NULL;
    assert_non_null(done);
    done(rig.poke_ctx, ok, ok ? NULL : "connection refused");
    turn();
}
static const struct outlet *rig_find(struct outside *o, struct str platform, struct str bot)
{
    const struct outlet *all[] = {&rig.web, &rig.telegram, &rig.attic};
    for (size_t i = 0; i < (rig.has_attic ? 3 : 2); i++)
        if (str_eq(platform, str_of(all[i]->platform)) &&
            (bot.n == 0 || str_eq(bot, str_of(all[i]->bot))))
            return all[i];
    return NULL;
}
static size_t rig_messages(void) /* written to all sockets so far */
{
    size_t n = 0;
    for (size_t i = 0; i < rig.n_fakes; i++)
        n += rig.fakes[i].n_messages;
    return n;
}
static void rig_act(struct outside *o, const struct outlet *to, struct action_id id,
                    const struct action_from *from, const struct action *act)
{
    rig.acts++;
    rig.act_id = id;
    rig.act_op = act->op;
    rig.act_said = from->said;
    snprintf(rig.act_chat, sizeof rig.act_chat, "%.*s", STR_FMT(act->chat_id));
    snprintf(rig.act_bot, sizeof rig.act_bot, "%s", to->bot);
    snprintf(rig.act_content, sizeof rig.act_content, "%.*s", STR_FMT(act->content));
    snprintf(rig.act_platform, sizeof rig.act_platform, "%s", to->platform);
    if (!rig.act_at_once)
        return;
    char *own = xstrdup("m9"); /* of this call: gone when it returns */
    size_t before = rig_messages();
    relay_result(rig.relay, id,
                 &(struct action_result){.success = true, .message_id = str_of(own)});
    memset(own, 'x', 2);
    free(own);
    relay_result(rig.relay, id, &(struct action_result){.error = STR("answered twice")});
    assert_int_equal(rig_messages(), before); /* nobody hears of it inside this call ... */
    assert_true(from->request_id.n > 0 && from->request_id.p[0] == 'r'); /* ... and it may go on */
    assert_string_equal(rig.act_chat, "c1");
    assert_true(str_eq(act->chat_id, str_of(rig.act_chat)));
}
static enum gate_sight rig_sees(struct outside *o, const struct outlet *at, const struct event *ev,
                                struct str user)
{
    return rig.sees(ev, user);
}
static void rig_changed(struct outside *o, struct str tenant, struct str instance,
                        const char *state)
{
    size_t n = strlen(rig.changed);
    snprintf(rig.changed + n, sizeof rig.changed - n, "%.*s=%s ", STR_FMT(instance), state);
}

static const struct descriptor web_descriptor = {.platform = "web",
                                                 .label = "Web",
                                                 .max_message_length = 4000,
                                                 .markdown_dialect = "markdown",
                                                 .len_unit = "chars",
                                                 .ops = 1u << ACTION_SEND | 1u << ACTION_EDIT |
                                                        1u << ACTION_GET_CHAT_INFO |
                                                        1u << ACTION_SEND_MEDIA |
                                                        1u << ACTION_REACT |
                                                        1u << ACTION_THREAD_CREATE};
static const struct descriptor telegram_descriptor = {.platform = "telegram",
                                                      .label = "Telegram",
                                                      .max_message_length = 4096,
                                                      .markdown_dialect = "markdown_v2",
                                                      .len_unit = "utf16",
                                                      .ops = 1u << ACTION_SEND |
                                                             1u << ACTION_FOLLOW_UP};

/* ---- building ---- */

static void rig_open_relay(void)
{
    char why[256] = "";
    struct relay_env env = {.clock = rig.clock,
                            .store = &rig.tap.base,
                            .observers = rig.observers,
                            .rand = &rig.rand,
                            .facts = rig.facts,
                            .waker = &rig.waker,
                            .outside = &rig.outside};
    assert_int_equal(relay_load(&env, &rig.lim, &rig.relay, why), BH_OK);
    relay_begin(rig.relay, &env);
}
static void rig_changed_fact(void *ctx, enum bh_err err, const char *why)
{
    assert_int_equal(err, BH_OK);
}
RIG_UNUSED static void add_gateway(const char *id, const char *instance, const char *wake_url,
                                   const char *platform, const char *bot)
{
    struct buf ret_id = BUF_INIT, secret = BUF_INIT;
    struct gateway_spec spec = {.id = str_of(id),
                                .tenant = STR("acme"),
                                .instance = str_of(instance),
                                .wake_url = str_of(wake_url),
                                .bots = &(struct gateway_for){str_of(platform), str_of(bot), true},
                                .n_bots = platform != NULL};
    facts_gateway_add(rig.facts, &spec, &ret_id, &secret, rig_changed_fact, NULL);
    turn();
    buf_done(&ret_id);
    buf_done(&secret);
}
/* @bot NULL: on every bot of the platform. */
RIG_UNUSED static void link_user(struct grant_who who, const char *platform, const char *user,
                                 const char *bot)
{
    struct str on = bot != NULL ? str_of(bot) : STR("*");
    const struct grant_person p = {str_of(platform), str_of(user), &on, 1};

    grant_link(rig.facts, who, &p, rig_changed_fact, NULL);
    turn();
}
RIG_UNUSED static void unlink_user(struct grant_who who, const char *platform, const char *user)
{
    const struct grant_person p = {str_of(platform), str_of(user), NULL, 0};

    grant_unlink(rig.facts, who, &p, rig_changed_fact, NULL);
    turn();
}
RIG_UNUSED static void add_route(const char *key, const char *instance)
{
    const struct route_spec open = {.platform = STR("web"),
                                    .key = str_of(key),
                                    .tenant = STR("acme"),
                                    .instance = str_of(instance),
                                    .open = true};
    facts_route_add(rig.facts, &open, rig_changed_fact, NULL);
    turn();
}

static void rig_open_facts(void)
{
    char why[256] = "";
    struct facts_env env = {.clock = rig.clock,
                            .store = rig.tap.inner,
                            .observers = rig.observers,
                            .rand = &rig.rand,
                            .seal = rig.seal};
    assert_int_equal(facts_open(&env, &rig.facts, why), BH_OK);
}

static bool rig_shared; /* the store numbers the rows */
static int setup_with(const struct relay_limits *lim)
{
    char why[256] = "";
    rig = (struct rig){.clock = clock_new(), .now_ms = 5000, .lim = *lim, .rand = rand_seeded(1)};
    clock_set(rig.clock, rig.now_ms, 1700000000000 + rig.now_ms);
    rig.tap = (struct tap){.clock = rig.clock,
                           .inner = rig_shared ? store_memory_new_shared(rig.clock)
                                               : store_memory_new(rig.clock)};
    rig.tap.base = *rig.tap.inner;
    rig.tap.base.ops = &tap_ops;
    rig.tap.end = &rig.tap.first;
    rig.tap.refused_end = &rig.tap.refused;
    timer_init(&rig.tap.timer, tap_on_timer);
    rig.observers = observers_new(rig.clock);
    assert_int_equal(seal_open_master(STR(RIG_KEY), STR("salt"), NULL, &rig.seal, why), BH_OK);
    rig_open_facts();
    rig.waker.poke = rig_poke;
    rig.outside = (struct outside){rig_find, rig_act, rig_sees, rig_changed};
    rig.web = (struct outlet){.platform = "web",
                              .bot = "lobby",
                              .descriptor = &web_descriptor,
                              .alone = true};
    rig.telegram =
        (struct outlet){.platform = "telegram", .bot = "tg", .descriptor = &telegram_descriptor};
    rig.telegram.alone = true;
    rig.attic = (struct outlet){.platform = "web", .bot = "attic", .descriptor = &web_descriptor};
    add_gateway("gw-a", "ann", "http://wake.example/ann", NULL, NULL);
    add_gateway("gw-b", "bob", NULL, NULL, NULL);
    add_route("a", "ann");
    add_route("b", "bob");
    add_route("both", "ann");
    add_route("both", "bob");
    rig_open_relay();
    return 0;
}
RIG_UNUSED static int setup(void **state)
{
    return setup_with(&relay_limits_default);
}

static void forget_sockets(void)
{
    for (size_t i = 0; i < rig.n_fakes; i++) {
        buf_done(&rig.fakes[i].all);
        buf_done(&rig.fakes[i].sending);
        free(rig.fakes[i].why);
    }
    rig.n_fakes = 0;
}
RIG_UNUSED static void on_drained(void *ctx)
{
    rig.drained = true;
}
/* The process dies and starts again: what the tap holds back is lost with it. */
RIG_UNUSED static void restart(void)
{
    turn();
    relay_free(rig.relay);
    facts_free(rig.facts);
    timer_stop(rig.clock, &rig.tap.timer);
    rig.tap.first = NULL;
    rig.tap.end = &rig.tap.first;
    rig.tap.hold = rig.tap.refuse = false;
    rig.tap.base.boot++;
    forget_sockets();
    observers_free(rig.observers); /* its subscriber is gone */
    rig.observers = observers_new(rig.clock);
    rig_open_facts();
    rig_open_relay();
    turn();
}
static int teardown(void **state)
{
    timer_stop(rig.clock, &rig.tap.timer);
    store_close(&rig.tap.base);
    relay_free(rig.relay);
    facts_free(rig.facts);
    observers_free(rig.observers);
    seal_free(rig.seal);
    clock_free(rig.clock);
    forget_sockets();
    return 0;
}
#define PROMISE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
