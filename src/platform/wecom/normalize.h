/* normalize.h - a decrypted message of WeCom becomes an event.
 *
 *      chat_id, user_id   the person's id in the corporation
 *      chat_type          dm
 *      route_key          the bot
 *
 * Pure. */
#pragma once
#include "core/event.h"
#include "platform/wecom/xml.h"

struct wecom_out { /* owned: what had to be put together */
    struct event ev;
    struct buf text, id;
    struct event_media media[1];
};

enum wecom_verdict {
    WECOM_EVENT,
    WECOM_IGNORED,   /* nothing anybody said: an event, a kind we do not know, another agent's */
    WECOM_MALFORMED, /* not a message */
};
/* strs of the event are borrowed from @x, @bot and @out, which starts zeroed and may be used again.
 */
enum wecom_verdict wecom_normalize(const struct wecom_xml *x, struct str bot,
                                   struct wecom_out *out);
void wecom_out_done(struct wecom_out *out);
