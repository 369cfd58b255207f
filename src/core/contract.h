/* contract.h - the fields, frames, errors, close codes and limits of the relay's wire as data.
 *
 * Tests compare docs/contract.md and the hand-written writers (event.c, frame.c, descriptor.c) with
 * these lists.  The lists do not drive the writers, which are faster by hand.
 *
 * Every list ends with an entry whose name is NULL (whose code is 0). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct contract_field {
    const char *name;
    bool required;    /* written: always present; read: without it the object is invalid */
    const char *type; /* "string", "string or null", "int", "bool", "string[]", "object", ... */
};

/* written by bellhop */
extern const struct contract_field contract_descriptor_fields[];
extern const struct contract_field contract_event_fields[];
extern const struct contract_field contract_source_fields[];
extern const struct contract_field contract_context_fields[];
extern const struct contract_field contract_said_source_fields[];
extern const struct contract_field contract_reply_to_fields[];
extern const struct contract_field contract_prompt_response_fields[];
extern const struct contract_field contract_forward_fields[];
extern const struct contract_field contract_result_fields[];
extern const struct contract_field contract_chat_info_fields[];
/* read by bellhop */
extern const struct contract_field contract_action_fields[];
extern const struct contract_field contract_metadata_fields[];

struct contract_frame {
    const char *type;
    bool to_gateway;                     /* else: from the gateway */
    const struct contract_field *fields; /* beside `type` */
};
extern const struct contract_frame contract_frames[];

extern const char *const contract_ops[];

struct contract_error {
    const char *prefix; /* of the text in result.error */
    const char *effect; /* one word: the gateway's reaction */
};
extern const struct contract_error contract_errors[];

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
#define CONTRACT_STOP_HOLD_MS 2000       /* delay between the interrupt and text of a /stop */

struct contract_limit {
    const char *name; /* "window", "pack_bytes", ... */
    int64_t value;
};
extern const struct contract_limit contract_limits[];
