/* send.c - design.  (discord_priv.h has the calls, sender.h what is done around them.)
 *
 * A text longer than Discord takes goes out in parts.  Every part carries a nonce which Discord
 * enforces: a request repeated after a lost answer returns the message that is already there
 * instead of a second one.  Only what goes out through an interaction's token has no such thing.
 *
 * While an interaction waits for its answer, a send to its channel goes out through its token: the
 * first part edits "thinking ...", the rest follows.  Should Discord have forgotten the token, the
 * message goes to the channel as any other.
 *
 * An agent can never ping a role or everyone, whatever it writes; the people it names and the one
 * it answers, it can. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "edge/vault.h"
#include "platform/attachment.h"
#include "platform/discord/discord_priv.h"
#include "platform/prompts.h"
#include "platform/split.h"

enum { MAX_CONTENT = 2000, TYPING_SHOWS_MS = 8000, NO_HISTORY = 160002 };

struct outgoing_message {         /* one send, edit or follow-up */
    struct discord_outgoing base; /* first */
    struct discord_reply *reply;  /* owned; out through an interaction's token; NULL: as the bot */
    uint64_t channel_id;
    uint64_t message_id;    /* what is edited; 0: a new message */
    uint64_t reply_to;      /* 0: none */
    struct split parts;     /* owned */
    struct attachment file; /* owned; goes with the first part */
    struct buf buttons;     /* of a question; go with the last part; empty: none */
    char *prompt;           /* owned; the question's id */
    bool follow_up;         /* only through its token */
};

static struct outgoing_message *message_of(struct discord_outgoing *x)
{
    return container_of(x, struct outgoing_message, base);
}

static size_t part_of(const struct outgoing_message *m)
{
    return m->base.out.at;
}

static bool is_last(const struct outgoing_message *m)
{
    return part_of(m) + 1 == m->base.out.n_parts;
}

/* ---- what is asked of Discord ---- */

static bool carries_file(const struct outgoing_message *m)
{
    return m->file.path != NULL && part_of(m) == 0;
}

static void write_attachment(struct jw *w, const struct attachment *a)
{
    struct buf name = BUF_INIT;

    attachment_name_add(&name, a);
    jw_key(w, "attachments");
    jw_arr(w);
    jw_obj(w);
    jw_ki64(w, "id", 0);
    jw_kstr(w, "filename", buf_str(&name));
    jw_end_obj(w);
    jw_end_arr(w);
    buf_done(&name);
}

