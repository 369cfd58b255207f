/* media_rig.h - a media on a real disk, and a web server with files on a real socket. */
#pragma once
#include "unit.h"
#include <dirent.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/rand.h"
#include "media/media.h"
#include "media/media_write.h"
#include "net/http_client.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "platform/platform.h"
#include "store/memory/memory.h"
#include "store/seal.h"

#define PNG "\x89PNG\r\n\x1a\n and so on"

struct media_rig {
    struct loop *loop;
    struct store *store;
    struct rand rand;
    struct seal *seal;
    struct http_client *http;
    struct http_server *server;
    struct media_settings settings;
    struct media *media;
    struct host_env env;
    char dir[64], key[96], why[256], base[64];
    int asked;              /* requests that came to the server */
    struct http_id held[8]; /* for /slow, which is not answered by itself */
    size_t n_held;
    bool written;
    char id[MEDIA_ID_CHARS + 1]; /* of the file that was written last */
};

static inline void rig_answer(void *ctx, struct http_req *req)
{
    struct media_rig *r = ctx;
    struct http_answer a = {.status = 200, .content_type = "image/png", .body = STR(PNG)};

    r->asked++;
    if (str_eq(http_path(req), STR("/slow"))) {
        r->held[r->n_held++] = http_req_id(req);
        return;
    }
    if (str_eq(http_path(req), STR("/gone")))
        a.status = 404;
    http_answer(r->server, http_req_id(req), &a);
}

/* What is held back, @n of them, comes now. */
static inline void rig_release(struct media_rig *r, size_t n)
{
    struct http_answer a = {.status = 200, .content_type = "image/png", .body = STR(PNG)};

    for (int i = 0; i < 5000 && r->n_held < n; i++)
        loop_turn(r->loop, 10);
    assert_int_equal(r->n_held, n);
    while (r->n_held > 0)
        http_answer(r->server, r->held[--r->n_held], &a);
}

static inline void rig_open(struct media_rig *r)
{
    strcpy(r->dir, "/tmp/test-host.XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->key, sizeof r->key, "%s.key", r->dir);
    r->loop = loop_new();
    r->store = store_memory_new(loop_clock(r->loop));
    r->rand = RAND_SYSTEM;
    r->settings = (struct media_settings){.tenant_bytes = 4 << 20,
                                          .all_bytes = 8 << 20,
                                          .ttl_ms = 3600000,
                                          .wait_ms = 60000,
                                          .allow_private = true};
    assert_int_equal(seal_open_for(r->store, STR_NULL, r->key, &r->seal, r->why), BH_OK);
    r->http = http_client_new(r->loop);
    r->server = http_server_new(r->loop, NULL, rig_answer, r);
    assert_int_equal(http_server_listen(r->server, STR("127.0.0.1:0"), NULL, 0, r->why), BH_OK);
    snprintf(r->base, sizeof r->base, "http://127.0.0.1:%d", http_server_port(r->server));
    struct media_env env = {.loop = r->loop,
                            .store = r->store,
                            .rand = &r->rand,
                            .seal = r->seal,
                            .http = r->http,
                            .settings = &r->settings,
                            .dir = r->dir};
    assert_int_equal(media_open(&env, &r->media, r->why), BH_OK);
    r->env = (struct host_env){.loop = r->loop,
                               .clock = loop_clock(r->loop),
                               .store = r->store,
                               .rand = &r->rand,
                               .http = r->http,
                               .server = r->server};
}

static inline void rig_close(struct media_rig *r)
{
    char cmd[200];

    media_close(r->media);
    http_client_free(r->http);
    http_server_free(r->server);
    store_close(r->store);
    seal_free(r->seal);
    loop_free(r->loop);
    snprintf(cmd, sizeof cmd, "rm -rf '%s' '%s'", r->dir, r->key);
    assert_int_equal(system(cmd), 0);
}

/* Turns the loop until *@n has become @want. */
static inline void rig_until(struct media_rig *r, const int *n, int want)
{
    for (int i = 0; i < 5000 && *n < want; i++)
        loop_turn(r->loop, 10);
    assert_int_equal(*n, want);
}

/* For what must not happen: it would by then. */
static inline void rig_rest(struct media_rig *r)
{
    for (int i = 0; i < 20; i++)
        loop_turn(r->loop, 5);
}
