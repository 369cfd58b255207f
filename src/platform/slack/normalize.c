/* normalize.c - design.  (normalize.h has the contract.)
 *
 * One walk over the keys of a message collects what is needed.  Composed texts go into the arena;
 * the rest is borrowed from the JSON. */
#include "platform/slack/normalize.h"
#include <stdio.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "edge/form.h"
#include "platform/await.h"
#include "platform/platform.h"

enum { SIGNATURE_CHARS = 3 + 2 * SHA256_BYTES, KEEP_BYTES = 65536, NAME_MAX_BYTES = 200 };

/* ---- signatures ---- */

bool slack_signature_ok(struct str secret, struct str timestamp, struct str signature,
                        struct str body, int64_t wall_ms, struct buf *scratch)
{
    uint8_t theirs[SHA256_BYTES], ours[SHA256_BYTES];

    if (secret.n == 0 || signature.n != SIGNATURE_CHARS || !str_starts(signature, STR("v0=")) ||
        !hex_decode(str_skip(signature, 3), theirs, sizeof theirs) ||
        !webhook_is_now(timestamp, wall_ms, SLACK_WINDOW_MS))
        return false;
    buf_reset(scratch);
    buf_add(scratch, "v0:", 3);
    buf_add_str(scratch, timestamp);
    buf_add_c(scratch, ':');
    buf_add_str(scratch, body);
    hmac_sha256(secret, buf_str(scratch), ours);
    bool ok = ct_equal(ours, theirs, sizeof ours);
    if (scratch->cap > KEEP_BYTES)
        buf_done(scratch);
    return ok;
}

/* ---- ids ---- */

bool slack_is_id(struct str id)
{
    for (size_t i = 0; i < id.n; i++)
        if (!((id.p[i] >= 'A' && id.p[i] <= 'Z') || (id.p[i] >= '0' && id.p[i] <= '9')))
            return false;
    return id.n > 1 && id.n <= SLACK_ID_MAX;
}

bool slack_is_chat(struct str id)
{
    return slack_is_id(id) && (id.p[0] == 'C' || id.p[0] == 'D' || id.p[0] == 'G');
}

bool slack_is_ts(struct str ts)
{
    ptrdiff_t dot = str_find(ts, '.');
    uint64_t number;

    return dot > 0 && ts.n <= SLACK_ID_MAX && str_to_u64(str_make(ts.p, (size_t)dot), &number) &&
           str_to_u64(str_skip(ts, (size_t)dot + 1), &number);
}

/* ---- text in ---- */

static const struct {
    const char *entity, c;
} entities[] = {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}};

static void add_unescaped(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n;) {
        size_t k = ARRAY_LEN(entities);
        if (s.p[i] == '&')
            for (k = 0; k < ARRAY_LEN(entities); k++)
                if (str_starts(str_skip(s, i), str_of(entities[k].entity)))
                    break;
        if (s.p[i] == '&' && k < ARRAY_LEN(entities)) {
            buf_add_c(out, entities[k].c);
            i += strlen(entities[k].entity);
        } else {
            buf_add_c(out, s.p[i++]);
        }
    }
}

/* Adds what stands between "<" and ">". */
static void add_reference(struct buf *out, struct str inside)
{
    ptrdiff_t bar = str_find(inside, '|');
    struct str target = bar >= 0 ? str_make(inside.p, (size_t)bar) : inside;
    struct str label = bar >= 0 ? str_skip(inside, (size_t)bar + 1) : STR_NULL;
    char kind = inside.n > 0 ? inside.p[0] : '\0';

    if (kind == '@' || (kind == '#' && label.n == 0)) {
        buf_printf(out, "<%.*s>", STR_FMT(target)); /* the agent may name it again */
    } else if (kind == '#') {
        buf_add_c(out, '#');
        add_unescaped(out, label);
    } else if (kind == '!' && label.n > 0) { /* <!subteam^S1|@team>, <!date^...|fallback> */
        add_unescaped(out, label);
    } else if (kind == '!') {
        buf_add_c(out, '@');
        add_unescaped(out, str_skip(target, 1));
    } else if (label.n == 0 || str_ends(target, label)) { /* "https://a.org" shown as "a.org" */
        add_unescaped(out, str_starts(target, STR("mailto:")) ? str_skip(target, 7) : target);
    } else {
        add_unescaped(out, label);
        buf_add_z(out, " (");
        add_unescaped(out, target);
        buf_add_c(out, ')');
    }
}

