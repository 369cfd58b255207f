/* peers.c - the gateways, the wake listener and the platform of the simulated world.
 *
 * A gateway reads messages in order, acks in order, late, in heaps or never (its socket dies
 * first); it freezes (no reading, no pongs), goes idle and keeps its promise to close after the
 * ack, and may leave an old socket open and unread while it dials a new one, as the real client
 * does. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "simulate/world_priv.h"
#include "store/store.h"
#include "tenancy/facts.h"

static void say(struct sim_socket *s, const char *line)
{
    socket_hear(s, str_of(line));
}

void peer_connect(struct world *w, struct peer *p)
{
    size_t i = 0;
    while (i < PEER_SOCKETS && p->sockets[i] != NULL)
        i++;
    struct sim_node *via = NULL, *keeper = w->n_nodes > 0 ? nodes_dial(w, &via) : NULL;
    if (i == PEER_SOCKETS || (w->n_nodes > 0 && keeper == NULL))
        return;
    nodes_enter(w, keeper);
    const struct gateway *gw = facts_gateway(w->facts, str_of(p->id));
    if (w->drained || gw == NULL || gw->revoked_ms != 0)
        return;
    struct sim_socket *s = xcalloc(1, sizeof *s);
    s->wire.ops = &sim_wire_ops;
    s->world = w;
    s->keeper = keeper;
    s->via = via;
    s->seen = (struct model_socket){.number = ++w->socket_numbers,
                                    .instance = p->instance,
                                    .holder = world_holder(w, p->instance)};
    struct sim_link *link = via != keeper || via == NULL ? edges_link(w, via) : NULL;
    struct sim_socket *h = link != NULL ? edges_connect(s, link) : s; /* whom the relay knows */
    if (h != NULL)
        h->session = session_open(w->relay, gw, &h->wire);
    world_say(w, "  socket %u of instance %u opened%s", s->seen.number, p->instance,
              h != s ? " at an edge" : "");
    if (h == NULL || h->session == NULL) {
        if (h != NULL && h != s)
            edges_refused(h);
        socket_free(s);
        return;
    }
    p->sockets[i] = s;
    p->wants_sleep = false;
}

static struct sim_socket **some_socket(struct world *w, struct peer *p)
{
    struct sim_socket **open[PEER_SOCKETS];
    size_t n = 0;
    for (size_t i = 0; i < PEER_SOCKETS; i++)
        if (p->sockets[i] != NULL)
            open[n++] = &p->sockets[i];
    return n != 0 ? open[rand_below(&w->rand, n)] : NULL;
}

/* Read up to @lines of what waits, in order. */
static void socket_read(struct world *w, struct sim_socket *s, size_t lines)
{
    struct str rest = buf_str(&s->inbox), line;
    size_t used = 0;
    while (lines-- > 0 && used < s->inbox.n && s->n_acks < PEER_ACKS &&
           memchr(rest.p, '\n', rest.n) != NULL && str_split(&rest, '\n', &line)) {
        struct json doc;
        used += line.n + 1;
        if (!json_parse(w->parser, line, &doc))
            continue;
        struct str type = json_str(doc, "type");
        if (str_eq(type, STR("going_idle_ack")))
            s->idle_acked = true;
        struct model_names names;
        socket_names(json_get(doc, "event"), &names);
        struct model_event *ev = model_find(&w->model, names.names[0]);
        if (str_eq(type, STR("inbound")) && ev != NULL) {
            if (s->seen.holder == world_holder(w, s->seen.instance))
                model_received(&w->model, s->seen.instance, &names, json_str(doc, "bufferId"));
            s->acks[s->n_acks++] = (size_t)(ev - w->model.events);
        }
    }
    buf_consume(&s->inbox, used);
}

/* What it read first need not be what it has finished first. */
static void shuffle(struct world *w, struct sim_socket *s)
{
    for (size_t i = s->n_acks; i > 1; i--) {
        size_t k = rand_below(&w->rand, i), was = s->acks[k];
        s->acks[k] = s->acks[i - 1];
        s->acks[i - 1] = was;
    }
}

static void socket_ack(struct world *w, struct sim_socket *s, size_t n)
{
    struct buf out = BUF_INIT;
    char text[DELIVERY_ID_CHARS];
    if (n > s->n_acks)
        n = s->n_acks;
    for (size_t i = 0; i < n && s->close_code == 0; i++) {
        struct model_event *ev = &w->model.events[s->acks[i]];
        model_name(ev, s->seen.instance, text);
        buf_printf(&out, "{\"type\": \"inbound_ack\", \"bufferId\": \"%.*s\"}\n", (int)sizeof text,
                   text);
    }
    memmove(s->acks, s->acks + n, (s->n_acks - n) * sizeof *s->acks);
    s->n_acks -= n;
    if (s->close_code == 0 && out.n > 0) {
        size_t cut = world_chance(w, 20) ? rand_below(&w->rand, out.n) : 0;
        socket_hear(s, str_make(out.p, cut)); /* split anywhere: the wire is a stream */
        socket_hear(s, str_skip(buf_str(&out), cut));
    }
    buf_done(&out);
}

