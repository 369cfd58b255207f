/* tcp_client.h - an outgoing connection of bytes on the loop: TCP, TLS or a Unix socket.
 *
 * libcurl connects (names, proxies, TLS) and lends us the socket.  A struct tcp_client lives from
 * tcp_client_open() until its on_closed() returned or tcp_client_free(), whichever is first; no
 * handler runs inside tcp_client_open() or tcp_client_send(), nor after tcp_client_free().
 *
 * Trunks, outgoing WebSockets, the Redis client, IMAP and IRC use it. */
#pragma once
#include "base/buf.h"
#include "net/mail.h"

struct loop;

struct tcp_client_handlers {
    void (*on_open)(void *ctx);
    void (*on_data)(void *ctx, struct str bytes);  /* borrowed, may be written to */
    void (*on_closed)(void *ctx, const char *why); /* once, whoever closed it */
};
struct tcp_client_options {
    const char *url;  /* http:// or https://, through the system's proxies; NULL: the host below */
    const char *host; /* a name or an address; IPv6 without brackets */
    uint16_t port;
    const char *unix_path; /* instead of both; NULL: none */
    /* Instead of all of the above: an IMAP server.  on_open() runs after greeting, TLS and login,
     * and the next byte is the client's.  NULL: no IMAP. */
    const struct mail_login *imap;
    bool tls;                   /* the host's name must be in its certificate */
    const char *ca_path;        /* PEM file of the authorities to trust; NULL: the system's */
    const char *cert;           /* PEM of our own certificate and its key; NULL: none */
    int64_t connect_timeout_ms; /* 0: 10 s */
    size_t max_unsent;          /* more bytes that wait to be sent end it; 0: 16 MiB */
};

struct tcp_client *tcp_client_open(struct loop *loop, const struct tcp_client_options *opt,
                                   const struct tcp_client_handlers *h, void *ctx);
/* Queued, and written when the turn ends.  Before on_open() and after the end it does nothing. */
void tcp_client_send(struct tcp_client *c, struct str bytes);
/* In on_closed(): the server refused the login of tcp_client_options.imap. */
bool tcp_client_was_denied(const struct tcp_client *c);
/* Writes what the socket takes now, for an owner whose loop runs no more. */
void tcp_client_flush(struct tcp_client *c);
size_t tcp_client_unsent(const struct tcp_client *c);
void tcp_client_free(struct tcp_client *c); /* at once, silently; NULL is fine */
