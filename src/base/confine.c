/* confine.c - design.  (confine.h has the contract.)
 *
 * Landlock is used through raw system calls: the C library has no wrappers, and the headers of the
 * oldest system we build on are older than the kernels we run on.
 *
 * seccomp uses a filter program:
 *
 *      other architecture       -> the process is killed
 *      calls with a check       -> a block each: look at the arguments, then allow or refuse
 *      calls in the list        -> allow
 *      newer than NEWEST_KNOWN  -> ENOSYS, so that the C library falls back to an older call
 *      the rest                 -> EPERM
 *
 * The kernel works out once which numbers are always allowed (since 5.11) and does not run the
 * filter for them.  The checks come first, because the kernel runs them every time.
 *
 * libseccomp was measured and not taken: see the dependencies in docs/architecture.md. */
#include "base/confine.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/types.h>
#include <net/if.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

/* ---- files: Landlock ---- */

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
static bool add_path(int set, const struct confine_path *p, uint64_t watched)
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
    return ok;
}

static bool add_rules(int set, const struct confine_files *f, const struct ruleset_attr *a)
{
    struct port_attr port = {.allowed = NET_BIND, .port = (uint64_t)f->port};

    for (size_t i = 0; i < f->n; i++)
        if (!add_path(set, &f->paths[i], a->fs))
            return false;
    return a->net == 0 || f->port < 0 || syscall(SYS_ADD_RULE, set, RULE_PORT, &port, 0) == 0;
}

enum bh_err confine_files(const struct confine_files *f, struct confined *ret, char *ret_why)
{
    long version = syscall(SYS_CREATE_RULESET, NULL, 0, ASK_VERSION);
    size_t size;

    if (version < LEAST_VERSION)
        return BH_OK;
    struct ruleset_attr a = handled((int)version, &size);
    int set = (int)syscall(SYS_CREATE_RULESET, &a, size, 0);
    bool ok = set >= 0 && add_rules(set, f, &a) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
              syscall(SYS_RESTRICT_SELF, set, 0) == 0;
    if (!ok)
        snprintf(ret_why, 256, "cannot confine the files of this process (Landlock): %s",
                 strerror(errno));
    if (set >= 0)
        close(set);
    if (!ok)
        return BH_REFUSED;
    ret->landlock = (int)version;
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
        snprintf(files, sizeof files, "files not confined: the kernel has no Landlock");
    snprintf(ret_text, size, "%s, %s", files,
             c->seccomp ? "calls (seccomp)" : "calls not confined: the kernel has no seccomp");
}

/* ---- system calls: seccomp ---- */

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef OUR_ARCH

enum { NEWEST_KNOWN = 450, X32_BIT = 0x40000000, CAPACITY = 1024 };

/* What is allowed, by topic. */
static const int contents[] = {
    SYS_openat,     SYS_close,           SYS_close_range,    SYS_read,       SYS_pread64,
    SYS_readv,      SYS_preadv,          SYS_preadv2,        SYS_write,      SYS_pwrite64,
    SYS_writev,     SYS_pwritev,         SYS_pwritev2,       SYS_lseek,      SYS_fstat,
    SYS_newfstatat, SYS_statx,           SYS_faccessat,      SYS_faccessat2, SYS_fsync,
    SYS_fdatasync,  SYS_sync_file_range, SYS_ftruncate,      SYS_truncate,   SYS_fallocate,
    SYS_fadvise64,  SYS_fcntl,           SYS_flock,          SYS_dup,        SYS_dup3,
    SYS_sendfile,   SYS_splice,          SYS_copy_file_range};
static const int names[] = {
    SYS_renameat,  SYS_renameat2,  SYS_unlinkat,      SYS_mkdirat,           SYS_linkat,
    SYS_symlinkat, SYS_readlinkat, SYS_fchmod,        SYS_fchmodat,          SYS_fchown,
    SYS_fchownat,  SYS_utimensat,  SYS_umask,         SYS_getdents64,        SYS_getcwd,
    SYS_statfs,    SYS_fstatfs,    SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch};
