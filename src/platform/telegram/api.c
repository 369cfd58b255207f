/* api.c - sends requests to Telegram, reads the answers, and keeps the moves of chats and the names
 * of topics.  (telegram_priv.h has the contract.)
 *
 * Telegram answers {"ok": true, "result": ...} or {"ok": false, "error_code", "description",
 * "parameters"}.  A proxy may answer with HTML; then the HTTP status counts.  After a 504, or a 2xx
 * that is not JSON, Telegram may or may not have acted: TG_UNKNOWN.
 *
 * The token is part of every URL.  Error texts of curl or a proxy may quote a URL, so keep_words()
 * removes the token from every text that is kept.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "platform/telegram/telegram_priv.h"
#include "store/store.h"

#define MAX_ANSWER \
    ((size_t)16 << 20) /* 100 updates with all their entities   \
                                       */
#define MAX_CHATS 10000
#define TYPED_MS 4000 /* Telegram shows "typing" for five seconds */
#define MAX_MOVES 4

struct http_call *tg_call(struct telegram *t, const char *method, struct str body,
                          int64_t timeout_ms, http_done_cb *done, void *ctx)
{
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    BUF_SECRET url = BUF_INIT;

    buf_printf(&url, "%s%s", t->url, method);
    struct http_call *call = http_fetch(t->base.env->http,
                                        &(struct http_fetch){.method = "POST",
                                                             .url = buf_z(&url),
                                                             .headers = headers,
                                                             .body = body,
                                                             .timeout_ms = timeout_ms,
                                                             .max_body = MAX_ANSWER},
                                        done, ctx);
    return call;
}

/* Copies @s as one line without the token. */
static void keep_words(const struct telegram *t, struct str s, char ret[256])
{
    struct str token = str_of(t->token);
    size_t n = 0;

    for (size_t i = 0; i < s.n && n + 8 < 256;) {
        if (str_starts(str_skip(s, i), token)) {
            memcpy(ret + n, "<token>", 7);
            n += 7;
            i += token.n;
            continue;
        }
        size_t one = utf8_seq_bytes(str_skip(s, i));
        memcpy(ret + n, s.p + i, one);
        if (one == 1 && (unsigned char)ret[n] < ' ')
            ret[n] = ' ';
        n += one;
        i += one > 0 ? one : 1;
    }
    ret[n] = '\0';
}

static enum tg_outcome outcome_of(int code)
{
    if (code == 429)
        return TG_LATER;
    if (code >= 400 && code < 500)
        return TG_REFUSED;
    return code >= 500 && code != 504 ? TG_BROKEN : TG_UNKNOWN;
}

void tg_answer_read(struct telegram *t, struct json_parser *parser, const struct http_result *r,
                    struct tg_answer *ret)
{
    struct json doc = {0};

    *ret = (struct tg_answer){.code = r->status};
    if (r->err != BH_OK) {
        ret->outcome = r->err == BH_UNAVAILABLE || r->err == BH_REFUSED ? TG_DOWN : TG_UNKNOWN;
        keep_words(t, str_of(r->why), ret->why);
        return;
    }
    bool is_json = json_parse(parser, r->body, &doc) && json_is_object(doc);
    if (is_json && json_as_bool(json_get(doc, "ok"), false) && r->status < 400) {
        ret->outcome = TG_OK;
        ret->result = json_get(doc, "result");
        return;
    }
    int64_t code = is_json ? json_i64(doc, "error_code", r->status) : r->status;
    ret->code = code > 0 && code < 1000 ? (int)code : r->status;
    ret->outcome = outcome_of(ret->code);
    struct json p = json_get(doc, "parameters");
    int64_t seconds = json_i64(p, "retry_after", -1);
    ret->migrate_to = json_i64(p, "migrate_to_chat_id", 0);
    ret->retry_after_ms = r->retry_after_ms > 0 ? r->retry_after_ms : 1000;
    if (seconds >= 0 && seconds < 1000000)
        ret->retry_after_ms = seconds > 0 ? seconds * 1000 : 1000;
    keep_words(t, json_str(doc, "description"), ret->why);
    if (ret->why[0] == '\0')
        snprintf(ret->why, sizeof ret->why, "HTTP status %d", r->status);
}

