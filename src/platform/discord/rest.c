/* rest.c - design.  (rest.h has the contract.)
 *
 *      rest_send -> lane -> start: token fine? budget left? limit says go? -> http_fetch
 *                     ^                                          |no              |
 *                     '------------- outbox_again(delay) <-------'   429, 5xx, ---'--> done()
 *                                                                    no connection
 *
 * The question that matters after every failure is whether Discord may have acted: a request that
 * never got through and one refused with 429 or 503 have not been acted upon; a lost answer or any
 * other 5xx may have been.  Such a request is repeated only when its owner says that twice is once
 * (a message with an enforced nonce, an edit, a read), and ends as "unknown" otherwise. */
#include "platform/discord/rest.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/http_client.h"
#include "platform/discord/limits.h"
#include "platform/platform.h"

enum { ATTEMPT_MS = 10000, FIRST_RETRY_MS = 500, MAX_RETRY_MS = 8000 };

struct rest {
    const struct host_env *env; /* borrowed */
    const char *api_base;       /* borrowed */
    struct buf auth, agent;     /* owned; header lines; auth is wiped */
    struct outbox *box;         /* owned */
    struct limits *limits;      /* owned */
    struct json_parser *parser; /* owned */
    struct list early;          /* calls the outbox had no room for, until they are told */
    bool token_refused, closing;
    uint64_t sent, limited;
};

struct rest_call {
    struct outbox_item item;
    struct rest *rest;                 /* borrowed */
    char *route, *major, *path, *body; /* owned; body NULL: none */
    const char *method;                /* a literal */
    size_t body_n;
    bool repeatable, maybe_done, again;
    unsigned failures;
    struct http_call *http; /* under way; NULL: none */
    rest_done_cb *done;     /* NULL: cancelled */
    void *ctx;
    struct timer early; /* armed in rest->early */
    struct list link;   /* in rest->early */
    char why[160];      /* of the last failure */
};

static void on_start(void *ctx, struct outbox_item *it);
static void on_drop(void *ctx, struct outbox_item *it, enum outbox_drop why);
static const struct outbox_handlers handlers = {on_start, on_drop};
static http_done_cb on_answer;
static timer_cb on_early;

/* ---- life ---- */

struct rest *rest_new(const struct host_env *env, const char *api_base, const char *token)
{
    struct rest *r = xcalloc(1, sizeof *r);

    r->env = env;
    r->api_base = api_base;
    buf_printf(&r->auth, "Authorization: Bot %s", token);
    buf_printf(&r->agent, "User-Agent: DiscordBot (%s, %s)",
               env->public_url != NULL ? env->public_url : "https://bellhop.invalid",
               BELLHOP_VERSION);
    r->box = outbox_new(env->clock, NULL, &handlers, r);
    r->limits = limits_new();
    r->parser = json_parser_new();
    list_init(&r->early);
    return r;
}

static void call_free(struct rest_call *c)
{
    timer_stop(c->rest->env->clock, &c->early);
    list_remove(&c->link);
    http_cancel(&c->http);
    free(c->route);
    free(c->major);
    secret_wipe(c->path, strlen(c->path)); /* it may hold a token */
    free(c->path);
    free(c->body);
    free(c);
}

void rest_free(struct rest *r)
{
    if (r == NULL)
        return;
    r->closing = true;
    outbox_free(r->box);
    list_each (&r->early, it, nxt)
        call_free(list_entry(it, struct rest_call, link));
    limits_free(r->limits);
    json_parser_free(r->parser);
    buf_wipe(&r->auth);
    buf_done(&r->agent);
    free(r);
}

static char *dup_or_null(struct str s)
{
    return s.p != NULL ? str_dup(s) : NULL;
}

struct rest_call *rest_send(struct rest *r, const struct rest_request *q, rest_done_cb *done,
                            void *ctx)
{
    struct rest_call *c = xcalloc(1, sizeof *c);

    c->rest = r;
    c->method = q->method;
    c->route = xstrdup(q->route);
    c->major = str_dup(q->major);
    c->path = str_dup(q->path);
    c->body = dup_or_null(q->body);
    c->body_n = q->body.n;
    c->repeatable = q->repeatable;
    c->done = done;
    c->ctx = ctx;
    list_init(&c->link);
    timer_init(&c->early, on_early);
    if (outbox_add(r->box, &c->item, q->lane.p != NULL ? q->lane : q->major,
                   q->patience_ms > 0 ? q->patience_ms : OUTBOX_PATIENCE_MS) != BH_OK) {
        list_append(&r->early, &c->link);
        timer_set(r->env->clock, &c->early, 0);
    }
    return c;
}

/* ---- endings ---- */

/* Tell the owner; true: it keeps the call for another request. */
static bool tell(struct rest_call *c, const struct rest_answer *a)
{
    rest_done_cb *done = c->done;

    c->again = false;
    c->done = NULL;
    if (done != NULL)
        done(c->ctx, a);
    if (c->again)
        c->done = done;
    return c->again;
}

