/* inbound.c - receives WeCom's callbacks.  (inbound.h has the pure parts, wecom_priv.h the call.)
 *
 *      POST --> signature, decrypt --> XML --> normalize --> host_accept() --stored--> empty answer
 *      GET  --> signature, decrypt --> the echo, which proves to WeCom that bellhop holds the key
 *
 * WeCom repeats a callback with the same MsgId if it was not answered within five seconds; the host
 * drops the duplicate.  Until a message is proved to be WeCom's, every error gets the same 401, so
 * that a sender of forged ciphertexts learns nothing. */
#include "platform/wecom/inbound.h"
#include <expat.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"
#include "platform/wecom/wecom_priv.h"

enum {
    DEADLINE_MS = 4500,
    WINDOW_MS = 600000, /* largest difference between timestamp and clock */
    ENCODED_CHARS = 43,
    SIGNATURE_CHARS = 40,
    BLOCK = 16,
    PAD_TO = 32,
    HEAD = 20,
    MAX_DEPTH = 16, /* of XML */
};

/* ---- BizMsgCrypt ---- */

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* 43 characters hold 258 bits.  The last two bits are ignored. */
bool wecom_key_parse(struct str encoded, uint8_t ret_key[WECOM_KEY_BYTES])
{
    char text[ENCODED_CHARS + 2];
    BUF_SECRET bytes = BUF_INIT;

    encoded = str_trim(encoded);
    if (encoded.n != ENCODED_CHARS)
        return false;
    memcpy(text, encoded.p, ENCODED_CHARS);
    const char *last = strchr(alphabet, text[ENCODED_CHARS - 1]);
    if (last == NULL || *last == '\0')
        return false;
    text[ENCODED_CHARS - 1] = alphabet[(last - alphabet) & ~3];
    text[ENCODED_CHARS] = '=';
    bool ok =
        base64_decode(str_make(text, ENCODED_CHARS + 1), &bytes) && bytes.n == WECOM_KEY_BYTES;
    if (ok)
        memcpy(ret_key, bytes.p, WECOM_KEY_BYTES);
    secret_wipe(text, sizeof text);
    return ok;
}

static int by_bytes(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

void wecom_signature(struct str token, struct str timestamp, struct str nonce, struct str encrypted,
                     char ret_hex[41])
{
    struct str parts[] = {token, timestamp, nonce, encrypted};
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    BUF_LOCAL hex = BUF_INIT;
    uint8_t hash[20];

    qsort(parts, ARRAY_LEN(parts), sizeof parts[0], by_bytes);
    EVP_DigestInit_ex(ctx, EVP_sha1(), NULL);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        EVP_DigestUpdate(ctx, parts[i].n > 0 ? parts[i].p : "", parts[i].n);
    EVP_DigestFinal_ex(ctx, hash, NULL);
    EVP_MD_CTX_free(ctx);
    hex_add(&hex, hash, sizeof hash);
    memcpy(ret_hex, hex.p, SIGNATURE_CHARS);
    ret_hex[SIGNATURE_CHARS] = '\0';
}

bool wecom_signature_ok(struct str token, struct str timestamp, struct str nonce,
                        struct str encrypted, struct str signature)
{
    char want[41];

    if (signature.n != SIGNATURE_CHARS || encrypted.n == 0)
        return false;
    wecom_signature(token, timestamp, nonce, encrypted, want);
    return ct_equal(want, signature.p, SIGNATURE_CHARS);
}

static bool decrypt_blocks(const uint8_t key[WECOM_KEY_BYTES], struct str in, uint8_t *out)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n = 0, last = 0;
    bool ok = EVP_DecryptInit_ex(ctx, EVP_aes_256_cbc(), NULL, key, key) == 1 &&
              EVP_CIPHER_CTX_set_padding(ctx, 0) == 1 &&
              EVP_DecryptUpdate(ctx, out, &n, (const uint8_t *)in.p, (int)in.n) == 1 &&
              EVP_DecryptFinal_ex(ctx, out + n, &last) == 1;

    EVP_CIPHER_CTX_free(ctx);
    ERR_clear_error();
    return ok && (size_t)n + (size_t)last == in.n;
}

/* Returns the length without the padding; 0: the padding is wrong. */
static size_t unpadded(const uint8_t *p, size_t n)
{
    size_t pad = p[n - 1];
    uint8_t wrong = 0;

    if (pad < 1 || pad > PAD_TO || pad > n)
        return 0;
    for (size_t i = n - pad; i < n; i++)
        wrong |= (uint8_t)(p[i] ^ pad);
    return wrong == 0 ? n - pad : 0;
}

