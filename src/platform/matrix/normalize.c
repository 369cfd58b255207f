/* normalize.c - see normalize.h. */
#include "platform/matrix/normalize.h"
#include <stdio.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/platform.h"

enum { NAME_MAX_BYTES = 256, MAX_REACTION = 100 };

/* ---- ids ---- */

static bool is_id(struct str id, char sigil)
{
    if (id.n < 2 || id.n > MX_ID_MAX || id.p[0] != sigil)
        return false;
    for (size_t i = 1; i < id.n; i++)
        if ((unsigned char)id.p[i] <= ' ' || id.p[i] == 0x7f)
            return false;
    return true;
}

bool mx_is_room(struct str id)
{
    return is_id(id, '!');
}

bool mx_is_event(struct str id)
{
    return is_id(id, '$');
}

struct str mx_server_of(struct str user)
{
    ptrdiff_t at = str_find(user, ':');

    return at > 0 ? str_skip(user, (size_t)at + 1) : STR_NULL;
}

struct str mx_local_of(struct str user)
{
    ptrdiff_t at = str_find(user, ':');

    return at > 1 ? str_make(user.p + 1, (size_t)at - 1) : STR_NULL;
}

bool mx_is_user(struct str id)
{
    return is_id(id, '@') && mx_local_of(id).n > 0 && mx_server_of(id).n > 0;
}

/* ---- text ---- */

void mx_clean(struct buf *out, struct str text)
{
    size_t from = 0;

    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if ((c >= ' ' && c != 0x7f) || c == '\n' || c == '\t')
            continue;
        buf_add(out, text.p + from, i - from);
        from = i + 1;
    }
    buf_add(out, text.p + from, text.n - from);
}

bool mx_has_markup(struct str text)
{
    bool at_start = true;

    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (strchr("*_`[]#>|~<\\&=", c) != NULL ||
            (at_start && strchr("-+\t0123456789", c) != NULL))
            return true;
        if (c == ':' && i + 2 < text.n && text.p[i + 1] == '/' && text.p[i + 2] == '/')
            return true; /* an address becomes a link */
        if (c == '\n' && i + 1 < text.n && text.p[i + 1] == '\n')
            return true; /* a second paragraph */
        if (str_starts(str_skip(text, i), STR("www.")))
            return true;
        at_start = c == '\n' || (at_start && c == ' ');
    }
    return false;
}

static bool is_local_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("._=-/+", c) != NULL);
}

