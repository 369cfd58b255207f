/* gateway_socket.c - GET /relay: authenticates a gateway, then opens a session over its WebSocket.
 *
 * The form of a refusal matters: a released gateway that once connected never retries after close
 * code 4401.  So only wrong credentials get 4401.  Faults of our own and temporary ones get an HTTP
 * status, which every gateway retries.
 *
 *      upgrade -> no client certificate   -> 403        (where tls.client_certs asks for one)
 *              -> draining, store trouble -> 503        (comes back by itself)
 *              -> unknown id, expired     -> 401
 *              -> a JWT not believed      -> 401        (503 while nobody can tell)
 *              -> none, wrong, revoked    -> 101, then close 4401
 *              -> good, but too many      -> 503
 *              -> good                    -> 101, session_open()
 *
 * A socket that another node holds outlives this process.  The next one is shown the socket, with
 * what went down it, and continues its session: gateway_present(). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/contract.h"
#include "core/token.h"
#include "http/front_priv.h"
#include "http/manage.h"
#include "http/idp.h"
#include "media/media.h"
#include "net/ws.h"
#include "relay/relay.h"
#include "store/store.h"
#include "tenancy/facts.h"

#define MAX_QUEUED \
    ((size_t)8 << 20) /* the window bounds deliveries; this bounds everything else \
                       */

struct dialled { /* a host name that gateways dialled; nearly all dial the same one */
    uint32_t refs;
    char base[]; /* scheme and host */
};

struct gateway_socket { /* kept small: ten thousand may be idle */
    struct wire wire;
    struct ws *ws;           /* lives until on_closed */
    struct session *session; /* ends in on_closed */
    struct front *front;     /* borrowed */
    struct dialled *dialled; /* shared; NULL: public_url is known */
    struct party *party;     /* rate limits of its credential, one reference; NULL: refused */
    struct party *tenant;    /* of its tenant, the same */
    size_t unfinished;       /* bytes of an incomplete message, counted for the party */
};

static struct gateway_socket *socket_of(struct wire *w)
{
    return container_of(w, struct gateway_socket, wire);
}

static void wire_send(struct wire *w, struct str message)
{
    ws_send(socket_of(w)->ws, message);
}

static struct buf *wire_send_begin(struct wire *w)
{
    return ws_send_begin(socket_of(w)->ws);
}

static void wire_send_end(struct wire *w)
{
    ws_send_end(socket_of(w)->ws);
}

static void wire_ping(struct wire *w, uint32_t number)
{
    ws_ping(socket_of(w)->ws, number);
}

static void wire_close(struct wire *w, enum close_reason why)
{
    ws_close(socket_of(w)->ws, contract_closes[why].code, contract_closes[why].text);
}

/* ---- a socket that another node holds ---- */

static void wire_sent(struct wire *w, uint64_t row, struct str id)
{
    ws_sent(socket_of(w)->ws, row, id);
}

static void wire_answered(struct wire *w, struct str request_id)
{
    ws_answered(socket_of(w)->ws, request_id);
}

static void wire_keep(struct wire *w, bool yes, uint64_t rank)
{
    struct gateway_socket *s = socket_of(w);
    const struct gateway *gw = facts_gateway(s->front->facts, party_name(s->party));
    char since[24], number[24];

    if (gw == NULL)
        return;
    snprintf(since, sizeof since, "%" PRId64, gw->created_ms);
    snprintf(number, sizeof number, "%" PRIu64, rank);
    ws_keep(s->ws, yes ? &(struct ws_name){str_of(gw->id), str_of(gw->tenant), str_of(gw->instance),
                                           str_of(since), str_of(number)}
                       : NULL);
}

static void wire_close_remote(struct wire *w, enum close_reason why)
{
    if (why == CLOSE_RESTARTING)
        ws_park(socket_of(w)->ws);
    else
        wire_close(w, why);
}

static void wire_media_url(struct wire *w, struct str id, bool sign, struct buf *out)
{
    struct gateway_socket *s = socket_of(w);
    const char *base = s->front->public_url != NULL ? s->front->public_url
                       : s->dialled != NULL         ? s->dialled->base
                       : s->front->base_url != NULL ? s->front->base_url
                                                    : "";

    media_url(s->front->media, str_of(base), id, sign, out);
}

