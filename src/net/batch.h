/* batch.h - batches: what an edge and the heart send each other over a trunk, as pure functions of
 * bytes.  Private to src/net/ and the simulator.
 *
 *      batch:    number (8), bytes of its messages (4), messages
 *      message:  connection (4), what (1), length (3), payload
 *
 * Numbers are little-endian.  Each side numbers its batches 1, 2, 3 ...; a number that is not the
 * next one means that a batch was lost, repeated or reordered, and the trunk is cut.
 *
 * A writer appends messages to a struct buf during a turn and closes the batch when the turn ends:
 *
 *      batch_begin(&b);
 *      batch_add(&b, number, MSG_DATA, bytes);       // any number of them
 *      batch_end(&b, ++number);
 *
 * A request travels as its head, with the offsets that the edge's parser found, and its body.  The
 * heart checks every offset and parses nothing.
 *
 *      request:  verb (1), minor (1), flags (1), fields (1), bytes of the head (2),
 *                path, query, authority, host (offset 2, length 2 each), Content-Length (8),
 *                fields (name and value: offset 2, length 2 each), if its signature was checked:
 *                signer (4), newest signer that the edge knew (4); the head, the body
 */
#pragma once
#include "base/addr.h"
#include "base/buf.h"
#include "net/http_codec.h"

enum msg_what {
    /* Both ways. */
    MSG_CREDIT = 1, /* so many bytes (4) of this connection were taken: send as many more */
    MSG_CLOSE,      /* the connection is gone, at both ends */
    MSG_BEAT,       /* a sign of life */
    MSG_GOING,      /* heart: it shuts down, bring no new requests; edge: it has stopped */
    /* Edge to heart. */
    MSG_CONNECT, /* flags (1: enum msg_connect), the client's address (0, 4 or 16) */
    MSG_REQUEST, /* a whole request */
    MSG_HEAD,    /* a request whose body follows */
    MSG_BODY,    /* a piece of the body */
    MSG_END,     /* the body is complete */
    MSG_TEXT,    /* a piece of what came over a WebSocket: end of a message (1), bytes */
    MSG_ACKS,    /* acks among a gateway's lines: their bufferIds, MSG_ID_BYTES each */
    MSG_PONG,    /* what the client's pong says */
    MSG_GONE,    /* the WebSocket has ended: close code (2) */
    MSG_PRESENT, /* a gateway's socket that outlived the last heart: struct msg_present */
    MSG_ROWS,    /* deliveries that went down it and may be unacked: struct msg_row each */
    MSG_ASKED,   /* the requestId of an action whose result did not go down it */
    MSG_SHOWN,   /* the presentation is complete */
    MSG_LEAVING, /* the edge goes: close its connections in good order */
    MSG_ANSWER,  /* a part of an answer */
    MSG_TOLD,    /* the last part of an answer */
    /* Heart to edge. */
    MSG_DATA,      /* bytes for the socket */
    MSG_NEXT,      /* the request is answered: the next one may come */
    MSG_STREAM,    /* the answer is a stream: its socket needs little of the kernel's memory */
    MSG_WS,        /* the socket becomes a WebSocket: struct msg_ws */
    MSG_LET_IN,    /* it counts for this credential and tenant, each with a NUL behind it */
    MSG_KEEP,      /* the socket outlives the heart: struct msg_keep */
    MSG_LET_GO,    /* it does not, from now on */
    MSG_SENT,      /* a delivery ends with this frame (4) of the socket: struct msg_row */
    MSG_RESULT,    /* the result of the action with this requestId is in this frame (4) */
    MSG_PARK,      /* the heart has ended its session: present the socket to the next heart */
    MSG_COMMITTED, /* the first so many acks (8) of this trunk are on disk */
    MSG_QUESTION,  /* a part of a question */
    MSG_ASK,       /* the last part of a question */
    MSG_UNASK,     /* the question is cancelled */
    /* Before the trunk is up: trunk.h. */
    MSG_CHALLENGE, /* heart: a number (16 bytes) */
    MSG_PROOF,     /* edge: a number (16), HMAC (32), its name */
    MSG_WELCOME,   /* heart: HMAC (32), its name */
    /* Heart to edge: webhooks that are signed. */
    MSG_SIGNER, /* the edge verifies signatures of this key: struct msg_signer */
    MSG_UNSIGN, /* not any more */
    MSG_N
};
enum msg_connect { CONNECT_TLS = 1, CONNECT_NO_CERT = 2, CONNECT_ADMIN = 4 };

enum {
    BATCH_HEAD_BYTES = 12,
    MSG_HEAD_BYTES = 8,
    MSG_MAX_PAYLOAD = 64 * 1024,
    BATCH_MAX_BYTES = 16 << 20, /* of messages */
    MSG_ID_BYTES = 27,          /* of a bufferId: DELIVERY_ID_CHARS */
    MSG_ROW_BYTES = 8 + MSG_ID_BYTES,
    MSG_KEY_BYTES = 32,
    MSG_PATH_BYTES = 1024,    /* of a msg_signer, at most */
    MSG_MAX_HEAD = 60 * 1024, /* of a request: with its offsets it is one message */
};

