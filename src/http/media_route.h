/* media_route.h - files over HTTP: what other routes share with /relay/media. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "net/http_server.h"

struct front;
struct media_file;

struct media_upload {   /* borrowed for the call that takes it; kept as a copy while it goes on */
    const char *tenant; /* who pays */
    struct str name;
    const char *chat, *bot; /* of the page it came from; NULL: a gateway's */
    /* It is here: say so. */
    void (*answer)(struct front *f, struct http_id id, const struct media_upload *u,
                   const struct media_file *file);
};
void media_take_upload(struct front *f, struct http_req *req, const struct media_upload *u);
/* Files of the chat page; false: the path is another one's. */
bool page_upload(struct front *f, struct http_req *req);
bool page_download(struct front *f, struct http_req *req);

http_handler front_on_head; /* bodies that are taken as they come; its context is the front */

/* Answer with a file.  @shown: to a person's browser, which may show what cannot do anything. */
void media_answer(struct front *f, struct http_req *req, const struct media_file *file, bool shown);
/* A frame as it is kept, with the addresses of its files: whoever has one may read the file for
 * media.ttl, as older gateways do. */
void media_place(const struct front *f, struct str frame, struct buf *out);
/* Why a file was not taken. */
void media_refuse(struct http_server *server, struct http_id id, enum bh_err err);
void media_downloads_drop(struct front *f); /* before the media is closed */
