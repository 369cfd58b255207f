/* A database that was tampered with: one record, "namespace key value" with a NUL between them.
 *
 * Every form of the program reads the record: the form refuses it with a sentence, or what was read
 * is written and read again as the same bytes.  Then the record is in the store when the tables are
 * loaded.  They load, with or without it, or refuse with a sentence. */
#include <stdlib.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/observers.h"
#include "cli/forms.h"
#include "edge/vault.h"
#include "store/memory/memory.h"
#include "store/seal.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct clock *clk;
static struct seal *seal;
static struct store *store;
static struct observers *observers;
static struct rand rnd;

static struct str tenant_of(void *ctx, struct str id)
{
    (void)ctx, (void)id;
    return STR("acme");
}

static bool has_gateway(void *ctx, struct str tenant)
{
    (void)ctx, (void)tenant;
    return true;
}

static void turn(void)
{
    for (int i = 0; i < 8; i++)
        clock_turn(clk);
}

static void load_facts(void)
{
    struct facts_env env = {
        .clock = clk, .store = store, .observers = observers, .rand = &rnd, .seal = seal};
    struct facts *f = NULL;
    char why[256] = "";

    if (facts_open(&env, &f, why) == BH_OK) {
        turn();
        facts_free(f);
    } else if (why[0] == '\0') {
        abort();
    }
}

static void load_keys(void)
{
    struct keys_env env = {clk, store, &rnd, seal};
    struct keys *k = NULL;
    char why[256] = "";

    if (keys_open(&env, &k, why) == BH_OK) {
        turn();
        keys_free(k);
    } else if (why[0] == '\0') {
        abort();
    }
}

static void load_vault(void)
{
    struct vault_tenants tenants = {tenant_of, has_gateway, NULL};
    struct vault *v = NULL;
    char why[256] = "";

    if (vault_open(&(struct vault_env){clk, store, seal, observers, &tenants}, &v, why) == BH_OK) {
        turn();
        vault_free(v);
    } else if (why[0] == '\0') {
        abort();
    }
}

/* A store with the record in it, the tables over it, and away with both. */
static void load_with(const char *ns, struct str key, struct str value, void (*load)(void))
{
    struct store_kv item = {.ns = ns, .key = key, .value = value};

    store = store_memory_new(clk);
    observers = observers_new(clk);
    store_put(store, &item, 1, true, NULL, NULL);
    turn();
    load();
    store_close(store);
    observers_free(observers);
}

static void read_as(struct record_reader *r, const struct record_form *form, struct str key,
                    struct str value)
{
    struct buf k = BUF_INIT, v = BUF_INIT, again = BUF_INIT;
    void *thing = xcalloc(1, form->size), *second = xcalloc(1, form->size);

    if (record_read(r, form, key, value, thing)) {
        record_write(form, NULL, thing, &k, &v);
        record_done(form, thing);
        if (!record_read(r, form, buf_str(&k), buf_str(&v), second))
            abort();
        record_write(form, NULL, second, NULL, &again);
        if (!str_eq(buf_str(&v), buf_str(&again)))
            abort();
        record_done(form, second);
    } else if (record_why(r)[0] == '\0') {
        abort();
    }
    free(thing);
    free(second);
    buf_done(&k);
    buf_done(&v);
    buf_done(&again);
}

static void read_all(struct str key, struct str value)
{
    const struct record_form *forms[FORMS_MAX];
    static struct record_reader *sealed, *opens;
    void *thing;

    if (sealed == NULL) {
        sealed = record_reader_new(NULL);
        opens = record_reader_new(seal);
    }
    forms_list(forms);
    for (size_t i = 0; forms[i] != NULL; i++) {
        read_as(sealed, forms[i], key, value);
        thing = xcalloc(1, forms[i]->size);
        if (record_read(opens, forms[i], key, value, thing))
            record_done(forms[i], thing);
        free(thing);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const loads[])(void) = {load_facts, load_keys, load_vault};
    struct str rest = str_make(data, size), ns, key;
    char why[256];

    if (clk == NULL) {
        log_setup(LOG_ERROR, false);
        clk = clock_new();
        clock_set(clk, 1000, 1782000000000);
        rnd = rand_seeded(1);
        if (seal_open_master(
                STR("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
                STR("salt"), NULL, &seal, why) != BH_OK)
            abort();
    }
    if (!str_split(&rest, '\0', &ns) || !str_split(&rest, '\0', &key) || ns.n == 0 || ns.n > 64)
        return 0;
    read_all(key, rest);
    char *name = str_dup(ns);
    for (size_t i = 0; i < ARRAY_LEN(loads); i++)
        load_with(name, key, rest, loads[i]);
    free(name);
    return 0;
}
