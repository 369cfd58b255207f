/* rest.c - design.  (rest.h has the contract.)
 *
 *      write: kind->write --> limits --go--> GO           read: 2xx, 4xx --> kind->read
 *                               '--wait--> AGAIN                429, 5xx --> AGAIN, UNKNOWN
 *
 * Before a request is written, rest.c checks the token, the budget of refused requests and the
 * rate limits.  After the answer it updates the limits from the headers.  Discord did not act on
 * a request that it answered with 429 or 503; it may have acted on one with any other 5xx. */
#include "platform/discord/rest.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "platform/attachment.h"
#include "platform/discord/discord_priv.h"
#include "platform/stream.h"

enum {
    ATTEMPT_MS = 10000,
    UPLOAD_MS = 60000,
    NONCE_MS = 120000, /* Discord remembers a nonce for "a few minutes" */
    /* The loop's clock stands still during a turn, so an answer may be read later than "now" says.
     * A bucket counts as full again a little after Discord's own time, never before. */
    MARGIN_MS = 100,
    MAX_LIMITS = 20000, /* entries of each table of limits */
    GLOBAL_PER_SECOND = 50,
    SLOTS = 10, /* minutes that refused requests are counted for */
    SLOT_MS = 60000,
};

/* ---- rate limits ----
 *
 * Two tables: route + major -> key of the bucket, and bucket + major -> how much is left until
 * when.  A route has no bucket before its first answer and is not limited until then; the sender's
 * lanes have one request in flight per channel, so at most one leaves without a limit.  A full
 * table is emptied: that bounds the memory and costs at most one refused request per bucket. */

struct limit_bucket {
    char *key; /* owned */
    int64_t remaining, reset_ms;
};

struct limit_route {
    char *key;    /* owned */
    char *bucket; /* owned; the bucket's key */
};

struct discord_limits {
    struct map routes, buckets; /* values owned */
    struct buf scratch;
    int64_t global_until_ms;
    int64_t second_ms; /* when the second of @in_second began */
    unsigned in_second;
    struct {
        int64_t minute;
        unsigned n;
    } refused[SLOTS]; /* a ring */
};

struct discord_limits *discord_limits_new(void)
{
    return xcalloc(1, sizeof(struct discord_limits));
}

static void forget_limits(struct discord_limits *l)
{
    void *v;

    for (size_t at = 0; map_next(&l->routes, &at, &v);) {
        struct limit_route *r = v;
        free(r->key);
        free(r->bucket);
        free(r);
    }
    for (size_t at = 0; map_next(&l->buckets, &at, &v);) {
        struct limit_bucket *b = v;
        free(b->key);
        free(b);
    }
    map_done(&l->routes);
    map_done(&l->buckets);
    l->routes = l->buckets = MAP_INIT;
}

void discord_limits_free(struct discord_limits *l)
{
    if (l == NULL)
        return;
    forget_limits(l);
    buf_done(&l->scratch);
    free(l);
}

/* @a, a separator, @b; borrowed from l->scratch. */
static struct str pair(struct discord_limits *l, struct str a, struct str b)
{
    buf_reset(&l->scratch);
    buf_add_str(&l->scratch, a);
    buf_add_c(&l->scratch, '\x1f');
    buf_add_str(&l->scratch, b);
    return buf_str(&l->scratch);
}

/* The bucket of this route; until Discord names one, a bucket of its own. */
static struct limit_bucket *bucket_of(struct discord_limits *l, struct str route, struct str major,
                                      bool make)
{
    struct str key = pair(l, route, major);
    const struct limit_route *r = map_get(&l->routes, key);

    if (r != NULL)
        key = str_of(r->bucket);
    struct limit_bucket *b = map_get(&l->buckets, key);
    if (b == NULL && make) {
        b = xcalloc(1, sizeof *b);
        b->key = str_dup(key);
        map_put(&l->buckets, str_of(b->key), b);
    }
    return b;
}

