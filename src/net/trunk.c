/* trunk.c - design.  (trunk.h has the contract, trunk_priv.h the frames.)
 *
 * The part that both ends share: frames from bytes, places of connections, windows, questions.
 * trunk_conn.c has the keeper's and the porter's half.
 *
 * Frames are parsed inside the read of the trunk's own connection, which only notes what came.  A
 * timer in the same turn tells the connections, so no connection is served from within another.
 *
 * Questions: the keeper has a porter do something on its machine.
 *
 *      keeper --QUESTION: a part--> ... --ASK: the last part--> porter: on_ask()
 *             --UNASK: never mind-->                            on_unask()
 *             <--ANSWER: a part-- ... <--TOLD: the last part--  trunk_tell()
 *
 * The numbers of questions are the keeper's and independent of those of connections. */
#include "net/trunk.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crypto.h"
#include "base/mem.h"
#include "net/tcp_client.h"
#include "net/trunk_priv.h"

enum { STALL_MS = 5 };

static uint32_t get_u32(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;

    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static void put_u32(char *p, uint32_t v)
{
    p[0] = (char)(v >> 24);
    p[1] = (char)(v >> 16);
    p[2] = (char)(v >> 8);
    p[3] = (char)v;
}

/* ---- its life ---- */

static void on_go_on(struct timer *timer);

void trunk_init(struct trunk *t, struct http_server *s)
{
    t->server = s;
    t->heard_ms = clock_now_ms(s->clock);
    list_init(&t->link);
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
    buf_done(&t->in);
    buf_done(&t->parts);
    map_done(&t->carried);
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
    t->lost = true;
    snprintf(t->why, sizeof t->why, "%s", why);
    if (t->conn != NULL) {
        conn_close(t->conn);
    } else {
        timer_stop(t->server->clock, &t->go_on);
        timer_set(t->server->clock, &t->beat, 0); /* the porter's says so and ends it */
    }
}

/* ---- frames ---- */

static size_t unsent(const struct trunk *t)
{
    if (t->conn != NULL)
        return conn_queued(t->conn);
    return t->tcp != NULL ? tcp_client_unsent(t->tcp) : 0;
}

static bool is_full(const struct trunk *t)
{
    return unsent(t) > TRUNK_HIGH_BYTES;
}

void trunk_send(struct trunk *t, uint32_t number, enum trunk_what what, struct str payload)
{
    char head[TRUNK_HEAD_BYTES];

    assert(payload.n <= TRUNK_MAX_PAYLOAD);
    if (t->lost)
        return;
    put_u32(head, number);
    put_u32(head + 4, (uint32_t)payload.n);
    head[4] = (char)what;
    if (t->conn != NULL) {
        buf_add(conn_out(t->conn), head, sizeof head);
        buf_add_str(&t->conn->out, payload);
        conn_mark(t->conn);
    } else if (t->tcp != NULL) {
        tcp_client_send(t->tcp, str_make(head, sizeof head));
        tcp_client_send(t->tcp, payload);
    }
}

static void send_u32(struct trunk *t, uint32_t number, enum trunk_what what, uint32_t value)
{
    char bytes[4];

    put_u32(bytes, value);
    trunk_send(t, number, what, str_make(bytes, sizeof bytes));
}

/* Takes the next complete frame off @bytes. */
static bool next_frame(struct trunk *t, struct str *bytes, struct trunk_frame *ret)
{
    size_t n;

    if (t->lost || bytes->n < TRUNK_HEAD_BYTES)
        return false;
    n = get_u32(bytes->p + 4) & 0xffffff;
    if (n > (t->up ? TRUNK_MAX_PAYLOAD : TRUNK_MAX_PROOF)) {
        trunk_fail(t, "a frame is too long");
        return false;
    }
    if (bytes->n < TRUNK_HEAD_BYTES + n)
        return false;
    *ret = (struct trunk_frame){.number = get_u32(bytes->p),
                                .what = (uint8_t)bytes->p[4],
                                .payload = str_make(bytes->p + TRUNK_HEAD_BYTES, n)};
    *bytes = str_skip(*bytes, TRUNK_HEAD_BYTES + n);
    return true;
}

void trunk_input(struct trunk *t, struct str bytes)
{
    struct trunk_frame f;
    bool kept = t->in.n > 0;

    if (kept) {
        buf_add_str(&t->in, bytes);
        bytes = buf_str(&t->in);
    }
    t->heard_ms = clock_now_ms(t->server->clock);
    while (next_frame(t, &bytes, &f))
        t->take(t, &f);
    if (kept)
        buf_consume(&t->in, t->in.n - bytes.n);
    else
        buf_add_str(&t->in, bytes);
    if (t->in.n == 0)
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
    bool ours = t->conn == NULL;

    while (ours && (number == 0 || carried_find(t, number) != NULL))
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

void carried_free(struct carried *k)
{
    map_del(&k->trunk->carried, number_key(&k->number));
    k->conn->carried = NULL;
    list_remove(&k->ready);
    list_remove(&k->stalled);
    buf_done(&k->in);
    free(k);
}

void carried_let_go(struct conn *c)
{
    struct carried *k = c->carried;

    trunk_send(k->trunk, k->number, TRUNK_CLOSE, STR_NULL);
    carried_free(k);
}

void carried_cut_all(struct trunk *t)
{
    void *k;

    for (size_t at = 0; map_next(&t->carried, &at, &k);) {
        struct conn *c = ((struct carried *)k)->conn;
        carried_free(k);
        conn_close(c);
    }
}

/* ---- connections that can continue ---- */

/* What it waits for and can do now. */
static int ready_events(const struct carried *k)
{
    return k->conn->io.events & k->can & (EV_READ | EV_WRITE);
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

static void set_can(struct carried *k, int what, bool yes)
{
    k->can = (uint8_t)(yes ? k->can | what : k->can & ~what);
    carried_settle(k);
}

bool carried_take_credit(struct carried *k, struct str payload)
{
    uint32_t more = payload.n == 4 ? get_u32(payload.p) : 0;

    if (more == 0 || more > TRUNK_WINDOW - k->credit)
        return false;
    k->credit += more;
    if (k->conn->io.fd < 0)
        set_can(k, EV_WRITE, true);
    else
        conn_mark(k->conn); /* it may read on */
    return true;
}

static void stall(struct carried *k)
{
    if (!list_is_linked(&k->stalled))
        list_append(&k->trunk->stalled, &k->stalled);
    if (k->trunk->conn == NULL && !timer_is_set(&k->trunk->go_on))
        timer_set(k->trunk->server->clock, &k->trunk->go_on, STALL_MS);
}

void trunk_unstall(struct trunk *t)
{
    if (list_is_empty(&t->stalled) || unsent(t) > TRUNK_LOW_BYTES)
        return;
    list_each (&t->stalled, it, nxt) {
        struct carried *k = list_entry(it, struct carried, stalled);
        list_remove(&k->stalled);
        if (k->conn->io.fd < 0)
            set_can(k, EV_WRITE, true);
        else
            conn_mark(k->conn);
    }
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
    if (!list_is_empty(&t->ready))
        soon(t);
    else if (t->conn == NULL && !list_is_empty(&t->stalled))
        timer_set(t->server->clock, timer, STALL_MS);
}

/* ---- the keeper's conn reads and writes here ---- */

ssize_t carried_read(struct carried *k, char *p, size_t n)
{
    size_t got = n < k->in.n ? n : k->in.n;

    if (got == 0) {
        set_can(k, EV_READ, false);
        return k->ended ? 0 : -1;
    }
    memcpy(p, k->in.p, got);
    buf_consume(&k->in, got);
    if (k->in.n == 0) {
        buf_done(&k->in);
        set_can(k, EV_READ, k->ended);
    }
    k->owed += (uint32_t)got;
    if (k->owed >= TRUNK_WINDOW / 2) {
        send_u32(k->trunk, k->number, TRUNK_CREDIT, k->owed);
        k->owed = 0;
    }
    return (ssize_t)got;
}

ssize_t carried_write(struct carried *k, const char *p, size_t n)
{
    bool full = is_full(k->trunk);

    if (full || k->credit == 0) {
        if (full)
            stall(k);
        set_can(k, EV_WRITE, false);
        return 0;
    }
    n = n < k->credit ? n : k->credit;
    n = n < TRUNK_MAX_PAYLOAD ? n : TRUNK_MAX_PAYLOAD;
    trunk_send(k->trunk, k->number, TRUNK_DATA, str_make(p, n));
    k->credit -= (uint32_t)n;
    return (ssize_t)n;
}

/* ---- the porter's reads a socket for here ---- */

size_t carried_may_take(const struct carried *k)
{
    size_t most = k->credit < TRUNK_MAX_PAYLOAD ? k->credit : TRUNK_MAX_PAYLOAD;

    if (!is_full(k->trunk))
        return most;
    stall((struct carried *)(uintptr_t)k);
    return 0;
}

void carried_forward(struct carried *k, struct str bytes)
{
    assert(bytes.n <= k->credit && bytes.n <= TRUNK_MAX_PAYLOAD);
    trunk_send(k->trunk, k->number, TRUNK_DATA, bytes);
    k->credit -= (uint32_t)bytes.n;
}

/* @owed counts what came from the keeper; what is not in the output any more was taken. */
void carried_flushed(struct carried *k)
{
    size_t waits = conn_queued(k->conn);
    uint32_t taken = waits < k->owed ? k->owed - (uint32_t)waits : 0;

    if (taken < TRUNK_WINDOW / 2)
        return;
    send_u32(k->trunk, k->number, TRUNK_CREDIT, taken);
    k->owed -= taken;
}

/* ---- questions ---- */

enum { MAX_ASKS = 256 }; /* under way on one trunk: they are looked for one by one */

struct trunk_ask {    /* at the keeper */
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
static void send_parts(struct trunk *t, uint32_t number, enum trunk_what part, enum trunk_what last,
                       struct str text)
{
    for (; text.n > TRUNK_MAX_PAYLOAD; text = str_skip(text, TRUNK_MAX_PAYLOAD))
        trunk_send(t, number, part, str_make(text.p, TRUNK_MAX_PAYLOAD));
    trunk_send(t, number, last, text);
}

/* The next part of a text.  True: it is whole, and *@ret_text is the caller's. */
static bool take_part(struct trunk *t, const struct trunk_frame *f, enum trunk_what last,
                      struct buf *ret_text)
{
    if (t->parts.n > 0 && t->parts_of != f->number) {
        trunk_fail(t, "a text inside another");
        return false;
    }
    if (t->parts.n + f->payload.n > TRUNK_MAX_QUESTION) {
        trunk_fail(t, "a question or an answer is too long");
        return false;
    }
    t->parts_of = f->number;
    buf_add_str(&t->parts, f->payload);
    if (f->what != last)
        return false;
    *ret_text = t->parts;
    t->parts = BUF_INIT;
    return true;
}

/* ---- the keeper ---- */

/* A porter's name is node_owner(): what is before the slash is the node's. */
static struct str node_of(const struct trunk *t)
{
    struct str name = STR_NULL, rest = str_of(t->other);

    if (t->up && !t->lost)
        str_split(&rest, '/', &name);
    return name;
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

    if (t == NULL || is_full(t) || t->n_asks >= MAX_ASKS || question.n > TRUNK_MAX_QUESTION)
        return NULL;
    a = xcalloc(1, sizeof *a);
    *a = (struct trunk_ask){
        .clock = s->clock, .trunk = t, .done = done, .ctx = ctx, .number = ++t->last_ask};
    timer_init(&a->told, on_told);
    list_append(&t->asks, &a->link);
    t->n_asks++;
    send_parts(t, a->number, TRUNK_QUESTION, TRUNK_ASK, question);
    return a;
}

bool trunk_say(struct http_server *s, struct str node, struct str words)
{
    struct trunk *t = trunk_of(s, node);

    if (t != NULL)
        send_parts(t, 0, TRUNK_QUESTION, TRUNK_ASK, words); /* no ask has this number */
    return t != NULL;
}

void trunk_ask_cancel(struct trunk_ask **a)
{
    struct trunk_ask *is = *a;

    *a = NULL;
    if (is == NULL)
        return;
    if (is->trunk != NULL) {
        trunk_send(is->trunk, is->number, TRUNK_UNASK, STR_NULL);
        is->trunk->n_asks--;
    }
    list_remove(&is->link);
    timer_stop(is->clock, &is->told);
    buf_done(&is->answer);
    free(is);
}

void trunk_take_answer(struct trunk *t, const struct trunk_frame *f)
{
    struct buf text;

    if (!take_part(t, f, TRUNK_TOLD, &text))
        return;
    list_each (&t->asks, it, nxt) {
        struct trunk_ask *a = list_entry(it, struct trunk_ask, link);
        if (a->number != f->number)
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

/* ---- the porter ---- */

void trunk_take_question(struct trunk *t, const struct trunk_frame *f)
{
    struct buf text;

    if (f->what == TRUNK_UNASK && t->handlers.on_unask != NULL)
        t->handlers.on_unask(t->ctx, f->number);
    if ((f->what != TRUNK_QUESTION && f->what != TRUNK_ASK) || !take_part(t, f, TRUNK_ASK, &text))
        return;
    if (t->handlers.on_ask != NULL)
        t->handlers.on_ask(t->ctx, f->number, buf_str(&text));
    buf_done(&text);
}

void trunk_tell(struct trunk *t, uint32_t number, struct str answer)
{
    assert(answer.n <= TRUNK_MAX_QUESTION);
    if (trunk_is_up(t))
        send_parts(t, number, TRUNK_ANSWER, TRUNK_TOLD, answer);
}