static bool open_plain(const uint8_t *p, size_t n, struct str receive_id, struct buf *out)
{
    n = unpadded(p, n);
    if (n < HEAD)
        return false;
    size_t len = (size_t)p[16] << 24 | (size_t)p[17] << 16 | (size_t)p[18] << 8 | p[19];
    if (len > n - HEAD || !str_eq(str_make(p + HEAD + len, n - HEAD - len), receive_id))
        return false;
    buf_add(out, p + HEAD, len);
    return true;
}

bool wecom_decrypt(const uint8_t key[WECOM_KEY_BYTES], struct str receive_id, struct str encrypted,
                   struct buf *out)
{
    struct buf bytes = BUF_INIT;
    uint8_t *plain = NULL;
    bool ok = false;

    if (!base64_decode(encrypted, &bytes) || bytes.n == 0 || bytes.n % BLOCK != 0 ||
        bytes.n > INT32_MAX / 2)
        goto out;
    plain = xmalloc(bytes.n + BLOCK);
    ok = decrypt_blocks(key, buf_str(&bytes), plain) && open_plain(plain, bytes.n, receive_id, out);
out:
    free(plain);
    buf_done(&bytes);
    return ok;
}

/* ---- XML ----
 *
 * One expat parser is reused for all documents.  Names and values are kept as offsets, because
 * their buffer may move while it grows. */

struct xml_field {
    size_t name, name_n, value, value_n;
};

struct wecom_xml {
    XML_Parser parser; /* owned */
    struct buf bytes;
    struct xml_field fields[WECOM_XML_FIELDS];
    size_t n;
    int depth;
    bool refused;
};

static void refuse(struct wecom_xml *x)
{
    x->refused = true;
    XML_StopParser(x->parser, XML_FALSE);
}

static void on_start(void *ctx, const XML_Char *name, const XML_Char **attributes)
{
    struct wecom_xml *x = ctx;

    x->depth++;
    if (x->depth > MAX_DEPTH || (x->depth == 2 && x->n == WECOM_XML_FIELDS)) {
        refuse(x);
    } else if (x->depth == 2) {
        struct xml_field *f = &x->fields[x->n++];
        *f = (struct xml_field){.name = x->bytes.n, .name_n = strlen(name)};
        buf_add_z(&x->bytes, name);
        f->value = x->bytes.n;
    }
}

static void on_end(void *ctx, const XML_Char *name)
{
    struct wecom_xml *x = ctx;

    x->depth--;
}

static void on_text(void *ctx, const XML_Char *text, int n)
{
    struct wecom_xml *x = ctx;

    if (x->depth != 2 || n <= 0)
        return;
    buf_add(&x->bytes, text, (size_t)n);
    x->fields[x->n - 1].value_n += (size_t)n;
}

static void on_doctype(void *ctx, const XML_Char *name, const XML_Char *system_id,
                       const XML_Char *public_id, int has_internal)
{
    refuse(ctx);
}

static void on_entity(void *ctx, const XML_Char *name, int is_parameter, const XML_Char *value,
                      int value_n, const XML_Char *base, const XML_Char *system_id,
                      const XML_Char *public_id, const XML_Char *notation)
{
    refuse(ctx);
}

struct wecom_xml *wecom_xml_new(void)
{
    struct wecom_xml *x = xcalloc(1, sizeof *x);

    x->parser = XML_ParserCreate("UTF-8");
    if (x->parser == NULL)
        abort(); /* out of memory */
    return x;
}

void wecom_xml_free(struct wecom_xml *x)
{
    if (x == NULL)
        return;
    XML_ParserFree(x->parser);
    buf_done(&x->bytes);
    free(x);
}

bool wecom_xml_parse(struct wecom_xml *x, struct str text)
{
    x->n = 0;
    x->depth = 0;
    x->refused = false;
    buf_reset(&x->bytes);
    XML_ParserReset(x->parser, "UTF-8");
    XML_SetUserData(x->parser, x);
    XML_SetElementHandler(x->parser, on_start, on_end);
    XML_SetCharacterDataHandler(x->parser, on_text);
    XML_SetStartDoctypeDeclHandler(x->parser, on_doctype);
    XML_SetEntityDeclHandler(x->parser, on_entity);
    bool ok = text.n > 0 && text.n < INT32_MAX &&
              XML_Parse(x->parser, text.p, (int)text.n, XML_TRUE) == XML_STATUS_OK && !x->refused &&
              !buf_failed(&x->bytes);
    if (!ok)
        x->n = 0;
    return ok;
}