int64_t discord_limits_take(struct discord_limits *l, struct str route, struct str major,
                            int64_t now_ms)
{
    struct limit_bucket *b = bucket_of(l, route, major, false);

    if (l->global_until_ms > now_ms)
        return l->global_until_ms - now_ms;
    if (b != NULL && b->remaining <= 0 && b->reset_ms > now_ms)
        return b->reset_ms - now_ms;
    if (now_ms - l->second_ms >= 1000) {
        l->second_ms = now_ms;
        l->in_second = 0;
    }
    if (l->in_second >= GLOBAL_PER_SECOND)
        return l->second_ms + 1000 - now_ms;
    l->in_second++;
    if (b != NULL && b->reset_ms > now_ms)
        b->remaining--;
    return 0;
}

void discord_limits_note(struct discord_limits *l, struct str route, struct str major,
                         int64_t now_ms, const struct discord_limits_headers *h)
{
    if (map_count(&l->routes) >= MAX_LIMITS || map_count(&l->buckets) >= MAX_LIMITS)
        forget_limits(l);
    if (!str_is_empty(h->bucket)) {
        struct str key = pair(l, route, major);
        struct limit_route *r = map_get(&l->routes, key);
        if (r == NULL) {
            r = xcalloc(1, sizeof *r);
            r->key = str_dup(key);
            map_put(&l->routes, str_of(r->key), r);
        }
        key = pair(l, h->bucket, major);
        if (!str_eq(str_of(r->bucket), key)) {
            free(r->bucket);
            r->bucket = str_dup(key);
        }
    }
    if (h->remaining < 0 || h->reset_after_ms < 0)
        return;
    struct limit_bucket *b = bucket_of(l, route, major, true);
    b->remaining = h->remaining;
    b->reset_ms = now_ms + h->reset_after_ms;
}

void discord_limits_hit(struct discord_limits *l, struct str route, struct str major,
                        int64_t now_ms, int64_t wait_ms, bool global)
{
    if (global) {
        if (now_ms + wait_ms > l->global_until_ms)
            l->global_until_ms = now_ms + wait_ms;
        return;
    }
    struct limit_bucket *b = bucket_of(l, route, major, true);
    b->remaining = 0;
    b->reset_ms = now_ms + wait_ms;
}

void discord_limits_refused(struct discord_limits *l, int64_t now_ms)
{
    int64_t minute = now_ms / SLOT_MS;
    size_t at = (size_t)minute % SLOTS;

    if (l->refused[at].minute != minute)
        l->refused[at].n = 0;
    l->refused[at].minute = minute;
    l->refused[at].n++;
}

unsigned discord_limits_refused_count(const struct discord_limits *l, int64_t now_ms)
{
    unsigned n = 0;

    for (int i = 0; i < SLOTS; i++)
        if (now_ms / SLOT_MS - l->refused[i].minute < SLOTS)
            n += l->refused[i].n;
    return n;
}

/* ---- error texts for refusals ----
 *
 * Discord's own message is passed on only when it has no words that a gateway would act on. */

static const struct sender_refusal refusals[] = {
    {10003, "Discord does not know this channel: it was deleted, or the bot was removed from it"},
    {10004, "the bot is not in this Discord server any more: invite it again"},
    {10008, "this message does not exist any more on Discord"},
    {20022, "Discord allows no more edits of this announcement for now"},
    {20028, "Discord allows no more messages in this channel for now"},
    {30046, "Discord allows no more edits of this old message for now"},
    {40001, "Discord refuses the bot's token: put the current one into bellhop's config"},
    {40333, "Discord's front server refuses bellhop's requests: check `api_base` and proxies"},
    {50001, "the bot cannot see this Discord channel: give it View Channel there"},
    {50005, "the bot can only edit messages of its own"},
    {50006, "there is nothing to send: the text is empty"},
    {50007, "this person does not take direct messages from the bot on Discord"},
    {50008, "this Discord channel does not take text messages"},
    {50013, "the bot lacks a permission in this Discord channel: give it Send Messages (in "
            "threads: Send Messages in Threads)"},
    {50024, "Discord does not allow this in this kind of channel"},
    {50035, "Discord does not accept this message as it is"},
    {50083, "this Discord thread is archived: reopen it first"},
    {50278, "the bot shares no Discord server with this person and cannot write to them"},
    {160005, "this Discord thread is locked"},
    {200000, "the server's AutoMod blocked this message"},
    {240000, "Discord blocked this message because of a link in it"},
    {0},
};

