/* threads.c - the two threads that run the application's code.
 *
 * Each thread takes one item at a time off its list and releases the lock while a handler runs, so
 * a handler may call any function.  Notices have their own list and thread, because an interrupt
 * concerns the event whose handler is running and must not wait for that handler.
 *
 * The events thread declares the relevance policy before it delivers the first event: one HTTP call
 * per platform, with the gateway's credential.  The socket thread keeps reading meanwhile. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "client.h"
#include "core/token.h"
#include "options.h"

/* ---- declaring the relevance policy ---- */

static void write_body(struct buf *out, const struct bhgw_policy *p, const char *platform)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "platform", str_of(platform));
    jw_kbool(&w, "requireAddress", p->require_address);
    jw_karr(&w, "freeResponseScopes");
    for (size_t i = 0; i < p->n_free_scopes; i++)
        jw_str(&w, str_of(p->free_scopes[i]));
    jw_end_arr(&w);
    jw_kbool(&w, "allowOtherBots", p->allow_other_bots);
    jw_end_obj(&w);
}

static struct curl_slist *write_headers(const struct bhgw *gw)
{
    struct buf line = BUF_INIT;
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");

    if (gw->opt.gateway_id != NULL) {
        buf_add_z(&line, "Authorization: Bearer ");
        token_mint(&line, str_of(gw->opt.gateway_id), str_of(gw->opt.secret),
                   (int64_t)time(NULL) + gw->opt.token_ttl_s);
        headers = curl_slist_append(headers, buf_z(&line));
        buf_wipe(&line);
    }
    return headers;
}

static size_t swallow(char *bytes, size_t size, size_t n, void *ctx)
{
    (void)bytes;
    (void)ctx;
    return size * n; /* the body is ignored; only the status counts */
}

static void set_up(CURL *easy, const struct bhgw *gw, const char *url, struct curl_slist *headers,
                   const char *body)
{
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)gw->opt.connect_timeout_ms);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, gw->opt.user_agent);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, swallow);
    if (gw->opt.ca_file != NULL)
        curl_easy_setopt(easy, CURLOPT_CAINFO, gw->opt.ca_file);
}

/* The HTTP status; 0: no answer. */
static long post(const struct bhgw *gw, CURL *easy, const char *platform)
{
    struct buf body = BUF_INIT, url = BUF_INIT;
    struct curl_slist *headers = write_headers(gw);
    long status = 0;

    write_body(&body, gw->opt.policy, platform);
    buf_printf(&url, "%s/relay/policy", gw->url.http);
    set_up(easy, gw, buf_z(&url), headers, buf_z(&body));
    if (curl_easy_perform(easy) == CURLE_OK)
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    for (struct curl_slist *h = headers; h != NULL; h = h->next)
        secret_wipe(h->data, strlen(h->data));
    curl_slist_free_all(headers);
    buf_done(&body);
    buf_done(&url);
    return status;
}

static bool is_repeated(const struct bhgw_options *o, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(o->identities[k].platform, o->identities[i].platform) == 0)
            return true;
    return false;
}

/* Declare gw->opt.policy for every platform of the identities but "relay", which is none.  Blocks,
 * at most connect_timeout_ms per platform; without the lock.  False: a platform's declaration was
 * refused, which is in the log.  Nothing to declare is true. */
static bool post_policies(struct bhgw *gw)
{
    bool ok = true;
    bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; /* counted, thread-safe */

    for (size_t i = 0; i < gw->opt.n_identities; i++) {
        const char *platform = gw->opt.identities[i].platform;
        if (strcmp(platform, PLATFORM_RELAY) == 0 || is_repeated(&gw->opt, i))
            continue;
        CURL *easy = ready ? curl_easy_init() : NULL;
        long status = easy != NULL ? post(gw, easy, platform) : 0;
        if (easy != NULL)
            curl_easy_cleanup(easy);
        if (status == 200)
            continue;
        ok = false;
        gwc_log(gw, BHGW_LOG_WARN,
                "the relevance policy for %s was not taken (HTTP status %ld): the connector goes "
                "on as before; it is declared again with the next connection",
                platform, status);
    }
    if (ready)
        curl_global_cleanup();
    return ok;
}

/* ---- the threads ---- */

/* ---- events ---- */

static void declare_policy(struct bhgw *gw)
{
    gw->policy_due = false;
    gw->events_busy = true;
    pthread_mutex_unlock(&gw->lock);
    bool ok = post_policies(gw);
    pthread_mutex_lock(&gw->lock);
    gw->policy_declared = ok;
    gw->events_busy = false;
    gwc_wake_locked(gw);
}

static enum bhgw_verdict run_event(struct bhgw *gw, const struct gwc_delivery *d, struct json doc,
                                   struct arena *a)
{
    struct bhgw_event ev;

    if (gw->opt.on_event == NULL || !gwc_event_read(doc, a, &ev))
        return BHGW_RELEASE;
    ev.delivery = d->number;
    ev.json = d->line;
    ev.json_bytes = d->bytes;
    return gw->opt.on_event(gw->opt.ctx, gw, &ev);
}