static void write_body(const struct outgoing_message *m, bool edit, struct buf *out)
{
    struct jw w = jw_begin(out);
    bool quotes = m->reply_to != 0 && part_of(m) == 0 && m->reply == NULL;
    char text[32];

    jw_obj(&w);
    if (part_of(m) < m->parts.n)
        jw_kstr(&w, "content", split_part(&m->parts, part_of(m)));
    if (carries_file(m))
        write_attachment(&w, &m->file);
    if (m->buttons.n > 0 && is_last(m)) {
        jw_key(&w, "components");
        jw_raw(&w, buf_str(&m->buttons));
    }
    jw_key(&w, "allowed_mentions");
    jw_raw(&w, quotes ? STR("{\"parse\":[\"users\"],\"replied_user\":true}")
                      : STR("{\"parse\":[\"users\"]}"));
    if (!edit && m->reply == NULL) {
        snprintf(text, sizeof text, "%016" PRIx64 ".%zu", sender_key(&m->base.out),
                 part_of(m) % 100000);
        jw_kstr(&w, "nonce", str_of(text));
        jw_kbool(&w, "enforce_nonce", true);
    }
    if (quotes) {
        snprintf(text, sizeof text, "%" PRIu64, m->reply_to);
        jw_key(&w, "message_reference");
        jw_obj(&w);
        jw_kstr(&w, "message_id", str_of(text));
        jw_kbool(&w, "fail_if_not_exists", false);
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
}

static bool is_edit(const struct outgoing_message *m)
{
    return m->reply != NULL ? discord_reply_edits(m->reply, part_of(m))
                            : m->message_id != 0 && part_of(m) == 0;
}

/* A token that expired meanwhile leaves a send its ordinary way, and a follow-up none. */
static bool write_path(struct outgoing_message *m, struct buf *out)
{
    if (m->reply != NULL && discord_reply_path(m->reply, part_of(m), out))
        return true;
    discord_reply_free(m->reply);
    m->reply = NULL;
    buf_printf(out, "/channels/%" PRIu64 "/messages", m->channel_id);
    if (is_edit(m))
        buf_printf(out, "/%" PRIu64, m->message_id);
    return !m->follow_up;
}

static void refuse_follow_up(struct sender_verdict *v)
{
    v->end = SENDER_REFUSED;
    snprintf(v->why, sizeof v->why, "%s", VAULT_REFUSED);
}

static bool message_write(struct discord_outgoing *x, struct discord_request *r,
                          struct sender_verdict *v)
{
    struct outgoing_message *m = message_of(x);

    if (!write_path(m, &r->path)) {
        refuse_follow_up(v);
        return false;
    }
    bool edit = is_edit(m);
    write_body(m, edit, &r->body);
    r->method = edit ? "PATCH" : "POST";
    r->file = carries_file(m) ? &m->file : NULL;
    r->route = m->reply != NULL ? "reply" : edit ? "edit" : "send";
    r->major = m->channel_id;
    r->by_token = m->reply != NULL;
    r->once = r->by_token && !edit;
    return true;
}

/* ---- what Discord answers ---- */

/* Discord does not know the token, or what it should edit, any more. */
static bool is_gone(const struct discord_answer *a)
{
    return a->status == 401 || a->status == 404;
}

/* The token was good for nothing: a send goes to the channel, a follow-up has no other way. */
static void without_reply(struct outgoing_message *m, struct sender_verdict *v)
{
    discord_reply_used(m->reply);
    discord_reply_free(m->reply);
    m->reply = NULL;
    if (m->follow_up)
        refuse_follow_up(v);
    else
        v->end = SENDER_REWRITE;
}

static const char *channel_name(const struct outgoing_message *m, char ret[24])
{
    snprintf(ret, 24, "%" PRIu64, m->channel_id);
    return ret;
}

static void message_read(struct discord_outgoing *x, const struct discord_answer *a,
                         struct sender_verdict *v)
{
    struct outgoing_message *m = message_of(x);
    struct str id = json_str(a->body, "id");
    char name[24];

    if (v->end == SENDER_DONE) {
        if (m->reply != NULL)
            discord_reply_used(m->reply);
        if (id.n < sizeof v->message_id && snowflake(id) != 0)
            memcpy(v->message_id, id.p, id.n);
        if (m->prompt != NULL && is_last(m))
            prompts_shown(x->d->prompts, str_of(channel_name(m, name)), str_of(m->prompt),
                          str_of(v->message_id));
    } else if (a->code == NO_HISTORY && m->reply_to != 0) {
        m->reply_to = 0; /* the channel hides its history from us: the answer stands unquoted */
        v->end = SENDER_REWRITE;
    } else if (m->reply != NULL && part_of(m) == 0 && is_gone(a)) {
        without_reply(m, v);
    } else if (m->prompt != NULL && v->end == SENDER_REFUSED) {
        prompts_drop(x->d->prompts, str_of(channel_name(m, name)), str_of(m->prompt));
    }
}

static void message_free(struct discord_outgoing *x)
{
    struct outgoing_message *m = message_of(x);

    discord_reply_free(m->reply);
    split_done(&m->parts);
    attachment_done(&m->file);
    buf_done(&m->buttons);
    free(m->prompt);
    free(m);
}

static const struct discord_kind message_kind = {
    .write = message_write,
    .read = message_read,
    .free = message_free,
};

/* ---- starting ---- */

static void start_message(struct discord *d, uint64_t channel_id, struct discord_reply *reply,
                          const struct sender_order *q)
{
    const struct action *a = q->action;
    struct outgoing_message *m = xcalloc(1, sizeof *m);
    struct sender_order order = *q;
    struct buf what = BUF_INIT;
    char lane[24];

    *m = (struct outgoing_message){.base = {.d = d, .kind = &message_kind},
                                   .reply = reply,
                                   .channel_id = channel_id,
                                   .follow_up = a->op == ACTION_FOLLOW_UP};
    if (a->op == ACTION_EDIT)
        m->message_id = snowflake(a->message_id);
    else if (a->op == ACTION_SEND || a->op == ACTION_SEND_MEDIA || a->op == ACTION_PROMPT)
        m->reply_to = snowflake(a->reply_to);
    if (a->file != NULL)
        attachment_copy(&m->file, a);
    split_text(&m->parts, a->content, MAX_CONTENT, SPLIT_CHARS);
    m->base.out.n_parts = m->parts.n > 0 || a->file == NULL ? m->parts.n : 1;
    channel_name(m, lane);
    if (a->op == ACTION_PROMPT) {
        m->prompt = str_dup(a->prompt_id);
        discord_write_buttons(&m->buttons, prompts_add(d->prompts, q->from, a, str_of(lane)), NULL);
        buf_printf(&what, "%s ", m->prompt);
    }
    buf_printf(&what, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " ", action_op_name(a->op), channel_id,
               m->message_id, m->reply_to);
    buf_add_str(&what, a->content);
    if (a->file != NULL)
        buf_printf(&what, " %s", a->file->path);
    order.lane = str_of(lane);
    order.what = buf_str(&what);
    order.twice = reply != NULL          ? TWICE_IS_TWO
                  : a->op == ACTION_EDIT ? TWICE_IS_ONE
                                         : TWICE_IS_KEYED;
    sender_act(d->sender, &m->base.out, &order);
    buf_done(&what);
}

/* ---- typing and lookups ---- */

struct aside {                    /* what needs no more than the channel */
    struct discord_outgoing base; /* first */
    uint64_t channel_id;
};

static struct aside *aside_of(struct discord_outgoing *x)
{
    return container_of(x, struct aside, base);
}

static void aside_free(struct discord_outgoing *x)
{
    free(aside_of(x));
}

static bool typing_shows(const struct discord *d, uint64_t channel_id)
{
    for (size_t i = 0; i < ARRAY_LEN(d->typing); i++)
        if (d->typing[i].channel_id == channel_id &&
            d->typing[i].until_ms > clock_now_ms(d->env->clock))
            return true;
    return false;
}

static bool typing_write(struct discord_outgoing *x, struct discord_request *r,
                         struct sender_verdict *v)
{
    r->method = "POST";
    r->route = "typing";
    r->major = aside_of(x)->channel_id;
    buf_printf(&r->path, "/channels/%" PRIu64 "/typing", r->major);
    return true;
}

static void typing_read(struct discord_outgoing *x, const struct discord_answer *a,
                        struct sender_verdict *v)
{
    struct discord *d = x->d;

    if (v->end != SENDER_DONE)
        return;
    size_t at = d->typing_at++ % ARRAY_LEN(d->typing);
    d->typing[at].channel_id = aside_of(x)->channel_id;
    d->typing[at].until_ms = clock_now_ms(d->env->clock) + TYPING_SHOWS_MS;
}

static const struct discord_kind typing_kind = {
    .write = typing_write,
    .read = typing_read,
    .free = aside_free,
};

static const char *chat_type_of(int64_t type)
{
    if (discord_channel_is_thread((int)type))
        return "thread";
    return type == CHANNEL_DM || type == CHANNEL_GROUP_DM ? "dm" : "group";
}

static bool info_write(struct discord_outgoing *x, struct discord_request *r,
                       struct sender_verdict *v)
{
    r->method = "GET";
    r->route = "channel";
    r->major = aside_of(x)->channel_id;
    buf_printf(&r->path, "/channels/%" PRIu64, r->major);
    return true;
}

static void info_read(struct discord_outgoing *x, const struct discord_answer *a,
                      struct sender_verdict *v)
{
    struct json person = {0};
    int64_t type = 0;

    if (v->end != SENDER_DONE)
        return;
    json_as_i64(json_get(a->body, "type"), &type);
    for (struct json_iter it = {0};
         person.doc == NULL && json_next(json_get(a->body, "recipients"), &it);)
        person = it.value;
    v->chat_type = str_of(chat_type_of(type));
    v->chat_name = json_str(a->body, "name");
    if (str_is_empty(v->chat_name))
        v->chat_name = json_str(person, "global_name");
    if (str_is_empty(v->chat_name))
        v->chat_name = json_str(person, "username");
}

static const struct discord_kind info_kind = {
    .write = info_write,
    .read = info_read,
    .free = aside_free,
};

static void start_aside(struct discord *d, uint64_t channel_id, const struct discord_kind *kind,
                        struct str lane, const struct sender_order *q)
{
    struct aside *x = xcalloc(1, sizeof *x);
    struct sender_order order = *q;

    *x = (struct aside){.base = {.d = d, .kind = kind, .out.n_parts = 1}, .channel_id = channel_id};
    order.lane = lane;
    sender_act(d->sender, &x->base.out, &order);
}

/* Gateways repeat it every two seconds, Discord shows it for ten: most of them need no request.  It
 * has a lane of its own, so that an answer never waits behind it. */
static void start_typing(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    char lane[32];

    snprintf(lane, sizeof lane, "typing %" PRIu64, channel_id);
    if ((q->action->content_set && str_is_empty(q->action->content)) || typing_shows(d, channel_id))
        host_result(d->base.host, q->id, &(struct action_result){.success = true});
    else
        start_aside(d, channel_id, &typing_kind, str_of(lane), q);
}

static void start_info(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    const struct dcache_channel *ch = dcache_channel(d->cache, channel_id);

    if (ch != NULL && ch->name != NULL)
        host_result(d->base.host, q->id,
                    &(struct action_result){.success = true,
                                            .chat_name = str_of(ch->name),
                                            .chat_type = str_of(chat_type_of(ch->type))});
    else
        start_aside(d, channel_id, &info_kind, STR("channels"), q);
}

/* ---- the platform's entrance ---- */

/* metadata.thread_id is a claim: it is followed only into a thread of the very chat that the relay
 * has checked. */
static uint64_t target_of(struct discord *d, const struct action *a)
{
    uint64_t chat = snowflake(a->chat_id), thread = snowflake(a->thread_id);
    const struct dcache_channel *ch = thread != 0 ? dcache_channel(d->cache, thread) : NULL;

    if (a->left != NULL && snowflake(a->left->e.lane) != 0)
        return snowflake(a->left->e.lane); /* checked before the restart; little is known yet */
    return ch != NULL && discord_channel_is_thread(ch->type) && ch->parent_id == chat ? thread
                                                                                      : chat;
}

static void start_follow_up(struct discord *d, const struct sender_order *q)
{
    uint64_t channel_id = 0;
    struct discord_reply *reply = discord_reply_for_follow_up(d, q->from, q->action, &channel_id);

    if (reply != NULL)
        start_message(d, channel_id, reply, q);
    else
        host_fail(d->base.host, q->id, "%s", VAULT_REFUSED);
}

/* What went out under a key before a restart goes on so: through a token it would be another. */
static struct discord_reply *reply_for(struct discord *d, const struct sender_order *q)
{
    const struct action *a = q->action;

    if (a->left != NULL && a->left->e.twice == TWICE_IS_KEYED)
        return NULL;
    return discord_reply_for_send(d, q->from, snowflake(a->chat_id), a->user_id);
}

static void start(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    const struct action *a = q->action;

    switch (a->op) {
    case ACTION_SEND:
    case ACTION_SEND_MEDIA:
        start_message(d, channel_id, reply_for(d, q), q);
        break;
    case ACTION_PROMPT:
        if (prompt_wrong(a) != NULL)
            host_fail(d->base.host, q->id, "%s", prompt_wrong(a));
        else
            start_message(d, channel_id, reply_for(d, q), q);
        break;
    case ACTION_EDIT:
        if (snowflake(a->message_id) == 0)
            host_fail(d->base.host, q->id, "message_id is not the id of a Discord message");
        else
            start_message(d, channel_id, NULL, q);
        break;
    case ACTION_REACT:
    case ACTION_THREAD_CREATE:
    case ACTION_THREAD_RENAME:
        discord_errand(d, channel_id, q);
        break;
    case ACTION_TYPING:
        start_typing(d, channel_id, q);
        break;
    case ACTION_GET_CHAT_INFO:
        start_info(d, channel_id, q);
        break;
    default:
        host_fail(d->base.host, q->id, "unsupported op: %.*s", STR_FMT(a->op_name));
        break;
    }
}

void discord_act(struct platform *p, struct action_id id, const struct action_from *from,
                 const struct action *a)
{
    struct discord *d = discord_of(p);
    struct sender_order q = {.id = id, .from = from, .action = a};
    uint64_t channel_id = target_of(d, a);

    if (a->op == ACTION_FOLLOW_UP)
        start_follow_up(d, &q);
    else if (channel_id == 0)
        host_fail(p->host, id, "chat_id is not the id of a Discord channel");
    else
        start(d, channel_id, &q);
}
