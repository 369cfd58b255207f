/* What an identity provider answers: the first byte says which kind of answer it is, the second its
 * status; the rest is the body, fetched by the real client from a real server. */
#include <stdio.h>
#include <stdlib.h>
#include "base/log.h"
#include "http/idp.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/loop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct loop *loop;
static struct http_server *server;
static struct http_client *client;
static char url[64];
static struct str body;
static int status;
static bool answered;

static void handler(void *ctx, struct http_req *r)
{
    (void)ctx;
    http_answer(server, http_req_id(r), &(struct http_answer){.status = status, .body = body});
}

static void set_up(void)
{
    char why[256];

    log_setup(LOG_ERROR, false);
    loop = loop_new();
    server = http_server_new(loop, &http_limits_default, handler, NULL);
    client = http_client_new(loop);
    if (http_server_listen(server, STR("127.0.0.1:0"), NULL, 0, why) != BH_OK)
        abort();
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", http_server_port(server));
}

static void on_answer(void *ctx, enum bh_err err, const struct idp_claims *claims, const char *why)
{
    bool *may_believe = ctx;

    answered = true;
    if (err == BH_OK && (!*may_believe || claims->tenant.n == 0 || !utf8_valid(claims->tenant)))
        abort();
    if (err != BH_OK && why == NULL)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int statuses[] = {200, 200, 200, 204, 401, 404, 500, 302};
    static char token[] = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJleHAiOjQwMDAwMDAwMDB9.c2ln";
    struct identity_settings cfg = {.jwks_url = url,
                                    .url = url,
                                    .issuer = (char *)"iss",
                                    .audience = (char *)"aud",
                                    .tenant_claim = (char *)"org.id",
                                    .tenant_field = (char *)"org.id"};
    struct idp *v;
    bool account;
    char why[256];

    if (size < 2)
        return 0;
    if (loop == NULL)
        set_up();
    account = data[0] & 1;
    status = statuses[data[1] % 8];
    body = str_make(data + 2, size - 2);
    cfg.kind = account ? (char *)"introspect" : (char *)"jwt";
    struct idp_env env = {.clock = loop_clock(loop), .http = client, .cfg = &cfg};
    if (idp_open(&env, &v, why) != BH_OK)
        abort();
    answered = false;
    idp_ask(v, IDP_CALLER, str_of(token), on_answer, &account);
    for (int i = 0; i < 2000 && !answered; i++)
        loop_turn(loop, 5);
    if (!answered)
        abort();
    idp_free(v);
    return 0;
}