static const int waiting[] = {SYS_epoll_create1,   SYS_epoll_ctl,       SYS_epoll_pwait,
                              SYS_epoll_pwait2,    SYS_ppoll,           SYS_pselect6,
                              SYS_eventfd2,        SYS_signalfd4,       SYS_timerfd_create,
                              SYS_timerfd_settime, SYS_timerfd_gettime, SYS_pipe2};
static const int sockets[] = {SYS_socketpair, SYS_bind,       SYS_listen,      SYS_accept,
                              SYS_accept4,    SYS_connect,    SYS_getsockname, SYS_getpeername,
                              SYS_setsockopt, SYS_getsockopt, SYS_sendto,      SYS_sendmsg,
                              SYS_sendmmsg,   SYS_recvfrom,   SYS_recvmsg,     SYS_recvmmsg,
                              SYS_shutdown}; /* socket() itself has a check */
static const int memory[] = {SYS_munmap,  SYS_mremap,     SYS_madvise,      SYS_brk,
                             SYS_mincore, SYS_mlock,      SYS_mlock2,       SYS_munlock,
                             SYS_msync,   SYS_membarrier, SYS_get_mempolicy};
static const int threads[] = {SYS_futex,
                              SYS_set_robust_list,
                              SYS_get_robust_list,
                              SYS_rseq,
                              SYS_set_tid_address,
                              SYS_exit,
                              SYS_exit_group,
                              SYS_sched_yield,
                              SYS_sched_getaffinity,
                              SYS_sched_getparam,
                              SYS_sched_getscheduler,
                              SYS_gettid,
                              SYS_getpid,
                              SYS_getppid,
                              SYS_wait4,
                              SYS_waitid};
static const int signals[] = {SYS_rt_sigaction,    SYS_rt_sigprocmask, SYS_rt_sigpending,
                              SYS_rt_sigtimedwait, SYS_rt_sigsuspend,  SYS_rt_sigreturn,
                              SYS_sigaltstack,     SYS_restart_syscall};
static const int times[] = {SYS_nanosleep,    SYS_clock_nanosleep, SYS_clock_gettime,
                            SYS_clock_getres, SYS_gettimeofday,    SYS_getitimer};
static const int ourselves[] = {SYS_uname,     SYS_sysinfo,   SYS_getrandom, SYS_getuid,
                                SYS_geteuid,   SYS_getgid,    SYS_getegid,   SYS_getresuid,
                                SYS_getresgid, SYS_getgroups, SYS_getpgid,   SYS_getsid,
                                SYS_getrlimit, SYS_getrusage, SYS_times,     SYS_getcpu,
                                SYS_capget};
static const int older[] = {
#ifdef SYS_open /* machines younger than x86-64 lack them */
    SYS_open,   SYS_stat,         SYS_lstat,      SYS_access,       SYS_rename,    SYS_mkdir,
    SYS_rmdir,  SYS_link,         SYS_unlink,     SYS_readlink,     SYS_chmod,     SYS_symlink,
    SYS_utimes, SYS_getdents,     SYS_dup2,       SYS_inotify_init, SYS_futimesat, SYS_chown,
    SYS_lchown, SYS_epoll_create, SYS_epoll_wait, SYS_poll,         SYS_select,    SYS_eventfd,
    SYS_pipe,   SYS_time,         SYS_getpgrp,
#endif
};

static const struct {
    const int *calls;
    size_t n;
} fine[] = {
    {contents, ARRAY_LEN(contents)}, {names, ARRAY_LEN(names)},   {waiting, ARRAY_LEN(waiting)},
    {sockets, ARRAY_LEN(sockets)},   {memory, ARRAY_LEN(memory)}, {threads, ARRAY_LEN(threads)},
    {signals, ARRAY_LEN(signals)},   {times, ARRAY_LEN(times)},   {ourselves, ARRAY_LEN(ourselves)},
    {older, ARRAY_LEN(older)},
};

