/* normalize.c - design.  (normalize.h has the contract.)
 *
 * Each take_*() function fills one part of the event from struct normal, so an update is read once.
 * Entity offsets count UTF-16 units, and bellhop keeps text in UTF-8; tg_utf16_to_byte() converts
 * and checks every offset. */
#include "platform/telegram/normalize.h"
#include <inttypes.h>
#include <stdio.h>
#include "base/buf.h"
#include "base/mem.h"

enum {
    ID_CHARS = 24,
    MAX_DETAIL = 200,  /* bytes of a name or a title in a note */
    MAX_WORDS = 32768, /* of the texts of an unknown kind of message */
    WORDS_DEPTH = 16,
};

/* ---- notes: what a message contains besides text ----
 *
 * "[photo]", "[voice message, 12 s]", "[document: report.pdf]".  One row per kind of content; the
 * first that is present names the message.  The order matters twice: an animation also carries a
 * document, and a venue also a location. */

typedef void note_fn(struct buf *out, struct json v);

/* Adds untrusted text to a note: one line, without brackets, at most MAX_DETAIL bytes. */
static void add_detail(struct buf *out, const char *before, struct str s)
{
    size_t n = 0;

    if (s.n == 0)
        return;
    buf_add_z(out, before);
    while (n < s.n) {
        size_t one = utf8_seq_bytes(str_skip(s, n));
        if (one == 0 || n + one > MAX_DETAIL)
            break;
        char c = s.p[n];
        if ((unsigned char)c < ' ' || c == '[' || c == ']')
            buf_add_c(out, ' ');
        else
            buf_add(out, s.p + n, one);
        n += one;
    }
}

static void note_file(struct buf *out, struct json v)
{
    add_detail(out, ": ", json_str(v, "file_name"));
}

static void note_seconds(struct buf *out, struct json v)
{
    int64_t seconds;

    if (json_as_i64(json_get(v, "duration"), &seconds) && seconds >= 0)
        buf_printf(out, ", %" PRId64 " s", seconds);
}

static void note_audio(struct buf *out, struct json v)
{
    struct str title = json_str(v, "title");

    add_detail(out, ": ", title.n > 0 ? title : json_str(v, "file_name"));
    add_detail(out, title.n > 0 ? " by " : ", by ", json_str(v, "performer"));
    note_seconds(out, v);
}

static void note_emoji(struct buf *out, struct json v)
{
    int64_t value;

    add_detail(out, " ", json_str(v, "emoji"));
    if (json_as_i64(json_get(v, "value"), &value))
        buf_printf(out, " %" PRId64, value);
}

static void note_place(struct buf *out, struct json v)
{
    double lat, lon;

    if (json_as_f64(json_get(v, "latitude"), &lat) && json_as_f64(json_get(v, "longitude"), &lon) &&
        lat >= -90 && lat <= 90 && lon >= -180 && lon <= 180)
        buf_printf(out, ": %.6f, %.6f", lat, lon);
}

static void note_venue(struct buf *out, struct json v)
{
    add_detail(out, ": ", json_str(v, "title"));
    add_detail(out, ", ", json_str(v, "address"));
    note_place(out, json_get(v, "location"));
}

static void note_contact(struct buf *out, struct json v)
{
    add_detail(out, ": ", json_str(v, "first_name"));
    add_detail(out, " ", json_str(v, "last_name"));
    add_detail(out, ", ", json_str(v, "phone_number"));
}

static void note_poll(struct buf *out, struct json v)
{
    size_t n = 0;

    add_detail(out, ": ", json_str(v, "question"));
    for (struct json_iter it = {0}; n < 12 && json_next(json_get(v, "options"), &it); n++)
        add_detail(out, " / ", json_str(it.value, "text"));
}

static void note_checklist(struct buf *out, struct json v)
{
    size_t n = 0;

    add_detail(out, ": ", json_str(v, "title"));
    for (struct json_iter it = {0}; n < 30 && json_next(json_get(v, "tasks"), &it); n++)
        add_detail(out, " / ", json_str(it.value, "text"));
}