static void socket_pong(struct sim_socket *s)
{
    for (size_t i = 0; i < s->n_pings && s->link != NULL; i++)
        edges_pong(s, s->pings[i]);
    if (s->link == NULL && s->keeper != NULL && s->keeper->frozen)
        return;
    nodes_enter(s->world, s->link == NULL ? s->keeper : s->world->at);
    for (size_t i = 0; i < s->n_pings && s->close_code == 0 && s->link == NULL; i++)
        session_pong(s->session, s->pings[i]);
    s->n_pings = 0;
}

static void socket_hello(struct sim_socket *s)
{
    if (s->said_hello)
        return;
    s->said_hello = true;
    say(s, s->world->peers[s->seen.instance].late_acks
               ? "{\"type\": \"hello\", \"platform\": \"web\", \"botId\": \"lobby\", "
                 "\"late_acks\": true}\n"
               : "{\"type\": \"hello\", \"platform\": \"web\", \"botId\": \"lobby\"}\n");
}

static void socket_ask(struct world *w, struct sim_socket *s)
{
    char line[160];
    snprintf(line, sizeof line,
             "{\"type\":\"outbound\",\"requestId\":\"r%" PRIu64
             "\",\"action\":{\"op\":\"send\",\"chat_id\":\"c%u\",\"content\":\"x\"}}\n",
             ++w->requests, s->seen.instance);
    say(s, line);
}

static void socket_sleep(struct world *w, struct sim_socket **slot, struct peer *p)
{
    struct sim_socket *s = *slot;
    if (!s->idle_sent) {
        world_say(w, "  socket %u goes idle", s->seen.number);
        s->idle_sent = true;
        p->wants_sleep = true;
        w->result.sleeps++;
        say(s, "{\"type\": \"going_idle\"}\n");
    } else if (s->idle_acked) {
        socket_ack(w, s, PEER_ACKS); /* a clean leaver has acked what it read */
        socket_lose(w, slot, 1000);
    }
}

void peer_step(struct world *w, struct peer *p)
{
    struct sim_socket **slot = some_socket(w, p);
    if (slot == NULL || world_chance(w, 6)) {
        if (!p->wants_sleep || world_chance(w, 20))
            peer_connect(w, p);
        return;
    }
    struct sim_socket *s = *slot;
    if (s->close_code != 0)
        return;
    if (world_chance(w, 3))
        s->frozen = !s->frozen;
    if (s->frozen && !world_chance(w, 10))
        return;
    switch (rand_below(&w->rand, 10)) {
    case 0:
    case 1:
    case 2:
        socket_hello(s);
        socket_read(w, s, 1 + rand_below(&w->rand, 20));
        break;
    case 3:
    case 4:
    case 5:
        if (p->late_acks && !world_chance(w, 20))
            break;
        if (p->late_acks)
            shuffle(w, s);
        socket_ack(w, s, 1 + rand_below(&w->rand, 10));
        break;
    case 6:
        socket_pong(s);
        break;
    case 7:
        if (s->said_hello && p->has_acked)
            socket_ask(w, s);
        break;
    case 8:
        if (s->said_hello && (s->idle_sent || world_chance(w, 25)))
            socket_sleep(w, slot, p);
        break;
    default:
        if (world_chance(w, 20))
            socket_lose(w, slot, 1006);
        else if (world_chance(w, 5))
            say(s, "[1, 2]\n{\"type\":\"nonsense\"}\nnot json\n");
    }
}

void peers_finish_closes(struct world *w, bool all)
{
    for (size_t i = 0; i < MODEL_INSTANCES; i++)
        for (size_t k = 0; k < PEER_SOCKETS; k++) {
            struct sim_socket **slot = &w->peers[i].sockets[k];
            if (*slot != NULL && (*slot)->close_code != 0 && (all || world_chance(w, 50)))
                socket_lose(w, slot, (*slot)->close_code);
        }
}

