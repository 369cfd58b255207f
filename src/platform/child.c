/* child.c - see child.h.
 *
 * The JSON-RPC peer of a program stays until the program's last line is taken, so that answers
 * which the program printed before its end still reach their calls.  Lines of an earlier process
 * have a peer without calls: all their answers are late ones. */
#include "platform/child.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/jsonrpc.h"
#include "net/loop.h"
#include "net/spawner.h"
#include "net/spool.h"
#include "net/tcp_client.h"

enum { STOP_GRACE_MS = 3000, LOG_EVERY_MS = 60000, LAST_WORDS = 120 };

enum child_state {
    CHILD_DRAINING, /* its lines, or those of earlier programs, are taken first */
    CHILD_WAITING,  /* for the end of the backoff */
    CHILD_DIALLING, /* the connection is being opened */
    CHILD_UP,
};

struct child_call {
    struct list link;
    struct child_peer *child; /* borrowed */
    uint64_t number;          /* 0: it was not sent */
    child_cb *done;
    void *ctx;
    struct timer late;
};

struct child_peer {
    struct child_options opt;
    const struct child_ops *ops; /* borrowed */
    void *ctx;
    struct clock *clock; /* borrowed */
    enum child_state state;
    struct spool *spool;     /* owned */
    struct jsonrpc *rpc;     /* owned; of the program; NULL: none runs, and its lines are taken */
    struct jsonrpc *old;     /* owned; of lines that earlier processes left */
    struct spawn *run;       /* owned; NULL: no process */
    struct tcp_client *conn; /* owned; NULL: no connection */
    int to;                  /* the file of the connection's lines; -1: none */
    struct list calls;       /* struct child_call, owned */
    struct timer restart, beat;
    struct child_call *ping; /* NULL: none is open */
    unsigned failures;
    int64_t up_ms, log_ms; /* monotonic */
    unsigned logged;       /* lines of stderr since log_ms */
    uint64_t last_id;
    bool holds; /* the adapter has not taken the last notification yet */
    char why[256], last_words[LAST_WORDS + 1];
    struct child_stats n;
};

/* ---- calls ---- */

static void call_free(struct child_call *w)
{
    timer_stop(w->child->clock, &w->late);
    list_remove(&w->link);
    free(w);
}

static void call_end(struct child_call *w, const struct child_answer *a)
{
    child_cb *done = w->done;
    void *ctx = w->ctx;

    call_free(w);
    done(ctx, a);
}

static struct child_answer answer_of(const struct jsonrpc_result *r)
{
    return (struct child_answer){
        .err = BH_OK, .ok = r->ok, .value = r->value, .code = r->code, .message = r->message};
}

static void on_result(void *ctx, const struct jsonrpc_result *r)
{
    struct child_answer a = answer_of(r);

    call_end(ctx, &a);
}

static void on_late(struct timer *t)
{
    struct child_call *w = container_of(t, struct child_call, late);
    struct child_answer a = {.err = BH_UNAVAILABLE, .message = STR("the program is not running")};

    if (w->number != 0) {
        a = (struct child_answer){.err = BH_UNKNOWN,
                                  .message = STR("the program did not answer in time")};
        jsonrpc_forget(w->child->rpc, &w->number);
    }
    call_end(w, &a);
}

struct child_call *child_call(struct child_peer *c, uint64_t id, const char *method,
                              struct str params, int64_t timeout_ms, child_cb *done, void *ctx)
{
    struct child_call *w = xcalloc(1, sizeof *w);

    *w = (struct child_call){.child = c, .done = done, .ctx = ctx};
    timer_init(&w->late, on_late);
    list_append(&c->calls, &w->link);
    if (c->state == CHILD_UP) {
        w->number = id != 0 ? id : ++c->last_id;
        if (!jsonrpc_call_as(c->rpc, w->number, method, params, on_result, w))
            w->number = 0;
    }
    timer_set(c->clock, &w->late, w->number != 0 ? timeout_ms : 0);
    return w;
}

void child_cancel(struct child_call **call)
{
    struct child_call *w = *call;

    *call = NULL;
    if (w == NULL)
        return;
    if (w->number != 0)
        jsonrpc_forget(w->child->rpc, &w->number);
    call_free(w);
}

/* ---- what it says ---- */

