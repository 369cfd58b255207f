/* conform_delivery.c - the obligations of a connector that need a person: deliveries, acks, sleep,
 * answers, interrupts. */
#include <stdio.h>
#include <stdlib.h>
#include "base/mem.h"
#include "cli/conform.h"
#include "core/contract.h"
#include "core/session_key.h"

enum { SEVERAL = 3, MANY = 20, WINDOW = 16 /* unread messages at which gateways stop reading */ };

/* ---- deliveries ---- */

/* A person writes, and @p hears it, or at least its beginning.  Absent: came() was called. */
static struct json heard(struct conform *c, struct peer *p, const char *text)
{
    struct json frame = {0};

    if (!person_says(c, text))
        return frame;
    frame = peer_hear(p, person_text(c, ""));
    if (json_type(frame) == JSON_ABSENT)
        came(c, false, "what the person wrote did not arrive");
    return frame;
}

static void run_delivered(struct conform *c)
{
    const char *text = person_text(c, "hello");
    struct peer *p = peer_fresh(c);
    struct json frame = p != NULL ? heard(c, p, text) : (struct json){0};

    if (json_type(frame) == JSON_ABSENT)
        return;
    came(c, true, "%.*s", STR_FMT(json_str(json_get(frame, "event"), "text")));
    peer_ack(p, frame);
}

static void run_text(struct conform *c)
{
    const char *text = person_text(c, "\"quotes\" \\ <b> \xc3\xa9 \xf0\x9f\x9b\x8e %s");
    struct peer *p = peer_fresh(c);
    struct json frame = p != NULL ? heard(c, p, text) : (struct json){0};

    if (json_type(frame) == JSON_ABSENT)
        return;
    struct str is = json_str(json_get(frame, "event"), "text");
    came(c, str_eq(is, str_of(text)), "%.*s", STR_FMT(is));
    peer_ack(p, frame);
}

/* Hears "... 0" to "... n-1" in order.  @ack: acks each.  Returns how many came in order. */
static int hear_all(struct conform *c, struct peer *p, const char *what, int n, bool ack)
{
    for (int i = 0; i < n; i++) {
        char word[64];
        snprintf(word, sizeof word, "%s %d", what, i);
        struct json frame = peer_hear(p, person_text(c, what));
        struct str is = json_str(json_get(frame, "event"), "text");
        if (json_type(frame) == JSON_ABSENT)
            return i;
        if (ack)
            peer_ack(p, frame);
        if (!str_ends(is, str_of(word)))
            return i;
    }
    return n;
}

static bool say_all(struct conform *c, const char *what, int n)
{
    for (int i = 0; i < n; i++) {
        char word[64];
        snprintf(word, sizeof word, "%s %d", what, i);
        if (!person_says(c, person_text(c, word)))
            return false;
    }
    return true;
}

static void run_order(struct conform *c)
{
    struct peer *p = peer_fresh(c);

    if (p == NULL || !say_all(c, "line", 6))
        return;
    int n = hear_all(c, p, "line", 6, true);
    came(c, n == 6, "%d of 6 messages in order", n);
}

static bool has_buffer(struct conform *c, struct json frame)
{
    bool has = json_str(frame, "bufferId").n > 0;

    if (!has)
        skip(c, "this connector gives live deliveries no bufferId");
    return has;
}

static void run_once(struct conform *c)
{
    struct peer *p = peer_fresh(c);
    struct json frame = p != NULL ? heard(c, p, person_text(c, "once")) : (struct json){0};

    if (json_type(frame) == JSON_ABSENT)
        return;
    bool quiet = peer_quiet(p, "inbound");
    came(c, quiet, quiet ? "once" : "a delivery came twice on one socket");
}

static void run_redelivered(struct conform *c)
{
    const char *text = person_text(c, "again");
    struct peer *p = peer_fresh(c);
    struct json frame = p != NULL ? heard(c, p, text) : (struct json){0};
    char id[256];

    if (json_type(frame) == JSON_ABSENT || !has_buffer(c, frame))
        return;
    snprintf(id, sizeof id, "%.*s", STR_FMT(json_str(frame, "bufferId")));
    peer_cut(p);
    p = peer_open(c);
    if (p == NULL)
        return;
    frame = peer_hear(p, text);
    if (!came(c, json_type(frame) != JSON_ABSENT && str_eq(json_str(frame, "bufferId"), str_of(id)),
              json_type(frame) == JSON_ABSENT ? "it did not come again"
                                              : "it came again as %.*s instead of %s",
              STR_FMT(json_str(frame, "bufferId")), id))
        return;
    buf_reset(&c->came);
    buf_printf(&c->came, "again, as %s", id);
    peer_ack(p, frame);
}

