/* redis_line.c - (redis_line.h has the contract and the picture.) */
#include "bus/redis/redis_line.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/list.h"
#include "base/log.h"
#include "net/loop.h"
#include "net/tcp_client.h"

enum {
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 2000,
    CONNECT_MS = 5000,
    LOOK_MS = 2000, /* a sign of life is asked for when nothing was heard for that long ... */
    DEAF_MS = 6000, /* ... and waited for until then */
};

static const unsigned next_states[] = {
    [REDIS_DOWN] = 1u << REDIS_CONNECTING,
    [REDIS_CONNECTING] = 1u << REDIS_DOWN | 1u << REDIS_GREETING,
    [REDIS_GREETING] = 1u << REDIS_DOWN | 1u << REDIS_UP,
    [REDIS_UP] = 1u << REDIS_DOWN,
};

static void line_enter(struct redis_line *l, enum redis_line_state next)
{
    assert((next_states[l->state] & 1u << next) != 0);
    l->state = next;
}

static int64_t now_ms(const struct redis_line *l)
{
    return clock_now_ms(loop_clock(l->loop));
}

static void go_down(struct redis_line *l, const char *why)
{
    if (!l->told)
        log_warn(NULL, "redis: %s: %s; trying again, news of other nodes come late", l->name, why);
    l->told = true;
    line_enter(l, REDIS_DOWN);
    tcp_client_free(l->tcp);
    l->tcp = NULL;
    buf_done(&l->in);
    timer_set(loop_clock(l->loop), &l->timer, l->pause_ms);
    l->pause_ms = l->pause_ms * 2 < LONGEST_PAUSE_MS ? l->pause_ms * 2 : LONGEST_PAUSE_MS;
}

/* ---- saying ---- */

void redis_line_say(struct redis_line *l, const struct str *argv, size_t n)
{
    struct buf out = BUF_INIT;

    if (l->state != REDIS_UP && l->state != REDIS_GREETING)
        return;
    buf_printf(&out, "*%zu\r\n", n);
    for (size_t k = 0; k < n; k++) {
        buf_printf(&out, "$%zu\r\n", argv[k].n);
        buf_add_str(&out, argv[k]);
        buf_add_z(&out, "\r\n");
    }
    tcp_client_send(l->tcp, buf_str(&out));
    buf_wipe(&out); /* it may have been a password */
    l->owed++;
}

static void greet(struct redis_line *l)
{
    const struct redis_address *to = l->to;
    char number[16];

    if (to->password != NULL) {
        const struct str auth[] = {STR("AUTH"), str_of(to->user), str_of(to->password)};
        const struct str plain[] = {STR("AUTH"), str_of(to->password)};
        redis_line_say(l, to->user != NULL ? auth : plain, to->user != NULL ? 3 : 2);
    }
    snprintf(number, sizeof number, "%" PRIu32, to->database);
    redis_line_say(l, (const struct str[]){STR("SELECT"), str_of(number)}, 2);
    if (l->greet != NULL)
        l->greet(l->ctx, l);
}

static void became_up(struct redis_line *l)
{
    line_enter(l, REDIS_UP);
    if (l->told)
        log_info(NULL, "redis: %s: well again", l->name);
    l->told = false;
    l->pause_ms = FIRST_PAUSE_MS;
    timer_set(loop_clock(l->loop), &l->timer, LOOK_MS);
    l->up(l->ctx, l);
}

/* ---- hearing ---- */

static bool is_message(const struct resp *r)
{
    return r->kind == RESP_ARRAY && r->n_items == 3 && str_eq(r->items[0], STR("message"));
}

static void take(struct redis_line *l, const struct resp *r)
{
    char why[200];

    if (is_message(r)) {
        l->message(l->ctx, r);
        return;
    }
    l->owed -= l->owed > 0;
    if (r->kind == RESP_ERROR && l->state == REDIS_GREETING) {
        snprintf(why, sizeof why, "the server says %.*s", r->text.n < 150 ? (int)r->text.n : 150,
                 r->text.p);
        go_down(l, why);
    } else if (r->kind == RESP_ERROR) {
        log_warn(NULL, "redis: %s: the server says %.*s", l->name,
                 r->text.n < 150 ? (int)r->text.n : 150, r->text.p);
    } else if (l->state == REDIS_GREETING && l->owed == 0) {
        became_up(l);
    }
}

static void on_data(void *ctx, struct str bytes)
{
    struct redis_line *l = ctx;
    struct resp r;
    ptrdiff_t n = 0;
    size_t at = 0;

    l->heard_ms = now_ms(l);
    buf_add_str(&l->in, bytes);
    while (l->tcp != NULL && (n = resp_read(str_skip(buf_str(&l->in), at), &r)) > 0) {
        at += (size_t)n;
        take(l, &r);
    }
    if (l->tcp == NULL)
        return;
    if (n < 0 || buf_failed(&l->in)) {
        go_down(l, "what it says is not Redis");
        return;
    }
    buf_consume(&l->in, at);
    if (l->in.n == 0)
        buf_done(&l->in);
}

/* ---- connecting ---- */

static void on_open(void *ctx)
{
    struct redis_line *l = ctx;

    line_enter(l, REDIS_GREETING);
    l->heard_ms = now_ms(l);
    l->owed = 0;
    timer_set(loop_clock(l->loop), &l->timer, LOOK_MS);
    greet(l);
}

static void on_closed(void *ctx, const char *why)
{
    struct redis_line *l = ctx;

    l->tcp = NULL; /* it frees itself */
    go_down(l, why);
}

static void dial(struct redis_line *l)
{
    static const struct tcp_client_handlers handlers = {on_open, on_data, on_closed};
    const struct redis_address *to = l->to;
    struct tcp_client_options opt = {.host = to->host,
                                     .port = to->port,
                                     .unix_path = to->unix_path,
                                     .tls = to->tls,
                                     .ca_path = to->ca,
                                     .connect_timeout_ms = CONNECT_MS};

    line_enter(l, REDIS_CONNECTING);
    l->tcp = tcp_client_open(l->loop, &opt, &handlers, l);
}

static void on_timer(struct timer *t)
{
    struct redis_line *l = container_of(t, struct redis_line, timer);

    if (l->state == REDIS_DOWN) {
        dial(l);
        return;
    }
    if (now_ms(l) - l->heard_ms >= DEAF_MS) {
        go_down(l, "no sign of life");
        return;
    }
    if (l->state == REDIS_UP && now_ms(l) - l->heard_ms >= LOOK_MS)
        redis_line_say(l, (const struct str[]){STR("PING")}, 1);
    timer_set(loop_clock(l->loop), &l->timer, LOOK_MS);
}

void redis_line_init(struct redis_line *l, struct loop *loop, const struct redis_address *to)
{
    *l = (struct redis_line){.loop = loop, .to = to, .pause_ms = FIRST_PAUSE_MS};
    timer_init(&l->timer, on_timer);
    timer_set(loop_clock(loop), &l->timer, 0);
}

void redis_line_done(struct redis_line *l)
{
    timer_stop(loop_clock(l->loop), &l->timer);
    tcp_client_free(l->tcp);
    l->tcp = NULL;
    buf_done(&l->in);
}
