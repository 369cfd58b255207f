/* policy.c - one HTTP call per platform, with the credential of the socket.  (policy.h has the
 * contract.)
 *
 * It runs on the events thread before the first event is handed over, so what an application is
 * given was judged by its own rules from then on; the socket goes on reading meanwhile. */
#include <string.h>
#include <time.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "client.h"
#include "core/token.h"
#include "options.h"
#include "policy.h"

static void write_body(struct buf *out, const struct bhgw_policy *p, const char *platform)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "platform", str_of(platform));
    jw_kbool(&w, "requireAddress", p->require_address);
    jw_key(&w, "freeResponseScopes");
    jw_arr(&w);
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
    return size * n; /* the status says it all */
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

/* The HTTP status; 0: there was none. */
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

bool gwc_policy_declare(struct bhgw *gw)
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
