/* scale_seed.c - fills the database of a server that does not run, for scale.py.
 *
 *      scale_seed STATE_DIR GATEWAYS ROUTES LINKS CHATS MESSAGES
 *
 * Gateways, routes and links are added the way the server adds them; chats and waiting
 * messages are written as the relay writes them, for the first gateways, a thousand unless
 * told otherwise.  Every gateway is on one bot, ten to a tenant, which is the hardest shape
 * for the facts. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "base/observers.h"
#include "net/loop.h"
#include "store/sqlite/sqlite.h"
#include "tenancy/facts.h"
#include "tenancy/grants.h"

enum { AT_ONCE = 20000, FRAME_BYTES = 480, BOOT_SHIFT = 40 };
static size_t n_instances = 1000;

static struct loop *loop;
static struct store *store;
static struct facts *facts;
static struct rand rand_source = RAND_SYSTEM;
static size_t under_way;
static char frame[FRAME_BYTES];

static void die(const char *what, const char *why)
{
    fprintf(stderr, "scale_seed: %s: %s\n", what, why != NULL ? why : "");
    exit(1);
}

static void wait_for(size_t most)
{
    while (under_way > most)
        loop_turn(loop, 1000);
}

static void begin_one(void)
{
    wait_for(AT_ONCE);
    under_way++;
}

static void on_done(void *ctx, enum bh_err err, const char *why)
{
    (void)ctx;
    if (err != BH_OK)
        die("a change failed", why);
    under_way--;
}

static void on_put(void *ctx, enum bh_err err)
{
    on_done(ctx, err, bh_err_word(err));
}

struct names {
    char gateway[16], tenant[16];
};

static struct names names_of(size_t i)
{
    struct names n;

    snprintf(n.gateway, sizeof n.gateway, "g%07zu", i);
    snprintf(n.tenant, sizeof n.tenant, "t%06zu", i / 10);
    return n;
}

static void add_gateways(size_t n)
{
    struct buf id = BUF_INIT, secret = BUF_INIT;

    for (size_t i = 0; i < n; i++) {
        struct names at = names_of(i);
        struct gateway_spec spec = {.id = str_of(at.gateway),
                                    .tenant = str_of(at.tenant),
                                    .bots = &(struct gateway_for){STR("web"), STR("lobby"), true},
                                    .n_bots = 1};
        begin_one();
        buf_reset(&id);
        buf_reset(&secret);
        facts_gateway_add(facts, &spec, &id, &secret, on_done, NULL);
    }
    wait_for(0);
    buf_done(&id);
    buf_done(&secret);
}

static void add_routes(size_t n, size_t gateways)
{
    for (size_t i = 0; i < n; i++) {
        struct names at = names_of(i % gateways);
        char key[24];
        snprintf(key, sizeof key, "8%017zu", i);
        begin_one();
        struct route_spec spec = {.platform = STR("discord"),
                                  .key = str_of(key),
                                  .tenant = str_of(at.tenant),
                                  .instance = str_of(at.gateway)};
        facts_route_add(facts, &spec, on_done, NULL);
    }
    wait_for(0);
}

static void add_links(size_t n, size_t gateways)
{
    for (size_t i = 0; i < n; i++) {
        struct names at = names_of(i % gateways);
        struct grant_who who = {str_of(at.tenant), str_of(at.gateway)};
        char user[24];
        snprintf(user, sizeof user, "7%017zu", i);
        begin_one();
        grant_link(facts, who,
                   &(struct grant_person){STR("discord"), str_of(user), &STR("app1"), 1}, on_done,
                   NULL);
    }
    wait_for(0);
}

static void put(const char *ns, const char *key, const char *value)
{
    struct store_kv item = {KV_PUT, ns, str_of(key), str_of(value)};

    begin_one();
    store_put(store, &item, 1, false, on_put, NULL);
}

static void add_instances(void)
{
    for (size_t i = 0; i < n_instances; i++) {
        struct names at = names_of(i);
        char key[64], value[128];
        snprintf(key, sizeof key, "%s\x1f%s", at.tenant, at.gateway);
        snprintf(value, sizeof value,
                 "{\"box\":%zu,\"asleep\":true,\"asleepSince\":1800000000000,\"seen\":true}",
                 i + 1);
        put("instance", key, value);
    }
    wait_for(0);
}

static void add_chats(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct names at = names_of(i % n_instances);
        char key[96], value[192];
        snprintf(key, sizeof key,
                 "%s\x1f%s\x1f"
                 "discord\x1f"
                 "9%017zu",
                 at.tenant, at.gateway, i);
        snprintf(value, sizeof value,
                 "{\"bot\":\"hop\",\"scope\":\"8%017zu\",\"box\":%zu,\"keys\":\"%016" PRIx64
                 "\",\"basis\":{}}",
                 i / 20, i % n_instances + 1, (i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1);
        put("chat", key, value);
    }
    wait_for(0);
}

static void on_appended(struct store_op *op, enum bh_err err)
{
    on_put(NULL, err);
    free(container_of(op, struct store_append, op));
}

static void add_messages(size_t n)
{
    memset(frame, 'x', sizeof frame);
    memcpy(frame, "{\"type\":\"inbound\",\"text\":\"", 26);
    memcpy(frame + sizeof frame - 3, "\"}\n", 3);
    for (size_t i = 0; i < n; i++) {
        struct store_append *a = xcalloc(1, sizeof *a);
        *a = (struct store_append){.op = {.done = on_appended},
                                   .id = store->boot << BOOT_SHIFT | (i + 1),
                                   .box = (uint32_t)(i % n_instances + 1),
                                   .at_ms = clock_wall_ms(loop_clock(loop)),
                                   .frame = str_make(frame, sizeof frame)};
        begin_one();
        store_append(store, a, false);
    }
    wait_for(0);
}

static void open_all(const char *dir)
{
    char path[512], why[256];
    struct seal *seal;

    mkdir(dir, 0700);
    loop = loop_new();
    snprintf(path, sizeof path, "%s/bellhop.db", dir);
    if (store_sqlite_open(loop, path, &store, why) != BH_OK)
        die(path, why);
    snprintf(path, sizeof path, "%s/master.key", dir);
    if (seal_open_for(store, STR_NULL, path, &seal, why) != BH_OK)
        die(path, why);
    struct facts_env env = {.clock = loop_clock(loop),
                            .store = store,
                            .observers = observers_new(loop_clock(loop)),
                            .rand = &rand_source,
                            .seal = seal};
    if (facts_open(&env, &facts, why) != BH_OK)
        die("facts", why);
}

int main(int argc, char **argv)
{
    size_t n[5];

    if (argc != 7 && argc != 8)
        die("usage", "scale_seed STATE_DIR GATEWAYS ROUTES LINKS CHATS MESSAGES [INSTANCES]");
    for (int i = 0; i < 5; i++)
        n[i] = strtoul(argv[i + 2], NULL, 10);
    if (argc == 8)
        n_instances = strtoul(argv[7], NULL, 10);
    open_all(argv[1]);
    add_gateways(n[0]);
    if (n[1] > 0)
        add_routes(n[1], n[0]);
    if (n[2] > 0)
        add_links(n[2], n[0]);
    if (n[3] > 0 || n[4] > 0)
        add_instances();
    add_chats(n[3]);
    add_messages(n[4]);
    store_close(store);
    return 0; /* the rest goes with the process */
}
