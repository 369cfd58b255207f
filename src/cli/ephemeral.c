/* ephemeral.c - see ephemeral.h. */
#include "cli/ephemeral.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/file.h"
#include "base/jw.h"
#include "base/mem.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "testbots/testbots.h"
#include "http/idp.h"
#include "net/loop.h"
#include "tenancy/facts.h"
#include "tenancy/keys.h"

#define TENANT STR("test")
#define INSTANCE STR("agent")
#define GATEWAY STR("gateway")
#define ROOM ((uint64_t)256 << 20) /* in memory, else the directory is with the temporary files */
enum { TURN_MS = 100, TURNS = 150 };

/* ---- the directory ---- */

static const char *base_dir(void)
{
    const char *tmp = getenv("TMPDIR");
    struct statvfs fs;

    if (access("/dev/shm", W_OK | X_OK) == 0 && statvfs("/dev/shm", &fs) == 0 &&
        (uint64_t)fs.f_bavail * fs.f_frsize >= ROOM)
        return "/dev/shm";
    return tmp != NULL && *tmp == '/' ? tmp : "/tmp";
}

/* Waits until the server has gone and with it the other end of @leash.  Holds nothing of the server
 * open, so that whoever reads the server's output sees it end. */
static void clean_up_after(int leash, const char *dir)
{
    char c;
    int null = open("/dev/null", O_RDWR);

    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    dup2(leash, 3);
    close_range(4, ~0u, 0);
    while (read(3, &c, 1) < 0 && errno == EINTR)
        ;
    state_dir_remove(dir);
    _exit(0);
}

static bool start_janitor(struct ephemeral *e, char *ret_why)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return bh_why(ret_why, "no pipe: %s", strerror(errno));
    e->janitor = fork();
    if (e->janitor == 0)
        clean_up_after(ends[0], e->dir);
    close(ends[0]);
    e->leash = ends[1];
    return e->janitor > 0 || bh_why(ret_why, "no process: %s", strerror(errno));
}

static bool write_config(struct ephemeral *e, char *ret_why)
{
    struct buf text = BUF_INIT;

    settings_drop_environment();
    buf_printf(&text,
               "listen: 127.0.0.1:0\n"
               "state_dir: %s\n"
               "platforms: []\n"
               "wake: {allow_private: true}\n"
               "media: {allow_private: true}\n"
               "dispatch: {allow_private: true}\n"
               "log: {level: warn}\n",
               e->dir);
    e->config = state_dir_path(e->dir, "bellhop.yaml");
    bool ok = file_put(e->config, O_EXCL, buf_str(&text));
    buf_done(&text);
    return ok || bh_why(ret_why, "%.180s: %s", e->config, strerror(errno));
}

bool ephemeral_begin(struct ephemeral *e, char *ret_why)
{
    struct buf dir = BUF_INIT;

    *e = (struct ephemeral){.leash = -1};
    buf_printf(&dir, "%s/bellhop-XXXXXX", base_dir());
    e->dir = buf_take(&dir);
    if (mkdtemp(e->dir) == NULL)
        return bh_why(ret_why, "%.180s: %s", e->dir, strerror(errno));
    if (start_janitor(e, ret_why) && write_config(e, ret_why))
        return true;
    ephemeral_end(e);
    return false;
}

void ephemeral_end(struct ephemeral *e)
{
    if (e->leash >= 0)
        close(e->leash);
    if (e->janitor > 0)
        while (waitpid(e->janitor, NULL, 0) < 0 && errno == EINTR)
            ;
    free(e->dir);
    free(e->config);
    *e = (struct ephemeral){.leash = -1};
}

/* ---- what a test needs ---- */

struct making { /* changes of facts and keys that are not on disk yet */
    int n;
    enum bh_err err;
    char *why; /* borrowed; 256 bytes */
};

static void on_made(void *ctx, enum bh_err err, const char *why)
{
    struct making *m = ctx;

    m->n--;
    if (err != BH_OK && m->err == BH_OK)
        m->err = bh_err_why(err, m->why, "%s", why);
}

static void print_line(const struct ephemeral *e, const struct server *s, struct str secret,
                       struct str key)
{
    struct buf line = BUF_INIT;
    struct jw w = jw_begin(&line);
    char *control = state_dir_path(e->dir, "admin.sock");

    jw_obj(&w);
    jw_kstr(&w, "url", str_of(s->front.base_url));
    jw_kstr(&w, "control", str_of(control));
    jw_kstr(&w, "tenant", TENANT);
    jw_kstr(&w, "instance", INSTANCE);
    jw_kstr(&w, "gateway_id", GATEWAY);
    jw_kstr(&w, "secret", secret);
    jw_kstr(&w, "key", key);
    jw_end_obj(&w);
    printf("%s\n", buf_z(&line));
    fflush(stdout);
    free(control);
    buf_wipe(&line);
}

enum bh_err ephemeral_ready(const struct ephemeral *e, struct server *s, char *ret_why)
{
    struct front *f = &s->front;
    struct buf id = BUF_INIT, secret = BUF_INIT;
    struct key_made key = {0};
    struct making m = {.n = 2, .why = ret_why};

    f->testbots = testbots_new(f->host, f->facts, TENANT, INSTANCE, ret_why);
    if (f->testbots == NULL)
        return BH_REFUSED;
    struct gateway_for bot = {.open = true};
    testbots_default(f->testbots, &bot.platform, &bot.bot);
    struct gateway_spec spec = {
        .id = GATEWAY, .tenant = TENANT, .instance = INSTANCE, .bots = &bot, .n_bots = 1};
    facts_gateway_add(f->facts, &spec, &id, &secret, on_made, &m);
    struct key_spec of_key = {.kind = KEY_AGENT, .tenant = TENANT, .instance = INSTANCE};
    keys_make(f->keys, &of_key, &key, on_made, &m);
    for (int i = 0; i < TURNS && m.n > 0; i++)
        loop_turn(f->loop, TURN_MS);
    if (m.n > 0 && m.err == BH_OK)
        m.err = bh_err_why(BH_UNAVAILABLE, ret_why, "the store does not answer");
    idp_admit_agents(f->idp); /* so that the key of the line is all that a gateway needs */
    if (m.err == BH_OK)
        print_line(e, s, buf_str(&secret), buf_str(&key.text));
    buf_done(&id);
    buf_wipe(&secret);
    key_made_done(&key);
    return m.err;
}
