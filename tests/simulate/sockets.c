/* sockets.c - what is between a gateway and the relay, and what the model is told of it.
 *
 * Nothing, if the gateway dialled the process that serves; one that is stopped finds out later what
 * was said, and that the gateway has gone.  Else there is an edge in between: edges.c. */
#include <assert.h>
#include <stdlib.h>
#include "core/event.h"
#include "core/frame.h"
#include "simulate/world_priv.h"

static struct sim_socket *socket_of(struct wire *l)
{
    return container_of(l, struct sim_socket, wire);
}

void socket_names(struct json event, struct model_names *ret)
{
    struct json_iter it = {0};
    ret->n = 0;
    while (ret->n < EVENT_MAX_PARTS && json_next(json_get(event, "message_ids"), &it))
        ret->names[ret->n++] = json_as_str(it.value);
    if (ret->n == 0)
        ret->names[ret->n++] = json_str(event, "message_id");
}

/* One line from the relay, at the moment it is written: what the model judges. */
static void on_line(struct sim_socket *s, struct str line)
{
    struct world *w = s->world;
    struct json doc;
    if (!json_parse(w->parser, line, &doc) || !json_is_object(doc)) {
        model_break(&w->model, "socket %u: not a JSON object on the wire", s->seen.number);
        return;
    }
    struct str type = json_str(doc, "type");
    if (str_eq(type, STR("inbound"))) {
        struct model_names names;
        socket_names(json_get(doc, "event"), &names);
        nodes_judge(w, "a message");
        if (!s->heard_hello)
            model_break(&w->model, "socket %u: inbound before its hello", s->seen.number);
        model_sent(&w->model, &s->seen, &names, json_str(doc, "bufferId"));
        w->result.bursts += names.n > 1;
        w->result.sends++;
        w->result.last_calls += s->seen.idle_order != 0;
    } else if (str_eq(type, STR("going_idle_ack"))) {
        nodes_judge(w, "going_idle_ack");
        if (!s->idle_sent)
            model_break(&w->model, "socket %u: going_idle_ack nobody asked for", s->seen.number);
        s->seen.idle_acked = true;
        model_idle_acked(&w->model, &s->seen);
        struct peer *p = &w->peers[s->seen.instance];
        /* A newer socket stays awake.  A holder that gave the name up may still be told that it
         * sleeps, as the relay closes its sockets in the next turn: the next holder is not. */
        p->asleep =
            p->receiver == s->seen.number && s->seen.holder == world_holder(w, s->seen.instance);
    } else if (str_eq(type, STR("outbound_result"))) {
        w->results++;
    }
}

void socket_judge(struct sim_socket *s, struct str message)
{
    assert(s->close_code == 0);
    struct str rest = message, line;
    while (str_split(&rest, '\n', &line))
        if (!str_is_empty(line))
            on_line(s, line);
    if (message.n == 0 || message.p[message.n - 1] != '\n')
        model_break(&s->world->model, "socket %u: a message without its newline", s->seen.number);
}

static void wire_send(struct wire *l, struct str message)
{
    struct sim_socket *s = socket_of(l);
    socket_judge(s, message);
    if (s->gone_code == 0)
        buf_add_str(&s->inbox, message);
    s->unread_messages++;
}
static struct buf *wire_send_begin(struct wire *l)
{
    buf_reset(&socket_of(l)->sending);
    return &socket_of(l)->sending;
}
static void wire_send_end(struct wire *l)
{
    wire_send(l, buf_str(&socket_of(l)->sending));
}
void socket_pinged(struct sim_socket *s, uint32_t number)
{
    if (s->n_pings == ARRAY_LEN(s->pings)) { /* the newest ones are what is answered */
        memmove(s->pings, s->pings + 1, sizeof s->pings - sizeof *s->pings);
        s->n_pings--;
    }
    s->pings[s->n_pings++] = number;
}
static void wire_ping(struct wire *l, uint32_t number)
{
    socket_pinged(socket_of(l), number);
}
void socket_judge_close(struct sim_socket *s, enum close_reason why)
{
    int code = contract_closes[why].code;
    world_say(s->world, "  relay closes socket %u: %d %s", s->seen.number, code,
              contract_closes[why].text);
    if (contract_closes[why].terminal && s->seen.holder == world_holder(s->world, s->seen.instance))
        model_break(&s->world->model, "socket %u: closed for good", s->seen.number);
    if (s->close_code == 0)
        s->close_code = code;
}
static void wire_close(struct wire *l, enum close_reason why)
{
    socket_judge_close(socket_of(l), why);
}
const struct wire_ops sim_wire_ops = {.send = wire_send,
                                      .send_begin = wire_send_begin,
                                      .send_end = wire_send_end,
                                      .ping = wire_ping,
                                      .close = wire_close};

