/* edge.c - signed webhooks, as fast as they go.
 *
 *      edge raw SECONDS                        Ed25519 verifications of OpenSSL alone, on one core
 *      edge discord|twilio|wecom PORT SECONDS CONNECTIONS
 *
 * Every request is another event, rightly signed before the clock starts; each connection sends
 * one, waits for its 200, sends the next.  Prints one JSON object. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "edge/form.h"
#include "load.h"
#include "platform/twilio/inbound.h"
#include "platform/wecom/inbound.h"

#define AUTH_TOKEN STR("bench-auth-token")
#define TWILIO_URL "https://bench.example/webhooks/twilio/+15550100"
#define WECOM_TOKEN STR("bench-token")
#define WECOM_KEY STR("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
#define WECOM_CORP "bench"

static uint8_t seed[32]; /* all zeros: the server is configured with its public key */

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- Discord ---- */

static void sign(EVP_PKEY *key, struct str message, struct buf *hex)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    uint8_t sig[64];
    size_t n = sizeof sig;

    if (EVP_DigestSignInit(ctx, NULL, NULL, NULL, key) != 1 ||
        EVP_DigestSign(ctx, sig, &n, (const uint8_t *)message.p, message.n) != 1)
        die("cannot sign");
    hex_add(hex, sig, n);
    EVP_MD_CTX_free(ctx);
}

static void interaction(uint64_t i, struct buf *out)
{
    buf_printf(
        out,
        "{\"id\":\"%llu\",\"application_id\":\"900\",\"type\":2,\"token\":\"aW50ZXJhY3Rpb246%llu-"
        "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789\","
        "\"version\":1,\"channel_id\":\"100000000000000100\",\"guild_id\":\"770000000000000077\","
        "\"channel\":{\"id\":\"100000000000000100\",\"type\":0,\"name\":\"general\"},\"member\":{"
        "\"user\":{\"id\":\"420000000000000042\",\"username\":\"ann\",\"global_name\":\"Ann\"},"
        "\"roles\":[],\"permissions\":\"1024\"},\"locale\":\"en-US\",\"data\":{\"id\":\"5\","
        "\"name\":"
        "\"ask\",\"type\":1,\"options\":[{\"name\":\"what\",\"type\":3,\"value\":\"the "
        "answer\"}]}}",
        (unsigned long long)(990000000000000000ull + i), (unsigned long long)i);
}

static void make_discord(uint64_t i, struct buf *out)
{
    static EVP_PKEY *key;
    struct buf body = BUF_INIT, message = BUF_INIT, sig = BUF_INIT;
    long now = (long)time(NULL);

    if (key == NULL)
        key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof seed);
    interaction(i, &body);
    buf_printf(&message, "%ld", now);
    buf_add_str(&message, buf_str(&body));
    sign(key, buf_str(&message), &sig);
    buf_printf(
        out,
        "POST /webhooks/discord/900 HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\n"
        "X-Signature-Timestamp: %ld\r\nX-Signature-Ed25519: %s\r\nContent-Length: %zu\r\n\r\n",
        now, buf_z(&sig), body.n);
    buf_add_str(out, buf_str(&body));
    buf_done(&body);
    buf_done(&message);
    buf_done(&sig);
}

static int raw(double seconds)
{
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof seed);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    struct buf message = BUF_INIT, hex = BUF_INIT;
    uint8_t sig[64];
    uint64_t n = 0;

    buf_add_z(&message, "1800000000");
    interaction(0, &message);
    sign(key, buf_str(&message), &hex);
    if (!hex_decode(buf_str(&hex), sig, sizeof sig))
        die("cannot sign");
    double began = now_s(), took;
    while ((took = now_s() - began) < seconds) {
        EVP_MD_CTX_reset(ctx);
        if (EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key) != 1 ||
            EVP_DigestVerify(ctx, sig, sizeof sig, (const uint8_t *)message.p, message.n) != 1)
            die("cannot verify");
        n++;
    }
    printf("{\"events\":%llu,\"seconds\":%.3f,\"rate\":%.1f}\n", (unsigned long long)n, took,
           (double)n / took);
    return 0;
}

/* ---- Twilio ---- */

