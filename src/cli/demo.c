/* demo.c - see demo.h.
 *
 * The server and the two commands that prepare it are this program again, so the demonstration goes
 * through the same doors as any installation. */
#include "cli/demo.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/launch.h"
#include "base/mem.h"
#include "cli/settings.h"

#define PORT 7077 /* the default of `bellhop serve`; another one if it is taken */
#define MAX_OUTPUT 65536

static bool is_free(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    bool ok;

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ok = fd >= 0 && bind(fd, (const struct sockaddr *)(const void *)&at, sizeof at) == 0;
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Starts this program with @args (at most 14, NULL at the end).  Its output goes to *@ret_out, its
 * hints for people nowhere if @quiet. */
static bool start_self(const char *const *args, bool quiet, pid_t *ret_pid, int *ret_out,
                       char *ret_why)
{
    char self[4096], *argv[16] = {self};
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int out[2];

    self[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < 14 && args[i] != NULL; i++)
        argv[i + 1] = (char *)(uintptr_t)args[i];
    if (pipe2(out, O_CLOEXEC) < 0)
        return bh_why(ret_why, "no pipe: %s", strerror(errno));
    int null = quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    int rc = launch(argv, environ, (int[]){-1, out[1], null}, ret_pid);
    close(out[1]);
    if (null >= 0)
        close(null);
    *ret_out = out[0];
    if (rc != 0)
        close(out[0]);
    return rc == 0 || bh_why(ret_why, "%.200s: %s", self, strerror(rc));
}

/* Reads until the end, or with @line until the first newline.  False: the output ended before. */
static bool read_output(int fd, bool line, struct buf *out)
{
    char bytes[1024];
    ssize_t n = 1;

    while (n != 0 && out->n < MAX_OUTPUT && !(line && str_find(buf_str(out), '\n') >= 0)) {
        n = read(fd, bytes, sizeof bytes);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0)
            buf_add(out, bytes, (size_t)n);
    }
    return !line || str_find(buf_str(out), '\n') >= 0;
}

static bool run_self(const char *const *args, struct buf *out, char *ret_why)
{
    int fd, status = 1;
    pid_t pid;

    if (!start_self(args, true, &pid, &fd, ret_why))
        return false;
    read_output(fd, false, out);
    close(fd);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0 || bh_why(ret_why, "`bellhop %s` failed", args[0]);
}

/* The value of "NAME=value" in the output of `gateway add`. */
static char *value_of(struct str text, const char *name)
{
    struct str line;

    while (str_split(&text, '\n', &line)) {
        size_t n = strlen(name);
        if (str_starts(line, str_of(name)) && line.n > n && line.p[n] == '=')
            return str_dup(str_skip(line, n + 1));
    }
    return NULL;
}

static bool make_dir(struct demo *d, char *ret_why)
{
    const char *tmp = getenv("TMPDIR");
    BUF_LOCAL text = BUF_INIT, dir = BUF_INIT;

    buf_printf(&dir, "%s/bellhop-demo-XXXXXX", tmp != NULL && *tmp == '/' ? tmp : "/tmp");
    char *made = mkdtemp((char *)(uintptr_t)buf_z(&dir));
    if (made == NULL)
        return bh_why(ret_why, "%.180s: %s", buf_z(&dir), strerror(errno));
    d->dir = xstrdup(made);
    d->config = state_dir_path(d->dir, "bellhop.yaml");
    buf_printf(&text,
               "listen: 127.0.0.1:%d\n"
               "state_dir: %s\n"
               "platforms: [{platform: web, bot: lobby, title: Your agent}]\n"
               "log: {level: warn}\n",
               is_free(PORT) ? PORT : 0, d->dir);
    return file_put(d->config, O_EXCL, buf_str(&text)) ||
           bh_why(ret_why, "%.180s: %s", d->config, strerror(errno));
}

bool demo_begin(struct demo *d, char *ret_why)
{
    BUF_LOCAL ready = BUF_INIT, code = BUF_INIT;
    BUF_SECRET credential = BUF_INIT;
    struct str word;
    int fd;

    *d = (struct demo){0};
    if (!make_dir(d, ret_why))
        return false;
    const char *const serve[] = {"serve", "-c", d->config, NULL};
    if (!start_self(serve, false, &d->server, &fd, ret_why))
        return false;
    bool up = read_output(fd, true, &ready);
    close(fd);
    if (!up)
        return bh_why(ret_why, "the server of --demo did not start");
    const char *const add[] = {"gateway", "add",   "-c",   d->config,    "--tenant",
                               "demo",    "--id",  "demo", "--platform", "web",
                               "--bot",   "lobby", NULL};
    const char *const link[] = {"link", "--instance", "demo", "-c", d->config, NULL};
    if (!run_self(add, &credential, ret_why) || !run_self(link, &code, ret_why))
        return false;
    d->url = value_of(buf_str(&credential), "GATEWAY_RELAY_URL");
    d->id = value_of(buf_str(&credential), "GATEWAY_RELAY_ID");
    d->secret = value_of(buf_str(&credential), "GATEWAY_RELAY_SECRET");
    struct str rest = str_trim(buf_str(&code));
    if (str_split(&rest, ' ', &word))
        d->link = str_dup(word);
    return (d->url != NULL && d->id != NULL && d->secret != NULL && d->link != NULL) ||
           bh_why(ret_why, "the server of --demo gave no credential");
}

void demo_end(struct demo *d)
{
    if (d->server > 0) {
        kill(d->server, SIGTERM);
        while (waitpid(d->server, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (d->dir != NULL)
        state_dir_remove(d->dir);
    free(d->dir);
    free(d->config);
    free(d->url);
    free(d->id);
    free(d->secret);
    free(d->link);
    *d = (struct demo){0};
}
