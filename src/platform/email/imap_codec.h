/* imap_codec.h - reads the responses of an IMAP server (RFC 3501) as they come.  Pure.
 *
 *      while ((fed = imap_feed(&r, &bytes, &resp)) == IMAP_RESPONSE) ...
 *
 * The reader holds one response.  The body of a mail (BODY[]) is kept apart and may have max_body
 * bytes; other literals are skipped, and the rest of a response may have IMAP_MAX_LINE bytes.
 * imap.c calls it with every byte that the server sends; tests/fuzz/fuzz_email.c does too.
 */
#pragma once
#include "base/buf.h"

#define IMAP_MAX_LINE 65536

enum imap_kind {
    IMAP_OTHER,    /* not of interest */
    IMAP_TAGGED,   /* the end of a command: tag, status */
    IMAP_CONTINUE, /* "+" */
    IMAP_STATUS,   /* untagged OK, NO, BAD, BYE or PREAUTH */
    IMAP_EXISTS,   /* number */
    IMAP_EXPUNGE,  /* number */
    IMAP_FETCH,    /* number, and what of uid, size, date and body the server told */
    IMAP_CAPABILITY,
};
enum imap_status { IMAP_OK, IMAP_NO, IMAP_BAD, IMAP_BYE };

struct imap_response { /* strs are borrowed until the next imap_feed() */
    enum imap_kind kind;
    enum imap_status status;
    uint32_t tag;        /* the number behind the tag's letter */
    uint32_t number;     /* EXISTS, EXPUNGE, FETCH */
    struct str code;     /* "UIDVALIDITY"; absent: none */
    uint64_t code_value; /* 0: it has no number */
    struct str text;     /* of a status or a capability */
    uint32_t uid;        /* 0: not told */
    uint64_t size;       /* RFC822.SIZE; 0: not told */
    int64_t date_ms;     /* INTERNALDATE as wall clock; 0: not told */
    bool has_body;       /* BODY[] is in imap_reader.body */
    bool body_too_long;  /* the body was skipped */
};

struct imap_reader { /* zeroed, with max_body set, before the first byte */
    size_t max_body;
    struct buf line, body; /* owned; the caller may take the body away after a response */
    uint64_t left;         /* bytes of the literal that are still to come */
    enum { IMAP_IN_LINE, IMAP_IN_BODY, IMAP_IN_OTHER } in; /* private from here on */
    bool has_body, body_too_long, done;
};
void imap_reader_done(struct imap_reader *r);

enum imap_fed {
    IMAP_MORE,     /* all bytes are used, and the response is not complete */
    IMAP_RESPONSE, /* *@ret is filled; @bytes is what follows */
    IMAP_BROKEN,   /* not IMAP, or a line that is too long: close the connection */
};
enum imap_fed imap_feed(struct imap_reader *r, struct str *bytes, struct imap_response *ret);

/* "17-Jul-1996 02:44:25 -0700" as wall clock.  False: not a date. */
bool imap_date(struct str s, int64_t *ret_ms);
/* Writes @s as a quoted string.  False: it has bytes that a quoted string cannot carry. */
bool imap_quote(struct buf *out, struct str s);