/* "<@BOT> do this" becomes "do this". */
static struct str strip_mention(struct str text, struct str bot_user)
{
    for (;;) {
        struct str s = str_trim(text);
        struct str rest = str_skip(s, s.n < 2 ? s.n : 2);
        if (bot_user.n == 0 || !str_starts(s, STR("<@")) || !str_starts(rest, bot_user))
            return text;
        rest = str_skip(rest, bot_user.n);
        ptrdiff_t end = str_find(rest, '>');
        if (end < 0 || (end > 0 && rest.p[0] != '|'))
            return text;
        text = str_trim(str_skip(rest, (size_t)end + 1));
    }
}

struct str slack_text_in(struct arena *arena, struct str text, struct str bot_user)
{
    text = strip_mention(text, bot_user);
    if (str_find(text, '<') < 0 && str_find(text, '&') < 0)
        return text.p != NULL ? text : STR("");
    BUF_LOCAL out = BUF_INIT;
    while (text.n > 0) {
        ptrdiff_t open = str_find(text, '<');
        size_t plain = open >= 0 ? (size_t)open : text.n;
        add_unescaped(&out, str_make(text.p, plain));
        text = str_skip(text, plain);
        ptrdiff_t end = str_find(text, '>');
        if (text.n == 0)
            break;
        if (end < 0) {
            add_unescaped(&out, text);
            break;
        }
        add_reference(&out, str_make(text.p + 1, (size_t)end - 1));
        text = str_skip(text, (size_t)end + 1);
    }
    return arena_str(arena, buf_str(&out));
}

/* ---- text out ---- */

static bool begins_mention(struct str s) /* "<@", "<!", "<#" */
{
    return s.n > 1 && s.p[0] == '<' && (s.p[1] == '@' || s.p[1] == '!' || s.p[1] == '#');
}

struct str slack_neutralize(struct buf *out, struct str text)
{
    size_t from = 0;

    buf_reset(out);
    for (size_t i = 0; i < text.n; i++) {
        if (!begins_mention(str_skip(text, i)))
            continue;
        buf_add(out, text.p + from, i + 1 - from);
        buf_add_z(out, "\xe2\x80\x8b");
        from = i + 1;
    }
    if (from == 0)
        return text;
    buf_add(out, text.p + from, text.n - from);
    return buf_str(out);
}

void slack_escape(struct buf *out, struct str text, size_t max)
{
    size_t used = 0;

    for (size_t i = 0; i < text.n;) {
        size_t one = utf8_seq_bytes(str_skip(text, i)), k = 0;
        while (k < ARRAY_LEN(entities) && entities[k].c != text.p[i])
            k++;
        used += k < ARRAY_LEN(entities) ? strlen(entities[k].entity) : one == 4 ? 2 : 1;
        if (used > max)
            return;
        if (k < ARRAY_LEN(entities))
            buf_add_z(out, entities[k].entity);
        else
            buf_add(out, text.p + i, one > 0 ? one : 1);
        i += one > 0 ? one : 1;
    }
}

/* The emoji that agents and people use most.  Agents mark a turn with eyes, a check mark or a
 * cross. */
