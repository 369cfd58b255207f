/* media_route.h - uploads and downloads over HTTP: /relay/media, and files of the chat page. */
#pragma once
#include "base/buf.h"
#include "net/http_server.h"

struct front;

/* A file of the chat page.  False: the path is not one of them. */
bool page_download(struct front *f, struct http_req *req);

/* Runs when a request's head has arrived: starts an upload, whose body is read in pieces.  Its
 * context is the front. */
http_handler front_on_head;

/* Appends the stored @frame with a signed URL for each of its files.  A URL needs no bearer and is
 * valid for media.ttl; older gateways need such URLs. */
void media_add_urls(const struct front *f, struct str frame, struct buf *out);
void media_downloads_drop(struct front *f); /* called before struct media is closed */
