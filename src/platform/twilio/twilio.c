/* twilio.c - opening, closing and looking at one Twilio number.  (twilio.h; twilio_priv.h has the
 * parts.) */
#include "platform/twilio/twilio.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/twilio/twilio_priv.h"

#define API_BASE "https://api.twilio.com"

static void log_prefix(const struct log *log, struct buf *out)
{
    buf_printf(out, "platform=twilio bot=%s ", container_of(log, struct twilio, log)->base.bot);
}

void twilio_set_problem(struct twilio *t, const char *sentence)
{
    if (sentence == NULL) {
        t->base.problem = NULL;
        return;
    }
    if (t->base.problem == NULL || strcmp(t->problem, sentence) != 0)
        log_error(&t->log, "%s", sentence);
    snprintf(t->problem, sizeof t->problem, "%s", sentence);
    t->base.problem = t->problem;
}

static enum bh_err check(const struct config_platform *cfg, char *ret_why)
{
    const char *plane = cfg->plane;

    if (cfg->account_sid == NULL || cfg->auth_token == NULL || cfg->auth_token[0] == '\0') {
        snprintf(ret_why, 256, "a twilio platform needs `account_sid` and `auth_token`");
        return BH_REFUSED;
    }
    for (const char *p = cfg->account_sid; *p != '\0'; p++)
        if (!((*p >= '0' && *p <= '9') || ((*p | 32) >= 'a' && (*p | 32) <= 'z'))) {
            snprintf(ret_why, 256, "`account_sid` is no SID: letters and digits only");
            return BH_REFUSED;
        }
    if (plane != NULL && strcmp(plane, "inbound") != 0 && strcmp(plane, "passthrough") != 0) {
        snprintf(ret_why, 256, "`plane` is \"%s\": write `inbound` or `passthrough`", plane);
        return BH_REFUSED;
    }
    return BH_OK;
}

static void twilio_free(struct twilio *t)
{
    awaits_done(&t->awaits);
    courier_free(t->courier);
    form_done(&t->form);
    twilio_out_done(&t->out);
    json_parser_free(t->parser);
    free(t->api_base);
    free(t);
}

static enum bh_err twilio_open(const struct config_platform *cfg, struct host *host,
                               struct platform **ret_p, char *ret_why)
{
    enum bh_err err = check(cfg, ret_why);
    struct str api = str_of(cfg->api_base != NULL ? cfg->api_base : API_BASE);

    if (err != BH_OK)
        return err;
    while (api.n > 0 && api.p[api.n - 1] == '/')
        api.n--;
    struct twilio *t = xcalloc(1, sizeof *t);
    t->base = (struct platform){.ops = &twilio_ops, .host = host, .bot = cfg->bot};
    t->log.prefix = log_prefix;
    t->env = host_env(host);
    t->cfg = cfg;
    t->api_base = str_dup(api);
    t->passthrough = cfg->plane != NULL && strcmp(cfg->plane, "passthrough") == 0;
    t->parser = json_parser_new();
    awaits_init(&t->awaits, t->env);
    if (t->env->public_url == NULL)
        log_warn(&t->log, "without `public_url` the address Twilio signs is taken from the Host "
                          "header: set it when a proxy is before bellhop");
    err = courier_new(host, cfg->bot, &twilio_courier, t, &t->courier, ret_why);
    if (err != BH_OK) {
        twilio_free(t);
        return err;
    }
    *ret_p = &t->base;
    return BH_OK;
}

static void twilio_close(struct platform *p)
{
    twilio_free(container_of(p, struct twilio, base));
}

static void twilio_act(struct platform *p, struct action_id id, const struct action_from *from,
                       const struct action *a)
{
    struct twilio *t = container_of(p, struct twilio, base);

    if (!twilio_address_ok(a->chat_id))
        host_fail(p->host, id, "chat_id is not a number Twilio could write to");
    else if (a->op == ACTION_SEND)
        courier_send(t->courier, id, a->chat_id, a->content);
    else if (a->op == ACTION_GET_CHAT_INFO)
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = a->chat_id,
                                            .chat_type = STR("dm")});
    else
        host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
}

static void twilio_status(struct platform *p, struct jw *w)
{
    struct twilio *t = container_of(p, struct twilio, base);
    struct courier_stats s;

    courier_stats(t->courier, &s);
    jw_kstr(w, "state", str_of(p->problem != NULL ? "degraded" : "live"));
    jw_kstr(w, "plane", str_of(t->passthrough ? "passthrough" : "inbound"));
    jw_ki64(w, "events", (int64_t)t->n.events);
    jw_ki64(w, "ignored", (int64_t)t->n.ignored);
    jw_ki64(w, "webhooksRefused", (int64_t)t->n.refused);
    jw_ki64(w, "webhooksLate", (int64_t)t->awaits.late);
    jw_ki64(w, "sent", (int64_t)s.sent);
    jw_ki64(w, "sendsRefused", (int64_t)s.refused);
    jw_ki64(w, "sendsUnknown", (int64_t)s.unknown);
    jw_ki64(w, "requestsWaiting", (int64_t)s.waiting);
    jw_ki64(w, "cutOffAtStart", (int64_t)s.cut_off);
}

static const struct descriptor descriptor = {
    .platform = "twilio",
    .label = "SMS and WhatsApp",
    .max_message_length = 1600,
    .markdown_dialect = "plain",
    .len_unit = "chars",
    .pii_safe = true,
    .ops = 1u << ACTION_SEND | 1u << ACTION_GET_CHAT_INFO,
};

const struct platform_ops twilio_ops = {
    .name = "twilio",
    .descriptor = &descriptor,
    .remote = true,
    .open = twilio_open,
    .act = twilio_act,
    .http = twilio_http,
    .status = twilio_status,
    .close = twilio_close,
};
