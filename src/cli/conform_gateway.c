/* conform_gateway.c - the obligations of a gateway, checked while we play its connector.
 *
 * The order matters at the end: the last obligations stop the gateway. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "cli/conform.h"
#include "core/contract.h"
#include "core/token.h"

/* Names that only this obligation uses. */
static const char *name_of(struct conform *c, const char *what)
{
    char text[64];

    snprintf(text, sizeof text, "conformance-%u-%s", c->number, what);
    return arena_str(&c->arena, str_of(text)).p;
}

/* ---- the connection ---- */

static void run_dials(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g != NULL)
        came(c, true, "socket %u", guest_number(g));
}

static void run_path(struct conform *c)
{
    const char *path = guest_dialled(c).path;

    came(c, str_ends(str_of(path), STR("/relay")), "%s", path);
}

static void run_token(struct conform *c)
{
    struct guest_dial dial = guest_dialled(c);
    struct str bearer = token_of_header(str_of(dial.authorization)), secret = buf_str(&c->secret);
    struct buf scratch = BUF_INIT;
    struct token t;

    if (bearer.p == NULL)
        came(c, false, "no Authorization: Bearer");
    else if (!token_read(bearer, &scratch, &t))
        came(c, false, "the bearer is no token");
    else if (!str_eq(t.payload, buf_str(&c->id)))
        came(c, false, "the token is of \"%.*s\"", STR_FMT(t.payload));
    else if (token_verify(&t, &secret, 1, dial.at_ms / 1000, 0) != TOKEN_OK)
        came(c, false, "the token is expired, or its signature is wrong");
    else
        came(c, true, "a token of \"%.*s\"", STR_FMT(t.payload));
    buf_done(&scratch);
}

static void run_pong(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return;
    bool there = guest_pong(g);
    came(c, there, there ? "the pong" : "no pong");
}

/* ---- deliveries ---- */

static bool acked(struct conform *c, struct guest *g, const char *id, const char *after)
{
    bool there = guest_acks(g, id);

    return came(c, there, there ? "acked %s" : "no inbound_ack %s", after);
}

static void run_acks(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *id = name_of(c, "ack");

    if (g == NULL)
        return;
    guest_deliver(g, id, name_of(c, "chat"), "hello", "");
    bool there = guest_acks(g, id);
    came(c, there, there ? "acked" : "no inbound_ack");
}

static void run_acks_all(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *ids[] = {name_of(c, "one"), name_of(c, "two"), name_of(c, "three")};
    struct buf message = BUF_INIT;

    if (g == NULL)
        return;
    for (size_t i = 0; i < 3; i++)
        guest_inbound(g, &message, ids[i], name_of(c, ids[i]), "three at once", "");
    guest_send(g, buf_str(&message));
    buf_done(&message);
    for (size_t i = 0; i < 3; i++)
        if (!guest_acks(g, ids[i])) {
            came(c, false, "%zu of 3 deliveries in one message were acked in order", i);
            return;
        }
    came(c, true, "3 of 3 deliveries in one message");
}

static void run_no_id(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return;
    while (!guest_quiet(g, "inbound_ack"))
        guest_next(g, "inbound_ack");
    guest_deliver(g, NULL, name_of(c, "chat"), "without a bufferId", "");
    bool quiet = guest_quiet(g, "inbound_ack");
    came(c, quiet, quiet ? "no ack" : "an ack of a delivery without a bufferId");
}

static void run_again(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *id = name_of(c, "again"), *chat = name_of(c, "chat");

    if (g == NULL)
        return;
    guest_deliver(g, id, chat, "again", "");
    if (!guest_acks(g, id)) {
        came(c, false, "no inbound_ack");
        return;
    }
    guest_close(g, CLOSE_CODE_RESTART);
    g = guest_wait(c, guest_number(g));
    if (g == NULL)
        return;
    guest_deliver(g, id, chat, "again", "");
    acked(c, g, id, "again, on the next socket");
}

/* ---- framing: after it, a delivery is acked ---- */

static void still_acks(struct conform *c, struct guest *g, const char *after)
{
    const char *id = name_of(c, "still");

    guest_deliver(g, id, name_of(c, "chat"), "still there?", "");
    acked(c, g, id, after);
}

static void survives(struct conform *c, const char *message, const char *after)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return;
    guest_send(g, str_of(message));
    still_acks(c, g, after);
}

