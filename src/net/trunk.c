/* trunk.c - design.  (trunk.h has the contract, batch.h the messages.)
 *
 * The part that both ends share: batches, numbers of connections, windows, turns, questions.
 * trunk_heart.c and trunk_edge.c have the two halves.
 *
 * Messages are handled inside the read of the trunk's own connection.  What they cause is written
 * when the turn ends: each connection flushes into the batch, then the batch is closed and sent.
 *
 * Questions: the heart has an edge do something on its machine.
 *
 *      heart --QUESTION: a part--> ... --ASK: the last part--> edge: on_ask()
 *            --UNASK: never mind-->                            on_unask()
 *            <--ANSWER: a part-- ... <--TOLD: the last part--  trunk_tell()
 *
 * The numbers of questions are the heart's and independent of those of connections. */
#include "net/trunk.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/contract.h"
#include "net/redis_hop.h"
#include "net/ring.h"
#include "net/tcp_client.h"
#include "net/trunk_priv.h"

enum { STALL_MS = 2, RING_STALL_MS = 1 };

/* ---- its life ---- */

static void on_go_on(struct timer *timer);

void trunk_init(struct trunk *t, struct http_server *s)
{
    t->server = s;
    t->high = TRUNK_HIGH_BYTES;
    t->heard_ms = clock_now_ms(s->clock);
    list_init(&t->link);
    list_append(&s->trunks, &t->link);
    list_init(&t->ready);
    list_init(&t->stalled);
    list_init(&t->asks);
    timer_init(&t->go_on, on_go_on);
}

void trunk_done(struct trunk *t)
{
    assert(map_count(&t->carried) == 0);
    timer_stop(t->server->clock, &t->go_on);
    timer_stop(t->server->clock, &t->beat);
    secret_wipe(t->key, sizeof t->key);
    list_remove(&t->link);
    map_done_all(&t->turns);
    buf_done(&t->in);
    buf_done(&t->out);
    buf_done(&t->parts);
    map_done(&t->carried);
    signers_forget(t);
}

static void soon(struct trunk *t)
{
    if (!timer_is_set(&t->go_on))
        timer_set(t->server->clock, &t->go_on, 0);
}

void trunk_fail(struct trunk *t, const char *why)
{
    if (t->lost)
        return;
    if (t->ring != NULL) { /* both ends are ours */
        log_error(NULL, "an edge and the heart disagree: %s", why);
        abort();
    }
    t->lost = true;
    snprintf(t->why, sizeof t->why, "%s", why);
    if (t->conn != NULL) {
        conn_close(t->conn);
    } else {
        timer_stop(t->server->clock, &t->go_on);
        timer_set(t->server->clock, &t->beat, 0); /* it says so and ends the trunk */
    }
}

/* ---- the proof ---- */

void trunk_mac(const struct trunk *t, const char *role, struct str name, uint8_t ret_mac[32])
{
    struct buf text = BUF_INIT;

    buf_printf(&text, "%s %s ", TRUNK_PROTOCOL, role);
    buf_add(&text, t->challenge, sizeof t->challenge);
    buf_add(&text, t->answer, sizeof t->answer);
    buf_add_str(&text, name);
    hmac_sha256(str_make((const char *)t->key, sizeof t->key), buf_str(&text), ret_mac);
    buf_done(&text);
}

/* @before, the HMAC of this side, and its name. */
void trunk_send_proof(struct trunk *t, enum msg_what what, const char *role, struct str before)
{
    struct buf *out = trunk_out(t);
    size_t begun = batch_add_begin(out, 0, what);
    uint8_t mac[TRUNK_MAC_BYTES];

    trunk_mac(t, role, str_of(t->name), mac);
    buf_add_str(out, before);
    buf_add(out, mac, sizeof mac);
    buf_add_z(out, t->name);
    batch_add_end(out, begun);
}

/* ---- batches ---- */

static size_t unsent(const struct trunk *t)
{
    size_t filling = t->out.n;

    if (t->ring != NULL)
        return filling + ring_bytes(t->ring);
    if (t->conn != NULL)
        return filling + conn_queued(t->conn);
    if (t->line != NULL)
        return filling + hop_line_unsent(t->line);
    return t->tcp != NULL ? filling + tcp_client_unsent(t->tcp) : filling;
}

static bool is_full(const struct trunk *t)
{
    return unsent(t) > t->high;
}

