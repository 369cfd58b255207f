/* frames.c - the input of a connection: the upgrade, the hello, the lines of the connector.
 *
 * The connector sends one JSON object per line; lines and WebSocket messages need not coincide.  An
 * unusable line is counted and skipped, because the next line may be a result that a thread waits
 * for.  Deliveries are queued unparsed for the events thread; all other frames are handled here.
 *
 * Any frame may end the connection and free the decoder, so every loop checks that its socket is
 * still open. */
#include <stdlib.h>
#include <time.h>

#include "base/jw.h"
#include "base/mem.h"
#include "client.h"
#include "core/token.h"

#define MAX_INTERRUPTS 1024 /* queued for a busy notices thread; more are dropped */

static void skip(struct bhgw *gw, const char *why)
{
    gw->stats.bad_frames++;
    if (!gw->complained)
        gwc_log(gw, BHGW_LOG_WARN, "skipped a frame: %s (further ones are only counted)", why);
    gw->complained = true;
}

/* ---- acks ---- */

void gwc_ack_entry(struct bhgw *gw, const struct seen_entry *e)
{
    /* An ack belongs on the socket that brought the delivery.  On a later one the connector repeats
     * the delivery first, and that is when it is acknowledged. */
    if (e->socket != gw->socket_number || !gwc_is_connected(gw))
        return;
    struct jw w = jw_begin(&gw->acks);
    jw_obj(&w);
    jw_kstr(&w, "type", STR("inbound_ack"));
    jw_kstr(&w, "bufferId", seen_id(e));
    jw_end_obj(&w);
    buf_add_c(&gw->acks, '\n');
    if (gw->n_acks++ == 0)
        gw->acks_since_ms = gwc_now_ms();
}

void gwc_settle_locked(struct bhgw *gw, uint64_t number, enum bhgw_verdict verdict)
{
    struct seen_entry *e = seen_pending(&gw->seen, number);

    if (e == NULL || verdict == BHGW_LATER)
        return;
    if (verdict == BHGW_ACK) {
        seen_settle(&gw->seen, e);
        if (!seen_file_add(&gw->seen_file, &gw->seen, seen_id(e)))
            gwc_log(gw, BHGW_LOG_WARN,
                    "a settled id could not be written to seen_file: after a "
                    "restart its message may be handed over again");
        gwc_ack_entry(gw, e);
    } else {
        seen_forget(&gw->seen, e);
    }
    gwc_wake_locked(gw);
}

/* ---- deliveries ---- */

static void enqueue(struct bhgw *gw, uint64_t number, bool passthrough, struct str line)
{
    struct gwc_delivery *d = xmalloc(sizeof *d + line.n + 1);

    *d = (struct gwc_delivery){.number = number, .passthrough = passthrough, .bytes = line.n};
    memcpy(d->line, line.p, line.n);
    d->line[line.n] = '\0';
    list_init(&d->link);
    list_append(&gw->deliveries, &d->link);
    gw->n_deliveries++;
    gw->delivery_bytes += line.n;
    pthread_cond_signal(&gw->events_wakeup);
}

static void on_delivery(struct bhgw *gw, struct json doc, bool passthrough, struct str line)
{
    struct json payload = json_get(doc, passthrough ? "forward" : "event");
    char scratch[24];
    struct str id = gwc_buffer_id(json_get(doc, "bufferId"), scratch);
    struct seen_entry *e = NULL;

    if (json_type(payload) != JSON_OBJECT && (passthrough || json_type(payload) != JSON_ABSENT))
        return skip(gw, "a delivery that is not an object");
    if (id.n > SEEN_ID_MAX)
        return skip(gw, "a bufferId that is too long");
    if (id.n > 0 && (e = seen_find(&gw->seen, id)) != NULL) {
        gw->stats.duplicates++;
        e->socket = gw->socket_number;
        if (e->state == SEEN_SETTLED)
            gwc_ack_entry(gw, e);
        return;
    }
    /* Over the limit: skip all further deliveries of this socket, to keep their order.  The socket
     * still carries acks and results.  Once there is room it is replaced, and the connector repeats
     * the skipped deliveries. */
    gw->choked |= seen_n_pending(&gw->seen) >= gw->opt.max_pending ||
                  gw->n_deliveries >= gw->opt.max_pending ||
                  gw->delivery_bytes + line.n > gw->opt.max_pending_bytes;
    if (gw->choked)
        return;
    if (id.n > 0)
        e = seen_add(&gw->seen, id, gw->socket_number);
    enqueue(gw, e != NULL ? e->number : 0, passthrough, line);
}

