/* addr.c - which addresses are private: what public_only refuses to connect to. */
#include <netinet/in.h>
#include <string.h>

#include "base/mem.h"
#include "net/http_client.h"

static bool v4_is_private(uint32_t a)
{
    static const struct {
        uint32_t net;
        int bits;
    } table[] = {
        {0x00000000, 8},  /* this network */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* carrier NAT */
        {0x7f000000, 8},  /* loopback */
        {0xa9fe0000, 16}, /* link-local, and the metadata services */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* protocol assignments */
        {0xc0000200, 24}, /* documentation */
        {0xc0586300, 24}, /* 6to4 relays */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* benchmarks */
        {0xc6336400, 24}, /* documentation */
        {0xcb007100, 24}, /* documentation */
        {0xe0000000, 3},  /* multicast, reserved, broadcast */
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (((a ^ table[i].net) >> (32 - table[i].bits)) == 0)
            return true;
    }
    return false;
}

static uint32_t v4_at(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool v6_is_private(const uint8_t *a)
{
    static const uint8_t zero[12];
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};

    if (memcmp(a, mapped, 12) == 0 || memcmp(a, nat64, 12) == 0)
        return v4_is_private(v4_at(a + 12));
    if (memcmp(a, zero, 12) == 0)
        return true; /* unspecified, loopback, IPv4-compatible */
    if (a[0] == 0x20 && a[1] == 0x02)
        return v4_is_private(v4_at(a + 2)); /* 6to4 */
    if ((a[0] & 0xe0) != 0x20)
        return true; /* everything but global unicast: fc00::/7, fe80::/10, ff00::/8, ... */
    return a[0] == 0x20 && a[1] == 0x01 && (a[2] < 0x02 || (a[2] == 0x0d && a[3] == 0xb8));
}

bool http_addr_is_private(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_INET)
        return v4_is_private(
            ntohl(((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr));
    if (addr->sa_family == AF_INET6)
        return v6_is_private(((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr.s6_addr);
    return true;
}
