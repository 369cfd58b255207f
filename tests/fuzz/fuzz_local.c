/* Enrollment and provision tokens, which are signed with the master key: nothing that this server
 * did not mint is believed, and what it mints it reads. */
#include <stdlib.h>
#include "base/clock.h"
#include "base/crypto.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/observers.h"
#include "store/memory/memory.h"
#include "store/seal.h"
#include "tenancy/enroll.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct facts *facts;
static struct json_parser *parser;

static void set_up(void)
{
    static struct rand rnd;
    static struct seal *seal;
    struct clock *clk = clock_new();
    char why[256];

    log_setup(LOG_ERROR, false);
    clock_set(clk, 1000, 1782000000000);
    rnd = rand_seeded(1);
    parser = json_parser_new();
    if (seal_open_master(STR("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
                         STR("salt"), NULL, &seal, why) != BH_OK)
        abort();
    struct facts_env env = {.clock = clk,
                            .store = store_memory_new(clk),
                            .observers = observers_new(clk),
                            .rand = &rnd,
                            .seal = seal};
    if (facts_open(&env, &facts, why) != BH_OK)
        abort();
}

static void try_token(struct str text)
{
    struct local_token t;
    const char *why = NULL;

    for (int kind = TOKEN_ENROLL; kind <= TOKEN_PROVISION; kind++)
        if (local_token_read(facts, text, (enum local_token_kind)kind, parser, &t, &why))
            abort();
    if (why == NULL)
        abort();
}

/* A token whose texts are the fuzzer's comes back as it went in, if it can be minted at all. */
static void mint_with(struct str text)
{
    struct local_token made = {.kind = TOKEN_ENROLL, .exp_ms = 1782000100000}, got;
    struct buf out = BUF_INIT;
    const char *why;

    made.tenant = text;
    if (!utf8_valid(text) || text.n == 0 || text.n > 1000)
        return;
    local_token_mint(facts, &made, &out);
    if (!local_token_read(facts, buf_str(&out), TOKEN_ENROLL, parser, &got, &why) ||
        !str_eq(got.tenant, text))
        abort();
    out.p[out.n / 2] ^= 1;
    try_token(buf_str(&out));
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_make(data, size);
    struct buf encoded = BUF_INIT;

    if (facts == NULL)
        set_up();
    try_token(text);
    base64url_add(&encoded, data, size);
    try_token(buf_str(&encoded));
    mint_with(text);
    buf_done(&encoded);
    return 0;
}