/* What AddressSanitizer and its like do at the end, or when they have something to report. */
static const int of_sanitizers[] = {
    SYS_clone,  SYS_execve, SYS_ptrace,     SYS_prctl,     SYS_kill,
    SYS_tgkill, SYS_mmap,   SYS_mprotect,   SYS_prlimit64, SYS_personality,
#ifdef SYS_fork
    SYS_fork,   SYS_vfork,  SYS_arch_prctl,
#endif
};

/* ---- writing the program ---- */

struct filter {
    struct sock_filter code[CAPACITY];
    unsigned short n;
};

static void emit(struct filter *p, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    if (p->n < CAPACITY)
        p->code[p->n++] = (struct sock_filter){code, yes, no, k};
}

static void emit_load(struct filter *p, size_t offset)
{
    emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void emit_result(struct filter *p, uint32_t result)
{
    emit(p, BPF_RET | BPF_K, result, 0, 0);
}

#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define UNKNOWN (SECCOMP_RET_ERRNO | ENOSYS)

/* The lower half of argument @i: flags and descriptors fit into it. */
static void emit_load_arg(struct filter *p, unsigned i)
{
    emit_load(p, offsetof(struct seccomp_data, args) + 8 * i);
}

/* When the loaded word is @k: @result. */
static void emit_if_is(struct filter *p, uint32_t k, uint32_t result)
{
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, k, 0, 1);
    emit_result(p, result);
}

/* When the loaded word has one of @bits: @result. */
static void emit_if_has(struct filter *p, uint32_t bits, uint32_t result)
{
    emit(p, BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    emit_result(p, result);
}

/* A block that runs for call @nr only; returns the place of the jump that goes around it. */
static unsigned begin_check(struct filter *p, int nr)
{
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 0);
    return p->n - 1u;
}

static void end_check(struct filter *p, unsigned begin, uint32_t otherwise)
{
    emit_result(p, otherwise);
    if (p->n < CAPACITY)
        p->code[begin].jf = (uint8_t)(p->n - begin - 1);
}

/* Threads, not processes.  clone3() hides its flags behind a pointer: "there is none", and the C
 * library uses clone(). */
static void check_clone(struct filter *p)
{
    unsigned b = begin_check(p, SYS_clone);

    emit_load_arg(p, 0);
    emit_if_has(p, CLONE_THREAD, SECCOMP_RET_ALLOW);
    end_check(p, b, REFUSE);
    b = begin_check(p, SYS_clone3);
    end_check(p, b, UNKNOWN);
}

/* Code comes from files, and what can be written is not run. */
static void check_memory(struct filter *p)
{
    static const int protects[] = {SYS_mprotect, SYS_pkey_mprotect};
    unsigned b = begin_check(p, SYS_mmap);

    emit_load_arg(p, 2);
    emit(p, BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0);
    emit_result(p, SECCOMP_RET_ALLOW);
    emit_if_has(p, PROT_WRITE, REFUSE);
    emit_load_arg(p, 3);
    emit_if_has(p, MAP_ANONYMOUS, REFUSE);
    end_check(p, b, SECCOMP_RET_ALLOW);
    for (size_t i = 0; i < ARRAY_LEN(protects); i++) {
        b = begin_check(p, protects[i]);
        emit_load_arg(p, 2);
        emit_if_has(p, PROT_EXEC, REFUSE);
        end_check(p, b, SECCOMP_RET_ALLOW);
    }
}

static void check_socket(struct filter *p)
{
    unsigned b = begin_check(p, SYS_socket);

    emit_load_arg(p, 0);
    emit_if_is(p, AF_NETLINK, SECCOMP_RET_ALLOW); /* getaddrinfo() asks it for our addresses */
    emit_if_is(p, AF_UNIX, SECCOMP_RET_ALLOW);
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0);
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0);
    emit_result(p, REFUSE);
    emit_load_arg(p, 1);
    emit(p, BPF_ALU | BPF_AND | BPF_K, 0xf, 0, 0);
    emit_if_is(p, SOCK_STREAM, SECCOMP_RET_ALLOW);
    emit_if_is(p, SOCK_DGRAM, SECCOMP_RET_ALLOW);
    end_check(p, b, REFUSE);
}