/* ---- explanations of refusals ----
 *
 * Telegram has no error numbers for refusals, so the table matches parts of the description.  A
 * refusal that is not in the table keeps Telegram's description.  Gateways retry on words such as
 * "network" and "timed out": no sentence may contain them, because refusals are final. */

static const struct {
    const char *part, *sentence;
} refusals[] = {
    {"bot was blocked", "the person has blocked this bot; they have to unblock it or press Start"},
    {"user is deactivated", "this Telegram account no longer exists"},
    {"can't initiate conversation", "the person has to write to the bot first"},
    {"bot can't send messages to bots", "Telegram does not let bots write to bots"},
    {"bot was kicked", "the bot was removed from this chat; somebody has to add it again"},
    {"bot is not a member", "the bot is not a member of this chat; somebody has to add it"},
    {"group chat was deleted", "this group no longer exists"},
    {"chat not found", "Telegram knows no such chat, or the bot was never in it"},
    {"PEER_ID_INVALID", "Telegram knows no such chat, or the bot was never in it"},
    {"not enough rights", "the bot may not write here; an admin of the chat has to allow it"},
    {"have no rights to send", "the bot may not write here; an admin of the chat has to allow it"},
    {"CHAT_WRITE_FORBIDDEN", "the bot may not write here; an admin of the chat has to allow it"},
    {"CHAT_RESTRICTED", "the bot may not write here; an admin of the chat has to allow it"},
    {"message thread not found", "this topic no longer exists in the chat"},
    {"TOPIC_CLOSED", "this topic is closed; an admin of the chat has to reopen it"},
    {"TOPIC_DELETED", "this topic no longer exists in the chat"},
    {"message to edit not found", "there is no such message to edit"},
    {"MESSAGE_ID_INVALID", "there is no such message to edit"},
    {"message can't be edited", "Telegram does not let the bot edit this message"},
    {"message is too long", "the message is too long for Telegram"},
    {"text must be non-empty", "the message is empty"},
    {"message text is empty", "the message is empty"},
};

const char *tg_refusal(int code, const char *why)
{
    if (code == 401 || code == 404)
        return "Telegram does not know the bot's token: the operator has to renew "
               "it";
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
        if (strcasestr(why, refusals[i].part) != NULL)
            return refusals[i].sentence;
    return NULL;
}

bool tg_refuses_entities(const struct tg_answer *a)
{
    return a->code == 400 &&
           (strcasestr(a->why, "can't parse") != NULL || strcasestr(a->why, "entit") != NULL);
}

/* ---- single chats ----
 *
 * An entry keeps the chat's move to another id (also in the store, as tg_moved_form), and the time
 * of the last "typing".  sweep_chats() frees entries that hold nothing. */

struct tg_chat {
    char id[TG_CHAT_CHARS];
    char moved_to[TG_CHAT_CHARS], moved_from[TG_CHAT_CHARS]; /* empty: the chat did not move */
    int64_t typed_ms;                                        /* monotonic; 0: never */
};

static void sweep_chats(struct telegram *t)
{
    int64_t now = clock_now_ms(t->base.env->clock);
    void *value;

    for (size_t i = 0; map_next(&t->chats, &i, &value);) {
        struct tg_chat *c = value;
        if (c->moved_to[0] == '\0' && c->moved_from[0] == '\0' && c->typed_ms + TYPED_MS <= now) {
            map_del(&t->chats, str_of(c->id));
            free(c);
        }
    }
}

/* Finds or adds an entry.  NULL: @id is not a chat's id, or the table is full. */
static struct tg_chat *chat_get(struct telegram *t, struct str id)
{
    struct tg_chat *c = map_get(&t->chats, id);

    if (c != NULL)
        return c;
    if (map_count(&t->chats) >= MAX_CHATS)
        sweep_chats(t);
    if (id.n == 0 || id.n >= TG_CHAT_CHARS || map_count(&t->chats) >= MAX_CHATS)
        return NULL;
    c = xcalloc(1, sizeof *c);
    memcpy(c->id, id.p, id.n);
    map_put(&t->chats, str_of(c->id), c);
    return c;
}

