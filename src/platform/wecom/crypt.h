/* crypt.h - BizMsgCrypt: how WeCom signs and encrypts what it calls back with.
 *
 *      signature = sha1 of token, timestamp, nonce and ciphertext, sorted and joined, in hex
 *      plaintext = 16 random bytes, length (4, big endian), message, receive id, padding to 32
 *      cipher    = AES-256-CBC, its first 16 key bytes as the initial vector
 *
 * Whatever is wrong with a ciphertext, the answer is the same false. */
#pragma once
#include "base/buf.h"

#define WECOM_KEY_BYTES 32

/* @encoded: the 43 characters of EncodingAESKey.  False: it is none. */
bool wecom_key_parse(struct str encoded, uint8_t ret_key[WECOM_KEY_BYTES]);

bool wecom_signature_ok(struct str token, struct str timestamp, struct str nonce,
                        struct str encrypted, struct str signature);
void wecom_signature(struct str token, struct str timestamp, struct str nonce, struct str encrypted,
                     char ret_hex[41]);

/* Appends the message to @out.  @receive_id: who it must be for. */
bool wecom_decrypt(const uint8_t key[WECOM_KEY_BYTES], struct str receive_id, struct str encrypted,
                   struct buf *out);
