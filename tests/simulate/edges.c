/* edges.c - edges between gateways and the relay: the real codec (net/batch.h) and the real memory
 * of an edge (net/kept.h), over a link that this file drives.
 *
 *      gateway --bytes--> kept_up() --batches--> heart: session_data(), session_acked()
 *      gateway <--whole frames-- kept_down() <--batches-- heart: wire_ops
 *
 * With one process there are two edges in it, and batches of one overtake those of the other.  With
 * several, each node that does not serve is an edge of the node that does; the link may lose or
 * repeat a batch, be cut, or end with either of the two.  Then the edge keeps its sockets and
 * presents them to the next heart. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "net/ws_codec.h"
#include "simulate/world_priv.h"
#include "tenancy/facts.h"

enum { MAX_BATCHES = 64 };

struct batches { /* under way in one direction */
    struct buf filling;
    struct buf at[MAX_BATCHES];
    size_t n;
    uint64_t sent, heard; /* numbers of batches */
};

struct sim_link {                  /* a trunk */
    struct sim_node *edge, *heart; /* borrowed; NULL both: one process */
    struct batches up, down;
    uint64_t acks, acks_heard;
    struct {
        uint64_t acks, mark;
    } marks[MAX_BATCHES];
    size_t n_marks;
    bool is_up;
};

/* ---- links ---- */

static void batches_done(struct batches *b)
{
    for (size_t i = 0; i < b->n; i++)
        buf_done(&b->at[i]);
    buf_done(&b->filling);
    *b = (struct batches){0};
}

static struct buf *filling(struct batches *b)
{
    if (b->filling.n == 0)
        batch_begin(&b->filling);
    return &b->filling;
}

static void close_batch(struct batches *b)
{
    if (batch_is_empty(&b->filling) || b->n == MAX_BATCHES)
        return;
    batch_end(&b->filling, ++b->sent);
    b->at[b->n++] = b->filling;
    b->filling = BUF_INIT;
}

static struct buf take_batch(struct batches *b)
{
    struct buf first = b->at[0];
    memmove(b->at, b->at + 1, --b->n * sizeof b->at[0]);
    return first;
}

static bool runs(const struct sim_node *n)
{
    return n == NULL || (n->alive && !n->frozen);
}

/* ---- the heart's half of a socket ---- */

static struct sim_socket *find_half(const struct world *w, const struct sim_link *l,
                                    uint32_t number)
{
    struct sim_socket *h = w->halves;
    while (h != NULL && (h->link != l || h->number != number))
        h = h->next;
    return h;
}

static void free_half(struct world *w, struct sim_socket *h)
{
    struct sim_socket **at = &w->halves;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    socket_free(h);
}

static void say(struct sim_socket *h, enum msg_what what, struct str payload)
{
    if (h->link != NULL)
        batch_add(filling(&h->link->down), h->number, what, payload);
}

static struct sim_socket *half_of(struct wire *l)
{
    return container_of(l, struct sim_socket, wire);
}

/* What the window lets through now: the rest follows in a later batch. */
static void flush_some(struct sim_socket *h)
{
    struct world *w = h->world;
    while (h->down.n > 0) {
        size_t n = h->down.n < MSG_MAX_PAYLOAD ? h->down.n : MSG_MAX_PAYLOAD;
        if (!w->peace && world_chance(w, 30))
            n = rand_below(&w->rand, n);
        say(h, MSG_DATA, str_make(h->down.p, n));
        buf_consume(&h->down, n);
        if (!w->peace && world_chance(w, 50))
            return;
    }
}

static void half_send(struct wire *l, struct str message)
{
    struct sim_socket *h = half_of(l);
    socket_judge(h, message);
    ws_frame_head(&h->down, WS_TEXT, true, message.n, NULL);
    buf_add_str(&h->down, message);
    h->frames++;
    struct sim_order o = {.frame = h->frames, .number = h->number};
    memcpy(o.last, h->seen.last_order, sizeof o.last);
    if (h->link != NULL && h->far != NULL)
        buf_add(&h->far->orders, &o, sizeof o);
}

static struct buf *half_send_begin(struct wire *l)
{
    half_of(l)->writing = true;
    buf_reset(&half_of(l)->sending);
    return &half_of(l)->sending;
}

static void half_send_end(struct wire *l)
{
    half_of(l)->writing = false;
    half_send(l, buf_str(&half_of(l)->sending));
}

