/* Promises of http/idp.h that need nobody at the other end. */
#include "unit.h"
#include "base/clock.h"
#include "base/config.h"
#include "http/idp.h"
#include "net/http_client.h"
#include "net/loop.h"

static size_t answered[16];

static void on_answer(void *ctx, enum bh_err err, const struct idp_claims *claims, const char *why)
{
    answered[err]++;
}

/* The loop is not turned, so the account server stays silent. */
static void ask_with(const char *kind, size_t n)
{
    struct identity_settings cfg = {.kind = (char *)(uintptr_t)kind,
                                    .issuer = (char *)"iss",
                                    .audience = (char *)"aud",
                                    .jwks_url = (char *)"http://127.0.0.1:9/jwks",
                                    .url = (char *)"http://127.0.0.1:9/account",
                                    .tenant_claim = (char *)"tenant",
                                    .tenant_field = (char *)"tenant"};
    struct loop *loop = loop_new();
    struct idp_env env = {.clock = loop_clock(loop), .http = http_client_new(loop), .cfg = &cfg};
    struct idp *i;
    char why[256];

    memset(answered, 0, sizeof answered);
    assert_int_equal(idp_open(&env, &i, why), BH_OK);
    for (size_t k = 0; k < n; k++)
        idp_ask(i, IDP_CALLER, STR("aaaa.bbbb.cccc"), on_answer, NULL);
    assert_int_equal(answered[BH_UNAVAILABLE], 0); /* later, never inside the call */
    clock_turn(loop_clock(loop));
    idp_free(i);
    http_client_free(env.http);
    loop_free(loop);
}

static void only_so_many_wait_for_keys(void **state)
{
    ask_with("jwt", 1030);
    assert_int_equal(answered[BH_UNAVAILABLE], 6);
}

static void only_so_many_wait_for_the_account_server(void **state)
{
    ask_with("introspect", 1026);
    assert_int_equal(answered[BH_UNAVAILABLE], 2);
}

UNIT(http_test_idp)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_so_many_wait_for_keys),
        cmocka_unit_test(only_so_many_wait_for_the_account_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
