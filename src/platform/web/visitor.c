/* visitor.c - design.  (visitor.h and web_priv.h have the contracts.)
 *
 * A chat id is 24 hex digits of SipHash-128(key, token), then 8 hex digits of SipHash-64(key, those
 * 24).  SipHash with a secret key is a pseudo-random function, which is enough here.  It costs a
 * twentieth of an HMAC, and runs for every posted message. */
#include "platform/web/visitor.h"
#include <assert.h>
#include <stdlib.h>
#include "base/mem.h"
#include "base/rand.h"
#include "platform/web/web_priv.h"
#include "store/store.h"

#define DAY_MS INT64_C(86400000)
#define AGE_AT_ONCE 256

/* ---- tokens and chat ids ---- */

#define ID_CHARS 24
#define CHECK_CHARS 8
static_assert(ID_CHARS + CHECK_CHARS == VISITOR_CHAT_CHARS, "a chat id is an id and its check");

static void hex_put(char *p, uint64_t v, size_t digits)
{
    char all[HEX_U64_CHARS];

    hex_u64(v, all);
    memcpy(p, all + sizeof all - digits, digits);
}

void visitor_mint(struct rand *r, char ret_token[VISITOR_TOKEN_CHARS + 1])
{
    uint64_t bits[2];

    rand_bytes(r, bits, sizeof bits);
    hex_put(ret_token, bits[0], 16);
    hex_put(ret_token + 16, bits[1], 16);
    ret_token[VISITOR_TOKEN_CHARS] = '\0';
}

bool visitor_token_is_ok(struct str token)
{
    return token.n >= 16 && token.n <= 64 && str_has_only(token, "-_");
}

static void put_check(const struct hash_key *key, char *chat_id)
{
    hex_put(chat_id + ID_CHARS, hash64(key, str_make(chat_id, ID_CHARS)), CHECK_CHARS);
}

void visitor_chat_id(const struct hash_key *key, struct str token,
                     char ret_chat_id[VISITOR_CHAT_CHARS + 1])
{
    struct hash128 h = hash128(key, token);

    hex_put(ret_chat_id, h.lo, 16);
    hex_put(ret_chat_id + 16, h.hi, ID_CHARS - 16);
    put_check(key, ret_chat_id);
    ret_chat_id[VISITOR_CHAT_CHARS] = '\0';
}

bool visitor_chat_is_ours(const struct hash_key *key, struct str chat_id)
{
    char copy[VISITOR_CHAT_CHARS];

    if (chat_id.n != VISITOR_CHAT_CHARS)
        return false;
    memcpy(copy, chat_id.p, sizeof copy);
    put_check(key, copy);
    return memcmp(copy, chat_id.p, sizeof copy) == 0;
}

/* ---- names of visitors ----
 *
 * Names are in memory and in the store (web_name_form); a bot without history or route stores none.
 * A record has the day on which the visitor wrote last, and is written again when that day changes.
 * A name expires with the retention, rounded up to days.  Above WEB_MAX_NAMES, the name of the
 * visitor who has been silent for longest is deleted. */

struct web_name {
    struct lru_entry lru; /* the chat */
    int64_t day;
    char *text; /* owned */
};

static int64_t today(const struct web *w)
{
    return clock_wall_ms(w->base.env->clock) / DAY_MS;
}

struct str web_name_given(const struct web *w, struct str chat_id)
{
    const struct web_name *n = lru_find(&w->names, chat_id);

    return n != NULL ? str_of(n->text) : STR_NULL;
}

struct str web_name_of(const struct web *w, struct str chat_id, char ret_made[16])
{
    struct str given = web_name_given(w, chat_id);

    if (given.p != NULL)
        return given;
    memcpy(ret_made, "Visitor ", 8);
    memcpy(ret_made + 8, chat_id.p, 4);
    return str_make(ret_made, 12);
}

