/* normalize.c - design.  (normalize.h has the contract.)
 *
 * Composed texts go into the arena; the rest is borrowed from the JSON.  What Teams sends without a
 * mention (resource-specific consent) becomes an event too: the gate decides whether the bot is
 * addressed. */
#include "platform/teams/normalize.h"
#include "base/mem.h"
#include "platform/platform.h"

#define THREAD_MARK STR(";messageid=")
#define DOWNLOAD_INFO STR("application/vnd.microsoft.teams.file.download.info")
#define REPLY_MARK STR("itemtype=\"http://schema.skype.com/Reply\"")
#define NO_BREAK_SPACE STR("\xc2\xa0")

enum { MAX_HTML = 65536, MAX_TAG = 256, MAX_MENTIONS = 64, MAX_REACTIONS = 8, MAX_FILE_URL = 4096 };

const char *const teams_kinds[] = {"personal", "groupChat", "channel", NULL};

/* ---- ids ---- */

static bool is_plain(struct str s, size_t max)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] <= ' ' || s.p[i] >= 0x7f || strchr("/?#%\\\"<>", s.p[i]) != NULL)
            return false;
    return s.n > 0 && s.n <= max;
}

bool teams_is_id(struct str id)
{
    return is_plain(id, TEAMS_ID_MAX) && str_find(id, ';') < 0;
}

bool teams_split_chat(struct str id, struct str *ret_chat, struct str *ret_thread)
{
    ptrdiff_t at = str_find(id, ';');
    struct str chat = id, thread = STR_NULL;

    if (at >= 0) {
        chat = str_make(id.p, (size_t)at);
        struct str rest = str_skip(id, (size_t)at);
        if (!str_starts(rest, THREAD_MARK))
            return false;
        thread = str_skip(rest, THREAD_MARK.n);
        if (!teams_is_id(thread))
            return false;
    }
    if (!is_plain(chat, TEAMS_CHAT_MAX))
        return false;
    *ret_chat = chat;
    *ret_thread = thread;
    return true;
}

static struct str name_of(struct json of)
{
    struct str name = json_str(of, "name");

    return name.n > 0 && name.n <= TEAMS_NAME_MAX ? name : STR_NULL;
}

/* The person's id: that of Entra, which stays the same for every bot. */
static struct str person_of(struct json account)
{
    struct str entra = json_str(account, "aadObjectId"), id = json_str(account, "id");

    if (is_plain(entra, TEAMS_ID_MAX))
        return entra;
    return is_plain(id, TEAMS_PERSON_MAX) ? id : STR_NULL;
}

/* ---- text ---- */

struct teams_mention {
    struct str text; /* as it stands in the message */
    bool of_bot;
};

static size_t read_mentions(struct json entities, struct str self,
                            struct teams_mention ret[MAX_MENTIONS])
{
    size_t n = 0;

    for (struct json_iter it = {0}; json_next(entities, &it) && n < MAX_MENTIONS;) {
        struct str id = json_str(json_get(it.value, "mentioned"), "id");
        if (!str_eq(json_str(it.value, "type"), STR("mention")) || id.n == 0)
            continue;
        ret[n++] = (struct teams_mention){.text = json_str(it.value, "text"),
                                          .of_bot = self.n > 0 && str_eq(id, self)};
    }
    return n;
}

/* The tag <at ...>...</at> that @text starts with; absent: none.  @ret_name: what is in it. */
static struct str tag_at(struct str text, struct str *ret_name)
{
    if (!str_starts(text, STR("<at>")) && !str_starts(text, STR("<at ")))
        return STR_NULL;
    ptrdiff_t open = str_find(str_make(text.p, text.n < MAX_TAG ? text.n : MAX_TAG), '>');
    struct str inner = open > 0 ? str_skip(text, (size_t)open + 1) : STR_NULL;
    for (size_t i = 0; i < inner.n && i <= TEAMS_NAME_MAX; i++) {
        if (inner.p[i] != '<')
            continue;
        if (!str_starts(str_skip(inner, i), STR("</at>")))
            return STR_NULL;
        *ret_name = str_make(inner.p, i);
        return str_make(text.p, (size_t)(inner.p - text.p) + i + 5);
    }
    return STR_NULL;
}

