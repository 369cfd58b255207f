/* What a confined process is refused, and what it keeps: each test is a child that gives it up. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/mem.h"

/* Runs @body in a child; it says what went wrong, or nothing. */
static void in_child(const char *(*body)(void))
{
    int word[2], status;
    char said[200] = "";

    assert_int_equal(pipe(word), 0);
    pid_t pid = fork();
    if (pid == 0) {
        const char *wrong = body();
        if (wrong != NULL && write(word[1], wrong, strlen(wrong)) < 0)
            _exit(2);
        _exit(wrong != NULL);
    }
    close(word[1]);
    assert_true(read(word[0], said, sizeof said - 1) >= 0);
    close(word[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_string_equal(said, "");
    assert_int_equal(status, 0);
}

/* ---- calls ---- */

static bool confine(void)
{
    struct confined c = {0};
    char why[256];

    return confine_calls(0, &c, why) == BH_OK && c.seccomp == 1;
}

static bool is_refused(long rc)
{
    return rc == -1 && errno == EPERM;
}

static const char *try_processes(void)
{
    if (!confine())
        return "no filter";
    if (!is_refused(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)))
        return "clone() made a process";
    if (syscall(SYS_clone3, NULL, 0) != -1 || errno != ENOSYS)
        return "clone3() is there";
    if (!is_refused(syscall(SYS_execve, "/bin/true", NULL, NULL)) ||
        !is_refused(syscall(SYS_execveat, -1, "/bin/true", NULL, NULL, 0)))
        return "execve()";
    if (!is_refused(syscall(SYS_kill, getppid(), 0)) ||
        !is_refused(syscall(SYS_tgkill, getppid(), getppid(), 0)))
        return "kill()";
    if (!is_refused(syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0)) ||
        !is_refused(syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0)))
        return "ptrace()";
    if (syscall(SYS_tgkill, getpid(), getpid(), 0) != 0)
        return "a process cannot signal itself";
    return NULL;
}

static const char *try_the_machine(void)
{
    static const int calls[] = {
        SYS_mount,       SYS_umount2,  SYS_pivot_root,     SYS_chroot,          SYS_unshare,
        SYS_setns,       SYS_bpf,      SYS_userfaultfd,    SYS_keyctl,          SYS_add_key,
        SYS_init_module, SYS_reboot,   SYS_settimeofday,   SYS_swapon,          SYS_personality,
        SYS_setuid,      SYS_setgid,   SYS_io_uring_setup, SYS_perf_event_open, SYS_acct,
        SYS_syslog,      SYS_quotactl, SYS_mknodat,        SYS_memfd_create,    SYS_kexec_load,
        SYS_seccomp,     SYS_capset,   SYS_sethostname,
    };
    static char text[40];

    if (!confine())
        return "no filter";
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        if (is_refused(syscall(calls[i], 0, 0, 0, 0, 0)))
            continue;
        snprintf(text, sizeof text, "system call %d is not refused", calls[i]);
        return text;
    }
    if (syscall(9999) != -1 || errno != ENOSYS)
        return "a call of the future is not ENOSYS";
    return NULL;
}

static const char *try_memory(void)
{
    int self = open("/proc/self/exe", O_RDONLY);
    char *data;

    if (!confine())
        return "no filter";
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        return "made code from nothing";
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE, self, 0) != MAP_FAILED)
        return "both writable and executable";
    data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return "no memory";
    if (!is_refused(mprotect(data, 4096, PROT_READ | PROT_EXEC)))
        return "data became code";
    if (mprotect(data, 4096, PROT_READ) != 0 || munmap(data, 4096) != 0)
        return "mprotect() does not work at all";
    if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, self, 0) == MAP_FAILED)
        return "a library cannot be loaded";
    return NULL;
}

static const char *try_sockets(void)
{
    struct rlimit limit;

    if (!confine())
        return "no filter";
    if (!is_refused(socket(AF_PACKET, SOCK_RAW, 0)) ||
        !is_refused(socket(AF_ALG, SOCK_STREAM, 0)) ||
        !is_refused(socket(AF_VSOCK, SOCK_STREAM, 0)))
        return "a socket of an odd family";
    if (!is_refused(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP)))
        return "a raw socket";
    if (socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0 || socket(AF_UNIX, SOCK_STREAM, 0) < 0 ||
        socket(AF_INET6, SOCK_DGRAM, 0) < 0)
        return "no sockets";
    if (!is_refused(ioctl(0, TIOCSTI, "x")))
        return "could type into its terminal";
    if (!is_refused(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)) || prctl(PR_SET_NAME, "x", 0, 0, 0) != 0)
        return "prctl()";
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || !is_refused(setrlimit(RLIMIT_CORE, &limit)))
        return "limits";
    return NULL;
}

static void *try_to_run(void *go)
{
    while (!*(_Atomic bool *)go)
        sched_yield();
    bool refused = is_refused(syscall(SYS_execve, "/bin/true", NULL, NULL));
    return refused ? go : NULL;
}

static const char *try_threads(void)
{
    static _Atomic bool go;
    pthread_t before, after;
    void *refused;

    if (pthread_create(&before, NULL, try_to_run, &go) != 0 || !confine())
        return "no filter";
    go = true;
    if (pthread_join(before, &refused) != 0 || refused == NULL)
        return "a thread that was there before is free";
    if (pthread_create(&after, NULL, try_to_run, &go) != 0)
        return "no threads any more";
    return pthread_join(after, &refused) != 0 || refused == NULL ? "a new thread is free" : NULL;
}

