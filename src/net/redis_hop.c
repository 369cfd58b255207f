/* redis_hop.c - design.  (redis_hop.h has the contract and the picture.)
 *
 * The reader's connection repeats one round of commands:
 *
 *      [DEL] [XGROUP CREATE MKSTREAM: the inbox] [XTRIM: what was read] [EXPIRE] XREAD BLOCK
 *
 * XREAD always starts at 0, because every entry in the inbox is unread.  After a lost connection
 * the inbox may still hold entries of lines that were cut meanwhile; the reader ignores them.  If a
 * connection ends before its first round does, the inbox holds an unreadable entry, and the next
 * connection deletes the inbox.  An EXPIRE that finds no inbox means that Redis lost its data.
 *
 * The writer's connection sends XADD NOMKSTREAM only.  It never creates a missing inbox: the
 * inbox's node ended, lost its data, or uses another Redis.
 *
 * A line that is cut while there is no connection owes the other end a farewell: END with the next
 * number.  The other end sees either END or, where entries were lost, a gap. */
#include "net/redis_hop.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/rand.h"
#include "net/batch.h"
#include "net/hop_entry.h"
#include "net/loop.h"
#include "net/redis_client.h"
#include "net/trunk.h"

enum {
    BLOCK_MS = 1000, /* of XREAD: a lost inbox is noticed after so long */
    RETRY_MS = 1000, /* after an error of Redis */
    MAX_LINES = 256, /* a stranger may repeat old HELLOs */
    MAX_FAREWELLS = 64,
    MAX_UNSENT = 64 << 20,  /* of one line */
    MAX_QUEUED = 256 << 20, /* of all lines, for the socket */
    TELL_BYTES = 512 << 10, /* taken before the other end is told without being sent anything */
    WARN_MS = 60000,
};

/*  HELLO --ACCEPT--> OPEN --cut--> ENDED, then freed    an accepted line begins OPEN */
enum line_state { LINE_HELLO, LINE_OPEN, LINE_ENDED };

struct hop_line {
    struct redis_hop *hop;                /* borrowed */
    const struct tcp_client_handlers *on; /* borrowed for good */
    void *ctx;
    enum line_state state;
    struct timer end; /* ENDED: on_closed() runs from here */
    uint8_t id[HOP_LINE_BYTES], salt[HOP_SALT_BYTES];
    char to[TRUNK_NAME_BYTES + 1], inbox[HOP_INBOX_BYTES]; /* of the other end */
    uint64_t sent, heard;                                  /* numbers of the last entries */
    uint64_t out, out_taken; /* bytes that were sent, and those that the other end has taken */
    uint64_t in, in_told;    /* bytes that came, and those that the other end knows of */
    char why[256];
};

struct farewell {
    struct list link;
    char inbox[HOP_INBOX_BYTES];
    struct buf entry;
};

enum hop_step { STEP_DEL, STEP_MAKE, STEP_TRIM, STEP_EXPIRE, STEP_READ };

struct redis_hop {
    struct loop *loop;                    /* borrowed */
    struct redis_client *reader, *writer; /* owned */
    const char *protocol;
    hop_accept_f *accept;
    void *accept_ctx;
    struct map lines; /* by id: struct hop_line, owned */
    struct list farewells;
    size_t n_farewells;
    struct buf asked; /* the lines of XADDs without a reply yet, HOP_LINE_BYTES each */
    struct timer again;
    enum hop_step steps[8]; /* commands of the reader without a reply yet */
    size_t n_steps;
    bool clean, made_round; /* delete the inbox first; a round of this connection has ended */
    bool make, bad;         /* the next round makes the inbox; this one got an error */
    bool read_any;          /* the last XREAD had entries */
    char trim[48];          /* what was read is before it; "": nothing to delete */
    int64_t expired_ms, stranger_ms;
    char problem[256]; /* what Redis refused last */
    bool cannot_write; /* and that was an XADD */
    uint8_t key[SEAL_KEY_BYTES];
    char name[TRUNK_NAME_BYTES + 1], inbox[HOP_INBOX_BYTES];
};

static int64_t now_ms(const struct redis_hop *h)
{
    return clock_now_ms(loop_clock(h->loop));
}

