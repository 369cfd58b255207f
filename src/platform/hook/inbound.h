/* inbound.h - turns a webhook into an event, as the pointers of the configuration say.  Pure.
 *
 *      chat_id, user_id    <bot>/<id at the pointer>: two bots never share a chat or a person
 *      event_id            at its pointer; without one a hash of the body
 *      message_id          at its pointer; without one the event id, if that has a pointer
 *
 * Ids are texts or whole numbers.  A webhook without a text, and one that a condition of `skip_if`
 * names, is ignored; a text without a chat or an author is malformed. */
#pragma once
#include "core/event.h"
#include "platform/await.h"
#include "platform/hook/hook.h"

#define HOOK_MAX_ID 200   /* bytes of an id as the service has it */
#define HOOK_MAX_NAME 256 /* bytes of a name; longer ones are cut */

struct hook_out { /* an event and the memory of its texts */
    struct event ev;
    struct buf text, chat, chat_name, user, user_name, event, message, thread, reply;
    const char *why; /* why it is not an event: the name of the pointer, or a sentence */
};

/* @body is the whole body, @inner a parser for texts that are JSON.  @out may be reused; its strs
 * are borrowed from it and from @bot. */
enum webhook_verdict hook_normalize(const struct hook_settings *cfg, struct str bot,
                                    struct json doc, struct str body, struct json_parser *inner,
                                    struct hook_out *out);
void hook_out_done(struct hook_out *out);
