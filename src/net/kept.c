/* kept.c - design.  (kept.h has the contract.)
 *
 * Acks name deliveries by their bufferIds, in any order.  Looking each one up when it comes would
 * be work that only a takeover needs.  So acks are appended to a list, and once the list is as long
 * as the list of deliveries, one pass with a table of ids removes the committed acks and their
 * deliveries from both lists.  That is a constant cost per ack. */
#include "net/kept.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "core/event.h"
#include "core/frame.h"
#include "net/ws_codec.h"

_Static_assert(MSG_ID_BYTES == DELIVERY_ID_CHARS, "a bufferId fits into its field");

enum { FEW_ACKS = 8, MAX_PERSONAS = 4096 };

struct kept_row {
    uint64_t row;
    uint32_t frame; /* with which it went down, or goes */
    char id[MSG_ID_BYTES];
};
struct kept_ack {
    uint64_t no; /* on the trunk; 0: not sent to this heart yet */
    char id[MSG_ID_BYTES];
};
struct kept_asked {
    uint32_t frame; /* with which the result went down, or goes; 0: no result yet */
    uint8_t n;
    char id[FRAME_REQUEST_ID_MAX];
};

static size_t count(const struct buf *b, size_t size)
{
    return b->n / size;
}

void kept_done(struct kept_socket *k)
{
    struct buf *all[] = {&k->keep, &k->personas, &k->line, &k->frame,
                         &k->sent, &k->acked,    &k->asked};

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_done(all[i]);
}

/* ---- what is acked and on disk goes ---- */

struct ids { /* a table of the ids that go; at most half full */
    const char **at;
    size_t mask;
};

static size_t home(const struct ids *t, const char *id)
{
    return (size_t)hash64(hash_process_key(), str_make(id, MSG_ID_BYTES)) & t->mask;
}

static bool has(const struct ids *t, const char *id)
{
    for (size_t i = home(t, id); t->at[i] != NULL; i = (i + 1) & t->mask)
        if (memcmp(t->at[i], id, MSG_ID_BYTES) == 0)
            return true;
    return false;
}

static void put(struct ids *t, const char *id)
{
    size_t i = home(t, id);

    while (t->at[i] != NULL)
        i = (i + 1) & t->mask;
    t->at[i] = id;
}

static void drop_rows(struct kept_socket *k, const struct ids *gone)
{
    struct kept_row *rows = (struct kept_row *)(void *)k->sent.p;
    size_t n = count(&k->sent, sizeof *rows), left = 0, first = n - k->announced;

    for (size_t i = 0; i < n; i++)
        if (i >= first || !has(gone, rows[i].id))
            rows[left++] = rows[i];
    k->sent.n = left * sizeof *rows;
}

void kept_committed(struct kept_socket *k, uint64_t upto)
{
    const struct kept_ack *acks = (const struct kept_ack *)(const void *)k->acked.p;
    size_t n = count(&k->acked, sizeof *acks);
    size_t safe = count(&k->sent, sizeof(struct kept_row)) / 2; /* fewer are not worth a pass */
    struct ids gone = {.mask = 15};

    safe = safe < FEW_ACKS ? FEW_ACKS : safe;
    if (n < safe || acks[safe - 1].no == 0 || acks[safe - 1].no > upto)
        return; /* their numbers ascend */
    while (safe < n && acks[safe].no != 0 && acks[safe].no <= upto)
        safe++;
    while (gone.mask < safe * 2)
        gone.mask = gone.mask * 2 + 1;
    gone.at = xcalloc(gone.mask + 1, sizeof *gone.at);
    for (size_t i = 0; i < safe; i++)
        put(&gone, acks[i].id);
    drop_rows(k, &gone);
    free(gone.at);
    buf_consume(&k->acked, safe * sizeof *acks);
}

/* ---- up: lines of the gateway ---- */

struct up { /* one call of kept_up() */
    struct kept_socket *k;
    const struct kept_out *out;
    size_t begun;       /* of the open message */
    enum msg_what what; /* 0: none is open */
    size_t bytes;       /* of the messages that are closed */
};

static void close_message(struct up *u)
{
    if (u->what != 0) {
        u->bytes += u->out->batch->n - u->begun - MSG_HEAD_BYTES;
        batch_add_end(u->out->batch, u->begun);
    }
    u->what = 0;
}

