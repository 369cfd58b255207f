/* err.h - error codes, named by what the caller can do about them. */
#pragma once

enum bh_err {
    BH_OK,
    BH_BUSY,        /* over a limit: retry later */
    BH_UNAVAILABLE, /* the other side cannot be reached: retry later */
    BH_REFUSED,     /* the other side said no: do not retry */
    BH_MALFORMED,   /* the peer sent nonsense: close it */
    BH_CONFLICT,    /* somebody else was first: look again, then decide */
    BH_NOT_FOUND,   /* there is no such thing */
    BH_FENCED,      /* somebody else owns it by now: stop */
    BH_CANCELLED,   /* called off by its owner */
    BH_UNKNOWN,     /* sent, but the answer never came: it may or may not have happened */
};

/* A stable lower-case word ("busy"), for logs, metrics and JSON "code" fields. */
const char *bh_err_word(enum bh_err err);

#define BH_MUST_USE __attribute__((warn_unused_result))
#define BH_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
