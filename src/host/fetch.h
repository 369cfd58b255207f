/* fetch.h - fetches the files of waiting events: asks the adapter for the URL, then the media.
 *
 *      relay --fetch()--> adapter's media_where() --host_media_at()--> media_fetch() --> relay
 *
 * host.c calls this module.  It owns the pending downloads.  The relay decides which files are
 * fetched, and their timeout (relay/in/staged.h). */
#pragma once
#include "platform/platform.h"
#include "relay/relay.h"

struct fetches_in;
struct media;

struct fetches_in *fetches_in_new(struct media *media); /* borrowed */
void fetches_in_free(struct fetches_in *f);             /* NULL is fine; cancels the downloads */

/* Asks the adapter for the URL of a file. */
void fetch_in_ask(struct platform *p, struct handle id, size_t file, const struct event *ev);
/* The adapter's answer: starts the download from @at. */
void fetch_in_at(struct fetches_in *f, struct relay *r, struct media_ask ask,
                 const struct media_at *at);
/* The adapter's answer: the file is not available. */
void fetch_in_gone(struct relay *r, struct media_ask ask, const char *why);
void fetch_in_drop(struct fetches_in *f, struct handle id); /* cancels the downloads of @id */
