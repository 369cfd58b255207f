/* Batches of a trunk, from a peer that knows the key and is broken: net/batch.h, net/kept.h.
 *
 * The first byte says who reads: the heart or an edge.  The rest is one batch, or, behind a byte
 * with its length in front, several; a head that does not fit is repaired, so that the messages are
 * reached.  What can be read is written again, and is the same.  The edge's gateway says something
 * between two batches. */
#include <stdlib.h>
#include "base/json.h"
#include "base/mem.h"
#include "net/kept.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct json_parser *json;

static void check(bool ok)
{
    if (!ok)
        abort();
}

static void again(const struct msg *m, const struct msg_request *r)
{
    struct buf b = BUF_INIT;

    batch_begin(&b);
    batch_add_request(&b, m->number, m->what, r);
    struct str messages = str_skip(buf_str(&b), BATCH_HEAD_BYTES);
    struct msg_request back = {.head = xcalloc(1, sizeof *back.head)};
    struct msg same;
    bool bad;
    check(batch_next(&messages, &same, &bad) && batch_read_request(same.payload, &back));
    check(str_eq(back.head_bytes, r->head_bytes) && str_eq(back.body, r->body));
    check(back.head->n_fields == r->head->n_fields && back.checked == r->checked &&
          (r->checked == 0 || back.signer == r->signer));
    free(back.head);
    buf_done(&b);
}

static void heart_reads(const struct msg *m)
{
    struct msg_request r = {.head = xcalloc(1, sizeof *r.head)};
    struct msg_present p;
    struct msg_row row;
    struct str rest = m->payload;
    struct addr peer;
    uint8_t flags;

    if ((m->what == MSG_REQUEST || m->what == MSG_HEAD) && batch_read_request(m->payload, &r)) {
        const struct http_head *h = r.head;
        check(h->path + h->path_n <= r.head_bytes.n && h->host + h->host_n <= r.head_bytes.n);
        for (uint32_t i = 0; i < h->n_fields; i++)
            check(h->fields[i].value + h->fields[i].value_n <= r.head_bytes.n);
        again(m, &r);
    } else if (m->what == MSG_CONNECT && batch_read_connect(m->payload, &flags, &peer)) {
        check(peer.n == 0 || peer.n == 4 || peer.n == 16);
    } else if (m->what == MSG_PRESENT) {
        (void)batch_read_texts(m->payload, (struct str *)(void *)&p, sizeof p / sizeof(struct str));
    }
    while (m->what == MSG_ROWS && batch_next_row(&rest, &row))
        check(row.id.n == MSG_ID_BYTES);
    free(r.head);
}

static void edge_reads(struct kept_socket *k, const struct msg *m, struct buf *socket)
{
    struct msg_signer signer;

    if ((m->what == MSG_SIGNER || m->what == MSG_UNSIGN) && batch_read_signer(m->payload, &signer))
        check(signer.path.n > 0 && signer.path.n + 36 == m->payload.n);
    if (m->what == MSG_DATA)
        kept_down(k, m->payload, socket);
    else if (m->what == MSG_SENT)
        (void)kept_sent(k, m->payload);
    else if (m->what == MSG_RESULT)
        (void)kept_result(k, m->payload);
    else if (m->what == MSG_KEEP)
        (void)kept_keep(k, m->payload);
    else if (m->what == MSG_COMMITTED && m->payload.n == 8)
        kept_committed(k, get_u64(m->payload.p));
}

/* A gateway with a hello, an action and acks; then the heart is lost. */
static void gateway_talks(struct kept_socket *k, struct buf *up, uint64_t *acks, size_t n)
{
    static const char said[] = "{\"type\":\"hello\",\"platform\":\"web\",\"botId\":\"lobby\"}\n"
                               "{\"type\":\"inbound_ack\",\"bufferId\":\"b0000000000000000000000000"
                               "1\"}\n{\"type\":\"outbound\",\"requestId\":\"r1\",\"action\":{}}\n"
                               "{\"type\":\"going_idle\"}\nnot json\n";
    struct kept_out out = {up, 1, acks, json};

    (void)kept_up(k, str_make(said, n % sizeof said), &out);
    if (n % 7 == 0 && kept_lost(k))
        kept_present(k, &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kept_socket k = {.remote = true};
    struct buf socket = BUF_INIT, up = BUF_INIT;
    uint64_t no = 0, acks = 0;

    if (size < 2)
        return 0;
    if (json == NULL)
        json = json_parser_new();
    batch_begin(&up);
    bool heart = data[0] & 1;
    for (size_t at = 1; at < size;) {
        size_t n = data[at] < size - at - 1 ? data[at] : size - at - 1;
        n = data[at] == 255 ? size - at - 1 : n;
        struct buf b = BUF_INIT;
        struct str messages;
        struct msg m;
        bool bad = false;
        batch_begin(&b);
        buf_add(&b, data + at + 1, n);
        batch_end(&b, no + 1);
        check(batch_bytes(buf_str(&b)) == b.n);
        check(batch_open(buf_str(&b), &no, &messages));
        check(!batch_open(buf_str(&b), &no, &messages)); /* the same one again */
        messages = str_skip(buf_str(&b), BATCH_HEAD_BYTES);
        while (batch_next(&messages, &m, &bad)) {
            if (heart)
                heart_reads(&m);
            else
                edge_reads(&k, &m, &socket);
        }
        gateway_talks(&k, &up, &acks, n);
        buf_done(&b);
        at += n + 1;
    }
    kept_done(&k);
    buf_done(&socket);
    buf_done(&up);
    return 0;
}
