/* Who a proxy says that it forwards for: PROXY headers, and addresses as text.  The same bytes say
 * the same wherever they are cut, no more is asked for than the longest header has, and an address
 * that is written can be read. */
#include <stdlib.h>
#include "base/addr.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void header(const char *p, size_t n)
{
    struct addr peer = {.bytes = {192, 0, 2, 1}, .n = 4}, cut = peer, before = peer;
    size_t need, part_need;
    enum proxy_end end = proxy_read(p, n, &peer, &need);

    if (end != PROXY_BAD && (need < PROXY_START_BYTES || need > PROXY_MAX_BYTES))
        abort();
    if (end == PROXY_MORE && need <= n)
        abort(); /* it waits for what is there */
    if (peer.n != 0 && peer.n != 4 && peer.n != 16)
        abort();
    if (end != PROXY_DONE && memcmp(&peer, &before, sizeof peer) != 0)
        abort();
    for (size_t part = 0; part < n && part < PROXY_MAX_BYTES; part += part < 20 ? 1 : 97) {
        enum proxy_end said = proxy_read(p, part, &cut, &part_need);
        if (said == PROXY_BAD && end != PROXY_BAD)
            abort(); /* it becomes right with more of it */
        if (said == PROXY_DONE && (end != PROXY_DONE || memcmp(&cut, &peer, sizeof cut) != 0))
            abort();
    }
}

static void text(struct str t)
{
    char written[ADDR_TEXT_BYTES];
    struct addr a, again;
    struct addr_net net;

    if (addr_net_parse(t, &net) && net.bits > 128)
        abort();
    if (!addr_parse(t, &a))
        return;
    addr_text(&a, written);
    if (!addr_parse(str_of(written), &again) || again.n != a.n ||
        memcmp(again.bytes, a.bytes, a.n) != 0)
        abort();
    if (addr_is_local_link(&a) && !addr_is_private(&a))
        abort(); /* what only this link knows is not public */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    header((const char *)data, size);
    text(str_make((const char *)data, size));
    return 0;
}
