/* normalize.c - see normalize.h. */
#include "platform/irc/normalize.h"
#include "base/mem.h"

static struct str fold_into(const struct irc_in *in, struct str name, struct arena *arena)
{
    BUF_LOCAL out = BUF_INIT;

    irc_fold_add(&out, in->fold, name);
    return arena_str(arena, buf_str(&out));
}

struct str irc_chat_id(const struct irc_in *in, struct str target, struct arena *arena)
{
    BUF_LOCAL out = BUF_INIT;

    irc_fold_add(&out, in->fold, target);
    buf_printf(&out, "@%.*s", STR_FMT(in->network));
    return arena_str(arena, buf_str(&out));
}

/* An account that can stand in an id: an id without one must never look the same. */
static bool is_account(struct str a)
{
    return a.n > 0 && a.n <= IRC_NAME_MAX && a.p[0] != '?' && a.p[0] != '*' &&
           str_until_control(a) == a.n && str_find(a, ' ') < 0 && utf8_valid(a);
}

static void fill_author(const struct irc_line *l, const struct irc_in *in, struct arena *arena,
                        struct irc_out *ret)
{
    struct str account = in->has_accounts ? irc_tag(l, STR("account"), arena) : STR_NULL;
    BUF_LOCAL id = BUF_INIT;

    ret->proven = is_account(account);
    if (ret->proven) {
        irc_fold_add(&id, IRC_ASCII, account);
        ret->account = arena_str(arena, buf_str(&id));
    } else {
        buf_add_c(&id, '?');
        irc_fold_add(&id, in->fold, l->nick);
    }
    buf_printf(&id, "@%.*s", STR_FMT(in->network));
    ret->ev.user_id = arena_str(arena, buf_str(&id));
    ret->ev.author_unproven = !ret->proven;
    ret->ev.user_name = l->nick;
    ret->ev.user_handle = l->nick;
    ret->ev.author_is_bot = in->has_tags && irc_tag(l, STR("bot"), arena).p != NULL;
}

bool irc_is_context(const struct irc_line *l, struct arena *arena)
{
    return irc_tag(l, STR("draft/chathistory-context"), arena).p != NULL;
}

struct str irc_msgid(const struct irc_line *l, struct str tag, struct arena *arena)
{
    struct str id = irc_tag(l, tag, arena);

    return id.n > 0 && id.n <= IRC_MSGID_MAX && str_until_control(id) == id.n &&
                   str_find(id, ' ') < 0 && utf8_valid(id)
               ? id
               : STR_NULL;
}

/* Without a msgid the event has the id that bellhop gave it. */
static void fill_ids(const struct irc_line *l, const struct irc_in *in, struct str id,
                     struct arena *arena, struct irc_out *ret)
{
    ret->msgid = in->has_tags ? irc_msgid(l, STR("msgid"), arena) : STR_NULL;
    ret->ev.message_id = ret->ev.event_id = ret->msgid.n > 0 ? ret->msgid : id;
}

static struct str reply_of(const struct irc_line *l, const struct irc_in *in, struct arena *arena)
{
    struct str to = in->has_tags ? irc_msgid(l, STR("+reply"), arena) : STR_NULL;

    return in->has_tags && to.n == 0 ? irc_msgid(l, STR("+draft/reply"), arena) : to;
}

static void fill_chat(const struct irc_in *in, struct str target, bool channel, struct arena *arena,
                      struct irc_out *ret)
{
    struct event *ev = &ret->ev;

    ev->platform = STR("irc");
    ev->bot = in->bot;
    ev->chat_id = ev->route_key = irc_chat_id(in, target, arena);
    ev->chat_type = channel ? STR("group") : STR("dm");
    ev->chat_name = ret->peer = target;
    ret->target = fold_into(in, target, arena);
}

static enum irc_verdict ignore(struct irc_out *ret, const char *why)
{
    ret->why = why;
    return IRC_IGNORED;
}

