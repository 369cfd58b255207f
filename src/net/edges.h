/* edges.h - threads of this process that own the TCP connections of its HTTP server.
 *
 *      clients ── sockets, TLS, HTTP, WebSocket ── edge thread ══ ring ══ heart: the server's loop
 *
 * An edge thread runs the same code as a cluster node that does not hold the lease: the edge's end
 * of a trunk (net/trunk.h).  Here the trunk is a ring between two threads.  The heart keeps its
 * Unix sockets, and the connections that were accepted before its edges.
 *
 * Each edge has a loop and a server of its own.  The rings, the log and the counts of limits
 * (base/limits.h) are shared.  All edges accept from the same listening sockets.  A request for a
 * trunk between nodes moves to the heart with its socket.
 *
 * After http_server_start_edges() the functions of http_server.h apply to the edges too. */
#pragma once
#include "base/buf.h"
#include "base/err.h"

struct conn;
struct edges;
struct http_server;

/* Starts @n threads, to which the TCP listeners of @s move.  On failure @ret_why (256 bytes) says
 * what to fix. */
enum bh_err http_server_start_edges(struct http_server *s, size_t n, char *ret_why) BH_MUST_USE;
size_t http_server_edges(const struct http_server *s); /* threads; 0: none */

/* ---- private to src/net/ ---- */

/* Runs @fn in the thread of each edge, and waits. */
typedef void edges_fn(struct http_server *edge, void *ctx);
void edges_each(struct edges *all, edges_fn *fn, void *ctx);
void edges_count(struct edges *all, int by); /* so many more sockets */
size_t edges_sockets(const struct edges *all);
void edges_free(struct edges *all); /* flushes what the heart said, and joins; NULL is fine */
/* In an edge's thread: its connection becomes one of the heart, which reads @bytes first. */
void edge_give(struct conn *c, struct str bytes);