struct str wecom_xml_get(const struct wecom_xml *x, const char *name)
{
    for (size_t i = 0; i < x->n; i++) {
        const struct xml_field *f = &x->fields[i];
        if (str_eq(str_make(x->bytes.p + f->name, f->name_n), str_of(name)))
            return str_make(x->bytes.p + f->value, f->value_n);
    }
    return STR_NULL;
}

/* ---- normalizing ---- */

/* WeCom keeps a file for three days under its MediaId. */
static bool set_file(const struct wecom_xml *x, struct wecom_out *out, const char *kind,
                     const char *type)
{
    struct str ref = wecom_xml_get(x, "MediaId");

    if (ref.n == 0 || ref.n > 512)
        return false;
    out->media[out->ev.n_media++] = (struct event_media){.ref = ref,
                                                         .kind = str_of(kind),
                                                         .type = str_of(type),
                                                         .name = wecom_xml_get(x, "FileName")};
    return true;
}

static void set_picture(const struct wecom_xml *x, struct wecom_out *out, struct str url)
{
    out->ev.message_type = STR("photo");
    if (set_file(x, out, "image", "image/jpeg"))
        return;
    if (event_media_is_safe(url))
        out->media[out->ev.n_media++] =
            (struct event_media){.url = url, .kind = STR("image"), .type = STR("image/jpeg")};
    else
        buf_add_z(&out->text, "[picture]");
}

static void set_other(const struct wecom_xml *x, struct wecom_out *out, const char *kind)
{
    bool video = kind[0] == 'v';

    buf_add_z(&out->text, video ? "[video]" : "[file]");
    out->ev.message_type = str_of(kind);
    set_file(x, out, kind, video ? "video/mp4" : "application/octet-stream");
}

static bool set_content(const struct wecom_xml *x, struct wecom_out *out)
{
    struct str type = wecom_xml_get(x, "MsgType"), picture = wecom_xml_get(x, "PicUrl");

    if (str_eq(type, STR("text")))
        buf_add_str(&out->text, wecom_xml_get(x, "Content"));
    else if (str_eq(type, STR("image")))
        set_picture(x, out, picture);
    else if (str_eq(type, STR("voice"))) {
        struct str words = wecom_xml_get(x, "Recognition");
        out->ev.message_type = STR("voice");
        set_file(x, out, "voice", "audio/amr");
        buf_printf(&out->text, "[voice message]%s%.*s", words.n > 0 ? " " : "", (int)words.n,
                   words.n > 0 ? words.p : "");
    } else if (str_eq(type, STR("video")))
        set_other(x, out, "video");
    else if (str_eq(type, STR("file")))
        set_other(x, out, "document");
    else if (str_eq(type, STR("location"))) {
        struct str label = wecom_xml_get(x, "Label");
        buf_printf(&out->text, "[location: %.*s, %.*s%s%.*s]",
                   STR_FMT(wecom_xml_get(x, "Location_X")), STR_FMT(wecom_xml_get(x, "Location_Y")),
                   label.n > 0 ? "; " : "", (int)label.n, label.n > 0 ? label.p : "");
    } else if (str_eq(type, STR("link"))) {
        struct str title = wecom_xml_get(x, "Title"), url = wecom_xml_get(x, "Url");
        buf_printf(&out->text, "%.*s%s%.*s", STR_FMT(title), title.n > 0 && url.n > 0 ? "\n" : "",
                   STR_FMT(url));
    }
    return out->text.n > 0 || out->ev.n_media > 0;
}

enum webhook_verdict wecom_normalize(const struct wecom_xml *x, struct str bot,
                                     struct wecom_out *out)
{
    struct event *ev = &out->ev;
    struct str from = wecom_xml_get(x, "FromUserName"), id = wecom_xml_get(x, "MsgId");
    uint64_t agent, ours;