static void on_write(void *ctx, struct str line)
{
    struct child_peer *c = ctx;

    if (c->run != NULL && !spawn_say(c->run, line))
        child_restart(c, "it does not read its input");
    else if (c->conn != NULL)
        tcp_client_send(c->conn, line);
}

static void on_request(void *ctx, uint64_t ticket, struct str method, struct json params)
{
    struct child_peer *c = ctx;

    jsonrpc_refuse(c->rpc, ticket, JSONRPC_NO_METHOD, "bellhop has no methods");
}

static void on_old_request(void *ctx, uint64_t ticket, struct str method, struct json params)
{
    struct child_peer *c = ctx;

    jsonrpc_refuse(c->old, ticket, JSONRPC_NO_METHOD, "");
}

static void on_old_write(void *ctx, struct str line)
{
}

static void on_notified(void *ctx, struct str method, struct json params)
{
    struct child_peer *c = ctx;

    c->holds = !c->ops->notified(c->ctx, method, params);
}

static void on_noise(void *ctx, struct str line, const char *why)
{
    struct child_peer *c = ctx;

    c->n.noise++;
    log_debug(c->opt.log, "a line of the program is ignored: %s", why);
}

static void on_stray(void *ctx, uint64_t number, const struct jsonrpc_result *r)
{
    struct child_peer *c = ctx;
    struct child_answer a = answer_of(r);

    if (number >= CHILD_OWN_IDS && c->ops->late != NULL)
        c->ops->late(c->ctx, number, &a);
}

static const struct jsonrpc_ops rpc_ops = {.write = on_write,
                                           .request = on_request,
                                           .notified = on_notified,
                                           .noise = on_noise,
                                           .stray = on_stray};
static const struct jsonrpc_ops old_ops = {.write = on_old_write,
                                           .request = on_old_request,
                                           .notified = on_notified,
                                           .noise = on_noise,
                                           .stray = on_stray};

static bool on_line(void *ctx, struct str line, bool old)
{
    struct child_peer *c = ctx;

    c->n.lines++;
    c->holds = false;
    jsonrpc_line(old || c->rpc == NULL ? c->old : c->rpc, line);
    return !c->holds;
}

void child_taken(struct child_peer *c)
{
    c->holds = false;
    spool_taken(c->spool);
}

/* What the program complains of, for the log and for the reason of its end. */
static void on_heard(void *ctx, struct str line)
{
    struct child_peer *c = ctx;
    int64_t now_ms = clock_now_ms(c->clock);
    BUF_LOCAL plain = BUF_INIT;

    buf_add_plain(&plain, line);
    snprintf(c->last_words, sizeof c->last_words, "%s", buf_z(&plain));
    if (now_ms - c->log_ms >= LOG_EVERY_MS) {
        if (c->logged > CHILD_LOG_LINES)
            log_info(c->opt.log, "the program said %u more lines", c->logged - CHILD_LOG_LINES);
        c->log_ms = now_ms;
        c->logged = 0;
    }
    if (c->logged++ < CHILD_LOG_LINES)
        log_info(c->opt.log, "the program says: %s", buf_z(&plain));
}

/* ---- is it deaf? ---- */

static void on_ping(void *ctx, const struct child_answer *a)
{
    struct child_peer *c = ctx;

    c->ping = NULL;
    /* Lines that wait to be taken are no silence: the answer may be among them. */
    if (a->err == BH_UNKNOWN && !c->holds && spool_unread(c->spool) == 0)
        child_restart(c, "it does not answer");
}

static void on_beat(struct timer *t)
{
    struct child_peer *c = container_of(t, struct child_peer, beat);

    timer_set(c->clock, &c->beat, CHILD_PING_MS);
    if (c->state != CHILD_UP)
        return;
    if (spool_unread(c->spool) > CHILD_MAX_UNREAD)
        child_restart(c, "it prints faster than its lines can be stored");
    else if (c->opt.ping != NULL && c->ping == NULL)
        c->ping = child_call(c, 0, c->opt.ping, STR_NULL, CHILD_SILENT_MS, on_ping, c);
}

/* ---- its end ---- */