void socket_free(struct sim_socket *s)
{
    buf_done(&s->sending);
    buf_done(&s->inbox);
    buf_done(&s->up);
    buf_done(&s->down);
    buf_done(&s->line);
    struct buf *more[] = {&s->orders, &s->said, &s->old_acks, &s->passed,
                          &s->past,   &s->rows, &s->row_ids,  &s->past_asked};
    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        buf_done(more[i]);
    kept_done(&s->kept);
    free(s);
}

/* ---- to the relay ---- */

/* One line, at the moment the relay hears it. */
static void on_heard(struct sim_socket *s, struct str line)
{
    struct world *w = s->world;
    struct peer *p = &w->peers[s->seen.instance];
    struct json doc;
    if (!json_parse(w->parser, line, &doc) || !json_is_object(doc))
        return;
    struct str type = json_str(doc, "type");
    if (str_eq(type, STR("hello"))) {
        s->heard_hello = true;
        p->asleep = false;
        p->receiver = s->seen.number;
    } else if (str_eq(type, STR("going_idle"))) {
        s->seen.idle_order = w->model.order;
        s->seen.idle_at = ++w->model.moment;
        s->idle_sent = true;
    } else if (str_eq(type, STR("inbound_ack")) && w->at == w->current) {
        struct model_event *ev =
            model_called(&w->model, s->seen.instance, json_str(doc, "bufferId"));
        if (ev != NULL)
            model_acked(&w->model, s->seen.instance, ev);
        p->has_acked = true;
    }
}

static void hear(struct sim_socket *s, struct str bytes)
{
    struct str line;
    nodes_enter(s->world, s->keeper);
    buf_add_str(&s->line, bytes);
    for (size_t used; s->close_code == 0; buf_consume(&s->line, used)) {
        struct str rest = buf_str(&s->line);
        const char *end = rest.n > 0 ? memchr(rest.p, '\n', rest.n) : NULL;
        if (end == NULL)
            break;
        used = (size_t)(end - rest.p) + 1;
        line = str_make(rest.p, used - 1);
        on_heard(s, line);
    }
    if (s->close_code == 0)
        session_data(s->session, bytes);
}

/* ---- behind an edge ---- */

/* The next line that the gateway said; absent: there is none. */
static struct str next_said(const struct sim_socket *g)
{
    const char *end = g->said.n > 0 ? memchr(g->said.p, '\n', g->said.n) : NULL;
    return end != NULL ? str_make(g->said.p, (size_t)(end - g->said.p) + 1) : STR_NULL;
}

void socket_heard(struct sim_socket *h, struct str lines)
{
    struct sim_socket *g = h->far;
    struct str rest = lines, line;
    while (g != NULL && str_split(&rest, '\n', &line) && line.n > 0) {
        struct str said = next_said(g);
        if (said.n != line.n + 1 || memcmp(said.p, line.p, line.n) != 0)
            model_break(&h->world->model, "socket %u: heard out of order: %.*s", h->seen.number,
                        line.n < 80 ? (int)line.n : 80, line.p);
        buf_consume(&g->said, said.n);
    }
    hear(h, lines);
}

void socket_heard_ack(struct sim_socket *h, struct str id)
{
    struct sim_socket *g = h->far;
    struct buf line = BUF_INIT;
    struct str said = g != NULL ? next_said(g) : STR_NULL, named;
    if (said.p != NULL && frame_is_ack(said, &named) && str_eq(named, id)) {
        buf_consume(&g->said, said.n);
        buf_add_str(&g->old_acks, id); /* held until it is on disk, and perhaps said again */
    } else if (g != NULL && !str_contains(buf_str(&g->old_acks), id)) {
        model_break(&h->world->model, "socket %u: the ack of %.*s was heard out of order",
                    h->seen.number, STR_FMT(id));
    }
    buf_printf(&line, "{\"type\": \"inbound_ack\", \"bufferId\": \"%.*s\"}", STR_FMT(id));
    on_heard(h, buf_str(&line));
    buf_done(&line);
}

