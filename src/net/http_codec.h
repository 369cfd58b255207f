/* http_codec.h - HTTP/1.1 as pure functions of bytes: heads, chunked bodies, ranges.  Private to
 * src/net/.
 *
 * No function allocates, calls back or keeps state outside the structs below.
 *
 * Heads.  http_head_read() is fed all bytes of the request so far and goes on where it stopped,
 * line by line.  So a mistake is reported with its line, and a peer that sends byte by byte costs
 * no more than one that does not.
 *
 * Where RFC 9112 leaves a choice the reader takes the narrow one, because a proxy in front of
 * bellhop may take another: lines end in CR LF, nothing is folded, no space stands before a colon,
 * bytes that do not print are refused, one Host and at most one length are given, and an absolute
 * target names the same host.  http-parser and Node read everything that is accepted here the same
 * way; tests compare.
 */
#pragma once
#include "base/str.h"

enum { HTTP_MAX_FIELDS = 100 };

enum http_verb {
    VERB_GET,
    VERB_HEAD,
    VERB_POST,
    VERB_PUT,
    VERB_PATCH,
    VERB_DELETE,
    VERB_OPTIONS,
    VERB_N
};

struct http_field { /* offsets from the first byte of the request */
    uint32_t name, name_n;
    uint32_t value, value_n; /* without the white space around it */
};

struct http_fault { /* how to refuse it */
    int status;
    const char *code, *text;
};

struct http_head { /* zeroed before the first call, @fields excepted */
    uint32_t at;   /* where the line being read starts */
    uint32_t seen; /* up to here it has no end; 0: not looked at yet */
    uint8_t verb;  /* enum http_verb */
    uint8_t minor; /* of HTTP/1.x: 0 or 1 */
    bool in_fields;
    bool keep_alive;                          /* the peer will send another request */
    bool chunked, has_length;                 /* at most one of the two */
    bool expects_continue;                    /* Expect: 100-continue */
    bool upgrade;                             /* a GET that asks for a WebSocket */
    bool asks_close, asks_keep, asks_upgrade; /* in Connection */
    bool is_absolute;                         /* the target was http://host/path */
    uint64_t length;                          /* Content-Length */
    uint32_t path, path_n, query, query_n;    /* offsets; query 0: there is no "?" */
    uint32_t authority, authority_n;          /* of an absolute target */
    uint32_t host, host_n;                    /* the value of Host; host 0: none (HTTP/1.0) */
    uint32_t bytes;                           /* HEAD_DONE: how long the head is */
    struct http_fault fault;                  /* HEAD_BAD */
    uint32_t n_fields;
    struct http_field fields[HTTP_MAX_FIELDS];
};

enum http_head_end { HEAD_MORE, HEAD_DONE, HEAD_BAD };

/* Read on in the request that starts at @p, of which @n bytes are there.  A head of more than
 * @limit bytes is bad.  @p may move between calls. */
enum http_head_end http_head_read(struct http_head *h, const char *p, size_t n, size_t limit);

const char *http_verb_word(enum http_verb v); /* "GET" */

/* ---- chunked bodies, read strictly ----
 *
 *      SIZE [;NAME[=VALUE]]... CR LF --> DATA --all--> CR LF --> SIZE
 *        '--size 0--> TRAILER lines until an empty one --> DONE
 *
 * One spelling is accepted: hexadecimal digits, extensions without white space around their parts,
 * CR LF.  Extensions and trailers are skipped. */

struct http_chunks {  /* zeroed before the first call */
    uint64_t left;    /* in CHUNK_DATA: bytes of the chunk still to come */
    uint32_t line_n;  /* of the size, part of an extension or trailer line so far */
    uint32_t extra_n; /* of extensions and trailers so far */
    uint8_t state;
};

enum http_chunk_end { CHUNK_MORE, CHUNK_DATA, CHUNK_DONE, CHUNK_BAD_SIZE, CHUNK_BAD_TRAILER };

/* Skip the framing at *@at, which is advanced.  CHUNK_DATA: @k->left bytes of data start there;
 * the caller takes as many as it likes, and subtracts. */
enum http_chunk_end http_chunk_next(struct http_chunks *k, const char *p, size_t n, size_t *at,
                                    size_t trailer_limit);

/* ---- the Range header ---- */

enum http_range_end { RANGE_WHOLE, RANGE_PART, RANGE_OUTSIDE };

/* Which bytes of @size are asked for: "bytes=0-99", "bytes=100-" or "bytes=-50".  Anything else,
 * several ranges included, is RANGE_WHOLE, as RFC 9110 allows.  RANGE_OUTSIDE: answer 416. */
enum http_range_end http_range_read(struct str range, uint64_t size, uint64_t *ret_start,
                                    uint64_t *ret_n);

/* ---- dates ---- */

/* An HTTP-date in one of its three forms, or with "+0000" for "GMT" as in mails.  @ret_s: seconds
 * since 1970.  False: it is none. */
bool http_date_read(struct str text, int64_t *ret_s);

/* How long Retry-After says to wait: "120", "0.35", or until a date, by the clock of the peer's
 * @date, or ours if that is none.  A date in the past is 0.  -1: it says nothing that can be meant:
 * no number, no date, or more than a year. */
int64_t http_retry_after_ms(struct str value, struct str date, int64_t wall_ms);
