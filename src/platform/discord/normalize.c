/* normalize.c - design.  (normalize.h has the contract.)
 *
 * The event borrows most texts from the JSON parser.  Composed texts (forwards, stickers, embeds,
 * polls) go into the scratch buffer. */
#include "platform/discord/normalize.h"
#include <stdio.h>
#include "platform/discord/cache.h"
#include "platform/platform.h"

enum {
    FLAG_LOADING = 1 << 7, /* the "thinking ..." of a bot */
    FLAG_VOICE = 1 << 13,
    REFERENCE_FORWARD = 1,
    STICKER_PNG = 1,
    STICKER_APNG = 2,
    STICKER_GIF = 4,
};

struct discord_person {
    struct str id, name, handle;
    bool bot;
};

struct discord_parsed { /* a message; borrowed from the parser */
    struct str id, channel_id, guild_id, content, webhook_id;
    struct json author, member, mentions, mention_roles, attachments, stickers, embeds, poll;
    struct json reference, referenced, snapshots;
    int64_t type, flags, channel_type; /* -1: absent */
};

/* Is the key of this step @lit?  The caller has compared the length. */
#define KEY_IS(it, lit) ((it).key.p[0] == (lit)[0] && memcmp((it).key.p, lit, sizeof(lit) - 1) == 0)

/* A message has some thirty keys of which bellhop needs half: one walk over them is faster than a
 * search of the object for each. */
static void parse_message(struct json message, struct discord_parsed *m)
{
    *m = (struct discord_parsed){.type = -1, .channel_type = -1};
    for (struct json_iter it = {0}; json_next(message, &it);) {
        switch (it.key.n) {
        case 2:
            if (KEY_IS(it, "id"))
                m->id = json_as_str(it.value);
            break;
        case 4:
            if (KEY_IS(it, "type"))
                json_as_i64(it.value, &m->type);
            else if (KEY_IS(it, "poll"))
                m->poll = it.value;
            break;
        case 5:
            if (KEY_IS(it, "flags"))
                json_as_i64(it.value, &m->flags);
            break;
        case 6:
            if (KEY_IS(it, "author"))
                m->author = it.value;
            else if (KEY_IS(it, "member"))
                m->member = it.value;
            else if (KEY_IS(it, "embeds"))
                m->embeds = it.value;
            break;
        case 7:
            if (KEY_IS(it, "content"))
                m->content = json_as_str(it.value);
            break;
        case 8:
            if (KEY_IS(it, "guild_id"))
                m->guild_id = json_as_str(it.value);
            else if (KEY_IS(it, "mentions"))
                m->mentions = it.value;
            break;
        case 10:
            if (KEY_IS(it, "channel_id"))
                m->channel_id = json_as_str(it.value);
            else if (KEY_IS(it, "webhook_id"))
                m->webhook_id = json_as_str(it.value);
            break;
        case 11:
            if (KEY_IS(it, "attachments"))
                m->attachments = it.value;
            break;
        case 12:
            if (KEY_IS(it, "channel_type"))
                json_as_i64(it.value, &m->channel_type);
            break;
        case 13:
            if (KEY_IS(it, "mention_roles"))
                m->mention_roles = it.value;
            else if (KEY_IS(it, "sticker_items"))
                m->stickers = it.value;
            break;
        case 17:
            if (KEY_IS(it, "message_reference"))
                m->reference = it.value;
            else if (KEY_IS(it, "message_snapshots"))
                m->snapshots = it.value;
            break;
        case 18:
            if (KEY_IS(it, "referenced_message"))
                m->referenced = it.value;
            break;
        default:
            break;
        }
    }
}

/* The name people see is the account's display name, else its handle. */
static struct discord_person parse_person(struct json user)
{
    struct discord_person p = {0};
    struct str global = STR_NULL;

    for (struct json_iter it = {0}; json_next(user, &it);) {
        if (it.key.n == 2 && KEY_IS(it, "id"))
            p.id = json_as_str(it.value);
        else if (it.key.n == 8 && KEY_IS(it, "username"))
            p.handle = json_as_str(it.value);
        else if (it.key.n == 11 && KEY_IS(it, "global_name"))
            global = json_as_str(it.value);
        else if ((it.key.n == 3 && KEY_IS(it, "bot")) || (it.key.n == 6 && KEY_IS(it, "system")))
            p.bot |= json_as_bool(it.value, false);
    }
    p.name = str_is_empty(global) ? p.handle : global;
    return p;
}