static enum irc_verdict read_text(const struct irc_line *l, const struct irc_in *in, bool channel,
                                  struct arena *arena, struct irc_out *ret)
{
    struct event *ev = &ret->ev;
    struct str raw = irc_param(l, 1);
    bool ctcp = raw.n > 0 && raw.p[0] == '\x01', acts = str_starts(raw, STR("\x01"
                                                                            "ACTION "));
    BUF_LOCAL plain = BUF_INIT;

    if (ctcp && !acts)
        return ignore(ret, "it is a question of a program (CTCP)");
    if (acts)
        buf_printf(&plain, "* %.*s ", STR_FMT(l->nick));
    irc_plain_add(&plain, acts ? str_skip(raw, 8) : raw);
    struct str text = str_trim(buf_str(&plain));
    if (text.n == 0)
        return ignore(ret, "it is empty");
    if (channel && !acts)
        ev->mentions_bot = irc_addresses(in->fold, text, in->nick, &text);
    else if (channel)
        ev->mentions_bot = irc_addresses(in->fold, text, in->nick, &(struct str){0});
    ev->text = arena_str(arena, text);
    if (ev->text.n > 0 && ev->text.p[0] == '/')
        ev->message_type = STR("command");
    ret->wants_link = str_starts(ev->text, STR("/link"));
    ev->reply_to_message_id = reply_of(l, in, arena);
    return IRC_EVENT;
}

static enum irc_verdict read_reaction(const struct irc_line *l, const struct irc_in *in,
                                      struct arena *arena, struct irc_out *ret)
{
    struct event *ev = &ret->ev;
    struct str added = irc_tag(l, STR("+draft/react"), arena);
    struct str removed = irc_tag(l, STR("+draft/unreact"), arena);
    struct str emoji = added.n > 0 ? added : removed;
    BUF_LOCAL text = BUF_INIT;

    ret->reacted = reply_of(l, in, arena);
    if (!in->reactions || emoji.n == 0 || emoji.n > 64 || ret->reacted.n == 0 ||
        !utf8_valid(emoji) || str_until_control(emoji) != emoji.n)
        return ignore(ret, "it has no text");
    buf_printf(&text, "reaction:%s:%.*s", added.n > 0 ? "added" : "removed", STR_FMT(emoji));
    ev->text = arena_str(arena, buf_str(&text));
    ev->reply_to_message_id = ret->reacted;
    return IRC_EVENT;
}

enum irc_verdict irc_normalize(const struct irc_line *l, const struct irc_in *in, struct str id,
                               struct arena *arena, struct irc_out *ret)
{
    struct str target = irc_param(l, 0);
    bool channel = irc_is_channel(target, in->chantypes);
    bool redacts = irc_is(l, "REDACT");

    bool own = irc_eq(in->fold, l->nick, in->nick);

    *ret = (struct irc_out){0};
    if (!irc_is_nick(l->nick))
        return ignore(ret, "it is a server's");
    if (!channel && (own ? !irc_is_nick(target) : !irc_eq(in->fold, target, in->nick)))
        return ignore(ret, "it is for others, such as the operators of a channel");
    fill_chat(in, channel || own ? target : l->nick, channel, arena, ret);
    fill_author(l, in, arena, ret);
    fill_ids(l, in, id, arena, ret);
    if (own)
        return IRC_OWN;
    if (irc_is(l, "PRIVMSG"))
        return read_text(l, in, channel, arena, ret);
    if (irc_is(l, "TAGMSG") && in->has_tags)
        return read_reaction(l, in, arena, ret);
    if (redacts && irc_param(l, 1).n > 0 && irc_param(l, 1).n <= IRC_MSGID_MAX) {
        BUF_LOCAL event = BUF_INIT;
        buf_printf(&event, "redact %.*s", STR_FMT(irc_param(l, 1)));
        ret->ev.message_id = irc_param(l, 1);
        ret->ev.event_id = arena_str(arena, buf_str(&event));
        ret->ev.edit.set = ret->ev.edit.deletes = ret->ev.edit.silent = true;
        ret->ev.text = STR("");
        return utf8_valid(ret->ev.message_id) ? IRC_EVENT : ignore(ret, "it is not text");
    }
    return ignore(ret, "it is a notice");
}
