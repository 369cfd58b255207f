/* A hostile HTTP client, over a real socket and the real loop: the first byte says where the bytes
 * are cut in two, the second how the handler behaves.  Whatever comes, the server must survive it,
 * hold its limits and let go of the connection. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/log.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/ws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD_BYTES = 2048, BODY_BYTES = 4096 };
enum { ANSWER_LATER = 1, STREAM = 2, UPGRADE = 4, CLOSE = 8 };

static struct loop *loop;
static struct http_server *server;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static unsigned behaviour;
static struct http_id waiting;
static bool is_waiting;
static struct ws *ws;

static void on_data(void *ctx, struct str bytes, bool end)
{
    (void)ctx;
    if (end)
        ws_send(ws, bytes);
}

static void on_closed(void *ctx, int code)
{
    (void)ctx, (void)code;
    ws = NULL;
}

static const struct ws_handlers handlers = {.max_message = 1000,
                                            .max_queued = 10000,
                                            .on_data = on_data,
                                            .on_closed = on_closed};

static void on_stream_closed(void *ctx, struct http_id id)
{
    (void)ctx, (void)id;
}

static void look_at(struct http_req *r)
{
    struct buf value = BUF_INIT;
    struct str cookie;

    if (http_body(r).n > BODY_BYTES || http_path(r).n > HEAD_BYTES || http_method(r).n == 0)
        abort();
    if (memchr(http_path(r).p, '\n', http_path(r).n) != NULL)
        abort();
    (void)http_query(r, "a", &value);
    (void)http_cookie(r, "a", &cookie);
    struct str a = http_header(r, "a"), peer = http_peer(r);
    if (a.n > HEAD_BYTES || !str_eq(peer, STR("unix")))
        abort();
    buf_done(&value);
}

static void handler(void *ctx, struct http_req *r)
{
    struct http_id id = http_req_id(r);

    (void)ctx;
    look_at(r);
    if (http_is_upgrade(r) && (behaviour & UPGRADE) && ws == NULL) {
        ws = ws_accept(server, r, &handlers, NULL);
    } else if (behaviour & STREAM) {
        http_stream_begin(server, id, &(struct http_answer){.status = 200}, 10000, on_stream_closed,
                          NULL);
        http_stream_write(server, id, http_body(r));
        http_stream_end(server, id);
    } else if (behaviour & ANSWER_LATER) {
        waiting = id;
        is_waiting = true;
    } else {
        http_answer(server, id,
                    &(struct http_answer){.status = 200,
                                          .body = http_body(r),
                                          .close = (behaviour & CLOSE) != 0});
    }
}

static void set_up(void)
{
    static char dir[] = "/tmp/bellhop-fuzz-XXXXXX";
    char where[128], why[256];

    log_setup(LOG_ERROR, false);
    if (mkdtemp(dir) == NULL)
        abort();
    snprintf(address.sun_path, sizeof address.sun_path, "%s/s", dir);
    snprintf(where, sizeof where, "unix:%s", address.sun_path);
    loop = loop_new();
    server =
        http_server_new(loop,
                        &(struct http_limits){.head_bytes = HEAD_BYTES, .body_bytes = BODY_BYTES},
                        handler, NULL);
    if (http_server_listen(server, str_of(where), NULL, 0600, why) != BH_OK)
        abort();
}

static void turns(int n)
{
    while (n-- > 0) {
        loop_turn(loop, 0);
        if (is_waiting) {
            is_waiting = false;
            http_answer(server, waiting, &(struct http_answer){.status = 200});
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char sink[4096];
    size_t cut;
    int fd;

    if (size < 3 || size > 60000)
        return 0;
    if (loop == NULL)
        set_up();
    behaviour = data[1];
    cut = 2 + data[0] % (size - 2);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        abort();
    (void)!send(fd, data + 2, cut - 2, MSG_NOSIGNAL);
    turns(2);
    (void)!send(fd, data + cut, size - cut, MSG_NOSIGNAL);
    turns(4);
    while (recv(fd, sink, sizeof sink, 0) > 0)
        turns(1);
    close(fd);
    for (int i = 0; i < 100 && http_server_connections(server) > 0; i++)
        turns(1);
    if (http_server_connections(server) > 0)
        abort(); /* it kept a connection nobody holds the other end of */
    return 0;
}
