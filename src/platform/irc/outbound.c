/* outbound.c - performs actions: messages, questions, reactions, typing.  (irc_priv.h has the
 * calls.)
 *
 *      part --transmit--> lines, each with a label --echoes--> done
 *                        '-- a server without labels: PING behind the last --PONG--> done
 *
 * A part of a text is sent as one multiline message where the server has them, else line by line.
 * An error that names the label, or the target before the PONG, refuses the part.
 *
 * Each line carries a key as a client tag: the number of the outbox record, hashed, and the
 * place in the text.  A line whose receipt was lost is looked for by its key in the server's
 * history.  Lines that never left, because the server's patience was used up, are simply sent on
 * the next connection. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/hash.h"
#include "base/mem.h"
#include "net/http_client.h"
#include "platform/irc/irc_priv.h"
#include "store/store.h"

enum {
    SILENT_MS = 30000, /* from the last line to its receipt */
    OFFLINE_MS = 500,
    WHOIS_MS = 100,   /* poll interval while the server is asked who has a nick */
    LOOK_MS = 1000,   /* between two looks */
    TYPING_MS = 3000, /* between two of them in a chat */
    MAX_LINES = 64,   /* of one part */
    ST_DONE = 200,
    ST_REST = 300, /* of a look: what left has arrived, and the rest has not left */
    ST_REFUSED = 400,
    ST_MISSING = 404,
    ST_LATER = 429,
};
#define KEY_TAG "+bellhop/key"

struct irc_send {
    struct outgoing out; /* first */
    struct irc *i;       /* borrowed */
    struct list link;    /* irc.out.flying */
    char *target;        /* owned; folded, as in the chat's id */
    char *text;          /* owned; NULL: a reaction */
    char *reply;         /* owned; a msgid; NULL: none */
    char *emoji;         /* owned; of a reaction */
    bool removes;
    struct str parts[IRC_MAX_PARTS]; /* of @text */
    /* of the part that is under way */
    size_t n_lines; /* 0: not known */
    size_t done;    /* the first so many arrived */
    size_t left;    /* so many may have left, when the connection ended */
    uint64_t acked; /* bits: lines that arrived */
    uint64_t label; /* of line @done; the others follow.  Without labels: of the PING */
    bool labeled, transmitting;
    uint64_t number, last; /* of the lines, by irc_link_send() */
    int64_t sent_ms;       /* monotonic: all have left; 0: not yet */
    bool looking, settled;
    uint64_t found;   /* bits: lines that the history shows */
    size_t found_all; /* how many there should be */
    char msgid[IRC_MSGID_MAX + 1];
    char why[200];
};

static struct irc_send *send_of(struct outgoing *o)
{
    return container_of(o, struct irc_send, out);
}

static void send_free(struct outgoing *o)
{
    struct irc_send *x = send_of(o);

    list_remove(&x->link);
    free(x->target);
    free(x->text);
    free(x->reply);
    free(x->emoji);
    free(x);
}

static void drop(struct platform *p, struct outgoing *o)
{
    struct irc *i = irc_of(p);

    list_remove(&send_of(o)->link);
    if (i->past.asked.next != NULL)
        irc_past_drop(i, o);
}

/* ---- lines ---- */

