/* attachment.h - the file of an action, and multipart bodies that carry one.
 *
 * An action's file is borrowed for the call; an adapter that sends it later copies its description.
 * The bytes stay on disk and are read while they are sent.
 *
 *      multipart_begin(&mp, rand)
 *      multipart_field(&mp, "chat_id", chat)           before and behind the file
 *      multipart_file(&mp, "photo", &att)              its place
 *      multipart_end(&mp, request)
 */
#pragma once
#include "base/buf.h"
#include "core/action.h"

struct rand;
struct sender_request;

struct attachment {                        /* zeroed: none */
    char *path, *type, *name, *url, *kind; /* owned; url NULL: it has none that others reach */
    uint64_t size;
};
void attachment_copy(struct attachment *a, const struct action *from);
void attachment_done(struct attachment *a); /* harmless when zeroed */
/* Its name, or one that its type suggests. */
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
/* Moves all of it into @q, with its content type as the last of the headers. */
void multipart_end(struct multipart *m, const struct attachment *a, struct sender_request *q);
