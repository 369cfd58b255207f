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
 * WhatsApp ids are stripped first: id_of().  The client then also applies its alias files,
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

const struct session_key_options session_key_rules[SESSION_KEY_RULES] = {
    {.group_sessions_per_user = true},
    {.group_sessions_per_user = false},
    {.group_sessions_per_user = true, .thread_sessions_per_user = true},
    {.group_sessions_per_user = true, .august = true},
    {.group_sessions_per_user = true, .thread_sessions_per_user = true, .august = true},
};

void session_key_without_profile(struct buf *out, struct str key)
{
    struct str rest = key, part;

    if (str_split(&rest, ':', &part) && str_eq(part, STR("agent")) &&
        str_split(&rest, ':', &part) && rest.n > 0) {
        buf_add_str(out, STR("agent:main:"));
        buf_add_str(out, rest);
    } else {
        buf_add_str(out, key);
    }
}

struct str session_key_platform(struct str name)
{
    name = event_platform_shown(str_trim(name));
    if (str_eq(name, STR("web"))) /* bellhop's own page is none of the client's */
        return STR("relay");
    for (size_t i = 0; i < ARRAY_LEN(platforms); i++)
        if (platforms[i].n == name.n && str_eq_ci(platforms[i], name))
            return platforms[i];
    return STR("relay");
}

/* An id in two pieces, so that a "+" in its middle is removed without a copy. */
struct key_id {
    struct str head, tail;
};

/* @raw, or on WhatsApp the stripped id: without surrounding space, the first "+", and everything
 * from the first ":" or "@" on. */
static struct key_id id_of(struct str raw, bool whatsapp)
{
    if (!whatsapp)
        return (struct key_id){.head = raw};
    struct str s = str_trim(raw);
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == ':' || s.p[i] == '@')
            s.n = i;
    ptrdiff_t plus = str_find(s, '+');
    if (plus < 0)
        return (struct key_id){.head = s};
    return (struct key_id){str_make(s.p, (size_t)plus), str_skip(s, (size_t)plus + 1)};
}

static void add(struct buf *out, struct str s)
{
    if (str_is_empty(s))
        return;
    buf_add_c(out, ':');
    buf_add_str(out, s);
}

static void add_id(struct buf *out, struct key_id id)
{
    if (id.head.n + id.tail.n == 0)
        return;
    buf_add_c(out, ':');
    buf_add_str(out, id.head);
    buf_add_str(out, id.tail);
}

void session_key_write(struct buf *out, const struct event *ev,
                       const struct session_key_options *opt)
{
    struct str platform =
        session_key_platform(ev->filed_as.p != NULL ? ev->filed_as : ev->platform);
    struct str scope = STR_NULL, thread = ev->thread_id, type = ev->chat_type;
    bool whatsapp = str_eq(platform, STR("whatsapp"));
    struct str user = !str_is_empty(ev->user_id_alt) ? ev->user_id_alt : ev->user_id;
    struct key_id participant = id_of(user, whatsapp);

    if (participant.head.n + participant.tail.n == 0)
        participant = id_of(user, false);
    if (opt->august && str_eq(platform, STR("slack"))) {
        scope = ev->scope_id;
        if (str_is_empty(thread))
            thread = ev->message_id; /* on Slack every top-level message starts a thread */
    }
    buf_add_str(out, STR("agent:"));
    if (str_is_empty(opt->profile) || str_eq(opt->profile, STR("default")))
        buf_add_str(out, STR("main"));
    else
        buf_add_str(out, opt->profile);
    add(out, platform);
    if (type.p == NULL || str_eq(type, STR("dm"))) {
        struct key_id chat = id_of(ev->chat_id, whatsapp);
        add(out, STR("dm"));
        add(out, scope);
        add_id(out, chat.head.n + chat.tail.n > 0 ? chat : participant);
        add(out, thread);
        return;
    }
    if (opt->august && str_is_empty(thread) && !str_is_empty(ev->prospective_thread_id)) {
        thread = ev->prospective_thread_id; /* the thread that the answer opens */
        type = STR("thread");
    }
    buf_add_c(out, ':');
    buf_add_str(out, type);
    add(out, scope);
    add(out, ev->chat_id);
    add(out, thread);
    if (opt->group_sessions_per_user && (str_is_empty(thread) || opt->thread_sessions_per_user))
        add_id(out, participant);
}

void session_key_of_event_as(struct buf *out, const struct event *ev,
                             const struct session_key_options *opt)
{
    if (ev->chat_type.n > 0) {
        session_key_write(out, ev, opt);
        return;
    }
    struct event dm = *ev; /* event_write() writes an empty chat_type as "dm" */
    dm.chat_type = STR("dm");
    session_key_write(out, &dm, opt);
}

void session_key_of_event(struct buf *out, const struct event *ev)
{
    struct session_key_options opt = SESSION_KEY_DEFAULTS;

    opt.august = !str_is_empty(ev->prospective_thread_id);
    session_key_of_event_as(out, ev, &opt);
}
