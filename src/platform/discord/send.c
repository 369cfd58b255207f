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
 * Where answers open threads (auto_thread.c), the first request of such a send opens it; asking for
 * one that is there does no harm.  What Discord does not let be opened is said in the channel.
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
#include "platform/discord/voice.h"
#include "platform/prompts.h"
#include "platform/split.h"

enum {
    MAX_CONTENT = 2000,
    NO_HISTORY = 160002,
    HAS_THREAD = 160004,
    UNKNOWN_CHANNEL = 10003,
    UNKNOWN_MESSAGE = 10008,
    ARCHIVE_MINUTES = 1440,
    FLAG_VOICE = 1 << 13,
};

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
    uint64_t parent_id;     /* it lies in a thread that an answer opened, of this channel; 0: no */
    bool opens, opening;    /* the thread is to be made first; the request under way does that */
    bool asked, asking;     /* what it is to be called was asked; the request under way does that */
    uint64_t looked;        /* what is edited is not where it was said; the last thread tried */
    struct voice voice;     /* of the file, which goes alone then */
    struct voice_load *loading; /* it is being read; NULL: no */
    bool is_voice, knows_voice; /* it says that it is one; and it was read */
    bool as_file;               /* it was none, or Discord did not take it so */
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

/* Which part of the text goes with this request; parts.n or more: none. */
static size_t text_of(const struct outgoing_message *m)
{
    return m->is_voice ? part_of(m) - 1 : part_of(m); /* before the first: none, and that wraps */
}

static bool carries_file(const struct outgoing_message *m)
{
    return m->file.path != NULL && part_of(m) == 0;
}

