/* conform_connector.c - the obligations of a connector that need no person: dialling, framing,
 * handshake, refusals, HTTP, and the form of every frame. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "cli/conform.h"
#include "core/contract.h"
#include "core/token.h"
#include "sdk/src/options.h"

/* ---- the connection ---- */

static void run_upgrade(struct conform *c)
{
    struct peer *p = peer_dial(c, &(struct peer_dial){.no_hello = true});

    if (p != NULL)
        came(c, peer_status(p) == 101, peer_status(p) == 0 ? "a false 101, or no HTTP" : "HTTP %d",
             peer_status(p));
}

/* How a dial with @token ended: an HTTP status, or a close code. */
static int refusal_of(struct conform *c, const char *token)
{
    struct peer *p = peer_dial(c, &(struct peer_dial){.token = token});

    if (p == NULL)
        return -1;
    return peer_status(p) != 101 ? peer_status(p) : peer_closed(p);
}

static void expect_4401(struct conform *c, const char *token)
{
    int how = refusal_of(c, token);

    if (how >= 0)
        came(c, how == CLOSE_CODE_UNAUTHORIZED, how == 0 ? "the socket stayed open" : "%d", how);
}

static void expect_refusal(struct conform *c, const char *token)
{
    int how = refusal_of(c, token);

    if (how >= 0)
        came(c, how >= 400, how == 0 ? "the socket stayed open" : "%d", how);
}

static const char *minted(struct conform *c, struct str id, struct str secret, int64_t exp)
{
    struct buf token = BUF_INIT;

    token_mint(&token, id, secret, exp);
    const char *kept = arena_str(&c->arena, buf_str(&token)).p;
    buf_wipe(&token);
    return kept;
}

static int64_t soon(void)
{
    return (int64_t)time(NULL) + 300;
}

static void run_no_token(struct conform *c)
{
    expect_4401(c, "");
}

static void run_wrong_signature(struct conform *c)
{
    expect_4401(c, minted(c, buf_str(&c->id), STR("not the secret"), soon()));
}

static void run_changed_expiry(struct conform *c)
{
    struct buf plain = BUF_INIT, token = BUF_INIT;
    int64_t exp = soon();
    uint8_t mac[SHA256_BYTES];

    buf_printf(&plain, "%s:%lld", buf_z(&c->id), (long long)exp);
    hmac_sha256(buf_str(&c->secret), buf_str(&plain), mac);
    buf_reset(&plain);
    buf_printf(&plain, "%s:%lld:", buf_z(&c->id), (long long)exp + 1000);
    hex_add(&plain, mac, sizeof mac);
    base64url_add(&token, plain.p, plain.n);
    expect_4401(c, buf_z(&token));
    buf_wipe(&plain);
    buf_wipe(&token);
}

static void run_unknown_id(struct conform *c)
{
    expect_refusal(c, minted(c, STR("conformance-unknown"), STR("a secret"), soon()));
}

static void run_garbage_token(struct conform *c)
{
    expect_refusal(c, "bm90IGEgdG9rZW4");
}

static void run_expired(struct conform *c)
{
    const char *token =
        minted(c, buf_str(&c->id), buf_str(&c->secret), (int64_t)time(NULL) - 86400);
    int how = refusal_of(c, token);

    if (how >= 0)
        came(c, how >= 400 && how != CLOSE_CODE_UNAUTHORIZED,
             how == 0 ? "the socket stayed open" : "%d", how);
}

static void run_other_path(struct conform *c)
{
    struct buf path = BUF_INIT;

    buf_printf(&path, "%s-nowhere", c->url->path);
    struct peer *p = peer_dial(c, &(struct peer_dial){.path = buf_z(&path), .no_hello = true});
    if (p != NULL)
        came(c, peer_status(p) >= 400, "HTTP %d", peer_status(p));
    buf_done(&path);
}

static void run_close_answered(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_close(p, CLOSE_CODE_NORMAL);
    int code = peer_closed(p);
    came(c, code != 0 && code != CLOSE_CODE_LOST, code == 0 ? "no answer" : "%d", code);
}

/* ---- framing ---- */

static bool descriptor_comes(struct conform *c, struct peer *p, const char *after)
{
    bool there = json_type(peer_next(p, "descriptor")) != JSON_ABSENT;

    return came(c, there, there ? "a descriptor after %s" : "no descriptor after %s", after);
}