static bool is_server_char(char c)
{
    return ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

/* The user id that @s starts with; absent: none. */
static struct str user_at(struct str s)
{
    size_t n = 1;

    while (n < s.n && n <= MX_ID_MAX && is_local_char(s.p[n]))
        n++;
    if (n == 1 || n >= s.n || s.p[n] != ':')
        return STR_NULL;
    size_t colon = n++;
    while (n < s.n && n <= MX_ID_MAX && is_server_char(s.p[n]))
        n++;
    size_t end = n;
    if (n < s.n && s.p[n] == ':') { /* a port */
        size_t port = n + 1;
        while (port < s.n && port - n <= 5 && s.p[port] >= '0' && s.p[port] <= '9')
            port++;
        if (port > n + 1)
            end = port;
    }
    while (end > colon + 1 && (s.p[end - 1] == '.' || s.p[end - 1] == '-'))
        end--; /* the end of a sentence */
    return end > colon + 1 && end <= MX_ID_MAX ? str_make(s.p, end) : STR_NULL;
}

size_t mx_mentions(struct str text, struct str ret[MX_MENTIONS])
{
    size_t n = 0;

    for (size_t i = 0; i < text.n && n < MX_MENTIONS; i++) {
        struct str user = STR_NULL;
        if (text.p[i] == '@' && (i == 0 || !is_server_char(text.p[i - 1])))
            user = user_at(str_skip(text, i));
        for (size_t k = 0; k < n; k++)
            if (str_eq(ret[k], user))
                user = STR_NULL;
        if (user.n == 0)
            continue;
        ret[n++] = user;
        i += user.n - 1;
    }
    return n;
}

static bool is_among(struct str list, struct str user)
{
    struct str one;

    while (str_split(&list, '\x1f', &one))
        if (str_eq(one, user))
            return true;
    return false;
}

void mx_write_mentions(struct jw *w, struct str text, struct str before)
{
    struct str found[MX_MENTIONS];
    size_t n = mx_mentions(text, found), written = 0;

    jw_kobj(w, "m.mentions");
    for (size_t i = 0; i < n; i++) {
        if (is_among(before, found[i]))
            continue;
        if (written++ == 0)
            jw_karr(w, "user_ids");
        jw_str(w, found[i]);
    }
    if (written > 0)
        jw_end_arr(w);
    jw_end_obj(w);
}

/* A quoted message that older apps write above a reply: lines with "> ", then an empty one. */
static struct str without_quote(struct str body)
{
    struct str rest = body, line;

    if (!str_starts(body, STR("> <")) && !str_starts(body, STR("> * <")))
        return body;
    while (str_starts(rest, STR(">")))
        str_split(&rest, '\n', &line);
    if (rest.p == NULL)
        return STR("");
    return str_starts(rest, STR("\n")) ? str_skip(rest, 1) : rest;
}

static bool is_word_char(char c)
{
    return ((c | 32) >= 'a' && (c | 32) <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           (unsigned char)c >= 0x80;
}

/* Does @body have @word, in any case, as a word? */
static bool has_word(struct str body, struct str word)
{
    for (size_t i = 0; word.n > 0 && i + word.n <= body.n; i++)
        if (str_eq_ci(str_make(body.p + i, word.n), word) &&
            (i == 0 || !is_word_char(body.p[i - 1])) &&
            (i + word.n == body.n || !is_word_char(body.p[i + word.n])))
            return true;
    return false;
}

static bool is_mentioned(struct json content, struct str body, const struct mx_self *self)
{
    struct json mentions = json_get(content, "m.mentions");

    if (json_is_object(mentions)) {
        for (struct json_iter it = {0}; json_next(json_get(mentions, "user_ids"), &it);)
            if (str_eq(json_as_str(it.value), self->id))
                return true;
        return false;
    }
    struct str name = self->name.n > 0 ? self->name : mx_local_of(self->id);
    return has_word(body, self->id) || has_word(body, name) ||
           str_contains(json_str(content, "formatted_body"), self->id);
}

/* Removes "Desk: " or "@desk:example.org, " from the start. */
static struct str without_name(struct str text, const struct mx_self *self)
{
    const struct str names[] = {self->id, self->name, mx_local_of(self->id)};
    struct str rest = text;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct str at = str_starts(text, STR("@")) && i > 0 ? str_skip(text, 1) : text;
        if (names[i].n == 0 || at.n < names[i].n ||
            !str_eq_ci(str_make(at.p, names[i].n), names[i]))
            continue;
        rest = str_skip(at, names[i].n);
        if (rest.n > 0 && is_word_char(rest.p[0])) {
            rest = text;
            continue;
        }
        if (rest.n > 0 && (rest.p[0] == ':' || rest.p[0] == ','))
            rest = str_skip(rest, 1);
        return str_trim(rest);
    }
    return rest;
}

/* ---- files ---- */

bool mx_media_split(struct str mxc, struct str *ret_server, struct str *ret_id)
{
    struct str rest = str_skip(mxc, 6), server;

    if (!str_starts(mxc, STR("mxc://")) || mxc.n > 2 * MX_ID_MAX ||
        !str_split(&rest, '/', &server) || server.n == 0 || rest.n == 0)
        return false;
    for (size_t i = 0; i < server.n; i++)
        if (server.p[i] == '\0' ||
            (!is_server_char(server.p[i]) && strchr(":[]", server.p[i]) == NULL))
            return false;
    if (!str_has_only(rest, "-_") || str_eq(server, STR(".")) || str_eq(server, STR("..")))
        return false; /* dots are steps of a path */
    *ret_server = server;
    *ret_id = rest;
    return true;
}

/* ---- messages ---- */

static enum mx_verdict ignore(struct mx_out *out, const char *why)
{
    out->why = why;
    return MX_IGNORED;
}

/* An image, a file, ...: its address, and its caption where it has one. */
static bool take_file(struct json content, struct str kind, struct arena *arena, struct mx_out *out)
{
    struct json info = json_get(content, "info");
    struct str url = json_str(content, "url"), name = json_str(content, "filename");
    struct str body = json_str(content, "body"), server, id;
    bool captioned = name.n > 0 && body.n > 0 && !str_eq(name, body);

    if (!mx_media_split(url, &server, &id))
        return false;
    out->media = (struct event_media){.ref = arena_str(arena, url),
                                      .kind = kind,
                                      .type = json_str(info, "mimetype"),
                                      .name = captioned || body.n == 0 ? name : body,
                                      .caption = captioned ? body : STR_NULL};
    if (!json_as_u64(json_get(info, "size"), &out->media.size))
        out->media.size = 0;
    out->ev.media = &out->media;
    out->ev.n_media = 1;
    out->ev.text = captioned ? body : STR("");
    out->ev.message_type = str_eq(kind, STR("image")) ? STR("photo") : kind;
    return true;
}

static enum mx_verdict take_content(struct json content, struct str type, struct arena *arena,
                                    struct mx_out *out)
{
    struct event *ev = &out->ev;
    struct str kind = json_str(content, "msgtype"), body = json_str(content, "body");
    bool voice = json_type(json_get(content, "org.matrix.msc3245.voice")) != JSON_ABSENT ||
                 json_type(json_get(content, "m.voice")) != JSON_ABSENT;

    if (str_eq(type, STR("m.sticker")))
        kind = STR("m.image");
    if (str_eq(kind, STR("m.text")) || str_eq(kind, STR("m.notice"))) {
        ev->text = body;
        ev->author_is_bot = str_eq(kind, STR("m.notice"));
    } else if (str_eq(kind, STR("m.emote"))) {
        BUF_LOCAL text = BUF_INIT;
        buf_printf(&text, "* %.*s %.*s", STR_FMT(ev->user_name), STR_FMT(body));
        ev->text = arena_str(arena, buf_str(&text));
    } else if (str_eq(kind, STR("m.location"))) {
        BUF_LOCAL text = BUF_INIT;
        buf_printf(&text, "%.*s\n%.*s", STR_FMT(body), STR_FMT(json_str(content, "geo_uri")));
        ev->text = str_trim(arena_str(arena, buf_str(&text)));
    } else {
        struct str what = str_eq(kind, STR("m.image"))   ? STR("image")
                          : str_eq(kind, STR("m.video")) ? STR("video")
                          : str_eq(kind, STR("m.audio")) ? (voice ? STR("voice") : STR("audio"))
                          : str_eq(kind, STR("m.file"))  ? STR("document")
                                                         : STR_NULL;
        if (what.n == 0)
            return ignore(out, "a kind of message that people do not write");
        if (!take_file(content, what, arena, out))
            return ignore(out, "a file without an address");
    }
    if (str_trim(ev->text).n == 0 && ev->n_media == 0)
        return ignore(out, "an empty message");
    return MX_EVENT;
}

/* "!stop" is "/stop". */
static void take_command(struct event *ev, struct arena *arena)
{
    if (ev->text.n > 1 && ev->text.p[0] == '!' && (ev->text.p[1] | 32) >= 'a' &&
        (ev->text.p[1] | 32) <= 'z') {
        struct str copy = arena_str(arena, ev->text);
        ((char *)(uintptr_t)copy.p)[0] = '/';
        ev->text = copy;
    }
    if (ev->text.n > 0 && ev->text.p[0] == '/' && ev->n_media == 0)
        ev->message_type = STR("command");
}

static enum mx_verdict take_message(struct json event, struct str type, const struct mx_in *in,
                                    struct arena *arena, struct mx_out *out)
{
    struct event *ev = &out->ev;
    struct json content = json_get(event, "content"), rel = json_get(content, "m.relates_to");
    struct str how = json_str(rel, "rel_type"), to = json_str(rel, "event_id");
    struct str reply = json_str(json_get(rel, "m.in_reply_to"), "event_id");
    struct json shown = content;

    if (str_eq(how, STR("m.replace"))) {
        shown = json_get(content, "m.new_content");
        if (!json_is_object(shown) || !mx_is_event(to))
            return ignore(out, "an edit without a text");
        ev->message_id = to;
        ev->edit.set = ev->edit.silent = true; /* an agent that has the message is not told */
    } else if (str_eq(how, STR("m.thread")) && mx_is_event(to)) {
        ev->thread_id = to;
        if (json_as_bool(json_get(rel, "is_falling_back"), false))
            reply = STR_NULL;
    }
    enum mx_verdict v = take_content(shown, type, arena, out);
    if (v != MX_EVENT)
        return v;
    if (mx_is_event(reply)) {
        ev->reply_to_message_id = reply;
        ev->text = without_quote(ev->text);
        ev->replies_to_bot = in->is_own != NULL && in->is_own(in->ctx, reply);
        ev->reply_to.set = ev->reply_to.is_own = ev->replies_to_bot;
    } else if (ev->thread_id.n > 0) {
        ev->replies_to_bot = in->is_own != NULL && in->is_own(in->ctx, ev->thread_id);
    }
    for (size_t i = 0; i < in->n_self && out->addressed == in->n_self; i++)
        if (is_mentioned(shown, ev->text, &in->self[i]))
            out->addressed = i;
    ev->mentions_bot = out->addressed < in->n_self;
    if (ev->mentions_bot)
        ev->text = without_name(ev->text, &in->self[out->addressed]);
    take_command(ev, arena);
    ev->edit.text = ev->edit.set ? ev->text : STR_NULL;
    return MX_EVENT;
}

/* People's reactions to our messages become texts: "reaction:added:👍". */
static enum mx_verdict take_reaction(struct json event, const struct mx_in *in, struct arena *arena,
                                     struct mx_out *out)
{
    struct json rel = json_get(json_get(event, "content"), "m.relates_to");
    struct str to = json_str(rel, "event_id"), key = json_str(rel, "key");
    BUF_LOCAL text = BUF_INIT;

    if (!in->reactions || !str_eq(json_str(rel, "rel_type"), STR("m.annotation")) ||
        !mx_is_event(to) || key.n == 0 || key.n > MAX_REACTION || in->is_own == NULL ||
        !in->is_own(in->ctx, to))
        return ignore(out, "a reaction to somebody else's message");
    buf_printf(&text, "reaction:added:%.*s", STR_FMT(key));
    out->ev.text = arena_str(arena, buf_str(&text));
    out->ev.message_id = out->ev.reply_to_message_id = to;
    out->ev.reply_to.set = out->ev.reply_to.is_own = out->ev.replies_to_bot = true;
    return MX_EVENT;
}

static enum mx_verdict take_redaction(struct json event, struct mx_out *out)
{
    struct str what = json_str(json_get(event, "content"), "redacts");

    if (what.n == 0) /* rooms before version 11 */
        what = json_str(event, "redacts");
    if (!mx_is_event(what))
        return MX_MALFORMED;
    out->ev.message_id = what;
    out->ev.edit.set = out->ev.edit.silent = out->ev.edit.deletes = true;
    return MX_EVENT;
}

enum mx_verdict mx_normalize(struct json event, const struct mx_in *in, struct arena *arena,
                             struct mx_out *out)
{
    struct str type = json_str(event, "type"), id = json_str(event, "event_id");
    struct str sender = json_str(event, "sender");

    *out = (struct mx_out){.addressed = in->n_self};
    if (type.n == 0 || !mx_is_event(id) || !mx_is_user(sender))
        return MX_MALFORMED;
    bool named = in->author_name.n > 0 && in->author_name.n <= NAME_MAX_BYTES;
    out->ev = (struct event){.platform = STR("matrix"),
                             .bot = in->bot,
                             .route_key = in->room,
                             .event_id = id,
                             .message_id = id,
                             .text = STR(""),
                             .chat_id = in->room,
                             .chat_type = in->dm ? STR("dm") : STR("group"),
                             .chat_name = in->room_name,
                             .scope_id = in->server,
                             .user_id = sender,
                             .user_name = named ? in->author_name : sender,
                             .user_display_name = named ? in->author_name : STR_NULL,
                             .user_handle = mx_local_of(sender)};
    if (json_type(json_get(event, "state_key")) != JSON_ABSENT)
        return ignore(out, "a state of the room");
    if (str_eq(type, STR("m.room.encrypted")))
        return MX_ENCRYPTED;
    if (str_eq(type, STR("m.room.redaction")))
        return take_redaction(event, out);
    if (json_count(json_get(event, "content")) == 0)
        return ignore(out, "a deleted message");
    if (str_eq(type, STR("m.reaction")))
        return take_reaction(event, in, arena, out);
    if (str_eq(type, STR("m.room.message")) || str_eq(type, STR("m.sticker")))
        return take_message(event, type, in, arena, out);
    return ignore(out, "not a message");
}

struct str mx_answered(struct json event)
{
    struct json rel = json_get(json_get(event, "content"), "m.relates_to");
    struct str how = json_str(rel, "rel_type"), to = json_str(rel, "event_id");
    struct str reply = json_str(json_get(rel, "m.in_reply_to"), "event_id");
    bool thread = str_eq(how, STR("m.thread"));

    if (str_eq(how, STR("m.replace")))
        return STR_NULL;
    if (thread && json_as_bool(json_get(rel, "is_falling_back"), false))
        reply = STR_NULL;
    if (mx_is_event(reply))
        return reply;
    return (thread || str_eq(how, STR("m.annotation"))) && mx_is_event(to) ? to : STR_NULL;
}

/* ---- state ---- */

bool mx_state_read(struct json event, struct mx_state *ret)
{
    struct json content = json_get(event, "content"), before = json_get(event, "unsigned");
    struct str type = json_str(event, "type"), key = json_str(event, "state_key");
    struct json was = json_get(before, "prev_content");

    *ret = (struct mx_state){.sender = json_str(event, "sender")};
    if (key.p == NULL)
        return false;
    if (str_eq(type, STR("m.room.member")) && mx_is_user(key)) {
        ret->fact = MX_MEMBER;
        ret->user = key;
        ret->membership = json_str(content, "membership");
        ret->name = json_str(content, "displayname");
        ret->reason = json_str(content, "reason");
        if (!json_is_object(was))
            was = json_get(event, "prev_content");
        ret->was = json_str(was, "membership");
        return ret->membership.n > 0;
    }
    if (key.n > 0)
        return false;
    if (str_eq(type, STR("m.room.name"))) {
        ret->fact = MX_NAME;
        ret->name = json_str(content, "name");
    } else if (str_eq(type, STR("m.room.encryption"))) {
        ret->fact = MX_ENCRYPTION;
    } else if (str_eq(type, STR("m.room.tombstone"))) {
        ret->fact = MX_TOMBSTONE;
        ret->name = json_str(content, "replacement_room");
    }
    return ret->fact != MX_OTHER;
}

bool mx_is_entry(struct json event, struct str user)
{
    struct mx_state s;

    return mx_state_read(event, &s) && s.fact == MX_MEMBER && str_eq(s.user, user) &&
           (str_eq(s.membership, STR("join")) || str_eq(s.membership, STR("invite")));
}

/* ---- the users of instances ---- */

static void add_escaped(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')
            buf_add_c(out, (char)c);
        else
            buf_printf(out, "=%02x", c);
    }
}

