/* webhook.c - delivers by HTTP POST of the payload, signed when a secret is configured.
 *
 *      deliver, request   POST url; with wake_on_deliver then POST wake_url {agent_id, session_id?}
 *      wake               POST wake_url {agent_id, session_id?, context?}; without one: cannot wake
 *      look               GET status_url must be 2xx; without one HEAD url, any answer is fine
 *
 * A status below 400 is success; 202 says that a request is answered later.  Redirects are not
 * followed.  All requests carry the same headers. */
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "core/caller.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/substrate.h"
#include "net/http_client.h"

#define AT(member) offsetof(struct agent_settings, member)
#define ANSWER_MAX ((size_t)1 << 20)
#define WARNINGS 8        /* passed on of one answer; ... */
#define WARNING_BYTES 500 /* ... longer ones are left out */

struct post {
    struct errand_job job;
    struct dispatch *d;  /* borrowed */
    struct recipient *a; /* borrowed; only for a ring, whose courier it owns */
    struct http_call *call;
    enum { NO_RING, RING_AFTER, RINGING } ring; /* a delivery that also wakes */
    struct buf bell;                            /* the body for wake_url */
    bool skipped;                               /* of the delivery's answer */
    enum errand_kind kind;
    bool by_status;                        /* the status must be 2xx */
    char correlation[DISPATCH_ID_MAX + 1]; /* of a request */
    char session[DISPATCH_ID_MAX + 1];     /* that the answer names */
    char trace[CALLER_TRACE_MAX + 1];      /* "": none */
    struct buf warnings;                   /* of the answer */
};

static const struct config_key keys[] = {
    {"url", CFG_TEXT, CFG_RELOAD, AT(url), .required = true,
     .what = "The URL that gets deliveries."},
    {"wake_url", CFG_TEXT, CFG_RELOAD, AT(wake_url),
     .what = "The URL that gets wakes; without it a wake is a delivery."},
    {"status_url", CFG_TEXT, CFG_RELOAD, AT(status_url),
     .what = "A URL that answers 2xx while the agent is healthy."},
    {"authorization", CFG_SECRET, CFG_RELOAD, AT(authorization),
     .what = "The whole value of the `Authorization` header."},
    {"secret", CFG_SECRET, CFG_RELOAD, AT(secret),
     .what = "Signs each body: `X-Signature: sha256=<hex HMAC-SHA256>`."},
    {"timeout", CFG_DURATION, CFG_RELOAD, AT(timeout_ms), "5s", .min = 100, .max = 300000,
     .what = "How long one request may take."},
    {0},
};

static bool url_ok(const char *url)
{
    return url == NULL || str_starts(str_of(url), STR("http://")) ||
           str_starts(str_of(url), STR("https://"));
}

static bool check(void *settings, char *ret_why)
{
    const struct agent_settings *s = settings;

    if (url_ok(s->url) && url_ok(s->wake_url) && url_ok(s->status_url))
        return true;
    return bh_why(ret_why, "url, wake_url and status_url start with http:// or https://");
}

static const struct config_section config = {.keys = keys,
                                             .size = sizeof(struct agent_settings),
                                             .check = check,
                                             .name = "webhook"};

/* ---- the answer ---- */

static void post_free(struct post *j)
{
    buf_done(&j->warnings);
    buf_done(&j->bell);
    free(j);
}

static void cancel(struct errand_job *base)
{
    struct post *j = container_of(base, struct post, job);

    http_cancel(&j->call);
    post_free(j);
}

static struct errand_end bad_answer(struct str why)
{
    return (struct errand_end){.result = ERRAND_FAILED, .cause = CAUSE_MALFORMED, .text = why};
}

