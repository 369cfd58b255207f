/* url.h - the parts of a URL, as views into it. */
#pragma once
#include "base/str.h"

struct url {                    /* absent: there is no such part */
    struct str scheme;          /* "https" */
    struct str user, password;  /* "user:password@"; still percent-encoded */
    struct str authority, host; /* "host:1" without the user; the host alone, without brackets */
    uint16_t port;              /* 0: none is named */
    struct str target;          /* path and query, without a fragment */
};

/* NULL, or what is wrong with @text, as the end of a sentence: "it has blanks". */
const char *url_split(struct str text, struct url *ret);