static const struct {
    const char *key, *what, *type; /* type NULL: "text" */
    note_fn *detail;               /* NULL: none */
} notes[] = {
    {"photo", "photo", "photo", NULL},
    {"voice", "voice message", "voice", note_seconds},
    {"audio", "audio", "audio", note_audio},
    {"animation", "animation", "video", NULL},
    {"video", "video", "video", note_seconds},
    {"video_note", "video message", "video", note_seconds},
    {"sticker", "sticker", "sticker", note_emoji},
    {"document", "document", "document", note_file},
    {"venue", "place", "location", note_venue},
    {"location", "location", "location", note_place},
    {"contact", "contact", NULL, note_contact},
    {"poll", "poll", NULL, note_poll},
    {"dice", "dice", NULL, note_emoji},
    {"story", "story", NULL, NULL},
    {"paid_media", "paid media", NULL, NULL},
    {"game", "game", NULL, NULL},
    {"checklist", "checklist", NULL, note_checklist},
    {"giveaway", "giveaway", NULL, NULL},
};

/* Members of a message that are no content: where it comes from, how it looks, and what the app
 * says by itself ("Ann joined"). */
static const char *const no_content[] = {
    "from",
    "sender_chat",
    "sender_business_bot",
    "receiver_user",
    "guest_bot_caller_user",
    "guest_bot_caller_chat",
    "chat",
    "forward_origin",
    "forward_from",
    "forward_from_chat",
    "reply_to_message",
    "external_reply",
    "quote",
    "reply_to_story",
    "reply_markup",
    "via_bot",
    "entities",
    "caption_entities",
    "link_preview_options",
    "direct_messages_topic",
    "suggested_post_info",
    "new_chat_members",
    "new_chat_member",
    "new_chat_participant",
    "left_chat_member",
    "left_chat_participant",
    "chat_owner_left",
    "chat_owner_changed",
    "community_chat_added",
    "community_chat_removed",
    "managed_bot_created",
    "poll_option_added",
    "poll_option_deleted",
    "new_chat_photo",
    "pinned_message",
    "invoice",
    "successful_payment",
    "refunded_payment",
    "users_shared",
    "user_shared",
    "chat_shared",
    "write_access_allowed",
    "passport_data",
    "proximity_alert_triggered",
    "boost_added",
    "chat_background_set",
    "forum_topic_created",
    "forum_topic_edited",
    "forum_topic_closed",
    "forum_topic_reopened",
    "general_forum_topic_hidden",
    "general_forum_topic_unhidden",
    "giveaway_created",
    "giveaway_winners",
    "giveaway_completed",
    "video_chat_scheduled",
    "video_chat_started",
    "video_chat_ended",
    "video_chat_participants_invited",
    "voice_chat_scheduled", /* servers send the former names, too */
    "voice_chat_started",
    "voice_chat_ended",
    "voice_chat_participants_invited",
    "message_auto_delete_timer_changed",
    "web_app_data",
    "checklist_tasks_done",
    "checklist_tasks_added",
    "direct_message_price_changed",
    "paid_message_price_changed",
    "suggested_post_approved",
    "suggested_post_approval_failed",
    "suggested_post_declined",
    "suggested_post_paid",
    "suggested_post_refunded",
    "gift",
    "unique_gift",
    "gift_upgrade_sent",
    "photo",
};

static bool is_no_content(struct str key)
{
    for (size_t i = 0; i < ARRAY_LEN(no_content); i++)
        if (str_eq(key, str_of(no_content[i])))
            return true;
    return false;
}

/* Collects the texts inside of @v: members called text, caption, title or question, and the
 * texts of lists that are such members.  At most WORDS_DEPTH levels and MAX_WORDS bytes. */