/* ---- text ---- */

/* "@bot do this" becomes "do this"; mentions_bot keeps that the bot was mentioned. */
static struct str strip_mention(struct str text, struct str bot_user)
{
    for (;;) {
        struct str s = str_trim(text);

        if (!str_starts(s, STR("<@")))
            return text;
        struct str rest = str_skip(s, s.n > 2 && s.p[2] == '!' ? 3 : 2);
        if (!str_starts(rest, bot_user) || rest.n <= bot_user.n || rest.p[bot_user.n] != '>')
            return text;
        text = str_trim(str_skip(rest, bot_user.n + 1));
    }
}

static void add_line(struct buf *b, struct str text)
{
    if (str_is_empty(text))
        return;
    if (b->n > 0)
        buf_add_c(b, '\n');
    buf_add_str(b, text);
}

static void add_note(struct buf *b, const char *what, struct str of)
{
    if (b->n > 0)
        buf_add_c(b, '\n');
    buf_add_c(b, '[');
    buf_add_z(b, what);
    if (!str_is_empty(of)) {
        buf_add_z(b, ": ");
        buf_add_str(b, of);
    }
    buf_add_c(b, ']');
}

static void add_embeds(struct buf *b, struct json embeds)
{
    for (struct json_iter it = {0}; json_next(embeds, &it);) {
        add_line(b, json_str(it.value, "title"));
        add_line(b, json_str(it.value, "description"));
        for (struct json_iter f = {0}; json_next(json_get(it.value, "fields"), &f);) {
            add_line(b, json_str(f.value, "name"));
            add_line(b, json_str(f.value, "value"));
        }
    }
}

static void set_text(const struct discord_parsed *m, const struct discord_normalize_in *in,
                     struct discord_normalize_out *out)
{
    struct buf *b = &out->scratch;

    out->ev.text = strip_mention(m->content.p != NULL ? m->content : STR(""), in->bot_user);
    bool forward = json_type(m->reference) == JSON_OBJECT &&
                   json_i64(m->reference, "type", 0) == REFERENCE_FORWARD;
    bool empty = str_is_empty(out->ev.text);
    struct json sticker = {0};
    for (struct json_iter it = {0}; json_next(m->stickers, &it) && sticker.doc == NULL;)
        sticker = it.value;
    if (!forward && !json_is_object(m->poll) &&
        (!empty || (sticker.doc == NULL && json_count(m->embeds) == 0)))
        return;
    buf_reset(b);
    add_line(b, out->ev.text);
    if (forward) {
        /* Adds the forwarded messages under a note; Discord does not name their author. */
        for (struct json_iter it = {0}; json_next(m->snapshots, &it);) {
            struct json message = json_get(it.value, "message");
            add_note(b, "forwarded", STR_NULL);
            add_line(b, json_str(message, "content"));
            add_embeds(b, json_get(message, "embeds"));
        }
    }
    if (json_is_object(m->poll)) {
        struct json poll = m->poll;
        add_note(b, "poll", json_str(json_get(poll, "question"), "text"));
        for (struct json_iter it = {0}; json_next(json_get(poll, "answers"), &it);) {
            struct str answer = json_str(json_get(it.value, "poll_media"), "text");
            if (str_is_empty(answer))
                continue;
            buf_add_z(b, "\n- ");
            buf_add_str(b, answer);
        }
    }
    if (empty && sticker.doc != NULL)
        add_note(b, "sticker", json_str(sticker, "name"));
    if (empty && !forward)
        add_embeds(b, m->embeds);
    out->ev.text = buf_str(b);
}

/* ---- media ---- */

/* The first attachment names the kind. */
static void add_attachments(struct discord_normalize_out *out, struct json list, bool voice)
{
    struct event *ev = &out->ev;

    for (struct json_iter it = {0}; json_next(list, &it) && ev->n_media < EVENT_MAX_MEDIA;) {
        struct str url = json_str(it.value, "url");

        if (str_is_empty(url))
            continue;
        struct str type = json_str(it.value, "content_type");
        struct str kind = platform_message_type(type, voice);
        uint64_t size = 0;
        json_as_u64(json_get(it.value, "size"), &size);
        if (ev->n_media == 0)
            ev->message_type = kind;
        out->media[ev->n_media++] =
            (struct event_media){.url = url,
                                 .ref = url, /* signed for a day */
                                 .type = type,
                                 .kind = str_eq(kind, STR("photo")) ? STR("image") : kind,
                                 .name = json_str(it.value, "filename"),
                                 .size = size};
    }
}