/* Without white space at both ends, of which Teams writes some as U+00A0. */
static struct str trim(struct str s)
{
    for (size_t before = s.n + 1; before != s.n;) {
        before = s.n;
        s = str_trim(s);
        if (str_starts(s, NO_BREAK_SPACE))
            s = str_skip(s, NO_BREAK_SPACE.n);
        if (str_ends(s, NO_BREAK_SPACE))
            s.n -= NO_BREAK_SPACE.n;
        if (str_starts(s, STR("&nbsp;")))
            s = str_skip(s, 6);
        if (str_ends(s, STR("&nbsp;")))
            s.n -= 6;
    }
    return s;
}

struct str teams_text_in(struct arena *arena, struct str text, struct json entities,
                         struct str self, bool *ret_mentioned)
{
    struct teams_mention all[MAX_MENTIONS];
    size_t n = read_mentions(entities, self, all);
    BUF_LOCAL out = BUF_INIT;

    for (size_t i = 0; i < n; i++)
        *ret_mentioned |= all[i].of_bot;
    if (str_find(text, '<') < 0)
        return text.p != NULL ? trim(text) : STR("");
    while (text.n > 0) {
        struct str name = STR_NULL, tag = tag_at(text, &name);
        if (tag.n == 0) {
            buf_add_c(&out, text.p[0]);
            text = str_skip(text, 1);
            continue;
        }
        bool of_bot = false;
        for (size_t i = 0; i < n; i++)
            of_bot |= all[i].of_bot && str_eq(all[i].text, tag);
        if (!of_bot)
            buf_printf(&out, "%s%.*s", str_starts(name, STR("@")) ? "" : "@", STR_FMT(name));
        text = str_skip(text, tag.n);
        if (of_bot && out.n > 0 && out.p[out.n - 1] == ' ') /* not two blanks in its place */
            text = text.n > 0 && text.p[0] == ' ' ? str_skip(text, 1) : text;
    }
    return arena_str(arena, trim(buf_str(&out)));
}

/* The message that a person quotes: the HTML of the message begins with it. */
static void add_quote(struct json attachments, struct event *ev, struct str self)
{
    for (struct json_iter it = {0}; json_next(attachments, &it);) {
        struct str html = json_str(it.value, "content");
        if (!str_eq(json_str(it.value, "contentType"), STR("text/html")) || html.n > MAX_HTML)
            continue;
        for (size_t i = 0; i + REPLY_MARK.n < html.n; i++) {
            struct str rest = str_skip(html, i);
            if (rest.p[0] != 'i' || !str_starts(rest, REPLY_MARK))
                continue;
            rest = str_trim(str_skip(rest, REPLY_MARK.n));
            struct str id = str_skip(rest, sizeof "itemid=\"" - 1);
            ptrdiff_t end = str_find(id, '"');
            if (!str_starts(rest, STR("itemid=\"")) || end <= 0 ||
                !teams_is_id(str_make(id.p, (size_t)end)))
                return;
            ev->reply_to_message_id = str_make(id.p, (size_t)end);
            ev->replies_to_bot |= self.n > 0 && str_contains(str_skip(id, (size_t)end), self);
            return;
        }
    }
}

/* ---- files ---- */

/* A file of a personal chat has an address that needs no token; a picture in a message is fetched
 * from the connector with the bot's token. */
static void add_files(struct json attachments, struct teams_out *out)
{
    struct event *ev = &out->ev;

    for (struct json_iter it = {0}; json_next(attachments, &it) && ev->n_media < EVENT_MAX_MEDIA;) {
        struct str type = json_str(it.value, "contentType"), url = json_str(it.value, "contentUrl");
        bool file = str_eq(type, DOWNLOAD_INFO);
        if (file) {
            url = json_str(json_get(it.value, "content"), "downloadUrl");
            type = STR_NULL;
        }
        if ((!file && !str_starts(type, STR("image/"))) || url.n == 0 || url.n > MAX_FILE_URL ||
            str_until_control(url) != url.n ||
            (!str_starts(url, STR("https://")) && !str_starts(url, STR("http://"))))
            continue;
        if (str_eq(type, STR("image/*"))) /* what it is shows when it is fetched */
            type = STR_NULL;
        struct str kind = file ? STR("document") : STR("photo");
        if (ev->n_media == 0)
            ev->message_type = kind;
        out->media[ev->n_media++] = (struct event_media){.ref = url,
                                                         .kind = file ? kind : STR("image"),
                                                         .type = type,
                                                         .name = name_of(it.value)};
    }
}