/* ---- entries out ---- */

static const uint8_t no_salt[HOP_SALT_BYTES];
static const uint8_t no_line[HOP_LINE_BYTES];

static void xadd(struct redis_hop *h, const char *inbox, struct str line, struct str entry)
{
    const struct str words[] = {STR("XADD"), str_of(inbox), STR("NOMKSTREAM"),
                                STR("*"),    STR("e"),      entry};

    if (!redis_client_is_up(h->writer))
        return;
    redis_client_send(h->writer, words, ARRAY_LEN(words));
    buf_add_str(&h->asked, line);
}

static struct str id_of(const struct hop_line *l)
{
    return str_make(l->id, sizeof l->id);
}

/* With the salt: DATA and END; without it: HELLO, ACCEPT and REFUSE. */
static void seal_to(const struct hop_line *l, enum hop_kind kind, uint64_t number, struct str plain,
                    struct buf *out)
{
    const struct hop_bound b = {.key = l->hop->key,
                                .salt = number == 0 ? no_salt : l->salt,
                                .line = id_of(l),
                                .to = str_of(l->to)};

    hop_entry_add(out, &b, kind, number, plain);
}

static void post(struct hop_line *l, enum hop_kind kind, uint64_t number, struct str plain)
{
    BUF_LOCAL entry = BUF_INIT;

    seal_to(l, kind, number, plain, &entry);
    xadd(l->hop, l->inbox, id_of(l), buf_str(&entry));
}

static void post_data(struct hop_line *l, struct str bytes)
{
    BUF_LOCAL plain = BUF_INIT;
    char taken[8];

    put_u64(taken, l->in);
    l->in_told = l->in;
    buf_add(&plain, taken, sizeof taken);
    buf_add_str(&plain, bytes);
    l->out += bytes.n;
    post(l, HOP_DATA, ++l->sent, buf_str(&plain));
}

static void say_farewell(struct hop_line *l)
{
    struct redis_hop *h = l->hop;

    if (redis_client_is_up(h->writer)) {
        post(l, HOP_END, ++l->sent, STR_NULL);
    } else if (h->n_farewells < MAX_FAREWELLS) {
        struct farewell *f = xcalloc(1, sizeof *f);
        memcpy(f->inbox, l->inbox, sizeof f->inbox);
        seal_to(l, HOP_END, ++l->sent, STR_NULL, &f->entry);
        list_append(&h->farewells, &f->link);
        h->n_farewells++;
    }
}

static void drop_farewells(struct redis_hop *h, bool send)
{
    list_each (&h->farewells, it, nxt) {
        struct farewell *f = list_entry(it, struct farewell, link);
        struct hop_entry e;
        if (send && hop_entry_read(buf_str(&f->entry), &e))
            xadd(h, f->inbox, e.line, buf_str(&f->entry));
        list_remove(&f->link);
        buf_done(&f->entry);
        free(f);
    }
    h->n_farewells = 0;
}

/* ---- lines ---- */

static void line_drop(struct hop_line *l)
{
    timer_stop(loop_clock(l->hop->loop), &l->end);
    map_del(&l->hop->lines, id_of(l));
    free(l);
}

static void on_end(struct timer *t)
{
    struct hop_line *l = container_of(t, struct hop_line, end);
    const struct tcp_client_handlers *on = l->on;
    void *ctx = l->ctx;
    char why[sizeof l->why];

    memcpy(why, l->why, sizeof why);
    line_drop(l);
    on->on_closed(ctx, why);
}

/* @tell: the other end does not know. */
static void cut(struct hop_line *l, bool tell, const char *why)
{
    if (l->state == LINE_ENDED)
        return;
    if (tell && l->state == LINE_OPEN)
        say_farewell(l);
    l->state = LINE_ENDED;
    snprintf(l->why, sizeof l->why, "%s", why);
    timer_set(loop_clock(l->hop->loop), &l->end, 0);
}

static void cut_all(struct redis_hop *h, const char *why)
{
    void *l;

    for (size_t at = 0; map_next(&h->lines, &at, &l);)
        cut(l, true, why);
}

