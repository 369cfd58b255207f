/* gateway_priv.h - between gateway.c (states and sockets) and gateway_talk.c (what is said). */
#pragma once
#include "base/log.h"
#include "platform/discord/gateway.h"

struct dgateway {
    unsigned magic;
#define DGATEWAY_MAGIC 0x64677779u
    struct dgateway_options opt;
    struct log log;
    enum dgateway_state state;
    char *url; /* owned */
    /* the session; session_id "" means there is none */
    char session_id[128], resume_url[256];
    uint64_t confirmed, received;
    /* the socket */
    bool socket;                /* there is one, open or being opened */
    struct json_parser *parser; /* owned */
    struct timer patience, beat;
    int64_t beat_ms, beat_due_ms, beat_sent_ms, latency_ms;
    bool beat_acked;
    unsigned failures; /* attempts since the last time we were LIVE */
    int64_t minute_ms; /* when the minute of @sends began */
    unsigned sends;
};

static inline int64_t dgateway_now_ms(const struct dgateway *g)
{
    return clock_now_ms(g->opt.clock);
}

/* ---- gateway.c ---- */
void dgateway_enter(struct dgateway *g, enum dgateway_state next);
void dgateway_wait(struct dgateway *g, int64_t ms); /* without a socket */
/* The socket is gone or given up: try again, with the session if there is one. */
void dgateway_retry(struct dgateway *g, const char *why);
void dgateway_forget_session(struct dgateway *g);

/* ---- gateway_talk.c ---- */
timer_cb dgateway_on_beat;
