/* threads.c - the names that bellhop gave to threads, answers that open threads
 * (`auto_thread: true`), and the actions on channels and threads.  (discord_priv.h has the calls.)
 *
 * With auto_thread the answer to a message of a channel goes into a thread under that message.
 * Such a thread has the message's own id.  So the event can name the thread before it exists, and
 * opening the thread is idempotent.  Events from threads have the channel as their chat, and an
 * action that names only a message (react, edit) goes to the thread of that message:
 *
 *      marks    message -> struct thread_mark  a message of a channel: the name its thread will
 *                                              have; a message in a thread: which thread;
 *                                              a command: where it was given
 *      current  channel and instance           the thread of the last answer, for a later action
 *                                              that names no message
 *
 * The newest MAX_MARKS marks are kept in memory.  After a restart outbound.c asks Discord: it reads
 * the message that a new thread is named after, and tries an edit in one older thread after the
 * other.  A command given in a channel is known by its deduplication key (command_mark()). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "platform/discord/discord_priv.h"
#include "platform/discord/interactions.h"
#include "store/store.h"

enum {
    MAX_NAMES = 4096,
    MAX_MARKS = 8192,
    CURRENT_MS = 900000,
    MAX_CURRENT = 16384,
    TYPING_MS = 30000,
    TYPING_SHOWS_MS = 8000,
    NAME_CHARS = 50,
    UNKNOWN_EMOJI = 10014, /* Discord's error code */
};
#define NO_NAME "A conversation"

/* ---- names that bellhop gave, so that a rename does not overwrite a person's name ---- */

struct thread_name {
    struct list link; /* d->thread_names_by_age, oldest first */
    struct str bot;   /* of the key of its record; borrowed */
    uint64_t id;
    char *name;  /* owned */
    bool opened; /* by an answer; @name is the name it was opened with */
};

static const struct record_field thread_fields[] = {
    RECORD_FIELD(struct thread_name, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct thread_name, id, "id", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct thread_name, name, "name", 0),
    RECORD_FIELD(struct thread_name, opened, "opened", 0),
};
const struct record_form discord_thread_form =
    RECORD_FORM("discord_thread", struct thread_name, thread_fields, .lossy = true);

static void name_free(struct discord *d, struct thread_name *t)
{
    map_del(&d->thread_names, id_key(&t->id));
    list_remove(&t->link);
    free(t->name);
    free(t);
}

static struct thread_name *remember_name(struct discord *d, uint64_t id, struct str name,
                                         bool opened)
{
    struct thread_name *t = map_get(&d->thread_names, id_key(&id));

    if (t != NULL)
        name_free(d, t);
    t = xcalloc(1, sizeof *t);
    t->bot = str_of(d->base.bot);
    t->id = id;
    t->opened = opened;
    t->name = str_dup(name);
    list_append(&d->thread_names_by_age, &t->link);
    map_put(&d->thread_names, id_key(&t->id), t);
    return t;
}

void discord_name_given(struct discord *d, uint64_t thread_id, const char *name, bool opened)
{
    const struct thread_name *was = map_get(&d->thread_names, id_key(&thread_id));

    if (was != NULL && was->opened && !opened)
        return;
    record_put(d->base.env->store, &discord_thread_form, NULL,
               remember_name(d, thread_id, str_of(name), opened), false, NULL, NULL);
    if (map_count(&d->thread_names) <= MAX_NAMES)
        return;
    struct thread_name *oldest = list_first(&d->thread_names_by_age, struct thread_name, link);
    record_delete_like(d->base.env->store, &discord_thread_form, oldest);
    name_free(d, oldest);
}

struct str discord_name_opened_as(const struct discord *d, uint64_t thread_id)
{
    const struct thread_name *t = map_get(&d->thread_names, id_key(&thread_id));

    return t != NULL && t->opened ? str_of(t->name) : STR_NULL;
}

uint64_t discord_opened_before(const struct discord *d, uint64_t channel_id, uint64_t id)
{
    const struct list *all = &d->thread_names_by_age;
    uint64_t found = 0;

    for (const struct list *it = all->next; it != all; it = it->next) {
        const struct thread_name *t = list_entry(it, const struct thread_name, link);
        if (!t->opened || t->id >= id || t->id <= found)
            continue;
        const struct dcache_channel *ch = dcache_channel(d->cache, t->id);
        if (ch != NULL && ch->parent_id == channel_id)
            found = t->id;
    }
    return found;
}

