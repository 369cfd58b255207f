/* crypt.c - BizMsgCrypt.  (crypt.h has the contract.) */
#include "platform/wecom/crypt.h"
#include <openssl/err.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/mem.h"

enum { ENCODED_CHARS = 43, BLOCK = 16, PAD_TO = 32, HEAD = 20, SIGNATURE_CHARS = 40 };

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* 43 characters hold 258 bits: the last two mean nothing, and WeCom leaves them as they fall. */
bool wecom_key_parse(struct str encoded, uint8_t ret_key[WECOM_KEY_BYTES])
{
    char text[ENCODED_CHARS + 2];
    struct buf bytes = BUF_INIT;

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
    buf_wipe(&bytes);
    secret_wipe(text, sizeof text);
    return ok;
}

/* ---- signature ---- */

static int by_bytes(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

void wecom_signature(struct str token, struct str timestamp, struct str nonce, struct str encrypted,
                     char ret_hex[41])
{
    struct str parts[] = {token, timestamp, nonce, encrypted};
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    struct buf hex = BUF_INIT;
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
    buf_done(&hex);
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

/* ---- decryption ---- */

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

/* How many bytes are left without the padding; 0: it is none. */
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
