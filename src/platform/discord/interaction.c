/* interaction.c - reading interactions.  (interaction.h has the contract.) */
#include "platform/discord/interaction.h"
#include <inttypes.h>
#include <stdio.h>
#include "base/jw.h"
#include "platform/discord/cache.h"

enum { OPTION_SUBCOMMAND = 1, OPTION_GROUP = 2, OPTION_MAX_DEPTH = 4 };

/* An id as text, also where it came as a number. */
static struct str id_of(struct json v, char room[24])
{
    uint64_t number;

    if (!json_as_u64(v, &number))
        return json_as_str(v);
    return str_make(room, (size_t)snprintf(room, 24, "%" PRIu64, number));
}

static void read_user(struct discord_interaction *x, struct json body)
{
    struct json member = json_get(body, "member"), user = json_get(member, "user");

    if (!json_is_object(user))
        user = json_get(body, "user");
    x->user_id = id_of(json_get(user, "id"), x->numbers[3]);
    x->user_handle = json_str(user, "username");
    x->user_display_name = json_str(member, "nick");
    if (str_is_empty(x->user_display_name))
        x->user_display_name = json_str(user, "global_name");
    if (str_is_empty(x->user_display_name))
        x->user_display_name = x->user_handle;
    x->user_name = x->user_display_name;
    x->by_bot = json_as_bool(json_get(user, "bot"), false);
}

bool discord_interaction_read(struct json body, struct discord_interaction *ret)
{
    struct json channel = json_get(body, "channel");
    int64_t type = 0;

    *ret = (struct discord_interaction){.body = body};
    if (!json_is_object(body) || !json_as_i64(json_get(body, "type"), &ret->type))
        return false;
    ret->id = id_of(json_get(body, "id"), ret->numbers[0]);
    ret->channel_id = id_of(json_get(body, "channel_id"), ret->numbers[1]);
    ret->guild_id = id_of(json_get(body, "guild_id"), ret->numbers[2]);
    ret->application_id = id_of(json_get(body, "application_id"), ret->numbers[4]);
    ret->token = json_str(body, "token");
    ret->name = json_str(json_get(body, "data"), "name");
    read_user(ret, body);
    json_as_i64(json_get(channel, "type"), &type);
    ret->in_thread = discord_channel_is_thread((int)type);
    ret->parent_id = id_of(json_get(channel, "parent_id"), ret->numbers[5]);
    return true;
}

/* ---- what a person would have typed ---- */

static void add_word(struct buf *out, struct str word)
{
    word = str_trim(word);
    if (word.n == 0)
        return;
    buf_add_c(out, ' ');
    buf_add_str(out, word);
}

static void add_value(struct buf *out, struct json v)
{
    struct buf text = BUF_INIT;
    struct jw w = jw_begin(&text);

    if (json_type(v) == JSON_STRING) {
        add_word(out, json_as_str(v));
    } else if (json_type(v) == JSON_BOOL) {
        add_word(out, json_as_bool(v, false) ? STR("True") : STR("False"));
    } else if (json_type(v) == JSON_NUMBER) {
        jw_value(&w, v);
        add_word(out, buf_str(&text));
    }
    buf_done(&text);
}

static void add_options(struct buf *out, struct json options, int depth)
{
    if (json_type(options) != JSON_ARRAY || depth > OPTION_MAX_DEPTH)
        return;
    for (struct json_iter it = {0}; json_next(options, &it);) {
        int64_t type = 0;
        json_as_i64(json_get(it.value, "type"), &type);
        if (type == OPTION_SUBCOMMAND || type == OPTION_GROUP) {
            add_word(out, json_str(it.value, "name"));
            add_options(out, json_get(it.value, "options"), depth + 1);
        } else {
            add_value(out, json_get(it.value, "value"));
        }
    }
}

/* The fields of a form, one per line, however they are nested. */
static void add_fields(struct buf *out, struct json v, int depth)
{
    if (depth > 2 * OPTION_MAX_DEPTH)
        return;
    if (json_type(v) == JSON_ARRAY)
        for (struct json_iter it = {0}; json_next(v, &it);)
            add_fields(out, it.value, depth + 1);
    if (!json_is_object(v))
        return;
    struct str value = str_trim(json_str(v, "value"));
    if (value.n > 0)
        buf_printf(out, "%s%.*s", out->n > 0 ? "\n" : "", STR_FMT(value));
    add_fields(out, json_get(v, "component"), depth + 1);
    add_fields(out, json_get(v, "components"), depth + 1);
}

void discord_interaction_text(const struct discord_interaction *x, struct buf *out)
{
    struct json data = json_get(x->body, "data");

    switch (x->type) {
    case INTERACTION_COMMAND:
        if (x->name.n == 0)
            break;
        buf_printf(out, "/%.*s", STR_FMT(x->name));
        add_options(out, json_get(data, "options"), 0);
        break;
    case INTERACTION_COMPONENT:
        buf_add_str(out, json_str(data, "custom_id"));
        break;
    case INTERACTION_MODAL:
        add_fields(out, json_get(data, "components"), 0);
        break;
    default:
        break;
    }
}

bool discord_interaction_is_stop(const struct discord_interaction *x)
{
    return x->type == INTERACTION_COMMAND && str_eq_ci(x->name, STR("stop"));
}

/* ---- events ---- */

static void set_common(struct discord_interaction *x, struct str bot, struct event *ev)
{
    *ev = (struct event){.platform = STR("discord"), .bot = bot};
    ev->event_id = ev->message_id = x->id;
    ev->chat_id = x->channel_id;
    ev->user_id = x->user_id;
    ev->user_name = x->user_name;
    ev->user_display_name = x->user_display_name;
    ev->user_handle = x->user_handle;
    ev->author_is_bot = x->by_bot;
    ev->mentions_bot = true; /* a command is always meant for the bot it belongs to */
    ev->chat_type = STR("dm");
    if (x->guild_id.n > 0) {
        ev->scope_id = ev->route_key = x->guild_id;
        return;
    }
    snprintf(x->route_key, sizeof x->route_key, "dm:%.*s",
             x->user_id.n < 24 ? (int)x->user_id.n : 24, x->user_id.p != NULL ? x->user_id.p : "");
    ev->route_key = str_of(x->route_key);
}

void discord_interaction_as_forward(struct discord_interaction *x, struct str bot,
                                    struct event *ret)
{
    set_common(x, bot, ret);
    ret->filed_as = STR("relay");
    if (x->guild_id.n > 0)
        ret->chat_type = STR("channel");
}

void discord_interaction_as_message(struct discord_interaction *x, struct str bot, struct str text,
                                    struct event *ret)
{
    set_common(x, bot, ret);
    ret->text = text;
    if (x->type == INTERACTION_COMMAND)
        ret->message_type = STR("command");
    if (x->guild_id.n == 0)
        return;
    ret->chat_type = x->in_thread ? STR("thread") : STR("group");
    if (x->in_thread) {
        ret->thread_id = x->channel_id;
        ret->parent_chat_id = x->parent_id;
        if (x->in_parent && x->parent_id.n > 0)
            ret->chat_id = x->parent_id;
    }
}