/* Returns once the connector has read everything that was said on @p. */
static void settle(struct peer *p)
{
    peer_frame(p, WS_PING, true, STR("settle"));
    peer_pong(p, STR("settle"));
}

static void run_acked(struct conform *c)
{
    struct peer *p = peer_fresh(c);
    struct json frame = p != NULL ? heard(c, p, person_text(c, "acked")) : (struct json){0};

    if (json_type(frame) == JSON_ABSENT || !has_buffer(c, frame))
        return;
    peer_ack(p, frame);
    settle(p);
    peer_cut(p);
    p = peer_open(c);
    if (p == NULL)
        return;
    bool quiet = peer_quiet(p, "inbound");
    came(c, quiet, quiet ? "it did not come again" : "an acked delivery came again");
}

static void run_again_in_order(struct conform *c)
{
    struct peer *p = peer_fresh(c);

    if (p == NULL || !say_all(c, "tail", SEVERAL))
        return;
    int n = hear_all(c, p, "tail", SEVERAL, false);
    if (n < SEVERAL) {
        came(c, false, "%d of %d messages arrived", n, SEVERAL);
        return;
    }
    peer_cut(p);
    p = peer_open(c);
    if (p == NULL)
        return;
    n = hear_all(c, p, "tail", SEVERAL, true);
    came(c, n == SEVERAL, "%d of %d came again in order", n, SEVERAL);
}

static void run_ack_settles_one(struct conform *c)
{
    const char *first = person_text(c, "first"), *second = person_text(c, "second");
    struct peer *p = peer_fresh(c);
    struct json frame = p != NULL ? heard(c, p, first) : (struct json){0};

    if (json_type(frame) == JSON_ABSENT || !has_buffer(c, frame))
        return;
    frame = heard(c, p, second);
    if (json_type(frame) == JSON_ABSENT)
        return;
    peer_ack(p, frame);
    settle(p);
    peer_cut(p);
    p = peer_open(c);
    if (p == NULL)
        return;
    frame = peer_hear(p, "conformance");
    struct str is = json_str(json_get(frame, "event"), "text");
    came(c, str_eq(is, str_of(first)),
         json_type(frame) == JSON_ABSENT ? "the unacked one did not come again" : "%.*s came again",
         STR_FMT(is));
    peer_ack(p, frame);
}

static void run_window(struct conform *c)
{
    struct peer *p = peer_fresh(c);

    if (p == NULL)
        return;
    uint64_t before = peer_messages(p);
    if (!say_all(c, "many", MANY))
        return;
    peer_quiet(p, "going_idle_ack"); /* reads for a while */
    uint64_t n = peer_messages(p) - before;
    if (n > WINDOW) {
        came(c, false, "%llu unacked messages", (unsigned long long)n);
        return;
    }
    int all = hear_all(c, p, "many", MANY, true);
    came(c, all == MANY, "%llu unacked messages, then %d of %d in order", (unsigned long long)n,
         all, MANY);
}

static void run_newest_socket(struct conform *c)
{
    struct peer *older = peer_fresh(c), *newer = older != NULL ? peer_open(c) : NULL;
    struct json frame =
        newer != NULL ? heard(c, newer, person_text(c, "newest")) : (struct json){0};

    if (json_type(frame) == JSON_ABSENT)
        return;
    bool quiet = peer_quiet(older, "inbound");
    came(c, quiet && peer_code(older) != CLOSE_CODE_UNAUTHORIZED,
         quiet ? "only the newer socket got it" : "both sockets got it");
    peer_ack(newer, frame);
}

/* ---- falling asleep ---- */

static bool fall_asleep(struct conform *c, struct peer *p)
{
    peer_say(p, "{\"type\":\"going_idle\"}");
    return json_type(peer_next(p, "going_idle_ack")) != JSON_ABSENT ||
           came(c, false, "no going_idle_ack");
}