/* ---- places ---- */

static struct str dm_key(struct arena *arena, struct str person)
{
    BUF_LOCAL key = BUF_INIT;

    buf_printf(&key, "dm:%.*s", STR_FMT(person));
    return arena_str(arena, buf_str(&key));
}

static bool read_kind(struct json conversation, struct str thread, enum teams_kind *ret)
{
    struct str type = json_str(conversation, "conversationType");

    *ret = thread.n > 0                                             ? TEAMS_CHANNEL
           : json_as_bool(json_get(conversation, "isGroup"), false) ? TEAMS_GROUP
                                                                    : TEAMS_PERSONAL;
    if (type.n == 0)
        return true;
    for (size_t i = 0; teams_kinds[i] != NULL; i++)
        if (str_eq(type, str_of(teams_kinds[i]))) {
            *ret = (enum teams_kind)i;
            return true;
        }
    return false;
}

/* False: the activity does not say where it is from. */
static bool read_place(struct json activity, struct teams_place *at)
{
    struct json conversation = json_get(activity, "conversation");
    struct json data = json_get(activity, "channelData");
    struct json team = json_get(data, "team"), channel = json_get(data, "channel");

    *at = (struct teams_place){.service_url = json_str(activity, "serviceUrl"),
                               .tenant = json_str(conversation, "tenantId"),
                               .team = json_str(team, "id"),
                               .self = json_str(json_get(activity, "recipient"), "id")};
    if (at->tenant.n == 0)
        at->tenant = json_str(json_get(data, "tenant"), "id");
    if (!teams_split_chat(json_str(conversation, "id"), &at->chat, &at->thread) ||
        !read_kind(conversation, at->thread, &at->kind) || at->service_url.n == 0 ||
        at->service_url.n > TEAMS_URL_MAX || !is_plain(at->self, TEAMS_PERSON_MAX) ||
        (at->tenant.n > 0 && !is_plain(at->tenant, TEAMS_ID_MAX)))
        return false;
    if (!is_plain(at->team, TEAMS_CHAT_MAX))
        at->team = STR_NULL;
    at->name = at->kind == TEAMS_CHANNEL ? name_of(channel) : name_of(conversation);
    if (at->kind == TEAMS_CHANNEL && at->name.n == 0 && str_eq(at->team, at->chat))
        at->name = STR("General"); /* the only channel without a name */
    if (at->kind == TEAMS_PERSONAL)
        at->account = json_str(json_get(activity, "from"), "id");
    return true;
}

/* Who does something, and where.  False: Teams does not say. */
static bool set_place(struct json activity, struct arena *arena, struct teams_out *out)
{
    static const struct str types[] = {STR("dm"), STR("group"), STR("channel")};
    struct json from = json_get(activity, "from");
    const struct teams_place *at = &out->at;
    struct event *ev = &out->ev;
    struct str person = person_of(from), name = name_of(from);

    if (person.n == 0)
        return false;
    ev->chat_id = at->chat;
    ev->thread_id = at->thread;
    ev->chat_type = types[at->kind];
    ev->chat_name = at->name;
    ev->scope_id = at->tenant;
    if (at->kind == TEAMS_CHANNEL && at->team.n > 0 && !str_eq(at->team, at->chat))
        ev->parent_chat_id = at->team;
    ev->user_id = person;
    ev->user_name = ev->user_display_name = name.n > 0 ? name : person;
    ev->author_is_bot =
        str_starts(json_str(from, "id"), STR("28:")) || str_eq(json_str(from, "role"), STR("bot"));
    ev->route_key = at->kind == TEAMS_PERSONAL ? dm_key(arena, person)
                    : at->tenant.n > 0         ? at->tenant
                                               : at->chat;
    return true;
}

/* ---- activities ---- */

