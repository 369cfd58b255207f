/* net_http.c - the HTTP server of src/net with nothing behind it: reads a POST, answers 200.
 *
 * Measured beside lws_http.c with the same client; the difference is why src/net has its own
 * server. */
#include <stdio.h>
#include "net/http_server.h"
#include "net/loop.h"

static struct http_server *server;

static void on_request(void *ctx, struct http_req *req)
{
    http_answer(server, http_req_id(req),
                &(struct http_answer){.status = 200, .body = STR("{\"id\":\"0000000000000000\"}")});
}

int main(void)
{
    char why[256];
    struct loop *loop = loop_new();

    server = http_server_new(loop, NULL, on_request, NULL);
    if (http_server_listen(server, STR("127.0.0.1:0"), NULL, 0, why) != BH_OK) {
        fprintf(stderr, "net_http: %s\n", why);
        return 1;
    }
    printf("port %d\n", http_server_port(server));
    fflush(stdout);
    loop_run(loop);
    return 0;
}
