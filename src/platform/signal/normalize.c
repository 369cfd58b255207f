/* normalize.c - see normalize.h. */
#include "platform/signal/normalize.h"
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>
#include "base/mem.h"
#include "platform/platform.h"

enum {
    NAME_MAX_BYTES = 256,
    FILE_ID_MAX = 128,
    EMOJI_MAX = 64,
    MENTIONS_MAX = 64,
    CARDS_MAX = 8,
    TEXT_MAX = 256 * 1024,
    QUOTED_MAX = 4096,
};

/* ---- ids ---- */

bool signal_is_uuid(struct str s)
{
    if (s.n != SIGNAL_UUID)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s.p[i] != '-' : hex_value(s.p[i]) < 0 || (s.p[i] >= 'A' && s.p[i] <= 'F'))
            return false;
    }
    return true;
}

bool signal_is_number(struct str s)
{
    uint64_t n;

    return s.n >= 6 && s.n <= 16 && s.p[0] == '+' && s.p[1] != '0' &&
           str_to_u64(str_skip(s, 1), &n);
}

struct str signal_group_of(struct str chat)
{
    struct str id = str_skip(chat, strlen("group:"));

    return str_starts(chat, STR("group:")) && id.n > 0 && chat.n <= SIGNAL_CHAT_MAX &&
                   str_has_only(id, "+/=")
               ? id
               : STR_NULL;
}

bool signal_is_chat(struct str chat)
{
    return signal_is_uuid(chat) || signal_is_number(chat) || signal_group_of(chat).n > 0;
}

bool signal_read_id(struct str id, int64_t *ret_timestamp, struct str *ret_author)
{
    struct str rest = id, at;
    uint64_t n;

    if (id.n > SIGNAL_ID_MAX || !str_split(&rest, ':', &at) || at.n > 15 || !str_to_u64(at, &n) ||
        n == 0)
        return false;
    if (rest.p != NULL && !signal_is_uuid(rest) && !signal_is_number(rest))
        return false;
    *ret_timestamp = (int64_t)n;
    *ret_author = rest;
    return true;
}

/* ---- addresses ---- */

struct address {
    struct str uuid, number;
    bool self;
};

static struct address read_address(struct json v, const char *uuid, const char *number,
                                   const struct signal_in *in, struct signal_out *out)
{
    struct address a = {.uuid = json_str(v, uuid), .number = json_str(v, number)};

    if (!signal_is_uuid(a.uuid))
        a.uuid = STR_NULL;
    if (!signal_is_number(a.number))
        a.number = STR_NULL;
    a.self =
        (a.number.n > 0 && str_eq(a.number, in->bot)) || (a.uuid.n > 0 && str_eq(a.uuid, in->self));
    if (a.self && a.uuid.n > 0)
        out->self = a.uuid;
    return a;
}

static struct str id_of(const struct address *a)
{
    return a->uuid.n > 0 ? a->uuid : a->number;
}

static struct str message_id(struct arena *arena, int64_t timestamp, const struct address *author)
{
    BUF_LOCAL id = BUF_INIT;

    buf_add_i64(&id, timestamp);
    if (!author->self)
        buf_printf(&id, ":%.*s", STR_FMT(id_of(author)));
    return arena_str(arena, buf_str(&id));
}

static bool is_time(int64_t ms)
{
    return ms > 0 && ms < INT64_C(1000000000000000);
}

static struct str short_name(struct str name)
{
    return name.n > 0 && name.n <= NAME_MAX_BYTES ? name : STR_NULL;
}

/* ---- text ---- */

struct mention {
    size_t start, length; /* UTF-16 units */
    struct address who;
};

