/* url_probe.h - can the place a URL names be reached from here?  Connects, asks nothing. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum url_answer {
    URL_MALFORMED,
    URL_UNKNOWN_NAME, /* @ret_why tells */
    URL_PRIVATE,      /* only with @public_only */
    URL_SILENT,
    URL_REACHED,
};
/* Blocks, at most @timeout_ms and a name lookup.  @ret_place (272 bytes) is "host:port", or the
 * host alone where it is at fault; @ret_why has 128 bytes. */
enum url_answer url_probe(const char *url, bool public_only, int64_t timeout_ms, char *ret_place,
                          char *ret_why);