static void run_ping(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_frame(p, WS_PING, true, STR("conformance"));
    bool there = peer_pong(p, STR("conformance"));
    came(c, there, there ? "the pong" : "no pong with the ping's payload");
}

#define HELLO "{\"type\":\"hello\",\"platform\":\"relay\",\"botId\":\"\"}"

/* Says @messages, NULL at the end, on a new socket; then a descriptor must come. */
static void hello_as(struct conform *c, const char *const *messages, const char *after)
{
    struct peer *p = peer_dial(c, &(struct peer_dial){.no_hello = true});

    if (p == NULL)
        return;
    for (size_t i = 0; messages[i] != NULL; i++)
        peer_send(p, str_of(messages[i]));
    descriptor_comes(c, p, after);
}

static void run_split(struct conform *c)
{
    hello_as(c,
             (const char *const[]){"{\"type\":\"hel", "lo\",\"platform\":\"relay\"",
                                   ",\"botId\":\"\"}", "\n", NULL},
             "a hello in four messages");
}

static void run_fragments(struct conform *c)
{
    struct peer *p = peer_dial(c, &(struct peer_dial){.no_hello = true});

    if (p == NULL)
        return;
    peer_frame(p, WS_TEXT, false, STR("{\"type\":\"hello\","));
    peer_frame(p, WS_PING, true, STR("between"));
    peer_frame(p, WS_CONT, true, STR("\"platform\":\"relay\",\"botId\":\"\"}\n"));
    descriptor_comes(c, p, "a hello in two fragments of one message");
}

static void run_merged(struct conform *c)
{
    struct peer *p = peer_dial(c, &(struct peer_dial){.no_hello = true});
    size_t n = 0;

    if (p == NULL)
        return;
    peer_send(p, STR(HELLO "\n" HELLO "\n" HELLO "\n"));
    while (n < 3 && json_type(peer_next(p, "descriptor")) != JSON_ABSENT)
        n++;
    came(c, n == 3, "%zu descriptors for three hellos in one message", n);
}

static void run_blank(struct conform *c)
{
    hello_as(c, (const char *const[]){"\n\r\n", HELLO "\r\n", "\n", NULL},
             "blank lines and a hello with \\r\\n");
}

static void run_escapes(struct conform *c)
{
    hello_as(c,
             (const char *const[]){"{\"type\":\"\\u0068ello\",\"platform\":\"r\\u0065lay\","
                                   "\"botId\":\"\",\"x\":\"\\ud83d\\udece\"}\n",
                                   NULL},
             "a hello with \\u escapes");
}

static void run_unknown_type(struct conform *c)
{
    hello_as(c,
             (const char *const[]){"{\"type\":\"conformance_unknown\",\"a\":[1,{}]}\n", HELLO "\n",
                                   NULL},
             "a frame of an unknown type");
}

static void run_unknown_fields(struct conform *c)
{
    hello_as(c,
             (const char *const[]){"{\"type\":\"hello\",\"platform\":\"relay\",\"botId\":\"\","
                                   "\"conformance\":{\"a\":[null,1.5]}}\n",
                                   NULL},
             "a hello with unknown fields");
}

static void run_not_json(struct conform *c)
{
    hello_as(c, (const char *const[]){"this is no JSON\n", HELLO "\n", NULL},
             "a line that is no JSON");
}

/* ---- the handshake ---- */

static void run_descriptor_per_hello(struct conform *c)
{
    static const char *const platforms[] = {"discord", "telegram", "discord", "slack"};
    struct peer *p = peer_dial(c, &(struct peer_dial){.no_hello = true});
    size_t n = 0;

    if (p == NULL)
        return;
    for (size_t i = 0; i < sizeof platforms / sizeof platforms[0]; i++)
        peer_say(p, "{\"type\":\"hello\",\"platform\":\"%s\",\"botId\":\"conformance\"}",
                 platforms[i]);
    while (n < 4 && json_type(peer_next(p, "descriptor")) != JSON_ABSENT)
        n++;
    if (came(c, n == 4, "%zu descriptors for four hellos", n) && !peer_quiet(p, "descriptor")) {
        c->end = CONFORM_OPEN;
        buf_reset(&c->came);
        came(c, false, "a fifth descriptor for four hellos");
    }
}

static void run_unknown_platform(struct conform *c)
{
    hello_as(c,
             (const char *const[]){"{\"type\":\"hello\",\"platform\":\"conformance-nowhere\","
                                   "\"botId\":\"x\"}\n",
                                   NULL},
             "a hello for an unknown platform");
}

