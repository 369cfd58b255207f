/* hook_priv.h - struct hook, one bot, and the calls between the files of the folder.
 *
 *      hook.c      settings, open, close, check
 *      inbound.c   verified requests -> events -> the host
 *      outbound.c  actions -> requests; reads the answers
 *      sign.c      signatures, in both directions (sign.h)
 *      pointer.c, template.c   what the configuration is written in */
#pragma once
#include "platform/hook/hook.h"
#include "platform/hook/inbound.h"
#include "platform/hook/template.h"
#include "platform/pace.h"

struct hook {
    struct platform base;            /* first */
    const struct hook_settings *cfg; /* borrowed; holds the secrets */
    struct json_parser *inner;       /* owned; of a text in a webhook that is JSON itself */
    struct json_parser *templates;   /* owned; of @body */
    struct json_parser *header_tree; /* owned; of @headers */
    struct json body, headers;       /* of the request */
    bool keyed;                      /* the request has an idempotency key */
    struct buf verify_key, sign_key; /* secret */
    struct hook_out out;
    struct buf lines;             /* secret; the headers of the request that is written */
    struct pace_rules pace_rules; /* of @pace */
    struct pace *pace;            /* owned; NULL: no limit */
    struct descriptor descriptor;
};

static inline struct hook *hook_of(struct platform *p)
{
    return container_of(p, struct hook, base);
}

bool hook_http(struct platform *p, struct http_req *req);
void hook_act(struct platform *p, struct action_id id, const struct action_from *from,
              const struct action *a);
extern const struct sender_ops hook_sender;
