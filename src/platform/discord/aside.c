/* aside.c - typing and lookups: what needs no more than the channel, and no record. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum { TYPING_SHOWS_MS = 8000 };

struct aside {                    /* what needs no more than the channel */
    struct discord_outgoing base; /* first */
    uint64_t channel_id;
};

static struct aside *aside_of(struct discord_outgoing *x)
{
    return container_of(x, struct aside, base);
}

static void aside_free(struct discord_outgoing *x)
{
    free(aside_of(x));
}

static bool typing_shows(const struct discord *d, uint64_t channel_id)
{
    for (size_t i = 0; i < ARRAY_LEN(d->typing); i++)
        if (d->typing[i].channel_id == channel_id &&
            d->typing[i].until_ms > clock_now_ms(d->env->clock))
            return true;
    return false;
}

static bool typing_write(struct discord_outgoing *x, struct discord_request *r,
                         struct sender_verdict *v)
{
    r->method = "POST";
    r->route = "typing";
    r->major = aside_of(x)->channel_id;
    buf_printf(&r->path, "/channels/%" PRIu64 "/typing", r->major);
    return true;
}

static void typing_read(struct discord_outgoing *x, const struct discord_answer *a,
                        struct sender_verdict *v)
{
    struct discord *d = x->d;

    if (v->end != SENDER_DONE)
        return;
    size_t at = d->typing_at++ % ARRAY_LEN(d->typing);
    d->typing[at].channel_id = aside_of(x)->channel_id;
    d->typing[at].until_ms = clock_now_ms(d->env->clock) + TYPING_SHOWS_MS;
}

static const struct discord_kind typing_kind = {
    .write = typing_write,
    .read = typing_read,
    .free = aside_free,
};

static const char *chat_type_of(int64_t type)
{
    if (discord_channel_is_thread((int)type))
        return "thread";
    return type == CHANNEL_DM || type == CHANNEL_GROUP_DM ? "dm" : "group";
}

static bool info_write(struct discord_outgoing *x, struct discord_request *r,
                       struct sender_verdict *v)
{
    r->method = "GET";
    r->route = "channel";
    r->major = aside_of(x)->channel_id;
    buf_printf(&r->path, "/channels/%" PRIu64, r->major);
    return true;
}

static void info_read(struct discord_outgoing *x, const struct discord_answer *a,
                      struct sender_verdict *v)
{
    struct json person = {0};
    int64_t type = 0;

    if (v->end != SENDER_DONE)
        return;
    json_as_i64(json_get(a->body, "type"), &type);
    for (struct json_iter it = {0};
         person.doc == NULL && json_next(json_get(a->body, "recipients"), &it);)
        person = it.value;
    v->chat_type = str_of(chat_type_of(type));
    v->chat_name = json_str(a->body, "name");
    if (str_is_empty(v->chat_name))
        v->chat_name = json_str(person, "global_name");
    if (str_is_empty(v->chat_name))
        v->chat_name = json_str(person, "username");
}

static const struct discord_kind info_kind = {
    .write = info_write,
    .read = info_read,
    .free = aside_free,
};

static void start_aside(struct discord *d, uint64_t channel_id, const struct discord_kind *kind,
                        struct str lane, const struct sender_order *q)
{
    struct aside *x = xcalloc(1, sizeof *x);
    struct sender_order order = *q;

    *x = (struct aside){.base = {.d = d, .kind = kind, .out.n_parts = 1}, .channel_id = channel_id};
    order.lane = lane;
    sender_act(d->sender, &x->base.out, &order);
}

/* Gateways repeat it every two seconds, Discord shows it for ten: most of them need no request.  It
 * has a lane of its own, so that an answer never waits behind it. */
void discord_typing(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    char lane[32];

    snprintf(lane, sizeof lane, "typing %" PRIu64, channel_id);
    if ((q->action->content_set && str_is_empty(q->action->content)) || typing_shows(d, channel_id))
        host_result(d->base.host, q->id, &(struct action_result){.success = true});
    else
        start_aside(d, channel_id, &typing_kind, str_of(lane), q);
}

void discord_chat_info(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    const struct dcache_channel *ch = dcache_channel(d->cache, channel_id);

    if (ch != NULL && ch->name != NULL)
        host_result(d->base.host, q->id,
                    &(struct action_result){.success = true,
                                            .chat_name = str_of(ch->name),
                                            .chat_type = str_of(chat_type_of(ch->type))});
    else
        start_aside(d, channel_id, &info_kind, STR("channels"), q);
}