static void run_hello_again(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_hello(p);
    descriptor_comes(c, p, "a second hello");
}

/* ---- actions that are refused ---- */

static bool is_failure(struct json result)
{
    return json_is_object(result) && !json_as_bool(json_get(result, "success"), true);
}

/* Sends an action that must fail.  Absent: came() was called. */
static struct json must_fail(struct conform *c, struct peer *p, const char *action)
{
    struct json result = peer_act(p, "%s", action);

    if (json_type(result) == JSON_ABSENT)
        came(c, false, "no result");
    else if (!is_failure(result))
        came(c, false, "success");
    else
        return result;
    return (struct json){0};
}

static void fails(struct conform *c, const char *action)
{
    struct peer *p = peer_open(c);
    struct json result = {0};

    if (p != NULL)
        result = must_fail(c, p, action);
    if (json_type(result) != JSON_ABSENT)
        came(c, true, "refused: %.*s", STR_FMT(json_str(result, "error")));
}

static void run_unknown_op(struct conform *c)
{
    fails(c, "\"action\":{\"op\":\"conformance_op\",\"chat_id\":\"conformance-chat\"}");
}

static void run_bad_action(struct conform *c)
{
    fails(c, "\"action\":null");
}

#define TO_NOBODY \
    "\"action\":{\"op\":\"send\",\"chat_id\":\"conformance-nobody\",\"content\":\"x\"," \
    "\"reply_to\":null,\"metadata\":{}}"

static void run_foreign_chat(struct conform *c)
{
    fails(c, TO_NOBODY);
}

static void run_refusal_words(struct conform *c)
{
    static const char *const loaded[] = {"network",         "connecterror",       "connectionerror",
                                         "connectionreset", "connectionrefused",  "connecttimeout",
                                         "broken pipe",     "remotedisconnected", "eoferror",
                                         "timed out",       "readtimeout",        "writetimeout"};
    struct peer *p = peer_open(c);
    struct json result = {0};
    char error[256] = "";

    if (p != NULL)
        result = must_fail(c, p, TO_NOBODY);
    if (json_type(result) == JSON_ABSENT)
        return;
    snprintf(error, sizeof error, "%.*s", STR_FMT(json_str(result, "error")));
    for (size_t i = 0; i < sizeof loaded / sizeof loaded[0]; i++)
        if (strcasestr(error, loaded[i]) != NULL) {
            came(c, false, "the refusal says \"%s\", so gateways repeat it or give up: %s",
                 loaded[i], error);
            return;
        }
    came(c, true, "%s", error);
}

/* Two refused actions get the same words. */
static void same_words(struct conform *c, const char *first, const char *second)
{
    struct peer *p = peer_open(c);
    struct json result = {0};
    char error[256] = "";

    if (p != NULL)
        result = must_fail(c, p, first);
    if (json_type(result) == JSON_ABSENT)
        return;
    snprintf(error, sizeof error, "%.*s", STR_FMT(json_str(result, "error")));
    result = must_fail(c, p, second);
    if (json_type(result) != JSON_ABSENT)
        came(c, str_eq(json_str(result, "error"), str_of(error)), "\"%s\", then \"%.*s\"", error,
             STR_FMT(json_str(result, "error")));
}

static void run_refused_again(struct conform *c)
{
    same_words(c, TO_NOBODY, TO_NOBODY);
}

static void run_follow_up(struct conform *c)
{
    same_words(c,
               "\"action\":{\"op\":\"follow_up\",\"session_key\":\"agent:main:relay:dm:nobody\","
               "\"kind\":\"discord.interaction_token\",\"content\":\"x\",\"metadata\":{}}",
               "\"action\":{\"op\":\"follow_up\",\"session_key\":\"agent:main:relay:dm:else\","
               "\"kind\":\"discord.interaction_token\",\"content\":\"x\",\"metadata\":{}}");
}

static void run_parallel(struct conform *c)
{
    struct peer *p = peer_open(c);
    unsigned answered = 0;

    if (p == NULL)
        return;
    for (int i = 0; i < 10; i++) {
        char id[64];
        snprintf(id, sizeof id, "conformance-parallel-%d", i);
        frames_asked(peer_frames(p), str_of(id));
        peer_say(p,
                 "{\"type\":\"outbound\",\"requestId\":\"%s\",\"action\":{\"op\":\"send\","
                 "\"chat_id\":\"conformance-%d\",\"content\":\"x\",\"reply_to\":null,"
                 "\"metadata\":{}}}",
                 id, i);
    }
    while (answered < 10 && json_type(peer_next(p, "outbound_result")) != JSON_ABSENT)
        answered++;
    came(c, answered == 10, "%u results for ten requests", answered);
}