static void plan_restart(struct child_peer *c)
{
    int64_t ms = clock_backoff_ms(c->failures, CHILD_FIRST_MS, CHILD_LAST_MS);

    c->state = CHILD_WAITING;
    timer_set(c->clock, &c->restart, c->failures == 0 ? 0 : ms);
    if (c->failures > 0)
        log_warn(c->opt.log, "%s; next try in %" PRId64 " ms", c->why, ms);
}

static void count_failure(struct child_peer *c)
{
    if (c->up_ms != 0 && clock_now_ms(c->clock) - c->up_ms >= CHILD_WELL_MS)
        c->failures = 0;
    c->failures++;
    c->up_ms = 0;
}

/* No more lines come of it; what it has printed is taken first, then on_dry() runs. */
static void ended(struct child_peer *c, const char *how)
{
    if (c->why[0] == '\0')
        snprintf(c->why, sizeof c->why, "%s %.60s%s%s",
                 c->opt.argv != NULL ? "the program ended:" : "the connection ended:", how,
                 c->last_words[0] != '\0' ? "; it said: " : "", c->last_words);
    if (c->to >= 0)
        close(c->to);
    c->to = -1;
    timer_stop(c->clock, &c->beat);
    count_failure(c);
    c->state = CHILD_DRAINING;
    spool_end(c->spool);
}

static void on_dry(void *ctx)
{
    struct child_peer *c = ctx;
    struct child_answer lost = {.err = BH_UNKNOWN, .message = STR("the program ended")};
    bool was_up = c->rpc != NULL;

    while (!list_is_empty(&c->calls)) {
        struct child_call *w = list_first(&c->calls, struct child_call, link);
        lost.err = w->number != 0 ? BH_UNKNOWN : BH_UNAVAILABLE;
        call_end(w, &lost);
    }
    jsonrpc_free(c->rpc);
    c->rpc = NULL;
    plan_restart(c);
    if (was_up)
        c->ops->down(c->ctx, c->why);
}

static void on_exited(void *ctx, const struct spawn_end *end)
{
    struct child_peer *c = ctx;

    c->run = NULL;
    ended(c, end->how);
}

void child_restart(struct child_peer *c, const char *why)
{
    if (c->state != CHILD_UP)
        return;
    snprintf(c->why, sizeof c->why, "the program is restarted: %s", why);
    log_warn(c->opt.log, "%s", c->why);
    c->state = CHILD_DRAINING;
    if (c->run != NULL) {
        spawn_stop(c->run, STOP_GRACE_MS); /* on_exited() follows */
    } else {
        tcp_client_free(c->conn);
        c->conn = NULL;
        ended(c, "");
    }
}

/* ---- its beginning ---- */

static void begin(struct child_peer *c)
{
    c->rpc = jsonrpc_new(&rpc_ops, c);
    c->state = CHILD_UP;
    c->up_ms = clock_now_ms(c->clock);
    c->why[0] = c->last_words[0] = '\0';
    c->n.starts++;
    timer_set(c->clock, &c->beat, CHILD_PING_MS);
    c->ops->up(c->ctx);
}

static void fail(struct child_peer *c, const char *what, const char *why)
{
    snprintf(c->why, sizeof c->why, "%s: %.150s", what, why);
    count_failure(c);
    plan_restart(c);
    c->ops->down(c->ctx, c->why);
}

static void run(struct child_peer *c)
{
    const char *const more[] = {c->opt.more, NULL};
    int number = c->opt.spawner != NULL
                     ? spawner_find(c->opt.spawner, (const char *const *)c->opt.argv)
                     : -1;
    int to = number >= 0 ? spool_begin(c->spool) : -1;

    if (to < 0) {
        fail(c, c->opt.argv[0], number < 0 ? "restart bellhop, to run it" : strerror(errno));
        return;
    }
    struct spawn_order o = {.command = (unsigned)number,
                            .more = c->opt.more != NULL ? more : NULL,
                            .output_fd = to,
                            .talks = true,
                            .heard = on_heard};
    c->run = spawner_run(c->opt.spawner, &o, on_exited, c);
    close(to);
    if (c->run != NULL) {
        begin(c);
    } else {
        c->rpc = jsonrpc_new(&rpc_ops, c); /* so that on_dry() says down() */
        ended(c, "too many programs run");
    }
}