/* Allows call @nr only when its argument @arg is one of @values. */
static void check_one_of(struct filter *p, int nr, unsigned arg, const unsigned *values, size_t n)
{
    unsigned b = begin_check(p, nr);

    emit_load_arg(p, arg);
    for (size_t i = 0; i < n; i++)
        emit_if_is(p, values[i], SECCOMP_RET_ALLOW);
    end_check(p, b, REFUSE);
}

/* abort() signals itself; limits are read, not set. */
static void check_process(struct filter *p)
{
    unsigned b = begin_check(p, SYS_tgkill);

    emit_load_arg(p, 0);
    emit_if_is(p, (uint32_t)getpid(), SECCOMP_RET_ALLOW);
    end_check(p, b, REFUSE);
    b = begin_check(p, SYS_prlimit64);
    emit_load_arg(p, 2);
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3);
    emit_load(p, offsetof(struct seccomp_data, args) + 8 * 2 + 4);
    emit_if_is(p, 0, SECCOMP_RET_ALLOW);
    end_check(p, b, REFUSE);
}

static void emit_all(struct filter *p, const int *calls, size_t n)
{
    for (size_t i = 0; i < n; i++)
        emit_if_is(p, (uint32_t)calls[i], SECCOMP_RET_ALLOW);
}

static void write_program(struct filter *p, unsigned flags)
{
    static const unsigned requests[] = {FIONREAD,   FIONBIO,      FIOCLEX,    TCGETS,
                                        TIOCGWINSZ, SIOCGIFINDEX, SIOCGIFNAME};
    /* Names of threads and of mappings, for whoever looks at the process. */
    static const unsigned options[] = {PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, 0x53564d41};

    emit_load(p, offsetof(struct seccomp_data, arch));
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    emit_result(p, SECCOMP_RET_KILL_PROCESS);
    emit_load(p, offsetof(struct seccomp_data, nr));
    if (flags & CONFINE_SANITIZER)
        emit_all(p, of_sanitizers, ARRAY_LEN(of_sanitizers));
    check_memory(p);
    check_socket(p);
    check_one_of(p, SYS_ioctl, 1, requests, ARRAY_LEN(requests));
    check_clone(p);
    check_one_of(p, SYS_prctl, 0, options, ARRAY_LEN(options));
    check_process(p);
    for (size_t i = 0; i < ARRAY_LEN(fine); i++)
        emit_all(p, fine[i].calls, fine[i].n);
    emit(p, BPF_JMP | BPF_JGT | BPF_K, NEWEST_KNOWN, 0, 2);
    emit(p, BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 1, 0);
    emit_result(p, UNKNOWN);
    emit_result(p, REFUSE);
}

enum bh_err confine_calls(unsigned flags, struct confined *ret, char *ret_why)
{
    struct filter p = {.n = 0};

    write_program(&p, flags);
    assert(p.n < CAPACITY);
    struct sock_fprog prog = {.len = p.n, .filter = p.code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    long rc = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &prog);
    if (rc == 0) {
        ret->seccomp = 1;
        return BH_OK;
    }
    if (rc > 0)
        errno = ESRCH; /* the number of a thread that has a filter of its own */
    if (errno == ENOSYS || errno == EINVAL || errno == EPERM || errno == EACCES)
        return BH_OK; /* a kernel without it, or a container that keeps it to itself */
    return bh_err_why(BH_REFUSED, ret_why,
                      "cannot confine the system calls of this process (seccomp): %s",
                      strerror(errno));
}

#else

enum bh_err confine_calls(unsigned flags, struct confined *ret, char *ret_why)
{
    return BH_OK; /* nobody has written the list for this machine yet */
}

#endif
