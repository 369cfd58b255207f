/* call.c - calls on their way.  (call.h has the contract.) */
#include "dispatch/call.h"
#include <stdlib.h>
#include "base/mem.h"
#include "dispatch/dispatch_priv.h"
#include "dispatch/receipt.h"
#include "dispatch/receipt_room.h"
#include "dispatch/substrate.h"

void *call_new(struct dispatch *d, size_t size, void (*free_fn)(struct dispatch_call *c),
               dispatch_cb *done, void *ctx)
{
    struct dispatch_call *c = xcalloc(1, size);

    *c = (struct dispatch_call){.d = d, .done = done, .ctx = ctx, .free = free_fn};
    list_append(&d->calls, &c->link);
    return c;
}

static void drop(struct dispatch_call *c)
{
    list_remove(&c->link);
    if (c->free != NULL)
        c->free(c);
    if (c->claim.n > 0)
        map_del(&c->d->claims, buf_str(&c->claim));
    buf_done(&c->claim);
    fault_done(&c->fault);
    buf_done(&c->json);
    free(c);
}

void call_end(struct dispatch_call *c)
{
    if (c->done != NULL) {
        struct dispatch_answer a = {.fault = c->fault, .json = buf_str(&c->json)};
        c->done(c->ctx, &a);
    }
    if (c->fault.cls != FAULT_NONE)
        c->d->n.failed++;
    drop(c);
}

void calls_on_timer(struct timer *t)
{
    struct dispatch *d = container_of(t, struct dispatch, endings);

    while (!list_is_empty(&d->ending))
        call_end(list_first(&d->ending, struct dispatch_call, link));
}

void call_end_later(struct dispatch_call *c)
{
    list_move(&c->link, &c->d->ending);
    if (!timer_is_set(&c->d->endings))
        timer_set(c->d->env.clock, &c->d->endings, 0);
}

void calls_free(struct dispatch *d)
{
    list_each (&d->calls, it, nxt)
        drop(list_entry(it, struct dispatch_call, link));
    list_each (&d->ending, at, after)
        drop(list_entry(at, struct dispatch_call, link));
}

void dispatch_cancel(struct dispatch_call **call)
{
    if (*call != NULL)
        (*call)->done = NULL;
    *call = NULL;
}

/* ---- whom ---- */

struct recipient *call_agent(struct dispatch_call *c, const struct dispatch_who *who,
                             struct str address, struct str *ret_session)
{
    struct recipient *a = agents_resolve(c->d->agents, who->caller.tenant, address, ret_session);

    if (a != NULL && (who->agent.p == NULL || str_eq(who->agent, str_of(a->id)))) {
        if (ret_session->n <= DISPATCH_ID_MAX && str_find(*ret_session, '\0') < 0)
            return a;
        fault_set(&c->fault, FAULT_INVALID,
                  "A session's name has at most 200 bytes, and none of them is NUL.");
        return NULL;
    }
    call_fail_unknown(c, address);
    return NULL;
}

bool call_claim(struct dispatch_call *c, const struct receipt_name *name)
{
    const struct str parts[] = {name->tenant, name->agent, name->word, name->id};

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_printf(&c->claim, "%zu:", parts[i].n);
        buf_add_str(&c->claim, parts[i]);
    }
    if (map_get(&c->d->claims, buf_str(&c->claim)) == NULL) {
        map_put(&c->d->claims, buf_str(&c->claim), c);
        return true;
    }
    buf_reset(&c->claim);
    fault_set(&c->fault, FAULT_BUSY, "The same is under way; ask again in a moment.");
    return false;
}

bool call_has_room(struct dispatch_call *c, struct str tenant)
{
    if (receipt_room_has(c->d->receipt_room, tenant))
        return true;
    fault_set(&c->fault, FAULT_BUSY,
              "There is no room for more receipts (limits.receipt_bytes): the oldest go within "
              "the hour.");
    return false;
}

/* ---- failures ---- */

static void fields(struct fault *f, struct str agent_id, const char *cause, int http_status)
{
    fault_field(f, "agent_id", agent_id);
    fault_field(f, "cause_kind", str_of(cause));
    if (http_status != 0)
        fault_field_i64(f, "http_status", http_status);
    else
        fault_field(f, "http_status", STR_NULL);
}

void call_fail_unknown(struct dispatch_call *c, struct str agent_id)
{
    fault_set(&c->fault, FAULT_DELIVERY_UNKNOWN, "There is no agent '%.*s' here.",
              STR_FMT(agent_id));
    fields(&c->fault, agent_id, "client_validation", 0);
}

void call_fail_errand(struct dispatch_call *c, struct str agent_id, const struct errand_end *e)
{
    static const char *const causes[] = {
        [CAUSE_NETWORK] = "network",
        [CAUSE_TIMEOUT] = "timeout",
        [CAUSE_HTTP_STATUS] = "http_status",
        [CAUSE_MALFORMED] = "malformed_response",
        [CAUSE_VALIDATION] = "client_validation",
    };

    fault_set(&c->fault, e->cause == CAUSE_TIMEOUT ? FAULT_DELIVERY_TIMEOUT : FAULT_DELIVERY_FAILED,
              "%.*s", STR_FMT(e->text));
    fields(&c->fault, agent_id, causes[e->cause],
           e->cause == CAUSE_HTTP_STATUS ? e->http_status : 0);
}

void call_fail_store(struct dispatch_call *c, enum bh_err err)
{
    if (err == BH_BUSY)
        fault_set(&c->fault, FAULT_BUSY, "The agent's mailbox is full or the store is behind.");
    else if (err == BH_REFUSED)
        fault_set(&c->fault, FAULT_TOO_LARGE, "It is too long for this agent.");
    else
        fault_set(&c->fault, FAULT_UNAVAILABLE, "The store cannot keep it now; nothing was done.");
}
