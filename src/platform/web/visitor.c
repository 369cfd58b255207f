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

static void hex_put(char *p, uint64_t v, int digits)
{
    for (int i = digits - 1; i >= 0; i--, v >>= 4)
        p[i] = "0123456789abcdef"[v & 15];
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
    struct list age; /* web->names_by_age: longest silent first */
    int64_t day;
    char chat_id[VISITOR_CHAT_CHARS + 1];
    char text[];
};

static int64_t today(const struct web *w)
{
    return clock_wall_ms(w->env->clock) / DAY_MS;
}

static struct web_name *name_find(const struct web *w, struct str chat_id)
{
    return map_count(&w->names) != 0 ? map_get(&w->names, chat_id) : NULL;
}

struct str web_name_given(const struct web *w, struct str chat_id)
{
    const struct web_name *n = name_find(w, chat_id);

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
    struct web_name *n = name_find(w, chat_id);

    if (n == NULL)
        return;
    map_del(&w->names, chat_id);
    list_remove(&n->age);
    free(n);
}

static struct web_name *remember_name(struct web *w, struct str chat_id, struct str name,
                                      int64_t day)
{
    struct web_name *n = xmalloc(sizeof *n + name.n + 1);

    *n = (struct web_name){.day = day};
    memcpy(n->chat_id, chat_id.p, VISITOR_CHAT_CHARS);
    n->chat_id[VISITOR_CHAT_CHARS] = '\0';
    memcpy(n->text, name.p, name.n);
    n->text[name.n] = '\0';
    web_name_drop(w, chat_id); /* first: the map borrows its key from the value */
    map_put(&w->names, str_of(n->chat_id), n);
    list_append(&w->names_by_age, &n->age);
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
    struct name_record r = {web_bot(w), str_of(n->chat_id), n->day, str_of(n->text)};

    if (w->history > 0 && web_is_routed(w))
        record_put(w->env->store, &web_name_form, NULL, &r, false, NULL, NULL);
}

/* Deletes a name from the store and from memory, if it exists. */
static void forget_name(struct web *w, struct str chat_id)
{
    struct name_record r = {.bot = web_bot(w), .chat = chat_id};

    if (w->history > 0)
        record_delete_like(w->env->store, &web_name_form, &r);
    web_name_drop(w, chat_id);
}

static struct web_name *oldest(struct web *w)
{
    return list_is_empty(&w->names_by_age) ? NULL
                                           : list_first(&w->names_by_age, struct web_name, age);
}

void web_name_set(struct web *w, struct str chat_id, struct str name)
{
    if (str_is_empty(name)) {
        forget_name(w, chat_id);
        return;
    }
    store_name(w, remember_name(w, chat_id, name, today(w)));
    if (map_count(&w->names) >
        WEB_MAX_NAMES) /* anybody can add names, so their number is bounded */
        forget_name(w, str_of(oldest(w)->chat_id));
}

void web_name_heard(struct web *w, struct str chat_id)
{
    struct web_name *n = name_find(w, chat_id);

    if (n == NULL || n->day == today(w))
        return;
    n->day = today(w);
    list_move(&n->age, &w->names_by_age);
    store_name(w, n);
}

void web_names_age(struct web *w)
{
    int64_t keep_days = (w->env->retention_ms + DAY_MS - 1) / DAY_MS;
    struct web_name *n;

    for (int i = 0; w->env->retention_ms > 0 && i < AGE_AT_ONCE; i++) {
        n = oldest(w);
        if (n == NULL || today(w) - n->day <= keep_days)
            return;
        forget_name(w, str_of(n->chat_id));
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

    if (w->history == 0)
        return BH_OK;
    enum bh_err err = record_load_like(w->env->store, &web_name_form, &own, 1, on_name, w, ret_why);
    /* Sorts names_by_age after loading, because the store returns names in the order of keys. */
    struct web_name **all = xcalloc(map_count(&w->names) + 1, sizeof *all);
    void *name;
    size_t n = 0;
    for (size_t i = 0; map_next(&w->names, &i, &name);)
        all[n++] = name;
    qsort(all, n, sizeof *all, by_day);
    for (size_t i = 0; i < n; i++)
        list_move(&all[i]->age, &w->names_by_age);
    free(all);
    web_names_age(w);
    return err;
}

void web_names_close(struct web *w)
{
    map_done_all(&w->names);
}
