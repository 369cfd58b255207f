/* answer.c - the text of one turn, shown while it grows.
 *
 *      text comes --FIRST_MS--> send --result--> edit every PACE_MS while the text grows --> final
 *      text is longer than a message: the message is completed, and the next one begins
 *      the platform cannot edit: nothing is shown before the end (typing meanwhile)
 *      the platform takes drafts: draft ... draft, then the final draft is the message; the
 *      connector cares for the pace and for texts that are too long
 *
 * One action is in flight at a time.  The final text is always the last action, and carries
 * `notify`.  If the message cannot be edited any more, the final text is a message of its own.  A
 * final draft that may have been delivered is not sent again. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "agent/agent_priv.h"
#include "base/jw.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "bellhop/gateway.h"

#define FIRST_MS 400 /* short answers are complete by then, and are sent once */
#define PACE_MS 1000
#define PACE_MAX_MS 16000
#define MAX_PROGRESS 200 /* bytes */
#define MAX_REOPEN 40    /* bytes of "```python" */
#define ROOM 50          /* of a message, kept for closing and opening a block of code */

enum way { BY_EDIT, BY_DRAFT, WHOLE };

struct agent_answer {
    struct agent_turn *turn;
    struct buf text;
    char *progress; /* owned; NULL: none */
    enum way way;
    size_t limit; /* of one message */
    bool counts_utf16;
    size_t from;       /* the current message begins here in the text */
    char *message_id;  /* owned; of the current message; NULL: not sent */
    char *shown;       /* owned; its content; NULL: none */
    char *reopen;      /* owned; the line that opens a block of code again; NULL: none */
    char *reopen_next; /* owned; the same for the message behind the one that is being completed */
    int64_t draft;     /* number of the current draft */
    bool edits;        /* the platform can edit */
    size_t sending;    /* bytes of the text that the action in flight completes; 0: none */
    size_t reached;    /* bytes of the text that were there when the last action was sent */
    bool in_flight, finishing, ending; /* ending: the action in flight is the last */
    bool paragraph;                    /* begin one with the next text */
    bool cut;
    int64_t pace_ms;
    struct timer pace;
};

static timer_cb on_pace;
static void step(struct agent_answer *x);

static struct message *message_of(const struct agent_answer *x)
{
    return list_entry(x->turn->messages.prev, struct message, link);
}

static struct agent *agent_of(const struct agent_answer *x)
{
    return x->turn->conversation->agent;
}

struct agent_answer *answer_new(struct agent_turn *t)
{
    struct agent_answer *x = xcalloc(1, sizeof *x);
    struct rand rand = RAND_SYSTEM;

    *x = (struct agent_answer){.turn = t, .way = WHOLE, .pace_ms = PACE_MS};
    x->text.limit = TURN_MAX_TEXT + 1024;
    timer_init(&x->pace, on_pace);
    x->draft = (int64_t)(rand_u64(&rand) >> 12) + 1;
    struct bhgw_descriptor *d = bhgw_descriptor_get(agent_of(x)->gw, message_of(x)->ev->platform);
    if (d != NULL) {
        x->limit = (size_t)d->max_message_length;
        x->counts_utf16 = d->counts_utf16;
        x->edits = d->supports_edit;
        bool drafts = false;
        for (size_t i = 0; i < d->n_supported_ops; i++)
            drafts |= strcmp(d->supported_ops[i], "draft") == 0;
        x->way = d->supports_draft_streaming && drafts ? BY_DRAFT
                 : d->supports_edit                    ? BY_EDIT
                                                       : WHOLE;
    }
    bhgw_descriptor_free(d);
    return x;
}

void answer_free(struct agent_answer *x)
{
    if (x == NULL)
        return;
    timer_stop(agent_of(x)->clock, &x->pace);
    buf_done(&x->text);
    free(x->progress);
    free(x->message_id);
    free(x->shown);
    free(x->reopen);
    free(x->reopen_next);
    free(x);
}

bool answer_is_said(const struct agent_answer *x)
{
    return str_trim(buf_str(&x->text)).n > 0;
}

bool answer_is_quiet(const struct agent_answer *x)
{
    return !x->in_flight;
}

/* ---- sending ---- */

static size_t length_of(const struct agent_answer *x, struct str s)
{
    return x->counts_utf16 ? utf16_units(s) : utf8_chars(s);
}

