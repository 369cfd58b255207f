/* wecom_priv.h - struct wecom, one bot, and the calls between the files of the WeCom adapter.
 *
 *      wecom.c     settings, open, close, check, status; built on platform/texts.h
 *      inbound.c   encrypted callbacks -> events -> the host
 *      outbound.c  fetches the access token, sends messages and files, reads the answers */
#pragma once
#include "platform/texts.h"
#include "platform/wecom/inbound.h"
#include "platform/wecom/wecom.h"

struct wecom {
    struct platform base;             /* first */
    const struct wecom_settings *cfg; /* borrowed; holds the secrets */
    uint8_t key[WECOM_KEY_BYTES];     /* secret */
    struct wecom_xml *xml, *inner;    /* owned */
    struct wecom_out out;
    struct buf person; /* scoped id of the event in @out */
    struct {
        struct http_call *call;       /* owned; NULL: no fetch in flight */
        struct buf text;              /* secret; empty: none */
        int64_t until_ms, refresh_ms; /* monotonic */
        uint64_t fetched;
    } token;
};

static inline struct wecom *wecom_of(struct platform *p)
{
    return container_of(p, struct wecom, base);
}

bool wecom_is_person(struct str id);

/* ---- inbound.c ---- */
bool wecom_http(struct platform *p, struct http_req *req);

/* ---- outbound.c ---- */
extern const struct sender_ops wecom_sender;
const char *wecom_no_file(struct platform *p, const struct attachment *a);
void wecom_media_where(struct platform *p, struct media_ask ask, struct str ref);
/* Requests an access token to verify the settings.  Blocks; returns as platform_ops.check does. */
enum bh_err wecom_token_check(const struct wecom_settings *cfg, char *ret_why);
void wecom_token_done(struct wecom *c);
