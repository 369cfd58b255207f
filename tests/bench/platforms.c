/* platforms.c - one message event on its way in: parse, event, frame bytes.
 *
 *      platforms FILE SECONDS [--show]     Discord's, from the file
 *      platforms slack SECONDS [--show]    Slack's webhook: its signature is verified first
 *      platforms whatsapp SECONDS [--show] WhatsApp's webhook: the same
 *      platforms signal SECONDS [--show]   a line of signal-cli: nothing to verify
 *      platforms email SECONDS [--show]    a mail: its author is proven first; GMime parses
 *      platforms line SECONDS [--show]     LINE's webhook: its signature is verified first
 *      platforms hook SECONDS [--show]     a service of the configuration: the same
 *      platforms teams SECONDS [--show]    Teams' webhook: its token (RS256) is verified first
 *      platforms matrix SECONDS [--show]   an event of a room: nothing to verify
 *      platforms irc SECONDS [--show]      a line with tags: nothing to verify
 *
 * What the loop does for every message, without the sockets on both sides; platforms.js does the
 * same work with what Node has.  --show prints the frame once, so that the two can be compared. */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "core/event.h"
#include "core/jwt.h"
#include "platform/discord/cache.h"
#include "platform/discord/normalize.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/email/mime.h"
#include "platform/hook/inbound.h"
#include "platform/hook/sign.h"
#include "platform/irc/normalize.h"
#include "platform/line/inbound.h"
#include "platform/matrix/normalize.h"
#include "platform/signal/normalize.h"
#include "platform/slack/normalize.h"
#include "platform/teams/normalize.h"
#include "platform/teams/proof.h"
#include "platform/whatsapp/normalize.h"

static const char guild[] =
    "{\"id\":\"7700000000000000077\",\"name\":\"Hotel\",\"owner_id\":\"1\",\"roles\":[{\"id\":"
    "\"7700000000000000077\",\"permissions\":\"1024\"}],\"channels\":[{\"id\":"
    "\"1100000000000000100\",\"type\":0,\"name\":\"general\",\"topic\":\"all things\"}]}";

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t read_file(const char *path, char *to, size_t cap)
{
    FILE *f = fopen(path, "r");
    size_t n = f != NULL ? fread(to, 1, cap, f) : 0;

    if (f != NULL)
        fclose(f);
    return n;
}

static bool one(struct json_parser *p, struct dcache *cache, struct str text,
                struct discord_normalize_out *out, struct buf *frame, uint64_t id)
{
    struct json doc;

    if (!json_parse(p, text, &doc))
        return false;
    struct discord_normalize_in in = {.message = json_get(doc, "d"),
                                      .cache = cache,
                                      .bot = STR("app1"),
                                      .bot_user = STR("9000000000000000009")};
    if (discord_normalize(&in, out) != DISCORD_EVENT)
        return false;
    dcache_note_member(cache, out->guild_id, out->user_id, out->nick, out->roles);
    buf_reset(frame);
    event_write_frame(frame, &out->ev, &(struct hash128){.lo = id});
    return true;
}

/* ---- Slack ---- */

#define SLACK_SECRET STR("8f742231b10e8888abcd99yyyzzz85a5")
#define SLACK_AT "1700000000"

static const char slack_message[] =
    "{\"token\":\"XXYYZZXXYYZZXXYYZZXXYYZZ\",\"team_id\":\"T123ABC4567\",\"context_team_id\":"
    "\"T123ABC4567\",\"api_app_id\":\"A123ABC4567\",\"event\":{\"user\":\"U123ABC4567\",\"type\":"
    "\"message\",\"ts\":\"1700000000.000100\",\"client_msg_id\":\"0837851c-2d34-4d4d-804c-"
    "7aed753c3421\",\"text\":\"<@U0BOT12345> could you summarize what we said about the lobby?\","
    "\"team\":\"T123ABC4567\",\"thread_ts\":\"1699999999.000100\",\"parent_user_id\":"
    "\"U0BOT12345\",\"blocks\":[{\"type\":\"rich_text\",\"block_id\":\"YKju\",\"elements\":[{"
    "\"type\":\"rich_text_section\",\"elements\":[{\"type\":\"user\",\"user_id\":\"U0BOT12345\"},{"
    "\"type\":\"text\",\"text\":\" could you summarize what we said about the lobby?\"}]}]}],"
    "\"channel\":\"C123ABC4567\",\"event_ts\":\"1700000000.000100\",\"channel_type\":\"channel\"},"
    "\"type\":\"event_callback\",\"event_id\":\"Ev123ABC4567\",\"event_time\":1700000000,"
    "\"authorizations\":[{\"enterprise_id\":null,\"team_id\":\"T123ABC4567\",\"user_id\":"
    "\"U0BOT12345\",\"is_bot\":true,\"is_enterprise_install\":false}],\"is_ext_shared_channel\":"
    "false,\"event_context\":\"4-eyJldCI6Im1lc3NhZ2UiLCJ0aWQiOiJUMTIzQUJDNDU2NyJ9\"}";