static void make_twilio(uint64_t i, struct buf *out)
{
    static struct form f;
    struct buf body = BUF_INIT, sig = BUF_INIT;

    buf_printf(
        &body,
        "ToCountry=US&SmsMessageSid=SM%032llx&NumMedia=0&FromZip=10115&SmsStatus=received&Body="
        "hello+number+%llu&FromCountry=DE&To=%%2B15550100&NumSegments=1&MessageSid=SM%032llx&"
        "AccountSid=ACbench&From=%%2B15551234567&ApiVersion=2010-04-01",
        (unsigned long long)i, (unsigned long long)i, (unsigned long long)i);
    if (!form_parse(&f, buf_str(&body)))
        die("not a form");
    form_sort(&f);
    twilio_signature(AUTH_TOKEN, STR(TWILIO_URL), &f, &sig);
    buf_printf(out,
               "POST /webhooks/twilio/+15550100 HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
               "application/x-www-form-urlencoded; charset=utf-8\r\nX-Twilio-Signature: %s\r\n"
               "Content-Length: %zu\r\n\r\n",
               buf_z(&sig), body.n);
    buf_add_str(out, buf_str(&body));
    buf_done(&body);
    buf_done(&sig);
}

/* ---- WeCom ---- */

static void encrypt(struct str message, struct buf *out)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    struct buf plain = BUF_INIT, sealed = BUF_INIT;
    uint8_t key[WECOM_KEY_BYTES], head[20] = {0};
    int n = 0;

    if (!wecom_key_parse(WECOM_KEY, key))
        die("not a key");
    head[18] = (uint8_t)(message.n >> 8);
    head[19] = (uint8_t)message.n;
    buf_add(&plain, head, sizeof head);
    buf_add_str(&plain, message);
    buf_add_z(&plain, WECOM_CORP);
    size_t pad = 32 - plain.n % 32;
    for (size_t i = 0; i < pad; i++)
        buf_add_c(&plain, (char)pad);
    uint8_t *to = (uint8_t *)buf_room(&sealed, plain.n + 32);
    EVP_EncryptInit_ex(ctx, EVP_aes_256_cbc(), NULL, key, key);
    EVP_CIPHER_CTX_set_padding(ctx, 0);
    if (EVP_EncryptUpdate(ctx, to, &n, (const uint8_t *)plain.p, (int)plain.n) != 1)
        die("cannot encrypt");
    base64_add(out, to, (size_t)n);
    EVP_CIPHER_CTX_free(ctx);
    buf_done(&plain);
    buf_done(&sealed);
}

static void make_wecom(uint64_t i, struct buf *out)
{
    struct buf message = BUF_INIT, sealed = BUF_INIT, body = BUF_INIT;
    char time_text[24], sig[41];

    buf_printf(
        &message,
        "<xml><ToUserName><![CDATA[" WECOM_CORP "]]></ToUserName><FromUserName><![CDATA[ann]]>"
        "</FromUserName><CreateTime>1348831860</CreateTime><MsgType><![CDATA[text]]></MsgType>"
        "<Content><![CDATA[hello number %llu]]></Content><MsgId>%llu</MsgId><AgentID>1</AgentID>"
        "</xml>",
        (unsigned long long)i, (unsigned long long)i + 1);
    encrypt(buf_str(&message), &sealed);
    snprintf(time_text, sizeof time_text, "%ld", (long)time(NULL));
    wecom_signature(WECOM_TOKEN, str_of(time_text), STR("77"), buf_str(&sealed), sig);
    buf_printf(&body,
               "<xml><ToUserName><![CDATA[" WECOM_CORP
               "]]></ToUserName><AgentID><![CDATA[1]]></AgentID>"
               "<Encrypt><![CDATA[%s]]></Encrypt></xml>",
               buf_z(&sealed));
    buf_printf(out,
               "POST /webhooks/wecom/1?msg_signature=%s&timestamp=%s&nonce=77 HTTP/1.1\r\nHost: "
               "localhost\r\n"
               "Content-Type: text/xml\r\nContent-Length: %zu\r\n\r\n",
               sig, time_text, body.n);
    buf_add_str(out, buf_str(&body));
    buf_done(&message);
    buf_done(&sealed);
    buf_done(&body);
}

/* ---- the load ---- */

struct bench {
    struct buf requests; /* one after the other */
    size_t *ends;
    size_t n, at;
    double *sent_s; /* per connection */
    float *took_us; /* per answer */
    size_t answered;
    int epoll;
};

