/* asking.h - a gateway that asks for things, and what it is told. */
#pragma once
#include "relay/rig.h"

RIG_UNUSED static void ask(struct fake *f, const char *id, const char *action, const char *beside)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "{\"type\":\"outbound\",\"requestId\":\"%s\",\"action\":{%s}%s}", id, action,
               beside);
    say(f, buf_z(&b));
    buf_done(&b);
}
#define SEND \
    "\"op\":\"send\",\"chat_id\":\"c1\",\"content\":\"hi\",\"reply_to\":null,\"metadata\":{}"

RIG_UNUSED static void answer_it(const char *message_id)
{
    relay_result(rig.relay, rig.act_id,
                 &(struct action_result){.success = true, .message_id = str_of(message_id)});
    turn();
}
RIG_UNUSED static size_t results(const struct fake *f)
{
    return count_with(f, "outbound_result");
}
RIG_UNUSED static bool result_says(const struct fake *f, size_t n, const char *part)
{
    return str_contains(line_with(f, "outbound_result", n), str_of(part));
}
