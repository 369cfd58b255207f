/* hello.c - the smallest agent: it greets whoever writes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <bellhop/gateway.h>

static enum bhgw_verdict on_event(void *ctx, struct bhgw *gw, const struct bhgw_event *ev)
{
    char text[256];

    (void)ctx;
    snprintf(text, sizeof text, "Hello, %s!", ev->user_name ? ev->user_name : "stranger");
    bhgw_reply(gw, ev, text, NULL, NULL);
    return BHGW_ACK; /* taken: the connector may forget it */
}

int main(void)
{
    struct bhgw_options opt = bhgw_options_init();
    char error[256];
    sigset_t ends;
    int sig;

    opt.url = getenv("GATEWAY_RELAY_URL");
    opt.gateway_id = getenv("GATEWAY_RELAY_ID");
    opt.secret = getenv("GATEWAY_RELAY_SECRET");
    opt.on_event = on_event;
    struct bhgw *gw = bhgw_new(&opt, error, sizeof error);
    if (gw == NULL)
        return fprintf(stderr, "hello: %s\n", error), 2;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    if (bhgw_open(gw) != BHGW_OK) /* dials now, and again whenever the connection is lost */
        return fprintf(stderr, "hello: there are no threads left\n"), 1;
    sigwait(&ends, &sig);
    bhgw_close(gw); /* says goodbye: what arrives from now on is kept */
    bhgw_free(gw);
    return 0;
}