static void half_ping(struct wire *l, uint32_t number)
{
    struct sim_socket *h = half_of(l);
    ws_frame_head(&h->down, WS_PING, true, sizeof number, NULL);
    buf_add(&h->down, &number, sizeof number);
    h->frames++;
}

static void half_close(struct wire *l, enum close_reason why)
{
    struct sim_socket *h = half_of(l);
    uint16_t code = (uint16_t)contract_closes[why].code;
    socket_judge_close(h, why);
    h->parked = why == CLOSE_RESTARTING && h->remote;
    if (h->parked) {
        say(h, MSG_PARK, STR_NULL);
        return;
    }
    ws_frame_head(&h->down, WS_CLOSE, true, 2, NULL);
    buf_add_c(&h->down, (char)(code >> 8));
    buf_add_c(&h->down, (char)code);
    h->frames++;
}

static void half_sent(struct wire *l, uint64_t row, struct str id)
{
    struct sim_socket *h = half_of(l);
    struct buf text = BUF_INIT;
    char frame[4];
    put_u32(frame, h->frames + h->writing);
    buf_add(&text, frame, sizeof frame);
    batch_put_row(&text, &(struct msg_row){row, id});
    if (h->remote)
        say(h, MSG_SENT, buf_str(&text));
    buf_done(&text);
}

static void half_answered(struct wire *l, struct str id)
{
    struct sim_socket *h = half_of(l);
    struct buf text = BUF_INIT;
    char frame[4];
    put_u32(frame, h->frames + h->writing);
    buf_add(&text, frame, sizeof frame);
    buf_add_str(&text, id);
    if (h->remote)
        say(h, MSG_RESULT, buf_str(&text));
    buf_done(&text);
}

static void half_keep(struct wire *l, bool yes, uint64_t number)
{
    struct sim_socket *h = half_of(l);
    const struct gateway *gw =
        facts_gateway(h->world->facts, str_of(h->world->peers[h->seen.instance].id));
    struct buf text = BUF_INIT;
    char since[24], rank[24];
    if (gw == NULL || !h->remote)
        return;
    snprintf(since, sizeof since, "%" PRId64, gw->created_ms);
    snprintf(rank, sizeof rank, "%" PRIu64, number);
    batch_put_texts(&text,
                    (const struct str[]){str_of(gw->id), str_of(gw->tenant), str_of(gw->instance),
                                         str_of(since), str_of(rank)},
                    5);
    say(h, yes ? MSG_KEEP : MSG_LET_GO, yes ? buf_str(&text) : STR_NULL);
    buf_done(&text);
}

static const struct wire_ops half_ops = {.send = half_send,
                                         .send_begin = half_send_begin,
                                         .send_end = half_send_end,
                                         .ping = half_ping,
                                         .close = half_close,
                                         .sent = half_sent,
                                         .answered = half_answered,
                                         .keep = half_keep};

static struct sim_socket *half_new(struct sim_socket *g)
{
    struct sim_socket *h = xcalloc(1, sizeof *h);
    h->wire.ops = &half_ops;
    h->world = g->world;
    h->keeper = g->link->heart;
    h->link = g->link;
    h->number = g->number;
    h->far = g;
    h->seen = g->seen;
    h->remote = g->kept.remote;
    h->next = g->world->halves;
    g->world->halves = h;
    return h;
}

/* The relay learns that it is gone. */
static void end_half(struct world *w, struct sim_socket *h, int code)
{
    nodes_enter(w, h->keeper);
    if (h->session != NULL)
        session_closed(h->session, code);
    free_half(w, h);
}

/* ---- the heart hears ---- */

static void hear_acks(struct sim_socket *h, struct str ids)
{
    for (; ids.n >= MSG_ID_BYTES; ids = str_skip(ids, MSG_ID_BYTES)) {
        struct str id = str_make(ids.p, MSG_ID_BYTES);
        socket_heard_ack(h, id);
        session_acked(h->session, id);
    }
}