static struct hop_line *line_new(struct redis_hop *h, const void *id, struct str to)
{
    struct hop_line *l = xcalloc(1, sizeof *l);

    l->hop = h;
    timer_init(&l->end, on_end);
    memcpy(l->id, id, sizeof l->id);
    snprintf(l->to, sizeof l->to, "%.*s", STR_FMT(to));
    hop_inbox(h->key, str_of(l->to), l->inbox);
    map_put(&h->lines, id_of(l), l);
    return l;
}

struct hop_line *hop_line_open(struct redis_hop *h, const char *to,
                               const struct tcp_client_handlers *handlers, void *ctx)
{
    struct rand r = RAND_SYSTEM;
    uint8_t id[HOP_LINE_BYTES];
    BUF_LOCAL words = BUF_INIT;

    rand_bytes(&r, id, sizeof id);
    struct hop_line *l = line_new(h, id, str_of(to));
    l->on = handlers;
    l->ctx = ctx;
    if (!redis_client_is_up(h->writer) || !redis_client_is_up(h->reader)) {
        buf_printf(&words, "Redis at %s: %s", redis_client_at(h->writer),
                   redis_hop_state(h).problem);
        cut(l, false, buf_z(&words));
        return l;
    }
    buf_printf(&words, "%s %s", h->protocol, h->name);
    post(l, HOP_HELLO, 0, buf_str(&words));
    return l;
}

void hop_line_take(struct hop_line *l, const struct tcp_client_handlers *handlers, void *ctx)
{
    l->on = handlers;
    l->ctx = ctx;
}

void hop_line_send(struct hop_line *l, struct str bytes)
{
    if (l->state != LINE_OPEN || bytes.n == 0)
        return;
    post_data(l, bytes);
    if (hop_line_unsent(l) > MAX_UNSENT)
        cut(l, true, "too much is waiting to be taken by the other node");
}

size_t hop_line_unsent(const struct hop_line *l)
{
    return l->out - l->out_taken;
}

void hop_line_free(struct hop_line *l)
{
    if (l == NULL)
        return;
    if (l->state == LINE_OPEN)
        say_farewell(l);
    line_drop(l);
}

/* ---- entries in ---- */

static void warn_of_stranger(struct redis_hop *h)
{
    if (h->stranger_ms != 0 && now_ms(h) - h->stranger_ms < WARN_MS)
        return;
    h->stranger_ms = now_ms(h);
    log_warn(NULL, "cluster: ignored an entry in Redis at %s that no node of this cluster wrote",
             redis_client_at(h->reader));
}

static bool open_entry(const struct redis_hop *h, const struct hop_entry *e, const uint8_t *salt,
                       struct buf *plain)
{
    const struct hop_bound b = {.key = h->key,
                                .salt = salt,
                                .line = e->line,
                                .to = str_of(h->name)};

    return hop_entry_open(e, &b, plain);
}

/* An acceptable HELLO makes a line.  One for a line that is here was repeated by a stranger. */
static void take_hello(struct redis_hop *h, const struct hop_entry *e)
{
    BUF_LOCAL plain = BUF_INIT;
    struct rand r = RAND_SYSTEM;
    struct str protocol, from;

    if (e->number != 0 || !open_entry(h, e, no_salt, &plain)) {
        warn_of_stranger(h);
        return;
    }
    from = buf_str(&plain);
    if (!str_split(&from, ' ', &protocol) || from.n == 0 || from.n > TRUNK_NAME_BYTES ||
        map_count(&h->lines) >= MAX_LINES || map_get(&h->lines, e->line) != NULL)
        return;
    struct hop_line *l = line_new(h, e->line.p, from);
    rand_bytes(&r, l->salt, sizeof l->salt);
    if (!str_eq(protocol, str_of(h->protocol))) {
        post(l, HOP_REFUSE, 0,
             STR("the node that serves runs another version of bellhop, with another protocol "
                 "between nodes: this node stands by"));
        line_drop(l);
    } else if (h->accept == NULL || !h->accept(h->accept_ctx, l)) {
        post(l, HOP_REFUSE, 0, STR("the process that serves takes no trunks just now"));
        line_drop(l);
    } else {
        post(l, HOP_ACCEPT, 0, str_make(l->salt, sizeof l->salt));
        l->state = LINE_OPEN;
    }
}