static void run_split(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *id = name_of(c, "split");
    struct buf line = BUF_INIT;

    if (g == NULL)
        return;
    guest_inbound(g, &line, id, name_of(c, "chat"), "in three pieces", "");
    guest_send(g, str_make(line.p, 20));
    guest_send(g, str_make(line.p + 20, line.n - 21));
    guest_send(g, STR("\n"));
    acked(c, g, id, "a delivery in three messages");
    buf_done(&line);
}

static void run_blank(struct conform *c)
{
    survives(c, "\n\r\n", "after blank lines");
}

static void run_unknown_type(struct conform *c)
{
    survives(c, "{\"type\":\"conformance_unknown\",\"x\":[1,{}]}\n", "after an unknown type");
}

static void run_not_json(struct conform *c)
{
    survives(c, "this is no JSON\n", "after a line that is no JSON");
}

static void run_descriptor_again(struct conform *c)
{
    survives(c,
             "{\"type\":\"descriptor\",\"descriptor\":{\"contract_version\":1,"
             "\"platform\":\"relay\",\"label\":\"Again\",\"max_message_length\":4000,"
             "\"supports_draft_streaming\":false,\"supports_edit\":true,"
             "\"supports_threads\":false,\"markdown_dialect\":\"plain\",\"len_unit\":\"utf16\"}}\n",
             "after a second descriptor");
}

static void run_late_result(struct conform *c)
{
    survives(c,
             "{\"type\":\"outbound_result\",\"requestId\":\"conformance-unknown\",\"result\":{"
             "\"success\":false,\"error\":\"late\"}}\n",
             "after a result that nobody asked for");
}

static void run_interrupt(struct conform *c)
{
    survives(c,
             "{\"type\":\"interrupt_inbound\",\"session_key\":\"agent:main:relay:dm:nobody\","
             "\"chat_id\":\"\"}\n",
             "after an interrupt of an unknown session");
}

static void run_forward(struct conform *c)
{
    survives(c,
             "{\"type\":\"passthrough_forward\",\"forward\":{\"platform\":\"conformance\","
             "\"botId\":\"x\",\"method\":\"POST\",\"path\":\"/\",\"headers\":[],"
             "\"bodyB64\":\"e30=\"}}\n",
             "after a forward of an unknown platform");
}

static void run_idle_ack(struct conform *c)
{
    survives(c, "{\"type\":\"going_idle_ack\"}\n", "after a going_idle_ack that nobody waits for");
}

static void run_large(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *id = name_of(c, "large");
    size_t n = (size_t)512 << 10;
    char *text = xmalloc(n + 1);

    memset(text, 'x', n);
    text[n] = '\0';
    if (g != NULL) {
        guest_deliver(g, id, name_of(c, "chat"), text, "");
        acked(c, g, id, "a delivery of 512 KiB");
    }
    free(text);
}

static void run_unicode(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *id = name_of(c, "unicode");

    if (g == NULL)
        return;
    guest_deliver(g, id, name_of(c, "chat"), "\xf0\x9f\x9b\x8e \xc3\xa9 \"\\ \xe2\x80\xa8", "");
    acked(c, g, id, "a text with an emoji and a line separator");
}

static void run_optional_fields(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *id = name_of(c, "fields");

    if (g == NULL)
        return;
    guest_deliver(g, id, name_of(c, "chat"), "all the fields",
                  ",\"thread_id\":null,\"guild_id\":\"77\",\"scope_id\":\"77\","
                  "\"message_id\":\"m\",\"user_display_name\":\"Ann\",\"user_handle\":\"ann\"");
    acked(c, g, id, "an event with optional fields");
}

/* ---- answers ---- */

/* Delivers a message and waits for the answer.  Absent: skip() was called. */
static struct json answer_to(struct conform *c, struct guest *g, const char *id, const char *chat,
                             const char *source)
{
    guest_deliver(g, id, chat, "please answer", source);
    struct json action = guest_answers(g, chat);
    if (json_type(action) == JSON_ABSENT)
        skip(c, "the gateway did not answer the message; let it answer everything");
    return action;
}

static void run_answer(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *id = name_of(c, "answer");
    struct json action;

    if (g == NULL)
        return;
    action = answer_to(c, g, id, name_of(c, "chat"), "");
    if (json_type(action) != JSON_ABSENT)
        came(c, json_str(action, "content").n > 0, "content \"%.*s\"",
             STR_FMT(json_str(action, "content")));
}

