/* wecom_priv.h - the parts of the WeCom adapter, for its own files only.
 *
 *      wecom.c    open, close, status                 webhook.c  callbacks -> host_accept()
 *      token.c    the access token, fetched by one    send.c     requests and their answers
 *      crypt.c, xml.c, normalize.c know nothing of these. */
#pragma once
#include "base/log.h"
#include "platform/await.h"
#include "platform/courier.h"
#include "platform/wecom/crypt.h"
#include "platform/wecom/normalize.h"

struct http_call;

struct wecom {
    struct platform base;
    struct log log;
    const struct host_env *env;        /* borrowed */
    const struct config_platform *cfg; /* borrowed; holds the secrets */
    char *api_base;                    /* owned */
    uint8_t key[WECOM_KEY_BYTES];      /* secret */
    struct awaits awaits;
    struct wecom_xml *xml, *inner; /* owned */
    struct wecom_out out;
    struct json_parser *parser; /* owned */
    struct courier *courier;    /* owned */
    struct {
        struct http_call *call;       /* owned; NULL: nobody is asking */
        struct buf text;              /* secret; empty: none */
        int64_t until_ms, refresh_ms; /* monotonic */
        uint64_t fetched;
    } token;
    char problem[256]; /* base.problem points here, or is NULL */
    struct {
        uint64_t events, ignored, refused;
    } n;
};

void wecom_set_problem(struct wecom *c, const char *sentence); /* NULL: all is well */

void wecom_http(struct platform *p, struct http_req *req);

/* token.c: absent when there is none yet; then one fetch is under way and ends in
 * courier_resume(). */
struct str wecom_token(struct wecom *c);
void wecom_token_drop(struct wecom *c); /* WeCom does not take it any more */
void wecom_token_done(struct wecom *c);

extern const struct courier_ops wecom_courier;