static void on_open(void *ctx)
{
    struct child_peer *c = ctx;

    c->to = spool_begin(c->spool);
    if (c->to >= 0) {
        begin(c);
        return;
    }
    const char *why = strerror(errno);
    tcp_client_free(c->conn);
    c->conn = NULL;
    fail(c, "the lines of the program cannot be stored", why);
}

static void on_data(void *ctx, struct str bytes)
{
    struct child_peer *c = ctx;

    if (!spool_add(c->spool, c->to, bytes))
        child_restart(c, "its lines cannot be stored");
}

static void on_closed(void *ctx, const char *why)
{
    struct child_peer *c = ctx;

    c->conn = NULL;
    if (c->state == CHILD_DIALLING)
        fail(c, c->opt.address, why);
    else
        ended(c, why);
}

/* "unix:/path" or "host:port", [::1]:port. */
static bool read_address(const char *address, struct tcp_client_options *ret, struct buf *host)
{
    struct str a = str_of(address);
    const char *colon = strrchr(address, ':');
    uint64_t port;

    if (str_starts(a, STR("unix:"))) {
        ret->unix_path = address + strlen("unix:");
        return ret->unix_path[0] == '/' && strlen(ret->unix_path) < 108;
    }
    if (colon == NULL || !str_to_u64(str_of(colon + 1), &port) || port == 0 || port > 65535)
        return false;
    struct str name = str_make(address, (size_t)(colon - address));
    if (name.n > 2 && name.p[0] == '[' && name.p[name.n - 1] == ']')
        name = str_make(name.p + 1, name.n - 2);
    if (name.n == 0 || name.n > 253 || !str_has_only(name, "-.:"))
        return false;
    buf_add_str(host, name);
    ret->host = buf_z(host);
    ret->port = (uint16_t)port;
    return true;
}

const char *child_address_wrong(const char *address)
{
    struct tcp_client_options o = {0};
    BUF_LOCAL host = BUF_INIT;

    return read_address(address, &o, &host) ? NULL : "expected unix:/path or host:port";
}

static void dial(struct child_peer *c)
{
    struct tcp_client_options o = {.max_unsent = SPAWN_UNREAD_BYTES};
    static const struct tcp_client_handlers handlers = {.on_open = on_open,
                                                        .on_data = on_data,
                                                        .on_closed = on_closed};
    BUF_LOCAL host = BUF_INIT;

    (void)read_address(c->opt.address, &o, &host);
    c->state = CHILD_DIALLING;
    c->conn = tcp_client_open(c->opt.loop, &o, &handlers, c);
}

static void on_restart(struct timer *t)
{
    struct child_peer *c = container_of(t, struct child_peer, restart);

    if (c->opt.argv != NULL)
        run(c);
    else
        dial(c);
}

static const struct spool_ops spool_ops = {.line = on_line, .dry = on_dry};

struct child_peer *child_open(const struct child_options *opt, const struct child_ops *ops,
                              void *ctx, char *ret_why)
{
    struct child_peer *c = xcalloc(1, sizeof *c);

    *c = (struct child_peer){.opt = *opt, .ops = ops, .ctx = ctx, .to = -1};
    c->clock = loop_clock(opt->loop);
    list_init(&c->calls);
    timer_init(&c->restart, on_restart);
    timer_init(&c->beat, on_beat);
    c->old = jsonrpc_new(&old_ops, c);
    c->spool = spool_open(opt->loop, opt->dir, opt->max_line, &spool_ops, c, ret_why);
    if (c->spool != NULL)
        return c;
    child_close(c);
    return NULL;
}

void child_close(struct child_peer *c)
{
    if (c == NULL)
        return;
    timer_stop(c->clock, &c->restart);
    timer_stop(c->clock, &c->beat);
    list_each (&c->calls, it, nxt)
        call_free(list_entry(it, struct child_call, link));
    spawn_cancel(&c->run);
    tcp_client_free(c->conn);
    if (c->to >= 0)
        close(c->to);
    spool_free(c->spool);
    jsonrpc_free(c->rpc);
    jsonrpc_free(c->old);
    free(c);
}

bool child_is_up(const struct child_peer *c)
{
    return c->state == CHILD_UP;
}

void child_stats(const struct child_peer *c, struct child_stats *ret)
{
    *ret = c->n;
    ret->unread = spool_unread(c->spool);
}