static int run_slack(double seconds, bool show)
{
    static const struct slack_in in = {.bot = STR("A123ABC4567"), .bot_user = STR("U0BOT12345")};
    struct json_parser *p = json_parser_new();
    struct slack_out out = {0};
    struct arena arena = ARENA_INIT;
    struct buf frame = BUF_INIT, scratch = BUF_INIT, signature = BUF_INIT;
    struct str body = str_of(slack_message);
    uint8_t mac[SHA256_BYTES];
    uint64_t events = 0;
    struct json doc;

    buf_printf(&scratch, "v0:" SLACK_AT ":%s", slack_message);
    hmac_sha256(SLACK_SECRET, buf_str(&scratch), mac);
    buf_add_z(&signature, "v0=");
    hex_add(&signature, mac, sizeof mac);
    double begin = now_s(), at = begin;
    for (; at < begin + seconds; at = now_s())
        for (int i = 0; i < 1000; i++, events++) {
            arena_reset(&arena);
            if (!slack_signature_ok(SLACK_SECRET, STR(SLACK_AT), buf_str(&signature), body,
                                    INT64_C(1700000000000), &scratch) ||
                !json_parse(p, body, &doc) ||
                slack_normalize(doc, &in, &arena, &out) != SLACK_EVENT) {
                fprintf(stderr, "platforms: the message is no event\n");
                return 1;
            }
            buf_reset(&frame);
            event_write_frame(&frame, &out.ev, &(struct hash128){.lo = events});
        }
    if (show)
        fwrite(frame.p, 1, frame.n, stdout);
    else
        printf(
            "{\"events\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"bytes_in\":%zu,\"bytes_out\":%zu}\n",
            (unsigned long long)events, at - begin, (double)events / (at - begin), body.n, frame.n);
    slack_out_done(&out);
    arena_done(&arena);
    buf_done(&frame);
    buf_done(&scratch);
    buf_done(&signature);
    json_parser_free(p);
    return 0;
}

/* ---- WhatsApp ---- */

#define WHATSAPP_SECRET STR("8f742231b10e8888abcd99eeeaaa85a5")

static const char whatsapp_message[] =
    "{\"object\":\"whatsapp_business_account\",\"entry\":[{\"id\":\"102290129340398\",\"changes\":["
    "{"
    "\"value\":{\"messaging_product\":\"whatsapp\",\"metadata\":{\"display_phone_number\":"
    "\"15550783881\",\"phone_number_id\":\"106540352242922\"},\"contacts\":[{\"profile\":{\"name\":"
    "\"Sheena Nelson\"},\"wa_id\":\"16505551234\",\"user_id\":\"US.13491208655302741918\"}],"
    "\"messages\":[{\"context\":{\"from\":\"15550783881\",\"id\":\"wamid."
    "HBgLMTY0NjcwNDM1OTUVAgARGBI1"
    "RjQyNUE3NEYxMzAzMzQ5MkEA\"},\"from\":\"16505551234\",\"from_user_id\":"
    "\"US.13491208655302741918\",\"id\":\"wamid."
    "HBgLMTY1MDM4Nzk0MzkVAgASGBQzQTRBNjU5OUFFRTAzODEwMTQ0"
    "RgA=\",\"timestamp\":\"1749416383\",\"type\":\"text\",\"text\":{\"body\":\"Could you "
    "summarize "
    "what we said about the lobby?\"}}]},\"field\":\"messages\"}]}]}";