/* The bytes of @s that fit into one message, whole code points. */
static size_t fitting_bytes(const struct agent_answer *x, struct str s, size_t limit)
{
    size_t n = 0, used = 0;

    while (n < s.n) {
        size_t step = utf8_seq_bytes(str_skip(s, n));
        step = step > 0 ? step : 1;
        used += length_of(x, str_make(s.p + n, step));
        if (used > limit)
            break;
        n += step;
    }
    return n;
}

static size_t last_break(struct str s, struct str at)
{
    for (size_t n = s.n; n > s.n / 2 && n >= at.n; n--)
        if (memcmp(s.p + n - at.n, at.p, at.n) == 0)
            return n;
    return 0;
}

/* Where to end a message that is too long: after a paragraph, a line or a word in its second half,
 * else anywhere. */
static size_t break_of(const struct agent_answer *x, struct str s)
{
    struct str fits =
        str_make(s.p, fitting_bytes(x, s, x->limit > 2 * ROOM ? x->limit - ROOM : x->limit));
    size_t at = last_break(fits, STR("\n\n"));

    at = at > 0 ? at : last_break(fits, STR("\n"));
    at = at > 0 ? at : last_break(fits, STR(" "));
    return at > 0 ? at : fits.n;
}

static void on_sent(void *ctx, const struct said *r)
{
    struct agent_answer *x = ctx;

    if (r == NULL) /* the agent ends */
        return;
    bool complete = x->ending || x->sending > 0;
    x->in_flight = false;
    if (r->success && x->message_id == NULL && r->message_id != NULL)
        x->message_id = xstrdup(r->message_id);
    if (r->success && x->sending > 0) { /* the message is complete: the next one begins */
        x->from += x->sending;
        x->draft++;
        free(x->message_id);
        free(x->shown);
        free(x->reopen);
        x->reopen = x->reopen_next;
        x->message_id = x->shown = x->reopen_next = NULL;
    } else if (r->success && !x->ending && x->message_id == NULL && x->way == BY_EDIT) {
        x->way = WHOLE; /* a message without an id cannot be edited: the rest is a message */
        x->from = x->reached;
        free(x->shown);
        x->shown = NULL;
    } else if (!r->success && x->way == BY_DRAFT && x->ending && said_is_unknown(r)) {
        log_warn(NULL, "the end of an answer may not have been shown: %s", r->error);
    } else if (!r->success && x->way == BY_DRAFT) {
        x->way = x->edits ? BY_EDIT : WHOLE;
        x->ending = false;
    } else if (!r->success && complete && x->message_id != NULL) {
        free(x->message_id); /* it cannot be edited any more: the text is a message of its own */
        x->message_id = NULL;
        x->ending = false;
    } else if (!r->success && x->message_id == NULL && !x->ending) {
        x->way = WHOLE; /* try once more, at the end */
    } else if (!r->success) {
        x->pace_ms = x->pace_ms * 2 < PACE_MAX_MS ? x->pace_ms * 2 : PACE_MAX_MS;
    }
    x->sending = 0;
    step(x);
}

/* Shows @content.  @complete: that message changes no more.  @last: the answer is complete. */
static void show(struct agent_answer *x, struct str content, bool complete, bool last)
{
    BUF_LOCAL json = BUF_INIT;
    struct jw w = jw_begin(&json);
    bool edit = x->message_id != NULL, draft = x->way == BY_DRAFT;

    jw_obj(&w);
    jw_kstr(&w, "op", draft ? STR("draft") : edit ? STR("edit") : STR("send"));
    if (draft) {
        jw_ki64(&w, "draft_id", x->draft);
        jw_kbool(&w, "message", true); /* the final one is the message: no send follows */
        jw_kbool(&w, "final", complete);
    } else if (edit) {
        jw_kstr(&w, "message_id", str_of(x->message_id));
    }
    jw_kstr(&w, "content", content);
    jw_kbool(&w, "done", last);
    jw_end_obj(&w);
    free(x->shown);
    x->shown = str_dup(content);
    x->reached = x->text.n;
    x->in_flight = true;
    x->ending = last;
    timer_set(agent_of(x)->clock, &x->pace, x->pace_ms);
    conversation_order(x->turn->conversation, buf_str(&json), message_of(x), on_sent, x);
}

