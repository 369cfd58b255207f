/* jwks.c - fetching public keys.  (jwks.h has the contract.)
 *
 *      IDLE --jwks_refresh()--> [metadata] --its jwks_uri--> keys --> IDLE, fetched()
 *                                    '------- failed --------'------> IDLE, fetched() */
#include "edge/jwks.h"
#include <stdlib.h>
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/url.h"
#include "core/jwt.h"
#include "net/http_client.h"

enum { FETCH_MS = 8000, MAX_BYTES = 1 << 20 };

struct jwks {
    struct jwks_env env;
    char *url;              /* owned */
    struct jwt_keys *keys;  /* owned */
    int64_t fetched_ms;     /* monotonic; -1: never */
    unsigned budget;        /* fetches that may begin now */
    int64_t refilled_ms;    /* monotonic */
    struct http_call *call; /* NULL: idle */
    bool at_keys;           /* the call in flight is for the keys, not for the metadata */
};

struct jwks *jwks_new(const struct jwks_env *env)
{
    struct jwks *j = xcalloc(1, sizeof *j);

    *j = (struct jwks){.env = *env,
                       .url = xstrdup(env->url),
                       .keys = jwt_keys_new(),
                       .fetched_ms = -1,
                       .budget = env->burst,
                       .refilled_ms = clock_now_ms(env->clock)};
    return j;
}

void jwks_free(struct jwks *j)
{
    if (j == NULL)
        return;
    http_cancel(&j->call);
    jwt_keys_free(j->keys);
    free(j->url);
    free(j);
}

struct jwt_keys *jwks_keys(struct jwks *j)
{
    return j->keys;
}

bool jwks_is_fetched(const struct jwks *j)
{
    return j->fetched_ms >= 0;
}

static void fetch(struct jwks *j, const char *url, bool keys);

static void failed(struct jwks *j, const struct http_result *r)
{
    log_warn(NULL, "the keys that sign tokens cannot be fetched: url=%s status=%d %s", j->url,
             r->status, r->why != NULL ? r->why : "");
    j->env.fetched(j->env.ctx);
}

/* The metadata may name only its own host: what it says decides whom bellhop trusts. */
static bool on_same_host(struct str a, struct str b)
{
    struct url x, y;

    return url_split(a, &x) == NULL && url_split(b, &y) == NULL && str_eq(x.scheme, y.scheme) &&
           x.user.p == NULL && str_eq_ci(x.authority, y.authority);
}

static void on_answer(void *ctx, const struct http_result *r)
{
    struct jwks *j = ctx;
    struct json_parser *parser = json_parser_new();
    struct json doc;
    bool ok = r->err == BH_OK && r->status == 200 && json_parse(parser, r->body, &doc);
    struct str uri = ok ? json_str(doc, "jwks_uri") : STR_NULL;

    j->call = NULL;
    if (ok && j->at_keys && json_type(json_get(doc, "keys")) == JSON_ARRAY) {
        jwt_keys_set_jwks(j->keys, doc);
        j->fetched_ms = clock_now_ms(j->env.clock);
        j->env.fetched(j->env.ctx);
    } else if (ok && !j->at_keys && on_same_host(uri, str_of(j->url))) {
        char *url = str_dup(uri);
        fetch(j, url, true);
        free(url);
    } else { /* the keys of the last fetch stay */
        failed(j, r);
    }
    json_parser_free(parser);
}

static void fetch(struct jwks *j, const char *url, bool keys)
{
    j->at_keys = keys;
    j->call =
        http_fetch(j->env.http,
                   &(struct http_fetch){.url = url, .timeout_ms = FETCH_MS, .max_body = MAX_BYTES},
                   on_answer, j);
}

static bool may_fetch(struct jwks *j)
{
    int64_t now_ms = clock_now_ms(j->env.clock);
    int64_t more = (now_ms - j->refilled_ms) / j->env.again_ms;

    if (more > 0) {
        j->budget = more + j->budget < j->env.burst ? j->budget + (unsigned)more : j->env.burst;
        j->refilled_ms += more * j->env.again_ms;
    }
    if (j->budget == 0)
        return false;
    if (j->budget == j->env.burst)
        j->refilled_ms = now_ms;
    j->budget--;
    return true;
}

bool jwks_refresh(struct jwks *j, bool missing)
{
    bool old = j->fetched_ms < 0 || clock_now_ms(j->env.clock) - j->fetched_ms >= j->env.fresh_ms;

    if (!old && !missing)
        return false;
    if (j->call != NULL)
        return true;
    if (!may_fetch(j))
        return false;
    fetch(j, j->url, !j->env.metadata);
    return true;
}
