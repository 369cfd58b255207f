/* pg_server.h - a PostgreSQL server of our own for tests, in a temporary directory, on a socket in
 * it; it refuses to run as root, so then it runs as nobody. */
#pragma once
#include "unit.h"
#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char pg_dir[64];
static char pg_url[256];
static pid_t pg_pid;

/* Where Debian keeps them: the newest version there is. */
static inline const char *pg_program(const char *name)
{
    static char path[256];
    DIR *d = opendir("/usr/lib/postgresql");
    int newest = 0;

    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (atoi(e->d_name) > newest)
            newest = atoi(e->d_name);
    if (d != NULL)
        closedir(d);
    snprintf(path, sizeof path, "/usr/lib/postgresql/%d/bin/%s", newest, name);
    return path;
}

static inline pid_t pg_spawn(const char *const *argv)
{
    char program[256];

    snprintf(program, sizeof program, "%s", pg_program(argv[0]));
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    struct passwd *who = getpwnam("nobody");
    int log = open("/dev/null", O_RDWR);
    if (geteuid() == 0 && (who == NULL || setgid(who->pw_gid) != 0 || setuid(who->pw_uid) != 0))
        _exit(126);
    if (chdir(pg_dir) != 0)
        _exit(126);
    dup2(log, 0), dup2(log, 1), dup2(log, 2);
    execv(program, (char *const *)argv);
    _exit(127);
}

static inline int pg_run(const char *const *argv)
{
    int status = -1;
    pid_t pid = pg_spawn(argv);

    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline bool pg_is_ready(void)
{
    const char *argv[] = {"pg_isready", "-q", "-h", pg_dir, NULL};
    return pg_run(argv) == 0;
}

static inline void pg_start(void)
{
    char data[80];
    const char *argv[] = {
        "postgres",           "-D", data, "-k", pg_dir, "-h", "", "-c", "shared_buffers=16MB", "-c",
        "max_connections=20", NULL};

    snprintf(data, sizeof data, "%s/data", pg_dir);
    pg_pid = pg_spawn(argv);
    for (int i = 0; i < 1500 && !pg_is_ready(); i++)
        usleep(20000);
    assert_true(pg_is_ready());
}

static inline void pg_stop(int sig) /* SIGINT: fast; SIGQUIT: as a crash */
{
    kill(pg_pid, sig);
    waitpid(pg_pid, NULL, 0);
    pg_pid = 0;
}

static inline int pg_setup(void **state)
{
    char data[80];
    const char *argv[] = {"initdb",  "-D",          data, "-A",   "trust", "-U",
                          "bellhop", "--no-locale", "-E", "UTF8", "-N",    NULL};
    struct passwd *who = getpwnam("nobody");

    strcpy(pg_dir, "/tmp/bellhop-pg-XXXXXX");
    assert_non_null(mkdtemp(pg_dir));
    snprintf(data, sizeof data, "%s/data", pg_dir);
    if (geteuid() == 0)
        assert_int_equal(chown(pg_dir, who->pw_uid, who->pw_gid), 0);
    assert_int_equal(pg_run(argv), 0);
    pg_start();
    snprintf(pg_url, sizeof pg_url,
             "host=%s user=bellhop dbname=postgres "
             "options='-c client_min_messages=error'",
             pg_dir);
    return 0;
}

static inline int pg_teardown(void **state)
{
    char command[128];

    if (pg_pid != 0)
        pg_stop(SIGINT);
    snprintf(command, sizeof command, "rm -rf %s", pg_dir);
    return system(command);
}
