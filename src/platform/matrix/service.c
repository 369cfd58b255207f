/* service.c - the application service: requests of the homeserver, and the users of instances.
 * (matrix_priv.h has the calls.)
 *
 *      PUT  /_matrix/app/v1/transactions/{txnId}   events --> inbound.c
 *      GET  /_matrix/app/v1/users/{userId}         is there such an instance? --> register
 *      GET  /_matrix/app/v1/rooms/{roomAlias}      no
 *      POST /_matrix/app/v1/ping                   yes
 *
 * Every request shows hs_token.  The paths are also served below /webhooks/matrix/<bot>, for an
 * operator whose proxy forwards that path only.
 *
 * Each instance may have a user of its own, "@desk_home.main:example.org", where the namespace
 * allows the name.  Its user is registered when somebody asks for it.  What is said to it, in a
 * private chat or by a mention, goes to its instance; the instance speaks as that user in rooms
 * where the user is. */
#include <stdio.h>
#include <stdlib.h>
#include "base/crypto.h"
#include "base/jw.h"
#include "base/mem.h"
#include "base/percent.h"
#include "core/token.h"
#include "platform/matrix/matrix_priv.h"

#define APP_PATH "/_matrix/app/v1/"
#define MAX_TXN 256

enum { PING_MS = 15000, BEAT_MS = 44500 };

/* ---- users ---- */

static bool in_namespace(const struct matrix *m, struct str user)
{
    char z[MX_ID_MAX + 1];
    regmatch_t at;

    if (!m->has_namespace || !mx_is_user(user))
        return false;
    memcpy(z, user.p, user.n);
    z[user.n] = '\0';
    return regexec(&m->namespace, z, 1, &at, 0) == 0 && at.rm_so == 0 &&
           str_eq(mx_server_of(user), m->server);
}

bool mx_is_ours(const struct matrix *m, struct str user)
{
    return str_eq(user, str_of(m->base.bot)) || in_namespace(m, user);
}

bool mx_is_neighbour(const struct matrix *m, struct str user)
{
    struct host *host = m->base.host;

    for (size_t i = 0; i < host_n_platforms(host); i++) {
        struct platform *p = host_nth_platform(host, i);
        if (p != &m->base && p->ops == &matrix_ops && mx_is_ours(matrix_of(p), user))
            return true;
    }
    return false;
}

bool mx_instance_of(const struct matrix *m, struct str user, struct buf *ret_tenant,
                    struct buf *ret_instance)
{
    return in_namespace(m, user) &&
           mx_virtual_read(user, str_of(m->base.bot), str_of(m->cfg->base.tenant), ret_tenant,
                           ret_instance);
}

/* ---- registering ---- */

struct registering {
    struct matrix *m;
    struct http_id http; /* of the homeserver's question */
    bool asked;          /* by the homeserver; else it is the bot itself */
    char user[MX_ID_MAX + 1];
    char name[MX_ID_MAX + 1];
};

static void answer(struct matrix *m, struct http_id id, int status, const char *code,
                   const char *error)
{
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    if (code != NULL) {
        jw_kstr(&w, "errcode", str_of(code));
        jw_kstr(&w, "error", str_of(error));
    }
    jw_end_obj(&w);
    http_answer(m->base.env->server, id,
                &(struct http_answer){.status = status, .body = buf_str(&body)});
}

static void set_name(struct matrix *m, const struct registering *x)
{
    BUF_LOCAL path = BUF_INIT, body = BUF_INIT;
    struct jw w = jw_begin(&body);

    buf_add_z(&path, MX_CLIENT "/profile/");
    percent_encode(&path, str_of(x->user));
    buf_add_z(&path, "/displayname");
    jw_obj(&w);
    jw_kstr(&w, "displayname", str_of(x->name));
    jw_end_obj(&w);
    mx_ask(m, "PUT", buf_str(&path), buf_str(&body), str_of(x->user), &(struct sender_question){0});
}

static void on_registered(void *ctx, const struct sender_verdict *v)
{
    const struct registering *x = ctx;
    struct matrix *m = x->m;
    bool there = v->end == SENDER_DONE || strstr(v->why, "M_USER_IN_USE") != NULL;

    if (!x->asked) { /* whatever the answer was: whoami tells what is wrong */
        mx_in_registered(m);
    } else if (there) {
        if (v->end == SENDER_DONE)
            set_name(m, x);
        answer(m, x->http, 200, NULL, NULL);
    } else {
        log_warn(&m->base.log, "user %s cannot be registered: %s", x->user, v->why);
        answer(m, x->http, 404, "M_NOT_FOUND", "This user cannot be registered.");
    }
}

static void register_user(struct registering *x)
{
    BUF_LOCAL body = BUF_INIT;
    struct jw w = jw_begin(&body);

    jw_obj(&w);
    jw_kstr(&w, "type", STR("m.login.application_service"));
    jw_kstr(&w, "username", mx_local_of(str_of(x->user)));
    jw_kbool(&w, "inhibit_login", true);
    jw_end_obj(&w);
    mx_ask(x->m, "POST", STR(MX_CLIENT "/register"), buf_str(&body), STR_NULL,
           &(struct sender_question){
               .patience_ms = 10000, .told = on_registered, .ctx = x, .owns_ctx = true});
}