static bool on_name(void *ctx, struct str key, void *thing)
{
    struct thread_name *r = thing;

    remember_name(ctx, r->id, str_of(r->name), r->opened);
    record_done(&discord_thread_form, r);
    return true;
}

/* ---- answers that open threads ---- */

struct thread_mark {
    struct lru_entry lru; /* the message */
    uint64_t thread_id;   /* 0: it is in a channel; of a command: where it was given */
    char *name;           /* owned; of the thread to open; NULL: no thread opens under it */
};

struct current {
    uint64_t thread_id, user_id;
    int64_t at_ms;
    size_t key_n;
    char key[]; /* current_key() */
};

static void mark_free(struct lru *l, void *entry)
{
    free(((struct thread_mark *)entry)->name);
}

enum bh_err discord_threads_open(struct discord *d, char *ret_why)
{
    struct thread_name own = {.bot = str_of(d->base.bot)};

    list_init(&d->thread_names_by_age);
    d->marks.max = MAX_MARKS;
    d->marks.free = mark_free;
    return record_load_like(d->base.env->store, &discord_thread_form, &own, 1, on_name, d, ret_why);
}

void discord_threads_close(struct discord *d)
{
    if (d->thread_names_by_age.next == NULL)
        return; /* not opened */
    list_each (&d->thread_names_by_age, it, nxt)
        name_free(d, list_entry(it, struct thread_name, link));
    map_done(&d->thread_names);
    lru_done(&d->marks);
    map_done_all(&d->current);
}

static struct thread_mark *mark(struct discord *d, uint64_t id)
{
    return lru_use(&d->marks, id_key(&id), sizeof(struct thread_mark));
}

/* The first words of the message that fit into a name, without mentions. */
static char *name_of(struct str text)
{
    BUF_LOCAL b = BUF_INIT;
    size_t chars = 0;

    for (size_t at = 0, n; at < text.n; at += n) {
        struct str rest = str_skip(text, at);
        n = rest.p[0] == ' ' || rest.p[0] == '\n' || rest.p[0] == '\t' ? 1 : 0;
        if (n > 0)
            continue;
        while (n < rest.n && rest.p[n] != ' ' && rest.p[n] != '\n' && rest.p[n] != '\t')
            n++;
        struct str word = str_make(rest.p, n);
        /* A mention of a person, a role or a channel would show as a number in a thread's name. */
        if (word.n > 2 && word.p[0] == '<' && (word.p[1] == '@' || word.p[1] == '#') &&
            str_find(word, '>') > 0)
            continue;
        chars += utf8_chars(word) + 1;
        if (chars > NAME_CHARS)
            break;
        if (b.n > 0)
            buf_add_c(&b, ' ');
        buf_add_str(&b, word);
    }
    return xstrdup(b.n > 0 ? buf_z(&b) : NO_NAME);
}

static bool may_have_threads(const struct dcache_channel *ch)
{
    return ch != NULL && (ch->type == CHANNEL_TEXT || ch->type == CHANNEL_ANNOUNCEMENT);
}

void discord_auto_note(struct discord *d, struct event *ev)
{
    if (str_is_empty(ev->scope_id))
        return;
    uint64_t id = snowflake(ev->message_id), thread_id = snowflake(ev->thread_id);
    if (thread_id != 0) {
        mark(d, id)->thread_id = thread_id;
        ev->auto_thread_name = discord_name_opened_as(d, thread_id);
    } else if (may_have_threads(dcache_channel(d->cache, snowflake(ev->chat_id))) &&
               !str_starts(ev->text, STR("/"))) {
        struct thread_mark *m = mark(d, id);
        free(m->name);
        m->name = name_of(ev->text);
        ev->prospective_thread_id = ev->message_id;
    }
}

void discord_auto_at(struct discord *d, uint64_t message_id, uint64_t channel_id)
{
    if (message_id != 0)
        mark(d, message_id)->thread_id = channel_id;
}

/* One instance's own: what another one says never moves its answers. */
static void current_key(struct buf *out, uint64_t channel_id, const struct action_from *from)
{
    buf_printf(out, "%" PRIu64 "\x1f%.*s\x1f%.*s", channel_id, STR_FMT(from->tenant),
               STR_FMT(from->instance));
}