static void collect_words(struct buf *out, struct json v)
{
    static const char *const said[] = {"text", "caption", "title", "question", "markdown"};
    struct {
        struct json v;
        struct json_iter it;
        bool words; /* its bare texts count */
        bool run;   /* it is part of a line that has begun: no line break before its texts */
    } stack[WORDS_DEPTH] = {{.v = v}};
    size_t depth = 1;

    while (depth > 0 && out->n < MAX_WORDS) {
        struct json_iter *it = &stack[depth - 1].it;
        bool list = json_type(stack[depth - 1].v) == JSON_ARRAY;
        if (!json_next(stack[depth - 1].v, it)) {
            depth--;
            continue;
        }
        bool words = list && stack[depth - 1].words;
        for (size_t i = 0; !list && i < ARRAY_LEN(said); i++)
            words |= str_eq(it->key, str_of(said[i]));
        struct str text = json_as_str(it->value);
        if (words && text.n > 0 && text.n <= MAX_WORDS - out->n) {
            buf_add_str(out, out->n > 0 && !stack[depth - 1].run ? STR("\n") : STR(""));
            buf_add_str(out, text);
            stack[depth - 1].run |= list;
        }
        bool nested = json_type(it->value) == JSON_ARRAY || json_type(it->value) == JSON_OBJECT;
        if (nested && depth < WORDS_DEPTH) {
            struct json inside = it->value;
            stack[depth].v = inside;
            stack[depth].it = (struct json_iter){0};
            stack[depth].run = list && stack[depth - 1].run;
            stack[depth++].words = words;
        }
    }
}

/* A kind of message that this program does not know: its name and the texts in it, so that nothing
 * that a person sends is dropped because Telegram is newer. */
static struct str unknown_note(struct arena *a, struct json message)
{
    BUF_LOCAL out = BUF_INIT;

    for (struct json_iter it = {0}; json_next(message, &it);) {
        if ((json_type(it.value) != JSON_OBJECT && json_type(it.value) != JSON_ARRAY) ||
            is_no_content(it.key))
            continue;
        buf_add_c(&out, '[');
        for (size_t i = 0; i < it.key.n && i < 64; i++)
            buf_add_c(&out, (it.key.p[i] >= 'a' && it.key.p[i] <= 'z') ? it.key.p[i] : ' ');
        buf_add_c(&out, ']');
        BUF_LOCAL words = BUF_INIT;
        collect_words(&words, it.value);
        if (words.n > 0)
            buf_printf(&out, "\n%.*s", STR_FMT(buf_str(&words)));
        return arena_str(a, buf_str(&out));
    }
    return STR_NULL;
}

static struct str note_of(struct arena *a, struct json message, struct str *ret_type)
{
    BUF_LOCAL out = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(notes); i++) {
        struct json v = json_get(message, notes[i].key);
        if (json_type(v) != JSON_OBJECT && json_type(v) != JSON_ARRAY)
            continue;
        buf_printf(&out, "[%s", notes[i].what);
        if (notes[i].detail != NULL)
            notes[i].detail(&out, v);
        buf_add_c(&out, ']');
        if (notes[i].type != NULL)
            *ret_type = str_of(notes[i].type);
        struct str note = arena_str(a, buf_str(&out));
        return note;
    }
    return json_str(message, "text").n == 0 ? unknown_note(a, message) : STR_NULL;
}

static const struct {
    const char *key, *kind, *type; /* type: the default if Telegram gives none */
} files[] = {
    {"voice", "voice", "audio/ogg"},      {"audio", "audio", "audio/mpeg"},
    {"animation", "video", "video/mp4"},  {"video", "video", "video/mp4"},
    {"video_note", "video", "video/mp4"}, {"sticker", "image", "image/webp"},
    {"document", "document", NULL},
};

static void read_file(struct json v, const char *kind, const char *type, struct event_media *ret)
{
    struct str said = json_str(v, "mime_type");

    *ret = (struct event_media){.ref = json_str(v, "file_id"),
                                .kind = str_of(kind),
                                .type = said.n > 0 ? said : str_of(type),
                                .name = json_str(v, "file_name")};
    if (!json_as_u64(json_get(v, "file_size"), &ret->size))
        ret->size = 0;
}

/* The file of a message; its file_id is the reference.  False: no file. */
static bool file_of(struct json message, struct event_media *ret)
{
    struct json photo = {0};

    for (struct json_iter it = {0}; json_next(json_get(message, "photo"), &it);)
        photo = it.value; /* an array of sizes of one picture, the largest last */
    bool found = json_is_object(photo);

    if (found)
        read_file(photo, "image", "image/jpeg", ret);
    for (size_t i = 0; !found && i < ARRAY_LEN(files); i++) {
        struct json v = json_get(message, files[i].key);
        bool animated = json_as_bool(json_get(v, "is_animated"), false); /* a vector sticker */
        found = json_is_object(v) && !animated;
        if (found)
            read_file(v, files[i].kind, files[i].type, ret);
    }
    if (!found || ret->ref.n == 0)
        return false;
    ret->caption = json_str(message, "caption");
    return true;
}

