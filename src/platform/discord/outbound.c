/* outbound.c - the actions of gateways on Discord: messages and edits.  (threads.c has typing,
 * lookups, reactions and threads, discord_priv.h the calls; the sender does the rest: sender.h.)
 *
 *      discord_act --> target channel --> a discord_kind's write() --> rest.c --> read()
 *
 * A text that is too long for Discord goes out in parts.  Every part carries a nonce that Discord
 * enforces: a retry after a lost answer returns the message that was already posted.  Only messages
 * through an interaction's token have no nonce.
 *
 * While an interaction waits for its answer, a send to its channel goes out through its token: the
 * first part edits "thinking ...", the others are new messages.  If the token has expired, the
 * message goes to the channel like any other.
 *
 * Where answers open threads (threads.c), the first request of such a send opens the thread.
 * Opening a thread that exists does no harm.  If Discord does not open the thread, the message goes
 * to the channel.
 *
 * A message for a thread that its gateway names goes to that thread or is refused, because the
 * thread may be private and its channel public.  If the cache lacks the thread (it is archived),
 * the first request reads the thread from Discord.
 *
 * An agent can ping the people it names and the person it answers, never a role or everyone. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "core/session_key.h"
#include "edge/vault.h"
#include "platform/attachment.h"
#include "platform/discord/discord_priv.h"
#include "platform/discord/voice.h"
#include "platform/prompts.h"
#include "platform/split.h"

#define NOT_ITS_THREAD "this is no thread of this chat that the agent's people can see"

enum {
    FLAG_VOICE = 1 << 13,
    UNKNOWN_CHANNEL = 10003, /* Discord's error codes */
    UNKNOWN_MESSAGE = 10008,
    INVALID_FORM = 50035,
    NO_HISTORY = 160002,
};

/* ---- the token of an interaction that waits for its answer ----
 *
 * The token is read from the vault when a request is written, and exists only in the path of that
 * request.  A follow-up has no other right than its token, so the right in the token's chat is
 * asked for each time. */

#define NO_RIGHT VAULT_REFUSED ": " HOST_NO_RIGHT

struct discord_reply {
    struct discord *d; /* borrowed */
    struct vault_ref ref;
    bool first; /* this reply edits the original answer, which was not edited before */
};

static struct discord_reply *reply_new(struct discord *d, struct vault_ref ref, bool first)
{
    struct discord_reply *h = xcalloc(1, sizeof *h);

    *h = (struct discord_reply){.d = d, .ref = ref, .first = first};
    return h;
}

static void reply_free(struct discord_reply *h)
{
    if (h->first)
        vault_give_back(h->d->base.env->vault, h->ref);
    free(h);
}

/* Splits a vault value into application, channel and token, as bind_token() wrote it. */
static bool open_value(const struct discord_reply *h, struct buf *plain, struct str ret[3])
{
    if (!vault_open_value(h->d->base.env->vault, h->ref, plain))
        return false;
    struct str rest = buf_str(plain);
    return str_split(&rest, '\x1f', &ret[0]) && str_split(&rest, '\x1f', &ret[1]) &&
           (ret[2] = rest).n > 0;
}

/* The right that @from has in the chat of the token. */
static enum gate_sight reply_right(const struct discord_reply *h, const struct action_from *from)
{
    struct action_place at = {0};

    return vault_chat_of(h->d->base.env->vault, h->ref, &at.chat_id, &at.scope_id)
               ? host_may_act(h->d->base.host, &h->d->base, from, &at)
               : GATE_UNSEEN;
}

static struct discord_reply *reply_for_follow_up(struct discord *d, const struct action_from *from,
                                                 const struct action *a, uint64_t *ret_channel,
                                                 const char **ret_why)
{
    const struct vault_user who = {from->tenant, from->instance, str_of(d->base.bot), a->kind};
    struct vault_ref ref;
    BUF_LOCAL key = BUF_INIT;
    BUF_SECRET plain = BUF_INIT;
    struct str parts[3];
    bool first;

    *ret_why = VAULT_REFUSED;
    session_key_without_profile(&key, a->session_key);
    if (!str_eq(a->kind, STR(DISCORD_TOKEN_KIND)) ||
        !vault_take(d->base.env->vault, &who, buf_str(&key), &ref, &first))
        return NULL;
    struct discord_reply *h = reply_new(d, ref, first);
    *ret_channel = open_value(h, &plain, parts) ? snowflake(parts[1]) : 0;
    if (*ret_channel != 0 && reply_right(h, from) != GATE_UNSEEN)
        return h;
    if (*ret_channel != 0)
        *ret_why = NO_RIGHT;
    reply_free(h);
    return NULL;
}

