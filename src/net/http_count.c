/* http_count.c - what a connection holds, counted for whoever is at its other end (base/limits.h).
 *
 *      accepted --> counts for its address: the connection, a request that is not whole, an answer
 *          |        that the socket does not take
 *          '--conn_let_in()--> counts for a credential: what its socket does not take
 *
 * A proxy speaks for many, and a Unix socket has no address: those count for all together only.
 * The admin socket is the operator's and is not counted.
 *
 * Fairness: in one turn of the loop an address, or the sockets of a tenant, have so many bytes read
 * and no more, whatever waits in the kernel; so what the others wait for is at most one turn in
 * which everybody has had its share.  64 KiB of the smallest frames are about a millisecond.  A
 * part of the share of an address is for those who ask something: files never use it up. */
#include "net/conn.h"

#include <sys/socket.h>

#include "base/limits.h"
#include "net/trunk_priv.h"

enum {
    ADDRESS_BYTES = 256 * 1024, /* of a turn, for an address */
    TENANT_BYTES = 64 * 1024,   /* the same for the sockets of a tenant: small frames cost more */
    TURN_BYTES = 512 * 1024,    /* of a turn, for all; then everybody gets little, once */
    OVER_BYTES = 4 * 1024,
};

/* Nobody waits for a stream's bytes with a full window: the kernel doubles this. */
enum { STREAM_KERNEL_BYTES = 16 * 1024 };

static struct ledger *ledger_of(const struct conn *c)
{
    return c->reserved ? NULL : c->server->ledger;
}

static struct party *party_of(struct http_server *s, const struct addr *a)
{
    if (a->n == 0 || http_peer_is_trusted(s, a))
        return NULL;
    return ledger_party(s->ledger, PER_ADDRESS, addr_party(a));
}

bool conn_count_in(struct listener *l, const struct addr *peer, struct party **ret_party)
{
    struct http_server *s = l->server;

    *ret_party = NULL;
    if (l->opt.reserved)
        return true;
    *ret_party = party_of(s, peer);
    if (ledger_take(s->ledger, *ret_party, LIMIT_CONNECTIONS, 1) == LIMIT_TAKEN)
        return true;
    party_drop(*ret_party);
    return false;
}

/* Its address, while it counts for that. */
static struct party *address_of(const struct conn *c)
{
    return c->let_in ? NULL : c->party;
}

static bool change(struct conn *c, struct party *p, enum limit what, uint32_t *held, size_t now)
{
    size_t bytes = *held;
    bool granted = ledger_change(ledger_of(c), p, what, &bytes, now) == LIMIT_TAKEN;

    *held = (uint32_t)bytes; /* a connection has far less than 4 GiB in memory */
    return granted;
}

/* The connection itself counts for @to (one hold, taken over) from now on. */
static bool move_to(struct conn *c, struct party *to)
{
    (void)change(c, c->party, LIMIT_REQUEST_BYTES, &c->in_counted, 0);
    (void)change(c, c->party, LIMIT_ANSWER_BYTES, &c->out_counted, 0);
    ledger_give(ledger_of(c), c->party, LIMIT_CONNECTIONS, 1);
    party_drop(c->party);
    c->party = to;
    if (ledger_take(ledger_of(c), to, LIMIT_CONNECTIONS, 1) == LIMIT_TAKEN)
        return true;
    party_drop(to);
    c->party = NULL;
    c->uncounted = true;
    return false;
}

bool conn_count_peer(struct conn *c)
{
    return c->reserved || move_to(c, party_of(c->server, &c->peer));
}

void conn_let_in(struct conn *c, struct party *credential, struct party *tenant)
{
    if (c->reserved || c->let_in || credential == NULL)
        return;
    (void)move_to(c, NULL);
    c->let_in = true;
    c->party = party_hold(credential);
    c->tenant = party_hold(tenant);
    if (c->carried != NULL)
        carried_told_in(c->carried);
}

void conn_uncount(struct conn *c)
{
    if (!c->reserved && !c->let_in && !c->uncounted)
        (void)move_to(c, NULL);
}

bool conn_count_request(struct conn *c)
{
    size_t now = c->in.cap + (c->req != NULL ? sizeof *c->req : 0);

    return now == c->in_counted || c->ws != NULL ||
           change(c, address_of(c), LIMIT_REQUEST_BYTES, &c->in_counted, now);
}

bool conn_count_answer(struct conn *c, size_t now)
{
    return now == c->out_counted ||
           change(c, c->party, c->let_in ? LIMIT_UNSENT_BYTES : LIMIT_ANSWER_BYTES, &c->out_counted,
                  now);
}

void conn_count_gone(struct conn *c)
{
    (void)change(c, address_of(c), LIMIT_REQUEST_BYTES, &c->in_counted, 0);
    (void)conn_count_answer(c, 0);
    if (!c->uncounted)
        ledger_give(ledger_of(c), address_of(c), LIMIT_CONNECTIONS, 1);
    party_drop(c->party);
    party_drop(c->tenant);
}

/* With whom it shares the turns of the loop. */
static struct party *sharer(const struct conn *c)
{
    return c->tenant != NULL ? c->tenant : address_of(c);
}

size_t conn_share(struct conn *c)
{
    struct http_server *s = c->server;
    uint64_t used = party_used(sharer(c), s->turn, 0);
    size_t most = c->ws != NULL ? READ_BYTES : HTTP_READ_BYTES;
    size_t share = c->tenant != NULL ? TENANT_BYTES : ADDRESS_BYTES;

    if (c->upload != NULL)
        share -= share / 4;
    size_t left = used < share ? share - (size_t)used : 0;
    if (s->turn_bytes >= TURN_BYTES)
        left = used == 0 ? OVER_BYTES : 0;
    return left < most ? left : most;
}

void conn_was_read(struct conn *c, size_t n)
{
    (void)party_used(sharer(c), c->server->turn, n);
    c->server->turn_bytes += n;
}

void conn_bound_kernel(struct conn *c)
{
    int n = STREAM_KERNEL_BYTES;

    setsockopt(c->io.fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof n);
}

/* ---- for those above ---- */

void http_server_count(struct http_server *s, struct ledger *ledger)
{
    s->ledger = ledger;
}

struct party *http_party(const struct http_req *r)
{
    struct addr a = http_req_addr(r);

    return a.n == 0 ? NULL : ledger_party(r->conn->server->ledger, PER_ADDRESS, addr_party(&a));
}
