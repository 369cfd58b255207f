/* whatsapp.c - settings, open, close, check and status of one number; finds people's files.
 * (whatsapp_priv.h is the map of the other files.) */
#include "platform/whatsapp/whatsapp.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/whatsapp/whatsapp_priv.h"

#define NUMBER_FIELDS "?fields=display_phone_number,verified_name,quality_rating"

enum { LATER_MS = 60000, MAX_TOLD = 4096 };

/* ---- settings ---- */

#define AT(member) offsetof(struct whatsapp_settings, member)

static const struct config_key keys[] = {
    {"token", CFG_SECRET, CFG_RESTART, AT(token),
     .what = "The access token of a system user, with `whatsapp_business_messaging`."},
    {"app_secret", CFG_SECRET, CFG_RESTART, AT(app_secret),
     .what = "The app's secret, which proves that a webhook is Meta's."},
    {"verify_token", CFG_SECRET, CFG_RESTART, AT(verify_token),
     .what = "A word of your own, which Meta repeats when the webhook is set up."},
    {"graph_version", CFG_TEXT, CFG_RESTART, AT(graph_version), "v25.0",
     .what = "The version of the Graph API."},
    {"template.name", CFG_TEXT, CFG_RESTART, AT(template.name),
     .what = "An approved template with one text parameter, in which a text is sent once 24 hours "
             "have passed since the person's last message. Without it such a text is refused."},
    {"template.language", CFG_TEXT, CFG_RESTART, AT(template.language),
     .what = "The template's language, such as `en_US`."},
    PLATFORM_KEY_API_BASE,
    PLATFORM_KEY_REACTIONS,
    {0},
};

static bool is_version(struct str v)
{
    struct str rest = str_skip(v, 1), major;
    uint64_t n;

    return str_starts(v, STR("v")) && str_split(&rest, '.', &major) && str_to_u64(major, &n) &&
           rest.p != NULL && str_to_u64(rest, &n);
}

static bool check(void *settings, char *ret_why)
{
    const struct whatsapp_settings *s = settings;
    struct str bot = platform_id_in(str_of(s->base.bot));
    uint64_t n;

    if (bot.n > 32 || !str_to_u64(bot, &n))
        return bh_why(ret_why,
                      "`bot` is the phone number's id, digits only: the app's page has it under "
                      "WhatsApp, API Setup");
    if (s->token == NULL || s->app_secret == NULL || s->verify_token == NULL)
        return bh_why(ret_why,
                      "a whatsapp platform needs `token`, `app_secret` and `verify_token`");
    if (!str_has_only(str_of(s->token), "-_.|") || s->token[0] == '\0')
        return bh_why(ret_why,
                      "`token` does not look like an access token: it has letters and digits only");
    if (!str_has_only(str_of(s->app_secret), "-_") || s->app_secret[0] == '\0')
        return bh_why(
            ret_why,
            "`app_secret` does not look like an app's secret: it has letters and digits only");
    if (s->verify_token[0] == '\0')
        return bh_why(ret_why, "`verify_token` is empty");
    if (!is_version(str_of(s->graph_version)))
        return bh_why(ret_why, "`graph_version` looks like v25.0");
    if ((s->template.name == NULL) != (s->template.language == NULL))
        return bh_why(ret_why, "`template` needs `name` and `language`");
    if (!str_has_only(str_of(s->template.name), "_") ||
        !str_has_only(str_of(s->template.language), "_"))
        return bh_why(ret_why,
                      "`template` has a name such as new_answer, and a language such as en_US");
    return true;
}

const struct config_section whatsapp_config = {.name = "whatsapp",
                                               .keys = keys,
                                               .size = sizeof(struct whatsapp_settings),
                                               .check = check};

/* ---- people's files: Meta tells an address, which takes the bot's token for five minutes ---- */

struct wa_lookup {
    struct whatsapp *w; /* borrowed */
    struct media_ask ask;
};

static void on_file(void *ctx, const struct sender_verdict *v)
{
    const struct wa_lookup *x = ctx;
    struct host *host = x->w->base.host;
    struct str url = json_str(v->answer, "url");
    const char *const headers[] = {x->w->auth, NULL};

    if (v->end != SENDER_DONE)
        host_media_gone(host, x->ask,
                        v->end == SENDER_REFUSED ? "Meta does not keep the file any more"
                                                 : "Meta did not say where the file is");
    else if (wa_is_own_url(url, str_of(x->w->cfg->base.api_base)))
        host_media_at(host, x->ask, &(struct media_at){.url = url, .headers = headers});
    else
        host_media_gone(host, x->ask, "the file is not kept by Meta");
}

