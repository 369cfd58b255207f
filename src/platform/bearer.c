/* bearer.c - access tokens.  (bearer.h has the contract.) */
#include "platform/bearer.h"
#include <stdio.h>
#include "base/clock.h"
#include "net/http_client.h"
#include "platform/platform.h"
#include "platform/sender.h"

enum {
    FETCH_MS = 10000,
    AHEAD_MS = 300000, /* a new token is fetched so long before the old one ends */
    AGAIN_MS = 1000,   /* after the first failure; then twice as long each time */
    AGAIN_MAX_MS = 60000,
    MAX_TOKEN = 16384,
};

static int64_t now_ms(const struct bearer *b)
{
    return clock_now_ms(b->p->env->clock);
}

static bool is_good(const struct bearer *b)
{
    return b->text.n > 0 && now_ms(b) < b->until_ms;
}

static void fail(struct bearer *b, enum bh_err err)
{
    int64_t wait_ms = AGAIN_MS;

    for (unsigned i = 0; i < b->failures && wait_ms < AGAIN_MAX_MS; i++)
        wait_ms *= 2;
    b->failures++;
    b->refused = err == BH_REFUSED;
    b->again_ms = now_ms(b) + (wait_ms < AGAIN_MAX_MS ? wait_ms : AGAIN_MAX_MS);
    if (b->refused)
        platform_set_problem(b->p, b->why);
    else
        log_warn(&b->p->log, "%s", b->why);
}

static void on_fetched(void *ctx, const struct http_result *r)
{
    struct bearer *b = ctx;
    struct str token = STR_NULL;
    int64_t life_ms = 0;
    enum bh_err err = BH_UNAVAILABLE;

    b->call = NULL;
    snprintf(b->why, sizeof b->why, "%s gives no access token: it cannot be reached",
             b->p->ops->label);
    if (r->err == BH_OK)
        err = b->ops->read(b->p, r->status, r->body, &token, &life_ms, b->why);
    if (err == BH_OK && token.n > 0 && token.n <= MAX_TOKEN && life_ms > 0) {
        buf_wipe(&b->text);
        buf_add_str(&b->text, token);
        b->until_ms = now_ms(b) + life_ms;
        b->refresh_ms = now_ms(b) + (life_ms > 4 * AHEAD_MS ? life_ms - AHEAD_MS : life_ms * 3 / 4);
        b->fetched++;
        b->failures = 0;
        if (b->refused)
            platform_set_problem(b->p, NULL);
        b->refused = false;
    } else {
        fail(b, err);
    }
    sender_resume(b->p->sender, NULL);
}

struct str bearer_get(struct bearer *b)
{
    bool good = is_good(b);

    if (b->call == NULL && now_ms(b) >= b->again_ms && (!good || now_ms(b) >= b->refresh_ms)) {
        struct bearer_ask q = {0};
        if (b->ops->ask(b->p, &q, b->why)) {
            const char *const headers[] = {q.type, NULL};
            b->call = http_fetch(b->p->env->http,
                                 &(struct http_fetch){.method = q.type != NULL ? "POST" : NULL,
                                                      .url = buf_z(&q.url),
                                                      .headers = headers,
                                                      .body = q.type != NULL ? buf_str(&q.body)
                                                                             : STR_NULL,
                                                      .timeout_ms = FETCH_MS,
                                                      .max_body = 4 * MAX_TOKEN},
                                 on_fetched, b);
        } else {
            fail(b, BH_REFUSED);
        }
        buf_wipe(&q.url);
        buf_wipe(&q.body);
    }
    return good ? buf_str(&b->text) : STR_NULL;
}

void bearer_wait(struct bearer *b, struct sender_verdict *v)
{
    if (b->call != NULL) {
        v->end = SENDER_HOLD;
    } else if (b->refused) {
        sender_say(v, SENDER_FAILED, "%s", b->why);
    } else {
        v->wait_ms = b->again_ms > now_ms(b) ? b->again_ms - now_ms(b) : AGAIN_MS;
        sender_say(v, SENDER_AGAIN, "%s", b->why);
    }
}

void bearer_refused(struct bearer *b)
{
    buf_wipe(&b->text);
}

void bearer_done(struct bearer *b)
{
    http_cancel(&b->call);
    buf_wipe(&b->text);
}