static const struct {
    const char *emoji, *name;
} emoji_names[] = {
    {"\xf0\x9f\x91\x80", "eyes"},
    {"\xe2\x9c\x85", "white_check_mark"},
    {"\xe2\x9d\x8c", "x"},
    {"\xf0\x9f\x91\x8d", "thumbsup"},
    {"\xf0\x9f\x91\x8e", "thumbsdown"},
    {"\xe2\x9d\xa4", "heart"},
    {"\xf0\x9f\x8e\x89", "tada"},
    {"\xf0\x9f\x99\x8f", "pray"},
    {"\xf0\x9f\x91\x8f", "clap"},
    {"\xf0\x9f\x94\xa5", "fire"},
    {"\xf0\x9f\x98\x82", "joy"},
    {"\xf0\x9f\x98\x80", "grinning"},
    {"\xf0\x9f\x98\x84", "smile"},
    {"\xf0\x9f\x98\x8a", "blush"},
    {"\xf0\x9f\x98\x8d", "heart_eyes"},
    {"\xf0\x9f\x98\x8e", "sunglasses"},
    {"\xf0\x9f\x98\xa2", "cry"},
    {"\xf0\x9f\x98\xad", "sob"},
    {"\xf0\x9f\x98\xa1", "rage"},
    {"\xf0\x9f\x98\xae", "open_mouth"},
    {"\xf0\x9f\x98\xb1", "scream"},
    {"\xf0\x9f\x98\x85", "sweat_smile"},
    {"\xf0\x9f\x98\x89", "wink"},
    {"\xf0\x9f\x98\x95", "confused"},
    {"\xf0\x9f\x98\xb4", "sleeping"},
    {"\xf0\x9f\xa4\x94", "thinking_face"},
    {"\xf0\x9f\xa4\xb7", "shrug"},
    {"\xf0\x9f\xa4\x9d", "handshake"},
    {"\xf0\x9f\xa4\x96", "robot_face"},
    {"\xf0\x9f\x91\x8b", "wave"},
    {"\xf0\x9f\x91\x8c", "ok_hand"},
    {"\xf0\x9f\x92\xaf", "100"},
    {"\xf0\x9f\x92\xa1", "bulb"},
    {"\xf0\x9f\x92\xaa", "muscle"},
    {"\xf0\x9f\x9a\x80", "rocket"},
    {"\xf0\x9f\x94\x84", "arrows_counterclockwise"},
    {"\xf0\x9f\x94\x8d", "mag"},
    {"\xf0\x9f\x95\x90", "clock1"},
    {"\xf0\x9f\x9b\x91", "octagonal_sign"},
    {"\xf0\x9f\x9a\xab", "no_entry_sign"},
    {"\xe2\x8f\xb3", "hourglass_flowing_sand"},
    {"\xe2\x8c\x9b", "hourglass"},
    {"\xe2\x9a\xa0", "warning"},
    {"\xe2\x9c\x94", "heavy_check_mark"},
    {"\xe2\x9c\xa8", "sparkles"},
    {"\xe2\xad\x90", "star"},
    {"\xe2\x9d\x93", "question"},
    {"\xe2\x9d\x97", "exclamation"},
    {"\xe2\x98\x95", "coffee"},
    {"\xe2\x9a\xa1", "zap"},
};

struct str slack_emoji_name(struct str emoji)
{
    struct str name = emoji;

    for (size_t i = 0; i < ARRAY_LEN(emoji_names); i++) {
        struct str known = str_of(emoji_names[i].emoji);
        struct str rest = str_starts(emoji, known) ? str_skip(emoji, known.n) : STR_NULL;
        if (rest.p != NULL && (rest.n == 0 || str_eq(rest, STR("\xef\xb8\x8f"))))
            return str_of(emoji_names[i].name);
    }
    if (name.n > 2 && name.p[0] == ':' && name.p[name.n - 1] == ':')
        name = str_make(name.p + 1, name.n - 2);
    return name.n > 0 && name.n <= 100 && str_has_only(name, "_+-':") ? name : STR_NULL;
}

bool slack_is_own_url(struct str url, struct str api_base)
{
    static const char *const hosts[] = {"slack.com", "slack-files.com", "slack-gov.com", NULL};

    return platform_owns_url(hosts, url, api_base);
}

