/* attachment.h - describes the file of an action, and builds multipart bodies that carry the file.
 *
 *      multipart_begin(&mp, rand)
 *      multipart_field(&mp, "chat_id", chat)           fields before or after the file
 *      multipart_file(&mp, "photo", &att)              the place of the file
 *      multipart_end(&mp, &att, request)
 *
 * Adapters call it.  The file of an action is borrowed for the call, so an adapter that sends the
 * file later copies its description.  The bytes stay on disk; the HTTP client reads them while it
 * sends the request.
 */
#pragma once
#include "base/buf.h"
#include "core/action.h"

struct rand;
struct sender_request;

struct attachment {                        /* zeroed: none */
    char *path, *type, *name, *url, *kind; /* owned; url NULL: no public address */
    uint64_t size;
};
void attachment_copy(struct attachment *a, const struct action *from);
void attachment_done(struct attachment *a); /* harmless when zeroed */
/* Adds the file's name, or a name made from its type. */
void attachment_name_add(struct buf *out, const struct attachment *a);

struct multipart {
    struct buf before, after; /* owned until multipart_end() */
    bool has_file;
    char boundary[40];
};
void multipart_begin(struct multipart *m, struct rand *rand);
void multipart_field(struct multipart *m, const char *name, struct str value);
void multipart_json(struct multipart *m, const char *name, struct str value);
void multipart_file(struct multipart *m, const char *name, const struct attachment *a);
/* Moves the body into @q, and sets its Content-Type as the last header. */
void multipart_end(struct multipart *m, const struct attachment *a, struct sender_request *q);