static int by_row(const void *a, const void *b)
{
    const struct session_row *x = a, *y = b;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* As http/gateway_socket.c does it. */
static const struct gateway *gateway_of(const struct world *w, const struct msg_keep *k)
{
    const struct gateway *gw = facts_gateway(w->facts, k->gateway);
    char since[24] = "";
    if (gw != NULL)
        snprintf(since, sizeof since, "%" PRId64, gw->created_ms);
    bool same = gw != NULL && gw->revoked_ms == 0 && str_eq(k->since, str_of(since)) &&
                str_eq(k->tenant, str_of(gw->tenant)) && str_eq(k->instance, str_of(gw->instance));
    return same ? gw : NULL;
}

static void take_presented(struct sim_socket *h)
{
    struct world *w = h->world;
    struct msg_present p = {0};
    struct session_row *rows = (struct session_row *)(void *)h->rows.p;
    struct str asked[KEPT_MAX_ASKED], rest = buf_str(&h->past_asked), id;
    struct session_past past = {.rows = rows, .n_rows = h->rows.n / sizeof *rows, .asked = asked};
    if (!batch_read_texts(buf_str(&h->past), (struct str *)(void *)&p,
                          sizeof p / sizeof(struct str)))
        model_break(&w->model, "socket %u: its presentation cannot be read", h->seen.number);
    const struct gateway *gw = gateway_of(w, &p.keep);
    if (gw == NULL) {
        world_say(w, "  socket %u is of a gateway that was revoked", h->seen.number);
        half_close(&h->wire, CLOSE_REVOKED);
        return;
    }
    for (size_t i = 0; i < past.n_rows; i++)
        rows[i].id.p = h->row_ids.p + i * MSG_ID_BYTES;
    if (past.n_rows > 0)
        qsort(rows, past.n_rows, sizeof *rows, by_row);
    while (past.n_asked < KEPT_MAX_ASKED && str_split(&rest, '\n', &id))
        if (id.n > 0)
            asked[past.n_asked++] = id;
    past.personas = p.hellos;
    past.acked = str_eq(p.acked, STR("1"));
    past.late_acks = str_eq(p.acked, STR("late"));
    (void)str_to_u64(p.keep.rank, &past.rank);
    h->heard_hello = true;
    world_say(w, "  socket %u goes on: %zu deliveries on it, %zu actions", h->seen.number,
              past.n_rows, past.n_asked);
    w->result.presented++;
    h->session = session_resume(w->relay, gw, &h->wire, &past);
    if (h->session == NULL)
        half_close(&h->wire, CLOSE_TRY_LATER);
}

static void hear_present(struct sim_socket *h, const struct msg *m)
{
    struct str rest = m->payload;
    struct msg_row row;
    if (m->what == MSG_PRESENT) {
        buf_add_str(&h->past, m->payload);
    } else if (m->what == MSG_ASKED) {
        buf_add_str(&h->past_asked, m->payload);
        buf_add_c(&h->past_asked, '\n');
    }
    while (m->what == MSG_ROWS && batch_next_row(&rest, &row)) {
        struct session_row r = {row.row, {NULL, MSG_ID_BYTES}};
        buf_add(&h->rows, &r, sizeof r);
        buf_add_str(&h->row_ids, row.id);
    }
    if (m->what == MSG_SHOWN)
        take_presented(h);
}

static void heart_take(struct world *w, struct sim_link *l, const struct msg *m)
{
    struct sim_socket *h = find_half(w, l, m->number);
    if (h == NULL)
        return;
    nodes_enter(w, l->heart);
    if (m->what == MSG_GONE)
        end_half(w, h, get_u16(m->payload.p));
    else if (m->what >= MSG_PRESENT && m->what <= MSG_SHOWN)
        hear_present(h, m);
    else if (h->session == NULL || h->close_code != 0)
        return;
    else if (m->what == MSG_TEXT)
        socket_heard(h, str_skip(m->payload, 1));
    else if (m->what == MSG_ACKS)
        hear_acks(h, m->payload);
    else if (m->what == MSG_PONG)
        session_pong(h->session, get_u32(m->payload.p));
}

static void note_mark(struct world *w, struct sim_link *l, uint64_t acks)
{
    l->acks_heard += acks;
    if (acks == 0 || w->relay == NULL)
        return;
    if (l->n_marks == MAX_BATCHES)
        l->n_marks--;
    l->marks[l->n_marks].acks = l->acks_heard;
    l->marks[l->n_marks++].mark = relay_acks_mark(w->relay);
}

static void tell_committed(struct world *w, struct sim_link *l)
{
    uint64_t upto = 0;
    char bytes[8];
    while (l->n_marks > 0 && w->relay != NULL && l->marks[0].mark <= relay_acks_safe(w->relay)) {
        upto = l->marks[0].acks;
        memmove(l->marks, l->marks + 1, --l->n_marks * sizeof l->marks[0]);
    }
    put_u64(bytes, upto);
    if (upto > 0)
        batch_add(filling(&l->down), 0, MSG_COMMITTED, str_make(bytes, sizeof bytes));
}

/* ---- the edge's half ---- */

typedef void each_f(struct world *w, struct sim_socket *g);

static void each_socket(struct world *w, const struct sim_link *l, each_f *f)
{
    for (size_t i = 0; i < MODEL_INSTANCES; i++)
        for (size_t k = 0; k < PEER_SOCKETS; k++)
            if (w->peers[i].sockets[k] != NULL && w->peers[i].sockets[k]->link == l)
                f(w, w->peers[i].sockets[k]);
}

static struct sim_socket *find_socket(struct world *w, const struct sim_link *l, uint32_t number)
{
    for (size_t i = 0; i < MODEL_INSTANCES; i++)
        for (size_t k = 0; k < PEER_SOCKETS; k++) {
            struct sim_socket *g = w->peers[i].sockets[k];
            if (g != NULL && g->link == l && g->number == number)
                return g;
        }
    return NULL;
}

/* A whole message reaches the gateway. */
static void pass_message(struct sim_socket *g, struct str text)
{
    struct sim_order o;
    while (g->orders.n > 0) {
        memcpy(&o, g->orders.p, sizeof o);
        if (o.number == g->number && o.frame > g->frames)
            break;
        if (o.number == g->number)
            memcpy(g->seen.last_order, o.last, sizeof o.last);
        buf_consume(&g->orders, sizeof o);
    }
    socket_passes(g, text);
    buf_add_str(&g->inbox, text);
}

static void pass_down(struct sim_socket *g, struct str bytes)
{
    struct buf whole = BUF_INIT;
    struct ws_decoder d;
    struct ws_decoded it;
    kept_down(&g->kept, bytes, &whole);
    char *p = whole.p;
    size_t n = whole.n;
    ws_decoder_init(&d, false, 1u << 30);
    while (n > 0 && (it = ws_decode(&d, &p, &n)).item != WS_ITEM_MORE) {
        uint32_t number = 0;
        g->frames++;
        if (it.item == WS_ITEM_DATA)
            pass_message(g, it.bytes);
        else if (it.item == WS_ITEM_CLOSE)
            g->close_code = it.code;
        else if (it.item == WS_ITEM_PING && it.bytes.n == sizeof number)
            socket_pinged(g, (memcpy(&number, it.bytes.p, sizeof number), number));
        else
            model_break(&g->world->model, "socket %u: a frame makes no sense", g->seen.number);
    }
    ws_decoder_done(&d);
    buf_done(&whole);
}

/* Its heart is lost: the gateway's half lives on, or is closed. */
static void into_limbo(struct world *w, struct sim_socket *g)
{
    g->limbo = true;
    g->frames = 0;
    g->n_pings = 0;
    buf_reset(&g->orders);
    if (g->kept.remote && kept_lost(&g->kept)) {
        world_say(w, "  socket %u waits for the next heart", g->seen.number);
        return;
    }
    g->link = NULL;
    g->close_code = 1012;
}

static void edge_take(struct world *w, struct sim_link *l, const struct msg *m)
{
    struct sim_socket *g = m->number != 0 ? find_socket(w, l, m->number) : NULL;
    bool ok = true;
    if (m->what == MSG_COMMITTED)
        for (size_t i = 0; i < MODEL_INSTANCES; i++)
            for (size_t k = 0; k < PEER_SOCKETS; k++)
                if (w->peers[i].sockets[k] != NULL && w->peers[i].sockets[k]->link == l)
                    kept_committed(&w->peers[i].sockets[k]->kept, get_u64(m->payload.p));
    if (g == NULL || g->limbo)
        return;
    switch (m->what) {
    case MSG_DATA:
        pass_down(g, m->payload);
        break;
    case MSG_SENT:
        ok = kept_sent(&g->kept, m->payload);
        break;
    case MSG_RESULT:
        ok = kept_result(&g->kept, m->payload);
        break;
    case MSG_KEEP:
        ok = kept_keep(&g->kept, m->payload);
        break;
    case MSG_LET_GO:
        buf_reset(&g->kept.keep);
        break;
    case MSG_PARK:
        into_limbo(w, g);
        break;
    default:
        break;
    }
    if (!ok)
        model_break(&w->model, "an edge cannot read an order");
}

/* ---- the end of a link ---- */

/* The sessions of lost links end when their heart runs; they died with one that is dead. */
static void end_lost(struct world *w)
{
    for (struct sim_socket *h = w->halves, *next; h != NULL; h = next) {
        next = h->next;
        if (h->parked && h->session != NULL && runs(h->keeper)) {
            end_half(w, h, 1012);
        } else if (h->link == NULL && (h->keeper == NULL || !h->keeper->alive)) {
            free_half(w, h);
        } else if (h->link == NULL && runs(h->keeper)) {
            nodes_enter(w, h->keeper);
            if (h->session != NULL)
                session_parted(h->session);
            end_half(w, h, 1006);
        }
    }
}

static void cut(struct world *w, struct sim_link *l)
{
    if (!l->is_up)
        return;
    world_say(w, "the trunk of %s is cut", l->edge != NULL ? l->edge->name : "an edge");
    w->result.cuts++;
    for (struct sim_socket *h = w->halves; h != NULL; h = h->next)
        if (h->link == l) {
            h->link = NULL;
            h->far = NULL;
        }
    each_socket(w, l, into_limbo);
    batches_done(&l->up);
    batches_done(&l->down);
    l->acks = l->acks_heard = l->n_marks = 0;
    l->is_up = false;
    end_lost(w);
}

/* ---- presenting ---- */

static struct kept_out out_of(struct sim_socket *g)
{
    struct sim_link *l = g->link;
    return (struct kept_out){filling(&l->up), g->number, &l->acks, g->world->parser};
}

static void present(struct world *w, struct sim_socket *g)
{
    if (!g->limbo || g->close_code != 0)
        return;
    g->limbo = false;
    g->number = ++w->connection_numbers;
    g->keeper = g->link->heart;
    g->kept.remote = g->link->heart != g->link->edge;
    world_say(w, "  socket %u is presented to %s", g->seen.number, g->keeper->name);
    (void)half_new(g);
    struct kept_out out = out_of(g);
    socket_presented(g);
    kept_present(&g->kept, &out);
    struct buf held = g->up;
    g->up = BUF_INIT;
    kept_up(&g->kept, buf_str(&held), &out);
    buf_done(&held);
}

static void look_for_heart(struct world *w, struct sim_link *l)
{
    struct sim_node *heart = nodes_heart_of(w, l->edge);
    if (l->is_up && (l->heart == heart || (heart == NULL && l->heart->alive)))
        return;
    cut(w, l);
    if (heart == NULL)
        return;
    l->heart = heart;
    l->is_up = true;
    each_socket(w, l, present);
}

/* ---- time ---- */

/* Sometimes the link loses a batch, or has one twice: whoever reads must notice. */
static void spoil(struct world *w, struct batches *b)
{
    if (w->peace || w->n_nodes == 0 || !world_chance(w, 2))
        return;
    if (b->n > 1 && world_chance(w, 60)) {
        struct buf first = take_batch(b);
        world_say(w, "a batch is lost");
        buf_done(&first);
    } else if (b->n > 0 && b->n < MAX_BATCHES) {
        memmove(b->at + 1, b->at, b->n * sizeof b->at[0]);
        b->at[0] = BUF_INIT;
        buf_add_str(&b->at[0], buf_str(&b->at[1]));
        b->n++;
        world_say(w, "a batch comes twice");
    }
}

typedef void take_f(struct world *w, struct sim_link *l, const struct msg *m);

/* Takes one batch.  False: it is not the next one, and the link is cut. */
static bool take_one(struct world *w, struct sim_link *l, struct batches *b, take_f *take,
                     uint64_t *ret_acks)
{
    struct str messages;
    struct msg m;
    bool bad = false;
    spoil(w, b);
    struct buf whole = take_batch(b);
    bool ok = batch_open(buf_str(&whole), &b->heard, &messages);
    while (ok && batch_next(&messages, &m, &bad)) {
        *ret_acks += m.what == MSG_ACKS ? m.payload.n / MSG_ID_BYTES : 0;
        take(w, l, &m);
    }
    if (bad)
        model_break(&w->model, "a batch cannot be read");
    buf_done(&whole);
    if (!ok)
        cut(w, l);
    return ok;
}

/* One step of one link: either end closes a batch, or takes one. */
static void step(struct world *w, struct sim_link *l)
{
    uint64_t acks = 0;
    if (l->edge != NULL && runs(l->edge))
        look_for_heart(w, l);
    if (!l->is_up)
        return;
    if (runs(l->heart)) {
        nodes_enter(w, l->heart);
        for (struct sim_socket *h = w->halves; h != NULL; h = h->next)
            if (h->link == l)
                flush_some(h);
        tell_committed(w, l);
        close_batch(&l->down);
    }
    if (runs(l->edge))
        close_batch(&l->up);
    if (l->up.n > 0 && runs(l->heart) && (w->peace || world_chance(w, 60)) &&
        take_one(w, l, &l->up, heart_take, &acks)) {
        nodes_enter(w, l->heart);
        note_mark(w, l, acks);
    }
    if (l->is_up && l->down.n > 0 && runs(l->edge) && (w->peace || world_chance(w, 60)))
        (void)take_one(w, l, &l->down, edge_take, &acks);
}

void edges_move(struct world *w)
{
    size_t n = w->n_nodes > 0 ? w->n_nodes : w->n_edges;
    struct sim_node *at = w->at;
    for (size_t i = 0; i < n; i++)
        for (size_t k = w->peace ? 8 : 1; k > 0; k--)
            step(w, w->links[w->peace ? i : rand_below(&w->rand, n)]);
    if (w->n_nodes > 0 && !w->peace && world_chance(w, 1))
        cut(w, w->links[rand_below(&w->rand, n)]);
    end_lost(w);
    nodes_enter(w, at);
}

/* ---- sockets ---- */

struct sim_link *edges_link(struct world *w, const struct sim_node *via)
{
    if (via != NULL)
        return w->links[via - w->nodes];
    return w->n_edges > 0 && world_chance(w, 80) ? w->links[rand_below(&w->rand, w->n_edges)]
                                                 : NULL;
}

struct sim_socket *edges_connect(struct sim_socket *g, struct sim_link *l)
{
    if (!l->is_up || l->heart != g->keeper)
        return NULL;
    g->link = l;
    g->number = ++g->world->connection_numbers;
    g->kept.remote = l->edge != l->heart;
    return half_new(g);
}

void edges_refused(struct sim_socket *h)
{
    free_half(h->world, h);
}

void edges_hear(struct sim_socket *g, struct str bytes)
{
    if (g->limbo) {
        buf_add_str(&g->up, bytes);
        return;
    }
    struct kept_out out = out_of(g);
    kept_up(&g->kept, bytes, &out);
}

void edges_pong(struct sim_socket *g, uint32_t number)
{
    if (!g->limbo)
        batch_add_u32(filling(&g->link->up), g->number, MSG_PONG, number);
}

/* The gateway has gone. */
void edges_lose(struct sim_socket *g, int code)
{
    struct sim_socket *h = g->link != NULL ? find_half(g->world, g->link, g->number) : NULL;
    char bytes[2];
    if (h != NULL)
        h->far = NULL;
    put_u16(bytes, (uint16_t)code);
    if (g->link != NULL && !g->limbo)
        batch_add(filling(&g->link->up), g->number, MSG_GONE, str_make(bytes, sizeof bytes));
}

void edges_ended(struct world *w, const struct sim_node *n)
{
    for (size_t i = 0; i < w->n_nodes; i++)
        if (w->links[i]->is_up && (w->links[i]->heart == n || w->links[i]->edge == n))
            cut(w, w->links[i]);
    end_lost(w);
}

void edges_open(struct world *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        w->links[i] = xcalloc(1, sizeof *w->links[i]);
        w->links[i]->edge = w->n_nodes > 0 ? &w->nodes[i] : NULL;
        w->links[i]->is_up = w->n_nodes == 0;
    }
    if (w->n_nodes == 0)
        w->n_edges = n;
}

/* The one process has crashed, and its edges with it. */
void edges_crashed(struct world *w)
{
    while (w->halves != NULL)
        free_half(w, w->halves);
    for (size_t i = 0; i < w->n_edges; i++) {
        batches_done(&w->links[i]->up);
        batches_done(&w->links[i]->down);
        w->links[i]->acks = w->links[i]->acks_heard = w->links[i]->n_marks = 0;
    }
}

void edges_close(struct world *w)
{
    while (w->halves != NULL)
        free_half(w, w->halves);
    for (size_t i = 0; i < ARRAY_LEN(w->links) && w->links[i] != NULL; i++) {
        batches_done(&w->links[i]->up);
        batches_done(&w->links[i]->down);
        free(w->links[i]);
    }
}