/* The next bytes go into a message of this kind: order holds because only one is open. */
static struct buf *open_message(struct up *u, enum msg_what what)
{
    struct buf *b = u->out->batch;

    if (u->what == what && b->n - u->begun < KEPT_PIECE_BYTES)
        return b;
    close_message(u);
    u->begun = batch_add_begin(b, u->out->number, what);
    u->what = what;
    if (what == MSG_TEXT)
        buf_add_c(b, 1);
    return b;
}

static void add_text(struct up *u, struct str bytes)
{
    while (bytes.n > 0) {
        struct buf *b = open_message(u, MSG_TEXT);
        size_t n = bytes.n < KEPT_PIECE_BYTES ? bytes.n : KEPT_PIECE_BYTES;
        buf_add(b, bytes.p, n);
        bytes = str_skip(bytes, n);
    }
}

static void add_ack(struct up *u, struct str id)
{
    struct kept_ack a = {.no = ++*u->out->acks};

    buf_add_str(open_message(u, MSG_ACKS), id);
    if (!u->k->remote || u->k->full)
        return;
    memcpy(a.id, id.p, sizeof a.id);
    buf_add(&u->k->acked, &a, sizeof a);
    u->k->full |= count(&u->k->acked, sizeof a) > KEPT_MAX_ROWS;
    u->k->has_acked = true;
}

static void add_persona(struct kept_socket *k, const struct frame *f)
{
    bool plain = str_has_only(f->platform, "-_.:@") && str_find(f->bot, '\x1f') < 0 &&
                 str_find(f->bot, '\x1e') < 0 && (f->bot.n == 0 || !memchr(f->bot.p, 0, f->bot.n));
    BUF_LOCAL pair = BUF_INIT;

    k->idle = false;
    k->late_acks |= f->late_acks;
    buf_add_str(&pair, f->platform);
    buf_add_c(&pair, '\x1f');
    buf_add_str(&pair, f->bot);
    buf_add_c(&pair, '\x1e');
    if (plain && k->personas.n + pair.n <= MAX_PERSONAS &&
        !str_contains(buf_str(&k->personas), buf_str(&pair)))
        buf_add_str(&k->personas, buf_str(&pair));
}

static void add_asked(struct kept_socket *k, struct str id)
{
    struct kept_asked a = {.n = (uint8_t)id.n};

    memcpy(a.id, id.p, id.n);
    if (count(&k->asked, sizeof a) == KEPT_MAX_ASKED)
        buf_consume(&k->asked, sizeof a);
    buf_add(&k->asked, &a, sizeof a);
}

/* What a takeover must know of a line that is no ack. */
static void note_line(struct kept_socket *k, struct json_parser *json, struct str line)
{
    struct frame f;

    frame_read(json, line, &f);
    if (f.type == FRAME_HELLO)
        add_persona(k, &f);
    else if (f.type == FRAME_GOING_IDLE)
        k->idle = true;
    else if (f.type == FRAME_OUTBOUND && f.request_id.n > 0)
        add_asked(k, f.request_id);
}

/* @line with its newline. */
static void add_line(struct up *u, struct str line)
{
    struct str id;

    if (frame_is_ack(line, &id) && id.n == MSG_ID_BYTES) {
        add_ack(u, id);
        return;
    }
    if (u->k->remote && u->out->json != NULL)
        note_line(u->k, u->out->json, line);
    add_text(u, line);
}

/* The same of a line whose end has not come when it is longer than what is held; @start is all that
 * has come.  Gateways write the id of an action before its text. */
static void note_start(struct kept_socket *k, struct str start)
{
    static const struct str name = STR("\"requestId\":");
    const char *at = memmem(start.p, start.n, name.p, name.n);
    size_t before = at != NULL ? (size_t)(at - start.p) + name.n : start.n;
    struct str value = str_trim(str_skip(start, before)), id = str_skip(value, 1);
    ptrdiff_t n = value.n > 0 && *value.p == '"' ? str_find(id, '"') : -1;
    bool named = n > 0 && n <= FRAME_REQUEST_ID_MAX && memchr(id.p, '\\', (size_t)n) == NULL;

    if (named)
        add_asked(k, str_make(id.p, (size_t)n));
    k->missed |= str_contains(start, STR("\"hello\"")) ||
                 (!named && str_contains(start, STR("\"outbound\"")));
}