static enum bhgw_verdict run_passthrough(struct bhgw *gw, const struct gwc_delivery *d,
                                         struct json doc, struct arena *a)
{
    struct bhgw_passthrough fwd;

    if (!gwc_passthrough_read(doc, a, &fwd))
        return BHGW_RELEASE;
    if (gw->opt.on_passthrough == NULL)
        return BHGW_ACK;
    fwd.delivery = d->number;
    fwd.json = d->line;
    fwd.json_bytes = d->bytes;
    return gw->opt.on_passthrough(gw->opt.ctx, gw, &fwd);
}

static void handle_delivery(struct bhgw *gw, struct json_parser *parser, struct arena *arena)
{
    struct gwc_delivery *d = list_first(&gw->deliveries, struct gwc_delivery, link);
    enum bhgw_verdict verdict = BHGW_RELEASE; /* it was parsed before: else memory is exhausted */
    struct json doc;

    list_remove(&d->link);
    gw->n_deliveries--;
    gw->delivery_bytes -= d->bytes;
    gw->events_busy = true;
    gw->stats.events++;
    pthread_mutex_unlock(&gw->lock);
    if (json_parse(parser, str_make(d->line, d->bytes), &doc))
        verdict = (d->passthrough ? run_passthrough : run_event)(gw, d, doc, arena);
    arena_reset(arena);
    pthread_mutex_lock(&gw->lock);
    gw->events_busy = false;
    gw->drain_from_events = false;
    gwc_settle_locked(gw, d->number, verdict);
    if (gw->phase == GWC_DRAINING)
        gwc_wake_locked(gw); /* it may be waiting for us */
    free(d);
}

void *gwc_events_main(void *arg)
{
    struct bhgw *gw = arg;
    struct json_parser *parser = json_parser_new();
    struct arena arena = ARENA_INIT;

    pthread_mutex_lock(&gw->lock);
    while (!gw->quit) {
        if (gw->policy_due)
            declare_policy(gw);
        else if (!list_is_empty(&gw->deliveries) && gw->want != GWC_WANT_CLOSED)
            handle_delivery(gw, parser, &arena);
        else /* closing: deliveries without a running handler stay with the connector */
            pthread_cond_wait(&gw->events_wakeup, &gw->lock);
    }
    pthread_mutex_unlock(&gw->lock);
    arena_done(&arena);
    json_parser_free(parser);
    return NULL;
}

/* ---- notices ---- */

void gwc_notice_free(struct gwc_notice *n)
{
    free(n->a);
    free(n->b);
    bhgw_descriptor_free(n->descriptor);
    if (n->request != NULL)
        gwc_request_free(n->request);
    free(n);
}

static bool is_wanted(const struct bhgw *gw, const struct gwc_notice *n)
{
    switch (n->kind) {
    case GWC_NOTICE_STATE:
        return gw->opt.on_state != NULL;
    case GWC_NOTICE_DESCRIPTOR:
        return gw->opt.on_descriptor != NULL;
    case GWC_NOTICE_INTERRUPT: /* counted, so always taken off the list by the thread */
    case GWC_NOTICE_DONE:
        break;
    }
    return true;
}

void gwc_notify_locked(struct bhgw *gw, struct gwc_notice *n)
{
    list_init(&n->link);
    if (!is_wanted(gw, n)) {
        gwc_notice_free(n);
        return;
    }
    list_append(&gw->notices, &n->link);
    pthread_cond_signal(&gw->notices_wakeup);
}

static void deliver(struct bhgw *gw, struct gwc_notice *n)
{
    void *ctx = gw->opt.ctx;

    switch (n->kind) {
    case GWC_NOTICE_STATE:
        gw->opt.on_state(ctx, gw, n->state, n->a);
        break;
    case GWC_NOTICE_INTERRUPT:
        if (gw->opt.on_interrupt != NULL)
            gw->opt.on_interrupt(ctx, gw, n->a, n->b);
        break;
    case GWC_NOTICE_DESCRIPTOR:
        gw->opt.on_descriptor(ctx, gw, n->descriptor);
        break;
    case GWC_NOTICE_DONE:
        n->request->done(n->request->done_ctx, gw, n->request->result);
        break;
    }
}

void *gwc_notices_main(void *arg)
{
    struct bhgw *gw = arg;

    pthread_mutex_lock(&gw->lock);
    for (;;) {
        while (list_is_empty(&gw->notices) && !gw->notices_quit)
            pthread_cond_wait(&gw->notices_wakeup, &gw->lock);
        if (list_is_empty(&gw->notices))
            break;
        struct gwc_notice *n = list_first(&gw->notices, struct gwc_notice, link);
        list_remove(&n->link);
        if (n->kind == GWC_NOTICE_INTERRUPT)
            gw->n_interrupts--;
        pthread_mutex_unlock(&gw->lock);
        deliver(gw, n);
        gwc_notice_free(n);
        pthread_mutex_lock(&gw->lock);
    }
    pthread_mutex_unlock(&gw->lock);
    return NULL;
}