static int run_whatsapp(double seconds, bool show)
{
    static const struct wa_in in = {.bot = STR("106540352242922")};
    static struct wa_out out;
    struct json_parser *p = json_parser_new();
    struct arena arena = ARENA_INIT;
    struct buf frame = BUF_INIT, signature = BUF_INIT;
    struct str body = str_of(whatsapp_message);
    uint8_t mac[SHA256_BYTES];
    uint64_t events = 0;
    struct wa_item it;
    struct json doc;

    hmac_sha256(WHATSAPP_SECRET, body, mac);
    buf_add_z(&signature, "sha256=");
    hex_add(&signature, mac, sizeof mac);
    double begin = now_s(), at = begin;
    for (; at < begin + seconds; at = now_s())
        for (int i = 0; i < 1000; i++) {
            if (!wa_signature_ok(WHATSAPP_SECRET, buf_str(&signature), body) ||
                !json_parse(p, body, &doc) || !wa_is_webhook(doc)) {
                fprintf(stderr, "platforms: the webhook is refused\n");
                return 1;
            }
            arena_reset(&arena);
            for (struct wa_walk walk = {.body = doc}; wa_next(&walk, &it); events++) {
                if (wa_normalize(&it, &in, &arena, &out) != WA_EVENT)
                    return 1;
                buf_reset(&frame);
                event_write_frame(&frame, &out.ev, &(struct hash128){.lo = events});
            }
        }
    if (show)
        fwrite(frame.p, 1, frame.n, stdout);
    else
        printf(
            "{\"events\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"bytes_in\":%zu,\"bytes_out\":%zu}\n",
            (unsigned long long)events, at - begin, (double)events / (at - begin), body.n, frame.n);
    arena_done(&arena);
    buf_done(&frame);
    buf_done(&signature);
    json_parser_free(p);
    return 0;
}

/* ---- a mail ---- */

static const char mail_message[] =
    "Return-Path: <alice@people.example>\r\nAuthentication-Results: mx.our.example;\r\n"
    "\tdkim=pass header.d=people.example header.s=s1;\r\n\tdmarc=pass header.from=people.example"
    "\r\nReceived: from mail.people.example by mx.our.example with ESMTPS id 1; Mon, 16 Nov 2026 "
    "22:00:00 +0000\r\nFrom: Alice <alice@people.example>\r\nTo: desk@our.example\r\nSubject: Re: "
    "the lobby\r\nDate: Mon, 16 Nov 2026 22:00:00 +0000\r\nMessage-ID: <1@people.example>\r\n"
    "In-Reply-To: <0@our.example>\r\nReferences: <0@our.example>\r\nMIME-Version: 1.0\r\n"
    "Content-Type: multipart/alternative; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain; "
    "charset=utf-8\r\n\r\nCould you summarize what we said about the lobby?\r\n\r\nOn Monday, "
    "desk@our.example wrote:\r\n> It is open.\r\n--b\r\nContent-Type: text/html; charset=utf-8"
    "\r\n\r\n<p>Could you summarize what we said about the lobby?</p>\r\n--b--\r\n";

static int run_email(double seconds, bool show)
{
    struct auth_list *suffixes = auth_list_load();
    struct mail_rules rules = {.bot = STR("desk@our.example"),
                               .authserv_id = STR("mx.our.example"),
                               .suffixes = suffixes};
    struct str body = str_of(mail_message);
    struct buf frame = BUF_INIT;
    struct mail m = {0};
    struct event ev;
    uint64_t events = 0;

    double begin = now_s(), at = begin;
    for (; at < begin + seconds; at = now_s())
        for (int i = 0; i < 100; i++, events++) {
            mail_read(&m, body, &rules);
            if (m.refused != NULL) {
                fprintf(stderr, "platforms: the mail is refused: %s\n", m.refused);
                return 1;
            }
            mail_event(&m, &ev);
            buf_reset(&frame);
            event_write_frame(&frame, &ev, &(struct hash128){.lo = events});
            mail_done(&m);
        }
    if (show)
        fwrite(frame.p, 1, frame.n, stdout);
    else
        printf(
            "{\"events\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"bytes_in\":%zu,\"bytes_out\":%zu}\n",
            (unsigned long long)events, at - begin, (double)events / (at - begin), body.n, frame.n);
    buf_done(&frame);
    auth_list_free(suffixes);
    return 0;
}