void mx_register(struct matrix *m)
{
    struct registering *x = xcalloc(1, sizeof *x);

    x->m = m;
    snprintf(x->user, sizeof x->user, "%s", m->base.bot);
    register_user(x);
}

static void ask_user(struct matrix *m, struct http_id id, struct str user)
{
    BUF_LOCAL tenant = BUF_INIT, instance = BUF_INIT;

    if (!mx_instance_of(m, user, &tenant, &instance) ||
        !host_has_instance(m->base.host, buf_str(&tenant), buf_str(&instance))) {
        answer(m, id, 404, "M_NOT_FOUND", "There is no such user.");
        return;
    }
    struct registering *x = xcalloc(1, sizeof *x);
    x->m = m;
    x->http = id;
    x->asked = true;
    snprintf(x->user, sizeof x->user, "%.*s", STR_FMT(user));
    snprintf(x->name, sizeof x->name, "%.*s",
             (int)(instance.n < MX_ID_MAX ? instance.n : MX_ID_MAX), instance.p);
    register_user(x);
}

/* ---- does the homeserver reach us? ---- */

static void on_pinged(void *ctx, const struct sender_verdict *v)
{
    struct matrix *m = ctx;

    if (v->end == SENDER_REFUSED && v->status == 404) { /* a homeserver before version 1.7 */
        platform_beat(&m->base, 0, 0);
        return;
    }
    if (v->end == SENDER_DONE)
        platform_beat(&m->base, clock_wall_ms(m->base.env->clock), BEAT_MS);
    timer_set(m->base.env->clock, &m->ping, PING_MS);
}

static void on_ping(struct timer *t)
{
    struct matrix *m = container_of(t, struct matrix, ping);
    BUF_LOCAL path = BUF_INIT, id = BUF_INIT;

    buf_printf(&id, MX_SERVICE_ID "%.*s", STR_FMT(mx_local_of(str_of(m->base.bot))));
    buf_add_z(&path, "/_matrix/client/v1/appservice/");
    percent_encode(&path, buf_str(&id));
    buf_add_z(&path, "/ping");
    mx_ask(m, "POST", buf_str(&path), STR("{\"transaction_id\":\"bellhop\"}"), STR_NULL,
           &(struct sender_question){.patience_ms = 10000, .told = on_pinged, .ctx = m});
}

void mx_ping_start(struct matrix *m)
{
    timer_init(&m->ping, on_ping);
    timer_set(m->base.env->clock, &m->ping, 0);
}

void mx_ping_stop(struct matrix *m)
{
    timer_stop(m->base.env->clock, &m->ping);
}

/* ---- requests of the homeserver ---- */

/* The header; or the query, where old homeservers put it.  Both must match if both are there. */
static bool shows_token(const struct matrix *m, struct http_req *req)
{
    struct str header = http_header(req, "Authorization");
    BUF_SECRET query = BUF_INIT;
    bool has_query = http_query(req, "access_token", &query);

    if (header.p == NULL && !has_query)
        return false;
    return (header.p == NULL || webhook_shows(token_of_header(header), m->cfg->service.hs_token)) &&
           (!has_query || webhook_shows(buf_str(&query), m->cfg->service.hs_token));
}

bool mx_http(struct platform *p, struct http_req *req)
{
    struct matrix *m = matrix_of(p);
    struct http_id id = http_req_id(req);
    struct str path = http_path(req), method = http_method(req), what;
    BUF_LOCAL last = BUF_INIT;

    if (!mx_is_service(m) || !shows_token(m, req)) {
        p->n.refused++;
        return false;
    }
    if (str_starts(path, STR("/webhooks/")))
        for (unsigned i = 0; i < 4; i++) /* "", webhooks, matrix, the bot */
            str_split(&path, '/', &what);
    else
        path = str_skip(path, 1);
    if (!str_starts(path, str_skip(STR(APP_PATH), 1))) {
        answer(m, id, 404, "M_UNRECOGNIZED", "There is nothing at this path.");
        return true;
    }
    path = str_skip(path, sizeof APP_PATH - 2);
    str_split(&path, '/', &what);
    percent_decode(&last, path);
    const char *wants = str_eq(what, STR("transactions"))                          ? "PUT"
                        : str_eq(what, STR("ping"))                                ? "POST"
                        : str_eq(what, STR("users")) || str_eq(what, STR("rooms")) ? "GET"
                                                                                   : NULL;
    if (wants == NULL)
        answer(m, id, 404, "M_UNRECOGNIZED", "There is nothing at this path.");
    else if (!str_eq(method, str_of(wants)))
        answer(m, id, 405, "M_UNRECOGNIZED", "This path takes another method.");
    else if (str_eq(what, STR("ping")))
        answer(m, id, 200, NULL, NULL);
    else if (last.n == 0 || last.n > MAX_TXN || !utf8_valid(buf_str(&last)))
        answer(m, id, 400, "M_INVALID_PARAM", "The path lacks an id, or it is too long.");
    else if (str_eq(what, STR("transactions")))
        mx_take_transaction(m, req, buf_str(&last));
    else if (str_eq(what, STR("users")))
        ask_user(m, id, buf_str(&last));
    else
        answer(m, id, 404, "M_NOT_FOUND", "There is no such room.");
    return true;
}
