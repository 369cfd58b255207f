/* action.c - the names of the ops. */
#include "core/action.h"
#include <assert.h>

static const char *const op_names[] = {
    [ACTION_SEND] = "send",
    [ACTION_EDIT] = "edit",
    [ACTION_TYPING] = "typing",
    [ACTION_FOLLOW_UP] = "follow_up",
    [ACTION_GET_CHAT_INFO] = "get_chat_info",
    [ACTION_SEND_MEDIA] = "send_media",
    [ACTION_PROMPT] = "prompt",
    [ACTION_REACT] = "react",
    [ACTION_THREAD_CREATE] = "thread_create",
    [ACTION_THREAD_RENAME] = "thread_rename",
    [ACTION_UNKNOWN] = "unknown",
};

const char *action_op_name(enum action_op op)
{
    assert(op <= ACTION_UNKNOWN);
    return op_names[op];
}

enum action_op action_op_parse(struct str name)
{
    for (enum action_op op = 0; op < ACTION_UNKNOWN; op++)
        if (str_eq(name, str_of(op_names[op])))
            return op;
    return ACTION_UNKNOWN;
}