/* Copies what the answer says as a receipt, since the parser is used again during the callback. */
static void read_receipt(struct post *j, struct json doc, struct errand_end *e)
{
    struct str session = json_str(doc, "session_id");
    struct json skipped = json_get(doc, "delivery_skipped");
    size_t n = 0;

    if (session.n < sizeof j->session && str_find(session, '\0') < 0)
        snprintf(j->session, sizeof j->session, "%.*s", STR_FMT(session));
    for (struct json_iter it = {0}; n < WARNINGS && json_next(json_get(doc, "warnings"), &it);) {
        struct str said = json_as_str(it.value);
        struct jw w = jw_begin(&j->warnings);
        if (said.n == 0 || said.n > WARNING_BYTES)
            continue;
        if (n++ > 0)
            buf_add_c(&j->warnings, ',');
        jw_str(&w, said);
    }
    e->session = str_of(j->session);
    e->warnings = buf_str(&j->warnings);
    e->skipped = json_as_bool(skipped, false);
}

/* What a good answer says.  The answer of a request is the body, or `content` of a JSON object. */
static struct errand_end read_answer(struct post *j, struct str body)
{
    struct errand_end e = {.result = ERRAND_DONE};
    bool request = j->kind == ERRAND_REQUEST;
    struct json doc, named;

    if (request)
        e.text = body;
    if (json_parse(j->d->json, body, &doc) && json_is_object(doc)) {
        named = json_get(doc, "correlation_id");
        if (request && json_type(named) > JSON_NULL &&
            !str_eq(json_as_str(named), str_of(j->correlation)))
            return bad_answer(STR("the answer names the correlation_id of another request"));
        if (request && json_type(json_get(doc, "content")) == JSON_STRING)
            e.text = json_str(doc, "content");
        read_receipt(j, doc, &e);
    }
    return utf8_valid(e.text) ? e : bad_answer(STR("the answer is no text"));
}

/* ---- the request ---- */

static http_done_cb on_answer;

static void fetch(struct post *j, const struct recipient *a, struct http_fetch *what)
{
    what->max_body = ANSWER_MAX;
    what->public_only = !a->d->env.settings->allow_private && !*a->d->env.wake_allow_private;
    j->call = http_fetch(a->d->env.http, what, on_answer, j);
}

static void send_body(struct post *j, const struct recipient *a, const char *url, struct str body,
                      int64_t timeout_ms)
{
    const struct agent_settings *s = &a->cfg->s;
    struct buf auth = BUF_INIT, signature = BUF_INIT;
    const char *headers[5] = {"Content-Type: application/json"};
    char trace[CALLER_TRACE_MAX + 16];
    uint8_t mac[SHA256_BYTES];
    size_t n = 1;

    if (s->authorization != NULL) {
        buf_printf(&auth, "Authorization: %s", s->authorization);
        headers[n++] = buf_z(&auth);
    }
    if (s->secret != NULL) {
        hmac_sha256(str_of(s->secret), body, mac);
        buf_add_z(&signature, "X-Signature: sha256=");
        hex_add(&signature, mac, sizeof mac);
        headers[n++] = buf_z(&signature);
    }
    if (j->trace[0] != '\0') {
        snprintf(trace, sizeof trace, "traceparent: %s", j->trace);
        headers[n++] = trace;
    }
    fetch(j, a,
          &(struct http_fetch){.method = "POST",
                               .url = url,
                               .headers = headers,
                               .body = body,
                               .timeout_ms = timeout_ms});
    buf_wipe(&auth);
    buf_done(&signature);
}

/* The end of a delivery whose ring ended with @rung: delivered in any case. */
static struct errand_end delivered(struct post *j, const struct errand_end *rung)
{
    struct buf text = BUF_INIT;
    struct jw w = jw_begin(&j->warnings);

    if (rung->result != ERRAND_DONE) {
        buf_printf(&text, "delivered, but not woken: %.*s", STR_FMT(rung->text));
        if (j->warnings.n > 0)
            buf_add_c(&j->warnings, ',');
        jw_str(&w, buf_str(&text));
        buf_done(&text);
    }
    return (struct errand_end){.result = ERRAND_DONE,
                               .session = str_of(j->session),
                               .warnings = buf_str(&j->warnings),
                               .skipped = j->skipped};
}

