/* confine_calls.c - the filter of system calls, as the kernel's small machine runs it.
 *
 *      other architecture  -> the process is killed
 *      calls with a check  -> a block each: look at the arguments, then allow or refuse
 *      calls that are fine -> allow
 *      newer than we are   -> ENOSYS, so that the C library does it the old way
 *      the rest            -> EPERM
 *
 * The kernel works out once which numbers are always allowed (since 5.11) and does not run the
 * filter for them; the checks come first, because they are run every time. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/confine.h"
#include "base/mem.h"

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

#ifdef OUR_ARCH

enum { NEWEST_KNOWN = 450, X32_BIT = 0x40000000, CAPACITY = 1024 };

static const int fine[] = {
/* files */
#ifdef SYS_open
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_link,
    SYS_unlink,
    SYS_readlink,
    SYS_chmod,
    SYS_symlink,
    SYS_utimes,
    SYS_getdents,
#endif
    SYS_openat,
    SYS_close,
    SYS_close_range,
    SYS_read,
    SYS_pread64,
    SYS_readv,
    SYS_preadv,
    SYS_preadv2,
    SYS_write,
    SYS_pwrite64,
    SYS_writev,
    SYS_pwritev,
    SYS_pwritev2,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_fsync,
    SYS_fdatasync,
    SYS_sync_file_range,
    SYS_ftruncate,
    SYS_truncate,
    SYS_fallocate,
    SYS_fadvise64,
    SYS_renameat,
    SYS_renameat2,
    SYS_unlinkat,
    SYS_mkdirat,
    SYS_linkat,
    SYS_symlinkat,
    SYS_readlinkat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_fchown,
    SYS_fchownat,
    SYS_utimensat,
    SYS_umask,
    SYS_getdents64,
    SYS_getcwd,
    SYS_fcntl,
    SYS_flock,
    SYS_dup,
    SYS_dup3,
    SYS_statfs,
    SYS_fstatfs,
    SYS_sendfile,
    SYS_splice,
    SYS_copy_file_range,
    SYS_inotify_init1,
    SYS_inotify_add_watch,
    SYS_inotify_rm_watch,
#ifdef SYS_dup2
    SYS_dup2,
    SYS_inotify_init,
    SYS_futimesat,
    SYS_chown,
    SYS_lchown,
#endif
    /* waiting */
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_epoll_pwait2,
    SYS_ppoll,
    SYS_pselect6,
    SYS_eventfd2,
    SYS_signalfd4,
    SYS_timerfd_create,
    SYS_timerfd_settime,
    SYS_timerfd_gettime,
    SYS_pipe2,
#ifdef SYS_poll
    SYS_epoll_create,
    SYS_epoll_wait,
    SYS_poll,
    SYS_select,
    SYS_eventfd,
    SYS_pipe,
#endif
    /* sockets; socket() itself has a check */
    SYS_socketpair,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_connect,
    SYS_getsockname,
    SYS_getpeername,
    SYS_setsockopt,
    SYS_getsockopt,
    SYS_sendto,
    SYS_sendmsg,
    SYS_sendmmsg,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_recvmmsg,
    SYS_shutdown,
    /* memory */
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    SYS_mincore,
    SYS_mlock,
    SYS_mlock2,
    SYS_munlock,
    SYS_msync,
    SYS_membarrier,
    SYS_get_mempolicy,
    /* threads and signals */
    SYS_futex,
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
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigpending,
    SYS_rt_sigtimedwait,
    SYS_rt_sigsuspend,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_wait4,
    SYS_waitid,
    /* time */
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_getitimer,
#ifdef SYS_time
    SYS_time,
#endif
    /* who and where we are */
    SYS_uname,
    SYS_sysinfo,
    SYS_getrandom,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getresuid,
    SYS_getresgid,
    SYS_getgroups,
    SYS_getpgid,
    SYS_getsid,
    SYS_getrlimit,
    SYS_getrusage,
    SYS_times,
    SYS_getcpu,
    SYS_capget,
#ifdef SYS_getpgrp
    SYS_getpgrp,
#endif
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

static void check_ioctl(struct filter *p)
{
    static const unsigned requests[] = {FIONREAD,   FIONBIO,      FIOCLEX,    TCGETS,
                                        TIOCGWINSZ, SIOCGIFINDEX, SIOCGIFNAME};
    unsigned b = begin_check(p, SYS_ioctl);

    emit_load_arg(p, 1);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        emit_if_is(p, requests[i], SECCOMP_RET_ALLOW);
    end_check(p, b, REFUSE);
}

/* Names of threads and of mappings, for whoever looks at the process. */
static void check_prctl(struct filter *p)
{
    static const unsigned options[] = {PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, 0x53564d41};
    unsigned b = begin_check(p, SYS_prctl);

    emit_load_arg(p, 0);
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        emit_if_is(p, options[i], SECCOMP_RET_ALLOW);
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
    emit_load(p, offsetof(struct seccomp_data, arch));
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, OUR_ARCH, 1, 0);
    emit_result(p, SECCOMP_RET_KILL_PROCESS);
    emit_load(p, offsetof(struct seccomp_data, nr));
    if (flags & CONFINE_SANITIZER)
        emit_all(p, of_sanitizers, ARRAY_LEN(of_sanitizers));
    check_memory(p);
    check_socket(p);
    check_ioctl(p);
    check_clone(p);
    check_prctl(p);
    check_process(p);
    emit_all(p, fine, ARRAY_LEN(fine));
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
    snprintf(ret_why, 256, "cannot confine the system calls of this process (seccomp): %s",
             strerror(errno));
    return BH_REFUSED;
}

#else

enum bh_err confine_calls(unsigned flags, struct confined *ret, char *ret_why)
{
    (void)flags, (void)ret, (void)ret_why;
    return BH_OK; /* nobody has written the list for this machine yet */
}

#endif
