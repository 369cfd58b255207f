/* media_route.h - uploads and downloads over HTTP: /relay/media, and files of the chat page. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "net/http_server.h"

struct front;
struct media_file;

struct media_upload {   /* borrowed for the call, which copies it */
    const char *tenant; /* the tenant whose quota the file counts against */
    struct str name;
    const char *chat, *bot; /* of the chat page; NULL: a gateway uploads */
    /* The file is stored: answer the request. */
    void (*answer)(struct front *f, struct http_id id, const struct media_upload *u,
                   const struct media_file *file);
};
void media_take_upload(struct front *f, struct http_req *req, const struct media_upload *u);
/* Files of the chat page.  False: the path is not one of them. */
bool page_upload(struct front *f, struct http_req *req);
bool page_download(struct front *f, struct http_req *req);

/* Runs when a request's head has arrived: starts an upload, whose body is read in pieces.  Its
 * context is the front. */
http_handler front_on_head;

/* Answer with a file.  @shown: a person's browser may show it inline when its type is harmless. */
void media_answer(struct front *f, struct http_req *req, const struct media_file *file, bool shown);
/* Appends the stored @frame with a signed URL for each of its files.  A URL needs no bearer and is
 * valid for media.ttl; older gateways need such URLs. */
void media_place(const struct front *f, struct str frame, struct buf *out);
/* Answers that an upload failed, with the status for @err. */
void media_refuse(struct http_server *server, struct http_id id, enum bh_err err);
void media_downloads_drop(struct front *f); /* called before struct media is closed */
