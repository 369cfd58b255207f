/* confine.c - Landlock, by its system calls: the C library has no names for them, and the headers
 * of the oldest system we build on know less than the kernels we run on. */
#include "base/confine.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/types.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/mem.h"

enum { SYS_CREATE_RULESET = 444, SYS_ADD_RULE = 445, SYS_RESTRICT_SELF = 446 };
enum { RULE_PATH = 1, RULE_PORT = 2, ASK_VERSION = 1 };
/* Before version 2 no file could be renamed into another directory. */
enum { LEAST_VERSION = 2 };

#define FS_EXECUTE (1ull << 0)
#define FS_WRITE_FILE (1ull << 1)
#define FS_READ_FILE (1ull << 2)
#define FS_READ_DIR (1ull << 3)
#define FS_REMOVE_DIR (1ull << 4)
#define FS_REMOVE_FILE (1ull << 5)
#define FS_MAKE_DIR (1ull << 7)
#define FS_MAKE_REG (1ull << 8)
#define FS_MAKE_SOCK (1ull << 9)
#define FS_MAKE_FIFO (1ull << 10)
#define FS_MAKE_SYM (1ull << 12)
#define FS_REFER (1ull << 13)
#define FS_TRUNCATE (1ull << 14)  /* since version 3 */
#define FS_IOCTL_DEV (1ull << 15) /* since 5 */
#define FS_ALL_OF_2 ((1ull << 14) - 1)
#define NET_BIND (1ull << 0)       /* since 4 */
#define SCOPE_ABSTRACT (1ull << 0) /* since 6 */
#define SCOPE_SIGNAL (1ull << 1)   /* since 6 */
#define FS_OF_A_FILE (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV)

struct ruleset_attr { /* as the kernel reads it; a shorter one is an older version's */
    uint64_t fs, net, scoped;
};
struct path_attr {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed));
struct port_attr {
    uint64_t allowed, port;
};

static const uint64_t access_bits[] = {
    [CONFINE_READ] = FS_READ_FILE | FS_READ_DIR,
    [CONFINE_WRITE] = FS_READ_FILE | FS_READ_DIR | FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE |
                      FS_MAKE_DIR | FS_MAKE_REG | FS_MAKE_SOCK | FS_REFER | FS_TRUNCATE,
    [CONFINE_SOCK] = FS_MAKE_SOCK | FS_REMOVE_FILE,
    [CONFINE_RUN] = FS_READ_FILE | FS_READ_DIR | FS_EXECUTE,
};

/* What a kernel of that version can watch over; it refuses to be asked for more. */
static struct ruleset_attr handled(int version, size_t *ret_size)
{
    struct ruleset_attr a = {.fs = FS_ALL_OF_2};

    *ret_size = sizeof a.fs;
    if (version >= 3)
        a.fs |= FS_TRUNCATE;
    if (version >= 4) {
        a.net = NET_BIND;
        *ret_size = 2 * sizeof a.fs;
    }
    if (version >= 5)
        a.fs |= FS_IOCTL_DEV;
    if (version >= 6) {
        const char *manager = getenv("NOTIFY_SOCKET");
        a.scoped = SCOPE_SIGNAL;
        if (manager == NULL || *manager != '@')
            a.scoped |= SCOPE_ABSTRACT;
        *ret_size = sizeof a;
    }
    return a;
}

/* False: errno says why. */
static bool add_path(int set, const struct confine_path *p, uint64_t watched, struct confined *ret)
{
    struct path_attr rule = {.allowed = access_bits[p->access] & watched};
    struct stat st;
    bool ok;

    rule.fd = open(p->path, O_PATH | O_CLOEXEC);
    if (rule.fd < 0)
        return errno != EMFILE && errno != ENFILE && errno != ENOMEM;
    if (fstat(rule.fd, &st) == 0 && !S_ISDIR(st.st_mode))
        rule.allowed &= FS_OF_A_FILE;
    ok = rule.allowed == 0 || syscall(SYS_ADD_RULE, set, RULE_PATH, &rule, 0) == 0;
    close(rule.fd);
    if (p->access == CONFINE_WRITE)
        ret->n_write++;
    else
        ret->n_read++;
    return ok;
}

static bool add_rules(int set, const struct confine_files *f, const struct ruleset_attr *a,
                      struct confined *ret)
{
    struct port_attr port = {.allowed = NET_BIND, .port = (uint64_t)f->port};

    for (size_t i = 0; i < f->n; i++)
        if (!add_path(set, &f->paths[i], a->fs, ret))
            return false;
    return a->net == 0 || f->port < 0 || syscall(SYS_ADD_RULE, set, RULE_PORT, &port, 0) == 0;
}

enum bh_err confine_files(const struct confine_files *f, struct confined *ret, char *ret_why)
{
    long version = syscall(SYS_CREATE_RULESET, NULL, 0, ASK_VERSION);
    struct confined now = *ret;
    size_t size;

    if (version < LEAST_VERSION)
        return BH_OK;
    struct ruleset_attr a = handled((int)version, &size);
    int set = (int)syscall(SYS_CREATE_RULESET, &a, size, 0);
    bool ok = set >= 0 && add_rules(set, f, &a, &now) &&
              prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
              syscall(SYS_RESTRICT_SELF, set, 0) == 0;
    if (!ok)
        snprintf(ret_why, 256, "cannot confine the files of this process (Landlock): %s",
                 strerror(errno));
    if (set >= 0)
        close(set);
    if (!ok)
        return BH_REFUSED;
    now.landlock = (int)version;
    *ret = now;
    return BH_OK;
}

void confine_describe(const struct confined *c, char *ret_text, size_t size)
{
    char files[64];

    if (c->off) {
        snprintf(ret_text, size, "switched off (confine: off)");
        return;
    }
    if (c->landlock > 0)
        snprintf(files, sizeof files, "files (Landlock %d)", c->landlock);
    else
        snprintf(files, sizeof files, "files not: no Landlock to be had here");
    snprintf(ret_text, size, "%s, %s", files,
             c->seccomp ? "calls (seccomp)" : "calls not: no seccomp to be had here");
}