/* ---- Signal ---- */

static const char signal_message[] =
    "{\"jsonrpc\":\"2.0\",\"method\":\"receive\",\"params\":{\"subscription\":0,\"result\":{"
    "\"envelope\":{\"source\":\"+15551230001\",\"sourceNumber\":\"+15551230001\",\"sourceUuid\":"
    "\"9d0652a3-dcc3-4d11-975f-74d61598733f\",\"sourceName\":\"Ann\",\"sourceDevice\":1,"
    "\"timestamp\":1693064367769,\"serverReceivedTimestamp\":1693064367801,"
    "\"serverDeliveredTimestamp\":1693064367802,\"dataMessage\":{\"timestamp\":1693064367769,"
    "\"message\":\"Could you book the blue room for Friday at three, for six people?\","
    "\"expiresInSeconds\":0,\"isExpirationUpdate\":false,\"viewOnce\":false,\"groupInfo\":{"
    "\"groupId\":\"Pmpi+EfPWmsxiomLe9Nx2XF9HOE483p6iKiFj65iMwI=\",\"groupName\":\"Office\","
    "\"revision\":4,\"type\":\"DELIVER\"}}},\"account\":\"+15550001000\"}}}";

static int run_signal(double seconds, bool show)
{
    static const struct signal_in in = {.bot = STR("+15550001000")};
    static struct signal_out out;
    struct json_parser *p = json_parser_new();
    struct arena arena = ARENA_INIT;
    struct buf frame = BUF_INIT;
    struct str body = str_of(signal_message);
    uint64_t events = 0;
    struct json doc;

    double begin = now_s(), at = begin;
    for (; at < begin + seconds; at = now_s())
        for (int i = 0; i < 1000; i++, events++) {
            arena_reset(&arena);
            if (!json_parse(p, body, &doc) ||
                signal_normalize(json_get(json_get(doc, "params"), "result"), &in, &arena, &out) !=
                    SIGNAL_EVENT) {
                fprintf(stderr, "platforms: the line is no event\n");
                return 1;
            }
            buf_reset(&frame);
            event_write_frame(&frame, &out.ev, &(struct hash128){.lo = events});
        }
    if (show)
        fwrite(frame.p, 1, frame.n, stdout);
    else
        printf(
            "{\"events\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"bytes_in\":%zu,\"bytes_out\":%zu}\n",
            (unsigned long long)events, at - begin, (double)events / (at - begin), body.n, frame.n);
    arena_done(&arena);
    buf_done(&frame);
    json_parser_free(p);
    return 0;
}

/* ---- LINE, hook, Teams, Matrix, IRC ---- */

/* One message on its way in: verified, and made an event.  False: refused. */
typedef bool read_fn(struct event *ret);

static struct json_parser *parser, *inner;
static struct arena scratch_arena = ARENA_INIT;
static struct str input;
static struct buf shown = BUF_INIT; /* the signature, or the token */

static int run(read_fn *read, double seconds, bool show)
{
    struct buf frame = BUF_INIT;
    struct event ev;
    uint64_t events = 0;

    double begin = now_s(), at = begin;
    for (; at < begin + seconds; at = now_s())
        for (int i = 0; i < 100; i++, events++) {
            arena_reset(&scratch_arena);
            if (!read(&ev)) {
                fprintf(stderr, "platforms: the message is no event\n");
                return 1;
            }
            buf_reset(&frame);
            event_write_frame(&frame, &ev, &(struct hash128){.lo = events});
        }
    if (show)
        fwrite(frame.p, 1, frame.n, stdout);
    else
        printf(
            "{\"events\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"bytes_in\":%zu,\"bytes_out\":%zu}\n",
            (unsigned long long)events, at - begin, (double)events / (at - begin), input.n,
            frame.n);
    buf_done(&frame);
    return 0;
}

