/* wire.c - the wire of a session without a socket.  (wire.h has the contract.) */
#include "relay/wire.h"
#include "base/list.h"

static struct inner_wire *inner_of(struct wire *w)
{
    return container_of(w, struct inner_wire, wire);
}

static void on_timer(struct timer *t)
{
    struct inner_wire *w = container_of(t, struct inner_wire, turn);

    w->on_turn(w);
}

void inner_wire_wake(struct inner_wire *w)
{
    if (!timer_is_set(&w->turn))
        timer_set(w->clock, &w->turn, 0);
}

static void inner_send(struct wire *w, struct str message)
{
    buf_add_str(&inner_of(w)->got, message);
    inner_wire_wake(inner_of(w));
}

static struct buf *inner_send_begin(struct wire *w)
{
    return &inner_of(w)->got;
}

static void inner_send_end(struct wire *w)
{
    inner_wire_wake(inner_of(w));
}

static void inner_ping(struct wire *w, uint32_t number)
{
    /* No pong comes: these sessions have no ping timeout, or end before it. */
}

static void inner_close(struct wire *w, enum close_reason why)
{
    inner_of(w)->closed = true;
    inner_of(w)->why = why;
    inner_wire_wake(inner_of(w));
}

static void inner_mail(struct wire *w)
{
    inner_of(w)->mail = true;
    inner_wire_wake(inner_of(w));
}

static const struct wire_ops inner_ops = {
    .send = inner_send,
    .send_begin = inner_send_begin,
    .send_end = inner_send_end,
    .ping = inner_ping,
    .close = inner_close,
    .mail = inner_mail,
};

void inner_wire_init(struct inner_wire *w, struct clock *clock,
                     void (*on_turn)(struct inner_wire *w))
{
    *w = (struct inner_wire){.wire.ops = &inner_ops, .clock = clock, .on_turn = on_turn};
    timer_init(&w->turn, on_timer);
}

void inner_wire_done(struct inner_wire *w)
{
    timer_stop(w->clock, &w->turn);
    buf_done(&w->got);
}