bool slack_is_own_socket(struct str url, struct str api_base)
{
    bool secure = str_starts(url, STR("wss://"));
    BUF_LOCAL http = BUF_INIT;

    if (!secure && !str_starts(url, STR("ws://")))
        return false;
    buf_printf(&http, "http%s%.*s", secure ? "s" : "", STR_FMT(str_skip(url, secure ? 3 : 2)));
    return slack_is_own_url(buf_str(&http), api_base);
}

/* ---- messages ---- */

struct slack_message { /* borrowed from the JSON */
    struct str type, subtype, channel, channel_type, user, text, ts, thread_ts, bot_id, app_id;
    struct str client_msg_id, parent_user, deleted_ts, username, reaction, item_user, event_ts;
    struct json files, attachments, message, previous, edited, profile, item, bot_profile;
};

static void read_message(struct json event, struct slack_message *m)
{
    static const struct {
        const char *key;
        uint16_t n, at;
        bool text;
    } fields[] = {
#define TEXT(name, member) {name, sizeof(name) - 1, offsetof(struct slack_message, member), true}
#define PART(name, member) \
    { \
        name, sizeof(name) - 1, offsetof(struct slack_message, member), false \
    }
        TEXT("type", type),
        TEXT("subtype", subtype),
        TEXT("channel", channel),
        TEXT("channel_type", channel_type),
        TEXT("user", user),
        TEXT("text", text),
        TEXT("ts", ts),
        TEXT("thread_ts", thread_ts),
        TEXT("bot_id", bot_id),
        TEXT("app_id", app_id),
        TEXT("client_msg_id", client_msg_id),
        TEXT("parent_user_id", parent_user),
        TEXT("deleted_ts", deleted_ts),
        TEXT("username", username),
        TEXT("reaction", reaction),
        TEXT("item_user", item_user),
        TEXT("event_ts", event_ts),
        PART("files", files),
        PART("attachments", attachments),
        PART("message", message),
        PART("previous_message", previous),
        PART("edited", edited),
        PART("user_profile", profile),
        PART("bot_profile", bot_profile),
        PART("item", item),
    };

    *m = (struct slack_message){0};
    for (struct json_iter it = {0}; json_next(event, &it);)
        for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
            if (!str_eq(it.key, str_make(fields[i].key, fields[i].n)))
                continue;
            void *to = (char *)m + fields[i].at;
            if (fields[i].text)
                *(struct str *)to = json_as_str(it.value);
            else
                *(struct json *)to = it.value;
            break;
        }
}

struct str slack_team_of(struct json body)
{
    struct json first = {0};

    for (struct json_iter it = {0}; json_next(json_get(body, "authorizations"), &it);) {
        first = it.value;
        break;
    }
    struct str team = json_str(first, "team_id");
    if (team.n == 0)
        team = json_str(body, "team_id");
    if (team.n == 0)
        team = json_str(json_get(body, "team"), "id");
    return slack_is_id(team) ? team : STR_NULL;
}

static enum slack_verdict ignore(struct slack_out *out, const char *why)
{
    out->why = why;
    return SLACK_IGNORED;
}

static struct str dm_key(struct arena *arena, struct str user)
{
    char *key = arena_alloc(arena, user.n + 4);

    memcpy(key, "dm:", 3);
    memcpy(key + 3, user.p != NULL ? user.p : "", user.n);
    return str_make(key, user.n + 3);
}

/* Sets chat, person and route.  @im: a direct message with one person. */
static void set_place(struct slack_out *out, struct str channel, bool im, struct str user,
                      struct arena *arena)
{
    struct event *ev = &out->ev;

    ev->chat_id = out->channel = channel;
    ev->chat_type = im ? STR("dm") : STR("group");
    ev->scope_id = out->team;
    ev->user_id = ev->user_name = ev->user_display_name = out->user = user;
    ev->route_key = im && user.n > 0 ? dm_key(arena, user) : out->team;
}

static bool is_im(struct str channel, struct str channel_type)
{
    return channel_type.n > 0 ? str_eq(channel_type, STR("im")) : channel.p[0] == 'D';
}

