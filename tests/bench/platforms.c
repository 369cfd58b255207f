/* platforms.c - one message event on its way in: parse, event, frame bytes.
 *
 *      platforms FILE SECONDS [--show]     Discord's, from the file
 *      platforms slack SECONDS [--show]    Slack's webhook: its signature is verified first
 *      platforms whatsapp SECONDS [--show] WhatsApp's webhook: the same
 *      platforms email SECONDS [--show]    a mail: its author is proven first; GMime parses
 *
 * What the loop does for every message, without the sockets on both sides; platforms.js does the
 * same work with what Node has.  --show prints the frame once, so that the two can be compared. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "core/event.h"
#include "platform/discord/cache.h"
#include "platform/discord/normalize.h"
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/email/mime.h"
#include "platform/slack/normalize.h"
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

int main(int argc, char **argv)
{
    static char text[65536];
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
