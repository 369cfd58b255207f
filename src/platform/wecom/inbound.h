/* inbound.h - decrypts and parses WeCom's callbacks, and turns messages into events.  Pure.
 *
 *      signature = sha1 of token, timestamp, nonce and ciphertext, sorted and joined, in hex
 *      plaintext = 16 random bytes, length (4, big endian), message, receive id, padding to 32
 *      cipher    = AES-256-CBC, the first 16 key bytes as the initial vector
 *
 *      chat_id, user_id   the person's id in the corporation
 *      chat_type          dm
 *      route_key          the bot; wecom_http() then sets the person
 */
#pragma once
#include "base/buf.h"
#include "core/event.h"
#include "platform/await.h"

/* ---- BizMsgCrypt: signature and encryption of callbacks ----
 *
 * Every error in a ciphertext returns the same false, so that a caller cannot tell them apart. */

#define WECOM_KEY_BYTES 32

/* @encoded: the 43 characters of EncodingAESKey.  False: not a key. */
bool wecom_key_parse(struct str encoded, uint8_t ret_key[WECOM_KEY_BYTES]);

bool wecom_signature_ok(struct str token, struct str timestamp, struct str nonce,
                        struct str encrypted, struct str signature);
void wecom_signature(struct str token, struct str timestamp, struct str nonce, struct str encrypted,
                     char ret_hex[41]);

/* Appends the message to @out.  False also if it is not for the corporation @receive_id. */
bool wecom_decrypt(const uint8_t key[WECOM_KEY_BYTES], struct str receive_id, struct str encrypted,
                   struct buf *out);

/* ---- the flat XML of callbacks: <xml><Name>value</Name>...</xml> ----
 *
 * A document type or an entity declaration is refused, so no entity is ever expanded.  Nested
 * elements are skipped. */

#define WECOM_XML_FIELDS 64

struct wecom_xml *wecom_xml_new(void);
void wecom_xml_free(struct wecom_xml *x); /* NULL is fine */

/* False: not well-formed, not UTF-8, too many fields, or with a declaration. */
bool wecom_xml_parse(struct wecom_xml *x, struct str text);
/* The first field of that name; STR_NULL: absent.  Borrowed until the next parse. */
struct str wecom_xml_get(const struct wecom_xml *x, const char *name);

/* ---- a message becomes an event ---- */

struct wecom_out { /* an event and the memory of its text, id and file */
    struct event ev;
    struct buf text, id;
    struct event_media media[1];
};

/* strs of the event are borrowed from @x, @bot and @out.  @out is zeroed before the first call and
 * may be reused. */
enum webhook_verdict wecom_normalize(const struct wecom_xml *x, struct str bot,
                                     struct wecom_out *out);
void wecom_out_done(struct wecom_out *out);