size_t trunk_room(const struct trunk *t)
{
    size_t waits = unsent(t);

    return waits < t->high ? t->high - waits : 0;
}

/* What waits for room goes on from here: often enough to keep the trunk busy, and not for each
 * byte. */
static bool has_room_again(const struct trunk *t)
{
    return trunk_room(t) >= t->high / 2;
}

static void close_batch(struct trunk *t)
{
    if (!t->lost && !batch_is_empty(&t->out)) {
        batch_end(&t->out, ++t->sent);
        if (buf_failed(&t->out)) {
            trunk_fail(t, "no memory is left for a batch");
        } else if (t->ring != NULL) {
            ring_push(t->ring, &t->out);
        } else if (t->conn != NULL) {
            buf_add_str(conn_out(t->conn), buf_str(&t->out));
            conn_mark(t->conn);
        } else if (t->line != NULL) {
            hop_line_send(t->line, buf_str(&t->out));
        } else if (t->tcp != NULL) {
            tcp_client_send(t->tcp, buf_str(&t->out));
        }
    }
    if (t->out.cap > TRUNK_BATCH_BYTES)
        buf_done(&t->out);
    else
        buf_reset(&t->out);
}

struct buf *trunk_out(struct trunk *t)
{
    if (t->out.n >= TRUNK_BATCH_BYTES || t->lost)
        close_batch(t);
    if (t->out.n == 0)
        batch_begin(&t->out);
    return &t->out;
}

bool trunk_turn_end(struct http_server *s)
{
    bool wrote = false;

    list_each (&s->trunks, it, nxt) {
        struct trunk *t = list_entry(it, struct trunk, link);
        if (t->n_marks > 0)
            heart_tell_committed(t);
        if (t->out.n == 0)
            continue;
        wrote |= t->conn != NULL && !t->lost;
        close_batch(t);
    }
    return wrote;
}

static void take_batch(struct trunk *t, struct str whole)
{
    struct str messages;
    struct msg m;
    bool bad = false;
    uint64_t acks = t->acks;

    if (!batch_open(whole, &t->heard, &messages)) {
        trunk_fail(t, "a batch was lost, or came twice");
        return;
    }
    while (!t->lost && batch_next(&messages, &m, &bad))
        t->take(t, &m);
    if (bad)
        trunk_fail(t, "a batch makes no sense");
    if (t->is_heart && t->acks != acks)
        heart_note_acks(t);
}

void trunk_take_batch(void *trunk, struct str whole)
{
    struct trunk *t = trunk;

    t->heard_ms = clock_now_ms(t->server->clock);
    take_batch(t, whole);
}

void trunk_input(struct trunk *t, struct str bytes)
{
    size_t n, limit = t->up ? SIZE_MAX - 1 : BATCH_HEAD_BYTES + MSG_HEAD_BYTES + TRUNK_MAX_PROOF;
    bool kept = t->in.n > 0;

    if (kept) {
        buf_add_str(&t->in, bytes);
        bytes = buf_str(&t->in);
    }
    t->heard_ms = clock_now_ms(t->server->clock);
    while (!t->lost && (n = batch_bytes(bytes)) != 0) {
        if (n > limit)
            trunk_fail(t, "a batch is too long");
        if (t->lost || n > bytes.n)
            break;
        take_batch(t, str_make(bytes.p, n));
        bytes = str_skip(bytes, n);
        limit = t->up ? SIZE_MAX - 1 : limit;
    }
    if (kept)
        buf_consume(&t->in, t->in.n - bytes.n);
    else
        buf_add_str(&t->in, bytes);
    if (t->in.n == 0 || t->lost)
        buf_done(&t->in);
}

/* ---- connections by number ---- */

static struct str number_key(const uint32_t *number)
{
    return str_make(number, sizeof *number);
}

struct carried *carried_find(const struct trunk *t, uint32_t number)
{
    return map_get(&t->carried, number_key(&number));
}

struct carried *carried_new(struct trunk *t, uint32_t number)
{
    while (!t->is_heart && (number == 0 || carried_find(t, number) != NULL))
        number = ++t->last_number;
    if (number == 0 || map_count(&t->carried) >= TRUNK_MAX_CONNS || carried_find(t, number) != NULL)
        return NULL;
    struct carried *k = xcalloc(1, sizeof *k);
    *k = (struct carried){.trunk = t, .number = number, .credit = TRUNK_WINDOW};
    list_init(&k->ready);
    list_init(&k->stalled);
    k->can = EV_WRITE;
    map_put(&t->carried, number_key(&k->number), k);
    return k;
}