    buf_reset(&out->text);
    buf_reset(&out->id);
    *ev =
        (struct event){.platform = STR("wecom"), .bot = bot, .route_key = bot, .media = out->media};
    if (from.n == 0 || from.n > 128 || wecom_xml_get(x, "MsgType").n == 0)
        return WEBHOOK_MALFORMED;
    if (id.n == 0) { /* WeCom's events have no MsgId */
        buf_printf(&out->id, "%.*s-%.*s", STR_FMT(from), STR_FMT(wecom_xml_get(x, "CreateTime")));
        id = buf_str(&out->id);
    }
    if (str_to_u64(wecom_xml_get(x, "AgentID"), &agent) && str_to_u64(platform_id_in(bot), &ours) &&
        agent != ours)
        return WEBHOOK_IGNORED; /* a message for another agent */
    if (!set_content(x, out))
        return WEBHOOK_IGNORED;
    ev->event_id = ev->message_id = id;
    ev->text = buf_str(&out->text);
    ev->chat_id = ev->user_id = from;
    ev->chat_type = STR("dm");
    ev->user_name = ev->chat_name = ev->user_display_name = ev->user_handle = from;
    ev->mentions_bot = true;
    return WEBHOOK_EVENT;
}

void wecom_out_done(struct wecom_out *out)
{
    buf_done(&out->text);
    buf_done(&out->id);
}

/* ---- webhooks ---- */

static const struct http_answer empty = {.status = 200,
                                         .content_type = "text/plain; charset=utf-8"};

struct envelope { /* owned */
    struct buf signature, timestamp, nonce;
};

/* Verifies and decrypts @encrypted; appends the message to @out.  False: not from WeCom. */
static bool open_envelope(struct wecom *c, struct http_req *req, struct str encrypted,
                          struct buf *out)
{
    struct envelope e = {BUF_INIT, BUF_INIT, BUF_INIT};
    bool ok = http_query(req, "msg_signature", &e.signature) &&
              http_query(req, "timestamp", &e.timestamp) && http_query(req, "nonce", &e.nonce) &&
              webhook_is_now(buf_str(&e.timestamp), clock_wall_ms(c->base.env->clock), WINDOW_MS) &&
              wecom_signature_ok(str_of(c->cfg->token), buf_str(&e.timestamp), buf_str(&e.nonce),
                                 encrypted, buf_str(&e.signature)) &&
              wecom_decrypt(c->key, str_of(c->cfg->corp_id), encrypted, out);

    buf_done(&e.signature);
    buf_done(&e.timestamp);
    buf_done(&e.nonce);
    return ok;
}

static bool echo(struct wecom *c, struct http_req *req)
{
    BUF_LOCAL sent = BUF_INIT, plain = BUF_INIT;
    bool ok = http_query(req, "echostr", &sent) && open_envelope(c, req, buf_str(&sent), &plain);

    if (ok)
        http_answer(c->base.env->server, http_req_id(req),
                    &(struct http_answer){.status = 200,
                                          .content_type = "text/plain; charset=utf-8",
                                          .body = buf_str(&plain)});
    return ok;
}

/* A colon cannot be in an id of WeCom's, so no other id looks like these. */
static void scope_ids(struct wecom *c)
{
    struct event *ev = &c->out.ev;

    buf_reset(&c->person);
    buf_printf(&c->person, "%s:%.*s", c->cfg->corp_id, STR_FMT(ev->user_id));
    ev->chat_id = ev->user_id = buf_str(&c->person);
}

static bool message(struct wecom *c, struct http_req *req)
{
    BUF_LOCAL text = BUF_INIT;
    bool ok = wecom_xml_parse(c->xml, http_body(req)) &&
              open_envelope(c, req, wecom_xml_get(c->xml, "Encrypt"), &text);

    if (ok) {
        enum webhook_verdict v = wecom_xml_parse(c->inner, buf_str(&text))
                                     ? wecom_normalize(c->inner, str_of(c->base.bot), &c->out)
                                     : WEBHOOK_MALFORMED;
        if (v == WEBHOOK_EVENT && c->cfg->scoped_ids)
            scope_ids(c);
        text_take(&c->base, v, &c->out.ev, http_req_id(req), &empty, DEADLINE_MS);
    }
    return ok;
}

bool wecom_http(struct platform *p, struct http_req *req)
{
    struct wecom *c = wecom_of(p);
    bool ok = str_eq(http_method(req), STR("GET"))    ? echo(c, req)
              : str_eq(http_method(req), STR("POST")) ? message(c, req)
                                                      : false;

    if (!ok)
        c->base.n.refused++;
    return ok;
}
