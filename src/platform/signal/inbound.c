/* inbound.c - takes what signal-cli received.  (signal_priv.h has the calls.)
 *
 *      a line in the file --> signal_notified() --> normalize --> host_accept()
 *                                                                     | safe
 *      the next line <-- child_taken(): the line leaves the file <----'
 *
 * signal-cli deletes its copy of a message once it has printed the message, and Signal's servers
 * have deleted theirs before.  So the line in the file (net/spool.h) is the only copy until the
 * relay has the event, and one line is taken at a time. */
#include <inttypes.h>
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "platform/signal/signal_priv.h"

enum { AGAIN_MS = 1000, MAX_RECEIPTS = 64, QUOTE_BYTES = 200 };

/* ---- receipts: the person sees that the message was read ---- */

struct signal_receipt {
    struct list link;
    struct signal_bot *s; /* borrowed */
    struct child_call *call;
};

static void receipt_free(struct signal_receipt *r)
{
    list_remove(&r->link);
    r->s->n_receipts--;
    free(r);
}

static void on_receipt(void *ctx, const struct child_answer *a)
{
    receipt_free(ctx); /* one that failed is not worth a second try */
}

static void send_receipt(struct signal_bot *s)
{
    BUF_LOCAL params = BUF_INIT;

    if (!s->live || s->n_receipts >= MAX_RECEIPTS)
        return;
    struct jw w = signal_params(s, &params);
    jw_kstr(&w, "recipient", s->taking.user_id);
    jw_karr(&w, "targetTimestamp");
    jw_i64(&w, s->out.timestamp);
    jw_end_arr(&w);
    jw_kstr(&w, "type", STR("read"));
    jw_end_obj(&w);
    struct signal_receipt *r = xcalloc(1, sizeof *r);
    r->s = s;
    list_append(&s->receipts, &r->link);
    s->n_receipts++;
    r->call =
        child_call(s->child, 0, "sendReceipt", buf_str(&params), SIGNAL_CALL_MS, on_receipt, r);
}

static void on_target(void *ctx, struct str tenant, struct str instance)
{
    *(bool *)ctx = true;
}

/* ---- one message ---- */

static void on_accepted(void *ctx, enum bh_err err)
{
    struct signal_bot *s = ctx;

    s->accepting = false;
    if (err == BH_BUSY || err == BH_UNAVAILABLE) {
        timer_set(s->base.env->clock, &s->again, AGAIN_MS);
        return;
    }
    if (err != BH_OK)
        log_warn(&s->base.log, "dropped a message: %s", bh_err_word(err));
    else if (s->wants_receipt)
        send_receipt(s);
    arena_reset(&s->arena);
    child_taken(s->child);
}

static void submit(struct signal_bot *s)
{
    struct webhook_delivery x = {.ev = &s->taking};

    x.prompt = prompts_answered(s->base.prompts, &s->taking, STR_NULL, &x.option);
    s->accepting = true;
    s->accept = webhook_delivery_accept(&s->base, &x, on_accepted, s);
}

void signal_again(struct timer *t)
{
    submit(container_of(t, struct signal_bot, again));
}

static void note(struct signal_bot *s, const struct event *ev)
{
    struct signal_chat *c = signal_chat(s, ev->chat_id);

    if (ev->chat_name.n > 0 && !str_eq(ev->chat_name, str_of(c->name))) {
        free(c->name);
        c->name = str_dup(ev->chat_name);
    }
    if (!ev->edit.set && !ev->reply_to.is_own)
        signal_said_add(s, ev->chat_id, ev->message_id, utf8_head(ev->text, QUOTE_BYTES));
    if (ev->edit.deletes) {
        struct signal_said *said = signal_said(s, ev->chat_id, ev->message_id);
        if (said != NULL)
            lru_drop(&s->said, said);
    }
}

static void begin(struct signal_bot *s)
{
    struct event *ev = &s->out.ev;
    bool heard = false;

    note(s, ev);
    event_copy(ev, &s->arena, &s->taking);
    if (s->cfg->read_receipts && !ev->edit.set && !s->out.own && signal_is_uuid(ev->user_id))
        host_each_target(s->base.host, ev, on_target, &heard);
    s->wants_receipt = heard;
    submit(s);
}

static void passed_over(struct signal_bot *s, enum signal_verdict v, struct json message)
{
    struct json error = json_get(message, "exception");

    if (v == SIGNAL_MALFORMED) {
        s->base.n.malformed++;
        log_warn(&s->base.log, "a message is not as signal-cli documents it, and is dropped");
        return;
    }
    s->base.n.ignored++;
    if (json_is_object(json_get(json_get(message, "envelope"), "syncMessage")))
        s->n.synced++;
    if (json_is_object(error)) {
        BUF_LOCAL type = BUF_INIT;
        buf_add_plain(&type, utf8_head(json_str(error, "type"), 80));
        s->n.undecrypted++;
        log_warn(&s->base.log, "a message could not be decrypted: %s", buf_z(&type));
    }
    if (v == SIGNAL_REFUSED)
        host_refused(s->base.host, &s->out.ev, s->out.why);
    else
        log_debug(&s->base.log, "ignored: %s", s->out.why);
}

bool signal_notified(void *ctx, struct str method, struct json params)
{
    struct signal_bot *s = ctx;
    struct json wrapped = json_get(params, "result"),
                message = json_is_object(wrapped) ? wrapped : params;
    const struct signal_in in = {.bot = str_of(s->base.bot),
                                 .self = str_of(s->self),
                                 .reactions = s->cfg->base.reactions};

    if (!str_eq(method, STR("receive")))
        return true;
    enum signal_verdict v = signal_normalize(message, &in, &s->arena, &s->out);
    if (s->out.self.n == SIGNAL_UUID)
        memcpy(s->self, s->out.self.p, SIGNAL_UUID);
    if (v == SIGNAL_EVENT && s->out.own && !s->out.ev.edit.set &&
        signal_said(s, s->out.ev.chat_id, s->out.ev.message_id) != NULL) {
        v = SIGNAL_IGNORED;
        s->out.why = "bellhop sent it";
    }
    if (v == SIGNAL_EVENT) {
        begin(s);
        return false;
    }
    passed_over(s, v, message);
    arena_reset(&s->arena);
    return true;
}

void signal_inbound_close(struct signal_bot *s)
{
    timer_stop(s->base.env->clock, &s->again);
    if (s->accepting)
        host_accept_cancel(s->base.host, s->accept);
    s->accepting = false;
    list_each (&s->receipts, it, nxt) {
        struct signal_receipt *r = list_entry(it, struct signal_receipt, link);
        child_cancel(&r->call);
        receipt_free(r);
    }
}