void carried_leave(struct carried *k)
{
    if (k->trunk != NULL)
        map_del(&k->trunk->carried, number_key(&k->number));
    list_remove(&k->ready);
    list_remove(&k->stalled);
    k->trunk = NULL;
}

void carried_free(struct carried *k)
{
    carried_leave(k);
    k->conn->carried = NULL;
    if (k->conn->no_socket && k->shown != NULL) {
        shown_done(k->shown);
        free(k->shown);
    } else if (!k->conn->no_socket) {
        if (k->kept != NULL)
            kept_done(k->kept);
        if (k->decoder != NULL)
            ws_decoder_done(k->decoder);
        buf_done(&k->held);
        free(k->kept);
        free(k->decoder);
    }
    free(k);
}

void carried_let_go(struct conn *c)
{
    struct carried *k = c->carried;
    char lost[2];

    put_u16(lost, CLOSE_CODE_LOST);
    if (k->trunk != NULL && !c->no_socket && k->kept != NULL)
        carried_say(k, MSG_GONE, str_make(lost, sizeof lost));
    else if (k->trunk != NULL)
        carried_say(k, MSG_CLOSE, STR_NULL);
    carried_free(k);
}

/* ---- windows ---- */

/* What it waits for and can do now. */
static int ready_events(const struct carried *k)
{
    return k->conn->io.events & k->can & EV_WRITE;
}

void carried_settle(struct carried *k)
{
    if (ready_events(k) == 0) {
        list_remove(&k->ready);
        return;
    }
    if (!list_is_linked(&k->ready))
        list_append(&k->trunk->ready, &k->ready);
    soon(k->trunk);
}

static void set_can_write(struct carried *k, bool yes)
{
    k->can = yes ? EV_WRITE : 0;
    if (k->conn->no_socket)
        carried_settle(k);
    else if (yes)
        conn_mark(k->conn); /* it may read on */
}

bool carried_take_credit(struct carried *k, struct str payload)
{
    uint32_t more = payload.n == 4 ? get_u32(payload.p) : 0;

    if (more == 0 || more > 2 * TRUNK_WINDOW)
        return false;
    k->credit = more > TRUNK_WINDOW - k->credit ? TRUNK_WINDOW : k->credit + more;
    set_can_write(k, true);
    return true;
}

/* ---- turns ----
 *
 * When a full trunk has room again, the parties whose connections wait take turns, one connection
 * each.  So a tenant with thousands of sockets delays the others no longer than one with a single
 * socket does. */

struct trunk_turn {
    struct list link;          /* trunk->stalled */
    struct list conns;         /* carried.stalled; empty: those that waited have closed */
    const struct party *whose; /* only compared; NULL: nobody's */
};

static struct str turn_key(const struct party *const *whose)
{
    return str_make(whose, sizeof *whose);
}

static void wait_for_turn(struct carried *k)
{
    struct trunk *t = k->trunk;
    const struct party *whose = conn_sharer(k->conn);
    struct trunk_turn *turn = map_get(&t->turns, turn_key(&whose));

    if (list_is_linked(&k->stalled))
        return;
    if (turn == NULL) {
        turn = xcalloc(1, sizeof *turn);
        turn->whose = whose;
        list_init(&turn->conns);
        list_append(&t->stalled, &turn->link);
        map_put(&t->turns, turn_key(&turn->whose), turn);
    }
    list_append(&turn->conns, &k->stalled);
}

/* NULL: no connection waits. */
static struct carried *next_turn(struct trunk *t)
{
    struct carried *k = NULL;

    while (k == NULL && !list_is_empty(&t->stalled)) {
        struct trunk_turn *turn = list_first(&t->stalled, struct trunk_turn, link);
        list_move(&turn->link, &t->stalled);
        if (!list_is_empty(&turn->conns)) {
            k = list_first(&turn->conns, struct carried, stalled);
            list_remove(&k->stalled);
        }
        if (list_is_empty(&turn->conns)) {
            list_remove(&turn->link);
            map_del(&t->turns, turn_key(&turn->whose));
            free(turn);
        }
    }
    return k;
}

static void look_again(struct trunk *t)
{
    if (t->conn == NULL && !timer_is_set(&t->go_on))
        timer_set(t->server->clock, &t->go_on, t->ring != NULL ? RING_STALL_MS : STALL_MS);
}