static void run_reply_to(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    const char *id = name_of(c, "reply");
    char message[80];
    struct json action;

    if (g == NULL)
        return;
    action = answer_to(c, g, id, name_of(c, "chat"), "");
    struct str is = json_str(action, "reply_to");
    snprintf(message, sizeof message, "m-%s", id);
    if (json_type(action) != JSON_ABSENT)
        came(c, is.p == NULL || str_eq(is, str_of(message)), "reply_to is \"%.*s\"",
             STR_FMT(is.p != NULL ? is : STR("null")));
}

static void run_thread(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    struct json action;

    if (g == NULL)
        return;
    action = answer_to(c, g, name_of(c, "thread"), name_of(c, "chat"), ",\"thread_id\":\"17\"");
    struct str is = json_str(json_get(action, "metadata"), "thread_id");
    if (json_type(action) != JSON_ABSENT)
        came(c, str_eq(is, STR("17")), "metadata.thread_id is \"%.*s\"",
             STR_FMT(is.p != NULL ? is : STR("absent")));
}

static void run_refused_answer(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return;
    listen_fail_next(c);
    if (json_type(answer_to(c, g, name_of(c, "refused"), name_of(c, "chat"), "")) != JSON_ABSENT)
        still_acks(c, g, "after a refused answer");
}

/* ---- connections that end ---- */

static void redials(struct conform *c, struct guest *g, const char *after)
{
    struct guest *next = guest_wait(c, guest_number(g));

    if (next != NULL)
        came(c, true, "dialled again and said hello after %s", after);
}

static void run_close_answered(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return;
    guest_close(g, CLOSE_CODE_RESTART);
    int code = guest_closed(g);
    came(c, code != 0, code != 0 ? "the socket ended" : "the socket stayed open");
}

static void run_redial_restart(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return;
    guest_close(g, CLOSE_CODE_RESTART);
    redials(c, g, "close 1012");
}

static void run_redial_busy(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return;
    listen_refuse(c, 503);
    guest_close(g, CLOSE_CODE_BUSY);
    redials(c, g, "close 1013 and HTTP 503");
}

static void run_redial_401(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return;
    listen_refuse(c, 401);
    guest_close(g, CLOSE_CODE_RESTART);
    redials(c, g, "HTTP 401, which is not final");
}

static void run_redial_vanished(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);
    char why[256];

    if (g == NULL)
        return;
    if (!listen_restart(c, why))
        skip(c, "the listener could not be opened again: %s", why);
    else
        redials(c, g, "the connector vanished");
}

/* ---- the end ---- */

/* Stops the program; its going_idle is not answered.  NULL: skip() was called. */
static struct guest *ask_to_stop(struct conform *c)
{
    struct guest *g = guest_wait(c, 0);

    if (g == NULL)
        return NULL;
    if (c->program == NULL) {
        skip(c, "needs the program of the gateway, to stop it: -- PROGRAM");
        return NULL;
    }
    listen_hold_idle(c, true);
    if (!listen_stop_program(c))
        skip(c, "the program has ended");
    else if (json_type(guest_next(g, "going_idle")) == JSON_ABSENT)
        skip(c, "the program ended without going_idle, so it does not say goodbye on SIGTERM");
    else
        return g;
    return NULL;
}

static void run_goodbye(struct conform *c)
{
    struct guest *g = ask_to_stop(c);
    const char *id = name_of(c, "goodbye");

    if (g != NULL) {
        bool open = guest_quiet(g, "conformance") && guest_pong(g);
        if (!open) {
            came(c, false, "the socket was closed before going_idle_ack");
        } else {
            guest_deliver(g, id, name_of(c, "chat"), "before the ack", "");
            guest_send(g, STR("{\"type\":\"going_idle_ack\"}\n"));
            int code = guest_closed(g);
            came(c, code == CLOSE_CODE_NORMAL,
                 code == 0 ? "the socket stayed open after going_idle_ack" : "close %d", code);
        }
    }
    listen_hold_idle(c, false);
}

static void run_revoked(struct conform *c)
{
    struct guest *g;
    char why[256];

    if (c->program != NULL) {
        listen_end_program(c); /* an earlier obligation has stopped it */
        if (!listen_start_program(c, why)) {
            skip(c, "the program could not be started again: %s", why);
            return;
        }
    }
    g = guest_wait(c, 0);
    if (g == NULL)
        return;
    if (!guest_pong(g)) { /* it has read its descriptor: the handshake is over */
        came(c, false, "no pong");
        return;
    }
    guest_close(g, CLOSE_CODE_UNAUTHORIZED);
    guest_closed(g);
    bool quiet = listen_redial_pause(c);
    came(c, quiet, quiet ? "it stopped" : "it dialled again after close 4401");
}

