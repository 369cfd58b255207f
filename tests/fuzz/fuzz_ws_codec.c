/* Frames from a hostile peer.  The decoder must not care where the reads cut them: fed whole and
 * fed in pieces it has to say the same, and never hand out more than the limit. */
#include <stdlib.h>
#include "base/mem.h"
#include "net/ws_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_MESSAGE = 70000 };

struct heard {
    struct buf text;    /* owned; everything said, in one line */
    uint64_t message_n; /* of the message under way */
};

static void hear(struct heard *h, const struct ws_decoded *it)
{
    switch (it->item) {
    case WS_ITEM_MORE:
        return;
    case WS_ITEM_DATA:
        h->message_n += it->bytes.n;
        if (h->message_n > MAX_MESSAGE)
            abort();
        buf_add_str(&h->text, it->bytes);
        if (it->end) {
            h->message_n = 0;
            buf_add_z(&h->text, it->text ? "\001T" : "\001B");
        }
        return;
    default:
        if (it->bytes.n > 125)
            abort();
        buf_printf(&h->text, "\001%d:%d:", it->item, it->code);
        buf_add_str(&h->text, it->bytes);
    }
}

static void feed(struct ws_decoder *d, struct heard *h, const uint8_t *data, size_t n)
{
    char *copy = xmalloc(n + 1), *p = copy; /* exactly sized, so that overruns are seen */
    struct ws_decoded it;

    if (n > 0)
        memcpy(copy, data, n);
    do {
        it = ws_decode(d, &p, &n);
        hear(h, &it);
    } while (it.item != WS_ITEM_MORE);
    if (n != 0)
        abort();
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct heard whole = {0}, pieces = {0};
    struct ws_decoder d;
    size_t step;

    if (size < 2)
        return 0;
    step = data[1] % 31u + 1;
    ws_decoder_init(&d, data[0] & 1, MAX_MESSAGE);
    feed(&d, &whole, data + 2, size - 2);
    ws_decoder_done(&d);
    ws_decoder_init(&d, data[0] & 1, MAX_MESSAGE);
    for (size_t at = 2; at < size; at += step)
        feed(&d, &pieces, data + at, step < size - at ? step : size - at);
    ws_decoder_done(&d);
    if (!str_eq(buf_str(&whole.text), buf_str(&pieces.text)))
        abort();
    buf_done(&whole.text);
    buf_done(&pieces.text);
    return 0;
}
