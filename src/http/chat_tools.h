/* chat_tools.h - chat_*: reading and answering chats without a gateway.
 *
 * A send is a short session of its own with the relay, over a wire that ends here: it says no
 * hello, so it receives nothing, and what it asks for passes the same guard and the same limits as
 * a gateway's. */
#pragma once
#include "base/str.h"
#include "mcp/mcp.h"

struct front;

/* ---- tools_chat.c ---- */
/* The server goes down, sockets first: asks and sends under way are forgotten. */
void chat_asks_drop(struct front *f);

/* ---- tools_chat_send.c ---- */
void chat_send(void *ctx, struct mcp_call *c, struct json args);
/* Sessions of sends under way: they are no gateways. */
size_t chat_sends_open(const struct front *f, struct str tenant, struct str instance);
void chat_sends_drop(struct front *f);