/* The opening line of the block of code that @s leaves open; absent: none.  Borrowed from @s. */
static struct str open_block(struct str s)
{
    struct str line, open = STR_NULL;

    while (str_split(&s, '\n', &line))
        if (str_starts(line, STR("```")))
            open = open.p == NULL ? line : STR_NULL;
    return open;
}

/* Completes a message that is full.  A block of code that is open there is closed, and opened again
 * in the next message. */
static void roll_over(struct agent_answer *x, struct str part)
{
    BUF_LOCAL content = BUF_INIT;

    x->sending = break_of(x, part);
    if (x->reopen != NULL)
        buf_printf(&content, "%s\n", x->reopen);
    buf_add_str(&content, str_make(part.p, x->sending));
    struct str open = open_block(buf_str(&content));
    char *reopen = str_dup_opt(str_make(open.p, open.n < MAX_REOPEN ? open.n : MAX_REOPEN));
    if (reopen != NULL)
        buf_add_z(&content, "\n```");
    free(x->reopen_next);
    x->reopen_next = reopen;
    show(x, str_trim(buf_str(&content)), true, false);
}

static void step(struct agent_answer *x)
{
    struct str part = str_skip(buf_str(&x->text), x->from);
    BUF_LOCAL content = BUF_INIT;

    if (x->in_flight)
        return;
    if (x->ending || (x->finishing && str_trim(part).n == 0 && x->shown == NULL)) {
        turn_shown(x->turn);
        return;
    }
    if (!x->finishing && (timer_is_set(&x->pace) || x->way == WHOLE))
        return;
    if (x->way == BY_EDIT && length_of(x, part) + (x->limit > 2 * ROOM ? ROOM : 0) > x->limit) {
        roll_over(x, part);
        return;
    }
    if (x->reopen != NULL && part.n > 0)
        buf_printf(&content, "%s\n", x->reopen);
    buf_add_str(&content, x->reopen != NULL ? part : str_trim(part));
    if (!x->finishing && x->progress != NULL)
        buf_printf(&content, "%s… %s", content.n > 0 ? "\n\n" : "", x->progress);
    if (!x->finishing && (content.n == 0 || length_of(x, buf_str(&content)) > x->limit ||
                          str_eq(buf_str(&content), str_of(x->shown))))
        return;
    if (str_trim(buf_str(&content)).n == 0) /* only progress was shown */
        buf_add_z(&content, "Done.");
    show(x, buf_str(&content), x->finishing, x->finishing);
}

static void on_pace(struct timer *t)
{
    step(container_of(t, struct agent_answer, pace));
}

/* ---- text ---- */

static void changed(struct agent_answer *x)
{
    if (!timer_is_set(&x->pace) && !x->in_flight)
        timer_set(agent_of(x)->clock, &x->pace, x->shown == NULL ? FIRST_MS : x->pace_ms);
}

void answer_text(struct agent_answer *x, struct str more)
{
    struct str said = buf_str(&x->text);

    if (x->finishing || x->cut || more.n == 0)
        return;
    bool spaced = more.p[0] == ' ' || more.p[0] == '\n'; /* the agent cares for itself */
    if (x->paragraph && !spaced && said.n > 0 && !str_ends(said, STR("\n\n")))
        buf_add_z(&x->text, str_ends(said, STR("\n")) ? "\n" : "\n\n");
    x->paragraph = false;
    if (x->text.n + more.n > TURN_MAX_TEXT) {
        x->cut = true;
        buf_add_z(&x->text, "\n\n[The answer is too long: the rest is left out.]");
        log_warn(NULL, "an answer is longer than %zu bytes: the rest is left out", TURN_MAX_TEXT);
    } else {
        buf_add_str(&x->text, more);
    }
    changed(x);
}

void answer_paragraph(struct agent_answer *x)
{
    x->paragraph = true;
}

void answer_progress(struct agent_answer *x, struct str line)
{
    BUF_LOCAL plain = BUF_INIT;

    buf_add_plain(&plain, line);
    free(x->progress);
    x->progress = NULL;
    if (plain.n > 0)
        x->progress = str_dup(utf8_head(buf_str(&plain), MAX_PROGRESS));
    changed(x);
}

void answer_finish(struct agent_answer *x)
{
    x->finishing = true;
    timer_set(agent_of(x)->clock, &x->pace, 0);
}
