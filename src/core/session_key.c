/* session_key.c - design.  (session_key.h has the contract.)
 *
 * The key joins the same parts as the client's builder with colons:
 *
 *      dm:      agent:main : platform : dm   [: scope]  : chat, else participant  [: thread]
 *      others:  agent:main : platform : type [: scope] [: chat] [: thread] [: participant]
 *
 * Parts in brackets are left out when they are empty.  Only keys of newer gateways have the scope,
 * and only for Slack.  Participants of a thread share one session unless both options are set.
 *
 * WhatsApp ids are stripped first: id_whatsapp().  The client then also applies its alias files,
 * which bellhop does not have; without such files the stripped id is the result. */
#include "core/session_key.h"
#include "base/mem.h"

/* The platforms that the client knows; the most frequent ones come first. */
static const struct str platforms[] = {
    STR("discord"),
    STR("telegram"),
    STR("slack"),
    STR("sms"),
    STR("wecom"),
    STR("relay"),
    STR("whatsapp"),
    STR("whatsapp_cloud"),
    STR("signal"),
    STR("mattermost"),
    STR("matrix"),
    STR("homeassistant"),
    STR("email"),
    STR("dingtalk"),
    STR("api_server"),
    STR("webhook"),
    STR("msgraph_webhook"),
    STR("feishu"),
    STR("wecom_callback"),
    STR("weixin"),
    STR("bluebubbles"),
    STR("qqbot"),
    STR("yuanbao"),
    STR("local"),
    STR("google_chat"),
    STR("irc"),
    STR("line"),
    STR("ntfy"),
    STR("photon"),
    STR("raft"),
    STR("simplex"),
    STR("teams"),
    STR("buzz"),
};

struct str session_key_platform(struct str name)
{
    name = str_trim(name);
    for (size_t i = 0; i < ARRAY_LEN(platforms); i++)
        if (platforms[i].n == name.n && str_eq_ci(platforms[i], name))
            return platforms[i];
    return STR("relay");
}

/* An id in two pieces, so that a "+" in its middle is removed without a copy. */
struct id {
    struct str head, tail;
};

static bool id_is_set(struct id id)
{
    return id.head.n + id.tail.n > 0;
}

static struct id id_plain(struct str s)
{
    return (struct id){.head = s};
}

/* Strips surrounding space, the first "+", and everything from the first ":" or "@" on. */
static struct id id_whatsapp(struct str s)
{
    s = str_trim(s);
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == ':' || s.p[i] == '@')
            s.n = i;
    ptrdiff_t plus = str_find(s, '+');
    if (plus < 0)
        return id_plain(s);
    return (struct id){str_make(s.p, (size_t)plus), str_skip(s, (size_t)plus + 1)};
}

static struct id participant_of(const struct session_key_source *src, bool whatsapp)
{
    struct str raw = !str_is_empty(src->user_id_alt) ? src->user_id_alt : src->user_id;
    struct id stripped = whatsapp ? id_whatsapp(raw) : id_plain(raw);
    return id_is_set(stripped) ? stripped : id_plain(raw);
}

static void add_part(struct buf *out, struct str s)
{
    buf_add_c(out, ':');
    buf_add_str(out, s);
}
static void add_set(struct buf *out, struct str s)
{
    if (!str_is_empty(s))
        add_part(out, s);
}
static void add_id(struct buf *out, struct id id)
{
    if (!id_is_set(id))
        return;
    add_part(out, id.head);
    buf_add_str(out, id.tail);
}

static void write_dm(struct buf *out, const struct session_key_source *src, bool whatsapp,
                     struct str scope, struct str thread)
{
    struct id chat = whatsapp ? id_whatsapp(src->chat_id) : id_plain(src->chat_id);

    add_part(out, STR("dm"));
    add_set(out, scope);
    add_id(out, id_is_set(chat) ? chat : participant_of(src, whatsapp));
    add_set(out, thread);
}

static void write_group(struct buf *out, const struct session_key_source *src,
                        const struct session_key_options *opt, bool whatsapp, struct str scope,
                        struct str thread)
{
    struct str type = src->chat_type;

    if (opt->august && str_is_empty(thread) && !str_is_empty(src->prospective_thread_id)) {
        thread = src->prospective_thread_id; /* the thread that the answer opens */
        type = STR("thread");
    }
    add_part(out, type);
    add_set(out, scope);
    add_set(out, src->chat_id);
    add_set(out, thread);
    if (opt->group_sessions_per_user && (str_is_empty(thread) || opt->thread_sessions_per_user))
        add_id(out, participant_of(src, whatsapp));
}

void session_key_write(struct buf *out, const struct session_key_source *src,
                       const struct session_key_options *opt)
{
    struct str platform = session_key_platform(src->platform);
    struct str scope = STR_NULL, thread = src->thread_id;
    bool whatsapp = str_eq(platform, STR("whatsapp"));

    if (opt->august && str_eq(platform, STR("slack"))) {
        scope = src->scope_id;
        if (str_is_empty(thread))
            thread = src->message_id; /* on Slack every top-level message starts a thread */
    }
    buf_add_str(out, STR("agent:"));
    if (str_is_empty(opt->profile) || str_eq(opt->profile, STR("default")))
        buf_add_str(out, STR("main"));
    else
        buf_add_str(out, opt->profile);
    add_part(out, platform);
    if (src->chat_type.p == NULL || str_eq(src->chat_type, STR("dm")))
        write_dm(out, src, whatsapp, scope, thread);
    else
        write_group(out, src, opt, whatsapp, scope, thread);
}

void session_key_of_event(struct buf *out, const struct event *ev)
{
    struct session_key_options opt = SESSION_KEY_DEFAULTS;

    opt.august = !str_is_empty(ev->prospective_thread_id);
    session_key_of_event_as(out, ev, &opt);
}

void session_key_of_event_as(struct buf *out, const struct event *ev,
                             const struct session_key_options *opt)
{
    /* event_write() writes an empty chat_type as "dm", so it gets the key of a dm. */
    struct session_key_source src = {
        .platform = ev->filed_as.p != NULL ? ev->filed_as : ev->platform,
        .chat_id = ev->chat_id,
        .chat_type = str_is_empty(ev->chat_type) ? STR_NULL : ev->chat_type,
        .user_id = ev->user_id,
        .user_id_alt = ev->user_id_alt,
        .thread_id = ev->thread_id,
        .scope_id = ev->scope_id,
        .prospective_thread_id = ev->prospective_thread_id,
        .message_id = ev->message_id,
    };
    session_key_write(out, &src, opt);
}