static uint64_t current_of(struct discord *d, struct str key, struct str user, int64_t patience_ms)
{
    const struct current *c = map_get(&d->current, key);
    uint64_t user_id = snowflake(user);

    return c != NULL && clock_now_ms(d->base.env->clock) - c->at_ms < patience_ms &&
                   (user_id == 0 || c->user_id == 0 || c->user_id == user_id)
               ? c->thread_id
               : 0;
}

static void current_set(struct discord *d, struct str key, uint64_t thread_id, struct str user)
{
    struct current *c = map_get(&d->current, key);

    if (c == NULL) {
        if (map_count(&d->current) >= MAX_CURRENT)
            map_done_all(&d->current);
        c = xcalloc(1, sizeof *c + key.n);
        c->key_n = key.n;
        memcpy(c->key, key.p, key.n);
        map_put(&d->current, str_make(c->key, c->key_n), c);
    }
    c->thread_id = thread_id;
    c->user_id = snowflake(user);
    c->at_ms = clock_now_ms(d->base.env->clock);
}

/* False: it is the id of a channel, or of a thread elsewhere, so no thread of this chat. */
static bool may_be_its_thread(const struct discord *d, uint64_t id, uint64_t chat)
{
    const struct dcache_channel *ch = dcache_channel(d->cache, id);

    return ch == NULL || (discord_channel_is_thread(ch->type) && ch->parent_id == chat);
}

/* The mark of a command that @from had from a channel before a restart; NULL: it had none.  One
 * given in a thread has another event id, and its answer has to name the thread. */
static const struct thread_mark *command_mark(struct discord *d, const struct action_from *from,
                                              uint64_t about, uint64_t chat)
{
    char id[24], event_id[32];

    snprintf(id, sizeof id, "%" PRIu64, about);
    discord_interaction_event_id(event_id, str_of(id), true);
    if (!host_had_event(d->base.host, &d->base, from, str_of(event_id)))
        return NULL;
    discord_auto_at(d, about, chat);
    return lru_find(&d->marks, id_key(&about));
}

bool discord_auto_is_at(const struct discord *d, uint64_t message_id, uint64_t channel_id)
{
    const struct thread_mark *m = lru_find(&d->marks, id_key(&message_id));

    return m != NULL && m->thread_id == channel_id;
}

uint64_t discord_auto_target(struct discord *d, const struct action_from *from,
                             const struct action *a)
{
    uint64_t chat = snowflake(a->chat_id);
    bool speaks = a->op == ACTION_SEND || a->op == ACTION_SEND_MEDIA || a->op == ACTION_PROMPT;
    uint64_t about = snowflake(speaks ? a->reply_to : a->message_id);

    if (a->op == ACTION_THREAD_CREATE || a->op == ACTION_THREAD_RENAME)
        return 0;
    const struct thread_mark *m = about != 0 ? lru_find(&d->marks, id_key(&about)) : NULL;
    if (m == NULL && about != 0)
        m = command_mark(d, from, about, chat);
    if (m != NULL && m->thread_id != 0)
        return may_be_its_thread(d, m->thread_id, chat) ? m->thread_id : 0;
    if (!speaks && a->op != ACTION_TYPING)
        return 0;
    if (!may_have_threads(dcache_channel(d->cache, chat)))
        return 0;
    BUF_LOCAL key = BUF_INIT;
    current_key(&key, chat, from);
    if (about == 0) {
        uint64_t now = current_of(d, buf_str(&key), a->user_id, speaks ? CURRENT_MS : TYPING_MS);
        return may_be_its_thread(d, now, chat) ? now : 0;
    }
    if (!may_be_its_thread(d, about, chat))
        return 0;
    current_set(d, buf_str(&key), about, a->user_id);
    return about;
}

bool discord_auto_knows(const struct discord *d, uint64_t message_id)
{
    const struct thread_mark *m = lru_find(&d->marks, id_key(&message_id));

    return m != NULL && m->name != NULL;
}

void discord_auto_learn(struct discord *d, uint64_t message_id, struct str text)
{
    struct thread_mark *m = mark(d, message_id);

    free(m->name);
    m->name = name_of(text);
}

const char *discord_auto_name(const struct discord *d, uint64_t message_id)
{
    const struct thread_mark *m = lru_find(&d->marks, id_key(&message_id));

    return m != NULL && m->name != NULL ? m->name : NO_NAME;
}