static const struct wire_ops wire_ops = {
    .send = wire_send,
    .send_begin = wire_send_begin,
    .send_end = wire_send_end,
    .ping = wire_ping,
    .close = wire_close,
    .media_url = wire_media_url,
};
static const struct wire_ops remote_ops = {
    .send = wire_send,
    .send_begin = wire_send_begin,
    .send_end = wire_send_end,
    .ping = wire_ping,
    .close = wire_close_remote,
    .sent = wire_sent,
    .answered = wire_answered,
    .keep = wire_keep,
    .media_url = wire_media_url,
};

static void on_data(void *ctx, struct str bytes, bool end)
{
    struct gateway_socket *s = ctx;

    if (s->session == NULL)
        return;
    size_t unfinished = session_data(s->session, bytes);
    if (ledger_change(s->front->ledger, s->party, LIMIT_FRAME_BYTES, &s->unfinished, unfinished) !=
        LIMIT_TAKEN)
        wire_close(&s->wire, CLOSE_TRY_LATER);
}

static void on_ack(void *ctx, struct str buffer_id)
{
    struct gateway_socket *s = ctx;

    if (s->session != NULL)
        session_acked(s->session, buffer_id);
}

static void on_parted(void *ctx)
{
    struct gateway_socket *s = ctx;

    if (s->session != NULL)
        session_parted(s->session);
}

static void on_pong(void *ctx, uint32_t number)
{
    struct gateway_socket *s = ctx;

    if (s->session != NULL)
        session_pong(s->session, number);
}

static void socket_free(struct gateway_socket *s)
{
    struct dialled *d = s->dialled;

    if (d != NULL && --d->refs == 0) {
        if (s->front->dialled == d)
            s->front->dialled = NULL;
        free(d);
    }
    free(s);
}

/* ---- life ---- */

/* The parties that a socket counts for; a hold on each. */
struct socket_payers {
    struct party *credential, *tenant;
};

static void give_back(struct front *f, struct socket_payers by)
{
    ledger_give(f->ledger, by.credential, LIMIT_SOCKETS, 1);
    ledger_give(f->ledger, by.tenant, LIMIT_GATEWAY_SOCKETS, 1);
    party_drop(by.credential);
    party_drop(by.tenant);
}

/* Counts one more socket.  False: the credential or its tenant has too many. */
static bool take_socket(struct front *f, const struct gateway *gw, struct socket_payers *ret)
{
    struct socket_payers by = {ledger_party(f->ledger, PER_CREDENTIAL, str_of(gw->id)),
                               ledger_party(f->ledger, PER_TENANT, str_of(gw->tenant))};
    bool taken = ledger_take(f->ledger, by.credential, LIMIT_SOCKETS, 1) == LIMIT_TAKEN;

    *ret = by;
    if (taken && ledger_take(f->ledger, by.tenant, LIMIT_GATEWAY_SOCKETS, 1) == LIMIT_TAKEN)
        return true;
    if (taken)
        ledger_give(f->ledger, by.credential, LIMIT_SOCKETS, 1);
    party_drop(by.credential);
    party_drop(by.tenant);
    return false;
}

static void on_closed(void *ctx, int code)
{
    struct gateway_socket *s = ctx;

    if (s->session != NULL)
        session_closed(s->session, code);
    if (s->party != NULL) {
        (void)ledger_change(s->front->ledger, s->party, LIMIT_FRAME_BYTES, &s->unfinished, 0);
        give_back(s->front, (struct socket_payers){s->party, s->tenant});
    }
    socket_free(s);
}

static const struct ws_handlers handlers = {.max_message = CONTRACT_MAX_FRAME,
                                            .max_queued = MAX_QUEUED,
                                            .on_data = on_data,
                                            .on_pong = on_pong,
                                            .on_closed = on_closed,
                                            .on_ack = on_ack,
                                            .on_parted = on_parted};