static void make_all(struct bench *b, void (*make)(uint64_t, struct buf *), size_t n)
{
    uint64_t first = (uint64_t)time(NULL) % 1000000 * 1000000; /* another run, other events */

    b->ends = xcalloc(n, sizeof *b->ends);
    b->took_us = xcalloc(n, sizeof *b->took_us);
    b->requests.limit = (size_t)1 << 30;
    for (b->n = 0; b->n < n; b->n++) {
        make(first + b->n, &b->requests);
        b->ends[b->n] = b->requests.n;
    }
}

static bool send_next(struct bench *b, struct conn *c)
{
    if (b->at == b->n)
        return false;
    size_t from = b->at > 0 ? b->ends[b->at - 1] : 0;
    b->sent_s[c->index] = now_s();
    bench_conn_send(c, b->epoll, b->requests.p + from, b->ends[b->at] - from);
    b->at++;
    return true;
}

/* One whole answer at the front of what came; returns its bytes, 0: not yet. */
static size_t answer_bytes(const struct bytes *in)
{
    const char *end = in->n > 0 ? memmem(in->p, in->n, "\r\n\r\n", 4) : NULL;
    const char *length = end != NULL ? memmem(in->p, in->n, "ontent-Length: ", 15) : NULL;

    if (end == NULL)
        return 0;
    size_t total = (size_t)(end + 4 - (const char *)in->p);
    if (length != NULL)
        total += strtoul(length + 15, NULL, 10);
    if (in->n < total)
        return 0;
    if (memcmp(in->p, "HTTP/1.1 200", 12) != 0)
        die("answered: %.*s", (int)(in->n < 200 ? in->n : 200), (const char *)in->p);
    return total;
}

static void on_readable(struct bench *b, struct conn *c, bool go_on)
{
    uint8_t room[8192];
    ssize_t got = recv(c->fd, room, sizeof room, MSG_DONTWAIT);

    if (got == 0)
        die("the server closed a connection");
    if (got < 0)
        return;
    bytes_add(&c->in, room, (size_t)got);
    for (size_t n; (n = answer_bytes(&c->in)) > 0;) {
        bytes_drop(&c->in, n);
        b->took_us[b->answered++] = (float)((now_s() - b->sent_s[c->index]) * 1e6);
        if (go_on)
            send_next(b, c);
    }
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static int load(const char *platform, int port, double seconds, uint32_t conns)
{
    struct bench b = {.epoll = epoll_create1(EPOLL_CLOEXEC)};
    struct conn *all = xcalloc(conns, sizeof *all);
    bool discord = strcmp(platform, "discord") == 0, twilio = strcmp(platform, "twilio") == 0;

    make_all(&b,
             discord  ? make_discord
             : twilio ? make_twilio
                      : make_wecom,
             (size_t)((discord ? 20000 : 60000) * seconds) + conns);
    b.sent_s = xcalloc(conns, sizeof *b.sent_s);
    for (uint32_t i = 0; i < conns; i++) {
        all[i].index = i;
        bench_conn_connect(&all[i], b.epoll, port);
    }
    double began = now_s(), took = 0;
    for (uint32_t i = 0; i < conns; i++)
        send_next(&b, &all[i]);
    while (b.answered < b.at) {
        struct epoll_event events[256];
        int n = epoll_wait(b.epoll, events, 256, 5000);
        if (n == 0)
            die("no answer for five seconds");
        took = now_s() - began;
        for (int i = 0; i < n; i++) {
            struct conn *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                bench_conn_flush(c, b.epoll);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                on_readable(&b, c, took < seconds);
        }
    }
    took = now_s() - began;
    qsort(b.took_us, b.answered, sizeof b.took_us[0], by_size);
    printf("{\"events\":%zu,\"seconds\":%.3f,\"rate\":%.1f,\"p50_us\":%.0f,\"p99_us\":%.0f,\"max_"
           "us\":%.0f}\n",
           b.answered, took, (double)b.answered / took, (double)b.took_us[b.answered / 2],
           (double)b.took_us[b.answered * 99 / 100], (double)b.took_us[b.answered - 1]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "raw") == 0)
        return raw(atof(argv[2]));
    if (argc != 5)
        die("usage: edge raw SECONDS | edge discord|twilio|wecom PORT SECONDS CONNECTIONS");
    return load(argv[1], atoi(argv[2]), atof(argv[3]), (uint32_t)atoi(argv[4]));
}
