/* auto_thread.c - answers that open threads (`auto_thread: true`).
 *
 * A message of a channel is answered in a thread that hangs under it.  Such a thread has the
 * message's own id, so the event can name it before it exists, and asking for it twice is asking
 * once.  In exchange everything that was said in threads carries its channel as the chat, and what
 * gateways do to a message by its id alone (react, edit) must be led to the thread it lies in:
 *
 *      marks    message -> struct mark     a message of a channel: what its thread will be called;
 *                                          a message in a thread: which one
 *      current  channel -> struct current  the thread of the last answer, for what follows it
 *                                          without saying what it answers
 *
 * In memory, the newest MAX_MARKS.  What a restart forgot is asked of Discord: the message that an
 * answer opens a thread under, for its name; the threads that were opened before a message, for
 * one that is edited. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/discord/discord_priv.h"

enum { MAX_MARKS = 8192, CURRENT_MS = 900000, TYPING_MS = 30000, NAME_CHARS = 50 };
#define NO_NAME "A conversation"

struct mark {
    struct list link;       /* d->marks_by_age, oldest first */
    uint64_t id, thread_id; /* the latter 0: it lies in a channel */
    char *name;             /* owned; NULL: it lies in a thread */
};

struct current {
    uint64_t channel_id, thread_id, user_id;
    int64_t at_ms;
};

void discord_auto_init(struct discord *d)
{
    list_init(&d->marks_by_age);
}

static void mark_free(struct discord *d, struct mark *m)
{
    map_del(&d->marks, id_key(&m->id));
    list_remove(&m->link);
    free(m->name);
    free(m);
}

void discord_auto_done(struct discord *d)
{
    void *v;

    list_each (&d->marks_by_age, it, nxt)
        mark_free(d, list_entry(it, struct mark, link));
    for (size_t at = 0; map_next(&d->current, &at, &v);)
        free(v);
    map_done(&d->marks);
    map_done(&d->current);
}

static struct mark *mark(struct discord *d, uint64_t id)
{
    struct mark *m = map_get(&d->marks, id_key(&id));

    if (m != NULL) {
        list_move(&m->link, &d->marks_by_age);
        return m;
    }
    if (map_count(&d->marks) >= MAX_MARKS)
        mark_free(d, list_first(&d->marks_by_age, struct mark, link));
    m = xcalloc(1, sizeof *m);
    m->id = id;
    list_init(&m->link);
    list_append(&d->marks_by_age, &m->link);
    map_put(&d->marks, id_key(&m->id), m);
    return m;
}

/* A person, a role or a channel: in the name of a thread it would be a number. */
static bool is_mention(struct str word)
{
    return word.n > 2 && word.p[0] == '<' && (word.p[1] == '@' || word.p[1] == '#') &&
           str_find(word, '>') > 0;
}

/* The words of the message that fit, in one line; whom it mentions is no word. */
static char *name_of(struct str text)
{
    struct buf b = BUF_INIT;
    size_t chars = 0;

    for (size_t at = 0, n; at < text.n; at += n) {
        struct str rest = str_skip(text, at);
        n = rest.p[0] == ' ' || rest.p[0] == '\n' || rest.p[0] == '\t' ? 1 : 0;
        if (n > 0)
            continue;
        while (n < rest.n && rest.p[n] != ' ' && rest.p[n] != '\n' && rest.p[n] != '\t')
            n++;
        struct str word = str_make(rest.p, n);
        if (str_starts(word, STR("<@")) && str_ends(word, STR(">")))
            continue;
        if (is_mention(str_make(rest.p, n)))
            continue;
        chars += utf8_chars(word) + 1;
        if (chars > NAME_CHARS)
            break;
        if (b.n > 0)
            buf_add_c(&b, ' ');
        buf_add_str(&b, word);
    }
    char *name = xstrdup(b.n > 0 ? buf_z(&b) : NO_NAME);
    buf_done(&b);
    return name;
}

static bool may_have_threads(const struct dcache_channel *ch)
{
    return ch != NULL && (ch->type == CHANNEL_TEXT || ch->type == CHANNEL_ANNOUNCEMENT);
}