static bool add_unescaped(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '=') {
            if (!((s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9') ||
                  s.p[i] == '-'))
                return false;
            buf_add_c(out, s.p[i]);
            continue;
        }
        if (i + 2 >= s.n || hex_value(s.p[i + 1]) < 0 || hex_value(s.p[i + 2]) < 0)
            return false;
        buf_add_c(out, (char)(hex_value(s.p[i + 1]) << 4 | hex_value(s.p[i + 2])));
        i += 2;
    }
    return s.n > 0;
}

void mx_virtual_write(struct buf *out, struct str bot, struct str own_tenant, struct str tenant,
                      struct str instance)
{
    buf_printf(out, "@%.*s_", STR_FMT(mx_local_of(bot)));
    if (own_tenant.n == 0) {
        add_escaped(out, tenant);
        buf_add_c(out, '.');
    }
    add_escaped(out, instance);
    buf_printf(out, ":%.*s", STR_FMT(mx_server_of(bot)));
}

bool mx_virtual_read(struct str user, struct str bot, struct str own_tenant, struct buf *ret_tenant,
                     struct buf *ret_instance)
{
    struct str local = mx_local_of(user), prefix = mx_local_of(bot), tenant;

    if (!mx_is_user(user) || !str_eq(mx_server_of(user), mx_server_of(bot)) ||
        !str_starts(local, prefix) || local.n <= prefix.n + 1 || local.p[prefix.n] != '_')
        return false;
    local = str_skip(local, prefix.n + 1);
    if (own_tenant.n > 0)
        buf_add_str(ret_tenant, own_tenant);
    else if (!str_split(&local, '.', &tenant) || local.p == NULL ||
             !add_unescaped(ret_tenant, tenant))
        return false;
    if (!add_unescaped(ret_instance, local))
        return false;
    BUF_LOCAL again = BUF_INIT; /* one instance has one user: no other spelling counts */
    mx_virtual_write(&again, bot, own_tenant, buf_str(ret_tenant), buf_str(ret_instance));
    return str_eq(buf_str(&again), user);
}