static void write_attachment(struct jw *w, const struct outgoing_message *m)
{
    struct buf name = BUF_INIT;

    attachment_name_add(&name, &m->file);
    jw_key(w, "attachments");
    jw_arr(w);
    jw_obj(w);
    jw_ki64(w, "id", 0);
    jw_kstr(w, "filename", buf_str(&name));
    if (m->is_voice && !m->as_file)
        voice_write(w, &m->voice);
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
    if (text_of(m) < m->parts.n)
        jw_kstr(&w, "content", split_part(&m->parts, text_of(m)));
    if (carries_file(m))
        write_attachment(&w, m);
    if (carries_file(m) && m->is_voice && !m->as_file)
        jw_ki64(&w, "flags", FLAG_VOICE);
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

static void write_opening(const struct outgoing_message *m, struct discord_request *r)
{
    struct jw w = jw_begin(&r->body);

    r->method = "POST";
    r->route = action_op_name(ACTION_THREAD_CREATE);
    r->major = m->parent_id;
    buf_printf(&r->path, "/channels/%" PRIu64 "/messages/%" PRIu64 "/threads", m->parent_id,
               m->channel_id);
    jw_obj(&w);
    jw_kstr(&w, "name", str_of(discord_auto_name(m->base.d, m->channel_id)));
    jw_ki64(&w, "auto_archive_duration", ARCHIVE_MINUTES);
    jw_end_obj(&w);
}

/* A restart forgot what the message said that the thread will hang under. */
static void write_asking(const struct outgoing_message *m, struct discord_request *r)
{
    r->method = "GET";
    r->route = "message";
    r->major = m->parent_id;
    buf_printf(&r->path, "/channels/%" PRIu64 "/messages/%" PRIu64, m->parent_id, m->channel_id);
}

static void on_voice(void *ctx, const struct voice *v)
{
    struct outgoing_message *m = ctx;

    m->loading = NULL;
    m->knows_voice = true;
    m->as_file = v == NULL;
    if (v != NULL)
        m->voice = *v;
    sender_resume(m->base.d->sender, NULL);
}

/* False: how long it is, and how it looks, is being found out. */
static bool voice_is_known(struct outgoing_message *m, struct sender_verdict *v)
{
    if (!m->is_voice || m->as_file || m->knows_voice || !carries_file(m))
        return true;
    if (m->loading == NULL)
        m->loading = voice_load(m->base.d->threads, m->file.path, on_voice, m);
    v->end = m->loading != NULL ? SENDER_HOLD : SENDER_AGAIN;
    snprintf(v->why, sizeof v->why, "the voice note is being read");
    return false;
}

static bool message_write(struct discord_outgoing *x, struct discord_request *r,
                          struct sender_verdict *v)
{
    struct outgoing_message *m = message_of(x);

    m->asking = m->opens && !m->asked && !discord_auto_knows(x->d, m->channel_id);
    m->opening = m->opens;
    if (m->opens) {
        (m->asking ? write_asking : write_opening)(m, r);
        return true;
    }
    if (!voice_is_known(m, v))
        return false;
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

/* There is no such thread, and there will be none: the channel takes it, but for a question, whose
 * answer would be looked for in the thread. */
static void without_thread(struct outgoing_message *m, struct sender_verdict *v)
{
    char name[24];

    if (m->prompt != NULL) {
        prompts_drop(m->base.d->prompts, str_of(channel_name(m, name)), str_of(m->prompt));
        v->end = SENDER_REFUSED;
        return;
    }
    m->channel_id = m->parent_id;
    m->parent_id = 0;
    m->opens = false;
    v->end = SENDER_REWRITE;
}

static void read_opening(struct outgoing_message *m, const struct discord_answer *a,
                         struct sender_verdict *v)
{
    struct discord *d = m->base.d;

    if (v->end == SENDER_DONE)
        discord_name_opened(d, m->channel_id, discord_auto_name(d, m->channel_id));
    if (v->end == SENDER_DONE || a->code == HAS_THREAD) {
        m->opens = false;
        v->end = SENDER_REWRITE; /* and now the message */
    } else if (v->end == SENDER_REFUSED) {
        log_warn(&d->log, "an answer opens no thread: %s", v->why);
        without_thread(m, v);
    }
}

/* After a restart nobody knows in which thread of the channel an answer lies. */
static bool looks_elsewhere(struct outgoing_message *m, const struct discord_answer *a,
                            struct sender_verdict *v)
{
    struct discord *d = m->base.d;
    uint64_t home = m->parent_id != 0 ? m->parent_id : m->channel_id;
    uint64_t next = d->cfg->auto_thread && m->message_id != 0 && a->code == UNKNOWN_MESSAGE
                        ? discord_opened_before(d, home, m->looked != 0 ? m->looked : m->message_id)
                        : 0;

    if (next == 0)
        return false;
    m->parent_id = home;
    m->channel_id = m->looked = next;
    v->end = SENDER_REWRITE;
    return true;
}

/* Where it lies, for the gateway and for what is done to it later. */
static void note_thread(struct outgoing_message *m, uint64_t id, struct sender_verdict *v)
{
    if (m->parent_id == 0)
        return;
    discord_auto_sent(m->base.d, id, m->channel_id);
    snprintf(v->thread_id, sizeof v->thread_id, "%" PRIu64, m->channel_id);
    v->auto_thread_name = discord_name_opened_as(m->base.d, m->channel_id);
}

static void message_read(struct discord_outgoing *x, const struct discord_answer *a,
                         struct sender_verdict *v)
{
    struct outgoing_message *m = message_of(x);
    struct str id = json_str(a->body, "id");
    char name[24];

    if (m->asking) {
        m->asked = true;
        if (v->end == SENDER_DONE)
            discord_auto_learn(x->d, m->channel_id, json_str(a->body, "content"));
        v->end = SENDER_REWRITE;
    } else if (m->opening) {
        read_opening(m, a, v);
    } else if (v->end == SENDER_DONE) {
        note_thread(m, snowflake(id), v);
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
    } else if (v->end == SENDER_REFUSED && m->is_voice && part_of(m) == 0 && !m->as_file) {
        m->as_file =
            true; /* voice messages are not allowed there, or this one is not good enough */
        v->end = SENDER_REWRITE;
    } else if (looks_elsewhere(m, a, v)) {
        return;
    } else if (a->code == UNKNOWN_CHANNEL && m->parent_id != 0 && m->looked == 0) {
        without_thread(m, v);
    } else if (m->reply != NULL && part_of(m) == 0 && is_gone(a)) {
        without_reply(m, v);
    } else if (m->prompt != NULL && v->end == SENDER_REFUSED) {
        prompts_drop(x->d->prompts, str_of(channel_name(m, name)), str_of(m->prompt));
    }
}

static void message_free(struct discord_outgoing *x)
{
    struct outgoing_message *m = message_of(x);

    voice_load_cancel(&m->loading);
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

/* Discord plays a voice message in place; anything else of that kind is a file with sound.  What it
 * really is shows when it is its turn. */
static bool claims_voice(const struct outgoing_message *m)
{
    return m->file.kind != NULL && strcmp(m->file.kind, "voice") == 0 && m->reply == NULL &&
           m->file.size <= VOICE_MAX_BYTES && m->file.type != NULL &&
           (strstr(m->file.type, "/ogg") != NULL || strstr(m->file.type, "/opus") != NULL);
}

/* It goes into a thread that its gateway does not know of. */
static void set_thread(struct outgoing_message *m, const struct action *a)
{
    struct discord *d = m->base.d;
    uint64_t chat = snowflake(a->chat_id);

    if (!d->cfg->auto_thread || m->channel_id == chat || snowflake(a->thread_id) == m->channel_id ||
        a->op == ACTION_FOLLOW_UP || a->op == ACTION_EDIT)
        return;
    m->parent_id = chat;
    m->opens = m->reply_to == m->channel_id && dcache_channel(d->cache, m->channel_id) == NULL;
    if (m->reply_to == m->channel_id)
        m->reply_to = 0; /* the thread hangs under it */
}

void discord_message(struct discord *d, uint64_t channel_id, struct discord_reply *reply,
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
    set_thread(m, a);
    if (a->file != NULL)
        attachment_copy(&m->file, a);
    split_text(&m->parts, a->content, MAX_CONTENT, SPLIT_CHARS);
    m->base.out.n_parts = m->parts.n > 0 || a->file == NULL ? m->parts.n : 1;
    m->is_voice = a->file != NULL && claims_voice(m);
    if (m->is_voice)
        m->base.out.n_parts = m->parts.n + 1;
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