/* ---- actions on a channel or a thread ----
 *
 * All of these are idempotent except a thread without a message.  A message has one thread, whose
 * id is the message's. */

struct channel_action {           /* react, thread_create, thread_rename, typing, get_chat_info */
    struct discord_outgoing base; /* first */
    enum action_op op;
    uint64_t channel_id, message_id; /* message_id 0: none */
    char *word;                      /* owned; an emoji or a name; NULL: none */
    bool remove;
    bool forum; /* the thread is a post in a forum */
};

static struct channel_action *channel_action_of(struct discord_outgoing *x)
{
    return container_of(x, struct channel_action, base);
}

static bool channel_action_write(struct discord_outgoing *x, struct discord_request *r,
                                 struct sender_verdict *v)
{
    struct channel_action *e = channel_action_of(x);
    bool creates = e->op == ACTION_THREAD_CREATE;

    r->major = e->channel_id;
    r->route = e->op == ACTION_GET_CHAT_INFO ? "channel" : action_op_name(e->op);
    buf_printf(&r->path, "/channels/%" PRIu64, e->channel_id);
    if (e->op == ACTION_GET_CHAT_INFO) {
        r->method = "GET";
        return true;
    }
    if (e->op == ACTION_TYPING) {
        r->method = "POST";
        buf_add_z(&r->path, "/typing");
        return true;
    }
    if (e->op == ACTION_REACT) {
        r->method = e->remove ? "DELETE" : "PUT";
        buf_printf(&r->path, "/messages/%" PRIu64 "/reactions/", e->message_id);
        percent_encode(&r->path, str_of(e->word));
        buf_add_z(&r->path, "/@me");
        return true;
    }
    if (creates && e->message_id != 0)
        buf_printf(&r->path, "/messages/%" PRIu64, e->message_id);
    if (creates)
        buf_add_z(&r->path, "/threads");
    r->method = creates ? "POST" : "PATCH";
    r->once = creates && e->message_id == 0;
    struct jw w = jw_begin(&r->body);
    jw_obj(&w);
    jw_kstr(&w, "name", str_of(e->word));
    if (creates)
        jw_ki64(&w, "auto_archive_duration", DISCORD_ARCHIVE_MINUTES);
    if (creates && e->message_id == 0 && !e->forum)
        jw_ki64(&w, "type", CHANNEL_PUBLIC_THREAD);
    if (e->forum) { /* a post begins with a message */
        jw_kobj(&w, "message");
        jw_kstr(&w, "content", str_of(e->word));
        jw_kraw(&w, "allowed_mentions", STR("{\"parse\":[]}"));
        jw_end_obj(&w);
    }
    jw_end_obj(&w);
    return true;
}

static const char *chat_type_of(int64_t type)
{
    if (discord_channel_is_thread((int)type))
        return "thread";
    return type == CHANNEL_DM || type == CHANNEL_GROUP_DM ? "dm" : "group";
}

static void read_info(struct json channel, struct sender_verdict *v)
{
    struct json person = {0};

    for (struct json_iter it = {0};
         person.doc == NULL && json_next(json_get(channel, "recipients"), &it);)
        person = it.value;
    v->chat_type = str_of(chat_type_of(json_i64(channel, "type", 0)));
    v->chat_name = json_str(channel, "name");
    if (str_is_empty(v->chat_name))
        v->chat_name = json_str(person, "global_name");
    if (str_is_empty(v->chat_name))
        v->chat_name = json_str(person, "username");
}

static void channel_action_read(struct discord_outgoing *x, struct sender_verdict *v)
{
    struct channel_action *e = channel_action_of(x);
    struct discord *d = x->d;
    bool done = v->end == SENDER_DONE;

    if (done && e->op == ACTION_TYPING) {
        size_t at = d->typing_at++ % ARRAY_LEN(d->typing);
        d->typing[at].channel_id = e->channel_id;
        d->typing[at].until_ms = clock_now_ms(d->base.env->clock) + TYPING_SHOWS_MS;
    }
    if (done && e->op == ACTION_GET_CHAT_INFO)
        read_info(v->answer, v);
    if (v->end == SENDER_REFUSED && e->op == ACTION_REACT && e->remove && v->code == UNKNOWN_EMOJI)
        v->end = SENDER_DONE; /* the reaction to remove is gone already */
    if (done && e->op == ACTION_THREAD_RENAME)
        discord_name_given(d, e->channel_id, e->word, false);
    if (e->op != ACTION_THREAD_CREATE)
        return;
    uint64_t id = done ? snowflake(json_str(v->answer, "id")) : 0;
    if (id != 0) { /* the gateway may speak there before Discord's own event arrives */
        dcache_put_channel(d->cache, v->answer, 0);
        discord_name_given(d, id, e->word, false);
    }
    if (v->end == SENDER_REFUSED && v->code == DISCORD_HAS_THREAD && e->message_id != 0) {
        v->end = SENDER_DONE;
        id = e->message_id;
    }
    if (id != 0)
        snprintf(v->thread_id, sizeof v->thread_id, "%" PRIu64, id);
}