static void wa_media_where(struct platform *p, struct media_ask ask, struct str ref)
{
    BUF_LOCAL path = BUF_INIT, lane = BUF_INIT;

    if (ref.n == 0 || !str_has_only(ref, "-_")) {
        host_media_gone(p->host, ask, "this is not the id of a file");
        return;
    }
    struct wa_lookup *x = xcalloc(1, sizeof *x);
    *x = (struct wa_lookup){.w = whatsapp_of(p), .ask = ask};
    buf_printf(&path, "%.*s?phone_number_id=%.*s", STR_FMT(ref), STR_FMT(platform_id(p)));
    buf_printf(&lane, "file %.*s", STR_FMT(ref));
    wa_ask(x->w, buf_str(&path),
           &(struct sender_question){
               .lane = buf_str(&lane), .told = on_file, .ctx = x, .owns_ctx = true});
}

/* ---- life ---- */

static void wa_close(struct platform *p)
{
    struct whatsapp *w = whatsapp_of(p);

    timer_stop(w->base.env->clock, &w->again);
    wa_batches_cancel(w);
    lru_done(&w->told);
    wa_people_free(w);
    arena_done(&w->arena);
    if (w->auth != NULL)
        secret_wipe(w->auth, strlen(w->auth));
    free(w->auth);
    free(w->api);
    free(w->number);
    free(w->verified_name);
}

static void on_number(void *ctx, const struct sender_verdict *v)
{
    struct whatsapp *w = ctx;
    struct str number = json_str(v->answer, "display_phone_number");

    if (v->end != SENDER_DONE) /* it cannot be reached, or refuses the token, which may be mended */
        timer_set(w->base.env->clock, &w->again, LATER_MS);
    if (v->end != SENDER_DONE || number.n == 0 || number.n > 40)
        return;
    free(w->number);
    free(w->verified_name);
    w->number = str_dup(number);
    w->verified_name = str_dup_opt(json_str(v->answer, "verified_name"));
    platform_set_problem(&w->base, NULL);
    log_info(&w->base.log, "the bot is %s", w->number);
}

static void ask_number(struct whatsapp *w)
{
    BUF_LOCAL path = BUF_INIT;

    buf_printf(&path, "%.*s" NUMBER_FIELDS, STR_FMT(platform_id(&w->base)));
    wa_ask(w, buf_str(&path),
           &(struct sender_question){.lane = STR("number"), .told = on_number, .ctx = w});
}

static void on_again(struct timer *t)
{
    ask_number(container_of(t, struct whatsapp, again));
}

static enum bh_err wa_open(struct platform *p, char *ret_why)
{
    struct whatsapp *w = whatsapp_of(p);
    struct buf api = BUF_INIT, auth = BUF_INIT;

    w->cfg = container_of(p->settings, const struct whatsapp_settings, base);
    buf_printf(&api, "%s/%s", p->api_base, w->cfg->graph_version);
    w->api = buf_take(&api);
    buf_printf(&auth, "Authorization: Bearer %s", w->cfg->token);
    w->auth = buf_take(&auth);
    list_init(&w->moves);
    w->told.max = MAX_TOLD;
    list_init(&w->batches);
    timer_init(&w->again, on_again);
    return wa_people_load(w, ret_why);
}

static void wa_start(struct platform *p)
{
    ask_number(whatsapp_of(p));
}

/* ---- setup and doctor ---- */

static enum bh_err ask(const struct whatsapp_settings *cfg, struct str more,
                       struct json_parser *parser, int64_t *ret_code, struct json *ret_doc,
                       char *ret_why)
{
    struct str bot = platform_id_in(str_of(cfg->base.bot));
    BUF_SECRET path = BUF_INIT, auth = BUF_INIT;
    int status = 0;

    buf_printf(&path, "%s/%.*s" NUMBER_FIELDS "%.*s", cfg->graph_version, STR_FMT(bot),
               STR_FMT(more));
    buf_printf(&auth, "Authorization: Bearer %s", cfg->token);
    const char *const headers[] = {buf_z(&auth), NULL};
    enum bh_err err = platform_ask_api(&whatsapp_ops, &cfg->base, buf_str(&path),
                                       (struct http_fetch){.headers = headers}, parser, &status,
                                       ret_doc, ret_why);
    *ret_code = json_i64(json_get(*ret_doc, "error"), "code", -1);
    if (err != BH_OK || status == 200)
        return err;
    const char *sentence = wa_code_sentence(*ret_code == 100 ? WA_CODE_NO_NUMBER : *ret_code);
    if (sentence != NULL)
        return bh_err_why(BH_REFUSED, ret_why, "%s", sentence);
    return bh_err_why(BH_REFUSED, ret_why, "Meta answered with HTTP %d, code %" PRId64, status,
                      *ret_code);
}

/* The token must be good for the number, and the secret must be of the token's app: else every
 * webhook would be refused. */
