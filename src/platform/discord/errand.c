/* errand.c - reactions and threads: small things that are not messages.
 *
 * All but a thread out of nothing may be asked for twice: a reaction that is there stays, and a
 * message has one thread, whose id is its own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "platform/discord/discord_priv.h"

enum { UNKNOWN_EMOJI = 10014, HAS_THREAD = 160004, PUBLIC_THREAD = 11, ARCHIVE_MINUTES = 1440 };

struct small_wish {
    struct discord_outgoing base; /* first */
    enum action_op op;
    uint64_t channel_id, message_id; /* the latter 0: none */
    char *word;                      /* owned; an emoji or a name */
    bool remove;
    bool forum; /* the thread is a post of one */
};

static struct small_wish *errand_of(struct discord_outgoing *x)
{
    return container_of(x, struct small_wish, base);
}

static void write_name(struct buf *out, const struct small_wish *e)
{
    struct jw w = jw_begin(out);

    jw_obj(&w);
    jw_kstr(&w, "name", str_of(e->word));
    if (e->op == ACTION_THREAD_CREATE)
        jw_ki64(&w, "auto_archive_duration", ARCHIVE_MINUTES);
    if (e->op == ACTION_THREAD_CREATE && e->message_id == 0 && !e->forum)
        jw_ki64(&w, "type", PUBLIC_THREAD);
    if (e->forum) { /* a post begins with a message */
        jw_key(&w, "message");
        jw_obj(&w);
        jw_kstr(&w, "content", str_of(e->word));
        jw_key(&w, "allowed_mentions");
        jw_raw(&w, STR("{\"parse\":[]}"));
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
}

static bool errand_write(struct discord_outgoing *x, struct discord_request *r,
                         struct sender_verdict *v)
{
    struct small_wish *e = errand_of(x);

    r->major = e->channel_id;
    r->route = action_op_name(e->op);
    buf_printf(&r->path, "/channels/%" PRIu64, e->channel_id);
    if (e->op == ACTION_REACT) {
        r->method = e->remove ? "DELETE" : "PUT";
        buf_printf(&r->path, "/messages/%" PRIu64 "/reactions/", e->message_id);
        percent_encode(&r->path, str_of(e->word));
        buf_add_z(&r->path, "/@me");
        return true;
    }
    if (e->op == ACTION_THREAD_CREATE && e->message_id != 0)
        buf_printf(&r->path, "/messages/%" PRIu64, e->message_id);
    if (e->op == ACTION_THREAD_CREATE)
        buf_add_z(&r->path, "/threads");
    r->method = e->op == ACTION_THREAD_CREATE ? "POST" : "PATCH";
    r->once = e->op == ACTION_THREAD_CREATE && e->message_id == 0;
    write_name(&r->body, e);
    return true;
}

static void errand_read(struct discord_outgoing *x, const struct discord_answer *a,
                        struct sender_verdict *v)
{
    struct small_wish *e = errand_of(x);

    if (v->end == SENDER_REFUSED && e->op == ACTION_REACT && e->remove && a->code == UNKNOWN_EMOJI)
        v->end = SENDER_DONE; /* it is not there, as it should be */
    if (e->op == ACTION_THREAD_RENAME && v->end == SENDER_DONE)
        discord_name_given(x->d, e->channel_id, e->word);
    if (e->op != ACTION_THREAD_CREATE)
        return;
    uint64_t id = v->end == SENDER_DONE ? snowflake(json_str(a->body, "id")) : 0;
    if (id != 0)
        discord_name_given(x->d, id, e->word);
    if (v->end == SENDER_REFUSED && a->code == HAS_THREAD && e->message_id != 0) {
        v->end = SENDER_DONE;
        id = e->message_id;
    }
    if (id != 0)
        snprintf(v->thread_id, sizeof v->thread_id, "%" PRIu64, id);
}

static void errand_free(struct discord_outgoing *x)
{
    free(errand_of(x)->word);
    free(errand_of(x));
}

static const struct discord_kind errand_kind = {
    .write = errand_write,
    .read = errand_read,
    .free = errand_free,
};

/* NULL: it can be done; else why not. */
static const char *look(struct discord *d, const struct small_wish *e, const struct action *a)
{
    if (e->op == ACTION_REACT)
        return e->message_id == 0 || a->emoji.n == 0 || a->emoji.n > 64
                   ? "message_id or emoji is not one of Discord's"
                   : NULL;
    if (a->thread_name.n == 0 || utf8_chars(a->thread_name) > 100)
        return "a thread's name has 1 to 100 characters";
    if (e->op == ACTION_THREAD_CREATE)
        return NULL;
    const struct dcache_channel *ch = dcache_channel(d->cache, e->channel_id);
    uint64_t chat = snowflake(a->chat_id);
    if (ch == NULL || !discord_channel_is_thread(ch->type) ||
        (ch->parent_id != chat && e->channel_id != chat))
        return "message_id is no thread of this chat";
    if (a->only_if_current_name.p != NULL &&
        (ch->name == NULL || !str_eq(a->only_if_current_name, str_of(ch->name))))
        return "the thread has another name by now";
    return a->only_if_connector_created && !discord_name_is_ours(d, e->channel_id, ch->name)
               ? "the name of this thread is not the one bellhop gave it"
               : NULL;
}

void discord_errand(struct discord *d, uint64_t channel_id, const struct sender_order *q)
{
    const struct action *a = q->action;
    struct small_wish *e = xcalloc(1, sizeof *e);
    struct sender_order order = *q;
    char lane[48];

    *e = (struct small_wish){.base = {.d = d, .kind = &errand_kind, .out.n_parts = 1},
                             .op = a->op,
                             .channel_id = channel_id,
                             .message_id = snowflake(a->message_id),
                             .remove = a->remove};
    const struct dcache_channel *ch = dcache_channel(d->cache, channel_id);
    e->forum = a->op == ACTION_THREAD_CREATE && ch != NULL &&
               (ch->type == CHANNEL_FORUM || ch->type == CHANNEL_MEDIA);
    if (e->forum)
        e->message_id = 0;
    if (a->op == ACTION_THREAD_RENAME)
        e->channel_id = e->message_id;                          /* the thread is named there */
    const char *wrong = a->left != NULL ? NULL : look(d, e, a); /* checked before the restart */
    if (wrong != NULL) {
        host_fail(d->base.host, q->id, "%s", wrong);
        free(e);
        return;
    }
    e->word = str_dup(a->op == ACTION_REACT ? a->emoji : a->thread_name);
    snprintf(lane, sizeof lane, "%s %" PRIu64, action_op_name(a->op), e->channel_id);
    order.lane = str_of(lane);
    order.twice = a->op == ACTION_THREAD_CREATE && e->message_id == 0 ? TWICE_IS_TWO : TWICE_IS_ONE;
    sender_act(d->sender, &e->base.out, &order);
}
