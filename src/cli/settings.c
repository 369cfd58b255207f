/* settings.c - the schema of the configuration, and the state directory.  (settings.h has the
 * contract.) */
#include "cli/settings.h"
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/confinement.h"
#include "cli/cluster_dirs.h"
#include "cluster/node.h"
#include "data/data.h"
#include "dispatch/dispatch.h"
#include "edge/door.h"
#include "http/front.h"
#include "http/idp.h"
#include "http/v1.h"
#include "http/waker.h"
#include "media/media.h"
#include "net/http_server.h"
#include "net/http_tls.h"
#include "platform/platform.h"
#include "relay/in/allowance.h"
#include "relay/relay.h"
#include "skills/skills.h"
#include "store/journal_disk.h"
#include "store/store.h"
#include "tenancy/facts.h"
#include "tenancy/pairing.h"

#define AT(member) offsetof(struct settings, member)

static const struct config_key keys[] = {
    {"listen", CFG_TEXT, CFG_RESTART, AT(listen), "127.0.0.1:7077",
     .what =
         "Where to listen: `address:port`, `[v6]:port` or `unix:/path`. Port 0 takes a free one."},
    {"public_url", CFG_TEXT, CFG_RESTART, AT(public_url),
     .what = "The URL under which gateways and platforms reach this listener, when it stands "
             "behind a proxy."},
    {"state_dir", CFG_TEXT, CFG_RESTART, AT(state_dir), "./bellhop-data",
     .what = "The directory of the database, the admin socket and the master key; created with "
             "mode 0700."},
    {"master_key", CFG_SECRET, CFG_RESTART, AT(master_key),
     .what =
         "Encrypts secrets at rest: 64 hex digits, or a passphrase of at least 16 bytes. Without "
         "it `state_dir/master.key` is created, mode 0600."},
    {"edges", CFG_TEXT, CFG_RESTART, AT(edges), "0",
     .what = "Threads that own the connections of `listen`: sockets, TLS, HTTP and WebSocket "
             "framing, signatures. 0: one thread does everything; `auto`: one less than the "
             "machine has cores."},
    {"retention", CFG_DURATION, CFG_RELOAD, AT(retention_ms), "0s", .max = INT64_MAX,
     .what = "How long personal data is kept, for example `90d`: messages and names on the chat "
             "page, mail that no agent took, silent chats (in whole days), replies of agents, "
             "sends with an unknown outcome, and what `bellhop why` shows. 0: as long as the "
             "limits allow."},
    {0},
};

enum { MAX_EDGES = 64 };

size_t settings_edges(const struct settings *s)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n = 0;

    if (str_eq(str_of(s->edges), STR("auto")))
        return cores <= 1 ? 0 : cores - 1 < MAX_EDGES ? (size_t)cores - 1 : MAX_EDGES;
    (void)str_to_u64(str_of(s->edges), &n); /* checked when read */
    return (size_t)n;
}