void socket_presented(struct sim_socket *g)
{
    struct str line, id;
    for (; (line = next_said(g)).p != NULL; buf_consume(&g->said, line.n))
        if (frame_is_ack(line, &id))
            buf_add_str(&g->old_acks, id);
    buf_reset(&g->said);
    buf_add_str(&g->said, buf_str(&g->kept.line));
    buf_add_str(&g->said, buf_str(&g->up));
}

void socket_passes(struct sim_socket *g, struct str text)
{
    struct str rest = text, line;
    while (str_split(&rest, '\n', &line)) {
        struct str id = delivery_id_in(line);
        if (id.p == NULL)
            continue;
        if (str_contains(buf_str(&g->passed), id))
            model_break(&g->world->model, "socket %u: %.*s came down it twice", g->seen.number,
                        STR_FMT(id));
        buf_add_str(&g->passed, id);
    }
}

void socket_hear(struct sim_socket *s, struct str bytes)
{
    if (s->close_code != 0)
        return;
    if (s->link != NULL) {
        buf_add_str(&s->said, s->limbo ? STR_NULL : bytes);
        edges_hear(s, bytes);
        return;
    }
    if (s->up.n > 0 || (s->keeper != NULL && s->keeper->frozen))
        buf_add_str(&s->up, bytes);
    else
        hear(s, bytes);
}

static void hear_some(struct sim_socket *s, size_t n)
{
    struct buf some = BUF_INIT;
    buf_add_str(&some, str_make(buf_str(&s->up).p, n));
    buf_consume(&s->up, n);
    if (n > 0 && s->close_code == 0)
        hear(s, buf_str(&some));
    buf_done(&some);
}

/* ---- its end ---- */

/* The relay learns that the gateway has gone. */
static void tell_gone(struct world *w, struct sim_socket *s)
{
    nodes_enter(w, s->keeper);
    if (s->session != NULL)
        session_closed(s->session, s->gone_code);
    socket_free(s);
}

void socket_lose(struct world *w, struct sim_socket **slot, int code)
{
    struct sim_socket *s = *slot;
    world_say(w, "  socket %u of instance %u gone (%d)", s->seen.number, s->seen.instance, code);
    s->gone_code = code;
    *slot = NULL;
    if (s->link != NULL || s->limbo) {
        edges_lose(s, code);
        socket_free(s);
        return;
    }
    if (s->keeper == NULL || (!s->keeper->frozen && s->up.n == 0)) {
        tell_gone(w, s);
        return;
    }
    s->next = w->orphans;
    w->orphans = s;
}

static void move(struct world *w, struct sim_socket *s)
{
    if (s->link == NULL && !s->limbo && s->up.n > 0)
        hear_some(s, 1 + rand_below(&w->rand, s->up.n));
}

void sockets_move(struct world *w, struct sim_node *n)
{
    for (struct sim_socket **at = &w->orphans, *s; (s = *at) != NULL;) {
        if (s->keeper != n) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (world_chance(w, 50))
            hear_some(s, s->up.n); /* else the trunk was cut */
        tell_gone(w, s);
    }
    for (size_t i = 0; i < MODEL_INSTANCES; i++)
        for (size_t k = 0; k < PEER_SOCKETS; k++) {
            struct sim_socket *s = w->peers[i].sockets[k];
            if (s != NULL && s->keeper == n)
                move(w, s);
        }
}

static void cut_orphans(struct world *w, const struct sim_node *n)
{
    for (struct sim_socket **at = &w->orphans, *s; (s = *at) != NULL;) {
        if (s->keeper != n) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        socket_free(s);
    }
}

void sockets_cut(struct world *w, struct sim_node *n)
{
    cut_orphans(w, n);
    edges_ended(w, n);
    for (size_t i = 0; i < MODEL_INSTANCES; i++)
        for (size_t k = 0; k < PEER_SOCKETS; k++) {
            struct sim_socket **slot = &w->peers[i].sockets[k], *s = *slot;
            if (s == NULL || (s->via != n && (s->link != NULL || s->limbo || s->keeper != n)))
                continue;
            *slot = NULL;
            socket_free(s);
        }
}
