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
extern const struct contract_field contract_reply_to_fields[];
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

struct contract_close {
    int code;
    bool terminal; /* the gateway does not come back */
};
extern const struct contract_close contract_close_codes[];

/* Sizes and times both sides count on: bellhop's defaults, under the names the relay's limits have.
 */
#define CONTRACT_WINDOW 8                /* unacked WebSocket messages per socket */
#define CONTRACT_PACK_BYTES (256 * 1024) /* frames packed into one message, at most */
#define CONTRACT_MAX_FRAME (1024 * 1024) /* one message, one line, either direction */
#define CONTRACT_MAX_ATTEMPTS 10         /* redeliveries, then a delivery is parked */
#define CONTRACT_PING_MS 10000           /* between our pings */
#define CONTRACT_PONG_PATIENCE_MS 20000  /* no pong for this long: away */
#define CONTRACT_ACK_PATIENCE_MS 90000   /* no ack for this long: away */
#define CONTRACT_OLD_SOCKET_MS 60000     /* a superseded socket is closed after */
#define CONTRACT_ACTION_MS 28000         /* then an outbound is answered "timed out" */
#define CONTRACT_WAKE_COOLDOWN_MS 30000  /* between two pokes of one instance */

struct contract_limit {
    const char *name; /* "window", "pack_bytes", ... */
    int64_t value;
};
extern const struct contract_limit contract_limits[];