static void run_one_result(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL || json_type(must_fail(c, p, TO_NOBODY)) == JSON_ABSENT)
        return;
    bool quiet = peer_quiet(p, "outbound_result");
    came(c, quiet, quiet ? "one result" : "a second result for one request");
}

static void run_request_id(struct conform *c)
{
    static const char id[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                             "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF";
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    frames_asked(peer_frames(p), str_of(id));
    peer_say(p, "{\"type\":\"outbound\",\"requestId\":\"%s\"," TO_NOBODY "}", id);
    struct json frame = peer_next(p, "outbound_result");
    bool same = str_eq(json_str(frame, "requestId"), str_of(id));
    came(c, same,
         same                              ? "unchanged"
         : json_type(frame) == JSON_ABSENT ? "no result"
                                           : "a result for %.*s",
         STR_FMT(json_str(frame, "requestId")));
}

static void run_early_request(struct conform *c)
{
    struct peer *p = peer_dial(c, &(struct peer_dial){.no_hello = true});

    if (p == NULL)
        return;
    frames_asked(peer_frames(p), STR("conformance-early"));
    peer_send(p, STR(HELLO "\n{\"type\":\"outbound\",\"requestId\":\"conformance-early\"," TO_NOBODY
                           "}\n"));
    bool there = json_type(peer_next(p, "outbound_result")) != JSON_ABSENT;
    came(c, there, there ? "a result" : "no result");
}

static void run_unknown_ack(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_say(p, "{\"type\":\"inbound_ack\",\"bufferId\":\"conformance-unknown\"}");
    peer_hello(p);
    descriptor_comes(c, p, "an ack of nothing");
}

static void run_unknown_interrupt(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_say(p, "{\"type\":\"interrupt\",\"session_key\":\"agent:main:relay:dm:conformance\","
                "\"reason\":null}");
    peer_hello(p);
    descriptor_comes(c, p, "an interrupt of a session that nobody runs");
}

/* ---- falling asleep ---- */

static bool idle_ack_comes(struct conform *c, struct peer *p, const char *after)
{
    bool there = json_type(peer_next(p, "going_idle_ack")) != JSON_ABSENT;

    return came(c, there, there ? "going_idle_ack after %s" : "no going_idle_ack after %s", after);
}

static void run_going_idle(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_say(p, "{\"type\":\"going_idle\"}");
    idle_ack_comes(c, p, "going_idle");
}

static void run_going_idle_twice(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_say(p, "{\"type\":\"going_idle\"}");
    if (json_type(peer_next(p, "going_idle_ack")) == JSON_ABSENT) {
        came(c, false, "no going_idle_ack");
        return;
    }
    peer_say(p, "{\"type\":\"going_idle\"}");
    idle_ack_comes(c, p, "a second going_idle");
}

static void run_result_while_idle(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_say(p, "{\"type\":\"going_idle\"}");
    if (json_type(must_fail(c, p, TO_NOBODY)) != JSON_ABSENT)
        came(c, true, "a result after going_idle");
}

static void run_hello_wakes(struct conform *c)
{
    struct peer *p = peer_open(c);

    if (p == NULL)
        return;
    peer_say(p, "{\"type\":\"going_idle\"}");
    if (json_type(peer_next(p, "going_idle_ack")) == JSON_ABSENT) {
        came(c, false, "no going_idle_ack");
        return;
    }
    peer_close(p, CLOSE_CODE_NORMAL);
    peer_closed(p);
    if (peer_open(c) != NULL)
        came(c, true, "the next dial is served");
}

/* ---- HTTP ---- */

static void run_policy(struct conform *c)
{
    struct conform_http rq = {.method = "POST",
                              .path = "/relay/policy",
                              .body = STR("{\"platform\":\"discord\",\"requireAddress\":false,"
                                          "\"freeResponseScopes\":[],\"allowOtherBots\":false}")};
    struct buf body = BUF_INIT;
    int status = 0;

    if (conform_http(c, &rq, &status, &body))
        came(c, status == 200, "HTTP %d", status);
    buf_done(&body);
}

/* A request without a token: refused, as JSON with an error. */
static void anonymous(struct conform *c, const char *path, struct str sent)
{
    struct conform_http rq = {.method = "POST", .path = path, .token = "", .body = sent};
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct json doc = {0};
    int status = 0;

    if (conform_http(c, &rq, &status, &body)) {
        bool json = json_parse(parser, buf_str(&body), &doc) && json_str(doc, "error").n > 0;
        if (status == 404 || status == 405 || status == 501)
            skip(c, "this connector does not serve %s (HTTP %d)", path, status);
        else
            came(c, status >= 400 && json, "HTTP %d%s", status,
                 json ? "" : ", and the body is no object with error");
    }
    buf_done(&body);
    json_parser_free(parser);
}

static void run_policy_anonymous(struct conform *c)
{
    anonymous(c, "/relay/policy", STR("{\"platform\":\"discord\"}"));
}

static void run_enroll_anonymous(struct conform *c)
{
    anonymous(c, "/relay/enroll", STR("{\"enrollmentToken\":\"x\",\"gatewayId\":\"conformance\"}"));
}

static void run_provision_anonymous(struct conform *c)
{
    anonymous(c, "/relay/provision",
              STR("{\"gatewayId\":\"conformance\",\"platform\":\"relay\",\"botId\":\"\","
                  "\"gatewayEndpoint\":\"\",\"routeKeys\":[]}"));
}

static void run_redirects(struct conform *c)
{
    static const char *const paths[] = {"/relay/enroll", "/relay/provision", "/relay/policy"};

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct conform_http rq = {.method = "POST",
                                  .path = paths[i],
                                  .token = "",
                                  .body = STR("{}")};
        struct buf body = BUF_INIT;
        int status = 0;
        bool ok = conform_http(c, &rq, &status, &body);
        buf_done(&body);
        if (!ok || status / 100 == 3) {
            came(c, false, "%s answered HTTP %d", paths[i], status);
            return;
        }
    }
    came(c, true, "no redirect");
}