static void on_answer(void *ctx, const struct http_result *r)
{
    struct post *j = ctx;
    struct errand_end e = {.result = ERRAND_DONE};
    char why[64];
    bool good = r->status < 400 && (!j->by_status || r->status / 100 == 2);

    j->call = NULL;
    if (r->err != BH_OK) {
        e.text = str_of(r->why != NULL ? r->why : bh_err_word(r->err));
        e.result = ERRAND_FAILED;
        e.cause = CAUSE_NETWORK;
        if (r->err == BH_MALFORMED)
            e.cause = CAUSE_MALFORMED;
        else if (str_contains(e.text, STR("timed out")) || str_contains(e.text, STR("Timeout")))
            e.cause = CAUSE_TIMEOUT;
    } else if (!good && !(j->kind == ERRAND_LOOK && !j->by_status && r->status < 500)) {
        snprintf(why, sizeof why, "the webhook answered HTTP %d", r->status);
        e.result = ERRAND_FAILED;
        e.cause = CAUSE_HTTP_STATUS;
        e.http_status = (unsigned)r->status;
        e.text = str_of(why);
    } else if (j->kind != ERRAND_LOOK && j->ring != RINGING) {
        e = read_answer(j, r->body);
        if (j->kind == ERRAND_REQUEST && r->status == 202 && e.result == ERRAND_DONE)
            e.text = STR(""); /* accepted: the answer comes to meta.reply_url */
    }
    if (j->ring == RING_AFTER && e.result == ERRAND_DONE) {
        j->ring = RINGING;
        j->skipped = e.skipped;
        send_body(j, j->a, j->a->cfg->s.wake_url, buf_str(&j->bell), j->a->cfg->s.timeout_ms);
        return;
    }
    if (j->ring == RINGING)
        e = delivered(j, &e);
    j->job.done(j->job.ctx, &e);
    post_free(j);
}

static struct errand_job *run(struct recipient *a, const struct errand *e, errand_cb *done,
                              void *ctx)
{
    const struct agent_settings *s = &a->cfg->s;
    struct post *j = xcalloc(1, sizeof *j);
    bool delivers = !str_is_empty(e->body);

    *j = (struct post){.job = {.done = done, .ctx = ctx, .cancel = cancel},
                       .d = a->d,
                       .a = a,
                       .kind = e->kind};
    snprintf(j->correlation, sizeof j->correlation, "%.*s", STR_FMT(e->correlation));
    if (caller_trace_valid(e->trace))
        snprintf(j->trace, sizeof j->trace, "%.*s", STR_FMT(e->trace));
    if (e->kind == ERRAND_WAKE && s->wake_url != NULL) {
        struct jw w = jw_begin(&j->bell);
        jw_obj(&w);
        jw_kstr(&w, "agent_id", str_of(a->id));
        jw_kstr_opt(&w, "session_id", e->session);
        if (!delivers)
            jw_kstr_opt(&w, "context", e->text);
        jw_end_obj(&w);
        j->ring = delivers ? RING_AFTER : NO_RING;
    }
    if (e->kind == ERRAND_LOOK) {
        j->by_status = s->status_url != NULL;
        fetch(j, a,
              &(struct http_fetch){.method = j->by_status ? "GET" : "HEAD",
                                   .url = j->by_status ? s->status_url : s->url,
                                   .timeout_ms = s->timeout_ms});
    } else if (delivers) {
        send_body(j, a, s->url, e->body, e->timeout_ms != 0 ? e->timeout_ms : s->timeout_ms);
    } else {
        send_body(j, a, s->wake_url, buf_str(&j->bell), s->timeout_ms);
    }
    return &j->job;
}

const struct substrate_ops substrate_webhook = {.name = "webhook",
                                                .config = &config,
                                                .can = SUBSTRATE_RINGS | SUBSTRATE_ANSWERS,
                                                .run = run};
