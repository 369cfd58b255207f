/* err.c - the words behind enum bh_err, and sentences about failures. */
#include "base/err.h"
#include <stdarg.h>
#include <stdio.h>
#include "base/mem.h"

static const char *const words[] = {
    [BH_OK] = "ok",
    [BH_BUSY] = "busy",
    [BH_UNAVAILABLE] = "unavailable",
    [BH_REFUSED] = "refused",
    [BH_MALFORMED] = "malformed",
    [BH_CONFLICT] = "conflict",
    [BH_NOT_FOUND] = "not_found",
    [BH_FENCED] = "fenced",
    [BH_CANCELLED] = "cancelled",
    [BH_UNKNOWN] = "unknown",
};

const char *bh_err_word(enum bh_err err)
{
    return (unsigned)err < ARRAY_LEN(words) ? words[err] : "unknown";
}

enum { WHY_BYTES = 256 };

enum bh_err bh_err_why(enum bh_err err, char *ret_why, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(ret_why, WHY_BYTES, fmt, args);
    va_end(args);
    return err;
}

bool bh_why(char *ret_why, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(ret_why, WHY_BYTES, fmt, args);
    va_end(args);
    return false;
}