/* ---- the rest ---- */

static void on_descriptor(struct bhgw *gw, struct json doc)
{
    struct bhgw_descriptor *d = gwc_descriptor_read(json_get(doc, "descriptor"));

    if (d == NULL) {
        skip(gw, "a descriptor without all its keys");
        if (gw->phase == GWC_HELLO)
            gwc_drop(gw, 0, "the descriptor is incomplete");
        return;
    }
    gwc_descriptor_keep(gw, d, gw->n_descriptors++ == 0);
    struct gwc_notice *n = xcalloc(1, sizeof *n);
    n->kind = GWC_NOTICE_DESCRIPTOR;
    n->descriptor = gwc_descriptor_copy(d);
    gwc_notify_locked(gw, n);
    if (gw->n_descriptors == 1)
        gwc_ready(gw);
}

static void on_interrupt(struct bhgw *gw, struct json doc)
{
    struct str key = json_str(doc, "session_key"), chat = json_str(doc, "chat_id");

    if (key.n == 0)
        return skip(gw, "an interrupt without a session_key");
    if (gw->n_interrupts >= MAX_INTERRUPTS)
        return skip(gw, "more interrupts than anybody takes");
    struct gwc_notice *n = xcalloc(1, sizeof *n);
    n->kind = GWC_NOTICE_INTERRUPT;
    n->a = str_dup(key);
    n->b = str_dup(chat.p != NULL ? chat : STR(""));
    gw->n_interrupts++;
    gwc_notify_locked(gw, n);
}

void gwc_frame(struct bhgw *gw, struct str line)
{
    struct json doc;

    if (str_trim(line).n == 0)
        return;
    if (!json_parse(gw->parser, line, &doc))
        return skip(gw, json_error(gw->parser));
    if (!json_is_object(doc))
        return skip(gw, "not an object");
    struct str type = json_str(doc, "type");
    if (str_eq(type, STR("inbound")))
        on_delivery(gw, doc, false, line);
    else if (str_eq(type, STR("passthrough_forward")))
        on_delivery(gw, doc, true, line);
    else if (str_eq(type, STR("outbound_result")))
        gwc_result_arrived(gw, doc);
    else if (str_eq(type, STR("interrupt_inbound")))
        on_interrupt(gw, doc);
    else if (str_eq(type, STR("descriptor")))
        on_descriptor(gw, doc);
    else if (str_eq(type, STR("going_idle_ack")))
        gwc_idle_acked(gw);
    /* Unknown types belong to a newer contract and are ignored. */
}

void gwc_bytes(struct bhgw *gw, struct str piece)
{
    uint64_t socket = gw->socket_number;

    while (piece.n > 0 && gwc_is_connected(gw) && socket == gw->socket_number) {
        ptrdiff_t end = str_find(piece, '\n');
        struct str part = end < 0 ? piece : str_make(piece.p, (size_t)end);
        piece = str_skip(piece, part.n + (end >= 0));
        if (gw->line.n + part.n > gw->opt.max_message_bytes)
            return gwc_drop(gw, CLOSE_CODE_TOO_LARGE,
                            "the connector sent a frame that is too long");
        if (end >= 0 && gw->line.n == 0) {
            gwc_frame(gw, part);
            continue;
        }
        buf_add_str(&gw->line, part);
        if (end < 0)
            return;
        struct buf whole = gw->line;
        gw->line = BUF_INIT;
        gwc_frame(gw, buf_str(&whole));
        buf_done(&whole);
    }
}

/* ---- the upgrade, the hello, reading ---- */

#define READ_BYTES 65536
#define READS_PER_TURN 16

/* ---- upgrade and hello ---- */

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
    if (id->command_manifest != NULL)
        jw_kraw(&w, "command_manifest", str_of(id->command_manifest));
    if (gw->opt.late_acks)
        jw_kbool(&w, "late_acks", true);
    jw_end_obj(&w);
    buf_add_c(&line, '\n');
    gwc_send_line(gw, buf_str(&line));
    buf_done(&line);
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
    ws_decoder_init(&c->decoder, false, gw->opt.max_message_bytes);
    gwc_enter(gw, GWC_HELLO, gw->opt.handshake_timeout_ms, "saying hello");
    gw->ping_at_ms = gwc_now_ms() + gw->opt.ping_interval_ms;
    for (size_t i = 0; i < gw->opt.n_identities; i++)
        send_hello(gw, &gw->opt.identities[i]);
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
