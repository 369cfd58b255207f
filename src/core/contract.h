/* contract.h - the names of the relay wire as data.
 *
 * What bellhop reads and writes on a gateway's socket, listed once, so that docs/contract.md, the
 * tests and the dashboard can be held against the same list.  The lists do not drive the writers
 * (event.c and its neighbours are faster by hand); a test compares the two.
 *
 * Every list ends with an entry whose name is NULL (whose code is 0). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct contract_field {
    const char *name;
    bool required;    /* written: always there; read: without it the object means nothing */
    const char *type; /* "string", "string or null", "int", "bool", "string[]", "object", ... */
};

/* What we write. */
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
/* What we read. */
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
    const char *prefix; /* how the text of result.error starts */
    const char *effect; /* one word: what the gateway does then */
};
extern const struct contract_error contract_errors[];

/* What travels when a WebSocket ends.  The two that never travel stand for what did not. */
enum close_code {
    CLOSE_CODE_NORMAL = 1000,
    CLOSE_CODE_PROTOCOL = 1002,
    CLOSE_CODE_NONE = 1005, /* never travels: a close without a code */
    CLOSE_CODE_LOST = 1006, /* never travels: the peer vanished */
    CLOSE_CODE_NOT_UTF8 = 1007,
    CLOSE_CODE_POLICY = 1008,
    CLOSE_CODE_TOO_LARGE = 1009,
    CLOSE_CODE_RESTART = 1012,
    CLOSE_CODE_BUSY = 1013,
    CLOSE_CODE_UNAUTHORIZED = 4401,
};

/* Why we close a gateway's socket: the index of contract_closes[], in order of the codes. */
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
    bool terminal;    /* the gateway does not come back; the same for all reasons of one code */
    const char *text; /* the reason as it travels; NULL: none */
};
extern const struct contract_close contract_closes[CLOSE_REASONS + 1];

/* Sizes and times both sides count on: bellhop's defaults, under the names the relay's limits have.
 */
#define CONTRACT_WINDOW 8                /* unacked WebSocket messages per socket */
#define CONTRACT_PACK_BYTES (256 * 1024) /* frames packed into one message, at most */
#define CONTRACT_MAX_FRAME (1024 * 1024) /* one message; one line of a gateway */
#define CONTRACT_MAX_ATTEMPTS 10         /* sockets lost with it, then a delivery is parked */
#define CONTRACT_PING_MS 10000           /* between our pings */
#define CONTRACT_PONG_PATIENCE_MS 20000  /* no pong for this long: away */
#define CONTRACT_ACK_PATIENCE_MS 90000   /* no ack for this long: away */
#define CONTRACT_ACK_LINGER_MS 6         /* an ack waits so long for others before it is written */
#define CONTRACT_OLD_SOCKET_MS 60000     /* a superseded socket is closed after */
#define CONTRACT_ACTION_MS 28000         /* then an outbound is answered "timed out" */
#define CONTRACT_WAKE_COOLDOWN_MS 30000  /* between two pokes of one instance */
#define CONTRACT_STOP_HOLD_MS 2000       /* the text of a /stop follows its interrupt after */

struct contract_limit {
    const char *name; /* "window", "pack_bytes", ... */
    int64_t value;
};
extern const struct contract_limit contract_limits[];