static void run_quiet_asleep(struct conform *c)
{
    struct peer *p = peer_fresh(c);

    if (p == NULL || !fall_asleep(c, p) || !person_says(c, person_text(c, "asleep")))
        return;
    bool quiet = peer_quiet(p, "inbound");
    came(c, quiet, quiet ? "nothing" : "a delivery after going_idle_ack");
    c->unacked++;
}

/* Messages that were written while the gateway sleeps. */
static struct peer *sleep_through(struct conform *c, const char *what)
{
    struct peer *p = peer_fresh(c);

    if (p == NULL || !fall_asleep(c, p))
        return NULL;
    peer_close(p, CLOSE_CODE_NORMAL);
    peer_closed(p);
    if (!say_all(c, what, SEVERAL))
        return NULL;
    return peer_dial(c, &(struct peer_dial){.no_hello = true});
}

static void run_backlog(struct conform *c)
{
    struct peer *p = sleep_through(c, "night");

    if (p == NULL)
        return;
    peer_hello(p);
    int n = hear_all(c, p, "night", SEVERAL, true);
    came(c, n == SEVERAL, "%d of %d in order", n, SEVERAL);
}

static void run_backlog_acked(struct conform *c)
{
    struct peer *p = sleep_through(c, "bufferId");

    if (p == NULL)
        return;
    peer_hello(p);
    struct json frame = peer_hear(p, person_text(c, "bufferId"));
    came(c, json_str(frame, "bufferId").n > 0,
         json_type(frame) == JSON_ABSENT ? "nothing came" : "bufferId \"%.*s\"",
         STR_FMT(json_str(frame, "bufferId")));
}

static void run_descriptor_first(struct conform *c)
{
    struct peer *p = sleep_through(c, "first");

    if (p == NULL)
        return;
    if (!peer_quiet(p, "inbound")) {
        came(c, false, "a delivery before hello");
        return;
    }
    peer_hello(p);
    struct str type = json_str(peer_next(p, ""), "type");
    came(c, str_eq(type, STR("descriptor")), "the first frame is \"%.*s\"", STR_FMT(type));
    c->unacked++;
}

/* ---- answers ---- */

struct delivered {           /* kept for the obligation */
    const char *chat, *user; /* as JSON */
    struct event ev;
};

/* A fresh peer that has received and acked a delivery.  NULL: came() was called. */
static struct peer *peer_with_delivery(struct conform *c, struct delivered *ret)
{
    struct peer *p = peer_fresh(c);
    struct json frame = p != NULL ? heard(c, p, person_text(c, "a place")) : (struct json){0};
    struct event ev;
    char why[256];

    if (json_type(frame) == JSON_ABSENT)
        return NULL;
    if (!event_read(json_get(frame, "event"), &c->arena, &ev, why)) {
        came(c, false, "the event cannot be read: %s", why);
        return NULL;
    }
    event_copy(&ev, &c->arena, &ret->ev);
    ret->chat = quoted(c, ret->ev.chat_id);
    ret->user = quoted(c, ret->ev.user_id);
    peer_ack(p, frame);
    return p;
}

/* An op with the members @more in the delivered chat.  Absent: came() was called. */
static struct json act_there(struct conform *c, struct peer *p, const struct delivered *at,
                             const char *op, const char *more)
{
    struct json result =
        peer_act(p, "\"action\":{\"op\":\"%s\",\"chat_id\":%s,\"metadata\":{\"user_id\":%s}%s}", op,
                 at->chat, at->user, more);

    if (json_type(result) == JSON_ABSENT)
        came(c, false, "no result");
    return result;
}

static bool is_success(struct json result)
{
    return json_as_bool(json_get(result, "success"), false);
}

#define ANSWER ",\"content\":\"conformance: an answer\",\"reply_to\":null"

static void run_answer(struct conform *c)
{
    struct delivered at;
    struct peer *p = peer_with_delivery(c, &at);

    if (p == NULL)
        return;
    struct json result = act_there(c, p, &at, "send", ANSWER);
    came(c, is_success(result) && json_str(result, "message_id").n > 0,
         is_success(result) ? "success, message_id \"%.*s\"" : "failure: %.*s",
         STR_FMT(json_str(result, is_success(result) ? "message_id" : "error")));
}