static const char line_message[] =
    "{\"destination\":\"Ubbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\",\"events\":[{\"type\":\"message\","
    "\"mode\":\"active\",\"timestamp\":1462629479859,\"source\":{\"type\":\"user\",\"userId\":"
    "\"Uaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"},\"replyToken\":\"nHuyWiB7yP5Zw52FIkcQobQuGDXCTA\","
    "\"webhookEventId\":\"01FZ74A0TDDPYRVKNK77XKC3ZR\",\"deliveryContext\":{\"isRedelivery\":false}"
    ","
    "\"message\":{\"id\":\"444573844083572737\",\"type\":\"text\",\"quoteToken\":\"q3Plxr4AgKd\","
    "\"text\":\"Could you summarize what we said about the lobby?\"}}]}";

#define LINE_SECRET STR("8f742231b10e8888abcd99eeeaaa85a5")

static bool read_line(struct event *ret)
{
    static struct line_out out;
    struct json_iter it = {0};
    struct json doc;

    if (!line_signature_ok(LINE_SECRET, input, buf_str(&shown)) ||
        !json_parse(parser, input, &doc) || !json_next(json_get(doc, "events"), &it) ||
        line_normalize(it.value, STR("Ubbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"), &out) != WEBHOOK_EVENT)
        return false;
    *ret = out.ev;
    return true;
}

static int run_line(double seconds, bool show)
{
    uint8_t mac[SHA256_BYTES];

    input = str_of(line_message);
    hmac_sha256(LINE_SECRET, input, mac);
    base64_add(&shown, mac, sizeof mac);
    return run(read_line, seconds, show);
}

static const char hook_message[] =
    "{\"event\":\"message_created\",\"id\":4711,\"content\":\"Could you summarize what we said "
    "about "
    "the lobby?\",\"message_type\":\"incoming\",\"private\":false,\"conversation\":{\"id\":77},"
    "\"sender\":{\"id\":5,\"name\":\"Ann\",\"type\":\"contact\"},\"account\":{\"id\":1}}";

#define OWN(text) ((char[]){text})
static char *skips[] = {OWN("/message_type!=incoming"), NULL};
static struct hook_settings hook_cfg = {
    .verify = {.hmac = HOOK_SHA256,
               .encoding = HOOK_HEX,
               .secret_encoding = HOOK_AS_TEXT,
               .header = OWN("X-Signature"),
               .secret = OWN("8f742231b10e8888abcd99eeeaaa85a5"),
               .prefix = OWN("sha256="),
               .covers = OWN("{body}")},
    .map = {.text = OWN("/content"),
            .chat_id = OWN("/conversation/id"),
            .user_id = OWN("/sender/id"),
            .user_name = OWN("/sender/name"),
            .event_id = OWN("/id"),
            .skip_if = skips},
};
static struct buf hook_secret = BUF_INIT;

static bool read_hook(struct event *ret)
{
    static struct hook_out out;
    struct template_values v = {0};
    struct json doc;

    v.of[TEMPLATE_BODY] = input;
    if (!hook_signature_ok(&hook_cfg.verify, buf_str(&hook_secret), &v, buf_str(&shown), 0) ||
        !json_parse(parser, input, &doc) ||
        hook_normalize(&hook_cfg, STR("desk"), doc, input, inner, &out) != WEBHOOK_EVENT)
        return false;
    *ret = out.ev;
    return true;
}

static int run_hook(double seconds, bool show)
{
    struct template_values v = {0};

    input = str_of(hook_message);
    v.of[TEMPLATE_BODY] = input;
    if (!hook_key(&hook_cfg.verify, &hook_secret) ||
        !hook_signature(&hook_cfg.verify, buf_str(&hook_secret), &v, &shown))
        return 1;
    return run(read_hook, seconds, show);
}

#define TEAMS_APP "00001111-aaaa-2222-bbbb-3333cccc4444"
#define TEAMS_URL "https://smba.trafficmanager.net/amer/"