static void on_early(struct timer *t)
{
    struct rest_call *c = container_of(t, struct rest_call, early);

    tell(c, &(struct rest_answer){.end = REST_TRANSIENT,
                                  .why = "too many requests to Discord are waiting already"});
    call_free(c);
}

static void on_drop(void *ctx, struct outbox_item *it, enum outbox_drop why)
{
    struct rest_call *c = container_of(it, struct rest_call, item);

    if (why == OUTBOX_LATE && !c->rest->closing)
        tell(c,
             &(struct rest_answer){.end = c->maybe_done ? REST_UNKNOWN : REST_TRANSIENT,
                                   .why = c->why[0] != '\0' ? c->why
                                                            : "requests before it took too long"});
    call_free(c);
}

static void finish(struct rest_call *c, const struct rest_answer *a)
{
    struct rest *r = c->rest;

    if (tell(c, a)) {
        c->maybe_done = false;
        c->failures = 0;
        c->why[0] = '\0';
        outbox_again(r->box, &c->item, 0);
        return;
    }
    outbox_done(r->box, &c->item);
    call_free(c);
}

void rest_continue(struct rest_call *c, const char *method, const char *route, struct str path,
                   struct str body)
{
    c->again = true;
    c->method = method;
    free(c->route);
    c->route = xstrdup(route);
    secret_wipe(c->path, strlen(c->path));
    free(c->path);
    free(c->body);
    c->path = str_dup(path);
    c->body = dup_or_null(body);
    c->body_n = body.n;
}

/* A call that waits or runs stays in its lane until it ends, and then tells nobody. */
void rest_cancel(struct rest_call **call)
{
    if (*call != NULL)
        (*call)->done = NULL;
    *call = NULL;
}

/* ---- sending ---- */

static int64_t now_ms(const struct rest *r)
{
    return clock_now_ms(r->env->clock);
}

static void fetch(struct rest_call *c)
{
    struct rest *r = c->rest;
    struct buf url = BUF_INIT;
    int64_t left = c->item.deadline_ms - now_ms(r);
    const char *headers[] = {buf_z(&r->auth), buf_z(&r->agent),
                             c->body != NULL ? "Content-Type: application/json" : NULL, NULL};

    buf_printf(&url, "%s%s", r->api_base, c->path);
    struct http_fetch f = {.method = c->method,
                           .url = buf_z(&url),
                           .headers = headers,
                           .timeout_ms = left < ATTEMPT_MS ? left + 1000 : ATTEMPT_MS};
    if (c->body != NULL)
        f.body = str_make(c->body, c->body_n);
    else if (strcmp(c->method, "POST") == 0)
        f.body = STR("");
    r->sent++;
    c->http = http_fetch(r->env->http, &f, on_answer, c);
    buf_done(&url);
}

static void on_start(void *ctx, struct outbox_item *it)
{
    struct rest *r = ctx;
    struct rest_call *c = container_of(it, struct rest_call, item);

    if (c->done == NULL) { /* cancelled while it waited */
        outbox_done(r->box, it);
        call_free(c);
        return;
    }
    if (r->token_refused) {
        finish(c, &(struct rest_answer){.end = REST_REFUSED, .status = 401, .why = "401"});
        return;
    }
    if (limits_refused_count(r->limits, now_ms(r)) >= LIMITS_MAX_REFUSED) {
        finish(c, &(struct rest_answer){.end = REST_TRANSIENT, .why = rest_problem(r)});
        return;
    }
    int64_t wait = limits_take(r->limits, str_of(c->route), str_of(c->major), now_ms(r));
    if (wait > 0) {
        snprintf(c->why, sizeof c->why, "Discord's rate limit asks to wait %lld s",
                 (long long)(wait + 999) / 1000);
        outbox_again(r->box, it, wait);
        return;
    }
    fetch(c);
}

/* ---- answers ---- */

/* Our clock stands still during a turn, so an answer may be read later than "now" says; a bucket is
 * believed full again a little after Discord's own time, never a little before. */
enum { MARGIN_MS = 100 };

static int64_t header_ms(const struct http_result *res, const char *name)
{
    struct str s = http_result_header(res, name);
    char text[32];

    if (s.n == 0 || s.n >= sizeof text)
        return -1;
    memcpy(text, s.p, s.n);
    text[s.n] = '\0';
    double v = strtod(text, NULL);
    return v >= 0 && v < 1e7 ? (int64_t)(v * 1000 + 0.999) : -1;
}

static void note_limits(struct rest_call *c, const struct http_result *res)
{
    uint64_t remaining;
    struct limits_headers h = {
        .bucket = http_result_header(res, "X-RateLimit-Bucket"),
        .remaining = -1,
        .reset_after_ms = header_ms(res, "X-RateLimit-Reset-After"),
    };

    if (str_to_u64(http_result_header(res, "X-RateLimit-Remaining"), &remaining))
        h.remaining = (int64_t)remaining;
    if (h.reset_after_ms >= 0)
        h.reset_after_ms += MARGIN_MS;
    limits_note(c->rest->limits, str_of(c->route), str_of(c->major), now_ms(c->rest), &h);
}

