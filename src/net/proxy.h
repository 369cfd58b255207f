/* proxy.h - the PROXY protocol, version 2, as a pure function of bytes.  Private to src/net/.
 *
 * A header in front of everything else (TLS included) in which a proxy that only forwards bytes
 * says for whom. */
#pragma once
#include "net/addr.h"

enum { PROXY_START_BYTES = 16, PROXY_MAX_BYTES = 16 + 2048 };
enum proxy_end { PROXY_MORE, PROXY_DONE, PROXY_BAD };

/* @n bytes of it are there; *@ret_need says how many it has, as far as that is known.  PROXY_DONE:
 * *@peer is replaced, unless the proxy speaks for itself (a health check). */
enum proxy_end proxy_read(const char *p, size_t n, struct addr *peer, size_t *ret_need);