static void run_provision_again(struct conform *c)
{
    struct buf first_id = c->id, first_secret = c->secret;
    char why[256];

    if (c->bearer.n == 0) {
        skip(c, "needs a bearer of the identity provider in --key-file");
        return;
    }
    c->id = c->secret = BUF_INIT;
    if (!conform_provision(c, why))
        came(c, false, "the second gateway: %s", why);
    else if (peer_open(c) != NULL)
        came(c, true, "both gateways may dial");
    buf_done(&c->id);
    buf_wipe(&c->secret);
    c->id = first_id;
    c->secret = first_secret;
}

#define FILE_BYTES "conformance \xf0\x9f\x9b\x8e"

/* Uploads a file.  False: came() or skip() was called. */
static bool upload(struct conform *c, struct buf *ret_path)
{
    struct conform_http rq = {.method = "POST",
                              .path = "/relay/media",
                              .type = "text/plain",
                              .body = STR(FILE_BYTES)};
    struct json_parser *parser = json_parser_new();
    struct buf body = BUF_INIT;
    struct json doc = {0};
    int status = 0;
    bool ok = conform_http(c, &rq, &status, &body);

    if (ok && (status == 404 || status == 405 || status == 501)) {
        skip(c, "this connector keeps no files (HTTP %d)", status);
        ok = false;
    } else if (ok) {
        ok = status / 100 == 2 && json_parse(parser, buf_str(&body), &doc) &&
             json_str(doc, "id").n > 0 &&
             json_i64(doc, "size", -1) == (int64_t)sizeof FILE_BYTES - 1;
        if (!ok)
            came(c, false, "HTTP %d: %.*s", status, (int)(body.n < 80 ? body.n : 80), buf_z(&body));
    }
    if (ok)
        buf_printf(ret_path, "/relay/media/%.*s", STR_FMT(json_str(doc, "id")));
    json_parser_free(parser);
    buf_done(&body);
    return ok;
}

static void run_media(struct conform *c)
{
    struct buf path = BUF_INIT, body = BUF_INIT;
    int status = 0;

    if (upload(c, &path)) {
        struct conform_http rq = {.method = "GET", .path = buf_z(&path)};
        if (conform_http(c, &rq, &status, &body))
            came(c, status == 200 && str_eq(buf_str(&body), STR(FILE_BYTES)),
                 "HTTP %d, %zu bytes of %zu", status, body.n, sizeof FILE_BYTES - 1);
    }
    buf_done(&path);
    buf_done(&body);
}