/* Writes a refusal as a sentence that a person can act on. */
static void write_refusal(struct sender_verdict *v)
{
    const char *sentence = sender_refusal(refusals, v->code);
    struct str words = json_str(v->answer, "message");
    char message[121];

    if (sentence == NULL && v->status == 401)
        sentence = sender_refusal(refusals, 40001);
    if (sentence != NULL) {
        snprintf(v->why, sizeof v->why, "%s", sentence);
        return;
    }
    snprintf(message, sizeof message, "%.*s", (int)(words.n < 120 ? words.n : 120),
             words.n > 0 ? words.p : "");
    snprintf(v->why, sizeof v->why, "Discord refused this (HTTP %d, code %" PRId64 ")%s%s",
             v->status, v->code, message[0] != '\0' && !sender_is_loaded(message) ? ": " : "",
             sender_is_loaded(message) ? "" : message);
}

/* ---- writing ---- */

static void say_wait(struct sender_verdict *v, int64_t wait_ms)
{
    v->wait_ms = wait_ms;
    sender_say(v, SENDER_AGAIN, "Discord's rate limit asks to wait %" PRId64 " s",
               (wait_ms + 999) / 1000);
}

static void write_request(struct discord *d, struct discord_request *r, struct sender_request *q)
{
    buf_add_z(&q->url, d->base.api_base);
    buf_add_str(&q->url, buf_str(&r->path));
    q->method = r->method;
    q->no_body = r->body.n == 0 && strcmp(r->method, "GET") == 0;
    q->headers[0] = buf_z(&d->rest.auth);
    q->headers[1] = buf_z(&d->rest.agent);
    q->once = r->once;
    q->timeout_ms = ATTEMPT_MS;
    if (r->file != NULL) {
        struct multipart m;
        multipart_begin(&m, d->base.env->rand);
        multipart_json(&m, "payload_json", buf_str(&r->body));
        multipart_file(&m, "files[0]", r->file);
        multipart_end(&m, r->file, q);
        q->timeout_ms = UPLOAD_MS;
        return;
    }
    buf_add_str(&q->body, buf_str(&r->body));
    q->headers[2] = r->body.n > 0 ? "Content-Type: application/json" : NULL;
}

static void rest_write(struct platform *p, struct outgoing *o, struct sender_request *q,
                       struct sender_verdict *v)
{
    struct discord *d = discord_of(p);
    struct discord_outgoing *x = discord_outgoing_of(o);
    const char *problem = discord_rest_problem(d);
    struct discord_request r = {0};

    if (problem != NULL) {
        v->end = d->rest.token_refused ? SENDER_REFUSED : SENDER_FAILED;
        v->status = d->rest.token_refused ? 401 : 0;
        snprintf(v->why, sizeof v->why, "%s", problem);
        if (d->rest.token_refused)
            write_refusal(v);
        return;
    }
    if (x->kind->write(x, &r, v)) {
        x->route = r.route;
        x->by_token = r.by_token;
        snprintf(x->major, sizeof x->major, "%" PRIu64, r.major);
        int64_t wait_ms = discord_limits_take(d->rest.limits, str_of(x->route), str_of(x->major),
                                              clock_now_ms(d->base.env->clock));
        if (wait_ms > 0) {
            say_wait(v, wait_ms);
        } else {
            write_request(d, &r, q);
            v->end = SENDER_GO;
        }
    }
    buf_wipe(&r.path);
    buf_done(&r.body);
}

/* ---- reading ---- */

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

