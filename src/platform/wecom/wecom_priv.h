/* wecom_priv.h - the parts of the WeCom adapter, for its own files only.
 *
 *      wecom.c   what makes it one of the webhook bots   webhook.c  callbacks -> host
 *      token.c   the access token, fetched by one        send.c     requests and their answers
 *      file.c    files: uploaded, then named
 *      crypt.c, xml.c, normalize.c know nothing of these. */
#pragma once
#include "platform/webhook_bot.h"
#include "platform/wecom/crypt.h"
#include "platform/wecom/normalize.h"
#include "platform/wecom/wecom.h"

struct http_call;

struct wecom {
    struct webhook_bot bot;           /* first */
    const struct wecom_settings *cfg; /* borrowed; holds the secrets */
    uint8_t key[WECOM_KEY_BYTES];     /* secret */
    struct wecom_xml *xml, *inner;    /* owned */
    struct wecom_out out;
    struct {
        struct http_call *call;       /* owned; NULL: nobody is asking */
        struct buf text;              /* secret; empty: none */
        int64_t until_ms, refresh_ms; /* monotonic */
        uint64_t fetched;
    } token;
};

static inline struct wecom *wecom_of(struct platform *p)
{
    return container_of(webhook_bot_of(p), struct wecom, bot);
}

bool wecom_http(struct platform *p, struct http_req *req);

/* token.c: absent when there is none yet; then one fetch is under way and ends in
 * sender_resume(). */
struct str wecom_token(struct wecom *c);
/* Is one to be had?  Blocks; as the check of platform.h answers. */
enum bh_err wecom_token_check(const struct wecom_settings *cfg, const char *api_base,
                              char *ret_why);
void wecom_token_drop(struct wecom *c); /* WeCom does not take it any more */
void wecom_token_done(struct wecom *c);

extern const struct sender_ops wecom_sender;

/* ---- file.c: a file is uploaded first, and then named in a message ---- */
const char *wecom_no_file(struct webhook_bot *b, const struct attachment *a);
bool wecom_uploads(struct outgoing *o); /* its next request is the upload */
void wecom_write_upload(struct wecom *c, struct outgoing *o, struct str token,
                        struct sender_request *q);
void wecom_media_where(struct platform *p, struct media_ask ask, struct str ref);
void wecom_write_file(struct jw *w, struct outgoing *o); /* the message that names it */