/* ---- names of topics ---- */

static struct str topic_key(char ret[TG_CHAT_CHARS + 24], struct str chat, int64_t topic)
{
    snprintf(ret, TG_CHAT_CHARS + 24, "%.*s %" PRId64, STR_FMT(chat), topic);
    return str_of(ret);
}

const struct tg_topic *tg_topic_find(const struct telegram *t, struct str chat, int64_t topic)
{
    char key[TG_CHAT_CHARS + 24];

    return lru_find(&t->topics, topic_key(key, chat, topic));
}

void tg_topic_named(struct telegram *t, struct str chat, int64_t topic, struct str name, bool ours)
{
    char key[TG_CHAT_CHARS + 24];

    if (name.n == 0 || topic <= 0)
        return;
    struct tg_topic *p = lru_use(&t->topics, topic_key(key, chat, topic), sizeof *p);
    /* Telegram may repeat the name that bellhop gave. */
    p->ours = ours || (p->ours && str_eq(str_of(p->name), name));
    free(p->name);
    p->name = str_dup(name);
}

void tg_topic_free(struct lru *l, void *entry)
{
    free(((struct tg_topic *)entry)->name);
}

void tg_chats_free(struct telegram *t)
{
    map_done_all(&t->chats);
    lru_done(&t->topics);
}

static bool remember_move(struct telegram *t, struct str from, struct str to)
{
    struct tg_chat *was = chat_get(t, from), *is = chat_get(t, to);

    if (was == NULL || is == NULL || was == is || str_eq(str_of(was->moved_to), to))
        return false;
    memcpy(was->moved_to, is->id, sizeof was->moved_to);
    memcpy(is->moved_from, was->id, sizeof is->moved_from);
    return true;
}

struct moved_record {
    struct str bot, token, from, to;
};
static const struct record_field moved_fields[] = {
    RECORD_FIELD(struct moved_record, bot, "bot", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct moved_record, token, "token", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct moved_record, from, "from", RECORD_KEY | RECORD_NEEDED),
    RECORD_FIELD(struct moved_record, to, "to", RECORD_NEEDED),
};
const struct record_form tg_moved_form =
    RECORD_FORM("telegram_moved", struct moved_record, moved_fields, .lossy = true);

static bool on_moved(void *ctx, struct str key, void *thing)
{
    const struct moved_record *r = thing;

    remember_move(ctx, r->from, r->to);
    return true;
}

enum bh_err tg_chats_load(struct telegram *t, char *ret_why)
{
    struct moved_record own = {.bot = str_of(t->base.bot), .token = str_of(t->token_id)};

    return record_load_like(t->base.env->store, &tg_moved_form, &own, 2, on_moved, t, ret_why);
}

void tg_chat_moved(struct telegram *t, struct str from, struct str to)
{
    struct moved_record r = {str_of(t->base.bot), str_of(t->token_id), from, to};

    if (!remember_move(t, from, to))
        return;
    log_info(&t->base.log, "a group became a supergroup: from=%.*s to=%.*s", STR_FMT(from),
             STR_FMT(to));
    record_put(t->base.env->store, &tg_moved_form, NULL, &r, false, NULL, NULL);
}

struct str tg_chat_now(struct telegram *t, struct str id)
{
    for (unsigned i = 0; i < MAX_MOVES; i++) {
        struct tg_chat *c = map_get(&t->chats, id);
        if (c == NULL || c->moved_to[0] == '\0')
            break;
        id = str_of(c->moved_to);
    }
    return id;
}

struct str tg_chat_before(struct telegram *t, struct str id)
{
    struct tg_chat *c = map_get(&t->chats, id);

    return c != NULL && c->moved_from[0] != '\0' ? str_of(c->moved_from) : STR_NULL;
}

bool tg_chat_typed(struct telegram *t, struct str id)
{
    struct tg_chat *c = chat_get(t, id);
    int64_t now = clock_now_ms(t->base.env->clock);

    if (c == NULL)
        return false;
    if (c->typed_ms != 0 && now < c->typed_ms + TYPED_MS)
        return true;
    c->typed_ms = now;
    return false;
}
