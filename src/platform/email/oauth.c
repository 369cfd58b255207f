/* oauth.c - fetches access tokens with a refresh token (RFC 6749, section 6).
 *
 *      NONE --asked for--> FETCHING --token--> FRESH --LEAD_MS before its end, or refused--> NONE
 *                             '--failed--> NONE, and again after a pause
 *
 * Some providers replace the refresh token now and then.  The new one is kept, sealed, together
 * with a hash of the configured one: another token in the configuration counts at once. */
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/json.h"
#include "base/mem.h"
#include "edge/form.h"
#include "net/http_client.h"
#include "platform/email/email_priv.h"

enum { LEAD_MS = 120000, MIN_MS = 5000, MAX_MS = 300000, CALL_MS = 15000, MAX_TOKEN = 16384 };

struct token_record {
    struct str bot;     /* the key */
    struct str of;      /* a hash of the refresh token in the configuration */
    struct str refresh; /* sealed */
};
static const struct record_field token_fields[] = {
    RECORD_FIELD(struct token_record, bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    RECORD_FIELD(struct token_record, of, "of", RECORD_NEEDED, .max = 64),
    RECORD_FIELD(struct token_record, refresh, "refresh", RECORD_NEEDED | RECORD_SEALED),
};
const struct record_form email_token_form =
    RECORD_FORM("email_token", struct token_record, token_fields);

static void hash_of(const char *token, char ret[33])
{
    uint8_t hash[SHA256_BYTES];
    BUF_LOCAL hex = BUF_INIT;

    sha256(str_of(token), hash);
    hex_add(&hex, hash, 16);
    snprintf(ret, 33, "%s", buf_z(&hex));
}

/* ---- one request ---- */

static void write_request(const struct email_settings *cfg, struct str refresh, struct buf *out)
{
    form_add_str(out, STR("grant_type"), STR("refresh_token"));
    form_add_str(out, STR("refresh_token"), refresh);
    form_add_str(out, STR("client_id"), str_of(cfg->oauth.client_id));
    if (cfg->oauth.client_secret != NULL)
        form_add_str(out, STR("client_secret"), str_of(cfg->oauth.client_secret));
    if (cfg->oauth.scope != NULL)
        form_add_str(out, STR("scope"), str_of(cfg->oauth.scope));
}

static const char *const type_header[] = {"Content-Type: application/x-www-form-urlencoded", NULL};

struct token_answer { /* borrowed from the parser */
    struct str access, refresh;
    int64_t lasts_ms;
};

/* BH_REFUSED: the refresh token or the client is not accepted. */
static enum bh_err read_answer(struct json_parser *p, int status, struct str body,
                               struct token_answer *ret, char *ret_why)
{
    struct json doc = {0};

    if (!json_parse(p, body, &doc))
        doc = (struct json){0};
    struct str error = json_str(doc, "error");
    *ret = (struct token_answer){.access = json_str(doc, "access_token"),
                                 .refresh = json_str(doc, "refresh_token"),
                                 .lasts_ms = 3600000};
    int64_t lasts_s = json_i64(doc, "expires_in", 0);
    if (lasts_s > 0 && lasts_s < 31536000)
        ret->lasts_ms = lasts_s * 1000;
    if (status == 200 && ret->access.n > 0 && ret->access.n < MAX_TOKEN)
        return BH_OK;
    if (status == 400 || status == 401)
        return bh_err_why(BH_REFUSED, ret_why,
                          "the token server refused oauth.refresh_token (%.*s): authorize the "
                          "mailbox again and set the new token",
                          error.n < 60 ? (int)error.n : 60, error.n > 0 ? error.p : "");
    return bh_err_why(BH_UNAVAILABLE, ret_why, "the token server answered with HTTP %d", status);
}

/* ---- the bot's token ---- */

static void keep_refresh(struct email *e, struct str refresh)
{
    char of[33];

    if (refresh.n == 0 || refresh.n >= MAX_TOKEN || str_eq(refresh, buf_str(&e->oauth.refresh)))
        return;
    buf_wipe(&e->oauth.refresh);
    buf_add_str(&e->oauth.refresh, refresh);
    hash_of(e->cfg->oauth.refresh_token, of);
    struct token_record r = {str_of(e->base.bot), str_of(of), refresh};
    record_put(e->base.env->store, &email_token_form, e->base.env->seal, &r, true, NULL, NULL);
}

static void on_token(void *ctx, const struct http_result *res)
{
    struct email *e = ctx;
    struct json_parser *p = json_parser_new();
    struct token_answer a = {0};
    char why[256] = "the token server cannot be reached";
    enum bh_err err =
        res->err == BH_OK ? read_answer(p, res->status, res->body, &a, why) : BH_UNAVAILABLE;
    int64_t wait_ms = MIN_MS;

    e->oauth.call = NULL;
    if (err == BH_OK) {
        buf_wipe(&e->oauth.token);
        buf_add_str(&e->oauth.token, a.access);
        keep_refresh(e, a.refresh);
        e->oauth.failures = 0;
        e->oauth.until_ms = clock_now_ms(e->base.env->clock) +
                            (a.lasts_ms > 2 * LEAD_MS ? a.lasts_ms - LEAD_MS : a.lasts_ms / 2);
    } else {
        for (unsigned i = 0; i < e->oauth.failures && wait_ms < MAX_MS; i++)
            wait_ms *= 2;
        e->oauth.failures++;
        platform_set_problem(&e->base, why);
        timer_set(e->base.env->clock, &e->oauth.again, wait_ms < MAX_MS ? wait_ms : MAX_MS);
    }
    json_parser_free(p);
    if (err == BH_OK) {
        email_well(e);
        email_in_connect(e);
        sender_resume(e->base.sender, NULL);
    }
}

static void fetch(struct email *e)
{
    BUF_SECRET body = BUF_INIT;

    if (e->oauth.call != NULL || timer_is_set(&e->oauth.again))
        return;
    write_request(e->cfg, buf_str(&e->oauth.refresh), &body);
    e->oauth.call = http_fetch(e->base.env->http,
                               &(struct http_fetch){.method = "POST",
                                                    .url = e->cfg->oauth.token_url,
                                                    .headers = type_header,
                                                    .body = buf_str(&body),
                                                    .timeout_ms = CALL_MS,
                                                    .max_body = 65536,
                                                    .ca_path = e->cfg->ca},
                               on_token, e);
}

static void on_again(struct timer *t)
{
    fetch(container_of(t, struct email, oauth.again));
}

const char *email_oauth_token(struct email *e)
{
    if (e->oauth.token.n > 0 && clock_now_ms(e->base.env->clock) < e->oauth.until_ms)
        return buf_z(&e->oauth.token);
    fetch(e);
    return NULL;
}

void email_oauth_refused(struct email *e)
{
    e->oauth.until_ms = 0;
}

static bool on_record(void *ctx, struct str key, void *thing)
{
    struct email *e = ctx;
    const struct token_record *r = thing;
    char of[33];

    hash_of(e->cfg->oauth.refresh_token, of);
    if (str_eq(r->bot, str_of(e->base.bot)) && str_eq(r->of, str_of(of))) {
        buf_wipe(&e->oauth.refresh);
        buf_add_str(&e->oauth.refresh, r->refresh);
    }
    return true;
}

enum bh_err email_oauth_open(struct email *e, char *ret_why)
{
    timer_init(&e->oauth.again, on_again);
    if (e->cfg->oauth.token_url == NULL)
        return BH_OK;
    buf_add_z(&e->oauth.refresh, e->cfg->oauth.refresh_token);
    struct record_reader *r = record_reader_new(e->base.env->seal);
    enum bh_err err = record_load(e->base.env->store, &email_token_form, r, str_of(e->base.bot),
                                  on_record, e, ret_why);
    record_reader_free(r);
    return err;
}

void email_oauth_close(struct email *e)
{
    http_cancel(&e->oauth.call);
    timer_stop(e->base.env->clock, &e->oauth.again);
    buf_wipe(&e->oauth.token);
    buf_wipe(&e->oauth.refresh);
}

enum bh_err email_oauth_check(const struct email_settings *cfg, struct buf *ret_token,
                              char *ret_why)
{
    struct json_parser *p = json_parser_new();
    struct token_answer a = {0};
    BUF_SECRET body = BUF_INIT, answer = BUF_INIT;
    int status = 0;

    write_request(cfg, str_of(cfg->oauth.refresh_token), &body);
    enum bh_err err = http_fetch_now(&(struct http_fetch){.method = "POST",
                                                          .url = cfg->oauth.token_url,
                                                          .headers = type_header,
                                                          .body = buf_str(&body),
                                                          .timeout_ms = CALL_MS,
                                                          .ca_path = cfg->ca},
                                     &status, &answer, ret_why);
    err = err == BH_OK ? read_answer(p, status, buf_str(&answer), &a, ret_why) : BH_UNAVAILABLE;
    if (err == BH_OK)
        buf_add_str(ret_token, a.access);
    json_parser_free(p);
    return err;
}