static void on_limited(struct rest_call *c, const struct http_result *res, struct json body)
{
    struct rest *r = c->rest;
    double seconds = 0;
    bool global = json_as_bool(json_get(body, "global"), false) ||
                  str_eq(http_result_header(res, "X-RateLimit-Scope"), STR("global"));
    int64_t wait = header_ms(res, "Retry-After");

    if (json_as_f64(json_get(body, "retry_after"), &seconds) && seconds >= 0 && seconds < 1e7)
        wait = (int64_t)(seconds * 1000 + 0.999);
    if (wait < 0)
        wait = 1000;
    wait += MARGIN_MS; /* an early knock costs another wait */
    r->limited++;
    if (!str_eq(http_result_header(res, "X-RateLimit-Scope"), STR("shared")))
        limits_refused(r->limits, now_ms(r));
    limits_hit(r->limits, str_of(c->route), str_of(c->major), now_ms(r), wait, global);
    if (global)
        outbox_pause(r->box, wait);
    log_info(NULL, "platform=discord rate limited: route=%s global=%d wait_ms=%lld", c->route,
             global, (long long)wait);
    snprintf(c->why, sizeof c->why, "Discord's rate limit asks to wait %lld s",
             (long long)(wait + 999) / 1000);
    outbox_again(r->box, &c->item, wait);
}

/* The path carries a credential of its own: a refusal speaks of that and not of the bot's. */
static bool is_hook(const struct rest_call *c)
{
    return str_starts(str_of(c->path), STR("/webhooks/"));
}

static bool may_repeat(const struct rest_call *c)
{
    return c->repeatable && !(is_hook(c) && strcmp(c->method, "POST") == 0);
}

/* No usable answer: repeat it when that is safe, else say what is known. */
static void on_trouble(struct rest_call *c, bool maybe_done)
{
    struct rest *r = c->rest;
    int64_t ms = FIRST_RETRY_MS;

    if (maybe_done)
        c->maybe_done = true;
    if (c->maybe_done && !may_repeat(c)) {
        finish(c, &(struct rest_answer){.end = REST_UNKNOWN, .why = c->why});
        return;
    }
    for (unsigned i = 0; i < c->failures && ms < MAX_RETRY_MS; i++)
        ms *= 2;
    c->failures++;
    outbox_again(r->box, &c->item, ms + (int64_t)rand_below(r->env->rand, (uint64_t)ms / 2));
}

static void on_refusal(struct rest_call *c, const struct http_result *res, struct json body)
{
    struct rest *r = c->rest;
    struct rest_answer a = {.end = REST_REFUSED, .status = res->status, .body = body};
    struct str message = json_str(body, "message");

    json_as_i64(json_get(body, "code"), &a.code);
    snprintf(c->why, sizeof c->why, "%.*s", (int)(message.n < 120 ? message.n : 120),
             message.p != NULL ? message.p : "");
    a.why = c->why;
    if ((res->status == 401 || res->status == 403) && !is_hook(c))
        limits_refused(r->limits, now_ms(r));
    if (res->status == 401 && !r->token_refused && !is_hook(c)) {
        r->token_refused = true;
        log_error(NULL, "platform=discord %s", rest_problem(r));
    }
    finish(c, &a);
}

static void on_answer(void *ctx, const struct http_result *res)
{
    struct rest_call *c = ctx;
    struct json body = {0};

    c->http = NULL;
    if (res->err != BH_OK) {
        snprintf(c->why, sizeof c->why, "Discord cannot be reached: %s",
                 res->why != NULL ? res->why : "no answer");
        on_trouble(c, res->err != BH_UNAVAILABLE && res->err != BH_REFUSED);
        return;
    }
    note_limits(c, res);
    if (res->body.n > 0 && !json_parse(c->rest->parser, res->body, &body))
        body = (struct json){0};
    if (res->status >= 200 && res->status < 300) {
        finish(c, &(struct rest_answer){.status = res->status, .body = body});
    } else if (res->status == 429) {
        on_limited(c, res, body);
    } else if (res->status >= 500) {
        snprintf(c->why, sizeof c->why, "Discord answers with HTTP %d", res->status);
        on_trouble(c, res->status != 503);
    } else {
        on_refusal(c, res, body);
    }
}

/* ---- looking ---- */

const char *rest_problem(struct rest *r)
{
    if (r->token_refused)
        return "Discord refuses the bot's token: copy the current one from the Developer Portal "
               "(Bot, Reset Token) into the config and restart bellhop";
    if (limits_refused_count(r->limits, now_ms(r)) >= LIMITS_MAX_REFUSED)
        return "requests to Discord are paused: it refused 1000 of them within ten minutes and "
               "would ban this address at 10000; check the bot's permissions in the channels it "
               "writes to";
    return NULL;
}

bool rest_token_refused(const struct rest *r)
{
    return r->token_refused;
}

void rest_stats(struct rest *r, struct rest_stats *ret)
{
    *ret = (struct rest_stats){.waiting = outbox_waiting(r->box),
                               .running = outbox_running(r->box),
                               .refused = limits_refused_count(r->limits, now_ms(r)),
                               .sent = r->sent,
                               .limited = r->limited};
}