static void read_limited(const struct discord_outgoing *x, const struct http_result *res,
                         struct json body, struct sender_verdict *v)
{
    struct discord *d = x->d;
    double seconds = 0;
    bool global = json_as_bool(json_get(body, "global"), false) ||
                  str_eq(http_result_header(res, "X-RateLimit-Scope"), STR("global"));
    int64_t wait = res->retry_after_ms;

    if (json_as_f64(json_get(body, "retry_after"), &seconds) && seconds >= 0 && seconds < 1e7)
        wait = (int64_t)(seconds * 1000 + 0.999);
    if (wait < 0)
        wait = 1000;
    wait += MARGIN_MS; /* a retry that is too early costs another wait */
    d->rest.limited++;
    if (!str_eq(http_result_header(res, "X-RateLimit-Scope"), STR("shared"))) {
        discord_limits_refused(d->rest.limits, clock_now_ms(d->base.env->clock));
        sender_blame(&x->out);
    }
    if (!global)
        pace_hit(sender_budget(d->base.sender), str_of(x->major), wait);
    discord_limits_hit(d->rest.limits, str_of(x->route), str_of(x->major),
                       clock_now_ms(d->base.env->clock), wait, global);
    if (global)
        sender_pause(d->base.sender, wait);
    log_info(&d->base.log, "rate limited: route=%s global=%d wait_ms=%" PRId64, x->route, global,
             wait);
    say_wait(v, wait);
}

/* Counts refused requests, and notes a refused token.  A 401 for a path with its own credential
 * says nothing about the bot's token. */
static void note_refusal(const struct discord_outgoing *x, int status)
{
    struct discord *d = x->d;

    if (x->by_token || (status != 401 && status != 403))
        return;
    discord_limits_refused(d->rest.limits, clock_now_ms(d->base.env->clock));
    sender_blame(&x->out);
    if (status == 401 && !d->rest.token_refused) {
        d->rest.token_refused = true;
        log_error(&d->base.log, "%s", discord_rest_problem(d));
    }
}

static void rest_read(struct platform *p, struct outgoing *o, const struct http_result *res,
                      struct sender_verdict *v)
{
    struct discord_outgoing *x = discord_outgoing_of(o);
    uint64_t remaining;
    struct discord_limits_headers h = {
        .bucket = http_result_header(res, "X-RateLimit-Bucket"),
        .remaining = -1,
        .reset_after_ms = header_ms(res, "X-RateLimit-Reset-After"),
    };
    if (str_to_u64(http_result_header(res, "X-RateLimit-Remaining"), &remaining))
        h.remaining = (int64_t)remaining;
    if (h.reset_after_ms >= 0)
        h.reset_after_ms += MARGIN_MS;
    discord_limits_note(x->d->rest.limits, str_of(x->route), str_of(x->major),
                        clock_now_ms(x->d->base.env->clock), &h);
    if (res->body.n > 0 && !json_parse(x->d->base.answers, res->body, &v->answer))
        v->answer = (struct json){0};
    if (res->status == 429) {
        read_limited(x, res, v->answer, v);
    } else if (res->status >= 500) {
        bool acted = res->status != 503;
        sender_say(v, acted ? SENDER_UNKNOWN : SENDER_AGAIN, "Discord answers with HTTP %d%s",
                   res->status, acted ? "; it may have been delivered" : "");
    } else if (res->status >= 200 && res->status < 300 && res->status != 204 &&
               json_type(v->answer) == JSON_ABSENT) {
        snprintf(v->why, sizeof v->why,
                 "something else answered in Discord's place; it may have been delivered");
    } else {
        v->end = SENDER_DONE;
        if (res->status < 200 || res->status >= 300) {
            v->end = SENDER_REFUSED;
            v->code = json_i64(v->answer, "code", 0);
            write_refusal(v);
            note_refusal(x, res->status);
        }
        if (x->kind->read != NULL)
            x->kind->read(x, v);
    }
}