bool trunk_is_full(struct trunk *t)
{
    if (t->lost || !is_full(t))
        return false;
    t->holds = true;
    look_again(t);
    return true;
}

bool carried_may_write(struct carried *k)
{
    struct trunk *t = k->trunk;

    if (!is_full(t)) {
        if (k->credit == 0)
            set_can_write(k, false);
        return k->credit > 0;
    }
    wait_for_turn(k);
    look_again(t);
    set_can_write(k, false);
    return false;
}

/* At the heart, as many go on as there is room for what they have to say.  At an edge all do: what
 * they read is shared out by conn.c. */
void trunk_unstall(struct trunk *t)
{
    size_t room = has_room_again(t) ? trunk_room(t) : 0;
    struct carried *k;

    while (room > 0 && (k = next_turn(t)) != NULL) {
        size_t n = t->is_heart ? conn_queued(k->conn) : 0;
        n = n < k->credit ? n : k->credit;
        room -= n < room ? n : room;
        set_can_write(k, true);
    }
}

void carried_pay(struct carried *k, uint32_t taken)
{
    if (taken < TRUNK_WINDOW / 2)
        return;
    batch_add_u32(trunk_out(k->trunk), k->number, MSG_CREDIT, taken);
    k->owed -= taken;
}

/* Serves each ready connection once; one that is still ready waits for the next turn. */
static void serve_ready(struct trunk *t)
{
    struct list now;

    if (list_is_empty(&t->ready))
        return;
    now = t->ready;
    now.next->prev = now.prev->next = &now;
    list_init(&t->ready);
    while (!list_is_empty(&now)) {
        struct carried *k = list_first(&now, struct carried, ready);
        list_move(&k->ready, &t->ready);
        conn_ready(k->conn, ready_events(k)); /* it may be gone afterwards */
    }
}

static void on_go_on(struct timer *timer)
{
    struct trunk *t = container_of(timer, struct trunk, go_on);

    serve_ready(t);
    trunk_unstall(t);
    if (t->holds && has_room_again(t))
        edge_go_on(t);
    if (!list_is_empty(&t->ready))
        soon(t);
    else if (!list_is_empty(&t->stalled) || t->holds)
        look_again(t);
}

void carried_flushed(struct carried *k)
{
    if (k->trunk == NULL)
        return;
    if (k->conn->no_socket)
        heart_flushed(k);
    else
        edge_flushed(k);
}

/* ---- questions ---- */

enum { MAX_ASKS = 256 }; /* under way on one trunk: they are looked for one by one */

struct trunk_ask {    /* at the heart */
    struct list link; /* trunk->asks, until it is told or lost */
    struct clock *clock;
    struct trunk *trunk; /* borrowed; NULL: told, or lost */
    struct buf answer;
    struct timer told; /* nobody is called from within a read */
    trunk_told_cb *done;
    void *ctx;
    uint32_t number;
    bool lost;
};

/* One after the other, with nothing in between: the other side collects one text at a time. */
static void send_parts(struct trunk *t, uint32_t number, enum msg_what part, enum msg_what last,
                       struct str text)
{
    for (; text.n > MSG_MAX_PAYLOAD; text = str_skip(text, MSG_MAX_PAYLOAD))
        batch_add(trunk_out(t), number, part, str_make(text.p, MSG_MAX_PAYLOAD));
    batch_add(trunk_out(t), number, last, text);
}

/* The next part of a text.  True: it is whole, and *@ret_text is the caller's. */
static bool take_part(struct trunk *t, const struct msg *m, enum msg_what last,
                      struct buf *ret_text)
{
    if (t->parts.n > 0 && t->parts_of != m->number) {
        trunk_fail(t, "a text inside another");
        return false;
    }
    if (t->parts.n + m->payload.n > TRUNK_MAX_QUESTION) {
        trunk_fail(t, "a question or an answer is too long");
        return false;
    }
    t->parts_of = m->number;
    buf_add_str(&t->parts, m->payload);
    if (m->what != last)
        return false;
    *ret_text = t->parts;
    t->parts = BUF_INIT;
    return true;
}

/* ---- the heart ---- */

struct str trunk_node(struct str other)
{
    struct str name = STR_NULL;

    str_split(&other, '/', &name);
    return name;
}

static struct str node_of(const struct trunk *t)
{
    bool is_edge = t->is_heart && t->up && !t->lost && t->ring == NULL;