static bool reply_edits(const struct discord_reply *h, size_t part)
{
    return h->first && part == 0;
}

static bool reply_path(const struct discord_reply *h, size_t part, struct buf *out)
{
    BUF_SECRET plain = BUF_INIT;
    struct str parts[3];
    bool ok = open_value(h, &plain, parts);

    if (ok)
        buf_printf(out, "/webhooks/%.*s/%.*s%s", STR_FMT(parts[0]), STR_FMT(parts[2]),
                   reply_edits(h, part) ? "/messages/@original" : "?wait=true");
    return ok;
}

static void reply_used(struct discord_reply *h)
{
    if (!h->first)
        return;
    vault_used(h->d->base.env->vault, h->ref);
    h->first = false;
}

/* ---- messages: the request ---- */

enum step {               /* what the current request of a message does */
            STEP_CHECK,   /* reads a thread that the cache lacks */
            STEP_DIRECT,  /* reads whether the chat is a direct one */
            STEP_NAME,    /* reads the message that the new thread is named after */
            STEP_OPEN,    /* opens the thread */
            STEP_MESSAGE, /* sends or edits the message */
};

struct outgoing_message {         /* one send, edit or follow-up */
    struct discord_outgoing base; /* first */
    struct discord_reply *reply;  /* owned; the interaction's token; NULL: sent as the bot */
    uint64_t channel_id;
    uint64_t message_id;    /* the message to edit; 0: a new message */
    uint64_t reply_to;      /* 0: none */
    struct split parts;     /* owned */
    struct attachment file; /* owned; goes with the first part */
    struct buf buttons;     /* of a question; go with the last part; empty: none */
    bool follow_up;         /* may go out through its token only */
    uint64_t parent_id;     /* channel of the auto-thread that the message is in; 0: none */
    uint64_t claimed_of;    /* channel that the thread must belong to; 0: known to be its parent */
    bool opens;             /* the thread must be opened first */
    bool asked;             /* the thread's name has been requested */
    bool must_quote;        /* the message to answer may be in a thread of an unknown chat */
    bool not_here;          /* Discord says that it is not in the chat */
    enum step step;         /* of the current request */
    uint64_t looked;        /* edit: the last thread in which the message was looked for */
    struct voice voice;     /* of the file, which then goes without a text */
    struct voice_load *loading; /* the file is being read; NULL: it is not */
    bool is_voice, knows_voice; /* the file claims to be a voice note; @voice is known */
    bool as_file;               /* send an ordinary file: not a voice note, or refused as one */
};

static bool carries_file(const struct outgoing_message *m)
{
    return m->file.path != NULL && m->base.out.at == 0;
}

