/* The whole server, asked by a stranger: the chat page, its posts, cookies and streams, gateways'
 * upgrades, the management plane, /v1, /mcp and webhooks.  The input is a request without its
 * length: lines of a head, an empty line, a body. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/log.h"
#include "cli/server.h"
#include "cli/settings.h"
#include "net/http_server.h"
#include "net/loop.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct server server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static void set_up(void)
{
    static char dir[] = "/dev/shm/bellhop-fuzz-XXXXXX";
    char path[64], why[512];
    struct buf said = BUF_INIT;
    struct config *cfg;

    if (mkdtemp(dir) == NULL)
        abort();
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", dir);
    snprintf(path, sizeof path, "%s/bellhop.yaml", dir);
    FILE *f = fopen(path, "we");
    if (f == NULL)
        abort();
    fprintf(f,
            "listen: unix:%s/s\nstate_dir: %s/state\nconfine: off\nlog: {level: error}\n"
            "public_url: https://example.org\nstore: {max_size: 64MiB, reserve: 1MiB}\n"
            "platforms:\n  - {platform: web, bot: lobby}\n"
            "  - {platform: twilio, bot: \"+15550100\", account_sid: AC1, auth_token: t}\n",
            dir, dir);
    fclose(f);
    if (settings_load(path, &cfg, &said) != BH_OK)
        abort();
    log_apply(config_get(cfg, &log_config));
    if (server_open(&server, cfg, why) != BH_OK)
        abort();
    buf_done(&said);
}

static void turns(int n)
{
    while (n-- > 0)
        loop_turn(server.front.loop, 0);
}

/* As it would travel: CRLF, and the length of the body. */
static void write_request(struct str input, struct buf *out)
{
    struct str rest = input, line;

    while (str_split(&rest, '\n', &line) && line.n > 0) {
        buf_add_str(out, line);
        buf_add_z(out, "\r\n");
    }
    if (rest.n > 0)
        buf_printf(out, "Content-Length: %zu\r\n", rest.n);
    buf_add_z(out, "Connection: close\r\n\r\n");
    buf_add_str(out, rest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf request = BUF_INIT;
    char sink[4096];
    int fd;

    if (server.front.loop == NULL)
        set_up();
    write_request(str_make(data, size), &request);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        abort();
    (void)!send(fd, request.p, request.n, MSG_NOSIGNAL);
    for (int i = 0; i < 20 && recv(fd, sink, sizeof sink, 0) < 0; i++)
        loop_turn(server.front.loop, 1);
    while (recv(fd, sink, sizeof sink, 0) > 0)
        turns(1);
    close(fd);
    for (int i = 0; i < 200 && http_server_connections(server.front.server) > 0; i++)
        loop_turn(server.front.loop, 1);
    if (http_server_connections(server.front.server) > 0)
        abort(); /* it kept a connection nobody holds the other end of */
    buf_done(&request);
    return 0;
}