/* @rest has no newline. */
static void add_rest(struct up *u, struct str rest)
{
    struct kept_socket *k = u->k;

    if (k->passing) {
        add_text(u, rest);
        return;
    }
    buf_add_str(&k->line, rest);
    if (k->line.n <= KEPT_LINE_BYTES)
        return;
    if (k->remote)
        note_start(k, buf_str(&k->line));
    add_text(u, buf_str(&k->line));
    buf_done(&k->line);
    k->passing = true;
}

size_t kept_up(struct kept_socket *k, struct str bytes, const struct kept_out *out)
{
    struct up u = {.k = k, .out = out};
    const char *end;

    while (bytes.n > 0 && (end = memchr(bytes.p, '\n', bytes.n)) != NULL) {
        struct str line = str_make(bytes.p, (size_t)(end - bytes.p) + 1);
        bytes = str_skip(bytes, line.n);
        if (k->passing) {
            add_text(&u, line);
            k->passing = false;
        } else if (k->line.n > 0) {
            buf_add_str(&k->line, line);
            add_line(&u, buf_str(&k->line));
            buf_done(&k->line);
        } else {
            add_line(&u, line);
        }
    }
    if (bytes.n > 0)
        add_rest(&u, bytes);
    close_message(&u);
    return u.bytes;
}

/* ---- down: orders and frames of the heart ---- */

bool kept_keep(struct kept_socket *k, struct str payload)
{
    struct msg_keep keep;

    if (!batch_read_texts(payload, (struct str *)(void *)&keep, sizeof keep / sizeof(struct str)))
        return false;
    buf_reset(&k->keep);
    buf_add_str(&k->keep, payload);
    return true;
}

bool kept_sent(struct kept_socket *k, struct str payload)
{
    struct kept_row r;
    struct msg_row row;
    struct str rest = payload.n > 4 ? str_skip(payload, 4) : STR_NULL;

    if (!batch_next_row(&rest, &row) || rest.n > 0)
        return false;
    if (k->full)
        return true;
    r.frame = get_u32(payload.p);
    r.row = row.row;
    memcpy(r.id, row.id.p, sizeof r.id);
    buf_add(&k->sent, &r, sizeof r);
    k->announced += r.frame > k->frames;
    size_t n = count(&k->sent, sizeof r), forgotten = n / 2;
    if (n <= (k->has_acked ? KEPT_MAX_ROWS : KEPT_MAX_UNACKED))
        return true;
    k->full |= k->announced > n - forgotten;
    if (!k->full)
        buf_consume(&k->sent, forgotten * sizeof r);
    return true;
}

bool kept_result(struct kept_socket *k, struct str payload)
{
    struct kept_asked *all = (struct kept_asked *)(void *)k->asked.p;
    struct str id = payload.n > 4 ? str_skip(payload, 4) : STR_NULL;

    if (id.n == 0 || id.n > FRAME_REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < count(&k->asked, sizeof *all); i++)
        if (str_eq(str_make(all[i].id, all[i].n), id))
            all[i].frame = get_u32(payload.p);
    return true;
}

/* How many bytes the frame at the front of @p has; 0: not known yet.  The heart's frames are not
 * masked. */
static uint64_t frame_bytes(const char *p, size_t n)
{
    const uint8_t *b = (const uint8_t *)p;
    uint64_t left = 0;

    if (n < 2)
        return 0;
    if ((b[1] & 127) < 126)
        return 2u + (b[1] & 127u);
    size_t more = (b[1] & 127) == 126 ? 2 : 8;
    if (n < 2 + more)
        return 0;
    for (size_t i = 0; i < more; i++)
        left = left << 8 | b[2 + i];
    return 2 + more + left;
}

static void forget_answered(struct kept_socket *k)
{
    struct kept_asked *all = (struct kept_asked *)(void *)k->asked.p;
    size_t n = count(&k->asked, sizeof *all), left = 0;

    for (size_t i = 0; i < n; i++)
        if (all[i].frame == 0 || all[i].frame > k->frames)
            all[left++] = all[i];
    k->asked.n = left * sizeof *all;
}

/* One whole frame goes down. */
static void frame_passed(struct kept_socket *k, struct str frame)
{
    const struct kept_row *rows = (const struct kept_row *)(const void *)k->sent.p;
    size_t n = count(&k->sent, sizeof *rows);

    k->frames++;
    if ((frame.p[0] & 15) == WS_TEXT)
        k->torn = frame.p[frame.n - 1] != '\n';
    k->closed |= (frame.p[0] & 15) == WS_CLOSE;
    while (k->announced > 0 && rows[n - k->announced].frame <= k->frames)
        k->announced--;
    if (k->asked.n > 0)
        forget_answered(k);
}