static void channel_action_free(struct discord_outgoing *x)
{
    free(channel_action_of(x)->word);
    free(channel_action_of(x));
}

/* Why the action cannot be done, or NULL. */
static const char *why_not(struct discord *d, const struct channel_action *e,
                           const struct action *a)
{
    if (a->left != NULL || e->op == ACTION_TYPING || e->op == ACTION_GET_CHAT_INFO)
        return NULL; /* a resumed action was checked before the restart */
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
        return "message_id is no thread of this chat that the agent's people can see";
    if (a->only_if_current_name.p != NULL &&
        (ch->name == NULL || !str_eq(a->only_if_current_name, str_of(ch->name))))
        return "the thread has another name by now";
    const struct thread_name *given = map_get(&d->thread_names, id_key(&e->channel_id));
    bool ours = given != NULL && ch->name != NULL && strcmp(given->name, ch->name) == 0;
    return a->only_if_connector_created && !ours
               ? "the name of this thread is not the one bellhop gave it"
               : NULL;
}

/* Answers what needs no request.  Gateways repeat "typing" every two seconds, and Discord shows it
 * for ten. */
static bool answer_at_once(struct discord *d, const struct dcache_channel *ch, uint64_t channel_id,
                           const struct sender_order *q)
{
    const struct action *a = q->action;
    struct action_result r = {.success = true};
    bool answers = a->op == ACTION_TYPING && a->content_set && str_is_empty(a->content);

    for (size_t i = 0; a->op == ACTION_TYPING && i < ARRAY_LEN(d->typing); i++)
        answers |= d->typing[i].channel_id == channel_id &&
                   d->typing[i].until_ms > clock_now_ms(d->base.env->clock);
    if (a->op == ACTION_GET_CHAT_INFO && ch != NULL && ch->name != NULL) {
        r.chat_name = str_of(ch->name);
        r.chat_type = str_of(chat_type_of(ch->type));
        answers = true;
    }
    if (answers)
        host_result(d->base.host, q->id, &r);
    return answers;
}

void discord_start_channel_action(struct discord *d, uint64_t channel_id,
                                  const struct sender_order *q)
{
    static const struct discord_kind kind = {.write = channel_action_write,
                                             .read = channel_action_read,
                                             .free = channel_action_free};
    const struct dcache_channel *ch = dcache_channel(d->cache, channel_id);
    const struct action *a = q->action;
    struct sender_order order = *q;
    char lane[24] = "channels";

    if (answer_at_once(d, ch, channel_id, q))
        return;
    struct channel_action *e = xcalloc(1, sizeof *e);
    *e = (struct channel_action){.base = {.d = d, .kind = &kind, .out.n_parts = 1},
                                 .op = a->op,
                                 .channel_id = channel_id,
                                 .message_id = snowflake(a->message_id),
                                 .remove = a->remove};
    e->forum = a->op == ACTION_THREAD_CREATE && ch != NULL &&
               (ch->type == CHANNEL_FORUM || ch->type == CHANNEL_MEDIA);
    if (e->forum)
        e->message_id = 0;
    e->word = str_dup_opt(a->op == ACTION_REACT ? a->emoji : a->thread_name);
    order.wrong = why_not(d, e, a);
    order.apart = a->op != ACTION_GET_CHAT_INFO; /* lookups share one lane */
    if (order.apart)
        snprintf(lane, sizeof lane, "%" PRIu64, channel_id);
    order.lane = str_of(lane);
    order.twice = a->op == ACTION_THREAD_CREATE && e->message_id == 0 ? TWICE_IS_TWO : TWICE_IS_ONE;
    sender_act(d->base.sender, &e->base.out, &order);
}