/* ---- small readers ---- */

struct normal {
    struct json message, from, chat, sender_chat, reply;
    const struct tg_me *me;
    struct arena *arena;
    struct event *ev;
    bool edited, channel;
};

static const struct {
    const char *key;
    bool edited, channel;
} kinds[] = {
    {"message", false, false},
    {"edited_message", true, false},
    {"channel_post", false, true},
    {"edited_channel_post", true, true},
};

static struct json find_message(struct json update, struct normal *n)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct json m = json_get(update, kinds[i].key);
        if (json_is_object(m)) {
            n->edited = kinds[i].edited;
            n->channel = kinds[i].channel;
            return m;
        }
    }
    return (struct json){0};
}

static struct str format_id(struct arena *a, int64_t id)
{
    char *text = arena_alloc(a, ID_CHARS);

    return str_make(text, (size_t)snprintf(text, ID_CHARS, "%" PRId64, id));
}

/* An integer of @object as text; absent if it is not one. */
static struct str id_of(struct arena *a, struct json object, const char *key)
{
    int64_t id;

    return json_as_i64(json_get(object, key), &id) ? format_id(a, id) : STR_NULL;
}

static struct str join(struct arena *a, struct str x, const char *between, struct str y)
{
    size_t n = strlen(between);

    if (x.n == 0 || y.n == 0)
        return x.n == 0 ? y : x;
    char *p = arena_alloc(a, x.n + n + y.n + 1);
    memcpy(p, x.p, x.n);
    memcpy(p + x.n, between, n);
    memcpy(p + x.n + n, y.p, y.n);
    return str_make(p, x.n + n + y.n);
}

static struct str person_name(struct arena *a, struct json user)
{
    return join(a, json_str(user, "first_name"), " ", json_str(user, "last_name"));
}

/* Finds the byte behind @units UTF-16 units.  False: no character ends there. */
static bool tg_utf16_to_byte(struct str s, int64_t units, size_t *ret_at)
{
    size_t at = 0;
    int64_t seen = 0;

    while (seen < units && at < s.n) {
        size_t n = utf8_seq_bytes(str_skip(s, at));
        seen += n == 4 ? 2 : 1;
        at += n > 0 ? n : 1;
    }
    if (units < 0 || seen != units)
        return false;
    *ret_at = at;
    return true;
}

/* ---- chat and author ---- */

static bool take_chat(struct normal *n)
{
    struct str type = json_str(n->chat, "type");
    struct event *ev = n->ev;

    ev->chat_id = id_of(n->arena, n->chat, "id");
    if (ev->chat_id.p == NULL)
        return false;
    ev->route_key = ev->chat_id;
    ev->chat_name = json_str(n->chat, "title");
    if (str_eq(type, STR("private"))) {
        ev->chat_type = STR("dm");
        ev->chat_name = person_name(n->arena, n->chat);
    } else if (str_eq(type, STR("group")) || str_eq(type, STR("supergroup"))) {
        bool forum = json_as_bool(json_get(n->chat, "is_forum"), false);
        ev->chat_type = forum ? STR("forum") : STR("group");
    } else { /* a kind that this program does not know is treated as a channel: never as private */
        ev->chat_type = STR("channel");
    }
    if (json_as_bool(json_get(n->message, "is_topic_message"), false))
        ev->thread_id = id_of(n->arena, n->message, "message_thread_id");
    return true;
}

/* The author is a chat in channels, and where admins write in the group's name.  Several people
 * write under that id, so nobody is linked by it. */
static void take_author(struct normal *n)
{
    struct event *ev = n->ev;

    if (json_is_object(n->sender_chat)) {
        struct str title = json_str(n->sender_chat, "title");
        struct str signature = json_str(n->message, "author_signature");
        ev->user_id = id_of(n->arena, n->sender_chat, "id");
        ev->user_name = n->channel && signature.n > 0 ? signature : title;
        ev->user_handle = json_str(n->sender_chat, "username");
        ev->author_unproven = true;
    } else {
        ev->user_id = id_of(n->arena, n->from, "id");
        ev->user_name = person_name(n->arena, n->from);
        ev->user_handle = json_str(n->from, "username");
        ev->author_is_bot = json_as_bool(json_get(n->from, "is_bot"), false);
    }
    ev->user_display_name = ev->user_name;
}