static void write_body(const struct outgoing_message *m, bool edit, struct buf *out)
{
    struct jw w = jw_begin(out);
    bool quotes = m->reply_to != 0 && m->base.out.at == 0 && m->reply == NULL;
    size_t part = m->base.out.at - (m->is_voice ? 1 : 0); /* wraps for a voice note: no text */
    char text[32];

    jw_obj(&w);
    if (part < m->parts.n)
        jw_kstr(&w, "content", split_part(&m->parts, part));
    if (carries_file(m)) {
        BUF_LOCAL name = BUF_INIT;
        attachment_name_add(&name, &m->file);
        jw_karr(&w, "attachments");
        jw_obj(&w);
        jw_ki64(&w, "id", 0);
        jw_kstr(&w, "filename", buf_str(&name));
        if (m->is_voice && !m->as_file)
            voice_write(&w, &m->voice);
        jw_end_obj(&w);
        jw_end_arr(&w);
    }
    if (carries_file(m) && m->is_voice && !m->as_file)
        jw_ki64(&w, "flags", FLAG_VOICE);
    if (m->buttons.n > 0 && m->base.out.at + 1 == m->base.out.n_parts)
        jw_kraw(&w, "components", buf_str(&m->buttons));
    jw_kraw(&w, "allowed_mentions",
            quotes ? STR("{\"parse\":[\"users\"],\"replied_user\":true}")
                   : STR("{\"parse\":[\"users\"]}"));
    if (!edit && m->reply == NULL) {
        snprintf(text, sizeof text, "%016" PRIx64 ".%zu", sender_key(&m->base.out),
                 m->base.out.at % 100000);
        jw_kstr(&w, "nonce", str_of(text));
        jw_kbool(&w, "enforce_nonce", true);
    }
    if (quotes) {
        snprintf(text, sizeof text, "%" PRIu64, m->reply_to);
        jw_kobj(&w, "message_reference");
        jw_kstr(&w, "message_id", str_of(text));
        jw_kbool(&w, "fail_if_not_exists", m->must_quote);
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
}

static bool is_edit(const struct outgoing_message *m)
{
    return m->reply != NULL ? reply_edits(m->reply, m->base.out.at)
                            : m->message_id != 0 && m->base.out.at == 0;
}

static void refuse_follow_up(struct sender_verdict *v)
{
    sender_say(v, SENDER_REFUSED, "%s", VAULT_REFUSED);
}

/* If the token has expired, a send goes to the channel, and a follow-up is refused.  False: nothing
 * can be sent now, and @v says why. */
static bool write_message_path(struct outgoing_message *m, struct buf *out,
                               struct sender_verdict *v)
{
    const struct outgoing *o = &m->base.out;
    enum gate_sight right = GATE_SEEN;

    /* A follow-up needs a right in the chat of its token.  Of other messages only those to a
     * private thread are checked: the relay has checked the chat, and everybody there sees its
     * other threads. */
    if (m->follow_up && m->reply != NULL)
        right = reply_right(m->reply, &o->from);
    else if (!m->follow_up && snowflake(o->chat) != m->channel_id)
        right = discord_thread_sight(m->base.d, &o->from, o->chat, m->channel_id);
    if (right != GATE_SEEN) {
        bool no = right == GATE_UNSEEN || o->failures >= SENDER_RIGHT_TRIES;
        sender_say(v, no ? SENDER_REFUSED : SENDER_AGAIN, "%s",
                   m->follow_up ? NO_RIGHT : NOT_ITS_THREAD);
        v->wait_ms = SENDER_RIGHT_MS;
        return false;
    }
    if (m->reply != NULL && reply_path(m->reply, o->at, out))
        return true;
    if (m->reply != NULL)
        reply_free(m->reply);
    m->reply = NULL;
    if (m->follow_up) {
        refuse_follow_up(v);
        return false;
    }
    buf_printf(out, "/channels/%" PRIu64 "/messages", m->channel_id);
    if (is_edit(m))
        buf_printf(out, "/%" PRIu64, m->message_id);
    return true;
}

static void on_voice(void *ctx, const struct voice *v)
{
    struct outgoing_message *m = ctx;

    m->loading = NULL;
    m->knows_voice = true;
    m->as_file = v == NULL;
    if (v != NULL)
        m->voice = *v;
    sender_resume(m->base.d->base.sender, NULL);
}

/* The request of a step before the message itself. */
static void write_step(const struct outgoing_message *m, struct discord_request *r)
{
    r->method = "GET";
    r->major = m->parent_id;
    if (m->step == STEP_CHECK || m->step == STEP_DIRECT) {
        r->route = "channel";
        r->major = m->channel_id;
        buf_printf(&r->path, "/channels/%" PRIu64, m->channel_id);
        return;
    }
    r->route = "message";
    buf_printf(&r->path, "/channels/%" PRIu64 "/messages/%" PRIu64, m->parent_id, m->channel_id);
    if (m->step == STEP_NAME)
        return;
    struct jw w = jw_begin(&r->body);
    r->method = "POST";
    r->route = action_op_name(ACTION_THREAD_CREATE);
    buf_add_z(&r->path, "/threads");
    jw_obj(&w);
    jw_kstr(&w, "name", str_of(discord_auto_name(m->base.d, m->channel_id)));
    jw_ki64(&w, "auto_archive_duration", DISCORD_ARCHIVE_MINUTES);
    jw_end_obj(&w);
}

static bool message_write(struct discord_outgoing *x, struct discord_request *r,
                          struct sender_verdict *v)
{
    struct outgoing_message *m = container_of(x, struct outgoing_message, base);

    m->step = m->claimed_of != 0 ? STEP_CHECK
              : m->not_here      ? STEP_DIRECT
              : !m->opens        ? STEP_MESSAGE
              /* Only a restart forgets the name. */
              : m->asked || discord_auto_knows(m->base.d, m->channel_id) ? STEP_OPEN
                                                                         : STEP_NAME;
    if (m->step != STEP_MESSAGE) {
        write_step(m, r);
        return true;
    }
    if (m->is_voice && !m->as_file && !m->knows_voice && carries_file(m)) {
        if (m->loading == NULL) /* reads the length and the waveform of the voice note */
            m->loading = voice_load(m->base.d->threads, m->file.path, on_voice, m);
        sender_say(v, m->loading != NULL ? SENDER_HOLD : SENDER_AGAIN,
                   "the voice note is being read");
        return false;
    }
    if (!write_message_path(m, &r->path, v))
        return false;
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

/* ---- messages: the answer ---- */

/* The thread cannot be opened: the message goes to the channel.  A question is refused, because its
 * answer would be looked up in the thread. */
static void without_thread(struct outgoing_message *m, struct sender_verdict *v)
{
    if (m->buttons.n > 0) {
        v->end = SENDER_REFUSED;
        return;
    }
    m->channel_id = m->parent_id;
    m->parent_id = 0;
    m->opens = false;
    v->end = SENDER_REWRITE;
}

/* The thread is gone, and hung under a message of the channel, where everybody could read it. */
static bool thread_was_public(const struct outgoing_message *m, const struct sender_verdict *v)
{
    return v->code == UNKNOWN_CHANNEL && m->parent_id != 0 &&
           discord_auto_knows(m->base.d, m->channel_id);
}

static void read_check(struct outgoing_message *m, struct sender_verdict *v)
{
    int64_t type = 0;

    if (v->end == SENDER_DONE && json_as_i64(json_get(v->answer, "type"), &type) &&
        discord_channel_is_thread((int)type) &&
        json_snowflake(v->answer, "parent_id") == m->claimed_of) {
        dcache_put_channel(m->base.d->cache, v->answer, 0);
        m->claimed_of = 0;
        v->end = SENDER_REWRITE;
        return;
    }
    if (thread_was_public(m, v)) {
        m->claimed_of = 0;
        without_thread(m, v);
        return;
    }
    if (v->end == SENDER_DONE)
        sender_say(v, SENDER_REFUSED, "%s", NOT_ITS_THREAD);
}

static void refuse_reply_to(struct sender_verdict *v)
{
    sender_say(v, SENDER_REFUSED,
               "reply_to is no message of this channel; name its thread in metadata.thread_id");
}

/* True: the message that the thread shall hang under is not in the channel, and @v is a refusal.
 * That message may be in a private thread, which a restart has forgotten. */
static bool is_parent_missing(const struct outgoing_message *m, struct sender_verdict *v)
{
    if (v->code != UNKNOWN_MESSAGE || discord_auto_knows(m->base.d, m->channel_id))
        return false;
    refuse_reply_to(v);
    return true;
}

/* The chat has no message to quote.  A direct chat has no threads: the message was deleted. */
static void read_direct(struct outgoing_message *m, struct sender_verdict *v)
{
    int64_t type = CHANNEL_TEXT;

    if (v->end == SENDER_DONE)
        json_as_i64(json_get(v->answer, "type"), &type);
    m->not_here = false;
    if (type == CHANNEL_DM || type == CHANNEL_GROUP_DM)
        v->end = SENDER_REWRITE;
    else
        refuse_reply_to(v);
}

static void read_name(struct outgoing_message *m, struct sender_verdict *v)
{
    if (is_parent_missing(m, v))
        return;
    m->asked = true;
    if (v->end == SENDER_DONE)
        discord_auto_learn(m->base.d, m->channel_id, json_str(v->answer, "content"));
    v->end = SENDER_REWRITE;
}

static void read_opening(struct outgoing_message *m, struct sender_verdict *v)
{
    struct discord *d = m->base.d;

    if (v->end == SENDER_DONE) {
        dcache_put_channel(d->cache, v->answer, 0);
        discord_name_given(d, m->channel_id, discord_auto_name(d, m->channel_id), true);
    }
    if (v->end == SENDER_DONE || v->code == DISCORD_HAS_THREAD) {
        m->opens = false;
        v->end = SENDER_REWRITE; /* the next request is the message */
    } else if (v->end == SENDER_REFUSED && !is_parent_missing(m, v)) {
        log_warn(&d->base.log, "cannot open a thread for an answer: %s", v->why);
        without_thread(m, v);
    }
}

/* Tries the edit in the next older auto-thread: a restart forgets which thread a message is in. */
static bool tries_opened_thread(struct outgoing_message *m, struct sender_verdict *v)
{
    struct discord *d = m->base.d;
    uint64_t home = m->parent_id != 0 ? m->parent_id : m->channel_id;
    uint64_t next = d->cfg->auto_thread && m->message_id != 0 && v->code == UNKNOWN_MESSAGE
                        ? discord_opened_before(d, home, m->looked != 0 ? m->looked : m->message_id)
                        : 0;

    if (next == 0)
        return false;
    m->parent_id = home;
    m->channel_id = m->looked = next;
    v->end = SENDER_REWRITE;
    return true;
}

static void message_read(struct discord_outgoing *x, struct sender_verdict *v)
{
    struct outgoing_message *m = container_of(x, struct outgoing_message, base);
    struct str id = json_str(v->answer, "id");

    if (m->step == STEP_CHECK) {
        read_check(m, v);
    } else if (m->step == STEP_DIRECT) {
        read_direct(m, v);
    } else if (m->step == STEP_NAME) {
        read_name(m, v);
    } else if (m->step == STEP_OPEN) {
        read_opening(m, v);
    } else if (v->end == SENDER_DONE) {
        if (m->parent_id != 0) { /* for the gateway, and for later actions on the message */
            discord_auto_at(x->d, snowflake(id), m->channel_id);
            snprintf(v->thread_id, sizeof v->thread_id, "%" PRIu64, m->channel_id);
            v->auto_thread_name = discord_name_opened_as(x->d, m->channel_id);
        }
        if (m->reply != NULL)
            reply_used(m->reply);
        if (id.n < sizeof v->message_id && snowflake(id) != 0)
            memcpy(v->message_id, id.p, id.n);
    } else if ((v->code == INVALID_FORM || v->code == NO_HISTORY) && m->must_quote) {
        m->must_quote = false;
        m->not_here = true;
        v->end = SENDER_REWRITE;
    } else if (v->code == NO_HISTORY && m->reply_to != 0) {
        m->reply_to = 0; /* the bot may not read the history: send without a quote */
        v->end = SENDER_REWRITE;
    } else if (v->end == SENDER_REFUSED && m->is_voice && m->base.out.at == 0 && !m->as_file) {
        m->as_file = true; /* Discord refused it as a voice message */
        v->end = SENDER_REWRITE;
    } else if (tries_opened_thread(m, v)) {
        return;
    } else if (m->looked == 0 && thread_was_public(m, v)) {
        without_thread(m, v);
    } else if (m->reply != NULL && m->base.out.at == 0 && (v->status == 401 || v->status == 404)) {
        /* Discord refused the token: a send goes to the channel, a follow-up is refused. */
        reply_used(m->reply);
        reply_free(m->reply);
        m->reply = NULL;
        if (m->follow_up)
            refuse_follow_up(v);
        else
            v->end = SENDER_REWRITE;
    }
}

static void message_free(struct discord_outgoing *x)
{
    struct outgoing_message *m = container_of(x, struct outgoing_message, base);

    if (m->file.path != NULL) {
        voice_load_cancel(&m->loading);
        attachment_done(&m->file);
    }
    if (m->reply != NULL)
        reply_free(m->reply);
    split_done(&m->parts);
    buf_done(&m->buttons);
    free(m);
}

static const struct discord_kind message_kind = {
    .write = message_write,
    .read = message_read,
    .free = message_free,
};

/* ---- messages: the start ---- */

/* Does the file claim to be a voice message that Discord can play?  Its content is checked just
 * before it is sent. */
static bool claims_voice(const struct outgoing_message *m)
{
    return m->file.kind != NULL && strcmp(m->file.kind, "voice") == 0 && m->reply == NULL &&
           m->file.size <= VOICE_MAX_BYTES && m->file.type != NULL &&
           (strstr(m->file.type, "/ogg") != NULL || strstr(m->file.type, "/opus") != NULL);
}

/* A thread that hangs under the answered message may not exist yet: it counts as not named. */
static bool names_thread(const struct action *a)
{
    return a->thread_id.n > 0 && !str_eq(a->thread_id, a->chat_id) &&
           !str_eq(a->thread_id, a->reply_to);
}

static void start_message(struct discord *d, uint64_t channel_id, struct discord_reply *reply,
                          const struct sender_order *q)
{
    const struct action *a = q->action;
    struct outgoing_message *m = xcalloc(1, sizeof *m);
    struct sender_order order = *q;
    uint64_t chat = snowflake(a->chat_id);
    char lane[24];

    *m = (struct outgoing_message){.base = {.d = d, .kind = &message_kind},
                                   .reply = reply,
                                   .channel_id = channel_id,
                                   .follow_up = a->op == ACTION_FOLLOW_UP};
    if (a->op == ACTION_EDIT)
        m->message_id = snowflake(a->message_id);
    else if (a->op == ACTION_SEND || a->op == ACTION_SEND_MEDIA || a->op == ACTION_PROMPT)
        m->reply_to = snowflake(a->reply_to);
    if (a->op != ACTION_FOLLOW_UP && channel_id != chat) {
        bool known = dcache_channel(d->cache, channel_id) != NULL; /* as a thread of the chat */
        bool under = !names_thread(a) && a->op != ACTION_EDIT;     /* an auto-thread */
        m->parent_id = under ? chat : 0;
        m->opens = under && !known && m->reply_to == channel_id;
        m->claimed_of = known || m->opens ? 0 : chat;
        if (under && m->reply_to == channel_id)
            m->reply_to = 0; /* the thread hangs under that message: no quote needed */
    } else if (d->cfg->auto_thread && m->reply_to != 0 && !names_thread(a)) {
        m->must_quote = dcache_channel(d->cache, chat) == NULL &&
                        !discord_auto_is_at(d, m->reply_to, chat); /* a command */
    }
    if (a->file != NULL)
        attachment_copy(&m->file, a);
    split_text(&m->parts, a->content, DISCORD_MAX_CONTENT, SPLIT_CHARS);
    m->base.out.n_parts = m->parts.n > 0 || a->file == NULL ? m->parts.n : 1;
    m->is_voice = a->file != NULL && claims_voice(m);
    if (m->is_voice)
        m->base.out.n_parts = m->parts.n + 1;
    snprintf(lane, sizeof lane, "%" PRIu64, channel_id);
    if (a->op == ACTION_PROMPT) {
        discord_write_buttons(&m->buttons, prompts_add(d->base.prompts, q->from, a, str_of(lane)),
                              NULL);
    }
    order.lane = str_of(lane);
    order.apart = a->op == ACTION_EDIT;
    order.twice = reply != NULL          ? TWICE_IS_TWO
                  : a->op == ACTION_EDIT ? TWICE_IS_ONE
                                         : TWICE_IS_KEYED;
    sender_act(d->base.sender, &m->base.out, &order);
}

/* ---- discord_act(): finds the channel and the kind ---- */

enum gate_sight discord_thread_sight(struct discord *d, const struct action_from *from,
                                     struct str chat, uint64_t thread_id)
{
    const struct dcache_channel *ch = dcache_channel(d->cache, thread_id);
    char guild[24], thread[24];

    if (ch == NULL || ch->type != CHANNEL_PRIVATE_THREAD)
        return GATE_SEEN;
    snprintf(guild, sizeof guild, "%" PRIu64, ch->guild_id);
    snprintf(thread, sizeof thread, "%" PRIu64, thread_id);
    return host_may_act(d->base.host, &d->base, from,
                        &(struct action_place){.chat_id = chat,
                                               .scope_id = str_of(guild),
                                               .thread_id = str_of(thread)});
}

/* Messages may wait for the answer; other actions are refused, and a gateway may try again. */
static bool refuse_unseen(struct discord *d, uint64_t thread_id, const struct sender_order *q)
{
    enum gate_sight sight = thread_id != snowflake(q->action->chat_id)
                                ? discord_thread_sight(d, q->from, q->action->chat_id, thread_id)
                                : GATE_SEEN;

    if (sight == GATE_UNSEEN)
        host_fail(d->base.host, q->id, "%s", NOT_ITS_THREAD);
    else if (sight != GATE_SEEN)
        host_fail(d->base.host, q->id,
                  ACTION_ERROR_TRANSIENT "who can see this thread is being looked up");
    return sight != GATE_SEEN;
}

/* metadata.thread_id is a claim of the gateway: it counts only for a thread of the action's chat,
 * which the relay has checked.  A thread that the cache lacks is returned unchecked, for
 * start_message().  0: @ret_why says why the action is refused. */
static uint64_t target_of(struct discord *d, const struct action_from *from, const struct action *a,
                          const char **ret_why)
{
    uint64_t chat = snowflake(a->chat_id), thread = snowflake(a->thread_id);

    *ret_why = "chat_id is not the id of a Discord channel";
    if (a->left != NULL && snowflake(a->left->e.lane) != 0)
        return snowflake(a->left->e.lane); /* chosen before the restart */
    if (chat != 0 && names_thread(a)) {
        const struct dcache_channel *ch = dcache_channel(d->cache, thread);
        *ret_why = NOT_ITS_THREAD;
        if (ch != NULL)
            return discord_channel_is_thread(ch->type) && ch->parent_id == chat ? thread : 0;
        return a->op == ACTION_SEND || a->op == ACTION_SEND_MEDIA || a->op == ACTION_PROMPT ||
                       a->op == ACTION_EDIT
                   ? thread
                   : 0;
    }
    uint64_t opened = d->cfg->auto_thread ? discord_auto_target(d, from, a) : 0;
    return opened != 0 ? opened : chat;
}

/* While an interaction waits for an answer in the chat or the thread of this send, the send goes
 * out through the interaction's token.  A send that went out under a nonce before a restart does
 * not: through a token it would be a second message. */
static void start_send(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    const struct action *a = q->action;
    uint64_t made = names_thread(a) ? channel_id : snowflake(a->chat_id);
    struct discord_reply *reply = NULL;

    if (a->left == NULL || a->left->e.twice != TWICE_IS_KEYED) {
        const struct action_from *from = q->from;
        BUF_LOCAL place = BUF_INIT;
        struct vault_ref ref;
        const struct vault_user who = {from->tenant, from->instance, str_of(d->base.bot),
                                       STR(DISCORD_TOKEN_KIND)};
        discord_token_place(d, made, &place);
        bool found = vault_take_place(d->base.env->vault, &who, buf_str(&place), a->user_id, &ref);
        reply = found ? reply_new(d, ref, true) : NULL;
    }
    start_message(d, reply != NULL ? made : channel_id, reply, q);
}

void discord_act(struct platform *p, struct action_id id, const struct action_from *from,
                 const struct action *a)
{
    struct discord *d = discord_of(p);
    struct sender_order q = {.id = id, .from = from, .action = a};
    const char *why;
    uint64_t channel_id = target_of(d, from, a, &why);
    struct discord_reply *reply;

    if (a->op != ACTION_FOLLOW_UP && channel_id == 0) {
        host_fail(p->host, id, "%s", why);
        return;
    }
    switch (a->op) {
    case ACTION_FOLLOW_UP:
        reply = reply_for_follow_up(d, from, a, &channel_id, &why);
        if (reply != NULL)
            start_message(d, channel_id, reply, &q);
        else
            host_fail(p->host, id, "%s", why);
        break;
    case ACTION_SEND:
    case ACTION_SEND_MEDIA:
        start_send(d, channel_id, &q);
        break;
    case ACTION_PROMPT:
        if (prompt_wrong(a) != NULL)
            host_fail(p->host, id, "%s", prompt_wrong(a));
        else
            start_send(d, channel_id, &q);
        break;
    case ACTION_EDIT:
        if (snowflake(a->message_id) == 0)
            host_fail(p->host, id, "message_id is not the id of a Discord message");
        else
            start_message(d, channel_id, NULL, &q);
        break;
    case ACTION_REACT:
    case ACTION_THREAD_CREATE:
    case ACTION_THREAD_RENAME:
    case ACTION_TYPING:
    case ACTION_GET_CHAT_INFO:
        if (a->op == ACTION_THREAD_RENAME) /* message_id names the thread */
            channel_id = snowflake(a->message_id);
        if (!refuse_unseen(d, channel_id, &q))
            discord_start_channel_action(d, channel_id, &q);
        break;
    default:
        host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
        break;
    }
}