static const char teams_message[] =
    "{\"type\":\"message\",\"id\":\"1485983408511\",\"timestamp\":\"2026-11-18T06:00:00.123Z\","
    "\"serviceUrl\":\"" TEAMS_URL "\",\"channelId\":\"msteams\",\"from\":{\"id\":\"29:1XJKJMvc5\","
    "\"name\":\"Ann\",\"aadObjectId\":\"00000001-1111-2222-3333-444444444444\"},\"conversation\":{"
    "\"conversationType\":\"personal\",\"tenantId\":\"aaaabbbb-0000-cccc-1111-dddd2222eeee\","
    "\"id\":"
    "\"a:"
    "17I0kl8EkpE1O9PH5TWrzrLNwnWWcfrU7QZjKR0WSfOpzbfcAg2IaydGElSo10tVr4C7Fc6GtieTJX663WuJCc1uA83n4C"
    "SrHSgGBj"
    "5XNYLcVlJAs2ZX8DbYBPck201w-\"},\"recipient\":{\"id\":\"28:" TEAMS_APP
    "\",\"name\":\"Bellhop\"},"
    "\"text\":\"Could you summarize what we said about the "
    "lobby?\",\"textFormat\":\"plain\",\"locale\":"
    "\"en-US\",\"channelData\":{\"tenant\":{\"id\":\"aaaabbbb-0000-cccc-1111-dddd2222eeee\"}},"
    "\"entities\":[{\"locale\":\"en-US\",\"country\":\"US\",\"platform\":\"Web\",\"type\":"
    "\"clientInfo\"}]}";

static struct jwt_keys *teams_keys;

static bool read_teams(struct event *ret)
{
    static const struct teams_self self = {.app = STR(TEAMS_APP)};
    static const struct teams_in in = {.bot = STR(TEAMS_APP)};
    static struct teams_out out;
    struct json doc;
    struct jwt t;

    bool ok = jwt_read(buf_str(&shown), &t) && jwt_verify(&t, teams_keys, 1000) == JWT_OK &&
              json_parse(parser, input, &doc) &&
              teams_claims_wrong(t.claims, teams_issuer_of(t.claims, &self), &self,
                                 json_str(doc, "serviceUrl")) == NULL;
    jwt_done(&t);
    if (!ok || teams_normalize(doc, &in, &scratch_arena, &out) != TEAMS_EVENT)
        return false;
    *ret = out.ev;
    return true;
}

static int run_teams(double seconds, bool show)
{
    static const char head[] = "{\"alg\":\"RS256\",\"typ\":\"JWT\"}",
                      claims[] = "{\"iss\":\"" TEAMS_CONNECTOR_ISSUER "\",\"aud\":\"" TEAMS_APP
                                 "\",\"serviceurl\":\"" TEAMS_URL "\",\"nbf\":900,\"exp\":4500}";
    EVP_PKEY *key = EVP_RSA_gen(2048);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    BIO *bio = BIO_new(BIO_s_mem());
    uint8_t signature[256];
    size_t n = sizeof signature;
    char *pem;

    input = str_of(teams_message);
    base64url_add(&shown, head, sizeof head - 1);
    buf_add_c(&shown, '.');
    base64url_add(&shown, claims, sizeof claims - 1);
    if (PEM_write_bio_PUBKEY(bio, key) != 1 ||
        EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) != 1 ||
        EVP_DigestSign(ctx, signature, &n, (const uint8_t *)shown.p, shown.n) != 1)
        return 1;
    buf_add_c(&shown, '.');
    base64url_add(&shown, signature, n);
    long pem_n = BIO_get_mem_data(bio, &pem);
    teams_keys = jwt_keys_new();
    if (!jwt_keys_add_pem(teams_keys, str_make(pem, (size_t)pem_n)))
        return 1;
    BIO_free(bio);
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return run(read_teams, seconds, show);
}

static const char matrix_event[] = "{\"type\":\"m.room.message\",\"event_id\":\"$h29iv0s8:example."
                                   "org\",\"sender\":\"@ann:example.org\","
                                   "\"origin_server_ts\":1700000000000,\"unsigned\":{\"age\":1234},"
                                   "\"content\":{\"msgtype\":\"m.text\","
                                   "\"body\":\"desk: could you summarize what we said about the "
                                   "lobby?\",\"m.mentions\":{\"user_ids\":["
                                   "\"@desk:example.org\"]}}}";

