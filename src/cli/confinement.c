/* confinement.c - see confinement.h. */
#include "cli/confinement.h"
#include "cluster/node.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/config.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/str.h"
#include "cli/settings.h"
#include "cli/cluster_dirs.h"
#include "dispatch/dispatch.h"
#include "http/idp.h"
#include "net/http_tls.h"
#include "media/media.h"
#include "platform/platform.h"
#include "skills/skills.h"
#include "store/store.h"

#define AT(member) offsetof(struct confine_settings, member)

static const struct config_key keys[] = {
    {"confine", CFG_CHOICE, CFG_RESTART, AT(confine), "on", "on|off",
     .what =
         "Restrict the server to the files (Landlock) and system calls (seccomp) that it needs, "
         "where the kernel supports it. New directories in this file then need a restart."},
    {0},
};
const struct config_section confine_config = {.keys = keys,
                                              .size = sizeof(struct confine_settings)};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

struct rules {
    struct confine_path *paths; /* owned, and their texts */
    size_t n, cap;
};

static void allow(struct rules *r, const char *path, enum confine_access access)
{
    if (path == NULL)
        return;
    if (r->n == r->cap) {
        r->cap = r->cap != 0 ? 2 * r->cap : 32;
        r->paths = xrealloc(r->paths, r->cap * sizeof *r->paths);
    }
    r->paths[r->n++] = (struct confine_path){xstrdup(path), access};
}

/* Allows the directory of @file, because renewing a file creates another one.  Of files in "/" only
 * the file itself is allowed. */
static void allow_beside(struct rules *r, const char *file, enum confine_access access)
{
    const char *slash = strrchr(file, '/');
    char *dir = slash == NULL ? xstrdup(".") : str_dup(str_make(file, (size_t)(slash - file)));
    char *real = realpath(*dir == '\0' ? "/" : dir, NULL);

    allow(r, real == NULL || strcmp(real, "/") != 0 ? dir : file, access);
    free(real);
    free(dir);
}

/* Allows a file that is read again later; it may be a link into another directory. */
static void allow_file(struct rules *r, const char *file)
{
    char *real;

    if (file == NULL || strncmp(file, "-----", 5) == 0) /* PEM text, not a path */
        return;
    allow_beside(r, file, CONFINE_READ);
    real = realpath(file, NULL);
    if (real != NULL)
        allow_beside(r, real, CONFINE_READ);
    free(real);
}

/* Allows libraries that are loaded late, name resolution, certificates and the time zone, and what
 * the C library and sanitizers read about this process. */
static void allow_system(struct rules *r)
{
    static const char *const dirs[] = {"/usr", "/lib", "/lib32", "/lib64",
                                       "/etc", "/run", "/proc",  "/sys/devices/system"};
    static const char *const devices[] = {"/dev/urandom", "/dev/random", "/dev/zero"};

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
        allow(r, dirs[i], IS_SANITIZED && i == 0 ? CONFINE_RUN : CONFINE_READ);
    for (size_t i = 0; i < ARRAY_LEN(devices); i++)
        allow(r, devices[i], CONFINE_READ);
    allow(r, "/dev/null", CONFINE_WRITE);
    allow(r, getenv("SSL_CERT_FILE"), CONFINE_READ);
    allow(r, getenv("SSL_CERT_DIR"), CONFINE_READ);
}

/* Allows the directory or socket where an agent gets its mail. */
static void allow_agent(void *ctx, const char *path, bool is_directory)
{
    if (is_directory)
        allow(ctx, path, CONFINE_WRITE);
    else
        allow_beside(ctx, path, CONFINE_WRITE);
}

/* Allows the files that libpq reads at each connect: those that the URL names, and its defaults. */
static void allow_libpq(struct rules *r, const char *url)
{
    static const char *const names[] = {"sslrootcert=", "sslcert=", "sslkey=", "sslcrl=",
                                        "passfile="};
    const char *home = getenv("HOME");
    struct buf own = BUF_INIT;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *at = strstr(url, names[i]);
        struct buf file = BUF_INIT;
        if (at == NULL)
            continue;
        at += strlen(names[i]);
        at += *at == '\'';
        percent_decode(&file, str_make(at, strcspn(at, "& '")));
        if (file.n > 0 && *file.p == '/')
            allow_file(r, buf_z(&file));
        buf_done(&file);
    }
    buf_printf(&own, "%s/.postgresql", home != NULL ? home : "");
    if (access(buf_z(&own), R_OK) == 0)
        allow(r, buf_z(&own), CONFINE_READ);
    buf_done(&own);
}

