/* redis_client.c - (redis_client.h has the contract and the picture.) */
#include "net/redis_client.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/url.h"
#include "net/loop.h"
#include "net/tcp_client.h"

enum {
    FIRST_PAUSE_MS = 50,
    LONGEST_PAUSE_MS = 2000,
    CONNECT_MS = 5000,
    LOOK_MS = 2000, /* silence after which the client sends PING */
    DEAF_MS = 6000, /* silence after which the connection is dead */
};

struct redis_address { /* all owned */
    char *host, *unix_path, *user, *password;
    uint16_t port;
    uint32_t database;
    bool tls;
};

enum redis_state { REDIS_DOWN, REDIS_CONNECTING, REDIS_GREETING, REDIS_UP };

struct redis_client {
    struct loop *loop; /* borrowed */
    struct redis_client_options options;
    struct redis_client_handlers on;
    void *ctx;
    struct redis_address to;
    struct tcp_client *tcp; /* owned; NULL: DOWN */
    enum redis_state state; /* written by enter() only */
    struct timer timer;     /* the backoff; in UP the next PING */
    struct buf in;          /* owned; bytes that are not a whole reply yet */
    uint64_t greetings;     /* replies to the greeting that are still to come */
    uint64_t pings;         /* replies to PING that are still to come */
    int64_t heard_ms;       /* when the server said anything last */
    int64_t pause_ms;
    char at[256], fault[256];
    bool told;            /* the log has reported the outage */
    bool calling, closed; /* closed inside a handler: freed when it returns */
};

/* ---- the address ---- */

enum { PORT = 6379, MAX_DATABASE = 1 << 20 };

static void address_done(struct redis_address *a)
{
    if (a->password != NULL)
        secret_wipe(a->password, strlen(a->password));
    free(a->password);
    free(a->user);
    free(a->host);
    free(a->unix_path);
    *a = (struct redis_address){0};
}

/* NULL: its escapes are broken. */
static char *unescape(struct str s)
{
    struct buf out = BUF_INIT;

    if (percent_decode(&out, s) && memchr(buf_str(&out).p, '\0', out.n) == NULL)
        return buf_take(&out);
    buf_wipe(&out);
    return NULL;
}

/* NULL, or what is wrong with it. */
static const char *address_fault(struct str url, struct redis_address *ret)
{
    struct url u;
    uint64_t database = 0;
    const char *fault = url_split(url, &u);

    if (fault != NULL)
        return fault;
    ret->tls = str_eq(u.scheme, STR("rediss"));
    if (!ret->tls && !str_eq(u.scheme, STR("redis")))
        return "it is none";
    if (u.target.n > 1 &&
        (!str_to_u64(str_skip(u.target, 1), &database) || database > MAX_DATABASE))
        return "the database is no number";
    ret->database = (uint32_t)database;
    ret->host = str_dup(u.host);
    ret->port = u.port != 0 ? u.port : PORT;
    ret->password = u.password.p != NULL ? unescape(u.password) : NULL;
    ret->user = u.user.n > 0 ? unescape(u.user) : NULL;
    if (u.user.p != NULL && (ret->password == NULL || (u.user.n > 0 && ret->user == NULL)))
        return "user and password are written user:password@";
    return NULL;
}

static bool address_read(const char *url, struct redis_address *ret, char *ret_why)
{
    struct str s = str_of(url);
    const char *fault;

    *ret = (struct redis_address){0};
    if (str_starts(s, STR("unix:/"))) {
        ret->unix_path = str_dup(str_skip(s, 5));
        return true;
    }
    fault = address_fault(s, ret);
    if (fault == NULL)
        return true;
    address_done(ret);
    return bh_why(ret_why,
                  "the Redis address: %s; expected redis://[user:password@]host[:port][/database], "
                  "rediss://... or unix:/path",
                  fault);
}

bool redis_url_ok(const char *url, char *ret_why)
{
    struct redis_address a;
    bool ok = address_read(url, &a, ret_why);

    address_done(&a);
    return ok;
}

/* ---- states ---- */

static const unsigned next_states[] = {
    [REDIS_DOWN] = 1u << REDIS_CONNECTING,
    [REDIS_CONNECTING] = 1u << REDIS_DOWN | 1u << REDIS_GREETING,
    [REDIS_GREETING] = 1u << REDIS_DOWN | 1u << REDIS_UP,
    [REDIS_UP] = 1u << REDIS_DOWN,
};

static void enter(struct redis_client *c, enum redis_state next)
{
    assert((next_states[c->state] & 1u << next) != 0);
    c->state = next;
}

