/* addr.c - addresses: parsing, networks, which are private, and the PROXY protocol. */
#include "base/addr.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/mem.h"

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

/* 16 bytes of an IPv6 address, or of an IPv4 address inside one. */
static struct addr from_v6(const void *bytes)
{
    struct addr a = {.n = 16};

    memcpy(a.bytes, bytes, 16);
    if (memcmp(a.bytes, mapped, sizeof mapped) == 0) {
        a = (struct addr){.n = 4};
        memcpy(a.bytes, (const char *)bytes + 12, 4);
    }
    return a;
}

struct addr addr_of(const struct sockaddr *sa)
{
    struct addr a = {.n = 0};

    if (sa->sa_family == AF_INET6)
        return from_v6(&((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr);
    if (sa->sa_family == AF_INET) {
        a.n = 4;
        memcpy(a.bytes, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    }
    return a;
}

/* "[::1]:80" -> "::1", "192.0.2.1:80" -> "192.0.2.1". */
static struct str without_port(struct str s)
{
    ptrdiff_t colon = str_find(s, ':');
    uint64_t port;

    if (s.n > 1 && s.p[0] == '[') {
        ptrdiff_t end = str_find(s, ']');
        return end > 0 ? str_make(s.p + 1, (size_t)end - 1) : s;
    }
    if (colon > 0 && str_to_u64(str_skip(s, (size_t)colon + 1), &port))
        return str_make(s.p, (size_t)colon); /* one colon only, so no IPv6 address */
    return s;
}

bool addr_parse(struct str text, struct addr *ret)
{
    struct str s = without_port(text);
    uint8_t bytes[16];
    char z[ADDR_TEXT_BYTES];

    if (s.n == 0 || s.n >= sizeof z)
        return false;
    memcpy(z, s.p, s.n);
    z[s.n] = '\0';
    if (inet_pton(AF_INET, z, bytes) == 1) {
        *ret = (struct addr){.n = 4};
        memcpy(ret->bytes, bytes, 4);
        return true;
    }
    if (inet_pton(AF_INET6, z, bytes) != 1)
        return false;
    *ret = from_v6(bytes);
    return true;
}

bool addr_host_is_local(struct str host)
{
    static const uint8_t one[16] = {[15] = 1};
    struct addr a;

    if (!addr_parse(host, &a))
        return str_eq_ci(host, STR("localhost"));
    return a.n == 4 ? a.bytes[0] == 127 : memcmp(a.bytes, one, sizeof one) == 0;
}

void addr_text(const struct addr *a, char *ret_text)
{
    if (a->n == 0)
        memcpy(ret_text, "unix", 5);
    else
        inet_ntop(a->n == 4 ? AF_INET : AF_INET6, a->bytes, ret_text, ADDR_TEXT_BYTES);
}

struct str addr_party(const struct addr *a)
{
    return str_make(a->bytes, a->n == 16 ? 8 : a->n);
}

bool addr_net_parse(struct str text, struct addr_net *ret)
{
    ptrdiff_t slash = str_find(text, '/');
    uint64_t bits;

    if (str_eq(text, STR("unix"))) {
        *ret = (struct addr_net){.bits = 0};
        return true;
    }
    if (!addr_parse(slash >= 0 ? str_make(text.p, (size_t)slash) : text, &ret->base))
        return false;
    bits = ret->base.n * 8u;
    if (slash >= 0 &&
        (!str_to_u64(str_skip(text, (size_t)slash + 1), &bits) || bits > ret->base.n * 8u))
        return false;
    ret->bits = (uint8_t)bits;
    return true;
}

bool addr_is_in(const struct addr *a, const struct addr_net *nets, size_t n)
{
    for (const struct addr_net *net = nets; net < nets + n; net++) {
        size_t whole = net->bits / 8;
        uint8_t mask = (uint8_t)(0xff00 >> net->bits % 8);
        if (a->n == net->base.n && memcmp(a->bytes, net->base.bytes, whole) == 0 &&
            (mask == 0 || whole == 16 || ((a->bytes[whole] ^ net->base.bytes[whole]) & mask) == 0))
            return true;
    }
    return false;
}

/* ---- which addresses are private ---- */

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

static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};

static bool v6_is_private(const uint8_t *a)
{
    static const uint8_t zero[12];

    if (memcmp(a, nat64, 12) == 0)
        return v4_is_private(v4_at(a + 12));
    if (memcmp(a, zero, 12) == 0)
        return true; /* unspecified, loopback, IPv4-compatible */
    if (a[0] == 0x20 && a[1] == 0x02)
        return v4_is_private(v4_at(a + 2)); /* 6to4 */
    if ((a[0] & 0xe0) != 0x20)
        return true; /* everything but global unicast: fc00::/7, fe80::/10, ff00::/8, ... */
    return a[0] == 0x20 && a[1] == 0x01 && (a[2] < 0x02 || (a[2] == 0x0d && a[3] == 0xb8));
}

bool addr_is_private(const struct addr *a)
{
    if (a->n == 0)
        return true;
    return a->n == 4 ? v4_is_private(v4_at(a->bytes)) : v6_is_private(a->bytes);
}

/* Most clouds keep their metadata at a link-local address; two have one of their own. */
static bool v4_is_local_link(uint32_t a)
{
    return a >> 16 == 0xa9fe || a == 0x646464c8 || a == 0xc00000c0;
}

bool addr_is_local_link(const struct addr *a)
{
    static const uint8_t metadata[16] = {0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54};

    if (a->n == 4)
        return v4_is_local_link(v4_at(a->bytes));
    if (a->n != 16)
        return false;
    if (memcmp(a->bytes, nat64, sizeof nat64) == 0)
        return v4_is_local_link(v4_at(a->bytes + 12));
    if (a->bytes[0] == 0x20 && a->bytes[1] == 0x02)
        return v4_is_local_link(v4_at(a->bytes + 2)); /* 6to4 */
    return (a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80) ||
           memcmp(a->bytes, metadata, sizeof metadata) == 0;
}

/* ---- the PROXY protocol ---- */

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
    if (peer->n == 16)
        *peer = from_v6(peer->bytes);
    return PROXY_DONE;
}