static void run_edit(struct conform *c)
{
    struct delivered at;
    struct peer *p = peer_with_delivery(c, &at);
    char more[512];

    if (p == NULL)
        return;
    struct json result = act_there(c, p, &at, "send", ANSWER);
    if (!is_success(result)) {
        came(c, false, "the send failed");
        return;
    }
    snprintf(more, sizeof more, ",\"message_id\":%s,\"content\":\"conformance: edited\"",
             quoted(c, json_str(result, "message_id")));
    result = act_there(c, p, &at, "edit", more);
    if (!is_success(result) && str_starts(json_str(result, "error"), STR("unsupported op")))
        skip(c, "this platform has no edit");
    else
        came(c, is_success(result), is_success(result) ? "success" : "failure: %.*s",
             STR_FMT(json_str(result, "error")));
}

static void run_typing(struct conform *c)
{
    struct delivered at;
    struct peer *p = peer_with_delivery(c, &at);

    if (p == NULL)
        return;
    struct json result = act_there(c, p, &at, "typing", "");
    came(c, is_success(result), is_success(result) ? "success" : "failure: %.*s",
         STR_FMT(json_str(result, "error")));
}

static void run_chat_info(struct conform *c)
{
    struct delivered at;
    struct peer *p = peer_with_delivery(c, &at);

    if (p == NULL)
        return;
    struct json result = act_there(c, p, &at, "get_chat_info", "");
    struct json info = json_get(result, "chat_info");
    if (!json_is_object(info))
        info = result; /* the client reads it from there too */
    if (!is_success(result))
        skip(c, "it answers: %.*s", STR_FMT(json_str(result, "error")));
    else
        came(c, json_str(info, "name").n > 0 && json_str(info, "type").n > 0,
             "name \"%.*s\", type \"%.*s\"", STR_FMT(json_str(info, "name")),
             STR_FMT(json_str(info, "type")));
}

static void run_foreign_identity(struct conform *c)
{
    struct delivered at;
    struct peer *p = peer_with_delivery(c, &at);

    if (p == NULL)
        return;
    struct json result =
        peer_act(p,
                 "\"platform\":\"conformance-nowhere\",\"botId\":\"x\",\"action\":{\"op\":\"send\","
                 "\"chat_id\":%s,\"content\":\"x\",\"reply_to\":null,\"metadata\":{}}",
                 at.chat);
    came(c, json_is_object(result) && !is_success(result),
         json_type(result) == JSON_ABSENT ? "no result"
         : is_success(result)             ? "success"
                                          : "refused: %.*s",
         STR_FMT(json_str(result, "error")));
}

static void run_interrupt(struct conform *c)
{
    struct buf key = BUF_INIT;
    struct delivered at;
    struct peer *p = peer_with_delivery(c, &at);

    if (p == NULL)
        return;
    session_key_of_event(&key, &at.ev);
    peer_say(p, "{\"type\":\"interrupt\",\"session_key\":%s,\"reason\":null}",
             quoted(c, buf_str(&key)));
    struct json frame = peer_next(p, "interrupt_inbound");
    struct str is = json_str(frame, "session_key"), chat = json_str(frame, "chat_id");
    came(c, str_eq(is, buf_str(&key)) && (chat.n == 0 || str_eq(chat, at.ev.chat_id)),
         json_type(frame) == JSON_ABSENT ? "no interrupt_inbound"
                                         : "session_key %.*s, chat_id %.*s",
         STR_FMT(is), STR_FMT(chat));
    buf_done(&key);
}

/* ---- events ---- */

/* A person sends @event; what arrives is checked as every event is, and has @member of its source
 * as it was sent. */
static void event_arrives(struct conform *c, const char *event, const char *member,
                          const char *expected)
{
    struct peer *p = peer_fresh(c);
    struct json frame;

    if (p == NULL || !person_sends(c, event))
        return;
    frame = peer_hear(p, "an event");
    struct str is = json_str(json_get(json_get(frame, "event"), "source"), member);
    came(c, str_eq(is, str_of(expected)),
         json_type(frame) == JSON_ABSENT ? "it did not arrive" : "%s is \"%.*s\"", member,
         STR_FMT(is));
    peer_ack(p, frame);
}