void web_name_drop(struct web *w, struct str chat_id)
{
    struct web_name *n = lru_find(&w->names, chat_id);

    if (n != NULL)
        lru_drop(&w->names, n);
}

static void name_free(struct lru *l, void *entry)
{
    free(((struct web_name *)entry)->text);
}

static struct web_name *remember_name(struct web *w, struct str chat_id, struct str name,
                                      int64_t day)
{
    struct web_name *n = lru_use(&w->names, chat_id, sizeof *n);

    free(n->text);
    n->text = str_dup(name);
    n->day = day;
    return n;
}

struct name_record {
    struct str bot, chat;
    int64_t day;
    struct str text;
};
static const struct record_field name_fields[] = {
    RECORD_FIELD(struct name_record, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct name_record, chat, "chat", RECORD_KEY | RECORD_NEEDED,
                 .max = VISITOR_CHAT_CHARS),
    RECORD_FIELD(struct name_record, day, "day", 0),
    RECORD_FIELD(struct name_record, text, "name", RECORD_NEEDED),
};
const struct record_form web_name_form =
    RECORD_FORM("web_name", struct name_record, name_fields, .lossy = true);

static void store_name(struct web *w, const struct web_name *n)
{
    struct name_record r = {web_bot(w), n->lru.key, n->day, str_of(n->text)};

    if (w->history > 0 && web_is_routed(w))
        record_put(w->base.env->store, &web_name_form, NULL, &r, false, NULL, NULL);
}

/* Deletes a name from the store and from memory, if it exists. */
static void forget_name(struct web *w, struct str chat_id)
{
    struct name_record r = {.bot = web_bot(w), .chat = chat_id};

    if (w->history > 0)
        record_delete_like(w->base.env->store, &web_name_form, &r);
    web_name_drop(w, chat_id);
}

void web_name_set(struct web *w, struct str chat_id, struct str name)
{
    if (str_is_empty(name)) {
        forget_name(w, chat_id);
        return;
    }
    store_name(w, remember_name(w, chat_id, name, today(w)));
    if (lru_is_full(&w->names)) /* anybody can add names, so their number is bounded */
        forget_name(w, ((struct web_name *)lru_oldest(&w->names))->lru.key);
}

void web_name_heard(struct web *w, struct str chat_id)
{
    struct web_name *n = lru_find(&w->names, chat_id);

    if (n == NULL || n->day == today(w))
        return;
    n = lru_use(&w->names, chat_id, sizeof *n);
    n->day = today(w);
    store_name(w, n);
}

void web_names_age(struct web *w)
{
    int64_t keep_days = (w->base.env->retention_ms + DAY_MS - 1) / DAY_MS;
    struct web_name *n;

    for (int i = 0; w->base.env->retention_ms > 0 && i < AGE_AT_ONCE; i++) {
        n = lru_oldest(&w->names);
        if (n == NULL || today(w) - n->day <= keep_days)
            return;
        forget_name(w, n->lru.key);
    }
}

static bool on_name(void *ctx, struct str key, void *thing)
{
    const struct name_record *r = thing;

    if (r->chat.n != VISITOR_CHAT_CHARS)
        return false;
    remember_name(ctx, r->chat, r->text, r->day);
    return true;
}

static int by_day(const void *a, const void *b)
{
    int64_t x = (*(struct web_name *const *)a)->day, y = (*(struct web_name *const *)b)->day;

    return x < y ? -1 : x > y;
}

enum bh_err web_names_open(struct web *w, char *ret_why)
{
    struct name_record own = {.bot = web_bot(w)};

    w->names.max = WEB_MAX_NAMES + 1; /* web_name_set() keeps one free */
    w->names.free = name_free;
    if (w->history == 0)
        return BH_OK;
    enum bh_err err =
        record_load_like(w->base.env->store, &web_name_form, &own, 1, on_name, w, ret_why);
    lru_sort(&w->names, by_day); /* the store returns names in the order of keys */
    web_names_age(w);
    return err;
}