static struct gateway_socket *socket_new(struct front *f)
{
    struct gateway_socket *s = xcalloc(1, sizeof *s);

    s->wire.ops = &wire_ops;
    s->front = f;
    return s;
}

/* NULL: the client disconnected meanwhile. */
static struct gateway_socket *accept_socket(struct front *f, const struct ws_offer *offer)
{
    struct gateway_socket *s = socket_new(f);

    if (f->public_url == NULL && offer->host[0] != '\0') {
        char base[sizeof offer->host + 16];
        int n = snprintf(base, sizeof base, "%s://%s", offer->tls ? "https" : "http", offer->host);
        if (f->dialled == NULL || strcmp(f->dialled->base, base) != 0) {
            f->dialled = xmalloc(sizeof *f->dialled + (size_t)n + 1);
            f->dialled->refs = 0;
            memcpy(f->dialled->base, base, (size_t)n + 1);
        }
        f->dialled->refs++;
        s->dialled = f->dialled;
    }
    s->ws = ws_accept_offer(f->server, offer, &handlers, s);
    if (s->ws == NULL) {
        socket_free(s);
        return NULL;
    }
    return s;
}

static bool can_serve(struct front *f, struct http_req *req)
{
    struct store_stats stats;

    if (http_lacks_client_cert(req)) {
        http_answer_error(f->server, http_req_id(req), 403, "client_certificate_required",
                          "Gateways must show a client certificate here.");
        return false;
    }
    if (front_is_draining(f, req))
        return false;
    f->store->ops->stats(f->store, &stats);
    if (!stats.healthy) {
        front_retry(f, req, "store_unavailable", "The store does not answer; come back later.");
        return false;
    }
    return true;
}

/* The socket counts for @by, whose holds are taken over. */
static void let_in(struct gateway_socket *s, struct socket_payers by)
{
    s->party = by.credential;
    s->tenant = by.tenant;
    if (ws_is_remote(s->ws))
        s->wire.ops = &remote_ops;
    ws_let_in(s->ws, by.credential, by.tenant);
}

static void open_session(struct front *f, const struct ws_offer *offer, const struct gateway *gw)
{
    struct socket_payers by;
    struct gateway_socket *s;

    if (!take_socket(f, gw, &by)) {
        front_retry_id(f, offer->id, "too_many_sockets",
                       "This credential, or its tenant, has too many sockets open "
                       "(limits.sockets_per_credential, limits.gateway_sockets_per_tenant).");
        return;
    }
    if ((s = accept_socket(f, offer)) == NULL) {
        give_back(f, by);
        return;
    }
    let_in(s, by);
    s->session = session_open(f->relay, gw, &s->wire);
    if (s->session == NULL)
        wire_close(&s->wire, CLOSE_TRY_LATER);
}

/* ---- a socket that outlived the process before this one ---- */

/* NULL: the gateway was revoked, or its id is another gateway's now. */
static const struct gateway *gateway_named(struct front *f, const struct ws_name *n)
{
    const struct gateway *gw = facts_gateway(f->facts, n->gateway);
    char since[24] = "";

    if (gw != NULL)
        snprintf(since, sizeof since, "%" PRId64, gw->created_ms);
    bool same = gw != NULL && gw->revoked_ms == 0 && str_eq(n->since, str_of(since)) &&
                str_eq(n->tenant, str_of(gw->tenant)) && str_eq(n->instance, str_of(gw->instance));
    return same ? gw : NULL;
}

static void resume(struct gateway_socket *s, const struct gateway *gw, const struct ws_past *p)
{
    struct session_row *rows = xcalloc(p->n_rows + 1, sizeof *rows);
    struct session_past past = {.personas = p->personas,
                                .rows = rows,
                                .n_rows = p->n_rows,
                                .asked = p->asked,
                                .n_asked = p->n_asked,
                                .acked = p->acked,
                                .late_acks = p->late_acks};

    for (size_t i = 0; i < p->n_rows; i++)
        rows[i] = (struct session_row){p->rows[i].row, p->rows[i].id};
    (void)str_to_u64(p->name.rank, &past.rank);
    s->session = session_resume(s->front->relay, gw, &s->wire, &past);
    free(rows);
    if (s->session == NULL)
        wire_close(&s->wire, CLOSE_TRY_LATER);
}