static void run_scope(struct conform *c)
{
    event_arrives(c,
                  "{\"text\":\"an event in a guild\",\"source\":{\"chat_id\":\"g1\","
                  "\"chat_type\":\"group\",\"user_id\":\"7\",\"guild_id\":\"77\"}}",
                  "scope_id", "77");
}

static void run_thread(struct conform *c)
{
    event_arrives(c,
                  "{\"text\":\"an event in a thread\",\"source\":{\"chat_id\":\"t1\","
                  "\"chat_type\":\"thread\",\"user_id\":\"7\",\"thread_id\":\"t1\","
                  "\"parent_chat_id\":\"c1\",\"scope_id\":\"77\"}}",
                  "thread_id", "t1");
}

static void run_files(struct conform *c)
{
    event_arrives(c,
                  "{\"text\":\"an event with a file\",\"message_type\":\"photo\",\"media_urls\":["
                  "\"https://cdn.example/a.png\"],\"reply_to\":{\"is_own\":true,\"text\":\"q\"},"
                  "\"source\":{\"chat_id\":\"f1\",\"chat_type\":\"dm\",\"user_id\":\"7\"}}",
                  "chat_id", "f1");
}

/* ---- the table ---- */

#define ORDER "Order and redelivery"
#define IDLE "Falling asleep"

const struct obligation delivery_obligations[] = {
    {"delivered", "Frames to a gateway", "what a person writes arrives", NEEDS_PERSON,
     .run = run_delivered},
    {"text-unchanged", "Event fields", "the text arrives unchanged", NEEDS_PERSON, .run = run_text},
    {"order", ORDER, "messages arrive in order", NEEDS_PERSON, .run = run_order},
    {"once-per-socket", ORDER, "a delivery comes once on a socket", NEEDS_PERSON, .run = run_once},
    {"redelivered", ORDER, "an unacked delivery comes again, under its bufferId", NEEDS_PERSON,
     .run = run_redelivered},
    {"acked-stays-away", ORDER, "an acked delivery does not come again", NEEDS_PERSON,
     .run = run_acked},
    {"redelivered-in-order", ORDER, "unacked deliveries come again in order", NEEDS_PERSON,
     .run = run_again_in_order},
    {"ack-settles-one", ORDER, "an ack settles its own delivery only", NEEDS_PERSON,
     .run = run_ack_settles_one},
    {"window", "Framing", "at most 16 messages are unacked, and none is lost", NEEDS_PERSON,
     .run = run_window},
    {"newest-socket", "Two sockets of one instance", "the newer of two sockets gets deliveries",
     NEEDS_PERSON, .run = run_newest_socket},
    {"quiet-after-ack", IDLE, "nothing is delivered after going_idle_ack", NEEDS_PERSON,
     .run = run_quiet_asleep},
    {"backlog", IDLE, "what was written during the sleep arrives in order", NEEDS_PERSON,
     .run = run_backlog},
    {"backlog-buffer-id", IDLE, "what was kept has a bufferId", NEEDS_PERSON,
     .run = run_backlog_acked},
    {"descriptor-first", "Frames to a gateway", "the descriptor comes before any delivery",
     NEEDS_PERSON, .run = run_descriptor_first},
    {"answer", "Operations", "a send to a delivered chat succeeds, with its message_id",
     NEEDS_PERSON, .run = run_answer},
    {"edit", "Operations", "a sent message can be edited", NEEDS_PERSON, .run = run_edit},
    {"typing", "Operations", "typing succeeds, on any platform", NEEDS_PERSON, .run = run_typing},
    {"chat-info", "Chat info fields", "get_chat_info has name and type", NEEDS_PERSON,
     .run = run_chat_info},
    {"foreign-identity", "Metadata fields", "an identity that said no hello is refused",
     NEEDS_PERSON, .run = run_foreign_identity},
    {"interrupt", "Session keys", "an interrupt comes back under its session_key", NEEDS_PERSON,
     .run = run_interrupt},
    {"scope", "Source fields", "the scope of an event arrives under its newer name",
     NEEDS_PERSON | NEEDS_EVENTS, .run = run_scope},
    {"thread", "Source fields", "the thread of an event arrives", NEEDS_PERSON | NEEDS_EVENTS,
     .run = run_thread},
    {"files", "Event fields", "an event with a file and a quote arrives",
     NEEDS_PERSON | NEEDS_EVENTS, .run = run_files},
    {0},
};