static void take_reply(struct hop_line *l, const struct hop_entry *e, struct str plain)
{
    if (e->kind == HOP_REFUSE) {
        BUF_LOCAL why = BUF_INIT;
        buf_add_plain(&why, plain);
        cut(l, false, buf_z(&why));
    } else if (plain.n == sizeof l->salt) {
        memcpy(l->salt, plain.p, sizeof l->salt);
        l->state = LINE_OPEN;
        l->on->on_open(l->ctx);
    }
}

static void take_data(struct hop_line *l, struct str plain)
{
    uint64_t taken = plain.n >= 8 ? get_u64(plain.p) : UINT64_MAX;

    if (taken > l->out || taken < l->out_taken) {
        cut(l, true, "an entry in Redis makes no sense");
        return;
    }
    l->out_taken = taken;
    plain = str_skip(plain, 8);
    l->in += plain.n;
    if (l->in - l->in_told >= TELL_BYTES)
        post_data(l, STR_NULL);
    if (plain.n > 0)
        l->on->on_data(l->ctx, plain); /* @l may be freed */
}

static void take_of_line(struct hop_line *l, const struct hop_entry *e)
{
    BUF_LOCAL plain = BUF_INIT;
    bool early = l->state == LINE_HELLO;
    bool fits = early ? (e->kind == HOP_ACCEPT || e->kind == HOP_REFUSE) && e->number == 0
                      : (e->kind == HOP_DATA || e->kind == HOP_END) && e->number == l->heard + 1;

    if (l->state == LINE_ENDED)
        return;
    if (!fits) {
        cut(l, true,
            e->number > l->heard ? "entries in Redis were lost"
                                 : "an entry in Redis came twice, or out of order");
    } else if (!open_entry(l->hop, e, early ? no_salt : l->salt, &plain)) {
        cut(l, true, "an entry in Redis is forged or damaged");
    } else if (early) {
        take_reply(l, e, buf_str(&plain));
    } else if (e->kind == HOP_END) {
        cut(l, false, "the other node closed the trunk");
    } else {
        l->heard++;
        take_data(l, buf_str(&plain));
    }
}

static void take_entry(struct redis_hop *h, struct str bytes)
{
    struct hop_entry e;
    struct hop_line *l;

    if (!hop_entry_read(bytes, &e)) {
        warn_of_stranger(h);
        return;
    }
    l = map_get(&h->lines, e.line);
    if (e.kind == HOP_HELLO)
        take_hello(h, &e);
    else if (l != NULL) /* else the line has ended */
        take_of_line(l, &e);
}

/* ---- the reader ---- */

static void ask(struct redis_hop *h, enum hop_step step, const struct str *words, size_t n)
{
    assert(h->n_steps < ARRAY_LEN(h->steps));
    h->steps[h->n_steps++] = step;
    redis_client_send(h->reader, words, n);
}

#define ASK(h, step, ...) \
    ask(h, step, (const struct str[]){__VA_ARGS__}, \
        sizeof((const struct str[]){__VA_ARGS__}) / sizeof(struct str))

static void begin_round(struct redis_hop *h)
{
    struct str inbox = str_of(h->inbox);

    if (h->clean)
        ASK(h, STEP_DEL, STR("DEL"), inbox);
    if (h->make) {
        ASK(h, STEP_MAKE, STR("XGROUP"), STR("CREATE"), inbox, STR("r"), STR("$"), STR("MKSTREAM"));
    } else if (h->trim[0] != '\0') {
        ASK(h, STEP_TRIM, STR("XTRIM"), inbox, STR("MINID"), STR("="), str_of(h->trim));
    }
    if (h->make || !h->read_any || now_ms(h) - h->expired_ms >= BLOCK_MS) {
        ASK(h, STEP_EXPIRE, STR("EXPIRE"), inbox, STR(HOP_EXPIRE_S));
        h->expired_ms = now_ms(h);
    }
    ASK(h, STEP_READ, STR("XREAD"), STR("COUNT"), STR("16"), STR("BLOCK"), STR("1000"),
        STR("STREAMS"), inbox, STR("0"));
    h->clean = h->make = h->bad = h->read_any = false;
    h->trim[0] = '\0';
}