static bool read_matrix(struct event *ret)
{
    static const struct mx_self self = {.id = STR("@desk:example.org"), .name = STR("desk")};
    static const struct mx_in in = {.bot = STR("@desk:example.org"),
                                    .server = STR("example.org"),
                                    .self = &self,
                                    .n_self = 1,
                                    .room = STR("!lobby:example.org"),
                                    .room_name = STR("Lobby"),
                                    .author_name = STR("Ann")};
    static struct mx_out out;
    struct json doc;

    if (!json_parse(parser, input, &doc) ||
        mx_normalize(doc, &in, &scratch_arena, &out) != MX_EVENT)
        return false;
    *ret = out.ev;
    return true;
}

static const char irc_message[] = "@time=2026-11-18T02:30:00.123Z;msgid=sx2Kq9bN8Zr;account=ann "
                                  ":ann!a@host.example PRIVMSG #lobby "
                                  ":desk: could you summarize what we said about the lobby?";

static bool read_irc(struct event *ret)
{
    static const struct irc_in in = {.bot = STR("desk@net"),
                                     .network = STR("net"),
                                     .nick = STR("desk"),
                                     .chantypes = STR("#"),
                                     .statusmsg = STR("@+"),
                                     .has_accounts = true,
                                     .has_tags = true};
    struct irc_line l;
    struct irc_out out;

    if (!irc_parse(input, &l) ||
        irc_normalize(&l, &in, STR("1"), &scratch_arena, &out) != IRC_EVENT)
        return false;
    *ret = out.ev;
    return true;
}

static int run_named(const char *name, double seconds, bool show)
{
    parser = json_parser_new();
    inner = json_parser_new();
    if (strcmp(name, "line") == 0)
        return run_line(seconds, show);
    if (strcmp(name, "hook") == 0)
        return run_hook(seconds, show);
    if (strcmp(name, "teams") == 0)
        return run_teams(seconds, show);
    input = strcmp(name, "irc") == 0 ? str_of(irc_message) : str_of(matrix_event);
    return run(strcmp(name, "irc") == 0 ? read_irc : read_matrix, seconds, show);
}

int main(int argc, char **argv)
{
    static char text[65536];
    static const char *const named[] = {"line", "hook", "teams", "matrix", "irc"};
    for (size_t i = 0; argc > 2 && i < ARRAY_LEN(named); i++)
        if (strcmp(argv[1], named[i]) == 0)
            return run_named(named[i], atof(argv[2]), argc > 3);
    if (argc > 2 && strcmp(argv[1], "signal") == 0)
        return run_signal(atof(argv[2]), argc > 3);
    if (argc > 2 && strcmp(argv[1], "email") == 0)
        return run_email(atof(argv[2]), argc > 3);
    if (argc > 2 && strcmp(argv[1], "whatsapp") == 0)
        return run_whatsapp(atof(argv[2]), argc > 3);
    if (argc > 2 && strcmp(argv[1], "slack") == 0)
        return run_slack(atof(argv[2]), argc > 3);
    struct json_parser *p = json_parser_new();
    struct dcache *cache = dcache_new(NULL);
    struct discord_normalize_out out = {0};
    struct buf frame = BUF_INIT;
    struct json doc;
    size_t n = argc > 2 ? read_file(argv[1], text, sizeof text) : 0;
    uint64_t events = 0;

    if (n == 0 || !json_parse(p, str_of(guild), &doc)) {
        fprintf(stderr, "usage: platforms FILE SECONDS [--show]\n");
        return 2;
    }
    dcache_put_guild(cache, doc);
    double begin = now_s(), end = begin + atof(argv[2]), at = begin;
    while (at < end) {
        for (int i = 0; i < 1000; i++)
            if (!one(p, cache, str_make(text, n), &out, &frame, ++events)) {
                fprintf(stderr, "platforms: the message is no event\n");
                return 1;
            }
        at = now_s();
    }
    if (argc > 3)
        fwrite(frame.p, 1, frame.n, stdout);
    else
        printf(
            "{\"events\":%llu,\"seconds\":%.6f,\"rate\":%.1f,\"bytes_in\":%zu,\"bytes_out\":%zu}\n",
            (unsigned long long)events, at - begin, (double)events / (at - begin), n, frame.n);
    discord_normalize_done(&out);
    buf_done(&frame);
    dcache_free(cache);
    json_parser_free(p);
    return 0;
}