/* ---- the table ---- */

#define CONNECTION "The connection"
#define FRAMING "Framing"
#define ORDER "Order and redelivery"

const struct obligation gateway_obligations[] = {
    {"dials", CONNECTION, "the gateway dials and says hello", .run = run_dials},
    {"relay-path", CONNECTION, "it dials .../relay, without a query", .run = run_path},
    {"bearer-token", CONNECTION, "its bearer is a good token of its id", .run = run_token},
    {"pong", CONNECTION, "a ping is answered with a pong", .run = run_pong},
    {"acks", "Frames from a gateway", "a delivery is acked by its bufferId", .run = run_acks},
    {"acks-all", "Deliveries and acks", "several deliveries in one message are all acked",
     .run = run_acks_all},
    {"no-buffer-id", "Deliveries and acks", "a delivery without a bufferId is not acked",
     .run = run_no_id},
    {"acks-again", ORDER, "a delivery that comes again is acked again", .run = run_again},
    {"split-frames", FRAMING, "a frame may span several messages", .run = run_split},
    {"blank-lines", FRAMING, "blank lines are skipped", .run = run_blank},
    {"unknown-type", FRAMING, "frames of unknown types are ignored", .run = run_unknown_type},
    {"not-json", FRAMING, "a line that is no JSON is skipped", .run = run_not_json},
    {"large-delivery", FRAMING, "a delivery of 512 KiB is taken", .run = run_large},
    {"unicode", FRAMING, "any text is taken", .run = run_unicode},
    {"optional-fields", "Source fields", "optional fields are taken", .run = run_optional_fields},
    {"descriptor-again", "The descriptor", "a second descriptor is harmless",
     .run = run_descriptor_again},
    {"late-result", "Result fields", "a result that nobody asked for is ignored",
     .run = run_late_result},
    {"unknown-interrupt", "Session keys", "an interrupt of an unknown session is harmless",
     .run = run_interrupt},
    {"unknown-forward", "Forward fields", "a forward of an unknown platform is harmless",
     .run = run_forward},
    {"stray-idle-ack", "Falling asleep", "a going_idle_ack that nobody waits for is ignored",
     .run = run_idle_ack},
    {"answer", "Operations", "an answer is a send to the chat of the message", .run = run_answer},
    {"reply-to", "Action fields", "reply_to is null or the message that was answered",
     .run = run_reply_to},
    {"answer-in-thread", "Metadata fields", "an answer names the thread of its message",
     .run = run_thread},
    {"refused-answer", "Error words", "a refused answer does not end the gateway",
     .run = run_refused_answer},
    {"close-answered", "Close codes", "a close ends the socket", .run = run_close_answered},
    {"redials-restart", "Close codes", "after close 1012 it dials again",
     .run = run_redial_restart},
    {"redials-busy", "Close codes", "after close 1013 and HTTP 503 it dials again",
     .run = run_redial_busy},
    {"redials-401", CONNECTION, "after HTTP 401 it dials again", .run = run_redial_401},
    {"redials-vanished", "Close codes", "after a lost connection it dials again",
     .run = run_redial_vanished},
    {"goodbye", "Falling asleep", "after going_idle it stays until the ack, then closes with 1000",
     .run = run_goodbye},
    {"revoked", "Close codes", "after close 4401 it does not dial again", .run = run_revoked},
    /* The form of every frame. */
    {"lines", FRAMING, "every line is a JSON object with a type", .lint = LINT_LINES},
    {"complete-lines", FRAMING, "every line ends with a newline", .lint = LINT_COMPLETE},
    {"utf8", FRAMING, "every message is UTF-8", .lint = LINT_UTF8},
    {"message-size", FRAMING, "no message is over 1 MiB", .lint = LINT_SIZE},
    {"hello-first", "Frames from a gateway", "hello comes before acks and requests",
     .lint = LINT_HELLO_FIRST},
    {"hello-form", "Frames from a gateway", "a hello has platform and botId as texts",
     .lint = LINT_HELLO},
    {"ack-form", "Frames from a gateway", "an ack has a bufferId", .lint = LINT_ACK},
    {"request-id", "Frames from a gateway", "requestId is a text of 1 to 128 bytes",
     .lint = LINT_REQUEST_ID},
    {"action-form", "Action fields", "an action has the fields of its op", .lint = LINT_ACTION},
    {"metadata-form", "Metadata fields", "metadata is an object", .lint = LINT_METADATA},
    {0},
};