static bool is_me(const struct tg_me *me, struct json user)
{
    int64_t id;

    return me->id != 0 && json_as_i64(json_get(user, "id"), &id) && id == me->id;
}

/* ---- replies ---- */

static void take_reply(struct normal *n)
{
    struct event *ev = n->ev;
    struct str quote = json_str(json_get(n->message, "quote"), "text");
    struct json author = json_get(n->reply, "from");
    struct str text = json_str(n->reply, "text");
    struct json topic = json_get(n->reply, "forum_topic_created");

    if (!json_is_object(n->reply))
        return;
    if (json_is_object(topic)) { /* every message of a topic "replies" to the one that opened it */
        ev->chat_topic = json_str(topic, "name");
        return;
    }
    ev->reply_to_message_id = id_of(n->arena, n->reply, "message_id");
    ev->replies_to_bot = is_me(n->me, author);
    if (text.p == NULL)
        text = json_str(n->reply, "caption");
    if (text.p == NULL)
        text = note_of(n->arena, n->reply, &(struct str){0});
    ev->reply_to.set = true;
    ev->reply_to.is_own = ev->replies_to_bot;
    ev->reply_to.text = quote.n > 0 ? quote : text;
    ev->reply_to.author = json_is_object(author)
                              ? person_name(n->arena, author)
                              : json_str(json_get(n->reply, "sender_chat"), "title");
}

/* ---- text ---- */

static bool is_our_name(const struct tg_me *me, struct str name)
{
    return me->username[0] != '\0' && str_eq_ci(name, str_of(me->username));
}

/* The text that an entity covers; false: the entity points outside of @text. */
static bool entity_text(struct str text, struct json entity, struct str *ret)
{
    int64_t off, len;
    size_t from, n;

    if (!json_as_i64(json_get(entity, "offset"), &off) ||
        !json_as_i64(json_get(entity, "length"), &len) || len < 0 ||
        !tg_utf16_to_byte(text, off, &from) || !tg_utf16_to_byte(str_skip(text, from), len, &n))
        return false;
    *ret = str_make(text.p + from, n);
    return true;
}

static bool mentions_us(const struct tg_me *me, struct str text, struct json entities)
{
    struct str s;
    size_t seen = 0;

    for (struct json_iter it = {0}; json_next(entities, &it) && seen < 200; seen++) {
        struct str type = json_str(it.value, "type");
        if (str_eq(type, STR("text_mention")) && is_me(me, json_get(it.value, "user")))
            return true;
        bool command = str_eq(type, STR("bot_command"));
        if ((!command && !str_eq(type, STR("mention"))) || !entity_text(text, it.value, &s))
            continue;
        ptrdiff_t at = str_find(s, '@');
        if (at >= 0 && is_our_name(me, str_skip(s, (size_t)at + 1)))
            return true;
    }
    return false;
}

/* Writes a link behind words as "words (address)", so that the agent sees the address. */
static struct str show_links(struct arena *a, struct str text, struct json entities)
{
    BUF_LOCAL out = BUF_INIT;
    size_t at = 0, seen = 0;
    struct str s;