/* The whole frames at the front of @bytes; how many bytes they have. */
static size_t pass_frames(struct kept_socket *k, struct str bytes)
{
    size_t at = 0;

    for (;;) {
        uint64_t n = frame_bytes(bytes.p + at, bytes.n - at);
        if (n == 0 || n > bytes.n - at)
            return at;
        frame_passed(k, str_make(bytes.p + at, (size_t)n));
        at += (size_t)n;
    }
}

void kept_down(struct kept_socket *k, struct str bytes, struct buf *to)
{
    bool waits = k->frame.n > 0;
    size_t n;

    if (waits) {
        buf_add_str(&k->frame, bytes);
        bytes = buf_str(&k->frame);
    }
    n = pass_frames(k, bytes);
    buf_add(to, bytes.p, n);
    if (waits)
        buf_consume(&k->frame, n);
    else
        buf_add_str(&k->frame, str_skip(bytes, n));
    if (k->frame.n == 0)
        buf_done(&k->frame);
}

/* ---- takeover ---- */

bool kept_lost(struct kept_socket *k)
{
    struct kept_ack *acks = (struct kept_ack *)(void *)k->acked.p;
    struct kept_asked *asked = (struct kept_asked *)(void *)k->asked.p;

    for (size_t i = 0; i < count(&k->acked, sizeof *acks); i++)
        acks[i].no = 0;
    for (size_t i = 0; i < count(&k->asked, sizeof *asked); i++)
        asked[i].frame = 0;
    k->sent.n -= k->announced * sizeof(struct kept_row);
    k->announced = 0;
    buf_done(&k->frame);
    return k->keep.n > 0 && k->personas.n > 0 && !k->passing && !k->missed && !k->torn &&
           !k->idle && !k->full && !k->closed;
}

static void present_rows(struct kept_socket *k, const struct kept_out *out)
{
    const struct kept_row *rows = (const struct kept_row *)(const void *)k->sent.p;
    size_t n = count(&k->sent, sizeof *rows);

    for (size_t i = 0; i < n;) {
        size_t begun = batch_add_begin(out->batch, out->number, MSG_ROWS);
        for (size_t m = 0; i < n && m < KEPT_PIECE_BYTES / MSG_ROW_BYTES; i++, m++)
            batch_put_row(out->batch,
                          &(struct msg_row){rows[i].row, str_make(rows[i].id, MSG_ID_BYTES)});
        batch_add_end(out->batch, begun);
    }
}

static void present_acks(struct kept_socket *k, const struct kept_out *out)
{
    struct kept_ack *acks = (struct kept_ack *)(void *)k->acked.p;
    size_t n = count(&k->acked, sizeof *acks);

    for (size_t i = 0; i < n;) {
        size_t begun = batch_add_begin(out->batch, out->number, MSG_ACKS);
        for (size_t m = 0; i < n && m < KEPT_PIECE_BYTES / MSG_ID_BYTES; i++, m++) {
            acks[i].no = ++*out->acks;
            buf_add(out->batch, acks[i].id, MSG_ID_BYTES);
        }
        batch_add_end(out->batch, begun);
    }
}

void kept_present(struct kept_socket *k, const struct kept_out *out)
{
    const struct kept_asked *asked = (const struct kept_asked *)(const void *)k->asked.p;
    size_t begun = batch_add_begin(out->batch, out->number, MSG_PRESENT);

    k->frames = 0;
    buf_add_str(out->batch, buf_str(&k->keep));
    batch_put_texts(out->batch,
                    (const struct str[]){k->late_acks   ? STR("late")
                                         : k->has_acked ? STR("1")
                                                        : STR(""),
                                         buf_str(&k->personas)},
                    2);
    batch_add_end(out->batch, begun);
    for (size_t i = 0; i < count(&k->asked, sizeof *asked); i++)
        batch_add(out->batch, out->number, MSG_ASKED, str_make(asked[i].id, asked[i].n));
    present_rows(k, out);
    batch_add(out->batch, out->number, MSG_SHOWN, STR_NULL);
    present_acks(k, out);
}
