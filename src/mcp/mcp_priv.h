/* mcp_priv.h - struct mcp, and what mcp.c and listen.c call of each other.  Private to src/mcp/. */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "base/jw.h"
#include "base/list.h"
#include "base/map.h"
#include "mcp/mcp.h"

#define META "io.modelcontextprotocol/"

struct registered {
    struct mcp_tool tool;
    char *schema; /* owned */
    void *ctx;
};

struct mcp {
    struct mcp_env env;
    struct json_parser *parser;
    struct registered *tools; /* owned, in order of registration */
    size_t n_tools;
    struct list exchanges; /* owned */
    /* listen.c: */
    struct map ended; /* id -> struct ended, owned */
    struct list ended_by_age;
    struct list listeners; /* owned, by age */
    size_t n_listeners;
    struct map sessions; /* id -> the listener of a session */
    struct map watches;  /* tenant \x1f instance -> struct watch, owned */
    struct timer keep_alive;
};

/* Copies the texts of @who into one block, which the caller frees, and makes @who refer to it. */
char *mcp_hold_caller(struct caller *who);
/* Writes "_meta" with the server's name, and @subscription (JSON; absent: none). */
void mcp_write_meta(const struct mcp *m, struct jw *w, struct str subscription);

/* False: the caller's key was revoked, or has expired. */
bool mcp_key_is_good(const struct mcp *m, const struct caller *who);

/* ---- listen.c ---- */

void listen_init(struct mcp *m);
void listen_done(struct mcp *m);

/* A session id for the caller's key. */
void session_issue(struct mcp *m, const struct caller *who, struct buf *ret_id);

/* A listener for a request of the newer era; @id is JSON.  @ret_first is its first message.  NULL:
 * the caller has too many. */
struct mcp_listener *listen_request(struct mcp *m, const struct caller *who, struct str id,
                                    struct json filter, struct buf *ret_first);

enum subscribed { SUBSCRIBED, SUBSCRIBED_NOTHING, SUBSCRIBED_TOO_MUCH };
enum subscribed session_subscribe(struct mcp *m, const struct caller *who, struct str session,
                                  struct str uri);
void session_unsubscribe(struct mcp *m, struct str session, struct str uri);
