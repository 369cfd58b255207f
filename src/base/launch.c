/* launch.c - see launch.h. */
#include "base/launch.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child, on borrowed memory: only system calls from here to exec.  SIGTERM should we die
 * without a word: two of it would be worse than none. */
static void become(char *const argv[], char *const envp[], const int fds[3])
{
    sigset_t none;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0 && dup2(fds[i], i) < 0)
            return;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvpe(argv[0], argv, envp);
}

/* An exec that fails says so through a pipe that a good one closes; not through the memory a
 * vfork() shares, which under ThreadSanitizer is none. */
int launch(char *const argv[], char *const envp[], const int fds[3], pid_t *ret_pid)
{
    sigset_t all, before;
    int word[2], rc = 0;

    if (pipe2(word, O_CLOEXEC) < 0)
        return errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of ours may run in the child */
    pid_t pid = vfork();
    if (pid == 0) {
        become(argv, envp, fds);
        rc = errno;
        _exit(write(word[1], &rc, sizeof rc) == sizeof rc ? 127 : 126);
    }
    rc = pid < 0 ? errno : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(word[1]);
    if (pid > 0 && read(word[0], &rc, sizeof rc) == sizeof rc)
        waitpid(pid, NULL, 0);
    close(word[0]);
    *ret_pid = pid;
    return rc;
}
