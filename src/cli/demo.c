/* demo.c - see demo.h.
 *
 * The server and the two commands that prepare it are this program again, so the demonstration goes
 * through the same doors as any installation. */
#include "cli/demo.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/self.h"
#include "cli/settings.h"

#define PORT 7077 /* the default of `bellhop serve`; another one if it is taken */

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
    settings_drop_environment(); /* its server is of its own */
    if (!make_dir(d, ret_why))
        return false;
    const char *const serve[] = {"serve", "-c", d->config, NULL};
    if (!self_start(serve, -1, &d->server, &fd, ret_why))
        return false;
    bool up = self_read(fd, true, &ready);
    close(fd);
    if (!up)
        return bh_why(ret_why, "the server of --demo did not start");
    const char *const add[] = {"gateway", "add",   "-c",   d->config,    "--tenant",
                               "demo",    "--id",  "demo", "--platform", "web",
                               "--bot",   "lobby", NULL};
    const char *const link[] = {"link", "--instance", "demo", "-c", d->config, NULL};
    if (!self_run(add, &credential, ret_why) || !self_run(link, &code, ret_why))
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
    if (d->server > 0)
        self_end(d->server);
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
