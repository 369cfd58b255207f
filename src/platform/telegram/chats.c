/* chats.c - what is known of single chats.
 *
 * An entry exists only while there is something to remember: where the chat moved (kept on disk),
 * how long it is limited, when we last typed in it.  Entries with nothing left to say are swept
 * when there are many. */
#include <stdlib.h>
#include "base/mem.h"
#include "platform/telegram/telegram_priv.h"
#include "store/store.h"

#define MAX_CHATS 10000
#define TYPED_MS 4000 /* the sign lasts five seconds */
#define MAX_MOVES 4

struct tg_chat {
    char id[TG_CHAT_CHARS];
    char moved_to[TG_CHAT_CHARS], moved_from[TG_CHAT_CHARS]; /* empty: it did not */
    int64_t limited_until_ms, typed_ms;                      /* monotonic; 0: never */
};

static bool is_idle(const struct telegram *t, const struct tg_chat *c)
{
    int64_t now = clock_now_ms(t->env->clock);

    return c->moved_to[0] == '\0' && c->moved_from[0] == '\0' && c->limited_until_ms <= now &&
           c->typed_ms + TYPED_MS <= now;
}

static void sweep(struct telegram *t)
{
    void *value;

    for (size_t i = 0; map_next(&t->chats, &i, &value);) {
        struct tg_chat *c = value;
        if (is_idle(t, c)) {
            map_del(&t->chats, str_of(c->id));
            free(c);
        }
    }
}

static struct tg_chat *find(struct telegram *t, struct str id)
{
    return map_count(&t->chats) > 0 ? map_get(&t->chats, id) : NULL;
}

/* NULL: no such id can be, or there is no room. */
static struct tg_chat *entry(struct telegram *t, struct str id)
{
    struct tg_chat *c = find(t, id);

    if (c != NULL)
        return c;
    if (map_count(&t->chats) >= MAX_CHATS)
        sweep(t);
    if (id.n == 0 || id.n >= TG_CHAT_CHARS || map_count(&t->chats) >= MAX_CHATS)
        return NULL;
    c = xcalloc(1, sizeof *c);
    memcpy(c->id, id.p, id.n);
    map_put(&t->chats, str_of(c->id), c);
    return c;
}

void tg_chats_free(struct telegram *t)
{
    void *c;

    for (size_t i = 0; map_next(&t->chats, &i, &c);)
        free(c);
    map_done(&t->chats);
}

/* ---- moves ---- */

static bool remember_move(struct telegram *t, struct str from, struct str to)
{
    struct tg_chat *was = entry(t, from), *is = entry(t, to);

    if (was == NULL || is == NULL || was == is || str_eq(str_of(was->moved_to), to))
        return false;
    memcpy(was->moved_to, is->id, sizeof was->moved_to);
    memcpy(is->moved_from, was->id, sizeof is->moved_from);
    return true;
}

/* Keys are "<bot> <token id> moved <old>". */
void tg_chats_load(void *ctx, struct str key, struct str value)
{
    struct telegram *t = ctx;
    struct str bot, id, what;

    if (str_split(&key, '\x1f', &bot) && str_split(&key, '\x1f', &id) &&
        str_split(&key, '\x1f', &what) && str_eq(bot, str_of(t->base.bot)) &&
        str_eq(id, str_of(t->token_id)) && str_eq(what, STR("moved")))
        remember_move(t, key, value);
}

void tg_chat_moved(struct telegram *t, struct str from, struct str to)
{
    struct buf key = BUF_INIT;

    if (!remember_move(t, from, to))
        return;
    log_info(&t->log, "a group became a supergroup: from=%.*s to=%.*s", STR_FMT(from), STR_FMT(to));
    buf_printf(&key, "%s\x1f%s\x1fmoved\x1f%.*s", t->base.bot, t->token_id, STR_FMT(from));
    struct store_kv item = {.verb = KV_PUT, .ns = "telegram", .key = buf_str(&key), .value = to};
    store_put(t->env->store, &item, 1, false, NULL, NULL);
    buf_done(&key);
}

struct str tg_chat_now(struct telegram *t, struct str id)
{
    for (unsigned i = 0; i < MAX_MOVES; i++) {
        struct tg_chat *c = find(t, id);
        if (c == NULL || c->moved_to[0] == '\0')
            break;
        id = str_of(c->moved_to);
    }
    return id;
}

struct str tg_chat_before(struct telegram *t, struct str id)
{
    struct tg_chat *c = find(t, id);

    return c != NULL && c->moved_from[0] != '\0' ? str_of(c->moved_from) : STR_NULL;
}

/* ---- limits and typing ---- */

void tg_chat_limit(struct telegram *t, struct str id, int64_t for_ms)
{
    struct tg_chat *c = entry(t, id);
    int64_t until = clock_now_ms(t->env->clock) + for_ms;

    if (c != NULL && c->limited_until_ms < until)
        c->limited_until_ms = until;
}

int64_t tg_chat_wait_ms(struct telegram *t, struct str id)
{
    struct tg_chat *c = find(t, id);
    int64_t left = c != NULL ? c->limited_until_ms - clock_now_ms(t->env->clock) : 0;

    return left > 0 ? left : 0;
}

bool tg_chat_typed(struct telegram *t, struct str id)
{
    struct tg_chat *c = entry(t, id);
    int64_t now = clock_now_ms(t->env->clock);

    if (c == NULL)
        return false;
    if (c->typed_ms != 0 && now < c->typed_ms + TYPED_MS)
        return true;
    c->typed_ms = now;
    return false;
}

/* Telegram does not say whether a limit is one chat's or the whole bot's.  Several chats limited at
 * once mean the bot's: then nothing is sent before the shortest of them has passed. */
int64_t tg_limit_of_all(struct telegram *t)
{
    int64_t now = clock_now_ms(t->env->clock), shortest = 0;
    size_t limited = 0;
    void *value;

    for (size_t i = 0; map_next(&t->chats, &i, &value);) {
        const struct tg_chat *c = value;
        int64_t left = c->limited_until_ms - now;
        if (left <= 0)
            continue;
        limited++;
        if (shortest == 0 || left < shortest)
            shortest = left;
    }
    return limited >= 3 ? shortest : 0;
}