/* The name people see, where the message has it. */
static struct str name_of(struct json profile)
{
    static const char *const keys[] = {"display_name", "real_name", "name"};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct str name = json_str(profile, keys[i]);
        if (name.n > 0 && name.n <= NAME_MAX_BYTES)
            return name;
    }
    return STR_NULL;
}

static bool is_bot(const struct slack_message *m)
{
    return m->bot_id.n > 0 || str_eq(m->subtype, STR("bot_message")) ||
           (m->app_id.n > 0 && m->client_msg_id.n == 0) || str_eq(m->user, STR("USLACKBOT"));
}

static bool is_own(const struct slack_message *m, const struct slack_in *in, struct str app)
{
    return (in->bot_user.n > 0 && str_eq(m->user, in->bot_user)) ||
           (in->bot_id.n > 0 && str_eq(m->bot_id, in->bot_id)) ||
           (app.n > 0 && str_eq(m->app_id, app));
}

static bool mentions(struct str text, struct str bot_user)
{
    for (size_t i = 0; bot_user.n > 0 && i + 2 < text.n; i++) {
        struct str rest = str_skip(text, i + 2);
        if (text.p[i] == '<' && text.p[i + 1] == '@' && str_starts(rest, bot_user) &&
            rest.n > bot_user.n && (rest.p[bot_user.n] == '>' || rest.p[bot_user.n] == '|'))
            return true;
    }
    return false;
}

static void add_files(const struct slack_message *m, struct slack_out *out, struct arena *arena)
{
    struct event *ev = &out->ev;

    for (struct json_iter it = {0}; json_next(m->files, &it) && ev->n_media < EVENT_MAX_MEDIA;) {
        struct str url = json_str(it.value, "url_private_download");
        struct str mode = json_str(it.value, "mode"), id = json_str(it.value, "id");
        struct str type = json_str(it.value, "mimetype");
        if (url.n == 0)
            url = json_str(it.value, "url_private");
        if (str_eq(mode, STR("tombstone")) || str_eq(mode, STR("hidden_by_limit")) ||
            !slack_is_id(id))
            continue;
        bool voice = str_eq(json_str(it.value, "subtype"), STR("slack_audio"));
        struct str kind = platform_message_type(type, voice);
        BUF_LOCAL ref = BUF_INIT;
        buf_printf(&ref, "%.*s %.*s %.*s", STR_FMT(out->team), STR_FMT(id), STR_FMT(url));
        struct event_media *f = &out->media[ev->n_media];
        if (ev->n_media++ == 0)
            ev->message_type = kind;
        *f = (struct event_media){.ref = arena_str(arena, buf_str(&ref)),
                                  .kind = str_eq(kind, STR("photo")) ? STR("image") : kind,
                                  .type = type,
                                  .name = json_str(it.value, "name")};
        if (!json_as_u64(json_get(it.value, "size"), &f->size))
            f->size = 0;
    }
}

/* A forwarded message, or a bot's message without a text, is in the attachments. */
static struct str with_attachments(const struct slack_message *m, struct str text,
                                   struct arena *arena)
{
    BUF_LOCAL all = BUF_INIT;
    size_t seen = 0;

    if (json_count(m->attachments) == 0)
        return text;
    buf_add_str(&all, text);
    for (struct json_iter it = {0}; json_next(m->attachments, &it) && seen < 20; seen++) {
        bool shared = json_as_bool(json_get(it.value, "is_share"), false);
        struct str said = json_str(it.value, "text");
        if (said.n == 0)
            said = json_str(it.value, "fallback");
        if (said.n == 0 || (!shared && text.n > 0))
            continue; /* the preview of a link */
        said = slack_text_in(arena, said, STR_NULL);
        buf_printf(&all, "%s%s", all.n > 0 ? "\n" : "", shared ? "[forwarded]\n" : "");
        buf_add_str(&all, said);
    }
    return arena_str(arena, buf_str(&all));
}