static void no_process_is_made_or_touched(void **state)
{
    in_child(try_processes);
}

static void the_machine_is_left_alone(void **state)
{
    in_child(try_the_machine);
}

static void data_never_becomes_code(void **state)
{
    in_child(try_memory);
}

static void sockets_are_the_ordinary_ones(void **state)
{
    in_child(try_sockets);
}

static void every_thread_is_confined(void **state)
{
    in_child(try_threads);
}

/* ---- files ---- */

static char dir[] = "/tmp/bellhop-confine-XXXXXX";

static bool put(const char *name)
{
    char path[100];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool ok = fd >= 0 && write(fd, "x", 1) == 1;
    if (fd >= 0)
        close(fd);
    return ok;
}

static bool can_read(const char *name)
{
    char path[100];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_RDONLY);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool keep_files(int port)
{
    char keep[100], look[100], gone[100], sock[100], why[256];
    struct confined c = {0};

    snprintf(keep, sizeof keep, "%s/keep", dir);
    snprintf(look, sizeof look, "%s/look", dir);
    snprintf(gone, sizeof gone, "%s/gone", dir);
    snprintf(sock, sizeof sock, "%s/sock", dir);
    struct confine_path paths[] = {{keep, CONFINE_WRITE},
                                   {look, CONFINE_READ},
                                   {gone, CONFINE_READ},
                                   {sock, CONFINE_SOCK},
                                   {"/dev/null", CONFINE_WRITE}};
    return confine_files(&(struct confine_files){paths, ARRAY_LEN(paths), port}, &c, why) ==
               BH_OK &&
           c.landlock > 0;
}

static int try_rename(const char *from, const char *to)
{
    char a[100], b[100];

    snprintf(a, sizeof a, "%s/%s", dir, from);
    snprintf(b, sizeof b, "%s/%s", dir, to);
    return rename(a, b);
}

static const char *try_files(void)
{
    if (!keep_files(-1))
        return "not confined";
    if (!put("keep/a") || !can_read("keep/a") || try_rename("keep/a", "keep/sub/a") != 0)
        return "cannot keep its own files";
    if (!can_read("look/a") || put("look/a") || put("look/b"))
        return "what is for reading was written, or cannot be read";
    if (can_read("a") || put("a") || can_read("sock/a") || put("sock/a"))
        return "other files are open";
    if (try_rename("keep/sub/a", "look/c") == 0)
        return "carried a file out";
    if (open("/dev/null", O_WRONLY) < 0)
        return "/dev/null";
    return execl("/bin/true", "true", NULL) == 0 || errno != EACCES ? "ran a program" : NULL;
}

static const char *try_places_to_listen(void)
{
    struct sockaddr_in port = {.sin_family = AF_INET};
    struct sockaddr_un path = {.sun_family = AF_UNIX};

    if (!keep_files(-1))
        return "not confined";
    snprintf(path.sun_path, sizeof path.sun_path, "%s/sock/s", dir);
    if (bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&path, sizeof path) != 0)
        return "cannot make its socket";
    snprintf(path.sun_path, sizeof path.sun_path, "%s/look/s", dir);
    if (bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&path, sizeof path) == 0)
        return "made a socket elsewhere";
    if (bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&port, sizeof port) == 0)
        return "listens on a port";
    return NULL;
}

static const char *try_port_zero(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET}, one = {.sin_family = AF_INET};

    if (!keep_files(0))
        return "not confined";
    if (bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&any, sizeof any) != 0)
        return "cannot take a free port";
    one.sin_port = htons(47077);
    return bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&one, sizeof one) == 0
               ? "took a port of its choice"
               : NULL;
}

static bool has_landlock(int version)
{
    return syscall(444, NULL, 0, 1) >= version;
}

static void only_its_own_files_are_left(void **state)
{
    if (!has_landlock(2))
        skip();
    in_child(try_files);
}

static void it_listens_where_it_was_told(void **state)
{
    if (!has_landlock(4))
        skip();
    in_child(try_places_to_listen);
    in_child(try_port_zero);
}

static void what_holds_is_told_in_words(void **state)
{
    char text[160];

    confine_describe(&(struct confined){.landlock = 7, .seccomp = 1}, text, sizeof text);
    assert_string_equal(text, "files (Landlock 7), calls (seccomp)");
    confine_describe(&(struct confined){.seccomp = 1}, text, sizeof text);
    assert_string_equal(text, "files not confined: the kernel has no Landlock, calls (seccomp)");
    confine_describe(&(struct confined){.off = true}, text, sizeof text);
    assert_string_equal(text, "switched off (confine: off)");
}

static int set_up(void **state)
{
    static const char *const names[] = {"keep", "keep/sub", "look", "sock"};
    char path[100];

    if (mkdtemp(dir) == NULL)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (mkdir(path, 0700) != 0)
            return -1;
    }
    return put("a") && put("look/a") && put("sock/a") ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[100];

    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

UNIT(base_test_confine)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_process_is_made_or_touched),
        cmocka_unit_test(the_machine_is_left_alone),
        cmocka_unit_test(data_never_becomes_code),
        cmocka_unit_test(sockets_are_the_ordinary_ones),
        cmocka_unit_test(every_thread_is_confined),
        cmocka_unit_test(only_its_own_files_are_left),
        cmocka_unit_test(it_listens_where_it_was_told),
        cmocka_unit_test(what_holds_is_told_in_words),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