static int by_start(const void *a, const void *b)
{
    const struct mention *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

static size_t read_mentions(struct json list, const struct signal_in *in, struct signal_out *out,
                            struct mention ret[MENTIONS_MAX])
{
    size_t n = 0;

    for (struct json_iter it = {0}; n < MENTIONS_MAX && json_next(list, &it);) {
        int64_t start = json_i64(it.value, "start", -1), length = json_i64(it.value, "length", 0);
        struct mention m = {.who = read_address(it.value, "uuid", "number", in, out)};
        if (start < 0 || length <= 0 || length > 64 || start > TEXT_MAX)
            continue;
        m.start = (size_t)start;
        m.length = (size_t)length;
        ret[n++] = m;
    }
    qsort(ret, n, sizeof *ret, by_start);
    return n;
}

/* A mention stands in the text as a placeholder: it becomes "@" and the number, or goes if it is
 * the account's own. */
static struct str expand(struct str text, struct json mentions, const struct signal_in *in,
                         struct arena *arena, struct signal_out *out)
{
    struct mention all[MENTIONS_MAX] = {0};
    size_t n = read_mentions(mentions, in, out, all), unit = 0, k = 0, i = 0, skip = 0;
    BUF_LOCAL to = BUF_INIT;

    if (n == 0)
        return text;
    while (i < text.n) {
        size_t bytes = utf8_seq_bytes(str_skip(text, i)), units = bytes == 4 ? 2 : 1;
        bytes = bytes > 0 ? bytes : 1;
        while (k < n && all[k].start < unit)
            k++;
        if (k < n && all[k].start == unit && skip == 0) {
            skip = all[k].length;
            if (all[k].who.self)
                out->ev.mentions_bot = true;
            else
                buf_printf(&to, "@%.*s",
                           STR_FMT(all[k].who.number.n > 0 ? all[k].who.number : all[k].who.uuid));
        }
        if (skip == 0)
            buf_add(&to, text.p + i, bytes);
        skip = skip > units ? skip - units : 0;
        unit += units;
        i += bytes;
    }
    return arena_str(arena, str_trim(buf_str(&to)));
}

/* ---- what a message carries ---- */

/* Files that are too large for bellhop become a note. */
static void read_files(struct json list, struct signal_out *out, struct buf *notes)
{
    struct event *ev = &out->ev;

    for (struct json_iter it = {0}; ev->n_media < EVENT_MAX_MEDIA && json_next(list, &it);) {
        struct str id = json_str(it.value, "id"), mime = json_str(it.value, "contentType"),
                   name = short_name(json_str(it.value, "filename")), part;
        int64_t size = json_i64(it.value, "size", 0);
        bool voice = name.n == 0 && str_starts(mime, STR("audio/"));
        if (str_split(&mime, ';', &part))
            mime = str_trim(part);
        if (id.n == 0 || id.n > FILE_ID_MAX || !str_has_only(id, "-_.") || id.p[0] == '.' ||
            size < 0 || (uint64_t)size > SIGNAL_FILE_MAX) {
            buf_printf(notes, "%s[a file that could not be fetched: %.*s]",
                       notes->n > 0 ? "\n" : "", STR_FMT(name.n > 0 ? name : mime));
            continue;
        }
        struct str kind = platform_message_type(mime, voice);
        if (ev->n_media == 0)
            ev->message_type = kind;
        out->media[ev->n_media++] =
            (struct event_media){.ref = id,
                                 .kind = str_eq(kind, STR("photo")) ? STR("image") : kind,
                                 .type = mime,
                                 .name = name,
                                 .caption = json_str(it.value, "caption"),
                                 .size = (uint64_t)size};
    }
    ev->media = out->media;
}

/* Kinds without a text of their own become a note in brackets. */
static void add_notes(struct json data, struct buf *notes)
{
    size_t n = 0;

    if (json_is_object(json_get(data, "sticker")))
        buf_printf(notes, "%s[sticker]", notes->n > 0 ? "\n" : "");
    for (struct json_iter it = {0}; n < CARDS_MAX && json_next(json_get(data, "contacts"), &it);
         n++) {
        struct json name = json_get(it.value, "name");
        struct str shown = short_name(json_str(name, "display"));
        size_t phones = 0;
        if (shown.n == 0)
            shown = short_name(json_str(name, "given"));
        buf_printf(notes, "%s[contact: %.*s", notes->n > 0 ? "\n" : "", STR_FMT(shown));
        for (struct json_iter p = {0};
             phones < CARDS_MAX && json_next(json_get(it.value, "phone"), &p); phones++) {
            struct str number = short_name(json_str(p.value, "value"));
            buf_printf(notes, ", %.*s", STR_FMT(number));
        }
        buf_add_c(notes, ']');
    }
    struct json poll = json_get(data, "pollCreate");
    if (json_is_object(poll)) {
        struct str question = short_name(json_str(poll, "question"));
        buf_printf(notes, "%s[poll: %.*s]", notes->n > 0 ? "\n" : "", STR_FMT(question));
    }
}

static void read_quote(struct json quote, const struct signal_in *in, struct arena *arena,
                       struct signal_out *out)
{
    int64_t at = json_i64(quote, "id", 0);
    struct event *ev = &out->ev;
    struct address who;

    if (!json_is_object(quote) || !is_time(at))
        return;
    who = read_address(quote, "authorUuid", "authorNumber", in, out);
    if (id_of(&who).n == 0)
        return;
    ev->reply_to_message_id = message_id(arena, at, &who);
    ev->reply_to.set = true;
    ev->reply_to.text = utf8_head(json_str(quote, "text"), QUOTED_MAX);
    ev->reply_to.author = who.self ? STR_NULL : id_of(&who);
    ev->reply_to.is_own = ev->replies_to_bot = who.self;
}

static void set_text(struct json data, const struct signal_in *in, struct arena *arena,
                     struct signal_out *out)
{
    struct str text = utf8_head(json_str(data, "message"), TEXT_MAX);
    struct event *ev = &out->ev;
    BUF_LOCAL notes = BUF_INIT;

    text = expand(text.p != NULL ? text : STR(""), json_get(data, "mentions"), in, arena, out);
    read_files(json_get(data, "attachments"), out, &notes);
    add_notes(data, &notes);
    if (notes.n > 0 && text.n > 0) {
        BUF_LOCAL both = BUF_INIT;
        buf_printf(&both, "%.*s\n%.*s", STR_FMT(text), STR_FMT(buf_str(&notes)));
        text = arena_str(arena, buf_str(&both));
    } else if (notes.n > 0) {
        text = arena_str(arena, buf_str(&notes));
    }
    ev->text = text;
    if (ev->n_media == 0 && str_starts(text, STR("/")))
        ev->message_type = STR("command");
    read_quote(json_get(data, "quote"), in, arena, out);
}

/* ---- kinds of messages ---- */

static enum signal_verdict ignore(struct signal_out *out, const char *why)
{
    out->why = why;
    return SIGNAL_IGNORED;
}

/* The id of an update that is no message of its own. */
static void set_update(struct signal_out *out, const char *what, struct arena *arena,
                       const struct address *author)
{
    BUF_LOCAL id = BUF_INIT;

    buf_printf(&id, "%s %" PRId64 ":%.*s", what, out->timestamp, STR_FMT(id_of(author)));
    out->ev.event_id = arena_str(arena, buf_str(&id));
}

/* "reaction:added:<emoji>", as a reply to the message that got it. */
static enum signal_verdict take_reaction(struct json v, const struct signal_in *in,
                                         const struct address *from, struct arena *arena,
                                         struct signal_out *out)
{
    struct address target = read_address(v, "targetAuthorUuid", "targetAuthorNumber", in, out);
    int64_t at = json_i64(v, "targetSentTimestamp", 0);
    struct str emoji = json_str(v, "emoji");
    bool gone = json_as_bool(json_get(v, "isRemove"), false);
    struct event *ev = &out->ev;
    BUF_LOCAL text = BUF_INIT;

    if (!is_time(at) || emoji.n == 0 || emoji.n > EMOJI_MAX || id_of(&target).n == 0)
        return SIGNAL_MALFORMED;
    if (!in->reactions || !target.self)
        return ignore(out, "a reaction");
    buf_printf(&text, "reaction:%s%.*s", gone ? "removed:" : "added:", STR_FMT(emoji));
    ev->text = arena_str(arena, buf_str(&text));
    ev->message_id = ev->reply_to_message_id = message_id(arena, at, &target);
    ev->reply_to.set = ev->reply_to.is_own = ev->replies_to_bot = true;
    set_update(out, "react", arena, from);
    return SIGNAL_EVENT;
}

/* The message of @author was deleted, by its author or by an admin of the group: signal-cli has
 * looked who may. */
static enum signal_verdict take_delete(int64_t at, const struct address *author,
                                       const struct address *from, struct arena *arena,
                                       struct signal_out *out)
{
    struct event *ev = &out->ev;

    if (!is_time(at) || id_of(author).n == 0)
        return SIGNAL_MALFORMED;
    ev->message_id = message_id(arena, at, author);
    ev->edit.set = ev->edit.deletes = ev->edit.silent = true;
    set_update(out, "delete", arena, from);
    return SIGNAL_EVENT;
}

static bool is_empty(const struct event *ev)
{
    return ev->text.n == 0 && ev->n_media == 0;
}

static enum signal_verdict take_data(struct json data, const struct signal_in *in,
                                     const struct address *from, struct arena *arena,
                                     struct signal_out *out)
{
    struct event *ev = &out->ev;

    if (json_is_object(json_get(data, "reaction")))
        return take_reaction(json_get(data, "reaction"), in, from, arena, out);
    struct json own = json_get(data, "remoteDelete"), admins = json_get(data, "adminDelete");
    if (json_is_object(own))
        return take_delete(json_i64(own, "timestamp", 0), from, from, arena, out);
    if (json_is_object(admins)) {
        struct address author =
            read_address(admins, "targetAuthorUuid", "targetAuthorNumber", in, out);
        return take_delete(json_i64(admins, "targetSentTimestamp", 0), &author, from, arena, out);
    }
    ev->event_id = ev->message_id = message_id(arena, out->timestamp, from);
    if (json_as_bool(json_get(data, "viewOnce"), false)) {
        out->why = "a message that may be viewed once is not kept";
        return SIGNAL_REFUSED;
    }
    set_text(data, in, arena, out);
    bool named = ev->mentions_bot && str_eq(ev->chat_type, STR("group"));
    if (is_empty(ev) && !named) /* a bare mention is a message */
        return ignore(out, "a notice that nobody wrote");
    return SIGNAL_EVENT;
}

static enum signal_verdict take_edit(struct json edit, const struct signal_in *in,
                                     const struct address *from, struct arena *arena,
                                     struct signal_out *out)
{
    int64_t at = json_i64(edit, "targetSentTimestamp", 0);
    struct event *ev = &out->ev;

    if (!is_time(at))
        return SIGNAL_MALFORMED;
    set_text(json_get(edit, "dataMessage"), in, arena, out);
    ev->message_id = message_id(arena, at, from);
    ev->edit.set = true;
    ev->edit.text = ev->text;
    ev->n_media = 0; /* the files are those of the first version */
    ev->message_type = STR_NULL;
    set_update(out, "edit", arena, from);
    return is_empty(ev) ? ignore(out, "an edit without a text") : SIGNAL_EVENT;
}

/* ---- where, and who ---- */

static bool set_chat(struct json data, const struct address *from, struct str name,
                     struct arena *arena, struct event *ev)
{
    struct str group = json_str(json_get(data, "groupInfo"), "groupId"), id = id_of(from);
    BUF_LOCAL chat = BUF_INIT;

    ev->user_id = id;
    if (from->uuid.n > 0 && from->number.n > 0)
        ev->user_id_alt = from->number;
    ev->user_handle = from->number;
    ev->user_name = name.n > 0 ? name : from->number.n > 0 ? from->number : id;
    ev->user_display_name = ev->user_name;
    if (group.p == NULL) {
        ev->chat_id = ev->route_key = id;
        ev->former_key = ev->user_id_alt;
        ev->chat_type = STR("dm");
        ev->chat_name = ev->user_name;
        ev->mentions_bot = true;
        return true;
    }
    buf_printf(&chat, "group:%.*s", group.n < SIGNAL_CHAT_MAX ? (int)group.n : 0, group.p);
    if (signal_group_of(buf_str(&chat)).n == 0)
        return false;
    ev->chat_id = ev->route_key = arena_str(arena, buf_str(&chat));
    ev->chat_type = STR("group");
    ev->chat_name = short_name(json_str(json_get(data, "groupInfo"), "groupName"));
    if (ev->chat_name.n == 0)
        ev->chat_name = ev->chat_id;
    return true;
}

static const char *nothing_in(struct json envelope)
{
    static const struct {
        const char *key, *why;
    } kinds[] = {
        {"syncMessage", "the account wrote it on another device"},
        {"receiptMessage", "a receipt"},
        {"typingMessage", "somebody types"},
        {"callMessage", "a call"},
        {"storyMessage", "a story"},
    };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (json_is_object(json_get(envelope, kinds[i].key)))
            return kinds[i].why;
    return "an envelope without a message";
}

/* What the owner of the account wrote on another device to the agent; absent: it is for others. */
static struct json written_by_owner(struct json envelope, const struct signal_in *in,
                                    struct signal_out *out)
{
    struct json sent = json_get(json_get(envelope, "syncMessage"), "sentMessage");
    struct json edited = json_get(json_get(sent, "editMessage"), "dataMessage");
    bool group = json_is_object(json_get(json_is_object(edited) ? edited : sent, "groupInfo"));
    struct address to = read_address(sent, "destinationUuid", "destinationNumber", in, out);

    return json_is_object(sent) && (group || to.self) ? sent : (struct json){0};
}

enum signal_verdict signal_normalize(struct json message, const struct signal_in *in,
                                     struct arena *arena, struct signal_out *out)
{
    struct json envelope = json_get(message, "envelope"), edit = json_get(envelope, "editMessage"),
                data = json_get(json_is_object(edit) ? edit : envelope, "dataMessage");
    struct str account = json_str(message, "account");
    struct address from;

    *out = (struct signal_out){.ev = {.platform = STR("signal"), .bot = in->bot, .text = STR("")}};
    if (!json_is_object(envelope))
        return SIGNAL_MALFORMED;
    if (account.n > 0 && signal_is_number(account) && !str_eq(account, in->bot))
        return ignore(out, "a message for another account");
    from = read_address(envelope, "sourceUuid", "sourceNumber", in, out);
    if (from.self && from.uuid.n > 0)
        out->self = from.uuid;
    if (from.self) {
        data = written_by_owner(envelope, in, out);
        edit = json_get(data, "editMessage");
        if (json_is_object(edit))
            data = json_get(edit, "dataMessage");
        out->own = json_is_object(data);
    }
    if (!json_is_object(data))
        return ignore(out, from.self ? nothing_in(envelope)
                           : json_is_object(json_get(message, "exception"))
                               ? "a message that could not be decrypted"
                               : nothing_in(envelope));
    out->author = id_of(&from);
    out->timestamp = json_i64(data, "timestamp", json_i64(envelope, "timestamp", 0));
    if (out->author.n == 0 || !is_time(out->timestamp) ||
        !set_chat(data, &from, short_name(json_str(envelope, "sourceName")), arena, &out->ev))
        return SIGNAL_MALFORMED;
    return json_is_object(edit) ? take_edit(edit, in, &from, arena, out)
                                : take_data(data, in, &from, arena, out);
}
