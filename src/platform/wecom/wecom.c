/* wecom.c - opening, closing and looking at one WeCom agent.  (wecom.h; wecom_priv.h has the
 * parts.) */
#include "platform/wecom/wecom.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/config.h"
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "platform/wecom/wecom_priv.h"

#define API_BASE "https://qyapi.weixin.qq.com"

static void log_prefix(const struct log *log, struct buf *out)
{
    buf_printf(out, "platform=wecom bot=%s ", container_of(log, struct wecom, log)->base.bot);
}

void wecom_set_problem(struct wecom *c, const char *sentence)
{
    if (sentence == NULL) {
        c->base.problem = NULL;
        return;
    }
    if (c->base.problem == NULL || strcmp(c->problem, sentence) != 0)
        log_error(&c->log, "%s", sentence);
    snprintf(c->problem, sizeof c->problem, "%s", sentence);
    c->base.problem = c->problem;
}

static void wecom_free(struct wecom *c)
{
    awaits_done(&c->awaits);
    wecom_token_done(c);
    courier_free(c->courier);
    wecom_xml_free(c->xml);
    wecom_xml_free(c->inner);
    wecom_out_done(&c->out);
    json_parser_free(c->parser);
    secret_wipe(c->key, sizeof c->key);
    free(c->api_base);
    free(c);
}

static enum bh_err check(const struct config_platform *cfg, uint8_t key[WECOM_KEY_BYTES],
                         char *ret_why)
{
    if (cfg->corp_id == NULL || cfg->secret == NULL || cfg->token == NULL ||
        cfg->encoding_aes_key == NULL) {
        snprintf(ret_why, 256,
                 "a wecom platform needs `corp_id`, `secret`, `token` and `encoding_aes_key`");
        return BH_REFUSED;
    }
    if (wecom_key_parse(str_of(cfg->encoding_aes_key), key))
        return BH_OK;
    snprintf(ret_why, 256,
             "`encoding_aes_key` is no EncodingAESKey: copy the 43 characters from the callback's "
             "settings");
    return BH_REFUSED;
}

static enum bh_err wecom_open(const struct config_platform *cfg, struct host *host,
                              struct platform **ret_p, char *ret_why)
{
    struct str api = str_of(cfg->api_base != NULL ? cfg->api_base : API_BASE);
    struct wecom *c = xcalloc(1, sizeof *c);
    enum bh_err err = check(cfg, c->key, ret_why);

    if (err != BH_OK)
        goto out;
    while (api.n > 0 && api.p[api.n - 1] == '/')
        api.n--;
    c->base = (struct platform){.ops = &wecom_ops, .host = host, .bot = cfg->bot};
    c->log.prefix = log_prefix;
    c->env = host_env(host);
    c->cfg = cfg;
    c->api_base = str_dup(api);
    c->xml = wecom_xml_new();
    c->inner = wecom_xml_new();
    c->parser = json_parser_new();
    awaits_init(&c->awaits, c->env);
    err = courier_new(host, cfg->bot, &wecom_courier, c, &c->courier, ret_why);
out:
    if (err != BH_OK)
        wecom_free(c);
    else
        *ret_p = &c->base;
    return err;
}

static void wecom_close(struct platform *p)
{
    wecom_free(container_of(p, struct wecom, base));
}

static void wecom_act(struct platform *p, struct action_id id, const struct action_from *from,
                      const struct action *a)
{
    struct wecom *c = container_of(p, struct wecom, base);

    /* "a|b" would be several people, "@all" everybody. */
    if (a->chat_id.n == 0 || a->chat_id.n > 128 || str_find(a->chat_id, '|') >= 0 ||
        a->chat_id.p[0] == '@')
        host_fail(p->host, id, "chat_id is not the id of a person in WeCom");
    else if (a->op == ACTION_SEND)
        courier_send(c->courier, id, a->chat_id, a->content);
    else if (a->op == ACTION_GET_CHAT_INFO)
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = a->chat_id,
                                            .chat_type = STR("dm")});
    else
        host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
}

static void wecom_status(struct platform *p, struct jw *w)
{
    struct wecom *c = container_of(p, struct wecom, base);
    struct courier_stats s;

    courier_stats(c->courier, &s);
    jw_kstr(w, "state", str_of(p->problem != NULL ? "degraded" : "live"));
    jw_ki64(w, "events", (int64_t)c->n.events);
    jw_ki64(w, "ignored", (int64_t)c->n.ignored);
    jw_ki64(w, "webhooksRefused", (int64_t)c->n.refused);
    jw_ki64(w, "webhooksLate", (int64_t)c->awaits.late);
    jw_ki64(w, "tokensFetched", (int64_t)c->token.fetched);
    jw_ki64(w, "sent", (int64_t)s.sent);
    jw_ki64(w, "sendsRefused", (int64_t)s.refused);
    jw_ki64(w, "sendsUnknown", (int64_t)s.unknown);
    jw_ki64(w, "requestsWaiting", (int64_t)s.waiting);
    jw_ki64(w, "cutOffAtStart", (int64_t)s.cut_off);
}

static const struct descriptor descriptor = {
    .platform = "wecom",
    .label = "WeCom",
    .max_message_length = 2048,
    .markdown_dialect = "plain",
    .len_unit = "chars",
    .ops = 1u << ACTION_SEND | 1u << ACTION_GET_CHAT_INFO,
};

const struct platform_ops wecom_ops = {
    .name = "wecom",
    .descriptor = &descriptor,
    .remote = true,
    .open = wecom_open,
    .act = wecom_act,
    .http = wecom_http,
    .status = wecom_status,
    .close = wecom_close,
};
