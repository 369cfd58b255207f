/* receive.c - from the first byte of a connection to its frames: the upgrade, the hello, reading.
 *
 * Anything read may end the connection, and then the decoder is gone: every loop looks whether the
 * socket it started with is still there. */
#include <stdlib.h>
#include <time.h>
#include "base/jw.h"
#include "client.h"
#include "core/token.h"

#define READ_BYTES 65536
#define READS_PER_TURN 16

/* ---- the way up ---- */

void gwc_ask_upgrade(struct bhgw *gw)
{
    struct buf bearer = BUF_INIT, request = BUF_INIT;
    const char *headers[2] = {NULL, NULL};

    if (gw->opt.gateway_id != NULL && gw->opt.secret != NULL) {
        buf_add_z(&bearer, "Authorization: Bearer ");
        token_mint(&bearer, str_of(gw->opt.gateway_id), str_of(gw->opt.secret),
                   (int64_t)time(NULL) + gw->opt.token_ttl_s);
        headers[0] = buf_z(&bearer);
    }
    ws_dial_request(&request,
                    &(struct ws_dial){.target = str_of(gw->url.path),
                                      .host = str_of(gw->url.host),
                                      .user_agent = str_of(gw->opt.user_agent),
                                      .headers = headers},
                    gw->conn.key);
    gwc_conn_add(&gw->conn, buf_str(&request));
    gw->conn.head.limit = WS_DIAL_HEAD_MAX + READ_BYTES;
    buf_wipe(&bearer);
    buf_wipe(&request);
    int64_t left_ms = gw->deadline_ms - gwc_now_ms();
    gwc_enter(gw, GWC_UPGRADING, left_ms > 0 ? left_ms : 1, "upgrading");
}

static void send_hello(struct bhgw *gw, const struct bhgw_identity *id)
{
    struct buf line = BUF_INIT;
    struct jw w = jw_begin(&line);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("hello"));
    jw_kstr(&w, "platform", str_of(id->platform));
    jw_kstr(&w, "botId", str_of(id->bot_id));
    if (id->command_manifest != NULL) {
        jw_key(&w, "command_manifest");
        jw_raw(&w, str_of(id->command_manifest));
    }
    jw_end_obj(&w);
    buf_add_c(&line, '\n');
    gwc_send_line(gw, buf_str(&line));
    buf_done(&line);
}

static void say_hello(struct bhgw *gw)
{
    ws_decoder_init(&gw->conn.decoder, false, gw->opt.max_message_bytes);
    gwc_enter(gw, GWC_HELLO, gw->opt.handshake_timeout_ms, "saying hello");
    gw->ping_at_ms = gwc_now_ms() + gw->opt.ping_interval_ms;
    for (size_t i = 0; i < gw->opt.n_identities; i++)
        send_hello(gw, &gw->opt.identities[i]);
}

/* ---- frames ---- */

static void on_close_frame(struct bhgw *gw, int code)
{
    char why[64];

    if (gw->phase != GWC_CLOSING) {
        gwc_conn_add_close(&gw->conn, code == CLOSE_CODE_NONE ? CLOSE_CODE_NORMAL : code);
        gwc_conn_flush(&gw->conn); /* best effort: the peer is leaving either way */
    }
    snprintf(why, sizeof why, "the connector closed with %d", code);
    gwc_drop(gw, code, gw->phase == GWC_CLOSING ? "closed" : why);
}

static void on_item(struct bhgw *gw, const struct ws_decoded *d)
{
    switch (d->item) {
    case WS_ITEM_DATA:
        if (gwc_is_connected(gw))
            gwc_bytes(gw, d->bytes);
        break;
    case WS_ITEM_PING:
        gwc_conn_add_frame(&gw->conn, WS_PONG, d->bytes);
        break;
    case WS_ITEM_CLOSE:
        on_close_frame(gw, d->code);
        break;
    case WS_ITEM_BAD:
        gwc_conn_add_close(&gw->conn, d->code);
        gwc_conn_flush(&gw->conn);
        gwc_drop(gw, d->code, "the connector broke the WebSocket protocol");
        break;
    case WS_ITEM_PONG:
    case WS_ITEM_MORE:
        break;
    }
}

static void on_data(struct bhgw *gw, char *p, size_t n)
{
    struct ws_decoded d;
    uint64_t socket = gw->socket_number;

    gw->ping_at_ms = gwc_now_ms() + gw->opt.ping_interval_ms;
    gw->pong_by_ms = 0;
    do {
        d = ws_decode(&gw->conn.decoder, &p, &n);
        on_item(gw, &d);
    } while (d.item != WS_ITEM_MORE && gwc_conn_is_open(&gw->conn) && socket == gw->socket_number);
}

static void on_upgrade_bytes(struct bhgw *gw, struct str bytes)
{
    struct gwc_conn *c = &gw->conn;
    char why[64];
    int status;

    buf_add_str(&c->head, bytes);
    size_t n = ws_dial_head_bytes(buf_str(&c->head));
    if (n == 0) {
        if (c->head.n > WS_DIAL_HEAD_MAX)
            gwc_drop(gw, 0, "the answer to the upgrade is too long");
        return;
    }
    if (!ws_dial_accepted(str_make(c->head.p, n), str_of(c->key), &status)) {
        snprintf(why, sizeof why, "the upgrade was refused: HTTP %d", status);
        gwc_drop(gw, 0, status > 0 ? why : "the answer is not a WebSocket upgrade");
        return;
    }
    struct buf rest = c->head;
    c->head = BUF_INIT;
    say_hello(gw);
    on_data(gw, rest.p + n, rest.n - n);
    buf_done(&rest);
}

void gwc_receive(struct bhgw *gw)
{
    char bytes[READ_BYTES];
    size_t n;

    for (int i = 0; i < READS_PER_TURN; i++) {
        switch (gwc_conn_read(&gw->conn, bytes, sizeof bytes, &n)) {
        case GWC_IO_AGAIN:
            gw->conn.more = false;
            return;
        case GWC_IO_FAILED:
            gwc_drop(gw, CLOSE_CODE_LOST,
                     gw->phase == GWC_CLOSING ? "closed" : "the connection was lost");
            return;
        case GWC_IO_DONE:
            break;
        }
        if (gw->phase == GWC_UPGRADING)
            on_upgrade_bytes(gw, str_make(bytes, n));
        else
            on_data(gw, bytes, n);
        if (!gwc_conn_is_open(&gw->conn))
            return;
    }
    gw->conn.more = true;
}