    for (struct json_iter it = {0}; json_next(entities, &it) && seen < 200; seen++) {
        struct str url = json_str(it.value, "url");
        if (!str_eq(json_str(it.value, "type"), STR("text_link")) || url.n == 0 || url.n > 2048 ||
            !entity_text(text, it.value, &s) || str_eq(s, url))
            continue;
        size_t end = (size_t)(s.p + s.n - text.p);
        if (end < at)
            continue; /* out of order */
        buf_add(&out, text.p + at, end - at);
        buf_printf(&out, " (%.*s)", STR_FMT(url));
        at = end;
    }
    if (at == 0)
        return text;
    buf_add_str(&out, str_skip(text, at));
    text = arena_str(a, buf_str(&out));
    return text;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static size_t word_end(struct str s, size_t at)
{
    while (at < s.n && is_word(s.p[at]))
        at++;
    return at;
}

enum command { NO_COMMAND, OUR_COMMAND, OTHERS_COMMAND };

/* Reads "/help@my_bot x": *@ret_text is "/help x", and *@ret_named is true because the command
 * names the bot. */
static enum command read_command(struct normal *n, struct str text, struct str *ret_text,
                                 bool *ret_named)
{
    if (!str_starts(text, STR("/")))
        return NO_COMMAND;
    size_t name = word_end(text, 1);
    if (name == 1 || name > 65)
        return NO_COMMAND;
    *ret_text = text;
    if (name == text.n || text.p[name] != '@')
        return name == text.n || !is_word(text.p[name]) ? OUR_COMMAND : NO_COMMAND;
    size_t end = word_end(text, name + 1);
    if (!is_our_name(n->me, str_make(text.p + name + 1, end - name - 1)))
        return OTHERS_COMMAND;
    *ret_named = true;
    *ret_text = str_make(text.p, name);
    if (end < text.n) {
        char *p = arena_alloc(n->arena, text.n);
        memcpy(p, text.p, name);
        memcpy(p + name, text.p + end, text.n - end);
        *ret_text = str_make(p, name + text.n - end);
    }
    return OUR_COMMAND;
}

static const char *take_words(struct normal *n)
{
    struct event *ev = n->ev;
    struct str text = json_str(n->message, "text"), words;
    struct json entities = json_get(n->message, "entities");
    struct str type = STR_NULL;
    bool named = false;

    if (text.p == NULL) {
        text = json_str(n->message, "caption");
        entities = json_get(n->message, "caption_entities");
    }
    struct str note = note_of(n->arena, n->message, &type);
    if (text.n == 0 && note.n == 0)
        return "no content";
    if (n->edited && text.n == 0)
        return "edited without a text";
    enum command command = read_command(n, text, &words, &named);
    if (command == OTHERS_COMMAND)
        return "a command for another bot";
    if (command == OUR_COMMAND && n->edited)
        return "an edited command";
    struct event_media *file = arena_alloc(n->arena, sizeof *file);
    bool has_file = file_of(n->message, file);
    /* A picture speaks for itself, and a note would become the argument of a command. */
    bool quiet = has_file && (command == OUR_COMMAND || json_count(json_get(n->message, "photo")));
    ev->mentions_bot = named || mentions_us(n->me, text, entities);
    if (command == OUR_COMMAND) {
        text = words;
        type = type.p == NULL ? STR("command") : type;
    } else {
        text = show_links(n->arena, text, entities);
    }
    if (n->edited) {
        ev->edit.set = true;
        ev->edit.text = quiet ? text : join(n->arena, text, "\n", note);
        text = join(n->arena, STR("[edited]"), " ", text);
    }
    /* An edit comes without the file. */
    if (!quiet || n->edited)
        text = join(n->arena, text, "\n", note);
    ev->text = text.p != NULL ? text : STR("");
    ev->message_type = type;
    if (!n->edited && has_file) {
        ev->media = file;
        ev->n_media = 1;
    }
    return NULL;
}

/* ---- the whole update ---- */

bool tg_normalize(struct json update, const struct tg_me *me, struct str bot, struct arena *arena,
                  struct event *ev, const char **ret_why)
{
    struct normal n = {.me = me, .arena = arena, .ev = ev};
    int64_t id;

    *ev = (struct event){.platform = STR("telegram"), .bot = bot};
    n.message = find_message(update, &n);
    n.from = json_get(n.message, "from");
    n.chat = json_get(n.message, "chat");
    n.sender_chat = json_get(n.message, "sender_chat");
    n.reply = json_get(n.message, "reply_to_message");
    if (!json_is_object(n.message) || !json_as_i64(json_get(n.message, "message_id"), &id)) {
        *ret_why = "not a message";
        return false;
    }
    if (is_me(me, n.from)) {
        *ret_why = "our own message";
        return false;
    }
    if (!take_chat(&n)) {
        *ret_why = "no chat";
        return false;
    }
    *ret_why = take_words(&n);
    if (*ret_why != NULL)
        return false;
    /* The event id is made of chat and message number, so a repeated update has the same id. */
    struct str edit = n.edited ? id_of(n.arena, n.message, "edit_date") : STR_NULL;
    ev->message_id = id_of(n.arena, n.message, "message_id");
    ev->event_id = join(n.arena, ev->chat_id, ":", ev->message_id);
    if (n.edited)
        ev->event_id = join(n.arena, ev->event_id, ":e", edit.p != NULL ? edit : STR("0"));
    take_author(&n);
    take_reply(&n);
    return true;
}

bool tg_normalize_press(struct json update, struct str bot, struct arena *arena,
                        struct tg_press *ret)
{
    struct json press = json_get(update, "callback_query");
    struct normal n = {.arena = arena, .ev = &ret->ev};

