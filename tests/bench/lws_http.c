/* lws_http.c - the same as net_http.c on libwebsockets and its libev plugin. */
#include <libwebsockets.h>
#include <ev.h>
#include <stdio.h>
#include <string.h>

static const char body[] = "{\"id\":\"0000000000000000\"}";

static int answer(struct lws *wsi)
{
    unsigned char buf[LWS_PRE + 512], *start = buf + LWS_PRE, *p = start, *end = buf + sizeof buf;

    if (lws_add_http_common_headers(wsi, HTTP_STATUS_OK, "application/json", sizeof body - 1, &p,
                                    end))
        return 1;
    if (lws_finalize_http_header(wsi, &p, end))
        return 1;
    memcpy(p, body, sizeof body - 1); /* one write for head and body: the best it can do */
    p += sizeof body - 1;
    if (lws_write(wsi, start, (size_t)(p - start), LWS_WRITE_HTTP) < 0)
        return 1;
    return lws_http_transaction_completed(wsi);
}

static int on_http(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                   size_t n)
{
    switch (reason) {
    case LWS_CALLBACK_HTTP:
        return 0; /* wait for the body */
    case LWS_CALLBACK_HTTP_BODY:
        return 0;
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        return answer(wsi);
    default:
        return lws_callback_http_dummy(wsi, reason, user, in, n);
    }
}

int main(void)
{
    static const struct lws_protocols protocols[] = {
        {.name = "http", .callback = on_http, .rx_buffer_size = 4096}, {0}};
    struct ev_loop *loop = ev_default_loop(0);
    void *loops[1] = {loop};
    struct lws_context_creation_info info = {.port = 0,
                                             .iface = "127.0.0.1",
                                             .protocols = protocols,
                                             .foreign_loops = loops,
                                             .options = LWS_SERVER_OPTION_LIBEV,
                                             .keepalive_timeout = 75};

    lws_set_log_level(LLL_ERR, NULL);
    struct lws_context *context = lws_create_context(&info);
    if (context == NULL) {
        fputs("lws_http: libwebsockets did not start (is libwebsockets-evlib-ev installed?)\n",
              stderr);
        return 1;
    }
    printf("port %d\n", lws_get_vhost_listen_port(lws_get_vhost_by_name(context, "default")));
    fflush(stdout);
    ev_run(loop, 0);
    lws_context_destroy(context);
    return 0;
}
