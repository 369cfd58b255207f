/* action.c - the names of the ops, and actions that are kept. */
#include "core/action.h"
#include <assert.h>
#include "base/mem.h"

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

/* ---- keeping one ---- */

static const size_t strs[] = {
    offsetof(struct action_copy, action.op_name),
    offsetof(struct action_copy, action.chat_id),
    offsetof(struct action_copy, action.content),
    offsetof(struct action_copy, action.reply_to),
    offsetof(struct action_copy, action.message_id),
    offsetof(struct action_copy, action.session_key),
    offsetof(struct action_copy, action.kind),
    offsetof(struct action_copy, action.thread_id),
    offsetof(struct action_copy, action.scope_id),
    offsetof(struct action_copy, action.user_id),
    offsetof(struct action_copy, action.platform),
    offsetof(struct action_copy, action.bot),
    offsetof(struct action_copy, action.media_kind),
    offsetof(struct action_copy, action.source_url),
    offsetof(struct action_copy, action.filename),
    offsetof(struct action_copy, action.prompt_kind),
    offsetof(struct action_copy, action.prompt_id),
    offsetof(struct action_copy, action.emoji),
    offsetof(struct action_copy, action.thread_name),
    offsetof(struct action_copy, action.only_if_current_name),
    offsetof(struct action_copy, from.tenant),
    offsetof(struct action_copy, from.instance),
    offsetof(struct action_copy, from.request_id),
};

static struct str *str_at(struct action_copy *c, size_t i)
{
    return (struct str *)(void *)((char *)c + strs[i]);
}

struct action_copy *action_copy(const struct action *a, const struct action_from *from)
{
    struct action_copy flat = {.action = *a, .from = *from}, *c;
    size_t bytes = 0;

    for (size_t i = 0; i < ARRAY_LEN(strs); i++)
        bytes += str_at(&flat, i)->n + 1;
    c = xmalloc(sizeof *c + bytes);
    *c = flat;
    char *at = (char *)(c + 1);
    for (size_t i = 0; i < ARRAY_LEN(strs); i++) {
        struct str *s = str_at(c, i);
        if (s->p == NULL)
            continue;
        memcpy(at, s->p, s->n);
        at[s->n] = '\0';
        s->p = at;
        at += s->n + 1;
    }
    c->action.metadata = c->action.options = (struct json){0};
    c->action.file = NULL;
    c->action.left = NULL;
    return c;
}
