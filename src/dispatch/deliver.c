/* deliver.c - deliver(): the address, the mailbox, the receipt.
 *
 *      payload --> mailbox --new--> row, key and receipt on disk, together --> answered
 *                         '--known--> when that one is on disk: its receipt, and a warning
 *
 * Where a crash, or a disk that fails, leaves a delivery without a receipt, whoever asks again gets
 * a new receipt for the old delivery. */
#include <stdlib.h>
#include "base/jw.h"
#include "base/mem.h"
#include "dispatch/call.h"
#include "dispatch/delivered.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/payload.h"
#include "dispatch/post.h"

struct delivering {
    struct dispatch_call call;
    struct accept_id accept;
    bool accepting, keeping; /* the row, the receipt are on their way to the disk */
    struct delivered_look *look;
    struct delivered_entry entry;
    char *tenant, *agent, *session; /* owned; session NULL: none */
    struct buf id;                  /* the dispatch_id: any bytes */
    const char *word;
    int64_t known_ms, at_ms;
};

static void delivering_free(struct dispatch_call *c)
{
    struct delivering *w = container_of(c, struct delivering, call);

    if (w->accepting)
        relay_accept_cancel(c->d->env.relay, w->accept);
    delivered_cancel(&w->look);
    delivered_forget(&w->entry);
    free(w->tenant);
    free(w->agent);
    buf_done(&w->id);
    free(w->session);
}

static struct receipt_name name_of(const struct delivering *w)
{
    return (struct receipt_name){.tenant = str_of(w->tenant),
                                 .agent = str_of(w->agent),
                                 .word = str_of(w->word),
                                 .id = buf_str(&w->id)};
}

/* {"delivered_at", "delivery_id", "session_id"?, "delivery_skipped"?, "warnings"?}. */
static void write_receipt(struct delivering *w, const char *waits)
{
    struct jw j = jw_begin(&w->call.json);

    jw_obj(&j);
    jw_ki64(&j, "delivered_at", w->at_ms);
    jw_kstr(&j, "delivery_id", buf_str(&w->id));
    jw_kstr_opt(&j, "session_id", str_of(w->session));
    if (waits != NULL) {
        jw_kbool(&j, "delivery_skipped", true);
        jw_key(&j, "warnings");
        jw_arr(&j);
        jw_str(&j, str_of(waits));
        jw_end_arr(&j);
    }
    jw_end_obj(&j);
}

/* Both are on disk, or cannot be. */
static void finish(struct delivering *w)
{
    if (w->accepting || w->keeping)
        return;
    if (w->call.fault.cls == FAULT_NONE)
        w->call.d->n.delivered++;
    call_end(&w->call);
}

static void on_kept(void *ctx, enum bh_err err)
{
    struct delivering *w = ctx;

    w->keeping = false;
    w->entry.done = NULL;
    if (err != BH_OK && w->call.fault.cls == FAULT_NONE)
        call_fail_store(&w->call, BH_UNAVAILABLE); /* asked again, it is known */
    finish(w);
}

static void keep_receipt(struct delivering *w, struct recipient *a)
{
    struct receipt_name name = name_of(w);

    write_receipt(w, a != NULL ? post_waits(a) : NULL);
    w->keeping = true;
    delivered_keep(w->call.d->delivered, &name, buf_str(&w->call.json), &w->entry, on_kept, w);
}

static void on_found(void *ctx, struct str json)
{
    struct delivering *w = ctx;
    struct dispatch *d = w->call.d;

    w->look = NULL;
    if (json.p == NULL) {
        keep_receipt(w, agents_find(d->agents, str_of(w->tenant), str_of(w->agent)));
        return;
    }
    d->n.repeated++;
    receipt_add_warning(d->json, json,
                        STR("this dispatch_id was delivered before: the first receipt is repeated"),
                        &w->call.json);
    call_end(&w->call);
}

static void on_accepted(void *ctx, enum bh_err err)
{
    struct delivering *w = ctx;
    struct receipt_name name = name_of(w);

    w->accepting = false;
    if (err == BH_OK && w->known_ms > 0) {
        w->look = delivered_find(w->call.d->delivered, &name, w->known_ms, on_found, w);
        return;
    }
    if (err != BH_OK && w->call.fault.cls == FAULT_NONE)
        call_fail_store(&w->call, err);
    finish(w);
}

static void begin(struct delivering *w, struct recipient *a, const struct payload *p)
{
    w->tenant = xstrdup(a->tenant);
    w->agent = xstrdup(a->id);
    buf_add_str(&w->id, p->dispatch_id);
    w->session = p->session.p != NULL ? str_dup(p->session) : NULL;
    w->word = payload_kind(p);
    w->at_ms = clock_wall_ms(w->call.d->env.clock);
    w->accepting = true;
    w->accept = post_payload(a, p, a->cfg->s.wake_on_deliver, &w->known_ms, on_accepted, w);
    if (w->known_ms == 0)
        keep_receipt(w, a);
}

struct dispatch_call *dispatch_deliver(struct dispatch *d, const struct dispatch_who *who,
                                       struct str address, struct json body, dispatch_cb *done,
                                       void *ctx)
{
    struct delivering *w = call_new(d, sizeof *w, delivering_free, done, ctx);
    struct str session, named = json_str(body, "agent_id");
    struct recipient *a = call_agent(&w->call, who, address, &session);
    struct payload p;

    if (a != NULL && named.p != NULL && !who->any_name && !str_eq(named, address) &&
        !str_eq(named, str_of(a->id))) {
        fault_set(&w->call.fault, FAULT_INVALID, "agent_id in the body names another agent.");
        a = NULL;
    }
    if (a != NULL && payload_read(body, address, &p, &w->call.fault) &&
        call_has_room(&w->call, str_of(a->tenant))) {
        if (p.session.p == NULL)
            p.session = session;
        begin(w, a, &p);
    } else {
        call_end_later(&w->call);
    }
    return &w->call;
}
