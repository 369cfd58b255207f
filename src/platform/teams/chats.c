/* chats.c - the places that the bot may write to, and its cards that are not over, on disk.
 * (teams_priv.h has the calls.)
 *
 *      teams_chat   bot US chat -> kind, serviceUrl, tenant, team, account of the person, ...
 *      teams_card   bot US chat US id -> the text of a question, or the file that is offered
 *
 * Teams has no request that lists the chats of a bot, and a message needs the serviceUrl of its
 * chat.  So every place that the bot heard from is kept until the bot is removed from it.  A place
 * that is not known is tried at the address that serves all regions.
 *
 * A card cannot be read back either, and an edit replaces all of it.  So the text of a question is
 * kept until its buttons are removed.
 *
 * Bounds: the places and cards that were not used for longest are forgotten. */
#include <stdlib.h>
#include "base/mem.h"
#include "platform/teams/teams_priv.h"
#include "store/erasure.h"
#include "store/record.h"

enum { MAX_CHATS = 262144, MAX_CARDS = 65536, MAX_THREADS = 65536, MAX_STREAMS = 16384 };
#define SAVE_MS ((int64_t)24 * 3600 * 1000) /* a record of a chat in use is this old at most */

struct teams_chat_record {
    struct str bot, chat;
    enum teams_kind kind;
    struct str service_url, tenant, team, name, account, person, self;
    int64_t seen_ms;
};
#define CHAT(member, name, ...) RECORD_FIELD(struct teams_chat_record, member, name, __VA_ARGS__)
static const struct record_field chat_fields[] = {
    CHAT(bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    CHAT(chat, "chat", RECORD_KEY | RECORD_NEEDED, .max = TEAMS_CHAT_MAX),
    RECORD_FIELD_(struct teams_chat_record, kind, "kind", RECORD_U32, RECORD_NEEDED,
                  .words = teams_kinds),
    CHAT(service_url, "serviceUrl", RECORD_NEEDED, .max = TEAMS_URL_MAX),
    CHAT(tenant, "entraTenant", 0, .max = TEAMS_ID_MAX),
    CHAT(team, "team", 0, .max = TEAMS_CHAT_MAX),
    CHAT(name, "name", 0, .max = TEAMS_NAME_MAX),
    CHAT(account, "account", 0, .max = TEAMS_PERSON_MAX),
    CHAT(person, "person", 0, .max = TEAMS_PERSON_MAX),
    CHAT(self, "self", 0, .max = TEAMS_PERSON_MAX),
    CHAT(seen_ms, "seen", 0),
};
const struct record_form teams_chat_form =
    RECORD_FORM("teams_chat", struct teams_chat_record, chat_fields, .lossy = true);

struct kept_card {
    struct str bot, chat, id, text, file, name, thread;
};
#define CARD(member, name, ...) RECORD_FIELD(struct kept_card, member, name, __VA_ARGS__)
static const struct record_field card_fields[] = {
    CARD(bot, "bot", RECORD_KEY | RECORD_NEEDED, .max = 256),
    CARD(chat, "chat", RECORD_KEY | RECORD_NEEDED, .max = TEAMS_CHAT_MAX),
    CARD(id, "id", RECORD_KEY | RECORD_NEEDED, .max = 256),
    CARD(text, "text", 0, .max = 65536),
    CARD(file, "file", 0, .max = 64),
    CARD(name, "name", 0, .max = 256),
    CARD(thread, "thread", 0, .max = TEAMS_ID_MAX),
};
const struct record_form teams_card_form =
    RECORD_FORM("teams_card", struct kept_card, card_fields, .lossy = true);

/* ---- places ---- */

static void chat_free(struct lru *l, void *entry)
{
    struct teams_chat *c = entry;

    list_each (&c->cards, it, nxt)
        list_remove(it);
    free(c->service_url);
    free(c->tenant);
    free(c->team);
    free(c->name);
    free(c->account);
    free(c->person);
    free(c->self);
}

static void card_delete(struct teams *t, struct teams_card *c)
{
    struct str rest = c->lru.key, chat = STR_NULL;

    str_split(&rest, ' ', &chat);
    struct kept_card r = {.bot = str_of(t->base.bot), .chat = chat, .id = rest};
    record_delete_like(t->base.env->store, &teams_card_form, &r);
    lru_drop(&t->cards, c);
}

/* The cards of a place go with it. */
static void chat_delete(struct teams *t, struct teams_chat *c)
{
    struct teams_chat_record r = {.bot = str_of(t->base.bot), .chat = c->lru.key};

    while (!list_is_empty(&c->cards))
        card_delete(t, list_first(&c->cards, struct teams_card, of_chat));
    record_delete_like(t->base.env->store, &teams_chat_form, &r);
    lru_drop(&t->chats, c);
}

/* Copies @is to *@to unless it is absent.  True: that changed it. */
static bool set(char **to, struct str is)
{
    if (is.n == 0 || (*to != NULL && str_eq(str_of(*to), is)))
        return false;
    free(*to);
    *to = str_dup(is);
    return true;
}

static void chat_save(struct teams *t, struct teams_chat *c)
{
    struct teams_chat_record r = {.bot = str_of(t->base.bot),
                                  .chat = c->lru.key,
                                  .kind = c->kind,
                                  .service_url = str_of(c->service_url),
                                  .tenant = str_of(c->tenant),
                                  .team = str_of(c->team),
                                  .name = str_of(c->name),
                                  .account = str_of(c->account),
                                  .person = str_of(c->person),
                                  .self = str_of(c->self),
                                  .seen_ms = clock_wall_ms(t->base.env->clock)};

    record_put(t->base.env->store, &teams_chat_form, NULL, &r, false, NULL, NULL);
    c->saved_ms = r.seen_ms;
}

static struct teams_chat *chat_get(struct teams *t, struct str chat)
{
    if (lru_is_full(&t->chats) && lru_find(&t->chats, chat) == NULL)
        chat_delete(t, lru_oldest(&t->chats));
    struct teams_chat *c = lru_use(&t->chats, chat, sizeof *c);
    if (c->cards.next == NULL)
        list_init(&c->cards);
    return c;
}

void teams_chat_heard(struct teams *t, const struct teams_place *at, struct str person)
{
    struct teams_chat *c = chat_get(t, at->chat);
    bool personal = at->kind == TEAMS_PERSONAL;
    bool changed = c->saved_ms == 0 || c->kind != at->kind ||
                   clock_wall_ms(t->base.env->clock) - c->saved_ms >= SAVE_MS;

    c->kind = at->kind;
    changed |= set(&c->service_url, at->service_url);
    changed |= set(&c->tenant, at->tenant);
    changed |= set(&c->team, at->team);
    changed |= set(&c->name, at->name);
    changed |= set(&c->self, at->self);
    changed |= personal && set(&c->account, at->account);
    changed |= personal && set(&c->person, person);
    if (changed)
        chat_save(t, c);
}

void teams_chat_removed(struct teams *t, struct str chat)
{
    struct teams_chat *c = lru_find(&t->chats, chat);

    if (c == NULL)
        return;
    log_info(&t->base.log, "removed: kind=%s", teams_kinds[c->kind]);
    chat_delete(t, c);
}

struct teams_chat *teams_chat_find(struct teams *t, struct str chat)
{
    return lru_find(&t->chats, chat);
}

/* ---- threads that the bot takes part in; in memory ---- */

static void pair(struct buf *out, struct str a, struct str b)
{
    buf_printf(out, "%.*s %.*s", STR_FMT(a), STR_FMT(b));
}

bool teams_thread_is_joined(struct teams *t, struct str chat, struct str thread)
{
    BUF_LOCAL key = BUF_INIT;

    pair(&key, chat, thread);
    return lru_find(&t->threads, buf_str(&key)) != NULL;
}

void teams_thread_join(struct teams *t, struct str chat, struct str thread)
{
    BUF_LOCAL key = BUF_INIT;

    pair(&key, chat, thread);
    lru_use(&t->threads, buf_str(&key), sizeof(struct lru_entry));
}

/* ---- cards ---- */

static void card_free(struct lru *l, void *entry)
{
    struct teams_card *c = entry;

    list_remove(&c->of_chat);
    free(c->text);
    free(c->file);
    free(c->name);
    free(c->thread);
}

static struct teams_card *card_set(struct teams *t, struct str chat, struct str id,
                                   const struct teams_card_as *as)
{
    BUF_LOCAL key = BUF_INIT;

    pair(&key, chat, id);
    if (lru_is_full(&t->cards) && lru_find(&t->cards, buf_str(&key)) == NULL)
        card_delete(t, lru_oldest(&t->cards));
    struct teams_card *c = lru_use(&t->cards, buf_str(&key), sizeof *c);
    struct teams_chat *at = lru_find(&t->chats, chat);
    if (at != NULL && !list_is_linked(&c->of_chat))
        list_append(&at->cards, &c->of_chat);
    set(&c->text, as->text);
    set(&c->file, as->file);
    set(&c->name, as->name);
    set(&c->thread, as->thread);
    return c;
}

void teams_card_keep(struct teams *t, struct str chat, struct str id,
                     const struct teams_card_as *as)
{
    struct kept_card r = {.bot = str_of(t->base.bot),
                          .chat = chat,
                          .id = id,
                          .text = as->text,
                          .file = as->file,
                          .name = as->name,
                          .thread = as->thread};

    card_set(t, chat, id, as);
    record_put(t->base.env->store, &teams_card_form, NULL, &r, false, NULL, NULL);
}

struct teams_card *teams_card_find(struct teams *t, struct str chat, struct str id)
{
    BUF_LOCAL key = BUF_INIT;

    pair(&key, chat, id);
    return lru_find(&t->cards, buf_str(&key));
}

void teams_card_over(struct teams *t, struct str chat, struct str id)
{
    struct teams_card *c = teams_card_find(t, chat, id);

    if (c != NULL)
        card_delete(t, c);
}

/* ---- life ---- */

static bool on_chat(void *ctx, struct str key, void *thing)
{
    struct teams *t = ctx;
    const struct teams_chat_record *r = thing;
    struct str chat, thread;

    if (!teams_split_chat(r->chat, &chat, &thread) || thread.n > 0)
        return false;
    struct teams_chat *c = chat_get(t, r->chat);
    c->kind = r->kind;
    set(&c->service_url, r->service_url);
    set(&c->tenant, r->tenant);
    set(&c->team, r->team);
    set(&c->name, r->name);
    set(&c->account, r->account);
    set(&c->person, r->person);
    set(&c->self, r->self);
    c->saved_ms = r->seen_ms != 0 ? r->seen_ms : 1;
    return true;
}

static bool on_card(void *ctx, struct str key, void *thing)
{
    const struct kept_card *r = thing;

    card_set(ctx, r->chat, r->id,
             &(struct teams_card_as){
                 .text = r->text, .file = r->file, .name = r->name, .thread = r->thread});
    return true;
}

static int by_saved(const void *a, const void *b)
{
    const struct teams_chat *x = *(struct teams_chat *const *)a,
                            *y = *(struct teams_chat *const *)b;

    return (x->saved_ms > y->saved_ms) - (x->saved_ms < y->saved_ms);
}

enum bh_err teams_chats_load(struct teams *t, char *ret_why)
{
    struct teams_chat_record chat = {.bot = str_of(t->base.bot)};
    struct kept_card card = {.bot = str_of(t->base.bot)};
    struct store *store = t->base.env->store;

    t->chats.max = MAX_CHATS;
    t->chats.free = chat_free;
    t->cards.max = MAX_CARDS;
    t->cards.free = card_free;
    t->threads.max = MAX_THREADS;
    t->streams.max = MAX_STREAMS;
    enum bh_err err = record_load_like(store, &teams_chat_form, &chat, 1, on_chat, t, ret_why);
    if (err == BH_OK)
        err = record_load_like(store, &teams_card_form, &card, 1, on_card, t, ret_why);
    lru_sort(&t->chats, by_saved); /* records come in the order of their keys */
    return err;
}

void teams_chats_free(struct teams *t)
{
    lru_done(&t->chats);
    lru_done(&t->cards);
    lru_done(&t->threads);
    lru_done(&t->streams);
}

/* ---- erasing ---- */

void teams_forget(struct platform *p, struct str person)
{
    struct teams *t = teams_of(p);

    if (lru_oldest(&t->chats) == NULL)
        return;
    list_each (&t->chats.by_age, it, nxt) {
        struct teams_chat *c = (struct teams_chat *)list_entry(it, struct lru_entry, age);
        if (str_eq(str_of(c->person), person))
            chat_delete(t, c);
    }
}

void teams_forget_chat(struct platform *p, struct str chat)
{
    struct teams *t = teams_of(p);
    struct teams_chat *c = lru_find(&t->chats, chat);

    if (c != NULL)
        chat_delete(t, c);
}

static bool is_chat_of_person(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    const struct erase_subject *s = erasure_subject(e);
    bool is = str_eq(s->platform, STR("teams")) && str_eq(json_str(doc, "person"), s->user);
    struct str bot = erase_part(&key);

    if (is)
        erasure_chat(e, bot, erase_part(&key), true);
    return is;
}

static bool is_of_own_chat(void *ctx, struct erasure *e, struct str key, struct json doc)
{
    struct str bot = erase_part(&key);

    return erasure_owns_chat(e, bot, erase_part(&key));
}

static const struct erase_records of_tenant[] = {{"teams_chat", "people", is_of_own_chat},
                                                 {"teams_card", "questions", is_of_own_chat},
                                                 {0}};
static const struct erase_records of_person[] = {{"teams_chat", "people", is_chat_of_person},
                                                 {"teams_card", "questions", is_of_own_chat},
                                                 {0}};

const struct eraser teams_eraser = {.of_tenant = of_tenant, .of_person = of_person};
