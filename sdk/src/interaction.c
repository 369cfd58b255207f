/* interaction.c - whom a webhook that was passed through is from, and where an answer belongs.
 *
 * A Discord interaction names its channel and its person in its body.  Both are read into an event
 * the way released gateways do it: the platform is "relay", so the session key is the one under
 * which the connector keeps the interaction's token. */
#include "base/jw.h"
#include "client.h"

static struct str text_of(struct json object, const char *key)
{
    struct str s = json_str(object, key);

    return s.p != NULL ? s : STR("");
}

static void write_source(struct jw *w, struct json body)
{
    struct json member = json_get(json_get(body, "member"), "user");
    struct json user = json_is_object(member) ? member : json_get(body, "user");
    struct str guild = json_str(body, "guild_id");

    jw_kstr(w, "platform", STR("relay"));
    jw_kstr(w, "chat_id", text_of(body, "channel_id"));
    jw_kstr(w, "chat_type", guild.n > 0 ? STR("channel") : STR("dm"));
    jw_kstr(w, "user_id", json_str(user, "id"));
    jw_kstr(w, "user_name", json_str(user, "username"));
    jw_kstr_opt(w, "scope_id", guild);
    jw_kstr_opt(w, "message_id", json_str(body, "id"));
}

static void write_nobody(struct jw *w)
{
    jw_kstr(w, "platform", STR("relay"));
    jw_kstr(w, "chat_id", STR(""));
    jw_kstr(w, "chat_type", STR("channel"));
}

/* The frame an event is read from, here and by bhgw_event_copy(). */
static void write_frame(struct buf *out, const struct bhgw_passthrough *fwd, struct json body)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("inbound"));
    if (fwd->buffer_id != NULL)
        jw_kstr(&w, "bufferId", str_of(fwd->buffer_id));
    jw_key(&w, "event");
    jw_obj(&w);
    jw_kstr(&w, "text", STR(""));
    jw_kstr(&w, "bot_id", str_of(fwd->bot_id));
    jw_key(&w, "source");
    jw_obj(&w);
    if (strcmp(fwd->platform, "discord") == 0 && json_is_object(body))
        write_source(&w, body);
    else
        write_nobody(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
    jw_end_obj(&w);
}

struct bhgw_event *bhgw_passthrough_event(const struct bhgw_passthrough *fwd)
{
    struct json_parser *p = json_parser_new();
    struct json body = {0};
    struct buf frame = BUF_INIT;

    if (!json_parse(p, str_make(fwd->body, fwd->body_bytes), &body))
        body = (struct json){0};
    write_frame(&frame, fwd, body);
    struct bhgw_event ev = {.json = buf_z(&frame), .json_bytes = frame.n};
    ev.delivery = fwd->delivery;
    struct bhgw_event *copy = bhgw_event_copy(&ev);
    buf_done(&frame);
    json_parser_free(p);
    return copy;
}