    *ret = (struct tg_press){.ev = {.platform = STR("telegram"), .bot = bot},
                             .callback = json_str(press, "id"),
                             .data = json_str(press, "data")};
    n.message = json_get(press, "message");
    n.from = json_get(press, "from");
    n.chat = json_get(n.message, "chat");
    if (!json_is_object(n.from) || !take_chat(&n) ||
        !json_as_i64(json_get(n.message, "message_id"), &ret->message_id))
        return false;
    ret->ev.message_id = ret->ev.press.message_id = id_of(arena, n.message, "message_id");
    take_author(&n);
    return true;
}

static struct str reaction_name(struct json r)
{
    struct str type = json_str(r, "type");

    return str_eq(type, STR("emoji"))          ? json_str(r, "emoji")
           : str_eq(type, STR("custom_emoji")) ? STR(":custom:")
                                               : STR(":star:");
}

static bool has_reaction(struct json list, struct str name)
{
    for (struct json_iter it = {0}; json_next(list, &it);)
        if (str_eq(reaction_name(it.value), name))
            return true;
    return false;
}

/* Appends a line for each reaction in @list that is not in @other. */
static void add_reactions(struct buf *out, const char *what, struct json list, struct json other)
{
    size_t seen = 0;

    for (struct json_iter it = {0}; json_next(list, &it) && seen < 16; seen++) {
        struct str name = reaction_name(it.value);
        if (name.n > 0 && name.n <= 64 && !has_reaction(other, name))
            buf_printf(out, "%sreaction:%s:%.*s", out->n > 0 ? "\n" : "", what, STR_FMT(name));
    }
}

bool tg_normalize_reaction(struct json update, struct str bot, int64_t thread, struct arena *arena,
                           struct event *ev)
{
    struct json now, before;
    struct normal n = {.arena = arena, .ev = ev};
    BUF_LOCAL text = BUF_INIT;

    *ev = (struct event){.platform = STR("telegram"), .bot = bot};
    n.message = json_get(update, "message_reaction");
    n.from = json_get(n.message, "user");
    n.sender_chat = json_get(n.message, "actor_chat");
    n.chat = json_get(n.message, "chat");
    now = json_get(n.message, "new_reaction");
    before = json_get(n.message, "old_reaction");
    add_reactions(&text, "added", now, before);
    add_reactions(&text, "removed", before, now);
    ev->text = arena_str(arena, buf_str(&text));
    if (ev->text.n == 0 || !take_chat(&n))
        return false;
    take_author(&n);
    if (thread != 0)
        ev->thread_id = format_id(arena, thread);
    ev->message_id = ev->reply_to_message_id = id_of(arena, n.message, "message_id");
    ev->event_id = join(arena, join(arena, ev->chat_id, ":", ev->message_id), ":r",
                        id_of(arena, update, "update_id"));
    ev->reply_to.set = ev->reply_to.is_own = ev->replies_to_bot = true;
    return ev->message_id.p != NULL && ev->user_id.p != NULL;
}

bool tg_migration(struct json update, int64_t *ret_from, int64_t *ret_to)
{
    struct json message = json_get(update, "message");
    int64_t here = json_i64(json_get(message, "chat"), "id", 0);
    int64_t to = json_i64(message, "migrate_to_chat_id", 0);
    int64_t from = json_i64(message, "migrate_from_chat_id", 0);

    *ret_from = to != 0 ? here : from;
    *ret_to = to != 0 ? to : here;
    return *ret_from != 0 && here != 0;
}