void discord_auto_note(struct discord *d, struct event *ev)
{
    if (!d->cfg->auto_thread || str_is_empty(ev->scope_id))
        return;
    uint64_t id = snowflake(ev->message_id), thread_id = snowflake(ev->thread_id);
    if (thread_id != 0) {
        mark(d, id)->thread_id = thread_id;
        ev->auto_thread_name = discord_name_opened_as(d, thread_id);
    } else if (may_have_threads(dcache_channel(d->cache, snowflake(ev->chat_id))) &&
               !str_starts(ev->text, STR("/"))) {
        struct mark *m = mark(d, id);
        free(m->name);
        m->name = name_of(ev->text);
        ev->prospective_thread_id = ev->message_id;
    }
}

void discord_auto_sent(struct discord *d, uint64_t message_id, uint64_t thread_id)
{
    if (d->cfg->auto_thread && message_id != 0)
        mark(d, message_id)->thread_id = thread_id;
}

static void set_current(struct discord *d, uint64_t channel_id, uint64_t thread_id, struct str user)
{
    struct current *c = map_get(&d->current, id_key(&channel_id));

    if (c == NULL) {
        c = xcalloc(1, sizeof *c);
        c->channel_id = channel_id;
        map_put(&d->current, id_key(&c->channel_id), c);
    }
    c->thread_id = thread_id;
    c->user_id = snowflake(user);
    c->at_ms = clock_now_ms(d->env->clock);
}

static uint64_t current_of(struct discord *d, uint64_t channel_id, struct str user,
                           int64_t patience_ms)
{
    const struct current *c = map_get(&d->current, id_key(&channel_id));
    uint64_t user_id = snowflake(user);

    return c != NULL && clock_now_ms(d->env->clock) - c->at_ms < patience_ms &&
                   (user_id == 0 || c->user_id == 0 || c->user_id == user_id)
               ? c->thread_id
               : 0;
}

uint64_t discord_auto_target(struct discord *d, const struct action *a)
{
    uint64_t chat = snowflake(a->chat_id);
    bool speaks = a->op == ACTION_SEND || a->op == ACTION_SEND_MEDIA || a->op == ACTION_PROMPT;
    uint64_t about = snowflake(speaks ? a->reply_to : a->message_id);

    if (!d->cfg->auto_thread || a->op == ACTION_THREAD_CREATE || a->op == ACTION_THREAD_RENAME)
        return 0;
    const struct mark *m = about != 0 ? map_get(&d->marks, id_key(&about)) : NULL;
    if (m != NULL && m->thread_id != 0) {
        const struct dcache_channel *ch = dcache_channel(d->cache, m->thread_id);
        return ch == NULL || ch->parent_id == chat ? m->thread_id : 0;
    }
    if (!speaks && a->op != ACTION_TYPING)
        return 0;
    if (!may_have_threads(dcache_channel(d->cache, chat)))
        return 0;
    if (about == 0)
        return current_of(d, chat, a->user_id, speaks ? CURRENT_MS : TYPING_MS);
    set_current(d, chat, about, a->user_id);
    return about;
}

struct str discord_home(struct platform *p, struct str chat, char room[32])
{
    struct discord *d = discord_of(p);
    uint64_t id = snowflake(chat);
    const struct dcache_channel *ch =
        d->cfg->auto_thread && id != 0 ? dcache_channel(d->cache, id) : NULL;

    if (ch == NULL || !discord_channel_is_thread(ch->type) || ch->parent_id == 0)
        return STR_NULL;
    snprintf(room, 32, "%" PRIu64, ch->parent_id);
    return str_of(room);
}

bool discord_auto_knows(const struct discord *d, uint64_t message_id)
{
    const struct mark *m = map_get(&d->marks, id_key(&message_id));

    return m != NULL && m->name != NULL;
}

void discord_auto_learn(struct discord *d, uint64_t message_id, struct str text)
{
    struct mark *m = mark(d, message_id);

    free(m->name);
    m->name = name_of(text);
}

const char *discord_auto_name(const struct discord *d, uint64_t message_id)
{
    const struct mark *m = map_get(&d->marks, id_key(&message_id));

    return m != NULL && m->name != NULL ? m->name : NO_NAME;
}