bool redis_client_is_up(const struct redis_client *c)
{
    return c->state == REDIS_UP;
}

const char *redis_client_at(const struct redis_client *c)
{
    return c->at;
}

const char *redis_client_fault(const struct redis_client *c)
{
    return c->fault;
}

int64_t redis_client_heard_ms(const struct redis_client *c)
{
    return c->heard_ms;
}

size_t redis_client_unsent(const struct redis_client *c)
{
    return c->state == REDIS_UP ? tcp_client_unsent(c->tcp) : 0;
}

void redis_client_flush(struct redis_client *c)
{
    if (c->state == REDIS_UP)
        tcp_client_flush(c->tcp);
}

const char *redis_advice(struct str error)
{
    static const struct {
        struct str word;
        const char *advice;
    } known[] = {
        {STR("NOAUTH"), ": write user and password into redis.url"},
        {STR("WRONGPASS"), ": the user or the password in redis.url is wrong"},
        {STR("NOPERM"), ": give the user in redis.url the commands that docs/cluster.md lists"},
        {STR("READONLY"), ": it is a replica; set redis.url to the primary"},
        {STR("OOM"), ": its memory is full; raise maxmemory, or use a Redis for trunks alone"},
        {STR("MISCONF"), ": it cannot write to its disk"},
        {STR("LOADING"), ": it is starting"},
    };

    for (size_t k = 0; k < ARRAY_LEN(known); k++)
        if (str_starts(error, known[k].word))
            return known[k].advice;
    return "";
}

static int64_t now_ms(const struct redis_client *c)
{
    return clock_now_ms(loop_clock(c->loop));
}

static void free_it(struct redis_client *c)
{
    timer_stop(loop_clock(c->loop), &c->timer);
    tcp_client_free(c->tcp);
    address_done(&c->to);
    buf_done(&c->in);
    free(c);
}

void redis_client_close(struct redis_client *c)
{
    if (c == NULL)
        return;
    c->closed = true;
    if (!c->calling)
        free_it(c);
}

/* Runs one handler.  False: it closed the client, which is gone. */
static bool call(struct redis_client *c, void (*plain)(void *ctx), const struct resp *reply)
{
    c->calling = true;
    if (plain != NULL)
        plain(c->ctx);
    else
        c->on.reply(c->ctx, reply);
    c->calling = false;
    if (!c->closed)
        return true;
    free_it(c);
    return false;
}

/* False: the client is gone. */
static bool go_down(struct redis_client *c, const char *why)
{
    bool was_up = c->state == REDIS_UP;

    if (!c->told)
        log_warn(NULL, "redis: %s: %s: %s; trying again", c->options.name, c->at, why);
    snprintf(c->fault, sizeof c->fault, "%s", why);
    c->told = true;
    enter(c, REDIS_DOWN);
    tcp_client_free(c->tcp);
    c->tcp = NULL;
    buf_done(&c->in);
    timer_set(loop_clock(c->loop), &c->timer, c->pause_ms);
    c->pause_ms = c->pause_ms * 2 < LONGEST_PAUSE_MS ? c->pause_ms * 2 : LONGEST_PAUSE_MS;
    return !was_up || call(c, c->on.down, NULL);
}

/* ---- commands ---- */

static void send(struct redis_client *c, const struct str *argv, size_t n)
{
    struct buf out = BUF_INIT;

    buf_printf(&out, "*%zu\r\n", n);
    for (size_t k = 0; k < n; k++) {
        buf_printf(&out, "$%zu\r\n", argv[k].n);
        buf_add_str(&out, argv[k]);
        buf_add_z(&out, "\r\n");
    }
    tcp_client_send(c->tcp, buf_str(&out));
    buf_wipe(&out); /* it may have been a password */
}

void redis_client_send(struct redis_client *c, const struct str *argv, size_t n)
{
    if (c->state == REDIS_UP)
        send(c, argv, n);
}

static void greet(struct redis_client *c)
{
    const struct redis_address *to = &c->to;
    char number[16];

    c->greetings = 1;
    if (to->password != NULL) {
        const struct str auth[] = {STR("AUTH"), str_of(to->user), str_of(to->password)};
        const struct str plain[] = {STR("AUTH"), str_of(to->password)};
        send(c, to->user != NULL ? auth : plain, to->user != NULL ? 3 : 2);
        c->greetings++;
    }
    snprintf(number, sizeof number, "%" PRIu32, to->database);
    send(c, (const struct str[]){STR("SELECT"), str_of(number)}, 2);
}

/* ---- replies ---- */