static void allow_configured(struct rules *r, const struct config *cfg)
{
    const struct settings *s = settings_of(cfg);
    const struct http_tls *tls = config_get(cfg, &tls_config);
    const struct identity_settings *identity = config_get(cfg, &identity_config);
    const struct skills_settings *skills = config_get(cfg, &skills_section);
    const struct media_settings *media = config_get(cfg, &media_config);
    const struct store_settings *store = config_get(cfg, &store_config);
    char node[NODE_NAME_BYTES + 1];

    if (config_path(cfg) == NULL)
        allow_file(r, "bellhop.yaml");
    for (size_t i = 0; config_file(cfg, i) != NULL; i++)
        allow_file(r, config_file(cfg, i));
    allow_file(r, tls->cert);
    allow_file(r, tls->key);
    allow_file(r, tls->client_ca);
    allow_file(r, identity->public_key);
    allow_file(r, ((const struct cluster_settings *)config_get(cfg, &cluster_config))->ca);
    allow_file(r, ((const struct cluster_settings *)config_get(cfg, &cluster_config))->redis_ca);
    for (size_t i = 0; i < config_count(cfg, &platforms_config); i++) {
        const struct platform_settings *bot = config_entry(cfg, &platforms_config, i);
        const struct platform_ops *ops = platform_find(str_of(bot->platform));
        if (ops != NULL && ops->reads != NULL)
            allow_file(r, ops->reads(bot));
    }
    if (store->url != NULL)
        allow_libpq(r, store->url);
    allow_file(r, skills->approval_key);
    allow(r, s->state_dir, CONFINE_WRITE);
    if (skills->dir != NULL && mkdir(skills->dir, 0750) == 0)
        log_info(NULL, "skills: made %s", skills->dir);
    allow(r, skills->dir, CONFINE_WRITE);
    if (media->dir != NULL && mkdir(media->dir, 0700) == 0)
        log_info(NULL, "media: made %s", media->dir);
    allow(r, media->dir, CONFINE_WRITE);
    dispatch_each_path(cfg, cluster_node_name(cfg, node), allow_agent, r);
    if (str_starts(str_of(s->listen), STR("unix:")))
        allow_beside(r, s->listen + strlen("unix:"), CONFINE_SOCK);
}

/* The port of "127.0.0.1:7077".  The listener refuses a wrong port later. */
static int port_of(const char *listen)
{
    const char *colon = strrchr(listen, ':');
    uint64_t port;

    if (str_starts(str_of(listen), STR("unix:")))
        return -1;
    return colon != NULL && str_to_u64(str_of(colon + 1), &port) && port < 65536 ? (int)port : 0;
}

static bool is_off(const struct config *cfg)
{
    const struct confine_settings *c = config_get(cfg, &confine_config);

    return strcmp(c->confine, "off") == 0;
}

enum bh_err confinement_of_files(const struct config *cfg, struct confined *ret, char *ret_why)
{
    struct rules r = {.n = 0};
    enum bh_err err;

    *ret = (struct confined){.off = is_off(cfg)};
    if (ret->off)
        return BH_OK;
    allow_system(&r);
    allow_configured(&r, cfg);
    struct confine_files f = {r.paths, r.n, port_of(settings_of(cfg)->listen)};
    err = confine_files(&f, ret, ret_why);
    for (size_t i = 0; i < r.n; i++)
        free((char *)(uintptr_t)r.paths[i].path);
    free(r.paths);
    return err;
}

enum bh_err confinement_of_calls(const struct config *cfg, struct confined *ret, char *ret_why)
{
    enum bh_err err = BH_OK;
    char text[160];

    if (!is_off(cfg))
        err = confine_calls(IS_SANITIZED ? CONFINE_SANITIZER : 0, ret, ret_why);
    if (err != BH_OK)
        return err;
    confine_describe(ret, text, sizeof text);
    if (ret->off || (ret->landlock > 0 && ret->seccomp > 0))
        log_info(NULL, "confined: %s", text);
    else
        log_warn(NULL, "confined: %s", text);
    return BH_OK;
}