void gateway_present(void *front, const struct ws_past *past)
{
    struct front *f = front;
    const struct gateway *gw = gateway_named(f, &past->name);
    struct gateway_socket *s = socket_new(f);
    struct socket_payers by;

    s->ws = ws_resume(past, &handlers, s);
    if (gw == NULL) {
        wire_close(&s->wire, CLOSE_REVOKED);
        return;
    }
    if (!take_socket(f, gw, &by)) {
        wire_close(&s->wire, CLOSE_TRY_LATER);
        return;
    }
    let_in(s, by);
    resume(s, gw, past);
}

static void log_refusal(struct front *f, struct str peer, const char *how, const char *why)
{
    unsigned long long untold;

    if (front_may_log(f, &untold))
        log_warn(NULL, "gateway refused%s: peer=%.*s reason=%s more=%llu", how, STR_FMT(peer), why,
                 untold);
}

static void refuse_for_now(struct front *f, struct str peer, struct http_id id, const char *why)
{
    log_refusal(f, peer, " for now", why);
    http_answer_error(
        f->server, id, 401, "unauthorized",
        "This credential is not valid here: %s. `bellhop gateway rotate ID` prints a new "
        "secret, `bellhop gateway add` adds a gateway.",
        why);
}

/* ---- a token signed for an instance ---- */

struct signed_upgrade { /* an upgrade whose bearer is being verified */
    struct front *f;    /* borrowed */
    struct ws_offer offer;
    char *peer; /* owned */
};

static void on_verified(void *ctx, enum bh_err err, const struct idp_claims *claims,
                        const char *why)
{
    struct signed_upgrade *u = ctx;
    const struct gateway *gw = err == BH_OK ? gateway_of_claims(u->f, claims) : NULL;

    if (err == BH_UNAVAILABLE)
        front_retry_id(u->f, u->offer.id, "identity_unavailable", why);
    else if (gw == NULL)
        refuse_for_now(u->f, str_of(u->peer), u->offer.id,
                       err == BH_OK ? "no gateway has the instance that the token is for" : why);
    else
        open_session(u->f, &u->offer, gw);
    free(u->peer);
    free(u);
}

/* ---- the upgrade ---- */

void gateway_upgrade(struct front *f, struct http_req *req)
{
    struct str header = http_header(req, "Authorization"), bearer = token_of_header(header);
    const struct gateway *gw = NULL;
    const char *why = "";
    struct gateway_socket *s;
    struct ws_offer offer;

    if (!http_is_upgrade(req)) {
        http_answer(f->server, http_req_id(req),
                    &(struct http_answer){
                        .status = 426,
                        .headers = "Upgrade: websocket\r\n",
                        .body =
                            STR("{\"error\":\"This is the relay's WebSocket: a gateway dials it "
                                "with Upgrade: websocket. `bellhop gateway add` prints the "
                                "credential.\",\"code\":\"upgrade_required\"}")});
        return;
    }
    if (!can_serve(f, req) || !ws_offer(f->server, req, &offer))
        return;
    if (bearer_looks_signed(bearer)) {
        struct signed_upgrade *u = xcalloc(1, sizeof *u);
        *u = (struct signed_upgrade){.f = f, .offer = offer, .peer = str_dup(http_peer(req))};
        idp_ask(f->idp, IDP_INSTANCE, bearer, on_verified, u);
        return;
    }
    switch (facts_authenticate(f->facts, header, &gw, &why)) {
    case AUTH_OK:
        open_session(f, &offer, gw);
        break;
    case AUTH_UNAUTHORIZED:
        log_refusal(f, http_peer(req), "", why);
        s = accept_socket(f, &offer);
        if (s != NULL)
            wire_close(&s->wire, CLOSE_UNAUTHORIZED);
        break;
    case AUTH_RETRY:
        refuse_for_now(f, http_peer(req), offer.id, why);
        break;
    }
}
