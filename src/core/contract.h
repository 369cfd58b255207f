/* contract.h - the close codes and the limits of the relay's wire, on which both sides rely.
 *
 * docs/contract.md has them in tables, which tests compare with this header. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* WebSocket close codes. */
enum close_code {
    CLOSE_CODE_NORMAL = 1000,
    CLOSE_CODE_PROTOCOL = 1002,
    CLOSE_CODE_NONE = 1005, /* never sent: the peer closed without a code */
    CLOSE_CODE_LOST = 1006, /* never sent: the connection was lost */
    CLOSE_CODE_NOT_UTF8 = 1007,
    CLOSE_CODE_POLICY = 1008,
    CLOSE_CODE_TOO_LARGE = 1009,
    CLOSE_CODE_RESTART = 1012,
    CLOSE_CODE_BUSY = 1013,
    CLOSE_CODE_UNAUTHORIZED = 4401,
};

/* Why bellhop closes a gateway's socket; indexes contract_closes[], in order of the codes. */
enum close_reason {
    CLOSE_ANSWERED,
    CLOSE_NOT_WEBSOCKET,
    CLOSE_NOT_UTF8,
    CLOSE_TOO_SLOW,
    CLOSE_NO_HELLO,
    CLOSE_MALFORMED,
    CLOSE_SLEEPS_TOO_OFTEN,
    CLOSE_TOO_LARGE,
    CLOSE_RESTARTING,
    CLOSE_REPLACED,
    CLOSE_FELL_ASLEEP,
    CLOSE_NO_ACKS,
    CLOSE_NO_PONGS,
    CLOSE_TRY_LATER,
    CLOSE_UNAUTHORIZED,
    CLOSE_REVOKED,
    CLOSE_REASONS, /* how many there are */
};

struct contract_close {
    int code;         /* enum close_code */
    bool terminal;    /* the gateway does not reconnect; equal for all reasons of one code */
    const char *text; /* the reason that is sent; NULL: none */
};
extern const struct contract_close contract_closes[CLOSE_REASONS + 1];

/* Sizes and times that both sides rely on: the defaults of the relay's limits of the same names. */
#define CONTRACT_WINDOW 8                /* unacked WebSocket messages per socket */
#define CONTRACT_PACK_BYTES (256 * 1024) /* frames packed into one message, at most */
#define CONTRACT_MAX_FRAME (1024 * 1024) /* one message; one line of a gateway */
#define CONTRACT_MAX_ATTEMPTS 10         /* attempts (lost sockets) before a delivery is parked */
#define CONTRACT_PING_MS 10000           /* interval of bellhop's pings */
#define CONTRACT_PONG_PATIENCE_MS 20000  /* timeout for a pong: then the gateway is away */
#define CONTRACT_ACK_PATIENCE_MS 90000   /* timeout for an ack: then the gateway is away */
#define CONTRACT_ACK_LINGER_MS 6         /* acks are collected for this long before a write */
#define CONTRACT_OLD_SOCKET_MS 60000     /* delay before a superseded socket is closed */
#define CONTRACT_ACTION_MS 28000         /* timeout of an outbound: answered "timed out" */
#define CONTRACT_WAKE_COOLDOWN_MS 30000  /* shortest interval between two wakes of an instance */
#define CONTRACT_WAKE_LONGEST_MS 900000  /* longest interval between two wakes in vain */
#define CONTRACT_STOP_HOLD_MS 2000       /* delay between the interrupt and text of a /stop */