/* The reader is blocked in XREAD: the other connection makes the inbox. */
static void make_now(struct redis_hop *h)
{
    const struct str words[] = {STR("XGROUP"), STR("CREATE"), str_of(h->inbox),
                                STR("r"),      STR("$"),      STR("MKSTREAM")};

    h->make = true; /* and the next round, if that fails */
    if (!redis_client_is_up(h->writer))
        return;
    redis_client_send(h->writer, words, ARRAY_LEN(words));
    buf_add(&h->asked, no_line, sizeof no_line);
}

/* What is read is deleted up to here: the entry behind "ms-number". */
static bool note_read(struct redis_hop *h, struct str id)
{
    struct str ms, rest = id;
    uint64_t at, number;

    if (!str_split(&rest, '-', &ms) || !str_to_u64(ms, &at) || !str_to_u64(rest, &number) ||
        number == UINT64_MAX)
        return false;
    snprintf(h->trim, sizeof h->trim, "%" PRIu64 "-%" PRIu64, at, number + 1);
    return true;
}

/* [[inbox, [[id, [field, value, ...]], ...]]], or null when nothing came.  False: something
 * else. */
static bool take_entries(struct redis_hop *h, const struct resp *r)
{
    struct resp stream, entries, entry, fields;

    if (r->n_items == 0)
        return true;
    if (resp_read(r->items[0], &stream) <= 0 || stream.n_items != 2 ||
        resp_read(stream.items[1], &entries) <= 0)
        return false;
    for (size_t k = 0; k < entries.n_items; k++) {
        if (resp_read(entries.items[k], &entry) <= 0 || entry.n_items != 2 ||
            !note_read(h, entry.items[0]) || resp_read(entry.items[1], &fields) <= 0)
            return false;
        h->read_any = true;
        if (fields.n_items == 2 && str_eq(fields.items[0], STR("e")))
            take_entry(h, fields.items[1]);
        else
            warn_of_stranger(h);
    }
    return true;
}

/* Logged when the problem changes. */
static void note_problem(struct redis_hop *h, bool writing, struct str error)
{
    char words[sizeof h->problem];

    snprintf(words, sizeof words, "it says %.*s%s", error.n < 120 ? (int)error.n : 120, error.p,
             redis_advice(error));
    if (strcmp(words, h->problem) != 0)
        log_warn(NULL, "cluster: trunks over Redis at %s: %s", redis_client_at(h->reader), words);
    memcpy(h->problem, words, sizeof words);
    h->cannot_write = writing;
    cut_all(h, words);
}

static void on_reader_reply(void *ctx, const struct resp *r)
{
    struct redis_hop *h = ctx;
    enum hop_step step = STEP_READ;

    if (h->n_steps > 0) {
        step = h->steps[0];
        memmove(h->steps, h->steps + 1, --h->n_steps * sizeof h->steps[0]);
    }
    if (step == STEP_MAKE && r->kind == RESP_ERROR && str_starts(r->text, STR("BUSYGROUP")))
        return; /* it is there */
    if (r->kind == RESP_ERROR) {
        note_problem(h, false, r->text);
        h->bad = true;
    } else if (step == STEP_EXPIRE && str_eq(r->text, STR("0"))) {
        cut_all(h, "Redis has lost its data");
        make_now(h);
    } else if (step == STEP_READ && (r->kind != RESP_ARRAY || !take_entries(h, r))) {
        note_problem(h, false, STR("something that is no answer to XREAD"));
        h->bad = true;
    }
    if (step != STEP_READ)
        return;
    h->make |= h->bad;
    h->made_round |= !h->bad;
    if (!h->bad && !h->make && !h->cannot_write)
        h->problem[0] = '\0';
    if (h->bad)
        timer_set(loop_clock(h->loop), &h->again, RETRY_MS);
    else
        begin_round(h);
}

static void on_again(struct timer *t)
{
    struct redis_hop *h = container_of(t, struct redis_hop, again);

    if (redis_client_is_up(h->reader) && h->n_steps == 0)
        begin_round(h);
}

