/* Bytes from a hostile connector, as they come out of the socket of the gateway library: frames,
 * fragments and all.  The handle is put into its phase by hand; nothing is dialled. */
#include <stdlib.h>
#include "../../sdk/src/client.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct bhgw *connected(void)
{
    struct bhgw_options opt = bhgw_options_init();

    opt.url = "http://127.0.0.1:1";
    opt.max_message_bytes = 65536;
    opt.max_pending = 64;
    struct bhgw *gw = bhgw_new(&opt, NULL, 0);
    gw->want = GWC_WANT_UP;
    gw->phase = GWC_HELLO;
    gw->socket_number = 1;
    return gw;
}

/* What the events thread would make of a queued delivery. */
static void read_delivery(struct bhgw *gw, const struct gwc_delivery *d)
{
    struct arena arena = ARENA_INIT;
    struct bhgw_passthrough fwd;
    struct bhgw_event ev;
    struct json doc;

    if (!json_parse(gw->parser, str_make(d->line, d->bytes), &doc))
        abort(); /* only what was read before is queued */
    if (d->passthrough ? !gwc_passthrough_read(doc, &arena, &fwd)
                       : !gwc_event_read(doc, &arena, &ev))
        abort();
    arena_done(&arena);
    gwc_settle_locked(gw, d->number, BHGW_ACK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bhgw *gw = connected();

    /* In two pieces, wherever the first byte says. */
    size_t first = size > 0 ? data[0] % size : 0;
    gwc_bytes(gw, str_make(data, first));
    gwc_bytes(gw, str_make(data + first, size - first));
    list_each (&gw->deliveries, it, next)
        read_delivery(gw, list_entry(it, struct gwc_delivery, link));
    gw->phase = GWC_OFF;
    gw->want = GWC_WANT_NOTHING;
    gwc_conn_close(&gw->conn);
    while (!list_is_empty(&gw->notices)) { /* else freeing would start threads to deliver them */
        struct gwc_notice *n = list_first(&gw->notices, struct gwc_notice, link);
        list_remove(&n->link);
        gwc_notice_free(n);
    }
    bhgw_free(gw);
    return 0;
}