static bool became_up(struct redis_client *c)
{
    enter(c, REDIS_UP);
    if (c->told && !c->options.quiet)
        log_info(NULL, "redis: %s: %s: connected again", c->options.name, c->at);
    c->told = c->options.quiet;
    c->fault[0] = '\0';
    c->pause_ms = FIRST_PAUSE_MS;
    timer_set(loop_clock(c->loop), &c->timer, LOOK_MS);
    return call(c, c->on.up, NULL);
}

static bool is_pong(const struct resp *r) /* the answer to a PING */
{
    return r->kind == RESP_WORD && str_eq(r->text, STR("PONG"));
}

/* False: the client is gone. */
static bool take(struct redis_client *c, const struct resp *r)
{
    char why[256];

    if (c->state == REDIS_UP) {
        if (c->pings == 0 || !is_pong(r))
            return call(c, NULL, r);
        c->pings--;
        return true;
    }
    if (r->kind == RESP_ERROR) {
        snprintf(why, sizeof why, "the server says %.*s%s", r->text.n < 150 ? (int)r->text.n : 150,
                 r->text.p, redis_advice(r->text));
        return go_down(c, why);
    }
    return --c->greetings > 0 || became_up(c);
}

static void on_data(void *ctx, struct str bytes)
{
    struct redis_client *c = ctx;
    struct resp r;
    ptrdiff_t n = 0;
    size_t at = 0;

    c->heard_ms = now_ms(c);
    buf_add_str(&c->in, bytes);
    while (c->tcp != NULL && (n = resp_read(str_skip(buf_str(&c->in), at), &r)) > 0) {
        at += (size_t)n;
        if (!take(c, &r))
            return;
    }
    if (c->tcp == NULL)
        return;
    if (n < 0 || buf_failed(&c->in)) {
        go_down(c, "what it says is not Redis");
        return;
    }
    buf_consume(&c->in, at);
    if (c->in.n == 0)
        buf_done(&c->in);
}

/* ---- connecting ---- */

static void on_open(void *ctx)
{
    struct redis_client *c = ctx;

    enter(c, REDIS_GREETING);
    c->heard_ms = now_ms(c);
    c->pings = 0;
    timer_set(loop_clock(c->loop), &c->timer, LOOK_MS);
    greet(c);
}

static void on_closed(void *ctx, const char *why)
{
    struct redis_client *c = ctx;

    c->tcp = NULL; /* it frees itself */
    go_down(c, why);
}

static void dial(struct redis_client *c)
{
    static const struct tcp_client_handlers handlers = {on_open, on_data, on_closed};
    struct tcp_client_options opt = {.host = c->to.host,
                                     .port = c->to.port,
                                     .unix_path = c->to.unix_path,
                                     .tls = c->to.tls,
                                     .ca_path = c->options.ca,
                                     .connect_timeout_ms = CONNECT_MS,
                                     .max_unsent = c->options.max_unsent};

    enter(c, REDIS_CONNECTING);
    c->tcp = tcp_client_open(c->loop, &opt, &handlers, c);
}

static void on_timer(struct timer *t)
{
    struct redis_client *c = container_of(t, struct redis_client, timer);

    if (c->state == REDIS_DOWN) {
        dial(c);
        return;
    }
    if (now_ms(c) - c->heard_ms >= DEAF_MS) {
        go_down(c, "no sign of life");
        return;
    }
    if (c->state == REDIS_UP && now_ms(c) - c->heard_ms >= LOOK_MS) {
        send(c, (const struct str[]){STR("PING")}, 1);
        c->pings++;
    }
    timer_set(loop_clock(c->loop), &c->timer, LOOK_MS);
}

struct redis_client *redis_client_open(struct loop *loop,
                                       const struct redis_client_options *options,
                                       const struct redis_client_handlers *handlers, void *ctx,
                                       char *ret_why)
{
    struct redis_client *c = xcalloc(1, sizeof *c);

    *c = (struct redis_client){
        .loop = loop, .options = *options, .on = *handlers, .ctx = ctx, .pause_ms = FIRST_PAUSE_MS};
    if (!address_read(options->url, &c->to, ret_why)) {
        free(c);
        return NULL;
    }
    c->options.url = NULL;
    c->told = options->quiet;
    if (c->to.unix_path != NULL)
        snprintf(c->at, sizeof c->at, "%s", c->to.unix_path);
    else
        snprintf(c->at, sizeof c->at, "%s:%u", c->to.host, c->to.port);
    snprintf(c->fault, sizeof c->fault, "no connection yet");
    timer_init(&c->timer, on_timer);
    timer_set(loop_clock(loop), &c->timer, 0);
    return c;
}