static enum teams_verdict ignore(struct teams_out *out, const char *why)
{
    out->why = why;
    return TEAMS_IGNORED;
}

static struct str token_in(struct json value)
{
    return json_str(json_get(value, "bellhop"), "press");
}

static enum teams_verdict take_press(struct json activity, struct str token, struct arena *arena,
                                     struct teams_out *out)
{
    struct event *ev = &out->ev;
    struct str message = json_str(activity, "replyToId");

    if (!set_place(activity, arena, out) || token.n == 0 || token.n > 256)
        return TEAMS_MALFORMED;
    out->press = token;
    if (teams_is_id(message))
        ev->message_id = ev->press.message_id = message;
    ev->mentions_bot = true;
    return TEAMS_PRESS;
}

static enum teams_verdict take_message(struct json activity, const struct teams_in *in,
                                       struct arena *arena, struct teams_out *out)
{
    struct event *ev = &out->ev;
    struct json attachments = json_get(activity, "attachments");

    out->value = json_get(activity, "value");
    if (token_in(out->value).n > 0)
        return take_press(activity, token_in(out->value), arena, out);
    if (!set_place(activity, arena, out) || !teams_is_id(out->activity))
        return TEAMS_MALFORMED;
    if (str_eq(json_str(json_get(activity, "from"), "id"), out->at.self))
        return ignore(out, "the bot's own message");
    ev->message_id = out->activity;
    ev->event_id = delivery_event_id(&out->id, true, ev->chat_id, out->activity);
    bool mentioned = false;
    ev->text = teams_text_in(arena, json_str(activity, "text"), json_get(activity, "entities"),
                             out->at.self, &mentioned);
    ev->mentions_bot = mentioned;
    add_quote(attachments, ev, out->at.self);
    add_files(attachments, out);
    if (ev->text.n > 0 && ev->text.p[0] == '/')
        ev->message_type = STR("command");
    if (ev->text.n == 0 && ev->n_media == 0)
        return ignore(out, "an empty message");
    return TEAMS_EVENT;
}

/* Teams tells of an edit by the message as it is now, and of a deletion by its id. */
static enum teams_verdict take_change(struct json activity, const struct teams_in *in, bool deletes,
                                      struct arena *arena, struct teams_out *out)
{
    struct event *ev = &out->ev;
    struct str kind = json_str(json_get(activity, "channelData"), "eventType");
    enum teams_verdict v;

    if (deletes && str_eq(kind, STR("softDeleteMessage"))) {
        if (!set_place(activity, arena, out) || !teams_is_id(out->activity))
            return TEAMS_MALFORMED;
        ev->message_id = out->activity;
        ev->event_id = delivery_event_id(&out->id, true, ev->chat_id, out->activity);
        v = TEAMS_EVENT;
    } else if (str_eq(kind, STR("editMessage")) || str_eq(kind, STR("undeleteMessage"))) {
        v = take_message(activity, in, arena, out);
    } else {
        return ignore(out, "a change that is not known here");
    }
    if (v == TEAMS_EVENT) {
        ev->edit.text = ev->text;
        ev->edit.set = ev->edit.silent = true; /* an agent that has the message is not told */
        ev->edit.deletes = deletes;
    }
    return v;
}

/* People's reactions become texts: "reaction:added:like".  Teams tells of those to the bot's
 * messages only; several at once come as one text. */
static enum teams_verdict take_reaction(struct json activity, const struct teams_in *in,
                                        struct arena *arena, struct teams_out *out)
{
    static const char *const keys[] = {"reactionsAdded", "reactionsRemoved"};
    struct event *ev = &out->ev;
    struct str message = json_str(activity, "replyToId");
    BUF_LOCAL text = BUF_INIT;
    size_t n = 0;

