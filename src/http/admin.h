/* admin.h - shared by the two files of the admin socket: admin_list.c reads for the command line,
 * admin_change.c makes its changes. */
#pragma once
#include "net/http_server.h"

struct front;
struct jw;

/* Finds the tenant of @instance: fills an empty @tenant when exactly one tenant has the instance.
 * False: the instance is unknown or ambiguous, and the error has been sent. */
bool admin_find_instance(struct front *f, struct http_id id, struct str instance,
                         struct buf *tenant);
void admin_time(struct jw *w, const char *key, int64_t ms); /* unix ms, or null for never */