static enum slack_verdict take_message(const struct slack_message *m, const struct slack_in *in,
                                       struct str app, struct str channel, struct str channel_type,
                                       struct arena *arena, struct slack_out *out)
{
    struct event *ev = &out->ev;
    struct str user = m->user.n > 0 ? m->user : m->bot_id;

    if (is_own(m, in, app))
        return ignore(out, "the bot's own message");
    if (!slack_is_chat(channel) || !slack_is_ts(m->ts) || !slack_is_id(user) ||
        (m->thread_ts.n > 0 && !slack_is_ts(m->thread_ts)))
        return SLACK_MALFORMED;
    set_place(out, channel, is_im(channel, channel_type), user, arena);
    struct str name = name_of(m->profile);
    if (name.n == 0 && m->user.n == 0)
        name = m->username.n > 0 ? m->username : name_of(m->bot_profile);
    if (name.n > 0)
        ev->user_name = ev->user_display_name = name;
    ev->user_handle = json_str(m->profile, "name");
    ev->author_is_bot = is_bot(m);
    ev->mentions_bot = str_eq(m->type, STR("app_mention")) || mentions(m->text, in->bot_user);
    ev->replies_to_bot = in->bot_user.n > 0 && str_eq(m->parent_user, in->bot_user);
    ev->message_id = m->ts;
    if (m->thread_ts.n > 0 && !str_eq(m->thread_ts, m->ts))
        ev->thread_id = m->thread_ts;
    ev->event_id = delivery_event_id(&out->id, true, channel, m->ts);
    ev->text = with_attachments(m, slack_text_in(arena, m->text, in->bot_user), arena);
    add_files(m, out, arena);
    if (ev->text.n > 0 && ev->text.p[0] == '/')
        ev->message_type = STR("command");
    return SLACK_EVENT;
}

static enum slack_verdict take_edit(const struct slack_message *m, const struct slack_in *in,
                                    struct str app, struct arena *arena, struct slack_out *out)
{
    struct slack_message inner;

    read_message(m->message, &inner);
    bool gone = str_eq(inner.subtype, STR("tombstone"));
    if (!gone &&
        (!json_is_object(inner.edited) || str_eq(inner.text, json_str(m->previous, "text"))))
        return ignore(out, "a change that its author did not make");
    struct str ts = inner.ts;
    if (gone)
        read_message(m->previous, &inner);
    inner.ts = ts;
    enum slack_verdict v = take_message(&inner, in, app, m->channel, m->channel_type, arena, out);
    out->ev.edit.text = out->ev.text;
    out->ev.edit.set = out->ev.edit.silent = true; /* an agent that has the message is not told */
    out->ev.edit.deletes = gone;
    return v;
}

static enum slack_verdict take_deletion(const struct slack_message *m, const struct slack_in *in,
                                        struct str app, struct arena *arena, struct slack_out *out)
{
    struct slack_message inner;
    enum slack_verdict v = SLACK_EVENT;

    read_message(m->previous, &inner);
    inner.ts = m->deleted_ts;
    if (json_is_object(m->previous)) {
        v = take_message(&inner, in, app, m->channel, m->channel_type, arena, out);
    } else if (!slack_is_chat(m->channel) || !slack_is_ts(inner.ts)) {
        return SLACK_MALFORMED;
    } else { /* Slack does not say whose message it was */
        set_place(out, m->channel, is_im(m->channel, m->channel_type), STR_NULL, arena);
        out->ev.message_id = inner.ts;
        out->ev.event_id = delivery_event_id(&out->id, true, m->channel, inner.ts);
    }
    out->ev.edit.set = out->ev.edit.silent = out->ev.edit.deletes = true;
    return v;
}

/* People's reactions to the bot's messages become texts: "reaction:added:thumbsup". */
static enum slack_verdict take_reaction(const struct slack_message *m, const struct slack_in *in,
                                        struct str event_id, struct arena *arena,
                                        struct slack_out *out)
{
    struct event *ev = &out->ev;
    struct str channel = json_str(m->item, "channel"), ts = json_str(m->item, "ts");
    struct str kind = json_str(m->item, "type");
    bool added = str_eq(m->type, STR("reaction_added"));
    BUF_LOCAL text = BUF_INIT;

