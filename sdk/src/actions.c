/* actions.c - the common requests in one call each: nothing but struct bhgw_action, filled in. */
#include "client.h"
#include "base/jw.h"

static struct bhgw_action action(const char *op, const char *chat_id, const char *content,
                                 const char *metadata)
{
    struct bhgw_action a = bhgw_action_init(op);

    a.chat_id = chat_id;
    a.content = content;
    a.metadata = metadata;
    return a;
}

static struct bhgw_action answer(const struct bhgw *gw, const struct bhgw_event *ev,
                                 const char *content)
{
    struct bhgw_action a = action("send", ev->chat_id, content, ev->answer_metadata);

    a.reply_to = ev->message_id;
    /* Name the platform only where we said hello for it: for anything else the connector knows
     * better, by the chat. */
    for (size_t i = 0; i < gw->opt.n_identities && a.platform == NULL; i++) {
        if (strcmp(gw->opt.identities[i].platform, ev->platform) == 0) {
            a.platform = ev->platform;
            a.bot_id = ev->bot_id;
        }
    }
    return a;
}

void bhgw_reply(struct bhgw *gw, const struct bhgw_event *ev, const char *content,
                bhgw_done_cb *done, void *done_ctx)
{
    struct bhgw_action a = answer(gw, ev, content);

    bhgw_request(gw, &a, done, done_ctx);
}

struct bhgw_result *bhgw_reply_wait(struct bhgw *gw, const struct bhgw_event *ev,
                                    const char *content)
{
    struct bhgw_action a = answer(gw, ev, content);

    return bhgw_request_wait(gw, &a);
}

void bhgw_send(struct bhgw *gw, const char *chat_id, const char *content, const char *reply_to,
               const char *metadata, bhgw_done_cb *done, void *done_ctx)
{
    struct bhgw_action a = action("send", chat_id, content, metadata);

    a.reply_to = reply_to;
    bhgw_request(gw, &a, done, done_ctx);
}

struct bhgw_result *bhgw_send_wait(struct bhgw *gw, const char *chat_id, const char *content,
                                   const char *reply_to, const char *metadata)
{
    struct bhgw_action a = action("send", chat_id, content, metadata);

    a.reply_to = reply_to;
    return bhgw_request_wait(gw, &a);
}

void bhgw_edit(struct bhgw *gw, const char *chat_id, const char *message_id, const char *content,
               const char *metadata, bhgw_done_cb *done, void *done_ctx)
{
    struct bhgw_action a = action("edit", chat_id, content, metadata);

    a.message_id = message_id;
    bhgw_request(gw, &a, done, done_ctx);
}

struct bhgw_result *bhgw_edit_wait(struct bhgw *gw, const char *chat_id, const char *message_id,
                                   const char *content, const char *metadata)
{
    struct bhgw_action a = action("edit", chat_id, content, metadata);

    a.message_id = message_id;
    return bhgw_request_wait(gw, &a);
}

void bhgw_typing(struct bhgw *gw, const char *chat_id, const char *metadata)
{
    struct bhgw_action a = action("typing", chat_id, NULL, metadata);

    bhgw_request(gw, &a, NULL, NULL);
}

struct bhgw_result *bhgw_get_chat_info_wait(struct bhgw *gw, const char *chat_id)
{
    struct bhgw_action a = action("get_chat_info", chat_id, NULL, NULL);

    return bhgw_request_wait(gw, &a);
}

static struct bhgw_action follow_up(const char *session_key, const char *kind, const char *content,
                                    const char *metadata)
{
    struct bhgw_action a = action("follow_up", NULL, content, metadata);

    a.session_key = session_key;
    a.kind = kind;
    return a;
}

void bhgw_follow_up(struct bhgw *gw, const char *session_key, const char *kind, const char *content,
                    const char *metadata, bhgw_done_cb *done, void *done_ctx)
{
    struct bhgw_action a = follow_up(session_key, kind, content, metadata);

    bhgw_request(gw, &a, done, done_ctx);
}

struct bhgw_result *bhgw_follow_up_wait(struct bhgw *gw, const char *session_key, const char *kind,
                                        const char *content, const char *metadata)
{
    struct bhgw_action a = follow_up(session_key, kind, content, metadata);

    return bhgw_request_wait(gw, &a);
}

enum bhgw_status bhgw_interrupt(struct bhgw *gw, const char *session_key, const char *reason)
{
    enum bhgw_status status = BHGW_NOT_CONNECTED;
    struct buf line = BUF_INIT;
    struct jw w = jw_begin(&line);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("interrupt"));
    jw_kstr(&w, "session_key", str_of(session_key));
    jw_kstr(&w, "reason", str_of(reason));
    jw_end_obj(&w);
    buf_add_c(&line, '\n');
    pthread_mutex_lock(&gw->lock);
    if (gwc_is_connected(gw)) {
        gwc_send_line(gw, buf_str(&line));
        gwc_wake_locked(gw);
        status = BHGW_OK;
    }
    pthread_mutex_unlock(&gw->lock);
    buf_done(&line);
    return status;
}