struct msg {
    uint32_t number; /* of the connection; 0: of the trunk itself */
    uint8_t what;    /* enum msg_what */
    struct str payload;
};

/* ---- batches ---- */

void batch_begin(struct buf *b); /* @b is empty: reserves the batch's head */
static inline bool batch_is_empty(const struct buf *b)
{
    return b->n <= BATCH_HEAD_BYTES;
}
/* Appends a message.  @payload has at most MSG_MAX_PAYLOAD bytes. */
void batch_add(struct buf *b, uint32_t number, enum msg_what what, struct str payload);
/* The same in two steps: append the payload to @b, then batch_add_end() with the result. */
size_t batch_add_begin(struct buf *b, uint32_t number, enum msg_what what);
void batch_add_end(struct buf *b, size_t begun);
void batch_end(struct buf *b, uint64_t number);

/* How many bytes the batch at the front of @bytes has; 0: its head is not complete; SIZE_MAX: more
 * than BATCH_MAX_BYTES. */
size_t batch_bytes(struct str bytes);
/* The messages of the batch @whole.  False: it is malformed, or not the batch after *@no, which
 * becomes its number. */
bool batch_open(struct str whole, uint64_t *no, struct str *ret_messages);
/* Takes the next message off *@messages.  False: there is none; *@ret_bad: the rest is
 * malformed. */
bool batch_next(struct str *messages, struct msg *ret, bool *ret_bad);

/* ---- numbers in payloads ---- */

static inline void put_u16(char *p, uint16_t v)
{
    p[0] = (char)v;
    p[1] = (char)(v >> 8);
}
static inline void put_u32(char *p, uint32_t v)
{
    put_u16(p, (uint16_t)v);
    put_u16(p + 2, (uint16_t)(v >> 16));
}
static inline void put_u64(char *p, uint64_t v)
{
    put_u32(p, (uint32_t)v);
    put_u32(p + 4, (uint32_t)(v >> 32));
}
static inline uint16_t get_u16(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;

    return (uint16_t)(b[0] | b[1] << 8);
}
static inline uint32_t get_u32(const char *p)
{
    return get_u16(p) | (uint32_t)get_u16(p + 2) << 16;
}
static inline uint64_t get_u64(const char *p)
{
    return get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}
void batch_add_u32(struct buf *b, uint32_t number, enum msg_what what, uint32_t value);

/* ---- requests ---- */

struct msg_request { /* borrowed from the message */
    struct http_head *head;
    struct str head_bytes, body;
    uint32_t signer;  /* of the webhook's signature, which the edge has checked; 0: nobody's */
    uint32_t checked; /* the newest signer that the edge knew; 0: it has not checked */
    bool expects;     /* the client waits for "100 Continue" before it sends the body */
};
/* Appends a REQUEST, or a HEAD, which has no body. */
void batch_add_request(struct buf *b, uint32_t number, enum msg_what what,
                       const struct msg_request *r);
/* Fills @ret->head, which the caller provides.  False: an offset is outside the head. */
bool batch_read_request(struct str payload, struct msg_request *ret);

/* ---- the rest ---- */

struct msg_ws {
    bool gateway;         /* its lines are the relay's: acks among them are recognised */
    uint32_t max_message; /* bytes; a longer message is refused */
    uint32_t before;      /* so many bytes of DATA come before the first frame */
};
void batch_add_ws(struct buf *b, uint32_t number, const struct msg_ws *w);
bool batch_read_ws(struct str payload, struct msg_ws *ret); /* false: malformed */

struct msg_signer {
    uint32_t id;        /* those of one trunk ascend */
    const uint8_t *key; /* Ed25519, MSG_KEY_BYTES */
    struct str path;    /* of the requests that are signed with it */
};
void batch_add_signer(struct buf *b, enum msg_what what, const struct msg_signer *s);
bool batch_read_signer(struct str payload, struct msg_signer *ret); /* false: malformed */

/* False: not flags and an address. */
bool batch_read_connect(struct str payload, uint8_t *ret_flags, struct addr *ret_peer);

struct msg_row {
    uint64_t row;  /* the store's id of the delivery */
    struct str id; /* its bufferId, MSG_ID_BYTES */
};
void batch_put_row(struct buf *b, const struct msg_row *r); /* appends it */
/* Takes the next row off *@rows.  False: there is none. */
bool batch_next_row(struct str *rows, struct msg_row *ret);

/* Texts with a NUL behind each, in the order of the members.  False: too few, or too many. */
struct msg_keep {
    struct str gateway, tenant, instance;
    struct str since; /* when the gateway was added: another one may get its id */
    struct str rank;  /* a number: which of a gateway's sockets is newer */
};
struct msg_present {
    struct msg_keep keep;
    struct str acked;  /* "1": this socket has acked; "late": its hello has late_acks */
    struct str hellos; /* its hello lines */
};
struct msg_let_in {
    struct str credential, tenant;
};
void batch_put_texts(struct buf *b, const struct str *texts, size_t n);
bool batch_read_texts(struct str payload, struct str *ret, size_t n);
