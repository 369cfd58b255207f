/* visitor.h - visitors of the page, who have a token instead of an account.  Pure.
 *
 * A visitor holds a random token that nobody else knows.  Gateways, logs and records see the chat
 * id, a keyed hash of the token: it tells visitors apart and lets nobody speak as one.  A chat id
 * carries its own check digits, so a made-up one is refused without asking the store.
 */
#pragma once
#include "base/hash.h"
#include "base/str.h"

struct rand;

#define VISITOR_TOKEN_CHARS 32 /* of a minted one: 128 bits in hex */
#define VISITOR_CHAT_CHARS 32

/* 32 hex digits and a NUL. */
void visitor_mint(struct rand *r, char ret_token[VISITOR_TOKEN_CHARS + 1]);

/* 16 to 64 letters, digits, '-' and '_': what a program may bring along. */
bool visitor_token_is_ok(struct str token);

/* @key is secret and belongs to one bot, so two bots cannot compare their visitors. */
void visitor_chat_id(const struct hash_key *key, struct str token,
                     char ret_chat_id[VISITOR_CHAT_CHARS + 1]);

/* True when visitor_chat_id() made it with this key. */
bool visitor_chat_is_ours(const struct hash_key *key, struct str chat_id);
