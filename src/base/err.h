/* err.h - error codes, named by what the caller can do about them. */
#pragma once
#include <stdbool.h>

enum bh_err {
    BH_OK,
    BH_BUSY,        /* over a limit: retry later */
    BH_UNAVAILABLE, /* the other side cannot be reached: retry later */
    BH_REFUSED,     /* the other side said no: do not retry */
    BH_MALFORMED,   /* the peer sent nonsense: close it */
    BH_CONFLICT,    /* another writer was first: read again, then decide */
    BH_NOT_FOUND,   /* no such record */
    BH_FENCED,      /* another node owns it now: stop */
    BH_CANCELLED,   /* cancelled by its owner */
    BH_UNKNOWN,     /* sent, but no answer came: the outcome is unknown */
};

/* A stable lower-case word ("busy"), for logs, metrics and JSON "code" fields. */
const char *bh_err_word(enum bh_err err);

#define BH_MUST_USE __attribute__((warn_unused_result))
#define BH_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Write a sentence for people to @ret_why (256 bytes) and return @err, or false. */
enum bh_err bh_err_why(enum bh_err err, char *ret_why, const char *fmt, ...) BH_PRINTF(3, 4);
bool bh_why(char *ret_why, const char *fmt, ...) BH_PRINTF(2, 3);