/* Adds the sticker's picture on Discord's CDN.  An animated vector sticker has none. */
static void add_sticker(struct discord_normalize_out *out, struct json list)
{
    struct event *ev = &out->ev;

    for (struct json_iter it = {0}; json_next(list, &it);) {
        uint64_t id = json_snowflake(it.value, "id");
        int64_t format = json_i64(it.value, "format_type", 0);

        if (ev->message_type.p == NULL)
            ev->message_type = STR("sticker");
        if (id == 0 || ev->n_media == EVENT_MAX_MEDIA ||
            (format != STICKER_PNG && format != STICKER_APNG && format != STICKER_GIF))
            return;
        snprintf(out->sticker_url, sizeof out->sticker_url,
                 format == STICKER_GIF ? "https://media.discordapp.net/stickers/%llu.gif"
                                       : "https://cdn.discordapp.com/stickers/%llu.png",
                 (unsigned long long)id);
        out->media[ev->n_media++] =
            (struct event_media){.url = str_of(out->sticker_url),
                                 .kind = STR("image"),
                                 .type =
                                     format == STICKER_GIF ? STR("image/gif") : STR("image/png")};
        return; /* a message has one in practice; the note names it */
    }
}

/* ---- mentions and replies ---- */

static bool names_bot(const struct discord_parsed *m, const struct discord_normalize_in *in,
                      const struct dcache_guild *g)
{
    for (struct json_iter it = {0}; json_next(m->mentions, &it);)
        if (str_eq(json_str(it.value, "id"), in->bot_user))
            return true;
    if (g == NULL)
        return false;
    /* People pick the role that carries the bot's name as often as the bot itself. */
    for (struct json_iter it = {0}; json_next(m->mention_roles, &it);) {
        uint64_t id = snowflake(json_as_str(it.value));
        for (size_t i = 0; i < g->n_roles; i++)
            if (g->roles[i].is_ours && g->roles[i].id == id)
                return true;
    }
    return false;
}

static void set_reply(const struct discord_parsed *m, const struct discord_normalize_in *in,
                      struct event *ev)
{
    if (m->type != 19 || !json_is_object(m->reference))
        return;
    ev->reply_to_message_id = json_str(m->reference, "message_id");
    if (!json_is_object(m->referenced))
        return; /* deleted, or left out by Discord */
    struct discord_person author = {0};
    for (struct json_iter it = {0}; json_next(m->referenced, &it);) {
        if (it.key.n == 6 && KEY_IS(it, "author"))
            author = parse_person(it.value);
        else if (it.key.n == 7 && KEY_IS(it, "content"))
            ev->reply_to.text = json_as_str(it.value);
    }
    ev->reply_to.set = true;
    ev->reply_to.author = author.name;
    ev->reply_to.is_own = ev->replies_to_bot = str_eq(author.id, in->bot_user);
}

/* ---- chat and author ---- */

static enum discord_verdict set_guild_place(const struct discord_parsed *m,
                                            const struct discord_normalize_in *in,
                                            struct discord_normalize_out *out,
                                            const struct dcache_guild **ret_guild)
{
    const struct dcache_guild *g = dcache_guild(in->cache, out->guild_id);
    const struct dcache_channel *ch = dcache_channel(in->cache, out->channel_id), *parent = NULL;
    struct event *ev = &out->ev;

    if (!in->lenient && (g == NULL || !g->loaded))
        return DISCORD_NEED_GUILD;
    if (!in->lenient && ch == NULL)
        return DISCORD_NEED_CHANNEL;
    bool thread = discord_channel_is_thread(ch != NULL ? ch->type : (int)m->channel_type);
    ev->chat_type = thread ? STR("thread") : STR("group");
    if (thread)
        ev->thread_id = m->channel_id;
    out->in_private = ch != NULL && ch->type == CHANNEL_PRIVATE_THREAD;
    if (thread && ch != NULL && ch->parent_id != 0) {
        parent = dcache_channel(in->cache, ch->parent_id);
        snprintf(out->parent_id, sizeof out->parent_id, "%llu", (unsigned long long)ch->parent_id);
        ev->parent_chat_id = str_of(out->parent_id);
    }
    if (ch != NULL) {
        ev->chat_name = str_of(ch->name);
        ev->chat_topic = str_of(parent != NULL ? parent->topic : ch->topic);
    }
    if (in->in_parent && !str_is_empty(ev->parent_chat_id)) {
        ev->chat_id = ev->parent_chat_id;
        if (parent != NULL)
            ev->chat_name = str_of(parent->name);
    }
    *ret_guild = g;
    return DISCORD_EVENT;
}

