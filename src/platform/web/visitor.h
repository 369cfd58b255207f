/* visitor.h - identifies visitors of the chat page by a token instead of an account.  Pure.
 *
 * A visitor holds a secret random token.  Gateways, logs and records only see the chat id, a keyed
 * hash of the token, which does not reveal it.  A chat id contains check digits, so a made-up one
 * is refused without a read of the store.
 */
#pragma once
#include "base/hash.h"
#include "base/str.h"

struct rand;

#define VISITOR_TOKEN_CHARS 32 /* of a token from visitor_mint(): 128 bits in hex */
#define VISITOR_CHAT_CHARS 32

/* Makes a new token of 32 hex digits. */
void visitor_mint(struct rand *r, char ret_token[VISITOR_TOKEN_CHARS + 1]);

/* True for 16 to 64 letters, digits, '-' and '_'; programs may choose their own token. */
bool visitor_token_is_ok(struct str token);

/* @key is secret and differs per bot, so a visitor has unrelated chat ids at two bots. */
void visitor_chat_id(const struct hash_key *key, struct str token,
                     char ret_chat_id[VISITOR_CHAT_CHARS + 1]);

/* True when visitor_chat_id() made @chat_id with this key. */
bool visitor_chat_is_ours(const struct hash_key *key, struct str chat_id);