    if (!in->reactions || in->bot_user.n == 0 || !str_eq(m->item_user, in->bot_user) ||
        str_eq(m->user, in->bot_user))
        return ignore(out, "a reaction to somebody else's message");
    if (kind.n > 0 && !str_eq(kind, STR("message")))
        return ignore(out, "a reaction to a file"); /* it is in no channel */
    if (!slack_is_chat(channel) || !slack_is_ts(ts) || !slack_is_id(m->user) ||
        m->reaction.n == 0 || m->reaction.n > 100)
        return SLACK_MALFORMED;
    set_place(out, channel, is_im(channel, STR_NULL), m->user, arena);
    buf_printf(&text, "reaction:%s:%.*s", added ? "added" : "removed", STR_FMT(m->reaction));
    ev->text = arena_str(arena, buf_str(&text));
    ev->event_id = event_id;
    ev->message_id = ev->reply_to_message_id = ts;
    ev->reply_to.set = ev->reply_to.is_own = ev->replies_to_bot = true;
    return SLACK_EVENT;
}

static bool is_said(struct str subtype)
{
    static const char *const said[] = {"", "file_share", "thread_broadcast", "me_message",
                                       "bot_message"};

    for (size_t i = 0; i < ARRAY_LEN(said); i++)
        if (str_eq(subtype, str_of(said[i])))
            return true;
    return false;
}

enum slack_verdict slack_normalize(struct json body, const struct slack_in *in, struct arena *arena,
                                   struct slack_out *out)
{
    struct str app = json_str(body, "api_app_id"), event_id = json_str(body, "event_id");
    struct slack_message m;

    read_message(json_get(body, "event"), &m);
    out->ev = (struct event){.platform = STR("slack"),
                             .bot = in->bot,
                             .text = STR(""),
                             .media = out->media};
    out->team = slack_team_of(body);
    out->channel = out->user = STR_NULL;
    out->user_team = json_str(json_get(body, "event"), "user_team");
    if (out->user_team.n == 0)
        out->user_team = json_str(json_get(body, "event"), "team");
    out->why = NULL;
    if (m.type.n == 0 || out->team.n == 0 || event_id.n == 0 || event_id.n > 128)
        return SLACK_MALFORMED;
    if (str_eq(m.type, STR("reaction_added")) || str_eq(m.type, STR("reaction_removed")))
        return take_reaction(&m, in, event_id, arena, out);
    if (!str_eq(m.type, STR("message")) && !str_eq(m.type, STR("app_mention")))
        return ignore(out, "not a message");
    if (str_eq(m.subtype, STR("message_changed")))
        return take_edit(&m, in, app, arena, out);
    if (str_eq(m.subtype, STR("message_deleted")))
        return take_deletion(&m, in, app, arena, out);
    if (!is_said(m.subtype))
        return ignore(out, "a notice that nobody wrote");
    enum slack_verdict v = take_message(&m, in, app, m.channel, m.channel_type, arena, out);
    if (v == SLACK_EVENT && out->ev.text.n == 0 && out->ev.n_media == 0)
        return ignore(out, "an empty message");
    return v;
}

void slack_out_done(struct slack_out *out)
{
    buf_done(&out->id);
}

/* ---- interactions and commands ---- */

/* Who did something, and where. */
static bool take_doer(struct json payload, const struct slack_in *in, struct arena *arena,
                      struct slack_out *out)
{
    struct json user = json_get(payload, "user"), box = json_get(payload, "container");
    struct str channel = json_str(json_get(payload, "channel"), "id");
    struct str person = json_str(user, "id"), name = json_str(user, "username");