    if (!in->reactions)
        return ignore(out, "a reaction, and `reactions` is off");
    if (!set_place(activity, arena, out) || !teams_is_id(message) || !teams_is_id(out->activity))
        return TEAMS_MALFORMED;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        for (struct json_iter it = {0};
             json_next(json_get(activity, keys[i]), &it) && n < MAX_REACTIONS;) {
            struct str type = json_str(it.value, "type");
            if (type.n == 0 || type.n > 100 || str_until_control(type) != type.n)
                continue;
            buf_printf(&text, "%sreaction:%s:%.*s", n++ > 0 ? "\n" : "",
                       i == 0 ? "added" : "removed", STR_FMT(type));
        }
    if (n == 0)
        return ignore(out, "a reaction without a kind");
    ev->text = arena_str(arena, buf_str(&text));
    ev->event_id = delivery_event_id(&out->id, true, ev->chat_id, out->activity);
    ev->message_id = ev->reply_to_message_id = message;
    ev->reply_to.set = ev->reply_to.is_own = ev->replies_to_bot = true;
    return TEAMS_EVENT;
}

static bool has_self(struct json members, struct str self)
{
    for (struct json_iter it = {0}; json_next(members, &it);)
        if (str_eq(json_str(it.value, "id"), self))
            return true;
    return false;
}

static enum teams_verdict take_members(struct json activity, struct teams_out *out)
{
    struct str self = out->at.self;
    struct str what = json_str(json_get(activity, "channelData"), "eventType");

    if (has_self(json_get(activity, "membersRemoved"), self))
        return TEAMS_REMOVED;
    if (has_self(json_get(activity, "membersAdded"), self) || str_eq(what, STR("channelRenamed")))
        return TEAMS_INSTALLED;
    return ignore(out, "somebody came or left");
}

static enum teams_verdict take_invoke(struct json activity, struct arena *arena,
                                      struct teams_out *out)
{
    struct str name = json_str(activity, "name");

    out->invoke = true;
    out->value = json_get(activity, "value");
    if (str_eq(name, STR("adaptiveCard/action"))) {
        struct json action = json_get(out->value, "action");
        struct str token = token_in(json_get(action, "data"));
        return token.n > 0 ? take_press(activity, token, arena, out) : TEAMS_INVOKE;
    }
    if (!str_eq(name, STR("fileConsent/invoke")))
        return TEAMS_INVOKE;
    return set_place(activity, arena, out) ? TEAMS_CONSENT : TEAMS_MALFORMED;
}

enum teams_verdict teams_normalize(struct json activity, const struct teams_in *in,
                                   struct arena *arena, struct teams_out *out)
{
    struct str type = json_str(activity, "type");

    out->ev = (struct event){.platform = STR("teams"),
                             .bot = in->bot,
                             .text = STR(""),
                             .media = out->media};
    out->activity = json_str(activity, "id");
    out->press = STR_NULL;
    out->value = (struct json){0};
    out->invoke = str_eq(type, STR("invoke"));
    out->why = NULL;
    if (type.n == 0 || !read_place(activity, &out->at))
        return TEAMS_MALFORMED;
    if (!str_eq(json_str(activity, "channelId"), STR("msteams"))) {
        out->at = (struct teams_place){0}; /* a client of another channel chooses its own ids */
        return ignore(out, "another channel of the Bot Framework than Teams");
    }
    if (in->tenant.n > 0 && !str_eq_ci(out->at.tenant, in->tenant)) {
        if (set_place(activity, arena, out) && teams_is_id(out->activity)) { /* `bellhop why` */
            out->ev.message_id = out->activity;
            out->ev.event_id = delivery_event_id(&out->id, true, out->at.chat, out->activity);
        }
        return TEAMS_OTHER_TENANT;
    }
    if (str_eq(type, STR("message")))
        return take_message(activity, in, arena, out);
    if (str_eq(type, STR("messageUpdate")))
        return take_change(activity, in, false, arena, out);
    if (str_eq(type, STR("messageDelete")))
        return take_change(activity, in, true, arena, out);
    if (str_eq(type, STR("messageReaction")))
        return take_reaction(activity, in, arena, out);
    if (str_eq(type, STR("invoke")))
        return take_invoke(activity, arena, out);
    if (str_eq(type, STR("conversationUpdate")))
        return take_members(activity, out);
    if (str_eq(type, STR("installationUpdate")))
        return str_starts(json_str(activity, "action"), STR("remove")) ? TEAMS_REMOVED
                                                                       : TEAMS_INSTALLED;
    return ignore(out, "an activity that is not known here");
}

void teams_out_done(struct teams_out *out)
{
    buf_done(&out->id);
}
