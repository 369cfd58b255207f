/* token.c - the access token: kept until shortly before it expires, fetched by one caller.
 *
 *      NONE --somebody needs it--> FETCHING --ok--> GOOD --nearly over--> GOOD, and FETCHING
 *        ^------ failed: those who wait are told ----'  '--refused--> NONE */
#include <stdio.h>
#include "base/json.h"
#include "net/http_client.h"
#include "edge/form.h"
#include "platform/wecom/wecom_priv.h"

enum { FETCH_MS = 10000, AHEAD_MS = 300000 };

/* False: the answer has none, and @ret_why tells what to look at. */
static bool is_token(struct json doc, char ret_why[160])
{
    struct str text = json_str(doc, "access_token");
    int64_t code = 0;

    json_as_i64(json_get(doc, "errcode"), &code);
    snprintf(ret_why, 160, "WeCom gives no access token (errcode %lld): check %s", (long long)code,
             code == 60020 ? "the trusted addresses of the agent" : "`corp_id` and `secret`");
    return code == 0 && text.n > 0 && text.n <= 4096;
}

static bool read_token(struct wecom *c, const struct http_result *res, char ret_why[160])
{
    struct json doc;
    int64_t seconds = 7200;

    if (res->err != BH_OK || !json_parse(c->bot.parser, res->body, &doc)) {
        snprintf(ret_why, 160, "WeCom gives no access token: it cannot be reached");
        return false;
    }
    struct str text = json_str(doc, "access_token");
    json_as_i64(json_get(doc, "expires_in"), &seconds);
    if (!is_token(doc, ret_why) || seconds <= 0) {
        webhook_bot_set_problem(&c->bot, ret_why);
        return false;
    }
    int64_t now = clock_now_ms(c->bot.env->clock), life = seconds * 1000;
    buf_wipe(&c->token.text);
    buf_add_str(&c->token.text, text);
    c->token.until_ms = now + life;
    c->token.refresh_ms = now + (life > 4 * AHEAD_MS ? life - AHEAD_MS : life * 3 / 4);
    c->token.fetched++;
    return true;
}

static bool is_good(const struct wecom *c)
{
    return c->token.text.n > 0 && clock_now_ms(c->bot.env->clock) < c->token.until_ms;
}

static void on_fetched(void *ctx, const struct http_result *res)
{
    struct wecom *c = ctx;
    char why[160] = "";

    c->token.call = NULL;
    if (read_token(c, res, why))
        webhook_bot_set_problem(&c->bot, NULL);
    sender_resume(c->bot.sender, is_good(c) ? NULL : why);
}

static void write_url(const struct wecom_settings *cfg, const char *api_base, struct buf *url)
{
    struct buf query = BUF_INIT;

    form_add(&query, "corpid", str_of(cfg->corp_id));
    form_add(&query, "corpsecret", str_of(cfg->secret));
    buf_printf(url, "%s/cgi-bin/gettoken?", api_base);
    buf_add_str(url, buf_str(&query));
    buf_wipe(&query);
}

/* WeCom answers with the token that is in use already, as long as it is good: nothing changes. */
enum bh_err wecom_token_check(const struct wecom_settings *cfg, const char *api_base, char *ret_why)
{
    struct json_parser *p = json_parser_new();
    struct buf url = BUF_INIT, body = BUF_INIT;
    struct json doc;
    int status = 0;

    write_url(cfg, api_base, &url);
    const struct http_fetch f = {.url = buf_z(&url), .timeout_ms = FETCH_MS};
    enum bh_err err = http_fetch_now(&f, &status, &body, ret_why);
    if (err == BH_OK && (status != 200 || !json_parse(p, buf_str(&body), &doc)))
        err = BH_UNAVAILABLE, snprintf(ret_why, 256, "WeCom answered with HTTP %d", status);
    else if (err == BH_OK)
        err = is_token(doc, ret_why) ? BH_OK : BH_REFUSED;
    else
        err = BH_UNAVAILABLE;
    buf_wipe(&url);
    buf_wipe(&body);
    json_parser_free(p);
    return err;
}

static void fetch(struct wecom *c)
{
    struct buf url = BUF_INIT;

    write_url(c->cfg, c->bot.api_base, &url);
    c->token.call =
        http_fetch(c->bot.env->http,
                   &(struct http_fetch){.url = buf_z(&url), .timeout_ms = FETCH_MS}, on_fetched, c);
    buf_wipe(&url);
}

struct str wecom_token(struct wecom *c)
{
    bool good = is_good(c);

    if (c->token.call == NULL && (!good || clock_now_ms(c->bot.env->clock) >= c->token.refresh_ms))
        fetch(c);
    return good ? buf_str(&c->token.text) : STR_NULL;
}

void wecom_token_drop(struct wecom *c)
{
    buf_wipe(&c->token.text);
}

void wecom_token_done(struct wecom *c)
{
    http_cancel(&c->token.call);
    buf_wipe(&c->token.text);
}