    return is_edge ? trunk_node(str_of(t->other)) : STR_NULL;
}

static struct trunk *trunk_of(const struct http_server *s, struct str node)
{
    list_each (&s->trunks, it, nxt)
        if (str_eq(node_of(list_entry(it, struct trunk, link)), node))
            return list_entry(it, struct trunk, link);
    return NULL;
}

void trunk_each(const struct http_server *s, trunk_each_cb *cb, void *ctx)
{
    list_each (&s->trunks, it, nxt) {
        const struct trunk *t = list_entry(it, struct trunk, link);
        if (node_of(t).p != NULL)
            cb(ctx, node_of(t), map_count(&t->carried));
    }
}

bool trunk_reaches(const struct http_server *s, struct str node)
{
    return trunk_of(s, node) != NULL;
}

static void on_told(struct timer *timer)
{
    struct trunk_ask *a = container_of(timer, struct trunk_ask, told);

    a->done(a->ctx, a->lost ? STR_NULL : buf_str(&a->answer));
    buf_done(&a->answer);
    free(a);
}

static void end_ask(struct trunk_ask *a, bool lost)
{
    list_remove(&a->link);
    a->trunk->n_asks--;
    a->trunk = NULL;
    a->lost = lost;
    timer_set(a->clock, &a->told, 0);
}

struct trunk_ask *trunk_ask(struct http_server *s, struct str node, struct str question,
                            trunk_told_cb *done, void *ctx)
{
    struct trunk *t = trunk_of(s, node);
    struct trunk_ask *a;

    if (t == NULL || unsent(t) > TRUNK_HIGH_BYTES || t->n_asks >= MAX_ASKS ||
        question.n > TRUNK_MAX_QUESTION)
        return NULL;
    a = xcalloc(1, sizeof *a);
    *a = (struct trunk_ask){
        .clock = s->clock, .trunk = t, .done = done, .ctx = ctx, .number = ++t->last_ask};
    timer_init(&a->told, on_told);
    list_append(&t->asks, &a->link);
    t->n_asks++;
    send_parts(t, a->number, MSG_QUESTION, MSG_ASK, question);
    return a;
}

bool trunk_say(struct http_server *s, struct str node, struct str words)
{
    struct trunk *t = trunk_of(s, node);

    if (t != NULL)
        send_parts(t, 0, MSG_QUESTION, MSG_ASK, words); /* no ask has this number */
    return t != NULL;
}

void trunk_ask_cancel(struct trunk_ask **a)
{
    struct trunk_ask *is = *a;

    *a = NULL;
    if (is == NULL)
        return;
    if (is->trunk != NULL) {
        batch_add(trunk_out(is->trunk), is->number, MSG_UNASK, STR_NULL);
        is->trunk->n_asks--;
    }
    list_remove(&is->link);
    timer_stop(is->clock, &is->told);
    buf_done(&is->answer);
    free(is);
}

void trunk_take_answer(struct trunk *t, const struct msg *m)
{
    struct buf text;

    if (!take_part(t, m, MSG_TOLD, &text))
        return;
    list_each (&t->asks, it, nxt) {
        struct trunk_ask *a = list_entry(it, struct trunk_ask, link);
        if (a->number != m->number)
            continue;
        a->answer = text;
        end_ask(a, false);
        return;
    }
    buf_done(&text); /* nobody waits for it any more */
}

void trunk_lose_asks(struct trunk *t)
{
    list_each (&t->asks, it, nxt)
        end_ask(list_entry(it, struct trunk_ask, link), true);
}

/* ---- the edge ---- */

void trunk_take_question(struct trunk *t, const struct msg *m)
{
    struct buf text;

    if (m->what == MSG_UNASK && t->handlers.on_unask != NULL)
        t->handlers.on_unask(t->ctx, m->number);
    if ((m->what != MSG_QUESTION && m->what != MSG_ASK) || !take_part(t, m, MSG_ASK, &text))
        return;
    if (t->handlers.on_ask != NULL)
        t->handlers.on_ask(t->ctx, m->number, buf_str(&text));
    buf_done(&text);
}

void trunk_tell(struct trunk *t, uint32_t number, struct str answer)
{
    assert(answer.n <= TRUNK_MAX_QUESTION);
    if (trunk_is_up(t))
        send_parts(t, number, MSG_ANSWER, MSG_TOLD, answer);
}
