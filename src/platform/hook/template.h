/* template.h - texts with placeholders, and how values are escaped in them.  Pure.
 *
 *      "https://cloud.example.org/bot/{chat_id}/message"     a URL: values are percent-encoded
 *      "Bearer {secret}"                                     a header: no control characters
 *      "{header:X-Random}{body}"                             what is signed: values as they are
 *      {"message": "{text}", "replyTo": "{number:reply_to?}"}
 *                                                            JSON: values are escaped
 *
 * "{{" is a brace.  Any other brace that begins no placeholder is refused when the configuration is
 * read, so a misspelt name never reaches a vendor.
 *
 * In JSON, a text that is one placeholder and nothing else may be marked.  "{number:name}" becomes
 * a number, and "{name?}" is left out, with the name of its member, if there is no value.
 */
#pragma once
#include "base/buf.h"
#include "base/json.h"

struct jw;

enum template_name {
    TEMPLATE_TEXT,
    TEMPLATE_CHAT_ID,
    TEMPLATE_THREAD_ID,
    TEMPLATE_REPLY_TO,
    TEMPLATE_KEY,       /* the idempotency key of the request */
    TEMPLATE_RANDOM,    /* 64 hex digits, new for each request */
    TEMPLATE_TIMESTAMP, /* seconds since 1970 */
    TEMPLATE_SECRET,    /* `send.secret` */
    TEMPLATE_BODY,      /* the request's */
    TEMPLATE_NAMES,
    TEMPLATE_HEADER = TEMPLATE_NAMES, /* "{header:Name}" */
};
#define TEMPLATE_BIT(name) (1u << (name))
/* What a request may be made of; its headers and its URL may also name the secret. */
#define TEMPLATE_REQUEST \
    (TEMPLATE_BIT(TEMPLATE_TEXT) | TEMPLATE_BIT(TEMPLATE_CHAT_ID) | \
     TEMPLATE_BIT(TEMPLATE_THREAD_ID) | TEMPLATE_BIT(TEMPLATE_REPLY_TO) | \
     TEMPLATE_BIT(TEMPLATE_KEY) | TEMPLATE_BIT(TEMPLATE_RANDOM) | \
     TEMPLATE_BIT(TEMPLATE_TIMESTAMP))

struct template_values { /* borrowed; an absent value is empty */
    struct str of[TEMPLATE_NAMES];
    /* The value of a header; absent: there is none. */
    struct str (*header)(const void *ctx, const char *name);
    const void *ctx;
};

/* The names of the placeholders in @text, as TEMPLATE_BITs.  False: @ret_why (256 bytes) says what
 * is wrong, as the end of a sentence; among others a name that is not in @allowed. */
bool template_check(struct str text, unsigned allowed, unsigned *ret_used, char *ret_why);
/* The same of all texts of a JSON value; the names of members are no templates. */
bool template_check_json(struct json v, unsigned allowed, unsigned *ret_used, char *ret_why);
/* Is "{header:@name}" in @text? */
bool template_names_header(struct str text, struct str name);

/* All below take what was checked, and append to @out.  False: a value cannot stand there. */

/* The values as they are; false: a header is not there. */
bool template_plain(struct str text, const struct template_values *v, struct buf *out);
/* The value of a header; false: it has a control character. */
bool template_header(struct str text, const struct template_values *v, struct buf *out);
/* Values are percent-encoded; false: the chat's id is empty, or a step of the path is "." or "..",
 * which servers resolve. */
bool template_url(struct str text, const struct template_values *v, struct buf *out);
/* False: the value of a "{number:name}" is not a whole number. */
bool template_json(struct json body, const struct template_values *v, struct buf *out);
