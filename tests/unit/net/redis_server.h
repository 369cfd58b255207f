/* redis_server.h - a Redis server of our own for tests, in a temporary directory, on a socket in it
 * and on a free port; its certificates are made when a test wants them. */
#pragma once
#include "unit.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char redis_dir[64];
static char redis_url[128];
static int redis_port, redis_tls_port;
static pid_t redis_pid;
#define REDIS_PASSWORD "s3cret:/@"

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static bool redis_answers(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s/redis.sock", redis_dir);
    bool ok = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return ok;
}

/* False: the server did not come up; another program may have taken a port. */
static bool redis_try(void)
{
    char port[8], tls_port[8], sock[80], cert[80], key[80];

    snprintf(port, sizeof port, "%d", redis_port);
    snprintf(tls_port, sizeof tls_port, "%d", redis_tls_port);
    snprintf(sock, sizeof sock, "%s/redis.sock", redis_dir);
    snprintf(cert, sizeof cert, "%s/cert.pem", redis_dir);
    snprintf(key, sizeof key, "%s/key.pem", redis_dir);
    const char *argv[] = {"redis-server",
                          "--port",
                          port,
                          "--unixsocket",
                          sock,
                          "--save",
                          "",
                          "--tls-port",
                          tls_port,
                          "--tls-cert-file",
                          cert,
                          "--tls-key-file",
                          key,
                          "--tls-ca-cert-file",
                          cert,
                          "--tls-auth-clients",
                          "no",
                          "--dir",
                          redis_dir,
                          "--bind",
                          "127.0.0.1",
                          "--requirepass",
                          REDIS_PASSWORD,
                          NULL};

    unlink(sock);
    redis_pid = fork();
    if (redis_pid == 0) {
        int log = open("/dev/null", O_RDWR);
        dup2(log, 0), dup2(log, 1), dup2(log, 2);
        execvp("redis-server", (char *const *)argv);
        _exit(127);
    }
    for (int i = 0; i < 1500 && !redis_answers(); i++) {
        if (waitpid(redis_pid, NULL, WNOHANG) == redis_pid)
            return false;
        usleep(20000);
    }
    return redis_answers();
}

static void redis_stop(int sig)
{
    kill(redis_pid, sig);
    waitpid(redis_pid, NULL, 0);
    redis_pid = 0;
}

static int redis_setup(void **state)
{
    strcpy(redis_dir, "/tmp/bellhop-redis-XXXXXX");
    assert_non_null(mkdtemp(redis_dir));
    char command[512];
    snprintf(command, sizeof command,
             "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
             "-subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout %s/key.pem "
             "-out %s/cert.pem 2>/dev/null",
             redis_dir, redis_dir);
    assert_int_equal(system(command), 0);
    bool up = false;
    for (int tries = 0; tries < 5 && !up; tries++) {
        redis_port = free_port();
        redis_tls_port = free_port();
        up = redis_try();
    }
    assert_true(up);
    snprintf(redis_url, sizeof redis_url, "redis://:s3cret%%3a%%2F%%40@127.0.0.1:%d/3", redis_port);
    return 0;
}

static int redis_teardown(void **state)
{
    if (redis_pid != 0)
        redis_stop(SIGKILL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", redis_dir);
    return system(command);
}