static void run_media_anonymous(struct conform *c)
{
    struct buf path = BUF_INIT, body = BUF_INIT;
    int status = 0;

    if (upload(c, &path)) {
        struct conform_http rq = {.method = "GET", .path = buf_z(&path), .token = ""};
        if (conform_http(c, &rq, &status, &body))
            came(c, status >= 400, "HTTP %d", status);
    }
    buf_done(&path);
    buf_done(&body);
}

/* ---- the table ---- */

#define CONNECTION "The connection"
#define FRAMING "Framing"
#define DESCRIPTOR "Descriptor fields"
#define EVENTS "Event fields"
#define SOURCE "Source fields"
#define RESULTS "Result fields"
#define OPERATIONS "Operations"
#define METADATA "Metadata fields"
#define IDLE "Falling asleep"
#define ROUTES "HTTP routes"

const struct obligation connector_obligations[] = {
    {"upgrade", CONNECTION, "a good token is answered with 101", .run = run_upgrade},
    {"no-token", CONNECTION, "without a token: 101, then close 4401", .run = run_no_token},
    {"wrong-signature", CONNECTION, "a wrong signature: 101, then close 4401",
     .run = run_wrong_signature},
    {"changed-expiry", CONNECTION, "the signature covers the expiry: 101, then close 4401",
     .run = run_changed_expiry},
    {"unknown-id", CONNECTION, "an unknown id is refused, by HTTP 401 or close 4401",
     .run = run_unknown_id},
    {"garbage-token", CONNECTION, "a bearer that is no token is refused", .run = run_garbage_token},
    {"expired-token", CONNECTION, "an expired token is refused, and not by 4401",
     .run = run_expired},
    {"other-path", CONNECTION, "an upgrade of another path is refused by an HTTP error",
     .run = run_other_path},
    {"ping", CONNECTION, "a ping is answered with a pong", .run = run_ping},
    {"close-answered", "Close codes", "a close is answered with a close",
     .run = run_close_answered},
    {"split-frames", FRAMING, "a frame may span several messages", .run = run_split},
    {"fragmented-message", FRAMING, "a message may come in fragments", .run = run_fragments},
    {"merged-frames", FRAMING, "a message may hold several frames", .run = run_merged},
    {"blank-lines", FRAMING, "blank lines and \\r\\n are accepted", .run = run_blank},
    {"escapes", FRAMING, "\\uXXXX escapes are read", .run = run_escapes},
    {"unknown-type", FRAMING, "frames of unknown types are ignored", .run = run_unknown_type},
    {"unknown-fields", FRAMING, "unknown fields are ignored", .run = run_unknown_fields},
    {"not-json", FRAMING, "one line that is no JSON does not end the socket", .run = run_not_json},
    {"descriptor-per-hello", "Frames from a gateway", "one descriptor per hello, repetitions too",
     .run = run_descriptor_per_hello},
    {"unknown-platform", "Frames from a gateway", "a hello for an unknown platform is answered",
     .run = run_unknown_platform},
    {"hello-again", "Frames from a gateway", "a second hello is answered", .run = run_hello_again},
    {"unknown-op", OPERATIONS, "an unknown op fails", .run = run_unknown_op},
    {"bad-action", OPERATIONS, "an outbound without an action fails", .run = run_bad_action},
    {"foreign-chat", METADATA, "a chat that was never delivered is refused",
     .run = run_foreign_chat},
    {"refusal-words", "Error words", "a refusal for good has no word that gateways retry on",
     .run = run_refusal_words},
    {"refused-again", "Error words", "the second try is refused in the same words",
     .run = run_refused_again},
    {"follow-up-unknown", OPERATIONS, "follow-ups without a capability fail in the same words",
     .run = run_follow_up},
    {"parallel-requests", RESULTS, "each of ten requests gets its result", .run = run_parallel},
    {"one-result", RESULTS, "a request gets one result", .run = run_one_result},
    {"request-id", RESULTS, "a result has the requestId unchanged", .run = run_request_id},
    {"early-request", RESULTS, "a request right behind the hello is answered",
     .run = run_early_request},
    {"unknown-ack", "Deliveries and acks", "an ack of an unknown delivery is harmless",
     .run = run_unknown_ack},
    {"unknown-interrupt", "Session keys", "an interrupt of an unknown session is harmless",
     .run = run_unknown_interrupt},
    {"going-idle", IDLE, "going_idle is answered with going_idle_ack", .run = run_going_idle},
    {"going-idle-twice", IDLE, "a second going_idle is answered too", .run = run_going_idle_twice},
    {"result-while-idle", IDLE, "requests are answered after going_idle",
     .run = run_result_while_idle},
    {"hello-wakes", IDLE, "a gateway that went to sleep may dial again", .run = run_hello_wakes},
    {"policy", ROUTES, "POST /relay/policy answers exactly 200", .run = run_policy},
    {"policy-anonymous", ROUTES, "POST /relay/policy without a token: 4xx with error",
     .run = run_policy_anonymous},
    {"enroll-anonymous", ROUTES, "POST /relay/enroll without a bearer: 4xx with error",
     .run = run_enroll_anonymous},
    {"provision-anonymous", ROUTES, "POST /relay/provision without a bearer: 4xx with error",
     .run = run_provision_anonymous},
    {"redirects", ROUTES, "no route answers with a redirect", .run = run_redirects},
    {"provision-again", ROUTES, "a caller may provision several gateways",
     .run = run_provision_again},
    {"media", "Media answers", "an uploaded file can be read back", .run = run_media},
    {"media-anonymous", "Media answers", "a file cannot be read without a token",
     .run = run_media_anonymous},
    /* The form of every frame, of these and of the obligations with a person. */
    {"lines", FRAMING, "every line is a JSON object with a type", .lint = LINT_LINES},
    {"complete-lines", FRAMING, "every line ends with a newline", .lint = LINT_COMPLETE},
    {"utf8", FRAMING, "every message is UTF-8", .lint = LINT_UTF8},
    {"message-size", FRAMING, "no message is over 1 MiB", .lint = LINT_SIZE},
    {"descriptor-fields", DESCRIPTOR, "the nine fields are always there",
     .lint = LINT_DESCRIPTOR_KEYS},
    {"descriptor-types", DESCRIPTOR, "each field has its type", .lint = LINT_DESCRIPTOR_TYPES},
    {"max-message-length", DESCRIPTOR, "max_message_length is a positive whole number",
     .lint = LINT_MAX_LENGTH},
    {"len-unit", DESCRIPTOR, "len_unit is chars or utf16", .lint = LINT_LEN_UNIT},
    {"contract-version", DESCRIPTOR, "contract_version is 1", .lint = LINT_VERSION},
    {"supported-ops", DESCRIPTOR, "supported_ops is a list of texts", .lint = LINT_OPS},
    {"result-form", RESULTS, "a result is an object with success", .lint = LINT_RESULT},
    {"result-error", RESULTS, "error is there exactly when success is false",
     .lint = LINT_RESULT_ERROR},
    {"result-asked", RESULTS, "a result belongs to a request", .lint = LINT_ASKED},
    {"event-object", EVENTS, "event is an object", .lint = LINT_EVENT_OBJECT},
    {"event-text", EVENTS, "text is a text, never null", .lint = LINT_TEXT},
    {"message-type", EVENTS, "message_type is a known word", .lint = LINT_MESSAGE_TYPE},
    {"media-urls", EVENTS, "media_urls is a list of texts", .lint = LINT_MEDIA},
    {"reply-to", EVENTS, "reply_to is an object or null", .lint = LINT_REPLY_TO},
    {"source-object", SOURCE, "source is an object", .lint = LINT_SOURCE_OBJECT},
    {"source-nulls", SOURCE, "platform, chat_id and chat_type are never null",
     .lint = LINT_SOURCE_NULLS},
    {"source-ids", SOURCE, "ids are texts", .lint = LINT_SOURCE_IDS},
    {"chat-type", SOURCE, "chat_type is a known word", .lint = LINT_CHAT_TYPE},
    {"scope-names", SOURCE, "guild_id and scope_id are both there and equal", .lint = LINT_SCOPE},
    {"buffer-id", "Frames to a gateway", "bufferId is a text that is not empty",
     .lint = LINT_BUFFER_ID},
    {"interrupt-form", "Frames to a gateway", "interrupt_inbound names session_key and chat_id",
     .lint = LINT_INTERRUPT},
    {"forward-form", "Forward fields", "forward is an object with bodyB64", .lint = LINT_FORWARD},
    {0},
};