static void on_reader_up(void *ctx)
{
    struct redis_hop *h = ctx;

    h->n_steps = 0;
    h->make = true;
    h->clean = !h->made_round;
    h->made_round = false;
    h->trim[0] = '\0';
    begin_round(h);
}

static void on_reader_down(void *ctx)
{
    struct redis_hop *h = ctx;

    timer_stop(loop_clock(h->loop), &h->again);
    cut_all(h, "the connection to Redis was lost");
}

/* ---- the writer ---- */

static void on_writer_up(void *ctx)
{
    drop_farewells(ctx, true);
}

static void on_writer_down(void *ctx)
{
    struct redis_hop *h = ctx;

    buf_done(&h->asked);
    cut_all(h, "the connection to Redis was lost");
}

static void on_writer_reply(void *ctx, const struct resp *r)
{
    struct redis_hop *h = ctx;
    struct hop_line *l = NULL;

    if (h->asked.n >= HOP_LINE_BYTES) {
        l = map_get(&h->lines, str_make(h->asked.p, HOP_LINE_BYTES));
        buf_consume(&h->asked, HOP_LINE_BYTES);
    }
    if (r->kind != RESP_ERROR && h->cannot_write) {
        h->cannot_write = false;
        h->problem[0] = '\0';
    }
    if (r->kind == RESP_ERROR)
        note_problem(h, true, r->text);
    else if (r->kind == RESP_BULK && r->text.p == NULL && l != NULL)
        cut(l, false,
            "the other node reads nothing from this Redis: it ended, or Redis has lost its data, "
            "or "
            "redis.url is not the same on both nodes");
}

/* ---- life ---- */

void redis_hop_listen(struct redis_hop *h, hop_accept_f *accept, void *ctx)
{
    h->accept = accept;
    h->accept_ctx = ctx;
}

struct redis_hop_state redis_hop_state(const struct redis_hop *h)
{
    const struct redis_client *c = redis_client_is_up(h->writer) ? h->reader : h->writer;
    int64_t heard = redis_client_heard_ms(h->writer);

    if (redis_client_heard_ms(h->reader) > heard)
        heard = redis_client_heard_ms(h->reader);
    return (struct redis_hop_state){.at = redis_client_at(h->reader),
                                    .problem =
                                        redis_client_is_up(c) ? h->problem : redis_client_fault(c),
                                    .heard_ms = heard != 0 ? now_ms(h) - heard : -1,
                                    .lines = map_count(&h->lines)};
}

struct redis_hop *redis_hop_open(struct loop *loop, const struct redis_hop_options *o,
                                 char *ret_why)
{
    static const struct redis_client_handlers reading = {on_reader_up, on_reader_down,
                                                         on_reader_reply};
    static const struct redis_client_handlers writing = {on_writer_up, on_writer_down,
                                                         on_writer_reply};
    struct redis_client_options to = {.url = o->url,
                                      .ca = o->ca,
                                      .name = "trunks, reading",
                                      .max_unsent = MAX_QUEUED};
    struct redis_hop *h = xcalloc(1, sizeof *h);

    h->loop = loop;
    h->protocol = o->protocol;
    list_init(&h->farewells);
    timer_init(&h->again, on_again);
    hop_key(o->key, h->key);
    snprintf(h->name, sizeof h->name, "%s", o->name);
    hop_inbox(h->key, str_of(h->name), h->inbox);
    h->reader = redis_client_open(loop, &to, &reading, h, ret_why);
    to.name = "trunks, writing";
    h->writer = h->reader != NULL ? redis_client_open(loop, &to, &writing, h, ret_why) : NULL;
    if (h->writer != NULL)
        return h;
    redis_hop_close(h);
    return NULL;
}

void redis_hop_close(struct redis_hop *h)
{
    if (h == NULL)
        return;
    assert(map_count(&h->lines) == 0);
    if (h->writer != NULL)
        redis_client_flush(h->writer);
    timer_stop(loop_clock(h->loop), &h->again);
    redis_client_close(h->reader);
    redis_client_close(h->writer);
    drop_farewells(h, false);
    buf_done(&h->asked);
    map_done(&h->lines);
    secret_wipe(h->key, sizeof h->key);
    free(h);
}
