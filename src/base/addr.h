/* addr.h - IP addresses of peers: parsing, networks, private ranges, the PROXY protocol. */
#pragma once
#include "base/str.h"

struct sockaddr;

struct addr { /* an IPv4 address on an IPv6 socket is an IPv4 address here */
    uint8_t bytes[16];
    uint8_t n; /* 4, 16, or 0: none, a Unix socket's */
};

struct addr addr_of(const struct sockaddr *a);
/* "192.0.2.1", "2001:db8::1"; also in brackets, and with a port behind.  False: not an address. */
bool addr_parse(struct str text, struct addr *ret);
/* Does this name of a host mean this machine: localhost, or a loopback address? */
bool addr_host_is_local(struct str host);
enum { ADDR_TEXT_BYTES = 48 };
void addr_text(const struct addr *a, char *ret_text); /* "unix" for none */
/* The key that limits count under: the address, for IPv6 its network (/64).  Borrowed. */
struct str addr_party(const struct addr *a);

/* Not an address of the public internet: loopback, private, link-local, multicast, ..., or none. */
bool addr_is_private(const struct addr *a);
/* A link-local address or a cloud's metadata service: no URL of an agent may lead there. */
bool addr_is_local_link(const struct addr *a);

struct addr_net {
    struct addr base;
    uint8_t bits; /* that must agree */
};
/* "10.0.0.0/8", "::1", or "unix" for Unix sockets. */
bool addr_net_parse(struct str text, struct addr_net *ret);
bool addr_is_in(const struct addr *a, const struct addr_net *nets, size_t n);

/* ---- the PROXY protocol, version 2, as a pure function of bytes ----
 *
 * A header in front of everything else (TLS included), in which a proxy that only forwards bytes
 * names its client. */

enum { PROXY_START_BYTES = 16, PROXY_MAX_BYTES = 16 + 2048 };
enum proxy_end { PROXY_MORE, PROXY_DONE, PROXY_BAD };

/* @n bytes of the header have arrived; *@ret_need is its length, as far as that is known.
 * PROXY_DONE: *@peer is replaced, unless the proxy speaks for itself (a health check). */
enum proxy_end proxy_read(const char *p, size_t n, struct addr *peer, size_t *ret_need);