static bool check(void *settings, char *ret_why)
{
    struct settings *s = settings;
    struct str url = str_of(s->public_url);
    uint64_t edges = 0;

    if (!str_eq(str_of(s->edges), STR("auto")) &&
        (!str_to_u64(str_of(s->edges), &edges) || edges > MAX_EDGES))
        return bh_why(ret_why, "edges: expected auto, or a number from 0 to %d, found \"%.60s\"",
                      MAX_EDGES, s->edges != NULL ? s->edges : "");

    if (url.p != NULL && !str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        return bh_why(ret_why, "public_url: expected http://... or https://..., found \"%.100s\"",
                      url.p);
    for (size_t n = url.n; n > 0 && s->public_url[n - 1] == '/'; n--)
        s->public_url[n - 1] = '\0';
    return true;
}

const struct config_section settings_config = {.keys = keys,
                                               .size = sizeof(struct settings),
                                               .check = check};

static const struct config_section *const sections[] = {
    &settings_config,   &tls_config,    &http_config,      &store_config,   &cluster_config,
    &relay_config,      &wake_config,   &door_config,      &auth_config,    &identity_config,
    &relay_rate_config, &limits_config, &skills_section,   &v1_config,      &media_config,
    &outbox_config,     &front_config,  &confine_config,   &log_config,     &dispatch_config,
    &journal_config,    &audit_config,  &allowance_config, &pairing_config, NULL,
};
static const struct config_list *const lists[] = {&platforms_config, &agents_config, NULL};
static const struct config_gone gone[] = {
    {"bus", "there is no bus any more: one node decides, and tells only itself.  Delete the whole "
            "section \"bus:\""},
    {"data", "no node is named for data any more: with PostgreSQL the entries are in PostgreSQL.  "
             "Delete the whole section \"data:\""},
    {0},
};
const struct config_schema settings_schema = {.sections = sections, .lists = lists, .gone = gone};

const char *settings_default_path(void)
{
    if (access("bellhop.yaml", F_OK) == 0)
        return "bellhop.yaml";
    return access(SETTINGS_SYSTEM, R_OK) == 0 ? SETTINGS_SYSTEM : NULL;
}

enum bh_err settings_load(const char *path, struct config **ret_cfg, struct buf *ret_why)
{
    struct config *cfg = NULL;
    enum bh_err err =
        config_load(path != NULL ? path : settings_default_path(), &settings_schema, &cfg, ret_why);
    char why[256] = "";

    if (err == BH_OK && (!platforms_fit(cfg, why) || !dispatch_check(cfg, why) ||
                         !cluster_settings_fit(cfg, why))) {
        buf_printf(ret_why, "%s: %s", config_path(cfg), why);
        config_free(cfg);
        err = BH_REFUSED;
    }
    if (err == BH_OK)
        *ret_cfg = cfg;
    return err;
}

const struct settings *settings_of(const struct config *c)
{
    return config_get(c, &settings_config);
}

int64_t settings_max_age_ms(const struct config *c)
{
    const struct outbox_settings *o = config_get(c, &outbox_config);

    return o->max_age_ms;
}

void settings_drop_environment(void)
{
    static const char *const theirs[] = {"BELLHOP_LISTEN",         "BELLHOP_PUBLIC_URL",
                                         "BELLHOP_PROXY_PROTOCOL", "BELLHOP_STATE_DIR",
                                         "BELLHOP_TLS_CERT",       "BELLHOP_STORE_KIND",
                                         "BELLHOP_IDENTITY_KIND",  "BELLHOP_MEDIA_DIR",
                                         "BELLHOP_TLS_KEY",        "BELLHOP_SKILLS_DIR"};

    for (size_t i = 0; i < ARRAY_LEN(theirs); i++)
        unsetenv(theirs[i]);
}

/* ---- the state directory ---- */

bool state_dir_make_parents(const char *file, size_t from, unsigned mode)
{
    char *path = xstrdup(file);
    bool ok = true;

    for (char *p = path + from; ok && *p != '\0'; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        ok = mkdir(path, mode) == 0 || errno == EEXIST;
        *p = '/';
    }
    free(path);
    return ok;
}

enum bh_err state_dir_open(const char *dir, char *ret_why)
{
    struct stat st;

    if (!state_dir_make_parents(dir, 1, 0755) || (mkdir(dir, 0700) != 0 && errno != EEXIST) ||
        stat(dir, &st) != 0)
        return bh_err_why(BH_REFUSED, ret_why, "state_dir %.160s: %s", dir, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return bh_err_why(BH_REFUSED, ret_why, "state_dir %.160s is not a directory", dir);
    if (access(dir, R_OK | W_OK | X_OK) != 0)
        return bh_err_why(BH_REFUSED, ret_why, "state_dir %.160s cannot be written by this user",
                          dir);
    if ((st.st_mode & 077) != 0)
        log_warn(NULL, "state_dir %s is open to other users: chmod 700 %s", dir, dir);
    return BH_OK;
}

/* False: root itself owns the state, or this is not root, or there is no state. */
static bool find_owner(const char *dir, struct stat *ret)
{
    char *db = state_dir_path(dir, "bellhop.db");
    bool found = geteuid() == 0 && (stat(db, ret) == 0 || stat(dir, ret) == 0);

    free(db);
    return found && ret->st_uid != 0;
}

bool state_dir_is_foreign(const char *dir)
{
    struct stat st;

    return find_owner(dir, &st);
}

bool state_dir_as_owner(const char *dir)
{
    struct stat st;

    return !find_owner(dir, &st) ||
           (setgroups(0, NULL) == 0 && setgid(st.st_gid) == 0 && setuid(st.st_uid) == 0);
}

char *state_dir_path(const char *dir, const char *name)
{
    struct buf b = BUF_INIT;

    buf_printf(&b, "%s/%s", dir, name);
    return buf_take(&b);
}

enum bh_err state_dir_write_port(const char *dir, int port, char *ret_why)
{
    char *path = state_dir_path(dir, "port"), text[16];
    int n = snprintf(text, sizeof text, "%d\n", port), fd = -1;
    bool ok = true;

    if (port > 0) {
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        ok = fd >= 0 && write(fd, text, (size_t)n) == n;
    }
    if (!ok)
        snprintf(ret_why, 256, "%.160s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    free(path);
    return ok ? BH_OK : BH_REFUSED;
}

void state_dir_forget(const char *dir)
{
    static const char *const names[] = {"admin.sock", "port"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char *path = state_dir_path(dir, names[i]);
        unlink(path);
        free(path);
    }
}

void state_dir_remove(const char *path)
{
    char *top = xstrdup(path), *const tops[] = {top, NULL};
    FTS *walk = fts_open(tops, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);

    for (FTSENT *e; walk != NULL && (e = fts_read(walk)) != NULL;)
        if (e->fts_info == FTS_DP)
            rmdir(e->fts_path);
        else if (e->fts_info != FTS_D)
            unlink(e->fts_path);
    if (walk != NULL)
        fts_close(walk);
    free(top);
}
