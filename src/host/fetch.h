/* fetch.h - files and context of events that wait: the adapters' side of outside.fetch().
 *
 *      relay --fetch()--> adapter's media_where() --host_media_at()--> media_fetch() --> relay
 *
 * The relay decides what is fetched and for how long (relay/in/staged.h); this file only carries
 * the question to the adapter and the file to the media. */
#pragma once
#include "platform/platform.h"
#include "relay/relay.h"

struct fetches_in;
struct media;

struct fetches_in *fetches_in_new(struct media *media); /* borrowed */
void fetches_in_free(struct fetches_in *f);             /* NULL is fine; nobody is told */

void fetch_in_ask(struct platform *p, struct wait_id id, size_t file, const struct event *ev);
void fetch_in_at(struct fetches_in *f, struct relay *r, struct media_ask ask,
                 const struct media_at *at);
void fetch_in_gone(struct relay *r, struct media_ask ask, const char *why);
void fetch_in_drop(struct fetches_in *f, struct wait_id id); /* the relay waits no more */