static void rest_outgoing_free(struct outgoing *o)
{
    struct discord_outgoing *x = discord_outgoing_of(o);

    x->kind->free(x);
}

/* ---- streaming ---- */

/* Discord counts for each channel, and a thread is one. */
static struct str stream_place(struct platform *p, const struct action *a)
{
    return a->thread_id.n > 0 ? a->thread_id : a->chat_id;
}

/* Discord counts edits for each channel, five in five seconds, and 50 requests a second in all, of
 * which streaming takes half.  The exact limits are learned from the answers, as for others. */
static const struct stream_ops streaming = {
    .place = stream_place,
    .pace = {.per_second = 25, .burst = 10, .gap_ms = 1100, .chat_burst = 4},
    .message = {.max = DISCORD_MAX_CONTENT, .unit = SPLIT_CHARS},
};

const struct sender_ops discord_sender = {
    .write = rest_write,
    .read = rest_read,
    .free = rest_outgoing_free,
    .key_ms = NONCE_MS,
    .stream = &streaming,
};

/* ---- questions ---- */

struct rest_question {
    struct discord_outgoing base; /* first */
    const char *method, *route;
    uint64_t major;
    char *path, *body; /* owned; the path may be secret */
    bool by_token;
};

static bool ask_write(struct discord_outgoing *x, struct discord_request *r,
                      struct sender_verdict *v)
{
    struct rest_question *k = container_of(x, struct rest_question, base);

    r->method = k->method;
    r->route = k->route;
    r->major = k->major;
    r->by_token = k->by_token;
    r->once = strcmp(k->method, "POST") == 0;
    buf_add_z(&r->path, k->path);
    buf_add_z(&r->body, k->body);
    return true;
}

static void ask_free(struct discord_outgoing *x)
{
    struct rest_question *k = container_of(x, struct rest_question, base);

    secret_wipe(k->path, strlen(k->path));
    free(k->path);
    free(k->body);
    free(k);
}

struct outgoing *discord_ask(struct discord *d, const struct discord_question *q,
                             sender_told_cb *told, void *ctx)
{
    static const struct discord_kind kind = {.write = ask_write, .free = ask_free};
    struct rest_question *k = xcalloc(1, sizeof *k);

    *k = (struct rest_question){.base = {.d = d, .kind = &kind},
                                .route = q->route,
                                .major = q->major,
                                .method = q->method != NULL ? q->method : "GET",
                                .path = str_dup(q->path),
                                .body = str_dup(q->body.p != NULL ? q->body : STR("")),
                                .by_token = q->by_token};
    sender_ask(d->base.sender, &k->base.out,
               &(struct sender_question){.lane = q->lane,
                                         .tenant = q->tenant,
                                         .patience_ms = q->patience_ms,
                                         .told = told,
                                         .ctx = ctx});
    return &k->base.out;
}

/* ---- life ---- */

void discord_rest_open(struct discord *d)
{
    buf_printf(&d->rest.auth, "Authorization: Bot %s", d->cfg->token);
    buf_printf(&d->rest.agent, "User-Agent: DiscordBot (%s, %s)",
               d->base.env->public_url != NULL ? d->base.env->public_url
                                               : "https://bellhop.invalid",
               BELLHOP_VERSION);
    d->rest.limits = discord_limits_new();
}

void discord_rest_close(struct discord *d)
{
    discord_limits_free(d->rest.limits);
    buf_wipe(&d->rest.auth);
    buf_done(&d->rest.agent);
}

const char *discord_rest_problem(struct discord *d)
{
    if (d->rest.token_refused)
        return "Discord refuses the bot's token: copy the current one from the Developer Portal "
               "(Bot, Reset Token) into the config and restart bellhop";
    if (discord_limits_refused_count(d->rest.limits, clock_now_ms(d->base.env->clock)) >=
        DISCORD_MAX_REFUSED)
        return "requests to Discord are paused: it refused 1000 of them within ten minutes and "
               "would ban this address at 10000; check the bot's permissions in the channels it "
               "writes to";
    return NULL;
}