/* In peace one healthy socket per instance reads and acks whatever comes. */
void peer_peace(struct world *w, struct peer *p)
{
    struct sim_socket *s = NULL;
    peers_finish_closes(w, true);
    for (size_t k = 0; k < PEER_SOCKETS; k++) {
        if (p->sockets[k] == NULL)
            continue;
        if (p->sockets[k]->idle_sent || p->sockets[k]->frozen || s != NULL)
            socket_lose(w, &p->sockets[k], 1006);
        else
            s = p->sockets[k];
    }
    if (s == NULL) {
        peer_connect(w, p);
        return;
    }
    socket_hello(s);
    socket_read(w, s, 1000);
    socket_ack(w, s, PEER_ACKS);
    if (s->close_code == 0)
        socket_pong(s);
}

void peers_lost(struct world *w)
{
    for (size_t i = 0; i < MODEL_INSTANCES; i++) {
        w->peers[i].has_acked = false;
        for (size_t k = 0; k < PEER_SOCKETS; k++)
            if (w->peers[i].sockets[k] != NULL) {
                w->peers[i].sockets[k]->session = NULL; /* died with its process */
                socket_free(w->peers[i].sockets[k]);
                w->peers[i].sockets[k] = NULL;
            }
    }
    edges_crashed(w);
    w->n_pokes = 0;
    w->n_actions = 0;
    w->n_wants = 0;
}

/* ---- the wake listener and the platform ---- */

static void on_poke(struct waker *p, const char *url, poke_done_cb *done, void *ctx)
{
    struct world *w = container_of(p, struct world, waker);
    unsigned i = (unsigned)(url[strlen(url) - 1] - '0');
    assert(i < MODEL_INSTANCES && w->n_pokes < ARRAY_LEN(w->pokes));
    world_say(w, "  poke instance %u", i);
    nodes_judge(w, "a poke");
    if (w->last_poke_ms[i] != 0 && w->now_ms - w->last_poke_ms[i] < w->limits.wake_cooldown_ms)
        model_break(&w->model, "instance %u: poked again after %" PRId64 " ms", i,
                    w->now_ms - w->last_poke_ms[i]);
    w->last_poke_ms[i] = w->now_ms;
    w->poke_skew_ms[i] = w->skew_ms;
    w->poked[i] = true;
    w->pokes[w->n_pokes++] = (struct pending_poke){done, ctx, w->at};
    w->result.pokes++;
    if (world_chance(w, 50))
        w->peers[i].wants_sleep = false;
}

static const struct outlet *on_find(struct outside *o, struct str platform, struct str bot)
{
    (void)bot;
    struct world *w = container_of(o, struct world, outside);
    return str_eq(platform, STR("web")) ? &w->outlet : NULL;
}
static void on_act(struct outside *o, const struct outlet *to, struct action_id id,
                   const struct action_from *from, const struct action *act)
{
    (void)to;
    (void)from;
    (void)act;
    struct world *w = container_of(o, struct world, outside);
    nodes_judge(w, "an action");
    if (w->n_actions < ARRAY_LEN(w->actions)) { /* others are never answered: they time out */
        w->actors[w->n_actions] = w->at;
        w->actions[w->n_actions++] = id;
    }
}
static void on_changed(struct outside *o, struct str tenant, struct str instance, const char *state)
{
    struct world *w = container_of(o, struct world, outside);
    world_say(w, "  %.*s/%.*s is %s", STR_FMT(tenant), STR_FMT(instance), state);
}

/* Files and words of before: they come, are lost, or never come. */
static void want(struct world *w, struct handle id, size_t file, bool context)
{
    nodes_judge(w, "a question to a platform");
    if (w->n_wants < ARRAY_LEN(w->wants) && !world_chance(w, 10))
        w->wants[w->n_wants++] = (struct pending_want){id, file, context, w->at};
}
static void on_fetch(struct outside *o, struct handle id, size_t file, const struct event *ev,
                     struct str tenant)
{
    (void)ev;
    (void)tenant;
    want(container_of(o, struct world, outside), id, file, false);
}
static void on_context(struct outside *o, struct handle id, const struct event *ev)
{
    (void)ev;
    want(container_of(o, struct world, outside), id, 0, true);
}
static int64_t on_wait_ms(struct outside *o)
{
    (void)o;
    return 20000;
}

void peers_init(struct world *w)
{
    static const char *const ids[MODEL_INSTANCES] = {"gw-0", "gw-1", "gw-2"};
    for (unsigned i = 0; i < MODEL_INSTANCES; i++)
        w->peers[i] = (struct peer){.id = ids[i], .instance = i};
    w->waker.poke = on_poke;
    w->outside = (struct outside){.find = on_find, .act = on_act, .changed = on_changed};
    if (!w->waits)
        return;
    w->outside.fetch = on_fetch;
    w->outside.context = on_context;
    w->outside.wait_ms = on_wait_ms;
}