static uint64_t bits(size_t n)
{
    return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* Of line @line of the @n lines of this part.  People who saw the key of one line cannot make the
 * key of another, so nobody but bellhop can make a line that was not sent count as sent. */
static uint64_t line_key(const struct irc_send *x, size_t line, size_t n)
{
    char text[64];

    snprintf(text, sizeof text, "%016" PRIx64 ".%zu.%zu.%zu", sender_key(&x->out), x->out.at, line,
             n);
    return hash64(&x->i->base.env->store->dedup_key, str_of(text));
}

static void add_tags(struct irc *i, struct irc_send *x, struct buf *out, size_t line, size_t n,
                     uint64_t label)
{
    char sep = '@';

    if (label != 0) {
        buf_printf(out, "%clabel=bh%" PRIu64, sep, label);
        sep = ';';
    }
    if (irc_may_tag(i, STR("bellhop/key")) && x->text != NULL) {
        buf_printf(out, "%c" KEY_TAG "=%016" PRIx64 ".%zu.%zu", sep, line_key(x, line, n), line, n);
        sep = ';';
    }
    if (x->reply != NULL && x->out.at == 0 && line == 0)
        for (size_t k = 0; k < 2; k++) /* the old name and the new one */
            if (irc_may_tag(i, k == 0 ? STR("draft/reply") : STR("reply"))) {
                buf_printf(out, "%c%s=", sep, k == 0 ? "+draft/reply" : "+reply");
                irc_tag_add(out, str_of(x->reply));
                sep = ';';
            }
    if (x->emoji != NULL) {
        buf_printf(out, "%c%s=", sep, x->removes ? "+draft/unreact" : "+draft/react");
        irc_tag_add(out, str_of(x->emoji));
        sep = ';';
    }
    if (sep == ';')
        buf_add_c(out, ' ');
}

struct irc_cut { /* a part as lines */
    struct str line[MAX_LINES];
    bool goes_on[MAX_LINES];
    size_t n;
};

static void cut_part(struct str part, size_t most, bool blanks, struct irc_cut *ret)
{
    struct str line;
    bool goes_on;

    ret->n = 0;
    while (ret->n < MAX_LINES && irc_next_line(&part, most, &line, &goes_on)) {
        if (!blanks && str_trim(line).n == 0)
            continue;
        ret->goes_on[ret->n] = goes_on;
        ret->line[ret->n++] = line;
    }
}

static const char *peer_of(struct irc *i, const struct irc_send *x)
{
    const struct irc_chat *c = lru_find(&i->in.chats, str_of(x->target));

    return c != NULL ? c->peer : x->target;
}

/* One message of several lines; false: it does not fit. */
static bool carry_batch(struct irc *i, struct irc_send *x, const struct irc_cut *cut,
                        struct str part)
{
    const struct irc_server *s = irc_link_server(i->link);
    const char *to = peer_of(i, x);
    BUF_LOCAL out = BUF_INIT;

    if (!irc_has(i, IRC_MULTILINE | IRC_BATCH | IRC_LABELS) || cut->n < 2 || x->done > 0 ||
        part.n > s->multi_bytes || (s->multi_lines > 0 && cut->n > s->multi_lines))
        return false;
    x->n_lines = 1;
    x->label = irc_label(i);
    add_tags(i, x, &out, 0, 1, x->label);
    buf_printf(&out, "BATCH +bh%" PRIu64 " draft/multiline %s\r\n", x->label, to);
    for (size_t n = 0; n < cut->n; n++) {
        buf_printf(&out, "@batch=bh%" PRIu64 "%s PRIVMSG %s :", x->label,
                   n > 0 && cut->goes_on[n - 1] ? ";draft/multiline-concat" : "", to);
        irc_body_add(&out, cut->line[n]);
        buf_add_z(&out, "\r\n");
    }
    buf_printf(&out, "BATCH -bh%" PRIu64 "\r\n", x->label);
    x->number = x->last = irc_link_send(i->link, buf_str(&out), (unsigned)(part.n / 512 + 2));
    return true;
}

static void carry_lines(struct irc *i, struct irc_send *x, const struct irc_cut *cut)
{
    const char *to = peer_of(i, x);

    x->n_lines = cut->n;
    for (size_t n = x->done; n < cut->n; n++) {
        BUF_LOCAL out = BUF_INIT;
        uint64_t label = x->labeled ? irc_label(i) : 0;
        bool last = n + 1 == cut->n;
        unsigned cost = 1;
        add_tags(i, x, &out, n, cut->n, label);
        buf_printf(&out, "PRIVMSG %s :", to);
        irc_body_add(&out, cut->line[n]);
        buf_add_z(&out, "\r\n");
        if (n == x->done)
            x->label = label;
        if (last && !x->labeled) {
            x->label = irc_label(i);
            buf_printf(&out, "PING :bh%" PRIu64 "\r\n", x->label);
            cost = 2;
        }
        x->last = irc_link_send(i->link, buf_str(&out), cost);
        if (n == x->done)
            x->number = x->last;
    }
}

static void carry_reaction(struct irc *i, struct irc_send *x)
{
    BUF_LOCAL out = BUF_INIT;

    x->n_lines = 1;
    x->label = irc_label(i);
    add_tags(i, x, &out, 0, 1, x->labeled ? x->label : 0);
    buf_printf(&out, "TAGMSG %s\r\n", peer_of(i, x));
    if (!x->labeled)
        buf_printf(&out, "PING :bh%" PRIu64 "\r\n", x->label);
    x->number = x->last = irc_link_send(i->link, buf_str(&out), x->labeled ? 1 : 2);
}

static void transmit(struct platform *p, struct outgoing *o, const struct sender_request *q)
{
    struct irc *i = irc_of(p);
    struct irc_send *x = send_of(o);
    struct irc_cut cut;

    list_append(&i->out.flying, &x->link);
    if (x->looking) {
        irc_past_look(i, o, str_of(x->target));
        return;
    }
    x->labeled = irc_has(i, IRC_LABELS);
    x->acked = 0;
    x->sent_ms = 0;
    x->transmitting = true;
    if (x->text == NULL) {
        carry_reaction(i, x);
        return;
    }
    size_t room = irc_link_room(i->link, str_of(peer_of(i, x)));
    cut_part(x->parts[o->at], room, true, &cut);
    if (carry_batch(i, x, &cut, x->parts[o->at]))
        return;
    cut_part(x->parts[o->at], room, false, &cut);
    carry_lines(i, x, &cut);
}

/* ---- receipts ---- */

static void answer(struct irc_send *x, enum bh_err err, int status)
{
    list_remove(&x->link);
    x->transmitting = x->looking = false;
    sender_answer(&x->out, &(struct http_result){
                               .err = err, .status = status, .why = x->why, .retry_after_ms = -1});
}

static struct irc_send *by_label(struct irc *i, uint64_t label, size_t *ret_line)
{
    for (struct list *it = i->out.flying.next; it != &i->out.flying; it = it->next) {
        struct irc_send *x = list_entry(it, struct irc_send, link);
        size_t n = x->labeled ? x->n_lines - x->done : 1;
        if (x->transmitting && label >= x->label && label < x->label + n) {
            *ret_line = x->done + (size_t)(label - x->label);
            return x;
        }
    }
    return NULL;
}

static void arrived(struct irc_send *x, size_t line)
{
    if (line < 64)
        x->acked |= UINT64_C(1) << line;
    if ((x->acked | bits(x->done)) == bits(x->n_lines))
        answer(x, BH_OK, ST_DONE);
}

/* "hex.line.lines" of this send?  *@ret_line, *@ret_n. */
static bool is_key(const struct irc_send *x, struct str key, size_t *ret_line, size_t *ret_n)
{
    char mine[24];
    struct str hex, word;
    uint64_t line, n;

    if (!str_split(&key, '.', &hex) || !str_split(&key, '.', &word) || !str_to_u64(word, &line) ||
        !str_to_u64(key, &n) || n > MAX_LINES || line >= n)
        return false;
    snprintf(mine, sizeof mine, "%016" PRIx64, line_key(x, (size_t)line, (size_t)n));
    *ret_line = (size_t)line;
    *ret_n = (size_t)n;
    return str_eq(hex, str_of(mine));
}

static struct irc_send *by_key(struct irc *i, const struct irc_line *l)
{
    struct str key = irc_tag(l, STR(KEY_TAG), &i->arena);
    size_t line, n;

    for (struct list *it = i->out.flying.next; key.n > 0 && it != &i->out.flying; it = it->next) {
        struct irc_send *x = list_entry(it, struct irc_send, link);
        if (x->text != NULL && is_key(x, key, &line, &n))
            return x;
    }
    return NULL;
}

/* Without labels and tags: the first that waits for this target. */
static struct irc_send *by_target(struct irc *i, struct str target)
{
    struct irc_in in = irc_in_of(i);

    for (struct list *it = i->out.flying.next; it != &i->out.flying; it = it->next) {
        struct irc_send *x = list_entry(it, struct irc_send, link);
        if (x->transmitting && !x->labeled && irc_eq(in.fold, str_of(x->target), target))
            return x;
    }
    return NULL;
}

void irc_out_own(struct irc *i, const struct irc_line *l, uint64_t label)
{
    struct str msgid = irc_msgid(l, STR("msgid"), &i->arena);
    size_t line = 0;
    struct irc_send *x = label != 0 ? by_label(i, label, &line) : NULL;
    bool labeled = x != NULL;

    irc_own_add(i, msgid);
    if (x == NULL)
        x = by_key(i, l);
    if (x == NULL)
        x = by_target(i, irc_param(l, 0));
    if (x == NULL)
        return; /* of another program that uses the account */
    i->n.echoed++;
    if (x->msgid[0] == '\0')
        snprintf(x->msgid, sizeof x->msgid, "%.*s", STR_FMT(msgid));
    if (labeled && x->labeled)
        arrived(x, line);
}

/* What a refusal means for the agent. */
static void refuse(struct irc_send *x, const struct irc_line *l)
{
    struct str words = irc_param(l, l->n_params - 1);
    int numeric = irc_numeric(l);
    BUF_LOCAL plain = BUF_INIT;

    buf_add_plain(&plain, utf8_head(words, 120));
    if (numeric == 401)
        snprintf(x->why, sizeof x->why, "nobody has the nick %.60s now", x->target);
    else if (numeric == 403 || numeric == 404 || numeric == 442)
        snprintf(x->why, sizeof x->why, "the bot cannot speak in %.60s: %.100s", x->target,
                 buf_z(&plain));
    else
        snprintf(x->why, sizeof x->why, "the server refused it: %.120s", buf_z(&plain));
    /* "targets change too fast", and what says so itself */
    bool later = numeric == 439 || numeric == 707 ||
                 (irc_is(l, "FAIL") && str_contains(irc_param(l, 1), STR("RATE")));
    answer(x, BH_OK, later ? ST_LATER : ST_REFUSED);
}

static bool is_refusal(const struct irc_line *l)
{
    int n = irc_numeric(l);

    return (n >= 401 && n <= 599 && n != 422) || n == 707 || n == 716 ||
           (irc_is(l, "FAIL") && !str_eq_ci(irc_param(l, 0), STR("CHATHISTORY")));
}

void irc_out_line(struct irc *i, const struct irc_line *l)
{
    struct str token = irc_param(l, l->n_params - 1);
    uint64_t label = 0;
    size_t line = 0;

    arena_reset(&i->arena);
    if (irc_is(l, "PONG")) {
        if (!str_starts(token, STR("bh")) || !str_to_u64(str_skip(token, 2), &label))
            return;
        struct irc_send *x = by_label(i, label, &line);
        if (x != NULL && !x->labeled)
            answer(x, BH_OK, ST_DONE);
        return;
    }
    bool refusal = is_refusal(l), ack = irc_is(l, "ACK");
    if (!refusal && !ack)
        return;
    label = irc_label_of(i, l);
    struct irc_send *x = label != 0 ? by_label(i, label, &line) : NULL;
    if (x == NULL && refusal && label == 0)
        x = by_target(i, irc_param(l, 1));
    if (x != NULL && refusal)
        refuse(x, l);
    else if (x != NULL && x->labeled)
        arrived(x, line);
}

/* Lines that left and were not seen again may have arrived. */
void irc_out_lost(struct irc *i)
{
    uint64_t sent = i->link != NULL ? irc_link_sent(i->link) : 0;

    while (!list_is_empty(&i->out.flying)) {
        struct irc_send *x = list_first(&i->out.flying, struct irc_send, link);
        if (x->looking) {
            answer(x, BH_UNAVAILABLE, 0);
            continue;
        }
        bool one = x->number == x->last; /* a batch, or one line */
        size_t n = sent < x->number ? 0
                   : one            ? x->n_lines
                                    : x->done + (size_t)(sent - x->number) + 1;
        x->left = n < x->n_lines ? n : x->n_lines;
        bool sure = ((x->acked | bits(x->done)) & bits(x->left)) == bits(x->left);
        if (sure && x->left > x->done)
            x->done = x->left;
        answer(x, sure ? BH_UNAVAILABLE : BH_UNKNOWN, 0);
    }
}

void irc_out_tick(struct irc *i)
{
    uint64_t sent = i->link != NULL ? irc_link_sent(i->link) : 0;
    int64_t now = irc_now_ms(i);

    list_each (&i->out.flying, it, nxt) {
        struct irc_send *x = list_entry(it, struct irc_send, link);
        if (!x->transmitting || sent < x->last)
            continue;
        if (x->sent_ms == 0) {
            x->sent_ms = now;
        } else if (now - x->sent_ms > SILENT_MS) {
            x->left = x->n_lines;
            answer(x, BH_UNKNOWN, 0);
            return; /* the list may have changed; the next tick goes on */
        }
    }
}

/* ---- the sender's questions ---- */

/* Until flood control has room.  What the server was asked for goes at once behind the question:
 * the answer is soon too old. */
static int64_t turn_ms(struct irc *i, struct irc_chat *c)
{
    enum irc_holder holder = irc_holder(i, c);
    int64_t ms = irc_link_wait_ms(i->link);

    if (holder == IRC_STALE && ms == 0)
        irc_holder_ask(i, c);
    if (holder == IRC_ASKED || (holder == IRC_STALE && ms == 0))
        return WHOIS_MS;
    return holder != IRC_STALE && c != NULL && c->asked ? 0 : ms;
}

static int64_t wait_ms(struct platform *p, struct outgoing *o)
{
    struct irc *i = irc_of(p);
    const struct irc_send *x = send_of(o);

    if (!i->live)
        return OFFLINE_MS;
    for (size_t n = 0; n < i->n_channels; n++) { /* being joined: wait for the answer */
        const struct irc_channel *c = &i->channels[n];
        if (c->asked && !c->joined && str_eq_ci(str_of(c->name), str_of(x->target)))
            return OFFLINE_MS;
    }
    return turn_ms(i, lru_find(&i->in.chats, str_of(x->target)));
}

#define NO_REACTIONS "this IRC server has no reactions"

static void write_part(struct platform *p, struct outgoing *o, struct sender_request *q,
                       struct sender_verdict *v)
{
    struct irc *i = irc_of(p);
    struct irc_send *x = send_of(o);

    if (!i->live) {
        sender_say(v, SENDER_AGAIN, "the bot is not on the network");
        v->wait_ms = OFFLINE_MS;
        return;
    }
    if (x->text == NULL && !irc_may_tag(i, STR("draft/react"))) {
        sender_say(v, SENDER_REFUSED, NO_REACTIONS);
        return;
    }
    enum irc_holder holder = irc_holder(i, lru_find(&i->in.chats, str_of(x->target)));
    if (holder == IRC_STRANGER) {
        sender_say(v, SENDER_REFUSED, "the nick %.60s is somebody else's now", x->target);
        return;
    }
    if (holder == IRC_ASKED || holder == IRC_STALE) {
        sender_say(v, SENDER_AGAIN, "the server is asked who has the nick %.60s", x->target);
        v->wait_ms = WHOIS_MS;
        return;
    }
    q->once = x->text != NULL;
    v->end = SENDER_GO;
}

/* Done with this part: the next one begins anew. */
static void part_over(struct irc_send *x)
{
    x->done = x->left = x->n_lines = x->found_all = 0;
    x->found = 0;
    x->settled = false;
}

static void say_done(struct irc_send *x, struct sender_verdict *v)
{
    v->end = SENDER_DONE;
    snprintf(v->message_id, sizeof v->message_id, "%s", x->msgid);
    x->msgid[0] = '\0';
    part_over(x);
}

static void read_answer(struct platform *p, struct outgoing *o, const struct http_result *res,
                        struct sender_verdict *v)
{
    struct irc_send *x = send_of(o);

    if (res->status == ST_DONE) {
        say_done(x, v);
    } else if (res->status == ST_LATER) {
        sender_say(v, SENDER_AGAIN, "%s", x->why);
        v->wait_ms = 30000;
    } else {
        sender_say(v, SENDER_REFUSED, "%s", x->why);
        sender_blame(o);
    }
}

static void look(struct platform *p, struct outgoing *o, struct sender_request *q,
                 struct sender_verdict *v)
{
    struct irc *i = irc_of(p);
    struct irc_send *x = send_of(o);

    if (x->settled) {
        x->settled = false;
        v->end = SENDER_REWRITE;
    } else if (!i->live) {
        sender_say(v, SENDER_AGAIN, "the bot is not on the network");
        v->wait_ms = OFFLINE_MS;
    } else if (!irc_has(i, IRC_HISTORY | IRC_BATCH | IRC_TAGS) ||
               !irc_may_tag(i, STR("bellhop/key"))) {
        sender_say(v, SENDER_REFUSED, "this IRC server keeps no history");
        v->wait_ms = 1; /* it will not have one the next time either */
    } else {
        x->looking = true;
        x->found = 0;
        v->end = SENDER_GO;
    }
}

void irc_out_past(struct irc *i, struct outgoing *o, const struct irc_line *l)
{
    struct irc_send *x = send_of(o);
    struct str msgid = irc_msgid(l, STR("msgid"), &i->arena);
    size_t line, n;

    if (!is_key(x, irc_tag(l, STR(KEY_TAG), &i->arena), &line, &n))
        return;
    x->found |= UINT64_C(1) << line;
    x->found_all = n;
    irc_own_add(i, msgid);
    if (line == 0 && x->msgid[0] == '\0')
        snprintf(x->msgid, sizeof x->msgid, "%.*s", STR_FMT(msgid));
}

void irc_out_looked(struct irc *i, struct outgoing *o, bool asked)
{
    struct irc_send *x = send_of(o);
    bool all = x->found_all > 0 && x->found == bits(x->found_all);
    /* All that left is there, and the rest is known not to have left. */
    bool rest = x->found_all > 0 && x->left > 0 && x->left < x->n_lines &&
                (x->found & bits(x->left)) == bits(x->left);

    if (rest && !all) {
        x->done = x->left;
        x->settled = true;
    }
    answer(x, asked ? BH_OK : BH_UNAVAILABLE, all ? ST_DONE : rest ? ST_REST : ST_MISSING);
}

static void looked(struct platform *p, struct outgoing *o, const struct http_result *res,
                   struct sender_verdict *v)
{
    if (res->status == ST_DONE)
        say_done(send_of(o), v);
    else if (res->status == ST_REST)
        sender_say(v, SENDER_REWRITE, "the rest has not left");
    else {
        sender_say(v, SENDER_REFUSED, "the history of the IRC server does not show it");
        v->wait_ms = LOOK_MS;
    }
}

const struct sender_ops irc_sender = {.write = write_part,
                                      .read = read_answer,
                                      .free = send_free,
                                      .wait = wait_ms,
                                      .transmit = transmit,
                                      .drop = drop,
                                      .look = look,
                                      .looked = looked};

/* ---- actions ---- */

static struct irc_send *send_new(struct irc *i, struct str target)
{
    struct irc_send *x = xcalloc(1, sizeof *x);

    x->i = i;
    x->target = str_dup(target);
    x->out.n_parts = 1;
    return x;
}

/* An id that bellhop made for a message without one says nothing to the server. */
static char *msgid_or_null(struct str id)
{
    return id.n > 0 && id.n <= IRC_MSGID_MAX && str_find(id, ' ') < 0 && !irc_in_made(id)
               ? str_dup(id)
               : NULL;
}

static void say(struct irc *i, struct action_id id, const struct action_from *from,
                const struct action *a, struct str target, struct str text)
{
    struct irc_send *x = send_new(i, target);

    x->text = str_dup(text);
    x->reply = msgid_or_null(a->reply_to);
    x->out.n_parts = irc_split(str_of(x->text), x->parts);
    sender_act(i->base.sender, &x->out,
               &(struct sender_order){.id = id, .from = from, .action = a, .twice = TWICE_IS_SEEN});
}

static void react(struct irc *i, struct action_id id, const struct action_from *from,
                  const struct action *a, struct str target)
{
    struct irc_send *x;

    if (a->emoji.n == 0 || a->emoji.n > 64 || a->message_id.n == 0 ||
        a->message_id.n > IRC_MSGID_MAX) {
        host_fail(i->base.host, id, "a reaction needs message_id and emoji");
        return;
    }
    char *msgid = msgid_or_null(a->message_id);
    if (msgid == NULL) {
        host_fail(i->base.host, id,
                  i->live && !irc_may_tag(i, STR("draft/react"))
                      ? NO_REACTIONS
                      : "this message has no id on the network, so nobody can react to it");
        return;
    }
    x = send_new(i, target);
    x->reply = msgid;
    x->emoji = str_dup(a->emoji);
    x->removes = a->remove;
    sender_act(i->base.sender, &x->out,
               &(struct sender_order){
                   .id = id, .from = from, .action = a, .apart = true, .twice = TWICE_IS_ONE});
}

/* A typing notice that cannot leave at once is late already. */
static void type(struct irc *i, struct action_id id, const struct action *a, struct str target)
{
    bool clears = a->content_set && a->content.n == 0;
    struct irc_chat *c = irc_chat_use(i, target);
    int64_t now = irc_now_ms(i);
    BUF_LOCAL line = BUF_INIT;
    bool soon = c->typed_ms != 0 && now - c->typed_ms < TYPING_MS;
    if (irc_may_tag(i, STR("typing")) && !soon) {
        buf_printf(&line, "@+typing=%s TAGMSG %s\r\n", clears ? "done" : "active", c->peer);
        if (irc_link_try(i->link, buf_str(&line)))
            c->typed_ms = now;
    }
    host_result(i->base.host, id, &(struct action_result){.success = true});
}

/* IRC has no files: a public address is sent instead. */
static void send_media(struct irc *i, struct action_id id, const struct action_from *from,
                       const struct action *a, struct str target)
{
    struct str url = a->file != NULL ? a->file->url : STR_NULL;
    BUF_LOCAL text = BUF_INIT;

    if (url.n == 0) {
        host_fail(i->base.host, id,
                  "IRC has no files, and this one has no public address: set `public_url`");
        return;
    }
    if (a->content.n > 0)
        buf_printf(&text, "%.*s\n", STR_FMT(a->content));
    buf_add_str(&text, url);
    say(i, id, from, a, target, buf_str(&text));
}

void irc_act(struct platform *p, struct action_id id, const struct action_from *from,
             const struct action *a)
{
    struct irc *i = irc_of(p);
    struct action numbered = *a;
    BUF_LOCAL room = BUF_INIT;
    struct str target;

    if (!irc_target_of(a->chat_id, str_of(i->network), &target))
        host_fail(p->host, id, "chat_id is not a channel or a nick of this network: #name@%s",
                  i->network);
    else if (a->op == ACTION_SEND)
        say(i, id, from, a, target, a->content);
    else if (a->op == ACTION_SEND_MEDIA)
        send_media(i, id, from, a, target);
    else if (a->op == ACTION_PROMPT) {
        if (prompts_add_numbered(p, id, from, &numbered, &room))
            say(i, id, from, &numbered, target, numbered.content);
    } else if (a->op == ACTION_REACT)
        react(i, id, from, a, target);
    else if (a->op == ACTION_TYPING)
        type(i, id, a, target);
    else if (a->op == ACTION_GET_CHAT_INFO)
        host_result(p->host, id,
                    &(struct action_result){.success = true,
                                            .chat_name = target,
                                            .chat_type =
                                                irc_is_nick(target) ? STR("dm") : STR("group")});
    else
        host_fail(p->host, id, "unsupported op: %.*s", STR_FMT(a->op_name));
}

void irc_out_tell(struct irc *i, struct str target, const char *text)
{
    BUF_LOCAL line = BUF_INIT;

    if (!i->live)
        return;
    buf_printf(&line, "PRIVMSG %.*s :%s\r\n", STR_FMT(target), text);
    irc_link_try(i->link, buf_str(&line));
}