    if (channel.n == 0)
        channel = json_str(box, "channel_id");
    out->ev = (struct event){.platform = STR("slack"), .bot = in->bot, .text = STR("")};
    out->team = json_str(json_get(payload, "team"), "id");
    if (out->team.n == 0)
        out->team = json_str(user, "team_id");
    if (!slack_is_id(person) || !slack_is_id(out->team) ||
        (channel.n > 0 && !slack_is_chat(channel)))
        return false;
    set_place(out, channel, channel.n == 0 || channel.p[0] == 'D', person, arena);
    if (name.n > 0 && name.n <= NAME_MAX_BYTES)
        out->ev.user_name = out->ev.user_display_name = out->ev.user_handle = name;
    out->ev.mentions_bot = true;
    return true;
}

bool slack_normalize_press(struct json payload, const struct slack_in *in, struct arena *arena,
                           struct slack_press *ret)
{
    struct json message = json_get(payload, "message"), box = json_get(payload, "container");
    struct slack_out out = {0};
    struct json action = {0};

    *ret = (struct slack_press){0};
    if (!str_eq(json_str(payload, "type"), STR("block_actions")) ||
        !take_doer(payload, in, arena, &out) || out.channel.n == 0)
        return false;
    for (struct json_iter it = {0}; json_next(json_get(payload, "actions"), &it);) {
        action = it.value;
        break;
    }
    struct str ts = json_str(box, "message_ts"), thread = json_str(message, "thread_ts");
    if (ts.n == 0)
        ts = json_str(message, "ts");
    ret->ev = out.ev;
    ret->team = out.team;
    ret->value = json_str(action, "value");
    if (!slack_is_ts(ts))
        return false;
    ret->ev.message_id = ret->ev.press.message_id = ts;
    if (slack_is_ts(thread) && !str_eq(thread, ts))
        ret->ev.thread_id = thread;
    return true;
}

bool slack_normalize_other(struct json payload, const struct slack_in *in, struct arena *arena,
                           struct slack_out *out)
{
    struct str id = json_str(payload, "trigger_id"), channel;

    if (id.n == 0) /* view_closed has none */
        id = json_str(json_get(payload, "view"), "id");
    if (!take_doer(payload, in, arena, out) || id.n == 0 || id.n > 256)
        return false;
    channel = out->ev.chat_id;
    if (channel.n == 0) /* a form or a shortcut is of no channel: it belongs to its person */
        out->ev.chat_id = out->user;
    out->ev.event_id = out->ev.message_id = id;
    out->ev.filed_as = STR("relay");
    return true;
}

enum slack_verdict slack_normalize_command(const struct form *f, const struct slack_in *in,
                                           struct arena *arena, struct slack_out *out)
{
    struct str command = form_get(f, "command"), words = str_trim(form_get(f, "text"));
    struct str channel = form_get(f, "channel_id"), user = form_get(f, "user_id");
    struct str id = form_get(f, "trigger_id"), name = form_get(f, "user_name");
    BUF_LOCAL text = BUF_INIT;

    out->ev = (struct event){.platform = STR("slack"), .bot = in->bot};
    out->team = form_get(f, "team_id");
    if (command.n < 2 || command.p[0] != '/' || !slack_is_chat(channel) || !slack_is_id(user) ||
        !slack_is_id(out->team) || id.n == 0 || id.n > 256)
        return SLACK_MALFORMED;
    bool im = channel.p[0] == 'D' || str_eq(form_get(f, "channel_name"), STR("directmessage"));
    set_place(out, channel, im, user, arena);
    if (name.n > 0 && name.n <= NAME_MAX_BYTES)
        out->ev.user_name = out->ev.user_display_name = out->ev.user_handle = name;
    buf_printf(&text, "%.*s%s", STR_FMT(command), words.n > 0 ? " " : "");
    buf_add_str(&text, slack_text_in(arena, words, STR_NULL));
    out->ev.text = arena_str(arena, buf_str(&text));
    out->ev.message_type = STR("command");
    out->ev.event_id = id;
    out->ev.mentions_bot = true; /* a command is always for the bot it belongs to */
    return SLACK_EVENT;
}