enum discord_verdict discord_normalize(const struct discord_normalize_in *in,
                                       struct discord_normalize_out *out)
{
    const struct dcache_guild *g = NULL;
    struct discord_parsed m;

    parse_message(in->message, &m);
    struct discord_person author = parse_person(m.author);
    struct str guild_id = str_is_empty(m.guild_id) ? in->guild_id : m.guild_id;
    out->ev = (struct event){.media = out->media};
    out->ev.platform = STR("discord");
    out->ev.bot = in->bot;
    out->message_id = snowflake(m.id);
    out->channel_id = snowflake(m.channel_id);
    out->guild_id = snowflake(guild_id);
    out->user_id = snowflake(author.id);
    out->nick = STR_NULL;
    out->roles = (struct json){0};
    if (m.member.doc != NULL)
        for (struct json_iter it = {0}; json_next(m.member, &it);) {
            if (it.key.n == 4 && KEY_IS(it, "nick"))
                out->nick = json_as_str(it.value);
            else if (it.key.n == 5 && KEY_IS(it, "roles"))
                out->roles = it.value;
        }
    if (out->message_id == 0 || out->channel_id == 0 || out->user_id == 0 || m.type < 0 ||
        (out->guild_id == 0 && !str_is_empty(guild_id)))
        return DISCORD_MALFORMED;
    out->why = m.type != 0 && m.type != 19 && m.type != 20 && m.type != 23 ? "not speech"
               : str_eq(author.id, in->bot_user)                           ? "our own"
               : m.flags & FLAG_LOADING                                    ? "a placeholder"
                                                                           : NULL;
    if (out->why != NULL)
        return DISCORD_IGNORED;

    struct event *ev = &out->ev;
    ev->event_id = ev->message_id = m.id;
    ev->chat_id = m.channel_id;
    if (out->guild_id != 0) {
        ev->scope_id = ev->route_key = guild_id;
        enum discord_verdict verdict = set_guild_place(&m, in, out, &g);
        if (verdict != DISCORD_EVENT)
            return verdict;
    } else {
        ev->chat_type = STR("dm");
        ev->chat_name = author.name;
        snprintf(out->route_key, sizeof out->route_key, "dm:%.*s", STR_FMT(author.id));
        ev->route_key = str_of(out->route_key);
    }
    struct str nick = out->nick;
    if (m.member.doc == NULL && out->guild_id != 0) {
        const struct dcache_member *known = dcache_member(in->cache, out->guild_id, out->user_id);
        nick = known != NULL ? str_of(known->nick) : STR_NULL;
    }
    out->ev.user_id = author.id;
    out->ev.user_name = str_is_empty(nick) ? author.name : nick;
    out->ev.user_display_name = out->ev.user_name;
    out->ev.user_handle = author.handle;
    out->ev.author_is_bot = author.bot || !str_is_empty(m.webhook_id);
    set_text(&m, in, out);
    bool voice = (m.flags & FLAG_VOICE) != 0;
    if (m.attachments.doc != NULL)
        add_attachments(out, m.attachments, voice);
    if (m.snapshots.doc != NULL)
        for (struct json_iter it = {0}; json_next(m.snapshots, &it);)
            add_attachments(out, json_get(json_get(it.value, "message"), "attachments"), false);
    if (m.stickers.doc != NULL)
        add_sticker(out, m.stickers);
    set_reply(&m, in, ev);
    ev->mentions_bot = names_bot(&m, in, g);
    if (!str_is_empty(ev->text) || ev->n_media > 0)
        return DISCORD_EVENT;
    out->why = ev->mentions_bot ? NULL : "empty";
    return ev->mentions_bot ? DISCORD_EVENT : DISCORD_IGNORED;
}

void discord_normalize_done(struct discord_normalize_out *out)
{
    buf_done(&out->scratch);
}