static enum bh_err wa_check(const struct platform_settings *settings, struct platform_report *ret,
                            char *ret_why)
{
    const struct whatsapp_settings *cfg =
        container_of(settings, const struct whatsapp_settings, base);
    struct json_parser *parser = json_parser_new();
    uint8_t mac[SHA256_BYTES];
    BUF_SECRET proof = BUF_INIT;
    struct json doc = {0};
    int64_t code;
    enum bh_err err = ask(cfg, STR(""), parser, &code, &doc, ret_why);

    ret->webhook = true;
    if (err == BH_OK) {
        struct str number = json_str(doc, "display_phone_number");
        platform_tell(ret->name, sizeof ret->name, json_str(doc, "verified_name"));
        snprintf(ret->reach, sizeof ret->reach, "in WhatsApp, write to %.*s",
                 number.n < 40 ? (int)number.n : 0, number.p != NULL ? number.p : "");
        if (str_eq(json_str(doc, "quality_rating"), STR("RED")))
            platform_warn(ret, "people block or report this number: see WhatsApp Manager");
        hmac_sha256(str_of(cfg->app_secret), str_of(cfg->token), mac);
        buf_add_z(&proof, "&appsecret_proof=");
        hex_add(&proof, mac, sizeof mac);
        err = ask(cfg, buf_str(&proof), parser, &code, &doc, ret_why);
    }
    if (err == BH_REFUSED && code == 100 && proof.n > 0)
        snprintf(ret_why, 256,
                 "`app_secret` is not that of the app that `token` belongs to, so webhooks would "
                 "be refused: copy it from the app's page, App settings, Basic");
    json_parser_free(parser);
    return err;
}

/* ---- status ---- */

static void wa_status(struct platform *p, struct jw *j)
{
    struct whatsapp *w = whatsapp_of(p);

    jw_kstr(j, "number", str_of(w->number));
    jw_kstr(j, "verifiedName", str_of(w->verified_name));
    jw_ki64(j, "forOtherNumbers", (int64_t)w->n.other_numbers);
    jw_ki64(j, "presses", (int64_t)w->n.presses);
    jw_ki64(j, "statuses", (int64_t)w->n.statuses);
    jw_ki64(j, "failedLater", (int64_t)w->n.failed);
    jw_ki64(j, "windowsClosed", (int64_t)w->n.shut);
    jw_ki64(j, "people", (int64_t)map_count(&w->people.map));
    jw_ki64(j, "templates", (int64_t)w->n.templates);
    jw_ki64(j, "limited", (int64_t)w->n.limited);
}

static const struct descriptor descriptor = {
    .platform = "whatsapp",
    .label = "WhatsApp",
    .max_message_length = WA_TEXT,
    .markdown_dialect = "markdown",
    .len_unit = "utf16",
    .emoji = "\xf0\x9f\x92\xac",
    .platform_hint = "You are talking on WhatsApp. Ordinary Markdown is shown: bold, italic, "
                     "strike, lists, quotes, code with fences; headings become bold lines. Tables "
                     "are not shown. Messages cannot be edited: answer in one where you can.",
    .pii_safe = true,
    .ops = 1u << ACTION_SEND | 1u << ACTION_TYPING | 1u << ACTION_GET_CHAT_INFO |
           1u << ACTION_SEND_MEDIA | 1u << ACTION_PROMPT | 1u << ACTION_REACT,
};

static const struct record_form *const wa_records[] = {&wa_person_form, &wa_moved_form, NULL};

const struct platform_ops whatsapp_ops = {
    .name = "whatsapp",
    .config = &whatsapp_config,
    .descriptor = &descriptor,
    .records = wa_records,
    .repeats_ms = WA_REPEATS_MS,
    .max_webhook = (size_t)3 << 20,
    .size = sizeof(struct whatsapp),
    .label = "WhatsApp",
    .api_base = "https://graph.facebook.com",
    .sender = &wa_sender,
    .open = wa_open,
    .start = wa_start,
    .close = wa_close,
    .check = wa_check,
    .steps =
        "Open https://developers.facebook.com/apps and create an app for WhatsApp.\n"
        "App settings, Basic: copy the App secret.\n"
        "WhatsApp, API Setup: note the Phone number ID.\n"
        "https://business.facebook.com/settings, System users: generate a token of the app with\n"
        "whatsapp_business_messaging.\n"
        "Think of a verify token: a word that you will type into the webhook's settings.",
    .bot_is = "The Phone number ID, from WhatsApp, API Setup: 106540352242922",
    .act = wa_act,
    .http = wa_http,
    .forget = wa_forget,
    .eraser = &wa_eraser,
    .media_where = wa_media_where,
    .status = wa_status,
};
