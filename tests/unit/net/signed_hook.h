/* signed_hook.h - webhooks with an Ed25519 signature, as Discord sends them. */
#pragma once
#include "net/net_test.h"

#include "base/crypto.h"
#include "net/http_server.h"

static const char *const hook_seals[] = {"unchecked", "signed", "forged"}; /* of enum http_seal */

/* The key of RFC 8032, 7.1, test 1, and its signature of what hook_send() sends. */
static inline void hook_key(uint8_t ret_raw[HTTP_SIGNER_BYTES], uint8_t ret_sig[64])
{
    static const char pem[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
                              "-----END PRIVATE KEY-----\n";
    static const char raw[] = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    struct ed25519_key *key = ed25519_private(str_of(pem));

    assert_true(hex_decode(str_of(raw), ret_raw, HTTP_SIGNER_BYTES));
    assert_true(ed25519_sign(key, STR("17hello"), ret_sig));
    ed25519_free(key);
}

static inline void hook_send(struct raw *r, const char *path, const uint8_t *sig)
{
    BUF_LOCAL text = BUF_INIT;

    buf_printf(&text,
               "POST %s HTTP/1.1\r\nHost: x\r\nX-Signature-Timestamp: 17\r\n"
               "X-Signature-Ed25519: ",
               path);
    for (int i = 0; i < 64; i++)
        buf_printf(&text, "%02x", sig[i]);
    buf_add_z(&text, "\r\nContent-Length: 5\r\n\r\nhello");
    raw_send(r, buf_str(&text));
}
