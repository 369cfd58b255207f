/* err.c - the words behind enum bh_err. */
#include "base/err.h"
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
