/* proxy.c - see proxy.h. */
#include "net/proxy.h"

#include <string.h>

enum { LOCAL = 0x20, PROXY = 0x21, V4 = 0x1, V6 = 0x2 };

enum proxy_end proxy_read(const char *p, size_t n, struct addr *peer, size_t *ret_need)
{
    static const char signature[12] = "\r\n\r\n\0\r\nQUIT\n";
    const uint8_t *b = (const uint8_t *)p;
    size_t family, body;

    *ret_need = PROXY_START_BYTES;
    if (memcmp(p, signature, n < sizeof signature ? n : sizeof signature) != 0)
        return PROXY_BAD;
    if (n < PROXY_START_BYTES)
        return PROXY_MORE;
    if (b[12] != LOCAL && b[12] != PROXY)
        return PROXY_BAD;
    body = (size_t)b[14] << 8 | b[15];
    *ret_need = PROXY_START_BYTES + body;
    if (*ret_need > PROXY_MAX_BYTES)
        return PROXY_BAD;
    if (n < *ret_need)
        return PROXY_MORE;
    family = b[13] >> 4;
    if (b[12] == LOCAL || (family != V4 && family != V6))
        return PROXY_DONE;
    if (body < (family == V4 ? 12 : 36))
        return PROXY_BAD;
    *peer = (struct addr){.n = family == V4 ? 4 : 16};
    memcpy(peer->bytes, b + PROXY_START_BYTES, peer->n);
    *peer = addr_plain(peer);
    return PROXY_DONE;
}
